//! G41 under the policy `any`. Every component goes on, by the word of all its members. Two components that
//! meet become one, and in one of them members had stayed. What views say of where members come from is true.
//! Under `majority`, G5: members of a component that wait for a majority agree on which members wait.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::BallotStep;
use antiphon_core::wire::{Cause, Incarnation, NodeView, Subview};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{End, History, Life, begins_anew, names};
use crate::trace::{ProcessId, Seen, Slot};

/// A component that has stayed as it is for so many heartbeats has gone on.
const STABLE: u64 = 150;
/// A component that has stayed as it is for so many heartbeats has agreed on its members.
const SETTLED: u64 = 50;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for life in &history.lives {
        yields(history, life, report);
    }
    if !history.trace.any {
        return Ground::default().check(history, report);
    }
    for life in &history.lives {
        crossings(history, life, report);
    }
    merges(history, report);
    Ground::default().check(history, report);
}

/// A node that goes to another lineage in one incarnation is in a part of the view that it left, and all
/// members of that part had said yes to exactly that.
fn crossings(history: &History<'_>, life: &Life, report: &mut Report) {
    let mut last: Option<&NodeView> = None;
    for (at, view) in life.primaries() {
        let old = last.replace(view);
        let crosses = old.is_some_and(|old| old.lineage != view.lineage);
        if !crosses && view.separates().is_none() {
            continue;
        }
        let is_part = old.is_some_and(|old| is_part_of(old, view));
        report.check("G41", *at, is_part, || {
            format!(
                "{} went to node view {} {} of {}, which is no part of what it left: {}",
                history.name(life),
                view.id,
                names(view),
                view.lineage,
                old.map_or("nothing".to_owned(), names)
            )
        });
        let missing = unacknowledged(history, *at, view);
        report.check("G41", *at, missing.is_none(), || {
            format!(
                "{} went to node view {} {} of {} before {} had acknowledged it",
                history.name(life),
                view.id,
                names(view),
                view.lineage,
                missing.map(|member| member.short()).unwrap_or_default()
            )
        });
    }
}

fn is_part_of(old: &NodeView, new: &NodeView) -> bool {
    let separated = Cause::Separated {
        lineage: old.lineage,
        view: old.primary_id(),
    };
    let old_ones = old.members.iter();
    let stays = old_ones.filter(|member| new.contains(member.incarnation));
    begins_anew(old, new, &separated) && new.merged.is_empty() && stays.eq(&new.members)
}

/// A member that has not said yes to a view until then.
fn unacknowledged(history: &History<'_>, at: Micros, view: &NodeView) -> Option<Incarnation> {
    let notes = history.ballots.get(&(view.lineage, view.primary_id()));
    let said: BTreeSet<Incarnation> = notes
        .into_iter()
        .flatten()
        .filter(|(said, note)| *said <= at && note.step == BallotStep::Accepted && *note.view == *view)
        .map(|(_, note)| note.by)
        .collect();
    let mut members = view.members.iter().map(|member| member.incarnation);
    members.find(|member| !said.contains(member))
}

/// A member that gives way to another lineage leaves a process there that was a member and goes on to be one.
fn yields(history: &History<'_>, life: &Life, report: &mut Report) {
    let Some((at, into)) = &life.gave_way else { return };
    let soon = at + history.trace.heartbeat;
    let stays = history.lives.iter().any(|other| {
        let views = other.views.iter().take_while(|(seen, _)| seen <= at);
        let there = views
            .last()
            .is_some_and(|(_, view)| view.is_primary() && view.lineage == *into);
        there
            && match other.end {
                End::Open => true,
                End::Succeeded(ended) => ended > soon,
                // What dies after its promise has kept it.
                End::Process(ended, _) => ended + 20 * history.trace.heartbeat > *at,
            }
    });
    report.check("G41", *at, stays, || {
        format!(
            "{} gave way to {into}, of which nobody was there, or stayed",
            history.name(life)
        )
    });
}

