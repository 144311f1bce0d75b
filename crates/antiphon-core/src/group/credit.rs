//! Byte credit from end to end: what a member may still send, and what its own application has not taken yet.
//!
//! Every member reserves one window for every other. A sender counts the messages that it has sent and that
//! some member's application has not consumed. When they fill the window, it waits. Both counts go on across
//! views, as the messages do.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use antiphon_wire::{Block, Incarnation};

use super::log::charge;
use super::reached::Reached;
use crate::Time;

/// What this member has sent that some member's application has not consumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credit {
    first: u64,
    /// Per block, how many messages it has and what it was charged with.
    blocks: VecDeque<(u64, usize)>,
    outstanding: usize,
}

impl Credit {
    /// Nothing outstanding; the next message has this number.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            first,
            blocks: VecDeque::new(),
            outstanding: 0,
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The first message that is outstanding, or the next one.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// A membership begins in which the next message has number `next`. Messages that the members had not
    /// consumed of an earlier membership under the same numbers may still be held there. So they stay
    /// outstanding until the members say otherwise.
    pub(crate) fn go_on(&mut self, next: u64) {
        let end = self.first + self.blocks.iter().map(|(count, _)| count).sum::<u64>();
        if end != next {
            *self = Self::new(next);
        }
    }

    /// Whether a block of this charge fits now. In an empty window any block fits.
    pub(crate) fn admits(&self, charge: usize, window: usize) -> bool {
        self.outstanding == 0 || self.outstanding + charge <= window
    }

    /// The same, if only messages from `position` on were outstanding.
    pub(crate) fn admits_from(&self, position: u64, charge: usize, window: usize) -> bool {
        let mut end = self.first;
        let mut outstanding = 0;
        for (count, charge) in &self.blocks {
            end += count;
            if end > position {
                outstanding += charge;
            }
        }
        outstanding == 0 || outstanding + charge <= window
    }

    pub(crate) fn spend(&mut self, block: &Block) {
        self.blocks.push_back((block.count(), charge(block)));
        self.outstanding += charge(block);
    }

    /// R21: what was admitted never takes more than the window, or than one block.
    pub(crate) fn assert_within(&self, charge: usize, window: usize) {
        assert!(
            self.outstanding <= window.max(charge) || planted!(),
            "R21: {} bytes are outstanding, of a window of {window}; the last took {charge}",
            self.outstanding
        );
    }

    /// All members' applications have consumed what comes before `position`.
    pub(crate) fn release(&mut self, position: u64) {
        while let Some((count, charge)) = self.blocks.front()
            && self.first + count <= position
        {
            assert!(
                self.outstanding >= *charge,
                "R21: {} bytes are outstanding, and a block of {charge} comes back",
                self.outstanding
            );
            self.outstanding -= charge;
            self.first += count;
            self.blocks.pop_front();
        }
        assert!(
            self.blocks.is_empty() == (self.outstanding == 0),
            "R21: {} blocks are outstanding, of {} bytes",
            self.blocks.len(),
            self.outstanding
        );
    }
}

/// What was delivered here and not consumed yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Backlog {
    runs: VecDeque<Unread>,
    /// Bytes of the objects among them, by sender.
    objects: BTreeMap<Incarnation, usize>,
    /// When the application last took something, or had nothing to take.
    moved: Time,
}

/// Consecutive messages of one sender, or the place of skipped numbers, with no message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unread {
    sender: Incarnation,
    /// The number of the first, or of its first piece.
    first: u64,
    count: u64,
    /// How many pieces each has.
    pieces: u64,
    /// If it is an object: its bytes, which no window counts.
    object_bytes: usize,
}

