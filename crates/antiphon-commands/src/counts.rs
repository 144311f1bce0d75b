//! How many commands there were, by verb, peer and outcome.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use antiphon_api::blocks::{Code, Ran};
use serde::Serialize;

/// The most rows. What comes beyond them is counted by its outcome alone.
const MAX_ROWS: usize = 8192;
/// The verb of a command that no list knows, and the peer of one that does not say so credibly.
const UNKNOWN: &str = "(unknown)";

/// Which side of a command a node was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It asked.
    Asked,
    /// It was asked.
    Served,
}

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Counted {
    /// It was done.
    Done,
    /// It is on its way, and no reply is wanted.
    Sent,
    /// What carries it out said that it failed, or died.
    Failed,
    /// A list or a bound forbids it.
    Refused,
    /// The peer, what carries it out, or a place for it is not there.
    Unavailable,
    /// Its time was over.
    Late,
    /// Nobody can say.
    Unknown,
    /// The signature, the cluster, the target or, by UDP, the sender's address is not right or not known.
    Forged,
    /// It had come before.
    Replayed,
}

impl Side {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Side::Asked => "asked",
            Side::Served => "served",
        }
    }
}

impl Counted {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Counted::Done => "done",
            Counted::Sent => "sent",
            Counted::Failed => "failed",
            Counted::Refused => "refused",
            Counted::Unavailable => "unavailable",
            Counted::Late => "late",
            Counted::Unknown => "unknown",
            Counted::Forged => "forged",
            Counted::Replayed => "replayed",
        }
    }

    /// What a failure counts as.
    pub(crate) fn of(code: Code) -> Self {
        match code {
            Code::Refused => Counted::Refused,
            Code::Unavailable => Counted::Unavailable,
            Code::Timeout => Counted::Late,
            Code::Unknown => Counted::Unknown,
            _ => Counted::Failed,
        }
    }
}

/// One line of the counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Which side this node was.
    pub side: Side,
    /// The other node.
    pub peer: String,
    /// What was asked.
    pub verb: String,
    /// What came of it.
    pub result: Counted,
    /// How often.
    pub count: u64,
}

type Key = (Side, String, String, Counted);

/// The counts of a node since its start.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<BTreeMap<Key, u64>>);

impl Counts {
    pub(crate) fn count(&self, side: Side, peer: Option<&str>, verb: Option<&str>, result: Counted) {
        let mut rows = self.rows();
        let named = |name: Option<&str>| name.unwrap_or(UNKNOWN).to_owned();
        let mut key = (side, named(peer), named(verb), result);
        if rows.len() >= MAX_ROWS && !rows.contains_key(&key) {
            key = (side, UNKNOWN.to_owned(), UNKNOWN.to_owned(), result);
        }
        *rows.entry(key).or_default() += 1;
    }

    pub(crate) fn all(&self) -> Vec<Row> {
        let row = |((side, peer, verb, result), count): (&Key, &u64)| Row {
            side: *side,
            peer: peer.clone(),
            verb: verb.clone(),
            result: *result,
            count: *count,
        };
        self.rows().iter().map(row).collect()
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<Key, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said of something that certainly did not happen, or of which nobody can say.
pub(crate) fn failure(code: Code, ran: Ran, reason: impl Into<String>) -> antiphon_api::blocks::Failure {
    antiphon_api::blocks::Failure {
        ran,
        ..antiphon_api::blocks::Failure::nothing_done(code, reason)
    }
}
