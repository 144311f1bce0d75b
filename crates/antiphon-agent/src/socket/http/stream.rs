//! WebSocket: each text message of the program is a command, each for it an event. It carries the lines of
//! `lines`, and does nothing else.
//!
//! A Close is held back below ([`closing`](super::closing)): behind it nothing can be written, and replies to
//! what was said before it are still on their way. [`part`] lets it through, and its answer is the last word.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use antiphon::clients::Departure;
use antiphon_api::MAX_LINE_BYTES;
use base64_simd::STANDARD as BASE64;
use bytes::Bytes;
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
use tokio::time::sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::answer::{self, Answer};
use super::closing::{Close, Held};
use super::problem::Problem;
use super::wire::Busy;
use crate::Hub;
use crate::access::Visitor;
use crate::metrics::Carrier;
use crate::socket::counted::{Counted, HalfSaid};
use crate::socket::ends::{self, Place, Said, Stop};
use crate::socket::halves::Halves;
use crate::socket::kept::Resumable;
use crate::socket::{LOOK_EACH, lines};

/// What a server proves with that it has understood (RFC 6455, 1.3).
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// A key is 16 bytes in base64.
const KEY_BYTES: usize = 24;
/// Bytes read at once. Each connection keeps so much memory as long as it is there, and clears it before each
/// read; a longer message gets memory of its own.
const READ_BYTES: usize = 16 << 10;

type Socket = WebSocketStream<Held<Counted<TokioIo<Upgraded>>>>;

/// Answers that the WebSocket begins, and serves it after that. The visitor keeps its places as long.
pub(super) fn begin(
    hub: &Hub,
    (headers, visitor): (&HeaderMap, Arc<Visitor>),
    upgrade: OnUpgrade,
    busy: Busy,
    (resumable, halves): (&Resumable, &Halves),
) -> Result<Answer, Problem> {
    let key = key(headers)?;
    let (hub, resumable, halves) = (hub.clone(), resumable.clone(), halves.clone());
    let place = Place::new(visitor, hub.meters().connected(Carrier::WebSocket));
    tokio::spawn(async move {
        // It fails only if the client has gone.
        if let Ok(upgraded) = upgrade.await {
            let io = Counted::new(TokioIo::new(upgraded), &halves);
            let said = io.said();
            let (io, close) = Held::new(io);
            let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config())).await;
            lines::serve(both(socket, (said, close), busy), place, &hub, &resumable).await;
        }
    });
    let mut answer = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accepted(key));
    Ok(answer)
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .max_message_size(Some(MAX_LINE_BYTES))
        .max_frame_size(Some(MAX_LINE_BYTES))
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
    HeaderValue::try_from(BASE64.encode_to_string(hash.finish())).expect("base64 is a header's text")
}

/// Both ends of a WebSocket.
fn both(socket: Socket, (said, close): (HalfSaid, Close), busy: Busy) -> (ends::Reader, ends::Writer) {
    let (sink, stream) = socket.split();
    let (pinged, pings) = mpsc::channel(1);
    let busy = Arc::new(busy);
    let reader = Reader {
        stream,
        said,
        close,
        pinged,
        busy: busy.clone(),
    };
    let writer = Writer {
        sink,
        part: Vec::new(),
        pings,
        busy,
    };
    (ends::Reader::WebSocket(reader), ends::Writer::WebSocket(writer))
}

/// Where a program's messages come from.
pub(in crate::socket) struct Reader {
    stream: SplitStream<Socket>,
    said: HalfSaid,
    close: Close,
    pinged: mpsc::Sender<()>,
    busy: Arc<Busy>,
}

/// Where messages for a program go.
pub(in crate::socket) struct Writer {
    sink: SplitSink<Socket, Message>,
    /// The beginning of a line, whose end has not come.
    part: Vec<u8>,
    pings: mpsc::Receiver<()>,
    busy: Arc<Busy>,
}

