//! Each checker rejects a story in which its guarantee is broken, and accepts a story in which it holds.

use std::sync::Arc;

use antiphon_core::wire::NodeView;
use antiphon_core::wire::{Cause, Evidence};
use antiphon_core::{BallotStep, Order, Outcome};

use super::testing::{Story, incarnation};
use crate::trace::{Ending, Heard, Inside, ProcessId, Seen};

mod leaving;
mod order;
mod receipts;

const ALL: [usize; 3] = [0, 1, 2];

/// Three members, a message each, a crash, two go on together.
fn crash_story(order: Order) -> Story {
    let mut story = Story::of(3, order);
    for from in ALL {
        story.send(from, 1);
        story.deliver_to_all(3, from, 1, 1);
    }
    story.kill(2);
    story.node_view(&[0, 1], &ALL, 2, &[0, 1]);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
    story.send(0, 2);
    story.deliver(0, 0, 2, 2);
    story.deliver(1, 0, 2, 2);
    story
}

#[test]
fn a_crash_that_is_survived_as_promised_is_accepted() {
    for order in [Order::Total, Order::Fifo] {
        let story = crash_story(order).at_rest();
        story.is_accepted();
        let counts = story.judge().counts;
        for guarantee in [
            "G1", "G4", "G8", "G9", "G10", "G11", "G12", "G13", "G14", "G15", "G16", "G18", "G19", "G23",
        ] {
            assert!(counts.contains_key(guarantee), "{guarantee} was not evaluated");
        }
    }
}

#[test]
fn a_view_without_its_observer_is_rejected() {
    let mut story = crash_story(Order::Total);
    story.node_view(&[1], &[0, 1], 3, &[0]);
    story.is_rejected_for("G1");
}

#[test]
fn a_view_that_goes_back_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&ALL, &[], 1, &[0]);
    story.is_rejected_for("G2");
}

#[test]
fn a_group_view_that_comes_again_is_rejected() {
    let mut story = crash_story(Order::Total);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0]);
    story.is_rejected_for("G2");
}

#[test]
fn a_message_before_the_first_view_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.start(5);
    story.send(0, 1);
    story.deliver(5, 0, 1, 1);
    story.is_rejected_for("G3");
}

#[test]
fn a_send_taken_before_the_first_view_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.start(5);
    story.send(5, 1);
    story.is_rejected_for("G3");
}

#[test]
fn one_id_for_two_lists_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&[0, 1], &ALL, 2, &[0, 1]);
    story.node_view(&[1, 2], &ALL, 2, &[2]);
    story.is_rejected_for("G4");
}

#[test]
fn one_group_view_id_for_two_lists_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0]);
    story.group_view(&[1, 2], &[1, 2], &[], &[], &[0], 2, &[1]);
    story.is_rejected_for("G4");
}

#[test]
fn a_view_that_keeps_nobody_of_the_last_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.start(3);
    story.node_view(&[3], &ALL, 2, &[3]);
    story.is_rejected_for("G6");
}

#[test]
fn a_view_decided_by_a_minority_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&[1], &ALL, 2, &[1]);
    story.is_rejected_for("quorum");
}

#[test]
fn half_without_the_elder_is_no_quorum() {
    let mut story = Story::of(4, Order::Total);
    story.node_view(&[2, 3], &[0, 1, 2, 3], 2, &[2, 3]);
    story.is_rejected_for("quorum");
    let mut story = Story::of(4, Order::Total);
    story.node_view(&[0, 1], &[0, 1, 2, 3], 2, &[0, 1]);
    story.is_accepted();
}

/// The elder alone makes a view of itself after three; the test decides which members vote for what.
fn a_view_of_one_after_three(votes: impl FnOnce(&mut Story, &Arc<NodeView>)) -> Story {
    let mut story = Story::of(3, Order::Total);
    let view = Arc::new(Story::view(&[0], &ALL, 2));
    votes(&mut story, &view);
    story.seen(&view, &[0]);
    story
}

const DECIDED: BallotStep = BallotStep::Decided { dead: Vec::new() };

