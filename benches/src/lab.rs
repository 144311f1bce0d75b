//! The lab: a [`Network`] of hosts, and what benchmarks want of it besides.
//!
//! It is removed, with every process in it, when it is dropped (a panic included), at SIGINT and SIGTERM, and
//! at the next start if even that did not happen. So are the files ([`scratch`]) and the shares of processors
//! of a benchmark. A lock keeps two benchmarks from measuring each other.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use antiphon_lab::Network;

use crate::Failure;
use crate::processors;
use crate::scratch;
use crate::tools::{need, run};

/// How the names of the namespaces begin.
const PREFIX: &str = "ab";
/// How many neighbours the kernel remembers, of all namespaces together: with fifty that all speak to each
/// other the 1024 that it comes with are too few, and members of every system then wait in vain for those
/// whose turn never comes.
const NEIGHBOURS: &str = "/proc/sys/net/ipv4/neigh/default/gc_thresh3";
/// What it was before, if this program raised it.
static NEIGHBOURS_BEFORE: Mutex<Option<String>> = Mutex::new(None);
/// A connection for each message leaves its port behind for a minute. Soon hardly any is free, and to look
/// for one takes milliseconds of the next measurement. With this the kernel takes such a port again.
const TAKE_PORTS_AGAIN: &str = "echo 1 > /proc/sys/net/ipv4/tcp_tw_reuse";

/// The hosts of one benchmark, a node on each.
pub(crate) struct Lab {
    network: Network,
    nodes: usize,
}

/// Keeps others out until the process ends, and removes what those have left that were killed.
pub(crate) fn lock() -> Result<File, Failure> {
    let path = std::env::temp_dir().join("antiphon-bench.lock");
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| "another antiphon-bench runs on this machine".to_owned())?;
    processors::remove_shares();
    scratch::sweep();
    Ok(file)
}

/// Set at SIGINT and SIGTERM.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Held while hosts are made, and at the end by the thread that removes them: hosts that were made meanwhile
/// would stay.
static MAKING: Mutex<()> = Mutex::new(());

/// Whether the program is about to end: what is measured now is that its members go.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Does not return if the program is about to end: it ends when everything is removed, and until then nothing
/// is to be started.
pub(crate) fn wait_if_interrupted() {
    while is_interrupted() {
        std::thread::park();
    }
}

/// From now on SIGINT and SIGTERM remove the lab, and then end the program.
pub(crate) fn remove_at_signals() -> Result<(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |error: std::io::Error| format!("cannot handle signals: {error}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let [interrupt, terminate] = {
        let _runtime = runtime.enter();
        [SignalKind::interrupt(), SignalKind::terminate()].map(signal)
    };
    let (mut interrupt, mut terminate) = (interrupt.map_err(failed)?, terminate.map_err(failed)?);
    std::thread::spawn(move || {
        let code = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        });
        INTERRUPTED.store(true, Ordering::Relaxed);
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        forget_neighbours();
        Network::remove_all(PREFIX);
        processors::remove_shares();
        scratch::sweep();
        std::process::exit(code);
    });
    Ok(())
}

impl Lab {
    /// Makes the hosts.
    pub(crate) fn new(nodes: usize, offload: bool) -> Result<Self, Failure> {
        need("ip", &["iproute2"])?;
        need("nft", &["nftables"])?;
        if !offload {
            need("ethtool", &["ethtool"])?;
        }
        let network = {
            let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
            Network::new(PREFIX, nodes, 1)?
        };
        let lab = Self { network, nodes };
        remember_neighbours(nodes)?;
        for (namespace, device) in lab.ends() {
            if device == "eth0" {
                let route = ["route", "add", "224.0.0.0/4", "dev", "eth0"];
                run("ip", &[&["-n", &namespace], &route[..]].concat())?;
                run("ip", &["netns", "exec", &namespace, "sh", "-c", TAKE_PORTS_AGAIN])?;
            }
            if !offload {
                let off = ["tso", "off", "gso", "off", "gro", "off"];
                let ethtool = ["netns", "exec", &namespace, "ethtool", "-K", &device];
                run("ip", &[&ethtool, &off[..]].concat())?;
            }
        }
        Ok(lab)
    }

