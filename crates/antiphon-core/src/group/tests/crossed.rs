//! Messages that cross while the leader of a group leaves it: between the leader that leaves and the member
//! that leads the next view.

use std::sync::{Arc, Mutex};

use antiphon_wire::GroupViewId;
use antiphon_wire::group::GroupMessage;

use super::world::{Kind, World};
use crate::group::Effect;
use crate::{GroupEvent, Profile};

/// Member 2 needs longer for the decision of member 1 than member 1 waits for it. So member 1 asks again, and
/// member 2 reads that question when it leads the next view already.
#[test]
fn a_late_question_of_the_leader_that_left_does_not_stop_the_next_view() {
    for kind in Kind::ALL {
        let mut world = World::with_group(kind, 5, &[1, 2]);
        world.leave(1);
        while !world.is_on_its_way(1, 2, |message| matches!(message, GroupMessage::FlushCut { .. })) {
            world.run_micros(100);
        }
        world.hold_control(2);
        let stall_ms = Profile::lan().flush_stall.as_millis() as u64;
        world.run(stall_ms + 100);
        let asks_again = |message: &GroupMessage| matches!(message, GroupMessage::FlushStart { .. });
        assert!(world.is_on_its_way(1, 2, asks_again), "{kind:?}");
        world.release_control();
        world.run(3 * stall_ms);
        assert!(world.events(1).contains(&GroupEvent::Left), "{kind:?}");
        assert_eq!(world.members(2), world.incarnations(&[2]), "{kind:?}");
        world.send(2, "x").unwrap();
        world.run(1_000);
        assert_eq!(world.texts(2), ["x"], "{kind:?}");
        world.check().unwrap();
    }
}

/// Member 2 leads the view without member 1. It tells member 1 to complete that view, and member 1 has left
/// with it meanwhile. If member 1 said nothing, member 2 would wait for it until the flush has stalled.
#[test]
fn a_member_that_is_told_to_complete_the_view_that_it_left_with_says_that_it_has_it() {
    for kind in Kind::ALL {
        let mut world = World::with_group(kind, 5, &[1, 2, 3]);
        let decided = Arc::new(Mutex::new(None));
        let seen = decided.clone();
        world.trap = Some(Box::new(move |_, _, message| {
            if let GroupMessage::FlushCut { group, decision } = message {
                *seen.lock().unwrap() = Some((*group, decision.clone()));
            }
            false
        }));
        world.leave(1);
        while !world.events(1).contains(&GroupEvent::Left) {
            world.run_micros(100);
        }
        // It does not hear that all have the view, and so it keeps what it left with.
        world.hold_control(1);
        world.run(5);
        let decided = decided.lock().unwrap().take();
        let (group, decision) = decided.expect("the leader has decided");
        let view = decision.id;
        let target = GroupViewId {
            k: view.k + 1,
            ..view
        };
        let complete = GroupMessage::Complete {
            group,
            target,
            decision,
            installed: true,
        };
        let (now, next_leader) = (world.now, world.inc(2));
        let peer = world.peers.get_mut(&1).unwrap();
        let node = peer.view.unwrap();
        peer.groups.handle_message(now, next_leader, node, complete);
        let effects: Vec<Effect> = std::iter::from_fn(|| peer.groups.poll_effect()).collect();
        let installed = GroupMessage::Installed { group, view };
        let answer = Effect::Send {
            to: next_leader,
            message: installed,
        };
        assert_eq!(effects, [answer], "{kind:?}");
    }
}
