//! Node views beside what was done to the nodes: metadata, causes, proofs of death, G2 as one number, G7 for
//! members that leave in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_core::wire::{Cause, Evidence, Incarnation, Lineage, NodeView, NodeViewId};

use crate::agenda::{MILLIS, Micros};
use crate::check::Report;
use crate::check::history::{End, History, Life};
use crate::trace::{Ending, ProcessId, Slot};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for life in &history.lives {
        // Of such a view each member may have been told other accusers.
        for (at, view) in life.views.iter().filter(|(_, view)| !view.is_primary()) {
            departures(history, *at, view, report);
        }
    }
    numbers(history, report);
    if let Some(within) = history.trace.leaves_within {
        leaves_promptly(history, within, report);
    }
    for (first_seen, view) in primaries(history) {
        records(history, first_seen, &view, report);
        departures(history, first_seen, &view, report);
    }
}

/// G2 as one number: fits an i32, and increases for a process across its incarnations, and for a place across
/// restarts into the same lineage.
fn numbers(history: &History<'_>, report: &mut Report) {
    let mut by_process: BTreeMap<ProcessId, u32> = BTreeMap::new();
    let mut by_place: BTreeMap<(Slot, Lineage), u32> = BTreeMap::new();
    let mut views: Vec<(Micros, &Life, &NodeView)> = history
        .lives
        .iter()
        .flat_map(|life| life.primaries().map(move |(at, view)| (*at, life, &**view)))
        .collect();
    views.sort_by_key(|(at, life, view)| (*at, life.process, view.number));
    for (at, life, view) in views {
        let Some(facts) = history.processes.get(&life.process) else {
            continue;
        };
        report.check("G2", at, i32::try_from(view.number).is_ok(), || {
            format!("number {} is no i32", view.number)
        });
        for last in [
            by_process.insert(life.process, view.number),
            by_place.insert((facts.slot, view.lineage), view.number),
        ] {
            report.check("G2", at, last.is_none_or(|last| last < view.number), || {
                format!("{} saw number {} after {last:?}", history.name(life), view.number)
            });
        }
    }
}

/// Each primary view once, with the time when it was first seen.
fn primaries(history: &History<'_>) -> Vec<(Micros, Arc<NodeView>)> {
    let mut known: BTreeMap<(Lineage, NodeViewId), (Micros, Arc<NodeView>)> = BTreeMap::new();
    for (at, view) in history.lives.iter().flat_map(Life::primaries) {
        let (first_seen, _) = known
            .entry((view.lineage, view.id))
            .or_insert((*at, view.clone()));
        *first_seen = (*first_seen).min(*at);
    }
    known.into_values().collect()
}

/// Names, addresses, metadata and weights are the configured ones, and no other node appears.
fn records(history: &History<'_>, at: Micros, view: &NodeView, report: &mut Report) {
    let departed = view.departed.iter().map(|departure| &departure.member);
    for member in view.members.iter().chain(departed) {
        let configured = history
            .life(member.incarnation)
            .and_then(|life| history.processes.get(&life.process));
        let equal = configured.is_some_and(|facts| {
            let mut expected = facts.member.clone();
            expected.incarnation = member.incarnation;
            expected == *member
        });
        report.check("metadata", at, equal, || {
            format!(
                "node view {} shows {member:?}, which is not what was configured",
                view.id
            )
        });
    }
}

/// Every departure has a cause and accusers, and what they claim is so.
fn departures(history: &History<'_>, at: Micros, view: &NodeView, report: &mut Report) {
    for departure in &view.departed {
        let who = departure.member.incarnation;
        let Some(life) = history.life(who) else { continue };
        let Some(facts) = history.processes.get(&life.process) else {
            continue;
        };
        let ended_before = |endings: &[Ending]| match life.end {
            End::Process(ended, ending) => ended <= at && endings.contains(&ending),
            End::Open | End::Succeeded(_) => false,
        };
        let justified = match &departure.cause {
            Cause::Left => facts.asked_to_leave.is_some_and(|asked| asked <= at),
            Cause::Crashed => !departure.accusers.is_empty(),
            // That an operator was there is G38's to check, and what a component may do G41's.
            Cause::Overridden { lineage, .. } | Cause::Separated { lineage, .. } => {
                *lineage != view.lineage && view.joined.is_empty()
            }
            Cause::Unreachable { from } => history.life(*from).is_some(),
            Cause::Superseded { by } => history.life(*by).is_some_and(|by| {
                history
                    .processes
                    .get(&by.process)
                    .is_some_and(|other| other.slot == facts.slot)
            }),
        };
        report.check("causes", at, justified, || {
            format!(
                "node view {} removed {} as {:?} without ground",
                view.id,
                history.name(life),
                departure.cause
            )
        });
        // G7: no member can know of a component of another lineage that one of its members left somewhere
        // else.
        let elsewhere = life.lineage().is_some_and(|lineage| lineage != view.lineage);
        let is_lost = matches!(departure.cause, Cause::Crashed | Cause::Unreachable { .. });
        let ended = left_in_order(history, life).filter(|_| view.is_primary() && !elsewhere);
        if let Some(ended) = ended {
            report.check("G7", at, !is_lost || at <= ended, || {
                format!(
                    "node view {} removed {} as {:?}, which had left in order",
                    view.id,
                    history.name(life),
                    departure.cause
                )
            });
        }
        for accusation in &departure.accusers {
            if accusation.evidence == Evidence::ProofOfDeath {
                // R9: only the end of a process whose kernel lives on can be proven.
                report.check("R9", at, ended_before(&[Ending::Killed, Ending::Exited]), || {
                    format!(
                        "node view {} says that the death of {} was proven, and it was not dead so",
                        view.id,
                        history.name(life)
                    )
                });
            }
        }
    }
}

/// When its process ended in order, if all members could know why: it did not give up waiting for others, and
/// had its last view with a majority, or had seen none yet.
fn left_in_order(history: &History<'_>, life: &Life) -> Option<Micros> {
    let End::Process(ended, Ending::Exited) = life.end else {
        return None;
    };
    let asked = history.processes.get(&life.process)?.asked_to_leave?;
    // Clocks drift.
    let waited = ended - asked + 10 * MILLIS >= history.trace.leave_patience;
    let had_a_majority = life.views.last().is_none_or(|(_, view)| view.is_primary());
    (had_a_majority && !waited).then_some(ended)
}

/// G7: where nothing else happens, a node that is asked to leave is soon in no member's view.
fn leaves_promptly(history: &History<'_>, within: Micros, report: &mut Report) {
    let asked: BTreeMap<Incarnation, Micros> = history
        .lives
        .iter()
        .filter_map(|life| {
            Some((
                life.incarnation,
                history.processes.get(&life.process)?.asked_to_leave?,
            ))
        })
        .collect();
    let end = history.trace.lines.last().map_or(0, |line| line.at);
    for life in &history.lives {
        let over = match life.end {
            End::Open => end,
            End::Process(at, _) | End::Succeeded(at) => at,
        };
        for (index, (_, view)) in life.views.iter().enumerate() {
            let until = life.views.get(index + 1).map_or(over, |(next, _)| *next);
            let members = view.members.iter().map(|member| member.incarnation);
            for (who, asked) in members.filter_map(|who| Some((who, asked.get(&who)?))) {
                report.check("G7", until, until <= asked + within, || {
                    format!(
                        "{} has {} in its node view {} so long after that one was asked to leave",
                        history.name(life),
                        who.short(),
                        view.id
                    )
                });
            }
        }
    }
}
