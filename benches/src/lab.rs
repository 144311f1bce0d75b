//! Network namespaces `ab1`…`abN`, each with one end of a veth pair whose other end is on the bridge `abbr`.
//!
//! They are removed, with every process in them, when the lab is dropped (a panic included), at SIGINT and SIGTERM, and
//! at the next start if even that did not happen. A lock keeps two benchmarks from sharing them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;
use crate::tools::{need, run};

/// More than any benchmark uses.
const MAX_NODES: usize = 50;
const BRIDGE: &str = "abbr";
/// How many neighbours the kernel remembers, of all namespaces together: with fifty that all speak to each other the 1024 that it comes
/// with are too few, and members of every system then wait in vain for those whose turn never comes.
const NEIGHBOURS: &str = "/proc/sys/net/ipv4/neigh/default/gc_thresh3";
/// What it was before, if this program raised it.
static NEIGHBOURS_BEFORE: Mutex<Option<String>> = Mutex::new(None);
/// How long the processes of a namespace may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// The namespaces of one benchmark.
pub(crate) struct Lab {
    nodes: usize,
}

/// Keeps others out until the process ends.
pub(crate) fn lock() -> Result<File, Failure> {
    let path = std::env::temp_dir().join("antiphon-bench.lock");
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| "another antiphon-bench runs on this machine".to_owned())?;
    Ok(file)
}

/// Set at SIGINT and SIGTERM.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether the program is about to end: what is measured now is that its members go.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Removes the lab at SIGINT and SIGTERM, then ends the program.
pub(crate) fn remove_at_signals() {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        let code = runtime.block_on(async {
            let mut terminate =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok()?;
            tokio::select! {
                _ = tokio::signal::ctrl_c() => Some(130),
                _ = terminate.recv() => Some(143),
            }
        });
        if let Some(code) = code {
            INTERRUPTED.store(true, Ordering::Relaxed);
            remove();
            std::process::exit(code);
        }
    });
}

impl Lab {
    /// Makes the namespaces.
    pub(crate) fn new(nodes: usize, offload: bool) -> Result<Self, Failure> {
        assert!(nodes <= MAX_NODES);
        need("ip", &["iproute2"])?;
        if !offload {
            need("ethtool", &["ethtool"])?;
        }
        remove();
        // From here on dropping removes what there is of it.
        let lab = Self { nodes };
        remember_neighbours(nodes)?;
        run("ip", &["link", "add", BRIDGE, "type", "bridge"])?;
        run("ip", &["link", "set", BRIDGE, "up"])?;
        for node in 1..=nodes {
            let (name, outer, ip) = (name(node), outer(node), format!("{}/24", lab.ip(node)));
            run("ip", &["netns", "add", &name])?;
            run(
                "ip",
                &[
                    "link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &name,
                ],
            )?;
            run("ip", &["link", "set", &outer, "master", BRIDGE, "up"])?;
            run("ip", &["-n", &name, "addr", "add", &ip, "dev", "eth0"])?;
            run("ip", &["-n", &name, "link", "set", "eth0", "up"])?;
            run("ip", &["-n", &name, "link", "set", "lo", "up"])?;
            run("ip", &["-n", &name, "route", "add", "224.0.0.0/4", "dev", "eth0"])?;
            if !offload {
                let off = ["tso", "off", "gso", "off", "gro", "off"];
                run("ethtool", &[&["-K", &outer], &off[..]].concat())?;
                run(
                    "ip",
                    &[&["netns", "exec", &name, "ethtool", "-K", "eth0"], &off[..]].concat(),
                )?;
            }
        }
        Ok(lab)
    }

    /// Gives every link this rate, each way.
    pub(crate) fn shape(&self, mbit: u32) -> Result<(), Failure> {
        need("tc", &["iproute2"])?;
        let rate = format!("{mbit}mbit");
        let filter = ["root", "tbf", "rate", &rate, "burst", "64kb", "latency", "20ms"];
        for node in 1..=self.nodes {
            let (name, outer) = (name(node), outer(node));
            run("tc", &[&["qdisc", "add", "dev", &outer], &filter[..]].concat())?;
            run(
                "tc",
                &[&["-n", &name, "qdisc", "add", "dev", "eth0"], &filter[..]].concat(),
            )?;
        }
        Ok(())
    }

    /// Pulls a node's cable: its link stays up at its end, and nothing passes.
    pub(crate) fn cut(&self, node: usize) -> Result<(), Failure> {
        run("ip", &["link", "set", &outer(node), "nomaster"]).map(drop)
    }

