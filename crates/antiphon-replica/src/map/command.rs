//! What a map is told, what it answers, and what it tells of.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Entry;
use crate::version::found;
use crate::{Condition, Version};

/// The most writes of one command.
pub const MAX_WRITES: usize = 1024;

/// Writes that are made all, if all their conditions hold, or not at all. Conditions and functions see the
/// map as it was before the command. A key stands in one of the writes only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The writes: at most [`MAX_WRITES`].
    pub writes: Vec<Write>,
}

/// One write: of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The key: at most [`Options::max_key_bytes`](super::Options::max_key_bytes).
    pub key: Bytes,
    /// What must hold for the key; otherwise nothing of the command is done.
    pub condition: Condition,
    /// What to do.
    pub operation: Operation,
}

/// What to do with a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Write this value.
    Put {
        /// The value.
        value: Bytes,
        /// The writer's own flags, kept with the entry.
        flags: u16,
        /// How long the entry is there, in milliseconds of agreed time; for ever if nothing is said.
        time_to_live_ms: Option<u64>,
    },
    /// Remove the entry, if there is one.
    Remove,
    /// Write what a function makes of the value. Flags and expiry stay as they are; a new entry has neither.
    Compute {
        /// The name under which the function is registered in the machine's definition.
        function: String,
        /// What else the function is told.
        argument: Bytes,
    },
    /// Nothing: the other writes depend on the condition.
    Check,
}

impl Write {
    fn new(key: impl Into<Bytes>, operation: Operation) -> Self {
        Self {
            key: key.into(),
            condition: Condition::Always,
            operation,
        }
    }

    /// Writes a value.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        let put = Operation::Put {
            value: value.into(),
            flags: 0,
            time_to_live_ms: None,
        };
        Self::new(key, put)
    }

    /// Removes an entry.
    pub fn remove(key: impl Into<Bytes>) -> Self {
        Self::new(key, Operation::Remove)
    }

    /// Writes what a registered function makes of the value.
    pub fn compute(key: impl Into<Bytes>, function: impl Into<String>, argument: impl Into<Bytes>) -> Self {
        let compute = Operation::Compute {
            function: function.into(),
            argument: argument.into(),
        };
        Self::new(key, compute)
    }

    /// Only a condition on another key.
    pub fn check(key: impl Into<Bytes>, condition: Condition) -> Self {
        Self::new(key, Operation::Check).when(condition)
    }

    /// Only if this holds.
    pub fn when(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
    }

    /// Only if there is no such entry.
    pub fn if_absent(self) -> Self {
        self.when(Condition::Absent)
    }

    /// Only if the entry has this version.
    pub fn if_version(self, version: Version) -> Self {
        self.when(Condition::Version(version))
    }

    /// Of a put: the entry expires so much agreed time from the write on.
    pub fn expiring(mut self, after: Duration) -> Self {
        if let Operation::Put { time_to_live_ms, .. } = &mut self.operation {
            *time_to_live_ms = Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
        self
    }

    /// Of a put: the writer's own flags.
    pub fn flagged(mut self, with: u16) -> Self {
        if let Operation::Put { flags, .. } = &mut self.operation {
            *flags = with;
        }
        self
    }
}

impl From<Write> for Command {
    fn from(write: Write) -> Self {
        Self { writes: vec![write] }
    }
}

impl<const N: usize> From<[Write; N]> for Command {
    fn from(writes: [Write; N]) -> Self {
        Self {
            writes: writes.into(),
        }
    }
}

/// What one write did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The entry before.
    pub old: Option<Entry>,
    /// The entry after. A check, and the removal of what is not there, leave it as it was.
    pub new: Option<Entry>,
}

