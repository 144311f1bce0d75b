//! Fourteen nodes on the engine `cut`, whose views are wide from twelve members on: not everybody observes
//! everybody, and members that are no neighbours learn of each other's end from those that are.

use super::paths::cut_and_mended;
use super::*;
use crate::{Cluster, Event, GROUP, Load, NodeView, Options};

pub(super) const STORIES: &[Story] = &[
    once!(of_fourteen_hosts_one_that_dies_is_cut_off_or_stands_still_goes_and_nobody_else).long(),
    once!(four_of_fourteen_hosts_cut_off_are_not_primary_and_come_back_to_the_ten_that_went_on).long(),
    once!(a_black_hole_between_two_of_fourteen_hosts_removes_nobody_and_messages_go_around_it).long(),
    once!(several_of_fourteen_restarted_at_once_are_new_members_and_all_leave_at_once_in_order),
];

const COUNT: usize = 14;
/// So much that something is always under way, and so little that two cores carry it to all.
const TICK: Duration = Duration::from_millis(50);
/// Enough for members that were cut off, or stood still, to be told so and to join again.
const REUNITED: Duration = Duration::from_secs(30);

fn options() -> Options {
    Options {
        membership: Engine::Cut,
        ..Options::default()
    }
}

/// Starts all, has them talk, and says who they are by seniority.
fn started(cluster: &mut Cluster) -> (Vec<String>, Load) {
    let names = names(COUNT);
    cluster.start(&all(&names));
    let took = cluster.until_together(&all(&names), SOON);
    println!("formed after {took:.1?}");
    let order = cluster.look(|trace| {
        let view = trace.last("n1").node_view();
        view.map(|view| view.members.iter().map(|member| member.name.clone()).collect())
    });
    (order.unwrap_or_default(), cluster.load(TICK))
}

fn without<'a>(order: &'a [String], gone: &[&str]) -> Vec<&'a str> {
    let rest = order.iter().map(String::as_str);
    rest.filter(|name| !gone.contains(name)).collect()
}

/// No view that these have installed since a moment is without one of them.
fn nobody_else_was_missed(cluster: &Cluster, names: &[&str], since: Duration) {
    cluster.look(|trace| {
        for name in names {
            let later = trace.last(name).events.iter().filter(|(at, _)| *at >= since);
            for (at, event) in later {
                if let Event::NodeView(view) = event {
                    assert!(
                        view.primary && names.iter().all(|name| holds(view, name)),
                        "at {at:.1?} {name} was in {view:?}"
                    );
                }
            }
        }
    });
}

fn holds(view: &NodeView, name: &str) -> bool {
    view.members.iter().any(|member| member.name == name)
}

/// Each of these has delivered exactly what each of them sent, in the order in which it was sent.
fn all_was_heard(cluster: &Cluster, names: &[&str]) {
    cluster.look(|trace| {
        for sender in names {
            let run = trace.last(sender);
            let sent: Vec<&String> = run.sent.iter().map(|said| &said.what).collect();
            let mark = format!("{sender}#{}:", run.start);
            for name in names {
                let delivered = trace.last(name).delivered(GROUP).iter();
                let heard: Vec<&String> = delivered.filter(|payload| payload.starts_with(&mark)).collect();
                assert!(
                    heard == sent,
                    "{name} has delivered {} of {} messages of {sender}, or in another order",
                    heard.len(),
                    sent.len()
                );
            }
        }
    });
}

/// How a member ceases to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    CutOff,
    Stopped,
}

/// G42: it said between these two moments that its lease is over.
fn stopped_believing(cluster: &Cluster, name: &str, from: Duration, to: Duration) {
    let over = |event: &Event| matches!(event, Event::Lease { held: false });
    let said = cluster.look(|trace| trace.last(name).when(from, over));
    assert!(
        said.is_some_and(|at| at <= to),
        "{name}: {said:.1?}, not between {from:.1?} and {to:.1?}"
    );
}

