//! Programs that do not read what their node says, under load.

use super::*;
use crate::{Cluster, Event, GROUP, Options, Trace, View};

pub(super) const STORIES: &[Story] = &[
    story!(a_node_whose_output_nobody_reads_holds_up_the_others_for_the_limit_and_not_their_memory)
        .on(Engine::Coordinator)
        .long(),
    story!(a_process_that_stands_still_again_and_again_for_less_than_makes_it_suspect_is_not_called_slow)
        .on(Engine::Cut)
        .long(),
    story!(a_node_whose_output_nobody_reads_tells_on_and_keeps_nothing_of_what_was_delivered)
        .on(Engine::Coordinator),
];

/// The limit for readers that stand still.
const LIMIT: Duration = Duration::from_secs(3);
/// Of the group's memory: a window of 1 MiB accepted and not sent, two windows and a reserve for each of
/// three senders in the present view and in the one before, and a window for each that is on its way to
/// whoever reads the node's output.
const BUDGET: u64 = (1 + 3 * 2 * 2 + 3 + 2) << 20;

fn started(engine: Engine, order: &'static str, profile: &'static str, slow_after: &str) -> Cluster {
    let options = Options {
        order,
        profile,
        ..told_on(engine)
    };
    let mut cluster = Cluster::on_loopback(3, options);
    for name in ["n1", "n2", "n3"] {
        cluster.start_with(name, &["--slow-after", slow_after]);
    }
    cluster.until_together(&["n1", "n2", "n3"], Duration::from_secs(30));
    cluster
}

/// The views of a node's group from a moment on.
fn views(cluster: &Cluster, name: &str, from: Duration) -> Vec<View> {
    cluster.look(|trace| {
        let events = trace.last(name).events.iter();
        let later = events.filter(|(at, _)| *at >= from);
        let views = later.filter_map(|(_, event)| match event {
            Event::View(view) => Some(view.clone()),
            _ => None,
        });
        views.collect()
    })
}

fn a_node_whose_output_nobody_reads_holds_up_the_others_for_the_limit_and_not_their_memory(engine: Engine) {
    for (order, slow) in [("total", "n3"), ("fifo", "n1")] {
        let mut cluster = started(engine, order, "lan", "3s");
        let others: Vec<&str> = ["n1", "n2", "n3"]
            .into_iter()
            .filter(|name| *name != slow)
            .collect();
        let idle: Vec<u64> = others.iter().map(|name| cluster.process(name).memory()).collect();
        let load = cluster.press(&["n1", "n2", "n3"]);
        cluster.until("all have delivered what all send", SOON, |trace| {
            ["n1", "n2", "n3"].iter().all(|name| trace.last(name).own() > 200)
        });
        let from = cluster.now();
        cluster.cover_ear(slow);
        let mut most = idle.clone();
        let mut removed = false;
        while !removed {
            assert!(cluster.now() < from + DETECTED + LIMIT, "{slow} is not removed");
            for (most, name) in most.iter_mut().zip(&others) {
                *most = cluster.process(name).memory().max(*most);
            }
            cluster.throughout("a look at their memory", Duration::from_millis(20), |_| true);
            removed = others.iter().all(|name| !views(&cluster, name, from).is_empty());
        }
        let took = cluster.now() - from;
        assert!(took >= LIMIT, "{slow} is removed after {took:?}");
        for name in &others {
            let view = views(&cluster, name, from).remove(0);
            assert_eq!(
                (&view.crashed, &view.left),
                (&vec![slow.to_owned()], &vec![]),
                "{name}"
            );
            assert!(
                view.causes[slow].starts_with("slow: its application took no message for "),
                "{:?}",
                view.causes
            );
        }
        // They go on at once.
        let own = cluster.look(|trace| trace.last(others[0]).own());
        cluster.until("the others deliver again", SOON, |trace| {
            trace.last(others[0]).own() > own + 2000
        });
        for (name, (idle, most)) in others.iter().zip(idle.into_iter().zip(most)) {
            let allowed = (idle + BUDGET) * 11 / 10;
            assert!(
                most <= allowed,
                "{name} took {most} bytes, {idle} when idle: more than {allowed}"
            );
            println!(
                "{order}: {name} took {} MiB at most, {} idle; held up for {took:.1?}",
                most >> 20,
                idle >> 20
            );
        }
        load.end();
        // Its reader finds all that came before, then why there is no more; then the node is a member again.
        cluster.uncover_ear(slow);
        cluster.until("it is told", SOON, |trace| {
            trace
                .last(slow)
                .said(|event| matches!(event, Event::Resync { cause, .. } if cause.starts_with("slow: ")))
        });
        cluster.until_together(&["n1", "n2", "n3"], SOON);
        cluster.until_delivered(&["n1", "n2", "n3"], SOON);
        cluster.finish();
    }
}

fn a_process_that_stands_still_again_and_again_for_less_than_makes_it_suspect_is_not_called_slow(
    engine: Engine,
) {
    // The limit is shorter than a pause, and a pause than what makes `wan` suspect: that it reads when it is
    // awake is all that speaks for it.
    let mut cluster = started(engine, "total", "wan", "1s");
    let from = cluster.now();
    let load = cluster.press(&["n1", "n2"]);
    for pause in 0..8 {
        let between = Duration::from_millis(if pause % 3 == 0 { 20 } else { 300 });
        let together = |trace: &Trace| trace.together_in(GROUP, &["n1", "n2", "n3"]);
        cluster.freeze("n3");
        cluster.throughout(
            "nobody goes while one stands still",
            Duration::from_secs(2),
            together,
        );
        cluster.thaw("n3");
        cluster.throughout("nor after that", between, together);
    }
    load.end();
    cluster.until_delivered(&["n1", "n2", "n3"], SOON);
    for name in ["n1", "n2", "n3"] {
        assert_eq!(views(&cluster, name, from), [], "{name}");
    }
    cluster.finish();
}

fn a_node_whose_output_nobody_reads_tells_on_and_keeps_nothing_of_what_was_delivered(engine: Engine) {
    const COUNT: usize = 20_000;
    const MIB: u64 = 1 << 20;
    let mut cluster = started(engine, "total", "lan", "never");
    cluster.cover_ear("n1");
    // Enough that its output is full, and no line of it goes out any more.
    cluster.say("n3", 2000);
    cluster.until_delivered(&["n3"], SOON);
    let tell_all = |round: usize| {
        cluster.tell_member("n1", "n2", COUNT);
        // They come in order. How fast is nothing of this story, and little when much else runs.
        cluster.until("n2 was told all", Duration::from_secs(60), |trace| {
            let last = trace
                .last("n2")
                .events
                .iter()
                .rev()
                .find_map(|(_, event)| match event {
                    Event::Told(message) => Some(message.seq),
                    _ => None,
                });
            last == Some((round * COUNT) as u64)
        });
        cluster.process("n1").memory()
    };
    // The first ones take what it needs while they are under way, which is there for those that follow.
    let memory: Vec<u64> = (1..=6).map(tell_all).collect();
    // A round that is under way longer than the others takes more, and the allocator keeps that: a step. What
    // is kept of messages grows in each round.
    let grown = memory[1..].windows(2).map(|two| two[1].saturating_sub(two[0]));
    let mut grown: Vec<u64> = grown.collect();
    grown.sort_unstable();
    assert!(
        grown[2] < 5 * MIB,
        "{grown:?} bytes more for {COUNT} each that were delivered"
    );
    cluster.uncover_ear("n1");
    cluster.until_delivered(&["n1", "n2", "n3"], SOON);
    cluster.finish();
}
