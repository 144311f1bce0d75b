//! A joiner whose memory is full holds what comes in a file.

use super::super::{Ack, Config, Standing};
use super::group::Group;

/// Members with little memory, and a joiner that gets nothing of the state yet.
fn group_with_a_waiting_joiner(spill_bytes: u64) -> (Group, usize) {
    let config = Config {
        held_bytes: 8_000,
        spill_bytes,
        transfer_bytes: 40_000,
        ..Config::default()
    };
    let mut group = Group::new(1, config);
    for _ in 0..2 {
        group.start("ledger");
        group.next_view(false);
        group.settle();
    }
    let joiner = group.start("ledger");
    group.next_view(false);
    group.deaf.insert(joiner);
    (group, joiner)
}

fn write(group: &mut Group, count: usize) {
    for _ in 0..count {
        group.write(0, Ack::All, None).unwrap();
        group.settle();
        assert_eq!(group.unanswered(0), 0, "no write waits for a joiner");
    }
}

/// Why the joiner has left; it has said the same.
fn left(group: &mut Group, joiner: usize, said: &str) -> String {
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Gone);
    let joiner = &group.nodes[joiner];
    let told = joiner.said.iter().any(|told| told.starts_with(said));
    assert!(told, "{:?}", joiner.said);
    joiner.left.clone().unwrap()
}

#[test]
fn more_than_the_memory_is_written_before_the_state_comes_and_all_of_it_is_applied() {
    let (mut group, joiner) = group_with_a_waiting_joiner(1 << 20);
    write(&mut group, 300);
    assert_eq!(group.standing(joiner), Standing::Waiting);
    assert!(group.most_spilled > 50_000, "{}", group.most_spilled);
    group.deaf.clear();
    group.settle();
    // What it applied is compared with what the others did, step by step.
    assert_eq!(group.standing(joiner), Standing::Serving);
    assert_eq!(group.nodes[joiner].replica.spilled_bytes(), 0);
}

#[test]
fn the_file_is_used_round_and_round_and_has_an_end() {
    let (mut group, joiner) = group_with_a_waiting_joiner(12_000);
    write(&mut group, 30);
    assert!(group.most_spilled > 4_000);
    group.deaf.clear();
    // It applies what it holds more slowly than more comes; the file would be too short for all of it.
    for _ in 0..20 {
        for pair in group.tell_pairs() {
            group.deliver_tell(pair);
        }
        write(&mut group, 2);
    }
    group.settle();
    assert_eq!(group.standing(joiner), Standing::Serving);

    let (mut group, joiner) = group_with_a_waiting_joiner(12_000);
    write(&mut group, 100);
    let reason = left(&mut group, joiner, "Overrun");
    assert!(reason.starts_with("state-overrun"), "{reason}");
    assert!(
        reason.contains("(at most 8000)") && reason.contains("(at most 12000)"),
        "{reason}"
    );
}

#[test]
fn a_disk_that_does_not_keep_up_is_an_overrun_and_holds_up_nobody() {
    let (mut group, joiner) = group_with_a_waiting_joiner(1 << 20);
    group.disks = false;
    write(&mut group, 100);
    let reason = left(&mut group, joiner, "Overrun");
    assert!(reason.starts_with("state-overrun"), "{reason}");
}

#[test]
fn a_disk_that_fails_or_gives_back_something_else_is_named_and_loses_nothing() {
    let (mut group, joiner) = group_with_a_waiting_joiner(1 << 20);
    group.disk_error = Some("no space is left on the device");
    write(&mut group, 50);
    let reason = left(&mut group, joiner, "SpillFailed");
    assert_eq!(reason, "spill-failed: no space is left on the device");

    let (mut group, joiner) = group_with_a_waiting_joiner(1 << 20);
    group.disk_damages = true;
    write(&mut group, 50);
    assert_eq!(group.standing(joiner), Standing::Waiting);
    group.deaf.clear();
    let reason = left(&mut group, joiner, "SpillFailed");
    assert!(reason.contains("something else than was written"), "{reason}");
}

#[test]
fn what_is_in_the_file_is_dropped_where_a_later_state_has_it() {
    let (mut group, joiner) = group_with_a_waiting_joiner(1 << 20);
    write(&mut group, 100);
    // The source is the member that does not lead.
    group.crash(1);
    group.next_view(false);
    group.deaf.clear();
    group.settle();
    write(&mut group, 100);
    assert_eq!(group.standing(joiner), Standing::Serving);
}
