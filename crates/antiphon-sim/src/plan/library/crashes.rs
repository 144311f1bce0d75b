//! Plans about kills and pauses at a delicate moment: right after a heal, over a view change, between two
//! installs, at any step.

use super::*;

impl Story<'_> {
    pub(super) fn kill_after_heal(&mut self) {
        self.begin();
        let mut at = 3 * SECONDS;
        while at < 15 * SECONDS {
            let halves = self.halves();
            self.at(at, Action::Partition(halves));
            at += self.ms(300, 4_000);
            self.at(at, Action::Heal);
            let delay = if self.random.percent(50) {
                self.ms(0, 20)
            } else {
                self.ms(0, 1_500)
            };
            let slot = self.slot();
            self.at(at + delay, Action::Crash(Who::Slot(slot)));
            at += self.ms(2_000, 4_000);
            self.at(at, Action::Start(slot));
            at += self.ms(1_000, 2_000);
        }
    }

    /// A process sleeps while views change; then it wakes, or is killed asleep.
    pub(super) fn pause_across_view(&mut self) {
        self.begin();
        self.plan.load.every = 20 * MILLIS;
        for round in 0..3 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 1_000);
            let (sleeper, other) = pair(self.random, self.nodes);
            let length = self.ms(300, 4_000);
            self.at(at, Action::Pause(Who::Slot(sleeper), length));
            let delay = self.ms(0, 1_000);
            let change = match self.random.below(3) {
                0 => Action::Crash(Who::Slot(other)),
                1 => Action::LeaveGroup(Who::Slot(other), 0),
                _ => Action::Leave(Who::Slot(other)),
            };
            self.at(at + delay, change);
            if self.random.percent(40) {
                let killed = at + self.ms(100, 4_000);
                self.at(killed, Action::Crash(Who::Slot(sleeper)));
            }
            for slot in 0..self.nodes {
                self.at(at + 4_500 * MILLIS, Action::Start(slot));
            }
            self.at(at + 4_500 * MILLIS, Action::JoinGroup(Who::Slot(other), 0));
        }
    }

    /// Views in quick succession, and deaths right after an install.
    pub(super) fn crash_between_installs(&mut self) {
        self.begin();
        self.ragged();
        for round in 0..4 {
            let at = (3 + 4 * round) * SECONDS;
            for _ in 0..2 {
                let (victim, count) = (self.slot(), self.random.below(12) as u32);
                let delay = self.ms(0, 50);
                self.at(at + delay, Action::CrashAfterView(Who::Slot(victim), count));
            }
            let slot = self.slot();
            self.at(at + 60 * MILLIS, Action::LeaveGroup(Who::Slot(slot), 0));
            let (delay, other) = (self.ms(0, 200), self.slot());
            self.at(at + 60 * MILLIS + delay, Action::Crash(Who::Slot(other)));
            for slot in 0..self.nodes {
                self.at(at + 3_500 * MILLIS, Action::Start(slot));
                self.at(at + 3_600 * MILLIS, Action::JoinGroup(Who::Slot(slot), 0));
            }
        }
    }

    /// One death at each possible place of a view change, a flush, a join or a merge, over the seeds.
    pub(super) fn crash_at_every_step(&mut self) {
        self.begin();
        let nodes = self.nodes;
        let trigger_at = self.ms(4_000, 6_000);
        let victim = match self.random.below(4) {
            0 => Who::Rank(0),
            1 => Who::Leader,
            2 => Who::Youngest,
            _ => Who::Slot(self.slot()),
        };
        let count = self.random.below(80) as u32;
        match self.random.below(5) {
            0 => self.at(trigger_at, Action::Crash(Who::Rank(2))),
            1 => self.at(trigger_at, Action::Start(nodes)),
            2 => self.at(trigger_at, Action::LeaveGroup(Who::Rank(2), 0)),
            3 => self.at(trigger_at, Action::Leave(Who::Rank(2))),
            _ => {
                let halves = self.halves();
                self.at(trigger_at, Action::Partition(halves));
                self.at(trigger_at + 3 * SECONDS, Action::Heal);
            }
        }
        let delay = if self.random.percent(60) {
            self.ms(0, 30)
        } else {
            self.ms(0, 4_000)
        };
        if self.random.percent(70) {
            self.at(trigger_at + delay, Action::CrashAtOutput(victim, count));
        } else {
            self.at(trigger_at, Action::CrashAfterView(victim, count / 4));
        }
        self.plan.duration = 12 * SECONDS;
    }

    /// R1: one of three hears nothing while another one is removed and a fourth admitted. Then the host of
    /// the elder loses power, and only the elder had installed both views. Kills and streams would not do:
    /// the written bytes come after the heal, and on lifelines they tell the votes. The member that is behind
    /// and the new member are most of the last view.
    pub(super) fn only_a_joiner_is_left(&mut self) {
        self.plan.transport = Transport::Datagram;
        for slot in 0..3 {
            self.at(u64::from(slot > 0) * 500 * MILLIS, Action::Start(slot));
        }
        let patience = self.plan.profile.suspect_after.as_micros() as Micros;
        let (gone, behind) = if self.random.percent(50) { (1, 2) } else { (2, 1) };
        let at = 3 * SECONDS + self.ms(0, 500);
        self.at(at, Action::OneWay(vec![0, gone, 3], vec![behind]));
        let soon = self.random.below(patience / 8);
        self.at(at + soon, Action::Crash(Who::Slot(gone)));
        let joins = at + patience / 4;
        self.at(joins, Action::Start(3));
        let dead = joins + self.random.range(0, patience / 2);
        self.at(dead, Action::ResetLifelines(0, behind));
        self.at(dead, Action::PowerOff(Who::Slot(0)));
        let heals = dead + self.random.below(patience);
        self.at(heals, Action::Heal);
        self.plan.duration = dead + 4 * SECONDS;
    }

    /// R1, R3: the elder of three is cut off, and the next one loses power when the third has accepted the
    /// view of these two, and before that hears what came of it. The two that are left hear a majority, and
    /// can decide nothing.
    pub(super) fn a_slot_stands_still(&mut self) {
        // Between the two lie two ways of a message.
        self.plan.network.latency = 40 * MILLIS;
        for slot in 0..3 {
            self.at(u64::from(slot > 0) * 500 * MILLIS, Action::Start(slot));
        }
        let patience = self.plan.profile.suspect_after.as_micros() as Micros;
        let at = 3 * SECONDS + self.ms(0, 500);
        self.at(at, Action::Partition(vec![vec![0], vec![1, 2]]));
        let gone = at + patience + self.random.below(patience / 2);
        self.at(gone, Action::PowerOff(Who::Slot(1)));
        let heals = gone + self.random.range(100 * MILLIS, patience);
        self.at(heals, Action::Heal);
        self.plan.duration = gone + 4 * SECONDS;
    }

    /// R12: a group lets two in by one view. The senior of them does not hear of it, and all members that
    /// were there before die. It is to lead a group, and asks the dead members to be let in; the other one
    /// was told.
    pub(super) fn only_joiners_are_left(&mut self) {
        self.plan.transport = Transport::Datagram;
        self.plan.network.latency = 10 * MILLIS;
        self.one_group(Order::Total);
        self.plan.groups[0].members = vec![0, 1];
        for slot in 0..self.nodes {
            self.at(u64::from(slot > 0) * 500 * MILLIS, Action::Start(slot));
        }
        let (first, second) = pair(self.random, self.nodes - 2);
        let unaware = 2 + first;
        let at = 4 * SECONDS + self.ms(0, 500);
        self.at(at, Action::JoinGroup(Who::Slot(unaware), 0));
        let soon = self.random.below(5 * MILLIS);
        self.at(at + soon, Action::JoinGroup(Who::Slot(2 + second), 0));
        let deaf = at + self.ms(20, 120);
        self.at(deaf, Action::OneWay(vec![0, 1], vec![unaware]));
        let dead = deaf + self.ms(10, 100);
        self.at(dead, Action::Crash(Who::Slot(0)));
        self.at(dead, Action::Crash(Who::Slot(1)));
        let heals = dead + self.ms(0, 100);
        self.at(heals, Action::Heal);
        self.plan.duration = dead + 4 * SECONDS;
    }
}
