//! `chain`: four nodes on links of a fixed rate; bytes per second delivered at each member.
//!
//! With one sender, X messages take X·(N−1) rounds if it sends each to all others, and X+(N−2) if each member
//! hands them on to the next: a third of a link against all of it. When all send, every link carries the same
//! either way. The limit is one raw TCP stream over such a link with one sender, and the same fan-out in raw
//! TCP when all send.

use clap::Args;

use crate::jgroups::{self, JGroups, Mperf};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::raw::{self, Raw, RawWay};
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

const NODES: usize = 4;
/// A link carries a third of it per receiver when the sender sends to each.
const HOPS: f64 = (NODES - 1) as f64;

#[derive(Debug, Args)]
pub(crate) struct ChainArgs {
    #[command(flatten)]
    common: Common,
    /// Rate of each link, each way
    #[arg(long, value_name = "MBIT", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    mbit: u32,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 8000)]
    size: u32,
    /// Further options for `antiphon bench multicast`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// Measures and reports.
pub(crate) fn run(args: &ChainArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let peer = common.peer(JGroups::get())?;
    let lab = Lab::new(NODES, !common.no_offload)?;
    lab.shape(args.mbit)?;
    let megabytes = |messages: f64| messages * f64::from(args.size) / 1e6;
    let mut report = Report::new(
        "chain",
        &format!(
            "bytes delivered per second at each of {NODES} members, links of {} Mbit/s, messages of {} bytes",
            args.mbit, args.size
        ),
        "MB/s",
    );
    // The first case shows that everything works.
    let cases = if common.smoke { 1 } else { 2 };
    for senders in [1, NODES].into_iter().take(cases) {
        let mut case = Case::new(match senders {
            1 => "1 sender".to_owned(),
            _ => "all send".to_owned(),
        });
        for run in 1..=common.runs() {
            eprintln!("{senders} senders, run {run}");
            let limit = limit(&lab, senders, common)?;
            case.add("raw TCP", limit);
            if senders == 1 {
                case.add("a link for each receiver", limit / HOPS);
            }
            let count = senders.to_string();
            for way in ["chain", "direct"] {
                let options = ["--order", "fifo", "--senders", &count, "--dissemination", way];
                let options: Vec<&str> = options.into_iter().chain(args.ours.split_whitespace()).collect();
                let rate = ours.multicast(&lab, NODES, &[args.size], &options, common)?[0].mean;
                case.add(way, megabytes(rate));
            }
            let Some(peer) = &peer else { continue };
            for (series, chain) in [("JGroups DAISYCHAIN", true), ("JGroups tcp.xml", false)] {
                let stack = if chain {
                    peer.daisy_chain()?
                } else {
                    "tcp.xml".to_owned()
                };
                let mperf = Mperf {
                    stack: &stack,
                    size: args.size,
                    senders: Some(senders),
                };
                if let Some(rate) = common.peer(peer.mperf(&lab, NODES, mperf, common))? {
                    case.add(series, megabytes(rate));
                }
                if common.smoke {
                    break;
                }
            }
        }
        report.cases.push(case);
    }
    report.headline = Headline {
        ours: "chain".to_owned(),
        peers: vec!["JGroups DAISYCHAIN".to_owned()],
        limit: Some("raw TCP".to_owned()),
    };
    report.peer_version = peer.map(|_| format!("JGroups {}", jgroups::VERSION));
    report.tell(&ours.version(), common)
}

/// Megabytes per second that raw TCP brings to a member: one stream, or all to all with what each sends
/// itself.
fn limit(lab: &Lab, senders: usize, common: &Common) -> Result<f64, Failure> {
    let raw = Raw {
        way: RawWay::Tcp,
        senders,
        slice: 64 << 10,
        ring: 1 << 20,
    };
    let nodes = if senders == 1 { 2 } else { NODES };
    let rates = raw::measure(lab, nodes, raw, common)?;
    // With one sender, what the receiver has read: what was written may still be on its way.
    let rate = if senders == 1 {
        rates[1]
    } else {
        rates.iter().sum::<f64>() / NODES as f64
    };
    Ok(rate / 1e6)
}
