//! How an envelope gets to a peer, and the reply back.
//!
//! | way | what it is | at a time |
//! |---|---|---|
//! | `library` | a call of the cluster, over its own links | 64 commands |
//! | `http`, `https` | a connection for each command: `POST /v1/peer` | 16 |
//! | `http_kept`, `https_kept` | the same over connections that are kept, one command at a time on each | 16 |
//! | `websocket` | one connection, `GET /v1/peer`: a message for each envelope; replies in any order | 64 |
//! | `resp` | connections that are kept: `AP.PEER envelope`, one command at a time on each | 16 |
//! | `udp` | a datagram for each envelope, of at most [`MAX_DATAGRAM`] bytes | 64 |
//!
//! A connection on which a command was not answered is closed with it: what comes there later is for nobody.
//! A WebSocket, on which others may wait, only takes no new commands if the peer answered none since that
//! command was sent. A connection that was idle for [`IDLE_FOR`] is not used again: the peer's gate may be
//! closing it. Nor is one to an address that the peer has no more.

pub(crate) mod http;
pub(crate) mod pending;
pub(crate) mod resp;
pub(crate) mod tls;
pub(crate) mod udp;
pub(crate) mod websocket;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use antiphon::Member;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub use self::tls::Tls;
use self::websocket::Link;
use crate::envelope::Way;

/// The longest command and reply by UDP: one datagram that no network cuts.
pub const MAX_DATAGRAM: usize = 1400;
/// How long a kept connection may have been idle.
const IDLE_FOR: Duration = Duration::from_secs(20);
/// The key of a member's metadata that says where its gate is.
pub(crate) const METADATA: &str = "commands";

/// What carries envelopes.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}
pub(crate) type Boxed = Box<dyn Stream>;

/// Where a member's gate is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) addr: SocketAddr,
    pub(crate) tls: bool,
    /// What its certificate is for.
    pub(crate) name: String,
}

impl Endpoint {
    /// What a member's metadata says: `PORT`, `ADDRESS:PORT`, each perhaps with ` tls` behind it.
    pub(crate) fn of(member: &Member) -> Option<Self> {
        let told = member.metadata.get(METADATA)?;
        let (place, tls) = match told.strip_suffix(" tls") {
            Some(place) => (place, true),
            None => (told.as_str(), false),
        };
        let port = |port: &str| Some(SocketAddr::new(member.addr.ip(), port.parse().ok()?));
        Some(Self {
            addr: place.parse().ok().or_else(|| port(place))?,
            tls,
            name: member.name.clone(),
        })
    }

    /// What a gate at this address says of itself.
    pub(crate) fn told(addr: SocketAddr, tls: bool) -> String {
        let place = match addr.ip().is_unspecified() {
            true => addr.port().to_string(),
            false => addr.to_string(),
        };
        format!("{place}{}", if tls { " tls" } else { "" })
    }
}

/// A member's addresses: those of its node, and that of its gate.
pub(crate) fn addresses(member: &Member) -> impl Iterator<Item = IpAddr> {
    let gate = Endpoint::of(member).map(|gate| gate.addr);
    let node = std::iter::once(member.addr).chain(member.further.iter().copied());
    node.chain(gate).map(|addr| addr.ip().to_canonical())
}

/// Whether this is one of a member's addresses.
pub(crate) fn is_of(member: &Member, ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    addresses(member).any(|of| of == ip)
}

/// From which address a member sends a datagram, if it has only one of that family. If it has several, the
/// system's routes know the right one.
pub(crate) fn source(member: &Member, to: SocketAddr) -> Option<IpAddr> {
    let mut own = addresses(member).filter(|ip| ip.is_ipv4() == to.is_ipv4() && !ip.is_unspecified());
    let only = own.next()?;
    own.all(|other| other == only).then_some(only)
}

/// Why there is no answer: nothing was sent, or something may have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    NotSent(String),
    Sent(String),
}

pub(crate) fn not_sent(error: impl std::fmt::Display) -> Lost {
    Lost::NotSent(error.to_string())
}

pub(crate) fn sent(error: impl std::fmt::Display) -> Lost {
    Lost::Sent(error.to_string())
}

/// The connections of one lane, each with the address to which it was opened.
#[derive(Default)]
pub(crate) struct Connections {
    /// With the renewal of the certificates by which they were opened, too.
    http: Pool<((SocketAddr, u64), http::Sender)>,
    resp: Pool<(SocketAddr, Boxed)>,
    link: tokio::sync::Mutex<Option<(SocketAddr, Link)>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connections")
    }
}

/// Idle connections, the last used one first.
struct Pool<T>(Mutex<Vec<(Instant, T)>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Pool<T> {
    fn take(&self) -> Option<T> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, _)| since.elapsed() < IDLE_FOR);
        idle.pop().map(|(_, connection)| connection)
    }

    fn keep(&self, connection: T) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((Instant::now(), connection));
    }
}

impl Connections {
    /// Sends an envelope by a way with connections, and gives the reply. Dropped, it closes its connection.
    pub(crate) async fn exchange(
        &self,
        way: Way,
        to: &Endpoint,
        tls: Option<&Tls>,
        envelope: Bytes,
    ) -> Result<Bytes, Lost> {
        let open = async || connect(to, matches!(way, Way::Https | Way::HttpsKept), tls).await;
        match way {
            Way::Http | Way::Https => {
                let mut sender = http::Sender::new(open().await?).await?;
                sender.ask(to, envelope).await
            }
            Way::HttpKept | Way::HttpsKept => {
                let opened = (to.addr, tls.map_or(0, Tls::renewal));
                let mut sender = None;
                while let Some((of, mut kept)) = self.http.take() {
                    if of == opened && kept.is_ready().await {
                        sender = Some(kept);
                        break;
                    }
                }
                let mut sender = match sender {
                    Some(sender) => sender,
                    None => http::Sender::new(open().await?).await?,
                };
                let reply = sender.ask(to, envelope).await?;
                self.http.keep((opened, sender));
                Ok(reply)
            }
            Way::Resp => {
                let mut stream = None;
                while let Some((of, mut kept)) = self.resp.take() {
                    if of == to.addr && resp::is_open(&mut kept) {
                        stream = Some(kept);
                        break;
                    }
                }
                let mut stream = match stream {
                    Some(stream) => stream,
                    None => open().await?,
                };
                let reply = resp::ask(&mut stream, &envelope).await?;
                self.resp.keep((to.addr, stream));
                Ok(reply)
            }
            Way::Websocket => {
                let link = {
                    let mut link = self.link.lock().await;
                    let kept = link.as_ref();
                    match kept.filter(|(of, link)| *of == to.addr && link.is_open()) {
                        Some((_, link)) => link.clone(),
                        None => {
                            let opened = Link::open(open().await?, to).await?;
                            link.insert((to.addr, opened)).1.clone()
                        }
                    }
                };
                link.ask(envelope).await
            }
            Way::Library | Way::Udp => unreachable!("these have no connections"),
        }
    }
}

async fn connect(to: &Endpoint, encrypted: bool, tls: Option<&Tls>) -> Result<Boxed, Lost> {
    let stream = TcpStream::connect(to.addr).await;
    let stream = stream.map_err(|error| not_sent(format_args!("{}: {error}", to.addr)))?;
    // An envelope is written whole.
    let _ = stream.set_nodelay(true);
    if !encrypted {
        return Ok(Box::new(stream));
    }
    let tls = tls.ok_or_else(|| not_sent("this node has no certificates to know its peers' by"))?;
    tls.connect(stream, to).await
}
