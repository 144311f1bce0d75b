//! R4: which nodes may found, and that no node founds beside a cluster that it could know of.
//!
//! A second lineage is no fault by itself: a node that has voted may have been started again and forgotten
//! it. It is a fault
//! - with seeds, if the same start of a process founded both;
//! - with `expect` N, if fewer than 2N processes had been started until then: of any two times N of them one
//!   voted twice;
//! - with `expect` N, if fewer than N of its founders could not have known of the first lineage. A founder
//!   could have known if a member was there, the paths between them worked, and one of these was true: the
//!   founder was told of the member, or would have been told a moment after it had started; a locator was
//!   there for both; no locator had been there yet, and one might have come up in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::wire::{Incarnation, Lineage, NodeView};

use super::chain::Chain;
use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::check::Report;
use crate::check::history::History;
use crate::check::history::names;
use crate::trace::{ProcessId, Seen, Slot, Trace};

/// A path that has worked for so long is used: a dial that met silence is repeated within it.
const DIALLED_WITHIN: Micros = 5 * SECONDS;
/// If a node is told of others so soon after it has started, it is given time to ask them before it founds:
/// half of that time.
const NAMED_WITHIN: Micros = 300 * MILLIS;

pub(super) fn check(history: &History<'_>, chains: &BTreeMap<Lineage, Chain>, report: &mut Report) {
    founders(history, chains, report);
    if let Some(expected) = history.trace.expect {
        beside(history.trace, expected, report);
    }
}

/// R4: a founding view holds a majority of the seeds, or the number expected, and a second lineage has an
/// excuse: those seeds forgot.
fn founders(history: &History<'_>, chains: &BTreeMap<Lineage, Chain>, report: &mut Report) {
    let seeds = &history.trace.seeds;
    let mut foundings: Vec<(Micros, Arc<NodeView>)> = Vec::new();
    for chain in chains.values() {
        let Some((at, first)) = chain.values().next() else {
            continue;
        };
        let present = seeds
            .iter()
            .filter(|seed| first.members.iter().any(|member| member.addr == **seed))
            .count();
        // Those of later epochs were not founded but recovered: `overrides` looks at them.
        let founds = first.primary_id().counter == 1 && first.primary_id().epoch == 1;
        if let Some(expected) = history.trace.expect.filter(|_| founds) {
            let enough = first.members.len() >= expected;
            report.check("founding", *at, enough, || {
                format!(
                    "node view {} {} was founded by fewer than the {expected} nodes expected",
                    first.id,
                    names(first)
                )
            });
        }
        let complete = !founds || seeds.is_empty() || 2 * present > seeds.len();
        report.check("founding", *at, complete, || {
            format!(
                "node view {} {} was founded by {present} of {} seeds",
                first.id,
                names(first),
                seeds.len()
            )
        });
        foundings.push((*at, first.clone()));
    }
    foundings.sort_by_key(|(at, _)| *at);
    for (index, (at, later)) in foundings.iter().enumerate() {
        for (_, earlier) in &foundings[..index] {
            if later.primary_id().epoch > 1 {
                continue;
            }
            // The same start of the same process in both, without having been removed in between, voted
            // twice. Where a number is expected, some founders need not have voted; how many may have is told
            // by `beside`.
            let twice = later.members.iter().find(|member| {
                history.life(member.incarnation).is_some_and(|new| {
                    earlier
                        .members
                        .iter()
                        .filter_map(|old| history.life(old.incarnation))
                        .any(|old| {
                            old.process == new.process
                                && (old.incarnation == new.incarnation || old.from >= new.from)
                        })
                })
            });
            let excused = history.trace.expect.is_some();
            report.check("founding", *at, twice.is_none() || excused, || {
                format!(
                    "{twice:?} founded lineages {} and {}",
                    earlier.lineage, later.lineage
                )
            });
            report.excused += 1;
        }
    }
}

/// A second lineage although it could have been known that there is a first.
fn beside(trace: &Trace, expected: usize, report: &mut Report) {
    let mut ground = Ground::new(trace);
    let mut lineages = BTreeSet::new();
    for line in &trace.lines {
        ground.learn(line.at, line.process, &line.what);
        let Seen::NodeView(view) = &line.what else {
            continue;
        };
        let id = view.primary_id();
        let first = view.is_primary() && (id.epoch, id.counter) == (1, 1);
        if !lineages.insert(view.lineage) || lineages.len() == 1 || !first {
            continue;
        }
        let starts = ground.starts;
        report.check("founding", line.at, starts >= 2 * expected, || {
            format!(
                "node view {} {} founded another lineage after {starts} starts, of which {expected} twice have one in common",
                view.id,
                names(view)
            )
        });
        let aware = view.members.iter().filter_map(|member| {
            Some((
                &member.name,
                ground.known_to(line.at, member.incarnation, view.lineage)?,
            ))
        });
        let aware: Vec<_> = aware.collect();
        let unaware = view.members.len() - aware.len();
        report.check("founding", line.at, unaware >= expected, || {
            let by: Vec<String> = aware
                .iter()
                .map(|(name, member)| format!("{name} of n{member}"))
                .collect();
            format!(
                "node view {} {} founded another lineage, although founders could know of members: {}",
                view.id,
                names(view),
                by.join(", ")
            )
        });
    }
}

