//! Faults with names, of total orders by rotation.

use antiphon_wire::Block;
use antiphon_wire::group::{GroupData, GroupMessage};

use super::world::World;
use crate::{GroupEvent, GroupOptions, Order, TotalEngine};

const BY_ROTATION: TotalEngine = TotalEngine::Rotation;

fn is_nulls(record: &GroupData) -> bool {
    matches!(record, GroupData::Batch { messages, .. } | GroupData::Repair { messages, .. } if messages.is_nulls())
}

fn has_messages(record: &GroupData) -> bool {
    matches!(record, GroupData::Batch { messages, .. } if !messages.is_empty() && !messages.is_nulls())
}

#[test]
fn silent_members_are_not_waited_for_longer_than_a_round_trip() {
    for sender in 1..=5 {
        let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3, 4, 5]);
        world.send(sender, "alone").unwrap();
        world.run(1);
        for id in 1..=5 {
            assert_eq!(world.texts(id), ["alone"], "{id} when {sender} sends");
        }
        world.check().unwrap();
    }
}

#[test]
fn a_burst_costs_each_silent_member_one_run_of_nulls() {
    let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3]);
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = runs.clone();
    world.drop_data = Some(Box::new(move |from, _, record| {
        let nulls = from != 3 && is_nulls(record);
        seen.fetch_add(u64::from(nulls), std::sync::atomic::Ordering::Relaxed);
        false
    }));
    // One block: what a batch of the application is.
    let handle = world.peers[&3].handle.unwrap();
    let mut builder = antiphon_wire::BlockBuilder::default();
    (0..5000).for_each(|_| builder.push(b"burst"));
    let now = world.now;
    let peer = world.peers.get_mut(&3).unwrap();
    peer.groups
        .send_block(now, handle, crate::Ticket(1), builder.finish())
        .unwrap();
    world.consume(3);
    world.run(100);
    for id in 1..=3 {
        assert_eq!(world.messages(id).len(), 5000);
    }
    assert_eq!(
        runs.load(std::sync::atomic::Ordering::Relaxed),
        4,
        "one run of each of two members to two others"
    );
}

#[test]
fn numbers_have_no_gaps_where_members_were_silent_also_for_one_that_joins() {
    let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3]);
    let mut sent = 0;
    for round in 0..10 {
        world.send(2, &format!("2-{round}")).unwrap();
        world.run(5);
        if round % 4 == 0 {
            sent += 1;
            world.send(1, &format!("1-{round}")).unwrap();
        }
    }
    world.start(4);
    world.primary(&[1, 2, 3, 4]);
    world.run(100);
    world.join(4);
    world.run(500);
    for id in [2, 4, 1, 3] {
        world.send(id, &format!("{id}-last")).unwrap();
        world.run(5);
    }
    world.run(100);
    for id in 1..=4 {
        let last = |text: &str| {
            let messages = world.messages(id);
            let message = messages.iter().find(|message| message.payload == text.as_bytes());
            message.map(|message| message.seq)
        };
        assert_eq!(last("2-last"), Some(11), "at {id}");
        assert_eq!(last("1-last"), Some(sent + 1), "at {id}");
        assert_eq!(last("3-last"), Some(1), "at {id}");
        assert_eq!(last("4-last"), Some(1), "at {id}");
    }
    world.check().unwrap();
}

#[test]
fn lost_nulls_are_asked_for_like_messages() {
    let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3]);
    world.drop_data = Some(Box::new(|from, to, record| {
        from == 1 && to == 2 && is_nulls(record)
    }));
    world.send(3, "waits").unwrap();
    world.run(20);
    assert_eq!(world.texts(1), ["waits"]);
    assert_eq!(world.texts(2), Vec::<String>::new());
    world.drop_data = None;
    world.run(1000);
    assert_eq!(world.texts(2), ["waits"]);
    world.check().unwrap();
}

#[test]
fn a_silent_member_dies_and_what_waits_for_it_is_delivered_by_the_flush() {
    for dead in 1..=3 {
        let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3, 4]);
        world.crash(dead);
        world.send(4, "waits").unwrap();
        world.run(100);
        let rest: Vec<u8> = (1..=4).filter(|id| *id != dead).collect();
        for id in &rest {
            assert_eq!(
                world.texts(*id),
                Vec::<String>::new(),
                "{id} passes a slot of {dead}"
            );
        }
        world.primary_within(&rest, 5);
        world.run(500);
        for id in &rest {
            assert_eq!(world.texts(*id), ["waits"]);
        }
        world.send(rest[0], "after").unwrap();
        world.run(100);
        for id in &rest {
            assert_eq!(world.texts(*id), ["waits", "after"]);
        }
        world.check().unwrap();
    }
}

#[test]
fn nulls_of_the_dead_that_one_survivor_has_passed_count_for_all() {
    let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3, 4]);
    // Member 1 is heard by member 3 alone, which delivers behind its nulls; then members 2 and 4 send more.
    world.drop_data = Some(Box::new(|from, to, record| {
        from == 1 && to != 3 && matches!(record, GroupData::Batch { .. } | GroupData::Repair { .. })
    }));
    world.send(4, "first").unwrap();
    world.run(2);
    world.send(2, "second").unwrap();
    world.run(2);
    assert_eq!(world.texts(3), ["first", "second"]);
    assert_eq!(world.texts(2), Vec::<String>::new());
    world.send(3, "caused by both").unwrap();
    world.run(1);
    world.crash(1);
    world.drop_data = None;
    world.primary_within(&[2, 3, 4], 5);
    world.run(500);
    for id in 2..=4 {
        assert_eq!(world.texts(id), ["first", "second", "caused by both"]);
    }
    world.check().unwrap();
}

