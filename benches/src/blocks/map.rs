//! `map`: three members write to a replicated map as fast as they can, and read their own copies. Each has as
//! many writers, of ours and of the peers, and each writer writes after its last write has returned. Those of
//! JGroups that are not blocking return before any other member has them.

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
    /// Writers at each member, each after its last write has returned, measured one after the other: tasks of
    /// ours, threads of the peers
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [25, 256], value_parser = clap::value_parser!(u16).range(1..=1000))]
    writers: Vec<u16>,
    /// How many keys there are
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    keys: u64,
}

/// What is written: bytes of a value, and writers at each member.
type Load = (usize, u16);

/// Measures and reports.
pub(crate) fn run(args: &MapArgs) -> Result<(), Failure> {
    let common = &args.common;
    let java = Java::get("Maps.java");
    let lab = Lab::new(NODES, !common.no_offload)?;
    let writers = if common.smoke {
        &args.writers[..1]
    } else {
        &args.writers[..]
    };
    let of_size = |size: &usize| {
        writers
            .iter()
            .map(move |writers| (*size, *writers))
            .collect::<Vec<_>>()
    };
    let loads: Vec<Load> = args.sizes.iter().flat_map(of_size).collect();
    let name = |(size, writers): &Load| format!("{size} B, {writers} writers at each member");
    let mut puts: Vec<Case> = loads.iter().map(|load| Case::new(name(load))).collect();
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
            for (case, load) in puts.iter_mut().zip(&loads) {
                case.add(series, least(&ours(&mut crew, args, *load)?, "applied"));
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
            eprintln!("{series}, run {run}");
            let told = java.as_ref().map_err(Clone::clone);
            let told = told.and_then(|java| peer(&lab, java, kind, &loads, args));
            for (at, case) in puts.iter_mut().enumerate() {
                let rate = told.as_ref().map(|(rates, _)| rates[at]);
                common.add_peer(case, series, rate.map_err(Clone::clone));
            }
            // Under another name: the report compares what is written.
            common.add_peer(&mut gets[0], kind, told.map(|(_, read)| read));
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
    report.peer_version = Some(format!("JGroups {}, {HAZELCAST}", jgroups::VERSION));
    report.tell(&version(), common)
}

fn ours(crew: &mut Crew<'_>, args: &MapArgs, (bytes, writers): Load) -> Result<Vec<Figures>, Failure> {
    let put = Put {
        writers: writers.into(),
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

/// For each load the entries per second that the slowest member applied; and a read in nanoseconds, of values
/// of the first load's size.
fn peer(
    lab: &Lab,
    java: &Java,
    kind: &str,
    loads: &[Load],
    args: &MapArgs,
) -> Result<(Vec<f64>, f64), Failure> {
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
        let mut read = f64::NAN;
        let mut warmup = if common.smoke { 1 } else { WARMUP_S };
        for (bytes, writers) in loads {
            let (keys, seconds) = (args.keys, common.seconds());
            let line = format!("put {writers} {bytes} {keys} {warmup} {seconds}");
            let told = all_done(&mut members, &line, common.patience())?;
            rates.push(least(&told, "applied"));
            warmup = if common.smoke { 1 } else { 5 };
            if rates.len() == 1 {
                let told = all_done(
                    &mut members[..1],
                    &format!("get {keys} {bytes} 2000000"),
                    common.patience(),
                )?;
                read = mean(&told, "ns");
            }
        }
        Ok((rates, read))
    })();
    lab.kill_all();
    result
}
