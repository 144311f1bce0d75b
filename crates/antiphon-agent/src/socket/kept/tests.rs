use std::collections::BTreeSet;

use antiphon::memory::MemoryNetwork;
use antiphon::{Cluster, Profile};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;
use crate::access::Access;
use crate::hub::MAX_SESSIONS;
use crate::socket::halves::Halves;
use crate::socket::http::{Beginning, Http};
use crate::socket::lines;

/// For what takes a moment, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// What carries a program's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    Lines,
    WebSocket,
}

use Carrier::{Lines, WebSocket};

/// A program's end of a connection.
enum Stream {
    Lines(BufReader<DuplexStream>),
    WebSocket(Box<WebSocketStream<DuplexStream>>),
}

impl Stream {
    async fn write(&mut self, line: &str) {
        // A connection that broke is noticed by reading.
        match self {
            Stream::Lines(stream) => _ = stream.write_all(format!("{line}\n").as_bytes()).await,
            Stream::WebSocket(socket) => _ = socket.send(Message::text(line)).await,
        }
    }

    /// Writes so many of the bytes that carry a line.
    async fn write_part(&mut self, line: &str, bytes: usize) {
        match self {
            Stream::Lines(stream) => _ = stream.write_all(&line.as_bytes()[..bytes]).await,
            Stream::WebSocket(socket) => {
                // A short text message, masked with zeros.
                assert!(line.len() < 126);
                let mut frame = vec![0x81, 0x80 | line.len() as u8, 0, 0, 0, 0];
                frame.extend_from_slice(line.as_bytes());
                let _ = socket.get_mut().write_all(&frame[..bytes]).await;
            }
        }
    }

    async fn ping(&mut self) {
        if let Stream::WebSocket(socket) = self {
            let _ = socket.send(Message::Ping(Bytes::from_static(b"there?"))).await;
        }
    }

    /// The next line; none if the connection has ended.
    async fn line(&mut self) -> Option<String> {
        match self {
            Stream::Lines(stream) => {
                let mut line = String::new();
                let read = stream.read_line(&mut line).await;
                (read.is_ok() && line.ends_with('\n')).then_some(line)
            }
            Stream::WebSocket(socket) => loop {
                match socket.next().await {
                    Some(Ok(Message::Text(text))) => return Some(text.to_string()),
                    Some(Ok(Message::Pong(_))) => {}
                    _ => return None,
                }
            },
        }
    }
}

/// A node, and where its programs come.
struct Agent {
    hub: Hub,
    resumable: Resumable,
    http: Http,
}

impl Agent {
    async fn start() -> Self {
        Self::with_room_for(MAX_SESSIONS).await
    }

    async fn with_room_for(sessions: usize) -> Self {
        let builder = Cluster::builder("kept").name("n1").bind("10.0.0.1:7400");
        let builder = builder.memory(&MemoryNetwork::new()).profile(Profile::local());
        let hub = Hub::of(builder.found().start().await.unwrap(), sessions);
        let resumable = Resumable::default();
        Self {
            http: Http::new(hub.clone(), resumable.clone(), Halves::default()),
            hub,
            resumable,
        }
    }

    /// Waits until it has so few sessions.
    async fn only(&self, sessions: usize, within: Duration) {
        let falls = async {
            while self.hub.sessions() > sessions {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(within, falls).await.expect("sessions end");
    }

    /// A new connection, of so many bytes each way.
    async fn connect(&self, carrier: Carrier, bytes: usize) -> Stream {
        let (mut near, far) = tokio::io::duplex(bytes);
        let visitor = Access::default().local(self.hub.meters().clone());
        if carrier == Lines {
            let (hub, resumable) = (self.hub.clone(), self.resumable.clone());
            let connected = hub.meters().connected(crate::metrics::Carrier::Lines);
            let place = Place::new(Arc::new(visitor), connected);
            let ends = ends::of_lines(far, b"", &Halves::default());
            tokio::spawn(async move { lines::serve(ends, place, &hub, &resumable).await });
            return Stream::Lines(BufReader::new(near));
        }
        tokio::spawn(
            self.http
                .clone()
                .serve(far, Vec::new(), Beginning::Request, visitor),
        );
        let request = "GET /v1/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        near.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(SOON, near.read_u8()).await.unwrap().unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"));
        let socket = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
        Stream::WebSocket(Box::new(socket))
    }
}

