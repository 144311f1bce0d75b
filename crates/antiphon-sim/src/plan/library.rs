//! The plans by name: one for each schedule that breaks a protocol without a certain rule. The seed draws
//! what surrounds the schedule.

mod anyhow;
mod bulk;
mod calls;
mod clients;
mod crashes;
mod cuts;
mod direct;
mod draws;
mod gaps;
mod hints;
mod leases;
mod levels;
mod lifelines;
mod links;
mod operations;
mod paths;
mod recoveries;
mod removals;
mod replicas;
mod tokens;
mod ways;
mod witnesses;

use antiphon_core::{Dissemination, EngineKind, GroupOptions, Order, Policy};

pub use cuts::runs_on;

use super::swarm::{draw, pair, quiet, split, start_all};
use super::{Action, GroupPlan, Liveness, Plan, Step, Transport, Who};
use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::random::Random;
use crate::trace::Slot;

/// The names of all plans; the first is the swarm.
pub const NAMES: &[&str] = &[
    "default",
    "default-chains",
    "default-weights",
    "quiet",
    "g2-founded-again",
    "simultaneous-start",
    "r1-coordinator-dies-in-the-slot",
    "r1-only-a-joiner-is-left",
    "r1-a-slot-stands-still",
    "r2-cut-heal-kill",
    "r2-killed-while-voting",
    "r2-proven-while-apart",
    "r3-joiners-vanish",
    "r3-the-vote-comes-late",
    "r4-one-of-three-restarted",
    "r4-hints-differ",
    "r4-hints-come-late",
    "r4-locators-and-nodes-restart",
    "r4-locator-loses-power",
    "r4-members-named-late",
    "r6-merge",
    "r6-minority-settles",
    "r7-cut-off",
    "r7-counted-on-die",
    "r7-behind",
    "r7-a-voter-is-asked",
    "r7-an-answer-outlives-its-giver",
    "r7-answers-go-astray",
    "cut-off-from-a-large-primary",
    "cut-the-pulse-goes-on",
    "cut-far-seniors",
    "r9-resets-and-proxies",
    "r10-killed-behind-a-cut",
    "r10-killed-behind-proxies",
    "r10-stale-witness",
    "r11-recover",
    "r11-recover-beside-majority",
    "r11-recover-replicas",
    "r12-founding-race",
    "r12-only-joiners-are-left",
    "r13-late-frame-of-the-dead",
    "r14-leaders-die-in-the-flush",
    "r15-senders-die-behind-gaps",
    "r16-sequencer-dies",
    "r16-members-of-a-rotation-die",
    "r16-the-token-is-lost",
    "r16-the-token-is-late",
    "r17-receipts",
    "r17-safe",
    "g25-the-only-holder-dies",
    "g20-sender-and-sequencer-die",
    "r18-stalled-flush",
    "r18-the-remover-dies",
    "r20-bad-pairs",
    "r20-black-holes",
    "r20-relays-die",
    "starved-observers",
    "deaf-hosts",
    "r20-too-many-for-their-processors",
    "r21-stalled-applications",
    "r21-lossy-host",
    "r21-only-udp-passes",
    "chain-is-torn",
    "r22-large-messages",
    "multicast-fails",
    "multicast-is-not-heard",
    "links-fail",
    "killed-on-the-second-link",
    "r22-bulk",
    "kill-right-after-heal",
    "pause-across-view",
    "crash-between-installs",
    "crash-at-every-step",
    "rolling-restart",
    "joiner-storm",
    "joiners-beside-crashes",
    "simultaneous-leave",
    "joiners-leave",
    "three-to-one-by-kill",
    "bridge",
    "group-churn",
    "restart-at-the-same-address",
    "power-cut",
    "late-replay",
    "garbage",
    "g44-told-while-views-change",
    "r19-joiner-while-writing",
    "r19-joiner-spills",
    "r19-source-dies",
    "r19-nobody-has-the-state",
    "g30-holder-is-removed",
    "g45-writers-are-cut-off",
    "g50-replicas-merge",
    "g49-servers-die",
    "g49-apart-and-together",
    "g29-all-while-members-change",
    "g51-hosts-come-and-go",
    "g51-hosts-are-cut-off",
    "slow-consumer",
    "cut-a-tenth-crashes",
    "cut-flip-flop",
    "cut-deaf-together",
    "cut-lossy",
    "cut-half-lost",
    "cut-off",
    "cut-dead-path",
    "cut-islands",
    "any-partition",
    "any-islands",
    "any-three-ways",
    "any-flap",
    "any-calls",
];

