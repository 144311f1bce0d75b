//! The entries of a map at one point, for readers and for joiners. A clone is cheap, and does not change when
//! the map does.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::{Entry, Full, MapMachine};
use crate::digest::Sum;
use crate::ordered::Ordered;
use crate::serials::Serials;
use crate::state::{Entries, Reader, Restore, Restoring, Stop, Writer, ensure, write_after};
use crate::{AgreedTime, RestoreError};

/// The entries of a map at one point.
#[derive(Debug, Clone)]
pub struct State {
    pub(super) entries: Ordered<Bytes, Entry>,
    pub(super) versions: Serials,
    /// The agreed time up to which things have been done. It never goes back.
    pub(super) now: AgreedTime,
    /// What the entries take of the bound.
    pub(super) bytes: u64,
    pub(super) digest: Sum,
    pub(super) definition: Arc<str>,
}

impl State {
    pub(super) fn new(definition: Arc<str>) -> Self {
        Self {
            entries: Ordered::new(),
            versions: Serials::default(),
            now: AgreedTime::default(),
            bytes: 0,
            digest: Sum::default(),
            definition,
        }
    }

    /// The entry of a key. What has expired by the agreed time of the state is not there.
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.is_there(self.now))
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.entries.iter().filter(|(_, entry)| entry.is_there(self.now))
    }

    /// The entries whose keys begin so, in their order.
    pub fn prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a Bytes, &'a Entry)> {
        let from: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(prefix), Bound::Unbounded);
        self.entries
            .range::<[u8]>(from)
            .take_while(move |(key, _)| key.starts_with(prefix))
            .filter(|(_, entry)| entry.is_there(self.now))
    }

    /// How many entries there are, with those that expire now.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What keys, values and [`Entry::OVERHEAD_BYTES`] of all entries take of the bound.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The agreed time of the state.
    pub fn now(&self) -> AgreedTime {
        self.now
    }

    pub(super) fn insert(&mut self, key: Bytes, entry: Entry) -> Option<Entry> {
        self.bytes += Entry::bytes(&key, &entry.value);
        self.digest.add(entry.digest(&key));
        let old = self.entries.insert(key.clone(), entry);
        if let Some(old) = &old {
            self.forget(&key, old);
        }
        old
    }

    pub(super) fn remove(&mut self, key: &Bytes) -> Option<Entry> {
        let old = self.entries.remove(key)?;
        self.forget(key, &old);
        Some(old)
    }

    fn forget(&mut self, key: &[u8], old: &Entry) {
        self.bytes -= Entry::bytes(key, &old.value);
        self.digest.remove(old.digest(key));
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest.with(&[
            self.entries.len() as u64,
            self.bytes,
            self.versions.last(),
            self.now.millis,
        ])
    }
}

impl Entries for State {
    type Key = Bytes;

    fn definition(&self) -> &str {
        &self.definition
    }

    fn write_beginning(&self, to: &mut Writer) {
        to.put(&(self.versions, self.now, self.entries.len() as u64));
    }

    fn write_entries(&self, after: Option<&Bytes>, about: usize, to: &mut Writer) -> Option<Bytes> {
        write_after(&self.entries, after, about, to, |key, entry, to| {
            to.put(&(key, entry))
        })
    }

    fn digest(&self) -> u64 {
        self.digest()
    }

    fn bytes(&self) -> u64 {
        // Of an entry's overhead, versions and the like are written.
        self.bytes - self.entries.len() as u64 * (Entry::OVERHEAD_BYTES - 16)
    }
}

impl Restore for MapMachine {
    fn restoring(&mut self) -> &mut Restoring {
        &mut self.restoring
    }

    fn defined(&self) -> Arc<str> {
        self.state.definition.clone()
    }

    fn begin(&mut self, reader: &mut Reader<'_>) -> Result<u64, Stop> {
        let (versions, now, count) = reader.take("beginning")?;
        self.state = State {
            versions,
            now,
            ..State::new(self.state.definition.clone())
        };
        self.index.clear();
        self.expiry.clear();
        self.age.clear();
        Ok(count)
    }

    fn take_entry(&mut self, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let (key, entry): (Bytes, Entry) = reader.take("entries")?;
        let read = &mut self.state;
        let in_order = read.entries.last().is_none_or(|(last, _)| *last < key);
        ensure(in_order, || format!("{key:?} is not after the key before it"))?;
        let fits = self.options.check(&key, &entry.value);
        fits.map_err(|reason| RestoreError {
            reason: reason.to_string(),
        })?;
        ensure(entry.version.0 <= read.versions.last(), || {
            format!("{key:?} has version {}, which was not given yet", entry.version)
        })?;
        ensure(entry.modified.time() <= read.now, || {
            format!("{key:?} was written after the time of the state")
        })?;
        if let Some(expires) = entry.expires {
            self.expiry.insert((expires, key.clone()));
        }
        if self.options.full == Full::EvictOldest {
            let same = self.age.insert(entry.version, key.clone());
            ensure(same.is_none(), || {
                format!("two entries have version {}", entry.version)
            })?;
        }
        self.index.insert(key.clone(), entry.clone());
        read.insert(key, entry);
        let max_bytes = self.options.max_bytes;
        ensure(read.bytes <= max_bytes, || {
            format!("the entries exceed the bound max_bytes, {max_bytes}")
        })?;
        Ok(())
    }

    fn end(&mut self) -> Result<u64, RestoreError> {
        Ok(self.state.digest())
    }
}
