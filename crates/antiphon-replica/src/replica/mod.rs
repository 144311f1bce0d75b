//! One member's copy of a replicated machine.
//!
//! ```text
//!              first view                 offer              all chunks          own `Synced` delivered
//!  Outside ──────────────► Waiting ─────────────► Receiving ──────────► CatchingUp ────────────► Serving
//!     │ founder             ▲   ▲ │ `Lost`           │ source gone                                │ own digest
//!     │                     │   │ ▼                  │                                            ▼ differs
//!     └──► Serving          │  Lost                  ▼                                         Diverged
//!                           └─────────────────── Waiting        any ── resync ──► Outside, leave ──► Gone
//! ```
//! # Roles
//! - A **serving** member has the state, applies what is delivered, takes writes and reads. *Synced* means
//!   the same. Its messages carry the agreed time ([`clock`]). The most senior one is the **leader**: it says
//!   when a deadline of the machine has come.
//! - A **joiner** is a member without the state. It holds what is delivered until the state is here
//!   ([`held`], [`joiner`]), and hears which members have it ([`heard`]).
//! - The **source** of a joiner is a serving member that gives it the state ([`source`]).
//!
//! Which members serve, which source gives the state of which point to which joiner, the agreed time and the
//! open comparisons of digests are a function of the group's stream ([`agreed`]). No message is needed to
//! agree on them: each serving member computes the same. A joiner gets them with the state.
//!
//! # Messages
//! | message | from | to | says |
//! |---|---|---|---|
//! | `Command`, `Barrier` | serving member | group | a write; a place for reads |
//! | `Tick` | leader | group | a stamp, when a deadline of the machine has come |
//! | `Digest` | serving member | group | what its state is after so many commands |
//! | `Leaving` | serving member | group | others are to keep the state |
//! | `Synced` | joiner | group | it has the state, and serves from here on |
//! | `Differs` | diverged member | group | it serves no more; joiners cannot know it otherwise |
//! | `Lost`, `Founded` | most senior member, without the state | group | no member has it; it is founded anew |
//! | `Offer`, `Chunk` | source | joiner | definition, size about; a part of the state, at last none |
//! | `Failed` | source | joiner | its snapshot cannot be read: the joiner leaves |
//! | `Received` | joiner | source | how much is here |
//! | `Applied` | serving member | writer | how far its commands are applied |
//!
//! # What holds
//! - **A founder founds, and nobody else.** In the first view of a group all members are new; the most senior
//!   one has the machine's first state, and any others are joiners like later ones. So each is checked
//!   against the founder's definition.
//! - **A joiner's state is that of one point** (R19): its first view; later only if its source was lost or
//!   had diverged, and then where that was seen. It applies all that was delivered after the point, then says
//!   `Synced`. At its delivery it has applied the same as everybody.
//! - **No write waits for a transfer.** A joiner holds what comes in memory, then in a file, both bounded; a
//!   joiner that holds more leaves. A file that fails ends its membership, and loses nothing unnoticed.
//! - **A source keeps no bytes of a whole state**, nor does a joiner: a snapshot is read as the joiner takes
//!   it, without the owner's lock, and the joiner's machine takes what has come ([`source`], [`joiner`]).
//! - **What is under way is bounded**: chunks by a budget for each joiner, requests and their bytes by count,
//!   acknowledgements by one number for each pair.
//! - **Direct messages keep no order with the stream**: an offer may come before the message at whose point
//!   its state was taken, and an offer of a source that the others have given up may come late. Points
//!   decide: only a later one replaces an earlier one, and what is held is dropped up to the point of the
//!   offer, never before there is one.
//! - **Nothing of a state that differed spreads**: a member that diverged gives no state, and a joiner that
//!   has the state of such a source does not come to serve. To the machine of the others it is gone, and what
//!   it held goes to them.
//! - **A command is applied at most once.** The group delivers a message once (G9), and the replica never
//!   sends a command again.
//! - **Agreed time never goes back**, over leaders and joiners.
//! - **Numbers and time never go back over a merge** either, for any member: a joiner whose former state is
//!   void says with `Synced` what it has seen of it, and the state rises above that at the same place
//!   ([`Machine::serial`]). What the other component wrote is lost all the same. What the joiner applies
//!   until then is for nobody's eyes ([`Event::Machine`]).
//!
//! # Who dies when
//! | who | when | then |
//! |---|---|---|
//! | the joiner | any time | the view ends its transfer |
//! | the source | before the joiner has all | the view names the next source; the joiner drops what it has and begins at the view's point |
//! | the source | after the joiner has all | the joiner goes on; the offer of the next source is not answered, and ends with its `Synced` |
//! | the joiner's disk | any time | the joiner leaves and says why; a new file is made when it joins again |
//! | the source diverges | before the joiner has all | the same as if it died, at the point where it was seen |
//! | the source diverges | after | the joiner leaves: others may have a copy of its word already |
//! | the leader | any time | the next leader has counted as well; a deadline passes when it leads |
//! | all serving members | while joiners receive | the most senior joiner says `Lost`, or `Founded` |
//! | all serving members | when a joiner has all, and has not said `Synced` | it does, and is the source of all others; unless `Founded` came first: then it leaves |
//! | the founder anew | before `Founded` is delivered | the next most senior member says it |
//! | the last serving member wants to leave | while joiners receive | it waits until one is synced, at most [`Config::leave_timeout`] |
//! | this member is removed, or comes back | any time | its state is void and its requests have no answer |
//!
//! The most senior member knows whether any member serves, also without the state: all that were members
//! before it are gone, and it has heard every `Synced` and `Differs` since.

