//! What happens to calls, fault by fault.

use std::time::Duration;

use antiphon_core::{Outcome, Parting};
use bytes::Bytes;

use super::super::{
    AnswerError, Call, Config, Failure, MAX_CALL_BYTES, Ran, Refusal, RequestId, Rule, Target, Why,
};
use super::group::{Group, ask};

const VERBS: &[&str] = &["work", "nest"];

fn group(members: usize) -> Group {
    Group::of(members, Config::default(), VERBS)
}

fn failures(group: &Group, node: usize, call: super::super::CallId) -> Vec<Failure> {
    let result = group.result(node, call).expect("it has ended");
    let failures = match result {
        Ok(replies) => &replies.failures,
        Err(error) => &error.failures,
    };
    failures.iter().map(|(_, failure)| failure.clone()).collect()
}

#[test]
fn a_member_is_asked_and_answers_and_so_does_the_caller_itself() {
    let mut group = group(2);
    let other = group.ask(0, group.member(1), "work", Rule::All);
    let own = group.ask(0, group.member(0), "work", Rule::All);
    group.finish_all();
    for call in [other, own] {
        let replies = group.result(0, call).expect("it has ended").clone();
        assert_eq!(replies.expect("answers").replies.len(), 1);
    }
}

#[test]
fn the_first_answer_ends_a_call_and_the_others_run_on() {
    let mut group = group(3);
    let call = group.ask(0, Target::All, "work", Rule::First);
    group.settle();
    assert!(group.finish(1));
    group.settle();
    assert!(group.result(0, call).expect("one answer is enough").is_ok());
    assert_eq!(group.running(2), 1);
    group.finish_all();
}

#[test]
fn a_call_to_each_has_what_every_member_said_those_that_do_not_serve_it_too() {
    let mut group = group(2);
    let caller = group.start(&[]);
    group.next_view(false);
    group.settle();
    let call = group.ask(caller, Target::All, "work", Rule::Each);
    group.settle();
    assert!(group.finish(0));
    group.settle();
    assert!(group.result(caller, call).is_none(), "one of them still works");
    group.finish_all();
    let replies = group.result(caller, call).expect("it has ended").clone();
    let replies = replies.expect("failures do not end it");
    assert_eq!(replies.replies.len(), 2);
    let me = group.nodes[caller].me;
    assert_eq!(replies.failures, [(me, Failure::NoSuchVerb)]);
}

#[test]
fn a_call_to_all_asks_the_members_of_the_view_in_which_it_is_delivered() {
    let mut group = group(2);
    let call = group.ask(0, Target::All, "work", Rule::All);
    group.outputs(0);
    let joiner = group.start(VERBS);
    group.next_view(false);
    group.order(0);
    group.finish_all();
    let replies = group.result(0, call).expect("it has ended").clone();
    let from: Vec<_> = replies
        .expect("answers")
        .replies
        .iter()
        .map(|(from, _)| *from)
        .collect();
    assert_eq!(from.len(), 3);
    assert!(from.contains(&group.nodes[joiner].me));
}

#[test]
fn a_departure_ends_what_waits_for_that_member_at_once() {
    let mut group = group(2);
    group.pair_room = 1;
    let running = group.ask(0, group.member(1), "work", Rule::All);
    group.settle();
    let sent = group.ask(0, group.member(1), "work", Rule::All);
    let queued = group.ask(0, group.member(1), "work", Rule::All);
    group.outputs(0);
    group.leave(1);
    group.next_view(false);
    group.deliver(0);
    assert_eq!(failures(&group, 0, running), [Failure::Departed(Parting::Left)]);
    assert_eq!(failures(&group, 0, sent), [Failure::NotDelivered(Parting::Left)]);
    assert_eq!(
        failures(&group, 0, queued),
        [Failure::NotDelivered(Parting::Left)]
    );
    let error = group.result(0, queued).expect("it has ended").clone();
    assert_eq!(error.expect_err("no answer").ran, Ran::No);
}

#[test]
fn a_call_to_all_does_not_wait_for_members_that_are_gone() {
    let mut group = group(3);
    let call = group.ask(0, Target::All, "work", Rule::All);
    group.settle();
    group.finish(0);
    group.finish(1);
    group.settle();
    group.crash(2);
    group.next_view(false);
    group.settle();
    let replies = group.result(0, call).expect("it has ended").clone();
    assert_eq!(replies.expect("the others answered").replies.len(), 2);
    assert_eq!(failures(&group, 0, call)[0].ran(), Ran::Maybe);
}

