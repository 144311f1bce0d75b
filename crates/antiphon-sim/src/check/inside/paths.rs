//! G36, G37 and R20. Bad pairs: no member is removed because of a dead path if another member hears both
//! ends, or because the members that should have heard it were stopped. A frame that goes through another
//! member goes one hop.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::BallotStep;
use antiphon_core::wire::frame::Kind;
use antiphon_core::wire::{Accusation, Cause, Departure, Evidence, Incarnation, Lineage, NodeView, ViewId};

use super::links::{delays, stays};
use crate::agenda::{Micros, SECONDS};
use crate::check::Report;
use crate::check::history::History;
use crate::trace::{Inside, Pass, ProcessId, Seen, Slot, Trace};

/// A message may take this long while there is some way: until its path is known to be dead, and it is
/// repaired over another.
const REPAIRED_WITHIN: Micros = 4 * SECONDS;

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    removals(history.trace, report);
    passes(&history.trace.passes, history.trace, report);
    if let Some(from) = history.trace.nothing_passes_from {
        let late: Vec<Micros> = history
            .trace
            .passes
            .iter()
            .map(|pass| pass.at)
            .filter(|at| *at >= from)
            .collect();
        report.check(
            "R20",
            late.first().copied().unwrap_or(from),
            late.is_empty(),
            || {
                format!(
                    "{} frames went through another although all paths worked and it was long calm",
                    late.len()
                )
            },
        );
    }
    if history.trace.bridged {
        stays(history, report, "G36");
        delays(history, report, "G36", REPAIRED_WITHIN);
    }
}

/// What is known of the network and the hosts at a time.
#[derive(Default)]
struct Ground {
    places: BTreeMap<ProcessId, Slot>,
    processes: BTreeMap<Incarnation, ProcessId>,
    /// Cut now, or mended then.
    cut: BTreeSet<(Slot, Slot)>,
    mended: BTreeMap<(Slot, Slot), Micros>,
    /// Nothing happened to the host since.
    calm: BTreeMap<Slot, Micros>,
    /// The same, but that it was stopped and went on.
    swift: BTreeMap<Slot, Micros>,
    running: BTreeSet<ProcessId>,
    rough: bool,
    calm_everywhere: Micros,
    /// Since when each process has had each incarnation in its views.
    met: BTreeMap<ProcessId, BTreeMap<Incarnation, Micros>>,
}

impl Ground {
    fn learn(&mut self, at: Micros, process: ProcessId, what: &Seen) {
        match what {
            Seen::Started { slot, .. } => {
                self.places.insert(process, *slot);
                self.calm.insert(*slot, at);
                self.swift.insert(*slot, at);
                self.running.insert(process);
            }
            Seen::Ended(_) | Seen::AskedToLeave => {
                self.running.remove(&process);
            }
            Seen::Incarnation(incarnation) => {
                self.processes.retain(|_, other| *other != process);
                self.processes.insert(*incarnation, process);
                self.met.remove(&process);
            }
            Seen::NodeView(view) => {
                let met = self.met.entry(process).or_default();
                met.retain(|member, _| view.contains(*member));
                for member in &view.members {
                    met.entry(member.incarnation).or_insert(at);
                }
            }
            Seen::Cut { from, to, cut: true } => {
                self.cut.insert((*from, *to));
            }
            Seen::Cut { from, to, cut: false } if self.cut.remove(&(*from, *to)) => {
                self.mended.insert((*from, *to), at);
            }
            Seen::Disturbed { slot, until, stopped } => {
                let calm = self.calm.entry(*slot).or_default();
                *calm = (*calm).max(*until);
                if !stopped {
                    let swift = self.swift.entry(*slot).or_default();
                    *swift = (*swift).max(*until);
                }
            }
            Seen::Rough(rough) => {
                self.rough = *rough;
                self.calm_everywhere = at;
            }
            _ => {}
        }
    }

    /// Whether both have worked well, with good paths to each other, and known each other, since then.
    fn well(&self, since: Micros, one: Incarnation, other: Incarnation) -> bool {
        self.pair(since, (one, &self.calm), (other, &self.calm))
    }

