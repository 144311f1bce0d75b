//! What became of accepted messages.
//!
//! A message is pending while its ticket is in one of the pending ranges (mostly one). Afterwards it was
//! delivered unless it is in one of the other ranges. Only so many of these are remembered: what is forgotten
//! is unknown, never a delivery.

use std::collections::{BTreeMap, VecDeque};

use crate::Outcome;

/// At most this many ranges are remembered of tickets that were not delivered, or of which nothing is known.
pub(super) const MAX_RANGES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Fates {
    /// First and end, ascending.
    pending: VecDeque<(u64, u64)>,
    /// By first ticket: those that were not delivered.
    others: BTreeMap<u64, Range>,
    /// Nothing is remembered of tickets before this.
    floor: u64,
}

/// Messages of consecutive tickets that share a fate.
#[derive(Debug, Clone, Copy)]
struct Range {
    end: u64,
    outcome: Outcome,
}

impl Fates {
    /// This ticket is pending; it is above all earlier ones.
    pub(super) fn begin(&mut self, ticket: u64) {
        match self.pending.back_mut() {
            Some((_, end)) if *end == ticket => *end += 1,
            _ => self.pending.push_back((ticket, ticket + 1)),
        }
    }

    /// The pending tickets from `first` to `end` have this fate.
    pub(super) fn settle(&mut self, first: u64, end: u64, outcome: Outcome) {
        let mut settled = Vec::new();
        match self.pending.front_mut() {
            // What is delivered is, nearly always, the oldest that is pending.
            Some(front) if front.0 == first && end < front.1 => {
                front.0 = end;
                settled.push((first, end));
            }
            _ => self.settle_anywhere(first, end, &mut settled),
        }
        if outcome != Outcome::Delivered {
            for (first, end) in settled {
                self.others.insert(first, Range { end, outcome });
            }
            while self.others.len() > MAX_RANGES
                && let Some((_, range)) = self.others.pop_first()
            {
                self.floor = self.floor.max(range.end);
            }
        }
    }

    fn settle_anywhere(&mut self, first: u64, end: u64, settled: &mut Vec<(u64, u64)>) {
        let mut pending = VecDeque::new();
        for (from, to) in self.pending.drain(..) {
            let (cut_from, cut_to) = (from.max(first), to.min(end));
            if cut_from >= cut_to {
                pending.push_back((from, to));
                continue;
            }
            settled.push((cut_from, cut_to));
            if from < cut_from {
                pending.push_back((from, cut_from));
            }
            if cut_to < to {
                pending.push_back((cut_to, to));
            }
        }
        self.pending = pending;
    }

    /// First and end of what is pending, ascending.
    pub(super) fn pending(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pending.iter().copied()
    }

    pub(super) fn of(&self, ticket: u64) -> Option<Outcome> {
        let index = self.pending.partition_point(|(_, end)| *end <= ticket);
        if self.pending.get(index).is_some_and(|(first, _)| *first <= ticket) {
            return None;
        }
        if ticket < self.floor {
            return Some(Outcome::Unknown);
        }
        let before = self.others.range(..=ticket).next_back();
        let outcome = before
            .filter(|(_, range)| ticket < range.end)
            .map_or(Outcome::Delivered, |(_, range)| range.outcome);
        Some(outcome)
    }
}
