//! A process: one `Node`, the driver around it, and the application on top.
//!
//! The driver keeps the core's contract: inputs one at a time; then all outputs in order, then the events,
//! then the timer. A process that is stopped takes no input while its kernel goes on. A slow process takes
//! its time for each input. A crash may come between any two outputs: the outputs performed before it have
//! happened, the rest never happen.

mod application;
mod calling;
mod chatter;
mod clock;
mod driven;
mod hosting;
mod inside;
mod passing;
mod replicating;
mod sending;
mod telling;
mod timer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_core::wire::frame::{MAX_FRAME_BYTES, MAX_PROBE_BYTES};
use antiphon_core::wire::{Block, GroupViewId, Incarnation, Member, NodeView};
use antiphon_core::{
    Alone, Config, Dissemination, Event, GroupEvent, GroupHandle, GroupView, Hints, LifelineEvent, Memory,
    Message, Messages, Node, Output, PathTrouble, Policy,
};
use bytes::Bytes;

pub(super) use self::application::Usage;
use self::calling::Calling;
use self::chatter::Chatter;
use self::clock::Clock;
use self::driven::Given;
use self::hosting::Hosting;
use self::replicating::Replicating;
use self::sending::Follows;
use super::datagram::receive;
use super::{Happening, UNIX_TIME_S, World, addr_of, addr_on, door_of, witness};
use crate::agenda::Micros;
use crate::plan::{GroupPlan, Plan, Transport};
use crate::trace::{Delivery, Ending, GroupIndex, Heard, Inside, ProcessId, Seen, Slot, hash};

/// More outputs or timer calls than this at one instant are a runaway of the core.
const RUNAWAY: u32 = 100_000;

pub(super) struct Process {
    pub(super) slot: Slot,
    pub(super) node: Node,
    pub(super) foreign: bool,
    pub(super) ended: Option<Ending>,
    pub(super) leaving: bool,
    /// Whether the node was told so, too.
    core_leaves: bool,
    pub(super) view: Option<Arc<NodeView>>,
    pub(super) primary: Option<Arc<NodeView>>,
    pub(super) was_member: bool,
    pub(super) uses: BTreeMap<GroupIndex, Usage>,
    handles: BTreeMap<GroupHandle, GroupIndex>,
    gate: Gate,
    /// Rises with each pause or slowness: what was scheduled under an earlier number is void.
    gate_number: u32,
    inbox: VecDeque<Input>,
    run_scheduled: bool,
    clock: Clock,
    timer_at: Micros,
    /// Whether it is due and waits in the inbox.
    timer_waits: bool,
    timer_calls: (Micros, u32),
    doom: Doom,
    stalled: bool,
    chatter: Chatter,
    /// Whether it was told that it believes in its view. If it was told nothing, it believes.
    leased: bool,
    /// The replica on top of it, while it is in the group for it.
    pub(super) replica: Option<Replicating>,
    /// The calls on top of it, while it is in the group for them.
    pub(super) calling: Option<Calling>,
    /// The clients on top of it, while it is in the group for them.
    pub(super) hosting: Option<Hosting>,
}

/// How inputs get in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Slow(Micros),
    Paused,
}

/// When it will be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doom {
    None,
    /// Before its n-th output from now.
    AtOutput(u32),
    /// Before its n-th output after its next view.
    AfterView(u32),
}

/// One input of a node.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Frame {
        from: SocketAddr,
        bytes: Bytes,
    },
    Trouble {
        to: SocketAddr,
        trouble: PathTrouble,
    },
    Lifeline(LifelineEvent),
    Hints(Hints),
    Recover,
    Timer,
    /// An application's sends woke the driver: what waits in the outbox of this group is handed over.
    Sends(GroupIndex),
    /// The node has waited long enough for its groups' outboxes.
    Leaves,
    /// A connection has something to read.
    ReadStream(u64),
    ReadLifeline(u64),
}

