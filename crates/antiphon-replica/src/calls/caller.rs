//! The caller's side: which members a call still waits for, and when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::{Outcome, Parting, TellOutcome, Time};
use bytes::Bytes;

use super::{CallError, CallId, Event, Failure, Ran, Replies, RequestId, Rule, Why};

pub(super) struct Caller {
    /// The last number.
    last: u64,
    open: BTreeMap<u64, Open>,
    deadlines: BTreeSet<(Time, u64)>,
    /// Open calls, by depth.
    in_flight: Vec<usize>,
    /// Of payloads that are not sent to all their receivers yet.
    unsent_bytes: usize,
    /// Calls to all that were cancelled after they were sent and before they were delivered here.
    cancelled: BTreeSet<u64>,
}

struct Open {
    depth: u8,
    deadline: Time,
    within: Option<RequestId>,
    verb: String,
    payload: Bytes,
    /// Messages that were not sent yet: one for each member, or one for the group.
    unsent: usize,
    phase: Phase,
}

enum Phase {
    Pending(Pending),
    /// It has ended by its rule, and the rest of it is still to be sent.
    Ended,
}

struct Pending {
    rule: Rule,
    to_all: Option<ToAll>,
    /// The members that are waited for.
    asked: BTreeMap<Incarnation, Asked>,
    replies: Vec<(Incarnation, Bytes)>,
    failures: Vec<(Incarnation, Failure)>,
}

/// How far a call to all is.
#[derive(Clone, Copy)]
enum ToAll {
    Unsent,
    Sent { at: Time },
    Delivered,
}

/// How far one member's request is.
enum Asked {
    Queued,
    /// With what its receipt says, if that came before the view without the member.
    Sent {
        at: Time,
        fate: Option<TellOutcome>,
    },
    Delivered {
        at: Time,
    },
    /// A view is without the member; the receipt says whether it had the request.
    Parted(Parting),
}

/// A new call.
pub(super) struct New {
    pub(super) depth: u8,
    pub(super) deadline: Time,
    pub(super) within: Option<RequestId>,
    pub(super) verb: String,
    pub(super) payload: Bytes,
    pub(super) rule: Rule,
}

/// What is to be sent of a call.
pub(super) struct Unsent<'a> {
    pub(super) depth: u8,
    pub(super) deadline: Time,
    pub(super) verb: &'a str,
    pub(super) payload: &'a Bytes,
}

/// What was left of a call that ended.
pub(super) struct Leftover {
    /// To all, and not sent.
    pub(super) unsent_to_all: bool,
    /// To all: a member may be told of the end before it has the request.
    pub(super) to_all: bool,
    /// Members with a queued request.
    pub(super) queued: Vec<Incarnation>,
    /// Members that may be running it.
    pub(super) running: Vec<Incarnation>,
}

/// What a reply is to this member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The call waited for it: so long.
    After(Duration),
    /// The call has ended.
    Late,
    /// It cannot be a reply to what was asked.
    Nonsense,
}

impl Caller {
    /// Its calls have numbers above this one.
    pub(super) fn new(begun: u64) -> Self {
        Self {
            last: begun,
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            in_flight: Vec::new(),
            unsent_bytes: 0,
            cancelled: BTreeSet::new(),
        }
    }

    pub(super) fn in_flight(&self, depth: u8) -> usize {
        self.in_flight.get(usize::from(depth)).copied().unwrap_or(0)
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// How many requests wait at each member, or on the way there.
    pub(super) fn waiting_for(&self) -> BTreeMap<Incarnation, u32> {
        let mut waiting = BTreeMap::new();
        for open in self.open.values() {
            if let Phase::Pending(pending) = &open.phase {
                for member in pending.asked.keys() {
                    *waiting.entry(*member).or_default() += 1;
                }
            }
        }
        waiting
    }

    /// Opens a call to these members, or to all (`None`). `me` among them needs no message.
    pub(super) fn open(
        &mut self,
        now: Time,
        new: New,
        members: Option<&BTreeSet<Incarnation>>,
        me: Incarnation,
    ) -> u64 {
        self.last += 1;
        let number = self.last;
        let mut asked = BTreeMap::new();
        for member in members.into_iter().flatten() {
            let how_far = if *member == me {
                Asked::Delivered { at: now }
            } else {
                Asked::Queued
            };
            asked.insert(*member, how_far);
        }
        let unsent = match members {
            None => 1,
            Some(members) => members.iter().filter(|member| **member != me).count(),
        };
        if unsent > 0 {
            self.unsent_bytes += new.payload.len();
        }
        let depth = usize::from(new.depth);
        if self.in_flight.len() <= depth {
            self.in_flight.resize(depth + 1, 0);
        }
        self.in_flight[depth] += 1;
        self.deadlines.insert((new.deadline, number));
        let open = Open {
            depth: new.depth,
            deadline: new.deadline,
            within: new.within,
            verb: new.verb,
            payload: new.payload,
            unsent,
            phase: Phase::Pending(Pending {
                rule: new.rule,
                to_all: members.is_none().then_some(ToAll::Unsent),
                asked,
                replies: Vec::new(),
                failures: Vec::new(),
            }),
        };
        self.open.insert(number, open);
        number
    }

    pub(super) fn unsent(&self, number: u64) -> Option<Unsent<'_>> {
        self.open.get(&number).map(|open| Unsent {
            depth: open.depth,
            deadline: open.deadline,
            verb: &open.verb,
            payload: &open.payload,
        })
    }

