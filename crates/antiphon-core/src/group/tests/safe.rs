//! Safe messages: how long they take, which members they wait for, and what is left of them when members die.

use std::cell::Cell;
use std::rc::Rc;

use antiphon_wire::Block;
use antiphon_wire::block::Form;
use antiphon_wire::group::{GroupData, GroupMessage};

use super::world::{Id, Kind, World};
use crate::{GroupEvent, TotalEngine};

/// What a record takes in this world, in microseconds.
const DELAY: u64 = 300;

/// How many delays a message takes until the last has it.
fn delays(order: Kind, sender: Id, safe: bool) -> u64 {
    let ids = [1, 2, 3, 4];
    let mut world = World::with_group(order, 1, &ids);
    if safe {
        world.send_safe(sender, "it").unwrap();
    } else {
        world.send(sender, "it").unwrap();
    }
    for delays in 0..10 {
        if ids.iter().all(|id| world.texts(*id) == ["it"]) {
            return delays;
        }
        world.run_micros(DELAY);
    }
    panic!("not delivered");
}

#[test]
fn a_safe_message_takes_one_delay_more_than_an_agreed_one() {
    // The first member is the sequencer.
    let (sequencer, rotation) = (
        Kind::Total(TotalEngine::Sequencer),
        Kind::Total(TotalEngine::Rotation),
    );
    for (order, sender, agreed) in [
        (Kind::Fifo, 1, 1),
        (Kind::Fifo, 3, 1),
        (Kind::Unordered, 3, 1),
        (Kind::Scoped, 3, 1),
        (sequencer, 1, 1),
        (sequencer, 3, 2),
        (rotation, 3, 2),
    ] {
        assert_eq!(delays(order, sender, false), agreed, "{order:?} from {sender}");
        assert_eq!(delays(order, sender, true), agreed + 1, "{order:?} from {sender}");
    }
}

#[test]
fn from_five_members_on_the_sequencer_collects_rows_and_tells_how_far_they_are() {
    let ids = [1, 2, 3, 4, 5, 6, 7, 8];
    let mut world = World::with_group(Kind::Total(TotalEngine::Sequencer), 1, &ids);
    let (rows, lost) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (counted, loses) = (rows.clone(), lost.clone());
    world.drop_data = Some(Box::new(move |from, to, record| {
        if !matches!(record, GroupData::Rows { .. }) {
            return false;
        }
        assert!((from == 1) != (to == 1), "{from} tells {to}");
        counted.set(counted.get() + 1);
        loses.set(loses.get() - 1);
        loses.get() >= 0
    }));
    world.send_safe(3, "it").unwrap();
    let has_it = |world: &mut World| ids.iter().all(|id| world.texts(*id) == ["it"]);
    for delays in 0..5 {
        assert_eq!(has_it(&mut world), delays == 4, "after {delays}");
        world.run_micros(DELAY);
    }
    assert_eq!(rows.get(), 14, "a row of each, and a mark for each");
    // Whether rows or marks are lost: they are asked for.
    lost.set(20);
    world.send_safe(1, "more").unwrap();
    world.run(2000);
    for id in ids {
        assert_eq!(world.texts(id), ["it", "more"], "at {id}");
    }
    world.check().unwrap();
}

#[test]
fn without_safe_messages_no_row_is_sent() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1, 2, 3]);
        world.drop_data = Some(Box::new(|_, _, record| {
            assert!(!matches!(record, GroupData::Rows { .. }));
            false
        }));
        for id in [1, 2, 3] {
            world.send(id, "agreed").unwrap();
        }
        world.run(500);
        assert_eq!(world.texts(2).len(), 3);
    }
}

#[test]
fn one_member_alone_or_two_need_nobodys_row() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1]);
        world.send_safe(1, "alone").unwrap();
        assert_eq!(world.texts(1), ["alone"]);
        let mut world = World::with_group(order, 1, &[1, 2]);
        world.send_safe(2, "both").unwrap();
        world.run(2);
        assert_eq!(
            (world.texts(1), world.texts(2)),
            (vec!["both".into()], vec!["both".into()])
        );
    }
}

