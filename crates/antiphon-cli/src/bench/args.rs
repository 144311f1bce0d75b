//! The command line of `antiphon bench`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use antiphon::config::{Patience, Size};
use antiphon::{Dissemination, Order, Profile, TotalEngine, Transport};
use clap::{Args, Subcommand};

use super::worker::words::Stop;
use crate::args::{DISSEMINATIONS, ENGINES, ORDERS, PROFILES, TRANSPORTS, named};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[command(subcommand)]
    pub(crate) what: BenchWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchWhat {
    /// How many messages each member delivers in a second
    #[command(after_help = MULTICAST_HELP)]
    Multicast(MulticastArgs),
    /// How long a message takes at a fixed rate: one way, and there and back
    #[command(after_help = LATENCY_HELP)]
    Latency(LatencyArgs),
    /// How long a member that stops reading holds up the others, and what memory they take meanwhile
    #[command(after_help = SLOW_HELP)]
    Slow(SlowArgs),
    /// How much CPU a node takes that has nothing to do
    #[command(after_help = IDLE_HELP)]
    Idle(IdleArgs),
    /// Start all within 1 s of each other: until the last one started sees all
    #[command(after_help = VIEWS_HELP)]
    Formation(ViewsArgs),
    /// Start one more beside a running cluster: until it and all others have it in their view
    #[command(after_help = VIEWS_HELP)]
    Join(ViewsArgs),
    /// kill -9 of a member, the elder every other time: until all survivors have the next view
    #[command(after_help = VIEWS_HELP)]
    Kill(ViewsArgs),
    /// SIGSTOP of a member, as a silent host: until all others have the next view
    #[command(after_help = VIEWS_HELP)]
    Silent(ViewsArgs),
    /// One node that sends and counts as it is told on stdin
    #[command(hide = true)]
    Worker,
}

/// Of the benchmarks of views.
#[derive(Debug, Args)]
pub(crate) struct ViewsArgs {
    /// How often
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// How many nodes; 5 unless said otherwise, 10 for `join`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=50))]
    pub(crate) nodes: Option<u16>,
    /// Timing of the nodes
    #[arg(long, value_parser = named::<Profile>(PROFILES), value_name = "NAME", default_value = "lan")]
    pub(crate) profile: Profile,
    /// One JSON object per run; the last line is the summary
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MulticastArgs {
    #[command(flatten)]
    pub(crate) crew: CrewArgs,
    /// How many of the nodes send [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) senders: Option<u16>,
    /// Bytes of a message; several are measured one after the other
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=antiphon::MAX_PAYLOAD_BYTES as i64))]
    pub(crate) size: Vec<u32>,
    /// Send safe messages: delivered when every member holds them
    #[arg(long)]
    pub(crate) safe: bool,
    /// How long messages are counted
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How long messages are sent before they are counted
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) warmup: Duration,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
}

#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    pub(crate) crew: CrewArgs,
    /// How many of the nodes send [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) senders: Option<u16>,
    /// Messages per second of all senders together
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) rate: u32,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(16..=antiphon::MAX_PAYLOAD_BYTES as i64))]
    pub(crate) size: u32,
    /// Send safe messages: delivered when every member holds them
    #[arg(long)]
    pub(crate) safe: bool,
    /// The first member also sends payloads of this size, above 1MiB, one after the other all the time: what
    /// they cost the messages
    #[arg(long, value_name = "SIZE", value_parser = str::parse::<Size>)]
    pub(crate) bulk: Option<Size>,
    /// How long latencies are taken, each way
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How long messages are sent before that
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    pub(crate) warmup: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct SlowArgs {
    #[command(flatten)]
    pub(crate) crew: CrewArgs,
    /// What stops: the `reader`, whose node goes on, or the whole `process`
    #[arg(long, value_enum, value_name = "WHAT", default_value = "reader")]
    pub(crate) stop: Stop,
    /// Which member stops, by seniority; 0 leads the group [default: the last]
    #[arg(long, value_name = "RANK")]
    pub(crate) rank: Option<u16>,
    /// After how long the group goes on without a reader that has stopped: 1s to 1h, or `never`
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = str::parse::<Patience>)]
    pub(crate) slow_after: Patience,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..=antiphon::MAX_PAYLOAD_BYTES as i64))]
    pub(crate) size: u32,
    /// How long it is stopped
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How long all read before that
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    pub(crate) warmup: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    pub(crate) crew: CrewArgs,
    /// How long to watch
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    pub(crate) seconds: Duration,
    /// How long to let the cluster come to rest before that
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub(crate) warmup: Duration,
}

