//! Where connections come in: what each must show, how it speaks, and what a connection is told that is not
//! served.
//!
//! ```text
//!   unix ─► user ───────────────────────────┬─► begin ─┬─ token? ─► lines
//!   tcp ─► TLS here? ─┬─ no ────────────────┤          ├─► http: a token with each request
//!                     ├─ 0x16 ─► handshake ─┘          └─► resp: AUTH
//!                     └─ plain ─► an error, in the words of what it speaks
//! ```

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use antiphon_api::Event;
use rustix::process::geteuid;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::counted::Counted;
use super::ends::Place;
use super::first::{Way, way};
use super::halves::Halves;
use super::http::Http;
use super::kept::Resumable;
use super::{Connection, FIRST_BYTES, PART_WITHIN, SPEAK_WITHIN, ends, http, lines, part, resp};
use crate::Hub;
use crate::access::{Access, Certificates, Visitor};
use crate::metrics::{Carrier, Failed, Refused};

/// After an error of `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A connection on which nothing passes is asked whether its host is there, then again and again.
const ASK_AFTER: Duration = Duration::from_secs(60);
const ASK_EACH: Duration = Duration::from_secs(10);
const ASKED: u32 = 6;
/// Places beside all others, for connections that ask `/livez` or `/readyz` and nothing else: what watches an
/// agent must not take it for dead because programs have all places.
const PLACES_FOR_PROBES: usize = 8;
/// What each record of a TLS handshake begins with.
const TLS_HANDSHAKE: u8 = 0x16;
/// What a connection of a node begins with. No TLS does: there a version follows.
const OF_A_NODE: &[u8] = &[TLS_HANDSHAKE, 0];
/// What a node is told. Nodes and `antiphon doctor` know an agent by that this is an event.
const NO_NODE: &str = "this is the port of an agent for programs (--listen), and a node speaks here: give it the own address of the node here (--bind), by default port 7400";
/// Hosts whose nodes were logged, at most.
const MAX_LOGGED: usize = 256;

/// What connections come to.
#[derive(Clone)]
pub(super) struct Door {
    hub: Hub,
    http: Http,
    access: Access,
    resumable: Resumable,
    halves: Halves,
    /// For connections of all kinds, also those that have said nothing yet.
    places: Arc<Semaphore>,
    /// For probes, while there are none of those.
    probes: Arc<Semaphore>,
    /// Hosts whose nodes have spoken here: each is logged once.
    astray: Arc<Mutex<BTreeSet<IpAddr>>>,
}

/// What a connection may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    AskAll,
    /// One request, whether the agent lives or its node is ready: programs have all other places.
    Probe,
}

/// Why a connection is not served, and what it is told.
struct No {
    why: Refused,
    reason: String,
}

impl Door {
    pub(super) fn new(hub: &Hub, access: Access) -> Self {
        let (resumable, halves) = (Resumable::default(), Halves::default());
        Self {
            http: Http::new(hub.clone(), resumable.clone(), halves.clone()),
            hub: hub.clone(),
            access,
            resumable,
            halves,
            places: Arc::new(Semaphore::new(hub.most())),
            probes: Arc::new(Semaphore::new(PLACES_FOR_PROBES)),
            astray: Arc::default(),
        }
    }

