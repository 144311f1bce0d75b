//! A virtual group: one stream of views and messages, which each member reads at its own pace, and direct
//! messages in the view that both members are in. It promises what a group in total order promises (G9 to
//! G16, G21), and nothing more: members lag, sends are refused, what was not ordered dies with its sender.
//!
//! It checks all that members say, as they say it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use antiphon_core::wire::{GroupId, GroupViewId, Incarnation, ViewId};
use antiphon_core::{GroupView, Order, Time};
use bytes::Bytes;

use super::super::{
    Ack, Config, Event, Failure, Output, Reading, Replica, RequestId, Spill, SpillId, Standing,
};
use super::Planted;
use super::ledger::{Command, Happened, Ledger, What};
use super::shown::Shown;
use crate::{AgreedTime, At, Machine};

/// SplitMix64.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

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
    /// It asked to leave.
    Leaving,
    /// The primary is lost, as far as it knows.
    Suspended,
    Dead,
}

pub(super) struct Node {
    pub(super) replica: Replica<Ledger>,
    pub(super) me: Incarnation,
    pub(super) life: Life,
    pub(super) broken: Arc<AtomicBool>,
    /// Whether its state may be wrong.
    pub(super) tainted: bool,
    /// The next entry to deliver.
    next: usize,
    view: u32,
    members: Vec<Incarnation>,
    accepted: VecDeque<Bytes>,
    /// Its clock is ahead of the group's by so much.
    ahead: u64,
    /// The file of what it holds, and what is to be done with it.
    file: Vec<u8>,
    spill: Option<(SpillId, Spill)>,
    /// What is read of its state.
    reading: Option<Reading<<Ledger as Machine>::Snapshot>>,
    /// The last place that its machine reached.
    reached: Option<At>,
    asked: BTreeMap<RequestId, Asked>,
    pub(super) answers: Vec<(RequestId, Result<(), Failure>)>,
    pub(super) said: Vec<String>,
    /// The members, and which of them have the state, as it was told last.
    pub(super) members_told: Option<Vec<(Incarnation, bool)>>,
    /// The members that gave it a part of the state, each once.
    pub(super) sources: Vec<Incarnation>,
    pub(super) left: Option<String>,
}

impl Node {
    /// How far its state is.
    fn place(&self) -> Place {
        let agreed = &self.replica.agreed;
        (agreed.founded, agreed.index)
    }
}

struct Asked {
    /// None for a read.
    command: Option<u32>,
    ack: Ack,
    /// What was answered to anyone before.
    floor: Option<Place>,
}

/// A view that nobody left.
pub(crate) fn view_of(k: u32, members: &[Incarnation], joined: &[Incarnation]) -> GroupView {
    let node = ViewId { epoch: 1, counter: k };
    GroupView {
        id: GroupViewId { node, number: k, k },
        group: GroupId(1),
        name: "g".to_owned(),
        order: Order::Total,
        members: members.to_vec(),
        joined: joined.to_vec(),
        left: Vec::new(),
        crashed: Vec::new(),
        causes: Vec::new(),
        transitional: Vec::new(),
        gone: Vec::new(),
    }
}

/// Founding and index.
type Place = (u64, u64);

pub(super) struct Group {
    pub(super) chance: Chance,
    pub(super) nodes: Vec<Node>,
    pub(super) now: u64,
    pub(super) config: Config,
    pub(super) ballast: usize,
    pub(super) planted: Option<Planted>,
    /// Percent of sends and tells that are refused.
    pub(super) refusing: usize,
    /// Direct messages to these are not delivered.
    pub(super) deaf: BTreeSet<usize>,
    /// Chunks of the state are altered on their way.
    pub(super) damaging: bool,
    /// Files can be used; otherwise what is to be done with them is not begun.
    pub(super) disks: bool,
    /// States are read; otherwise what was begun is not done.
    pub(super) reads: bool,
    /// What files answer, if it is an error.
    pub(super) disk_error: Option<&'static str>,
    /// Files give back other bytes than were written.
    pub(super) disk_damages: bool,
    log: Vec<Entry>,
    tells: BTreeMap<(usize, usize), VecDeque<(u32, Bytes)>>,
    k: u32,
    members: Vec<usize>,
    next_command: u32,
    facts: BTreeMap<Place, (AgreedTime, Happened)>,
    applied: BTreeMap<u32, Place>,
    never: BTreeSet<u32>,
    answered: Option<Place>,
    pub(super) most_held: usize,
    pub(super) most_spilled: u64,
    pub(super) shown: Shown,
}

