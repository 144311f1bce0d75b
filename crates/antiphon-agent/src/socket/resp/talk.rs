//! The reading of a connection: commands in turn, each begun when there is room for it.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use antiphon::clients::Departure;
use antiphon_api::Command;
use antiphon_api::blocks::{Id, Reply};
use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep_until};

use super::auth::Gate;
use super::decode::{Decoder, READ_BYTES};
use super::encode::Version;
use super::said::{Role, Said};
use super::shape::Shape;
use super::table::{self, Row, Verb};
use super::{PART_WITHIN, Shared};
use crate::Hub;
use crate::blocks::is_write;
use crate::hub::Session;
use crate::socket::counted::HalfSaid;
use crate::socket::hand::Hand;

/// What an unknown command's error shows of it.
const SHOWN_BYTES: usize = 128;

/// What comes from the program.
pub(super) struct Input {
    pub(super) reader: Hand,
    pub(super) half_said: HalfSaid,
    pub(super) decoder: Decoder,
    /// Since when nothing more comes.
    ended: Option<Instant>,
    /// The present command has read this node's copy of a map.
    pub(super) read_here: bool,
}

/// How a session of the connection ends.
#[derive(Debug)]
pub(super) enum End {
    Left(Departure),
    Reset,
}

/// Why a command goes no further.
#[derive(Debug)]
pub(super) enum Stop {
    /// It is replied to with this error.
    Error(Cow<'static, str>),
    End(End),
}

impl Stop {
    pub(super) fn error<T>(text: impl Into<Cow<'static, str>>) -> Result<T, Self> {
        Err(Stop::Error(text.into()))
    }
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Stop::End(end)
    }
}

impl Input {
    pub(super) fn new(reader: Hand, half_said: HalfSaid, first: &[u8]) -> Self {
        let mut decoder = Decoder::default();
        half_said.whole(first.len());
        decoder.buffer().extend_from_slice(first);
        Self {
            reader,
            half_said,
            decoder,
            ended: None,
            read_here: false,
        }
    }

    /// Reads something; fails when nothing more comes.
    pub(super) async fn read(&mut self) -> Result<(), ()> {
        match self.reader.read_buf(self.decoder.buffer()).await {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => {
                self.ended = Some(Instant::now());
                Err(())
            }
        }
    }

    /// The same while nothing else is done: the rest of a command that is half said is not waited for without
    /// a bound.
    pub(super) async fn read_on(&mut self) {
        let read = self.reader.read_buf(self.decoder.buffer());
        if !matches!(self.half_said.rest(read).await, Some(Ok(1..))) {
            self.ended = Some(Instant::now());
        }
    }

    /// Does something that may take long, and notices meanwhile when the program goes: then the work gets a
    /// little more time.
    pub(super) async fn patient<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        let mut work = pin!(work);
        let hand = self.reader.clone();
        loop {
            let until = self.ended.map(|ended| ended + PART_WITHIN);
            let read_on = until.is_none() && self.decoder.waiting() < READ_BYTES;
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                _ = self.read(), if read_on => {}
                // So much is read ahead that the end would not be read.
                () = hand.ended(), if until.is_none() && !read_on => self.ended = Some(Instant::now()),
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => return Err(gone()),
            }
        }
    }
}

fn gone() -> End {
    End::Left(Departure::lost("its connection ended"))
}

/// A connection's session, and what it has said of itself.
pub(super) struct Talk<'a> {
    pub(super) hub: &'a Hub,
    pub(super) session: &'a Session,
    pub(super) shared: &'a Shared,
    pub(super) number: u64,
    /// As `CLIENT SETNAME` has it.
    pub(super) name: String,
    pub(super) library: [String; 2],
    pub(super) database: u8,
    /// The map of that database.
    pub(super) map: String,
    pub(super) gate: Gate<'a>,
}

