//! The sequencer: the view's first member multicasts order records, runs of (sender, count).
//!
//! The sequencer appends a run for the messages that it newly holds. It sends all new runs at the end of a
//! receive batch, in its own data frames where it has some. [Records](super::Records) are acknowledged,
//! repaired and kept like messages: until every member holds them.

use antiphon_wire::group::Run;

use super::records::{MAX_COUNT, Records};
use crate::group::log::Log;
use crate::order::interface::TotalOrder;
use crate::order::word::{Heard, Word};

/// The rank of the member that makes the order.
const MAKER: usize = 0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sequencer {
    am_sequencer: bool,
    records: Records,
    /// Records before this position were asked for at once. Only the timer asks for them again.
    asked: u64,
}

impl Sequencer {
    /// `start` is the first message number per rank.
    pub(super) fn new(start: &[u64], me: usize, window: usize) -> Self {
        Self {
            am_sequencer: me == MAKER,
            records: Records::new(start, window),
            asked: 0,
        }
    }

    fn orders(&self, first: u64, ask: bool, runs: Vec<Run>) -> Word {
        let stable = self.records.stable();
        Word::Orders {
            first,
            stable,
            ask,
            runs,
        }
    }
}

impl TotalOrder for Sequencer {
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

    /// The sequencer gives positions to what it newly holds; the others wait for its records.
    fn held(&mut self, rank: usize, log: &Log) {
        if !self.am_sequencer {
            return;
        }
        let mut left = log.next().saturating_sub(self.records.numbered(rank));
        while left > 0 {
            let count = left.min(u64::from(MAX_COUNT)) as u32;
            self.records.append(Run {
                sender: rank as u16,
                count,
            });
            left -= u64::from(count);
        }
    }

    fn tell_all(&mut self) -> Option<Word> {
        if !self.am_sequencer {
            return None;
        }
        let (first, runs) = self.records.take_unsent()?;
        Some(self.orders(first, false, runs))
    }

    fn keep_alone(&mut self) {
        self.records.skip_unsent();
        self.records.set_stable(self.records.next_position());
    }

    fn maker(&self) -> Option<usize> {
        Some(MAKER)
    }

    fn all_hold(&mut self, position: u64) {
        // No other member can hold what was not sent yet, whatever it says.
        self.records.set_stable(position.min(self.records.unsent()));
    }

    fn mark(&self, ask: bool) -> Option<Word> {
        let end = match ask {
            true => self.records.next_position(),
            false => self.records.stable(),
        };
        self.am_sequencer.then(|| self.orders(end, ask, Vec::new()))
    }

    fn missing(&mut self, again: bool) -> Option<(usize, Word)> {
        let first = self.records.next_position();
        if !self.records.has_gap() || !again && first < self.asked {
            return None;
        }
        if !again {
            self.asked = first + 1;
        }
        Some((MAKER, Word::Missing { first }))
    }

    fn hear(&mut self, from: usize, word: Word) -> Heard {
        match word {
            Word::Orders {
                first,
                stable,
                ask,
                runs,
            } => {
                if from != MAKER || self.am_sequencer {
                    return Heard::Refused;
                }
                // This comes first: what all members hold makes room.
                self.records.set_stable(stable);
                if !self.records.insert(first, &runs) {
                    return Heard::Refused;
                }
                self.records.heard_of(first);
                Heard::Owed { ask }
            }
            Word::Missing { first } if self.am_sequencer => match self.records.slice(first) {
                Some((first, runs)) => Heard::Answered(self.orders(first, false, runs)),
                None => Heard::Taken,
            },
            Word::Missing { .. } | Word::Token(_) | Word::TokenHeld { .. } => Heard::Refused,
        }
    }
}
