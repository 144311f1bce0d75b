//! Which member hears which in a view, and how its members hear of each other.
//!
//! ```text
//!   rings ──► topology: mesh, or rings? ──► gossip       from neighbour to neighbour, of views on rings
//!     │            │
//!     │            └──► reachability                    of which members there is word
//!     └──► detection                                    which members enough of their observers have lost
//! ```
//! - [`topology`] answers the questions that depend on how members hear of each other, and says what else
//!   asks. A third way of monitoring is a variant there, with its state inside.
//! - [`rumour`]: which rumours are believed, and those that came early. [`values`]: the views that votes are
//!   about.
//! - [`report`]: what members said of themselves last. [`reconnect`]: members found beyond the rings.
//! - [`doubts`]: which members a majority doubts, and which one goes of two that do not hear each other.
//! - [`deaf`]: members that hear nobody, and are heard themselves.
//! - [`weighing`]: when all of that is weighed again.
//! - [`ranks`]: sets of members by seniority rank, as they travel.
//!
//! That a member is silent is for `detector` to say, outside of membership. This room votes on nothing.

pub(crate) mod deaf;
pub(crate) mod detection;
pub(crate) mod doubts;
pub(crate) mod gossip;
pub(crate) mod ranks;
pub(crate) mod reachability;
pub(crate) mod reconnect;
pub(crate) mod report;
pub(crate) mod rings;
pub(crate) mod rumour;
pub(crate) mod topology;
pub(crate) mod values;
pub(crate) mod weighing;
