//! Clients that come back: one session over several connections. Each connection begins where the former one
//! broke off. The protocol is in docs/agent.md ("Coming back").
//!
//! ```text
//!   lines of the program ─► accepted ─► obeyed ─► session ─► told ─► written ─► taken by the program
//!                           └ counted: `resumed`                     └──── sent: kept until `took`
//! ```
//! A connection may end at any byte. Then this holds:
//! - a line of the program is accepted whole or not at all, and in its order. `resumed` says how many lines
//!   were accepted, so the program sends exactly the others again;
//! - what the agent has written stays in `sent` until the program says that it took it; on a new connection
//!   the agent writes all of `sent` again, and then what is new;
//! - the command under way goes on, and so do the commands behind it: they do not belong to a connection.
//!
//! # What carries the lines
//! A connection is of JSON lines or a WebSocket ([`ends`]), each of which may follow the other: nothing here
//! depends on it, for a text message is a line. What a WebSocket has beside them is of that connection alone:
//! - bytes that its writer has taken, and its buffers hold, are in `sent` as if they were written. A line
//!   that one connection has carried in part is whole on the next;
//! - pings are answered at any time, also while nothing may be written. So `took` behind a ping is read;
//! - a binary message is no line. It does not count, and the error that answers it does. If it comes first,
//!   the `hello` behind it is not the first message.
//!
//! # What ends with what
//! | what goes | what happens |
//! |---|---|
//! | the connection | the session waits [`MAX_GRACE`] at most, and ends with that cause |
//! | the connection, before a welcome | the session ends: no program has its key |
//! | the connection, with a closing handshake | the same: only `leave` ends a client at once |
//! | the connection, in a line or a message | the same: that line was not said, or is told again |
//! | the connection, since it left something half sent | the same: the next connection is told why |
//! | the connection, unnoticed | a new one takes over at once, whatever carries it |
//! | the connection, by what is no WebSocket or too long | the session ends: its program is in error |
//! | the program | as the connection |
//! | the agent | the key is unknown to the next one: a new client |
//! | the connection, while it resumes | it alone: the client, and a former connection, are as they were |
//! | the connection, by a wrong count as it resumes | the same: it is told why, and ends at once |
//!
//! # Bounds
//! At most [`MAX_KEPT`] and a line are accepted and not obeyed yet; as much is sent and not taken. `took` is
//! not queued behind other lines, so a program that takes what it is told always gets on. A WebSocket has
//! 128 KiB and a line to write in its own buffers, and 16 KiB and a line that it reads.
//!
//! A connection that breaks gives its place at the node back, and its session stays. The connection that
//! follows has a place of its own and needs no second session. So a client comes back to a full node, too.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::BufRead as _;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon::clients::Departure;
use antiphon_api::blocks::{Reply, Span};
use antiphon_api::command::{Hello, Took};
use antiphon_api::{Command, Event};
use bytes::{Buf as _, BytesMut};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::ends::{self, Place, Reader, Said, Stop, Writer};
use super::lines::{may_have_bytes, unclear};
use super::{PART_WITHIN, READ_WITHIN, obey, parse, slow};
use crate::Hub;
use crate::hub::Session;
use crate::pipe::{Pipe, Text, pipe};

/// The longest time in which a client may come back. It is also the time after which a client that takes
/// nothing is out of its groups.
pub(crate) const MAX_GRACE: Duration = Duration::from_secs(10);
/// The bound of what was sent and not taken, and of lines that are accepted and not obeyed. A program keeps
/// at most as much that the agent has not confirmed, so all of that fits here and `took` is read behind it.
const MAX_KEPT: usize = 1 << 20;
/// The agent confirms a program's lines at the latest after this many.
const TELL_LINES: u64 = 256;
/// And so many bytes.
const TELL_BYTES: usize = 64 << 10;
/// How a line begins that does not count.
const TOOK: &[u8] = b"{\"event\":\"took\"";
/// A longer line is not looked at before its turn.
const MAX_TOOK_BYTES: usize = 64;

/// Clients that may come back, by their keys. A cheap handle.
#[derive(Debug, Clone, Default)]
pub(super) struct Resumable(Arc<Mutex<HashMap<String, mpsc::Sender<Request>>>>);

/// A connection that a client comes with, behind its first line.
pub(super) struct Arrival {
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) place: Place,
    pub(super) hello: Hello,
}

