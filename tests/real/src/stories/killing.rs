//! kill −9 and SIGSTOP.

use std::collections::BTreeSet;

use antiphon_api::{Command as Request, command};

use super::*;
use crate::{Cluster, Event, Options};

pub(super) const STORIES: &[Story] = &[
    story!(any_member_may_be_killed_under_load_and_come_back_the_elder_included),
    story!(two_members_killed_in_quick_succession_leave_a_cluster_of_three),
    story!(a_member_killed_while_another_kill_is_being_agreed_on_is_removed_too),
    story!(a_pause_below_the_bound_changes_nothing),
    story!(a_pause_beyond_the_bound_removes_the_member_which_then_learns_it_and_comes_back),
    story!(a_node_restarted_at_once_at_the_same_address_is_a_new_member),
    story!(three_killed_down_to_one_on_one_host_stay_primary),
    story!(a_frozen_elder_does_not_stop_two_of_three_and_a_frozen_pair_stops_the_third),
    story!(who_told_a_killed_member_something_learns_it_and_what_others_are_told_arrives),
    story!(a_member_that_leaves_is_told_what_became_of_all_that_it_told_a_stopped_one),
];

fn started(count: usize, options: Options) -> (Cluster, Vec<String>) {
    let names = names(count);
    let mut cluster = Cluster::on_loopback(count, options);
    cluster.start(&all(&names));
    cluster.until_together(&all(&names), SOON);
    (cluster, names)
}

/// The members as n1 sees them, by seniority.
fn seniority(cluster: &Cluster, witness: &str) -> Vec<String> {
    cluster
        .look(|trace| {
            trace
                .last(witness)
                .node_view()
                .map(|v| v.members.iter().map(|m| m.name.clone()).collect())
        })
        .unwrap_or_default()
}

fn any_member_may_be_killed_under_load_and_come_back_the_elder_included(engine: Engine) {
    let ways = [
        ("total", "tcp"),
        ("unordered", "udp"),
        ("fifo", "tcp"),
        ("scoped", "udp"),
    ];
    for (order, transport) in some_on_cut(engine, &ways) {
        let (mut cluster, names) = started(
            5,
            Options {
                order,
                transport,
                ..told_on(engine)
            },
        );
        let load = cluster.load(Duration::from_millis(5));
        let mut took = Vec::new();
        for rank in [0, 1, 2, 4, 0] {
            let victim = seniority(&cluster, &names[0])[rank].clone();
            let rest: Vec<&str> = names
                .iter()
                .map(String::as_str)
                .filter(|name| *name != victim)
                .collect();
            cluster.kill(&victim);
            took.push(cluster.until_together(&rest, DETECTED));
            cluster.look(|trace| {
                for name in &rest {
                    let named = |event: &Event| {
                        matches!(event, Event::NodeView(v) if v.crashed.iter().any(|c| c.member.name == victim && !c.accusers.is_empty()))
                    };
                    assert!(trace.last(name).said(named), "{name} does not say who accused {victim}");
                }
            });
            cluster.start(&[&victim]);
            cluster.until_together(&all(&names), SOON);
        }
        load.end();
        cluster.until_delivered(&all(&names), SOON);
        cluster.finish();
        println!("{order}: both views of the survivors after {took:?}");
    }
}

fn two_members_killed_in_quick_succession_leave_a_cluster_of_three(engine: Engine) {
    for ranks in some_on_cut(engine, &[[0, 1], [3, 4], [1, 0], [0, 4]]) {
        let (mut cluster, names) = started(5, told_on(engine));
        let load = cluster.load(Duration::from_millis(5));
        let order = seniority(&cluster, "n1");
        let victims = ranks.map(|rank| order[rank].clone());
        let rest: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| !victims.iter().any(|v| v == name))
            .collect();
        victims.iter().for_each(|victim| cluster.kill(victim));
        cluster.until_together(&rest, DETECTED);
        load.end();
        cluster.until_delivered(&rest, SOON);
        cluster.finish();
    }
}

fn a_member_killed_while_another_kill_is_being_agreed_on_is_removed_too(engine: Engine) {
    let (mut cluster, names) = started(5, told_on(engine));
    let order = seniority(&cluster, "n1");
    let rest: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| order[0] != **name && order[1] != **name)
        .collect();
    let load = cluster.load(Duration::from_millis(2));
    cluster.kill(&order[0]);
    // The second one dies as soon as anybody has installed the view without the first.
    cluster.until("somebody is in a view without the elder", DETECTED, |trace| {
        rest.iter().any(|name| {
            trace
                .last(name)
                .node_view()
                .is_some_and(|view| view.members.len() == 4)
        })
    });
    cluster.kill(&order[1]);
    cluster.until_together(&rest, DETECTED);
    load.end();
    cluster.until_delivered(&rest, SOON);
    cluster.finish();
}

