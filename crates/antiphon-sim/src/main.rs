//! `antiphon-sim`: run seeds, read one, make it smaller, and see whether the checkers bite.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use antiphon_sim::campaign::{Campaign, Failure, Summary, conduct};
use antiphon_sim::check::ALWAYS_EVALUATED;
use antiphon_sim::explore::study;
use antiphon_sim::plan::{NAMES, named};
use antiphon_sim::run::run;
use antiphon_sim::shrink::{show, shrink};
use antiphon_sim::timeline::timeline;
use clap::{Args, Parser, Subcommand};
use serde_json::json;

mod commands {
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
    Run(RunArguments),
    /// Prints what happened in one seed.
    Trace(OneSeed),
    /// Leaves out of a failing seed what does not matter.
    Shrink(OneSeed),
    /// Arms each planted mistake until a checker notices.
    #[cfg(feature = "planted")]
    Planted(PlantedArguments),
    /// Visits every state of worlds that are small enough.
    Explore(ExploreArguments),
    /// Measures a large cluster: forming, at rest, and losing a few nodes.
    Scale(commands::scale::Arguments),
    /// Lists the plans.
    Plans,
}

#[derive(Args)]
struct RunArguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Nodes from the start; the plan's own number if not given.
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=9))]
    nodes: Option<u8>,
    /// The plan; `all` runs each of them over the seeds.
    #[arg(long, default_value = "default")]
    plan: String,
    /// Threads; all cores if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Only the JSON object on stdout.
    #[arg(long)]
    json: bool,
    /// Stop at the first failing seed.
    #[arg(long)]
    stop: bool,
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
    /// Arm this planted mistake.
    #[cfg(feature = "planted")]
    #[arg(long)]
    bug: Option<String>,
}

#[cfg(feature = "planted")]
#[derive(Args)]
struct PlantedArguments {
    /// Threads; all cores if not given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Seconds for each mistake.
    #[arg(long, default_value_t = 60)]
    each: u64,
    /// Only this one.
    #[arg(long)]
    bug: Option<String>,
    /// Only the JSON object on stdout.
    #[arg(long)]
    json: bool,
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
    /// Give a world up beyond this many states; each takes 18 to 55 bytes of memory, the more while a table grows.
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
        Command::Run(arguments) => run_seeds(&arguments),
        Command::Trace(one) => trace(&one),
        Command::Shrink(one) => shrink_seed(&one),
        #[cfg(feature = "planted")]
        Command::Planted(arguments) => planted(&arguments),
        Command::Explore(arguments) => explore(&arguments),
        Command::Scale(arguments) => commands::scale::run(&arguments),
        Command::Plans => {
            NAMES.iter().for_each(|name| println!("{name}"));
            ExitCode::SUCCESS
        }
    }
}

