//! HTTP/1.1: each request is a session of its own, for as long as it is answered.
//!
//! ```text
//!   connection ─► wire ─► hyper ─► guard ─► table, token ─► asked ─┬─► exchange, maps, calls: a command, its reply
//!          first bytes, times       403   404, 405, 401    400      ├─► groups: a shared client, streams of events
//!                                                                  ├─► locks: held behind the request
//!                                                                  └─► stream: a WebSocket, as JSON lines
//! ```
//! - [`table`]: the routes, by which requests are dispatched, and [`openapi`] is made;
//! - [`guard`]: which requests no program of this host would send, but a page in its browser;
//! - [`asked`]: names, parameters, conditions and payloads of a request;
//! - [`answer`], [`problem`], [`sse`]: what it is answered with;
//! - [`wire`]: the bytes below, and times.
//!
//! Locks and maps are those of all clients of the cluster, whatever they speak. HTTP's own are only the
//! sessions that hold the locks of requests, and the shared client that says what requests send.
//!
//! # Bounds
//! [`MAX_SESSIONS`] connections; a request line of [`MAX_REQUEST_LINE`], a head of [`MAX_HEAD_BYTES`] and
//! [`MAX_HEADERS`], whole within [`wire::HEAD_WITHIN`]; a body of [`MAX_BODY_BYTES`] within [`BODY_WITHIN`];
//! idle between requests for [`IDLE_FOR`]. Requests of one connection are answered one after the other, in
//! their order. What waits for the cluster waits as long as the client is there.
//!
//! # What happens when…
//! | what | then |
//! |---|---|
//! | the client goes while it waits | a lock or a call is cancelled; a write or a message may happen |
//! | the client goes while it reads events | it is out of the group, or the watch is over |
//! | the client does not read | its group removes it after 10 s, its connection ends after 30 s |
//! | the client is gone when its lock is granted | the lock is free when its time is over |
//! | no cluster yet, no majority | 503 at once, or it waits: what the operation itself does |
//! | the node leaves | streams end with `lost`, what waits is answered, locks are free |
//! | the node dies | connections end; of what was not answered nobody knows whether it happened |
//! | what was sent is no HTTP | 400, 414 or 431 without a body, and the connection ends |

mod answer;
mod asked;
mod calls;
mod exchange;
mod groups;
mod guard;
mod locks;
mod maps;
mod openapi;
mod problem;
mod sse;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::answer::Answer;
use self::asked::Asked;
use self::problem::Problem;
use self::table::Does;
use self::wire::{Busy, Pace, Wire};
use super::{Connection, PART_WITHIN};
use crate::Hub;
use crate::access::Visitor;
use crate::hub::MAX_SESSIONS;

/// The longest first line of a request.
pub(super) const MAX_REQUEST_LINE: usize = 8 << 10;
/// The longest head of a request: its first line and its headers.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
const MAX_BODY_BYTES: usize = 1 << 20;
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How long a connection is kept between two requests.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// What serves the HTTP of a node. A cheap handle.
#[derive(Debug, Clone)]
pub(super) struct Http(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    hub: Hub,
    connections: Arc<Semaphore>,
    speaker: groups::Speaker,
    held: Arc<locks::Held>,
}

/// How a connection begins that speaks HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// With a request line of HTTP/1.
    Request,
    /// With a version that is not spoken here.
    OtherVersion,
    /// With a line that is too long.
    TooLong,
}

/// Whether a connection that has begun with this speaks HTTP. Of one that begins with a word there is a whole
/// line, or too much.
pub(super) fn begins(first: &[u8]) -> Option<Beginning> {
    let Some(end) = first.iter().position(|byte| *byte == b'\n') else {
        let method = first.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
        let is_request = method > 0 && first[method..].starts_with(b" ") && first.len() > MAX_REQUEST_LINE;
        return is_request.then_some(Beginning::TooLong);
    };
    let line = first[..end].strip_suffix(b"\r").unwrap_or(&first[..end]);
    let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    let number = version.strip_prefix(b"HTTP/")?;
    if !number.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') {
        return None;
    }
    Some(match version {
        b"HTTP/1.0" | b"HTTP/1.1" if line.len() > MAX_REQUEST_LINE => Beginning::TooLong,
        b"HTTP/1.0" | b"HTTP/1.1" => Beginning::Request,
        _ => Beginning::OtherVersion,
    })
}

impl Http {
    pub(super) fn new(hub: Hub) -> Self {
        Self(Arc::new(Inner {
            connections: Arc::new(Semaphore::new(MAX_SESSIONS)),
            speaker: groups::Speaker::new(hub.clone()),
            held: locks::Held::new(),
            hub,
        }))
    }

