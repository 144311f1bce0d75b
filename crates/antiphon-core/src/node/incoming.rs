//! From frames to records, and to which layer of this node each one goes.

use std::net::SocketAddr;

use antiphon_wire::codec::decode_all;
use antiphon_wire::enquiry::Enquiry;
use antiphon_wire::frame::{self, Kind, OpenError};
use antiphon_wire::group::{GroupControl, GroupData};
use antiphon_wire::membership::Discovery;
use antiphon_wire::record::{Control, Record};
use antiphon_wire::{Incarnation, Reader, ViewId, Wire};
use bytes::Bytes;

use super::holdback::Verdict;
use super::{Node, Phase};
use crate::channel::ChannelBroken;
use crate::detector::Came;
use crate::{Class, Time};

/// Where the records of a frame come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    pub(super) from: SocketAddr,
    pub(super) sender: Incarnation,
    pub(super) kind: Kind,
    /// The member that passed the frame on, if it did not come directly.
    pub(super) via: Option<Incarnation>,
}

impl Origin {
    pub(super) fn class(&self) -> Class {
        match self.kind {
            Kind::Control | Kind::Lifeline | Kind::Probe => Class::Control,
            Kind::Bulk | Kind::Chain | Kind::Multicast => Class::Bulk,
        }
    }

    /// Whether it came straight from its sender, as far as frames of this kind show that.
    pub(super) fn shows_path(&self) -> bool {
        self.via.is_none() && matches!(self.kind, Kind::Control | Kind::Bulk)
    }
}

impl Node {
    /// A frame that came directly, or was passed on by `via`.
    pub(super) fn handle_sealed(
        &mut self,
        now: Time,
        from: SocketAddr,
        frame: Bytes,
        via: Option<Incarnation>,
    ) -> Result<(), OpenError> {
        // The sealed bytes are handed on. A second owner costs a keyed frame a copy, so there is one only
        // where it is needed.
        let chained = matches!(frame::peek(&frame), Ok((Kind::Chain, _))) && self.groups.hand_on();
        let sealed = chained.then(|| frame.clone());
        let opened = self.codec.open(frame)?;
        if self.phase == Phase::Stopped {
            return Ok(());
        }
        // A host that sends this node its own frame has only seen it: it is no member for that.
        if opened.sender == self.me {
            return Err(OpenError::Replayed);
        }
        self.notice_lateness(now);
        let origin = Origin {
            from,
            sender: opened.sender,
            kind: opened.kind,
            via,
        };
        match opened.kind {
            Kind::Lifeline => self.membership.heard(now, opened.sender, Came::Directly),
            Kind::Control | Kind::Bulk => {
                self.note_life(now, &origin);
                self.handle_records(now, &origin, opened.records, None);
            }
            // A chain frame may have come by others: it says nothing about the path from its sender to here.
            Kind::Chain => self.handle_records(now, &origin, opened.records, sealed),
            // Nor does what comes by multicast, on its own path.
            Kind::Multicast => self.handle_multicast_records(now, opened.sender, opened.records),
            // A probe comes another way ([`Node::handle_probe`]).
            Kind::Probe => self.counters.frames_malformed += 1,
        }
        Ok(())
    }

    /// The node that sealed this lives, and so does the way that the frame came.
    fn note_life(&mut self, now: Time, origin: &Origin) {
        match origin.via {
            Some(_) if planted!(RelayedIsNoLife) => {}
            // That says nothing of the direct path: what comes on that path shows how much is lost on it.
            Some(via) => {
                self.membership.heard(now, origin.sender, Came::Through);
                self.relay.heard_through(now, origin.sender, via);
            }
            None => {
                self.membership.heard(now, origin.sender, Came::Directly);
                // Messages have connections of their own, or are datagrams. That they come does not show that
                // votes and heartbeats do.
                if origin.kind == Kind::Control {
                    self.relay.heard(now, origin.sender);
                }
            }
        }
    }

    /// `sealed` is the frame, if it is one to be handed on.
    fn handle_records(&mut self, now: Time, origin: &Origin, records: Bytes, sealed: Option<Bytes>) {
        let mut reader = Reader::new(records);
        let mut next = None;
        let mut first = true;
        // A record can end this node: the rest of the frame means nothing to it.
        while !reader.is_empty() && self.phase != Phase::Stopped {
            let is_first = std::mem::replace(&mut first, false);
            match Record::decode(&mut reader) {
                Ok(Record::Group(data)) if sealed.is_some() => {
                    let hop = self.groups.handle_chained(now, origin.sender, data);
                    next = next.or(hop);
                    self.perform_views(now);
                }
                // Each of many in one frame would make many frames.
                Ok(Record::Relay { .. } | Record::Relayed { .. }) if !is_first || !reader.is_empty() => {
                    self.counters.frames_malformed += 1;
                    return;
                }
                // What one record changes must be in force before the next is read: a view, a new
                // incarnation.
                Ok(record) => {
                    self.handle_record(now, origin, record);
                    self.perform_views(now);
                }
                Err(_) => {
                    self.counters.frames_malformed += 1;
                    return;
                }
            }
        }
        if let (Some(next), Some(sealed)) = (next, sealed) {
            self.reach(now, &[next]);
            self.transmit(&[next], Class::Bulk, &sealed.into());
        }
    }

