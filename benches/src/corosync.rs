//! corosync: its daemon in each namespace, and a client of ours on libcpg that counts as its cpgbench does.
//!
//! Each daemon has a mount namespace of its own, in which what would clash (/dev/shm, /run, /etc/corosync, …)
//! is empty memory. The client is compiled when it is needed, so that building this program needs no
//! corosync.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::lab::Lab;
use crate::tools::{self, Lines};
use crate::{Common, Failure};

/// For the daemons to form their ring and for the clients to join.
const START_WITHIN: Duration = Duration::from_secs(60);

/// corosync's transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    /// Its own, the default.
    Knet,
    /// Plain UDP to each.
    Udpu,
}

impl Wire {
    /// As corosync.conf has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Wire::Knet => "knet",
            Wire::Udpu => "udpu",
        }
    }
}

/// What is needed to start it.
pub(crate) struct Corosync {
    client: PathBuf,
}

/// Clients that are told what to do as `peers/cpg_client.c` is, one on each host, with what serves them.
pub(crate) struct Ring<'a> {
    lab: &'a Lab,
    what: String,
    members: Vec<(Child, Lines)>,
}

impl Corosync {
    /// Installs it and compiles the client.
    pub(crate) fn get() -> Result<Self, Failure> {
        tools::need("corosync", &["corosync", "libcpg-dev"])?;
        tools::need("cc", &["gcc", "libc6-dev"])?;
        let client = tools::cache()?.join("cpg_client");
        let source = tools::root().join("benches/peers/cpg_client.c");
        let (to, from) = (client.to_string_lossy(), source.to_string_lossy());
        tools::run(
            "cc",
            &["-O2", "-Wall", "-Werror", "-o", &to, &from, "-lcpg", "-lpthread"],
        )?;
        Ok(Self { client })
    }

    /// What is installed: `3.1.7`.
    pub(crate) fn version(&self) -> String {
        let printed = tools::run("corosync", &["-v"]).unwrap_or_default();
        let version = printed.split('\'').nth(1).unwrap_or("of unknown version");
        version.to_owned()
    }

    /// Starts it in the first `nodes` namespaces.
    pub(crate) fn start<'a>(&self, lab: &'a Lab, nodes: usize, wire: Wire) -> Result<Ring<'a>, Failure> {
        let conf = tools::cache()?.join("corosync.conf");
        std::fs::write(&conf, configuration(lab, nodes, wire))
            .map_err(|error| format!("{}: {error}", conf.display()))?;
        let script = format!(
            "set -e
            mkdir -p /var/lib/corosync /var/log/corosync /etc/corosync
            mount -t tmpfs -o size=512m tmpfs /dev/shm
            for dir in /run /var/lib/corosync /var/log/corosync /etc/corosync; do mount -t tmpfs tmpfs $dir; done
            mkdir -p /run/corosync
            cp '{}' /etc/corosync/corosync.conf
            corosync -f </dev/null >/run/corosync.log 2>&1 &
            exec '{}'",
            conf.display(),
            self.client.display(),
        );
        let mut ring = Ring::new(lab, "corosync");
        for node in 1..=nodes {
            let mut command = lab.command(node, "unshare".as_ref());
            command.args(["-m", "--propagation", "private", "bash", "-c", &script]);
            ring.add(command)?;
        }
        ring.gather()?;
        Ok(ring)
    }

    /// The client.
    pub(crate) fn client(&self) -> &Path {
        &self.client
    }
}

impl<'a> Ring<'a> {
    /// Nobody yet.
    pub(crate) fn new(lab: &'a Lab, what: &str) -> Self {
        Self {
            lab,
            what: what.to_owned(),
            members: Vec::new(),
        }
    }

    /// Starts one more, on a host of the lab.
    pub(crate) fn add(&mut self, mut command: Command) -> Result<(), Failure> {
        let mut child = command
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", self.what))?;
        let lines = Lines::of(child.stdout.take().expect("stdout is a pipe"));
        self.members.push((child, lines));
        Ok(())
    }

    /// Waits until each sees all.
    pub(crate) fn gather(&self) -> Result<(), Failure> {
        let all = format!("members {}", self.members.len());
        for (_, lines) in &self.members {
            let what = format!("all clients of {} to join", self.what);
            lines.find(START_WITHIN, &what, |line| (line == all).then_some(()))?;
        }
        Ok(())
    }

