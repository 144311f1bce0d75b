//! The node: routes inputs to the layers and their effects to the outputs.
//!
//! ```text
//!  frame ─► codec ─► Discovery, Heartbeat ───────────────► membership ─► effects ┐
//!                ├─► Channel ─► channel ─► Membership message ─►      │                │
//!                │              └──► Group message ─► hold-back ─► groups ─► effects
//!                └─► Group data ─────────────────────────────────► groups        │
//!  outputs ◄── lifeline writes at once, then frames of this step ◄───────────────┘
//! ```
//!
//! Four rules live here because they join layers:
//! - **Vote before it travels (R2).** Effects are performed in order. Lifeline writes go to the output queue
//!   at once; channel messages are put into frames only when all effects of the step are done. So no frame
//!   overtakes a vote's record.
//! - **Hold-back (R13).** A group message names the primary view that its sender had installed. It is handed
//!   to the group layer only once this node has installed that view; until then the membership layer is asked
//!   to pull it. A message from a member that is no neighbour in that view waits too: channels deliver once.
//! - **One name for a peer.** All layers know a peer by its first address. The link in use replaces it only
//!   here, where frames and dials leave ([`crate::route`]), and where path troubles come in, back again.
//! - **Groups leave first.** A graceful leave leaves all groups, so that their flushes deliver what was
//!   accepted, and only then the cluster.

mod counters;
mod gate;
mod holdback;
mod incoming;
mod operator;
mod outgoing;
mod passing;
mod probes;
mod tested;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::frame::{self, FrameCodec, Kind, MAX_RECORDS_BYTES, OpenError};
use antiphon_wire::group::GroupControl;
use antiphon_wire::record::{Control, Record};
use antiphon_wire::{Block, Evidence, Incarnation, NodeView, ViewId};
use bytes::Bytes;

use crate::channel::Channels;
use crate::dissemination::air::Air;
use crate::group::{self, Groups};
use crate::inspection::{Lifeline, State};
use crate::membership::{self, Membership};
use crate::pace::Pace;
use crate::random::Random;
use crate::relay::Relay;
use crate::route::Routes;
use crate::{
    Class, Config, ConfigError, Event, GroupEvent, GroupHandle, GroupOptions, Hints, Inspection,
    LifelineCommand, LifelineEvent, LinkCause, Output, PathTrouble, PeerLinks, PeerPath, SendError,
    TellError, Ticket, Time, WhyReport,
};
pub use counters::Counters;
use gate::Gate;
use holdback::Holdback;

/// One node of a cluster. See the crate's page for the contract.
#[derive(Debug)]
pub struct Node {
    config: Arc<Config>,
    phase: Phase,
    me: Incarnation,
    /// The last primary view that the groups were told of: what group messages are sent in.
    primary: Option<ViewId>,
    codec: FrameCodec,
    channels: Channels,
    routes: Routes,
    relay: Relay,
    air: Air,
    membership: Membership,
    groups: Groups,
    holdback: Holdback,
    gate: Gate,
    /// The groups of this node, or their members, are not what they were when paths were watched last.
    regrouped: bool,
    /// The members that get a heartbeat with the frames of this step.
    beaten: BTreeSet<Incarnation>,
    enquiries: Pace,
    /// What [`Node::made_nothing_of_it`] says.
    unused: bool,
    /// The records of this step, by destination, that have no frame yet.
    records: BTreeMap<SocketAddr, Vec<Record>>,
    /// The same, for records that go through another member.
    relayed: BTreeMap<Incarnation, Vec<Record>>,
    outputs: VecDeque<Output>,
    events: VecDeque<Event>,
    counters: Counters,
    /// The time of the last input or command, if its frames are not built yet.
    unsettled: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// A graceful leave has begun; the groups have until then.
    LeavingGroups {
        until: Time,
    },
    LeavingCluster,
    Stopped,
}

