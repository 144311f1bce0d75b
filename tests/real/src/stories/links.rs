//! Hosts with two interfaces: the loss of one is no one's loss.

use super::*;
use crate::{Cluster, Event, Options, Trace};

pub(super) const STORIES: &[Story] = &[
    story!(the_loss_of_one_of_two_links_changes_no_view_and_loses_no_message).on(Engine::Coordinator),
    story!(by_udp_the_loss_of_one_of_two_links_changes_no_view_and_loses_no_message)
        .on(Engine::Cut)
        .long(),
    story!(with_one_network_gone_deaths_are_still_proven_and_nodes_still_join),
    story!(the_loss_of_both_links_is_the_loss_of_a_member),
];

/// The link that a node uses to another, as it said last; the first unless it said otherwise.
fn used(trace: &Trace, name: &str, peer: &str) -> usize {
    let of_peer = |event: &Event| match event {
        Event::Link {
            peer: other, in_use, ..
        } if other == peer => Some(*in_use),
        _ => None,
    };
    let events = trace.last(name).events.iter().rev();
    events.map(|(_, event)| event).find_map(of_peer).unwrap_or(0)
}

/// Whether these all use the same link to each other.
fn all_use(trace: &Trace, names: &[&str], link: usize) -> bool {
    let peers = |name: &&str| {
        names
            .iter()
            .filter(move |peer| *peer != name)
            .copied()
            .collect::<Vec<_>>()
    };
    names
        .iter()
        .all(|name| peers(name).iter().all(|peer| used(trace, name, peer) == link))
}

/// Three nodes with two links each, whose second ones have shown that they work.
fn with_two_links(options: Options) -> Option<Cluster> {
    let mut cluster = Cluster::on_hosts_with_links(3, 2, options)?;
    for name in NAMES {
        let socket = socket(&cluster, name);
        cluster.start_with(name, &["--console", &socket]);
    }
    cluster.until_together(&NAMES, SOON);
    cluster.until("all second links work", SOON, |trace| {
        let works = |event: &Event| matches!(event, Event::Link { number: 1, cause, .. } if cause == "works");
        let count = |name: &&str| {
            let events = &trace.last(name).events;
            events.iter().filter(|(_, event)| works(event)).count()
        };
        NAMES.iter().all(|name| count(name) >= 2)
    });
    Some(cluster)
}

/// Where a node answers.
fn socket(cluster: &Cluster, name: &str) -> String {
    cluster
        .folder()
        .join(name)
        .with_extension("socket")
        .to_string_lossy()
        .into_owned()
}

/// Waits until each of these holds a lifeline of each other: whoever dies now is proven dead. Says how long
/// that took.
fn until_deaths_are_provable(cluster: &Cluster, names: &[&str], bound: Duration) -> Duration {
    let begun = Instant::now();
    loop {
        let missing = names.iter().find_map(|name| {
            let (answer, _) = ask(&socket(cluster, name), &["members"]);
            let Some(members) = answer.first().and_then(|answer| answer["members"].as_array()) else {
                return Some(format!("{name} does not answer"));
            };
            let held = members.iter().filter(|member| member["lifeline"] == true).count();
            (held + 1 < names.len()).then(|| format!("{name} holds {held} lifelines"))
        });
        match missing {
            None => return begun.elapsed(),
            Some(missing) => assert!(begun.elapsed() < bound, "{missing} after {bound:?}"),
        }
    }
}

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// A link is left when three heartbeats more came over another one.
const NOTICED: Duration = Duration::from_secs(4);
/// One that failed is used again after two seconds at first, and four then.
const RETURNED: Duration = Duration::from_secs(12);

fn view_of(cluster: &Cluster) -> Option<crate::ViewName> {
    cluster.look(|trace| trace.last("n1").node_view().map(|view| view.id.clone()))
}

