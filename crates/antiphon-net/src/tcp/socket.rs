//! Socket options, and the one system call that no safe wrapper offers.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::Class;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, TcpStream};

use super::TcpConfig;

/// Unsent bytes the kernel takes of a bulk connection: more would only wait in the kernel, where nothing can
/// overtake it.
const BULK_NOTSENT_BYTES: u32 = 128 << 10;
/// Of a segment on a path where large packets vanish: with its headers it is shorter than what every path of
/// IPv6 carries, 1280 bytes.
const NARROW_BYTES: u32 = 1200;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listener for [`TcpTransport::start`](super::TcpTransport::start). An unspecified IPv6 address takes IPv4
/// as well.
///
/// # Errors
/// What the system says, as `AddrInUse`.
pub fn listen(addr: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    // A node restarted at once finds connections of its predecessor in TIME_WAIT on its port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// To dial from. `narrow`: its segments pass where large packets vanish, if the system can do that.
pub(super) fn dialling(to: SocketAddr, narrow: bool) -> io::Result<TcpSocket> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    #[cfg(unix)]
    if narrow {
        // A system that cannot dials all the same, as before.
        let _ = SockRef::from(&socket).set_tcp_mss(NARROW_BYTES);
    }
    #[cfg(not(unix))]
    let _ = narrow;
    Ok(socket)
}

/// For a connection that this side sends frames on.
pub(super) fn tune_outbound(stream: &TcpStream, class: Class, config: &TcpConfig) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive(config.user_timeout))?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_user_timeout(Some(config.user_timeout))?;
        match class {
            // Few and small: retransmitting without doubling the wait costs nothing and saves seconds under
            // loss (R21).
            Class::Control => socket.set_tcp_thin_linear_timeouts(true)?,
            Class::Bulk => socket.set_tcp_notsent_lowat(BULK_NOTSENT_BYTES)?,
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = class;
    Ok(())
}

/// For a connection that this side only receives on: a dialler that vanished must not hold its place for
/// ever.
pub(super) fn tune_inbound(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_tcp_keepalive(&keepalive(Duration::from_secs(15)))
}

/// For both ends of a lifeline. R9: keepalive within a minute; its failure means unprovable, never dead.
pub(super) fn tune_lifeline(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(&keepalive(Duration::from_secs(20)))
}

fn keepalive(idle: Duration) -> TcpKeepalive {
    let keepalive = TcpKeepalive::new().with_time(idle.max(Duration::from_secs(1)));
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
    let keepalive = keepalive.with_interval(Duration::from_secs(5)).with_retries(4);
    keepalive
}

/// R9: whether this end has received the other's FIN and nothing ended the connection otherwise: an earlier
/// reset also lets a read return nothing, but leaves another state.
#[cfg(target_os = "linux")]
pub(super) fn is_in_close_wait(stream: &TcpStream) -> io::Result<bool> {
    const TCP_CLOSE_WAIT: u8 = 8;
    Ok(tcp_info(stream)?.tcpi_state == TCP_CLOSE_WAIT)
}

/// The round trip of a connection as the kernel measured it, smoothed; none where it says nothing of it.
#[cfg(target_os = "linux")]
pub(super) fn round_trip(stream: &TcpStream) -> Option<Duration> {
    let micros = tcp_info(stream).ok()?.tcpi_rtt;
    (micros > 0).then(|| Duration::from_micros(micros.into()))
}

/// Elsewhere it is not known.
#[cfg(not(target_os = "linux"))]
pub(super) fn round_trip(_stream: &TcpStream) -> Option<Duration> {
    None
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn tcp_info(stream: &TcpStream) -> io::Result<libc::tcp_info> {
    use std::os::fd::AsRawFd;

    // SAFETY: all-zero is a valid `tcp_info`, which has integers only.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while `stream` is borrowed; the kernel writes at most `length` bytes
    // into `info`.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(info)
}

/// Elsewhere the state is not known, so no lifeline proves anything there.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_close_wait(_stream: &TcpStream) -> io::Result<bool> {
    Ok(false)
}