/// The primary is lost at the caller. Where it cannot say what became of the call, the others have it.
#[test]
fn a_call_to_all_that_was_not_delivered_ends_once_with_what_its_receipt_says() {
    for (outcome, answered, ran) in [
        // A member that is cut off with the caller may have run it.
        (Outcome::NotDelivered, false, Ran::Maybe),
        (Outcome::Unknown, false, Ran::Maybe),
        (Outcome::Unknown, true, Ran::Yes),
    ] {
        let mut group = group(3);
        let call = group.ask(0, Target::All, "work", Rule::All);
        group.outputs(0);
        if outcome == Outcome::Unknown {
            group.order(0);
            for node in [1, 2] {
                while group.deliver(node) {}
                assert!(group.finish(node));
                group.outputs(node);
            }
        }
        if answered {
            group.deliver_tell((1, 0));
        }
        group.suspend(0);
        assert!(
            group.result(0, call).is_none(),
            "it waits for the return of the primary"
        );
        group.receipt(0, call, outcome);
        let error = group.result(0, call).expect("it has ended").clone();
        let error = error.expect_err("it was not delivered here");
        assert_eq!((error.why, error.ran), (Why::NotDelivered, ran), "{outcome:?}");
        let from: Vec<_> = error.replies.iter().map(|(from, _)| *from).collect();
        let faster: Vec<_> = answered.then_some(group.nodes[1].me).into_iter().collect();
        assert_eq!(from, faster, "{outcome:?}");
        assert_eq!(error.failures, [], "it is not known which members were asked");
        // Nothing ends it again: neither answers nor receipts, nor its deadline, nor the caller itself.
        group.resume(0);
        let late = group.tell_pairs();
        let expected = if outcome == Outcome::NotDelivered {
            0
        } else {
            2 - faster.len()
        };
        assert_eq!(late.len(), expected, "{outcome:?}");
        late.into_iter().for_each(|pair| group.deliver_tell(pair));
        for again in [outcome, Outcome::NotDelivered, Outcome::Unknown] {
            group.receipt(0, call, again);
        }
        group.cancel(0, call);
        group.pass(60_000_000);
        assert_eq!(group.nodes[0].ended.len(), 1, "{outcome:?}");
    }
}

#[test]
fn a_receipt_that_says_delivered_ends_no_call_and_one_after_the_end_says_nothing() {
    let mut group = group(2);
    let call = group.ask(0, Target::All, "work", Rule::All);
    let cancelled = group.ask(0, Target::All, "work", Rule::All);
    group.outputs(0);
    group.order(0);
    let now = group.time(0);
    group.nodes[0].calls.handle_receipt(now, call, Outcome::Delivered);
    assert!(
        group.nodes[0].calls.poll_event().is_none(),
        "its answers are to come"
    );
    group.cancel(0, cancelled);
    group.receipt(0, cancelled, Outcome::NotDelivered);
    let error = group.result(0, cancelled).expect("it has ended").clone();
    let error = error.expect_err("no answer");
    assert_eq!((error.why, error.ran), (Why::Cancelled, Ran::Maybe));
    group.finish_all();
    let replies = group.result(0, call).expect("it has ended").clone();
    assert_eq!(replies.expect("answers").replies.len(), 2);
    assert_eq!(group.nodes[0].ended.len(), 2);
}

#[test]
fn a_majority_is_lost_with_the_members_that_were_asked_and_each_is_named() {
    let mut group = group(4);
    let call = group.ask(0, Target::All, "work", Rule::Majority);
    group.settle();
    group.finish(0);
    for node in 1..4 {
        group.crash(node);
    }
    group.next_view(false);
    group.settle();
    let error = group.result(0, call).expect("it has ended").clone();
    assert_eq!(error.expect_err("one of four").why, Why::Failed);
    let crashed = Failure::Departed(Parting::Crashed);
    assert_eq!(
        failures(&group, 0, call),
        [crashed.clone(), crashed.clone(), crashed]
    );
}

#[test]
fn a_full_server_says_so_at_once_and_did_not_run_the_request() {
    let config = Config {
        max_running: 1,
        max_queued: 1,
        ..Config::default()
    };
    let mut group = Group::of(2, config, VERBS);
    let member = group.member(1);
    let calls: Vec<_> = (0..3)
        .map(|_| group.ask(0, member.clone(), "work", Rule::All))
        .collect();
    group.settle();
    assert_eq!(group.running(1), 1);
    assert_eq!(failures(&group, 0, calls[2]), [Failure::Busy]);
    group.finish_all();
    assert!(group.result(0, calls[1]).expect("it has ended").is_ok());
}

