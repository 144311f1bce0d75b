//! Probes in and out ([`crate::detector::probing`]).

use antiphon_wire::frame::{self, Kind, MAX_PROBE_BYTES, MAX_PROBE_RECORDS_BYTES, OpenError};
use antiphon_wire::membership::Heartbeat;
use antiphon_wire::record::{Paths, Record};
use antiphon_wire::{Incarnation, Reader, Wire};
use bytes::Bytes;

use super::{Node, Phase};
use crate::detector::Came;
use crate::{Output, Time};

/// What a probe says.
#[derive(Debug, PartialEq, Eq)]
struct Probe {
    to: Incarnation,
    asks: bool,
    heartbeat: Option<Heartbeat>,
    paths: Option<Paths>,
}

impl Probe {
    /// Reads all of it before anything is done: a frame of this kind with anything else in it means nothing.
    fn read(records: Bytes) -> Option<Self> {
        let mut reader = Reader::new(records);
        let Ok(Record::Probe { to, asks }) = Record::decode(&mut reader) else {
            return None;
        };
        let mut probe = Self {
            to,
            asks,
            heartbeat: None,
            paths: None,
        };
        while !reader.is_empty() {
            match Record::decode(&mut reader) {
                Ok(Record::Heartbeat(heartbeat)) if probe.heartbeat.is_none() && probe.paths.is_none() => {
                    probe.heartbeat = Some(heartbeat);
                }
                Ok(Record::Paths(paths)) if probe.paths.is_none() => probe.paths = Some(paths),
                Ok(_) | Err(_) => return None,
            }
        }
        Some(probe)
    }
}

impl Node {
    /// A datagram arrived that may be a probe. Anybody may send one, from any address. So a datagram that is
    /// from no member of the installed view is not even opened, nothing is ever answered to where it came
    /// from, and no frame of another kind is taken.
    ///
    /// # Errors
    /// Why it was refused; nothing changed. A driver says nothing of it: there is no connection to close.
    pub fn handle_probe(&mut self, now: Time, frame: Bytes) -> Result<(), OpenError> {
        let taken = self.take_probe(now, frame);
        if taken.is_err() {
            self.counters.probes_refused += 1;
        }
        taken
    }

    fn take_probe(&mut self, now: Time, frame: Bytes) -> Result<(), OpenError> {
        let (kind, sender) = frame::peek(&frame)?;
        if kind != Kind::Probe || frame.len() > MAX_PROBE_BYTES {
            return Err(OpenError::NotAFrame);
        }
        if self.phase == Phase::Stopped || !self.config.udp_probes || !self.membership.is_member(sender) {
            return Err(OpenError::Stranger);
        }
        let opened = self.codec.open(frame)?;
        let Some(probe) = Probe::read(opened.records) else {
            self.counters.frames_malformed += 1;
            return Err(OpenError::NotAFrame);
        };
        if probe.to != self.me {
            self.counters.records_misaddressed += 1;
            return Ok(());
        }
        self.counters.probes_received += 1;
        self.notice_lateness(now);
        self.membership.heard(now, sender, Came::Probe);
        if probe.asks {
            self.membership.asked_for_probes(now, sender);
        }
        if let Some(heartbeat) = probe.heartbeat {
            self.membership
                .handle_heartbeat(now, sender, heartbeat, Came::Probe);
        }
        if let Some(paths) = &probe.paths {
            self.relay.handle_paths(now, sender, paths);
        }
        self.perform_views(now);
        self.touch(now);
        Ok(())
    }

    /// As much of it as fits: that its sender lives always does.
    pub(super) fn send_probe(&mut self, to: Incarnation, asks: bool, heartbeat: Heartbeat) {
        let Some(addr) = self.channels.addr(to) else {
            self.counters.messages_dropped += 1;
            return;
        };
        let mut records = Vec::new();
        Record::Probe { to, asks }.encode(&mut records);
        // After a heartbeat that was too large to fit, the next record would seem to belong to the heartbeat
        // before.
        let paths = self.relay.last_report().map(Record::Paths);
        for record in std::iter::once(Record::Heartbeat(heartbeat)).chain(paths) {
            let fits = records.len();
            record.encode(&mut records);
            if records.len() > MAX_PROBE_RECORDS_BYTES {
                records.truncate(fits);
                break;
            }
        }
        self.counters.probes_sent += 1;
        let frame = self.codec.seal(Kind::Probe, &records);
        let to = self.routes.to(addr);
        self.outputs.push_back(Output::Probe { to, frame });
    }
}
