//! The core's time: monotonic, and running on while the host is suspended, so that a node that slept knows it.

use antiphon_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// Microseconds since its start.
pub(super) struct Clock {
    start_micros: u64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            start_micros: read_micros(),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_micros(read_micros().saturating_sub(self.start_micros))
    }
}

fn read_micros() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    // Both parts are never negative on a clock that counts from the host's start.
    (now.tv_sec as u64) * 1_000_000 + (now.tv_nsec as u64) / 1_000
}
