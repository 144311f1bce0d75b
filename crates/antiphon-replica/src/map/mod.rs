//! A replicated map: bytes to bytes, with versions, conditions, time to live and a bound.
//!
//! ```text
//!            ┌─► expiry: (time, key)      deadline, timeout, and the start of every command
//! command ───┼─► entries: key ─► value, version, stamp, expires      (persistent: a snapshot is a cheap clone)
//!            ├─► index: the same, as a hash table                   for reads of one key
//!            └─► age: (version, key)      what is evicted first
//! ```
//! **One command is one step.** It holds several writes with conditions; all are made, or none. Put, put if
//! absent, replace and remove if the version is still the one that was read, and compute are writes with a
//! condition.
//!
//! **Versions and stamps.** Each change takes the next [`Version`] of the map, also the removal, the expiry
//! and the eviction of an entry. So versions order all changes; they grow also over a map that is founded
//! anew, under the assumption about clocks that [`At::founded`](crate::At) names. A [`Stamp`]
//! says when an entry was written in agreed time; no later write of the same map has an earlier stamp. When
//! two components merge that both went on, the map of one goes on, and every entry is written anew as it is,
//! with a version above all that either has given: what a reader has seen of a key never goes back. Stamps
//! alone begin at zero again when a map is founded anew and no member remembers the former one ([`Stamp`]).
//!
//! **Expiry.** An entry with a time to live is there while the agreed time is before its end. Before each
//! command the map expires what is due, so no command and no reader finds an expired entry, also if the
//! timeout has not been called yet. One step expires all that is due; it costs no more than the writes of
//! those entries did.
//!
//! **The bound** counts keys, values and an overhead for each entry. At the bound a map refuses writes that
//! make it grow, or evicts the entries that were **written** longest ago. Reads are local to a member and not
//! in the order, so they cannot count: members would evict different entries.
//!
//! **Functions** are registered when the map is made; their names and versions are part of its definition.
//! They must be deterministic, must not panic, and must be the same at all members: a changed function needs
//! another version.
//!
//! **Cost.** A write is logarithmic, with one hash over the old entry and one over the new one for the
//! digest. [`MapMachine::get`] looks into a hash table beside the ordered entries: 200 to 300 ns among
//! 100,000 entries, mostly for memory that is in no cache. [`State::get`] searches the ordered entries, for
//! 300 to 400 ns (`reading_is_fast`). The table is never iterated over, so the random order in it decides
//! nothing.

mod command;
mod entry;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

use antiphon_core::wire::Incarnation;
use bytes::Bytes;
pub use command::{Changed, Command, MAX_WRITES, Now, Operation, Refused, Watch, Write, Written};
pub use entry::{Entry, Stamp};
pub use state::State;

use crate::state::{ByEntry, Restoring, restore};
use crate::{AgreedTime, At, Change, Condition, Machine, RestoreError, Version};

/// What a registered function gets: the value, if there is one, and the argument of the command. It gives the
/// new value, nothing if the entry is to be removed, or why it refuses.
pub type Function = dyn Fn(Option<&[u8]>, &[u8]) -> Result<Option<Vec<u8>>, String> + Send + Sync;

/// The bounds of a map, the same at all members: they are part of its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What all entries together may take, in bytes. Default 64 MiB. Each entry takes its key, its value and
    /// [`Entry::OVERHEAD_BYTES`].
    pub max_bytes: u64,
    /// The longest key, in bytes. Default 1 KiB.
    pub max_key_bytes: u32,
    /// The longest value, in bytes. Default 1 MiB. A command must also fit a message.
    pub max_value_bytes: u32,
    /// What happens at the bound. Default: [`Full::Refuse`].
    pub full: Full,
}

/// What happens to a write for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// It is refused: [`Refused::Full`].
    Refuse,
    /// The entries that were written longest ago are evicted.
    EvictOldest,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            max_key_bytes: 1 << 10,
            max_value_bytes: 1 << 20,
            full: Full::Refuse,
        }
    }
}

