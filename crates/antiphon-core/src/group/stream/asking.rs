//! What a member has asked for of a sender's messages, and when it asks again.

use std::time::Duration;

use crate::{Profile, Time};

/// How often the retransmit interval is doubled while answers come in part. With the last one a record comes
/// in time on 0.1 Mbit/s.
const MAX_DOUBLINGS: u32 = 6;
/// And how often while nothing comes: the path may be back at any time.
const MAX_SILENT_DOUBLINGS: u32 = 3;
/// It is doubled in silence after more unanswered questions than this.
const MAX_UNANSWERED: u32 = 2;

/// Messages of a sender that have come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    pub(super) first: u64,
    /// What they are charged with; nothing for a mark, which has none.
    pub(super) bytes: usize,
    /// Whether what was missing first is here now.
    pub(super) news: bool,
}

/// What this member has asked for of a sender's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asking {
    /// The gaps up to here.
    pub(super) upto: u64,
    /// Whether the last question went past the member before, to the sender itself.
    pub(super) again: bool,
    /// The end of the gap that comes first.
    pub(super) first_ends: u64,
    /// How much of that gap has come since it was asked for.
    pub(super) bytes: usize,
    /// When all is asked for again, unless something comes.
    pub(super) again_at: Option<Time>,
    /// Questions in a row of which nothing came.
    pub(super) unanswered: u32,
    pub(super) doublings: u32,
}

impl Asking {
    pub(super) fn new(held: u64) -> Self {
        Self {
            upto: held,
            again: false,
            first_ends: 0,
            bytes: 0,
            again_at: None,
            unanswered: 0,
            doublings: 0,
        }
    }

    /// There was no room for what came, which ends here: it would come again at once if it was asked for.
    pub(super) fn refused(&mut self, end: u64) {
        self.upto = self.upto.max(end);
    }

    pub(super) fn patience(&self, profile: &Profile) -> Duration {
        profile.retransmit * (1 << self.doublings)
    }

    /// Nothing came for long: all is to be asked for again, and then perhaps waited for twice as long.
    pub(super) fn went_unanswered(&mut self) {
        self.unanswered += 1;
        if self.bytes > 0 {
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        } else {
            let more = u32::from(self.unanswered > MAX_UNANSWERED);
            self.doublings = (self.doublings.min(MAX_SILENT_DOUBLINGS) + more).min(MAX_SILENT_DOUBLINGS);
        }
        (self.upto, self.again_at) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_waits_long_while_parts_of_answers_come_and_not_when_the_path_falls_silent() {
        let mut asking = Asking::new(1);
        let mut waits = |bytes| {
            asking.bytes = bytes;
            asking.went_unanswered();
            1 << asking.doublings
        };
        let slow: Vec<i32> = (0..8).map(|_| waits(1000)).collect();
        assert_eq!(slow, [2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(
            (0..3).map(|_| waits(0)).max(),
            Some(8),
            "the path may be back at any time"
        );
        let mut silent = Asking::new(1);
        let waits: Vec<i32> = (0..6)
            .map(|_| {
                silent.went_unanswered();
                1 << silent.doublings
            })
            .collect();
        assert_eq!(waits, [1, 1, 2, 4, 8, 8]);
    }
}
