//! Plans about replicas: joiners that get the state while others write, sources that die, holders of locks
//! that are removed.

use super::super::Replicated;
use super::*;

/// For the seeds that draw one: a group of replicas behind all other groups; drawn apart from all else.
pub(super) fn draw_replicas(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"replicas", 0));
    if plan.policy == Policy::Majority && random.percent(40) {
        replicate(plan, &mut random);
        let small = |it: &&mut Replicated| it.held_bytes < 1 << 20;
        if let Some(it) = plan.replicated.as_mut().filter(small) {
            it.spill_bytes = *random.pick(&[0, 60_000, 1 << 20]);
            it.disk = *random.pick(&[1, 20]) * MILLIS;
        }
    }
}

/// Adds the group, for all or most slots.
fn replicate(plan: &mut Plan, random: &mut Random) {
    let window = *random.pick(&[64 << 10, 256 << 10]);
    let all = random.percent(70);
    let group = plan.groups.len();
    plan.groups.push(GroupPlan {
        name: "replicas".to_owned(),
        options: GroupOptions::default().order(Order::Total).window_bytes(window),
        members: (0..plan.slots).filter(|_| all || random.percent(70)).collect(),
    });
    plan.replicated = Some(Replicated {
        group,
        clients: random.range(2, 8),
        every: *random.pick(&[20, 60, 150]) * MILLIS,
        names: *random.pick(&[3, 8, 40]),
        value_bytes: *random.pick(&[20, 200, 5_000]),
        expiring_percent: *random.pick(&[0, 20]),
        locks_percent: *random.pick(&[20, 40, 70]),
        safe: random.percent(50),
        held_bytes: if random.percent(15) { 40_000 } else { 64 << 20 },
        spill_bytes: 0,
        disk: 0,
        disk_fails_percent: 0,
        digest_every: *random.pick(&[0, 10, 100]),
        found_anew: random.percent(50),
    });
}

