//! All links of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::Incarnation;
use antiphon_wire::record::LinkRecord;
use bytes::Bytes;

use super::{Link, LinkBroken, MAX_LINKS};
use crate::Time;

/// The links by peer. Those with an address are in use; the others are parked, or were made by a peer that this node
/// does not know yet: they receive but cannot answer.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    retransmit: Duration,
    entries: BTreeMap<Incarnation, Entry>,
    /// Links that may have something to send.
    dirty: BTreeSet<Incarnation>,
}

#[derive(Debug, Clone)]
struct Entry {
    addr: Option<SocketAddr>,
    link: Link,
    broken: bool,
    last_used: Time,
}

impl Links {
    pub(crate) fn new(retransmit: Duration) -> Self {
        Self {
            retransmit,
            entries: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Takes the link to this peer into use.
    pub(crate) fn connect(&mut self, now: Time, peer: Incarnation, addr: SocketAddr) {
        self.entry(now, peer).addr = Some(addr);
        self.dirty.insert(peer);
    }

    /// Parks the link: nothing more is sent until it is taken into use again.
    pub(crate) fn park(&mut self, peer: Incarnation) {
        if let Some(entry) = self.entries.get_mut(&peer) {
            entry.addr = None;
        }
        self.dirty.remove(&peer);
    }

    /// Where the peer is, if its link is in use.
    pub(crate) fn addr(&self, peer: Incarnation) -> Option<SocketAddr> {
        self.entries.get(&peer).and_then(|entry| entry.addr)
    }

    /// Whether something that was queued for the peer is not acknowledged.
    pub(crate) fn owes(&self, peer: Incarnation) -> bool {
        self.entries
            .get(&peer)
            .is_some_and(|entry| !entry.broken && !entry.link.is_empty())
    }

    /// Peers that have not acknowledged much of what was queued for them.
    pub(crate) fn crowded(&self) -> BTreeSet<Incarnation> {
        let crowded = self.entries.iter().filter(|(_, entry)| entry.link.is_crowded());
        crowded.map(|(peer, _)| *peer).collect()
    }

    /// What was received from this peer, or from all, is acknowledged at once: there may be no later for it.
    pub(crate) fn acknowledge_now(&mut self, now: Time, of: Option<Incarnation>) {
        let entries = self.entries.iter_mut();
        for (peer, entry) in entries.filter(|(peer, _)| of.is_none_or(|of| of == **peer)) {
            entry.link.acknowledge_now(now);
            if entry.addr.is_some() && entry.link.is_due(now) {
                self.dirty.insert(*peer);
            }
        }
    }

    /// Queues a message. A link breaks once; what is pushed to it afterwards is dropped.
    pub(crate) fn push(&mut self, now: Time, peer: Incarnation, message: &[u8]) -> Result<(), LinkBroken> {
        let entry = self.entry(now, peer);
        if entry.broken {
            return Ok(());
        }
        let pushed = entry.link.push(message);
        entry.broken = pushed.is_err();
        self.dirty.insert(peer);
        pushed
    }

    /// A record from the peer; the messages that are now in order.
    pub(crate) fn handle_record(
        &mut self,
        now: Time,
        peer: Incarnation,
        record: LinkRecord,
    ) -> Result<Vec<Bytes>, LinkBroken> {
        let entry = self.entry(now, peer);
        if entry.broken {
            return Ok(Vec::new());
        }
        entry.link.hurry();
        let messages = entry.link.handle_record(now, record);
        entry.broken = messages.is_err();
        self.dirty.insert(peer);
        messages
    }

    /// The next record that is due, with its destination. At most one record per call; call until `None`.
    pub(crate) fn poll_record(&mut self, now: Time) -> Option<(Incarnation, SocketAddr, LinkRecord)> {
        while let Some(peer) = self.dirty.first().copied() {
            if let Some(Entry {
                addr: Some(addr),
                link,
                broken: false,
                ..
            }) = self.entries.get_mut(&peer)
                && let Some(record) = link.poll_record(now, peer)
            {
                return Some((peer, *addr, record));
            }
            self.dirty.remove(&peer);
        }
        None
    }

    /// Marks the links whose repetition is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        for (peer, entry) in &self.entries {
            if entry.addr.is_some() && entry.link.is_due(now) {
                self.dirty.insert(*peer);
            }
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.entries
            .values()
            .filter(|entry| entry.addr.is_some() && !entry.broken)
            .filter_map(|entry| entry.link.next_timeout())
            .min()
    }

    fn entry(&mut self, now: Time, peer: Incarnation) -> &mut Entry {
        if !self.entries.contains_key(&peer) && self.entries.len() >= MAX_LINKS {
            let oldest = self
                .entries
                .iter()
                .filter(|(_, entry)| entry.addr.is_none())
                .min_by_key(|(_, entry)| entry.last_used)
                .map(|(peer, _)| *peer);
            if let Some(oldest) = oldest {
                self.entries.remove(&oldest);
            }
        }
        let entry = self.entries.entry(peer).or_insert_with(|| Entry {
            addr: None,
            link: Link::new(self.retransmit),
            broken: false,
            last_used: now,
        });
        entry.last_used = now;
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Incarnation = Incarnation(7);
    const OTHER: Incarnation = Incarnation(8);

    fn acknowledged(links: &mut Links) -> Vec<Incarnation> {
        std::iter::from_fn(|| links.poll_record(Time::ZERO))
            .map(|(peer, _, record)| (peer, assert_eq!(record.ack, 1)).0)
            .collect()
    }

    #[test]
    fn whoever_may_not_be_spoken_to_later_has_its_acknowledgement_at_once() {
        let now = Time::ZERO;
        let mut links = Links::new(Duration::from_millis(50));
        for peer in [PEER, OTHER] {
            links.connect(now, peer, ([127, 0, 0, 1], 7400).into());
            let mut sender = Link::new(Duration::from_millis(50));
            sender.push(b"something").unwrap();
            let record = sender.poll_record(now, Incarnation(1)).unwrap();
            links.handle_record(now, peer, record).unwrap();
        }
        assert_eq!(acknowledged(&mut links), [], "it waits for an answer");
        links.acknowledge_now(now, Some(OTHER));
        assert_eq!(acknowledged(&mut links), [OTHER]);
        links.acknowledge_now(now, None);
        assert_eq!(acknowledged(&mut links), [PEER]);
    }
}
