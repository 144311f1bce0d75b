//! Drawn schedules: members come, go, stop and lag at any moment while all call each other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::super::{Call, Config, Rule, Target};
use super::Planted;
use super::group::{Group, Life, ask};
use crate::replica::tests::group::Chance;

fn config(chance: &mut Chance) -> Config {
    Config {
        max_running: 1 + chance.below(3),
        max_queued: [0, 2, 100][chance.below(3)],
        max_depth: chance.below(4) as u8,
        max_in_flight: [2, 20][chance.below(2)],
        ..Config::default()
    }
}

/// One run. All checks are in the group; here, that it comes to a good end.
fn run(seed: u64, planted: Option<Planted>) {
    let mut chance = Chance(seed);
    let mut group = Group::new(seed ^ 0x5eed, config(&mut chance));
    group.planted = planted;
    group.refusing = chance.below(60);
    group.pair_room = 1 + chance.below(8);
    let faults = [0, 1, 4, 12][chance.below(4)];
    for _ in 0..1 + chance.below(4) {
        group.start(&["work", "nest"]);
    }
    group.next_view(false);
    for _ in 0..500 {
        step(&mut group, &mut chance, faults);
    }
    end(&mut group);
}

fn step(group: &mut Group, chance: &mut Chance, faults: usize) {
    let node = chance.below(group.nodes.len());
    let life = group.nodes[node].life;
    let alive = !matches!(life, Life::Dead | Life::Left | Life::Joining);
    if chance.below(1_000) < faults * 10 {
        fault(group, chance, node, life);
        return;
    }
    match chance.below(100) {
        0..18 if alive => {
            let call = call(group, chance);
            // It may be refused.
            let _ = group.call(node, call);
        }
        18..20 if alive => {
            let open = group.open(node);
            if !open.is_empty() {
                group.cancel(node, open[chance.below(open.len())]);
            }
        }
        20..35 if alive => {
            group.order(node);
        }
        35..55 => {
            for _ in 0..=chance.below(4) {
                group.deliver(node);
            }
        }
        55..75 => {
            let pairs = group.tell_pairs();
            if !pairs.is_empty() {
                group.deliver_tell(pairs[chance.below(pairs.len())]);
            }
        }
        75..90 => {
            group.finish(node);
        }
        90..93 => group.pass(chance.below(50_000) as u64),
        93 => group.next_view(false),
        _ => {}
    }
    if chance.percent(60) {
        group.outputs(node);
    }
}

fn call(group: &Group, chance: &mut Chance) -> Call {
    let known = group.nodes.len();
    let mut member = || group.nodes[chance.below(known)].me;
    let several = vec![member(), member(), member()];
    let target = match chance.below(4) {
        0 => Target::Member(several[0]),
        1 => Target::Members(several),
        2 => Target::Any,
        _ => Target::All,
    };
    let rule = match chance.below(4) {
        0 => Rule::First,
        1 => Rule::Count(1 + chance.below(4)),
        2 => Rule::Majority,
        _ => Rule::All,
    };
    let verb = ["work", "nest", "nothing"][chance.below(20).min(2) % 3];
    let mut call = ask(target, verb, rule);
    if chance.percent(60) {
        call.deadline = Duration::from_micros(chance.below(200_000) as u64);
    }
    call
}

fn fault(group: &mut Group, chance: &mut Chance, node: usize, life: Life) {
    let gone = |life: Life| matches!(life, Life::Dead | Life::Left);
    let alive = group.nodes.iter().filter(|node| !gone(node.life)).count();
    match chance.below(12) {
        0..5 if alive < 6 => {
            group.start(&["work", "nest"]);
        }
        5..7 if alive > 1 && !gone(life) && life != Life::Joining => group.crash(node),
        7..8 if alive > 1 && life == Life::Member => group.leave(node),
        8..10 if life == Life::Member => group.suspend(node),
        10 if life == Life::Suspended => group.resume(node),
        11 => group.next_view(true),
        _ => {}
    }
    if chance.percent(40) {
        group.next_view(chance.percent(30));
    }
}

fn end(group: &mut Group) {
    group.refusing = 0;
    for node in 0..group.nodes.len() {
        if group.nodes[node].life == Life::Suspended {
            group.resume(node);
        }
    }
    group.next_view(false);
    group.settle();
    group.check_cancelled();
    // No time passes from here on, and there was a minute: only answers and departures end calls.
    group.finish_all();
    group.pass(0);
    for node in group.members() {
        let open = group.open(node);
        assert!(open.is_empty(), "node {node} waits for ever: {open:?}");
        assert_eq!(
            group.nodes[node].calls.load(),
            0,
            "node {node} has handlers that are none"
        );
    }
}

/// The first seed at which a check fails.
fn failing(seeds: std::ops::Range<u64>, planted: Option<Planted>) -> Option<(u64, String)> {
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, planted))) {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            return Some((seed, text.unwrap_or_default()));
        }
    }
    None
}

/// `ANTIPHON_REPLICA_SEEDS=20000` makes it a long one, from `ANTIPHON_REPLICA_FROM` on.
#[test]
fn whatever_the_schedule_calls_end_once_and_say_what_ran() {
    let number = |name: &str, default| {
        let given = std::env::var(name).ok();
        given.and_then(|n| n.parse().ok()).unwrap_or(default)
    };
    let from = number("ANTIPHON_REPLICA_FROM", 0);
    let to = from + number("ANTIPHON_REPLICA_SEEDS", 1_000);
    assert_eq!(failing(from..to, None), None);
}

#[test]
fn mistakes_that_were_planted_are_found() {
    for (planted, what) in [
        (Planted::NoDepths, "waits for ever"),
        (Planted::WaitPastItsTime, "past its deadline"),
        (Planted::WaitForTheDeparted, "a member that is gone"),
        (Planted::CancelInSilence, "runs what was cancelled"),
        (Planted::DenyWhatWasSent, "is said not to"),
    ] {
        let found = failing(0..2_000, Some(planted));
        let (_, text) = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        assert!(
            text.contains(what),
            "{planted:?} was found by another check: {text}"
        );
    }
}
