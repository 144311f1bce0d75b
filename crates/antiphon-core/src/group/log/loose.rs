//! Delivery that passes gaps: what an unordered or a scoped log knows besides.
//!
//! ```text
//!      delivered        next                                         end
//!  ────────┼──────────────┼ ░░░ ██████ ░░░ ██ piece ██ ░░░ piece ░░░──┼──►  numbers
//!          │ in order     │ gap  ahead: delivered too   a message that is not whole waits
//! ```
//! Every block goes to the application once, as soon as it is here, in whatever order blocks come. It is kept
//! for others and repaired as in every log. What is delivered is a set of numbers and not a beginning. So
//! - blocks that are kept never overlap: the parts of a block that are here already are cut off first, and
//!   each number is offered for delivery when it is first held, never again (G9);
//! - a message in pieces is offered when all of its pieces are here, and all of them at once: each piece says
//!   how many come before it, so no gap outside the message matters (G33);
//! - a safe block waits for the rows of the others, by itself: what comes behind it does not wait;
//! - the runs ahead are what a member has to report to a flush, if the sender departs. Their number is
//!   bounded ([`Room::runs`]): a block that would make one more run is refused, and comes again once a gap is
//!   closed.
//!
//! In a scoped group a message waits for the message before it in its scope, and for nothing else: see
//! [`scopes`](super::scopes).
//!
//! # What it costs
//! A message costs the same as in fifo order. A block passes one more queue, which keeps its room. While
//! there is no gap, both sets are one number each.

use antiphon_wire::block::Form;

use super::sparse::Scopes;
use super::*;
use crate::group::large::MAX_PIECES;
use crate::group::reached::Reached;

impl Log {
    /// A log whose delivery passes gaps.
    pub(crate) fn loose(start: u64) -> Self {
        Self::past_gaps(start, None)
    }

    /// A log in which messages wait for the messages before them in their scope.
    pub(crate) fn scoped(start: u64) -> Self {
        Self::past_gaps(start, Some(Scopes::new(start)))
    }

    fn past_gaps(start: u64, scopes: Option<Scopes>) -> Self {
        Self {
            loose: Some(Box::new(Loose {
                scopes,
                held: Reached::new(start),
                delivered: Reached::new(start),
                ready: VecDeque::new(),
                waiting: BTreeMap::new(),
                safe_end: start,
            })),
            ..Self::new(start)
        }
    }

    /// What is held ahead of gaps, if that is delivered: first number and end of each run.
    pub(crate) fn runs_ahead(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.loose.iter().flat_map(|loose| loose.held.beyond())
    }

    /// How many runs are held ahead of gaps, if that is delivered.
    pub(crate) fn runs(&self) -> usize {
        self.loose.as_ref().map_or(0, |loose| loose.held.runs())
    }

    /// What was delivered.
    pub(crate) fn delivered_set(&self) -> Reached {
        match &self.loose {
            Some(loose) => loose.delivered.clone(),
            None => Reached::new(self.delivered),
        }
    }

    /// Whether this number is held.
    pub(crate) fn holds(&self, number: u64) -> bool {
        match &self.loose {
            Some(loose) => loose.held.contains(number),
            None => number < self.next,
        }
    }

    /// The first run of `first..end` that is not held.
    pub(crate) fn missing(&self, first: u64, end: u64) -> Option<(u64, u64)> {
        match &self.loose {
            Some(loose) => loose.held.missing(first, end),
            None => Some((first.max(self.next), end)).filter(|(first, end)| first < end),
        }
    }

    /// The number up to which rows must come so that the next safe message that waits for them may be
    /// delivered.
    pub(crate) fn waits_for_rows(&self, safe_until: u64) -> Option<u64> {
        let Some(loose) = &self.loose else {
            let waits = self.front_is_safe() && self.ready(safe_until) == 0;
            return waits.then_some(self.delivered);
        };
        let (_, end) = loose.waiting.first_key_value()?;
        (*end > safe_until).then_some(*end - 1)
    }

    /// A message that could be delivered and is not; for tests of exactly that.
    pub(crate) fn withheld(&self) -> Option<u64> {
        let loose = self.loose.as_ref()?;
        let mut at = 0;
        while let Some((first, end)) = loose.delivered.missing(at, loose.held.end()) {
            at = match (self.slice(first, end, 0), loose.held.missing(first, end)) {
                (Some((number, block)), _) => {
                    let agreed = block.form() == Form::Messages && block.level() == Level::Agreed;
                    match loose.first_deliverable(number, &block).filter(|_| agreed) {
                        Some(number) => return Some(number),
                        None => number + block.count(),
                    }
                }
                (None, Some((_, gap_end))) => gap_end,
                (None, None) => end,
            };
        }
        None
    }

