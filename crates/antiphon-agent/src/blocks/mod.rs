//! Operations on blocks: locks, leadership, maps, counters and requests, as lines.
//!
//! ```text
//!  session ─► take: id, bounds ─► queue of the block ─► worker: joins once, begins each in turn ─► a task each
//!   ▲  ▲         │ error                                  │ refused, left                             │
//!   │  └─────────┘                                        ▼                                           ▼
//!   └──────────────────────────────────────────────────── reply, once ◄── lost, changed, request, cancelled
//! ```
//! - [`desk`]: a session's operations under way, by their ids, and what bounds them;
//! - [`worker`]: joins a block and begins what is asked of it;
//! - [`begun`]: writes of a carrier that replies in the order of its commands: they need no worker;
//! - [`locks`], [`maps`], [`counters`], [`calls`]: what each operation does;
//! - [`writes`]: which writes of a session a read of it waits for;
//! - [`failure`]: the library's errors as those of lines.
//!
//! # Groups
//! Each block is a group of its own. Nothing else is said in that group, and no line tells its messages; a
//! session that asks for its view is told (`members`). Behind [`GROUPS`] their names are `locks` (locks and
//! leaders), `counters` (counters and ids), `map/NAME` and `calls/NAME`; the program refuses `--group` with
//! such a name. This node joins a block when a session first uses it, and stays in it until the node ends.
//! Operations wait until the node is a member and has the state. A map lives as long as any node that has
//! used it.
//!
//! # Sessions
//! All sessions of a node share its blocks; each has its own desk, and with it its own ids and bounds. A lock
//! or a leadership belongs to the session that got it, a request to the session that it was handed to: when
//! the session ends, both are given back at once. Several sessions may serve one verb; they get its requests
//! by turns.
//!
//! # What holds
//! - **One reply for each operation**, with its id. An id is free again with the reply. While an operation is
//!   under way, another one with its id is refused by an `error` line, since a second reply could belong to
//!   either.
//! - **Operations of one block begin in the order of their lines.** They end in any order. One session cannot
//!   ask for more than a replica takes at once; where several do together, those that wait for room wait in
//!   no order.
//! - **A read sees the writes before it**: a `get` of a key waits for the earlier writes of its session to
//!   that key.
//! - **A line of a lock comes after its reply**: `lost` never before the token.
//! - **A call in a request waits in no circle**: it is the library's call within that request, with its depth
//!   and its deadline.
//! - **`cancelled` comes after its request**, and only if the program has not answered.
//! - **An error says whether it happened**, with the library's own distinction.
//!
//! # Bounds
//! For each session: the node reads no further lines while [`MAX_QUICK`] operations that only wait for the
//! cluster, or [`MAX_BYTES`] of values, are under way. Operations that may wait for other programs (locks,
//! leadership, calls) are refused beyond [`MAX_LONG`] instead, held locks included, and calls beyond as many
//! bytes: the line that ends such a wait may stand behind them. Watches are refused beyond [`MAX_WATCHES`],
//! and at the whole node blocks beyond [`MAX_BLOCKS`]. Requests of others are bounded by
//! [`antiphon::calls::Config`]. Replies wait for the session's reader, and with them the operations' places.
//!
//! # What happens when…
//! | what | then |
//! |---|---|
//! | no cluster yet, no state yet | operations wait; `within` counts, `cancel` works |
//! | no cluster or no majority for [`PATIENCE`](crate::ready::PATIENCE), and the block is not joined | those of HTTP and RESP without `within` are refused (`unavailable`); they never began |
//! | `within` is over while there is no cluster or no majority | the error says that |
//! | no majority | new ones are refused (`unavailable`); those under way are answered when it is back, or at the removal (`unknown`) |
//! | no majority, of calls | they wait for it until their time is over |
//! | `within` is over, and the group has no leader to end a lock's wait by its clock | the wait ends here, [`LATE`] later |
//! | the lease is lost, or the node was stopped for so long | `lost` for each lock and leadership held |
//! | the state is lost, or differs here | the block is left; the next operation joins it again |
//! | stdin ends | nothing changes: what is held stays held |
//! | another session ends | its operations are cancelled, its watches end, its locks are free, its verbs are served by others or by nobody |
//! | a session's reader is slow | replies wait; a watch that lags begins anew (`watching`) |
//! | an answer is refused: it is too long, or cannot be read | its request fails with that reason |
//! | nobody waits for a request any more | `cancelled`; the calls that were made in it are cancelled |
//! | the node leaves | what was taken happens, for [`CLOSE_WITHIN`] at most; what waits is answered with an error; locks are free |
//! | the node dies | others get its locks, and learn whether its handlers may have run |

