//! Applications that stop reading, and what becomes of their members.

use std::time::Duration;

use antiphon_wire::group::{GroupData, GroupMessage};

use super::large::long;
use super::world::{Id, Kind, World};
use crate::{GroupEvent, GroupOptions, Order, Outcome, SendError, Ticket};

const LIMIT: Duration = Duration::from_secs(4);

/// Three members, small windows, a limit of 4 s.
fn three(kind: impl Into<Kind>) -> World {
    let options = kind.into().options();
    let options = options.window_bytes(1 << 16).slow_after(Some(LIMIT));
    World::with_options(options, 3).gather(&[1, 2, 3])
}

fn stop_reading(world: &mut World, id: Id) {
    world.peers.get_mut(&id).unwrap().consumes = false;
}

/// For so long, these send whatever is taken.
fn press(world: &mut World, senders: &[Id], ms: u64) {
    for _ in 0..ms / 20 {
        push(world, senders);
        world.run(20);
    }
}

/// These send what is taken at once. A member that is alone is never full.
fn push(world: &mut World, senders: &[Id]) {
    let text = "x".repeat(4000);
    for id in senders {
        (0..16).all(|_| world.send(*id, &text).is_ok());
    }
}

/// Why this node's group started over.
fn resyncs(world: &World, id: Id) -> Vec<String> {
    let events = world.events(id).into_iter();
    events
        .filter_map(|event| match event {
            GroupEvent::Resync { cause } => Some(cause),
            _ => None,
        })
        .collect()
}

#[test]
fn a_member_that_stops_reading_is_removed_in_one_view_and_the_others_go_on() {
    for (nth, order) in Kind::ALL.into_iter().enumerate() {
        // Each place with some orders.
        let slow = 1 + nth as Id % 3;
        let others: Vec<Id> = (1..=3).filter(|id| *id != slow).collect();
        let mut world = three(order);
        let before = others.iter().map(|id| world.views(*id).len());
        let before: Vec<usize> = before.collect();
        stop_reading(&mut world, slow);
        // Both others wait for it; the slow one sends, too.
        press(&mut world, &[1, 2, 3], 3_800);
        assert_eq!(
            world.views(others[0]).len(),
            before[0],
            "removed before the limit"
        );
        press(&mut world, &[1, 2, 3], 4_000);
        for (id, before) in others.iter().zip(before) {
            let views = world.views(*id);
            assert_eq!(views.len(), before + 1, "{slow} of {order:?} at {id}");
            let view = views.last().unwrap();
            assert_eq!(view.members, world.incarnations(&others));
            assert_eq!((&view.crashed, &view.left), (&vec![world.inc(slow)], &vec![]));
            let (who, cause) = &view.causes[0];
            assert_eq!(*who, world.inc(slow));
            assert!(
                cause.starts_with("slow: its application took no message for "),
                "{cause}"
            );
            assert!(resyncs(&world, *id).is_empty());
        }
        let told = resyncs(&world, slow);
        assert_eq!(told, [world.views(others[0]).last().unwrap().causes[0].1.clone()]);
        assert_eq!(world.send(slow, "x"), Err(SendError::NotMember));
        let delivered = world.messages(others[0]).len();
        press(&mut world, &others, 1_000);
        assert!(world.messages(others[0]).len() > delivered + 50);
        // It does not come back before its application has read what it was given; then it does.
        press(&mut world, &others, 5_000);
        assert_eq!(world.members(others[0]), world.incarnations(&others));
        world.peers.get_mut(&slow).unwrap().consumes = true;
        world.consume(slow);
        world.run(3_000);
        assert_eq!(world.members(slow).len(), 3);
        assert!(world.members(others[0]).contains(&world.inc(slow)));
        world.check().unwrap();
    }
}

#[test]
fn one_that_reads_a_message_now_and_then_is_never_removed() {
    let mut world = three(Order::Fifo);
    let before = world.views(1).len();
    stop_reading(&mut world, 3);
    for _ in 0..10 {
        press(&mut world, &[1, 2], 3_500);
        // In FIFO order what waits at first is one sender's: the other's position stands for much longer.
        world.read(3, 1);
    }
    assert_eq!(world.views(1).len(), before);
    assert!(resyncs(&world, 3).is_empty());
}

