//! The way of frames that members hand on: each from a member to the next of its view, once, and never back
//! to the member that sealed it.
//!
//! A chain that circles, or that leaves a member out, breaks no guarantee: repairs make up for it. Only this
//! checker sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::GroupView;
use antiphon_core::wire::{GroupId, GroupViewId, Incarnation};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::History;
use crate::trace::{Hop, ProcessId, Slot};

/// What was heard of the views of groups.
struct Views {
    /// Where each incarnation ran.
    places: BTreeMap<Incarnation, (ProcessId, Slot)>,
    views: BTreeMap<(GroupId, GroupViewId), Arc<GroupView>>,
    /// From when to when each process had a view.
    had: BTreeMap<(ProcessId, GroupId, GroupViewId), (Micros, Micros)>,
}

pub(super) fn check(history: &History<'_>, hops: &[Hop], report: &mut Report) {
    let views = Views::new(history);
    let mut seen = BTreeSet::new();
    for hop in hops {
        report.check("chain", hop.at, seen.insert((hop.by, hop.frame)), || {
            format!("process {} sent frame {} a second time", hop.by, name(hop))
        });
        if let Some(wrong) = views.misplaced(hop) {
            report.fail("chain", hop.at, format!("frame {} {wrong}", name(hop)));
        }
    }
}

fn name(hop: &Hop) -> String {
    format!("{} of {} in view {}", hop.frame.1, hop.frame.0.short(), hop.view)
}

impl Views {
    fn new(history: &History<'_>) -> Self {
        let mut found = Self {
            places: BTreeMap::new(),
            views: BTreeMap::new(),
            had: BTreeMap::new(),
        };
        for life in &history.lives {
            if let Some(facts) = history.processes.get(&life.process) {
                found.places.insert(life.incarnation, (life.process, facts.slot));
            }
        }
        for (life, stay) in history.stays() {
            for (index, epoch) in stay.epochs.iter().enumerate() {
                let key = (epoch.view.group, epoch.view.id);
                found.views.entry(key).or_insert_with(|| epoch.view.clone());
                let until = stay.epochs.get(index + 1).map_or(Micros::MAX, |next| next.at);
                // What is told when a node believes again may have been so for a while.
                let from = if life.believed.contains(&epoch.at) {
                    life.from
                } else {
                    epoch.at
                };
                found.had.insert((life.process, key.0, key.1), (from, until));
            }
        }
        found
    }

    /// What is wrong with a hop, as far as its view was heard of.
    fn misplaced(&self, hop: &Hop) -> Option<String> {
        let view = self.views.get(&(hop.group, hop.view))?;
        let place = |member: &Incarnation| self.places.get(member).copied();
        let rank = view
            .members
            .iter()
            .position(|member| place(member).is_some_and(|(process, _)| process == hop.by))?;
        let next = view.members[(rank + 1) % view.members.len()];
        if next == hop.frame.0 {
            return Some(format!("went back to its sender, from process {}", hop.by));
        }
        if !view.members.contains(&hop.frame.0) {
            return Some(format!(
                "was sent by process {} although its sender is no member",
                hop.by
            ));
        }
        if place(&next).is_some_and(|(_, slot)| slot != hop.to) {
            return Some(format!(
                "went from process {} to slot {} and not to {}, the next member",
                hop.by,
                hop.to,
                next.short()
            ));
        }
        // The application hears of a view at the end of the step in which it is installed.
        let (from, until) = *self.had.get(&(hop.by, hop.group, hop.view))?;
        (hop.at < from || hop.at > until)
            .then(|| format!("was sent by process {}, which had another view then", hop.by))
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::Order;

    use super::*;
    use crate::check::testing::{Story, incarnation};

    /// A frame of process 0 in the group's first view, in which processes 0 to 3 follow one another.
    fn story(hops: &[(ProcessId, Slot)]) -> Report {
        let mut story = Story::of(4, Order::Fifo);
        let view = story.trace.lines.iter().rev().find_map(|line| match &line.what {
            crate::trace::Seen::Group(_, crate::trace::Heard::View(view)) => Some(view.clone()),
            _ => None,
        });
        let view = view.expect("a story begins with a view");
        story.trace.hops = hops
            .iter()
            .map(|(by, to)| Hop {
                at: story.trace.lines.last().map_or(0, |line| line.at),
                by: *by,
                to: *to,
                frame: (incarnation(0), 7),
                group: view.group,
                view: view.id,
            })
            .collect();
        crate::check::check(&story.trace)
    }

    fn broken(report: &Report) -> Vec<&'static str> {
        report
            .violations
            .iter()
            .map(|violation| violation.guarantee)
            .collect()
    }

    #[test]
    fn a_frame_that_goes_from_each_to_the_next_is_accepted() {
        let report = story(&[(0, 1), (1, 2), (2, 3)]);
        assert!(report.is_ok(), "{:?}", report.violations);
        assert_eq!(report.counts["chain"], 3);
    }

    #[test]
    fn a_frame_that_comes_back_to_its_sender_is_rejected() {
        assert_eq!(broken(&story(&[(0, 1), (1, 2), (2, 3), (3, 0)])), ["chain"]);
    }

    #[test]
    fn a_frame_that_skips_a_member_is_rejected() {
        assert_eq!(broken(&story(&[(0, 1), (1, 3)])), ["chain"]);
    }

    #[test]
    fn a_frame_that_is_handed_on_twice_is_rejected() {
        assert_eq!(broken(&story(&[(0, 1), (1, 2), (1, 2)])), ["chain"]);
    }
}
