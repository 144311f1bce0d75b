//! Plans about the operator's way out (R11), and about members that wait for a majority.

use super::*;

impl Story<'_> {
    /// R6: the cluster falls apart and meets again, many times.
    pub(super) fn merge(&mut self) {
        self.begin();
        let mut at = 3 * SECONDS;
        while at < 17 * SECONDS {
            let sides = self.random.range(2, 3) as usize;
            let sides = split(self.random, self.plan.slots, sides);
            self.at(at, Action::Partition(sides));
            at += self.ms(500, 5_000);
            self.at(at, Action::Heal);
            at += self.ms(200, 4_000);
        }
    }

    /// G2: a cluster grows by more views than seconds pass, or by none; all its processes die at the same
    /// instant, and it is founded again
    /// on the same hosts, at once or a moment later.
    pub(super) fn founded_again(&mut self) {
        self.plan.seeds = self.nodes;
        self.plan.network.latency = self.random.range(20, 2_000);
        let mut at = 0;
        for _ in 0..4 {
            for slot in 0..self.nodes {
                self.at(at, Action::Start(slot));
            }
            let mut join = at + self.ms(600, 900);
            for slot in self.nodes..self.plan.slots {
                self.at(join, Action::Start(slot));
                join += self.ms(20, 120);
            }
            at = join + self.ms(100, 3_000);
            for slot in 0..self.plan.slots {
                self.at(at, Action::Crash(Who::Slot(slot)));
            }
            at += 1 + self.ms(0, 700);
        }
        for slot in 0..self.nodes {
            self.at(at, Action::Start(slot));
        }
        self.plan.duration = at + 3 * SECONDS;
    }

    /// R11: most are lost for good, the members that are left wait, and an operator has one of them go on.
    /// All that are left, or are started anew, end up with it.
    pub(super) fn recover(&mut self) {
        self.begin();
        // A node that is started again must be found by the member that goes on, wherever that is.
        self.plan.seeds = self.nodes;
        let mut lost: Vec<Slot> = (0..self.nodes).collect();
        self.random.shuffle(&mut lost);
        let left = self.random.range(1, ((self.nodes as u64 - 1) / 2).max(1)) as usize;
        let survivors = lost.split_off(self.nodes - left);
        let chosen = Who::Slot(survivors[0]);
        // A word while all is well changes nothing.
        let early = self.ms(2_500, 4_000);
        self.at(early, Action::Recover(chosen));
        let dark = self.ms(4_500, 6_000);
        let ragged = *self.random.pick(&[1, 300, 2_000]);
        for slot in &lost {
            let at = dark + self.ms(0, ragged);
            self.at(at, Action::PowerOff(Who::Slot(*slot)));
        }
        let apart = survivors.len() > 1 && self.random.percent(30);
        if apart {
            let others = survivors[1..].to_vec();
            let at = dark + self.ms(0, 9_000);
            self.at(at, Action::Partition(vec![vec![survivors[0]], others]));
        }
        // Given too early, a word is refused, and given again.
        let mut at = dark + self.ms(1_000, 8_000);
        let last = dark + self.ms(12_000, 15_000);
        while at < last {
            self.at(at, Action::Recover(chosen));
            at += self.ms(500, 3_000);
        }
        self.at(last, Action::Recover(chosen));
        if apart {
            let healed = last + self.ms(1, 4_000);
            self.at(healed, Action::Heal);
        }
        for slot in lost {
            // Where many are back before it, they may found anew (R4), and the word comes too late.
            let soon = self.random.percent(10);
            let back = if soon {
                dark + self.ms(3_000, 10_000)
            } else {
                last + self.ms(1, 4_000)
            };
            if self.random.percent(70) {
                self.at(back, Action::Start(slot));
            }
        }
        self.plan.duration = last + 6 * SECONDS;
        self.plan.liveness = Liveness::SurvivorsWithin(30 * SECONDS);
    }

    /// R11: an operator has a node go on that was only cut off. The majority goes on as well, and falls
    /// apart; when paths heal, its members hear that node before they hear each other.
    pub(super) fn recover_beside_majority(&mut self) {
        self.begin();
        self.plan.seeds = self.nodes;
        let mut majority: Vec<Slot> = (0..self.nodes).collect();
        self.random.shuffle(&mut majority);
        let left = self.random.range(1, ((self.nodes as u64 - 1) / 2).max(1)) as usize;
        let minority = majority.split_off(self.nodes - left);
        let chosen = minority[0];
        let apart = self.ms(4_500, 6_000);
        let alone = minority.iter().map(|slot| vec![*slot]);
        let sides = std::iter::once(majority.clone()).chain(alone).collect();
        self.at(apart, Action::Partition(sides));
        for _ in 0..3 {
            let at = apart + self.ms(4_000, 9_000);
            self.at(at, Action::Recover(Who::Slot(chosen)));
        }
        let fallen = apart + self.ms(10_000, 14_000);
        let alone = majority.iter().map(|slot| vec![*slot]).collect();
        self.at(fallen, Action::Partition(alone));
        let mut at = fallen + self.ms(2_500, 3_500);
        for healed in 1..=majority.len() {
            self.at(at, Action::Heal);
            let pairs = |one: Slot| majority.iter().map(move |other| (one, *other));
            let among: Vec<(Slot, Slot)> = majority.iter().copied().flat_map(pairs).collect();
            for (one, other) in among.into_iter().filter(|(one, other)| one < other) {
                self.at(at, Action::CutPair(one, other));
            }
            let others = majority[healed..].iter().chain(&minority[1..]);
            let others: Vec<Slot> = others.copied().collect();
            for other in others {
                self.at(at, Action::CutPair(chosen, other));
            }
            for other in &minority[1..] {
                for slot in &majority {
                    self.at(at, Action::CutPair(*slot, *other));
                }
            }
            at += self.ms(200, 800);
        }
        self.at(at, Action::Heal);
        self.plan.duration = at + 6 * SECONDS;
    }

    /// R6: members of a minority are stopped, or do not hear each other for a while. When that is over they
    /// agree on which members are there.
    pub(super) fn minority_settles(&mut self) {
        self.begin();
        let mut majority: Vec<Slot> = (0..self.nodes).collect();
        self.random.shuffle(&mut majority);
        let size = self.random.range(2, (self.nodes as u64 - 1) / 2) as usize;
        let minority = majority.split_off(self.nodes - size);
        let sides = vec![majority, minority.clone()];
        let mut at = self.ms(4_500, 6_000);
        self.at(at, Action::Partition(sides.clone()));
        for _ in 0..self.random.range(1, 3) {
            at += self.ms(2_500, 5_000);
            let one = self.random.index(size);
            let other = (one + self.random.range(1, size as u64 - 1) as usize) % size;
            let length = self.ms(1_400, 4_000);
            if self.random.percent(50) {
                self.at(at, Action::Pause(Who::Slot(minority[one]), length));
                at += length;
            } else {
                self.at(at, Action::OneWay(vec![minority[one]], vec![minority[other]]));
                at += length;
                self.at(at, Action::Heal);
                self.at(at, Action::Partition(sides.clone()));
            }
        }
        at += self.ms(14_000, 16_000);
        self.at(at, Action::Heal);
        self.plan.duration = at + 6 * SECONDS;
    }
}
