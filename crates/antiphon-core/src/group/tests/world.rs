//! The harness and its checkers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::group::{GroupData, GroupMessage};
use antiphon_wire::{Evidence, Incarnation, Level, Lineage, Member, NodeView, NodeViewId, ViewId, Wire};
use bytes::Bytes;

use crate::group::{Effect, Groups};
use crate::membership::testing::twisted;
use crate::outbox::{Outbox, Payload, Standing, hand_over};
use crate::random::Random;
use crate::{
    GroupEvent, GroupHandle, GroupOptions, GroupView, Message, Messages, Order, Profile, SendError, Ticket,
    Time, TotalEngine,
};

/// A node of the world, by a small number.
pub(crate) type Id = u8;

pub(crate) struct Peer {
    pub(crate) groups: Groups,
    pub(crate) me: Incarnation,
    pub(crate) view: Option<ViewId>,
    pub(crate) primary: bool,
    pub(crate) handle: Option<GroupHandle>,
    pub(crate) consumes: bool,
    pub(crate) unconsumed: u64,
    /// All events of the peer's group, with the incarnation they belong to.
    pub(crate) trace: Vec<(Incarnation, GroupEvent)>,
    pub(crate) outbox: Outbox,
    pub(crate) sent: Vec<(Incarnation, Ticket, Bytes)>,
    pub(crate) alive: bool,
    /// Stopped with its application: no timer runs, and its kernel has no room for data.
    pub(crate) asleep: bool,
}

/// An order and what makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unordered,
    /// With a text's first character as its scope.
    Scoped,
    Fifo,
    Total(TotalEngine),
}

impl Kind {
    pub(crate) const ALL: [Kind; 6] = [
        Kind::Fifo,
        Kind::Total(TotalEngine::Sequencer),
        Kind::Total(TotalEngine::Rotation),
        Kind::Total(TotalEngine::Token),
        Kind::Unordered,
        Kind::Scoped,
    ];

    /// Kinds of groups that take objects.
    pub(crate) const WITH_OBJECTS: [Kind; 5] = [
        Kind::Fifo,
        Kind::Total(TotalEngine::Sequencer),
        Kind::Total(TotalEngine::Rotation),
        Kind::Total(TotalEngine::Token),
        Kind::Unordered,
    ];

    /// Whether all members deliver one sequence.
    pub(crate) fn is_total(self) -> bool {
        matches!(self, Kind::Total(_))
    }

    pub(crate) fn options(self) -> GroupOptions {
        let options = GroupOptions::default();
        match self {
            Kind::Unordered => options.order(Order::Unordered),
            Kind::Scoped => options.order(Order::Scoped),
            Kind::Fifo => options.order(Order::Fifo),
            Kind::Total(engine) => options.order(Order::Total).engine(engine),
        }
    }
}

impl From<Order> for Kind {
    fn from(order: Order) -> Self {
        match order {
            Order::Unordered => Kind::Unordered,
            Order::Scoped => Kind::Scoped,
            Order::Fifo => Kind::Fifo,
            Order::Total => Kind::Total(GroupOptions::default().engine),
        }
    }
}

impl From<TotalEngine> for Kind {
    fn from(engine: TotalEngine) -> Self {
        Kind::Total(engine)
    }
}

/// An outbox that leaves it to the core to refuse.
fn member_outbox(options: &GroupOptions) -> Outbox {
    let mut outbox = Outbox::new(options);
    outbox.set_standing(Standing::Member);
    outbox
}

/// What travels as data.
#[derive(Clone)]
struct Flight {
    from: Incarnation,
    to: Incarnation,
    record: GroupData,
    /// If the receiver hands it on: what is in the same frame.
    chained: Option<Vec<GroupData>>,
}

/// Whether a control message is to be lost together with its sender: the sender dies right there.
type Trap = Box<dyn FnMut(Id, Id, &GroupMessage) -> bool>;
type Filter = Box<dyn FnMut(Id, Id, &GroupData) -> bool>;

/// Control messages on their way, in order, with when they arrive and the view they were sent under.
type Channel = VecDeque<(Time, ViewId, GroupMessage)>;

