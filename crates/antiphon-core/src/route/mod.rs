//! The link over which a peer is reached (G32).
//!
//! A node may have several addresses, in networks that fail apart. *Link j* to a peer leads to the peer's
//! j-th address, from whichever address of this node the system chooses. So nodes with different numbers of
//! addresses understand each other. Each direction has links of its own: a cable that is cut one way is left
//! one way. And no pairs need to be configured.
//!
//! ```text
//!   this node                                             the peer
//!   every heartbeat ─── Beat{link 0, round, heard} ─────►  its first address
//!                   ─── Beat{link 1, round, heard} ─────►  its second address
//!   link 0: acknowledged round 7     ◄────────────────── Beat{…, heard: [7, 9]}  on any address of this node
//!   link 1: acknowledged round 9
//!
//!   everything else ─── over the first link that is up
//! ```
//! A beat on any link says on which of its addresses the sender has heard the receiver. So a link need not
//! work both ways to show that its one direction works.
//!
//! ```text
//!          3 rounds acknowledged elsewhere and not here, or the network reports trouble
//!     Up ──────────────────────────────────────────────────────────────────────────────► Down
//!      ◄────────────────────────────────────────────────────────────────────────────────
//!          acknowledged for 10 rounds; twice as many, up to 80, if it fails again within a minute's worth
//! ```
//! # Invariants
//! - The links of a peer are compared with each other, never with a clock. Silence of the peer on all of them
//!   changes nothing here and is the detector's business, and so is a pause of either side.
//! - The link in use is the first that is up. If none is, it is the one acknowledged last.
//! - The rest of the core knows a peer by its first address only. A path trouble reaches it only if no link
//!   of that peer is up, and beats are signs of life like all other frames. So no member is doubted because
//!   one link fails while another works.
//! - A further address is used only after it was acknowledged: if a peer says wrong things of its addresses,
//!   only that peer suffers.
//! - State is bounded: [`MAX_NODES`] nodes of [`MAX_ADDRESSES`] addresses.
//!
//! That no member is doubted for one link is for the simulator to judge (`check/inside/links`, G32).
//!
//! # What happens when…
//! - *a link fails*: what was on its way is lost, as on a connection that broke; links and logs repair it
//!   over the next one. A lifeline over it is reset and dialled anew (`Node` does that): the proof of a death
//!   must not depend on a dead cable (R9);
//! - *it returns*: the same, except that lifelines stay where they work;
//! - *all links fail*: nothing changes here; the detector suspects the peer as it would with one link;
//! - *the peer restarts*: its new incarnation begins with its first link. While the old incarnation is not
//!   removed yet, this node may speak to one, the other, and the first again. What this node knew of the
//!   first one's links it still knows;
//! - *neither has a second address*: no beats, no state, no cost.
//!
//! # Why the core chooses, and not the transport
//! A transport sees only what it has connections for: TCP takes seconds to notice a cut cable, and UDP never
//! does. And what the core decides runs in the simulator. Only the last step before an output replaces a
//! peer's first address by the address in use, so the contract with drivers is the same with one address and
//! with many.
//!
//! This module does not send, and does not say which peer lives.

mod health;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use antiphon_wire::record::Beat;
use antiphon_wire::{Incarnation, MAX_ADDRESSES};

use crate::sound::addresses_are_sound;
use crate::{DialId, LinkCause, LinkStatus, PathTrouble, PeerLinks, Time};
use health::Health;

/// Nodes whose addresses are remembered: as many as there can be members, joiners and candidates.
const MAX_NODES: usize = 2 * antiphon_wire::MAX_MEMBERS;

/// The routes to all nodes, by their first address.
#[derive(Debug)]
pub(crate) struct Routes {
    /// How many addresses this node has.
    own: usize,
    interval: Duration,
    next_round: Time,
    nodes: BTreeMap<SocketAddr, Route>,
    peers: BTreeMap<Incarnation, SocketAddr>,
    /// The outbound lifelines, by the address they were dialled at.
    lifelines: BTreeMap<DialId, SocketAddr>,
    beats: VecDeque<(SocketAddr, Beat)>,
    changes: VecDeque<Change>,
}

/// A link went up or down, or another one is used now.
#[derive(Debug)]
pub(crate) struct Change {
    /// As the links of the peer are now.
    pub(crate) links: PeerLinks,
    /// Which link changed.
    pub(crate) number: usize,
    pub(crate) cause: LinkCause,
    /// Lifelines over links that are down: to be reset, and dialled anew.
    pub(crate) lifelines: Vec<DialId>,
}

