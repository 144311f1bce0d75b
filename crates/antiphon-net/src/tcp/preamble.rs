//! What a connection begins with: the dialler's advertised address.
//!
//! ```text
//! | length 4 = 22 | "ATPH" or "ATPQ" 4 | IPv6 address (IPv4 mapped) 16 | port 2 |
//! ```
//! Integers are little-endian, the address is in network order. The length is one that no frame has, so a
//! connection without a preamble is told apart; the sender's address is then where the connection came from.
//!
//! `ATPQ` asks for a notice of what became of the connection's first frame (see [`super::enquiry`]).
//!
//! A preamble is never believed: it says where to answer an *authentic* frame, and which peer's injected
//! faults apply.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const LENGTH: u32 = 22;
const MAGIC: &[u8; 4] = b"ATPH";
const ASKING: &[u8; 4] = b"ATPQ";
/// Bytes of the whole preamble.
pub(super) const PREAMBLE_BYTES: usize = 26;

/// What the first bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Too few to tell.
    Incomplete,
    /// The dialler's advertised address, in [`PREAMBLE_BYTES`].
    Preamble(SocketAddr),
    /// The same address, with a request for a notice.
    Asking(SocketAddr),
    /// A frame, or nothing of ours.
    Other,
}

pub(super) fn encode(advertised: SocketAddr) -> [u8; PREAMBLE_BYTES] {
    with(MAGIC, advertised)
}

/// For a dialler that wants to know what becomes of its first frame.
pub(super) fn encode_asking(advertised: SocketAddr) -> [u8; PREAMBLE_BYTES] {
    with(ASKING, advertised)
}

fn with(magic: &[u8; 4], advertised: SocketAddr) -> [u8; PREAMBLE_BYTES] {
    let ip = match advertised.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut out = [0; PREAMBLE_BYTES];
    out[..4].copy_from_slice(&LENGTH.to_le_bytes());
    out[4..8].copy_from_slice(magic);
    out[8..24].copy_from_slice(&ip.octets());
    out[24..].copy_from_slice(&advertised.port().to_le_bytes());
    out
}

pub(super) fn read(bytes: &[u8]) -> Start {
    let Some(length) = bytes.first_chunk::<4>() else {
        return Start::Incomplete;
    };
    if u32::from_le_bytes(*length) != LENGTH {
        return Start::Other;
    }
    let Some(preamble) = bytes.first_chunk::<PREAMBLE_BYTES>() else {
        return Start::Incomplete;
    };
    let asking = &preamble[4..8] == ASKING;
    if !asking && &preamble[4..8] != MAGIC {
        return Start::Other;
    }
    let mut ip = [0; 16];
    ip.copy_from_slice(&preamble[8..24]);
    let port = u16::from_le_bytes([preamble[24], preamble[25]]);
    let from = SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(), port);
    match asking {
        true => Start::Asking(from),
        false => Start::Preamble(from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_either_family_survives_and_its_parts_are_waited_for() {
        for addr in ["10.1.2.3:7400", "[fd00::17]:65535", "127.0.0.1:1"] {
            let addr: SocketAddr = addr.parse().unwrap();
            for (bytes, expected) in [
                (encode(addr), Start::Preamble(addr)),
                (encode_asking(addr), Start::Asking(addr)),
            ] {
                for part in 0..PREAMBLE_BYTES {
                    assert_eq!(read(&bytes[..part]), Start::Incomplete, "{part} bytes");
                }
                assert_eq!(read(&bytes), expected);
            }
        }
    }

    #[test]
    fn what_begins_otherwise_is_no_preamble() {
        assert_eq!(read(&u32::MAX.to_le_bytes()), Start::Other);
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Start::Other);
        let mut bytes = encode("10.0.0.1:1".parse().unwrap());
        bytes[4] = b'X';
        assert_eq!(read(&bytes), Start::Other);
    }
}
