//! The stories. Each test's name says what happens to the cluster and what must come of it.
//!
//! - [`blocks`]: locks, maps and requests, through kills and pauses;
//! - [`forming`]: many at once, too few, leaving and coming back;
//! - [`killing`]: kill −9 and SIGSTOP, down to the last one;
//! - [`cutting`]: partitions, on loopback by injected faults and between hosts by cut cables;
//! - [`hosts`]: what only separate hosts can show: cables and firewalls that must not pass for proof of
//!   death;
//! - [`datagrams`]: messages by UDP, through networks that lose some of it or all;
//! - [`discovery`]: names, files, multicast and locators, while they change, fail and die;
//! - [`objects`]: payloads of many megabytes, in files, through kills and joins;
//! - [`parting`]: the policy `any`: every side goes on, and they merge;
//! - [`losses`]: a host that loses many of its packets, or all of TCP;
//! - [`paths`]: pairs that do not reach each other, while others reach both;
//! - [`rolling`]: restarting all, one after the other, under load;
//! - [`slow`]: output that nobody reads, and processes that stand still for a moment again and again;
//! - [`strangers`]: wrong keys, wrong clusters, newer versions and garbage at the port;
//! - [`wide`]: fourteen nodes, whose views are wide on the engine `cut`;
//! - [`witnesses`]: deaths that no connection shows.
//!
//! Bounds are for a busy machine with two cores, not what is promised for latency: the benchmarks measure
//! that. A story takes several nodes' worth of processor, so only a few are told at a time.
//!
//! What membership has a part in is told on both engines: modules called `_cut` are the same files on that
//! one. Stories that take long, or add little on the second engine, take turns: by default each is told on
//! one, and says `SKIPPED` on the other one; `ANTIPHON_REAL_MEMBERSHIP=both` tells them on both,
//! `coordinator` or `cut` on that one. In [`strangers`] no view changes: those are told on one engine.
#![expect(clippy::duplicate_mod, reason = "the same stories are told with each engine")]

use std::process::Stdio;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program;
use crate::{Options, host, membership_asked_for};

mod blocks;
#[path = "blocks.rs"]
mod blocks_cut;
mod cutting;
#[path = "cutting.rs"]
mod cutting_cut;
mod datagrams;
#[path = "datagrams.rs"]
mod datagrams_cut;
mod discovery;
#[path = "discovery.rs"]
mod discovery_cut;
mod forming;
#[path = "forming.rs"]
mod forming_cut;
mod hosts;
#[path = "hosts.rs"]
mod hosts_cut;
mod killing;
#[path = "killing.rs"]
mod killing_cut;
mod links;
#[path = "links.rs"]
mod links_cut;
mod losses;
#[path = "losses.rs"]
mod losses_cut;
mod multicast;
#[path = "multicast.rs"]
mod multicast_cut;
mod objects;
#[path = "objects.rs"]
mod objects_cut;
mod parting;
#[path = "parting.rs"]
mod parting_cut;
mod paths;
#[path = "paths.rs"]
mod paths_cut;
mod recovering;
#[path = "recovering.rs"]
mod recovering_cut;
mod rolling;
#[path = "rolling.rs"]
mod rolling_cut;
mod slow;
#[path = "slow.rs"]
mod slow_cut;
mod strangers;
mod wide;
mod witnesses;
#[path = "witnesses.rs"]
mod witnesses_cut;

/// What the nodes of a story have in common that is told in this module, named by `module_path!()`.
fn told_in(module: &str) -> Options {
    Options {
        membership: engine_of(module).to_owned(),
        ..Options::default()
    }
}

fn engine_of(module: &str) -> &'static str {
    if module.ends_with("_cut") {
        "cut"
    } else {
        "coordinator"
    }
}

/// Of variations that have little to do with membership, half are enough on the second engine.
fn some_on_cut<T: Copy>(module: &str, all: &[T]) -> Vec<T> {
    let told = if module.ends_with("_cut") {
        all.len().div_ceil(2)
    } else {
        all.len()
    };
    all[..told].to_vec()
}

/// Runs a command that asks a node at its socket: what it printed, as JSON lines, and its exit code.
fn ask(socket: &str, arguments: &[&str]) -> (Vec<Value>, Option<i32>) {
    let mut command = std::process::Command::new(program());
    command.args(arguments).args(["--socket", socket, "--json"]);
    let output = command.stdin(Stdio::null()).output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().map(serde_json::from_str);
    let lines: Result<Vec<Value>, _> = lines.collect();
    (
        lines.unwrap_or_else(|e| panic!("{text}: {e}")),
        output.status.code(),
    )
}

/// Enough for anything that has no failure detection in it, on a busy machine.
const SOON: Duration = Duration::from_secs(10);
/// Enough for detecting a silent process or host of the profile `lan` and agreeing on what follows.
const DETECTED: Duration = Duration::from_secs(15);
/// Longer than a node of the profile `lan` would need to be wrong.
const WATCHED: Duration = Duration::from_secs(5);

static TOLD: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The right to tell a story; others wait until it is dropped.
struct Turn;

impl Turn {
    /// Waits until few enough stories are being told: two for each processor, since they mostly wait.
    fn take() -> Self {
        let at_a_time = 2 * std::thread::available_parallelism().map_or(1, usize::from);
        let mut told = count();
        while *told >= at_a_time {
            told = TOLD.1.wait(told).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *told += 1;
        Turn
    }

    /// The same for a story that is not worth its time on both engines: `None`, having said so, where this
    /// module's engine is not the one on which it is told.
    fn take_on_one_engine(unless_asked: &str, module: &str) -> Option<Self> {
        let asked = membership_asked_for();
        let told_on = asked.as_deref().unwrap_or(unless_asked);
        if ["both", engine_of(module)].contains(&told_on) {
            return Some(Self::take());
        }
        crate::skipped(&format!(
            "told on the engine {told_on} alone, for it takes long; ANTIPHON_REAL_MEMBERSHIP=both tells it on both"
        ));
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *count() -= 1;
        TOLD.1.notify_one();
    }
}

fn count() -> MutexGuard<'static, usize> {
    TOLD.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The names `n1` to `n<count>`.
fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("n{number}")).collect()
}

/// The same as slices.
fn all(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