    pub(super) async fn accept_unix(self, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let Some((place, may)) = self.place() else {
                        continue;
                    };
                    let (door, no) = (self.clone(), stranger(&stream));
                    let visitor = self.access.local(self.hub.meters().clone()).seated(place);
                    tokio::spawn(async move { door.serve(stream, visitor, no, may).await });
                }
                Err(error) => complain(&error).await,
            }
        }
    }

    pub(super) async fn accept_tcp(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    prepare(&stream);
                    let Some((place, may)) = self.place() else {
                        continue;
                    };
                    let Some(visitor) = self.access.stranger(self.hub.meters().clone()) else {
                        self.hub.meters().refused(Refused::Strangers);
                        continue;
                    };
                    let (door, visitor) = (self.clone(), visitor.seated(place));
                    tokio::spawn(async move {
                        match visitor.certificates() {
                            Some(certificates) => door.greet(stream, visitor, &certificates, may).await,
                            None => door.serve(stream, visitor, None, may).await,
                        }
                    });
                }
                Err(error) => complain(&error).await,
            }
        }
    }

    /// A place for one more connection, and what it may ask there; without one it ends.
    fn place(&self) -> Option<(OwnedSemaphorePermit, May)> {
        let of_all = self.places.clone().try_acquire_owned();
        let place = match of_all {
            Ok(place) => Some((place, May::AskAll)),
            Err(_) => {
                let of_probes = self.probes.clone().try_acquire_owned();
                of_probes.ok().map(|place| (place, May::Probe))
            }
        };
        if place.is_none() {
            self.hub.meters().refused(Refused::Full);
        }
        place
    }

    /// Serves a connection behind its handshake.
    async fn greet(&self, stream: TcpStream, mut visitor: Visitor, certificates: &Certificates, may: May) {
        let mut first = [0; OF_A_NODE.len()];
        match timeout(SPEAK_WITHIN, stream.peek(&mut first)).await {
            Ok(Ok(length @ 1..)) if &first[..length] == OF_A_NODE => {
                let no = No {
                    why: Refused::Plain,
                    reason: NO_NODE.to_owned(),
                };
                return self.serve(stream, visitor, Some(no), may).await;
            }
            Ok(Ok(1..)) if first[0] == TLS_HANDSHAKE => {}
            Ok(Ok(1..)) => {
                let no = No {
                    why: Refused::Plain,
                    reason: "this port speaks TLS, and this connection began without it: use https, rediss, or TLS around JSON lines".to_owned(),
                };
                return self.serve(stream, visitor, Some(no), may).await;
            }
            Ok(_) => return,
            Err(_) => return self.hub.meters().refused(Refused::Silent),
        }
        let accepting = TlsAcceptor::from(certificates.config()).accept(stream);
        let stream = match timeout(SPEAK_WITHIN, accepting).await {
            Ok(Ok(stream)) => stream,
            failed => {
                let meters = self.hub.meters();
                meters.refused(Refused::Handshake);
                if let Ok(Err(error)) = failed {
                    tracing::debug!(target: "antiphon::agent", %error, "a TLS handshake failed");
                    if is_for_its_certificate(&error) {
                        meters.denied(Failed::Certificate);
                    }
                }
                return;
            }
        };
        // The handshake has checked it.
        if stream.get_ref().1.peer_certificates().is_some() {
            visitor.trust();
        }
        self.serve(stream, visitor, None, may).await;
    }

    /// Serves a connection in what it speaks, or tells it why not.
    async fn serve(&self, mut stream: impl Connection + 'static, visitor: Visitor, no: Option<No>, may: May) {
        let mut first = Vec::with_capacity(FIRST_BYTES);
        let begun = timeout(SPEAK_WITHIN, super::begin(&mut stream, &mut first)).await;
        if may == May::Probe {
            let is_probe = matches!(begun, Ok(Some(Way::Http(_)))) && http::is_probe(&first);
            if !is_probe {
                // It ends without a word, as it does where no place is left: then programs come again.
                return self.hub.meters().refused(Refused::Full);
            }
        }
        let no = match (no, begun) {
            (Some(no), _) => no,
            (None, Err(_)) => No {
                why: Refused::Silent,
                reason: format!("nothing whole was said for {} s", SPEAK_WITHIN.as_secs()),
            },
            (None, Ok(None)) => return,
            (None, Ok(Some(way))) => match self.carry(way, &mut stream, &mut first, &visitor).await {
                Ok(Way::Lines) => {
                    let connected = self.hub.meters().connected(Carrier::Lines);
                    let place = Place::new(Arc::new(visitor), connected);
                    let ends = ends::of_lines(stream, &first, &self.halves);
                    return lines::serve(ends, place, &self.hub, &self.resumable).await;
                }
                Ok(Way::Resp) => {
                    let Ok((session, events)) = self.hub.session() else {
                        let no = No {
                            why: Refused::Full,
                            reason: ends::full(&self.hub),
                        };
                        return self.refuse(stream, &first, no).await;
                    };
                    let _connected = self.hub.meters().connected(Carrier::Resp);
                    let stream = Counted::new(stream, &self.halves);
                    return resp::serve(stream, &first, self.hub.clone(), session, events, &visitor).await;
                }
                Ok(Way::Http(beginning)) => {
                    let _connected = self.hub.meters().connected(Carrier::Http);
                    let http = self.http.clone();
                    return match may {
                        May::AskAll => http.serve(stream, first, beginning, visitor).await,
                        May::Probe => http.serve_one(stream, first, beginning, visitor).await,
                    };
                }
                // `carry` gives none of these.
                Ok(Way::LongCommand | Way::Unknown) => return end(stream).await,
                Err(Some(no)) => no,
                // It was told, or has gone.
                Err(None) => return end(stream).await,
            },
        };
        self.refuse(stream, &first, no).await;
    }

    /// How it is served, or why not.
    async fn carry(
        &self,
        way: Way,
        stream: &mut impl Connection,
        first: &mut Vec<u8>,
        visitor: &Visitor,
    ) -> Result<Way, Option<No>> {
        let reason = match way {
            Way::Lines => {
                if visitor.needs_token() {
                    lines::introduce(stream, first, visitor)
                        .await
                        .map_err(|()| None)?;
                }
                return Ok(way);
            }
            Way::Http(_) | Way::Resp => return Ok(way),
            Way::LongCommand => resp::TOO_LONG,
            Way::Unknown if first.starts_with(OF_A_NODE) => NO_NODE,
            Way::Unknown if first[0] == TLS_HANDSHAKE => {
                "this port speaks no TLS: connect without it, or give the agent --tls-cert and --tls-key"
            }
            Way::Unknown => {
                "this port speaks JSON lines, HTTP/1.1 and RESP: begin with an object, such as {\"hello\":{}}, with a request line, such as GET /v1/members HTTP/1.1, or as redis-cli does"
            }
        };
        Err(Some(No {
            why: Refused::Unspoken,
            reason: reason.to_owned(),
        }))
    }

    /// A node of that host dials this port, and does so again and again.
    fn note_node(&self, host: Option<IpAddr>) {
        let Some(host) = host else { return };
        let mut astray = self.astray.lock().unwrap_or_else(PoisonError::into_inner);
        if astray.len() < MAX_LOGGED && astray.insert(host) {
            tracing::warn!(
                target: "antiphon::agent", %host,
                "a node speaks at the port for programs (--listen): its seeds should name the own address of the node here (--bind), by default port 7400"
            );
        }
    }

    /// Tells it why it is not served, as it speaks itself.
    async fn refuse(&self, mut stream: impl Connection, first: &[u8], no: No) {
        let No { why, reason } = no;
        self.hub.meters().refused(why);
        if first.starts_with(OF_A_NODE) {
            self.note_node(stream.host());
        }
        let speaks = way(first);
        let text = if let Some(Way::Http(_)) = speaks {
            let status = match why {
                Refused::User => "403 Forbidden",
                Refused::Full => "503 Service Unavailable",
                _ => "400 Bad Request",
            };
            let error = serde_json::json!({"error": {"code": why_code(why), "reason": reason, "ran": "no"}});
            let body = format!("{error}\n");
            format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
        } else if let Some(Way::Resp | Way::LongCommand) = speaks {
            match why {
                Refused::Full => resp::FULL.to_owned(),
                Refused::Unspoken => reason,
                _ => format!("-ERR {reason}\r\n"),
            }
        } else {
            let refused = Event::Refused {
                group: None,
                reason,
                fatal: true,
                request: None,
            };
            refused.to_json() + "\n"
        };
        // It is told why, or is gone already.
        let _ = timeout(PART_WITHIN, stream.write_all(text.as_bytes())).await;
        end(stream).await;
    }
}

