//! G32. Links: which one is used, when it changes, and that this changes nothing else.

use std::collections::BTreeMap;

use antiphon_core::LinkCause;
use antiphon_core::wire::Incarnation;

use crate::agenda::{Micros, SECONDS};
use crate::check::Report;
use crate::check::history::History;
use crate::trace::{GroupIndex, Heard, ProcessId, Seen};

/// A link that failed is not used again sooner, in heartbeats; clocks drift a little.
const RETURN_BEATS: Micros = 8;
/// A message may take this long while some link works: until its link is known to have failed, and is
/// repaired over another.
const REPAIRED_WITHIN: Micros = 4 * SECONDS;
/// Nodes that start form their cluster and groups first.
const FORMED: Micros = 4 * SECONDS;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    choices(history, report);
    if history.trace.never_apart {
        stays(history, report, "G32");
        delays(history, report, "G32", REPAIRED_WITHIN);
    }
    if let Some(prompt) = history.trace.prompt {
        delays(history, report, "multicast", prompt);
    }
}

/// The first link that is up is used, and a link that failed is given time.
fn choices(history: &History<'_>, report: &mut Report) {
    let mut failed: BTreeMap<(ProcessId, Incarnation, usize), Micros> = BTreeMap::new();
    for line in &history.trace.lines {
        let Seen::Link { links, number, cause } = &line.what else {
            continue;
        };
        let (process, at) = (line.process, line.at);
        let first = links.links.iter().position(|link| link.up);
        report.check("G32", at, first.is_none_or(|first| first == links.in_use), || {
            format!(
                "p{process} uses link {} to {}: {links:?}",
                links.in_use, links.peer
            )
        });
        let key = (process, links.peer, *number);
        match cause {
            LinkCause::Works => {
                let rested = failed.get(&key).map(|since| at - since);
                let least = RETURN_BEATS * history.trace.heartbeat;
                report.check("G32", at, rested.is_none_or(|rested| rested >= least), || {
                    format!(
                        "p{process} uses link {number} to {} again {rested:?} us after it failed",
                        links.peer
                    )
                });
            }
            LinkCause::Silent | LinkCause::Trouble(_) => {
                failed.insert(key, at);
            }
            _ => {}
        }
    }
}

/// No view loses anyone.
pub(super) fn stays(history: &History<'_>, report: &mut Report, name: &'static str) {
    for line in &history.trace.lines {
        let (process, at) = (line.process, line.at);
        match &line.what {
            Seen::NodeView(view) => {
                report.check(name, at, view.is_primary() && view.departed.is_empty(), || {
                    let gone: Vec<&str> = view
                        .departed
                        .iter()
                        .map(|gone| gone.member.name.as_str())
                        .collect();
                    format!(
                        "p{process} installed {} without {gone:?} although there was a way to everyone",
                        view.id
                    )
                });
            }
            Seen::Expelled(cause) => {
                report.fail(
                    name,
                    at,
                    format!("p{process} was expelled although there was a way to it: {cause}"),
                );
            }
            _ => {}
        }
    }
}

/// Messages go on.
pub(super) fn delays(history: &History<'_>, report: &mut Report, name: &'static str, within: Micros) {
    let mut sent: BTreeMap<(GroupIndex, u64), Micros> = BTreeMap::new();
    for line in &history.trace.lines {
        match &line.what {
            Seen::Sent { group, payload, .. } if line.at > FORMED => {
                sent.insert((*group, *payload), line.at);
            }
            Seen::Group(group, Heard::Message(message)) => {
                if let Some(since) = sent.get(&(*group, message.payload)) {
                    let (process, took) = (line.process, line.at - since);
                    report.check(name, line.at, took <= within, || {
                        format!("a message to g{group} took {took} us to p{process} although it could go another way")
                    });
                }
            }
            _ => {}
        }
    }
}
