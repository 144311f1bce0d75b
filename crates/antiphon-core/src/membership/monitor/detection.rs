//! The cut: the members that have been lost, as all reports together show it.
//!
//! An *edge* is an observer and its subject. It is down while the observer doubts the subject, or most of its
//! heartbeats are lost on the way, or, in a narrow view, the subject says that it does not hear the observer.
//! Edges come up again: only what is reported now counts, once from each observer.
//!
//! ```text
//!   edges down    0 … L − 1    noise: a lossy path, or an observer that is at fault itself
//!                 L … H − 1    unstable: more is to come, and no cut is proposed meanwhile
//!                 H … K        stable: in the cut
//! ```
//! With K = 10 observers H is 9 and L is 3, the paper's values. With fewer observers all must agree, and one
//! alone is noise. Three rules more:
//! - A lost member has no say: an observer that hears nobody must not take others with it. A member that only
//!   such observers report is not lost. Where hardly anybody hears anybody, as in a star of links, paths are
//!   broken, not members.
//! - A member that more than half of its observers report is *about to be lost*, and cannot report. Its edge
//!   to a subject that others report counts as down. Otherwise members that are lost together and observe
//!   each other would never be in the cut. The threshold is half, and not L. With L, three members that
//!   report everybody, rightly or not, would make each member that all three observe about to be lost. That
//!   member would do the same to others, and so on to the last.
//! - In a wide view the observers of a member that hears nothing still hear it, and nothing that it sends
//!   them is answered, so they miss no answer. But it tells everybody which members it has lost. A member may
//!   have lost more than half of its subjects while others do not say the same of these. It is then in the
//!   cut *by its own word*, if it hears none of its other subjects, or if these were lost for long. If it
//!   hears one of ten, that is noise. Nor does it count that it hears a member that is in the cut by its own
//!   word as well: members that hear only each other hear nobody. "For long" is until the most patient
//!   observer would have lost the subjects too: a rack may stand still now and then, and a newcomer that has
//!   not learned this yet loses the rack before the others do. If half of its subjects are there, it must
//!   still not be taken for a member that hears nothing. In a narrow view all members hear from such a member
//!   that it does not hear them, and report it themselves.
//!
//! A member that is proven dead is in the cut at once.
//!
//! **No healthy member goes** (G35). Let F be the members at fault: at most a quarter of each other member's
//! observers. Only F reports a healthy member, so at most a quarter of its observers do. That is below H, and
//! never makes it about to be lost. A healthy member reports only members of F. Its report is explained as
//! soon as more than half of the subject's observers report the same, and that is before its own word counts
//! against it. The exception is a member that loses more than half of its subjects before their other
//! observers do, and that hears of the rest, but for that one of ten, only F and members that are in the same
//! position as itself.

use std::collections::{BTreeMap, BTreeSet};

use crate::membership::monitor::rings::Rings;

/// What the reports say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// In the cut, by rank.
    pub(crate) stable: BTreeSet<usize>,
    /// About to be in it, perhaps.
    pub(crate) unstable: BTreeSet<usize>,
    /// The members in the cut that are beyond doubt: the proven dead, the members in it by their own word,
    /// and each member that more than half of those of its observers report that are not in the cut
    /// themselves.
    pub(crate) certain: BTreeSet<usize>,
}

impl Found {
    pub(crate) fn is_calm(&self) -> bool {
        self.stable.is_empty() && self.unstable.is_empty()
    }
}

/// With so many observers, this many edges down put a member into the cut.
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

/// What an observer says of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Up,
    Down,
    /// Down for so long that every other observer has found the same, if it is the subject's fault.
    DownForLong,
}

/// The observers that report each subject.
type Reports = BTreeMap<usize, BTreeSet<usize>>;

