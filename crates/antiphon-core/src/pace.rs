//! How many enquiries a node answers in a second.

use std::time::Duration;

use crate::Time;

/// Enquiries that a node answers in a second. A connection to where an answer goes stays for ten seconds, so
/// these and their addresses stay far below the connections that a node may open.
pub(crate) const MOST_A_SECOND: u32 = 16;

/// How many enquiries were answered lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    since: Time,
    answered: u32,
}

impl Pace {
    /// Whether one more may be answered now; if so, it counts.
    pub(crate) fn allows(&mut self, now: Time) -> bool {
        if now.since(self.since) >= Duration::from_secs(1) {
            *self = Self {
                since: now,
                answered: 0,
            };
        }
        let allows = self.answered < MOST_A_SECOND;
        self.answered += u32::from(allows);
        allows
    }
}
