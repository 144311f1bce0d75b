//! What an application has sent: accepted messages on their way to the core, and what became of them.
//!
//! A message is copied into the open block under the lock; from there on only blocks move. Its ticket is its place in
//! the sequence of accepted messages. Nothing is kept per message: a message is pending while its ticket is in one of
//! the pending ranges (mostly one), afterwards it was delivered unless it is in one of the others.
//!
//! What is larger than a message, an object, waits in a line of its own, which messages pass: one at a time, not copied. How far it is
//! is told through a channel that lives until its fate is known.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

use antiphon_core::wire::block::PIECE_BYTES;
use antiphon_core::wire::{Block, BlockBuilder, Level};
use antiphon_core::{Outcome, Tagger, Ticket};
use bytes::Bytes;
use tokio::sync::watch;

use crate::{Progress, Scope, SendError};

/// Bytes of accepted messages that may wait for the core to take them.
const OUTBOX_BYTES: usize = 256 << 10;
/// Ranges of tickets that were not delivered, or of which nothing is known, that are remembered.
const MAX_RANGES: usize = 4096;

#[derive(Debug)]
pub(super) struct Outbox {
    blocks: VecDeque<(Ticket, Block)>,
    open: BlockBuilder,
    /// Bytes of the blocks and the open one.
    bytes: usize,
    /// The object that waits. Messages pass it.
    object: Option<(Ticket, Block)>,
    progress: BTreeMap<u64, watch::Sender<Progress>>,
    limits: Limits,
    next: Ticket,
    fates: Fates,
    /// Why nothing is accepted now.
    pub(super) refuses: Option<SendError>,
    /// In a scoped group, where the last message of each scope is.
    tagger: Option<Tagger>,
}

/// How large payloads are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// What is larger is an object.
    pub(super) message: usize,
    /// Nothing is larger.
    pub(super) object: usize,
}

