//! A deterministic simulation of Antiphon clusters: virtual time, network, kernels and faults around the
//! shipping protocol core, and checkers for its guarantees.
//!
//! - [`plan`]: what shall happen, drawn from a seed;
//! - [`machine`]: what applications replicate;
//! - [`world`]: makes it happen to real [`antiphon_core::Node`]s;
//! - [`mod@trace`]: what the applications saw;
//! - [`mod@check`]: whether that is what GUARANTEES.md promises;
//! - [`mod@run`]: one seed from start to verdict; [`campaign`]: many of them on all cores;
//! - [`shrink`]: fewer faults that still fail; [`timeline`]: a run to read; [`planted`]: do the checkers
//!   bite?
//! - [`explore`]: every run of worlds that are small enough;
//! - [`Sim`]: a cluster in a few words, for tests.
//!
//! One seed decides everything. `antiphon-sim run --seeds 500` is the everyday use.
#![forbid(unsafe_code)]

pub mod agenda;
mod blocked;
pub mod campaign;
pub mod check;
pub mod explore;
pub mod machine;
pub mod plan;
#[cfg(feature = "planted")]
pub mod planted;
mod random;
pub mod run;
pub mod scale;
#[cfg(test)]
mod scenarios;
pub mod shrink;
mod sim;
pub mod timeline;
pub mod trace;
pub mod world;

pub use plan::{Action, Plan, Who};
pub use random::Random;
pub use sim::Sim;
