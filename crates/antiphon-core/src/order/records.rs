//! The records of an order that travels: runs of (sender, count), held, kept for others and walked.
//!
//! Position p of the view's order is the p-th message in the concatenation of all runs. The member that makes
//! the order appends runs. The others insert them as they come, also behind gaps. A run is kept until every
//! member holds it: until then any survivor may have to supply it in a flush. [`Sequencer`](super::Sequencer)
//! and [`Token`](super::Token) differ in which member makes the records, and in how these reach the others.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::group::Run;

use crate::group::log::{BLOCK_OVERHEAD, Log};
use crate::order::walk::Walk;

/// The most runs in one record.
pub(crate) const MAX_RUNS: usize = 1024;
/// The most records kept behind a gap.
const MAX_AHEAD: usize = 256;
/// No run is longer.
pub(super) const MAX_COUNT: u32 = 1 << 24;
/// How many runs there is room for besides two windows' worth, for each member.
const RESERVE: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Records {
    /// Per rank, the first message without a position.
    numbered: Vec<u64>,
    /// Kept runs with the position of their first message, for repairs.
    kept: VecDeque<(u64, Run)>,
    /// The first position not held.
    next: u64,
    /// Runs whose messages are still to be delivered; the front one shrinks.
    pending: VecDeque<(usize, u64)>,
    /// The first position not delivered.
    delivered: u64,
    ahead: BTreeMap<u64, Vec<Run>>,
    /// Positions are known to exist before this one.
    end: u64,
    stable: u64,
    /// The first position that [`Records::take_unsent`] has not given yet.
    unsent: u64,
    /// The most runs that are kept, or are to be delivered, when another member adds to them.
    ///
    /// A run has a block at least, and a block costs its sender 129 bytes or more of its window until every
    /// application has taken it. So the runs to be delivered are at most window / 129 per member. What all
    /// have delivered is kept until the maker has heard from all that they hold the order. They say so every
    /// 25 ms, or the token does, once around: that is what the reserve is for. If it is too small, because
    /// word to the maker is lost for long, the record counts as lost and comes again when there is room.
    most: usize,
}

impl Records {
    /// `start` is the first message number per rank.
    pub(super) fn new(start: &[u64], window: usize) -> Self {
        Self {
            most: start.len() * (2 * window / BLOCK_OVERHEAD + RESERVE),
            numbered: start.to_vec(),
            kept: VecDeque::new(),
            next: 0,
            pending: VecDeque::new(),
            delivered: 0,
            ahead: BTreeMap::new(),
            end: 0,
            stable: 0,
            unsent: 0,
        }
    }

    pub(super) fn members(&self) -> usize {
        self.numbered.len()
    }

    /// The first position not held.
    pub(crate) fn next_position(&self) -> u64 {
        self.next
    }

    /// The first message of this rank without a position.
    pub(super) fn numbered(&self, rank: usize) -> u64 {
        self.numbered[rank]
    }

    /// Every member holds the positions before this.
    pub(super) fn stable(&self) -> u64 {
        self.stable
    }

    /// Takes runs that begin at position `first`. False if they cannot be right, or there is no room.
    pub(super) fn insert(&mut self, first: u64, runs: &[Run]) -> bool {
        self.insert_within(self.most, first, runs)
    }

    /// The same, in a flush. Nothing becomes stable now, so there is room for all that any member may hold:
    /// this member's own, as many of another, and what the maker has added that this member has not
    /// delivered.
    pub(super) fn repair(&mut self, first: u64, runs: &[Run]) -> bool {
        self.insert_within(self.most * 3, first, runs)
    }

