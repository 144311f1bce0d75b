//! The events of a replica for its readers: bounded, and a reader that lags is told so.

use std::fmt;
use std::sync::Arc;

use super::Transfer;
use super::news::{Read, Reader};
use antiphon_core::wire::Member;
use antiphon_replica::At;

/// What happened to a replica. `E` is the machine's event.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ReplicaEvent<E> {
    /// The machine says this: at every member that serves, at the same point of the order.
    Machine {
        /// Where.
        at: At,
        /// What.
        event: E,
    },
    /// Members of the group, and whether each has the state.
    Members(Vec<ReplicaMember>),
    /// So much of the state is here.
    Progress(Transfer),
    /// This member has the state, and serves. What was applied before is in it, and was not told.
    Synced,
    /// This node's lease is lost, or is back; without it writes and reads are refused. It may be back without
    /// a word that it was lost: a node that is a majority by itself does not notice that its lease was over
    /// while it stood still.
    Lease {
        /// Whether it is held.
        held: bool,
    },
    /// A member's state differs from the others': it serves no more.
    Diverged {
        /// Its name.
        member: String,
        /// Whether it is this one.
        here: bool,
        /// After so many commands.
        commands: u64,
    },
    /// No member has the state.
    StateLost,
    /// This member was removed, and its state is void; [`ReplicaEvent::Synced`] follows when it has it again.
    Void {
        /// Why.
        cause: String,
    },
    /// A member sent something that makes no sense, and it was ignored.
    Malformed {
        /// Its name.
        member: String,
        /// What was expected.
        expected: &'static str,
    },
    /// This reader was too slow: so many events were skipped. Read the state.
    Lagged {
        /// Events skipped.
        missed: u64,
    },
}

impl<E: fmt::Display> fmt::Display for ReplicaEvent<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { at, event } => write!(f, "{at}: {event}"),
            Self::Members(members) => {
                f.write_str("members:")?;
                members.iter().try_for_each(|member| write!(f, " {member}"))
            }
            Self::Progress(transfer) => transfer.fmt(f),
            Self::Synced => f.write_str("this member has the state"),
            Self::Lease { held: true } => f.write_str("this node's lease is back"),
            Self::Lease { held: false } => f.write_str("this node's lease is lost"),
            Self::Diverged { member, commands, .. } => {
                write!(
                    f,
                    "the state of {member} differs from the others' after {commands} commands"
                )
            }
            Self::StateLost => f.write_str("no member has the state"),
            Self::Void { cause } => write!(f, "the state of this member is void: {cause}"),
            Self::Malformed { member, expected } => write!(f, "{member} sent what is no {expected}"),
            Self::Lagged { missed } => write!(f, "the reader was too slow: {missed} events were skipped"),
        }
    }
}

/// A member of a group that replicates something.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ReplicaMember {
    /// The member.
    pub member: Arc<Member>,
    /// Whether it has the state.
    pub synced: bool,
}

impl fmt::Display for ReplicaMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.member.name)?;
        if self.synced {
            Ok(())
        } else {
            f.write_str(" (not synced)")
        }
    }
}

/// A reader of a replica's events, from [`Replicated::events`](super::Replicated::events). It keeps neither
/// the node nor the membership alive. 1024 events wait for it, of 16 MiB together.
#[derive(Debug)]
pub struct ReplicaEvents<E>(pub(super) Reader<ReplicaEvent<E>>);

impl<E: Clone> ReplicaEvents<E> {
    /// The next event; `None` once this member has left, for whatever reason.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<ReplicaEvent<E>> {
        Some(match self.0.next().await? {
            Read::Event(event) => event,
            Read::Missed(missed) => ReplicaEvent::Lagged { missed },
        })
    }
}
