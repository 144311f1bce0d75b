//! A large cluster in virtual time: how it forms, what it costs at rest, and how it loses a few.
//!
//! ```text
//!   all nodes start within a second ──► formed ──► at rest, measured ──► some join, one after the other ──► some leave at once
//!                                                          gone everywhere ◄── some fail at one instant ◄── gone everywhere ──┘
//! ```
//! The guarantees are for `run`; this measures. The network is a quiet one (0.1 to 0.3 ms, no loss), and
//! there are no groups. Bytes are bytes of frames, without the additions of TCP and IP.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_core::wire::Cause;
use antiphon_core::{EngineKind, Profile};

use crate::agenda::{MILLIS, Micros, SECONDS};
use crate::plan::{Action, Liveness, Load, Network, Plan, Step, Transport, Who};
use crate::random::Random;
use crate::trace::{Line, Seen, Slot};
use crate::world::{Traffic, World};

/// Until a node that joins a cluster at rest is in it at all others, in virtual time.
const JOINS_WITHIN: Micros = 60 * SECONDS;

/// Until the nodes that leave at once have ended and are in no view.
const LEFT_WITHIN: Micros = 60 * SECONDS;

/// Observers of each node, of the cut engine.
const RINGS: usize = 10;
/// Each is observed by ten, and observes ten on average: if a member is next to another on two rings, the
/// member behind it observes one more. Of random rings of 100 to 2000 members, in some hundred views of each
/// size, no member had more neighbours than these.
const MOST_PEERS: usize = 2 * RINGS + 4;

/// What becomes of the nodes that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Their processes are killed, which their lifelines prove.
    Killed,
    /// Their hosts lose power, which nothing proves.
    PowerLost,
    /// They get nothing for twenty seconds, and then everything for twenty, twice.
    FlipFlop,
    /// Four fifths of what they send is lost.
    LossyOut,
    /// Four fifths of what is sent to them is lost.
    LossyIn,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 5] = [
        Fault::Killed,
        Fault::PowerLost,
        Fault::FlipFlop,
        Fault::LossyOut,
        Fault::LossyIn,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Killed => "killed",
            Fault::PowerLost => "power-lost",
            Fault::FlipFlop => "flip-flop",
            Fault::LossyOut => "lossy-out",
            Fault::LossyIn => "lossy-in",
        }
    }

    /// Whether the nodes that fail go on running.
    fn leaves_alive(self) -> bool {
        !matches!(self, Fault::Killed | Fault::PowerLost)
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Nodes.
    pub nodes: usize,
    /// How many of them all nodes are told as seeds.
    pub seeds: usize,
    /// How many join once the cluster has formed and rested, each a second after the one before is there.
    pub joins: usize,
    /// How many leave in order then, all at one instant.
    pub leave: usize,
    /// How many fail then.
    pub faulty: usize,
    /// How.
    pub fault: Fault,
    /// How long a silent member is waited for.
    pub detect: Duration,
    /// How long traffic at rest is measured, in virtual time.
    pub rest: Duration,
    /// The membership engine.
    pub engine: EngineKind,
    /// How many different sizes of views may be seen until all have formed; any number without.
    pub most_sizes: Option<usize>,
    /// What chance decides.
    pub seed: u64,
}

/// What was seen.
#[derive(Debug, Clone)]
pub struct Figures {
    /// Virtual time until every node reported all, if that came.
    pub formed_s: Option<f64>,
    /// Different sizes of views that any node saw until then.
    pub sizes: BTreeSet<usize>,
    /// Views decided until then.
    pub views: usize,
    /// At rest, in bytes a second per node: mean and most, sent and received.
    pub sent: (f64, f64),
    /// The same, received.
    pub received: (f64, f64),
    /// At rest: to how many others a node sends, mean and most.
    pub peers: (f64, usize),
    /// From the start of each node that joined later until it reported all, and until all reported it, if
    /// that came.
    pub joined_s: Vec<Option<(f64, f64)>>,
    /// From the word to leave until all leavers had ended, and all others, and no leaver, were in one view at
    /// each of them, if that came.
    pub left_s: Option<f64>,
    /// Views that this took.
    pub leave_views: usize,
    /// Leavers that a view does not say to have left.
    pub left_unsaid: usize,
    /// From the faults until all others, and no failed node, were in one view at each of them, if that came.
    pub removed_s: Option<f64>,
    /// Views that this took.
    pub removal_views: usize,
    /// Members lost that had not failed.
    pub healthy_lost: usize,
    /// Failed nodes that more than one view took out.
    pub lost_again: usize,
    /// Until all had formed: frames, their bytes, records on lifelines, and their bytes.
    pub forming: [u64; 4],
    /// The same, from the faults until the failed were gone.
    pub removing: [u64; 4],
    /// Real time.
    pub wall: Duration,
}

