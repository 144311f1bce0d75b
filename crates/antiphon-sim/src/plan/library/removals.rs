//! Plans about members that a group removes although they live.

use std::time::Duration;

use antiphon_core::Profile;

use super::*;

impl Story<'_> {
    /// R18: a member that hears all others, and whose part in the flush does not come.
    pub(super) fn stalled_flush(&mut self) {
        self.begin();
        for _ in 0..4 {
            let at = self.ms(3_000, 15_000);
            let slot = self.slot();
            let someone = self.slot();
            let cost = self.random.range(2_000, 60_000);
            let length = self.ms(1_000, 6_000);
            self.at(at, Action::Slow(Who::Slot(slot), cost, length));
            let delay = self.ms(0, 200);
            self.at(at + delay, Action::LeaveGroup(Who::Slot(someone), 0));
            self.at(at + delay + 2 * SECONDS, Action::JoinGroup(Who::Slot(someone), 0));
            if self.random.percent(50) {
                self.at(at + delay, Action::Crash(Who::Youngest));
            }
        }
    }

    /// G7: nodes leave within milliseconds of their start: not asked yet, asked, promised to be there, in a
    /// proposal, or admitted and not told. In half of the runs nothing else happens; in the others the
    /// proposer dies at about that time, and founders leave as well.
    pub(super) fn joiners_leave(&mut self) {
        let calm = self.random.percent(50);
        for slot in 0..self.nodes {
            self.at(0, Action::Start(slot));
        }
        self.plan.network.latency = self.random.range(20, 10_000);
        self.plan.network.jitter = self.random.range(0, 2_000);
        if calm {
            self.plan.leaves_within = Some(800 * MILLIS);
            // To leave groups takes its own time.
            for group in &mut self.plan.groups {
                group.members.retain(|slot| *slot < self.nodes);
            }
        } else {
            for slot in 0..self.nodes / 2 {
                let at = self.ms(0, 400);
                self.at(at, Action::Leave(Who::Slot(slot)));
            }
        }
        for round in 0..8 {
            let at = (3 + 2 * round) * SECONDS + self.ms(0, 500);
            let longest = *self.random.pick(&[10, 40, 150]);
            for slot in self.nodes..self.plan.slots {
                let start = at + self.random.below(20 * MILLIS);
                self.at(start, Action::Start(slot));
                let leave = start + self.random.below(longest * MILLIS);
                self.at(leave, Action::Leave(Who::Slot(slot)));
            }
            if !calm {
                let death = at + self.random.below(longest * MILLIS);
                let count = self.random.below(30) as u32;
                self.at(death, Action::CrashAtOutput(Who::Rank(0), count));
                for slot in 0..self.nodes {
                    self.at(at + 1_400 * MILLIS, Action::Start(slot));
                }
            }
        }
        self.plan.duration = 20 * SECONDS;
    }

    /// G7: a member sleeps through a flush and is removed; the leader that removed it dies before, while or
    /// after the others learn of it. Groups wait for less long than the detector does, so no member is called
    /// dead for sleeping.
    pub(super) fn remover_dies(&mut self) {
        self.begin();
        self.plan.profile = Profile::lan();
        self.plan.profile.flush_stall = Duration::from_millis(600);
        self.plan.network.latency = self.random.range(1_000, 40_000);
        for round in 0..3 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 500);
            let (sleeper, leaver) = pair(self.random, self.nodes);
            let length = self.ms(700, 1_300);
            self.at(at, Action::Pause(Who::Slot(sleeper), length));
            let delay = self.ms(0, 100);
            self.at(at + delay, Action::LeaveGroup(Who::Slot(leaver), 0));
            let death = at + delay + self.ms(600, 900);
            self.at(death, Action::Crash(Who::Leader));
            let back = at + 3 * SECONDS;
            for slot in 0..self.nodes {
                self.at(back, Action::Start(slot));
            }
            self.at(back, Action::JoinGroup(Who::Slot(leaver), 0));
        }
    }
}
