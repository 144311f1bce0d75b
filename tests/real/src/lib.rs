//! Stories with real processes on real sockets.
//!
//! `antiphon_lab` has the instruments: processes, what they said, networks, loads and the judge. Here are a
//! [`Cluster`] to tell stories of, and the stories.
//!
//! A story starts nodes, hurts them (kill −9, SIGSTOP, cut cables, rejecting firewalls, strangers at the
//! port), waits for conditions with bounds, and ends with [`Cluster::finish`], which hands all that was said
//! to the judge. The judge knows nothing of the protocol. Nothing here sleeps: waiting is for a condition,
//! and what goes wrong is shown with the last view and the log of every node.
//!
//! Stories on loopback need no rights. Those in network namespaces need root, `ip` and `nft`, and say
//! `SKIPPED` without.
//!
//! Environment: `ANTIPHON_BIN` is the program under test (otherwise it is built), `ANTIPHON_REAL_RUNS` how
//! often stories that are about chance are repeated, `ANTIPHON_REAL_MEMBERSHIP` the membership engine,
//! `coordinator`, `cut` or `both`, of those that take long and by default are told on one alone.

mod cluster;
pub mod dns;
pub mod locator;
#[cfg(test)]
mod stories;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use antiphon_api::{Event, NodeView, Removed, View, ViewName};
pub use antiphon_lab::{Load, Process, Refusal, Rules, Run, Signal, Stage, Trace};
pub use cluster::{Cluster, GROUP, Options, host};

/// How often a story about chance is told: `ANTIPHON_REAL_RUNS`, or this.
pub fn runs(default: usize) -> usize {
    std::env::var("ANTIPHON_REAL_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(default)
}

/// The path of the program under test, built once per test run if need be.
///
/// # Panics
/// If it cannot be built.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| antiphon_lab::program("test", None).unwrap_or_else(|error| panic!("{error}")))
}

/// What `ANTIPHON_REAL_MEMBERSHIP` says, if it is set: `coordinator`, `cut` or `both`.
///
/// # Panics
/// If it says something else.
pub fn membership_asked_for() -> Option<String> {
    let asked = std::env::var("ANTIPHON_REAL_MEMBERSHIP").ok()?;
    assert!(
        ["coordinator", "cut", "both"].contains(&asked.as_str()),
        "ANTIPHON_REAL_MEMBERSHIP={asked}: expected coordinator, cut or both"
    );
    Some(asked)
}

/// Says that a story was not told, past the test runner's capture: nobody should believe that it passed.
pub fn skipped(why: &str) {
    use std::io::Write;
    let thread = std::thread::current();
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED {}: {why}",
        thread.name().unwrap_or("a story")
    );
}
