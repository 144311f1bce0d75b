//! HTTP/1.1: each request is a session of its own, for as long as it is answered.
//!
//! ```text
//!   connection ─► wire ─► hyper ─► guard ─► table, token ─► asked ─┬─► exchange, maps, calls: a command, its reply
//!          first bytes, times       403   404, 405, 401    400      ├─► groups: a shared client, streams of events
//!                                                                  ├─► locks: held behind the request
//!                                                                  └─► stream: a WebSocket, as JSON lines
//! ```
//! - [`table`]: the routes, by which requests are dispatched, and [`openapi`] is made;
//! - [`guard`]: refuses requests that a page in a browser sends, and no program of this host;
//! - [`asked`]: names, parameters, conditions and payloads of a request;
//! - [`body`]: bodies, read whole;
//! - [`answer`], [`problem`], [`sse`]: what it is answered with;
//! - [`wire`]: the bytes below, and times; [`closing`]: those of a WebSocket, until its end.
//!
//! Locks and maps are those of all clients of the cluster, whatever they speak. Only two things are HTTP's
//! own: the sessions that hold the locks of requests, and the shared client that sends the messages of
//! requests.
//!
//! # Bounds
//! A request line of [`MAX_REQUEST_LINE`], a head of [`MAX_HEAD_BYTES`] and [`MAX_HEADERS`], whole within
//! [`wire::HEAD_WITHIN`]; a body of [`MAX_BODY_BYTES`] within [`BODY_WITHIN`], and all of them together what
//! [`body`] says; idle between requests for [`IDLE_FOR`]. Requests of one connection are answered one after
//! the other, in their order. A request that waits for the cluster while that has a majority waits
//! as long as its client is there.
//!
//! # What happens when…
//! | what | then |
//! |---|---|
//! | the client goes while it waits | a lock or a call is cancelled; a write or a message may happen |
//! | the client goes while it reads events | it is out of the group, or the watch is over |
//! | the client does not read | its group removes it after 10 s, its connection ends after 30 s |
//! | the client is gone when its lock is granted | the lock is free when its time is over |
//! | no cluster yet, no majority | 503 at once or after [`PATIENCE`](crate::ready::PATIENCE); with `within`, 504 when that is over |
//! | the node leaves | streams end with `lost`, what waits is answered, locks are free |
//! | the node dies | connections end; of what was not answered nobody knows whether it happened |
//! | what was sent is no HTTP | 400, 414 or 431 without a body, and the connection ends |

mod answer;
mod asked;
mod body;
mod calls;
mod closing;
mod exchange;
mod groups;
mod guard;
mod locks;
mod maps;
mod openapi;
mod problem;
mod sse;
pub(super) mod stream;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use self::answer::Answer;
use self::asked::Asked;
use self::body::Unread;
use self::problem::Problem;
use self::table::Does;
use self::wire::{Busy, Pace, Wire};
use super::halves::Halves;
use super::kept::Resumable;
use super::{Connection, PART_WITHIN, SPEAK_WITHIN};
use crate::Hub;
use crate::access::Visitor;

/// The longest first line of a request.
const MAX_REQUEST_LINE: usize = super::first::MAX_FIRST_LINE;
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
    speaker: groups::Speaker,
    held: Arc<locks::Held>,
    halves: Halves,
    /// Programs of WebSockets that may come back, and those of JSON lines.
    resumable: Resumable,
}

/// How a connection begins that speaks HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// With a request line of HTTP/1.
    Request,
    /// With a version that is not spoken here.
    OtherVersion,
    /// With a request line that is too long.
    TooLong,
}

/// Whether a connection begins with a request that asks whether the agent lives, or its node is ready.
pub(super) fn is_probe(first: &[u8]) -> bool {
    let mut words = first.split(u8::is_ascii_whitespace);
    let (method, path) = (words.next(), words.next());
    matches!(method, Some(b"GET" | b"HEAD")) && matches!(path, Some(b"/livez" | b"/readyz"))
}

/// Whether there is a route of this method and this template.
#[cfg(test)]
pub(super) fn has(method: &str, path: &str) -> bool {
    let mut routes = table::ROUTES.iter();
    routes.any(|route| (route.method, route.path) == (method, path))
}

