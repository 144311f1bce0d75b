//! Stories about what senders are told of their messages.

use super::*;

/// Process 1 loses its membership with message 1 pending, and goes on as another incarnation.
fn expelled(story: &mut Story) {
    story.send(1, 1);
    story.node_view(&[0, 2], &ALL, 2, &[0, 2]);
    story.group_view(&[0, 2], &[0, 2], &[], &[], &[1], 2, &[0, 2]);
    start_over(story);
}

/// The second one hears that it was removed.
fn start_over(story: &mut Story) {
    story.add(1, Seen::Expelled("silent".to_owned()));
    story.add(1, Seen::Incarnation(incarnation(9)));
    story.add(1, Seen::Group(0, Heard::Resync("expelled".to_owned())));
}

/// The second one hears what became of its message 1.
fn told(story: &mut Story, outcome: Outcome) {
    let (first, count) = (1, 1);
    let receipt = Heard::Receipts {
        first,
        count,
        outcome,
    };
    story.add(1, Seen::Group(0, receipt));
}

#[test]
fn a_receipt_of_a_loss_to_who_is_a_member_still_is_rejected() {
    for outcome in [Outcome::NotDelivered, Outcome::Unknown] {
        let mut story = Story::of(3, Order::Total);
        story.send(1, 1);
        told(&mut story, outcome);
        story.is_rejected_for("R17");
    }
}

#[test]
fn a_receipt_that_lies_is_rejected() {
    for (delivered, outcome) in [(true, Outcome::NotDelivered), (false, Outcome::Delivered)] {
        let mut story = Story::of(3, Order::Total);
        story.send(1, 1);
        if delivered {
            story.deliver(0, 1, 1, 1);
            story.deliver(2, 1, 1, 1);
        }
        story.node_view(&[0, 2], &ALL, 2, &[0, 2]);
        story.group_view(&[0, 2], &[0, 2], &[], &[], &[1], 2, &[0, 2]);
        told(&mut story, outcome);
        story.is_rejected_for("R17");
    }
}

#[test]
fn a_receipt_may_deny_what_only_a_dead_leader_delivered_in_a_view_of_its_own() {
    for dead_end in [true, false] {
        let mut story = Story::of(5, Order::Total);
        story.send(1, 1);
        story.deliver(0, 1, 1, 1);
        story.node_view(&[0, 2, 3, 4], &[0, 1, 2, 3, 4], 2, &[0, 2, 3, 4]);
        let by: &[usize] = if dead_end { &[0] } else { &[0, 2, 3, 4] };
        if !dead_end {
            for process in [2, 3, 4] {
                story.deliver(process, 1, 1, 1);
            }
        }
        story.group_view(&[0, 2, 3, 4], &[0, 2, 3, 4], &[], &[], &[1], 2, by);
        story.kill(0);
        story.node_view(&[2, 3, 4], &[0, 2, 3, 4], 3, &[2, 3, 4]);
        let crashed: &[usize] = if dead_end { &[0, 1] } else { &[0] };
        story.group_view(&[2, 3, 4], &[2, 3, 4], &[], &[], crashed, 3, &[2, 3, 4]);
        start_over(&mut story);
        let outcome = Outcome::NotDelivered;
        told(&mut story, outcome);
        if dead_end {
            story.is_accepted();
        } else {
            story.is_rejected_for("R17");
        }
    }
}

#[test]
fn a_receipt_that_never_comes_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    expelled(&mut story);
    story.at_rest().is_rejected_for("R17");
    let mut story = Story::of(3, Order::Total);
    expelled(&mut story);
    told(&mut story, Outcome::NotDelivered);
    story.at_rest().is_accepted();
}

#[test]
fn a_second_receipt_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    expelled(&mut story);
    for _ in 0..2 {
        told(&mut story, Outcome::Unknown);
    }
    story.is_rejected_for("R17");
}

#[test]
fn a_receipt_of_what_was_delivered_holds_though_the_lineage_ends_later() {
    for outcome in [Outcome::Delivered, Outcome::NotDelivered] {
        let mut story = Story::of(3, Order::Total);
        story.send(1, 1);
        story.deliver(0, 1, 1, 1);
        story.deliver(2, 1, 1, 1);
        story.node_view(&[0, 2], &ALL, 2, &[0, 2]);
        story.group_view(&[0, 2], &[0, 2], &[], &[], &[1], 2, &[0, 2]);
        start_over(&mut story);
        let view = Arc::new(Story::view(&[0, 2, 9], &[0, 2], 3));
        story.ballot(0, &view, 0, BallotStep::Accepted);
        story.ballot(2, &view, 0, BallotStep::Accepted);
        story.ballot(0, &view, 0, BallotStep::Decided { dead: Vec::new() });
        story.seen(&view, &[0, 1, 2]);
        story.group_view(&[0, 2, 9], &[0, 2], &[9], &[], &[], 3, &[0, 1, 2]);
        told(&mut story, outcome);
        for process in 0..3 {
            story.resync(process, "another lineage");
        }
        match outcome {
            Outcome::Delivered => story.is_not_rejected_for("R17"),
            _ => story.is_rejected_for("R17"),
        }
    }
}