impl Node {
    /// Starts a node: it begins to look for its seeds at once. `seed` must be fresh entropy in a product.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration cannot work; nothing was started.
    pub fn new(config: Config, seed: [u64; 4], now: Time) -> Result<Self, ConfigError> {
        config.validate()?;
        let config = Arc::new(config);
        let mut random = Random::new(seed);
        let group_random = Random::new(std::array::from_fn(|_| random.next_u64()));
        let mut routes = Routes::new(1 + config.further.len(), config.profile.heartbeat, now);
        for (seed, further) in &config.further_of_seeds {
            routes.note(now, *seed, further);
        }
        let mut node = Self {
            phase: Phase::Running,
            me: Incarnation(0),
            primary: None,
            codec: FrameCodec::new(&config.cluster, config.key.as_ref(), Incarnation(0)),
            channels: Channels::new(config.profile.retransmit),
            routes,
            relay: Relay::new(Incarnation(0), &config.profile),
            air: Air::default(),
            membership: Membership::new(config.clone(), random, now),
            groups: Groups::new(config.profile.clone(), group_random),
            holdback: Holdback::default(),
            gate: Gate::default(),
            regrouped: false,
            beaten: BTreeSet::new(),
            enquiries: Pace::default(),
            unused: false,
            records: BTreeMap::new(),
            relayed: BTreeMap::new(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
            unsettled: None,
            config,
        };
        node.touch(now);
        Ok(node)
    }

    /// Whether the frame handled last brought a witness's word that was of no use here: this node is in no
    /// view, or in none that has the dead. It may be in one later, so the witness should say it again.
    pub fn made_nothing_of_it(&self) -> bool {
        self.unused
    }

    /// A frame arrived. `from` is the transport's idea of the sender's address, used only to answer
    /// discovery.
    ///
    /// # Errors
    /// Why the frame was refused before anything in it was read; nothing changed. A transport closes a
    /// connection that brings such frames and logs the cause.
    pub fn handle_frame(&mut self, now: Time, from: SocketAddr, frame: Bytes) -> Result<(), OpenError> {
        self.unused = false;
        // A sender that has a connection needs no probe, and the probe would pass for more than it shows.
        if matches!(frame::peek(&frame), Ok((Kind::Probe, _))) {
            self.counters.frames_refused += 1;
            return Err(OpenError::NotAFrame);
        }
        self.handle_sealed(now, from, frame, None)
            .inspect_err(|_| self.counters.frames_refused += 1)?;
        if self.phase != Phase::Stopped {
            self.touch(now);
        }
        Ok(())
    }

    /// A frame arrived by multicast, where anybody may speak. It is handled as by
    /// [`handle_frame`](Self::handle_frame), with two differences: a frame from a node that this one does not
    /// speak to is not even opened, and only frames that were sent by multicast are taken.
    ///
    /// # Errors
    /// As there; [`OpenError::Stranger`] is no fault of the sender.
    pub fn handle_multicast(&mut self, now: Time, from: SocketAddr, frame: Bytes) -> Result<(), OpenError> {
        match frame::peek(&frame)? {
            (Kind::Multicast, sender) if self.air.knows(sender) => self.handle_frame(now, from, frame),
            (Kind::Multicast, _) => {
                self.counters.multicasts_of_strangers += 1;
                Err(OpenError::Stranger)
            }
            _ => {
                self.counters.frames_refused += 1;
                Err(OpenError::NotAFrame)
            }
        }
    }

    /// The transport noticed something about the path to an advertised address.
    pub fn handle_path_trouble(&mut self, now: Time, to: SocketAddr, trouble: PathTrouble) {
        self.notice_lateness(now);
        if let Some(to) = self.routes.trouble(now, to, trouble) {
            self.relay.trouble(now, to);
            self.membership.handle_path_trouble(now, to, trouble);
        }
        self.follow_routes(now);
        self.touch(now);
    }

    /// Something happened to a lifeline.
    ///
    /// # Errors
    /// Why a record was refused; the driver resets that connection.
    pub fn handle_lifeline(&mut self, now: Time, event: LifelineEvent) -> Result<(), OpenError> {
        self.notice_lateness(now);
        match event {
            LifelineEvent::Record {
                connection,
                local,
                remote,
                record,
            } => {
                let opened = self
                    .codec
                    .open(record)
                    .inspect_err(|_| self.counters.frames_refused += 1)?;
                if opened.kind != Kind::Lifeline {
                    return Err(OpenError::NotAFrame);
                }
                let event = LifelineEvent::Record {
                    connection,
                    local,
                    remote,
                    record: opened.records,
                };
                self.membership.handle_lifeline(now, event, Some(opened.sender));
            }
            event => self.membership.handle_lifeline(now, event, None),
        }
        self.touch(now);
        Ok(())
    }

    /// A deadline given by [`Node::poll_timeout`] has passed. Calling it early or late is harmless; lateness
    /// is noticed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.membership.set_crowded(self.channels.crowded());
        self.membership.handle_timeout(now);
        self.forgive(now);
        self.follow_lease(now);
        self.groups.handle_timeout(now);
        self.channels.handle_timeout(now);
        self.routes.handle_timeout(now);
        self.follow_routes(now);
        self.probe_multicast(now);
        self.touch(now);
    }