/// Looks at all edges. `suspects` are the ranks that any edge may be down to; with `own_word` members are
/// taken at their own word.
pub(crate) fn find(
    rings: &Rings,
    suspects: &BTreeSet<usize>,
    proven: &BTreeSet<usize>,
    own_word: bool,
    edge: impl Fn(usize, usize) -> Edge,
) -> Found {
    let of = |subject: usize| observers(rings, subject);
    let mut reports: Reports = suspects
        .iter()
        .filter(|subject| !proven.contains(subject))
        .map(|subject| {
            let down = of(*subject).filter(|by| edge(*by, *subject) != Edge::Up);
            (*subject, down.collect())
        })
        .collect();
    // A member that is lost by the word of the others alone has no say.
    let mut mute: BTreeSet<usize> = reports
        .iter()
        .filter(|(subject, down)| down.len() >= high(of(**subject).count()))
        .map(|(subject, _)| *subject)
        .chain(proven.iter().copied())
        .collect();
    let deaf = if own_word && !planted!(CutIgnoresOwnWord) {
        let for_long = |by: usize, subject: usize| edge(by, subject) == Edge::DownForLong;
        by_their_own_word(rings, &reports, &mute, for_long)
    } else {
        BTreeSet::new()
    };
    mute.extend(&deaf);
    silence(&mut reports, &mute);
    let lost = about_to_be_lost(rings, &reports, &mute);
    let mut found = Found {
        stable: proven.union(&deaf).copied().collect(),
        unstable: BTreeSet::new(),
        certain: proven.union(&deaf).copied().collect(),
    };
    for (subject, down) in &reports {
        let observers = of(*subject).count();
        let edges = edges_down(rings, *subject, down, &lost);
        if edges >= high(observers) {
            found.stable.insert(*subject);
        } else if edges >= low(observers) {
            found.unstable.insert(*subject);
        }
    }
    found.unstable.retain(|subject| !found.stable.contains(subject));
    for (subject, down) in &reports {
        let sound = of(*subject).filter(|by| !found.stable.contains(by)).count();
        let by = down.difference(&found.stable).count();
        if found.stable.contains(subject) && by * 2 > sound {
            found.certain.insert(*subject);
        }
    }
    assert!(
        found.stable.is_disjoint(&found.unstable)
            && found.certain.is_subset(&found.stable)
            && proven.is_subset(&found.certain),
        "cut: proven {proven:?}, and {found:?}"
    );
    found
}

fn observers(rings: &Rings, subject: usize) -> impl Iterator<Item = usize> + '_ {
    rings.observers(subject).iter().map(|by| usize::from(*by))
}

/// Takes back what these members report.
fn silence(reports: &mut Reports, mute: &BTreeSet<usize>) {
    for down in reports.values_mut() {
        down.retain(|by| !mute.contains(by));
    }
    reports.retain(|_, down| !down.is_empty());
}

fn edges_down(rings: &Rings, subject: usize, down: &BTreeSet<usize>, lost: &BTreeSet<usize>) -> usize {
    let edges = observers(rings, subject).filter(|by| down.contains(by) || lost.contains(by));
    edges.count()
}

/// These members, and each member that more than half of its observers report or cannot report any more.
fn about_to_be_lost(rings: &Rings, reports: &Reports, mute: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut lost = mute.clone();
    loop {
        let before = lost.len();
        for (subject, down) in reports {
            let edges = edges_down(rings, *subject, down, &lost);
            let observers = rings.observers(*subject).len();
            if edges * 2 > observers || (planted!(CutByContagion) && edges >= low(observers)) {
                lost.insert(*subject);
            }
        }
        if lost.len() == before {
            return lost;
        }
    }
}

/// What a member says of its subjects.
struct OwnWord {
    /// Whether it has lost more than half of them for long, and others do not say the same of these.
    long: bool,
    /// How many it has lost of which others do not say the same.
    lost: usize,
    /// The subjects that it hears.
    hears: Vec<usize>,
}

