//! What a member would change in its view: nodes that come, and nodes that go.
//!
//! - [`wants`]: the change that the coordinator would propose;
//! - [`joiners`]: nodes that ask to be admitted, and which of them are there;
//! - [`leaving`]: how far this node is with leaving.
//!
//! `wants` has no state. It is given what this node knows.

pub(crate) mod joiners;
pub(crate) mod leaving;
pub(crate) mod wants;
