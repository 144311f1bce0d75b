//! Ordered entries whose clone is cheap: a snapshot of a machine's state costs little, and only what changes
//! after it is copied.
//!
//! ```text
//!  chunks   user/…:  0014 ●   0077 ●   0100 ●      by the first key of each
//!                         └─► user/00: 14  15  17  22   …  up to 64 entries
//! ```
//! Both levels are sorted lists. A list knows what all of its keys begin with, and of each key the eight
//! bytes that follow, as a number. So a search compares numbers that lie side by side. Keys themselves, each
//! somewhere else in memory, are only looked at where these are the same.
//!
//! A clone counts a reference and copies a key for each chunk; a change after it copies its chunk.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;

/// The most entries of a chunk.
const MAX_CHUNK: usize = 64;
/// Two neighbours that have no more together become one.
const MIN_CHUNKS: usize = MAX_CHUNK / 2;

/// A key is a string of bytes, and is ordered by them.
pub(crate) trait AsKey {
    fn bytes(&self) -> &[u8];
}

impl AsKey for [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl AsKey for Bytes {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl AsKey for str {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsKey for Arc<str> {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// A persistent ordered map.
#[derive(Debug, Clone)]
pub(crate) struct Ordered<K, V> {
    /// By the first keys that they had at some time: no key of a chunk is smaller. None is empty.
    chunks: Sorted<K, Arc<Sorted<K, V>>>,
    len: usize,
}

/// Entries in the order of their keys.
#[derive(Debug, Clone)]
struct Sorted<K, V> {
    /// All keys begin with the same bytes, so many.
    same: usize,
    /// Of each key the eight bytes behind those.
    heads: Vec<u64>,
    entries: Vec<(K, V)>,
}

/// The first eight bytes as a number. Of keys with different ones, the smaller has the smaller.
fn head(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => (0..8).fold(0, |head, at| head << 8 | u64::from(*key.get(at).unwrap_or(&0))),
    }
}

/// How many bytes both begin with.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

impl<K: AsKey, V> Sorted<K, V> {
    fn of(entries: Vec<(K, V)>) -> Self {
        let mut sorted = Self {
            same: 0,
            heads: Vec::with_capacity(entries.len()),
            entries,
        };
        sorted.learn();
        sorted
    }

    /// Finds out anew what all keys begin with.
    fn learn(&mut self) {
        let ends = self.entries.first().zip(self.entries.last());
        self.same = ends.map_or(0, |((first, _), (last, _))| common(first.bytes(), last.bytes()));
        let heads = self
            .entries
            .iter()
            .map(|(key, _)| head(&key.bytes()[self.same..]));
        self.heads.clear();
        self.heads.extend(heads);
    }

    /// Where the key is, or would be.
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let Some((first, _)) = self.entries.first() else {
            return Err(0);
        };
        // A key that is shorter comes before them, or is different.
        let beginning = &key[..self.same.min(key.len())];
        match beginning.cmp(&first.bytes()[..self.same]) {
            Ordering::Less => return Err(0),
            Ordering::Greater => return Err(self.entries.len()),
            Ordering::Equal => {}
        }
        let wanted = head(&key[self.same..]);
        let from = self.heads.partition_point(|head| *head < wanted);
        let alike = self.heads[from..].partition_point(|head| *head == wanted);
        let alike = &self.entries[from..from + alike];
        let found = alike.binary_search_by(|(other, _)| other.bytes().cmp(key));
        found.map(|at| from + at).map_err(|at| from + at)
    }

    /// Whether a key begins as all do; none does where there is none.
    fn fits(&self, key: &[u8]) -> bool {
        let first = self.entries.first().map(|(first, _)| &first.bytes()[..self.same]);
        first.is_some_and(|same| key.starts_with(same))
    }

    /// At the place where it belongs.
    fn insert(&mut self, at: usize, key: K, value: V) {
        let fits = self.fits(key.bytes());
        if fits {
            self.heads.insert(at, head(&key.bytes()[self.same..]));
        }
        self.entries.insert(at, (key, value));
        if !fits {
            self.learn();
        }
    }

    /// The first entry has this smaller key from here on.
    fn lower(&mut self, key: K) {
        let fits = self.fits(key.bytes());
        if fits {
            self.heads[0] = head(&key.bytes()[self.same..]);
        }
        self.entries[0].0 = key;
        if !fits {
            self.learn();
        }
    }

    fn remove(&mut self, at: usize) -> V {
        self.heads.remove(at);
        self.entries.remove(at).1
    }
}

impl<K: AsKey + Clone, V: Clone> Ordered<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: Sorted::of(Vec::new()),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn chunk(&self, number: usize) -> Option<&Sorted<K, V>> {
        self.chunks.entries.get(number).map(|(_, chunk)| chunk.as_ref())
    }

    /// The chunk that has the key, if any has, and where in it the key is or would be.
    fn find(&self, key: &[u8]) -> Option<(usize, Result<usize, usize>)> {
        let number = match self.chunks.find(key) {
            Ok(number) => number,
            Err(next) => next.saturating_sub(1),
        };
        Some((number, self.chunk(number)?.find(key)))
    }

    pub(crate) fn get<Q: AsKey + ?Sized>(&self, key: &Q) -> Option<&V> {
        let (number, Ok(at)) = self.find(key.bytes())? else {
            return None;
        };
        Some(&self.chunk(number)?.entries[at].1)
    }

    pub(crate) fn get_mut<Q: AsKey + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        let (number, Ok(at)) = self.find(key.bytes())? else {
            return None;
        };
        Some(&mut self.chunk_mut(number).entries[at].1)
    }

    fn chunk_mut(&mut self, number: usize) -> &mut Sorted<K, V> {
        Arc::make_mut(&mut self.chunks.entries[number].1)
    }

    /// Gives the value that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some((number, place)) = self.find(key.bytes()) else {
            self.add_chunk(0, vec![(key, value)]);
            self.len = 1;
            return None;
        };
        let at = match place {
            Ok(at) => {
                return Some(std::mem::replace(
                    &mut self.chunk_mut(number).entries[at].1,
                    value,
                ));
            }
            Err(at) => at,
        };
        if number == 0 && at == 0 {
            self.chunks.lower(key.clone());
        }
        let is_last = number + 1 == self.chunks.entries.len();
        let chunk = self.chunk_mut(number);
        if chunk.entries.len() < MAX_CHUNK {
            chunk.insert(at, key, value);
        } else if is_last && at == MAX_CHUNK {
            // Keys that come in their order leave full chunks behind.
            self.add_chunk(number + 1, vec![(key, value)]);
        } else {
            let rest = chunk.entries.split_off(MAX_CHUNK / 2);
            chunk.learn();
            self.add_chunk(number + 1, rest);
            return self.insert(key, value);
        }
        self.len += 1;
        None
    }

    /// Gives the value that was there.
    pub(crate) fn remove<Q: AsKey + ?Sized>(&mut self, key: &Q) -> Option<V> {
        let (number, Ok(at)) = self.find(key.bytes())? else {
            return None;
        };
        let chunk = self.chunk_mut(number);
        let value = chunk.remove(at);
        if chunk.entries.is_empty() {
            self.chunks.remove(number);
        } else {
            self.join(number);
        }
        self.len -= 1;
        Some(value)
    }

    fn add_chunk(&mut self, number: usize, entries: Vec<(K, V)>) {
        let first = entries[0].0.clone();
        self.chunks.insert(number, first, Arc::new(Sorted::of(entries)));
    }

    /// Takes the next chunk into this one, if both are small.
    fn join(&mut self, number: usize) {
        let length = |number| Some(self.chunk(number)?.entries.len());
        let both = length(number)
            .zip(length(number + 1))
            .map(|(one, next)| one + next);
        if both.is_none_or(|both| both > MIN_CHUNKS) {
            return;
        }
        let next = self.chunks.remove(number + 1);
        let chunk = self.chunk_mut(number);
        chunk.entries.extend_from_slice(&next.entries);
        chunk.learn();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.from(0, 0)
    }

    /// All entries from this place on.
    fn from(&self, number: usize, at: usize) -> impl Iterator<Item = (&K, &V)> {
        let (first, rest) = match self.chunks.entries.get(number..) {
            Some([(_, first), rest @ ..]) => (&first.entries[at..], rest),
            _ => (&[][..], &[][..]),
        };
        let rest = rest.iter().flat_map(|(_, chunk)| &chunk.entries);
        first.iter().chain(rest).map(|(key, value)| (key, value))
    }

    pub(crate) fn range<'a, Q: AsKey + ?Sized + 'a>(
        &'a self,
        range: impl RangeBounds<Q> + 'a,
    ) -> impl Iterator<Item = (&'a K, &'a V)> {
        let (chunk, at) = match range.start_bound() {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) | Bound::Excluded(key) => match self.find(key.bytes()) {
                Some((chunk, Ok(at))) => (
                    chunk,
                    at + usize::from(matches!(range.start_bound(), Bound::Excluded(_))),
                ),
                Some((chunk, Err(at))) => (chunk, at),
                None => (0, 0),
            },
        };
        let is_before = move |key: &K| match range.end_bound() {
            Bound::Unbounded => true,
            Bound::Included(end) => key.bytes() <= end.bytes(),
            Bound::Excluded(end) => key.bytes() < end.bytes(),
        };
        self.from(chunk, at).take_while(move |(key, _)| is_before(key))
    }

    /// The entries behind this key; all, without one.
    pub(crate) fn after<'a>(&'a self, key: Option<&'a K>) -> impl Iterator<Item = (&'a K, &'a V)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.range::<K>((from, Bound::Unbounded))
    }

    /// The entry with the greatest key.
    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        let (key, value) = self.chunks.entries.last()?.1.entries.last()?;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Keys that are alike: many with the same first bytes, some that are the beginning of others.
    fn key() -> impl Strategy<Value = Bytes> {
        let tail = prop::collection::vec(0..3u8, 0..6);
        (prop_oneof![Just(""), Just("same eight bytes"), Just("b")], tail)
            .prop_map(|(begin, tail)| [begin.as_bytes(), &tail].concat().into())
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(Bytes, u32),
        Change(Bytes, u32),
        Remove(Bytes),
        RemoveAllFrom(Bytes),
        Snapshot,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Put(key, value)),
            2 => (key(), any::<u32>()).prop_map(|(key, value)| Step::Change(key, value)),
            8 => key().prop_map(Step::Remove),
            1 => key().prop_map(Step::RemoveAllFrom),
            1 => Just(Step::Snapshot),
        ]
    }

    fn assert_sorted<V>(sorted: &Sorted<Bytes, V>) {
        let keys = || sorted.entries.iter().map(|(key, _)| key);
        assert!(keys().is_sorted());
        let heads = keys().map(|key| head(&key[sorted.same..]));
        assert!(heads.eq(sorted.heads.iter().copied()));
        let first = keys().next().map(|key| &key[..sorted.same]);
        assert!(keys().all(|key| Some(&key[..sorted.same]) == first));
    }

    fn assert_same(ordered: &Ordered<Bytes, u32>, model: &BTreeMap<Bytes, u32>) {
        assert!(ordered.iter().eq(model.iter()));
        assert_eq!(
            (ordered.len(), ordered.last()),
            (model.len(), model.last_key_value())
        );
        assert_eq!(ordered.is_empty(), model.is_empty());
        assert_sorted(&ordered.chunks);
        for (_, chunk) in &ordered.chunks.entries {
            assert!((1..=MAX_CHUNK).contains(&chunk.entries.len()));
            assert_sorted(chunk);
        }
    }

    proptest! {
        #[test]
        fn it_does_what_an_ordered_map_does_and_snapshots_stay(
            steps in prop::collection::vec(step(), 1..1500),
            from in key(),
            to in key(),
        ) {
            let (mut ordered, mut model) = (Ordered::new(), BTreeMap::new());
            let mut snapshots = Vec::new();
            for step in steps {
                match step {
                    Step::Put(key, value) => {
                        prop_assert_eq!(ordered.insert(key.clone(), value), model.insert(key.clone(), value));
                        prop_assert_eq!(ordered.get(&key), Some(&value));
                    }
                    Step::Change(key, value) => {
                        prop_assert_eq!(ordered.get_mut(&key), model.get_mut(&key));
                        ordered.get_mut(&key).into_iter().for_each(|of| *of = value);
                        model.get_mut(&key).into_iter().for_each(|of| *of = value);
                    }
                    Step::Remove(key) => {
                        prop_assert_eq!(ordered.remove(&key), model.remove(&key));
                        prop_assert_eq!(ordered.get(&key), None);
                    }
                    Step::RemoveAllFrom(key) => {
                        for (key, value) in model.split_off(&key) {
                            prop_assert_eq!(ordered.remove(&key), Some(value));
                        }
                    }
                    Step::Snapshot => snapshots.push((ordered.clone(), model.clone())),
                }
            }
            assert_same(&ordered, &model);
            snapshots.iter().for_each(|(ordered, model)| assert_same(ordered, model));
            let starts = [Bound::Unbounded, Bound::Included(&from), Bound::Excluded(&from)];
            for start in starts {
                let range = (start, Bound::Unbounded);
                prop_assert!(ordered.range::<Bytes>(range).eq(model.range::<Bytes, _>(range)));
                if from < to {
                    for end in [Bound::Included(&to), Bound::Excluded(&to)] {
                        let range = (start, end);
                        prop_assert!(ordered.range::<Bytes>(range).eq(model.range::<Bytes, _>(range)));
                    }
                }
            }
        }
    }

    #[test]
    fn keys_that_come_in_their_order_fill_their_chunks_and_may_come_in_any() {
        let mut ordered = Ordered::new();
        for number in 0..10_000u32 {
            ordered.insert(Bytes::from(number.to_be_bytes().to_vec()), ());
        }
        assert_eq!(ordered.chunks.entries.len(), 10_000usize.div_ceil(MAX_CHUNK));
        for number in 0..10_000u32 {
            ordered.remove(&number.to_be_bytes()[..]);
        }
        for number in (0..10_000u32).rev() {
            ordered.insert(Bytes::from(number.to_be_bytes().to_vec()), ());
        }
        assert_sorted(&ordered.chunks);
        ordered
            .iter()
            .zip(0..)
            .for_each(|((key, ()), number): (_, u32)| assert_eq!(**key, number.to_be_bytes()));
        for number in 0..10_000u32 {
            ordered.remove(&number.to_be_bytes()[..]);
        }
        assert!(ordered.is_empty() && ordered.chunks.entries.is_empty());
    }
}