impl Group {
    pub(super) fn new(seed: u64, config: Config) -> Self {
        Self {
            chance: Chance(seed),
            nodes: Vec::new(),
            now: 1_000_000,
            config,
            ballast: 100_000,
            planted: None,
            refusing: 0,
            deaf: BTreeSet::new(),
            damaging: false,
            disks: true,
            reads: true,
            disk_error: None,
            disk_damages: false,
            log: Vec::new(),
            tells: BTreeMap::new(),
            k: 0,
            members: Vec::new(),
            next_command: 0,
            facts: BTreeMap::new(),
            applied: BTreeMap::new(),
            never: BTreeSet::new(),
            answered: None,
            most_held: 0,
            most_spilled: 0,
            shown: Shown::default(),
        }
    }

    /// A node that wants to be a member.
    pub(super) fn start(&mut self, definition: &str) -> usize {
        self.start_as(self.incarnation(), definition)
    }

    /// A node that has left wants to be a member again, as the same incarnation and with nothing of what it
    /// had.
    pub(super) fn join_again(&mut self, node: usize) -> usize {
        assert_eq!(self.nodes[node].life, Life::Dead);
        self.start_as(self.nodes[node].me, "ledger")
    }

    fn start_as(&mut self, me: Incarnation, definition: &str) -> usize {
        let broken = Arc::new(AtomicBool::new(false));
        let (ballast, breaks, definition) = (self.ballast, broken.clone(), definition.to_owned());
        let make = move || Ledger::new(ballast, breaks.clone(), &definition);
        let mut replica = Replica::new(me, self.config.clone(), make);
        replica.planted = self.planted;
        self.add(replica, me, broken)
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation((self.nodes.len() as u128 + 1) << 100)
    }

    fn add(&mut self, replica: Replica<Ledger>, me: Incarnation, broken: Arc<AtomicBool>) -> usize {
        let ahead = self.chance.below(1 << 40) as u64;
        self.nodes.push(Node {
            replica,
            me,
            life: Life::Joining,
            broken,
            tainted: false,
            next: 0,
            view: 0,
            members: Vec::new(),
            accepted: VecDeque::new(),
            ahead,
            file: Vec::new(),
            spill: None,
            reading: None,
            reached: None,
            asked: BTreeMap::new(),
            answers: Vec::new(),
            said: Vec::new(),
            members_told: None,
            sources: Vec::new(),
            left: None,
        });
        self.nodes.len() - 1
    }

    pub(super) fn crash(&mut self, node: usize) {
        self.nodes[node].life = Life::Dead;
        // Some of what it had accepted reached the others.
        let most = self.nodes[node].accepted.len() + 1;
        for _ in 0..self.chance.below(most) {
            self.order(node);
        }
        for ((_, _), tells) in self.tells.range_mut((node, 0)..(node + 1, 0)) {
            tells.truncate(self.chance.below(tells.len() + 1));
        }
    }

    pub(super) fn leave(&mut self, node: usize) {
        let now = self.time(node);
        self.nodes[node].replica.leave(now);
        self.after(node);
    }

    pub(super) fn suspend(&mut self, node: usize) {
        self.nodes[node].life = Life::Suspended;
        self.nodes[node].replica.handle_suspended();
        self.after(node);
    }