/// A connection that asks to carry a client on, and the way back for it if it is refused.
struct Request {
    arrival: Arrival,
    refused: oneshot::Sender<Arrival>,
}

/// What becomes of a connection that comes with a key, or without one.
enum HandedOver {
    /// It belongs to the client with this key.
    Taken,
    Refused(Arrival),
    /// No client has this key.
    Unknown(Arrival),
}

/// A key is good as long as this is there.
struct Registered {
    resumable: Resumable,
    key: String,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.resumable.keys().remove(&self.key);
    }
}

impl Resumable {
    fn keys(&self) -> MutexGuard<'_, HashMap<String, mpsc::Sender<Request>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self) -> Option<(Registered, mpsc::Receiver<Request>)> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).ok()?;
        let key = format!("{:032x}", u128::from_ne_bytes(bytes));
        let (sender, arrivals) = mpsc::channel(1);
        self.keys().insert(key.clone(), sender);
        let resumable = self.clone();
        Some((Registered { resumable, key }, arrivals))
    }

    /// Gives a connection to the client that it belongs to, if that client is there and has a use for it.
    async fn hand_over(&self, arrival: Arrival) -> HandedOver {
        let key = arrival.hello.resume.as_ref().map(|key| key.0.as_str());
        let found = key.and_then(|key| self.keys().get(key).cloned());
        let Some(client) = found else {
            return HandedOver::Unknown(arrival);
        };
        let (refused, answer) = oneshot::channel();
        if let Err(gone) = client.send(Request { arrival, refused }).await {
            return HandedOver::Unknown(gone.0.arrival);
        }
        // A client that refuses nothing drops the way back.
        answer.await.map_or(HandedOver::Taken, HandedOver::Refused)
    }
}

/// Whether the first line of a connection asks for time to come back.
pub(super) fn asks(line: &[u8]) -> Option<Hello> {
    match Command::parse(std::str::from_utf8(line).ok()?) {
        Ok(Command::Hello(hello)) => hello.grace.filter(is_granted).is_some().then_some(hello),
        _ => None,
    }
}

fn is_granted(grace: &Span) -> bool {
    (Duration::from_millis(1)..=MAX_GRACE).contains(&grace.0)
}

/// How many lines the program says that it took, if it says that.
fn took(line: &[u8]) -> Option<u64> {
    if line.len() > MAX_TOOK_BYTES || !line.windows(4).any(|word| word == b"took") {
        return None;
    }
    match Command::parse(std::str::from_utf8(line).ok()?) {
        Ok(Command::Took(Took { lines })) => Some(lines),
        _ => None,
    }
}

/// What was sent and not taken.
#[derive(Debug, Default)]
struct Sent {
    bytes: BytesMut,
    /// Lines before those.
    taken: u64,
}

impl Sent {
    /// Where the line behind so many begins. None: so many were not sent, or that line is forgotten.
    fn behind(&self, lines: u64) -> Option<usize> {
        let (mut rest, mut taken) = (&self.bytes[..], self.taken);
        while taken < lines {
            let counts = !rest.starts_with(TOOK);
            // Reading from memory does not fail.
            let skipped = rest.skip_until(b'\n').unwrap_or_default();
            let end = self.bytes.len() - rest.len();
            if skipped == 0 || self.bytes[end - 1] != b'\n' {
                return None;
            }
            taken += u64::from(counts);
        }
        (taken == lines).then(|| self.bytes.len() - rest.len())
    }

    /// Forgets what was taken. Less than is known says nothing new. Fails if so much was not sent.
    fn take(&mut self, lines: u64) -> Result<(), ()> {
        if lines > self.taken {
            let begin = self.behind(lines).ok_or(())?;
            self.bytes.advance(begin);
            self.taken = lines;
        }
        Ok(())
    }
}

/// What outlives a connection.
struct Kept {
    /// The program's lines on their way to the session.
    accepted: Pipe,
    /// How many went there.
    count: AtomicU64,
    sent: Mutex<Sent>,
    /// Some was taken.
    room: Notify,
}

/// How a connection ends.
enum Ended {
    /// The program may come back.
    Broken,
    /// The session ends with it.
    For(Departure),
}

