//! An application whose members call each other: the shipping `Calls` between the node, callers and handlers.
//!
//! ```text
//!  node ── events of the group, receipts ──► unread ──► Calls ──► callers: what became of calls
//!   ▲                                      read with a   │ ▲  └──► handlers: begin, stop
//!   └── outbox ◄── request to all ──────────── lag ──────┤ └────── callers and handlers: calls, answers
//!   └── tell   ◄── requests, replies, cancellations ─────┘
//! ```
//! As in the library, a task reads the group, and callers and handlers do not wait for it: what they say is
//! sent at once, also while the task is behind with views that are there. Receipts come on a way of their
//! own, before or after the views. After the application has left, nothing is read any more. All calls end
//! when the group is left; the library's end earlier, when it begins to leave.

mod callers;
mod handlers;

use antiphon_core::wire::Level;
use antiphon_core::{Outcome, TellOutcome, Ticket, Time};
use antiphon_replica::calls::{
    CallId, Calls, Config as CallsConfig, Event as Said, Output as Wanted, RequestId,
};

use self::handlers::Handler;
use super::driven::{BETWEEN_WAKES, Unread, bare, number_of};
use super::*;
use crate::plan::Calling as CallingPlan;
use crate::trace::CallDeed;

/// The verb that all members serve all the time.
const REST: &str = "rest";

/// Calls, and what is around them.
pub(in crate::world) struct Calling {
    calls: Calls,
    me: Incarnation,
    /// The view that the application took last.
    view: Option<Arc<GroupView>>,
    unread: Unread,
    receipts: VecDeque<Receipt>,
    /// When the task comes to what is unread.
    reads_at: Micros,
    /// The calls whose requests were told, by receiver and ticket.
    told: BTreeMap<(Incarnation, u64), CallId>,
    /// The numbers behind requests to all, and which calls they are of; and the calls, by ticket.
    sent: BTreeMap<u64, u64>,
    sent_to_all: BTreeMap<u64, CallId>,
    open: BTreeMap<CallId, Open>,
    handlers: BTreeMap<RequestId, Handler>,
    served: BTreeSet<u64>,
    pub(super) wakes_at: Micros,
}

/// What became of a request.
enum Receipt {
    /// To this member.
    Told(Incarnation, CallId, TellOutcome),
    /// To all.
    Sent(CallId, Outcome),
}

/// A call that has not ended.
struct Open {
    op: u64,
    /// When its caller will want the answer no more.
    cancels_at: Micros,
    /// The handler that waits for it.
    handler: Option<RequestId>,
}

impl World {
    /// Whether the members of this group call each other.
    pub(crate) fn has_calls(&self, group: GroupIndex) -> bool {
        self.plan.calling.as_ref().is_some_and(|it| it.group == group)
    }

    /// The application joins the group: it may call, and serves.
    pub(super) fn begin_calls(&mut self, id: ProcessId, group: GroupIndex) {
        let Some(plan) = self.plan.calling.clone().filter(|it| it.group == group) else {
            return;
        };
        let config = CallsConfig {
            max_running: plan.max_running,
            max_queued: plan.max_queued,
            max_depth: 3,
            ..CallsConfig::default()
        };
        let process = &self.processes[id];
        let (me, now) = (process.node.incarnation(), process.clock.local(self.now));
        self.note(id, Seen::Call(group, CallDeed::Is(me)));
        let mut it = Calling {
            calls: Calls::new(me, now, config),
            me,
            view: None,
            unread: Unread::default(),
            receipts: VecDeque::new(),
            reads_at: 0,
            told: BTreeMap::new(),
            sent: BTreeMap::new(),
            sent_to_all: BTreeMap::new(),
            open: BTreeMap::new(),
            handlers: BTreeMap::new(),
            served: BTreeSet::new(),
            wakes_at: Micros::MAX,
        };
        let most: Vec<u64> = (0..plan.verbs).filter(|_| self.random.percent(75)).collect();
        self.serve(id, group, &mut it, REST);
        for verb in most {
            it.served.insert(verb);
            self.serve(id, group, &mut it, &verb_of(verb));
        }
        self.processes[id].calling = Some(it);
    }

    fn serve(&mut self, id: ProcessId, group: GroupIndex, it: &mut Calling, verb: &str) {
        let deed = match it.calls.serve(verb) {
            Ok(()) => CallDeed::Serves {
                verb: verb.to_owned(),
                serves: true,
            },
            Err(refusal) => CallDeed::Wrong(format!("{verb} cannot be served: {refusal}")),
        };
        self.note(id, Seen::Call(group, deed));
    }

    /// The group tells the application something: it waits until the task reads it.
    pub(super) fn give_calls(&mut self, id: ProcessId, given: Given) {
        self.let_lag(id);
        if let Some(it) = &mut self.processes[id].calling {
            it.unread.add(given);
        }
    }