#[test]
fn the_least_loaded_member_is_asked_and_the_nearest_of_equals() {
    let mut group = group(3);
    for (node, micros) in [(1, 3_000), (2, 1_000)] {
        group.ask(0, group.member(node), "work", Rule::All);
        group.outputs(0);
        group.pass(micros);
        group.finish_all();
    }
    let running = |group: &Group| [0, 1, 2].map(|node| group.running(node));
    for expected in [[1, 0, 0], [1, 0, 1], [1, 1, 1]] {
        group.ask(0, Target::Any, "work", Rule::All);
        group.settle();
        assert_eq!(running(&group), expected);
    }
    group.finish_all();
}

#[test]
fn a_verb_that_no_member_serves_is_refused_and_one_that_ends_is_answered() {
    let mut group = group(2);
    let nothing = ask(Target::Any, "nothing", Rule::First);
    assert_eq!(group.call(0, nothing), Err(Refusal::NotServed));
    let call = group.ask(0, group.member(1), "nothing", Rule::First);
    group.settle();
    assert_eq!(failures(&group, 0, call), [Failure::NoSuchVerb]);
    let now = group.time(1);
    group.nodes[1].calls.stop_serving(now, "work");
    group.settle();
    for _ in 0..3 {
        group.ask(0, Target::Any, "work", Rule::First);
    }
    assert_eq!(group.running(0), 3);
    group.finish_all();
}

#[test]
fn whether_a_request_ran_is_told_also_when_what_was_to_run_it_has_gone() {
    let mut group = group(2);
    for (target, may_have_run, ran) in [
        (group.member(1), true, Ran::Maybe),
        (group.member(1), false, Ran::No),
        // By the group, and also at the caller itself.
        (Target::All, false, Ran::No),
        (group.member(0), true, Ran::Maybe),
    ] {
        let call = group.ask(0, target, "work", Rule::Each);
        group.settle();
        for node in [0, 1] {
            group.give_up(node, may_have_run);
        }
        group.settle();
        let failures = failures(&group, 0, call);
        assert!(!failures.is_empty());
        for failure in failures {
            assert_eq!(failure, Failure::GivenUp { may_have_run });
            assert_eq!(failure.ran(), ran);
        }
    }
}

#[test]
fn a_deadline_ends_the_call_and_the_handler_also_if_the_caller_is_silent() {
    let mut group = group(2);
    let call = group.ask(0, group.member(1), "work", Rule::All);
    group.settle();
    group.suspend(0);
    group.pass(59_999_000);
    assert_eq!(group.running(1), 1);
    group.pass(2_000);
    assert_eq!(group.running(1), 0);
    assert_eq!(failures(&group, 0, call), [Failure::NoAnswer]);
}

#[test]
fn a_call_that_was_not_sent_within_its_deadline_did_not_run() {
    let mut group = group(2);
    let call = group.ask(0, group.member(1), "work", Rule::All);
    group.pass(60_000_000);
    let error = group
        .result(0, call)
        .expect("it has ended")
        .clone()
        .expect_err("no answer");
    assert_eq!((error.why, error.ran), (Why::Deadline, Ran::No));
    group.settle();
    assert_eq!(group.running(1), 0);
}

#[test]
fn a_cancelled_call_stops_its_handlers_also_where_it_comes_later() {
    for delivered_here in [false, true] {
        let mut group = group(3);
        let call = group.ask(0, Target::All, "work", Rule::All);
        group.outputs(0);
        group.order(0);
        while group.deliver(1) {}
        while delivered_here && group.deliver(0) {}
        group.cancel(0, call);
        assert_eq!(group.running(1), 1);
        while group.deliver(0) {}
        group.outputs(0);
        // The third member hears of the end first, and of the call later.
        for pair in group.tell_pairs() {
            group.deliver_tell(pair);
        }
        group.settle();
        assert_eq!([0, 1, 2].map(|node| group.running(node)), [0, 0, 0]);
        assert!(!group.executed.iter().any(|(_, _, node)| *node == 2));
    }
}

