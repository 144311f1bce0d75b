//! How a member tells something to all others: directly where all are neighbours, by gossip elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::{Ayes, MembershipMessage, Rumour, SlotMessage};
use antiphon_wire::{Cause, Incarnation, NodeView};

use crate::Time;
use crate::membership::agree::slot::FAST;
use crate::membership::context::Context;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::rings::Rings;
use crate::membership::seat::Seat;
use crate::membership::view::check;

impl Seat {
    /// Tells by a rumour what this node thinks of itself and of its edges, if that has changed.
    pub(crate) fn opine(&mut self, cx: &mut Context, now: Time) {
        let (primary, leaving) = (self.is_primary(), self.leaving.is_wanted());
        if let Some(gossip) = self.installed.topology.gossip_mut() {
            gossip.opine(now, cx.me, (primary, leaving), cx.detector.opinion(now));
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
        let rumour = match message {
            SlotMessage::Fast { value } => {
                let change = Box::new(check::change_of(&self.installed.view, &value));
                let digest = gossip.learn_value(Arc::new(*value));
                gossip.rumours.take(now, None, Rumour::Ask { by: me, change });
                self.vote(now, me, Ayes::Cast { value: digest });
                return;
            }
            SlotMessage::Accept {
                ballot,
                value,
                proofs,
            } => {
                // A proposal that is tried again lacks acknowledgements of members of the next view that are
                // not in this one. Otherwise these acknowledge nothing (see `limit`).
                if ballot.round > 1 {
                    for joiner in value
                        .members
                        .iter()
                        .filter(|member| joiners.contains(&member.incarnation))
                    {
                        let message = SlotMessage::Accept {
                            ballot,
                            value: value.clone(),
                            proofs: proofs.clone(),
                        };
                        cx.know_peer(joiner.incarnation, joiner.addr);
                        cx.send(joiner.incarnation, MembershipMessage::Slot { slot, message });
                    }
                }
                let change = Box::new(check::change_of(&self.installed.view, &value));
                gossip.learn_value(Arc::new(*value));
                Rumour::Accept {
                    ballot,
                    change,
                    proofs,
                }
            }
            SlotMessage::Prepare {
                ballot,
                proofs,
                removing,
            } => Rumour::Prepare {
                ballot,
                proofs,
                removing,
            },
            SlotMessage::Cast { value } => {
                self.vote(now, me, Ayes::Cast { value });
                return;
            }
            // Answers go to one.
            SlotMessage::Promise { .. } | SlotMessage::Accepted { .. } | SlotMessage::Nack { .. } => return,
        };
        gossip.rumours.take(now, None, rumour);
    }

    /// A slot message for one member. In wide views a vote goes to all.
    pub(crate) fn reply(&mut self, cx: &mut Context, now: Time, to: Incarnation, message: SlotMessage) {
        let slot = check::slot_after(&self.installed.view);
        let what = match &message {
            _ if !self.installed.topology.counts_votes() || !self.installed.rings.contains(to) => None,
            // The member that asked sees from the votes for which view others voted.
            SlotMessage::Nack { ballot, .. } if *ballot == FAST => return,
            SlotMessage::Cast { value } => Some(Ayes::Cast { value: *value }),
            SlotMessage::Accepted { ballot } => Some(Ayes::Accepted { ballot: *ballot }),
            SlotMessage::Promise { ballot, accepted } => {
                let mut shown = None;
                if let (Some(accepted), Some(gossip)) = (accepted, self.installed.topology.gossip_mut()) {
                    // A promise that does not show what was accepted would count as that of a member that has
                    // accepted nothing.
                    let Some(value) = check::voted(&self.installed.view, &accepted.value) else {
                        return;
                    };
                    let change = check::change_of(&self.installed.view, &value);
                    gossip.rumours.take(now, None, Rumour::Value(Box::new(change)));
                    shown = Some(gossip.learn_value(Arc::new(value)));
                }
                Some(Ayes::Promise {
                    ballot: *ballot,
                    accepted_in: accepted.as_ref().map(|accepted| accepted.ballot),
                    accepted: shown,
                })
            }
            SlotMessage::Prepare { .. }
            | SlotMessage::Accept { .. }
            | SlotMessage::Fast { .. }
            | SlotMessage::Nack { .. } => None,
        };
        match what {
            Some(what) => self.vote(now, cx.me, what),
            None => {
                self.reach(cx, to);
                cx.send(to, MembershipMessage::Slot { slot, message });
            }
        }
    }

    fn vote(&mut self, now: Time, me: Incarnation, what: Ayes) {
        let rank = self.installed.rings.rank(me);
        if let (Some(gossip), Some(rank)) = (self.installed.topology.gossip_mut(), rank) {
            let by = Ranks::of(rank).into_wire();
            gossip.rumours.take(now, None, Rumour::Tally { what, by });
        }
    }

    /// The observers of a member.
    pub(crate) fn observers(&self, member: Incarnation) -> Vec<Incarnation> {
        self.installed
            .rings
            .observers_in(&self.installed.view, member)
            .collect()
    }

    /// Whether one member observes another.
    pub(crate) fn observes(&self, by: Incarnation, subject: Incarnation) -> bool {
        let Some(rank) = self.installed.rings.rank(by) else {
            return false;
        };
        let subject = self.installed.rings.rank(subject).unwrap_or(usize::MAX);
        let mut observers = self.installed.rings.observers(subject).iter();
        observers.any(|by| usize::from(*by) == rank)
    }

    /// The subjects of a member.
    pub(crate) fn subjects(&self, member: Incarnation) -> Vec<Incarnation> {
        let rank = self.installed.rings.rank(member).unwrap_or(usize::MAX);
        let members = &self.installed.view.members;
        let subjects = self.installed.rings.subjects(rank);
        subjects
            .filter_map(|of| Some(members.get(of)?.incarnation))
            .collect()
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
        let Some(gossip) = self.installed.topology.gossip() else {
            return;
        };
        let (lineage, view) = (next.lineage, next.primary_id());
        // That a member wants to leave may be known only from the view without it.
        let departed = next.departed.iter();
        let left = departed.filter(|departure| departure.cause == Cause::Left);
        let left: BTreeSet<Incarnation> = left.map(|departure| departure.member.incarnation).collect();
        let says = |member: &Incarnation| self.reports.get(member).is_some_and(|report| report.leaving);
        let leaves = |member: &Incarnation| left.contains(member) || says(member);
        for leaver in gossip.neighbours().filter(leaves) {
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
        let old = view.members.len() - view.joined.len();
        if me >= old {
            return;
        }
        for joiner in old..view.members.len() {
            let first = rings
                .observers(joiner)
                .iter()
                .map(|by| usize::from(*by))
                .find(|by| *by < old);
            if first.unwrap_or(0) == me {
                let member = &view.members[joiner];
                cx.know_peer(member.incarnation, member.addr);
                cx.send(
                    member.incarnation,
                    MembershipMessage::Decide(Box::new((**view).clone())),
                );
            }
        }
    }
}
