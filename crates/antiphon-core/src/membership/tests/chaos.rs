//! Random faults: whatever happens, one view has one id, views follow one another, and after the faults all
//! are one.

use super::net::{Net, config};
use crate::random::Random;
use crate::{EngineKind, Policy};

/// What may happen besides partitions, pauses and one-way cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deaths {
    /// Processes live.
    None,
    /// Processes are killed and started again.
    Kills,
    /// Hosts lose power, which proves nothing, and are started again.
    PowerLoss,
}

fn run(seed: u64, deaths: Deaths, (engine, rings): Kind) -> Net {
    let mut random = Random::new([seed, deaths as u64 + 1, 77, 5]);
    let seeds = 3 + usize::try_from(random.below(3)).unwrap();
    let count = seeds + usize::try_from(random.below(3)).unwrap();
    let mut net = Net::new(seed * 1000, engine);
    net.rings = rings;
    for node in 0..count {
        net.start(node, config(node, seeds));
        net.run_micros(random.below(300_000));
    }
    for _ in 0..30 {
        let node = usize::try_from(random.below(count as u64)).unwrap();
        let other = usize::try_from(random.below(count as u64)).unwrap();
        match random.below(10) {
            0 | 1 => {
                let (one, two): (Vec<usize>, Vec<usize>) = (0..count).partition(|_| random.below(2) == 0);
                net.partition(&one, &two);
            }
            2 => net.cut_one_way(node, other),
            3 | 4 => net.heal(),
            5 => net.pause(node),
            6 => (0..count).for_each(|node| net.resume(node)),
            _ if deaths == Deaths::None => {}
            _ if net.hosts[node].is_none() || net.host(node).stopped => {
                net.kill(node);
                net.start(node, config(node, seeds));
            }
            7 => net.leave(node),
            _ if deaths == Deaths::Kills => net.kill(node),
            _ => net.power_off(node),
        }
        let long = random.below(4) == 0;
        net.run_micros(random.below(if long { 3_000_000 } else { 60_000 }));
    }
    net.heal();
    (0..count).for_each(|node| net.resume(node));
    net.run_ms(6000);
    for node in 0..count {
        if net.hosts[node].is_none() || net.host(node).stopped {
            net.kill(node);
            net.start(node, config(node, seeds));
        }
    }
    net.run_ms(30_000);
    net
}

fn all_are_one(net: &Net) -> bool {
    let first = net.view(0);
    first
        .as_ref()
        .is_some_and(|view| view.is_primary() && view.members.len() == net.hosts.len())
        && (0..net.hosts.len()).all(|node| net.view(node) == first)
}

#[test]
fn partitions_and_pauses_end_in_one_view_of_one_lineage() {
    for (seed, engine) in each(40) {
        let net = run(seed, Deaths::None, engine);
        assert!(all_are_one(&net), "{engine:?}, seed {seed}: {:?}", net.summary());
        assert!(net.lineages() == 1, "{engine:?}, seed {seed}");
    }
}

#[test]
fn kills_end_in_one_view() {
    for (seed, engine) in each(40) {
        let net = run(seed, Deaths::Kills, engine);
        assert!(all_are_one(&net), "{engine:?}, seed {seed}: {:?}", net.summary());
    }
}

#[test]
fn power_losses_never_give_one_id_to_two_views() {
    let united = each(40).filter(|(seed, engine)| all_are_one(&run(*seed, Deaths::PowerLoss, *engine)));
    // Without proof of death some clusters cannot go on, and must not.
    let united = united.count();
    assert!(united > 60, "{united}");
}

/// A member with the key can break what views promise. It cannot make another one panic.
#[test]
fn a_member_that_lies_stops_no_process() {
    for (seed, (engine, rings)) in each(60) {
        let mut random = Random::new([seed, 9, 77, 5]);
        let mut net = Net::new(seed * 1000, engine);
        net.rings = rings;
        let any = seed % 3 == 0;
        for node in 0..5 {
            let mut config = config(node, 3);
            if any {
                config.policy = Policy::Any;
            }
            net.start(node, config);
        }
        net.run_ms(3_000);
        net.liar = Some((0, Random::new([seed, 10, 77, 5])));
        for _ in 0..10 {
            let node = 1 + random.below(4) as usize;
            match random.below(6) {
                0 => net.partition(&[0, node], &[4, 5 - node]),
                1 => net.pause(node),
                2 => net.restart(node),
                3 => net.leave(node),
                _ => {
                    net.heal();
                    (0..5).for_each(|node| net.resume(node));
                }
            }
            net.run_micros(random.below(2_000_000));
        }
    }
}

/// An engine, and how many rings it has.
type Kind = (EngineKind, usize);

/// So many seeds, each with both engines, and with views in which not all are neighbours.
fn each(seeds: u64) -> impl Iterator<Item = (u64, Kind)> {
    let kinds = [
        (EngineKind::Coordinator, 10),
        (EngineKind::Cut, 10),
        (EngineKind::Cut, 2),
    ];
    (0..seeds).flat_map(move |seed| kinds.map(|kind| (seed, kind)))
}
