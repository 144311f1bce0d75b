//! Stories of memberships that talk to each other, told with each engine: this file is two modules, by their
//! names.

use std::time::Duration;

use antiphon_wire::membership::{
    Discovery, Heartbeat, MembershipMessage, SlotMessage, Suspicion, WIRE_LEVEL,
};
use antiphon_wire::{Cause, Evidence, Incarnation};

use super::net::{Net, addr, config};
use crate::detector::Came;
use crate::inspection::State;
use crate::membership::context::record_of;
use crate::membership::view::check;
use crate::{Awaits, Config, EngineKind, Event, PathTrouble, WhyEntry};

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

fn formed(count: usize) -> Net {
    Net::formed(count, engine())
}

#[test]
fn a_seed_that_is_started_again_right_after_it_voted_votes_for_no_second_cluster() {
    for seed in 0..20 {
        let mut net = new_net(seed);
        // The first comes last, and hears the second before this founds with the third; then nothing of the
        // second's any more, for a moment.
        for node in 1..3 {
            net.start(node, config(node, 3));
        }
        net.partition(&[0], &[2]);
        net.run_ms(300);
        net.start(0, config(0, 3));
        net.run_while_ms(1_000, |net| net.view(1).is_none());
        assert!(net.view(1).is_some(), "the second and the third are enough");
        net.heal();
        net.cut_one_way(1, 0);
        net.kill(2);
        net.start(2, config(2, 3));
        net.run_ms(100);
        net.heal();
        net.run_ms(6_000);
        assert_eq!(net.lineages(), 1, "seed {seed}: {:#?}", net.summary());
        net.assert_one_view(&[0, 1, 2]);
    }
}