/// The plan of this name for a seed. `nodes` is how many run from the start; plans that are about a number of
/// nodes have their own unless it is given.
pub fn named(name: &str, seed: u64, nodes: Option<usize>) -> Option<Plan> {
    named_on(name, seed, nodes, None)
}

/// The same on this membership engine, whichever the seed draws. `None` too if it has no such plan.
pub fn named_on(name: &str, seed: u64, nodes: Option<usize>, engine: Option<EngineKind>) -> Option<Plan> {
    let name = NAMES.iter().copied().find(|known| *known == name)?;
    if engine.is_some_and(|engine| !runs_on(name, engine)) {
        return None;
    }
    let mut plan = drawn(name, seed, nodes);
    draws::draw_orders(seed, &mut plan);
    draws::draw_engines(seed, &mut plan);
    cuts::draw_membership(seed, &mut plan);
    if let Some(engine) = engine {
        plan.membership = engine;
    }
    Some(plan)
}

fn drawn(name: &'static str, seed: u64, nodes: Option<usize>) -> Plan {
    let mut random = Random::new(seed ^ crate::trace::hash(name.as_bytes(), 0));
    let random = &mut random;
    if matches!(name, "default" | "default-chains" | "default-weights") {
        let mut plan = draw(random, nodes.unwrap_or(5));
        plan.name = name;
        if name == "default-chains" {
            for group in &mut plan.groups {
                group.options = group.options.dissemination(Dissemination::Chain);
            }
        } else {
            ways::draw_ways(&mut plan, seed);
        }
        let weighed = if name == "default-weights" { 100 } else { 12 };
        draws::draw_weights(&mut plan, seed, weighed);
        draws::draw_unleased(&mut plan, seed);
        draws::draw_probes(&mut plan, seed);
        draws::draw_levels(&mut plan, seed);
        draws::draw_parts(&mut plan, seed);
        links::draw_links(&mut plan, seed);
        bulk::draw_objects(&mut plan, seed);
        direct::draw_tells(&mut plan, seed);
        replicas::draw_replicas(&mut plan, seed);
        calls::draw_calls(&mut plan, seed);
        if name != "default-chains" {
            witnesses::draw_witnesses(&mut plan, seed);
        }
        return plan;
    }
    let usual = match name {
        "r1-only-a-joiner-is-left"
        | "r1-a-slot-stands-still"
        | "r2-killed-while-voting"
        | "r4-one-of-three-restarted"
        | "r3-joiners-vanish"
        | "three-to-one-by-kill"
        | "r7-a-voter-is-asked"
        | "r7-an-answer-outlives-its-giver"
        | "r10-killed-behind-a-cut"
        | "r10-killed-behind-proxies"
        | "r10-stale-witness"
        | "killed-on-the-second-link" => 3,
        "r2-proven-while-apart" => 6,
        "cut-a-tenth-crashes" => 30,
        "joiners-beside-crashes" => 20,
        "r20-too-many-for-their-processors" => 24,
        "cut-half-lost" => random.range(12, 16) as usize,
        "cut-deaf-together" => random.range(30, 40) as usize,
        "cut-off-from-a-large-primary" => random.range(6, 10) as usize,
        "cut-the-pulse-goes-on" => random.range(9, 20) as usize,
        "cut-far-seniors" => random.range(10, 20) as usize,
        "cut-flip-flop" | "cut-lossy" | "cut-off" => random.range(12, 30) as usize,
        "cut-islands" => random.range(6, 12) as usize,
        "cut-dead-path" => random.range(6, 14) as usize,
        "r2-cut-heal-kill" | "r7-counted-on-die" => random.range(3, 4) as usize,
        "r7-cut-off" | "r7-answers-go-astray" => random.range(3, 6) as usize,
        "r6-minority-settles" => random.range(5, 7) as usize,
        "r7-behind" => random.range(4, 5) as usize,
        // In a pair no third host hears the host that loses packets.
        "r21-lossy-host" => random.range(2, 7) as usize,
        "r21-only-udp-passes" => random.range(3, 7) as usize,
        "deaf-hosts" => random.range(5, 12) as usize,
        "any-islands" => random.range(2, 6) as usize,
        "g50-replicas-merge" => random.range(3, 5) as usize,
        "any-partition" | "any-three-ways" | "any-flap" | "any-calls" => random.range(3, 7) as usize,
        "r3-the-vote-comes-late" => random.range(3, 5) as usize,
        "r4-locator-loses-power" => random.range(4, 6) as usize,
        "r4-locators-and-nodes-restart" | "r4-members-named-late" => random.range(3, 6) as usize,
        "r13-late-frame-of-the-dead" | "r14-leaders-die-in-the-flush" | "crash-between-installs" => {
            random.range(3, 5) as usize
        }
        _ => 5,
    };
    let nodes = nodes.unwrap_or(usual);
    let spare = match name {
        "r3-joiners-vanish" => 6,
        "joiners-leave" => 4,
        "g2-founded-again" => random.range(0, 8) as usize,
        "joiner-storm" => random.range(6, 12) as usize,
        "joiners-beside-crashes" => 8,
        "r1-only-a-joiner-is-left"
        | "r12-founding-race"
        | "group-churn"
        | "crash-at-every-step"
        | "r18-stalled-flush" => 1,
        _ => 0,
    };
    let mut story = Story {
        plan: quiet(name, random, nodes, spare),
        random,
        nodes,
    };
    story.write();
    let mut plan = story.plan;
    if plan.policy == Policy::Any {
        draws::draw_weights(&mut plan, seed, 25);
    }
    if matches!(
        name,
        "r6-merge" | "r17-receipts" | "cut-off" | "cut-flip-flop" | "cut-deaf-together"
    ) {
        draws::draw_nobody_leased(&mut plan, seed);
    }
    if name == "r7-answers-go-astray" {
        direct::draw_tells(&mut plan, seed);
    }
    draws::draw_levels(&mut plan, seed);
    plan.steps.sort_by_key(|step| step.at);
    plan
}

