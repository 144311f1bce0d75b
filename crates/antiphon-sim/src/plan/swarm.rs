//! The default plan: each seed draws its own subset of faults and rates.
//!
//! A run with all faults at once finds less than many runs with a few each: faults hide one another.

use antiphon_core::{GroupOptions, Order, Profile};

use super::{Action, GroupPlan, Liveness, Load, Network, Plan, Step, Transport, Who};
use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::random::Random;
use crate::trace::Slot;

/// A seed of the default plan lasts this long, before its liveness phase.
const DURATION: Micros = 20 * SECONDS;

pub(super) fn draw(random: &mut Random, nodes: usize) -> Plan {
    let spare = random.index(3);
    let mut plan = quiet("default", random, nodes, spare);
    plan.network = network(random, plan.transport);
    if random.percent(15) {
        plan.load.large_percent = random.range(1, 10) as u32;
        // Some of them fit no block.
        if random.percent(30) {
            plan.load.large_percent = 1;
            plan.load.large_bytes = random.range(60_001, 250_000) as usize;
        }
    }
    start_all(random, &mut plan, nodes);
    let mut kinds: Vec<Kind> = KINDS.iter().copied().filter(|_| random.percent(25)).collect();
    if kinds.is_empty() {
        kinds.push(*random.pick(KINDS));
    }
    let count = random.range(1, 9);
    for _ in 0..count {
        let at = random.range(2 * SECONDS, DURATION - 2 * SECONDS);
        let kind = *random.pick(&kinds);
        add(random, &mut plan, kind, at);
    }
    plan.steps.sort_by_key(|step| step.at);
    plan
}

/// A plan without faults: groups, load and transport drawn, nothing started.
pub(super) fn quiet(name: &'static str, random: &mut Random, nodes: usize, spare: usize) -> Plan {
    let slots = nodes + spare;
    let groups = (0..random.range(1, 3))
        .map(|index| {
            let order = if random.percent(60) {
                Order::Total
            } else {
                Order::Fifo
            };
            let window = *random.pick(&[64 << 10, 256 << 10, 1 << 20]);
            let all = index == 0 || random.percent(50);
            GroupPlan {
                name: format!("g{index}"),
                options: GroupOptions::default().order(order).window_bytes(window),
                members: (0..slots).filter(|_| all || random.percent(60)).collect(),
            }
        })
        .collect();
    Plan {
        name,
        slots,
        seeds: random.range(1.max(nodes as u64 / 2), nodes as u64) as usize,
        profile: if random.percent(75) {
            Profile::lan()
        } else {
            Profile::local()
        },
        transport: if random.percent(50) {
            Transport::Datagram
        } else {
            Transport::Stream
        },
        groups,
        load: Load::default(),
        duration: DURATION,
        liveness: Liveness::Within(30 * SECONDS),
        ..Plan::default()
    }
}

/// Starts the nodes: at one instant, or one after another; the spare slots join later.
pub(super) fn start_all(random: &mut Random, plan: &mut Plan, nodes: usize) {
    let together = random.percent(50);
    for slot in 0..plan.slots {
        let at = if slot >= nodes {
            random.range(3 * SECONDS, plan.duration.max(6 * SECONDS) - 3 * SECONDS)
        } else if together {
            0
        } else {
            random.below(1_500 * MILLIS)
        };
        plan.steps.push(Step {
            at,
            action: Action::Start(slot),
        });
    }
}

