//! Replicated state machines over ordered groups, as state machines themselves: no I/O, no clock.
//!
//! ```text
//!  application ── command ──► Replica ── ordered message ──► group ──► Replica ── Machine::apply ──► reply, events
//!                               │  ▲                                      at every member, at the same point
//!                               └──┘ direct messages: the state for a joiner, what has been applied
//! ```
//! A [`Machine`] is what is replicated: a map, a table of locks, the user's own type. It is told commands,
//! the members of the group and the agreed time, all in the group's total order, and does the same
//! everywhere. What makes it a replica (commands in order, replies to their callers, the state for joiners,
//! agreed time, comparison of digests) is the same for all machines.
//!
//! [`calls`] are the other way to work with members: requests to one, several or all of them, with answers.
#![forbid(unsafe_code)]

/// Whether a planted mistake is to be made here. Always false in a product.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($mistake:ident) => {
        antiphon_core::planted::is(antiphon_core::planted::Bug::$mistake)
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($mistake:ident) => {
        false
    };
}

pub mod calls;
pub mod clients;
pub mod counters;
mod digest;
mod format;
pub mod locks;
mod machine;
pub mod map;
mod ordered;
mod panics;
mod replica;
mod serials;
mod snapshot;
mod state;
mod version;

pub use machine::{AgreedTime, At, Change, Machine, RestoreError};
pub use panics::unpanicked;
pub use replica::{
    Ack, Config, Event, Failure, Output, Pieces, Reading, Refusal, Replica, RequestId, Spill, SpillId,
    Standing,
};
pub use snapshot::{FromReader, Snapshot, SnapshotError};
pub use version::{Condition, Version};
