//! Order within a scope: a message waits for the message before it in its scope, and for nothing else.
//!
//! ```text
//!  numbers     5     6     7     8     9    10    11
//!  scope       A     B     A     C     B     A     C        7 comes after 5, 9 after 6, 10 after 7, 11 after 8
//!  is here     x     ·     x     x     x     x     x        6 is lost: only 9 waits
//! ```
//! Each message has a [tag]: its scope, and how many numbers back the sender's previous message of that scope
//! is. A sender finds that out where it accepts messages, in the order in which it numbers them. So the
//! distance between two of them is the same wherever they are put into a log, also if a view changes in
//! between. The rule is only this:
//!
//! - a message is **released** when the message that it names is released, is of an earlier view, or does not
//!   exist (all that its sender sent in an earlier view is delivered with that view, since the sender took
//!   part in its flush);
//! - released messages are delivered in the order of release, so a scope is delivered in its order (G34);
//! - a safe message is released when, besides, rows allow it. Until then it is **queued**. It may be queued
//!   as soon as the message that it names is queued or released. An agreed message is queued and released at
//!   once.
//!
//! A message names a message with a smaller number. So one walk over the messages held and not queued, from
//! the first new number on, queues all that can be queued. Without a gap that is a walk over the new block. A
//! block is delivered in as few parts as that allows.
//!
//! # Safe messages in their order
//! The queue of safe messages is emptied by number alone: the one with the smallest number is released first,
//! and while rows do not allow it, none is. Of a safe message that is queued, the message that it names is
//! released already or waits in the same queue with a smaller number. So it is released first, in whatever
//! order rows come. An agreed message does not wait for rows, so it never stands in that queue: it is looked
//! at when the message that it names is released.
//!
//! When rows come, the walk and the queue go forward together, in the order of numbers: a safe message that
//! rows allow is released before the walk looks at what comes behind it. So each message is looked at once,
//! and not once for each message released before it.
//!
//! # At the cut (R15)
//! Of a sender that departed the cut has the messages that any survivor holds, as in an unordered group.
//! Every member walks over them in the order of numbers and delivers what it may by the rule above. The rest
//! names something that no survivor has. All drop it: per scope, what is delivered is a prefix. If a survivor
//! has delivered a message, it has released it. So it holds the predecessors of the message, and the cut has
//! them.
//!
//! # What it costs
//! Four bytes for the scope, and one or two for the way back, per message; one walk over them at each
//! receiver. A sender that uses more scopes than it remembers (`outbox/tagger.rs`) says "after all" for the
//! scopes that it has forgotten. Such a message waits for more than it needs to, but the order is never
//! wrong. A log also keeps what is queued and what is released as sets of numbers, in runs. If a gap holds up
//! one of many scopes, there are as many runs as that scope has messages. Past [`MAX_RUNS`] of them nothing
//! more is taken behind a gap.
//!
//! [tag]: antiphon_wire::block::Tag

use antiphon_wire::block::Form;

use super::sparse::{Loose, MAX_RUNS};
use super::*;

impl Loose {
    /// The first message in a block that is held and not delivered and can be delivered: it lacks nothing.
    pub(super) fn first_deliverable(&self, first: u64, block: &Block) -> Option<u64> {
        let Some(scopes) = &self.scopes else {
            return Some(first);
        };
        let scopes = scopes.at_cut(&self.delivered);
        let mut tagged = (first..).zip(block.tags());
        tagged.find_map(|(number, tag)| scopes.may(number, tag, number, block.level()).then_some(number))
    }
}

impl Log {
    pub(super) fn is_scoped(&self) -> bool {
        self.loose.as_ref().is_some_and(|loose| loose.scopes.is_some())
    }

    /// Whether too much waits behind gaps of scopes for more to be taken there.
    pub(super) fn is_torn(&self) -> bool {
        let scopes = self.loose.as_ref().and_then(|loose| loose.scopes.as_ref());
        scopes.is_some_and(|scopes| scopes.queued.runs().max(scopes.released.runs()) > MAX_RUNS)
    }