fn network(random: &mut Random, transport: Transport) -> Network {
    let mut network = Network {
        latency: random.range(20, 2_000),
        jitter: random.range(0, 3_000),
        keepalive: *random.pick(&[4 * SECONDS, 15 * SECONDS, 60 * SECONDS]),
        user_timeout: *random.pick(&[2 * SECONDS, 6 * SECONDS, 15 * SECONDS]),
        ..Network::default()
    };
    if random.percent(15) {
        network.lifeline_bytes = 2 << 10;
    }
    if random.percent(15) {
        network.proxy_percent = 40;
    }
    if random.percent(15) {
        network.bytes_per_s = random.range(300_000, 3_000_000);
        network.buffer_bytes = 256 << 10;
    }
    match transport {
        Transport::Datagram => {
            let mut maybe = |percent: u32, most: u64| {
                if random.percent(percent) {
                    random.range(most / 20, most) as u32
                } else {
                    0
                }
            };
            network.loss_ppm = maybe(50, 60_000);
            network.duplicate_ppm = maybe(40, 50_000);
            network.reorder_ppm = maybe(40, 100_000);
            network.replay_ppm = maybe(40, 10_000);
            network.corrupt_ppm = maybe(30, 10_000);
            network.truncate_ppm = maybe(30, 5_000);
            network.reorder_within = random.range(1_000, 50_000);
        }
        Transport::Stream => {
            if random.percent(30) {
                network.break_ppm = random.range(20, 1_000) as u32;
            }
        }
    }
    network
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Crash,
    CrashRestart,
    CrashBetweenOutputs,
    PowerOff,
    Pause,
    LongPause,
    Slow,
    Stall,
    Halves,
    ThreeWays,
    Bridge,
    OneWay,
    CutPair,
    Reject,
    Isolate,
    Flap,
    Clog,
    Resets,
    Leave,
    GroupChurn,
    Garbage,
    Foreign,
}

const KINDS: &[Kind] = &[
    Kind::Crash,
    Kind::CrashRestart,
    Kind::CrashBetweenOutputs,
    Kind::PowerOff,
    Kind::Pause,
    Kind::LongPause,
    Kind::Slow,
    Kind::Stall,
    Kind::Halves,
    Kind::ThreeWays,
    Kind::Bridge,
    Kind::OneWay,
    Kind::CutPair,
    Kind::Reject,
    Kind::Isolate,
    Kind::Flap,
    Kind::Clog,
    Kind::Resets,
    Kind::Leave,
    Kind::GroupChurn,
    Kind::Garbage,
    Kind::Foreign,
];

fn who(random: &mut Random, slots: usize) -> Who {
    match random.below(6) {
        0 => Who::Rank(0),
        1 => Who::Rank(1),
        2 => Who::Youngest,
        3 => Who::Leader,
        _ => Who::Slot(random.index(slots)),
    }
}

/// Two different slots.
pub(super) fn pair(random: &mut Random, slots: usize) -> (Slot, Slot) {
    let a = random.index(slots);
    let b = (a + 1 + random.index(slots - 1)) % slots;
    (a, b)
}

/// Splits the slots into so many sides, none of them empty if that is possible.
pub(super) fn split(random: &mut Random, slots: usize, sides: usize) -> Vec<Vec<Slot>> {
    let mut all: Vec<Slot> = (0..slots).collect();
    random.shuffle(&mut all);
    let mut result = vec![Vec::new(); sides];
    for (index, slot) in all.into_iter().enumerate() {
        let side = if index < sides { index } else { random.index(sides) };
        result[side].push(slot);
    }
    result
}

