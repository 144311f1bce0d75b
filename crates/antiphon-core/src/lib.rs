//! The protocols of Antiphon as a state machine without I/O.
//!
//! A [`Node`] is one incarnation after another of one member. It never reads a clock, a socket, a thread, the
//! environment or entropy: time comes in with every call as [`Time`], randomness as one seed at creation. The
//! same calls give the same outputs, byte for byte.
//!
//! # The contract
//!
//! Methods fall into four kinds:
//! - **inputs**, `handle_*`: a frame arrived, a path or lifeline changed, a deadline passed. Time never runs
//!   backwards.
//! - **commands** of the application: `join_group`, `send_block` (from its [`outbox`]), `consumed`,
//!   `tell`, `told_consumed`, `leave_group`, `leave`.
//! - **outputs**, `poll_*`: after a batch of inputs and commands (all that is ready, so that frames are
//!   full), drain [`Node::poll_output`] to the end and perform the outputs *in that order* (a vote is written
//!   to the lifelines before it leaves in a frame), then drain [`Node::poll_event`], then ask
//!   [`Node::poll_timeout`] when to call [`Node::handle_timeout`].
//! - **questions**, which change nothing: `view`, `links`, `why`, `inspect`.
#![forbid(unsafe_code)]

/// Whether a planted mistake is to be made here: `planted!(ReceiveAfterWedge)`, or any at all: `planted!()`.
/// Always false in a product.
#[cfg(feature = "planted")]
macro_rules! planted {
    () => {
        $crate::planted::any()
    };
    ($bug:ident) => {
        $crate::planted::is($crate::planted::Bug::$bug)
    };
}
#[cfg(not(feature = "planted"))]
macro_rules! planted {
    () => {
        false
    };
    ($bug:ident) => {
        false
    };
}

mod change;
mod channel;
mod config;
mod detector;
mod dissemination;
mod enquiry;
mod event;
mod flush;
mod group;
pub mod inspection;
mod locator;
mod membership;
mod names;
mod node;
mod order;
pub mod outbox;
mod output;
mod pace;
#[cfg(feature = "planted")]
pub mod planted;
mod random;
mod recovery;
mod relay;
mod replies;
mod route;
mod sound;
#[doc(hidden)]
pub mod text;
mod time;
mod trail;
pub mod witness;

pub use antiphon_wire as wire;
pub use change::{Departed, ViewChange};
pub use config::*;
pub use enquiry::{Enquirer, Told};
pub use event::*;
pub use group::MAX_GROUP_MEMBERS;
pub use group::direct::{MAX_TELL_BYTES, TELL_CREDIT_BYTES, TELL_OVERHEAD};
pub use group::memory::Memory;
pub use inspection::Inspection;
pub use locator::{Located, Locator, LocatorCounters, MAX_LOCATED};
pub use membership::contacts::hints::{Hints, MAX_HINTS, MAX_LOCATORS, Sources};
pub use names::NameError;
pub use node::{Counters, Node};
pub use output::*;
pub use recovery::{Abandoned, Recovery, RecoveryError};
pub use time::Time;
pub use trail::{BallotNote, BallotStep};

/// The group layer and the view slot alone, for exhaustive exploration (R26).
#[doc(hidden)]
pub mod explore {
    pub use crate::group::{Effect, Groups};
    pub use crate::membership::agree::slot;
}
