//! The command line of `antiphon swarm`.

use std::time::Duration;

use antiphon::{EngineKind, Profile, Transport};
use clap::Args;

use crate::args::{MEMBERSHIPS, PROFILES, TRANSPORTS, named};

/// Many nodes on this machine.
#[derive(Debug, Args)]
pub(crate) struct SwarmArgs {
    /// How many nodes, 2 to 4096 (256 with `coordinator`)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..))]
    pub(crate) nodes: u16,
    /// Spread them over this many processes, each with its own limit of open files
    #[arg(long, value_name = "P", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) processes: u8,
    /// Threads of each process [default: as many as the machine has cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) threads: Option<u8>,
    /// How many of the nodes are the seeds that found the cluster; the others join it
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) seeds: u8,
    /// How node views are agreed on: `coordinator`, or `cut` for more than 50 nodes, failures of several at
    /// once, or lossy paths
    #[arg(long, value_parser = named::<EngineKind>(MEMBERSHIPS), value_name = "NAME", default_value = "coordinator")]
    pub(crate) membership: EngineKind,
    /// Timing of the nodes
    #[arg(long, value_parser = named::<Profile>(PROFILES), value_name = "NAME", default_value = "lan")]
    pub(crate) profile: Profile,
    /// How messages are sent
    #[arg(long, value_parser = named::<Transport>(TRANSPORTS), value_name = "NAME", default_value = "tcp")]
    pub(crate) transport: Transport,
    /// Encrypt, under a key made for this run
    #[arg(long)]
    pub(crate) keyed: bool,
    /// All nodes also join one group, at most 64 of them, with a connection each way between any two
    #[arg(long)]
    pub(crate) group: bool,
    /// Once formed, one more node joins and leaves again, this many times, a second apart
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) joins: u16,
    /// How long the nodes are watched at rest, once formed; 0 leaves it out
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How long they may take to form, and to leave
    #[arg(long, value_name = "S", default_value = "120", value_parser = seconds)]
    pub(crate) within: Duration,
    /// One JSON object per step; the last line is the summary
    #[arg(long)]
    pub(crate) json: bool,
    /// Be one process of a swarm, told what to do on stdin
    #[arg(long, hide = true)]
    pub(crate) crowd: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, at most a day".to_owned()),
    }
}

/// Behind the options.
pub(crate) const HELP: &str = "\
Every node is a whole one, with sockets of its own on 127.0.0.1; only the process is shared. `formed` counts from the start of
the first until each reports all; `sizes seen` are the different numbers of members that any node reported on the way. At rest,
bytes are those of frames, without the headers of TCP and IP; files and memory are those that the nodes add to an empty process.
`left` counts from when all are told to leave until the last has left. With --json the nodes report `formed`, `rest`, each
`join`, and `summary`, one object a line.

Examples:
  antiphon swarm --nodes 50
  antiphon swarm --nodes 100 --membership cut --joins 20
  antiphon swarm --nodes 200 --membership cut --json | tail -n 1";
