//! Orders of one sender's messages.

use antiphon_core::Order;

use crate::check::testing::{Story, incarnation};
use crate::trace::{Inside, Seen};

#[test]
fn an_unordered_group_may_deliver_in_any_order_and_must_deliver_once_and_all() {
    let story = || {
        let mut story = Story::of(3, Order::Unordered);
        (1..=3).for_each(|number| story.send(1, number));
        story
    };
    let deliver = |story: &mut Story, to, numbers: &[u64]| {
        numbers.iter().for_each(|number| story.deliver(to, 1, *number, 1));
    };
    let next_view = |story: &mut Story| {
        story.kill(2);
        story.node_view(&[0, 1], &[0, 1, 2], 2, &[0, 1]);
        story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
    };
    let mut good = story();
    deliver(&mut good, 0, &[1, 3, 2]);
    deliver(&mut good, 1, &[1, 2, 3]);
    next_view(&mut good);
    good.is_accepted();

    let mut lost = story();
    deliver(&mut lost, 0, &[1, 3]);
    deliver(&mut lost, 1, &[1, 2, 3]);
    next_view(&mut lost);
    lost.is_rejected_for("G14");

    let mut twice = story();
    deliver(&mut twice, 0, &[1, 3, 2, 3]);
    twice.is_rejected_for("G9");

    let mut kept = story();
    let (group, sender, seq) = (0, incarnation(1), 3);
    kept.add(0, Seen::Inside(Inside::Withheld { group, sender, seq }));
    kept.is_rejected_for("G33");
}

#[test]
fn messages_that_were_numbered_in_another_order_than_they_were_sent_are_rejected() {
    let mut story = Story::of(2, Order::Fifo);
    (1..=2).for_each(|number| story.send(0, number));
    story.deliver_as(1, 0, 2, 1, 1);
    story.deliver_as(1, 0, 1, 2, 1);
    story.is_rejected_for("G19");
}

#[test]
fn a_message_that_comes_again_under_another_number_is_rejected() {
    let mut story = Story::of(2, Order::Fifo);
    story.send(0, 1);
    story.deliver_as(1, 0, 1, 1, 1);
    story.deliver_as(1, 0, 1, 2, 1);
    story.is_rejected_for("G9");
}

#[test]
fn a_scoped_group_may_mix_scopes_and_must_keep_the_order_in_each() {
    let story = || {
        let mut story = Story::of(2, Order::Scoped);
        for number in 1..=4 {
            story.scope = Some(number as u32 % 2);
            story.send(1, number);
        }
        story
    };
    let deliver = |story: &mut Story, to, numbers: &[u64]| {
        for number in numbers {
            story.scope = Some(*number as u32 % 2);
            story.deliver(to, 1, *number, 1);
        }
    };
    let mut good = story();
    deliver(&mut good, 0, &[2, 4, 1, 3]);
    deliver(&mut good, 1, &[1, 2, 3, 4]);
    good.is_accepted();

    let mut swapped = story();
    deliver(&mut swapped, 0, &[1, 4, 2, 3]);
    swapped.is_rejected_for("G34");

    let mut holed = story();
    deliver(&mut holed, 0, &[3]);
    deliver(&mut holed, 1, &[1, 2, 3, 4]);
    holed.is_rejected_for("G34");
}
