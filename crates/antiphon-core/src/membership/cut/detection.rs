//! The cut: which members have been lost, as all that is reported together shows it.
//!
//! An *edge* is an observer and its subject. It is down while the observer doubts the subject, or the subject says that it does
//! not hear the observer. Edges come up again: what counts is what is reported now, from each observer once.
//!
//! ```text
//!   edges down    0 … L − 1    noise: a lossy path, or an observer that is at fault itself
//!                 L … H − 1    unstable: more is to come, and no cut is proposed meanwhile
//!                 H … K        stable: in the cut
//! ```
//! With K = 10 observers H is 9 and L is 3, the paper's values. With fewer all must agree, and one alone is noise. Two rules more:
//! - An observer that is being lost itself cannot report: its edge to a subject that others report counts as down.
//! - Whoever is lost has no say: an observer that hears nobody must not take others with it.
//!
//! A member that is proven dead is in the cut at once.

use std::collections::BTreeSet;

use super::rings::Rings;

/// What the reports say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// In the cut, by rank.
    pub(crate) stable: BTreeSet<usize>,
    /// About to be, perhaps.
    pub(crate) unstable: BTreeSet<usize>,
}

impl Found {
    pub(crate) fn is_calm(&self) -> bool {
        self.stable.is_empty() && self.unstable.is_empty()
    }
}

/// With so many observers, so many edges down put a member into the cut.
pub(crate) fn high(observers: usize) -> usize {
    if planted!(CutOnOneReport) {
        return 1.min(observers);
    }
    observers - observers / 10
}

/// With so many observers, fewer edges down than this are noise.
pub(crate) fn low(observers: usize) -> usize {
    (observers * 3).div_ceil(10).max(2).min(observers)
}

/// Looks at all edges. `suspects` are the ranks that any edge may be down to.
pub(crate) fn find(
    rings: &Rings,
    suspects: &BTreeSet<usize>,
    proven: &BTreeSet<usize>,
    is_down: impl Fn(usize, usize) -> bool,
) -> Found {
    let of = |subject: usize| rings.observers(subject).iter().map(|by| usize::from(*by));
    let mut reports: Vec<(usize, BTreeSet<usize>)> = suspects
        .iter()
        .filter(|subject| !proven.contains(subject))
        .map(|subject| {
            (
                *subject,
                of(*subject).filter(|by| is_down(*by, *subject)).collect(),
            )
        })
        .collect();
    // Whoever is lost by the word of the others alone has no say.
    let mute: BTreeSet<usize> = reports
        .iter()
        .filter(|(subject, down)| down.len() >= high(of(*subject).count()))
        .map(|(subject, _)| *subject)
        .chain(proven.iter().copied())
        .collect();
    for (_, down) in &mut reports {
        down.retain(|by| !mute.contains(by));
    }
    reports.retain(|(subject, down)| !down.is_empty() || mute.contains(subject));
    let mut lost = mute;
    let edges_down = |subject: usize, down: &BTreeSet<usize>, lost: &BTreeSet<usize>| {
        of(subject)
            .filter(|by| down.contains(by) || lost.contains(by))
            .count()
    };
    loop {
        let before = lost.len();
        for (subject, down) in &reports {
            if edges_down(*subject, down, &lost) >= low(of(*subject).count()) {
                lost.insert(*subject);
            }
        }
        if lost.len() == before {
            break;
        }
    }
    let mut found = Found {
        stable: proven.clone(),
        unstable: BTreeSet::new(),
    };
    for (subject, down) in &reports {
        let observers = of(*subject).count();
        let edges = edges_down(*subject, down, &lost);
        if edges >= high(observers) {
            found.stable.insert(*subject);
        } else if edges >= low(observers) {
            found.unstable.insert(*subject);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::testing::view_of;

    fn found(count: usize, proven: &[usize], down: &[(usize, usize)]) -> (Vec<usize>, Vec<usize>) {
        let rings = Rings::new(&view_of(count));
        let suspects = down
            .iter()
            .map(|(_, subject)| *subject)
            .chain(proven.iter().copied())
            .collect();
        let proven = proven.iter().copied().collect();
        let found = find(&rings, &suspects, &proven, |by, subject| {
            down.contains(&(by, subject))
        });
        (
            found.stable.into_iter().collect(),
            found.unstable.into_iter().collect(),
        )
    }

    /// All edges to a subject, but for those of the last few observers.
    fn edges(count: usize, subject: usize, but: usize) -> Vec<(usize, usize)> {
        let rings = Rings::new(&view_of(count));
        let observers = rings.observers(subject);
        let reporting = &observers[..observers.len() - but];
        reporting.iter().map(|by| (usize::from(*by), subject)).collect()
    }

    #[test]
    fn nine_of_ten_observers_make_a_cut_and_eight_wait() {
        assert_eq!(found(100, &[], &edges(100, 42, 0)), (vec![42], vec![]));
        assert_eq!(found(100, &[], &edges(100, 42, 1)), (vec![42], vec![]));
        assert_eq!(found(100, &[], &edges(100, 42, 2)), (vec![], vec![42]));
        assert_eq!(found(100, &[], &edges(100, 42, 7)), (vec![], vec![42]));
        assert_eq!(
            found(100, &[], &edges(100, 42, 8)),
            (vec![], vec![]),
            "two are noise"
        );
    }

    #[test]
    fn in_a_small_view_all_others_must_have_lost_a_member() {
        // Fault 11 of Rapid: with three members, one of two observers that hears nothing left five of ten reports, for ever
        // between the thresholds. Here one of two is noise, which the leader resolves, and two are enough.
        assert_eq!(found(3, &[], &[(0, 2)]), (vec![], vec![]));
        assert_eq!(found(3, &[], &[(0, 2), (1, 2)]), (vec![2], vec![]));
        assert_eq!(found(2, &[], &[(0, 1)]), (vec![1], vec![]));
        assert_eq!(found(5, &[], &[(0, 4)]), (vec![], vec![]));
    }

    #[test]
    fn observers_that_are_lost_themselves_are_not_waited_for() {
        // Two of five die: each is observed by the other.
        let down: Vec<_> = (0..3).flat_map(|by| [(by, 3), (by, 4)]).collect();
        assert_eq!(found(5, &[], &down), (vec![3, 4], vec![]));
        assert_eq!(found(5, &[4], &[(0, 3), (1, 3), (2, 3)]), (vec![3, 4], vec![]));
    }

    #[test]
    fn who_has_lost_everybody_takes_nobody_along() {
        // 0 hears nobody: it says so, and so do all others of it.
        let mut down: Vec<_> = (1..5).map(|subject| (0, subject)).collect();
        down.extend((1..5).map(|by| (by, 0)));
        assert_eq!(found(5, &[], &down), (vec![0], vec![]));
        let mut three = vec![(0, 1), (0, 2), (1, 0), (2, 0)];
        assert_eq!(found(3, &[], &three), (vec![0], vec![]));
        three.truncate(2);
        assert_eq!(found(3, &[], &three), (vec![], vec![]));
    }

    #[test]
    fn ten_of_a_hundred_are_one_cut_and_the_others_stay() {
        let dead: Vec<usize> = (0..100).step_by(10).collect();
        let rings = Rings::new(&view_of(100));
        let mut down = Vec::new();
        for subject in &dead {
            let observers = rings.observers(*subject).iter().map(|by| usize::from(*by));
            down.extend(observers.filter(|by| !dead.contains(by)).map(|by| (by, *subject)));
        }
        assert_eq!(found(100, &[], &down), (dead, vec![]));
    }
}
