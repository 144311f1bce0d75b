//! The replica behind a lock, and the requests that wait for it.
//!
//! Each caller enters its request under the lock, and in the same step hands what is ready to the group,
//! unless it leaves that to the task. Messages for which the group has no room wait for the task, too. The
//! lock is never held across an await; under it runs no code but the machine's, a reader's closure and an
//! observer.
//!
//! Writes for which the replica has no room wait in no order: a caller that waits may not look at its future
//! for long, and holds up nobody meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_core::wire::{Incarnation, Level, Member};
use antiphon_core::{TellError, Time};
use antiphon_replica::{
    Ack, At, Event as CoreEvent, Failure, Output, Pieces, Reading, Refusal, Replica, RequestId, Spill,
    SpillId, Standing,
};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot, watch};

use super::news::{News, Reader};
use super::spill::Outcome;
use super::status::{view_after, with_the_state};
use super::{
    Loss, ReadError, ReplicaError, ReplicaEvent, ReplicaEvents, ReplicaMember, ReplicaStatus,
    ReplicaStatusWatch, Replicable, Transfer, WriteError,
};
use crate::driven::{Blocked, core_view, incarnations, is_earlier};
use crate::host::Host;
use crate::{Event, GroupSender, View};

/// While this node may not act although it has its lease, the task looks so often whether it may.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What handles and the task share.
pub(super) struct Shared<M: Replicable> {
    pub(super) sender: GroupSender,
    pub(super) host: Host,
    /// Of all ordered messages.
    level: Level,
    inside: Mutex<Inside<M>>,
    /// The task is to come round.
    pub(super) wake: Notify,
    /// The same, and without hurry: others may begin something at the same time.
    pub(super) begun: Notify,
    /// No handle is left.
    pub(super) dropped: Notify,
    /// A request was answered, so that there is room for others.
    room: Notify,
    state: watch::Sender<State>,
    status: watch::Sender<ReplicaStatus>,
}

/// Tasks that wait for a change of the replica as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    synced: bool,
    /// No member has the state, or this one's differs.
    trouble: Option<ReplicaError>,
    end: Option<ReplicaError>,
}

/// What a typed handle is told under the lock.
pub(super) enum Happened<'a, E> {
    /// The machine says this, to this member.
    Machine { me: Incarnation, event: &'a E },
    /// This member may not act for now: its lease or the primary is lost.
    Unsure,
    /// This member is no member any more, or a fresh one, or its state differs from the others'; and what a
    /// lock that it held was lost by.
    Void(Loss),
}

