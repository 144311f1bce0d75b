//! Members that were removed and did not hear of it, when all members that could have told them, and had what
//! they lack, are gone.

use std::collections::BTreeSet;

use antiphon_wire::group::GroupMessage;

use super::world::{Id, Kind, World};
use crate::GroupEvent;

const LOST: &str = "what it lacks of an earlier view is gone with all members that had it";

fn has(member: Id, of: &World, text: &str) -> bool {
    of.texts(member).iter().any(|said| said == text)
}

/// Member 1 leads 2, 3 and 4 into a view with 5. Only `holders` have a message of the view before. 3 and 4
/// report to the flush, and hear nothing more: 1 removes them, tells 5 its first view, and dies, as 2 does.
/// The other three are alone.
fn removed_unheard(kind: Kind, holders: &'static [Id]) -> World {
    let mut world = World::with_group(kind, 5, &[1, 2, 3, 4]);
    world.start(5);
    world.primary(&[1, 2, 3, 4, 5]);
    world.run(200);
    world.drop_data = Some(Box::new(|from, to, _| from <= 2 && !holders.contains(&to)));
    world.send(1, "kept").unwrap();
    world.run(20);
    world.join(5);
    let mut awaited = BTreeSet::from([3, 4]);
    while !awaited.is_empty() {
        world.run_micros(100);
        let reports = |message: &GroupMessage| matches!(message, GroupMessage::FlushReport { .. });
        for id in awaited.clone() {
            if world.is_on_its_way(id, 1, reports) {
                world.hold_control(id);
                awaited.remove(&id);
            }
        }
    }
    while world.members(5).is_empty() {
        world.run_micros(100);
    }
    assert!(has(1, &world, "kept") && has(2, &world, "kept"), "{kind:?}");
    world.crash(1);
    world.crash(2);
    world.drop_data = None;
    // What was said under the view before is void.
    world.primary(&[3, 4, 5]);
    world.release_control();
    world.run(20_000);
    world
}

fn starts_over(world: &World, id: Id) -> Vec<String> {
    let cause = |event: GroupEvent| match event {
        GroupEvent::Resync { cause } => Some(cause),
        _ => None,
    };
    world.events(id).into_iter().filter_map(cause).collect()
}

fn are_together(world: &World, kind: Kind, ids: &[Id]) {
    let all: BTreeSet<_> = world.incarnations(ids).into_iter().collect();
    for id in ids {
        let members: BTreeSet<_> = world.members(*id).into_iter().collect();
        assert_eq!(members, all, "{kind:?}: the group stands still at {id}");
    }
    world.check().unwrap();
}

#[test]
fn who_lacks_what_nobody_has_any_more_starts_over_and_the_group_goes_on() {
    for kind in Kind::ALL {
        let world = removed_unheard(kind, &[1, 2]);
        are_together(&world, kind, &[3, 4, 5]);
        assert_eq!(starts_over(&world, 3), [LOST], "{kind:?}");
        assert_eq!(starts_over(&world, 4).len(), 1, "{kind:?}");
        assert!(!has(3, &world, "kept") && !has(4, &world, "kept"));
    }
}

#[test]
fn nobody_starts_over_while_one_of_those_that_were_removed_holds_what_the_others_lack() {
    for kind in Kind::ALL {
        let world = removed_unheard(kind, &[1, 2, 4]);
        for id in [3, 4, 5] {
            assert!(starts_over(&world, id).is_empty(), "{kind:?}");
        }
        assert!(has(3, &world, "kept") && has(4, &world, "kept"));
        are_together(&world, kind, &[3, 4, 5]);
    }
}

/// Member 1 lets 2 and 3 in, by one view; only 3 hears of it before 1 dies. Now 2, the senior of the two, is
/// to lead a group that it does not know.
#[test]
fn whoever_is_to_lead_and_has_not_heard_that_it_was_let_in_is_told_by_one_that_has() {
    for kind in Kind::ALL {
        let mut world = World::with_group(kind, 3, &[1]);
        world.start(2);
        world.start(3);
        world.primary(&[1, 2, 3]);
        world.run(200);
        world.join(2);
        world.join(3);
        let lets_in = |message: &GroupMessage| matches!(message, GroupMessage::FirstView { .. });
        while !world.is_on_its_way(1, 2, lets_in) {
            world.run_micros(100);
        }
        world.hold_control(2);
        while world.members(3).is_empty() {
            world.run_micros(100);
        }
        assert_eq!(world.members(3), world.incarnations(&[1, 2, 3]), "{kind:?}");
        assert!(world.members(2).is_empty());
        world.crash(1);
        world.primary(&[2, 3]);
        world.release_control();
        world.run(20_000);
        assert!(starts_over(&world, 3).is_empty(), "{kind:?}");
        are_together(&world, kind, &[2, 3]);
    }
}