fn a_pause_below_the_bound_changes_nothing(engine: Engine) {
    let (mut cluster, names) = started(5, told_on(engine));
    let load = cluster.load(Duration::from_millis(10));
    let view = cluster.look(|trace| trace.last("n1").node_view().map(|view| view.id.clone()));
    for victim in [seniority(&cluster, "n1")[0].clone(), "n3".to_owned()] {
        let same = |trace: &crate::Trace| {
            names
                .iter()
                .all(|name| trace.last(name).node_view().map(|view| view.id.clone()) == view)
        };
        cluster.freeze(&victim);
        cluster.throughout("nobody changes its view", Duration::from_millis(700), same);
        cluster.thaw(&victim);
        cluster.throughout("nobody changes its view afterwards", Duration::from_secs(2), same);
    }
    load.end();
    cluster.until_delivered(&all(&names), SOON);
    cluster.finish();
}

fn a_pause_beyond_the_bound_removes_the_member_which_then_learns_it_and_comes_back(engine: Engine) {
    for rank in [0, 2] {
        let (mut cluster, names) = started(5, told_on(engine));
        let load = cluster.load(Duration::from_millis(10));
        let victim = seniority(&cluster, "n1")[rank].clone();
        let rest: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| *name != victim)
            .collect();
        cluster.freeze(&victim);
        cluster.until_together(&rest, DETECTED);
        cluster.thaw(&victim);
        cluster.until_together(&all(&names), DETECTED);
        cluster.look(|trace| {
            let run = trace.last(&victim);
            assert!(
                run.said(|event| matches!(event, Event::Resync { .. })),
                "{victim} was not told to start over: {}",
                run.summary()
            );
            assert!(
                run.said(|event| matches!(event, Event::Starved { missed_ms, .. } if *missed_ms >= 1_000)),
                "{victim} does not say that it was stopped: {}",
                run.summary()
            );
        });
        load.end();
        cluster.until_delivered(&all(&names), SOON);
        cluster.finish();
    }
}

fn a_node_restarted_at_once_at_the_same_address_is_a_new_member(engine: Engine) {
    for rank in [0, 2] {
        let (mut cluster, names) = started(3, told_on(engine));
        let victim = seniority(&cluster, "n1")[rank].clone();
        let rest: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| *name != victim)
            .collect();
        let old = cluster.look(|trace| trace.last(&victim).incarnation().to_owned());
        cluster.kill(&victim);
        cluster.start(&[&victim]);
        cluster.until(
            "the others have the new incarnation in their view and not the old one",
            DETECTED,
            |trace| {
                let new = trace.last(&victim).incarnation();
                rest.iter().all(|name| {
                    let view = trace.last(name).node_view();
                    !new.is_empty()
                        && view.is_some_and(|view| view.primary && view.has(new) && !view.has(&old))
                })
            },
        );
        cluster.until_together(&all(&names), SOON);
        names.iter().for_each(|name| cluster.say(name, 20));
        cluster.until_delivered(&all(&names), SOON);
        cluster.finish();
    }
}

fn three_killed_down_to_one_on_one_host_stay_primary(engine: Engine) {
    // The elder first each time, so that it is the proof and not the tie-break that decides; then the other
    // way.
    for elder_first in [true, false] {
        let (mut cluster, _) = started(3, told_on(engine));
        let mut order = seniority(&cluster, "n1");
        let load = cluster.load(Duration::from_millis(5));
        while order.len() > 1 {
            let victim = if elder_first {
                order.remove(0)
            } else {
                order.remove(order.len() - 1)
            };
            cluster.kill(&victim);
            cluster.until_together(&order.iter().map(String::as_str).collect::<Vec<_>>(), DETECTED);
        }
        load.end();
        cluster.say(&order[0], 10);
        cluster.until_delivered(&[&order[0]], SOON);
        cluster.finish();
    }
}

