//! How the next primary view is decided.

pub(crate) mod compose;
pub(crate) mod engine;
pub(crate) mod fast;
pub(crate) mod interface;
pub(crate) mod lifelines;
pub(crate) mod proposer;
pub mod slot;
