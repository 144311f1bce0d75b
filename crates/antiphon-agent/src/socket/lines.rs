//! JSON lines: each line of the program is a command, each line for it an event. Where a token is asked for,
//! the first line of a connection without HTTP is a `hello` with it.
//!
//! Behind a line may stand bytes as they are, as many as the line says. A line that cannot be read may have
//! some behind it, and then the connection ends: what is in them must not be read as commands.

use std::future::pending;
use std::ops::ControlFlow;
use std::pin::pin;

use antiphon::clients::Departure;
use antiphon_api::{Command, Event, command};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::ends::{self, Place, Reader, Said, Stop, Writer};
use super::kept::{self, Arrival, Resumable};
use super::{Connection, PART_WITHIN, READ_WITHIN, SPEAK_WITHIN};
use crate::Hub;
use crate::access::{Denied, Visitor};
use crate::hub::Session;
use crate::pipe::Text;

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

/// Serves a connection until one of both ends it. The connection has no session before its first line: that
/// line may ask for a session that there is already.
pub(super) async fn serve(
    (mut reader, mut writer): (Reader, Writer),
    place: Place,
    hub: &Hub,
    resumable: &Resumable,
) {
    let begun = tokio::select! {
        begun = reader.next() => begun,
        // An agent says nothing before its program has, but pings are answered.
        Err(departure) = writer.meanwhile(pending::<()>()) => Err(Stop::Wrong { told: None, departure }),
    };
    if let Ok(Said::Line(line)) = &begun
        && let Some(hello) = kept::asks(line)
    {
        let arrival = Arrival {
            reader,
            writer,
            place,
            hello,
        };
        return kept::serve(hub, resumable, arrival, line).await;
    }
    let Ok((session, mut text)) = hub.session_in_lines(reader.takes_bytes()) else {
        return ends::refuse_full(hub, (reader, writer)).await;
    };
    let (ended, reads_within) = {
        let mut reading = pin!(read(&mut reader, begun, &session));
        tokio::select! {
            // While a session's operations hold up its reading, it is still written to.
            ended = &mut reading => (ended, READ_WITHIN),
            broken = write(&mut writer, &mut text) => {
                // A program that has gone may have said something before, as one that only ends its sending.
                if broken == ends::ended() {
                    let _ = timeout(PART_WITHIN, reading).await;
                }
                (broken, PART_WITHIN)
            }
        }
    };
    session.ends_for(ended);
    drop(session);
    // Others know.
    ends::finish((reader, writer), &[], text, reads_within).await;
}

async fn read(reader: &mut Reader, begun: Result<Said, Stop>, session: &Session) -> Departure {
    let mut next = begun;
    loop {
        match next {
            Ok(Said::Line(line)) => {
                let parsed = match super::parse(&line) {
                    Ok(command) => match reader.behind(command, line).await {
                        Ok(command) => Ok(command),
                        Err(stop) => return stop.told(session).await,
                    },
                    Err(error) if reader.takes_bytes() && may_have_bytes(&line) => {
                        session.tell_malformed(*error).await;
                        return unclear();
                    }
                    Err(error) => Err(error),
                };
                match patient(reader, super::obey(session, parsed)).await {
                    Some(ControlFlow::Continue(())) => {}
                    Some(ControlFlow::Break(departure)) => return departure,
                    None => return ends::ended(),
                }
            }
            Ok(Said::NoLine(reason)) => ends::tell(session, reason.to_owned()).await,
            Err(stop) => return stop.told(session).await,
        }
        next = reader.next().await;
    }
}

/// Whether bytes may stand behind a line that cannot be read: then they would be read as lines. A letter of a
/// key may be written as its number.
pub(super) fn may_have_bytes(line: &[u8]) -> bool {
    const NUMBER: &[u8] = b"\\u00";
    let mut plain = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(begin) = memchr::memmem::find(rest, NUMBER) {
        let behind = &rest[begin + NUMBER.len()..];
        let digits = behind
            .first_chunk::<2>()
            .and_then(|two| std::str::from_utf8(two).ok());
        plain.extend_from_slice(&rest[..begin]);
        plain.extend(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()));
        rest = behind.get(2..).unwrap_or_default();
    }
    plain.extend_from_slice(rest);
    memchr::memmem::find(&plain, b"\"bytes\"").is_some()
}

