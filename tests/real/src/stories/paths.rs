//! Pairs that do not reach each other while others reach both: nobody is removed, and messages go on.

use super::*;
use crate::{Cluster, Event, Options, Refusal, Trace};

pub(super) const STORIES: &[Story] = &[
    story!(a_black_hole_between_two_of_three_hosts_removes_nobody),
    story!(by_udp_a_black_hole_between_two_of_three_hosts_removes_nobody),
    story!(a_firewall_that_resets_between_two_of_four_hosts_removes_nobody),
    story!(two_halves_joined_by_one_host_stay_one_cluster),
    story!(on_loopback_a_cut_between_two_removes_nobody),
    story!(when_the_relay_of_a_pair_is_killed_another_takes_its_place),
    story!(a_pair_that_nobody_joins_loses_its_junior),
];

/// Through whom a node said last that it sends to another.
fn through(trace: &Trace, name: &str, peer: &str) -> Option<String> {
    let of_peer = |event: &Event| match event {
        Event::Path {
            peer: other, through, ..
        } if other == peer => Some(through.clone()),
        _ => None,
    };
    let events = trace.last(name).events.iter().rev();
    events.map(|(_, event)| event).find_map(of_peer).flatten()
}

fn hosts(engine: Engine, count: usize, transport: &'static str, keyed: bool) -> Option<Cluster> {
    let options = Options {
        transport,
        keyed,
        ..told_on(engine)
    };
    Cluster::on_hosts(count, options)
}

fn view_of(cluster: &Cluster) -> Option<crate::ViewName> {
    cluster.look(|trace| trace.last("n1").node_view().map(|view| view.id.clone()))
}

/// A path that was dead is used again after two seconds without a gap at first; TCP may take some more to try
/// it.
const RETURNED: Duration = Duration::from_secs(20);

/// Cuts them somehow, and mends that; these pairs must then be relayed by these, and nobody removed.
pub(super) fn cut_and_mended(
    mut cluster: Cluster,
    count: usize,
    cut: impl Fn(&mut Cluster),
    pairs: &[(&str, &str)],
    relays: &[&str],
) {
    let names = names(count);
    let names = all(&names);
    cluster.start(&names);
    cluster.until_together(&names, SOON);
    let before = view_of(&cluster);
    // What each sends all have to take.
    let load = cluster.load(Duration::from_millis(5) * count as u32 / 3);
    cut(&mut cluster);
    let both: Vec<(&str, &str)> = pairs.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
    cluster.until("the pairs speak through another", SOON, |trace| {
        both.iter()
            .all(|(a, b)| through(trace, a, b).is_some_and(|via| relays.contains(&via.as_str())))
    });
    cluster.until_delivered(&names, SOON);
    cluster.throughout("and nobody is missed", WATCHED, |trace| trace.together(&names));
    names.iter().for_each(|name| cluster.say(name, 500));
    cluster.until_delivered(&names, SOON);
    cluster.heal();
    cluster.until("they speak directly again", RETURNED, |trace| {
        both.iter().all(|(a, b)| through(trace, a, b).is_none())
    });
    cluster.until_delivered(&names, SOON);
    load.end();
    cluster.until_delivered(&names, SOON);
    assert_eq!(before, view_of(&cluster), "no view changed");
    cluster.finish();
}

fn a_black_hole_between_two_of_three_hosts_removes_nobody(engine: Engine) {
    a_black_hole(engine, "tcp", true);
}

fn by_udp_a_black_hole_between_two_of_three_hosts_removes_nobody(engine: Engine) {
    a_black_hole(engine, "udp", false);
}

fn a_black_hole(engine: Engine, transport: &'static str, keyed: bool) {
    let Some(cluster) = hosts(engine, 3, transport, keyed) else {
        return;
    };
    cut_and_mended(
        cluster,
        3,
        |c| c.partition(&[&["n1"], &["n3"]]),
        &[("n1", "n3")],
        &["n2"],
    );
}

fn a_firewall_that_resets_between_two_of_four_hosts_removes_nobody(engine: Engine) {
    let Some(cluster) = hosts(engine, 4, "tcp", false) else {
        return;
    };
    let wall = |c: &mut Cluster| c.refuse(&[&["n1"], &["n3"]], Refusal::Reset);
    cut_and_mended(cluster, 4, wall, &[("n1", "n3")], &["n2", "n4"]);
}

fn two_halves_joined_by_one_host_stay_one_cluster(engine: Engine) {
    let Some(cluster) = hosts(engine, 5, "tcp", false) else {
        return;
    };
    let pairs = [("n1", "n4"), ("n1", "n5"), ("n2", "n4"), ("n2", "n5")];
    let cut = |c: &mut Cluster| c.partition(&[&["n1", "n2"], &["n4", "n5"]]);
    cut_and_mended(cluster, 5, cut, &pairs, &["n3"]);
}

fn on_loopback_a_cut_between_two_removes_nobody(engine: Engine) {
    let cluster = Cluster::on_loopback(4, told_on(engine));
    cut_and_mended(
        cluster,
        4,
        |c| c.partition(&[&["n2"], &["n3"]]),
        &[("n2", "n3")],
        &["n1", "n4"],
    );
}

fn when_the_relay_of_a_pair_is_killed_another_takes_its_place(engine: Engine) {
    let Some(mut cluster) = hosts(engine, 4, "tcp", false) else {
        return;
    };
    let names = names(4);
    cluster.start(&all(&names));
    cluster.until_together(&all(&names), SOON);
    let load = cluster.load(Duration::from_millis(5));
    cluster.partition(&[&["n1"], &["n4"]]);
    cluster.until("the pair speaks through another", SOON, |trace| {
        through(trace, "n1", "n4").is_some() && through(trace, "n4", "n1").is_some()
    });
    let relay = cluster
        .look(|trace| through(trace, "n1", "n4"))
        .expect("there was one a moment ago");
    cluster.kill(&relay);
    let rest: Vec<&str> = all(&names).into_iter().filter(|name| *name != relay).collect();
    cluster.until_together(&rest, DETECTED);
    cluster.until("the pair speaks through the last one", SOON, |trace| {
        let other = |via: String| via != relay;
        through(trace, "n1", "n4").is_some_and(other) && through(trace, "n4", "n1").is_some_and(other)
    });
    cluster.throughout("and nobody else is missed", WATCHED, |trace| {
        trace.together(&rest)
    });
    load.end();
    cluster.until_delivered(&rest, SOON);
    cluster.finish();
}

fn a_pair_that_nobody_joins_loses_its_junior(engine: Engine) {
    let Some(mut cluster) = hosts(engine, 4, "tcp", false) else {
        return;
    };
    let names = names(4);
    cluster.start(&all(&names));
    cluster.until_together(&all(&names), SOON);
    // In a ring of four, each hears its two neighbours, and the ends of each missing path have them in
    // common; without one side of it, the last has nobody.
    cluster.partition(&[&["n1", "n2"], &["n4"]]);
    cluster.throughout("n3 joins them", WATCHED, |trace| trace.together(&all(&names)));
    cluster.partition(&[&["n3"], &["n4"]]);
    cluster.until_together(&["n1", "n2", "n3"], DETECTED);
    cluster.heal();
    cluster.until_together(&all(&names), Duration::from_secs(30));
    cluster.finish();
}
