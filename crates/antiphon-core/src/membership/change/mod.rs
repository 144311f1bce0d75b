//! What is about to change, and what a member has promised about it.
//!
//! - [`joiners`]: nodes that ask to be admitted, and which of them are there; [`leaving`]: this node's own
//!   wish to leave;
//! - [`nonprimary`]: the attempts of a component without a quorum to agree on its members;
//! - [`parts`], [`merging`]: a component goes on as a lineage of its own, and lineages meet (policy `any`).
//!
//! Each type is state with its rules. `seat` calls them, and sends what they want sent.

pub(crate) mod joiners;
pub(crate) mod leaving;
pub(crate) mod merging;
pub(crate) mod nonprimary;
pub(crate) mod parts;
