//! A member's seat: the primary view that it has installed, and everything that it does to get to the next
//! one.
//!
//! Every input changes what this node knows: which members it hears, which leave, which nodes want to join,
//! which members are proven dead. After an input that may change any of it, [`Seat::evaluate`] asks again, in
//! a large view once for a batch of them ([`weighing`]):
//!
//! ```text
//!   reachable = members not doubted            coordinator = the most senior of them, not lost, that no
//!                                                      majority doubts; without any, this node
//!   could the reachable decide?   yes, and I coordinate: propose a change ──► engine
//!                                 no,  and I coordinate: gather a non-primary view
//! ```

mod catching_up;
mod deciding;
mod dissemination;
mod gossip;
mod heartbeats;
pub(crate) mod inspection;
mod install;
mod installed;
mod leaving;
pub(crate) mod meeting;
mod partition;
mod proofs;
mod proposal;
mod recovering;
mod standstill;
mod timers;
mod weighing;

use std::sync::Arc;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, NodeView};

use crate::Time;
use crate::membership::agree::proofs::Proofs;
use crate::membership::change::joiners::Joiners;
use crate::membership::change::leaving::Leaving;
use crate::membership::contacts::pulls::Pulls;
use crate::membership::context::Context;
use crate::membership::lease::Lease;
use crate::membership::monitor::deaf::Deaf;
use crate::membership::monitor::report::Reports;
use crate::membership::monitor::rumour::Early;
use crate::membership::partition::merge::{Merging, Says};
use crate::membership::seat::installed::Installed;
use crate::membership::view::check;

/// The state of a member.
#[derive(Debug)]
pub(crate) struct Seat {
    /// What lives as long as the last primary view installed. The next one replaces it whole.
    pub(crate) installed: Installed,
    pub(crate) reports: Reports,
    pub(crate) merging: Merging,
    pub(crate) joiners: Joiners,
    pub(crate) leaving: Leaving,
    pub(crate) lease: Lease,
    pub(crate) proofs: Proofs,
    pub(crate) next_heartbeat: Time,
    pub(crate) next_seek: Time,
    pub(crate) pulls: Pulls,
    /// Rumours about the next view that came before that view.
    pub(crate) early: Early,
    pub(crate) deaf: Deaf,
}

impl Seat {
    /// The first view of this incarnation.
    pub(crate) fn new(cx: &mut Context, now: Time, view: NodeView) -> Self {
        let installed = Installed::first(cx, now, Arc::new(view));
        let (of, by_rounds) = (
            (&installed.view, &installed.rings),
            installed.topology.leases_by_rounds(),
        );
        let mut seat = Self {
            lease: Lease::new(&cx.config, cx.me, now, of, by_rounds),
            installed,
            reports: Reports::default(),
            merging: Merging::default(),
            joiners: Joiners::default(),
            leaving: Leaving::No,
            proofs: Proofs::default(),
            next_heartbeat: now,
            next_seek: now,
            pulls: Pulls::new(now),
            early: Early::default(),
            deaf: Deaf::default(),
        };
        seat.take_up(cx, now, false, false);
        seat
    }

    /// Whether this node is in a primary view now, as far as it knows.
    pub(crate) fn is_primary(&self) -> bool {
        self.installed.nonprimary.view().is_none()
    }

    pub(crate) fn handle_message(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: MembershipMessage,
    ) {
        match message {
            MembershipMessage::Slot { slot, message } if slot.lineage == self.installed.view.lineage => {
                self.handle_slot(cx, now, sender, slot.next, message);
            }
            MembershipMessage::Decide(view)
                if check::primary_is_sound(&view) && view.lineage == self.installed.view.lineage =>
            {
                let (lineage, id) = (view.lineage, view.primary_id());
                cx.send(sender, MembershipMessage::Confirm { lineage, view: id });
                self.learn(cx, now, Arc::new(*view), Some(sender));
            }
            MembershipMessage::Confirm { lineage, view } if lineage == self.installed.view.lineage => {
                self.leaving.confirmed(sender, view);
                if view > self.installed.view.primary_id() && !self.leaving.is_departing() {
                    self.pull_soon(cx, now, sender);
                }
            }
            MembershipMessage::Pull { lineage, after } => self.show_views(cx, now, sender, (lineage, after)),
            MembershipMessage::Certificate(certificate)
                if check::vote_is_sound(&certificate.vote) && self.installed.rings.contains(sender) =>
            {
                self.certify(cx, now, certificate.dead, certificate.vote, false);
            }
            MembershipMessage::JoinReady { nonce } => self.joiners.ready(now, sender, nonce),
            MembershipMessage::Leave => {
                if self.installed.rings.contains(sender) {
                    self.reports.note_leaving(sender, &self.installed.view);
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
                if self.installed.rings.contains(sender) =>
            {
                self.hear_of_component(cx, now, sender, message);
            }
            MembershipMessage::Rumours {
                lineage,
                view,
                rumours,
            } if lineage == self.installed.view.lineage && self.installed.rings.contains(sender) => {
                self.handle_rumours(cx, now, sender, view, rumours);
            }
            MembershipMessage::Dissolve { into, addr } if self.installed.rings.contains(sender) => {
                self.meet(cx, now, into, addr, Says::Here);
            }
            // For founders and joiners, or about another lineage.
            _ => {}
        }
        self.evaluate(cx, now);
    }

    /// The weight of the primary view.
    pub(crate) fn weight(&self) -> u32 {
        let weights = self
            .installed
            .view
            .members
            .iter()
            .map(|member| u32::from(member.weight));
        weights.sum()
    }
}
