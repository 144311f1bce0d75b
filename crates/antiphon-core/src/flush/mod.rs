//! Flush: how a group gets from one view to the next, so that all members have delivered the same (R13–R18).
//!
//! ```text
//!  leader          FlushStart ─►      ◄─ FlushReport     FlushCut ─►        ◄─ Installed   FirstView ─► joiners
//!  every survivor             wedged: nothing more       pulls what it lacks,              Settled ─► all
//!                             is accepted in the view    delivers the cut, installs
//! ```
//! The first member of the group view that is in the node view leads. Members that are in the same group view
//! agree on it; one that is behind may name another leader, which then learns from the reports that it is
//! behind. When the leader dies, the next node view names the next one. The *ballot* is the node
//! view: a member ignores flush messages of another node view than its own, and everything unfinished begins
//! again under the new one. Within one node view a leader runs one flush at a time, each with a higher
//! target. The price: a node that joins the cluster during a flush makes the flush begin again.
//!
//! A flush begins when members depart, join, leave or stop reading, or come back from a suspension.
//!
//! # What goes in and what comes out
//! A [`Flush`] is one member's part in the flushes of its group, also as the leader.
//!
//! ```text
//!  messages of other members   ─►  ┌───────┐  ─►  messages, questions for what the cut lacks here,
//!  a joiner, a member that leaves  │ Flush │      a joiner to welcome, a leader to accuse
//!  a primary view, or none         └───────┘  ─►  at last: a decision to install, or the end of the membership
//!  time                             ▲     │   ─►  when to call it if nothing comes
//!                                   │     └ owns: promise, cut, what it keeps for others, requests to the leader
//!                     Around: the time, this node, the node view, the profile, the group's id and name, the
//!                             stream of its view, its direct messages
//! ```
//! The group lends an [`Around`] with each call, and then carries out each [`FlushEffect`] in order
//! (`group/flushing.rs`). Whatever changes the group is there and in `group/install.rs`: the flush reads the
//! stream, and writes to it only the repairs that the cut names ([`Flush::take_repair`]). An `Install` or a
//! `StartOver` is the last effect of a call. After an `Install` the group begins the next view with
//! [`Flush::begin_view`], and then calls [`Flush::installed`].
//!
//! A node that is no member has no `Flush`. What it answers to a leader is in `group/flushing.rs` too.
//!
//! # What holds
//! - From its report on, a member takes messages of the old view only as repairs up to the cut (R13).
//! - The leader reads *every* survivor. If one of them has installed the next view, that view is completed
//!   for all before anything else: its cut may have been delivered (R14). If none has, no member has
//!   delivered anything beyond the reports, and the leader is free, unless a report has a cut that its sender
//!   holds: that one is completed ([`safe`]).
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
//! | the leader | after some members installed | the next leader has the decision from their reports, or has installed it itself; it fetches what it lacks of the cut, and completes the view |
//! | the leader | after it removed a member, before any cut | the removed member says so to the next leader, whose view lists it as crashed, with that cause |
//! | the leader | after a member left by its cut, before any other had it | that member holds the view for `flush_stall`, and the view is then completed; later it says that it left, and the next view lists it so |
//! | the leader | after a joiner got its view | all survivors have it; the next leader gives it to the other joiners |
//! | the leader, and all that hold the cut | after they removed a survivor that does not hear of it, and told the joiners | no member has what the survivor lacks: when it leads it starts over, as if it had been told |
//! | all old members | after some joiners got the view, and not the most senior of these | the other joiners count on that one to lead; it asks them to be let in, and they have the view that admitted it |
//! | a joiner | before its view | it is in the view, and the next flush removes it |
//! | all old members | after joiners got the view | the joiners know the decision and go on as its members |

mod around;
mod asked;
mod effect;
mod leader;
mod member;
mod requests;
mod safe;
mod slowest;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_wire::group::{Decision, GroupMessage};
use antiphon_wire::{GroupViewId, Incarnation};

use self::effect::FlushEffects;
use self::state::{CatchUp, Collect, Confirm, Flow, Holding, Lead, Requests};
use crate::Time;
use crate::group::stream::Stream;

pub(crate) use self::around::Around;
pub(crate) use self::effect::FlushEffect;
pub(crate) use self::state::{Promise, Retained};

