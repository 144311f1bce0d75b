//! The server's side: which requests run, which wait, which are refused.
//!
//! Each depth has its own places and its own queue. A request waits for handlers of its own depth alone, and
//! these wait for requests of greater depth alone, so no circle of handlers can wait for each other: the
//! deepest ones may not call, and end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;
use bytes::Bytes;

use super::{Config, Event, MAX_VERBS, Refusal, RequestId};

/// Cancelled calls to all of one caller that are remembered because the request may still come.
const MAX_EARLY_CANCELS: usize = 256;

pub(super) struct Server {
    verbs: BTreeSet<String>,
    open: BTreeMap<RequestId, Open>,
    deadlines: BTreeSet<(Time, RequestId)>,
    /// By depth.
    levels: Vec<Level>,
    callers: BTreeMap<Incarnation, Caller>,
}

struct Open {
    depth: u8,
    received: Time,
    deadline: Time,
    /// Verb and payload, while it waits.
    waiting: Option<(String, Bytes)>,
}

#[derive(Default)]
struct Level {
    running: usize,
    queue: VecDeque<RequestId>,
    bytes: usize,
}

#[derive(Default)]
struct Caller {
    open: usize,
    /// The highest number of its requests to this member alone: they come in order.
    last: u64,
    early_cancels: BTreeSet<u64>,
}

/// A request that has come.
pub(super) struct Incoming {
    pub(super) depth: u8,
    pub(super) deadline: Time,
    pub(super) verb: String,
    pub(super) payload: Bytes,
}

/// Why a request does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Not {
    Busy,
    NoSuchVerb,
    TooDeep,
}

/// A request that has its answer.
pub(super) struct Finished {
    pub(super) received: Time,
}

impl Server {
    pub(super) fn new() -> Self {
        Self {
            verbs: BTreeSet::new(),
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            levels: Vec::new(),
            callers: BTreeMap::new(),
        }
    }

    pub(super) fn verbs(&self) -> &BTreeSet<String> {
        &self.verbs
    }

    /// Whether that is new.
    pub(super) fn serve(&mut self, verb: &str) -> Result<bool, Refusal> {
        if self.verbs.len() >= MAX_VERBS && !self.verbs.contains(verb) {
            return Err(Refusal::TooManyVerbs);
        }
        Ok(self.verbs.insert(verb.to_owned()))
    }

    /// Gives the requests for it that had not begun, if it was served.
    pub(super) fn stop_serving(&mut self, verb: &str) -> Option<Vec<(RequestId, Finished)>> {
        if !self.verbs.remove(verb) {
            return None;
        }
        let waits = |open: &Open| open.waiting.as_ref().is_some_and(|(of, _)| of == verb);
        let refused: Vec<_> = self
            .open
            .iter()
            .filter(|(_, open)| waits(open))
            .map(|(id, _)| *id)
            .collect();
        let finished = refused.into_iter().filter_map(|id| {
            let open = self.remove(id)?;
            let received = open.received;
            Some((id, Finished { received }))
        });
        Some(finished.collect())
    }

    /// Requests that are running or waiting.
    pub(super) fn load(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }

    /// Requests of this caller that are running or waiting.
    pub(super) fn open_of(&self, caller: Incarnation) -> usize {
        self.callers.get(&caller).map_or(0, |caller| caller.open)
    }

    /// Notes the number of a request to this member alone; false if it cannot be a new one.
    pub(super) fn is_new(&mut self, id: RequestId) -> bool {
        let caller = self.callers.entry(id.from).or_default();
        let new = id.number > caller.last;
        caller.last = caller.last.max(id.number);
        new
    }

    /// Whether its caller has cancelled this request to all before it came.
    pub(super) fn was_cancelled(&mut self, id: RequestId) -> bool {
        let caller = self.callers.get_mut(&id.from);
        caller.is_some_and(|caller| caller.early_cancels.remove(&id.number))
    }

    pub(super) fn is_open(&self, id: RequestId) -> bool {
        self.open.contains_key(&id)
    }

    /// Depth and deadline of a request whose handler runs.
    pub(super) fn running(&self, id: RequestId) -> Option<(u8, Time)> {
        let open = self.open.get(&id)?;
        open.waiting.is_none().then_some((open.depth, open.deadline))
    }

