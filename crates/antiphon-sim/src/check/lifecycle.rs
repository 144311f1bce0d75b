//! The order of events around an incarnation: who is told what before what.

use super::Report;
use super::history::{End, History, Life, StayEnd};
use crate::trace::{Heard, ProcessId, Seen};
use std::collections::BTreeMap;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for (at, guarantee, what) in &history.misplaced {
        report.fail(guarantee, *at, what.clone());
    }
    for line in &history.trace.lines {
        if let Seen::Contract(what) = &line.what {
            report.fail("contract", line.at, format!("p{}: {what}", line.process));
        }
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

/// A new incarnation's groups begin with `Resync` before their first view, if the application had them before.
fn resyncs(history: &History<'_>, report: &mut Report) {
    #[derive(Default)]
    struct State {
        had_views: bool,
        told: bool,
    }
    let mut states: BTreeMap<(ProcessId, usize), State> = BTreeMap::new();
    let mut fresh: BTreeMap<(ProcessId, usize), bool> = BTreeMap::new();
    for line in &history.trace.lines {
        match &line.what {
            Seen::Incarnation(_) => {
                for ((process, group), state) in &mut states {
                    if *process == line.process && state.had_views {
                        fresh.insert((*process, *group), true);
                        state.told = false;
                    }
                }
            }
            Seen::Group(group, heard) => {
                let key = (line.process, *group);
                let state = states.entry(key).or_default();
                match heard {
                    Heard::Resync(_) => state.told = true,
                    Heard::Left => {
                        state.had_views = false;
                        fresh.remove(&key);
                    }
                    Heard::View(view) => {
                        if fresh.remove(&key).is_some() {
                            let told = state.told;
                            report.check("resync", line.at, told, || {
                                format!(
                                    "p{} saw view {} of group {} as a new incarnation without a resync",
                                    line.process, view.id, view.name
                                )
                            });
                        }
                        state.had_views = true;
                        state.told = false;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// R6, R17: nothing is delivered, and no send is taken, between the loss of the primary and its return.
fn suspensions(history: &History<'_>, report: &mut Report) {
    for life in &history.lives {
        for (index, stay) in life.stays.iter().enumerate() {
            for (number, epoch) in stay.epochs.iter().enumerate() {
                let Some(since) = epoch.suspended else { continue };
                let back = returned_to_primary(life, since);
                let is_void = |at: u64| at > since && back.is_none_or(|back| at < back);
                let delivered = epoch.times.iter().find(|at| is_void(**at));
                report.check("suspended", since, delivered.is_none(), || {
                    format!(
                        "{} delivered in {} while suspended",
                        history.name(life),
                        epoch.view.id
                    )
                });
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

fn returned_to_primary(life: &Life, since: u64) -> Option<u64> {
    life.primaries()
        .map(|(at, _)| *at)
        .find(|at| *at >= since && *at > 0)
}
