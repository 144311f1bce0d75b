//! What waits for one peer by one way, and what is under way to it.
//!
//! Each command is a task: it waits for a place, then it is signed and sent. So one that is slow holds up no
//! other, and each ends at its own deadline wherever it is. What bounds them is counted here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use antiphon::Incarnation;
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::envelope::Way;
use crate::window::WIDTH;

/// The most commands that wait for one peer by one way.
pub const MAX_QUEUED: usize = 1024;
/// The most bytes of arguments that they have.
pub const MAX_QUEUED_BYTES: usize = 4 << 20;
/// Commands that are sent and not answered, by a way on which they do not wait for each other.
pub const MAX_SENT: usize = 64;
/// Connections to one peer, by a way with one command at a time on each.
pub const MAX_CONNECTIONS: usize = 16;

/// One peer, one way.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Since when each waits, in their order.
    waiting: BTreeMap<u64, Instant>,
    bytes: usize,
    sent: u64,
    refused: u64,
    late: u64,
    /// Of these starts of both nodes are the numbers.
    between: Option<(Incarnation, Incarnation)>,
    number: u64,
    /// Numbers that are neither answered nor over.
    open: BTreeSet<u64>,
}

/// How a lane is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaneStatus {
    /// The peer.
    pub peer: String,
    /// The way.
    pub way: Way,
    /// Commands that wait to be sent.
    pub queued: usize,
    /// Their bytes.
    pub queued_bytes: usize,
    /// How long the oldest of them waits.
    pub oldest_ms: u64,
    /// Commands that are sent and not answered.
    pub open: usize,
    /// Commands that were sent, in all.
    pub sent: u64,
    /// Commands that were refused because the queue was full.
    pub dropped: u64,
    /// Commands whose time was over before they were sent.
    pub expired: u64,
}

impl Lane {
    pub(crate) fn new(way: Way) -> Self {
        let places = match way {
            Way::Library | Way::Websocket | Way::Udp => MAX_SENT,
            _ => MAX_CONNECTIONS,
        };
        Self {
            places: Arc::new(Semaphore::new(places)),
            state: Mutex::default(),
        }
    }

    /// A command comes to wait. None: there is no room for it. Then the age of the oldest one is told.
    pub(crate) fn enter(self: &Arc<Self>, bytes: usize) -> Result<Waiting, Duration> {
        let mut state = self.state();
        if state.waiting.len() >= MAX_QUEUED || state.bytes + bytes > MAX_QUEUED_BYTES {
            state.refused += 1;
            return Err(state.oldest());
        }
        state.last += 1;
        let place = state.last;
        state.waiting.insert(place, Instant::now());
        state.bytes += bytes;
        Ok(Waiting {
            lane: self.clone(),
            place,
            bytes,
        })
    }

    /// The next number between the present starts of both nodes, if `starts` knows them. It is asked in the
    /// order of the numbers: an earlier start does not follow a later one, so no count begins twice. None
    /// also if the oldest open number is so old that the peer could not tell it from one that came before.
    pub(crate) fn number(
        self: &Arc<Self>,
        starts: impl FnOnce() -> Option<(Incarnation, Incarnation)>,
    ) -> Option<Open> {
        let mut state = self.state();
        let between = starts()?;
        if state.between != Some(between) {
            state.between = Some(between);
            state.number = 0;
            state.open.clear();
        }
        let number = state.number + 1;
        if state.open.first().is_some_and(|oldest| number - oldest >= WIDTH) {
            return None;
        }
        state.number = number;
        state.sent += 1;
        state.open.insert(number);
        Some(Open {
            lane: self.clone(),
            between,
            number,
        })
    }

    pub(crate) fn count_late(&self) {
        self.state().late += 1;
    }

    pub(crate) fn status(&self, peer: &str, way: Way) -> LaneStatus {
        let state = self.state();
        LaneStatus {
            peer: peer.to_owned(),
            way,
            queued: state.waiting.len(),
            queued_bytes: state.bytes,
            oldest_ms: u64::try_from(state.oldest().as_millis()).unwrap_or(u64::MAX),
            open: state.open.len(),
            sent: state.sent,
            dropped: state.refused,
            expired: state.late,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn oldest(&self) -> Duration {
        self.waiting
            .first_key_value()
            .map(|(_, since)| since.elapsed())
            .unwrap_or_default()
    }
}

/// A command that waits, as long as this is there.
#[derive(Debug)]
pub(crate) struct Waiting {
    lane: Arc<Lane>,
    place: u64,
    bytes: usize,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.lane.state();
        state.waiting.remove(&self.place);
        state.bytes -= self.bytes;
    }
}

/// A command that is under way, as long as this is there.
#[derive(Debug)]
pub(crate) struct Open {
    lane: Arc<Lane>,
    pub(crate) between: (Incarnation, Incarnation),
    pub(crate) number: u64,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.lane.state();
        if state.between == Some(self.between) {
            state.open.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_at_once_and_says_how_old_it_is() {
        let lane = Arc::new(Lane::new(Way::Http));
        let waiting: Vec<_> = (0..MAX_QUEUED).map(|_| lane.enter(10).unwrap()).collect();
        assert!(lane.enter(10).is_err());
        let status = lane.status("b", Way::Http);
        assert_eq!(
            (status.queued, status.queued_bytes, status.dropped),
            (MAX_QUEUED, 10 * MAX_QUEUED, 1)
        );
        drop(waiting);
        let _large = lane.enter(MAX_QUEUED_BYTES).unwrap();
        assert!(lane.enter(1).is_err());
    }

    #[test]
    fn a_number_waits_for_one_that_is_too_far_behind() {
        let lane = Arc::new(Lane::new(Way::Udp));
        let number = |them| lane.number(|| Some((Incarnation(1), Incarnation(them))));
        let oldest = number(2).unwrap();
        for _ in 1..WIDTH {
            assert!(number(2).is_some());
        }
        assert!(number(2).is_none());
        drop(oldest);
        assert_eq!(number(2).unwrap().number, WIDTH + 1);
        // Another start of the peer is another count.
        assert_eq!(number(3).unwrap().number, 1);
    }

    /// If a task looked at them before it had the lock, another could number for a later start in between,
    /// and the same numbers would be given twice.
    #[test]
    fn no_number_is_given_while_a_task_looks_at_the_starts() {
        let lane = Arc::new(Lane::new(Way::Udp));
        let starts = (Incarnation(1), Incarnation(2));
        let numbered = lane.number(|| {
            assert!(lane.state.try_lock().is_err());
            Some(starts)
        });
        let numbered = numbered.unwrap();
        assert_eq!((numbered.number, numbered.between), (1, starts));
        // The peer is no member any more.
        assert!(lane.number(|| None).is_none());
        assert_eq!(lane.number(|| Some(starts)).unwrap().number, 2);
    }
}
