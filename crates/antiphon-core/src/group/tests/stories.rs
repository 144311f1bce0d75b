//! Faults with names.

use antiphon_wire::group::{GroupData, GroupMessage};
use antiphon_wire::{Block, GroupViewId};

use super::super::MAX_FLOORS;
use super::super::log::BLOCK_OVERHEAD;
use super::world::{Kind, World};
use crate::{GroupEvent, Order, Outcome, SendError, TotalEngine};

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

#[test]
fn a_group_of_one_delivers_at_once_without_any_network() {
    for order in Kind::ALL {
        let mut world = World::new(order, 1);
        world.start(1);
        world.primary(&[1]);
        world.join(1);
        world.send(1, "alone").unwrap();
        assert_eq!(world.texts(1), ["alone"]);
        assert_eq!(world.data_records, 0);
        world.check().unwrap();
    }
}

#[test]
fn two_that_want_to_found_a_group_at_once_get_one_group() {
    for order in Kind::ALL {
        let mut world = World::new(order, 1);
        for id in 1..=3 {
            world.start(id);
        }
        // All ask before any view; the elder is one of them.
        world.join(2);
        world.join(3);
        world.primary(&[1, 2, 3]);
        world.run(500);
        assert_eq!(world.members(2), world.members(3));
        assert_eq!(world.members(2).len(), 2);
        world.check().unwrap();
    }
}

#[test]
fn ten_join_at_once_in_a_few_views() {
    let ids: Vec<_> = (1..=10).collect();
    let mut world = World::new(Order::Total, 1);
    for id in &ids {
        world.start(*id);
    }
    world.primary_within(&ids, 20);
    for id in &ids {
        world.join(*id);
    }
    world.run(1000);
    for id in &ids {
        assert_eq!(world.members(*id).len(), 10);
    }
    assert!(world.views(*ids.first().unwrap()).len() < 6);
    world.check().unwrap();
}

#[test]
fn messages_arrive_complete_and_in_order_over_a_bad_network() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 5, &[1, 2, 3]);
        (world.loss, world.duplicates, world.jitter_ms) = (20, 20, 10);
        for round in 0..100 {
            for id in 1..=3 {
                world.send(id, &format!("{id}-{round}")).unwrap();
            }
            world.run(3);
        }
        world.run(3000);
        let all = sorted(world.texts(1));
        assert_eq!(all.len(), 300);
        for id in 2..=3 {
            assert_eq!(sorted(world.texts(id)), all);
        }
        if order.is_total() {
            assert_eq!(world.texts(1), world.texts(2));
            assert_eq!(world.texts(1), world.texts(3));
        }
        world.check().unwrap();
    }
}

#[test]
fn an_idle_group_is_silent() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 5, &[1, 2, 3]);
        world.send(2, "one").unwrap();
        world.run(2000);
        let before = world.data_records;
        world.run(60_000);
        assert_eq!(world.data_records, before);
    }
}

#[test]
fn survivors_deliver_what_a_crashed_sender_left_with_one_of_them() {
    let mut world = World::with_group(Order::Fifo, 1, &[1, 2, 3, 4]);
    world.drop_data = Some(Box::new(|from, to, record| {
        from == 4 && to != 2 && matches!(record, GroupData::Batch { .. })
    }));
    world.send(4, "last words").unwrap();
    world.run(2);
    world.crash(4);
    world.drop_data = None;
    world.primary(&[1, 2, 3]);
    world.run(500);
    for id in 1..=3 {
        assert_eq!(world.texts(id), ["last words"]);
        assert_eq!(world.members(id), world.incarnations(&[1, 2, 3]));
    }
    world.check().unwrap();
}

#[test]
fn a_total_order_known_to_one_survivor_is_kept_by_all() {
    let mut world = World::with_group(TotalEngine::Sequencer, 1, &[1, 2, 3, 4]);
    // The sequencer's records and payloads reach only member 3.
    world.drop_data = Some(Box::new(|from, to, record| {
        from == 1 && to != 3 && matches!(record, GroupData::Batch { .. } | GroupData::Orders { .. })
    }));
    for round in 0..3 {
        for id in [4, 1, 2] {
            world.send(id, &format!("{id}-{round}")).unwrap();
        }
        world.run(2);
    }
    let seen = world.texts(3);
    assert!(!seen.is_empty());
    world.crash(1);
    world.drop_data = None;
    world.primary(&[2, 3, 4]);
    world.run(500);
    for id in 2..=4 {
        assert_eq!(world.texts(id), world.texts(3));
        assert_eq!(world.texts(id).len(), 9);
    }
    assert_eq!(world.texts(3)[..seen.len()], seen);
    world.check().unwrap();
}

