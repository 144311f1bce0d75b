//! Flush: how a group gets from one view to the next, so that all members have delivered the same (R13–R18).
//!
//! ```text
//!  leader          FlushStart ─►      ◄─ FlushReport     FlushCut ─►        ◄─ Installed   FirstView ─► joiners
//!  every survivor             wedged: nothing more       pulls what it lacks,              Settled ─► all
//!                             is accepted in the view    delivers the cut, installs
//! ```
//! The survivor of lowest group rank leads. Every member of a primary node view knows the same list, so all
//! agree on the leader. When the leader dies, the next node view names the next one. The *ballot* is the node
//! view: a member ignores flush messages of another node view than its own, and everything unfinished begins
//! again under the new one. Within one node view a leader runs one flush at a time, each with a higher
//! target. The price: a node that joins the cluster during a flush makes the flush begin again.
//!
//! A flush begins when members depart, join or leave, or come back from a suspension.
//!
//! # What holds
//! - From its report on, a member takes messages of the old view only as repairs up to the cut (R13).
//! - The leader reads *every* survivor. If one of them has installed the next view, that view is completed
//!   for all before anything else: its cut may have been delivered (R14). If none has, no member has
//!   delivered anything beyond the reports, and the leader is free.
//! - A member delivers the rest of the cut and installs the view in one step. So "installed" says both.
//! - The cut is, per sender, the longest prefix that any survivor holds, and the longest prefix of the order
//!   (R15). Where delivery passes gaps, the cut also has, of senders that departed, all messages behind the
//!   prefix that any survivor holds.
//! - Old messages, cut and view are kept until every survivor and joiner has installed: any member may have
//!   to supply them.
//! - A cut with safe messages is delivered only when every participant holds it: see [`safe`].
//! - A joiner gets its first view when every survivor has installed it (R12).
//! - If a member of its view is missing, a leader asks *every* node before it decides. The missing member may
//!   have led on to a view without this leader (which was removed while it was slow), and only joiners may be
//!   left of that view. A node in that view says so. Then the leader starts over instead of making a second
//!   group of the same name.
//! - A member that left answers for the view that it left with as long as it keeps it: it has delivered by
//!   that cut (R14).
//! - A node that is no member any more says whether it was removed, and why, or left in order (G7). The
//!   leader of that time may be dead before any other member heard of it. So the next view says the same of
//!   this node as its own application was told.
//! - A member that does not answer for [`crate::Profile::flush_stall`] is removed from the group and told
//!   (R18). A leader that does not answer is accused to the node layer.
//!
//! Whether all members have the same view is for the simulator to judge (`check/inside/rolls`), and whether a
//! flush ends (`check/inside/following`).
//!
//! # Which member dies when
//! | which | when | then |
//! |---|---|---|
//! | a survivor | before its report | the next node view restarts the flush without it |
//! | a survivor | after the cut | the same; a member that has installed says so: that view is completed first |
//! | the leader | before any cut | the next leader starts over |
//! | the leader | after some members installed | the next leader learns it from their reports, fetches the decision, completes it |
//! | the leader | after it removed a member, before any cut | the removed member says so to the next leader, whose view lists it as crashed, with that cause |
//! | the leader | after a member left by its cut, before any other had it | that member holds the view for `flush_stall`, and the view is then completed; later it says that it left, and the next view lists it so |
//! | the leader | after a joiner got its view | all survivors have it; the next leader gives it to the other joiners |
//! | the leader, and all that hold the cut | after they removed a survivor that does not hear of it, and told the joiners | no member has what the survivor lacks: when it leads it starts over, as if it had been told |
//! | all old members | after some joiners got the view, and not the most senior of these | the other joiners count on that one to lead; it asks them to be let in, and they have the view that admitted it |
//! | a joiner | before its view | it is in the view, and the next flush removes it |
//! | all old members | after joiners got the view | the joiners know the decision and go on as its members |

mod asked;
mod cut;
mod install;
mod leader;
mod member;
mod requests;
mod safe;
pub(crate) mod state;
mod verdict;

pub(crate) use self::cut::cut_of;
pub(crate) use self::state::{CatchUp, Collect, Confirm, Flow, Holding, Lead, MAX_K, Promise, Retained};
