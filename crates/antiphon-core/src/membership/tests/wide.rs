//! Stories of wide views, in which not all are neighbours: who dies at which step, and who hears what.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::{Change, Heartbeat, MembershipMessage, Rumour, Suspicion, WIRE_LEVEL};
use antiphon_wire::{Evidence, NodeView, ViewDigest, ViewId};

use super::net::{Net, addr, config};
use crate::membership::view::check;
use crate::{Config, EngineKind, Event, Heard, PathTrouble, Policy, WhyEntry};

/// Nodes that have three observers each.
fn formed(count: usize) -> Net {
    formed_by(23, count)
}

/// The same with other rings.
fn formed_by(seed: u64, count: usize) -> Net {
    let mut net = Net::new(seed, EngineKind::Cut);
    net.rings = 3;
    (0..count).for_each(|node| net.start(node, config(node, count)));
    net.run_ms(2500);
    net.assert_one_view(&all(count));
    net
}

fn all(count: usize) -> Vec<usize> {
    (0..count).collect()
}

fn all_but(count: usize, gone: &[usize]) -> Vec<usize> {
    (0..count).filter(|node| !gone.contains(node)).collect()
}

#[test]
fn why_says_of_a_member_when_it_was_heard_only_where_it_is_observed() {
    let net = formed(12);
    for subject in 0..12 {
        let report = net.host(0).membership.why(net.now, &format!("n{subject}"));
        let heard = report.entries.into_iter().find_map(|entry| match entry {
            WhyEntry::Member { heard, .. } => Some(heard),
            _ => None,
        });
        match heard.expect("it is a member") {
            Heard::Itself => assert_eq!(subject, 0),
            Heard::Here { .. } => assert!(net.subjects(0).contains(&subject)),
            Heard::By(observers) => {
                let observing = (0..12).filter(|by| net.subjects(*by).contains(&subject));
                let observing = observing.map(|by| net.host(by).me).collect::<BTreeSet<_>>();
                assert_eq!(observers.into_iter().collect::<BTreeSet<_>>(), observing);
                assert!(!net.subjects(0).contains(&subject));
            }
        }
    }
}

#[test]
fn a_joiner_gets_in_whoever_dies_while_it_does() {
    // Those who died may be its observer, the leader, or a neighbour through whom its admission was to be
    // told.
    for dead in 0..9 {
        for micros in [0, 2_000, 6_000, 12_000, 20_000, 30_000, 45_000, 60_000] {
            let mut net = formed(9);
            net.start(9, config(9, 9));
            net.run_micros(60_000 + micros);
            net.power_off(dead);
            net.run_ms(8000);
            net.assert_one_view(&all_but(10, &[dead]));
        }
    }
}

#[test]
fn who_joins_at_rest_waits_for_no_others_and_who_joins_after_somebody_does() {
    let mut net = formed(60);
    let mut join = |rest: u64, node: usize| {
        net.run_ms(rest);
        net.start(node, config(node, 60));
        net.run_while_ms(4000, |net| {
            !(0..=node).all(|at| net.view(at).is_some_and(|view| view.members.len() == node + 1))
        })
    };
    let (at_rest, at_once, again) = (join(1000, 60), join(0, 61), join(1000, 62));
    // Sixty members gather for 60 ms.
    assert!(at_once > at_rest + 30, "{at_rest} ms, {at_once} ms");
    assert!(again < at_once - 30, "{at_once} ms, {again} ms");
}

