//! Nodes that are killed behind cut cables, with and without a witness on their hosts.

use super::*;
use crate::{Cluster, Options};

pub(super) const STORIES: &[Story] = &[
    story!(members_killed_behind_cut_cables_are_proven_dead_by_their_witnesses_after_the_heal),
    story!(without_witnesses_members_killed_behind_cut_cables_stay_unproven),
];

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// Three hosts, cut from each other; the two senior nodes are killed, and their kernels give up telling it.
/// Then the cables work again.
fn two_of_three_killed_behind_cut_cables(engine: Engine, witness: bool) -> Option<(Cluster, String)> {
    let options = Options {
        keyed: true,
        ..told_on(engine)
    };
    let mut cluster = Cluster::on_hosts(3, options)?;
    for name in NAMES {
        cluster.start_with(name, if witness { &["--witness"] } else { &[] });
    }
    cluster.until_together(&NAMES, SOON);
    let order = cluster.look(|trace| {
        let view = trace.last("n1").node_view();
        view.map(|view| {
            view.members
                .iter()
                .map(|member| member.name.clone())
                .collect::<Vec<_>>()
        })
    });
    let order = order.unwrap_or_default();
    let [first, second, third] = [0, 1, 2].map(|rank| order[rank].as_str());
    for name in [first, second] {
        cluster.forget_the_dead(name);
    }
    cluster.partition(&[&[first], &[second], &[third]]);
    for name in [first, second] {
        match witness {
            true => cluster.process(name).kill_child(),
            false => cluster.kill(name),
        }
    }
    cluster.until("the last one knows that it has no majority", DETECTED, |trace| {
        !trace.last(third).primary()
    });
    cluster.throughout("and stays so behind the cut", WATCHED, |trace| {
        !trace.last(third).primary()
    });
    cluster.heal();
    let third = third.to_owned();
    Some((cluster, third))
}

fn members_killed_behind_cut_cables_are_proven_dead_by_their_witnesses_after_the_heal(engine: Engine) {
    let Some((cluster, last)) = two_of_three_killed_behind_cut_cables(engine, true) else {
        return;
    };
    cluster.until_together(&[&last], DETECTED);
    cluster.say(&last, 10);
    cluster.until_delivered(&[&last], SOON);
    // The witnesses have told whom they could, and end as their nodes did.
    for name in NAMES.into_iter().filter(|name| *name != last) {
        let status = cluster.process(name).exit(SOON).expect("the witness ends");
        assert_eq!(status.code(), Some(128 + 9));
    }
    cluster.finish();
}

fn without_witnesses_members_killed_behind_cut_cables_stay_unproven(engine: Engine) {
    let Some((cluster, last)) = two_of_three_killed_behind_cut_cables(engine, false) else {
        return;
    };
    cluster.throughout("nothing proves the deaths", WATCHED, |trace| {
        !trace.last(&last).primary()
    });
    cluster.finish();
}
