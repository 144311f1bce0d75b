//! Messages that wait for the messages before them in their scope, and for nothing else. A text's first
//! character is its scope.

use antiphon_wire::group::GroupData;

use super::world::{Kind, World};
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