/// Whether this mistake was planted here: never, except in the simulator and, those that name the replica, in
/// tests of this crate.
macro_rules! planted {
    ($mistake:ident) => {{
        #[cfg(feature = "planted")]
        let planted = antiphon_core::planted::is(antiphon_core::planted::Bug::$mistake);
        #[cfg(not(feature = "planted"))]
        let planted = false;
        planted
    }};
    ($replica:expr, $mistake:ident) => {{
        #[cfg(test)]
        let planted = $replica.planted == Some($crate::replica::tests::Planted::$mistake);
        #[cfg(all(not(test), feature = "planted"))]
        let planted = antiphon_core::planted::is(antiphon_core::planted::Bug::$mistake);
        #[cfg(not(any(test, feature = "planted")))]
        let planted = false;
        planted
    }};
}

/// The same of mistakes that only the tests of this crate make.
macro_rules! planted_in_tests {
    ($replica:expr, $mistake:ident) => {{
        #[cfg(test)]
        let planted = $replica.planted == Some($crate::replica::tests::Planted::$mistake);
        #[cfg(not(test))]
        let planted = false;
        planted
    }};
}

mod agreed;
mod clock;
mod config;
mod digests;
mod event;
mod format;
mod heard;
mod held;
mod joiner;
mod outputs;
mod pace;
mod requests;
mod source;
mod stream;
#[cfg(test)]
pub(crate) mod tests;
mod transfer;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupView, Time};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::config::Config;
pub use self::event::{Ack, Event, Failure, Output, Refusal, RequestId, Spill, SpillId};
pub use self::source::{Pieces, Reading};

use self::agreed::Agreed;
use self::clock::Clock;
use self::format::{Body, Member, Point, Seen, hash};
use self::heard::Heard;
use self::held::{Held, Item, ViewItem};
use self::joiner::Incoming;
use self::requests::{Answer, Requests};
use self::source::Sources;
use crate::{AgreedTime, Machine};

/// 2025-01-01, in milliseconds since 1970: from here the numbers of node views count, too.
const UNIX_MS_OF_2025: u64 = 1_735_689_600_000;
/// Of most commands, which so are not moved as they are written.
const COMMAND_ROOM: usize = 256;

/// One member's copy of a machine `M`.
///
/// The owner hands in what the group delivers, in its order, with the present time, which never goes back.
/// After each batch of inputs it calls [`outputs`](Self::outputs) and takes [`events`](Self::poll_event); the
/// same when the group below has room again. It calls [`handle_timeout`](Self::handle_timeout) when
/// [`poll_timeout`](Self::poll_timeout) says so.
pub struct Replica<M: Machine> {
    me: Member,
    config: Config,
    make: Box<dyn Fn() -> M + Send>,
    machine: M,
    /// The machine's, and what of the configuration has to be the same.
    definition: String,
    /// Members compare digests.
    compares: bool,
    phase: Phase<M>,
    /// What goes with the machine's state, where there is one.
    agreed: Agreed,
    /// What this member has seen of the last state that is void for it. Nothing, if the machine gives no
    /// numbers.
    seen: Option<Seen>,
    /// The members of the view, and how far the stream has come here; both may be ahead of `agreed`.
    view: Vec<Member>,
    /// Of its id and members.
    view_hash: u64,
    point: Point,
    number: u32,
    /// Milliseconds since 2025, by this host's clock.
    clock_ms: u64,
    /// Set where there is a state.
    clock: Option<Clock>,
    /// A `Tick` of this member is under way.
    ticking: bool,
    requests: Requests<M::Reply>,
    /// Reads wait for a barrier that is still queued.
    barrier_queued: bool,
    sources: Sources<M>,
    queue: VecDeque<Body<'static>>,
    queued_bytes: usize,
    events: VecDeque<Event<M::Reply, M::Event>>,
    /// Set when this member wants to leave: until when it waits for a joiner.
    leave_by: Option<Time>,
    leave_reason: Option<String>,
    suspended: bool,
    lease: bool,
    malformed: u64,
    /// What was to be done with the file so far.
    spills: u64,
    #[cfg(test)]
    planted: Option<tests::Planted>,
}

