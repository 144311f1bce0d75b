//! Which members are shown as synced: exactly those that are, at members with the state and without.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;

use super::super::format::{Body, Member, Ordered, Point, decode};
use super::super::{Ack, Config, Event, Standing};
use super::group::{Group, Node, view_of};
use super::stories::{group_of, join, small};

type Members = Vec<(Incarnation, bool)>;

/// What was so in a run, and what was shown.
#[derive(Default)]
pub(super) struct Shown {
    /// At each point, as those with the state agree.
    truth: BTreeMap<Point, Members>,
    /// What was shown at a point that no member with the state had reached, and by which node.
    notes: BTreeMap<(Point, usize), Members>,
    /// Members whose state differed. Those without a state hear of that later than others.
    diverged: BTreeSet<Member>,
    /// Where members said that they have the state, and from which source; none: that their own differs.
    words: BTreeMap<Point, (Member, Option<Member>)>,
}

impl Shown {
    /// A node was given this message.
    pub(super) fn hear(&mut self, point: Point, sender: Incarnation, payload: &[u8]) {
        let word = match decode::<Ordered<'_>>(payload).map(|message| message.body) {
            Some(Body::Synced { source, .. }) => Some(source),
            Some(Body::Differs { .. }) => None,
            _ => return,
        };
        self.words.insert(point, (sender.into(), word));
    }

    /// After each input of a node.
    pub(super) fn look(&mut self, number: usize, node: &Node) {
        let replica = &node.replica;
        let (point, standing) = (replica.point, replica.standing());
        if standing == Standing::Serving && !node.tainted {
            let agreed = &replica.agreed;
            let serves = |member: &Member| agreed.serving.contains(member);
            let members = agreed.members.iter();
            let members: Members = members.map(|member| ((*member).into(), serves(member))).collect();
            self.diverged.extend(&agreed.diverged);
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
                *synced || !*shown || self.is_news(point, (*member).into()),
                "{member:?} is shown as synced at node {number} at {point:?}"
            );
        }
    }

    /// Whether a member without a state cannot know yet that this one has none: its state differed, or that
    /// of its source, and this was not said so far.
    fn is_news(&self, point: Point, member: Member) -> bool {
        match self.last_word(point, member) {
            // Since then it has said nothing else.
            Some((_, None)) => false,
            Some((at, Some(source))) => {
                let said = matches!(self.last_word(at, source), Some((_, None)));
                self.diverged.contains(&member) || self.diverged.contains(&source) && !said
            }
            None => self.diverged.contains(&member),
        }
    }

    /// What a member said last up to this point, and where.
    fn last_word(&self, upto: Point, member: Member) -> Option<(Point, Option<Member>)> {
        let mut words = self.words.range(..=upto).rev();
        let (at, (_, word)) = words.find(|(_, (sender, _))| *sender == member)?;
        Some((*at, *word))
    }
}

fn told(group: &Group, node: usize) -> Vec<(usize, bool)> {
    let told = group.nodes[node].members_told.iter().flatten();
    // A node that left and joined again is the later one.
    let number = |member: &Incarnation| group.nodes.iter().rposition(|node| node.me == *member);
    told.map(|(member, synced)| (number(member).unwrap(), *synced))
        .collect()
}