impl World {
    /// Starts a process at a slot, if none is there. `configure` may change what the plan says.
    pub(super) fn start(&mut self, slot: Slot, foreign: bool) -> Option<ProcessId> {
        if self.hosts[slot].process.is_some() {
            return None;
        }
        if !std::mem::replace(&mut self.hosts[slot].powered, true) {
            self.unstall_streams_to(slot);
        }
        let id = self.processes.len();
        let cluster = if foreign { "foreign" } else { "simulated" };
        let mut config = Config::new(cluster, format!("n{slot}"), addr_of(slot));
        match &self.plan.hinted {
            Some(hinted) => {
                config.discovers = true;
                config.expect = Some(hinted.expect);
            }
            None => config.seeds = (0..self.plan.seeds).map(addr_of).collect(),
        }
        config.further = further(&self.plan, slot);
        // Half of the nodes know the other addresses of the seeds before they hear of them.
        if self.plan.links > 1 && self.random.percent(50) {
            let seeds = (0..self.plan.seeds).map(|seed| (addr_of(seed), further(&self.plan, seed)));
            config.further_of_seeds = seeds.collect();
        }
        // Some hosts' networks do not let them.
        let multicasts = |group: &GroupPlan| group.options.dissemination == Dissemination::Multicast;
        config.multicast = self.plan.groups.iter().any(multicasts) && !self.plan.silent.contains(&slot);
        config.found = foreign;
        config.weight = if foreign { 1 } else { self.plan.weight_of(slot) };
        if foreign {
            config.seeds.clear();
            config.expect = None;
        }
        config.profile = self.plan.profile.clone();
        config.engine = self.plan.membership;
        config.rings = self.plan.rings;
        config.policy = self.plan.policy;
        config.rejoin = self.plan.rejoin;
        config.primary_lease = !self.plan.unleased.contains(&slot);
        config.witness = self.plan.witness.is_some() && !foreign;
        config.key = config.witness.then(witness::key);
        config.unix_time_ms = UNIX_TIME_S * 1_000 + self.now / 1_000;
        if self.plan.trail {
            config.metadata = [
                ("slot".to_owned(), slot.to_string()),
                ("start".to_owned(), id.to_string()),
            ]
            .into();
        }
        let drift = u64::from(self.plan.drift_ppm);
        let clock = Clock {
            origin: self.now,
            drift_ppm: self.random.range(0, 2 * drift) as i64 - drift as i64,
        };
        let seed = self.random.seed();
        let mut node = match Node::new(config.clone(), seed, clock.local(self.now)) {
            Ok(node) => node,
            Err(error) => {
                self.note(
                    id,
                    Seen::Contract(format!("the configuration was refused: {error}")),
                );
                return None;
            }
        };
        if self.plan.trail {
            node.keep_trail();
        }
        let member = Member {
            incarnation: node.incarnation(),
            name: config.name,
            addr: config.addr,
            further: config.further,
            metadata: config.metadata,
            weight: config.weight,
        };
        self.note(
            id,
            Seen::Started {
                slot,
                member,
                foreign,
            },
        );
        self.hosts[slot].process = Some(id);
        self.processes.push(Process {
            slot,
            node,
            foreign,
            ended: None,
            leaving: false,
            core_leaves: false,
            view: None,
            primary: None,
            was_member: false,
            uses: BTreeMap::new(),
            handles: BTreeMap::new(),
            gate: Gate::Open,
            gate_number: 0,
            inbox: VecDeque::new(),
            run_scheduled: false,
            clock,
            timer_at: Micros::MAX,
            timer_waits: false,
            timer_calls: (0, 0),
            doom: Doom::None,
            stalled: false,
            chatter: Chatter::default(),
            leased: true,
            replica: None,
            calling: None,
            hosting: None,
        });
        self.drive(id);
        if !foreign {
            self.hint(slot);
            let groups: Vec<GroupIndex> = (0..self.plan.groups.len())
                .filter(|group| self.plan.groups[*group].members.contains(&slot))
                .collect();
            for group in groups {
                self.join_group(id, group);
            }
            if self.plan.load.every > 0 {
                let first = self.now + self.random.below(self.plan.load.every) + 1;
                self.agenda.add(first, Happening::Tick(id));
            }
            if let Some(replicated) = &self.plan.replicated {
                let first = self.now + self.random.below(replicated.every) + 1;
                self.agenda.add(first, Happening::Ask(id));
            }
            if let Some(calling) = &self.plan.calling {
                let first = self.now + self.random.below(calling.every) + 1;
                self.agenda.add(first, Happening::Call(id));
            }
        }
        Some(id)
    }

    /// Whether a process takes inputs as they come.
    pub(super) fn reads_now(&self, id: ProcessId) -> bool {
        let process = &self.processes[id];
        process.gate == Gate::Open && process.inbox.is_empty()
    }

