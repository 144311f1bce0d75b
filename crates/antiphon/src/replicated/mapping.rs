//! Typed maps over the [map of bytes](antiphon_replica::map).
//!
//! Postcard encodes keys and values. Keys are ordered by these bytes, which is not always the order of the
//! type: integers and strings begin with a length or are of variable length. The meaning of the bytes is part
//! of the definition: a type's name and version, the same at all members.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use antiphon_replica::map::{
    Command, Entry, Function, MapMachine, Options, Refused, Stamp, Watch, Write, Written,
};
use antiphon_replica::{AgreedTime, Condition, Version, unpanicked};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::watch::Watching;
use super::{ReadError, ReplicaError, Replicated, ReplicatedBuilder, WriteError};
use crate::{Cluster, typed};

/// Bytes of a key for which [`Map::get`] allocates nothing.
const SHORT_KEY_BYTES: usize = 64;

/// A map to join. From [`Cluster::map`].
#[must_use = "nothing happens until `join` or `start`"]
pub struct MapBuilder<K, V> {
    cluster: Cluster,
    name: String,
    types: String,
    options: Options,
    functions: BTreeMap<String, (u32, Arc<Function>)>,
    change: Box<dyn FnOnce(ReplicatedBuilder<MapMachine>) -> ReplicatedBuilder<MapMachine> + Send>,
    of: PhantomData<fn(K) -> V>,
}

impl<K, V> fmt::Debug for MapBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapBuilder")
            .field("name", &self.name)
            .field("types", &self.types)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<K, V> MapBuilder<K, V> {
    /// What keys and values are, with a version: `user id -> session 2`. Change it with every change of the
    /// types that changes their bytes: a member that says something else is refused, and told both.
    ///
    /// Unless this is called, it is the names of both types ([`std::any::type_name`]). Such a name does not
    /// change when a field is added, and does change when the type is renamed or moved. Another compiler may
    /// write it differently. So call this where members are upgraded one by one.
    pub fn types(mut self, types: impl Into<String>) -> Self {
        self.types = types.into();
        self
    }

    /// The bounds of the map; the same at all members.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Registers a function for [`Map::compute`]. It gets the value of a key, if there is one, and an
    /// argument. It returns the new value, or none if the key is to have none, or why it refuses.
    ///
    /// All members run it, each on its own copy, at the same place of the order. So it must be a function of
    /// what it gets and of nothing else: no clock, no random numbers, no iteration over a `HashMap`. If it
    /// panics, it refuses, and the map stays as it is. Raise `version` with every change of what it does: a
    /// member with another version, or without this function, is refused when it joins, and told both
    /// definitions.
    pub fn function<A, F>(mut self, name: impl Into<String>, version: u32, function: F) -> Self
    where
        A: DeserializeOwned,
        V: Serialize + DeserializeOwned,
        F: Fn(Option<V>, A) -> Result<Option<V>, String> + Send + Sync + 'static,
    {
        let bytes = move |old: Option<&[u8]>, argument: &[u8]| {
            unpanicked(|| {
                let old = old.map(typed::decode).transpose()?;
                let new = function(old, typed::decode(argument)?)?;
                new.map(|new| typed::encode(&new).map(Vec::from)).transpose()
            })
        };
        self.functions.insert(name.into(), (version, Arc::new(bytes)));
        self
    }

    /// Changes how the map is replicated.
    pub fn replicated(
        mut self,
        change: impl FnOnce(ReplicatedBuilder<MapMachine>) -> ReplicatedBuilder<MapMachine> + Send + 'static,
    ) -> Self {
        self.change = Box::new(change);
        self
    }

    /// See [`ReplicatedBuilder::join`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn join(self) -> Result<Map<K, V>, ReplicaError> {
        let map = self.start().await?;
        map.machine.joined().await?;
        Ok(map)
    }

    /// See [`ReplicatedBuilder::start`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn start(self) -> Result<Map<K, V>, ReplicaError> {
        let (types, options, functions) = (self.types, self.options, self.functions);
        let make = move || {
            let map = MapMachine::new(options.clone()).of(format!("{types}, by postcard 1"));
            functions.iter().fold(map, |map, (name, (version, function))| {
                let function = function.clone();
                map.function(name, *version, move |old, argument| function(old, argument))
            })
        };
        let builder = (self.change)(self.cluster.replicated(self.name, make));
        Ok(Map {
            machine: builder.start().await?,
            of: PhantomData,
        })
    }
}

