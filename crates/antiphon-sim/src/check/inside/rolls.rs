//! Which members have which view, and which are left behind: R12, and G18 for members that are told to start
//! over.
//!
//! Both are read from what the *nodes* have ([`Inside::Roll`]). An application whose node has no lease sees a
//! view late. If the leader dies after a removal, perhaps only the removed member ever hears of the removal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::GroupView;
use antiphon_core::wire::{GroupViewId, Incarnation, NodeView};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::History;
use crate::trace::{GroupIndex, Heard, Inside, ProcessId, Seen};

/// An incarnation in a group.
type Place = (GroupIndex, Incarnation);

/// Why a slow member is removed begins so; whether it was slow is another checker's matter.
const SLOW: &str = "slow: ";

/// What is known so far.
#[derive(Default)]
struct Rolls {
    current: BTreeMap<ProcessId, Incarnation>,
    /// The last primary view that each has.
    nodes: BTreeMap<Incarnation, Arc<NodeView>>,
    /// Incarnations that are over.
    ended: BTreeSet<Incarnation>,
    /// What each member's node has.
    views: BTreeMap<Place, (GroupViewId, Vec<Incarnation>)>,
    /// Members that were removed, or are not in a later view of any member, since that view began or they
    /// last ceased to be a member.
    removed: BTreeSet<Place>,
    /// Nodes that were members and ceased to be.
    gone: BTreeSet<Place>,
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let mut rolls = Rolls::default();
    let ours = |process: &ProcessId| history.processes.contains_key(process);
    for line in history.trace.lines.iter().filter(|line| ours(&line.process)) {
        rolls.add(line.at, line.process, &line.what, report);
    }
}

impl Rolls {
    fn add(&mut self, at: Micros, process: ProcessId, what: &Seen, report: &mut Report) {
        if let Seen::Incarnation(incarnation) = what {
            self.ended.extend(self.current.insert(process, *incarnation));
            return;
        }
        let Some(me) = self.current.get(&process).copied() else {
            return;
        };
        match what {
            Seen::Ended(_) => drop(self.ended.insert(me)),
            Seen::NodeView(view) if view.is_primary() => drop(self.nodes.insert(me, view.clone())),
            Seen::Inside(Inside::Roll {
                group,
                view,
                members,
                removed,
            }) => {
                let before = self.views.insert((*group, me), (*view, members.clone()));
                let before = before.map(|(_, members)| members).unwrap_or_default();
                let lost = before.iter().filter(|member| !members.contains(member));
                let out = lost.chain(removed).map(|member| (*group, *member));
                self.removed.extend(out);
            }
            Seen::Group(group, Heard::View(view)) => self.joiner_last(at, (*group, me), view, report),
            Seen::Group(group, Heard::Resync(cause)) => {
                self.starts_over(at, (*group, me), cause, report);
                self.ceases((*group, me));
            }
            Seen::Group(group, Heard::Left) => self.ceases((*group, me)),
            _ => {}
        }
    }

    fn ceases(&mut self, place: Place) {
        self.removed.remove(&place);
        if self.views.remove(&place).is_some() {
            self.gone.insert(place);
        }
    }

    /// R12: a joiner has its first view last, when all that go on into it have it, or have been removed.
    fn joiner_last(&self, at: Micros, (group, me): Place, view: &GroupView, report: &mut Report) {
        let Some(node) = self.nodes.get(&me).filter(|_| view.joined.contains(&me)) else {
            return;
        };
        let came = view.members.iter().filter(|member| !view.joined.contains(member));
        for member in came.copied() {
            let place = (group, member);
            let has = self.views.get(&place).is_some_and(|(its, _)| *its >= view.id);
            let is_gone = self.gone.contains(&place) && !self.views.contains_key(&place);
            let out = self.removed.contains(&place) || is_gone;
            let over = self.ended.contains(&member) || !node.contains(member);
            report.check("R12", at, has || out || over, || {
                format!(
                    "joiner {} has view {} of {} before {}, which nobody removed",
                    me.short(),
                    view.id,
                    view.name,
                    member.short()
                )
            });
        }
    }

