//! How one member is heard directly.

use std::time::Duration;

use antiphon_wire::record::Directly;

use crate::Time;

/// A path that failed must be heard on for this many heartbeats, without a gap, before it is used again.
const RETURN_BEATS: u32 = 10;
/// At most this many, for a path that fails again and again.
const MAX_RETURN_BEATS: u32 = 80;
/// A path must have been steady for this many heartbeats before a failure counts as its first again.
const STEADY_BEATS: u32 = 300;

/// A silence that has ended: when it began, and after which heartbeat of the member.
#[derive(Debug, Clone, Copy)]
struct Silence {
    from: Time,
    beat: u64,
}

/// The direct path from one member to here.
#[derive(Debug)]
pub(super) struct Inbound {
    last: Time,
    /// The number of the member's last heartbeat that came this way; 0 before the first.
    beat: u64,
    state: State,
    /// Heartbeats that it must be heard on for after it fails, and before the last time that it failed.
    needed: u32,
    needed_before: u32,
}

#[derive(Debug)]
enum State {
    Steady {
        since: Time,
    },
    /// Heard again, without a gap since then.
    Returning {
        since: Time,
        silence: Silence,
    },
    Dead,
}

impl Inbound {
    /// Trusted, until it turns out not to work.
    pub(super) fn new(now: Time) -> Self {
        Self {
            last: now,
            beat: 0,
            state: State::Steady { since: now },
            needed: RETURN_BEATS / 2,
            needed_before: RETURN_BEATS / 2,
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
        let gap = self.is_silent(now, silence);
        let silence = Silence {
            from: std::mem::replace(&mut self.last, now),
            beat: self.beat,
        };
        match self.state {
            State::Returning { .. } if gap => {
                self.state = State::Returning { since: now, silence };
                false
            }
            State::Steady { .. } | State::Returning { .. } => false,
            State::Dead => {
                self.state = State::Returning { since: now, silence };
                true
            }
        }
    }

    /// A heartbeat of the member came this way.
    pub(super) fn beat_came(&mut self, number: u64) {
        self.beat = self.beat.max(number);
    }

    /// Whether the member itself was silent, and not the path: a heartbeat after it is heard again, it has
    /// made less than half of the heartbeats that it should have made since.
    fn was_late(&self, now: Time, since: Time, silence: Silence, heartbeat: Duration) -> bool {
        let made = u32::try_from(self.beat - silence.beat).unwrap_or(u32::MAX);
        let known =
            !planted!(RelayWhenStarved) && silence.beat > 0 && made > 0 && now.since(since) >= heartbeat;
        known && heartbeat.saturating_mul(made) * 2 <= now.since(silence.from)
    }

    /// Whether the path was good, and nothing came this way for so long.
    pub(super) fn fell_silent(&self, now: Time, silence: Duration) -> bool {
        self.is_silent(now, silence) && !matches!(self.state, State::Dead)
    }

    fn is_silent(&self, now: Time, silence: Duration) -> bool {
        now.since(self.last) > silence
    }

    /// Looks at the clock.
    pub(super) fn judge(&mut self, now: Time, silence: Duration, heartbeat: Duration) {
        let silent = self.is_silent(now, silence);
        match self.state {
            State::Steady { since } if silent => {
                let steady = now.since(since) >= heartbeat * STEADY_BEATS;
                self.needed_before = self.needed;
                self.needed = if steady {
                    RETURN_BEATS
                } else {
                    (self.needed * 2).clamp(RETURN_BEATS, MAX_RETURN_BEATS)
                };
                self.state = State::Dead;
            }
            State::Returning { .. } if silent => self.state = State::Dead,
            State::Returning { since, silence } if self.was_late(now, since, silence, heartbeat) => {
                self.needed = self.needed_before;
                self.state = State::Steady { since: now };
            }
            State::Returning { since, .. } if now.since(since) >= heartbeat * self.needed => {
                self.state = State::Steady { since: now };
            }
            State::Steady { .. } | State::Returning { .. } | State::Dead => {}
        }
    }

    /// This node was not running for so long.
    pub(super) fn forgive(&mut self, now: Time, missed: Duration) {
        self.last = (self.last + missed).min(now);
        if let State::Returning { since, .. } = &mut self.state {
            *since = (*since + missed).min(now);
        }
    }
}