fn one_link_fails_under_load(options: Options) {
    let Some(mut cluster) = with_two_links(options) else {
        return;
    };
    let before = view_of(&cluster);
    let load = cluster.load(Duration::from_millis(2));
    // An interface goes down: its own host is told so, the others just hear nothing there.
    cluster.hosts().switch_interface(host("n1"), 0, false);
    cluster.until("n1 and the others use their second links", NOTICED, |trace| {
        ["n2", "n3"]
            .iter()
            .all(|other| used(trace, "n1", other) == 1 && used(trace, other, "n1") == 1)
    });
    cluster.until_delivered(&NAMES, SOON);
    cluster.hosts().switch_interface(host("n1"), 0, true);
    cluster.until("traffic is back on the first links", RETURNED, |trace| {
        all_use(trace, &NAMES, 0)
    });
    cluster.until_delivered(&NAMES, SOON);
    // All cables of the first network are cut: nobody is told anything.
    cluster.hosts().cut_link(0);
    cluster.until("all use their second links", NOTICED, |trace| {
        all_use(trace, &NAMES, 1)
    });
    cluster.until_delivered(&NAMES, SOON);
    cluster.throughout("and nobody is missed", WATCHED, |trace| {
        trace.together(&NAMES) && all_use(trace, &NAMES, 1)
    });
    cluster.heal();
    cluster.until("traffic is back on the first links", RETURNED, |trace| {
        all_use(trace, &NAMES, 0)
    });
    // The spare one is of no use now; then nothing moves.
    cluster.hosts().cut_link(1);
    cluster.throughout("the first links go on", WATCHED, |trace| {
        all_use(trace, &NAMES, 0)
    });
    cluster.heal();
    load.end();
    cluster.until_delivered(&NAMES, SOON);
    assert_eq!(before, view_of(&cluster), "no view changed");
    cluster.finish();
}

fn the_loss_of_one_of_two_links_changes_no_view_and_loses_no_message(engine: Engine) {
    one_link_fails_under_load(told_on(engine));
}

fn by_udp_the_loss_of_one_of_two_links_changes_no_view_and_loses_no_message(engine: Engine) {
    one_link_fails_under_load(Options {
        transport: "udp",
        keyed: true,
        ..told_on(engine)
    });
}

fn with_one_network_gone_deaths_are_still_proven_and_nodes_still_join(engine: Engine) {
    let Some(mut cluster) = with_two_links(told_on(engine)) else {
        return;
    };
    cluster.hosts().cut_link(0);
    cluster.until("all use their second links", NOTICED, |trace| {
        all_use(trace, &NAMES, 1)
    });
    // A process that ends before its lifelines are dialled over the other link is not proven dead.
    let took = until_deaths_are_provable(&cluster, &NAMES, SOON);
    eprintln!("lifelines over the other link {took:.1?} later");
    cluster.throughout("and nobody is missed", WATCHED, |trace| trace.together(&NAMES));
    cluster.kill("n1");
    cluster.until_together(&["n2", "n3"], SOON);
    let evidence = cluster.look(|trace| {
        let view = trace.last("n2").node_view();
        view.map(|view| {
            view.crashed
                .iter()
                .map(|crash| crash.evidence.clone())
                .collect::<String>()
        })
    });
    assert!(
        evidence
            .as_deref()
            .is_some_and(|evidence| evidence.contains("its process has ended")),
        "{evidence:?}"
    );
    cluster.start(&["n1"]);
    cluster.until_together(&NAMES, SOON);
    cluster.until_delivered(&NAMES, SOON);
    cluster.finish();
}

fn the_loss_of_both_links_is_the_loss_of_a_member(engine: Engine) {
    let Some(mut cluster) = with_two_links(told_on(engine)) else {
        return;
    };
    cluster.partition(&[&["n1", "n2"], &["n3"]]);
    let took = cluster.until_together(&["n1", "n2"], DETECTED);
    eprintln!("two hosts without the third after {took:.1?}");
    cluster.heal();
    cluster.until_together(&NAMES, Duration::from_secs(30));
    cluster.until_delivered(&NAMES, SOON);
    cluster.finish();
}
