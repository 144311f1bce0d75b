//! `limits`: megabytes per second through this machine's kernel with no protocol, over the lab's links.

use clap::Args;

use crate::lab::Lab;
use crate::ours::Ours;
use crate::raw::{self, Raw, RawWay};
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

#[derive(Debug, Args)]
pub(crate) struct LimitsArgs {
    #[command(flatten)]
    common: Common,
    /// Members of the fan-out
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=16))]
    members: u8,
    /// Bytes of the ring from which raw TCP sends and for which it keeps what it reads
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    ring: usize,
}

/// Measures and reports; ours is `antiphon bench multicast` in FIFO order with 8000 bytes, for comparison.
pub(crate) fn run(args: &LimitsArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let nodes = usize::from(args.members);
    let lab = Lab::new(nodes, !common.no_offload)?;
    let mut stream = Case::new("one sends to one".to_owned());
    let mut fan = Case::new(format!("{nodes} send to all"));
    let ways = [
        ("TCP 16 KiB", RawWay::Tcp, 16 << 10),
        ("TCP 64 KiB", RawWay::Tcp, 64 << 10),
        ("TCP 256 KiB", RawWay::Tcp, 256 << 10),
        ("UDP", RawWay::Udp, 1),
        ("UDP sendmmsg", RawWay::UdpMany, 1),
        ("UDP GSO and GRO", RawWay::UdpSegmented, 1),
    ];
    for run in 1..=common.runs() {
        eprintln!("run {run}");
        for (name, way, slice) in ways {
            // One of each kind shows that it works.
            if common.smoke && name != "TCP 64 KiB" && way == RawWay::Tcp {
                continue;
            }
            let raw = |senders| Raw {
                way,
                senders,
                slice,
                ring: args.ring.max(slice),
            };
            let receiver = raw::measure(&lab, 2, raw(1), common)?[1];
            stream.add(name, receiver / 1e6);
            let all = raw::measure(&lab, nodes, raw(nodes), common)?;
            fan.add(name, all.iter().sum::<f64>() / nodes as f64 / 1e6);
        }
        let rate = |nodes, senders: &str| {
            let rates = ours.multicast(
                &lab,
                nodes,
                &[8000],
                &["--order", "fifo", "--senders", senders],
                common,
            )?;
            Ok::<f64, Failure>(rates[0].mean * 8000.0 / 1e6)
        };
        stream.add("antiphon fifo", rate(2, "1")?);
        fan.add("antiphon fifo", rate(nodes, &nodes.to_string())?);
    }
    let mut report = Report::new("limits", "megabytes per second at a member", "MB/s");
    report.cases = vec![stream, fan];
    report.headline = Headline {
        ours: "antiphon fifo".to_owned(),
        peers: vec!["TCP 64 KiB".to_owned()],
        limit: Some("TCP 64 KiB".to_owned()),
    };
    report.peer_version = Some("the kernel's TCP and UDP".to_owned());
    report.tell(&ours.version(), common)
}
