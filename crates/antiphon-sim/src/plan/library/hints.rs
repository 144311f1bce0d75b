//! Plans about nodes that are told at run time which nodes to ask: R4 must not depend on what they are told.

use super::super::Hinted;
use super::*;

impl Story<'_> {
    /// Some of the slots, perhaps none, and perhaps an address without a node.
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
        let locators = 0;
        self.plan.hinted = Some(Hinted {
            expect,
            told,
            locators,
        });
    }

    /// The nodes of two or three sides are told of their own side; the sides are cut from each other, or not;
    /// then all hear of each other.
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
            // A node that may have voted dies, and comes back having forgotten.
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

    /// Nodes find each other by locators, and both are started, killed and started again in any order:
    /// members together with their locators while others start for the first time, with a number that is too
    /// small for that to be harmless.
    pub(super) fn locators_and_nodes_restart(&mut self) {
        let everybody: Vec<Slot> = (0..self.plan.slots).collect();
        let by_name = self.random.percent(35);
        let told = (0..self.plan.slots)
            .map(|slot| match self.random.below(4) {
                _ if by_name => everybody.clone(),
                0 => self.some_slots(),
                // Two that know each other need no locator to be enough.
                1 => vec![slot ^ 1],
                _ => Vec::new(),
            })
            .collect();
        let slots = self.plan.slots as u64;
        let locators = self.random.range(u64::from(!by_name), 2) as usize;
        let expect = self.random.range(2, (slots / 2 + 1).max(2)) as u16;
        self.plan.hinted = Some(Hinted {
            expect,
            told,
            locators,
        });
        self.plan.network.loss_ppm = self.plan.network.loss_ppm.min(20_000);
        for locator in 0..locators {
            let at = self.ms(0, 1_500);
            self.at(at, Action::StartLocator(locator, false));
        }
        // Some are not started before something has happened to the others.
        let most = slots - u64::from(expect);
        let late = match self.random.percent(50) {
            true => most,
            false => self.random.range(0, most),
        };
        let late = late as usize;
        for slot in 0..self.plan.slots - late {
            let at = self.ms(0, 1_200);
            self.at(at, Action::Start(slot));
        }
        let mut waiting: Vec<Slot> = (self.plan.slots - late..self.plan.slots).collect();
        let mut at = self.ms(5_000, 9_000);
        for _ in 0..self.random.range(1, 3) {
            match self.random.percent(55) {
                true => self.just_enough_restart(at, usize::from(expect), locators, &mut waiting),
                false => self.restarts(at, locators, &mut waiting),
            }
            at += self.ms(6_000, 11_000);
        }
        self.plan.duration = at;
    }

    /// The only locator's host loses power, and comes back before its members notice. As many nodes as may
    /// found start then: all that they hear of is each other, until the members have registered again.
    pub(super) fn locator_loses_power(&mut self) {
        self.plan.hinted = Some(Hinted {
            expect: 2,
            told: vec![Vec::new(); self.plan.slots],
            locators: 1,
        });
        self.plan.network.loss_ppm = 0;
        self.at(0, Action::StartLocator(0, false));
        let late = self.plan.slots - 2;
        for slot in 0..late {
            let at = self.ms(0, 1_200);
            self.at(at, Action::Start(slot));
        }
        let gone = self.ms(6_000, 9_000);
        self.at(gone, Action::EndLocator(0, true));
        let back = gone + self.ms(50, 400);
        self.at(back, Action::StartLocator(0, false));
        for slot in late..self.plan.slots {
            let at = back + self.ms(1, 300);
            self.at(at, Action::Start(slot));
        }
        self.plan.duration = back + 10 * SECONDS;
    }

    /// All locators are started again and know no node. Right behind them, or before, as many nodes as may
    /// found are started again, while the other members go on.
    fn just_enough_restart(&mut self, at: Micros, expect: usize, locators: usize, waiting: &mut Vec<Slot>) {
        // Members have looked for it in vain once, and not yet again.
        let back = at + self.ms(120, 250);
        let late = match self.random.percent(40) {
            true => self.ms(100, 1_500),
            false => 0,
        };
        for locator in 0..locators {
            self.at(at, Action::EndLocator(locator, false));
            self.at(back + late, Action::StartLocator(locator, false));
        }
        let mut starting = std::mem::take(waiting);
        let mut members: Vec<Slot> = (0..self.plan.slots)
            .filter(|slot| !starting.contains(slot))
            .collect();
        self.random.shuffle(&mut members);
        members.truncate(expect.saturating_sub(starting.len()));
        for slot in &members {
            let gone = at + self.ms(0, 100);
            self.at(gone, Action::Crash(Who::Slot(*slot)));
        }
        starting.extend(members);
        for slot in starting {
            let starts = back + self.ms(1, 120);
            self.at(starts, Action::Start(slot));
        }
    }

    fn restarts(&mut self, at: Micros, locators: usize, waiting: &mut Vec<Slot>) {
        // All in a moment, or one after the other.
        let hurry = *self.random.pick(&[1, 5]);
        for locator in (0..locators)
            .filter(|_| self.random.percent(75))
            .collect::<Vec<_>>()
        {
            let gone = at + self.ms(0, 600 / hurry);
            let power = self.random.percent(30);
            self.at(gone, Action::EndLocator(locator, power));
            let back = gone + self.ms(1, 2_500 / hurry);
            let with_state = self.random.percent(40);
            self.at(back, Action::StartLocator(locator, with_state));
        }
        let mut members: Vec<Slot> = (0..self.plan.slots).collect();
        self.random.shuffle(&mut members);
        // One stays.
        members.pop();
        members.truncate(self.random.range(0, self.plan.slots as u64 - 1) as usize);
        for slot in members {
            let gone = at + self.ms(0, 600 / hurry);
            let ended = match self.random.percent(15) {
                true => Action::PowerOff(Who::Slot(slot)),
                false => Action::Crash(Who::Slot(slot)),
            };
            self.at(gone, ended);
            let back = gone + self.ms(1, 3_000 / hurry);
            self.at(back, Action::Start(slot));
        }
        for slot in std::mem::take(waiting) {
            let begins = at + self.ms(0, 4_000 / hurry);
            self.at(begins, Action::Start(slot));
        }
        if self.random.percent(15) {
            let hosts = self.plan.slots + locators;
            let sides = split(self.random, hosts, 2);
            let (cut, healed) = (at + self.ms(0, 2_000), at + self.ms(2_500, 5_000));
            self.at(cut, Action::Partition(sides));
            self.at(healed, Action::Heal);
        }
    }

    /// Members are killed and started again, as many as may found or more, while at least one stays. Those
    /// that start are told of each other at once, and of the others a moment later, as by multicast.
    pub(super) fn members_named_late(&mut self) {
        let everybody: Vec<Slot> = (0..self.plan.slots).collect();
        let slots = self.plan.slots as u64;
        let expect = self.random.range(2, slots - 1);
        self.plan.hinted = Some(Hinted {
            expect: expect as u16,
            told: vec![everybody.clone(); self.plan.slots],
            locators: 0,
        });
        self.plan.network.loss_ppm = self.plan.network.loss_ppm.min(20_000);
        for slot in &everybody {
            let at = self.ms(0, 1_200);
            self.at(at, Action::Start(*slot));
        }
        let mut at = self.ms(5_000, 8_000);
        for _ in 0..self.random.range(1, 3) {
            let mut again = everybody.clone();
            self.random.shuffle(&mut again);
            again.truncate(self.random.range(expect, slots - 1) as usize);
            let back = at + self.ms(60, 600);
            for slot in &again {
                let gone = at + self.ms(0, 40);
                self.at(gone, Action::Crash(Who::Slot(*slot)));
                self.at(at + 50 * MILLIS, Action::Tell(*slot, again.clone()));
                let starts = back + self.ms(0, 120);
                self.at(starts, Action::Start(*slot));
                let named = starts + self.ms(1, 250);
                self.at(named, Action::Tell(*slot, everybody.clone()));
            }
            at += self.ms(7_000, 11_000);
        }
        self.plan.duration = at;
    }

    /// Nodes start knowing no others, or the wrong ones; hints come, change and go while some die and return.
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
