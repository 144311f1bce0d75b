//! What is about to change.

pub(crate) mod joiners;
pub(crate) mod leaving;
pub(crate) mod merging;
pub(crate) mod nonprimary;
pub(crate) mod parts;
