//! `antiphon bench idle`: the CPU time of nodes that have nothing to do.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::args::IdleArgs;
use super::crew::Crew;
use crate::exit::{Exit, Failed};
use crate::figures::statistics;
use crate::say::say;
use crate::usage;

/// Watches the nodes of this host, in a group of each order.
pub(super) fn run(args: &IdleArgs) -> Result<Exit, Failed> {
    let mut results = Vec::new();
    for order in &args.crew.order {
        let mut crew = Crew::muster(&args.crew, *order)?;
        crew.show("letting the cluster come to rest");
        std::thread::sleep(args.warmup);
        let processes: Vec<(String, PathBuf)> = crew
            .processes()
            .map(|(name, pid)| (name.to_owned(), PathBuf::from(format!("/proc/{pid}"))))
            .collect();
        let take = || {
            processes
                .iter()
                .map(|(_, process)| usage::cpu_of(process))
                .collect::<Vec<_>>()
        };
        let (before, from) = (take(), Instant::now());
        while from.elapsed() < args.seconds {
            let left = args.seconds.saturating_sub(from.elapsed());
            crew.show(&format!(
                "{} order: watching for {:.0} s more",
                order.name(),
                left.as_secs_f64()
            ));
            std::thread::sleep(left.min(Duration::from_secs(1)));
        }
        let elapsed = from.elapsed().as_secs_f64();
        let shares: Option<Vec<f64>> = before
            .into_iter()
            .zip(take())
            .map(|(before, after)| Some(usage::between(before, after)? / elapsed * 100.0))
            .collect();
        crew.show("");
        let shares = shares.ok_or_else(|| {
            Failed::run("a node has ended, or this system does not tell CPU times in /proc")
        })?;
        if !args.crew.json {
            for ((name, _), percent) in processes.iter().zip(&shares) {
                say!("{:<6} {name:<24} {percent:>8.4} % of a core", order.name())?;
            }
        }
        results.push(result(order.name(), crew.members(), &shares));
        crew.disband();
    }
    if args.crew.json {
        say!(
            "{}",
            json!({
                "event": "summary", "bench": "idle", "seconds": args.seconds.as_secs_f64(),
                "engine": args.crew.engine.name(),
                "profile": args.crew.profile.name, "results": results,
            })
        )?;
    }
    Ok(Exit::Success)
}

fn result(order: &str, nodes: usize, percent: &[f64]) -> Value {
    // Statistics are rounded to two decimals, too coarse for an idle node's percents.
    let millionths: Vec<f64> = percent.iter().map(|percent| percent * 10_000.0).collect();
    json!({"order": order, "nodes": nodes, "cpu_millionths_of_a_core": statistics(&millionths)})
}
