//! Replicated counters, and ids that are unique in the cluster.
//!
//! A counter is a signed 64-bit number with a name and a [`Version`]. Adding is checked: a sum that does not
//! fit is refused and changes nothing. A set with a condition on the version is how a client changes what it
//! has read.
//!
//! Ids come in blocks, so that a client that needs many asks once. They are unsigned, begin with the time at
//! which the table was founded (upper 42 bits), and are never given twice: to no client, and by no table of
//! this name that is founded later, unless founders' clocks go back (the page of `serials.rs` has the
//! proof). A block that is not used up is lost. The ids are safe under the policy `majority`; under
//! `any`, two components give the same ids. All counters and clients share one sequence of ids.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use antiphon_core::wire::Incarnation;
use serde::{Deserialize, Serialize};

use crate::digest::{Sum, part};
use crate::ordered::Ordered;
use crate::serials::Serials;
use crate::state::{
    ByEntry, Entries, Reader, Restore, Restoring, Stop, Writer, ensure, restore, write_after,
};
use crate::version::found;
use crate::{At, Change, Condition, Machine, RestoreError, Version};

/// The longest name of a counter, in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// The most ids in one block: so few that blocks, taken as fast as a group orders commands, do not outrun the
/// seconds from which founding numbers are made.
pub const MAX_BLOCK: u32 = 1 << 12;

/// The name of a counter.
pub type Name = Arc<str>;

/// What a table of counters is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Adds to a counter, which is 0 if it was not there.
    Add {
        /// The counter: 1 to [`MAX_NAME_BYTES`] bytes.
        name: Name,
        /// What to add; subtracts if it is negative.
        by: i64,
    },
    /// Sets a counter.
    Set {
        /// The counter.
        name: Name,
        /// To this.
        value: i64,
        /// If this holds.
        condition: Condition,
    },
    /// Removes a counter.
    Remove {
        /// The counter.
        name: Name,
        /// If this holds.
        condition: Condition,
    },
    /// Takes a block of consecutive ids.
    TakeBlock {
        /// So many: 1 to [`MAX_BLOCK`].
        count: u32,
    },
}

/// A counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Its value.
    pub value: i64,
    /// Greater than any version that this table has given before, whatever the counter.
    pub version: Version,
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (version {})", self.value, self.version)
    }
}

/// What a command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// The counter is like this now; `None` after its removal.
    Counter(Option<Counter>),
    /// The first id of the block; the others follow it.
    Block(u64),
}

/// Why a command was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refused {
    /// The sum does not fit 64 bits with a sign.
    Overflow {
        /// The counter's value.
        value: i64,
        /// What was to be added.
        by: i64,
    },
    /// The condition does not hold. Read the counter again and decide anew.
    Condition {
        /// What the command wants.
        wanted: Condition,
        /// The version of the counter, if it is there.
        found: Option<Version>,
    },
    /// A name is empty or longer than [`MAX_NAME_BYTES`].
    Name {
        /// Its bytes.
        bytes: u64,
    },
    /// There are [`Options::max_counters`] counters.
    TooMany {
        /// The bound.
        max_counters: u32,
    },
    /// A block has 1 to [`MAX_BLOCK`] ids.
    Block {
        /// What was to be taken.
        count: u32,
    },
    /// All versions, or all ids, have been given (2⁶⁴ − 1).
    Exhausted,
}

/// How [`Refused::Overflow`] ends as a text: a carrier without a code for it knows it by that.
pub const BEYOND_64_BITS: &str = "do not fit 64 bits with a sign";

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow { value, by } => write!(f, "{value} and {by} {BEYOND_64_BITS}"),
            Self::Condition {
                wanted,
                found: version,
            } => write!(f, "the command wants {wanted}, there is {}", found(*version)),
            Self::Name { bytes } => {
                write!(f, "a name has 1 to {MAX_NAME_BYTES} bytes, this one has {bytes}")
            }
            Self::TooMany { max_counters } => {
                write!(
                    f,
                    "there are {max_counters} counters, which is the bound max_counters"
                )
            }
            Self::Block { count } => write!(f, "a block has 1 to {MAX_BLOCK} ids, not {count}"),
            Self::Exhausted => f.write_str("all numbers have been given: found the table anew"),
        }
    }
}