impl Cluster {
    /// A map of the members of the group of this name. Nothing happens until [`MapBuilder::join`].
    pub fn map<K, V>(&self, name: impl Into<String>) -> MapBuilder<K, V> {
        MapBuilder {
            cluster: self.clone(),
            name: name.into(),
            types: std::any::type_name::<(K, V)>().to_owned(),
            options: Options::default(),
            functions: BTreeMap::new(),
            change: Box::new(|builder| builder),
            of: PhantomData,
        }
    }
}

/// An entry that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Item<V> {
    /// The value.
    pub value: V,
    /// Its version: greater than those of all changes of the map before it.
    pub version: Version,
    /// When it was written, in agreed time.
    pub modified: Stamp,
    /// From this agreed time on it is not there any more; `None`: it stays.
    pub expires: Option<AgreedTime>,
}

impl<V: fmt::Display> fmt::Display for Item<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (version {})", self.value, self.version)
    }
}

/// What a conditional write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Put {
    /// It is written, with this version.
    Done(Version),
    /// The condition did not hold, and nothing was written: the entry has this version, or is not there.
    Found(Option<Version>),
}

impl Put {
    /// Whether it is written.
    pub fn is_done(&self) -> bool {
        matches!(self, Put::Done(_))
    }
}

impl fmt::Display for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(version) => write!(f, "written as version {version}"),
            Self::Found(Some(version)) => write!(f, "not written: there is version {version}"),
            Self::Found(None) => f.write_str("not written: there is no entry"),
        }
    }
}

/// A map that all members of a group have a copy of. A cheap handle.
///
/// All writes have one order among all members. A method that waits for an answer returns when this member
/// has applied the write. [`get`](Self::get) and [`entries`](Self::entries) read this member's copy.
///
/// Postcard writes keys and values, without names of fields and without anything that says what comes next. A
/// value of an enum with `#[serde(untagged)]`, or with `tag` and no `content`, a `serde_json::Value`, or a
/// struct with `skip_serializing_if` can be put and cannot be read back ([`MapError::Codec`]). `flatten`
/// cannot be put, and `default` fills in nothing: a type with one more field needs another name in
/// [`MapBuilder::types`].
///
/// ```no_run
/// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// let sessions = cluster.map::<u64, String>("sessions").types("user id -> token 1").join().await?;
/// sessions.put_for(&7, &"secret".to_owned(), Duration::from_secs(600)).await?;
/// if let Some(item) = sessions.get(&7)? {
///     let put = sessions.replace_if(&7, &"other".to_owned(), item.version).await?;
///     assert!(put.is_done(), "somebody was faster");
/// }
/// sessions.batch().put(&8, &"a".to_owned())?.remove(&7)?.commit().await?; // both or none
/// # Ok(())
/// # }
/// ```
pub struct Map<K, V> {
    machine: Replicated<MapMachine>,
    of: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Self {
        Self {
            machine: self.machine.clone(),
            of: PhantomData,
        }
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Map").field(&self.machine).finish()
    }
}

impl<K: Serialize + DeserializeOwned, V: Serialize + DeserializeOwned> Map<K, V> {
    /// The entry of a key in this member's copy: no message. See [`Replicated::read`].
    ///
    /// # Errors
    /// [`MapError::Read`], [`MapError::Codec`].
    pub fn get(&self, key: &K) -> Result<Option<Item<V>>, MapError> {
        let find = |key: &[u8]| self.machine.read(|machine| machine.get(key).cloned());
        // Most keys fit here, and a read then allocates nothing but what it gives.
        let mut short = [0; SHORT_KEY_BYTES];
        let found = match postcard::to_slice(key, &mut short) {
            Ok(key) => find(key),
            Err(_) => find(&encode(key)?),
        };
        found?.map(item).transpose()
    }

    /// The entry of a key, with all that was answered to any member before this call. See
    /// [`Replicated::read_latest`].
    ///
    /// # Errors
    /// As [`get`](Self::get).
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn get_latest(&self, key: &K) -> Result<Option<Item<V>>, MapError> {
        let key = encode(key)?;
        let entry = self
            .machine
            .read_latest(|machine| machine.get(&key).cloned())
            .await?;
        entry.map(item).transpose()
    }

    /// Writes a value, and returns its version.
    ///
    /// # Errors
    /// [`MapError`]; [`MapError::may_have_happened`] says whether it may have been written.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, it may be written all the same.
    pub async fn put(&self, key: &K, value: &V) -> Result<Version, MapError> {
        self.put_when(Write::put(encode(key)?, encode(value)?)).await
    }

