//! What the next leader says of members whose going only a dead one knew: whether they were removed or left
//! (G7).

use antiphon_wire::group::{GroupData, GroupMessage, Standing};

use super::world::{Id, Kind, World};
use crate::group::effect::MAX_CAUSE_BYTES;
use crate::{GroupEvent, TotalEngine};

const STALLED: &str = "flush-stalled: it did not report to a flush, or finish it, in time";

/// What views of this node's application say of a member that went: whether it left, and why if it did not.
fn told(world: &World, at: Id, of: Id) -> Vec<(bool, Option<String>)> {
    let (who, mut told) = (world.inc(of), Vec::new());
    for view in world.views(at) {
        let cause = view.causes.iter().find(|(member, _)| *member == who);
        let cause = cause.map(|(_, cause)| cause.clone());
        told.extend(view.left.contains(&who).then_some((true, cause.clone())));
        told.extend(view.crashed.contains(&who).then_some((false, cause)));
    }
    told
}

/// Member 3 of four answers no flush until member 1, which leads, removes it, and dies before it decides on
/// anything.
fn removed_by_one_that_dies(kind: Kind, leaves: bool) -> World {
    let mut world = World::with_group(kind, 5, &[1, 2, 3, 4]);
    world.hold_control(3);
    if leaves {
        world.leave(3);
        world.run(20);
    }
    world.leave(4);
    while !world.is_on_its_way(1, 3, |message| matches!(message, GroupMessage::Removed { .. })) {
        world.run_micros(100);
    }
    world.trap = Some(Box::new(|from, _, message| {
        from == 1 && matches!(message, GroupMessage::FlushCut { .. })
    }));
    world.release_control();
    world.run(100);
    assert_eq!(world.trapped, [1], "{kind:?}: the leader decided nothing");
    world
}

#[test]
fn one_that_was_removed_by_a_leader_that_died_is_listed_with_its_cause() {
    for kind in Kind::ALL {
        let mut world = removed_by_one_that_dies(kind, false);
        let cause = STALLED.to_owned();
        assert!(
            world
                .events(3)
                .contains(&GroupEvent::Resync { cause: cause.clone() })
        );
        world.primary(&[2, 3, 4]);
        world.run(3000);
        assert_eq!(told(&world, 2, 3), [(false, Some(cause))], "{kind:?}");
        assert_eq!(told(&world, 2, 4), [(true, None)], "{kind:?}");
        assert_eq!(told(&world, 2, 1), [(false, None)], "{kind:?}");
        assert_eq!(world.members(2), world.incarnations(&[2, 3]), "{kind:?}");
        world.check().unwrap();
    }
}

#[test]
fn one_that_was_removed_while_it_wanted_to_leave_was_removed() {
    for kind in Kind::ALL {
        let mut world = removed_by_one_that_dies(kind, true);
        assert!(world.events(3).contains(&GroupEvent::Left));
        world.primary(&[2, 3, 4]);
        world.run(3000);
        let cause = STALLED.to_owned();
        assert_eq!(told(&world, 2, 3), [(false, Some(cause))], "{kind:?}");
        assert_eq!(world.members(2), world.incarnations(&[2]), "{kind:?}");
        world.check().unwrap();
    }
}

#[test]
fn one_that_left_by_the_cut_of_a_leader_that_died_is_listed_as_one_that_left() {
    for kind in Kind::ALL {
        let mut world = World::with_group(kind, 5, &[1, 2, 3]);
        world.leave(3);
        while !world.is_on_its_way(1, 2, |message| matches!(message, GroupMessage::FlushCut { .. })) {
            world.run_micros(100);
        }
        world.hold_control(2);
        while !world.events(3).contains(&GroupEvent::Left) {
            world.run_micros(100);
        }
        world.crash(1);
        // Longer than it keeps the view that it left with.
        world.run(7000);
        world.primary(&[2, 3]);
        world.release_control();
        world.run(1000);
        assert_eq!(world.members(2), world.incarnations(&[2]), "{kind:?}");
        assert_eq!(told(&world, 2, 3), [(true, None)], "{kind:?}");
        assert_eq!(told(&world, 2, 1), [(false, None)], "{kind:?}");
        world.check().unwrap();
    }
}

#[test]
fn a_cause_that_no_member_gives_removes_who_gives_it() {
    for (length, kept) in [(MAX_CAUSE_BYTES, true), (MAX_CAUSE_BYTES + 1, false)] {
        let mut world = World::with_group(Kind::Fifo, 1, &[1, 2, 3]);
        let before = world.views(1).len();
        world.hold_control(2);
        let (group, _, target) = world.flush_without_3();
        let (now, hostile) = (world.now, world.inc(2));
        let leader = world.peers.get_mut(&1).unwrap();
        let node = leader.view.unwrap();
        let removed = Some("x".repeat(length));
        let standing = Standing::Gone {
            removed: removed.clone(),
        };
        let report = GroupMessage::FlushReport {
            group,
            target,
            standing,
        };
        leader.groups.handle_message(now, hostile, node, report);
        world.run(500);
        assert_eq!(world.views(1).len(), before + 1);
        let [(false, cause)] = &told(&world, 1, 2)[..] else {
            panic!("{:?}", world.views(1));
        };
        assert_eq!(*cause == removed, kept, "{cause:?}");
    }
}

/// Member 2 has a message of member 3 and not the numbers of that message and of its cause. Member 1, which
/// gave the numbers, decides that member 3 has left, and dies when only member 3 knows.
#[test]
fn one_that_left_and_is_forgotten_is_no_survivor_whose_tail_is_delivered_by_rank() {
    let mut world = World::with_group(Kind::Total(TotalEngine::Sequencer), 5, &[1, 2, 3]);
    world.drop_data = Some(Box::new(|from, to, record| {
        (from, to) == (1, 2) && matches!(record, GroupData::Orders { .. } | GroupData::RepairOrders { .. })
    }));
    world.send(2, "cause").unwrap();
    world.run(10);
    world.send(3, "effect").unwrap();
    world.run(10);
    assert_eq!(world.texts(3), ["cause", "effect"]);
    assert_eq!(world.texts(2), [""; 0]);
    world.leave(3);
    while !world.is_on_its_way(1, 2, |message| matches!(message, GroupMessage::FlushCut { .. })) {
        world.run_micros(100);
    }
    world.hold_control(2);
    world.run(100);
    assert!(world.events(3).contains(&GroupEvent::Left));
    world.crash(1);
    world.run(6_000);
    world.primary(&[2, 3]);
    world.run(10);
    world.release_control();
    world.run(3_000);
    assert_eq!(world.members(2), world.incarnations(&[2]));
    assert_eq!(
        world.texts(2),
        ["cause"],
        "the effect is not delivered without it"
    );
    let notices = world.events(2).into_iter().filter_map(|event| match event {
        GroupEvent::Transitional { members } => Some(members),
        _ => None,
    });
    assert_eq!(notices.last(), Some(world.incarnations(&[2])));
}