/// Which step of a flush a message belongs to.
fn step_of(message: &GroupMessage) -> Option<usize> {
    Some(match message {
        GroupMessage::FlushStart { .. } => 0,
        GroupMessage::FlushReport { .. } => 1,
        GroupMessage::FlushCut { .. } => 2,
        GroupMessage::Installed { .. } => 3,
        GroupMessage::FirstView { .. } => 4,
        GroupMessage::Settled { .. } => 5,
        _ => return None,
    })
}

/// A member dies while it sends the n-th message of a step, in a flush that another crash and a join have
/// begun.
fn die_at(order: Kind, step: usize, nth: usize, victim: u8) {
    let mut world = World::with_group(order, 9, &[1, 2, 3, 4, 5]);
    world.start(6);
    world.primary(&[1, 2, 3, 4, 5, 6]);
    world.run(100);
    world.drop_data = Some(Box::new(|from, to, _| from == 5 && to != 4));
    for id in 1..=5 {
        world.send(id, &format!("before-{id}")).unwrap();
    }
    world.run(2);
    world.crash(5);
    world.drop_data = None;
    let mut seen = 0;
    world.trap = Some(Box::new(move |from, _, message| {
        let hit = from == victim && step_of(message) == Some(step);
        seen += usize::from(hit);
        hit && seen == nth + 1
    }));
    world.join(6);
    world.primary_within(&[1, 2, 3, 4, 6], 5);
    world.run(100);
    world.trap = None;
    let dead = world.trapped.clone();
    let alive: Vec<_> = [1, 2, 3, 4, 6]
        .into_iter()
        .filter(|id| !dead.contains(id))
        .collect();
    if !dead.is_empty() {
        world.primary_within(&alive, 5);
    }
    for id in &alive {
        let _ = world.send(*id, &format!("after-{id}"));
    }
    world.run(3000);
    for id in &alive {
        assert_eq!(
            sorted(world.members(*id)),
            sorted(world.incarnations(&alive)),
            "{order:?}: {victim} died at step {step}, message {nth}: the view of {id}"
        );
        assert!(world.texts(*id).contains(&format!("after-{}", alive[0])) || *id == 6);
    }
    world
        .check()
        .unwrap_or_else(|broken| panic!("{order:?}: {victim} died at step {step}, {nth}: {broken}"));
    assert!(world.accusations.is_empty());
}

#[test]
fn the_leader_dies_at_each_step_of_a_flush() {
    for order in Kind::ALL {
        for step in [0, 2, 4, 5] {
            for nth in 0..4 {
                die_at(order, step, nth, 1);
            }
        }
    }
}

#[test]
fn a_survivor_dies_at_each_step_of_a_flush() {
    for order in Kind::ALL {
        for (step, victim) in [(1, 2), (3, 2), (1, 4), (3, 4)] {
            die_at(order, step, 0, victim);
        }
    }
}

#[test]
fn a_joiner_dies_at_each_step_of_its_join() {
    for order in Kind::ALL {
        die_at(order, 3, 0, 6);
        for at in 0..20 {
            let mut world = World::with_group(order, 3, &[1, 2, 3]);
            world.start(4);
            world.primary(&[1, 2, 3, 4]);
            world.run(100);
            world.join(4);
            world.run(at);
            world.crash(4);
            world.send(2, "on").unwrap();
            world.run(200);
            world.primary_within(&[1, 2, 3], 5);
            world.run(500);
            for id in 1..=3 {
                assert_eq!(world.members(id), world.incarnations(&[1, 2, 3]));
                assert_eq!(world.texts(id), ["on"]);
            }
            world.check().unwrap();
        }
    }
}

