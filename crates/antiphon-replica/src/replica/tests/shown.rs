//! Which members are shown as synced: exactly those that are, at members with the state and without.

use std::collections::BTreeMap;

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;

use super::super::format::{Member, Point};
use super::super::{Event, Standing};
use super::group::{Group, Node, view_of};
use super::stories::{join, small};

type Members = Vec<(Incarnation, bool)>;

/// What was so in a run, and what was shown.
#[derive(Default)]
pub(super) struct Shown {
    /// At each point, as those with the state agree.
    truth: BTreeMap<Point, Members>,
    /// What was shown at a point that no member with the state had reached, and by which node.
    notes: BTreeMap<(Point, usize), Members>,
    /// Some state differed. Members without a state hear of that later than others, and not of all that
    /// follows from it.
    diverged: bool,
}

impl Shown {
    /// After each input of a node.
    pub(super) fn look(&mut self, number: usize, node: &Node) {
        let replica = &node.replica;
        let (point, standing) = (replica.point, replica.standing());
        if standing == Standing::Serving && !node.tainted {
            let agreed = &replica.agreed;
            let serves = |member: &Member| agreed.serving.contains(member);
            let members = agreed.members.iter();
            let members: Members = members.map(|member| ((*member).into(), serves(member))).collect();
            self.diverged |= !agreed.diverged.is_empty();
            let first = self.truth.entry(point).or_insert_with(|| members.clone());
            assert_eq!(*first, members, "G28: node {number} differs at {point:?}");
        }
        let shows = !matches!(
            standing,
            Standing::Outside | Standing::CatchingUp | Standing::Gone
        );
        if let Some(members) = node.members_told.as_ref().filter(|_| shows) {
            if self.truth.contains_key(&point) {
                self.compare(point, number, members);
            } else {
                self.notes.insert((point, number), members.clone());
            }
        }
    }

    /// The run has ended.
    pub(super) fn end(&self) {
        for ((point, number), members) in &self.notes {
            self.compare(*point, *number, members);
        }
    }

    fn compare(&self, point: Point, number: usize, shown: &Members) {
        let Some(truth) = self.truth.get(&point) else {
            return;
        };
        let names = |members: &Members| members.iter().map(|(member, _)| *member).collect::<Vec<_>>();
        assert_eq!(
            names(shown),
            names(truth),
            "members at node {number} at {point:?}"
        );
        for ((member, shown), (_, synced)) in shown.iter().zip(truth) {
            assert!(
                *shown || !*synced,
                "{member:?} is not shown as synced at node {number} at {point:?}"
            );
            assert!(
                *synced || !*shown || self.diverged,
                "{member:?} is shown as synced at node {number} at {point:?}"
            );
        }
    }
}

fn told(group: &Group, node: usize) -> Vec<(usize, bool)> {
    let told = group.nodes[node].members_told.iter().flatten();
    let number = |member: &Incarnation| group.nodes.iter().position(|node| node.me == *member);
    told.map(|(member, synced)| (number(member).unwrap(), *synced))
        .collect()
}

#[test]
fn a_joiner_knows_which_members_have_the_state_with_the_first_of_it() {
    let mut group = Group::new(1, small());
    group.start("ledger");
    group.next_view(false);
    group.settle();
    let (first, second) = (join(&mut group), join(&mut group));
    group.deaf.insert(first);
    while group.nodes[second].members_told.is_none() {
        assert_ne!(group.standing(second), Standing::CatchingUp);
        for node in 0..3 {
            while group.deliver(node) {}
            group.outputs(node);
        }
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    assert_eq!(group.standing(second), Standing::Receiving);
    assert_eq!(told(&group, second), [(0, true), (1, false), (2, false)]);
    assert_eq!(told(&group, first), [], "it does not know");
    group.deaf.clear();
    group.deaf.insert(second);
    group.settle();
    assert_eq!(group.standing(second), Standing::Receiving);
    assert_eq!(told(&group, second), [(0, true), (1, true), (2, false)]);
    group.crash(0);
    group.next_view(false);
    group.settle();
    assert_eq!(group.standing(second), Standing::Waiting);
    assert_eq!(told(&group, second), [(1, true), (2, false)]);
    group.deaf.clear();
    group.settle();
    assert_eq!(group.serving(), [first, second]);
    for node in [first, second] {
        assert_eq!(told(&group, node), [(1, true), (2, true)]);
    }
    group.shown.end();
}

#[test]
fn the_members_of_a_founding_view_know_at_once_that_only_the_founder_has_the_state() {
    let mut group = Group::new(1, small());
    let (founder, joiner) = (group.start("ledger"), group.start("ledger"));
    let both = [founder, joiner].map(|node| group.nodes[node].me);
    let replica = &mut group.nodes[joiner].replica;
    replica.handle_view(Time::ZERO, &view_of(1, &both, &both));
    match replica.poll_event() {
        Some(Event::Members { members }) => assert_eq!(members, [(both[0], true), (both[1], false)]),
        other => panic!("{other:?}"),
    }
}
