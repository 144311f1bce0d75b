//! Versions of what a map or a table of counters holds, and conditions on them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of one entry. Each change of a machine's state takes the next one, so that versions order all
/// changes of the machine, whatever they change, also over a cluster that is founded anew (see
/// [`At::founded`](crate::At)). The upper 42 bits say when the state was founded, the lower ones count. JSON
/// numbers of some languages hold 53 bits only: carry a version as text there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What must hold for a change to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// There is no such entry.
    Absent,
    /// There is such an entry.
    Present,
    /// There is such an entry, and this is its version.
    Version(Version),
}

impl Condition {
    /// Whether it holds where the entry has this version, or is not there.
    pub fn holds(self, found: Option<Version>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => found.is_none(),
            Self::Present => found.is_some(),
            Self::Version(version) => found == Some(version),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("anything"),
            Self::Absent => f.write_str("no entry"),
            Self::Present => f.write_str("an entry"),
            Self::Version(version) => write!(f, "version {version}"),
        }
    }
}

/// What was found, for an error.
pub(crate) fn found(version: Option<Version>) -> String {
    version.map_or_else(|| "no entry".to_owned(), |version| format!("version {version}"))
}
