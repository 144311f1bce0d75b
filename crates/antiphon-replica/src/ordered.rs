//! Ordered entries whose clone is cheap: a snapshot of a machine's state costs nothing, and only what changes
//! after it is copied.

use std::borrow::Borrow;
use std::ops::RangeBounds;

use rpds::RedBlackTreeMapSync;

/// A persistent ordered map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ordered<K: Ord, V>(RedBlackTreeMapSync<K, V>);

impl<K: Ord + Clone, V: Clone> Ordered<K, V> {
    pub(crate) fn new() -> Self {
        Self(RedBlackTreeMapSync::new_sync())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.size()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.0.get_mut(key)
    }

    /// Gives the value that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = self.0.get(&key).cloned();
        self.0.insert_mut(key, value);
        old
    }

    /// Gives the value that was there.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let old = self.0.get(key).cloned()?;
        self.0.remove_mut(key);
        Some(old)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }

    pub(crate) fn range<'a, Q: Ord + ?Sized + 'a>(
        &'a self,
        range: impl RangeBounds<Q> + 'a,
    ) -> impl Iterator<Item = (&'a K, &'a V)>
    where
        K: Borrow<Q>,
    {
        self.0.range(range)
    }

    /// The entry with the greatest key.
    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        self.0.last()
    }
}