/// What a member is to the state, with what it has for that.
enum Phase<M: Machine> {
    /// In no view yet.
    Outside,
    /// Without the state, until an offer and all chunks came.
    Waiting {
        held: Held,
        incoming: Option<Box<Incoming<M>>>,
        heard: Heard,
    },
    /// With the state of a point; `held` follows it.
    CatchingUp {
        source: Member,
        point: Point,
        held: Held,
        /// `Synced` was queued.
        said: bool,
    },
    Serving,
    /// Its own state differs.
    Diverged(Heard),
    /// It leaves, and ignores what comes.
    Gone,
}

/// What a member is to the replicated state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// In no view yet.
    Outside,
    /// A member without the state, that waits for a source.
    Waiting,
    /// The state comes.
    Receiving,
    /// The state is here, and what was delivered meanwhile is applied.
    CatchingUp,
    /// Synced: it has the state, takes writes and reads.
    Serving,
    /// Its state differs from the others'; it takes no writes and reads.
    Diverged,
    /// No member has the state.
    Lost,
    /// It is leaving, or has left; only [`Replica::handle_resync`] changes that.
    Gone,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "no member yet",
            Self::Waiting => "waiting for the state",
            Self::Receiving => "receiving",
            Self::CatchingUp => "catching up",
            Self::Serving => "serving",
            Self::Diverged => "diverged",
            Self::Lost => "the state is lost",
            Self::Gone => "gone",
        })
    }
}

impl<M: Machine> Replica<M> {
    /// The replica of the member `me`, before its first view. `make` makes the machine in its first state,
    /// each time the same.
    pub fn new(me: Incarnation, config: Config, make: impl Fn() -> M + Send + 'static) -> Self {
        let machine = make();
        let every = config.digest_every;
        Self {
            me: me.into(),
            definition: format!(
                "{}; replica format 3, digests every {every}, {} messages, found anew: {}",
                machine.definition(),
                if config.agreed { "agreed" } else { "safe" },
                if config.found_anew { "yes" } else { "no" },
            ),
            sources: Sources::new(config.transfer_bytes),
            compares: every > 0 && machine.digest().is_some(),
            config,
            make: Box::new(make),
            machine,
            phase: Phase::Outside,
            agreed: Agreed::default(),
            seen: None,
            view: Vec::new(),
            view_hash: 0,
            point: Point::default(),
            number: 0,
            clock_ms: 0,
            clock: None,
            ticking: false,
            requests: Requests::new(),
            barrier_queued: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            events: VecDeque::new(),
            leave_by: None,
            leave_reason: None,
            suspended: false,
            lease: true,
            malformed: 0,
            spills: 0,
            #[cfg(test)]
            planted: None,
        }
    }

    /// The time of day by this host's clock, in milliseconds since 1970. Call it before each batch of inputs:
    /// if this member founds the state, its numbers (tokens, versions, ids) begin with it.
    pub fn set_time_of_day(&mut self, unix_ms: u64) {
        self.clock_ms = unix_ms.saturating_sub(UNIX_MS_OF_2025);
    }

    /// The group has a new view.
    pub fn handle_view(&mut self, now: Time, view: &GroupView) {
        self.resume();
        self.point = Point::of(view);
        self.number = view.id.number;
        self.view = view.members.iter().map(|member| (*member).into()).collect();
        let node = view.id.node;
        self.view_hash = hash(&(node.epoch, node.counter, view.id.k, &self.view));
        if matches!(self.phase, Phase::Outside) {
            self.first_view(now, view);
            return;
        }
        if planted!(ForgetAtRecovery) && node.epoch > 1 && node.counter == 1 {
            self.give_up();
            return;
        }
        let item = ViewItem {
            hash: self.view_hash,
            members: self.view.clone(),
            joined: view.joined.iter().map(|member| (*member).into()).collect(),
            gone: view
                .left
                .iter()
                .chain(&view.crashed)
                .map(|member| (*member).into())
                .collect(),
            left: view.left.iter().map(|member| (*member).into()).collect(),
        };
        self.handle_item(now, Item::View(item));
    }