    /// Queues the messages from this number on that can be queued, up to a safe message that rows allow: that
    /// one is let go before what follows it is looked at.
    pub(super) fn advance(&mut self, from: u64, safe_until: u64) {
        let mut at = from;
        while let Some((first, end)) = self.unqueued(at) {
            let allowed = self
                .loose
                .as_ref()
                .and_then(|loose| loose.first_allowed(safe_until));
            if allowed.is_some_and(|allowed| allowed < first) {
                return;
            }
            at = first;
            #[cfg(test)]
            tests::VISITS.with(|visits| visits.set(visits.get() + 1));
            let Some((_, block)) = self.slice(first, end, 0) else {
                return;
            };
            let (count, level) = (block.count(), block.level());
            at += count;
            let parts = if block.form() == Form::Messages {
                self.queue_block(first, block)
            } else {
                // The first piece has the tag.
                let whole = self.whole_message(first, block.index());
                let whole = whole.filter(|(start, end)| self.queue_pieces(*start, *end, level));
                whole.into_iter().collect()
            };
            for (first, end) in parts {
                self.let_go(first, end, level);
            }
        }
    }

    /// The first run from this number on that is held and not queued.
    fn unqueued(&self, mut at: u64) -> Option<(u64, u64)> {
        let loose = self.loose.as_ref()?;
        let queued = &loose.scopes.as_ref()?.queued;
        loop {
            let (first, end) = queued.missing(at, loose.held.end())?;
            match loose.held.missing(first, end) {
                Some((gap, gap_end)) if gap == first => at = gap_end,
                Some((gap, _)) => return Some((first, gap)),
                None => return Some((first, end)),
            }
        }
    }

    fn queue_block(&mut self, first: u64, block: Block) -> Vec<(u64, u64)> {
        let Some(scopes) = self.loose.as_mut().and_then(|loose| loose.scopes.as_mut()) else {
            return Vec::new();
        };
        let parts = scopes.of_block(first, block).into_iter();
        parts
            .map(|(first, block)| (first, first + block.count()))
            .collect()
    }

    fn queue_pieces(&mut self, first: u64, end: u64, level: Level) -> bool {
        let piece = self.slice(first, end, 0);
        let Some(scopes) = self.loose.as_mut().and_then(|loose| loose.scopes.as_mut()) else {
            return false;
        };
        piece.is_some_and(|(_, piece)| scopes.of_pieces(first, end, &piece, level))
    }