    /// Serves a connection until one of both ends it.
    pub(super) async fn serve(
        self,
        stream: impl Connection + 'static,
        first: Vec<u8>,
        beginning: Beginning,
        visitor: Visitor,
    ) {
        let visitor = Arc::new(visitor);
        let pace = Pace::new();
        let place = self.0.connections.clone().try_acquire_owned();
        let refused = match (&place, beginning) {
            (Err(_), _) => "503 Service Unavailable",
            (_, Beginning::OtherVersion) => "505 HTTP Version Not Supported",
            (_, Beginning::TooLong) => "414 URI Too Long",
            (Ok(_), Beginning::Request) => {
                let wire = TokioIo::new(Wire::new(stream, first, pace.clone()));
                let service = service_fn(move |request| {
                    let (http, busy, visitor) = (self.clone(), pace.busy(), visitor.clone());
                    async move { Ok::<_, Infallible>(http.answer(request, busy, &visitor).await) }
                });
                let mut builder = http1::Builder::new();
                builder
                    .timer(TokioTimer::new())
                    // From the last answer on; a head that has begun has less.
                    .header_read_timeout(IDLE_FOR)
                    .max_buf_size(MAX_HEAD_BYTES);
                // Whatever ends it, its client knows, or is gone.
                let _ = builder.serve_connection(wire, service).with_upgrades().await;
                return;
            }
        };
        refuse(Wire::new(stream, Vec::new(), pace), refused).await;
    }

    async fn answer(&self, request: Request<Incoming>, busy: Busy, visitor: &Visitor) -> Answer {
        let answer = self.try_answer(request, busy, visitor).await;
        answer.unwrap_or_else(Problem::answer)
    }

    async fn try_answer(
        &self,
        mut request: Request<Incoming>,
        busy: Busy,
        visitor: &Visitor,
    ) -> Result<Answer, Problem> {
        // Of the request alone: after it nothing can be upgraded.
        let upgrade = hyper::upgrade::on(&mut request);
        let (head, body) = request.into_parts();
        let line = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
        if line > MAX_REQUEST_LINE {
            let reason = format!("a request line has at most {MAX_REQUEST_LINE} bytes");
            return Err(Problem::new(StatusCode::URI_TOO_LONG, "too_large", reason));
        }
        if head.headers.len() > MAX_HEADERS {
            let reason = format!("a request has at most {MAX_HEADERS} headers");
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(Problem::new(status, "too_large", reason));
        }
        guard::admit(&head, |host| visitor.is_called(host))?;
        let path = head.uri.path().to_owned();
        let found = table::find(head.method.as_str(), &path);
        if !found.as_ref().is_ok_and(|(route, _)| route.does.is_open()) {
            let admitted = visitor.admit(token(&head.headers)).await;
            admitted.map_err(Problem::denied)?;
        }
        let (route, names) = found?;
        let asked = Asked::new(route, &names, head)?;
        // What is not taken is not waited for: behind it hyper sees that a client has gone.
        let body = Some(body).filter(|_| route.has_body());
        let Inner {
            hub, speaker, held, ..
        } = &*self.0;
        match route.does {
            Does::Live => Ok(answer::json(StatusCode::OK, &json!({"live": true}))),
            Does::Ready => exchange::ready(hub),
            Does::Metrics => Ok(answer::text(
                crate::metrics::CONTENT_TYPE,
                crate::metrics::read(hub).await,
            )),
            Does::OpenApi => Ok(answer::document(openapi::TEXT.clone())),
            Does::Members => exchange::members(hub).await,
            Does::Why => exchange::why(hub, &asked).await,
            Does::Say => speaker.say(&asked, body).await,
            Does::GroupEvents => groups::events(hub, &asked, busy).await,
            Does::Get => maps::get(hub, &asked).await,
            Does::Put => maps::put(hub, &asked, body).await,
            Does::Remove => maps::remove(hub, &asked).await,
            Does::MapEvents => maps::watch(hub, &asked, busy).await,
            Does::Add => calls::add(hub, &asked).await,
            Does::TakeIds => calls::take_ids(hub, &asked).await,
            Does::Lock => held.take(hub, &asked).await,
            Does::Prolong => held.prolong(&asked).await,
            Does::Unlock => held.give_back(&asked).await,
            Does::Call => calls::call(hub, &asked, body).await,
            Does::Command => calls::command(hub, &asked, body).await,
            Does::Commands => calls::commands(hub).await,
            Does::Stream => stream::begin(hub, &asked.head().headers, upgrade, busy),
        }
    }
}

/// The token of a request.
fn token(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

/// Answers what is not served, and ends the connection.
async fn refuse(mut wire: impl AsyncWrite + Unpin, status: &str) {
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let last = async {
        // It is told why, or is gone already.
        let _ = wire.write_all(answer.as_bytes()).await;
        let _ = wire.shutdown().await;
    };
    let _ = timeout(2 * PART_WITHIN, last).await;
}
