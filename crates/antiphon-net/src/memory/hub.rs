//! Who is bound where, and which lifelines exist between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_core::{Class, DialId, LifelineCommand, LifelineEnd, LifelineEvent, PathTrouble};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::faults::FaultTable;
use crate::tcp::refusals::Refusals;
use crate::transport::InputSenders;
use crate::{Connection, Input};

/// Names one binding; never reused, so that a dead one is not taken for its successor at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndpointId(u64);

#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) from: EndpointId,
    pub(super) to: SocketAddr,
    pub(super) class: Class,
    pub(super) frame: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Hub {
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
    /// What the watcher has not read, because it blocks the watched side or its queue was full.
    held: VecDeque<LifelineEvent>,
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
        Ok((id, addr))
    }

    /// Brings a frame to its destination's queue; false if it is lost.
    pub(super) fn deliver(&mut self, delivery: Delivery) -> bool {
        let Delivery {
            from,
            to,
            class,
            frame,
        } = delivery;
        if self.stuck.remove(&from) {
            self.release_held(from);
        }
        let Some(sender) = self.endpoints.get(&from) else {
            return false;
        };
        let from_addr = sender.addr;
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
                let (Some(local), Some(watcher)) = (local, watcher) else {
                    return Some(LifelineEvent::Failed { dial });
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
                Some(LifelineEvent::Opened {
                    dial,
                    local,
                    remote: addr,
                })
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

    /// The endpoint's faults have changed, or its queue may have room: what it had not read may be readable
    /// now.
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
        for lifeline in watching.iter().filter_map(|number| self.lifelines.remove(number)) {
            if let Some(watched) = self.endpoints.get(&lifeline.watched) {
                let event = LifelineEvent::Failed { dial: lifeline.dial };
                // A full queue of a watched node delays nothing that it must know: it finds out at its next
                // write.
                let _ = watched.senders.urgent.try_send(Input::Lifeline {
                    event,
                    connection: None,
                });
            }
        }
        for other in self.endpoints.values_mut() {
            other.connections.remove(&id);
            if other.paths.remove(&endpoint.addr) && !other.faults.blocks(endpoint.addr) {
                let input = Input::PathTrouble {
                    to: endpoint.addr,
                    trouble: PathTrouble::Lost,
                };
                // Evidence, not proof: a node too busy to take it finds out by silence.
                let _ = other.senders.urgent.try_send(input);
            }
        }
    }

    fn refuse(&mut self, from: EndpointId, to: SocketAddr) {
        if let Some(sender) = self.endpoints.get_mut(&from)
            && sender.refused.insert(to)
        {
            let input = Input::PathTrouble {
                to,
                trouble: PathTrouble::Refused,
            };
            // Evidence, not proof: it is told again with the next frame if it does not fit now.
            if sender.senders.urgent.try_send(input).is_err() {
                sender.refused.remove(&to);
            }
        }
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
        if let Some(lifeline) = self.lifelines.get_mut(&number) {
            lifeline.held.push_back(event);
        }
        self.release(number);
    }

    /// Hands over what the watcher is ready to read, in order.
    fn release(&mut self, number: u64) {
        let Some((watched_addr, _)) = self.addresses(number) else {
            return;
        };
        let Some(lifeline) = self.lifelines.get_mut(&number) else {
            return;
        };
        let Some(watcher) = self.endpoints.get(&lifeline.watcher) else {
            return;
        };
        if watcher.faults.blocks(watched_addr) {
            return;
        }
        while let Some(event) = lifeline.held.front() {
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
            lifeline.held.pop_front();
            if ended {
                self.lifelines.remove(&number);
                return;
            }
        }
    }

    fn find(&self, watched: EndpointId, dial: DialId) -> Option<u64> {
        let open = |lifeline: &Lifeline| {
            !matches!(lifeline.held.back(), Some(LifelineEvent::Ended { .. }))
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
