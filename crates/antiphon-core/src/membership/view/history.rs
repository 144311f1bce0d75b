//! The last primary views, with causes and accusers. Members that fell behind pull them, and they answer
//! *why*. Of a large cluster fewer views are kept whole. Of older views only what they changed is kept; that
//! answers *why* and nothing else.
//!
//! # Which members can still follow
//!
//! A partition may leave a member some views behind, and the quorum of the last view may need that member. No
//! view is skipped (R1), so a living member must have each view that it lacks:
//! - *members that have been there since*: they installed these views. A node that hears that such a member
//!   has a later view asks it;
//! - *members that joined later*: such a member installed no view before the one that admits it. So the
//!   member that tells a joiner of its admission first tells it of the earlier views that other members may
//!   lack, by what those members said last ([`Seat::tell_admission`]). The joiner keeps these views when it
//!   takes its seat, and installs none of them. The member that is behind has never met the joiner. It seeks
//!   at the joiner's address, hears from the answer that the joiner is further, and asks it ([`meeting`]).
//!
//! This does not help a member that is more than the last sixteen views behind, or more than two megabytes of
//! them. In a wide view joiners are told nothing of the time before: there are many other members to ask, and
//! several views of thousands are more than a joiner can wait for.
//!
//! Invariant: what a node keeps of a lineage from its admission on has no gap. What it was told of the time
//! before ends at its admission, without a gap.
//!
//! Views travel in order. So if the member that tells the joiner dies in between, either the joiner has the
//! earlier views, or it has not heard that it was admitted. A member that joined and lacks the views it is
//! asked for answers nothing to a member of its view. Another member may have them. If it answered that the
//! asker was removed, the asker would start over: its fresh incarnation would be no member, and its vote
//! would be gone.
//!
//! [`meeting`]: crate::membership::seat::meeting
//! [`Seat::tell_admission`]: crate::membership::seat::Seat::tell_admission

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::{Departure, Incarnation, Lineage, NodeView, NodeViewId, ViewId};

use crate::membership::view::check;
use crate::{Time, ViewChange, WhyEntry};

/// How many primary views are kept.
const KEPT_VIEWS: usize = 100;
/// How many members large views keep together, apart from the last few views: views of thousands are not kept
/// whole a hundred times.
const KEPT_MEMBERS: usize = 20_000;
const KEPT_ALWAYS: usize = 8;
/// Of views that are not kept whole, so many nodes that came and went, and accusations of them, are kept:
/// some megabytes.
const KEPT_CHANGES: usize = 100_000;
/// At most so many views answer one pull, and at most so many bytes of them, unless the first view is larger.
pub(crate) const VIEWS_PER_PULL: usize = 16;
const BYTES_PER_PULL: usize = 2 << 20;

/// The last primary views that this process installed, across its incarnations, or that it was told of when
/// it was admitted.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What the views changed that are no longer kept whole. All of them are older than `views`.
    past: VecDeque<(Time, ViewChange)>,
    views: VecDeque<(Time, Arc<NodeView>)>,
}

impl History {
    pub(crate) fn push(&mut self, now: Time, view: Arc<NodeView>) {
        let before = self.latest(view.lineage);
        assert!(
            before < Some(view.primary_id()) || planted!(),
            "R5: view {} is kept after {before:?}",
            view.id
        );
        self.views.push_back((now, view));
        let members = |views: &VecDeque<(Time, Arc<NodeView>)>| -> usize {
            views.iter().map(|(_, view)| view.members.len()).sum()
        };
        while self.views.len() > KEPT_VIEWS
            || self.views.len() > KEPT_ALWAYS && members(&self.views) > KEPT_MEMBERS
        {
            let oldest = self.views.pop_front();
            self.past
                .extend(oldest.map(|(installed, view)| (installed, ViewChange::of(&view))));
        }
        let weight = |past: &VecDeque<(Time, ViewChange)>| -> usize {
            past.iter().map(|(_, change)| change.weight()).sum()
        };
        while self.past.len() + self.views.len() > KEPT_VIEWS || weight(&self.past) > KEPT_CHANGES {
            self.past.pop_front();
        }
        assert!(
            !self.views.is_empty() && self.past.len() + self.views.len() <= KEPT_VIEWS,
            "history: {} views are kept, and what {} more changed",
            self.views.len(),
            self.past.len()
        );
    }

