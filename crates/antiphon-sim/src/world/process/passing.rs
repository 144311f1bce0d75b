//! Notes the ways of frames that members hand on or pass on: no application sees them.

use antiphon_core::wire::frame::{HEADER_BYTES, Kind, TAG_BYTES, peek};
use antiphon_core::wire::group::GroupData;
use antiphon_core::wire::record::Record;
use antiphon_core::wire::{Incarnation, Reader, Wire};
use bytes::Bytes;

use crate::trace::{Hop, Pass, ProcessId, Seen, Slot};
use crate::world::World;

impl World {
    /// Notes a frame that is to be handed on.
    pub(super) fn trace_hop(&mut self, by: ProcessId, to: Slot, frame: &Bytes) {
        let Ok((Kind::Chain, origin)) = peek(frame) else {
            return;
        };
        let mut nonce = [0; 8];
        nonce.copy_from_slice(&frame[HEADER_BYTES - 8..HEADER_BYTES]);
        let mut records = Reader::new(frame.slice(HEADER_BYTES..frame.len() - TAG_BYTES));
        // No node here has a key: the records can be read.
        let Ok(Record::Group(GroupData::Batch { group, view, .. })) = Record::decode(&mut records) else {
            self.note(
                by,
                Seen::Contract("a chained frame begins with no messages".to_owned()),
            );
            return;
        };
        self.trace.hops.push(Hop {
            at: self.now,
            by,
            to,
            frame: (origin, u64::from_le_bytes(nonce)),
            group,
            view,
        });
    }

    /// Notes a frame inside of another one.
    pub(super) fn trace_pass(&mut self, by: ProcessId, to: Slot, frame: &Bytes) {
        let (Some((targets, inner)), Ok((_, incarnation))) = (passed(frame), peek(frame)) else {
            return;
        };
        let Ok((kind, sealer)) = peek(&inner) else {
            self.note(by, Seen::Contract("what is passed on is no frame".to_owned()));
            return;
        };
        let mut nonce = [0; 8];
        nonce.copy_from_slice(&inner[HEADER_BYTES - 8..HEADER_BYTES]);
        self.trace.passes.push(Pass {
            at: self.now,
            by,
            incarnation,
            to,
            targets,
            frame: (kind as u8, sealer, u64::from_le_bytes(nonce)),
            nested: passed(&inner).is_some(),
        });
    }
}

/// The frame inside of this one, if there is one, and the members that it is to be passed on to.
fn passed(frame: &Bytes) -> Option<(Vec<Incarnation>, Bytes)> {
    let (Ok((Kind::Control | Kind::Bulk, _)), 7 | 8) = (peek(frame), *frame.get(HEADER_BYTES)?) else {
        return None;
    };
    let mut records = Reader::new(frame.slice(HEADER_BYTES..frame.len() - TAG_BYTES));
    match Record::decode(&mut records).ok()? {
        Record::Relay { to, frame } => Some((to, frame)),
        Record::Relayed { frame } => Some((Vec::new(), frame)),
        _ => None,
    }
}