    /// An input has arrived at a process's door.
    pub(super) fn accept(&mut self, id: ProcessId, input: Input) {
        if self.processes[id].ended.is_some() {
            return;
        }
        if self.reads_now(id) {
            return self.handle(id, input);
        }
        let limit = (self.network.buffer_bytes / 256).max(64);
        let process = &mut self.processes[id];
        if matches!(input, Input::Frame { .. }) && process.inbox.len() > limit {
            self.count("overflow");
            return;
        }
        process.inbox.push_back(input);
        self.schedule_run(id);
    }

    fn schedule_run(&mut self, id: ProcessId) {
        let process = &mut self.processes[id];
        let cost = match process.gate {
            Gate::Paused => return,
            Gate::Slow(cost) => cost,
            Gate::Open => 0,
        };
        if !process.run_scheduled && !process.inbox.is_empty() {
            process.run_scheduled = true;
            self.agenda.add(self.now + cost, Happening::Run(id));
        }
    }

    pub(super) fn run_inbox(&mut self, id: ProcessId) {
        self.processes[id].run_scheduled = false;
        if self.processes[id].gate == Gate::Paused {
            return;
        }
        if let Some(input) = self.processes[id].inbox.pop_front() {
            match input {
                Input::ReadStream(stream) => self.read_stream(id, stream),
                Input::ReadLifeline(lifeline) => self.read_lifeline(id, lifeline),
                input => self.handle(id, input),
            }
        }
        self.schedule_run(id);
    }

    /// SIGSTOP.
    pub(super) fn pause(&mut self, id: ProcessId, length: Micros) {
        let process = &mut self.processes[id];
        process.gate = Gate::Paused;
        process.gate_number += 1;
        let number = process.gate_number;
        self.agenda.add(self.now + length, Happening::Resume(id, number));
    }

    /// SIGCONT: what has gathered is handled in whatever order the process comes to it, the late timer too.
    pub(super) fn resume(&mut self, id: ProcessId, number: u32) {
        let process = &mut self.processes[id];
        if process.ended.is_some() || process.gate != Gate::Paused || process.gate_number != number {
            return;
        }
        process.gate = Gate::Open;
        if !std::mem::replace(&mut process.timer_waits, true) {
            process.inbox.push_back(Input::Timer);
        }
        let mut inbox: Vec<Input> = std::mem::take(&mut process.inbox).into();
        self.random.shuffle(&mut inbox);
        self.processes[id].inbox = inbox.into();
        self.schedule_run(id);
    }

    pub(super) fn slow(&mut self, id: ProcessId, cost: Micros, length: Micros) {
        let process = &mut self.processes[id];
        process.gate = Gate::Slow(cost.max(1));
        process.gate_number += 1;
        let number = process.gate_number;
        self.agenda.add(self.now + length, Happening::Unslow(id, number));
    }

    pub(super) fn unslow(&mut self, id: ProcessId, number: u32) {
        let process = &mut self.processes[id];
        if process.gate_number == number && matches!(process.gate, Gate::Slow(_)) {
            process.gate = Gate::Open;
            self.schedule_run(id);
        }
    }

    pub(super) fn stall(&mut self, id: ProcessId, length: Micros) {
        self.processes[id].stalled = true;
        self.note(id, Seen::Reads(false));
        self.agenda.add(self.now + length, Happening::Unstall(id));
    }

    pub(super) fn unstall(&mut self, id: ProcessId) {
        if self.processes[id].ended.is_none() && self.processes[id].stalled {
            self.processes[id].stalled = false;
            self.note(id, Seen::Reads(true));
            self.drive(id);
        }
    }

    /// Stopped, slow and stalled processes go on, and no process is doomed any more.
    pub(super) fn release(&mut self, id: ProcessId) {
        self.processes[id].doom = Doom::None;
        let number = self.processes[id].gate_number;
        self.resume(id, number);
        self.unslow(id, number);
        self.unstall(id);
    }

    pub(super) fn doom_at_output(&mut self, id: ProcessId, count: u32) {
        self.processes[id].doom = Doom::AtOutput(count);
    }

    pub(super) fn doom_after_view(&mut self, id: ProcessId, count: u32) {
        self.processes[id].doom = Doom::AfterView(count);
    }