    /// The layer below took the request to this member, or to all.
    pub(super) fn sent(&mut self, now: Time, number: u64, to: Option<Incarnation>) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        if let Phase::Pending(pending) = &mut open.phase {
            match to {
                None => pending.to_all = Some(ToAll::Sent { at: now }),
                Some(to) => {
                    let asked = pending.asked.get_mut(&to);
                    let asked = asked.expect("a queued request is waited for");
                    *asked = Asked::Sent { at: now, fate: None };
                }
            }
        }
        self.one_less_unsent(number);
    }

    fn one_less_unsent(&mut self, number: u64) {
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.unsent -= 1;
        if open.unsent > 0 {
            return;
        }
        self.unsent_bytes -= open.payload.len();
        open.payload = Bytes::new();
        if matches!(open.phase, Phase::Ended) {
            self.remove(number);
        }
    }

    /// The receipt of a request to one member.
    pub(super) fn fate(&mut self, number: u64, to: Incarnation, outcome: TellOutcome) {
        let Some(pending) = self.pending(number) else {
            return;
        };
        let Some(asked) = pending.asked.get_mut(&to) else {
            return;
        };
        match (&mut *asked, outcome) {
            (Asked::Sent { at, .. }, TellOutcome::Delivered) => *asked = Asked::Delivered { at: *at },
            (Asked::Sent { fate, .. }, outcome) => *fate = Some(outcome),
            (Asked::Parted(parting), outcome) => {
                let failure = departure(outcome, parting.clone());
                pending.fail(to, failure);
            }
            (Asked::Queued | Asked::Delivered { .. }, _) => {}
        }
    }

    /// A view is without this member. Gives the calls that waited for it.
    pub(super) fn parted(&mut self, member: Incarnation, parting: &Parting) -> Vec<u64> {
        let mut unsent = Vec::new();
        let mut touched = Vec::new();
        for (number, open) in &mut self.open {
            let Phase::Pending(pending) = &mut open.phase else {
                continue;
            };
            let Some(asked) = pending.asked.remove(&member) else {
                continue;
            };
            touched.push(*number);
            if planted!(ForgetTheDeparted) && pending.to_all.is_some() {
                continue;
            }
            let parting = parting.clone();
            let failure = match asked {
                Asked::Queued => {
                    unsent.push(*number);
                    Failure::NotDelivered(parting)
                }
                Asked::Sent { fate: None, .. } => {
                    pending.asked.insert(member, Asked::Parted(parting));
                    continue;
                }
                Asked::Sent {
                    fate: Some(outcome), ..
                } => departure(outcome, parting),
                Asked::Delivered { .. } | Asked::Parted(_) => Failure::Departed(parting),
            };
            pending.failures.push((member, failure));
        }
        for number in unsent {
            self.one_less_unsent(number);
        }
        touched
    }

    /// The rest of a call that had ended is not sent to this member.
    pub(super) fn dropped(&mut self, number: u64) {
        if let Some(open) = self.open.get(&number)
            && matches!(open.phase, Phase::Ended)
        {
            self.one_less_unsent(number);
        }
    }

    /// The group delivered a call of this member to all these. False if it was cancelled.
    pub(super) fn delivered(&mut self, number: u64, members: &[Incarnation]) -> bool {
        if self.cancelled.remove(&number) {
            return false;
        }
        if let Some(pending) = self.pending(number)
            && let Some(ToAll::Sent { at }) = pending.to_all
        {
            pending.to_all = Some(ToAll::Delivered);
            // A faster member may have answered already.
            for member in members {
                if !pending.has_answer(*member) {
                    pending.asked.insert(*member, Asked::Delivered { at });
                }
            }
        }
        true
    }

    /// What the group says of a call to all that it did not deliver here. A member that was cut off with this
    /// one, and is in no primary since, may have run it.
    pub(super) fn not_delivered(&mut self, number: u64, outcome: Outcome) -> Option<Event> {
        if outcome == Outcome::Delivered {
            // It comes, or this membership ends.
            return None;
        }
        self.cancelled.remove(&number);
        let pending = self.pending(number)?;
        if !matches!(pending.to_all, Some(ToAll::Sent { .. })) {
            return None;
        }
        let error = pending.error(Why::NotDelivered, Ran::Maybe);
        self.remove(number);
        Some(ended(number, Err(error)))
    }

    /// The oldest call that waits for this member.
    pub(super) fn oldest_for(&self, member: Incarnation) -> Option<u64> {
        let waits = |open: &Open| match &open.phase {
            Phase::Pending(pending) => pending.asked.contains_key(&member),
            Phase::Ended => false,
        };
        let mut waiting = self.open.iter().filter(|(_, open)| waits(open));
        waiting.next().map(|(number, _)| *number)
    }

    /// A member's answer.
    pub(super) fn reply(
        &mut self,
        now: Time,
        number: u64,
        from: Incarnation,
        result: Result<Bytes, Failure>,
    ) -> Taken {
        if number == 0 || number > self.last {
            return Taken::Nonsense;
        }
        let Some(pending) = self.pending(number) else {
            return Taken::Late;
        };
        let at = match (pending.asked.get(&from), pending.to_all) {
            (Some(Asked::Sent { at, .. } | Asked::Delivered { at }), _) => *at,
            (None, Some(ToAll::Sent { at })) if !pending.has_answer(from) => at,
            _ => return Taken::Nonsense,
        };
        pending.asked.remove(&from);
        match result {
            Ok(payload) => pending.replies.push((from, payload)),
            Err(failure) => pending.failures.push((from, failure)),
        }
        Taken::After(now.since(at))
    }

    /// Ends the call if its rule holds, or cannot hold any more. What is still to be sent of it is sent.
    pub(super) fn settle(&mut self, number: u64) -> Option<Event> {
        let open = self.open.get_mut(&number)?;
        let Phase::Pending(pending) = &mut open.phase else {
            return None;
        };
        let result = match pending.verdict()? {
            true => Ok(Replies {
                replies: std::mem::take(&mut pending.replies),
                failures: std::mem::take(&mut pending.failures),
            }),
            false => Err(pending.error(Why::Failed, Ran::No)),
        };
        open.phase = Phase::Ended;
        if open.unsent == 0 {
            self.remove(number);
        }
        Some(ended(number, result))
    }

    /// Ends the call now.
    pub(super) fn end(&mut self, number: u64, why: Why) -> Option<(Option<Event>, Leftover)> {
        let mut open = self.remove(number)?;
        let mut leftover = Leftover {
            unsent_to_all: false,
            to_all: false,
            queued: Vec::new(),
            running: Vec::new(),
        };
        let Phase::Pending(pending) = &mut open.phase else {
            // Its caller knows already.
            return Some((None, leftover));
        };
        for (member, asked) in &pending.asked {
            match asked {
                Asked::Queued => leftover.queued.push(*member),
                Asked::Sent { fate: None, .. } | Asked::Delivered { .. } => leftover.running.push(*member),
                Asked::Sent { fate: Some(_), .. } | Asked::Parted(_) => {}
            }
        }
        leftover.to_all = pending.to_all.is_some();
        match pending.to_all {
            Some(ToAll::Unsent) => leftover.unsent_to_all = true,
            Some(ToAll::Sent { .. }) if why != Why::MembershipEnded => {
                self.cancelled.insert(number);
            }
            Some(ToAll::Sent { .. } | ToAll::Delivered) | None => {}
        }
        let event = ended(number, Err(pending.error(why, Ran::No)));
        Some((Some(event), leftover))
    }

    /// The calls whose time is over.
    pub(super) fn expired(&self, now: Time) -> Vec<u64> {
        let expired = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        expired.map(|(_, number)| *number).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn is_pending(&self, number: u64) -> bool {
        let open = self.open.get(&number);
        open.is_some_and(|open| matches!(open.phase, Phase::Pending(_)))
    }

    /// The calls that were made within this request and have not ended.
    pub(super) fn within(&self, request: RequestId) -> Vec<u64> {
        if self.in_flight.iter().skip(1).all(|calls| *calls == 0) {
            return Vec::new();
        }
        let is_open = |open: &Open| matches!(open.phase, Phase::Pending(_)) && open.within == Some(request);
        let within = self.open.iter().filter(|(_, open)| is_open(open));
        within.map(|(number, _)| *number).collect()
    }

    /// All calls.
    pub(super) fn all(&self) -> Vec<u64> {
        self.open.keys().copied().collect()
    }

    /// The group will deliver nothing more of what this member sent.
    pub(super) fn forget_sent(&mut self) {
        self.cancelled.clear();
    }

    fn pending(&mut self, number: u64) -> Option<&mut Pending> {
        match &mut self.open.get_mut(&number)?.phase {
            Phase::Pending(pending) => Some(pending),
            Phase::Ended => None,
        }
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        self.deadlines.remove(&(open.deadline, number));
        self.in_flight[usize::from(open.depth)] -= 1;
        if open.unsent > 0 {
            self.unsent_bytes -= open.payload.len();
        }
        Some(open)
    }
}

