//! Which endpoint is bound at which address, and which lifelines exist between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::{Class, DialId, LifelineCommand, LifelineEnd, LifelineEvent, PathTrouble};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::weather::{Air, Lane, Parcel};
use crate::faults::{self, FaultTable};
use crate::tcp::refusals::Refusals;
use crate::transport::InputSenders;
use crate::{Connection, Input};

/// Names one binding; never reused, so that a dead endpoint is not taken for its successor at the same
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndpointId(u64);

#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) from: EndpointId,
    pub(super) from_addr: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) class: Class,
    pub(super) frame: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Hub {
    /// What takes time and may be lost; without it all frames arrive at once.
    pub(super) air: Option<Air>,
    next: u64,
    by_addr: BTreeMap<SocketAddr, EndpointId>,
    endpoints: BTreeMap<EndpointId, Endpoint>,
    lifelines: BTreeMap<u64, Lifeline>,
    /// Watchers whose queue was full when they should have read a lifeline.
    stuck: BTreeSet<EndpointId>,
}

#[derive(Debug)]
struct Endpoint {
    addr: SocketAddr,
    senders: InputSenders,
    faults: FaultTable,
    /// Connections from others, by sender.
    connections: BTreeMap<EndpointId, Connection>,
    /// Addresses that took a frame of this endpoint: their end is noticed.
    paths: BTreeSet<SocketAddr>,
    /// Addresses known not to listen: told once until one listens there.
    refused: BTreeSet<SocketAddr>,
    /// One permit for each frame that an injected delay holds back.
    delays: Arc<Semaphore>,
    frames_received: u64,
    bytes_received: u64,
}

#[derive(Debug)]
struct Lifeline {
    watched: EndpointId,
    watcher: EndpointId,
    dial: DialId,
    connection: Connection,
    /// What the watcher has not read, and when it may read it: it is under way, the path is blocked, or the
    /// watcher's queue was full.
    held: VecDeque<(Duration, LifelineEvent)>,
}

/// Records a lifeline holds unread before it is reset, as a full socket buffer would be.
const MAX_HELD: usize = 256;

impl Hub {
    pub(super) fn bind(
        &mut self,
        mut addr: SocketAddr,
        senders: InputSenders,
        faults: FaultTable,
    ) -> io::Result<(EndpointId, SocketAddr)> {
        if addr.port() == 0 {
            let free = (49_152..=u16::MAX).find(|port| {
                addr.set_port(*port);
                !self.by_addr.contains_key(&addr)
            });
            free.ok_or(io::ErrorKind::AddrInUse)?;
        }
        if self.by_addr.contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let id = EndpointId(self.number());
        let delays = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let endpoint = Endpoint {
            addr,
            senders,
            faults,
            connections: BTreeMap::new(),
            paths: BTreeSet::new(),
            refused: BTreeSet::new(),
            delays,
            frames_received: 0,
            bytes_received: 0,
        };
        self.endpoints.insert(id, endpoint);
        self.by_addr.insert(addr, id);
        for other in self.endpoints.values_mut() {
            other.refused.remove(&addr);
        }
        if self.air.as_mut().is_some_and(|air| air.dark.remove(&addr)) {
            self.clear_up();
        }
        Ok((id, addr))
    }

    /// Sends a frame; false if it is lost already.
    pub(super) fn deliver(&mut self, delivery: Delivery) -> bool {
        if self.stuck.remove(&delivery.from) {
            self.release_held(delivery.from);
        }
        if !self.endpoints.contains_key(&delivery.from) {
            return false;
        }
        let Some(air) = &mut self.air else {
            return self.arrive(delivery);
        };
        let (from, to) = (delivery.from_addr, delivery.to);
        match air.arrival(from, to, Lane::of(delivery.class)) {
            Some(at) => {
                air.schedule(at, Parcel::Frame(delivery));
                true
            }
            None => {
                air.note(b'-', from, to, &delivery.frame);
                false
            }
        }
    }

    /// Brings a frame to its destination's queue; false if it is lost.
    fn arrive(&mut self, delivery: Delivery) -> bool {
        let Delivery {
            from,
            from_addr,
            to,
            class,
            frame,
        } = delivery;
        if self.blocks(from_addr, to) {
            return false;
        }
        let Some(receiver) = self.by_addr.get(&to).and_then(|id| self.endpoints.get_mut(id)) else {
            self.refuse(from, to);
            return false;
        };
        if receiver.faults.blocks(from_addr) {
            return true;
        }
        let connection = receiver
            .connections
            .entry(from)
            .or_insert_with(|| Connection::new(from_addr, Refusals::default()))
            .clone();
        if connection.is_closed() {
            return false;
        }
        let length = frame.len() as u64;
        let input = Input::Frames {
            from: from_addr,
            connection,
            frames: vec![frame],
        };
        let taken = receiver.senders.of(class).try_send(input).is_ok();
        if taken {
            receiver.frames_received += 1;
            receiver.bytes_received += length;
            self.endpoints.entry(from).and_modify(|sender| {
                sender.paths.insert(to);
            });
        }
        taken
    }

