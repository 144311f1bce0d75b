//! One run: a plan and a seed, to its end, and what the checkers say.
//!
//! ```text
//!   steps of the plan ──► duration ──► all faults taken back ──► one view, one more message each ──► checkers
//!   (safety)                           (liveness: within bounded virtual time)
//! ```
//! Progress is demanded only where the rules allow it: if the members of the last primary that still live
//! have a quorum of it, or enough seeds are fresh to found anew. Dead nodes are started again where that is
//! needed. A cluster that lost a majority for ever rightly stands still, and so does a cluster that is
//! blocked by its own rules (`blocked.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use antiphon_core::Policy;
use antiphon_core::wire::Incarnation;

use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::blocked::is_blocked;
use crate::check::{Report, check, decides};
use crate::plan::{Action, Liveness, Plan};
use crate::random::Random;
use crate::trace::{Settled, Slot, Trace};
use crate::world::{KEEPALIVE, LONGEST_RETRY, World};

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What the checkers found.
    pub report: Report,
    /// How long it lasted, in virtual time.
    pub simulated: Micros,
    /// How often each kind of fault was made.
    pub faults: BTreeMap<&'static str, u64>,
    /// Over all outputs and events.
    pub digest: u64,
    /// Whether progress was demanded at the end.
    pub liveness: bool,
    /// What happened; empty if the core panicked.
    pub trace: Trace,
}

/// Runs a plan. A panic of the core is a violation like any other.
pub fn run(plan: &Plan, seed: u64) -> Outcome {
    let plan = Arc::new(plan.clone());
    catch_unwind(AssertUnwindSafe(|| {
        run_checked(World::new(plan.clone(), seed), &plan, seed)
    }))
    .unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "of unknown kind".to_owned());
        let mut report = Report::default();
        report.fail("panic", 0, text);
        Outcome {
            seed,
            report,
            simulated: 0,
            faults: BTreeMap::new(),
            digest: 0,
            liveness: false,
            trace: Trace::default(),
        }
    })
}

fn run_checked(mut world: World, plan: &Plan, seed: u64) -> Outcome {
    world.run_until(plan.duration);
    let mut end = Settling::NotAsked;
    let mut random = Random::new(seed ^ 0x004c_4956_4553);
    match plan.liveness {
        Liveness::None => {}
        Liveness::Within(time) => {
            world.take_back_faults();
            let within = time + 2 * plan.profile.leave_within.as_micros() as Micros;
            let demanded = restart_the_dead(&mut world, &mut random);
            end = if demanded {
                settle(&mut world, within)
            } else {
                linger(&mut world)
            };
        }
        Liveness::SurvivorsWithin(time) => {
            world.take_back_faults();
            end = settle(&mut world, time);
        }
    }
    let (mut faults, digest, simulated) = (world.faults().clone(), world.digest(), world.now());
    let flooded = world.is_flooded();
    let mut trace = world.into_trace();
    if end == Settling::AtRest {
        trace.settled = Settled::AtRest;
    }
    let mut report = check(&trace);
    if flooded {
        let lines = trace.lines.len();
        report.fail(
            "flood",
            simulated,
            format!("more happens than is kept: {lines} lines of trace, and what is to come"),
        );
    }
    let liveness = matches!(end, Settling::AtRest | Settling::Stuck { .. });
    if liveness {
        *report.counts.entry("G5").or_default() += 1;
    }
    match end {
        Settling::Stuck { guarantee, what } => report.fail(guarantee, simulated, what),
        Settling::Blocked => *faults.entry("slot_blocked").or_default() += 1,
        Settling::AtRest | Settling::NotAsked => {}
    }
    Outcome {
        seed,
        report,
        simulated,
        faults,
        digest,
        liveness,
        trace,
    }
}

