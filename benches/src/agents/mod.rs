//! Agents, and the programs that use them.
//!
//! ```text
//!  benchmark ──┬── host 1: agent ◄── socket ── client of ours, corosync's client on our libcpg, or redis-benchmark
//!              ├── host 2: agent ◄── …
//!              └── host 3: agent ◄── …
//! ```
//! - [`Agents`]: an agent on each host, each with its Unix socket and the port of programs.
//! - [`client`]: a program that speaks JSON lines with an agent; [`resp`]: one that speaks RESP with an agent
//!   or a redis-server; [`crowd`]: many connections that say one thing and then nothing.
//! - [`clients`], [`redis`], [`idle_clients`]: a benchmark each.

pub(crate) mod client;
pub(crate) mod clients;
pub(crate) mod crowd;
pub(crate) mod idle_clients;
pub(crate) mod redis;
pub(crate) mod resp;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::Failure;
use crate::lab::Lab;
use crate::scratch::Scratch;
use crate::tools::Lines;

const NODE_PORT: u16 = 7400;
/// Where an agent serves programs, on the loopback interface of its host.
const PROGRAM_PORT: u16 = 7480;
/// For an agent to serve, and for all to be one cluster.
const START_WITHIN: Duration = Duration::from_secs(60);

/// Agents that run. They end with the value, and so does all else on these hosts.
pub(crate) struct Agents<'a> {
    lab: &'a Lab,
    sockets: Scratch,
    members: Vec<(Child, Lines)>,
}

impl<'a> Agents<'a> {
    /// Starts one on each of the first hosts, and waits until they are one cluster. `more` gives
    /// further arguments of each; without a key among them the cluster is insecure.
    pub(crate) fn start(
        lab: &'a Lab,
        program: &Path,
        nodes: usize,
        more: impl Fn(usize) -> Vec<String>,
    ) -> Result<Self, Failure> {
        let mut agents = Self {
            lab,
            sockets: Scratch::new("agents")?,
            members: Vec::new(),
        };
        for node in 1..=nodes {
            agents.add(program, node, nodes, &more(node))?;
        }
        for node in 1..=nodes {
            agents.await_members(node, nodes)?;
        }
        Ok(agents)
    }

    /// Starts one on this host, and waits until it serves.
    fn add(&mut self, program: &Path, node: usize, nodes: usize, more: &[String]) -> Result<(), Failure> {
        let socket = self.socket(node);
        let mut command = self.lab.command(node, program);
        command
            .args(["agent", "--json", "--console", "none", "--cluster", "bench"])
            .args(["--name", &format!("n{node}")])
            .args(["--bind", &format!("{}:{NODE_PORT}", self.lab.ip(node))])
            .args(["--seeds", &seeds(self.lab, nodes)])
            .args(["--listen", &format!("127.0.0.1:{PROGRAM_PORT}")])
            .arg("--socket")
            .arg(&socket)
            .args(more);
        if !more.iter().any(|arg| arg == "--key-file") {
            command.arg("--insecure");
        }
        let mut child = command
            .stderr(std::process::Stdio::inherit())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let lines = Lines::of(child.stdout.take().expect("stdout is a pipe"));
        lines.find(START_WITHIN, "an agent to serve programs", |line| {
            (event(line)?["event"] == "serving").then_some(())
        })?;
        self.members.push((child, lines));
        Ok(())
    }

    /// Waits until the agent that was started as this one, from 1, sees so many nodes.
    fn await_members(&self, agent: usize, nodes: usize) -> Result<(), Failure> {
        let (_, lines) = &self.members[agent - 1];
        lines.find(START_WITHIN, "the agents to be one cluster", |line| {
            let event = event(line)?;
            (event["event"] == "node_view" && event["members"].as_array()?.len() == nodes).then_some(())
        })
    }

    /// The Unix socket of a host's agent.
    pub(crate) fn socket(&self, node: usize) -> PathBuf {
        self.sockets.path().join(format!("n{node}"))
    }

    /// The process of a host's agent.
    fn pid(&self, node: usize) -> i32 {
        self.members[node - 1].0.id().cast_signed()
    }
}

impl Drop for Agents<'_> {
    fn drop(&mut self) {
        self.lab.kill_all();
        for (child, _) in &mut self.members {
            // Just killed.
            let _ = child.wait();
        }
    }
}

/// The seeds of a cluster on the first hosts.
pub(crate) fn seeds(lab: &Lab, nodes: usize) -> String {
    let seeds: Vec<String> = (1..=nodes)
        .map(|node| format!("{}:{NODE_PORT}", lab.ip(node)))
        .collect();
    seeds.join(",")
}

/// Resident memory of a process, in KiB.
fn resident_kib(pid: i32) -> Result<f64, Failure> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok())
        .ok_or_else(|| format!("{path} has no VmRSS"))
}

fn event(line: &str) -> Option<Value> {
    serde_json::from_str(line).ok()
}
