//! Stories about faults, told on each membership engine: this file is two modules, by their names.

use crate::plan::{Action, Liveness, Step, Transport, Who};
use crate::run::run;
use crate::trace::Seen;
use crate::{Plan, Sim};
use antiphon_core::{EngineKind, Order, Profile, SendError};

/// Nodes of this module's engine.
fn plan(nodes: usize, order: Order) -> Plan {
    let mut plan = Sim::plan(nodes, order);
    plan.membership = if module_path!().ends_with("cut") {
        EngineKind::Cut
    } else {
        EngineKind::Coordinator
    };
    plan
}

fn new(nodes: usize, seed: u64) -> Sim {
    Sim::with_plan(plan(nodes, Order::Total), seed)
}

fn five() -> Sim {
    let mut sim = new(5, 11);
    sim.start_all();
    sim.settle();
    sim
}

fn of(plan: Plan) -> Sim {
    let mut sim = Sim::with_plan(plan, 12);
    sim.start_all();
    sim.settle();
    sim
}

#[test]
fn five_that_start_together_form_one_cluster_within_a_second() {
    let mut sim = new(5, 3);
    sim.start_all();
    assert!(sim.run_until(1_000, |sim| (0..5).all(|slot| sim.members(slot).len() == 5)));
    sim.settle();
    sim.finish();
}

#[test]
fn survivors_deliver_what_a_crashed_sender_left_with_one_of_them() {
    let mut sim = five();
    // Only node 3 hears the last words of node 4.
    for other in [0, 1, 2] {
        sim.act(Action::Clog(4, other, 60_000_000));
    }
    sim.send(4, "last words");
    sim.run_ms(50);
    sim.crash(4);
    sim.act(Action::Heal);
    sim.settle();
    let first = sim.delivered(0);
    assert!((1..4).all(|slot| sim.delivered(slot) == first));
    sim.finish();
}

#[test]
fn a_total_group_delivers_one_sequence_to_all() {
    let mut sim = five();
    for round in 0..20 {
        for slot in 0..5 {
            sim.send(slot, &format!("{slot}:{round}"));
        }
        sim.run_ms(1);
    }
    sim.run_ms(500);
    let first = sim.delivered(0);
    assert_eq!(first.len(), 100);
    assert!((1..5).all(|slot| sim.delivered(slot) == first));
    sim.finish();
}

#[test]
fn a_minority_refuses_to_send_and_comes_back_with_a_resync() {
    let mut sim = five();
    sim.partition([0, 1], [2, 3, 4]);
    assert!(sim.run_until(10_000, |sim| sim.members(2) == [2, 3, 4] && !sim.is_primary(0)));
    assert_eq!(
        sim.try_send(0, "nobody should hear this"),
        Err(SendError::NotPrimary)
    );
    sim.send(3, "the majority goes on");
    sim.heal();
    sim.settle();
    assert!(sim.had_resync(0) && sim.had_resync(1) && !sim.had_resync(2));
    sim.finish();
}

#[test]
fn two_halves_never_both_go_on_and_the_elder_breaks_the_tie() {
    let mut sim = of(plan(4, Order::Total));
    let members = sim.members(0);
    let (senior, junior) = members.split_at(2);
    sim.act(Action::Partition(vec![senior.to_vec(), junior.to_vec()]));
    sim.run_ms(8_000);
    assert!(senior.iter().all(|slot| sim.is_primary(*slot)));
    assert!(junior.iter().all(|slot| !sim.is_primary(*slot)));
    sim.heal();
    sim.settle();
    sim.finish();
}

#[test]
fn three_become_one_by_kill_and_the_last_is_still_primary() {
    let mut sim = of(plan(3, Order::Total));
    sim.crash(0);
    assert!(sim.run_until(2_000, |sim| sim.members(2) == [1, 2] || sim.members(2) == [2, 1]));
    sim.crash(1);
    assert!(sim.run_until(2_000, |sim| sim.members(2) == [2]));
    assert!(sim.is_primary(2));
    sim.finish();
}

#[test]
fn three_do_not_become_one_by_cables() {
    let mut sim = of(plan(3, Order::Total));
    sim.power_off(0);
    assert!(sim.run_until(10_000, |sim| sim.members(2).len() == 2));
    let survivors = sim.members(2);
    sim.power_off(survivors[0]);
    sim.run_ms(20_000);
    let last = survivors[1];
    // Exactly half, without the elder: it may not go on alone.
    assert!(!(sim.is_primary(last) && sim.members(last) == [last]));
    sim.finish();
}

#[test]
fn a_reset_that_a_one_way_cut_swallowed_comes_again_after_the_heal() {
    let mut sim = of(plan(3, Order::Total));
    // Node 0 never hears that the reader of its connections to node 2 is gone.
    sim.act(Action::OneWay(vec![2], vec![0]));
    sim.crash(2);
    sim.run_ms(500);
    sim.heal();
    sim.start(2);
    sim.settle();
    sim.send(0, "for the new process");
    assert!(sim.run_until(3_000, |sim| sim.delivered(2) == ["for the new process"]));
    sim.finish();
}

#[test]
fn a_kill_behind_a_proxy_proves_nothing_to_anybody() {
    for (proxy_percent, told) in [(0, true), (100, false)] {
        let mut plan = plan(3, Order::Total);
        plan.network.proxy_percent = proxy_percent;
        let mut sim = of(plan);
        sim.run_ms(500);
        let of = |slot: usize| sim.world().incarnation(slot).expect("a node at each slot");
        let (dead, watcher) = (of(2), of(0));
        sim.crash(2);
        sim.settle();
        assert_eq!(sim.world().was_told_of_death(dead, watcher), told);
        sim.finish();
    }
}

