//! The outbox of a group: what an application has sent, on its way into the core, and what became of it.
//!
//! ```text
//!  send ─► accept: one copy ─► open block ─► blocks ─► hand_over ─► Node::send_block ─► the core's queue
//!             │                              ▲             │ Full: it stays, and is offered again
//!             └─ Full: no room        object ┘             └─► any other error: all is refused
//! ```
//! The driver of a [`Node`](crate::Node) keeps one outbox for each group that the node has joined: the
//! library behind the lock that its handles share, the simulator for its applications. There is no other way
//! into a group, so what the simulator tries is what a product does. The outbox is not the core's own queue
//! (`group/queue.rs`): that one holds blocks which the core *has* taken and which wait for credit or for the
//! end of a flush.
//!
//! # What it does
//! - The outbox copies a message into the open block; from there on only blocks move. All messages of a block
//!   have one [`Level`], and consecutive tickets.
//! - A ticket is a message's place in the sequence of accepted messages, from 1.
//! - In a scoped group the outbox tags each message with its scope and with where the scope's last one is
//!   (`tagger.rs`).
//! - A payload that is larger than a message, an *object*, waits in a place of its own, which messages pass:
//!   one at a time, not copied.
//! - The outbox knows a message's fate once it is told (`fates.rs`). Nothing is kept per message.
//!
//! # What holds
//! - The core gets messages in the order of their tickets: what it is offered stays at the front until it has
//!   taken it.
//! - A ticket is given once, and goes into the core at most once.
//! - What the application may not send any more is refused, and its tags are forgotten: the next message of a
//!   scope names none that was never sent.
//! - 256 KiB and an object at most wait here, besides one message that is larger than that and waits
//!   alone.

mod fates;
mod tagger;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use antiphon_wire::block::PIECE_BYTES;
use antiphon_wire::{Block, BlockBuilder, Level};
use bytes::Bytes;

use crate::{GroupOptions, MAX_PAYLOAD_BYTES, Order, Outcome, SendError, Ticket};
use fates::Fates;
pub(crate) use tagger::Tagger;

/// Bytes of accepted messages that may wait for the core to take them.
const OUTBOX_BYTES: usize = 256 << 10;

/// What an application has sent to a group. See the [module](self).
#[derive(Debug)]
pub struct Outbox {
    standing: Standing,
    blocks: VecDeque<(Ticket, Block)>,
    open: BlockBuilder,
    /// Bytes of the blocks and the open one.
    bytes: usize,
    /// The object that waits. Messages pass it.
    object: Option<(Ticket, Block)>,
    limits: Limits,
    next: Ticket,
    fates: Fates,
    /// In a scoped group, where the last message of each scope is.
    tagger: Option<Tagger>,
}

/// Where this node stands with the group, as its application was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No view yet, or none again.
    Joining,
    /// In the group's view.
    Member,
    /// In it, but the component is not primary.
    Suspended,
    /// On the way out: what was accepted is still sent, nothing more is accepted.
    Leaving,
    /// Refused, left, or the node has stopped.
    Gone,
}

/// A payload, and whether it has to be copied.
#[derive(Debug, Clone, Copy)]
pub enum Payload<'a> {
    /// The payload has to be copied.
    Borrowed(&'a [u8]),
    /// The payload is copied only into a block with others.
    Shared(&'a Bytes),
}

/// Messages of consecutive tickets whose fate is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// The first one's ticket.
    pub first: Ticket,
    /// How many.
    pub count: u64,
    /// What became of them.
    pub outcome: Outcome,
}

/// What came of handing messages over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handed {
    /// Whether anything is not in the outbox any more: there is room again.
    pub any: bool,
    /// What the core refused for good, and what waited behind that.
    pub refused: Vec<Settled>,
}

/// The keeper of an outbox: it keeps the outbox by itself, or behind a lock that is held for one step at a
/// time, never while the core works.
pub trait Keeper {
    /// Does one step.
    fn with<T>(&mut self, step: impl FnOnce(&mut Outbox) -> T) -> T;
}

impl Keeper for Outbox {
    fn with<T>(&mut self, step: impl FnOnce(&mut Outbox) -> T) -> T {
        step(self)
    }
}

/// How large payloads are.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// What is larger is an object.
    message: usize,
    /// Nothing is larger.
    object: usize,
}

/// What waits in a row of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    Messages,
    Objects,
}

/// Lets `send` have what waits, in order, until it has no room: the blocks, and then the object.
pub fn hand_over(
    keeper: &mut impl Keeper,
    mut send: impl FnMut(Ticket, Block) -> Result<(), SendError>,
) -> Handed {
    let mut handed = Handed::default();
    for row in [Row::Messages, Row::Objects] {
        while let Some((first, block)) = keeper.with(|outbox| outbox.front(row)) {
            match send(first, block) {
                Ok(()) => {
                    handed.any = true;
                    let taken = keeper.with(|outbox| outbox.pop(row));
                    debug_assert_eq!(
                        taken.map(|(ticket, _)| ticket),
                        Some(first),
                        "nobody else takes it"
                    );
                }
                Err(SendError::Full) => {
                    if planted!() {
                        keeper.with(Outbox::mistake_when_full);
                    }
                    break;
                }
                Err(_) => {
                    handed.any = true;
                    handed.refused.extend(keeper.with(|outbox| outbox.refused(row)));
                }
            }
        }
    }
    handed
}

