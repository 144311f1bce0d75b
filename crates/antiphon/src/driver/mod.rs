//! The driver: one task per node that owns the core and the transport.
//!
//! ```text
//!   commands ─┐                        ┌─► transport (frames, lifelines: in the core's order)
//!   wake-ups ─┤                        │
//!   inputs ───┼─► batch ─► core ─► drain outputs ─► drain events ─► streams, receipts, views
//!   timer ────┘                                                            │
//!      ▲                                                                   │
//!      └── credit for what the application took ◄──────────────────────────┘
//! ```
//! A turn takes everything that is ready (bounded), hands it to the core, and performs what the core wants,
//! once. It never waits for an application: what a slow application has not read stays in its inbox, and
//! credit bounds what may be there.
//!
//! # Invariants
//! - Outputs are performed in order; a lifeline write is done before any later frame is handed over (R2).
//! - Credit goes back only for messages taken by the application, or discarded because it gave up the group.
//! - When the driver ends, in whatever way, it first closes every handle, and only then drops the transport:
//!   a handle that still works always belongs to a node that still lives (R9). When the transport has gone,
//!   and the ports are free, the node says that it has stopped.

mod agents;
mod alarm;
mod clock;
mod groups;
mod outgrown;
mod people;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::{Cause, NodeView, Subview};
use antiphon_core::{
    Alone, Config, EngineKind, Event as CoreEvent, GroupHandle, GroupOptions, Hints, LifelineEvent,
    LinkCause, Node, Output, PeerLinks, Time,
};
use antiphon_net::witness::LastVoteRecord;
use antiphon_net::{Fault, Faults, Input, Inputs, Lack, Transport};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::{ClusterShared, Command, Examined};
use crate::discovery::Tasks;
use crate::files::{FILES_OF_A_PROCESS, files_of_a_node};
use crate::group::{GroupShared, Membership, Unclaimed};
use crate::host::Host;
use crate::lacks::Lacks;
use crate::{ClusterEvent, Error, Part, Phase, Status};
use agents::Agents;
use alarm::Alarm;
pub(crate) use clock::Bound;
use clock::Clock;
use groups::GroupDriver;
use outgrown::Outgrown;
use people::People;

/// Network inputs handled before their outputs are performed.
const INPUTS_PER_TURN: usize = 256;
/// How long a leaving node waits for its groups to take what the application had sent.
const FLUSH_OUTBOXES: Duration = Duration::from_secs(1);
/// How long frames that were queued at the end may take to leave.
const LINGER: Duration = Duration::from_millis(500);

/// What a driver starts with.
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) host: Host,
    pub(crate) seed: [u64; 4],
    pub(crate) allow_faults: bool,
    pub(crate) last_vote: Option<LastVoteRecord>,
    pub(crate) discovery: Option<Tasks>,
}

/// Owns one node. Dropped, it closes all handles and resets all lifelines.
pub(crate) struct Driver {
    node: Node,
    clock: Clock,
    alarm: Alarm,
    /// Until when applications may take what was delivered (R7).
    bound: Arc<Bound>,
    shared: Arc<ClusterShared>,
    /// `None` only while the node ends.
    transport: Option<Box<dyn Transport>>,
    inputs: Inputs,
    commands: mpsc::Receiver<Command>,
    groups: BTreeMap<GroupHandle, GroupDriver>,
    people: People,
    outgrown: Outgrown,
    /// What the host refuses this node.
    lacks: Lacks,
    agents: Agents,
    /// How many nodes it was told to expect.
    expected: usize,
    engine: EngineKind,
    /// The components that meet in the view that is about to come.
    merging: Vec<Subview>,
    /// The lease is back, and nobody was told yet.
    lease_back: bool,
    /// The tasks that find others at run time, if the settings give any.
    discovery: Option<Tasks>,
    allow_faults: bool,
    /// What its witness keeps, if it has one (R10).
    last_vote: Option<LastVoteRecord>,
    life: Life,
}

