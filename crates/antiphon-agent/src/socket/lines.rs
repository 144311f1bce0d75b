//! JSON lines: each line of the program is a command, each line for it an event. Where a token is asked for,
//! the first line is a `hello` with it.

use std::ops::ControlFlow;

use antiphon::clients::Departure;
use antiphon_api::{Command, Event, LineBuffer, MAX_LINE_BYTES, command};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::kept::{self, Arrival, Resumable};
use super::{Connection, PART_WITHIN, SPEAK_WITHIN};
use crate::access::{Denied, Visitor};
use crate::hub::Session;
use crate::pipe::Text;

/// Bytes read at once, at most.
const READ_BYTES: usize = 64 << 10;
/// And of a program that says little.
const LEAST_READ_BYTES: usize = 4 << 10;

/// The longest first line of a program that must show a token.
const MAX_HELLO_BYTES: usize = 4096;

/// Reads the first line, which must have a token, and leaves it with what was read. A program without a good
/// one is told so.
pub(super) async fn introduce(
    stream: &mut impl Connection,
    first: &mut Vec<u8>,
    visitor: &Visitor,
) -> Result<(), ()> {
    let denied = match timeout(SPEAK_WITHIN, hello(stream, first)).await {
        Ok(Ok(None)) => return Err(()),
        Ok(Ok(Some(line))) => {
            let token = token(&line);
            match visitor
                .admit(token.as_ref().map(|token| token.0.as_bytes()))
                .await
            {
                Ok(()) => return Ok(()),
                Err(Denied::Missing) => {
                    "a token is asked for: begin with {\"hello\":{\"token\":\"…\"}}".to_owned()
                }
                Err(Denied::Wrong) => {
                    "this token is none of the agent's: give one of its --token-file".to_owned()
                }
            }
        }
        Ok(Err(reason)) => {
            // It showed none.
            let _ = visitor.admit(None).await;
            reason
        }
        Err(_) => format!("no token was shown within {} s", SPEAK_WITHIN.as_secs()),
    };
    let error = Event::Error {
        reason: denied,
        request: serde_json::Value::Null,
    };
    let line = error.to_json() + "\n";
    let _ = timeout(PART_WITHIN, stream.write_all(line.as_bytes())).await;
    Err(())
}

/// The first line that is not empty; none if the program ends before it is whole.
async fn hello(stream: &mut impl Connection, first: &mut Vec<u8>) -> Result<Option<Vec<u8>>, String> {
    loop {
        let begin = first.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let end = first[begin..].iter().position(|byte| *byte == b'\n');
        if let Some(length) = end.filter(|length| begin + length <= MAX_HELLO_BYTES) {
            return Ok(Some(first[begin..begin + length].to_vec()));
        }
        if end.is_some() || first.len() > MAX_HELLO_BYTES {
            return Err(format!(
                "a first line with a token has at most {MAX_HELLO_BYTES} bytes"
            ));
        }
        match stream.read_buf(first).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => return Ok(None),
        }
    }
}

fn token(line: &[u8]) -> Option<command::Secret> {
    match Command::parse(std::str::from_utf8(line).ok()?) {
        Ok(Command::Hello(hello)) => hello.token,
        _ => None,
    }
}