impl Payload<'_> {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Borrowed(bytes) => bytes,
            Payload::Shared(bytes) => bytes,
        }
    }

    fn share(&self) -> Bytes {
        match self {
            Payload::Borrowed(bytes) => Bytes::copy_from_slice(bytes),
            Payload::Shared(bytes) => (*bytes).clone(),
        }
    }
}

impl Standing {
    /// Why the group takes nothing now, if so.
    fn refusal(self) -> Option<SendError> {
        match self {
            Standing::Member => None,
            Standing::Joining => Some(SendError::NotMember),
            Standing::Suspended => Some(SendError::NotPrimary),
            Standing::Leaving | Standing::Gone => Some(SendError::NoSuchGroup),
        }
    }
}

impl Outbox {
    /// An empty outbox, of a group that is being joined with these options.
    pub fn new(options: &GroupOptions) -> Self {
        let limits = Limits {
            message: MAX_PAYLOAD_BYTES.min(options.window_bytes as usize),
            object: options.max_object_bytes as usize,
        };
        Self::with_limits(limits, options.order == Order::Scoped)
    }

    fn with_limits(limits: Limits, scoped: bool) -> Self {
        Self {
            standing: Standing::Joining,
            tagger: scoped.then(Tagger::default),
            limits,
            object: None,
            blocks: VecDeque::new(),
            open: BlockBuilder::default(),
            bytes: 0,
            next: Ticket(1),
            fates: Fates::default(),
        }
    }

    /// This node stands otherwise with the group. What waits is refused if it cannot be sent any more. Once
    /// this node is out of the group for good, nothing more will be known of what is pending. Returns the
    /// messages whose fate that tells.
    pub fn set_standing(&mut self, standing: Standing) -> Vec<Settled> {
        self.standing = standing;
        let mut settled = match standing {
            Standing::Member | Standing::Leaving => Vec::new(),
            // Accepted, and never sent.
            Standing::Joining | Standing::Suspended | Standing::Gone => self.refuse_all(),
        };
        if standing == Standing::Gone {
            settled.extend(self.fates.pending().map(|(first, end)| Settled {
                first: Ticket(first),
                count: end - first,
                outcome: Outcome::Unknown,
            }));
            self.fates.settle(0, u64::MAX, Outcome::Unknown);
        }
        settled
    }

    /// Where this node stands with the group.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether a payload of this length is an object, which goes beside the messages.
    ///
    /// # Errors
    /// [`SendError`] if such a payload may not be sent now.
    pub fn is_object(&self, length: usize) -> Result<bool, SendError> {
        if let Some(refusal) = self.standing.refusal() {
            return Err(refusal);
        }
        // An object has no place among the messages of a scope.
        let limit = match self.tagger {
            Some(_) => self.limits.message,
            None => self.limits.object.max(self.limits.message),
        };
        if length > limit {
            return Err(SendError::TooLarge { limit });
        }
        let object = length > self.limits.message;
        if object && self.object.is_some() {
            return Err(SendError::Full);
        }
        Ok(object)
    }

    /// Takes a payload if there is room. In a scoped group a payload without a scope has scope 0; in other
    /// groups no payload may have one.
    ///
    /// # Errors
    /// [`SendError`]; nothing was sent, nor will be.
    pub fn accept(
        &mut self,
        payload: Payload<'_>,
        level: Level,
        scope: Option<u32>,
    ) -> Result<Ticket, SendError> {
        if scope.is_some() && self.tagger.is_none() {
            return Err(self.standing.refusal().unwrap_or(SendError::NotScoped));
        }
        if self.is_object(payload.bytes().len())? {
            return Ok(self.accept_object(payload.share(), level));
        }
        self.accept_message(payload, level, scope.unwrap_or_default())
    }

    fn accept_object(&mut self, payload: Bytes, level: Level) -> Ticket {
        // Blocks have consecutive tickets.
        self.close();
        let ticket = self.next_ticket();
        self.object = Some((ticket, Block::large(payload).with_level(level)));
        ticket
    }

