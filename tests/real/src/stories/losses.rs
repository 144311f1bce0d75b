//! A host that loses many of its packets lives, however long TCP is silent; one that only UDP reaches does
//! not stay for ever, nor one that loses most, hears nobody, or is heard by nobody.

use super::*;
use crate::{Cluster, Options, ViewName};

pub(super) const STORIES: &[Story] = &[
    story!(one_of_three_hosts_loses_a_third_of_its_packets_and_nobody_is_removed).on(Engine::Cut),
    story!(one_of_five_hosts_loses_a_third_of_its_packets_and_nobody_is_removed)
        .on(Engine::Coordinator)
        .long(),
    story!(by_udp_one_of_three_hosts_loses_a_third_of_its_packets_and_nobody_is_removed)
        .on(Engine::Cut)
        .long(),
    story!(a_host_that_loses_four_fifths_of_its_packets_goes_once_and_alone)
        .on(Engine::Coordinator)
        .long(),
    story!(a_host_that_hears_nobody_and_is_heard_goes_once_and_alone).on(Engine::Coordinator),
    story!(two_of_twelve_hosts_that_hear_nobody_and_are_heard_go_and_nobody_else).on(Engine::Cut),
    story!(a_host_that_hears_all_and_is_heard_by_nobody_goes_once_and_alone).on(Engine::Coordinator),
    story!(a_host_that_only_udp_reaches_goes_and_the_others_go_on).on(Engine::Coordinator),
    story!(a_host_that_no_large_packet_reaches_gets_all_the_same).on(Engine::Coordinator),
];

/// Long enough that TCP at 30 % loss is silent for longer than a member may be, many times.
const LOSSY: Duration = Duration::from_secs(20);
/// What a connection needs after that until it is tried again.
const RECOVERED: Duration = Duration::from_secs(30);

fn view_of(cluster: &Cluster) -> Option<ViewName> {
    cluster.look(|trace| trace.last("n1").node_view().map(|view| view.id.clone()))
}

fn one_host_loses_a_third(engine: Engine, count: usize, transport: &'static str, keyed: bool) {
    let options = Options {
        transport,
        keyed,
        ..told_on(engine)
    };
    let Some(mut cluster) = Cluster::on_hosts(count, options) else {
        return;
    };
    let names = names(count);
    let names = all(&names);
    cluster.start(&names);
    cluster.until_together(&names, SOON);
    let before = view_of(&cluster);
    cluster.hosts().lose_packets(host("n2"), 30);
    cluster.throughout(
        "a third of n2's packets is lost, and nobody is removed",
        LOSSY,
        |trace| trace.together(&names),
    );
    cluster.heal();
    names.iter().for_each(|name| cluster.say(name, 50));
    cluster.until_delivered(&names, RECOVERED);
    assert_eq!(before, view_of(&cluster), "no view changed");
    cluster.finish();
}

fn one_of_three_hosts_loses_a_third_of_its_packets_and_nobody_is_removed(engine: Engine) {
    one_host_loses_a_third(engine, 3, "tcp", true);
}

fn one_of_five_hosts_loses_a_third_of_its_packets_and_nobody_is_removed(engine: Engine) {
    one_host_loses_a_third(engine, 5, "tcp", false);
}

fn by_udp_one_of_three_hosts_loses_a_third_of_its_packets_and_nobody_is_removed(engine: Engine) {
    one_host_loses_a_third(engine, 3, "udp", true);
}

/// Now and then something gets through, and each time it looks alive for a while: mostly 12 to 20 s, with
/// luck a minute.
const FOUND_LOSSY: Duration = Duration::from_secs(150);
/// Three seconds with the profile `lan`, and what a busy machine needs.
const GONE_DEAF: Duration = Duration::from_secs(5);
/// How long it is watched whether it gets in again, or takes somebody with it.
const GONE: Duration = Duration::from_secs(10);