/// What is known of hosts, paths, locators and members at a time.
#[derive(Default)]
struct Ground {
    heartbeat: Micros,
    starts: usize,
    places: BTreeMap<ProcessId, (Slot, Micros)>,
    processes: BTreeMap<Incarnation, ProcessId>,
    /// In which lineage each is in the primary view, and since when.
    primary: BTreeMap<ProcessId, (Lineage, Micros)>,
    /// What each place is told in the whole run: also what comes too late for a node that does not wait for
    /// it.
    told: BTreeMap<Slot, Vec<(Micros, Vec<Slot>)>>,
    locators: BTreeMap<Slot, Micros>,
    /// When the last of them ended; `None` if there never were any.
    without_locators: Option<Micros>,
    cut: BTreeSet<(Slot, Slot)>,
    mended: BTreeMap<(Slot, Slot), Micros>,
    calm: BTreeMap<Slot, Micros>,
    rough: bool,
    calm_everywhere: Micros,
}

impl Ground {
    fn new(trace: &Trace) -> Self {
        let mut told: BTreeMap<Slot, Vec<(Micros, Vec<Slot>)>> = BTreeMap::new();
        for line in &trace.lines {
            if let Seen::Told { slot, whom } = &line.what {
                told.entry(*slot).or_default().push((line.at, whom.clone()));
            }
        }
        Self {
            heartbeat: trace.heartbeat,
            told,
            ..Self::default()
        }
    }

    fn learn(&mut self, at: Micros, process: ProcessId, what: &Seen) {
        match what {
            Seen::Started { slot, foreign, .. } if !foreign => {
                self.starts += 1;
                self.places.insert(process, (*slot, at));
            }
            Seen::Ended(_) | Seen::AskedToLeave => {
                self.places.remove(&process);
                self.primary.remove(&process);
            }
            Seen::Incarnation(incarnation) => {
                self.processes.insert(*incarnation, process);
                self.primary.remove(&process);
            }
            Seen::NodeView(view) if view.is_primary() => {
                let known = self.primary.get(&process).copied();
                let same = known.filter(|(lineage, _)| *lineage == view.lineage);
                self.primary.insert(process, same.unwrap_or((view.lineage, at)));
            }
            Seen::NodeView(_) => {
                self.primary.remove(&process);
            }
            Seen::Locator { slot, up: true } => {
                self.locators.insert(*slot, at);
            }
            Seen::Locator { slot, up: false } => {
                self.locators.remove(slot);
                self.without_locators = Some(at);
            }
            Seen::Cut { from, to, cut: true } => {
                self.cut.insert((*from, *to));
            }
            Seen::Cut { from, to, cut: false } => {
                self.cut.remove(&(*from, *to));
                self.mended.insert((*from, *to), at);
            }
            Seen::Disturbed { slot, until, .. } => {
                let calm = self.calm.entry(*slot).or_default();
                *calm = (*calm).max(*until);
            }
            Seen::Rough(rough) => {
                self.rough = *rough;
                self.calm_everywhere = at;
            }
            _ => {}
        }
    }

    /// A member of another lineage that a founder could know of, by its place.
    fn known_to(&self, at: Micros, founder: Incarnation, founds: Lineage) -> Option<Slot> {
        let process = self.processes.get(&founder)?;
        let (home, started) = *self.places.get(process)?;
        let since = at.saturating_sub(DIALLED_WITHIN + 10 * self.heartbeat);
        if self.rough
            || self.calm_everywhere > since && self.calm_everywhere > 0
            || !self.is_calm(home, since)
        {
            return None;
        }
        let young = at - started < 40 * self.heartbeat;
        let members = self
            .primary
            .iter()
            .filter(|(_, (lineage, seated))| *lineage != founds && *seated + self.heartbeat <= at);
        let mut places = members.filter_map(|(process, _)| Some(self.places.get(process)?.0));
        places.find(|there| {
            let named = started + NAMED_WITHIN;
            let told = self.told_of(home, *there, at.max(named));
            let told = told.is_some_and(|told| told <= since.max(named));
            // A node asks when it starts, and again and again. If it has asked in vain for long, it asks
            // seldom.
            let asked_within = self.heartbeat * if young { 3 } else { 20 };
            let locator = self.locators.iter().any(|(locator, up)| {
                (*up <= started || up + asked_within <= at)
                    && self.is_open(home, *locator, since)
                    && self.is_open(*there, *locator, since)
            });
            // A node that has heard of no locator that it was given waits as long as a locator that has just
            // started would take to be there.
            let awaited = self.locators.is_empty()
                && self.without_locators.is_some_and(|ended| ended <= started)
                && at - started < 15 * self.heartbeat;
            *there != home
                && (told || locator || awaited)
                && self.is_open(home, *there, since)
                && self.is_calm(*there, since)
        })
    }

    /// Since when a place has been told of another, if it is at that time.
    fn told_of(&self, home: Slot, there: Slot, at: Micros) -> Option<Micros> {
        let told = self.told.get(&home)?.iter().rev();
        let told = told.skip_while(|(when, _)| *when > at);
        let told = told.take_while(|(_, whom)| whom.contains(&there));
        told.last().map(|(when, _)| *when)
    }

    fn is_calm(&self, slot: Slot, since: Micros) -> bool {
        self.calm.get(&slot).is_none_or(|calm| *calm <= since)
    }

    /// Whether frames have passed both ways since then.
    fn is_open(&self, a: Slot, b: Slot, since: Micros) -> bool {
        [(a, b), (b, a)].iter().all(|path| {
            !self.cut.contains(path) && self.mended.get(path).is_none_or(|mended| *mended <= since)
        })
    }
}
