//! Addresses where nodes may be, and what is remembered of nodes that are no members, or that ask.
//!
//! - [`hints`]: addresses found while the node runs; [`left_behind`]: where members may live on (policy
//!   `any`);
//! - [`refusals`]: nodes that were refused, and why; [`withdrawn`]: nodes that left before their first view;
//! - [`pulls`]: which members are asked for views, and which nodes that ask for them are answered;
//! - [`told`]: nodes that were told something a moment ago.
//!
//! Each list has a bound; when it is full, it forgets the oldest. None of them sends anything: `seek`
//! and `seat` ask them for the next addresses, by turns.

pub(crate) mod hints;
pub(crate) mod left_behind;
pub(crate) mod pulls;
pub(crate) mod refusals;
pub(crate) mod told;
pub(crate) mod withdrawn;
