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
mod install;
mod leader;
mod member;
mod requests;
mod safe;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::group::{Decision, GroupData, Standing};
use antiphon_wire::{GroupViewId, Incarnation};

use self::asked::Asked;
use self::safe::Holding;
use crate::Time;
use crate::group::Context;
use crate::group::reached::Reached;
use crate::group::stream::Stream;

/// View ids of a group count up from 1. No member of this program gets this far; above the last number there
/// is no other, and the leader would use a view id twice (R5).
pub(crate) const MAX_K: u32 = u32::MAX / 2;

/// Whether a view of a group may have this id: its node view is the present one or an earlier one.
pub(crate) fn id_is_possible(ctx: &Context<'_>, id: GroupViewId) -> bool {
    id.k < MAX_K && (id.node, id.number) <= (ctx.node.id, ctx.node.number)
}

/// What the cut has of the sender of this rank.
pub(crate) fn cut_of(decision: &Decision, rank: usize) -> Reached {
    let prefix = decision.cut.get(rank).map_or(0, |last| last.saturating_add(1));
    let mut cut = Reached::new(prefix);
    let spans = decision.beyond.iter().map(|part| part.span);
    for span in spans.filter(|span| usize::from(span.sender) == rank) {
        cut.add(span.first, span.first.saturating_add(span.count));
    }
    cut
}

/// The flush a member has answered last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) target: GroupViewId,
    pub(crate) leader: Incarnation,
}

/// Whether messages flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flow {
    /// They do.
    Open,
    /// Reported; waits for a cut.
    Wedged,
    /// Has a cut; fetches what it lacks of it.
    Catching(Box<CatchUp>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatchUp {
    pub(crate) decision: Decision,
    /// It has said that it holds the cut.
    said: bool,
    /// All participants hold the cut.
    safe: bool,
    /// One that has installed the view already, if the decision came from one.
    source: Option<Incarnation>,
    /// How often a holder did not answer in time.
    attempt: usize,
    asked: Asked,
    pull_at: Time,
}

impl Flow {
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match self {
            Flow::Catching(catch_up) => Some(catch_up.pull_at),
            Flow::Open | Flow::Wedged => None,
        }
    }
}

/// The end of the previous view, kept until every member of the present one has installed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retained {
    pub(crate) decision: Decision,
    /// The previous view's messages; none at a member whose first view this is.
    pub(crate) stream: Option<Stream>,
}

impl Retained {
    /// Supplies what someone lacks of the previous view.
    pub(crate) fn answer(&self, ctx: &mut Context<'_>, from: Incarnation, record: &GroupData) {
        let Some(stream) = &self.stream else { return };
        match *record {
            GroupData::Pull {
                view,
                sender,
                first,
                end,
                ..
            } if view == stream.id => {
                stream.pull(from, usize::from(sender), first, end, ctx.effects);
            }
            GroupData::PullOrders { view, first, .. } if view == stream.id => {
                stream.pull_orders(from, first, ctx.effects);
            }
            _ => {}
        }
    }
}

/// What the leader of a group's flush is doing. At all other members, `Idle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lead {
    Idle,
    /// Gathers joins and leaves for one flush.
    Batching {
        at: Time,
    },
    /// Reads every survivor.
    Collecting(Collect),
    /// Has decided, or adopted what another has installed; is about to install it itself.
    Deciding {
        adopted: bool,
        stall_at: Time,
        /// Waits until all hold the cut before anyone delivers it.
        holding: Option<Holding>,
    },
    /// Waits until everyone has installed the leader's view.
    Confirming(Confirm),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collect {
    target: GroupViewId,
    waiting: BTreeSet<Incarnation>,
    /// Nodes outside of the leader's view that were asked whether they know a later one; `None` before anyone
    /// was.
    strangers: Option<BTreeSet<Incarnation>>,
    reports: BTreeMap<Incarnation, Standing>,
    stall_at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirm {
    /// Survivors (and leavers) that are not known to have installed it.
    survivors: BTreeSet<Incarnation>,
    joiners: BTreeSet<Incarnation>,
    joiners_told: bool,
    /// This completes a view for those behind; the ones that have it are wedged and wait for another flush.
    completing: bool,
    stall_at: Time,
}

impl Lead {
    /// When the leader has something to do if nothing comes.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match self {
            Lead::Batching { at } => Some(*at),
            Lead::Collecting(Collect { stall_at, .. })
            | Lead::Deciding { stall_at, .. }
            | Lead::Confirming(Confirm { stall_at, .. }) => Some(*stall_at),
            Lead::Idle => None,
        }
    }
}
