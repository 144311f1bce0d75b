//! The clients of a replica: each has one request at a time, drawn from the seed.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_replica::locks::{self, Mode, Name, Owner, Token, What as Lock};
use antiphon_replica::map::{Command as Writes, Write};
use antiphon_replica::{Ack, At, Condition, Failure, Refusal, RequestId, counters};

use super::*;
use crate::machine::{Reply, Step, Stepped, What};
use crate::plan::Replicated;
use crate::trace::Saw;

/// For how long what is written at rest lives.
const SOON: Duration = Duration::from_millis(300);

/// The clients of one member.
#[derive(Debug, Default)]
pub(super) struct Clients {
    /// Requests without an answer: the number of each in the run, and its client.
    busy: BTreeMap<RequestId, (u64, u64)>,
    /// The locks that clients were told they hold, and do not give back yet.
    held: BTreeMap<Token, (Name, u64)>,
    /// Clients that said that they are gone, and are not forgotten yet, by the number of the request.
    gone: BTreeMap<u64, u64>,
    /// Versions that clients have seen.
    versions: BTreeMap<Bytes, antiphon_replica::Version>,
}

impl Clients {
    /// How many requests have no answer.
    pub(super) fn waiting(&self) -> usize {
        self.busy.len()
    }

    pub(super) fn written(
        &mut self,
        request: RequestId,
        outcome: Result<(At, Reply), Failure>,
    ) -> Option<Deed> {
        let Some((op, _)) = self.busy.remove(&request) else {
            return Some(Deed::Wrong(format!("{request:?} was answered, and nobody asked")));
        };
        self.gone.remove(&op);
        Some(Deed::Written { op, outcome })
    }

    pub(super) fn readable(&mut self, request: RequestId) -> Option<u64> {
        self.busy.remove(&request).map(|(op, _)| op)
    }

    /// What clients learn from a step of the machine.
    pub(super) fn stepped(&mut self, me: Incarnation, step: &Step) {
        for event in step.locks.iter().filter(|event| event.owner.member == me) {
            match event.what {
                // It has forgotten that it waits.
                Lock::Granted(_) if self.gone.values().any(|client| *client == event.owner.client) => {}
                Lock::Granted(token) => {
                    let held = (event.name.clone(), event.owner.client);
                    self.held.insert(token, held);
                }
                Lock::Released(token) | Lock::Lost(token, _) => drop(self.held.remove(&token)),
                Lock::TimedOut => {}
            }
        }
        if let Stepped::Command(_, command, Reply::Map(Ok(written))) = &step.what
            && let What::Map(writes) = &command.what
        {
            for (write, written) in writes.writes.iter().zip(written) {
                if let Some(entry) = &written.new {
                    self.versions.insert(write.key.clone(), entry.version);
                }
            }
        }
    }

    /// The state is void: no client holds anything.
    pub(super) fn forget(&mut self) {
        self.held.clear();
        self.gone.clear();
        self.versions.clear();
    }
}

impl World {
    /// The next request of a member's clients, if one of them is free.
    pub(in crate::world) fn ask(&mut self, id: ProcessId) {
        let Some(plan) = self.plan.replicated.clone() else {
            return;
        };
        if self.processes[id].ended.is_some() {
            return;
        }
        let again = self.now + plan.every / 2 + self.random.below(plan.every) + 1;
        self.agenda.add(again, Happening::Ask(id));
        let process = &self.processes[id];
        if !self.loaded || !self.reads_now(id) || process.stalled || process.leaving {
            return;
        }
        self.with_replica(id, |world, it| {
            world.use_locks(id, &plan, it);
            let client = world.random.below(plan.clients);
            if it.clients.busy.values().any(|(_, busy)| *busy == client) {
                return;
            }
            let ack = if world.random.percent(35) {
                Ack::All
            } else {
                Ack::Here
            };
            if world.random.percent(plan.locks_percent) {
                let command = world.a_lock_command(&plan, it, client);
                world.write_for_client(id, &plan, it, client, What::Locks(command), ack);
                return;
            }
            match world.random.below(100) {
                0..45 => {
                    let command = world.a_map_command(&plan, it);
                    world.write_for_client(id, &plan, it, client, What::Map(command), ack);
                }
                45..65 => {
                    let command = world.a_counter_command(&plan);
                    world.write_for_client(id, &plan, it, client, What::Counters(command), ack);
                }
                65..85 => _ = world.read_latest_for_client(id, &plan, it, client),
                _ => {
                    if let Some(deed) = world.read_for_client(it, None) {
                        world.note(id, Seen::Replica(plan.group, deed));
                    }
                }
            }
        });
        self.drive(id);
    }

