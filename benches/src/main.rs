//! Antiphon and its peers side by side: the same machine, the same hour, the same namespaces, sizes and
//! senders.
//!
//! ```text
//!              ┌─ ours:     `antiphon bench … --netns` ─┐
//!  main ─ lab ─┼─ peers:    corosync, JGroups, memberlist┼─► report ─► JSON, table, plot, row in docs/benchmarks
//!   (hosts     └─ raw:      the machine's own limit    ─┘
//!    on a bridge)             runs of each by turns
//! ```
//! - [`lab`]: network namespaces on a bridge, removed whatever happens, and so is [`scratch`]: files;
//!   [`processors`]: one for all, or shared out; [`tools`]: what has to be installed.
//! - [`ours`], [`jgroups`], [`memberlist`], [`corosync`], [`raw`]: one measurement of each; [`swarm`]: many
//!   members in a process.
//! - [`formation`] (also `join` and `shutdown`), [`detect`]: views; [`mperf`], [`cpg`], [`chain`],
//!   [`order_latency`], [`idle`], [`limits`]: which measurements make a benchmark.
//! - [`blocks`]: requests, locks, maps, state, commands to peers: benchmarks with workers of their own.
//! - [`agents`]: programs of agents, in JSON lines and RESP.
//! - [`report`], [`table`], [`plot`]: what is told.
//!
//! Root is needed. A peer that cannot be had is an error, except with `--smoke`, which then measures ours
//! alone.

mod agents;
mod blocks;
mod chain;
mod corosync;
mod cpg;
mod detect;
mod formation;
mod idle;
mod jgroups;
mod lab;
mod limits;
mod memberlist;
mod mperf;
mod order_latency;
mod ours;
mod plot;
mod processors;
mod raw;
mod report;
mod scratch;
mod swarm;
mod table;
mod tools;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// As in the program `antiphon`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Why a benchmark could not be done, for the person who started it.
type Failure = String;

/// Exit code without root: nothing was done.
const NEEDS_ROOT: u8 = 3;

/// Antiphon and its peers side by side. Needs root; makes network namespaces ab… and removes them.
#[derive(Debug, Parser)]
#[command(name = "antiphon-bench", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// All members send: messages per second at each, against JGroups MPerf and raw TCP
    Mperf(mperf::MperfArgs),
    /// Total order: messages per second delivered at one node, against corosync's CPG
    Cpg(cpg::CpgArgs),
    /// Slow links: bytes per second at each of four members, from member to member and to each, against
    /// JGroups
    Chain(chain::ChainArgs),
    /// Total order under light load: latency one way, against corosync's CPG and JGroups SEQUENCER
    OrderLatency(order_latency::LatencyArgs),
    /// CPU of nodes that have nothing to do, against corosync
    Idle(idle::IdleArgs),
    /// Many members on one machine: until each reports all, against JGroups and memberlist
    Formation(formation::FormationArgs),
    /// One more member beside many: until it sees all and all see it, against JGroups and memberlist
    Join(formation::JoinArgs),
    /// Many members leave at once: until the last has left, against JGroups and memberlist
    Shutdown(formation::ShutdownArgs),
    /// A member killed, cut off, stopped: until all know; little CPU, bad links: who is removed though alive
    Detect(detect::DetectArgs),
    /// A replicated map: entries written per second and applied by all of three, and reads of one's own copy,
    /// against JGroups and Hazelcast
    Map(blocks::map::MapArgs),
    /// Locks taken and given back per second by eight nodes, against ZooKeeper, etcd and a plain lock server
    Locks(blocks::locks::LocksArgs),
    /// The holder of a lock is killed: until the next one holds it
    Failover(blocks::failover::FailoverArgs),
    /// Requests per second at each node, against JGroups UPerf; one call at a time, against gRPC
    Rpc(blocks::rpc::RpcArgs),
    /// Six ways to get a version stamped on a message at three servers
    Versions(blocks::versions::VersionsArgs),
    /// A joiner takes a large state while others write, against JGroups and raw TCP
    State(blocks::state::StateArgs),
    /// Total order between programs of agents: messages per second at one, against corosync's CPG and the
    /// library
    Clients(agents::clients::ClientsArgs),
    /// Commands to peers by every way: until the reply, to hand one over, beside a peer that hangs or is dead
    Delivery(blocks::delivery::DeliveryArgs),
    /// redis-benchmark on agents, against redis-server alone and with a replica and WAIT
    Redis(agents::redis::RedisArgs),
    /// Memory of an agent for clients that say nothing, and how long others wait beside them, against
    /// redis-server
    IdleClients(agents::idle_clients::IdleClientsArgs),
    /// What TCP and UDP give on this machine without any protocol
    Limits(limits::LimitsArgs),
    /// Make the tables of benchmarks.md and the plots from the data file again
    Plots {
        /// Folder of benchmarks.md [default: docs]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// One process of a raw measurement
    #[command(hide = true)]
    Raw(raw::RawArgs),
    /// One node that does what it is told on its standard input
    #[command(hide = true)]
    Worker(blocks::worker::WorkerArgs),
    /// One program of an agent, in JSON lines
    #[command(hide = true)]
    Client(agents::client::ClientArgs),
    /// Connections that speak RESP
    #[command(hide = true)]
    Resp(agents::resp::RespArgs),
    /// Connections that say nothing
    #[command(hide = true)]
    Crowd(agents::crowd::CrowdArgs),
    /// One node that commands others and is commanded
    #[command(hide = true)]
    End(Box<blocks::delivery::end::EndArgs>),
}

