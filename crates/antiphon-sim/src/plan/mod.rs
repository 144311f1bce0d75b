//! Plans: what shall happen in a run, as plain data.
//!
//! A plan is drawn from a seed by [`named`], or written by hand. Nothing in it is a closure, so that the
//! shrinker can leave steps out and try again, and a failing run can be shown.

mod library;
mod swarm;

use antiphon_core::{EngineKind, GroupOptions, Policy, Profile};

use crate::agenda::Micros;
use crate::trace::Slot;

pub use library::{NAMES, named, named_on, runs_on};

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its name.
    pub name: &'static str,
    /// Places where nodes may run. The first `seeds` of them are the configured seeds.
    pub slots: usize,
    /// How many of the slots every node is told as seeds.
    pub seeds: usize,
    /// How they find each other, if they have no seeds.
    pub hinted: Option<Hinted>,
    /// How many addresses a node has.
    pub links: usize,
    /// The slots that have only the first of them.
    pub single: Vec<Slot>,
    /// Whether some link works between any two hosts at any time, and nothing else happens to them: then no
    /// view may lose anyone, and messages go on.
    pub never_apart: bool,
    /// If faults hit some hosts alone: which. No view may lose anyone else.
    pub faulty: Option<Faulty>,
    /// The votes of the node at each slot; one where this says nothing.
    pub weights: Vec<u16>,
    /// Slots whose nodes do without the lease of the primary.
    pub unleased: Vec<Slot>,
    /// Whether a node that was removed joins again.
    pub rejoin: bool,
    /// Whether the direct paths between any two hosts work at any time, or those over one host between them,
    /// and nothing else happens to them: then no view may lose anyone, and messages go on.
    pub bridged: bool,
    /// Pairs, from and to, between which multicast does not pass.
    pub deaf: Vec<(Slot, Slot)>,
    /// Slots from which none can be sent.
    pub silent: Vec<Slot>,
    /// If nothing but multicast can fail: how long a message may take once its sender knows which members
    /// hear it.
    pub prompt: Option<Micros>,
    /// If processes start and end and nothing else happens: how long a group may take for the view that
    /// follows a node view.
    pub follows_within: Option<Micros>,
    /// If all paths work: from then on no frame may go through another node, whatever happened to processors
    /// before.
    pub nothing_passes_from: Option<Micros>,
    /// If nodes come and leave in order, and nothing else happens: how long after it was asked one may still
    /// be in a view.
    pub leaves_within: Option<Micros>,
    /// The membership engine of the nodes.
    pub membership: EngineKind,
    /// The partition policy of the nodes.
    pub policy: Policy,
    /// Whether every step of every ballot is kept for the checkers. A thousand nodes have no room for it.
    pub trail: bool,
    /// How many rings the cut engine has: ten, or few enough that views of few nodes are wide.
    pub rings: usize,
    /// By how much clocks run too fast or too slow at most, in a million.
    pub drift_ppm: u32,
    /// Whether each node has a witness, and a key, which that needs.
    pub witness: Option<Witnessing>,
    /// Timing of the nodes.
    pub profile: Profile,
    /// What carries frames.
    pub transport: Transport,
    /// The network as it is between faults.
    pub network: Network,
    /// The groups; every node joins the groups that [`GroupPlan::members`] says.
    pub groups: Vec<GroupPlan>,
    /// The group whose members are replicas of a machine, if there is one. Nothing else is sent to it.
    pub replicated: Option<Replicated>,
    /// The group whose members call each other, if there is one. Nothing else is sent to it.
    pub calling: Option<Calling>,
    /// The group whose members have clients, if there is one. Nothing else is sent to it.
    pub hosting: Option<Hosting>,
    /// What the applications do.
    pub load: Load,
    /// What happens, by time.
    pub steps: Vec<Step>,
    /// When the steps are over and the liveness phase begins.
    pub duration: Micros,
    /// What must come true after that.
    pub liveness: Liveness,
}