    /// The group delivered an ordered message. Also those of this member itself.
    pub fn handle_message(&mut self, now: Time, sender: Incarnation, payload: &Bytes) {
        self.resume();
        self.point = self.point.next();
        let item = Item::Message {
            sender: sender.into(),
            payload: payload.clone(),
        };
        self.handle_item(now, item);
    }

    /// The primary is lost: nothing is delivered or sent until something is delivered again, or
    /// [`handle_resumed`](Self::handle_resumed). Requests are answered now: not sent, or unknown.
    pub fn handle_suspended(&mut self) {
        self.suspended = true;
        self.fail_requests();
    }

    /// The primary is back: the group takes messages again, or delivered something else than what the other
    /// calls take. Not needed before those.
    pub fn handle_resumed(&mut self) {
        self.resume();
    }

    /// This member was removed, or is back as a fresh incarnation: the state is void, the next view is its
    /// first. A member that was leaving has nothing to wait for any more, and leaves.
    pub fn handle_resync(&mut self, me: Incarnation, cause: &str) {
        // The layer below may say it twice before it hears that this member leaves.
        let leaving = self.leave_by.is_some() || self.leave_reason.as_deref() == Some("left");
        self.reset(Phase::Outside);
        self.me = me.into();
        self.suspended = false;
        self.leave_by = None;
        self.leave_reason = None;
        self.events.push_back(Event::Void {
            cause: cause.to_owned(),
        });
        if leaving && !planted!(self, ForgetToLeave) {
            self.go("left".to_owned());
        }
    }

    /// This node's lease was lost, or is back. Without it, this member takes no writes and reads: others may
    /// have gone on.
    pub fn lease(&mut self, held: bool) {
        self.lease = held;
    }

    /// Time has come to [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Time) {
        self.catch_up(now);
        self.tick(now);
        self.leave_if_safe(now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout); a time that has passed means at once.
    pub fn poll_timeout(&self) -> Option<Time> {
        let behind = match &self.phase {
            // Also when a full turn has applied the last of what is held: it has not said so yet.
            Phase::CatchingUp { held, said, .. } => {
                (held.is_ready() || held.is_empty() && !said).then_some(Time::ZERO)
            }
            _ => None,
        };
        let ticking = self.ticking || self.suspended || !self.lease;
        let leads = self.leads() && !ticking;
        let deadline = self.clock.filter(|_| leads).and_then(|clock| {
            let deadline = self.machine.deadline()?;
            Some(clock.reaches(deadline))
        });
        behind.into_iter().chain(deadline).chain(self.leave_by).min()
    }

    /// Gives a command to the machine of all members. The answer comes as [`Event::Written`].
    ///
    /// # Errors
    /// The command was not taken, and nothing happened.
    pub fn write(&mut self, command: &M::Command, ack: Ack) -> Result<RequestId, Refusal> {
        self.may_ask()?;
        let room = Vec::with_capacity(COMMAND_ROOM);
        let command = postcard::to_extend(command, room).map_err(|_| Refusal::Unencodable)?;
        if command.len() > self.config.max_command_bytes {
            return Err(Refusal::TooLarge);
        }
        // A command that is larger than the bound would never be taken.
        let alone = self.queued_bytes == 0;
        if !alone && self.queued_bytes + command.len() > self.config.max_queued_bytes {
            return Err(Refusal::Full);
        }
        let request = self.requests.write(ack);
        self.queued_bytes += command.len();
        self.queue.push_back(Body::Command {
            request,
            all: ack == Ack::All,
            command: Cow::Owned(command),
        });
        Ok(RequestId(request))
    }

    /// Reads the state as it is here: it has all writes of this member that were answered, and of others what
    /// was delivered.
    ///
    /// # Errors
    /// This member does not serve.
    pub fn read<T>(&self, read: impl FnOnce(&M) -> T) -> Result<T, Refusal> {
        self.may_serve()?;
        Ok(read(&self.machine))
    }

