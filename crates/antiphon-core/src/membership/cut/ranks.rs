//! Sets of ranks: who voted alike.

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
    pub(super) fn without(&self, other: &Ranks) -> Ranks {
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

    pub(crate) fn into_wire(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn from_wire(ranks: Vec<u8>) -> Self {
        Self(ranks)
    }
}