impl Bench {
    /// Whether it is a part of a benchmark that another process runs, or measures nothing.
    fn is_part(&self) -> bool {
        matches!(
            self,
            Bench::Plots { .. }
                | Bench::Raw(_)
                | Bench::Worker(_)
                | Bench::Client(_)
                | Bench::Resp(_)
                | Bench::Crowd(_)
                | Bench::End(_)
        )
    }
}

/// Of every benchmark.
#[derive(Debug, Clone, Args)]
struct Common {
    /// How long each measurement counts
    #[arg(long, value_name = "S", default_value_t = 10)]
    seconds: u32,
    /// How often each is measured, by turns with the others
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// Switch TSO, GSO and GRO off on the links, as a network card without them
    #[arg(long)]
    no_offload: bool,
    /// As short as can be, and without peers where they cannot be had: shows that everything works
    #[arg(long)]
    smoke: bool,
    /// Folder for the plots and the table [default: docs; with --smoke a folder under target]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// End with one JSON object on the last line
    #[arg(long)]
    json: bool,
}

impl Common {
    /// How long a measurement counts.
    fn seconds(&self) -> u32 {
        if self.smoke { 1 } else { self.seconds.max(1) }
    }

    /// How long a measurement warms up.
    fn warmup(&self) -> u32 {
        if self.smoke { 1 } else { 2 }
    }

    /// How often.
    fn runs(&self) -> u16 {
        if self.smoke { 1 } else { self.runs }
    }

    /// For what is started besides the measured time.
    fn patience(&self) -> Duration {
        Duration::from_secs(60 + u64::from(self.seconds()))
    }

    /// A peer or its figures, or why there are none; only `--smoke` goes on without.
    fn peer<T>(&self, peer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match peer {
            Ok(peer) => Ok(Some(peer)),
            Err(failure) if self.smoke => {
                eprintln!("SKIPPED the peer: {failure}");
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }
}

fn main() -> ExitCode {
    let bench = Cli::parse().bench;
    if bench.is_part() {
        return told(run(bench));
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "antiphon-bench: needs root, to make network namespaces and to install the peers; nothing was done"
        );
        return ExitCode::from(NEEDS_ROOT);
    }
    let _only = match lab::lock() {
        Ok(lock) => lock,
        Err(failure) => return told(Err(failure)),
    };
    if let Err(failure) = lab::remove_at_signals() {
        return told(Err(failure));
    }
    // A lab panics if its hosts are removed while it is used.
    let result = std::panic::catch_unwind(AssertUnwindSafe(|| run(bench)));
    // What was measured meanwhile has failed, or counts no more.
    lab::wait_if_interrupted();
    match result {
        Ok(result) => told(result),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn run(bench: Bench) -> Result<(), Failure> {
    match bench {
        Bench::Mperf(args) => mperf::run(&args),
        Bench::Cpg(args) => cpg::run(&args),
        Bench::Chain(args) => chain::run(&args),
        Bench::OrderLatency(args) => order_latency::run(&args),
        Bench::Idle(args) => idle::run(&args),
        Bench::Formation(args) => formation::formation(&args),
        Bench::Join(args) => formation::join(&args),
        Bench::Shutdown(args) => formation::shutdown(&args),
        Bench::Detect(args) => detect::run(&args),
        Bench::Map(args) => blocks::map::run(&args),
        Bench::Locks(args) => blocks::locks::run(&args),
        Bench::Failover(args) => blocks::failover::run(&args),
        Bench::Rpc(args) => blocks::rpc::run(&args),
        Bench::Versions(args) => blocks::versions::run(&args),
        Bench::State(args) => blocks::state::run(&args),
        Bench::Clients(args) => agents::clients::run(&args),
        Bench::Delivery(args) => blocks::delivery::run(&args),
        Bench::Redis(args) => agents::redis::run(&args),
        Bench::IdleClients(args) => agents::idle_clients::run(&args),
        Bench::Limits(args) => limits::run(&args),
        Bench::Plots { out } => report::draw(&out.unwrap_or_else(|| tools::root().join("docs")), None),
        Bench::Raw(args) => raw::member(&args),
        Bench::Worker(args) => blocks::worker::run(&args),
        Bench::Client(args) => agents::client::run(&args),
        Bench::Resp(args) => agents::resp::run(&args),
        Bench::Crowd(args) => agents::crowd::run(&args),
        Bench::End(args) => blocks::delivery::end::run(*args),
    }
}

fn told(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("antiphon-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
