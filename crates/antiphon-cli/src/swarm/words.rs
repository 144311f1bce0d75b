//! What a conductor and its crowds say to each other: JSON, one object a line. Both ends are this program.

use std::net::SocketAddr;

use antiphon::{EngineKind, Profile, Transport};
use serde::{Deserialize, Serialize};

/// The first line to a crowd: the nodes it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Setup {
    pub(super) cluster: String,
    /// Where its nodes that are seeds listen; all others take any free port.
    pub(super) own_seeds: Vec<SocketAddr>,
    pub(super) seeds: Vec<SocketAddr>,
    pub(super) nodes: usize,
    /// Of its first node; names are numbers.
    pub(super) first: usize,
    /// Nodes of the whole swarm.
    pub(super) all: usize,
    pub(super) membership: EngineKind,
    pub(super) profile: Profile,
    pub(super) transport: Transport,
    pub(super) key: Option<[u8; 32]>,
    pub(super) group: bool,
    pub(super) threads: usize,
    pub(super) die_with: u32,
}

/// The lines to a crowd after that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub(super) enum Ask {
    /// Start all nodes at once.
    Start,
    /// From here on a complete view has this many members; [`Say::Complete`] and [`Say::Seen`] follow.
    Expect { members: usize },
    /// Tell what it costs; [`Say::Counted`] answers.
    Count,
    /// One more node joins; [`Say::Joined`] answers.
    Join,
    /// That node leaves; [`Say::Parted`] answers.
    Part,
    /// All leave; [`Say::Left`] answers, and the process ends.
    Leave,
}

/// The lines of a crowd.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(super) enum Say {
    /// Ready to start.
    Ready,
    /// Whether every node here is in a complete view now. Said at once when it changes.
    Complete { complete: bool },
    /// What was seen so far, a few times a second while it changes.
    Seen { seen: Seen },
    /// What the crowd costs.
    Counted { counts: Counts },
    /// The node that joined is in a complete view, this long after its start.
    Joined { ms: f64 },
    /// It has left.
    Parted,
    /// All have left.
    Left,
    /// It cannot go on.
    Failed { reason: String },
}

/// What the nodes of a crowd reported so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Nodes in a complete view.
    pub(super) complete: usize,
    /// Members of the largest view that any is in now, and of the smallest.
    pub(super) largest: usize,
    pub(super) smallest: usize,
    /// The different numbers of members that any node reported, in the order in which they were first seen.
    pub(super) sizes: Vec<usize>,
    /// The different primary views.
    pub(super) views: Vec<u32>,
    /// Members that were removed although they had not left.
    pub(super) removed: Vec<String>,
    /// Open files beyond those of the process before its first node, the most so far.
    pub(super) most_descriptors: u64,
    /// What the cluster refused nodes for, the last of it.
    pub(super) refused: Option<String>,
}

/// What a crowd costs, beyond what the process cost before its first node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) descriptors: u64,
    /// Connections of the node that has most, both directions.
    pub(super) most_connections: u64,
    pub(super) memory_bytes: u64,
    pub(super) cpu_s: f64,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
    pub(super) frames_sent: u64,
    pub(super) frames_dropped: u64,
}
