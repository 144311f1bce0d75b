//! What a member would change in its view: nodes that come, and nodes that go.
//!
//! - [`joiners`]: nodes that ask to be admitted, and which of them are there; [`leaving`]: this node's own
//!   wish to leave.
//!
//! Each type is state with its rules. `seat` calls them, and sends what they want sent.

pub(crate) mod joiners;
pub(crate) mod leaving;
