//! One fault each.

use std::sync::atomic::Ordering::Relaxed;

use antiphon_core::Time;
use antiphon_core::wire::Incarnation;

use super::super::format::{Point, Told, encode};
use super::super::stream::MAX_CATCH_UP;
use super::super::{Ack, Config, Event, Failure, Output, Standing};
use super::Planted;
use super::group::{Group, Life};

pub(super) fn small() -> Config {
    Config {
        digest_every: 4,
        transfer_bytes: 40_000,
        ..Config::default()
    }
}

/// So many members that all have the state.
pub(super) fn group_of(count: usize, config: Config) -> Group {
    let mut group = Group::new(1, config);
    for _ in 0..count {
        group.start("ledger");
    }
    // The first founds, the others join it.
    group.next_view(false);
    group.next_view(false);
    group.settle();
    assert_eq!(group.serving().len(), count);
    group
}

pub(super) fn join(group: &mut Group) -> usize {
    let node = group.start("ledger");
    group.next_view(false);
    node
}

#[test]
fn no_write_waits_for_a_joiner_that_reads_nothing() {
    let mut group = group_of(3, small());
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    for _ in 0..50 {
        group.write(1, Ack::All, None).unwrap();
        group.settle();
        assert_eq!(group.unanswered(1), 0);
    }
    assert!(matches!(
        group.standing(joiner),
        Standing::Waiting | Standing::Receiving
    ));
    group.deaf.clear();
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Serving);
}

#[test]
fn a_joiner_that_holds_too_much_leaves_and_says_so() {
    let mut group = group_of(
        2,
        Config {
            held_bytes: 5_000,
            spill_bytes: 0,
            ..small()
        },
    );
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    for _ in 0..50 {
        group.write(0, Ack::Here, None).unwrap();
        group.settle();
    }
    assert_eq!(group.standing(joiner), Standing::Gone);
    let joiner = &group.nodes[joiner];
    assert!(
        joiner.said.iter().any(|said| said.starts_with("Overrun")),
        "{:?}",
        joiner.said
    );
    assert!(joiner.left.as_ref().unwrap().starts_with("state-overrun"));
}

#[test]
fn a_source_that_cannot_read_its_state_or_half_of_it_says_so_to_the_joiner_and_goes_on() {
    for definition in ["unwritable", "half readable"] {
        let mut group = Group::new(1, small());
        group.start(definition);
        group.next_view(false);
        group.settle();
        let joiner = group.start(definition);
        group.next_view(false);
        group.settle();
        let reason = group.nodes[joiner].left.clone().unwrap();
        assert!(
            reason.starts_with("state-refused") && reason.ends_with("a page is damaged"),
            "{reason}"
        );
        group.write(0, Ack::All, None).unwrap();
        group.settle();
        for node in [0, joiner] {
            let said = &group.nodes[node].said;
            assert!(
                said.iter().any(|said| said.starts_with("SourceFailed")),
                "{said:?}"
            );
        }
        assert_eq!((group.serving(), group.unanswered(0)), (vec![0], 0));
    }
}

#[test]
fn a_state_that_is_said_to_have_more_bytes_than_can_be_counted_is_given_all_the_same() {
    let mut group = Group::new(1, small());
    group.start("immeasurable");
    group.next_view(false);
    group.settle();
    let joiner = group.start("immeasurable");
    group.next_view(false);
    group.settle();
    assert_eq!(group.serving(), [0, joiner]);
    group.write(0, Ack::All, None).unwrap();
    group.settle();
    assert_eq!((group.serving(), group.unanswered(0)), (vec![0, joiner], 0));
}

#[test]
fn no_write_waits_for_a_state_that_is_read_slowly() {
    let mut group = group_of(3, small());
    let joiner = join(&mut group);
    group.reads = false;
    for _ in 0..50 {
        group.write(1, Ack::All, None).unwrap();
        group.settle();
        assert_eq!(group.unanswered(1), 0);
    }
    assert_eq!(group.standing(joiner), Standing::Receiving, "it has the offer");
    group.reads = true;
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Serving);
}