    /// Members that are dead, leave, or were suspended (`without_suspended`) go, joiners come.
    pub(super) fn next_view(&mut self, without_suspended: bool) {
        let goes = |node: &Node| match node.life {
            Life::Dead | Life::Leaving => true,
            Life::Suspended => without_suspended,
            Life::Joining | Life::Member => false,
        };
        let (gone, stay): (Vec<_>, Vec<_>) = self.members.iter().partition(|node| goes(&self.nodes[**node]));
        let joining: Vec<_> = (0..self.nodes.len())
            .filter(|node| {
                self.nodes[*node].life == Life::Joining && (!stay.is_empty() || self.members.is_empty())
            })
            .take(if stay.is_empty() { 1 } else { usize::MAX })
            .collect();
        if gone.is_empty() && joining.is_empty() {
            return;
        }
        let (left, crashed): (Vec<usize>, Vec<usize>) = gone
            .into_iter()
            .partition(|node: &usize| self.nodes[*node].life == Life::Leaving);
        for node in &left {
            while self.order(*node) {}
        }
        self.members = stay.iter().copied().chain(joining.iter().copied()).collect();
        self.k += 1;
        if !self.members.is_empty() {
            let view = self.view(&joining, &left, &crashed, &stay);
            self.log.push(Entry::View(view));
        }
        for node in joining {
            self.nodes[node].life = Life::Member;
            self.nodes[node].next = self.log.len() - 1;
        }
        for node in left {
            self.nodes[node].life = Life::Dead;
        }
        for node in crashed {
            if self.nodes[node].life == Life::Suspended {
                self.come_back(node);
            }
        }
    }

    fn view(&self, joined: &[usize], left: &[usize], crashed: &[usize], stay: &[usize]) -> GroupView {
        let names = |nodes: &[usize]| nodes.iter().map(|node| self.nodes[*node].me).collect::<Vec<_>>();
        GroupView {
            left: names(left),
            crashed: names(crashed),
            transitional: names(stay),
            ..view_of(self.k, &names(&self.members), &names(joined))
        }
    }

    /// It was removed, learns it, and wants to be a member again: as another incarnation.
    fn come_back(&mut self, node: usize) {
        let me = self.incarnation();
        self.nodes[node].replica.handle_resync(me, "removed");
        self.drain(node);
        let broken = self.nodes[node].broken.clone();
        broken.store(false, Ordering::Relaxed);
        let spare = Replica::new(me, Config::default(), || Ledger::new(0, Arc::default(), "dead"));
        let replica = std::mem::replace(&mut self.nodes[node].replica, spare);
        self.nodes[node].life = Life::Dead;
        let reading = self.nodes[node].reading.take();
        let again = self.add(replica, me, broken);
        self.nodes[again].reading = reading;
    }

    pub(super) fn resume(&mut self, node: usize) {
        self.nodes[node].life = Life::Member;
        self.nodes[node].replica.handle_resumed();
    }

    /// Orders one message of this node.
    pub(super) fn order(&mut self, node: usize) -> bool {
        let me = self.nodes[node].me;
        let Some(payload) = self.nodes[node].accepted.pop_front() else {
            return false;
        };
        self.log.push(Entry::Message(me, payload));
        true
    }

    /// Delivers the next entry of the stream to this node.
    pub(super) fn deliver(&mut self, node: usize) -> bool {
        if !matches!(self.nodes[node].life, Life::Member | Life::Leaving) {
            return false;
        }
        let Some(entry) = self.log.get(self.nodes[node].next).cloned() else {
            return false;
        };
        let now = self.time(node);
        let this = &mut self.nodes[node];
        match entry {
            Entry::View(view) if !view.members.contains(&this.me) => return false,
            Entry::View(view) => {
                this.view = view.id.k;
                this.members.clone_from(&view.members);
                this.replica.handle_view(now, &view);
                for (pair, tells) in &mut self.tells {
                    let other = if pair.0 == node { pair.1 } else { pair.0 };
                    let other = &self.nodes[other].me;
                    let goes = view.left.contains(other) || view.crashed.contains(other);
                    if (pair.0 == node || pair.1 == node) && goes {
                        tells.clear();
                    } else if pair.0 == node {
                        // What was not taken is sent again, and is then a message of this view.
                        tells.iter_mut().for_each(|(sent_in, _)| *sent_in = view.id.k);
                    }
                }
            }
            Entry::Message(sender, payload) => {
                this.replica.handle_message(now, sender, &payload);
                self.shown.hear(this.replica.point, sender, &payload);
            }
        }
        self.nodes[node].next += 1;
        self.after(node);
        true
    }

