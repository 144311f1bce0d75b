//! Frames on datagrams: each cut into segments that fit the path, and put together again.
//!
//! ```text
//!  0       2         3      4             12
//!  | magic | version | kind | to 8        | …            every datagram
//!  | a7 d6 | 1       | 1    | session     | flow 8 | address 16 | port 2 | zeros …        hello
//!  |       |         | 2    | flow        | session 8 | window 4 | size 2 | open 1        welcome
//!  |       |         | 3    | session     | number 8 | behind 2 | length−1 2 | size 2 | index 1 | flags 1 | bytes …
//!  |       |         | 4    | flow        | seen 8 | window 4 | waited 4 | (behind 2, missing 8)*    report
//!  |       |         | 5    | session     |                                                    unknown session
//! ```
//! Integers are little-endian. Frames travel one way, from a *flow* of the sender to a *session* of the
//! receiver. `to` is a number that the receiver of the datagram has chosen. A host that does not see the
//! traffic cannot guess it.
//!
//! A frame of `length` bytes is cut into segments of `size` bytes, the last one shorter: 64 at most, so that
//! one word says which of them are missing. A datagram is not authentic. Only a frame is, once the frame
//! codec has opened it. [`Assembly`] therefore bounds what a session may hold, whatever its segments say.

mod assembly;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub use self::assembly::{Assembly, Inserted, MAX_AHEAD};
use crate::frame::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};

/// The first two bytes of every datagram; no frame begins so.
pub const MAGIC: [u8; 2] = [0xa7, 0xd6];
/// The version of the datagrams this build reads and writes.
pub const DATAGRAM_VERSION: u8 = 1;
/// Segments of a frame at most.
pub const MAX_SEGMENTS: usize = 64;
/// Bytes before the bytes of a frame.
pub const SEGMENT_HEADER_BYTES: usize = 28;
/// The smallest datagram that cuts the largest frame into no more than [`MAX_SEGMENTS`].
pub const MIN_DATAGRAM_BYTES: usize = MAX_FRAME_BYTES / MAX_SEGMENTS + SEGMENT_HEADER_BYTES;
/// The largest datagram there is, that of UDP over IPv4.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;
/// The highest number of a frame: no session lives that long.
pub const MAX_NUMBER: u64 = 1 << 62;
/// Frames with something missing that one report can name. If it names so many, it says nothing of the frames
/// after the last one named.
pub const MAX_GAPS: usize = 64;

const HEADER_BYTES: usize = 12;
const HELLO_BYTES: usize = HEADER_BYTES + 26;
const WELCOME_BYTES: usize = HEADER_BYTES + 15;
const REPORT_BYTES: usize = HEADER_BYTES + 16;
const GAP_BYTES: usize = 10;
const REPORT_AT_ONCE: u8 = 1;

/// What a datagram is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// A node wants to send.
    Hello(Hello),
    /// The answer to a hello.
    Welcome(Welcome),
    /// A part of a frame.
    Segment(Segment<'a>),
    /// What has arrived.
    Report(Report),
    /// There is no such session here: say hello again.
    Unknown {
        /// The session that was meant.
        session: u64,
    },
}

/// A node wants to send. A hello is as large as the datagrams that are to follow: it shows that they pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The session of the last welcome, 0 in the first hello. A node that can repeat it is reached at the
    /// address it seems to have.
    pub session: u64,
    /// The sender's name for what is to follow.
    pub flow: u64,
    /// The sender's advertised address, which only ever serves to answer an authentic frame.
    pub advertised: SocketAddr,
}

/// The answer to a hello, and shorter than a hello: so a stranger cannot flood another host in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The flow of the hello.
    pub flow: u64,
    /// The session to name from now on.
    pub session: u64,
    /// How much may be on its way without being reported.
    pub window: u32,
    /// The size of the hello.
    pub size: u16,
    /// Whether the hello named this session: frames are taken from now on.
    pub open: bool,
}