pub(super) type Observer<E> = Box<dyn FnMut(Happened<'_, E>) + Send>;

type Answer<T> = oneshot::Sender<T>;
type Written<M> = Result<(At, <M as antiphon_replica::Machine>::Reply), WriteError>;
pub(super) type Answered<M> = oneshot::Receiver<Written<M>>;

/// Without an answer the task has died, with the node.
pub(super) fn answer<T>(
    answered: Result<Result<T, WriteError>, oneshot::error::RecvError>,
) -> Result<T, WriteError> {
    answered.unwrap_or(Err(WriteError::Unknown))
}

struct Inside<M: Replicable> {
    replica: Replica<M>,
    me: Incarnation,
    /// How many removals of this member the task has read of.
    epoch: u64,
    lease: bool,
    /// Whether the member could serve when it was last looked at.
    may: bool,
    writes: BTreeMap<RequestId, Answer<Written<M>>>,
    reads: BTreeMap<RequestId, Answer<Result<(), ReadError>>>,
    /// Commands without a caller, that are given until they are applied or this member is removed.
    insisting: VecDeque<M::Command>,
    insisted: BTreeMap<RequestId, M::Command>,
    observer: Observer<M::Event>,
    news: Option<News<ReplicaEvent<M::Event>>>,
    people: BTreeMap<Incarnation, Arc<Member>>,
    members: Vec<ReplicaMember>,
    /// With the members that have the state.
    view: Option<Arc<View>>,
    /// The view is new and was not told.
    viewed: bool,
    transfer: Option<Transfer>,
    /// It was told that this member has no state.
    void: bool,
    /// The group was left in order, or the node has left its cluster.
    left: bool,
    /// The primary is lost, as the group says.
    suspended: bool,
    /// The replica said that it leaves.
    leaves: Option<String>,
    /// Why, if it said more.
    cause: Option<ReplicaError>,
    /// When the task comes round at the latest.
    awaited: Option<Time>,
}

/// What the task has to wait for.
pub(super) struct Need {
    /// Not later than that of the replica.
    pub(super) deadline: Option<Time>,
    pub(super) blocked: Blocked,
    /// The group is to be left, and why.
    pub(super) leaves: Option<String>,
}

/// The handles' side.
impl<M: Replicable> Shared<M> {
    pub(super) async fn write(&self, command: M::Command, ack: Ack) -> Written<M> {
        self.write_entering(command, ack, |_| {}).await
    }

    /// Calls `entered` when the command is taken, under the lock, with the number of this member's removals
    /// that were read.
    pub(super) async fn write_entering(
        &self,
        command: M::Command,
        ack: Ack,
        mut entered: impl FnMut(u64),
    ) -> Written<M> {
        let mut asked = self.ask_write(&command, ack, &mut entered);
        while let Err(Refusal::Full) = asked {
            let mut room = pin!(self.room.notified());
            // From here on no room is missed.
            room.as_mut().enable();
            asked = self.ask_write(&command, ack, &mut entered);
            if let Err(Refusal::Full) = asked {
                room.await;
            }
        }
        answer(asked?.await)
    }

    /// Takes the command's place at once. The task hands it to the group with those that come a moment later.
    pub(super) fn begin_write(&self, command: &M::Command) -> Result<Answered<M>, Refusal> {
        let answered = self.current().enter(command, Ack::Here)?;
        self.begun.notify_one();
        Ok(answered)
    }

    fn ask_write(
        &self,
        command: &M::Command,
        ack: Ack,
        entered: &mut impl FnMut(u64),
    ) -> Result<Answered<M>, Refusal> {
        let mut inside = self.current();
        let answered = inside.enter(command, ack)?;
        entered(inside.epoch);
        self.settle_and_wake(inside);
        Ok(answered)
    }

    /// Gives a command until it is applied or this member is removed; the caller does not wait.
    pub(super) fn insist(&self, command: M::Command) {
        let mut inside = self.current();
        inside.insisting.push_back(command);
        self.settle_and_wake(inside);
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&M) -> T) -> Result<T, ReadError> {
        Ok(self.current().replica.read(read)?)
    }

    pub(super) async fn read_latest<T>(&self, read: impl FnOnce(&M) -> T) -> Result<T, ReadError> {
        let mut asked = self.ask_read();
        while let Err(Refusal::Full) = asked {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            asked = self.ask_read();
            if let Err(Refusal::Full) = asked {
                room.await;
            }
        }
        let answer = asked?;
        answer.await.unwrap_or(Err(ReadError::Interrupted))?;
        self.read(read)
    }

    fn ask_read(&self) -> Result<oneshot::Receiver<Result<(), ReadError>>, Refusal> {
        let mut inside = self.current();
        let request = inside.replica.read_latest()?;
        let (answer, answered) = oneshot::channel();
        inside.reads.insert(request, answer);
        self.settle_and_wake(inside);
        Ok(answered)
    }

    pub(super) fn events(&self) -> ReplicaEvents<M::Event> {
        ReplicaEvents(self.inside().subscribe())
    }

    /// Reads the state and subscribes to what follows it, without a gap.
    pub(super) fn read_on<T>(
        &self,
        read: impl FnOnce(&M) -> T,
    ) -> Result<(T, ReplicaEvents<M::Event>), ReadError> {
        let inside = self.current();
        let read = inside.replica.read(read)?;
        Ok((read, ReplicaEvents(inside.subscribe())))
    }

    pub(super) fn members(&self) -> Vec<ReplicaMember> {
        self.inside().members.clone()
    }

    pub(super) fn watch_status(&self) -> ReplicaStatusWatch {
        ReplicaStatusWatch(self.status.subscribe())
    }

    pub(super) fn standing(&self) -> Standing {
        self.inside().replica.standing()
    }

    pub(super) fn me(&self) -> Incarnation {
        self.inside().me
    }

    /// Waits until this member serves.
    pub(super) async fn synced(&self) -> Result<(), ReplicaError> {
        let mut state = self.state.subscribe();
        let settled = |state: &State| state.synced || state.trouble.is_some() || state.end.is_some();
        let Ok(state) = state.wait_for(settled).await else {
            return Err(ReplicaError::Left);
        };
        let trouble = state.end.clone().or_else(|| state.trouble.clone());
        trouble.map_or(Ok(()), Err)
    }

    pub(super) fn ask_to_leave(&self) {
        let mut inside = self.current();
        inside.replica.leave(self.now());
        self.settle_and_wake(inside);
        self.wake.notify_one();
    }

    pub(super) async fn ended(&self) {
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.state.subscribe().wait_for(|state| state.end.is_some()).await;
    }

    /// Sends what is ready. What the group has no room for is the task's.
    fn settle_and_wake(&self, mut inside: MutexGuard<'_, Inside<M>>) {
        let blocked = self.settle(&mut inside);
        let reads = inside.replica.wants_reading();
        let earlier = is_earlier(inside.replica.poll_timeout(), inside.awaited);
        // What the member may not insist on now it may a moment later, and nobody says so.
        if !blocked.is_nothing() || earlier || reads || !inside.insisting.is_empty() {
            self.wake.notify_one();
        }
    }
}

