//! G5: once a cluster has come to rest it stays so, as long as nothing is done to it.
//!
//! A group in which machines send may still change: a replica that left since its state did not count comes
//! back.

use std::collections::BTreeSet;

use crate::check::{History, Report};
use crate::trace::{Heard, Seen};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let Some(since) = history.trace.rests_since else {
        return;
    };
    let lines = &history.trace.lines;
    let driven: BTreeSet<_> = lines
        .iter()
        .filter_map(|line| match line.what {
            Seen::Replica(group, _) | Seen::Call(group, _) | Seen::Client(group, _) => Some(group),
            _ => None,
        })
        .collect();
    let later = lines.iter().rev().take_while(|line| line.at > since);
    for line in later {
        let changes = match &line.what {
            Seen::NodeView(_) | Seen::Expelled(_) | Seen::Lease(_) => true,
            Seen::Group(group, Heard::View(_) | Heard::Suspended | Heard::Resync(_)) => {
                !driven.contains(group)
            }
            _ => false,
        };
        report.check("G5", line.at, !changes, || {
            let process = line.process;
            format!("p{process} is at rest since {since}, and is told {:?}", line.what)
        });
    }
}
