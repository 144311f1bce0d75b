//! What happens when: a heap ordered by virtual time, and by order of scheduling within one microsecond.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Virtual time in microseconds since the start of the simulation.
pub type Micros = u64;

/// One millisecond.
pub const MILLIS: Micros = 1_000;
/// One second.
pub const SECONDS: Micros = 1_000_000;

/// The future.
#[derive(Debug)]
pub struct Agenda<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Micros,
    sequence: u64,
    what: T,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            sequence: 0,
        }
    }
}

impl<T> Agenda<T> {
    /// Schedules something.
    pub fn add(&mut self, at: Micros, what: T) {
        self.sequence += 1;
        self.heap.push(Entry {
            at,
            sequence: self.sequence,
            what,
        });
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Micros> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// How much is to come.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes the next thing.
    pub fn pop(&mut self) -> Option<(Micros, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its greatest first; we want the earliest.
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_comes_first_and_equal_times_keep_their_order() {
        let mut agenda = Agenda::default();
        for (at, name) in [(5, "c"), (1, "a"), (5, "d"), (2, "b")] {
            agenda.add(at, name);
        }
        assert_eq!(agenda.next_at(), Some(1));
        let order: String = std::iter::from_fn(|| agenda.pop())
            .map(|(_, name)| name)
            .collect();
        assert_eq!(order, "abcd");
    }
}
