//! Which numbers came already, to this start of this node: a [`Window`] for each start of a sender and way.
//!
//! A window is forgotten when its sender is in no view and nothing of it was taken for [`KEPT`]. A start that
//! has left the view never comes back into one. A start whose view is still on its way comes into one, but
//! what it sent so long ago is late.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use antiphon::Incarnation;

use super::VIEW_WITHIN;
use crate::envelope::Way;
use crate::list::{MAX_CLOCK_SKEW, MAX_WITHIN};
use crate::window::Window;

/// A command is late when its time and the skew are over. Its sender's clock may be ahead by the skew, and it
/// may have waited for the view.
const KEPT: Duration =
    Duration::from_secs(MAX_WITHIN.as_secs() + 2 * MAX_CLOCK_SKEW.as_secs() + VIEW_WITHIN.as_secs());
/// So many windows, of 2 KiB each, are kept without a look at what can be forgotten.
const FEW: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Windows {
    us: Option<Incarnation>,
    /// With when a number was last taken.
    of: HashMap<(String, Way), (Window, Instant)>,
    /// What was left at the last look, twice.
    full_at: usize,
}

impl Windows {
    /// Takes a number of this start of a sender, by this way. False: it came before, or nobody can say. In
    /// the view are the starts that are `there`.
    pub(super) fn take(
        &mut self,
        us: Incarnation,
        from: (String, Way),
        number: u64,
        now: Instant,
        there: impl FnOnce() -> HashSet<String>,
    ) -> bool {
        if self.us != Some(us) {
            // Nothing that was for the former start is for this one.
            *self = Self {
                us: Some(us),
                ..Self::default()
            };
        }
        if self.of.len() >= self.full_at.max(FEW) && !self.of.contains_key(&from) {
            let there = there();
            self.of.retain(|(sender, _), (_, last)| {
                there.contains(sender) || now.saturating_duration_since(*last) < KEPT
            });
            self.full_at = 2 * self.of.len();
        }
        let (window, last) = self.of.entry(from).or_insert_with(|| (Window::default(), now));
        let is_fresh = window.take(number);
        if is_fresh {
            *last = now;
        }
        is_fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Incarnation = Incarnation(1);

    fn start(number: usize) -> (String, Way) {
        (format!("{number:032x}"), Way::Library)
    }

    #[test]
    fn what_is_remembered_does_not_grow_with_the_starts_of_a_member() {
        let mut windows = Windows::default();
        let mut now = Instant::now();
        for number in 0..10_000 {
            now += Duration::from_secs(1);
            let from = start(number);
            let there = || HashSet::from([from.0.clone()]);
            assert!(windows.take(US, from.clone(), 1, now, there));
            assert!(!windows.take(US, from.clone(), 1, now, there));
            assert!(windows.of.len() <= 2 * FEW, "after {number} starts");
        }
    }

    #[test]
    fn a_start_in_no_view_is_remembered_until_all_that_it_sent_is_late() {
        let mut windows = Windows::default();
        let begun = Instant::now();
        for number in 0..4 * FEW {
            assert!(windows.take(US, start(number), 1, begun, HashSet::new));
        }
        assert!(!windows.take(US, start(0), 1, begun, HashSet::new));
        assert!(windows.take(US, start(4 * FEW), 1, begun + KEPT, HashSet::new));
        assert_eq!(windows.of.len(), 1);
    }
}
