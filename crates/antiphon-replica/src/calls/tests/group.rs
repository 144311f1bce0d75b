//! A virtual group of callers and servers: messages to all in one stream, direct messages in the view that
//! both members are in, with receipts. It promises what a group promises (G9 to G16, G44), and nothing more.
//!
//! It checks all that members say, as they say it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupView, Outcome, Parting, TellOutcome, Time};
use bytes::Bytes;

use super::super::{
    AnswerError, Call, CallError, CallId, Calls, Config, Event, Output, Ran, Refusal, Replies, RequestId,
    Rule, Target,
};
use super::Planted;
use crate::replica::tests::group::{Chance, view_of};

#[derive(Clone)]
enum Entry {
    View(GroupView),
    Message(Incarnation, Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// Wants to be a member.
    Joining,
    Member,
    /// The primary is lost, as far as it knows.
    Suspended,
    /// It is gone, and the views that follow say that it left.
    Left,
    Dead,
}

struct Tell {
    view: u32,
    payload: Bytes,
    call: Option<CallId>,
}

/// What a handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handler {
    Works,
    Waits(CallId),
}

pub(super) struct Node {
    pub(super) calls: Calls,
    pub(super) me: Incarnation,
    pub(super) life: Life,
    next: usize,
    view: u32,
    members: Vec<Incarnation>,
    accepted: VecDeque<(CallId, Bytes)>,
    /// Sent, and not ordered when it was suspended or died: of no more use.
    ahead: u64,
    /// Calls that have not ended, with their deadlines.
    open: BTreeMap<CallId, Time>,
    handlers: BTreeMap<RequestId, Handler>,
    /// Receipts that are on their way to it.
    receipts: VecDeque<(usize, CallId, TellOutcome)>,
    pub(super) ended: Vec<(CallId, Result<Replies, CallError>)>,
}

/// A run of a handler.
type Execution = (Incarnation, u64, usize);

pub(super) struct Group {
    pub(super) chance: Chance,
    pub(super) nodes: Vec<Node>,
    pub(super) now: u64,
    pub(super) config: Config,
    pub(super) planted: Option<Planted>,
    /// Percent of sends and tells that are refused.
    pub(super) refusing: usize,
    /// A pair takes so many messages.
    pub(super) pair_room: usize,
    pub(super) executed: BTreeSet<Execution>,
    never: BTreeSet<Execution>,
    never_anywhere: BTreeSet<(Incarnation, u64)>,
    /// Calls that their callers have cancelled.
    cancelled: BTreeSet<(Incarnation, u64)>,
    answers: BTreeMap<Execution, Bytes>,
    log: Vec<Entry>,
    tells: BTreeMap<(usize, usize), VecDeque<Tell>>,
    k: u32,
    members: Vec<usize>,
}

impl Group {
    pub(super) fn new(seed: u64, config: Config) -> Self {
        Self {
            chance: Chance(seed),
            nodes: Vec::new(),
            now: 1_000_000,
            config,
            planted: None,
            refusing: 0,
            pair_room: 8,
            executed: BTreeSet::new(),
            never: BTreeSet::new(),
            never_anywhere: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            answers: BTreeMap::new(),
            log: Vec::new(),
            tells: BTreeMap::new(),
            k: 0,
            members: Vec::new(),
        }
    }

    /// So many members that serve these verbs, at rest.
    pub(super) fn of(members: usize, config: Config, verbs: &[&str]) -> Self {
        let mut group = Self::new(7, config);
        for _ in 0..members {
            group.start(verbs);
        }
        group.next_view(false);
        group.settle();
        group
    }

    /// A node that wants to be a member.
    pub(super) fn start(&mut self, verbs: &[&str]) -> usize {
        let me = self.incarnation();
        let mut calls = Calls::new(me, Time::ZERO, self.config.clone());
        calls.planted = self.planted;
        for verb in verbs {
            calls.serve(verb).expect("room for verbs");
        }
        self.add(calls, me)
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation((self.nodes.len() as u128 + 1) << 100)
    }

