//! Faults around leaving, removal and joining again: which members still count, and which member's word does.

use antiphon_wire::group::{GroupData, GroupMessage};

use super::world::{Id, Kind, World};
use crate::{GroupEvent, MAX_GROUP_MEMBERS, Order, Outcome};

#[test]
fn what_a_leaver_has_delivered_is_delivered_by_those_who_stay_though_its_cut_was_called_back() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 4, &[1, 2, 3]);
        // No other member has the leaver's last message, and nothing can be pulled from it for a moment.
        world.drop_data = Some(Box::new(|from, _, record| {
            from == 3 && matches!(record, GroupData::Batch { .. } | GroupData::Repair { .. })
        }));
        world.send(3, "goodbye").unwrap();
        world.leave(3);
        while !world.events(3).contains(&GroupEvent::Left) {
            world.run(1);
        }
        assert!(!world.texts(1).contains(&"goodbye".to_owned()));
        // R14: it has installed the view that it left with, so that view and its cut stand.
        world.primary(&[1, 2, 3]);
        world.drop_data = None;
        world.run(1000);
        for id in [1, 2] {
            assert!(world.texts(id).contains(&"goodbye".to_owned()), "{order:?} {id}");
            assert_eq!(world.members(id), world.incarnations(&[1, 2]));
        }
        // G19: it joins again as the same incarnation, and its numbers go on without a gap.
        world.join(3);
        world.run(1000);
        world.send(3, "hello again").unwrap();
        world.run(1000);
        world.check().unwrap();
    }
}

#[test]
fn a_leader_that_leaves_with_a_view_it_was_called_back_from_takes_the_others_along() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 4, &[1, 2, 3]);
        // The cut of the view that the leader leaves with reaches member 3, but member 2 only after the next
        // node view.
        world.leave(1);
        while !world.is_on_its_way(1, 2, |message| matches!(message, GroupMessage::FlushCut { .. })) {
            world.run_micros(100);
        }
        world.hold_control(2);
        while world.members(3).len() == 3 {
            world.run_micros(100);
        }
        assert_eq!(world.members(2).len(), 3, "{order:?}");
        world.primary(&[1, 2, 3]);
        world.release_control();
        world.run(1000);
        for id in [2, 3] {
            assert_eq!(world.members(id), world.incarnations(&[2, 3]), "{order:?}: {id}");
            let resync = |event: &GroupEvent| matches!(event, GroupEvent::Resync { .. });
            assert!(!world.events(id).iter().any(resync));
        }
        assert!(world.events(1).contains(&GroupEvent::Left));
        world.check().unwrap();
        assert!(world.accusations.is_empty());
    }
}

#[test]
fn two_leaders_one_of_them_behind_do_not_outbid_each_other() {
    for seed in 0..20 {
        let mut world = World::with_group(Order::Fifo, seed, &[1, 2, 3]);
        world.jitter_ms = 4;
        // The leader leaves; the others have the view without it when a node view comes, twice.
        world.leave(1);
        while world.members(2).len() == 3 {
            world.run_micros(200);
        }
        world.primary_within(&[1, 2, 3], 3);
        world.run(2);
        world.primary_within(&[1, 2, 3], 3);
        world.run(1000);
        for id in [2, 3] {
            assert_eq!(world.members(id), world.incarnations(&[2, 3]), "{seed}: {id}");
        }
        world.check().unwrap();
    }
}

#[test]
fn one_that_was_removed_unawares_makes_no_second_group_when_all_who_knew_are_gone() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 6, &[1, 2]);
        world.start(3);
        world.primary(&[1, 2, 3]);
        world.join(3);
        // Member 2 hears nothing of the group: its leader removes it, and takes in 3.
        world.hold_control(2);
        world.run(12_000);
        assert_eq!(world.members(1), world.incarnations(&[1, 3]), "{order:?}");
        assert_eq!(world.members(2), world.incarnations(&[1, 2]), "{order:?}");
        // The member that removed it dies before it could tell 2. Its message would be void under the next
        // node view.
        world.crash(1);
        world.release_control();
        world.primary(&[2, 3]);
        world.run(3000);
        assert_eq!(world.views(2).len(), 2, "{order:?}: {:?}", world.views(2));
        assert_eq!(world.members(2), world.incarnations(&[3, 2]));
        assert_eq!(world.members(3), world.members(2));
        world.check().unwrap();
    }
}

