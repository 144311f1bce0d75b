//! The world: hosts, kernels, a network, and nodes that know nothing of it.
//!
//! ```text
//!                 plan steps (faults)                     trace ──► checkers
//!                        │                                  ▲
//!   agenda ──► World ────┼──► Process (one Node, its driver and its application)
//!   (time,order)         │        │ outputs, performed in order
//!                        ▼        ▼
//!                     paths ──► datagram | stream      lifeline
//! ```
//! - `process`: what a driver, an application, a replica and calls do around a `Node`: clocks that drift,
//!   inboxes that fill while the process is stopped, a crash between any two outputs.
//! - `datagram` and `stream`: two ways frames travel; a plan chooses one.
//! - `locator`: locators, which tell newcomers where nodes are.
//! - `lifeline`: TCP connections as two kernels keep them, for proof of death (R9, R25).
//! - `witness`: supervisors that see the end of their node's process (R10).
//! - `faults`: performs the steps of a plan.
//!
//! One number decides everything: the same plan and seed give the same run, which [`World::digest`] shows.

mod datagram;
mod faults;
mod lifeline;
mod locator;
mod process;
mod stream;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use antiphon_core::wire::{Incarnation, NodeView};
use antiphon_core::{EngineKind, GroupView, PathTrouble, Policy};
use bytes::Bytes;

use crate::agenda::{Agenda, Micros, SECONDS};
use crate::plan::{Network, Plan, Probes, Who};
use crate::random::Random;
use crate::trace::{Ending, GroupIndex, ProcessId, Seen, Slot, Trace};

use lifeline::Lifelines;
use process::{Input, Process};
use stream::Streams;
pub use stream::{KEEPALIVE, LONGEST_RETRY};

/// A connection that nothing used for this long was closed.
const UNUSED_FOR: Micros = 10 * SECONDS;
/// More than this many lines of trace, or things to come, no run has that comes to rest: some 500 MB.
const FLOOD: usize = 4_000_000;
/// The wall clock at the simulation's start, in seconds since 1970: an afternoon in 2026.
const UNIX_TIME_S: u64 = 1_780_000_000;

/// The simulated world.
pub struct World {
    now: Micros,
    agenda: Agenda<Happening>,
    random: Random,
    plan: Arc<Plan>,
    network: Network,
    hosts: Vec<Host>,
    /// For each slot, the nodes that its node is told of.
    told: Vec<Vec<Slot>>,
    locators: Vec<locator::Place>,
    processes: Vec<Process>,
    paths: Vec<Path>,
    streams: Streams,
    lifelines: Lifelines,
    witnesses: witness::Witnesses,
    /// From, to: the second slot does not get what the first one sends by multicast.
    deaf: BTreeSet<(Slot, Slot)>,
    loaded: bool,
    /// Rises when all faults are taken back: what was scheduled before is void.
    calm: u32,
    recent: Option<Bytes>,
    /// The slot that gets what others send each other, and until when.
    astray: Option<(Slot, Micros)>,
    trace: Trace,
    faults: BTreeMap<&'static str, u64>,
    digest: u64,
    traffic: Traffic,
    /// So much of either is a flood.
    flood: usize,
    /// Names for the states of replicas.
    states: Arc<AtomicU64>,
    /// The last number given to a request or a call, or to what a machine sends.
    numbers: u64,
}

/// What nodes send each other in frames, by slot. Lifelines and what kernels add are not in it.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    /// Bytes of frames that each slot sent.
    pub sent: Vec<u64>,
    /// Bytes of frames that were sent to each slot.
    pub received: Vec<u64>,
    /// The slots that each slot sent to.
    pub peers: Vec<BTreeSet<Slot>>,
    /// How many frames were sent.
    pub frames: u64,
    /// Records on lifelines, and their bytes.
    pub records: (u64, u64),
}

impl Traffic {
    fn of(slots: usize) -> Self {
        Self {
            sent: vec![0; slots],
            received: vec![0; slots],
            peers: vec![BTreeSet::new(); slots],
            frames: 0,
            records: (0, 0),
        }
    }

    fn note(&mut self, from: Slot, to: Slot, bytes: usize) {
        self.sent[from] += bytes as u64;
        self.received[to] += bytes as u64;
        self.peers[from].insert(to);
        self.frames += 1;
    }

