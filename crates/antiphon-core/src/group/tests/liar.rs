//! A member with the key that runs other code. It can break what groups promise; it cannot make another one
//! panic.

use std::sync::{Arc, Mutex};

use antiphon_wire::block::Tag;
use antiphon_wire::group::{Decision, GroupData, GroupMessage, Span, Standing};
use antiphon_wire::{Block, BlockBuilder, GroupId, GroupViewId};

use super::world::{Id, Kind, World};
use crate::group::member::Phase;
use crate::group::stream::Stream;
use crate::group::{Effect, terms_of};
use crate::random::Random;
use crate::{Dissemination, GroupEvent, TotalEngine};

impl World {
    /// Member 3 of three dies. The group, the view and the target that member 1 tells member 2 to flush.
    pub(super) fn flush_without_3(&mut self) -> (GroupId, GroupViewId, GroupViewId) {
        let started = Arc::new(Mutex::new(None));
        let seen = started.clone();
        self.trap = Some(Box::new(move |_, to, message| {
            if let (
                2,
                GroupMessage::FlushStart {
                    group, view, target, ..
                },
            ) = (to, message)
            {
                *seen.lock().unwrap() = Some((*group, *view, *target));
            }
            false
        }));
        self.crash(3);
        self.primary(&[1, 2]);
        let started = started.lock().unwrap().take();
        started.expect("the leader began a flush")
    }

    /// The same, and member 2 reports that it holds this. Returns the view that the flush ends.
    pub(super) fn report_without_3(
        &mut self,
        held: [u64; 3],
        beyond: Option<Span>,
        (nulls, ordered): (u64, u64),
    ) -> GroupViewId {
        let (group, view, target) = self.flush_without_3();
        let report = GroupMessage::FlushReport {
            group,
            target,
            standing: Standing::At {
                view,
                held: held.to_vec(),
                beyond: beyond.into_iter().collect(),
                nulls: vec![nulls; 3],
                ordered,
                decision: None,
                safe: false,
                held_cut: None,
                told: Vec::new(),
            },
        };
        let (now, liar) = (self.now, self.inc(2));
        let leader = self.peers.get_mut(&1).unwrap();
        let node = leader.view.unwrap();
        leader.groups.handle_message(now, liar, node, report);
        view
    }
}

#[test]
fn a_member_that_lies_stops_no_process() {
    for (seed, kind) in (0..40).flat_map(|seed| Kind::ALL.map(|kind| (seed, kind))) {
        let mut options = kind.options().window_bytes(1 << 16);
        if seed % 4 == 1 {
            options = options.dissemination(Dissemination::Chain);
        }
        let mut world = World::with_options(options, seed).gather(&[1, 2, 3, 4]);
        let mut random = Random::new([seed, 12, 13, 14]);
        world.liar = Some((1 + random.below(2) as u8, Random::new([seed, 15, 16, 17])));
        (world.loss, world.duplicates, world.jitter_ms) = (10, 10, 3);
        let large = "x".repeat(100_000);
        for step in 0..30 {
            let id = 1 + random.below(4) as u8;
            match random.below(10) {
                0 => world.leave(id),
                1 => world.join_again(id),
                2 => world.primary(&[1, 2, 3, 4]),
                // A node that is not a member any more, or has no room, sends nothing.
                3 => drop(world.send_safe(id, "safe")),
                4 if step % 5 == 0 => drop(world.send(id, &large)),
                5 => drop(world.tell(id, 1 + random.below(4) as u8, b"told")),
                6 => world.take_told(id, 1 + random.below(4) as u8, random.below(3)),
                _ => drop(world.send(id, "text")),
            }
            world.run_micros(random.below(200_000));
        }
    }
}

fn stream(world: &World, id: Id) -> &Stream {
    let peer = &world.peers[&id];
    match &peer.groups.groups[&peer.handle.unwrap()].phase {
        Phase::Member(membership) => &membership.stream,
        _ => panic!("{id} is no member"),
    }
}

#[test]
fn numbers_given_up_that_no_message_can_have_led_to_are_not_taken() {
    let mut world = World::with_group(TotalEngine::Rotation, 1, &[1, 2, 3]);
    let view = world.views(1).pop().unwrap();
    let batch = |first, messages| GroupData::Batch {
        group: view.group,
        view: view.id,
        sender: 1,
        first,
        stable: 1,
        ask: false,
        messages,
    };
    let dropped = stream(&world, 1).dropped;
    world.inject(world.inc(2), 1, batch(1, Block::nulls(u32::MAX)));
    world.inject(
        world.inc(2),
        1,
        batch(1 + u64::from(u32::MAX), Block::of(b"behind")),
    );
    assert_eq!(stream(&world, 1).dropped, dropped + 2);
    assert_eq!(stream(&world, 1).logs[1].next(), 1);
    assert_eq!(
        stream(&world, 1).logs[0].next(),
        1,
        "it answers with nulls of its own"
    );
    world.send(2, "first").unwrap();
    world.run(1000);
    for id in 1..=3 {
        assert_eq!(world.texts(id), ["first"]);
    }
    world.check().unwrap();
}

