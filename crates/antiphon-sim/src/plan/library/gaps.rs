//! Plans about delivery that passes gaps: senders die while others hold different parts of what they sent.

use super::*;

impl Story<'_> {
    /// R15: of the last messages of a sender, one member lacks some, another member others, and no member has
    /// all. Then the sender dies, and perhaps the leader of the flush after it.
    pub(super) fn senders_die_behind_gaps(&mut self) {
        self.one_group(Order::Unordered);
        self.begin();
        self.plan.transport = Transport::Datagram;
        self.lossy();
        self.plan.network.loss_ppm = self.random.range(20_000, 150_000) as u32;
        if self.random.percent(50) {
            self.ragged();
        }
        self.plan.load.every = self.ms(3, 15);
        if self.random.percent(80) {
            // Some fit no block.
            self.plan.load.large_percent = self.random.range(20, 70) as u32;
            // Half of the time the last piece is small, and may come where the first one is lost.
            let most = if self.random.percent(50) { 61_000 } else { 130_000 };
            self.plan.load.large_bytes = self.random.range(60_001, most) as usize;
        }
        if self.random.percent(30) {
            let group = &mut self.plan.groups[0];
            group.options = group.options.dissemination(Dissemination::Chain);
        }
        for round in 0..4 {
            let at = (3 + 4 * round) * SECONDS + self.ms(0, 500);
            let (sender, other) = pair(self.random, self.nodes);
            // A member that cannot be answered cannot repair either.
            let cut = match self.random.below(3) {
                0 => Action::CutPair(sender, other),
                1 => Action::OneWay(vec![other], vec![sender]),
                _ => Action::OneWay(
                    (0..self.nodes).filter(|slot| *slot != sender).collect(),
                    vec![sender],
                ),
            };
            self.at(at, cut);
            if self.random.percent(50) {
                // One member alone hears the sender: what is lost on that path, no member has.
                let deaf = (0..self.nodes).filter(|slot| *slot != sender && *slot != other);
                let deaf = deaf.collect();
                self.at(at, Action::OneWay(vec![sender], deaf));
                self.at(at, Action::OneWay(vec![other], vec![sender]));
            }
            let dead = at + self.ms(5, 400);
            let death = if self.random.percent(60) {
                Action::Crash(Who::Slot(sender))
            } else {
                Action::PowerOff(Who::Slot(sender))
            };
            self.at(dead, death);
            self.at(dead + MILLIS, Action::Heal);
            if self.random.percent(30) {
                let (delay, count) = (self.ms(0, 200), self.random.below(40) as u32);
                self.at(dead + delay, Action::CrashAtOutput(Who::Leader, count));
            }
            for slot in 0..self.nodes {
                self.at(at + 3 * SECONDS, Action::Start(slot));
            }
        }
    }
}