/// Why a command was refused. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refused {
    /// A condition does not hold. Read the entry again and decide anew.
    Condition {
        /// Of this key.
        key: Bytes,
        /// What the command wants.
        wanted: Condition,
        /// The version of what is there, if there is anything.
        found: Option<Version>,
    },
    /// The map would outgrow its bound and evicts nothing, or the command alone is larger than the bound.
    Full {
        /// The bytes there would be.
        bytes: u64,
        /// The bound: [`Options::max_bytes`](super::Options::max_bytes).
        max_bytes: u64,
    },
    /// A key is longer than [`Options::max_key_bytes`](super::Options::max_key_bytes).
    KeyTooLong {
        /// Its bytes.
        bytes: u64,
        /// The bound.
        max_bytes: u32,
    },
    /// A value is longer than [`Options::max_value_bytes`](super::Options::max_value_bytes).
    ValueTooLong {
        /// Of this key.
        key: Bytes,
        /// Its bytes.
        bytes: u64,
        /// The bound.
        max_bytes: u32,
    },
    /// The command has more writes than [`MAX_WRITES`].
    TooManyWrites {
        /// So many.
        writes: u64,
    },
    /// The command writes a key twice.
    KeyTwice {
        /// This one.
        key: Bytes,
    },
    /// No function of this name is in the machine's definition.
    NoFunction {
        /// The name.
        name: String,
    },
    /// A registered function refused.
    Function {
        /// Its name.
        name: String,
        /// The key.
        key: Bytes,
        /// What the function says.
        reason: String,
    },
    /// All versions have been given (2⁶⁴ − 1). The map can be read, and nothing else.
    Exhausted,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition {
                key,
                wanted,
                found: version,
            } => write!(
                f,
                "{key:?}: the command wants {wanted}, there is {}",
                found(*version)
            ),
            Self::Full { bytes, max_bytes } => {
                write!(
                    f,
                    "the map would have {bytes} bytes, its bound max_bytes is {max_bytes}"
                )
            }
            Self::KeyTooLong { bytes, max_bytes } => {
                write!(
                    f,
                    "a key has {bytes} bytes, the bound max_key_bytes is {max_bytes}"
                )
            }
            Self::ValueTooLong {
                key,
                bytes,
                max_bytes,
            } => write!(
                f,
                "{key:?}: the value has {bytes} bytes, the bound max_value_bytes is {max_bytes}"
            ),
            Self::TooManyWrites { writes } => {
                write!(
                    f,
                    "the command has {writes} writes, a command has at most {MAX_WRITES}"
                )
            }
            Self::KeyTwice { key } => write!(f, "{key:?} stands twice in the command"),
            Self::NoFunction { name } => write!(f, "no function {name:?} is registered in this map"),
            Self::Function { name, key, reason } => write!(f, "{key:?}: function {name:?}: {reason}"),
            Self::Exhausted => f.write_str("all versions have been given: found the map anew"),
        }
    }
}

impl std::error::Error for Refused {}

/// A key changed. Versions rise from event to event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The key.
    pub key: Bytes,
    /// The version of the change: of the new entry, or of the entry's going.
    pub version: Version,
    /// The entry before, if there was one.
    pub old: Option<Entry>,
    /// How it is now.
    pub now: Now,
}

/// How a key is after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Now {
    /// It has this entry.
    Written(Entry),
    /// A command removed the entry.
    Removed,
    /// The entry's time to live is over.
    Expired,
    /// The entry made room for others.
    Evicted,
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key, version, now, ..
        } = self;
        write!(f, "{key:?}: {now} (version {version})")
    }
}

impl fmt::Display for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written(entry) => write!(f, "{} bytes", entry.value.len()),
            Self::Removed => f.write_str("removed"),
            Self::Expired => f.write_str("expired"),
            Self::Evicted => f.write_str("evicted"),
        }
    }
}

/// Which changes a subscriber wants. Every member is told of all changes; each filters its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Watch {
    /// All of them.
    All,
    /// Those of this key.
    Key(Bytes),
    /// Those of keys that begin so.
    Prefix(Bytes),
}

impl Watch {
    /// Whether changes of this key are wanted.
    pub fn matches(&self, key: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Key(wanted) => wanted == key,
            Self::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}