    /// Whether it has not left, has not begun to, and was not refused for good. Only then it joins groups.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Joins (or founds) a group. The first view follows as an event; before the node is in a cluster, it
    /// waits. Joining a group again under its name gives the same handle.
    ///
    /// # Errors
    /// [`ConfigError`] if the name or the options cannot work, or [the node does not run](Self::is_running).
    pub fn join_group(
        &mut self,
        now: Time,
        name: &str,
        options: GroupOptions,
    ) -> Result<GroupHandle, ConfigError> {
        crate::config::validate_name("group", name)?;
        options.validate()?;
        if !self.is_running() {
            return Err(ConfigError::Conflict {
                reason: "the node is leaving the cluster; it joins no group".into(),
            });
        }
        let handle = self
            .groups
            .join(now, name, options)
            .map_err(|reason| ConfigError::Conflict { reason })?;
        self.touch(now);
        Ok(handle)
    }

    /// Sends consecutive messages to a group, all or none, without copying them: what an
    /// [outbox](crate::outbox) hands over. The caller chooses their tickets, consecutive from `first` on, and
    /// gives none twice to this handle. On success the messages are queued and will be delivered in order,
    /// also here.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent.
    pub fn send_block(
        &mut self,
        now: Time,
        group: GroupHandle,
        first: Ticket,
        block: Block,
    ) -> Result<(), SendError> {
        if !self.gate.may_send(group) {
            return Err(SendError::Full);
        }
        self.groups.send_block(now, group, first, block)?;
        self.touch(now);
        Ok(())
    }

    /// The application has taken this many more message events of the group, in the order they came, those
    /// before a `Resync` too: their bytes are credit again.
    pub fn consumed(&mut self, now: Time, group: GroupHandle, messages: u64) {
        self.groups.consumed(now, group, messages);
        self.touch(now);
    }

    /// Tells one member of a group something: reliably, in the order of telling, in the group view that it is
    /// sent in. The payload has at most [`MAX_TELL_BYTES`](crate::MAX_TELL_BYTES). A
    /// [receipt](GroupEvent::TellReceipts) says what became of it. Tickets for one member rise by one while
    /// it is a member; those for another one are counted apart.
    ///
    /// # Errors
    /// [`TellError`]; nothing was sent.
    pub fn tell(
        &mut self,
        now: Time,
        group: GroupHandle,
        to: Incarnation,
        payload: &[u8],
    ) -> Result<Ticket, TellError> {
        if !self.gate.may_tell(group, to) {
            return Err(TellError::Full);
        }
        let ticket = self.groups.tell(now, group, to, payload)?;
        self.touch(now);
        Ok(ticket)
    }

