//! A partition: members of one view do not hear each other, and no longer a quorum of it.
//!
//! ```text
//!   a component without a quorum ──► nonprimary: they agree on a view of themselves
//!                │ (policy any)
//!                └─────────────────► split: they go on as a lineage of their own
//!   two lineages hear each other ──► merge: the junior one gives way
//! ```
//! - [`nonprimary`]: the attempts of a component to agree, and the view that it agreed on; [`proposal`]: what
//!   a member proposes to the others, and whether it fits the view installed here;
//! - [`split`]: a part of a view as a lineage of its own, by agreement or by an operator's word;
//! - [`merge`]: what a member has asked and promised of other lineages.
//!
//! A type here is given what its member knows, and returns what the member should do. Only `nonprimary` sends
//! its own questions.

pub(crate) mod merge;
pub(crate) mod nonprimary;
pub(crate) mod proposal;
pub(crate) mod split;
