//! Stories of the cut engine alone: the faults of its model that it must not have, each by its number in the
//! list of them.

use antiphon_wire::membership::{MembershipMessage, SlotMessage};
use antiphon_wire::{Cause, Evidence};

use super::net::{Net, config};
use crate::membership::monitor::rings::{RINGS, Rings};
use crate::membership::{Effect, view::check};
use crate::{Config, EngineKind, Event};

fn formed(count: usize) -> Net {
    Net::formed(count, EngineKind::Cut)
}

fn all_but(count: usize, gone: &[usize]) -> Vec<usize> {
    (0..count).filter(|node| !gone.contains(node)).collect()
}

/// Nodes of these weights, by seniority, that do not come back once they are removed.
fn formed_of(weights: &[u16]) -> Net {
    let count = weights.len();
    let mut net = Net::new(7, EngineKind::Cut);
    for (node, weight) in weights.iter().enumerate() {
        let weight = *weight;
        net.start(
            node,
            Config {
                weight,
                rejoin: false,
                ..config(node, count)
            },
        );
    }
    net.run_ms(2500);
    net.assert_one_view(&(0..count).collect::<Vec<_>>());
    net
}

/// Two of three things that a node says get lost, to everybody: all hear it, and never steadily.
fn hardly_heard(net: &mut Net, node: usize) {
    for other in (0..net.hosts.len()).filter(|other| *other != node) {
        net.thin(node, other, 3);
    }
}

#[test]
fn three_hosts_of_twelve_that_lose_power_are_one_view_change() {
    let mut net = formed(12);
    let views = net.primaries.len();
    for node in [2, 5, 9] {
        net.power_off(node);
    }
    net.run_ms(3000);
    net.assert_one_view(&all_but(12, &[2, 5, 9]));
    assert_eq!(net.primaries.len(), views + 1, "{:?}", net.summary());
    let view = net.view(0).unwrap();
    let evidence = |accusation: &antiphon_wire::Accusation| accusation.evidence == Evidence::Observed;
    assert!(view.departed.iter().all(|gone| gone.cause == Cause::Crashed));
    assert!(view.departed.iter().all(|gone| !gone.accusers.is_empty()));
    assert!(
        view.departed.iter().flat_map(|gone| &gone.accusers).all(evidence),
        "decided without a leader: {:?}",
        view.departed
    );
}

#[test]
fn three_of_twelve_that_are_killed_are_one_view_change_within_a_hundred_and_fifty_milliseconds() {
    let mut net = formed(12);
    let views = net.primaries.len();
    for node in [0, 5, 9] {
        net.kill(node);
    }
    let gone = |net: &Net| {
        all_but(12, &[0, 5, 9])
            .iter()
            .any(|node| net.names(*node).len() != 9)
    };
    let ms = net.run_while_ms(2000, gone);
    assert!(ms < 150, "{ms} ms");
    assert_eq!(net.primaries.len(), views + 1);
}

#[test]
fn fault_4_a_member_that_saw_no_report_gets_a_whole_view() {
    // It hears nobody while the others decide, and learns of it afterwards: names, addresses and causes must
    // all be there.
    let mut net = formed(8);
    net.power_off(3);
    net.run_ms(1200);
    net.pause(7);
    net.run_ms(1000);
    assert_eq!(net.names(0).len(), 7, "decided meanwhile");
    net.resume(7);
    net.run_ms(500);
    net.assert_one_view(&all_but(8, &[3]));
    let view = net.view(7).unwrap();
    assert_eq!(view.departed.len(), 1);
    assert_eq!(view.departed[0].member.name, "n3");
}

#[test]
fn fault_5_the_same_inputs_give_the_same_views_to_the_microsecond() {
    // One owner, no threads: what a timer finds and what a message finds is the same state, whatever comes
    // first.
    let story = || {
        let mut net = Net::new(11, EngineKind::Cut);
        (0..9).for_each(|node| net.start(node, config(node, 9)));
        net.run_ms(1000);
        [2, 4].into_iter().for_each(|node| net.power_off(node));
        net.kill(6);
        net.run_ms(2600);
        (net.now, net.summary(), net.primaries.len())
    };
    assert_eq!(story(), story());
}

#[test]
fn fault_7_a_cluster_shrinks_from_five_to_one_by_proof_of_death() {
    let mut net = formed(5);
    for node in 0..4 {
        net.kill(node);
        net.run_ms(1000);
    }
    net.assert_one_view(&[4]);
}

#[test]
fn fault_8_a_leader_that_dies_in_its_round_is_followed_by_the_next() {
    // Too many are gone for the fast ballot, so a leader is needed; it dies with its prepare on the way.
    for micros in [200, 500, 700, 900, 1200, 1500, 2000, 5000, 8000, 12_000] {
        let mut net = formed(9);
        for node in [6, 7, 8] {
            net.kill(node);
        }
        net.run_micros(micros);
        net.kill(0);
        net.run_ms(3000);
        net.assert_one_view(&[1, 2, 3, 4, 5]);
    }
}

