//! A tiny network under several memberships: effects become inputs after a short while, on virtual time.
//!
//! Channels are reliable per pair of incarnations, discovery and heartbeats are lost while a pair is cut,
//! lifelines behave as TCP does: what was written during a cut arrives after the heal, then the FIN.

mod liar;
mod lifelines;
mod probes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{Discovery, Heartbeat, MembershipMessage, Pulse};
use antiphon_wire::{Evidence, Incarnation, Lineage, NodeView, NodeViewId, ViewId};
use bytes::Bytes;

use crate::detector::Came;
use crate::membership::seat::Seat;
use crate::membership::{Effect, Membership, Phase, view::check};
use crate::random::Random;
use crate::{
    Config, DialId, EngineKind, Event, Hints, LifelineEnd, LifelineEvent, PathTrouble, Recovery,
    RecoveryError, Sources, Time,
};

const LATENCY: Duration = Duration::from_micros(300);
const RETRANSMIT: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
enum Parcel {
    Discovery(Discovery),
    Heartbeat(Heartbeat),
    Pulse(Pulse),
    /// Whether it asks for others.
    Probe(bool, Heartbeat),
    Message {
        link: (Incarnation, Incarnation),
    },
    Opened {
        dial: DialId,
        connection: u64,
    },
    Failed {
        dial: DialId,
    },
    /// The next of what was written to a lifeline.
    Stream {
        connection: u64,
    },
    Trouble {
        addr: SocketAddr,
    },
}

#[derive(Debug)]
struct Delivery {
    from: usize,
    sender: Incarnation,
    to: usize,
    /// Only for this process, not for a later one at the same address.
    process: Option<u64>,
    parcel: Parcel,
}

pub(super) struct Host {
    pub(super) membership: Membership,
    pub(super) me: Incarnation,
    pub(super) events: Vec<Event>,
    /// Views of the present incarnation.
    pub(super) views: Vec<Arc<NodeView>>,
    pub(super) stopped: bool,
    process: u64,
    peers: BTreeMap<Incarnation, SocketAddr>,
    config: Config,
}

/// What a lifeline carries: it arrives in this order, however long it takes.
#[derive(Debug)]
enum Written {
    Record(Bytes),
    End(LifelineEnd),
}

struct Connection {
    written: VecDeque<Written>,
    writer: usize,
    writer_process: u64,
    watcher: usize,
    watcher_process: u64,
    dial: DialId,
    local: SocketAddr,
}

pub(super) struct Net {
    engine: EngineKind,
    /// How long messages and heartbeats take.
    pub(super) latency: Duration,
    /// Rings of the cut engine: with three, five nodes are not all neighbours.
    pub(super) rings: usize,
    pub(super) now: Time,
    pub(super) hosts: Vec<Option<Host>>,
    queue: BTreeMap<(Time, u64), Delivery>,
    next: u64,
    links: BTreeMap<(Incarnation, Incarnation), Vec<MembershipMessage>>,
    connections: BTreeMap<u64, Connection>,
    cut: BTreeSet<(usize, usize)>,
    /// Of heartbeats and discovery from one to another, one of so many arrives; and how many were sent.
    thinned: BTreeMap<(usize, usize), (u32, u32)>,
    /// Whose probes arrive, whatever is cut.
    probing: BTreeSet<usize>,
    paused: BTreeSet<usize>,
    /// Who said anything to whom, and whether it sought it.
    pub(super) spoken: BTreeSet<(usize, usize, bool)>,
    /// How many heartbeats went from one to another.
    pub(super) beats: BTreeMap<(usize, usize), u64>,
    /// One node, and the bytes of all that it sent by its channels from when it was set, but for rumours.
    pub(super) weighed: Option<(usize, usize)>,
    /// Every primary view that anyone installed.
    pub(super) primaries: BTreeMap<(Lineage, ViewId), Arc<NodeView>>,
    seed: u64,
    /// A host that lies, and in what way.
    pub(super) liar: Option<(usize, Random)>,
}

pub(super) fn addr(index: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7000 + u16::try_from(index).unwrap()))
}

fn index(addr: SocketAddr) -> usize {
    usize::from(addr.port().wrapping_sub(7000))
}

pub(super) fn config(index: usize, seeds: usize) -> Config {
    let mut config = Config::new("test", format!("n{index}"), addr(index));
    config.seeds = (0..seeds).map(addr).collect();
    config
}

