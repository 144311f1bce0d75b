//! The one order of the steps of a state, found from what each member applied.
//!
//! ```text
//!  all members      1 ── 2 ── 3 ── 4 ── 5 ─────── 6 (A is gone) ── 7 ── …     the line
//!  A, in its last view            └─── 4' ── 5'                              undone
//! ```
//! Members agree on each place. There is one exception (G45): what a member applied in its last view, if its
//! group's messages are not safe. Then the others go on without it, and the next change of members on the
//! line says that it is gone. If all members that had the state are gone, it cannot be told what was undone.
//!
//! Components that both go on (policy `any`, G41) each have a line ([`parts`]). The lines are the same up to
//! the place where the components part. Then each line says that the members of the other are gone.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::Incarnation;
use antiphon_replica::{At, Change};

use super::LineNumber;
use super::parts::{Part, parts};
use crate::agenda::Micros;
use crate::check::Report;
use crate::machine::{Step, Stepped};
use crate::trace::ProcessId;

/// One member while it has a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tenure {
    pub(super) process: ProcessId,
    /// Counts the times it had one.
    pub(super) stay: u64,
    pub(super) state: u64,
}

/// What all members applied.
#[derive(Default)]
pub(super) struct Tenures<'a> {
    all: BTreeMap<Tenure, Log<'a>>,
}

pub(super) struct Log<'a> {
    who: Option<Incarnation>,
    pub(super) steps: BTreeMap<u64, Applied<'a>>,
    last: LineNumber,
}

pub(super) struct Applied<'a> {
    line: LineNumber,
    at: Micros,
    place: At,
    step: &'a Step,
}

impl Applied<'_> {
    /// Whether that is the same step at the same place.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.step.what == other.step.what && self.place == other.place
    }
}

impl<'a> Tenures<'a> {
    pub(super) fn add(
        &mut self,
        tenure: Tenure,
        who: Option<Incarnation>,
        line: LineNumber,
        at: Micros,
        place: At,
        step: &'a Step,
    ) {
        let log = self.all.entry(tenure).or_insert_with(|| Log {
            who,
            steps: BTreeMap::new(),
            last: line,
        });
        log.last = line;
        log.steps.insert(
            place.index,
            Applied {
                line,
                at,
                place,
                step,
            },
        );
    }

    /// What a member applied at a place.
    pub(super) fn step(&self, tenure: Tenure, index: u64) -> Option<(&At, &'a Step)> {
        let applied = self.all.get(&tenure)?.steps.get(&index)?;
        Some((&applied.place, applied.step))
    }
}

/// The steps of a state that count.
pub(super) struct Line<'a> {
    /// The name of the state.
    pub(super) state: u64,
    steps: BTreeMap<u64, (LineNumber, Micros, At, &'a Step)>,
    /// From which place on what a member applied does not count.
    off: BTreeMap<Tenure, u64>,
}

impl<'a> Line<'a> {
    pub(super) fn steps(&self) -> impl Iterator<Item = (u64, (Micros, At, &'a Step))> + '_ {
        let steps = self.steps.iter();
        steps.map(|(index, (_, at, place, step))| (*index, (*at, *place, *step)))
    }

    /// Whether what this member has up to there counts.
    pub(super) fn has(&self, tenure: Tenure, index: u64) -> bool {
        self.off.get(&tenure).is_none_or(|from| index < *from)
    }

    pub(super) fn founded(&self) -> LineNumber {
        self.steps.values().next().map_or(0, |(line, ..)| *line)
    }

    pub(super) fn places_of_commands(&self) -> BTreeMap<u64, u64> {
        let commands = self
            .steps
            .iter()
            .filter_map(|(index, (_, _, _, step))| match &step.what {
                Stepped::Command(_, command, _) => Some((command.op, *index)),
                _ => None,
            });
        commands.collect()
    }
}

/// The line of each state, or the lines, where components `part`. `open` are the members that have it at the
/// end, if the run came to rest.
pub(super) fn lines<'a>(
    tenures: &Tenures<'a>,
    open: &BTreeSet<Tenure>,
    safe: bool,
    part: bool,
    report: &mut Report,
) -> Vec<Line<'a>> {
    let mut states: BTreeMap<u64, BTreeMap<Tenure, &Log<'a>>> = BTreeMap::new();
    for (tenure, log) in &tenures.all {
        states.entry(tenure.state).or_default().insert(*tenure, log);
    }
    let mut lines = Vec::new();
    for (state, logs) in states {
        if part {
            let parts = parts(&logs).into_iter();
            lines.extend(parts.map(|part| line(state, &logs, Some(part), open, safe, report)));
        } else {
            lines.push(line(state, &logs, None, open, safe, report));
        }
    }
    lines
}

