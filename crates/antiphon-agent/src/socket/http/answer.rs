//! Answers: their bodies and headers.

use std::convert::Infallible;

use antiphon_api::blocks::Serial;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::sse;

pub(super) const JSON: &str = "application/json";
pub(super) const BYTES: &str = "application/octet-stream";
pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const TEXT: &str = "text/plain";

/// Whole, or a stream of events.
pub(super) type Body = Either<Full<Bytes>, sse::Stream>;
pub(super) type Answer = Response<Body>;

/// One JSON object, and the end of its line, for terminals.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    let mut text = serde_json::to_vec(value).expect("an answer has only string keys");
    text.push(b'\n');
    whole(status, JSON, text.into())
}

/// Bytes as they are.
pub(super) fn bytes(bytes: Bytes) -> Answer {
    whole(StatusCode::OK, BYTES, bytes)
}

/// JSON that is written already.
pub(super) fn document(text: Bytes) -> Answer {
    whole(StatusCode::OK, JSON, text)
}

/// A text of this type.
pub(super) fn text(content: &'static str, text: String) -> Answer {
    whole(StatusCode::OK, content, text.into())
}

/// Nothing but its status.
pub(super) fn empty(status: StatusCode) -> Answer {
    let mut answer = whole(status, JSON, Bytes::new());
    answer.headers_mut().remove(CONTENT_TYPE);
    answer
}

/// The methods of a path.
pub(super) fn options(allow: &str) -> Answer {
    let mut answer = empty(StatusCode::NO_CONTENT);
    answer.headers_mut().insert(ALLOW, methods(allow));
    answer
}

pub(super) fn methods(allow: &str) -> HeaderValue {
    HeaderValue::try_from(allow).expect("names of methods are a header's text")
}

/// A stream of events.
pub(super) fn events(stream: sse::Stream) -> Answer {
    with_headers(StatusCode::OK, EVENTS, Either::Right(stream))
}

fn whole(status: StatusCode, content: &'static str, bytes: Bytes) -> Answer {
    with_headers(status, content, Either::Left(Full::new(bytes)))
}

fn with_headers(status: StatusCode, content: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    // What is true now may not be a moment later.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A value that a program stored is no page, whatever it looks like.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// With the version of what it tells.
pub(super) fn tagged(mut answer: Answer, version: Option<Serial>) -> Answer {
    if let Some(version) = version {
        answer.headers_mut().insert(ETAG, tag(version));
    }
    answer
}

/// A version as an entity tag.
pub(super) fn tag(version: Serial) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits and quotes are a header's text")
}

/// What a body of events can fail by: nothing.
pub(super) type Never = Infallible;
