//! The quality of an edge: how much of what a subject should have sent lately has arrived.
//!
//! ```text
//!   heartbeats   | x | x |   | x |   |   |   | x |   |   |   |   |   | x |   |   |   |   | x |   |     x: heard in it
//!                 '---------------------- the last twenty: fourteen missed, in five gaps --------'
//! ```
//! Silence alone does not tell a path that loses most of everything from one that works: something arrives now and then. So
//! an edge is *lossy* from twelve missed of twenty on, until six or fewer are missed: at 80 % loss it is so nearly always, at 30 %
//! once in two hundred times, and never at all observers of a node together. One gap, however long, is silence, and what it means
//! is known when it ends: a healed partition leaves no lossy edges behind.

use std::time::Duration;

use crate::Time;

/// How many intervals are looked at.
const WINDOW: u32 = 20;
/// Lossy from so many missed on, and until no more than so many are.
const LOSSY_FROM: u32 = 12;
const LOSSY_ABOVE: u32 = 6;
/// In at least so many gaps.
const GAPS: u32 = 2;

/// One subject's last intervals.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    /// A bit for each interval that ended, the last one lowest: whether nothing was heard in it.
    missed: u32,
    /// The interval now: since when, and whether anything was heard.
    began: Time,
    heard: bool,
    pub(super) lossy: bool,
}

impl Edge {
    pub(super) fn new(now: Time) -> Self {
        Self {
            missed: 0,
            began: now,
            heard: true,
            lossy: false,
        }
    }

    pub(super) fn heard(&mut self, now: Time, interval: Duration) {
        self.advance(now, interval);
        self.heard = true;
    }

    /// This node did not run for so long: what it missed counts as nothing.
    pub(super) fn skip(&mut self, missed: Duration) {
        self.began = self.began + missed;
    }

    /// Looks at the clock. True if it is lossy now and was not, or the other way round.
    pub(super) fn judge(&mut self, now: Time, interval: Duration) -> bool {
        self.advance(now, interval);
        let missed = self.missed.count_ones();
        let was = self.lossy;
        self.lossy = if was {
            missed > LOSSY_ABOVE
        } else {
            missed >= LOSSY_FROM && self.gaps() >= GAPS
        };
        was != self.lossy
    }

    pub(super) fn lost_percent(&self) -> u8 {
        (self.missed.count_ones() * 100 / WINDOW) as u8
    }

    fn advance(&mut self, now: Time, interval: Duration) {
        let mut steps = 0;
        while now >= self.began + interval && steps <= WINDOW {
            self.missed = (self.missed << 1 | u32::from(!self.heard)) & ((1 << WINDOW) - 1);
            self.heard = false;
            self.began = self.began + interval;
            steps += 1;
        }
        if steps > WINDOW {
            self.began = now;
        }
    }

    /// Runs of missed intervals.
    fn gaps(&self) -> u32 {
        (self.missed & !(self.missed << 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(200);

    /// An edge after these intervals, in which something was heard or not.
    fn after(heard: impl IntoIterator<Item = bool>) -> Edge {
        let mut now = Time::ZERO;
        let mut edge = Edge::new(now);
        for heard in heard {
            if heard {
                edge.heard(now + INTERVAL / 2, INTERVAL);
            }
            now = now + INTERVAL;
            edge.judge(now, INTERVAL);
        }
        edge
    }

    #[test]
    fn one_in_five_heard_is_lossy_and_two_in_three_is_not() {
        assert!(after((0..40).map(|at| at % 5 == 0)).lossy);
        assert!(!after((0..40).map(|at| at % 3 != 0)).lossy);
        assert_eq!(after((0..40).map(|at| at % 5 == 0)).lost_percent(), 80);
    }

    #[test]
    fn an_outage_is_not_loss() {
        let outage = |length: u32| (0..60).map(move |at| !(20..20 + length).contains(&at));
        for length in 1..40 {
            for end in 20..60 {
                assert!(
                    !after(outage(length).take(end)).lossy,
                    "{length} missed, {end} in all"
                );
            }
        }
    }

    #[test]
    fn a_lossy_edge_must_be_heard_steadily_to_count_again() {
        let bad = || (0..40).map(|at| at % 5 == 0);
        assert!(after(bad().chain((0..8).map(|_| true))).lossy);
        assert!(!after(bad().chain((0..20).map(|_| true))).lossy);
    }
}