#[test]
fn two_crashes_in_quick_succession_are_flushed() {
    for order in Kind::ALL {
        for gap_ms in [0, 1, 2, 3, 5, 20] {
            let mut world = World::with_group(order, 3, &[1, 2, 3, 4, 5]);
            for id in 1..=5 {
                world.send(id, &format!("before-{id}")).unwrap();
            }
            world.run(1);
            world.crash(1);
            world.primary_within(&[2, 3, 4, 5], 5);
            world.run(gap_ms);
            world.crash(2);
            world.primary_within(&[3, 4, 5], 5);
            world.run(1000);
            for id in 3..=5 {
                assert_eq!(world.members(id), world.incarnations(&[3, 4, 5]));
                assert!(world.texts(id).contains(&format!("before-{id}")));
            }
            world.check().unwrap();
        }
    }
}

#[test]
fn the_leader_leaves_in_order_and_delivers_its_own_last_messages() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 3, &[1, 2, 3]);
        world.drop_data = Some(Box::new(|from, _, record| {
            from == 1 && matches!(record, GroupData::Batch { .. })
        }));
        world.send(1, "farewell").unwrap();
        world.leave(1);
        world.run(50);
        world.drop_data = None;
        world.run(1000);
        assert_eq!(world.events(1).last(), Some(&GroupEvent::Left));
        assert!(world.peers[&1].groups.is_idle());
        for id in 1..=3 {
            assert_eq!(world.texts(id), ["farewell"]);
        }
        let view = world.views(2).pop().unwrap();
        assert_eq!(view.members, world.incarnations(&[2, 3]));
        assert_eq!(view.left, world.incarnations(&[1]));
        world.check().unwrap();
    }
}

#[test]
fn all_leave_at_once_and_the_group_can_be_founded_again() {
    let mut world = World::with_group(Order::Total, 3, &[1, 2, 3]);
    for id in 1..=3 {
        world.leave(id);
    }
    world.run(1000);
    for id in 1..=3 {
        assert_eq!(world.events(id).last(), Some(&GroupEvent::Left));
        assert!(world.peers[&id].groups.is_idle());
    }
    world.join(2);
    world.run(500);
    assert_eq!(world.members(2), world.incarnations(&[2]));
}

#[test]
fn one_that_left_joins_again_and_its_numbers_go_on() {
    let mut world = World::with_group(Order::Total, 3, &[1, 2]);
    world.send(2, "first").unwrap();
    world.leave(2);
    world.run(500);
    world.join(2);
    world.run(500);
    assert_eq!(world.members(1), world.incarnations(&[1, 2]));
    world.send(2, "second").unwrap();
    world.run(100);
    assert_eq!(world.texts(1), ["first", "second"]);
    assert_eq!(world.messages(1).pop().unwrap().seq, 2);
}

#[test]
fn a_suspended_group_delivers_nothing_and_goes_on_when_the_primary_is_back() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 3, &[1, 2, 3]);
        world.drop_data = Some(Box::new(|_, _, record| matches!(record, GroupData::Batch { .. })));
        world.send(1, "early").unwrap();
        world.run(20);
        world.drop_data = None;
        for id in 1..=3 {
            world.non_primary(&[id]);
        }
        assert_eq!(world.send(1, "refused"), Err(SendError::NotPrimary));
        let before = world.messages(2).len();
        world.run(10_000);
        assert_eq!(world.messages(2).len(), before);
        assert_eq!(world.events(2).last(), Some(&GroupEvent::Suspended));
        world.primary_within(&[1, 2, 3], 20);
        world.run(500);
        world.send(3, "late").unwrap();
        world.run(100);
        for id in 1..=3 {
            assert_eq!(world.texts(id), ["early", "late"]);
        }
        world.check().unwrap();
    }
}

#[test]
fn one_suspended_member_comes_back_under_the_same_incarnation() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 3, &[1, 2, 3]);
        world.non_primary(&[3]);
        world.send(1, "missed").unwrap();
        world.run(1000);
        assert_eq!(world.texts(3), Vec::<String>::new());
        world.primary(&[1, 2, 3]);
        world.run(500);
        assert_eq!(world.texts(3), ["missed"]);
        assert_eq!(world.members(3), world.incarnations(&[1, 2, 3]));
        assert!(matches!(world.events(3).last(), Some(GroupEvent::View(_))));
        world.check().unwrap();
    }
}