impl Default for Plan {
    /// Three nodes with streams, one address each, that are one another's seeds; no group, no load, no
    /// faults, and nothing demanded.
    fn default() -> Self {
        Self {
            name: "by hand",
            slots: 3,
            seeds: 3,
            hinted: None,
            links: 1,
            single: Vec::new(),
            never_apart: false,
            faulty: None,
            weights: Vec::new(),
            unleased: Vec::new(),
            rejoin: true,
            bridged: false,
            deaf: Vec::new(),
            silent: Vec::new(),
            prompt: None,
            follows_within: None,
            leaves_within: None,
            nothing_passes_from: None,
            membership: EngineKind::Coordinator,
            policy: Policy::Majority,
            trail: true,
            rings: 10,
            drift_ppm: 200,
            witness: None,
            profile: Profile::lan(),
            transport: Transport::Stream,
            network: Network::default(),
            groups: Vec::new(),
            replicated: None,
            calling: None,
            hosting: None,
            load: Load {
                every: 0,
                ..Load::default()
            },
            steps: Vec::new(),
            duration: 0,
            liveness: Liveness::None,
        }
    }
}

impl Plan {
    /// The votes of the node at a slot.
    pub fn weight_of(&self, slot: Slot) -> u16 {
        self.weights.get(slot).copied().unwrap_or(1)
    }

    /// How many addresses the node at a slot has.
    pub fn links_of(&self, slot: Slot) -> usize {
        if self.single.contains(&slot) {
            1
        } else {
            self.links
        }
    }
}

/// Hosts that something is wrong with, while all others are well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faulty {
    /// Which.
    pub slots: Vec<Slot>,
    /// Whether all of them must be gone at the end.
    pub removed: bool,
    /// In how many views they may go at most.
    pub views: usize,
    /// Whether they are cut off at the end, and must not believe any more that they are in the primary view.
    pub cut_off: bool,
    /// From when on no other one may stop believing in its view, if that is demanded.
    pub leased_from: Option<Micros>,
}

/// Supervisors that keep what their nodes voted (R10).
#[derive(Debug, Clone)]
pub struct Witnessing {
    /// So often a last-vote record cannot be written, and nothing is left.
    pub fails_percent: u32,
}

/// Nodes without seeds: each is told at run time which nodes to ask.
#[derive(Debug, Clone)]
pub struct Hinted {
    /// How many nodes must be there to found.
    pub expect: u16,
    /// For each slot, the nodes that its node is told of from its start on. Slots above all others are
    /// addresses without a node.
    pub told: Vec<Vec<Slot>>,
    /// How many locators there are, on hosts behind those of the nodes. Every node is told of all.
    pub locators: usize,
}

/// What is demanded at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Nothing.
    None,
    /// All faults are taken back; where the rules allow progress, it is demanded within this time.
    Within(Micros),
    /// The same, and the dead stay dead: the survivors must be a primary although they may be fewer than
    /// half.
    SurvivorsWithin(Micros),
}

/// What carries frames between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Each frame for itself: lost, doubled, late, damaged.
    Datagram,
    /// A connection per pair and class, as two kernels keep it (R25).
    Stream,
}