impl Pending {
    fn has_answer(&self, member: Incarnation) -> bool {
        let replied = self.replies.iter().any(|(from, _)| *from == member);
        replied || self.failures.iter().any(|(from, _)| *from == member)
    }

    fn fail(&mut self, member: Incarnation, failure: Failure) {
        self.asked.remove(&member);
        self.failures.push((member, failure));
    }

    /// Whether the rule holds, or cannot hold any more; `None` while that is open.
    fn verdict(&self) -> Option<bool> {
        let answers = self.replies.len();
        let known = !matches!(self.to_all, Some(ToAll::Unsent | ToAll::Sent { .. }));
        let members = answers + self.asked.len() + self.failures.len();
        let need = match self.rule {
            Rule::First => 1,
            Rule::Count(count) => count,
            Rule::Majority if known => members / 2 + 1,
            Rule::All if known && self.to_all.is_some() => {
                let departed = self.failures.iter().filter(|(_, failure)| failure.is_departure());
                // Somebody has to answer.
                (members - departed.count()).max(1)
            }
            Rule::All if known => members,
            Rule::Each if known => {
                let waits = self.asked.len() > usize::from(planted!(LeaveOneOut));
                return (!waits).then_some(true);
            }
            Rule::Majority | Rule::All | Rule::Each => return None,
        };
        if answers >= need {
            Some(true)
        } else {
            (known && answers + self.asked.len() < need).then_some(false)
        }
    }