    /// G18: if a member starts over, and is the same incarnation as before, it had been removed; or the
    /// member that it takes for its leader is no member any more. That leader may know no more of the group
    /// than this.
    fn starts_over(&self, at: Micros, (group, me): Place, cause: &str, report: &mut Report) {
        let Some((view, members)) = self.views.get(&(group, me)) else {
            return;
        };
        if cause.starts_with(SLOW) {
            return;
        }
        let mut seniors = members.iter().take_while(|member| **member != me);
        let excused = self.removed.contains(&(group, me))
            || seniors.any(|senior| self.gone.contains(&(group, *senior)));
        report.check("G18", at, excused, || {
            format!(
                "{} is told to start over after view {view} of g{group}, and nobody had removed it: {cause}",
                me.short()
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::Order;

    use crate::check::testing::Story;
    use crate::trace::ProcessId;

    const ALL: [usize; 3] = [0, 1, 2];

    /// Process 3 is in group view 2 with all others. These members of view 1 have it, and the leader has
    /// removed these.
    fn story_of_a_joiner(have_it: &[ProcessId], removed: &[ProcessId]) -> Story {
        let mut story = Story::of(3, Order::Total);
        story.roll(&ALL, 1, &[], &ALL);
        story.start(3);
        story.node_view(&[0, 1, 2, 3], &ALL, 2, &[0, 1, 2, 3]);
        story.group_view(&[0, 1, 2, 3], &ALL, &[3], &[], &[], 2, have_it);
        story.roll(&[0, 1, 2, 3], 2, &[], have_it);
        if !removed.is_empty() {
            story.roll(&[0, 1, 2, 3], 2, removed, &[0]);
        }
        story.group_view(&[0, 1, 2, 3], &[], &[3], &[], &[], 2, &[3]);
        story.roll(&[0, 1, 2, 3], 2, &[], &[3]);
        story
    }

    #[test]
    fn a_joiner_that_has_its_view_before_a_survivor_is_rejected_unless_that_one_was_removed() {
        story_of_a_joiner(&ALL, &[]).is_accepted();
        story_of_a_joiner(&[0, 1], &[2]).is_accepted();
        story_of_a_joiner(&[0, 1], &[]).is_rejected_for("R12");
        story_of_a_joiner(&[], &[]).is_rejected_for("R12");
    }

    #[test]
    fn a_joiner_waits_for_no_survivor_that_is_dead() {
        let mut story = Story::of(3, Order::Total);
        story.roll(&ALL, 1, &[], &ALL);
        story.start(3);
        story.node_view(&[0, 1, 2, 3], &ALL, 2, &[0, 1, 2, 3]);
        story.roll(&[0, 1, 2, 3], 2, &[], &[0, 1]);
        story.kill(2);
        story.group_view(&[0, 1, 2, 3], &ALL, &[3], &[], &[], 2, &[0, 1]);
        story.group_view(&[0, 1, 2, 3], &[], &[3], &[], &[], 2, &[3]);
        story.is_accepted();
    }

    #[test]
    fn a_member_that_starts_over_and_was_not_removed_is_rejected() {
        const LOST: &str = "what it lacks is gone";
        let mut removed = story_of_a_joiner(&[0, 1], &[2]);
        removed.kill(0);
        removed.kill(1);
        removed.resync(2, LOST);
        removed.is_accepted();
        let mut not_removed = story_of_a_joiner(&ALL, &[]);
        not_removed.resync(2, LOST);
        not_removed.is_rejected_for("G18");
        // Another member's view leaves it out.
        let mut left_out = story_of_a_joiner(&ALL, &[]);
        left_out.roll(&[0, 1, 3], 3, &[], &[1]);
        left_out.resync(2, LOST);
        left_out.is_accepted();
        // What was said of it in an earlier membership does not count.
        left_out.roll(&[0, 1, 3, 2], 4, &[], &[2]);
        left_out.resync(2, LOST);
        left_out.is_rejected_for("G18");
    }

    #[test]
    fn a_member_starts_over_whose_leader_is_a_member_no_more_or_that_was_slow() {
        let mut story = story_of_a_joiner(&ALL, &[2]);
        story.resync(2, "flush-stalled");
        story.resync(3, "its leader is no member of the group any more");
        story.is_accepted();
        let mut slow = story_of_a_joiner(&ALL, &[]);
        slow.resync(2, "slow: its application has stopped");
        assert!(
            !slow
                .judge()
                .violations
                .iter()
                .any(|violation| violation.guarantee == "G18")
        );
        // A member behind it in rank does not lead it.
        let mut junior = story_of_a_joiner(&ALL, &[2]);
        junior.resync(2, "flush-stalled");
        junior.resync(1, "its leader is no member of the group any more");
        junior.is_rejected_for("G18");
    }
}