#[test]
fn one_that_was_cut_off_learns_what_became_of_its_messages() {
    let mut world = World::with_group(TotalEngine::Sequencer, 3, &[1, 2, 3]);
    // "heard" reaches the others, but its order does not come back; "unheard" reaches no member.
    world.drop_data = Some(Box::new(|from, to, record| {
        to == 3 && from != 3 || {
            matches!(record, GroupData::Batch { messages, .. } if messages.iter().any(|m| m == b"unheard"))
        }
    }));
    let heard = world.send(3, "heard").unwrap();
    world.run(10);
    let unheard = world.send(3, "unheard").unwrap();
    world.run(10);
    world.non_primary(&[3]);
    world.primary(&[1, 2]);
    world.run(500);
    world.drop_data = None;
    assert_eq!(world.texts(1), ["heard"]);
    world.reincarnate(3, "removed");
    world.primary(&[1, 2, 3]);
    world.run(500);
    let events = world.events(3);
    assert!(events.contains(&GroupEvent::Resync {
        cause: "removed".to_owned()
    }));
    assert!(events.contains(&GroupEvent::Receipts {
        first: heard,
        count: 1,
        outcome: Outcome::Delivered
    }));
    assert!(events.contains(&GroupEvent::Receipts {
        first: unheard,
        count: 1,
        outcome: Outcome::NotDelivered
    }));
    assert_eq!(world.members(3), world.incarnations(&[1, 2, 3]));
    assert_eq!(world.texts(3), Vec::<String>::new());
    world.check().unwrap();
}

#[test]
fn a_slow_consumer_holds_back_the_senders_and_nothing_is_lost() {
    for order in Kind::ALL {
        let mut world = World::new(order, 3);
        world.options = order.options().window_bytes(1 << 16);
        for id in 1..=3 {
            world.start(id);
        }
        world.primary(&[1, 2, 3]);
        for id in 1..=3 {
            world.join(id);
            world.run(100);
        }
        world.peers.get_mut(&3).unwrap().consumes = false;
        let text = "x".repeat(1000);
        let mut accepted = 0;
        while world.send(1, &format!("{accepted}{text}")).is_ok() {
            accepted += 1;
            world.run(1);
            assert!(accepted < 200, "the window does not hold back");
        }
        assert_eq!(world.send(1, &text), Err(SendError::Full));
        // Two windows at the sender: one on its way, one queued.
        assert!((100..=130).contains(&accepted), "{accepted} accepted");
        world.run(1000);
        assert!(world.messages(3).len() < 70);
        assert!(!world.events(1).contains(&GroupEvent::Writable));
        world.peers.get_mut(&3).unwrap().consumes = true;
        world.consume(3);
        world.run(2000);
        assert!(world.events(1).contains(&GroupEvent::Writable));
        for id in 1..=3 {
            assert_eq!(world.messages(id).len(), accepted);
        }
        world.check().unwrap();
    }
}

#[test]
fn credit_survives_lost_acknowledgements() {
    for order in Kind::ALL {
        let mut world = World::new(order, 3);
        world.options = order.options().window_bytes(1 << 16);
        for id in 1..=3 {
            world.start(id);
        }
        world.primary(&[1, 2, 3]);
        for id in 1..=3 {
            world.join(id);
            world.run(100);
        }
        world.loss = 30;
        let text = "x".repeat(5000);
        let mut accepted = 0;
        for _ in 0..3000 {
            while accepted < 200 && world.send(2, &format!("{accepted}{text}")).is_ok() {
                accepted += 1;
            }
            world.run(5);
        }
        assert_eq!(accepted, 200, "{order:?}");
        for id in 1..=3 {
            assert_eq!(world.messages(id).len(), 200);
        }
        world.check().unwrap();
    }
}

#[test]
fn a_late_frame_of_the_dead_is_not_delivered_after_the_wedge() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 3, &[1, 2, 3, 4]);
        // Only a copy that was held up in the network remains of member 4's message.
        let late = std::sync::Arc::new(std::sync::Mutex::new(None));
        let copy = late.clone();
        world.drop_data = Some(Box::new(move |from, _, record| {
            if from == 4 && matches!(record, GroupData::Batch { messages, .. } if !messages.is_empty()) {
                *copy.lock().unwrap() = Some(record.clone());
                return true;
            }
            false
        }));
        let dead = world.inc(4);
        world.send(4, "too late").unwrap();
        world.run(1);
        world.crash(4);
        // The leader never gets to decide: all members are wedged when the copy arrives.
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
            assert_eq!(world.texts(id), Vec::<String>::new());
            assert_eq!(world.members(id), world.incarnations(&[2, 3]));
        }
        world.check().unwrap();
    }
}

