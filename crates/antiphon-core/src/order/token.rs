//! The token: the member that has it numbers its own messages, and passes it on.
//!
//! ```text
//!   a ──token──► b ──token──► c ──token──► d ──token──► a …            in the order of the view's ranks
//!                │ "the next 12 positions are mine" ──► all            broadcast, with b's messages where it has some
//! ```
//! Messages go to all as soon as credit admits them; only their **positions** wait for the token. The token
//! says which position is next. The member that has it gives its messages the next positions, tells all
//! (`Orders`), and passes the token on in the same batch: no member waits until a burst has been sent. All
//! deliver by position, as with the sequencer. The [records](super::Records) are the same: runs of (sender,
//! count).
//!
//! # The token carries what it has seen
//! The token has all runs since its last visit to the member where it is: each run travels with it once
//! around. So a member that has missed an `Orders` record gets it from the token. No member asks for records,
//! and the member that has the token knows the whole order. When the token comes back to a member, the runs
//! from before it last left that member have gone around, and all members hold them: the token's first
//! position is the stable mark.
//!
//! # At rest
//! A member keeps the token if the token carries nothing, if the member has nothing to number, and if it
//! holds no message of others without a position. Then no member sends anything. It tells the member before
//! it (`TokenHeld`), so that this one does not send the token again. Messages end the rest. The holder
//! numbers its own messages at once; for messages of others it passes the token on. (Totem has a record of
//! its own for that; here messages reach the holder anyway.) The token comes to rest where its last run was
//! made. So one member that sends alone numbers its messages without waiting.
//!
//! # Loss
//! A member that has passed the token on keeps a copy. It sends the copy again unless it hears of the token:
//! from the token itself, or from a `TokenHeld`. Every pass has a higher **hop**. A token whose hop is not
//! above the last one seen is a copy, and a member only answers it with `TokenHeld` (else there were two
//! tokens, and two messages at one position). A token that died with a member is not made again. Without it
//! nothing is numbered until the node view without the dead member ends the group's view. The next group view
//! begins with a token of its own, at its first member. A token of another view is void by its view id (R16).
//!
//! # At the cut
//! As with the sequencer: the cut has the longest prefix of the order that any survivor holds, and the walk
//! ends at the first message that is not in the cut.
//!
//! # Which member dies when
//! | which | when | then |
//! |---|---|---|
//! | the holder | having numbered, before it told any member | its messages have no position at any member: void (they are the dead's) |
//! | the holder | when some were told | the longest order that any survivor holds counts, for all |
//! | the next member | before it has the token | its predecessor sends it in vain until the node view without it |
//! | any member | at rest | the token is where it is, or gone; the next view begins with another |
//!
//! # Invariants
//! - One member at most may number: the one with the highest hop, until it has passed the token on.
//! - A member numbers its own messages only, in their order.
//! - Positions are given once: the token's next position is above all that were ever given in the view.

use std::time::Duration;

use antiphon_wire::group::Run;

use super::records::{MAX_COUNT, Records};
use super::word::Passed;
use crate::Time;
use crate::group::log::Log;
use crate::order::interface::TotalOrder;
use crate::order::word::{Heard, Word};

/// What became of a token that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// It is here now.
    Here,
    /// It was here before.
    Copy,
    /// It makes no sense.
    Refused,
}

/// Where the token is, as far as this member knows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The token is here. `owes_word`: the member before should be told that it stays.
    Here { owes_word: bool },
    /// Passed on, and not heard of since.
    Passed(Passed),
    /// With others.
    Away,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    me: usize,
    records: Records,
    place: Place,
    /// The highest hop seen.
    hop: u64,
    /// What was numbered and not told to all yet.
    fresh: Option<(u64, u32)>,
    /// The next position when the token left this member last. When it is here again, the positions before
    /// this have gone around.
    left_at: u64,
    /// The first position that the token carries.
    carried: u64,
    /// When this member sends the token to the next member again, if it hears nothing of it.
    again_at: Option<Time>,
}

impl Token {
    /// `start` is the first message number per rank. The first member begins with the token.
    pub(super) fn new(start: &[u64], me: usize, window: usize) -> Self {
        Self {
            me,
            records: Records::new(start, window),
            place: if me == 0 {
                Place::Here { owes_word: false }
            } else {
                Place::Away
            },
            hop: 0,
            fresh: None,
            left_at: 0,
            carried: 0,
            again_at: None,
        }
    }

