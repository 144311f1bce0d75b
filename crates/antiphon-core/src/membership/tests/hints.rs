//! Stories of nodes without seeds, which are told at run time whom to ask, told with each engine: this file
//! is two modules.

use antiphon_wire::Incarnation;
use antiphon_wire::membership::{Discovery, KnownNode};

use super::net::{Net, addr, config};
use crate::{Alone, Awaits, Config, EngineKind, Event};

fn engine() -> EngineKind {
    if module_path!().ends_with("cut") {
        EngineKind::Cut
    } else {
        EngineKind::Coordinator
    }
}

fn new_net(seed: u64) -> Net {
    Net::new(seed, engine())
}

fn expecting(node: usize, expect: u16) -> Config {
    let mut config = config(node, 0);
    config.discovers = true;
    config.expect = Some(expect);
    config
}

fn waits(net: &Net, node: usize) -> Option<Awaits> {
    let forming = |event: &Event| match event {
        Event::Forming { awaits, .. } => Some(*awaits),
        _ => None,
    };
    net.host(node).events.iter().rev().find_map(forming)
}

#[test]
fn nodes_that_are_each_told_of_the_next_only_found_one_cluster_when_the_expected_number_is_there() {
    let mut net = new_net(5);
    for node in 0..9 {
        net.start(node, expecting(node, 10));
        net.hint(node, &[node + 1]);
    }
    net.run_ms(5_000);
    assert!((0..9).all(|node| net.view(node).is_none()));
    let all_but_one = Awaits::Founders {
        present: 9,
        needed: 10,
    };
    assert_eq!(waits(&net, 4), Some(all_but_one));
    net.start(9, expecting(9, 10));
    net.run_ms(1_500);
    net.assert_one_view(&(0..10).collect::<Vec<_>>());
    assert_eq!(net.primaries.len(), 1);
}

#[test]
fn a_node_that_is_told_of_others_and_expects_no_number_founds_nothing_and_says_so() {
    let mut net = new_net(6);
    for node in 0..3 {
        let mut config = expecting(node, 1);
        config.expect = None;
        // Naming itself makes no list of seeds either.
        config.seeds = vec![addr(node)];
        net.start(node, config);
        net.hint(node, &[0, 1, 2]);
    }
    net.run_ms(60_000);
    assert!((0..3).all(|node| net.view(node).is_none()));
    assert_eq!(waits(&net, 0), Some(Awaits::Cluster));
    // Somebody decides, and says so.
    let mut founder = expecting(3, 1);
    (founder.expect, founder.found) = (None, true);
    net.start(3, founder);
    net.hint(0, &[3]);
    net.run_ms(1_000);
    net.assert_one_view(&[0, 1, 2, 3]);
    let told = Event::Alone { reason: Alone::Told };
    assert!(net.host(3).events.contains(&told));
    assert!(
        !net.host(0)
            .events
            .iter()
            .any(|event| matches!(event, Event::Alone { .. }))
    );
}

#[test]
fn halves_that_are_told_of_themselves_never_found_two_clusters() {
    for seed in 0..20 {
        let mut net = new_net(seed * 100);
        let (one, other): (Vec<usize>, Vec<usize>) =
            (0..5).partition(|node| (seed + *node as u64).is_multiple_of(3));
        for node in 0..5 {
            net.start(node, expecting(node, 3));
            net.hint(node, if one.contains(&node) { &one } else { &other });
        }
        if seed.is_multiple_of(2) {
            net.partition(&one, &other);
        }
        net.run_ms(3_000);
        let founded = [&one, &other].iter().filter(|side| side.len() >= 3).count();
        assert_eq!(net.primaries.len(), founded, "seed {seed}");
        net.heal();
        for node in 0..5 {
            net.hint(node, &[0, 1, 2, 3, 4]);
        }
        net.run_ms(8_000);
        net.assert_one_view(&[0, 1, 2, 3, 4]);
    }
}

#[test]
fn hints_that_come_late_are_followed_at_once_and_wrong_ones_do_no_harm() {
    let mut net = Net::formed(3, engine());
    net.start(3, expecting(3, 2));
    net.hint(3, &[7, 8]);
    net.run_ms(30_000);
    assert!(net.view(3).is_none());
    net.hint(3, &[8, 2]);
    let ms = net.run_while_ms(1000, |net| net.names(3).len() < 4);
    assert!(ms < 50, "{ms} ms");
    // Members do not care any more.
    net.hint(3, &[]);
    net.run_ms(5_000);
    net.assert_one_view(&[0, 1, 2, 3]);
}

