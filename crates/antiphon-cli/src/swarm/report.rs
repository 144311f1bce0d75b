//! What is told of a swarm.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::args::SwarmArgs;
use super::words::{Counts, Seen};
use crate::exit::Failed;
use crate::figures::{round, statistics};
use crate::say::say;

/// A time at rest.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) before: Vec<Counts>,
    pub(super) after: Vec<Counts>,
    pub(super) elapsed: Duration,
}

/// Everything.
#[derive(Debug)]
pub(super) struct Summary {
    nodes: f64,
    pub(super) formed_ms: f64,
    /// The different numbers of members that any node reported.
    sizes: BTreeSet<usize>,
    /// The different primary views.
    pub(super) views: usize,
    removed: BTreeSet<String>,
    most_descriptors: u64,
    formed: Counts,
    rest: Option<Value>,
    own_ms: Vec<f64>,
    everywhere_ms: Vec<f64>,
    pub(super) left_ms: f64,
    /// A signal ended the story: what is not there was not measured.
    interrupted: bool,
}

impl Summary {
    pub(super) fn new(args: &SwarmArgs) -> Self {
        Self {
            nodes: f64::from(args.nodes),
            formed_ms: 0.0,
            sizes: BTreeSet::new(),
            views: 0,
            removed: BTreeSet::new(),
            most_descriptors: 0,
            formed: Counts::default(),
            rest: None,
            own_ms: Vec::new(),
            everywhere_ms: Vec::new(),
            left_ms: 0.0,
            interrupted: false,
        }
    }

    /// What the crowds have seen so far.
    pub(super) fn learn(&mut self, seen: &[Seen]) {
        // Joins and leaves of single nodes come later and are no part of forming.
        if self.own_ms.is_empty() {
            self.sizes
                .extend(seen.iter().flat_map(|seen| seen.sizes.iter().copied()));
        }
        let views: BTreeSet<u32> = seen.iter().flat_map(|seen| seen.views.iter().copied()).collect();
        self.views = views.len();
        self.removed
            .extend(seen.iter().flat_map(|seen| seen.removed.iter().cloned()));
        self.most_descriptors = seen.iter().map(|seen| seen.most_descriptors).sum();
    }

    pub(super) fn formed(&mut self, counts: &[Counts]) {
        self.formed = sum(counts);
    }

    pub(super) fn rested(&mut self, rest: Rest, views: usize) {
        let (before, after) = (sum(&rest.before), sum(&rest.after));
        let per_node_and_s = |from: u64, to: u64| {
            round(to.saturating_sub(from) as f64 / self.nodes / rest.elapsed.as_secs_f64())
        };
        let cores = (after.cpu_s - before.cpu_s) / rest.elapsed.as_secs_f64();
        self.rest = Some(json!({
            "seconds": round(rest.elapsed.as_secs_f64()),
            "descriptors_per_node": round(after.descriptors as f64 / self.nodes),
            "most_connections": after.most_connections,
            "memory_bytes_per_node": (after.memory_bytes as f64 / self.nodes).round(),
            "bytes_sent_per_node_per_s": per_node_and_s(before.bytes_sent, after.bytes_sent),
            "bytes_received_per_node_per_s": per_node_and_s(before.bytes_received, after.bytes_received),
            "frames_sent_per_node_per_s": per_node_and_s(before.frames_sent, after.frames_sent),
            "cpu_millionths_of_a_core_per_node": (cores / self.nodes * 1e6).round(),
            "view_changes": views,
        }));
    }

    pub(super) fn joined(&mut self, own_ms: f64, everywhere_ms: f64) {
        self.own_ms.push(own_ms);
        self.everywhere_ms.push(everywhere_ms);
    }

    /// A signal had all leave, in so much time.
    pub(super) fn interrupted(&mut self, left_ms: f64) {
        self.left_ms = left_ms;
        self.interrupted = true;
    }

    fn per_node(&self, count: u64) -> f64 {
        round(count as f64 / self.nodes)
    }

    fn formed_json(&self) -> Value {
        json!({
            "formed_ms": self.formed_ms, "sizes": self.sizes, "sizes_seen": self.sizes.len(), "views": self.views,
            "descriptors_per_node": self.per_node(self.formed.descriptors),
            "most_descriptors_per_node": self.per_node(self.most_descriptors.max(self.formed.descriptors)),
            "most_connections": self.formed.most_connections,
            "memory_bytes_per_node": (self.formed.memory_bytes as f64 / self.nodes).round(),
            "frames_dropped": self.formed.frames_dropped,
        })
    }
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    round(time.as_secs_f64() * 1000.0)
}

/// Before the first node starts.
pub(super) fn begun(args: &SwarmArgs) -> Result<(), Failed> {
    if args.json {
        return Ok(());
    }
    say!("swarm      {}", setting(args))
}