pub(crate) struct World {
    pub(crate) peers: BTreeMap<Id, Peer>,
    pub(crate) now: Time,
    pub(crate) random: Random,
    control: BTreeMap<(Incarnation, Incarnation), Channel>,
    data: BTreeMap<(Time, u64), Flight>,
    flights: u64,
    views: BTreeMap<(Time, u64), (Id, Arc<NodeView>)>,
    pub(crate) counter: u32,
    /// Rises where a part of the cluster goes on apart.
    pub(crate) epoch: u32,
    /// Percent.
    pub(crate) loss: u64,
    pub(crate) duplicates: u64,
    /// Milliseconds of delay at random.
    pub(crate) jitter_ms: u64,
    /// The member that sends a matching control message dies before it leaves.
    pub(crate) trap: Option<Trap>,
    pub(crate) trapped: Vec<Id>,
    /// Data for which this is true is lost.
    pub(crate) drop_data: Option<Filter>,
    pub(crate) accusations: Vec<(Id, Incarnation)>,
    pub(crate) options: GroupOptions,
    pub(crate) data_records: u64,
    /// Records that were handed on.
    pub(crate) chained: u64,
    /// Control for these waits.
    held: BTreeSet<Incarnation>,
    /// A member that lies: one in four of its messages was changed.
    pub(crate) liar: Option<(Id, Random)>,
}

const GROUP: &str = "orders";

impl World {
    pub(crate) fn new(kind: impl Into<Kind>, seed: u64) -> Self {
        Self::with_options(kind.into().options(), seed)
    }

    pub(crate) fn with_options(options: GroupOptions, seed: u64) -> Self {
        Self {
            peers: BTreeMap::new(),
            now: Time::from_micros(1_000_000),
            random: Random::new([seed, 7, 11, 13]),
            control: BTreeMap::new(),
            data: BTreeMap::new(),
            flights: 0,
            views: BTreeMap::new(),
            counter: 0,
            epoch: 1,
            loss: 0,
            duplicates: 0,
            jitter_ms: 0,
            trap: None,
            trapped: Vec::new(),
            drop_data: None,
            accusations: Vec::new(),
            options,
            data_records: 0,
            chained: 0,
            held: BTreeSet::new(),
            liar: None,
        }
    }

    /// A world in which these nodes are in one group.
    pub(crate) fn with_group(kind: impl Into<Kind>, seed: u64, ids: &[Id]) -> Self {
        Self::new(kind, seed).gather(ids)
    }

    /// The world once these nodes are in one group.
    pub(crate) fn gather(mut self, ids: &[Id]) -> Self {
        let world = &mut self;
        for id in ids {
            world.start(*id);
        }
        world.primary(ids);
        for id in ids {
            world.join(*id);
            world.run(50);
        }
        world.run(200);
        for id in ids {
            assert_eq!(world.members(*id), world.incarnations(ids), "member list at {id}");
        }
        self
    }

    pub(crate) fn start(&mut self, id: Id) {
        let seed = [u64::from(id) + 1, self.random.next_u64(), 3, 4];
        let mut groups = Groups::seeded(Profile::lan(), seed);
        let me = Incarnation(u128::from(id) * 1000 + 1);
        groups.handle_new_incarnation(self.now, me, None);
        let peer = Peer {
            groups,
            me,
            view: None,
            primary: false,
            handle: None,
            consumes: true,
            unconsumed: 0,
            trace: Vec::new(),
            outbox: member_outbox(&self.options),
            sent: Vec::new(),
            alive: true,
            asleep: false,
        };
        self.peers.insert(id, peer);
    }

    pub(crate) fn inc(&self, id: Id) -> Incarnation {
        self.peers[&id].me
    }

    pub(crate) fn incarnations(&self, ids: &[Id]) -> Vec<Incarnation> {
        ids.iter().map(|id| self.inc(*id)).collect()
    }

    fn peer_of(&self, incarnation: Incarnation) -> Option<Id> {
        self.peers
            .iter()
            .find(|(_, peer)| peer.me == incarnation && peer.alive)
            .map(|(id, _)| *id)
    }