/// A part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The session that it belongs to.
    pub session: u64,
    /// The number of its frame, from 1.
    pub number: u64,
    /// The sender will not send again a part of any frame that is farther behind this frame.
    pub behind: u16,
    /// Bytes of the whole frame.
    pub length: usize,
    /// Bytes of each segment of this frame but the last.
    pub size: usize,
    /// Which segment it is.
    pub index: u8,
    /// The sender wants to know at once what has arrived.
    pub report_at_once: bool,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// What has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The flow whose frames it is about.
    pub flow: u64,
    /// The highest number of a frame of which something has arrived. All frames up to it that are not among
    /// the gaps have arrived, or are not waited for any more ([`MAX_GAPS`] limits what is said).
    pub seen: u64,
    /// How much may be on its way without being reported.
    pub window: u32,
    /// How long this report waited after the last arrival.
    pub waited_us: u32,
    /// What is missing, oldest first.
    pub gaps: Vec<Gap>,
}

/// What is missing of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// How far the frame is behind the last one seen.
    pub behind: u16,
    /// Bit i: segment i is missing. Bits beyond the last segment mean nothing. 0: nothing before the last
    /// segment seen is missing, but the frame is not whole.
    pub missing: u64,
}

impl Segment<'_> {
    /// How many segments the frame has.
    pub fn count(&self) -> usize {
        self.length.div_ceil(self.size)
    }

    /// Where in the frame its bytes are.
    pub fn offset(&self) -> usize {
        usize::from(self.index) * self.size
    }

    /// What goes before the bytes.
    pub fn header(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut out = [0; SEGMENT_HEADER_BYTES];
        out[..HEADER_BYTES].copy_from_slice(&header(3, self.session));
        out[12..20].copy_from_slice(&self.number.to_le_bytes());
        out[20..22].copy_from_slice(&self.behind.to_le_bytes());
        out[22..24].copy_from_slice(&((self.length - 1) as u16).to_le_bytes());
        out[24..26].copy_from_slice(&(self.size as u16).to_le_bytes());
        out[26] = self.index;
        out[27] = if self.report_at_once { REPORT_AT_ONCE } else { 0 };
        out
    }
}

impl Datagram<'_> {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Datagram::Hello(hello) => {
                let ip = match hello.advertised.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                out.extend_from_slice(&header(1, hello.session));
                out.extend_from_slice(&hello.flow.to_le_bytes());
                out.extend_from_slice(&ip.octets());
                out.extend_from_slice(&hello.advertised.port().to_le_bytes());
            }
            Datagram::Welcome(welcome) => {
                out.extend_from_slice(&header(2, welcome.flow));
                out.extend_from_slice(&welcome.session.to_le_bytes());
                out.extend_from_slice(&welcome.window.to_le_bytes());
                out.extend_from_slice(&welcome.size.to_le_bytes());
                out.push(u8::from(welcome.open));
            }
            Datagram::Segment(segment) => {
                out.extend_from_slice(&segment.header());
                out.extend_from_slice(segment.bytes);
            }
            Datagram::Report(report) => {
                out.extend_from_slice(&header(4, report.flow));
                out.extend_from_slice(&report.seen.to_le_bytes());
                out.extend_from_slice(&report.window.to_le_bytes());
                out.extend_from_slice(&report.waited_us.to_le_bytes());
                for gap in &report.gaps {
                    out.extend_from_slice(&gap.behind.to_le_bytes());
                    out.extend_from_slice(&gap.missing.to_le_bytes());
                }
            }
            Datagram::Unknown { session } => out.extend_from_slice(&header(5, *session)),
        }
    }
}

fn header(kind: u8, to: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..2].copy_from_slice(&MAGIC);
    out[2] = DATAGRAM_VERSION;
    out[3] = kind;
    out[4..].copy_from_slice(&to.to_le_bytes());
    out
}

/// Why a datagram was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DatagramError {
    /// Nothing of ours, or cut short.
    NotADatagram,
    /// A version this build does not speak.
    Version(u8),
    /// Its fields contradict each other.
    Malformed,
}

