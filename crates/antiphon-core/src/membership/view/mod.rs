//! What is believed of a view, and the last ones.

pub(crate) mod check;
pub(crate) mod history;