    fn node_view(&self, ids: &[Id], primary: bool) -> Arc<NodeView> {
        let id = ViewId {
            epoch: self.epoch,
            counter: self.counter,
        };
        let members = ids.iter().map(|node| Member {
            incarnation: self.inc(*node),
            name: format!("n{node}"),
            addr: ([127, 0, 0, 1], 7000 + u16::from(*node)).into(),
            further: Vec::new(),
            metadata: BTreeMap::new(),
            weight: 1,
        });
        let id = if primary {
            NodeViewId::Primary { id }
        } else {
            NodeViewId::NonPrimary {
                base: id,
                attempt: 1,
                proposer: self.inc(ids[0]),
            }
        };
        Arc::new(NodeView {
            lineage: Lineage(self.epoch.into()),
            id,
            number: 100 + self.counter,
            members: members.collect(),
            joined: Vec::new(),
            departed: Vec::new(),
            merged: Vec::new(),
            wire_level: 1,
        })
    }

    /// The next primary view, installed by all its living members at once.
    pub(crate) fn primary(&mut self, ids: &[Id]) {
        self.primary_within(ids, 0);
    }

    /// The next primary view, installed by each at its own time within so many milliseconds.
    pub(crate) fn primary_within(&mut self, ids: &[Id], within_ms: u64) {
        self.counter += 1;
        let view = self.node_view(ids, true);
        for id in ids {
            let delay = if within_ms == 0 {
                0
            } else {
                self.random.below(within_ms * 1000)
            };
            self.flights += 1;
            // Later views of one node come later: their flight numbers are higher, and so are their times.
            let last = self
                .views
                .iter()
                .rev()
                .find(|(_, (to, _))| to == id)
                .map_or(Time::ZERO, |((at, _), _)| *at);
            let at = (self.now + Duration::from_micros(delay)).max(last);
            self.views.insert((at, self.flights), (*id, view.clone()));
        }
        self.run_micros(0);
    }

    /// These nodes lose the primary.
    pub(crate) fn non_primary(&mut self, ids: &[Id]) {
        let view = self.node_view(ids, false);
        for id in ids {
            self.install(*id, &view);
        }
    }

