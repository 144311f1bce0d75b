//! `versions`: six ways to get a version stamped on a message at three servers, and what the map does.

use clap::Args;

use super::crew::Crew;
use super::sum;
use super::worker::words::{Ask, Open, Pattern, Put};
use crate::lab::Lab;
use crate::ours::version;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

/// Three servers and a client.
const NODES: usize = 4;
const SERVERS: usize = 3;
const PATTERNS: [&str; 6] = [
    "0 no version",
    "1 ask for a version, then send to all",
    "2 send to one, then to the others",
    "3 one relays and collects",
    "4 one relays, all answer",
    "5 send to all, one stamps",
];
const OURS: &str = "map: put";
const MILLION: f64 = 1e6;

#[derive(Debug, Args)]
pub(crate) struct VersionsArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of a payload, measured one after the other
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_values_t = [0, 100, 1000, 3000, 10_000])]
    sizes: Vec<usize>,
    /// Messages of the client under way at once, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 16])]
    in_flight: Vec<usize>,
}

/// Measures and reports.
pub(crate) fn run(args: &VersionsArgs) -> Result<(), Failure> {
    let common = &args.common;
    let lab = Lab::new(NODES, !common.no_offload)?;
    let (sizes, flights) = match common.smoke {
        true => (&args.sizes[..1], &args.in_flight[..1]),
        false => (&args.sizes[..], &args.in_flight[..]),
    };
    let loads: Vec<(usize, usize)> = flights
        .iter()
        .flat_map(|in_flight| sizes.iter().map(move |bytes| (*in_flight, *bytes)))
        .collect();
    let name = |(in_flight, bytes): &(usize, usize)| format!("{bytes} B, {in_flight} at a time");
    let mut cases: Vec<Case> = loads.iter().map(|load| Case::new(name(load))).collect();
    for run in 1..=common.runs() {
        eprintln!("run {run}");
        let mut crew = Crew::muster(&lab, NODES)?;
        crew.open(Open::Versions)?;
        let time = common.time();
        for (case, (in_flight, bytes)) in cases.iter_mut().zip(&loads) {
            for (number, series) in (0..).zip(PATTERNS) {
                let pattern = Pattern {
                    number,
                    bytes: *bytes,
                    in_flight: *in_flight,
                };
                let told = crew.done(&[1, 2, 3, 4], &Ask::Versions { pattern, time }, common.patience())?;
                case.add(series, MILLION / sum(&told, "rate"));
            }
        }
        drop(crew);
        // A member writes: it is client and server, and all three have applied or hold the write.
        let mut crew = Crew::muster(&lab, SERVERS)?;
        crew.open(Open::Map { agreed: false })?;
        for (case, (in_flight, bytes)) in cases.iter_mut().zip(&loads) {
            let put = Put {
                writers: *in_flight,
                bytes: *bytes,
                keys: 1000,
            };
            let told = crew.done(&[SERVERS], &Ask::Put { put, time }, common.patience())?;
            case.add(OURS, MILLION / sum(&told, "rate"));
        }
    }
    let mut report = Report::new(
        "versions",
        "seconds for a million messages that have a version at three servers, one client",
        "s per million",
    );
    report.cases = cases;
    report.lower_is_better = true;
    report.headline = Headline {
        ours: OURS.to_owned(),
        peers: PATTERNS[1..].iter().map(|series| (*series).to_owned()).collect(),
        limit: Some(PATTERNS[0].to_owned()),
    };
    report.peer_version = Some("the patterns over direct messages of a group".to_owned());
    report.tell(&version(), common)
}