    /// The same, but the one may have been stopped.
    fn well_but_stopped(&self, since: Micros, one: Incarnation, other: Incarnation) -> bool {
        !self.rough
            && self.calm_everywhere <= since
            && self.pair(since, (one, &self.swift), (other, &self.calm))
    }

    fn pair(
        &self,
        since: Micros,
        (one, of_one): (Incarnation, &BTreeMap<Slot, Micros>),
        (other, of_other): (Incarnation, &BTreeMap<Slot, Micros>),
    ) -> bool {
        let place = |who: Incarnation, calm: &BTreeMap<Slot, Micros>| {
            let process = self
                .processes
                .get(&who)
                .filter(|process| self.running.contains(process))?;
            let slot = *self.places.get(process)?;
            let calm = calm.get(&slot).is_some_and(|calm| *calm <= since);
            calm.then_some((*process, slot))
        };
        let (Some((here, a)), Some((there, b))) = (place(one, of_one), place(other, of_other)) else {
            return false;
        };
        let met = |process: ProcessId, who: Incarnation| {
            let met = self.met.get(&process).and_then(|met| met.get(&who));
            met.is_some_and(|met| *met <= since)
        };
        let open = |from: Slot, to: Slot| {
            !self.cut.contains(&(from, to))
                && self.mended.get(&(from, to)).is_none_or(|mended| *mended <= since)
        };
        met(here, other) && met(there, one) && open(a, b) && open(b, a)
    }

    /// A member that has heard both all the time since then, and that both have heard.
    fn bridge(
        &self,
        since: Micros,
        members: &[Incarnation],
        one: Incarnation,
        other: Incarnation,
    ) -> Option<Incarnation> {
        if self.rough || self.calm_everywhere > since || !self.lives(one) || !self.lives(other) {
            return None;
        }
        let between = |member: &Incarnation| {
            *member != one
                && *member != other
                && self.well(since, *member, one)
                && self.well(since, *member, other)
        };
        members.iter().copied().find(between)
    }

    fn lives(&self, who: Incarnation) -> bool {
        self.processes
            .get(&who)
            .is_some_and(|process| self.running.contains(process))
    }
}

/// The members that accuse another of silence, or of hearing nothing, whatever else there is against it.
/// Observers say only that they do not hear it well enough; where some hosts lose what they send, that need
/// not be silence.
fn deaf_accusers(departure: &Departure, some_lose: bool) -> Vec<Incarnation> {
    let deaf = |accusation: &&Accusation| match accusation.evidence {
        Evidence::Silent { .. } | Evidence::ConnectionLost | Evidence::Deaf => true,
        Evidence::Observed => !some_lose,
        _ => false,
    };
    match &departure.cause {
        Cause::Unreachable { from } => vec![*from],
        Cause::Crashed => {
            let accusers = departure.accusers.iter().filter(deaf);
            accusers.map(|accusation| accusation.accuser).collect()
        }
        _ => Vec::new(),
    }
}

/// What was known of a removal when the first member voted for it.
struct Removal {
    accusers: Vec<Incarnation>,
    own_fault: bool,
    bridges: Option<Vec<Incarnation>>,
}