    /// Safe messages were let go; rows allow safe messages up to this number.
    pub(super) fn released(&mut self, first: u64, end: u64, safe_until: u64) {
        if let Some(scopes) = self.loose.as_mut().and_then(|loose| loose.scopes.as_mut()) {
            scopes.released.add(first, end);
            self.advance(end, safe_until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    use crate::outbox::Tagger;
    use antiphon_wire::BlockBuilder;
    use antiphon_wire::block::{After, Tag};

    const ROOM: Room = Room {
        bytes: 4 << 20,
        runs: 1000,
    };

    std::thread_local! {
        /// How many blocks walks have looked at.
        pub(super) static VISITS: Cell<usize> = const { Cell::new(0) };
    }

    /// A block of messages of these scopes, whose payload is the scope.
    fn block(tagger: &mut Tagger, scopes: &[u32]) -> Block {
        block_of(tagger, scopes, Level::Agreed)
    }

    fn block_of(tagger: &mut Tagger, scopes: &[u32], level: Level) -> Block {
        let mut builder = BlockBuilder::default();
        builder.set_level(level);
        for scope in scopes {
            builder.push_tagged(tagger.tag(*scope), &scope.to_le_bytes());
            tagger.took(*scope, 1);
        }
        builder.finish()
    }

    fn delivered(log: &mut Log) -> Vec<u64> {
        delivered_until(log, 0)
    }

    fn delivered_until(log: &mut Log, safe_until: u64) -> Vec<u64> {
        let blocks = std::iter::from_fn(|| log.deliver_any(safe_until));
        blocks
            .flat_map(|(first, block)| first..first + block.count())
            .collect()
    }

    #[test]
    fn without_a_gap_a_block_is_delivered_as_it_came() {
        let (mut log, mut tagger) = (Log::scoped(7), Tagger::default());
        let one = block(&mut tagger, &[1, 2, 1, 3, 1, 2]);
        log.insert(7, one.clone(), ROOM);
        assert_eq!(log.deliver_any(0), Some((7, one)));
    }

    #[test]
    fn whatever_the_order_of_arrival_each_scope_is_delivered_in_its_order_and_all_is_in_the_end() {
        let mut random = crate::random::Random::new([5, 6, 7, 8]);
        for _ in 0..300 {
            let mut tagger = Tagger::default();
            let mut blocks = Vec::new();
            let mut scopes = Vec::new();
            for _ in 0..1 + random.below(12) {
                let first = 1 + scopes.len() as u64;
                let of_block: Vec<u32> = (0..1 + random.below(5)).map(|_| random.below(3) as u32).collect();
                if random.below(8) == 0 {
                    tagger.forget();
                }
                blocks.push((first, block(&mut tagger, &of_block)));
                scopes.extend(of_block);
            }
            let mut log = Log::scoped(1);
            let mut seen = Vec::new();
            while !blocks.is_empty() {
                let at = random.below(blocks.len() as u64) as usize;
                let (first, block) = blocks.swap_remove(at);
                log.insert(first, block, ROOM);
                seen.extend(delivered(&mut log));
                assert_eq!(log.withheld(), None);
            }
            for scope in 0..3 {
                let of_scope: Vec<_> = seen
                    .iter()
                    .filter(|number| scopes[**number as usize - 1] == scope)
                    .collect();
                assert!(of_scope.is_sorted(), "{scopes:?}: {seen:?}");
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(1..=scopes.len() as u64));
        }
    }

    /// What the rule lets be delivered of these messages: which are here, and how far rows allow safe ones.
    fn deliverable(all: &[(Tag, Level)], here: &[bool], safe_until: u64) -> Vec<u64> {
        let mut can: Vec<bool> = Vec::new();
        for (at, (tag, level)) in all.iter().enumerate() {
            let follows = match tag.after {
                After::Nothing => true,
                After::One(back) => at.checked_sub(back as usize).is_none_or(|before| can[before]),
                After::All(back) => at
                    .checked_sub(back as usize)
                    .is_none_or(|before| can[..=before].iter().all(|can| *can)),
            };
            let allowed = *level == Level::Agreed || (at as u64) + 1 < safe_until;
            can.push(here[at] && follows && allowed);
        }
        (1..)
            .zip(can)
            .filter_map(|(number, can)| can.then_some(number))
            .collect()
    }

    #[test]
    fn safe_and_agreed_messages_keep_the_order_of_their_scope_however_rows_come() {
        let mut random = crate::random::Random::new([1, 6, 1, 8]);
        for _ in 0..500 {
            let mut tagger = Tagger::default();
            let (mut blocks, mut scopes, mut all) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..1 + random.below(20) {
                if random.below(12) == 0 {
                    tagger.forget();
                }
                let first = 1 + scopes.len() as u64;
                // Rows allow a safe block as a whole.
                let (level, count) = match random.below(2) {
                    0 => (Level::Safe, 1),
                    _ => (Level::Agreed, 1 + random.below(3)),
                };
                let of_block: Vec<u32> = (0..count).map(|_| random.below(3) as u32).collect();
                let block = block_of(&mut tagger, &of_block, level);
                all.extend(block.tags().map(|tag| (tag, level)));
                blocks.push((first, block));
                scopes.extend(of_block);
            }
            let end = scopes.len() as u64 + 1;
            let (mut log, mut here) = (Log::scoped(1), vec![false; scopes.len()]);
            let (mut seen, mut safe_until) = (Vec::new(), 0);
            while seen.len() < scopes.len() {
                if !blocks.is_empty() && random.below(3) > 0 {
                    let at = random.below(blocks.len() as u64) as usize;
                    let (first, block) = blocks.swap_remove(at);
                    here[first as usize - 1..][..block.count() as usize].fill(true);
                    log.insert(first, block, ROOM);
                } else if random.below(2) == 0 {
                    safe_until = end.min(safe_until + random.below(8));
                }
                if random.below(4) > 0 {
                    seen.extend(delivered_until(&mut log, safe_until));
                    let mut sorted = seen.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, deliverable(&all, &here, safe_until), "{all:?}");
                }
            }
            for scope in 0..3 {
                let of_scope = seen
                    .iter()
                    .filter(|number| scopes[**number as usize - 1] == scope);
                assert!(of_scope.is_sorted(), "{scopes:?}: {seen:?}");
            }
        }
    }

    /// How many blocks are looked at when rows allow so many at once, each of one message of one scope.
    fn visits(count: u64, level: fn(u64) -> Level) -> usize {
        let (mut log, mut tagger) = (Log::scoped(1), Tagger::default());
        VISITS.set(0);
        for number in 1..=count {
            log.insert(number, block_of(&mut tagger, &[7], level(number)), ROOM);
        }
        assert!(delivered_until(&mut log, count + 1).into_iter().eq(1..=count));
        VISITS.get()
    }

    #[test]
    fn when_rows_come_a_block_is_looked_at_once_and_not_once_for_each_block_before_it() {
        let mixed = |number| match number % 2 {
            0 => Level::Agreed,
            _ => Level::Safe,
        };
        for count in [500, 1000] {
            assert_eq!(visits(count, |_| Level::Safe), count as usize);
            // What follows a safe message is looked at when it comes and when that is released.
            let most = 2 * count as usize;
            let mixed = visits(count, mixed);
            assert!(mixed <= most, "{mixed} for {count}");
        }
    }

    #[test]
    fn safe_messages_that_wait_for_rows_between_others_behind_a_gap_are_bounded_too() {
        let (mut log, mut tagger) = (Log::scoped(1), Tagger::default());
        let room = Room {
            bytes: 64 << 20,
            ..ROOM
        };
        let _lost = block(&mut tagger, &[1]);
        for number in 2.. {
            // Those of the one scope are behind the gap, and those of the other one wait for rows.
            let block = block_of(&mut tagger, &[number as u32 % 2], Level::Safe);
            if log.insert(number, block, room) == Inserted::Refused {
                break;
            }
            assert!(number < 3 * MAX_RUNS as u64);
        }
        let scopes = log
            .loose
            .as_ref()
            .and_then(|loose| loose.scopes.as_ref())
            .unwrap();
        assert_eq!(scopes.queued.runs(), MAX_RUNS + 1);
    }

    #[test]
    fn a_log_that_takes_nothing_more_behind_gaps_takes_what_the_cut_of_a_flush_has() {
        let (mut log, mut tagger) = (Log::scoped(1), Tagger::default());
        let room = Room {
            bytes: 64 << 20,
            ..ROOM
        };
        let _lost = block(&mut tagger, &[1]);
        let mut number: u64 = 2;
        // Each second message is behind the gap, and the others are delivered.
        while log.insert(number, block(&mut tagger, &[number as u32 % 2]), room) != Inserted::Refused {
            number += 1;
            assert!(number < 3 * MAX_RUNS as u64);
        }
        assert!(log.is_torn());
        let behind = block(&mut tagger, &[7]);
        assert_eq!(log.insert(number + 1, behind.clone(), room), Inserted::Refused);
        let of_a_flush = Room {
            runs: usize::MAX,
            ..room
        };
        assert_eq!(log.insert(number + 1, behind, of_a_flush), Inserted::Ahead);
        assert!(log.holds(number + 1) && !log.holds(number));
    }

    #[test]
    fn a_message_in_a_batch_costs_eight_bytes_at_most() {
        let mut tagger = Tagger::default();
        let mut random = crate::random::Random::new([1, 2, 3, 4]);
        let mut builder = BlockBuilder::default();
        // A thousand scopes in turn, by numbers that names are made into.
        let scopes: Vec<u32> = (0..1000).map(|_| random.next_u64() as u32).collect();
        let payload = [7; 20];
        let mut count = 0;
        for round in 0.. {
            let scope = scopes[round % scopes.len()];
            let tag = tagger.tag(scope);
            if !builder.has_room(payload.len() + tag.cost()) {
                break;
            }
            builder.push_tagged(tag, &payload);
            tagger.took(scope, 1);
            count += 1;
        }
        assert!(
            builder.len() <= count * (payload.len() + 8),
            "{} bytes for {count}",
            builder.len()
        );
    }
}