    /// At rest: each member writes once more, and reads what all have written. Whether all could ask.
    pub(crate) fn ask_at_rest(&mut self) -> Result<(), (Slot, Refusal)> {
        let Some(plan) = self.plan.replicated.clone() else {
            return Ok(());
        };
        self.asked_at_rest();
        let mut refused = None;
        for slot in self.live_slots() {
            let Some(id) = self
                .process_at(slot)
                .filter(|_| self.wants_group(slot, plan.group))
            else {
                continue;
            };
            self.with_replica(id, |world, it| {
                if it.standing != Standing::Serving {
                    return;
                }
                let read = it.replica.read(|_| ()).err();
                let command = world.a_counter_command(&plan);
                let write = world.write_for_client(id, &plan, it, 0, What::Counters(command), Ack::All);
                let latest = world.read_latest_for_client(id, &plan, it, 1);
                // Nobody writes any more when this is due: some member has to say that it is.
                let passing = Write::put(a_key(0), Bytes::from_static(b"rest")).expiring(SOON);
                let writes = Writes {
                    writes: vec![passing],
                };
                let passing = world.write_for_client(id, &plan, it, 2, What::Map(writes), Ack::Here);
                let refusal = read.or(write).or(latest).or(passing);
                refused = refused.take().or(refusal.map(|refusal| (slot, refusal)));
            });
            self.drive(id);
        }
        refused.map_or(Ok(()), Err)
    }

    fn with_replica(&mut self, id: ProcessId, act: impl FnOnce(&mut World, &mut Replicating)) {
        if let Some(mut it) = self.processes[id].replica.take() {
            act(self, &mut it);
            self.processes[id].replica = Some(it);
        }
    }

    /// Whether that was refused.
    fn write_for_client(
        &mut self,
        id: ProcessId,
        plan: &Replicated,
        it: &mut Replicating,
        client: u64,
        what: What,
        ack: Ack,
    ) -> Option<Refusal> {
        self.numbers += 1;
        let op = self.numbers;
        let command = crate::machine::Command { op, what };
        match it.replica.write(&command, ack) {
            Ok(request) => {
                it.clients.busy.insert(request, (op, client));
                if let What::Locks(locks::Command::Forget { client }) = &command.what {
                    it.clients.gone.insert(op, *client);
                }
                let what = command.what;
                self.note(id, Seen::Replica(plan.group, Deed::Writes { op, ack, what }));
                None
            }
            Err(refusal) => {
                self.count("replica_refuses");
                Some(refusal)
            }
        }
    }

    fn read_latest_for_client(
        &mut self,
        id: ProcessId,
        plan: &Replicated,
        it: &mut Replicating,
        client: u64,
    ) -> Option<Refusal> {
        self.numbers += 1;
        let op = self.numbers;
        match it.replica.read_latest() {
            Ok(request) => {
                it.clients.busy.insert(request, (op, client));
                self.note(id, Seen::Replica(plan.group, Deed::WantsLatest { op }));
                None
            }
            Err(refusal) => {
                self.count("replica_refuses");
                Some(refusal)
            }
        }
    }

    /// A client reads, if it may.
    pub(super) fn read_for_client(&mut self, it: &Replicating, op: Option<u64>) -> Option<Deed> {
        let plan = self.plan.replicated.as_ref()?;
        let names = plan.names;
        let (key, counter, lock) = (
            a_key(self.random.below(names)),
            a_counter(self.random.below(names)),
            a_lock(self.random.below(names)),
        );
        let read = it.replica.read(|store| {
            let held = store.locks().lock(&lock);
            let holders = held.into_iter().flat_map(locks::Lock::holders);
            let saw = Saw {
                entry: (key.clone(), store.map().get(&key).cloned()),
                counter: (counter.clone(), store.counters().get(&counter)),
                lock: (
                    lock.clone(),
                    holders.map(|(token, claim)| (token, claim.owner)).collect(),
                ),
            };
            (store.place(), saw)
        });
        let ((state, index), saw) = read.ok()?;
        Some(Deed::Reads {
            op,
            state,
            index,
            saw: Box::new(saw),
        })
    }