    fn install(&mut self, id: Id, view: &Arc<NodeView>) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if !peer.alive || !view.contains(peer.me) {
            return;
        }
        peer.primary = view.is_primary();
        peer.view = Some(view.primary_id());
        peer.groups.handle_node_view(now, view);
        self.collect(id);
    }

    /// Kill −9. What it sent may still arrive.
    pub(crate) fn crash(&mut self, id: Id) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.alive = false;
        }
    }

    /// The node goes on as another incarnation.
    pub(crate) fn reincarnate(&mut self, id: Id, cause: &str) {
        let now = self.now;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.me = Incarnation(peer.me.0 + 1);
            peer.view = None;
            peer.primary = false;
            let me = peer.me;
            peer.groups
                .handle_new_incarnation(now, me, Some(cause.to_owned()));
        }
        self.views.retain(|_, (to, _)| *to != id);
        self.collect(id);
    }

    pub(crate) fn join(&mut self, id: Id) {
        let (now, options) = (self.now, self.options);
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if peer.handle.is_none() {
            peer.outbox = member_outbox(&options);
        }
        peer.handle = Some(
            peer.groups
                .join(now, GROUP, options)
                .expect("valid name and options"),
        );
        self.collect(id);
    }

    /// The same, if it is in none.
    pub(crate) fn join_again(&mut self, id: Id) {
        if self.peers[&id].handle.is_none() {
            self.join(id);
        }
    }

    pub(crate) fn leave(&mut self, id: Id) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if let Some(handle) = peer.handle {
            peer.groups.leave_group(now, handle);
        }
        self.collect(id);
    }

    pub(crate) fn send(&mut self, id: Id, text: &str) -> Result<Ticket, SendError> {
        self.send_at(id, Level::Agreed, text)
    }

    pub(crate) fn send_safe(&mut self, id: Id, text: &str) -> Result<Ticket, SendError> {
        self.send_at(id, Level::Safe, text)
    }

    pub(crate) fn send_at(&mut self, id: Id, level: Level, text: &str) -> Result<Ticket, SendError> {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return Err(SendError::NoSuchGroup);
        };
        let Some(handle) = peer.handle else {
            return Err(SendError::NoSuchGroup);
        };
        let payload = Bytes::copy_from_slice(text.as_bytes());
        let scoped = self.options.order == Order::Scoped;
        let scope = text.chars().next().filter(|_| scoped).map(u32::from);
        let ticket = peer.outbox.accept(Payload::Shared(&payload), level, scope)?;
        let mut answer = Ok(ticket);
        hand_over(&mut peer.outbox, |first, block| {
            let sent = peer.groups.send_block(now, handle, first, block);
            answer = sent.map(|()| ticket);
            sent
        });
        if answer.is_ok() {
            peer.sent.push((peer.me, ticket, payload));
        } else {
            // These applications do not wait for room.
            peer.outbox.set_standing(Standing::Suspended);
            peer.outbox.set_standing(Standing::Member);
        }
        self.collect(id);
        answer
    }

    pub(crate) fn consume(&mut self, id: Id) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let count = std::mem::take(&mut peer.unconsumed);
        if let Some(handle) = peer.handle
            && count > 0
        {
            peer.groups.consumed(now, handle, count);
        }
        self.collect(id);
    }

    /// The application takes so many messages.
    pub(crate) fn read(&mut self, id: Id, messages: u64) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.unconsumed -= messages;
        if let Some(handle) = peer.handle {
            peer.groups.consumed(now, handle, messages);
        }
        self.collect(id);
    }

    /// Performs what a node wants done.
    fn collect(&mut self, id: Id) {
        loop {
            let Some(peer) = self.peers.get_mut(&id) else {
                return;
            };
            let Some(effect) = peer.groups.poll_effect() else {
                break;
            };
            let (me, view) = (peer.me, peer.view);
            if !peer.alive {
                continue;
            }
            match effect {
                Effect::Send { to, message } => self.send_control(id, me, view, to, message),
                Effect::Data { to, records, .. } | Effect::Multicast { to, records } => {
                    for (to, record) in to
                        .iter()
                        .flat_map(|to| records.iter().map(move |record| (*to, record)))
                    {
                        self.send_data(id, me, to, record, None);
                    }
                }
                Effect::Chain { to, records } => {
                    let (record, rest) = records.split_first().expect("a frame has a record");
                    self.send_data(id, me, to, record, Some(rest));
                }
                Effect::Accuse { peer, evidence } => {
                    assert_eq!(evidence, Evidence::FlushStalled);
                    self.accusations.push((id, peer));
                }
                Effect::Event(_, event) => {
                    if event == GroupEvent::Left {
                        peer.handle = None;
                    }
                    // One event a message, as applications see them.
                    let GroupEvent::Messages(mut messages) = event else {
                        peer.trace.push((me, event));
                        continue;
                    };
                    peer.unconsumed += messages.len();
                    while !messages.block.is_empty() {
                        let block = messages.block.split_front(1);
                        let one = Messages {
                            block,
                            ..messages.clone()
                        };
                        peer.trace.push((me, GroupEvent::Messages(one)));
                        messages.first += 1;
                        messages.ticket = messages.ticket.map(|ticket| Ticket(ticket.0 + 1));
                    }
                }
            }
        }
        if self
            .peers
            .get(&id)
            .is_some_and(|peer| peer.consumes && peer.alive && peer.unconsumed > 0)
        {
            self.consume(id);
        }
    }

    fn send_control(
        &mut self,
        id: Id,
        me: Incarnation,
        view: Option<ViewId>,
        to: Incarnation,
        message: GroupMessage,
    ) {
        let receiver = self.peer_of(to);
        if let (Some(trap), Some(receiver)) = (&mut self.trap, receiver)
            && trap(id, receiver, &message)
        {
            self.trap = None;
            self.trapped.push(id);
            return self.crash(id);
        }
        let message = self.as_said(id, message);
        let delay = 500 + self.random.below(1 + self.jitter_ms * 1000);
        let queue = self.control.entry((me, to)).or_default();
        let last = queue.back().map_or(Time::ZERO, |(at, _, _)| *at);
        let at = (self.now + Duration::from_micros(delay)).max(last);
        queue.push_back((at, view.expect("control only under a view"), message));
    }

    fn as_said<T: Wire>(&mut self, id: Id, message: T) -> T {
        let liar = self.liar.as_mut().filter(|(liar, _)| *liar == id);
        match liar {
            Some((_, random)) => match random.below(4) {
                0 => twisted(random, message),
                _ => message,
            },
            None => message,
        }
    }

    fn send_data(
        &mut self,
        id: Id,
        from: Incarnation,
        to: Incarnation,
        record: &GroupData,
        chained: Option<&[GroupData]>,
    ) {
        self.data_records += 1;
        // What goes over the wire comes back the same.
        let bytes = antiphon_wire::codec::encode_to_vec(record);
        let record: GroupData = antiphon_wire::codec::decode_all(bytes.into()).expect("own encoding");
        let record = self.as_said(id, record);
        if let (Some(filter), Some(receiver)) =
            (&mut self.drop_data, self.peers.iter().find(|(_, p)| p.me == to))
            && filter(id, *receiver.0, &record)
        {
            return;
        }
        let copies = 1 + u64::from(self.random.below(100) < self.duplicates);
        for _ in 0..copies {
            if self.random.below(100) < self.loss {
                continue;
            }
            let delay = 300 + self.random.below(1 + self.jitter_ms * 1000);
            self.flights += 1;
            let at = self.now + Duration::from_micros(delay);
            self.data.insert(
                (at, self.flights),
                Flight {
                    from,
                    to,
                    record: record.clone(),
                    chained: chained.map(<[GroupData]>::to_vec),
                },
            );
        }
    }

    /// A record arrives. If it is handed on, it goes on in the name of its first sender.
    fn land(&mut self, id: Id, flight: Flight) {
        let (now, from) = (self.now, flight.from);
        let peer = self.peers.get_mut(&id).expect("just found");
        if let Some(rest) = flight.chained {
            let record = flight.record.clone();
            let mut next = peer.groups.handle_chained(now, from, flight.record);
            for record in &rest {
                next = next.or(peer.groups.handle_chained(now, from, record.clone()));
            }
            let alive = peer.alive;
            if let Some(next) = next.filter(|_| alive) {
                assert_ne!(next, from, "a frame comes back to who sent it");
                self.chained += 1;
                self.send_data(id, from, next, &record, Some(&rest));
            }
        } else {
            peer.groups.handle_data(now, from, flight.record);
        }
        self.collect(id);
    }

    /// A frame of a member arrives out of the blue.
    pub(crate) fn inject(&mut self, from: Incarnation, to: Id, record: GroupData) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(&to) else {
            return;
        };
        peer.groups.handle_data(now, from, record);
        self.collect(to);
    }

    /// A frame that is to be handed on arrives out of the blue.
    pub(crate) fn inject_chained(&mut self, from: Incarnation, to: Id, record: GroupData) {
        let flight = Flight {
            from,
            to: self.inc(to),
            record,
            chained: Some(Vec::new()),
        };
        self.land(to, flight);
    }

    /// Whether such a control message is on its way.
    pub(crate) fn is_on_its_way(&self, from: Id, to: Id, what: impl Fn(&GroupMessage) -> bool) -> bool {
        let pair = (self.inc(from), self.inc(to));
        let queue = self.control.get(&pair);
        queue.is_some_and(|queue| queue.iter().any(|(_, _, message)| what(message)))
    }

    /// From now on control for this node waits; what is on its way is kept, as on a very slow host.
    pub(crate) fn hold_control(&mut self, to: Id) {
        self.held.insert(self.inc(to));
    }

    /// Control goes on.
    pub(crate) fn release_control(&mut self) {
        self.held.clear();
    }

    pub(crate) fn run(&mut self, ms: u64) {
        self.run_micros(ms * 1000);
    }

    pub(crate) fn run_micros(&mut self, micros: u64) {
        let end = self.now + Duration::from_micros(micros);
        loop {
            let view = self.views.keys().next().map(|(at, _)| *at);
            let data = self.data.keys().next().map(|(at, _)| *at);
            let control = self.next_control();
            let timer = self
                .peers
                .iter()
                .filter(|(_, peer)| peer.alive && !peer.asleep)
                .filter_map(|(id, peer)| Some((peer.groups.next_timeout()?, *id)))
                .min();
            let next = [view, data, control.map(|(at, _)| at), timer.map(|(at, _)| at)];
            let Some(at) = next.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if view == Some(at) {
                let (_, (id, view)) = self.views.pop_first().expect("looked at");
                self.install(id, &view);
            } else if let Some((_, pair)) = control.filter(|(time, _)| *time == at) {
                self.deliver_control(pair);
            } else if data == Some(at) {
                let (_, flight) = self.data.pop_first().expect("looked at");
                if let Some(id) = self.peer_of(flight.to)
                    && !self.peers[&id].asleep
                {
                    self.land(id, flight);
                }
            } else if let Some((_, id)) = timer {
                let now = self.now;
                let peer = self.peers.get_mut(&id).expect("just found");

                peer.groups.handle_timeout(now);
                assert!(
                    peer.groups.next_timeout().is_none_or(|at| at > now),
                    "a timeout at {now:?} that stays due at {id}: {:#?}",
                    peer.groups
                );
                self.collect(id);
            }
        }
        self.now = end;
    }

    /// The earliest control message that its receiver may handle: one of a later view waits.
    fn next_control(&self) -> Option<(Time, (Incarnation, Incarnation))> {
        let ready = self.control.iter().filter_map(|(pair, queue)| {
            let (at, view, _) = queue.front()?;
            if self.held.contains(&pair.1) {
                return None;
            }
            let receiver = self.peer_of(pair.1).map(|id| &self.peers[&id]);
            match receiver {
                Some(peer) if peer.view.is_none_or(|installed| installed < *view) => None,
                _ => Some(((*at).max(Time::ZERO), *pair)),
            }
        });
        ready.min()
    }

    fn deliver_control(&mut self, pair: (Incarnation, Incarnation)) {
        let Some((_, view, message)) = self.control.get_mut(&pair).and_then(VecDeque::pop_front) else {
            return;
        };
        let Some(id) = self.peer_of(pair.1) else { return };
        let bytes = antiphon_wire::codec::encode_to_vec(&message);
        let message: GroupMessage = antiphon_wire::codec::decode_all(bytes.into()).expect("own encoding");
        let now = self.now;
        let peer = self.peers.get_mut(&id).expect("just found");
        peer.groups.handle_message(now, pair.0, view, message);
        self.collect(id);
    }

    // What the applications saw.

    /// The views this node's application saw.
    pub(crate) fn views(&self, id: Id) -> Vec<Arc<GroupView>> {
        let events = self.peers[&id].trace.iter();
        events
            .filter_map(|(_, event)| match event {
                GroupEvent::View(view) => Some(view.clone()),
                _ => None,
            })
            .collect()
    }

    /// The present members of the group as this node's application knows them.
    pub(crate) fn members(&self, id: Id) -> Vec<Incarnation> {
        self.views(id)
            .last()
            .map(|view| view.members.clone())
            .unwrap_or_default()
    }

    pub(crate) fn messages(&self, id: Id) -> Vec<Message> {
        let events = self.peers[&id].trace.iter();
        events
            .filter_map(|(_, event)| match event {
                GroupEvent::Messages(message) => message.clone().next(),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn texts(&self, id: Id) -> Vec<String> {
        let text = |message: Message| String::from_utf8_lossy(&message.payload).into_owned();
        self.messages(id).into_iter().map(text).collect()
    }

    /// The texts by their numbers, if the group has no order and they are of one sender; otherwise as they
    /// were delivered.
    pub(crate) fn in_order(&self, id: Id) -> Vec<String> {
        let mut messages = self.messages(id);
        if matches!(self.options.order, Order::Unordered | Order::Scoped) {
            messages.sort_by_key(|message| message.seq);
        }
        let text = |message: Message| String::from_utf8_lossy(&message.payload).into_owned();
        messages.into_iter().map(text).collect()
    }

    pub(crate) fn events(&self, id: Id) -> Vec<GroupEvent> {
        self.peers[&id]
            .trace
            .iter()
            .map(|(_, event)| event.clone())
            .collect()
    }
}
