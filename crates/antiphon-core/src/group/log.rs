//! One sender's messages in one group view, as one member holds them.
//!
//! ```text
//!      stable          delivered        next            end
//!  ───────┼────────────────┼──────────────┼──── ░ ─ ░ ────┼──►  numbers
//!         │ kept for others│  undelivered │ gaps and ahead│
//! ```
//! Messages are kept in the blocks in which they came: what is kept, sent again and delivered are slices of
//! the same bytes. A block stays until it is delivered here *and* the sender's stable mark says that every
//! member holds it. Until then any survivor may have to supply it for a dead sender. Numbers go on across
//! views.
//!
//! # Nulls
//! In the rotation a sender gives up numbers. Runs of nulls are entries like blocks: they are kept, sent
//! again and "delivered" in the same way, so only the hand-over to the application has to know them.
//! Neighbouring runs are one entry: a sender's silence costs one entry, however long it lasts. The
//! application's numbers count messages alone, without gaps. Inside a view they are the log's numbers less
//! the nulls before them, and each view begins with both equal.
//!
//! # Logs that no member reads in order
//! In an unordered group messages ahead of a gap are delivered as well; see [`loose`].

mod loose;
pub(crate) mod scopes;
mod sparse;

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::{Block, BlockBuilder, Level};

use self::sparse::Loose;

/// What a block costs in windows and limits besides its bytes: neither it nor its messages are free.
pub(crate) const BLOCK_OVERHEAD: usize = 128;

/// A number this far ahead of what is held comes from no sender.
const FAR_AHEAD: u64 = 1 << 32;

/// What a run of nulls costs, however long.
const NULLS_OVERHEAD: usize = 64;

/// What a block is charged with, or the blocks in which it will travel.
pub(crate) fn charge(block: &Block) -> usize {
    if block.is_nulls() {
        return NULLS_OVERHEAD;
    }
    block.bytes().len() + BLOCK_OVERHEAD * block.places().div_ceil(block.count().max(1)) as usize
}

/// How much a log may keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes in order, and bytes ahead.
    pub(crate) bytes: usize,
    /// Runs ahead of a gap, where they are delivered: a member has to report each to a flush.
    pub(crate) runs: usize,
}

/// What became of messages offered to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// They extend what is held.
    Held,
    /// They are kept behind a gap.
    Ahead,
    /// They were there before.
    Duplicate,
    /// There is no room for them, or their number is absurd.
    Refused,
}

/// Consecutive messages, the first of them with this number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    first: u64,
    block: Block,
}

impl Entry {
    fn end(&self) -> u64 {
        self.first + self.block.count()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    /// In order and without a gap. One entry begins where `delivered` is, unless that is the end.
    entries: VecDeque<Entry>,
    /// Entries that are delivered.
    cursor: usize,
    bytes: usize,
    next: u64,
    ahead: BTreeMap<u64, Block>,
    ahead_bytes: usize,
    end: u64,
    delivered: u64,
    stable: u64,
    /// Nulls before `next`, and before `delivered`, in this view.
    nulls: u64,
    nulls_delivered: u64,
    /// The number after the last message.
    messages_end: u64,
    /// The number after the last safe message that is held in order.
    safe_end: u64,
    /// What is known besides, where delivery passes gaps.
    loose: Option<Box<Loose>>,
}

impl Log {
    /// A log that is delivered in order.
    pub(crate) fn new(start: u64) -> Self {
        Self {
            loose: None,
            entries: VecDeque::new(),
            cursor: 0,
            bytes: 0,
            next: start,
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            end: start,
            delivered: start,
            stable: start,
            nulls: 0,
            nulls_delivered: 0,
            messages_end: start,
            safe_end: start,
        }
    }

    /// The first number not held.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The first number not delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The same as applications count: the first message not held.
    pub(crate) fn next_message(&self) -> u64 {
        self.next - self.nulls
    }

    /// The same as applications count: the first message not delivered.
    pub(crate) fn delivered_messages(&self) -> u64 {
        self.delivered - self.nulls_delivered
    }

    /// How many of the numbers held are nulls.
    pub(crate) fn nulls(&self) -> u64 {
        self.nulls
    }

    /// The number after the last message held. Numbers held behind it are nulls.
    pub(crate) fn messages_end(&self) -> u64 {
        self.messages_end
    }

