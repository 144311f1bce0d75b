//! The two ends of a connection that carries lines: bytes with line breaks, or text messages of a WebSocket.
//! What lines mean does not depend on what carries them.
//!
//! A text message is a line. A line break inside it, which JSON allows between its words, is read as another
//! white space, so a line has no line break in it either way.

use std::sync::Arc;
use std::time::Duration;

use antiphon::clients::Departure;
use antiphon_api::{Command, Event, LineBuffer, MAX_LINE_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;

use super::counted::{Counted, HalfSaid};
use super::halves::Halves;
use super::hand::Hand;
use super::http::stream;
use super::{Connection, PART_WITHIN};
use crate::Hub;
use crate::access::Visitor;
use crate::hub::Session;
use crate::metrics::{Connected, Refused};
use crate::pipe::Text;

/// Bytes read at once, at most.
const READ_BYTES: usize = 64 << 10;
/// And of a program that says little.
const LEAST_READ_BYTES: usize = 4 << 10;

/// Where a program's lines come from.
pub(super) enum Reader {
    Lines {
        stream: Hand,
        said: HalfSaid,
        lines: LineBuffer,
        buffer: ReadBuffer,
    },
    WebSocket(stream::Reader),
}

/// Where lines for a program go.
pub(super) enum Writer {
    Lines(Hand),
    WebSocket(stream::Writer),
}

/// A connection has its place among all, and is counted, as long as this is there.
pub(super) struct Place {
    _visitor: Arc<Visitor>,
    _connected: Connected,
}

impl Place {
    pub(super) fn new(visitor: Arc<Visitor>, connected: Connected) -> Self {
        Self {
            _visitor: visitor,
            _connected: connected,
        }
    }
}

/// Something that a program said.
pub(super) enum Said {
    /// A line that is not empty.
    Line(Vec<u8>),
    /// No line. It is told so, and goes on.
    NoLine(&'static str),
}

/// Why nothing further is said.
pub(super) enum Stop {
    /// The connection has ended, by either end or in between.
    Ended,
    /// Something was half sent for too long: its rest did not come, or others needed its room.
    GaveWay(String),
    /// The program is sent away, and is told why if there is something to tell.
    Wrong {
        told: Option<String>,
        departure: Departure,
    },
}

impl Stop {
    /// Tells the program what it did wrong; how it departs.
    pub(super) async fn told(self, session: &Session) -> Departure {
        match self {
            Stop::Ended => ended(),
            Stop::GaveWay(reason) => {
                tell(session, reason).await;
                Departure::lost("it left something half sent")
            }
            Stop::Wrong { told, departure } => {
                if let Some(reason) = told {
                    tell(session, reason).await;
                }
                departure
            }
        }
    }
}

/// Tells a program that something is wrong with what it said.
pub(super) async fn tell(session: &Session, reason: String) {
    let request = serde_json::Value::Null;
    session.tell(Event::Error { reason, request }).await;
}

pub(super) fn ended() -> Departure {
    Departure::lost("its connection ended")
}

/// Both ends of a connection of JSON lines, of which so much was read.
pub(super) fn of_lines(stream: impl Connection + 'static, first: &[u8], halves: &Halves) -> (Reader, Writer) {
    let stream = Counted::new(stream, halves);
    let said = stream.said();
    said.whole(first.len());
    let stream = Hand::new(Box::new(stream));
    let writer = stream.clone();
    let mut lines = LineBuffer::new(MAX_LINE_BYTES);
    lines.push(first);
    let buffer = ReadBuffer::default();
    let reader = Reader::Lines {
        stream,
        said,
        lines,
        buffer,
    };
    (reader, Writer::Lines(writer))
}

impl Reader {
    /// What the program says next.
    ///
    /// # Cancel safety
    /// No line is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Said, Stop> {
        match self {
            Reader::Lines {
                stream,
                said,
                lines,
                buffer,
            } => next_line(stream, said, lines, buffer).await.map(Said::Line),
            Reader::WebSocket(reader) => reader.next().await,
        }
    }

    /// Whether bytes may stand behind a line.
    pub(super) fn takes_bytes(&self) -> bool {
        matches!(self, Reader::Lines { .. })
    }

    /// A command with the bytes that stand behind its line. A text message of a WebSocket has none.
    pub(super) async fn behind(&mut self, mut command: Command, line: Vec<u8>) -> Result<Command, Stop> {
        let Reader::Lines {
            stream,
            said,
            lines,
            buffer,
        } = self
        else {
            return Ok(command);
        };
        if let Some(length) = command.bytes_behind() {
            let length = usize::try_from(length)
                .ok()
                .filter(|length| *length <= MAX_LINE_BYTES);
            let length = length.ok_or_else(too_long)?;
            let kept = line.len();
            drop(line);
            if lines.len() < length {
                said.half(kept + lines.len());
            }
            let bytes = loop {
                match lines.take(length) {
                    Some(bytes) => break bytes,
                    None => read_more(stream, said, lines, buffer).await?,
                }
            };
            said.whole(lines.len());
            command.fill(bytes);
        }
        Ok(command)
    }

    /// Whether the program closes its WebSocket, and waits for the answer to that.
    pub(super) fn closes(&self) -> bool {
        match self {
            Reader::Lines { .. } => false,
            Reader::WebSocket(reader) => reader.closes(),
        }
    }

    /// Returns when the program says nothing any more, also while nobody reads what it has said; or has the
    /// writer notice it.
    pub(super) async fn ended(&self) {
        match self {
            Reader::Lines { stream, .. } => stream.ended().await,
            Reader::WebSocket(reader) => reader.have_the_end_noticed().await,
        }
    }
}

impl Writer {
    /// Writes some of these lines, if the program takes something in time; how much. The bytes of all calls
    /// together are lines, wherever they are cut.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing was written.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<usize, Departure> {
        match self {
            Writer::Lines(writer) => super::write(writer, bytes).await,
            Writer::WebSocket(writer) => writer.write(bytes).await,
        }
    }

    pub(super) async fn flush(&mut self) -> Result<(), Departure> {
        match self {
            Writer::Lines(writer) => super::flush(writer).await,
            Writer::WebSocket(writer) => writer.flush().await,
        }
    }

    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Departure> {
        while !bytes.is_empty() {
            bytes = &bytes[self.write(bytes).await?..];
        }
        self.flush().await
    }

    /// Writes some of what waits. If the future is dropped, the rest of it is there.
    pub(super) async fn write_some(&mut self, text: &mut Text) -> Result<(), Departure> {
        let written = self.write(text.left()).await?;
        text.advance(written);
        match text.left().is_empty() {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    /// What a future gives. While that takes, what the program asks of its connection alone is answered.
    ///
    /// # Cancel safety
    /// If the future is dropped, `waited` is, too.
    pub(super) async fn meanwhile<T>(&mut self, waited: impl Future<Output = T>) -> Result<T, Departure> {
        match self {
            Writer::Lines(_) => Ok(waited.await),
            Writer::WebSocket(writer) => writer.meanwhile(waited).await,
        }
    }
}

/// Writes what is left of a session that is over, `again` first, and ends its connection. A program that has
/// said all may still read, for so long: replies to what it asked last are for it. One that closes its
/// WebSocket gets what is ready soon, and in any case the answer to that.
pub(super) async fn finish(
    (reader, mut writer): (Reader, Writer),
    again: &[u8],
    mut text: Text,
    reads_within: Duration,
) {
    let rest = async {
        if !again.is_empty() {
            writer.write_all(again).await?;
        }
        while text.ready().await {
            // The program may have gone.
            writer.write_some(&mut text).await?;
        }
        Ok::<(), Departure>(())
    };
    let closes = reader.closes();
    let reads_within = if closes { PART_WITHIN } else { reads_within };
    let written = timeout(reads_within, rest).await;
    if closes || matches!(written, Ok(Ok(()))) {
        let _ = timeout(PART_WITHIN, part(reader, writer)).await;
    }
}

/// Ends a connection whose session goes on without it. A program that closes its WebSocket gets the answer.
pub(super) fn let_go(reader: Reader, writer: Writer, place: Place) {
    if reader.closes() {
        tokio::spawn(async move {
            let _ = timeout(PART_WITHIN, part(reader, writer)).await;
            drop(place);
        });
    }
}

/// Tells a connection why it is not served, and ends it.
pub(super) async fn refuse((reader, mut writer): (Reader, Writer), why: &Event) {
    let text = why.to_json() + "\n";
    let rest = async {
        if writer.write_all(text.as_bytes()).await.is_ok() {
            part(reader, writer).await;
        }
    };
    let _ = timeout(PART_WITHIN, rest).await;
}

/// The same, because the node has no room for another session.
pub(super) async fn refuse_full(hub: &Hub, ends: (Reader, Writer)) {
    hub.meters().refused(Refused::Full);
    let why = Event::Refused {
        group: None,
        reason: full(hub),
        fatal: true,
        request: None,
    };
    refuse(ends, &why).await;
}

/// Why a node has no room for another program.
pub(super) fn full(hub: &Hub) -> String {
    format!(
        "{} programs are served, no more at a time: end one of them",
        hub.most()
    )
}

/// Ends a connection so that the other end gets what was written.
pub(super) async fn part(reader: Reader, writer: Writer) {
    match (reader, writer) {
        (Reader::Lines { mut stream, said, .. }, Writer::Lines(mut writer)) => {
            said.end();
            super::part(&mut stream, &mut writer).await;
        }
        (Reader::WebSocket(reader), Writer::WebSocket(writer)) => stream::part(reader, writer).await,
        // Both are of one connection.
        _ => {}
    }
}

/// What is read into: little for a program that says little. It grows with what is said at once, and shrinks
/// when less is.
pub(super) struct ReadBuffer(Vec<u8>);

impl Default for ReadBuffer {
    fn default() -> Self {
        Self(vec![0; LEAST_READ_BYTES])
    }
}

impl ReadBuffer {
    /// So much was read last.
    fn fit(&mut self, length: usize) {
        let size = self.0.len();
        if length == size && size < READ_BYTES {
            self.0 = vec![0; size * 4];
        } else if length < size / 16 && size > LEAST_READ_BYTES {
            self.0 = vec![0; size / 4];
        }
    }
}

/// The next line that is not empty.
///
/// # Cancel safety
/// No line is lost if the future is dropped.
async fn next_line(
    reader: &mut (impl AsyncRead + Unpin),
    said: &HalfSaid,
    lines: &mut LineBuffer,
    buffer: &mut ReadBuffer,
) -> Result<Vec<u8>, Stop> {
    loop {
        let line = lines.pop();
        if let Ok(Some(_)) = line {
            said.whole(lines.len());
        }
        match line {
            Ok(Some(line)) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(Some(line)) => return Ok(line),
            Ok(None) => read_more(reader, said, lines, buffer).await?,
            Err(_) => return Err(too_long()),
        }
    }
}

fn too_long() -> Stop {
    Stop::Wrong {
        told: Some(format!(
            "a line has at most {MAX_LINE_BYTES} bytes, and as many behind it: the connection ends"
        )),
        departure: Departure::lost("it sent a line that is too long"),
    }
}

/// Reads something.
///
/// # Cancel safety
/// No byte is lost if the future is dropped.
async fn read_more(
    reader: &mut (impl AsyncRead + Unpin),
    said: &HalfSaid,
    lines: &mut LineBuffer,
    buffer: &mut ReadBuffer,
) -> Result<(), Stop> {
    let Some(Ok(length @ 1..)) = said.rest(reader.read(&mut buffer.0)).await else {
        return Err(match said.gave_way() {
            None => Stop::Ended,
            Some(reason) => Stop::GaveWay(reason),
        });
    };
    lines.push(&buffer.0[..length]);
    buffer.fit(length);
    Ok(())
}

#[cfg(test)]
mod tests {
    use antiphon_api::Payload;
    use antiphon_api::blocks::{Reply, Value};
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_read_into_is_large_only_while_much_is_said() {
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        let (mut lines, mut buffer) = (LineBuffer::new(MAX_LINE_BYTES), ReadBuffer::default());
        let said = HalfSaid::new(&Halves::default());
        let long = [&[b'x'; 300_000][..], b"\n"].concat();
        near.write_all(&long).await.unwrap();
        assert_eq!(
            next_line(&mut far, &said, &mut lines, &mut buffer)
                .await
                .ok()
                .unwrap()
                .len(),
            300_000
        );
        assert_eq!(buffer.0.len(), READ_BYTES);
        for _ in 0..3 {
            near.write_all(b"short\n").await.unwrap();
            assert_eq!(
                next_line(&mut far, &said, &mut lines, &mut buffer)
                    .await
                    .ok()
                    .unwrap(),
                b"short"
            );
        }
        assert_eq!(buffer.0.len(), LEAST_READ_BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_of_which_only_the_first_bytes_come_is_not_waited_for() {
        let (_near, far) = tokio::io::duplex(1 << 10);
        let (mut reader, _writer) = of_lines(far, b"{\"hello", &Halves::default());
        let Err(Stop::GaveWay(reason)) = reader.next().await else {
            panic!("it did not give way");
        };
        assert!(reason.contains("did not come"), "{reason}");
    }

    /// As docs/agent.md has it: a byte may be told as six.
    #[test]
    fn an_event_with_a_value_or_a_message_may_be_longer_than_a_command_but_has_less_than_seven_mebibytes() {
        for bytes in [0, 1, b'x', 0xff] {
            let payload = Payload::from_bytes(&vec![bytes; 1 << 20]);
            let reply = Event::Reply(Reply {
                value: Some(Value::Bytes(payload)),
                ..Reply::default()
            });
            let length = reply.to_json().len();
            assert!(length < 7 << 20, "{length}");
            assert_eq!(length > MAX_LINE_BYTES, bytes < 2, "{length}");
        }
    }
}