#[test]
fn a_seed_that_only_left_when_it_woke_is_started_again_for_those_who_need_it() {
    let mut plan = plan(4, Order::Total);
    plan.seeds = 1;
    plan.duration = 8_000_000;
    plan.liveness = Liveness::Within(40_000_000);
    let steps = [
        (0, Action::Start(0)),
        (0, Action::Start(1)),
        (0, Action::Start(2)),
        (3_000_000, Action::Pause(Who::Slot(0), 60_000_000)),
        (6_000_000, Action::Leave(Who::Slot(0))),
        (7_000_000, Action::Start(3)),
    ];
    plan.steps = steps.map(|(at, action)| Step { at, action }).into();
    for seed in 0..4 {
        let outcome = run(&plan, seed);
        assert!(outcome.liveness);
        assert!(outcome.report.is_ok(), "{:?}", outcome.report.violations);
    }
}

#[test]
fn one_of_three_that_restarts_while_cut_off_stays_forming() {
    let mut sim = of(plan(3, Order::Total));
    sim.partition([2], [0, 1]);
    sim.crash(2);
    sim.start(2);
    sim.run_ms(15_000);
    assert!(
        sim.node_view(2).is_none(),
        "a second cluster was founded: {:?}",
        sim.node_view(2)
    );
    sim.heal();
    sim.settle();
    sim.finish();
}

#[test]
fn a_pause_of_a_second_changes_nothing_and_one_of_five_seconds_expels() {
    let mut sim = five();
    sim.pause_ms(3, 1_000);
    sim.run_ms(3_000);
    assert_eq!(sim.members(0).len(), 5);
    assert!(!sim.had_resync(3));
    sim.pause_ms(3, 5_000);
    assert!(sim.run_until(3_000, |sim| sim.members(0).len() == 4));
    sim.settle();
    assert!(sim.had_resync(3));
    sim.finish();
}

#[test]
fn one_that_stops_and_is_waited_for_takes_nobody_along_who_does_not_wait() {
    let mut plan = plan(5, Order::Fifo);
    plan.profile = Profile::local();
    plan.transport = Transport::Datagram;
    let mut sim = of(plan);
    // All learn that node 3 pauses; node 4 is then started again, and has not.
    for pause in [500, 900] {
        sim.pause_ms(3, pause);
        sim.run_ms(2_000);
    }
    sim.crash(4);
    sim.run_ms(500);
    sim.start(4);
    sim.settle();
    assert_eq!(sim.members(0).len(), 5);
    // Of all nodes node 4 is the first for which node 3 is silent.
    sim.partition([4], [0, 1, 2, 3]);
    sim.run_ms(500);
    sim.pause_ms(3, 30_000);
    sim.heal();
    assert!(sim.run_until(10_000, |sim| sim.members(0).len() < 5));
    assert_eq!(sim.members(0), [0, 1, 2, 4]);
    sim.finish();
}

#[test]
fn a_process_killed_in_its_sleep_is_proven_dead() {
    let mut sim = five();
    sim.pause_ms(2, 60_000);
    sim.run_ms(100);
    sim.crash(2);
    assert!(
        sim.run_until(200, |sim| sim.members(0).len() == 4),
        "its kernel sent the FIN at once"
    );
    sim.finish();
}

#[test]
fn a_node_that_restarts_at_once_is_another_member() {
    let mut sim = five();
    let before = sim.world().incarnation(1);
    sim.crash(1);
    sim.start(1);
    sim.settle();
    assert_ne!(sim.world().incarnation(1), before);
    assert_eq!(sim.members(0).last(), Some(&1), "it is the youngest now");
    sim.finish();
}

#[test]
fn nodes_that_leave_in_order_are_said_to_have_left() {
    let mut sim = five();
    sim.leave(1);
    sim.leave(4);
    assert!(sim.run_until(6_000, |sim| sim.members(0).len() == 3));
    let left = sim
        .world()
        .trace()
        .lines
        .iter()
        .filter(|line| matches!(line.what, Seen::Left))
        .count();
    assert_eq!(left, 2);
    sim.settle();
    sim.finish();
}

#[test]
fn a_foreign_cluster_at_a_reused_address_disturbs_nobody() {
    let mut sim = five();
    sim.crash(4);
    sim.act(Action::Foreign(4, 5_000_000));
    sim.run_ms(6_000);
    assert_eq!(sim.members(0).len(), 4);
    sim.start(4);
    sim.settle();
    sim.finish();
}

#[test]
fn garbage_from_outside_harms_nobody() {
    let mut sim = five();
    for slot in 0..5 {
        sim.act(Action::Garbage(Who::Slot(slot), 500));
    }
    sim.send(0, "through the noise");
    sim.run_ms(1_000);
    assert_eq!(sim.delivered(4), ["through the noise"]);
    assert_eq!(sim.members(2).len(), 5);
    assert!(
        sim.world()
            .faults()
            .get("refused_frame")
            .is_some_and(|count| *count > 1_000)
    );
    sim.finish();
}

#[test]
fn a_datagram_network_that_loses_a_tenth_delivers_all() {
    let mut plan = plan(4, Order::Fifo);
    plan.transport = Transport::Datagram;
    plan.network.loss_ppm = 100_000;
    plan.network.duplicate_ppm = 100_000;
    plan.network.reorder_ppm = 200_000;
    let mut sim = of(plan);
    for round in 0..50 {
        sim.send(round % 4, &round.to_string());
        sim.run_ms(2);
    }
    sim.run_ms(2_000);
    assert!((0..4).all(|slot| sim.delivered(slot).len() == 50));
    sim.settle();
    sim.finish();
}
