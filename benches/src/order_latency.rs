//! `order-latency`: how long a message in total order takes to the other nodes when little is sent.

use clap::Args;
use hdrhistogram::Histogram;

use crate::corosync::{Corosync, Wire};
use crate::jgroups::{self, JGroups};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

const NODES: usize = 3;
/// What of ours is measured: its name, and its options.
const OURS: [(&str, &str); 4] = [
    ("sequencer", "--engine sequencer"),
    ("rotation", "--engine rotation"),
    ("token", "--engine token"),
    ("sequencer safe", "--engine sequencer --safe"),
];
const QUANTILES: [(&str, f64, &str); 3] = [
    ("p50", 0.5, "p50_us"),
    ("p99", 0.99, "p99_us"),
    ("p99.9", 0.999, "p999_us"),
];

#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    common: Common,
    /// Messages per second of all nodes together
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=60_000))]
    size: u32,
    /// Further options for `antiphon bench latency`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// Measures and reports.
pub(crate) fn run(args: &LatencyArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let corosync = common.peer(Corosync::get())?;
    let jgroups = common.peer(JGroups::get())?;
    let lab = Lab::new(NODES, !common.no_offload)?;
    let mut cases: Vec<Case> = QUANTILES
        .iter()
        .map(|(name, ..)| Case::new((*name).to_owned()))
        .collect();
    let (rate, size) = (args.rate.to_string(), args.size.to_string());
    for run in 1..=common.runs() {
        // Another one comes first each time: behind the peers, whose processes the machine is still clearing
        // away.
        let turn = OURS.into_iter().cycle().skip(usize::from(run) - 1);
        for (series, engine) in turn.take(OURS.len()) {
            eprintln!("antiphon {series}, run {run}");
            let options: Vec<&str> = ["latency", "--order", "total", "--rate", &rate, "--size", &size]
                .into_iter()
                .chain(engine.split(' '))
                .chain(args.ours.split_whitespace())
                .collect();
            let results = ours.results(&lab, NODES, &options, common)?;
            let one_way = results
                .iter()
                .find(|result| result["way"] == "one")
                .ok_or("no latency one way")?;
            for (case, (.., figure)) in cases.iter_mut().zip(QUANTILES) {
                case.add(series, one_way[figure].as_f64().ok_or("no quantile")?);
            }
        }
        if let Some(peer) = &corosync {
            eprintln!("corosync, run {run}");
            let latencies = peer
                .start(&lab, NODES, Wire::Knet)
                .and_then(|mut ring| ring.latencies(args.rate, args.size, common));
            if let Some(latencies) = common.peer(latencies)? {
                add(&mut cases, "corosync knet", &latencies)?;
            }
        }
        if let Some(peer) = &jgroups {
            eprintln!("JGroups, run {run}");
            let latencies = peer.latencies(&lab, NODES, args.rate, args.size, common);
            if let Some(latencies) = common.peer(latencies)? {
                add(&mut cases, "JGroups SEQUENCER", &latencies)?;
            }
        }
    }
    let mut report = Report::new(
        "order-latency",
        &format!(
            "microseconds from due to delivered at another node, total order, {rate} messages of {size} bytes per second"
        ),
        "us",
    );
    report.cases = cases;
    report.lower_is_better = true;
    report.headline = Headline {
        ours: OURS[0].0.to_owned(),
        peers: vec!["corosync knet".to_owned()],
        limit: None,
    };
    let versions = [
        corosync.map(|peer| format!("corosync {}", peer.version())),
        jgroups.map(|_| format!("JGroups {}", jgroups::VERSION)),
    ];
    report.peer_version =
        Some(versions.into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty());
    report.tell(&ours.version(), common)
}

fn add(cases: &mut [Case], series: &str, latencies: &[u64]) -> Result<(), Failure> {
    if latencies.is_empty() {
        return Err(format!("{series}: no message arrived in the measured time"));
    }
    let mut histogram = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    for latency in latencies {
        histogram.record(*latency).map_err(|error| error.to_string())?;
    }
    for (case, (_, quantile, _)) in cases.iter_mut().zip(QUANTILES) {
        case.add(series, histogram.value_at_quantile(quantile) as f64 / 1000.0);
    }
    Ok(())
}
