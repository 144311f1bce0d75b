//! `antiphon bench slow`: what one member that has stopped costs the others, in time and in memory.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::args::SlowArgs;
use super::crew::Crew;
use super::worker::words::{Done, Stop, Task};
use crate::exit::{Exit, Failed};
use crate::figures::round;
use crate::say::say;
use crate::usage;

/// One process over time.
struct Watched {
    process: PathBuf,
    /// The most resident bytes while all read, and while one has stopped.
    most: [u64; 2],
}

/// Measures each order.
pub(super) fn run(args: &SlowArgs) -> Result<Exit, Failed> {
    if !args.crew.join.is_empty() {
        return Err(Failed::usage(
            "bench slow measures processes of one host; leave --join away",
        ));
    }
    let mut results = Vec::new();
    for order in &args.crew.order {
        let mut crew = Crew::muster_with(&args.crew, *order, Some(args.slow_after))?;
        let last = crew.members() - 1;
        let stops = args.rank.map_or(last, usize::from);
        let stopped = crew.process_of(stops).filter(|_| last > 0).ok_or_else(|| {
            Failed::usage(format!(
                "--rank {stops}: there must be such a member, and another beside it"
            ))
        })?;
        // Ids of the kernel, so they fit.
        let stopped = Pid::from_raw(stopped as i32);
        let mut watched: Vec<Watched> = (0..=last)
            .filter_map(|rank| crew.process_of(rank))
            .map(|pid| Watched {
                process: PathBuf::from(format!("/proc/{pid}")),
                most: [0; 2],
            })
            .collect();
        let task = Task::Slow {
            size: args.size as usize,
            stops,
            how: args.stop,
            warmup_ms: args.warmup.as_millis() as u64,
            measured_ms: args.seconds.as_millis() as u64,
        };
        let (mut pausing, whole) = (args.stop == Stop::Process, args.warmup + args.seconds);
        let mut paused = false;
        let results_of = crew.watch(&task, &format!("{} order", order.name()), |since| {
            if pausing && since >= args.warmup {
                (pausing, paused) = (false, true);
                signal(stopped, Signal::STOP);
            }
            if paused && since >= whole {
                paused = false;
                signal(stopped, Signal::CONT);
            }
            // What a process takes when the load has ended says nothing.
            if since < whole {
                let phase = usize::from(since >= args.warmup);
                for Watched { process, most } in &mut watched {
                    most[phase] = usage::memory_of(process).unwrap_or(0).max(most[phase]);
                }
            }
        });
        if paused {
            signal(stopped, Signal::CONT);
        }
        let done = results_of?;
        crew.show("");
        let members: Vec<Member> = done
            .iter()
            .zip(&watched)
            .map(|(done, watched)| Member::of(done, watched.most, done.rank == stops))
            .collect();
        if !args.crew.json {
            print(order.name(), &members, results.is_empty())?;
        }
        results.push(result(order.name(), &members));
        crew.disband();
    }
    if args.crew.json {
        say!(
            "{}",
            json!({
                "event": "summary", "bench": "slow", "stop": args.stop.as_str(), "slow_after": args.slow_after,
                "size": args.size, "seconds": args.seconds.as_secs_f64(), "profile": args.crew.profile.name,
                "window_bytes": args.crew.window_bytes, "results": results,
            })
        )?;
    }
    Ok(Exit::Success)
}

fn signal(process: Option<Pid>, signal: Signal) {
    if let Some(pid) = process {
        // Fails only if it is gone, which its conductor hears.
        let _ = kill_process(pid, signal);
    }
}

/// What became of a member.
struct Member {
    name: String,
    stopped: bool,
    rate: f64,
    held_up: Duration,
    /// In MiB.
    most: [f64; 2],
}

impl Member {
    fn of(done: &Done, most: [u64; 2], stopped: bool) -> Self {
        Self {
            name: done.name.clone(),
            stopped,
            rate: done.received as f64 / done.seconds.max(1e-9),
            held_up: Duration::from_secs_f64(done.silent_seconds),
            most: most.map(|bytes| bytes as f64 / f64::from(1 << 20)),
        }
    }

    fn grown(&self) -> f64 {
        self.most[1] / self.most[0].max(1e-9)
    }
}

fn print(order: &str, members: &[Member], first: bool) -> Result<(), Failed> {
    if first {
        say!(
            "{:<6} {:<8} {:>12} {:>12} {:>16} {:>16} {:>8}",
            "order",
            "member",
            "msg/s",
            "held up, s",
            "all read, MiB",
            "one stopped, MiB",
            "ratio"
        )?;
    }
    for member in members {
        let name = if member.stopped {
            format!("({})", member.name)
        } else {
            member.name.clone()
        };
        say!(
            "{order:<6} {name:<8} {:>12.0} {:>12.1} {:>16.1} {:>16.1} {:>8.2}",
            member.rate,
            member.held_up.as_secs_f64(),
            member.most[0],
            member.most[1],
            member.grown()
        )?;
    }
    Ok(())
}

fn result(order: &str, members: &[Member]) -> Value {
    let others = || members.iter().filter(|member| !member.stopped);
    let worst = |figure: fn(&Member) -> f64| round(others().map(figure).fold(0.0, f64::max));
    let members: Vec<Value> = members
        .iter()
        .map(|member| {
            json!({
                "name": member.name, "stopped": member.stopped, "msgs_per_s": member.rate.round(),
                "held_up_s": round(member.held_up.as_secs_f64()),
                "memory_mib_all_read": round(member.most[0]), "memory_mib_one_stopped": round(member.most[1]),
            })
        })
        .collect();
    json!({
        "order": order, "nodes": members.len(), "held_up_s": worst(|member| member.held_up.as_secs_f64()),
        "memory_ratio": worst(Member::grown), "members": members,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_stopped_does_not_count_among_those_that_suffer() {
        let member = |name: &str, silent_seconds, most, stopped| {
            let done = Done {
                name: name.to_owned(),
                silent_seconds,
                ..Done::default()
            };
            Member::of(&done, most, stopped)
        };
        let members = [
            member("a", 2.0, [100 << 20, 105 << 20], false),
            member("b", 1.0, [100 << 20, 101 << 20], false),
            member("c", 60.0, [100 << 20, 300 << 20], true),
        ];
        let result = result("fifo", &members);
        assert_eq!(result["held_up_s"], 2.0);
        assert_eq!(result["memory_ratio"], 1.05);
        assert_eq!(result["members"][2]["memory_mib_one_stopped"], 300.0);
    }
}