#[test]
fn nobody_delivers_a_safe_message_that_one_lacks_and_those_behind_it_wait() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1, 2, 3]);
        world.drop_data = Some(Box::new(|_, to, record| {
            to == 3 && matches!(record, GroupData::Batch { messages, .. } if !messages.is_empty())
        }));
        world.send(1, "before").unwrap();
        world.send_safe(1, "safe").unwrap();
        world.send(1, "behind").unwrap();
        world.run(2000);
        // Where there is no order, nothing is behind it.
        let expected: &[&str] = if matches!(order, Kind::Unordered | Kind::Scoped) {
            &["before", "behind"]
        } else {
            &["before"]
        };
        for id in [1, 2] {
            assert_eq!(world.texts(id), expected, "{order:?} at {id}");
        }
        world.drop_data = None;
        world.run(1000);
        for id in [1, 2, 3] {
            assert_eq!(
                world.in_order(id),
                ["before", "safe", "behind"],
                "{order:?} at {id}"
            );
        }
        world.check().unwrap();
    }
}

#[test]
fn a_safe_message_in_pieces_waits_until_all_hold_its_last() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1, 2, 3]);
        world.drop_data = Some(Box::new(|_, to, record| {
            let last = |block: &Block| block.form() == Form::LastPiece;
            to == 3 && matches!(record, GroupData::Batch { messages, .. } if last(messages))
        }));
        let text = "safe ".repeat(40_000);
        world.send_safe(2, &text).unwrap();
        world.run(2000);
        for id in [1, 2, 3] {
            assert_eq!(world.texts(id), Vec::<String>::new(), "{order:?} at {id}");
        }
        world.drop_data = None;
        world.run(1000);
        for id in [1, 2, 3] {
            assert!(world.texts(id) == [text.as_str()], "{order:?} at {id}");
        }
        world.check().unwrap();
    }
}

#[test]
fn rows_that_are_lost_are_asked_for() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1, 2, 3, 4]);
        let mut lost = 0;
        world.drop_data = Some(Box::new(move |_, _, record| {
            let row = matches!(record, GroupData::Rows { .. });
            lost += u32::from(row);
            row && lost < 12
        }));
        world.send_safe(2, "safe").unwrap();
        world.run(5);
        assert_eq!(world.texts(3), Vec::<String>::new());
        world.run(1500);
        for id in 1..=4 {
            assert_eq!(world.texts(id), ["safe"], "{order:?} at {id}");
        }
        world.check().unwrap();
    }
}

#[test]
fn what_a_dead_member_may_lack_comes_behind_the_notice() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1, 2, 3, 4]);
        world.drop_data = Some(Box::new(|_, to, _| to == 4));
        world.send_safe(2, "safe").unwrap();
        world.run(20);
        world.crash(4);
        world.primary(&[1, 2, 3]);
        world.run(500);
        for id in 1..=3 {
            let events = world.events(id);
            let notice = events.iter().position(
                |event| matches!(event, GroupEvent::Transitional { members } if members.len() == 3),
            );
            let message = events
                .iter()
                .position(|event| matches!(event, GroupEvent::Messages(_)));
            assert!(
                notice.is_some() && notice < message,
                "{order:?} at {id}: {events:?}"
            );
        }
        world.check().unwrap();
    }
}

#[test]
fn a_dead_member_that_held_it_is_no_reason_for_a_notice() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 1, &[1, 2, 3, 4]);
        world.send_safe(2, "safe").unwrap();
        world.run(2);
        world.crash(4);
        world.primary(&[1, 2, 3]);
        world.run(500);
        for id in 1..=3 {
            assert_eq!(world.texts(id), ["safe"]);
            let notice = |event: &GroupEvent| matches!(event, GroupEvent::Transitional { .. });
            assert!(!world.events(id).iter().any(notice));
        }
        world.check().unwrap();
    }
}