/// The task's side.
impl<M: Replicable> Shared<M> {
    pub(super) fn new(
        sender: GroupSender,
        host: Host,
        level: Level,
        me: Incarnation,
        replica: Replica<M>,
        observer: Observer<M::Event>,
    ) -> Self {
        Self {
            sender,
            host,
            level,
            inside: Mutex::new(Inside {
                replica,
                me,
                epoch: 0,
                lease: false,
                may: false,
                writes: BTreeMap::new(),
                reads: BTreeMap::new(),
                insisting: VecDeque::new(),
                insisted: BTreeMap::new(),
                observer,
                news: Some(News::new()),
                people: BTreeMap::new(),
                members: Vec::new(),
                view: None,
                viewed: false,
                transfer: None,
                void: true,
                left: false,
                suspended: false,
                leaves: None,
                cause: None,
                awaited: None,
            }),
            wake: Notify::new(),
            begun: Notify::new(),
            dropped: Notify::new(),
            room: Notify::new(),
            state: watch::Sender::default(),
            status: watch::Sender::new(ReplicaStatus {
                standing: Standing::Outside,
                primary: false,
                transfer: None,
                members: Vec::new(),
                view: None,
            }),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_micros(self.host.micros())
    }

    /// Takes what the group delivered, and does what follows from it.
    /// What is to be waited for.
    pub(super) fn take(&self, events: &mut Vec<Event>) -> Need {
        let mut inside = self.current();
        let now = self.now();
        inside.replica.set_time_of_day(self.host.unix_time_ms());
        for event in events.drain(..) {
            if matches!(event, Event::Suspended) {
                // A lock that was granted before is lost by this.
                self.tell_events(&mut inside);
            }
            inside.handle(now, event);
        }
        if inside.replica.poll_timeout().is_some_and(|at| at <= now) {
            inside.replica.handle_timeout(now);
        }
        let blocked = self.settle(&mut inside);
        // The bound of a lease may pass and be raised again, and nobody says so. It may be raised by now.
        let unsure = inside.lease && (!inside.may || !self.sender.is_good(inside.epoch));
        let again = unsure.then(|| now + LOOK_AGAIN);
        for deadline in [inside.replica.poll_timeout(), again] {
            if is_earlier(deadline, inside.awaited) {
                inside.awaited = deadline;
            }
        }
        Need {
            deadline: inside.awaited,
            blocked,
            leaves: inside.leaves.clone(),
        }
    }

    /// The time has come that the task waited for.
    pub(super) fn rang(&self) {
        self.inside().awaited = None;
    }

    /// The next read or write of the file for held messages. Asked only while none is under way.
    pub(super) fn next_spill(&self) -> Option<(SpillId, Spill)> {
        self.inside().replica.poll_spill()
    }

    /// The next piece of the state to read for a joiner. Asked only while no piece is being read.
    pub(super) fn next_reading(&self) -> Option<Reading<M::Snapshot>> {
        self.inside().replica.poll_reading()
    }

    /// The piece was read. It goes out when the task comes round.
    pub(super) fn read_for_joiner(&self, pieces: Pieces<M::Snapshot>) {
        self.inside().replica.handle_read(pieces);
    }

    /// Whether anything in that file may be needed.
    pub(super) fn needs_file(&self) -> bool {
        let joins = [Standing::Waiting, Standing::Receiving, Standing::CatchingUp];
        joins.contains(&self.inside().replica.standing())
    }

    /// The read or write of the file is done. Its effects follow when the task comes round.
    pub(super) fn spilled(&self, id: SpillId, outcome: Outcome) {
        let now = self.now();
        self.current().replica.handle_spilled(now, id, outcome);
    }

    pub(super) fn node_has_left(&self) {
        self.inside().left = true;
    }

    /// That it is held is told again: a lone node says so when its lease was over by the clock alone, and
    /// readers that were refused meanwhile wait for that word.
    pub(super) fn set_lease(&self, held: bool) {
        let mut inside = self.inside();
        let was_held = std::mem::replace(&mut inside.lease, held);
        if held || was_held {
            inside.tell(ReplicaEvent::Lease { held });
        }
        if was_held && !held {
            (inside.observer)(Happened::Unsure);
        }
        self.show_status(&mut inside, false);
    }

    /// The group is about to be left. That takes a while, in which others may get what was held here.
    pub(super) fn part(&self) {
        let mut inside = self.inside();
        (inside.observer)(Happened::Void(Loss::Left));
    }

    /// Nothing more happens: the group was left, or the task was dropped with its node.
    pub(super) fn finish(&self, why: ReplicaError) {
        let mut inside = self.inside();
        let why = inside.cause.take().unwrap_or(why);
        let loss = match why {
            ReplicaError::Cluster(crate::Error::Closed) | ReplicaError::Panicked if !inside.left => {
                Loss::Stopped
            }
            _ => Loss::Left,
        };
        (inside.observer)(Happened::Void(loss));
        inside.replica.handle_suspended();
        // No state is handed on any more: it has left.
        inside.replica.leave(Time::ZERO);
        inside.replica.handle_timeout(Time::from_micros(u64::MAX));
        self.settle(&mut inside);
        inside.writes.clear();
        inside.reads.clear();
        inside.insisting.clear();
        inside.insisted.clear();
        inside.news = None;
        drop(inside);
        self.state.send_modify(|state| {
            state.synced = false;
            state.end.get_or_insert(why);
        });
        self.room.notify_waiters();
    }

    /// The replica, told whether it may act.
    fn current(&self) -> MutexGuard<'_, Inside<M>> {
        let mut inside = self.inside();
        inside.may = inside.lease && self.sender.is_good(inside.epoch);
        let may = inside.may;
        inside.replica.lease(may);
        inside
    }