#[test]
fn one_that_reads_at_the_last_call_stays() {
    let mut world = three(Order::Total);
    let before = world.views(1).len();
    stop_reading(&mut world, 3);
    world.hold_control(3);
    let asked =
        |world: &World| world.is_on_its_way(1, 3, |message| matches!(message, GroupMessage::Overdue { .. }));
    let mut waited = 0;
    while !asked(&world) {
        press(&mut world, &[1], 20);
        waited += 20;
        assert!(waited < 8_000, "nobody asked");
    }
    assert!(waited >= 4_000);
    world.release_control();
    world.run(1_000);
    world.read(3, 1);
    world.run(2_900);
    assert_eq!(world.views(1).len(), before);
    // It stands still again: by its own clock from that one message on.
    world.run(4_000);
    assert_eq!(world.views(1).len(), before + 1);
}

#[test]
fn a_reader_whose_acknowledgements_are_lost_is_asked_and_not_removed() {
    let mut world = three(Order::Fifo);
    let before = world.views(1).len();
    world.drop_data = Some(Box::new(|from, to, record| {
        (from, to) == (3, 1) && matches!(record, GroupData::Ack { .. })
    }));
    press(&mut world, &[1], 12_000);
    assert_eq!(world.send(1, &"x".repeat(4000)), Err(SendError::Full));
    assert_eq!(world.views(1).len(), before);
    world.drop_data = None;
    world.run(2_000);
    assert!(world.events(1).contains(&GroupEvent::Writable));
    world.check().unwrap();
}

#[test]
fn a_reader_that_holds_up_nothing_but_the_record_of_an_object_is_removed() {
    for order in Kind::WITH_OBJECTS {
        let options = order.options().slow_after(Some(LIMIT));
        let window = options.window_bytes as usize;
        let mut world = World::with_options(options, 3).gather(&[1, 2, 3]);
        stop_reading(&mut world, 3);
        // With what its pieces take besides, this is more than the window, and fits in an empty one.
        world.send(1, &long("message", window)).unwrap();
        world.run(500);
        // Every node has room for it, so every member holds it soon.
        let object = long("object", 2 * window);
        world.send(1, &object).unwrap();
        world.run(3 * LIMIT.as_millis() as u64);
        assert_eq!(resyncs(&world, 3).len(), 1, "{order:?}");
        for id in 1..=2 {
            assert_eq!(world.members(id), world.incarnations(&[1, 2]));
            assert!(world.texts(id).last() == Some(&object), "{order:?}: {id}");
        }
        world.check().unwrap();
    }
}

#[test]
fn one_that_does_not_read_stays_as_long_as_nobody_waits_for_it() {
    let mut world = three(Order::Total);
    let before = world.views(1).len();
    stop_reading(&mut world, 3);
    world.send(1, "little").unwrap();
    world.run(60_000);
    assert_eq!(world.views(1).len(), before);
}

#[test]
fn without_a_limit_everyone_waits_for_ever() {
    let mut world = World::new(Order::Fifo, 3);
    world.options = GroupOptions::default().window_bytes(1 << 16).slow_after(None);
    for id in 1..=2 {
        world.start(id);
    }
    world.primary(&[1, 2]);
    for id in 1..=2 {
        world.join(id);
        world.run(100);
    }
    stop_reading(&mut world, 2);
    press(&mut world, &[1], 100_000);
    assert_eq!(world.members(1).len(), 2);
}

#[test]
fn if_all_stop_reading_they_go_one_view_after_the_other_and_the_last_one_stays() {
    for order in Kind::ALL {
        let mut world = three(order);
        for id in 1..=3 {
            stop_reading(&mut world, id);
        }
        press(&mut world, &[1, 2, 3], 20_000);
        // At least one member has the group's state.
        let stays: Vec<Id> = (1..=3).filter(|id| resyncs(&world, *id).is_empty()).collect();
        assert_eq!(stays.len(), 1, "{order:?}");
        assert_eq!(world.members(stays[0]), world.incarnations(&stays));
        let views = world.views(stays[0]);
        assert!(views.iter().all(|view| view.crashed.len() < 2));
        for id in 1..=3 {
            world.peers.get_mut(&id).unwrap().consumes = true;
            world.consume(id);
        }
        world.run(4_000);
        for id in 1..=3 {
            assert_eq!(world.members(id).len(), 3);
        }
        world.check().unwrap();
    }
}

/// One turn of an application that sends and reads in one loop: while it waits to send, it does not read.
fn turn(world: &mut World, id: Id) {
    let text = "x".repeat(4000);
    let waits = (0..2).any(|_| world.send(id, &text) == Err(SendError::Full));
    world.peers.get_mut(&id).unwrap().consumes = !waits;
    if !waits {
        world.consume(id);
    }
}