    /// Writes a value that is there for so much agreed time (in milliseconds, rounded down) and then goes at
    /// all members at the same place of the order. Agreed time stands still while the group has no leader.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Cancel safety
    /// As [`put`](Self::put).
    pub async fn put_for(&self, key: &K, value: &V, time_to_live: Duration) -> Result<Version, MapError> {
        self.put_when(Write::put(encode(key)?, encode(value)?).expiring(time_to_live))
            .await
    }

    /// Writes a value if the key has none. Of all members that try, one is [`Put::Done`].
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Cancel safety
    /// As [`put`](Self::put).
    pub async fn put_if_absent(&self, key: &K, value: &V) -> Result<Put, MapError> {
        self.put_if(Write::put(encode(key)?, encode(value)?).if_absent())
            .await
    }

    /// Writes a value if the key still has the one of this version.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Cancel safety
    /// As [`put`](Self::put).
    pub async fn replace_if(&self, key: &K, value: &V, version: Version) -> Result<Put, MapError> {
        self.put_if(Write::put(encode(key)?, encode(value)?).if_version(version))
            .await
    }

    /// Removes a key, and returns what it had.
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`MapError::Undecodable`].
    ///
    /// # Cancel safety
    /// As [`put`](Self::put).
    pub async fn remove(&self, key: &K) -> Result<Option<Item<V>>, MapError> {
        let written = self.write_one(Write::remove(encode(key)?)).await?;
        written.old.map(item).transpose().map_err(MapError::but_done)
    }

    /// Removes a key if it still has the value of this version; whether it did.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    ///
    /// # Cancel safety
    /// As [`put`](Self::put).
    pub async fn remove_if(&self, key: &K, version: Version) -> Result<bool, MapError> {
        match self
            .write_one(Write::remove(encode(key)?).if_version(version))
            .await
        {
            Ok(_) => Ok(true),
            Err(MapError::Refused(Refused::Condition { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes what a function makes of the value that the key has at this place of the order, and returns it:
    /// one message, where `get` and [`replace_if`](Self::replace_if) in a loop take two or more. `None`: the
    /// key has no value now. Its time to live, if it has one, goes on.
    ///
    /// ```no_run
    /// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
    /// let stock = cluster.map::<u64, u32>("stock").function("take", 1, |have: Option<u32>, count: u32| {
    ///     let left = have.unwrap_or(0).checked_sub(count).ok_or("not enough")?;
    ///     Ok((left > 0).then_some(left))
    /// });
    /// let stock = stock.join().await?;
    /// stock.compute(&7, "take", &3_u32).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`MapError::Undecodable`]. [`MapError::Refused`] with
    /// [`Refused::NoFunction`], or with [`Refused::Function`]: it refused or panicked, or the argument is of
    /// another type.
    ///
    /// # Cancel safety
    /// As [`put`](Self::put). It may be written all the same; to write it again computes it twice.
    pub async fn compute(
        &self,
        key: &K,
        function: &str,
        argument: &impl Serialize,
    ) -> Result<Option<Item<V>>, MapError> {
        let write = Write::compute(encode(key)?, function, encode(argument)?);
        let written = self.write_one(write).await?;
        written.new.map(item).transpose().map_err(MapError::but_done)
    }

    /// Several writes that are made all or none, in one message: at most
    /// [`MAX_WRITES`](super::map::MAX_WRITES), each of another key.
    pub fn batch(&self) -> Batch<'_, K, V> {
        Batch {
            map: self,
            writes: Vec::new(),
            misplaced: false,
        }
    }

    /// All entries of this member's copy at one point, in the order of their keys' bytes. The copy is not
    /// locked while they are read, and does not change: writes go on.
    ///
    /// # Errors
    /// [`MapError::Read`].
    pub fn entries(
        &self,
    ) -> Result<impl Iterator<Item = Result<(K, Item<V>), MapError>> + use<K, V>, MapError> {
        let state = self.machine.read(|machine| machine.state().clone())?;
        Ok(taken(state.iter()).map(decoded))
    }

    /// The same of all keys with bytes that begin with the bytes of this key, see
    /// [`watch_prefix`](Self::watch_prefix).
    ///
    /// # Errors
    /// [`MapError::Read`], [`MapError::Codec`].
    pub fn entries_prefix<P: Serialize>(
        &self,
        prefix: &P,
    ) -> Result<impl Iterator<Item = Result<(K, Item<V>), MapError>> + use<K, V, P>, MapError> {
        let prefix = encode(prefix)?;
        let state = self.machine.read(|machine| machine.state().clone())?;
        Ok(taken(state.prefix(&prefix)).map(decoded))
    }

    /// How many entries this member's copy has.
    ///
    /// # Errors
    /// [`MapError::Read`].
    pub fn len(&self) -> Result<usize, MapError> {
        Ok(self.machine.read(|machine| machine.state().len())?)
    }

    /// Whether this member's copy has no entry.
    ///
    /// # Errors
    /// [`MapError::Read`].
    pub fn is_empty(&self) -> Result<bool, MapError> {
        Ok(self.len()? == 0)
    }

    /// All entries as they are, then all changes, with none lost in between.
    ///
    /// # Errors
    /// [`MapError::Read`].
    pub fn watch(&self) -> Result<Watching<K, V>, MapError> {
        Watching::new(&self.machine, Watch::All)
    }

    /// The same of one key.
    ///
    /// # Errors
    /// [`MapError::Read`], [`MapError::Codec`].
    pub fn watch_key(&self, key: &K) -> Result<Watching<K, V>, MapError> {
        Watching::new(&self.machine, Watch::Key(encode(key)?))
    }

    /// The same of all keys with bytes that begin with the bytes of this key: if keys are tuples or structs,
    /// give the first fields. A string is no prefix of a longer string: its bytes begin with its length.
    ///
    /// # Errors
    /// [`MapError::Read`], [`MapError::Codec`].
    pub fn watch_prefix(&self, prefix: &impl Serialize) -> Result<Watching<K, V>, MapError> {
        Watching::new(&self.machine, Watch::Prefix(encode(prefix)?))
    }

    /// The map of bytes: events, members, leaving.
    pub fn machine(&self) -> &Replicated<MapMachine> {
        &self.machine
    }

    async fn put_when(&self, write: Write) -> Result<Version, MapError> {
        let written = self.write_one(write).await?;
        Ok(written.new.map(|entry| entry.version).unwrap_or_default())
    }

    async fn put_if(&self, write: Write) -> Result<Put, MapError> {
        match self.put_when(write).await {
            Ok(version) => Ok(Put::Done(version)),
            Err(MapError::Refused(Refused::Condition { found, .. })) => Ok(Put::Found(found)),
            Err(error) => Err(error),
        }
    }

    async fn write_one(&self, write: Write) -> Result<Written, MapError> {
        let written = self
            .machine
            .write(write.into())
            .await?
            .map_err(MapError::Refused)?;
        // A command of one write has one result.
        Ok(written
            .into_iter()
            .next()
            .unwrap_or(Written { old: None, new: None }))
    }
}

/// Writes that are made all or none. From [`Map::batch`].
#[must_use = "nothing is written until `commit`"]
pub struct Batch<'a, K, V> {
    map: &'a Map<K, V>,
    writes: Vec<Write>,
    /// A condition stands before the first write.
    misplaced: bool,
}

impl<K, V> fmt::Debug for Batch<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}

impl<K: Serialize + DeserializeOwned, V: Serialize + DeserializeOwned> Batch<'_, K, V> {
    /// Writes a value.
    ///
    /// # Errors
    /// [`MapError::Codec`].
    pub fn put(self, key: &K, value: &V) -> Result<Self, MapError> {
        Ok(self.and(Write::put(encode(key)?, encode(value)?)))
    }

    /// Removes a key, if it is there.
    ///
    /// # Errors
    /// [`MapError::Codec`].
    pub fn remove(self, key: &K) -> Result<Self, MapError> {
        Ok(self.and(Write::remove(encode(key)?)))
    }

    /// Writes a value for this much agreed time, see [`Map::put_for`].
    ///
    /// # Errors
    /// [`MapError::Codec`].
    pub fn put_for(self, key: &K, value: &V, time: Duration) -> Result<Self, MapError> {
        Ok(self.and(Write::put(encode(key)?, encode(value)?).expiring(time)))
    }

    /// Writes what a function makes of the value before the batch, see [`Map::compute`].
    ///
    /// # Errors
    /// [`MapError::Codec`].
    pub fn compute(self, key: &K, function: &str, argument: &impl Serialize) -> Result<Self, MapError> {
        Ok(self.and(Write::compute(encode(key)?, function, encode(argument)?)))
    }

    /// All of it only if this holds for a key that is not written by it.
    ///
    /// # Errors
    /// [`MapError::Codec`].
    pub fn check(self, key: &K, condition: Condition) -> Result<Self, MapError> {
        Ok(self.and(Write::check(encode(key)?, condition)))
    }

    /// All of it only if this holds for the key of the write before it. Without a write before it the batch
    /// cannot be committed.
    pub fn when(mut self, condition: Condition) -> Self {
        match self.writes.pop() {
            Some(write) => self.writes.push(write.when(condition)),
            None => self.misplaced = true,
        }
        self
    }

    /// Writes them. Gives one element for each write, in their order: the version of what it put, `None` for
    /// a removal or a check. `None` for all: the condition of one did not hold, and nothing was written.
    ///
    /// # Errors
    /// As [`Map::put`]; [`MapError::Codec`] if a condition stands before the first write.
    ///
    /// # Cancel safety
    /// As [`Map::put`].
    pub async fn commit(self) -> Result<Option<Vec<Option<Version>>>, MapError> {
        if self.misplaced {
            let reason = "`when` stands before the first write of its batch: write first".to_owned();
            return Err(MapError::Codec { reason });
        }
        let written = self.map.machine.write(Command { writes: self.writes }).await?;
        match written {
            Ok(written) => {
                // A check leaves the entry that was there.
                let versions = written.into_iter().map(|Written { old, new }| {
                    let left = old.map(|entry| entry.version);
                    new.map(|entry| entry.version).filter(|new| Some(*new) != left)
                });
                Ok(Some(versions.collect()))
            }
            Err(Refused::Condition { .. }) => Ok(None),
            Err(refused) => Err(MapError::Refused(refused)),
        }
    }

    fn and(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }
}