#[test]
fn what_was_begun_to_be_read_for_a_joiner_that_is_gone_is_of_no_use_to_the_next_one() {
    let mut group = group_of(1, small());
    let first = join(&mut group);
    group.reads = false;
    group.settle();
    group.crash(first);
    group.next_view(false);
    group.settle();
    let second = join(&mut group);
    group.settle();
    group.reads = true;
    group.settle();
    assert_eq!(group.serving(), [0, second]);
}

#[test]
fn a_source_that_dies_half_way_is_replaced_and_the_state_is_that_of_the_later_view() {
    for delivered in 0..12 {
        let mut group = group_of(3, small());
        let joiner = join(&mut group);
        for node in 0..4 {
            while group.deliver(node) {}
        }
        group.write(0, Ack::Here, None).unwrap();
        for _ in 0..delivered {
            (0..4).for_each(|node| group.outputs(node));
            for pair in group.tell_pairs() {
                group.deliver_tell(pair);
            }
        }
        // All are idle: the source is the most senior member that does not lead.
        group.crash(1);
        group.next_view(false);
        group.settle();
        assert_eq!(group.serving(), [0, 2, joiner], "after {delivered}");
    }
}

#[test]
fn joiners_of_one_view_are_spread_over_the_members_and_share_a_snapshot_beyond_that() {
    let mut group = group_of(2, small());
    for _ in 0..5 {
        group.start("ledger");
    }
    group.next_view(false);
    group.settle();
    assert_eq!(group.serving().len(), 7);
    let snapshots = |node: usize| group.nodes[node].replica.machine.snapshots.load(Relaxed);
    // The first gave the state to the second one before.
    assert_eq!([0, 1].map(snapshots), [2, 1]);
}

#[test]
fn a_member_with_another_definition_is_refused_and_both_are_named() {
    let mut group = group_of(2, small());
    let other = group.start("ledger, as it was last year");
    group.next_view(false);
    group.settle();
    let other = &group.nodes[other];
    assert_eq!(other.replica.standing(), Standing::Gone);
    let refused = other
        .said
        .iter()
        .find(|said| said.starts_with("Refused"))
        .unwrap();
    assert!(
        refused.contains("as it was last year") && refused.contains("\\\"ledger;"),
        "{refused}"
    );
}

#[test]
fn an_offer_of_a_view_to_come_is_named_and_keeps_no_joiner_from_the_state() {
    let mut group = group_of(1, small());
    let joiner = join(&mut group);
    let never = Point {
        view: u32::MAX,
        messages: u64::MAX,
    };
    let offer = Told::Offer {
        point: never,
        definition: &group.nodes[0].replica.definition.clone(),
        bytes: 1,
        budget: 1,
        time: Default::default(),
    };
    let failed = Told::Failed {
        point: never,
        reason: "none".into(),
    };
    while group.deliver(joiner) {}
    let source = group.nodes[0].me;
    for lie in [offer, failed] {
        let replica = &mut group.nodes[joiner].replica;
        replica.handle_told(Time::ZERO, source, &encode(&lie));
        assert!(matches!(replica.poll_event(), Some(Event::Malformed { .. })));
        assert_eq!(replica.standing(), Standing::Waiting);
    }
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Serving);
}

#[test]
fn a_command_larger_than_all_that_may_wait_is_taken_alone() {
    let mut group = group_of(
        1,
        Config {
            max_queued_bytes: 1,
            max_requests: 0,
            ..small()
        },
    );
    for _ in 0..3 {
        assert!(group.write(0, Ack::Here, None).is_some());
        assert!(group.write(0, Ack::Here, None).is_none(), "one at a time");
        group.settle();
        assert_eq!(group.unanswered(0), 0);
    }
}

