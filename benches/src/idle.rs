//! `idle`: the CPU of nodes that have nothing to do.

use clap::Args;

use crate::corosync::{Corosync, Wire};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    common: Common,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=16))]
    nodes: u8,
    /// Further options for `antiphon bench idle`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// Measures and reports.
pub(crate) fn run(args: &IdleArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let peer = common.peer(Corosync::get())?;
    let nodes = usize::from(args.nodes);
    let lab = Lab::new(nodes, !common.no_offload)?;
    let mut case = Case::new(format!("{nodes} nodes"));
    for run in 1..=common.runs() {
        eprintln!("antiphon, run {run}");
        let options: Vec<&str> = ["idle", "--order", "fifo,total"]
            .into_iter()
            .chain(args.ours.split_whitespace())
            .collect();
        for result in ours.results(&lab, nodes, &options, common)? {
            let order = result["order"].as_str().unwrap_or("antiphon");
            let millionths = result["cpu_millionths_of_a_core"]["mean"]
                .as_f64()
                .ok_or("no CPU time")?;
            case.add(order, millionths / 10_000.0);
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
        ours: "total".to_owned(),
        peer: Some("corosync knet".to_owned()),
        limit: None,
    };
    report.peer_version = peer.map(|peer| format!("corosync {}", peer.version()));
    report.tell(&ours.version(), common)
}
