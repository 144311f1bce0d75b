//! Plans about nodes that are told at run time whom to ask: R4 must not depend on what they are told.

use super::super::Hinted;
use super::*;

impl Story<'_> {
    /// Some of the slots, perhaps none, and perhaps an address where nobody is.
    fn some_slots(&mut self) -> Vec<Slot> {
        let percent = *self.random.pick(&[0, 20, 50, 100]);
        let mut some: Vec<Slot> = (0..self.plan.slots)
            .filter(|_| self.random.percent(percent))
            .collect();
        if self.random.percent(30) {
            some.push(self.plan.slots + self.random.index(9));
        }
        some
    }

    /// More than half of all nodes that ever start: then two foundings have one in common.
    fn expect(&mut self, told: Vec<Vec<Slot>>) {
        let slots = self.plan.slots as u64;
        let expect = self.random.range(slots / 2 + 1, slots) as u16;
        self.plan.hinted = Some(Hinted { expect, told });
    }

    /// The nodes of two or three sides are told of their own side; the sides are cut from each other, or not; then all hear of
    /// each other.
    pub(super) fn hints_differ(&mut self) {
        let sides = self.random.range(2, 3) as usize;
        let sides = split(self.random, self.plan.slots, sides);
        let side_of = |slot: Slot| sides.iter().find(|side| side.contains(&slot)).cloned();
        let told = (0..self.plan.slots)
            .map(|slot| side_of(slot).unwrap_or_default())
            .collect();
        self.expect(told);
        if self.random.percent(50) {
            self.at(0, Action::Partition(sides.clone()));
        }
        self.begin();
        if self.random.percent(50) {
            // Somebody who may have voted dies, and comes back having forgotten.
            let (slot, at) = (self.slot(), self.ms(200, 3_000));
            self.at(at, Action::Crash(Who::Slot(slot)));
            let back = at + self.ms(1, 2_000);
            self.at(back, Action::Start(slot));
        }
        let met = self.ms(3_000, 8_000);
        self.at(met, Action::Heal);
        for slot in 0..self.plan.slots {
            let (at, whom) = (met + self.ms(0, 3_000), self.some_slots());
            self.at(at, Action::Tell(slot, whom));
        }
        self.plan.duration = 14 * SECONDS;
    }

    /// Nodes start knowing nobody, or the wrong ones; hints come, change and go while some die and return.
    pub(super) fn hints_come_late(&mut self) {
        let told = (0..self.plan.slots)
            .map(|_| {
                if self.random.percent(70) {
                    Vec::new()
                } else {
                    self.some_slots()
                }
            })
            .collect();
        self.expect(told);
        self.begin();
        for _ in 0..self.random.range(5, 25) {
            let (slot, at, whom) = (
                self.random.index(self.plan.slots),
                self.ms(100, 12_000),
                self.some_slots(),
            );
            self.at(at, Action::Tell(slot, whom));
        }
        for _ in 0..self.random.range(0, 4) {
            let (slot, at) = (self.slot(), self.ms(500, 12_000));
            self.at(at, Action::Crash(Who::Slot(slot)));
            let back = at + self.ms(1, 3_000);
            self.at(back, Action::Start(slot));
        }
        if self.random.percent(50) {
            let (at, halves) = (self.ms(500, 8_000), self.halves());
            self.at(at, Action::Partition(halves));
            let healed = at + self.ms(500, 5_000);
            self.at(healed, Action::Heal);
        }
        self.plan.duration = 16 * SECONDS;
    }
}
