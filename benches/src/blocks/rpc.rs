//! `rpc`: what UPerf of JGroups does (of five requests, four get 1000 bytes from one other member, one puts
//! them to two), and one call at a time beside gRPC.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::crew::Crew;
use super::java::{Java, Peer};
use super::worker::words::{Ask, Lock, Mix, Open};
use super::{grpc, mean};
use crate::jgroups;
use crate::lab::Lab;
use crate::ours::version;
use crate::processors::{LEAST_PERCENT, Shares, share_one};
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

const BYTES: usize = 1000;
/// A JVM's first half minute says nothing about the next hours.
const WARMUP_S: u32 = 20;
/// UPerf waits for its members' results a fifth of a test's time longer than it lasts: with eight on two
/// processors that is too short after 5 s.
const LEAST_S: u32 = 10;
/// For a member of UPerf to be in the view.
const START_WITHIN: Duration = Duration::from_secs(60);
/// For the results of a test, beyond its time; UPerf at times prints none, and the test is done again.
const RESULTS_WITHIN: Duration = Duration::from_secs(15);
const TRIES: usize = 3;
/// It throws away what came before it asked.
const ASKED_WITHIN: Duration = Duration::from_millis(500);
const OURS: &str = "antiphon";
const PEER: &str = "JGroups tcp.xml";
const GRPC: &str = "gRPC (tonic)";
/// A request of nine bytes by TCP and its answer of one: nothing can be faster.
const ECHO: &str = "TCP alone";
const ECHO_PORT: u16 = 7500;
const MICROSECONDS: &str = "us";

#[derive(Debug, Args)]
pub(crate) struct RpcArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of nodes, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [4, 6, 8], value_parser = clap::value_parser!(u8).range(3..=16))]
    nodes: Vec<u8>,
    /// Callers at each node
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=1000))]
    callers: u16,
    /// Percent of one processor that each node gets, whatever their number; without it they share all
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(LEAST_PERCENT..=100))]
    share: Option<u32>,
}

impl RpcArgs {
    fn case(&self, nodes: usize) -> String {
        match self.share {
            Some(share) => format!("{nodes} nodes, {share} % of a processor each"),
            None => format!("{nodes} nodes"),
        }
    }

    /// What each node gets from now on.
    fn share(&self, lab: &Lab, nodes: usize) -> Result<Option<Shares>, Failure> {
        self.share
            .map(|share| Shares::give(lab, nodes, share))
            .transpose()
    }
}

/// Measures and reports.
pub(crate) fn run(args: &RpcArgs) -> Result<(), Failure> {
    let common = &args.common;
    let java = Java::get("Maps.java");
    let grpc = grpc::get();
    let counts = if common.smoke {
        &args.nodes[..1]
    } else {
        &args.nodes[..]
    };
    let most = counts
        .iter()
        .copied()
        .max()
        .ok_or("no number of nodes is given")?;
    let lab = Lab::new(most.into(), !common.no_offload)?;
    let counts = counts.iter().copied().map(usize::from);
    let mut cases: Vec<Case> = counts.clone().map(|nodes| Case::new(args.case(nodes))).collect();
    // All numbers of nodes in each run: a machine's speed changes within minutes, and they are compared.
    for run in 1..=common.runs() {
        for (nodes, case) in counts.clone().zip(&mut cases) {
            eprintln!("{}, run {run}", args.case(nodes));
            let mut crew = Crew::muster(&lab, nodes)?;
            crew.open(Open::Calls { bytes: BYTES })?;
            let mix = Mix {
                callers: args.callers.into(),
                bytes: BYTES,
                gets_only: false,
            };
            let all: Vec<usize> = (1..=nodes).collect();
            let time = common.time();
            let shares = args.share(&lab, nodes)?;
            let told = crew.done(&all, &Ask::Mix { mix, time }, common.patience())?;
            case.add(OURS, mean(&told, "rate"));
            drop(crew);
            drop(shares);
            let sample = java.as_ref().map_err(Clone::clone);
            let sample = sample.and_then(|java| uperf(&lab, java, nodes, args));
            common.add_peer(case, PEER, sample);
        }
    }
    if args.share.is_none() {
        cases.push(one_at_a_time(&lab, &grpc, common)?);
    }
    let mut report = Report::new(
        "rpc",
        "requests per second at each node, 80 % get 1000 bytes from one, 20 % put them to two",
        "requests/s per node",
    );
    report.cases = cases;
    report.headline = Headline {
        ours: OURS.to_owned(),
        peers: vec![PEER.to_owned()],
        limit: None,
    };
    report.peer_version = Some(format!("JGroups {}, {}", jgroups::VERSION, grpc::VERSION));
    report.tell(&version(), common)
}