    /// The same of what became of direct messages.
    pub(super) fn give_receipts(
        &mut self,
        id: ProcessId,
        to: Incarnation,
        first: Ticket,
        count: u64,
        outcome: &TellOutcome,
    ) {
        self.let_lag(id);
        let Some(it) = &mut self.processes[id].calling else {
            return;
        };
        for ticket in first.0..first.0 + count {
            if let Some(call) = it.told.remove(&(to, ticket)) {
                it.receipts.push_back(Receipt::Told(to, call, outcome.clone()));
            }
        }
    }

    /// The same of messages to all.
    pub(super) fn give_receipts_of_all(
        &mut self,
        id: ProcessId,
        group: GroupIndex,
        first: u64,
        count: u64,
        outcome: Outcome,
    ) {
        if !self.has_calls(group) {
            return;
        }
        self.let_lag(id);
        let Some(it) = &mut self.processes[id].calling else {
            return;
        };
        for ticket in first..first + count {
            // What is delivered comes.
            if let Some(call) = it.sent_to_all.remove(&ticket)
                && outcome != Outcome::Delivered
            {
                it.receipts.push_back(Receipt::Sent(call, outcome));
            }
        }
    }

    /// A task that has nothing to read comes to what there is next at once, or later.
    fn let_lag(&mut self, id: ProcessId) {
        let lag = self.plan.calling.as_ref().map_or(0, |plan| plan.lag);
        let later = if self.random.percent(40) {
            self.random.below(lag.max(1))
        } else {
            0
        };
        let reads_at = self.now + later;
        if let Some(it) = self.processes[id].calling.as_mut().filter(|it| it.has_read()) {
            it.reads_at = reads_at;
        }
    }

    /// Callers, handlers and the task do what is due. Whether there was anything.
    pub(super) fn converse(&mut self, id: ProcessId) -> bool {
        let Some(plan) = self.plan.calling.clone() else {
            return false;
        };
        let process = &mut self.processes[id];
        let left = process.uses.get(&plan.group).is_none_or(|usage| usage.left);
        let Some(mut it) = process
            .calling
            .take_if(|_| process.ended.is_none() && !process.stalled)
        else {
            return false;
        };
        let now = process.clock.local(self.now);
        let mut any = false;
        if !left && it.reads_at <= self.now {
            any |= self.read_for_calls(id, &plan, &mut it, now);
        }
        loop {
            let acted = self.let_callers_act(id, &plan, &mut it, now)
                | self.let_handlers_act(id, &plan, &mut it, now)
                | self.send_for_calls(id, &plan, &mut it, now)
                | self.note_said(id, &plan, &mut it, now);
            any |= acted;
            if !acted {
                break;
            }
        }
        self.set_alarm(id, &mut it, left);
        self.processes[id].calling = Some(it);
        any
    }

    /// The task reads all that there is.
    fn read_for_calls(&mut self, id: ProcessId, plan: &CallingPlan, it: &mut Calling, now: Time) -> bool {
        let leased = self.processes[id].leased;
        let mut any = false;
        loop {
            let receipts_first = it.unread.is_empty() || self.random.percent(50);
            let given = match receipts_first && !it.receipts.is_empty() {
                true => None,
                false => it.unread.next(leased),
            };
            if let Some(given) = given {
                self.read_given(id, plan.group, it, now, given);
            } else {
                match it.receipts.pop_front() {
                    Some(Receipt::Told(to, call, outcome)) => {
                        it.calls.handle_tell_receipt(now, to, call, outcome);
                    }
                    Some(Receipt::Sent(call, outcome)) => {
                        if let Some(Open { op, .. }) = it.open.get(&call) {
                            self.count("call_not_delivered");
                            self.note(id, Seen::Call(plan.group, CallDeed::NotDelivered { op: *op }));
                        }
                        it.calls.handle_receipt(now, call, outcome);
                    }
                    None => return any,
                }
            }
            any = true;
            self.note_said(id, plan, it, now);
        }
    }

    fn read_given(&mut self, id: ProcessId, group: GroupIndex, it: &mut Calling, now: Time, given: Given) {
        match given {
            Given::View(view) => {
                self.note(id, Seen::Call(group, CallDeed::Takes(view.clone())));
                it.calls.handle_view(now, &view);
                it.view = Some(view);
            }
            Given::Message(sender, bytes) => {
                let own = number_of(&bytes).and_then(|number| it.sent.remove(&number));
                if let Some(op) = own.filter(|_| sender == it.me) {
                    self.note(id, Seen::Call(group, CallDeed::Delivered { op }));
                }
                it.calls.handle_message(now, sender, &bare(&bytes));
            }
            Given::Told(from, bytes) => it.calls.handle_told(now, from, &bare(&bytes)),
            Given::Void(me, _) => {
                it.me = me;
                it.view = None;
                self.note(id, Seen::Call(group, CallDeed::Is(me)));
                it.calls.handle_resync(now, me);
            }
            Given::Transitional(_) | Given::Suspended | Given::Resumed | Given::Lease(_) => {}
        }
    }

