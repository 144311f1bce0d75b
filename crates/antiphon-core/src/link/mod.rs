//! Control links.
