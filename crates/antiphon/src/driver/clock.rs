//! The core's time: monotonic, and running on while the host is suspended, so that a node that slept knows it.
//!
//! And until when what was delivered may be taken: whoever was stopped with messages unread must not take them when it goes on, since it may have been
//! removed meanwhile. So that is asked with each reading, and not of the driver, which was stopped as well.

use std::sync::atomic::{AtomicU64, Ordering};

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

    /// Without a bound at first.
    pub(super) fn bound(&self) -> Bound {
        Bound {
            start_micros: self.start_micros,
            until_micros: AtomicU64::new(u64::MAX),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_micros(read_micros().saturating_sub(self.start_micros))
    }
}

/// Until when the application may take what was delivered.
#[derive(Debug)]
pub(crate) struct Bound {
    start_micros: u64,
    /// As the clock's time; the largest is without end.
    until_micros: AtomicU64,
}

impl Bound {
    pub(super) fn set(&self, until: Option<Time>) {
        let micros = until.map_or(u64::MAX, Time::as_micros);
        self.until_micros.store(micros, Ordering::Release);
    }

    /// Whether it has passed.
    pub(crate) fn is_over(&self) -> bool {
        let until = self.until_micros.load(Ordering::Acquire);
        until != u64::MAX && read_micros().saturating_sub(self.start_micros) >= until
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