/// Why a map did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// See there.
    Write(WriteError),
    /// See there.
    Read(ReadError),
    /// The map refused the command: a bound, or a key twice. Nothing was written.
    Refused(Refused),
    /// A key or value could not be encoded, or one that another member wrote cannot be decoded: then all
    /// members must give the same types, with [`MapBuilder::types`] to tell them apart.
    Codec {
        /// What serde says.
        reason: String,
    },
    /// It was written; what the key had before, or has now, cannot be decoded.
    Undecodable {
        /// What serde says.
        reason: String,
    },
}

impl MapError {
    /// Whether the write happened or may have, or may still.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Write(error) => error.may_have_happened(),
            Self::Undecodable { .. } => true,
            _ => false,
        }
    }

    /// This error met what is told of a write that was made.
    fn but_done(self) -> Self {
        match self {
            Self::Codec { reason } => Self::Undecodable { reason },
            other => other,
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
            Self::Refused(refused) => refused.fmt(f),
            Self::Codec { reason } => {
                write!(
                    f,
                    "a key or value cannot be encoded or decoded: {reason}; give all members the same types, which postcard can read again"
                )
            }
            Self::Undecodable { reason } => {
                write!(
                    f,
                    "it was written, but the value to return cannot be decoded: {reason}"
                )
            }
        }
    }
}