/// Runs it. `tell` is given the virtual time and how many nodes have the largest view, once per virtual
/// second.
pub fn measure(scale: &Scale, mut tell: impl FnMut(f64, usize, usize)) -> Figures {
    let started = Instant::now();
    let mut world = World::new(Arc::new(plan(scale)), scale.seed);
    let live: Vec<Slot> = (0..scale.nodes).collect();
    let formed = advance(&mut world, 300 * SECONDS, &live, &mut tell);
    let mut figures = Figures {
        formed_s: formed.map(seconds),
        sizes: BTreeSet::new(),
        views: 0,
        sent: (0.0, 0.0),
        received: (0.0, 0.0),
        peers: (0.0, 0),
        joined_s: Vec::new(),
        left_s: None,
        leave_views: 0,
        left_unsaid: 0,
        removed_s: None,
        removal_views: 0,
        healthy_lost: 0,
        lost_again: 0,
        forming: world.take_traffic().sums(),
        removing: [0; 4],
        wall: Duration::ZERO,
    };
    let views = Views::of(&world.trace().lines);
    figures.sizes = views.sizes;
    figures.views = views.decided;
    if formed.is_some() {
        // What the last view set off comes to its end first.
        let settled = world.now() + 5 * SECONDS;
        pass(&mut world, settled, &live, &mut tell);
        world.take_traffic();
        let from = world.now();
        pass(
            &mut world,
            from + scale.rest.as_micros() as Micros,
            &live,
            &mut tell,
        );
        let mut traffic = world.take_traffic();
        traffic.sent.truncate(scale.nodes);
        traffic.received.truncate(scale.nodes);
        traffic.peers.truncate(scale.nodes);
        figures.at_rest(&traffic, seconds(world.now() - from));
        figures.join(scale, &mut world, &mut tell);
        let stayed = figures.leave(scale, &mut world, &mut tell);
        figures.fail(scale, stayed, &mut world, &mut tell);
    }
    figures.wall = started.elapsed();
    figures
}

impl Figures {
    /// Whether all that was to happen did, within its bounds, and no node was lost by mistake.
    pub fn are_sound(&self, scale: &Scale) -> bool {
        self.complaints(scale).is_empty()
    }