    /// All members hold what comes before this.
    pub(crate) fn stable(&self) -> u64 {
        self.stable
    }

    /// The number after the last safe message that is held in order.
    pub(crate) fn safe_end(&self) -> u64 {
        self.safe_end
    }

    /// Whether a safe message is held and not delivered.
    pub(crate) fn has_undelivered_safe(&self) -> bool {
        match &self.loose {
            Some(loose) => loose.may_hold_safe(),
            None => self.safe_end > self.delivered,
        }
    }

    /// Whether the next message to deliver is held and safe.
    pub(crate) fn front_is_safe(&self) -> bool {
        self.entries
            .get(self.cursor)
            .is_some_and(|entry| entry.block.level() == Level::Safe)
    }

    /// How many messages may be delivered, if safe messages may be delivered up to this number.
    pub(crate) fn ready(&self, safe_until: u64) -> u64 {
        if self.front_is_safe() {
            self.undelivered().min(safe_until.saturating_sub(self.delivered))
        } else {
            self.undelivered()
        }
    }

    /// What is kept, as it is charged.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.ahead_bytes
    }

    /// Adds the sender's own next messages, or nulls; gives the first one's number as applications count.
    pub(crate) fn append(&mut self, block: Block) -> u64 {
        let first = self.next_message();
        if self.loose.is_some() {
            let room = Room {
                bytes: usize::MAX,
                runs: 0,
            };
            self.insert_loose(self.next, block, room);
        } else {
            self.push(block);
        }
        self.assert_in_order();
        first
    }

    /// The drawing above holds, and what is kept is counted. What a peer sends is cut to fit before it is
    /// kept, or refused.
    fn assert_in_order(&self) {
        assert!(
            self.delivered <= self.next && self.next <= self.end && self.stable <= self.next || planted!(),
            "G22: delivered {} <= held {} <= end {}, stable {}",
            self.delivered,
            self.next,
            self.end,
            self.stable
        );
        let front = self
            .entries
            .get(self.cursor)
            .map_or(self.next, |entry| entry.first);
        let fits = front == self.delivered || self.loose.is_some() && front < self.delivered;
        let ahead = self.ahead.first_key_value().map(|(first, _)| *first);
        assert!(
            fits && ahead.is_none_or(|ahead| ahead > self.next) || planted!(),
            "G19: delivered {}, and the next entry has {front}; held {}, and ahead of that {ahead:?}",
            self.delivered,
            self.next
        );
        assert!(
            self.nulls_delivered <= self.nulls
                && self.messages_end <= self.next
                && self.safe_end <= self.next
                || planted!(),
            "R16: {} of {} nulls delivered; messages end at {}, safe ones at {}, and {} is held",
            self.nulls_delivered,
            self.nulls,
            self.messages_end,
            self.safe_end,
            self.next
        );
        assert!(
            (self.bytes == 0 || !self.entries.is_empty())
                && (self.ahead_bytes == 0 || !self.ahead.is_empty())
                || planted!(),
            "R21: nothing is kept, and counted as {} and {} bytes",
            self.bytes,
            self.ahead_bytes
        );
    }

    /// Takes messages that arrived, if there is room.
    pub(crate) fn insert(&mut self, first: u64, mut block: Block, room: Room) -> Inserted {
        let end = first.saturating_add(block.count());
        if end <= self.next {
            return Inserted::Duplicate;
        }
        if self.loose.is_some() {
            return self.insert_loose(first, block, room);
        }
        if first > self.next {
            return self.insert_ahead(first, block, room.bytes);
        }
        if first < self.next {
            drop(block.split_front(self.next - first));
        }
        if self.bytes + charge(&block) > room.bytes {
            return Inserted::Refused;
        }
        self.push(block);
        self.take_from_ahead();
        Inserted::Held
    }

    fn insert_ahead(&mut self, first: u64, block: Block, limit: usize) -> Inserted {
        let charge = charge(&block);
        if first - self.next > FAR_AHEAD || self.ahead_bytes + charge > limit {
            return Inserted::Refused;
        }
        self.end = self.end.max(first + block.count());
        match self.ahead.get(&first) {
            Some(known) if known.count() >= block.count() => return Inserted::Duplicate,
            Some(known) => self.ahead_bytes -= self::charge(known),
            None => {}
        }
        self.ahead_bytes += charge;
        self.ahead.insert(first, block);
        self.assert_in_order();
        Inserted::Ahead
    }

