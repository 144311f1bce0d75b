//! The sender's side of a pair: what was accepted for one member, until its application has taken it.

use std::collections::VecDeque;

use antiphon_wire::{Block, BlockBuilder};

use crate::group::direct::limits::{
    MAX_AGAIN_BYTES, MAX_NUMBER, TELL_CREDIT_BYTES, TELL_OVERHEAD, charge, patience,
};
use crate::{Parting, Profile, TellOutcome, Ticket, Time};

/// A run of messages of one pair, and what became of it, for the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipts {
    pub(crate) first: Ticket,
    pub(crate) count: u64,
    pub(crate) outcome: TellOutcome,
}

/// What was accepted for one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outgoing {
    /// Tickets are this much above numbers: no ticket is given twice, also if a pair begins again.
    base: u64,
    /// What the receiver's application has not taken.
    blocks: VecDeque<Kept>,
    /// Behind all blocks; it can still grow.
    open: BlockBuilder,
    /// The number of the next message.
    next: u64,
    /// All before this were sent at least once.
    ever_sent: u64,
    /// All before this were sent in the present view.
    sent: u64,
    /// The receiver has taken all before this.
    heard: u64,
    /// Bytes that were accepted and that the receiver's application has not taken.
    outstanding: usize,
    /// The bytes of what was refused for want of credit.
    refused: Option<usize>,
    /// Messages before this that are missing at the receiver are to be sent again.
    again: u64,
    /// All before this were sent again, if they had to be.
    repeated: u64,
    /// All before this were sent when an answer last failed to come: what was not heard of them may be lost.
    lost: u64,
    /// A gap that begins before this was answered, or is about to be: the receiver may ask for each gap once.
    answered: u64,
    /// The receiver is to say how far it is.
    asks: bool,
    ask_at: Option<Time>,
    attempt: u32,
}

/// Messages that were accepted, in the block in which they travel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    first: u64,
    count: u64,
    charge: usize,
    /// None when the receiver has taken the messages.
    block: Option<Block>,
}

impl Kept {
    fn end(&self) -> u64 {
        self.first + self.count
    }
}

impl Outgoing {
    /// All tickets are above this one.
    pub(super) fn new(base: u64) -> Self {
        Self {
            base,
            blocks: VecDeque::new(),
            open: BlockBuilder::default(),
            next: 1,
            ever_sent: 1,
            sent: 1,
            heard: 1,
            outstanding: 0,
            refused: None,
            again: 0,
            repeated: 0,
            lost: 0,
            answered: 0,
            asks: false,
            ask_at: None,
            attempt: 0,
        }
    }

