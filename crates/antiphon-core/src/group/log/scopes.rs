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
//! - released messages are delivered in the order of release, so a scope is delivered in its order (G34). A
//!   safe message is delivered when rows allow it, and the messages that follow it in its scope after it.
//!
//! A message names a message with a smaller number. So one walk over the messages held and not released, from
//! the first new number on, releases all that can be released. Without a gap that is a walk over the new
//! block. A block is delivered in as few parts as that allows.
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
//! wrong. A log also keeps a set of released numbers, in runs. If a gap holds up one of many scopes, there
//! are as many runs as that scope has messages. Past [`MAX_RUNS`] of them nothing more is taken behind a gap.
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
        tagged.find_map(|(number, tag)| scopes.may(number, tag, number).then_some(number))
    }
}

impl Log {
    pub(super) fn is_scoped(&self) -> bool {
        self.loose.as_ref().is_some_and(|loose| loose.scopes.is_some())
    }

    /// Whether too much waits behind gaps of scopes for more to be taken there.
    pub(super) fn is_torn(&self) -> bool {
        let scopes = self.loose.as_ref().and_then(|loose| loose.scopes.as_ref());
        scopes.is_some_and(|scopes| scopes.released.runs() > MAX_RUNS)
    }

    /// Releases the messages from this number on that can be released.
    pub(super) fn advance(&mut self, from: u64) {
        let mut at = from;
        while let Some((first, end)) = self.unqueued(at) {
            at = first;
            let Some((_, block)) = self.slice(first, end, 0) else {
                return;
            };
            let (count, level) = (block.count(), block.level());
            at += count;
            let parts = if block.form() == Form::Messages {
                self.release_block(first, block)
            } else {
                // The first piece has the tag.
                let whole = self.whole_message(first, block.index());
                let whole = whole.filter(|(start, end)| self.release_pieces(*start, *end, level));
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

    fn release_block(&mut self, first: u64, block: Block) -> Vec<(u64, u64)> {
        let level = block.level();
        let Some(scopes) = self.loose.as_mut().and_then(|loose| loose.scopes.as_mut()) else {
            return Vec::new();
        };
        let released = (level == Level::Safe).then(|| scopes.released.clone());
        let parts = scopes.of_block(first, block);
        let parts: Vec<(u64, u64)> = parts
            .into_iter()
            .map(|(first, block)| (first, first + block.count()))
            .collect();
        parts
            .iter()
            .for_each(|(first, end)| scopes.queued.add(*first, *end));
        // Safe ones are released when rows allow it.
        if let Some(released) = released {
            scopes.released = released;
        }
        parts
    }

    fn release_pieces(&mut self, first: u64, end: u64, level: Level) -> bool {
        let piece = self.slice(first, end, 0);
        let Some(scopes) = self.loose.as_mut().and_then(|loose| loose.scopes.as_mut()) else {
            return false;
        };
        let Some((_, piece)) = piece else { return false };
        let released = (level == Level::Safe).then(|| scopes.released.clone());
        let may = scopes.of_pieces(first, end, &piece);
        if may {
            scopes.queued.add(first, end);
        }
        if let Some(released) = released {
            scopes.released = released;
        }
        may
    }

    /// Safe messages were let go.
    pub(super) fn released(&mut self, first: u64, end: u64) {
        if let Some(scopes) = self.loose.as_mut().and_then(|loose| loose.scopes.as_mut()) {
            scopes.released.add(first, end);
            self.advance(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Tagger;
    use antiphon_wire::BlockBuilder;

    const ROOM: Room = Room {
        bytes: 4 << 20,
        runs: 1000,
    };

    /// A block of messages of these scopes, whose payload is the scope.
    fn block(tagger: &mut Tagger, scopes: &[u32]) -> Block {
        let mut builder = BlockBuilder::default();
        for scope in scopes {
            builder.push_tagged(tagger.tag(*scope), &scope.to_le_bytes());
            tagger.took(*scope, 1);
        }
        builder.finish()
    }

    fn delivered(log: &mut Log) -> Vec<u64> {
        let blocks = std::iter::from_fn(|| log.deliver_any(0));
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
