//! From records to sealed frames, and where those go.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use antiphon_wire::frame::{Frame, Kind, MAX_RECORDS_BYTES, MAX_RELAYED_TO};
use antiphon_wire::record::{Beat, Record};
use antiphon_wire::{Incarnation, Wire};
use bytes::Bytes;

use super::{Counters, Node, Phase};
use crate::relay::Way;
use crate::{Class, Event, Output, Time};

/// This makes a probe fill a packet of Ethernet. Probes ask whether a network passes messages, so a network
/// that loses large packets must not pass the probes.
const PROBE_FILLER_BYTES: usize = 1500;

impl Node {
    /// Asks which peers hear this node's multicast, when it is time to.
    pub(super) fn probe_multicast(&mut self, now: Time) {
        let multicasts = self.config.multicast && self.groups.multicasts();
        if let Some(round) = self.air.probe(now, self.config.profile.heartbeat, multicasts) {
            let mut record = Vec::new();
            let filler = Bytes::from_static(&[0; PROBE_FILLER_BYTES]);
            Record::MulticastProbe { round, filler }.encode(&mut record);
            let frame = self.codec.seal(Kind::Multicast, &record).into();
            self.outputs.push_back(Output::Multicast { frame });
        }
        for (peer, hears) in self.air.take_news() {
            self.events.push_back(Event::Multicast { peer, hears });
        }
    }

    /// Seals once; one send for all that hear it, and the same bytes directly to those that do not.
    pub(super) fn multicast(&mut self, to: &[Incarnation], records: &[Record]) {
        let (hear, deaf): (Vec<Incarnation>, Vec<Incarnation>) = to
            .iter()
            .partition(|peer| self.config.multicast && self.air.hears(**peer));
        if hear.is_empty() {
            return self.send_to_all(&deaf, Class::Bulk, Kind::Bulk, records);
        }
        for frame in self.seal(Kind::Multicast, records) {
            self.outputs.push_back(Output::Multicast { frame: frame.clone() });
            self.transmit(&deaf, Class::Bulk, &frame);
        }
    }

    /// Seals once, sends the same bytes to all (R24).
    pub(super) fn send_to_all(&mut self, to: &[Incarnation], class: Class, kind: Kind, records: &[Record]) {
        for frame in self.seal(kind, records) {
            self.transmit(to, class, &frame);
        }
    }

    /// These records in as few frames as they fit.
    fn seal(&mut self, kind: Kind, records: &[Record]) -> Vec<Frame> {
        // A frame that shares its block's bytes with the log: the block ends its record, and what follows is
        // small.
        if let [batch, rest @ ..] = records
            && let Some((before, block)) = batch.encode_before_block()
        {
            let mut after = Vec::new();
            for record in rest {
                record.encode(&mut after);
            }
            return vec![self.codec.seal_around(kind, &before, block, &after)];
        }
        let frames = encode_frames(records, &mut self.counters);
        let seal = |encoded: Vec<u8>| self.codec.seal(kind, &encoded).into();
        frames.into_iter().map(seal).collect()
    }

    /// The same bytes to all of these, each on the way that works.
    pub(super) fn transmit(&mut self, to: &[Incarnation], class: Class, frame: &Frame) {
        let mut through: BTreeMap<Incarnation, Vec<Incarnation>> = BTreeMap::new();
        for peer in to {
            let Some(addr) = self.channels.addr(*peer) else {
                self.counters.messages_dropped += 1;
                continue;
            };
            let way = self.relay.way(*peer, class);
            if let Way::Through(via) | Way::Both(via) = way {
                through.entry(via).or_default().push(*peer);
            }
            if !matches!(way, Way::Through(_)) {
                self.outputs.push_back(Output::Frame {
                    to: self.routes.to(addr),
                    class,
                    frame: frame.clone(),
                });
            }
        }
        for (via, to) in through {
            for to in to.chunks(MAX_RELAYED_TO) {
                self.ask_to_pass_on(via, to, class, frame);
            }
        }
    }

