//! Sets of ranks: the members that voted alike.

use antiphon_wire::codec::put_varint;
use antiphon_wire::{Reader, Wire};
use bytes::Bytes;

/// How a packed set is written: as bits, as a list of the ranks in it, or as a list of the ranks of the view
/// that are not in it. In a list each rank is told by its distance to the one before it.
const BITS: u8 = 0;
const LISTED: u8 = 1;
const ALL_BUT: u8 = 2;

/// A set of ranks as it travels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ranks(Vec<u8>);

impl FromIterator<usize> for Ranks {
    fn from_iter<T: IntoIterator<Item = usize>>(ranks: T) -> Self {
        let mut all = Self::default();
        ranks.into_iter().for_each(|rank| all.insert(rank));
        all
    }
}

impl Ranks {
    pub(crate) fn of(rank: usize) -> Self {
        let mut ranks = Self::default();
        ranks.insert(rank);
        ranks
    }

    /// Whether all are ranks of so many members.
    pub(crate) fn are_within(&self, members: usize) -> bool {
        self.0.len() <= members.div_ceil(8) && (members..self.0.len() * 8).all(|rank| !self.contains(rank))
    }

    fn insert(&mut self, rank: usize) {
        if self.0.len() <= rank / 8 {
            self.0.resize(rank / 8 + 1, 0);
        }
        self.0[rank / 8] |= 1 << (rank % 8);
    }

    pub(crate) fn contains(&self, rank: usize) -> bool {
        self.0
            .get(rank / 8)
            .is_some_and(|byte| byte & 1 << (rank % 8) != 0)
    }

    pub(crate) fn merge(&mut self, other: &Ranks) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(mine, theirs)| *mine |= theirs);
    }

    /// Those that `other` lacks.
    pub(crate) fn without(&self, other: &Ranks) -> Ranks {
        let theirs = other.0.iter().copied().chain(std::iter::repeat(0));
        let mut left = Ranks(
            self.0
                .iter()
                .zip(theirs)
                .map(|(mine, theirs)| mine & !theirs)
                .collect(),
        );
        while left.0.last() == Some(&0) {
            left.0.pop();
        }
        left
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 8).filter(|rank| self.contains(*rank))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// All of so many members.
    pub(crate) fn all(members: usize) -> Self {
        (0..members).collect()
    }

    /// In as few bytes as it takes, in a view of so many members: most sets are nearly nobody, or nearly all.
    pub(crate) fn pack(&self, members: usize) -> Vec<u8> {
        let list = |kind: u8, ranks: Ranks| {
            let mut packed = vec![kind];
            let mut next = 0;
            for rank in ranks.iter() {
                put_varint(&mut packed, (rank - next) as u64);
                next = rank + 1;
            }
            packed
        };
        let most = self.0.len();
        let missing = members - self.len().min(members);
        if self.len() < most {
            list(LISTED, self.clone())
        } else if missing < most {
            list(ALL_BUT, Self::all(members).without(self))
        } else {
            let mut packed = vec![BITS];
            packed.extend(&self.0);
            packed
        }
    }

    /// `None` if these are no ranks of so many members.
    pub(crate) fn unpack(packed: Vec<u8>, members: usize) -> Option<Self> {
        let (kind, rest) = packed.split_first()?;
        let ranks = if *kind == BITS {
            Self(rest.to_vec())
        } else {
            let mut listed = Self::default();
            let mut reader = Reader::new(Bytes::copy_from_slice(rest));
            let mut next = 0u64;
            while !reader.is_empty() {
                let rank = next.checked_add(u64::decode(&mut reader).ok()?)?;
                let at = usize::try_from(rank).ok().filter(|at| *at < members)?;
                listed.insert(at);
                next = rank + 1;
            }
            match *kind {
                LISTED => listed,
                ALL_BUT => Self::all(members).without(&listed),
                _ => return None,
            }
        };
        ranks.are_within(members).then_some(ranks)
    }

    pub(crate) fn into_wire(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn from_wire(ranks: Vec<u8>) -> Self {
        Self(ranks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_set_is_the_same_set_and_small_where_it_is_nearly_nobody_or_all() {
        for members in [1, 2, 12, 13, 200, 1000] {
            let sets = [
                Ranks::default(),
                Ranks::of(members - 1),
                Ranks::all(members),
                Ranks::all(members).without(&Ranks::of(members / 2)),
                (0..members).step_by(2).collect(),
                (0..members).step_by(97).collect(),
            ];
            for set in sets {
                let packed = set.pack(members);
                assert!(packed.len() <= members.div_ceil(8) + 1, "of {members}");
                let unpacked = Ranks::unpack(packed, members);
                assert!(
                    unpacked.is_some_and(|unpacked| unpacked.iter().eq(set.iter())),
                    "of {members}"
                );
            }
        }
        assert_eq!(Ranks::all(1000).pack(1000).len(), 1);
        assert_eq!(Ranks::of(999).pack(1000).len(), 3);
    }

    #[test]
    fn what_is_no_set_of_ranks_is_none() {
        let beyond = Ranks::of(12).pack(13);
        let wrong: [&[u8]; 6] = [
            &[],
            &[3],
            &[BITS, 0, 0, 0],
            &[BITS, 0, 0x20],
            &[LISTED, 0x80],
            &[ALL_BUT, 13],
        ];
        for packed in wrong.into_iter().chain([beyond.as_slice()]) {
            assert_eq!(Ranks::unpack(packed.to_vec(), 12), None, "{packed:?}");
        }
        let far = [LISTED, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 5];
        assert_eq!(Ranks::unpack(far.to_vec(), 12), None);
    }
}