#[test]
fn one_that_leaves_before_its_join_is_answered_and_joins_again_founds_one_group() {
    let mut world = World::new(Order::Total, 1);
    for id in 1..=3 {
        world.start(id);
    }
    world.primary(&[1, 2, 3]);
    world.join(2);
    world.leave(2);
    world.join(2);
    world.run(100);
    world.join(3);
    world.run(1000);
    assert_eq!(world.members(2), world.incarnations(&[2, 3]));
    assert_eq!(world.members(3), world.members(2));
    world.check().unwrap();
}

#[test]
fn one_that_starts_over_joins_again_when_its_application_has_read_what_came_before() {
    for order in Kind::ALL {
        let mut world = World::with_group(order, 4, &[1, 2, 3]);
        world.peers.get_mut(&3).unwrap().consumes = false;
        world.send(1, "unread").unwrap();
        world.run(500);
        assert_eq!(world.texts(3), ["unread"]);
        world.primary(&[1, 2]);
        world.reincarnate(3, "removed");
        world.primary(&[1, 2, 3]);
        world.run(3000);
        assert_eq!(world.members(1), world.incarnations(&[1, 2]), "{order:?}");
        world.consume(3);
        world.run(300);
        assert_eq!(world.members(1), world.incarnations(&[1, 2, 3]), "{order:?}");
        world.check().unwrap();
    }
}

#[test]
fn one_that_leaves_and_joins_again_has_no_more_than_one_window_at_a_reader_that_stands_still() {
    const WINDOW: usize = 1 << 16;
    for order in Kind::ALL {
        let options = order.options().window_bytes(WINDOW as u32).slow_after(None);
        let mut world = World::with_options(options, 9).gather(&[1, 2, 3]);
        world.peers.get_mut(&2).unwrap().consumes = false;
        let unread = |world: &World| -> usize {
            let all = world.messages(2).into_iter();
            let of_it = all.filter(|message| message.sender == world.inc(3));
            of_it.map(|message| message.payload.len()).sum()
        };
        for stay in 0..4 {
            while world.send(3, &"x".repeat(2000)).is_ok() {}
            world.run(1000);
            let unread = unread(&world);
            assert!(
                (WINDOW / 2..=WINDOW).contains(&unread),
                "{order:?}: {unread} bytes wait for the reader in stay {stay}"
            );
            world.leave(3);
            world.run(10_000);
            assert_eq!(world.members(1), world.incarnations(&[1, 2]));
            world.join(3);
            world.run(1000);
            assert_eq!(world.members(1), world.incarnations(&[1, 2, 3]));
        }
        // What was read makes room again, all of it.
        let before = unread(&world);
        world.peers.get_mut(&2).unwrap().consumes = true;
        world.consume(2);
        for _ in 0..100 {
            while world.send(3, &"x".repeat(2000)).is_ok() {}
            world.run(10);
        }
        assert!(unread(&world) > before + 10 * WINDOW);
        world.check().unwrap();
    }
}