/// Four of ten observers do not hear it: too many for noise, too few to remove it, and nothing changes in
/// that.
#[test]
fn a_member_between_noise_and_the_cut_holds_up_nobody_who_joins_or_leaves() {
    let mut net = Net::formed(40, EngineKind::Cut);
    let between = 25;
    let observing = |net: &Net| -> Vec<usize> {
        let observers = (0..40).filter(|node| net.subjects(*node).contains(&between));
        observers.collect()
    };
    let deaf: Vec<usize> = observing(&net).into_iter().rev().take(4).collect();
    deaf.iter().for_each(|by| net.cut_one_way(between, *by));
    let unstable = |net: &Net| {
        let down = observing(net).into_iter().filter(|by| deaf.contains(by));
        (3..9).contains(&down.count())
    };
    for (rest, node) in [(1500, 40), (0, 41), (0, 42), (400, 43), (1500, 44)] {
        net.run_ms(rest);
        net.start(node, config(node, 40));
        let ms = net.run_while_ms(4000, |net| {
            !(0..=node).all(|at| net.view(at).is_some_and(|view| view.members.len() == node + 1))
        });
        assert!(unstable(&net));
        assert!(ms < 150, "n{node} after {ms} ms");
    }
    net.leave(44);
    let ms = net.run_while_ms(4000, |net| net.names(0).len() == 45);
    assert!(ms < 150, "{ms} ms");
    // What removes somebody waits for it once, and not in each view again.
    for dead in [30, 31] {
        net.run_ms(500);
        net.kill(dead);
        let ms = net.run_while_ms(4000, |net| net.names(0).contains(&format!("n{dead}")));
        assert!(ms < 600, "{ms} ms");
    }
    net.run_ms(500);
    net.assert_one_view(&all_but(44, &[30, 31]));
}

#[test]
fn a_leader_that_dies_with_rumours_on_the_way_is_followed_by_the_next() {
    for step in 0..24 {
        let mut net = formed(12);
        for node in [5, 9] {
            net.kill(node);
        }
        net.leave(7);
        net.run_micros(step * 2500);
        net.kill(0);
        net.run_ms(4000);
        net.assert_one_view(&all_but(12, &[0, 5, 7, 9]));
    }
}

/// It hears of two views at once, of the second before it knows the first: votes about one must not count for
/// the other.
#[test]
fn who_was_paused_while_two_views_were_decided_counts_no_vote_of_one_for_the_next() {
    for step in 0..40 {
        let mut net = formed(14);
        net.pause(6);
        net.kill(3);
        net.run_ms(60 + step * 7);
        net.kill(9);
        net.run_ms(300 + step * 5);
        net.resume(6);
        net.run_ms(1500);
        net.assert_one_view(&all_but(14, &[3, 9]));
        for node in all_but(14, &[3, 9]) {
            assert_eq!(
                net.votes_kept(node),
                0,
                "step {step}, n{node}: of what is not being decided"
            );
        }
    }
}

/// An opinion is told once in a view. Whoever hears its author again after a silence has not heard anything
/// else from it.
#[test]
fn the_word_of_an_observer_outlives_a_silence_of_its_own() {
    let mut net = formed(12);
    // The most senior, whom all take for the leader, observes one that observes one that is to die.
    let edges = |net: &Net| -> Vec<(usize, usize)> {
        let observers = net.subjects(0).into_iter();
        let edges = observers.flat_map(|by| net.subjects(by).into_iter().map(move |of| (by, of)));
        edges.filter(|(_, of)| *of != 0).collect()
    };
    for (observer, dead) in edges(&net) {
        net = formed(12);
        net.cut_one_way(dead, observer);
        net.run_ms(2000);
        net.pause(observer);
        net.run_ms(1600);
        net.resume(observer);
        net.run_ms(500);
        net.assert_one_view(&all(12));
        net.power_off(dead);
        net.run_ms(4000);
        net.assert_one_view(&all_but(12, &[dead]));
    }
}

/// The others have learned that the rack stands still at times, and give it more time than the newcomer does.
#[test]
fn a_newcomer_that_loses_a_stunned_rack_before_the_others_stays() {
    let joined = |stunned: &[usize]| {
        let mut net = Net::formed(24, EngineKind::Cut);
        stunned.iter().for_each(|node| net.pause(*node));
        net.run_ms(1400);
        stunned.iter().for_each(|node| net.resume(*node));
        net.run_ms(1000);
        net.start(24, config(24, 24));
        net.run_ms(1000);
        net.assert_one_view(&all(25));
        net
    };
    let subjects = joined(&[]).subjects(24);
    // The most junior: somebody leads, or nobody would be removed anyway.
    let rack = &subjects[(subjects.len() - 1) / 2..];
    let mut net = joined(rack);
    assert_eq!(net.subjects(24), subjects);
    let view = net.view(0);
    rack.iter().for_each(|node| net.pause(*node));
    net.run_ms(2700);
    rack.iter().for_each(|node| net.resume(*node));
    net.run_ms(3000);
    assert_eq!(net.view(0), view);
    net.assert_one_view(&all(25));
}