    /// Moves what is no longer behind a gap.
    fn take_from_ahead(&mut self) {
        while let Some(entry) = self.ahead.first_entry() {
            if *entry.key() > self.next {
                break;
            }
            let (first, mut block) = entry.remove_entry();
            self.ahead_bytes -= charge(&block);
            drop(block.split_front(self.next - first));
            if !block.is_empty() {
                if planted!(DeliverAgainAfterGap) && self.loose.is_some() {
                    self.offer(first, block.clone());
                }
                self.push(block);
            }
        }
        self.assert_in_order();
    }

    fn push(&mut self, block: Block) {
        let first = self.next;
        self.next += block.count();
        self.end = self.end.max(self.next);
        if block.level() == Level::Safe {
            self.safe_end = self.next;
        }
        if block.is_nulls() {
            self.nulls += block.count();
            if self.cursor < self.entries.len()
                && let Some(last) = self.entries.back_mut()
                && last.block.extend_nulls(&block)
            {
                return;
            }
        } else {
            self.messages_end = self.next;
        }
        self.bytes += charge(&block);
        self.entries.push_back(Entry { first, block });
    }

    /// Pretends that everything before `seq` was delivered: only a planted mistake does this.
    pub(crate) fn skip_to(&mut self, seq: u64) {
        *self = Self {
            end: self.end,
            ..Self::new(seq)
        };
    }

    /// The log reaches up to this number, exclusive.
    pub(crate) fn heard_of(&mut self, end: u64) {
        if end <= self.next.saturating_add(FAR_AHEAD) {
            self.end = self.end.max(end);
        }
    }

    /// The number after the last message that is known to exist.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Runs of missing messages from `from` on that are known to exist: of the first gap, or of all where
    /// delivery passes gaps.
    pub(crate) fn gaps(&self, from: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (from, end) = (from.max(self.next), self.end);
        let loose = self
            .loose
            .iter()
            .flat_map(move |loose| loose.held.all_missing(from, end));
        let first = self.ahead.first_key_value().map_or(self.end, |(first, _)| *first);
        let one = (self.loose.is_none() && from < first).then_some((from, first));
        loose.chain(one)
    }

    /// How many messages are held and not delivered.
    pub(crate) fn undelivered(&self) -> u64 {
        self.next - self.delivered
    }

    /// The next messages to deliver, at most `limit` and at most what came in one block, with the first one's
    /// number as applications count. They count as delivered from now on. The result may be nulls.
    pub(crate) fn deliver(&mut self, limit: u64) -> Option<(u64, Block)> {
        let number = self.delivered_messages();
        let entry = self.entries.get_mut(self.cursor)?;
        if limit == 0 {
            return None;
        }
        if entry.block.is_nulls() {
            return Some((number, self.pass_nulls(limit)));
        }
        let first = entry.first;
        if entry.block.count() > limit {
            let front = entry.block.split_front(limit);
            entry.first += limit;
            let (first, block) = (first, front);
            self.bytes += BLOCK_OVERHEAD;
            self.entries.insert(self.cursor, Entry { first, block });
        }
        let block = self.entries[self.cursor].block.clone();
        self.cursor += 1;
        self.delivered = first + block.count();
        self.release();
        Some((number, block))
    }

    /// The next entry is nulls: passes at most `limit` of them, and joins them with the nulls passed before.
    fn pass_nulls(&mut self, limit: u64) -> Block {
        let entry = &mut self.entries[self.cursor];
        let first = entry.first;
        let nulls = entry.block.split_front(limit);
        entry.first += nulls.count();
        if entry.block.is_empty() {
            self.entries.remove(self.cursor);
            self.bytes -= NULLS_OVERHEAD;
        }
        let before = self.cursor.checked_sub(1);
        let before = before.and_then(|index| self.entries.get_mut(index));
        if !before.is_some_and(|before| before.block.extend_nulls(&nulls)) {
            let block = nulls.clone();
            self.entries.insert(self.cursor, Entry { first, block });
            self.bytes += NULLS_OVERHEAD;
            self.cursor += 1;
        }
        self.delivered = first + nulls.count();
        self.nulls_delivered += nulls.count();
        self.release();
        nulls
    }

