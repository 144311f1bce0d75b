//! `antiphon bench formation|join|kill|silent`: how fast views change, with real processes on loopback.
//!
//! Every figure is taken where the lines of the nodes arrive at this program, so it includes two process
//! switches and the printing of the line. No node prints the instant at which a crash was *detected*: it is
//! reckoned from the first view without the dead node and the age of the oldest accusation in this view.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_api::{Event, NodeView};
use antiphon_lab::{Process, Run, Signal, Stage};
use serde_json::{Value, json};

use super::args::ViewsArgs;
use crate::exit::{Exit, Failed};
use crate::figures::{round, statistics};
use crate::fleet::{GROUP, Plan, free_addrs};
use crate::say::say;

/// A run that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);
/// Nodes of a formation start within this time of each other.
const START_SPREAD: Duration = Duration::from_secs(1);
/// Between two runs on one cluster, so that each finds it at rest.
const REST: Duration = Duration::from_millis(500);

/// Samples in milliseconds, by figure.
type Samples = BTreeMap<&'static str, Vec<f64>>;

/// Which change of view is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// A cluster forms.
    Formation,
    /// A node joins.
    Join,
    /// A process dies.
    Kill,
    /// A host falls silent.
    Silent,
}

/// Runs a benchmark.
pub(super) fn run(change: Change, args: &ViewsArgs) -> Result<Exit, Failed> {
    let default_nodes = if change == Change::Join { 10 } else { 5 };
    let nodes = usize::from(args.nodes.unwrap_or(default_nodes));
    let mut bench = Bench {
        profile: args.profile.name,
        json: args.json,
        stage: Stage::new(),
        samples: Samples::new(),
        started: 0,
    };
    let name = match change {
        Change::Formation => {
            bench.formation(nodes, args.runs)?;
            "formation"
        }
        Change::Join => {
            bench.join(nodes, args.runs)?;
            "join"
        }
        Change::Kill => {
            bench.gone(nodes, args.runs, Way::Kill)?;
            "kill"
        }
        Change::Silent => {
            bench.gone(nodes, args.runs, Way::Stop)?;
            "silent"
        }
    };
    bench.summary(name, nodes, args.runs)?;
    Ok(Exit::Success)
}

/// How a node goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// kill -9: the kernel closes its connections.
    Kill,
    /// SIGSTOP: nothing is closed and nothing is said, as behind a cut cable.
    Stop,
}

struct Bench {
    profile: &'static str,
    json: bool,
    stage: Arc<Stage>,
    samples: Samples,
    started: usize,
}

impl Bench {
    /// Nodes that start within a second of each other: from the last start until all are in one view.
    fn formation(&mut self, count: usize, runs: u16) -> Result<(), Failed> {
        for run in 0..runs {
            let addrs = free_addrs(count)?;
            let plan = Plan::new(self.profile, &addrs)?;
            let mut offsets: Vec<Duration> = (0..count)
                .map(|node| START_SPREAD.mul_f64(scatter(usize::from(run) * count + node)))
                .collect();
            offsets.sort();
            let begun = self.stage.now();
            let mut nodes = Vec::new();
            for (addr, offset) in addrs.iter().zip(offsets) {
                std::thread::sleep((begun + offset).saturating_sub(self.stage.now()));
                nodes.push(self.start(&plan, &addr.to_string())?);
            }
            let last_start = nodes.iter().map(began).max().unwrap_or(begun);
            let (views, groups) = self.settled(&nodes, "all nodes to be in one view")?;
            self.sample(
                run,
                &[
                    ("formed_ms", last_start, views),
                    ("group_formed_ms", last_start, groups),
                ],
            )?;
        }
        Ok(())
    }

    /// One more node beside a running cluster, each time at an address that is new to it.
    fn join(&mut self, count: usize, runs: u16) -> Result<(), Failed> {
        let addrs = free_addrs(count + usize::from(runs))?;
        let plan = Plan::new(self.profile, &addrs[..count])?;
        let mut nodes = self.cluster(&plan, &addrs[..count])?;
        for run in 0..runs {
            std::thread::sleep(REST);
            let joiner = self.start(&plan, &addrs[count + usize::from(run)].to_string())?;
            let begun = began(&joiner);
            nodes.push(joiner);
            let (everywhere, groups) = self.settled(&nodes, "the joiner to be in everyone's view")?;
            let joiner = nodes.pop().ok_or_else(|| Failed::run("no joiner"))?;
            let ready = joiner.look(|run| run.when(begun, |event| matches!(event, Event::Ready { .. })));
            let own = joiner.look(Run::node_view_at).unwrap_or(everywhere);
            let ready = ready.unwrap_or(begun);
            self.sample(
                run,
                &[
                    ("process_start_ms", begun, ready),
                    ("join_ms", ready, own),
                    ("join_everywhere_ms", ready, everywhere),
                    ("join_group_everywhere_ms", ready, groups),
                ],
            )?;
            joiner.dismiss();
            if joiner.exit(PATIENCE).is_none() {
                return Err(Failed::run("the joiner did not leave in order"));
            }
            self.settled(&nodes, "the joiner to be gone")?;
        }
        Ok(())
    }