    /// Puts it back.
    pub(crate) fn mend(&self, node: usize) -> Result<(), Failure> {
        run("ip", &["link", "set", &outer(node), "master", BRIDGE]).map(drop)
    }

    /// Loses this many percent of the packets that come to a node and of those that leave it, where they arrive at either end of
    /// its cable: no sender is told. With 0 no more.
    pub(crate) fn lose(&self, node: usize, percent: u8) -> Result<(), Failure> {
        need("nft", &["nftables"])?;
        let (name, outer) = (name(node), outer(node));
        let both = [
            (&["nft"][..], outer.as_str()),
            (&["ip", "netns", "exec", &name, "nft"][..], "eth0"),
        ];
        for (nft, device) in both {
            let table = format!("ab{}", outer);
            let rules = [
                // So that there is one to delete.
                format!("add table netdev {table}"),
                format!("delete table netdev {table}"),
            ];
            let lossy = [
                format!("add table netdev {table}"),
                format!(
                    "add chain netdev {table} loss {{ type filter hook ingress device \"{device}\" priority 0; }}"
                ),
                format!("add rule netdev {table} loss numgen random mod 100 < {percent} drop"),
            ];
            for rule in rules.iter().chain(lossy.iter().filter(|_| percent > 0)) {
                run(nft[0], &[&nft[1..], &[rule.as_str()]].concat())?;
            }
        }
        Ok(())
    }

    /// The address of a node, from 1.
    pub(crate) fn ip(&self, node: usize) -> String {
        format!("10.79.0.{node}")
    }

    /// A program in a node's namespace. What it prints can be read, unless told otherwise.
    pub(crate) fn command(&self, node: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &name(node)]).arg(program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    /// The first `nodes` namespaces as `antiphon bench --netns` takes them.
    pub(crate) fn places(&self, nodes: usize) -> String {
        let places: Vec<String> = (1..=nodes)
            .map(|node| format!("{}={}", name(node), self.ip(node)))
            .collect();
        places.join(",")
    }

    /// The processes of this program name in a node's namespace.
    pub(crate) fn processes(&self, node: usize, program: &str) -> Vec<i32> {
        let is_it = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == program)
        };
        pids(&name(node)).into_iter().filter(is_it).collect()
    }

    /// Ends every process in the namespaces.
    pub(crate) fn kill_all(&self) {
        (1..=self.nodes).for_each(|node| kill(&name(node)));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        remove();
    }
}

fn name(node: usize) -> String {
    format!("ab{node}")
}

/// The end of a node's cable at the bridge.
fn outer(node: usize) -> String {
    format!("abv{node}")
}

fn pids(netns: &str) -> Vec<i32> {
    let printed = run("ip", &["netns", "pids", netns]).unwrap_or_default();
    printed
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

fn kill(netns: &str) {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let pids = pids(netns);
        if pids.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            // It may be gone already.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
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

/// Removes whatever there is, in whatever state.
fn remove() {
    if let Some(before) = NEIGHBOURS_BEFORE.lock().ok().and_then(|mut before| before.take())
        && let Err(error) = std::fs::write(NEIGHBOURS, before)
    {
        eprintln!("antiphon-bench: {NEIGHBOURS}: {error}");
    }
    for node in 1..=MAX_NODES {
        let name = name(node);
        if Path::new("/run/netns").join(&name).exists() {
            kill(&name);
            // Names what is left in its own words; there is nothing more to try.
            if let Err(failure) = run("ip", &["netns", "del", &name]) {
                eprintln!("antiphon-bench: {failure}");
            }
        }
        // The kernel takes a namespace down later, when nothing refers to it any more, and only then the cable that ends in it.
        remove_link(&outer(node));
    }
    remove_link(BRIDGE);
}

fn remove_link(name: &str) {
    let there = || Path::new("/sys/class/net").join(name).exists();
    // The kernel may be quicker.
    if there()
        && let Err(failure) = run("ip", &["link", "del", name])
        && there()
    {
        eprintln!("antiphon-bench: {failure}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_can_be_made_as_soon_as_the_one_before_is_removed() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: not root: no network namespaces");
            return;
        }
        let _only = match lock() {
            Ok(lock) => lock,
            Err(failure) => return eprintln!("SKIPPED: {failure}"),
        };
        let probe = Lab::new(1, true);
        let Ok(lab) = probe else {
            return eprintln!(
                "SKIPPED: no network namespaces here: {}",
                probe.err().unwrap_or_default()
            );
        };
        // Keeps the namespace, and so its end of the cable, as the kernel does for a while.
        let _kept = File::open(Path::new("/run/netns").join(name(1))).unwrap();
        drop(lab);
        assert_eq!(Lab::new(1, true).map(drop), Ok(()));
    }
}