impl Backlog {
    /// Messages from this number on, of so many pieces each, were handed to the application.
    pub(crate) fn delivered(&mut self, now: Time, sender: Incarnation, first: u64, count: u64, pieces: u64) {
        if self.runs.is_empty() {
            self.moved = now;
        }
        match self.runs.back_mut() {
            Some(last)
                if last.sender == sender
                    && (last.pieces, pieces, last.object_bytes) == (1, 1, 0)
                    && last.first + last.count == first =>
            {
                last.count += count;
            }
            _ => self.runs.push_back(Unread {
                sender,
                first,
                count,
                pieces,
                object_bytes: 0,
            }),
        }
    }

    /// An object of so many bytes, with this number, was handed to the application.
    pub(crate) fn delivered_object(&mut self, now: Time, sender: Incarnation, number: u64, bytes: usize) {
        if self.runs.is_empty() {
            self.moved = now;
        }
        *self.objects.entry(sender).or_default() += bytes;
        self.runs.push_back(Unread {
            sender,
            first: number,
            count: 1,
            pieces: 1,
            object_bytes: bytes,
        });
    }

    /// Bytes of objects that the application has not taken.
    pub(crate) fn object_bytes(&self) -> usize {
        self.objects.values().sum()
    }

    /// Of those, what this sender has sent.
    pub(crate) fn object_bytes_of(&self, sender: Incarnation) -> usize {
        self.objects.get(&sender).copied().unwrap_or(0)
    }

    fn took_object(&mut self, sender: Incarnation, bytes: usize) {
        if let Some(left) = self.objects.get_mut(&sender) {
            assert!(
                *left >= bytes,
                "R22: {bytes} bytes are taken of {sender:?}, which has {left} here"
            );
            *left -= bytes;
            if *left == 0 {
                self.objects.remove(&sender);
            }
        }
    }

    /// These numbers are not for the application. They count as taken as soon as the application has taken
    /// all that came from this sender before. True if it has.
    pub(crate) fn skipped(&mut self, sender: Incarnation, (first, end): (u64, u64)) -> bool {
        let waits = self.runs.iter().any(|unread| unread.sender == sender);
        if waits {
            self.runs.push_back(Unread {
                sender,
                first,
                count: 0,
                pieces: end - first,
                object_bytes: 0,
            });
        }
        !waits
    }

    /// The application has taken this many more. Gives each sender's numbers that this covers.
    pub(crate) fn consume(&mut self, now: Time, mut messages: u64) -> Vec<(Incarnation, (u64, u64))> {
        self.moved = now;
        let mut positions = Vec::new();
        while let Some(front) = self.runs.front_mut()
            && (messages > 0 || front.count == 0)
        {
            let taken = messages.min(front.count);
            let first = front.first;
            // An entry of skipped numbers has no message.
            if front.count == 0 {
                front.first += front.pieces;
            }
            front.first += taken * front.pieces;
            front.count -= taken;
            messages -= taken;
            positions.push((front.sender, (first, front.first)));
            let (sender, object_bytes) = (front.sender, front.object_bytes);
            if front.count == 0 {
                self.runs.pop_front();
                if object_bytes > 0 {
                    self.took_object(sender, object_bytes);
                }
            }
        }
        positions
    }

    /// How long the application has taken nothing although there was something.
    pub(crate) fn stands_for(&self, now: Time) -> Duration {
        if self.runs.is_empty() {
            Duration::ZERO
        } else {
            now.since(self.moved)
        }
    }

    /// Whether the application has taken everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The sender's messages before `next` that were consumed: all but those that wait.
    pub(crate) fn consumed_of(&self, sender: Incarnation, next: u64) -> Reached {
        let own = |unread: &&Unread| unread.sender == sender;
        let waiting = self.runs.iter().filter(own);
        let waiting = waiting.map(|unread| (unread.first, unread.first + unread.count * unread.pieces));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        let mut waiting = waiting.into_iter();
        let Some((first, mut at)) = waiting.next() else {
            return Reached::new(next);
        };
        let mut consumed = Reached::new(first);
        for (first, end) in waiting {
            consumed.add(at, first);
            at = end;
        }
        consumed.add(at, next);
        consumed
    }
}
