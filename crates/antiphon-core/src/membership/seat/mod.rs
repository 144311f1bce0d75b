//! A member's seat: the primary view it has installed, and everything it does to get to the next one.
//!
//! Every input changes what this node knows: whom it hears, who leaves, who wants in, who is proven dead.
//! After each, [`Seat::evaluate`] asks again:
//!
//! ```text
//!   reachable = members not doubted            coordinator = the most senior of them that no majority doubts
//!   could the reachable decide?   yes, and I coordinate: wish for the next view ──► engine
//!                                 no,  and I coordinate: gather a non-primary view
//! ```

mod catching_up;
mod components;
mod deaf;
mod deciding;
mod dissemination;
mod gossip;
mod heartbeats;
pub(crate) mod inspection;
mod install;
mod leases;
mod leaving;
mod meeting;
mod merging;
mod proofs;
mod proposal;
mod reconnecting;
mod recovering;
mod rounds;
pub(crate) mod separation;
mod standstill;
mod timers;
mod weighing;
mod withdrawals;

use antiphon_wire::membership::{Ballot, MembershipMessage, Pulse, VoteState};
use antiphon_wire::{Incarnation, NodeView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Time;
use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::Votes;
use crate::membership::change::joiners::Joiners;
use crate::membership::change::leaving::Leaving;
use crate::membership::change::merging::Merging;
use crate::membership::change::nonprimary::Nonprimary;
use crate::membership::context::Context;
use crate::membership::lease::Lease;
use crate::membership::lease::rounds::Pulses;
use crate::membership::monitor::beyond::Beyond;
use crate::membership::monitor::report::Report;
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::{Early, Topology, rings_of};
use crate::membership::view::check;

/// The state of a member.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The last primary view installed.
    pub(crate) view: Arc<NodeView>,
    pub(crate) engine: Engine,
    pub(crate) nonprimary: Nonprimary,
    pub(crate) merging: Merging,
    /// Whether those whom this node does not doubt could decide the next view, as of the last time that it
    /// was weighed.
    pub(crate) quorum: bool,
    /// Since when this node has accepted a view that was not decided since, and has heard less than a quorum
    /// of that.
    pub(crate) blocked: Option<Time>,
    /// What the lifelines show of this node's vote in the slot: the ballots promised and accepted last.
    pub(crate) shown: (Option<Ballot>, Option<Ballot>),
    pub(crate) reports: BTreeMap<Incarnation, Report>,
    pub(crate) joiners: Joiners,
    pub(crate) leaving: Leaving,
    pub(crate) lease: Lease,
    pub(crate) certificates: BTreeMap<Incarnation, VoteState>,
    /// Who was told again of deaths that it had no proof of, and when last.
    pub(crate) proven_again: BTreeMap<Incarnation, Time>,
    pub(crate) next_heartbeat: Time,
    pub(crate) next_seek: Time,
    pub(crate) next_pull: Time,
    /// When to pull from a member that has a later view, unless it is installed by then.
    pub(crate) pull_at: Option<(Time, Incarnation)>,
    pub(crate) told: BTreeMap<Incarnation, Time>,
    /// Whose pulls were answered, and when: those of a moment ago.
    pub(crate) pulled: BTreeMap<Incarnation, Time>,
    pub(crate) rings: Arc<Rings>,
    /// Whether votes name what changes in the view.
    pub(crate) named: bool,
    /// The leader as of the last time that everything was weighed, in a wide view.
    pub(crate) leader: Option<Incarnation>,
    pub(crate) topology: Topology,
    pub(crate) early: Early,
    /// In views where not all are neighbours, and a tick of the next one.
    pub(crate) pulses: Option<Pulses>,
    pub(crate) early_tick: Option<(Incarnation, Pulse)>,
    pub(crate) beyond: Beyond,
    /// When everything was weighed last, in a wide view, and when to do it again.
    pub(crate) weighed: Time,
    pub(crate) weigh: Option<Time>,
    /// Since when those that are ready to join have waited for others.
    pub(crate) waiting_since: Option<Time>,
    /// Members that hear nobody, as of the last time that everything was weighed.
    pub(crate) deaf: BTreeSet<Incarnation>,
}

