//! Messages by IP multicast, where it passes and where it does not.

use super::*;
use crate::{Cluster, Event, Options, Trace};

pub(super) const STORIES: &[Story] = &[
    story!(by_multicast_what_is_lost_is_repaired_and_who_hears_nothing_is_sent_to_directly),
    story!(by_multicast_of_ipv6_with_a_key),
    story!(several_nodes_of_one_host_hear_each_other_by_multicast),
];

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
const BY_MULTICAST: [&str; 2] = ["--dissemination", "multicast"];

/// What a node said last of whether another hears it.
fn heard_by(trace: &Trace, name: &str, peer: &str) -> Option<bool> {
    let of_peer = |event: &Event| match event {
        Event::Multicast { peer: other, hears } if other == peer => Some(*hears),
        _ => None,
    };
    let events = trace.last(name).events.iter().rev();
    events.map(|(_, event)| event).find_map(of_peer)
}

fn all_hear(trace: &Trace, names: &[&str]) -> bool {
    let hears = |name: &&str, peer: &&str| name == peer || heard_by(trace, name, peer) == Some(true);
    names
        .iter()
        .all(|name| names.iter().all(|peer| hears(name, peer)))
}

/// Hosts with an interface more than needed, so that either family has one.
fn through_a_bridge(engine: Engine, keyed: bool, flags: &[&str]) {
    let flags: Vec<&str> = BY_MULTICAST.iter().chain(flags).copied().collect();
    let options = Options {
        keyed,
        ..told_on(engine)
    };
    let Some(mut cluster) = Cluster::on_hosts_with_links(3, 2, options) else {
        return;
    };
    for name in NAMES {
        cluster.start_with(name, &flags);
    }
    cluster.until_together(&NAMES, SOON);
    cluster.until("all hear all", SOON, |trace| all_hear(trace, &NAMES));
    let load = cluster.load(Duration::from_millis(2));
    // A tenth of all lost at one: it asks for that.
    cluster.hosts().lose_multicast(host("n2"), 10);
    for _ in 0..3 {
        NAMES.iter().for_each(|name| cluster.say(name, 500));
        cluster.until_delivered(&NAMES, SOON);
    }
    // Its switch filters it, as many do: it is sent to directly, and nobody else.
    cluster.hosts().lose_multicast(host("n3"), 100);
    cluster.until("n3 is known not to hear", SOON, |trace| {
        ["n1", "n2"]
            .iter()
            .all(|name| heard_by(trace, name, "n3") == Some(false))
    });
    // A tenth lost is now and then three of its calls in a row, and it does not hear for a moment.
    cluster.until("n2 is known to hear", SOON, |trace| {
        heard_by(trace, "n1", "n2") == Some(true)
    });
    NAMES.iter().for_each(|name| cluster.say(name, 500));
    cluster.until_delivered(&NAMES, SOON);
    cluster.kill("n1");
    cluster.until_together(&["n2", "n3"], DETECTED);
    cluster.heal();
    cluster.start_with("n1", &flags);
    cluster.until_together(&NAMES, SOON);
    cluster.until("all hear all again", SOON, |trace| all_hear(trace, &NAMES));
    load.end();
    cluster.until_delivered(&NAMES, SOON);
    cluster.finish();
}

fn by_multicast_what_is_lost_is_repaired_and_who_hears_nothing_is_sent_to_directly(engine: Engine) {
    through_a_bridge(engine, false, &[]);
}

fn by_multicast_of_ipv6_with_a_key(engine: Engine) {
    through_a_bridge(
        engine,
        true,
        &[
            "--multicast-group",
            "[ff12::7401]:7401",
            "--multicast-interface",
            "eth1",
        ],
    );
}

fn several_nodes_of_one_host_hear_each_other_by_multicast(engine: Engine) {
    let names = names(3);
    let mut cluster = Cluster::on_loopback(3, told_on(engine));
    for name in &names {
        cluster.start_with(name, &BY_MULTICAST);
    }
    cluster.until_together(&all(&names), SOON);
    cluster.until("all hear all", SOON, |trace| all_hear(trace, &all(&names)));
    let load = cluster.load(Duration::from_millis(2));
    names.iter().for_each(|name| cluster.say(name, 1000));
    cluster.until_delivered(&all(&names), SOON);
    load.end();
    cluster.until_delivered(&all(&names), SOON);
    cluster.finish();
}