/// What a merge says is what the next view has, and where its members had been.
fn merges(history: &History<'_>, report: &mut Report) {
    let mut said: BTreeMap<ProcessId, (Micros, &Vec<Subview>)> = BTreeMap::new();
    for line in &history.trace.lines {
        match &line.what {
            Seen::Merge(subviews) => {
                said.insert(line.process, (line.at, subviews));
            }
            Seen::NodeView(view) => {
                let before = said.remove(&line.process).map(|(_, subviews)| subviews.clone());
                let subviews = view.subviews();
                let told = before.unwrap_or_default();
                report.check("G41", line.at, told == subviews, || {
                    format!(
                        "p{} was told of a merge of {told:?} before node view {} of {subviews:?}",
                        line.process, view.id
                    )
                });
                if view.is_primary() {
                    origins(history, line.at, view, report);
                }
            }
            Seen::Group(..) if said.contains_key(&line.process) => {
                report.fail(
                    "G41",
                    line.at,
                    format!("p{}: something came between a merge and its view", line.process),
                );
            }
            _ => {}
        }
    }
}

/// Each joiner that was in another lineage before is named with the last view that it had there, and no other
/// joiner is.
fn origins(history: &History<'_>, at: Micros, view: &NodeView, report: &mut Report) {
    // A member that founds anew meets no other.
    if view.primary_id().counter == 1 {
        let alone = view.members.len() == 1 || view.primary_id().epoch == 1 || view.separates().is_some();
        return report.check("G41", at, alone && view.merged.is_empty(), || {
            format!(
                "node view {} {} is a first one, and a merge",
                view.id,
                names(view)
            )
        });
    }
    for joined in &view.joined {
        let Some(life) = history.life(*joined) else {
            continue;
        };
        let earlier = history
            .lives
            .iter()
            .filter(|other| other.process == life.process && other.from < life.from);
        let last = earlier.flat_map(|other| other.primaries()).last();
        let from = last
            .map(|(_, last)| (last.lineage, last.primary_id()))
            .filter(|(lineage, _)| *lineage != view.lineage);
        let named = view
            .merged
            .iter()
            .find(|subview| subview.members.contains(joined));
        let named = named.map(|subview| (subview.lineage, subview.view));
        // Its first view of this lineage may be one of those that it is asked for again and again.
        report.check("G41", at, named == from, || {
            format!(
                "node view {} says that {} comes from {named:?}, it was in {from:?}",
                view.id,
                history.name(life)
            )
        });
    }
}

/// The processes that run at each place, and the places that reach each other.
#[derive(Debug, Default)]
struct Ground {
    running: BTreeMap<Slot, ProcessId>,
    views: BTreeMap<ProcessId, NodeView>,
    incarnations: BTreeMap<ProcessId, Incarnation>,
    /// Processes that have no vote.
    voteless: BTreeSet<ProcessId>,
    cut: BTreeSet<(Slot, Slot)>,
    rough: bool,
    /// Since when all this is as it is; calm from then on.
    since: Micros,
}

impl Ground {
    fn check(mut self, history: &History<'_>, report: &mut Report) {
        for line in &history.trace.lines {
            let changes = self.changes(&line.what);
            if changes {
                self.look(history, line.at, report);
            }
            self.learn(line.process, &line.what);
            if changes {
                self.since = self.since.max(line.at);
            }
        }
        let end = history.trace.lines.last().map_or(0, |line| line.at);
        self.look(history, end, report);
    }

    fn changes(&self, what: &Seen) -> bool {
        match what {
            Seen::Started { .. } | Seen::Ended(_) | Seen::AskedToLeave | Seen::Rough(_) => true,
            Seen::Disturbed { .. } | Seen::Fault(_) => true,
            Seen::Cut { from, to, cut } => self.cut.contains(&(*from, *to)) != *cut,
            _ => false,
        }
    }