fn line<'a>(
    state: u64,
    logs: &BTreeMap<Tenure, &Log<'a>>,
    part: Option<Part>,
    open: &BTreeSet<Tenure>,
    safe: bool,
    report: &mut Report,
) -> Line<'a> {
    let mut line = Line {
        state,
        steps: BTreeMap::new(),
        off: part.as_ref().map(|part| part.off.clone()).unwrap_or_default(),
    };
    let begins = logs.values().filter_map(|log| log.steps.first_key_value());
    let last = logs.values().filter_map(|log| log.steps.keys().next_back()).max();
    // A member that got the state later may know it risen.
    let (Some((first, founding)), Some(last)) = (begins.min_by_key(|(index, _)| *index), last.copied())
    else {
        return line;
    };
    let first = *first;
    let mut time = At {
        index: 0,
        time: antiphon_replica::AgreedTime::default(),
        ..founding.place
    };
    for index in first..=last {
        let there: Vec<(Tenure, &Log<'a>, &Applied<'a>)> = logs
            .iter()
            .filter(|(tenure, _)| line.has(**tenure, index))
            .filter_map(|(tenure, log)| Some((*tenure, *log, log.steps.get(&index)?)))
            .collect();
        // Of several, the step of the members that went on counts: they came further. A member that was
        // paused meanwhile applies later than they do, and not so far.
        let Some((_, _, counts)) = there.iter().max_by_key(|(tenure, log, _)| {
            let reached = log.steps.keys().next_back();
            (open.contains(tenure), reached, log.last)
        }) else {
            continue;
        };
        for (tenure, _, applied) in &there {
            let process = tenure.process;
            if applied.is(counts) {
                // G28: equal states at equal places.
                report.check("G28", applied.at, applied.step == counts.step, || {
                    format!(
                        "state {state} at {index} differs: p{process} has {:?}, others {:?}",
                        applied.step, counts.step
                    )
                });
            } else {
                line.off.insert(*tenure, index);
                report.check("G45", applied.at, !safe && !open.contains(tenure), || {
                    let (here, others) = (&applied.step.what, &counts.step.what);
                    format!("state {state}: p{process} applies at {index} {here:?}, others {others:?}")
                });
            }
        }
        let founded = match matches!(&counts.step.what, Stepped::Members(change) if rises(change)) {
            true => counts.place.founded >= time.founded,
            false => counts.place.founded == time.founded,
        };
        report.check(
            "G46",
            counts.at,
            counts.place.time >= time.time && founded,
            || {
                format!(
                    "state {state}: agreed time goes from {time:?} to {:?}",
                    counts.place
                )
            },
        );
        time = counts.place;
        let earliest = there
            .iter()
            .map(|(_, _, applied)| applied.line)
            .min()
            .unwrap_or(counts.line);
        line.steps
            .insert(index, (earliest, counts.at, counts.place, counts.step));
    }
    match part {
        Some(part) => check_parted(logs, &line, &part, open, report),
        None => check_undone(state, logs, &line, open, report),
    }
    line
}

