//! Plans about the policy `any`: every component goes on, and they merge.

use antiphon_core::Policy;

use super::*;

/// So long a component may be left alone that it must have gone on by then.
const LONG: (u64, u64) = (33_000, 36_000);

impl Story<'_> {
    /// A cluster of the policy, formed. Some of the nodes that the others were told of may be gone by the
    /// time that it falls apart.
    fn anyhow(&mut self) -> Micros {
        self.plan.policy = Policy::Any;
        self.plan.liveness = Liveness::Within(60 * SECONDS);
        self.begin();
        let mut at = self.ms(4_000, 6_000);
        if self.nodes > 3 && self.random.percent(40) {
            // No node is left that all others know from the start.
            self.plan.seeds = 2;
            self.plan.liveness = Liveness::SurvivorsWithin(60 * SECONDS);
            for seed in 0..2 {
                let gone = Who::Slot(seed);
                let action = match self.random.percent(50) {
                    true => Action::Crash(gone),
                    false => Action::Leave(gone),
                };
                self.at(at, action);
                at += self.ms(500, 2_000);
            }
            at += self.ms(2_000, 4_000);
        }
        at
    }

    /// For how long it is apart: mostly until each component has gone on, sometimes not.
    fn apart(&mut self) -> Micros {
        match self.random.below(3) {
            0 => self.ms(1_000, 9_000),
            _ => self.ms(LONG.0, LONG.1),
        }
    }

    fn falls_apart(&mut self, sides: usize, times: u64) {
        let mut at = self.anyhow();
        for _ in 0..self.random.range(1, times) {
            let sides = split(self.random, self.plan.slots, sides.min(self.plan.slots));
            self.at(at, Action::Partition(sides));
            if self.random.percent(25) {
                let (slot, delay) = (self.slot(), self.ms(0, 3_000));
                self.at(at + delay, Action::Crash(Who::Slot(slot)));
            }
            at += self.apart();
            if self.random.percent(30) {
                let (slot, count) = (self.slot(), self.random.below(60) as u32);
                self.at(at, Action::CrashAtOutput(Who::Slot(slot), count));
            }
            self.at(at, Action::Heal);
            at += self.apart();
        }
        self.plan.duration = at;
    }

    /// Two sides, one of which may have a majority.
    pub(super) fn any_partition(&mut self) {
        self.falls_apart(2, 2);
    }

    /// Each is alone, and then all meet at once.
    pub(super) fn any_islands(&mut self) {
        let all = self.plan.slots;
        self.falls_apart(all, 1);
    }

    /// Three sides, of which two meet before the third.
    pub(super) fn any_three_ways(&mut self) {
        let mut at = self.anyhow();
        let mut sides = split(self.random, self.plan.slots, 3.min(self.plan.slots));
        self.at(at, Action::Partition(sides.clone()));
        at += self.apart();
        let third = sides.pop().unwrap_or_default();
        self.at(at, Action::Heal);
        self.at(at + 1, Action::Partition(vec![sides.concat(), third]));
        at += self.apart();
        self.at(at, Action::Heal);
        at += self.apart();
        self.plan.duration = at;
    }

    /// Sides that change all the time: components that have just gone on are cut again, and meet others
    /// meanwhile.
    pub(super) fn any_flap(&mut self) {
        let mut at = self.anyhow();
        for _ in 0..self.random.range(4, 12) {
            let sides = self.random.range(2, 3) as usize;
            let sides = split(self.random, self.plan.slots, sides.min(self.plan.slots));
            self.at(at, Action::Partition(sides));
            at += self.ms(200, 6_000);
            if self.random.percent(40) {
                self.at(at, Action::Heal);
                at += self.ms(20, 4_000);
            }
        }
        self.at(at, Action::Heal);
        at += self.apart();
        self.plan.duration = at;
    }
}
