//! The nodes refused lately, and why. The protocol does not use this; it answers people who ask why a node
//! does not come.

use std::collections::VecDeque;
use std::net::SocketAddr;

use antiphon_wire::Incarnation;

use crate::Time;

/// Refusals that are remembered; the oldest go first.
const MAX_REFUSALS: usize = 32;

/// A node that asked to be admitted, and was not.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) incarnation: Incarnation,
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    pub(crate) reason: String,
    pub(crate) fatal: bool,
    /// How often in a row.
    pub(crate) times: u32,
    pub(crate) last: Time,
}

/// The last refusals of this process, across its incarnations; the latest last.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    last: VecDeque<Refusal>,
}

impl Refusals {
    pub(crate) fn note(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        (name, addr): (&str, SocketAddr),
        (reason, fatal): (&str, bool),
    ) {
        let again = self
            .last
            .iter()
            .position(|known| known.incarnation == incarnation && known.reason == reason);
        // A refused node asks again some times a second, and must not push out the others.
        let times = match again.and_then(|at| self.last.remove(at)) {
            Some(known) => known.times.saturating_add(1),
            None => 1,
        };
        if self.last.len() >= MAX_REFUSALS {
            self.last.pop_front();
        }
        self.last.push_back(Refusal {
            incarnation,
            name: name.to_owned(),
            addr,
            reason: reason.to_owned(),
            fatal,
            times,
            last: now,
        });
        assert!(
            self.last.len() <= MAX_REFUSALS,
            "refusals: {} are remembered",
            self.last.len()
        );
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Refusal> {
        self.last.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_asks_again_and_again_is_one_entry_and_pushes_nobody_out() {
        let mut refusals = Refusals::default();
        let addr = SocketAddr::from(([127, 0, 0, 1], 1));
        let at = |ms: u64| Time::from_micros(ms * 1000);
        for ms in 0..100 {
            refusals.note(at(ms), Incarnation(1), ("a", addr), ("taken", false));
        }
        refusals.note(at(100), Incarnation(2), ("b", addr), ("full", true));
        let shown: Vec<_> = refusals
            .iter()
            .map(|refusal| (&refusal.name[..], refusal.times))
            .collect();
        assert_eq!(shown, [("a", 100), ("b", 1)]);
        for number in 0..2 * MAX_REFUSALS as u64 {
            refusals.note(
                at(200 + number),
                Incarnation(number.into()),
                ("c", addr),
                ("full", true),
            );
        }
        assert_eq!(refusals.iter().count(), MAX_REFUSALS);
        let latest = refusals.iter().last().map(|refusal| refusal.last);
        assert_eq!(latest, Some(at(200 + 2 * MAX_REFUSALS as u64 - 1)));
    }
}