    fn settle(&self, inside: &mut Inside<M>) -> Blocked {
        let mut blocked = Blocked::default();
        self.tell_events(inside);
        inside.insist();
        let (now, epoch, sender, level) = (self.now(), inside.epoch, &self.sender, self.level);
        let leaves = &mut inside.leaves;
        inside.replica.outputs(now, |output| match output {
            Output::Send(payload) => {
                let sent = sender.try_send_in(epoch, &payload, level);
                blocked.group |= sent.is_err();
                sent.is_ok()
            }
            Output::Tell { to, payload } => {
                // What is refused for another reason waits for a view.
                let told = sender.try_tell_in(epoch, to, payload);
                if matches!(told, Err(TellError::Full)) {
                    blocked.members.push(to);
                }
                told.is_ok()
            }
            Output::Leave { reason } => {
                *leaves = Some(reason);
                true
            }
        });
        self.tell_events(inside);
        blocked
    }

    fn tell_events(&self, inside: &mut Inside<M>) {
        let (mut answered, mut changed) = (false, false);
        while let Some(event) = inside.replica.poll_event() {
            answered |= matches!(event, CoreEvent::Written { .. } | CoreEvent::Readable { .. });
            changed |= matches!(event, CoreEvent::Members { .. } | CoreEvent::Progress { .. });
            self.note(&event, inside.me);
            inside.tell_event(event);
        }
        if answered {
            self.room.notify_waiters();
        }
        changed |= std::mem::take(&mut inside.viewed);
        self.show_status(inside, changed);
    }

    fn show_status(&self, inside: &mut Inside<M>, changed: bool) {
        let now = (inside.replica.standing(), inside.is_primary());
        let shown = {
            let shown = self.status.borrow();
            (shown.standing, shown.primary)
        };
        if changed || shown != now {
            self.status.send_replace(inside.status(now.0));
        }
    }

