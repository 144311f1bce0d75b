//! The messages of unordered and scoped groups: delivered as they come, past gaps. See
//! [`group::log`](crate::group::log), and [`order`](crate::order) for the cut.

use antiphon_wire::Block;
use antiphon_wire::group::Span;

use super::Stream;
use crate::group::log::{Log, Room};

/// All members of a view together report at most so many runs ahead of gaps to its flush. So many fit a list
/// on the wire, even if another run cuts each of them in two.
const MAX_RUNS: usize = antiphon_wire::codec::MAX_LIST / 2;

impl Stream {
    /// The next messages to deliver in whatever order they came, all of one sender.
    pub(super) fn deliver_any(&mut self) -> Option<(usize, u64, Block)> {
        let mut logs = self.logs.iter_mut().enumerate();
        logs.find_map(|(rank, log)| {
            let (first, block) = log.deliver_any(self.safe.until(rank))?;
            Some((rank, first, block))
        })
    }

    /// A block as this order has it. In a scoped group messages have tags, in others they have none, and a
    /// piece does not say which. A scoped group has no objects.
    pub(super) fn as_ordered(&self, messages: Block) -> Option<Block> {
        let scoped = self.engine.takes_tags();
        if messages.is_empty() || messages.is_nulls() || messages.is_scoped() == scoped {
            Some(messages)
        } else {
            (scoped && messages.is_piece()).then(|| messages.with_tag())
        }
    }

    /// What the log of this sender may keep, when messages from `first` on come.
    pub(super) fn room_of(&self, sender: usize, first: u64) -> Room {
        let bytes = self.limit();
        let log = &self.logs[sender];
        if !self.engine.passes_gaps() || first <= log.next() {
            return Room { bytes, runs: 0 };
        }
        let all: usize = self.logs.iter().map(Log::runs).sum();
        let left = (MAX_RUNS / self.logs.len()).saturating_sub(all);
        Room {
            bytes,
            runs: log.runs() + left,
        }
    }

    /// What is held ahead of gaps, as a report to a flush says it.
    pub(crate) fn beyond(&self) -> Vec<Span> {
        let spans = self.logs.iter().enumerate().flat_map(|(rank, log)| {
            log.runs_ahead().map(move |(first, end)| Span {
                sender: rank as u16,
                first,
                count: end - first,
            })
        });
        spans.collect()
    }

    /// A message that could be delivered and is not: its sender and number.
    pub(crate) fn withheld(&self) -> Option<(usize, u64)> {
        let mut logs = self.logs.iter().enumerate();
        logs.find_map(|(rank, log)| Some((rank, log.withheld()?)))
    }
}
