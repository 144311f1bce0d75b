//! Coming together, and leaving in order.

use super::*;
use crate::{Cluster, Event, Options, runs};

pub(super) const STORIES: &[Story] = &[
    story!(ten_nodes_started_at_the_same_instant_form_one_cluster),
    story!(five_nodes_form_sealed_with_a_key_and_in_fifo_order),
    story!(a_node_alone_among_three_seeds_founds_nothing_and_says_whom_it_misses),
    story!(who_leaves_is_said_to_have_left_and_its_last_words_are_heard),
    story!(every_view_shows_the_metadata_of_its_members),
];

fn ten_nodes_started_at_the_same_instant_form_one_cluster(engine: Engine) {
    let names = names(10);
    let mut took: Vec<Duration> = Vec::new();
    for run in 0..runs(2) {
        // By turns all ten are seeds, or three of them, of whom the others learn the rest.
        let mut cluster = Cluster::on_loopback(if run % 2 == 0 { 10 } else { 3 }, told_on(engine));
        let names = all(&names);
        cluster.start(&names);
        took.push(cluster.until_together(&names, Duration::from_secs(20)));
        names.iter().for_each(|name| cluster.say(name, 5));
        cluster.until_delivered(&names, SOON);
        cluster.finish();
    }
    took.sort();
    println!(
        "{} runs: median {:?}, longest {:?}",
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    );
}

fn five_nodes_form_sealed_with_a_key_and_in_fifo_order(engine: Engine) {
    let names = names(5);
    let names = all(&names);
    let mut cluster = Cluster::on_loopback(
        5,
        Options {
            keyed: true,
            order: "fifo",
            ..told_on(engine)
        },
    );
    cluster.start(&names);
    cluster.until_together(&names, SOON);
    names.iter().for_each(|name| cluster.say(name, 200));
    cluster.until_delivered(&names, SOON);
    cluster.finish();
}

fn a_node_alone_among_three_seeds_founds_nothing_and_says_whom_it_misses(engine: Engine) {
    let mut cluster = Cluster::on_loopback(3, told_on(engine));
    cluster.start(&["n1"]);
    let missing = [
        cluster.address("n2").to_string(),
        cluster.address("n3").to_string(),
    ];
    cluster.until("n1 says whom it misses", SOON, |trace| {
        trace.last("n1").said(
            |event| matches!(event, Event::Forming { missing: m, .. } if missing.iter().all(|a| m.contains(a))),
        )
    });
    cluster.throughout("n1 is in no view", WATCHED, |trace| {
        trace.last("n1").node_view().is_none_or(|view| !view.primary)
    });
    // A second one makes a majority.
    cluster.start(&["n2"]);
    cluster.until_together(&["n1", "n2"], SOON);
    cluster.start(&["n3"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    cluster.finish();
}

fn who_leaves_is_said_to_have_left_and_its_last_words_are_heard(engine: Engine) {
    let mut cluster = Cluster::on_loopback(3, told_on(engine));
    cluster.start(&["n1", "n2", "n3"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    let elder = cluster.look(|trace| {
        trace
            .last("n1")
            .node_view()
            .map(|view| view.members[0].name.clone())
    });
    let elder = elder.unwrap_or_default();
    let stay: Vec<&str> = ["n1", "n2", "n3"]
        .into_iter()
        .filter(|name| *name != elder)
        .collect();
    cluster.say(&elder, 100);
    let status = cluster.dismiss(&elder);
    assert!(status.success(), "a graceful leave ends with {status}");
    cluster.until_together(&stay, SOON);
    let last_words = cluster
        .look(|trace| trace.last(&elder).sent.last().map(|said| said.what.clone()))
        .unwrap_or_default();
    cluster.look(|trace| {
        for name in &stay {
            let run = trace.last(name);
            let named = |event: &Event| matches!(event, Event::NodeView(view) if view.left.iter().any(|gone| gone.name == elder) && view.crashed.is_empty());
            assert!(run.said(named), "{name} did not hear that {elder} left: {}", run.summary());
            assert!(run.delivered("g").contains(&last_words), "{name} did not hear {elder}'s last words: {}", run.summary());
        }
    });
    // By signal too.
    let status = cluster.leave(stay[0]);
    assert!(status.success(), "SIGTERM ends with {status}");
    cluster.until_together(&stay[1..], SOON);
    cluster.finish();
}

fn every_view_shows_the_metadata_of_its_members(engine: Engine) {
    let mut cluster = Cluster::on_loopback(3, told_on(engine));
    cluster.start_with("n1", &["--metadata", "role=db", "--metadata", "zone=a"]);
    cluster.start(&["n2", "n3"]);
    cluster.until_together(&["n1", "n2", "n3"], SOON);
    cluster.look(|trace| {
        for name in ["n1", "n2", "n3"] {
            let view = trace.last(name).node_view().expect("it is in a view");
            let first = view
                .members
                .iter()
                .find(|member| member.name == "n1")
                .expect("n1 is in it");
            assert_eq!(
                first.metadata.get("role").map(String::as_str),
                Some("db"),
                "at {name}"
            );
            assert_eq!(
                first.metadata.get("zone").map(String::as_str),
                Some("a"),
                "at {name}"
            );
            assert!(
                view.members
                    .iter()
                    .filter(|m| m.name != "n1")
                    .all(|m| m.metadata.is_empty()),
                "at {name}"
            );
        }
    });
    cluster.finish();
}
