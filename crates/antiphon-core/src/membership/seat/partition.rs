//! What a member does in a partition, and when two lineages meet after it: the rules are in [`partition`].
//!
//! [`partition`]: crate::membership::partition

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::membership::{Discovery, LifelineRecord, MembershipMessage, Standing};
use antiphon_wire::{Incarnation, LineageMark, NodeView};

use crate::Time;
use crate::membership::context::{Context, Past};
use crate::membership::partition::merge::{Says, Side, Step};
use crate::membership::partition::nonprimary::{Heard, component_of};
use crate::membership::partition::proposal::Base;
use crate::membership::seat::Seat;

impl Seat {
    /// Without a quorum a component agrees on its members.
    pub(crate) fn tend_component(
        &mut self,
        cx: &mut Context,
        now: Time,
        quorum: bool,
        coordinator: Incarnation,
    ) {
        if quorum || cx.fate.is_some() {
            return self.installed.nonprimary.calm();
        }
        let hears_all = self.installed.topology.hears_all();
        let component = component_of(cx, self.reachable(cx), hears_all);
        let coordinator = if component.contains(&coordinator) {
            coordinator
        } else {
            self.coordinator(cx, &component)
        };
        let view = self.installed.view.clone();
        let nonprimary = &mut self.installed.nonprimary;
        if coordinator != cx.me {
            return nonprimary.follow(cx, now, &view, (&component, coordinator));
        }
        component.iter().for_each(|member| self.reach(cx, *member));
        let nonprimary = &mut self.installed.nonprimary;
        if let Some(view) = nonprimary.tend(cx, now, &view, &component, !hears_all) {
            self.assembled(cx, now, view);
        }
    }

    /// A message about this node's component.
    pub(crate) fn hear_of_component(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: MembershipMessage,
    ) {
        let view = self.installed.view.clone();
        let nonprimary = &mut self.installed.nonprimary;
        let proposal = match nonprimary.hear(cx, now, &view, sender, message) {
            Heard::Nothing => return,
            Heard::Behind => return self.pull(cx, now, sender),
            Heard::Assembled(view) => return self.assembled(cx, now, view),
            Heard::Proposed(proposal) => proposal,
        };
        let mut willing = false;
        match proposal.on {
            Base::Other => {}
            Base::Later => self.pull(cx, now, sender),
            Base::Installed => {
                // A node that could help to a quorum does not settle for less.
                let reachable = self.reachable(cx);
                willing = !self.has_quorum(cx, now, &reachable);
                if !willing {
                    self.installed.reconnect.disagree(now);
                }
            }
        }
        willing &= !proposal.splits || !self.leaving.is_departing();
        let answer = self.installed.nonprimary.answer(cx, &view, proposal, willing);
        cx.send(sender, answer);
    }

    /// All members of this view have acknowledged it. A node that has left the old lineage by now is a member
    /// of no part of it.
    fn assembled(&mut self, cx: &mut Context, now: Time, view: NodeView) {
        if !view.is_primary() {
            let primary = self.installed.view.clone();
            self.installed.nonprimary.install(cx, now, &primary, view);
        } else if !self.leaving.is_departing() {
            let mine = (self.installed.view.lineage, self.installed.view.primary_id());
            assert!(
                cx.any() && view.separates() == Some(mine) || planted!(),
                "R6: {:?} in {mine:?} goes on in {}, which is a part of {:?}",
                cx.me,
                view.id,
                view.separates()
            );
            self.install(cx, now, Arc::new(view), None);
            // R2, R9: what the lifelines showed last was of the lineage that was left. It would be no proof
            // in this lineage if this process ended before it votes here.
            cx.write_lifelines(&LifelineRecord::Vote(self.installed.engine.vote_state()));
        }
    }

    /// A heartbeat of another lineage: of one to which this node said yes, or of a member that has left this
    /// lineage.
    pub(crate) fn hear_elsewhere(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        lineage: LineageMark,
    ) {
        if !cx.any() {
            return;
        }
        let installed = &mut self.installed;
        match installed
            .nonprimary
            .installed_by(&installed.view, lineage, sender)
        {
            Some(view) => {
                self.assembled(cx, now, view);
                self.evaluate(cx, now);
            }
            None => self.went_apart(cx, sender),
        }
    }

    /// A member speaks as a member of another lineage: under `any` its component went on as that lineage,
    /// otherwise an operator had the member go on. It votes here no more.
    pub(crate) fn went_apart(&self, cx: &mut Context, who: Incarnation) {
        if self.installed.view.contains(who) {
            cx.detector.set_apart(who, true);
        }
    }

    /// This node meets another lineage of this cluster, of which a node at this address speaks.
    pub(crate) fn meet(
        &mut self,
        cx: &mut Context,
        now: Time,
        other: Standing,
        addr: SocketAddr,
        says: Says,
    ) {
        let standing = self.standing(cx);
        if other.lineage == standing.lineage || self.is_foreign(cx, &other) {
            return;
        }
        let side = Side {
            profile: &cx.config.profile,
            standing,
            any: cx.any(),
            quorum: self.installed.quorum,
            is_bound: self.installed.engine.is_bound(),
            wants_to_leave: self.leaving.is_wanted(),
        };
        match self.merging.meet(&mut cx.random, now, &side, &other, says) {
            Step::Nothing => {}
            Step::Here => self.here(cx, addr),
            Step::Yield { nonce } => {
                let node = cx.record();
                let message = Discovery::Yield {
                    node,
                    standing,
                    nonce,
                };
                cx.discover(addr, message);
            }
            Step::Stay { nonce } => {
                let message = Discovery::Stay {
                    addr: cx.config.addr,
                    standing,
                    nonce,
                };
                cx.discover(addr, message);
            }
            Step::GiveWay { tell } => self.give_way(cx, now, other, addr, tell),
        }
    }

    /// This incarnation ends, and a fresh one joins the other lineage.
    fn give_way(&mut self, cx: &mut Context, now: Time, into: Standing, addr: SocketAddr, tell: bool) {
        let view = self.installed.view.clone();
        let others = view.members.iter().filter(|member| member.incarnation != cx.me);
        let told: Vec<Incarnation> = others.map(|member| member.incarnation).filter(|_| tell).collect();
        for member in told {
            cx.send(member, MembershipMessage::Dissolve { into, addr });
        }
        let mut past = Past::of(&view, cx.past.as_ref());
        past.contacts.insert(addr);
        past.gave_way = Some((view.lineage, now + cx.config.profile.suspect_after * 4));
        cx.past = Some(past);
        let cause = format!("lineage {} gave way to {}", view.lineage, into.lineage);
        self.expelled(cx, cause);
    }
}