    fn learn(&mut self, process: ProcessId, what: &Seen) {
        match what {
            Seen::Started { slot, member, .. } => {
                self.running.insert(*slot, process);
                if member.weight == 0 {
                    self.voteless.insert(process);
                }
            }
            Seen::Ended(_) => self.running.retain(|_, running| *running != process),
            Seen::Incarnation(incarnation) => {
                self.incarnations.insert(process, *incarnation);
            }
            Seen::NodeView(view) => {
                self.views.insert(process, (**view).clone());
            }
            Seen::Cut { from, to, cut: true } => {
                self.cut.insert((*from, *to));
            }
            Seen::Cut { from, to, cut: false } => {
                self.cut.remove(&(*from, *to));
            }
            Seen::Rough(rough) => self.rough = *rough,
            Seen::Disturbed { until, .. } => self.since = self.since.max(*until),
            _ => {}
        }
    }

    /// Each component that was as it is for long has one primary view, of all its members and no others.
    fn look(&self, history: &History<'_>, at: Micros, report: &mut Report) {
        let stable = if history.trace.any { STABLE } else { SETTLED };
        if self.rough || at < self.since + stable * history.trace.heartbeat {
            return;
        }
        for component in self.components() {
            if !history.trace.any {
                self.look_without_a_majority(&component, at, report);
                continue;
            }
            let members: BTreeSet<Incarnation> = component
                .iter()
                .filter_map(|slot| self.incarnations.get(self.running.get(slot)?).copied())
                .collect();
            // Without a vote nothing is decided.
            let has_vote = |slot: &Slot| self.running.get(slot).is_some_and(|p| !self.voteless.contains(p));
            if !component.iter().any(has_vote) {
                continue;
            }
            // A node that was never a member founds by its seeds, or not at all.
            let fresh = |slot: &&Slot| !self.running.get(slot).is_some_and(|p| self.views.contains_key(p));
            if component.iter().any(|slot| fresh(&slot)) {
                continue;
            }
            for slot in &component {
                let view = self.running.get(slot).and_then(|process| self.views.get(process));
                let seen = view.map(|view| view.members.iter().map(|member| member.incarnation).collect());
                let goes_on = view.is_some_and(NodeView::is_primary) && seen.as_ref() == Some(&members);
                report.check("G41", at, goes_on, || {
                    format!(
                        "n{slot} is in {} {}, and has been in the component n{component:?} for long",
                        view.map_or("no view".to_owned(), |view| format!(
                            "{} view {}",
                            if view.is_primary() {
                                "primary"
                            } else {
                                "non-primary"
                            },
                            view.id
                        )),
                        view.map(names).unwrap_or_default()
                    )
                });
            }
        }
    }

    /// If one of the members of one primary view is in no primary view any more, they are all in one and the
    /// same view: members that still are in the primary one hear a quorum and decide the next, or they hear
    /// none, or are blocked.
    fn look_without_a_majority(&self, component: &BTreeSet<Slot>, at: Micros, report: &mut Report) {
        let seen = component.iter().filter_map(|slot| {
            let process = self.running.get(slot)?;
            let view = self.views.get(process)?;
            let me = self.incarnations.get(process)?;
            view.contains(*me).then_some((slot, view))
        });
        let mut of: BTreeMap<_, Vec<(&Slot, &NodeView)>> = BTreeMap::new();
        for (slot, view) in seen {
            let base = (view.lineage, view.primary_id());
            of.entry(base).or_default().push((slot, view));
        }
        for views in of.into_values() {
            let (first, rest) = (views[0], &views[1..]);
            let waits = views.iter().any(|(_, view)| !view.is_primary());
            if let Some((slot, view)) = rest.iter().find(|(_, view)| waits && *view != first.1) {
                let what = format!(
                    "n{} is in {} {} and n{slot} in {} {}, and both have been in the component n{component:?} for long",
                    first.0,
                    first.1.id,
                    names(first.1),
                    view.id,
                    names(view)
                );
                report.check("G5", at, false, || what);
            } else if waits && !rest.is_empty() {
                report.check("G5", at, true, String::new);
            }
        }
    }

