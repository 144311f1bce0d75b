//! Many seeds on all cores.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use antiphon_core::EngineKind;

use crate::check::Violation;
use crate::plan::{named_on, runs_on};
use crate::run::run;
use crate::trace::hash;

/// What to run.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The plan's name.
    pub plan: String,
    /// The first seed.
    pub from: u64,
    /// How many seeds.
    pub seeds: u64,
    /// How many nodes; the plan's own number without.
    pub nodes: Option<usize>,
    /// The membership engine; each seed draws one without.
    pub membership: Option<EngineKind>,
    /// Threads.
    pub jobs: usize,
    /// Stop at the first failure.
    pub stop_at_failure: bool,
    /// Start no seed after this time.
    pub within: Option<Duration>,
}

/// What the run gave.
#[derive(Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// How many of them on each membership engine, by its name.
    pub engines: BTreeMap<&'static str, u64>,
    /// The failing ones, in order.
    pub failures: Vec<Failure>,
    /// Virtual time of all of them, in microseconds.
    pub simulated: u128,
    /// Wall time.
    pub wall: Duration,
    /// Faults really made.
    pub faults: BTreeMap<&'static str, u64>,
    /// Evaluations of each check.
    pub checks: BTreeMap<&'static str, u64>,
    /// Runs whose end demanded progress.
    pub liveness: u64,
    /// Lineages founded beside another, each with the documented excuse.
    pub forks: u64,
    /// A number over all outputs and events of all runs, in whatever order these ended: a change of the code
    /// that changes no behaviour leaves it as it is.
    pub digest: u64,
}

impl Campaign {
    /// Engines that some seed should have drawn and none did. If so many seeds draw, the chance is one in
    /// half a million that all draw the same of two engines.
    pub fn never_drawn(&self, summary: &Summary) -> Vec<EngineKind> {
        const ENOUGH: u64 = 20;
        let due = |engine: &EngineKind| match self.membership {
            Some(only) => only == *engine,
            None => runs_on(&self.plan, *engine) && summary.seeds >= ENOUGH,
        };
        let engines = EngineKind::ALL.into_iter().filter(due);
        engines
            .filter(|engine| !summary.engines.contains_key(engine.name()))
            .collect()
    }
}

/// A failing seed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// Its membership engine.
    pub membership: EngineKind,
    /// What it broke.
    pub violations: Vec<Violation>,
}

/// Runs the seeds. `tell` hears of each as it is done: what has been gathered so far, and whether this one
/// failed.
pub fn conduct(campaign: &Campaign, tell: impl Fn(&Summary, Option<&Failure>) + Sync) -> Summary {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..campaign.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let late = campaign.within.is_some_and(|within| started.elapsed() > within);
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= campaign.seeds || late || stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let seed = campaign.from + number;
                    let drawn = named_on(&campaign.plan, seed, campaign.nodes, campaign.membership);
                    let Some(plan) = drawn else {
                        break;
                    };
                    let outcome = run(&plan, seed);
                    let failed = !outcome.report.is_ok();
                    if failed && campaign.stop_at_failure {
                        stop.store(true, Ordering::Relaxed);
                    }
                    // A poisoned lock only says that another thread panicked; the sums are whole.
                    let mut summary = summary.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    summary.seeds += 1;
                    *summary.engines.entry(plan.membership.name()).or_default() += 1;
                    summary.simulated += u128::from(outcome.simulated);
                    summary.liveness += u64::from(outcome.liveness);
                    summary.forks += outcome.report.excused;
                    summary.digest = summary
                        .digest
                        .wrapping_add(hash(&seed.to_le_bytes(), outcome.digest));
                    for (kind, count) in outcome.faults {
                        *summary.faults.entry(kind).or_default() += count;
                    }
                    for (guarantee, count) in outcome.report.counts {
                        *summary.checks.entry(guarantee).or_default() += count;
                    }
                    if failed {
                        summary.failures.push(Failure {
                            seed,
                            membership: plan.membership,
                            violations: outcome.report.violations,
                        });
                    }
                    tell(&summary, summary.failures.last().filter(|_| failed));
                }
            });
        }
    });
    let mut summary = summary
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    summary.failures.sort_by_key(|failure| failure.seed);
    summary.wall = started.elapsed();
    summary
}
