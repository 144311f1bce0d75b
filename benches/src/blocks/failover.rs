//! `failover`: the process that holds a lock is killed, and another one holds it. The time from the kill to
//! the moment at which the next one knows that it holds, by the clock of the machine.

use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;

use super::clock_us;
use super::crew::Crew;
use super::worker::words::{Ask, Hold, Open, Say};
use crate::lab::Lab;
use crate::ours::version;
use crate::report::{Case, Headline, Report};
use crate::{Common, Failure};

/// For the first to hold, and for the next one.
const HELD_WITHIN: Duration = Duration::from_secs(60);
/// Between the moment from which all wait and the kill: what a new member is told is told by then.
const REST: Duration = Duration::from_millis(300);

#[derive(Debug, Args)]
pub(crate) struct FailoverArgs {
    #[command(flatten)]
    common: Common,
    /// Nodes, all of which want the lock
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=16))]
    nodes: u8,
    /// Kills of each run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    kills: u16,
}

/// Measures and reports.
pub(crate) fn run(args: &FailoverArgs) -> Result<(), Failure> {
    let common = &args.common;
    let nodes = usize::from(args.nodes);
    let lab = Lab::new(nodes, !common.no_offload)?;
    let mut cases = ["p50", "p90", "longest"].map(|name| Case::new(name.to_owned()));
    let kills = if common.smoke { 3 } else { args.kills };
    for run in 1..=common.runs() {
        for (series, leads) in [("lock", false), ("leader", true)] {
            eprintln!("{series}, run {run}");
            let took = kill(&lab, nodes, leads, kills)?;
            let [p50, p90, longest] = &mut cases;
            p50.add(series, took.value_at_quantile(0.5) as f64 / 1000.0);
            p90.add(series, took.value_at_quantile(0.9) as f64 / 1000.0);
            longest.add(series, took.max() as f64 / 1000.0);
        }
    }
    let mut report = Report::new(
        "failover",
        &format!("milliseconds from kill -9 of the holder to the next one of {nodes} that holds"),
        "ms",
    );
    report.cases = cases.into();
    report.lower_is_better = true;
    report.headline = Headline {
        ours: "lock".to_owned(),
        ..Headline::default()
    };
    report.tell(&version(), common)
}

/// In microseconds.
fn kill(lab: &Lab, nodes: usize, leads: bool, kills: u16) -> Result<Histogram<u64>, Failure> {
    let mut took = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
    let mut crew = Crew::muster(lab, nodes)?;
    crew.open(Open::Locks)?;
    let all: Vec<usize> = (1..=nodes).collect();
    let name = "failover".to_owned();
    let ask = Ask::Hold {
        hold: Hold { name, leads },
    };
    crew.ask(&all, &ask)?;
    let is_held = |say: &Say| match say {
        Say::Held { held } => Some(held.clock_us),
        _ => None,
    };
    let (mut holder, _) = crew.hear_one(&all, HELD_WITHIN, "a lock to be held", is_held)?;
    for _ in 0..kills {
        std::thread::sleep(REST);
        let others: Vec<usize> = all.iter().copied().filter(|node| *node != holder).collect();
        let from = clock_us();
        crew.kill(holder);
        let (next, held) = crew.hear_one(&others, HELD_WITHIN, "the lock to be held again", is_held)?;
        took.record(held.saturating_sub(from).max(1))
            .map_err(|error| error.to_string())?;
        // It waits for the lock behind the others.
        crew.replace(holder, Open::Locks)?;
        crew.ask(&[holder], &ask)?;
        holder = next;
    }
    Ok(took)
}