/// A program that comes back.
struct Program<'a> {
    agent: &'a Agent,
    /// What it comes by next.
    carrier: Carrier,
    stream: Stream,
    /// What it said and the agent has not said that it took, with the number of the line before.
    said: (u64, Vec<String>),
    heard: Vec<Value>,
    key: Option<String>,
    grace: &'static str,
}

impl<'a> Program<'a> {
    async fn connect(agent: &'a Agent, carrier: Carrier, grace: &'static str) -> Self {
        let mut program = Self {
            agent,
            carrier,
            stream: agent.connect(carrier, 64 << 10).await,
            said: (0, Vec::new()),
            heard: Vec::new(),
            key: None,
            grace,
        };
        program
            .say(json!({"hello": {"name": "ann", "grace": grace, "id": "hello"}}))
            .await;
        let welcome = program.hear().await["welcome"].clone();
        assert_eq!(welcome["client"], "ann");
        assert_eq!(welcome.get("resumed"), None);
        program.key = Some(welcome["resume"].as_str().unwrap().to_owned());
        program
    }

    async fn write(&mut self, line: &str) {
        self.stream.write(line).await;
    }

    async fn say(&mut self, line: Value) {
        self.said.1.push(line.to_string());
        self.write(&line.to_string()).await;
    }

    /// Says that it took all that it heard.
    async fn take(&mut self) {
        let took = json!({"took": {"lines": self.heard.len()}});
        self.write(&took.to_string()).await;
    }

    /// The next line that counts.
    async fn hear(&mut self) -> Value {
        loop {
            let line = self.line().await.expect("a connection that goes on");
            if line["event"] == "took" {
                let took = line["lines"].as_u64().unwrap();
                self.forget(took);
            } else {
                self.heard.push(line.clone());
                return line;
            }
        }
    }

    async fn line(&mut self) -> Option<Value> {
        let line = timeout(SOON, self.stream.line()).await.unwrap();
        line.map(|line| serde_json::from_str(&line).unwrap())
    }

    fn forget(&mut self, took: u64) {
        let (before, lines) = &mut self.said;
        lines.drain(..usize::try_from(took.saturating_sub(*before)).unwrap());
        *before = took.max(*before);
    }

    async fn breaks(&mut self, bytes: usize) {
        self.stream = self.agent.connect(self.carrier, bytes).await;
    }

    /// A connection that asks to go on behind so many lines, beside the one that is there.
    async fn attempt(&self, lines: usize, bytes: usize) -> Stream {
        let mut stream = self.agent.connect(self.carrier, bytes).await;
        let hello = json!({"hello": {"name": "ann", "grace": self.grace, "resume": self.key, "lines": lines, "id": 0}});
        stream.write(&hello.to_string()).await;
        stream
    }

    /// An attempt that is refused. It is told so, and its connection ends at once.
    async fn is_refused(&self, lines: usize) {
        let mut stream = self.attempt(lines, 4096).await;
        let error = timeout(SOON, stream.line()).await.unwrap().unwrap();
        assert!(error.contains("took more lines"), "{error}");
        // Sooner than the grace of 10 s.
        assert_eq!(timeout(Duration::from_secs(5), stream.line()).await, Ok(None));
    }

    /// A new connection, whatever became of the one before. Gives its welcome.
    async fn resume(&mut self, bytes: usize) -> Value {
        self.stream = self.attempt(self.heard.len(), bytes).await;
        let welcome = self.line().await.unwrap();
        if let Some(resumed) = welcome["welcome"]["resumed"].as_u64() {
            self.forget(resumed);
            for line in self.said.1.clone() {
                self.write(&line).await;
            }
        }
        welcome
    }
}

