//! Replicated state: a machine of your own, or one of those here, that all members of a group have a copy of
//! (feature `blocks`).
//!
//! ```text
//!   write, read, lock …                                            events, watch, guards
//!         │                                                                  ▲
//!         ▼                    one lock                                      │
//!   handle ──► Shared { Replica<M>, requests that wait } ◄── task ── Group::next_batch, timers, lease
//!                     │                                                      ▲
//!                     └── try_send, try_tell ──► group ──── in one order ────┘
//! ```
//! | what | for |
//! |---|---|
//! | [`Replicated`] | a machine of your own: [`Machine`] |
//! | [`Map`] | keys to values, with versions, conditions, time to live, watches |
//! | [`Locks`] | locks, semaphores, leaders, with fencing tokens |
//! | [`Counters`] | counters, ids that are unique in the cluster |
//!
//! # How it works
//! The [`Replica`](antiphon_replica::Replica) is a state machine without I/O, behind a lock. A caller enters
//! its request under the lock, and in the same step hands what is ready to the group; the group bundles the
//! messages of many callers. One task reads the group and puts delivered events into the replica, up to 256
//! under one lock. Messages for which the group has no room stay in the replica, and the task offers them
//! again when there is room. No lock is held across an await.
//!
//! For a joiner the task has the state read piece by piece, on a thread for blocking work. Under the lock it
//! only takes a snapshot and hands over what was read. So neither a long state nor a snapshot that waits for
//! a disk holds up a request.
//!
//! All ordered messages are safe (G24 to G27): a member that is about to be cut off delivers only messages
//! that the others deliver too, at the same place. Without this a lock could be granted twice with one token:
//! first by a sequencer to itself, behind a partition that it has not noticed, then by the others.
//!
//! # When a member may act
//! A member writes and reads while it has the state, is in the group's primary view and believes in that
//! view. Each call asks the clock whether the node's lease is over, so a process that was stopped refuses its
//! very first read. A message goes to the group only in the name of the member that the caller knows: if this
//! node was removed and has come back, and the task has not read that yet, nothing of the former member is
//! sent.
//!
//! # What dies when
//! | what | when | then |
//! |---|---|---|
//! | the caller's future | before its first poll | nothing happened |
//! | the caller's future | later | the command happens all the same; a lock that is granted is given back |
//! | the task, with its node | any time | all waiting callers are told [`WriteError::Unknown`] or the like; guards are lost |
//! | this node's lease | any time | requests are refused, guards are lost; what waits is answered when it is back, or at the removal |
//! | this membership | any time | the state is void; it comes back by itself, guards do not |
//! | the last handle | any time | the group is left in order |

/// Replicated counters, as a machine.
pub mod counters {
    pub use antiphon_replica::counters::*;
}
/// Replicated locks, as a machine.
pub mod locks {
    pub use antiphon_replica::locks::*;
}
/// A replicated map of bytes, as a machine.
pub mod map {
    pub use antiphon_replica::map::*;
}

mod claims;
mod counting;
mod error;
mod events;
mod handle;
mod locking;
mod mapping;
mod news;
mod shared;
mod spill;
mod status;
mod task;
mod watch;

pub use antiphon_replica::{
    AgreedTime, At, Change, Condition, Config, FromReader, Machine, Refusal, RestoreError, Snapshot,
    SnapshotError, Standing, Version,
};

pub use counting::{Counters, CountersBuilder, CountingError, Ids};
pub use error::{ReadError, ReplicaError, WriteError};
pub use events::{ReplicaEvent, ReplicaEvents, ReplicaMember};
pub use handle::{Replicated, ReplicatedBuilder, Writing};
pub use locking::{Guard, Leadership, LockError, Locks, LocksBuilder, Loss};
pub use mapping::{Batch, Item, Map, MapBuilder, MapError, Put};
pub use status::{ReplicaStatus, ReplicaStatusWatch, Transfer};
pub use watch::{Gone, WatchEvent, Watching};

/// A machine that a handle can be made of: what [`Machine`] says, with types that may go from task to task.
/// Implemented by itself.
pub trait Replicable:
    Machine<Command: Send + 'static, Reply: Send + 'static, Event: Clone + Send + 'static> + Send + 'static
{
}

impl<M> Replicable for M
where
    M: Machine + Send + 'static,
    M::Command: Send + 'static,
    M::Reply: Send + 'static,
    M::Event: Clone + Send + 'static,
{
}
