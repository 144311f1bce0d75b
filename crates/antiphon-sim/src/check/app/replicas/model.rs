//! What the steps of a state must give, by the plainest data structures there are: a sorted map, whose
//! entries are looked through for expired ones, integers, and a list of holders and a queue for each lock.
//!
//! Versions, tokens and ids are learned from the replies: they must rise, and come back as they were given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon_core::wire::Incarnation;
use antiphon_replica::locks::{self, Cause, Mode, Name, Owner, Token, Wait, What as Lock};
use antiphon_replica::map::{self, Entry, Operation, Stamp};
use antiphon_replica::{AgreedTime, At, Version, counters};
use bytes::Bytes;

use crate::machine::{Reply, Step, Stepped, What};
use crate::trace::Saw;

/// The permits of a lock that is no semaphore.
const ALL: u32 = u32::MAX;

type Verdict = Result<(), (&'static str, String)>;

#[derive(Default)]
pub(super) struct Model {
    entries: BTreeMap<Bytes, Entry>,
    map_time: AgreedTime,
    map_version: Version,
    /// That of the last change that was told, also of an entry that went.
    told_version: Version,
    counters: BTreeMap<counters::Name, counters::Counter>,
    counter_version: Version,
    last_id: u64,
    locks: BTreeMap<Name, OneLock>,
    locks_time: AgreedTime,
    last_token: Token,
    members: BTreeSet<Incarnation>,
}

#[derive(Default)]
struct OneLock {
    size: u32,
    holders: Vec<Holder>,
    queue: Vec<Waiter>,
}

#[derive(Clone, Copy)]
struct Holder {
    owner: Owner,
    permits: u32,
    token: Token,
}

#[derive(Clone, Copy)]
struct Waiter {
    owner: Owner,
    permits: u32,
    until: Option<AgreedTime>,
}

/// What the machine told of locks in one step, by lock.
struct Told(BTreeMap<Name, VecDeque<(Owner, Lock)>>);

impl OneLock {
    fn free(&self) -> u32 {
        self.size - self.holders.iter().map(|holder| holder.permits).sum::<u32>()
    }
}

fn wrong<T: std::fmt::Debug>(guarantee: &'static str, what: &str, expected: T, came: T) -> Verdict {
    Err((
        guarantee,
        format!("{what}: {expected:?} was expected, and not {came:?}"),
    ))
}

fn same<T: std::fmt::Debug + PartialEq>(
    guarantee: &'static str,
    what: &str,
    expected: T,
    came: T,
) -> Verdict {
    if expected == came {
        Ok(())
    } else {
        wrong(guarantee, what, expected, came)
    }
}

impl Model {
    /// Makes the same step.
    pub(super) fn step(&mut self, at: At, step: &Step) -> Verdict {
        let mut told = Told::of(step);
        let mut expired = Vec::new();
        match &step.what {
            Stepped::Command(from, command, reply) => match (&command.what, reply) {
                (What::Map(command), Reply::Map(reply)) => {
                    expired = self.expire(at);
                    self.map(command, reply)?;
                    self.told_of_map(command, reply, step)?;
                }
                (What::Counters(command), Reply::Counters(reply)) => {
                    let name = changes(command);
                    let old = name.and_then(|name| self.counters.get(name).copied());
                    self.counters(command, reply)?;
                    let new = name.and_then(|name| self.counters.get(name).copied());
                    // A refusal, and the removal of what is not there, change nothing.
                    let due = name.filter(|_| old != new);
                    let due = due.map(|name| (name, old, new));
                    let told = step.counted.iter();
                    let told = told.map(|changed| (&changed.name, changed.old, changed.new));
                    same(
                        "G45",
                        "what is told of a counter",
                        due.into_iter().collect::<Vec<_>>(),
                        told.collect(),
                    )?;
                }
                (What::Locks(command), Reply::Locks(reply)) => {
                    self.time_out_and_grant(at, &mut told)?;
                    let expected = self.lock_command(*from, command, &mut told)?;
                    same("G30", "the reply", &expected, reply)?;
                }
                (what, reply) => return Err(("G45", format!("{what:?} gives {reply:?}"))),
            },
            Stepped::Members(change) => {
                self.members = change.members.iter().copied().collect();
                let again: BTreeSet<_> = change.joined.iter().chain(&change.gone).copied().collect();
                let members = self.members.clone();
                let gone = |owner: Owner| !members.contains(&owner.member) || again.contains(&owner.member);
                if !step.changed.is_empty() {
                    expired = self.renew(at, step)?;
                }
                if !step.counted.is_empty() {
                    self.recount(step)?;
                }
                let cause = |owner: Owner| {
                    let of = |members: &[Incarnation]| members.contains(&owner.member);
                    match (of(&change.left), of(&change.diverged)) {
                        (true, _) => Cause::Left,
                        (_, true) => Cause::Diverged,
                        _ => Cause::Crashed,
                    }
                };
                self.end_all(gone, cause, &mut told)?;
                self.time_out(at, &mut told)?;
                self.grant_all(&mut told)?;
            }
            Stepped::Timeout => {
                expired = self.expire(at);
                self.time_out_and_grant(at, &mut told)?;
            }
        }
        for changed in &step.changed {
            if changed.version <= self.told_version {
                return wrong(
                    "G45",
                    "a change of a version above",
                    self.told_version,
                    changed.version,
                );
            }
            self.told_version = changed.version;
        }
        let came: BTreeSet<&Bytes> = step.expired().collect();
        same("G45", "what expires", expired.iter().collect(), came)?;
        told.nothing_left()?;
        self.exclusive()
    }

    /// Whether a reader may see this now.
    pub(super) fn sees(&self, saw: &Saw) -> Result<(), String> {
        let (key, entry) = &saw.entry;
        if self.entries.get(key) != entry.as_ref() {
            return Err(format!(
                "{key:?} is {entry:?}, should be {:?}",
                self.entries.get(key)
            ));
        }
        let (name, counter) = &saw.counter;
        if self.counters.get(name) != counter.as_ref() {
            return Err(format!(
                "{name} is {counter:?}, should be {:?}",
                self.counters.get(name)
            ));
        }
        let (name, holders) = &saw.lock;
        let lock = self.locks.get(name);
        let held: BTreeSet<_> = lock
            .into_iter()
            .flat_map(|lock| &lock.holders)
            .map(|holder| (holder.token, holder.owner))
            .collect();
        if held != holders.iter().copied().collect() {
            return Err(format!("{name} is held by {holders:?}, should be by {held:?}"));
        }
        Ok(())
    }

    /// When an entry expires or a member waits no longer, whichever is first.
    pub(super) fn next_deadline(&self) -> Option<AgreedTime> {
        let entries = self.entries.values().filter_map(|entry| entry.expires);
        let waiters = self.locks.values().flat_map(|lock| &lock.queue);
        entries.chain(waiters.filter_map(|waiter| waiter.until)).min()
    }

    /// G30: the permits of a lock are not given twice.
    fn exclusive(&self) -> Verdict {
        for (name, lock) in &self.locks {
            let given: u64 = lock.holders.iter().map(|holder| u64::from(holder.permits)).sum();
            if given > u64::from(lock.size) {
                return Err((
                    "G30",
                    format!("of {name} {given} permits are given, there are {}", lock.size),
                ));
            }
        }
        Ok(())
    }

    fn expire(&mut self, at: At) -> Vec<Bytes> {
        self.map_time = self.map_time.max(at.time);
        let now = self.map_time;
        let due = |entry: &Entry| entry.expires.is_some_and(|expires| expires <= now);
        let expired = self.entries.iter().filter(|(_, entry)| due(entry));
        let expired: Vec<Bytes> = expired.map(|(key, _)| key.clone()).collect();
        self.entries.retain(|_, entry| !due(entry));
        expired
    }

    /// G50: all entries are written anew, or none. Each is as it was, and has another version and a stamp of
    /// now.
    fn renew(&mut self, at: At, step: &Step) -> Result<Vec<Bytes>, (&'static str, String)> {
        let expired = self.expire(at);
        for (_, entry) in step.renewed() {
            if entry.version <= self.map_version {
                wrong("G50", "a version above", self.map_version, entry.version)?;
            }
            self.map_version = entry.version;
        }
        let mut expected = self.entries.clone();
        let renewed = step.renewed().map(|(key, entry)| (key.clone(), entry.clone()));
        let renewed: BTreeMap<Bytes, Entry> = renewed.collect();
        for (key, entry) in &mut expected {
            entry.version = renewed.get(key).map_or(Version(0), |entry| entry.version);
            entry.modified = Stamp::new(self.map_time, entry.modified.flags());
        }
        same("G50", "what is written anew", &expected, &renewed)?;
        self.entries = expected;
        Ok(expired)
    }

    /// The same of counters.
    fn recount(&mut self, step: &Step) -> Verdict {
        for (_, counter) in step.recounted() {
            if counter.version <= self.counter_version {
                return wrong("G50", "a version above", self.counter_version, counter.version);
            }
            self.counter_version = counter.version;
        }
        let values = |(name, counter): (&counters::Name, &counters::Counter)| (name.clone(), counter.value);
        let recounted = step.recounted().map(|(name, counter)| (name.clone(), counter));
        let recounted: BTreeMap<_, _> = recounted.collect();
        let expected: Vec<_> = self.counters.iter().map(values).collect();
        let came: Vec<_> = recounted.iter().map(values).collect();
        same("G50", "the counters with new versions", expected, came)?;
        self.counters = recounted;
        Ok(())
    }

    fn map(&mut self, command: &map::Command, reply: &Result<Vec<map::Written>, map::Refused>) -> Verdict {
        for write in &command.writes {
            let found = self.entries.get(&write.key).map(|entry| entry.version);
            if !write.condition.holds(found) {
                let refused = map::Refused::Condition {
                    key: write.key.clone(),
                    wanted: write.condition,
                    found,
                };
                return same("G45", "the reply", &Err(refused), reply);
            }
        }
        let Ok(written) = reply else {
            return Err(("G45", format!("{command:?} is refused: {reply:?}")));
        };
        if written.len() != command.writes.len() {
            return Err(("G45", format!("{command:?} gives {written:?}")));
        }
        for (write, written) in command.writes.iter().zip(written) {
            let old = self.entries.get(&write.key).cloned();
            let new = match &write.operation {
                Operation::Check => old.clone(),
                Operation::Remove => {
                    self.entries.remove(&write.key);
                    None
                }
                Operation::Put {
                    value,
                    flags,
                    time_to_live_ms,
                } => {
                    let version = written.new.as_ref().map_or(Version(0), |entry| entry.version);
                    if version <= self.map_version {
                        return wrong("G45", "a version above", self.map_version, version);
                    }
                    self.map_version = version;
                    let lives = |millis| AgreedTime {
                        millis: self.map_time.millis + millis,
                    };
                    let entry = Entry {
                        value: value.clone(),
                        version,
                        modified: Stamp::new(self.map_time, *flags),
                        expires: time_to_live_ms.map(lives),
                    };
                    self.entries.insert(write.key.clone(), entry.clone());
                    Some(entry)
                }
                Operation::Compute { .. } => return Err(("G45", "there are no functions".to_owned())),
            };
            let expected = map::Written { old, new };
            same("G45", "a write", &expected, written)?;
        }
        Ok(())
    }

    /// All changes are told, in the order of the writes, with the entries before and after.
    fn told_of_map(
        &self,
        command: &map::Command,
        reply: &Result<Vec<map::Written>, map::Refused>,
        step: &Step,
    ) -> Verdict {
        let writes = command.writes.iter().zip(reply.iter().flatten());
        let due = writes.filter(|(_, written)| written.old != written.new);
        let due = due.map(|(write, written)| (&write.key, written.old.as_ref(), written.new.as_ref()));
        let told = step.changed.iter().filter_map(|changed| {
            let new = match &changed.now {
                map::Now::Written(entry) if entry.version == changed.version => Some(entry),
                map::Now::Written(_) | map::Now::Removed => None,
                map::Now::Expired | map::Now::Evicted => return None,
            };
            Some((&changed.key, changed.old.as_ref(), new))
        });
        same(
            "G45",
            "what is told of the map",
            due.collect::<Vec<_>>(),
            told.collect(),
        )
    }

    fn counters(
        &mut self,
        command: &counters::Command,
        reply: &Result<counters::Done, counters::Refused>,
    ) -> Verdict {
        let get = |name: &counters::Name| self.counters.get(name).copied();
        let (name, value, condition) = match command {
            counters::Command::Add { name, by } => {
                let value = get(name).map_or(0, |counter| counter.value) + by;
                (name, Some(value), antiphon_replica::Condition::Always)
            }
            counters::Command::Set {
                name,
                value,
                condition,
            } => (name, Some(*value), *condition),
            counters::Command::Remove { name, condition } => (name, None, *condition),
            counters::Command::TakeBlock { count } => {
                let Ok(counters::Done::Block(first)) = reply else {
                    return Err(("G45", format!("{command:?} gives {reply:?}")));
                };
                if *first <= self.last_id {
                    return wrong("G45", "ids above", self.last_id, *first);
                }
                self.last_id = first + u64::from(*count) - 1;
                return Ok(());
            }
        };
        let found = get(name).map(|counter| counter.version);
        if !condition.holds(found) {
            let refused = counters::Refused::Condition {
                wanted: condition,
                found,
            };
            return same("G45", "the reply", &Err(refused), reply);
        }
        let Ok(counters::Done::Counter(came)) = reply else {
            return Err(("G45", format!("{command:?} gives {reply:?}")));
        };
        let version = came.map_or(Version(0), |counter| counter.version);
        let new = value.map(|value| counters::Counter { value, version });
        same("G45", "the counter", &new, came)?;
        match new {
            Some(_) if version <= self.counter_version => {
                return wrong("G45", "a version above", self.counter_version, version);
            }
            Some(counter) => {
                self.counter_version = version;
                self.counters.insert(name.clone(), counter);
            }
            None => drop(self.counters.remove(name)),
        }
        Ok(())
    }

    fn lock_command(
        &mut self,
        from: Incarnation,
        command: &locks::Command,
        told: &mut Told,
    ) -> Result<Result<locks::Done, locks::Refused>, (&'static str, String)> {
        if !self.members.contains(&from) {
            return Ok(Err(locks::Refused::NoMember));
        }
        let mine = |client: u64| Owner { member: from, client };
        Ok(match command {
            locks::Command::Acquire {
                name,
                client,
                mode,
                wait,
            } => return self.acquire(name, mine(*client), *mode, *wait, told),
            locks::Command::Abandon { name, client } => {
                let lock = self.locks.get_mut(name);
                let place = lock.and_then(|lock| {
                    let place = lock
                        .queue
                        .iter()
                        .position(|waiter| waiter.owner == mine(*client))?;
                    Some(lock.queue.remove(place))
                });
                if place.is_none() {
                    return Ok(Err(locks::Refused::WaitsNot));
                }
                self.grant_all(told)?;
                Ok(locks::Done::Ended)
            }
            locks::Command::Release { token } => {
                let Some((name, holder)) = self.held_by(from, *token) else {
                    return Ok(Err(locks::Refused::NotHeld { token: *token }));
                };
                self.drop_holder(&name, *token);
                told.expect(&name, holder.owner, |what| what == Lock::Released(*token))?;
                self.grant_all(told)?;
                Ok(locks::Done::Ended)
            }
            locks::Command::HandOver { token, to, client } => {
                let Some((name, holder)) = self.held_by(from, *token) else {
                    return Ok(Err(locks::Refused::NotHeld { token: *token }));
                };
                let Some(lock) = self.locks.get_mut(&name) else {
                    return Err(("G30", format!("{name} is forgotten")));
                };
                let wanted = |waiter: &Waiter| {
                    waiter.owner.member == *to && client.is_none_or(|client| client == waiter.owner.client)
                };
                let Some(place) = lock.queue.iter().position(wanted) else {
                    return Ok(Err(locks::Refused::NoSuccessor));
                };
                let free = lock.free() + holder.permits;
                let waiter = lock.queue[place];
                if waiter.permits > free {
                    return Ok(Err(locks::Refused::TooMuch {
                        wanted: waiter.permits,
                        free,
                    }));
                }
                lock.queue.remove(place);
                lock.holders.retain(|holder| holder.token != *token);
                let lost = Lock::Lost(*token, Cause::HandedOver(waiter.owner));
                told.expect(&name, holder.owner, |what| what == lost)?;
                let token = self.hold(&name, waiter, told)?;
                self.grant_all(told)?;
                Ok(locks::Done::Granted(token))
            }
            locks::Command::Forget { client } => {
                self.end_all(|owner| owner == mine(*client), |_| Cause::Forgotten, told)?;
                self.grant_all(told)?;
                Ok(locks::Done::Ended)
            }
        })
    }

    fn acquire(
        &mut self,
        name: &Name,
        owner: Owner,
        mode: Mode,
        wait: Wait,
        told: &mut Told,
    ) -> Result<Result<locks::Done, locks::Refused>, (&'static str, String)> {
        let (permits, size) = match mode {
            Mode::Exclusive => (ALL, ALL),
            Mode::Shared => (1, ALL),
            Mode::Permits { take, of } => (take, of),
        };
        let until = match wait {
            Wait::WithinMs(millis) => Some(AgreedTime {
                millis: self.locks_time.millis + millis,
            }),
            _ => None,
        };
        let waiter = Waiter {
            owner,
            permits,
            until,
        };
        if let Some(lock) = self.locks.get_mut(name) {
            if let Some(holder) = lock.holders.iter().find(|holder| holder.owner == owner) {
                return Ok(Err(locks::Refused::Holds { token: holder.token }));
            }
            if lock.queue.iter().any(|waiter| waiter.owner == owner) {
                return Ok(Err(locks::Refused::Waits));
            }
            if lock.size != size {
                let used = (lock.size != ALL).then_some(lock.size);
                return Ok(Err(locks::Refused::OtherSize { used }));
            }
            if !lock.queue.is_empty() || lock.free() < permits {
                if matches!(wait, Wait::Try | Wait::WithinMs(0)) {
                    return Ok(Err(locks::Refused::Busy));
                }
                lock.queue.push(waiter);
                return Ok(Ok(locks::Done::Waiting));
            }
        }
        self.locks.entry(name.clone()).or_default().size = size;
        let token = self.hold(name, waiter, told)?;
        Ok(Ok(locks::Done::Granted(token)))
    }

    fn held_by(&self, member: Incarnation, token: Token) -> Option<(Name, Holder)> {
        let all = self.locks.iter();
        let mut all = all.flat_map(|(name, lock)| lock.holders.iter().map(move |holder| (name, holder)));
        let (name, holder) = all.find(|(_, holder)| holder.token == token)?;
        (holder.owner.member == member).then(|| (name.clone(), *holder))
    }

    fn drop_holder(&mut self, name: &Name, token: Token) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.holders.retain(|holder| holder.token != token);
        }
    }

    /// It has the lock now, with a token above all others.
    fn hold(
        &mut self,
        name: &Name,
        waiter: Waiter,
        told: &mut Told,
    ) -> Result<Token, (&'static str, String)> {
        let mut token = Token(0);
        told.expect(name, waiter.owner, |what| match what {
            Lock::Granted(given) => {
                token = given;
                true
            }
            _ => false,
        })?;
        if token <= self.last_token {
            let last = self.last_token;
            return Err((
                "G30",
                format!("{name} is granted with {token}, and {last} was given"),
            ));
        }
        self.last_token = token;
        if let Some(lock) = self.locks.get_mut(name) {
            lock.holders.push(Holder {
                owner: waiter.owner,
                permits: waiter.permits,
                token,
            });
        }
        Ok(token)
    }

    fn end_all(
        &mut self,
        gone: impl Fn(Owner) -> bool,
        cause: impl Fn(Owner) -> Cause,
        told: &mut Told,
    ) -> Verdict {
        for (name, lock) in &mut self.locks {
            lock.queue.retain(|waiter| !gone(waiter.owner));
            for holder in lock.holders.iter().filter(|holder| gone(holder.owner)) {
                let lost = Lock::Lost(holder.token, cause(holder.owner));
                told.expect(name, holder.owner, |what| what == lost)?;
            }
            lock.holders.retain(|holder| !gone(holder.owner));
        }
        Ok(())
    }

    fn time_out(&mut self, at: At, told: &mut Told) -> Verdict {
        self.locks_time = self.locks_time.max(at.time);
        let now = self.locks_time;
        for (name, lock) in &mut self.locks {
            let due = |waiter: &Waiter| waiter.until.is_some_and(|until| until <= now);
            for waiter in lock.queue.iter().filter(|waiter| due(waiter)) {
                told.expect(name, waiter.owner, |what| what == Lock::TimedOut)?;
            }
            lock.queue.retain(|waiter| !due(waiter));
        }
        Ok(())
    }

    fn time_out_and_grant(&mut self, at: At, told: &mut Told) -> Verdict {
        self.time_out(at, told)?;
        self.grant_all(told)
    }

    /// First come, first served. The tokens of one step rise in the order in which they were told; among
    /// locks this order may be any.
    fn grant_all(&mut self, told: &mut Told) -> Verdict {
        let names: Vec<Name> = self.locks.keys().cloned().collect();
        for name in names {
            while let Some(lock) = self.locks.get_mut(&name)
                && let Some(waiter) = lock.queue.first().copied()
                && waiter.permits <= lock.free()
            {
                lock.queue.remove(0);
                self.hold(&name, waiter, told)?;
            }
        }
        self.locks
            .retain(|_, lock| !lock.holders.is_empty() || !lock.queue.is_empty());
        Ok(())
    }
}

