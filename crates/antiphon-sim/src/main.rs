//! `antiphon-sim`: run seeds, read one, make it smaller, and see whether the checkers bite.

use std::process::ExitCode;

use antiphon_core::EngineKind;
use antiphon_sim::explore::study;
use antiphon_sim::plan::{NAMES, named_on};
use antiphon_sim::run::run;
use antiphon_sim::shrink::{show, shrink};
use antiphon_sim::timeline::timeline;
use clap::{Args, Parser, Subcommand};
use serde_json::json;

mod commands {
    #[cfg(feature = "planted")]
    pub(crate) mod planted;
    pub(crate) mod run;
    pub(crate) mod scale;
}

#[derive(Parser)]
#[command(about = "Simulates Antiphon clusters under faults and checks their guarantees")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs seeds of a plan; the last line of the output is one JSON object.
    Run(commands::run::Arguments),
    /// Prints what happened in one seed.
    Trace(OneSeed),
    /// Leaves out of a failing seed what does not matter.
    Shrink(OneSeed),
    /// Arms each planted mistake until a checker notices.
    #[cfg(feature = "planted")]
    Planted(commands::planted::Arguments),
    /// Visits every state of worlds that are small enough.
    Explore(ExploreArguments),
    /// Measures a large cluster: forming, at rest, and losing a few nodes.
    Scale(commands::scale::Arguments),
    /// Lists the plans.
    Plans,
}

#[derive(Args)]
struct OneSeed {
    /// The seed.
    #[arg(long)]
    seed: u64,
    /// The plan.
    #[arg(long, default_value = "default")]
    plan: String,
    /// Nodes from the start.
    #[arg(long)]
    nodes: Option<u8>,
    /// The membership engine, `coordinator` or `cut`; if not given, the one that the seed draws.
    #[arg(long, value_parser = membership)]
    membership: Option<EngineKind>,
    /// Arm this planted mistake.
    #[cfg(feature = "planted")]
    #[arg(long)]
    bug: Option<String>,
}

#[derive(Args)]
struct ExploreArguments {
    /// What to explore.
    what: Explored,
    /// Only worlds of this many members.
    #[arg(long)]
    members: Option<u8>,
    /// Only worlds whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// The large worlds as well: minutes to an hour.
    #[arg(long)]
    full: bool,
    /// Give a world up beyond this many states; each takes 18 to 55 bytes of memory, the more while a table
    /// grows.
    #[arg(long, default_value_t = 100_000_000)]
    limit: u64,
    /// Only the JSON object on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Explored {
    /// The view slot: R1, R2, R3.
    Slot,
    /// The flush of a group.
    Flush,
}