    fn add(&mut self, calls: Calls, me: Incarnation) -> usize {
        let ahead = self.chance.below(1 << 40) as u64;
        self.nodes.push(Node {
            calls,
            me,
            life: Life::Joining,
            next: 0,
            view: 0,
            members: Vec::new(),
            accepted: VecDeque::new(),
            ahead,
            open: BTreeMap::new(),
            handlers: BTreeMap::new(),
            receipts: VecDeque::new(),
            ended: Vec::new(),
        });
        self.nodes.len() - 1
    }

    pub(super) fn crash(&mut self, node: usize) {
        self.nodes[node].life = Life::Dead;
        self.lose(node);
    }

    pub(super) fn leave(&mut self, node: usize) {
        self.nodes[node].life = Life::Left;
        self.lose(node);
    }

    /// Some of what it had accepted reaches the others.
    fn lose(&mut self, node: usize) {
        let most = self.nodes[node].accepted.len() + 1;
        for _ in 0..self.chance.below(most) {
            self.order(node);
        }
        for (_, tells) in self.tells.range_mut((node, 0)..(node + 1, 0)) {
            tells.truncate(self.chance.below(tells.len() + 1));
        }
        let this = &mut self.nodes[node];
        this.open.clear();
        this.handlers.clear();
    }

    pub(super) fn suspend(&mut self, node: usize) {
        self.nodes[node].life = Life::Suspended;
    }

    pub(super) fn resume(&mut self, node: usize) {
        self.nodes[node].life = Life::Member;
    }

    /// Members that are gone, or were suspended (`without_suspended`) go, joiners come.
    pub(super) fn next_view(&mut self, without_suspended: bool) {
        let goes = |node: &Node| match node.life {
            Life::Dead | Life::Left => true,
            Life::Suspended => without_suspended,
            Life::Joining | Life::Member => false,
        };
        let (gone, stay): (Vec<usize>, Vec<usize>) =
            self.members.iter().partition(|node| goes(&self.nodes[**node]));
        let joining: Vec<_> = (0..self.nodes.len())
            .filter(|node| self.nodes[*node].life == Life::Joining)
            .collect();
        if gone.is_empty() && joining.is_empty() {
            return;
        }
        self.members = stay.iter().copied().chain(joining.iter().copied()).collect();
        self.k += 1;
        if !self.members.is_empty() {
            let names = |nodes: &[usize]| nodes.iter().map(|node| self.nodes[*node].me).collect::<Vec<_>>();
            let (left, crashed): (Vec<usize>, Vec<usize>) = gone
                .iter()
                .partition(|node| self.nodes[**node].life == Life::Left);
            self.log.push(Entry::View(GroupView {
                left: names(&left),
                crashed: names(&crashed),
                transitional: names(&stay),
                ..view_of(self.k, &names(&self.members), &names(&joining))
            }));
        }
        for node in joining {
            self.nodes[node].life = Life::Member;
            self.nodes[node].next = self.log.len() - 1;
        }
        for node in gone {
            if self.nodes[node].life == Life::Suspended {
                self.come_back(node);
            }
        }
    }

    /// It was removed, learns it, and wants to be a member again: as another incarnation.
    fn come_back(&mut self, node: usize) {
        let now = self.time(node);
        self.receipts(node);
        while let Some((call, _)) = self.nodes[node].accepted.pop_front() {
            let outcome = [Outcome::NotDelivered, Outcome::Unknown][self.chance.below(2)];
            self.nodes[node].calls.handle_receipt(now, call, outcome);
        }
        for to in 0..self.nodes.len() {
            for tell in self.tells.remove(&(node, to)).into_iter().flatten() {
                if let Some(call) = tell.call {
                    let to = self.nodes[to].me;
                    let outcome = TellOutcome::NotDelivered(Parting::Ended);
                    self.nodes[node].calls.handle_tell_receipt(now, to, call, outcome);
                }
            }
        }
        self.drain(node);
        let me = self.incarnation();
        self.nodes[node].calls.handle_resync(now, me);
        self.drain(node);
        let open = &self.nodes[node].open;
        assert!(
            open.is_empty(),
            "the membership is over, and these are not: {open:?}"
        );
        let handlers = &self.nodes[node].handlers;
        assert!(
            handlers.is_empty(),
            "the membership is over, and these run: {handlers:?}"
        );
        let spare = Calls::new(me, Time::ZERO, self.config.clone());
        let calls = std::mem::replace(&mut self.nodes[node].calls, spare);
        let ahead = self.nodes[node].ahead;
        self.nodes[node].life = Life::Dead;
        let new = self.add(calls, me);
        self.nodes[new].ahead = ahead;
    }

