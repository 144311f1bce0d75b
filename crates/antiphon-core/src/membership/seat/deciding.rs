//! What happens when the next view is decided: by this node, by another member, or without this node in it.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::{MembershipMessage, SlotId, SlotMessage};
use antiphon_wire::{Cause, Incarnation, NodeView, ViewId};

use crate::membership::agree::slot;
use crate::membership::context::{Context, Fate};
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::membership::view::check;
use crate::{Event, Time};

impl Seat {
    /// This node's proposal is decided: it tells the members of both views, and installs the view.
    pub(crate) fn announce(&mut self, cx: &mut Context, now: Time, next: Arc<NodeView>) {
        let old = self
            .installed
            .view
            .members
            .iter()
            .map(|member| member.incarnation);
        let new = next.joined.iter().copied();
        let certified = self.installed.engine.certified();
        let (topology, tells_all) = (&self.installed.topology, self.installed.topology.tells_all());
        let is_near = |to: &Incarnation| topology.is_neighbour(*to);
        // In a wide view each member that installs it tells its neighbours, and confirms it to those that
        // wait to leave. The observers of joiners tell these.
        let to: BTreeSet<Incarnation> = old
            .chain(new.filter(|_| tells_all))
            .filter(|to| *to != cx.me && !certified.contains(to) && is_near(to))
            .collect();
        for to in to.iter().filter(|_| tells_all) {
            if next.joined.contains(to) {
                self.tell_admission(cx, *to, &next);
            } else {
                cx.send(*to, MembershipMessage::Decide(Box::new((*next).clone())));
            }
        }
        self.leaving.announced(cx, now, &next, to);
        self.follow(cx, now, next);
    }

    /// A decided view, from whatever source.
    pub(crate) fn learn(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: Arc<NodeView>,
        from: Option<Incarnation>,
    ) {
        if cx.fate.is_some()
            || next.lineage != self.installed.view.lineage
            || next.primary_id() <= self.installed.view.primary_id()
        {
            return;
        }
        // G18 no view is skipped: a member that is behind pulls the views in between.
        if next.primary_id() != check::next_id(self.installed.view.primary_id()) {
            // R2: a later view is without this incarnation, so a view in between removed it.
            if !next.contains(cx.me) {
                self.lose_seat(cx, now, &next);
            } else if let Some(from) = from {
                self.pull(cx, now, from);
            }
            return;
        }
        if check::is_successor(&self.installed.view, &next) {
            self.follow(cx, now, next);
        }
    }

    /// The view that follows this one is decided, and was checked already.
    pub(crate) fn follow(&mut self, cx: &mut Context, now: Time, next: Arc<NodeView>) {
        if cx.fate.is_some() {
            return;
        }
        self.tell_decision(cx, now, &next);
        self.confirm_to_leavers(cx, &next);
        if next.contains(cx.me) {
            // A node that departs has left by another view of this id. One of the two views is a lie.
            if cx.history.latest(next.lineage) >= Some(next.primary_id()) {
                return;
            }
            let base = check::change_of(&self.installed.view, &next);
            self.install(cx, now, next, Some(base));
            self.evaluate(cx, now);
        } else {
            self.lose_seat(cx, now, &next);
        }
    }

    /// This incarnation is not in the view that follows.
    fn lose_seat(&mut self, cx: &mut Context, now: Time, next: &Arc<NodeView>) {
        let departure = next
            .departed
            .iter()
            .find(|departure| departure.member.incarnation == cx.me);
        let left = departure.is_some_and(|departure| departure.cause == Cause::Left);
        if left && self.leaving.is_wanted() {
            let follows = next.primary_id() == check::next_id(self.installed.view.primary_id());
            let Installed { topology, engine, .. } = &self.installed;
            let neighbours = (follows && !topology.tells_all()).then(|| {
                let neighbours = topology.neighbours();
                neighbours
                    .filter(|member| !engine.is_certified(*member))
                    .collect()
            });
            return self.leaving.removed(cx, now, next, neighbours);
        }
        let crashed = || check::cause_text(&Cause::Crashed);
        let named = |departure| check::departure_text(&self.installed.view, departure);
        let why = departure.map_or_else(crashed, named);
        self.expelled(
            cx,
            format!("removed by view {} ({}): {why}", next.number, next.id),
        );
    }

    /// R8: a node that believed itself primary is told that it was removed.
    pub(crate) fn expelled(&mut self, cx: &mut Context, cause: String) {
        if self.is_primary() {
            cx.event(Event::Expelled { cause: cause.clone() });
        }
        cx.fate = Some(if self.leaving.is_wanted() {
            Fate::Left
        } else {
            Fate::Over { cause }
        });
    }

    pub(crate) fn handle_slot(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        next: ViewId,
        message: SlotMessage,
    ) {
        if next == check::next_id(self.installed.view.primary_id()) {
            if !self.leaving.is_departing() {
                self.with_engine(cx, now, |engine, around| engine.handle(around, sender, message));
            }
        } else if next > self.installed.view.primary_id() {
            // R1: a member does not vote in a slot before it has installed the view before.
            if slot::votes_ahead() {
                let answer = match message {
                    SlotMessage::Prepare { ballot, .. } => SlotMessage::Promise {
                        ballot,
                        accepted: None,
                    },
                    SlotMessage::Accept { ballot, .. } => SlotMessage::Accepted { ballot },
                    _ => return,
                };
                let slot = SlotId {
                    lineage: self.installed.view.lineage,
                    next,
                };
                cx.send(
                    sender,
                    MembershipMessage::Slot {
                        slot,
                        message: answer,
                    },
                );
            }
            self.pull(cx, now, sender);
        } else if matches!(
            message,
            SlotMessage::Prepare { .. } | SlotMessage::Accept { .. } | SlotMessage::Fast { .. }
        ) {
            // The proposer has missed the decision.
            if let Some(view) = cx.history.get(self.installed.view.lineage, next).cloned() {
                cx.send(sender, MembershipMessage::Decide(Box::new((*view).clone())));
            }
        }
    }
}
