//! Which commands wait so that several go as one.
//!
//! An ordered message costs each member tens of microseconds, and a command that goes with others far less.
//! So commands that come while [`MOST`] batches of this member are under way wait until the first of these is
//! delivered, and then go together; [`FULL_BYTES`] of commands wait for nothing. That is what Nagle's rule
//! does for small segments (RFC 896), with more than one batch under way, so that over a long path a command
//! waits for a part of a round trip and not for a whole one. A writer with one command at a time never waits,
//! and no clock is asked.
//!
//! A batch is what one call of [`outputs`](super::Replica::outputs) hands over. It ends with the delivery of
//! its last command. If that never comes, the group suspends or resyncs this member, and all batches end.

use std::collections::VecDeque;

/// Batches under way at which further commands wait.
const MOST: usize = 2;
/// As many bytes of commands as fill a frame.
const FULL_BYTES: usize = 32 << 10;

/// The batches of this member that are under way, by the number of their last command.
#[derive(Debug, Default)]
pub(super) struct Batches(VecDeque<u64>);

impl Batches {
    /// Whether commands of so many bytes wait.
    pub(super) fn hold(&self, bytes: usize) -> bool {
        self.0.len() >= MOST && bytes < FULL_BYTES
    }

    /// The commands up to this one were handed over together.
    pub(super) fn sent(&mut self, last: u64) {
        self.0.push_back(last);
    }

    /// This command was delivered.
    pub(super) fn delivered(&mut self, request: u64) {
        while self.0.front().is_some_and(|last| *last <= request) {
            self.0.pop_front();
        }
    }

    /// Nothing is known of what was under way.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_wait_for_the_first_of_the_batches_under_way_unless_they_fill_a_frame() {
        let mut batches = Batches::default();
        assert!(!batches.hold(1), "nothing is under way");
        batches.sent(3);
        assert!(!batches.hold(1));
        batches.sent(7);
        assert!(batches.hold(1) && batches.hold(FULL_BYTES - 1));
        assert!(!batches.hold(FULL_BYTES));
        batches.delivered(2);
        assert!(batches.hold(1), "a part of a batch");
        batches.delivered(3);
        assert!(!batches.hold(1));
        batches.sent(8);
        batches.clear();
        assert!(!batches.hold(1));
    }
}