/// The median of calls one after the other, both ends on one processor.
fn one_at_a_time(lab: &Lab, grpc: &Result<PathBuf, Failure>, common: &Common) -> Result<Case, Failure> {
    let mut one = Case::of("one call at a time, p50".to_owned(), MICROSECONDS);
    for run in 1..=common.runs() {
        eprintln!("one call at a time, run {run}");
        let mut crew = Crew::muster(lab, 2)?;
        crew.open(Open::Calls { bytes: BYTES })?;
        share_one(lab, 2)?;
        let mix = Mix {
            callers: 1,
            bytes: BYTES,
            gets_only: true,
        };
        let time = common.time();
        let told = crew.done(&[1], &Ask::Mix { mix, time }, common.patience())?;
        one.add(OURS, mean(&told, "p50_us"));
        one.add(ECHO, echo(lab, &mut crew, common)?);
        drop(crew);
        let sample = grpc.as_ref().map_err(Clone::clone);
        let sample = sample.and_then(|program| grpc::one_at_a_time(lab, program, BYTES, common));
        common.add_peer(&mut one, GRPC, sample);
    }
    Ok(one)
}

/// The median of one request and its answer: the lock server of `locks` answers two for each lock.
fn echo(lab: &Lab, crew: &mut Crew<'_>, common: &Common) -> Result<f64, Failure> {
    let server = format!("{}:{ECHO_PORT}", lab.ip(2));
    let server = server.parse().map_err(|_| format!("{server} is no address"))?;
    crew.ask(&[2], &Ask::Serve { bind: server })?;
    let lock = Lock {
        clients: 1,
        contended: false,
    };
    let (rank, time) = (1, common.time());
    let ask = Ask::LockAt {
        server,
        rank,
        lock,
        time,
    };
    let told = crew.done(&[1], &ask, common.patience())?;
    Ok(mean(&told, "p50_us") / 2.0)
}

/// Requests per second per node, as UPerf counts.
fn uperf(lab: &Lab, java: &Java, nodes: usize, args: &RpcArgs) -> Result<f64, Failure> {
    // They end with what they limit.
    let mut shares = None;
    let result = uperf_rounds(lab, java, nodes, args, &mut shares);
    lab.kill_all();
    result
}

fn uperf_rounds(
    lab: &Lab,
    java: &Java,
    nodes: usize,
    args: &RpcArgs,
    shares: &mut Option<Shares>,
) -> Result<f64, Failure> {
    let common = &args.common;
    let seconds = common.seconds().max(LEAST_S);
    let (time, threads, size) = (seconds.to_string(), args.callers.to_string(), BYTES.to_string());
    let mut members: Vec<Peer> = Vec::new();
    for node in 1..=nodes {
        let name = format!("m{node}");
        let mut words = vec![
            "org.jgroups.tests.perf.UPerf",
            "-props",
            "tcp.xml",
            "-name",
            &name,
        ];
        match node {
            1 => words.extend(["-time", &time, "-threads", &threads, "-size", &size]),
            _ => words.push("-nohup"),
        }
        members.push(java.start(lab, nodes, node, &words)?);
        // One at a time: a member that finds none in time would found a cluster of its own.
        let all = format!("({node})");
        let has_view = |line: &str| (line.contains("[m1|") && line.contains(&all)).then_some(());
        members[0].find(START_WITHIN, "UPerf's members to join", has_view)?;
    }
    *shares = args.share(lab, nodes)?;
    let warmups = if common.smoke {
        0
    } else {
        WARMUP_S.div_ceil(seconds)
    };
    let mut rate = 0.0;
    for _ in 0..=warmups {
        rate = round(&mut members[0], seconds)?;
    }
    Ok(rate)
}

/// One test of UPerf, started at its first member.
fn round(first: &mut Peer, seconds: u32) -> Result<f64, Failure> {
    let within = Duration::from_secs(seconds.into()) + RESULTS_WITHIN;
    let mut failure = Failure::new();
    for _ in 0..TRIES {
        std::thread::sleep(ASKED_WITHIN);
        // Figures of a try that was given up are not those of the next one.
        first.forget();
        first.tell("1")?;
        match first.find(within, "UPerf's figures", throughput) {
            Ok(rate) => return Ok(rate),
            Err(vain) => failure = vain,
        }
    }
    Err(failure)
}

/// `Throughput: 2,510.11 reqs/sec/node (…`
fn throughput(line: &str) -> Option<f64> {
    let (rate, _) = line.split_once("Throughput: ")?.1.split_once(" reqs/sec/node")?;
    rate.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn uperfs_throughput_is_read_with_its_commas() {
        let line = "Throughput: 2,510.11 reqs/sec/node (2.51MB/sec)";
        assert_eq!(super::throughput(line), Some(2510.11));
        assert_eq!(super::throughput("m1: 1 reqs/sec (1 reads)"), None);
    }
}
