//! What a member would change in its view: nodes that come, and nodes that go.
//!
//! - [`wants`]: the change that the coordinator would propose; [`pairs`]: which member goes where two do not
//!   hear each other;
//! - [`joiners`]: nodes that ask to be admitted, and which of them are there;
//! - [`leaving`]: how far this node is with leaving.
//!
//! `wants` and `pairs` have no state. They are given what this node knows.

pub(crate) mod joiners;
pub(crate) mod leaving;
mod pairs;
pub(crate) mod wants;