    /// Asks for a moment at which [`read`](Self::read) gives all that was answered to any member before this
    /// call (linearizable). It comes as [`Event::Readable`]. Reads that wait share one message.
    ///
    /// # Errors
    /// The request was not taken.
    pub fn read_latest(&mut self) -> Result<RequestId, Refusal> {
        self.may_ask()?;
        // Why this is linearizable (G45). What any member had applied before this call had its place in the
        // order by then. The barrier is sent after the call, so it gets a place above (G21, G22), and this
        // member answers when it applies the barrier. Reads share a barrier only until it is sent. No member
        // was in a later view than the barrier's before the call: all members of a view hold a safe message
        // before it is delivered, and take none after they went on (G24, G25, R13). With `agreed` only the
        // lease keeps others from going on without this member (R7).
        let request = self.requests.read();
        if planted!(self, ReadAtOnce) {
            self.requests.barrier(request);
            self.answer(Answer::Read(RequestId(request), Ok(())));
        }
        if !self.barrier_queued {
            self.barrier_queued = true;
            self.queue.push_back(Body::Barrier { upto: 0 });
        }
        Ok(RequestId(request))
    }

    /// Leaves as soon as the state is safe with another member or no member wants it; at the latest when
    /// [`Config::leave_timeout`] is over. Writes are refused from here on.
    pub fn leave(&mut self, now: Time) {
        if self.leave_by.is_some() || matches!(self.phase, Phase::Gone) {
            return;
        }
        if matches!(self.phase, Phase::Serving) {
            self.leave_by = Some(now + self.config.leave_timeout);
            self.queue.push_back(Body::Leaving);
        } else {
            self.go("left".to_owned());
        }
    }

    /// What the owner is to do with its file of what this member holds, if anything. After each batch of
    /// inputs; but while something is being done, there is nothing else to do. The owner may take its time:
    /// what is delivered meanwhile is held in memory.
    pub fn poll_spill(&mut self) -> Option<(SpillId, Spill)> {
        let id = SpillId(self.spills);
        let planted = planted!(self, ReadLatestPart);
        let spill = match &mut self.phase {
            Phase::Waiting { held, .. } => held.spill(id, false, planted),
            Phase::CatchingUp { held, .. } => held.spill(id, true, planted),
            _ => None,
        }?;
        self.spills += 1;
        Some((id, spill))
    }

    /// That is done: the bytes that were read, none of a write, or why it failed. Then this member leaves.
    pub fn handle_spilled(&mut self, now: Time, id: SpillId, outcome: Result<Bytes, String>) {
        let (Phase::Waiting { held, .. } | Phase::CatchingUp { held, .. }) = &mut self.phase else {
            return;
        };
        if let Err(reason) = held.spilled(id, outcome) {
            self.events.push_back(Event::SpillFailed {
                reason: reason.clone(),
            });
            self.go(format!("spill-failed: {reason}"));
            return;
        }
        if planted!(self, LoseReadBack) && held.spilled_bytes() > 0 {
            held.pop();
        }
        self.catch_up(now);
    }

    /// What is to be read of this member's state for a joiner, if anything. After [`outputs`](Self::outputs),
    /// and when what was read before is handed back. [`Reading::run`] takes as long as the machine's snapshot
    /// does, and needs nothing of this replica: the owner does it where it holds up nobody.
    pub fn poll_reading(&mut self) -> Option<Reading<M::Snapshot>> {
        self.sources.poll_reading()
    }

    /// Whether [`poll_reading`](Self::poll_reading) has something.
    pub fn wants_reading(&self) -> bool {
        self.sources.wants_reading()
    }

    /// That is done. [`outputs`](Self::outputs) may have more to say now.
    pub fn handle_read(&mut self, pieces: Pieces<M::Snapshot>) {
        self.sources.read(pieces);
    }

    /// The next event. They wait without a bound, as many as the inputs made.
    pub fn poll_event(&mut self) -> Option<Event<M::Reply, M::Event>> {
        self.events.pop_front()
    }

    /// What this member is to the state.
    pub fn standing(&self) -> Standing {
        match &self.phase {
            Phase::Outside => Standing::Outside,
            Phase::Waiting {
                incoming: Some(_), ..
            } => Standing::Receiving,
            Phase::Waiting { heard, .. } if heard.lost => Standing::Lost,
            Phase::Waiting { .. } => Standing::Waiting,
            Phase::CatchingUp { .. } => Standing::CatchingUp,
            Phase::Serving => Standing::Serving,
            Phase::Diverged(_) => Standing::Diverged,
            Phase::Gone => Standing::Gone,
        }
    }

