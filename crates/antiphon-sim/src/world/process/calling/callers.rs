//! What applications call, drawn from the seed.

use std::time::Duration;

use antiphon_replica::calls::{Call, CallError, Replies, Rule, Target};

use super::handlers::{Asked, Does};
use super::*;
use crate::agenda::{MILLIS, SECONDS};
use crate::trace::CallDeed;

/// The time of a call that is made at rest: long enough on any network of a plan.
pub(super) const AT_REST: Micros = 8 * SECONDS;

/// A call in the making.
pub(super) struct New {
    pub(super) target: Target,
    pub(super) rule: Rule,
    pub(super) verb: String,
    pub(super) deadline: Micros,
    pub(super) does: Does,
    pub(super) takes: Micros,
    /// The handler that makes it, and its call.
    pub(super) within: Option<(RequestId, u64)>,
    pub(super) at_rest: bool,
}

impl World {
    /// The next call of a member.
    pub(in crate::world) fn call(&mut self, id: ProcessId) {
        let Some(plan) = self.plan.calling.clone() else {
            return;
        };
        if self.processes[id].ended.is_some() {
            return;
        }
        let again = self.now + plan.every / 2 + self.random.below(plan.every) + 1;
        self.agenda.add(again, Happening::Call(id));
        let process = &self.processes[id];
        if !self.loaded || !self.reads_now(id) || process.stalled || process.leaving {
            return;
        }
        self.with_calls(id, &plan, |world, it, now| {
            if world.random.percent(3) {
                world.change_what_is_served(id, &plan, it, now);
            }
            let new = world.a_call(&plan, it);
            // Now and then more than one member has places for, and room.
            let most = (plan.max_running + plan.max_queued) as u64;
            let burst = if world.random.percent(8) {
                2 + world.random.below(2 * most)
            } else {
                1
            };
            for _ in 0..burst.min(40) {
                let again = New {
                    target: new.target.clone(),
                    verb: new.verb.clone(),
                    ..new
                };
                world.make_call(id, &plan, it, now, again);
            }
        });
        self.drive(id);
    }

    /// At rest: each member calls all. These are more calls than a member has places for, and handlers wait
    /// for handlers in a circle. And each calls any member for each verb that some member serves. Which call
    /// was refused, if any was.
    pub(crate) fn call_at_rest(&mut self) -> Option<(Slot, String)> {
        let plan = self.plan.calling.clone()?;
        let served = self.served_by_any(&plan);
        let mut refused = None;
        for slot in self.live_slots() {
            let wants = self.wants_group(slot, plan.group);
            let Some(id) = self.process_at(slot).filter(|_| wants) else {
                continue;
            };
            self.with_calls(id, &plan, |world, it, now| {
                let Some(view) = it.view.clone() else {
                    return;
                };
                let mine = view.members.iter().position(|member| *member == it.me);
                let next = view.members[mine.map_or(0, |mine| (mine + 1) % view.members.len())];
                let to_next = |does| New {
                    target: Target::Member(next),
                    rule: Rule::First,
                    verb: REST.to_owned(),
                    deadline: AT_REST,
                    does,
                    takes: MILLIS,
                    within: None,
                    at_rest: true,
                };
                let to_all = New {
                    target: Target::All,
                    rule: Rule::All,
                    ..to_next(Does::Answers)
                };
                let of_each = New {
                    target: Target::All,
                    rule: Rule::Each,
                    ..to_next(Does::Fails)
                };
                let to_any = |number: &u64| New {
                    target: Target::Any,
                    verb: verb_of(*number),
                    ..to_next(Does::Answers)
                };
                let mut all = vec![to_all, of_each, to_next(Does::CallsBack { levels: 3 })];
                all.extend((0..plan.max_running + plan.max_queued + 2).map(|_| to_next(Does::Answers)));
                all.extend(served.iter().map(to_any));
                for new in all {
                    let what = format!("{:?} for {}", new.target, new.verb);
                    if world.make_call(id, &plan, it, now, new).is_none() {
                        refused = Some((slot, what));
                    }
                }
            });
            self.drive(id);
        }
        refused
    }

    /// The verbs that some member serves which others can call.
    fn served_by_any(&self, plan: &CallingPlan) -> BTreeSet<u64> {
        let slots = self.live_slots().into_iter();
        let members = slots.filter(|slot| self.wants_group(*slot, plan.group));
        let all = members.filter_map(|slot| self.processes[self.process_at(slot)?].calling.as_ref());
        all.flat_map(|it| &it.served).copied().collect()
    }

    fn with_calls(
        &mut self,
        id: ProcessId,
        plan: &CallingPlan,
        act: impl FnOnce(&mut World, &mut Calling, Time),
    ) {
        let process = &mut self.processes[id];
        let in_it = process.uses.get(&plan.group).is_some_and(|usage| !usage.left);
        let now = process.clock.local(self.now);
        if let Some(mut it) = process.calling.take_if(|_| in_it) {
            act(self, &mut it, now);
            self.processes[id].calling = Some(it);
        }
    }

    fn change_what_is_served(&mut self, id: ProcessId, plan: &CallingPlan, it: &mut Calling, now: Time) {
        let number = self.random.below(plan.verbs);
        let verb = verb_of(number);
        if it.served.insert(number) {
            return self.serve(id, plan.group, it, &verb);
        }
        it.served.remove(&number);
        it.calls.stop_serving(now, &verb);
        let serves = false;
        self.note(id, Seen::Call(plan.group, CallDeed::Serves { verb, serves }));
    }