#[test]
fn what_is_sent_during_a_flush_goes_out_in_the_next_view() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 3, &[1, 2, 3]);
        world.crash(3);
        world.primary(&[1, 2]);
        // Wedged, the report is on its way.
        world.send(1, "queued").unwrap();
        assert_eq!(world.texts(1), Vec::<String>::new());
        world.run(500);
        for id in 1..=2 {
            let message = world.messages(id).pop().unwrap();
            assert_eq!(message.view, world.views(id).pop().unwrap().id);
            assert_eq!(message.seq, 1);
        }
        world.check().unwrap();
    }
}

#[test]
fn a_member_with_other_options_is_refused_with_both_sides_shown() {
    let mut world = World::with_group(Order::Total, 3, &[1, 2]);
    world.start(3);
    world.primary(&[1, 2, 3]);
    world.options = world.options.order(Order::Fifo);
    world.join(3);
    world.run(300);
    let Some(GroupEvent::Refused { reason }) = world.events(3).pop() else {
        panic!("not refused")
    };
    assert!(
        reason.contains("order total") && reason.contains("order fifo"),
        "{reason}"
    );
    assert_eq!(world.send(3, "x"), Err(SendError::NoSuchGroup));
    assert_eq!(world.members(1).len(), 2);
    world.options = world.options.order(Order::Total);
    world.join(3);
    world.run(300);
    assert_eq!(world.members(1).len(), 3, "it may ask again");
}

#[test]
fn the_numbers_of_messages_go_on_also_if_very_many_other_groups_were_left_since() {
    let mut world = World::with_group(Order::Fifo, 3, &[1]);
    world.send(1, "x").unwrap();
    world.leave(1);
    world.run(5_000);
    let (now, options) = (world.now, world.options);
    let groups = &mut world.peers.get_mut(&1).unwrap().groups;
    assert!(groups.is_idle() && groups.by_id.is_empty());
    let (name, earlier) = groups
        .sent
        .first_key_value()
        .map(|(a, b)| (a.clone(), b.clone()))
        .unwrap();
    assert_eq!(earlier.0, 2);
    for number in 0..MAX_FLOORS {
        groups.sent.insert(format!("zoo {number}"), earlier.clone());
    }
    groups.handle_timeout(now);
    assert!(!groups.sent.contains_key(&name) && groups.sent.len() == MAX_FLOORS);
    let handle = groups.join(now, &name, options).unwrap();
    assert_eq!(groups.groups[&handle].next_seq, 2);
}

#[test]
fn the_sixty_fifth_is_refused_with_what_else_it_can_do() {
    let members: Vec<u8> = (1..=64).collect();
    let mut world = World::with_group(Order::Fifo, 3, &members);
    world.start(65);
    world.primary(&(1..=65).collect::<Vec<_>>());
    world.join(65);
    world.run(300);
    let Some(GroupEvent::Refused { reason }) = world.events(65).pop() else {
        panic!("not refused")
    };
    assert!(
        reason.contains("64 members already") && reason.contains("another group, or in none"),
        "{reason}"
    );
    assert_eq!(world.members(1).len(), 64);
}

#[test]
fn a_member_that_does_not_report_is_removed_and_starts_over() {
    let mut world = World::with_group(Order::Total, 3, &[1, 2, 3, 4]);
    world.crash(4);
    // Member 3 lives, but its application layer answers no flush for a while.
    world.peers.get_mut(&3).unwrap().alive = false;
    world.primary(&[1, 2, 3]);
    world.run(4000);
    assert_eq!(world.members(1).len(), 4, "nobody is removed before its time");
    world.run(2000);
    assert_eq!(world.members(1), world.incarnations(&[1, 2]));
    let view = world.peers[&1].view;
    let peer = world.peers.get_mut(&3).unwrap();
    (peer.alive, peer.view) = (true, view);
    world.primary(&[1, 2, 3]);
    world.run(12_000);
    assert!(
        world
            .events(3)
            .iter()
            .any(|event| matches!(event, GroupEvent::Resync { .. }))
    );
    assert_eq!(sorted(world.members(1)), sorted(world.incarnations(&[1, 2, 3])));
    assert_eq!(world.members(3), world.members(1));
    world.check().unwrap();
}

