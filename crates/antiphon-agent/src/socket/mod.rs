//! Sessions of other programs: at a Unix socket, and at a TCP port of this host.
//!
//! ```text
//!   accept ─► its user ─► first bytes ─┬─► lines      {…} one object a line
//!               │                      ├─► http       GET /v1/members HTTP/1.1
//!               │                      ├─► resp       *… or a line with a command, as Redis' clients speak
//!               │                      └─► others: an error that says what is spoken here
//!               └─► another user: one error line, and the end
//! ```
//! What comes first tells how a connection speaks; each way is a module of its own.
//!
//! # Users
//! At the Unix socket programs of this node's user and of root, as the kernel says; its file is theirs alone.
//! At the TCP port each program of this host: it listens on loopback addresses and on no other.
//!
//! # Bounds
//! [`MAX_SESSIONS`] connections; [`SPEAK_WITHIN`] for the first bytes; a program that has not taken what it
//! is told for [`READ_WITHIN`] is sent away, with that cause in its groups.

#[cfg(test)]
mod attacks;
mod first;
#[doc(hidden)]
pub mod fuzzing;
mod http;
mod lines;
mod resp;

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use antiphon::clients::Departure;
use antiphon_api::{Command, Event, command};
#[cfg(any(target_os = "linux", target_os = "android"))]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::first::{Way, way};
use self::http::Http;
use crate::Hub;
use crate::console::Socket;
use crate::hub::{MAX_SESSIONS, Session};

/// Until a connection says something.
pub const SPEAK_WITHIN: Duration = Duration::from_secs(10);
/// How long a program may leave what it is told.
pub const READ_WITHIN: Duration = Duration::from_secs(30);
/// Read at once of what tells how a connection speaks.
const FIRST_BYTES: usize = 4096;
/// For the last words of a connection.
const PART_WITHIN: Duration = Duration::from_secs(1);
/// After an error of `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What carries a session.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether the other end sends nothing any more. That is known before what it has sent is read.
    fn has_ended(&self) -> bool;
}

impl Connection for TcpStream {
    fn has_ended(&self) -> bool {
        has_ended(self)
    }
}

impl Connection for UnixStream {
    fn has_ended(&self) -> bool {
        has_ended(self)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn has_ended(socket: impl AsFd) -> bool {
    let mut asked = [PollFd::new(&socket, PollFlags::RDHUP)];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ended| ended > 0)
}

/// Other systems tell it to one that reads, when all is read.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn has_ended(_: impl AsFd) -> bool {
    false
}

/// Sockets that listen. Nobody is served before there is a node.
#[derive(Debug)]
pub struct Listener {
    unix: Option<(UnixListener, Socket)>,
    tcp: Vec<TcpListener>,
}

impl Listener {
    /// Listens at this path, which must not exist, or be a socket at which nobody listens; and at these
    /// addresses. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// Which of them cannot be listened at, and why.
    pub async fn bind(path: Option<&Path>, addrs: &[SocketAddr]) -> io::Result<Self> {
        let of =
            |what: String| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
        let unix = match path {
            Some(path) => {
                let (listener, socket) =
                    crate::console::listen_at(path).map_err(of(path.display().to_string()))?;
                Some((UnixListener::from_std(listener)?, socket))
            }
            None => None,
        };
        let mut tcp = Vec::new();
        for addr in addrs {
            if !addr.ip().is_loopback() {
                let reason = format!(
                    "{addr}: programs of other hosts cannot be told from strangers, so it listens at loopback addresses alone, such as 127.0.0.1:{} or [::1]:{0}",
                    addr.port()
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
            }
            tcp.push(TcpListener::bind(addr).await.map_err(of(addr.to_string()))?);
        }
        Ok(Self { unix, tcp })
    }

    /// Where it listens.
    pub fn path(&self) -> Option<PathBuf> {
        self.unix.as_ref().map(|(_, socket)| socket.path().to_owned())
    }

    /// The TCP addresses, with the ports that the system chose.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|tcp| tcp.local_addr().ok()).collect()
    }

    /// Serves programs until this is dropped.
    pub fn serve(self, hub: &Hub) -> Serving {
        let door = Door {
            hub: hub.clone(),
            http: Http::new(hub.clone()),
            places: Arc::new(Semaphore::new(MAX_SESSIONS)),
        };
        let mut tasks = tokio::task::JoinSet::new();
        let mut socket = None;
        if let Some((listener, file)) = self.unix {
            socket = Some(file);
            tasks.spawn(accept_unix(listener, door.clone()));
        }
        for tcp in self.tcp {
            tasks.spawn(accept_tcp(tcp, door.clone()));
        }
        Serving {
            _tasks: tasks,
            _socket: socket,
        }
    }
}

/// Programs are served as long as this is there. Those that are connected are served on.
#[derive(Debug)]
pub struct Serving {
    _tasks: tokio::task::JoinSet<()>,
    _socket: Option<Socket>,
}