/// The first of the state comes to this node.
fn receive_until_told(group: &mut Group, joiner: usize) {
    while group.nodes[joiner].members_told.is_none() {
        assert_ne!(group.standing(joiner), Standing::CatchingUp);
        for node in 0..group.nodes.len() {
            while group.deliver(node) {}
            group.outputs(node);
        }
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    assert_eq!(group.standing(joiner), Standing::Receiving);
}

#[test]
fn a_joiner_knows_which_members_have_the_state_with_the_first_of_it() {
    let mut group = Group::new(1, small());
    group.start("ledger");
    group.next_view(false);
    group.settle();
    let (first, second) = (join(&mut group), join(&mut group));
    group.deaf.insert(first);
    receive_until_told(&mut group, second);
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
fn a_member_that_diverged_left_and_joined_again_is_shown_with_the_state_and_so_are_those_it_gave_it_to() {
    let mut group = group_of(3, small());
    group.break_at_next_command(2);
    while group.standing(2) != Standing::Diverged {
        group.write(0, Ack::Here, None).unwrap();
        group.settle();
    }
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    group.settle();
    // What comes to the joiner is of a point at which that member has diverged.
    group.leave(2);
    group.settle();
    group.next_view(false);
    group.settle();
    let again = group.join_again(2);
    group.next_view(false);
    group.settle();
    let other = join(&mut group);
    group.settle();
    assert_eq!(group.serving(), [0, 1, again, other]);
    let sources = &group.nodes[other].sources;
    assert_eq!(
        sources,
        &[group.nodes[again].me],
        "it has the state from that member"
    );
    assert_eq!(told(&group, joiner), [], "it does not know");
    group.deaf.clear();
    receive_until_told(&mut group, joiner);
    let with_the_state = [
        (0, true),
        (1, true),
        (joiner, false),
        (again, true),
        (other, true),
    ];
    assert_eq!(told(&group, joiner), with_the_state);
    // What it gave counts also when it is gone.
    group.deaf.insert(joiner);
    group.leave(again);
    group.settle();
    group.next_view(false);
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Receiving);
    let without_it = [(0, true), (1, true), (joiner, false), (other, true)];
    assert_eq!(told(&group, joiner), without_it);
    group.deaf.clear();
    group.settle();
    assert_eq!(group.serving(), [0, 1, joiner, other]);
    group.shown.end();
}

/// Some of five members have diverged, a joiner waits for the state, and all that serve crash. Each member
/// that diverged is suspended and says so again, the first after it has said that it founds the state.
fn diverged_and_then_alone(diverged: &[usize]) -> (Group, usize) {
    let config = Config {
        found_anew: true,
        ..small()
    };
    let mut group = group_of(5, config);
    for node in diverged {
        group.break_at_next_command(*node);
    }
    let not_yet = |group: &Group, node: &usize| group.standing(*node) != Standing::Diverged;
    while diverged.iter().any(|node| not_yet(&group, node)) {
        group.write(4, Ack::Here, None).unwrap();
        group.settle();
    }
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    group.settle();
    for node in (0..5).filter(|node| !diverged.contains(node)) {
        group.crash(node);
    }
    group.next_view(false);
    for node in diverged {
        while group.deliver(*node) {}
        group.suspend(*node);
        group.resume(*node);
    }
    (group, joiner)
}

// Seed 13749 of the schedules in which states go wrong.
#[test]
fn a_member_that_founds_the_state_anew_has_it_also_if_it_says_again_that_its_former_one_differed() {
    let (mut group, joiner) = diverged_and_then_alone(&[0, 1]);
    group.settle();
    assert_eq!(group.serving(), [0, 1]);
    assert_eq!(told(&group, joiner), [], "it does not know");
    group.deaf.clear();
    receive_until_told(&mut group, joiner);
    assert_eq!(told(&group, joiner), [(0, true), (1, true), (joiner, false)]);
    group.settle();
    assert_eq!(group.serving(), [0, 1, joiner]);
    group.shown.end();
}

#[test]
fn a_joiner_that_heard_a_member_diverge_knows_when_that_founds_the_state_anew() {
    let config = Config {
        found_anew: true,
        ..small()
    };
    let mut group = group_of(3, config);
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    group.break_at_next_command(0);
    while group.standing(0) != Standing::Diverged {
        group.write(2, Ack::Here, None).unwrap();
        group.settle();
    }
    assert_eq!(told(&group, joiner), [], "it does not know");
    for node in [1, 2] {
        group.crash(node);
    }
    group.next_view(false);
    group.settle();
    assert_eq!(group.serving(), [0]);
    assert_eq!(told(&group, joiner), [(0, true), (joiner, false)]);
    group.shown.end();
}

#[test]
fn the_state_is_founded_once_also_if_that_is_said_twice() {
    let (mut group, joiner) = diverged_and_then_alone(&[0]);
    // The new member has not heard that the state is founded: this is said again.
    let other = join(&mut group);
    group.settle();
    assert_eq!(group.serving(), [0, other]);
    assert_eq!(told(&group, joiner), [], "it does not know");
    group.deaf.clear();
    receive_until_told(&mut group, joiner);
    let both = [(0, true), (joiner, false), (other, true)];
    assert_eq!(told(&group, joiner), both);
    group.settle();
    assert_eq!(group.serving(), [0, joiner, other]);
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