/// The network between two hosts. Chances are in a million.
#[derive(Debug, Clone)]
pub struct Network {
    /// The least time a frame takes.
    pub latency: Micros,
    /// And up to this much more.
    pub jitter: Micros,
    /// So many of the first hosts are at a site far away. A frame between them and the others takes so much
    /// longer.
    pub far: (Slot, Micros),
    /// A packet is lost: a datagram for good, what carries a stream until it is sent again.
    pub loss_ppm: u32,
    /// Datagram: arrives twice.
    pub duplicate_ppm: u32,
    /// Datagram: held back so that later ones overtake it.
    pub reorder_ppm: u32,
    /// How long at most a frame is held back for that.
    pub reorder_within: Micros,
    /// Datagram: arrives once more, much later (across views).
    pub replay_ppm: u32,
    /// How much later at most.
    pub replay_within: Micros,
    /// Datagram: some bits flipped.
    pub corrupt_ppm: u32,
    /// Datagram: cut short.
    pub truncate_ppm: u32,
    /// Stream: the connection breaks at this frame.
    pub break_ppm: u32,
    /// A frame by multicast is missed by a receiver, whatever the others get.
    pub cast_loss_ppm: u32,
    /// Bytes a second on each path; 0 is unlimited.
    pub bytes_per_s: u64,
    /// Bytes a path or a connection holds before it drops or refuses more.
    pub buffer_bytes: usize,
    /// Bytes a lifeline's kernel buffers hold.
    pub lifeline_bytes: usize,
    /// A connection with unanswered data breaks after this.
    pub user_timeout: Micros,
    /// A silent lifeline breaks after this.
    pub keepalive: Micros,
    /// A lifeline between these passes a proxy with this chance.
    pub proxy_percent: u32,
    /// A datagram to a dead process is answered with ICMP with this chance.
    pub icmp_percent: u32,
}

/// Whether probes pass on a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Probes {
    /// If anything does.
    #[default]
    AsFrames,
    /// Whatever else does: a firewall drops TCP, and passes UDP.
    Pass,
    /// Whatever else does: a firewall drops UDP.
    Blocked,
}

/// No member may count on a path that loses so much, nor on a way that leads over it: of a thousand
/// heartbeats one is missed three times in a row.
pub(crate) const HARDLY_A_PATH_PPM: u32 = 100_000;

impl Network {
    /// Whether it may well lose or delay so much that silence is no sign of anything.
    pub(crate) fn is_rough(&self) -> bool {
        self.loss_ppm >= HARDLY_A_PATH_PPM
            || self.bytes_per_s > 0
            || self.latency + self.jitter + self.reorder_within > 100_000
            || self.corrupt_ppm + self.truncate_ppm + self.break_ppm > 50_000
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            latency: 100,
            jitter: 200,
            far: (0, 0),
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_within: 5_000,
            replay_ppm: 0,
            replay_within: 8_000_000,
            corrupt_ppm: 0,
            truncate_ppm: 0,
            break_ppm: 0,
            cast_loss_ppm: 0,
            bytes_per_s: 0,
            buffer_bytes: 1 << 20,
            lifeline_bytes: 64 << 10,
            user_timeout: 10_000_000,
            keepalive: 30_000_000,
            proxy_percent: 0,
            icmp_percent: 50,
        }
    }
}

/// A group of the plan.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: GroupOptions,
    /// Which slots join it at their start.
    pub members: Vec<Slot>,
}

/// A group whose members are replicas, and what their clients do.
#[derive(Debug, Clone)]
pub struct Replicated {
    /// Which; it is in total order.
    pub group: usize,
    /// How many clients each member has. Each has one request at a time.
    pub clients: u64,
    /// The time between two requests of a member.
    pub every: Micros,
    /// How many keys, locks and counters there are.
    pub names: u64,
    /// Bytes of a value, at most.
    pub value_bytes: usize,
    /// In a hundred: entries with a time to live.
    pub expiring_percent: u32,
    /// In a hundred: requests that are about locks.
    pub locks_percent: u32,
    /// Whether what replicas send to the group is safe: then no answer is undone (G45).
    pub safe: bool,
    /// [`antiphon_replica::Config::held_bytes`].
    pub held_bytes: usize,
    /// [`antiphon_replica::Config::spill_bytes`]; 0: joiners have no file.
    pub spill_bytes: u64,
    /// The time that one operation on the file takes, at most; and to read a piece of the state for a joiner.
    pub disk: Micros,
    /// In a hundred: operations that fail.
    pub disk_fails_percent: u32,
    /// [`antiphon_replica::Config::digest_every`].
    pub digest_every: u64,
    /// [`antiphon_replica::Config::found_anew`].
    pub found_anew: bool,
}

/// A group whose members have clients.
#[derive(Debug, Clone)]
pub struct Hosting {
    /// Which.
    pub group: usize,
    /// The time between two deeds of a member's programs.
    pub every: Micros,
    /// The most clients of a member.
    pub most: usize,
}

