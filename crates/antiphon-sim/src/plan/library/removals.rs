//! Plans about members that a group removes although they live.

use std::time::Duration;

use antiphon_core::Profile;

use super::*;

impl Story<'_> {
    /// R18: a member that hears everybody, and whose part in the flush does not come.
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

    /// G7: a member sleeps through a flush and is removed; the leader that removed it dies before, while or after the
    /// others learn of it. Groups wait for less long than the detector does, so nobody is called dead for sleeping.
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
