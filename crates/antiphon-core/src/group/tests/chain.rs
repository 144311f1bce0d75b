//! Faults with names, of groups whose messages go from member to member.

use std::sync::{Arc, Mutex};

use antiphon_wire::Block;
use antiphon_wire::group::{GroupData, GroupMessage};

use super::loss::text;
use super::world::{Kind, World};
use crate::{Dissemination, GroupEvent, GroupOptions, Order, TotalEngine};

fn chain(kind: impl Into<Kind>, seed: u64) -> World {
    let options = kind.into().options().dissemination(Dissemination::Chain);
    World::with_options(options, seed)
}

#[test]
fn every_link_of_a_chain_carries_a_message_once() {
    for order in Kind::ALL {
        let mut world = chain(order, 1).gather(&[1, 2, 3, 4, 5]);
        let hops = Arc::new(Mutex::new(Vec::new()));
        let seen = hops.clone();
        world.drop_data = Some(Box::new(move |from, to, record| {
            if text(record).is_some() {
                seen.lock().unwrap().push((from, to));
            }
            false
        }));
        world.send(3, "once").unwrap();
        world.run(500);
        assert_eq!(*hops.lock().unwrap(), [(3, 4), (4, 5), (5, 1), (1, 2)]);
        // In a rotation others' nulls go the same way.
        if order != Kind::Total(TotalEngine::Rotation) {
            assert_eq!(world.chained, 3);
        }
        for id in 1..=5 {
            assert_eq!(world.texts(id), ["once"]);
        }
        world.check().unwrap();
    }
}

#[test]
fn what_is_lost_in_the_middle_is_supplied_by_the_member_before_and_by_that_to_those_behind() {
    for order in Kind::ALL {
        let mut world = chain(order, 1).gather(&[1, 2, 3, 4, 5]);
        let supplied = Arc::new(Mutex::new(Vec::new()));
        let seen = supplied.clone();
        let mut lost = false;
        world.drop_data = Some(Box::new(move |from, to, record| {
            if matches!(record, GroupData::Repair { .. }) && text(record).is_some() {
                seen.lock().unwrap().push((from, to));
            }
            let loses = (from, to) == (2, 3) && text(record).as_deref() == Some("lost") && !lost;
            lost |= loses;
            loses
        }));
        world.send(1, "lost").unwrap();
        world.run(5);
        world.send(1, "next").unwrap();
        // Long before anyone asks again.
        world.run(10);
        assert_eq!(*supplied.lock().unwrap(), [(2, 3), (3, 4), (4, 5)]);
        for id in 1..=5 {
            assert_eq!(world.in_order(id), ["lost", "next"], "{id} in {order:?}");
        }
        world.check().unwrap();
    }
}

