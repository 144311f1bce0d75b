//! Members that hear nobody and are heard.

use super::net::{Net, config};
use crate::EngineKind;

const ENGINES: [EngineKind; 2] = [EngineKind::Coordinator, EngineKind::Cut];
/// With the profile `lan` they are gone after so many milliseconds.
const GONE: u64 = 3_000;
/// And no sooner than that: they may believe in their view for so long (R7).
const BELIEVED: u64 = 1_300;

fn all_but(count: usize, gone: &[usize]) -> Vec<usize> {
    (0..count).filter(|node| !gone.contains(node)).collect()
}

/// These go deaf, so long after a heartbeat of the others: all others have one view without them in time, and
/// lose nobody else.
fn go_in_time(engine: EngineKind, count: usize, deaf: &[usize], phase: u64) {
    for waits in [false, true] {
        let mut net = Net::formed(count, engine);
        net.run_ms(500 + phase);
        deaf.iter().for_each(|node| net.deafen(*node, waits));
        let others = all_but(count, deaf);
        let all_went = |net: &Net| others.iter().all(|node| net.names(*node).len() <= others.len());
        let text = format!("{engine:?}, {deaf:?} of {count}, phase {phase}, {waits}");
        let after = net.run_while_ms(20_000, |net| !all_went(net));
        assert!((BELIEVED..GONE).contains(&after), "{text}: {after} ms");
        net.run_ms(10_000);
        net.assert_one_view(&others);
        net.heal();
        net.run_ms(10_000);
        net.assert_one_view(&all_but(count, &[]));
    }
}

#[test]
fn one_of_five_that_hears_nobody_is_gone_in_three_seconds_whoever_it_is() {
    for engine in ENGINES {
        for phase in (0..200).step_by(40) {
            go_in_time(engine, 5, &[2], phase);
            go_in_time(engine, 5, &[0], phase);
        }
    }
}

#[test]
fn two_of_twelve_that_hear_nobody_are_gone_in_three_seconds_whoever_they_are() {
    for engine in ENGINES {
        for phase in (0..200).step_by(100) {
            go_in_time(engine, 12, &[3, 8], phase);
            go_in_time(engine, 12, &[0, 5], phase);
        }
    }
}

#[test]
fn two_that_hear_each_other_and_nobody_else_go_in_time_and_in_one_view() {
    for engine in ENGINES {
        for (count, deaf) in [(5, [3, 4]), (5, [0, 2]), (12, [3, 8])] {
            let mut net = Net::formed(count, engine);
            net.run_ms(500);
            let others = all_but(count, &deaf);
            for (from, to) in others.iter().flat_map(|from| deaf.map(|to| (*from, to))) {
                net.cut_one_way(from, to);
            }
            let before = net.primaries.len();
            net.run_ms(GONE);
            net.assert_one_view(&others);
            assert_eq!(net.primaries.len(), before + 1, "{engine:?}, {deaf:?} of {count}");
        }
    }
}

/// The view that admits the joiner may come last before the deaf one is known: what it could believe in is
/// over a lease later.
#[test]
fn who_joins_meanwhile_keeps_no_deaf_member_in() {
    for engine in ENGINES {
        for after in (0..GONE).step_by(300) {
            let mut net = Net::formed(5, engine);
            net.run_ms(500);
            net.deafen(2, false);
            net.run_ms(after);
            net.start(5, config(5, 5));
            net.cut_one_way(5, 2);
            let left = |net: &Net| net.names(0).iter().any(|name| name == "n2");
            let gone = after + net.run_while_ms(5_000, left);
            assert!(gone < GONE + 300, "{engine:?}: {gone} ms, a joiner after {after}");
            net.run_ms(2_000);
            net.assert_one_view(&[0, 1, 3, 4, 5]);
        }
    }
}

/// It hears nobody for a time that is too short, again and again: it stays, as do the others.
#[test]
fn a_member_that_hears_again_in_time_stays() {
    for engine in ENGINES {
        for deaf in [0, 2] {
            for ms in [1_600, 2_000, 2_400] {
                let mut net = Net::formed(5, engine);
                for _ in 0..6 {
                    net.deafen(deaf, false);
                    net.run_ms(ms);
                    net.heal();
                    net.run_ms(5_000);
                }
                net.run_ms(3_000);
                net.assert_one_view(&all_but(5, &[]));
                let mut views = net.primaries.values();
                let went = views.find(|view| !view.departed.is_empty());
                assert!(went.is_none(), "{engine:?}, {deaf} for {ms} ms: {went:?}");
            }
        }
    }
}

/// One heartbeat of five comes: it is never silent for long.
#[test]
fn a_member_that_hears_little_is_not_deaf() {
    let mut net = Net::formed(5, EngineKind::Coordinator);
    let before = net.primaries.len();
    all_but(5, &[2]).iter().for_each(|other| net.thin(*other, 2, 5));
    net.run_ms(20_000);
    net.assert_one_view(&all_but(5, &[]));
    assert_eq!(net.primaries.len(), before);
}

/// Nor is one that hears a single other member, which may pass on what the rest say.
#[test]
fn a_member_that_hears_one_other_is_not_deaf() {
    let mut net = Net::formed(5, EngineKind::Coordinator);
    [0, 1, 3].iter().for_each(|other| net.cut_one_way(*other, 2));
    net.run_ms(GONE + 500);
    net.assert_one_view(&all_but(5, &[]));
}