    fn members(&self) -> usize {
        self.records.members()
    }

    /// The member that passes the token to this one.
    fn before(&self) -> usize {
        (self.me + self.members() - 1) % self.members()
    }

    /// The member to which this one passes the token.
    fn after(&self) -> usize {
        (self.me + 1) % self.members()
    }

    /// Gives positions to this member's messages, if the token is here. True if there were any.
    fn number(&mut self, logs: &[Log]) -> bool {
        // The member that had the token before may say that this member has numbered messages that it never
        // sent.
        let waiting = logs[self.me]
            .next()
            .saturating_sub(self.records.numbered(self.me));
        if waiting == 0 || !matches!(self.place, Place::Here { .. }) {
            return false;
        }
        // Messages for which a run has no room wait for the token's next visit.
        let count = waiting.min(u64::from(MAX_COUNT - self.fresh.map_or(0, |(_, count)| count))) as u32;
        let first = self.records.next_position();
        // Where the token is, no other member gives positions.
        assert!(
            self.fresh
                .is_none_or(|(before, count)| before + u64::from(count) == first)
                || planted!(),
            "R16: {count} messages are numbered from {first} on, behind {:?}",
            self.fresh
        );
        if count == 0 {
            return false;
        }
        self.records.append(Run {
            sender: self.me as u16,
            count,
        });
        self.fresh.get_or_insert((first, 0)).1 += count;
        true
    }

    /// What was numbered and not told to all yet, once.
    fn take_fresh(&mut self) -> Option<(u64, Run)> {
        let (first, count) = self.fresh.take()?;
        let sender = self.me as u16;
        Some((first, Run { sender, count }))
    }

    /// Runs of another member arrived. False if they cannot be right.
    fn told(&mut self, from: usize, first: u64, runs: &[Run]) -> bool {
        let own = runs.iter().all(|run| usize::from(run.sender) == from);
        let length: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        let here = matches!(self.place, Place::Here { .. });
        // Where the token is, no other member gives positions.
        if !own || here && first.saturating_add(length) > self.records.next_position() {
            return false;
        }
        if !self.records.insert(first, runs) {
            return false;
        }
        if matches!(self.place, Place::Passed(_)) && first >= self.left_at && length > 0 {
            self.place = Place::Away;
        }
        true
    }

    /// The token arrived.
    fn take(&mut self, passed: &Passed) -> Taken {
        if passed.hop <= self.hop && !planted!(TakeTokenTwice) {
            return Taken::Copy;
        }
        // There is one token: it is not here, and since it was here each other member has passed it on once.
        let here = matches!(self.place, Place::Here { .. }) && !planted!(TakeTokenTwice);
        let hops = passed.hop.saturating_sub(self.hop);
        if here || hops >= self.members() as u64 || passed.first > self.records.next_position() {
            return Taken::Refused;
        }
        if !self.records.insert(passed.first, &passed.runs) {
            return Taken::Refused;
        }
        self.hop = self.hop.max(passed.hop);
        self.place = Place::Here { owes_word: true };
        // The member before may say that all hold less than is known here, and runs that all hold are gone.
        self.carried = passed.first.max(self.left_at).max(self.records.stable());
        self.records.set_stable(self.carried);
        Taken::Here
    }

    /// Passes the token on, if it is here and any member waits for it or for what it carries.
    fn pass(&mut self, logs: &[Log]) -> Option<Passed> {
        let waits = |(rank, log): (usize, &Log)| log.next() > self.records.numbered(rank);
        let wanted = self.carried < self.records.next_position() || logs.iter().enumerate().any(waits);
        if !wanted || !matches!(self.place, Place::Here { .. }) || logs.len() == 1 {
            return None;
        }
        let (first, runs) = self
            .records
            .slice(self.carried)
            .unwrap_or((self.records.next_position(), Vec::new()));
        let next = self.records.next_position();
        assert!(
            self.left_at <= self.carried && self.carried <= next && first <= self.carried || planted!(),
            "R16: the token left at {}, is to carry all from {} on, carries runs from {first} on; next is {next}",
            self.left_at,
            self.carried
        );
        self.hop += 1;
        self.left_at = next;
        let passed = Passed {
            hop: self.hop,
            first,
            runs,
        };
        self.place = Place::Passed(passed.clone());
        Some(passed)
    }

