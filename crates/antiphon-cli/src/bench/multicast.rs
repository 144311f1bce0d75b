//! `antiphon bench multicast`: messages per second at each member.

use antiphon::Order;
use serde_json::{Value, json};

use super::args::MulticastArgs;
use super::crew::Crew;
use super::worker::words::{Datagrams, Done, Task};
use crate::exit::{Exit, Failed};
use crate::figures::{round, statistics};
use crate::say::say;

/// Measures each order and size, several times.
pub(super) fn run(args: &MulticastArgs) -> Result<Exit, Failed> {
    let mut results = Vec::new();
    let mut first = true;
    for order in &args.crew.order {
        let mut crew = Crew::muster(&args.crew, *order)?;
        let senders = usize::from(args.senders.unwrap_or(u16::MAX)).min(crew.members());
        for size in &args.size {
            let mut runs = Vec::new();
            for run in 1..=args.runs {
                let label = format!("{} order, {size} bytes, run {run}", order.name());
                let task = Task::Multicast {
                    senders,
                    size: *size as usize,
                    safe: args.safe,
                    warmup_ms: args.warmup.as_millis() as u64,
                    measured_ms: args.seconds.as_millis() as u64,
                };
                let result = Run::of(&crew.measure(&task, &label)?);
                crew.show("");
                result.print(*order, *size, run, args.crew.json, std::mem::take(&mut first))?;
                runs.push(result);
            }
            results.push(summary_of(*order, *size, senders, &runs));
        }
        crew.disband();
    }
    if args.crew.json {
        say!(
            "{}",
            json!({
                "event": "summary", "bench": "multicast", "nodes": results.first().map(|result| result["nodes"].clone()),
                "keyed": args.crew.keyed || args.crew.key_file.is_some(), "profile": args.crew.profile.name,
                "engine": args.crew.engine.name(),
                "dissemination": args.crew.dissemination.name(),
                "transport": args.crew.transport.name(), "safe": args.safe,
                "window_bytes": args.crew.window_bytes, "threads": args.crew.threads,
                "seconds": args.seconds.as_secs_f64(), "runs": args.runs, "results": results,
            })
        )?;
    }
    Ok(Exit::Success)
}

/// One measurement.
struct Run {
    /// Messages per second at each member, by seniority.
    rates: Vec<f64>,
    megabytes: Vec<f64>,
    /// CPU time per delivered message, of all members.
    cpu_us: Option<f64>,
    names: Vec<String>,
    datagrams: Datagrams,
}

impl Run {
    fn of(results: &[Done]) -> Self {
        let seconds = |result: &Done| result.seconds.max(1e-9);
        let received: u64 = results.iter().map(|result| result.received).sum();
        let cpu: Option<f64> = results.iter().map(|result| result.cpu_seconds).sum();
        Self {
            rates: results
                .iter()
                .map(|result| result.received as f64 / seconds(result))
                .collect(),
            megabytes: results
                .iter()
                .map(|result| result.bytes as f64 / seconds(result) / 1e6)
                .collect(),
            cpu_us: cpu
                .filter(|_| received > 0)
                .map(|cpu| cpu * 1e6 / received as f64),
            names: results.iter().map(|result| result.name.clone()).collect(),
            datagrams: Datagrams::sum(results.iter().map(|result| result.datagrams)),
        }
    }

    fn rate(&self) -> f64 {
        mean(&self.rates)
    }

    fn print(&self, order: Order, size: u32, run: u16, json: bool, first: bool) -> Result<(), Failed> {
        if json {
            let nodes: Vec<Value> = self
                .names
                .iter()
                .zip(&self.rates)
                .map(|(name, rate)| json!({"name": name, "msgs_per_s": rate.round()}))
                .collect();
            say!(
                "{}",
                json!({
                    "event": "run", "order": order.name(), "size": size, "run": run,
                    "msgs_per_s": self.rate().round(), "mb_per_s": round(mean(&self.megabytes)),
                    "cpu_us_per_msg": self.cpu_us.map(round), "members": nodes, "datagrams": self.datagrams,
                })
            )?;
            return Ok(());
        }
        if first {
            say!(
                "{:<6} {:>7} {:>4} {:>14} {:>12} {:>14} {:>14} {:>12}",
                "order",
                "bytes",
                "run",
                "msg/s/member",
                "MB/s",
                "slowest",
                "fastest",
                "CPU µs/msg"
            )?;
        }
        let cpu = self
            .cpu_us
            .map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.2}"));
        say!(
            "{:<6} {size:>7} {run:>4} {:>14.0} {:>12.1} {:>14.0} {:>14.0} {cpu:>12}",
            order.name(),
            self.rate(),
            mean(&self.megabytes),
            self.rates.iter().copied().fold(f64::INFINITY, f64::min),
            self.rates.iter().copied().fold(0.0, f64::max),
        )?;
        let datagrams = &self.datagrams;
        if datagrams.sent > 0 {
            say!(
                "       datagrams: {} sent, {:.3} % of them again; {} frames incomplete",
                datagrams.sent,
                datagrams.repaired as f64 * 100.0 / datagrams.sent as f64,
                datagrams.incomplete,
            )?;
        }
        Ok(())
    }
}

fn summary_of(order: Order, size: u32, senders: usize, runs: &[Run]) -> Value {
    let rates: Vec<f64> = runs.iter().map(|run| run.rate().round()).collect();
    let megabytes: Vec<f64> = runs.iter().map(|run| round(mean(&run.megabytes))).collect();
    let cpu: Vec<f64> = runs.iter().filter_map(|run| run.cpu_us.map(round)).collect();
    json!({
        "order": order.name(), "size": size, "senders": senders,
        "nodes": runs.first().map_or(0, |run| run.rates.len()),
        "msgs_per_s": statistics(&rates), "mb_per_s": statistics(&megabytes), "cpu_us_per_msg": statistics(&cpu),
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_members_rate_is_what_it_delivered_in_its_own_time() {
        let member = |received, seconds| Done {
            received,
            seconds,
            bytes: received * 1000,
            cpu_seconds: Some(1.0),
            ..Done::default()
        };
        let run = Run::of(&[member(1000, 1.0), member(4000, 2.0)]);
        assert_eq!(run.rates, [1000.0, 2000.0]);
        assert_eq!(run.rate(), 1500.0);
        assert_eq!(run.megabytes, [1.0, 2.0]);
        assert_eq!(run.cpu_us, Some(400.0));
    }
}