impl Reader {
    /// What comes next.
    ///
    /// # Cancel safety
    /// No message is lost if the future is dropped.
    pub(in crate::socket) async fn next(&mut self) -> Result<Said, Stop> {
        let wrong = |told, cause: &str| {
            let departure = Departure::lost(cause);
            Err(Stop::Wrong { told, departure })
        };
        loop {
            let message = tokio::select! {
                // What came before the Close comes first.
                biased;
                message = self.said.rest(self.stream.next()) => message.flatten(),
                () = self.close.comes() => return Err(self.stop()),
            };
            match &message {
                // Behind the whole ones that were read a half one may stand already, and has its time, too.
                Some(Ok(Message::Text(_) | Message::Binary(_))) => self.said.whole(self.close.half_bytes()),
                // It may stand in the middle of a message.
                Some(Ok(_)) => self.said.other(self.close.half_bytes()),
                _ => {
                    if let Some(reason) = self.said.gave_way() {
                        return Err(Stop::GaveWay(reason));
                    }
                }
            }
            match message {
                Some(Ok(Message::Text(text))) => {
                    let mut line = Vec::from(Bytes::from(text));
                    for byte in line.iter_mut().filter(|byte| **byte == b'\n') {
                        // JSON allows it wherever it allows a line break.
                        *byte = b'\r';
                    }
                    if !line.iter().all(u8::is_ascii_whitespace) {
                        return Ok(Said::Line(line));
                    }
                }
                Some(Ok(Message::Binary(_))) => return Ok(Said::NoLine("a command is a text message")),
                // The answer waits in memory that has no bound. So nothing more is read while the answer to
                // another one is not written.
                Some(Ok(Message::Ping(_))) => tokio::select! {
                    _ = self.pinged.send(()) => {}
                    // The ping may stand in the middle of a message.
                    reason = self.said.gives_way() => return Err(Stop::GaveWay(reason)),
                },
                Some(Ok(Message::Pong(_) | Message::Frame(_))) => {}
                Some(Err(Error::Capacity(_))) => {
                    let told = format!("a message has at most {MAX_LINE_BYTES} bytes: the connection ends");
                    return wrong(Some(told), "it sent a message that is too long");
                }
                Some(Err(Error::Utf8(_))) => return wrong(None, "it sent a text that is not UTF-8"),
                Some(Err(Error::Protocol(error))) if error != ProtocolError::ResetWithoutClosingHandshake => {
                    return wrong(None, "it sent what is no WebSocket");
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(self.stop()),
            }
        }
    }

    /// Why nothing more is said, if the connection has ended. Reading writes, too: answers to pings.
    fn stop(&self) -> Stop {
        match self.busy.departure() {
            Some(departure) => Stop::Wrong {
                told: None,
                departure,
            },
            None => Stop::Ended,
        }
    }

    /// Whether the program closes, and waits for the answer.
    pub(in crate::socket) fn closes(&self) -> bool {
        self.close.is_held()
    }

    /// While nobody reads what the program has said, the writer notices when it goes: to flush is to look.
    pub(in crate::socket) async fn have_the_end_noticed(&self) {
        loop {
            sleep(LOOK_EACH).await;
            // If it is full, the writer comes to it.
            let _ = self.pinged.try_send(());
        }
    }
}

impl Writer {
    /// Writes a line, or keeps a part of one. `wire` watches how long that takes.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing was written.
    pub(in crate::socket) async fn write(&mut self, bytes: &[u8]) -> Result<usize, Departure> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.part.extend_from_slice(bytes);
            return Ok(bytes.len());
        };
        let ready = poll_fn(|context| self.sink.poll_ready_unpin(context)).await;
        // From here on there is nothing to wait for.
        let mut line = std::mem::take(&mut self.part);
        line.extend_from_slice(&bytes[..end]);
        // An event is UTF-8.
        let message = Message::text(String::from_utf8_lossy(&line).into_owned());
        let written = ready.and_then(|()| self.sink.start_send_unpin(message));
        self.unless_broken(written)?;
        Ok(end + 1)
    }

    pub(in crate::socket) async fn flush(&mut self) -> Result<(), Departure> {
        let flushed = self.sink.flush().await;
        self.unless_broken(flushed)
    }

    /// What a future gives; pings are answered meanwhile.
    pub(in crate::socket) async fn meanwhile<T>(
        &mut self,
        waited: impl Future<Output = T>,
    ) -> Result<T, Departure> {
        let mut waited = pin!(waited);
        loop {
            tokio::select! {
                given = &mut waited => return Ok(given),
                Some(()) = self.pings.recv() => self.flush().await?,
            }
        }
    }

    fn unless_broken(&self, written: Result<(), Error>) -> Result<(), Departure> {
        written.map_err(|_| self.busy.departure().unwrap_or_else(ends::ended))
    }
}