#[test]
fn removed_members_count_as_voters_only_if_they_voted() {
    a_view_of_one_after_three(|story, view| {
        story.ballot(0, view, 0, BallotStep::Accepted);
        story.ballot(1, view, 0, BallotStep::Accepted);
        story.ballot(0, view, 0, DECIDED);
    })
    .is_accepted();
    a_view_of_one_after_three(|story, view| {
        story.ballot(0, view, 0, BallotStep::Accepted);
        story.ballot(0, view, 0, DECIDED);
    })
    .is_rejected_for("quorum");
}

#[test]
fn votes_of_two_ballots_are_not_added_up_and_late_ones_not_counted() {
    a_view_of_one_after_three(|story, view| {
        story.ballot(1, view, 1, BallotStep::Accepted);
        story.ballot(0, view, 2, BallotStep::Accepted);
        story.ballot(0, view, 2, DECIDED);
    })
    .is_rejected_for("quorum");
    a_view_of_one_after_three(|story, view| {
        story.ballot(0, view, 0, BallotStep::Accepted);
        story.ballot(0, view, 0, DECIDED);
        story.ballot(1, view, 0, BallotStep::Accepted);
    })
    .is_rejected_for("quorum");
}

#[test]
fn a_proof_of_death_helps_only_whom_it_reached_and_only_if_it_is_true() {
    let proven = |dead: &[ProcessId]| BallotStep::Decided {
        dead: dead.iter().map(|process| incarnation(*process)).collect(),
    };
    for (killed, counted, rightful) in [(true, true, true), (true, false, false), (false, true, false)] {
        let story = a_view_of_one_after_three(|story, view| {
            if killed {
                story.kill(2);
            }
            story.ballot(0, view, 0, BallotStep::Accepted);
            story.ballot(0, view, 0, proven(if counted { &[2] } else { &[] }));
        });
        if rightful {
            story.is_accepted();
        } else {
            story.is_rejected_for("quorum");
        }
    }
}

#[test]
fn whoever_voted_and_died_before_the_decision_was_told_counts() {
    let dead = [1, 3].iter().map(|process| incarnation(*process)).collect();
    let decided = BallotStep::Decided { dead };
    for the_dead_one_voted in [true, false] {
        let mut story = Story::of(5, Order::Total);
        let view = Arc::new(Story::view(&[0, 1, 3, 4], &[0, 1, 2, 3, 4], 2));
        story.kill(3);
        story.ballot(0, &view, 1, BallotStep::Accepted);
        if the_dead_one_voted {
            story.ballot(1, &view, 1, BallotStep::Accepted);
        }
        story.kill(1);
        story.ballot(0, &view, 1, decided.clone());
        story.seen(&view, &[0]);
        if the_dead_one_voted {
            story.is_accepted();
        } else {
            story.is_rejected_for("quorum");
        }
    }
}

#[test]
fn a_proof_of_death_that_forgets_a_vote_is_rejected() {
    for shows in [true, false] {
        let mut story = Story::of(3, Order::Total);
        let first = Arc::new(Story::view(&ALL, &[], 1));
        let next = Arc::new(Story::view(&[0, 1], &ALL, 2));
        story.ballot(1, &next, 0, BallotStep::Accepted);
        story.kill(1);
        story.certificate(0, 1, &first, shows.then_some(0));
        if shows {
            story.is_accepted();
        } else {
            story.is_rejected_for("R2");
        }
    }
}

#[test]
fn a_cluster_founded_by_a_minority_of_its_seeds_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.trace.seeds = (0..5).map(crate::world::addr_of).collect();
    story.is_rejected_for("founding");
}

#[test]
fn a_junior_that_overtakes_its_elder_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&[1, 0], &ALL, 2, &[0, 1]);
    story.is_rejected_for("seniority");
}

#[test]
fn a_departure_that_is_not_told_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    let mut view = Story::view(&[0, 1], &ALL, 2);
    view.departed.clear();
    story.add(0, Seen::NodeView(Arc::new(view)));
    story.is_rejected_for("G7");
}

#[test]
fn a_group_view_whose_lists_do_not_tell_the_difference_is_rejected() {
    let mut story = crash_story(Order::Fifo);
    story.group_view(&[0], &[0], &[], &[], &[], 3, &[0]);
    story.is_rejected_for("G7");
}

#[test]
fn a_departure_without_accusers_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    let mut view = Story::view(&[0, 1], &ALL, 2);
    view.departed[0].accusers.clear();
    story.add(0, Seen::NodeView(Arc::new(view)));
    story.is_rejected_for("causes");
}

