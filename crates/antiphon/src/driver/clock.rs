//! The core's time: monotonic, and running on while the host is suspended, so that a node that slept knows
//! it.
//!
//! And the bound until which the application may take what was delivered. A process that was stopped with
//! unread messages must not take them when it goes on, since its node may have been removed meanwhile. So
//! each reading asks the clock itself, and not the driver, which was stopped as well.

use std::sync::atomic::{AtomicU64, Ordering};

use antiphon_core::Time;

use crate::host::Host;

/// Microseconds since its start.
pub(super) struct Clock {
    host: Host,
    start_micros: u64,
}

impl Clock {
    pub(super) fn start(host: Host) -> Self {
        Self {
            start_micros: host.micros(),
            host,
        }
    }

    /// Without a bound at first.
    pub(super) fn bound(&self) -> Bound {
        Bound {
            host: self.host.clone(),
            start_micros: self.start_micros,
            until_micros: AtomicU64::new(u64::MAX),
        }
    }

    pub(super) fn now(&self) -> Time {
        Time::from_micros(self.host.micros().saturating_sub(self.start_micros))
    }
}

/// Until when the application may take what was delivered.
#[derive(Debug)]
pub(crate) struct Bound {
    host: Host,
    start_micros: u64,
    /// As the clock's time; the largest is without end.
    until_micros: AtomicU64,
}

impl Bound {
    /// Sets the bound. Returns whether the former one had passed: then a reader may have found that, and
    /// waits.
    pub(super) fn set(&self, until: Option<Time>) -> bool {
        let micros = until.map_or(u64::MAX, Time::as_micros);
        let before = self.until_micros.swap(micros, Ordering::AcqRel);
        self.has_passed(before)
    }

    #[cfg(all(test, feature = "blocks"))]
    pub(crate) fn none() -> Self {
        Clock::start(Host::default()).bound()
    }

    /// The same, if that is earlier.
    pub(super) fn lower(&self, until: Option<Time>) {
        if let Some(until) = until {
            self.until_micros.fetch_min(until.as_micros(), Ordering::AcqRel);
        }
    }

    /// Whether it has passed.
    pub(crate) fn is_over(&self) -> bool {
        self.has_passed(self.until_micros.load(Ordering::Acquire))
    }

    fn has_passed(&self, until_micros: u64) -> bool {
        until_micros != u64::MAX && self.host.micros().saturating_sub(self.start_micros) >= until_micros
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_lowered_at_once_and_whoever_sets_it_learns_that_it_had_passed() {
        let bound = Clock::start(Host::default()).bound();
        assert!(!bound.is_over(), "there is none at first");
        let later = Time::from_micros(u64::MAX / 2);
        assert!(!bound.set(Some(later)));
        bound.lower(None);
        assert!(!bound.is_over());
        bound.lower(Some(Time::ZERO));
        bound.lower(Some(later));
        assert!(bound.is_over(), "a later one does not raise it");
        assert!(bound.set(Some(later)), "somebody may wait");
        assert!(!bound.is_over() && !bound.set(None));
    }
}
