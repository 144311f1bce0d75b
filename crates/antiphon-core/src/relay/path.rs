//! How one member is heard directly.

use std::time::Duration;

use antiphon_wire::record::Directly;

use crate::Time;

/// Heartbeats that a path must be heard on for, without a gap, after it failed.
const RETURN_BEATS: u32 = 10;
/// And if it fails again and again.
const MAX_RETURN_BEATS: u32 = 80;
/// Heartbeats that it must have been steady for before a failure of it is its first again.
const STEADY_BEATS: u32 = 300;

/// The direct path from one member to here.
#[derive(Debug)]
pub(super) struct Inbound {
    last: Time,
    state: State,
    /// Heartbeats that it must be heard on for after it fails.
    needed: u32,
}

#[derive(Debug)]
enum State {
    Steady {
        since: Time,
    },
    /// Heard again, without a gap since then.
    Returning {
        since: Time,
    },
    Dead,
}

impl Inbound {
    /// Trusted, until it turns out not to work.
    pub(super) fn new(now: Time) -> Self {
        Self {
            last: now,
            state: State::Steady { since: now },
            needed: RETURN_BEATS / 2,
        }
    }

    pub(super) fn directly(&self) -> Directly {
        match self.state {
            State::Steady { .. } => Directly::Steadily,
            State::Returning { .. } => Directly::Lately,
            State::Dead => Directly::Never,
        }
    }

    /// A frame came this way. True if it is the first after a while.
    pub(super) fn heard(&mut self, now: Time, silence: Duration) -> bool {
        let gap = now.since(self.last) > silence;
        self.last = now;
        match &mut self.state {
            State::Steady { .. } => false,
            State::Returning { since } => {
                if gap {
                    *since = now;
                }
                false
            }
            State::Dead => {
                self.state = State::Returning { since: now };
                true
            }
        }
    }

    /// Looks at the clock.
    pub(super) fn judge(&mut self, now: Time, silence: Duration, heartbeat: Duration) {
        let silent = now.since(self.last) > silence;
        match self.state {
            State::Steady { since } if silent => {
                let steady = now.since(since) >= heartbeat * STEADY_BEATS;
                self.needed = if steady {
                    RETURN_BEATS
                } else {
                    (self.needed * 2).clamp(RETURN_BEATS, MAX_RETURN_BEATS)
                };
                self.state = State::Dead;
            }
            State::Returning { .. } if silent => self.state = State::Dead,
            State::Returning { since } if now.since(since) >= heartbeat * self.needed => {
                self.state = State::Steady { since: now };
            }
            State::Steady { .. } | State::Returning { .. } | State::Dead => {}
        }
    }

    /// This node was not running for so long.
    pub(super) fn forgive(&mut self, now: Time, missed: Duration) {
        self.last = (self.last + missed).min(now);
        if let State::Returning { since } = &mut self.state {
            *since = (*since + missed).min(now);
        }
    }
}