/// How a connection ends of which it is not known where the next line begins.
pub(super) fn unclear() -> Departure {
    Departure::lost("it sent a line that cannot be read, and perhaps bytes behind it")
}

/// Does what may take long, and notices meanwhile when the program goes: then the work gets a little more
/// time. None if that was not enough.
async fn patient<T>(reader: &Reader, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return Some(done),
        () = reader.ended() => {}
    }
    timeout(PART_WITHIN, work).await.ok()
}

async fn write(writer: &mut Writer, text: &mut Text) -> Departure {
    loop {
        match writer.meanwhile(text.ready()).await {
            Ok(true) => {}
            // It ends with the session, which outlives this.
            Ok(false) => pending().await,
            Err(departure) => return departure,
        }
        if let Err(departure) = writer.write_some(text).await {
            return departure;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use antiphon::memory::MemoryNetwork;
    use antiphon::{Cluster, Profile};
    use antiphon_api::MAX_LINE_BYTES;
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};

    use super::super::halves::Halves;
    use super::*;
    use crate::access::Access;
    use crate::metrics::Carrier;
    use crate::testing::Agent;

    /// For what has no failure detection in it, on a busy machine.
    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn bytes_may_stand_behind_a_key_however_its_letters_are_written() {
        for (line, expected) in [
            (r#"{"sned":{"payload":{"bytes":5}}}"#, true),
            (r#"{"sned":{"payload":{"b\u0079tes":5}}}"#, true),
            (r#"{"sned":{"payload":{"\u0062\u0079\u0074e\u0073":5}}}"#, true),
            (r#"{"sned":{"payload":"bytes \u0007"}}"#, false),
            (r#"{"sned":{"payload":"\u00"#, false),
        ] {
            assert_eq!(may_have_bytes(line.as_bytes()), expected, "{line}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_line_that_is_half_written_when_a_program_has_said_all_comes_whole() {
        let builder = Cluster::builder("lines").name("n1").bind("10.0.0.1:7400");
        let builder = builder.memory(&MemoryNetwork::new()).profile(Profile::local());
        let hub = Hub::new(builder.found().start().await.unwrap());
        let visitor = Access::default().local(hub.meters().clone());
        let place = Place::new(Arc::new(visitor), hub.meters().connected(Carrier::Lines));
        let (mut near, far) = tokio::io::duplex(4096);
        let ends = ends::of_lines(far, b"", &Halves::default());
        let node = hub.clone();
        tokio::spawn(async move { serve(ends, place, &node, &Resumable::default()).await });
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

    /// The connection of a program that has said something and gone: it can be read, and not written to.
    struct Gone(DuplexStream);

    impl Connection for Gone {
        fn has_ended(&self) -> bool {
            false
        }
    }

    impl AsyncRead for Gone {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, into)
        }
    }

    impl AsyncWrite for Gone {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_program_said_before_it_went_is_done() {
        let agent = Agent::alone().await;
        let (hears, mut heard) = agent.hub.session().unwrap();
        for number in 0..10 {
            let group = format!("g{number}");
            let join = format!("{{\"join\":{{\"group\":\"{group}\",\"id\":1}}}}");
            hears.obey(Command::parse(&join).unwrap()).await;
            while !matches!(heard.next().await, Some(Event::View(_))) {}
            let (mut near, far) = tokio::io::duplex(4096);
            let visitor = Access::default().local(agent.hub.meters().clone());
            let place = Place::new(Arc::new(visitor), agent.hub.meters().connected(Carrier::Lines));
            let ends = ends::of_lines(Gone(far), b"", &Halves::default());
            let hub = agent.hub.clone();
            tokio::spawn(async move { serve(ends, place, &hub, &Resumable::default()).await });
            let send = format!("{{\"send\":{{\"group\":\"{group}\",\"payload\":\"last words\"}}}}");
            near.write_all(format!("{join}\n{send}\n").as_bytes())
                .await
                .unwrap();
            let comes = async { while !matches!(heard.next().await, Some(Event::Message(_))) {} };
            timeout(SOON, comes).await.expect("it is said");
        }
    }

    /// A program on a connection of lines, and what it was told.
    struct Program {
        near: DuplexStream,
        said: Vec<u8>,
    }

    impl Program {
        fn of(agent: &Agent) -> Self {
            let (near, far) = tokio::io::duplex(1 << 20);
            let visitor = Access::default().local(agent.hub.meters().clone());
            let place = Place::new(Arc::new(visitor), agent.hub.meters().connected(Carrier::Lines));
            let ends = ends::of_lines(far, b"", &Halves::default());
            let (hub, said) = (agent.hub.clone(), Vec::new());
            tokio::spawn(async move { serve(ends, place, &hub, &Resumable::default()).await });
            Self { near, said }
        }

        async fn says(&mut self, bytes: &[u8]) {
            self.near.write_all(bytes).await.unwrap();
        }

        /// Reads until it was told this, and forgets all up to its end.
        async fn hears(&mut self, bytes: &[u8]) {
            let end = loop {
                if let Some(begin) = memchr::memmem::find(&self.said, bytes) {
                    break begin + bytes.len();
                }
                let read = timeout(SOON, self.near.read_buf(&mut self.said)).await;
                let wanted = bytes.escape_ascii();
                let read = read.unwrap_or_else(|_| panic!("{wanted} in {}", self.said.escape_ascii()));
                assert!(read.unwrap() > 0, "{wanted} in {}", self.said.escape_ascii());
            };
            self.said.drain(..end);
        }

        async fn hears_the_end(&mut self) {
            timeout(SOON, self.near.read_to_end(&mut self.said))
                .await
                .expect("it ends")
                .unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn bytes_behind_a_line_come_as_they_are_and_are_no_lines() {
        let agent = Agent::alone().await;
        let mut program = Program::of(&agent);
        program
            .says(b"{\"join\":{\"group\":\"g\",\"bytes\":true,\"bundles\":true}}\n")
            .await;
        program.hears(b"\"event\":\"view\"").await;
        let line = b"{\"leave\":{}}\n";
        let send = format!(
            "{{\"send\":{{\"payload\":{{\"bytes\":{}}},\"id\":1}}}}\n",
            line.len()
        );
        // Cut anywhere.
        for byte in [send.as_bytes(), line].concat() {
            program.says(&[byte]).await;
        }
        program
            .hears(b"\"payload\":{\"bytes\":13}}\n{\"leave\":{}}\n")
            .await;
        program
            .says(b"{\"send_bundle\":{\"payloads\":{\"bytes\":[1,0,3]},\"safe\":true}}\n\xff\n\n\0")
            .await;
        program
            .hears(b"\"payloads\":{\"bytes\":[1,0,3]}}\n\xff\n\n\0")
            .await;
        program.says(b"{\"members\":{\"id\":\"m\"}}\n").await;
        program
            .hears(b"{\"event\":\"reply\",\"op\":\"members\",\"id\":\"m\"")
            .await;
        // As text in the line for a program that did not ask for them, and a value of a map is nothing else.
        let mut other = Program::of(&agent);
        other
            .says(b"{\"join\":{\"group\":\"g\"}}\n{\"put\":{\"map\":\"m\",\"key\":\"k\",\"value\":{\"bytes\":2},\"id\":2}}\n{\n{\"get\":{\"map\":\"m\",\"key\":\"k\",\"id\":3}}\n")
            .await;
        other.hears(b"\"value\":\"{\\n\"").await;
        program
            .says(b"{\"send\":{\"group\":\"g\",\"payload\":{\"bytes\":0}}}\n{\"send\":{\"group\":\"g\",\"payload\":{\"bytes\":2}}}\n\xff\0")
            .await;
        other.hears(b"\"payload\":\"\"").await;
        other.hears(b"\"payload\":{\"base64\":\"/wA=\"}").await;
        // What is refused comes back in the line, and so does what makes no sense.
        program
            .says(b"{\"send\":{\"scope\":7,\"payload\":{\"bytes\":5}}}\nhello")
            .await;
        program
            .hears(b"\"request\":{\"send\":{\"payload\":\"hello\",\"scope\":7}}")
            .await;
        program
            .says(b"{\"send\":{\"group\":\"h\",\"payload\":{\"bytes\":2}}}\n\xff\0")
            .await;
        program
            .hears(b"\"request\":{\"send\":{\"group\":\"h\",\"payload\":{\"base64\":\"/wA=\"}}}")
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_behind_a_line_are_not_waited_for_without_end() {
        let (_near, far) = tokio::io::duplex(1 << 10);
        let said = b"{\"send\":{\"payload\":{\"bytes\":5}}}\n";
        let (mut reader, _writer) = ends::of_lines(far, said, &Halves::default());
        let Ok(Said::Line(line)) = reader.next().await else {
            panic!("the line is there");
        };
        let command = super::super::parse(&line).unwrap();
        let Err(Stop::GaveWay(reason)) = reader.behind(command, line).await else {
            panic!("it did not give way");
        };
        assert!(reason.contains("did not come within 60 s"), "{reason}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_connection_ends_where_bytes_behind_a_line_would_be_read_as_lines() {
        let agent = Agent::alone().await;
        let inject = "{\"put\":{\"map\":\"m\",\"key\":\"k\",\"value\":\"injected\"}}\n";
        let long = MAX_LINE_BYTES + 1;
        for (before, wrong, why) in [
            (
                "",
                "{\"send\":{\"payload\":{\"bytes\":60},\"nonsense\":1}}\n".to_owned(),
                "nonsense",
            ),
            (
                "",
                "{\"send\":{\"payload\":{\"bytes\":60}\n".to_owned(),
                "not JSON",
            ),
            (
                "",
                "{\"send_bundle\":{\"payloads\":{\"bytes\":[-60]}}}\n".to_owned(),
                "-60",
            ),
            (
                "",
                format!("{{\"send\":{{\"payload\":{{\"bytes\":{long}}}}}}}\n"),
                "behind it",
            ),
            (
                "{\"hello\":{\"grace\":\"5s\"}}\n",
                "{\"send\":{\"payload\":{\"bytes\":60}}}\n".to_owned(),
                "without `grace`",
            ),
            (
                "{\"hello\":{\"grace\":\"5s\"}}\n",
                "{\"send\":{\"payload\":{\"bytes\":60},\"nonsense\":1}}\n".to_owned(),
                "nonsense",
            ),
            (
                "",
                "{\"answer\":{\"request\":1,\"payload\":\"x\",\"error\":{\"bytes\":60}}}\n".to_owned(),
                "not both",
            ),
            (
                "",
                "{\"send\":{\"payload\":{\"base64\":\"AA==\",\"bytes\":60}}}\n".to_owned(),
                "one of",
            ),
            (
                "",
                format!(
                    "{{\"send_bundle\":{{\"payloads\":{{\"bytes\":[{}60]}}}}}}\n",
                    "0,".repeat(1 << 13)
                ),
                "too many",
            ),
        ] {
            let mut program = Program::of(&agent);
            program.says([before, &wrong, inject].concat().as_bytes()).await;
            program.hears(why.as_bytes()).await;
            program.hears_the_end().await;
        }
        let mut program = Program::of(&agent);
        program
            .says(b"{\"get\":{\"map\":\"m\",\"key\":\"k\",\"id\":1}}\n")
            .await;
        program.hears(b"\"id\":1,\"value\":null").await;
        // Nor is a client that may come back told any.
        let mut program = Program::of(&agent);
        program
            .says(b"{\"hello\":{\"grace\":\"5s\"}}\n{\"join\":{\"group\":\"g\",\"bytes\":true,\"id\":2}}\n")
            .await;
        program.hears(b"leave `bytes` out").await;
    }
}
