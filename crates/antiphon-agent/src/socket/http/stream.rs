//! WebSocket: each text message of the program is a command, each for it an event, as in JSON lines.

use std::ops::ControlFlow;

use antiphon::clients::Departure;
use antiphon_api::{Event, MAX_LINE_BYTES};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{HeaderMap, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::answer::{self, Answer};
use super::problem::Problem;
use super::wire::Busy;
use crate::Hub;
use crate::hub::{Events, Session};
use crate::metrics::Carrier;
use crate::socket::PART_WITHIN;

/// What a server proves with that it has understood (RFC 6455, 1.3).
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A key is 16 bytes in base64.
const KEY_BYTES: usize = 24;
/// Bytes written at once, if there are so many.
const WRITE_BYTES: usize = 64 << 10;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Answers that the WebSocket begins, and serves it after that.
pub(super) fn begin(
    hub: &Hub,
    headers: &HeaderMap,
    upgrade: OnUpgrade,
    busy: Busy,
) -> Result<Answer, Problem> {
    let key = key(headers)?;
    let (session, events) = hub.session()?;
    let connected = hub.meters().connected(Carrier::WebSocket);
    tokio::spawn(async move {
        let _connected = connected;
        // It fails only if the client has gone.
        if let Ok(upgraded) = upgrade.await {
            let config = WebSocketConfig::default()
                .max_message_size(Some(MAX_LINE_BYTES))
                .max_frame_size(Some(MAX_LINE_BYTES));
            let io = TokioIo::new(upgraded);
            let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            serve(socket, session, events, busy).await;
        }
    });
    let mut answer = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted(key));
    Ok(answer)
}

/// The key of a client that wants a WebSocket.
fn key(headers: &HeaderMap) -> Result<&HeaderValue, Problem> {
    let says = |name: HeaderName, word: &str| {
        let values = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok());
        values
            .flat_map(|value| value.split(','))
            .any(|said| said.trim().eq_ignore_ascii_case(word))
    };
    if !says(CONNECTION, "upgrade") || !says(UPGRADE, "websocket") {
        return Err(Problem::no_upgrade(
            "this is a WebSocket: ask with Upgrade: websocket",
        ));
    }
    if !says(SEC_WEBSOCKET_VERSION, "13") {
        return Err(Problem::no_upgrade("a WebSocket has Sec-WebSocket-Version: 13"));
    }
    let key = headers
        .get(SEC_WEBSOCKET_KEY)
        .filter(|key| key.len() == KEY_BYTES);
    key.ok_or_else(|| Problem::refused("a WebSocket begins with a Sec-WebSocket-Key of 16 bytes in base64"))
}

fn accepted(key: &HeaderValue) -> HeaderValue {
    let mut hash = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(MAGIC);
    HeaderValue::try_from(BASE64.encode(hash.finish())).expect("base64 is a header's text")
}

async fn serve(socket: Socket, session: Session, mut events: Events, busy: Busy) {
    let (mut writer, mut reader) = socket.split();
    let (pinged, mut pings) = mpsc::channel(1);
    let ended = tokio::select! {
        // While a session's operations hold up its reading, it is still written to.
        ended = read(&mut reader, &session, &pinged) => ended,
        ended = write(&mut writer, &mut events, &mut pings) => ended,
    };
    session.ends_for(busy.departure().unwrap_or(ended));
    drop(session);
    // Others know. A program that has said all may still read: replies to what it asked last are for it.
    let rest = async {
        while let Some(event) = events.next().await {
            let _ = writer.send(Message::text(event.to_json())).await;
        }
        let _ = writer.send(Message::Close(None)).await;
        // Until it closes, too.
        while let Some(Ok(_)) = reader.next().await {}
    };
    let _ = timeout(PART_WITHIN, rest).await;
}

async fn read(reader: &mut SplitStream<Socket>, session: &Session, pinged: &mpsc::Sender<()>) -> Departure {
    let tell = async |reason: String| {
        let request = serde_json::Value::Null;
        session.tell(Event::Error { reason, request }).await;
    };
    loop {
        match reader.next().await {
            Some(Ok(Message::Text(text))) => {
                if let ControlFlow::Break(departure) = crate::socket::obey(session, text.as_bytes()).await {
                    return departure;
                }
            }
            Some(Ok(Message::Binary(_))) => tell("a command is a text message".to_owned()).await,
            // The answer waits in memory that has no bound. So nothing more is read while the answer to
            // another one is not written.
            Some(Ok(Message::Ping(_))) => _ = pinged.send(()).await,
            Some(Ok(Message::Pong(_) | Message::Frame(_))) => {}
            Some(Err(Error::Capacity(_))) => {
                tell(format!(
                    "a message has at most {MAX_LINE_BYTES} bytes: the connection ends"
                ))
                .await;
                return Departure::lost("it sent a message that is too long");
            }
            Some(Err(Error::Utf8(_))) => return Departure::lost("it sent a text that is not UTF-8"),
            Some(Err(Error::Protocol(error))) if error != ProtocolError::ResetWithoutClosingHandshake => {
                return Departure::lost("it sent what is no WebSocket");
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Departure::lost("its connection ended"),
        }
    }
}

async fn write(
    writer: &mut SplitSink<Socket, Message>,
    events: &mut Events,
    pings: &mut mpsc::Receiver<()>,
) -> Departure {
    loop {
        let mut next = tokio::select! {
            Some(event) = events.next() => Some(event),
            // Its answer is written with the rest.
            Some(()) = pings.recv() => None,
        };
        let mut bytes = 0;
        while let Some(event) = next {
            let text = event.to_json();
            bytes += text.len();
            if writer.feed(Message::text(text)).await.is_err() {
                return Departure::lost("its connection ended");
            }
            next = (bytes < WRITE_BYTES).then(|| events.try_next()).flatten();
        }
        if writer.flush().await.is_err() {
            return Departure::lost("its connection ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_answered_as_the_standard_has_it() {
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accepted(&key), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn what_is_no_request_for_a_websocket_is_told_what_is_missing() {
        let all = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let without = |left_out: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in all.iter().filter(|(name, _)| *name != left_out) {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            key(&headers).err().map(|problem| problem.status.as_u16())
        };
        assert_eq!(without(""), None);
        for (name, status) in [
            ("connection", 426),
            ("upgrade", 426),
            ("sec-websocket-version", 426),
        ] {
            assert_eq!(without(name), Some(status));
        }
        assert_eq!(without("sec-websocket-key"), Some(400));
    }
}