#[test]
fn of_two_that_take_nothing_the_one_goes_that_stopped_and_not_the_one_that_waits_for_it() {
    for order in Kind::ALL {
        let mut world = three(order);
        stop_reading(&mut world, 3);
        while world.peers[&1].consumes {
            turn(&mut world, 1);
            world.run(5);
        }
        // From its first message on this one meets two that take nothing.
        for _ in 0..400 {
            turn(&mut world, 1);
            push(&mut world, &[2]);
            world.run(20);
        }
        for id in 1..=2 {
            assert_eq!(
                resyncs(&world, id),
                Vec::<String>::new(),
                "{order:?}: 3 made {id} go"
            );
            assert_eq!(world.members(id), world.incarnations(&[1, 2]));
        }
        assert_eq!(resyncs(&world, 3).len(), 1);
        world.check().unwrap();
    }
}

#[test]
fn one_that_begins_to_read_when_its_removal_is_under_way_goes_and_comes_back() {
    for order in Kind::ALL {
        let mut world = three(order);
        stop_reading(&mut world, 3);
        press(&mut world, &[1, 2, 3], 5_200);
        world.hold_control(1);
        while !world.is_on_its_way(3, 1, |message| matches!(message, GroupMessage::Slow { .. })) {
            press(&mut world, &[1, 2, 3], 20);
        }
        world.release_control();
        world.peers.get_mut(&3).unwrap().consumes = true;
        world.consume(3);
        press(&mut world, &[1, 2], 3_000);
        assert_eq!(resyncs(&world, 3).len(), 1, "{order:?}");
        assert_eq!(world.members(3).len(), 3);
        assert_eq!(world.members(1), world.members(3));
        world.check().unwrap();
    }
}

#[test]
fn the_only_other_member_goes_whether_it_leads_or_not() {
    for order in Kind::ALL {
        for slow in 1..=2 {
            let mut world = World::new(order, 5);
            world.options = world.options.window_bytes(1 << 16).slow_after(Some(LIMIT));
            let mut world = world.gather(&[1, 2]);
            let other = 3 - slow;
            stop_reading(&mut world, slow);
            press(&mut world, &[1, 2], 9_000);
            assert_eq!(world.members(other), world.incarnations(&[other]), "{order:?}");
            let alone = world.messages(other).len();
            press(&mut world, &[other], 1_000);
            assert!(world.messages(other).len() > alone + 100);
            assert_eq!(resyncs(&world, slow).len(), 1);
            world.peers.get_mut(&slow).unwrap().consumes = true;
            world.consume(slow);
            world.run(3_000);
            assert_eq!(world.members(other).len(), 2);
            world.check().unwrap();
        }
    }
}

#[test]
fn one_that_stands_still_and_leaves_or_dies_does_that_and_no_more() {
    for order in Kind::ALL {
        for leaves in [true, false] {
            let mut world = three(order);
            stop_reading(&mut world, 3);
            press(&mut world, &[1, 2], 5_200);
            // It has been asked; its last call is under way.
            assert_eq!(world.members(1).len(), 3);
            if leaves {
                world.leave(3);
                world.run(1_000);
                assert!(world.events(3).contains(&GroupEvent::Left));
            } else {
                world.crash(3);
                world.primary(&[1, 2]);
            }
            press(&mut world, &[1, 2], 4_000);
            let last = world.views(1).last().unwrap().clone();
            assert_eq!(last.members, world.incarnations(&[1, 2]), "{order:?}");
            assert_eq!(
                (last.left.len(), last.crashed.len()),
                if leaves { (1, 0) } else { (0, 1) }
            );
            assert!(last.causes.is_empty(), "{:?}", last.causes);
            assert!(resyncs(&world, 3).is_empty());
            world.check().unwrap();
        }
    }
}

#[test]
fn one_that_stood_still_through_the_loss_of_the_primary_goes_when_there_is_one_again() {
    for order in Kind::ALL {
        let mut world = three(order);
        stop_reading(&mut world, 3);
        press(&mut world, &[1, 2], 2_000);
        world.non_primary(&[1, 2, 3]);
        world.run(20_000);
        assert!(resyncs(&world, 3).is_empty(), "removed without a primary");
        world.primary(&[1, 2, 3]);
        press(&mut world, &[1, 2], 7_000);
        assert_eq!(resyncs(&world, 3).len(), 1, "{order:?}");
        assert_eq!(world.members(1), world.incarnations(&[1, 2]));
        world.check().unwrap();
    }
}