    /// The hop of a token that stays here, if the member that passed it on has not been told so.
    fn word_owed(&mut self) -> Option<u64> {
        let Place::Here { owes_word } = &mut self.place else {
            return None;
        };
        std::mem::take(owes_word).then_some(self.hop)
    }

    /// The next member has had the token of this hop.
    fn arrived(&mut self, hop: u64) {
        if matches!(&self.place, Place::Passed(passed) if passed.hop <= hop) {
            self.place = Place::Away;
        }
    }

    /// What was passed on and not heard of since.
    fn unheard(&self) -> Option<&Passed> {
        match &self.place {
            Place::Passed(passed) => Some(passed),
            Place::Here { .. } | Place::Away => None,
        }
    }
}

impl TotalOrder for Token {
    type Walk = Records;

    fn walk(&self) -> &Records {
        &self.records
    }

    fn walk_mut(&mut self) -> &mut Records {
        &mut self.records
    }

    fn records(&self) -> Option<&Records> {
        Some(&self.records)
    }

    fn records_mut(&mut self) -> Option<&mut Records> {
        Some(&mut self.records)
    }

    fn end_batch(&mut self, logs: &mut [Log]) -> bool {
        self.number(logs)
    }

    fn tell_all(&mut self) -> Option<Word> {
        let (first, run) = self.take_fresh()?;
        Some(Word::Orders {
            first,
            stable: self.records.stable(),
            ask: false,
            runs: vec![run],
        })
    }

    /// Passes the token on if any member waits for it; otherwise it stays, and the member before is told.
    fn tell_one(&mut self, logs: &[Log], now: Time, retransmit: Duration) -> Option<(usize, Word)> {
        if let Some(passed) = self.pass(logs) {
            self.again_at = Some(now + retransmit * 2);
            return Some((self.after(), Word::Token(passed)));
        }
        let hop = self.word_owed()?;
        Some((self.before(), Word::TokenHeld { hop }))
    }

    fn keep_alone(&mut self) {
        self.fresh = None;
        self.carried = self.records.next_position();
        self.records.set_stable(self.carried);
    }