    /// Takes a message. None if there is no credit for it.
    pub(super) fn accept(&mut self, payload: &[u8]) -> Option<Ticket> {
        let cost = Block::cost(payload.len()) + TELL_OVERHEAD;
        if self.outstanding + cost > TELL_CREDIT_BYTES {
            self.refused = Some(cost);
            return None;
        }
        if !self.open.has_room(payload.len()) {
            self.close();
        }
        self.open.push(payload);
        self.outstanding += cost;
        let number = self.next;
        self.next += 1;
        Some(Ticket(self.base + number))
    }

    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let block = self.open.finish();
        self.blocks.push_back(Kept {
            first: self.next - block.count(),
            count: block.count(),
            charge: charge(&block),
            block: Some(block),
        });
    }

    /// Whether the receiver has taken all.
    pub(super) fn is_heard(&self) -> bool {
        self.heard == self.next
    }

    pub(super) fn bytes(&self) -> usize {
        self.outstanding
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.ask_at
    }

    /// What goes out now: messages with the number of the first, or no messages, as a mark.
    pub(super) fn pack(&mut self, now: Time, profile: &Profile) -> Vec<(u64, Block)> {
        self.close();
        let (sent, again) = (self.sent, std::mem::take(&mut self.again));
        let due = |kept: &&Kept| kept.first >= sent || kept.first < again;
        let send = |kept: &Kept| Some((kept.first, kept.block.clone()?));
        let mut out: Vec<_> = self.blocks.iter().filter(due).filter_map(send).collect();
        self.sent = self.next;
        self.ever_sent = self.next;
        if std::mem::take(&mut self.asks) && out.is_empty() {
            out.push((self.next, Block::default()));
        }
        self.watch(now, profile);
        out
    }

    /// The receiver owes an answer while it has not taken all, or while this member waits for credit.
    fn watch(&mut self, now: Time, profile: &Profile) {
        if self.heard < self.ever_sent || self.refused.is_some() {
            let at = now + patience(profile, self.attempt);
            self.ask_at.get_or_insert(at);
        } else {
            self.ask_at = None;
            self.attempt = 0;
        }
    }

    /// No answer came: the first block that is not heard is sent again, or the receiver is asked. A receiver
    /// that pauses costs no more than that block. If it hears it, what may be lost besides follows.
    pub(super) fn timeout(&mut self, now: Time) {
        if self.ask_at.is_none_or(|at| at > now) {
            return;
        }
        self.ask_at = None;
        self.attempt = self.attempt.saturating_add(1);
        self.asks = true;
        if self.heard < self.sent {
            self.again = self.heard + 1;
            self.repeated = self.again;
            self.lost = self.sent;
        }
    }

    /// The number after the messages, of those not heard, that may be sent again at once: a block at least.
    fn some_unheard(&self) -> u64 {
        let mut bytes = 0;
        let unheard = self.blocks.iter().filter(|kept| kept.block.is_some());
        let some = unheard.take_while(|kept| {
            bytes += kept.charge;
            bytes <= MAX_AGAIN_BYTES
        });
        some.last().map_or(self.heard + 1, Kept::end)
    }

    /// The receiver says how far it is. Returns what that delivers; nothing if it cannot be right.
    pub(super) fn ack(
        &mut self,
        now: Time,
        profile: &Profile,
        heard: u64,
        until: u64,
        consumed: u64,
    ) -> Option<Option<Receipts>> {
        if heard > self.ever_sent || consumed > heard || consumed == 0 {
            return None;
        }
        let news = heard > self.heard;
        let delivered = news.then(|| self.receipts(self.heard, heard, TellOutcome::Delivered));
        self.heard = self.heard.max(heard);
        let before = self.outstanding;
        self.release(consumed);
        if news || self.outstanding < before {
            self.attempt = 0;
            self.ask_at = None;
        }
        if until > self.heard && heard == self.heard && self.answered != heard {
            self.again = until.min(self.sent);
            self.repeated = self.again;
            self.answered = heard;
        } else if news && (self.repeated..self.lost).contains(&self.heard) {
            // All that was sent again has come, and a connection that breaks loses all that was in it.
            self.again = self.some_unheard().min(self.lost);
            self.repeated = self.again;
        }
        self.watch(now, profile);
        Some(delivered)
    }

    /// Forgets what was heard, and gives back the credit of what was consumed.
    fn release(&mut self, consumed: u64) {
        for kept in &mut self.blocks {
            if kept.end() > self.heard {
                break;
            }
            kept.block = None;
        }
        while let Some(front) = self.blocks.front()
            && front.end() <= consumed
        {
            assert!(
                self.outstanding >= front.charge,
                "R21: {} bytes are outstanding, and {} come back",
                self.outstanding,
                front.charge
            );
            self.outstanding -= front.charge;
            self.blocks.pop_front();
        }
    }

    /// Whether what was refused has room now: the application is told once.
    pub(super) fn writable(&mut self) -> bool {
        // Only when there is room for more than what was refused: else the application would offer it again
        // for ever.
        let room = |cost: usize| self.outstanding + cost.max(TELL_CREDIT_BYTES / 2) <= TELL_CREDIT_BYTES;
        let writable = self.refused.is_some_and(room);
        if writable {
            self.refused = None;
        }
        writable
    }

    /// A view was installed, and the receiver is in it: messages that it has not taken are sent again, as
    /// messages of this view.
    pub(super) fn begin_view(&mut self) {
        if planted!(LoseUnheardTells) {
            self.heard = self.ever_sent;
        }
        self.sent = self.heard;
        self.again = 0;
        self.repeated = 0;
        self.lost = 0;
        self.answered = 0;
        self.asks = false;
        self.ask_at = None;
        self.attempt = 0;
    }

    /// The pair is over. `taken` is the first number that the receiver has not taken, if it has said so to
    /// the flush.
    pub(super) fn end(self, taken: Option<u64>, parting: Parting) -> Vec<Receipts> {
        let mut heard = self.heard.max(taken.unwrap_or(0)).min(self.ever_sent);
        if planted!(UnheardIsDelivered) {
            heard = self.ever_sent;
        }
        let unheard = match taken {
            Some(_) => TellOutcome::NotDelivered(parting.clone()),
            None => TellOutcome::Unknown(parting.clone()),
        };
        let runs = [
            self.receipts(self.heard, heard, TellOutcome::Delivered),
            self.receipts(heard, self.ever_sent, unheard),
            self.receipts(self.ever_sent, self.next, TellOutcome::NotDelivered(parting)),
        ];
        runs.into_iter().filter(|run| run.count > 0).collect()
    }

    fn receipts(&self, first: u64, end: u64, outcome: TellOutcome) -> Receipts {
        assert!(
            first <= end && end <= self.next && self.next < MAX_NUMBER,
            "G44: receipts for {first} to {end}, of {}",
            self.next
        );
        Receipts {
            first: Ticket(self.base + first),
            count: end - first,
            outcome,
        }
    }
}
