//! `run`: many seeds of one plan or of all, and what the checkers say.

use std::collections::BTreeMap;
use std::process::ExitCode;

use antiphon_core::EngineKind;
use antiphon_sim::campaign::{Campaign, Failure, Summary, conduct};
use antiphon_sim::check::ALWAYS_EVALUATED;
use antiphon_sim::plan::{NAMES, runs_on};
use clap::Args;
use serde_json::json;

#[derive(Args)]
pub(crate) struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Nodes from the start; the plan's own number if not given.
    #[arg(long, value_parser = clap::value_parser!(u8).range(3..=40))]
    nodes: Option<u8>,
    /// Only this membership engine, `coordinator` or `cut`; each seed draws one of them if not given.
    #[arg(long, value_parser = crate::membership)]
    membership: Option<EngineKind>,
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

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let plans: Vec<&str> = if arguments.plan == "all" {
        NAMES.to_vec()
    } else {
        vec![&arguments.plan]
    };
    if let Some(unknown) = plans.iter().find(|plan| !NAMES.contains(plan)) {
        eprintln!("there is no plan {unknown:?}; `antiphon-sim plans` lists them");
        return ExitCode::from(2);
    }
    let on = |plan: &&str| arguments.membership.is_none_or(|engine| runs_on(plan, engine));
    let (plans, others): (Vec<&str>, Vec<&str>) = plans.into_iter().partition(on);
    if let Some(engine) = arguments.membership {
        others
            .iter()
            .for_each(|plan| eprintln!("{}", crate::not_on(plan, engine)));
    }
    if plans.is_empty() {
        return ExitCode::from(2);
    }
    let mut code = ExitCode::SUCCESS;
    for plan in plans {
        let campaign = Campaign {
            plan: plan.to_owned(),
            from: arguments.from,
            seeds: arguments.seeds,
            nodes: arguments.nodes.map(usize::from),
            membership: arguments.membership,
            jobs: crate::cores(arguments.jobs),
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
                let engines: Vec<String> = so_far
                    .engines
                    .iter()
                    .map(|(engine, seeds)| format!("{seeds} on {engine}"))
                    .collect();
                let engines = engines.join(", ");
                eprintln!(
                    "{plan}: {done}/{} seeds ({engines}), {failures} failures",
                    arguments.seeds
                );
            }
        });
        if !report(&campaign, &summary) {
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// A failing seed, as soon as it is found: a long run need not end for it.
fn tell_failure(arguments: &Arguments, campaign: &Campaign, failure: &Failure) {
    let nodes = arguments
        .nodes
        .map_or(String::new(), |nodes| format!(" --nodes {nodes}"));
    let engine = failure.membership.name();
    let lines: Vec<String> = failure
        .violations
        .iter()
        .take(3)
        .map(ToString::to_string)
        .collect();
    let text = format!(
        "seed {} on {engine}: {}\nreproduce: antiphon-sim run --seeds 1 --from {} --plan {}{nodes} --membership {engine}",
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
    let never_drawn: Vec<&str> = campaign
        .never_drawn(summary)
        .into_iter()
        .map(EngineKind::name)
        .collect();
    for engine in &never_drawn {
        eprintln!("the membership engine {engine} was never drawn");
    }
    let mut by_guarantee: BTreeMap<&str, u64> = BTreeMap::new();
    for failure in &summary.failures {
        if let Some(violation) = failure.violations.first() {
            *by_guarantee.entry(violation.guarantee).or_default() += 1;
        }
    }
    let ok = summary.failures.is_empty() && idle.is_empty() && never_drawn.is_empty();
    let simulated_s = summary.simulated as f64 / 1e6;
    let wall_s = summary.wall.as_secs_f64();
    let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
    println!(
        "{}",
        json!({
            "plan": campaign.plan,
            "seeds": summary.seeds,
            "engines": summary.engines,
            "failures": summary.failures.len(),
            "failed_seeds": summary.failures.iter().map(|failure| failure.seed).take(50).collect::<Vec<_>>(),
            "broken": by_guarantee,
            "sim_hours": rounded(simulated_s / 3600.0),
            "wall_s": rounded(wall_s),
            "sim_s_per_core_s": rounded(simulated_s / wall_s / campaign.jobs as f64),
            "liveness": summary.liveness,
            "forks": summary.forks,
            "digest": format!("{:016x}", summary.digest),
            "never_evaluated": idle,
            "never_drawn": never_drawn,
            "faults": summary.faults,
            "checks": summary.checks,
        })
    );
    ok
}
