//! Where others may be.

pub(crate) mod hints;
pub(crate) mod left_behind;
pub(crate) mod refusals;
pub(crate) mod withdrawn;