/// Member 2 has sent a safe message that reached member 3 alone, so that it has no place in the total order;
/// 5 dies.
fn unordered_and_about_to_flush() -> World {
    let mut world = World::with_group(TotalEngine::Sequencer, 1, &[1, 2, 3, 4, 5]);
    world.drop_data = Some(Box::new(|from, to, record| {
        from == 2 && to != 3 && matches!(record, GroupData::Batch { .. })
    }));
    world.send_safe(2, "safe").unwrap();
    world.run(1);
    world.crash(5);
    world.drop_data = None;
    world
}

#[test]
fn nobody_delivers_a_cut_with_safe_messages_before_all_hold_it() {
    let mut world = unordered_and_about_to_flush();
    // What 4 lacks does not reach it.
    world.drop_data = Some(Box::new(|_, to, record| {
        to == 4 && matches!(record, GroupData::Repair { .. })
    }));
    world.primary(&[1, 2, 3, 4]);
    world.run(300);
    for id in 1..=4 {
        assert_eq!(world.texts(id), Vec::<String>::new(), "at {id}");
    }
    world.drop_data = None;
    world.run(1000);
    for id in 1..=4 {
        assert_eq!(world.texts(id), ["safe"], "at {id}");
    }
    world.check().unwrap();
}

#[test]
fn what_one_delivered_by_a_safe_cut_all_deliver_although_leader_and_sender_are_dead() {
    let mut world = unordered_and_about_to_flush();
    // The leader lets member 2 deliver, and dies before it tells the next.
    world.trap = Some(Box::new(|from, to, message| {
        from == 1 && to == 3 && matches!(message, GroupMessage::CutSafe { .. })
    }));
    world.primary(&[1, 2, 3, 4]);
    world.run(300);
    assert_eq!(world.trapped, [1]);
    assert_eq!(world.texts(2), ["safe"], "its sender was told so");
    assert_eq!(world.texts(3), Vec::<String>::new());
    world.crash(2);
    // A decision of their own would drop it: its sender is dead, and it has no place in the order.
    world.primary(&[3, 4]);
    world.run(500);
    for id in [3, 4] {
        assert_eq!(world.texts(id), ["safe"], "at {id}");
        assert_eq!(world.members(id), world.incarnations(&[3, 4]));
    }
    world.check().unwrap();
}

/// Under the policy `any` both go on. The notice of a cut that a member apart has not held names it, and that
/// one goes on without.
#[test]
fn a_part_that_goes_on_apart_delivers_no_cut_as_safe_that_was_made_with_others() {
    let mut world = unordered_and_about_to_flush();
    world.drop_data = Some(Box::new(|_, to, record| {
        to == 4 && matches!(record, GroupData::Repair { .. })
    }));
    world.primary(&[1, 2, 3, 4]);
    world.run(300);
    world.primary(&[4]);
    world.epoch += 1;
    world.primary(&[1, 2, 3]);
    world.run(500);
    assert_eq!(world.texts(4), Vec::<String>::new());
    let apart = world.inc(4);
    for id in 1..=3 {
        assert_eq!(world.texts(id), ["safe"], "at {id}");
        assert_eq!(world.members(id), world.incarnations(&[1, 2, 3]));
        for event in world.events(id) {
            if let GroupEvent::Transitional { members, .. } = &event {
                assert!(!members.contains(&apart), "at {id}: {event:?}");
            }
        }
    }
    world.check().unwrap();
}

#[test]
fn a_member_that_never_holds_a_safe_cut_is_removed_and_the_others_go_on() {
    let mut world = unordered_and_about_to_flush();
    world.drop_data = Some(Box::new(|_, to, record| {
        to == 4 && matches!(record, GroupData::Repair { .. })
    }));
    world.primary(&[1, 2, 3, 4]);
    world.run(20_000);
    for id in 1..=3 {
        assert_eq!(world.texts(id), ["safe"], "at {id}");
    }
    let resynced = |event: &GroupEvent| matches!(event, GroupEvent::Resync { .. });
    assert!(world.events(4).iter().any(resynced));
    world.drop_data = None;
    world.run(5_000);
    assert_eq!(world.members(4), world.members(1));
    world.check().unwrap();
}
