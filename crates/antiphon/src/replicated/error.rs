//! Why a member has no state, a write no reply, a read no answer.

use std::fmt;

use antiphon_replica::Refusal;

use crate::Error;

/// Why this member does not have the replicated state, or will not have it any more.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ReplicaError {
    /// The node could not join the group: [`Error::GroupRefused`] if the group's options differ,
    /// [`Error::AlreadyJoined`], [`Error::StillLeaving`], [`Error::Config`], [`Error::Closed`].
    Cluster(Error),
    /// The group replicates something else, or defines it differently. Give all members the same machine,
    /// options and versions, or another name.
    Refused {
        /// Both definitions.
        reason: String,
    },
    /// More was written while the state was on its way than this member may hold in memory and in its file,
    /// or it came faster than the disk took it. Raise `held_bytes` or `spill_bytes`, or join when less is
    /// written.
    Overrun {
        /// Bytes held in memory.
        held: usize,
        /// The limit.
        limit: usize,
        /// Bytes held in the file.
        spilled: u64,
        /// The limit.
        spill_limit: u64,
    },
    /// While the state was on its way, the file of what was written meanwhile could not be written or read.
    /// Nothing of it was applied. Make room in its directory, or name another one (`spill_dir`), and join
    /// again.
    SpillFailed {
        /// The directory, and what the system says.
        reason: String,
    },
    /// The member that was to give the state could not read it. Look at that member for what is wrong with
    /// its state, and join again: then another member may give it.
    SourceFailed {
        /// Its name.
        source: String,
        /// What its machine's snapshot says.
        reason: String,
    },
    /// The state that came could not be taken. Join again; if it happens again, the machine's `restore` does
    /// not take what its `snapshot` gives.
    RestoreFailed {
        /// What was expected, what came, from which member.
        reason: String,
    },
    /// All members that had the state are gone. Let all leave and join again, which founds it anew, or set
    /// `found_anew`.
    StateLost,
    /// This member's state differed from the others', so it serves no more. Leave, look for what is not
    /// deterministic in the machine, and join again.
    Diverged,
    /// The group was left because another copy of the state took the place of this one. Join again.
    Superseded {
        /// What happened.
        reason: String,
    },
    /// The task that reads the group for this member has panicked, in the machine's code most likely: its
    /// text is on standard error. This member has left the group, and its node goes on. Mend the machine, and
    /// join again.
    Panicked,
    /// This member has left.
    Left,
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(error) => error.fmt(f),
            // It begins with what the group replicates.
            Self::Refused { reason } => write!(
                f,
                "{reason}; give all members the same definition, or another name"
            ),
            Self::Overrun {
                held,
                limit,
                spilled,
                spill_limit,
            } => write!(
                f,
                "too much was written while the state was on its way: {held} bytes are held in memory (held_bytes is {limit}), {spilled} in the file (spill_bytes is {spill_limit}); raise one of them, or join when less is written"
            ),
            Self::SpillFailed { reason } => write!(
                f,
                "what was written while the state was on its way could not be kept: {reason}; make room there or name another directory with spill_dir, and join again"
            ),
            Self::SourceFailed { source, reason } => {
                write!(f, "{source} could not read its state for this member: {reason}; join again")
            }
            Self::RestoreFailed { reason } => write!(f, "the state could not be taken: {reason}; join again"),
            Self::StateLost => f.write_str(
                "all members that had the state are gone; let all leave and join again, or set found_anew",
            ),
            Self::Diverged => f.write_str(
                "this member's state differs from the others', so the machine is not deterministic; leave and join again",
            ),
            Self::Superseded { reason } => write!(f, "left the group: {reason}; join again"),
            Self::Panicked => f.write_str(
                "this member's task has panicked, most likely in the machine's code, and has left the group; mend the machine, and join again",
            ),
            Self::Left => f.write_str("this member has left the group"),
        }
    }
}

impl std::error::Error for ReplicaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Cluster(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for ReplicaError {
    fn from(error: Error) -> Self {
        Self::Cluster(error)
    }
}

/// Why a write has no reply. [`may_have_happened`](Self::may_have_happened) says whether it is safe to write
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// It was not taken. Nothing happened.
    Refused(Refusal),
    /// The primary or this membership was lost before it was sent. Nothing happened.
    NotSent,
    /// It was sent before the primary or this membership was lost, or this node stopped: it may have
    /// happened, or may still. Read the state when this member serves again, or write it so that a second
    /// time does no harm.
    Unknown,
    /// The members could not decode the command. Nothing happened.
    NotApplied,
}

impl WriteError {
    /// Whether the command may have been applied, or may still be.
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Refused(_) | Self::NotSent | Self::NotApplied => false,
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "nothing was written: {refusal}"),
            Self::NotSent => f.write_str(
                "nothing was written: the primary or this membership was lost first; write again when it is back",
            ),
            Self::Unknown => f.write_str(
                "it may have been written, or may still be: the primary or this membership was lost after it was sent; read before you write again",
            ),
            Self::NotApplied => {
                f.write_str("nothing was written: the members could not decode the command; check its serde attributes")
            }
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// Why a read has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// This member does not serve.
    Refused(Refusal),
    /// The primary or this membership was lost while the read waited. Read again when it is back.
    Interrupted,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Interrupted => f.write_str(
                "the primary or this membership was lost while the read waited; read again when it is back",
            ),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Interrupted => None,
        }
    }
}

antiphon_core::wire::written_as_text!(
    ReplicaError,
    WriteError,
    ReadError,
    super::MapError,
    super::LockError,
    super::CountingError
);

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Refusal> for ReadError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
