//! Which members are asked for probes, and which are sent some.

use std::time::Duration;

use crate::Time;

/// A member is asked for probes until its heartbeats came for this many heartbeats without a gap.
pub(crate) const STEADY_BEATS: u32 = 5;

/// Whether a member is asked for probes.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    /// When its last heartbeat came that was no probe.
    pub(crate) heartbeat: Time,
    pub(crate) state: State,
}

#[derive(Debug, Clone)]
pub(crate) enum State {
    /// Its heartbeats come.
    Heard,
    Asked {
        /// Since when they come without a gap.
        since: Time,
        /// When it is asked next.
        next: Time,
    },
    /// It was asked for as long as it is of any use.
    GivenUp,
}

/// A member that wants probes.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) until: Time,
    pub(crate) next: Time,
}

impl Asking {
    pub(crate) fn new(now: Time) -> Self {
        Self {
            heartbeat: now,
            state: State::Heard,
        }
    }

    /// A heartbeat came that was no probe. One is missed after such a `pause`.
    pub(crate) fn heard(&mut self, now: Time, heartbeat: Duration, pause: Duration) {
        let gap = now.since(self.heartbeat) > pause;
        self.heartbeat = now;
        match &mut self.state {
            State::Heard => {}
            State::Asked { since, .. } if gap => *since = now,
            State::Asked { since, .. } if now.since(*since) < heartbeat * STEADY_BEATS => {}
            State::Asked { .. } | State::GivenUp => self.state = State::Heard,
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.state, State::Asked { .. })
    }

    /// Whether a probe is due that asks it.
    pub(crate) fn is_due(&mut self, now: Time, heartbeat: Duration, pause: Duration, useless: bool) -> bool {
        let silent = now.since(self.heartbeat);
        match &mut self.state {
            State::GivenUp => false,
            _ if useless => {
                self.state = State::GivenUp;
                false
            }
            State::Heard if silent < pause => false,
            State::Heard => {
                self.state = State::Asked {
                    since: now,
                    next: now + heartbeat / 2,
                };
                true
            }
            State::Asked { next, .. } => {
                let due = *next <= now;
                if due {
                    *next = now + heartbeat / 2;
                }
                due
            }
        }
    }

    pub(crate) fn deadline(&self, pause: Duration) -> Option<Time> {
        match self.state {
            State::Heard => Some(self.heartbeat + pause),
            State::Asked { next, .. } => Some(next),
            State::GivenUp => None,
        }
    }

    pub(crate) fn forgive(&mut self, now: Time, missed: Duration) {
        self.heartbeat = (self.heartbeat + missed).min(now);
    }
}
