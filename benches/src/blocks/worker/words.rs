//! What a crew and its workers say to each other: JSON, one object a line. Both ends are this program.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::blocks::Figures;

/// Asked of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::blocks) enum Ask {
    /// Open a block, and say so when all members have it.
    Open { open: Open },
    /// Write to the map.
    Put { put: Put, time: Time },
    /// Read this member's copy of the map.
    Get { get: Get },
    /// Take and give back locks.
    Lock { lock: Lock, time: Time },
    /// Be the lock server.
    Serve { bind: SocketAddr },
    /// Take and give back locks of the lock server.
    LockAt {
        server: SocketAddr,
        rank: usize,
        lock: Lock,
        time: Time,
    },
    /// Wait for a lock, say when it is held, and hold it to the end.
    Hold { hold: Hold },
    /// Call other members.
    Mix { mix: Mix, time: Time },
    /// Get versions stamped on messages, or serve in that.
    Versions { pattern: Pattern, time: Time },
    /// Make the blob so large, when so many members have it.
    Fill { bytes: u64, members: usize },
    /// Write beside the blob.
    Write { pace: Pace, time: Time },
}

/// Said by a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::blocks) enum Say {
    /// The node is a member of the cluster.
    Here,
    /// The block is open, here and at all.
    Open,
    /// What came of a load.
    Done { figures: Figures },
    /// A lock is held.
    Held { held: Held },
    /// The worker ends.
    Failed { reason: String },
}

/// A block.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) enum Open {
    /// A map of integers to strings.
    Map { agreed: bool },
    /// A table of locks.
    Locks,
    /// Requests; `get` gives so many bytes.
    Calls { bytes: usize },
    /// A group for versions.
    Versions,
    /// A state of so many bytes; the figures say how long it took to get it.
    Blob { bytes: u64 },
}

/// Writes to the map.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) struct Put {
    /// How many tasks of this node write, each after the answer to its last write.
    pub(in crate::blocks) writers: usize,
    /// Of a value.
    pub(in crate::blocks) bytes: usize,
    /// How many keys there are.
    pub(in crate::blocks) keys: u64,
}

/// Reads of the map: keys one after the other.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) struct Get {
    pub(in crate::blocks) keys: u64,
    pub(in crate::blocks) bytes: usize,
    pub(in crate::blocks) gets: u64,
}

/// Locks, taken and given back.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) struct Lock {
    /// How many tasks of this node do so.
    pub(in crate::blocks) clients: usize,
    /// Whether all want the same one; otherwise each its own.
    pub(in crate::blocks) contended: bool,
}

/// A lock to hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::blocks) struct Hold {
    pub(in crate::blocks) name: String,
    /// Whether it is a leadership.
    pub(in crate::blocks) leads: bool,
}

/// It is held.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) struct Held {
    /// When, by the clock of this machine.
    pub(in crate::blocks) clock_us: u64,
}

/// Requests.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) struct Mix {
    /// How many tasks of this node call, each after the answer to its last call.
    pub(in crate::blocks) callers: usize,
    /// Of what is put.
    pub(in crate::blocks) bytes: usize,
    /// Without those that put.
    pub(in crate::blocks) gets_only: bool,
}

/// A way to get a version.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) struct Pattern {
    /// So many clients send.
    pub(in crate::blocks) clients: usize,
    pub(in crate::blocks) number: u8,
    pub(in crate::blocks) bytes: usize,
    /// How many messages of the client are under way at once.
    pub(in crate::blocks) in_flight: usize,
}

/// Writes at a rate, or as fast as they are answered.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::blocks) struct Pace {
    pub(in crate::blocks) bytes: usize,
    pub(in crate::blocks) per_second: Option<u32>,
}

/// How long a load runs before it counts, and while it does.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Time {
    pub(crate) warmup_ms: u64,
    pub(crate) measured_ms: u64,
}

impl Time {
    pub(crate) fn warmup(self) -> Duration {
        Duration::from_millis(self.warmup_ms)
    }

    pub(crate) fn measured(self) -> Duration {
        Duration::from_millis(self.measured_ms)
    }
}