    /// One input, and all that follows from it.
    pub(super) fn handle(&mut self, id: ProcessId, input: Input) {
        let process = &mut self.processes[id];
        if process.ended.is_some() {
            return;
        }
        let now = process.clock.local(self.now);
        match input {
            Input::Frame { from, bytes } => {
                if receive(&mut process.node, now, from, bytes).is_err() {
                    self.count("refused_frame");
                }
            }
            Input::Trouble { to, trouble } => process.node.handle_path_trouble(now, to, trouble),
            Input::Hints(hints) => process.node.set_hints(now, hints),
            Input::Recover => self.recover(id, now),
            Input::Sends(group) => self.hand_over(id, group),
            Input::Leaves => self.leave_when_flushed(id, true),
            Input::Lifeline(event) => {
                if process.node.handle_lifeline(now, event).is_err() {
                    self.count("refused_record");
                }
            }
            Input::Timer => {
                process.timer_at = Micros::MAX;
                process.timer_waits = false;
                process.node.handle_timeout(now);
            }
            Input::ReadStream(stream) => return self.read_stream(id, stream),
            Input::ReadLifeline(lifeline) => return self.read_lifeline(id, lifeline),
        }
        self.drive(id);
    }

    /// Performs what the core wants done, tells the application, and sets the timer.
    pub(super) fn drive(&mut self, id: ProcessId) {
        let mut count = 0;
        loop {
            // Before anything leaves: it may be killed after the first output.
            self.note_rolls(id);
            while let Some(note) = self.processes[id].node.poll_trail() {
                self.note(id, Seen::Inside(Inside::Ballot(note)));
            }
            while let Some(output) = self.processes[id].node.poll_output() {
                count += 1;
                if self.is_doomed(id) {
                    self.count("killed_between_outputs");
                    return self.end(id, Ending::Killed);
                }
                self.perform_output(id, output);
            }
            let mut heard = false;
            while let Some(event) = self.processes[id].node.poll_event() {
                heard = true;
                count += 1;
                self.hear(id, event);
            }
            if self.processes[id].ended.is_some() {
                return;
            }
            self.note_memory(id);
            let consumed = self.consume(id) | self.replicate(id) | self.converse(id) | self.host(id);
            self.rejoin_groups(id);
            if !heard && !consumed {
                break;
            }
            if count > RUNAWAY {
                self.note(
                    id,
                    Seen::Contract(format!("one input made more than {RUNAWAY} outputs and events")),
                );
                return self.end(id, Ending::Killed);
            }
        }
        self.note_withheld(id);
        let process = &mut self.processes[id];
        if let Some(wanted) = process.node.poll_timeout() {
            let at = process.clock.global(wanted).max(self.now);
            if at < process.timer_at {
                process.timer_at = at;
                self.agenda.add(at, Happening::Timer(id));
            }
        }
    }

    fn is_doomed(&mut self, id: ProcessId) -> bool {
        let doom = &mut self.processes[id].doom;
        match doom {
            Doom::AtOutput(0) => true,
            Doom::AtOutput(left) => {
                *left -= 1;
                false
            }
            Doom::None | Doom::AfterView(_) => false,
        }
    }

    fn perform_output(&mut self, id: ProcessId, output: Output) {
        match output {
            Output::Frame { to, class, frame } => {
                let bytes = frame.to_bytes();
                self.digest = hash(&bytes, self.digest.rotate_left(5) ^ self.now);
                if bytes.is_empty() || bytes.len() > MAX_FRAME_BYTES {
                    self.note(id, Seen::Contract(format!("a frame of {} bytes", bytes.len())));
                    return;
                }
                if let Some(locator) = self.locator_at(to) {
                    return self.send_to_locator(id, locator, bytes);
                }
                // Addresses without a node swallow what is sent to them.
                let Some(door) = door_of(to, &self.plan) else {
                    return;
                };
                // What is sealed with a key cannot be read on its way.
                if self.plan.witness.is_none() {
                    self.trace_hop(id, door.slot, &bytes);
                    self.trace_pass(id, door.slot, &bytes);
                }
                let sender = self.processes[id].slot;
                self.traffic.note(sender, door.slot, bytes.len());
                self.let_stray(sender, door.slot, &bytes);
                self.count_chatter(id, class);
                if self.recent.is_none() || self.digest.is_multiple_of(64) {
                    self.recent = Some(bytes.clone());
                }
                match self.plan.transport {
                    Transport::Datagram => self.send_datagram(id, door, bytes),
                    Transport::Stream => self.send_stream(id, door, class, bytes),
                }
            }
            Output::Multicast { frame } => {
                let bytes = frame.to_bytes();
                self.digest = hash(&bytes, self.digest.rotate_left(5) ^ self.now);
                self.multicast(id, &bytes);
            }
            Output::Probe { to, frame } => {
                self.digest = hash(&frame, self.digest.rotate_left(5) ^ self.now);
                if frame.len() > MAX_PROBE_BYTES {
                    self.note(id, Seen::Contract(format!("a probe of {} bytes", frame.len())));
                }
                if let Some(door) = door_of(to, &self.plan) {
                    self.send_probe(id, door, frame);
                }
            }
            Output::LastVoteRecord { sealed } => self.leave_last_vote(id, sealed),
            Output::Lifeline(command) => {
                self.digest = self.digest.rotate_left(7) ^ self.now;
                self.lifeline_command(id, command);
            }
        }
    }