/// What connections come to.
#[derive(Clone)]
struct Door {
    hub: Hub,
    http: Http,
    /// For connections of all kinds, also those that have said nothing yet.
    places: Arc<Semaphore>,
}

impl Door {
    /// Serves a connection if there is a place for one more; otherwise it ends.
    fn open(&self, stream: impl Connection + 'static, stranger: Option<String>) {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            let (hub, http) = (self.hub.clone(), self.http.clone());
            tokio::spawn(async move {
                serve(stream, hub, http, stranger).await;
                drop(place);
            });
        }
    }
}

async fn accept_unix(listener: UnixListener, door: Door) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let stranger = stranger(&stream);
                door.open(stream, stranger);
            }
            Err(error) => complain(&error).await,
        }
    }
}

async fn accept_tcp(listener: TcpListener, door: Door) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A line is written whole.
                let _ = stream.set_nodelay(true);
                door.open(stream, None);
            }
            Err(error) => complain(&error).await,
        }
    }
}

async fn complain(error: &io::Error) {
    tracing::warn!(target: "antiphon::agent", %error, "cannot accept a program");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Why this program may not ask, if it may not.
fn stranger(stream: &UnixStream) -> Option<String> {
    let own = geteuid().as_raw();
    match stream.peer_cred() {
        Ok(theirs) if theirs.uid() == own || theirs.uid() == 0 => None,
        Ok(_) => Some(format!(
            "only user {own}, who runs this node, and root may use it"
        )),
        Err(error) => Some(format!("it cannot be seen who asks: {error}")),
    }
}

async fn serve(mut stream: impl Connection + 'static, hub: Hub, http: Http, stranger: Option<String>) {
    let mut first = Vec::with_capacity(FIRST_BYTES);
    let begun = timeout(SPEAK_WITHIN, begin(&mut stream, &mut first)).await;
    let last = match (stranger, begun) {
        (Some(reason), _) => refused(reason),
        (None, Err(_)) => refused(format!(
            "nothing whole was said for {} s",
            SPEAK_WITHIN.as_secs()
        )),
        (None, Ok(None)) => return,
        (None, Ok(Some(Way::Http(beginning)))) => return http.serve(stream, first, beginning).await,
        (None, Ok(Some(Way::Lines))) => match hub.session() {
            Ok((session, events)) => return lines::serve(stream, &first, session, events).await,
            Err(crate::hub::Full) => refused(format!(
                "{MAX_SESSIONS} programs are served, no more at a time: end one of them"
            )),
        },
        (None, Ok(Some(Way::Resp))) => match hub.session() {
            Ok((session, events)) => return resp::serve(stream, &first, hub, session, events).await,
            Err(crate::hub::Full) => resp::FULL.to_owned(),
        },
        (None, Ok(Some(Way::LongCommand))) => resp::TOO_LONG.to_owned(),
        (None, Ok(Some(Way::Unknown))) => refused(
            "this port speaks JSON lines, HTTP/1.1 and RESP: begin with an object, such as {\"hello\":{}}, with a request line, such as GET /v1/members HTTP/1.1, or as redis-cli does".to_owned(),
        ),
    };
    let (mut reader, mut writer) = tokio::io::split(stream);
    let said = async {
        // It is told why, or is gone already.
        let _ = writer.write_all(last.as_bytes()).await;
        part(&mut reader, &mut writer).await;
    };
    let _ = timeout(PART_WITHIN, said).await;
}

/// The line for a program that is not served.
fn refused(reason: String) -> String {
    let refused = Event::Refused {
        group: None,
        reason,
        fatal: true,
        request: None,
    };
    refused.to_json() + "\n"
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

/// Does what one line of a program says, whatever carries it. Breaks if the session is to end so.
async fn obey(session: &Session, line: &[u8]) -> ControlFlow<Departure> {
    let parsed = match std::str::from_utf8(line) {
        Ok(text) => Command::parse(text),
        Err(error) => Err(Box::new(Event::Error {
            reason: format!("not UTF-8 ({error})"),
            request: serde_json::Value::Null,
        })),
    };
    match parsed {
        Ok(Command::Leave(command::Leave { group: None, .. })) => {
            return ControlFlow::Break(Departure::Left);
        }
        Ok(command) => session.obey(command).await,
        Err(error) => session.tell(*error).await,
    }
    ControlFlow::Continue(())
}

/// Writes all, as long as the program takes some of it now and then.
async fn write_all(writer: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> Result<(), Departure> {
    while !bytes.is_empty() {
        match timeout(READ_WITHIN, writer.write(bytes)).await {
            Ok(Ok(written)) if written > 0 => bytes = &bytes[written..],
            Ok(_) => return Err(Departure::lost("its connection ended")),
            Err(_) => return Err(slow()),
        }
    }
    Ok(())
}

/// How a session ends whose program has taken nothing for [`READ_WITHIN`].
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