/// How far the node is on its way out.
enum Life {
    Running,
    /// For a while the driver still hands accepted messages to the core; then the core leaves. The callers of
    /// `leave` are answered at the end.
    Leaving {
        replies: Vec<oneshot::Sender<()>>,
        core_leaves_by: Option<Time>,
    },
    /// In order: frames still queued may leave.
    Left {
        replies: Vec<oneshot::Sender<()>>,
    },
    /// At once.
    Aborted,
}

impl Driver {
    pub(crate) fn new(
        settings: Settings,
        shared: Arc<ClusterShared>,
        transport: Box<dyn Transport>,
        inputs: Inputs,
        commands: mpsc::Receiver<Command>,
    ) -> Result<Self, Error> {
        let clock = Clock::start(settings.host.clone());
        let outgrown = Outgrown::new(settings.config.engine);
        let expected = (settings.config.seeds.len()).max(usize::from(settings.config.expect.unwrap_or(1)));
        let engine = settings.config.engine;
        let node = Node::new(settings.config, settings.seed, clock.now())?;
        Ok(Self {
            node,
            bound: Arc::new(clock.bound()),
            clock,
            alarm: Alarm::new(&settings.host).map_err(|source| Error::Timer { source })?,
            shared,
            transport: Some(transport),
            inputs,
            commands,
            groups: BTreeMap::new(),
            people: People::default(),
            outgrown,
            lacks: Lacks::default(),
            agents: Agents::default(),
            expected,
            engine,
            merging: Vec::new(),
            lease_back: false,
            discovery: settings.discovery,
            allow_faults: settings.allow_faults,
            last_vote: settings.last_vote,
            life: Life::Running,
        })
    }