    pub(super) fn delay_permit(&self, endpoint: EndpointId, limit: usize) -> Option<OwnedSemaphorePermit> {
        let delays = &self.endpoints.get(&endpoint)?.delays;
        let delayed = Semaphore::MAX_PERMITS - delays.available_permits();
        (delayed < limit)
            .then(|| delays.clone().try_acquire_owned().ok())
            .flatten()
    }

    pub(super) fn received(&self, endpoint: EndpointId) -> (u64, u64) {
        self.endpoints.get(&endpoint).map_or((0, 0), |endpoint| {
            (endpoint.frames_received, endpoint.bytes_received)
        })
    }

    pub(super) fn lifeline(
        &mut self,
        watched: EndpointId,
        command: LifelineCommand,
    ) -> Option<LifelineEvent> {
        match command {
            LifelineCommand::Open { dial, addr, .. } => {
                let local = self.endpoints.get(&watched).map(|endpoint| endpoint.addr);
                let watcher = self.by_addr.get(&addr).copied();
                let failed = LifelineEvent::Failed { dial };
                let Some(local) = local else {
                    return Some(failed);
                };
                let cut = self.blocks(local, addr) || self.blocks(addr, local);
                let Some(watcher) = watcher.filter(|_| !cut) else {
                    return self.answer((watched, local), addr, failed, None);
                };
                let number = self.number();
                let connection = Connection::new(local, Refusals::default());
                self.lifelines.insert(
                    number,
                    Lifeline {
                        watched,
                        watcher,
                        dial,
                        connection,
                        held: VecDeque::new(),
                    },
                );
                let opened = LifelineEvent::Opened {
                    dial,
                    local,
                    remote: addr,
                };
                self.answer((watched, local), addr, opened, Some(number))
            }
            LifelineCommand::Write { dial, record } => {
                let number = self.find(watched, dial)?;
                let (watched_addr, watcher_addr) = self.addresses(number)?;
                let event = LifelineEvent::Record {
                    connection: number,
                    local: watcher_addr,
                    remote: watched_addr,
                    record,
                };
                if self
                    .lifelines
                    .get(&number)
                    .is_some_and(|lifeline| lifeline.held.len() >= MAX_HELD)
                {
                    self.end_lifeline(number, LifelineEnd::Broken);
                    return Some(LifelineEvent::Failed { dial });
                }
                self.hold(number, event);
                None
            }
            LifelineCommand::Reset { dial } => {
                if let Some(number) = self.find(watched, dial) {
                    self.end_lifeline(number, LifelineEnd::Broken);
                }
                None
            }
        }
    }

    pub(super) fn is_lost(&mut self, loss: f64) -> bool {
        match &mut self.air {
            Some(air) => air.is_lost(loss),
            None => faults::is_lost(loss),
        }
    }

    /// Whether nothing passes from one address to the other.
    pub(super) fn blocks(&self, from: SocketAddr, to: SocketAddr) -> bool {
        self.air.as_ref().is_some_and(|air| air.blocks(from, to))
    }

    /// Sends a probe; false if it is lost already. On a network where nothing takes time all probes are lost.
    pub(super) fn probe(&mut self, from: SocketAddr, to: SocketAddr, frame: Bytes) -> bool {
        let Some(air) = &mut self.air else {
            return false;
        };
        let at = air.arrival(from, to, Lane::Probes);
        if let Some(at) = at {
            air.schedule(at, Parcel::Probe { from, to, frame });
        }
        at.is_some()
    }

