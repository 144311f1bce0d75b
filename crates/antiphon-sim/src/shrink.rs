//! The shrinker: leaves out steps, nodes and time as long as the run still breaks the same guarantee.

use crate::agenda::SECONDS;
use crate::check::Violation;
use crate::plan::{Action, Load, Network, Plan};
use crate::run::run;

/// A smaller plan that fails the same way, and what it breaks. `None` if the plan does not fail.
pub fn shrink(plan: &Plan, seed: u64, mut tell: impl FnMut(&str)) -> Option<(Plan, Vec<Violation>)> {
    let first = run(plan, seed).report.violations;
    let wanted = first.first()?.guarantee;
    let mut best = (plan.clone(), first);
    let attempt = |best: &mut (Plan, Vec<Violation>), candidate: Plan| {
        let violations = run(&candidate, seed).report.violations;
        let same = violations.iter().any(|violation| violation.guarantee == wanted);
        if same {
            *best = (candidate, violations);
        }
        same
    };
    while best.0.duration > 2 * SECONDS {
        let mut candidate = best.0.clone();
        candidate.duration = candidate.duration * 3 / 4;
        candidate.steps.retain(|step| step.at <= candidate.duration);
        if !attempt(&mut best, candidate) {
            break;
        }
    }
    let simpler: [fn(&mut Plan); 6] = [
        |plan| {
            plan.network = Network {
                keepalive: plan.network.keepalive,
                ..Network::default()
            }
        },
        |plan| {
            plan.load = Load {
                every: 0,
                ..Load::default()
            }
        },
        |plan| plan.load.large_percent = 0,
        |plan| plan.groups.truncate(1),
        |plan| plan.network.loss_ppm = 0,
        |plan| plan.network.replay_ppm = 0,
    ];
    for simplify in simpler {
        let mut candidate = best.0.clone();
        simplify(&mut candidate);
        attempt(&mut best, candidate);
    }
    // Chunks of steps first, then single ones, until nothing more can go.
    let mut size = best.0.steps.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let mut removed = false;
        while from < best.0.steps.len() {
            let mut candidate = best.0.clone();
            let to = (from + size).min(candidate.steps.len());
            candidate.steps.drain(from..to);
            if attempt(&mut best, candidate) {
                removed = true;
            } else {
                from = to;
            }
        }
        tell(&format!("{} steps left", best.0.steps.len()));
        if size == 1 && !removed {
            break;
        }
        size = if size == 1 { 1 } else { size / 2 };
    }
    Some(best)
}

/// A plan as lines of text.
pub fn show(plan: &Plan) -> String {
    let mut text = format!(
        "{} slots, {} seeds, {:?}, profile {}, {} s, load every {} µs\n{:?}\n",
        plan.slots,
        plan.seeds,
        plan.transport,
        plan.profile.name,
        plan.duration as f64 / SECONDS as f64,
        plan.load.every,
        plan.network
    );
    if let Some(hinted) = &plan.hinted {
        text.push_str(&format!("{hinted:?}\n"));
    }
    for group in &plan.groups {
        text.push_str(&format!(
            "group {} {:?} for {:?}\n",
            group.name, group.options, group.members
        ));
    }
    for step in &plan.steps {
        let shown = match &step.action {
            Action::Network(network) => format!("{network:?}"),
            action => format!("{action:?}"),
        };
        text.push_str(&format!("{:>10.6}s {shown}\n", step.at as f64 / SECONDS as f64));
    }
    text
}