    /// What became of a call to all that this node has sent: the group delivers it no more.
    pub(super) fn receipt(&mut self, node: usize, call: CallId, outcome: Outcome) {
        let now = self.time(node);
        self.nodes[node].accepted.retain(|(sent, _)| *sent != call);
        self.nodes[node].calls.handle_receipt(now, call, outcome);
        self.drain(node);
    }

    /// Orders one message of this node.
    pub(super) fn order(&mut self, node: usize) -> bool {
        let me = self.nodes[node].me;
        let Some((_, payload)) = self.nodes[node].accepted.pop_front() else {
            return false;
        };
        self.log.push(Entry::Message(me, payload));
        true
    }

    /// Delivers the next entry of the stream to this node.
    pub(super) fn deliver(&mut self, node: usize) -> bool {
        if self.nodes[node].life != Life::Member {
            return false;
        }
        let Some(entry) = self.log.get(self.nodes[node].next).cloned() else {
            return false;
        };
        let now = self.time(node);
        match entry {
            Entry::View(view) if !view.members.contains(&self.nodes[node].me) => return false,
            Entry::View(view) => self.deliver_view(node, now, &view),
            Entry::Message(sender, payload) => {
                self.nodes[node].calls.handle_message(now, sender, &payload);
            }
        }
        self.nodes[node].next += 1;
        self.drain(node);
        true
    }

    fn deliver_view(&mut self, node: usize, now: Time, view: &GroupView) {
        let before = self.chance.percent(30);
        if before {
            self.part(node, view);
            self.receipts(node);
        }
        let this = &mut self.nodes[node];
        this.view = view.id.k;
        this.members.clone_from(&view.members);
        this.calls.handle_view(now, view);
        if !before {
            self.part(node, view);
            self.receipts(node);
        }
        let me = &self.nodes[node];
        for member in me.calls.caller.waiting_for().keys() {
            assert!(
                me.members.contains(member),
                "node {node} waits for a member that is gone"
            );
        }
    }

    /// Pairs with members that are gone end; the others' messages are of this view.
    fn part(&mut self, node: usize, view: &GroupView) {
        for (pair, tells) in &mut self.tells {
            if pair.0 != node && pair.1 != node {
                continue;
            }
            let other = if pair.0 == node { pair.1 } else { pair.0 };
            let name = self.nodes[other].me;
            let left = view.left.contains(&name);
            if !left && !view.crashed.contains(&name) {
                if pair.0 == node {
                    // What was not taken is sent again, and is then a message of this view.
                    tells.iter_mut().for_each(|tell| tell.view = view.id.k);
                }
                continue;
            }
            let lost = std::mem::take(tells);
            if pair.0 != node {
                continue;
            }
            let parting = if left { Parting::Left } else { Parting::Crashed };
            let receipts = &mut self.nodes[node].receipts;
            // A receiver that has not reported may have taken what it did not acknowledge.
            if !left && self.chance.percent(50) {
                for receipt in receipts.iter_mut().filter(|(to, _, _)| *to == other) {
                    receipt.2 = TellOutcome::Unknown(parting.clone());
                }
            }
            for call in lost.into_iter().filter_map(|tell| tell.call) {
                let outcome = if !left && self.chance.percent(50) {
                    TellOutcome::Unknown(parting.clone())
                } else {
                    TellOutcome::NotDelivered(parting.clone())
                };
                receipts.push_back((other, call, outcome));
            }
        }
    }