#[test]
fn a_leave_that_nobody_asked_for_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    let mut view = Story::view(&[0, 1], &ALL, 2);
    view.departed[0].cause = Cause::Left;
    story.add(0, Seen::NodeView(Arc::new(view)));
    story.is_rejected_for("causes");
}

#[test]
fn the_proven_death_of_a_living_process_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    let mut view = Story::view(&[0, 1], &ALL, 2);
    view.departed[0].accusers[0].evidence = Evidence::ProofOfDeath;
    story.add(0, Seen::NodeView(Arc::new(view.clone())));
    story.is_rejected_for("R9");
    // A host without power proves nothing either.
    let mut story = Story::of(3, Order::Total);
    story.add(2, Seen::Ended(Ending::PowerLost));
    story.add(0, Seen::NodeView(Arc::new(view)));
    story.is_rejected_for("R9");
}

#[test]
fn a_member_with_other_metadata_than_configured_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    let mut view = Story::view(&[0, 1], &[0, 1], 2);
    view.members[1]
        .metadata
        .insert("role".to_owned(), "spy".to_owned());
    story.add(0, Seen::NodeView(Arc::new(view)));
    story.is_rejected_for("metadata");
}

#[test]
fn a_message_that_nobody_sent_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.deliver(1, 0, 1, 1);
    story.is_rejected_for("G8");
}

#[test]
fn a_message_with_other_bytes_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.add(
        0,
        Seen::Sent {
            group: 0,
            ticket: 1,
            payload: 99,
            safe: false,
            scope: None,
            object: false,
        },
    );
    story.deliver(1, 0, 1, 1);
    story.is_rejected_for("G8");
}

#[test]
fn a_message_delivered_twice_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.send(0, 1);
    story.deliver_to_all(2, 0, 1, 1);
    story.deliver(1, 0, 1, 1);
    story.is_rejected_for("G9");
}

#[test]
fn a_sender_that_never_hears_itself_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.send(0, 1);
    story.at_rest().is_rejected_for("G10");
}

#[test]
fn a_message_delivered_in_two_views_is_rejected() {
    let mut story = crash_story(Order::Total);
    story.send(1, 2);
    story.deliver(0, 1, 2, 2);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[], 3, &[0, 1]);
    story.deliver(1, 1, 2, 3);
    story.is_rejected_for("G11");
}

#[test]
fn a_message_of_another_view_is_rejected() {
    let mut story = crash_story(Order::Total);
    story.send(1, 2);
    story.deliver(0, 1, 2, 1);
    story.is_rejected_for("G12");
}

#[test]
fn a_message_that_one_member_misses_for_ever_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.send(0, 1);
    story.deliver(0, 0, 1, 1);
    story.at_rest().is_rejected_for("G13");
}

#[test]
fn survivors_with_different_messages_are_rejected() {
    let mut story = Story::of(3, Order::Fifo);
    story.send(2, 1);
    story.deliver(0, 2, 1, 1);
    story.kill(2);
    story.node_view(&[0, 1], &ALL, 2, &[0, 1]);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
    story.is_rejected_for("G14");
}

#[test]
fn a_transitional_set_that_names_one_who_did_not_come_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&[0, 1], &ALL, 2, &[0, 1]);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0]);
    story.group_view(&[0, 1], &[1], &[], &[], &[2], 2, &[1]);
    story.is_rejected_for("G15");
}

#[test]
fn a_first_view_with_company_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.start(2);
    story.node_view(&ALL, &[0, 1], 2, &ALL);
    story.group_view(&ALL, &ALL, &[2], &[], &[], 2, &ALL);
    story.is_rejected_for("G15");
}

#[test]
fn a_detour_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&ALL, &ALL, 2, &ALL);
    story.node_view(&ALL, &ALL, 3, &ALL);
    story.group_view(&ALL, &ALL, &[], &[], &[], 2, &[0]);
    story.group_view(&ALL, &ALL, &[], &[], &[], 3, &ALL);
    story.is_rejected_for("G16");
}

#[test]
fn a_skipped_node_view_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&ALL, &ALL, 3, &[0]);
    story.is_rejected_for("G16");
}

