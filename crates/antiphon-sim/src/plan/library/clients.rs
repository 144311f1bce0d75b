//! Plans about clients of members: members that come and go, die and are cut off while programs come and go.

use super::super::Hosting;
use super::*;

impl Story<'_> {
    /// Nothing but clients.
    fn clients(&mut self) {
        self.plan.groups.clear();
        let window = *self.random.pick(&[64 << 10, 256 << 10]);
        self.plan.groups.push(GroupPlan {
            name: "clients".to_owned(),
            options: GroupOptions::default().order(Order::Total).window_bytes(window),
            members: (0..self.plan.slots).collect(),
        });
        self.plan.hosting = Some(Hosting {
            group: 0,
            every: self.random.range(5, 60) * MILLIS,
            most: self.random.range(2, 6) as usize,
        });
        self.begin();
        if self.random.percent(50) {
            self.ragged();
        }
    }

    fn leave_clients(&mut self, at: Micros, slot: Slot, away: Micros) {
        self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
        self.at(at + away, Action::JoinGroup(Who::Slot(slot), 0));
    }

    /// G51: members with clients come, leave, die and are stopped.
    pub(super) fn hosts_come_and_go(&mut self) {
        self.clients();
        let mut at = 2 * SECONDS;
        while at < 16 * SECONDS {
            let (slot, away) = (self.slot(), self.ms(1, 1_500));
            match self.random.below(8) {
                0 => self.at(at, Action::PowerOff(Who::Slot(slot))),
                1 => {
                    let count = self.random.below(60) as u32;
                    self.at(at, Action::CrashAtOutput(Who::Slot(slot), count));
                }
                2 => self.at(at, Action::Pause(Who::Slot(slot), away * 2)),
                3 => self.at(at, Action::Stall(Who::Slot(slot), away * 2)),
                4 | 5 => self.leave_clients(at, slot, away),
                6 => self.at(at, Action::Leave(Who::Slot(slot))),
                _ => self.at(at, Action::Crash(Who::Slot(slot))),
            }
            self.at(at + away, Action::Start(slot));
            if self.random.percent(30) {
                let (other, count) = (self.slot(), self.random.below(40) as u32);
                self.at(at, Action::CrashAfterView(Who::Slot(other), count));
                self.at(at + SECONDS, Action::Start(other));
            }
            if self.random.percent(30) {
                self.clog_some(at, 3, 800);
            }
            at += self.ms(100, 1_500);
        }
    }

    /// G51: members with clients are cut off, and are removed and come back, or not.
    pub(super) fn hosts_are_cut_off(&mut self) {
        self.clients();
        let mut at = 3 * SECONDS;
        while at < 16 * SECONDS {
            let length = self.ms(100, 4_000);
            let slot = self.slot();
            let others: Vec<Slot> = (0..self.nodes).filter(|other| *other != slot).collect();
            let action = match self.random.below(6) {
                0 => Action::Isolate(Who::Slot(slot)),
                1 => Action::OneWay(vec![slot], others),
                2 => Action::OneWay(others, vec![slot]),
                3 => Action::Pause(Who::Slot(slot), length),
                _ => Action::Partition(self.halves()),
            };
            self.at(at, action);
            at += length;
            self.at(at, Action::Heal);
            if self.random.percent(30) {
                let (other, away) = (self.slot(), self.ms(1, 300));
                self.leave_clients(at, other, away);
            }
            at += self.ms(300, 2_500);
        }
    }
}
