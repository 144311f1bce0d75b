//! The machine that simulated applications replicate: the shipping map, lock table and counters as one.
//!
//! Around them it does three things for the checkers. Each step says as an event what it was, what it gave
//! and the digest of the state after it. The state has a name of its own. It is given when the state is
//! founded and handed on with it, so that the checkers can tell two states of one group apart. And the
//! machine knows the place of the last step, so that a reader can say what it has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use antiphon_core::wire::Incarnation;
use antiphon_replica::counters::{self, CounterTable};
use antiphon_replica::locks::{self, LockTable};
use antiphon_replica::map::{self, MapMachine};
use antiphon_replica::{AgreedTime, At, Change, Machine, RestoreError, Snapshot, SnapshotError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::trace::hash;

/// A command, with a number that no other command of the run has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The number.
    pub op: u64,
    /// For which part.
    pub what: What,
}

/// For which part a command is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The map.
    Map(map::Command),
    /// The locks.
    Locks(locks::Command),
    /// The counters.
    Counters(counters::Command),
}

/// What a command gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The map's reply.
    Map(Result<Vec<map::Written>, map::Refused>),
    /// The lock table's reply.
    Locks(Result<locks::Done, locks::Refused>),
    /// The counters' reply.
    Counters(Result<counters::Done, counters::Refused>),
}

/// One step of the machine, as it tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The name of the state.
    pub state: u64,
    /// The digest of the state after it.
    pub digest: u64,
    /// What it was.
    pub what: Stepped,
    /// What happened to locks.
    pub locks: Vec<locks::Event>,
    /// What is told of changes of the map, as it comes.
    pub changed: Vec<map::Changed>,
    /// The same of counters.
    pub counted: Vec<counters::Changed>,
}

impl Step {
    /// Keys whose entries went without a command.
    pub fn expired(&self) -> impl Iterator<Item = &Bytes> {
        let went = |now: &map::Now| matches!(now, map::Now::Expired | map::Now::Evicted);
        let expired = self.changed.iter().filter(move |changed| went(&changed.now));
        expired.map(|changed| &changed.key)
    }

    /// Entries that were written anew as they are, with versions above all that a member has seen.
    pub fn renewed(&self) -> impl Iterator<Item = (&Bytes, &map::Entry)> {
        let without_command = !matches!(self.what, Stepped::Command(..));
        let changed = self.changed.iter().filter(move |_| without_command);
        changed.filter_map(|changed| match &changed.now {
            map::Now::Written(entry) => Some((&changed.key, entry)),
            _ => None,
        })
    }

    /// The same of counters.
    pub fn recounted(&self) -> impl Iterator<Item = (&counters::Name, counters::Counter)> {
        let without_command = !matches!(self.what, Stepped::Command(..));
        let counted = self.counted.iter().filter(move |_| without_command);
        counted.filter_map(|changed| Some((&changed.name, changed.new?)))
    }
}

/// What a step was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stepped {
    /// A command of a member, and what it gave.
    Command(Incarnation, Command, Reply),
    /// A change of members.
    Members(Change),
    /// The agreed time reached a deadline.
    Timeout,
}

/// The machine.
#[derive(Clone)]
pub struct Store {
    map: MapMachine,
    locks: LockTable,
    counters: CounterTable,
    state: u64,
    index: u64,
    taking: Taking,
}

/// How far it is with the state that it takes.
#[derive(Clone, Default)]
struct Taking {
    /// The name and the place are here.
    begun: bool,
    part: usize,
    /// What the part has not taken.
    rest: Vec<u8>,
}

/// The state of a [`Store`] at one point: its name and place, then the three parts, each as pieces with their
/// lengths before them, until one of no length.
#[derive(Clone)]
pub struct Parts {
    beginning: Bytes,
    map: <MapMachine as Machine>::Snapshot,
    locks: <LockTable as Machine>::Snapshot,
    counters: <CounterTable as Machine>::Snapshot,
    part: usize,
}

impl Snapshot for Parts {
    fn read(&mut self, about: usize) -> Result<Bytes, SnapshotError> {
        if !self.beginning.is_empty() {
            return Ok(std::mem::take(&mut self.beginning));
        }
        let piece = match self.part {
            0 => self.map.read(about)?,
            1 => self.locks.read(about)?,
            2 => self.counters.read(about)?,
            _ => return Ok(Bytes::new()),
        };
        self.part += usize::from(piece.is_empty());
        Ok([&(piece.len() as u32).to_le_bytes(), &piece[..]].concat().into())
    }

    fn bytes(&self) -> u64 {
        self.map.bytes() + self.locks.bytes() + self.counters.bytes()
    }
}

impl Store {
    /// A store in its first state, with the next name.
    pub fn new(names: &Arc<AtomicU64>) -> Self {
        Self {
            map: MapMachine::new(map::Options::default()),
            locks: LockTable::new(locks::Options::default()),
            counters: CounterTable::new(counters::Options::default()),
            state: names.fetch_add(1, Ordering::Relaxed),
            index: 0,
            taking: Taking::default(),
        }
    }