/// What is run, in words.
fn setting(args: &SwarmArgs) -> String {
    let processes = match args.processes {
        1 => "one process".to_owned(),
        processes => format!("{processes} processes"),
    };
    format!(
        "{} nodes in {processes}; membership {}, profile {}, {}, {}{}",
        args.nodes,
        args.membership.name(),
        args.profile.name,
        args.transport.name(),
        if args.keyed { "keyed" } else { "no key" },
        if args.group { ", one group of all" } else { "" },
    )
}

/// Once all nodes report all.
pub(super) fn formed(summary: &Summary, args: &SwarmArgs) -> Result<(), Failed> {
    let formed = summary.formed_json();
    if args.json {
        return line("formed", formed);
    }
    let sizes: Vec<String> = summary.sizes.iter().map(usize::to_string).collect();
    say!(
        "formed     {:>9.1} ms   {} views, {} sizes seen: {}",
        summary.formed_ms,
        summary.views,
        sizes.len(),
        sizes.join(" "),
    )?;
    say!(
        "           {:>9} open files of each once formed, most on the way {}; {} of memory of each",
        formed["descriptors_per_node"],
        formed["most_descriptors_per_node"],
        size(&formed["memory_bytes_per_node"])
    )
}

/// After the time at rest.
pub(super) fn rested(summary: &Summary, args: &SwarmArgs) -> Result<(), Failed> {
    let Some(rest) = &summary.rest else { return Ok(()) };
    if args.json {
        return line("rest", rest.clone());
    }
    say!(
        "at rest    {:>9} open files of each, {} of memory; {} view changes in {} s",
        rest["descriptors_per_node"],
        size(&rest["memory_bytes_per_node"]),
        rest["view_changes"],
        rest["seconds"]
    )?;
    say!(
        "           {:>9} bytes/s sent by each, {} received; {} millionths of a core each",
        rest["bytes_sent_per_node_per_s"],
        rest["bytes_received_per_node_per_s"],
        rest["cpu_millionths_of_a_core_per_node"]
    )
}

/// After each join.
pub(super) fn joined(run: u16, own_ms: f64, everywhere_ms: f64, args: &SwarmArgs) -> Result<(), Failed> {
    if args.json {
        return line(
            "join",
            json!({"run": run + 1, "own_ms": round(own_ms), "everywhere_ms": everywhere_ms}),
        );
    }
    Ok(())
}

/// At the end.
pub(super) fn summary(summary: &Summary, args: &SwarmArgs) -> Result<(), Failed> {
    let own = statistics(&summary.own_ms);
    let everywhere = statistics(&summary.everywhere_ms);
    if args.json {
        let mut whole = summary.formed_json();
        let more = json!({
            "nodes": args.nodes, "processes": args.processes, "seeds": args.seeds,
            "membership": args.membership.name(), "profile": args.profile.name,
            "transport": args.transport.name(), "keyed": args.keyed, "group": args.group,
            "rest": summary.rest, "join_own_ms": own, "join_everywhere_ms": everywhere, "removed": summary.removed,
            "left_ms": summary.left_ms, "interrupted": summary.interrupted,
        });
        if let (Some(whole), Value::Object(more)) = (whole.as_object_mut(), more) {
            whole.extend(more);
        }
        return line("summary", whole);
    }
    if !summary.own_ms.is_empty() {
        say!(
            "joined     {:>9} ms   median until the joiner sees all, {} ms until all see it; p99 {} and {}",
            own["median"],
            everywhere["median"],
            own["p99"],
            everywhere["p99"]
        )?;
    }
    if !summary.removed.is_empty() {
        say!(
            "removed    {:>9} nodes that had not left: {}",
            summary.removed.len(),
            summary
                .removed
                .iter()
                .take(10)
                .cloned()
                .collect::<Vec<_>>()
                .join(" ")
        )?;
    }
    say!("left       {:>9.1} ms   all at once", summary.left_ms)
}

fn line(event: &str, mut object: Value) -> Result<(), Failed> {
    object["event"] = json!(event);
    say!("{object}")
}

fn size(bytes: &Value) -> String {
    let bytes = bytes.as_f64().unwrap_or(0.0);
    if bytes >= 1e6 {
        format!("{:.2} MB", bytes / 1e6)
    } else {
        format!("{:.0} kB", bytes / 1e3)
    }
}

fn sum(counts: &[Counts]) -> Counts {
    counts.iter().fold(Counts::default(), |sum, count| Counts {
        descriptors: sum.descriptors + count.descriptors,
        most_connections: sum.most_connections.max(count.most_connections),
        memory_bytes: sum.memory_bytes + count.memory_bytes,
        cpu_s: sum.cpu_s + count.cpu_s,
        bytes_sent: sum.bytes_sent + count.bytes_sent,
        bytes_received: sum.bytes_received + count.bytes_received,
        frames_sent: sum.frames_sent + count.frames_sent,
        frames_dropped: sum.frames_dropped + count.frames_dropped,
    })
}
