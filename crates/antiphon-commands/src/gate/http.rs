//! HTTP at a gate: `POST /v1/peer` with an envelope, and a WebSocket of them at the same place.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::HEAD_WITHIN;
use super::paced::{Busy, Paced};
use crate::envelope::{MAX_COMMAND_BYTES, Way};
use crate::node::{Node, Served};
use crate::ways::Stream;
use crate::ways::http::{MEDIA_TYPE, PATH};
use crate::ways::websocket::accept;

/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 8 << 10;

pub(super) async fn serve(stream: impl Stream + 'static, node: &Arc<Node>, encrypted: bool) {
    let busy = Busy::default();
    let (upgrades, mut upgrade) = mpsc::channel(1);
    let service = service_fn(|request| {
        let (node, busy, upgrades) = (node.clone(), busy.clone(), upgrades.clone());
        async move { Ok::<_, Infallible>(answer(request, &node, encrypted, &busy, &upgrades).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(32)
        .serve_connection(TokioIo::new(Paced::new(stream, busy.clone())), service)
        .with_upgrades();
    // A peer that goes, or is sent away.
    let _ = connection.await;
    // Served here, and in no task of its own: the WebSocket keeps its connection's place, and ends with the
    // gate.
    if let Ok(upgrade) = upgrade.try_recv()
        && let Ok(upgraded) = upgrade.await
    {
        super::websocket::serve(TokioIo::new(upgraded), node, &busy).await;
    }
}

async fn answer(
    request: Request<Incoming>,
    node: &Arc<Node>,
    encrypted: bool,
    busy: &Busy,
    upgrades: &mpsc::Sender<OnUpgrade>,
) -> Response<Full<Bytes>> {
    // What no peer asks ends the connection: a stranger could keep its place with such requests.
    if request.uri().path() != PATH {
        return closing(StatusCode::NOT_FOUND);
    }
    match *request.method() {
        Method::POST => {}
        Method::GET => return upgrade(request, encrypted, upgrades),
        _ => {
            let mut response = closing(StatusCode::METHOD_NOT_ALLOWED);
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, POST"));
            return response;
        }
    }
    let body = Limited::new(request.into_body(), MAX_COMMAND_BYTES);
    let Ok(Ok(envelope)) = timeout(HEAD_WITHIN, body.collect()).await else {
        return closing(StatusCode::BAD_REQUEST);
    };
    let ways = match encrypted {
        true => [Way::Https, Way::HttpsKept],
        false => [Way::Http, Way::HttpKept],
    };
    let _served = busy.one_more();
    match node.serve(&envelope.to_bytes(), &ways, None).await {
        Served::Reply(reply) => {
            let mut response = Response::new(Full::new(reply));
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
            response
        }
        // Like what is forged: a stranger that has a copy could keep its place with it.
        Served::Seen => closing(StatusCode::CONFLICT),
        Served::Forged => closing(StatusCode::FORBIDDEN),
    }
}

fn said(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// The same, and the connection ends.
fn closing(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = said(status);
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

fn upgrade(
    request: Request<Incoming>,
    encrypted: bool,
    upgrades: &mpsc::Sender<OnUpgrade>,
) -> Response<Full<Bytes>> {
    let told = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let wanted = told(UPGRADE).is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
        && told(SEC_WEBSOCKET_VERSION) == Some("13");
    let key = told(SEC_WEBSOCKET_KEY).filter(|_| wanted && !encrypted);
    let Some(accepted) = key.and_then(|key| HeaderValue::from_str(&accept(key)).ok()) else {
        return closing(StatusCode::UPGRADE_REQUIRED);
    };
    // There is room: a connection is upgraded once.
    let _ = upgrades.try_send(hyper::upgrade::on(request));
    let mut response = said(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted);
    response
}
