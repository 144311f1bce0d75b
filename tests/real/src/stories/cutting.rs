//! Partitions: on loopback with injected faults, between hosts by cutting cables.

use super::*;
use crate::{Cluster, Event, Options};

pub(super) const STORIES: &[Story] = &[
    story!(two_against_three_on_loopback_the_three_go_on_and_the_two_start_over).on(Engine::Cut),
    story!(one_and_one_against_three_on_loopback_the_three_go_on).on(Engine::Coordinator),
    story!(two_two_and_one_on_loopback_nobody_goes_on_until_they_are_reunited).on(Engine::Cut),
    story!(two_against_three_hosts_the_three_go_on_and_the_two_start_over),
    story!(one_and_one_against_three_hosts_the_three_go_on),
    story!(two_two_and_one_hosts_nobody_goes_on_until_they_are_reunited),
];

fn on_loopback(engine: Engine, count: usize) -> Cluster {
    Cluster::on_loopback(count, told_on(engine))
}

fn on_hosts(engine: Engine, count: usize) -> Option<Cluster> {
    Cluster::on_hosts(
        count,
        Options {
            keyed: true,
            ..told_on(engine)
        },
    )
}

/// Starts five nodes, cuts them into these sides of ranks, and heals them. The first side has a majority, or
/// none has.
fn cut_and_heal(mut cluster: Cluster, sides: &[&[usize]], majority: bool) {
    let names = names(5);
    let names = all(&names);
    cluster.start(&names);
    cluster.until_together(&names, SOON);
    let load = cluster.load(Duration::from_millis(10));
    let order: Vec<String> = cluster
        .look(|trace| {
            trace
                .last("n1")
                .node_view()
                .map(|v| v.members.iter().map(|m| m.name.clone()).collect())
        })
        .unwrap_or_default();
    let sides: Vec<Vec<&str>> = sides
        .iter()
        .map(|side| side.iter().map(|rank| order[*rank].as_str()).collect())
        .collect();
    let (winners, losers): (Vec<&str>, Vec<&str>) = match majority {
        true => (sides[0].clone(), sides[1..].concat()),
        false => (Vec::new(), sides.concat()),
    };
    cluster.partition(&sides.iter().map(Vec::as_slice).collect::<Vec<_>>());
    if majority {
        cluster.until_together(&winners, DETECTED);
    }
    cluster.until("all without a majority know it", DETECTED, |trace| {
        losers.iter().all(|name| !trace.last(name).primary())
    });
    load.end();
    // What a member without a majority is asked to send is refused, with the reason.
    let cut_at = cluster.now();
    losers.iter().for_each(|name| cluster.say(name, 1));
    cluster.until("they refuse to send", SOON, |trace| {
        let refused = |event: &Event| match event {
            Event::Refused {
                group: Some(_),
                reason,
                ..
            }
            | Event::Error { reason, .. } => reason.contains("majority"),
            _ => false,
        };
        losers
            .iter()
            .all(|name| trace.last(name).when(cut_at, refused).is_some())
    });
    cluster.throughout("nobody among them becomes primary", WATCHED, |trace| {
        losers.iter().all(|name| !trace.last(name).primary())
    });
    if majority {
        winners.iter().for_each(|name| cluster.say(name, 20));
        cluster.until_delivered(&winners, SOON);
    }
    let healed_at = cluster.now();
    cluster.heal();
    cluster.until_together(&names, Duration::from_secs(30));
    if majority {
        cluster.look(|trace| {
            for name in &losers {
                let run = trace.last(name);
                let told = run.when(healed_at, |event| matches!(event, Event::Resync { .. }));
                assert!(
                    told.is_some(),
                    "{name} was not told to start over: {}",
                    run.summary()
                );
            }
        });
    }
    names.iter().for_each(|name| cluster.say(name, 20));
    cluster.until_delivered(&names, SOON);
    cluster.finish();
}

fn two_against_three_on_loopback_the_three_go_on_and_the_two_start_over(engine: Engine) {
    // The elder is in the minority.
    cut_and_heal(on_loopback(engine, 5), &[&[2, 3, 4], &[0, 1]], true);
}

fn one_and_one_against_three_on_loopback_the_three_go_on(engine: Engine) {
    cut_and_heal(on_loopback(engine, 5), &[&[0, 2, 4], &[1], &[3]], true);
}

fn two_two_and_one_on_loopback_nobody_goes_on_until_they_are_reunited(engine: Engine) {
    cut_and_heal(on_loopback(engine, 5), &[&[0, 1], &[2, 3], &[4]], false);
}

fn two_against_three_hosts_the_three_go_on_and_the_two_start_over(engine: Engine) {
    let Some(cluster) = on_hosts(engine, 5) else {
        return;
    };
    cut_and_heal(cluster, &[&[2, 3, 4], &[0, 1]], true);
}

fn one_and_one_against_three_hosts_the_three_go_on(engine: Engine) {
    let Some(cluster) = on_hosts(engine, 5) else {
        return;
    };
    cut_and_heal(cluster, &[&[1, 2, 3], &[0], &[4]], true);
}

fn two_two_and_one_hosts_nobody_goes_on_until_they_are_reunited(engine: Engine) {
    let Some(cluster) = on_hosts(engine, 5) else {
        return;
    };
    cut_and_heal(cluster, &[&[0, 1], &[2, 3], &[4]], false);
}
