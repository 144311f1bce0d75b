//! Nodes or agents as child processes of this program, on loopback: what the demo and the benchmark drive.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use antiphon_lab::{Process, Stage};

use super::exit::Failed;
use super::signals::Signals;

/// The group that all nodes of a fleet join.
pub(crate) const GROUP: &str = "demo";

/// What the program of each agent is called at its agent.
const PROGRAM: &str = "app";

/// How the nodes of a fleet are started.
#[derive(Debug)]
pub(crate) struct Plan {
    program: PathBuf,
    cluster: String,
    profile: &'static str,
    seeds: String,
    /// Where the agents have their sockets, if the nodes are agents.
    sockets: Option<Folder>,
}

/// A folder of this user's, removed when it is dropped.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Only sockets are left there, and nobody listens at them.
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
            sockets: None,
        })
    }

    /// The same with agents, each of which has one program.
    pub(crate) fn of_agents(mut self) -> Result<Self, Failed> {
        let folder = std::env::temp_dir().join(format!("antiphon-demo-{}", std::process::id()));
        // It is there if a demo with this number was killed, and cannot be removed if it is another user's.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| Failed::cannot(&format!("make the folder {}", folder.display()), &error))?;
        remove_at_signals(folder.clone()).map_err(|error| Failed::cannot("handle signals", &error))?;
        self.sockets = Some(Folder(folder));
        Ok(self)
    }

    /// Whether the nodes are agents.
    pub(crate) fn has_agents(&self) -> bool {
        self.sockets.is_some()
    }

    /// Starts a node. Call it from the main thread: the kernel takes the thread for the parent that children
    /// die with.
    pub(crate) fn start(&self, stage: &Arc<Stage>, name: &str, addr: &str) -> Result<Process, Failed> {
        let mut command = Command::new(&self.program);
        command
            .arg(if self.has_agents() { "agent" } else { "node" })
            .args(["--json", "--cluster", &self.cluster, "--profile", self.profile])
            .args(["--name", name, "--bind", addr, "--seeds", &self.seeds])
            .args(["--die-with", &std::process::id().to_string()]);
        match &self.sockets {
            Some(Folder(folder)) => command.arg("--socket").arg(folder.join(name)),
            None => command.args(["--allow-faults", "--group", GROUP]),
        };
        // The nodes of a demo are not configured by whatever the environment says about other nodes.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ANTIPHON_") && variable != "ANTIPHON_LOG" {
                command.env_remove(variable);
            }
        }
        Process::start(stage, name, command).map_err(|error| Failed::run(error.to_string()))
    }
}

/// SIGINT and SIGTERM end this process and its nodes, as they do without this; the folder goes first.
fn remove_at_signals(folder: PathBuf) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let signal = runtime.block_on(signals.next());
            let _ = std::fs::remove_dir_all(&folder);
            std::process::exit(128 + signal);
        })?;
    Ok(())
}

/// The program of an agent connects to it, and joins the group.
pub(crate) fn connect(agent: &Process) -> Result<(), Failed> {
    let connected = agent.connect(PROGRAM, GROUP);
    connected.map_err(|error| Failed::cannot(&format!("connect to {}", agent.name()), &error))
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