/// The code of such an error in HTTP.
fn why_code(why: Refused) -> &'static str {
    match why {
        Refused::User => "forbidden",
        Refused::Full => "unavailable",
        _ => "refused",
    }
}

/// Ends a connection that was told something, or not.
async fn end(stream: impl Connection) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let _ = timeout(PART_WITHIN, part(&mut reader, &mut writer)).await;
}

async fn complain(error: &io::Error) {
    tracing::warn!(target: "antiphon::agent", %error, "cannot accept a program");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Lines are sent without delay, and a host that has gone without a word is noticed.
fn prepare(stream: &TcpStream) {
    let asking = TcpKeepalive::new()
        .with_time(ASK_AFTER)
        .with_interval(ASK_EACH)
        .with_retries(ASKED);
    // Fails only for a connection that has ended.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(stream).set_tcp_keepalive(&asking);
}

/// Why this program may not ask, if it may not.
fn stranger(stream: &UnixStream) -> Option<No> {
    let own = geteuid().as_raw();
    let reason = match stream.peer_cred() {
        Ok(theirs) if theirs.uid() == own || theirs.uid() == 0 => return None,
        Ok(_) => format!("only user {own}, under which this node runs, and root may use it"),
        Err(error) => format!("it cannot be seen which user asks: {error}"),
    };
    Some(No {
        why: Refused::User,
        reason,
    })
}

/// Whether a handshake failed because of the certificate that the client showed or did not show.
fn is_for_its_certificate(error: &io::Error) -> bool {
    let error = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(
        error,
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))
    )
}