/// Says the last word, and waits until the program closes, too. If the program closes first, that is answered
/// with its own code, by the reading.
pub(in crate::socket) async fn part(mut reader: Reader, mut writer: Writer) {
    reader.said.end();
    if reader.closes() {
        let _ = writer.sink.flush().await;
    } else {
        let _ = writer.sink.send(Message::Close(None)).await;
    }
    reader.close.let_through();
    while let Some(Ok(_)) = reader.stream.next().await {}
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use antiphon::memory::MemoryNetwork;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::time::timeout;

    use super::super::{Beginning, Http};
    use super::*;
    use crate::access::Access;
    use crate::socket::halves::UNDISTURBED;
    use crate::testing::cluster;

    /// The client's end of a WebSocket, with so much room between both ends.
    async fn client(hub: &Hub, halves: &Halves, room: usize) -> DuplexStream {
        let http = Http::new(hub.clone(), Resumable::default(), halves.clone());
        let visitor = Access::default().local(hub.meters().clone());
        let (mut near, far) = tokio::io::duplex(room);
        tokio::spawn(http.serve(far, Vec::new(), Beginning::Request, visitor));
        let request = "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        near.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(near.read_u8().await.unwrap());
        }
        near
    }

    /// It sends half a message and then pings, and reads no answer to them. The agent reads nothing more
    /// while an answer waits to be written.
    #[tokio::test(start_paused = true)]
    async fn a_half_message_gives_way_while_its_reader_waits_for_the_answer_to_a_ping() {
        const STEP: usize = 64 << 10;
        let hub = Hub::new(cluster(&MemoryNetwork::new(), 1, true).await);
        let halves = Halves::of(2 * STEP);
        let mut near = client(&hub, &halves, 1024).await;
        // The first fragment of a text, and pings; all are masked with zeros. The first 64 KiB are free.
        let length = 2 * STEP + STEP / 2;
        let mut fragment = vec![0x01_u8, 0x80 | 127];
        fragment.extend_from_slice(&(length as u64).to_be_bytes());
        fragment.extend_from_slice(&[0; 4]);
        fragment.resize(fragment.len() + length, b'x');
        near.write_all(&fragment).await.unwrap();
        let mut ping = vec![0x89, 0x80 | 125, 0, 0, 0, 0];
        ping.resize(6 + 125, b'p');
        let pings = ping.repeat(100);
        let written = timeout(Duration::from_secs(1), near.write_all(&pings)).await;
        assert!(written.is_err(), "it is read on, though nobody reads the answers");
        assert_eq!(halves.room(), 0);
        let other = halves.begin();
        let has_room = timeout(2 * UNDISTURBED, other.take(STEP)).await;
        assert!(has_room.is_ok(), "the half does not give way");
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_message_that_comes_together_with_a_whole_one_is_not_waited_for_without_end() {
        let hub = Hub::new(cluster(&MemoryNetwork::new(), 1, true).await);
        let line = br#"{"members":{"id":1}}"#;
        // All are masked with zeros.
        let text = [&[0x81_u8, 0x80 | line.len() as u8, 0, 0, 0, 0][..], line].concat();
        let ping = [0x89_u8, 0x80, 0, 0, 0, 0];
        let fragment = [0x01_u8, 0x80 | 1, 0, 0, 0, 0, b'x'];
        for (behind, ends) in [
            (Vec::new(), false),
            (ping.to_vec(), false),
            (text[..text.len() - 1].to_vec(), true),
            ([&ping[..], &text[..1]].concat(), true),
            ([&text[..], &ping, &fragment].concat(), true),
        ] {
            let mut near = client(&hub, &Halves::default(), 4096).await;
            near.write_all(&[&text[..], &behind].concat()).await.unwrap();
            let mut told = Vec::new();
            // Twice as long as the rest may take.
            let ended = timeout(Duration::from_secs(120), near.read_to_end(&mut told)).await;
            let told = String::from_utf8_lossy(&told);
            assert!(told.contains(r#""op":"members""#), "{told}");
            assert_eq!(ended.is_ok(), ends, "{behind:?}: {told}");
            assert_eq!(
                told.contains("did not come within 60 s"),
                ends,
                "{behind:?}: {told}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_websocket_reads_no_more_at_once_than_it_keeps_memory_for() {
        let (mut near, far) = tokio::io::duplex(4 * READ_BYTES);
        let mut socket = WebSocketStream::from_raw_socket(far, Role::Server, Some(config())).await;
        // Texts that are masked with zeros; they fill what is between the two ends.
        let text = [0x81, 0x80 | 1, 0, 0, 0, 0, b'x'];
        let texts = text.repeat(4 * READ_BYTES / text.len());
        near.write_all(&texts).await.unwrap();
        assert!(matches!(socket.next().await, Some(Ok(Message::Text(_)))));
        let written = timeout(Duration::from_secs(1), near.write_all(&texts[..2 * READ_BYTES])).await;
        assert!(written.is_err(), "it has read more");
    }

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