fn of_fourteen_hosts_one_that_dies_is_cut_off_or_stands_still_goes_and_nobody_else() {
    let Some(mut cluster) = Cluster::on_hosts(COUNT, options()) else {
        return;
    };
    let (order, load) = started(&mut cluster);
    let held = |event: &Event| matches!(event, Event::Lease { held: true });
    cluster.until("all believe in their view", SOON, |trace| {
        order.iter().all(|name| trace.last(name).said(held))
    });
    let victims =
        [(End::Killed, 0), (End::CutOff, 6), (End::Stopped, 12)].map(|(end, rank)| (end, &*order[rank]));
    for (end, victim) in victims {
        let rest = without(&order, &[victim]);
        let from = cluster.now();
        let gone = match end {
            End::Killed => {
                cluster.kill(victim);
                // Its process is proven to be dead: nobody has to wait for silence.
                cluster.until_together(&rest, SOON)
            }
            End::CutOff => {
                cluster.partition(&[&[victim], &rest]);
                let gone = cluster.until_together(&rest, DETECTED);
                stopped_believing(&cluster, victim, from, from + gone);
                cluster.until("it knows that it has no majority", DETECTED, |trace| {
                    !trace.last(victim).primary()
                });
                gone
            }
            End::Stopped => {
                cluster.freeze(victim);
                cluster.until_together(&rest, DETECTED)
            }
        };
        cluster.throughout("and nobody else goes", WATCHED / 2, |trace| trace.together(&rest));
        let mended = cluster.now();
        match end {
            End::Killed => cluster.start(&[victim]),
            End::CutOff => cluster.heal(),
            End::Stopped => cluster.thaw(victim),
        }
        cluster.until_together(&all(&order), REUNITED);
        if end == End::Stopped {
            stopped_believing(&cluster, victim, mended, cluster.now());
        }
        let back = cluster.now() - mended;
        println!("{end:?}: gone after {gone:.1?}, back after {back:.1?}");
        nobody_else_was_missed(&cluster, &rest, from);
    }
    load.end();
    cluster.until_delivered(&all(&order), SOON);
    all_was_heard(&cluster, &without(&order, &victims.map(|(_, victim)| victim)));
    cluster.finish();
}

fn four_of_fourteen_hosts_cut_off_are_not_primary_and_come_back_to_the_ten_that_went_on() {
    let options = Options {
        order: "fifo",
        transport: "udp",
        keyed: true,
        ..options()
    };
    let Some(mut cluster) = Cluster::on_hosts(COUNT, options) else {
        return;
    };
    let (order, load) = started(&mut cluster);
    // The elder is in the minority.
    let (few, many) = order.split_at(4);
    let (few, many) = (all(few), all(many));
    let from = cluster.now();
    cluster.partition(&[&few, &many]);
    let went_on = cluster.until_together(&many, DETECTED);
    cluster.until("the four know that they have no majority", DETECTED, |trace| {
        few.iter().all(|name| !trace.last(name).primary())
    });
    cluster.throughout("the ten go on and the four do not", WATCHED, |trace| {
        trace.together(&many) && few.iter().all(|name| !trace.last(name).primary())
    });
    cluster.until_delivered(&many, SOON);
    let mended = cluster.now();
    cluster.heal();
    cluster.until_together(&all(&order), REUNITED);
    let reunited = cluster.now() - mended;
    println!(
        "the ten went on after {went_on:.1?}, and all were together {reunited:.1?} after the cables were mended"
    );
    nobody_else_was_missed(&cluster, &many, from);
    load.end();
    cluster.until_delivered(&all(&order), SOON);
    all_was_heard(&cluster, &many);
    cluster.finish();
}

fn a_black_hole_between_two_of_fourteen_hosts_removes_nobody_and_messages_go_around_it() {
    let Some(cluster) = Cluster::on_hosts(COUNT, options()) else {
        return;
    };
    let names = names(COUNT);
    let hole = |cluster: &mut Cluster| cluster.partition(&[&["n1"], &["n3"]]);
    let others = without(&names, &["n1", "n3"]);
    cut_and_mended(cluster, COUNT, hole, &[("n1", "n3")], &others);
}

fn several_of_fourteen_restarted_at_once_are_new_members_and_all_leave_at_once_in_order() {
    let mut cluster = Cluster::on_loopback(COUNT, options());
    let (order, load) = started(&mut cluster);
    let victims = [0, 4, 9].map(|rank| order[rank].as_str());
    let rest = without(&order, &victims);
    let from = cluster.now();
    let old = victims.map(|name| cluster.look(|trace| trace.last(name).incarnation().to_owned()));
    victims.iter().for_each(|name| cluster.kill(name));
    cluster.start(&victims);
    let took = cluster.until_together(&all(&order), DETECTED);
    println!("three restarted were members after {took:.1?}");
    cluster.look(|trace| {
        for name in &order {
            let view = trace.last(name).node_view().expect("it is in one");
            assert!(
                !old.iter().any(|incarnation| view.has(incarnation)),
                "{name}: {view:?}"
            );
        }
    });
    nobody_else_was_missed(&cluster, &rest, from);
    load.end();
    cluster.until_delivered(&all(&order), SOON);
    all_was_heard(&cluster, &rest);

    let from = cluster.now();
    for (name, status) in order.iter().zip(cluster.dismiss_all(&all(&order))) {
        assert!(status.success(), "{name} left with {status}");
    }
    println!("all had left after {:.1?}", cluster.now() - from);
    cluster.look(|trace| {
        let crashed = |event: &Event| matches!(event, Event::NodeView(view) if !view.crashed.is_empty());
        for name in &order {
            assert_eq!(trace.last(name).when(from, crashed), None, "{name}");
        }
    });
    cluster.finish();
}