impl std::error::Error for Refused {}

/// A counter changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The counter.
    pub name: Name,
    /// How it was, if it was there.
    pub old: Option<Counter>,
    /// How it is, unless it was removed.
    pub new: Option<Counter>,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.new {
            Some(new) => write!(f, "{}: {new}", self.name),
            None => write!(f, "{}: removed", self.name),
        }
    }
}

/// The bounds of a table, the same at all members: they are part of its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The most counters. Default 65,536.
    pub max_counters: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_counters: 1 << 16,
        }
    }
}

/// The counters at one point, for readers and for joiners. A clone is cheap, and does not change when the
/// table does.
#[derive(Debug, Clone)]
pub struct State {
    counters: Ordered<Name, Counter>,
    versions: Serials,
    ids: Serials,
    digest: Sum,
    definition: Arc<str>,
}

impl State {
    /// A counter.
    pub fn get(&self, name: &str) -> Option<Counter> {
        self.counters.get(name).copied()
    }

    /// All counters by their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Counter)> {
        self.counters.iter()
    }

    fn put(&mut self, name: &Name, new: Option<Counter>) -> Option<Counter> {
        let hash = |counter: Counter| part(&[name.as_bytes()], &[counter.value as u64, counter.version.0]);
        let old = match new {
            Some(counter) => self.counters.insert(name.clone(), counter),
            None => self.counters.remove(name),
        };
        new.into_iter().for_each(|counter| self.digest.add(hash(counter)));
        old.into_iter()
            .for_each(|counter| self.digest.remove(hash(counter)));
        old
    }

    fn digest(&self) -> u64 {
        let count = self.counters.len() as u64;
        self.digest.with(&[count, self.versions.last(), self.ids.last()])
    }
}

/// The table of all counters.
#[derive(Debug, Clone)]
pub struct CounterTable {
    options: Options,
    state: State,
    restoring: Restoring,
}

impl CounterTable {
    /// A table without counters.
    pub fn new(options: Options) -> Self {
        let definition = format!("counters 1: max_counters {}", options.max_counters).into();
        Self {
            options,
            state: Self::empty(definition),
            restoring: Restoring::default(),
        }
    }

    /// The counters as they are now, to read them.
    pub fn state(&self) -> &State {
        &self.state
    }

    fn empty(definition: Arc<str>) -> State {
        State {
            counters: Ordered::new(),
            versions: Serials::default(),
            ids: Serials::default(),
            digest: Sum::default(),
            definition,
        }
    }

    /// After a merge: every counter gets a version above those that any reader of either component has seen.
    fn renew(&mut self, at: At, events: &mut Vec<Changed>) {
        if self.state.counters.is_empty() || !self.state.versions.is_before(at.founded) {
            return;
        }
        let counters = self.state.counters.iter();
        let counters: Vec<_> = counters.map(|(name, counter)| (name.clone(), *counter)).collect();
        for (name, counter) in counters {
            // Refused only when all versions have been given.
            let _ = self.change(at, name, Some(counter.value), events);
        }
    }

    fn change(
        &mut self,
        at: At,
        name: Name,
        value: Option<i64>,
        events: &mut Vec<Changed>,
    ) -> Result<Done, Refused> {
        let max_counters = self.options.max_counters;
        let is_new = value.is_some() && self.state.get(&name).is_none();
        if is_new && self.state.counters.len() >= max_counters as usize {
            return Err(Refused::TooMany { max_counters });
        }
        let version = self.state.versions.next(at.founded).ok_or(Refused::Exhausted)?;
        let new = value.map(|value| Counter {
            value,
            version: Version(version),
        });
        let old = self.state.put(&name, new);
        if old.is_some() || new.is_some() {
            let old = old.filter(|_| !planted!(CountsUntold));
            events.push(Changed { name, old, new });
        }
        Ok(Done::Counter(new))
    }
}

fn check_name(name: &str) -> Result<(), Refused> {
    let bytes = name.len() as u64;
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len());
    if fits {
        Ok(())
    } else {
        Err(Refused::Name { bytes })
    }
}