#[test]
fn five_nodes_that_start_within_a_second_are_in_one_view_a_second_later() {
    let mut net = new_net(1);
    for node in 0..5 {
        net.start(node, config(node, 5));
        net.run_ms(if node < 4 { 250 } else { 0 });
    }
    net.run_ms(1000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
}

#[test]
fn ten_nodes_that_start_at_the_same_instant_found_one_cluster() {
    for seed in 0..10 {
        let mut net = new_net(seed * 100);
        for node in 0..10 {
            net.start(node, config(node, 10));
        }
        net.run_ms(1000);
        net.assert_one_view(&(0..10).collect::<Vec<_>>());
        assert_eq!(net.primaries.len(), 1);
    }
}

/// R1 and R3: a first view that nobody can ever decide must not be accepted by anybody.
#[test]
fn nodes_without_votes_wait_for_one_that_has_any_and_say_so() {
    let mut net = new_net(3);
    let weighing = |node: usize, weight: u16| Config {
        weight,
        ..config(node, 5)
    };
    for node in 0..3 {
        net.start(node, weighing(node, 0));
    }
    net.run_ms(3000);
    assert_eq!(net.primaries.len(), 0);
    let told = net.host(0).events.iter().any(
        |event| matches!(event, Event::Refused { reason, fatal: false } if reason.starts_with("none of the 3 nodes")),
    );
    assert!(told);
    net.start(3, weighing(3, 1));
    net.run_ms(2000);
    net.assert_one_view(&[0, 1, 2, 3]);
}

#[test]
fn a_heartbeat_that_was_overtaken_is_void() {
    let mut net = formed(4);
    let (sender, doubted) = (net.host(1).me, net.host(2).me);
    let view = net.view(0).unwrap();
    let heartbeat = |round, suspicions| Heartbeat {
        round,
        lineage: view.lineage.mark(),
        view: view.primary_id(),
        primary: true,
        leaving: false,
        wire_level: WIRE_LEVEL,
        suspicions,
        rumours: 0,
        lease: None,
    };
    let doubt = vec![Suspicion {
        member: doubted,
        evidence: Evidence::Silent { for_ms: 1_500 },
        for_ms: 3_000,
    }];
    let now = net.now;
    let membership = &mut net.hosts[0].as_mut().unwrap().membership;
    let mut tell = |heartbeat| {
        membership.handle_heartbeat(now, sender, heartbeat, Came::Directly);
        let inspection = membership.inspect(now);
        let State::Seated(seated) = inspection.state else {
            panic!("it is a member");
        };
        seated.doubts.len()
    };
    assert_eq!(tell(heartbeat(10_001, doubt.clone())), 1);
    assert_eq!(tell(heartbeat(10_002, Vec::new())), 0);
    assert_eq!(tell(heartbeat(10_001, doubt)), 0, "it was withdrawn since");
}

#[test]
fn a_node_that_misses_most_seeds_stays_forming_and_says_whom_it_misses() {
    let mut net = new_net(3);
    net.start(0, config(0, 3));
    net.run_ms(20_000);
    assert!(net.view(0).is_none());
    let missing = vec![addr(1), addr(2)];
    let forming = Event::Forming {
        missing,
        rejecting: Vec::new(),
        awaits: Awaits::Founders {
            present: 1,
            needed: 2,
        },
    };
    assert!(net.host(0).events.contains(&forming));
    net.start(1, config(1, 3));
    net.run_ms(1500);
    net.assert_one_view(&[0, 1]);
}

#[test]
fn a_node_whose_connections_are_closed_again_and_again_says_who_rejects_it() {
    let mut net = new_net(3);
    net.start(0, config(0, 3));
    let told = |net: &Net, rejecting: &[usize]| {
        let forming = Event::Forming {
            missing: vec![addr(1), addr(2)],
            rejecting: rejecting.iter().map(|node| addr(*node)).collect(),
            awaits: Awaits::Founders {
                present: 1,
                needed: 2,
            },
        };
        net.host(0).events.contains(&forming)
    };
    net.trouble(0, 2, PathTrouble::Lost);
    net.trouble(0, 2, PathTrouble::Lost);
    net.trouble(0, 2, PathTrouble::Refused);
    net.trouble(0, 2, PathTrouble::Lost);
    net.run_ms(1000);
    assert!(!told(&net, &[2]), "it may have been starting and ending");
    net.trouble(0, 2, PathTrouble::Lost);
    net.trouble(0, 2, PathTrouble::Lost);
    net.run_ms(1000);
    assert!(told(&net, &[2]));
    // Whoever answers after all rejects nobody.
    net.start(2, config(2, 3));
    net.run_ms(1500);
    net.assert_one_view(&[0, 2]);
}

#[test]
fn a_node_that_is_no_seed_joins_and_never_founds() {
    let mut net = new_net(4);
    net.start(3, config(3, 3));
    net.start(4, config(4, 3));
    net.run_ms(3000);
    assert!(net.view(3).is_none());
    for node in 0..3 {
        net.start(node, config(node, 3));
    }
    net.run_ms(1500);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
}

/// R3: what these have accepted must be proposed again as it is, with those in it that came to nothing. The
/// one that was killed leaves a proof, and the other two are half of the rest.
#[test]
fn two_of_three_go_on_if_the_third_is_killed_while_they_vote_for_joiners_that_vanish() {
    for dead in 0..3 {
        for micros in [0, 350, 500, 650, 1000] {
            let mut net = formed(3);
            (3..6).for_each(|node| net.start(node, config(node, 3)));
            let asks = |message: &MembershipMessage| match message {
                MembershipMessage::Slot { message, .. } => {
                    matches!(message, SlotMessage::Accept { .. } | SlotMessage::Fast { .. })
                }
                _ => false,
            };
            let is_asked = |net: &Net, node: usize| net.on_the_way(0, node).iter().any(asks);
            net.run_while_ms(2000, |net| !(3..6).any(|node| is_asked(net, node)));
            net.run_micros(micros);
            (3..6).for_each(|node| net.power_off(node));
            net.kill(dead);
            net.run_ms(10_000);
            let left: Vec<usize> = (0..3).filter(|node| *node != dead).collect();
            net.assert_one_view(&left);
        }
    }
}

#[test]
fn a_joiner_is_in_the_view_of_ten_within_fifty_milliseconds() {
    let mut net = formed(10);
    net.start(10, config(10, 10));
    let ms = net.run_while_ms(1000, |net| (0..11).any(|node| net.names(node).len() < 11));
    assert!(ms < 50, "{ms} ms");
    net.assert_one_view(&(0..11).collect::<Vec<_>>());
}

#[test]
fn a_storm_of_joiners_takes_few_views() {
    let mut net = formed(3);
    for node in 3..13 {
        net.start(node, config(node, 3));
    }
    net.run_ms(1000);
    net.assert_one_view(&(0..13).collect::<Vec<_>>());
    assert!(net.primaries.len() <= 5, "{} views", net.primaries.len());
}

#[test]
fn a_joiner_that_answers_late_is_admitted_with_the_one_that_waits_for_it() {
    let mut net = formed(10);
    let before = net.view(0).unwrap().primary_id();
    net.start(10, config(10, 10));
    let is_probed = |net: &Net| !net.on_the_way(0, 10).is_empty();
    net.run_while_ms(100, |net| !is_probed(net));
    net.pause(10);
    net.start(11, config(11, 10));
    net.run_ms(40);
    net.resume(10);
    let ms = net.run_while_ms(1000, |net| (0..12).any(|node| net.names(node).len() < 12));
    assert!(ms < 60, "{ms} ms");
    assert_eq!(net.view(0).unwrap().primary_id(), check::next_id(before));
}

/// One that vanished after it asked is waited for, and not for long.
#[test]
fn a_joiner_that_does_not_answer_holds_up_others_for_half_a_heartbeat() {
    let mut net = formed(10);
    net.start(10, config(10, 10));
    let asked = |net: &Net| (0..10).any(|seed| !net.on_the_way(seed, 10).is_empty());
    net.run_while_ms(100, |net| !asked(net));
    net.power_off(10);
    net.start(11, config(11, 10));
    let ms = net.run_while_ms(1000, |net| net.names(0).len() < 11);
    assert!((50..150).contains(&ms), "{ms} ms");
}

#[test]
fn a_killed_member_is_out_within_a_hundred_milliseconds_of_its_fin() {
    for victim in 0..5 {
        let mut net = formed(5);
        net.kill(victim);
        let others: Vec<usize> = (0..5).filter(|node| *node != victim).collect();
        let ms = net.run_while_ms(2000, |net| others.iter().any(|node| net.names(*node).len() != 4));
        assert!(ms < 100, "{ms} ms without {victim}");
        net.assert_one_view(&others);
        let gone = &net.view(others[0]).unwrap().departed[0];
        assert_eq!(gone.cause, Cause::Crashed);
        assert!(!gone.accusers.is_empty());
    }
}

#[test]
fn a_silent_host_is_out_within_two_seconds() {
    for victim in 0..5 {
        let mut net = formed(5);
        net.power_off(victim);
        let others: Vec<usize> = (0..5).filter(|node| *node != victim).collect();
        let ms = net.run_while_ms(4000, |net| others.iter().any(|node| net.names(*node).len() != 4));
        assert!((1000..2000).contains(&ms), "{ms} ms without {victim}");
        net.assert_one_view(&others);
    }
}

#[test]
fn a_pause_of_a_second_causes_nothing() {
    let mut net = formed(5);
    let before = net.primaries.len();
    for node in 0..5 {
        net.pause(node);
        net.run_ms(1000);
        net.resume(node);
        net.run_ms(2000);
    }
    assert_eq!(net.primaries.len(), before);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
}

#[test]
fn a_member_paused_for_long_is_expelled_and_told_and_comes_back() {
    let mut net = formed(5);
    net.pause(2);
    net.run_ms(5000);
    net.assert_one_view(&[0, 1, 3, 4]);
    net.resume(2);
    net.run_ms(4000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    assert!(
        net.host(2)
            .events
            .iter()
            .any(|event| matches!(event, Event::Expelled { .. }))
    );
    assert_eq!(net.names(0)[4], "n2", "who comes back is the junior");
}

#[test]
fn a_minority_becomes_non_primary_and_merges_as_fresh_incarnations() {
    let mut net = formed(5);
    let before = [net.host(0).me, net.host(1).me];
    net.partition(&[0, 1], &[2, 3, 4]);
    net.run_ms(3000);
    assert!(!net.is_primary(0) && !net.is_primary(1));
    assert_eq!(net.names(0), ["n0", "n1"]);
    assert_eq!(net.view(0), net.view(1));
    net.assert_one_view(&[2, 3, 4]);
    net.heal();
    net.run_ms(3000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
    assert!(!before.contains(&net.host(0).me) && !before.contains(&net.host(1).me));
    let expelled = |node: usize| {
        net.host(node)
            .events
            .iter()
            .any(|event| matches!(event, Event::Expelled { .. }))
    };
    assert!(
        !expelled(0) && !expelled(1),
        "who knows that it lost the primary is not expelled"
    );
    assert_eq!(net.names(2)[0], "n2");
}

#[test]
fn one_cut_off_comes_back_when_all_that_it_knew_are_gone_and_it_is_a_seed_of_those_that_came_later() {
    let mut net = formed(3);
    net.partition(&[0], &[1, 2, 3, 4]);
    net.run_ms(3000);
    net.start(3, config(3, 3));
    net.start(4, config(4, 3));
    net.run_ms(1000);
    for victim in [1, 2] {
        net.power_off(victim);
        net.run_ms(3000);
    }
    net.assert_one_view(&[3, 4]);
    assert!(!net.is_primary(0));
    net.heal();
    net.run_ms(4000);
    net.assert_one_view(&[0, 3, 4]);
}

#[test]
fn three_that_lost_each_other_return_together_as_the_same_incarnations() {
    let mut net = formed(3);
    let before: Vec<_> = (0..3).map(|node| net.host(node).me).collect();
    net.partition(&[0], &[1, 2]);
    net.partition(&[1], &[2]);
    net.run_ms(4000);
    for node in 0..3 {
        assert_eq!(net.names(node), [format!("n{node}")]);
        assert!(!net.is_primary(node));
    }
    net.heal();
    net.run_ms(2000);
    net.assert_one_view(&[0, 1, 2]);
    assert_eq!(before, (0..3).map(|node| net.host(node).me).collect::<Vec<_>>());
    assert_eq!(net.view(0).unwrap().primary_id().counter, 2);
}

#[test]
fn killed_one_by_one_the_last_of_five_is_still_primary() {
    let mut net = formed(5);
    for victim in [0, 3, 1, 4] {
        net.kill(victim);
        net.run_ms(500);
    }
    net.assert_one_view(&[2]);
}

#[test]
fn four_of_five_killed_at_once_leave_a_primary() {
    let mut net = formed(5);
    for victim in [0, 1, 3, 4] {
        net.kill(victim);
    }
    net.run_ms(1000);
    net.assert_one_view(&[2]);
}

#[test]
fn resets_by_a_firewall_prove_nothing() {
    let mut net = formed(3);
    net.kill_behind_a_firewall(0);
    net.run_ms(3000);
    net.assert_one_view(&[1, 2]);
    net.kill_behind_a_firewall(1);
    net.run_ms(10_000);
    assert!(!net.is_primary(2));
    assert_eq!(net.names(2), ["n2"]);
}

#[test]
fn of_two_the_elder_goes_on_without_a_silent_junior() {
    let mut net = formed(2);
    net.power_off(1);
    net.run_ms(3000);
    net.assert_one_view(&[0]);
}

#[test]
fn of_two_the_junior_goes_on_only_with_proof_of_the_elders_death() {
    let mut net = formed(2);
    net.kill(0);
    net.run_ms(500);
    net.assert_one_view(&[1]);
    let mut net = formed(2);
    net.power_off(0);
    net.run_ms(10_000);
    assert!(!net.is_primary(1));
    let mut net = formed(2);
    net.partition(&[0], &[1]);
    net.run_ms(10_000);
    assert!(net.is_primary(0) && !net.is_primary(1));
}

#[test]
fn an_elder_killed_right_after_it_proposed_leaves_one_successor_view() {
    for micros in (0..14_000).step_by(100) {
        let mut net = formed(4);
        net.start(4, config(4, 4));
        net.run_micros(micros);
        net.kill(0);
        net.run_ms(2000);
        net.assert_one_view(&[1, 2, 3, 4]);
    }
}

#[test]
fn a_killed_member_that_starts_again_at_once_is_superseded() {
    for victim in 0..3 {
        let mut net = formed(3);
        net.restart(victim);
        net.run_ms(1500);
        net.assert_one_view(&[0, 1, 2]);
        assert_eq!(net.names(0)[2], format!("n{victim}"));
    }
}

#[test]
fn a_power_cycled_member_that_starts_again_at_once_is_superseded() {
    for victim in 0..3 {
        let mut net = formed(3);
        net.power_off(victim);
        net.start(victim, config(victim, 3));
        net.run_ms(1500);
        net.assert_one_view(&[0, 1, 2]);
    }
}

#[test]
fn a_seed_that_restarts_cut_off_stays_forming() {
    let mut net = formed(3);
    net.partition(&[0], &[1, 2]);
    net.restart(0);
    net.run_ms(10_000);
    assert!(net.view(0).is_none());
    net.assert_one_view(&[1, 2]);
    net.heal();
    net.run_ms(2000);
    net.assert_one_view(&[0, 1, 2]);
}

#[test]
fn a_member_leaves_in_order_whatever_its_rank() {
    for leaver in 0..4 {
        let mut net = formed(4);
        net.leave(leaver);
        net.run_ms(500);
        let others: Vec<usize> = (0..4).filter(|node| *node != leaver).collect();
        net.assert_one_view(&others);
        assert!(net.host(leaver).stopped && net.host(leaver).events.contains(&Event::Left));
        let gone = &net.view(others[0]).unwrap().departed[0];
        assert_eq!(gone.cause, Cause::Left);
        net.kill(leaver);
        net.run_ms(3000);
        net.assert_one_view(&others);
        assert_eq!(
            net.primaries.len(),
            2,
            "the end of a process that left changes nothing"
        );
    }
}

/// The elder of two has decided, and the other one has accepted, but does not know yet that it is decided.
#[test]
fn the_only_one_that_knows_that_it_left_stays_until_another_one_knows() {
    for heals_after in [2_000, 60_000] {
        let mut net = formed(2);
        net.leave(0);
        net.run_while_ms(5_000, |net| !net.departs(0));
        net.partition(&[0], &[1]);
        net.run_ms(heals_after);
        assert_eq!(net.host(0).stopped, heals_after > 6_000, "and for a bounded time");
        if !net.host(0).stopped {
            net.heal();
            net.run_ms(1_000);
            net.assert_one_view(&[1]);
        }
        assert!(net.host(0).stopped && net.host(0).events.contains(&Event::Left));
    }
}

/// The end of its process is noticed at once, and the news of the view is on its way for long.
#[test]
fn who_admitted_a_node_and_died_before_that_one_knew_is_proven_dead_to_it() {
    let mut net = Net::new(7, engine());
    net.start(0, config(0, 1));
    net.run_ms(1_000);
    net.start(1, config(1, 1));
    let took = net.run_while_ms(5_000, |net| {
        net.view(0).is_some_and(|view| view.members.len() < 2)
    });
    assert!(took < 5_000);
    let late = |net: &mut Net, ms: u64| {
        for _ in 0..ms * 10 {
            net.run_micros(100);
            net.delay(0, 1, Duration::from_millis(300));
        }
    };
    late(&mut net, 20);
    net.kill(0);
    late(&mut net, 20);
    assert!(net.view(1).is_none());
    net.run_ms(5_000);
    net.assert_one_view(&[1]);
}

/// What the former process at a member's address asked was on its way for long.
#[test]
fn a_late_question_of_an_earlier_process_accuses_nobody() {
    let mut net = formed(3);
    net.restart(2);
    net.run_ms(3_000);
    net.assert_one_view(&[0, 1, 2]);
    let record = record_of(&config(2, 3));
    let seek = Discovery::Seek {
        node: record,
        seeds: 0,
        expect: 0,
        founder: false,
        standing: None,
        others: Vec::new(),
        reply: true,
    };
    net.discover(0, Incarnation(5), seek);
    let member = net.host(2).me;
    assert!(!net.host(0).membership.cx.detector.suspects(member));
}

#[test]
fn all_may_leave_at_once() {
    for count in 1..6 {
        let mut net = formed(count);
        for node in 0..count {
            net.leave(node);
        }
        net.run_ms(1500);
        for node in 0..count {
            assert!(net.host(node).stopped, "{node} of {count}");
            assert_eq!(net.host(node).events.last(), Some(&Event::Left));
        }
    }
}

#[test]
fn a_broken_pair_loses_its_junior_and_only_after_a_while() {
    let mut net = formed(5);
    net.partition(&[1], &[3]);
    net.run_ms(3000);
    assert_eq!(net.primaries.len(), 1, "the others hear both");
    net.run_ms(4000);
    let first = net
        .primaries
        .values()
        .find(|view| !view.departed.is_empty())
        .unwrap();
    assert_eq!(first.departed[0].member.name, "n3");
    assert!(matches!(first.departed[0].cause, Cause::Unreachable { .. }));
    net.heal();
    net.run_ms(4000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
}

#[test]
fn the_junior_hub_of_a_star_of_links_does_not_throw_out_all_who_hear_only_it() {
    let mut net = formed(5);
    for leaf in 0..4 {
        let others: Vec<usize> = (0..4).filter(|other| *other != leaf).collect();
        net.partition(&[leaf], &others);
    }
    net.run_while_ms(10_000, |net| net.primaries.len() < 2);
    // A pair can go on; three that do not hear each other cannot be in one view.
    let next = net.view(4).unwrap();
    assert_eq!(net.names(4), ["n0", "n4"]);
    for departure in &next.departed {
        assert!(
            matches!(departure.cause, Cause::Unreachable { .. }),
            "{departure:?}"
        );
    }
    net.heal();
    net.run_ms(10_000);
    net.assert_one_view(&[0, 1, 2, 3, 4]);
}

#[test]
fn a_member_that_does_not_hear_the_coordinator_is_removed_though_all_others_hear_it() {
    let mut net = formed(5);
    net.cut_one_way(0, 3);
    net.run_ms(8_000);
    assert_eq!(net.names(0), ["n0", "n1", "n2", "n4"]);
}

#[test]
fn a_member_whom_nobody_hears_is_removed_although_it_hears_all() {
    let mut net = formed(4);
    for other in 1..4 {
        net.cut_one_way(0, other);
    }
    net.run_ms(6000);
    net.assert_one_view(&[1, 2, 3]);
    assert!(
        net.host(0)
            .events
            .iter()
            .any(|event| matches!(event, Event::Expelled { .. }))
    );
}

#[test]
fn the_last_vote_of_a_member_killed_after_a_heal_shows_the_view_it_helped_to_decide() {
    // R2: {0,1,2} cut 0|12; {1,2} decide a view; 0-1 heals; 1 is killed; its FIN reaches 0 and 2.
    let mut net = formed(3);
    net.partition(&[0], &[1, 2]);
    net.run_ms(3000);
    net.assert_one_view(&[1, 2]);
    net.heal();
    net.partition(&[0], &[2]);
    net.run_micros(350);
    net.kill(1);
    net.run_ms(5000);
    assert!(net.is_primary(2));
    assert_eq!(net.names(2), ["n2"]);
    assert!(!net.is_primary(0), "0 must not go on with half of {{0,2}}");
}

#[test]
fn two_clusters_founded_by_force_end_as_one() {
    let mut net = new_net(9);
    for node in 0..3 {
        net.start(node, config(node, 3));
    }
    net.run_ms(1000);
    let mut alone = config(3, 3);
    alone.found = true;
    net.start(3, alone);
    net.run_ms(8000);
    net.assert_one_view(&[0, 1, 2, 3]);
    assert!(
        net.host(3)
            .events
            .iter()
            .any(|event| matches!(event, Event::Expelled { .. }))
    );
}

#[test]
fn an_expected_number_founds_only_when_all_are_there() {
    let mut net = new_net(11);
    for node in 0..4 {
        let mut config = config(node, 1);
        config.expect = Some(4);
        net.start(node, config);
        net.run_ms(500);
        assert_eq!(net.view(0).is_some(), node == 3);
    }
    net.run_ms(1000);
    net.assert_one_view(&[0, 1, 2, 3]);
}

#[test]
fn a_taken_name_is_refused_with_the_side_at_fault() {
    let mut net = formed(3);
    let mut twin = config(3, 3);
    twin.name = "n1".to_owned();
    net.start(3, twin);
    net.run_ms(2000);
    net.assert_one_view(&[0, 1, 2]);
    let refused = net.host(3).events.iter().any(|event| match event {
        Event::Refused { reason, fatal } => reason.contains("n1") && !fatal,
        _ => false,
    });
    assert!(refused);
}

#[test]
fn why_tells_who_accused_a_member_of_what() {
    let mut net = formed(3);
    net.kill(1);
    net.run_ms(500);
    net.start(1, config(1, 3));
    net.run_ms(1000);
    let report = net.host(0).membership.why(net.now, "n1");
    let kinds: Vec<&str> = report
        .entries
        .iter()
        .map(|entry| match entry {
            WhyEntry::Joined { .. } => "joined",
            WhyEntry::Departed { accusers, .. } => {
                assert!(!accusers.is_empty());
                "departed"
            }
            WhyEntry::Member { .. } => "member",
            WhyEntry::Said { .. } => "said",
            WhyEntry::Refused { .. } | WhyEntry::Joining { .. } => "no member",
        })
        .collect();
    assert_eq!(kinds, ["joined", "departed", "joined", "member", "said"]);
}