fn main() -> ExitCode {
    // A panic of the core is a finding, reported with its seed: not noise on stderr.
    std::panic::set_hook(Box::new(|_| {}));
    match Arguments::parse().command {
        Command::Run(arguments) => commands::run::run(&arguments),
        Command::Trace(one) => trace(&one),
        Command::Shrink(one) => shrink_seed(&one),
        #[cfg(feature = "planted")]
        Command::Planted(arguments) => commands::planted::run(&arguments),
        Command::Explore(arguments) => explore(&arguments),
        Command::Scale(arguments) => commands::scale::run(&arguments),
        Command::Plans => {
            NAMES.iter().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
    }
}

/// A membership engine by its name.
fn membership(name: &str) -> Result<EngineKind, String> {
    let engine = EngineKind::ALL.into_iter().find(|engine| engine.name() == name);
    engine.ok_or_else(|| {
        format!(
            "the engines are {}",
            EngineKind::ALL.map(EngineKind::name).join(" and ")
        )
    })
}

fn not_on(plan: &str, engine: EngineKind) -> String {
    format!(
        "the plan {plan:?} is about the other membership engine, not {}",
        engine.name()
    )
}

fn cores(jobs: Option<usize>) -> usize {
    jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn the_plan(one: &OneSeed) -> Option<antiphon_sim::Plan> {
    let plan = named_on(&one.plan, one.seed, one.nodes.map(usize::from), one.membership);
    if plan.is_none() {
        match one.membership {
            Some(engine) if NAMES.contains(&one.plan.as_str()) => eprintln!("{}", not_on(&one.plan, engine)),
            _ => eprintln!("there is no plan {:?}; `antiphon-sim plans` lists them", one.plan),
        }
    }
    #[cfg(feature = "planted")]
    if let Some(name) = &one.bug {
        antiphon_core::planted::arm(bug_named(name));
    }
    plan
}

#[cfg(feature = "planted")]
fn bug_named(name: &str) -> Option<antiphon_core::planted::Bug> {
    let bug = antiphon_core::planted::Bug::ALL
        .iter()
        .copied()
        .find(|bug| format!("{bug:?}") == name);
    if bug.is_none() {
        eprintln!("there is no planted mistake {name:?}");
    }
    bug
}

fn trace(one: &OneSeed) -> ExitCode {
    let Some(plan) = the_plan(one) else {
        return ExitCode::from(2);
    };
    println!("{}", show(&plan));
    let outcome = run(&plan, one.seed);
    for line in timeline(&outcome.trace) {
        println!("{line}");
    }
    println!(
        "digest {:016x}, {} s, faults {:?}",
        outcome.digest,
        outcome.simulated as f64 / 1e6,
        outcome.faults
    );
    for violation in &outcome.report.violations {
        println!("VIOLATION {violation}");
    }
    if outcome.report.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn shrink_seed(one: &OneSeed) -> ExitCode {
    let Some(plan) = the_plan(one) else {
        return ExitCode::from(2);
    };
    match shrink(&plan, one.seed, |text| eprintln!("{text}")) {
        Some((smaller, violations)) => {
            println!("{}", show(&smaller));
            let outcome = run(&smaller, one.seed);
            for line in timeline(&outcome.trace) {
                println!("{line}");
            }
            for violation in violations {
                println!("VIOLATION {violation}");
            }
            ExitCode::FAILURE
        }
        None => {
            println!("seed {} of plan {} does not fail", one.seed, one.plan);
            ExitCode::SUCCESS
        }
    }
}

fn explore(arguments: &ExploreArguments) -> ExitCode {
    let (what, studies) = match arguments.what {
        Explored::Slot => ("slot", study::slot(arguments.full)),
        Explored::Flush => ("flush", study::flush(arguments.full)),
    };
    let started = std::time::Instant::now();
    let mut worlds = Vec::new();
    let (mut states, mut failures) = (0, 0);
    let is_meant = |study: &&study::Study| {
        let named = arguments
            .only
            .as_ref()
            .is_none_or(|only| study.name.contains(only));
        named && arguments.members.is_none_or(|members| members == study.members)
    };
    for study in studies.iter().filter(is_meant) {
        let finding = study.run(arguments.limit);
        let outcome = &finding.outcome;
        failures += u32::from(!finding.as_expected);
        if finding.armed.is_none() {
            states += outcome.states;
        }
        let found = outcome.violation.as_ref();
        if !arguments.json {
            let verdict = match (&finding.armed, finding.as_expected) {
                (None, true) => "complete, no violation".to_owned(),
                (None, false) if found.is_none() => format!(
                    "NOT COMPLETE: given up at --limit {}, which bounds the memory",
                    arguments.limit
                ),
                (None, false) => "VIOLATION".to_owned(),
                (Some(bug), true) => format!("caught {bug}"),
                (Some(bug), false) => format!("MISSED {bug}"),
            };
            let wall = outcome.wall.as_secs_f64();
            println!(
                "{}: {} states in {wall:.1} s: {verdict}",
                study.name, outcome.states
            );
            if let Some(violation) = found {
                println!("    {}", violation.what);
                violation
                    .schedule
                    .iter()
                    .enumerate()
                    .for_each(|(at, step)| println!("    {:2}. {step}", at + 1));
            }
        }
        worlds.push(json!({
            "name": study.name,
            "members": study.members,
            "states": outcome.states,
            "steps": outcome.steps,
            "complete": outcome.complete,
            "wall_s": outcome.wall.as_secs_f64(),
            "armed": finding.armed,
            "violation": found.map(|violation| &violation.what),
            "schedule": found.map(|violation| &violation.schedule),
            "as_expected": finding.as_expected,
        }));
    }
    let summary = json!({
        "explored": what,
        "states": states,
        "failures": failures,
        "wall_s": started.elapsed().as_secs_f64(),
        "worlds": worlds,
    });
    println!("{summary}");
    if failures == 0 && !worlds_is_empty(&summary) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A run that explored nothing shows nothing.
fn worlds_is_empty(summary: &serde_json::Value) -> bool {
    summary["worlds"].as_array().is_none_or(Vec::is_empty)
}
