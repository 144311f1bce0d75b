//! For how long a member believes in its view, and the others wait (R7, G42).

use antiphon_wire::Evidence;
use antiphon_wire::membership::{Heartbeat, LeaseNote, WIRE_LEVEL};

use super::net::{Net, config};
use crate::{EngineKind, Event, Policy};

fn formed(count: usize, engine: EngineKind) -> Net {
    let mut net = Net::formed(count, engine);
    net.run_ms(500);
    for node in 0..count {
        assert!(believes(&net, node), "{node} of {count}");
    }
    net
}

/// Whether a node was told last that it believes in its view.
fn believes(net: &Net, node: usize) -> bool {
    let told = net.host(node).events.iter().rev().find_map(|event| match event {
        Event::Lease { held } => Some(*held),
        _ => None,
    });
    told == Some(true) && net.is_primary(node)
}

/// Runs, and looks every millisecond whether a member believes that the other's view does not have any more.
fn nobody_believes_too_long(net: &mut Net, ms: u64, (member, name): (usize, &str), other: usize) {
    for _ in 0..ms {
        net.run_ms(1);
        let removed = !net.names(other).iter().any(|known| known == name);
        assert!(!(removed && believes(net, member)), "{name} believes");
    }
}

/// Engines and sizes: of fourteen not all are neighbours.
const CLUSTERS: [(EngineKind, usize); 3] = [
    (EngineKind::Coordinator, 3),
    (EngineKind::Cut, 3),
    (EngineKind::Cut, 14),
];

fn all_but(count: usize, gone: &[usize]) -> Vec<usize> {
    (0..count).filter(|node| !gone.contains(node)).collect()
}

/// How often these were told that they do not believe any more.
fn lost_leases(net: &Net, nodes: &[usize]) -> usize {
    let lost = |event: &&Event| matches!(event, Event::Lease { held: false });
    let of = |node: &usize| net.host(*node).events.iter().filter(lost).count();
    nodes.iter().map(of).sum()
}

#[test]
fn who_is_cut_off_stops_before_the_others_go_on() {
    for (engine, count) in CLUSTERS {
        let mut net = formed(count, engine);
        let last = count - 1;
        let others = all_but(count, &[last]);
        net.partition(&[last], &others);
        let lost = net.run_while_ms(3000, |net| believes(net, last));
        let (least, most) = if count > 3 { (600, 1500) } else { (900, 1000) };
        assert!((least..=1500).contains(&lost), "{lost} ms");
        assert_eq!(net.names(0).len(), count, "{engine:?}");
        let removed = net.run_while_ms(2000, |net| net.names(0).len() == count);
        assert!(removed < most, "{removed} ms more");
        assert!(others.iter().all(|node| believes(&net, *node)));
        assert_eq!(lost_leases(&net, &others), 0, "{engine:?}, {count}");
    }
}

/// Somebody has it hear all that the others answer each other: a member of another view, or whoever caught
/// what they sent.
#[test]
fn what_others_are_answered_counts_for_nobody_else() {
    for engine in [EngineKind::Coordinator, EngineKind::Cut] {
        let mut net = formed(3, engine);
        let view = net.view(0).unwrap();
        net.partition(&[2], &[0, 1]);
        for round in 0..2_000 {
            net.run_ms(1);
            let heartbeat = Heartbeat {
                round: 100_000 + round,
                lineage: view.lineage.mark(),
                view: view.primary_id(),
                primary: true,
                leaving: false,
                wire_level: WIRE_LEVEL,
                suspicions: Vec::new(),
                rumours: 0,
                lease: Some(LeaseNote {
                    to: net.host(1).me,
                    length_ms: 1300,
                    answers: round % 100,
                    asks: false,
                    voted: false,
                    withheld: Vec::new(),
                }),
            };
            net.beat(0, 2, heartbeat);
        }
        assert!(!believes(&net, 2));
    }
}

