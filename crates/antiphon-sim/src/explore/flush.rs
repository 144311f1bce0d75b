//! The flush, explored exhaustively (R26): virtual synchrony when leaders die and a joiner waits.
//!
//! The members are the shipping [`Groups`]. The smallest possible surroundings make them a cluster:
//!
//! - **Two channels per pair**, control and data, each in order and each at its own pace. A control message
//!   is held back until its receiver has installed the node view it was sent under, as the node does.
//! - **A crash** can come before and after any step. Each channel of the dead member may still deliver any
//!   prefix of what it holds, at any time, also much later (R13). If nothing more of it ever comes, that is
//!   the same as a loss.
//! - **Messages of an earlier node view** are dropped by their receiver whatever else it knows (R13), so they
//!   vanish as soon as they are next. Messages to dead members vanish at once.
//! - **Node views** follow crashes, one each, and every member installs them in order, whenever it likes.
//! - **Time stands still** unless nothing else can happen; then the next deadline passes, a few times at
//!   most.
//!
//! Left out to keep it finite: acknowledgements and retransmissions of data (nothing between living members
//! is lost here, and the simulator loses plenty), and races of the elder's directory, whose messages arrive
//! as soon as they are next in their channel.
//!
//! The invariants: members that go from one group view to the same next one have delivered the same messages
//! in the same order between them (G14, G21). If one member delivered a message as safe, all of the view (or
//! all members that the notice before it names) that go on from there deliver it, whatever happens to that
//! member (G24, G25). A view id has one member list. The living never go from one view to different ones, so
//! none is skipped. At the end all the living are in the same view, and it lists exactly them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::explore::{Effect, Groups};
use antiphon_core::outbox::{Outbox, Payload, Standing, hand_over};
use antiphon_core::wire::group::{GroupData, GroupMessage};
use antiphon_core::wire::{GroupViewId, Incarnation, Level, Lineage, Member, NodeView, NodeViewId, ViewId};
use antiphon_core::{GroupEvent, GroupHandle, GroupOptions, Order, Profile, Time, TotalEngine};

use super::search::{Model, fingerprint};

/// A node; its group rank at the start, the joiner last.
type Id = u8;

/// What to explore.
#[derive(Debug, Clone)]
pub struct FlushModel {
    /// Members of the group at the start.
    pub members: u8,
    /// Whether another node joins while all this happens.
    pub joiner: bool,
    /// How many members may crash.
    pub crashes: u8,
    /// Whether only the member that leads the group may crash.
    pub leaders_only: bool,
    /// Members that send one message each, at any time.
    pub senders: Vec<Id>,
    /// Whether what they send is safe.
    pub safe: bool,
    /// The group's order.
    pub order: Order,
    /// What makes it.
    pub engine: TotalEngine,
}

/// Everything at one moment.
#[derive(Clone)]
pub struct State {
    peers: Vec<Arc<Peer>>,
    control: BTreeMap<(Id, Id), VecDeque<Arc<Sent>>>,
    data: BTreeMap<(Id, Id), VecDeque<Arc<Carried>>>,
    /// Members that have not crashed, at each node view.
    views: Vec<u8>,
    crashes_left: u8,
    to_send: BTreeSet<Id>,
    quiet_left: u8,
    seen: Arc<Seen>,
    broken: Option<String>,
}

/// One node.
#[derive(Clone)]
struct Peer {
    groups: Groups,
    now: Time,
    handle: Option<GroupHandle>,
    alive: bool,
    /// How many node views it has installed.
    installed: usize,
    /// The group view it is in, its members, and what it has delivered there.
    view: Option<(GroupViewId, Vec<Incarnation>)>,
    /// Those named by the notice that the rest of that view was completed by a flush.
    named: Option<Vec<Incarnation>>,
    delivered: Vec<(Incarnation, u64)>,
    print: u128,
}

/// What anyone has seen of group views.
#[derive(Debug, Clone, Default, Hash)]
struct Seen {
    members: BTreeMap<GroupViewId, Vec<Incarnation>>,
    /// Members that have installed each view.
    installed: BTreeMap<GroupViewId, u8>,
    /// From one view to the next: what was delivered between them.
    between: BTreeMap<(GroupViewId, GroupViewId), Vec<(Incarnation, u64)>>,
    /// What was delivered as safe in each view, and the members that must deliver it too if they go on from
    /// there.
    owed: BTreeSet<(GroupViewId, (Incarnation, u64), Vec<Incarnation>)>,
}