#[test]
fn much_that_is_lost_in_the_middle_comes_from_the_member_before_and_not_from_the_sender() {
    let mut world = chain(Order::Fifo, 1).gather(&[1, 2, 3, 4, 5]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    let mut lost = 0;
    world.drop_data = Some(Box::new(move |from, to, record| {
        if from == 1 && to > 2 && text(record).is_some() {
            seen.lock().unwrap().push((from, to));
        }
        let loses = (from, to) == (2, 3) && text(record).is_some() && lost < 20;
        lost += u32::from(loses);
        loses
    }));
    for _ in 0..20 {
        world.send(1, &"x".repeat(30_000)).unwrap();
    }
    world.run(5);
    world.send(1, "next").unwrap();
    // Before anyone asks the sender.
    world.run(40);
    for id in 1..=5 {
        assert_eq!(world.texts(id).len(), 21, "{id}");
    }
    assert_eq!(*asked.lock().unwrap(), []);
    world.check().unwrap();
}

#[test]
fn what_is_lost_on_the_first_link_goes_down_the_chain_again() {
    for order in Kind::ALL {
        let mut world = chain(order, 1).gather(&[1, 2, 3, 4]);
        let repairs = Arc::new(Mutex::new(0));
        let seen = repairs.clone();
        let mut lost = false;
        world.drop_data = Some(Box::new(move |from, _, record| {
            *seen.lock().unwrap() += u32::from(matches!(record, GroupData::Repair { .. }));
            let loses = from == 1 && text(record).as_deref() == Some("lost") && !lost;
            lost |= loses;
            loses
        }));
        world.send(1, "lost").unwrap();
        world.run(5);
        world.send(1, "next").unwrap();
        world.run(10);
        assert_eq!(
            *repairs.lock().unwrap(),
            0,
            "it came by the chain and was owed no more"
        );
        for id in 1..=4 {
            assert_eq!(world.in_order(id), ["lost", "next"]);
        }
        world.check().unwrap();
    }
}

#[test]
fn the_next_member_dies_with_what_it_had_to_pass_on_and_the_flush_brings_it() {
    for order in Kind::ALL {
        let mut world = chain(order, 1).gather(&[1, 2, 3, 4]);
        world.drop_data = Some(Box::new(|from, _, record| from == 2 && text(record).is_some()));
        for n in 0..20 {
            world.send(1, &format!("{n}")).unwrap();
            world.run(1);
        }
        assert_eq!(world.texts(3), Vec::<String>::new());
        world.crash(2);
        world.primary(&[1, 3, 4]);
        world.run(20);
        let expected: Vec<_> = (0..20).map(|n| n.to_string()).collect();
        for id in [1, 3, 4] {
            assert_eq!(world.texts(id), expected, "{id} in {order:?}");
            assert_eq!(world.members(id), world.incarnations(&[1, 3, 4]));
        }
        world.check().unwrap();
        // The chain is closed again.
        world.chained = 0;
        world.send(1, "after").unwrap();
        world.run(100);
        assert_eq!(world.chained, 1);
        assert_eq!(world.texts(4).last().unwrap(), "after");
    }
}

#[test]
fn a_next_member_that_passes_nothing_on_and_lives_costs_time_and_no_message() {
    for order in Kind::ALL {
        let mut world = chain(order, 1).gather(&[1, 2, 3, 4]);
        world.drop_data = Some(Box::new(|from, _, record| from == 2 && text(record).is_some()));
        for n in 0..20 {
            world.send(1, &format!("{n}")).unwrap();
            world.run(1);
        }
        world.run(2_000);
        for id in 1..=4 {
            assert_eq!(world.texts(id).len(), 20, "{id} in {order:?}");
        }
        world.check().unwrap();
    }
}

#[test]
fn a_sender_dies_when_only_its_neighbour_has_its_last_words() {
    for order in Kind::ALL {
        let mut world = chain(order, 1).gather(&[1, 2, 3, 4]);
        world.drop_data = Some(Box::new(|from, _, record| from == 4 && text(record).is_some()));
        world.send(3, "last words").unwrap();
        world.run(2);
        assert_eq!(world.texts(1), Vec::<String>::new());
        world.crash(3);
        world.drop_data = None;
        world.primary(&[1, 2, 4]);
        world.run(200);
        let texts = world.texts(4);
        for id in [1, 2, 4] {
            assert_eq!(world.texts(id), texts, "{id} in {order:?}");
        }
        // No member had ordered them: in total order all drop what is left of the dead (G20).
        let expected: &[&str] = if order.is_total() { &[] } else { &["last words"] };
        assert_eq!(texts, expected);
        world.check().unwrap();
    }
}

#[test]
fn views_change_while_frames_are_on_their_way_and_nothing_circles() {
    for order in Kind::ALL {
        let mut world = chain(order, 5).gather(&[1, 2, 3, 4]);
        world.start(5);
        world.primary(&[1, 2, 3, 4, 5]);
        world.jitter_ms = 4;
        let mut sent = 0;
        for round in 0..60 {
            for id in 1..=3 {
                sent += usize::from(world.send(id, &format!("{id}:{round}")).is_ok());
            }
            match round {
                10 => world.join(5),
                25 => world.leave(4),
                40 => {
                    world.crash(5);
                    world.primary(&[1, 2, 3, 4]);
                }
                _ => {}
            }
            world.run(2);
        }
        world.run(2_000);
        for id in 1..=3 {
            assert_eq!(world.messages(id).len(), sent);
        }
        world.check().unwrap();
        // A frame of a view that is over goes nowhere.
        let before = world.chained;
        world.run(5_000);
        assert_eq!(world.chained, before);
    }
}

#[test]
fn a_frame_is_not_passed_on_after_the_report_to_a_flush() {
    let mut world = chain(Order::Fifo, 3).gather(&[1, 2, 3, 4]);
    let late = Arc::new(Mutex::new(None));
    let copy = late.clone();
    world.drop_data = Some(Box::new(move |from, _, record| {
        if from == 4 && text(record).is_some() {
            *copy.lock().unwrap() = Some(record.clone());
            return true;
        }
        false
    }));
    let dead = world.inc(4);
    world.send(4, "too late").unwrap();
    world.run(1);
    world.crash(4);
    world.trap = Some(Box::new(|from, _, message| {
        from == 1 && matches!(message, GroupMessage::FlushCut { .. })
    }));
    world.primary(&[1, 2, 3]);
    world.run(2);
    assert_eq!(world.trapped, [1]);
    let record = late.lock().unwrap().clone().expect("captured");
    world.inject_chained(dead, 2, record.clone());
    world.run(10);
    assert_eq!(world.chained, 0);
    world.primary(&[2, 3]);
    world.run(500);
    // Nor in the view that follows.
    world.inject_chained(dead, 2, record);
    world.run(10);
    assert_eq!(world.chained, 0);
    for id in 2..=3 {
        assert_eq!(world.texts(id), Vec::<String>::new());
    }
    world.check().unwrap();
}

#[test]
fn an_answer_of_the_dead_is_not_taken_after_the_report_to_a_flush() {
    for order in Kind::ALL {
        let mut world = chain(order, 3).gather(&[1, 2, 3, 4, 5]);
        // Members 4 and 5 die; only member 5 had what member 4 sent, and its answer to member 3 was held up.
        let late = Arc::new(Mutex::new(None));
        let copy = late.clone();
        world.drop_data = Some(Box::new(move |from, _, record| {
            let GroupData::Batch {
                group,
                view,
                sender,
                first,
                messages,
                ..
            } = record
            else {
                return false;
            };
            if from != 5 || messages.is_empty() {
                return false;
            }
            *copy.lock().unwrap() = Some(GroupData::Repair {
                group: *group,
                view: *view,
                sender: *sender,
                first: *first,
                last: true,
                messages: messages.clone(),
            });
            true
        }));
        let dead = world.inc(5);
        world.send(4, "too late").unwrap();
        world.run(1);
        world.crash(4);
        world.crash(5);
        world.trap = Some(Box::new(|from, _, message| {
            from == 1 && matches!(message, GroupMessage::FlushCut { .. })
        }));
        world.primary(&[1, 2, 3]);
        world.run(2);
        assert_eq!(world.trapped, [1]);
        let record = late.lock().unwrap().clone().expect("captured");
        world.inject(dead, 3, record);
        world.run(10);
        assert_eq!(world.texts(3), Vec::<String>::new());
        world.primary(&[2, 3]);
        world.run(500);
        for id in 2..=3 {
            assert_eq!(world.texts(id), Vec::<String>::new(), "{id} in {order:?}");
        }
        world.check().unwrap();
    }
}

#[test]
fn a_supplied_message_with_an_absurd_number_or_sender_changes_nothing() {
    let mut world = chain(Order::Total, 3).gather(&[1, 2, 3]);
    world.send(1, "before").unwrap();
    world.run(100);
    let view = world.views(2).last().unwrap().clone();
    let liar = world.inc(3);
    for sender in [0, 1, 2, 3, u16::MAX] {
        for first in [0, 1, u64::MAX - 1, u64::MAX] {
            let repair = GroupData::Repair {
                group: view.group,
                view: view.id,
                sender,
                first,
                last: true,
                messages: Block::of(b"before"),
            };
            world.inject(liar, 2, repair);
            let nak = GroupData::Nak {
                group: view.group,
                view: view.id,
                sender,
                first,
                end: u64::MAX,
            };
            world.inject(liar, 2, nak);
        }
    }
    world.run(100);
    world.send(1, "after").unwrap();
    world.run(500);
    for id in 1..=3 {
        assert_eq!(world.texts(id), ["before", "after"]);
    }
    world.check().unwrap();
}

#[test]
fn a_member_with_another_dissemination_is_refused_with_both_sides_shown() {
    let mut world = chain(Order::Total, 3).gather(&[1, 2]);
    world.start(3);
    world.primary(&[1, 2, 3]);
    world.options = GroupOptions::default();
    world.join(3);
    world.run(500);
    let Some(GroupEvent::Refused { reason }) = world.events(3).pop() else {
        panic!("not refused")
    };
    assert!(
        reason.contains("dissemination chain; this node asked for")
            && reason.contains("dissemination direct"),
        "{reason}"
    );
}