impl Options {
    fn check(&self, key: &Bytes, value: &Bytes) -> Result<(), Refused> {
        if key.len() > self.max_key_bytes as usize {
            return Err(Refused::KeyTooLong {
                bytes: key.len() as u64,
                max_bytes: self.max_key_bytes,
            });
        }
        if value.len() > self.max_value_bytes as usize {
            return Err(Refused::ValueTooLong {
                key: key.clone(),
                bytes: value.len() as u64,
                max_bytes: self.max_value_bytes,
            });
        }
        Ok(())
    }
}

/// The map.
#[derive(Clone)]
pub struct MapMachine {
    options: Options,
    /// What keys and values mean.
    meaning: String,
    functions: BTreeMap<String, (u32, Arc<Function>)>,
    state: State,
    /// The entries once more, for reads. Never iterated over.
    index: HashMap<Bytes, Entry>,
    /// When entries expire.
    expiry: BTreeSet<(AgreedTime, Bytes)>,
    /// By when entries were written, if they are to be evicted.
    age: BTreeMap<Version, Bytes>,
    restoring: Restoring,
}

/// What a write will leave.
enum Planned {
    Nothing,
    Removed,
    Put {
        value: Bytes,
        flags: u16,
        expires: Option<AgreedTime>,
    },
}

impl MapMachine {
    /// An empty map with these bounds.
    pub fn new(options: Options) -> Self {
        let mut map = Self {
            options,
            meaning: String::new(),
            functions: BTreeMap::new(),
            state: State::new("".into()),
            index: HashMap::new(),
            expiry: BTreeSet::new(),
            age: BTreeMap::new(),
            restoring: Restoring::default(),
        };
        map.state.definition = map.definition().into();
        map
    }

    /// Says what the bytes of keys and values mean: types, encoding, a version. It is part of the definition.
    /// Do so before anything else.
    pub fn of(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = meaning.into();
        self.state.definition = self.definition().into();
        self
    }

    /// Registers a function that commands can name. Raise its version with every change of what it does. Do
    /// so before anything else.
    pub fn function<F>(mut self, name: &str, version: u32, function: F) -> Self
    where
        F: Fn(Option<&[u8]>, &[u8]) -> Result<Option<Vec<u8>>, String> + Send + Sync + 'static,
    {
        self.functions
            .insert(name.to_owned(), (version, Arc::new(function)));
        self.state.definition = self.definition().into();
        self
    }