#[test]
fn one_that_is_removed_twice_and_never_hears_that_it_was_back_learns_what_became_of_its_messages() {
    let mut judged = 0;
    for order in Kind::ALL {
        let mut world = World::with_group(order, 4, &[1, 2, 3, 4]);
        world.drop_data = Some(Box::new(|from, _, record| {
            from == 3 && matches!(record, GroupData::Batch { .. } | GroupData::Repair { .. })
        }));
        world.hold_control(3);
        let before = world.views(3).len();
        let ticket = world.send(3, "lost").unwrap();
        world.leave(4);
        world.run(12_000);
        assert_eq!(world.members(1), world.incarnations(&[1, 2]), "{order:?}");
        // It learns that it was removed and is admitted again; before it hears of that it is removed once
        // more.
        world.release_control();
        world.drop_data = None;
        while !world.members(2).contains(&world.inc(3)) {
            world.run_micros(100);
        }
        assert_eq!(world.views(3).len(), before, "{order:?}: {:?}", world.views(3));
        world.hold_control(3);
        world.send(1, "later").unwrap();
        world.leave(2);
        world.run(12_000);
        assert_eq!(world.members(1), world.incarnations(&[1]), "{order:?}");
        world.primary(&[1, 2, 3]);
        world.run(1_000);
        assert_eq!(world.views(3).len(), before, "{order:?}: {:?}", world.views(3));
        world.release_control();
        world.run(5_000);
        assert_eq!(world.members(3), world.incarnations(&[1, 3]), "{order:?}");
        world.check().unwrap();
        // Where nothing is waited for it has delivered its own message.
        if world.texts(3).contains(&"lost".to_owned()) {
            continue;
        }
        judged += 1;
        let told: Vec<Outcome> = world
            .events(3)
            .iter()
            .filter_map(|event| match event {
                GroupEvent::Receipts { first, outcome, .. } if *first == ticket => Some(*outcome),
                _ => None,
            })
            .collect();
        assert_eq!(told, [Outcome::NotDelivered], "{order:?}");
    }
    assert!(judged > 0);
}

const LAST: Id = MAX_GROUP_MEMBERS as Id;

/// A group with room for one more, and two nodes that are in none.
fn all_but_one() -> World {
    let members: Vec<Id> = (1..LAST).collect();
    let mut world = World::with_group(Order::Fifo, 1, &members);
    world.start(LAST);
    world.start(LAST + 1);
    let nodes: Vec<Id> = (1..=LAST + 1).collect();
    world.primary(&nodes);
    world.run(100);
    world
}

fn is_refused(world: &World, id: Id) -> bool {
    let refused = |event: &GroupEvent| matches!(event, GroupEvent::Refused { .. });
    world.events(id).iter().any(refused)
}

/// The last one is in the group, which is full and has nothing more to do.
fn expect_full(mut world: World) {
    world.run(1000);
    for id in [1, 2, LAST] {
        assert_eq!(world.members(id).len(), MAX_GROUP_MEMBERS, "at {id}");
    }
    let views = world.views(1).len();
    world.run(1000);
    assert_eq!(world.views(1).len(), views);
    world.check().unwrap();
}

#[test]
fn the_last_one_that_a_group_has_room_for_may_ask_again_while_it_is_let_in() {
    let mut world = all_but_one();
    // Longer than a joiner waits for its answer: one member does not report.
    world.hold_control(LAST - 1);
    world.join(LAST);
    world.run(1000);
    world.join(LAST + 1);
    world.run(1000);
    assert!(is_refused(&world, LAST + 1));
    assert!(!is_refused(&world, LAST));
    assert_eq!(world.members(LAST), []);
    world.release_control();
    expect_full(world);
}

#[test]
fn one_that_asks_again_when_it_is_decided_that_it_comes_leaves_its_place_to_nobody() {
    let mut world = all_but_one();
    // The leader waits with the cut until all hold it: it has a safe message that no member has delivered.
    world.drop_data = Some(Box::new(|_, _, record| {
        matches!(record, GroupData::Rows { .. } | GroupData::Ack { .. })
    }));
    world.send_safe(1, "it").unwrap();
    world.join(LAST);
    let is_decided = |world: &World| {
        world.is_on_its_way(1, LAST - 1, |message| {
            matches!(message, GroupMessage::FlushCut { .. })
        })
    };
    while !is_decided(&world) {
        world.run_micros(100);
    }
    world.hold_control(LAST - 1);
    world.run(1000);
    assert_eq!(world.members(1).len(), MAX_GROUP_MEMBERS - 1);
    world.join(LAST + 1);
    world.run(1000);
    assert!(is_refused(&world, LAST + 1));
    assert!(!is_refused(&world, LAST));
    world.drop_data = None;
    world.release_control();
    expect_full(world);
}
