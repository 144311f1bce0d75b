//! Plans about safe messages: held by few, ordered and not known to be, completed by flushes whose members
//! die.

use super::*;

impl Story<'_> {
    /// R17: safe messages, while senders, receivers and members that complete a flush die between any two
    /// steps.
    pub(super) fn safe_messages(&mut self) {
        self.plan.load.safe_percent = *self.random.pick(&[20, 60, 100]);
        let order = if self.random.percent(60) {
            Order::Total
        } else {
            Order::Fifo
        };
        self.one_group(order);
        self.begin();
        self.plan.load.every = 15 * MILLIS;
        match self.random.below(3) {
            0 => self.lossy(),
            1 => self.ragged(),
            _ => {}
        }
        for round in 0..3 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 500);
            let (slot, other) = pair(self.random, self.nodes);
            match self.random.below(5) {
                0 => {
                    // The rows, or the messages, of one member reach no other.
                    let others = (0..self.nodes).filter(|each| *each != slot).collect();
                    self.at(at, Action::OneWay(vec![slot], others));
                }
                1 => self.at(at, Action::Isolate(Who::Slot(slot))),
                2 => {
                    let halves = self.halves();
                    self.at(at, Action::Partition(halves));
                }
                3 => {
                    let length = self.ms(50, 2_000);
                    self.at(at, Action::Clog(slot, other, length));
                }
                _ => {}
            }
            let (delay, count) = (self.ms(0, 120), self.random.below(40) as u32);
            match self.random.below(4) {
                // Right after it installed, and with that delivered what the flush completed.
                0 => {
                    self.at(at, Action::Crash(Who::Youngest));
                    self.at(at, Action::CrashAfterView(Who::Leader, count / 4));
                }
                1 => {
                    self.at(at, Action::Crash(Who::Slot(other)));
                    self.at(at + delay, Action::CrashAtOutput(Who::Leader, count));
                }
                2 => {
                    self.at(at, Action::LeaveGroup(Who::Slot(other), 0));
                    self.at(at, Action::CrashAfterView(Who::Slot(slot), count / 4));
                    self.at(at + 2 * SECONDS, Action::JoinGroup(Who::Slot(other), 0));
                }
                _ => self.at(at + delay, Action::PowerOff(Who::Slot(slot))),
            }
            let healed = at + self.ms(500, 3_000);
            self.at(healed, Action::Heal);
            for slot in 0..self.nodes {
                self.at(at + 4 * SECONDS, Action::Start(slot));
            }
        }
    }

    /// G25: the last safe messages of a sender that dies have reached one member, which dies right after it
    /// might have delivered them.
    pub(super) fn only_holder_dies(&mut self) {
        self.plan.load.safe_percent = 100;
        let order = if self.random.percent(50) {
            Order::Total
        } else {
            Order::Fifo
        };
        self.one_group(order);
        self.begin();
        self.plan.load.every = 10 * MILLIS;
        for round in 0..2 {
            let at = (3 + 8 * round) * SECONDS + self.ms(0, 500);
            let (sender, holder) = pair(self.random, self.nodes);
            let others = (0..self.nodes).filter(|slot| *slot != sender && *slot != holder);
            self.at(at, Action::OneWay(vec![sender], others.collect()));
            let killed = at + self.ms(10, 80);
            self.at(killed, Action::Crash(Who::Slot(sender)));
            let count = self.random.below(16) as u32;
            self.at(killed, Action::CrashAfterView(Who::Slot(holder), count));
            self.at(at + 5 * SECONDS, Action::Heal);
            for slot in 0..self.nodes {
                self.at(at + 6 * SECONDS, Action::Start(slot));
            }
        }
    }
}