    /// A request that is not open yet.
    pub(super) fn take(
        &mut self,
        now: Time,
        config: &Config,
        id: RequestId,
        request: Incoming,
    ) -> Result<(), Not> {
        let Incoming {
            depth,
            deadline,
            verb,
            payload,
        } = request;
        if !self.verbs.contains(&verb) {
            return Err(Not::NoSuchVerb);
        }
        if depth > config.max_depth {
            return Err(Not::TooDeep);
        }
        let level = usize::from(depth);
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, Level::default);
        }
        let level = &mut self.levels[level];
        let bytes = verb.len() + payload.len();
        // A request that begins at once needs no room in the queue.
        let begins = level.running < config.max_running;
        let room = level.queue.len() < config.max_queued && level.bytes + bytes <= config.max_queued_bytes;
        if !begins && !room {
            return Err(Not::Busy);
        }
        level.queue.push_back(id);
        level.bytes += bytes;
        let open = Open {
            depth,
            received: now,
            deadline,
            waiting: Some((verb, payload)),
        };
        let before = self.open.insert(id, open);
        assert!(before.is_none(), "a request is open once: {id:?}");
        self.deadlines.insert((deadline, id));
        self.callers.entry(id.from).or_default().open += 1;
        if !begins && planted!(BusyAndRun) {
            return Err(Not::Busy);
        }
        Ok(())
    }

    /// Handlers that have a place begin.
    pub(super) fn begin(&mut self, config: &Config, mut event: impl FnMut(Event)) {
        for level in &mut self.levels {
            while (level.running < config.max_running || planted!(RunBeyondPlaces))
                && let Some(id) = level.queue.pop_front()
            {
                let Some(open) = self.open.get_mut(&id) else {
                    continue;
                };
                let Some((verb, payload)) = open.waiting.take() else {
                    continue;
                };
                level.bytes -= verb.len() + payload.len();
                level.running += 1;
                event(Event::Request {
                    id,
                    verb,
                    payload,
                    deadline: open.deadline,
                });
            }
        }
    }

    /// A handler has answered; `None` if it does not run.
    pub(super) fn finish(&mut self, id: RequestId) -> Option<Finished> {
        self.running(id)?;
        let received = self.remove(id)?.received;
        Some(Finished { received })
    }

    /// The answer is not wanted any more. Whether a handler runs that is to be stopped.
    pub(super) fn cancel(&mut self, id: RequestId) -> bool {
        let Some(open) = self.remove(id) else {
            return false;
        };
        let runs = open.waiting.is_none();
        if runs && planted!(KeepThePlace) {
            self.levels[usize::from(open.depth)].running += 1;
        }
        runs
    }

    /// A request to all was cancelled and is not here.
    pub(super) fn remember_cancel(&mut self, id: RequestId) {
        let early = &mut self.callers.entry(id.from).or_default().early_cancels;
        early.insert(id.number);
        if early.len() > MAX_EARLY_CANCELS {
            early.pop_first();
        }
    }

    /// The requests whose time is over.
    pub(super) fn expired(&self, now: Time) -> Vec<RequestId> {
        let expired = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        expired.map(|(_, id)| *id).collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// All that is open of a caller that is gone.
    pub(super) fn gone(&mut self, caller: Incarnation) -> Vec<RequestId> {
        self.callers.entry(caller).and_modify(|caller| {
            caller.last = 0;
            caller.early_cancels.clear();
        });
        self.open.keys().copied().filter(|id| id.from == caller).collect()
    }

    /// All that is open.
    pub(super) fn all(&self) -> Vec<RequestId> {
        self.open.keys().copied().collect()
    }

    /// Callers without a request have left nothing to remember.
    pub(super) fn forget(&mut self, is_member: impl Fn(Incarnation) -> bool) {
        self.callers
            .retain(|caller, known| known.open > 0 || is_member(*caller));
    }

    fn remove(&mut self, id: RequestId) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.deadlines.remove(&(open.deadline, id));
        let level = &mut self.levels[usize::from(open.depth)];
        match &open.waiting {
            Some((verb, payload)) => {
                level.bytes -= verb.len() + payload.len();
                level.queue.retain(|other| *other != id);
            }
            None => level.running -= 1,
        }
        if let Some(caller) = self.callers.get_mut(&id.from) {
            caller.open -= 1;
        }
        Some(open)
    }
}