impl Kept {
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, lines: u64) -> Result<(), ()> {
        let taken = self.sent().take(lines);
        self.room.notify_one();
        taken
    }

    async fn read(&self, reader: &mut Reader, session: &Session) -> Ended {
        loop {
            let mut line = match reader.next().await {
                Ok(Said::Line(line)) => line,
                Ok(Said::NoLine(reason)) => {
                    ends::tell(session, reason.to_owned()).await;
                    continue;
                }
                Err(Stop::Ended) => return Ended::Broken,
                Err(Stop::GaveWay(reason)) => {
                    ends::tell(session, reason).await;
                    return Ended::Broken;
                }
                Err(stop) => return Ended::For(stop.told(session).await),
            };
            match took(&line).map(|lines| self.take(lines)) {
                Some(Ok(())) => {}
                Some(Err(())) => {
                    return Ended::For(Departure::lost("it took lines that it was not told"));
                }
                None => {
                    line.push(b'\n');
                    self.accept(&line).await;
                }
            }
        }
    }

    /// If the future is dropped, the line was accepted and counted, or it was neither.
    async fn accept(&self, line: &[u8]) {
        let append = |text: &mut Vec<u8>| {
            text.extend_from_slice(line);
            self.count.fetch_add(1, Ordering::Relaxed);
            false
        };
        self.accepted.fill(append).await;
    }

    /// Writes `again`, then new text, until the text or the connection ends. If the future is dropped,
    /// another call goes on with the rest.
    async fn write(&self, writer: &mut Writer, again: &mut BytesMut, text: &mut Text) -> Ended {
        match self.try_write(writer, again, text).await {
            Err(departure) if departure == slow() => Ended::For(departure),
            Ok(()) | Err(_) => Ended::Broken,
        }
    }

    async fn try_write(
        &self,
        writer: &mut Writer,
        again: &mut BytesMut,
        text: &mut Text,
    ) -> Result<(), Departure> {
        if !again.is_empty() {
            while !again.is_empty() {
                let written = writer.write(again).await?;
                again.advance(written);
            }
            writer.flush().await?;
        }
        loop {
            if self.is_full() {
                // What this end holds back the program cannot take.
                writer.flush().await?;
                let room = async {
                    while self.is_full() {
                        self.room.notified().await;
                    }
                };
                let room = timeout(READ_WITHIN, writer.meanwhile(room)).await;
                room.map_err(|_| slow())??;
            }
            if !writer.meanwhile(text.ready()).await? {
                return Ok(());
            }
            let written = writer.write(text.left()).await?;
            self.sent().bytes.extend_from_slice(&text.left()[..written]);
            text.advance(written);
            if text.left().is_empty() {
                writer.flush().await?;
            }
        }
    }

    fn is_full(&self) -> bool {
        self.sent().bytes.len() >= MAX_KEPT
    }

    /// Welcomes a connection by which the client goes on, and gives it. None: the client stays where it is,
    /// and what it was sent is as it was.
    ///
    /// The caller reads nothing of the program meanwhile: the welcome says how many lines were accepted.
    async fn greet(&self, request: Request, session: &Session) -> Option<Arrival> {
        let Request { mut arrival, refused } = request;
        let hello = &arrival.hello;
        let lines = hello.lines.unwrap_or_default();
        if self.sent().behind(lines).is_none() {
            // Its own task has the time to part with it. If that is gone, so is the connection.
            let _ = refused.send(arrival);
            return None;
        }
        let welcome = Event::Reply(Reply {
            op: "hello".to_owned(),
            id: hello.id.clone(),
            ..session.welcome(Some(self.count.load(Ordering::Relaxed)))
        });
        let text = welcome.to_json() + "\n";
        let written = timeout(PART_WITHIN, arrival.writer.write_all(text.as_bytes())).await;
        if !matches!(written, Ok(Ok(()))) {
            return None;
        }
        // Not before the welcome is written: a connection that breaks in it must not cost the client lines
        // that only this connection said it took.
        self.sent().take(lines).ok()?;
        Some(arrival)
    }
}

/// Tells a connection that a client does not go on by it, and ends it.
async fn refuse(arrival: Arrival) {
    let error = Event::Error {
        reason:
            "this client said before that it took more lines, or was not told as many: say hello as a new one"
                .to_owned(),
        request: serde_json::Value::Null,
    };
    ends::refuse((arrival.reader, arrival.writer), &error).await;
}

