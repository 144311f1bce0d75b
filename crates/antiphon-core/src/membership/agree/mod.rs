//! How the next primary view is decided.
//!
//! ```text
//!   proposed change ──► engine ──► proposer ──► slot ──► decided
//!                         │          ▲
//!                         └── fast ──┘    the cut engine: first a ballot without a leader, then the proposer
//!   lifelines: each vote is there before it is anywhere else (R2)
//! ```
//! **Who proposes.** The most senior member that is reachable and that no majority doubts: `seat` says which
//! member that is, after each input. Only that member hands a [`interface::ProposedChange`] to its engine.
//!
//! **When the proposer dies after some accepted.** The next senior proposes in a higher ballot. Phase 1 asks
//! a quorum of the old view, and each promise shows what its voter has accepted. If a value may have been
//! decided, that value is proposed again, unchanged ([`slot`]). A dead voter counts by its last vote, if a
//! lifeline or a witness proves the death ([`lifelines`]). A voter that is only silent counts as one that may
//! have voted, so a slot can wait for it.
//!
//! - [`proofs`]: the proofs of death that are known, and which members lack them.
//! - [`engine`]: one of the two for the slot after one view; it tells them nothing but [`interface`].
//! - [`proposer`]: one ballot after the other; [`compose`]: the view that a change makes.
//! - [`fast`]: the cut engine's ballot without a leader.
//!
//! This room hears nobody and sends nothing: what it wants done is an [`interface::EngineEffect`].

pub(crate) mod compose;
pub(crate) mod engine;
pub(crate) mod fast;
pub(crate) mod interface;
pub(crate) mod lifelines;
pub(crate) mod proofs;
pub(crate) mod proposer;
pub mod slot;