/// Which nodes take part, and how they are set up.
#[derive(Debug, Args)]
pub(crate) struct CrewArgs {
    /// How many nodes [default: 3, or one for each --netns]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) nodes: Option<u16>,
    /// Order of delivery; several are measured one after the other
    #[arg(
        long,
        value_parser = named::<Order>(ORDERS),
        value_name = "ORDER,…",
        value_delimiter = ',',
        default_value = "total"
    )]
    pub(crate) order: Vec<Order>,
    /// What makes a total order
    #[arg(long, value_parser = named::<TotalEngine>(ENGINES), value_name = "ENGINE", default_value = "sequencer")]
    pub(crate) engine: TotalEngine,
    /// The way of the messages
    #[arg(long, value_parser = named::<Dissemination>(DISSEMINATIONS), value_name = "WAY", default_value = "direct")]
    pub(crate) dissemination: Dissemination,
    /// How messages are sent
    #[arg(long, value_parser = named::<Transport>(TRANSPORTS), value_name = "NAME", default_value = "tcp")]
    pub(crate) transport: Transport,
    /// Largest UDP datagram, without the headers of IP and UDP [default: what the route takes]
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_datagram: Option<u16>,
    /// Bytes each node may have sent that some node has not consumed [default: the library's]
    #[arg(long, value_name = "BYTES")]
    pub(crate) window_bytes: Option<u32>,
    /// Timing of the nodes
    #[arg(long, value_parser = named::<Profile>(PROFILES), value_name = "NAME", default_value = "lan")]
    pub(crate) profile: Profile,
    /// File with the cluster key: measure with encryption
    #[arg(long, value_name = "F")]
    pub(crate) key_file: Option<PathBuf>,
    /// Measure with encryption under a key made for this run
    #[arg(long, conflicts_with_all = ["key_file", "join"])]
    pub(crate) keyed: bool,
    /// Threads of each node; 1 runs node and load on one
    #[arg(long, value_name = "N", default_value_t = super::worker::THREADS, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) threads: u8,
    /// Run one node in each of these network namespaces, at this address of it (root)
    #[arg(long, value_name = "NAME=IP,…", value_delimiter = ',', value_parser = place, conflicts_with = "join")]
    pub(crate) netns: Vec<Place>,
    /// Be one node among those of other hosts: the same command on each, with the same seeds. They start
    /// together when all --nodes are there, and each prints the figures of all
    #[arg(long, value_name = "A,B,…", value_delimiter = ',', requires_all = ["nodes", "bind"])]
    pub(crate) join: Vec<String>,
    /// With --join: address to listen at, one the others reach
    #[arg(long, value_name = "ADDR:PORT", requires = "join")]
    pub(crate) bind: Option<String>,
    /// With --join: name of the cluster
    #[arg(long, value_name = "C", default_value = "bench")]
    pub(crate) cluster: String,
    /// With --join and no key, allow addresses that are not loopback
    #[arg(long, requires = "join")]
    pub(crate) insecure: bool,
    /// JSON objects on stdout; the last line is the summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where a node runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// A network namespace, as `ip netns` names it.
    pub(crate) netns: String,
    /// An address in it.
    pub(crate) ip: IpAddr,
}

fn place(text: &str) -> Result<Place, String> {
    let wrong = || "expected a network namespace and an address in it, such as node1=10.0.0.1".to_owned();
    let (netns, ip) = text.split_once('=').ok_or_else(wrong)?;
    if netns.is_empty() || netns.contains('/') {
        return Err(wrong());
    }
    Ok(Place {
        netns: netns.to_owned(),
        ip: ip.parse().map_err(|_| wrong())?,
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, at most a day".to_owned()),
    }
}

const MULTICAST_HELP: &str = "\
A member's figure counts every message it delivers, its own included, over the time after the warm-up. The last line of
--json has median, min and max over the runs.

Examples:
  antiphon bench multicast --nodes 4 --order unordered,fifo
  antiphon bench multicast --size 64,1600,40000 --senders 1 --keyed
  antiphon bench multicast --order fifo,total --safe
  on each of three hosts, with its own address as --bind:
    antiphon bench multicast --nodes 3 --join 10.0.0.1,10.0.0.2,10.0.0.3 --bind 10.0.0.1 --key-file shop.key";

const LATENCY_HELP: &str = "\
Messages are due at fixed times, and a latency counts from the time at which its message was due: a pause of the cluster
is felt by all messages due in it. One way needs one clock, so it is not measured between hosts.

Example:
  antiphon bench latency --nodes 3 --rate 1000";

const SLOW_HELP: &str = "\
All nodes send all they can. Memory is the resident memory of each process, looked at every 100 ms: its most while all
read, and its most while one has stopped. `held up` is the longest time in which a member that reads delivered nothing.

Examples:
  antiphon bench slow --seconds 120
  antiphon bench slow --slow-after never --seconds 600
  antiphon bench slow --stop process --seconds 600";

const IDLE_HELP: &str = "\
Example:
  antiphon bench idle --nodes 3 --seconds 60";

const VIEWS_HELP: &str = "\
Times are in milliseconds, taken where the lines of the nodes arrive at this program. The last line (of --json) is an
object with median, p99, min, max and standard deviation of each figure.

Examples:
  antiphon bench formation --runs 20
  antiphon bench kill --json | tail -n 1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_namespace_and_an_address() {
        let right = place("node1=10.0.0.1").unwrap();
        assert_eq!(
            (right.netns.as_str(), right.ip),
            ("node1", IpAddr::from([10, 0, 0, 1]))
        );
        for wrong in ["node1", "=10.0.0.1", "node1=10.0.0", "../x=10.0.0.1"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_may_be_parts_of_one_and_never_less_than_none() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        for wrong in ["-1", "NaN", "inf", "1e9", "a"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