/// Serves it until one of both ends.
pub(super) async fn serve(
    mut stream: impl Connection + 'static,
    first: &[u8],
    session: Session,
    mut text: Text,
    resumable: &Resumable,
) {
    let (mut lines, mut buffer) = (LineBuffer::new(MAX_LINE_BYTES), ReadBuffer::default());
    lines.push(first);
    // An agent says nothing before its program has.
    let begun = next_line(&mut stream, &mut lines, &mut buffer).await;
    if let Ok(line) = &begun
        && let Some(hello) = kept::asks(line)
    {
        drop(buffer);
        let stream = Box::new(stream);
        let arrival = Arrival { stream, lines, hello };
        return kept::serve(resumable, arrival, line, session, text).await;
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let ended = tokio::select! {
        // While a session's operations hold up its reading, it is still written to.
        ended = read(&mut reader, begun, lines, buffer, &session) => ended,
        slow = write(&mut writer, &mut text) => slow,
    };
    session.ends_for(ended);
    drop(session);
    // Others know. A program that has said all may still read: replies to what it asked last are for it.
    let rest = async {
        while text.ready().await {
            // It may have gone.
            if write_some(&mut writer, &mut text).await.is_err() {
                return;
            }
        }
        super::part(&mut reader, &mut writer).await;
    };
    let _ = timeout(PART_WITHIN, rest).await;
}

async fn read(
    reader: &mut ReadHalf<impl Connection>,
    begun: Result<Vec<u8>, Stop>,
    mut lines: LineBuffer,
    mut buffer: ReadBuffer,
    session: &Session,
) -> Departure {
    let mut next = begun;
    loop {
        match next {
            Ok(line) => {
                if let ControlFlow::Break(departure) = super::obey(session, &line).await {
                    return departure;
                }
            }
            Err(stop) => return stop.told(session).await,
        }
        next = next_line(reader, &mut lines, &mut buffer).await;
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

/// Why there is no further line.
pub(super) enum Stop {
    Ended,
    TooLong,
}

impl Stop {
    /// Tells the program what it did wrong; how it departs.
    pub(super) async fn told(self, session: &Session) -> Departure {
        match self {
            Stop::Ended => Departure::lost("its connection ended"),
            Stop::TooLong => {
                let reason = format!("a line has at most {MAX_LINE_BYTES} bytes: the connection ends");
                let request = serde_json::Value::Null;
                session.tell(Event::Error { reason, request }).await;
                Departure::lost("it sent a line that is too long")
            }
        }
    }
}

/// The next line that is not empty.
///
/// # Cancel safety
/// No line is lost if the future is dropped.
pub(super) async fn next_line(
    reader: &mut (impl AsyncRead + Unpin),
    lines: &mut LineBuffer,
    buffer: &mut ReadBuffer,
) -> Result<Vec<u8>, Stop> {
    loop {
        match lines.pop() {
            Ok(Some(line)) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Ok(Some(line)) => return Ok(line),
            Ok(None) => {}
            Err(_) => return Err(Stop::TooLong),
        }
        match reader.read(&mut buffer.0).await {
            Ok(0) | Err(_) => return Err(Stop::Ended),
            Ok(length) => {
                lines.push(&buffer.0[..length]);
                buffer.fit(length);
            }
        }
    }
}

async fn write(writer: &mut WriteHalf<impl Connection>, text: &mut Text) -> Departure {
    while text.ready().await {
        if let Err(departure) = write_some(writer, text).await {
            return departure;
        }
    }
    // It ends with the session, which outlives this.
    std::future::pending().await
}

/// Writes what waits, or a part of it. If the future is dropped, the rest of it is there.
async fn write_some(writer: &mut WriteHalf<impl Connection>, text: &mut Text) -> Result<(), Departure> {
    let written = super::write(writer, text.left()).await?;
    text.advance(written);
    match text.left().is_empty() {
        true => super::flush(writer).await,
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use antiphon::memory::MemoryNetwork;
    use antiphon::{Cluster, Profile};
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::Hub;

    /// For what has no failure detection in it, on a busy machine.
    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn what_is_read_into_is_large_only_while_much_is_said() {
        let (mut near, mut far) = tokio::io::duplex(1 << 20);
        let (mut lines, mut buffer) = (LineBuffer::new(MAX_LINE_BYTES), ReadBuffer::default());
        let long = [&[b'x'; 300_000][..], b"\n"].concat();
        near.write_all(&long).await.unwrap();
        assert_eq!(
            next_line(&mut far, &mut lines, &mut buffer)
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
                next_line(&mut far, &mut lines, &mut buffer).await.ok().unwrap(),
                b"short"
            );
        }
        assert_eq!(buffer.0.len(), LEAST_READ_BYTES);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_line_that_is_half_written_when_a_program_has_said_all_comes_whole() {
        let builder = Cluster::builder("lines").name("n1").bind("10.0.0.1:7400");
        let builder = builder.memory(&MemoryNetwork::new()).profile(Profile::local());
        let hub = Hub::new(builder.found().start().await.unwrap());
        let (session, text) = hub.session_in_lines().unwrap();
        let (mut near, far) = tokio::io::duplex(4096);
        tokio::spawn(async move { serve(far, b"", session, text, &Resumable::default()).await });
        let value = "x".repeat(100_000);
        let put = format!("{{\"put\":{{\"map\":\"m\",\"key\":\"k\",\"value\":\"{value}\",\"id\":1}}}}\n");
        let get = "{\"get\":{\"map\":\"m\",\"key\":\"k\",\"id\":2}}\n";
        near.write_all(put.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        let all = async {
            while !said.ends_with(b"\n") {
                near.read_buf(&mut said).await.unwrap();
            }
            near.write_all(get.as_bytes()).await.unwrap();
            while said.len() < 1000 {
                near.read_buf(&mut said).await.unwrap();
            }
            near.shutdown().await.unwrap();
            // It is over here, and its last line is on its way.
            while hub.sessions() > 0 {
                tokio::task::yield_now().await;
            }
            near.read_to_end(&mut said).await.unwrap();
        };
        timeout(SOON, all).await.unwrap();
        let said = String::from_utf8(said).unwrap();
        let last = said.lines().last().unwrap();
        assert!(
            said.ends_with('\n') && last.contains(&value),
            "{} bytes",
            said.len()
        );
        assert!(serde_json::from_str::<serde_json::Value>(last).is_ok());
    }
}