impl Seen {
    /// A view to which members came from different ones: some of them have skipped a view that others were
    /// in.
    fn detour(&self) -> Option<GroupViewId> {
        let mut came_from: BTreeMap<GroupViewId, GroupViewId> = BTreeMap::new();
        let mut steps = self.between.keys();
        let detour =
            steps.find(|(last, next)| came_from.insert(*next, *last).is_some_and(|other| other != *last));
        detour.map(|(_, next)| *next)
    }

    /// A safe message that a member had to deliver and went on without.
    fn unpaid(&self) -> Option<String> {
        self.owed.iter().find_map(|(view, item, to)| {
            let mut steps = self.between.iter().filter(|((last, _), _)| last == view);
            let without = steps.find(|((_, next), delivered)| {
                let by = self.installed.get(next).copied().unwrap_or(0);
                let owed = |who: &Incarnation| by & 1 << (who.0 - 1) != 0;
                !delivered.contains(item) && to.iter().any(owed)
            });
            without.map(|_| format!("G24/G25: {item:?} was delivered as safe in {view:?}, and one of {to:?} went on without it"))
        })
    }

    /// A view after which different living members have different views.
    fn fork(&self, alive: u8) -> Option<GroupViewId> {
        let lives = |view: &GroupViewId| self.installed.get(view).is_some_and(|by| by & alive != 0);
        let mut steps = self.between.keys().filter(|(_, next)| lives(next)).peekable();
        while let Some((last, _)) = steps.next() {
            if steps.peek().is_some_and(|(same, _)| same == last) {
                return Some(*last);
            }
        }
        None
    }
}

/// A control message on its way.
struct Sent {
    view: usize,
    message: GroupMessage,
    print: u128,
}

/// A data record on its way.
struct Carried {
    record: GroupData,
    print: u128,
}

/// One step of a schedule.
pub struct Move(Did);

enum Did {
    Control(Id, Id, Arc<Sent>),
    Data(Id, Id, Arc<Carried>),
    /// What a dead member had sent arrives after all.
    Late(Id, Id, Arc<Sent>),
    LateData(Id, Id, Arc<Carried>),
    Crash(Id),
    NodeView(Id, usize),
    Send(Id),
    Wait,
}

const GROUP: &str = "explored";
/// Deadlines that may pass while nothing else can happen.
const QUIET: u8 = 4;

fn incarnation(id: Id) -> Incarnation {
    Incarnation(u128::from(id) + 1)
}

fn view_id(counter: usize) -> ViewId {
    ViewId {
        epoch: 1,
        counter: counter as u32,
    }
}

impl FlushModel {
    fn nodes(&self) -> u8 {
        self.members + u8::from(self.joiner)
    }

    fn node_view(&self, state: &State, number: usize) -> Arc<NodeView> {
        let alive = state.views[number - 1];
        let members = (0..self.nodes())
            .filter(|id| alive & 1 << id != 0)
            .map(|id| Member {
                incarnation: incarnation(id),
                name: format!("n{id}"),
                addr: ([127, 0, 0, 1], 7000 + u16::from(id)).into(),
                further: Vec::new(),
                metadata: BTreeMap::new(),
                weight: 1,
            });
        Arc::new(NodeView {
            lineage: Lineage(1),
            id: NodeViewId::Primary { id: view_id(number) },
            number: 100 + number as u32,
            members: members.collect(),
            joined: Vec::new(),
            departed: Vec::new(),
            merged: Vec::new(),
            wire_level: 1,
        })
    }

    /// Lets one node handle something, and sends what it wants sent.
    fn act(&self, state: &mut State, id: Id, action: impl FnOnce(&mut Groups, Time, Option<GroupHandle>)) {
        let mut peer = (*state.peers[usize::from(id)]).clone();
        let (now, handle) = (peer.now, peer.handle);
        action(&mut peer.groups, now, handle);
        // Deadlines that are due at once: batches that wait for nothing.
        for _ in 0..8 {
            self.drain(state, id, &mut peer);
            if peer.groups.next_timeout().is_none_or(|at| at > now) {
                break;
            }
            peer.groups.handle_timeout(now);
        }
        self.drain(state, id, &mut peer);
        peer.mark();
        state.peers[usize::from(id)] = Arc::new(peer);
    }

