//! Agreed time as the members with the state count it.
//!
//! All their ordered messages carry a stamp: the latest agreed time that the sender knew of, and what its own
//! clock has counted since. A stamp counts if its sender has the state at the point at which the message
//! stands in the order, and if it is later than what is agreed. So time never goes back, and a command finds
//! the time at which its sender gave it, also after an hour in which no member said anything: what it wants
//! to happen ten seconds later does not happen at once.

use std::time::Duration;

use antiphon_core::Time;

use crate::AgreedTime;

/// The clock of a member with the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    began: Time,
    agreed: AgreedTime,
}

impl Clock {
    /// It is this late.
    pub(super) fn start(now: Time, agreed: AgreedTime) -> Self {
        Self { began: now, agreed }
    }

    /// The stamp to put on a message.
    pub(super) fn read(&self, now: Time) -> AgreedTime {
        self.agreed.after(now.since(self.began))
    }

    /// Another member has counted more.
    pub(super) fn hear(&mut self, now: Time, stamp: AgreedTime) {
        if self.read(now) < stamp {
            *self = Self::start(now, stamp);
        }
    }

    /// When it will read this.
    pub(super) fn reaches(&self, time: AgreedTime) -> Time {
        self.began + Duration::from_millis(time.millis.saturating_sub(self.agreed.millis))
    }
}
