//! Nodes as child processes of this program, on loopback: what the demo and the benchmark drive.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use antiphon_lab::{Process, Stage};

use super::exit::Failed;

/// The group that all nodes of a fleet join.
pub(crate) const GROUP: &str = "demo";

/// How the nodes of a fleet are started.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    program: PathBuf,
    cluster: String,
    profile: &'static str,
    seeds: String,
}

impl Plan {
    /// A cluster with these seeds, started with this very program.
    pub(crate) fn new(profile: &'static str, seeds: &[SocketAddr]) -> Result<Self, Failed> {
        let seeds: Vec<String> = seeds.iter().map(ToString::to_string).collect();
        Ok(Self {
            program: this_program()?,
            cluster: format!("demo-{}", std::process::id()),
            profile,
            seeds: seeds.join(","),
        })
    }

    /// Starts a node. Call it from the main thread: the kernel takes the thread for the parent that children
    /// die with.
    pub(crate) fn start(&self, stage: &Arc<Stage>, name: &str, addr: &str) -> Result<Process, Failed> {
        let mut command = Command::new(&self.program);
        command
            .args(["node", "--json", "--allow-faults", "--cluster", &self.cluster])
            .args(["--name", name, "--bind", addr, "--seeds", &self.seeds])
            .args(["--group", GROUP, "--profile", self.profile])
            .args(["--die-with", &std::process::id().to_string()]);
        // The nodes of a demo are not configured by whatever the environment says about other nodes.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ANTIPHON_") && variable != "ANTIPHON_LOG" {
                command.env_remove(variable);
            }
        }
        Process::start(stage, name, command).map_err(|error| Failed::run(error.to_string()))
    }
}

/// The program that runs.
pub(crate) fn this_program() -> Result<PathBuf, Failed> {
    std::env::current_exe().map_err(|error| Failed::cannot("find this program to start nodes with", &error))
}

/// Free ports on loopback, as far as can be known.
pub(crate) fn free_addrs(count: usize) -> Result<Vec<SocketAddr>, Failed> {
    let addrs = antiphon_lab::free_addrs(count);
    if addrs.len() < count {
        return Err(Failed::run(format!(
            "there are no {count} free ports on 127.0.0.1 from 20000 to 31999"
        )));
    }
    Ok(addrs)
}