    /// Frames, their bytes, records on lifelines, and their bytes.
    pub fn sums(&self) -> [u64; 4] {
        let (records, record_bytes) = self.records;
        [self.frames, self.sent.iter().sum(), records, record_bytes]
    }
}

/// A host: at most one process, and a kernel that outlives it.
struct Host {
    process: Option<ProcessId>,
    powered: bool,
}

/// One of a host's addresses: a sender that sends to it uses this link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Door {
    slot: Slot,
    link: usize,
}

impl Door {
    /// The other host's address in the same network.
    fn facing(self, slot: Slot) -> Door {
        Door { slot, ..self }
    }
}

/// One direction between two hosts on one link.
#[derive(Debug, Clone, Default)]
struct Path {
    /// Since when nothing passes.
    blocked: Option<Micros>,
    /// While blocked, answers are resets instead of silence.
    rejecting: bool,
    clogged_until: Micros,
    /// Packets lost on this path, of a million: datagrams, or what carries a stream.
    loss_ppm: u32,
    /// Whether probes pass.
    probes: Probes,
    /// When the line has sent what it was given.
    free_at: Micros,
}

/// What the agenda holds.
#[derive(Debug)]
enum Happening {
    Step(usize),
    Timer(ProcessId),
    Run(ProcessId),
    Tick(ProcessId),
    Wake(ProcessId),
    Ask(ProcessId),
    Call(ProcessId),
    Resume(ProcessId, u32),
    Unslow(ProcessId, u32),
    Unstall(ProcessId),
    Rejoin(ProcessId, GroupIndex),
    Input(ProcessId, Input),
    Datagram {
        to: Door,
        from: SocketAddr,
        bytes: Bytes,
    },
    Outside {
        to: Slot,
        from: SocketAddr,
        bytes: Bytes,
    },
    Flap {
        a: Slot,
        b: Slot,
        link: Option<usize>,
        period: Micros,
        until: Micros,
        cut: bool,
        calm: u32,
    },
    EndForeign(ProcessId),
    AtLocator {
        index: usize,
        start: u32,
        bytes: Bytes,
    },
    StreamDial {
        id: u64,
        attempt: u32,
    },
    StreamReady(u64),
    StreamGone(u64),
    StreamTimeout {
        id: u64,
        since: Micros,
    },
    StreamUnanswered {
        id: u64,
        since: Micros,
    },
    LifelineDial {
        id: u64,
        attempt: u32,
    },
    LifelineReady(u64),
    LifelineGone(u64),
    SupervisorWakes(ProcessId),
    WitnessTells(ProcessId),
    Keepalive {
        id: u64,
        since: Micros,
    },
}