#[test]
fn who_is_cut_off_alone_does_not_go_on_believing_to_be_in_the_primary_view() {
    let mut net = formed(12);
    net.partition(&[4], &all_but(12, &[4]));
    net.run_ms(4000);
    net.assert_one_view(&all_but(12, &[4]));
    assert!(!net.is_primary(4), "{:?}", net.summary());
    net.heal();
    net.run_ms(6000);
    net.assert_one_view(&all(12));
}

#[test]
#[ignore = "long: a wide view; `cargo test -p antiphon-core -- --ignored`"]
fn a_minority_of_a_partition_decides_nothing_and_comes_back() {
    // With ten observers each: of three, those of a minority would know too little of the others.
    let mut net = Net::formed(30, EngineKind::Cut);
    let minority: Vec<usize> = (0..30).filter(|node| node % 3 == 1).collect();
    let majority = all_but(30, &minority);
    net.partition(&minority, &majority);
    net.run_ms(8000);
    net.assert_one_view(&majority);
    for node in minority {
        assert!(!net.is_primary(node), "{:?}", net.summary());
    }
    net.heal();
    net.run_ms(8000);
    net.assert_one_view(&all(30));
}

/// Each of the others has the view that this one lies on: who stays is all that it must be told, once or a
/// few times.
#[test]
#[ignore = "long: a wide view; `cargo test -p antiphon-core -- --ignored`"]
fn who_gathers_half_of_a_large_view_sends_no_whole_views() {
    let mut net = Net::formed(40, EngineKind::Cut);
    // Half of them, and not the most senior.
    let minority: Vec<usize> = (0..40).filter(|node| node % 9 >= 4).collect();
    let first = minority[0];
    net.partition(&minority, &all_but(40, &minority));
    net.weighed = Some((first, 0));
    net.run_ms(10_000);
    for node in &minority {
        let view = net.view(*node).unwrap();
        assert!(!view.is_primary(), "n{node} is in {}", view.id);
        assert_eq!(view, net.view(first).unwrap());
        assert_eq!(view.members.len(), minority.len());
        let mut departed = view.departed.iter();
        assert!(departed.all(|departure| departure.accusers.len() == 1));
    }
    let (_, bytes) = net.weighed.unwrap();
    let each = bytes / minority.len();
    assert!(each > 0 && each < 500, "{each} bytes to each");
}

#[test]
#[ignore = "long: a wide view; `cargo test -p antiphon-core -- --ignored`"]
fn each_part_of_a_wide_view_goes_on_by_itself_where_that_is_the_policy() {
    let mut net = Net::new(31, EngineKind::Cut);
    for node in 0..30 {
        let mut config = config(node, 30);
        config.policy = Policy::Any;
        net.start(node, config);
    }
    net.run_ms(2500);
    let minority: Vec<usize> = (0..30).filter(|node| node % 3 == 1).collect();
    let majority = all_but(30, &minority);
    net.partition(&minority, &majority);
    net.run_ms(10_000);
    net.assert_one_view(&minority);
    net.assert_one_view(&majority);
    net.heal();
    net.run_ms(15_000);
    net.assert_one_view(&all(30));
}

/// Whom a member had lost most of its heartbeats from, it says again when it hears nothing any more: the
/// others of the minority would walk from it to the majority, and from there to all.
#[test]
#[ignore = "long: a wide view; `cargo test -p antiphon-core -- --ignored`"]
fn a_path_that_lost_much_before_a_partition_is_not_one_on_which_anything_is_heard_in_it() {
    let minority: Vec<usize> = (0..30).filter(|node| node % 3 == 1).collect();
    let majority = all_but(30, &minority);
    let edge = |net: &Net, observer: usize| {
        let mut subjects = net.subjects(observer).into_iter();
        subjects.find(|of| majority.contains(of)).map(|of| (observer, of))
    };
    for member in [1, 13, 25] {
        let mut net = Net::formed(30, EngineKind::Cut);
        let (observer, subject) = edge(&net, member).unwrap();
        // It is heard every 1.2 s, so it is given twice that, and is the last of the majority to be silent.
        net.thin(subject, observer, 6);
        net.run_ms(8000);
        net.assert_one_view(&all(30));
        net.partition(&minority, &majority);
        net.run_ms(8000);
        net.assert_one_view(&majority);
        for node in &minority {
            assert!(!net.is_primary(*node), "{:?}", net.summary());
        }
    }
}

