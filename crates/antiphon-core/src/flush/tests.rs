//! Stories of flushes alone: no group, and no time that passes by itself.

use std::collections::VecDeque;

use antiphon_wire::group::{Decision, GroupData, GroupMessage, Standing};
use antiphon_wire::{Block, GroupId, GroupViewId, Incarnation, ViewId};

use super::*;
use crate::group::direct::Direct;
use crate::group::nodes::Nodes;
use crate::group::reached::Reached;
use crate::group::stream::{BatchHeader, Beginning};
use crate::{GroupOptions, Order, Profile};

const GROUP: GroupId = GroupId(7);

/// One member, and what it sees. Three are in the group's view; the node view is without the third.
struct Alone {
    me: Incarnation,
    node: Nodes,
    profile: Profile,
    stream: Stream,
    direct: Direct,
    flush: Flush,
}

impl Alone {
    fn new(rank: usize) -> Self {
        let members = [1, 2, 3].map(Incarnation);
        let node = Nodes {
            id: ViewId { epoch: 1, counter: 2 },
            number: 2,
            members: members[..2].to_vec(),
            names: vec!["a".to_owned(), "b".to_owned()],
        };
        let before = Nodes {
            id: ViewId { epoch: 1, counter: 1 },
            number: 1,
            ..node.clone()
        };
        let beginning = Beginning {
            me: rank,
            start: &[1; 3],
            credit: &[1; 3],
        };
        let options = GroupOptions {
            order: Order::Fifo,
            ..GroupOptions::default()
        };
        let consumed = vec![Reached::new(1); 3];
        let view = before.group_view(1);
        Self {
            me: members[rank],
            node,
            profile: Profile::lan(),
            stream: Stream::new(GROUP, view, members.to_vec(), beginning, consumed, options),
            direct: Direct::default(),
            flush: Flush::new(None),
        }
    }

    /// The first message of the third member arrives.
    fn hear_the_third(&mut self) {
        let header = BatchHeader {
            sender: 2,
            first: 1,
            stable: 0,
            ask: false,
        };
        let (block, mut out) = (Block::of(b"last words"), VecDeque::new());
        self.stream
            .batch(Time::ZERO, &self.profile, header, block, &mut out);
    }