/// A draw that is the same each time.
fn draw(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) as usize
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_byte_a_connection_breaks_at_nothing_is_lost_and_nothing_is_done_twice() {
    const OPERATIONS: usize = 600;
    let agent = Agent::start().await;
    for seed in 0..12 {
        let mut state = seed * 7919 + 1;
        // Those, or both in turn.
        let carriers: &[Carrier] = [&[Lines][..], &[WebSocket], &[Lines, WebSocket]][seed as usize % 3];
        let mut program = Program::connect(&agent, carriers[0], "10s").await;
        let counter = format!("c{seed}");
        let (mut replies, mut next, mut breaks) = (vec![0; OPERATIONS], 0, 0);
        while replies.contains(&0) {
            // As much as goes through the pipe without an answer being read.
            while next < OPERATIONS && !draw(&mut state).is_multiple_of(8) {
                program
                    .say(json!({"add": {"counter": counter, "by": 1, "id": next}}))
                    .await;
                next += 1;
            }
            if draw(&mut state).is_multiple_of(16) {
                program.stream.ping().await;
            }
            if draw(&mut state).is_multiple_of(6) {
                // Some bytes of the next line are on their way in each direction.
                let part = draw(&mut state) % 20;
                let line = json!({"add": {"counter": counter, "by": 1, "id": next}}).to_string();
                program.stream.write_part(&line, part).await;
                let heard = program.heard.len();
                program.carrier = carriers[draw(&mut state) % carriers.len()];
                let welcome = program.resume(200 + draw(&mut state) % 60_000).await;
                assert!(
                    welcome["welcome"]["resumed"].is_u64(),
                    "seed {seed}, {heard}: {welcome}"
                );
                breaks += 1;
            }
            if replies.iter().sum::<usize>() < next {
                let reply = program.hear().await;
                replies[usize::try_from(reply["id"].as_u64().unwrap()).unwrap()] += 1;
                if program.heard.len().is_multiple_of(50) {
                    program.take().await;
                }
            }
        }
        assert!(breaks > 10, "seed {seed}");
        assert!(replies.iter().all(|count| *count == 1), "seed {seed}");
        program
            .say(json!({"get": {"counter": counter, "id": "sum"}}))
            .await;
        program
            .say(json!({"add": {"counter": counter, "by": 0, "id": "sum"}}))
            .await;
        let sum = loop {
            let line = program.hear().await;
            if line["op"] == "add" {
                break line;
            }
        };
        assert_eq!(sum["value"], OPERATIONS, "seed {seed}");
        program.say(json!({"leave": {}})).await;
        while program.line().await.is_some() {}
    }
    agent.only(0, SOON).await;
    assert!(agent.resumable.keys().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_come_back_goes_with_that_cause_and_its_key_is_of_no_use() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let (watcher, mut events) = agent.hub.session().unwrap();
        let mut program = Program::connect(&agent, carrier, "300ms").await;
        let name = watcher.name();
        watcher
            .obey(Command::parse(r#"{"join":{"group":"g"}}"#).unwrap())
            .await;
        program.say(json!({"join": {"group": "g"}})).await;
        while program.hear().await["event"] != "view" {}
        program.breaks(4096).await;
        let cause = loop {
            if let Event::View(view) = timeout(SOON, events.next()).await.unwrap().unwrap()
                && view.crashed == ["n1/ann"]
            {
                assert_eq!(view.members, [format!("n1/{name}")]);
                break view.causes["n1/ann"].clone();
            }
        };
        assert_eq!(
            cause,
            "its connection ended, and it did not come back within 300ms"
        );
        // Its name is free when it is out of its groups: the watcher stays.
        agent.only(1, SOON).await;
        let old = program.key.clone();
        let welcome = program.resume(4096).await["welcome"].clone();
        assert_eq!(welcome.get("resumed"), None, "{welcome}");
        assert_ne!(welcome["resume"].as_str().map(str::to_owned), old);
        assert_eq!(welcome["client"], "ann");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_takes_over_from_one_that_is_still_there() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let mut program = Program::connect(&agent, carrier, "5s").await;
        program.say(json!({"join": {"group": "g", "id": 1}})).await;
        while program.hear().await["event"] != "view" {}
        let nothing = Stream::Lines(BufReader::new(tokio::io::duplex(1).0));
        let mut before = std::mem::replace(&mut program.stream, nothing);
        // By whatever it did not come before.
        program.carrier = if carrier == Lines { WebSocket } else { Lines };
        assert_eq!(program.resume(4096).await["welcome"]["resumed"], 2);
        assert_eq!(timeout(SOON, before.line()).await.unwrap(), None);
        program
            .say(json!({"send": {"group": "g", "payload": "x", "id": 2}}))
            .await;
        let message = program.hear().await;
        assert!(message["payload"] == "x" || message["id"] == 2, "{message}");
        agent.only(1, SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_comes_back_to_a_node_that_has_room_for_no_other() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::with_room_for(1).await;
        let mut program = Program::connect(&agent, carrier, "10s").await;
        for hello in [r#"{"hello":{"grace":"10s","id":0}}"#, r#"{"hello":{"id":0}}"#] {
            let mut other = agent.connect(carrier, 4096).await;
            other.write(hello).await;
            let refused = timeout(SOON, other.line()).await.unwrap().unwrap();
            assert!(refused.starts_with(r#"{"event":"refused""#), "{refused}");
            assert_eq!(timeout(SOON, other.line()).await, Ok(None));
        }
        assert_eq!(program.resume(4096).await["welcome"]["resumed"], 1);
        program.say(json!({"members": {"id": 1}})).await;
        assert_eq!(program.hear().await["id"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_has_left_reads_all_that_it_was_told() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let mut program = Program::connect(&agent, carrier, "10s").await;
        let value = "x".repeat(100_000);
        let put = |id: &str| json!({"put": {"map": "m", "key": "k", "value": value, "id": id}});
        program.say(put("first")).await;
        program.hear().await;
        // More than the agent keeps of what was not taken.
        for id in 0..12 {
            program
                .say(json!({"get": {"map": "m", "key": "k", "id": id}}))
                .await;
        }
        program.say(put("last")).await;
        program.say(json!({"leave": {}})).await;
        let (mut replies, mut last) = (0, false);
        while let Some(line) = program.line().await {
            replies += usize::from(line["op"] == "get");
            last |= line["id"] == "last";
            // In all it reads for longer than a connection has to part.
            tokio::time::sleep(PART_WITHIN / 8).await;
        }
        assert!(replies == 12 && last, "{replies} {last}");
        agent.only(0, SOON).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_told() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        // A program that takes what it was not told is in error, and goes.
        let mut program = Program::connect(&agent, carrier, "5s").await;
        program.write(r#"{"took":{"lines":2}}"#).await;
        assert_eq!(program.line().await, None);
        assert_eq!(agent.hub.sessions(), 0);
        // One that comes back with such a number does not come back so, but may with the right one.
        let mut program = Program::connect(&agent, carrier, "10s").await;
        program.heard.push(Value::Null);
        let error = program.resume(4096).await;
        assert!(
            error["reason"].as_str().unwrap().contains("took more lines"),
            "{error}"
        );
        // Sooner than its grace.
        let ended = timeout(Duration::from_secs(5), program.line()).await;
        assert_eq!(ended, Ok(None));
        program.heard.pop();
        assert_eq!(program.resume(4096).await["welcome"]["resumed"], 1);
        // A time that is too long, a later hello, and `took` where it means nothing.
        for first in [
            r#"{"hello":{"grace":"11s","id":1}}"#,
            r#"{"hello":{"resume":"00","id":1}}"#,
        ] {
            let mut stream = agent.connect(carrier, 4096).await;
            stream.write(first).await;
            stream.write(r#"{"took":{"lines":1}}"#).await;
            let line = stream.line().await.unwrap();
            assert!(
                line.contains("\"refused\"") && line.contains("up to 10s"),
                "{line}"
            );
            let line = stream.line().await.unwrap();
            assert!(line.contains("ask for `grace`"), "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_fails_costs_the_connection_that_is_there_nothing() {
    const LINES: usize = 200;
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let mut program = Program::connect(&agent, carrier, "10s").await;
        let value = "x".repeat(1000);
        program
            .say(json!({"put": {"map": "m", "key": "k", "value": value, "id": "put"}}))
            .await;
        program.hear().await;
        for id in 0..LINES {
            program
                .say(json!({"get": {"map": "m", "key": "k", "id": id}}))
                .await;
            assert_eq!(program.hear().await["id"], id);
        }
        // It is told all of that again, on a connection that takes little at once. Attempts come in the
        // middle of these lines.
        program.heard.truncate(2);
        assert!(program.resume(300).await["welcome"]["resumed"].is_u64());
        // One does not read its welcome.
        let mut stalled = None;
        for id in 0..LINES {
            if id.is_multiple_of(20) {
                program.is_refused(2 + LINES + 1000).await;
                // It breaks in its welcome, which is longer than what it takes at once.
                drop(program.attempt(program.heard.len(), 64).await);
            }
            if id == 10 {
                stalled = Some(program.attempt(program.heard.len(), 64).await);
            }
            assert_eq!(program.hear().await["id"], id);
            program
                .say(json!({"add": {"counter": "c", "by": 1, "id": LINES + id}}))
                .await;
        }
        let mut sum = 0;
        for _ in 0..LINES {
            let reply = program.hear().await;
            assert_eq!(reply["op"], "add", "{reply}");
            sum = sum.max(reply["value"].as_u64().unwrap());
        }
        assert_eq!(sum, LINES as u64);
        assert_eq!(timeout(SOON, stalled.unwrap().line()).await, Ok(None));
        // The attempts said that they took lines, and none of them was welcome: nothing was forgotten.
        program.heard.truncate(2);
        assert!(program.resume(4096).await["welcome"]["resumed"].is_u64());
        assert_eq!(program.hear().await["id"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn took_with_less_than_is_known_says_nothing_new() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let mut program = Program::connect(&agent, carrier, "10s").await;
        for id in 0..3 {
            program.say(json!({"members": {"id": id}})).await;
            assert_eq!(program.hear().await["id"], id);
        }
        for lines in [3, 3, 2, 0] {
            program
                .write(&json!({"took": {"lines": lines}}).to_string())
                .await;
        }
        program.say(json!({"members": {"id": 3}})).await;
        assert_eq!(program.hear().await["id"], 3);
        // Lines that were taken cannot be told again.
        program.is_refused(2).await;
        program.heard.truncate(3);
        assert_eq!(program.resume(4096).await["welcome"]["resumed"], 5);
        assert_eq!(program.hear().await["id"], 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_taken_is_kept_up_to_a_bound_and_sent_again_whole() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let mut program = Program::connect(&agent, carrier, "10s").await;
        let value = "x".repeat(100_000);
        program
            .say(json!({"put": {"map": "m", "key": "k", "value": value, "id": "put"}}))
            .await;
        program.hear().await;
        for id in 0..40 {
            program
                .say(json!({"get": {"map": "m", "key": "k", "id": id}}))
                .await;
        }
        // It reads and does not say so: the agent stops.
        let (mut read, mut lines) = (0, 2);
        while let Ok(line) = timeout(Duration::from_millis(500), program.stream.line()).await {
            let line = line.expect("it goes on");
            read += line.len();
            lines += usize::from(!line.as_bytes().starts_with(TOOK));
        }
        // Less the line that is cut.
        let bounds = MAX_KEPT - value.len() - 100..MAX_KEPT + (300 << 10);
        assert!(bounds.contains(&read), "{read}");
        // Pings are answered while nothing may be written, so that what is behind them is read.
        if carrier == WebSocket {
            for _ in 0..5 {
                program.stream.ping().await;
            }
            program.heard.resize(lines, Value::Null);
            program.take().await;
            assert!(program.hear().await["value"].is_string());
        }
        // It forgets all of that, and is told it again.
        assert!(program.resume(4096).await["welcome"]["resumed"].is_u64());
        let mut got = program.heard.len() - 2;
        while got < 40 {
            let line = program.hear().await;
            assert_eq!(
                line["value"].as_str().unwrap().len(),
                value.len(),
                "{}",
                line["id"]
            );
            got += 1;
            program.take().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_says_much_before_it_reads_gets_on() {
    const LINES: u64 = 8000;
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let mut program = Program::connect(&agent, carrier, "10s").await;
        let put = json!({"put": {"map": "m", "key": "k", "value": "x".repeat(2000), "id": "put"}});
        program.say(put).await;
        program.hear().await;
        // As much as it may keep; the replies are far more than the agent keeps.
        let line = |id| {
            format!(
                "{:120}",
                json!({"get": {"map": "m", "key": "k", "id": id}}).to_string()
            )
        };
        let lines: Vec<String> = (0..LINES).map(line).collect();
        assert!(lines.iter().map(|line| line.len() + 1).sum::<usize>() < MAX_KEPT);
        program.said.1.extend(lines.iter().cloned());
        let all = async {
            for line in &lines {
                program.stream.write(line).await;
            }
        };
        timeout(SOON, all)
            .await
            .expect("all is read before anything is taken");
        let mut replied = BTreeSet::new();
        for count in 0..LINES {
            let reply = program.hear().await;
            assert!(replied.insert(reply["id"].as_u64().unwrap()), "{reply}");
            if count.is_multiple_of(50) {
                program.take().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_welcome_is_not_waited_for() {
    for carrier in [Lines, WebSocket] {
        let agent = Agent::start().await;
        let ann = Program::connect(&agent, carrier, "10s").await;
        let mut other = agent.connect(carrier, 4096).await;
        other
            .write(r#"{"hello":{"name":"ann","grace":"10s","id":0}}"#)
            .await;
        let line = other.line().await.unwrap();
        assert!(line.contains("\"refused\""), "{line}");
        drop(other);
        // Sooner than its grace.
        agent.only(1, Duration::from_secs(8)).await;
        drop(ann);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_a_line_and_nothing_else_of_a_websocket_counts() {
    let agent = Agent::start().await;
    let mut program = Program::connect(&agent, WebSocket, "10s").await;
    let send = async |program: &mut Program<'_>, message| {
        let Stream::WebSocket(socket) = &mut program.stream else {
            unreachable!("it came by one")
        };
        socket.send(message).await.unwrap();
    };
    // One line, whatever white space it has; none; no line, which is told.
    let get = "{\"get\":\n{\"map\":\"m\",\r\n\"key\":\"k\",\"id\":1}}\n";
    program.said.1.push(get.to_owned());
    send(&mut program, Message::text(get)).await;
    assert_eq!(program.hear().await["id"], 1);
    send(&mut program, Message::text(" \n ")).await;
    send(&mut program, Message::binary(get.as_bytes().to_vec())).await;
    let error = program.hear().await;
    assert_eq!(error["reason"], "a command is a text message");
    // Two lines were said, and three were told. A closing handshake changes nothing.
    send(&mut program, Message::Close(None)).await;
    assert_eq!(program.line().await, None);
    assert_eq!(program.resume(4096).await["welcome"]["resumed"], 2);
    send(&mut program, Message::text("{\"leave\":{}}")).await;
    assert_eq!(program.line().await, None);
    agent.only(0, SOON).await;

    // Behind something else `hello` is not the first message.
    program.breaks(4096).await;
    for _ in 0..5 {
        program.stream.ping().await;
    }
    send(&mut program, Message::binary(vec![1])).await;
    assert_eq!(
        program.line().await.unwrap()["reason"],
        "a command is a text message"
    );
    program.write(r#"{"hello":{"grace":"5s","id":1}}"#).await;
    let refused = program.line().await.unwrap().to_string();
    assert!(refused.contains("the first message of a WebSocket"), "{refused}");
    // What is no WebSocket ends a client for good.
    let mut program = Program::connect(&agent, WebSocket, "10s").await;
    let Stream::WebSocket(socket) = &mut program.stream else {
        unreachable!("it came by one")
    };
    socket.get_mut().write_all(&[0xff; 100]).await.unwrap();
    agent.only(1, Duration::from_secs(8)).await;
    assert_eq!(program.resume(4096).await["welcome"].get("resumed"), None);
}

#[test]
fn sent_lines_are_forgotten_in_whole_and_only_once() {
    let mut sent = Sent::default();
    let took = Event::Took { lines: 7 }.to_json();
    assert!(took.as_bytes().starts_with(TOOK));
    sent.bytes
        .extend_from_slice(format!("one\n{took}\ntwo\n{took}\nthr").as_bytes());
    assert_eq!(sent.take(3), Err(()));
    assert_eq!(sent.take(0), Ok(()));
    assert_eq!(sent.take(1), Ok(()));
    // Less than is known says nothing new, and cannot be told again.
    assert_eq!(sent.take(0), Ok(()));
    assert_eq!(sent.behind(0), None);
    assert_eq!(sent.behind(1), Some(0));
    assert_eq!(sent.bytes, format!("{took}\ntwo\n{took}\nthr"));
    assert_eq!(sent.take(2), Ok(()));
    assert_eq!(sent.bytes, format!("{took}\nthr"));
    assert_eq!(sent.take(3), Err(()));
    sent.bytes.extend_from_slice(b"ee\n");
    assert_eq!(sent.take(3), Ok(()));
    assert!(sent.bytes.is_empty());
}