    fn drain(&self, state: &mut State, id: Id, peer: &mut Peer) {
        loop {
            let mut consumed = 0;
            while let Some(effect) = peer.groups.poll_effect() {
                match effect {
                    Effect::Send { to, message } => {
                        let to = (to.0 - 1) as Id;
                        let print = fingerprint(&(peer.installed, format!("{message:?}")));
                        let sent = Arc::new(Sent {
                            view: peer.installed,
                            message,
                            print,
                        });
                        state.control.entry((id, to)).or_default().push_back(sent);
                    }
                    Effect::Data { to, records, .. } => {
                        for record in records.into_iter().filter(travels) {
                            let print = fingerprint(&format!("{record:?}"));
                            let carried = Arc::new(Carried { record, print });
                            for to in &to {
                                let channel = state.data.entry((id, (to.0 - 1) as Id)).or_default();
                                channel.push_back(carried.clone());
                            }
                        }
                    }
                    // The groups explored here are direct.
                    Effect::Chain { .. } | Effect::Multicast { .. } | Effect::Accuse { .. } => {}
                    Effect::Event(_, event) => {
                        if let GroupEvent::Messages(messages) = &event {
                            consumed += messages.len();
                        }
                        self.note(state, id, peer, event);
                    }
                }
            }
            match peer.handle {
                Some(handle) if consumed > 0 => peer.groups.consumed(peer.now, handle, consumed),
                _ => return,
            }
        }
    }

    /// Compares what the application of one node sees with what others saw.
    fn note(&self, state: &mut State, id: Id, peer: &mut Peer, event: GroupEvent) {
        let seen = Arc::make_mut(&mut state.seen);
        let mut broken = None;
        match event {
            GroupEvent::View(view) => {
                let members = seen
                    .members
                    .entry(view.id)
                    .or_insert_with(|| view.members.clone());
                if *members != view.members {
                    broken = Some(format!("view {:?} has two member lists", view.id));
                }
                *seen.installed.entry(view.id).or_default() |= 1 << id;
                let delivered = std::mem::take(&mut peer.delivered);
                if let Some((last, _)) = &peer.view {
                    let same = seen
                        .between
                        .entry((*last, view.id))
                        .or_insert_with(|| delivered.clone());
                    if !self.agree(same, &delivered) {
                        broken = Some(format!(
                            "G14: {id} delivered {delivered:?} in {last:?}, others that went on with it {same:?}"
                        ));
                    }
                }
                let alive = state.views[state.views.len() - 1];
                if let Some(fork) = seen.fork(alive) {
                    broken = Some(format!("living members went from {fork:?} to different views"));
                }
                if let Some(detour) = seen.detour() {
                    broken = Some(format!("G16: members came to {detour:?} from different views"));
                }
                broken = broken.or(seen.unpaid());
                peer.view = Some((view.id, view.members.clone()));
                peer.named = None;
            }
            GroupEvent::Transitional { members } => peer.named = Some(members),
            GroupEvent::Messages(messages) => {
                for message in messages {
                    let item = (message.sender, message.seq);
                    let members = peer.view.iter().map(|(_, members)| members);
                    if message.level == Level::Safe
                        && let Some(to) = peer.named.iter().chain(members).next()
                    {
                        seen.owed.insert((message.view, item, to.clone()));
                        broken = broken.or(seen.unpaid());
                    }
                    if peer.delivered.contains(&item) {
                        broken = Some(format!("{id} delivered {item:?} twice"));
                    }
                    if peer.view.as_ref().map(|(view, _)| *view) != Some(message.view) {
                        broken = Some(format!("{id} delivered a message of another view"));
                    }
                    peer.delivered.push(item);
                }
            }
            GroupEvent::Resync { cause } => broken = Some(format!("{id}, alive, lost its place: {cause}")),
            GroupEvent::Refused { reason } => broken = Some(format!("{id} was refused: {reason}")),
            _ => {}
        }
        state.broken = state.broken.take().or(broken);
    }

    /// The same messages; under total order, in the same order.
    fn agree(&self, one: &[(Incarnation, u64)], other: &[(Incarnation, u64)]) -> bool {
        if self.order == Order::Total {
            return one == other;
        }
        let set = |list: &[(Incarnation, u64)]| list.iter().copied().collect::<BTreeSet<_>>();
        set(one) == set(other)
    }

