//! Sessions of other programs: at a Unix socket, and at TCP ports.
//!
//! ```text
//!   accept ─► its user, or TLS ─► first bytes ─┬─► lines      {…} one object a line
//!    [door]         │                          ├─► http       GET /v1/members HTTP/1.1
//!                   │                          ├─► resp       *… or a line with a command, as Redis' clients speak
//!                   │                          └─► others: an error that says what is spoken here
//!                   └─► another user, plain where TLS is spoken: an error, and the end
//! ```
//! The first bytes tell how a connection speaks; each way is a module of its own.
//!
//! # Users
//! At the Unix socket the agent serves programs of this node's user and of root, as the kernel names them;
//! the file is theirs alone. At the TCP port it serves each program of this host; or, with TLS, each program
//! that shows what [`access`](crate::access) asks for. Without both it listens on loopback addresses and on
//! no other.
//!
//! # Bounds
//! [`MAX_SESSIONS`] connections, or as few as [`Hub::of`] was told, and some more for `/livez` and `/readyz`
//! alone; [`SPEAK_WITHIN`] for a handshake, for the first bytes, and for a token. The agent sends a program
//! away that has read nothing for [`READ_WITHIN`], with that cause in its groups. It notices after two
//! minutes that a host went away without a word. What is half sent has one bound for all connections
//! (`halves`), and its rest may not stay out for longer than a minute (`counted`).

#[cfg(test)]
mod attacks;
mod counted;
mod door;
mod ends;
mod first;
#[doc(hidden)]
pub mod fuzzing;
mod halves;
mod hand;
mod http;
mod kept;
mod lines;
#[cfg(test)]
mod parity;
mod resp;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unready;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdTcp};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnix;
use std::path::{Path, PathBuf};
use std::time::Duration;

use antiphon::clients::Departure;
use antiphon_api::{Command, Event, command};
#[cfg(any(target_os = "linux", target_os = "android"))]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, getsockname, sockopt};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use self::door::Door;
use self::first::{Way, way};
pub(crate) use self::kept::MAX_GRACE;
use crate::Hub;
use crate::access::Access;
use crate::console::Socket;
#[cfg(doc)]
use crate::hub::MAX_SESSIONS;
use crate::hub::Session;

/// How long a connection may take for its handshake, for its first bytes, and for its token.
pub const SPEAK_WITHIN: Duration = Duration::from_secs(10);
/// How long a program may read nothing of what it is told.
pub const READ_WITHIN: Duration = Duration::from_secs(30);
/// Read at once of what tells how a connection speaks.
const FIRST_BYTES: usize = 4096;
/// How often it is looked whether a program has gone, while nothing is read of what it says.
const LOOK_EACH: Duration = Duration::from_secs(1);
/// For the last words of a connection.
const PART_WITHIN: Duration = Duration::from_secs(1);

/// What carries a session.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether the other end sends nothing any more. That is known before what it has sent is read.
    fn has_ended(&self) -> bool;

    /// The host at the other end, if that is known.
    fn host(&self) -> Option<IpAddr> {
        None
    }
}

impl Connection for TcpStream {
    fn has_ended(&self) -> bool {
        has_ended(self)
    }

    fn host(&self) -> Option<IpAddr> {
        self.peer_addr().ok().map(|addr| addr.ip())
    }
}

impl Connection for UnixStream {
    fn has_ended(&self) -> bool {
        has_ended(self)
    }
}

impl Connection for TlsStream<TcpStream> {
    fn has_ended(&self) -> bool {
        has_ended(self.get_ref().0)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn has_ended(socket: impl AsFd) -> bool {
    let mut asked = [PollFd::new(&socket, PollFlags::RDHUP)];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
}

/// Other systems tell the end only to a reader that has read everything.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn has_ended(_: impl AsFd) -> bool {
    false
}

/// Sockets that listen. No program is served before there is a node.
#[derive(Debug)]
pub struct Listener {
    /// With the file that goes with it, if this process has made that.
    unix: Vec<(UnixListener, Option<Socket>)>,
    tcp: Vec<TcpListener>,
    access: Access,
}

impl Listener {
    /// Listens at this path, which must not exist, or be a socket at which nobody listens; and at these
    /// addresses. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// Which of them cannot be listened at, and why.
    pub async fn bind(path: Option<&Path>, addrs: &[SocketAddr]) -> io::Result<Self> {
        Self::guarded(path, addrs, Access::default()).await
    }

    /// The same where programs must show a token or a certificate at the addresses, which then need not be
    /// loopback addresses.
    ///
    /// # Errors
    /// Which of them cannot be listened at, and why.
    pub async fn guarded(path: Option<&Path>, addrs: &[SocketAddr], access: Access) -> io::Result<Self> {
        let of =
            |what: String| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        let mut unix = Vec::new();
        if let Some(path) = path {
            let (listener, socket) =
                crate::console::listen_at(path).map_err(of(path.display().to_string()))?;
            unix.push((UnixListener::from_std(listener)?, Some(socket)));
        }
        let mut tcp = Vec::new();
        for addr in addrs {
            check(*addr, &access)?;
            tcp.push(TcpListener::bind(addr).await.map_err(of(addr.to_string()))?);
        }
        Ok(Self { unix, tcp, access })
    }

