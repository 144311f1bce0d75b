//! What is drawn from the seed apart from a plan's story, so that a seed means the same faults whatever is
//! drawn here.

use antiphon_core::{Order, TotalEngine};

use super::super::{Action, Probes, Step, Transport};
use super::{Liveness, Plan};
use crate::random::Random;

/// Two of three groups that need not be in total order pass gaps; drawn apart from all else.
pub(super) fn draw_orders(seed: u64, plan: &mut Plan) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"orders", 0));
    for group in &mut plan.groups {
        let order = match group.options.order {
            Order::Fifo => *random.pick(&[Order::Fifo, Order::Unordered, Order::Scoped]),
            Order::Unordered => *random.pick(&[Order::Unordered, Order::Scoped]),
            order => order,
        };
        group.options = group.options.order(order);
    }
}

/// What makes a total order is drawn apart from all else: a seed means the same faults whatever engines there
/// are.
pub(super) fn draw_engines(seed: u64, plan: &mut Plan) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"engines", 0));
    for group in &mut plan.groups {
        let engine = match plan.name {
            "r16-sequencer-dies" | "g20-sender-and-sequencer-die" => TotalEngine::Sequencer,
            "r16-members-of-a-rotation-die" => TotalEngine::Rotation,
            "r16-the-token-is-lost" | "r16-the-token-is-late" => TotalEngine::Token,
            _ => *random.pick(&TotalEngine::ALL),
        };
        group.options = group.options.engine(engine);
    }
}

/// Whether applications take what they are given part by part; drawn apart from all else.
pub(super) fn draw_parts(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"parts", 0));
    plan.load.in_parts = random.percent(12);
}

/// Whether probes pass, and how well: on some paths they do not, and on some they do where nothing else does;
/// drawn apart from all else.
pub(super) fn draw_probes(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"probes", 0));
    if plan.transport == Transport::Stream && random.percent(50) {
        // Of these networks, nothing but probes can be hit by that.
        plan.network.duplicate_ppm = 30_000;
        plan.network.reorder_ppm = 100_000;
        plan.network.replay_ppm = 10_000;
        plan.network.corrupt_ppm = 10_000;
    }
    if plan.transport == Transport::Stream && random.percent(25) {
        plan.network.loss_ppm = random.range(1_000, 20_000) as u32;
    }
    for _ in 0..random.below(4) {
        let some = |random: &mut Random| (0..plan.slots).filter(|_| random.percent(40)).collect();
        let (from, to) = (some(&mut random), some(&mut random));
        let passing = *random.pick(&[Probes::Blocked, Probes::Blocked, Probes::Pass]);
        let at = random.range(0, plan.duration);
        plan.steps.push(Step {
            at,
            action: Action::Probes(from, to, passing),
        });
    }
    plan.steps.sort_by_key(|step| step.at);
}

/// How many votes each node has; drawn apart from all else. Some of the seeds have votes, or no node could
/// ever found.
pub(super) fn draw_weights(plan: &mut Plan, seed: u64, percent: u32) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"weights", 0));
    if !random.percent(percent) {
        return;
    }
    // Many nodes without a vote; one that outweighs all others, or two; all as they are usually, but few.
    let all = [
        &[1, 1, 1, 4][..],
        &[1, 2, 3],
        &[0, 0, 1],
        &[0, 1, 1, 2, 3],
        &[1, 1, 1, 1, 0, 2],
    ];
    // If no node is started again, survivors without a vote would stand still.
    let of = match plan.liveness {
        Liveness::SurvivorsWithin(_) => *random.pick(&all[..2]),
        _ => *random.pick(&all),
    };
    plan.weights = (0..plan.slots).map(|_| *random.pick(of)).collect();
    let seed = random.index(plan.seeds.max(1));
    plan.weights[seed] = plan.weights[seed].max(1);
}

/// Nodes that do without the lease; drawn apart from all else.
pub(super) fn draw_unleased(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"unleased", 0));
    if random.percent(10) {
        let share = *random.pick(&[20, 50, 100]);
        plan.unleased = (0..plan.slots).filter(|_| random.percent(share)).collect();
    }
}

/// Whether no node has the lease: what the lease guards must be guarded without it, too, and it must not hide
/// that.
pub(super) fn draw_nobody_leased(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"nobody leased", 0));
    if random.percent(50) {
        plan.unleased = (0..plan.slots).collect();
    }
}

/// Whether some messages, and how many, are to be safe; drawn apart from all else.
pub(super) fn draw_levels(plan: &mut Plan, seed: u64) {
    let mut random = Random::new(seed ^ crate::trace::hash(b"levels", 0));
    if plan.load.safe_percent == 0 && random.percent(40) {
        plan.load.safe_percent = *random.pick(&[5, 30, 100]);
    }
}
