//! The node's one UDP socket: many datagrams a system call where the kernel can (GSO, GRO, `recvmmsg`).

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use antiphon_wire::datagram::MAX_DATAGRAM_BYTES;
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use socket2::{Domain, MsgHdr, Protocol, SockAddr, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::tcp::{self, canonical};

/// What the kernel is asked to hold for this node until it is read.
const RECEIVE_BYTES: usize = 8 << 20;
/// What the kernel is asked to take before the network has.
const SEND_BYTES: usize = 2 << 20;
/// Bytes of one send, headers included: what the kernel segments must be one datagram's worth.
const MAX_SEND_BYTES: usize = 65_000;
/// Listening anew if the port that TCP was given is taken for UDP.
pub(super) const PORTS_TRIED: usize = 16;

/// Both listeners of a node, on one port, for [`UdpTransport::start`](super::UdpTransport::start). An
/// unspecified IPv6 address takes IPv4 as well.
///
/// # Errors
/// What the system says, as `AddrInUse`.
pub fn listen(addr: SocketAddr) -> io::Result<(std::net::TcpListener, std::net::UdpSocket)> {
    for _ in 1..PORTS_TRIED {
        match listen_once(addr) {
            Err(error) if addr.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            done => return done,
        }
    }
    listen_once(addr)
}

fn listen_once(addr: SocketAddr) -> io::Result<(std::net::TcpListener, std::net::UdpSocket)> {
    let listener = tcp::listen(addr)?;
    let socket = bind(listener.local_addr()?)?;
    Ok((listener, socket))
}

/// A UDP socket on an address that TCP was given.
pub(super) fn bind(addr: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

#[derive(Debug)]
pub(super) struct Datagrams {
    socket: UdpSocket,
    state: UdpSocketState,
    /// What it is bound to.
    pub(super) local: SocketAddr,
    /// Segments of one send; 1 where the system cannot cut.
    most_segments: usize,
    /// What the kernel holds until it is read, as it counts: with its overhead.
    pub(super) receive_bytes: usize,
}

/// The two addresses of a datagram that was received. An answer goes back from the address that it came to:
/// its sender, or a firewall in between, may take an answer from no other.
#[derive(Debug, Clone, Copy)]
pub(super) struct AddressPair {
    pub(super) remote: SocketAddr,
    /// The address of this host; none: the system chooses.
    local: Option<IpAddr>,
}

impl AddressPair {
    pub(super) fn of(meta: &RecvMeta) -> Self {
        Self {
            remote: canonical(meta.addr),
            local: meta.dst_ip,
        }
    }
}

impl From<SocketAddr> for AddressPair {
    fn from(remote: SocketAddr) -> Self {
        Self { remote, local: None }
    }
}

/// How many segments the kernel cuts for one path. Each search of a path begins anew: the device of the
/// route decides, and other paths of the socket have other devices.
#[derive(Debug)]
pub(super) struct Offload {
    most_segments: usize,
}

impl Offload {
    /// How many segments of this size one [`send`](Datagrams::send) may have.
    pub(super) fn segments_at_once(&self, segment_bytes: usize) -> usize {
        (MAX_SEND_BYTES / segment_bytes).clamp(1, self.most_segments)
    }

    /// Whether a send of several segments failed because they cannot be cut on this path: from now on they
    /// are sent one by one.
    pub(super) fn is_refused(&mut self, to: &SockAddr, error: &io::Error) -> bool {
        let refused = matches!(
            error.raw_os_error(),
            Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP)
        );
        if refused {
            self.most_segments = 1;
            let to = to.as_socket();
            tracing::info!(target: "antiphon::net", ?to, %error, "the system does not cut datagrams on the way there: they are sent one by one");
        }
        refused
    }
}

impl Datagrams {
    /// With buffers as large as the system grants.
    pub(super) fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        enlarge_buffers(&socket)?;
        Self::as_it_is(socket)
    }

    /// With the buffers that the socket has.
    pub(super) fn as_it_is(socket: std::net::UdpSocket) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let state = UdpSocketState::new((&socket).into())?;
        let receive_bytes = SockRef::from(&socket).recv_buffer_size()?;
        Ok(Self {
            socket: UdpSocket::from_std(socket)?,
            // Asked now: later, any refused send sets it to 1 for the whole socket.
            most_segments: state.max_gso_segments(),
            state,
            local,
            receive_bytes,
        })
    }

    /// Sends one small datagram now or never: a timer repeats everything that is sent so. It does not ask the
    /// runtime whether the socket is ready: while flows fill the buffer the runtime says no, although the
    /// kernel has room for a datagram most of the time.
    pub(super) fn send_or_forget(&self, to: impl Into<AddressPair>, contents: &[u8]) -> io::Result<()> {
        let to = to.into();
        let transmit = Transmit {
            destination: self.destination(to.remote),
            ecn: None,
            contents,
            segment_size: None,
            src_ip: to.local,
        };
        self.state.try_send((&self.socket).into(), &transmit)
    }

    /// For a path on which nothing was sent yet.
    pub(super) fn offload(&self) -> Offload {
        Offload {
            most_segments: self.most_segments,
        }
    }

    /// Sends datagrams of this size, the last one perhaps shorter, as soon as the socket takes them. `slices`
    /// gives their bytes to a function that sends them.
    ///
    /// # Errors
    /// What the system says. [`Offload::is_refused`] tells whether sending them one by one may help.
    pub(super) async fn send(
        &self,
        to: &SockAddr,
        segment_bytes: Option<usize>,
        mut slices: impl FnMut(&mut dyn FnMut(&[IoSlice<'_>]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<()> {
        let control = segment_bytes.map(segment_control);
        self.socket
            .async_io(Interest::WRITABLE, || {
                slices(&mut |slices| {
                    let message = MsgHdr::new().with_addr(to).with_buffers(slices);
                    let message = match &control {
                        Some(control) => message.with_control(control),
                        None => message,
                    };
                    SockRef::from(&self.socket).sendmsg(&message, 0).map(drop)
                })
            })
            .await
    }

    /// The address as this socket wants it.
    pub(super) fn destination(&self, to: SocketAddr) -> SocketAddr {
        destination(self.local, to)
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Reads what is there, without waiting.
    pub(super) fn try_receive(
        &self,
        into: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> io::Result<usize> {
        self.socket.try_io(Interest::READABLE, || {
            self.state.recv((&self.socket).into(), into, meta)
        })
    }
}

/// Whether a socket bound there may send to this address by its family. An unspecified IPv6 address takes
/// IPv4 as well.
fn reaches(local: SocketAddr, to: SocketAddr) -> bool {
    local.is_ipv6() == to.is_ipv6() || local.is_ipv6() && local.ip().is_unspecified()
}

/// The address as a socket bound there wants it.
fn destination(local: SocketAddr, to: SocketAddr) -> SocketAddr {
    match (to, local.is_ipv6()) {
        (SocketAddr::V4(v4), true) => SocketAddr::new(IpAddr::V6(v4.ip().to_ipv6_mapped()), v4.port()),
        _ => to,
    }
}

/// The socket to send from to an address: the socket bound to the address that the system would send from, or
/// else one that can send there.
pub(super) fn towards<T>(all: &[T], local: impl Fn(&T) -> SocketAddr, to: SocketAddr) -> Option<&T> {
    let source = if all.len() > 1 { source_towards(to) } else { None };
    let bound = |socket: &&T| source.is_some_and(|source| local(socket).ip() == source);
    let any = |socket: &&T| local(socket).ip().is_unspecified() && reaches(local(socket), to);
    let able = |socket: &&T| reaches(local(socket), to);
    let found = all.iter().find(bound);
    found
        .or_else(|| all.iter().find(any))
        .or_else(|| all.iter().find(able))
}

/// Asks for large buffers.
fn enlarge_buffers(socket: &std::net::UdpSocket) -> io::Result<()> {
    let reference = SockRef::from(socket);
    // If one fails, the default stays; what was granted is asked for below.
    let _ = reference.set_send_buffer_size(SEND_BYTES);
    let _ = reference.set_recv_buffer_size(RECEIVE_BYTES);
    #[cfg(target_os = "linux")]
    // Beyond the system's limit, if this process may do that.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, RECEIVE_BYTES);
    let granted = reference.recv_buffer_size()?;
    if granted < RECEIVE_BYTES {
        tracing::info!(
            target: "antiphon::net", granted, wanted = RECEIVE_BYTES,
            "the system limits what it holds of UDP until it is read (Linux: sysctl net.core.rmem_max): senders will \
             have less on their way at a time"
        );
    }
    Ok(())
}

/// The control message that has the kernel cut what is sent into datagrams (`UDP_SEGMENT`).
#[cfg(target_os = "linux")]
fn segment_control(segment_bytes: usize) -> Vec<u8> {
    const HEADER: usize = size_of::<usize>() + 8;
    let mut control = Vec::with_capacity(HEADER + size_of::<usize>());
    control.extend_from_slice(&(HEADER + 2).to_ne_bytes());
    control.extend_from_slice(&libc::SOL_UDP.to_ne_bytes());
    control.extend_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
    control.extend_from_slice(&(segment_bytes as u16).to_ne_bytes());
    control.resize(HEADER + size_of::<usize>(), 0);
    control
}

/// Elsewhere nothing is ever sent in segments.
#[cfg(not(target_os = "linux"))]
fn segment_control(_segment_bytes: usize) -> Vec<u8> {
    Vec::new()
}

/// Sizes of datagrams worth trying on the way to this address, largest first: what the route says, then what
/// most networks and tunnels pass, then what every IPv6 network must.
pub(super) fn sizes(to: SocketAddr, limit: Option<usize>) -> Vec<usize> {
    let headers = if to.is_ipv4() { 28 } else { 48 };
    let route = route_mtu(to).unwrap_or(1500).saturating_sub(headers);
    let first = route
        .min(limit.unwrap_or(MAX_DATAGRAM_BYTES))
        .clamp(SMALLEST_DATAGRAM, MAX_DATAGRAM_BYTES);
    let common = [1500 - headers, 1400 - headers, SMALLEST_DATAGRAM];
    [first]
        .into_iter()
        .chain(common.into_iter().filter(|size| *size < first))
        .collect()
}

/// No path is tried with less, in bytes without headers: it fits the smallest packet that IPv6 guarantees.
pub const SMALLEST_DATAGRAM: usize = 1232;

/// The address that the system would send from.
pub(super) fn source_towards(to: SocketAddr) -> Option<IpAddr> {
    let local = routed(to)?.local_addr().ok()?;
    Some(local.ip())
}

/// A socket on the route to an address. Connecting sends nothing; it looks up the route.
fn routed(to: SocketAddr) -> Option<std::net::UdpSocket> {
    let any: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0u16; 8], 0).into()
    };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(socket)
}

#[cfg(target_os = "linux")]
fn route_mtu(to: SocketAddr) -> Option<usize> {
    let socket = routed(to)?;
    let mtu = match to {
        SocketAddr::V4(_) => rustix::net::sockopt::ip_mtu(&socket),
        SocketAddr::V6(_) => rustix::net::sockopt::ipv6_mtu(&socket),
    };
    mtu.ok().map(|mtu| mtu as usize)
}

#[cfg(not(target_os = "linux"))]
fn route_mtu(_to: SocketAddr) -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_begin_with_what_the_route_or_the_limit_says_and_end_with_what_always_passes() {
        let loopback: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert_eq!(sizes(loopback, Some(1472)), [1472, 1372, 1232]);
        assert_eq!(sizes(loopback, Some(100)), [1232]);
        #[cfg(target_os = "linux")]
        assert!(sizes(loopback, None)[0] > 9000);
        let abroad: SocketAddr = "[2001:db8::1]:1".parse().unwrap();
        assert_eq!(sizes(abroad, Some(1300)), [1300, 1232]);
    }

    #[tokio::test]
    async fn both_protocols_listen_on_one_port() {
        for any in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let (listener, socket) = listen(any.parse().unwrap()).unwrap();
            assert_eq!(
                listener.local_addr().unwrap().port(),
                socket.local_addr().unwrap().port()
            );
            assert!(Datagrams::new(socket).unwrap().receive_bytes > 0);
        }
    }

    #[tokio::test]
    async fn a_small_datagram_leaves_although_the_runtime_takes_the_buffer_for_full() {
        let (_listener, socket) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let datagrams = Datagrams::new(socket).unwrap();
        datagrams.socket.writable().await.unwrap();
        // What a flow leaves behind that finds the buffer full.
        let full: io::Result<()> = datagrams
            .socket
            .try_io(Interest::WRITABLE, || Err(io::ErrorKind::WouldBlock.into()));
        assert!(full.is_err());
        datagrams.send_or_forget(datagrams.local, b"a report").unwrap();
    }
}
