//! Messages that wait for the messages before them in their scope, and for nothing else. A text's first
//! character is its scope.

use antiphon_wire::codec::{MAX_LIST, decode_all, encode_to_vec};
use antiphon_wire::group::{Decision, DepartedSender, GroupData};
use antiphon_wire::{BlockBuilder, GroupViewId};

use super::world::{Kind, World};
use crate::group::log::Room;
use crate::group::member::Phase;
use crate::outbox::Tagger;
use crate::{MAX_PAYLOAD_BYTES, SendError};

#[test]
fn what_is_lost_delays_its_own_scope_only() {
    let mut world = World::with_group(Kind::Scoped, 1, &[1, 2, 3]);
    world.lose(1, &[(2, "b1")]);
    world.send_each(1, &["a1", "b1", "a2", "b2", "c1", "b3", "a3"]);
    assert_eq!(world.texts(2), ["a1", "a2", "c1", "a3"]);
    assert_eq!(world.texts(3), ["a1", "b1", "a2", "b2", "c1", "b3", "a3"]);
    world.drop_data = None;
    world.run(500);
    assert_eq!(world.texts(2), ["a1", "a2", "c1", "a3", "b1", "b2", "b3"]);
    world.check().unwrap();
}

#[test]
fn one_block_of_many_scopes_is_delivered_in_parts_if_one_of_them_has_a_gap() {
    let mut world = World::with_group(Kind::Scoped, 1, &[1, 2]);
    world.lose(1, &[(2, "b1")]);
    world.send_each(1, &["b1"]);
    for text in ["a1", "b2", "a2", "c1", "b3", "c2"] {
        world.send(1, text).unwrap();
    }
    world.run(2);
    assert_eq!(world.texts(2), ["a1", "a2", "c1", "c2"]);
    world.drop_data = None;
    world.run(500);
    assert_eq!(world.texts(2), ["a1", "a2", "c1", "c2", "b1", "b2", "b3"]);
    world.check().unwrap();
}

#[test]
fn of_a_dead_sender_each_scope_is_delivered_up_to_what_nobody_has() {
    let mut world = World::with_group(Kind::Scoped, 1, &[1, 2, 3]);
    // No receiver has `b2`, the second has `a2`, the third `c1`.
    world.lose(1, &[(2, "b2"), (3, "b2"), (3, "a2"), (2, "c1")]);
    world.send_each(1, &["a1", "b1", "a2", "b2", "c1", "b3", "a3", "c2"]);
    assert_eq!(world.texts(2), ["a1", "b1", "a2", "a3"]);
    assert_eq!(world.texts(3), ["a1", "b1", "c1", "c2"]);
    world.crash(1);
    world.drop_data = None;
    world.primary(&[2, 3]);
    world.run(200);
    assert_eq!(world.texts(2), ["a1", "b1", "a2", "a3", "c1", "c2"]);
    assert_eq!(world.texts(3), ["a1", "b1", "c1", "c2", "a2", "a3"]);
    world.check().unwrap();
}

#[test]
fn a_scope_keeps_its_order_across_views_and_loss_of_the_primary() {
    let mut world = World::with_group(Kind::Scoped, 1, &[1, 2, 3]);
    world.send_each(1, &["a1", "b1"]);
    world.leave(3);
    for text in ["a2", "b2", "a3"] {
        world.send(1, text).unwrap();
        world.run(1);
    }
    world.run(500);
    world.non_primary(&[1, 2]);
    world.run(100);
    world.primary(&[1, 2]);
    world.run(500);
    world.send_each(1, &["b3", "a4"]);
    world.run(500);
    for id in [1, 2] {
        for scope in ["a", "b"] {
            let texts = world.texts(id);
            let of_scope: Vec<_> = texts.iter().filter(|text| text.starts_with(scope)).collect();
            assert!(of_scope.is_sorted() && of_scope.len() >= 3, "{id}: {texts:?}");
        }
    }
    world.check().unwrap();
}

