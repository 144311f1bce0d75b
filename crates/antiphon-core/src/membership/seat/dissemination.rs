//! How a member tells something to all others: directly where all are neighbours, by gossip elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::{MembershipMessage, Rumour, SlotMessage};
use antiphon_wire::{Cause, Incarnation, NodeView};

use crate::Time;
use crate::membership::agree::slot::FAST;
use crate::membership::context::Context;
use crate::membership::monitor::rings::Rings;
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::membership::view::check;

impl Seat {
    /// Tells by a rumour what this node thinks of itself and of its edges, if that has changed.
    pub(crate) fn opine(&mut self, cx: &mut Context, now: Time) {
        let (primary, leaving) = (self.is_primary(), self.leaving.is_wanted());
        if let Some(gossip) = self.installed.topology.gossip_mut() {
            gossip.opine(now, (primary, leaving), cx.detector.opinion(now));
        }
    }

    /// A slot message for all voters.
    pub(crate) fn spread(
        &mut self,
        cx: &mut Context,
        now: Time,
        joiners: &[Incarnation],
        message: SlotMessage,
    ) {
        let slot = check::slot_after(&self.installed.view);
        let me = cx.me;
        let Some(gossip) = self.installed.topology.gossip_mut() else {
            let voters = self
                .installed
                .view
                .members
                .iter()
                .map(|member| member.incarnation);
            let to: Vec<Incarnation> = voters
                .chain(joiners.iter().copied())
                .filter(|to| *to != me && !self.installed.engine.is_certified(*to))
                .collect();
            for to in to {
                let message = message.clone();
                cx.send(to, MembershipMessage::Slot { slot, message });
            }
            return;
        };
        // A proposal that is tried again lacks acknowledgements of members of the next view that are not in
        // this one. Otherwise these acknowledge nothing (see `Topology::limit`).
        if let SlotMessage::Accept { ballot, value, .. } = &message
            && ballot.round > 1
        {
            let members = value.members.iter();
            for joiner in members.filter(|member| joiners.contains(&member.incarnation)) {
                let message = message.clone();
                cx.know_peer(joiner.incarnation, joiner.addr);
                cx.send(joiner.incarnation, MembershipMessage::Slot { slot, message });
            }
        }
        gossip.spread(now, &self.installed.view, message);
    }

    /// A slot message for one member. In wide views a vote goes to all.
    pub(crate) fn reply(&mut self, cx: &mut Context, now: Time, to: Incarnation, mut message: SlotMessage) {
        let Installed {
            view,
            rings,
            topology,
            ..
        } = &mut self.installed;
        if let Some(gossip) = topology.gossip_mut().filter(|_| rings.contains(to)) {
            // The member that asked sees from the votes for which view others voted.
            if matches!(&message, SlotMessage::Nack { ballot, .. } if *ballot == FAST) {
                return;
            }
            match gossip.answer(now, view, message) {
                Some(other) => message = other,
                None => return,
            }
        }
        let slot = check::slot_after(view);
        self.reach(cx, to);
        cx.send(to, MembershipMessage::Slot { slot, message });
    }

    /// Makes a member that is no neighbour reachable.
    pub(crate) fn reach(&self, cx: &mut Context, member: Incarnation) {
        let rank = self
            .installed
            .rings
            .rank(member)
            .filter(|_| !self.installed.topology.tells_all());
        if let Some(member) = rank.and_then(|rank| self.installed.view.members.get(rank)) {
            cx.know_peer(member.incarnation, member.addr);
        }
    }

    /// Confirms to neighbours that wait to leave: they stay until their neighbours know that they have left.
    pub(crate) fn confirm_to_leavers(&self, cx: &mut Context, next: &NodeView) {
        if self.installed.topology.tells_all() {
            return;
        }
        let (lineage, view) = (next.lineage, next.primary_id());
        // That a member wants to leave may be known only from the view without it.
        let departed = next.departed.iter();
        let left = departed.filter(|departure| departure.cause == Cause::Left);
        let left: BTreeSet<Incarnation> = left.map(|departure| departure.member.incarnation).collect();
        let leaves = |member: &Incarnation| left.contains(member) || self.reports.is_leaving(*member);
        for leaver in self.installed.topology.neighbours().filter(leaves) {
            cx.send(leaver, MembershipMessage::Confirm { lineage, view });
        }
    }

    /// Sends the rumours that are due. With `hurry` it tells the near neighbours all rumours now, due or not.
    pub(crate) fn tell_rumours(&mut self, cx: &mut Context, now: Time, hurry: bool) {
        let (lineage, view) = (self.installed.view.lineage, self.installed.view.primary_id());
        let Some(gossip) = self.installed.topology.gossip_mut() else {
            return;
        };
        gossip.rumours.lags(cx.detector.lag());
        for (to, rumours) in gossip.rumours.poll(now, hurry, &cx.crowded) {
            let message = MembershipMessage::Rumours {
                lineage,
                view,
                rumours,
            };
            cx.send(to, message);
        }
    }

    /// Tells the decision in the view that made it, before this node leaves that view.
    pub(crate) fn tell_decision(&mut self, cx: &mut Context, now: Time, next: &NodeView) {
        if let Some(gossip) = self.installed.topology.gossip_mut() {
            let value = next.digest();
            gossip.rumours.take(now, None, Rumour::Decided { value });
        }
        self.tell_rumours(cx, now, true);
    }

    /// A joiner learns the view from one of its observers that was there before.
    pub(crate) fn receive_joiners(&self, cx: &mut Context, view: &Arc<NodeView>, rings: &Rings) {
        let Some(me) = view.rank(cx.me) else { return };
        let (old, members) = (view.members.len() - view.joined.len(), view.members.len());
        for joiner in rings.receives(me, old, members) {
            let joiner = &view.members[joiner];
            cx.know_peer(joiner.incarnation, joiner.addr);
            cx.send(
                joiner.incarnation,
                MembershipMessage::Decide(Box::new((**view).clone())),
            );
        }
    }
}
