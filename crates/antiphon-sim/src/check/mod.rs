//! Checkers: one file per family of guarantees. Numbers are those of GUARANTEES.md.
//!
//! ```text
//!   Trace ──► History: lives (one per incarnation) ─ stays (one per use of a group) ─ epochs (one per view)
//!                 ├─► app      what applications saw and did: real nodes' events could be judged so
//!                 └─► inside   and what they did not see: votes, ways of frames, what nodes hold, the plan
//!                                                                                             └──► Report
//! ```
//! A checker reads the [`Trace`] and nothing else. Most rules of `app` are rules of [`antiphon_judge`], with
//! which the lab checks the lines of real nodes, too. The rules of `inside` need the simulator. A checker of
//! `app` uses nothing of `inside`.

mod app;
mod history;
mod inside;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use crate::trace::Trace;

pub use antiphon_judge::{Report, Violation};
pub use history::{End, Epoch, History, Life, Stay};
pub(crate) use inside::decides;

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
    "G28",
    "G29",
    "G30",
    "G32",
    "G33",
    "G34",
    "G36",
    "G37",
    "G42",
    "G44",
    "G45",
    "G46",
    "G47",
    "G48",
    "G49",
    "G50",
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