    /// Both ends of every cable: namespace and interface.
    fn ends(&self) -> impl Iterator<Item = (String, String)> {
        (1..=self.nodes).flat_map(|node| {
            let outer = (self.network.namespace(0), format!("p{node}"));
            [(self.network.namespace(node), "eth0".to_owned()), outer]
        })
    }

    /// Gives every link this rate, each way.
    pub(crate) fn shape(&self, mbit: u32) -> Result<(), Failure> {
        need("tc", &["iproute2"])?;
        let rate = format!("{mbit}mbit");
        let filter = ["root", "tbf", "rate", &rate, "burst", "64kb", "latency", "20ms"];
        for (namespace, device) in self.ends() {
            let add = ["-n", &namespace, "qdisc", "add", "dev", &device];
            run("tc", &[&add, &filter[..]].concat())?;
        }
        Ok(())
    }

    /// Pulls a node's cable: its link stays up at its end, and nothing passes.
    pub(crate) fn cut(&self, node: usize) {
        let others: Vec<usize> = (1..=self.nodes).filter(|other| *other != node).collect();
        self.network.partition(&[&[node], &others]);
    }

    /// Puts all cables back.
    pub(crate) fn mend(&self) {
        self.network.heal();
    }

    /// Loses this many percent of the packets that come to a node and of those that leave it; with 0 no more.
    pub(crate) fn lose(&self, node: usize, percent: u8) {
        match percent {
            0 => self.network.lose_nothing(node),
            some => self.network.lose_packets(node, some),
        }
    }

    /// The address of a node, from 1.
    pub(crate) fn ip(&self, node: usize) -> String {
        self.network.address(node).ip().to_string()
    }

    /// A program on a node's host. What it prints can be read, unless told otherwise.
    pub(crate) fn command(&self, node: usize, program: &Path) -> Command {
        wait_if_interrupted();
        let mut command = self.network.command(node, program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    /// The first `nodes` hosts as `antiphon bench --netns` takes them.
    pub(crate) fn places(&self, nodes: usize) -> String {
        let places: Vec<String> = (1..=nodes)
            .map(|node| format!("{}={}", self.network.namespace(node), self.ip(node)))
            .collect();
        places.join(",")
    }

    /// The processes of this program name on a node's host.
    pub(crate) fn processes(&self, node: usize, program: &str) -> Vec<i32> {
        let is_it = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == program)
        };
        self.network.pids(node).into_iter().filter(is_it).collect()
    }

    /// What runs on a node's host.
    pub(crate) fn pids(&self, node: usize) -> Vec<i32> {
        self.network.pids(node)
    }

    /// Ends every process on the hosts.
    pub(crate) fn kill_all(&self) {
        (1..=self.nodes).for_each(|node| self.network.end_all(node));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        forget_neighbours();
    }
}

/// Lets the kernel remember every node of a lab at every other, with as many again.
fn remember_neighbours(nodes: usize) -> Result<(), Failure> {
    let wanted = 2 * nodes * nodes;
    let failed = |error: std::io::Error| format!("{NEIGHBOURS}: {error}");
    let now = std::fs::read_to_string(NEIGHBOURS).map_err(failed)?;
    if now.trim().parse::<usize>().is_ok_and(|now| now < wanted) {
        std::fs::write(NEIGHBOURS, wanted.to_string()).map_err(failed)?;
        if let Ok(mut before) = NEIGHBOURS_BEFORE.lock() {
            before.get_or_insert(now);
        }
    }
    Ok(())
}

/// As it was before.
fn forget_neighbours() {
    if let Some(before) = NEIGHBOURS_BEFORE.lock().ok().and_then(|mut before| before.take())
        && let Err(error) = std::fs::write(NEIGHBOURS, before)
    {
        eprintln!("antiphon-bench: {NEIGHBOURS}: {error}");
    }
}
