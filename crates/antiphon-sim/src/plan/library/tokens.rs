//! What can happen to the engines that go around: members die when it was their turn, a token is lost,
//! doubled or late.

use super::*;

impl Story<'_> {
    /// R16: members die that others wait for, or whose nulls some members have; the load is light, so most
    /// slots are nulls.
    pub(super) fn members_of_a_rotation_die(&mut self) {
        self.one_group(Order::Total);
        self.begin();
        if self.random.percent(50) {
            self.lossy();
        }
        self.ragged();
        self.plan.load.every = self.ms(5, 40);
        for round in 0..4 {
            let at = (3 + 4 * round) * SECONDS + self.ms(0, 500);
            self.clog_some(at, 4, 1_500);
            for _ in 0..self.random.range(1, 2) {
                let (slot, count) = (self.slot(), self.random.below(60) as u32);
                let delay = self.ms(0, 300);
                self.at(at + delay, Action::CrashAtOutput(Who::Slot(slot), count));
            }
            for slot in 0..self.nodes {
                self.at(at + 3 * SECONDS, Action::Start(slot));
            }
        }
    }

    /// R16: a token is lost, doubled, late across views, and dies with its holder.
    pub(super) fn token_is_lost(&mut self) {
        self.members_of_a_rotation_die();
        self.plan.transport = Transport::Datagram;
        self.lossy();
        self.plan.network.duplicate_ppm = 100_000;
        self.plan.network.replay_ppm = self.random.range(0, 60_000) as u32;
        self.plan.network.replay_within = self.random.range(5, 3_000) * MILLIS;
    }

    /// R16: a token waits behind a clogged stream while views of its group come and go. When it arrives, a
    /// later token is due. Its views are short: a token that has gone far is of no use to a view that has
    /// not.
    pub(super) fn token_is_late(&mut self) {
        self.one_group(Order::Total);
        self.begin();
        self.plan.transport = Transport::Stream;
        self.plan.load.every = self.ms(2, 15);
        // If an old token were taken for the present view's, the present view might stop for good. If another
        // view followed at once, no checker would notice.
        let last = self.ms(3_000, 12_000);
        let mut at = 3 * SECONDS;
        while at < last + MILLIS {
            self.clog_some(at, 2, 400);
            let slot = self.slot();
            at += self.ms(0, 40);
            self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
            at += self.ms(1, 60);
            self.at(at, Action::JoinGroup(Who::Slot(slot), 0));
            at += self.ms(50, 900);
        }
        self.plan.duration = at;
    }
}