#[test]
fn of_two_members_the_junior_one_is_taken_to_differ() {
    let mut group = group_of(2, small());
    group.break_at_next_command(1);
    for _ in 0..8 {
        group.write(0, Ack::All, None).unwrap();
        group.settle();
    }
    assert_eq!(group.standing(0), Standing::Serving);
    assert_eq!(group.standing(1), Standing::Diverged);
    assert_eq!(group.unanswered(0), 0, "nothing waits for it");
}

#[test]
fn joiners_whose_last_source_died_report_the_loss() {
    let mut group = group_of(1, small());
    let (a, b) = (join(&mut group), join(&mut group));
    group.deaf.extend([a, b]);
    group.settle();
    group.crash(0);
    group.next_view(false);
    group.settle();
    for node in [a, b] {
        assert_eq!(group.standing(node), Standing::Lost);
        assert!(group.nodes[node].said.contains(&"StateLost".to_owned()));
    }
    let late = join(&mut group);
    group.settle();
    assert_eq!(group.standing(late), Standing::Lost, "it is told as well");
}

#[test]
fn joiners_may_found_the_state_anew_when_it_is_lost() {
    let mut group = group_of(
        1,
        Config {
            found_anew: true,
            ..small()
        },
    );
    let (a, b) = (join(&mut group), join(&mut group));
    group.deaf.extend([a, b]);
    group.settle();
    group.crash(0);
    group.next_view(false);
    group.deaf.clear();
    group.settle();
    assert_eq!(group.serving(), [a, b]);
}

/// Whether the state survives.
fn last_member_leaves(planted: Option<Planted>) -> bool {
    let mut group = Group::new(1, small());
    group.planted = planted;
    group.start("ledger");
    group.next_view(false);
    group.settle();
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    group.settle();
    group.leave(0);
    group.settle();
    if planted.is_none() {
        assert_eq!(group.nodes[0].life, Life::Member, "it waits");
        assert!(group.write(0, Ack::Here, None).is_none(), "and takes no writes");
    }
    group.next_view(false);
    group.deaf.clear();
    group.settle();
    group.next_view(false);
    group.settle();
    assert_eq!(group.members(), [joiner]);
    group.standing(joiner) == Standing::Serving
}

#[test]
fn the_last_member_with_the_state_leaves_when_a_joiner_has_it() {
    assert!(last_member_leaves(None));
    assert!(!last_member_leaves(Some(Planted::LeaveWithTheState)));
}

#[test]
fn the_last_member_with_the_state_does_not_wait_for_ever() {
    let mut group = group_of(1, small());
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    group.settle();
    group.leave(0);
    group.settle();
    assert_eq!(group.nodes[0].life, Life::Member);
    group.pass(small().leave_timeout.as_micros() as u64);
    group.settle();
    group.next_view(false);
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Lost);
}

#[test]
fn a_member_that_wants_to_leave_leaves_when_it_is_removed_meanwhile() {
    let mut group = group_of(1, small());
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    group.leave(0);
    group.settle();
    assert_eq!(group.nodes[0].life, Life::Member, "it waits");
    let replica = &mut group.nodes[0].replica;
    replica.handle_resync(Incarnation(77), "a new incarnation");
    replica.handle_resync(Incarnation(77), "removed");
    assert_eq!(replica.standing(), Standing::Gone);
    let mut reason = None;
    replica.outputs(Time::ZERO, |output| {
        if let Output::Leave { reason: why } = output {
            reason = Some(why);
        }
        true
    });
    assert_eq!(reason.as_deref(), Some("left"));
}

#[test]
fn all_members_may_leave_at_once() {
    let mut group = group_of(3, small());
    (0..3).for_each(|node| group.leave(node));
    group.settle();
    for node in 0..3 {
        assert_eq!(group.nodes[node].left.as_deref(), Some("left"));
    }
}

#[test]
fn when_the_primary_is_lost_writes_are_answered_by_what_is_known() {
    let mut group = group_of(2, small());
    let sent = group.write(1, Ack::Here, None).unwrap();
    group.outputs(1);
    let queued = group.write(1, Ack::Here, None).unwrap();
    group.suspend(1);
    let answers = &group.nodes[1].answers;
    assert_eq!(
        answers[..],
        [(sent, Err(Failure::Unknown)), (queued, Err(Failure::NotSent))]
    );
    assert!(group.write(1, Ack::Here, None).is_none());
    group.resume(1);
    group.settle();
    assert_eq!(group.serving(), [0, 1], "it goes on");
}