/// A member's part in the flushes of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flush {
    flow: Flow,
    /// The flush answered last under this node view.
    pub(crate) promise: Option<Promise>,
    /// The decision on the next view for which this member has said that it holds the cut.
    held_cut: Option<Decision>,
    /// Per sender, where its log ended when this member reported to a flush last; empty before that.
    reported: Vec<u64>,
    /// When to doubt the flush's leader, and how often it was doubted.
    watch: Option<(Time, u32)>,
    /// What came before the present view, until all members have installed the present view.
    pub(crate) retained: Option<Retained>,
    /// The application was told that the group is suspended.
    suspended: bool,
    lead: Lead,
    requests: Requests,
    /// `Installed` of members that were faster than this one.
    confirmations: BTreeMap<Incarnation, GroupViewId>,
    effects: FlushEffects,
}

impl Flush {
    /// No flush is under way. A member that has joined keeps the decision that let it in.
    pub(crate) fn new(retained: Option<Retained>) -> Self {
        Self {
            flow: Flow::Open,
            promise: None,
            held_cut: None,
            reported: Vec::new(),
            watch: None,
            retained,
            suspended: false,
            lead: Lead::Idle,
            requests: Requests::default(),
            confirmations: BTreeMap::new(),
            effects: FlushEffects::default(),
        }
    }

    /// Whether messages flow: no flush is under way, as far as this member knows.
    pub(crate) fn is_open(&self) -> bool {
        self.flow == Flow::Open
    }

    /// The node view is not primary any more. True if the application was not told yet.
    pub(crate) fn suspend(&mut self) -> bool {
        // R17: whatever comes now waits for the flush that follows the next primary view.
        if self.is_open() && !planted!(DeliverWhileSuspended) {
            self.flow = Flow::Wedged;
        }
        !std::mem::replace(&mut self.suspended, true)
    }

    /// A message of another member, or of this member itself.
    pub(crate) fn handle_message(&mut self, around: &Around<'_>, from: Incarnation, message: GroupMessage) {
        match message {
            GroupMessage::FlushReport { target, standing, .. } => {
                self.handle_report(around, from, target, standing);
            }
            GroupMessage::FlushRefused { promised, .. } => self.handle_refused(around, promised),
            GroupMessage::FlushCut { decision, .. } => self.handle_cut(around, from, *decision),
            GroupMessage::Complete {
                target,
                decision,
                installed,
                ..
            } => self.handle_complete(around, from, target, *decision, installed),
            GroupMessage::CutHeld { target, .. } => self.handle_cut_held(around, from, target),
            GroupMessage::CutSafe { target, .. } => self.handle_cut_safe(around, from, target),
            GroupMessage::Installed { view, .. } => self.handle_installed(around, from, view),
            GroupMessage::Settled { view, .. } => self.handle_settled(around, view),
            GroupMessage::Removed { view, cause, .. } => self.handle_removed(around, view, cause),
            GroupMessage::Leave { .. } => self.handle_leave(around, from),
            GroupMessage::Check { view, .. } => self.handle_check(around, from, view),
            GroupMessage::Resume { view, .. } => self.handle_resume(around, from, view),
            GroupMessage::Slow {
                view, for_us, cause, ..
            } => self.handle_slow(around, from, view, Duration::from_micros(for_us), cause),
            _ => {}
        }
    }

    /// A decided view begins at this member, and messages flow. What ended is kept for others.
    pub(crate) fn begin_view(&mut self, decision: Decision, old: Stream) {
        self.flow = Flow::Open;
        self.held_cut = None;
        self.reported.clear();
        self.watch = None;
        self.suspended = false;
        self.requests.install(&decision);
        self.retained = Some(Retained {
            decision,
            stream: Some(old),
        });
    }

    /// Members that are alive and are to be removed.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.requests.dropped.keys().copied()
    }

    /// The next thing to do.
    pub(crate) fn poll(&mut self) -> Option<FlushEffect> {
        self.effects.poll()
    }

    /// When there is something to do if nothing comes.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let watch = self.watch.map(|(at, _)| at);
        let times = [watch, self.flow.next_timeout(), self.lead.next_timeout()];
        times.into_iter().flatten().min()
    }
}