#[test]
fn a_minority_stops_before_the_majority_goes_on() {
    for (engine, count) in CLUSTERS {
        // With the one that makes ticks, and without.
        for first in [0, count - count.div_ceil(3)] {
            let mut net = formed(count, engine);
            let few: Vec<usize> = (first..first + count.div_ceil(3)).collect();
            let many = all_but(count, &few);
            net.partition(&few, &many);
            for _ in 0..6000 {
                net.run_ms(1);
                let removed = net.names(many[0]).len() < count;
                let believe = few.iter().any(|node| believes(&net, *node));
                assert!(!(removed && believe), "{engine:?}, {count} from {first}");
            }
            assert_eq!(
                net.names(many[0]).len(),
                many.len(),
                "{engine:?}, {count} from {first}"
            );
            assert!(many.iter().all(|node| believes(&net, *node)));
        }
    }
}

#[test]
fn whoever_falls_silent_in_a_large_view_takes_nobodys_lease_with_it() {
    for gone in [[0, 7], [1, 2], [12, 13]] {
        let mut net = formed(14, EngineKind::Cut);
        gone.iter().for_each(|node| net.pause(*node));
        net.run_ms(6000);
        let others = all_but(14, &gone);
        net.assert_one_view(&others);
        assert_eq!(lost_leases(&net, &others), 0, "{gone:?}");
        gone.iter().for_each(|node| net.resume(*node));
        net.run_ms(1);
        assert!(gone.iter().all(|node| !believes(&net, *node)), "{gone:?}");
    }
}

#[test]
fn who_joins_a_large_view_believes_after_a_few_round_trips_and_nobody_else_stops() {
    let mut net = formed(14, EngineKind::Cut);
    net.start(14, config(14, 14));
    net.run_while_ms(2000, |net| net.names(0).len() < 15);
    let waited = net.run_while_ms(2000, |net| !believes(net, 14));
    assert!(waited < 300, "{waited} ms");
    net.run_ms(3000);
    assert_eq!(lost_leases(&net, &all_but(15, &[])), 0);
}

/// What is held back for leases is held back for nobody where none has one.
#[test]
fn without_leases_a_proof_of_death_holds_back_no_removal() {
    let removed_after = |engine, lease: bool, policy| {
        let mut net = Net::new(7, engine);
        for node in 0..5 {
            let mut config = config(node, 5);
            config.primary_lease = lease;
            config.policy = policy;
            net.start(node, config);
        }
        net.run_ms(4_000);
        net.assert_one_view(&[0, 1, 2, 3, 4]);
        net.partition(&[4], &[0, 1, 2, 3]);
        // When it is about to be doubted, another one dies.
        net.run_ms(1_200);
        net.kill(3);
        net.run_while_ms(6_000, |net| net.names(0).len() > 3)
    };
    for engine in EngineKind::ALL {
        let held = removed_after(engine, true, Policy::Majority);
        for policy in Policy::ALL {
            let free = removed_after(engine, false, policy);
            assert!(free + 500 < held, "{engine:?}, {policy:?}: {free} of {held} ms");
        }
    }
}

#[test]
fn who_was_answered_by_one_that_died_is_not_removed_before_that_is_over() {
    for engine in EngineKind::ALL {
        for wait in [0, 100, 700, 1400] {
            let mut net = formed(3, engine);
            net.partition(&[0], &[2]);
            net.run_ms(wait);
            net.kill(1);
            nobody_believes_too_long(&mut net, 4000, (2, "n2"), 0);
            assert_eq!(net.names(0), ["n0"], "{engine:?}, {wait}");
            assert!(believes(&net, 0));
        }
    }
}

#[test]
fn who_was_stopped_does_not_believe_when_it_goes_on() {
    for (engine, count) in CLUSTERS {
        let mut net = formed(count, engine);
        net.pause(2);
        net.run_ms(4000);
        assert_eq!(net.names(0).len(), count - 1);
        net.partition(&[2], &all_but(count, &[2]));
        net.resume(2);
        net.run_ms(1);
        assert!(!believes(&net, 2), "{engine:?}");
    }
}