    /// What did not come to pass, or took more than it may.
    pub fn complaints(&self, scale: &Scale) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut complain = |broken: bool, what: String| {
            if broken {
                complaints.push(what);
            }
        };
        complain(self.formed_s.is_none(), "not formed".to_owned());
        let joined = self.joined_s.iter().filter(|joined| joined.is_some()).count();
        complain(joined < self.joined_s.len(), "not all joined".to_owned());
        complain(
            scale.leave > 0 && self.left_s.is_none(),
            "not all left".to_owned(),
        );
        complain(
            self.left_unsaid > 0,
            format!("{} left, and no view says so", self.left_unsaid),
        );
        complain(
            scale.faulty > 0 && self.removed_s.is_none(),
            "not all that failed are gone".to_owned(),
        );
        complain(
            self.healthy_lost > 0,
            format!("{} lost by mistake", self.healthy_lost),
        );
        complain(
            self.lost_again > 0,
            format!("{} lost more than once", self.lost_again),
        );
        if let Some(most) = scale.most_sizes {
            let sizes = self.sizes.len();
            complain(
                sizes > most,
                format!("{sizes} different sizes seen, and not {most} at most"),
            );
        }
        if scale.engine == EngineKind::Cut {
            // Nodes that fail at one instant and for good go in one view, and no node speaks to others than
            // its observers and its subjects.
            let views = self.removal_views;
            complain(
                !scale.fault.leaves_alive() && views > 1,
                format!("gone in {views} views, and not in one"),
            );
            let peers = self.peers.1;
            complain(
                peers > MOST_PEERS,
                format!("{peers} peers at rest, and not {MOST_PEERS} at most"),
            );
        }
        complaints
    }

    fn at_rest(&mut self, traffic: &Traffic, seconds: f64) {
        let rates = |bytes: &[u64]| {
            let most = bytes.iter().copied().max().unwrap_or(0) as f64;
            let mean = bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64;
            (mean / seconds, most / seconds)
        };
        self.sent = rates(&traffic.sent);
        self.received = rates(&traffic.received);
        let counts = traffic.peers.iter().map(BTreeSet::len);
        let mean = counts.clone().sum::<usize>() as f64 / traffic.peers.len().max(1) as f64;
        self.peers = (mean, counts.max().unwrap_or(0));
    }

    fn join(&mut self, scale: &Scale, world: &mut World, tell: &mut impl FnMut(f64, usize, usize)) {
        for joiner in scale.nodes..scale.nodes + scale.joins {
            let all: Vec<Slot> = (0..=joiner).collect();
            let from = world.now();
            world.act(&Action::Start(joiner));
            let (mut itself, mut everyone) = (None, None);
            while everyone.is_none() && world.now() < from + JOINS_WITHIN {
                world.run_until(world.now() + MILLIS);
                let took = seconds(world.now() - from);
                if sizes(world, &all[joiner..]).0 == all.len() {
                    itself.get_or_insert(took);
                }
                if sizes(world, &all).1 == all.len() {
                    everyone = Some(took);
                }
            }
            self.joined_s.push(itself.zip(everyone));
            let until = world.now() + SECONDS;
            pass(world, until, &all, tell);
        }
    }

    /// Some leave; the others are returned.
    fn leave(
        &mut self,
        scale: &Scale,
        world: &mut World,
        tell: &mut impl FnMut(f64, usize, usize),
    ) -> Vec<Slot> {
        let mut slots: Vec<Slot> = (0..scale.nodes + scale.joins).collect();
        if scale.leave == 0 {
            return slots;
        }
        Random::new(scale.seed ^ 0x4c45_4156_4553).shuffle(&mut slots);
        let leavers = slots.split_off(slots.len() - scale.leave.min(slots.len() - 1));
        let (lines, from) = (world.trace().lines.len(), world.now());
        for leaver in &leavers {
            world.act(&Action::Leave(Who::Slot(*leaver)));
        }
        let until = from + LEFT_WITHIN;
        let mut gone = advance(world, until, &slots, tell);
        while gone.is_some() && leavers.iter().any(|slot| world.process_at(*slot).is_some()) {
            world.run_until(world.now() + 20 * MILLIS);
            gone = (world.now() < until).then(|| world.now());
        }
        self.left_s = gone.map(|gone| seconds(gone - from));
        let settled = world.now() + 5 * SECONDS;
        pass(world, settled, &slots, tell);
        let views = Views::of(&world.trace().lines[lines..]);
        self.leave_views = views.decided;
        let names = names(&leavers);
        self.left_unsaid = names.difference(&views.left).count();
        self.healthy_lost += views.departed.difference(&names).count();
        slots
    }

    fn fail(
        &mut self,
        scale: &Scale,
        mut slots: Vec<Slot>,
        world: &mut World,
        tell: &mut impl FnMut(f64, usize, usize),
    ) {
        if scale.faulty == 0 {
            return;
        }
        let mut random = Random::new(scale.seed ^ 0x0043_5241_5348);
        random.shuffle(&mut slots);
        let faulty = slots.split_off(slots.len() - scale.faulty.min(slots.len() - 1));
        let lines = world.trace().lines.len();
        let at = world.now();
        let each = |action: fn(Who) -> Action| -> Vec<Action> {
            faulty.iter().map(|slot| action(Who::Slot(*slot))).collect()
        };
        let deaf = || Action::OneWay(slots.clone(), faulty.clone());
        // What happens, and for how long.
        let acts: Vec<(Vec<Action>, Micros)> = match scale.fault {
            Fault::Killed => vec![(each(Action::Crash), 120 * SECONDS)],
            Fault::PowerLost => vec![(each(Action::PowerOff), 120 * SECONDS)],
            Fault::FlipFlop => [vec![deaf()], vec![Action::Heal], vec![deaf()], vec![Action::Heal]]
                .map(|actions| (actions, 20 * SECONDS))
                .into(),
            Fault::LossyOut => vec![(
                vec![Action::Lossy(faulty.clone(), slots.clone(), 800_000)],
                180 * SECONDS,
            )],
            Fault::LossyIn => vec![(
                vec![Action::Lossy(slots.clone(), faulty.clone(), 800_000)],
                180 * SECONDS,
            )],
        };
        world.take_traffic();
        let mut gone = None;
        let mut until = at;
        for (actions, lasting) in acts {
            pass(world, until, &slots, tell);
            for action in &actions {
                world.act(action);
            }
            until += lasting;
            gone = gone.or_else(|| advance(world, until, &slots, tell));
        }
        self.removing = world.take_traffic().sums();
        self.removed_s = gone.map(|gone| seconds(gone - at));
        // A node that is removed by mistake is gone by then.
        let until = world.now() + 20 * SECONDS;
        pass(world, until, &slots, tell);
        let views = Views::of(&world.trace().lines[lines..]);
        self.removal_views = views.decided;
        self.healthy_lost += views.departed.difference(&names(&faulty)).count();
        self.lost_again = views.departed_again.len();
    }
}

