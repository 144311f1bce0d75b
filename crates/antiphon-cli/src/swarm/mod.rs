//! `antiphon swarm`: many whole nodes on this machine, to see what a size costs before one buys hosts for it.
//!
//! ```text
//!  conductor ── stdin: Setup, then Ask… ──► crowd: many nodes, each with its own sockets, on one runtime
//!      ▲     ◄─ stdout: Say… ─────────────    │
//!      │                                      └── a process; --processes spreads the nodes over several
//! ```
//! - [`conductor`]: the story: form, rest, joins, leave; [`report`]: what is told of it.
//! - [`crowd`]: the nodes of one process, and what they report; [`words`]: the lines between the two.
//!
//! The conductor takes times where the crowds' lines arrive: a fraction of a millisecond late, but by one
//! clock for all processes. Crowds end with the conductor, however it ends. At a first signal all nodes leave
//! in order; at a second everything ends at once.

mod args;
mod conductor;
mod crowd;
mod report;
mod words;

pub(crate) use args::{HELP, SwarmArgs};

use super::exit::{Exit, Failed};

/// Runs a swarm, or one process of it.
pub(crate) fn run(args: &SwarmArgs) -> Result<Exit, Failed> {
    if args.crowd {
        return crowd::run();
    }
    conductor::run(args)
}