    fn deliver_control(&self, state: &mut State, from: Id, to: Id) -> Option<Arc<Sent>> {
        let sent = pop(&mut state.control, from, to)?;
        let peer = &state.peers[usize::from(to)];
        if peer.alive {
            let (message, view) = (sent.message.clone(), view_id(sent.view));
            self.act(state, to, |groups, now, _| {
                groups.handle_message(now, incarnation(from), view, message)
            });
        }
        Some(sent)
    }

    /// Directory messages arrive as soon as they are next, as does what its receiver drops; messages to the
    /// dead vanish.
    fn settle(&self, state: &mut State) {
        loop {
            let next = state.control.iter().find_map(|((from, to), channel)| {
                let peer = &state.peers[usize::from(*to)];
                let head = channel.front()?;
                let directory = is_directory(&head.message) && state.peers[usize::from(*from)].alive;
                // What was sent under an earlier node view is dropped, whenever it comes.
                let at_once = directory && head.view == peer.installed || head.view < peer.installed;
                (at_once || !peer.alive).then_some((*from, *to))
            });
            let Some((from, to)) = next else { break };
            if state.peers[usize::from(to)].alive {
                self.deliver_control(state, from, to);
            } else {
                state.control.remove(&(from, to));
            }
        }
        let peers = &state.peers;
        state.data.retain(|(_, to), _| peers[usize::from(*to)].alive);
    }

    /// Runs everything in a fixed order until nothing happens any more: the way to a first view.
    fn run(&self, state: &mut State) {
        for _ in 0..10_000 {
            self.settle(state);
            let control = state.control.keys().next().copied();
            let data = state.data.keys().next().copied();
            if let Some((from, to)) = control {
                self.deliver_control(state, from, to);
            } else if let Some((from, to)) = data {
                self.deliver_data(state, from, to);
            } else if !self.wait(state) {
                return;
            }
        }
    }

    fn deliver_data(&self, state: &mut State, from: Id, to: Id) -> Option<Arc<Carried>> {
        let carried = pop(&mut state.data, from, to)?;
        let record = carried.record.clone();
        self.act(state, to, |groups, now, _| {
            groups.handle_data(now, incarnation(from), record)
        });
        Some(carried)
    }

    /// The earliest deadline passes. False if no member waits for one soon.
    fn wait(&self, state: &mut State) -> bool {
        let alive = || (0..self.nodes()).filter(|id| state.peers[usize::from(*id)].alive);
        let due = |id: Id| state.peers[usize::from(id)].groups.next_timeout();
        let Some(at) = alive().filter_map(due).min() else {
            return false;
        };
        let now = state.peers[0].now;
        if at > now + Duration::from_secs(60) {
            return false;
        }
        let waiting: Vec<Id> = alive()
            .filter(|id| due(*id).is_some_and(|due| due <= at))
            .collect();
        for peer in &mut state.peers {
            let peer = Arc::make_mut(peer);
            peer.now = at.max(now);
            peer.mark();
        }
        for id in waiting {
            self.act(state, id, |groups, now, _| groups.handle_timeout(now));
        }
        true
    }

    /// Whether all the living are in one view of exactly them.
    fn is_whole(&self, state: &State) -> Result<(), String> {
        let alive: Vec<Id> = (0..self.nodes())
            .filter(|id| state.peers[usize::from(*id)].alive)
            .collect();
        let expected: BTreeSet<Incarnation> = alive.iter().map(|id| incarnation(*id)).collect();
        let Some(first) = alive.first() else { return Ok(()) };
        let Some((view, members)) = &state.peers[usize::from(*first)].view else {
            return Err(format!("{first} is in no view at the end"));
        };
        if members.iter().copied().collect::<BTreeSet<_>>() != expected {
            return Err(format!(
                "the last view {view:?} lists {members:?}, alive are {expected:?}"
            ));
        }
        for id in &alive {
            let peer = &state.peers[usize::from(*id)];
            if peer.view.as_ref().map(|(view, _)| view) != Some(view) {
                return Err(format!("{id} ends in {:?}, {first} in {view:?}", peer.view));
            }
            if !self.agree(&peer.delivered, &state.peers[usize::from(*first)].delivered) {
                return Err(format!(
                    "{id} and {first} delivered different messages in their last view"
                ));
            }
        }
        Ok(())
    }

    fn leads(&self, state: &State, id: Id) -> bool {
        let present = |member: &Incarnation| state.peers[(member.0 - 1) as usize].alive;
        let view = state.peers[usize::from(id)].view.as_ref();
        view.and_then(|(_, members)| members.iter().find(|member| present(member))) == Some(&incarnation(id))
    }
}