    pub(super) fn tell_pairs(&self) -> Vec<(usize, usize)> {
        let waits = |((_, to), tells): (&(usize, usize), &VecDeque<(u32, Bytes)>)| {
            tells.front().is_some_and(|(view, _)| {
                let to = &self.nodes[*to];
                matches!(to.life, Life::Member | Life::Leaving) && to.view == *view
            }) && !self.deaf.contains(to)
        };
        self.tells
            .iter()
            .filter(|pair| waits(*pair))
            .map(|(pair, _)| *pair)
            .collect()
    }

    pub(super) fn deliver_tell(&mut self, (from, to): (usize, usize)) {
        if let Some((_, payload)) = self.tells.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            let (sender, now) = (self.nodes[from].me, self.time(to));
            let mut payload = Vec::from(payload);
            if let Some(last) = payload.last_mut().filter(|_| self.damaging) {
                *last ^= 1;
            }
            self.nodes[to].replica.handle_told(now, sender, &payload);
            self.after(to);
        }
    }

    /// And one step of reading its state: it is begun, or done.
    pub(super) fn outputs(&mut self, node: usize) {
        let now = self.time(node);
        let this = &mut self.nodes[node];
        if matches!(this.life, Life::Dead | Life::Joining) {
            return;
        }
        match this.reading.take_if(|_| self.reads) {
            Some(reading) => this.replica.handle_read(reading.run()),
            None if this.reading.is_none() => this.reading = this.replica.poll_reading(),
            None => {}
        }
        let names: BTreeMap<Incarnation, usize> =
            self.members.iter().map(|n| (self.nodes[*n].me, *n)).collect();
        let this = &mut self.nodes[node];
        let (chance, refusing, tells) = (&mut self.chance, self.refusing, &mut self.tells);
        let suspended = this.life == Life::Suspended;
        let (accepted, life, left) = (&mut this.accepted, &mut this.life, &mut this.left);
        let view = this.view;
        this.replica.outputs(now, |output| match output {
            Output::Leave { reason } => {
                *left = Some(reason);
                *life = Life::Leaving;
                true
            }
            _ if suspended || chance.percent(refusing) => false,
            Output::Send(payload) => {
                let room = accepted.len() < 8;
                if room {
                    accepted.push_back(payload);
                }
                room
            }
            Output::Tell { to, payload } => {
                let Some(to) = names.get(&to) else { return true };
                let tells = tells.entry((node, *to)).or_default();
                let room = tells.len() < 8;
                if room {
                    tells.push_back((view, payload));
                }
                room
            }
        });
    }

    fn reads(&self, node: usize) -> bool {
        let this = &self.nodes[node];
        let lives = !matches!(this.life, Life::Dead | Life::Joining);
        lives && self.reads && (this.reading.is_some() || this.replica.wants_reading())
    }

    /// One step of what is to be done with a node's file: it is begun, or done. Whether there was any.
    pub(super) fn disk(&mut self, node: usize) -> bool {
        let now = self.time(node);
        let this = &mut self.nodes[node];
        if !self.disks || this.life == Life::Dead {
            return false;
        }
        let Some((id, spill)) = this.spill.take() else {
            this.spill = this.replica.poll_spill();
            return this.spill.is_some();
        };
        let done = match spill {
            Spill::Write { at, bytes } => {
                let (at, end) = (at as usize, at as usize + bytes.len());
                assert!(
                    end as u64 <= self.config.spill_bytes,
                    "R19: a file of {end} bytes"
                );
                this.file.resize(end.max(this.file.len()), 0);
                this.file[at..end].copy_from_slice(&bytes);
                Bytes::new()
            }
            Spill::Read { at, length } => {
                let mut read = this.file[at as usize..at as usize + length].to_vec();
                read[length / 2] ^= u8::from(self.disk_damages);
                read.into()
            }
        };
        let outcome = self.disk_error.map_or(Ok(done), |error| Err(error.to_owned()));
        this.replica.handle_spilled(now, id, outcome);
        self.after(node);
        true
    }

    pub(super) fn pass(&mut self, micros: u64) {
        self.now += micros;
        for node in 0..self.nodes.len() {
            let now = self.time(node);
            let this = &mut self.nodes[node];
            let due = this.replica.poll_timeout().is_some_and(|at| at <= now);
            if due && this.life != Life::Dead {
                this.replica.handle_timeout(now);
                self.after(node);
            }
        }
    }

    fn time(&self, node: usize) -> Time {
        Time::from_micros(self.now + self.nodes[node].ahead)
    }

    pub(super) fn write(&mut self, node: usize, ack: Ack, alarm: Option<u16>) -> Option<RequestId> {
        let id = self.next_command;
        let command = Command {
            id,
            alarm,
            ballast: vec![1; self.chance.below(600)],
        };
        let request = self.nodes[node].replica.write(&command, ack).ok()?;
        self.next_command += 1;
        self.ask(node, request, Some(id), ack);
        Some(request)
    }

    pub(super) fn read_latest(&mut self, node: usize) -> Option<RequestId> {
        let request = self.nodes[node].replica.read_latest().ok()?;
        self.ask(node, request, None, Ack::Here);
        Some(request)
    }

    fn ask(&mut self, node: usize, request: RequestId, command: Option<u32>, ack: Ack) {
        let floor = self.answered;
        self.nodes[node]
            .asked
            .insert(request, Asked { command, ack, floor });
        self.after(node);
    }

    /// Delivers all there is until nothing happens any more. Whether that ended.
    pub(super) fn settle(&mut self) {
        for _ in 0..20_000 {
            let mut busy = false;
            for node in 0..self.nodes.len() {
                self.outputs(node);
                busy |= self.reads(node);
                while self.deliver(node) {
                    busy = true;
                }
                if self.nodes[node].life != Life::Dead {
                    while self.order(node) {
                        busy = true;
                    }
                }
                busy |= self.disk(node);
            }
            for pair in self.tell_pairs() {
                self.deliver_tell(pair);
                busy = true;
            }
            self.pass(1_000);
            if !busy {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    pub(super) fn members(&self) -> Vec<usize> {
        self.members.clone()
    }

    pub(super) fn standing(&self, node: usize) -> Standing {
        self.nodes[node].replica.standing()
    }

    pub(super) fn serving(&self) -> Vec<usize> {
        let serves = |node: &usize| self.standing(*node) == Standing::Serving;
        self.members.iter().copied().filter(serves).collect()
    }

    pub(super) fn unanswered(&self, node: usize) -> usize {
        self.nodes[node].asked.len()
    }

    pub(super) fn break_at_next_command(&mut self, node: usize) {
        self.nodes[node].broken.store(true, Ordering::Relaxed);
        self.nodes[node].tainted = true;
    }

    /// After each input.
    fn after(&mut self, node: usize) {
        self.drain(node);
        let held = self.nodes[node].replica.held_bytes();
        self.most_held = self.most_held.max(held);
        assert!(held <= self.config.held_bytes, "R19: it holds {held} bytes");
        let spilled = self.nodes[node].replica.spilled_bytes();
        self.most_spilled = self.most_spilled.max(spilled);
        self.shown.look(node, &self.nodes[node]);
    }

    fn drain(&mut self, node: usize) {
        while let Some(event) = self.nodes[node].replica.poll_event() {
            match event {
                Event::Machine { at, event, .. } => self.happened(node, at, event),
                Event::Written { request, outcome } => self.written(node, request, outcome),
                Event::Readable { request, outcome } => self.readable(node, request, outcome),
                Event::Members { members } => self.nodes[node].members_told = Some(members),
                Event::Void { cause } => {
                    self.nodes[node].reached = None;
                    self.nodes[node].members_told = None;
                    self.nodes[node].said.push(format!("Void: {cause}"));
                }
                Event::Progress { source, .. } => {
                    // If it left and joined again, the later one of the two.
                    let giver = self.nodes.iter().rfind(|other| other.me == source);
                    let tainted = giver.is_some_and(|giver| giver.tainted);
                    let this = &mut self.nodes[node];
                    this.tainted |= tainted;
                    if !this.sources.contains(&source) {
                        this.sources.push(source);
                    }
                }
                Event::Malformed { from, what } => panic!("{from:?} sent no {what}"),
                other => self.nodes[node].said.push(format!("{other:?}")),
            }
        }
    }

    fn happened(&mut self, node: usize, at: At, event: Happened) {
        let this = &mut self.nodes[node];
        if let Some(reached) = this.reached
            && reached.founded == at.founded
        {
            assert_eq!(reached.index + 1, at.index, "G22: node {node} misses something");
            assert!(
                reached.time <= at.time,
                "time went back at node {node}: {reached:?} {at:?}"
            );
        }
        this.reached = Some(at);
        if this.tainted {
            return;
        }
        let place = (at.founded, at.index);
        if let What::Command(id) = event.what {
            assert!(
                !self.never.contains(&id),
                "G8: {id} was not sent, and was applied"
            );
            let first = *self.applied.entry(id).or_insert(place);
            assert_eq!(first, place, "G9: {id} was applied twice");
        }
        if let What::Alarm(id, time) = event.what {
            assert!(time <= at.time, "the alarm {id} is early");
        }
        let fact = (at.time, event);
        let first = self.facts.entry(place).or_insert_with(|| fact.clone());
        assert_eq!(*first, fact, "G28: node {node} differs at {place:?}");
    }

    fn written(&mut self, node: usize, request: RequestId, outcome: Result<(At, u64), Failure>) {
        let asked = self.nodes[node]
            .asked
            .remove(&request)
            .expect("an answer to a request");
        let id = asked.command.expect("a write");
        self.nodes[node].answers.push((request, outcome.map(|_| ())));
        let (at, hash) = match outcome {
            Ok(applied) => applied,
            Err(Failure::NotSent) => {
                assert!(
                    !self.applied.contains_key(&id),
                    "G8: {id} was applied, and not sent"
                );
                self.never.insert(id);
                return;
            }
            Err(Failure::Unknown) => return,
            Err(Failure::NotApplied) => panic!("{id} cannot be decoded"),
        };
        if self.nodes[node].tainted {
            return;
        }
        let place = (at.founded, at.index);
        let happened = Happened {
            what: What::Command(id),
            hash,
        };
        assert_eq!(
            self.facts[&place].1, happened,
            "the reply is that of another place"
        );
        assert!(
            asked.floor.is_none_or(|floor| floor < place),
            "it was applied before it was asked for"
        );
        if asked.ack == Ack::All {
            for member in &self.members {
                let member = &self.nodes[*member];
                let counts = self.nodes[node].members.contains(&member.me)
                    && member.life != Life::Dead
                    && !member.tainted
                    // It may not know yet: where states went wrong, the right ones may be the fewer.
                    && !self.nodes[node].replica.agreed.diverged.contains(&member.me.into())
                    && member.replica.standing() == Standing::Serving;
                let reached = Some(member.place());
                assert!(
                    !counts || reached >= Some(place),
                    "{:?} has not applied {place:?}",
                    member.me
                );
            }
        }
        self.answered = self.answered.max(Some(place));
    }

    fn readable(&mut self, node: usize, request: RequestId, outcome: Result<(), Failure>) {
        let this = &mut self.nodes[node];
        let asked = this.asked.remove(&request).expect("an answer to a request");
        this.answers.push((request, outcome));
        if outcome.is_ok() && !this.tainted {
            let reached = Some(this.place());
            assert!(
                reached >= asked.floor,
                "a read before what was answered: {reached:?} {:?}",
                asked.floor
            );
        }
    }
}
