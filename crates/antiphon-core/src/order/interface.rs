//! What an engine for a total order is told, and what it answers.

use std::time::Duration;

use crate::Time;
use crate::group::log::Log;
use crate::order::records::Records;
use crate::order::walk::Walk;
use crate::order::word::{Heard, Word};

/// What makes a total order known to all members of a view. The page above says when each is asked.
pub(crate) trait TotalOrder {
    /// Where this member is in the order.
    type Walk: Walk;

    fn walk(&self) -> &Self::Walk;

    fn walk_mut(&mut self) -> &mut Self::Walk;

    /// The order as it is held, if it is something that travels.
    fn records(&self) -> Option<&Records> {
        None
    }

    fn records_mut(&mut self) -> Option<&mut Records> {
        None
    }

    /// Whether logs may have nulls.
    fn takes_nulls(&self) -> bool {
        false
    }

    /// Whether a sender that keeps to its window can have numbers up to here: `end` is behind the last one of
    /// a block, of messages or of nulls.
    fn may_reach(&self, _log: &Log, _end: u64, _nulls: bool) -> bool {
        true
    }

    /// Messages may have been added to the log of this rank.
    fn held(&mut self, _rank: usize, _log: &Log) {}

    /// Does this member's part at the end of a receive batch: numbers messages, or appends nulls to this
    /// member's own log. True if there were any.
    fn end_batch(&mut self, _logs: &mut [Log]) -> bool {
        false
    }

    /// The next record for all others that was not sent to them yet.
    fn tell_all(&mut self) -> Option<Word> {
        None
    }

    /// A record for one other member, once all were told.
    fn tell_one(&mut self, _logs: &[Log], _now: Time, _retransmit: Duration) -> Option<(usize, Word)> {
        None
    }

    /// There is no other member to tell anything.
    fn keep_alone(&mut self) {}

    /// A member said something.
    fn hear(&mut self, _from: usize, _word: Word) -> Heard {
        Heard::Refused
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// A record to send again to one other member, if the timer is due.
    fn timeout(&mut self, _now: Time, _retransmit: Duration) -> Option<(usize, Word)> {
        None
    }

    /// The member that makes the order for all, if there is one.
    fn maker(&self) -> Option<usize> {
        None
    }

    /// At the maker: all members hold the order before this position.
    fn all_hold(&mut self, _position: u64) {}

    /// At the maker: how far the order goes.
    fn mark(&self, _ask: bool) -> Option<Word> {
        None
    }

    /// A part of the order exists and is not held here: the member to ask for it, and the question. Asks once
    /// for each gap, and once more at each call with `again`.
    fn missing(&mut self, _again: bool) -> Option<(usize, Word)> {
        None
    }
}