    /// What is known when the call ends now; `ran` if no member says more.
    fn error(&mut self, why: Why, ran: Ran) -> CallError {
        let ended = why == Why::MembershipEnded;
        for (member, asked) in std::mem::take(&mut self.asked) {
            let failure = match asked {
                Asked::Sent {
                    fate: Some(TellOutcome::NotDelivered(parting)),
                    ..
                } => Failure::NotDelivered(parting),
                Asked::Sent {
                    fate: Some(TellOutcome::Unknown(parting)),
                    ..
                }
                | Asked::Parted(parting) => Failure::Departed(parting),
                Asked::Sent { .. } | Asked::Delivered { .. } if planted!(DenyWhatWasSent) => Failure::NotSent,
                Asked::Queued if ended => Failure::NotDelivered(Parting::Ended),
                // What is queued when the rule cannot hold any more is sent yet.
                Asked::Queued if why != Why::Failed => Failure::NotSent,
                Asked::Sent { .. } | Asked::Delivered { .. } if ended => Failure::Departed(Parting::Ended),
                Asked::Queued | Asked::Sent { .. } | Asked::Delivered { .. } => Failure::NoAnswer,
            };
            self.failures.push((member, failure));
        }
        let of_members = self.failures.iter().map(|(_, failure)| failure.ran()).max();
        let of_group = match self.to_all {
            Some(ToAll::Sent { .. }) if why != Why::NotDelivered => Ran::Maybe,
            _ => ran,
        };
        let replied = if self.replies.is_empty() {
            Ran::No
        } else {
            Ran::Yes
        };
        CallError {
            why,
            ran: replied.max(of_group).max(of_members.unwrap_or(Ran::No)),
            replies: std::mem::take(&mut self.replies),
            failures: std::mem::take(&mut self.failures),
        }
    }
}

/// What a receipt says of a member that is gone.
fn departure(outcome: TellOutcome, parting: Parting) -> Failure {
    match outcome {
        TellOutcome::NotDelivered(cause) => Failure::NotDelivered(cause),
        TellOutcome::Unknown(cause) => Failure::Departed(cause),
        TellOutcome::Delivered => Failure::Departed(parting),
    }
}

fn ended(number: u64, result: Result<Replies, CallError>) -> Event {
    Event::Ended {
        call: CallId(number),
        result,
    }
}
