//! Messages that fit no block: sent in pieces, delivered whole.
//!
//! ```text
//!  sender    large message ──admitted as one──► log: … │ piece │ piece │ last │ …      consecutive, in one view
//!  receiver  log ──in the group's order──► assembly ──at the last piece──► one message for the application
//! ```
//! To the log, to acknowledgements and repairs, to the order and to the cut, a piece is a message of its own;
//! only the application does not see it. The message takes the place of its last piece, and its number.
//! Pieces of several senders may be mixed, pieces of one sender never are.
//!
//! # Invariants
//! - A message never straddles a view (R22). Its sender puts all pieces into its log at once, so the cut of
//!   the view has all of them if the sender takes part in the flush. If a view leaves a message unfinished,
//!   the sender died or was removed. No member delivers that message, since no member has delivered its last
//!   piece: otherwise the cut would have it.
//! - A message has at most [`MAX_PAYLOAD_BYTES`](crate::MAX_PAYLOAD_BYTES) and at most one window of bytes.
//!   So it always fits an empty window, and the log of a receiver takes it beside what is still kept for
//!   others. What is larger is an [object](super::object).
//!
//! - If a message comes in more pieces or more bytes than a message may have, its sender does not run this
//!   program. Nothing of it is kept or delivered, and its credit goes back as if it had been taken.
//!
//! # The price
//! An application sees gaps in a sender's numbers, and each receiver copies such a payload once.
//!
//! # When a member dies
//! - The sender, before all pieces are out: some members hold some pieces. The cut has the pieces that any
//!   survivor holds. All members deliver these (after repair, if need be) into their assemblies, and all
//!   forget them with the view.
//! - A receiver: nothing is different from other messages.
//! - The sequencer, between the positions of two pieces: the same as between two messages of one sender. If
//!   the sender lives, the rest of its cut is ordered by the common rule.

use std::collections::BTreeMap;

use antiphon_wire::block::{Form, PIECE_BYTES, Tag};
use antiphon_wire::{Block, Incarnation};
use bytes::{Bytes, BytesMut};

use crate::MAX_PAYLOAD_BYTES;

/// The most pieces of a message.
pub(crate) const MAX_PIECES: usize = MAX_PAYLOAD_BYTES.div_ceil(PIECE_BYTES);

/// Pieces of the unfinished messages of one view, by sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assembly {
    /// The most bytes of a message.
    limit: usize,
    unfinished: BTreeMap<Incarnation, Pieces>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Pieces {
    /// No parts are kept once there are more than a message has.
    parts: Vec<Bytes>,
    bytes: usize,
    /// All pieces that came, kept or not.
    count: u64,
}

/// What a delivered block is to the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Messages, as they came.
    Messages(Block),
    /// Nothing yet.
    Unfinished,
    /// A message, whole, and of how many pieces.
    Whole(Block, u64),
    /// A message that travelled beside the log.
    Object(Block),
    /// So many pieces of a message that no node sends: it is dropped.
    Dropped(u64),
}

impl Assembly {
    /// Nothing unfinished; messages have at most so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            unfinished: BTreeMap::new(),
        }
    }

    /// The next block of this sender in the group's order.
    pub(crate) fn take(&mut self, sender: Incarnation, block: Block) -> Part {
        let tag = if block.is_scoped() { Tag::MAX_BYTES } else { 0 };
        let limit = self.limit + tag;
        if block.form() == Form::Messages {
            return Part::Messages(block);
        }
        if planted!(DeliverPieces) {
            return Part::Whole(Block::large(block.bytes().clone()).with_level(block.level()), 1);
        }
        let pieces = self.unfinished.entry(sender).or_default();
        pieces.add(block.bytes(), limit);
        if block.form() == Form::Piece {
            return Part::Unfinished;
        }
        let pieces = self.unfinished.remove(&sender).unwrap_or_default();
        if pieces.are_too_many(limit) {
            return Part::Dropped(pieces.count);
        }
        let mut payload = BytesMut::with_capacity(pieces.bytes);
        pieces
            .parts
            .iter()
            .for_each(|part| payload.extend_from_slice(part));
        let whole = Block::large(payload.freeze()).with_level(block.level());
        let whole = if block.is_scoped() {
            whole.with_tag()
        } else {
            whole
        };
        Part::Whole(whole, pieces.count)
    }

    /// What unfinished messages keep.
    pub(crate) fn bytes(&self) -> usize {
        let parts = self.unfinished.values().flat_map(|pieces| &pieces.parts);
        parts.map(Bytes::len).sum()
    }
}

impl Pieces {
    fn add(&mut self, part: &Bytes, limit: usize) {
        self.bytes = self.bytes.saturating_add(part.len());
        self.count += 1;
        if self.are_too_many(limit) {
            self.parts = Vec::new();
        } else {
            self.parts.push(part.clone());
        }
    }

    /// Whether no message has so many pieces, or so many bytes. If so, the sender is no node of ours, and
    /// nothing of it is kept.
    fn are_too_many(&self, limit: usize) -> bool {
        self.bytes > limit || self.count > MAX_PIECES as u64
    }
}
