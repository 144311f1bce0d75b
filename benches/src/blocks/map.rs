//! `map`: three members write to a replicated map as fast as they can, then read their own copies.

use clap::Args;

use super::crew::Crew;
use super::java::{HAZELCAST, Java, all_done};
use super::worker::words::{Ask, Get, Open, Put};
use super::{Figures, least, mean};
use crate::jgroups;
use crate::lab::Lab;
use crate::ours::version;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

const NODES: usize = 3;
const NANOSECONDS: &str = "ns";
/// A JVM's first seconds say nothing about the next hours.
const WARMUP_S: u32 = 15;
/// Ours: what is written by `agreed` may be lost with a component, as the peers' is in any case.
const OURS: [(&str, bool); 2] = [("antiphon", false), ("antiphon agreed", true)];
const PEERS: [(&str, &str); 3] = [
    ("JGroups ReplicatedHashMap", "jgroups"),
    ("JGroups ReplicatedHashMap, blocking", "jgroups-blocking"),
    ("Hazelcast ReplicatedMap", "hazelcast"),
];

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of a value, measured one after the other
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_values_t = [100, 1000])]
    sizes: Vec<usize>,
    /// Writers of ours at each member, each after the answer to its last write
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=4000))]
    writers: u16,
    /// Threads of the peers at each member
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=1000))]
    threads: u16,
    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    keys: u64,
}

/// Measures and reports.
pub(crate) fn run(args: &MapArgs) -> Result<(), Failure> {
    let common = &args.common;
    let java = common.peer(Java::get("Maps.java"))?;
    let lab = Lab::new(NODES, !common.no_offload)?;
    let mut puts: Vec<Case> = args
        .sizes
        .iter()
        .map(|size| Case::new(format!("{size} B")))
        .collect();
    let mut gets: Vec<Case> = args
        .sizes
        .iter()
        .map(|size| Case::of(format!("read of one's own copy, {size} B"), NANOSECONDS))
        .collect();
    for run in 1..=common.runs() {
        for (series, agreed) in OURS {
            eprintln!("{series}, run {run}");
            let mut crew = Crew::muster(&lab, NODES)?;
            crew.open(Open::Map { agreed })?;
            for (case, bytes) in puts.iter_mut().zip(&args.sizes) {
                case.add(series, least(&ours(&mut crew, args, *bytes)?, "applied"));
            }
            if !agreed {
                for (case, bytes) in gets.iter_mut().zip(&args.sizes) {
                    let get = Get {
                        keys: args.keys,
                        bytes: *bytes,
                        gets: if common.smoke { 100_000 } else { 2_000_000 },
                    };
                    let told = crew.done(&[1], &Ask::Get { get }, common.patience())?;
                    case.add(series, mean(&told, "ns"));
                }
            }
        }
        // In a smoke test the first stands for the others, too.
        for (series, kind) in if common.smoke { &PEERS[..1] } else { &PEERS[..] } {
            let Some(java) = &java else { continue };
            eprintln!("{series}, run {run}");
            if let Some((rates, read)) = common.peer(peer(&lab, java, kind, args))? {
                puts.iter_mut()
                    .zip(rates)
                    .for_each(|(case, rate)| case.add(series, rate));
                // Under another name: the report compares what is written.
                gets[0].add(kind, read);
            }
        }
    }
    let mut report = Report::new(
        "map",
        "entries written per second and applied by all of three members, all write",
        "writes/s",
    );
    report.cases = puts.into_iter().chain(gets).collect();
    report.headline = Headline {
        ours: OURS[0].0.to_owned(),
        peers: PEERS.iter().map(|(series, _)| (*series).to_owned()).collect(),
        limit: None,
    };
    report.peer_version = java.map(|_| format!("JGroups {}, {HAZELCAST}", jgroups::VERSION));
    report.tell(&version(), common)
}

fn ours(crew: &mut Crew<'_>, args: &MapArgs, bytes: usize) -> Result<Vec<Figures>, Failure> {
    let put = Put {
        writers: args.writers.into(),
        bytes,
        keys: args.keys,
    };
    let time = args.common.time();
    let told = crew.done(&[1, 2, 3], &Ask::Put { put, time }, args.common.patience())?;
    eprintln!(
        "  own {:?}, p50 {:?} us",
        super::sum(&told, "rate"),
        mean(&told, "p50_us")
    );
    Ok(told)
}

/// For each size the entries per second that the slowest member applied; and a read in nanoseconds.
fn peer(lab: &Lab, java: &Java, kind: &str, args: &MapArgs) -> Result<(Vec<f64>, f64), Failure> {
    let common = &args.common;
    let result = (|| {
        let addrs: Vec<String> = (1..=NODES).map(|node| format!("{}:5701", lab.ip(node))).collect();
        let target = if kind == "hazelcast" {
            addrs.join(",")
        } else {
            "tcp.xml".to_owned()
        };
        let of = |node: usize| match kind {
            "hazelcast" => "maps".to_owned(),
            _ => format!("m{node}"),
        };
        let words = |node| ["Maps", kind, &target, &of(node)].map(str::to_owned).to_vec();
        let mut members = java.cluster(lab, NODES, words)?;
        let mut rates = Vec::new();
        let mut warmup = if common.smoke { 1 } else { WARMUP_S };
        for bytes in &args.sizes {
            let (threads, keys, seconds) = (args.threads, args.keys, common.seconds());
            let line = format!("put {threads} {bytes} {keys} {warmup} {seconds}");
            let told = all_done(&mut members, &line, common.patience())?;
            rates.push(least(&told, "applied"));
            warmup = if common.smoke { 1 } else { 5 };
        }
        let line = format!("get {} {} 2000000", args.keys, args.sizes[0]);
        let read = all_done(&mut members[..1], &line, common.patience())?;
        Ok((rates, mean(&read, "ns")))
    })();
    lab.kill_all();
    result
}
