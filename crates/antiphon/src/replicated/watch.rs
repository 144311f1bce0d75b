//! What a map has and how it changes, without a gap: the entries are read and the stream is begun under one
//! lock. A reader gets all entries anew if it lags, or if its member was removed meanwhile.

use std::fmt;
use std::marker::PhantomData;

use antiphon_replica::Version;
use antiphon_replica::map::{Changed, Entry, MapMachine, Now, State, Watch};
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::mapping::{decode, decoded, item};
use super::{Item, MapError, ReplicaEvent, ReplicaEvents, Replicated};

/// What a watched map has, and how it changes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum WatchEvent<K, V> {
    /// All watched entries as they are now, in the order of their keys' bytes. It comes first, and again when
    /// this reader was too slow, or when this member was removed and has the state again: then it takes the
    /// place of all that was told before. Entries that cannot be decoded are left out, and an error that
    /// counts them follows.
    Snapshot(Vec<(K, Item<V>)>),
    /// A key has this value now.
    Put {
        /// The key.
        key: K,
        /// What it has.
        item: Item<V>,
    },
    /// A key has no value any more.
    Gone {
        /// The key.
        key: K,
        /// The version of the change.
        version: Version,
        /// Why.
        why: Gone,
    },
}

/// Why a key has no value any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Gone {
    /// It was removed.
    Removed,
    /// Its time was over.
    Expired,
    /// It made room for others.
    Evicted,
}

impl<K: fmt::Display, V: fmt::Display> fmt::Display for WatchEvent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(entries) => write!(f, "all entries: {}", entries.len()),
            Self::Put { key, item } => write!(f, "{key}: {item}"),
            Self::Gone { key, version, why } => write!(f, "{key}: {why} (version {version})"),
        }
    }
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => "removed",
            Self::Expired => "expired",
            Self::Evicted => "evicted",
        })
    }
}

/// A reader of a map's changes. From [`Map::watch`](super::Map::watch). It keeps the membership alive.
pub struct Watching<K, V> {
    machine: Replicated<MapMachine>,
    watch: Watch,
    snapshot: Option<State>,
    /// What is wrong with the snapshot that was told last.
    left_out: Option<MapError>,
    /// Something was missed, and the entries were not read again since.
    behind: bool,
    events: ReplicaEvents<Changed>,
    of: PhantomData<fn(K) -> V>,
}

impl<K, V> std::fmt::Debug for Watching<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watching")
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

impl<K: DeserializeOwned, V: DeserializeOwned> Watching<K, V> {
    pub(super) fn new(machine: &Replicated<MapMachine>, watch: Watch) -> Result<Self, MapError> {
        let (state, events) = machine.read_and_follow(|machine| machine.state().clone())?;
        Ok(Self {
            machine: machine.clone(),
            watch,
            snapshot: Some(state),
            left_out: None,
            behind: false,
            events,
            of: PhantomData,
        })
    }

    /// The next event, first the snapshot; `None` once this member has left, for whatever reason. Versions
    /// rise from change to change.
    ///
    /// # Errors
    /// [`MapError::Codec`]: this event cannot be decoded, or entries of the snapshot before it; the next ones
    /// come all the same.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<WatchEvent<K, V>, MapError>> {
        loop {
            if let Some(state) = self.snapshot.take() {
                return Some(Ok(WatchEvent::Snapshot(self.entries(&state))));
            }
            if let Some(error) = self.left_out.take() {
                return Some(Err(error));
            }
            if self.behind && self.begin_again() {
                continue;
            }
            match self.events.next().await? {
                ReplicaEvent::Machine { event, .. } if self.watch.matches(&event.key) => {
                    return Some(change(event));
                }
                ReplicaEvent::Synced | ReplicaEvent::Lagged { .. } => {
                    self.behind = true;
                }
                _ => {}
            }
        }
    }

    /// Fails while this member does not serve. Then it is tried again at each event, of which there is one
    /// when it serves again.
    fn begin_again(&mut self) -> bool {
        let read = |machine: &MapMachine| machine.state().clone();
        let Ok((state, events)) = self.machine.read_and_follow(read) else {
            return false;
        };
        self.snapshot = Some(state);
        self.events = events;
        self.behind = false;
        true
    }

    fn entries(&mut self, state: &State) -> Vec<(K, Item<V>)> {
        let (mut entries, mut lost) = (Vec::new(), (0, None));
        let mut take = |(key, entry): (&Bytes, &Entry)| match decoded((key.clone(), entry.clone())) {
            Ok(entry) => entries.push(entry),
            Err(error) => lost = (lost.0 + 1, lost.1.take().or(Some(error))),
        };
        match &self.watch {
            Watch::All => state.iter().for_each(&mut take),
            Watch::Prefix(prefix) => state.prefix(prefix).for_each(&mut take),
            Watch::Key(key) => state
                .get(key)
                .map(|entry| (key, entry))
                .into_iter()
                .for_each(take),
        }
        self.left_out = match lost {
            (more @ 2.., Some(MapError::Codec { reason })) => Some(MapError::Codec {
                reason: format!("{more} entries, the first of them: {reason}"),
            }),
            (_, error) => error,
        };
        entries
    }
}

fn change<K: DeserializeOwned, V: DeserializeOwned>(changed: Changed) -> Result<WatchEvent<K, V>, MapError> {
    let key = decode(&changed.key)?;
    let version = changed.version;
    let why = match changed.now {
        Now::Written(entry) => {
            return Ok(WatchEvent::Put {
                key,
                item: item(entry)?,
            });
        }
        Now::Removed => Gone::Removed,
        Now::Expired => Gone::Expired,
        Now::Evicted => Gone::Evicted,
    };
    Ok(WatchEvent::Gone { key, version, why })
}