mod begun;
mod calls;
mod counters;
mod desk;
mod failure;
mod locks;
mod maps;
#[cfg(test)]
mod tests;
mod worker;
mod writes;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon::Cluster;
use antiphon::calls::MAX_CALL_BYTES;
use antiphon_api::blocks::{Answer, Code, Failure, Id, Put, Serial, Span};
use antiphon_api::{Command, Event, Payload, View};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, block_in_place};

use self::begun::Copies;
pub(crate) use self::begun::{Begun, is_write};
use self::calls::CallBlock;
use self::counters::CounterBlock;
pub(crate) use self::desk::{Desk, Kind, Operation};
use self::failure::leaving;
pub(crate) use self::failure::{not_done, of_all};
use self::locks::{Holders, LockBlock};
use self::maps::MapBlock;
pub(crate) use self::maps::MapCopy;
use self::worker::Job;
pub(crate) use self::writes::key_of;
use crate::ready::Readiness;
use crate::stdio::check_file;

/// What the names of the blocks' groups begin with.
pub const GROUPS: &str = "block/";
/// Operations under way that wait for nothing but the cluster.
pub(crate) const MAX_QUICK: usize = 1024;
/// Locks and jobs that this node holds or waits for, and calls that have not ended.
const MAX_LONG: usize = 2048;
/// Watches.
const MAX_WATCHES: usize = 64;
/// Bytes of values and payloads under way. Below what a replica queues, so that it takes each in its order.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// Blocks that this node uses.
const MAX_BLOCKS: usize = 64;
/// The longest name of a map or of a group of calls: the longest group name less what stands before it.
const MAX_NAME_BYTES: usize = 52;
/// The longest value. With the longest key it fits one command.
const MAX_VALUE_BYTES: usize = (1 << 20) - 2048;
/// How much longer than its `within` an operation waits here: a lock waits by the clock of its group, which
/// may be slower than this node's.
const LATE: Duration = Duration::from_secs(5);
/// How long leaving the blocks in order may take.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// The blocks that this node uses.
#[derive(Debug)]
pub(crate) struct Blocks {
    cluster: Cluster,
    readiness: Arc<Readiness>,
    inside: Mutex<Inside>,
    copies: Copies,
    holders: Holders,
}

#[derive(Debug, Default)]
struct Inside {
    closed: bool,
    queues: BTreeMap<Place, mpsc::UnboundedSender<Job>>,
    workers: JoinSet<()>,
}

/// A command that makes no sense.
#[derive(Debug)]
pub(crate) struct Senseless {
    pub(crate) reason: String,
    /// The command, for its program.
    pub(crate) request: serde_json::Value,
}

impl Senseless {
    pub(crate) fn of(command: &Command, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            request: command.echo(),
        }
    }
}

/// Which block an operation is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Locks,
    Counters,
    Map(String),
    Calls(String),
}

impl Place {
    /// The name of its group, or why there can be none.
    fn group(&self) -> Result<String, Failure> {
        let (kind, name) = match self {
            Place::Locks => return Ok(format!("{GROUPS}locks")),
            Place::Counters => return Ok(format!("{GROUPS}counters")),
            Place::Map(name) => ("map", name),
            Place::Calls(name) => ("calls", name),
        };
        if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control) {
            return Ok(format!("{GROUPS}{kind}/{name}"));
        }
        Err(Failure::nothing_done(
            Code::Refused,
            format!(
                "a map or group has a name of 1 to {MAX_NAME_BYTES} bytes without control characters: take another"
            ),
        ))
    }
}

impl Blocks {
    pub(crate) fn new(cluster: Cluster, readiness: Arc<Readiness>) -> Self {
        Self {
            cluster,
            readiness,
            inside: Mutex::default(),
            copies: Copies::default(),
            holders: Holders::default(),
        }
    }

    /// Whether the session of this desk holds a lock now, by the clock.
    pub(crate) async fn holds(&self, desk: &Arc<Desk>, lock: &str, token: Serial) -> bool {
        self.holders.holds(desk, lock, token).await
    }

    /// This node's copy of a map, if it is a member of the map.
    pub(crate) fn copy(&self, map: &str) -> Option<MapCopy> {
        self.copies.map(map)
    }