/// Looked at when the first member votes for it, since what happens later was not known; and judged if a view
/// comes of it: others may know better.
fn removals(trace: &Trace, report: &mut Report) {
    let mut ground = Ground::default();
    type Key = (Lineage, ViewId, Incarnation);
    let mut judged: BTreeSet<Key> = BTreeSet::new();
    let mut voted: BTreeMap<Key, Vec<(Cause, Removal)>> = BTreeMap::new();
    // When a view in which nothing is passed on was seen last: relays begin in the next one.
    let mut wide: Option<Micros> = None;
    for line in &trace.lines {
        ground.learn(line.at, line.process, &line.what);
        if let Seen::NodeView(view) = &line.what
            && view.is_primary()
        {
            for departure in &view.departed {
                let key = (view.lineage, view.primary_id(), departure.member.incarnation);
                // Once, and not again for each member that installs it.
                let votes = voted.get(&key).filter(|_| judged.insert(key));
                let vote = votes.and_then(|votes| votes.iter().find(|(cause, _)| *cause == departure.cause));
                if let Some((_, removal)) = vote {
                    judge(line.at, view, departure, removal, report);
                }
            }
        }
        let Seen::Inside(Inside::Ballot(note)) = &line.what else {
            continue;
        };
        let (BallotStep::Accepted, view): (_, &NodeView) = (&note.step, &note.view) else {
            continue;
        };
        let departed = view.departed.iter().map(|departure| departure.member.incarnation);
        let members: Vec<Incarnation> = view
            .members
            .iter()
            .map(|member| member.incarnation)
            .chain(departed)
            .collect();
        let before = members.len() - view.joined.len();
        if trace.passes_on_up_to.is_some_and(|most| before > most) {
            wide = Some(line.at);
        }
        let since = line.at.checked_sub(trace.pair_patience);
        let Some(since) = since.filter(|since| wide.is_none_or(|wide| wide < *since)) else {
            continue;
        };
        for departure in &view.departed {
            own_pauses(trace, &ground, line.at, view, departure, report);
            let gone = departure.member.incarnation;
            let accusers = deaf_accusers(departure, trace.faulty.is_some());
            let votes = voted.entry((view.lineage, view.primary_id(), gone)).or_default();
            if accusers.is_empty() || votes.iter().any(|(cause, _)| *cause == departure.cause) {
                continue;
            }
            let own_fault = accusers
                .iter()
                .all(|accuser| ground.well_but_stopped(since, *accuser, gone));
            // All observers are named, also observers that heard it.
            let heard_it = |accuser: &Incarnation| ground.well(since, *accuser, gone);
            let observed = |accusation: &Accusation| accusation.evidence == Evidence::Observed;
            let observed = departure.accusers.iter().any(observed);
            let deaf = accusers.iter().filter(|accuser| !(observed && heard_it(accuser)));
            let bridges: Option<Vec<Incarnation>> = deaf
                .map(|accuser| ground.bridge(since, &members, *accuser, gone))
                .collect();
            let removal = Removal {
                bridges: bridges.filter(|bridges| !bridges.is_empty()),
                accusers,
                own_fault,
            };
            votes.push((departure.cause.clone(), removal));
        }
    }
}

fn judge(at: Micros, view: &NodeView, departure: &Departure, removal: &Removal, report: &mut Report) {
    let Removal {
        accusers,
        own_fault,
        bridges,
    } = removal;
    report.check("G37", at, !own_fault, || {
        format!(
            "{} is removed by {} as {:?}, accused by {accusers:?}, although it ran and they could hear it",
            departure.member.name, view.id, departure.cause
        )
    });
    report.check("G36", at, bridges.is_none(), || {
        format!(
            "{} is removed by {} as {:?}, accused by {accusers:?}, although {bridges:?} heard it and them",
            departure.member.name, view.id, departure.cause
        )
    });
}

/// A node that counts only while it runs notices a silence when it is as long as its patience. A longer
/// silence has the node's own pause in it.
fn own_pauses(
    trace: &Trace,
    ground: &Ground,
    at: Micros,
    view: &NodeView,
    departure: &Departure,
    report: &mut Report,
) {
    for accusation in &departure.accusers {
        let Evidence::Silent { for_ms } = accusation.evidence else {
            continue;
        };
        let since = at.saturating_sub(2 * trace.pair_patience);
        let place = ground.processes.get(&accusation.accuser);
        let place = place.and_then(|process| ground.places.get(process));
        let was_slow = place.and_then(|slot| ground.swift.get(slot));
        if was_slow.is_none_or(|until| *until > since) {
            continue;
        }
        let counts_its_pause = Micros::from(for_ms) * 1000 > trace.longest_silence;
        report.check("G37", at, !counts_its_pause, || {
            format!(
                "{} says that {} was silent for {for_ms} ms, in {}: it did not run itself",
                accusation.accuser.short(),
                departure.member.name,
                view.id
            )
        });
    }
}