impl World {
    /// A world for a plan. Nothing runs in it before the first step.
    pub fn new(plan: Arc<Plan>, seed: u64) -> Self {
        let mut agenda = Agenda::default();
        for (index, step) in plan.steps.iter().enumerate() {
            agenda.add(step.at, Happening::Step(index));
        }
        let mut trace = Trace::default();
        let locators = plan.hinted.as_ref().map_or(0, |hinted| hinted.locators);
        let hosts = plan.slots + locators;
        match &plan.hinted {
            Some(hinted) => trace.expect = Some(usize::from(hinted.expect)),
            None => trace.seeds.extend((0..plan.seeds).map(addr_of)),
        }
        trace.never_apart = plan.never_apart;
        trace.faulty = plan.faulty.clone();
        trace.bridged = plan.bridged;
        trace.passes_on_up_to = (plan.membership == EngineKind::Cut).then_some(plan.rings + 1);
        let profile = &plan.profile;
        trace.pair_patience = (profile.suspect_after + profile.unreachable_after).as_micros() as Micros;
        trace.longest_silence = (profile.suspect_after * 3 + profile.heartbeat * 3).as_micros() as Micros;
        trace.prompt = plan.prompt;
        trace.follows_within = plan.follows_within;
        trace.nothing_passes_from = plan.nothing_passes_from;
        trace.leaves_within = plan.leaves_within;
        trace.leave_patience = plan.profile.leave_within.as_micros() as Micros;
        trace.any = plan.policy == Policy::Any;
        trace.handlers_at_once = plan.calling.as_ref().map_or(0, |it| it.max_running);
        trace.unleased.clone_from(&plan.unleased);
        trace.heartbeat = plan.profile.heartbeat.as_micros() as Micros;
        if plan.network.is_rough() {
            trace.add(0, ProcessId::MAX, Seen::Rough(true));
        }
        Self {
            now: 0,
            agenda,
            // The plan was drawn from the same seed: another stream for what happens inside it.
            random: Random::new(seed ^ 0x5157_4f52_4c44),
            network: plan.network.clone(),
            hosts: (0..hosts)
                .map(|_| Host {
                    process: None,
                    powered: true,
                })
                .collect(),
            told: plan
                .hinted
                .as_ref()
                .map_or_else(Vec::new, |hinted| hinted.told.clone()),
            locators: (0..locators).map(|_| locator::Place::default()).collect(),
            processes: Vec::new(),
            paths: vec![Path::default(); hosts * hosts * plan.links],
            streams: Streams::default(),
            lifelines: Lifelines::default(),
            witnesses: witness::Witnesses::default(),
            deaf: plan.deaf.iter().copied().collect(),
            loaded: true,
            calm: 0,
            recent: None,
            astray: None,
            trace,
            faults: BTreeMap::new(),
            digest: seed,
            traffic: Traffic::of(plan.slots),
            flood: FLOOD,
            states: Arc::default(),
            numbers: 0,
            plan,
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Lets everything happen up to this time, or until it is a flood.
    pub fn run_until(&mut self, until: Micros) {
        while !self.is_flooded() && self.agenda.next_at().is_some_and(|at| at <= until) {
            let Some((at, happening)) = self.agenda.pop() else {
                break;
            };
            self.now = self.now.max(at);
            self.perform(happening);
        }
        self.now = self.now.max(until);
    }

    #[cfg(test)]
    pub(crate) fn call_a_flood(&mut self, more_than: usize) {
        self.flood = more_than;
    }

    /// Whether more happens than memory holds for long, as when each message is answered by two: nothing
    /// happens any more then.
    pub fn is_flooded(&self) -> bool {
        self.trace.lines.len() > self.flood || self.agenda.len() > self.flood
    }

    /// What happened so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// From here on nothing changes any more.
    pub(crate) fn rests(&mut self) {
        self.trace.rests_since = Some(self.now);
    }

    /// From here on every request to a replica is answered well.
    fn asked_at_rest(&mut self) {
        self.trace.asked_at_rest = Some(self.now);
    }

    /// Ends the run.
    pub fn into_trace(mut self) -> Trace {
        self.trace.ended = self.now;
        self.trace
    }

    /// How often each kind of fault was really made.
    pub fn faults(&self) -> &BTreeMap<&'static str, u64> {
        &self.faults
    }

    /// A number over all outputs and events: equal runs have equal digests.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// What was sent since the last call.
    pub fn take_traffic(&mut self) -> Traffic {
        let slots = self.hosts.len();
        std::mem::replace(&mut self.traffic, Traffic::of(slots))
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The live process at a slot, foreign ones left out.
    pub fn process_at(&self, slot: Slot) -> Option<ProcessId> {
        let process = self.hosts.get(slot)?.process?;
        (!self.processes[process].foreign).then_some(process)
    }

    /// The slots where a node of ours lives.
    pub fn live_slots(&self) -> Vec<Slot> {
        (0..self.hosts.len())
            .filter(|slot| self.process_at(*slot).is_some())
            .collect()
    }

    /// The incarnation of the node at a slot.
    pub fn incarnation(&self, slot: Slot) -> Option<Incarnation> {
        self.process_at(slot)
            .map(|process| self.processes[process].node.incarnation())
    }

    /// The node view that the application at a slot last heard of in its present incarnation.
    pub fn node_view(&self, slot: Slot) -> Option<Arc<NodeView>> {
        self.process_at(slot)
            .and_then(|process| self.processes[process].view.clone())
    }

    /// The view of a group that the application at a slot last heard of, unless it is suspended or starting
    /// over.
    pub fn group_view(&self, slot: Slot, group: GroupIndex) -> Option<Arc<GroupView>> {
        let process = &self.processes[self.process_at(slot)?];
        process.uses.get(&group).and_then(|usage| usage.view.clone())
    }

    /// Whether every node at work sends to all others over the first of their links.
    pub fn uses_first_links(&self) -> bool {
        self.live_slots().into_iter().all(|slot| {
            let node = self.process_at(slot).map(|process| &self.processes[process].node);
            let links = node.map_or_else(Vec::new, antiphon_core::Node::links);
            links.iter().all(|peer| peer.in_use == 0)
        })
    }

    /// Whether the application at a slot means to be in the group.
    pub fn wants_group(&self, slot: Slot, group: GroupIndex) -> bool {
        self.process_at(slot).is_some_and(|process| {
            let process = &self.processes[process];
            let replica = process.replica.as_ref().filter(|_| self.replicates(group));
            let leaves = replica.is_some_and(|it| it.leaves);
            !process.leaving && !leaves && process.uses.get(&group).is_some_and(|usage| !usage.left)
        })
    }

    /// What the process at a slot keeps of objects of a group.
    pub fn object_bytes(&self, slot: Slot, group: GroupIndex) -> usize {
        let process = self.process_at(slot).map(|process| &self.processes[process]);
        process
            .and_then(|process| process.node.memory(process.uses.get(&group)?.handle))
            .map_or(0, |memory| memory.objects)
    }

    /// Whether the process at a slot is on its way out.
    pub fn is_leaving(&self, slot: Slot) -> bool {
        self.process_at(slot)
            .is_some_and(|process| self.processes[process].leaving)
    }

    /// Whether the process at a slot was never in any view: only then may it help to found a cluster anew.
    pub fn is_fresh(&self, slot: Slot) -> bool {
        self.process_at(slot)
            .is_some_and(|process| !self.processes[process].was_member)
    }

    /// Whether applications send by themselves.
    pub fn set_load(&mut self, loaded: bool) {
        self.loaded = loaded;
    }

    /// The latest primary view that any live process of ours knows of, by number.
    pub fn latest_primary(&self) -> Option<Arc<NodeView>> {
        self.live_slots()
            .into_iter()
            .filter_map(|slot| self.processes[self.hosts[slot].process?].primary.clone())
            .max_by_key(|view| view.number)
    }

    /// The slot that a step means.
    fn resolve(&self, who: Who) -> Option<Slot> {
        let by_incarnation = |incarnation: Incarnation| {
            self.live_slots()
                .into_iter()
                .find(|slot| self.incarnation(*slot) == Some(incarnation))
        };
        match who {
            Who::Slot(slot) => Some(slot),
            Who::Rank(rank) => {
                let view = self.latest_primary()?;
                by_incarnation(view.members.get(rank)?.incarnation)
            }
            Who::Youngest => by_incarnation(self.latest_primary()?.members.last()?.incarnation),
            Who::Leader => {
                let latest = self
                    .live_slots()
                    .into_iter()
                    .filter_map(|slot| self.group_view(slot, 0))
                    .max_by_key(|view| (view.id.number, view.id.k))?;
                by_incarnation(*latest.members.first()?)
            }
        }
    }

    fn perform(&mut self, happening: Happening) {
        match happening {
            // The plan's time is over once its faults were taken back.
            Happening::Step(_) if self.calm > 0 => {}
            Happening::Step(index) => {
                let action = self.plan.steps[index].action.clone();
                self.act(&action);
            }
            Happening::Timer(process) => self.timer_fired(process),
            Happening::Run(process) => self.run_inbox(process),
            Happening::Tick(process) => self.tick(process),
            Happening::Wake(process) => self.wake(process),
            Happening::Ask(process) => self.ask(process),
            Happening::Call(process) => self.call(process),
            Happening::Resume(process, pause) => self.resume(process, pause),
            Happening::Unslow(process, pause) => self.unslow(process, pause),
            Happening::Unstall(process) => self.unstall(process),
            Happening::Rejoin(process, group) => self.join_group(process, group),
            Happening::Input(process, input) => self.accept(process, input),
            Happening::Datagram { to, from, bytes } => self.datagram_arrived(to, from, bytes),
            Happening::Outside { to, from, bytes } => {
                if let Some(process) = self.hosts[to].process {
                    self.accept(process, Input::Frame { from, bytes });
                }
            }
            Happening::Flap {
                a,
                b,
                link,
                period,
                until,
                cut,
                calm,
            } => self.flap((a, b, link), period, until, cut, calm),
            Happening::EndForeign(process) => self.end(process, Ending::Killed),
            Happening::AtLocator { index, start, bytes } => self.at_locator(index, start, bytes),
            Happening::StreamDial { id, attempt } => self.stream_dial(id, attempt),
            Happening::StreamReady(id) => self.stream_ready(id),
            Happening::StreamGone(id) => self.stream_gone(id),
            Happening::StreamTimeout { id, since } => self.stream_timeout(id, since),
            Happening::StreamUnanswered { id, since } => self.stream_unanswered(id, since),
            Happening::LifelineDial { id, attempt } => self.lifeline_dial(id, attempt),
            Happening::LifelineReady(id) => self.lifeline_ready(id),
            Happening::SupervisorWakes(process) => self.supervisor_wakes(process),
            Happening::WitnessTells(process) => self.witness_tells(process),
            Happening::LifelineGone(id) => self.lifeline_gone(id),
            Happening::Keepalive { id, since } => self.lifeline_keepalive(id, since),
        }
    }

    /// One fault more of this kind.
    fn count(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }

    fn note(&mut self, process: ProcessId, what: Seen) {
        self.trace.add(self.now, process, what);
    }

    fn path(&self, from: Slot, to: Door) -> &Path {
        &self.paths[self.path_index(from, to)]
    }

    fn path_mut(&mut self, from: Slot, to: Door) -> &mut Path {
        let index = self.path_index(from, to);
        &mut self.paths[index]
    }

    fn path_index(&self, from: Slot, to: Door) -> usize {
        (from * self.hosts.len() + to.slot) * self.plan.links + to.link
    }

    /// All addresses that a host may have.
    fn doors(&self, slot: Slot) -> impl Iterator<Item = Door> + use<> {
        (0..self.plan.links).map(move |link| Door { slot, link })
    }

    /// Whether nothing passes from one host to another: cut, or without power.
    fn is_blocked(&self, from: Slot, to: Door) -> bool {
        from != to.slot && (self.path(from, to).blocked.is_some() || !self.hosts[to.slot].powered)
    }

    /// Since when nothing passes in one of the directions between a host and another's address.
    fn cut_since(&self, a: Slot, b: Door) -> Option<Micros> {
        match (self.path(a, b).blocked, self.path(b.slot, b.facing(a)).blocked) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    fn latency(&mut self, from: Slot, to: Slot) -> Micros {
        if from == to {
            return 20;
        }
        let (far, further) = self.network.far;
        let between_sites = if (from < far) == (to < far) { 0 } else { further };
        self.network.latency + between_sites + self.random.below(self.network.jitter + 1)
    }

    /// When the last of these bytes would leave a path's sender, with the line's bandwidth and clogs.
    fn line_done(&self, from: Slot, to: Door, bytes: usize) -> Micros {
        let Some(takes) = (bytes as u64 * 1_000_000).checked_div(self.network.bytes_per_s) else {
            return self.now;
        };
        self.path(from, to).free_at.max(self.now) + takes
    }

    /// The line is taken until then. What finds no room in a queue never gets here: it takes none of the
    /// line's time.
    fn take_line(&mut self, from: Slot, to: Door, until: Micros) {
        self.path_mut(from, to).free_at = until;
    }

    fn trouble(&mut self, process: ProcessId, to: Door, trouble: PathTrouble, at: Micros) {
        // What a host does on a link on which it has no address comes from its last one.
        let link = to.link.min(self.plan.links_of(to.slot) - 1);
        self.agenda.add(
            at,
            Happening::Input(
                process,
                Input::Trouble {
                    to: addr_on(to.slot, link),
                    trouble,
                },
            ),
        );
    }
}

/// A slot's first address.
pub fn addr_of(slot: Slot) -> SocketAddr {
    addr_on(slot, 0)
}

/// A slot's address on a link.
pub fn addr_on(slot: Slot, link: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(10, link as u8, (slot / 200) as u8, (slot % 200) as u8 + 1);
    SocketAddr::new(IpAddr::V4(ip), 7400)
}

/// The slot and link of this address, if it is one of the plan's.
fn door_of(addr: SocketAddr, plan: &Plan) -> Option<Door> {
    (0..plan.slots)
        .flat_map(|slot| (0..plan.links_of(slot)).map(move |link| Door { slot, link }))
        .find(|door| addr_on(door.slot, door.link) == addr)
}