    /// The view of a block's group, with the members that have the state.
    pub(crate) fn view(&self, group: &str) -> Result<View, Failure> {
        let of_block = group.strip_prefix(GROUPS);
        if !of_block.is_some_and(|of| of == "locks" || of == "counters" || of.starts_with("map/")) {
            let reason = "group names a block: block/map/NAME, block/locks or block/counters";
            return Err(Failure::nothing_done(Code::Refused, reason));
        }
        let unavailable = |reason: &str| Failure::nothing_done(Code::Unavailable, reason);
        let status = self.copies.status(group);
        let status = status.ok_or_else(|| unavailable("this node does not use this block: use it first"))?;
        let view = status.view.map(|view| antiphon::Event::View(view).told(""));
        match view {
            Some(_) if !status.primary => Err(unavailable(
                "this node has no majority, and the members may be others by now: ask again when it has one",
            )),
            Some(Event::View(view)) => Ok(view),
            _ => Err(unavailable("this node is not in the block's group yet: wait")),
        }
    }

    /// Begins a write of the command at once; none if it is none, or if it is to be [taken](Self::take).
    pub(crate) fn begin(&self, command: &Command) -> Option<Begun> {
        self.copies.begin(command)
    }

    /// Takes a session's operation, and waits while there is no room for it.
    ///
    /// # Errors
    /// The command makes no sense, and why; then there is no reply.
    pub(crate) async fn take(&self, desk: &Arc<Desk>, mut command: Command) -> Result<(), Senseless> {
        if let Command::Watch(watch) = &command
            && watch.key.is_some()
            && watch.prefix.is_some()
        {
            let reason = "a watch is of a key or of a prefix: leave one of both out";
            return Err(Senseless::of(&command, reason));
        }
        let (kind, id, within) = described(&command);
        let (id, within) = (id.clone(), within.map(|within| within.0));
        let admitted = desk.admit(command.word(), id, kind, within).await;
        let Some(mut operation) = admitted.map_err(|reason| Senseless::of(&command, reason))? else {
            return Ok(());
        };
        let data = match bytes_of(&mut command, desk) {
            Ok(data) => data,
            Err(reason) => {
                if let Command::Answer(answer) = &command {
                    // Else its caller would wait for the whole time of the request.
                    desk.answer(answer.request, true, reason.clone().into());
                }
                operation
                    .reply(not_done(Failure::nothing_done(Code::Refused, reason)))
                    .await;
                return Ok(());
            }
        };
        if let Command::Put(put) = &command
            && is_gone_at_once(put)
        {
            let reason = "a value's time is longer than 0: leave it out for a value that stays";
            let failure = Failure::nothing_done(Code::Refused, reason);
            operation.reply(not_done(failure)).await;
            return Ok(());
        }
        if let Err(failure) = operation.make_room(data.len()).await {
            operation.reply(not_done(failure)).await;
            return Ok(());
        }
        let place = match &mut command {
            Command::Cancel(cancel) => {
                let reply = desk.cancel(&cancel.of);
                operation.reply(reply).await;
                return Ok(());
            }
            Command::Answer(answer) => {
                let reply = desk.answer(answer.request, answer.error.is_some(), data);
                operation.reply(reply).await;
                return Ok(());
            }
            Command::Add(_) | Command::TakeIds(_) => Place::Counters,
            Command::Put(put) => Place::Map(std::mem::take(&mut put.map)),
            Command::Get(get) => Place::Map(std::mem::take(&mut get.map)),
            Command::Remove(remove) => Place::Map(std::mem::take(&mut remove.map)),
            Command::Watch(watch) => Place::Map(std::mem::take(&mut watch.map)),
            Command::Serve(serve) => Place::Calls(std::mem::take(&mut serve.group)),
            Command::Call(call) => Place::Calls(std::mem::take(&mut call.group)),
            _ => Place::Locks,
        };
        let job = Job {
            operation,
            command,
            data,
        };
        if let Err((failure, job)) = self.queue(place, job) {
            job.operation.reply(not_done(failure)).await;
        }
        Ok(())
    }

    /// Leaves all blocks in order: what was taken happens, what waits for others is answered.
    pub(crate) async fn close(&self) {
        let mut workers = {
            let mut inside = self.inside();
            inside.closed = true;
            // Each worker ends with its queue.
            inside.queues.clear();
            std::mem::take(&mut inside.workers)
        };
        let all = async { while workers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSE_WITHIN, all).await;
    }