    fn hear(&mut self, from: usize, word: Word) -> Heard {
        match word {
            Word::Orders { first, runs, .. } => match self.told(from, first, &runs) {
                true => Heard::Taken,
                false => Heard::Refused,
            },
            Word::Token(passed) if from == self.before() && from != self.me => match self.take(&passed) {
                Taken::Here => {
                    self.again_at = None;
                    Heard::Taken
                }
                Taken::Copy => Heard::Answered(Word::TokenHeld { hop: passed.hop }),
                Taken::Refused => Heard::Refused,
            },
            Word::TokenHeld { hop } => {
                self.arrived(hop);
                Heard::Taken
            }
            Word::Token(_) | Word::Missing { .. } => Heard::Refused,
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.again_at
    }

    /// Nothing was heard of the token since it was passed on.
    fn timeout(&mut self, now: Time, retransmit: Duration) -> Option<(usize, Word)> {
        self.again_at.take_if(|at| *at <= now)?;
        let passed = self.unheard()?.clone();
        self.again_at = Some(now + retransmit * 4);
        Some((self.after(), Word::Token(passed)))
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::Block;

    use super::*;

    struct Ring {
        tokens: Vec<Token>,
        /// Per member, the logs as it holds them: here all hold the same.
        logs: Vec<Log>,
    }

    impl Ring {
        fn new(members: usize) -> Self {
            let start = vec![1; members];
            Self {
                tokens: (0..members).map(|me| Token::new(&start, me, 1 << 16)).collect(),
                logs: start.iter().map(|start| Log::new(*start)).collect(),
            }
        }

        fn send(&mut self, who: usize) {
            self.logs[who].append(Block::of(b"m"));
        }

        /// Lets the token go on from this member; no member hears what was told to all. Returns where the
        /// token stays.
        fn turn(&mut self, mut at: usize) -> usize {
            for _ in 0..100 {
                self.tokens[at].number(&self.logs);
                let _ = self.tokens[at].take_fresh();
                let Some(passed) = self.tokens[at].pass(&self.logs) else {
                    return at;
                };
                at = (at + 1) % self.tokens.len();
                assert_eq!(self.tokens[at].take(&passed), Taken::Here);
            }
            panic!("the token does not come to rest");
        }

        fn order(&self, who: usize) -> Vec<(usize, u64)> {
            self.tokens[who].records.undelivered(u64::MAX)
        }
    }

    #[test]
    fn everyone_has_the_order_from_the_token_alone_and_it_rests_where_it_was_used_last() {
        let mut ring = Ring::new(4);
        assert_eq!(ring.turn(0), 0, "nobody has anything to number");
        ring.send(2);
        assert_eq!(ring.turn(0), 2);
        for who in 0..4 {
            assert_eq!(ring.order(who), [(2, 1)], "at {who}");
        }
        ring.send(1);
        ring.send(3);
        ring.send(1);
        assert_eq!(ring.turn(2), 1);
        for who in 0..4 {
            assert_eq!(ring.order(who), [(2, 1), (3, 1), (1, 2)], "at {who}");
        }
        assert_eq!(ring.tokens[1].records.stable(), 4);
        assert_eq!(ring.tokens[1].word_owed(), Some(ring.tokens[1].hop));
        assert_eq!(ring.tokens[1].word_owed(), None);
    }

    #[test]
    fn a_copy_of_the_token_is_not_a_second_one() {
        let mut ring = Ring::new(3);
        ring.send(0);
        ring.tokens[0].number(&ring.logs);
        let passed = ring.tokens[0].pass(&ring.logs).unwrap();
        assert_eq!(ring.tokens[0].unheard(), Some(&passed));
        assert!(!ring.tokens[0].number(&ring.logs), "it is gone");
        assert_eq!(ring.tokens[1].take(&passed), Taken::Here);
        assert_eq!(ring.tokens[1].take(&passed), Taken::Copy);
        assert!(ring.tokens[1].pass(&ring.logs).is_some());
        assert_eq!(
            ring.tokens[1].take(&passed),
            Taken::Copy,
            "also when it has gone on"
        );
        ring.tokens[0].arrived(passed.hop);
        assert_eq!(ring.tokens[0].unheard(), None);
    }

    #[test]
    fn a_token_or_run_that_nobody_can_have_made_is_refused() {
        let mut ring = Ring::new(3);
        let run = |sender, count| Run { sender, count };
        let token = |hop, first, runs| Passed { hop, first, runs };
        assert_eq!(ring.tokens[1].take(&token(9, 5, vec![])), Taken::Refused, "a gap");
        assert_eq!(ring.tokens[1].take(&token(9, 0, vec![run(7, 1)])), Taken::Refused);
        assert!(!ring.tokens[1].told(2, 0, &[run(0, 1)]), "a run of another");
        assert!(!ring.tokens[0].told(2, 0, &[run(2, 1)]), "the token is here");
        assert!(ring.tokens[1].told(2, 0, &[run(2, 1)]));
        ring.send(0);
        assert!(ring.tokens[0].number(&ring.logs));
        assert_eq!(ring.tokens[2].take(&token(1, 0, vec![run(2, 3)])), Taken::Here);
        assert!(!ring.tokens[2].number(&ring.logs), "it has sent nothing");
    }

    #[test]
    fn there_is_no_second_token_and_none_that_was_passed_on_too_often() {
        let mut ring = Ring::new(3);
        let token = |hop, first| Passed {
            hop,
            first,
            runs: Vec::new(),
        };
        ring.send(1);
        let own = &mut ring.tokens[1];
        assert!(own.told(0, 0, &[Run { sender: 0, count: 1 }]));
        assert_eq!(own.take(&token(u64::MAX, 1)), Taken::Refused);
        assert_eq!(
            own.take(&token(3, 1)),
            Taken::Refused,
            "three members pass it on twice"
        );
        assert_eq!(own.take(&token(1, 1)), Taken::Here);
        assert_eq!(own.take(&token(2, 0)), Taken::Refused, "it is here");
        assert_eq!(own.take(&token(1, 1)), Taken::Copy);
        assert!(own.number(&ring.logs));
        assert_eq!(
            own.pass(&ring.logs).map(|passed| (passed.hop, passed.first)),
            Some((2, 1))
        );
    }
}
