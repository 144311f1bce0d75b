//! `cpg`: total order between three nodes; messages per second delivered at one node, as corosync's cpgbench
//! counts.

use clap::Args;

use crate::corosync::{Corosync, Wire};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

const NODES: usize = 3;

/// What of ours is measured: its name, and the way of its messages.
const OURS: [(&str, &str); 2] = [("antiphon", "direct"), ("antiphon multicast", "multicast")];

#[derive(Debug, Args)]
pub(crate) struct CpgArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of a message, measured one after the other
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_values_t = [64, 320, 1600, 8000, 40_000],
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    sizes: Vec<u32>,
    /// How many of the three nodes send, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 3], value_parser = clap::value_parser!(u8).range(1..=3))]
    senders: Vec<u8>,
    /// corosync's transports, measured one after the other
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',', default_values_t = [Wire::Knet, Wire::Udpu])]
    wires: Vec<Wire>,
    /// Further options for `antiphon bench multicast`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// Measures and reports.
pub(crate) fn run(args: &CpgArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let peer = common.peer(Corosync::get())?;
    let sizes = if common.smoke {
        &args.sizes[..1]
    } else {
        &args.sizes[..]
    };
    let wires = if common.smoke {
        &args.wires[..1]
    } else {
        &args.wires[..]
    };
    let lab = Lab::new(NODES, !common.no_offload)?;
    let mut cases: Vec<Case> = Vec::new();
    let name = |size: u32, senders: u8| match senders {
        1 => format!("{size} B, 1 sender"),
        _ => format!("{size} B, {senders} senders"),
    };
    for senders in &args.senders {
        cases.extend(sizes.iter().map(|size| Case::new(name(*size, *senders))));
    }
    for run in 1..=common.runs() {
        for (series, way) in OURS {
            eprintln!("{series}, run {run}");
            for (index, senders) in args.senders.iter().enumerate() {
                let senders = senders.to_string();
                let options: Vec<&str> = ["--order", "total", "--senders", &senders, "--dissemination", way]
                    .into_iter()
                    .chain(args.ours.split_whitespace())
                    .collect();
                let rates = ours.multicast(&lab, NODES, sizes, &options, common)?;
                for (at, rate) in rates.iter().enumerate() {
                    cases[index * sizes.len() + at].add(series, rate.first);
                }
            }
        }
        for wire in wires {
            let Some(peer) = &peer else { continue };
            eprintln!("corosync {}, run {run}", wire.as_str());
            let Some(mut ring) = common.peer(peer.start(&lab, NODES, *wire))? else {
                continue;
            };
            for (index, senders) in args.senders.iter().enumerate() {
                for (at, size) in sizes.iter().enumerate() {
                    let rate = ring.rate(*size, (*senders).into(), common)?;
                    cases[index * sizes.len() + at].add(&format!("corosync {}", wire.as_str()), rate);
                }
            }
        }
    }
    let bench = if common.no_offload {
        "cpg-no-offload"
    } else {
        "cpg"
    };
    let mut report = Report::new(
        bench,
        "messages per second delivered at one of three nodes, total order",
        "msg/s",
    );
    report.cases = cases;
    report.headline = Headline {
        ours: OURS[0].0.to_owned(),
        peers: wires
            .iter()
            .map(|wire| format!("corosync {}", wire.as_str()))
            .collect(),
        limit: None,
    };
    report.peer_version = peer.map(|peer| format!("corosync {}", peer.version()));
    report.tell(&ours.version(), common)
}