/// All whom it observes and all who observe it are gone, and without it the others are too few.
#[test]
fn who_has_no_neighbour_left_is_found_by_the_others_that_need_it() {
    let mut islands = 0;
    for alone in 0..13 {
        let mut net = formed(13);
        let mut gone = net.subjects(alone);
        gone.extend((0..13).filter(|node| net.subjects(*node).contains(&alone)));
        gone.sort_unstable();
        gone.dedup();
        // As many as leave a majority, and no more.
        let others = (0..13)
            .rev()
            .filter(|node| *node != alone && !gone.contains(node));
        let fill: Vec<usize> = others.take(6_usize.saturating_sub(gone.len())).collect();
        gone.extend(fill);
        if gone.len() > 6 {
            continue;
        }
        islands += 1;
        gone.iter().for_each(|node| net.power_off(*node));
        net.run_ms(20_000);
        net.assert_one_view(&all_but(13, &gone));
    }
    assert!(islands > 0);
}

/// The most senior observes nobody on the other side, and whoever is there has most of its observers there.
#[test]
fn a_half_whose_leader_misses_nobody_goes_on_without_the_other_half() {
    let mut halves = 0;
    for seed in 90..190 {
        let mut net = formed_by(seed, 6);
        let mut here = net.subjects(0);
        here.extend([0]);
        here.sort_unstable();
        here.dedup();
        if here.len() > 3 {
            continue;
        }
        let there = all_but(6, &here);
        let observes = |of: usize| here.iter().filter(|by| net.subjects(**by).contains(&of)).count();
        // Who hears nobody of its subjects is taken for the one at fault, and a vote for that needs more than
        // this half.
        let is_deaf = |by: usize| net.subjects(by).iter().all(|of| there.contains(of));
        if there.iter().any(|of| observes(*of) > 1) || here.iter().any(|by| is_deaf(*by)) {
            continue;
        }
        halves += 1;
        net.partition(&here, &there);
        net.run_ms(15_000);
        net.assert_one_view(&here);
        for node in &there {
            assert!(!net.is_primary(*node), "{here:?}: {:?}", net.summary());
        }
        net.heal();
        net.run_ms(8000);
        net.assert_one_view(&all(6));
    }
    assert!(halves > 0);
}

/// Nobody doubts the one that should lead: whoever could is dead. And those that are left are too few to
/// decide without it.
#[test]
fn a_leader_whom_only_the_dead_observe_is_found_to_be_gone() {
    for seed in 23..31 {
        let mut net = formed_by(seed, 13);
        let mut gone: Vec<usize> = (1..13).filter(|node| net.subjects(*node).contains(&0)).collect();
        gone.insert(0, 0);
        gone.iter().for_each(|node| net.power_off(*node));
        net.run_ms(20_000);
        net.assert_one_view(&all_but(13, &gone));
    }
}

/// All others, a few at a time.
#[test]
fn who_looks_beyond_the_rings_asks_a_few_at_a_time() {
    let mut net = formed(40);
    let others = all_but(40, &[7]);
    net.partition(&[7], &others);
    net.run_ms(4000);
    assert!(!net.is_primary(7), "{:?}", net.summary());
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..7 {
        let turn = net.whom_to_ask(7);
        assert_eq!(turn.len(), 6, "with three rings");
        asked.extend(turn);
    }
    assert_eq!(asked, others.iter().map(|node| addr(*node)).collect());
}

/// One edge of ten is nobody's fault, and removes nobody however long it is down.
#[test]
fn a_path_that_is_dead_for_long_makes_no_member_ask_others_than_its_neighbours() {
    let mut net = Net::formed(40, EngineKind::Cut);
    let (observer, subject) = (30, net.subjects(30)[0]);
    net.cut_one_way(subject, observer);
    net.run_ms(3000);
    net.spoken.clear();
    net.run_ms(12_000);
    net.assert_one_view(&all(40));
    assert!(net.host(17).membership.cx.detector.has_doubts(), "all know of it");
    for (from, to, seeks) in &net.spoken {
        let near = net.subjects(*from).contains(to) || net.subjects(*to).contains(from);
        assert!(near && !seeks, "n{from} to n{to}, seeks: {seeks}");
    }
}