/// A group whose members call each other, and what they ask.
#[derive(Debug, Clone)]
pub struct Calling {
    /// Which; of any order.
    pub group: usize,
    /// The time between two calls of a member.
    pub every: Micros,
    /// How many verbs there are; most members serve most of them.
    pub verbs: u64,
    /// Bytes of a request or a reply, at most.
    pub bytes: usize,
    /// The time that a call may take, at most.
    pub deadline: Micros,
    /// The time that a handler takes, at most.
    pub takes: Micros,
    /// In a hundred: handlers that answer with an error.
    pub error_percent: u32,
    /// In a hundred: handlers that never answer.
    pub silent_percent: u32,
    /// In a hundred: handlers that call others before they answer.
    pub nested_percent: u32,
    /// In a hundred: calls that their caller cancels.
    pub cancel_percent: u32,
    /// [`antiphon_replica::calls::Config::max_running`].
    pub max_running: usize,
    /// [`antiphon_replica::calls::Config::max_queued`].
    pub max_queued: usize,
    /// How far an application may be behind with what its group tells it, while it calls and answers.
    pub lag: Micros,
}

/// What the applications do.
#[derive(Debug, Clone)]
pub struct Load {
    /// The time between two messages of one node; 0 sends nothing.
    pub every: Micros,
    /// Bytes of a payload.
    pub bytes: usize,
    /// In a hundred: messages of [`Load::large_bytes`].
    pub large_percent: u32,
    /// Bytes of the large ones.
    pub large_bytes: usize,
    /// In a hundred: objects of [`Load::object_bytes`].
    pub object_percent: u32,
    /// Bytes of an object; more than a message may have.
    pub object_bytes: usize,
    /// In a hundred: safe messages.
    pub safe_percent: u32,
    /// In a hundred: times when a member is told something besides.
    pub tell_percent: u32,
    /// The most bytes of a direct message.
    pub tell_bytes: usize,
    /// Whether applications take what they are given part by part.
    pub in_parts: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            every: 50_000,
            bytes: 200,
            large_percent: 0,
            large_bytes: 20_000,
            object_percent: 0,
            object_bytes: 300_000,
            safe_percent: 0,
            tell_percent: 0,
            tell_bytes: 200,
            in_parts: false,
        }
    }
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub struct Step {
    /// When.
    pub at: Micros,
    /// What.
    pub action: Action,
}

/// A node, named when the step happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The one at this slot.
    Slot(Slot),
    /// The member of this rank of the latest primary view that any live process has, counted from the elder.
    Rank(usize),
    /// The most junior member of that view.
    Youngest,
    /// The first member of the latest view of the first group.
    Leader,
}

