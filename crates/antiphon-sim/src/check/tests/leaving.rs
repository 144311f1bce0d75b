//! Stories about nodes that leave in order.

use super::*;

#[test]
fn a_node_that_left_in_order_and_is_called_crashed_is_rejected() {
    // Process 3 is admitted by view 2 and ends in order before it hears of that.
    let mut story = Story::of(3, Order::Total);
    story.start(3);
    story.add(3, Seen::AskedToLeave);
    story.node_view(&[0, 1, 2, 3], &ALL, 2, &ALL);
    story.add(3, Seen::Ended(Ending::Exited));
    story.node_view(&ALL, &[0, 1, 2, 3], 3, &ALL);
    story.is_rejected_for("G7");
}

#[test]
fn a_node_that_was_asked_to_leave_and_stays_in_a_view_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.trace.leaves_within = Some(500);
    story.add(2, Seen::AskedToLeave);
    story.now += 1_000;
    story.send(0, 1);
    story.is_rejected_for("G7");
}

#[test]
fn a_member_of_the_node_view_that_is_called_crashed_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&ALL, &ALL, 2, &ALL);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
    story.is_rejected_for("causes");
}

#[test]
fn a_request_to_leave_holds_though_the_view_before_comes_after_the_next_join() {
    for (asked_before, leaves_twice) in [(true, false), (false, false), (true, true)] {
        let mut story = Story::of(3, Order::Total);
        if asked_before {
            story.add(2, Seen::AskedToLeaveGroup(0));
        }
        story.ask_to_join(2);
        story.group_view(&ALL, &ALL, &[], &[], &[], 2, &[0, 1]);
        story.group_view(&[0, 1], &[0, 1], &[], &[2], &[], 3, &[0, 1]);
        if leaves_twice {
            story.group_view(&ALL, &[0, 1], &[2], &[], &[], 4, &[0, 1]);
            story.group_view(&[0, 1], &[0, 1], &[], &[2], &[], 5, &[0, 1]);
        }
        match asked_before && !leaves_twice {
            true => story.is_not_rejected_for("causes"),
            false => story.is_rejected_for("causes"),
        }
    }
}