    fn note(&self, event: &CoreEvent<M::Reply, M::Event>, me: Incarnation) {
        let change = |change: &dyn Fn(&mut State)| self.state.send_modify(|state| change(state));
        match event {
            CoreEvent::Synced => change(&|state| {
                state.synced = true;
                state.trouble = None;
            }),
            CoreEvent::Void { .. } => change(&|state| {
                state.synced = false;
                state.trouble = None;
            }),
            CoreEvent::StateLost => change(&|state| {
                state.synced = false;
                state.trouble = Some(ReplicaError::StateLost);
            }),
            CoreEvent::Diverged { member, .. } if *member == me => change(&|state| {
                state.synced = false;
                state.trouble = Some(ReplicaError::Diverged);
            }),
            _ => {}
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside<M>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Replicable> Inside<M> {
    /// Takes a command in, and what its answer comes by.
    fn enter(&mut self, command: &M::Command, ack: Ack) -> Result<Answered<M>, Refusal> {
        let request = self.replica.write(command, ack)?;
        let (answer, answered) = oneshot::channel();
        self.writes.insert(request, answer);
        Ok(answered)
    }

    /// Whether the others do not go on without this member, as far as was said.
    fn is_primary(&self) -> bool {
        self.lease && !self.suspended
    }

    fn handle(&mut self, now: Time, event: Event) {
        // The primary is back with whatever else a group says.
        self.suspended = matches!(event, Event::Suspended);
        match event {
            Event::View(view) => {
                if view.me != self.me {
                    self.start_over(view.me, "a fresh incarnation");
                }
                let here: Vec<Incarnation> = incarnations(&view.members);
                let said: Vec<Incarnation> = self.members.iter().map(|of| of.member.incarnation).collect();
                self.people
                    .retain(|member, _| here.contains(member) || said.contains(member));
                let people = view
                    .members
                    .iter()
                    .map(|member| (member.incarnation, member.clone()));
                self.people.extend(people);
                self.replica.handle_view(now, &core_view(&view));
                self.set_view(&view);
            }
            Event::Message(message) => {
                let payload = self.keep(message.payload);
                self.replica
                    .handle_message(now, message.sender.incarnation, &payload);
            }
            Event::Told(message) => {
                self.replica
                    .handle_told(now, message.sender.incarnation, &message.payload);
            }
            Event::Transitional { .. } => self.replica.handle_resumed(),
            Event::Suspended => {
                self.replica.handle_suspended();
                (self.observer)(Happened::Unsure);
            }
            Event::Resync { cause } => {
                self.epoch += 1;
                let me = self.me;
                self.start_over(me, &cause);
            }
            Event::Refused { reason } => {
                self.cause = Some(ReplicaError::Cluster(crate::Error::GroupRefused { reason }));
            }
            Event::Left => self.left = true,
        }
    }

    fn start_over(&mut self, me: Incarnation, cause: &str) {
        self.me = me;
        self.insisting.clear();
        self.insisted.clear();
        self.view = None;
        self.replica.handle_resync(me, cause);
    }

    fn set_view(&mut self, view: &View) {
        self.view = Some(Arc::new(view_after(self.view.as_deref(), view)));
        self.viewed = true;
    }

    /// None: it is not known which of them have the state.
    fn set_members(&mut self, members: Vec<ReplicaMember>) {
        if let Some(view) = &mut self.view {
            let view = Arc::make_mut(view);
            view.synced = (!members.is_empty()).then(|| with_the_state(view, &members));
        }
        self.members = members;
    }

    /// While the state is on its way, messages are kept for long: a slice would keep the whole block that it
    /// came in.
    fn keep(&self, payload: Bytes) -> Bytes {
        match self.replica.standing() {
            Standing::Serving => payload,
            _ => Bytes::copy_from_slice(&payload),
        }
    }

    /// Gives the commands for which no caller waits.
    fn insist(&mut self) {
        while let Some(command) = self.insisting.pop_front() {
            match self.replica.write(&command, Ack::Here) {
                Ok(request) => {
                    self.insisted.insert(request, command);
                }
                Err(_) => {
                    self.insisting.push_front(command);
                    return;
                }
            }
        }
    }

    fn tell_event(&mut self, event: CoreEvent<M::Reply, M::Event>) {
        match event {
            CoreEvent::Written { request, outcome } => {
                if let Some(command) = self.insisted.remove(&request) {
                    if matches!(outcome, Err(Failure::NotSent | Failure::Unknown)) {
                        self.insisting.push_back(command);
                    }
                } else if let Some(answer) = self.writes.remove(&request) {
                    // Fails only when no caller waits for it any more.
                    let _ = answer.send(outcome.map_err(|failure| match failure {
                        Failure::NotSent => WriteError::NotSent,
                        Failure::Unknown => WriteError::Unknown,
                        Failure::NotApplied => WriteError::NotApplied,
                    }));
                }
            }
            CoreEvent::Readable { request, outcome } => {
                if let Some(answer) = self.reads.remove(&request) {
                    let _ = answer.send(outcome.map_err(|_| ReadError::Interrupted));
                }
            }
            CoreEvent::Machine { serving: false, .. } => {}
            CoreEvent::Machine { at, event, .. } => {
                (self.observer)(Happened::Machine {
                    me: self.me,
                    event: &event,
                });
                self.tell(ReplicaEvent::Machine { at, event });
            }
            CoreEvent::Members { members } => {
                let named = members.into_iter().filter_map(|(member, synced)| {
                    let member = self.people.get(&member)?.clone();
                    Some(ReplicaMember { member, synced })
                });
                let named = named.collect();
                self.set_members(named);
                self.tell(ReplicaEvent::Members(self.members.clone()));
            }
            CoreEvent::Synced => {
                self.void = false;
                self.tell(ReplicaEvent::Synced);
            }
            CoreEvent::Progress { bytes, total, source } => {
                let source = self.name(source);
                let transfer = Transfer { bytes, total, source };
                self.transfer = Some(transfer.clone());
                self.tell(ReplicaEvent::Progress(transfer));
            }
            CoreEvent::SourceFailed { source, reason } if source == self.me => {
                tracing::warn!(target: "antiphon::replicated", %reason, "the state cannot be written for a joiner");
            }
            CoreEvent::SourceFailed { source, reason } => {
                let source = self.name(source);
                self.cause = Some(ReplicaError::SourceFailed { source, reason });
            }
            CoreEvent::Diverged { member, commands } => {
                let here = member == self.me;
                if here {
                    // For the others this member is gone.
                    (self.observer)(Happened::Void(Loss::Diverged));
                }
                self.tell(ReplicaEvent::Diverged {
                    member: self.name(member),
                    here,
                    commands,
                });
            }
            CoreEvent::Overrun {
                held,
                limit,
                spilled,
                spill_limit,
            } => {
                self.cause = Some(ReplicaError::Overrun {
                    held,
                    limit,
                    spilled,
                    spill_limit,
                });
            }
            CoreEvent::SpillFailed { reason } => self.cause = Some(ReplicaError::SpillFailed { reason }),
            CoreEvent::StateLost => self.tell(ReplicaEvent::StateLost),
            CoreEvent::RestoreFailed { reason } => self.cause = Some(ReplicaError::RestoreFailed { reason }),
            CoreEvent::Refused { reason } => self.cause = Some(ReplicaError::Refused { reason }),
            CoreEvent::Void { cause } => {
                (self.observer)(Happened::Void(Loss::Removed));
                // What was told of the members before is not what the next view has.
                self.set_members(Vec::new());
                // A removal may be followed by a fresh incarnation.
                if !std::mem::replace(&mut self.void, true) {
                    self.tell(ReplicaEvent::Void { cause });
                }
            }
            CoreEvent::Malformed { from, what } => {
                let member = self.name(from);
                tracing::warn!(target: "antiphon::replicated", %member, expected = what, "a message makes no sense");
                self.tell(ReplicaEvent::Malformed {
                    member,
                    expected: what,
                });
            }
        }
    }

    fn status(&mut self, standing: Standing) -> ReplicaStatus {
        if !matches!(standing, Standing::Receiving | Standing::CatchingUp) {
            self.transfer = None;
        }
        if matches!(standing, Standing::Outside | Standing::Gone) {
            self.members.clear();
            self.view = None;
        }
        ReplicaStatus {
            standing,
            primary: self.is_primary() && !matches!(standing, Standing::Outside | Standing::Gone),
            transfer: self.transfer.clone(),
            members: self.members.clone(),
            view: self.view.clone(),
        }
    }

    fn tell(&self, event: ReplicaEvent<M::Event>) {
        let bytes = match &event {
            ReplicaEvent::Machine { event, .. } => M::event_bytes(event),
            ReplicaEvent::Members(members) => size_of_val(&members[..]),
            _ => 0,
        };
        if let Some(news) = &self.news {
            news.tell(event, size_of::<ReplicaEvent<M::Event>>() + bytes);
        }
    }

    fn subscribe(&self) -> Reader<ReplicaEvent<M::Event>> {
        match &self.news {
            Some(news) => news.reader(),
            // It has ended, and so has the stream.
            None => Reader::of_nothing(),
        }
    }

    fn name(&self, member: Incarnation) -> String {
        let known = self.people.get(&member);
        known.map_or_else(|| member.short().to_string(), |member| member.name.clone())
    }
}