impl Net {
    pub(super) fn new(seed: u64, engine: EngineKind) -> Self {
        Self {
            engine,
            latency: LATENCY,
            rings: 10,
            now: Time::ZERO,
            hosts: Vec::new(),
            queue: BTreeMap::new(),
            next: 0,
            links: BTreeMap::new(),
            connections: BTreeMap::new(),
            cut: BTreeSet::new(),
            thinned: BTreeMap::new(),
            probing: BTreeSet::new(),
            paused: BTreeSet::new(),
            spoken: BTreeSet::new(),
            beats: BTreeMap::new(),
            weighed: None,
            primaries: BTreeMap::new(),
            seed,
            liar: None,
        }
    }

    /// `count` nodes that are each other's seeds, started at the same instant and settled in one view.
    pub(super) fn formed(count: usize, engine: EngineKind) -> Self {
        let mut net = Net::new(7, engine);
        for node in 0..count {
            net.start(node, config(node, count));
        }
        net.run_ms(2500);
        net.assert_one_view(&(0..count).collect::<Vec<_>>());
        net
    }

    pub(super) fn start(&mut self, node: usize, config: Config) {
        let (engine, rings) = (self.engine, self.rings);
        let config = Config {
            engine,
            rings,
            ..config
        };
        self.start_with(node, config);
    }

    /// Starts a node with the engine that its configuration says.
    pub(super) fn start_with(&mut self, node: usize, config: Config) {
        while self.hosts.len() <= node {
            self.hosts.push(None);
        }
        self.next += 1;
        self.seed += 1;
        let random = Random::new([self.seed, node as u64 + 1, 3, 4]);
        let membership = Membership::new(Arc::new(config.clone()), random, self.now);
        self.hosts[node] = Some(Host {
            membership,
            me: Incarnation(0),
            events: Vec::new(),
            views: Vec::new(),
            stopped: false,
            process: self.next,
            peers: BTreeMap::new(),
            config,
        });
        self.drain(node);
    }

    /// Kills the process: what it sent still arrives, and the kernel ends its lifelines with a FIN.
    pub(super) fn kill(&mut self, node: usize) {
        self.end(node, Some(LifelineEnd::Fin));
    }

    /// The host loses power: nothing more is heard of it.
    pub(super) fn power_off(&mut self, node: usize) {
        self.end(node, None);
        self.switch_off(node);
    }

    /// The host of a process that has ended loses power: not even what was on its way behind a cut arrives,
    /// since nobody is left to send it again.
    pub(super) fn switch_off(&mut self, node: usize) {
        self.queue.retain(|_, delivery| delivery.from != node);
    }

    /// These have not taken what a node sent them.
    pub(super) fn crowd(&mut self, node: usize, whom: &[usize]) {
        let whom = whom.iter().map(|whom| self.host(*whom).me).collect();
        let host = self.hosts[node].as_mut().unwrap();
        host.membership.set_crowded(whom);
    }

    /// The process dies, but something in between answers with resets.
    pub(super) fn kill_behind_a_firewall(&mut self, node: usize) {
        self.end(node, Some(LifelineEnd::Broken));
    }