impl std::fmt::Display for DatagramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatagramError::NotADatagram => f.write_str("the bytes are not an Antiphon datagram"),
            DatagramError::Version(theirs) => write!(
                f,
                "the sender speaks datagram version {theirs}, this node speaks {DATAGRAM_VERSION}: update whichever is older"
            ),
            DatagramError::Malformed => f.write_str("the fields of the datagram contradict each other"),
        }
    }
}

impl std::error::Error for DatagramError {}

/// Reads a datagram. Its fields then have possible values, and no more is known of them.
///
/// # Errors
/// Why it is no datagram.
pub fn decode(bytes: &[u8]) -> Result<Datagram<'_>, DatagramError> {
    if bytes.len() < 4 || bytes[..2] != MAGIC {
        return Err(DatagramError::NotADatagram);
    }
    if bytes[2] != DATAGRAM_VERSION {
        return Err(DatagramError::Version(bytes[2]));
    }
    let least = match bytes[3] {
        1 => HELLO_BYTES,
        2 => WELCOME_BYTES,
        3 => SEGMENT_HEADER_BYTES,
        4 => REPORT_BYTES,
        5 => HEADER_BYTES,
        _ => return Err(DatagramError::NotADatagram),
    };
    if bytes.len() < least {
        return Err(DatagramError::NotADatagram);
    }
    let to = u64_at(bytes, 4);
    match bytes[3] {
        1 => Ok(Datagram::Hello(Hello {
            session: to,
            flow: u64_at(bytes, 12),
            advertised: SocketAddr::new(
                IpAddr::V6(Ipv6Addr::from(field(bytes, 20))).to_canonical(),
                u16_at(bytes, 36),
            ),
        })),
        2 if bytes.len() == WELCOME_BYTES && bytes[26] <= 1 => Ok(Datagram::Welcome(Welcome {
            flow: to,
            session: u64_at(bytes, 12),
            window: u32_at(bytes, 20),
            size: u16_at(bytes, 24),
            open: bytes[26] == 1,
        })),
        3 => segment(to, bytes).map(Datagram::Segment),
        4 => report(to, bytes).map(Datagram::Report),
        5 if bytes.len() == HEADER_BYTES => Ok(Datagram::Unknown { session: to }),
        _ => Err(DatagramError::Malformed),
    }
}

fn segment(session: u64, bytes: &[u8]) -> Result<Segment<'_>, DatagramError> {
    let segment = Segment {
        session,
        number: u64_at(bytes, 12),
        behind: u16_at(bytes, 20),
        length: usize::from(u16_at(bytes, 22)) + 1,
        size: usize::from(u16_at(bytes, 24)),
        index: bytes[26],
        report_at_once: bytes[27] & REPORT_AT_ONCE != 0,
        bytes: &bytes[SEGMENT_HEADER_BYTES..],
    };
    let makes_sense = segment.number > 0
        && segment.number <= MAX_NUMBER
        && u64::from(segment.behind) < segment.number
        && segment.length >= MIN_FRAME_BYTES
        && segment.size > 0
        && segment.count() <= MAX_SEGMENTS
        && usize::from(segment.index) < segment.count()
        && segment.bytes.len() == segment.size.min(segment.length - segment.offset())
        && bytes[27] & !REPORT_AT_ONCE == 0;
    makes_sense.then_some(segment).ok_or(DatagramError::Malformed)
}

fn report(flow: u64, bytes: &[u8]) -> Result<Report, DatagramError> {
    let gaps = &bytes[REPORT_BYTES..];
    if !gaps.len().is_multiple_of(GAP_BYTES) || gaps.len() > MAX_GAPS * GAP_BYTES {
        return Err(DatagramError::Malformed);
    }
    Ok(Report {
        flow,
        seen: u64_at(bytes, 12),
        window: u32_at(bytes, 20),
        waited_us: u32_at(bytes, 24),
        gaps: gaps
            .chunks_exact(GAP_BYTES)
            .map(|gap| Gap {
                behind: u16_at(gap, 0),
                missing: u64_at(gap, 2),
            })
            .collect(),
    })
}