    /// A member that goes away without a word, the elder every other time.
    fn gone(&mut self, count: usize, runs: u16, way: Way) -> Result<(), Failed> {
        let addrs = free_addrs(count)?;
        let plan = Plan::new(self.profile, &addrs)?;
        let mut nodes = self.cluster(&plan, &addrs)?;
        for run in 0..runs {
            std::thread::sleep(REST);
            let view = nodes[0].look(|run| run.node_view().cloned());
            let view = view.ok_or_else(|| Failed::run("a node is in no view"))?;
            let rank = if run % 2 == 0 { 0 } else { view.members.len() - 1 };
            let name = &view.members[rank].name;
            let victim = nodes.iter().position(|node| node.name() == *name);
            let victim = nodes.remove(victim.ok_or_else(|| Failed::run(format!("{name} was not started")))?);
            let begun = self.stage.now();
            match way {
                Way::Kill => victim.kill(),
                Way::Stop => victim.signal(Signal::STOP),
            }
            let (everywhere, groups) =
                self.settled(&nodes, &format!("all others to go on without {name}"))?;
            let first = nodes
                .iter()
                .filter_map(|node| node.look(|run| removal(run, begun, name)))
                .min();
            let (first, before) =
                first.ok_or_else(|| Failed::run(format!("no view says that {name} is gone")))?;
            // Reckoned; never before the deed.
            let detected = first.saturating_sub(before).max(begun);
            self.sample(
                run,
                &[
                    ("detected_ms", begun, detected),
                    ("installed_after_detection_ms", detected, everywhere),
                    ("group_installed_after_detection_ms", detected, groups),
                    ("everywhere_ms", begun, everywhere),
                    ("group_everywhere_ms", begun, groups),
                ],
            )?;
            victim.kill();
            nodes.push(self.start(&plan, &victim.look(|run| run.addr().to_owned()))?);
            self.settled(&nodes, &format!("{name} to be replaced"))?;
        }
        Ok(())
    }

    fn start(&mut self, plan: &Plan, addr: &str) -> Result<Process, Failed> {
        self.started += 1;
        plan.start(&self.stage, &format!("n{}", self.started), addr)
    }

    fn cluster(&mut self, plan: &Plan, addrs: &[SocketAddr]) -> Result<Vec<Process>, Failed> {
        let nodes = addrs
            .iter()
            .map(|addr| self.start(plan, &addr.to_string()))
            .collect::<Result<Vec<_>, _>>()?;
        self.settled(&nodes, "the cluster to form")?;
        Ok(nodes)
    }

    /// Waits until all of these, and no others, are in one cluster view and one group view; says since when.
    fn settled(&self, nodes: &[Process], what: &str) -> Result<(Duration, Duration), Failed> {
        let names: Vec<&str> = nodes.iter().map(Process::name).collect();
        let settled = self.stage.wait(PATIENCE, |trace| {
            trace
                .together_since(&names)
                .zip(trace.together_in_since(GROUP, &names))
        });
        settled.ok_or_else(|| {
            let last_words: Vec<String> = nodes
                .iter()
                .map(|node| {
                    node.look(|run| {
                        let line = run.events.last().map(|(_, event)| event.to_json());
                        format!(
                            "\n  {}: {} {}",
                            run.name,
                            line.unwrap_or_default(),
                            run.log.join("\n    ")
                        )
                    })
                })
                .collect();
            Failed::run(format!(
                "waited {} s in vain for {what}{}",
                PATIENCE.as_secs(),
                last_words.concat()
            ))
        })
    }

    fn sample(&mut self, run: u16, figures: &[(&'static str, Duration, Duration)]) -> Result<(), Failed> {
        let mut line = json!({"event": "run", "run": run + 1});
        let mut text = format!("run {:>3}", run + 1);
        for (name, from, to) in figures {
            let ms = round(to.saturating_sub(*from).as_secs_f64() * 1000.0);
            self.samples.entry(name).or_default().push(ms);
            line[name] = json!(ms);
            text.push_str(&format!("   {name} {ms}"));
        }
        say!("{}", if self.json { line.to_string() } else { text })
    }

    fn summary(&self, what: &str, nodes: usize, runs: u16) -> Result<(), Failed> {
        let figures: BTreeMap<&str, Value> = self
            .samples
            .iter()
            .map(|(name, samples)| (*name, statistics(samples)))
            .collect();
        if self.json {
            let summary = json!({
                "event": "summary", "bench": what, "nodes": nodes, "runs": runs, "profile": self.profile,
                "figures": figures,
            });
            return say!("{summary}");
        }
        say!(
            "\n{what}, {nodes} nodes, {runs} runs, profile {} (milliseconds)",
            self.profile
        )?;
        for (name, figure) in figures {
            say!(
                "  {name:<36} median {:>9}   p99 {:>9}   min {:>9}   max {:>9}",
                figure["median"],
                figure["p99"],
                figure["min"],
                figure["max"]
            )?;
        }
        Ok(())
    }
}

fn began(node: &Process) -> Duration {
    node.look(|run| run.began)
}

/// When a node first printed, from a moment on, a view without this member, and how old the oldest accusation
/// in it was.
fn removal(run: &Run, from: Duration, name: &str) -> Option<(Duration, Duration)> {
    let later = run.events.iter().filter(|(at, _)| *at >= from);
    later
        .filter_map(|(at, event)| Some((*at, primary(event)?)))
        .find_map(|(at, view)| {
            let crash = view.crashed.iter().find(|crash| crash.member.name == name)?;
            Some((at, Duration::from_millis(crash.before_ms.into())))
        })
}

fn primary(event: &Event) -> Option<&NodeView> {
    match event {
        Event::NodeView(view) if view.primary => Some(view),
        _ => None,
    }
}

/// Numbers from 0 to 1 that look scattered and are the same each time: multiples of the golden ratio.
fn scatter(index: usize) -> f64 {
    (index as f64 * 0.618_033_988_749_895).fract()
}
