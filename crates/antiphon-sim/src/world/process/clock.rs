//! What a process takes for the time.

use antiphon_core::Time;

use crate::agenda::Micros;

/// A host's clock: starts at zero with the process, and drifts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) origin: Micros,
    pub(super) drift_ppm: i64,
}

impl Clock {
    pub(super) fn local(self, now: Micros) -> Time {
        let passed = i128::from(now - self.origin);
        let drifted = passed + passed * i128::from(self.drift_ppm) / 1_000_000;
        Time::from_micros(drifted as u64)
    }

    pub(super) fn global(self, local: Time) -> Micros {
        let wanted = i128::from(local.as_micros());
        let guess = wanted * 1_000_000 / (1_000_000 + i128::from(self.drift_ppm));
        let mut at = self.origin.saturating_add(guess as u64);
        while self.local(at) < local {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drifting_clock_reaches_each_deadline_and_not_earlier() {
        for drift_ppm in [-200, 0, 137] {
            let clock = Clock {
                origin: 5_000,
                drift_ppm,
            };
            for deadline in [0, 1, 999, 1_000_000, 77_777_777] {
                let deadline = Time::from_micros(deadline);
                let at = clock.global(deadline);
                assert!(clock.local(at) >= deadline);
                assert!(at == clock.origin || clock.local(at - 1) < deadline);
            }
        }
    }
}