    /// A call that no handler makes.
    fn a_call(&mut self, plan: &CallingPlan, it: &Calling) -> New {
        let (target, rule) = self.whom_to_ask(it);
        let deadline = if self.random.percent(30) {
            self.random.range(1_000, 50 * MILLIS)
        } else {
            self.random.range(50 * MILLIS, plan.deadline)
        };
        let does = match self.random.below(100) as u32 {
            roll if roll < plan.silent_percent => Does::Never,
            roll if roll < plan.silent_percent + plan.error_percent => match self.random.below(4) {
                0 => Does::GivesUp { begins: true },
                1 => Does::GivesUp { begins: false },
                _ => Does::Fails,
            },
            roll if roll < plan.silent_percent + plan.error_percent + plan.nested_percent => {
                let levels = self.random.range(1, 4) as u8;
                match self.random.percent(50) {
                    true => Does::Calls { levels },
                    false => Does::CallsBack { levels },
                }
            }
            _ => Does::Answers,
        };
        New {
            target,
            rule,
            verb: verb_of(self.random.below(plan.verbs)),
            deadline,
            does,
            takes: self.random.below(plan.takes),
            within: None,
            at_rest: false,
        }
    }

    /// One member, several, any one or all; and how many must answer.
    pub(super) fn whom_to_ask(&mut self, it: &Calling) -> (Target, Rule) {
        let mut members = match &it.view {
            Some(view) => view.members.clone(),
            None => vec![it.me],
        };
        let target = match self.random.below(100) {
            0..40 => Target::Member(*self.random.pick(&members)),
            40..55 => {
                let count = 1 + self.random.index(members.len());
                self.random.shuffle(&mut members);
                members.truncate(count);
                Target::Members(members.clone())
            }
            55..70 => Target::Any,
            _ => Target::All,
        };
        let rule = match self.random.below(6) {
            0 => Rule::First,
            1 => Rule::Majority,
            2 => Rule::Count(1 + self.random.index(members.len())),
            3 => Rule::Each,
            _ => Rule::All,
        };
        match target {
            Target::Member(_) | Target::Any => (target, Rule::First),
            target => (target, rule),
        }
    }

    /// Makes a call, if it is taken.
    pub(super) fn make_call(
        &mut self,
        id: ProcessId,
        plan: &CallingPlan,
        it: &mut Calling,
        now: Time,
        new: New,
    ) -> Option<CallId> {
        self.numbers += 1;
        let op = self.numbers;
        let asked = Asked {
            op,
            takes: new.takes,
            does: new.does,
            at_rest: new.at_rest,
        };
        let padding = self.random.index(plan.bytes);
        let payload = asked.bytes(&self.payload(padding));
        let hashed = hash(&payload, 0);
        let call = Call {
            target: new.target.clone(),
            verb: new.verb.clone(),
            payload,
            rule: new.rule,
            deadline: Duration::from_micros(new.deadline),
            within: new.within.map(|(request, _)| request),
        };
        let call = match it.calls.call(now, call) {
            Ok(call) => call,
            Err(_) => {
                self.count("call_refused");
                return None;
            }
        };
        let cancels = new.within.is_none() && !new.at_rest && self.random.percent(plan.cancel_percent);
        let cancels_at = match cancels {
            true => self.now + self.random.below(new.deadline.min(SECONDS)),
            false => Micros::MAX,
        };
        it.open.insert(
            call,
            Open {
                op,
                cancels_at,
                handler: new.within.map(|(request, _)| request),
            },
        );
        let deed = CallDeed::Calls {
            op,
            within: new.within.map(|(_, op)| op),
            target: new.target,
            rule: new.rule,
            deadline: new.deadline,
            verb: new.verb,
            payload: hashed,
            at_rest: new.at_rest,
        };
        self.note(id, Seen::Call(plan.group, deed));
        Some(call)
    }

    /// Callers give up what they do not want any more.
    pub(super) fn let_callers_act(
        &mut self,
        id: ProcessId,
        plan: &CallingPlan,
        it: &mut Calling,
        now: Time,
    ) -> bool {
        let mut any = false;
        for (call, open) in &mut it.open {
            if open.cancels_at <= self.now {
                open.cancels_at = Micros::MAX;
                any = true;
                self.note(id, Seen::Call(plan.group, CallDeed::Cancels { op: open.op }));
                it.calls.cancel(now, *call);
            }
        }
        any
    }

    /// A caller is told what became of its call; if it is a handler, that goes on.
    pub(super) fn call_ended(
        &mut self,
        it: &mut Calling,
        call: CallId,
        result: Result<Replies, CallError>,
    ) -> CallDeed {
        let Some(open) = it.open.remove(&call) else {
            return CallDeed::Wrong(format!("{call:?} has ended, and was not open"));
        };
        let waiting = open.handler.and_then(|request| it.handlers.get_mut(&request));
        if let Some(handler) = waiting {
            handler.due = self.now;
            handler.does = match result {
                Ok(_) => Does::Answers,
                Err(_) => Does::Fails,
            };
        }
        CallDeed::Ended { op: open.op, result }
    }
}