#[test]
fn without_a_lease_a_member_serves_nothing() {
    let mut group = group_of(2, small());
    group.nodes[1].replica.lease(false);
    assert!(group.nodes[1].replica.read(|_| ()).is_err());
    assert!(group.write(1, Ack::Here, None).is_none());
    group.nodes[1].replica.lease(true);
    assert!(group.nodes[1].replica.read(|_| ()).is_ok());
}

#[test]
fn a_deadline_passes_without_traffic_and_under_the_next_leader() {
    let mut group = group_of(3, small());
    group.write(2, Ack::All, Some(500)).unwrap();
    group.settle();
    group.pass(200_000);
    group.settle();
    let before = group.nodes[2].replica.time();
    group.crash(0);
    group.next_view(false);
    group.settle();
    assert!(
        group.nodes[1].replica.poll_timeout().is_some(),
        "the next leader counts on"
    );
    group.pass(500_000);
    group.settle();
    assert!(group.nodes[2].replica.poll_timeout().is_none());
    assert!(
        group.nodes[1].replica.poll_timeout().is_none(),
        "the alarm was raised"
    );
    assert!(group.nodes[2].replica.time() > before);
}

/// Of the member's own count, and of the one that gives the state to a joiner.
#[test]
fn what_is_to_happen_later_waits_as_long_after_an_hour_without_a_word() {
    let mut group = group_of(2, small());
    let hour = 3_600_000_000;
    group.pass(hour);
    let joiner = join(&mut group);
    group.settle();
    for node in [joiner, 1, 0] {
        group.pass(hour);
        group.write(node, Ack::Here, Some(10_000)).unwrap();
        group.settle();
        group.pass(9_000_000);
        group.settle();
        let rings = |group: &Group| group.nodes[0].replica.poll_timeout();
        assert!(rings(&group).is_some(), "{node}: there is a second left");
        group.pass(1_000_000);
        group.settle();
        assert!(rings(&group).is_none(), "{node}");
    }
}

#[test]
fn reads_that_wait_share_one_message() {
    let mut group = group_of(2, small());
    let reads: Vec<_> = (0..10).map(|_| group.read_latest(1).unwrap()).collect();
    group.outputs(1);
    assert!(group.order(1) && !group.order(1));
    group.settle();
    assert_eq!(
        group.nodes[1].answers,
        reads.into_iter().map(|read| (read, Ok(()))).collect::<Vec<_>>()
    );
}

#[test]
fn more_requests_than_the_bound_are_refused() {
    let mut group = group_of(
        1,
        Config {
            max_requests: 3,
            ..small()
        },
    );
    for _ in 0..3 {
        group.write(0, Ack::Here, None).unwrap();
    }
    assert!(group.write(0, Ack::Here, None).is_none());
    group.settle();
    assert!(group.write(0, Ack::Here, None).is_some());
}