impl std::error::Error for MapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write(error) => Some(error),
            Self::Read(error) => Some(error),
            Self::Refused(refused) => Some(refused),
            Self::Codec { .. } | Self::Undecodable { .. } => None,
        }
    }
}

impl From<WriteError> for MapError {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

impl From<ReadError> for MapError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

fn encode(value: &impl Serialize) -> Result<Bytes, MapError> {
    typed::encode(value).map_err(|reason| MapError::Codec { reason })
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MapError> {
    typed::decode(bytes).map_err(|reason| MapError::Codec { reason })
}

/// Copied from the state, since the iterator of a persistent map borrows it.
fn taken<'a>(entries: impl Iterator<Item = (&'a Bytes, &'a Entry)>) -> std::vec::IntoIter<(Bytes, Entry)> {
    let entries = entries.map(|(key, entry)| (key.clone(), entry.clone()));
    entries.collect::<Vec<_>>().into_iter()
}

pub(super) fn decoded<K: DeserializeOwned, V: DeserializeOwned>(
    (key, entry): (Bytes, Entry),
) -> Result<(K, Item<V>), MapError> {
    Ok((decode(&key)?, item(entry)?))
}

pub(super) fn item<V: DeserializeOwned>(entry: Entry) -> Result<Item<V>, MapError> {
    Ok(Item {
        value: decode(&entry.value)?,
        version: entry.version,
        modified: entry.modified,
        expires: entry.expires,
    })
}