/// Does what the program says, whatever becomes of its connections.
async fn obey_all(session: &Session, mut lines: Text) -> Departure {
    let (mut count, mut told, mut bytes) = (0, 0, 0);
    while lines.ready().await {
        let mut line = Vec::new();
        // Lines are whole here, and reading from memory does not fail.
        let _ = lines.left().read_until(b'\n', &mut line);
        lines.advance(line.len());
        let parsed = parse(&line);
        let is_unclear = parsed.is_err() && may_have_bytes(&line);
        if let ControlFlow::Break(departure) = obey(session, parsed).await {
            return departure;
        }
        if is_unclear {
            return unclear();
        }
        count += 1;
        bytes += line.len();
        if count >= told + TELL_LINES || bytes >= TELL_BYTES {
            session.tell(Event::Took { lines: count }).await;
            (told, bytes) = (count, 0);
        }
    }
    // The writing end of `lines` lives as long as this runs.
    std::future::pending().await
}

/// Serves a client that asked for time to come back by this line, over as many connections as it takes; or
/// gives the connection to the client that it belongs to.
pub(super) async fn serve(hub: &Hub, resumable: &Resumable, arrival: Arrival, line: &[u8]) {
    let mut arrival = match resumable.hand_over(arrival).await {
        HandedOver::Taken => return,
        HandedOver::Refused(arrival) => return refuse(arrival).await,
        HandedOver::Unknown(arrival) => arrival,
    };
    let Ok((session, mut text)) = hub.session_in_lines(false) else {
        return ends::refuse_full(hub, (arrival.reader, arrival.writer)).await;
    };
    let grace = arrival.hello.grace.map_or(MAX_GRACE, |grace| grace.0);
    let Some((registered, mut arrivals)) = resumable.register() else {
        session.ends_for(Departure::lost("the system gave its agent no entropy"));
        return;
    };
    session.may_resume(&registered.key);
    let (accepted, lines) = pipe(MAX_KEPT);
    let kept = Kept {
        accepted,
        count: AtomicU64::new(0),
        sent: Mutex::default(),
        room: Notify::new(),
    };
    kept.accept(&[line, b"\n"].concat()).await;
    let mut last = None;
    let departure = {
        let mut obeying = pin!(obey_all(&session, lines));
        'connections: loop {
            let (mut reader, mut writer, place) = (arrival.reader, arrival.writer, arrival.place);
            let mut again = kept.sent().bytes.clone();
            let ended = {
                // They outlive an attempt to take over that fails: a line or a limit of time that they are
                // in the middle of goes on.
                let mut reading = pin!(kept.read(&mut reader, &session));
                let mut writing = pin!(kept.write(&mut writer, &mut again, &mut text));
                loop {
                    tokio::select! {
                        departure = &mut obeying => break Ended::For(departure),
                        ended = &mut reading => break ended,
                        ended = &mut writing => break ended,
                        // The program has come by another connection: it knows better than this end whether
                        // the former one broke.
                        Some(request) = arrivals.recv() => {
                            if let Some(another) = kept.greet(request, &session).await {
                                arrival = another;
                                continue 'connections;
                            }
                        }
                    }
                }
            };
            if let Ended::For(departure) = ended {
                last = Some((reader, writer, place, again));
                break departure;
            }
            // A program that is still there learns it, and the next connection may have its place.
            ends::let_go(reader, writer, place);
            if !session.is_welcomed() {
                break Departure::lost("its connection ended");
            }
            let until = Instant::now() + grace;
            loop {
                let comes = tokio::select! {
                    departure = &mut obeying => break 'connections departure,
                    comes = timeout_at(until, arrivals.recv()) => comes,
                };
                let Ok(Some(request)) = comes else {
                    let cause = format!(
                        "its connection ended, and it did not come back within {}",
                        Span(grace)
                    );
                    break 'connections Departure::lost(cause);
                };
                if let Some(another) = kept.greet(request, &session).await {
                    arrival = another;
                    break;
                }
            }
        }
    };
    drop(registered);
    let reads_within = if departure == slow() {
        PART_WITHIN
    } else {
        READ_WITHIN
    };
    session.ends_for(departure);
    drop(session);
    // Nobody comes back for what is written from here on, so none of it is kept.
    if let Some((reader, writer, _place, again)) = last {
        ends::finish((reader, writer), &again, text, reads_within).await;
    }
}