    /// The entries as they are now, to read them.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The entry of a key. What has expired by the agreed time of the state is not there.
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.get_at(key, self.state.now)
    }

    /// The same for a reader that knows of a later agreed time.
    pub fn get_at(&self, key: &[u8], time: AgreedTime) -> Option<&Entry> {
        let now = time.max(self.state.now);
        self.index.get(key).filter(|entry| entry.is_there(now))
    }

    /// What each write will leave, if all can be made.
    fn plan(&self, command: &Command) -> Result<Vec<Planned>, Refused> {
        let writes = &command.writes;
        if writes.len() > MAX_WRITES {
            return Err(Refused::TooManyWrites {
                writes: writes.len() as u64,
            });
        }
        let mut keys = BTreeSet::new();
        let mut found = Vec::with_capacity(writes.len());
        for write in writes {
            self.options.check(&write.key, &Bytes::new())?;
            if writes.len() > 1 && !keys.insert(&write.key) {
                return Err(Refused::KeyTwice {
                    key: write.key.clone(),
                });
            }
            let old = self.get(&write.key);
            let version = old.map(|entry| entry.version);
            let ignored = planted!(IgnoreVersions) && matches!(write.condition, Condition::Version(_));
            if !write.condition.holds(version) && !ignored {
                return Err(Refused::Condition {
                    key: write.key.clone(),
                    wanted: write.condition,
                    found: version,
                });
            }
            found.push(old);
        }
        let plan = writes.iter().zip(&found);
        let plan: Vec<_> = plan
            .map(|(write, old)| self.plan_one(write, *old))
            .collect::<Result<_, _>>()?;
        self.check_room(writes, &found, &plan)?;
        Ok(plan)
    }

    fn plan_one(&self, write: &Write, old: Option<&Entry>) -> Result<Planned, Refused> {
        let planned = match &write.operation {
            Operation::Check => Planned::Nothing,
            Operation::Remove if old.is_none() => Planned::Nothing,
            Operation::Remove => Planned::Removed,
            Operation::Put {
                value,
                flags,
                time_to_live_ms,
            } => Planned::Put {
                value: value.clone(),
                flags: *flags,
                expires: time_to_live_ms.map(|millis| AgreedTime {
                    millis: self.state.now.millis.saturating_add(millis),
                }),
            },
            Operation::Compute { function, argument } => {
                let Some((_, code)) = self.functions.get(function) else {
                    return Err(Refused::NoFunction {
                        name: function.clone(),
                    });
                };
                let value = code(old.map(|entry| &*entry.value), argument);
                let value = value.map_err(|reason| Refused::Function {
                    name: function.clone(),
                    key: write.key.clone(),
                    reason,
                })?;
                match (value, old) {
                    (None, None) => Planned::Nothing,
                    (None, Some(_)) => Planned::Removed,
                    (Some(value), old) => Planned::Put {
                        value: value.into(),
                        flags: old.map_or(0, |entry| entry.modified.flags()),
                        expires: old.and_then(|entry| entry.expires),
                    },
                }
            }
        };
        if let Planned::Put { value, .. } = &planned {
            self.options.check(&write.key, value)?;
        }
        Ok(planned)
    }

    /// Whether there is room for what is planned, in the place of what was found, or can be made.
    fn check_room(
        &self,
        writes: &[Write],
        found: &[Option<&Entry>],
        plan: &[Planned],
    ) -> Result<(), Refused> {
        let (mut goes, mut comes) = (0, 0);
        for ((write, old), planned) in writes.iter().zip(found).zip(plan) {
            if let Planned::Nothing = planned {
                continue;
            }
            goes += old.map_or(0, |entry| Entry::bytes(&write.key, &entry.value));
            if let Planned::Put { value, .. } = planned {
                comes += Entry::bytes(&write.key, value);
            }
        }
        let bytes = match self.options.full {
            Full::Refuse => self.state.bytes - goes + comes,
            Full::EvictOldest => comes,
        };
        let max_bytes = self.options.max_bytes;
        // A command that only removes finds room: the map is never above its bound.
        if bytes > max_bytes {
            return Err(Refused::Full { bytes, max_bytes });
        }
        Ok(())
    }

    /// Writes or removes an entry and says so.
    fn change(&mut self, key: Bytes, version: Version, now: Now, events: &mut Vec<Changed>) -> Written {
        let (old, new) = match &now {
            Now::Written(entry) => {
                if let Some(expires) = entry.expires {
                    self.expiry.insert((expires, key.clone()));
                }
                if self.options.full == Full::EvictOldest {
                    self.age.insert(version, key.clone());
                }
                self.index.insert(key.clone(), entry.clone());
                (self.state.insert(key.clone(), entry.clone()), Some(entry.clone()))
            }
            _ => {
                self.index.remove(&key);
                (self.state.remove(&key), None)
            }
        };
        if let Some(old) = &old {
            self.age.remove(&old.version);
            let goes_on = new.as_ref().is_some_and(|new| new.expires == old.expires);
            if let Some(expires) = old.expires.filter(|_| !goes_on) {
                self.expiry.remove(&(expires, key.clone()));
            }
        }
        if planted!(GoneKeysUntold) && matches!(now, Now::Removed) {
            return Written { old, new };
        }
        events.push(Changed {
            key,
            version,
            old: old.clone(),
            now,
        });
        Written { old, new }
    }

    /// An entry goes without a command. That must happen also when all versions have been given: then the
    /// last one stands for it.
    fn drop_entry(&mut self, at: At, key: Bytes, now: Now, events: &mut Vec<Changed>) {
        let version = self.state.versions.next(at.founded);
        let version = Version(version.unwrap_or(self.state.versions.last()));
        self.change(key, version, now, events);
    }

    /// Time has come so far: what is due expires.
    fn expire(&mut self, at: At, events: &mut Vec<Changed>) {
        self.state.now = self.state.now.max(at.time);
        while self.deadline().is_some_and(|expires| expires <= self.state.now)
            && let Some((_, key)) = self.expiry.pop_first()
        {
            self.drop_entry(at, key, Now::Expired, events);
        }
    }

    /// After a merge: every entry is written anew as it is, so that no reader of either component finds an
    /// older version or stamp than it has seen.
    fn renew(&mut self, at: At, events: &mut Vec<Changed>) {
        let count = u32::try_from(self.state.len()).ok().and_then(NonZeroU32::new);
        let before = self.state.versions.is_before(at.founded) && !planted!(RenewNothing);
        let Some(count) = count.filter(|_| before) else {
            return;
        };
        self.expire(at, events);
        let Some(first) = self.state.versions.take(at.founded, count) else {
            return;
        };
        let entries = self.state.entries.iter();
        let mut entries: Vec<_> = entries.map(|(key, entry)| (key.clone(), entry.clone())).collect();
        // What was written first is evicted first, as before.
        entries.sort_by_key(|(_, entry)| entry.version);
        for (n, (key, mut entry)) in entries.into_iter().enumerate() {
            entry.version = Version(first + n as u64);
            entry.modified = Stamp::new(self.state.now, entry.modified.flags());
            self.change(key, entry.version, Now::Written(entry), events);
        }
    }

    fn evict(&mut self, at: At, events: &mut Vec<Changed>) {
        while self.state.bytes > self.options.max_bytes
            && let Some((_, key)) = self.age.pop_first()
        {
            self.drop_entry(at, key, Now::Evicted, events);
        }
    }
}