/// Of five hosts this happens to n2: one view has the others go on without it, and no other one follows until
/// all is well again.
fn goes_once_and_alone(engine: Engine, bound: Duration, what_happens: impl Fn(&mut Cluster, &[&str])) {
    let Some(mut cluster) = Cluster::on_hosts(5, told_on(engine)) else {
        return;
    };
    let names = names(5);
    let names = all(&names);
    let others: Vec<&str> = names.iter().copied().filter(|name| *name != "n2").collect();
    cluster.start(&names);
    cluster.until_together(&names, SOON);
    let before = view_of(&cluster);
    what_happens(&mut cluster, &others);
    cluster.until_together(&others, bound);
    let after = view_of(&cluster);
    assert!(
        matches!((&before, &after), (Some(ViewName::Primary(before)), Some(ViewName::Primary(after))) if *after == before + 1),
        "one view, without n2: {before:?}, {after:?}"
    );
    cluster.throughout("n2 is gone, and nobody else", GONE, |trace| {
        trace.together(&others)
    });
    assert_eq!(after, view_of(&cluster), "no view changed");
    cluster.heal();
    cluster.until_together(&names, RECOVERED);
    cluster.finish();
}

fn a_host_that_loses_four_fifths_of_its_packets_goes_once_and_alone(engine: Engine) {
    goes_once_and_alone(engine, FOUND_LOSSY, |cluster, _| {
        cluster.hosts().lose_packets(host("n2"), 80);
    });
}

fn a_host_that_hears_nobody_and_is_heard_goes_once_and_alone(engine: Engine) {
    goes_once_and_alone(engine, GONE_DEAF, |cluster, others| {
        others.iter().for_each(|other| cluster.deafen(other, "n2"));
    });
}

fn two_of_twelve_hosts_that_hear_nobody_and_are_heard_go_and_nobody_else(engine: Engine) {
    let Some(mut cluster) = Cluster::on_hosts(12, told_on(engine)) else {
        return;
    };
    let names = names(12);
    let names = all(&names);
    let deaf = ["n2", "n8"];
    let is_deaf = |name: &&str| deaf.contains(name);
    let others: Vec<&str> = names.iter().copied().filter(|name| !is_deaf(name)).collect();
    cluster.start(&names);
    cluster.until_together(&names, DETECTED);
    for (from, to) in others.iter().flat_map(|from| deaf.map(|to| (*from, to))) {
        cluster.deafen(from, to);
    }
    cluster.until_together(&others, GONE_DEAF);
    cluster.throughout("n2 and n8 are gone, and nobody else", GONE, |trace| {
        trace.together(&others)
    });
    cluster.heal();
    cluster.until_together(&names, RECOVERED);
    cluster.finish();
}

fn a_host_that_hears_all_and_is_heard_by_nobody_goes_once_and_alone(engine: Engine) {
    goes_once_and_alone(engine, DETECTED, |cluster, others| {
        others.iter().for_each(|other| cluster.deafen("n2", other));
    });
}

/// A cluster of three, each on a host of its own, and their names.
fn three_hosts(engine: Engine) -> Option<(Cluster, [&'static str; 3])> {
    let mut cluster = Cluster::on_hosts(3, told_on(engine))?;
    let names = ["n1", "n2", "n3"];
    cluster.start(&names);
    cluster.until_together(&names, SOON);
    Some((cluster, names))
}

/// As behind the end of a tunnel that drops them.
fn a_host_that_no_large_packet_reaches_gets_all_the_same(engine: Engine) {
    let Some((cluster, names)) = three_hosts(engine) else {
        return;
    };
    let before = view_of(&cluster);
    cluster.hosts().swallow_large(host("n2"), 1300);
    names.iter().for_each(|name| cluster.say(name, 500));
    cluster.until_delivered(&names, RECOVERED);
    assert_eq!(before, view_of(&cluster), "no view changed");
    cluster.finish();
}

/// Six times the 1.5 s of the profile `lan` by probes, what makes a member suspected, and what a busy machine
/// needs.
const PROBED: Duration = Duration::from_secs(40);

fn a_host_that_only_udp_reaches_goes_and_the_others_go_on(engine: Engine) {
    let Some((mut cluster, names)) = three_hosts(engine) else {
        return;
    };
    cluster.hosts().drop_tcp(host("n3"));
    cluster.until_together(&["n1", "n2"], PROBED);
    cluster.say("n1", 20);
    cluster.until_delivered(&["n1", "n2"], SOON);
    cluster.heal();
    cluster.until_together(&names, RECOVERED);
    cluster.finish();
}