fn names(slots: &[Slot]) -> BTreeSet<String> {
    slots.iter().map(|slot| format!("n{slot}")).collect()
}

/// The views that nodes saw.
struct Views {
    sizes: BTreeSet<usize>,
    decided: usize,
    departed: BTreeSet<String>,
    /// The departed nodes that had departed before.
    departed_again: BTreeSet<String>,
    /// The departed nodes that are said to have left in order.
    left: BTreeSet<String>,
}

impl Views {
    fn of(lines: &[Line]) -> Self {
        let mut ids = BTreeSet::new();
        let mut views = Self {
            sizes: BTreeSet::new(),
            decided: 0,
            departed: BTreeSet::new(),
            departed_again: BTreeSet::new(),
            left: BTreeSet::new(),
        };
        for line in lines {
            if let Seen::NodeView(view) = &line.what
                && view.is_primary()
                && ids.insert((view.lineage, view.id))
            {
                views.sizes.insert(view.members.len());
                for gone in &view.departed {
                    let name = &gone.member.name;
                    if !views.departed.insert(name.clone()) {
                        views.departed_again.insert(name.clone());
                    }
                    if gone.cause == Cause::Left {
                        views.left.insert(name.clone());
                    }
                }
            }
        }
        views.decided = ids.len();
        views
    }
}

/// How many the largest view of these nodes has, and how many of them are in one of their number.
fn sizes(world: &World, live: &[Slot]) -> (usize, usize) {
    let sizes = live
        .iter()
        .map(|slot| world.node_view(*slot).map_or(0, |view| view.members.len()));
    let agreed = sizes.clone().filter(|size| *size == live.len()).count();
    (sizes.max().unwrap_or(0), agreed)
}

fn seconds(at: Micros) -> f64 {
    at as f64 / SECONDS as f64
}

/// Lets time pass. It says so: where many nodes are in trouble, a second takes several.
fn pass(world: &mut World, until: Micros, live: &[Slot], tell: &mut impl FnMut(f64, usize, usize)) {
    while world.now() < until {
        world.run_until(until.min(world.now() + SECONDS));
        let (largest, agreed) = sizes(world, live);
        tell(seconds(world.now()), largest, agreed);
    }
}

/// Goes on until all these nodes, and no others, are in one view at each of them; returns when that was, if
/// it came in time.
fn advance(
    world: &mut World,
    until: Micros,
    live: &[Slot],
    tell: &mut impl FnMut(f64, usize, usize),
) -> Option<Micros> {
    let mut next = world.now();
    loop {
        let (largest, agreed) = sizes(world, live);
        if agreed == live.len() {
            return Some(world.now());
        }
        if world.now() >= next {
            next += SECONDS;
            tell(seconds(world.now()), largest, agreed);
        }
        if world.now() >= until {
            return None;
        }
        world.run_until(world.now() + 20 * MILLIS);
    }
}