    /// Sends what there is room for.
    fn send_for_calls(&mut self, id: ProcessId, plan: &CallingPlan, it: &mut Calling, now: Time) -> bool {
        let group = plan.group;
        // As the library's handles: what the member sends is for a membership that it knows of.
        let over = it.unread.has_void();
        let (mut sent, mut told) = (false, false);
        let Calling {
            calls,
            open,
            sent: numbers,
            sent_to_all,
            told: tickets,
            ..
        } = it;
        calls.outputs(now, |wanted| match wanted {
            Wanted::Send { call, payload } => {
                let taken = match over {
                    true => None,
                    false => self.send_driven(id, group, Level::Agreed, &payload),
                };
                if let (Some((number, ticket)), Some(open)) = (taken, open.get(&call)) {
                    numbers.insert(number, open.op);
                    sent_to_all.insert(ticket, call);
                }
                sent |= taken.is_some();
                taken.is_some()
            }
            Wanted::Tell { to, payload, receipt } => {
                let ticket = match over {
                    true => None,
                    false => self.tell_driven(id, group, to, &payload),
                };
                if let (Some(ticket), Some(call)) = (ticket, receipt) {
                    tickets.insert((to, ticket), call);
                }
                told |= ticket.is_some();
                ticket.is_some()
            }
        });
        if sent {
            self.hand_over_driven(id, group);
        }
        sent | told
    }

    /// Callers and handlers hear what the calls say.
    fn note_said(&mut self, id: ProcessId, plan: &CallingPlan, it: &mut Calling, now: Time) -> bool {
        let mut any = false;
        while let Some(said) = it.calls.poll_event() {
            any = true;
            let deed = match said {
                Said::Ended { call, result } => {
                    if let Ok(told) = &result {
                        self.count("call_ok");
                        // Only a call for the answer of each member ends well without any reply.
                        if told.replies.is_empty() {
                            self.count("call_ok_without_reply");
                        }
                    }
                    self.call_ended(it, call, result)
                }
                Said::Request {
                    id: request,
                    verb,
                    payload,
                    deadline,
                } => {
                    let within = deadline.since(now).as_micros() as Micros;
                    self.request_begins(it, now, request, verb, &payload, within)
                }
                Said::Cancelled { request } => match it.handlers.remove(&request) {
                    Some(handler) => CallDeed::Stops { op: handler.op },
                    None => CallDeed::Wrong(format!("{request:?} is to stop, and does not run")),
                },
                Said::Malformed { .. } => {
                    self.count("call_malformed");
                    continue;
                }
            };
            self.note(id, Seen::Call(plan.group, deed));
        }
        any
    }

    fn set_alarm(&mut self, id: ProcessId, it: &mut Calling, left: bool) {
        let clock = &self.processes[id].clock;
        let timeout = it.calls.poll_timeout().filter(|_| !left);
        let timeout = timeout.map(|at| clock.global(at));
        let reads = Some(it.reads_at).filter(|_| !left && !it.has_read());
        let cancels = it.open.values().map(|open| open.cancels_at);
        let handlers = it.handlers.values().map(|handler| handler.due);
        let due = timeout
            .into_iter()
            .chain(reads)
            .chain(cancels)
            .chain(handlers)
            .min();
        let at = due.unwrap_or(Micros::MAX);
        if at != Micros::MAX {
            let at = at.max(self.now + BETWEEN_WAKES);
            if at < it.wakes_at {
                it.wakes_at = at;
                self.agenda.add(at, Happening::Wake(id));
            }
        }
    }

    /// The group was left: all ends.
    pub(super) fn finish_calls(&mut self, id: ProcessId, group: GroupIndex) {
        let Some(plan) = self.plan.calling.clone().filter(|it| it.group == group) else {
            return;
        };
        let process = &mut self.processes[id];
        let now = process.clock.local(self.now);
        if let Some(mut it) = process.calling.take() {
            let me = it.me;
            it.calls.handle_resync(now, me);
            self.note_said(id, &plan, &mut it, now);
        }
    }

    /// At rest: what is not as it should be, if anything is. No call waits, no handler runs.
    pub(crate) fn unsettled_calls(&self) -> Option<String> {
        let group = self.plan.calling.as_ref()?.group;
        let slots = self.live_slots().into_iter();
        let mut wanting = slots.filter(|slot| self.wants_group(*slot, group));
        wanting.find_map(|slot| {
            let it = self.processes[self.process_at(slot)?].calling.as_ref()?;
            let quiet = it.open.is_empty() && it.handlers.is_empty() && it.calls.load() == 0;
            (!quiet || !it.has_read()).then(|| {
                let calls: Vec<u64> = it.open.values().map(|open| open.op).collect();
                let handlers: Vec<u64> = it.handlers.values().map(|handler| handler.op).collect();
                let load = it.calls.load();
                format!(
                    "n{slot} at rest: the calls {calls:?} have not ended, handlers run for {handlers:?}, \
                     {load} requests run or wait"
                )
            })
        })
    }
}

impl Calling {
    /// Whether the task has read all that there is, or that it may read.
    fn has_read(&self) -> bool {
        self.unread.is_empty() && self.receipts.is_empty()
    }
}

fn verb_of(verb: u64) -> String {
    format!("v{verb}")
}