    /// Listens also at a socket that a service manager has opened and bound: of TCP or of Unix. Its file is
    /// the manager's.
    ///
    /// # Errors
    /// It is no such socket, or is open to more than this agent may serve.
    pub fn inherit(&mut self, socket: OwnedFd) -> io::Result<()> {
        let wrong = || {
            let reason =
                "a socket that was handed over does not listen for streams: give ListenStream= in its unit";
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        };
        #[cfg(target_os = "linux")]
        if !sockopt::socket_acceptconn(&socket).unwrap_or(false) {
            return Err(wrong());
        }
        let family = getsockname(&socket).map_err(|_| wrong())?.address_family();
        match (sockopt::socket_type(&socket)?, family) {
            (SocketType::STREAM, AddressFamily::UNIX) => {
                let listener = StdUnix::from(socket);
                listener.set_nonblocking(true)?;
                self.unix.push((UnixListener::from_std(listener)?, None));
            }
            (SocketType::STREAM, AddressFamily::INET | AddressFamily::INET6) => {
                let listener = StdTcp::from(socket);
                check(listener.local_addr()?, &self.access)?;
                listener.set_nonblocking(true)?;
                self.tcp.push(TcpListener::from_std(listener)?);
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// The path of the first Unix socket.
    pub fn path(&self) -> Option<PathBuf> {
        let (listener, _) = self.unix.first()?;
        listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
    }

    /// The TCP addresses, with the ports that the system chose.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|tcp| tcp.local_addr().ok()).collect()
    }

    /// Serves programs until this is dropped.
    pub fn serve(self, hub: &Hub) -> Serving {
        let door = Door::new(hub, self.access);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(hub.meters().clone().follow(hub.cluster().clone()));
        let mut sockets = Vec::new();
        for (listener, socket) in self.unix {
            sockets.extend(socket);
            tasks.spawn(door.clone().accept_unix(listener));
        }
        for tcp in self.tcp {
            tasks.spawn(door.clone().accept_tcp(tcp));
        }
        Serving {
            _tasks: tasks,
            _sockets: sockets,
        }
    }
}

/// Whether an agent may listen there.
fn check(addr: SocketAddr, access: &Access) -> io::Result<()> {
    if addr.ip().is_loopback() || access.is_enough_for_strangers() {
        return Ok(());
    }
    let reason = format!(
        "{addr}: beyond loopback addresses, such as 127.0.0.1:{} or [::1]:{0}, it serves with TLS alone, and programs that show a token or a certificate: give --tls-cert and --tls-key, and --token-file or --tls-client-ca",
        addr.port()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Programs are served as long as this is there. Those that are connected are served on.
#[derive(Debug)]
pub struct Serving {
    _tasks: tokio::task::JoinSet<()>,
    _sockets: Vec<Socket>,
}

/// Reads until it is known how a connection speaks; none if it ended before.
async fn begin(stream: &mut (impl AsyncRead + Unpin), first: &mut Vec<u8>) -> Option<Way> {
    loop {
        if !stream.read_buf(first).await.is_ok_and(|length| length > 0) {
            return None;
        }
        if let Some(way) = way(first) {
            return Some(way);
        }
    }
}

/// What one line of a program says, whatever carries it.
fn parse(line: &[u8]) -> Result<Command, Box<Event>> {
    match std::str::from_utf8(line) {
        Ok(text) => Command::parse(text),
        Err(error) => Err(Box::new(Event::Error {
            reason: format!("not UTF-8 ({error})"),
            request: serde_json::Value::Null,
        })),
    }
}

/// Does what a line says. Breaks if the session is to end so.
async fn obey(session: &Session, parsed: Result<Command, Box<Event>>) -> ControlFlow<Departure> {
    match parsed {
        Ok(Command::Leave(command::Leave { group: None, .. })) => {
            return ControlFlow::Break(Departure::Left);
        }
        Ok(mut command) => {
            let is_unread = command.is_unread();
            session.obey(command).await;
            if is_unread {
                return ControlFlow::Break(Departure::lost("it sent bytes behind a line"));
            }
        }
        Err(error) => session.tell_malformed(*error).await,
    }
    ControlFlow::Continue(())
}

/// Writes all, as long as the program takes some of it now and then.
async fn write_all(writer: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> Result<(), Departure> {
    while !bytes.is_empty() {
        bytes = &bytes[write(writer, bytes).await?..];
    }
    flush(writer).await
}

/// Writes some of it, if the program takes something in time; how much.
///
/// # Cancel safety
/// If the future is dropped, nothing was written.
async fn write(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<usize, Departure> {
    match timeout(READ_WITHIN, writer.write(bytes)).await {
        Ok(Ok(written)) if written > 0 => Ok(written),
        Ok(_) => Err(Departure::lost("its connection ended")),
        Err(_) => Err(slow()),
    }
}

/// Flushes: TLS may hold back the last of what was written.
async fn flush(writer: &mut (impl AsyncWrite + Unpin)) -> Result<(), Departure> {
    match timeout(READ_WITHIN, writer.flush()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Departure::lost("its connection ended")),
        Err(_) => Err(slow()),
    }
}

/// How the session of a program ends that has taken nothing for [`READ_WITHIN`].
fn slow() -> Departure {
    Departure::lost(format!("slow: it read nothing for {} s", READ_WITHIN.as_secs()))
}

/// Ends a connection so that the other end gets what was written: a socket that is closed with something
/// unread takes that away.
async fn part(reader: &mut (impl AsyncRead + Unpin), writer: &mut (impl AsyncWrite + Unpin)) {
    let mut unread = vec![0; 64 << 10];
    if writer.shutdown().await.is_ok() {
        while reader.read(&mut unread).await.is_ok_and(|length| length > 0) {}
    }
}
