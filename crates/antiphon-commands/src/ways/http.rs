//! HTTP: `POST /v1/peer` with an envelope, answered by one.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;

use super::{Boxed, Endpoint, Lost, not_sent, sent};
use crate::envelope::MAX_SIGNED_REPLY_BYTES;

/// Where a gate takes envelopes.
pub(crate) const PATH: &str = "/v1/peer";
/// What they are.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.antiphon.envelope";

/// A connection. Dropped, it is closed.
#[derive(Debug)]
pub(crate) struct Sender(SendRequest<Full<Bytes>>);

impl Sender {
    pub(crate) async fn new(stream: Boxed) -> Result<Self, Lost> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(not_sent)?;
        // Ends with its sender.
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Whether it can be used again.
    pub(crate) async fn is_ready(&mut self) -> bool {
        self.0.ready().await.is_ok()
    }

    pub(crate) async fn ask(&mut self, to: &Endpoint, envelope: Bytes) -> Result<Bytes, Lost> {
        let request = Request::post(PATH)
            .header(HOST, to.addr.to_string())
            .header(CONTENT_TYPE, MEDIA_TYPE)
            .body(Full::new(envelope))
            .map_err(not_sent)?;
        let response = self.0.send_request(request).await.map_err(sent)?;
        if response.status() != StatusCode::OK {
            return Err(sent(format_args!(
                "the peer's gate answered {}",
                response.status()
            )));
        }
        let body = Limited::new(response.into_body(), MAX_SIGNED_REPLY_BYTES);
        Ok(body.collect().await.map_err(sent)?.to_bytes())
    }
}
