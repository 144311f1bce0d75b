//! Plans about what operators and hosts do: restarts, storms of joins and leaves, power cuts, strange
//! traffic.

use std::time::Duration;

use super::cuts::FORMED;
use super::*;

impl Story<'_> {
    pub(super) fn rolling_restart(&mut self) {
        self.begin();
        for slot in 0..self.nodes {
            let at = (3 + 3 * slot as u64) * SECONDS;
            let gone = if self.random.percent(70) {
                Action::Leave(Who::Slot(slot))
            } else {
                Action::Crash(Who::Slot(slot))
            };
            self.at(at, gone);
            let back = at + self.ms(300, 2_000);
            self.at(back, Action::Start(slot));
        }
    }

    pub(super) fn joiner_storm(&mut self) {
        for slot in 0..self.nodes {
            self.at(0, Action::Start(slot));
        }
        let at = self.ms(3_000, 5_000);
        for slot in self.nodes..self.plan.slots {
            let apart = self.random.below(100 * MILLIS);
            self.at(at + apart, Action::Start(slot));
            if self.random.percent(25) {
                let gone = at + apart + self.ms(1, 1_000);
                self.at(gone, Action::Crash(Who::Slot(slot)));
                let back = gone + self.ms(1, 1_000);
                self.at(back, Action::Start(slot));
            }
        }
        self.plan.load.every = 100 * MILLIS;
        self.plan.duration = 12 * SECONDS;
    }

    /// R18: a quarter of many nodes are killed while others join. Node views follow one another closely, and
    /// each member installs them at its own time: a member that is behind gets messages of a view that it
    /// does not have yet.
    pub(super) fn joiners_beside_crashes(&mut self) {
        self.one_group(Order::Total);
        self.plan.groups[0].members = (0..self.plan.slots).collect();
        self.plan.load.every = 400 * MILLIS;
        self.plan.network.latency = self.random.range(50, 1_000);
        self.plan.network.jitter = self.random.range(200, 4_000);
        for slot in 0..self.nodes {
            self.at(0, Action::Start(slot));
        }
        let at = FORMED + self.ms(0, 200);
        let mut killed: Vec<Slot> = (0..self.nodes).collect();
        self.random.shuffle(&mut killed);
        killed.truncate(self.nodes / 4);
        for slot in killed {
            let apart = self.ms(0, 40);
            let who = Who::Slot(slot);
            // A joiner waits for the view without members that nothing proves to be dead, and is in it.
            let end = match self.random.percent(50) {
                true => Action::PowerOff(who),
                false => Action::Crash(who),
            };
            self.at(at + apart, end);
        }
        let silence = self.plan.profile.suspect_after.as_millis() as u64;
        for slot in self.nodes..self.plan.slots {
            let apart = self.ms(0, silence + 300);
            self.at(at + apart, Action::Start(slot));
        }
        for _ in 0..self.random.range(4, 12) {
            let (from, to) = pair(self.random, self.plan.slots);
            let (after, clog) = (self.ms(0, silence + 600), self.ms(5, 300));
            self.at(at + after, Action::Clog(from, to, clog));
        }
        self.plan.follows_within = Some(self.plan.profile.flush_stall.as_micros() as u64 * 3 / 5);
        self.plan.duration = at + 6 * SECONDS;
    }

    pub(super) fn simultaneous_leave(&mut self) {
        self.begin();
        let at = self.ms(4_000, 6_000);
        let count = self.random.range(2, self.nodes as u64 - 1) as usize;
        for slot in 0..count {
            let apart = self.random.below(30 * MILLIS);
            self.at(at + apart, Action::Leave(Who::Slot(slot)));
        }
        if self.random.percent(40) {
            let victim = self.slot();
            let delay = self.ms(0, 200);
            self.at(at + delay, Action::Crash(Who::Slot(victim)));
        }
        let back = self.ms(11_000, 13_000);
        for slot in 0..count {
            self.at(back, Action::Start(slot));
        }
        self.plan.duration = 15 * SECONDS;
    }

    /// A majority decides by proof of death although most are gone.
    pub(super) fn three_to_one(&mut self) {
        self.begin();
        self.plan.network.proxy_percent = 0;
        let mut order: Vec<Slot> = (0..self.nodes).collect();
        self.random.shuffle(&mut order);
        let mut at = 5 * SECONDS;
        for slot in order.into_iter().skip(1) {
            self.at(at, Action::Crash(Who::Slot(slot)));
            at += self.ms(1_500, 4_000);
        }
        self.plan.duration = at + SECONDS;
        self.plan.liveness = Liveness::SurvivorsWithin(10 * SECONDS);
    }

    pub(super) fn bridge(&mut self) {
        self.begin();
        for round in 0..2 {
            let at = (3 + 8 * round) * SECONDS;
            let mut halves = self.halves();
            // The last of the larger side hears both.
            halves.sort_by_key(Vec::len);
            if halves[1].len() > 1 {
                halves[1].pop();
            }
            self.at(at, Action::Partition(halves));
            let healed = at + self.ms(1_000, 7_000);
            self.at(healed, Action::Heal);
        }
    }

    pub(super) fn group_churn(&mut self) {
        self.begin();
        self.plan.load.every = 15 * MILLIS;
        for _ in 0..self.random.range(10, 30) {
            let at = self.ms(2_000, 18_000);
            let (slot, group) = (self.slot(), self.random.index(self.plan.groups.len()));
            self.at(at, Action::LeaveGroup(Who::Slot(slot), group));
            let back = at + self.ms(1, 1_500);
            self.at(back, Action::JoinGroup(Who::Slot(slot), group));
            if self.random.percent(10) {
                let victim = self.slot();
                self.at(at + MILLIS, Action::Crash(Who::Slot(victim)));
                self.at(at + 2 * SECONDS, Action::Start(victim));
            }
        }
    }

    pub(super) fn restart_at_the_same_address(&mut self) {
        self.begin();
        if self.random.percent(50) {
            self.plan.network.replay_ppm = 20_000;
        }
        for _ in 0..self.random.range(2, 7) {
            let at = self.ms(3_000, 17_000);
            let slot = self.slot();
            match self.random.below(3) {
                0 => self.at(at, Action::PowerOff(Who::Slot(slot))),
                1 => {
                    // Restarted while cut off: its old incarnation's death is not proven to the others.
                    self.at(at, Action::Isolate(Who::Slot(slot)));
                    self.at(at + 100 * MILLIS, Action::Crash(Who::Slot(slot)));
                    self.at(at + 1_500 * MILLIS, Action::Heal);
                }
                _ => self.at(at, Action::Crash(Who::Slot(slot))),
            }
            let back = at + self.ms(1, 1_400);
            self.at(back, Action::Start(slot));
        }
    }

    /// Hosts vanish without a FIN, some for ever: never a proof, and no majority of the silent.
    pub(super) fn power_cut(&mut self) {
        self.begin();
        let at = self.ms(3_000, 6_000);
        let count = self.random.range(1, self.nodes as u64 - 1) as usize;
        for slot in 0..count {
            let apart = self.random.below(500 * MILLIS);
            self.at(at + apart, Action::PowerOff(Who::Slot(slot)));
        }
        if self.random.percent(50) {
            let back = at + self.ms(500, 6_000);
            for slot in 0..count {
                self.at(back, Action::Start(slot));
            }
        }
        self.plan.duration = 15 * SECONDS;
    }

    /// Frames come again seconds later, when other views and other incarnations are there.
    pub(super) fn late_replay(&mut self) {
        self.plan.transport = Transport::Datagram;
        self.plan.network.replay_ppm = 100_000;
        self.plan.network.replay_within = 6_000_000;
        self.plan.network.duplicate_ppm = 50_000;
        self.begin();
        for _ in 0..self.random.range(3, 8) {
            let at = self.ms(3_000, 16_000);
            let slot = self.slot();
            let back = at + self.ms(10, 2_000);
            if self.random.percent(50) {
                self.at(at, Action::Crash(Who::Slot(slot)));
                self.at(back, Action::Start(slot));
            } else {
                self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
                self.at(back, Action::JoinGroup(Who::Slot(slot), 0));
            }
        }
    }

    /// Some applications stop reading for longer than the group's limit, others for a while again and again.
    pub(super) fn slow_consumer(&mut self) {
        self.begin();
        self.plan.load.every = 5 * MILLIS;
        self.plan.load.bytes = 1_000;
        for group in &mut self.plan.groups {
            let limit = Duration::from_secs(2);
            group.options = group.options.window_bytes(64 << 10).slow_after(Some(limit));
        }
        let at = self.ms(3_000, 5_000);
        let length = self.ms(12_000, 35_000);
        let first = if self.random.percent(40) {
            Who::Leader
        } else {
            Who::Slot(self.random.index(self.nodes - 1))
        };
        self.at(at, Action::Stall(first, length));
        if self.random.percent(30) {
            let (later, slot) = (at + self.ms(0, 6_000), self.random.index(self.nodes - 1));
            let length = self.ms(6_000, 25_000);
            self.at(later, Action::Stall(Who::Slot(slot), length));
        }
        // The last slot's application reads, but in jerks.
        let jerky = Who::Slot(self.nodes - 1);
        let mut at = self.ms(3_000, 5_000);
        while at < 22 * SECONDS {
            let pause = self.ms(1_200, 1_850);
            self.at(at, Action::Stall(jerky, pause));
            at += pause + self.ms(10, 400);
        }
        if self.random.percent(40) {
            // Whole processes stand still again and again, each time for less than makes them suspect: they
            // read.
            let slot = self.slot();
            let mut at = self.ms(3_000, 5_000);
            while at < 22 * SECONDS {
                let pause = self.ms(500, 1_300);
                self.at(at, Action::Pause(Who::Slot(slot), pause));
                at += pause + self.ms(1, 300);
            }
        }
        if self.random.percent(30) {
            let (at, slot) = (self.ms(4_000, 9_000), self.slot());
            self.at(at, Action::Crash(Who::Slot(slot)));
            let back = at + self.ms(100, 4_000);
            self.at(back, Action::Start(slot));
        }
        self.plan.duration = 30 * SECONDS;
    }

    pub(super) fn garbage(&mut self) {
        self.begin();
        for _ in 0..20 {
            let (at, slot) = (self.ms(0, 18_000), self.slot());
            self.at(at, Action::Garbage(Who::Slot(slot), 200));
        }
        let (a, at) = (self.slot(), self.ms(4_000, 8_000));
        self.at(at, Action::Crash(Who::Slot(a)));
        self.at(at + 100 * MILLIS, Action::Foreign(a, 4 * SECONDS));
        self.at(at + 5 * SECONDS, Action::Start(a));
    }
}