/// What a step does. A step whose node is not there (or is, for a start) does nothing.
#[derive(Debug, Clone)]
pub enum Action {
    /// A process starts at the slot.
    Start(Slot),
    /// kill −9.
    Crash(Who),
    /// kill −9 at its n-th output from now on: between any two steps of a protocol.
    CrashAtOutput(Who, u32),
    /// kill −9 at its n-th output after the next node or group view it installs.
    CrashAfterView(Who, u32),
    /// The host loses power.
    PowerOff(Who),
    /// A graceful leave.
    Leave(Who),
    /// The node leaves a group of the plan.
    LeaveGroup(Who, usize),
    /// The node joins a group of the plan (again).
    JoinGroup(Who, usize),
    /// SIGSTOP, and SIGCONT after this time.
    Pause(Who, Micros),
    /// Each input takes this long, for that long.
    Slow(Who, Micros, Micros),
    /// The application consumes nothing for this long.
    Stall(Who, Micros),
    /// Only slots of one list hear each other; slots in no list keep all their paths.
    Partition(Vec<Vec<Slot>>),
    /// Nothing from the first list reaches the second.
    OneWay(Vec<Slot>, Vec<Slot>),
    /// Of a million packets from the first list to the second, so many are lost.
    Lossy(Vec<Slot>, Vec<Slot>, u32),
    /// Whether probes of the first list pass to the second.
    Probes(Vec<Slot>, Vec<Slot>, Probes),
    /// Cuts one pair.
    CutPair(Slot, Slot),
    /// Cuts one pair as a firewall does that answers with resets.
    Reject(Slot, Slot),
    /// Nothing from the first list reaches the second on one link.
    CutLink(Vec<Slot>, Vec<Slot>, usize),
    /// Cuts one link of a pair as a firewall does that answers with resets.
    RejectLink(Slot, Slot, usize),
    /// One link of a pair is cut and healed by turns of this length, until that time has passed.
    FlapLink(Slot, Slot, usize, Micros, Micros),
    /// From now on the second does not get, or gets again, what the first sends by multicast.
    Deafen(Slot, Slot, bool),
    /// Cuts a node off from all others.
    Isolate(Who),
    /// All paths work again.
    Heal,
    /// The path stops for this long, then all comes at once.
    Clog(Slot, Slot, Micros),
    /// The pair is cut and healed by turns of this length, until that time has passed.
    Flap(Slot, Slot, Micros, Micros),
    /// All connections between the two break.
    ResetStreams(Slot, Slot),
    /// All lifelines between the two break by a reset.
    ResetLifelines(Slot, Slot),
    /// A proxy on the lifelines of the two ends: the watcher sees a FIN although the process lives.
    ProxyEnds(Slot, Slot),
    /// This many frames of garbage from outside.
    Garbage(Who, u32),
    /// For this long the node gets all that others send each other as well, from an address without a node.
    Astray(Who, Micros),
    /// A process of a foreign cluster starts at the slot, if it is free, and ends after this time.
    Foreign(Slot, Micros),
    /// Another network from now on.
    Network(Box<Network>),
    /// From now on the node at a slot is told of these, and of no others.
    Tell(Slot, Vec<Slot>),
    /// A locator starts, with what the last one there knew, or without.
    StartLocator(usize, bool),
    /// A locator's process ends, or its host loses power.
    EndLocator(usize, bool),
    /// An operator has the node go on alone, if it may (R11).
    Recover(Who),
}

impl Action {
    /// The fault's kind, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Action::Start(_) => "start",
            Action::Crash(_) => "crash",
            Action::CrashAtOutput(..) => "crash_at_output",
            Action::CrashAfterView(..) => "crash_after_view",
            Action::PowerOff(_) => "power_off",
            Action::Leave(_) => "leave",
            Action::LeaveGroup(..) => "leave_group",
            Action::JoinGroup(..) => "join_group",
            Action::Pause(..) => "pause",
            Action::Slow(..) => "slow",
            Action::Stall(..) => "consumer_stall",
            Action::Partition(_) => "partition",
            Action::OneWay(..) => "one_way",
            Action::Lossy(..) => "lossy",
            Action::Probes(..) => "probes",
            Action::CutPair(..) => "cut_pair",
            Action::Reject(..) => "reject",
            Action::CutLink(..) => "cut_link",
            Action::RejectLink(..) => "reject_link",
            Action::FlapLink(..) => "flap_link",
            Action::Deafen(..) => "deafen",
            Action::Isolate(_) => "isolate",
            Action::Heal => "heal",
            Action::Clog(..) => "clog",
            Action::Flap(..) => "flap",
            Action::ResetStreams(..) => "reset_streams",
            Action::ResetLifelines(..) => "reset_lifelines",
            Action::ProxyEnds(..) => "proxy_ends",
            Action::Garbage(..) => "garbage",
            Action::Astray(..) => "astray",
            Action::Foreign(..) => "foreign_cluster",
            Action::Network(_) => "network",
            Action::Tell(..) => "tell",
            Action::StartLocator(..) => "start_locator",
            Action::EndLocator(..) => "end_locator",
            Action::Recover(_) => "recover",
        }
    }
}