    /// The agreed time, as far as it is known here.
    pub fn time(&self) -> AgreedTime {
        self.agreed.time
    }

    /// Bytes that are held until the state is here.
    pub fn held_bytes(&self) -> usize {
        match &self.phase {
            Phase::Waiting { held, .. } | Phase::CatchingUp { held, .. } => held.bytes(),
            _ => 0,
        }
    }

    /// Bytes of the owner's file that are in use. 0: it is not needed now.
    pub fn spilled_bytes(&self) -> u64 {
        match &self.phase {
            Phase::Waiting { held, .. } | Phase::CatchingUp { held, .. } => held.spilled_bytes(),
            _ => 0,
        }
    }

    /// Messages of peers that were ignored because they made no sense.
    pub fn malformed(&self) -> u64 {
        self.malformed
    }

    fn may_ask(&self) -> Result<(), Refusal> {
        if self.leave_by.is_some() {
            return Err(Refusal::Leaving);
        }
        self.may_serve()?;
        let count = if planted!(CountAllRequests) {
            self.requests.last() as usize
        } else {
            self.requests.len()
        };
        if count >= self.config.max_requests.max(1) {
            return Err(Refusal::Full);
        }
        Ok(())
    }

    fn may_serve(&self) -> Result<(), Refusal> {
        match self.standing() {
            Standing::Serving if self.suspended || !self.lease => Err(Refusal::NotPrimary),
            Standing::Serving => Ok(()),
            Standing::Lost => Err(Refusal::Lost),
            Standing::Diverged => Err(Refusal::Diverged),
            Standing::Gone => Err(Refusal::Leaving),
            Standing::Outside | Standing::Waiting | Standing::Receiving | Standing::CatchingUp => {
                Err(Refusal::NotSynced)
            }
        }
    }

    /// Something was delivered again. What was under way before may have been lost: all that is not a request
    /// is said again, and means the same twice.
    fn resume(&mut self) {
        if !std::mem::take(&mut self.suspended) {
            return;
        }
        self.ticking = false;
        match &mut self.phase {
            Phase::CatchingUp {
                source,
                point,
                said: true,
                ..
            } => self.queue.push_back(Body::Synced {
                source: *source,
                point: *point,
                seen: self.seen,
            }),
            Phase::Serving if self.leave_by.is_some() => self.queue.push_back(Body::Leaving),
            Phase::Diverged(heard) => {
                heard.said = false;
                let point = self.point;
                self.queue.push_back(Body::Differs { point });
            }
            Phase::Waiting { heard, .. } => heard.said = false,
            Phase::Outside | Phase::CatchingUp { .. } | Phase::Serving | Phase::Gone => {}
        }
    }

    fn fail_requests(&mut self) {
        // Rarely does a command wait at the moment of a suspension: the tests of this crate see to it.
        let keep = planted_in_tests!(self, KeepFailedCommands);
        self.queue
            .retain(|body| keep || !matches!(body, Body::Command { .. } | Body::Barrier { .. }));
        if !keep {
            self.queued_bytes = 0;
        }
        self.barrier_queued = false;
        for answer in self.requests.fail_all() {
            self.answer(answer);
        }
    }

    fn answer(&mut self, answer: Answer<M::Reply>) {
        self.events.push_back(match answer {
            Answer::Read(request, outcome) => Event::Readable { request, outcome },
            Answer::Write(request, outcome) => Event::Written { request, outcome },
        });
    }

    /// This member has no state and no part in anything.
    fn reset(&mut self, phase: Phase<M>) {
        self.fail_requests();
        self.requests.reset();
        self.queue.clear();
        self.sources.clear();
        self.clock = None;
        self.ticking = false;
        if let (Phase::Serving, Some(serial)) = (&self.phase, self.machine.serial()) {
            self.seen = Some(self.agreed.seen(serial));
        }
        self.agreed = Agreed::default();
        self.machine = (self.make)();
        self.phase = phase;
    }

    /// This member leaves now.
    fn go(&mut self, reason: String) {
        self.reset(Phase::Gone);
        self.leave_by = None;
        self.leave_reason = Some(reason);
    }

    fn ignore(&mut self, from: Member, what: &'static str) {
        self.malformed += 1;
        self.events.push_back(Event::Malformed {
            from: from.into(),
            what,
        });
    }
}