    pub(super) fn insert_loose(&mut self, first: u64, mut block: Block, room: Room) -> Inserted {
        let end = first + block.count();
        let (mut at, mut outcome) = (first, Inserted::Duplicate);
        while let Some((from, to)) = self.missing(at, end) {
            drop(block.split_front(from - at));
            let part = block.split_front(to - from);
            at = to;
            outcome = self.insert_part(from, part, room);
            if outcome == Inserted::Refused {
                break;
            }
        }
        outcome
    }

    /// Takes messages, none of which is held.
    fn insert_part(&mut self, first: u64, block: Block, room: Room) -> Inserted {
        let in_order = first == self.next;
        // A flush takes what its cut has.
        let torn = !in_order && room.runs != usize::MAX && self.is_torn();
        let Some(loose) = &mut self.loose else {
            return Inserted::Refused;
        };
        let (end, charge) = (first + block.count(), charge(&block));
        let kept = if in_order { self.bytes } else { self.ahead_bytes };
        let alone = !in_order && !loose.held.contains(first - 1) && !loose.held.contains(end);
        if kept + charge > room.bytes
            || first - self.next > FAR_AHEAD
            || alone && loose.held.runs() >= room.runs
            || torn
        {
            return Inserted::Refused;
        }
        loose.held.add(first, end);
        if block.level() == Level::Safe {
            loose.safe_end = loose.safe_end.max(end);
        }
        self.end = self.end.max(end);
        if in_order {
            self.push(block.clone());
            self.take_from_ahead();
        } else {
            self.ahead_bytes += charge;
            self.ahead.insert(first, block.clone());
        }
        if self.is_scoped() {
            self.advance(first, 0);
        } else {
            self.offer(first, block);
        }
        if in_order { Inserted::Held } else { Inserted::Ahead }
    }

    /// Lets new messages be delivered, if they are whole.
    pub(super) fn offer(&mut self, first: u64, block: Block) {
        let (end, level) = (first + block.count(), block.level());
        if block.is_piece() {
            if let Some((first, end)) = self.whole_message(first, block.index()) {
                self.let_go(first, end, level);
            }
        } else if let Some(loose) = &mut self.loose {
            if level == Level::Safe {
                loose.waiting.insert(first, end);
            } else {
                loose.ready.push_back((first, block));
            }
        }
    }

    /// The numbers of the message that has this piece, if all of them are here.
    pub(super) fn whole_message(&self, number: u64, index: u64) -> Option<(u64, u64)> {
        let start = number.checked_sub(index)?;
        for index in 0..MAX_PIECES as u64 {
            let (_, piece) = self.slice(start + index, start + index + 1, 0)?;
            if piece.index() != index || !piece.is_piece() {
                return None;
            }
            if piece.form() == Form::LastPiece {
                return Some((start, start + index + 1));
            }
        }
        None
    }

    /// These messages, or pieces, may be delivered when their level allows it.
    pub(super) fn let_go(&mut self, first: u64, end: u64, level: Level) {
        if level == Level::Safe {
            if let Some(loose) = &mut self.loose {
                loose.waiting.insert(first, end);
            }
            return;
        }
        let mut at = first;
        while let Some((first, block)) = self.slice(at, end, 0) {
            at = first + block.count();
            if let Some(loose) = &mut self.loose {
                loose.ready.push_back((first, block));
            }
        }
    }

    /// The next block to deliver of the blocks that are here, wherever in the log; a safe block only if it
    /// ends before `safe_until`.
    pub(crate) fn deliver_any(&mut self, safe_until: u64) -> Option<(u64, Block)> {
        while let Some((first, end)) = self.loose.as_mut()?.take_waiting(safe_until) {
            self.let_go(first, end, Level::Agreed);
            self.released(first, end, safe_until);
        }
        let loose = self.loose.as_mut()?;
        // G33: messages that are missing before it hold nothing up.
        let next = loose.delivered.next();
        let behind = |(first, _): &(u64, Block)| *first > next;
        if planted!(WaitAtGap) && loose.ready.front().is_some_and(behind) {
            return None;
        }
        let (first, block) = loose.ready.pop_front()?;
        self.set_delivered(first, first + block.count());
        Some((first, block))
    }