    fn accept_message(
        &mut self,
        message: Payload<'_>,
        level: Level,
        scope: u32,
    ) -> Result<Ticket, SendError> {
        let payload = message.bytes();
        let tag = self.tagger.as_ref().map(|tagger| tagger.tag(scope));
        let length = payload.len() + tag.map_or(0, |tag| tag.cost());
        let large = payload.len() > PIECE_BYTES;
        let cost = if large { length } else { Block::cost(length) };
        if self.bytes > 0 && self.bytes + cost > OUTBOX_BYTES {
            return Err(SendError::Full);
        }
        if large || !self.open.has_room(length) || !self.open.takes(level) {
            self.close();
        }
        let ticket = self.next_ticket();
        let mut places = 1;
        if large {
            let block = match tag {
                Some(tag) => Block::large_tagged(tag, payload),
                None => Block::large(message.share()),
            };
            places = block.places();
            self.blocks.push_back((ticket, block.with_level(level)));
        } else {
            self.open.set_level(level);
            match tag {
                Some(tag) => self.open.push_tagged(tag, payload),
                None => self.open.push(payload),
            }
        }
        if let Some(tagger) = &mut self.tagger {
            tagger.took(scope, places);
        }
        self.bytes += cost;
        Ok(ticket)
    }

    fn next_ticket(&mut self) -> Ticket {
        let ticket = self.next;
        let twice = planted!(GiveATicketTwice) && ticket.0.is_multiple_of(16);
        self.next.0 += u64::from(!twice);
        self.fates.begin(ticket.0);
        ticket
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let first = Ticket(self.next.0 - self.open.count());
            self.blocks.push_back((first, self.open.finish()));
        }
    }

    /// Whether nothing waits for the core.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0 && self.object.is_none()
    }

    /// How many accepted messages have no fate yet.
    pub fn pending(&self) -> u64 {
        self.fates.pending().map(|(first, end)| end - first).sum()
    }

    /// These messages have this fate: this node delivered them, or the core has a receipt.
    pub fn settle(&mut self, first: Ticket, count: u64, outcome: Outcome) {
        self.fates.settle(first.0, first.0.saturating_add(count), outcome);
    }

    /// What became of a message that was accepted; `None` as long as that is not known.
    pub fn fate(&self, ticket: Ticket) -> Option<Outcome> {
        self.fates.of(ticket.0)
    }

    /// What is offered next. It stays until the core has taken it: what is accepted meanwhile goes behind it,
    /// and no object takes the place of the object that is offered.
    fn front(&mut self, row: Row) -> Option<(Ticket, Block)> {
        if row == Row::Objects {
            return self.object.clone();
        }
        if self.blocks.is_empty() {
            self.close();
        }
        self.blocks.front().cloned()
    }

    fn pop(&mut self, row: Row) -> Option<(Ticket, Block)> {
        if row == Row::Objects {
            return self.object.take();
        }
        if self.blocks.is_empty() {
            self.close();
        }
        let (first, block) = self.blocks.pop_front()?;
        let (bytes, end) = (block.bytes().len(), first.0 + block.count());
        let next = self.blocks.front().map(|(next, _)| *next);
        assert!(
            next.is_none_or(|next| end <= next.0) && end <= self.next.0 || planted!(),
            "outbox: the tickets from {first:?} to {end} go before {next:?}, and {:?} is the next to give",
            self.next
        );
        let waits = !self.blocks.is_empty() || !self.open.is_empty();
        assert!(
            if waits {
                self.bytes > bytes
            } else {
                self.bytes == bytes
            } || planted!(),
            "outbox: {bytes} bytes of {} go; more waits: {waits}",
            self.bytes
        );
        self.bytes -= bytes;
        Some((first, block))
    }

    /// The core does not take what is in front at all.
    fn refused(&mut self, row: Row) -> Vec<Settled> {
        match row {
            // What is behind it would be refused as well, and in a scoped group names what will not be sent.
            Row::Messages => self.refuse_all(),
            Row::Objects => {
                let object = self.pop(row);
                object
                    .map(|(ticket, block)| self.refuse(ticket, &block))
                    .into_iter()
                    .collect()
            }
        }
    }

    /// Takes out all that waits, which will not be sent.
    fn refuse_all(&mut self) -> Vec<Settled> {
        let mut settled = Vec::new();
        while let Some((first, block)) = self.pop(Row::Messages).or_else(|| self.pop(Row::Objects)) {
            settled.push(self.refuse(first, &block));
        }
        if let Some(tagger) = &mut self.tagger {
            tagger.forget();
        }
        settled
    }

    /// What an outbox might do with the block in front that the core has no room for.
    fn mistake_when_full(&mut self) {
        if planted!(FullLosesOrder) && self.blocks.len() > 1 {
            self.blocks.rotate_left(1);
        }
        if planted!(FullDoublesTheLast)
            && let Some((first, block)) = self.blocks.front()
        {
            let mut last = block.clone();
            let before = last.count() - 1;
            drop(last.split_front(before));
            let again = (Ticket(first.0 + before), last);
            self.bytes += again.1.bytes().len();
            self.blocks.insert(1, again);
        }
    }

    fn refuse(&mut self, first: Ticket, block: &Block) -> Settled {
        let (count, outcome) = (block.count(), Outcome::NotDelivered);
        self.settle(first, count, outcome);
        Settled {
            first,
            count,
            outcome,
        }
    }
}
