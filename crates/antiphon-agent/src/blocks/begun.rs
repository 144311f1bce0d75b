//! Writes that begin at once, without the block's worker and without a task for each.
//!
//! The worker gives each operation what any of them may need: a task, a place at the desk, and a way to
//! cancel it. Where many writes are under way, that costs more than what the machine does with them. A
//! carrier that replies in the order of its commands needs none of it: it keeps what it has begun in a queue,
//! and looks at the first of them.
//!
//! # What holds
//! - A write is begun only if this node is a member of the block, serves, and has room. Otherwise its caller
//!   gives it to the worker, which waits or says why not.
//! - What is begun is not overtaken by what its caller gives to the worker later. The opposite is not so:
//!   **while an operation of the caller waits at a worker, the caller begins nothing here**.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use antiphon::Counters;
use antiphon::replicated::counters::CounterTable;
use antiphon::replicated::map::{MapMachine, Written};
use antiphon::replicated::{ReplicaStatus, ReplicaStatusWatch, Replicated, Standing, Writing, counters};
use antiphon_api::blocks::{self, Reply};
use antiphon_api::{Command, Payload};
use bytes::Bytes;

use super::counters::counted;
use super::failure::not_done;
use super::maps::{MapCopy, WriteAsked, answered};
use super::{MAX_VALUE_BYTES, is_gone_at_once};

/// The blocks that this node is a member of, for what need not stand in the queue of a worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Copies(Arc<Mutex<Inside>>);

#[derive(Debug, Default)]
struct Inside {
    maps: BTreeMap<String, Replicated<MapMachine>>,
    counters: Option<Counters>,
    /// By the groups' names, from when the join begins.
    statuses: BTreeMap<String, ReplicaStatusWatch>,
}

/// A write under way: its reply.
#[derive(Debug)]
#[must_use = "what comes of it is its reply"]
pub(crate) struct Begun {
    /// What was asked.
    pub(crate) op: &'static str,
    /// The length of the value that it brings.
    pub(crate) bytes: usize,
    what: What,
}

#[derive(Debug)]
enum What {
    Map(Writing<MapMachine>, fn(Written) -> Reply),
    Counter(Writing<CounterTable>),
}

/// Whether a command may be begun so.
pub(crate) fn is_write(command: &Command) -> bool {
    matches!(command, Command::Put(_) | Command::Remove(_) | Command::Add(_))
}

impl Copies {
    pub(super) fn map(&self, map: &str) -> Option<MapCopy> {
        self.inside().maps.get(map).cloned().map(MapCopy)
    }

    pub(super) fn keep_map(&self, name: String, map: Replicated<MapMachine>) {
        self.inside().maps.insert(name, map);
    }

    pub(super) fn forget_map(&self, name: &str) {
        self.inside().maps.remove(name);
    }

    pub(super) fn keep_counters(&self, counters: Counters) {
        self.inside().counters = Some(counters);
    }

    pub(super) fn forget_counters(&self) {
        self.inside().counters = None;
    }

    /// Also of a block whose state is still on its way to this node.
    pub(super) fn keep_status(&self, group: String, status: ReplicaStatusWatch) {
        let mut inside = self.inside();
        inside
            .statuses
            .retain(|_, status| status.current().standing != Standing::Gone);
        inside.statuses.insert(group, status);
    }

    /// None: this node is not a member of the block.
    pub(super) fn status(&self, group: &str) -> Option<ReplicaStatus> {
        let status = self.inside().statuses.get(group)?.current();
        (status.standing != Standing::Gone).then_some(status)
    }

    /// Begins a write; none if it is none, or if the worker is to look at it.
    pub(super) fn begin(&self, command: &Command) -> Option<Begun> {
        let mut bytes = 0;
        let what = match command {
            // The worker's way says why not.
            Command::Put(put) if is_gone_at_once(put) => return None,
            Command::Put(put) => {
                let value = value_of(put)?;
                bytes = value.len();
                self.begin_in_map(&put.map, WriteAsked::put(put, value))?
            }
            Command::Remove(remove) => self.begin_in_map(&remove.map, WriteAsked::remove(remove))?,
            Command::Add(add) => {
                let table = self.inside().counters.as_ref()?.table().clone();
                let name = add.counter.as_str().into();
                let command = counters::Command::Add { name, by: add.by };
                What::Counter(table.begin_write(command).ok()?)
            }
            _ => return None,
        };
        let op = command.word();
        Some(Begun { op, bytes, what })
    }

    fn begin_in_map(&self, map: &str, asked: WriteAsked) -> Option<What> {
        let map = self.inside().maps.get(map)?.clone();
        let writing = map.begin_write(asked.write.into()).ok()?;
        Some(What::Map(writing, asked.done))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value that a put brings; none if the worker is to look at it.
fn value_of(put: &blocks::Put) -> Option<Bytes> {
    let value = match &put.value {
        Payload::File { .. } => return None,
        value => value.clone().into_bytes().ok()?,
    };
    (value.len() <= MAX_VALUE_BYTES).then_some(value)
}

impl Future for Begun {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = match &mut self.what {
            What::Map(writing, done) => {
                let done = *done;
                Pin::new(writing).poll(cx).map(|written| answered(written, done))
            }
            What::Counter(writing) => Pin::new(writing).poll(cx).map(counted),
        };
        reply.map(|reply| reply.unwrap_or_else(not_done))
    }
}
