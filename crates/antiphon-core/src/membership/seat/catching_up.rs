//! A member that is behind pulls the views that it lacks; others show it the views that they keep.

use std::collections::VecDeque;
use std::sync::Arc;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, Lineage, NodeView, ViewId};

use crate::Time;
use crate::membership::context::Context;
use crate::membership::seat::Seat;

impl Seat {
    /// Asks a member for the views that are missing here.
    pub(crate) fn pull(&mut self, cx: &mut Context, now: Time, from: Incarnation) {
        if self.pulls.may_ask(now, cx.config.profile.retransmit / 2) {
            let (lineage, after) = (self.installed.view.lineage, self.installed.view.primary_id());
            cx.send(from, MembershipMessage::Pull { lineage, after });
        }
    }

    /// A member has a later view. In a wide view the decision is most likely on its way to this node as well,
    /// and a whole view is much to ask for.
    pub(crate) fn pull_soon(&mut self, cx: &mut Context, now: Time, from: Incarnation) {
        if self.installed.topology.tells_all() {
            self.pull(cx, now, from);
        } else {
            self.pulls.ask_later(now + cx.config.profile.batch * 8, from);
        }
    }

    /// Asks the member that was to be asked by now, if this node still lacks its view.
    pub(crate) fn pull_late(&mut self, cx: &mut Context, now: Time) {
        if let Some(from) = self.pulls.take_due(now) {
            self.reach(cx, from);
            self.pull(cx, now, from);
        }
    }

    /// Answers a pull, but only one from each peer within a moment: four answers are as much as its channel
    /// holds.
    pub(crate) fn show_views(
        &mut self,
        cx: &mut Context,
        now: Time,
        to: Incarnation,
        (lineage, after): (Lineage, ViewId),
    ) {
        let Some(views) = cx.history.after(lineage, after) else {
            if cx.history.was_there_after(lineage, after, cx.me) || !self.installed.view.contains(to) {
                // Too far behind to follow view by view: only a fresh incarnation gets in again.
                self.tell_removed(cx, now, to);
            }
            return;
        };
        if views.is_empty() || !self.pulls.may_answer(now, to, cx.config.profile.retransmit) {
            return;
        }
        for view in views {
            cx.send(to, MembershipMessage::Decide(Box::new((*view).clone())));
        }
    }

    /// Tells a joiner of the view that admits it, and first of those before it that a member may not have
    /// installed: the other members that have them may die.
    pub(crate) fn tell_admission(&self, cx: &mut Context, joiner: Incarnation, first: &Arc<NodeView>) {
        // In a wide view a member knows only of few others what they say, and views are large.
        let earlier = if self.installed.topology.hears_all() && !planted!(AdmitWithoutThePast) {
            let others = first.members.iter().map(|member| member.incarnation);
            let others = others.filter(|member| *member != cx.me && !first.joined.contains(member));
            let living = others.filter(|member| !self.installed.engine.is_certified(*member));
            let said = living.map(|member| (member, self.reports.get(member).map(|report| report.view)));
            cx.history.lacked_by_some(first, said)
        } else {
            VecDeque::new()
        };
        // The joiner asked another member to be admitted, which may be gone. The joiner and this node may
        // never have met.
        if let Some(member) = first.member(joiner)
            && !cx.peers.contains_key(&joiner)
        {
            cx.know_peer(joiner, member.addr);
            self.here(cx, member.addr);
        }
        for view in earlier.into_iter().chain([first.clone()]) {
            cx.send(joiner, MembershipMessage::Decide(Box::new((*view).clone())));
        }
    }
}
