//! The quality of an edge: how many of a subject's last heartbeats have arrived.
//!
//! ```text
//!   heartbeats   | x | x |   | x |   |   |   | x |   |   |   |   |   | x |   |   |   |   |   | x |  x: came
//!                 '---------------------- the last twenty: fourteen missed, in five gaps --------'
//! ```
//! Silence alone does not tell a path that loses most of everything from one that works: something arrives
//! now and then. So an edge is *lossy* from twelve missed of twenty on, until six or fewer are missed. At 80
//! % loss it is lossy nearly always, at 30 % once in two hundred times, and never at all observers of a node
//! together. One gap, however long, is silence. What it means is known when it ends: a healed partition
//! leaves no lossy edges behind. If the first heartbeats after it overtake each other, one gap is two for a
//! moment; the edge is lossy until the last of them came.
//!
//! Heartbeats are numbered. Their numbers tell what was lost from what is late, or was never sent: a host
//! that gets too little processor, on either side, loses nothing. All else that comes on the path says
//! nothing. Messages are repeated until they arrive, so on a path that loses most of them more is heard if
//! there is more to say.

/// How many heartbeats are looked at.
const WINDOW: u64 = 20;
/// An edge is lossy from `LOSSY_FROM` missed on, and until no more than `LOSSY_ABOVE` are missed.
const LOSSY_FROM: u32 = 12;
const LOSSY_ABOVE: u32 = 6;
/// And these are missed in at least this many gaps.
const GAPS: u32 = 2;

/// One subject's last heartbeats.
#[derive(Debug, Clone, Default)]
pub(super) struct Edge {
    /// A bit for each of the last heartbeats, the latest lowest: whether it did not come.
    missed: u32,
    /// The number of the last heartbeat that came, if any did.
    last: Option<u64>,
    lossy: bool,
}

impl Edge {
    /// The heartbeat with this number came. True if the edge is lossy now and was not, or the other way
    /// round.
    pub(super) fn heard(&mut self, round: u64) -> bool {
        let ahead = self.last.map_or(1, |last| round.wrapping_sub(last));
        let behind = ahead.wrapping_neg();
        let mut filled = false;
        if behind <= WINDOW {
            // A heartbeat that was overtaken, or came twice.
            filled = self.missed >> behind & 1 == 1;
            self.missed &= !(1 << behind);
        } else {
            let steps = ahead.min(WINDOW);
            // All heartbeats between are missed, this one is not.
            self.missed = (self.missed << steps | ((1 << steps) - 2)) & ((1 << WINDOW) - 1);
            self.last = Some(round);
        }
        let missed = self.missed.count_ones();
        assert!(
            self.missed >> WINDOW == 0,
            "detector: more than the last {WINDOW} heartbeats are looked at: {:b}",
            self.missed
        );
        let was = self.lossy;
        let gaps = self.gaps() >= GAPS;
        self.lossy = match was {
            // At much loss the last twenty often have one gap, so that alone shows nothing.
            true => missed > LOSSY_ABOVE && (gaps || !filled),
            false => missed >= LOSSY_FROM && gaps,
        };
        was != self.lossy
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.lossy
    }

    pub(super) fn lost_percent(&self) -> u8 {
        (self.missed.count_ones() * 100 / WINDOW as u32) as u8
    }

    /// Runs of missed heartbeats.
    fn gaps(&self) -> u32 {
        (self.missed & !(self.missed << 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An edge after these heartbeats, which came or not.
    fn after(came: impl IntoIterator<Item = bool>) -> Edge {
        let mut edge = Edge::default();
        for (round, came) in (1..).zip(came) {
            if came {
                edge.heard(round);
            }
        }
        edge
    }

    #[test]
    fn one_in_five_heard_is_lossy_and_two_in_three_is_not() {
        assert!(after((0..41).map(|at| at % 5 == 0)).lossy);
        assert!(!after((0..40).map(|at| at % 3 != 0)).lossy);
        assert_eq!(after((0..41).map(|at| at % 5 == 0)).lost_percent(), 80);
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
    fn an_outage_is_not_loss_if_a_heartbeat_behind_it_is_overtaken() {
        let mut edge = after((0..30).map(|at| at < 10));
        edge.heard(31);
        assert!(!edge.lossy);
        edge.heard(34);
        for overtaken in [33, 32] {
            edge.heard(overtaken);
        }
        assert!(!edge.lossy, "{:b} missed", edge.missed);
    }

    #[test]
    fn an_edge_that_loses_nine_in_ten_stays_lossy() {
        let mut random = crate::random::Random::new([1, 2, 3, 4]);
        let mut edge = Edge::default();
        let mut flips = 0;
        for round in 0..5000 {
            if random.below(10) == 0 {
                flips += u32::from(edge.heard(round));
            }
        }
        assert!(edge.lossy && flips < 5, "{flips} times otherwise");
    }

    #[test]
    fn a_lossy_edge_must_be_heard_steadily_to_count_again() {
        let bad = || (0..41).map(|at| at % 5 == 0);
        assert!(after(bad().chain((0..8).map(|_| true))).lossy);
        assert!(!after(bad().chain((0..20).map(|_| true))).lossy);
    }

    #[test]
    fn what_comes_late_or_out_of_order_is_not_lost() {
        let mut edge = Edge::default();
        for ten in (0..200).step_by(10) {
            for round in [9, 8, 7, 6, 5, 4, 3, 2, 1, 0] {
                assert!(!edge.heard(ten + round));
            }
        }
        assert_eq!(edge.missed, 0);
        // Numbers may wrap around.
        let mut edge = Edge::default();
        for round in 0..10 {
            edge.heard((u64::MAX - 4).wrapping_add(round));
        }
        assert_eq!(edge.missed, 0);
    }
}
