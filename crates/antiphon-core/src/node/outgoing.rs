//! From records to sealed frames, and where those go.

use antiphon_wire::frame::{Frame, Kind, MAX_RECORDS_BYTES};
use antiphon_wire::record::Record;
use antiphon_wire::{Incarnation, Wire};
use bytes::Bytes;

use super::{Counters, Node, Phase};
use crate::{Class, Event, Output, Time};

/// What makes a call fill a packet of Ethernet: a network that loses large packets must not pass the calls that ask whether it passes messages.
const CALL_FILLER_BYTES: usize = 1500;

impl Node {
    /// Asks all who hears this node's multicast, when it is time to.
    pub(super) fn call(&mut self, now: Time) {
        let casts = self.config.multicast && self.groups.casts();
        if let Some(round) = self.air.call(now, self.config.profile.heartbeat, casts) {
            let mut record = Vec::new();
            let filler = Bytes::from_static(&[0; CALL_FILLER_BYTES]);
            Record::Call { round, filler }.encode(&mut record);
            let frame = self.codec.seal(Kind::Cast, &record).into();
            self.outputs.push_back(Output::Cast { frame });
        }
        for (peer, hears) in self.air.take_news() {
            self.events.push_back(Event::Multicast { peer, hears });
        }
    }

    /// Seals once; one send for all that hear it, and the same bytes directly to those that do not.
    pub(super) fn cast(&mut self, to: &[Incarnation], records: &[Record]) {
        let (hear, deaf): (Vec<Incarnation>, Vec<Incarnation>) = to
            .iter()
            .partition(|peer| self.config.multicast && self.air.hears(**peer));
        if hear.is_empty() {
            return self.multicast(&deaf, Class::Bulk, Kind::Bulk, records);
        }
        for frame in self.seal(Kind::Cast, records) {
            self.outputs.push_back(Output::Cast { frame: frame.clone() });
            self.transmit(&deaf, Class::Bulk, &frame);
        }
    }

    /// Seals once, sends the same bytes to all (R24).
    pub(super) fn multicast(&mut self, to: &[Incarnation], class: Class, kind: Kind, records: &[Record]) {
        for frame in self.seal(kind, records) {
            self.transmit(to, class, &frame);
        }
    }

    /// These records in as few frames as they fit.
    fn seal(&mut self, kind: Kind, records: &[Record]) -> Vec<Frame> {
        // A frame that shares its block's bytes with the log: the block ends its record, and what follows is small.
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

    pub(super) fn transmit(&mut self, to: &[Incarnation], class: Class, frame: &Frame) {
        for peer in to {
            match self.links.addr(*peer) {
                Some(addr) => self.outputs.push_back(Output::Frame {
                    to: self.routes.to(addr),
                    class,
                    frame: frame.clone(),
                }),
                None => self.counters.messages_dropped += 1,
            }
        }
    }

    pub(super) fn flush_links(&mut self, now: Time) {
        while let Some((_, addr, record)) = self.links.poll_record(now) {
            let to = self.routes.to(addr);
            self.records.entry(to).or_default().push(Record::Link(record));
        }
    }

    pub(super) fn flush_frames(&mut self, now: Time) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.flush_links(now);
        for (to, round) in self.air.take_answers() {
            if let Some(addr) = self.links.addr(to) {
                let records = self.records.entry(self.routes.to(addr)).or_default();
                records.push(Record::Heard { to, round });
            }
        }
        while let Some((to, beat)) = self.routes.poll_beat() {
            self.records.entry(to).or_default().push(Record::Beat(beat));
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
