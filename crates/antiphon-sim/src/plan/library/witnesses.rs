//! Plans about witnesses: R10.

use antiphon_core::Profile;

use super::super::{Action, Liveness, Plan, Who, Witnessing};
use super::Story;
use crate::agenda::SECONDS;
use crate::random::Random;
use crate::trace::Slot;

/// Some seeds of the swarm have witnesses, whatever else happens. Drawn apart from all else.
pub(super) fn draw_witnesses(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"witnesses", 0));
    if random.percent(20) {
        plan.witness = Some(Witnessing {
            fails_percent: *random.pick(&[0, 5, 50]),
        });
    }
}

impl Story<'_> {
    fn witnessed(&mut self, fails_percent: u32) {
        self.plan.witness = Some(Witnessing { fails_percent });
    }

    /// R10: one after another is cut off and killed behind the cut, which lasts until keepalive has given up
    /// the lifelines: after the heal only the witness can tell.
    pub(super) fn killed_behind_a_cut(&mut self) {
        self.begin();
        self.witnessed(0);
        self.plan.profile = Profile::lan();
        self.plan.network.keepalive = 3 * SECONDS;
        let mut order: Vec<Slot> = (0..self.nodes).collect();
        self.random.shuffle(&mut order);
        let mut at = 5 * SECONDS;
        for slot in order.into_iter().skip(1) {
            self.at(at, Action::Isolate(Who::Slot(slot)));
            // Before silence is noticed: it must not decide anything alone.
            let killed = at + self.ms(0, 800);
            self.at(killed, Action::Crash(Who::Slot(slot)));
            let healed = at + self.ms(5_000, 9_000);
            self.at(healed, Action::Heal);
            at = healed + self.ms(4_000, 6_000);
        }
        self.plan.duration = at;
        self.plan.liveness = Liveness::SurvivorsWithin(20 * SECONDS);
    }

    /// R10: no lifeline ever proves anything, and a majority decides although most are gone.
    pub(super) fn killed_behind_proxies(&mut self) {
        self.three_to_one();
        self.witnessed(0);
        self.plan.network.proxy_percent = 100;
        self.plan.liveness = Liveness::SurvivorsWithin(20 * SECONDS);
    }

    /// R2, R10: a member that voted is killed, started again at the same address, and its witness tells of
    /// the former incarnation late. No lifeline says it first.
    pub(super) fn stale_witness(&mut self) {
        if self.random.percent(50) {
            self.killed_while_voting();
        } else {
            self.cut_heal_kill();
        }
        let fails_percent = *self.random.pick(&[0, 10, 40]);
        self.witnessed(fails_percent);
        self.plan.network.proxy_percent = 100;
        for _ in 0..self.random.range(0, 3) {
            let count = self.random.below(60) as u32;
            let (at, slot) = (self.ms(3_000, 9_000), self.slot());
            self.at(at, Action::CrashAtOutput(Who::Slot(slot), count));
        }
        for slot in 0..self.nodes {
            if self.random.percent(50) {
                let back = self.ms(6_500, 12_000);
                self.at(back, Action::Start(slot));
            }
        }
    }
}
