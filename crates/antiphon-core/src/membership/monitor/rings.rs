//! The rings: which member observes which.
//!
//! The members of a view stand on K rings. Their order on each ring follows from their incarnations alone. On
//! each ring, a member's observer is the next member behind it that does not observe it yet. So it has min(K,
//! N − 1) *different* observers, and in small views every member observes every other one. All members
//! compute the same rings from the same view: no message is about them. A view that removes or adds one
//! member moves a few edges per ring.
//!
//! Members with equal keys are told apart by their incarnations, so no member is missing on a ring.
//!
//! If there are no rings, only the rank of each member is here.

use std::collections::{BTreeSet, VecDeque};

use antiphon_wire::{Incarnation, NodeView};

/// How many rings, and so observers of each member.
#[cfg(test)]
pub(crate) const RINGS: usize = 10;

/// The rings of one view. Members are named by their rank.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rings {
    /// Each member's observers, one after another.
    observers: Vec<u16>,
    per_member: usize,
    /// The members that each member observes, one after another; and where those of each member begin.
    subjects: Vec<u16>,
    begin: Vec<u32>,
    /// The rank of each member, in the order of incarnations. To search the members of a large view takes
    /// long.
    ranks: Vec<(Incarnation, u16)>,
}

impl Rings {
    /// This many rings of a view's members: ten with the cut engine, except in tests, and none with the
    /// coordinator.
    pub(crate) fn new(view: &NodeView, rings: usize) -> Self {
        Self::by(view, rings, key)
    }

    /// The rings on which members stand by these keys; a key follows from the member and the ring's number.
    fn by(view: &NodeView, rings: usize, key: impl Fn(Incarnation, u64) -> u64) -> Self {
        let count = view.members.len();
        let per_member = rings.min(count.saturating_sub(1));
        let mut observers = vec![u16::MAX; count * per_member];
        let mut ring: Vec<(u64, Incarnation, u16)> = Vec::with_capacity(count);
        for k in 0..per_member {
            ring.clear();
            ring.extend(view.members.iter().enumerate().map(|(rank, member)| {
                let rank = u16::try_from(rank).unwrap_or(u16::MAX);
                (key(member.incarnation, k as u64), member.incarnation, rank)
            }));
            ring.sort_unstable();
            for (place, (.., subject)) in ring.iter().enumerate() {
                let start = usize::from(*subject) * per_member;
                let taken = &observers[start..start + k];
                let behind = ring[place + 1..].iter().chain(&ring[..place]);
                let observer = behind.map(|(.., rank)| *rank).find(|rank| !taken.contains(rank));
                if let Some(observer) = observer {
                    observers[start + k] = observer;
                }
            }
        }
        // On each ring all others come behind a member, and the rings before this one have taken fewer.
        assert!(
            observers.iter().all(|by| usize::from(*by) < count),
            "rings: of {count} members some have not {per_member} observers"
        );
        let mut begin = vec![0; count + 1];
        for by in observers.iter().filter(|by| usize::from(**by) < count) {
            begin[usize::from(*by) + 1] += 1;
        }
        for rank in 0..count {
            begin[rank + 1] += begin[rank];
        }
        let mut next = begin.clone();
        let mut subjects = vec![0; begin[count] as usize];
        for (place, by) in observers.iter().enumerate() {
            if let Some(next) = next
                .get_mut(usize::from(*by))
                .filter(|_| usize::from(*by) < count)
            {
                subjects[*next as usize] = (place / per_member) as u16;
                *next += 1;
            }
        }
        let members = view.members.iter().zip(0..);
        let mut ranks: Vec<(Incarnation, u16)> =
            members.map(|(member, rank)| (member.incarnation, rank)).collect();
        ranks.sort_unstable();
        Self {
            observers,
            per_member,
            subjects,
            begin,
            ranks,
        }
    }

    /// The seniority rank of a member of the view whose rings these are.
    pub(crate) fn rank(&self, member: Incarnation) -> Option<usize> {
        let place = self.ranks.binary_search_by_key(&member, |(of, _)| *of).ok()?;
        Some(usize::from(self.ranks[place].1))
    }

    /// Whether this is a member of the view.
    pub(crate) fn contains(&self, member: Incarnation) -> bool {
        self.rank(member).is_some()
    }

