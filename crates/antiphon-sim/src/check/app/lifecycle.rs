//! The order of events around an incarnation: what an application is told before what.

use std::collections::BTreeSet;

use crate::check::Report;
use crate::check::history::{End, History, Life, StayEnd};
use crate::trace::{GroupIndex, Heard, ProcessId, Seen};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for (at, guarantee, what) in &history.misplaced {
        report.fail(guarantee, *at, what.clone());
    }
    expulsions(history, report);
    resyncs(history, report);
    suspensions(history, report);
}

/// R8: a node that believed itself a member of the primary and starts over was told why.
fn expulsions(history: &History<'_>, report: &mut Report) {
    for life in &history.lives {
        let End::Succeeded(at) = life.end else { continue };
        let believed = life.views.last().is_some_and(|(_, view)| view.is_primary());
        let told = life.expelled.is_some();
        report.check("R8", at, !believed || told || life.expelled.is_some(), || {
            format!(
                "{} believed itself in the primary and became another incarnation unsaid",
                history.name(life)
            )
        });
    }
}

/// A new incarnation's groups begin with `Resync` before their first view, if the application had them
/// before.
fn resyncs(history: &History<'_>, report: &mut Report) {
    // The processes that hold state of a group, and those that hold it from a former incarnation and were not
    // told yet.
    let mut holds: BTreeSet<(ProcessId, GroupIndex)> = BTreeSet::new();
    let mut stale: BTreeSet<(ProcessId, GroupIndex)> = BTreeSet::new();
    for line in &history.trace.lines {
        match &line.what {
            Seen::Incarnation(_) => {
                stale.extend(holds.iter().filter(|(process, _)| *process == line.process));
            }
            Seen::Group(group, heard) => {
                let key = (line.process, *group);
                match heard {
                    Heard::Resync(_) => {
                        if stale.remove(&key) {
                            report.check("resync", line.at, true, String::new);
                        }
                        holds.remove(&key);
                    }
                    Heard::Left => {
                        stale.remove(&key);
                        holds.remove(&key);
                    }
                    Heard::View(view) => {
                        if stale.remove(&key) {
                            let what = format!(
                                "p{} saw view {} of {} and was not told to start over",
                                key.0, view.id, view.name
                            );
                            report.fail("resync", line.at, what);
                        }
                        holds.insert(key);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// R6, R17: no send is taken between the loss of the primary and its return.
fn suspensions(history: &History<'_>, report: &mut Report) {
    for life in &history.lives {
        for (index, stay) in life.stays.iter().enumerate() {
            for (number, epoch) in stay.epochs.iter().enumerate() {
                let Some(since) = epoch.suspended else { continue };
                let back = returned_to_primary(life, since);
                let is_void = |at: u64| at > since && back.is_none_or(|back| at < back);
                let sent = life.sends.get(&stay.group).and_then(|sends| {
                    sends
                        .iter()
                        .find(|send| send.stay == index && send.epoch == number && is_void(send.at))
                });
                report.check(
                    "suspended",
                    since,
                    sent.is_none() || stay.end != StayEnd::Open,
                    || {
                        format!(
                            "{} was allowed to send in {} while suspended",
                            history.name(life),
                            epoch.view.id
                        )
                    },
                );
            }
        }
    }
}

pub(super) fn returned_to_primary(life: &Life, since: u64) -> Option<u64> {
    life.primaries()
        .map(|(at, _)| *at)
        .find(|at| *at >= since && *at > 0)
}
