//! Payloads of many megabytes, in files, beside small messages.

use std::path::PathBuf;

use antiphon_api::Command;

use super::*;
use crate::{Cluster, Event, GROUP, Options};

pub(super) const STORIES: &[Story] = &[
    story!(a_large_payload_gets_to_all_whole_under_traffic_although_a_receiver_is_killed_and_one_joins_on_the_way).on(Engine::Cut).long(),
    story!(a_file_that_cannot_be_sent_is_refused_with_the_reason_and_what_is_delivered_goes_with_the_node),
];

/// Large enough that much happens while it is under way.
const BYTES: usize = 160 << 20;
/// For that much, on a busy machine.
const CARRIED: Duration = Duration::from_secs(60);

/// A file of letters that do not repeat themselves.
fn large_file(cluster: &Cluster, name: &str, bytes: usize) -> PathBuf {
    let mut state = 88_172_645_463_325_252_u64;
    let letters = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    });
    cluster.file(name, &letters.take(bytes).collect::<String>())
}

fn started(engine: Engine, order: &'static str, keyed: bool, names: &[&str]) -> Cluster {
    let options = Options {
        order,
        keyed,
        ..told_on(engine)
    };
    let mut cluster = Cluster::on_loopback(4, options);
    cluster.start(names);
    cluster.until_together(names, SOON);
    cluster
}

fn a_large_payload_gets_to_all_whole_under_traffic_although_a_receiver_is_killed_and_one_joins_on_the_way(
    engine: Engine,
) {
    for (order, keyed) in [("total", false), ("fifo", true)] {
        let mut cluster = started(engine, order, keyed, &["n1", "n2", "n3", "n4"]);
        let file = large_file(&cluster, "large", BYTES);
        let load = cluster.load(Duration::from_millis(5));
        let from = cluster.now();
        let what = cluster.say_file("n1", &file);
        let under_way =
            |event: &Event| matches!(event, Event::Progress { bytes, length, .. } if bytes < length);
        cluster.until("the first of it is with all", SOON, |trace| {
            trace.last("n1").said(under_way)
        });
        // Shorter than what makes it suspect: until then nobody can have all of it.
        cluster.freeze("n3");
        cluster.kill("n4");
        cluster.start(&["n5"]);
        cluster.throughout("nobody delivers it", Duration::from_millis(500), |trace| {
            ["n1", "n2"]
                .iter()
                .all(|name| !trace.last(name).delivered(GROUP).contains(&what))
        });
        cluster.thaw("n3");
        let rest = ["n1", "n2", "n3", "n5"];
        cluster.until_together(&rest, DETECTED);
        cluster.until("all have it, the one that joined too", CARRIED, |trace| {
            rest.iter()
                .all(|name| trace.last(name).delivered(GROUP).contains(&what))
        });
        println!(
            "{order}: {} MiB at all after {:?}",
            BYTES >> 20,
            cluster.now() - from
        );
        load.end();
        let told = cluster.look(|trace| {
            let events = trace.last("n1").events.iter();
            let progress = events.filter_map(|(_, event)| match event {
                Event::Progress { bytes, length, .. } => Some((*bytes, *length)),
                _ => None,
            });
            progress.collect::<Vec<_>>()
        });
        assert!(
            told.is_sorted() && told.iter().all(|(_, length)| *length == BYTES as u64),
            "{told:?}"
        );
        cluster.until_delivered(&rest, SOON);
        cluster.finish();
    }
}

fn a_file_that_cannot_be_sent_is_refused_with_the_reason_and_what_is_delivered_goes_with_the_node(
    engine: Engine,
) {
    let names = ["n1", "n2"];
    let mut cluster = Cluster::on_loopback(2, told_on(engine));
    for name in names {
        cluster.start_with(name, &["--max-object", "3MiB"]);
    }
    cluster.until_together(&names, SOON);
    let large = large_file(&cluster, "large", (3 << 20) + 1);
    for (path, reason) in [
        (large, "at most 3145728"),
        ("/nonexistent/file".into(), "/nonexistent/file"),
    ] {
        let line = serde_json::json!({ "send": { "payload": { "file": path } } });
        let request = Command::parse(&line.to_string()).expect("a command");
        cluster.tell("n1", &request);
        cluster.until("it is refused", SOON, |trace| {
            trace
                .last("n1")
                .said(|event| matches!(event, Event::Error { reason: why, .. } if why.contains(reason)))
        });
    }
    let fits = large_file(&cluster, "fits", 3 << 20);
    let what = cluster.say_file("n1", &fits);
    cluster.until("both have it", SOON, |trace| {
        names
            .iter()
            .all(|name| trace.last(name).delivered(GROUP).contains(&what))
    });
    let own = |name| cluster.look(|trace| format!("antiphon-{}", trace.last(name).incarnation()));
    let folders = names.map(|name| cluster.folder().join(own(name)));
    assert!(folders.iter().all(|folder| folder.is_dir()), "{folders:?}");
    for name in names {
        assert!(cluster.leave(name).success());
    }
    assert!(folders.iter().all(|folder| !folder.exists()), "{folders:?}");
    cluster.finish();
}