fn a_frozen_elder_does_not_stop_two_of_three_and_a_frozen_pair_stops_the_third(engine: Engine) {
    let (mut cluster, names) = started(3, told_on(engine));
    let order = seniority(&cluster, "n1");
    // Two frozen at once are silent, not dead: the third must not go on, whoever it is.
    cluster.freeze(&order[0]);
    cluster.freeze(&order[1]);
    cluster.until("the third notices that it is alone", DETECTED, |trace| {
        !trace.last(&order[2]).primary()
    });
    cluster.throughout("it stays non-primary", WATCHED, |trace| {
        !trace.last(&order[2]).primary()
    });
    cluster.thaw(&order[0]);
    cluster.thaw(&order[1]);
    cluster.until_together(&all(&names), DETECTED);
    names.iter().for_each(|name| cluster.say(name, 20));
    cluster.until_delivered(&all(&names), SOON);
    cluster.finish();
}

fn who_told_a_killed_member_something_learns_it_and_what_others_are_told_arrives(engine: Engine) {
    const COUNT: usize = 200;
    /// More than a member that takes nothing has room for.
    const MANY: usize = 20_000;
    let (mut cluster, names) = started(3, told_on(engine));
    let told = |trace: &crate::Trace, name: &str| {
        let of_name = trace.last(name).events.iter();
        of_name
            .filter(|(_, event)| matches!(event, Event::Told(_)))
            .count()
    };
    cluster.tell_member("n1", "n2", COUNT);
    cluster.until("n2 was told all", SOON, |trace| told(trace, "n2") == COUNT);
    // It takes nothing any more, and says so to nobody. No line to another waits for it.
    cluster.freeze("n2");
    cluster.tell_member_at_once("n1", "n2", MANY);
    cluster.tell_member_at_once("n1", "n3", COUNT);
    cluster.until("n3 was told all", SOON, |trace| told(trace, "n3") == COUNT);
    cluster.kill("n2");
    cluster.until_together(&["n1", "n3"], DETECTED);
    cluster.until("n1 knows what became of all", SOON, |trace| {
        let run = trace.last("n1");
        let crashed: BTreeSet<u64> = run
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::TellReceipt {
                    to, ticket, cause, ..
                } if to == "n2" && cause == "crashed" => Some(*ticket),
                _ => None,
            })
            .collect();
        // It took none of these; once it is out of the view, the rest is refused. Of what it took before, it
        // may not have said so in time.
        let taken = (COUNT + MANY - run.refused().len()) as u64;
        (COUNT as u64 + 1..=taken).all(|ticket| crashed.contains(&ticket))
    });
    cluster.start(&["n2"]);
    cluster.until_together(&all(&names), SOON);
    cluster.tell_member("n1", "n2", COUNT);
    cluster.until("n2 was told all again", SOON, |trace| told(trace, "n2") == COUNT);
    cluster.finish();
}

fn a_member_that_leaves_is_told_what_became_of_all_that_it_told_a_stopped_one(engine: Engine) {
    const COUNT: usize = 100;
    let (mut cluster, _names) = started(3, told_on(engine));
    let told = |trace: &crate::Trace| {
        let of_name = trace.last("n2").events.iter();
        of_name
            .filter(|(_, event)| matches!(event, Event::Told(_)))
            .count()
    };
    cluster.tell_member("n1", "n2", COUNT);
    cluster.until("n2 was told all", SOON, |trace| told(trace) == COUNT);
    // Its kernel takes more; the process does not.
    cluster.freeze("n2");
    cluster.tell_member("n1", "n2", COUNT);
    // Commands are carried out one after the other: with the answer, all before it was taken.
    let node = "n2".to_owned();
    cluster.tell("n1", &Request::Why(command::AskWhy { node }));
    cluster.until("n1 has taken all", SOON, |trace| {
        trace.last("n1").said(|event| matches!(event, Event::Why { .. }))
    });
    cluster.leave("n1");
    cluster.kill("n2");
    let receipts: BTreeSet<u64> = cluster.look(|trace| {
        let events = trace.last("n1").events.iter();
        let fates = events.filter_map(|(_, event)| match event {
            Event::TellReceipt { ticket, .. } => Some(*ticket),
            _ => None,
        });
        fates.filter(|ticket| *ticket > COUNT as u64).collect()
    });
    assert!(
        receipts.iter().copied().eq(COUNT as u64 + 1..=2 * COUNT as u64),
        "accepted: {}; told: {COUNT}; receipts: {receipts:?}",
        2 * COUNT
    );
    cluster.finish();
}
