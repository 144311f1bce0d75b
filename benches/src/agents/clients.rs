//! `clients`: total order between three programs, one beside each of three agents; messages per second
//! delivered at one of them, as corosync's cpgbench counts.
//!
//! | series | a program |
//! |---|---|
//! | agent | speaks JSON lines with its agent, and sends and takes messages in bundles, as bytes behind the lines |
//! | agent by lines | the same, a line for each message |
//! | library | is the node itself: `antiphon bench multicast`, as the benchmark `cpg` has it |
//! | corosync | is `peers/cpg_client.c` on corosync's libcpg |
//! | libcpg on an agent | is the same program on ours |
//!
//! What is compared is `agent` with corosync: many messages behind a line with one message in a call, since
//! corosync has no call for several. `agent by lines` and `libcpg on an agent` send one at a time, too.

use std::path::PathBuf;

use clap::Args;

use super::Agents;
use crate::corosync::{Corosync, Ring, Wire};
use crate::lab::Lab;
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure, tools};

const NODES: usize = 3;
const AGENT: &str = "agent";
const BY_LINES: &str = "agent by lines";
const LIBRARY: &str = "library";
const COROSYNC: &str = "corosync knet";
const LIBCPG: &str = "libcpg on an agent";

#[derive(Debug, Args)]
pub(crate) struct ClientsArgs {
    #[command(flatten)]
    common: Common,
    /// Bytes of a message, measured one after the other
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', default_values_t = [64, 320, 1600, 8000],
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    sizes: Vec<u32>,
    /// How many of the three programs send, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 3], value_parser = clap::value_parser!(u8).range(1..=3))]
    senders: Vec<u8>,
    /// Folder of our libcpg.so.4 [default: clients/cpg/build]
    #[arg(long, value_name = "DIR")]
    libcpg: Option<PathBuf>,
    /// What to measure
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values_t = [AGENT, BY_LINES, LIBRARY, COROSYNC, LIBCPG].map(String::from))]
    only: Vec<String>,
}

/// Measures and reports.
pub(crate) fn run(args: &ClientsArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let peer = common.peer(Corosync::get())?;
    let libcpg = libcpg(args);
    let sizes = if common.smoke {
        &args.sizes[..1]
    } else {
        &args.sizes[..]
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
    let is_wanted = |series: &str| args.only.iter().any(|only| only == series);
    for run in 1..=common.runs() {
        for series in [AGENT, BY_LINES].into_iter().filter(|series| is_wanted(series)) {
            eprintln!("{series}, run {run}");
            let agents = Agents::start(&lab, ours.program(), NODES, |_| Vec::new())?;
            let mut ring = Ring::new(&lab, "our agent");
            let program =
                std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
            for node in 1..=NODES {
                let mut command = lab.command(node, &program);
                command.arg("client").arg("--socket").arg(agents.socket(node));
                if series == AGENT {
                    command.arg("--bundles");
                }
                command.stderr(std::process::Stdio::inherit());
                ring.add(command)?;
            }
            ring.gather()?;
            measure(ring, series, &mut cases, sizes, args)?;
        }
        if is_wanted(LIBRARY) {
            eprintln!("{LIBRARY}, run {run}");
            for (index, senders) in args.senders.iter().enumerate() {
                let senders = senders.to_string();
                let options = ["--order", "total", "--senders", &senders];
                let rates = ours.multicast(&lab, NODES, sizes, &options, common)?;
                for (at, rate) in rates.iter().enumerate() {
                    cases[index * sizes.len() + at].add(LIBRARY, rate.first);
                }
            }
        }
        let Some(peer) = &peer else { continue };
        if is_wanted(COROSYNC) {
            eprintln!("{COROSYNC}, run {run}");
            if let Some(ring) = common.peer(peer.start(&lab, NODES, Wire::Knet))? {
                measure(ring, COROSYNC, &mut cases, sizes, args)?;
            }
        }
        if let (Some(folder), true) = (&libcpg, is_wanted(LIBCPG)) {
            eprintln!("{LIBCPG}, run {run}");
            let agents = Agents::start(&lab, ours.program(), NODES, |_| Vec::new())?;
            let mut ring = Ring::new(&lab, "our libcpg");
            for node in 1..=NODES {
                let mut command = lab.command(node, peer.client());
                command
                    .env("LD_LIBRARY_PATH", folder)
                    .env("ANTIPHON_SOCKET", agents.socket(node));
                command.stderr(std::process::Stdio::inherit());
                ring.add(command)?;
            }
            let measured = ring
                .gather()
                .and_then(|()| measure(ring, LIBCPG, &mut cases, sizes, args));
            if let Err(failure) = measured {
                for case in &mut cases {
                    case.fail(LIBCPG, true, &failure);
                }
            }
        }
    }
    let mut report = Report::new(
        "clients",
        "messages per second delivered at one of three programs, each beside an agent, total order",
        "msg/s",
    );
    report.cases = cases;
    report.headline = Headline {
        ours: AGENT.to_owned(),
        peers: vec![COROSYNC.to_owned()],
        limit: Some(LIBRARY.to_owned()),
    };
    report.peer_version = peer.map(|peer| format!("corosync {}", peer.version()));
    report.tell(&ours.version(), common)
}

/// All sizes and numbers of senders, with clients that run.
fn measure(
    mut ring: Ring<'_>,
    series: &str,
    cases: &mut [Case],
    sizes: &[u32],
    args: &ClientsArgs,
) -> Result<(), Failure> {
    for (index, senders) in args.senders.iter().enumerate() {
        for (at, size) in sizes.iter().enumerate() {
            let rate = ring.rate(*size, (*senders).into(), &args.common)?;
            cases[index * sizes.len() + at].add(series, rate);
        }
    }
    Ok(())
}

/// The folder of our libcpg, made anew if its sources are there.
fn libcpg(args: &ClientsArgs) -> Option<PathBuf> {
    let sources = tools::root().join("clients/cpg");
    let folder = match &args.libcpg {
        Some(folder) => folder.clone(),
        None => {
            let made = tools::run("make", &["-s", "-C", &sources.to_string_lossy(), "all"]);
            if let Err(failure) = made {
                eprintln!("SKIPPED {LIBCPG}: {failure}");
                return None;
            }
            sources.join("build")
        }
    };
    match folder.join("libcpg.so.4").is_file() {
        true => Some(folder),
        false => {
            eprintln!("SKIPPED {LIBCPG}: {} has no libcpg.so.4", folder.display());
            None
        }
    }
}