/// The counter that a command may change.
fn changes(command: &counters::Command) -> Option<&counters::Name> {
    match command {
        counters::Command::Add { name, .. }
        | counters::Command::Set { name, .. }
        | counters::Command::Remove { name, .. } => Some(name),
        counters::Command::TakeBlock { .. } => None,
    }
}

impl Told {
    fn of(step: &Step) -> Self {
        let mut told: BTreeMap<Name, VecDeque<(Owner, Lock)>> = BTreeMap::new();
        for event in &step.locks {
            told.entry(event.name.clone())
                .or_default()
                .push_back((event.owner, event.what));
        }
        Self(told)
    }

    /// This was told of a lock next. Losses and ends of waiting have no order among themselves.
    fn expect(&mut self, name: &Name, owner: Owner, mut fits: impl FnMut(Lock) -> bool) -> Verdict {
        let events = self.0.entry(name.clone()).or_default();
        let unordered = |what: &Lock| matches!(what, Lock::Lost(..) | Lock::TimedOut);
        let run = events.iter().take_while(|(_, what)| unordered(what)).count();
        let place = (0..events.len().min(run.max(1))).find(|place| {
            let (of, what) = events[*place];
            of == owner && fits(what)
        });
        match place {
            Some(place) => {
                events.remove(place);
                Ok(())
            }
            None => Err((
                "G30",
                format!("of {name} something of {owner} should be told, there is {events:?}"),
            )),
        }
    }

    fn nothing_left(&self) -> Verdict {
        let left = self.0.iter().find(|(_, events)| !events.is_empty());
        left.map_or(Ok(()), |(name, events)| {
            Err(("G30", format!("of {name} there is told besides {events:?}")))
        })
    }
}
