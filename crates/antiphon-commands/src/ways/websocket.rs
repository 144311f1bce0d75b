//! WebSocket: one connection, a binary message for each envelope, replies in any order.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::Empty;
use hyper::client::conn::http1::handshake;
use hyper::header::{
    CONNECTION, HOST, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::pending::Pending;
use super::{Boxed, Endpoint, IDLE_FOR, Lost, not_sent, sent};
use crate::envelope::MAX_SIGNED_REPLY_BYTES;
use crate::lane::MAX_SENT;

/// A peer that takes nothing of what is written for so long is hung.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// Bytes read at once. Each connection keeps so much memory as long as it is there.
const READ_BYTES: usize = 16 << 10;

/// An open connection. Dropped with all its clones, it is closed.
#[derive(Debug, Clone)]
pub(crate) struct Link(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    out: mpsc::Sender<Bytes>,
    pending: Pending,
    used: Mutex<Instant>,
    /// How many replies came.
    replies: Arc<AtomicUsize>,
    /// A command was given up, and no reply had come since it was sent.
    hangs: AtomicBool,
    task: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    pub(crate) async fn open(stream: Boxed, to: &Endpoint) -> Result<Self, Lost> {
        let mut nonce = [0; 16];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| not_sent("no random bytes"))?;
        let key = base64(&nonce);
        let request = Request::get(super::http::PATH)
            .header(HOST, to.addr.to_string())
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .body(Empty::<Bytes>::new())
            .map_err(not_sent)?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(not_sent)?;
        tokio::spawn(connection.with_upgrades());
        let response = sender.send_request(request).await.map_err(not_sent)?;
        let told = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS
            || told(SEC_WEBSOCKET_ACCEPT) != Some(&accept(&key))
        {
            return Err(not_sent(format_args!(
                "the peer's gate answered {}",
                response.status()
            )));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(not_sent)?;
        let config = config(MAX_SIGNED_REPLY_BYTES);
        let socket =
            WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await;
        let (out, envelopes) = mpsc::channel(MAX_SENT);
        let pending = Pending::default();
        let replies = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(run(socket, envelopes, pending.clone(), replies.clone()));
        Ok(Self(Arc::new(Inner {
            out,
            pending,
            used: Mutex::new(Instant::now()),
            replies,
            hangs: AtomicBool::new(false),
            task,
        })))
    }

    /// Whether a new command can use it. The peer does not hang, as far as is known; and a peer that closes
    /// it while it is idle does so later.
    pub(crate) fn is_open(&self) -> bool {
        let used = *self.0.used.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = self.0.hangs.load(Ordering::Relaxed);
        !hangs && !self.0.out.is_closed() && (used.elapsed() < IDLE_FOR || !self.0.pending.is_empty())
    }

    pub(crate) async fn ask(&self, envelope: Bytes) -> Result<Bytes, Lost> {
        let mut awaited = self.0.pending.add(&envelope);
        let _under_way = UnderWay::new(&self.0);
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0
            .out
            .send(envelope)
            .await
            .map_err(|_| not_sent("the connection ended"))?;
        awaited.reply().await.ok_or_else(|| sent("the connection ended"))
    }
}

/// A command that waits for its reply. If it is dropped and the peer answered nothing meanwhile, the
/// connection may be dead although nothing has closed it.
struct UnderWay<'a> {
    on: &'a Inner,
    replies_before: usize,
}

impl<'a> UnderWay<'a> {
    fn new(on: &'a Inner) -> Self {
        let replies_before = on.replies.load(Ordering::Relaxed);
        Self { on, replies_before }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.on.replies.load(Ordering::Relaxed) == self.replies_before {
            self.on.hangs.store(true, Ordering::Relaxed);
        }
    }
}

async fn run(
    socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>,
    mut envelopes: mpsc::Receiver<Bytes>,
    pending: Pending,
    replies: Arc<AtomicUsize>,
) {
    let (mut sink, mut stream) = socket.split();
    let write = async {
        while let Some(envelope) = envelopes.recv().await {
            match timeout(WRITE_WITHIN, sink.send(Message::Binary(envelope))).await {
                Ok(Ok(())) => {}
                _ => break,
            }
        }
    };
    let read = async {
        while let Some(Ok(message)) = stream.next().await {
            if let Message::Binary(reply) = message {
                // Counted first: the command that gets the reply looks at the number.
                replies.fetch_add(1, Ordering::Relaxed);
                pending.answer(reply);
            }
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
    // Those that come from here on see that it is closed.
    drop(envelopes);
    pending.close();
}

/// Bounds of a WebSocket whose messages have at most so many bytes.
pub(crate) fn config(most: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(most))
        .max_frame_size(Some(most))
}

/// What the answer to a handshake with this key says (RFC 6455, section 4.2.2).
pub(crate) fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64(digest.as_ref())
}

fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_idle_connection_keeps_little_memory_whatever_its_messages_may_have() {
        assert_eq!(super::config(1 << 20).read_buffer_size, super::READ_BYTES);
    }

    #[test]
    fn the_handshake_is_that_of_the_standard() {
        assert_eq!(
            super::accept("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }
}