fn check(wanted: Condition, counter: Option<Counter>) -> Result<(), Refused> {
    let found = counter.map(|counter| counter.version);
    let holds = wanted.holds(found);
    if holds {
        Ok(())
    } else {
        Err(Refused::Condition { wanted, found })
    }
}

impl Entries for State {
    type Key = Name;

    fn definition(&self) -> &str {
        &self.definition
    }

    fn write_beginning(&self, to: &mut Writer) {
        to.put(&(self.versions, self.ids, self.counters.len() as u64));
    }

    fn write_entries(&self, after: Option<&Name>, about: usize, to: &mut Writer) -> Option<Name> {
        write_after(&self.counters, after, about, to, |name, counter, to| {
            to.put(&(name.as_ref(), counter));
        })
    }

    fn digest(&self) -> u64 {
        self.digest()
    }

    fn bytes(&self) -> u64 {
        self.counters.len() as u64 * 32
    }
}

impl Restore for CounterTable {
    fn restoring(&mut self) -> &mut Restoring {
        &mut self.restoring
    }

    fn defined(&self) -> Arc<str> {
        self.state.definition.clone()
    }

    fn begin(&mut self, reader: &mut Reader<'_>) -> Result<u64, Stop> {
        let mut read = Self::empty(self.state.definition.clone());
        let count: u64;
        (read.versions, read.ids, count) = reader.take("beginning")?;
        let max_counters = self.options.max_counters;
        ensure(count <= u64::from(max_counters), || {
            format!("{count} counters exceed the bound max_counters, {max_counters}")
        })?;
        self.state = read;
        Ok(count)
    }

    fn take_entry(&mut self, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let (name, counter): (&str, Counter) = reader.take("counters")?;
        let read = &mut self.state;
        let in_order = read.counters.last().is_none_or(|(last, _)| **last < *name);
        let lawful = in_order && check_name(name).is_ok() && counter.version.0 <= read.versions.last();
        ensure(lawful, || {
            format!("{name:?}: out of order, no name, or of a version that was not given yet")
        })?;
        read.put(&name.into(), Some(counter));
        Ok(())
    }

    fn end(&mut self) -> Result<u64, RestoreError> {
        Ok(self.state.digest())
    }
}

impl Machine for CounterTable {
    type Command = Command;
    type Reply = Result<Done, Refused>;
    type Event = Changed;
    type Snapshot = ByEntry<State, Name>;

    fn apply(
        &mut self,
        at: At,
        _from: Incarnation,
        command: Command,
        events: &mut Vec<Changed>,
    ) -> Self::Reply {
        match command {
            Command::Add { name, by } => {
                check_name(&name)?;
                let by = if planted!(AddTwice) {
                    by.saturating_mul(2)
                } else {
                    by
                };
                let value = self.state.get(&name).map_or(0, |counter| counter.value);
                let sum = value.checked_add(by).ok_or(Refused::Overflow { value, by })?;
                self.change(at, name, Some(sum), events)
            }
            Command::Set {
                name,
                value,
                condition,
            } => {
                check_name(&name)?;
                check(condition, self.state.get(&name))?;
                self.change(at, name, Some(value), events)
            }
            Command::Remove { name, condition } => {
                check(condition, self.state.get(&name))?;
                self.change(at, name, None, events)
            }
            Command::TakeBlock { count } => {
                let size = NonZeroU32::new(count).filter(|size| size.get() <= MAX_BLOCK);
                let size = size.ok_or(Refused::Block { count })?;
                let first = self.state.ids.take(at.founded, size);
                first.map(Done::Block).ok_or(Refused::Exhausted)
            }
        }
    }

    fn members(&mut self, at: At, _change: &Change, events: &mut Vec<Changed>) {
        self.renew(at, events);
    }

    fn snapshot(&self) -> Self::Snapshot {
        ByEntry::new(self.state.clone())
    }

    fn restore(&mut self, state: &[u8], complete: bool) -> Result<usize, RestoreError> {
        restore(self, state, complete)
    }

    fn serial(&self) -> Option<u64> {
        Some(self.state.versions.last().max(self.state.ids.last()))
    }

    fn digest(&self) -> Option<u64> {
        Some(self.state.digest())
    }

    fn definition(&self) -> String {
        self.state.definition.to_string()
    }
}

#[cfg(test)]
mod tests;
