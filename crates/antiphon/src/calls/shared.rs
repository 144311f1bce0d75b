//! The machine behind a lock, the calls that wait for it, and the handlers that it started.
//!
//! Each caller enters its call under the lock, and in the same step hands what is ready to the group. Only
//! messages for which the group has no room wait for the task. The lock is never held across an await, and no
//! code of the application runs under it.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use antiphon_core::wire::{Incarnation, Level, Member};
use antiphon_core::{Outcome, TellError, TellOutcome, Ticket, Time};
use antiphon_replica::calls::{CallId, Calls as Machine, Event as CallsEvent, Output};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot, watch};

use super::handle::{Request, Weakly};
use super::{Call, CallError, Config, Ran, Refusal, Replies, RequestId, Why};
use crate::driven::{Blocked, core_view, is_earlier};
use crate::host::Host;
use crate::{Event, GroupSender, TellReceipt};

pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Bytes, Bytes>> + Send>>;
pub(super) type Handler = Arc<dyn Fn(Request) -> Answering + Send + Sync>;
type Answer = Result<Replies, CallError>;

/// What handles, handlers and the task share.
pub(super) struct Shared {
    pub(super) sender: GroupSender,
    pub(super) host: Host,
    inside: Mutex<Inside>,
    /// The task is to come round.
    pub(super) wake: Notify,
    /// No handle is left.
    pub(super) dropped: Notify,
    ended: watch::Sender<bool>,
}

struct Inside {
    machine: Machine,
    me: Incarnation,
    /// How many of its removals this member has read of.
    epoch: u64,
    members: Vec<Arc<Member>>,
    handlers: BTreeMap<String, Handler>,
    waiting: BTreeMap<CallId, oneshot::Sender<Answer>>,
    /// A handler is dropped when its sender is.
    running: BTreeMap<RequestId, oneshot::Sender<()>>,
    /// Of requests, for each receiver in the order of telling.
    receipts: BTreeMap<Incarnation, VecDeque<(CallId, TellReceipt)>>,
    /// The same of requests to all.
    sent_to_all: VecDeque<(CallId, Ticket)>,
    leaves: bool,
    /// When the task comes round at the latest.
    awaited: Option<Time>,
}

/// What the task has to wait for.
pub(super) struct Need {
    /// Not later than that of the machine.
    pub(super) deadline: Option<Time>,
    pub(super) blocked: Blocked,
    pub(super) leaves: bool,
}

/// The handles' side.
impl Shared {
    pub(super) fn call(self: &Arc<Self>, call: Call) -> Result<(CallId, oneshot::Receiver<Answer>), Refusal> {
        let mut inside = self.inside();
        let call = inside.machine.call(self.now(), call)?;
        let (answer, answered) = oneshot::channel();
        inside.waiting.insert(call, answer);
        self.settle_and_wake(inside);
        Ok((call, answered))
    }

    fn cancel(self: &Arc<Self>, call: CallId) {
        let mut inside = self.inside();
        inside.machine.cancel(self.now(), call);
        self.settle_and_wake(inside);
    }

    pub(super) fn serve(self: &Arc<Self>, verb: &str, handler: Handler) -> Result<(), Refusal> {
        let mut inside = self.inside();
        inside.machine.serve(verb)?;
        let before = inside.handlers.insert(verb.to_owned(), handler);
        self.settle_and_wake(inside);
        // The application's code, without the lock.
        drop(before);
        Ok(())
    }

    pub(super) fn stop_serving(self: &Arc<Self>, verb: &str) {
        let mut inside = self.inside();
        inside.machine.stop_serving(self.now(), verb);
        let before = inside.handlers.remove(verb);
        self.settle_and_wake(inside);
        drop(before);
    }

    fn answer(self: &Arc<Self>, id: RequestId, answer: Result<Bytes, Bytes>) {
        let mut inside = self.inside();
        inside.running.remove(&id);
        if let Err(antiphon_replica::calls::AnswerError::TooLarge { limit }) =
            inside.machine.answer(self.now(), id, answer)
        {
            tracing::warn!(target: "antiphon::calls", ?id, limit, "a reply is too large, and its caller gets none");
            // The request is there: it was a moment ago.
            let _ = inside.machine.give_up(self.now(), id, true);
        }
        self.settle_and_wake(inside);
    }

