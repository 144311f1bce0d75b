//! `mperf`: all members send 1000 bytes as fast as they can; messages per second delivered at each, its own
//! included.

use clap::Args;

use crate::jgroups::{self, JGroups, Mperf};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::raw::{self, Raw, RawWay};
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

const SIZE: u32 = 1000;

#[derive(Debug, Args)]
pub(crate) struct MperfArgs {
    #[command(flatten)]
    common: Common,
    /// Numbers of members, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [4, 6, 8], value_parser = clap::value_parser!(u8).range(2..=16))]
    members: Vec<u8>,
    /// JGroups stacks, files in its jar
    #[arg(long, value_name = "FILE,…", value_delimiter = ',', default_values_t = ["tcp.xml".to_owned(), "tcp-new.xml".to_owned()])]
    stacks: Vec<String>,
    /// Bytes of the ring from which raw TCP sends and for which it keeps what it reads
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    ring: usize,
    /// Further options for `antiphon bench multicast`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// Measures and reports.
pub(crate) fn run(args: &MperfArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let peer = common.peer(JGroups::get())?;
    let members = if common.smoke {
        &args.members[..1]
    } else {
        &args.members[..]
    };
    let stacks = if common.smoke {
        &args.stacks[..1]
    } else {
        &args.stacks[..]
    };
    let most = members
        .iter()
        .copied()
        .max()
        .ok_or("no number of members is given")?;
    let lab = Lab::new(most.into(), !common.no_offload)?;
    let mut report = Report::new(
        "mperf",
        "messages of 1000 bytes per second at each member, all send",
        "msg/s per member",
    );
    for members in members {
        let nodes = usize::from(*members);
        let mut case = Case::new(format!("{nodes} members"));
        for run in 1..=common.runs() {
            eprintln!("{nodes} members, run {run}");
            let raw = Raw {
                way: RawWay::Tcp,
                senders: nodes,
                slice: 64 << 10,
                ring: args.ring,
            };
            let rates = raw::measure(&lab, nodes, raw, common)?;
            case.add(
                "raw TCP",
                rates.iter().sum::<f64>() / nodes as f64 / f64::from(SIZE),
            );
            for (series, options) in [
                ("fifo", "--order fifo"),
                ("total", "--order total"),
                ("total by rotation", "--order total --engine rotation"),
                ("total by token", "--order total --engine token"),
                ("fifo keyed", "--order fifo --keyed"),
                ("fifo udp", "--order fifo --transport udp"),
                ("fifo multicast", "--order fifo --dissemination multicast"),
            ] {
                let options: Vec<&str> = options.split(' ').chain(args.ours.split_whitespace()).collect();
                case.add(
                    series,
                    ours.multicast(&lab, nodes, &[SIZE], &options, common)?[0].mean,
                );
            }
            for stack in stacks {
                let Some(peer) = &peer else { continue };
                let mperf = Mperf {
                    stack,
                    size: SIZE,
                    senders: None,
                };
                if let Some(rate) = common.peer(peer.mperf(&lab, nodes, mperf, common))? {
                    case.add(&format!("JGroups {stack}"), rate);
                }
            }
        }
        report.cases.push(case);
    }
    report.headline = Headline {
        ours: "fifo".to_owned(),
        peers: stacks.iter().map(|stack| format!("JGroups {stack}")).collect(),
        limit: Some("raw TCP".to_owned()),
    };
    report.peer_version = peer.map(|_| format!("JGroups {}", jgroups::VERSION));
    report.tell(&ours.version(), common)
}