/// Starts dead nodes again, all of them in half of the runs, otherwise only if nothing can go on without.
/// Returns whether progress can be demanded then.
fn restart_the_dead(world: &mut World, random: &mut Random) -> bool {
    // What is about to be decided is decided; then we look which members have a quorum of it.
    world.run_until(world.now() + 4 * SECONDS);
    // A node that is still on the way out, slowed down until now, is as good as dead.
    let until = world.now() + world.plan().profile.leave_within.as_micros() as Micros;
    while world.now() < until && world.live_slots().into_iter().any(|slot| world.is_leaving(slot)) {
        world.run_until(world.now() + 50 * MILLIS);
    }
    let dead: Vec<Slot> = (0..world.plan().slots)
        .filter(|slot| world.process_at(*slot).is_none())
        .collect();
    if random.percent(50) || !can_decide(world) || is_lost(world) {
        for slot in dead {
            world.act(&Action::Start(slot));
        }
    }
    can_decide(world) || can_found(world) || goes_on_anyhow(world)
}

/// Whether a live node was a member and has a vote, where each component goes on.
fn goes_on_anyhow(world: &World) -> bool {
    let mut live = world.live_slots().into_iter();
    let has_vote = |slot| world.plan().weight_of(slot) > 0;
    world.plan().policy == Policy::Any && live.any(|slot| !world.is_fresh(slot) && has_vote(slot))
}

/// Whether a live node outside the primary view knows no node that could bring it back: all seeds are dead,
/// and so are all others of its last view. It keeps asking them at their addresses, so an operator must start
/// one. The members of the primary view may have joined later and never have met it. A node that is told of
/// others at run time is told of all by now.
fn is_lost(world: &World) -> bool {
    let seeds = world.plan().seeds;
    if world.plan().hinted.is_some() || (0..seeds).any(|slot| world.process_at(slot).is_some()) {
        return false;
    }
    let living: Vec<_> = world
        .live_slots()
        .into_iter()
        .filter_map(|slot| world.incarnation(slot))
        .collect();
    let primary = world.latest_primary();
    let knows_nobody = |slot: Slot, me: Incarnation| {
        let met = world.node_view(slot);
        let met = met.iter().flat_map(|view| &view.members);
        !met.map(|member| member.incarnation)
            .any(|other| other != me && living.contains(&other))
    };
    world.live_slots().into_iter().any(|slot| {
        let Some(me) = world.incarnation(slot) else {
            return false;
        };
        let is_member = primary.as_ref().is_some_and(|view| view.member(me).is_some());
        !is_member && knows_nobody(slot, me)
    })
}

/// Whether the live members of the latest primary view have the majority of its votes, or half with the elder
/// of the members that have any.
fn can_decide(world: &World) -> bool {
    let Some(view) = world.latest_primary() else {
        return can_found(world);
    };
    let alive = |incarnation| {
        world
            .live_slots()
            .into_iter()
            .any(|slot| world.incarnation(slot) == Some(incarnation) && !world.is_leaving(slot))
    };
    let living = view.members.iter().map(|member| member.incarnation);
    decides(
        &view,
        &living.filter(|member| alive(*member)).collect(),
        &BTreeSet::new(),
    )
}

/// Whether a majority of the seeds, or the number expected, knows of no cluster: they may found one, and the
/// others join it. A node that was a member once founds nothing beside that cluster.
fn can_found(world: &World) -> bool {
    if let Some(hinted) = &world.plan().hinted {
        let fresh = (0..world.plan().slots).filter(|slot| world.is_fresh(*slot));
        return fresh.count() >= usize::from(hinted.expect);
    }
    let seeds = world.plan().seeds;
    let fresh: Vec<Slot> = (0..seeds).filter(|slot| world.is_fresh(*slot)).collect();
    2 * fresh.len() > seeds && fresh.iter().any(|slot| world.plan().weight_of(*slot) > 0)
}

