//! The policy `any` (R6, G41): every component goes on, and they merge.

use std::collections::BTreeSet;

use super::*;
use crate::{Cluster, Event, Options, Rules};

pub(super) const STORIES: &[Story] = &[
    story!(by_any_two_sides_of_five_on_loopback_go_on_and_merge),
    story!(by_any_three_sides_of_five_hosts_without_a_majority_go_on_and_merge),
];

fn options(engine: Engine) -> Options {
    Options {
        keyed: true,
        rules: Rules {
            any: true,
            ..Rules::default()
        },
        ..told_on(engine)
    }
}

/// Five nodes fall apart into sides, each of which goes on, says things and admits nobody of the other; then
/// they meet.
fn part_and_meet(mut cluster: Cluster, sides: &[&[&str]]) {
    let names = names(5);
    let names = all(&names);
    names
        .iter()
        .for_each(|name| cluster.start_with(name, &["--policy", "any", "--allow-faults"]));
    cluster.until_together(&names, SOON);
    names.iter().for_each(|name| cluster.say(name, 20));
    cluster.until_delivered(&names, SOON);

    cluster.partition(sides);
    for side in sides {
        cluster.until_together(side, DETECTED);
    }
    for side in sides {
        side.iter().for_each(|name| cluster.say(name, 20));
        cluster.until_delivered(side, SOON);
    }
    cluster.throughout("each side stays as it is", WATCHED, |trace| {
        sides.iter().all(|side| trace.together(side))
    });

    let healed_at = cluster.now();
    cluster.heal();
    cluster.until_together(&names, Duration::from_secs(60));
    // Of three sides a light one may have joined the second by the time at which that meets the first, and
    // outweigh it: then some of both may give way, and go on to the one that stays from there. Of two the
    // heavier one stays whole.
    let crossed = sides.len() > 2;
    cluster.look(|trace| {
        let stayed = |name: &&&str| {
            let over = |event: &Event| matches!(event, Event::Expelled { .. });
            trace.last(name).when(healed_at, over).is_none()
        };
        let stayed: BTreeSet<String> = names
            .iter()
            .filter(stayed)
            .map(|name| (*name).to_owned())
            .collect();
        // Whoever stayed was told of all that came, in one merge or in several.
        for name in &stayed {
            let mut came = BTreeSet::new();
            for (_, event) in trace.last(name).events.iter().filter(|(at, _)| *at >= healed_at) {
                if let Event::Merge { parts } = event {
                    let here: BTreeSet<&String> = parts[0].members.iter().collect();
                    assert!(here.contains(name), "{parts:?}: {name} was there already");
                    for part in &parts[1..] {
                        let side = sides
                            .iter()
                            .any(|side| part.members.iter().all(|member| side.contains(&member.as_str())));
                        assert!((side || crossed) && part.lineage != parts[0].lineage, "{parts:?}");
                        came.extend(part.members.iter().cloned());
                    }
                }
            }
            let others: BTreeSet<String> = names
                .iter()
                .filter(|other| !stayed.contains(**other))
                .map(|other| (*other).to_owned())
                .collect();
            assert_eq!(came, others, "what {name} was told");
        }
        let whole = sides
            .iter()
            .any(|side| side.iter().all(|name| stayed.contains(*name)));
        let stays = whole || (crossed && !stayed.is_empty());
        let since = |name: &&str| {
            let events = &trace.last(name).events;
            let since: Vec<_> = events.iter().filter(|(at, _)| *at >= healed_at).collect();
            format!("{name}: {since:?}")
        };
        let seen: Vec<String> = names.iter().map(since).collect();
        assert!(stays, "who stays: {stayed:?}\n{}", seen.join("\n"));
    });
    names.iter().for_each(|name| cluster.say(name, 20));
    cluster.until_delivered(&names, SOON);
    cluster.finish();
}

fn by_any_two_sides_of_five_on_loopback_go_on_and_merge(engine: Engine) {
    let cluster = Cluster::on_loopback(5, options(engine));
    part_and_meet(cluster, &[&["n1", "n4", "n5"], &["n2", "n3"]]);
}

fn by_any_three_sides_of_five_hosts_without_a_majority_go_on_and_merge(engine: Engine) {
    let Some(cluster) = Cluster::on_hosts(5, options(engine)) else {
        return;
    };
    part_and_meet(cluster, &[&["n1", "n4"], &["n2", "n3"], &["n5"]]);
}