/// A payload, and whether it has to be copied.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Payload<'a> {
    Borrowed(&'a [u8]),
    Shared(&'a Bytes),
}

impl Payload<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
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

/// Messages of consecutive tickets that share a fate.
#[derive(Debug, Clone, Copy)]
struct Range {
    end: u64,
    outcome: Outcome,
}

#[derive(Debug, Default)]
struct Fates {
    /// First and end, ascending.
    pending: VecDeque<(u64, u64)>,
    /// By first ticket: those that were not delivered.
    others: BTreeMap<u64, Range>,
    /// Nothing is remembered of tickets before this.
    floor: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Outbox {
    pub(super) fn new(limits: Limits, scoped: bool) -> Self {
        Self {
            tagger: scoped.then(Tagger::default),
            limits,
            object: None,
            progress: BTreeMap::new(),
            blocks: VecDeque::new(),
            open: BlockBuilder::default(),
            bytes: 0,
            next: Ticket(1),
            fates: Fates::default(),
            refuses: Some(SendError::NotMember),
        }
    }

    /// Whether a payload is an object, which goes beside the messages. An error if it is none that may be sent now.
    pub(super) fn is_object(&self, length: usize) -> Result<bool, SendError> {
        if let Some(refusal) = self.refuses {
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

    /// Takes a payload if there is room. In a scoped group one without a scope has scope 0.
    pub(super) fn accept(
        &mut self,
        payload: Payload<'_>,
        level: Level,
        scope: Option<Scope>,
    ) -> Result<Ticket, SendError> {
        if scope.is_some() && self.tagger.is_none() {
            return Err(self.refuses.unwrap_or(SendError::NotScoped));
        }
        if self.is_object(payload.bytes().len())? {
            return Ok(self.accept_object(payload.share(), level));
        }
        self.accept_message(payload, level, scope.unwrap_or_default())
    }

    fn accept_object(&mut self, payload: Bytes, level: Level) -> Ticket {
        // Blocks have consecutive tickets.
        self.close();
        let ticket = self.next;
        let progress = Progress {
            bytes: 0,
            length: payload.len() as u64,
        };
        self.progress.insert(ticket.0, watch::Sender::new(progress));
        self.object = Some((ticket, Block::large(payload).with_level(level)));
        self.next.0 += 1;
        self.fates.begin(ticket.0);
        ticket
    }

    fn accept_message(
        &mut self,
        message: Payload<'_>,
        level: Level,
        Scope(scope): Scope,
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
        let ticket = self.next;
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
        self.next.0 += 1;
        self.fates.begin(ticket.0);
        Ok(ticket)
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let first = Ticket(self.next.0 - self.open.count());
            self.blocks.push_back((first, self.open.finish()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.object.is_none()
    }

    /// The object that waits, if one does.
    pub(super) fn pop_object(&mut self) -> Option<(Ticket, Block)> {
        self.object.take()
    }

    pub(super) fn put_object_back(&mut self, ticket: Ticket, block: Block) {
        self.object = Some((ticket, block));
    }

    /// So much of an object is at all other members.
    pub(super) fn set_progress(&self, ticket: Ticket, progress: Progress) {
        if let Some(sender) = self.progress.get(&ticket.0) {
            sender.send_replace(progress);
        }
    }

    /// How far an object is; the channel ends with its fate.
    pub(super) fn watch(&self, ticket: Ticket) -> Option<watch::Receiver<Progress>> {
        self.progress.get(&ticket.0).map(watch::Sender::subscribe)
    }

    pub(super) fn pop(&mut self) -> Option<(Ticket, Block)> {
        if self.blocks.is_empty() {
            self.close();
        }
        let (first, block) = self.blocks.pop_front()?;
        self.bytes -= block.bytes().len();
        Some((first, block))
    }

    /// Takes all out that waits, which will not be sent; gives whom to wake.
    pub(super) fn refuse_all(&mut self) -> Vec<Waker> {
        let mut woken = Vec::new();
        while let Some((first, block)) = self.pop().or_else(|| self.pop_object()) {
            woken.extend(self.settle(first, block.count(), Outcome::NotDelivered));
        }
        if let Some(tagger) = &mut self.tagger {
            tagger.forget();
        }
        woken
    }

    pub(super) fn put_back(&mut self, first: Ticket, block: Block) {
        self.bytes += block.bytes().len();
        self.blocks.push_front((first, block));
    }

    pub(super) fn pending(&self) -> u64 {
        self.fates.pending.iter().map(|(first, end)| end - first).sum()
    }

    /// These messages have this fate; gives whom to wake.
    pub(super) fn settle(&mut self, first: Ticket, count: u64, outcome: Outcome) -> Vec<Waker> {
        let end = first.0.saturating_add(count);
        if !self.progress.is_empty() {
            self.progress.retain(|ticket, _| !(first.0..end).contains(ticket));
        }
        self.fates.settle(first.0, end, outcome)
    }

    /// Nothing more will be known of what is pending.
    pub(super) fn settle_all(&mut self) -> Vec<Waker> {
        self.settle(Ticket(0), u64::MAX, Outcome::Unknown)
    }

    pub(super) fn poll(&mut self, ticket: Ticket, cx: &Context<'_>) -> Poll<Outcome> {
        self.fates.poll(ticket.0, cx)
    }

    pub(super) fn stop_waiting(&mut self, ticket: Ticket) {
        self.fates.waiting.remove(&ticket.0);
    }
}

impl Fates {
    fn begin(&mut self, ticket: u64) {
        match self.pending.back_mut() {
            Some((_, end)) if *end == ticket => *end += 1,
            _ => self.pending.push_back((ticket, ticket + 1)),
        }
    }

    fn settle(&mut self, first: u64, end: u64, outcome: Outcome) -> Vec<Waker> {
        let mut settled = Vec::new();
        match self.pending.front_mut() {
            // What is delivered is, nearly always, the oldest that is pending.
            Some(front) if front.0 == first && end < front.1 => {
                front.0 = end;
                settled.push((first, end));
            }
            _ => self.settle_anywhere(first, end, &mut settled),
        }
        if outcome != Outcome::Delivered {
            for (first, end) in settled {
                self.others.insert(first, Range { end, outcome });
            }
            while self.others.len() > MAX_RANGES
                && let Some((_, range)) = self.others.pop_first()
            {
                self.floor = self.floor.max(range.end);
            }
        }
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let woken: Vec<u64> = self
            .waiting
            .range(first..end)
            .map(|(ticket, _)| *ticket)
            .collect();
        woken
            .iter()
            .filter_map(|ticket| self.waiting.remove(ticket))
            .collect()
    }

    fn settle_anywhere(&mut self, first: u64, end: u64, settled: &mut Vec<(u64, u64)>) {
        let mut pending = VecDeque::new();
        for (from, to) in self.pending.drain(..) {
            let (cut_from, cut_to) = (from.max(first), to.min(end));
            if cut_from >= cut_to {
                pending.push_back((from, to));
                continue;
            }
            settled.push((cut_from, cut_to));
            if from < cut_from {
                pending.push_back((from, cut_from));
            }
            if cut_to < to {
                pending.push_back((cut_to, to));
            }
        }
        self.pending = pending;
    }

    fn poll(&mut self, ticket: u64, cx: &Context<'_>) -> Poll<Outcome> {
        let index = self.pending.partition_point(|(_, end)| *end <= ticket);
        if self.pending.get(index).is_some_and(|(first, _)| *first <= ticket) {
            self.waiting.insert(ticket, cx.waker().clone());
            return Poll::Pending;
        }
        if ticket < self.floor {
            return Poll::Ready(Outcome::Unknown);
        }
        let before = self.others.range(..=ticket).next_back();
        let outcome = before
            .filter(|(_, range)| ticket < range.end)
            .map_or(Outcome::Delivered, |(_, range)| range.outcome);
        Poll::Ready(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(outbox: &mut Outbox, ticket: u64) -> Option<Outcome> {
        let cx = Context::from_waker(Waker::noop());
        match outbox.poll(Ticket(ticket), &cx) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    fn open() -> Outbox {
        let mut outbox = Outbox::new(
            Limits {
                message: 1 << 20,
                object: 2 << 20,
            },
            false,
        );
        outbox.refuses = None;
        outbox
    }

    #[test]
    fn a_message_is_pending_until_its_fate_is_known_in_whatever_order() {
        let mut outbox = open();
        for ticket in 1..=10 {
            assert_eq!(
                outbox.accept(Payload::Borrowed(b"m"), Level::Agreed, None),
                Ok(Ticket(ticket))
            );
        }
        outbox.settle(Ticket(1), 3, Outcome::Delivered);
        outbox.settle(Ticket(6), 2, Outcome::NotDelivered);
        let fates: Vec<_> = (1..=10).map(|ticket| fate(&mut outbox, ticket)).collect();
        let (yes, no) = (Some(Outcome::Delivered), Some(Outcome::NotDelivered));
        assert_eq!(fates, [yes, yes, yes, None, None, no, no, None, None, None]);
        assert_eq!(outbox.pending(), 5);
        outbox.settle(Ticket(4), 2, Outcome::Delivered);
        outbox.settle(Ticket(8), 1, Outcome::Delivered);
        outbox.settle_all();
        let fates: Vec<_> = (4..=10).map(|ticket| fate(&mut outbox, ticket)).collect();
        let unknown = Some(Outcome::Unknown);
        assert_eq!(fates, [yes, yes, no, no, yes, unknown, unknown]);
        assert_eq!(outbox.pending(), 0);
    }

    #[test]
    fn blocks_carry_the_ticket_of_their_first_message_and_room_comes_back() {
        let mut outbox = open();
        let large = vec![0; 30_000];
        let mut accepted = 0;
        while outbox
            .accept(Payload::Borrowed(&large), Level::Agreed, None)
            .is_ok()
        {
            accepted += 1;
        }
        assert_eq!(accepted, OUTBOX_BYTES as u64 / Block::cost(30_000) as u64);
        assert_eq!(
            outbox.accept(Payload::Borrowed(&large), Level::Agreed, None),
            Err(SendError::Full)
        );
        let (first, block) = outbox.pop().unwrap();
        assert_eq!((first, block.count()), (Ticket(1), 2));
        outbox.put_back(first, block);
        assert_eq!(
            outbox.accept(Payload::Borrowed(&large), Level::Agreed, None),
            Err(SendError::Full)
        );
        assert_eq!(outbox.pop().map(|(first, _)| first), Some(Ticket(1)));
        assert_eq!(
            outbox.accept(Payload::Borrowed(b"small"), Level::Agreed, None),
            Ok(Ticket(accepted + 1))
        );
        let firsts: Vec<_> = std::iter::from_fn(|| outbox.pop())
            .map(|(first, _)| first.0)
            .collect();
        assert_eq!(firsts, [3, 5, 7]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_block_has_messages_of_one_level() {
        let mut outbox = open();
        for level in [
            Level::Agreed,
            Level::Agreed,
            Level::Safe,
            Level::Agreed,
            Level::Safe,
            Level::Safe,
        ] {
            outbox.accept(Payload::Borrowed(b"m"), level, None).unwrap();
        }
        let blocks: Vec<_> = std::iter::from_fn(|| outbox.pop())
            .map(|(first, block)| (first.0, block.count(), block.level()))
            .collect();
        let (agreed, safe) = (Level::Agreed, Level::Safe);
        assert_eq!(
            blocks,
            [(1, 2, agreed), (3, 1, safe), (4, 1, agreed), (5, 2, safe)]
        );
    }

    #[test]
    fn a_fate_that_is_not_remembered_is_unknown_never_a_delivery() {
        let mut outbox = open();
        let mut ticket = Ticket(0);
        for round in 0..=MAX_RANGES as u64 {
            ticket = outbox
                .accept(Payload::Borrowed(b"lost"), Level::Agreed, None)
                .unwrap();
            drop(outbox.pop());
            outbox.settle(ticket, 1, Outcome::NotDelivered);
            let between = outbox
                .accept(Payload::Borrowed(b"kept"), Level::Agreed, None)
                .unwrap();
            drop(outbox.pop());
            outbox.settle(between, 1, Outcome::Delivered);
            assert_eq!(between.0, round * 2 + 2);
        }
        assert_eq!(fate(&mut outbox, 1), Some(Outcome::Unknown));
        assert_eq!(fate(&mut outbox, ticket.0), Some(Outcome::NotDelivered));
        assert_eq!(fate(&mut outbox, ticket.0 + 1), Some(Outcome::Delivered));
    }

    #[test]
    fn messages_pass_an_object_that_waits_and_the_next_object_does_not() {
        let mut outbox = open();
        let small = |outbox: &mut Outbox| outbox.accept(Payload::Borrowed(b"small"), Level::Agreed, None);
        let payload = Bytes::from(vec![7; (1 << 20) + 1]);
        assert_eq!(small(&mut outbox), Ok(Ticket(1)));
        assert_eq!(
            outbox.accept(Payload::Shared(&payload), Level::Safe, None),
            Ok(Ticket(2))
        );
        assert_eq!(small(&mut outbox), Ok(Ticket(3)));
        assert_eq!(
            outbox.accept(Payload::Shared(&payload), Level::Safe, None),
            Err(SendError::Full)
        );
        assert_eq!(
            outbox.accept(Payload::Borrowed(&[0; (2 << 20) + 1]), Level::Agreed, None),
            Err(SendError::TooLarge { limit: 2 << 20 })
        );
        let blocks: Vec<_> = std::iter::from_fn(|| outbox.pop())
            .map(|(first, _)| first.0)
            .collect();
        assert_eq!(blocks, [1, 3], "tickets of a block are consecutive");
        assert!(!outbox.is_empty());
        let (ticket, block) = outbox.pop_object().expect("it waits");
        assert_eq!((ticket, block.level()), (Ticket(2), Level::Safe));
        assert_eq!(block.bytes().as_ptr(), payload.as_ptr(), "it was not copied");
        outbox.put_object_back(ticket, block);
        assert!(
            outbox
                .accept(Payload::Shared(&payload), Level::Safe, None)
                .is_err()
        );
        assert!(outbox.pop_object().is_some() && outbox.is_empty());
    }

    #[test]
    fn progress_is_told_until_the_fate_is_known() {
        let mut outbox = open();
        let payload = Bytes::from(vec![7; (1 << 20) + 1]);
        let ticket = outbox
            .accept(Payload::Shared(&payload), Level::Agreed, None)
            .unwrap();
        let small = outbox
            .accept(Payload::Borrowed(b"small"), Level::Agreed, None)
            .unwrap();
        assert!(outbox.watch(small).is_none());
        let mut watch = outbox.watch(ticket).expect("an object");
        let length = payload.len() as u64;
        assert_eq!(*watch.borrow(), Progress { bytes: 0, length });
        outbox.set_progress(ticket, Progress { bytes: 5, length });
        assert!(watch.has_changed().unwrap());
        assert_eq!(watch.borrow_and_update().bytes, 5);
        outbox.settle(small, 1, Outcome::Delivered);
        assert!(!watch.has_changed().unwrap());
        outbox.settle(ticket, 1, Outcome::Delivered);
        assert!(watch.has_changed().is_err(), "it has ended");
    }
}