    /// Hands a job to its block's worker, and starts one if there is none.
    fn queue(&self, place: Place, job: Job) -> Result<(), (Failure, Box<Job>)> {
        let group = match place.group() {
            Ok(group) => group,
            Err(failure) => return Err((failure, Box::new(job))),
        };
        let mut inside = self.inside();
        if inside.closed {
            return Err((leaving(), Box::new(job)));
        }
        inside.queues.retain(|_, queue| !queue.is_closed());
        while inside.workers.try_join_next().is_some() {}
        let job = match inside.queues.get(&place) {
            // It may have ended just now.
            Some(queue) => match queue.send(job) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(job)) => job,
            },
            None => job,
        };
        if inside.queues.len() >= MAX_BLOCKS && !inside.queues.contains_key(&place) {
            let reason =
                format!("this node uses {MAX_BLOCKS} maps and groups already: use these, or another node");
            return Err((Failure::nothing_done(Code::Refused, reason), Box::new(job)));
        }
        // Each job has a place at its session's desk, which is their bound.
        let (queue, jobs) = mpsc::unbounded_channel();
        // Not closed.
        let _ = queue.send(job);
        let (cluster, readiness) = (self.cluster.clone(), self.readiness.clone());
        let workers = &mut inside.workers;
        match &place {
            Place::Locks => workers.spawn(worker::run(
                LockBlock::join(cluster, group, self.copies.clone(), self.holders.clone()),
                jobs,
                readiness,
            )),
            Place::Counters => workers.spawn(worker::run(
                CounterBlock::join(cluster, group, self.copies.clone()),
                jobs,
                readiness,
            )),
            Place::Map(map) => {
                let joined = MapBlock::join(cluster, group, map.clone(), self.copies.clone());
                workers.spawn(worker::run(joined, jobs, readiness))
            }
            Place::Calls(name) => {
                let joined = CallBlock::join(cluster, group, name.clone());
                workers.spawn(worker::run(joined, jobs, readiness))
            }
        };
        inside.queues.insert(place, queue);
        Ok(())
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nobody could ever read the value.
fn is_gone_at_once(put: &Put) -> bool {
    put.ttl.is_some_and(|ttl| ttl.0.is_zero())
}

/// How it is bounded, its id, and for how long it waits.
fn described(command: &Command) -> (Kind, &Option<Id>, Option<Span>) {
    match command {
        Command::Lock(lock) => (Kind::Long, &lock.id, lock.within),
        Command::Lead(lead) => (Kind::Long, &lead.id, None),
        Command::Call(call) => (Kind::Long, &call.id, Some(call.within.unwrap_or(calls::WITHIN))),
        Command::Watch(watch) => (Kind::Watch, &watch.id, None),
        Command::Answer(answer) => (Kind::AtOnce, &answer.id, None),
        Command::Cancel(cancel) => (Kind::AtOnce, &cancel.id, None),
        Command::Unlock(unlock) => (Kind::Quick, &unlock.id, None),
        Command::Resign(resign) => (Kind::Quick, &resign.id, None),
        Command::Put(put) => (Kind::Quick, &put.id, None),
        Command::Get(get) => (Kind::Quick, &get.id, None),
        Command::Remove(remove) => (Kind::Quick, &remove.id, None),
        Command::Add(add) => (Kind::Quick, &add.id, None),
        Command::TakeIds(take) => (Kind::Quick, &take.id, None),
        Command::Serve(serve) => (Kind::Quick, &serve.id, None),
        Command::Send(_)
        | Command::SendBundle(_)
        | Command::Tell(_)
        | Command::Fault(_)
        | Command::Why(_)
        | Command::Members(_)
        | Command::Hello(_)
        | Command::Join(_)
        | Command::Command(_)
        | Command::ServeCommand(_)
        | Command::Commands(_)
        | Command::Leave(_)
        | Command::Took(_) => unreachable!("the session carries these out itself"),
    }
}

/// The value or payload that a command brings, read from its file if it is in one.
fn bytes_of(command: &mut Command, desk: &Desk) -> Result<Bytes, String> {
    let (payload, limit) = match command {
        Command::Put(put) => (
            Some(std::mem::replace(&mut put.value, Payload::Text(String::new()))),
            MAX_VALUE_BYTES,
        ),
        Command::Call(call) => (call.payload.take(), MAX_CALL_BYTES),
        Command::Answer(Answer {
            payload: Some(_),
            error: Some(_),
            ..
        }) => return Err("an answer is a payload or an error: leave one of both out".to_owned()),
        Command::Answer(Answer {
            request,
            payload,
            error,
            ..
        }) => (
            payload.take().or_else(|| error.clone()),
            desk.answer_limit(*request),
        ),
        _ => return Ok(Bytes::new()),
    };
    let Some(payload) = payload else {
        return Ok(Bytes::new());
    };
    let bytes = match &payload {
        Payload::File { file, .. } => {
            check_file(Path::new(file), limit as u64)?;
            block_in_place(|| payload.into_bytes())?
        }
        // That wakes another thread, for what takes no time.
        _ => payload.into_bytes()?,
    };
    if bytes.len() > limit {
        return Err(format!(
            "it has {} bytes, at most {limit} are taken: send it in parts, or to a group",
            bytes.len()
        ));
    }
    Ok(bytes)
}