    /// Runs until the node has left, was given up, or lost its transport.
    pub(crate) async fn run(mut self) {
        let mut inputs = Vec::with_capacity(INPUTS_PER_TURN);
        if let Some(discovery) = &mut self.discovery {
            self.node.set_hints(self.clock.now(), discovery.hints());
        }
        self.perform();
        while matches!(self.life, Life::Running | Life::Leaving { .. }) {
            let deadline = self.next_deadline();
            if let Some(deadline) = deadline {
                self.alarm.set(&self.clock, deadline);
            }
            // In this order, so that a simulated run repeats. A turn takes commands, wake-ups and deadlines
            // whatever came first; only what discovery finds would wait for a pause in the inputs.
            tokio::select! {
                biased;
                hints = changed(&mut self.discovery) => {
                    let now = self.clock.now();
                    self.node.set_hints(now, hints);
                }
                received = self.inputs.recv_many(&mut inputs, INPUTS_PER_TURN) => {
                    if received == 0 {
                        tracing::error!(target: "antiphon::net", "the transport has stopped; so does the node");
                        self.life = Life::Aborted;
                    }
                }
                command = self.commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => self.life = Life::Aborted,
                },
                () = self.shared.wake.notify.notified() => {}
                () = self.alarm.rings(&self.clock) => {}
            }
            self.turn(&mut inputs, deadline);
        }
        self.end().await;
    }

    /// `deadline` is when the core wanted to be called at the latest, as it said before these inputs came.
    fn turn(&mut self, inputs: &mut Vec<Input>, deadline: Option<Time>) {
        if self.shared.is_aborted() {
            self.life = Life::Aborted;
            return;
        }
        while let Ok(command) = self.commands.try_recv() {
            self.command(command);
        }
        for handle in self.shared.wake.take() {
            self.serve_application(handle);
        }
        for input in inputs.drain(..) {
            let now = self.clock.now();
            match input {
                Input::Lack { lack } => self.lacking(now, lack),
                Input::AgentPort { to } => self.agents.note(&self.shared.settings.name, to),
                input => handle_input(&mut self.node, now, input),
            }
        }
        let now = self.clock.now();
        let due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        // If an input of this turn made a deadline due, it is handled in the next turn, which comes at once.
        if due(deadline) && due(self.node.poll_timeout()) {
            self.node.handle_timeout(now);
        }
        self.leave_when_flushed(now);
        self.perform();
    }

    fn leave_when_flushed(&mut self, now: Time) {
        if let Life::Leaving { core_leaves_by, .. } = &mut self.life
            && let Some(deadline) = *core_leaves_by
            && (now >= deadline || self.groups.values().all(|group| !group.shared.has_unsent()))
        {
            *core_leaves_by = None;
            self.node.leave(now);
        }
    }

    /// Whether the core was told to leave.
    fn core_leaves(&self) -> bool {
        matches!(
            self.life,
            Life::Leaving {
                core_leaves_by: None,
                ..
            }
        )
    }

    /// When the driver has something to do even if nothing happens.
    fn next_deadline(&self) -> Option<Time> {
        let flush = match self.life {
            Life::Leaving { core_leaves_by, .. } => core_leaves_by,
            _ => None,
        };
        self.node.poll_timeout().into_iter().chain(flush).min()
    }

    /// Does what the core wants, until it wants nothing more.
    fn perform(&mut self) {
        loop {
            // A vote that ends the lease leaves only after the lease has ended for the readers of messages.
            self.bound.lower(self.node.delivers_until());
            self.perform_outputs();
            let mut idle = true;
            while let Some(event) = self.node.poll_event() {
                idle = false;
                self.event(event);
            }
            if idle {
                self.bound_deliveries();
                // Whoever is told may act on it at once.
                if std::mem::take(&mut self.lease_back) {
                    self.shared.hub().publish(ClusterEvent::Lease { held: true });
                }
                return;
            }
        }
    }

    /// R7: the application may take what was delivered for as long as the node may deliver.
    fn bound_deliveries(&mut self) {
        let was_over = self.bound.set(self.node.delivers_until());
        if was_over && !self.bound.is_over() {
            self.groups.values().for_each(|group| group.shared.tell_reader());
            // A node that is a quorum by itself renews its lease before it finds that it was over. The clock
            // has refused messages meanwhile, and the application waits for a word to send them again.
            self.lease_back |= self.shared.hub().has_lease() && !self.core_leaves();
        }
    }

    /// R7: what the application has not taken before the lease was over belongs to a state that the others
    /// have left behind.
    fn discard_late(&self) {
        if self.bound.is_over() {
            let groups = self.groups.values();
            groups.for_each(|group| group.shared.discard_late());
        }
    }

    fn perform_outputs(&mut self) {
        let Some(transport) = &mut self.transport else {
            return;
        };
        while let Some(output) = self.node.poll_output() {
            match output {
                Output::Frame { to, class, frame } => transport.send(to, class, frame),
                Output::Multicast { frame } => transport.multicast(frame),
                Output::Probe { to, frame } => transport.probe(to, frame),
                Output::Lifeline(command) => {
                    if let Some(event) = transport.lifeline(command) {
                        tell_lifeline(&mut self.node, self.clock.now(), event);
                    }
                }
                Output::LastVoteRecord { sealed } => {
                    let left = self
                        .last_vote
                        .as_ref()
                        .map(|last_vote| last_vote.leave(sealed.as_deref()));
                    if let Some(Err(error)) = left {
                        tracing::error!(target: "antiphon::membership", node = %self.shared.settings.name, %error, "cannot take an earlier vote away from the witness, which would pass for the last: the node stops");
                        // R2: the vote that was not written, and all after it, must not leave the process.
                        self.transport = None;
                        self.life = Life::Aborted;
                        return;
                    }
                }
            }
        }
        transport.flush();
    }

    fn event(&mut self, event: CoreEvent) {
        match event {
            CoreEvent::Group(handle, event) => self.group_event(handle, event),
            CoreEvent::NodeView(view) => {
                log_view(&self.shared.settings.name, &view);
                if let Some(advice) = self.outgrown.advice(view.members.len()) {
                    tracing::warn!(target: "antiphon::membership", node = %self.shared.settings.name, "{advice}");
                }
                self.people.learn(&view);
                let subviews = std::mem::take(&mut self.merging);
                if !subviews.is_empty() {
                    let parts: Vec<Part> = subviews.iter().map(|part| self.people.part(part)).collect();
                    log_merge(&self.shared.settings.name, &parts);
                    self.shared.hub().publish(ClusterEvent::Merge { parts });
                }
                if let Some(discovery) = &self.discovery {
                    discovery.settle(view.is_primary());
                }
                self.shared.hub().publish(ClusterEvent::View(view));
            }
            // Told with the names from the view, which follows at once.
            CoreEvent::Merge { subviews } => self.merging = subviews,
            CoreEvent::Incarnation(incarnation) => {
                tracing::debug!(target: "antiphon::membership", node = %self.shared.settings.name, %incarnation, "new incarnation");
                if let Some(discovery) = &self.discovery {
                    discovery.settle(false);
                }
                self.shared.hub().publish(ClusterEvent::Incarnation(incarnation));
            }
            CoreEvent::Forming {
                missing,
                rejecting,
                awaits,
            } => {
                tracing::info!(target: "antiphon::membership", node = %self.shared.settings.name, ?missing, ?rejecting, ?awaits, "forming");
                let agents = self.agents.among(&rejecting);
                self.shared.hub().publish(ClusterEvent::Forming {
                    missing,
                    rejecting,
                    agents,
                    awaits,
                });
            }
            CoreEvent::Alone { reason } => {
                let node = &self.shared.settings.name;
                match reason {
                    // The settings say so in as many words.
                    Alone::Told => {
                        tracing::info!(target: "antiphon::membership", %node, %reason, "founds a cluster of itself alone");
                    }
                    _ => {
                        tracing::warn!(target: "antiphon::membership", %node, %reason, "founds a cluster of itself alone");
                    }
                }
                self.shared.hub().publish(ClusterEvent::Alone { reason });
            }
            CoreEvent::Refused { reason, fatal } => {
                tracing::warn!(target: "antiphon::membership", node = %self.shared.settings.name, %reason, fatal, "refused");
                self.shared.hub().publish(ClusterEvent::Refused { reason, fatal });
            }
            // `Expelled` would tell readers that the node goes on as a new incarnation. It does not: `Left`
            // follows.
            CoreEvent::Expelled { cause } if self.core_leaves() => {
                tracing::info!(target: "antiphon::membership", node = %self.shared.settings.name, %cause, "removed while it was leaving");
                self.discard_late();
            }
            CoreEvent::Expelled { cause } => {
                tracing::warn!(target: "antiphon::membership", node = %self.shared.settings.name, %cause, "expelled while alive");
                self.discard_late();
                self.shared.hub().publish(ClusterEvent::Expelled { cause });
            }
            // The other members may be gone already: nothing is done in their name any more.
            CoreEvent::Lease { held } if self.core_leaves() => {
                tracing::debug!(target: "antiphon::membership", node = %self.shared.settings.name, held, "the lease, while leaving");
            }
            CoreEvent::Lease { held } => {
                self.lease_back = held;
                if held {
                    tracing::debug!(target: "antiphon::membership", node = %self.shared.settings.name, "believes in its view");
                } else {
                    tracing::warn!(target: "antiphon::membership", node = %self.shared.settings.name, "no majority answers: delivers nothing until one does, or a view follows");
                    self.shared.hub().publish(ClusterEvent::Lease { held });
                }
            }
            CoreEvent::Starved { missed, within } => {
                tracing::warn!(target: "antiphon::membership", node = %self.shared.settings.name, ?missed, ?within, "this node gets too little processor, or was stopped");
                self.shared
                    .hub()
                    .publish(ClusterEvent::Starved { missed, within });
            }
            CoreEvent::Path(path) => {
                let peer = self.people.member(path.peer);
                let through = path.sends_through.map(|via| self.people.member(via));
                let (node, name) = (&self.shared.settings.name, &peer.name);
                match &through {
                    Some(via) => {
                        let via = &via.name;
                        tracing::warn!(target: "antiphon::net", %node, peer = %name, %via, "no direct path: is sent to through another member");
                    }
                    None => {
                        tracing::info!(target: "antiphon::net", %node, peer = %name, "is sent to directly again");
                    }
                }
                self.shared.hub().publish(ClusterEvent::Path {
                    peer,
                    through,
                    hears_directly: path.hears_directly,
                    heard_directly: path.heard_directly,
                });
            }
            CoreEvent::Multicast { peer, hears } => {
                let peer = self.people.member(peer);
                let (node, name) = (&self.shared.settings.name, &peer.name);
                if hears {
                    tracing::info!(target: "antiphon::net", %node, peer = %name, "hears this node's multicast");
                } else {
                    tracing::warn!(target: "antiphon::net", %node, peer = %name, "does not hear this node's multicast: is sent to directly");
                }
                self.shared.hub().publish(ClusterEvent::Multicast { peer, hears });
            }
            CoreEvent::Link { links, number, cause } => {
                let peer = self.people.member(links.peer);
                log_link(&self.shared.settings.name, &peer.name, &links, number, cause);
                self.shared.hub().publish(ClusterEvent::Link {
                    peer,
                    links,
                    number,
                    cause,
                });
            }
            CoreEvent::Left => {
                tracing::info!(target: "antiphon::membership", node = %self.shared.settings.name, "left");
                self.shared.hub().publish(ClusterEvent::Left);
                let replies = match std::mem::replace(&mut self.life, Life::Aborted) {
                    Life::Leaving { replies, .. } | Life::Left { replies } => replies,
                    Life::Running | Life::Aborted => Vec::new(),
                };
                self.life = Life::Left { replies };
            }
            _ => {}
        }
    }

    fn command(&mut self, command: Command) {
        let now = self.clock.now();
        // If the caller waits no more for the reply, that changes nothing, except for a group, which is left.
        match command {
            Command::JoinGroup { name, options, reply } => {
                let joined = self.join_group(now, &name, options);
                drop(reply.send(joined.map(|group| Unclaimed::new(group, self.shared.clone()))));
            }
            Command::Why { name, reply } => drop(reply.send(self.node.why(now, &name))),
            Command::Status { reply } => drop(reply.send(self.status(now))),
            Command::Examine { reply } => drop(reply.send(Box::new(self.examine(now)))),
            Command::Recovery { reply } => drop(reply.send(self.node.recovery(now))),
            Command::Recover { shown, reply } => {
                let done = self.node.recover(now, &shown);
                drop(
                    reply.send(
                        done.and_then(|()| self.node.view().ok_or(antiphon_core::RecoveryError::NoView)),
                    ),
                );
            }
            Command::SetFaults { faults, reply } => drop(reply.send(self.set_faults(faults))),
            Command::Leave { reply } => match &mut self.life {
                Life::Leaving { replies, .. } | Life::Left { replies } => replies.push(reply),
                Life::Running => {
                    for group in self.groups.values() {
                        if group.shared.membership() == Membership::Member {
                            group.shared.set_membership(Membership::Leaving);
                        }
                    }
                    self.life = Life::Leaving {
                        replies: vec![reply],
                        core_leaves_by: Some(now + FLUSH_OUTBOXES),
                    };
                }
                Life::Aborted => {}
            },
        }
    }

    fn join_group(
        &mut self,
        now: Time,
        name: &str,
        options: GroupOptions,
    ) -> Result<Arc<GroupShared>, Error> {
        if let Some(joined) = self.groups.values().find(|group| group.shared.name == name) {
            let group = name.to_owned();
            return Err(match joined.is_leaving() {
                true => Error::StillLeaving { group },
                false => Error::AlreadyJoined { group },
            });
        }
        // Nothing is wrong with the group: the cluster may just have refused the node, and its events say so.
        if !self.node.is_running() {
            return Err(Error::Closed);
        }
        let handle = self.node.join_group(now, name, options)?;
        let group = GroupDriver::new(name, handle, &options, self.bound.clone());
        let shared = group.shared.clone();
        self.groups.insert(handle, group);
        Ok(shared)
    }

    fn set_faults(&mut self, faults: Vec<(String, Fault)>) -> Result<(), Error> {
        if !self.allow_faults {
            return Err(Error::FaultsNotAllowed);
        }
        let mut by_address = Faults::default();
        for (peer, fault) in faults {
            let addrs = match self.people.addresses(&peer) {
                Some(addrs) => addrs.to_vec(),
                None => vec![
                    peer.parse()
                        .map_err(|_| Error::UnknownPeer { name: peer.clone() })?,
                ],
            };
            by_address
                .peers
                .extend(addrs.into_iter().map(|addr| (addr, fault)));
        }
        tracing::warn!(target: "antiphon::net", node = %self.shared.settings.name, faults = ?by_address.peers, "injecting faults");
        if let Some(transport) = &mut self.transport {
            transport.set_faults(by_address);
        }
        Ok(())
    }

    fn status(&self, now: Time) -> Status {
        let view = self.node.view();
        let phase = match (&self.life, &view) {
            (Life::Running, None) => Phase::Forming,
            (Life::Running, Some(view)) if view.is_primary() => Phase::Primary,
            (Life::Running, Some(_)) => Phase::NonPrimary,
            _ => Phase::Leaving,
        };
        Status {
            cluster: self.shared.settings.cluster.clone(),
            name: self.shared.settings.name.clone(),
            addr: self.shared.addrs[0],
            incarnation: self.node.incarnation(),
            phase,
            view,
            groups: self.groups.values().map(GroupDriver::status).collect(),
            links: self.node.links(),
            paths: self.node.paths(now),
            transport: self
                .transport
                .as_ref()
                .map(|transport| transport.counters())
                .unwrap_or_default(),
            uptime: now.since(Time::ZERO),
        }
    }

    fn examine(&self, now: Time) -> Examined {
        Examined {
            status: self.status(now),
            inspection: self.node.inspect(now),
            lacks: self.lacks.present(now),
            agents: self.agents.all(),
            paths: self
                .transport
                .as_ref()
                .map(|transport| transport.paths())
                .unwrap_or_default(),
        }
    }

    /// The core is told nothing: it would take a lack of its host for trouble with other nodes.
    fn lacking(&mut self, now: Time, lack: Lack) {
        if !self.lacks.note(now, lack) {
            return;
        }
        let (node, remedy) = (&self.shared.settings.name, lack.remedy());
        match lack {
            Lack::Files => {
                let needed = self.files_needed();
                tracing::warn!(target: "antiphon::net", %node, needed, "cannot make or take connections: {lack}, and a node of this cluster takes up to {needed}; {remedy}, to {} or more", 2 * needed);
            }
            lack => {
                tracing::warn!(target: "antiphon::net", %node, "cannot make or take connections: {lack}; {remedy}");
            }
        }
    }

    /// Files that this process may have open, if this is its only node, as far as it knows its cluster. It
    /// joins groups later, perhaps.
    fn files_needed(&self) -> u64 {
        let members = self
            .node
            .view()
            .map_or(0, |view| view.members.len())
            .max(self.expected);
        let companions = members.saturating_sub(1).min(antiphon_core::MAX_GROUP_MEMBERS);
        FILES_OF_A_PROCESS + files_of_a_node(members, companions, self.engine)
    }

    async fn end(mut self) {
        let life = std::mem::replace(&mut self.life, Life::Aborted);
        self.close_handles();
        let linger = match life {
            Life::Left { .. } => LINGER,
            _ => Duration::ZERO,
        };
        if let Some(transport) = self.transport.take() {
            transport.close(linger).await;
        }
        self.shared.close();
        if let Life::Left { replies } = life {
            self.shared.see_guests_off().await;
            for reply in replies {
                // The caller that asked to leave may have stopped waiting.
                let _ = reply.send(());
            }
        }
    }

    /// R9: no handle works any more when the lifelines are reset.
    fn close_handles(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        let readers: Vec<_> = groups.values().map(|group| group.shared.clone()).collect();
        groups.into_values().for_each(|group| group.close());
        // One look at the clock decides: what is neither dropped nor readable would hold its reader for ever.
        // The bound is lifted only now: no handle may believe in a lease that never ends.
        if self.bound.is_over() {
            readers.iter().for_each(|reader| reader.discard_late());
        } else {
            self.bound.set(None);
        }
        readers.iter().for_each(|reader| reader.tell_reader());
        self.shared.close_handles();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.close_handles();
        self.transport = None;
        self.shared.close();
    }
}

