//! A member that is behind pulls the views that it lacks; others show it the views that they keep.

use std::sync::Arc;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, Lineage, NodeView, ViewId};

use crate::Time;
use crate::membership::context::Context;
use crate::membership::seat::Seat;

impl Seat {
    /// Asks a member for the views that are missing here.
    pub(crate) fn pull(&mut self, cx: &mut Context, now: Time, from: Incarnation) {
        if now >= self.next_pull {
            self.next_pull = now + cx.config.profile.retransmit / 2;
            let (lineage, after) = (self.installed.view.lineage, self.installed.view.primary_id());
            cx.send(from, MembershipMessage::Pull { lineage, after });
        }
    }

    /// Answers a pull, but only one from each peer within a moment: four answers are as much as its link
    /// holds.
    pub(crate) fn show_views(
        &mut self,
        cx: &mut Context,
        now: Time,
        to: Incarnation,
        (lineage, after): (Lineage, ViewId),
    ) {
        let lately = cx.config.profile.retransmit;
        self.pulled.retain(|_, at| now.since(*at) < lately);
        let Some(views) = cx.history.after(lineage, after) else {
            let admitted = cx.history.admission(lineage, cx.me).map(|view| view.primary_id());
            let was_there =
                admitted.is_none_or(|admitted| admitted <= crate::membership::view::check::next_id(after));
            if was_there || !self.installed.view.contains(to) {
                // Too far behind to follow view by view: only a fresh incarnation gets in again.
                self.tell_removed(cx, now, to);
            }
            return;
        };
        if views.is_empty() || self.pulled.contains_key(&to) {
            return;
        }
        self.pulled.insert(to, now);
        for view in views {
            cx.send(to, MembershipMessage::Decide(Box::new((*view).clone())));
        }
    }

    /// Tells a joiner of the view that admits it, and first of those before it that a member may not have
    /// installed: the other members that have them may die.
    pub(crate) fn tell_admission(&self, cx: &mut Context, joiner: Incarnation, first: &Arc<NodeView>) {
        let lineage = first.lineage;
        let is_behind = |member: Incarnation| match self.reports.get(&member) {
            Some(report) => Some(report.view),
            // The member has not said anything yet. It has installed the view that admits it, at least, or
            // was there before this node.
            None => {
                let admission = cx.history.admission(lineage, member);
                admission.map_or_else(|| cx.history.before(lineage), |view| Some(view.primary_id()))
            }
        };
        let old = first.members.iter().map(|member| member.incarnation);
        let old = old.filter(|member| *member != cx.me && !first.joined.contains(member));
        let behind = old
            .filter(|member| !self.installed.engine.is_certified(*member))
            .filter_map(is_behind)
            .min();
        // In a wide view a member knows only of few others what they say, and views are large.
        let behind = behind.filter(|_| self.installed.topology.hears_all() && !planted!(AdmitWithoutThePast));
        // The joiner asked another member to be admitted, which may be gone. The joiner and this node may
        // never have met.
        if let Some(member) = first.member(joiner)
            && !cx.peers.contains_key(&joiner)
        {
            cx.know_peer(joiner, member.addr);
            self.here(cx, member.addr);
        }
        let earlier = behind.map(|behind| cx.history.between(lineage, behind, first.primary_id()));
        let earlier = earlier.unwrap_or_default().into_iter();
        for view in earlier.chain([first.clone()]) {
            cx.send(joiner, MembershipMessage::Decide(Box::new((*view).clone())));
        }
    }
}
