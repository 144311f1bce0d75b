//! The plan about direct messages.

use super::*;

/// How much is told; drawn apart from all else.
pub(super) fn draw_tells(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"tells", 0));
    plan.load.tell_percent = *random.pick(&[10, 30, 60]);
    plan.load.tell_bytes = *random.pick(&[50, 2_000, 2_000, 50_000]);
}

impl Story<'_> {
    /// Members that send each other direct messages leave, die, join, stop and do not read, and what they
    /// tell is late or lost.
    pub(super) fn told_while_views_change(&mut self) {
        self.begin();
        if self.random.percent(50) {
            self.ragged();
        }
        if self.random.percent(50) {
            self.plan.transport = Transport::Datagram;
            self.lossy();
            self.plan.network.replay_ppm = 50_000;
            self.plan.network.replay_within = 3_000_000;
        }
        self.plan.load.every = self.ms(4, 20);
        self.plan.load.tell_percent = 80;
        self.plan.load.tell_bytes = *self.random.pick(&[50, 1_000, 30_000]);
        let mut at = 2 * SECONDS;
        while at < 14 * SECONDS {
            let slot = self.slot();
            let length = self.ms(20, 1_500);
            let group = self.random.index(self.plan.groups.len());
            if self.random.percent(40) {
                self.clog_some(at, 3, 800);
            }
            match self.random.below(8) {
                0 => self.at(at, Action::Stall(Who::Slot(slot), length * 2)),
                1 => self.at(at, Action::Pause(Who::Slot(slot), length)),
                2 => {
                    let count = self.random.below(100) as u32;
                    self.at(at, Action::CrashAfterView(Who::Slot(slot), count));
                    self.at(at + SECONDS + length, Action::Start(slot));
                }
                3 => {
                    self.at(at, Action::Crash(Who::Slot(slot)));
                    self.at(at + length, Action::Start(slot));
                }
                4 => {
                    let halves = self.halves();
                    self.at(at, Action::Partition(halves));
                    self.at(at + length, Action::Heal);
                }
                _ => {
                    self.at(at, Action::LeaveGroup(Who::Slot(slot), group));
                    self.at(at + length, Action::JoinGroup(Who::Slot(slot), group));
                }
            }
            at += self.ms(200, 1_200);
        }
    }
}
