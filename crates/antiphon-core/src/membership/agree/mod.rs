//! How the next primary view is decided.
//!
//! ```text
//!                        ┌── proposer: asks for votes, ballot after ballot ──┐
//!   proposed change ──► engine                                              slot ──► decided
//!                        └── fast ballot: members vote by themselves ────────┘
//!                            (only in the cut engine)
//!   lifelines: each vote is there before any frame carries it (R2)
//! ```
//! **Who proposes.** The most senior member that is reachable, that no majority doubts (on rings: that is not
//! about to be in the cut), and that its observers have not lost: `Seat::coordinator` says which member that
//! is; without any, it is this node itself. Only that member hands a [`interface::ProposedChange`] to its
//! engine, and its [`proposer`] makes a ballot of it. In the cut engine, members also vote without a
//! proposer: for the view without the members that are lost together ([`fast`]). That is round 0 of the same
//! slot, and it needs three quarters of all weight.
//!
//! **When the proposer dies after some accepted.** The next senior proposes in a higher ballot. Phase 1 asks
//! a quorum of the old view, and each promise shows what its voter has accepted, in the fast ballot too. If a
//! value may have been decided, that value is proposed again, unchanged ([`slot`]). Where nothing else is to
//! be changed, a vote that led to no view in its time is reason enough ([`lease`](crate::membership::lease)).
//! A dead voter counts by its last vote, if a lifeline or a witness proves the death ([`lifelines`]). A voter
//! that is only silent counts as one that may have voted, so a slot can wait for it.
//!
//! - [`proofs`]: the proofs of death that are known, and which members lack them.
//! - [`engine`]: the proposer and, in the cut engine, the fast ballot; `seat` tells it [`interface`] alone.
//! - [`proposer`]: one ballot after the other; [`compose`]: the view that a change makes.
//! - [`fast`]: the ballot without a leader; [`cut`]: the members that it removes, and when.
//!
//! This room hears nobody and sends nothing: what it wants done is an [`interface::EngineEffect`].

pub(crate) mod compose;
pub(crate) mod cut;
pub(crate) mod engine;
pub(crate) mod fast;
pub(crate) mod interface;
pub(crate) mod lifelines;
pub(crate) mod proofs;
pub(crate) mod proposer;
pub mod slot;