    fn set_delivered(&mut self, first: u64, end: u64) {
        let Some(loose) = &mut self.loose else { return };
        assert!(
            loose.held.covers(first, end) && loose.delivered.missing(first, end) == Some((first, end))
                || planted!(),
            "G9: {first}..{end} is delivered, of which some was before, or is not here: {:?}, {:?}",
            loose.delivered,
            loose.held
        );
        loose.delivered.add(first, end);
        self.delivered = loose.delivered.next();
        while self
            .entries
            .get(self.cursor)
            .is_some_and(|entry| entry.end() <= self.delivered)
        {
            self.cursor += 1;
        }
        self.release();
    }

    /// What a cut still brings, in the order of numbers, as it is here. It counts as delivered from now on.
    /// If the cut has only a part of a message, no member delivers that message.
    pub(crate) fn deliver_cut(&mut self, cut: &Reached) -> Vec<(u64, Block)> {
        let Some(loose) = &self.loose else {
            return Vec::new();
        };
        let mut rest = Vec::new();
        let mut scopes = loose
            .scopes
            .as_ref()
            .map(|scopes| scopes.at_cut(&loose.delivered));
        let mut at = loose.delivered.next();
        while let Some((first, end)) = loose.delivered.missing(at, cut.end()) {
            at = first;
            // What is missing here and not in the cut is passed over.
            let beginning = cut.missing(first, end);
            let until = match beginning {
                Some((gap, gap_end)) if gap == first => {
                    at = gap_end;
                    continue;
                }
                Some((gap, _)) => gap,
                None => end,
            };
            let Some((_, block)) = self.slice(first, until, 0) else {
                at += 1;
                continue;
            };
            at += block.count();
            if !block.is_piece() {
                match &mut scopes {
                    Some(scopes) => rest.extend(scopes.of_block(first, block)),
                    None => rest.push((first, block)),
                }
            } else if block.index() == 0
                && let Some((_, last)) = self
                    .whole_message(first, 0)
                    .filter(|(from, to)| cut.covers(*from, *to))
            {
                let follows = scopes
                    .as_mut()
                    .is_none_or(|scopes| scopes.of_pieces(first, last, &block, block.level()));
                let pieces = (first..last).filter_map(|number| self.slice(number, last, 0));
                rest.extend(pieces.filter(|_| follows));
                at = last;
            } else if planted!(DeliverPartOfCut) {
                rest.push((first, block));
            }
        }
        for (first, block) in &rest {
            self.set_delivered(*first, first + block.count());
        }
        rest
    }