#[test]
fn a_second_transitional_notice_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    for _ in 0..2 {
        story.add(0, Seen::Group(0, Heard::Transitional(vec![incarnation(0)])));
    }
    story.is_rejected_for("G17");
}

#[test]
fn a_notice_that_names_a_stranger_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.add(
        0,
        Seen::Group(0, Heard::Transitional(vec![incarnation(0), incarnation(7)])),
    );
    story.is_rejected_for("G17");
}

#[test]
fn a_member_that_never_sees_the_view_it_is_in_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&ALL, &ALL, 2, &[0, 1]);
    story.at_rest().is_rejected_for("G18");
}

#[test]
fn a_group_member_that_never_sees_its_view_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.node_view(&ALL, &ALL, 2, &ALL);
    story.group_view(&ALL, &ALL, &[], &[], &[], 2, &[0, 1]);
    story.at_rest().is_rejected_for("G18");
}

#[test]
fn a_gap_in_a_senders_messages_is_rejected() {
    let mut story = Story::of(2, Order::Fifo);
    for seq in 1..=3 {
        story.send(0, seq);
    }
    story.deliver(1, 0, 1, 1);
    story.deliver(1, 0, 3, 1);
    story.is_rejected_for("G19");
}

#[test]
fn a_senders_messages_in_the_wrong_order_are_rejected() {
    let mut story = Story::of(2, Order::Fifo);
    story.send(0, 1);
    story.send(0, 2);
    story.deliver(1, 0, 2, 1);
    story.deliver(1, 0, 1, 1);
    story.is_rejected_for("G19");
}

#[test]
fn an_effect_before_its_cause_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.send(0, 1);
    story.deliver(1, 0, 1, 1);
    story.send(1, 1);
    story.deliver(2, 1, 1, 1);
    story.deliver(2, 0, 1, 1);
    story.is_rejected_for("G20");
}

#[test]
fn two_orders_in_a_total_group_are_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.send(0, 1);
    story.send(1, 1);
    for (to, first, second) in [(0, 0, 1), (1, 1, 0)] {
        story.deliver(to, first, 1, 1);
        story.deliver(to, second, 1, 1);
    }
    story.is_rejected_for("G21");
    let mut fifo = Story::of(2, Order::Fifo);
    fifo.send(0, 1);
    fifo.send(1, 1);
    for (to, first, second) in [(0, 0, 1), (1, 1, 0)] {
        fifo.deliver(to, first, 1, 1);
        fifo.deliver(to, second, 1, 1);
    }
    fifo.is_accepted();
}

#[test]
fn a_hole_in_the_order_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.send(0, 1);
    story.send(1, 1);
    story.deliver(0, 0, 1, 1);
    story.deliver(0, 1, 1, 1);
    story.deliver(2, 1, 1, 1);
    story.is_rejected_for("G22");
}

#[test]
fn a_view_at_two_places_in_the_order_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.send(0, 1);
    story.send(1, 1);
    for (to, first, second) in [(0, 0, 1), (1, 1, 0)] {
        story.add(
            to,
            Seen::Group(0, Heard::Transitional(vec![incarnation(0), incarnation(1)])),
        );
        story.deliver(to, first, 1, 1);
        story.deliver(to, second, 1, 1);
    }
    story.kill(2);
    story.node_view(&[0, 1], &ALL, 2, &[0, 1]);
    story.group_view(&[0, 1], &[0, 1], &[], &[], &[2], 2, &[0, 1]);
    story.is_rejected_for("G23");
}

#[test]
fn a_group_that_holds_more_than_its_bound_is_rejected() {
    for (held, fits) in [(10, true), (11, false)] {
        let mut story = Story::of(2, Order::Fifo);
        story.add(
            0,
            Seen::Inside(Inside::Memory {
                group: 0,
                sender: None,
                held,
                bound: 10,
            }),
        );
        if fits {
            story.is_accepted();
        } else {
            story.is_rejected_for("memory");
        }
    }
}

#[test]
fn an_expulsion_that_is_not_told_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.add(1, Seen::Incarnation(incarnation(9)));
    story.is_rejected_for("R8");
}