    /// The application has taken this many more direct messages of this sender, in the order they came, those
    /// before a `Resync` too: their bytes are credit again.
    pub fn told_consumed(&mut self, now: Time, group: GroupHandle, from: Incarnation, messages: u64) {
        self.groups.told_consumed(now, group, from, messages);
        self.touch(now);
    }

    /// Says where nodes and locators may be found, in place of what was said before: addresses that come and
    /// go while the node runs. They are only asked. Which node founds a cluster depends on [`Config::seeds`],
    /// [`Config::expect`] and [`Config::found`] alone. A driver that will call this sets
    /// [`Config::discovers`].
    pub fn set_hints(&mut self, now: Time, hints: Hints) {
        if self.phase != Phase::Stopped {
            self.notice_lateness(now);
            self.membership.set_hints(now, hints);
            self.touch(now);
        }
    }

    /// Leaves a group in order; [`crate::GroupEvent::Left`] follows.
    pub fn leave_group(&mut self, now: Time, group: GroupHandle) {
        self.groups.leave_group(now, group);
        self.touch(now);
    }

    /// Leaves the cluster in order: its groups first, then the node view. [`Event::Left`] follows, at the
    /// latest after `Profile::leave_within`.
    pub fn leave(&mut self, now: Time) {
        if self.phase == Phase::Running {
            self.phase = Phase::LeavingGroups {
                until: now + self.config.profile.leave_within / 2,
            };
            self.groups.leave_all(now);
            self.touch(now);
        }
    }