impl Story<'_> {
    /// Nothing but replicas, and enough for them to do.
    fn replicas(&mut self) {
        self.plan.groups.clear();
        replicate(&mut self.plan, self.random);
        self.plan.groups[0].members = (0..self.plan.slots).collect();
        if let Some(it) = &mut self.plan.replicated {
            it.every = self.random.range(8, 40) * MILLIS;
        }
    }

    fn leave_and_join(&mut self, at: Micros, slot: Slot, away: Micros) {
        self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
        self.at(at + away, Action::JoinGroup(Who::Slot(slot), 0));
    }

    /// R19: members join again and again while all others write; paths hold back what they are told.
    fn with_joiners(&mut self, value_bytes: usize) {
        self.replicas();
        self.begin();
        if let Some(it) = &mut self.plan.replicated {
            it.value_bytes = value_bytes;
            it.names = 40;
        }
        if self.random.percent(50) {
            self.ragged();
        }
    }

    /// R19: the joiner's state is the state at one point, whatever is written while it is on its way.
    pub(super) fn joiner_while_writing(&mut self) {
        let bytes = *self.random.pick(&[500, 8_000, 30_000]);
        self.with_joiners(bytes);
        let mut at = 3 * SECONDS;
        while at < 16 * SECONDS {
            let slot = self.slot();
            let away = self.ms(100, 1_500);
            if self.random.percent(50) {
                self.leave_and_join(at, slot, away);
            } else {
                self.at(at, Action::Crash(Who::Slot(slot)));
                self.at(at + away, Action::Start(slot));
            }
            if self.random.percent(40) {
                self.clog_some(at + away, 4, 1_200);
            }
            if self.random.percent(20) {
                let (other, length) = (self.slot(), self.ms(200, 3_000));
                self.at(at + away, Action::Stall(Who::Slot(other), length));
            }
            at += self.ms(400, 2_500);
        }
    }

    /// R19: what a joiner holds is more than it has memory for, and goes to its file and comes back; now and
    /// then it is more than both, or the disk fails.
    pub(super) fn joiner_spills(&mut self) {
        let (bytes, memory) = *self
            .random
            .pick(&[(3_000, 24_000), (8_000, 60_000), (8_000, 100_000)]);
        self.with_joiners(bytes);
        // Slow enough that a transfer takes a while, and much is written meanwhile.
        self.plan.network.bytes_per_s = self.random.range(250_000, 900_000);
        self.plan.network.buffer_bytes = 256 << 10;
        if let Some(it) = &mut self.plan.replicated {
            it.names = 100;
            it.locks_percent = 10;
            it.held_bytes = memory;
            it.spill_bytes = *self.random.pick(&[100_000, 1 << 20, 8 << 20]);
            it.disk = *self.random.pick(&[1, 5, 30]) * MILLIS;
            it.disk_fails_percent = *self.random.pick(&[0, 0, 1]);
        }
        let mut at = 3 * SECONDS;
        while at < 16 * SECONDS {
            let (slot, away) = (self.slot(), self.ms(100, 600));
            self.leave_and_join(at, slot, away);
            if self.random.percent(50) {
                self.clog_some(at + away, 4, 1_500);
            }
            if self.random.percent(25) {
                let (other, died) = (self.slot(), at + away + self.ms(0, 800));
                self.at(died, Action::Crash(Who::Slot(other)));
                self.at(died + SECONDS, Action::Start(other));
            }
            at += self.ms(900, 2_500);
        }
    }

    /// R19: the member that gives the state dies, leaves or falls silent while it does; so does the next
    /// one.
    pub(super) fn source_dies(&mut self) {
        let bytes = *self.random.pick(&[8_000, 30_000]);
        self.with_joiners(bytes);
        if self.random.percent(60) {
            // Slow enough that a transfer takes a while.
            self.plan.network.bytes_per_s = self.random.range(400_000, 2_000_000);
            self.plan.network.buffer_bytes = 256 << 10;
        }
        for round in 0..4 {
            let at = (4 + 4 * round) * SECONDS + self.ms(0, 500);
            let joiner = self.slot();
            let away = self.ms(50, 400);
            self.leave_and_join(at, joiner, away);
            for _ in 0..self.random.range(1, 2) {
                let (source, died) = (self.slot(), at + away + self.ms(0, 500));
                if source == joiner {
                    continue;
                }
                match self.random.below(5) {
                    0 => self.at(died, Action::CrashAfterView(Who::Slot(source), 3)),
                    1 => self.leave_and_join(died, source, 500 * MILLIS),
                    2 => self.at(died, Action::Isolate(Who::Slot(source))),
                    3 => self.at(died, Action::Stall(Who::Slot(source), 4 * SECONDS)),
                    _ => self.at(died, Action::Crash(Who::Slot(source))),
                }
            }
            self.at(at + 3 * SECONDS, Action::Heal);
            for slot in 0..self.nodes {
                self.at(at + 3 * SECONDS, Action::Start(slot));
            }
        }
    }

    /// R19: all members that have the state go while others wait for it, or all members go, and the group
    /// begins anew, in the same view of the nodes or in a later one.
    pub(super) fn nobody_has_the_state(&mut self) {
        let bytes = *self.random.pick(&[50, 30_000]);
        self.with_joiners(bytes);
        for round in 0..4 {
            let at = (3 + 4 * round) * SECONDS + self.ms(0, 500);
            let kept = self.random.range(0, 2) as usize;
            let mut slots: Vec<Slot> = (0..self.nodes).collect();
            self.random.shuffle(&mut slots);
            let (kept, gone) = slots.split_at(kept);
            for slot in gone {
                let apart = self.ms(0, 100);
                self.at(at + apart, Action::LeaveGroup(Who::Slot(*slot), 0));
            }
            let back = at + self.ms(300, 1_500);
            for slot in gone {
                let apart = self.ms(0, 200);
                self.at(back + apart, Action::JoinGroup(Who::Slot(*slot), 0));
            }
            // The members that had stayed go when the others have joined, and have the state or not.
            for slot in kept {
                let apart = self.ms(0, 300);
                let action = match self.random.below(3) {
                    0 => Action::Crash(Who::Slot(*slot)),
                    1 => Action::CrashAtOutput(Who::Slot(*slot), 20),
                    _ => Action::LeaveGroup(Who::Slot(*slot), 0),
                };
                self.at(back + apart, action);
                self.at(back + 2 * SECONDS, Action::Start(*slot));
                self.at(back + 2 * SECONDS, Action::JoinGroup(Who::Slot(*slot), 0));
            }
        }
    }

    /// G30: members that hold locks are stopped, cut off or killed, and others get the locks.
    pub(super) fn holder_is_removed(&mut self) {
        self.replicas();
        self.begin();
        if let Some(it) = &mut self.plan.replicated {
            it.names = 2;
            it.clients = 3;
            it.locks_percent = 80;
        }
        for round in 0..5 {
            let at = (3 + 3 * round) * SECONDS + self.ms(0, 500);
            let slot = self.slot();
            let length = self.ms(500, 2_800);
            let who = Who::Slot(slot);
            let others: Vec<Slot> = (0..self.nodes).filter(|other| *other != slot).collect();
            let action = match self.random.below(7) {
                0 => Action::Pause(who, length),
                1 => Action::Isolate(who),
                2 => Action::OneWay(vec![slot], others),
                3 => Action::OneWay(others, vec![slot]),
                4 => Action::Stall(who, length),
                5 => Action::LeaveGroup(who, 0),
                _ => Action::Crash(who),
            };
            self.at(at, action);
            let back = at + length.max(1_500 * MILLIS);
            self.at(back, Action::Heal);
            self.at(back, Action::Start(slot));
            self.at(back, Action::JoinGroup(who, 0));
        }
    }

    /// G45: members that write are cut off, and come back; what they were answered is kept, or is undone only
    /// where that is said.
    pub(super) fn writers_are_cut_off(&mut self) {
        self.replicas();
        self.begin();
        self.ragged();
        let mut at = 3 * SECONDS;
        while at < 16 * SECONDS {
            let length = self.ms(500, 4_000);
            let action = match self.random.below(4) {
                0 => Action::Isolate(Who::Leader),
                1 => Action::CrashAtOutput(Who::Leader, 10),
                2 => Action::Partition(self.halves()),
                _ => Action::Pause(Who::Leader, length),
            };
            self.at(at, action);
            at += length;
            self.at(at, Action::Heal);
            for slot in 0..self.nodes {
                self.at(at, Action::Start(slot));
            }
            at += self.ms(1_000, 3_000);
        }
    }

    /// R11: an operator has one of them go on with the state and its locks.
    pub(super) fn recover_replicas(&mut self) {
        self.recover();
        replicate(&mut self.plan, self.random);
        if let Some(it) = &mut self.plan.replicated {
            it.every = self.random.range(20, 100) * MILLIS;
            it.locks_percent = 70;
            it.safe = true;
        }
    }

    /// G50: both sides go on and write, and merge; sometimes three, or a side that does not go on.
    pub(super) fn replicas_merge(&mut self) {
        self.replicas();
        self.any_partition();
        // So that one side comes to a later time than the other.
        self.plan.drift_ppm = 14_000;
        if let Some(it) = &mut self.plan.replicated {
            // Enough that most names are written on both sides.
            it.names = 3;
            it.every = self.random.range(40, 400) * MILLIS;
            it.expiring_percent = 10;
            // Joiners have nothing, or much, to catch up with.
            it.disk = *self.random.pick(&[0, 0, SECONDS]);
        }
    }
}