    /// What is held of `first..end` ahead of a gap.
    pub(super) fn slice_ahead(&self, first: u64, end: u64) -> Option<(u64, Block)> {
        let (at, block) = self.ahead.range(..=first).next_back()?;
        if at + block.count() <= first || first >= end {
            return None;
        }
        let mut block = block.clone();
        drop(block.split_front(first - at));
        Some((first, block.split_front(end - first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_wire::block::PIECE_BYTES;

    const ROOM: Room = Room {
        bytes: 4 << 20,
        runs: 3,
    };

    fn messages(from: u8, to: u8, level: Level) -> Block {
        let mut builder = BlockBuilder::default();
        builder.set_level(level);
        (from..to).for_each(|at| builder.push(&[at]));
        builder.finish()
    }

    fn agreed(from: u8, to: u8) -> Block {
        messages(from, to, Level::Agreed)
    }

    fn delivered(log: &mut Log, safe_until: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some((first, block)) = log.deliver_any(safe_until) {
            for (number, payload) in (first..).zip(block) {
                assert_eq!(number, u64::from(payload[0]));
                all.push(payload[0]);
            }
        }
        all
    }

    #[test]
    fn what_is_behind_a_gap_is_delivered_at_once_and_what_closes_the_gap_brings_only_itself() {
        let mut log = Log::loose(1);
        assert_eq!(log.insert(1, agreed(1, 4), ROOM), Inserted::Held);
        assert_eq!(log.insert(6, agreed(6, 9), ROOM), Inserted::Ahead);
        assert_eq!(delivered(&mut log, 0), [1, 2, 3, 6, 7, 8]);
        assert_eq!((log.next(), log.delivered()), (4, 4));
        assert_eq!(log.gaps(0).collect::<Vec<_>>(), [(4, 6)]);
        // A repair cut elsewhere, which overlaps both sides.
        assert_eq!(log.insert(3, agreed(3, 11), ROOM), Inserted::Held);
        assert_eq!(delivered(&mut log, 0), [4, 5, 9, 10]);
        assert_eq!((log.next(), log.delivered()), (11, 11));
        assert_eq!(log.insert(6, agreed(6, 9), ROOM), Inserted::Duplicate);
        assert_eq!(delivered(&mut log, 0), [] as [u8; 0]);
        // All is kept for others until all have it.
        assert!(log.held_bytes() > 0);
        log.set_stable(11);
        assert_eq!(log.held_bytes(), 0);
    }

    #[test]
    fn a_safe_block_waits_by_itself() {
        let mut log = Log::loose(1);
        log.insert(1, messages(1, 3, Level::Safe), ROOM);
        log.insert(3, agreed(3, 5), ROOM);
        log.insert(8, messages(8, 9, Level::Safe), ROOM);
        assert_eq!(delivered(&mut log, 2), [3, 4], "one of the two is not enough");
        assert_eq!(log.waits_for_rows(2), Some(2));
        assert!(log.has_undelivered_safe());
        assert_eq!(delivered(&mut log, 3), [1, 2]);
        assert_eq!(delivered(&mut log, 9), [8]);
        assert_eq!(log.waits_for_rows(9), None);
    }

    #[test]
    fn more_runs_than_can_be_reported_are_refused_and_one_that_touches_another_is_not() {
        let mut log = Log::loose(1);
        for at in [3, 5, 7] {
            assert_eq!(
                log.insert(at, agreed(at as u8, at as u8 + 1), ROOM),
                Inserted::Ahead
            );
        }
        assert_eq!(log.insert(9, agreed(9, 10), ROOM), Inserted::Refused);
        assert_eq!(log.insert(8, agreed(8, 10), ROOM), Inserted::Ahead);
        assert_eq!(log.insert(1, agreed(1, 3), ROOM), Inserted::Held);
        assert_eq!(log.insert(12, agreed(12, 13), ROOM), Inserted::Ahead);
        assert_eq!(delivered(&mut log, 0), [3, 5, 7, 8, 9, 1, 2, 12]);
    }

    #[test]
    fn a_message_in_pieces_is_delivered_whole_also_behind_a_gap() {
        let payload = bytes::Bytes::from(vec![7; 2 * PIECE_BYTES + 10]);
        let pieces: Vec<Block> = Block::large(payload).pieces().collect();
        let mut log = Log::loose(1);
        log.insert(5, pieces[1].clone(), ROOM);
        log.insert(6, pieces[2].clone(), ROOM);
        assert_eq!(log.deliver_any(0), None);
        log.insert(7, agreed(7, 8), ROOM);
        assert_eq!(log.deliver_any(0), Some((7, agreed(7, 8))));
        log.insert(4, pieces[0].clone(), ROOM);
        let numbers: Vec<u64> = std::iter::from_fn(|| log.deliver_any(0))
            .map(|(number, _)| number)
            .collect();
        assert_eq!(numbers, [4, 5, 6]);
        assert_eq!(log.delivered_set().beyond().collect::<Vec<_>>(), [(4, 8)]);
    }

    #[test]
    fn a_cut_brings_what_it_names_and_no_part_of_a_message() {
        let payload = bytes::Bytes::from(vec![7; PIECE_BYTES + 10]);
        let pieces: Vec<Block> = Block::large(payload).pieces().collect();
        let mut log = Log::loose(1);
        log.insert(1, agreed(1, 3), ROOM);
        assert_eq!(delivered(&mut log, 0), [1, 2]);
        log.insert(3, messages(3, 6, Level::Safe), ROOM);
        log.insert(8, agreed(8, 12), ROOM);
        log.insert(20, pieces[0].clone(), ROOM);
        log.insert(21, pieces[1].clone(), ROOM);
        let mut cut = Reached::new(5);
        cut.add(9, 11);
        cut.add(20, 21);
        let numbers = |rest: Vec<(u64, Block)>| -> Vec<u64> {
            rest.into_iter()
                .flat_map(|(first, block)| first..first + block.count())
                .collect()
        };
        assert_eq!(numbers(log.clone().deliver_cut(&cut)), [3, 4, 9, 10]);
        cut.add(20, 22);
        assert_eq!(numbers(log.deliver_cut(&cut)), [3, 4, 9, 10, 20, 21]);
        assert_eq!(numbers(log.deliver_cut(&cut)), [] as [u64; 0]);
    }
}