/// A joiner that has the state, and has held so many commands meanwhile.
fn joiner_that_held(commands: usize, config: Config) -> (Group, usize) {
    let mut group = group_of(2, config);
    let joiner = join(&mut group);
    group.deaf.insert(joiner);
    for _ in 0..commands {
        group.write(0, Ack::Here, None).unwrap();
        group.outputs(0);
        group.order(0);
        group.deliver(0);
    }
    group.settle();
    group.deaf.clear();
    while group.standing(joiner) != Standing::CatchingUp {
        (0..3).for_each(|node| group.outputs(node));
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    (group, joiner)
}

#[test]
fn a_joiner_applies_what_it_held_in_turns() {
    let (mut group, joiner) = joiner_that_held(2_000, small());
    let (held, mut turns) = (group.most_held, 0);
    while group.nodes[joiner].replica.held_bytes() > 0 {
        group.pass(1);
        turns += 1;
    }
    assert!(
        held > 500_000 && turns > 0,
        "{held} bytes in {turns} turns after the first"
    );
    group.settle();
    assert_eq!(group.serving(), [0, 1, joiner]);
}

#[test]
fn a_joiner_whose_last_turn_is_full_says_that_it_is_up_to_date() {
    let config = Config {
        digest_every: 0,
        ..small()
    };
    let (mut group, joiner) = joiner_that_held(MAX_CATCH_UP, config);
    assert_eq!(group.nodes[joiner].replica.held_bytes(), 0);
    group.pass(1);
    group.settle();
    assert_eq!(group.serving(), [0, 1, joiner]);
}

#[test]
fn a_state_that_was_altered_on_its_way_is_not_taken() {
    let mut group = group_of(2, small());
    let joiner = join(&mut group);
    while !matches!(group.standing(joiner), Standing::Receiving) {
        group.deliver(joiner);
        (0..2).for_each(|node| {
            group.deliver(node);
            group.outputs(node);
        });
        if let Some(pair) = group.tell_pairs().first() {
            group.deliver_tell(*pair);
        }
    }
    group.damaging = true;
    while group.tell_pairs().is_empty() {
        (0..2).for_each(|node| group.outputs(node));
    }
    let pair = group.tell_pairs()[0];
    group.deliver_tell(pair);
    assert_eq!(group.standing(joiner), Standing::Gone);
    let said = &group.nodes[joiner].said;
    assert!(
        said.iter().any(|said| said.starts_with("RestoreFailed")),
        "{said:?}"
    );
}

#[test]
fn a_joiner_that_has_all_when_the_last_source_dies_brings_the_state_back() {
    let mut group = group_of(1, small());
    let (slow, joiner) = (join(&mut group), join(&mut group));
    group.deaf.insert(slow);
    for _ in 0..2 {
        (0..3).for_each(|node| while group.deliver(node) {});
    }
    while group.standing(joiner) != Standing::CatchingUp {
        (0..3).for_each(|node| group.outputs(node));
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    group.crash(0);
    group.next_view(false);
    while group.deliver(slow) {}
    group.outputs(slow);
    assert!(
        group.order(slow),
        "the most senior member says that the state is lost"
    );
    while group.deliver(slow) {}
    assert_eq!(group.standing(slow), Standing::Lost);
    group.deaf.clear();
    group.settle();
    assert_eq!(group.serving(), [slow, joiner]);
}

#[test]
fn a_joiner_that_hears_late_that_the_state_was_founded_anew_leaves_also_if_the_founder_is_gone() {
    let config = Config {
        digest_every: 0,
        found_anew: true,
        ..small()
    };
    let mut group = group_of(1, config);
    let [founder, late, next] = [(); 3].map(|()| join(&mut group));
    let deliver = |group: &mut Group| (0..4).for_each(|node| while group.deliver(node) {});
    group.deaf.extend([founder, late, next]);
    for _ in 0..20_000 {
        group.write(0, Ack::Here, None).unwrap();
        group.outputs(0);
        group.order(0);
        deliver(&mut group);
    }
    group.deaf.remove(&late);
    while group.standing(late) != Standing::CatchingUp {
        for node in [0, late] {
            group.outputs(node);
        }
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    group.crash(0);
    group.next_view(false);
    deliver(&mut group);
    group.deaf.clear();
    while group.standing(next) != Standing::Serving {
        for node in [founder, next] {
            group.outputs(node);
            while group.order(node) {}
        }
        deliver(&mut group);
        group
            .tell_pairs()
            .into_iter()
            .for_each(|pair| group.deliver_tell(pair));
    }
    assert_eq!(group.standing(late), Standing::CatchingUp);
    group.crash(founder);
    group.next_view(false);
    // It applies what it holds in turns.
    (0..50).for_each(|_| group.settle());
    assert_eq!(group.standing(late), Standing::Gone);
    assert_eq!(group.serving(), [next]);
}