fn add(random: &mut Random, plan: &mut Plan, kind: Kind, at: Micros) {
    let slots = plan.slots;
    let mut after = Vec::new();
    let lasts = random.range(100 * MILLIS, 6 * SECONDS);
    let someone = who(random, slots);
    let (a, b) = pair(random, slots);
    let action = match kind {
        Kind::Crash => Action::Crash(someone),
        Kind::CrashRestart => {
            let back = random.range(MILLIS, 2 * SECONDS);
            after.push((back, Action::Start(a)));
            Action::Crash(Who::Slot(a))
        }
        Kind::CrashBetweenOutputs => {
            // Something must be going on, so that the outputs are outputs of a view change.
            let trigger = match random.below(4) {
                0 => Action::Crash(who(random, slots)),
                1 => Action::LeaveGroup(who(random, slots), 0),
                2 => Action::Isolate(who(random, slots)),
                _ => Action::Start(slots - 1),
            };
            after.push((random.below(40 * MILLIS), trigger));
            after.push((lasts, Action::Heal));
            let count = random.range(0, 60) as u32;
            if random.percent(50) {
                Action::CrashAtOutput(someone, count)
            } else {
                Action::CrashAfterView(someone, count / 3)
            }
        }
        Kind::PowerOff => {
            if random.percent(50) {
                after.push((lasts, Action::Start(a)));
            }
            Action::PowerOff(Who::Slot(a))
        }
        Kind::Pause => Action::Pause(someone, random.range(10 * MILLIS, 2 * SECONDS)),
        Kind::LongPause => {
            if random.percent(30) {
                after.push((lasts, Action::Crash(someone)));
            }
            Action::Pause(someone, random.range(2 * SECONDS, 60 * SECONDS))
        }
        Kind::Slow => Action::Slow(someone, random.range(100, 20 * MILLIS), lasts),
        Kind::Stall => Action::Stall(someone, random.range(SECONDS, 15 * SECONDS)),
        Kind::Halves | Kind::ThreeWays => {
            after.push((lasts, Action::Heal));
            let sides = if matches!(kind, Kind::Halves) { 2 } else { 3 };
            if random.percent(30) {
                // Right after the heal: what waited in kernels and what is new meet.
                after.push((lasts + random.below(100 * MILLIS), Action::Crash(someone)));
            }
            Action::Partition(split(random, slots, sides.min(slots)))
        }
        Kind::Bridge => {
            after.push((lasts, Action::Heal));
            let mut sides = split(random, slots, 2);
            if sides[0].len() > 1 {
                sides[0].pop();
            }
            Action::Partition(sides)
        }
        Kind::OneWay => {
            after.push((lasts, Action::Heal));
            let mut sides = split(random, slots, 2);
            let to = sides.pop().unwrap_or_default();
            Action::OneWay(sides.pop().unwrap_or_default(), to)
        }
        Kind::CutPair => {
            after.push((random.range(100 * MILLIS, 10 * SECONDS), Action::Heal));
            Action::CutPair(a, b)
        }
        Kind::Reject => {
            after.push((lasts, Action::Heal));
            for other in (0..slots).filter(|other| *other != a && *other != b) {
                if random.percent(60) {
                    after.push((random.below(50 * MILLIS), Action::Reject(a, other)));
                }
            }
            Action::Reject(a, b)
        }
        Kind::Isolate => {
            after.push((lasts, Action::Heal));
            Action::Isolate(someone)
        }
        Kind::Flap => Action::Flap(a, b, random.range(20 * MILLIS, 900 * MILLIS), lasts),
        Kind::Clog => Action::Clog(a, b, random.range(50 * MILLIS, 3 * SECONDS)),
        Kind::Resets => {
            after.push((random.below(SECONDS), Action::ResetLifelines(b, a)));
            if random.percent(50) {
                after.push((random.below(SECONDS), Action::ProxyEnds(a, b)));
            }
            Action::ResetStreams(a, b)
        }
        Kind::Leave => {
            if random.percent(60) {
                after.push((lasts, Action::Start(a)));
                Action::Leave(Who::Slot(a))
            } else {
                Action::Leave(someone)
            }
        }
        Kind::GroupChurn => {
            let group = random.index(plan.groups.len());
            after.push((
                random.range(MILLIS, 3 * SECONDS),
                Action::JoinGroup(someone, group),
            ));
            Action::LeaveGroup(someone, group)
        }
        Kind::Garbage => Action::Garbage(someone, random.range(1, 60) as u32),
        Kind::Foreign => {
            after.push((random.below(300 * MILLIS), Action::Foreign(a, lasts)));
            after.push((lasts + 400 * MILLIS, Action::Start(a)));
            Action::Crash(Who::Slot(a))
        }
    };
    plan.steps.push(Step { at, action });
    plan.steps.extend(after.into_iter().map(|(delay, action)| Step {
        at: at + delay,
        action,
    }));
}
