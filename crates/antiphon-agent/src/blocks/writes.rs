//! The writes of one session to keys of maps that are under way: a read waits for those before it to its key.
//!
//! Reads and writes of a session run beside each other, and a write takes message delays. Without this a
//! program that says a `put` and a `get` in one piece would read the key as it was before, as often as not.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The short name of a map's key among those that are being written. If two keys get one name, they wait for
/// each other.
pub(crate) fn key_of(map: &str, key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    map.hash(&mut hasher);
    key.hash(&mut hasher);
    hasher.finish()
}

/// The writes of a session.
#[derive(Debug, Default)]
pub(super) struct Writes(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    /// The number of the last write that began.
    last: u64,
    keys: BTreeMap<u64, Written>,
}

/// A key that is being written.
#[derive(Debug, Default)]
struct Written {
    /// The numbers of the writes.
    under_way: BTreeSet<u64>,
    /// One of them is over.
    over: Arc<Notify>,
}

impl Writes {
    /// A write to this key is under way, as long as the returned value is there.
    pub(super) fn begin(self: &Arc<Self>, key: u64) -> Writing {
        let mut inside = self.inside();
        inside.last += 1;
        let number = inside.last;
        inside.keys.entry(key).or_default().under_way.insert(number);
        drop(inside);
        Writing {
            writes: self.clone(),
            key,
            number,
        }
    }

    /// Waits for the writes to this key that have begun before the first poll, and for no later ones.
    pub(super) async fn until_earlier_are_over(&self, key: u64) {
        let last = self.inside().last;
        while let Some(over) = self.under_way(key, last) {
            let mut one_is_over = pin!(over.notified());
            // From here on none is missed.
            one_is_over.as_mut().enable();
            if self.under_way(key, last).is_some() {
                one_is_over.await;
            }
        }
    }

    /// What tells that one of the writes to this key is over, if any is under way up to this number.
    fn under_way(&self, key: u64, last: u64) -> Option<Arc<Notify>> {
        let inside = self.inside();
        let written = inside.keys.get(&key)?;
        let first = written.under_way.first();
        first
            .is_some_and(|first| *first <= last)
            .then(|| written.over.clone())
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write that is under way.
#[derive(Debug)]
pub(super) struct Writing {
    writes: Arc<Writes>,
    key: u64,
    number: u64,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut inside = self.writes.inside();
        let Some(written) = inside.keys.get_mut(&self.key) else {
            return;
        };
        written.under_way.remove(&self.number);
        let (over, is_last) = (written.over.clone(), written.under_way.is_empty());
        if is_last {
            inside.keys.remove(&self.key);
        }
        drop(inside);
        over.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_read_waits_for_the_writes_before_it_to_its_key_and_for_no_others() {
        let writes = Arc::<Writes>::default();
        writes.until_earlier_are_over(7).await;
        let (first, second) = (writes.begin(7), writes.begin(7));
        let other = writes.begin(8);
        let mut waits = pin!(writes.until_earlier_are_over(7));
        assert!(waits.as_mut().now_or_never().is_none());
        let behind = writes.begin(7);
        drop(second);
        assert!(waits.as_mut().now_or_never().is_none());
        drop(first);
        assert!(waits.as_mut().now_or_never().is_some());
        drop((behind, other));
        assert!(writes.inside().keys.is_empty());
    }
}