    /// Hands this node its receipts.
    fn receipts(&mut self, node: usize) {
        let now = self.time(node);
        while let Some((to, call, outcome)) = self.nodes[node].receipts.pop_front() {
            let to = self.nodes[to].me;
            self.nodes[node].calls.handle_tell_receipt(now, to, call, outcome);
        }
    }

    pub(super) fn tell_pairs(&self) -> Vec<(usize, usize)> {
        let waits = |((_, to), tells): (&(usize, usize), &VecDeque<Tell>)| {
            let to = &self.nodes[*to];
            let front = tells.front();
            front.is_some_and(|tell| to.life == Life::Member && to.view == tell.view)
        };
        let pairs = self.tells.iter().filter(|pair| waits(*pair));
        pairs.map(|(pair, _)| *pair).collect()
    }

    pub(super) fn deliver_tell(&mut self, (from, to): (usize, usize)) {
        if let Some(tell) = self.tells.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            if let Some(call) = tell.call {
                let receipts = &mut self.nodes[from].receipts;
                receipts.push_back((to, call, TellOutcome::Delivered));
            }
            let (sender, now) = (self.nodes[from].me, self.time(to));
            self.nodes[to].calls.handle_told(now, sender, &tell.payload);
            self.drain(to);
        }
    }

    pub(super) fn outputs(&mut self, node: usize) {
        if self.nodes[node].life != Life::Member {
            return;
        }
        if self.chance.percent(50) {
            self.receipts(node);
        }
        let now = self.time(node);
        let names: BTreeMap<Incarnation, usize> =
            self.members.iter().map(|n| (self.nodes[*n].me, *n)).collect();
        let this = &mut self.nodes[node];
        let (chance, refusing, tells) = (&mut self.chance, self.refusing, &mut self.tells);
        let (accepted, view, room) = (&mut this.accepted, this.view, self.pair_room);
        this.calls.outputs(now, |output| {
            if chance.percent(refusing) {
                return false;
            }
            match output {
                Output::Send { call, payload } => {
                    let room = accepted.len() < 8;
                    if room {
                        accepted.push_back((call, payload));
                    }
                    room
                }
                Output::Tell { to, payload, receipt } => {
                    let Some(to) = names.get(&to) else { return false };
                    let tells = tells.entry((node, *to)).or_default();
                    let room = tells.len() < room;
                    if room {
                        let call = receipt;
                        tells.push_back(Tell { view, payload, call });
                    }
                    room
                }
            }
        });
        self.drain(node);
    }

    /// Time passes. All that is due happens.
    pub(super) fn pass(&mut self, micros: u64) {
        self.now += micros;
        for node in 0..self.nodes.len() {
            let now = self.time(node);
            let this = &mut self.nodes[node];
            if matches!(this.life, Life::Dead | Life::Left) {
                continue;
            }
            if this.calls.poll_timeout().is_some_and(|at| at <= now) {
                this.calls.handle_timeout(now);
                self.drain(node);
            }
            let late = self.nodes[node].open.iter().find(|(_, at)| **at <= now);
            assert!(late.is_none(), "node {node} waits past its deadline: {late:?}");
        }
    }

    pub(super) fn time(&self, node: usize) -> Time {
        Time::from_micros(self.now + self.nodes[node].ahead)
    }

    pub(super) fn call(&mut self, node: usize, call: Call) -> Result<CallId, Refusal> {
        let now = self.time(node);
        let deadline = now + call.deadline;
        let id = self.nodes[node].calls.call(now, call)?;
        self.nodes[node].open.insert(id, deadline);
        self.drain(node);
        Ok(id)
    }

    /// A call with a minute of time.
    pub(super) fn ask(&mut self, node: usize, target: Target, verb: &str, rule: Rule) -> CallId {
        self.call(node, ask(target, verb, rule))
            .expect("the call is taken")
    }

    pub(super) fn cancel(&mut self, node: usize, call: CallId) {
        let now = self.time(node);
        if self.nodes[node].open.contains_key(&call) {
            let me = self.nodes[node].me;
            self.cancelled.insert((me, call.0));
        }
        self.nodes[node].calls.cancel(now, call);
        self.drain(node);
    }

    /// Calls of this node that have not ended.
    pub(super) fn open(&self, node: usize) -> Vec<CallId> {
        self.nodes[node].open.keys().copied().collect()
    }

    /// What became of a call.
    pub(super) fn result(&self, node: usize, call: CallId) -> Option<&Result<Replies, CallError>> {
        let ended = self.nodes[node].ended.iter().find(|(id, _)| *id == call);
        ended.map(|(_, result)| result)
    }

    pub(super) fn running(&self, node: usize) -> usize {
        self.nodes[node].handlers.len()
    }

    /// A handler that waits for nothing answers.
    pub(super) fn finish(&mut self, node: usize) -> bool {
        let handlers = &self.nodes[node].handlers;
        let ready: Vec<_> = handlers
            .iter()
            .filter(|(_, handler)| **handler == Handler::Works)
            .map(|(id, _)| *id)
            .collect();
        if ready.is_empty() || matches!(self.nodes[node].life, Life::Dead | Life::Left) {
            return false;
        }
        let id = ready[self.chance.below(ready.len())];
        let fails = self.chance.percent(10) && self.refusing > 0;
        self.answer(node, id, fails);
        true
    }

    fn answer(&mut self, node: usize, id: RequestId, fails: bool) {
        let now = self.time(node);
        let payload = Bytes::from(format!("{}:{node}", id.number));
        self.nodes[node].handlers.remove(&id);
        self.answers.insert((id.from, id.number, node), payload.clone());
        let answer = if fails { Err(payload) } else { Ok(payload) };
        // Its time may be over at this moment; then `Cancelled` comes, for a handler that has ended.
        if self.nodes[node].calls.answer(now, id, answer).is_err() {
            self.nodes[node].handlers.insert(id, Handler::Works);
        }
        self.drain(node);
    }

    /// What runs at a node goes without an answer, or before it has begun.
    pub(super) fn give_up(&mut self, node: usize, may_have_run: bool) {
        let now = self.time(node);
        let this = &mut self.nodes[node];
        for request in std::mem::take(&mut this.handlers).into_keys() {
            assert_eq!(this.calls.give_up(now, request, may_have_run), Ok(()));
            let again = this.calls.answer(now, request, Ok(Bytes::new()));
            assert_eq!(again, Err(AnswerError::RequestOver));
            if !may_have_run {
                self.executed.remove(&(request.from, request.number, node));
            }
        }
        self.drain(node);
    }

    /// Delivers all there is until nothing happens any more, and no time passes.
    pub(super) fn settle(&mut self) {
        self.settle_with(false);
    }

    /// The same, and handlers answer.
    pub(super) fn finish_all(&mut self) {
        self.settle_with(true);
    }

    fn settle_with(&mut self, finish: bool) {
        for _ in 0..20_000 {
            let mut busy = false;
            for node in 0..self.nodes.len() {
                self.outputs(node);
                while self.deliver(node) {
                    busy = true;
                }
                if self.nodes[node].life == Life::Member {
                    self.receipts(node);
                    self.drain(node);
                    while self.order(node) {
                        busy = true;
                    }
                }
                busy |= finish && self.finish(node);
            }
            for pair in self.tell_pairs() {
                self.deliver_tell(pair);
                busy = true;
            }
            if !busy {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    pub(super) fn member(&self, node: usize) -> Target {
        Target::Member(self.nodes[node].me)
    }

    pub(super) fn members(&self) -> Vec<usize> {
        self.members.clone()
    }

    /// Nothing runs that its caller has cancelled.
    pub(super) fn check_cancelled(&self) {
        for (node, this) in self.nodes.iter().enumerate() {
            for id in this.handlers.keys() {
                let cancelled = self.cancelled.contains(&(id.from, id.number));
                assert!(!cancelled, "node {node} runs what was cancelled: {id:?}");
            }
        }
    }

    fn index(&self, member: Incarnation) -> usize {
        let found = self.nodes.iter().position(|node| node.me == member);
        found.expect("a member has a node")
    }

    fn drain(&mut self, node: usize) {
        while let Some(event) = self.nodes[node].calls.poll_event() {
            match event {
                Event::Ended { call, result } => self.ended(node, call, result),
                Event::Request { id, verb, .. } => self.run(node, id, &verb),
                Event::Cancelled { request } => {
                    let running = self.nodes[node].handlers.remove(&request);
                    assert!(running.is_some(), "node {node} does not run {request:?}");
                }
                Event::Malformed { from, what } => panic!("{from:?} sent no {what}"),
            }
        }
        let calls = &self.nodes[node].calls;
        let most = self.config.max_running * (usize::from(self.config.max_depth) + 1);
        assert!(self.running(node) <= most, "node {node} runs too much");
        assert!(
            calls.load() as usize >= self.running(node),
            "node {node} has lost a handler"
        );
    }

    fn run(&mut self, node: usize, id: RequestId, verb: &str) {
        let execution = (id.from, id.number, node);
        assert!(self.executed.insert(execution), "G9: {execution:?} ran twice");
        self.check_never(execution);
        self.nodes[node].handlers.insert(id, Handler::Works);
        if verb == "nest" {
            self.nest(node, id);
        }
    }

    /// The handler calls another one.
    fn nest(&mut self, node: usize, id: RequestId) {
        let members = self.nodes[node].members.clone();
        let member = members[self.chance.below(members.len())];
        let call = Call {
            within: Some(id),
            ..ask(Target::Member(member), "nest", Rule::All)
        };
        let now = self.time(node);
        match self.nodes[node].calls.call(now, call) {
            Ok(call) => {
                let deadline = now + Duration::from_secs(60);
                self.nodes[node].open.insert(call, deadline);
                self.nodes[node].handlers.insert(id, Handler::Waits(call));
            }
            Err(Refusal::TooDeep | Refusal::Full) => {}
            Err(other) => panic!("node {node} may not call: {other}"),
        }
    }

    fn ended(&mut self, node: usize, call: CallId, result: Result<Replies, CallError>) {
        let this = &mut self.nodes[node];
        let me = this.me;
        assert!(this.open.remove(&call).is_some(), "{call:?} ended twice");
        for handler in this.handlers.values_mut() {
            if *handler == Handler::Waits(call) {
                *handler = Handler::Works;
            }
        }
        this.ended.push((call, result.clone()));
        let (replies, failures) = match &result {
            Ok(replies) => (&replies.replies, &replies.failures),
            Err(error) => (&error.replies, &error.failures),
        };
        let mut heard = BTreeSet::new();
        for (from, payload) in replies {
            assert!(heard.insert(*from), "{from:?} answered twice");
            let execution = (me, call.0, self.index(*from));
            assert_eq!(
                self.answers.get(&execution),
                Some(payload),
                "not its answer: {execution:?}"
            );
        }
        for (from, failure) in failures {
            assert!(heard.insert(*from), "{from:?} answered twice");
            let execution = (me, call.0, self.index(*from));
            match failure.ran() {
                Ran::No => {
                    self.never.insert(execution);
                    let ran = self.executed.contains(&execution);
                    assert!(!ran, "{execution:?} ran, and is said not to: {failure:?}");
                }
                Ran::Maybe => {}
                Ran::Yes => assert!(self.executed.contains(&execution), "{execution:?} did not run"),
            }
        }
        if let Err(error) = &result
            && error.ran == Ran::No
        {
            self.never_anywhere.insert((me, call.0));
            for execution in self.executed.clone() {
                self.check_never(execution);
            }
        }
    }

    fn check_never(&self, execution: Execution) {
        let never = self.never.contains(&execution);
        let nowhere = self.never_anywhere.contains(&(execution.0, execution.1));
        assert!(!never && !nowhere, "{execution:?} ran, and is said not to");
    }
}

/// A call with a minute of time.
pub(super) fn ask(target: Target, verb: &str, rule: Rule) -> Call {
    Call {
        target,
        verb: verb.to_owned(),
        payload: Bytes::from_static(b"payload"),
        rule,
        deadline: Duration::from_secs(60),
        within: None,
    }
}
