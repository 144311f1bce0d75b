//! Restarting all nodes, one after the other, in three ways on each membership engine.
//! `ANTIPHON_REAL_RUNS=20` is 54 rounds in all, of five restarts each.

use super::*;
use crate::{Cluster, GROUP, Options, runs};

pub(super) const STORIES: &[Story] = &[story!(
    a_rolling_restart_of_five_under_load_loses_and_doubles_nothing
)];

fn a_rolling_restart_of_five_under_load_loses_and_doubles_nothing(engine: Engine) {
    for (order, gracefully) in [("total", true), ("fifo", true), ("total", false)] {
        let names = names(5);
        let names = all(&names);
        let mut cluster = Cluster::on_loopback(
            5,
            Options {
                order,
                ..told_on(engine)
            },
        );
        cluster.start(&names);
        cluster.until_together(&names, SOON);
        let load = cluster.load(Duration::from_millis(4));
        for _ in 0..(runs(4) * 9).div_ceil(20) {
            for name in &names {
                if gracefully {
                    let status = cluster.dismiss(name);
                    assert!(status.success(), "{name} left with {status}");
                } else {
                    cluster.kill(name);
                }
                cluster.start(&[name]);
                cluster.until_together(&names, DETECTED);
                cluster.until("all have heard a good deal since", SOON, |trace| {
                    names
                        .iter()
                        .all(|name| trace.last(name).delivered(GROUP).len() > 50)
                });
            }
        }
        load.end();
        cluster.until_delivered(&names, SOON);
        cluster.finish();
    }
}