    /// Places that reach each other, each in both directions, and no other place in any direction. If that is
    /// not so for a place, nothing is said of it.
    fn components(&self) -> Vec<BTreeSet<Slot>> {
        let reaches = |from: Slot, to: Slot| from == to || !self.cut.contains(&(from, to));
        let slots: Vec<Slot> = self.running.keys().copied().collect();
        let mut components: BTreeSet<BTreeSet<Slot>> = BTreeSet::new();
        for one in &slots {
            let around: BTreeSet<Slot> = slots
                .iter()
                .copied()
                .filter(|other| reaches(*one, *other) || reaches(*other, *one))
                .collect();
            let whole = around.iter().all(|a| {
                around.iter().all(|b| reaches(*a, *b))
                    && slots
                        .iter()
                        .all(|b| around.contains(b) || (!reaches(*a, *b) && !reaches(*b, *a)))
            });
            if !whole {
                return Vec::new();
            }
            components.insert(around);
        }
        components.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use antiphon_core::Order;
    use antiphon_core::wire::{NodeView, NodeViewId};

    use super::*;
    use crate::check::testing::{Story, incarnation};

    /// A non-primary view of the last two of five.
    fn bereft(members: &[ProcessId], attempt: u32) -> NodeView {
        let base = Story::view(&[0, 1, 2, 3, 4], &[], 1);
        let mut view = Story::view(members, &[0, 1, 2, 3, 4], 1);
        view.number = base.number;
        view.id = NodeViewId::NonPrimary {
            base: base.primary_id(),
            attempt,
            proposer: incarnation(members[0]),
        };
        view
    }

    /// Two of five are cut off for so many heartbeats; the second one has gone on alone for a while, and
    /// follows the first one or not.
    fn minority(heartbeats: u64, follows: bool) -> Vec<&'static str> {
        let mut story = Story::of(5, Order::Total);
        for (from, to) in [0, 1, 2].into_iter().flat_map(|one| [(one, 3), (one, 4)]) {
            story.add(from, Seen::Cut { from, to, cut: true });
            let (from, to) = (to, from);
            story.add(from, Seen::Cut { from, to, cut: true });
        }
        story.seen(&Arc::new(bereft(&[3, 4], 1)), &[3, 4]);
        story.seen(&Arc::new(bereft(&[4], 2)), &[4]);
        if follows {
            story.seen(&Arc::new(bereft(&[3, 4], 3)), &[3, 4]);
        }
        story.now += heartbeats * story.trace.heartbeat;
        story.add(0, Seen::Rough(true));
        let violations = story.judge().violations.into_iter();
        violations.map(|violation| violation.guarantee).collect()
    }

    /// One member of a whole component of three is in no primary view, and the others go on as if it were.
    #[test]
    fn who_stays_in_the_primary_view_beside_one_that_is_not_is_rejected() {
        let mut story = Story::of(3, Order::Total);
        let mut view = bereft(&[0], 1);
        let base = Story::view(&[0, 1, 2], &[], 1);
        (view.lineage, view.departed) = (base.lineage, Story::view(&[0], &[0, 1, 2], 1).departed);
        story.seen(&Arc::new(view), &[0]);
        story.now += 60 * story.trace.heartbeat;
        story.add(0, Seen::Rough(true));
        story.is_rejected_for("G5");
    }

    #[test]
    fn a_minority_that_stays_in_two_views_is_rejected() {
        assert!(minority(60, false).contains(&"G5"));
        assert!(!minority(60, true).contains(&"G5"));
        assert!(!minority(10, false).contains(&"G5"), "it may need a moment");
    }
}