    /// What is held of `first..end`, a block or run of nulls at a time. Blocks that together have at most
    /// `bytes` are joined.
    pub(crate) fn slice(&self, first: u64, end: u64, bytes: usize) -> Option<(u64, Block)> {
        if self.loose.is_some() && first >= self.next {
            return self.slice_ahead(first, end);
        }
        let index = self.entries.partition_point(|entry| entry.end() <= first);
        let entry = self
            .entries
            .get(index)
            .filter(|entry| entry.first <= first && first < end)?;
        let part = |entry: &Entry| {
            let mut block = entry.block.clone();
            drop(block.split_front(first.saturating_sub(entry.first)));
            block.split_front(end.saturating_sub(first.max(entry.first)))
        };
        let front = part(entry);
        let level = front.level();
        let mut joined = BlockBuilder::default();
        let mut more = self
            .entries
            .iter()
            .skip(index + 1)
            .take_while(|entry| {
                entry.first < end && entry.block.is_messages() && entry.block.level() == level
            })
            .map(part)
            .peekable();
        if !front.is_messages()
            || more
                .peek()
                .is_none_or(|next| front.bytes().len() + next.bytes().len() > bytes)
        {
            return Some((first, front));
        }
        joined.extend(&front);
        for block in more {
            if joined.len() + block.bytes().len() > bytes {
                break;
            }
            joined.extend(&block);
        }
        Some((first, joined.finish()))
    }

    /// The sender says that every member holds what comes before `stable`.
    pub(crate) fn set_stable(&mut self, stable: u64) {
        self.stable = self.stable.max(stable.min(self.next));
        self.release();
    }

    fn release(&mut self) {
        while self.cursor > 0
            && let Some(entry) = self.entries.front()
            && entry.end() <= self.stable
        {
            self.bytes -= charge(&entry.block);
            self.entries.pop_front();
            self.cursor -= 1;
        }
        self.assert_in_order();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        bytes: 1 << 20,
        runs: 100,
    };

    fn messages(count: u8) -> Block {
        let mut builder = BlockBuilder::default();
        (0..count).for_each(|at| builder.push(&[at]));
        builder.finish()
    }

    #[test]
    fn however_long_a_sender_is_silent_its_nulls_are_one_entry() {
        let mut log = Log::new(1);
        for round in 0..1000 {
            assert_eq!(log.append(Block::nulls(256)), 1);
            assert!(log.entries.len() <= 2 && log.held_bytes() <= 2 * NULLS_OVERHEAD);
            if round % 3 > 0 {
                while log.deliver(100).is_some() {}
            }
        }
        while log.deliver(256).is_some() {}
        assert_eq!((log.entries.len(), log.held_bytes()), (1, NULLS_OVERHEAD));
        assert_eq!((log.delivered(), log.delivered_messages()), (256_001, 1));
        assert_eq!(log.slice(9, 12, 4096), Some((9, Block::nulls(3))));
        log.set_stable(256_001);
        assert_eq!((log.entries.len(), log.held_bytes()), (0, 0));
    }

    #[test]
    fn applications_count_messages_alone_whatever_the_pieces_in_which_they_came() {
        let mut sender = Log::new(5);
        let pieces = [messages(3), Block::nulls(253), messages(2), Block::nulls(254)];
        let numbers: Vec<u64> = pieces.iter().map(|piece| sender.append(piece.clone())).collect();
        assert_eq!(numbers, [5, 8, 8, 10]);
        assert_eq!(
            (sender.messages_end(), sender.next(), sender.nulls()),
            (263, 517, 507)
        );

        // Behind a gap, doubled, and cut elsewhere.
        let mut log = Log::new(5);
        for (first, end) in [(200, 300), (261, 400), (250, 262), (390, 517), (5, 7), (6, 210)] {
            let mut at = first;
            while let Some((place, part)) = sender.slice(at, end, 4096) {
                log.insert(place, part.clone(), ROOM);
                at = place + part.count();
            }
        }
        assert_eq!((log.next(), log.nulls(), log.messages_end()), (517, 507, 263));
        let mut seen = Vec::new();
        while let Some((number, part)) = log.deliver(7) {
            if !part.is_nulls() {
                seen.extend((number..).zip(part));
            }
        }
        let texts: Vec<_> = seen.iter().map(|(number, text)| (*number, text[0])).collect();
        assert_eq!(texts, [(5, 0), (6, 1), (7, 2), (8, 0), (9, 1)]);
        assert_eq!(log.delivered_messages(), 10);
    }
}