#[test]
fn all_but_two_leave_at_once_and_none_waits_for_those_that_are_gone() {
    let mut net = formed(12);
    for node in 0..10 {
        net.leave(node);
    }
    let left = |net: &Net| (0..10).all(|node| net.host(node).events.contains(&Event::Left));
    let ms = net.run_while_ms(4000, |net| !left(net));
    assert!(ms < 600, "{ms} ms");
    net.run_ms(1000);
    net.assert_one_view(&[10, 11]);
}

/// Until all have left that want to, in milliseconds.
fn all_leave(net: &mut Net, count: usize) -> u64 {
    for node in 0..count {
        // In another order than that of seniority, and not at the same moment.
        net.leave((node * 7) % count);
        net.run_micros(300);
    }
    let left = |net: &Net| (0..count).all(|node| net.host(node).events.contains(&Event::Left));
    net.run_while_ms(8000, |net| !left(net))
}

#[test]
fn all_of_a_wide_view_leave_at_once_and_the_last_waits_for_no_bound() {
    let mut net = formed_by(3, 60);
    let ms = all_leave(&mut net, 60);
    assert!(ms < 300, "{ms} ms");
}

#[test]
fn who_hears_nothing_from_one_neighbour_is_told_by_another_that_it_has_left_with_all() {
    let members = formed_by(3, 30);
    for from in members.neighbours(17) {
        let mut net = formed_by(3, 30);
        net.cut_one_way(from, 17);
        let ms = all_leave(&mut net, 30);
        assert!(ms < 1300, "{ms} ms without n{from}: {:?}", net.summary());
    }
}

#[test]
fn whoever_is_told_that_a_neighbour_knows_a_later_view_asks_it() {
    let mut net = formed_by(3, 30);
    let (late, base) = (17, net.view(0).unwrap());
    let knows = net.neighbours(late)[0];
    let confirm = MembershipMessage::Confirm {
        lineage: base.lineage,
        view: check::next_id(base.primary_id()),
    };
    net.lie(knows, late, confirm);
    let asks = |message: &MembershipMessage| matches!(message, MembershipMessage::Pull { .. });
    net.run_while_ms(100, |net| !net.on_the_way(late, knows).iter().any(asks));
}

#[test]
fn who_departs_shows_the_view_without_it_to_whoever_asks() {
    let mut net = formed_by(3, 30);
    let (late, base) = (17, net.view(0).unwrap());
    for from in all_but(30, &[late]) {
        net.cut_one_way(from, late);
    }
    (0..30).for_each(|node| net.leave(node));
    let departs = net.neighbours(late)[0];
    net.run_while_ms(900, |net| !net.departs(departs));
    net.heal();
    let pull = MembershipMessage::Pull {
        lineage: base.lineage,
        after: base.primary_id(),
    };
    net.lie(late, departs, pull);
    let shown = |message: &MembershipMessage| match message {
        MembershipMessage::Decide(view) => view.primary_id() == check::next_id(base.primary_id()),
        _ => false,
    };
    assert!(net.on_the_way(departs, late).iter().any(shown));
}

#[test]
fn who_departs_does_not_wait_for_a_neighbour_whose_connection_ended() {
    let mut net = formed_by(3, 30);
    let stopped = *net.neighbours(17).last().unwrap();
    net.pause(stopped);
    net.leave(17);
    net.run_while_ms(900, |net| !net.departs(17));
    net.run_ms(100);
    assert!(net.departs(17), "it waits for n{stopped}");
    net.trouble(17, stopped, PathTrouble::Lost);
    assert!(net.host(17).events.contains(&Event::Left));
}

#[test]
fn who_holds_up_the_groups_of_members_that_do_not_observe_it_goes() {
    let mut net = formed(12);
    let accused = net.host(10).me;
    let has = |view: &Arc<NodeView>, name: &str| view.members.iter().any(|member| member.name == name);
    let gone = |net: &Net| !net.view(0).unwrap().contains(accused);
    // Of a group of three, two find that the third holds them up. Whether they observe it is the rings'
    // business.
    for _ in 0..8 {
        if !gone(&net) {
            for accuser in [3, 7] {
                net.accuse(accuser, 10, Evidence::FlushStalled);
            }
        }
        net.run_ms(1000);
    }
    assert!(gone(&net), "{:?}", net.summary());
    let complete = net
        .host(0)
        .views
        .iter()
        .skip_while(|view| view.members.len() < 12);
    for view in complete {
        assert!(has(view, "n3") && has(view, "n7"), "they are two: {}", view.id);
    }
}