    /// Hands an event to the application.
    fn hear(&mut self, id: ProcessId, event: Event) {
        self.digest = self.digest.rotate_left(11).wrapping_add(self.now);
        let seen = match event {
            Event::Incarnation(incarnation) => {
                let process = &mut self.processes[id];
                process.view = None;
                process.primary = None;
                for usage in process.uses.values_mut() {
                    usage.view = None;
                }
                self.note(id, Seen::Incarnation(incarnation));
                // Only groups that had a view say that they start over.
                let cause = "the node has a new incarnation".to_owned();
                return self.give_all(id, || Given::Void(incarnation, cause.clone()));
            }
            Event::Forming { missing, .. } => Seen::Forming(missing),
            Event::Alone { .. } if self.processes[id].foreign || self.plan.seeds == 1 => return,
            // A node that was a member may go on alone where all may; the checkers judge what it makes of
            // that.
            Event::Alone {
                reason: Alone::NobodyLeft,
            } if self.plan.policy == Policy::Any && self.processes[id].was_member => return,
            Event::Merge { subviews } => Seen::Merge(subviews),
            Event::Alone { .. } => Seen::Contract("founded a cluster alone, unasked".to_owned()),
            Event::NodeView(view) => {
                let process = &mut self.processes[id];
                if view.is_primary() {
                    process.primary = Some(view.clone());
                }
                process.was_member = true;
                process.view = Some(view.clone());
                self.view_dooms(id);
                Seen::NodeView(view)
            }
            Event::Refused { reason, fatal } => Seen::Refused { reason, fatal },
            Event::Expelled { cause } => Seen::Expelled(cause),
            Event::Multicast { peer, hears } => Seen::Multicast { peer, hears },
            Event::Path(path) => Seen::Path(path),
            Event::Starved { missed, .. } => Seen::Starved(missed.as_micros() as Micros),
            Event::Lease { held } => {
                self.processes[id].leased = held;
                self.give_all(id, || Given::Lease(held));
                Seen::Lease(held)
            }
            Event::Link { links, number, cause } => Seen::Link { links, number, cause },
            Event::Left => {
                self.note(id, Seen::Left);
                return self.end(id, Ending::Exited);
            }
            Event::Group(handle, event) => {
                let Some(group) = self.processes[id].handles.get(&handle).copied() else {
                    self.note(
                        id,
                        Seen::Contract(format!("an event of a group that was never joined: {event:?}")),
                    );
                    return;
                };
                if let GroupEvent::Messages(messages) = event {
                    return self.hear_messages(id, group, messages);
                }
                if let GroupEvent::Told(messages) = event {
                    return self.hear_told(id, group, messages);
                }
                if self.hear_progress(&event) {
                    return;
                }
                let follows = Follows::of(&event);
                let seen = self.hear_group(id, group, event);
                self.note(id, seen);
                return self.follow(id, group, follows);
            }
            other => Seen::Contract(format!("an event the simulator does not know: {other:?}")),
        };
        self.note(id, seen);
    }

    fn view_dooms(&mut self, id: ProcessId) {
        let doom = &mut self.processes[id].doom;
        if let Doom::AfterView(count) = *doom {
            *doom = Doom::AtOutput(count);
        }
    }

    /// The process is gone; its kernel, unless the power is, goes on.
    pub(super) fn end(&mut self, id: ProcessId, ending: Ending) {
        let process = &mut self.processes[id];
        if process.ended.is_some() {
            return;
        }
        process.ended = Some(ending);
        let slot = process.slot;
        self.hosts[slot].process = None;
        self.note(id, Seen::Ended(ending));
        self.streams_of_ended(id, ending);
        self.lifelines_of_ended(id, ending);
        self.witness_end(id, ending);
        let process = &mut self.processes[id];
        process.inbox.clear();
    }
}

/// A node's addresses beyond the first.
fn further(plan: &Plan, slot: Slot) -> Vec<SocketAddr> {
    (1..plan.links_of(slot)).map(|link| addr_on(slot, link)).collect()
}