#[test]
fn a_short_stop_is_no_more_than_a_question() {
    for (engine, count) in CLUSTERS {
        let mut net = formed(count, engine);
        net.pause(2);
        net.run_ms(900);
        net.resume(2);
        // In a large view by the next three ticks.
        net.run_ms(if count > 3 { 1_200 } else { 50 });
        assert!(believes(&net, 2), "{engine:?}");
        net.run_ms(3000);
        net.assert_one_view(&all_but(count, &[]));
    }
}

#[test]
fn the_last_one_of_all_answers_itself() {
    for engine in EngineKind::ALL {
        let mut net = formed(3, engine);
        net.kill(2);
        net.kill(1);
        net.run_ms(1000);
        assert_eq!(net.names(0), ["n0"]);
        net.run_ms(5000);
        assert!(believes(&net, 0));
        let lost = |event: &Event| matches!(event, Event::Lease { held: false });
        assert!(!net.host(0).events.iter().any(lost), "{engine:?}");
    }
}

/// Each view without it would put its removal off by as long as its members may have let it believe.
#[test]
fn who_has_to_go_goes_although_others_keep_coming() {
    for engine in EngineKind::ALL {
        let mut net = formed(3, engine);
        net.pause(2);
        let mut waited = 0;
        let mut next = 3;
        while net.names(0).iter().any(|name| name == "n2") {
            net.start(next, config(next, 3));
            next += 1;
            net.run_ms(300);
            waited += 300;
            assert!(waited < 6000, "{engine:?}: {:?}", net.names(0));
        }
        net.run_ms(3000);
        let staying: Vec<usize> = (0..next).filter(|node| *node != 2).collect();
        net.assert_one_view(&staying);
    }
}

/// The elder decides alone, and the other one, which beats as ever, is asked about before it is answered no
/// more.
#[test]
fn of_two_the_one_that_holds_up_a_flush_is_removed_when_it_believes_no_more() {
    for engine in EngineKind::ALL {
        let mut net = formed(2, engine);
        let mut waited = 0;
        while net.names(0).len() == 2 {
            net.accuse(0, 1, Evidence::FlushStalled);
            nobody_believes_too_long(&mut net, 50, (1, "n1"), 0);
            waited += 50;
            assert!(waited < 5000, "{engine:?}");
        }
        assert!(believes(&net, 0));
    }
}

/// The last of three says a heartbeat to the first each 10 ms, and how many the first made meanwhile for it
/// and for the other.
fn crowded(asks: bool) -> (u64, u64) {
    let mut net = formed(3, EngineKind::Coordinator);
    let view = net.view(0).unwrap();
    net.beats.clear();
    for round in 0..2_000 {
        net.run_ms(10);
        let heartbeat = Heartbeat {
            round: 100_000 + round,
            lineage: view.lineage.mark(),
            view: view.primary_id(),
            primary: true,
            leaving: false,
            wire_level: WIRE_LEVEL,
            suspicions: Vec::new(),
            rumours: 0,
            lease: Some(LeaseNote {
                to: net.host(0).me,
                length_ms: 1300,
                answers: 0,
                asks,
                voted: false,
                withheld: Vec::new(),
            }),
        };
        net.beat(2, 0, heartbeat);
    }
    (net.beats[&(0, 2)], net.beats[&(0, 1)])
}

/// A node that is busy reads the heartbeats of one moment at many: it must not make more of its own by that.
#[test]
fn whoever_hears_heartbeats_all_the_time_makes_hardly_more_of_its_own() {
    let (to_it, to_the_other) = crowded(false);
    assert_eq!(to_it, to_the_other);
    assert!((100..=116).contains(&to_it), "{to_it} in 100 heartbeats");
}

/// For a member that is so late that each answer is too old when it reads it, more of them are no help.
#[test]
fn whoever_asks_all_the_time_is_answered_at_once_ever_more_seldom() {
    let (to_it, to_the_other) = crowded(true);
    let at_once = to_it - to_the_other;
    assert!((5..=20).contains(&at_once), "{at_once} answers in 20 s");
}