#[test]
fn handlers_that_call_each_other_in_a_circle_all_end() {
    let config = Config {
        max_running: 1,
        max_queued: 8,
        max_depth: 3,
        ..Config::default()
    };
    let mut group = Group::of(2, config, VERBS);
    let calls: Vec<_> = (0..6)
        .map(|n| {
            (
                n % 2,
                group.ask(n % 2, group.member(1 - n % 2), "nest", Rule::All),
            )
        })
        .collect();
    group.finish_all();
    for (node, call) in calls {
        assert!(group.result(node, call).expect("it has ended").is_ok());
    }
}

#[test]
fn a_call_ends_with_the_request_that_it_was_made_within() {
    let mut group = group(2);
    let call = group.ask(0, group.member(1), "work", Rule::All);
    group.settle();
    let from = group.nodes[0].me;
    let within = RequestId { from, number: call.0 };
    let nested = Call {
        within: Some(within),
        deadline: Duration::from_secs(3600),
        ..ask(group.member(0), "work", Rule::All)
    };
    let nested = group.call(1, nested).expect("the call is taken");
    group.settle();
    assert_eq!(group.running(0), 1);
    group.cancel(0, call);
    group.settle();
    assert_eq!([group.running(0), group.running(1)], [0, 0]);
    let error = group.result(1, nested).expect("it has ended").clone();
    assert_eq!(error.expect_err("no answer").why, Why::Cancelled);
    let late = Call {
        within: Some(within),
        ..ask(group.member(0), "work", Rule::All)
    };
    assert_eq!(group.call(1, late), Err(Refusal::RequestOver));
}

#[test]
fn what_is_too_large_is_refused_with_the_limit() {
    let mut group = group(2);
    let limit = MAX_CALL_BYTES;
    let call = |bytes| Call {
        payload: Bytes::from(vec![0; bytes]),
        ..ask(Target::All, "work", Rule::All)
    };
    assert_eq!(group.call(0, call(limit + 1)), Err(Refusal::TooLarge { limit }));
    let call = group.call(0, call(limit)).expect("the call is taken");
    group.settle();
    let request = RequestId {
        from: group.nodes[0].me,
        number: call.0,
    };
    let now = group.time(1);
    let reply = Ok(Bytes::from(vec![0; limit + 1]));
    let refused = group.nodes[1].calls.answer(now, request, reply);
    assert_eq!(refused, Err(AnswerError::TooLarge { limit }));
    group.finish_all();
    assert!(group.result(0, call).expect("it has ended").is_ok());
}

#[test]
fn calls_in_flight_are_bounded() {
    let config = Config {
        max_in_flight: 2,
        ..Config::default()
    };
    let mut group = Group::of(2, config, VERBS);
    let member = group.member(1);
    for _ in 0..2 {
        group.ask(0, member.clone(), "work", Rule::All);
    }
    assert_eq!(
        group.call(0, ask(member.clone(), "work", Rule::All)),
        Err(Refusal::Full)
    );
    group.finish_all();
    group.ask(0, member, "work", Rule::All);
    group.finish_all();
}

#[test]
fn a_caller_that_takes_no_replies_costs_its_server_a_bounded_number() {
    let config = Config {
        max_running: 1,
        max_queued: 0,
        max_owed: 4,
        ..Config::default()
    };
    let mut group = Group::of(2, config, VERBS);
    let member = group.member(1);
    for _ in 0..8 {
        group.ask(0, member.clone(), "work", Rule::All);
    }
    group.outputs(0);
    for _ in 0..8 {
        group.deliver_tell((0, 1));
    }
    assert_eq!(group.nodes[1].calls.dropped(), 4);
}

#[test]
fn rules_that_cannot_hold_and_strangers_are_refused() {
    let mut group = group(2);
    let stranger = antiphon_core::wire::Incarnation(5);
    for (target, rule, refusal) in [
        (
            Target::Member(stranger),
            Rule::First,
            Refusal::NoSuchMember(stranger),
        ),
        (Target::Members(Vec::new()), Rule::All, Refusal::Impossible),
        (group.member(1), Rule::Count(2), Refusal::Impossible),
        (Target::All, Rule::Count(0), Refusal::Impossible),
    ] {
        assert_eq!(group.call(0, ask(target, "work", rule)), Err(refusal));
    }
    let call = group.ask(0, Target::All, "work", Rule::Count(3));
    group.settle();
    let error = group
        .result(0, call)
        .expect("two cannot give three answers")
        .clone();
    assert_eq!(error.expect_err("no answer").why, Why::Failed);
    group.finish_all();
}