#[test]
fn the_name_of_a_live_member_that_the_leader_does_not_hear_is_refused() {
    let mut net = formed(9);
    for taken in 1..9 {
        let mut config = config(9, 9);
        config.name = format!("n{taken}");
        net.start(9, config);
        net.run_ms(600);
        net.assert_one_view(&all(9));
        let refused =
            |event: &Event| matches!(event, Event::Refused { reason, .. } if reason.contains("taken"));
        assert!(net.host(9).events.iter().any(refused), "n{taken}");
        net.kill(9);
    }
}

#[test]
fn nodes_whose_records_fit_no_vote_together_are_one_cluster_of_the_cut_engine() {
    // Twelve of 4 KB: a vote with two such views is 96 KB, and a record of a lifeline holds 64.
    let mut net = Net::new(5, EngineKind::Cut);
    let large = |node: usize, seeds: usize| {
        let mut config: Config = config(node, seeds);
        config.metadata = [("what".to_owned(), "x".repeat(4000))].into();
        config
    };
    for node in 0..3 {
        net.start(node, large(node, 3));
    }
    net.run_ms(1500);
    for node in 3..12 {
        net.start(node, large(node, 3));
    }
    net.run_ms(6000);
    net.assert_one_view(&all(12));
    net.kill(4);
    net.kill(0);
    net.run_ms(3000);
    net.assert_one_view(&all_but(12, &[0, 4]));
}

#[test]
fn the_coordinator_admits_no_more_than_a_vote_has_room_for_however_many_ask_at_once() {
    let mut net = Net::new(5, EngineKind::Coordinator);
    let large = |node: usize| {
        let mut config: Config = config(node, 3);
        config.metadata = [("what".to_owned(), "x".repeat(4000))].into();
        config
    };
    (0..3).for_each(|node| net.start(node, large(node)));
    net.run_ms(1500);
    (3..12).for_each(|node| net.start(node, large(node)));
    net.run_ms(6000);
    assert_eq!(net.names(0).len(), 4);
}

#[test]
fn what_changes_is_all_that_is_needed_to_know_the_next_view() {
    let mut net = formed(9);
    let before = net.view(0).unwrap();
    net.kill(3);
    net.start(9, config(9, 9));
    let joined =
        |net: &Net| net.names(0).contains(&"n9".to_owned()) && !net.names(0).contains(&"n3".to_owned());
    net.run_while_ms(3000, |net| !joined(net));
    let after = net.view(0).unwrap();
    // Of the views on the way, those that follow each other.
    let views: Vec<Arc<NodeView>> = net.host(0).views.clone();
    let steps = views
        .windows(2)
        .filter(|pair| pair[1].number == pair[0].number + 1);
    let mut seen = 0;
    for (before, after) in steps.map(|pair| (pair[0].clone(), pair[1].clone())) {
        seen += 1;
        let change: Change = check::change_of(&before, &after);
        assert_eq!(check::apply(&before, change.clone()).as_ref(), Some(&*after));
        let nobody = Change {
            departed: Vec::new(),
            joined: Vec::new(),
            ..change.clone()
        };
        assert!(check::apply(&after, change).is_none(), "of another view");
        assert!(check::apply(&before, nobody).is_some());
    }
    assert!(seen >= 2, "{} and {}", before.number, after.number);
    assert_eq!(after.members.last().map(|member| member.addr), Some(addr(9)));
}