#[test]
fn a_safe_message_holds_up_its_scope_and_no_other() {
    let mut world = World::with_group(Kind::Scoped, 1, &[1, 2, 3]);
    world.drop_data = Some(Box::new(|from, _, record| {
        from == 3 && matches!(record, GroupData::Rows { .. } | GroupData::Ack { .. })
    }));
    world.send_safe(1, "a1").unwrap();
    world.run(2);
    world.send_each(1, &["b1", "a2", "b2"]);
    assert_eq!(world.texts(2), ["b1", "b2"]);
    world.drop_data = None;
    world.run(500);
    for id in [1, 2] {
        assert_eq!(world.texts(id), ["b1", "b2", "a1", "a2"]);
    }
    // It has heard all others, and no other has heard it.
    assert_eq!(world.texts(3), ["a1", "b1", "a2", "b2"]);
    world.check().unwrap();
}

#[test]
fn a_scoped_group_takes_what_goes_through_the_log_and_nothing_larger() {
    let mut world = World::with_group(Kind::Scoped, 4, &[1, 2]);
    let text = |length: usize| "a".repeat(length);
    world.send(1, &text(MAX_PAYLOAD_BYTES)).unwrap();
    let limit = MAX_PAYLOAD_BYTES;
    assert_eq!(
        world.send(1, &text(MAX_PAYLOAD_BYTES + 1)),
        Err(SendError::TooLarge { limit })
    );
    world.run(500);
    assert_eq!(world.texts(2), [text(MAX_PAYLOAD_BYTES)]);
    world.check().unwrap();
}

/// Member 1 lacks the first message of member 2, which departs. Each second message behind that one waits for
/// it. So each of the others is a run of its own.
#[test]
fn of_a_departed_sender_no_more_runs_are_remembered_than_a_message_can_tell() {
    for (runs, is_told) in [(MAX_LIST, true), (MAX_LIST + 1, false)] {
        let mut world = World::with_group(Kind::Scoped, 1, &[1, 2]);
        let (stays, departs) = (world.inc(1), world.inc(2));
        let peer = world.peers.get_mut(&1).unwrap();
        let group = peer.groups.groups.get_mut(&peer.handle.unwrap()).unwrap();
        let Phase::Member(membership) = &mut group.phase else {
            panic!("it is a member");
        };
        let log = &mut membership.stream.logs[1];
        let mut tagger = Tagger::default();
        let room = Room {
            bytes: 64 << 20,
            runs: 1,
        };
        for number in 1..=2 * runs as u64 {
            let scope = number as u32 % 2;
            let mut builder = BlockBuilder::default();
            builder.push_tagged(tagger.tag(scope), b"x");
            tagger.took(scope, 1);
            if number > 1 {
                log.insert(number, builder.finish(), room);
            }
        }
        while log.deliver_any(0).is_some() {}
        assert_eq!(log.delivered_set().runs(), runs);
        let view = membership.stream.id;
        let decision = Decision {
            id: GroupViewId {
                k: view.k + 1,
                ..view
            },
            from: view,
            cut: vec![0; 2],
            holders: vec![Vec::new(); 2],
            beyond: Vec::new(),
            ordered: 0,
            order_holders: Vec::new(),
            members: vec![stays],
            start: vec![1],
            joined: Vec::new(),
            left: Vec::new(),
            crashed: vec![departs],
            causes: Vec::new(),
            safe: false,
            told: Vec::new(),
        };
        membership.remember_departed(&decision);
        let told = membership.departed.iter().map(|departed| {
            let bytes = encode_to_vec(departed);
            decode_all::<DepartedSender>(bytes.into()).expect("a list that is not too long")
        });
        let told: Vec<DepartedSender> = told.collect();
        assert_eq!(membership.departed, told);
        let is_remembered = told.iter().any(|departed| departed.incarnation == departs);
        assert_eq!(is_remembered, is_told, "{runs} runs");
    }
}