#[test]
fn a_node_that_starts_at_another_address_takes_the_place_of_one_that_died() {
    let mut net = new_net(8);
    for node in 0..2 {
        net.start(node, expecting(node, 3));
        net.hint(node, &[0, 1, 2, 3]);
    }
    net.start(2, expecting(2, 3));
    net.run_ms(1);
    net.power_off(2);
    net.run_ms(5_000);
    assert!(net.view(0).is_none());
    let mut again = expecting(3, 3);
    again.name = "n2".to_owned();
    net.start(3, again);
    net.run_ms(6_000);
    net.assert_one_view(&[0, 1, 3]);
}

#[test]
fn all_restarted_at_once_found_again() {
    let mut net = new_net(9);
    for _ in 0..2 {
        for node in 0..4 {
            net.start(node, expecting(node, 3));
            net.hint(node, &[0]);
        }
        net.run_ms(3_000);
        net.assert_one_view(&[0, 1, 2, 3]);
        (0..4).for_each(|node| net.power_off(node));
        net.run_ms(100);
    }
    assert_eq!(net.lineages(), 2);
}

#[test]
fn two_that_start_again_and_hear_of_each_other_first_join_the_member_that_stayed() {
    // As with multicast: each hears the other's announcement at once, and the member's answer after up to a
    // quarter of a second.
    for after_ms in [25, 250] {
        let mut net = new_net(20 + after_ms);
        for node in 0..3 {
            net.start(node, expecting(node, 2));
            net.hint(node, &[0, 1, 2]);
        }
        net.run_ms(3_000);
        net.assert_one_view(&[0, 1, 2]);
        (1..3).for_each(|node| net.kill(node));
        net.run_ms(500);
        net.assert_one_view(&[0]);
        for node in 1..3 {
            net.start(node, expecting(node, 2));
            net.hint(node, &[3 - node]);
        }
        net.run_ms(after_ms);
        for node in 1..3 {
            net.hint(node, &[0, 3 - node]);
        }
        net.run_ms(3_000);
        net.assert_one_view(&[0, 1, 2]);
        assert_eq!(net.lineages(), 1);
    }
}

#[test]
fn nodes_that_expect_different_numbers_refuse_each_other() {
    let mut net = new_net(10);
    for node in 0..4 {
        net.start(node, expecting(node, if node == 3 { 2 } else { 4 }));
        net.hint(node, &[0, 1, 2, 3]);
    }
    net.run_ms(3_000);
    assert!((0..4).all(|node| net.view(node).is_none()));
    let refused =
        |event: &Event| matches!(event, Event::Refused { reason, fatal: false } if reason.contains("number"));
    assert!(net.host(0).events.iter().any(refused));
    let told = net.host(3).events.iter().filter(|event| refused(event)).count();
    assert_eq!(
        told, 3,
        "it is told once of each, however often they say so by turns"
    );
}

#[test]
fn two_clusters_founded_apart_become_one_by_a_locators_word() {
    let mut net = new_net(11);
    for node in 0..5 {
        let mut config = config(node, 0);
        config.seeds = if node < 2 {
            vec![addr(0), addr(1)]
        } else {
            vec![addr(2), addr(3), addr(4)]
        };
        config.discovers = true;
        net.start(node, config);
    }
    net.run_ms(5_000);
    net.assert_one_view(&[0, 1]);
    net.assert_one_view(&[2, 3, 4]);
    let known = |node: usize| KnownNode {
        addr: addr(node),
        member: true,
        age_s: 1,
    };
    let nodes = vec![known(9), known(0), known(1)];
    let locator = addr(20);
    net.hint_locators(3, &[20]);
    net.run_ms(2_000);
    net.discover(
        3,
        Incarnation(77),
        Discovery::Known {
            addr: locator,
            up_ms: 60_000,
            nodes,
        },
    );
    net.run_ms(8_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
}

#[test]
fn a_locator_that_does_not_answer_is_missed_and_one_that_answers_is_not() {
    let mut net = new_net(12);
    net.start(0, expecting(0, 2));
    net.hint_locators(0, &[20, 21]);
    net.run_ms(200);
    let (addr, up_ms, nodes) = (addr(20), 60_000, Vec::new());
    net.discover(0, Incarnation(77), Discovery::Known { addr, up_ms, nodes });
    net.run_ms(200);
    let missed =
        |event: &Event| matches!(event, Event::Forming { missing, .. } if *missing == [super::net::addr(21)]);
    assert!(net.host(0).events.iter().any(missed));
}