    /// All members with their ranks, in the order of incarnations.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Incarnation, usize)> + '_ {
        let members = self.ranks.iter();
        members.map(|(member, rank)| (*member, usize::from(*rank)))
    }

    /// The ranks of the members that observe this one.
    pub(crate) fn observers(&self, rank: usize) -> &[u16] {
        let start = rank.saturating_mul(self.per_member);
        let end = start.saturating_add(self.per_member);
        self.observers.get(start..end).unwrap_or(&[])
    }

    /// The observers of a member of the view whose rings these are.
    pub(crate) fn observers_in<'a>(
        &'a self,
        view: &'a NodeView,
        member: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + 'a {
        let observers = self.observers(self.rank(member).unwrap_or(usize::MAX)).iter();
        observers.filter_map(|by| Some(view.members.get(usize::from(*by))?.incarnation))
    }

    /// The members that a member of the view whose rings these are observes.
    pub(crate) fn subjects_in<'a>(
        &'a self,
        view: &'a NodeView,
        member: Incarnation,
    ) -> impl Iterator<Item = Incarnation> + 'a {
        let subjects = self.subjects(self.rank(member).unwrap_or(usize::MAX));
        subjects.filter_map(|of| Some(view.members.get(of)?.incarnation))
    }

    /// Whether one member observes another.
    pub(crate) fn observes(&self, by: Incarnation, subject: Incarnation) -> bool {
        let Some((by, subject)) = self.rank(by).zip(self.rank(subject)) else {
            return false;
        };
        self.observers(subject)
            .iter()
            .any(|observer| usize::from(*observer) == by)
    }

    /// The ranks of the joiners that this member tells of their admission, where `members` have just become
    /// so many, and those from rank `old` on have joined. One of a joiner's observers that was there before
    /// tells it, or else the eldest.
    pub(crate) fn receives(&self, rank: usize, old: usize, members: usize) -> impl Iterator<Item = usize> {
        let first = move |joiner: usize| {
            let mut observers = self.observers(joiner).iter().map(|by| usize::from(*by));
            observers.find(|by| *by < old).unwrap_or(0)
        };
        (old..members).filter(move |joiner| rank < old && first(*joiner) == rank)
    }

    /// Whether some members are no neighbours of others.
    pub(crate) fn are_wide(&self, members: usize) -> bool {
        self.per_member > 0 && members > self.per_member + 1
    }

    /// The ranks of all members that this one observes, or that observe it.
    pub(crate) fn neighbours(&self, rank: usize) -> BTreeSet<usize> {
        let observers = self.observers(rank).iter().map(|by| usize::from(*by));
        observers.chain(self.subjects(rank)).collect()
    }

    /// The neighbours of a member that are next to it on the tree of shortest ways to the eldest. The tree is
    /// the same at all members.
    pub(crate) fn branches(&self, rank: usize) -> BTreeSet<usize> {
        let members = self.begin.len().saturating_sub(1);
        let mut towards: Vec<Option<usize>> = vec![None; members];
        let mut reached = VecDeque::from([0]);
        while let Some(at) = reached.pop_front() {
            let observers = self.observers(at).iter().map(|by| usize::from(*by));
            for near in observers.chain(self.subjects(at)) {
                if near != 0 && near < members && towards[near].is_none() {
                    towards[near] = Some(at);
                    reached.push_back(near);
                }
            }
        }
        let away = (0..members).filter(|other| towards[*other] == Some(rank));
        away.chain(towards.get(rank).copied().flatten()).collect()
    }

    /// The ranks of the members that this one observes.
    pub(crate) fn subjects(&self, rank: usize) -> impl Iterator<Item = usize> {
        let at = |rank: usize| self.begin.get(rank).map(|at| *at as usize);
        let range = at(rank).zip(at(rank.saturating_add(1)));
        let subjects = range.and_then(|(from, to)| self.subjects.get(from..to));
        subjects.unwrap_or(&[]).iter().map(|of| usize::from(*of))
    }
}

