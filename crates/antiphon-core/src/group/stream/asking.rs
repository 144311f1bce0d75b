//! What a member has asked for of a sender's messages, and when it asks again.

use std::time::Duration;

use crate::{Profile, Time};

/// How often the retransmit interval is doubled.
const MAX_DOUBLINGS: u32 = 3;
/// It is, after so many questions of which no answer came.
const MAX_UNANSWERED: u32 = 2;

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
    /// The first message that was missing when one came last.
    pub(super) next: u64,
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
            next: held,
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
        if self.bytes > 0 || self.unanswered > MAX_UNANSWERED {
            self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        }
        (self.upto, self.again_at) = (0, None);
    }
}