    pub(super) fn arrives(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Frame(delivery) => {
                if let Some(air) = &mut self.air {
                    air.note(b'>', delivery.from_addr, delivery.to, &delivery.frame);
                }
                self.arrive(delivery);
            }
            Parcel::Probe { from, to, frame } => {
                let receiver = self.by_addr.get(&to).and_then(|id| self.endpoints.get(id));
                if let Some(receiver) = receiver.filter(|_| !self.blocks(from, to)) {
                    // A datagram: lost where no node takes it.
                    let _ = receiver.senders.probes.try_send(Input::Probe { frame });
                }
            }
            Parcel::Lifeline(number) => self.release(number),
            Parcel::Answer { to, peer, event, of } => {
                let stands = of.is_none_or(|number| self.lifelines.contains_key(&number));
                if stands
                    && !self.tell(to, event.clone())
                    && let Some(air) = &mut self.air
                {
                    air.again(Parcel::Answer { to, peer, event, of });
                }
            }
            Parcel::Trouble {
                to,
                peer,
                trouble,
                gone,
            } => self.tell_trouble(to, peer, trouble, gone),
        }
    }

    /// Paths may work again: what lifelines hold goes on.
    pub(super) fn clear_up(&mut self) {
        let waiting = self.lifelines.iter().filter(|(_, l)| !l.held.is_empty());
        let waiting: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        for number in waiting {
            if let (Some((watched, watcher)), Some(air)) = (self.addresses(number), &mut self.air) {
                let at = air.stream_arrival(watched, watcher);
                air.schedule(at, Parcel::Lifeline(number));
            }
        }
    }

    /// The endpoint's faults have changed, or its queue may have room. It may now be able to read what it had
    /// not read.
    pub(super) fn release_held(&mut self, watcher: EndpointId) {
        let numbers: Vec<u64> = self
            .lifelines
            .iter()
            .filter(|(_, l)| l.watcher == watcher)
            .map(|(n, _)| *n)
            .collect();
        for number in numbers {
            self.release(number);
        }
    }

    pub(super) fn kill(&mut self, addr: SocketAddr) -> bool {
        let Some(id) = self.by_addr.get(&addr).copied() else {
            return false;
        };
        self.remove(id, LifelineEnd::Fin);
        true
    }

    /// Ends an endpoint without a word; false if there is none.
    pub(super) fn power_off(&mut self, addr: SocketAddr) -> bool {
        let (Some(id), Some(air)) = (self.by_addr.get(&addr).copied(), &mut self.air) else {
            return false;
        };
        air.dark.insert(addr);
        // What its lifelines hold is read when the host is back, and says that they were broken.
        self.remove(id, LifelineEnd::Broken);
        true
    }

    pub(super) fn unbind(&mut self, id: EndpointId) {
        self.remove(id, LifelineEnd::Broken);
    }

    fn remove(&mut self, id: EndpointId, end: LifelineEnd) {
        let Some(endpoint) = self.endpoints.remove(&id) else {
            return;
        };
        self.by_addr.remove(&endpoint.addr);
        let mine: Vec<u64> = self
            .lifelines
            .iter()
            .filter(|(_, l)| l.watched == id)
            .map(|(n, _)| *n)
            .collect();
        for number in mine {
            self.end_lifeline(number, end);
        }
        let watching: Vec<u64> = self
            .lifelines
            .iter()
            .filter(|(_, l)| l.watcher == id)
            .map(|(n, _)| *n)
            .collect();
        for number in watching {
            let Some(lifeline) = self.lifelines.remove(&number) else {
                continue;
            };
            let local = self.endpoints.get(&lifeline.watched).map(|watched| watched.addr);
            let Some(local) = local else { continue };
            let event = LifelineEvent::Failed { dial: lifeline.dial };
            // A watched node with a full queue loses nothing that it must know: it finds out at its next
            // write.
            if let Some(event) = self.answer((lifeline.watched, local), endpoint.addr, event, None) {
                self.tell(lifeline.watched, event);
            }
        }
        let others: Vec<EndpointId> = self.endpoints.keys().copied().collect();
        for other in others {
            self.trouble(other, endpoint.addr, PathTrouble::Lost, Some(id));
        }
    }

    fn refuse(&mut self, from: EndpointId, to: SocketAddr) {
        let told_before = |sender: &mut Endpoint| !sender.refused.insert(to);
        if self.endpoints.get_mut(&from).is_some_and(told_before) {
            return;
        }
        self.trouble(from, to, PathTrouble::Refused, None);
    }

    /// Has an endpoint hear of trouble with an address, where the endpoint `gone` was bound.
    fn trouble(&mut self, to: EndpointId, peer: SocketAddr, trouble: PathTrouble, gone: Option<EndpointId>) {
        let addr = self.endpoints.get(&to).map(|endpoint| endpoint.addr);
        match (&mut self.air, addr) {
            (Some(air), Some(addr)) => {
                let at = air.end(peer, addr);
                let parcel = Parcel::Trouble {
                    to,
                    peer,
                    trouble,
                    gone,
                };
                air.schedule(at, parcel);
            }
            _ => self.tell_trouble(to, peer, trouble, gone),
        }
    }

    fn tell_trouble(
        &mut self,
        to: EndpointId,
        peer: SocketAddr,
        trouble: PathTrouble,
        gone: Option<EndpointId>,
    ) {
        let Some(addr) = self.endpoints.get(&to).map(|endpoint| endpoint.addr) else {
            return;
        };
        let cut = self.blocks(peer, addr);
        let Some(endpoint) = self.endpoints.get_mut(&to) else {
            return;
        };
        let concerned = match gone {
            Some(gone) => {
                endpoint.connections.remove(&gone);
                endpoint.paths.remove(&peer) && !endpoint.faults.blocks(peer)
            }
            None => true,
        };
        let input = Input::PathTrouble { to: peer, trouble };
        // Evidence, not proof: a node too busy to take a loss finds out by silence, and a refusal is told
        // again with the next frame.
        let told = concerned && !cut && endpoint.senders.urgent.try_send(input).is_ok();
        if !told && trouble == PathTrouble::Refused {
            endpoint.refused.remove(&peer);
        }
    }

    /// Answers a dial, or says that a lifeline is over. Returns what is so at once.
    fn answer(
        &mut self,
        to: (EndpointId, SocketAddr),
        peer: SocketAddr,
        event: LifelineEvent,
        of: Option<u64>,
    ) -> Option<LifelineEvent> {
        let Some(air) = &mut self.air else {
            return Some(event);
        };
        air.answer(to, peer, event, of);
        None
    }

    /// False if the endpoint's queue was full.
    fn tell(&self, to: EndpointId, event: LifelineEvent) -> bool {
        let input = Input::Lifeline {
            event,
            connection: None,
        };
        let endpoint = self.endpoints.get(&to);
        endpoint.is_none_or(|endpoint| endpoint.senders.urgent.try_send(input).is_ok())
    }

    fn end_lifeline(&mut self, number: u64, end: LifelineEnd) {
        self.hold(
            number,
            LifelineEvent::Ended {
                connection: number,
                end,
            },
        );
    }

    fn hold(&mut self, number: u64, event: LifelineEvent) {
        let ends = self.addresses(number);
        let at = match (&mut self.air, ends) {
            (Some(air), Some((watched, watcher))) => {
                let at = air.stream_arrival(watched, watcher);
                air.schedule(at, Parcel::Lifeline(number));
                at
            }
            _ => Duration::ZERO,
        };
        if let Some(lifeline) = self.lifelines.get_mut(&number) {
            lifeline.held.push_back((at, event));
        }
        self.release(number);
    }

    /// Hands over what the watcher is ready to read, in order.
    fn release(&mut self, number: u64) {
        let Some((watched_addr, watcher_addr)) = self.addresses(number) else {
            return;
        };
        let cut = self.blocks(watched_addr, watcher_addr);
        let now = self.air.as_ref().map(Air::now);
        let Some(lifeline) = self.lifelines.get_mut(&number) else {
            return;
        };
        let Some(watcher) = self.endpoints.get(&lifeline.watcher) else {
            return;
        };
        if cut || watcher.faults.blocks(watched_addr) {
            return;
        }
        while let Some((at, event)) = lifeline.held.front() {
            if now.is_some_and(|now| now < *at) {
                return;
            }
            let connection =
                matches!(event, LifelineEvent::Record { .. }).then(|| lifeline.connection.clone());
            let ended = matches!(event, LifelineEvent::Ended { .. });
            let input = Input::Lifeline {
                event: event.clone(),
                connection,
            };
            if watcher.senders.urgent.try_send(input).is_err() {
                self.stuck.insert(lifeline.watcher);
                return;
            }
            if let Some(air) = &mut self.air {
                let bytes: &[u8] = match event {
                    LifelineEvent::Record { record, .. } => record,
                    _ => b"end",
                };
                air.note(b'|', watched_addr, watcher_addr, bytes);
            }
            lifeline.held.pop_front();
            if ended {
                self.lifelines.remove(&number);
                return;
            }
        }
    }

    fn find(&self, watched: EndpointId, dial: DialId) -> Option<u64> {
        let open = |lifeline: &Lifeline| {
            !matches!(lifeline.held.back(), Some((_, LifelineEvent::Ended { .. })))
                && lifeline.watched == watched
                && lifeline.dial == dial
        };
        self.lifelines
            .iter()
            .find(|(_, lifeline)| open(lifeline))
            .map(|(number, _)| *number)
    }

    /// The watched side's and the watcher's address.
    fn addresses(&self, number: u64) -> Option<(SocketAddr, SocketAddr)> {
        let lifeline = self.lifelines.get(&number)?;
        let watcher = self.endpoints.get(&lifeline.watcher)?.addr;
        Some((lifeline.connection.remote(), watcher))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
