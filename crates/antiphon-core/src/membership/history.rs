//! The last primary views, with causes and accusers: what members that fell behind pull, and what answers *why*.

use std::collections::VecDeque;
use std::sync::Arc;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Departure, Incarnation, Lineage, NodeView, ViewId};

use super::context::Context;
use super::seat::Seat;
use crate::{Time, WhyEntry};

/// How many primary views are kept in full.
pub(crate) const KEPT_VIEWS: usize = 100;
/// How many members large views keep together, apart from the last few: those of thousands are not kept a hundred times.
const KEPT_MEMBERS: usize = 20_000;
const KEPT_ALWAYS: usize = 8;
/// How many views answer one pull, and how many bytes of them, unless the first is larger.
const VIEWS_PER_PULL: usize = 16;
const BYTES_PER_PULL: usize = 2 << 20;

/// The last primary views that this process installed, across its incarnations.
#[derive(Debug, Default)]
pub(crate) struct History {
    views: VecDeque<(Time, Arc<NodeView>)>,
}

impl History {
    pub(crate) fn push(&mut self, now: Time, view: Arc<NodeView>) {
        self.views.push_back((now, view));
        let members = |views: &VecDeque<(Time, Arc<NodeView>)>| -> usize {
            views.iter().map(|(_, view)| view.members.len()).sum()
        };
        while self.views.len() > KEPT_VIEWS
            || self.views.len() > KEPT_ALWAYS && members(&self.views) > KEPT_MEMBERS
        {
            self.views.pop_front();
        }
    }

    /// The view with this id.
    pub(crate) fn get(&self, lineage: Lineage, id: ViewId) -> Option<&Arc<NodeView>> {
        self.of(lineage).find(|view| view.primary_id() == id)
    }

    /// The views after this one, in order and without a gap; `None` if they are not kept any more.
    pub(crate) fn after(&self, lineage: Lineage, after: ViewId) -> Option<Vec<Arc<NodeView>>> {
        let mut bytes = 0;
        let later: Vec<_> = self
            .of(lineage)
            .filter(|view| view.primary_id() > after)
            .take(VIEWS_PER_PULL)
            .take_while(|view| {
                let first = bytes == 0;
                bytes += encode_to_vec(&***view).len();
                first || bytes <= BYTES_PER_PULL
            })
            .cloned()
            .collect();
        let gap = later
            .first()
            .is_some_and(|view| view.primary_id() != super::check::next_id(after));
        (!gap).then_some(later)
    }

    /// The view in which this incarnation joined.
    pub(crate) fn admission(&self, lineage: Lineage, incarnation: Incarnation) -> Option<&Arc<NodeView>> {
        self.of(lineage).find(|view| view.joined.contains(&incarnation))
    }

    /// How this incarnation departed.
    pub(crate) fn departure(&self, incarnation: Incarnation) -> Option<&Departure> {
        self.views
            .iter()
            .rev()
            .flat_map(|(_, view)| &view.departed)
            .find(|departure| departure.member.incarnation == incarnation)
    }

    /// What the views say about nodes of this name, oldest first.
    pub(crate) fn why(&self, now: Time, name: &str) -> Vec<WhyEntry> {
        let mut entries = Vec::new();
        for (installed, view) in &self.views {
            let ago_ms = u64::try_from(now.since(*installed).as_millis()).unwrap_or(u64::MAX);
            let (id, number) = (view.primary_id(), view.number);
            for departure in view
                .departed
                .iter()
                .filter(|departure| departure.member.name == name)
            {
                entries.push(WhyEntry::Departed {
                    incarnation: departure.member.incarnation,
                    view: id,
                    number,
                    cause: departure.cause.clone(),
                    accusers: departure.accusers.clone(),
                    ago_ms,
                });
            }
            let joined = view
                .members
                .iter()
                .filter(|member| view.joined.contains(&member.incarnation));
            for member in joined.filter(|member| member.name == name) {
                entries.push(WhyEntry::Joined {
                    incarnation: member.incarnation,
                    view: id,
                    number,
                    ago_ms,
                });
            }
        }
        entries
    }

    fn of(&self, lineage: Lineage) -> impl Iterator<Item = &Arc<NodeView>> {
        self.views
            .iter()
            .map(|(_, view)| view)
            .filter(move |view| view.lineage == lineage)
    }
}

impl Seat {
    /// Asks a member for the views that are missing here.
    pub(crate) fn pull(&mut self, cx: &mut Context, now: Time, from: Incarnation) {
        if now >= self.next_pull {
            self.next_pull = now + cx.config.profile.retransmit / 2;
            let (lineage, after) = (self.view.lineage, self.view.primary_id());
            cx.send(from, MembershipMessage::Pull { lineage, after });
        }
    }

    /// Answers a pull. One from each peer within a moment: four answers are as much as its link holds.
    pub(super) fn show_views(
        &mut self,
        cx: &mut Context,
        now: Time,
        to: Incarnation,
        (lineage, after): (Lineage, ViewId),
    ) {
        let lately = cx.config.profile.retransmit;
        self.pulled.retain(|_, at| now.since(*at) < lately);
        let Some(views) = cx.history.after(lineage, after) else {
            // Too far behind to follow view by view: only a fresh incarnation gets in again.
            return self.tell_removed(cx, now, to);
        };
        if views.is_empty() || self.pulled.contains_key(&to) {
            return;
        }
        self.pulled.insert(to, now);
        for view in views {
            cx.send(to, MembershipMessage::Decide(Box::new((*view).clone())));
        }
    }
}
