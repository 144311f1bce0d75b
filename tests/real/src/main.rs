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
//! Stories mostly wait, so twice as many are told at a time as there are processors; `--test-threads` says
//! otherwise. A story called `cut::…` is told on that engine of membership.
//!
//! Environment: `ANTIPHON_BIN` is the program under test (otherwise it is built), `ANTIPHON_REAL_RUNS` how
//! often stories that are about chance are repeated.

mod cluster;
mod dns;
mod locator;
mod stories;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::thread::available_parallelism;

use antiphon_api::{Event, NodeView, View, ViewName};
use antiphon_lab::{Build, Load, Process, Refusal, Rules, Stage, Trace};
use libtest_mimic::Arguments;

use cluster::{Cluster, GROUP, Options, host};
use story::{Engine, Story, once, skipped, story};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.test_threads.is_none() {
        let threads = std::env::var("RUST_TEST_THREADS").ok();
        let threads = threads.and_then(|threads| threads.parse().ok());
        arguments.test_threads = threads.or(Some(2 * available_parallelism().map_or(1, usize::from)));
    }
    libtest_mimic::run(&arguments, story::trials()).exit_code()
}

/// How often a story about chance is told: `ANTIPHON_REAL_RUNS`, or this.
fn runs(default: usize) -> usize {
    std::env::var("ANTIPHON_REAL_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok())
        .unwrap_or(default)
}

/// The path of the program under test, built once per test run if need be.
///
/// # Panics
/// If it cannot be built.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| antiphon_lab::program(Build::Tested).unwrap_or_else(|error| panic!("{error}")))
}
