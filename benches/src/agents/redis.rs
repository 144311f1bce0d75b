//! `redis`: redis-benchmark on an agent and on a redis-server.
//!
//! Three agents share the database, so a write is replied to when all three hold it. What Redis has nearest
//! to that is a replica and `WAIT 1` behind each write. redis-benchmark cannot say that: a client of ours
//! measures `SET, held by all` on both, with as many connections. Pipelined, one `WAIT` follows as many
//! writes as are under way.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use clap::Args;

use super::{Agents, PROGRAM_PORT};
use crate::blocks::Peer;
use crate::lab::Lab;
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::scratch::Scratch;
use crate::{Common, Failure, tools};

const NODES: usize = 3;
const ANTIPHON: &str = "antiphon";
const REDIS: &str = "redis";
const REPLICATED: &str = "redis with a replica, WAIT 1";
pub(super) const REDIS_PORT: u16 = 6379;
/// Of a value.
const BYTES: usize = 64;
const KEYS: u64 = 10_000;
/// Requests from which the rate is guessed, so that a measurement takes its time: redis-benchmark counts
/// requests, and not seconds.
const GUESS: u64 = 2000;
const START_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub(crate) struct RedisArgs {
    #[command(flatten)]
    common: Common,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Requests of a connection under way, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 16], value_parser = clap::value_parser!(u16).range(1..=512))]
    pipelines: Vec<u16>,
}