impl Http {
    pub(super) fn new(hub: Hub, resumable: Resumable, halves: Halves) -> Self {
        Self(Arc::new(Inner {
            speaker: groups::Speaker::new(hub.clone()),
            held: locks::Held::new(),
            halves,
            hub,
            resumable,
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
        self.serve_requests(stream, first, (beginning, visitor), true)
            .await;
    }

    /// Answers one request of a connection, and ends it.
    pub(super) async fn serve_one(
        self,
        stream: impl Connection + 'static,
        first: Vec<u8>,
        beginning: Beginning,
        visitor: Visitor,
    ) {
        let served = self.serve_requests(stream, first, (beginning, visitor), false);
        // One that is not over by then is given up: others wait for its place.
        let _ = timeout(SPEAK_WITHIN, served).await;
    }

    /// `keeps`: the connection is kept for a next request.
    async fn serve_requests(
        self,
        stream: impl Connection + 'static,
        first: Vec<u8>,
        (beginning, visitor): (Beginning, Visitor),
        keeps: bool,
    ) {
        let visitor = Arc::new(visitor);
        let pace = Pace::new();
        let refused = match beginning {
            Beginning::OtherVersion => "505 HTTP Version Not Supported",
            Beginning::TooLong => "414 URI Too Long",
            Beginning::Request => {
                let wire = TokioIo::new(Wire::new(stream, first, pace.clone()));
                let stranger = visitor.clone();
                let service = service_fn(move |request| {
                    let (http, busy, visitor) = (self.clone(), pace.busy(), visitor.clone());
                    async move { Ok::<_, Infallible>(http.answer(request, busy, visitor).await) }
                });
                let mut builder = http1::Builder::new();
                builder
                    .timer(TokioTimer::new())
                    // From the last answer on; a head that has begun has less.
                    .header_read_timeout(IDLE_FOR)
                    .keep_alive(keeps)
                    .max_buf_size(MAX_HEAD_BYTES);
                let mut served = pin!(builder.serve_connection(wire, service).with_upgrades());
                // A connection without a token does not keep its place by asking for what needs none.
                if stranger.needs_token() {
                    if timeout(SPEAK_WITHIN, &mut served).await.is_ok() {
                        return;
                    }
                    if stranger.is_stranger() {
                        served.as_mut().graceful_shutdown();
                    }
                }
                // Whatever ends it, its client knows, or is gone.
                let _ = served.await;
                return;
            }
        };
        refuse(Wire::new(stream, Vec::new(), pace), refused).await;
    }

    async fn answer(&self, request: Request<Incoming>, busy: Busy, visitor: Arc<Visitor>) -> Answer {
        let answer = self.try_answer(request, busy, visitor).await;
        answer.unwrap_or_else(Problem::answer)
    }

    async fn try_answer(
        &self,
        mut request: Request<Incoming>,
        busy: Busy,
        visitor: Arc<Visitor>,
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
        if head.method == Method::OPTIONS {
            return Ok(answer::options(&table::allow(&path)?));
        }
        let (route, names) = found?;
        let asked = Asked::new(route, &names, head)?;
        if !route.has_body() && !body.is_end_stream() {
            let reason = "this takes no body: what it takes stands in its path and its query";
            return Err(Problem::refused(reason));
        }
        let Inner {
            hub,
            speaker,
            held,
            halves,
            resumable,
        } = &*self.0;
        let body = Unread::new(body, halves);
        match route.does {
            Does::Live => Ok(answer::json(StatusCode::OK, &json!({"live": true}))),
            Does::Ready => exchange::ready(hub, visitor.is_stranger()).await,
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
            Does::Stream => stream::begin(
                hub,
                (&asked.head().headers, visitor),
                upgrade,
                busy,
                (resumable, halves),
            ),
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

/// Takes apart a request that nobody sent, as far as it goes without a node. It panics if that is not as
/// promised.
pub(super) fn translate(head: Parts, body: &[u8]) {
    let status = match try_translate(head, body) {
        Ok(()) => return,
        Err(problem) => problem.answer().status(),
    };
    assert!(
        status.is_client_error(),
        "a request is at fault, if anything: {status}"
    );
}

fn try_translate(head: Parts, body: &[u8]) -> Result<(), Problem> {
    guard::admit(&head, |_| false)?;
    let path = head.uri.path().to_owned();
    let (route, names) = table::find(head.method.as_str(), &path)?;
    let asked = Asked::new(route, &names, head)?;
    for (at, name) in names.iter().enumerate() {
        let again = percent_encoding::utf8_percent_encode(asked.path(at), percent_encoding::NON_ALPHANUMERIC);
        let again = again.to_string();
        let decoded = percent_encoding::percent_decode_str(&again).decode_utf8();
        assert_eq!(decoded.ok().as_deref(), Some(asked.path(at)), "{name}");
    }
    for parameter in route.query() {
        asked.flag(parameter.name).ok();
        asked.span(parameter.name).ok();
        asked.number::<u64>(parameter.name).ok();
    }
    asked.if_none_match()?;
    if let Some(wanted) = asked.if_match()? {
        assert!(!wanted.has(None), "no value has a version");
    }
    if let Some(field) = route.payload {
        asked::parse(body, field)?;
    }
    Ok(())
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