    /// Notes the views before the one that admits this node, as it was told of them, in order.
    pub(crate) fn recall(&mut self, now: Time, earlier: impl IntoIterator<Item = Arc<NodeView>>) {
        for view in earlier {
            let last = self.of(view.lineage).last().map(|last| last.primary_id());
            if last < Some(view.primary_id()) {
                self.push(now, view);
            }
        }
    }

    /// The view with this id.
    pub(crate) fn get(&self, lineage: Lineage, id: ViewId) -> Option<&Arc<NodeView>> {
        self.of(lineage).find(|view| view.primary_id() == id)
    }

    /// The views after this one, in order and without a gap. `None` if they are no longer kept.
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
            .is_some_and(|view| view.primary_id() != check::next_id(after));
        (!gap).then_some(later)
    }

    /// The latest view of this lineage that is kept.
    pub(crate) fn latest(&self, lineage: Lineage) -> Option<ViewId> {
        self.of(lineage).last().map(|view| view.primary_id())
    }

    /// The view in which this incarnation joined.
    pub(crate) fn admission(&self, lineage: Lineage, incarnation: Incarnation) -> Option<&Arc<NodeView>> {
        self.of(lineage).find(|view| view.joined.contains(&incarnation))
    }

    /// Whether this node had the view after this one, or would have been a member of it: it was admitted by
    /// then.
    pub(crate) fn was_there_after(&self, lineage: Lineage, after: ViewId, me: Incarnation) -> bool {
        let admitted = self.admission(lineage, me);
        admitted.is_none_or(|admitted| admitted.primary_id() <= check::next_id(after))
    }

    /// The last views before one that admits nodes that some older member of it may not have installed, as
    /// many as answer one pull. `said`: the older members that count, and which view each said it has
    /// installed.
    pub(crate) fn lacked_by_some(
        &self,
        first: &NodeView,
        said: impl Iterator<Item = (Incarnation, Option<ViewId>)>,
    ) -> VecDeque<Arc<NodeView>> {
        let lineage = first.lineage;
        let installed = |(member, said): (Incarnation, Option<ViewId>)| {
            said.or_else(|| {
                // The member has not said anything yet. It has installed the view that admits it, at least,
                // or was there before this node.
                let admission = self.admission(lineage, member);
                admission.map_or_else(|| self.before(lineage), |view| Some(view.primary_id()))
            })
        };
        let behind = said.filter_map(installed).min();
        behind.map_or_else(VecDeque::new, |behind| {
            self.between(lineage, behind, first.primary_id())
        })
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
        let past = self.past.iter();
        let past = past.map(|(installed, change)| (installed, Cow::Borrowed(change)));
        let whole = self.views.iter();
        let whole = whole.map(|(installed, view)| (installed, Cow::Owned(ViewChange::of(view))));
        for (installed, change) in past.chain(whole) {
            let ago_ms = u64::try_from(now.since(*installed).as_millis()).unwrap_or(u64::MAX);
            let (NodeViewId::Primary { id: view } | NodeViewId::NonPrimary { base: view, .. }) = change.id;
            let number = change.number;
            let departed = change.departed.iter().filter(|departed| departed.name == name);
            entries.extend(departed.map(|departed| WhyEntry::Departed {
                incarnation: departed.incarnation,
                view,
                number,
                cause: departed.cause.clone(),
                accusers: departed.accusers.clone(),
                ago_ms,
            }));
            let joined = change.joined.iter().filter(|(_, joined)| joined == name);
            entries.extend(joined.map(|(incarnation, _)| WhyEntry::Joined {
                incarnation: *incarnation,
                view,
                number,
                ago_ms,
            }));
        }
        entries
    }

    /// The last views after one id and before another, as many as answer one pull.
    fn between(&self, lineage: Lineage, after: ViewId, before: ViewId) -> VecDeque<Arc<NodeView>> {
        let is_between = |view: &&Arc<NodeView>| after < view.primary_id() && view.primary_id() < before;
        let mut all: VecDeque<Arc<NodeView>> = self.of(lineage).filter(is_between).cloned().collect();
        let mut bytes: usize = all.iter().map(|view| encode_to_vec(&**view).len()).sum();
        while all.len() > VIEWS_PER_PULL || bytes > BYTES_PER_PULL {
            bytes -= all.pop_front().map_or(bytes, |view| encode_to_vec(&*view).len());
        }
        all
    }

    /// The id that comes before the oldest view of this lineage that is kept whole.
    fn before(&self, lineage: Lineage) -> Option<ViewId> {
        let ViewId { epoch, counter } = self.of(lineage).next()?.primary_id();
        let counter = counter.saturating_sub(1);
        Some(ViewId { epoch, counter })
    }

    fn of(&self, lineage: Lineage) -> impl Iterator<Item = &Arc<NodeView>> {
        self.views
            .iter()
            .map(|(_, view)| view)
            .filter(move |view| view.lineage == lineage)
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::{Cause, Member};

    use super::*;

    const MEMBERS: u32 = 2000;

    fn member(number: u32) -> Member {
        Member {
            incarnation: Incarnation(u128::from(number)),
            name: format!("n{number}"),
            addr: ([127, 0, 0, 1], 1).into(),
            further: Vec::new(),
            metadata: Default::default(),
            weight: 1,
        }
    }

    fn id(counter: u32) -> ViewId {
        ViewId { epoch: 1, counter }
    }

    /// A view of thousands: its youngest member has just come, and the one that came with the view before is
    /// gone.
    fn view(number: u32) -> NodeView {
        NodeView {
            lineage: Lineage(1),
            id: NodeViewId::Primary { id: id(number) },
            number,
            members: (0..MEMBERS).chain([MEMBERS + number]).map(member).collect(),
            joined: vec![member(MEMBERS + number).incarnation],
            departed: vec![Departure {
                member: member(MEMBERS + number - 1),
                cause: Cause::Crashed,
                accusers: Vec::new(),
            }],
            merged: Vec::new(),
            wire_level: 1,
        }
    }

    #[test]
    fn the_last_hundred_views_answer_why_in_a_cluster_of_thousands_and_a_few_are_kept_whole() {
        let mut history = History::default();
        (1..=150).for_each(|number| history.push(Time::ZERO, Arc::new(view(number))));
        let known = |number: u32| {
            let entries = history.why(Time::ZERO, &format!("n{}", MEMBERS + number));
            let told = entries.into_iter().map(|entry| match entry {
                WhyEntry::Joined { number, .. } => ("joined", number),
                WhyEntry::Departed { number, .. } => ("departed", number),
                other => panic!("{other:?}"),
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(known(49), []);
        assert_eq!(known(50), [("departed", 51)]);
        for number in 51..150 {
            assert_eq!(known(number), [("joined", number), ("departed", number + 1)]);
        }
        // The views that can answer a pull.
        let whole = (1..=150).filter(|number| history.get(Lineage(1), id(*number)).is_some());
        assert_eq!(whole.count(), KEPT_MEMBERS / MEMBERS as usize - 1);
    }

    #[test]
    fn many_that_come_with_each_view_are_forgotten_before_they_take_much() {
        let mut history = History::default();
        for number in 1..=100 {
            let mut crowd = view(number);
            crowd.joined = crowd.members.iter().map(|member| member.incarnation).collect();
            history.push(Time::ZERO, Arc::new(crowd));
        }
        let whole = KEPT_MEMBERS / MEMBERS as usize - 1;
        let past = KEPT_CHANGES / (MEMBERS as usize + 2);
        assert_eq!((history.views.len(), history.past.len()), (whole, past));
    }
}