    fn end(&mut self, node: usize, end: Option<LifelineEnd>) {
        let Some(host) = self.hosts[node].take() else {
            return;
        };
        let mine: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.writer == node && connection.writer_process == host.process)
            .map(|(id, _)| *id)
            .collect();
        if let Some(end) = end {
            for connection in mine {
                self.write(connection, host.me, Written::End(end));
            }
            for to in 0..self.hosts.len() {
                if self.hosts[to].is_some() {
                    let trouble = Parcel::Trouble { addr: addr(node) };
                    self.post(LATENCY, node, host.me, to, None, trouble);
                }
            }
        }
    }

    pub(super) fn restart(&mut self, node: usize) {
        let config = self.host(node).config.clone();
        self.kill(node);
        self.start(node, config);
    }

    pub(super) fn leave(&mut self, node: usize) {
        let now = self.now;
        self.hosts[node].as_mut().unwrap().membership.leave(now);
        self.drain(node);
    }

    /// The groups of a node find that another one holds up a flush, or something like it.
    pub(super) fn accuse(&mut self, node: usize, of: usize, evidence: Evidence) {
        let (now, peer) = (self.now, self.host(of).me);
        self.hosts[node]
            .as_mut()
            .unwrap()
            .membership
            .accuse(now, peer, evidence);
        self.drain(node);
    }

    pub(super) fn partition(&mut self, one: &[usize], other: &[usize]) {
        for a in one {
            for b in other {
                self.cut.insert((*a, *b));
                self.cut.insert((*b, *a));
            }
        }
    }

    /// The path between two works again.
    pub(super) fn join_up(&mut self, one: usize, other: usize) {
        self.cut.remove(&(one, other));
        self.cut.remove(&(other, one));
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
        self.thinned.clear();
        self.probing.clear();
    }

    pub(super) fn pause(&mut self, node: usize) {
        self.paused.insert(node);
    }

    pub(super) fn resume(&mut self, node: usize) {
        self.paused.remove(&node);
    }

    /// The transport of a node reports trouble on the path to another.
    pub(super) fn trouble(&mut self, node: usize, to: usize, trouble: PathTrouble) {
        let now = self.now;
        let host = self.hosts[node].as_mut().unwrap();
        host.membership.handle_path_trouble(now, addr(to), trouble);
        self.drain(node);
    }

    /// A node is told of nodes, whether any run there or not, by something that may name others later.
    pub(super) fn hint(&mut self, node: usize, whom: &[usize]) {
        let hints = Hints {
            nodes: whom.iter().copied().map(addr).collect(),
            sources: Sources::Heard,
            ..Hints::default()
        };
        self.set_hints(node, hints);
    }

    /// A node is told of locators.
    pub(super) fn hint_locators(&mut self, node: usize, whom: &[usize]) {
        let hints = Hints {
            locators: whom.iter().copied().map(addr).collect(),
            ..Hints::default()
        };
        self.set_hints(node, hints);
    }

    fn set_hints(&mut self, node: usize, hints: Hints) {
        let now = self.now;
        let host = self.hosts[node].as_mut().unwrap();
        host.membership.set_hints(now, hints);
        self.drain(node);
    }

    /// An operator's word to a node.
    pub(super) fn recover(&mut self, node: usize, shown: &Recovery) -> Result<(), RecoveryError> {
        let now = self.now;
        let host = self.hosts[node].as_mut().unwrap();
        let done = host.membership.recover(now, shown);
        self.drain(node);
        done
    }

    /// Somebody who is no node says something to a node.
    pub(super) fn discover(&mut self, node: usize, sender: Incarnation, message: Discovery) {
        let now = self.now;
        let host = self.hosts[node].as_mut().unwrap();
        host.membership.handle_discovery(now, addr(0), sender, message);
        self.drain(node);
    }

    /// A member says something to another that no honest one would.
    pub(super) fn lie(&mut self, node: usize, to: usize, message: MembershipMessage) {
        let (now, sender) = (self.now, self.host(node).me);
        let host = self.hosts[to].as_mut().unwrap();
        host.membership.handle_message(now, sender, message);
        self.drain(to);
    }

    /// The same with a heartbeat.
    pub(super) fn beat(&mut self, node: usize, to: usize, heartbeat: Heartbeat) {
        let (now, sender) = (self.now, self.host(node).me);
        let membership = &mut self.hosts[to].as_mut().unwrap().membership;
        membership.handle_heartbeat(now, sender, heartbeat, Came::Directly);
    }

    /// The bytes of the largest message that is on its way.
    pub(super) fn largest(&self) -> usize {
        let messages = self.links.values().flatten();
        messages
            .map(|message| encode_to_vec(message).len())
            .max()
            .unwrap_or(0)
    }

    pub(super) fn host(&self, node: usize) -> &Host {
        self.hosts[node].as_ref().unwrap()
    }

    pub(super) fn view(&self, node: usize) -> Option<Arc<NodeView>> {
        self.hosts[node].as_ref()?.membership.view().cloned()
    }

    pub(super) fn names(&self, node: usize) -> Vec<String> {
        self.view(node).map_or_else(Vec::new, |view| {
            view.members.iter().map(|m| m.name.clone()).collect()
        })
    }

    /// How many different votes about the next view a member of a wide view keeps.
    pub(super) fn votes_kept(&self, node: usize) -> usize {
        match &self.host(node).membership.phase {
            Phase::Seated(seat) => seat.installed.topology.tallies(),
            Phase::Seeking(_) | Phase::Stopped => 0,
        }
    }

    /// What one has sent another that is not there yet.
    pub(super) fn on_the_way(&self, from: usize, to: usize) -> &[MembershipMessage] {
        let link = (self.host(from).me, self.host(to).me);
        self.links.get(&link).map_or(&[], Vec::as_slice)
    }

    /// The sum over all rumours that a member of a wide view knows; none is 0.
    pub(super) fn sum(&self, node: usize) -> u32 {
        match &self.host(node).membership.phase {
            Phase::Seated(seat) => seat.installed.topology.sum_of_rumours(),
            Phase::Seeking(_) | Phase::Stopped => 0,
        }
    }

    /// Whom a member without a primary asks in this turn.
    pub(super) fn whom_to_ask(&mut self, node: usize) -> Vec<SocketAddr> {
        let host = self.hosts[node].as_mut();
        match &mut host.unwrap().membership.phase {
            Phase::Seated(seat) => seat.installed.reconnect.take_turn(&seat.installed.view),
            Phase::Seeking(_) | Phase::Stopped => Vec::new(),
        }
    }

    /// Puts another view after the one that all have.
    pub(super) fn install(&mut self, change: impl Fn(&mut NodeView)) {
        let now = self.now;
        for node in 0..self.hosts.len() {
            let Some(host) = &mut self.hosts[node] else {
                continue;
            };
            let Membership { cx, phase, .. } = &mut host.membership;
            if let Phase::Seated(seat) = phase {
                let mut view = (*seat.installed.view).clone();
                view.id = NodeViewId::Primary {
                    id: check::next_id(view.primary_id()),
                };
                view.number += 1;
                view.joined.clear();
                view.departed.clear();
                change(&mut view);
                let base = check::change_of(&seat.installed.view, &view);
                seat.install(cx, now, Arc::new(view), Some(base));
            }
            self.drain(node);
        }
    }

    /// Whom a member observes.
    pub(super) fn subjects(&self, node: usize) -> Vec<usize> {
        self.members(node, |Seat { installed, .. }, me| {
            installed.rings.subjects_in(&installed.view, me).collect()
        })
    }

    /// Whether a member has left, and stays until its neighbours know.
    pub(super) fn departs(&self, node: usize) -> bool {
        matches!(&self.host(node).membership.phase, Phase::Seated(seat) if seat.leaving.is_departing())
    }

    /// Its neighbours in a wide view.
    pub(super) fn neighbours(&self, node: usize) -> Vec<usize> {
        self.members(node, |seat, _| seat.installed.topology.neighbours().collect())
    }

    fn members(&self, node: usize, which: impl Fn(&Seat, Incarnation) -> Vec<Incarnation>) -> Vec<usize> {
        let host = self.host(node);
        let Phase::Seated(seat) = &host.membership.phase else {
            return Vec::new();
        };
        let members = which(seat, host.me).into_iter();
        members
            .filter_map(|member| Some(index(seat.installed.view.member(member)?.addr)))
            .collect()
    }

    pub(super) fn is_primary(&self, node: usize) -> bool {
        self.view(node).is_some_and(|view| view.is_primary())
    }

    /// How many clusters were ever founded.
    pub(super) fn lineages(&self) -> usize {
        self.primaries
            .keys()
            .map(|(lineage, _)| *lineage)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Who sees what, for the messages of failing tests.
    pub(super) fn summary(&self) -> Vec<String> {
        (0..self.hosts.len())
            .map(|node| match self.view(node) {
                Some(view) => format!("{node}: {} {:?} {}", view.id, self.names(node), view.lineage),
                None => format!("{node}: no view"),
            })
            .collect()
    }

    /// All of them are in the same primary view, which has exactly them.
    pub(super) fn assert_one_view(&self, nodes: &[usize]) {
        let view = self
            .view(nodes[0])
            .unwrap_or_else(|| panic!("{} has no view", nodes[0]));
        let members: BTreeSet<usize> = view.members.iter().map(|member| index(member.addr)).collect();
        assert_eq!(members, nodes.iter().copied().collect(), "members of {}", view.id);
        for node in nodes {
            assert_eq!(self.view(*node).as_deref(), Some(&*view), "view of {node}");
            assert!(view.is_primary(), "view of {node} is {}", view.id);
        }
    }

    pub(super) fn run_ms(&mut self, ms: u64) {
        self.run_micros(ms * 1000);
    }

    pub(super) fn run_micros(&mut self, micros: u64) {
        let until = self.now + Duration::from_micros(micros);
        self.run_until(until, |_| false);
        self.now = until;
    }

    /// Runs until the condition holds; how many milliseconds that took.
    pub(super) fn run_while_ms(&mut self, at_most: u64, condition: impl Fn(&Net) -> bool) -> u64 {
        let start = self.now;
        self.run_until(start + Duration::from_millis(at_most), |net| !condition(net));
        assert!(!condition(self), "not done after {at_most} ms");
        u64::try_from(self.now.since(start).as_millis()).unwrap()
    }

    fn run_until(&mut self, until: Time, done: impl Fn(&Net) -> bool) {
        let mut spins = 0;
        let mut last = self.now;
        while !done(self) {
            let timer = self
                .hosts
                .iter()
                .enumerate()
                .filter(|(node, _)| !self.paused.contains(node))
                .filter_map(|(node, host)| Some((host.as_ref()?.membership.next_timeout()?, node)))
                .min();
            let parcel = self.queue.keys().next().map(|(at, _)| *at);
            let next = [timer.map(|(at, _)| at), parcel].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= until) else {
                return;
            };
            self.now = self.now.max(next);
            spins = if last == self.now { spins + 1 } else { 0 };
            last = self.now;
            if spins > 20_000 {
                let node = timer.map_or(0, |(_, node)| node);
                panic!(
                    "time stands still at {:?} for {:#?}",
                    self.now,
                    self.host(node).membership
                );
            }
            if parcel.is_some_and(|at| at <= self.now) {
                let (_, delivery) = self.queue.pop_first().unwrap();
                self.deliver(delivery);
            } else if let Some((_, node)) = timer {
                let now = self.now;
                self.hosts[node].as_mut().unwrap().membership.handle_timeout(now);
                self.drain(node);
            }
        }
    }

    fn post(
        &mut self,
        after: Duration,
        from: usize,
        sender: Incarnation,
        to: usize,
        process: Option<u64>,
        parcel: Parcel,
    ) {
        self.next += 1;
        self.queue.insert(
            (self.now + after, self.next),
            Delivery {
                from,
                sender,
                to,
                process,
                parcel,
            },
        );
    }

    fn deliver(&mut self, delivery: Delivery) {
        let Delivery {
            from,
            sender,
            to,
            process,
            ref parcel,
        } = delivery;
        let now = self.now;
        let lossy = matches!(
            parcel,
            Parcel::Discovery(_) | Parcel::Heartbeat(_) | Parcel::Pulse(_)
        );
        let blocked = self.cut.contains(&(from, to)) && !matches!(parcel, Parcel::Probe(..));
        if (blocked && !lossy) || self.paused.contains(&to) {
            self.next += 1;
            self.queue.insert((now + RETRANSMIT, self.next), delivery);
            return;
        }
        let Some(host) = self.hosts.get_mut(to).and_then(Option::as_mut) else {
            return;
        };
        let thinned = lossy
            && self.thinned.get_mut(&(from, to)).is_some_and(|(one_of, sent)| {
                *sent += 1;
                *sent % *one_of != 0
            });
        if blocked || thinned || host.stopped || process.is_some_and(|process| process != host.process) {
            return;
        }
        match delivery.parcel {
            Parcel::Discovery(message) => {
                host.membership.heard(now, sender, Came::Directly);
                host.membership.handle_discovery(now, addr(from), sender, message);
            }
            Parcel::Heartbeat(heartbeat) => {
                host.membership.heard(now, sender, Came::Directly);
                host.membership
                    .handle_heartbeat(now, sender, heartbeat, Came::Directly);
            }
            Parcel::Pulse(pulse) => {
                host.membership.heard(now, sender, Came::Directly);
                host.membership.handle_pulse(now, sender, pulse);
            }
            Parcel::Probe(asks, heartbeat) => probes::come(host, now, sender, asks, heartbeat),
            Parcel::Message { link } => {
                if host.me != link.1 {
                    return;
                }
                // The node makes a member reachable that speaks to it.
                if !host.peers.contains_key(&sender)
                    && let Some(addr) = host.membership.reach(sender)
                {
                    host.peers.insert(sender, addr);
                }
                if !host.peers.contains_key(&sender) {
                    // A link that this side does not know yet: the other repeats it while it cares.
                    if self.links.contains_key(&link) {
                        self.post(RETRANSMIT, from, sender, to, process, Parcel::Message { link });
                    }
                    return;
                }
                let messages = self.links.get_mut(&link).map(std::mem::take).unwrap_or_default();
                for message in messages {
                    let host = self.hosts[to].as_mut().unwrap();
                    host.membership.heard(now, sender, Came::Directly);
                    host.membership.handle_message(now, sender, message);
                    self.drain(to);
                }
                return;
            }
            Parcel::Opened { dial, connection } => {
                let Some(open) = self.connections.get(&connection) else {
                    return;
                };
                let (local, remote) = (open.local, addr(open.watcher));
                let event = LifelineEvent::Opened { dial, local, remote };
                host.membership.handle_lifeline(now, event, None);
            }
            Parcel::Failed { dial } => {
                host.membership
                    .handle_lifeline(now, LifelineEvent::Failed { dial }, None);
            }
            Parcel::Stream { connection } => {
                let Some(open) = self.connections.get_mut(&connection) else {
                    return;
                };
                let (remote, written) = (open.local, open.written.pop_front());
                match written {
                    Some(Written::Record(record)) => {
                        let local = addr(to);
                        let event = LifelineEvent::Record {
                            connection,
                            local,
                            remote,
                            record,
                        };
                        host.membership.handle_lifeline(now, event, Some(sender));
                    }
                    Some(Written::End(end)) => {
                        self.connections.remove(&connection);
                        host.membership
                            .handle_lifeline(now, LifelineEvent::Ended { connection, end }, None);
                    }
                    None => {}
                }
            }
            Parcel::Trouble { addr } => host.membership.handle_path_trouble(now, addr, PathTrouble::Lost),
        }
        self.drain(to);
    }

    fn drain(&mut self, node: usize) {
        while let Some(effect) = self.hosts[node]
            .as_mut()
            .and_then(|host| host.membership.poll_effect())
        {
            self.perform(node, effect);
        }
    }

    fn perform(&mut self, node: usize, effect: Effect) {
        let effect = self.as_said(node, effect);
        let host = self.hosts[node].as_mut().unwrap();
        let (me, process) = (host.me, host.process);
        match effect {
            Effect::NewIncarnation { me, .. } => {
                host.me = me;
                host.peers.clear();
                host.views.clear();
            }
            Effect::Peer { peer, addr } => {
                host.peers.insert(peer, addr);
            }
            Effect::ForgetPeer { peer } => {
                host.peers.remove(&peer);
            }
            Effect::Send { to, message } => {
                let Some(addr) = host.peers.get(&to).copied() else {
                    panic!("no peer {to}")
                };
                self.spoken.insert((node, index(addr), false));
                if let Some((_, bytes)) = self.weighed.as_mut().filter(|(of, _)| *of == node)
                    && !matches!(message, MembershipMessage::Rumours { .. })
                {
                    *bytes += encode_to_vec(&message).len();
                }
                self.links.entry((me, to)).or_default().push(message);
                self.post(
                    self.latency,
                    node,
                    me,
                    index(addr),
                    None,
                    Parcel::Message { link: (me, to) },
                );
            }
            // Nobody here has a witness.
            Effect::LastVoteRecord(_) => unreachable!("no witness was configured"),
            Effect::Discovery { to, message } => {
                self.spoken.insert((node, index(to), true));
                self.post(LATENCY, node, me, index(to), None, Parcel::Discovery(message));
            }
            Effect::Heartbeat { to, heartbeat } => {
                let addr = host.peers[&to];
                *self.beats.entry((node, index(addr))).or_default() += 1;
                self.spoken.insert((node, index(addr), false));
                self.post(
                    self.latency,
                    node,
                    me,
                    index(addr),
                    None,
                    Parcel::Heartbeat(heartbeat),
                );
            }
            Effect::Pulse { to, pulse } => {
                let addr = host.peers[&to];
                self.spoken.insert((node, index(addr), false));
                self.post(self.latency, node, me, index(addr), None, Parcel::Pulse(pulse));
            }
            Effect::Probe { to, asks, heartbeat } => self.probe(node, to, asks, heartbeat),
            Effect::Lifeline(command) => self.lifeline(node, me, process, command),
            Effect::Installed(view) => {
                self.check_view(node, &view);
                self.hosts[node].as_mut().unwrap().views.push(view);
            }
            Effect::Event(event) => host.events.push(event),
            Effect::Stopped => host.stopped = true,
        }
    }
}
