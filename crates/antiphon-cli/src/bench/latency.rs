//! `antiphon bench latency`: how long a message takes, one way and there and back.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::args::LatencyArgs;
use super::crew::Crew;
use super::worker::words::{Done, Task, Way};
use crate::exit::{Exit, Failed};
use crate::figures::round;
use crate::say::say;

const QUANTILES: [(&str, f64); 5] = [
    ("p50_us", 0.5),
    ("p90_us", 0.9),
    ("p99_us", 0.99),
    ("p999_us", 0.999),
    ("p9999_us", 0.9999),
];

/// Measures each order, each way.
pub(super) fn run(args: &LatencyArgs) -> Result<Exit, Failed> {
    let mut results = Vec::new();
    for order in &args.crew.order {
        let mut crew = Crew::muster(&args.crew, *order)?;
        let senders = usize::from(args.senders.unwrap_or(u16::MAX)).min(crew.members());
        let ways: &[Way] = if crew.is_spread() {
            &[Way::Round]
        } else {
            &[Way::One, Way::Round]
        };
        for way in ways {
            let name = match way {
                Way::One => "one way",
                Way::Round => "round trip",
            };
            let task = Task::Latency {
                way: *way,
                senders,
                size: args.size as usize,
                safe: args.safe,
                bulk: args.bulk.map_or(0, |size| size.0 as usize),
                interval_ns: 1_000_000_000 * senders as u64 / u64::from(args.rate),
                warmup_ms: args.warmup.as_millis() as u64,
                measured_ms: args.seconds.as_millis() as u64,
            };
            let done = crew.measure(&task, &format!("{} order, {name}", order.name()))?;
            crew.show("");
            let figures = figures(&done)?;
            if !args.crew.json {
                if results.is_empty() {
                    say!(
                        "{:<6} {:<10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}   µs",
                        "order",
                        "",
                        "messages",
                        "p50",
                        "p90",
                        "p99",
                        "p99.9",
                        "p99.99",
                        "max"
                    )?;
                }
                let mut row = format!(
                    "{:<6} {name:<10} {:>10}",
                    order.name(),
                    figures["messages"].to_string()
                );
                for figure in QUANTILES.map(|(name, _)| name).into_iter().chain(["max_us"]) {
                    row.push_str(&format!(" {:>10}", figures[figure].to_string()));
                }
                say!("{row}")?;
            }
            let bulk: f64 = done.iter().map(|done| done.bulk_bytes_per_s).sum();
            if args.bulk.is_some() && !args.crew.json {
                say!(
                    "       besides, {:.0} MB/s in payloads of {}",
                    bulk / 1e6,
                    args.bulk.map(|size| size.to_string()).unwrap_or_default()
                )?;
            }
            let mut result = json!({"order": order.name(), "way": way, "senders": senders, "bulk_bytes_per_s": round(bulk)});
            if let (Value::Object(result), Value::Object(figures)) = (&mut result, figures) {
                result.extend(figures);
            }
            results.push(result);
        }
        crew.disband();
    }
    if args.crew.json {
        say!(
            "{}",
            json!({
                "event": "summary", "bench": "latency", "rate": args.rate, "size": args.size,
                "engine": args.crew.engine.name(), "safe": args.safe, "bulk": args.bulk.map_or(0, |size| size.0),
                "seconds": args.seconds.as_secs_f64(), "profile": args.crew.profile.name, "results": results,
            })
        )?;
    }
    Ok(Exit::Success)
}

/// The latencies of all members as one.
fn figures(done: &[Done]) -> Result<Value, Failed> {
    let mut all = Histogram::<u64>::new(3).map_err(|error| Failed::run(format!("histogram: {error}")))?;
    for (value, count) in done.iter().flat_map(|done| &done.latencies) {
        all.record_n(*value, *count)
            .map_err(|error| Failed::run(format!("histogram: {error}")))?;
    }
    if all.is_empty() {
        return Err(Failed::run("no message arrived in the measured time"));
    }
    let us = |ns: u64| round(ns as f64 / 1000.0);
    let mut figures = json!({
        "messages": all.len(), "min_us": us(all.min()), "mean_us": round(all.mean() / 1000.0), "max_us": us(all.max()),
    });
    for (name, quantile) in QUANTILES {
        figures[name] = json!(us(all.value_at_quantile(quantile)));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_count_together() {
        let member = |latencies| Done {
            latencies,
            ..Done::default()
        };
        let figures = figures(&[member(vec![(100_000, 90)]), member(vec![(900_000, 10)])]).unwrap();
        assert_eq!(figures["messages"], 100);
        let us = |name: &str| figures[name].as_f64().unwrap();
        assert!((us("p50_us") - 100.0).abs() < 1.0 && (us("p90_us") - 100.0).abs() < 1.0);
        assert!((us("p99_us") - 900.0).abs() < 2.0 && (us("max_us") - 900.0).abs() < 2.0);
        assert!(super::figures(&[member(vec![])]).is_err());
    }
}
