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

/// Of each of these pairs one member goes: the one with more such pairs, then with more edges that are down,
/// or else the junior. Returns each member that goes, and the most senior one of those that it does not hear.
pub(crate) fn break_pairs(
    mut pairs: BTreeSet<(Incarnation, Incarnation)>,
    edges_down: impl Fn(Incarnation) -> usize,
    rank: impl Fn(Incarnation) -> usize,
) -> Vec<(Incarnation, Incarnation)> {
    let mut gone = Vec::new();
    while !pairs.is_empty() {
        let mut broken: BTreeMap<Incarnation, usize> = BTreeMap::new();
        for (one, other) in &pairs {
            *broken.entry(*one).or_default() += 1;
            *broken.entry(*other).or_default() += 1;
        }
        let worst = broken
            .into_iter()
            .max_by_key(|(member, count)| (*count, edges_down(*member), rank(*member)));
        let Some((worst, _)) = worst else { break };
        let partner = pairs
            .iter()
            .filter(|(one, other)| *one == worst || *other == worst)
            .map(|(one, other)| if *one == worst { *other } else { *one })
            .min_by_key(|member| rank(*member));
        gone.extend(partner.map(|from| (worst, from)));
        pairs.retain(|(one, other)| *one != worst && *other != worst);
    }
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(pairs: &[(u128, u128)]) -> Vec<(u128, u128)> {
        let pairs = pairs
            .iter()
            .map(|(one, other)| (Incarnation(*one), Incarnation(*other)));
        let gone = break_pairs(pairs.collect(), |_| 0, |member| member.0 as usize);
        gone.into_iter()
            .map(|(member, from)| (member.0, from.0))
            .collect()
    }

    #[test]
    fn of_a_pair_that_does_not_hear_each_other_the_junior_goes() {
        assert_eq!(broken(&[(1, 2)]), [(2, 1)]);
        assert_eq!(broken(&[(1, 2), (3, 4)]), [(4, 3), (2, 1)]);
    }

    #[test]
    fn a_member_that_hears_nobody_takes_nobody_with_it() {
        assert_eq!(broken(&[(1, 2), (1, 3), (1, 4)]), [(1, 2)]);
    }
}