#[test]
fn fault_9_a_leader_steps_in_within_half_a_second_of_a_ballot_that_cannot_decide() {
    let mut net = formed(3);
    net.kill(2);
    let ms = net.run_while_ms(2000, |net| net.names(0).len() != 2 || net.names(1).len() != 2);
    assert!(ms < 500, "{ms} ms");
}

#[test]
fn an_elder_that_is_hardly_heard_goes_although_the_fast_ballot_cannot_do_without_it() {
    // Exactly three quarters of the weight see it, without the most senior; and all hear it too often to
    // doubt it.
    for weights in [&[4, 3, 3, 3, 3][..], &[1, 1, 1, 1], &[1, 1, 1], &[2, 3, 3]] {
        let mut net = formed_of(weights);
        let views = net.primaries.len();
        hardly_heard(&mut net, 0);
        let others: Vec<usize> = (1..weights.len()).collect();
        net.run_ms(8000);
        net.assert_one_view(&others);
        assert_eq!(net.primaries.len(), views + 1, "{weights:?}: {:?}", net.summary());
        let view = net.view(1).unwrap();
        let accusers = &view.departed[0].accusers;
        assert!(!accusers.is_empty(), "somebody has seen it");
        assert!(
            accusers.iter().all(|by| by.evidence == Evidence::Observed),
            "{accusers:?}"
        );
    }
}

#[test]
fn three_of_twenty_that_hardly_hear_anything_go_and_nobody_whom_they_observe() {
    // Their observers hear them well, and some members have all three for observers.
    let mut net = formed_of(&[1; 20]);
    let deaf = [3, 8, 15];
    for node in deaf {
        for other in (0..20).filter(|other| *other != node) {
            net.thin(other, node, 3);
        }
    }
    net.run_ms(12_000);
    net.assert_one_view(&all_but(20, &deaf));
    let departed = |view: &std::sync::Arc<antiphon_wire::NodeView>| view.departed.len();
    let gone: usize = net.primaries.values().map(departed).sum();
    assert_eq!(gone, 3, "{:?}", net.summary());
}

#[test]
fn who_is_hardly_heard_stays_where_the_others_could_not_go_on_without_it() {
    let mut net = formed_of(&[2, 1, 1]);
    hardly_heard(&mut net, 0);
    net.run_ms(8000);
    net.assert_one_view(&[0, 1, 2]);
}