impl Model for FlushModel {
    type State = State;
    type Step = Move;

    fn initial(&self) -> State {
        let mut profile = Profile::lan();
        let never = Duration::from_secs(3600);
        profile.batch = Duration::ZERO;
        profile.retransmit = never;
        profile.flush_stall = never;
        let start = Time::from_micros(1_000_000);
        let peers = (0..self.nodes()).map(|id| {
            let mut groups = Groups::seeded(profile.clone(), [u64::from(id) + 1, 2, 3, 4]);
            groups.handle_new_incarnation(start, incarnation(id), None);
            Arc::new(Peer {
                groups,
                now: start,
                handle: None,
                alive: true,
                installed: 0,
                view: None,
                named: None,
                delivered: Vec::new(),
                print: 0,
            })
        });
        let mut state = State {
            peers: peers.collect(),
            control: BTreeMap::new(),
            data: BTreeMap::new(),
            views: vec![(1 << self.nodes()) - 1],
            crashes_left: self.crashes,
            to_send: self.senders.iter().copied().collect(),
            quiet_left: QUIET,
            seen: Arc::default(),
            broken: None,
        };
        let view = self.node_view(&state, 1);
        for id in 0..self.nodes() {
            self.install(&mut state, id, &view);
        }
        self.run(&mut state);
        for id in 0..self.nodes() {
            self.join(&mut state, id);
            if id < self.members {
                self.run(&mut state);
            }
        }
        self.settle(&mut state);
        // How the group came about is not what is explored.
        state.seen = Arc::default();
        state
    }

    fn successors(&self, state: &State, into: &mut Vec<(Move, State)>) {
        if state.broken.is_some() {
            return;
        }
        let alive = |id: Id| state.peers[usize::from(id)].alive;
        let mut step = |did: Did, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            self.settle(&mut next);
            into.push((Move(did), next));
        };
        for ((from, to), channel) in &state.control {
            let (from, to) = (*from, *to);
            let Some(head) = channel.front() else { continue };
            if head.view <= state.peers[usize::from(to)].installed {
                let did = if alive(from) { Did::Control } else { Did::Late };
                step(did(from, to, head.clone()), &|next| {
                    self.deliver_control(next, from, to);
                });
            }
        }
        for ((from, to), channel) in &state.data {
            let (from, to) = (*from, *to);
            let Some(head) = channel.front() else { continue };
            let did = if alive(from) { Did::Data } else { Did::LateData };
            step(did(from, to, head.clone()), &|next| {
                self.deliver_data(next, from, to);
            });
        }
        for id in (0..self.nodes()).filter(|id| alive(*id)) {
            let installed = state.peers[usize::from(id)].installed;
            if installed < state.views.len() {
                let view = self.node_view(state, installed + 1);
                step(Did::NodeView(id, installed + 1), &|next| {
                    self.install(next, id, &view)
                });
            }
            if state.to_send.contains(&id) && state.peers[usize::from(id)].view.is_some() {
                let level = if self.safe { Level::Safe } else { Level::Agreed };
                step(Did::Send(id), &|next| {
                    next.to_send.remove(&id);
                    self.act(next, id, |groups, now, handle| {
                        if let Some(handle) = handle {
                            let mut outbox = Outbox::new(&self.options());
                            outbox.set_standing(Standing::Member);
                            let sent = outbox.accept(Payload::Borrowed(b"m"), level, None);
                            debug_assert!(sent.is_ok(), "there is room for one");
                            // A refusal is the application's to handle; here it means nothing was sent.
                            hand_over(&mut outbox, |first, block| {
                                groups.send_block(now, handle, first, block)
                            });
                        }
                    });
                });
            }
            if state.crashes_left > 0 && (!self.leaders_only || self.leads(state, id)) {
                step(Did::Crash(id), &|next| {
                    next.crashes_left -= 1;
                    let peer = Arc::make_mut(&mut next.peers[usize::from(id)]);
                    peer.alive = false;
                    peer.mark();
                    next.to_send.remove(&id);
                    let living = next.views[next.views.len() - 1] & !(1 << id);
                    next.views.push(living);
                });
            }
        }
        // What need never happen does not keep time from passing.
        let idle = into.iter().all(|(step, _)| self.resting(step));
        if idle && state.quiet_left > 0 && self.is_whole(state).is_err() {
            let mut next = state.clone();
            next.quiet_left -= 1;
            if self.wait(&mut next) {
                self.settle(&mut next);
                into.push((Move(Did::Wait), next));
            }
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        state.broken.clone()
    }