fn cores(jobs: Option<usize>) -> usize {
    jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn run_seeds(arguments: &RunArguments) -> ExitCode {
    let plans: Vec<&str> = if arguments.plan == "all" {
        NAMES.to_vec()
    } else {
        vec![&arguments.plan]
    };
    if let Some(unknown) = plans.iter().find(|plan| !NAMES.contains(plan)) {
        eprintln!("there is no plan {unknown:?}; `antiphon-sim plans` lists them");
        return ExitCode::from(2);
    }
    let mut code = ExitCode::SUCCESS;
    for plan in plans {
        let campaign = Campaign {
            plan: plan.to_owned(),
            from: arguments.from,
            seeds: arguments.seeds,
            nodes: arguments.nodes.map(usize::from),
            jobs: cores(arguments.jobs),
            stop_at_failure: arguments.stop,
            within: None,
        };
        let step = (arguments.seeds / 20).max(1);
        let summary = conduct(&campaign, |so_far, failure| {
            if let Some(failure) = failure {
                tell_failure(arguments, &campaign, failure);
            }
            if so_far.seeds.is_multiple_of(step) {
                let (done, failures) = (so_far.seeds, so_far.failures.len());
                eprintln!("{plan}: {done}/{} seeds, {failures} failures", arguments.seeds);
            }
        });
        if !report(&campaign, &summary) {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// A failing seed, as soon as it is found: a long run need not end for it.
fn tell_failure(arguments: &RunArguments, campaign: &Campaign, failure: &Failure) {
    let nodes = arguments
        .nodes
        .map_or(String::new(), |nodes| format!(" --nodes {nodes}"));
    let lines: Vec<String> = failure
        .violations
        .iter()
        .take(3)
        .map(ToString::to_string)
        .collect();
    let text = format!(
        "seed {}: {}\nreproduce: antiphon-sim run --seeds 1 --from {} --plan {}{nodes}",
        failure.seed,
        lines.join("\n    "),
        failure.seed,
        campaign.plan
    );
    if arguments.json {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

fn report(campaign: &Campaign, summary: &Summary) -> bool {
    // A guarantee that no run of the swarm ever evaluated would be claimed without ground.
    let idle: Vec<&str> = if campaign.plan == "default" && summary.seeds >= 100 {
        ALWAYS_EVALUATED
            .iter()
            .copied()
            .filter(|name| !summary.checks.contains_key(name))
            .collect()
    } else {
        Vec::new()
    };
    for name in &idle {
        eprintln!("the check {name} was never evaluated");
    }
    let mut by_guarantee: BTreeMap<&str, u64> = BTreeMap::new();
    for failure in &summary.failures {
        if let Some(violation) = failure.violations.first() {
            *by_guarantee.entry(violation.guarantee).or_default() += 1;
        }
    }
    let ok = summary.failures.is_empty() && idle.is_empty();
    let simulated_s = summary.simulated as f64 / 1e6;
    let wall_s = summary.wall.as_secs_f64();
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    println!(
        "{}",
        json!({
            "plan": campaign.plan,
            "seeds": summary.seeds,
            "failures": summary.failures.len(),
            "failed_seeds": summary.failures.iter().map(|failure| failure.seed).take(50).collect::<Vec<_>>(),
            "broken": by_guarantee,
            "sim_hours": rounded(simulated_s / 3600.0),
            "wall_s": rounded(wall_s),
            "sim_s_per_core_s": rounded(simulated_s / wall_s / campaign.jobs as f64),
            "liveness": summary.liveness,
            "forks": summary.forks,
            "never_evaluated": idle,
            "faults": summary.faults,
            "checks": summary.checks,
        })
    );
    ok
}

fn the_plan(one: &OneSeed) -> Option<antiphon_sim::Plan> {
    let plan = named(&one.plan, one.seed, one.nodes.map(usize::from));
    if plan.is_none() {
        eprintln!("there is no plan {:?}; `antiphon-sim plans` lists them", one.plan);
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

#[cfg(feature = "planted")]
fn planted(arguments: &PlantedArguments) -> ExitCode {
    use antiphon_core::planted::Bug;
    use antiphon_sim::planted::{Catch, catch_all, catch_one};

    let started = std::time::Instant::now();
    let each = Duration::from_secs(arguments.each);
    let tell = |catch: &Catch| match &catch.by {
        Some((plan, seed, violation)) => {
            eprintln!(
                "{:?}: caught by {plan} seed {seed} after {} runs: {violation}",
                catch.bug, catch.runs
            );
        }
        None => eprintln!(
            "{:?}: MISSED in {} runs ({})",
            catch.bug,
            catch.runs,
            catch.bug.description()
        ),
    };
    let catches = match &arguments.bug {
        Some(name) => match bug_named(name) {
            Some(bug) => {
                let catch = catch_one(bug, each);
                tell(&catch);
                vec![catch]
            }
            None => return ExitCode::from(2),
        },
        None => catch_all(cores(arguments.jobs), each, tell),
    };
    let missed: Vec<String> = catches
        .iter()
        .filter(|catch| catch.by.is_none())
        .map(|catch| format!("{:?}", catch.bug))
        .collect();
    let by: BTreeMap<String, String> = catches
        .iter()
        .filter_map(|catch| {
            let (plan, seed, violation) = catch.by.as_ref()?;
            Some((
                format!("{:?}", catch.bug),
                format!("{plan} seed {seed}: {}", violation.guarantee),
            ))
        })
        .collect();
    if !arguments.json {
        println!("{} planted mistakes, {} caught", Bug::ALL.len(), by.len());
    }
    println!(
        "{}",
        json!({
            "planted": catches.len(),
            "caught": by.len(),
            "missed": missed,
            "by": by,
            "wall_s": (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        })
    );
    // Some mistakes need luck within the time: so many of all may be missed, and the one that was asked for may not.
    const MISSED_AT_MOST: usize = 3;
    let missable = if arguments.bug.is_some() {
        0
    } else {
        MISSED_AT_MOST
    };
    if by.len() + missable >= catches.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
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