    /// Messages per second delivered at the first node, while the first `senders` send all they can.
    pub(crate) fn rate(&mut self, size: u32, senders: usize, common: &Common) -> Result<f64, Failure> {
        let (warmup, seconds) = (common.warmup(), common.seconds());
        self.tell(|index| format!("run {size} {warmup} {seconds} {}\n", u8::from(index < senders)))?;
        let mut rates = Vec::new();
        for (_, lines) in &self.members {
            let what = format!("the figures of {}", self.what);
            rates.push(lines.find(common.patience(), &what, |line| {
                let mut words = line.strip_prefix("done ")?.split(' ');
                let delivered: f64 = words.next()?.parse().ok()?;
                let seconds: f64 = words.next()?.parse().ok()?;
                Some(delivered / seconds)
            })?);
        }
        rates
            .first()
            .copied()
            .ok_or_else(|| format!("{} has no nodes", self.what))
    }

    /// Latencies in nanoseconds, one way, with all nodes sending at this rate together.
    pub(crate) fn latencies(&mut self, rate: u32, size: u32, common: &Common) -> Result<Vec<u64>, Failure> {
        let (warmup, seconds, nodes) = (common.warmup(), common.seconds(), self.members.len() as u64);
        let interval_ns = 1_000_000_000 * nodes / u64::from(rate);
        self.tell(|index| {
            format!(
                "pace {interval_ns} {size} {warmup} {seconds} {}\n",
                interval_ns * index as u64 / nodes
            )
        })?;
        let mut all = Vec::new();
        for (_, lines) in &self.members {
            lines.find(
                common.patience(),
                &format!("the latencies of {}", self.what),
                |line| {
                    all.extend(line.strip_prefix("lat ").and_then(|ns| ns.parse::<u64>().ok()));
                    (line == "end").then_some(())
                },
            )?;
        }
        Ok(all)
    }

    /// The share of a core, in percent, that each daemon takes while nothing is sent.
    pub(crate) fn idle(&self, seconds: u32) -> Result<Vec<f64>, Failure> {
        let daemons: Vec<i32> = (1..=self.members.len())
            .flat_map(|node| self.lab.processes(node, "corosync"))
            .collect();
        if daemons.len() != self.members.len() {
            return Err(format!(
                "{} corosync daemons run where {} were started",
                daemons.len(),
                self.members.len()
            ));
        }
        let take = || {
            daemons
                .iter()
                .map(|pid| tools::cpu_of(*pid))
                .collect::<Result<Vec<_>, _>>()
        };
        let (before, from) = (take()?, Instant::now());
        std::thread::sleep(Duration::from_secs(seconds.into()));
        let (after, elapsed) = (take()?, from.elapsed().as_secs_f64());
        let taken = before.iter().zip(&after);
        Ok(taken
            .map(|(before, after)| after.saturating_sub(*before).as_secs_f64() / elapsed * 100.0)
            .collect())
    }

    fn tell(&mut self, order: impl Fn(usize) -> String) -> Result<(), Failure> {
        for (index, (child, _)) in self.members.iter_mut().enumerate() {
            let stdin = child.stdin.as_mut().expect("stdin is a pipe");
            let told = stdin.write_all(order(index).as_bytes());
            told.map_err(|error| {
                format!(
                    "the client of {} at node {} has ended: {error}",
                    self.what,
                    index + 1
                )
            })?;
        }
        Ok(())
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        self.lab.kill_all();
        for (child, _) in &mut self.members {
            // Just killed.
            let _ = child.wait();
        }
    }
}

/// Nothing may follow an opening brace on its line.
fn configuration(lab: &Lab, nodes: usize, wire: Wire) -> String {
    let members: String = (1..=nodes)
        .map(|node| {
            format!(
                "  node {{\n    ring0_addr: {}\n    nodeid: {node}\n    name: n{node}\n  }}\n",
                lab.ip(node)
            )
        })
        .collect();
    format!(
        "totem {{\n  version: 2\n  cluster_name: bench\n  transport: {}\n  crypto_cipher: none\n  crypto_hash: none\n}}\n\
         nodelist {{\n{members}}}\n\
         quorum {{\n  provider: corosync_votequorum\n}}\n\
         system {{\n  qb_ipc_type: native\n  sched_rr: no\n}}\n\
         logging {{\n  to_stderr: yes\n  to_syslog: no\n}}\n",
        wire.as_str()
    )
}