/// The members in the cut by their own word. Such a member has lost more than half of its subjects, and
/// others do not say the same of these. Either these were lost for long, or they are nine tenths of these and
/// the subjects that it hears together. It does not count that such members hear each other: that shows
/// nothing of the ways from healthy members.
///
/// The more members are taken for deaf, the fewer hear enough to be taken for well. So the result is the same
/// in whatever order the members are looked at.
fn by_their_own_word(
    rings: &Rings,
    reports: &Reports,
    mute: &BTreeSet<usize>,
    for_long: impl Fn(usize, usize) -> bool,
) -> BTreeSet<usize> {
    let mut said = reports.clone();
    silence(&mut said, mute);
    let explained = about_to_be_lost(rings, &said, mute);
    // How many subjects each member alone has lost, and how many of these for long.
    let mut alone: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (subject, down) in said.iter().filter(|(subject, _)| !explained.contains(subject)) {
        for by in down {
            let (lost, long) = alone.entry(*by).or_default();
            *lost += 1;
            *long += usize::from(for_long(*by, *subject));
        }
    }
    let word = |(by, (lost, long)): (usize, (usize, usize))| {
        let subjects = rings.subjects(by).count();
        // Of three subjects or fewer, all must be lost: with so few, half is no more than a path or two.
        let most = |count: usize| count > 1 && count >= subjects.min(3) && count * 2 > subjects;
        let is_lost = |subject: &usize| said.get(subject).is_some_and(|down| down.contains(&by));
        let heard = |subject: &usize| !explained.contains(subject) && !is_lost(subject);
        most(lost).then(|| {
            let hears = rings.subjects(by).filter(heard).collect();
            let long = most(long);
            (by, OwnWord { long, lost, hears })
        })
    };
    let mut deaf: BTreeMap<usize, OwnWord> = alone.into_iter().filter_map(word).collect();
    loop {
        let hears_enough = |by: &usize| {
            let word = &deaf[by];
            let hears_well = |subject: &&usize| planted!(CutHearsTheDeaf) || !deaf.contains_key(*subject);
            let hears = word.hears.iter().filter(hears_well).count();
            !word.long && word.lost < high(word.lost + hears)
        };
        let well: Vec<usize> = deaf.keys().copied().filter(hears_enough).collect();
        if well.is_empty() {
            return deaf.into_keys().collect();
        }
        deaf.retain(|by, _| well.binary_search(by).is_err());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::monitor::rings::RINGS;
    use crate::membership::testing::view_of;
    use crate::random::Random;

    fn look(count: usize, proven: &[usize], down: &[(usize, usize)]) -> Found {
        look_when(Edge::DownForLong, count, proven, down)
    }

    /// The same, where the edges that are down are so in this way.
    fn look_when(how: Edge, count: usize, proven: &[usize], down: &[(usize, usize)]) -> Found {
        let rings = Rings::new(&view_of(count), RINGS);
        let suspects = down
            .iter()
            .map(|(_, subject)| *subject)
            .chain(proven.iter().copied())
            .collect();
        let proven = proven.iter().copied().collect();
        find(
            &rings,
            &suspects,
            &proven,
            rings.are_wide(count),
            |by, subject| match down.contains(&(by, subject)) {
                true => how,
                false => Edge::Up,
            },
        )
    }

    fn found(count: usize, proven: &[usize], down: &[(usize, usize)]) -> (Vec<usize>, Vec<usize>) {
        let found = look(count, proven, down);
        (
            found.stable.into_iter().collect(),
            found.unstable.into_iter().collect(),
        )
    }

    /// All edges to a subject, except those of its last few observers.
    fn edges(count: usize, subject: usize, but: usize) -> Vec<(usize, usize)> {
        let rings = Rings::new(&view_of(count), RINGS);
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
        // Fault 11 of Rapid: with three members, one of two observers that hears nothing left five of ten
        // reports, for ever between the thresholds. Here one of two is noise, which the leader resolves, and
        // two are enough.
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
    fn in_a_star_of_links_nobody_is_lost() {
        // Only 0 hears the others, and they hear only 0.
        for count in [3, 5, 11, 12, 30] {
            let pairs = (1..count).flat_map(|by| (1..count).map(move |subject| (by, subject)));
            let down: Vec<_> = pairs.filter(|(by, subject)| by != subject).collect();
            assert_eq!(found(count, &[], &down).0, [], "of {count}");
        }
    }

    #[test]
    fn nobody_is_lost_for_certain_by_the_word_of_those_who_hear_nobody() {
        // Three members hear nobody else and say so of all. The others do not know yet that they are not
        // heard.
        for count in 7..40 {
            let deaf = 0..3;
            let rest = 3..count;
            let mut down: Vec<_> = deaf
                .clone()
                .flat_map(|by| rest.clone().map(move |of| (by, of)))
                .collect();
            let certain = look(count, &[], &down).certain;
            assert!(
                certain.iter().all(|lost| deaf.contains(lost)),
                "of {count}: {certain:?}"
            );
            // Now they do.
            down.extend(rest.clone().flat_map(|by| deaf.clone().map(move |of| (by, of))));
            let certain = look(count, &[], &down).certain;
            assert!(
                certain.iter().all(|lost| deaf.contains(lost)),
                "of {count}: {certain:?}"
            );
        }
    }

    #[test]
    fn two_that_hear_each_other_and_nobody_else_are_lost_for_certain() {
        for count in [9, 10, 12, 30] {
            let pairs = (2..count).flat_map(|by| [(by, 0), (by, 1), (0, by), (1, by)]);
            let found = look(count, &[], &pairs.collect::<Vec<_>>());
            assert_eq!(found.certain, [0, 1].into(), "of {count}");
        }
    }

    #[test]
    fn who_hears_nothing_in_a_wide_view_is_in_the_cut_by_its_own_word_alone() {
        for count in [12, 20, 100] {
            let rings = Rings::new(&view_of(count), RINGS);
            // Three hear nothing, and their observers hear them well. Each finds out in its own time.
            let mut down = Vec::new();
            for deaf in 0..3 {
                let subjects: Vec<usize> = rings.subjects(deaf).collect();
                for (known, subject) in subjects.iter().enumerate() {
                    down.push((deaf, *subject));
                    let lost = look(count, &[], &down);
                    let by_itself: BTreeSet<usize> = (0..deaf)
                        .chain((known + 1 > subjects.len() / 2).then_some(deaf))
                        .collect();
                    assert_eq!(lost.stable, by_itself, "of {count}");
                    assert_eq!(lost.certain, by_itself, "of {count}");
                }
            }
            assert_eq!(look(count, &[], &down).unstable, BTreeSet::new());
        }
    }

    /// The members at fault: at most a quarter of each other member's observers, taken in this order.
    fn at_fault(rings: &Rings, count: usize, from: impl Iterator<Item = usize>) -> BTreeSet<usize> {
        let mut faulty = BTreeSet::new();
        for one in from {
            faulty.insert(one);
            let within = (0..count).all(|rank| {
                let by = observers(rings, rank).filter(|by| faulty.contains(by)).count();
                faulty.contains(&rank) || by * 4 <= rings.observers(rank).len()
            });
            if !within {
                faulty.remove(&one);
            }
        }
        faulty
    }

    /// The same, of a few members at random.
    fn some_at_fault(random: &mut Random, rings: &Rings, count: usize) -> BTreeSet<usize> {
        let most = random.below(count as u64 / 4) + 1;
        let from: Vec<usize> = (0..most).map(|_| random.below(count as u64) as usize).collect();
        at_fault(rings, count, from.into_iter())
    }

    /// All edges from or to these members.
    fn edges_of(rings: &Rings, count: usize, these: &BTreeSet<usize>) -> Vec<(usize, usize)> {
        let edges = (0..count).flat_map(|by| rings.subjects(by).map(move |of| (by, of)));
        edges
            .filter(|(by, of)| these.contains(by) || these.contains(of))
            .collect()
    }

    #[test]
    fn whatever_those_at_fault_report_and_lose_the_others_stay() {
        let mut random = Random::new([35, 0, 0, 0]);
        let mut looked = 0;
        for round in 0..3000 {
            let count = 12 + random.below(60) as usize;
            let rings = Rings::new(&view_of(count), RINGS);
            let faulty = some_at_fault(&mut random, &rings, count);
            let few = |by: usize| rings.subjects(by).filter(|of| faulty.contains(of)).count() * 2;
            let all_hear = (0..count).all(|by| faulty.contains(&by) || few(by) <= rings.subjects(by).count());
            if !all_hear {
                continue;
            }
            looked += 1;
            let often = random.below(5);
            let mut down = edges_of(&rings, count, &faulty);
            down.retain(|_| random.below(4) < often);
            let how = if round % 2 == 0 {
                Edge::Down
            } else {
                Edge::DownForLong
            };
            let found = look_when(how, count, &[], &down);
            let lost = found.stable;
            assert!(lost.is_subset(&faulty), "{lost:?} of {count}, not {faulty:?}");
        }
        assert!(looked > 1000, "only {looked}");
    }

    #[test]
    fn who_has_lost_most_of_its_subjects_and_hears_the_rest_is_waited_for() {
        for count in [20, 40, 100] {
            let rings = Rings::new(&view_of(count), RINGS);
            let lost = |by: usize, but: &[usize]| {
                let subjects: Vec<usize> = rings.subjects(by).filter(|of| !but.contains(of)).collect();
                subjects.into_iter().map(|of| (by, of)).collect::<Vec<_>>()
            };
            // One member hears two healthy ones. Another member hears the first one and one healthy member:
            // of ten, one would be noise.
            let well: Vec<usize> = rings.subjects(0).take(2).collect();
            let behind = observers(&rings, 0).find(|by| !well.contains(by)).unwrap();
            let also = rings.subjects(behind).find(|of| *of != 0).unwrap();
            let mut down = lost(0, &well);
            down.extend(lost(behind, &[0, also]));
            assert_eq!(
                look_when(Edge::Down, count, &[], &down).stable,
                [].into(),
                "of {count}"
            );
            let for_long = look_when(Edge::DownForLong, count, &[], &down).stable;
            assert_eq!(for_long, [0, behind].into(), "of {count}");
        }
    }

    #[test]
    fn who_has_lost_most_of_its_subjects_stays_as_soon_as_others_say_the_same() {
        let mut random = Random::new([37, 0, 0, 0]);
        let mut had_lost_most = 0;
        for count in 40..200 {
            let rings = Rings::new(&view_of(count), RINGS);
            let one = random.below(count as u64) as usize;
            let faulty = at_fault(&rings, count, rings.subjects(one));
            let subjects = rings.subjects(one).count();
            had_lost_most += usize::from(faulty.len() * 2 > subjects);
            // Nobody hears the members at fault. They say of everybody that they do not hear it, or they say
            // nothing.
            for they_say_so in [false, true] {
                let mut down = edges_of(&rings, count, &faulty);
                down.retain(|(by, _)| they_say_so || !faulty.contains(by));
                for how in [Edge::Down, Edge::DownForLong] {
                    let lost = look_when(how, count, &[], &down).stable;
                    assert!(lost.is_subset(&faulty), "{lost:?} of {count}, not {faulty:?}");
                }
            }
        }
        assert!(had_lost_most > 50, "only {had_lost_most}");
    }

    #[test]
    fn those_who_hear_nobody_but_each_other_are_in_the_cut_by_their_own_word() {
        let mut random = Random::new([36, 0, 0, 0]);
        let mut heard = 0;
        for _ in 0..1000 {
            let count = 12 + random.below(90) as usize;
            let rings = Rings::new(&view_of(count), RINGS);
            let deaf = some_at_fault(&mut random, &rings, count);
            let hears = |by: usize| rings.subjects(by).filter(|of| deaf.contains(of)).count();
            // A member that observes half of them cannot be told from a healthy one.
            if deaf
                .iter()
                .any(|by| hears(*by) * 2 >= rings.subjects(*by).count())
            {
                continue;
            }
            heard += deaf.iter().map(|by| hears(*by)).sum::<usize>();
            let mut down = edges_of(&rings, count, &deaf);
            down.retain(|(by, of)| deaf.contains(by) && !deaf.contains(of));
            let found = look_when(Edge::Down, count, &[], &down);
            assert_eq!(found.stable, deaf, "of {count}");
            assert_eq!(found.certain, deaf, "of {count}");
            assert_eq!(found.unstable, BTreeSet::new(), "of {count}");
        }
        assert!(heard > 1000, "they hardly observe each other: {heard}");
    }

    #[test]
    fn who_has_lost_some_that_are_lost_stays() {
        // A quarter lose power; some members observe many of these.
        for count in [20, 40, 100] {
            let dead = 0..count / 4;
            let rings = Rings::new(&view_of(count), RINGS);
            let mut down = Vec::new();
            for subject in dead.clone() {
                let observers = rings.observers(subject).iter().map(|by| usize::from(*by));
                down.extend(observers.filter(|by| !dead.contains(by)).map(|by| (by, subject)));
            }
            assert_eq!(found(count, &[], &down), (dead.collect(), vec![]), "of {count}");
        }
    }

    #[test]
    fn three_that_report_whomever_they_can_take_nobody_along() {
        // Members report so while they lose most of what they are sent and have not lost more than half of
        // their subjects yet.
        for count in 12..60 {
            let rings = Rings::new(&view_of(count), RINGS);
            let mut down = Vec::new();
            for by in 0..3 {
                let subjects: Vec<usize> = rings.subjects(by).collect();
                down.extend(subjects.iter().take(subjects.len() / 2).map(|of| (by, *of)));
            }
            assert_eq!(found(count, &[], &down).0, [], "of {count}");
        }
    }

    #[test]
    fn ten_of_a_hundred_are_one_cut_and_the_others_stay() {
        let dead: Vec<usize> = (0..100).step_by(10).collect();
        let rings = Rings::new(&view_of(100), RINGS);
        let mut down = Vec::new();
        for subject in &dead {
            let observers = rings.observers(*subject).iter().map(|by| usize::from(*by));
            down.extend(observers.filter(|by| !dead.contains(by)).map(|by| (by, *subject)));
        }
        assert_eq!(found(100, &[], &down), (dead, vec![]));
    }
}
