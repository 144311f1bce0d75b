//! Pairs of members that do not hear each other, while others hear both: which member of each goes.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::Incarnation;

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
