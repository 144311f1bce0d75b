//! Flush: how a group gets from one view to the next with everyone having delivered the same (R13–R18).
//!
//! ```text
//!  leader          FlushStart ─►      ◄─ FlushReport     FlushCut ─►        ◄─ Installed   FirstView ─► joiners
//!  every survivor             wedged: nothing more       pulls what it lacks,              Settled ─► all
//!                             is accepted in the view    delivers the cut, installs
//! ```
//! The survivor of lowest group rank leads. Every member of a primary node view knows the same list, so no
//! one disputes who that is; when it dies, the next node view names the next. The *ballot* is the node view:
//! flush messages of another node view than one's own are ignored, and everything unfinished begins again
//! under the new one. Within one node view a leader runs one flush at a time, each with a higher target. The
//! price: a node that joins the cluster during a flush makes the flush begin again.
//!
//! A flush is begun by departures, joins, leaves, and by members that come back from a suspension.
//!
//! # What holds
//! - From its report on, a member takes messages of the old view only as repairs up to the cut (R13).
//! - The leader reads *every* survivor. If one of them has installed the next view, that view is completed
//!   for all before anything else: its cut may have been delivered (R14). If none has, nothing beyond the
//!   reports was delivered, and the leader is free.
//! - A member delivers the rest of the cut and installs the view in one step, so "installed" says it all.
//! - The cut is, per sender, the longest prefix that any survivor holds, and the longest prefix of the order
//!   (R15). Where delivery passes gaps, of senders that departed all that any survivor holds behind them as
//!   well.
//! - Old messages, cut and view are kept until every survivor and joiner has installed: anyone may have to
//!   supply them.
//! - A cut with safe messages is delivered only when every participant holds it: see [`safe`].
//! - A joiner gets its first view when every survivor has installed it (R12).
//! - A leader that misses a member of its view asks *every* node before it decides: the missing one may have
//!   led on to a view without this leader (it was removed while it was slow), and only joiners may be left of
//!   that view. Whoever is in it says so, and the leader starts over instead of making a second group of the
//!   same name.
//! - One that left answers for the view that it left with as long as it keeps it: it has delivered by that
//!   cut (R14).
//! - One that is no member any more says whether it was removed, and why, or left in order (G7): who led when
//!   it went may be dead before anyone else heard of it, and the next view says the same of it as its own
//!   application was told.
//! - One that does not answer for [`crate::Profile::flush_stall`] is removed from the group and told (R18); a
//!   leader that does not is accused to the node layer.
//!
//! # Who dies when
//! | who | when | then |
//! |---|---|---|
//! | a survivor | before its report | the next node view restarts the flush without it |
//! | a survivor | after the cut | the same; who has installed says so, and that view is completed first |
//! | the leader | before any cut | the next leader starts over |
//! | the leader | after some members installed | the next leader learns it from their reports, fetches the decision, completes it |
//! | the leader | after it removed someone, before any cut | the removed one says so to the next leader, whose view lists it as crashed, with that cause |
//! | the leader | after one left by its cut, before anyone else had it | that one holds the view for `flush_stall`, which is then completed; later it says that it left, and the next view lists it so |
//! | the leader | after a joiner got its view | all survivors have it; the next leader gives it to the other joiners |
//! | the leader, and all who hold the cut | after they removed a survivor that does not hear of it, and told the joiners | what it lacks nobody has: when it leads it starts over, as if it had been told |
//! | all old members | after some joiners got the view, and not the most senior of these | the others count on that one to lead, which asks them to be let in: they have the view that did |
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
