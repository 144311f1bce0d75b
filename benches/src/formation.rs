//! `formation`, `join`, `shutdown`: many members on one machine, from the first start to the last leave.

use clap::Args;

use crate::report::Case;
use crate::swarm::{Story, Systems, members};
use crate::{Common, Failure};

/// With `--smoke`.
const FEW: usize = 5;
/// Sizes with `--smoke` are few, and joins too.
const SMOKE_JOINS: u16 = 2;
/// Ours is looked at for so long when all have formed and nothing is left to do.
const REST_S: u32 = 2;

#[derive(Debug, Args)]
pub(crate) struct FormationArgs {
    #[command(flatten)]
    common: Common,
    /// How many members
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "10,50,71,100",
        value_parser = size
    )]
    nodes: Vec<usize>,
    /// How many of ours without the peers, as well
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "200", value_parser = size)]
    alone: Vec<usize>,
    /// Further options for `antiphon swarm`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// A swarm of one is none.
fn size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(size @ 2..) => Ok(size),
        _ => Err("expected at least 2 members".to_owned()),
    }
}

/// How many members, and whether the peers are measured with so many, too.
fn sizes(common: &Common, with_peers: &[usize], alone: &[usize]) -> Vec<(usize, bool)> {
    if common.smoke {
        return vec![(FEW, true)];
    }
    let with_peers = with_peers.iter().map(|nodes| (*nodes, true));
    with_peers
        .chain(alone.iter().map(|nodes| (*nodes, false)))
        .collect()
}

/// All members at once, until each reports all.
pub(crate) fn formation(args: &FormationArgs) -> Result<(), Failure> {
    let common = &args.common;
    let systems = Systems::get(common)?;
    let mut report = systems.report(
        "formation",
        "until each of so many members on one machine reports all, and how many numbers of members were seen",
    );
    let more: Vec<&str> = args.ours.split_whitespace().collect();
    let story = Story {
        rest_s: REST_S,
        more: &more,
        ..Story::default()
    };
    for (nodes, peers) in sizes(common, &args.nodes, &args.alone) {
        let of = |what: &str| format!("{}: {what}", members(nodes));
        let mut formed = Case::new(members(nodes));
        let mut seen = Case::of(of("sizes seen"), "sizes");
        let mut forming = Case::of(of("open files of each while forming"), "files");
        let mut at_rest = Case::of(of("open files of each at rest"), "files");
        let compared = systems.of(nodes, peers)?;
        for _ in 0..common.runs() {
            for system in &compared {
                let Some(told) = system.run(nodes, story, &mut formed) else {
                    continue;
                };
                let series = system.series();
                formed.add(series, told.formed);
                seen.add(series, told.sizes);
                if let Some(files) = told.descriptors_forming {
                    forming.add(series, files);
                }
                if let Some(files) = told.descriptors_at_rest {
                    at_rest.add(series, files);
                }
            }
        }
        report.cases.extend([formed, seen, forming, at_rest]);
    }
    report.tell(&systems.ours.version(), common)
}

#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    common: Common,
    /// How many members there are already
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10,100", value_parser = size)]
    nodes: Vec<usize>,
    /// How many join, one after the other, in each run
    #[arg(long, value_name = "N", default_value_t = 20)]
    joins: u16,
    /// Further options for `antiphon swarm`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// One more member, until it sees all and until all see it.
pub(crate) fn join(args: &JoinArgs) -> Result<(), Failure> {
    let common = &args.common;
    let systems = Systems::get(common)?;
    let mut report = systems.report(
        "join",
        "one more member beside so many on one machine, each of the joins a sample",
    );
    let more: Vec<&str> = args.ours.split_whitespace().collect();
    let (sizes, joins) = match common.smoke {
        true => (vec![FEW], SMOKE_JOINS),
        false => (args.nodes.clone(), args.joins),
    };
    let story = Story {
        joins: joins.into(),
        more: &more,
        ..Story::default()
    };
    for nodes in sizes {
        let mut own = Case::new(format!("into {}, until the joiner sees all", members(nodes)));
        let mut everywhere = Case::new(format!("into {}, until all see the joiner", members(nodes)));
        let compared = systems.of(nodes, true)?;
        for _ in 0..common.runs() {
            for system in &compared {
                let told = system.run(nodes, story, &mut own);
                let joins = told.map(|told| told.joins).unwrap_or_default();
                let (until_own, until_all): (Vec<f64>, Vec<f64>) = joins.into_iter().unzip();
                own.add_all(system.series(), &until_own);
                everywhere.add_all(system.series(), &until_all);
            }
        }
        report.cases.extend([own, everywhere]);
    }
    report.tell(&systems.ours.version(), common)
}

#[derive(Debug, Args)]
pub(crate) struct ShutdownArgs {
    #[command(flatten)]
    common: Common,
    /// How many members
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10,50,100", value_parser = size)]
    nodes: Vec<usize>,
    /// How many of ours without the peers, as well
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "200", value_parser = size)]
    alone: Vec<usize>,
    /// Further options for `antiphon swarm`, as one word
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "")]
    ours: String,
}

/// All leave at once, until the last has left.
pub(crate) fn shutdown(args: &ShutdownArgs) -> Result<(), Failure> {
    let common = &args.common;
    let systems = Systems::get(common)?;
    let mut report = systems.report(
        "shutdown",
        "until the last of so many members on one machine that leave at once has left",
    );
    let more: Vec<&str> = args.ours.split_whitespace().collect();
    let story = Story {
        more: &more,
        ..Story::default()
    };
    for (nodes, peers) in sizes(common, &args.nodes, &args.alone) {
        let mut left = Case::new(members(nodes));
        let compared = systems.of(nodes, peers)?;
        for _ in 0..common.runs() {
            for system in &compared {
                if let Some(told) = system.run(nodes, story, &mut left) {
                    left.add(system.series(), told.left);
                }
            }
        }
        report.cases.push(left);
    }
    report.tell(&systems.ours.version(), common)
}