#[test]
fn a_fresh_start_without_a_resync_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.add(1, Seen::Expelled("silent".to_owned()));
    story.add(1, Seen::Incarnation(incarnation(9)));
    let mut view = Story::view(&[0, 1], &[0, 1], 2);
    view.members[1].incarnation = incarnation(9);
    story.add(1, Seen::NodeView(Arc::new(view)));
    story.group_view(&[0, 9], &[0], &[9], &[], &[1], 2, &[1]);
    story.is_rejected_for("resync");
}

#[test]
fn a_delivery_while_suspended_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.send(0, 1);
    story.add(1, Seen::Group(0, Heard::Suspended));
    story.deliver(1, 0, 1, 1);
    story.is_rejected_for("suspended");
}

#[test]
fn a_send_taken_while_suspended_is_rejected() {
    let mut story = Story::of(3, Order::Total);
    story.add(1, Seen::Group(0, Heard::Suspended));
    story.send(1, 1);
    story.is_rejected_for("suspended");
}

#[test]
fn an_incarnation_that_begins_twice_is_rejected() {
    let mut story = Story::of(2, Order::Total);
    story.add(1, Seen::Expelled("silent".to_owned()));
    story.add(1, Seen::Incarnation(incarnation(0)));
    story.is_rejected_for("incarnations");
}

/// Five members and a safe message of the second.
fn safe_story(order: Order) -> Story {
    let mut story = Story::of(5, order);
    story.safe = true;
    story.send(1, 1);
    story
}

#[test]
fn a_safe_message_that_a_survivor_goes_on_without_is_rejected() {
    for order in [Order::Fifo, Order::Total] {
        let mut story = safe_story(order);
        story.deliver(0, 1, 1, 1);
        story.kill(0);
        story.kill(1);
        story.node_view(&[2, 3, 4], &[0, 1, 2, 3, 4], 2, &[2, 3, 4]);
        story.group_view(&[2, 3, 4], &[2, 3, 4], &[], &[], &[0, 1], 2, &[2, 3, 4]);
        story.is_rejected_for("G24");
    }
}

#[test]
fn a_safe_message_behind_the_notice_is_owed_to_those_it_names_only() {
    let mut story = safe_story(Order::Fifo);
    let notice = |story: &mut Story, to, members: &[usize]| {
        let members = members.iter().map(|process| incarnation(*process)).collect();
        story.add(to, Seen::Group(0, Heard::Transitional(members)));
    };
    notice(&mut story, 0, &[0, 1]);
    story.deliver(0, 1, 1, 1);
    story.kill(0);
    story.kill(1);
    story.node_view(&[2, 3, 4], &[0, 1, 2, 3, 4], 2, &[2, 3, 4]);
    story.group_view(&[2, 3, 4], &[2, 3, 4], &[], &[], &[0, 1], 2, &[2, 3, 4]);
    story.is_accepted();

    let mut story = safe_story(Order::Fifo);
    notice(&mut story, 0, &[0, 2]);
    story.deliver(0, 1, 1, 1);
    story.kill(0);
    story.kill(1);
    story.node_view(&[2, 3, 4], &[0, 1, 2, 3, 4], 2, &[2, 3, 4]);
    story.group_view(&[2, 3, 4], &[2, 3, 4], &[], &[], &[0, 1], 2, &[2, 3, 4]);
    story.is_rejected_for("G25");
}

#[test]
fn a_safe_message_after_different_ones_is_rejected_although_one_of_the_two_is_dead() {
    let mut story = safe_story(Order::Total);
    story.send(2, 1);
    story.deliver(0, 2, 1, 1);
    story.deliver(0, 1, 1, 1);
    story.deliver(2, 1, 1, 1);
    story.kill(0);
    story.is_rejected_for("G26");
}

#[test]
fn a_member_that_lacks_what_is_delivered_as_safe_is_a_violation() {
    let mut story = safe_story(Order::Total);
    story.deliver_to_all(5, 1, 1, 1);
    story.is_accepted();
    let lacks = Inside::Unheld {
        group: 0,
        sender: incarnation(1),
        seq: 1,
        lacks: incarnation(2),
    };
    story.add(0, Seen::Inside(lacks));
    story.is_rejected_for("G24");
}

#[test]
fn a_message_that_is_safe_without_its_sender_wanting_it_is_rejected() {
    let mut story = Story::of(2, Order::Fifo);
    story.send(0, 1);
    story.safe = true;
    story.deliver(1, 0, 1, 1);
    story.is_rejected_for("G8");
}