    /// A record for a member, on the way that works.
    pub(super) fn queue(&mut self, to: Incarnation, addr: SocketAddr, record: Record) {
        let way = self.relay.way(to, Class::Control);
        if !matches!(way, Way::Direct) {
            self.relayed.entry(to).or_default().push(record.clone());
        }
        if !matches!(way, Way::Through(_)) {
            self.records.entry(self.routes.to(addr)).or_default().push(record);
        }
    }

    /// A record that shows that this node lives, and that the direct path works if it does.
    pub(super) fn queue_life(&mut self, to: Incarnation, addr: SocketAddr, record: Record) {
        if !matches!(self.relay.way(to, Class::Control), Way::Direct) {
            self.relayed.entry(to).or_default().push(record.clone());
        }
        self.records.entry(self.routes.to(addr)).or_default().push(record);
    }

    /// This node does not speak to a peer any more, until one of the two has to.
    pub(super) fn disconnect(&mut self, now: Time, peer: Incarnation) {
        self.channels.acknowledge_now(now, Some(peer));
        self.flush_links(now);
        self.channels.park(peer);
        self.routes.disconnect(now, peer);
        self.air.disconnect(peer);
        // R13: what a member said in a view that this node is about to install waits for that view, even if
        // the member is no neighbour there. The channel has delivered it and does not bring it again: a
        // leader that reads everyone would wait for the answer until it gives up.
        if !self.membership.is_member(peer) || planted!(ForgetWhoWasAhead) {
            self.holdback.forget(peer);
        }
    }

    pub(super) fn flush_links(&mut self, now: Time) {
        while let Some((peer, addr, record)) = self.channels.poll_record(now) {
            self.queue(peer, addr, Record::Channel(record));
        }
    }

    pub(super) fn flush_frames(&mut self, now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.flush_links(now);
        for (to, round) in self.air.take_answers() {
            if let Some(addr) = self.channels.addr(to) {
                self.queue(to, addr, Record::MulticastHeard { to, round });
            }
        }
        for to in self.relay.take_news(now) {
            if let Some(addr) = self.channels.addr(to) {
                let report = self.relay.report(now);
                self.queue_life(to, addr, Record::Paths(report));
            }
        }
        self.beat_companions(now);
        while let Some((addr, beat)) = self.routes.poll_beat() {
            // What the beat says of the peer's links is news to the peer, whatever way it comes. It shows
            // nothing of this node's links.
            if beat.link == 0 && !matches!(self.relay.way(beat.to, Class::Control), Way::Direct) {
                let said = Beat {
                    round: 0,
                    ..beat.clone()
                };
                self.relayed.entry(beat.to).or_default().push(Record::Beat(said));
            }
            self.records.entry(addr).or_default().push(Record::Beat(beat));
        }
        for (to, records) in std::mem::take(&mut self.records) {
            for encoded in encode_frames(&records, &mut self.counters) {
                let frame = self.codec.seal(Kind::Control, &encoded).into();
                self.outputs.push_back(Output::Frame {
                    to,
                    class: Class::Control,
                    frame,
                });
            }
        }
        // Sealed apart: of two frames with one nonce, only the one that comes first would count.
        for (to, records) in std::mem::take(&mut self.relayed) {
            let (Way::Through(via) | Way::Both(via)) = self.relay.way(to, Class::Control) else {
                continue;
            };
            for encoded in encode_frames(&records, &mut self.counters) {
                let frame = self.codec.seal(Kind::Control, &encoded).into();
                self.ask_to_pass_on(via, &[to], Class::Control, &frame);
            }
        }
    }
}

/// Packs records into as few frames as they fit.
fn encode_frames(records: &[Record], counters: &mut Counters) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut frame = Vec::new();
    for record in records {
        let start = frame.len();
        record.encode(&mut frame);
        if frame.len() > MAX_RECORDS_BYTES {
            let last = frame.split_off(start);
            if !frame.is_empty() {
                frames.push(std::mem::take(&mut frame));
            }
            if last.len() > MAX_RECORDS_BYTES {
                counters.messages_dropped += 1;
            } else {
                frame = last;
            }
        }
    }
    if !frame.is_empty() {
        frames.push(frame);
    }
    frames
}