    pub(super) fn give_up(self: &Arc<Self>, id: RequestId, may_have_run: bool) {
        let mut inside = self.inside();
        inside.running.remove(&id);
        // Fails only when nobody waits any more.
        let _ = inside.machine.give_up(self.now(), id, may_have_run);
        self.settle_and_wake(inside);
    }

    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.inside().members.clone()
    }

    pub(super) fn load(&self) -> u32 {
        self.inside().machine.load()
    }

    pub(super) fn ask_to_leave(&self) {
        self.inside().leaves = true;
        self.wake.notify_one();
    }

    pub(super) async fn ended(&self) {
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.sender.spawn(task);
    }

    /// The error of a call when the task is gone.
    pub(super) fn died() -> CallError {
        CallError {
            why: Why::MembershipEnded,
            ran: Ran::Maybe,
            replies: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Sends what is ready. The task takes care of messages for which the group has no room, and of an
    /// earlier deadline. It looks at new receipts when it comes round for something else: a receipt that
    /// decides anything comes with a view, with the loss of the primary, or with the end of the membership.
    fn settle_and_wake(self: &Arc<Self>, mut inside: MutexGuard<'_, Inside>) {
        let blocked = self.settle(&mut inside);
        if !blocked.is_nothing() || is_earlier(inside.machine.poll_timeout(), inside.awaited) {
            self.wake.notify_one();
        }
    }
}

/// The task's side.
impl Shared {
    pub(super) fn new(sender: GroupSender, config: Config) -> Self {
        let host = sender.host();
        let me = sender.incarnation();
        let now = Time::from_micros(host.micros());
        Self {
            sender: sender.without_hold(),
            host,
            inside: Mutex::new(Inside {
                machine: Machine::new(me, now, config),
                me,
                epoch: 0,
                members: Vec::new(),
                handlers: BTreeMap::new(),
                waiting: BTreeMap::new(),
                running: BTreeMap::new(),
                receipts: BTreeMap::new(),
                sent_to_all: VecDeque::new(),
                leaves: false,
                awaited: None,
            }),
            wake: Notify::new(),
            dropped: Notify::new(),
            ended: watch::Sender::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_micros(self.host.micros())
    }

    /// Takes what the group delivered, and does what follows from it.
    pub(super) fn take(self: &Arc<Self>, events: &mut Vec<Event>) -> Need {
        let mut inside = self.inside();
        let now = self.now();
        for event in events.drain(..) {
            inside.handle(now, event);
        }
        let blocked = self.settle(&mut inside);
        let deadline = inside.machine.poll_timeout();
        if is_earlier(deadline, inside.awaited) {
            inside.awaited = deadline;
        }
        Need {
            deadline: inside.awaited,
            blocked,
            leaves: inside.leaves,
        }
    }

    /// The time has come that the task waited for.
    pub(super) fn rang(&self) {
        self.inside().awaited = None;
    }

    /// Takes the receipts that are there; ready if there were any.
    pub(super) fn poll_receipts(self: &Arc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut inside = self.inside();
        let mut known: Vec<(Incarnation, CallId, TellOutcome)> = Vec::new();
        for (to, receipts) in &mut inside.receipts {
            while let Some((call, receipt)) = receipts.front_mut()
                && let Poll::Ready(outcome) = Pin::new(receipt).poll(cx)
            {
                known.push((*to, *call, outcome));
                receipts.pop_front();
            }
        }
        // What is delivered comes by itself.
        let mut not_delivered: Vec<(CallId, Outcome)> = Vec::new();
        while let Some((call, ticket)) = inside.sent_to_all.front()
            && let Poll::Ready(outcome) = self.sender.poll_fate(*ticket, cx)
        {
            if outcome != Outcome::Delivered {
                not_delivered.push((*call, outcome));
            }
            inside.sent_to_all.pop_front();
        }
        if known.is_empty() && not_delivered.is_empty() {
            return Poll::Pending;
        }
        inside.receipts.retain(|_, receipts| !receipts.is_empty());
        let now = self.now();
        for (to, call, outcome) in known {
            inside.machine.handle_tell_receipt(now, to, call, outcome);
        }
        for (call, outcome) in not_delivered {
            inside.machine.handle_receipt(now, call, outcome);
        }
        Poll::Ready(())
    }

    /// The group is about to be left. Without a primary that takes long, and nothing comes to its end by it:
    /// no deadline, no reply. So calls end and handlers stop now, and no new call is taken.
    pub(super) fn part(self: &Arc<Self>) {
        let mut inside = self.inside();
        let (now, me) = (self.now(), inside.me);
        inside.start_over(now, me);
        self.settle(&mut inside);
    }

    /// Nothing more happens: the group was left, or the task was dropped with its node.
    pub(super) fn finish(self: &Arc<Self>) {
        self.part();
        let mut inside = self.inside();
        inside.waiting.clear();
        inside.running.clear();
        inside.receipts.clear();
        inside.sent_to_all.clear();
        let handlers = std::mem::take(&mut inside.handlers);
        drop(inside);
        // The application's code, without the lock.
        drop(handlers);
        self.ended.send_replace(true);
    }

    fn settle(self: &Arc<Self>, inside: &mut Inside) -> Blocked {
        let mut blocked = Blocked::default();
        let (now, epoch, sender) = (self.now(), inside.epoch, &self.sender);
        let (receipts, sent_to_all) = (&mut inside.receipts, &mut inside.sent_to_all);
        inside.machine.outputs(now, |output| match output {
            Output::Send { call, payload } => {
                let sent = sender.try_send_in(epoch, &payload, Level::Agreed);
                blocked.group |= sent.is_err();
                sent_to_all.extend(sent.iter().map(|ticket| (call, *ticket)));
                sent.is_ok()
            }
            Output::Tell { to, payload, receipt } => {
                match sender.try_tell_in(epoch, to, payload) {
                    Ok(fate) => {
                        if let Some(call) = receipt {
                            receipts.entry(to).or_default().push_back((call, fate));
                        }
                        return true;
                    }
                    Err(TellError::Full) => blocked.members.push(to),
                    // A view follows, or the end of this membership.
                    Err(_) => {}
                }
                false
            }
        });
        while let Some(event) = inside.machine.poll_event() {
            self.note(inside, event);
        }
        blocked
    }

    fn note(self: &Arc<Self>, inside: &mut Inside, event: CallsEvent) {
        match event {
            CallsEvent::Ended { call, result } => {
                if let Some(answer) = inside.waiting.remove(&call) {
                    // Fails only when the caller waits no more.
                    let _ = answer.send(result);
                }
            }
            CallsEvent::Request {
                id,
                verb,
                payload,
                deadline,
            } => {
                let Some(handler) = inside.handlers.get(&verb).cloned() else {
                    unreachable!("the machine serves what has a handler: {verb}");
                };
                let request = Request {
                    id,
                    verb,
                    payload,
                    time_left: deadline.since(self.now()),
                    shared: Weakly(self.clone()),
                };
                let (stop, stopped) = oneshot::channel();
                inside.running.insert(id, stop);
                self.sender.spawn(run(self.clone(), handler, request, stopped));
            }
            CallsEvent::Cancelled { request } => {
                inside.running.remove(&request);
            }
            CallsEvent::Malformed { from, what } => {
                tracing::warn!(target: "antiphon::calls", ?from, expected = what, "a message makes no sense");
            }
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Another task's panic is one of ours, and the machine is whole between its calls.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::View(view) => {
                if view.me != self.me {
                    self.start_over(now, view.me);
                }
                self.members.clone_from(&view.members);
                self.machine.handle_view(now, &core_view(&view));
            }
            Event::Message(message) => {
                // A request may wait for a place, and a slice would keep its whole block.
                let payload = Bytes::copy_from_slice(&message.payload);
                self.machine
                    .handle_message(now, message.sender.incarnation, &payload);
            }
            Event::Told(message) => {
                let payload = Bytes::copy_from_slice(&message.payload);
                self.machine
                    .handle_told(now, message.sender.incarnation, &payload);
            }
            Event::Resync { .. } => {
                self.epoch += 1;
                let me = self.me;
                self.start_over(now, me);
            }
            Event::Transitional { .. } | Event::Suspended | Event::Refused { .. } | Event::Left => {}
        }
    }

    fn start_over(&mut self, now: Time, me: Incarnation) {
        self.me = me;
        self.members.clear();
        self.machine.handle_resync(now, me);
    }
}

/// Runs a handler until it has answered or is stopped.
async fn run(shared: Arc<Shared>, handler: Handler, request: Request, stopped: oneshot::Receiver<()>) {
    let mut unanswered = Unanswered {
        shared,
        id: Some(request.id),
    };
    tokio::select! {
        biased;
        _ = stopped => unanswered.id = None,
        answer = async { handler(request).await } => unanswered.answer(answer),
    }
}

/// The caller of a handler that panics is told that there will be no answer.
struct Unanswered {
    shared: Arc<Shared>,
    id: Option<RequestId>,
}

impl Unanswered {
    fn answer(&mut self, answer: Result<Bytes, Bytes>) {
        if let Some(id) = self.id.take() {
            self.shared.answer(id, answer);
        }
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.shared.give_up(id, true);
        }
    }
}

/// Cancels the call when its future is dropped.
pub(super) struct Cancel {
    shared: Arc<Shared>,
    call: Option<CallId>,
}

impl Cancel {
    pub(super) fn on_drop(shared: &Arc<Shared>, call: CallId) -> Self {
        Self {
            shared: shared.clone(),
            call: Some(call),
        }
    }

    pub(super) fn disarm(&mut self) {
        self.call = None;
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.shared.cancel(call);
        }
    }
}