    /// Clients do what only the holders of exclusive locks may.
    fn use_locks(&mut self, id: ProcessId, plan: &Replicated, it: &Replicating) {
        let exclusive = it.replica.read(|store| {
            let held = it.clients.held.iter();
            let exclusive = held.filter(|(token, (name, _))| {
                let lock = store.locks().lock(name);
                let mode =
                    lock.and_then(|lock| Some(lock.mode(lock.holders().find(|(of, _)| of == *token)?.1)));
                mode == Some(Mode::Exclusive)
            });
            exclusive
                .map(|(token, (name, _))| (*token, name.clone()))
                .collect::<Vec<_>>()
        });
        for (token, lock) in exclusive.unwrap_or_default() {
            self.note(id, Seen::Replica(plan.group, Deed::Uses { lock, token }));
        }
    }

    fn a_map_command(&mut self, plan: &Replicated, it: &Replicating) -> Writes {
        let count = if self.random.percent(20) {
            self.random.range(2, 3)
        } else {
            1
        };
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..count {
            let key = a_key(self.random.below(plan.names));
            if writes.iter().any(|write| write.key == key) {
                continue;
            }
            let bytes = 8 + self.random.index(plan.value_bytes.max(1));
            let mut write = match self.random.below(10) {
                0..2 => Write::remove(key.clone()),
                2 => Write::check(key.clone(), Condition::Always),
                _ => Write::put(key.clone(), self.payload(bytes)),
            };
            if self.random.percent(plan.expiring_percent) {
                write = write.expiring(Duration::from_millis(self.random.range(1, 3_000)));
            }
            let seen = it.clients.versions.get(&key).copied().unwrap_or_default();
            let condition = match self.random.below(10) {
                0 => Condition::Absent,
                1 => Condition::Present,
                2..4 => Condition::Version(seen),
                _ => Condition::Always,
            };
            writes.push(write.when(condition));
        }
        Writes { writes }
    }

    fn a_counter_command(&mut self, plan: &Replicated) -> counters::Command {
        let name = a_counter(self.random.below(plan.names));
        match self.random.below(10) {
            0 => counters::Command::Set {
                name,
                value: self.random.below(1_000) as i64,
                condition: Condition::Present,
            },
            1 => counters::Command::Remove {
                name,
                condition: Condition::Always,
            },
            2 => counters::Command::TakeBlock {
                count: self.random.range(1, 50) as u32,
            },
            _ => counters::Command::Add {
                name,
                by: self.random.below(200) as i64 - 100,
            },
        }
    }

    fn a_lock_command(&mut self, plan: &Replicated, it: &mut Replicating, client: u64) -> locks::Command {
        let mine = it.clients.held.iter().find(|(_, (_, of))| *of == client);
        let mine = mine.map(|(token, _)| *token);
        let roll = self.random.below(100);
        if let Some(token) = mine.filter(|_| roll < 65) {
            // It does nothing with the lock from here on, whatever comes of the request.
            it.clients.held.remove(&token);
            if roll >= 8 {
                return locks::Command::release(token);
            }
            let to = self.random.index(self.plan.slots);
            let to = self.incarnation(to).unwrap_or(it.me);
            if self.random.percent(50) {
                return locks::Command::transfer(token, to);
            }
            let client = self.random.below(plan.clients);
            return locks::Command::hand_over(token, Owner { member: to, client });
        }
        let number = self.random.below(plan.names);
        let name = a_lock(number);
        if roll > 97 {
            it.clients.held.retain(|_, (_, of)| *of != client);
            return locks::Command::Forget { client };
        }
        if roll > 90 {
            return locks::Command::Abandon { name, client };
        }
        // Each third name is a semaphore, mostly.
        let semaphore = (number % 3 == 2) != self.random.percent(2);
        let mode = match self.random.below(10) {
            _ if semaphore => Mode::Permits {
                take: self.random.range(1, 2) as u32,
                of: 3,
            },
            0..7 => Mode::Exclusive,
            _ => Mode::Shared,
        };
        let acquire = locks::Command::acquire(&name, client).mode(mode);
        match self.random.below(10) {
            0..2 => acquire.at_once(),
            2..6 => acquire.within(Duration::from_millis(self.random.range(1, 2_000))),
            _ => acquire,
        }
    }
}

fn a_key(number: u64) -> Bytes {
    format!("k{number}").into()
}

fn a_counter(number: u64) -> counters::Name {
    format!("c{number}").into()
}

fn a_lock(number: u64) -> Name {
    format!("l{number}").into()
}