#[test]
fn a_member_that_says_it_holds_what_no_member_can_hold_is_removed() {
    for (kind, lie) in Kind::ALL
        .into_iter()
        .flat_map(|kind| [0, 1, 2].map(|lie| (kind, lie)))
    {
        let mut world = World::with_group(kind, 1, &[1, 2, 3]);
        world.hold_control(2);
        let much = |at| if at == lie { 1 << 40 } else { 0 };
        let first = much(2);
        let beyond = (first > 0).then_some(Span {
            sender: 2,
            first,
            count: 1,
        });
        world.report_without_3([0, much(0), 0], beyond, (0, much(1)));
        world.run(500);
        assert_eq!(world.members(1), world.incarnations(&[1]), "{kind:?}, {lie}");
    }
}

/// The leader has delivered a message of member 2 behind a gap. Member 2 says that it has sent only what is
/// before the gap.
#[test]
fn a_member_that_says_it_holds_less_of_its_own_than_was_delivered_is_removed() {
    for kind in [Kind::Unordered, Kind::Scoped] {
        let mut world = World::with_group(kind, 1, &[1, 2, 3]);
        let present = world.views(1).pop().unwrap();
        for first in [1, 2, 4] {
            let mut builder = BlockBuilder::default();
            match kind {
                Kind::Scoped => builder.push_tagged(Tag::default(), b"text"),
                _ => builder.push(b"text"),
            }
            let batch = GroupData::Batch {
                group: present.group,
                view: present.id,
                sender: 1,
                first,
                stable: 1,
                ask: false,
                messages: builder.finish(),
            };
            world.inject(world.inc(2), 1, batch);
        }
        assert_eq!(world.texts(1), ["text"; 3], "{kind:?}");
        world.hold_control(2);
        world.report_without_3([0, 2, 0], None, (0, 0));
        world.run(500);
        assert_eq!(world.members(1), world.incarnations(&[1]), "{kind:?}");
    }
}

/// Member 1 lets node 2 in, and sends it two other first views before the true one.
#[test]
fn a_first_view_that_no_leader_makes_lets_nobody_in() {
    let mut world = World::with_group(Kind::Fifo, 1, &[1]);
    world.start(2);
    world.primary(&[1, 2]);
    world.run(200);
    let welcome = Arc::new(Mutex::new(None));
    let seen = welcome.clone();
    world.trap = Some(Box::new(move |_, to, message| {
        if to == 2 && matches!(message, GroupMessage::FirstView { .. }) {
            *seen.lock().unwrap() = Some(message.clone());
        }
        false
    }));
    world.join(2);
    while !world.is_on_its_way(1, 2, |message| matches!(message, GroupMessage::FirstView { .. })) {
        world.run_micros(100);
    }
    world.hold_control(2);
    let welcome = welcome.lock().unwrap().take();
    let welcome = welcome.expect("the leader lets it in");
    let lies: [fn(&mut Decision); 2] = [
        // It names the joiner twice.
        |decision: &mut Decision| {
            let joiner = decision.joined[0].incarnation;
            decision.members.insert(0, joiner);
            decision.start.insert(0, 1);
        },
        // It follows itself.
        |decision: &mut Decision| decision.from = decision.id,
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        let mut told = welcome.clone();
        if let GroupMessage::FirstView { decision, .. } = &mut told {
            lie(decision);
        }
        let (now, liar) = (world.now, world.inc(1));
        let joiner = world.peers.get_mut(&2).unwrap();
        let (node, before) = (joiner.view.unwrap(), joiner.groups.nonsense());
        joiner.groups.handle_message(now, liar, node, told);
        assert_eq!(joiner.groups.nonsense(), before + 1, "lie {at}");
        let is_view = |effect: Effect| matches!(effect, Effect::Event(_, GroupEvent::View(_)));
        let mut effects = std::iter::from_fn(|| joiner.groups.poll_effect());
        assert!(!effects.any(is_view), "lie {at}");
    }
    world.release_control();
    world.run(1_000);
    for id in [1, 2] {
        assert_eq!(
            world.members(id),
            world.incarnations(&[1, 2]),
            "the true one does"
        );
    }
    world.check().unwrap();
}

#[test]
fn a_join_with_a_number_that_no_message_can_have_does_not_stop_the_group() {
    for (kind, first) in Kind::ALL
        .into_iter()
        .flat_map(|kind| [0, 1 << 62, u64::MAX / 2 - 1, u64::MAX].map(|first| (kind, first)))
    {
        let mut world = World::with_group(kind, 1, &[1, 2]);
        world.start(3);
        world.primary(&[1, 2, 3]);
        world.run(200);
        let join = GroupMessage::Join {
            name: world.views(1).pop().unwrap().name.clone(),
            terms: terms_of(&world.options),
            nonce: 7,
            first,
        };
        let (now, liar) = (world.now, world.inc(3));
        let leader = world.peers.get_mut(&1).unwrap();
        leader
            .groups
            .handle_message(now, liar, leader.view.unwrap(), join);
        world.run(12_000);
        world.send(2, "x").unwrap();
        world.run(1_000);
        assert_eq!(world.texts(2), ["x"], "{kind:?}, {first}");
        assert_eq!(world.members(2), world.incarnations(&[1, 2]), "{kind:?}, {first}");
        world.check().unwrap();
    }
}
