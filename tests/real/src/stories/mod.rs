//! The stories. Each test's name says what happens to the cluster and what must come of it.
//!
//! - [`agents`]: programs that use a cluster through agents;
//! - [`commands`]: nodes that ask each other to do what their lists allow;
//! - [`blocks`]: locks, maps and requests, through kills and pauses;
//! - [`forming`]: many at once, too few, leaving and coming back;
//! - [`killing`]: kill −9 and SIGSTOP, down to the last one;
//! - [`cutting`]: partitions, on loopback by injected faults and between hosts by cut cables;
//! - [`hosts`]: what only separate hosts can show: cables and firewalls that must not pass for proof of
//!   death;
//! - [`datagrams`]: messages by UDP, through networks that lose some of it or all;
//! - [`discovery`]: names, files, multicast and locators, while they change, fail and die;
//! - [`dying`]: clients of agents that die in the middle of what they do;
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
//! that.
//!
//! What membership has a part in is told on both engines. Stories that take long, or add little on the second
//! engine, are told on one, by turns; the longest on none, unless they are asked for: `--include-ignored`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Engine, Options, Story, host, once, program, story};

mod agents;
mod blocks;
mod commands;
mod cutting;
mod datagrams;
mod discovery;
mod dying;
mod forming;
mod hosts;
mod killing;
mod links;
mod losses;
mod multicast;
mod objects;
mod parting;
mod paths;
mod recovering;
mod rolling;
mod slow;
mod strangers;
mod wide;
mod witnesses;

/// All, each with its module's name.
pub(crate) const ALL: &[(&str, &[Story])] = &[
    ("agents", agents::STORIES),
    ("blocks", blocks::STORIES),
    ("commands", commands::STORIES),
    ("cutting", cutting::STORIES),
    ("datagrams", datagrams::STORIES),
    ("discovery", discovery::STORIES),
    ("dying", dying::STORIES),
    ("forming", forming::STORIES),
    ("hosts", hosts::STORIES),
    ("killing", killing::STORIES),
    ("links", links::STORIES),
    ("losses", losses::STORIES),
    ("multicast", multicast::STORIES),
    ("objects", objects::STORIES),
    ("parting", parting::STORIES),
    ("paths", paths::STORIES),
    ("recovering", recovering::STORIES),
    ("rolling", rolling::STORIES),
    ("slow", slow::STORIES),
    ("strangers", strangers::STORIES),
    ("wide", wide::STORIES),
    ("witnesses", witnesses::STORIES),
];

/// What the nodes of a story have in common that is told on this engine.
fn told_on(engine: Engine) -> Options {
    Options {
        membership: engine,
        ..Options::default()
    }
}

/// Of variations that have little to do with membership, half are enough on the second engine.
fn some_on_cut<T: Copy>(engine: Engine, all: &[T]) -> Vec<T> {
    let told = match engine {
        Engine::Coordinator => all.len(),
        Engine::Cut => all.len().div_ceil(2),
    };
    all[..told].to_vec()
}

/// Runs a command that asks a node at its socket: what it printed, as JSON lines, and its exit code.
fn ask(socket: &str, arguments: &[&str]) -> (Vec<Value>, Option<i32>) {
    let mut command = std::process::Command::new(program());
    command.args(arguments).args(["--console", socket, "--json"]);
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

/// The names `n1` to `n<count>`.
fn names(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("n{number}")).collect()
}

/// The same as slices.
fn all(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}