impl Machine for MapMachine {
    type Command = Command;
    type Reply = Result<Vec<Written>, Refused>;
    type Event = Changed;
    type Snapshot = ByEntry<State, Bytes>;

    fn apply(
        &mut self,
        at: At,
        _from: Incarnation,
        command: Command,
        events: &mut Vec<Changed>,
    ) -> Self::Reply {
        self.expire(at, events);
        let plan = self.plan(&command)?;
        let changes = plan.iter().filter(|planned| !matches!(planned, Planned::Nothing));
        let mut version = match NonZeroU32::new(changes.count() as u32) {
            Some(count) => self
                .state
                .versions
                .take(at.founded, count)
                .ok_or(Refused::Exhausted)?,
            None => 0,
        };
        let mut written = Vec::with_capacity(plan.len());
        for (write, planned) in command.writes.into_iter().zip(plan) {
            let now = match planned {
                Planned::Nothing => {
                    let old = self.get(&write.key).cloned();
                    written.push(Written {
                        old: old.clone(),
                        new: old,
                    });
                    continue;
                }
                Planned::Removed => Now::Removed,
                Planned::Put {
                    value,
                    flags,
                    expires,
                } => Now::Written(Entry {
                    value,
                    version: Version(version),
                    modified: Stamp::new(self.state.now, flags),
                    expires,
                }),
            };
            written.push(self.change(write.key, Version(version), now, events));
            version = version.saturating_add(1);
        }
        self.evict(at, events);
        Ok(written)
    }

    fn members(&mut self, at: At, _change: &Change, events: &mut Vec<Changed>) {
        self.renew(at, events);
    }

    fn deadline(&self) -> Option<AgreedTime> {
        self.expiry.first().map(|(expires, _)| *expires)
    }

    fn timeout(&mut self, at: At, events: &mut Vec<Changed>) {
        self.expire(at, events);
    }

    fn event_bytes(event: &Changed) -> usize {
        let now = match &event.now {
            Now::Written(entry) => Some(entry),
            Now::Removed | Now::Expired | Now::Evicted => None,
        };
        let values = event.old.iter().chain(now).map(|entry| entry.value.len());
        event.key.len() + values.sum::<usize>()
    }

    fn snapshot(&self) -> Self::Snapshot {
        ByEntry::new(self.state.clone())
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        restore(self, state, complete)
    }

    fn serial(&self) -> Option<u64> {
        Some(self.state.versions.last())
    }

    fn digest(&self) -> Option<u64> {
        Some(self.state.digest())
    }

    fn definition(&self) -> String {
        let Options {
            max_bytes,
            max_key_bytes,
            max_value_bytes,
            full,
        } = &self.options;
        let functions = self.functions.iter();
        let functions: Vec<_> = functions
            .map(|(name, (version, _))| format!("{name} {version}"))
            .collect();
        format!(
            "map 1 of {:?}: max_bytes {max_bytes}, max_key_bytes {max_key_bytes}, max_value_bytes \
             {max_value_bytes}, full {full:?}, functions {functions:?}",
            self.meaning
        )
    }
}
