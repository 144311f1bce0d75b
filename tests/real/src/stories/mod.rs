//! The stories. Each test's name says what happens to the cluster and what must come of it.
//!
//! - [`forming`]: many at once, too few, leaving and coming back;
//! - [`killing`]: kill −9 and SIGSTOP, down to the last one;
//! - [`cutting`]: partitions, on loopback by injected faults and between hosts by cut cables;
//! - [`hosts`]: what only separate hosts can show: cables and firewalls that must not pass for proof of death;
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
//! Bounds are for a busy machine with two cores, not what is promised for latency: the benchmarks measure that. A story
//! takes several nodes' worth of processor, so only a few are told at a time.
//!
//! What is about membership is told on both engines: modules called `_cut` are the same files on that one. `ANTIPHON_REAL_MEMBERSHIP=cut`
//! tells all the others on it too.
#![expect(clippy::duplicate_mod, reason = "the same stories are told with each engine")]

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::Options;

mod cutting;
mod datagrams;
mod discovery;
mod forming;
#[path = "forming.rs"]
mod forming_cut;
mod hosts;
mod killing;
#[path = "killing.rs"]
mod killing_cut;
mod links;
mod losses;
mod multicast;
mod objects;
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
mod strangers;
mod wide;
mod witnesses;
#[path = "witnesses.rs"]
mod witnesses_cut;

/// What the nodes of a story have in common that is told in this module, named by `module_path!()`.
fn told_in(module: &str) -> Options {
    let mut options = Options::default();
    if module.ends_with("_cut") {
        options.membership = "cut".to_owned();
    }
    options
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
    /// Waits until few enough stories are being told.
    fn take() -> Self {
        const AT_A_TIME: usize = 2;
        let mut told = count();
        while *told >= AT_A_TIME {
            told = TOLD.1.wait(told).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *told += 1;
        Turn
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
