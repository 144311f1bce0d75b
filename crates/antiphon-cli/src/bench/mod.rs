//! `antiphon bench`: what this machine, or these hosts, get out of Antiphon.
//!
//! ```text
//!  multicast ─┐             ┌─ worker: a node, told what to do on stdin, figures on stdout
//!  latency   ─┼──► crew ────┼─ worker
//!  slow      ─┤             ├─ worker
//!  idle      ─┘             └─ worker                        processes here, or one on each host (--join)
//!  formation, join, kill, silent ──► views ──► fleet: `antiphon node --json`
//! ```
//! - [`crew`]: the conductor's side; [`worker`]: the node's side, which knows the library's public API and
//!   nothing else.
//! - [`views`]: how fast views change, judged from the lines of ordinary nodes.
//! - [`figures`](super::figures): statistics over runs.

mod args;
mod crew;
mod idle;
mod latency;
mod multicast;
mod slow;
mod views;
mod worker;

use super::exit::{Exit, Failed};
pub(crate) use args::BenchArgs;
use args::BenchWhat;

/// Runs a benchmark.
pub(crate) fn run(args: BenchArgs) -> Result<Exit, Failed> {
    match args.what {
        BenchWhat::Multicast(args) => multicast::run(&args),
        BenchWhat::Latency(args) => latency::run(&args),
        BenchWhat::Slow(args) => slow::run(&args),
        BenchWhat::Idle(args) => idle::run(&args),
        BenchWhat::Formation(args) => views::run(views::Change::Formation, &args),
        BenchWhat::Join(args) => views::run(views::Change::Join, &args),
        BenchWhat::Kill(args) => views::run(views::Change::Kill, &args),
        BenchWhat::Silent(args) => views::run(views::Change::Silent, &args),
        BenchWhat::Worker => worker::run(),
    }
}