/// G45: a member that has another line is gone from this one, and at rest all have one line.
fn check_parted<'a>(
    logs: &BTreeMap<Tenure, &Log<'a>>,
    line: &Line<'a>,
    part: &Part,
    open: &BTreeSet<Tenure>,
    report: &mut Report,
) {
    let is_open = open
        .iter()
        .any(|tenure| tenure.state == line.state && !line.off.contains_key(tenure));
    if !is_open {
        return;
    }
    for (tenure, from) in &line.off {
        let who = logs.get(tenure).and_then(|log| log.who);
        let mut later = line.steps.range(from..);
        let gone = later.any(|(_, (.., step))| match &step.what {
            Stepped::Members(change) => who.is_some_and(|who| change.gone.contains(&who)),
            _ => false,
        });
        let gone = gone || part.elsewhere.contains(tenure);
        report.check("G45", 0, gone && !open.contains(tenure), || {
            let (process, state) = (tenure.process, line.state);
            format!("state {state}: p{process} has another line from {from} on, and others go on with it")
        });
    }
}

/// G45: only a member that the others go on without applies what does not count.
fn check_undone<'a>(
    state: u64,
    logs: &BTreeMap<Tenure, &Log<'a>>,
    line: &Line<'a>,
    open: &BTreeSet<Tenure>,
    report: &mut Report,
) {
    for (tenure, from) in &line.off {
        let who = logs.get(tenure).and_then(|log| log.who);
        let mut later = line.steps.range(from..);
        // Where the founding time rises, no member comes or goes.
        let next = later.find_map(|(_, (_, at, _, step))| match &step.what {
            Stepped::Members(change) if !rises(change) => Some((*at, change)),
            _ => None,
        });
        let stays = open.iter().any(|tenure| tenure.state == state);
        let (at, gone) = match next {
            Some((at, change)) => (at, who.is_some_and(|who| change.gone.contains(&who))),
            None => (0, !stays),
        };
        report.check("G45", at, gone, || {
            let process = tenure.process;
            format!(
                "state {state}: p{process} applied from {from} on what others did not, and they go on with it"
            )
        });
    }
}

/// At a change of members in which no member comes or goes, the founding time rises above what a member has
/// seen of another state (G50).
fn rises(change: &Change) -> bool {
    change.joined.is_empty() && change.gone.is_empty()
}

#[cfg(test)]
mod tests {
    use antiphon_replica::AgreedTime;

    use super::*;

    /// The steps of one process in the one component, from which place to which place. The others go on apart
    /// from place 2 on.
    fn applied(who: ProcessId, places: std::ops::RangeInclusive<u64>, gone: ProcessId) -> Vec<(At, Step)> {
        let here = |index| {
            let change = Change {
                gone: vec![member(gone)],
                ..Change::default()
            };
            let place = At {
                index,
                time: AgreedTime {
                    millis: index * 10 + if index > 2 { who as u64 % 2 } else { 0 },
                },
                founded: 1,
            };
            let step = Step {
                state: 7,
                digest: 0,
                what: match index {
                    2 => Stepped::Members(change),
                    _ => Stepped::Timeout,
                },
                locks: Vec::new(),
                changed: Vec::new(),
                counted: Vec::new(),
            };
            (place, step)
        };
        places.map(here).collect()
    }

    fn member(process: ProcessId) -> Incarnation {
        Incarnation(process as u128 + 1)
    }

    #[test]
    fn who_joins_those_that_joined_later_is_on_their_line() {
        // The members with even numbers go on apart from 1; 4 knows of no step that 0 has made.
        let all = [
            (0, applied(0, 1..=5, 1)),
            (1, applied(1, 1..=3, 0)),
            (2, applied(2, 4..=8, 1)),
            (4, applied(4, 6..=8, 1)),
        ];
        let (mut tenures, mut open) = (Tenures::default(), BTreeSet::new());
        for (process, steps) in &all {
            let tenure = Tenure {
                process: *process,
                stay: 0,
                state: 7,
            };
            for (place, step) in steps {
                tenures.add(tenure, Some(member(*process)), 1, 0, *place, step);
            }
            if *process >= 2 {
                open.insert(tenure);
            }
        }
        let mut report = Report::default();
        let lines = lines(&tenures, &open, true, true, &mut report);
        assert_eq!(lines.len(), 2);
        assert!(report.violations.is_empty(), "{:?}", report.violations);
    }
}