/// What is taken is passed on, and several such together would be more than a channel carries: channels that
/// break so stay broken.
#[test]
fn what_is_larger_than_any_member_would_tell_is_neither_kept_nor_passed_on() {
    for (bytes, passed_on) in [
        (check::MAX_CHANGE_BYTES / 2, true),
        (check::MAX_CHANGE_BYTES + 1, false),
    ] {
        let mut net = formed(12);
        let view = net.view(1).unwrap();
        let mut joiner = view.members[5].clone();
        joiner.metadata = [("large".to_owned(), "x".repeat(bytes))].into();
        let change = Change {
            number: view.number + 1,
            wire_level: view.wire_level,
            departed: Vec::new(),
            joined: vec![joiner],
            merged: Vec::new(),
        };
        let (by, change) = (view.members[5].incarnation, Box::new(change));
        let message = MembershipMessage::Rumours {
            lineage: view.lineage,
            view: view.primary_id(),
            rumours: vec![Rumour::Ask { by, change }],
        };
        net.lie(5, 1, message);
        let mut largest = 0;
        for _ in 0..400 {
            net.run_micros(100);
            largest = largest.max(net.largest());
        }
        assert_eq!(largest > bytes, passed_on, "{largest} for {bytes}");
        net.assert_one_view(&all(12));
    }
}

/// Who is well says nothing, but for what the view does not say of it already.
#[test]
fn a_wide_view_takes_the_level_that_all_of_its_members_speak() {
    let mut net = formed(12);
    net.install(|view| view.wire_level = 0);
    net.run_ms(500);
    net.leave(5);
    net.run_ms(2000);
    net.assert_one_view(&all_but(12, &[5]));
    assert_eq!(net.view(0).unwrap().wire_level, WIRE_LEVEL);
}

#[test]
fn a_decision_of_which_nothing_is_known_is_asked_for_and_not_passed_on() {
    let mut net = formed(12);
    let by = net.subjects(0)[0];
    let view = net.view(0).unwrap();
    let value = ViewDigest(7);
    let message = MembershipMessage::Rumours {
        lineage: view.lineage,
        view: view.primary_id(),
        rumours: vec![Rumour::Decided { value }],
    };
    net.lie(by, 0, message);
    let pulls = |message: &MembershipMessage| matches!(message, MembershipMessage::Pull { .. });
    assert!(net.on_the_way(0, by).iter().any(pulls));
    net.run_ms(1000);
    let sums: Vec<u32> = (0..12).map(|node| net.sum(node)).collect();
    assert_eq!(sums, [0; 12], "who passed it on could not answer for it");
}

#[test]
fn a_peer_that_pulls_views_without_end_is_answered_once_in_a_while() {
    let mut net = formed(12);
    let by = net.subjects(0)[0];
    net.leave(if by == 5 { 6 } else { 5 });
    net.run_ms(1000);
    let view = net.view(0).unwrap();
    let id = view.primary_id();
    let pull = MembershipMessage::Pull {
        lineage: view.lineage,
        after: ViewId {
            counter: id.counter - 1,
            ..id
        },
    };
    let views = |net: &Net| {
        let sent = net.on_the_way(0, by).iter();
        sent.filter(|message| matches!(message, MembershipMessage::Decide(_)))
            .count()
    };
    for _ in 0..3 {
        for _ in 0..100 {
            net.lie(by, 0, pull.clone());
        }
        assert_eq!(views(&net), 1);
        net.run_ms(60);
    }
}

/// A path that was cut delivers heartbeats of a view before this one, in which their sender observed others;
/// or one that was sent before the last rumour.
#[test]
fn a_heartbeat_says_nothing_of_others_in_a_wide_view() {
    let mut net = formed(12);
    let view = net.view(0).unwrap();
    let me = |net: &Net, node: usize| net.host(node).me;
    let says = |net: &Net, of: usize, view: ViewId| Heartbeat {
        round: 1_000,
        lineage: net.view(0).unwrap().lineage.mark(),
        view,
        primary: true,
        leaving: false,
        wire_level: WIRE_LEVEL,
        suspicions: vec![Suspicion {
            member: me(net, of),
            evidence: Evidence::Silent { for_ms: 1_500 },
            for_ms: 0,
        }],
        rumours: 0,
        lease: None,
    };
    let doubted_by = |net: &Net, by: usize| net.host(0).membership.cx.detector.doubted_by(me(net, by));
    let id = view.primary_id();
    let before = ViewId {
        counter: id.counter - 1,
        ..id
    };
    for by in 1..12 {
        let observed = net.subjects(by);
        for view in [before, id] {
            net.beat(by, 0, says(&net, observed[0], view));
            assert_eq!(doubted_by(&net, by), [], "n{by}");
        }
    }
}