impl Seat {
    /// The first view of this incarnation.
    pub(crate) fn new(cx: &mut Context, now: Time, view: NodeView) -> Self {
        let view = Arc::new(view);
        let rings = rings_of(&cx.config, &view);
        let mut seat = Self {
            engine: Engine::new(
                cx.config.engine,
                cx.me,
                view.clone(),
                rings.clone(),
                Votes::Whole,
                &cx.config.profile,
            ),
            rings,
            named: false,
            leader: None,
            topology: Topology::Mesh,
            early: Early::default(),
            pulses: None,
            early_tick: None,
            beyond: Beyond::default(),
            weighed: Time::ZERO,
            weigh: None,
            waiting_since: None,
            deaf: BTreeSet::new(),
            view: view.clone(),
            nonprimary: Nonprimary::default(),
            merging: Merging::default(),
            quorum: true,
            blocked: None,
            shown: (None, None),
            reports: BTreeMap::new(),
            joiners: Joiners::default(),
            leaving: Leaving::No,
            lease: Lease::new(&cx.config, now),
            certificates: BTreeMap::new(),
            proven_again: BTreeMap::new(),
            next_heartbeat: now,
            next_seek: now,
            next_pull: now,
            pull_at: None,
            told: BTreeMap::new(),
            pulled: BTreeMap::new(),
        };
        seat.install(cx, now, view, None);
        seat
    }

    /// Whether this node believes to be in the primary view now.
    pub(crate) fn is_primary(&self) -> bool {
        self.nonprimary.view().is_none()
    }

    fn name_of(&self, incarnation: Incarnation) -> String {
        self.view
            .member(incarnation)
            .map_or_else(|| incarnation.short(), |member| member.name.clone())
    }

    pub(crate) fn handle_message(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: MembershipMessage,
    ) {
        match message {
            MembershipMessage::Slot { slot, message } if slot.lineage == self.view.lineage => {
                self.handle_slot(cx, now, sender, slot.next, message);
            }
            MembershipMessage::Decide(view)
                if check::primary_is_sound(&view) && view.lineage == self.view.lineage =>
            {
                let (lineage, id) = (view.lineage, view.primary_id());
                cx.send(sender, MembershipMessage::Confirm { lineage, view: id });
                self.learn(cx, now, Arc::new(*view), Some(sender));
            }
            MembershipMessage::Confirm { lineage, view } if lineage == self.view.lineage => {
                self.leaving.confirmed(sender, view);
                if view > self.view.primary_id() && !self.leaving.is_departing() {
                    self.pull_soon(cx, now, sender);
                }
            }
            MembershipMessage::Pull { lineage, after } => self.show_views(cx, now, sender, (lineage, after)),
            MembershipMessage::Certificate(certificate)
                if check::vote_is_sound(&certificate.vote) && self.rings.contains(sender) =>
            {
                self.certify(cx, now, certificate.dead, certificate.vote, false);
            }
            MembershipMessage::JoinReady { nonce } => self.joiners.ready(now, sender, nonce),
            MembershipMessage::Leave => {
                if self.rings.contains(sender) {
                    self.note_leaver(sender);
                } else {
                    self.hear_leaver(cx, now, sender);
                }
            }
            MembershipMessage::Gather(_)
            | MembershipMessage::Gathered { .. }
            | MembershipMessage::Scatter { .. }
            | MembershipMessage::GatherRanks { .. }
            | MembershipMessage::Separate { .. }
            | MembershipMessage::SeparateRanks { .. }
            | MembershipMessage::Assemble { .. }
                if self.rings.contains(sender) =>
            {
                self.handle_nonprimary(cx, now, sender, message);
            }
            MembershipMessage::Rumours {
                lineage,
                view,
                rumours,
            } if lineage == self.view.lineage && self.rings.contains(sender) => {
                self.handle_rumours(cx, now, sender, view, rumours);
            }
            MembershipMessage::Dissolve { into, addr } if self.rings.contains(sender) => {
                self.meet(cx, now, into, addr);
            }
            // For founders and joiners, or about another lineage.
            _ => {}
        }
        self.evaluate(cx, now);
    }

    /// The weight of the primary view.
    pub(crate) fn weight(&self) -> u32 {
        let weights = self.view.members.iter().map(|member| u32::from(member.weight));
        weights.sum()
    }
}
