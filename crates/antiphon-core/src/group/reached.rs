//! Numbers that were reached, and not all in order: all before one of them, and some runs beyond it.

use std::collections::BTreeMap;

/// A set of numbers: `..next`, and runs beyond it that neither touch each other nor `next`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reached {
    next: u64,
    /// First number and end of each run.
    beyond: BTreeMap<u64, u64>,
}

impl Reached {
    /// All before `next`.
    pub(crate) fn new(next: u64) -> Self {
        Self {
            next,
            beyond: BTreeMap::new(),
        }
    }

    /// The first number that is not in it.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The number after the last one that is in it.
    pub(crate) fn end(&self) -> u64 {
        self.beyond.last_key_value().map_or(self.next, |(_, end)| *end)
    }

    /// The runs beyond, in order: first number and end of each.
    pub(crate) fn beyond(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.beyond.iter().map(|(first, end)| (*first, *end))
    }

    /// How many runs are beyond.
    pub(crate) fn runs(&self) -> usize {
        self.beyond.len()
    }

    /// Adds `first..end`.
    pub(crate) fn add(&mut self, mut first: u64, mut end: u64) {
        if first >= end {
            return;
        }
        if first <= self.next {
            self.next = self.next.max(end);
            while let Some(run) = self.beyond.first_entry()
                && *run.key() <= self.next
            {
                self.next = self.next.max(run.remove());
            }
            self.assert_apart();
            return;
        }
        if let Some((before, its_end)) = self.beyond.range(..=first).next_back()
            && *its_end >= first
        {
            (first, end) = (*before, end.max(*its_end));
        }
        while let Some((after, its_end)) = self.beyond.range(first..=end).next() {
            let (after, its_end) = (*after, *its_end);
            end = end.max(its_end);
            self.beyond.remove(&after);
        }
        self.beyond.insert(first, end);
        self.assert_apart();
    }

    /// The first run and the beginning do not touch, whatever is added.
    fn assert_apart(&self) {
        let first = self.beyond.first_key_value();
        assert!(
            first.is_none_or(|(first, end)| self.next < *first && first < end),
            "reached: all before {}, and then {first:?}",
            self.next
        );
    }

    /// Adds all before `next`.
    pub(crate) fn raise(&mut self, next: u64) {
        self.add(self.next, next);
    }

    /// The first run of `first..end` that is not in it.
    pub(crate) fn missing(&self, first: u64, end: u64) -> Option<(u64, u64)> {
        let mut first = first.max(self.next);
        if let Some((_, its_end)) = self.beyond.range(..=first).next_back() {
            first = first.max(*its_end);
        }
        let next_run = self.beyond.range(first..).next();
        let end = next_run.map_or(end, |(run, _)| end.min(*run));
        (first < end).then_some((first, end))
    }

    /// All runs of `first..end` that are not in it.
    pub(crate) fn all_missing(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = first;
        std::iter::from_fn(move || {
            let run = self.missing(at, end)?;
            at = run.1;
            Some(run)
        })
    }

    /// Whether all of `first..end` is in it.
    pub(crate) fn covers(&self, first: u64, end: u64) -> bool {
        self.missing(first, end).is_none()
    }

    /// Whether this number is in it.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.covers(number, number + 1)
    }

    /// Whether all of the other is in it.
    pub(crate) fn covers_all(&self, other: &Reached) -> bool {
        self.covers(0, other.next) && other.beyond().all(|(first, end)| self.covers(first, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_together_and_into_the_beginning_whatever_their_order() {
        let mut set = Reached::new(5);
        for (first, end) in [(10, 12), (14, 16), (20, 21)] {
            set.add(first, end);
        }
        assert_eq!(set.beyond().collect::<Vec<_>>(), [(10, 12), (14, 16), (20, 21)]);
        assert_eq!((set.next(), set.end(), set.runs()), (5, 21, 3));
        assert_eq!(set.missing(0, 30), Some((5, 10)));
        assert_eq!(
            set.all_missing(11, 30).collect::<Vec<_>>(),
            [(12, 14), (16, 20), (21, 30)]
        );
        set.add(12, 14);
        assert_eq!(set.beyond().collect::<Vec<_>>(), [(10, 16), (20, 21)]);
        set.add(4, 10);
        assert_eq!((set.next(), set.runs()), (16, 1));
        assert!(set.covers(0, 16) && set.contains(20) && !set.contains(16) && !set.covers(15, 21));
        set.raise(25);
        assert_eq!((set.next(), set.end(), set.runs()), (25, 25, 0));
        assert_eq!(set.missing(0, 25), None);
    }

    #[test]
    fn any_order_of_adding_makes_the_same_set() {
        let mut random = crate::random::Random::new([1, 2, 3, 4]);
        for _ in 0..500 {
            let mut set = Reached::new(3);
            let mut model: std::collections::BTreeSet<u64> = (0..3).collect();
            for _ in 0..20 {
                let first = random.below(40);
                let end = first + random.below(8);
                set.add(first, end);
                model.extend(first..end);
                let missing: Vec<u64> = set.all_missing(0, 60).flat_map(|(from, to)| from..to).collect();
                let expected: Vec<u64> = (0..60).filter(|number| !model.contains(number)).collect();
                assert_eq!(missing, expected);
                let mut beyond = set.beyond().collect::<Vec<_>>();
                beyond.insert(0, (0, set.next()));
                assert!(beyond.windows(2).all(|pair| pair[0].1 < pair[1].0), "{beyond:?}");
            }
        }
    }
}