    /// The next thing to do, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.settle();
        self.outputs.pop_front()
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.settle();
        self.events.pop_front()
    }

    /// When [`Node::handle_timeout`] wants to be called. Ask after outputs and events were drained.
    pub fn poll_timeout(&self) -> Option<Time> {
        let leaving = match self.phase {
            Phase::Stopped => return None,
            Phase::LeavingGroups { until } => Some(until),
            Phase::Running | Phase::LeavingCluster => None,
        };
        [
            self.membership.next_timeout(),
            self.groups.next_timeout(),
            self.channels.next_timeout(),
            self.routes.next_timeout(),
            self.air.next_timeout(),
            leaving,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// This node's present incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.me
    }

    /// The installed node view, primary or not.
    pub fn view(&self) -> Option<Arc<NodeView>> {
        self.membership.view().cloned()
    }

    /// The links to all peers with several addresses that this node speaks to.
    pub fn links(&self) -> Vec<PeerLinks> {
        self.routes.status()
    }

    /// The members to which there is no steady direct path, and through which others this node reaches them.
    pub fn paths(&self, now: Time) -> Vec<PeerPath> {
        self.relay.status(now)
    }

    /// What this node knows about why a named node is or is not a member.
    pub fn why(&self, now: Time, name: &str) -> WhyReport {
        self.membership.why(now, name)
    }

    /// What this node knows of its cluster now: which members it hears, which doubt which, which wait, and
    /// which it misses.
    pub fn inspect(&self, now: Time) -> Inspection {
        let mut inspection = self.membership.inspect(now);
        if let State::Seated(seated) = &mut inspection.state {
            let held = seated.members.iter_mut();
            for member in held.filter(|member| member.lifeline == Lifeline::Held) {
                let peer = member.incarnation;
                let works = |remote: SocketAddr| !self.routes.is_down(peer, remote.ip());
                if !self.membership.holds_lifeline(peer, works) {
                    member.lifeline = Lifeline::Missing;
                }
            }
        }
        inspection
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn membership(&self) -> &Membership {
        &self.membership
    }

    pub(crate) fn enquiries(&mut self) -> &mut Pace {
        &mut self.enquiries
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Until when this node may deliver, by its lease (R7); `None` if without end. Afterwards a driver keeps
    /// back, until the node may deliver again, what the node gave away and the application has not taken.
    pub fn delivers_until(&self) -> Option<Time> {
        self.membership.believes_until()
    }

    /// What was dropped so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// After a pause, frames that waited in the kernel come first. Without this they would be judged by
    /// clocks that have not noticed the pause yet.
    fn notice_lateness(&mut self, now: Time) {
        let late = self
            .membership
            .next_timeout()
            .is_some_and(|at| now.since(at) > self.config.profile.heartbeat);
        if late {
            self.membership.handle_timeout(now);
            self.forgive(now);
            self.perform_views(now);
        } else {
            self.membership.awake(now);
            self.forgive(now);
        }
        self.follow_lease(now);
    }

    /// R7: whether this node may deliver is asked before and after everything that happens to it. What was
    /// held back goes first.
    fn follow_lease(&mut self, now: Time) {
        let may_deliver = self.membership.may_deliver(now);
        self.perform_views(now);
        self.gate.set(may_deliver, &mut self.events);
    }

    /// G37: what this node missed by itself, it counts against nobody: not as a dead path, and not as a flush
    /// that does not go on.
    fn forgive(&mut self, now: Time) {
        let missed = self.membership.take_missed();
        if !missed.is_zero() {
            self.relay.forgive(now, missed);
            if !planted!(AccuseWhenStarved) {
                self.groups.forgive(missed);
            }
        }
    }

    /// Ends every input and command: what it changed in the views is in force for the next one. Frames are
    /// built when the batch is over, so that a batch fills them.
    fn touch(&mut self, now: Time) {
        self.membership.awake(now);
        self.forgive(now);
        self.follow_lease(now);
        self.unsettled = Some(now);
    }

    /// Ends a batch of inputs and commands: performs all effects, then builds the frames.
    fn settle(&mut self) {
        let Some(now) = self.unsettled.take() else { return };
        self.perform(now);
        if std::mem::take(&mut self.regrouped) && !self.membership.hears_all() {
            self.watch_companions(now);
        }
        while let Some(path) = self.relay.poll_change() {
            self.events.push_back(Event::Path(path));
        }
        if let Phase::LeavingGroups { until } = self.phase
            && (self.groups.is_idle() || until <= now)
        {
            self.phase = Phase::LeavingCluster;
            self.membership.leave(now);
            self.perform(now);
        }
        self.flush_frames(now);
    }

    fn perform(&mut self, now: Time) {
        loop {
            self.perform_views(now);
            match self.groups.poll_effect() {
                Some(effect) => self.perform_group(now, effect),
                None => return,
            }
        }
    }

    fn perform_views(&mut self, now: Time) {
        while let Some(effect) = self.membership.poll_effect() {
            self.perform_membership(now, effect);
        }
    }

    /// What the groups wanted before a view or incarnation changed, they wanted under the old one.
    fn perform_groups(&mut self, now: Time) {
        while let Some(effect) = self.groups.poll_effect() {
            self.perform_group(now, effect);
        }
    }

    fn perform_membership(&mut self, now: Time, effect: membership::Effect) {
        match effect {
            membership::Effect::NewIncarnation { me, cause } => self.begin_incarnation(now, me, cause),
            membership::Effect::Peer { peer, addr } => self.connect(now, peer, addr),
            // In a large view a node speaks to its neighbours, to members of its groups, and to peers to
            // which it owes something.
            membership::Effect::ForgetPeer { peer }
                if (self.groups.has(peer) || self.channels.owes(peer))
                    && self.membership.reach(peer).is_some() => {}
            membership::Effect::ForgetPeer { peer } => self.disconnect(now, peer),
            membership::Effect::Send { to, message } => self.push(now, to, &Control::Membership(message)),
            membership::Effect::Discovery { to, message } => {
                // If this node does not speak to a node, it does not know which of its addresses works.
                for to in self.routes.everywhere(to) {
                    let records = self.records.entry(to).or_default();
                    records.push(Record::Discovery(message.clone()));
                }
            }
            membership::Effect::Heartbeat { to, heartbeat } => match self.channels.addr(to) {
                Some(addr) => {
                    let report = self.relay.report(now);
                    self.queue_life(to, addr, Record::Heartbeat(heartbeat));
                    self.queue_life(to, addr, Record::Paths(report));
                    self.beaten.insert(to);
                }
                None => self.counters.messages_dropped += 1,
            },
            membership::Effect::Pulse { to, pulse } => match self.channels.addr(to) {
                Some(addr) => self.queue_life(to, addr, Record::Pulse(pulse)),
                None => self.counters.messages_dropped += 1,
            },
            membership::Effect::Probe { to, asks, heartbeat } => self.send_probe(to, asks, heartbeat),
            membership::Effect::Lifeline(command) => self.perform_lifeline(now, command),
            membership::Effect::LastVoteRecord(record) => {
                // A vote that cannot be left whole must not seem to be whole: nothing is left.
                let record = record.filter(|record| record.len() <= MAX_RECORDS_BYTES);
                let sealed = record.map(|record: Bytes| self.codec.seal(Kind::Lifeline, &record));
                self.outputs.push_back(Output::LastVoteRecord { sealed });
            }
            membership::Effect::Installed(view) => self.install(now, view),
            membership::Effect::Event(event) => self.events.push_back(event),
            membership::Effect::Stopped => {
                // What the groups had to say until now is held back if the gate is closed, and dropped with
                // the rest.
                self.perform_groups(now);
                self.gate.end(&mut self.events);
                self.channels.acknowledge_now(now, None);
                self.flush_frames(now);
                self.phase = Phase::Stopped;
            }
        }
    }

    fn begin_incarnation(&mut self, now: Time, me: Incarnation, cause: Option<String>) {
        self.perform_groups(now);
        self.channels.acknowledge_now(now, None);
        self.flush_frames(now);
        self.me = me;
        self.primary = None;
        self.codec = FrameCodec::new(&self.config.cluster, self.config.key.as_ref(), me);
        self.channels = Channels::new(self.config.profile.retransmit);
        self.routes.disconnect_all();
        self.relay = Relay::new(me, &self.config.profile);
        self.relayed.clear();
        self.beaten.clear();
        self.air = Air::default();
        self.holdback = Holdback::default();
        self.gate.end(&mut self.events);
        self.events.push_back(Event::Incarnation(me));
        self.groups.handle_new_incarnation(now, me, cause);
        self.consume_dropped(now);
    }

    /// What is not delivered any more takes no memory of the application's.
    fn consume_dropped(&mut self, now: Time) {
        for (group, messages) in self.gate.take_dropped() {
            self.groups.consumed(now, group, messages);
        }
        for (group, from, messages) in self.gate.take_dropped_tells() {
            self.groups.told_consumed(now, group, from, messages);
        }
    }

    fn install(&mut self, now: Time, view: Arc<NodeView>) {
        self.perform_groups(now);
        for member in &view.members {
            self.routes.note(now, member.addr, &member.further);
        }
        for departure in &view.departed {
            self.holdback.forget(departure.member.incarnation);
            self.channels.departed(departure.member.incarnation);
        }
        if !view.merged.is_empty() {
            let subviews = view.subviews();
            self.events.push_back(Event::Merge { subviews });
        }
        self.events.push_back(Event::NodeView(view.clone()));
        if view.is_primary() {
            self.primary = Some(view.primary_id());
            if self.membership.hears_all() {
                self.relay.watch(now, &view.members);
            }
            self.regrouped = true;
        }
        self.groups.handle_node_view(now, &view);
        if view.is_primary() {
            self.release_held(now, view.primary_id());
        }
    }

    fn connect(&mut self, now: Time, peer: Incarnation, addr: SocketAddr) {
        self.channels.connect(now, peer, addr);
        self.routes.connect(now, peer, addr);
        self.air.connect(peer);
    }

    fn perform_lifeline(&mut self, now: Time, command: LifelineCommand) {
        let command = match command {
            // R2: a vote that cannot be recorded whole must not seem recorded; without a record there is no
            // proof.
            LifelineCommand::Write { dial, record } if record.len() > MAX_RECORDS_BYTES => {
                self.membership
                    .handle_lifeline(now, LifelineEvent::Failed { dial }, None);
                LifelineCommand::Reset { dial }
            }
            LifelineCommand::Write { dial, record } => LifelineCommand::Write {
                dial,
                record: self.codec.seal(Kind::Lifeline, &record),
            },
            LifelineCommand::Open { dial, to, addr } => LifelineCommand::Open {
                dial,
                to,
                addr: self.routes.dial(dial, addr),
            },
            LifelineCommand::Reset { dial } => {
                self.routes.hang_up(dial);
                LifelineCommand::Reset { dial }
            }
        };
        self.outputs.push_back(Output::Lifeline(command));
    }

    /// Does what follows from a change of links: lifelines leave a link that failed, and the application is
    /// told.
    fn follow_routes(&mut self, now: Time) {
        while let Some(change) = self.routes.poll_change() {
            for dial in change.lifelines {
                self.routes.hang_up(dial);
                self.outputs
                    .push_back(Output::Lifeline(LifelineCommand::Reset { dial }));
                self.membership.move_lifeline(now, dial);
                self.perform_views(now);
            }
            if planted!(LinkFailureIsDeath) && change.cause != LinkCause::Works {
                self.membership
                    .accuse(now, change.links.peer, Evidence::FlushStalled);
            }
            self.events.push_back(Event::Link {
                links: change.links,
                number: change.number,
                cause: change.cause,
            });
        }
    }

    fn perform_group(&mut self, now: Time, effect: group::Effect) {
        match effect {
            group::Effect::Send { to, message } => match self.primary {
                Some(view) => {
                    self.reach(now, &[to]);
                    self.push(now, to, &Control::Group(GroupControl { view, body: message }));
                }
                None => self.counters.messages_dropped += 1,
            },
            group::Effect::Data { to, class, records } => {
                self.reach(now, &to);
                let kind = match class {
                    Class::Control => Kind::Control,
                    Class::Bulk => Kind::Bulk,
                };
                let records: Vec<Record> = records.into_iter().map(Record::Group).collect();
                self.send_to_all(&to, class, kind, &records);
            }
            group::Effect::Chain { to, records } => {
                self.reach(now, &[to]);
                let records: Vec<Record> = records.into_iter().map(Record::Group).collect();
                self.send_to_all(&[to], Class::Bulk, Kind::Chain, &records);
            }
            group::Effect::Multicast { to, records } => {
                self.reach(now, &to);
                let records: Vec<Record> = records.into_iter().map(Record::Group).collect();
                self.multicast(&to, &records);
            }
            group::Effect::Accuse { peer, evidence } => self.membership.accuse(now, peer, evidence),
            group::Effect::Event(handle, event) => {
                self.regrouped |= matches!(
                    event,
                    GroupEvent::View(_) | GroupEvent::Resync { .. } | GroupEvent::Left
                );
                self.gate.pass(handle, event, &mut self.events);
                self.consume_dropped(now);
            }
        }
    }

    /// Makes sure that these are peers: of a large view only some are.
    pub(super) fn reach(&mut self, now: Time, members: &[Incarnation]) {
        for member in members {
            if self.channels.addr(*member).is_none()
                && let Some(addr) = self.membership.reach(*member)
            {
                self.connect(now, *member, addr);
            }
        }
    }

    fn push(&mut self, now: Time, to: Incarnation, control: &Control) {
        if self.channels.push(now, to, &encode_to_vec(control)).is_err() {
            self.channel_broke(now, to);
        }
    }

    /// A channel that cannot go on is a peer that cannot be talked to: the detector is told, the view
    /// decides.
    fn channel_broke(&mut self, now: Time, peer: Incarnation) {
        self.counters.links_broken += u64::from(self.channels.break_off(peer));
        self.membership.sever(now, peer);
    }
}