fn plan(scale: &Scale) -> Plan {
    let mut random = Random::new(scale.seed);
    let mut profile = Profile::lan();
    profile.suspect_after = scale.detect;
    profile.suspect_after_loss = profile.suspect_after_loss.min(scale.detect);
    profile.heartbeat = scale.detect / 4;
    profile.unreachable_after = scale.detect * 4;
    let starts = (0..scale.nodes).map(|slot| Step {
        at: random.below(SECONDS),
        action: Action::Start(slot),
    });
    let mut steps: Vec<Step> = starts.collect();
    steps.sort_by_key(|step| step.at);
    Plan {
        name: "scale",
        slots: scale.nodes + scale.joins,
        seeds: scale.seeds.min(scale.nodes),
        links: 1,
        single: Vec::new(),
        never_apart: false,
        faulty: None,
        bridged: false,
        hinted: None,
        weights: Vec::new(),
        unleased: Vec::new(),
        rejoin: scale.faulty == 0 || !scale.fault.leaves_alive(),
        deaf: Vec::new(),
        silent: Vec::new(),
        prompt: None,
        follows_within: None,
        nothing_passes_from: None,
        leaves_within: None,
        membership: scale.engine,
        rings: RINGS,
        drift_ppm: 200,
        policy: antiphon_core::Policy::Majority,
        witness: None,
        trail: false,
        profile,
        transport: Transport::Datagram,
        network: Network {
            lifeline_bytes: 1 << 20,
            ..Network::default()
        },
        groups: Vec::new(),
        replicated: None,
        calling: None,
        hosting: None,
        load: Load {
            every: 0,
            ..Load::default()
        },
        steps,
        duration: 0,
        liveness: Liveness::None,
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::wire::{Departure, Incarnation, Lineage, Member, NodeView, NodeViewId, ViewId};

    use super::*;

    fn without(counter: u32, name: &str) -> Line {
        let member = Member {
            incarnation: Incarnation(counter.into()),
            name: name.to_owned(),
            addr: ([127, 0, 0, 1], 1).into(),
            further: Vec::new(),
            metadata: Default::default(),
            weight: 1,
        };
        let view = NodeView {
            lineage: Lineage(1),
            id: NodeViewId::Primary {
                id: ViewId { epoch: 1, counter },
            },
            number: counter,
            members: Vec::new(),
            joined: Vec::new(),
            departed: vec![Departure {
                member,
                cause: Cause::Crashed,
                accusers: Vec::new(),
            }],
            merged: Vec::new(),
            wire_level: 1,
        };
        Line {
            at: 0,
            process: 0,
            what: Seen::NodeView(Arc::new(view)),
        }
    }

    #[test]
    fn who_came_back_and_was_lost_again_is_counted_and_a_view_that_many_see_is_one() {
        let views = Views::of(&[without(2, "n1"), without(2, "n1"), without(3, "n2")]);
        assert_eq!((views.decided, views.departed_again.len()), (2, 0));
        let views = Views::of(&[without(2, "n1"), without(3, "n2"), without(4, "n1")]);
        assert_eq!(views.departed_again, ["n1".to_owned()].into());
    }

    #[test]
    fn ten_nodes_of_which_one_is_killed_are_sound_and_not_if_it_was_lost_twice() {
        let scale = Scale {
            nodes: 10,
            seeds: 3,
            joins: 0,
            leave: 0,
            faulty: 1,
            fault: Fault::Killed,
            detect: Duration::from_secs(2),
            rest: Duration::from_secs(1),
            engine: EngineKind::Cut,
            most_sizes: None,
            seed: 1,
        };
        let mut figures = measure(&scale, |_, _, _| {});
        assert_eq!(figures.complaints(&scale), [""; 0]);
        figures.lost_again = 1;
        assert_eq!(figures.complaints(&scale), ["1 lost more than once"]);
    }
}