#[test]
fn a_leader_removes_who_is_hardly_heard_while_another_is_neither_lost_nor_well() {
    let mut net = formed_of(&[1; 8]);
    // Three of seven lose most of what 5 says: nobody casts a vote meanwhile.
    for other in [2, 3, 4] {
        net.thin(5, other, 3);
    }
    net.run_ms(5000);
    net.assert_one_view(&(0..8).collect::<Vec<_>>());
    hardly_heard(&mut net, 0);
    net.run_ms(8000);
    net.assert_one_view(&[1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn an_elder_that_hears_nobody_goes_although_the_fast_ballot_cannot_do_without_it() {
    let mut net = formed_of(&[4, 3, 3, 3, 3]);
    for other in 1..5 {
        net.cut_one_way(other, 0);
    }
    // It is heard, so each of the others waits until what it answered is of no use any more (R7).
    let ms = net.run_while_ms(6000, |net| net.names(1).len() != 4);
    assert!(ms < 3300, "{ms} ms");
}

#[test]
fn who_asks_for_votes_in_a_slot_that_is_decided_is_told_the_decision() {
    let mut net = formed(3);
    let before = net.view(0).unwrap();
    net.start(3, config(3, 3));
    net.run_ms(1000);
    net.assert_one_view(&[0, 1, 2, 3]);
    let (asker, now) = (net.host(1).me, net.now);
    let value = Box::new((*net.view(0).unwrap()).clone());
    let message = MembershipMessage::Slot {
        slot: check::slot_after(&before),
        message: SlotMessage::Fast { value },
    };
    let asked = &mut net.hosts[0].as_mut().unwrap().membership;
    asked.handle_message(now, asker, message);
    let tells = |effect: Effect| match effect {
        Effect::Send { to, message } => to == asker && matches!(message, MembershipMessage::Decide(_)),
        _ => false,
    };
    assert!(std::iter::from_fn(|| asked.poll_effect()).any(tells));
}

#[test]
fn in_a_star_of_twelve_the_hub_does_not_throw_out_all_at_once() {
    let mut net = formed(12);
    for leaf in 1..12 {
        for other in (1..12).filter(|other| *other != leaf) {
            net.cut_one_way(leaf, other);
        }
    }
    // All leaves have lost each other by now; the hub hears them.
    net.run_ms(3500);
    assert_eq!(net.names(0).len(), 12, "{:?}", net.summary());
    net.run_ms(6000);
    let names = net.names(0);
    assert!(
        net.is_primary(0) && names.len() >= 2,
        "with one leaf at least: {names:?}"
    );
}

#[test]
fn fault_6_a_new_observer_s_word_counts_from_the_view_that_makes_it_one() {
    // What one view says of who observes whom must not outlive it, least of all where a ring wraps around.
    let mut net = formed(14);
    let before = net.view(0).unwrap();
    net.kill(13);
    net.run_ms(1000);
    net.assert_one_view(&(0..13).collect::<Vec<_>>());
    let after = net.view(0).unwrap();
    let observers = |view: &antiphon_wire::NodeView, node: usize| {
        let rings = Rings::new(view, RINGS);
        rings
            .observers_in(view, view.members[node].incarnation)
            .filter_map(|who| after.rank(who))
            .collect::<Vec<usize>>()
    };
    // One that has got an observer by that view, and one of the others that goes on hearing it: nine of ten
    // reports are enough if the new one's is among them.
    let (subject, new) = (1..13)
        .find_map(|node| {
            let was = observers(&before, node);
            let new = observers(&after, node).into_iter().find(|by| !was.contains(by));
            new.map(|new| (node, new))
        })
        .expect("an edge has moved");
    let hears = observers(&after, subject)
        .into_iter()
        .find(|by| *by != new)
        .unwrap();
    for other in (0..13).filter(|other| *other != subject && *other != hears) {
        net.cut_one_way(subject, other);
    }
    net.run_ms(3000);
    net.assert_one_view(&all_but(13, &[subject]));
    let departed = net.view(0).unwrap().departed.clone();
    let accusers = &departed[0].accusers;
    assert!(
        accusers.iter().all(|by| by.evidence == Evidence::Observed),
        "by its observers: {accusers:?}"
    );
}

#[test]
fn fault_10_who_missed_a_decision_pulls_it() {
    let mut net = formed(6);
    // 5 hears nobody for a second, in which a joiner is admitted.
    for node in [0, 1, 2, 3, 4, 6] {
        net.cut_one_way(node, 5);
    }
    net.start(6, config(6, 6));
    net.run_ms(800);
    assert_eq!(net.names(5).len(), 6);
    assert_eq!(net.names(0).len(), 7);
    net.heal();
    net.run_ms(1000);
    net.assert_one_view(&(0..7).collect::<Vec<_>>());
}

#[test]
fn fault_11_one_of_three_that_hears_nobody_is_removed() {
    let mut net = formed(3);
    for node in [0, 1] {
        net.cut_one_way(node, 2);
    }
    net.run_ms(6000);
    assert_eq!(net.names(0), ["n0", "n1"]);
    assert_eq!(net.names(1), ["n0", "n1"]);
}

#[test]
fn fault_11_one_of_ten_that_hears_nobody_is_removed_and_nobody_else() {
    let mut net = formed(10);
    let views = net.primaries.len();
    for node in 0..9 {
        net.cut_one_way(node, 9);
    }
    net.run_ms(3500);
    let view = net.view(0).unwrap();
    assert_eq!(view.members.len(), 9, "{:?}", net.summary());
    assert!(!view.members.iter().any(|member| member.name == "n9"));
    assert_eq!(net.primaries.len(), views + 1);
}

#[test]
fn an_elder_that_loses_most_of_what_it_sends_goes_although_the_fast_ballot_cannot_decide_it() {
    // The three others are three quarters of the weight, but without the most senior; and a lossy edge is
    // nobody's doubt.
    let mut net = formed(4);
    let gone = |net: &Net| net.host(1).views.iter().any(|view| view.members[0].name != "n0");
    for _ in 0..12 {
        for node in 1..4 {
            net.cut_one_way(0, node);
        }
        net.run_ms(700);
        net.heal();
        net.run_ms(150);
    }
    assert!(gone(&net), "{:?}", net.summary());
    net.run_ms(8000);
    net.assert_one_view(&[0, 1, 2, 3]);
}

#[test]
fn fault_20_a_leave_is_no_crash() {
    let mut net = formed(8);
    for node in 4..8 {
        net.leave(node);
    }
    net.run_ms(1000);
    net.assert_one_view(&[0, 1, 2, 3]);
    for node in 4..8 {
        assert!(net.host(node).events.contains(&Event::Left));
    }
}

#[test]
fn a_node_of_another_engine_is_refused_and_told_both() {
    let mut net = formed(3);
    let engine = EngineKind::Coordinator;
    net.start_with(
        3,
        crate::Config {
            engine,
            ..config(3, 3)
        },
    );
    net.run_ms(1000);
    net.assert_one_view(&[0, 1, 2]);
    let told = net.host(3).events.iter().find_map(|event| match event {
        Event::Refused { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    let told = told.expect("a refusal");
    assert!(told.contains("`cut`") && told.contains("`coordinator`"), "{told}");
    assert!(told.contains("n3") && told.contains("membership"), "{told}");
}

#[test]
fn founders_of_different_engines_say_so_and_found_nothing() {
    let mut net = Net::new(1, EngineKind::Cut);
    net.start(0, config(0, 2));
    let engine = EngineKind::Coordinator;
    net.start_with(
        1,
        crate::Config {
            engine,
            ..config(1, 2)
        },
    );
    net.run_ms(3000);
    for node in [0, 1] {
        assert!(net.view(node).is_none());
        let differ =
            |event: &Event| matches!(event, Event::Refused { reason, .. } if reason.contains("engine"));
        assert!(net.host(node).events.iter().any(differ), "{node}");
    }
}