    fn resting(&self, step: &Move) -> bool {
        matches!(step.0, Did::Crash(_) | Did::Late(..) | Did::LateData(..))
    }

    fn stuck(&self, state: &State) -> Option<String> {
        self.is_whole(state).err()
    }
}

impl FlushModel {
    fn options(&self) -> GroupOptions {
        GroupOptions::default().order(self.order).engine(self.engine)
    }

    fn install(&self, state: &mut State, id: Id, view: &Arc<NodeView>) {
        Arc::make_mut(&mut state.peers[usize::from(id)]).installed += 1;
        self.act(state, id, |groups, now, _| groups.handle_node_view(now, view));
    }

    fn join(&self, state: &mut State, id: Id) {
        let options = self.options();
        let mut handle = None;
        self.act(state, id, |groups, now, _| {
            handle = groups.join(now, GROUP, options).ok()
        });
        let peer = Arc::make_mut(&mut state.peers[usize::from(id)]);
        peer.handle = handle;
        peer.mark();
    }
}

impl Peer {
    /// Fingerprints the node once for all states it is part of.
    fn mark(&mut self) {
        let text = if self.alive {
            format!("{:?}", self.groups)
        } else {
            String::new()
        };
        self.print = fingerprint(&(
            text,
            self.now.as_micros(),
            self.alive,
            self.installed,
            &self.view,
            &self.named,
            &self.delivered,
        ));
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for peer in &self.peers {
            peer.print.hash(hasher);
        }
        for (pair, channel) in &self.control {
            (1u8, pair, channel.len()).hash(hasher);
            channel.iter().for_each(|sent| sent.print.hash(hasher));
        }
        for (pair, channel) in &self.data {
            (2u8, pair, channel.len()).hash(hasher);
            channel.iter().for_each(|carried| carried.print.hash(hasher));
        }
        (
            &self.views,
            self.crashes_left,
            &self.to_send,
            self.quiet_left,
            &self.seen,
            &self.broken,
        )
            .hash(hasher);
    }
}

/// What is of use here: messages, order and repairs. Acknowledgements and marks serve memory and loss.
fn travels(record: &GroupData) -> bool {
    match record {
        GroupData::Batch { messages, .. } => !messages.is_empty(),
        GroupData::Orders { runs, .. } => !runs.is_empty(),
        GroupData::Ack { .. } | GroupData::Nak { .. } | GroupData::OrderNak { .. } => false,
        GroupData::TokenHeld { .. } => false,
        GroupData::Token { .. }
        | GroupData::Pull { .. }
        | GroupData::Repair { .. }
        | GroupData::Tell { .. }
        | GroupData::TellAck { .. }
        | GroupData::PullOrders { .. }
        | GroupData::RepairOrders { .. }
        | GroupData::Offer { .. }
        | GroupData::Want { .. }
        | GroupData::Chunk { .. }
        | GroupData::Held { .. }
        | GroupData::Rows { .. } => true,
    }
}

fn is_directory(message: &GroupMessage) -> bool {
    matches!(
        message,
        GroupMessage::Report { .. }
            | GroupMessage::Announce(_)
            | GroupMessage::Dissolved { .. }
            | GroupMessage::Lookup { .. }
            | GroupMessage::Located { .. }
            | GroupMessage::Grant { .. }
            | GroupMessage::Declined { .. }
    )
}

fn pop<T>(channels: &mut BTreeMap<(Id, Id), VecDeque<T>>, from: Id, to: Id) -> Option<T> {
    let channel = channels.get_mut(&(from, to))?;
    let item = channel.pop_front();
    if channel.is_empty() {
        channels.remove(&(from, to));
    }
    item
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Did::Control(from, to, sent) | Did::Late(from, to, sent) => {
                write!(f, "{to} gets from {from}: {:?}", sent.message)
            }
            Did::Data(from, to, carried) | Did::LateData(from, to, carried) => {
                write!(f, "{to} gets from {from}: {:?}", carried.record)
            }
            Did::Crash(id) => write!(f, "{id} is killed"),
            Did::NodeView(id, number) => write!(f, "{id} installs node view {number}"),
            Did::Send(id) => write!(f, "{id} sends a message"),
            Did::Wait => f.write_str("nothing happens until a deadline passes"),
        }
    }
}
