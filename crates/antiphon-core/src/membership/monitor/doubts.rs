//! What follows from the doubts of many, where all members hear all others: which members a majority doubts,
//! and which one of two goes that have not heard each other for long.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::{Incarnation, NodeView};

use crate::detector::Detector;
use crate::membership::monitor::rings::Rings;

/// The members that a majority of the weight doubts. Only the doubts of members count that have a say.
pub(crate) fn doubted(
    view: &NodeView,
    rings: &Rings,
    detector: &Detector,
    has_a_say: impl Fn(Incarnation) -> bool,
) -> BTreeSet<Incarnation> {
    // This is asked all the time, and nearly always no member doubts another.
    if !detector.has_doubts() {
        return BTreeSet::new();
    }
    let mut against: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for accuser in &view.members {
        if has_a_say(accuser.incarnation) {
            for accused in detector.doubted_by(accuser.incarnation) {
                *against.entry(accused).or_default() += u64::from(accuser.weight);
            }
        }
    }
    let total: u64 = view.members.iter().map(|member| u64::from(member.weight)).sum();
    against
        .into_iter()
        .filter(|(accused, against)| rings.contains(*accused) && against * 2 > total)
        .map(|(accused, _)| accused)
        .collect()
}

/// Members that a majority does not hear. A member that hears one of them does not object to its removal. A
/// member that a majority doubts has no say itself. Where hardly any member hears another, as in a star of
/// links, paths are broken, not processes. The hub hears all, and must not remove all the others on their
/// word; there, pairs are broken instead.
pub(crate) fn outvoted(
    view: &NodeView,
    rings: &Rings,
    detector: &Detector,
    is_heard: impl Fn(Incarnation) -> bool,
) -> BTreeSet<Incarnation> {
    let doubted_by_all = doubted(view, rings, detector, &is_heard);
    if doubted_by_all.is_empty() {
        return doubted_by_all;
    }
    let has_a_say = |accuser| is_heard(accuser) && !doubted_by_all.contains(&accuser);
    doubted(view, rings, detector, has_a_say)
}

/// The members that go, each with the most senior member that it was in a pair with. A member with more
/// broken pairs goes first, then one with more `edges_down`, then the junior. Without the members that go, no
/// pair is left.
pub(crate) fn break_pairs(
    pairs: impl IntoIterator<Item = (Incarnation, Incarnation)>,
    edges_down: impl Fn(Incarnation) -> usize,
    rank: impl Fn(Incarnation) -> usize,
) -> Vec<(Incarnation, Incarnation)> {
    let pairs = pairs.into_iter();
    let mut pairs: BTreeSet<(Incarnation, Incarnation)> = pairs
        .map(|(one, other)| (one.min(other), one.max(other)))
        .collect();
    let mut going = Vec::new();
    loop {
        let mut broken: BTreeMap<Incarnation, usize> = BTreeMap::new();
        for (one, other) in &pairs {
            *broken.entry(*one).or_default() += 1;
            *broken.entry(*other).or_default() += 1;
        }
        let worst = broken
            .into_iter()
            .max_by_key(|(member, count)| (*count, edges_down(*member), rank(*member)));
        let Some((worst, _)) = worst else {
            return going;
        };
        let partners = pairs.iter().filter_map(|(one, other)| match worst {
            member if member == *one => Some(*other),
            member if member == *other => Some(*one),
            _ => None,
        });
        going.extend(
            partners
                .min_by_key(|member| rank(*member))
                .map(|from| (worst, from)),
        );
        pairs.retain(|(one, other)| *one != worst && *other != worst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(pairs: &[(u128, u128)], edges_down: impl Fn(u128) -> usize) -> Vec<(u128, u128)> {
        let pairs = pairs
            .iter()
            .map(|(one, other)| (Incarnation(*one), Incarnation(*other)));
        let rank = |member: Incarnation| usize::try_from(member.0).unwrap();
        let going = break_pairs(pairs, |member| edges_down(member.0), rank);
        going.iter().map(|(goes, from)| (goes.0, from.0)).collect()
    }

    #[test]
    fn a_node_that_hears_nobody_does_not_take_the_others_with_it() {
        assert_eq!(broken(&[(1, 3), (2, 1), (1, 4)], |_| 0), [(1, 2)]);
    }

    #[test]
    fn of_a_single_pair_the_junior_goes_unless_more_edges_to_the_other_are_down() {
        assert_eq!(broken(&[(1, 2), (2, 1)], |_| 0), [(2, 1)]);
        assert_eq!(broken(&[(1, 2)], |member| usize::from(member == 1)), [(1, 2)]);
    }
}
