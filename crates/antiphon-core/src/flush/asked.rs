//! The questions of a member to the holders of a cut that are not answered yet.
//!
//! An answer says nothing about the other answers, which are on their way. So a member asks again at once
//! only for the part of a run that its answer did not bring. If it asked for everything at each answer, it
//! would be sent each of R runs R times.

use std::collections::BTreeMap;

use crate::Time;

/// How many runs of a cut are asked for at once.
const MAX_PULLS: usize = 256;

/// Questions that are not answered yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// By the sender's rank and the first number: the end, and when to ask again.
    runs: BTreeMap<(usize, u64), (u64, Time)>,
    /// When to ask for order records again.
    orders: Option<Time>,
}

impl Asked {
    /// Gives up questions that were not answered in time. True if there was any.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let before = (self.runs.len(), self.orders);
        self.runs.retain(|_, (_, until)| *until > now);
        self.orders = self.orders.filter(|until| *until > now);
        before != (self.runs.len(), self.orders)
    }

    /// How many more runs may be asked for now.
    pub(super) fn room(&self) -> usize {
        MAX_PULLS.saturating_sub(self.runs.len())
    }

    /// Whether an answer with some of `first..end` of this sender is on its way.
    pub(super) fn awaits(&self, sender: usize, first: u64, end: u64) -> bool {
        let last = self.runs.range((sender, 0)..(sender, end)).next_back();
        last.is_some_and(|(_, (its_end, _))| *its_end > first)
    }

    /// This run is asked for now.
    pub(super) fn ask(&mut self, sender: usize, first: u64, end: u64, until: Time) {
        self.runs.insert((sender, first), (end, until));
        assert!(
            self.runs.len() <= MAX_PULLS,
            "flush: {} runs are asked for",
            self.runs.len()
        );
    }

    /// The last part of an answer came, from this number on. True if it had been waited for.
    pub(super) fn answered(&mut self, sender: usize, first: u64) -> bool {
        let run = self.runs.range((sender, 0)..=(sender, first)).next_back();
        let run = run.filter(|(_, (end, _))| *end > first).map(|(run, _)| *run);
        run.is_some_and(|run| self.runs.remove(&run).is_some())
    }

    /// Whether order records are on their way.
    pub(super) fn awaits_orders(&self) -> bool {
        self.orders.is_some()
    }

    /// Order records are asked for now.
    pub(super) fn ask_for_orders(&mut self, until: Time) {
        self.orders = Some(until);
    }

    /// Order records came.
    pub(super) fn orders_answered(&mut self) {
        self.orders = None;
    }

    /// When to ask again, if nothing comes.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let runs = self.runs.values().map(|(_, until)| *until);
        runs.chain(self.orders).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_to_its_own_question_alone() {
        let [now, later] = [1, 2].map(Time::from_micros);
        let mut asked = Asked::default();
        asked.ask(1, 5, 10, now);
        asked.ask(1, 20, 30, later);
        assert!(asked.awaits(1, 9, 25) && asked.awaits(1, 0, 6) && asked.awaits(1, 29, 40));
        assert!(!asked.awaits(1, 10, 20) && !asked.awaits(1, 30, 40) && !asked.awaits(0, 5, 10));
        assert!(!asked.answered(1, 4) && !asked.answered(1, 10) && !asked.answered(2, 25));
        assert!(asked.answered(1, 25) && !asked.answered(1, 25));
        assert!(!asked.awaits(1, 20, 30) && asked.awaits(1, 5, 10));
        assert_eq!(asked.next_timeout(), Some(now));
        assert!(asked.expire(now) && !asked.expire(now));
        assert_eq!(asked.next_timeout(), None);
    }

    #[test]
    fn no_more_runs_are_asked_for_at_once_than_are_bounded() {
        let mut asked = Asked::default();
        while asked.room() > 0 {
            let first = asked.runs.len() as u64 * 2;
            asked.ask(0, first, first + 1, Time::ZERO);
        }
        assert_eq!(asked.runs.len(), MAX_PULLS);
    }
}