/// One hop: each frame is asked to be passed on by one process, passed on once to each, and never back or in
/// another one.
fn passes(passes: &[Pass], trace: &Trace, report: &mut Report) {
    let mut processes: BTreeMap<Incarnation, ProcessId> = BTreeMap::new();
    let mut places: BTreeMap<ProcessId, Slot> = BTreeMap::new();
    for line in &trace.lines {
        match &line.what {
            Seen::Incarnation(incarnation) => {
                processes.insert(*incarnation, line.process);
            }
            Seen::Started { slot, .. } => {
                places.insert(line.process, *slot);
            }
            _ => {}
        }
    }
    // For each frame and target: which member asked which first.
    let mut asked = BTreeMap::new();
    let mut passed = BTreeSet::new();
    for pass in passes {
        let name = || {
            format!(
                "frame {:?} by process {} to slot {}",
                pass.frame, pass.by, pass.to
            )
        };
        let sealer = processes
            .get(&pass.frame.1)
            .and_then(|process| places.get(process));
        report.check("R20", pass.at, !pass.nested, || {
            format!("{} has another one inside", name())
        });
        let back = pass.targets.is_empty() && sealer == Some(&pass.to);
        report.check("R20", pass.at, !back, || {
            format!("{} goes back to its sender", name())
        });
        for target in &pass.targets {
            // What a chain hands on may come to one member twice, and so goes on from there twice.
            let way = (pass.by, pass.to);
            let first: (ProcessId, Slot) = *asked.entry((pass.frame, *target)).or_insert(way);
            let once = first == way || pass.frame.0 == Kind::Chain as u8 && first.0 == pass.by;
            report.check("R20", pass.at, once, || {
                format!(
                    "{} is to be passed on a second time, after process {} asked slot {}",
                    name(),
                    first.0,
                    first.1
                )
            });
        }
        if pass.targets.is_empty() {
            // A fresh incarnation has seen no frame yet: a late copy of what another was asked to pass on
            // reaches its target again.
            let first = passed.insert((pass.incarnation, pass.frame, pass.to));
            report.check("R20", pass.at, first, || {
                format!("{} was passed on before", name())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use antiphon_core::Order;

    use super::*;
    use crate::check::testing::{Story, incarnation};

    fn broken(story: &Story) -> Vec<&'static str> {
        let report = crate::check::check(&story.trace);
        report
            .violations
            .iter()
            .map(|violation| violation.guarantee)
            .collect()
    }

    /// Process 2 of three is removed, accused of silence by process 0; whatever is good, is good for long.
    fn removed_after(faults: &[Seen]) -> Vec<&'static str> {
        removed(&Evidence::Silent { for_ms: 1500 }, faults)
    }

    fn removed(evidence: &Evidence, faults: &[Seen]) -> Vec<&'static str> {
        let mut story = Story::of(3, Order::Fifo);
        story.trace.pair_patience = 0;
        for fault in faults {
            story.add(ProcessId::MAX, fault.clone());
        }
        story.node_view_by(evidence, &[0, 1], &[0, 1, 2], 2, &[0, 1]);
        broken(&story)
    }

    fn cut(from: Slot, to: Slot) -> Seen {
        Seen::Cut { from, to, cut: true }
    }

    #[test]
    fn a_member_removed_although_another_heard_both_is_rejected() {
        assert!(removed_after(&[cut(0, 2), cut(2, 0)]).contains(&"G36"));
        assert!(removed_after(&[cut(2, 0)]).contains(&"G36"));
    }

    #[test]
    fn a_vote_of_which_no_view_comes_removes_nobody() {
        let mut story = Story::of(3, Order::Fifo);
        story.trace.pair_patience = 0;
        story.add(ProcessId::MAX, cut(2, 0));
        let silent = Evidence::Silent { for_ms: 1500 };
        let view = Arc::new(Story::view_by(&silent, &[0, 1], &[0, 1, 2], 2));
        story.ballot(0, &view, 0, BallotStep::Accepted);
        assert!(!broken(&story).contains(&"G36"));
        story.seen(&view, &[0]);
        assert!(broken(&story).contains(&"G36"));
    }

    #[test]
    fn a_member_removed_by_observers_is_judged_like_one_called_silent() {
        let observed = |faults: &[Seen]| removed(&Evidence::Observed, faults);
        assert!(observed(&[cut(0, 2), cut(2, 0)]).contains(&"G36"));
        assert!(!observed(&[cut(2, 0), cut(1, 2)]).contains(&"G36"));
        let stopped = Seen::Disturbed {
            slot: 0,
            until: 1_000_000,
            stopped: true,
        };
        assert!(observed(&[stopped]).contains(&"G37"));
        assert!(observed(&[]).contains(&"G37"), "they could hear it");
    }

    #[test]
    fn a_member_removed_because_of_its_accusers_own_pause_is_rejected() {
        let stopped = |slot, stopped| Seen::Disturbed {
            slot,
            until: 1_000_000,
            stopped,
        };
        assert!(removed_after(&[stopped(0, true)]).contains(&"G37"));
        assert!(
            !removed_after(&[stopped(0, false)]).contains(&"G37"),
            "it was too slow to hear it"
        );
        assert!(
            !removed_after(&[stopped(2, true)]).contains(&"G37"),
            "it was stopped itself"
        );
    }

    #[test]
    fn a_silence_longer_than_anybody_waits_for_is_rejected() {
        let removed = |longest_silence| {
            let mut story = Story::of(3, Order::Fifo);
            story.trace.pair_patience = 0;
            story.trace.longest_silence = longest_silence;
            story.node_view(&[0, 1], &[0, 1, 2], 2, &[0, 1]);
            broken(&story)
        };
        let said = |violations: Vec<&str>| violations.iter().filter(|name| **name == "G37").count();
        // Whatever else is wrong with it is so in both.
        assert!(said(removed(1_499_999)) > said(removed(1_500_000)));
    }

    #[test]
    fn a_member_removed_that_nobody_else_heard_is_accepted() {
        assert!(!removed_after(&[cut(2, 0), cut(1, 2)]).contains(&"G36"));
        assert!(!removed_after(&[cut(2, 0), cut(0, 1)]).contains(&"G36"));
        assert!(!removed_after(&[cut(2, 0), Seen::Rough(true)]).contains(&"G36"));
    }

    fn passed(by: ProcessId, to: Slot, targets: &[ProcessId]) -> Pass {
        Pass {
            at: 0,
            by,
            incarnation: incarnation(by),
            to,
            targets: targets.iter().map(|target| incarnation(*target)).collect(),
            frame: (0, incarnation(0), 7),
            nested: false,
        }
    }

    fn ways(passes: Vec<Pass>) -> Vec<&'static str> {
        let mut story = Story::of(4, Order::Fifo);
        story.trace.passes = passes;
        broken(&story)
    }

    #[test]
    fn a_frame_goes_through_one_other_and_once() {
        let asked = passed(0, 1, &[2, 3]);
        let good = [asked.clone(), passed(1, 2, &[]), passed(1, 3, &[])];
        assert_eq!(ways(good.to_vec()), [""; 0]);
        assert_eq!(ways(vec![asked.clone(), passed(1, 3, &[2])]), ["R20"], "two hops");
        assert_eq!(ways(vec![asked.clone(), passed(1, 0, &[])]), ["R20"], "back");
        assert_eq!(ways(vec![passed(1, 2, &[]), passed(1, 2, &[])]), ["R20"], "twice");
        assert_eq!(ways(vec![asked.clone(), passed(0, 3, &[2])]), ["R20"], "two ways");
        let nested = Pass {
            nested: true,
            ..asked
        };
        assert_eq!(ways(vec![nested]), ["R20"]);
    }

    #[test]
    fn a_relay_that_begins_anew_may_pass_on_what_it_passed_on_in_its_last_moment() {
        // What it did as its former incarnation goes out in the step in which it begins anew.
        let anew = Pass {
            incarnation: incarnation(7),
            ..passed(1, 2, &[])
        };
        assert_eq!(ways(vec![passed(1, 2, &[]), anew.clone()]), [""; 0]);
        assert_eq!(ways(vec![passed(1, 2, &[]), anew.clone(), anew]), ["R20"]);
    }
}