/// What discovery has found, when that changes.
async fn changed(discovery: &mut Option<Tasks>) -> Hints {
    match discovery {
        Some(discovery) => discovery.changed().await,
        None => std::future::pending().await,
    }
}

fn handle_input(node: &mut Node, now: Time, input: Input) {
    match input {
        Input::Frames {
            from,
            connection,
            frames,
        } => {
            for frame in frames {
                // What comes behind the frame that ended a connection is not even opened.
                if connection.is_closed() {
                    break;
                }
                let handled = match connection.is_multicast() {
                    true => node.handle_multicast(now, from, frame),
                    false => node.handle_frame(now, from, frame),
                };
                match handled {
                    Ok(()) if node.made_nothing_of_it() => connection.made_nothing_of_it(),
                    Ok(()) => connection.accepted(),
                    Err(error) => connection.refused(error),
                }
            }
        }
        // Any host may have sent it, so the application is not told; the node counts it.
        Input::Probe { frame } => {
            let _ = node.handle_probe(now, frame);
        }
        Input::PathTrouble { to, trouble } => node.handle_path_trouble(now, to, trouble),
        // The driver's own business.
        Input::Lack { .. } | Input::AgentPort { .. } => {}
        Input::Lifeline {
            event,
            connection: None,
        } => tell_lifeline(node, now, event),
        Input::Lifeline {
            event,
            connection: Some(connection),
        } => match node.handle_lifeline(now, event) {
            Ok(()) => connection.accepted(),
            Err(error) => connection.refused(error),
        },
    }
}