/// The way to one node.
#[derive(Debug)]
struct Route {
    /// By number; the first is the first address.
    links: Vec<Health>,
    in_use: usize,
    /// The process that this node speaks to there.
    peer: Option<Incarnation>,
    /// The process that it spoke to there last: what is known of the links is of that process.
    known: Option<Incarnation>,
    /// What is known of the links of the process that it spoke to before that one.
    before: Option<Before>,
    /// Of the last beats sent.
    round: u64,
    /// By this node's address: the highest round heard from the peer.
    heard: Vec<u64>,
    used: Time,
}

/// What a route knew when it turned to another process at the same address.
#[derive(Debug)]
struct Before {
    peer: Incarnation,
    links: Vec<Health>,
    in_use: usize,
    heard: Vec<u64>,
}

impl Route {
    fn new(now: Time, first: SocketAddr, further: &[SocketAddr]) -> Self {
        let further = further.iter().map(|addr| Health::unproven(*addr));
        Self {
            links: [Health::trusted(now, first)].into_iter().chain(further).collect(),
            in_use: 0,
            peer: None,
            known: None,
            before: None,
            round: 0,
            heard: Vec::new(),
            used: now,
        }
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.links.iter().map(|link| link.addr)
    }

    /// Another process is there now, or its addresses changed: nothing is known of its links.
    fn begin(&mut self, now: Time) {
        let further: Vec<SocketAddr> = self.addresses().skip(1).collect();
        let fresh = Self::new(now, self.links[0].addr, &further);
        self.links = fresh.links;
        self.in_use = 0;
        self.heard.clear();
    }

    /// Turns to a process at this address: with what is known of its links, or with nothing if it is new.
    fn turn_to(&mut self, now: Time, peer: Incarnation) {
        self.peer = Some(peer);
        let known = match self.known.replace(peer) {
            Some(last) if last == peer => return,
            Some(last) => Before {
                peer: last,
                links: self.links.clone(),
                in_use: self.in_use,
                heard: self.heard.clone(),
            },
            None => return self.begin(now),
        };
        match self.before.replace(known) {
            Some(before) if before.peer == peer => {
                self.links = before.links;
                self.in_use = before.in_use;
                self.heard = before.heard;
            }
            _ => self.begin(now),
        }
    }

    /// Chooses the link to use. True if it is another one.
    fn choose(&mut self) -> bool {
        let up = self.links.iter().position(|link| link.is_up());
        let last = || {
            // The first of the links that were acknowledged last, if that is later than the link in use.
            let best = (0..self.links.len())
                .rev()
                .max_by_key(|at| self.links[*at].acked)?;
            (self.links[best].acked > self.links[self.in_use].acked).then_some(best)
        };
        let chosen = match up {
            Some(up) if up < self.in_use && planted!(NeverFailBack) => self.in_use,
            Some(up) => up,
            None => last().unwrap_or(self.in_use),
        };
        if planted!(StayOnFailedLink) {
            return false;
        }
        let moved = std::mem::replace(&mut self.in_use, chosen) != chosen;
        let is_down = |link: &Health| !link.is_up();
        assert!(
            self.links[..chosen].iter().all(is_down)
                && (self.links[chosen].is_up() || up.is_none())
                && (chosen == 0 || self.links[chosen].acked > 0)
                || planted!(),
            "G32: link {chosen} of {} is used, acknowledged up to {}, and {up:?} is up",
            self.links.len(),
            self.links[chosen].acked
        );
        moved
    }
}

impl Routes {
    /// Routes of a node with so many addresses.
    pub(crate) fn new(own: usize, heartbeat: Duration, now: Time) -> Self {
        Self {
            own,
            interval: heartbeat,
            next_round: now,
            nodes: BTreeMap::new(),
            peers: BTreeMap::new(),
            lifelines: BTreeMap::new(),
            beats: VecDeque::new(),
            changes: VecDeque::new(),
        }
    }

    /// A node was heard of that has these addresses. Only for what came in authentic frames or from the
    /// configuration.
    pub(crate) fn note(&mut self, now: Time, first: SocketAddr, further: &[SocketAddr]) {
        if !addresses_are_sound(first, further) {
            return;
        }
        match self.nodes.get_mut(&first) {
            Some(route) if route.addresses().skip(1).eq(further.iter().copied()) => route.used = now,
            Some(route) => {
                let further = further.iter().map(|addr| Health::unproven(*addr));
                route.links.truncate(1);
                route.links.extend(further);
                route.before = None;
                route.begin(now);
            }
            // If both nodes have one address, no route is needed.
            None if further.is_empty() && self.own == 1 => {}
            None => {
                if self.nodes.len() >= MAX_NODES {
                    self.forget_oldest();
                }
                if self.nodes.len() < MAX_NODES {
                    let mut route = Route::new(now, first, further);
                    let spoken_to = self.peers.iter().find(|(_, at)| **at == first);
                    route.peer = spoken_to.map(|(peer, _)| *peer);
                    route.known = route.peer;
                    self.nodes.insert(first, route);
                }
                let (kept, most) = (self.nodes.len(), MAX_NODES);
                assert!(kept <= most, "G32: the addresses of {kept} nodes are kept");
            }
        }
    }