/// What came of the demand for progress.
#[derive(Debug, PartialEq, Eq)]
enum Settling {
    /// Nothing was demanded.
    NotAsked,
    /// All is as it should be.
    AtRest,
    /// A guarantee was not kept.
    Stuck { guarantee: &'static str, what: String },
    /// It stands still by its own rules.
    Blocked,
}

/// Nothing can be demanded: let it run a while, for the safety checks alone.
fn linger(world: &mut World) -> Settling {
    world.run_until(world.now() + 5 * SECONDS);
    Settling::NotAsked
}

/// Waits until all live nodes are in one primary view and one view of each group, and what is sent then has
/// reached all.
fn settle(world: &mut World, within: Micros) -> Settling {
    let deadline = world.now() + within;
    while world.now() < deadline && !at_rest(world) {
        world.run_until(world.now() + 50 * MILLIS);
    }
    if !at_rest(world) {
        // Where each component goes on, a blocked component goes on without the others.
        return if is_blocked(world) && world.plan().policy != Policy::Any {
            Settling::Blocked
        } else {
            let what = describe(world);
            Settling::Stuck {
                guarantee: "G5",
                what,
            }
        };
    }
    world.set_load(false);
    world.run_until(world.now() + 300 * MILLIS);
    let mut wanted = Vec::new();
    for slot in world.live_slots() {
        for group in 0..world.plan().groups.len() {
            // Machines send by themselves, and would make nothing of this.
            if world.wants_group(slot, group) && !world.is_driven(group) {
                wanted.push((slot, group));
            }
        }
    }
    // Windows that were full empty first.
    let deadline = world.now() + 10 * SECONDS;
    let mut sent = Vec::new();
    while !wanted.is_empty() && world.now() < deadline {
        wanted.retain(|(slot, group)| {
            let payload = world.payload(64);
            match world.send(*slot, *group, payload.clone()) {
                Ok(_) => {
                    sent.push((*group, crate::trace::hash(&payload, 0)));
                    false
                }
                Err(_) => true,
            }
        });
        world.run_until(world.now() + 20 * MILLIS);
    }
    if let Some((slot, group)) = wanted.first() {
        return Settling::Stuck {
            guarantee: "G13",
            what: format!(
                "n{slot} at rest cannot send to group {group}: {}",
                describe(world)
            ),
        };
    }
    let missing = |world: &World| {
        let missing = undelivered(world, &sent);
        let complete = missing.is_empty() && at_rest(world);
        (!complete).then(|| format!("sent at rest and not delivered by all: {missing:?}"))
    };
    // R22: each object is delivered, or its sender is gone; in both cases no member keeps anything of it.
    let kept = |world: &World| {
        let (slot, group, bytes) = keeps_objects(world)?;
        Some(format!(
            "n{slot} at rest keeps {bytes} bytes of objects of group {group}"
        ))
    };
    let untellable = |world: &World| {
        let (slot, group) = world.waits_to_tell()?;
        Some(format!(
            "n{slot} at rest may not tell a member of group {group} any more"
        ))
    };
    let elsewhere = |world: &World| {
        let settled = world.uses_first_links();
        (!settled).then(|| "at rest some node does not use a first link again".to_owned())
    };
    // A link that failed often is waited for this long at most (hysteresis), from when the last connection
    // over it that died in an earlier failure was found dead.
    let heartbeat = world.plan().profile.heartbeat.as_micros() as Micros;
    let returned = KEEPALIVE + 80 * heartbeat + 5 * SECONDS;
    let unsaid = wait_while(world, 10 * SECONDS, "G13", missing);
    world.rests();
    let stuck = unsaid
        .or_else(|| wait_while(world, 30 * SECONDS, "R22", kept))
        .or_else(|| wait_while(world, 30 * SECONDS, "G44", untellable))
        .or_else(|| wait_while(world, returned, "G32", elsewhere));
    let stuck = stuck
        .or_else(|| settle_replicas(world))
        .or_else(|| settle_calls(world))
        .or_else(|| settle_clients(world));
    if let Some(stuck) = stuck {
        return stuck;
    }
    // What hangs behind would still move now: on a slow line it is on its way, on a connection to a host
    // that was away it waits for the kernel's next try.
    let deadline = world.now() + 10 * SECONDS;
    loop {
        let before = world.trace().lines.len();
        world.run_until(world.now() + LONGEST_RETRY + 500 * MILLIS);
        if world.trace().lines.len() == before || world.now() >= deadline {
            break;
        }
    }
    Settling::AtRest
}

/// Waits until all replicas serve and every request is answered, twice: what is asked at rest is answered
/// too.
fn settle_replicas(world: &mut World) -> Option<Settling> {
    // A member that left since its state did not count comes back, and a member that leaves waits for
    // joiners.
    const WITHIN: Micros = 15 * SECONDS;
    let unsettled = World::unsettled_replica;
    wait_while(world, WITHIN, "G28", unsettled).or_else(|| {
        if let Err((slot, refusal)) = world.ask_at_rest() {
            let what = format!("n{slot} at rest refuses to read or write: {refusal}");
            return Some(Settling::Stuck {
                guarantee: "G48",
                what,
            });
        }
        wait_while(world, WITHIN, "G48", unsettled)
    })
}

/// Waits until no call and no handler waits for anything, twice: what is called at rest ends, too.
fn settle_calls(world: &mut World) -> Option<Settling> {
    let within = world.plan().calling.as_ref()?.deadline + 10 * SECONDS;
    let unsettled = World::unsettled_calls;
    wait_while(world, within, "G49", unsettled).or_else(|| {
        if let Some((slot, refused)) = world.call_at_rest() {
            let what = format!("n{slot} at rest may not call {refused}");
            return Some(Settling::Stuck {
                guarantee: "G49",
                what,
            });
        }
        wait_while(world, within, "G49", unsettled)
    })
}

/// Waits until all clients are in that want to be. Then each says something, which all are told, as the
/// checkers see.
fn settle_clients(world: &mut World) -> Option<Settling> {
    const WITHIN: Micros = 10 * SECONDS;
    world.plan().hosting.as_ref()?;
    let unsettled = World::unsettled_clients;
    wait_while(world, WITHIN, "G51", unsettled)
        .or_else(|| each_client_speaks(world, WITHIN))
        .or_else(|| wait_while(world, WITHIN, "G51", unsettled))
}

/// Each client that is in says one thing, when its group has room for it.
fn each_client_speaks(world: &mut World, within: Micros) -> Option<Settling> {
    let deadline = world.now() + within;
    let mut silent = world.clients_inside();
    while let Some((slot, number)) = silent.last().copied() {
        match world.say_at_rest(slot, number) {
            Ok(()) => _ = silent.pop(),
            Err(_) if world.now() < deadline => world.run_until(world.now() + 50 * MILLIS),
            Err(refused) => {
                return Some(Settling::Stuck {
                    guarantee: "G51",
                    what: format!("n{slot} at rest: client {number} may not say anything: {refused}"),
                });
            }
        }
    }
    None
}

/// Whether all live nodes are in one primary view with no others, and each group's users in one view of it.
pub fn at_rest(world: &World) -> bool {
    let live = world.live_slots();
    let Some(first) = live.first() else { return true };
    let Some(view) = world.node_view(*first).filter(|view| view.is_primary()) else {
        return false;
    };
    if view.members.len() != live.len() {
        return false;
    }
    let agreed = live.iter().all(|slot| {
        !world.is_leaving(*slot)
            && world
                .node_view(*slot)
                .is_some_and(|other| other.id == view.id && other.lineage == view.lineage)
            && world
                .incarnation(*slot)
                .is_some_and(|incarnation| view.contains(incarnation))
    });
    agreed && (0..world.plan().groups.len()).all(|group| group_at_rest(world, &live, group))
}

fn group_at_rest(world: &World, live: &[Slot], group: usize) -> bool {
    let users: Vec<Slot> = live
        .iter()
        .copied()
        .filter(|slot| world.wants_group(*slot, group))
        .collect();
    let Some(first) = users.first() else { return true };
    let Some(view) = world.group_view(*first, group) else {
        return false;
    };
    view.members.len() == users.len()
        && users.iter().all(|slot| {
            world
                .group_view(*slot, group)
                .is_some_and(|other| other.id == view.id && other.group == view.group)
                && world
                    .incarnation(*slot)
                    .is_some_and(|incarnation| view.members.contains(&incarnation))
        })
}

/// A node that keeps something of an object, if any does.
fn keeps_objects(world: &World) -> Option<(Slot, usize, usize)> {
    let groups = 0..world.plan().groups.len();
    let all = world
        .live_slots()
        .into_iter()
        .flat_map(|slot| groups.clone().map(move |group| (slot, group)));
    all.map(|(slot, group)| (slot, group, world.object_bytes(slot, group)))
        .find(|(.., bytes)| *bytes > 0)
}

/// Which of these messages which users have not delivered.
fn undelivered(world: &World, sent: &[(usize, u64)]) -> Vec<(Slot, usize)> {
    use crate::trace::{Heard, Seen};
    let mut delivered: BTreeMap<(usize, usize, u64), ()> = BTreeMap::new();
    for line in world.trace().lines.iter().rev().take(50_000) {
        if let Seen::Group(group, Heard::Message(m)) = &line.what {
            delivered.insert((line.process, *group, m.payload), ());
        }
    }
    let mut missing = Vec::new();
    for slot in world.live_slots() {
        let Some(process) = world.process_at(slot) else {
            continue;
        };
        for (group, payload) in sent {
            if world.wants_group(slot, *group) && !delivered.contains_key(&(process, *group, *payload)) {
                missing.push((slot, *group));
            }
        }
    }
    missing
}

/// Runs on while something is not as it should be at rest; what is still wrong after `limit` breaks the
/// guarantee.
fn wait_while(
    world: &mut World,
    limit: Micros,
    guarantee: &'static str,
    wrong: impl Fn(&World) -> Option<String>,
) -> Option<Settling> {
    let deadline = world.now() + limit;
    while let Some(what) = wrong(world) {
        if world.now() >= deadline {
            let what = format!("{what}: {}", describe(world));
            return Some(Settling::Stuck { guarantee, what });
        }
        world.run_until(world.now() + 50 * MILLIS);
    }
    None
}

/// Which node sees what, for a message.
pub fn describe(world: &World) -> String {
    let mut text = String::new();
    for slot in world.live_slots() {
        let incarnation = world
            .incarnation(slot)
            .map(|incarnation| incarnation.short())
            .unwrap_or_default();
        let view = match world.node_view(slot) {
            Some(view) => {
                let kind = if view.is_primary() {
                    "primary"
                } else {
                    "non-primary"
                };
                let names: Vec<String> = view
                    .members
                    .iter()
                    .map(|m| format!("{}/{}", m.name, m.incarnation.short()))
                    .collect();
                format!("{kind} {} [{}]", view.id, names.join(" "))
            }
            None => "no view".to_owned(),
        };
        text.push_str(&format!("n{slot}/{incarnation}: {view}"));
        for group in 0..world.plan().groups.len() {
            if world.wants_group(slot, group) {
                match world.group_view(slot, group) {
                    Some(view) => text.push_str(&format!(", g{group} {} of {}", view.id, view.members.len())),
                    None => text.push_str(&format!(", g{group} none")),
                }
            }
        }
        text.push_str("; ");
    }
    for stream in world.waiting_streams() {
        text.push_str(&stream);
        text.push_str("; ");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::named;

    #[test]
    fn a_run_in_which_more_happens_than_is_kept_ends_and_says_so() {
        let plan = Arc::new(named("quiet", 1, None).unwrap());
        let run = |flood: usize| {
            let mut world = World::new(plan.clone(), 1);
            world.call_a_flood(flood);
            run_checked(world, &plan, 1)
        };
        let whole = run(usize::MAX);
        assert!(whole.report.is_ok(), "{:?}", whole.report.violations);
        let flooded = run(whole.trace.lines.len() / 2);
        let found = flooded.report.violations.iter();
        assert!(found.clone().any(|violation| violation.guarantee == "flood"));
        assert!(flooded.trace.lines.len() < whole.trace.lines.len());
    }
}