/// Where a member stands on a ring: the finalizer of SplitMix64 over both halves of its incarnation.
fn key(member: Incarnation, ring: u64) -> u64 {
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let (high, low) = ((member.0 >> 64) as u64, member.0 as u64);
    mix(low ^ mix(high.wrapping_add((ring + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::membership::testing::view_of;

    fn edges(rings: &Rings, count: usize) -> BTreeSet<(usize, usize)> {
        let of = |subject: usize| {
            rings
                .observers(subject)
                .iter()
                .map(move |by| (usize::from(*by), subject))
        };
        (0..count).flat_map(of).collect()
    }

    #[test]
    fn fault_11_every_member_has_as_many_different_observers_as_there_can_be() {
        // Thresholds over ring numbers count one observer of Rapid several times.
        for count in 1..40 {
            let rings = Rings::new(&view_of(count), RINGS);
            for rank in 0..count {
                let observers: BTreeSet<u16> = rings.observers(rank).iter().copied().collect();
                assert_eq!(observers.len(), RINGS.min(count - 1), "of {count}");
                assert!(!observers.contains(&(rank as u16)), "nobody observes itself");
            }
        }
    }

    #[test]
    fn each_member_has_the_rank_of_its_seniority() {
        for rings in [0, RINGS] {
            for count in 0..30 {
                let mut view = view_of(count);
                view.members.reverse();
                let stranger = view.members.pop().map(|member| member.incarnation);
                let rings = Rings::new(&view, rings);
                for (rank, member) in view.members.iter().enumerate() {
                    assert_eq!(rings.rank(member.incarnation), Some(rank), "of {count}");
                }
                assert!(!stranger.is_some_and(|stranger| rings.contains(stranger)));
                let members: Vec<Incarnation> = rings.members().map(|(member, _)| member).collect();
                assert_eq!(members.len(), view.members.len());
                assert!(members.is_sorted(), "of {count}");
            }
        }
    }

    #[test]
    fn subjects_are_the_other_end_of_observers() {
        let rings = Rings::new(&view_of(50), RINGS);
        let mut from_subjects = BTreeSet::new();
        for observer in 0..50 {
            from_subjects.extend(rings.subjects(observer).map(|subject| (observer, subject)));
        }
        assert_eq!(from_subjects, edges(&rings, 50));
    }

    #[test]
    fn branches_are_a_tree_of_neighbours_that_is_not_deep() {
        for (count, deepest) in [(12, 2), (100, 3), (1000, 4)] {
            let rings = Rings::new(&view_of(count), RINGS);
            let branches: Vec<BTreeSet<usize>> = (0..count).map(|rank| rings.branches(rank)).collect();
            let ends: usize = branches.iter().map(BTreeSet::len).sum();
            assert_eq!(ends, 2 * (count - 1), "as many edges as a tree has");
            for (rank, near) in branches.iter().enumerate() {
                assert!(near.is_subset(&rings.neighbours(rank)));
                assert!(near.iter().all(|other| branches[*other].contains(&rank)));
            }
            let (mut reached, mut depth) = (BTreeSet::from([0]), 0);
            while reached.len() < count {
                let next = reached.iter().flat_map(|rank| branches[*rank].clone());
                reached = next.chain(reached.clone()).collect();
                depth += 1;
                assert!(depth <= deepest, "of {count}");
            }
        }
    }

    #[test]
    fn nobody_has_more_than_four_neighbours_beyond_twenty() {
        // A member that is next to another on two rings observes it once, and the member behind it observes
        // it too.
        for count in (100..130).chain(250..260).chain([1000]) {
            let rings = Rings::new(&view_of(count), RINGS);
            let most = (0..count).map(|rank| rings.neighbours(rank).len()).max();
            assert!(
                most.is_some_and(|most| most <= 2 * RINGS + 4),
                "of {count}: {most:?}"
            );
        }
    }

    #[test]
    fn a_thousand_are_three_hops_apart_and_a_few_four() {
        let count = 1000;
        let rings = Rings::new(&view_of(count), RINGS);
        let mut apart = [0; 6];
        for from in (0..count).step_by(10) {
            let mut hops = vec![None; count];
            hops[from] = Some(0);
            let mut reached = std::collections::VecDeque::from([from]);
            while let Some(rank) = reached.pop_front() {
                for next in rings.neighbours(rank) {
                    if hops[next].is_none() {
                        hops[next] = hops[rank].map(|hops: usize| hops + 1);
                        reached.push_back(next);
                    }
                }
            }
            hops.iter().for_each(|hops| apart[hops.unwrap()] += 1);
        }
        let all: usize = apart.iter().sum();
        assert!(apart[..4].iter().sum::<usize>() * 100 > all * 99, "{apart:?}");
        assert_eq!(apart[5], 0, "{apart:?}");
    }

    #[test]
    fn fault_3_members_with_equal_keys_are_all_on_the_ring() {
        // An equal hash loses a member of Rapid.
        for count in 2..30 {
            let view = view_of(count);
            let rings = Rings::by(&view, RINGS, |_, _| 7);
            let mut observing = BTreeSet::new();
            for rank in 0..count {
                let observers: BTreeSet<u16> = rings.observers(rank).iter().copied().collect();
                assert_eq!(observers.len(), RINGS.min(count - 1), "of {rank} of {count}");
                let members = 0..count as u16;
                assert!(
                    observers.iter().all(|by| members.contains(by)),
                    "of {rank} of {count}"
                );
                observing.extend(observers);
            }
            assert_eq!(observing.len(), count, "all observe somebody");
        }
    }

    #[test]
    fn members_whose_keys_are_equal_on_one_ring_have_an_observer_by_it() {
        let keys = |member: Incarnation, ring: u64| match ring {
            3 => member.0 as u64 % 2,
            ring => key(member, ring),
        };
        for count in 12..30 {
            let rings = Rings::by(&view_of(count), RINGS, keys);
            for rank in 0..count {
                let observers: BTreeSet<u16> = rings.observers(rank).iter().copied().collect();
                assert_eq!(observers.len(), RINGS, "of {rank} of {count}");
                assert!(!observers.contains(&u16::MAX), "of {rank} of {count}");
            }
        }
    }
}