/// Tells the core an event of a lifeline. The event carries no record, so the core cannot refuse it.
fn tell_lifeline(node: &mut Node, now: Time, event: LifelineEvent) {
    if let Err(error) = node.handle_lifeline(now, event) {
        tracing::debug!(target: "antiphon::net", ?error, "lifeline event refused");
    }
}

/// Logs a link that fails or returns, at a level that is shown by default: a person may have a cable to mend.
fn log_link(me: &str, peer: &str, links: &PeerLinks, number: usize, cause: LinkCause) {
    let (link, used) = (links.links[number].addr, links.links[links.in_use].addr);
    match cause {
        LinkCause::Works => {
            tracing::info!(target: "antiphon::net", node = me, peer, number, %link, %used, "a link works");
        }
        _ => {
            let up = links.links.iter().filter(|link| link.up).count();
            tracing::warn!(target: "antiphon::net", node = me, peer, number, %link, ?cause, %used, up, "a link has failed");
        }
    }
}

fn log_merge(me: &str, parts: &[Part]) {
    for part in parts {
        let members: Vec<&str> = part.members.iter().map(|member| member.name.as_str()).collect();
        tracing::warn!(target: "antiphon::membership", node = me, lineage = %part.lineage, view = %part.view, ?members, "a part of a merge");
    }
}

fn log_view(me: &str, view: &NodeView) {
    let names: Vec<&str> = view.members.iter().map(|member| member.name.as_str()).collect();
    let departed: Vec<String> = view
        .departed
        .iter()
        .map(|departure| {
            let how = match departure.cause {
                Cause::Left => "left",
                Cause::Crashed => "crashed",
                Cause::Unreachable { .. } => "unreachable",
                Cause::Superseded { .. } => "superseded",
                Cause::Overridden { .. } => "overridden",
                Cause::Separated { .. } => "separated",
            };
            format!("{} {how}", departure.member.name)
        })
        .collect();
    if let Some((lineage, of)) = view.overrides() {
        tracing::warn!(target: "antiphon::membership", node = me, left = %lineage, view = %of, "UNSAFE OVERRIDE: an operator had this node go on alone, as a new lineage");
    }
    tracing::info!(
        target: "antiphon::membership",
        node = me,
        view = %view.id,
        number = view.number,
        primary = view.is_primary(),
        members = ?names,
        departed = ?departed,
        "node view"
    );
}
