//! A machine whose state is the hash of all that happened to it, in order: any difference shows for ever.

use std::collections::BTreeSet;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use antiphon_core::wire::Incarnation;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{AgreedTime, At, Change, FromReader, Machine, RestoreError, SnapshotError};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Command {
    /// Of all commands of a run.
    pub(super) id: u32,
    /// Something happens so many milliseconds later.
    pub(super) alarm: Option<u16>,
    pub(super) ballast: Vec<u8>,
}

/// What happened, told at every member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Happened {
    pub(super) what: What,
    pub(super) hash: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Command(u32),
    Alarm(u32, AgreedTime),
    Members(Change),
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct State {
    hash: u64,
    alarms: BTreeSet<(AgreedTime, u32)>,
    ballast: Vec<u8>,
}

pub(super) struct Ledger {
    state: State,
    /// The next command goes wrong here.
    broken: Arc<AtomicBool>,
    definition: String,
    pub(super) last_change: Change,
    /// Taken so far.
    pub(super) snapshots: AtomicUsize,
}

/// A disk that fails.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("a page is damaged"))
    }
}

impl Ledger {
    pub(super) fn new(ballast: usize, broken: Arc<AtomicBool>, definition: &str) -> Self {
        let state = State {
            ballast: vec![7; ballast],
            ..State::default()
        };
        Self {
            state,
            broken,
            definition: definition.to_owned(),
            last_change: Change::default(),
            snapshots: AtomicUsize::new(0),
        }
    }

    pub(super) fn hash(&self) -> u64 {
        self.state.hash
    }

    fn mix(&mut self, at: At, what: What, events: &mut Vec<Happened>) {
        let text = format!("{} {at:?} {what:?}", self.state.hash);
        self.state.hash = twox_hash::XxHash3_64::oneshot(text.as_bytes());
        let hash = self.state.hash;
        events.push(Happened { what, hash });
    }
}

impl Machine for Ledger {
    type Command = Command;
    type Reply = u64;
    type Event = Happened;
    type Snapshot = Result<FromReader, SnapshotError>;

    fn apply(&mut self, at: At, _: Incarnation, command: Command, events: &mut Vec<Happened>) -> u64 {
        if self.broken.swap(false, Ordering::Relaxed) {
            self.state.hash ^= 1;
        }
        if let Some(wait) = command.alarm {
            let alarm = at.time.after(Duration::from_millis(wait.into()));
            self.state.alarms.insert((alarm, command.id));
        }
        self.mix(at, What::Command(command.id), events);
        self.state.hash
    }

    fn members(&mut self, at: At, change: &Change, events: &mut Vec<Happened>) {
        self.mix(at, What::Members(change.clone()), events);
        self.last_change = change.clone();
    }

    fn deadline(&self) -> Option<AgreedTime> {
        self.state.alarms.first().map(|(time, _)| *time)
    }

    fn timeout(&mut self, at: At, events: &mut Vec<Happened>) {
        if let Some((time, id)) = self.state.alarms.pop_first() {
            self.mix(at, What::Alarm(id, time), events);
        }
    }

    fn snapshot(&self) -> Self::Snapshot {
        if self.definition == "unwritable" {
            let reason = "a page is damaged".to_owned();
            return Err(SnapshotError { reason });
        }
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        let state = Bytes::from(postcard::to_stdvec(&self.state).unwrap());
        let half = self.definition == "half readable";
        let readable = state.slice(..if half { state.len() / 2 } else { state.len() });
        let bytes = match self.definition.as_str() {
            "immeasurable" => u64::MAX,
            _ => state.len() as u64,
        };
        Ok(FromReader::new(bytes, move || {
            let rest: Box<dyn Read + Send> = match half {
                true => Box::new(Broken),
                false => Box::new(io::empty()),
            };
            Ok(Cursor::new(readable.clone()).chain(rest))
        }))
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        if !complete {
            return Ok(0);
        }
        self.state = postcard::from_bytes(state).map_err(|error| RestoreError {
            reason: error.to_string(),
        })?;
        Ok(state.len())
    }

    fn serial(&self) -> Option<u64> {
        (self.definition == "with numbers").then_some(1)
    }

    fn digest(&self) -> Option<u64> {
        Some(self.state.hash)
    }

    fn definition(&self) -> String {
        self.definition.clone()
    }
}
