//! Drawn schedules: members come, go, stop and lag at any moment while all write and read.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::{Ack, Config, Standing};
use super::Planted;
use super::group::{Chance, Group, Life};

fn config(chance: &mut Chance) -> Config {
    Config {
        held_bytes: [8_000, 8_000, 1 << 20][chance.below(3)],
        spill_bytes: [0, 4_000, 30_000, 1 << 20][chance.below(4)],
        transfer_bytes: 40_000,
        max_requests: 16,
        digest_every: [3, 7, 20][chance.below(3)],
        found_anew: chance.percent(50),
        leave_timeout: std::time::Duration::from_secs(60),
        ..Config::default()
    }
}

/// What a run has beside members that come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    Nothing,
    Mistake(Planted),
    /// States of members that go wrong.
    BrokenMembers,
}

/// One run. All checks are in the group; here, that it comes to a good end.
fn run(seed: u64, with: With) {
    let mut chance = Chance(seed);
    let mut group = Group::new(seed ^ 0x5eed, config(&mut chance));
    if let With::Mistake(planted) = with {
        group.planted = Some(planted);
    }
    group.refusing = chance.below(40);
    group.ballast = [10, 70_000, 200_000][chance.below(3)];
    let faults = [1, 3, 10][chance.below(3)];
    group.start("ledger");
    for _ in 0..600 {
        step(&mut group, &mut chance, faults);
        if with == With::BrokenMembers && chance.below(200) == 0 {
            let node = chance.below(group.nodes.len());
            if group.nodes[node].life != Life::Dead {
                group.break_at_next_command(node);
            }
        }
    }
    end(&mut group);
}

fn step(group: &mut Group, chance: &mut Chance, faults: usize) {
    let node = chance.below(group.nodes.len());
    let life = group.nodes[node].life;
    if chance.below(1_000) < faults * 10 {
        fault(group, chance, node, life);
        return;
    }
    match chance.below(100) {
        0..15 => {
            let ack = if chance.percent(50) { Ack::All } else { Ack::Here };
            let alarm = chance.percent(30).then(|| chance.below(300) as u16);
            if life != Life::Dead {
                group.write(node, ack, alarm);
            }
        }
        15..22 if life != Life::Dead => {
            group.read_latest(node);
        }
        22..45 if life != Life::Dead => {
            group.order(node);
        }
        45..75 => {
            for _ in 0..=chance.below(6) {
                group.deliver(node);
            }
        }
        75..88 => {
            let pairs = group.tell_pairs();
            if !pairs.is_empty() {
                group.deliver_tell(pairs[chance.below(pairs.len())]);
            }
        }
        88..96 => group.outputs(node),
        96..98 => group.pass(chance.below(50_000) as u64),
        98 => group.next_view(false),
        _ => {}
    }
    if chance.percent(60) {
        group.outputs(node);
    }
    if chance.percent(30) {
        group.disk(chance.below(group.nodes.len()));
    }
}

fn fault(group: &mut Group, chance: &mut Chance, node: usize, life: Life) {
    let alive = group.nodes.iter().filter(|node| node.life != Life::Dead).count();
    match chance.below(12) {
        0..5 if alive < 6 => {
            group.start("ledger");
        }
        5..7 if alive > 1 && life != Life::Dead && life != Life::Joining => group.crash(node),
        7..8 if life == Life::Member => group.leave(node),
        8..10 if life == Life::Member => group.suspend(node),
        10 if life == Life::Suspended => group.resume(node),
        11 => group.next_view(true),
        _ => {}
    }
    if chance.percent(40) {
        group.next_view(chance.percent(30));
    }
}

/// Members compare their states once more.
fn compare(group: &mut Group) {
    for _ in 0..=group.config.digest_every {
        if let Some(node) = group.serving().first() {
            group.write(*node, Ack::Here, None);
            group.settle();
        }
    }
    group.next_view(false);
    group.settle();
}

fn end(group: &mut Group) {
    group.refusing = 0;
    for node in 0..group.nodes.len() {
        if group.nodes[node].life == Life::Suspended {
            group.resume(node);
        }
    }
    for _ in 0..12 {
        group.next_view(false);
        group.settle();
    }
    compare(group);
    let mut members = group.members();
    members.retain(|node| group.standing(*node) != Standing::Diverged);
    let serving = group.serving();
    let standings: Vec<_> = members
        .iter()
        .map(|node| (*node, group.standing(*node)))
        .collect();
    let all = serving == members || serving.is_empty() && !group.config.found_anew;
    assert!(all, "members do not come to serve: {standings:?}");
    let mut hashes: Vec<_> = Vec::new();
    for node in members {
        assert_eq!(group.unanswered(node), 0, "node {node} waits for ever");
        if serving.is_empty() {
            assert_eq!(group.standing(node), Standing::Lost);
        } else {
            hashes.extend(group.nodes[node].replica.read(|ledger| ledger.hash()));
        }
    }
    hashes.dedup();
    assert!(hashes.len() <= 1, "G28: {hashes:?}");
    group.shown.end();
}

/// The first seeds at which a check fails.
fn failing(seeds: std::ops::Range<u64>, with: With) -> Option<(u64, String)> {
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, with))) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            return Some((seed, text.unwrap_or_default()));
        }
    }
    None
}

/// `ANTIPHON_REPLICA_SEEDS=20000` makes it a long one, from `ANTIPHON_REPLICA_FROM` on.
fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let from = number("ANTIPHON_REPLICA_FROM").unwrap_or(0);
    from..from + number("ANTIPHON_REPLICA_SEEDS").unwrap_or(default)
}

#[test]
fn whatever_the_schedule_members_with_the_state_have_the_same() {
    assert_eq!(failing(seeds(1_500), With::Nothing), None);
}

#[test]
fn whatever_goes_wrong_in_members_those_that_serve_have_the_same() {
    assert_eq!(failing(seeds(1_500), With::BrokenMembers), None);
}

#[test]
fn mistakes_that_were_planted_are_found() {
    for (planted, what) in [
        (Planted::HoldWithoutBound, "R19"),
        (Planted::TimeGoesBack, "time went back"),
        (Planted::AnswerBeforeAll, "has not applied"),
        (Planted::KeepOldHeld, ""),
        (Planted::DropHeld, ""),
        (Planted::ReadLatestPart, ""),
        (Planted::LoseReadBack, ""),
        (Planted::KeepFailedCommands, "G8"),
        (Planted::ReadAtOnce, "a read before"),
        (Planted::ShowAllThatMayServe, "is shown as synced"),
    ] {
        let found = failing(0..3_000, With::Mistake(planted));
        let (_, text) = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        assert!(
            text.contains(what),
            "{planted:?} was found by another check: {text}"
        );
    }
}