    fn insert_within(&mut self, most: usize, first: u64, runs: &[Run]) -> bool {
        let sane = runs.iter().all(|run| {
            usize::from(run.sender) < self.numbered.len() && run.count > 0 && run.count <= MAX_COUNT
        });
        if !sane || runs.len() > MAX_RUNS || first > self.next.saturating_add(1 << 40) {
            return false;
        }
        let length: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if first + length > self.next && !self.has_room(most, runs) {
            return false;
        }
        self.end = self.end.max(first + length);
        if first > self.next {
            if self.ahead.len() < MAX_AHEAD {
                self.ahead.insert(first, runs.to_vec());
            }
            return true;
        }
        self.extend(first, runs);
        while let Some((&first, runs)) = self.ahead.first_key_value()
            && first <= self.next
            && self.has_room(most, runs)
            && let Some(runs) = self.ahead.remove(&first)
        {
            self.extend(first, &runs);
        }
        true
    }

    fn has_room(&self, most: usize, runs: &[Run]) -> bool {
        self.kept.len().max(self.pending.len()) + runs.len() <= most
    }

    fn extend(&mut self, mut first: u64, runs: &[Run]) {
        for run in runs {
            let end = first + u64::from(run.count);
            if end > self.next {
                // A repeated record may begin in the middle of what is held.
                let known = self.next.saturating_sub(first) as u32;
                self.append(Run {
                    sender: run.sender,
                    count: run.count - known,
                });
            }
            first = end;
        }
    }

    /// Gives the next positions to a run.
    pub(super) fn append(&mut self, run: Run) {
        // Runs from others are checked in `insert`.
        assert!(
            run.count > 0 && usize::from(run.sender) < self.numbered.len() && self.delivered <= self.next,
            "G21: {run:?} at {} of {} senders, delivered {}",
            self.next,
            self.numbered.len(),
            self.delivered
        );
        let position = self.next;
        self.numbered[usize::from(run.sender)] += u64::from(run.count);
        self.next += u64::from(run.count);
        self.end = self.end.max(self.next);
        match self.kept.back_mut() {
            // Runs that were not sent yet grow; a sent record never changes.
            Some((first, last))
                if last.sender == run.sender
                    && *first >= self.unsent
                    && last.count + run.count <= MAX_COUNT =>
            {
                last.count += run.count;
            }
            _ => self.kept.push_back((position, run)),
        }
        match self.pending.back_mut() {
            Some((rank, count)) if *rank == usize::from(run.sender) => *count += u64::from(run.count),
            _ => self
                .pending
                .push_back((usize::from(run.sender), u64::from(run.count))),
        }
    }

    /// The undelivered runs before position `ordered`.
    pub(super) fn undelivered(&self, ordered: u64) -> Vec<(usize, u64)> {
        let mut position = self.delivered;
        let mut runs = Vec::new();
        for (rank, count) in &self.pending {
            let count = (*count).min(ordered.saturating_sub(position));
            if count == 0 {
                break;
            }
            runs.push((*rank, count));
            position += count;
        }
        runs
    }

    /// Whether positions are known to exist that are not held.
    pub(super) fn has_gap(&self) -> bool {
        self.next < self.end
    }

    /// Positions are given up to here, exclusive.
    pub(super) fn heard_of(&mut self, end: u64) {
        if end <= self.next.saturating_add(1 << 40) {
            self.end = self.end.max(end);
        }
    }

    /// Runs from `first` on, with the position of the first of them (which may lie before `first`).
    pub(crate) fn slice(&self, first: u64) -> Option<(u64, Vec<Run>)> {
        let index = self
            .kept
            .partition_point(|(position, run)| position + u64::from(run.count) <= first);
        let (position, _) = self.kept.get(index)?;
        Some((
            *position,
            self.kept
                .iter()
                .skip(index)
                .take(MAX_RUNS)
                .map(|(_, run)| *run)
                .collect(),
        ))
    }

    /// The runs appended since the last time, as many as one record has room for.
    pub(super) fn take_unsent(&mut self) -> Option<(u64, Vec<Run>)> {
        if self.unsent >= self.next {
            return None;
        }
        let (first, runs) = self.slice(self.unsent)?;
        self.unsent = first + runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        Some((first, runs))
    }