#[cfg(test)]
mod tests {
    use antiphon::memory::MemoryNetwork;
    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

    use super::*;
    use crate::testing::{Agent, SOON, cluster};

    /// A connection that says hello, and the reply, if it has a place.
    async fn comes(agent: &Agent, hello: &str) -> Option<(BufReader<TcpStream>, Value)> {
        let mut stream = BufReader::new(agent.connect().await);
        stream.write_all(hello.as_bytes()).await.ok()?;
        let mut line = String::new();
        let read = stream.read_line(&mut line).await.ok()?;
        (read > 0).then(|| (stream, serde_json::from_str(&line).unwrap()))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_client_comes_back_though_all_places_of_its_node_are_taken() {
        let node = cluster(&MemoryNetwork::new(), 1, true).await;
        let agent = Agent::of(Hub::of(node, 2)).await;
        let hello = "{\"hello\":{\"grace\":\"10s\",\"id\":0}}\n";
        let (ann, welcome) = comes(&agent, hello).await.unwrap();
        let _bob = comes(&agent, hello).await.unwrap();
        assert!(comes(&agent, hello).await.is_none(), "both places are taken");
        let key = &welcome["welcome"]["resume"];
        let hello = format!("{{\"hello\":{{\"grace\":\"10s\",\"resume\":{key},\"lines\":1,\"id\":0}}}}\n");
        drop(ann);
        let resumes = async {
            loop {
                // There is no place before the agent has noticed that the connection broke.
                if let Some((ann, welcome)) = comes(&agent, &hello).await
                    && welcome["welcome"]["resumed"] == 1
                {
                    return ann;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ann = timeout(SOON, resumes).await.unwrap();
        assert!(
            comes(&agent, &hello).await.is_none(),
            "both places are taken again"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn probes_are_answered_though_all_places_of_the_node_are_taken() {
        let node = cluster(&MemoryNetwork::new(), 1, true).await;
        let agent = Agent::of(Hub::of(node, 1)).await;
        let hello = "{\"hello\":{\"id\":0}}\n";
        let _ann = comes(&agent, hello).await.unwrap();
        assert!(comes(&agent, hello).await.is_none(), "its place is the only one");
        let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let live = request("/livez");
        for (asked, answers) in [
            (live.clone(), 1),
            (request("/readyz"), 1),
            // One alone, and the connection ends.
            (live.repeat(2), 1),
            (live.replace("GET", "HEAD"), 1),
            (request("/v1/members"), 0),
            (request("/livez/x"), 0),
            ("GET /livez\r\n".to_owned(), 0),
            ("PING\r\n".to_owned(), 0),
        ] {
            let mut stream = agent.connect().await;
            stream.write_all(asked.as_bytes()).await.unwrap();
            let mut told = Vec::new();
            // An error is the end, too.
            let _ = timeout(SOON, stream.read_to_end(&mut told))
                .await
                .expect("it ends");
            let told = String::from_utf8(told).unwrap();
            assert_eq!(told.matches("HTTP/1.1 ").count(), answers, "{asked}: {told}");
        }
    }

    #[tokio::test]
    async fn a_host_that_goes_without_a_word_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), ASK_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), ASK_EACH);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), ASKED);
        // As the module's page says.
        assert_eq!(ASK_AFTER + ASK_EACH * ASKED, Duration::from_secs(120));
    }
}