    /// The name of the state, and the place of its last step.
    pub fn place(&self) -> (u64, u64) {
        (self.state, self.index)
    }

    /// The map.
    pub fn map(&self) -> &MapMachine {
        &self.map
    }

    /// The locks.
    pub fn locks(&self) -> &locks::State {
        self.locks.state()
    }

    /// The counters.
    pub fn counters(&self) -> &counters::State {
        self.counters.state()
    }

    fn sum(&self) -> u64 {
        let parts = [self.map.digest(), self.locks.digest(), self.counters.digest()];
        let bytes = parts.map(|part| part.unwrap_or_default().to_le_bytes());
        hash(bytes.as_flattened(), 0)
    }

    fn step(
        &mut self,
        at: At,
        what: Stepped,
        locks: Vec<locks::Event>,
        changed: Vec<map::Changed>,
        counted: Vec<counters::Changed>,
        events: &mut Vec<Step>,
    ) {
        self.index = at.index;
        events.push(Step {
            state: self.state,
            digest: self.sum(),
            what,
            locks,
            changed,
            counted,
        });
    }
}

impl Machine for Store {
    type Command = Command;
    type Reply = Reply;
    type Event = Step;
    type Snapshot = Parts;

    fn apply(&mut self, at: At, from: Incarnation, command: Command, events: &mut Vec<Step>) -> Reply {
        let (mut locks, mut changed, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        let reply = match command.what.clone() {
            What::Map(command) => Reply::Map(self.map.apply(at, from, command, &mut changed)),
            What::Locks(command) => Reply::Locks(self.locks.apply(at, from, command, &mut locks)),
            What::Counters(command) => Reply::Counters(self.counters.apply(at, from, command, &mut counted)),
        };
        let what = Stepped::Command(from, command, reply.clone());
        self.step(at, what, locks, changed, counted, events);
        reply
    }

    fn members(&mut self, at: At, change: &Change, events: &mut Vec<Step>) {
        let (mut locks, mut changed, mut counted) = (Vec::new(), Vec::new(), Vec::new());
        self.map.members(at, change, &mut changed);
        self.locks.members(at, change, &mut locks);
        self.counters.members(at, change, &mut counted);
        let what = Stepped::Members(change.clone());
        self.step(at, what, locks, changed, counted, events);
    }

    fn deadline(&self) -> Option<AgreedTime> {
        self.map.deadline().into_iter().chain(self.locks.deadline()).min()
    }

    fn timeout(&mut self, at: At, events: &mut Vec<Step>) {
        let (mut locks, mut changed) = (Vec::new(), Vec::new());
        self.map.timeout(at, &mut changed);
        self.locks.timeout(at, &mut locks);
        self.step(at, Stepped::Timeout, locks, changed, Vec::new(), events);
    }

    fn snapshot(&self) -> Parts {
        let beginning = [self.state, self.index].map(u64::to_le_bytes);
        Parts {
            beginning: Bytes::copy_from_slice(beginning.as_flattened()),
            map: self.map.snapshot(),
            locks: self.locks.snapshot(),
            counters: self.counters.snapshot(),
            part: 0,
        }
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        let mut rest = state;
        if !self.taking.begun {
            let Some((beginning, after)) = rest.split_first_chunk::<16>() else {
                return if complete { Err(short()) } else { Ok(0) };
            };
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            (self.state, self.index) = (number(&beginning[..8]), number(&beginning[8..]));
            self.taking.begun = true;
            rest = after;
        }
        while let Some((length, after)) = rest.split_first_chunk::<4>()
            && let Some((piece, after)) = after.split_at_checked(u32::from_le_bytes(*length) as usize)
        {
            rest = after;
            let ends = piece.is_empty();
            self.taking.rest.extend_from_slice(piece);
            let here = &self.taking.rest;
            let taken = match self.taking.part {
                0 => self.map.restore(here, ends)?,
                1 => self.locks.restore(here, ends)?,
                2 => self.counters.restore(here, ends)?,
                _ => return Err(short()),
            };
            self.taking.rest.drain(..taken);
            self.taking.part += usize::from(ends);
        }
        if complete && (self.taking.part != 3 || !rest.is_empty()) {
            return Err(short());
        }
        Ok(state.len() - rest.len())
    }

    fn serial(&self) -> Option<u64> {
        let parts = [self.map.serial(), self.locks.serial(), self.counters.serial()];
        parts.into_iter().flatten().max()
    }

    fn digest(&self) -> Option<u64> {
        Some(self.sum())
    }

    fn definition(&self) -> String {
        let (map, locks, counters) = (
            self.map.definition(),
            self.locks.definition(),
            self.counters.definition(),
        );
        format!("store 2: {map}; {locks}; {counters}")
    }
}

fn short() -> RestoreError {
    RestoreError {
        reason: "the state of a store breaks off, or goes on behind its end".to_owned(),
    }
}