/// A fixed field; the caller has checked that it is there.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment<'static> {
        Segment {
            session: 7,
            number: 3,
            behind: 2,
            length: 100,
            size: 60,
            index: 1,
            report_at_once: true,
            bytes: &[5; 40],
        }
    }

    fn bytes(datagram: &Datagram<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        datagram.encode(&mut out);
        out
    }

    #[test]
    fn every_datagram_survives_and_none_that_was_cut_short_is_believed() {
        let datagrams = [
            Datagram::Hello(Hello {
                session: 1,
                flow: u64::MAX,
                advertised: "10.1.2.3:7400".parse().unwrap(),
            }),
            Datagram::Welcome(Welcome {
                flow: 2,
                session: 3,
                window: 1 << 20,
                size: 1472,
                open: true,
            }),
            Datagram::Segment(segment()),
            Datagram::Report(Report {
                flow: 9,
                seen: 1000,
                window: 5,
                waited_us: 77,
                gaps: vec![
                    Gap {
                        behind: 0,
                        missing: 6,
                    },
                    Gap {
                        behind: 999,
                        missing: u64::MAX,
                    },
                ],
            }),
            Datagram::Unknown { session: 4 },
        ];
        for datagram in datagrams {
            let whole = bytes(&datagram);
            assert_eq!(decode(&whole), Ok(datagram.clone()));
            for length in 0..whole.len() {
                let cut = decode(&whole[..length]);
                // A report loses gaps with its end; everything else is refused.
                let is_report = matches!(&cut, Ok(Datagram::Report(report)) if report.gaps.len() < 2);
                assert!(cut.is_err() || is_report, "{datagram:?} cut to {length}");
            }
        }
    }

    #[test]
    fn a_hello_may_be_as_large_as_the_path_and_a_welcome_is_always_smaller() {
        let hello = Hello {
            session: 0,
            flow: 1,
            advertised: "[fd00::1]:1".parse().unwrap(),
        };
        let mut padded = bytes(&Datagram::Hello(hello));
        assert!(padded.len() > WELCOME_BYTES);
        padded.resize(1472, 0);
        assert_eq!(decode(&padded), Ok(Datagram::Hello(hello)));
    }

    #[test]
    fn segments_that_contradict_themselves_are_refused() {
        let good = segment();
        let bad = [
            (
                "number 0",
                Segment {
                    number: 0,
                    behind: 0,
                    ..good
                },
            ),
            (
                "farther behind than there are frames",
                Segment { behind: 3, ..good },
            ),
            (
                "shorter than a frame",
                Segment {
                    length: 55,
                    size: 55,
                    index: 0,
                    bytes: &[0; 55],
                    ..good
                },
            ),
            (
                "more segments than a word has bits",
                Segment {
                    length: 65,
                    size: 1,
                    index: 0,
                    bytes: &[0],
                    ..good
                },
            ),
            (
                "an index behind the end",
                Segment {
                    index: 2,
                    bytes: &[],
                    ..good
                },
            ),
            (
                "too few bytes",
                Segment {
                    bytes: &[0; 39],
                    ..good
                },
            ),
            (
                "too many bytes",
                Segment {
                    bytes: &[0; 41],
                    ..good
                },
            ),
            (
                "a short one in the middle",
                Segment {
                    index: 0,
                    bytes: &[0; 40],
                    ..good
                },
            ),
        ];
        for (what, segment) in bad {
            let bytes = bytes(&Datagram::Segment(segment));
            assert_eq!(decode(&bytes), Err(DatagramError::Malformed), "{what}");
        }
        let mut no_size = bytes(&Datagram::Segment(good));
        no_size[24..26].fill(0);
        assert_eq!(decode(&no_size), Err(DatagramError::Malformed));
        let mut newer = bytes(&Datagram::Segment(good));
        newer[2] = 9;
        assert_eq!(decode(&newer), Err(DatagramError::Version(9)));
    }
}
