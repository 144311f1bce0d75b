//! Checkers: one file per family of guarantees. Numbers are those of GUARANTEES.md.
//!
//! ```text
//!   Trace ──► History: lives (one per incarnation) ─ stays (one per use of a group) ─ epochs (one per view)
//!                 ├─► app      what applications saw and did: real nodes' events could be judged so
//!                 └─► inside   and what they did not see: votes, ways of frames, what nodes hold, the plan
//!                                                                                             └──► Report
//! ```
//! A checker reads the [`Trace`] and nothing else. Those of [`app`] would find the same in what real nodes
//! print; those of `inside` need the simulator. A checker of `app` uses nothing of `inside`.
//!
//! A check that was never evaluated proves nothing: each counts how often it compared something.

pub mod app;
mod history;
mod inside;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::agenda::Micros;
use crate::trace::Trace;

pub use history::{End, Epoch, History, Life, Stay};
pub(crate) use inside::decides;

/// What the checkers found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// How often each check compared something.
    pub counts: BTreeMap<&'static str, u64>,
    /// Lineages beyond the first that the documented loss of votes explains (a majority of seeds started
    /// afresh).
    pub forks: u64,
}

/// A guarantee that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which: `G14`, or a rule's or property's name.
    pub guarantee: &'static str,
    /// When, as far as it has a time.
    pub at: Micros,
    /// Who saw what.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at {}.{:06}s: {}",
            self.guarantee,
            self.at / 1_000_000,
            self.at % 1_000_000,
            self.what
        )
    }
}

/// More than this many violations of one run are not written down.
const MOST_VIOLATIONS: usize = 100;

impl Report {
    /// Whether everything held.
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }

    /// One comparison: counts it, and notes a violation if it does not hold.
    fn check(&mut self, guarantee: &'static str, at: Micros, holds: bool, what: impl FnOnce() -> String) {
        *self.counts.entry(guarantee).or_default() += 1;
        if !holds {
            self.fail(guarantee, at, what());
        }
    }

    /// Notes a violation.
    pub fn fail(&mut self, guarantee: &'static str, at: Micros, what: String) {
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(Violation { guarantee, at, what });
        }
    }
}

/// The checks that every default run of some length must have evaluated.
pub const ALWAYS_EVALUATED: &[&str] = &[
    "G1",
    "G2",
    "G3",
    "G4",
    "G5",
    "G6",
    "G7",
    "G8",
    "G9",
    "G10",
    "G11",
    "G12",
    "G13",
    "G14",
    "G15",
    "G16",
    "G17",
    "G18",
    "G19",
    "G20",
    "G21",
    "G22",
    "G23",
    "G24",
    "G25",
    "G26",
    "G32",
    "G33",
    "G34",
    "G36",
    "G37",
    "G42",
    "R2",
    "R8",
    "R9",
    "R12",
    "R20",
    "R17",
    "causes",
    "founding",
    "memory",
    "metadata",
    "names",
    "quorum",
    "resync",
    "seniority",
    "suspended",
];

/// Runs all checkers over a trace.
pub fn check(trace: &Trace) -> Report {
    let history = History::new(trace);
    let mut report = Report::default();
    app::check(&history, &mut report);
    inside::check(&history, &mut report);
    report.violations.sort_by_key(|violation| violation.at);
    report
}
