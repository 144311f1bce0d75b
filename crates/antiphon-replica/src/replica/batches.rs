//! Which commands wait so that several go as one.
//!
//! An ordered message costs each member tens of microseconds, and a command that goes with others far less.
//! So commands wait until they are a [`PARTS`]th of those of this member that are under way, and then go
//! together; [`FULL_BYTES`] of commands wait for nothing. That is what Nagle's rule does for small segments
//! (RFC 896), with a few batches under way: few commands do not wait at all, and many wait for a part of a
//! round trip. No clock is asked.
//!
//! A batch is what one call of [`outputs`](super::Replica::outputs) hands over. It ends with the delivery of
//! its last command. If that never comes, the group suspends or resyncs this member, and all batches end.

use std::collections::VecDeque;

/// Into how many batches the commands of a member fall, about.
const PARTS: usize = 4;
/// As many bytes of commands as fill a frame.
const FULL_BYTES: usize = 32 << 10;

/// The batches of this member that are under way.
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// The number of the last command of each, and how many it has.
    sent: VecDeque<(u64, usize)>,
    commands: usize,
}

impl Batches {
    /// Whether commands are held while so many messages wait to be sent, with so many bytes of commands.
    pub(super) fn hold(&self, waiting: usize, bytes: usize) -> bool {
        waiting * PARTS < self.commands && bytes < FULL_BYTES
    }

    /// So many commands were handed over together, the last of which is this one.
    pub(super) fn sent(&mut self, last: u64, commands: usize) {
        self.sent.push_back((last, commands));
        self.commands += commands;
    }

    /// This command was delivered.
    pub(super) fn delivered(&mut self, request: u64) {
        while let Some((last, commands)) = self.sent.front()
            && *last <= request
        {
            self.commands -= commands;
            self.sent.pop_front();
        }
    }

    /// Nothing is known of what was under way.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_wait_until_they_are_a_part_of_those_under_way_or_fill_a_frame() {
        let mut batches = Batches::default();
        assert!(!batches.hold(1, 1), "nothing is under way");
        batches.sent(4, 4);
        assert!(!batches.hold(1, 1), "few are under way");
        batches.sent(8, 4);
        assert!(batches.hold(1, 1) && batches.hold(1, FULL_BYTES - 1));
        assert!(!batches.hold(2, 1));
        assert!(!batches.hold(1, FULL_BYTES));
        batches.delivered(3);
        assert!(batches.hold(1, 1), "a part of a batch");
        batches.delivered(4);
        assert!(!batches.hold(1, 1));
        batches.sent(9, 1);
        assert!(batches.hold(1, 1));
        batches.clear();
        assert!(!batches.hold(1, 1));
    }
}