#[test]
fn what_the_dead_sent_behind_a_slot_that_died_with_another_is_dropped_by_all() {
    let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3, 4]);
    // What member 1 says reaches member 2 alone, which answers it; both die.
    world.drop_data = Some(Box::new(|from, to, record| {
        from == 1 && to != 2 && has_messages(record)
    }));
    world.send(1, "question").unwrap();
    world.run(2);
    assert_eq!(world.texts(2), ["question"]);
    world.send(2, "answer").unwrap();
    world.send(3, "unrelated").unwrap();
    world.run(2);
    world.crash(1);
    world.crash(2);
    world.drop_data = None;
    world.primary_within(&[3, 4], 5);
    world.run(500);
    for id in 3..=4 {
        assert_eq!(world.texts(id), ["unrelated"]);
    }
    world.check().unwrap();
}

#[test]
fn a_sender_dies_in_the_middle_of_a_slot_and_what_is_held_of_it_is_delivered() {
    let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3]);
    world.drop_data = Some(Box::new(|from, _, record| from == 1 && is_nulls(record)));
    world.send(1, "begun").unwrap();
    world.run(2);
    world.send(3, "behind").unwrap();
    world.run(2);
    assert_eq!(world.texts(3), ["begun"]);
    world.crash(1);
    world.drop_data = None;
    world.primary_within(&[2, 3], 5);
    world.run(500);
    for id in 2..=3 {
        assert_eq!(world.texts(id), ["begun", "behind"]);
    }
    world.check().unwrap();
}

#[test]
fn the_leader_dies_after_some_have_gone_on_and_numbers_still_agree() {
    let mut world = World::with_group(BY_ROTATION, 1, &[1, 2, 3, 4]);
    for round in 0..5 {
        world.send(3, &format!("{round}")).unwrap();
        world.run(2);
    }
    world.crash(4);
    world.trap = Some(Box::new(|from, to, message| {
        from == 1 && to == 3 && matches!(message, GroupMessage::FlushCut { .. })
    }));
    world.primary_within(&[1, 2, 3], 5);
    world.run(100);
    assert_eq!(world.trapped, [1]);
    world.primary_within(&[2, 3], 5);
    world.run(500);
    world.send(3, "on").unwrap();
    world.run(100);
    for id in 2..=3 {
        assert_eq!(world.messages(id).pop().unwrap().seq, 6);
    }
    world.check().unwrap();
}

#[test]
fn everyone_sends_and_one_leaves_and_all_that_it_sent_is_delivered() {
    let mut world = World::with_group(BY_ROTATION, 7, &[1, 2, 3]);
    (world.loss, world.jitter_ms) = (10, 5);
    for round in 0..50 {
        for id in 1..=3 {
            for part in 0..=round % 3 {
                world.send(id, &format!("{id}-{round}-{part}")).unwrap();
            }
        }
        world.run(2);
    }
    world.leave(1);
    world.run(3000);
    assert_eq!(world.events(1).last(), Some(&GroupEvent::Left));
    let own = |id: u8| {
        world
            .texts(id)
            .iter()
            .filter(|text| text.starts_with("1-"))
            .count()
    };
    assert_eq!((own(1), own(2), own(3)), (own(2), own(2), own(2)));
    assert!(own(2) >= 98, "{}", own(2));
    assert_eq!(world.texts(2), world.texts(3));
    world.check().unwrap();
}

#[test]
fn a_member_with_another_engine_is_refused_with_both_sides_shown() {
    let mut world = World::with_group(BY_ROTATION, 3, &[1, 2]);
    world.start(3);
    world.primary(&[1, 2, 3]);
    world.options = world.options.engine(TotalEngine::Sequencer);
    world.join(3);
    world.run(300);
    let Some(GroupEvent::Refused { reason }) = world.events(3).pop() else {
        panic!("not refused")
    };
    assert!(
        reason.contains("by rotation") && reason.contains("by sequencer"),
        "{reason}"
    );
}

#[test]
fn an_engine_is_no_difference_between_members_of_a_fifo_group() {
    let options = GroupOptions::default().order(Order::Fifo);
    let mut world = World::with_options(options.engine(BY_ROTATION), 3).gather(&[1, 2]);
    world.start(3);
    world.primary(&[1, 2, 3]);
    world.options = options.engine(TotalEngine::Sequencer);
    world.join(3);
    world.run(300);
    assert_eq!(world.members(3), world.incarnations(&[1, 2, 3]));
}

#[test]
fn nulls_are_not_taken_where_no_engine_has_them() {
    for order in [Order::Fifo, Order::Total] {
        let options = GroupOptions::default()
            .order(order)
            .engine(TotalEngine::Sequencer);
        let mut world = World::with_options(options, 3).gather(&[1, 2]);
        let view = world.views(1).pop().unwrap();
        let nulls = GroupData::Batch {
            group: view.group,
            view: view.id,
            sender: 1,
            first: 1,
            stable: 1,
            ask: true,
            messages: Block::nulls(7),
        };
        world.inject(world.inc(2), 1, nulls);
        world.send(2, "first").unwrap();
        world.run(100);
        assert_eq!(world.texts(1), ["first"]);
        assert_eq!(world.messages(1)[0].seq, 1);
        world.check().unwrap();
    }
}