    /// The first position that [`Records::take_unsent`] has not given yet.
    pub(super) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// There is no other member to send anything to.
    pub(super) fn skip_unsent(&mut self) {
        self.unsent = self.next;
    }

    /// Every member holds the positions before this.
    pub(super) fn set_stable(&mut self, stable: u64) {
        self.stable = self.stable.max(stable.min(self.next));
        while self
            .kept
            .front()
            .is_some_and(|(first, run)| first + u64::from(run.count) <= self.stable)
        {
            self.kept.pop_front();
        }
        assert!(
            self.stable <= self.next && self.unsent <= self.next,
            "R16: stable {}, sent {}, held {}",
            self.stable,
            self.unsent,
            self.next
        );
    }
}

impl Walk for Records {
    fn next(&self, logs: &[Log], safe_until: u64) -> Option<(usize, u64)> {
        let (rank, count) = *self.pending.front()?;
        let mut ready = logs[rank].undelivered().min(count);
        if logs[rank].front_is_safe() {
            ready = ready.min(safe_until.saturating_sub(self.delivered));
        }
        (ready > 0).then_some((rank, ready))
    }

    fn took(&mut self, taken: u64) {
        if let Some((_, count)) = self.pending.front_mut() {
            assert!(
                taken <= *count && self.delivered + taken <= self.next,
                "G21: {taken} delivered at {}, of a run of {count}, and {} have a place",
                self.delivered,
                self.next
            );
            *count -= taken;
            if *count == 0 {
                self.pending.pop_front();
            }
            self.delivered += taken;
        }
    }

    fn waits_for_rows(&self, logs: &[Log], safe_until: u64) -> Option<u64> {
        let (rank, _) = *self.pending.front()?;
        (logs[rank].front_is_safe() && safe_until <= self.delivered).then_some(self.delivered)
    }

    fn placed(&self, logs: &[Log]) -> (u64, Vec<u64>) {
        let mut position = self.delivered;
        let mut covered: Vec<u64> = logs.iter().map(Log::delivered).collect();
        for (rank, count) in &self.pending {
            let held = logs[*rank].next().saturating_sub(covered[*rank]).min(*count);
            position += held;
            covered[*rank] += held;
            if held < *count {
                break;
            }
        }
        (position, covered)
    }

    fn rest(&self, _logs: &[Log], cut: &[u64], ordered: u64, delivered: &mut [u64]) -> Vec<(usize, u64)> {
        let mut rest = Vec::new();
        for (rank, count) in self.undelivered(ordered) {
            let in_cut = (cut[rank] + 1).saturating_sub(delivered[rank]).min(count);
            rest.push((rank, in_cut));
            delivered[rank] += in_cut;
            if in_cut < count {
                break;
            }
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_nobody_can_have_made_are_refused_and_not_kept() {
        let window = 1 << 16;
        let mut records = Records::new(&[1, 1], window);
        let runs: Vec<Run> = (0..1000)
            .map(|at| Run {
                sender: at % 2,
                count: 1,
            })
            .collect();
        let fill = |records: &mut Records| (0_usize..).find(|_| !records.insert(records.next, &runs));
        let most = 2 * (2 * window / 128 + RESERVE);
        assert_eq!(fill(&mut records), Some(most / 1000));
        assert_eq!(
            (records.kept.len(), records.pending.len()),
            (most / 1000 * 1000, most / 1000 * 1000)
        );
        assert!(records.insert(0, &runs), "it holds these");

        // That all members are said to hold them makes no room for more to deliver.
        records.set_stable(records.next);
        assert_eq!(records.kept.len(), 0);
        assert_eq!(fill(&mut records), Some(0));
        while let Some((_, count)) = records.pending.front().copied() {
            records.took(count);
        }
        assert_eq!(fill(&mut records), Some(most / 1000), "there is room again");

        // A flush brings more, and no end of them either.
        let repaired = (0_usize..).find(|_| !records.repair(records.next, &runs));
        assert_eq!(repaired, Some(3 * most / 1000 - most / 1000));
    }
}
