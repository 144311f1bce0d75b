//! `idle-clients`: what an agent's memory is for connections that say nothing, and how long those wait that
//! do say something beside them.

use std::process::Stdio;
use std::time::Duration;

use clap::Args;

use super::redis::{self, REDIS_PORT};
use super::{Agents, PROGRAM_PORT, resident_kib};
use crate::blocks::{Figures, Peer};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::scratch::Scratch;
use crate::{Common, Failure, tools};

const NODES: usize = 3;
const RESP: &str = "antiphon";
const LINES: &str = "antiphon, JSON lines";
const REDIS: &str = "redis";
/// For all connections to be there.
const CROWD_WITHIN: Duration = Duration::from_secs(60);
/// For what was allocated meanwhile to be given back, where it is.
const REST: Duration = Duration::from_secs(1);
/// Requests of a busy connection per second.
const PACE: &str = "10";

#[derive(Debug, Args)]
pub(crate) struct IdleClientsArgs {
    #[command(flatten)]
    common: Common,
    /// Connections that say nothing
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u16).range(1..=7000))]
    idle: u16,
    /// Connections that read ten keys a second each
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u16).range(1..=1000))]
    busy: u16,
}

/// Measures and reports.
pub(crate) fn run(args: &IdleClientsArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    tools::need("redis-cli", &["redis-tools"])?;
    let peer = common.peer(tools::need("redis-server", &["redis-server"]))?;
    let lab = Lab::new(NODES, !common.no_offload)?;
    let mut cases = [
        Case::new("memory for one idle client".to_owned()),
        Case::of(format!("p50 of a GET, {} busy clients", args.busy), "us"),
        Case::of(format!("p99 of a GET, {} busy clients", args.busy), "us"),
    ];
    for run in 1..=common.runs() {
        for (series, lines) in [(RESP, false), (LINES, true)] {
            eprintln!("{series}, run {run}");
            let agents = Agents::start(&lab, ours.program(), NODES, |_| Vec::new())?;
            redis::share(&lab)?;
            measure(
                &lab,
                agents.pid(1),
                PROGRAM_PORT,
                (series, lines),
                &mut cases,
                args,
            )?;
        }
        if peer.is_some() {
            eprintln!("{REDIS}, run {run}");
            let scratch = Scratch::new("redis")?;
            let server = redis::server(&lab, &scratch, 1, &[])?;
            let pid = server.pid().as_raw_nonzero().get();
            measure(&lab, pid, REDIS_PORT, (REDIS, false), &mut cases, args)?;
        }
    }
    let mut report = Report::new(
        "idle-clients",
        &format!(
            "KiB of an agent's memory for one of {} connections that say nothing",
            args.idle
        ),
        "KiB",
    );
    report.cases = cases.into();
    report.lower_is_better = true;
    report.headline = Headline {
        ours: RESP.to_owned(),
        peers: vec![REDIS.to_owned()],
        limit: None,
    };
    report.peer_version = peer.map(|()| redis::version());
    report.tell(&ours.version(), common)
}

/// The memory of a process for idle connections, and the waits of busy ones without and beside these.
fn measure(
    lab: &Lab,
    pid: i32,
    port: u16,
    (series, lines): (&str, bool),
    cases: &mut [Case; 3],
    args: &IdleClientsArgs,
) -> Result<(), Failure> {
    let [memory, p50, p99] = cases;
    // What the first connections need once is not counted for the others.
    let before = busy(lab, port, args)?;
    std::thread::sleep(REST);
    let empty = resident_kib(pid)?;
    let mut command = redis::ours(lab)?;
    command
        .args(["crowd", "--addr", &format!("127.0.0.1:{port}")])
        .args(["--connections", &args.idle.to_string()])
        .stderr(Stdio::inherit());
    if lines {
        command.arg("--lines");
    }
    let crowd = Peer::start(command, "idle connections")?;
    crowd.expect("ready", CROWD_WITHIN)?;
    std::thread::sleep(REST);
    memory.add(series, (resident_kib(pid)? - empty) / f64::from(args.idle));
    let beside = busy(lab, port, args)?;
    let figure = |figures: &Figures, name: &str| figures.get(name).copied().unwrap_or(f64::NAN);
    p50.add(series, figure(&beside, "p50_us"));
    p99.add(series, figure(&beside, "p99_us"));
    let alone = format!("{series}, no idle clients");
    p50.add(&alone, figure(&before, "p50_us"));
    p99.add(&alone, figure(&before, "p99_us"));
    drop(crowd);
    Ok(())
}

fn busy(lab: &Lab, port: u16, args: &IdleClientsArgs) -> Result<Figures, Failure> {
    let connections = args.busy.to_string();
    let more = ["--says", "get", "--connections", &connections, "--pace", PACE];
    redis::resp(lab, port, &more, &args.common)
}