    /// Tells the flush something; what it wants.
    fn wants(&mut self, tell: impl FnOnce(&mut Flush, &Around<'_>)) -> Vec<FlushEffect> {
        let around = Around {
            now: Time::ZERO,
            me: self.me,
            node: &self.node,
            profile: &self.profile,
            group: GROUP,
            name: "g",
            stream: &self.stream,
            direct: &self.direct,
        };
        tell(&mut self.flush, &around);
        std::iter::from_fn(|| self.flush.poll()).collect()
    }

    /// What it wants if it lacks the message of the third.
    fn asks(&self, to: Incarnation) -> FlushEffect {
        let question = GroupData::Pull {
            group: GROUP,
            view: self.stream.id,
            sender: 2,
            first: 1,
            end: 2,
        };
        FlushEffect::Ask { to, question }
    }

    fn take_the_repair(&mut self) {
        let repair = GroupData::Repair {
            group: GROUP,
            view: self.stream.id,
            sender: 2,
            first: 1,
            last: true,
            messages: Block::of(b"last words"),
        };
        let flush = &mut self.flush;
        flush.take_repair(Time::ZERO, &self.profile, &mut self.stream, repair);
    }

    /// A leader's question: the report.
    fn reports(&mut self, leader: Incarnation, view: GroupViewId, target: GroupViewId) -> GroupMessage {
        let effects = self.wants(|flush, around| flush.handle_start(around, leader, view, target));
        assert!(!self.flush.is_open(), "R13: it reports and goes on");
        match <[FlushEffect; 1]>::try_from(effects) {
            Ok([FlushEffect::Send { to, message }]) if to == leader => message,
            other => panic!("no report: {other:?}"),
        }
    }
}

/// A leader and another member, of which only the other has the message of the third. The decision, and what
/// the leader wants besides.
fn decided() -> (Alone, Alone, Decision, Vec<FlushEffect>) {
    let (mut leader, mut other) = (Alone::new(0), Alone::new(1));
    other.hear_the_third();
    let (one, two) = (leader.me, other.me);
    let view = leader.stream.id;
    let started = leader.wants(|flush, around| flush.restart(around, false));
    let starts = started.iter().filter_map(|effect| match effect {
        FlushEffect::Send {
            to,
            message: GroupMessage::FlushStart { target, .. },
        } => Some((*to, *target)),
        _ => None,
    });
    let starts: Vec<_> = starts.collect();
    let target = leader.node.group_view(2);
    assert_eq!(starts, [(one, target), (two, target)], "{started:?}");

    let own = leader.reports(one, view, target);
    let nothing = leader.wants(|flush, around| flush.handle_message(around, one, own));
    assert_eq!(nothing, [], "R14: it does not wait for every survivor");
    let report = other.reports(one, view, target);
    let mut effects = leader.wants(|flush, around| flush.handle_message(around, two, report));
    match effects.remove(0) {
        FlushEffect::Send {
            to,
            message: GroupMessage::FlushCut { decision, .. },
        } if to == two => (leader, other, *decision, effects),
        other => panic!("no cut: {other:?}"),
    }
}

#[test]
fn the_cut_has_what_one_survivor_holds_of_a_dead_sender() {
    let (leader, _, decision, _) = decided();
    assert_eq!(decision.cut, [0, 0, 1]);
    assert_eq!(decision.members, leader.node.members);
    assert_eq!(
        (decision.from, decision.crashed),
        (leader.stream.id, vec![Incarnation(3)])
    );
}

#[test]
fn a_member_that_holds_the_cut_installs_at_once() {
    let (leader, mut other, decision, _) = decided();
    let cut = GroupMessage::FlushCut {
        group: GROUP,
        decision: Box::new(decision.clone()),
    };
    let effects = other.wants(|flush, around| flush.handle_message(around, leader.me, cut));
    assert_eq!(effects, [FlushEffect::Install(Box::new(decision))]);
}

#[test]
fn a_member_asks_a_holder_for_what_it_lacks_and_then_installs() {
    let (mut leader, other, decision, effects) = decided();
    assert_eq!(effects, [leader.asks(other.me)]);
    leader.take_the_repair();
    assert_eq!(
        leader.wants(Flush::try_install),
        [FlushEffect::Install(Box::new(decision))]
    );
}

#[test]
fn a_leader_that_hears_of_a_later_view_completes_that_one() {
    let (mut leader, other, decision, _) = decided();
    // The other has installed it, and another node view comes before the leader has what it lacks.
    leader.node.id.counter += 1;
    leader.node.number += 1;
    let start = leader.wants(|flush, around| flush.restart(around, false));
    assert_eq!(start.len(), 2, "{start:?}");
    let (one, two) = (leader.me, other.me);
    let (view, target) = (leader.stream.id, leader.node.group_view(2));
    let own = leader.reports(one, view, target);
    leader.wants(|flush, around| flush.handle_message(around, one, own));
    let report = GroupMessage::FlushReport {
        group: GROUP,
        target,
        standing: Standing::At {
            view: decision.id,
            held: vec![0; 2],
            beyond: Vec::new(),
            nulls: vec![0; 2],
            ordered: 0,
            decision: Some(Box::new(decision.clone())),
            safe: false,
            held_cut: None,
            told: Vec::new(),
        },
    };
    let effects = leader.wants(|flush, around| flush.handle_message(around, two, report));
    // R14: it makes no decision of its own.
    assert_eq!(effects, [leader.asks(two)]);
    leader.take_the_repair();
    assert_eq!(
        leader.wants(Flush::try_install),
        [FlushEffect::Install(Box::new(decision))]
    );
}