/// A plan in the making.
struct Story<'a> {
    plan: Plan,
    random: &'a mut Random,
    nodes: usize,
}

impl Story<'_> {
    fn at(&mut self, at: Micros, action: Action) {
        self.plan.steps.push(Step { at, action });
    }

    /// Some time between these, in milliseconds.
    fn ms(&mut self, low: u64, high: u64) -> Micros {
        self.random.range(low * MILLIS, high * MILLIS)
    }

    fn slot(&mut self) -> Slot {
        self.random.index(self.nodes)
    }

    fn halves(&mut self) -> Vec<Vec<Slot>> {
        split(self.random, self.plan.slots, 2)
    }

    fn begin(&mut self) {
        start_all(self.random, &mut self.plan, self.nodes);
    }

    /// Groups of one order only, wanted by all.
    fn one_group(&mut self, order: Order) {
        let slots = self.plan.slots;
        self.plan.groups = vec![GroupPlan {
            name: "g0".to_owned(),
            options: GroupOptions::default().order(order).window_bytes(256 << 10),
            members: (0..slots).collect(),
        }];
    }

    /// Frames of different ages at once: latency that differs much from frame to frame.
    fn ragged(&mut self) {
        self.plan.network.jitter = self.random.range(1_000, 60_000);
        self.plan.network.latency = self.random.range(20, 5_000);
    }

    /// One or a few paths carry nothing for a while, and then all that they held.
    fn clog_some(&mut self, at: Micros, most: u64, longest_ms: u64) {
        for _ in 0..self.random.range(1, most) {
            let (from, to) = pair(self.random, self.nodes);
            let clog = self.ms(20, longest_ms);
            self.at(at, Action::Clog(from, to, clog));
        }
    }

    fn lossy(&mut self) {
        self.plan.network.loss_ppm = self.random.range(1_000, 80_000) as u32;
        self.plan.network.duplicate_ppm = 20_000;
        self.plan.network.reorder_ppm = 50_000;
    }

    fn write(&mut self) {
        match self.plan.name {
            "quiet" => self.begin(),
            "g2-founded-again" => self.founded_again(),
            "multicast-fails" => self.multicast_fails(),
            "multicast-is-not-heard" => self.multicast_is_not_heard(),
            "links-fail" => self.links_fail(),
            "killed-on-the-second-link" => self.killed_on_the_second_link(),
            "simultaneous-start" => self.simultaneous_start(),
            "r1-coordinator-dies-in-the-slot" => self.coordinator_dies(),
            "r1-only-a-joiner-is-left" => self.only_a_joiner_is_left(),
            "r1-a-slot-stands-still" => self.a_slot_stands_still(),
            "r2-cut-heal-kill" => self.cut_heal_kill(),
            "r2-killed-while-voting" => self.killed_while_voting(),
            "r3-joiners-vanish" => self.joiners_vanish(),
            "r4-one-of-three-restarted" => self.one_of_three_restarted(),
            "r4-hints-differ" => self.hints_differ(),
            "r4-hints-come-late" => self.hints_come_late(),
            "r4-locators-and-nodes-restart" => self.locators_and_nodes_restart(),
            "r3-the-vote-comes-late" => self.vote_comes_late(),
            "r4-locator-loses-power" => self.locator_loses_power(),
            "r4-members-named-late" => self.members_named_late(),
            "r6-merge" => self.merge(),
            "r6-minority-settles" => self.minority_settles(),
            "r7-cut-off" => self.cut_off_from_the_primary(),
            "r7-answers-go-astray" => self.answers_go_astray(),
            "r7-counted-on-die" => self.counted_on_die(),
            "r7-behind" => self.behind(),
            "cut-off-from-a-large-primary" => self.cut_off_from_a_large_primary(),
            "cut-the-pulse-goes-on" => self.the_pulse_goes_on(),
            "cut-far-seniors" => self.far_seniors(),
            "r7-a-voter-is-asked" => self.a_voter_is_asked(),
            "r7-an-answer-outlives-its-giver" => self.an_answer_outlives_its_giver(),
            "r2-proven-while-apart" => self.proven_while_apart(),
            "r9-resets-and-proxies" => self.resets_and_proxies(),
            "r10-killed-behind-a-cut" => self.killed_behind_a_cut(),
            "r10-killed-behind-proxies" => self.killed_behind_proxies(),
            "r10-stale-witness" => self.stale_witness(),
            "r11-recover" => self.recover(),
            "r11-recover-beside-majority" => self.recover_beside_majority(),
            "r11-recover-replicas" => self.recover_replicas(),
            "r12-founding-race" => self.founding_race(),
            "r12-only-joiners-are-left" => self.only_joiners_are_left(),
            "r13-late-frame-of-the-dead" => self.late_frame(),
            "r14-leaders-die-in-the-flush" => self.leaders_die(),
            "r15-senders-die-behind-gaps" => self.senders_die_behind_gaps(),
            "r16-sequencer-dies" => self.sequencer_dies(),
            "r16-members-of-a-rotation-die" => self.members_of_a_rotation_die(),
            "r16-the-token-is-lost" => self.token_is_lost(),
            "r16-the-token-is-late" => self.token_is_late(),
            "r17-receipts" => self.receipts(),
            "r17-safe" => self.safe_messages(),
            "g25-the-only-holder-dies" => self.only_holder_dies(),
            "g20-sender-and-sequencer-die" => self.sender_and_sequencer_die(),
            "r18-stalled-flush" => self.stalled_flush(),
            "r18-the-remover-dies" => self.remover_dies(),
            "r20-bad-pairs" => self.bad_pairs(),
            "r20-black-holes" => self.black_holes(),
            "r20-relays-die" => self.relays_die(),
            "starved-observers" => self.starved_observers(),
            "deaf-hosts" => self.deaf_hosts(),
            "r20-too-many-for-their-processors" => self.too_many_for_their_processors(),
            "r21-stalled-applications" => self.stalled_applications(),
            "r21-lossy-host" => self.lossy_host(),
            "r21-only-udp-passes" => self.only_udp_passes(),
            "chain-is-torn" => self.chain_is_torn(),
            "r22-large-messages" => self.large_messages(),
            "r22-bulk" => self.bulk(),
            "kill-right-after-heal" => self.kill_after_heal(),
            "pause-across-view" => self.pause_across_view(),
            "crash-between-installs" => self.crash_between_installs(),
            "crash-at-every-step" => self.crash_at_every_step(),
            "rolling-restart" => self.rolling_restart(),
            "joiner-storm" => self.joiner_storm(),
            "joiners-beside-crashes" => self.joiners_beside_crashes(),
            "simultaneous-leave" => self.simultaneous_leave(),
            "joiners-leave" => self.joiners_leave(),
            "three-to-one-by-kill" => self.three_to_one(),
            "bridge" => self.bridge(),
            "group-churn" => self.group_churn(),
            "restart-at-the-same-address" => self.restart_at_the_same_address(),
            "power-cut" => self.power_cut(),
            "g44-told-while-views-change" => self.told_while_views_change(),
            "r19-joiner-while-writing" => self.joiner_while_writing(),
            "r19-joiner-spills" => self.joiner_spills(),
            "r19-source-dies" => self.source_dies(),
            "r19-nobody-has-the-state" => self.nobody_has_the_state(),
            "g30-holder-is-removed" => self.holder_is_removed(),
            "g45-writers-are-cut-off" => self.writers_are_cut_off(),
            "g50-replicas-merge" => self.replicas_merge(),
            "g49-servers-die" => self.servers_die(),
            "g49-apart-and-together" => self.apart_and_together(),
            "g29-all-while-members-change" => self.all_while_members_change(),
            "g51-hosts-come-and-go" => self.hosts_come_and_go(),
            "g51-hosts-are-cut-off" => self.hosts_are_cut_off(),
            "slow-consumer" => self.slow_consumer(),
            "cut-a-tenth-crashes" => self.a_tenth_crashes(),
            "cut-flip-flop" => self.flip_flop(),
            "cut-deaf-together" => self.deaf_together(),
            "cut-lossy" => self.lossy_hosts(),
            "cut-half-lost" => self.half_lost(),
            "cut-off" => self.cut_off(),
            "cut-dead-path" => self.dead_path(),
            "cut-islands" => self.islands(),
            "any-partition" => self.any_partition(),
            "any-islands" => self.any_islands(),
            "any-three-ways" => self.any_three_ways(),
            "any-flap" => self.any_flap(),
            "any-calls" => self.any_calls(),
            "late-replay" => self.late_replay(),
            _ => self.garbage(),
        }
    }

    fn simultaneous_start(&mut self) {
        for slot in 0..self.plan.slots {
            let at = self.random.below(3 * MILLIS);
            self.at(at, Action::Start(slot));
        }
        if self.random.percent(50) {
            self.lossy();
        }
        if self.random.percent(50) {
            let (count, at) = (self.random.below(40) as u32, self.ms(0, 600));
            let slot = self.slot();
            self.at(at, Action::CrashAtOutput(Who::Slot(slot), count));
            let back = self.ms(700, 2_500);
            self.at(back, Action::Start(slot));
        }
        self.plan.duration = 8 * SECONDS;
    }

    /// R1: the elder dies somewhere in a slot; its successor must find what was accepted.
    fn coordinator_dies(&mut self) {
        self.begin();
        self.ragged();
        for round in 0..3 {
            let at = (3 + 5 * round) * SECONDS;
            // Several causes at once make the coordinator change its mind, or try twice.
            let victim = Who::Rank(self.random.range(2, 4) as usize);
            self.at(at, Action::Crash(victim));
            if self.random.percent(60) {
                let slot = self.slot();
                let delay = self.ms(0, 1_600);
                self.at(at + delay, Action::Pause(Who::Slot(slot), 3 * SECONDS));
            }
            let count = self.random.below(40) as u32;
            let delay = self.ms(0, 1_800);
            self.at(at + delay, Action::CrashAtOutput(Who::Rank(0), count));
            for slot in 0..self.nodes {
                self.at(at + 4 * SECONDS, Action::Start(slot));
            }
        }
    }

    /// R3: a small cluster admits a crowd that vanishes.
    fn joiners_vanish(&mut self) {
        for slot in 0..self.nodes {
            self.at(0, Action::Start(slot));
        }
        let at = self.ms(4_000, 5_000);
        for slot in self.nodes..self.plan.slots {
            self.at(at + 1_000 * (slot as u64 % 3), Action::Start(slot));
            let count = self.random.below(30) as u32;
            if self.random.percent(50) {
                self.at(at + 2_500, Action::CrashAtOutput(Who::Slot(slot), count));
            } else {
                let gone = at + self.ms(1, 80);
                self.at(gone, Action::PowerOff(Who::Slot(slot)));
            }
        }
        self.plan.duration = 14 * SECONDS;
    }

    /// R4: one of three is cut off and restarted: it must stay forming.
    fn one_of_three_restarted(&mut self) {
        self.plan.seeds = self.nodes;
        for slot in 0..self.nodes {
            self.at(0, Action::Start(slot));
        }
        let lone = self.slot();
        let cut = self.ms(3_000, 4_000);
        self.at(cut, Action::Isolate(Who::Slot(lone)));
        let dead = cut + self.ms(0, 3_000);
        self.at(dead, Action::Crash(Who::Slot(lone)));
        let back = dead + self.ms(1, 1_000);
        self.at(back, Action::Start(lone));
        let healed = back + self.ms(3_000, 8_000);
        self.at(healed, Action::Heal);
        self.plan.duration = 16 * SECONDS;
    }

    /// R3: a majority of the seeds is there without a vote, and the only node that has one comes long after.
    fn vote_comes_late(&mut self) {
        self.plan.seeds = 3;
        let voter = self.random.index(3);
        self.plan.weights = vec![0; self.plan.slots];
        self.plan.weights[voter] = self.random.range(1, 3) as u16;
        for slot in (0..self.plan.slots).filter(|slot| *slot != voter) {
            let at = self.ms(0, 1_000);
            self.at(at, Action::Start(slot));
        }
        let late = self.ms(2_000, 6_000);
        self.at(late, Action::Start(voter));
        self.plan.duration = late + 4 * SECONDS;
    }

    /// R12: all found the same groups at once while the elder comes and goes.
    fn founding_race(&mut self) {
        self.begin();
        for group in &mut self.plan.groups {
            group.members = (0..self.nodes).collect();
        }
        let at = self.ms(500, 3_000);
        let count = self.random.below(80) as u32;
        self.at(at, Action::CrashAfterView(Who::Rank(0), count));
        for round in 0..4 {
            let at = (4 + 3 * round) * SECONDS;
            let rejoin = at + self.ms(200, 900);
            for slot in 0..self.nodes {
                for group in 0..self.plan.groups.len() {
                    self.at(at, Action::LeaveGroup(Who::Slot(slot), group));
                    let apart = self.random.below(20 * MILLIS);
                    self.at(rejoin + apart, Action::JoinGroup(Who::Slot(slot), group));
                }
            }
            let (delay, count) = (self.ms(0, 300), self.random.below(40) as u32);
            if self.random.percent(70) {
                self.at(rejoin + delay, Action::CrashAtOutput(Who::Rank(0), count));
            }
            for slot in 0..self.nodes {
                self.at(at + 2_800 * MILLIS, Action::Start(slot));
            }
        }
    }

    /// R13: C reports; a frame of the dead A, late in a kernel's buffer, reaches C afterwards.
    fn late_frame(&mut self) {
        self.begin();
        self.plan.load.every = 15 * MILLIS;
        if self.random.percent(40) {
            self.one_group(Order::Fifo);
        }
        if self.random.percent(50) {
            self.plan.transport = Transport::Datagram;
            self.plan.network.reorder_ppm = 100_000;
            self.plan.network.reorder_within = 2_500_000;
            self.plan.network.replay_ppm = 50_000;
            self.plan.network.replay_within = 3_000_000;
        }
        for round in 0..3 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 800);
            let victim = self.slot();
            for other in 0..self.nodes {
                if self.random.percent(50) {
                    let clog = self.ms(100, 2_800);
                    self.at(at, Action::Clog(victim, other, clog));
                }
            }
            let death = at + self.ms(0, 1_500);
            self.at(death, Action::Crash(Who::Slot(victim)));
            self.at(at + 4 * SECONDS, Action::Start(victim));
        }
    }

    /// R14: the leader of a flush dies, and the next one too.
    fn leaders_die(&mut self) {
        self.begin();
        self.ragged();
        self.plan.load.every = 20 * MILLIS;
        for round in 0..3 {
            let at = (3 + 5 * round) * SECONDS + self.ms(0, 500);
            self.at(at, Action::Crash(Who::Youngest));
            let (one, two) = (self.random.below(60) as u32, self.random.below(60) as u32);
            let (first, second) = (at + self.ms(0, 100), at + self.ms(0, 700));
            if self.random.percent(50) {
                self.at(first, Action::CrashAfterView(Who::Leader, one / 3));
            } else {
                self.at(first, Action::CrashAtOutput(Who::Leader, one));
            }
            if self.random.percent(50) {
                self.at(second, Action::CrashAtOutput(Who::Rank(1), two));
            }
            if self.random.percent(50) {
                let (a, b) = pair(self.random, self.nodes);
                let clog = self.ms(50, 2_000);
                self.at(at, Action::Clog(a, b, clog));
            }
            for slot in 0..self.nodes {
                self.at(at + 4 * SECONDS, Action::Start(slot));
            }
        }
    }

    /// R16: the sequencer dies with order records on the way.
    fn sequencer_dies(&mut self) {
        self.one_group(Order::Total);
        self.begin();
        self.ragged();
        self.plan.load.every = 10 * MILLIS;
        for round in 0..4 {
            let at = (3 + 4 * round) * SECONDS + self.ms(0, 500);
            self.clog_some(at, 4, 1_500);
            let (delay, count) = (self.ms(0, 200), self.random.below(40) as u32);
            self.at(at + delay, Action::CrashAtOutput(Who::Leader, count));
            for slot in 0..self.nodes {
                self.at(at + 3 * SECONDS, Action::Start(slot));
            }
        }
    }

    /// G20: what a sequencer ordered reaches one member alone, which sends on; then both die.
    fn sender_and_sequencer_die(&mut self) {
        self.one_group(Order::Total);
        self.begin();
        self.plan.transport = Transport::Datagram;
        self.plan.load.every = 5 * MILLIS;
        for round in 0..4 {
            let at = (3 + 4 * round) * SECONDS;
            let (sequencer, sender) = pair(self.random, self.nodes);
            let others = (0..self.nodes)
                .filter(|slot| *slot != sequencer && *slot != sender)
                .collect();
            self.at(at, Action::OneWay(vec![sequencer], others));
            let dead = at + self.ms(5, 300);
            self.at(dead, Action::Crash(Who::Slot(sequencer)));
            let apart = self.random.below(3 * MILLIS);
            self.at(dead + apart, Action::Crash(Who::Slot(sender)));
            self.at(dead + 500 * MILLIS, Action::Heal);
            for slot in 0..self.nodes {
                self.at(at + 3 * SECONDS, Action::Start(slot));
            }
        }
    }

    /// R17: a busy minority is cut off with messages pending, and some on their way within it.
    fn receipts(&mut self) {
        self.begin();
        self.plan.load.every = 10 * MILLIS;
        if self.random.percent(40) {
            self.ragged();
        }
        let mut at = 3 * SECONDS;
        while at < 16 * SECONDS {
            let slot = self.slot();
            match self.random.below(3) {
                0 => self.at(at, Action::Isolate(Who::Slot(slot))),
                1 => {
                    let halves = self.halves();
                    self.at(at, Action::Partition(halves));
                }
                _ => {
                    let length = self.ms(1_600, 4_000);
                    self.at(at, Action::Pause(Who::Slot(slot), length));
                }
            }
            at += self.ms(1_500, 4_000);
            self.at(at, Action::Heal);
            at += self.ms(1_500, 3_500);
        }
    }

    fn bad_pairs(&mut self) {
        self.begin();
        for _ in 0..self.random.range(1, 3) {
            let at = self.ms(3_000, 10_000);
            let (a, b) = pair(self.random, self.nodes);
            let action = match self.random.below(3) {
                0 => Action::CutPair(a, b),
                1 => Action::OneWay(vec![a], vec![b]),
                _ => Action::Reject(a, b),
            };
            self.at(at, action);
            let healed = at + self.ms(2_000, 9_000);
            self.at(healed, Action::Heal);
        }
    }

    /// R21: applications stopped and windows full; a third node's kill is still agreed on.
    fn stalled_applications(&mut self) {
        self.begin();
        self.plan.load.every = 4 * MILLIS;
        self.plan.load.bytes = 1_000;
        for group in &mut self.plan.groups {
            group.options = group.options.window_bytes(64 << 10);
        }
        for slot in 0..self.nodes {
            if slot == 0 || self.random.percent(50) {
                let (at, length) = (self.ms(2_000, 4_000), self.ms(5_000, 30_000));
                self.at(at, Action::Stall(Who::Slot(slot), length));
            }
        }
        let at = self.ms(6_000, 9_000);
        let slot = self.slot();
        self.at(at, Action::Crash(Who::Slot(slot)));
        let back = at + self.ms(100, 4_000);
        self.at(back, Action::Start(slot));
    }

    /// Messages go from member to member over links that lose, clog and break, and through members that stop
    /// and die.
    fn chain_is_torn(&mut self) {
        self.begin();
        self.lossy();
        self.plan.load.every = 10 * MILLIS;
        for group in &mut self.plan.groups {
            group.options = group.options.dissemination(Dissemination::Chain);
        }
        let mut at = 2 * SECONDS;
        while at < 15 * SECONDS {
            let (slot, other) = (self.slot(), self.slot());
            let length = self.ms(50, 1_500);
            match self.random.below(6) {
                0 if slot != other => self.at(at, Action::Clog(slot, other, length)),
                1 => self.at(at, Action::Pause(Who::Slot(slot), length)),
                2 if slot != other => self.at(at, Action::ResetStreams(slot, other)),
                3 => {
                    self.at(at, Action::LeaveGroup(Who::Slot(slot), 0));
                    self.at(at + length, Action::JoinGroup(Who::Slot(slot), 0));
                }
                4 => self.at(at, Action::Slow(Who::Slot(slot), MILLIS, length)),
                _ => {
                    self.at(at, Action::Crash(Who::Slot(slot)));
                    let back = at + self.ms(500, 4_000);
                    self.at(back, Action::Start(slot));
                }
            }
            at += self.ms(100, 2_000);
        }
    }
}
