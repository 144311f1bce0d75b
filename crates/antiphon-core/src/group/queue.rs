//! The queue of a group: blocks of this member that the core has taken and that are not in its log yet, since
//! they wait for credit or for the end of a flush. The driver of the node hands them over from an
//! [outbox](crate::outbox).

use std::collections::VecDeque;

use antiphon_wire::block::Form;
use antiphon_wire::{Block, BlockBuilder, Level};

use super::log::charge;
use crate::Ticket;

/// Blocks below this are joined with their neighbours: a frame per message is the price of a slow sender
/// only.
const SMALL: usize = 4096;

/// Consecutive tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tickets {
    pub(crate) first: Ticket,
    pub(crate) count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Queue {
    blocks: VecDeque<(Ticket, Block)>,
    /// Behind all blocks; it can still grow.
    open: BlockBuilder,
    open_first: Option<Ticket>,
    /// Charges of the blocks.
    bytes: usize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.open.is_empty()
    }

    /// What waits, as windows count it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.open.len()
    }

    /// Adds a block; a small one may be joined with those before it.
    pub(crate) fn push(&mut self, first: Ticket, block: Block) {
        let length = block.bytes().len();
        if length < SMALL
            && block.form() == Form::Messages
            && self.open.has_room(length)
            && (self.open.takes(block.level()) || planted!(JoinForgetsLevel))
            && self.continues(first)
        {
            self.open_first.get_or_insert(first);
            let block = match planted!(JoinForgetsLevel) {
                true => block.with_level(Level::Agreed),
                false => block,
            };
            self.open.extend(&block);
            return;
        }
        self.close();
        self.bytes += charge(&block);
        self.blocks.push_back((first, block));
    }

    /// Whether the open block may take a message with this ticket: tickets of a block are consecutive.
    fn continues(&self, ticket: Ticket) -> bool {
        self.open_first
            .is_none_or(|first| first.0 + self.open.count() == ticket.0)
    }

    fn close(&mut self) {
        if let Some(first) = self.open_first.take() {
            let block = self.open.finish();
            self.bytes += charge(&block);
            self.blocks.push_back((first, block));
        }
    }

    /// What the next block will be charged with.
    pub(crate) fn front_charge(&mut self) -> Option<usize> {
        if self.blocks.is_empty() {
            self.close();
        }
        self.blocks.front().map(|(_, block)| charge(block))
    }

    pub(crate) fn pop(&mut self) -> Option<(Ticket, Block)> {
        let (first, block) = self.blocks.pop_front()?;
        self.bytes -= charge(&block);
        Some((first, block))
    }

    /// Empties it; gives the tickets of what was in it.
    pub(crate) fn clear(&mut self) -> Vec<Tickets> {
        self.close();
        self.bytes = 0;
        let tickets = |(first, block): (Ticket, Block)| Tickets {
            first,
            count: block.count(),
        };
        std::mem::take(&mut self.blocks)
            .into_iter()
            .map(tickets)
            .collect()
    }
}

/// Sent and not delivered here yet: runs of (number, ticket), both consecutive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sent {
    runs: VecDeque<(u64, Tickets)>,
}

impl Sent {
    pub(crate) fn push(&mut self, seq: u64, tickets: Tickets) {
        match self.runs.back_mut() {
            Some((first, run)) if *first + run.count == seq && run.first.0 + run.count == tickets.first.0 => {
                run.count += tickets.count;
            }
            _ => self.runs.push_back((seq, tickets)),
        }
    }

    /// Message `seq` is delivered: its ticket, and how many of the `count` messages from there on have
    /// consecutive tickets. A message that was sent before it may be delivered later: in an unordered group
    /// safe messages wait by themselves.
    pub(crate) fn take(&mut self, seq: u64, count: u64) -> Option<Tickets> {
        let index = self.runs.partition_point(|(first, run)| first + run.count <= seq);
        let (first, run) = self.runs.get_mut(index)?;
        let skipped = seq.checked_sub(*first)?;
        let taken = Tickets {
            first: Ticket(run.first.0 + skipped),
            count: count.min(run.count - skipped),
        };
        let gone = skipped + taken.count;
        let rest = Tickets {
            first: Ticket(run.first.0 + gone),
            count: run.count - gone,
        };
        let behind = (*first + gone, rest);
        run.count = skipped;
        match (skipped > 0, rest.count > 0) {
            (true, true) => self.runs.insert(index + 1, behind),
            (true, false) => {}
            (false, true) => self.runs[index] = behind,
            (false, false) => drop(self.runs.remove(index)),
        }
        Some(taken)
    }

    pub(crate) fn clear(&mut self) -> impl Iterator<Item = (u64, Tickets)> + use<> {
        std::mem::take(&mut self.runs).into_iter()
    }
}