/// What redis-benchmark is to measure: the name of the case, and its arguments.
const TESTS: [(&str, &[&str]); 4] = [
    ("SET", &["-t", "set"]),
    ("GET", &["-t", "get"]),
    ("INCR", &["-t", "incr"]),
    (
        "PUBLISH",
        &["PUBLISH", "channel", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"],
    ),
];
const HELD: &str = "SET, held by all";

/// Measures and reports.
pub(crate) fn run(args: &RedisArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    tools::need("redis-benchmark", &["redis-tools"])?;
    let redis = common.peer(tools::need("redis-server", &["redis-server"]))?;
    let lab = Lab::new(NODES, !common.no_offload)?;
    let names = TESTS.iter().map(|(name, _)| *name).chain([HELD]);
    let name = |name: &str, pipeline: u16| match pipeline {
        1 => name.to_owned(),
        _ => format!("{name}, {pipeline} pipelined"),
    };
    let pipelines = &args.pipelines;
    let all = names.flat_map(|test| pipelines.iter().map(move |pipeline| name(test, *pipeline)));
    let mut cases: Vec<Case> = all.map(Case::new).collect();
    for run in 1..=common.runs() {
        eprintln!("{ANTIPHON}, run {run}");
        let agents = Agents::start(&lab, ours.program(), NODES, |_| Vec::new())?;
        share(&lab)?;
        benchmarks(&lab, PROGRAM_PORT, ANTIPHON, &mut cases, args)?;
        held(&lab, PROGRAM_PORT, "set", ANTIPHON, &mut cases, args)?;
        drop(agents);
        if redis.is_none() {
            continue;
        }
        eprintln!("{REDIS}, run {run}");
        let scratch = Scratch::new("redis")?;
        let alone = server(&lab, &scratch, 1, &[])?;
        benchmarks(&lab, REDIS_PORT, REDIS, &mut cases, args)?;
        drop(alone);
        eprintln!("{REPLICATED}, run {run}");
        let leader = server(&lab, &scratch, 1, &[])?;
        let leads = ["--replicaof", &lab.ip(1), &REDIS_PORT.to_string()];
        let replica = server(&lab, &scratch, 2, &leads)?;
        until(&lab, 2, REDIS_PORT, &["INFO", "replication"], |said| {
            said.contains("master_link_status:up")
        })?;
        held(&lab, REDIS_PORT, "set-wait", REPLICATED, &mut cases, args)?;
        drop((leader, replica));
    }
    let mut report = Report::new(
        "redis",
        "requests per second of 50 connections, three agents that each hold all beside a redis-server",
        "requests/s",
    );
    report.cases = cases;
    report.headline = Headline {
        ours: ANTIPHON.to_owned(),
        peers: vec![REDIS.to_owned(), REPLICATED.to_owned()],
        limit: None,
    };
    report.peer_version = redis.map(|()| version());
    report.tell(&ours.version(), common)
}

/// `Redis 7.0.15`.
pub(super) fn version() -> String {
    let printed = tools::run("redis-server", &["--version"]).unwrap_or_default();
    let version = printed
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    format!("Redis {}", version.unwrap_or("of unknown version"))
}

/// A redis-server on this host, that keeps nothing on disk; a replica has what it takes from its leader in a
/// file first.
pub(super) fn server(lab: &Lab, scratch: &Scratch, node: usize, more: &[&str]) -> Result<Peer, Failure> {
    let mut command = lab.command(node, "redis-server".as_ref());
    command
        .args(["--port", &REDIS_PORT.to_string(), "--bind", "0.0.0.0"])
        .args(["--protected-mode", "no", "--save", "", "--appendonly", "no"])
        .args(["--maxclients", "10000", "--repl-diskless-sync-delay", "0"])
        .args(["--dbfilename", &format!("{node}.rdb"), "--dir"])
        .arg(scratch.path())
        .args(more)
        .stderr(Stdio::inherit());
    let server = Peer::start(command, "redis-server")?;
    until(lab, node, REDIS_PORT, &["PING"], |said| said.contains("PONG"))?;
    Ok(server)
}

/// Has each agent take part in the database and in the counters, and waits until the first one knows that.
pub(super) fn share(lab: &Lab) -> Result<(), Failure> {
    for node in 1..=NODES {
        until(lab, node, PROGRAM_PORT, &["SET", "shared", "yes"], |said| {
            said.contains("OK")
        })?;
        until(lab, node, PROGRAM_PORT, &["INCRBY", "shared", "0"], |said| {
            said.trim() == "0"
        })?;
    }
    let others = (NODES - 1).to_string();
    until(lab, 1, PROGRAM_PORT, &["WAIT", "0", "0"], |said| {
        said.trim() == others
    })
}

/// Asks by redis-cli until the answer is this.
fn until(
    lab: &Lab,
    node: usize,
    port: u16,
    words: &[&str],
    is_it: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    let deadline = std::time::Instant::now() + START_WITHIN;
    loop {
        let mut command = lab.command(node, "redis-cli".as_ref());
        let output = command.args(["-p", &port.to_string()]).args(words).output();
        let output = output.map_err(|error| format!("cannot run redis-cli: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if is_it(&said) {
            return Ok(());
        }
        if std::time::Instant::now() > deadline {
            return Err(format!("{} is answered by {said:?}", words.join(" ")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// All that redis-benchmark measures. What it cannot is told in the case.
fn benchmarks(
    lab: &Lab,
    port: u16,
    series: &str,
    cases: &mut [Case],
    args: &RedisArgs,
) -> Result<(), Failure> {
    for (test, (_, words)) in TESTS.iter().enumerate() {
        for (at, pipeline) in args.pipelines.iter().enumerate() {
            let case = &mut cases[test * args.pipelines.len() + at];
            let rate = benchmark(lab, port, words, *pipeline, GUESS, args).and_then(|guess| {
                let requests = (guess * f64::from(args.common.seconds())) as u64;
                benchmark(lab, port, words, *pipeline, requests.max(GUESS), args)
            });
            match rate {
                Ok(rate) => case.add(series, rate),
                Err(failure) => case.fail(series, series == ANTIPHON, &failure),
            }
        }
    }
    Ok(())
}

/// Requests per second.
fn benchmark(
    lab: &Lab,
    port: u16,
    words: &[&str],
    pipeline: u16,
    requests: u64,
    args: &RedisArgs,
) -> Result<f64, Failure> {
    let within = args.common.patience().as_secs().to_string();
    let mut command = lab.command(1, "timeout".as_ref());
    command
        .args(["-k", "1", &within, "redis-benchmark", "--csv"])
        .args(["-p", &port.to_string(), "-c", &args.connections.to_string()])
        .args(["-P", &pipeline.to_string(), "-n", &requests.to_string()])
        .args(["-r", &KEYS.to_string(), "-d", &BYTES.to_string()])
        .args(words)
        .stderr(Stdio::piped())
        .stdin(Stdio::null());
    let output = command
        .output()
        .map_err(|error| format!("cannot run redis-benchmark: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    // "test","rps",… and then "SET","123456.78",…
    let rate = said.lines().last().and_then(|line| {
        let second = line.rsplit("\",\"").nth(6)?;
        second.trim_matches('"').parse::<f64>().ok()
    });
    rate.filter(|_| output.status.success()).ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!(
            "redis-benchmark ended with {}: {} {}",
            output.status,
            said.trim(),
            complaint.trim()
        )
    })
}

/// Writes that are replied to when all hold them.
fn held(
    lab: &Lab,
    port: u16,
    says: &str,
    series: &str,
    cases: &mut [Case],
    args: &RedisArgs,
) -> Result<(), Failure> {
    for (at, pipeline) in args.pipelines.iter().enumerate() {
        let case = &mut cases[TESTS.len() * args.pipelines.len() + at];
        let more = [
            "--says",
            says,
            "--connections",
            &args.connections.to_string(),
            "--pipeline",
            &pipeline.to_string(),
        ];
        let rate = resp(lab, port, &more, &args.common)
            .and_then(|figures| figures.get("rate").copied().ok_or_else(|| "no rate".to_owned()));
        match rate {
            Ok(rate) => case.add(series, rate),
            Err(failure) => case.fail(series, series == ANTIPHON, &failure),
        }
    }
    Ok(())
}

/// A client of ours on the first host.
pub(super) fn resp(
    lab: &Lab,
    port: u16,
    more: &[&str],
    common: &Common,
) -> Result<crate::blocks::Figures, Failure> {
    let time = common.time();
    let mut command = ours(lab)?;
    command
        .args(["resp", "--addr", &format!("127.0.0.1:{port}")])
        .args(["--keys", &KEYS.to_string(), "--bytes", &BYTES.to_string()])
        .args(["--warmup-ms", &time.warmup_ms.to_string()])
        .args(["--measured-ms", &time.measured_ms.to_string()])
        .args(more)
        .stderr(Stdio::inherit());
    Peer::start(command, "our RESP client")?.done(common.patience())
}

/// This program on the first host.
pub(super) fn ours(lab: &Lab) -> Result<std::process::Command, Failure> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    Ok(lab.command(1, Path::new(&program)))
}
