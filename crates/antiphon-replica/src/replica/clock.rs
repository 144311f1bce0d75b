//! Agreed time as its leader counts it.
//!
//! The leader is the most senior member with the state. All its ordered messages carry a stamp: the agreed
//! time at which it began to lead, and what its own clock has counted since. A member takes a stamp only from
//! the leader of the point at which the message stands in the order, and only if it is later than what is
//! agreed. So a message that a former leader left behind changes nothing, and time never goes back.

use std::time::Duration;

use antiphon_core::Time;

use crate::AgreedTime;

/// The clock of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    began: Time,
    agreed: AgreedTime,
}

impl Clock {
    /// This member leads from here on.
    pub(super) fn start(now: Time, agreed: AgreedTime) -> Self {
        Self { began: now, agreed }
    }

    /// The stamp to put on a message.
    pub(super) fn read(&self, now: Time) -> AgreedTime {
        self.agreed.after(now.since(self.began))
    }

    /// When it will read this.
    pub(super) fn reaches(&self, time: AgreedTime) -> Time {
        self.began + Duration::from_millis(time.millis.saturating_sub(self.agreed.millis))
    }
}
