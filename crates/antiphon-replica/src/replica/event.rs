//! What a replica tells its owner, and why it refuses calls.

use std::fmt;

use antiphon_core::wire::Incarnation;
use bytes::Bytes;

use crate::At;

/// The number of a write or read of this member, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// When a write is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// When this member has applied it.
    Here,
    /// When all members have applied it that had the state when it was delivered, except those that are gone
    /// or diverged since. A member that is still receiving the state is not waited for: it gets the command
    /// with the state or after it.
    All,
}

/// For the layer below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this to the group, in its total order.
    Send(Bytes),
    /// Tell this to one member.
    Tell {
        /// To which.
        to: Incarnation,
        /// What.
        payload: Bytes,
    },
    /// Leave the group. Nothing follows.
    Leave {
        /// Why; it starts with a word: `left`, `state-overrun`, `state-refused`, `state-damaged`,
        /// `state-superseded`, `spill-failed`.
        reason: String,
    },
}

/// What the owner is to do with its file of what this member holds, from
/// [`Replica::poll_spill`](super::Replica::poll_spill). The file is this replica's alone, empty at first, and
/// no longer than [`Config::spill_bytes`](super::Config::spill_bytes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spill {
    /// Write this.
    Write {
        /// From this byte of the file on.
        at: u64,
        /// What.
        bytes: Bytes,
    },
    /// Read what was written there.
    Read {
        /// From this byte of the file on.
        at: u64,
        /// So many bytes.
        length: usize,
    },
}

/// Which [`Spill`] is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpillId(pub(super) u64);

/// What happened. `R` is the machine's reply, `E` its event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<R, E> {
    /// A write was answered.
    Written {
        /// Which.
        request: RequestId,
        /// Where it was applied, and what it gave.
        outcome: Result<(At, R), Failure>,
    },
    /// A read was answered: the state that [`Replica::read`](super::Replica::read) gives now has all that was
    /// answered anywhere before it was asked for.
    Readable {
        /// Which.
        request: RequestId,
        /// Whether that is so.
        outcome: Result<(), Failure>,
    },
    /// The machine says this.
    Machine {
        /// Where.
        at: At,
        /// Whether this member serves. If not, it catches up, and nobody is to be shown this: it may have
        /// seen greater numbers of another state. By [`Event::Synced`] this state has risen above them.
        serving: bool,
        /// What.
        event: E,
    },
    /// Who is a member, and which members have the state.
    ///
    /// A joiner tells it as soon as it is known there: before it serves, at the latest with the first of the
    /// state. A member whose state differed is then among those that have it until it says so itself; and
    /// while a joiner applies what it held, its next word waits until that is done.
    Members {
        /// By seniority.
        members: Vec<(Incarnation, bool)>,
    },
    /// This member has the state, and serves.
    Synced,
    /// So much of the state is here.
    Progress {
        /// Bytes that are here.
        bytes: u64,
        /// Bytes of the state: about, until all are here.
        total: u64,
        /// The member that gives it.
        source: Incarnation,
    },
    /// This member's state differs from that of the others after so many commands: it serves no more.
    Diverged {
        /// Which member.
        member: Incarnation,
        /// Commands applied.
        commands: u64,
    },
    /// While this member waited for the state, more was delivered than it may hold. It leaves.
    Overrun {
        /// Bytes held in memory.
        held: usize,
        /// [`Config::held_bytes`](super::Config::held_bytes).
        limit: usize,
        /// Bytes held in the file.
        spilled: u64,
        /// [`Config::spill_bytes`](super::Config::spill_bytes).
        spill_limit: u64,
    },
    /// The file of what this member holds cannot be written or read. This member leaves.
    SpillFailed {
        /// What the owner says.
        reason: String,
    },
    /// No member has the state. A member that had just received all of it may still bring it back: then
    /// `Synced` follows.
    StateLost,
    /// The member that was to give the state to this one cannot write it: this member leaves. Or this member
    /// cannot write it for a joiner: then it goes on.
    SourceFailed {
        /// Which member.
        source: Incarnation,
        /// What its machine says.
        reason: String,
    },
    /// The state that came could not be taken. This member leaves.
    RestoreFailed {
        /// What was expected, what came, from which member.
        reason: String,
    },
    /// The group replicates something else. This member leaves.
    Refused {
        /// Both definitions.
        reason: String,
    },
    /// This member's state is void: it was removed, or is back as a fresh incarnation.
    Void {
        /// Why.
        cause: String,
    },
    /// A message of a member made no sense and was ignored.
    Malformed {
        /// Whose.
        from: Incarnation,
        /// What was expected.
        what: &'static str,
    },
}

/// Why a request has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// It was not sent: nothing happened.
    NotSent,
    /// It was sent and may have been applied, or may still be.
    Unknown,
    /// The members could not read the command, and ignored it: its encoding cannot be decoded.
    NotApplied,
}

/// Why a call was refused. Nothing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// This member does not have the state yet; wait for [`Event::Synced`].
    NotSynced,
    /// No member has the state.
    Lost,
    /// This member's state differs from the others': leave, find out why, and join again.
    Diverged,
    /// This member is leaving, or has left.
    Leaving,
    /// The primary is lost, or this node's lease.
    NotPrimary,
    /// Too many requests or bytes wait; try again when one is answered.
    Full,
    /// The command is longer than [`Config::max_command_bytes`](super::Config::max_command_bytes).
    TooLarge,
    /// The command cannot be encoded.
    Unencodable,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotSynced => "this member does not have the state yet; wait until it is synced",
            Refusal::Lost => "no member of the group has the state any more",
            Refusal::Diverged => "this member's state differs from the others'; leave and join again",
            Refusal::Leaving => "this member is leaving the group, or has left it",
            Refusal::NotPrimary => "the primary is lost, or this node's lease; wait until it is back",
            Refusal::Full => "too many requests wait for their answers; try again when one is answered",
            Refusal::TooLarge => "the command is longer than max_command_bytes",
            Refusal::Unencodable => "the command cannot be encoded",
        })
    }
}

impl std::error::Error for Refusal {}