    /// A process says that it is at these addresses. If this node speaks to another one there, that one's
    /// links are left alone: by mistake, say, a process was started at a member's address.
    pub(crate) fn told(&mut self, now: Time, by: Incarnation, first: SocketAddr, further: &[SocketAddr]) {
        let peer = self.nodes.get(&first).and_then(|route| route.peer);
        if peer.is_none_or(|peer| peer == by) {
            self.note(now, first, further);
        }
    }

    /// This node speaks to this incarnation from here on, at this first address.
    pub(crate) fn connect(&mut self, now: Time, peer: Incarnation, first: SocketAddr) {
        if self.own > 1 {
            let further: Vec<SocketAddr> = self.further(first).collect();
            self.note(now, first, &further);
        }
        self.peers.insert(peer, first);
        self.speak_to(now, first, peer);
        self.next_round = self.next_round.min(now + self.interval);
    }

    /// The process at this address that beats go to: one at a time.
    fn speak_to(&mut self, now: Time, first: SocketAddr, peer: Incarnation) {
        if let Some(route) = self.nodes.get_mut(&first) {
            route.turn_to(now, peer);
        }
    }

    /// This node does not speak to this incarnation any more. It may still speak to another one at the same
    /// address: there are two while one is removed and the next joins.
    pub(crate) fn disconnect(&mut self, now: Time, peer: Incarnation) {
        let Some(first) = self.peers.remove(&peer) else {
            return;
        };
        let Some(route) = self
            .nodes
            .get_mut(&first)
            .filter(|route| route.peer == Some(peer))
        else {
            return;
        };
        route.peer = None;
        let other = self.peers.iter().find(|(_, at)| **at == first);
        if let Some((other, _)) = other {
            self.speak_to(now, first, *other);
        }
    }

    /// This node goes on as another incarnation: it speaks to nobody yet.
    pub(crate) fn disconnect_all(&mut self) {
        self.peers.clear();
        self.nodes.values_mut().for_each(|route| route.peer = None);
    }

    /// Where to send what is for the node with this first address.
    pub(crate) fn to(&self, first: SocketAddr) -> SocketAddr {
        self.nodes
            .get(&first)
            .map_or(first, |route| route.links[route.in_use].addr)
    }

    /// All addresses at which that node may be reached: for what finds it.
    pub(crate) fn everywhere(&self, first: SocketAddr) -> Vec<SocketAddr> {
        [first].into_iter().chain(self.further(first)).collect()
    }

    fn further(&self, first: SocketAddr) -> impl Iterator<Item = SocketAddr> {
        let links = self.nodes.get(&first).into_iter().flat_map(Route::addresses);
        links.skip(1)
    }

    /// An outbound lifeline is dialled: returns the address at which.
    pub(crate) fn dial(&mut self, dial: DialId, first: SocketAddr) -> SocketAddr {
        let addr = self.to(first);
        self.lifelines.insert(dial, addr);
        addr
    }

    /// An outbound lifeline is gone.
    pub(crate) fn hang_up(&mut self, dial: DialId) {
        self.lifelines.remove(&dial);
    }

    /// Whether a link to a peer is known not to work, by the address of its host there.
    pub(crate) fn is_down(&self, peer: Incarnation, ip: IpAddr) -> bool {
        let route = self.peers.get(&peer).and_then(|first| self.nodes.get(first));
        route.is_some_and(|route| {
            let mut there = route.links.iter().filter(|link| link.addr.ip() == ip).peekable();
            route.links.len() > 1 && there.peek().is_some() && there.all(|link| !link.is_up())
        })
    }

    /// The network reports trouble on the way to an address. Returns the first address of a node that cannot
    /// be reached by what is known.
    pub(crate) fn trouble(&mut self, now: Time, to: SocketAddr, trouble: PathTrouble) -> Option<SocketAddr> {
        let of = |(_, route): &(&SocketAddr, &mut Route)| {
            route.links.len() > 1 && route.peer.is_some() && route.addresses().any(|addr| addr == to)
        };
        let Some((first, route)) = self.nodes.iter_mut().find(of) else {
            return Some(to);
        };
        let first = *first;
        let number = route.addresses().position(|addr| addr == to).unwrap_or(0);
        if route.links[number].fail(now, self.interval) {
            self.choose(first, Some((number, LinkCause::Trouble(trouble))));
        }
        let route = &self.nodes[&first];
        (!route.links.iter().any(Health::is_up)).then_some(first)
    }

