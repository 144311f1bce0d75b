//! Messages by UDP.

use super::*;
use crate::{Cluster, Load, Options, Trace};

pub(super) const STORIES: &[Story] = &[
    story!(by_udp_five_nodes_form_and_deliver_under_load_and_a_killed_one_takes_nothing_along),
    story!(by_udp_a_twentieth_of_all_datagrams_lost_loses_no_message),
    story!(when_a_firewall_begins_to_drop_all_udp_messages_go_by_tcp),
    story!(nodes_with_udp_and_nodes_without_are_one_cluster),
];

fn by_udp(engine: Engine) -> Options {
    Options {
        transport: "udp",
        ..told_on(engine)
    }
}

/// Whether a node has sent messages to another by UDP.
fn used_udp(trace: &Trace, name: &str) -> bool {
    trace
        .last(name)
        .log
        .iter()
        .any(|line| line.contains("messages go by UDP"))
}

fn until_udp_is_used(cluster: &Cluster, names: &[&str]) {
    cluster.until("all send by UDP", SOON, |trace| {
        names.iter().all(|name| used_udp(trace, name))
    });
}

const HOSTS: [&str; 3] = ["n1", "n2", "n3"];

/// Three nodes on hosts of their own that send to each other by UDP, under load.
fn three_hosts_by_udp(engine: Engine) -> Option<(Cluster, Load)> {
    let mut cluster = Cluster::on_hosts(3, by_udp(engine))?;
    cluster.start(&HOSTS);
    cluster.until_together(&HOSTS, SOON);
    let load = cluster.load(Duration::from_millis(5));
    until_udp_is_used(&cluster, &HOSTS);
    Some((cluster, load))
}

fn by_udp_five_nodes_form_and_deliver_under_load_and_a_killed_one_takes_nothing_along(engine: Engine) {
    for keyed in [false, true] {
        let names = names(5);
        let mut cluster = Cluster::on_loopback(
            5,
            Options {
                keyed,
                ..by_udp(engine)
            },
        );
        for name in &names {
            // As on most networks: frames are cut.
            cluster.start_with(name, &["--max-datagram", "1472"]);
        }
        cluster.until_together(&all(&names), SOON);
        let load = cluster.load(Duration::from_millis(2));
        until_udp_is_used(&cluster, &all(&names));
        for victim in ["n5", "n1"] {
            cluster.say(victim, 500);
            cluster.kill(victim);
            let rest: Vec<&str> = all(&names).into_iter().filter(|name| *name != victim).collect();
            cluster.until_together(&rest, DETECTED);
            cluster.start(&[victim]);
            cluster.until_together(&all(&names), SOON);
        }
        load.end();
        cluster.until_delivered(&all(&names), SOON);
        cluster.finish();
    }
}

fn by_udp_a_twentieth_of_all_datagrams_lost_loses_no_message(engine: Engine) {
    let Some((cluster, load)) = three_hosts_by_udp(engine) else {
        return;
    };
    cluster.hosts().lose_udp(5);
    let view = cluster.look(|trace| trace.last("n1").node_view().map(|view| view.id.clone()));
    for _ in 0..5 {
        HOSTS.iter().for_each(|name| cluster.say(name, 1000));
        cluster.until_delivered(&HOSTS, SOON);
    }
    load.end();
    cluster.until_delivered(&HOSTS, SOON);
    let same = cluster.look(|trace| trace.last("n1").node_view().map(|view| view.id.clone()));
    assert_eq!(view, same, "lost datagrams are no failure of a node");
    cluster.finish();
}

fn when_a_firewall_begins_to_drop_all_udp_messages_go_by_tcp(engine: Engine) {
    let Some((mut cluster, load)) = three_hosts_by_udp(engine) else {
        return;
    };
    cluster.hosts().lose_udp(100);
    cluster.until("all have noticed", DETECTED, |trace| {
        let noticed = |line: &String| line.contains("messages go by TCP");
        HOSTS.iter().all(|name| trace.last(name).log.iter().any(noticed))
    });
    cluster.until_delivered(&HOSTS, SOON);
    cluster.heal();
    HOSTS.iter().for_each(|name| cluster.say(name, 500));
    load.end();
    cluster.until_delivered(&HOSTS, SOON);
    cluster.finish();
}

fn nodes_with_udp_and_nodes_without_are_one_cluster(engine: Engine) {
    let names = names(4);
    let mut cluster = Cluster::on_loopback(4, told_on(engine));
    cluster.start(&["n1", "n2"]);
    for name in ["n3", "n4"] {
        cluster.start_with(name, &["--transport", "udp", "--max-datagram", "1472"]);
    }
    cluster.until_together(&all(&names), SOON);
    let load = cluster.load(Duration::from_millis(2));
    until_udp_is_used(&cluster, &["n3", "n4"]);
    cluster.until("those without UDP are sent to by TCP", SOON, |trace| {
        let told = |line: &String| line.contains("UDP does not pass");
        ["n3", "n4"]
            .iter()
            .all(|name| trace.last(name).log.iter().any(told))
    });
    cluster.kill("n1");
    cluster.until_together(&["n2", "n3", "n4"], DETECTED);
    load.end();
    cluster.until_delivered(&["n2", "n3", "n4"], SOON);
    cluster.finish();
}