    /// What may come by multicast: messages, order records that ride on them, and calls.
    fn handle_multicast_records(&mut self, now: Time, sender: Incarnation, records: Bytes) {
        let mut reader = Reader::new(records);
        while !reader.is_empty() {
            match Record::decode(&mut reader) {
                Ok(Record::Group(data @ (GroupData::Batch { .. } | GroupData::Orders { .. }))) => {
                    self.groups.handle_data(now, sender, data);
                    self.perform_views(now);
                }
                Ok(Record::MulticastProbe { round, .. }) => self.air.probed(sender, round),
                Ok(_) | Err(_) => {
                    self.counters.frames_malformed += 1;
                    return;
                }
            }
        }
    }

    fn handle_record(&mut self, now: Time, origin: &Origin, record: Record) {
        let Origin { from, sender, .. } = *origin;
        match record {
            Record::Discovery(message) => {
                // The answering node must know every address to which the answer may go.
                if let Discovery::Seek { node, .. } | Discovery::Join { node, .. } = &message {
                    self.routes.told(now, sender, node.addr, &node.further);
                }
                self.membership.handle_discovery(now, from, sender, message);
            }
            Record::Heartbeat(heartbeat) => {
                let came = match origin.via {
                    Some(_) => Came::Through,
                    None => Came::Directly,
                };
                if came == Came::Directly {
                    self.relay.beat_came(sender, heartbeat.round);
                }
                self.membership.handle_heartbeat(now, sender, heartbeat, came);
            }
            Record::Pulse(pulse) => self.membership.handle_pulse(now, sender, pulse),
            Record::Group(data) => self.groups.handle_data(now, sender, data),
            Record::MulticastProbe { .. } | Record::Probe { .. } => self.counters.frames_malformed += 1,
            Record::MulticastHeard { to, .. } if to != self.me => self.counters.records_misaddressed += 1,
            Record::MulticastHeard { round, .. } => self.air.answered(sender, round),
            // R10: without a key anybody could say so. And a witness speaks to nodes alone, as control.
            Record::Witnessed(certificate) => {
                let heard = self.config.key.is_some() && origin.kind == Kind::Control;
                self.counters.witnesses_refused += u64::from(!heard);
                self.unused = !(heard && self.membership.handle_witnessed(now, *certificate));
            }
            Record::Enquiry(Enquiry::Ask(ask)) => {
                for (to, answer) in self.answers(now, &ask) {
                    self.records.entry(to).or_default().push(answer);
                }
            }
            // Nodes do not ask.
            Record::Enquiry(Enquiry::Answer(_) | Enquiry::Known(_)) => {
                self.counters.records_misaddressed += 1
            }
            Record::Beat(beat) if beat.to != self.me => self.counters.records_misaddressed += 1,
            Record::Beat(beat) => self.routes.handle_beat(sender, &beat),
            Record::Relay { to, frame } => self.pass_on(now, origin, &to, &frame),
            Record::Relayed { frame } => self.handle_passed_on(now, origin, frame),
            Record::Paths(paths) => self.relay.handle_paths(now, sender, &paths),
            Record::Channel(record) if record.to != self.me => self.counters.records_misaddressed += 1,
            Record::Channel(record) => {
                // This node must be able to tell the sender that it has heard it.
                self.reach(now, &[sender]);
                match self.channels.handle_record(now, sender, record) {
                    Ok(messages) => {
                        for message in messages {
                            self.handle_control(now, sender, message);
                        }
                    }
                    Err(ChannelBroken) => self.channel_broke(now, sender),
                }
            }
        }
    }

    /// What was held until this view is handled.
    pub(super) fn release_held(&mut self, now: Time, view: ViewId) {
        for (sender, id, message) in self.holdback.release(view) {
            // It was read when it came.
            if let Ok(Control::Group(GroupControl { body, .. })) = decode_all(message) {
                self.groups.handle_message(now, sender, id, body);
            }
        }
    }

    fn handle_control(&mut self, now: Time, sender: Incarnation, message: Bytes) {
        match decode_all::<Control>(message.clone()) {
            Ok(Control::Membership(message)) => self.membership.handle_message(now, sender, message),
            Ok(Control::Group(GroupControl { view, body })) => loop {
                let said_by = (sender, self.membership.may_be_of_next_view(sender));
                match self.holdback.admit(self.primary, said_by, view, &message) {
                    Verdict::Handle => {
                        self.groups.handle_message(now, sender, view, body);
                        break;
                    }
                    Verdict::Held => {
                        self.membership.behind(now, view, sender);
                        break;
                    }
                    Verdict::Full(peer) => {
                        self.channel_broke(now, peer);
                        if peer == sender {
                            break;
                        }
                    }
                }
            },
            Err(_) => self.counters.frames_malformed += 1,
        }
        self.perform_views(now);
    }
}