    /// A beat of a peer arrived.
    pub(crate) fn handle_beat(&mut self, sender: Incarnation, beat: &Beat) {
        let Some(route) = self
            .peers
            .get(&sender)
            .and_then(|first| self.nodes.get_mut(first))
            .filter(|route| route.peer == Some(sender))
        else {
            return;
        };
        let number = usize::from(beat.link);
        if number >= self.own {
            return;
        }
        route.heard.resize(self.own, 0);
        route.heard[number] = route.heard[number].max(beat.round);
        for (link, heard) in route.links.iter_mut().zip(&beat.heard) {
            // A peer has heard nothing that was not sent.
            if *heard <= route.round {
                link.acked = link.acked.max(*heard);
            }
        }
    }

    /// When [`Routes::handle_timeout`] wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let own = self.own;
        let several = |route: &Route| route.peer.is_some() && (own > 1 || route.links.len() > 1);
        self.nodes.values().any(several).then_some(self.next_round)
    }

    /// The next round, if it is due: judges all links, and prepares the beats.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if self.next_timeout().is_none_or(|at| at > now) {
            return;
        }
        // A round that is late is not made up for: the links are compared with each other.
        self.next_round = now + self.interval;
        let firsts: Vec<SocketAddr> = self.nodes.keys().copied().collect();
        for first in firsts {
            self.judge(now, first);
            self.prepare(first);
        }
    }

    /// The next beat and its address.
    pub(crate) fn poll_beat(&mut self) -> Option<(SocketAddr, Beat)> {
        self.beats.pop_front()
    }

    /// What changed since the last call.
    pub(crate) fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// The links of all peers that have several and that this node speaks to.
    pub(crate) fn status(&self) -> Vec<PeerLinks> {
        self.nodes
            .values()
            .filter(|route| route.links.len() > 1)
            .filter_map(|route| Some(links_of(route, route.peer?)))
            .collect()
    }

    fn judge(&mut self, now: Time, first: SocketAddr) {
        let Some(route) = self.nodes.get_mut(&first).filter(|route| route.peer.is_some()) else {
            return;
        };
        let any = route.links.iter().any(Health::has_advanced);
        let mut verdicts = Vec::new();
        for (number, link) in route.links.iter_mut().enumerate() {
            verdicts.extend(link.judge(now, any, self.interval).map(|cause| (number, cause)));
        }
        for verdict in verdicts {
            self.choose(first, Some(verdict));
        }
        // If no link is up, the best of the bad may be another one by now.
        self.choose(first, None);
    }

    fn prepare(&mut self, first: SocketAddr) {
        let own = self.own;
        let Some(route) = self.nodes.get_mut(&first) else {
            return;
        };
        let Some(peer) = route.peer.filter(|_| own > 1 || route.links.len() > 1) else {
            return;
        };
        route.round += 1;
        route.heard.resize(own, 0);
        for (number, link) in route.links.iter().enumerate() {
            if planted!(BeatOnLinkInUse) && number != route.in_use {
                continue;
            }
            let beat = Beat {
                to: peer,
                link: number as u8,
                round: route.round,
                heard: route.heard.clone(),
            };
            self.beats.push_back((link.addr, beat));
        }
    }

    /// Chooses the link to use after something may have changed, and tells of what has.
    fn choose(&mut self, first: SocketAddr, changed: Option<(usize, LinkCause)>) {
        let Some(route) = self.nodes.get_mut(&first) else {
            return;
        };
        let Some(peer) = route.peer else { return };
        let moved = route.choose();
        let (number, cause) = match changed {
            Some(changed) => changed,
            None if moved => (route.in_use, LinkCause::LastHeard),
            None => return,
        };
        // If no link is up, a lifeline is nowhere better off.
        let better = route.links[route.in_use].is_up();
        let is_over = |dialled: SocketAddr| {
            let mut links = route.links.iter();
            better && links.any(|link| link.addr == dialled && !link.is_up())
        };
        let lifelines = self.lifelines.iter().filter(|(_, dialled)| is_over(**dialled));
        let change = Change {
            links: links_of(route, peer),
            number,
            cause,
            lifelines: lifelines.map(|(dial, _)| *dial).collect(),
        };
        self.changes.push_back(change);
    }

    fn forget_oldest(&mut self) {
        let unused = self.nodes.iter().filter(|(_, route)| route.peer.is_none());
        let oldest = unused
            .min_by_key(|(_, route)| route.used)
            .map(|(first, _)| *first);
        oldest.map(|first| self.nodes.remove(&first));
    }
}

fn links_of(route: &Route, peer: Incarnation) -> PeerLinks {
    let status = |link: &Health| LinkStatus {
        addr: link.addr,
        up: link.is_up(),
    };
    PeerLinks {
        peer,
        links: route.links.iter().map(status).collect(),
        in_use: route.in_use,
    }
}

const _: () = assert!(MAX_ADDRESSES <= u8::MAX as usize);
