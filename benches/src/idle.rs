//! `idle`: the CPU of nodes that have nothing to do.

use clap::Args;

use crate::corosync::{Corosync, Wire};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

/// What of ours is measured: its name, and its options.
const OURS: [(&str, &str); 4] = [
    ("fifo", "--order fifo"),
    ("sequencer", "--order total --engine sequencer"),
    ("rotation", "--order total --engine rotation"),
    ("token", "--order total --engine token"),
];
/// The most nodes for which corosync is started beside ours.
const MOST_COROSYNC: usize = 16;

#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    common: Common,
    /// How many nodes; corosync is measured with at most 16
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=50))]
    nodes: u8,
    /// Further options for `antiphon bench idle`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// Measures and reports.
pub(crate) fn run(args: &IdleArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let nodes = usize::from(args.nodes);
    let peer = if nodes <= MOST_COROSYNC {
        common.peer(Corosync::get())?
    } else {
        None
    };
    let lab = Lab::new(nodes, !common.no_offload)?;
    let mut case = Case::new(format!("{nodes} nodes"));
    for run in 1..=common.runs() {
        for (series, order) in OURS {
            eprintln!("antiphon {series}, run {run}");
            let options: Vec<&str> = ["idle"]
                .into_iter()
                .chain(order.split(' '))
                .chain(args.ours.split_whitespace())
                .collect();
            let results = ours.results(&lab, nodes, &options, common)?;
            let millionths = results
                .first()
                .and_then(|result| result["cpu_millionths_of_a_core"]["mean"].as_f64())
                .ok_or("no CPU time")?;
            case.add(series, millionths / 10_000.0);
        }
        if let Some(peer) = &peer {
            eprintln!("corosync, run {run}");
            let Some(ring) = common.peer(peer.start(&lab, nodes, Wire::Knet))? else {
                continue;
            };
            std::thread::sleep(std::time::Duration::from_secs(common.warmup().into()));
            let shares = ring.idle(common.seconds())?;
            case.add("corosync knet", shares.iter().sum::<f64>() / shares.len() as f64);
        }
    }
    let mut report = Report::new(
        "idle",
        "CPU of a node that has nothing to do, in percent of a core",
        "% of a core",
    );
    report.cases.push(case);
    report.lower_is_better = true;
    report.headline = Headline {
        ours: "sequencer".to_owned(),
        peers: vec!["corosync knet".to_owned()],
        limit: None,
    };
    report.peer_version = peer.map(|peer| format!("corosync {}", peer.version()));
    report.tell(&ours.version(), common)
}