#[test]
fn nonsense_of_a_peer_changes_nothing() {
    for engine in TotalEngine::ALL {
        nonsense(engine);
    }
}

/// R5: above the last view id there is no other, and two views would have it. A leader that has promised an
/// id above all its own refuses its own flush, again and again.
#[test]
fn a_member_that_names_the_last_view_there_is_leaves_the_group_a_later_one() {
    let spoil: [fn(&mut GroupViewId); 3] = [
        |target| target.k = u32::MAX,
        |target| target.number = u32::MAX,
        |target| target.node.counter = u32::MAX,
    ];
    for spoil in spoil {
        let mut world = World::with_group(Kind::Fifo, 3, &[1, 2, 3]);
        let view = world.views(1).pop().unwrap();
        let (now, hostile) = (world.now, world.inc(2));
        let mut target = view.id;
        spoil(&mut target);
        for to in [1, 3] {
            let start = GroupMessage::FlushStart {
                group: view.group,
                name: view.name.clone(),
                view: view.id,
                target,
            };
            let peer = world.peers.get_mut(&to).unwrap();
            let node = peer.view.unwrap();
            peer.groups.handle_message(now, hostile, node, start);
        }
        world.leave(3);
        world.run(1000);
        let next = world.views(1).pop().unwrap();
        assert!(next.id > view.id && next.id.k < 100, "{:?}", next.id);
    }
}

#[test]
fn what_comes_for_a_later_view_is_counted_marks_as_well() {
    let mut world = World::with_group(Kind::Fifo, 3, &[1, 2, 3]);
    let view = world.views(1).pop().unwrap();
    let held = |world: &World| {
        let peer = &world.peers[&1];
        peer.groups.memory(peer.handle.unwrap()).unwrap().held
    };
    let before = held(&world);
    let later = GroupViewId {
        k: view.id.k + 1,
        ..view.id
    };
    for _ in 0..10 {
        let mark = GroupData::Batch {
            group: view.group,
            view: later,
            sender: 1,
            first: 1,
            stable: 1,
            ask: true,
            messages: Block::default(),
        };
        world.inject(world.inc(2), 1, mark);
    }
    assert_eq!(held(&world), before + 10 * BLOCK_OVERHEAD);
}

fn nonsense(engine: TotalEngine) {
    let mut world = World::with_group(engine, 3, &[1, 2, 3]);
    let (group, view) = {
        let view = world.views(1).pop().unwrap();
        (view.group, view.id)
    };
    let liar = world.inc(2);
    for first in [0, 1, u64::MAX, u64::MAX - 1, 1 << 40] {
        for rank in [0, 1, 2, 3, u16::MAX] {
            let messages = Block::of(b"lie");
            let nulls = Block::nulls(u32::MAX);
            let records = [
                GroupData::Repair {
                    group,
                    view,
                    sender: rank,
                    first,
                    last: true,
                    messages: nulls,
                },
                GroupData::Batch {
                    group,
                    view,
                    sender: rank,
                    first,
                    stable: first,
                    ask: true,
                    messages: Block::default(),
                },
                GroupData::Repair {
                    group,
                    view,
                    sender: rank,
                    first,
                    last: true,
                    messages,
                },
                GroupData::Pull {
                    group,
                    view,
                    sender: rank,
                    first,
                    end: u64::MAX,
                },
                GroupData::Nak {
                    group,
                    view,
                    sender: rank,
                    first,
                    end: u64::MAX,
                },
                GroupData::Ack {
                    group,
                    view,
                    to: rank,
                    held: first,
                    consumed: u64::MAX,
                    ordered: first,
                },
                GroupData::OrderNak { group, view, first },
                GroupData::PullOrders { group, view, first },
                GroupData::Orders {
                    group,
                    view,
                    first,
                    stable: first,
                    ask: true,
                    runs: vec![antiphon_wire::group::Run {
                        sender: rank,
                        count: u32::MAX,
                    }],
                },
            ];
            for record in records {
                world.inject(liar, 1, record.clone());
                world.inject(liar, 3, record);
            }
        }
    }
    world.run(1000);
    world.send(1, "true").unwrap();
    world.send(3, "as well").unwrap();
    world.run(1000);
    assert_eq!(sorted(world.texts(1)), ["as well", "true"]);
    assert_eq!(world.texts(1), world.texts(3));
}