impl<'a> Talk<'a> {
    pub(super) fn new(hub: &'a Hub, session: &'a Session, shared: &'a Shared, gate: Gate<'a>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            hub,
            session,
            shared,
            number: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            name: String::new(),
            library: Default::default(),
            database: 0,
            map: super::redis::map_of(0),
            gate,
        }
    }

    /// Reads commands and has each begin, until the program or its session is over.
    pub(super) async fn run(&mut self, input: &mut Input) -> End {
        loop {
            let command = match input.decoder.next() {
                Ok(Some(command)) => {
                    input.half_said.whole(input.decoder.waiting());
                    command
                }
                Ok(None) if input.ended.is_some() => {
                    let alone = input.patient(self.alone()).await;
                    if let Some(reason) = input.half_said.gave_way() {
                        self.shared.said().ready(|to| to.error(&format!("ERR {reason}")));
                        return End::Left(Departure::lost("it left a command half sent"));
                    }
                    return alone.err().unwrap_or_else(gone);
                }
                Ok(None) => {
                    if input.decoder.held() == 0 {
                        // Commands without a word are none, and nothing is half said.
                        input.half_said.whole(0);
                    }
                    // What was said so far is answered first.
                    self.shared.written.notify_one();
                    if let Err(end) = self.read_on(input).await {
                        return end;
                    }
                    continue;
                }
                Err(broken) => {
                    let _ = input.patient(self.alone()).await;
                    let text = format!("ERR Protocol error: {}", broken.0);
                    self.shared.said().ready(|to| to.error(&text));
                    return End::Left(Departure::lost("it sent what is no RESP"));
                }
            };
            if let Err(end) = self.obey(input, &command).await {
                return end;
            }
        }
    }

    async fn obey(&mut self, input: &mut Input, words: &[Bytes]) -> Result<(), End> {
        self.count(words)?;
        let has_room = |said: &Said| said.window.has_room(said.out.len());
        if !has_room(&self.shared.said()) {
            input.patient(self.until(has_room)).await?;
        }
        let done = match self.admit(words) {
            Ok(row) => self.dispatch(input, row.verb, words).await,
            Err(error) => Err(Stop::Error(error)),
        };
        if std::mem::take(&mut input.read_here) {
            self.hub.meters().read_here();
        }
        match done {
            Ok(()) => Ok(()),
            Err(Stop::Error(text)) => {
                self.shared.said().ready(|to| to.error(&text));
                Ok(())
            }
            Err(Stop::End(end)) => Err(end),
        }
    }

    /// Finds the command, or says why it cannot be said.
    fn admit(&self, words: &[Bytes]) -> Result<&'static Row, Cow<'static, str>> {
        let row = table::find(&words[0]);
        self.gate.lets(row.map(|row| row.verb))?;
        let Some(row) = row else {
            return Err(unknown(words).into());
        };
        if !row.takes(words.len()) {
            return Err(format!("ERR wrong number of arguments for '{}' command", row.name).into());
        }
        if !row.verb.is_for_subscribers() && self.hears_only() {
            return Err(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                row.name
            )
            .into());
        }
        Ok(row)
    }

    /// It is subscribed to something, in RESP2.
    pub(super) fn hears_only(&self) -> bool {
        let said = self.shared.said();
        said.version == Version::Two && said.groups.values().any(|place| place.role == Role::Subscriber)
    }

    async fn dispatch(&mut self, input: &mut Input, verb: Verb, words: &[Bytes]) -> Result<(), Stop> {
        let words = &words[1..];
        match verb {
            Verb::Get => self.get(input, words).await,
            Verb::Set => self.set(input, words).await,
            Verb::Incr => self.add(input, &words[0], 1).await,
            Verb::Decr => self.add(input, &words[0], -1).await,
            Verb::IncrBy => {
                self.add(input, &words[0], super::redis::integer(&words[1])?)
                    .await
            }
            Verb::DecrBy => match super::redis::integer(&words[1])?.checked_neg() {
                Some(by) => self.add(input, &words[0], by).await,
                None => Stop::error("ERR decrement would overflow"),
            },
            Verb::Del => self.del(input, words).await,
            Verb::Exists => self.exists(input, words).await,
            Verb::MGet => self.mget(input, words).await,
            Verb::GetDel => self.getdel(input, words).await,
            Verb::SetNx => self.setnx(input, words).await,
            Verb::SetEx => self.setex(input, words, 1000, "setex").await,
            Verb::PSetEx => self.setex(input, words, 1, "psetex").await,
            Verb::Ping => self.ping(words),
            Verb::Echo => self.ready(|to| to.bulk(&words[0])),
            Verb::Wait => self.wait(input, words).await,
            Verb::Hello => self.hello(input, words).await,
            Verb::Auth => self.auth(input, words).await,
            Verb::Select => self.select(words),
            Verb::Client => self.client(words),
            Verb::Command => self.command(words),
            Verb::Config => self.config(words),
            Verb::Info => self.info(words),
            Verb::Quit => {
                input.patient(self.alone()).await?;
                self.ready(|to| to.simple("OK"))?;
                Err(End::Left(Departure::Left).into())
            }
            Verb::Reset => {
                input.patient(self.alone()).await?;
                Err(End::Reset.into())
            }
            Verb::Publish => self.publish(input, words).await,
            Verb::Subscribe => self.subscribe(input, words).await,
            Verb::Unsubscribe => self.unsubscribe(input, words).await,
            Verb::ApJoin => self.ap_join(input, words).await,
            Verb::ApLeave => self.ap_leave(input, words).await,
            _ => self.ours(input, verb, words).await,
        }
    }

    /// A reply that is known at once.
    pub(super) fn ready(&self, write: impl FnOnce(&mut super::encode::Encoder<'_>)) -> Result<(), Stop> {
        self.shared.said().ready(write);
        Ok(())
    }

    /// Waits until this holds.
    pub(super) async fn until(&self, holds: impl Fn(&Said) -> bool) {
        while !holds(&self.shared.said()) {
            self.shared.written.notify_one();
            self.shared.changed.notified().await;
        }
    }

    /// Waits until all commands before this one are replied to.
    pub(super) async fn alone(&self) {
        self.shared.written.notify_one();
        self.until(|said| said.window.is_empty()).await;
    }

    /// Begins an operation, which may write to this key; its reply has this shape.
    pub(super) async fn begin(
        &self,
        input: &mut Input,
        shape: Shape,
        writes: Option<u64>,
        command: impl FnOnce(Option<Id>) -> Command,
    ) -> Result<(), Stop> {
        let id = {
            let mut said = self.shared.said();
            let version = said.version;
            said.window.begin(shape, version, 1, writes.into_iter().collect())
        };
        self.carry_out(input, id, command(Some(Id::Number(id)))).await
    }

    /// Begins a write at once if that can be; else has the session obey. If the command makes no sense, that
    /// is its reply.
    pub(super) async fn carry_out(&self, input: &mut Input, id: u64, command: Command) -> Result<(), Stop> {
        if is_write(&command) {
            let begun = {
                let mut said = self.shared.said();
                let begun = said.may_begin().then(|| self.session.begin(&command)).flatten();
                begun.map(|begun| said.began(id, begun))
            };
            if begun.is_some() {
                return Ok(());
            }
            input.patient(self.until(|said| !said.has_begun())).await?;
            self.shared.said().queue(id);
        }
        // It may wait, and what is known by then does not wait with it.
        self.shared.written.notify_one();
        if let Err(reason) = input.patient(self.session.obey_or(command)).await? {
            let said = &mut *self.shared.said();
            said.window
                .failed(id, &format!("REFUSED {reason}"), &mut said.out);
        }
        Ok(())
    }

    /// An operation for which the command itself waits; returns its reply.
    pub(super) async fn ask(
        &self,
        input: &mut Input,
        command: impl FnOnce(Option<Id>) -> Command,
    ) -> Result<Reply, Stop> {
        let (id, replied) = self.shared.said().ask();
        self.shared.written.notify_one();
        let asked = async {
            match self.session.obey_or(command(Some(Id::Number(id)))).await {
                // The session is not over: the reply comes.
                Ok(()) => Ok(replied.await.unwrap_or_default()),
                Err(reason) => Err(reason),
            }
        };
        match input.patient(asked).await? {
            Ok(reply) => Ok(reply),
            Err(reason) => Stop::error(format!("REFUSED {reason}")),
        }
    }
}

/// As Redis says it.
fn unknown(words: &[Bytes]) -> String {
    let shown =
        |word: &[u8], most: usize| String::from_utf8_lossy(&word[..word.len().min(most)]).into_owned();
    let mut arguments = String::new();
    for word in &words[1..] {
        if arguments.len() >= SHOWN_BYTES {
            break;
        }
        arguments += &format!("'{}' ", shown(word, SHOWN_BYTES - arguments.len()));
    }
    let name = shown(&words[0], SHOWN_BYTES);
    format!("ERR unknown command '{name}', with args beginning with: {arguments}")
}