#[test]
fn what_a_slow_member_had_accepted_gets_one_fate_each() {
    for order in Kind::ALL {
        let mut world = three(order);
        // An object of which one member gets nothing.
        world.drop_data = Some(Box::new(|_, to, record| {
            to == 3 && matches!(record, GroupData::Chunk { .. })
        }));
        let object = Kind::WITH_OBJECTS
            .contains(&order)
            .then(|| world.send(2, &long("object", 100_000)).unwrap());
        stop_reading(&mut world, 2);
        // More than is ever sent: the rest waits for credit until it is removed.
        press(&mut world, &[2], 1_000);
        press(&mut world, &[1, 2, 3], 8_000);
        assert_eq!(resyncs(&world, 2).len(), 1, "{order:?}");
        world.peers.get_mut(&2).unwrap().consumes = true;
        world.consume(2);
        world.run(3_000);
        let sent: Vec<Ticket> = world.peers[&2]
            .sent
            .iter()
            .map(|(_, ticket, _)| *ticket)
            .collect();
        let mut told: Vec<Ticket> = world
            .messages(2)
            .iter()
            .filter_map(|message| message.ticket)
            .collect();
        let delivered = told.len();
        for event in world.events(2) {
            if let GroupEvent::Receipts { first, count, .. } = event {
                told.extend((first.0..first.0 + count).map(Ticket));
            }
        }
        assert!(
            delivered > 10 && told.len() > delivered + 5,
            "{delivered} of {}",
            told.len()
        );
        told.sort();
        assert_eq!(told, sent, "{order:?}");
        let not_delivered = |first| GroupEvent::Receipts {
            first,
            count: 1,
            outcome: Outcome::NotDelivered,
        };
        assert!(object.is_none_or(|ticket| world.events(2).contains(&not_delivered(ticket))));
        world.check().unwrap();
    }
}

#[test]
fn a_node_that_sleeps_through_the_last_call_is_called_again() {
    let mut world = three(Order::Total);
    let before = world.views(1).len();
    stop_reading(&mut world, 3);
    press(&mut world, &[1], 5_200);
    // The node stands still for longer than the call lasts, as its application does; then both go on.
    world.hold_control(3);
    world.peers.get_mut(&3).unwrap().asleep = true;
    press(&mut world, &[1], 1_900);
    world.release_control();
    world.peers.get_mut(&3).unwrap().asleep = false;
    world.run(50);
    world.peers.get_mut(&3).unwrap().consumes = true;
    world.consume(3);
    press(&mut world, &[1], 3_000);
    assert_eq!(world.views(1).len(), before);
    assert!(resyncs(&world, 3).is_empty());
    world.check().unwrap();
}

#[test]
fn a_slow_member_goes_although_the_leader_dies_when_it_was_told() {
    for order in Kind::ALL {
        let mut world = three(order);
        stop_reading(&mut world, 3);
        world.trap = Some(Box::new(|from, _, message| {
            from == 1 && matches!(message, GroupMessage::FlushStart { .. })
        }));
        press(&mut world, &[1, 2], 8_000);
        assert_eq!(world.trapped, [1], "the leader began no flush");
        world.primary(&[2, 3]);
        press(&mut world, &[2], 4_000);
        assert_eq!(world.members(2), world.incarnations(&[2]));
        assert_eq!(resyncs(&world, 3).len(), 1);
        world.check().unwrap();
    }
}

#[test]
fn a_slow_leader_that_dies_after_one_has_its_last_view_leaves_that_view_to_all() {
    for order in Kind::ALL {
        let mut world = three(order);
        stop_reading(&mut world, 1);
        world.trap = Some(Box::new(|from, to, message| {
            from == 1 && to == 3 && matches!(message, GroupMessage::FlushCut { .. })
        }));
        press(&mut world, &[2, 3], 8_000);
        assert_eq!(world.trapped, [1], "the leader decided nothing");
        world.primary(&[2, 3]);
        press(&mut world, &[2, 3], 4_000);
        for id in 2..=3 {
            assert_eq!(world.members(id), world.incarnations(&[2, 3]));
        }
        world.check().unwrap();
    }
}

#[test]
fn limits_beyond_their_bounds_and_of_other_members_are_refused() {
    let mut world = three(Order::Total);
    world.start(4);
    world.primary(&[1, 2, 3, 4]);
    world.options = world.options.slow_after(None);
    world.join(4);
    world.run(500);
    let refused = world.events(4).into_iter().any(|event| {
        matches!(&event, GroupEvent::Refused { reason }
            if reason.contains("a limit of 4000 ms for slow members") && reason.contains("no limit for slow members"))
    });
    assert!(refused, "{:?}", world.events(4));
    for after in [
        Duration::from_millis(999),
        Duration::from_secs(3601),
        Duration::from_micros(2_000_500),
    ] {
        assert!(
            GroupOptions::default()
                .slow_after(Some(after))
                .validate()
                .is_err(),
            "{after:?}"
        );
    }
}
