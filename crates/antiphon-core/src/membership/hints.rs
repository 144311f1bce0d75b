//! Whom to ask besides the seeds: addresses that are found while the node runs.
//!
//! ```text
//!   names, files, multicast, an application's own ──► set ─────────┐
//!   locators ── Known ──► tell ───────────────────────────────────┼─► turn: some of them with each round of Seeks
//!   others who seek ── Seek { others } ──► tell (only with `expect`) ┘
//!   locators ◄── Seek ── due                  asked for addresses; hearing the Seek they know this node
//! ```
//!
//! A hint is only somebody to ask. It is no vote, no candidate and no member: it counts for nothing until whoever is
//! there has spoken with a frame that opens. So hints may be missing, late, wrong, out of date, or different at each
//! node, and all that can come of it is that nodes find each other later. Whether a cluster is founded does not depend on them (see
//! [`super::founding`]).
//!
//! # Bounds
//! [`MAX_HINTS`] addresses from outside, as many that were told, [`MAX_LOCATORS`] locators; a round of Seeks goes to
//! [`PER_ROUND`] of the hints, by turns. What was told and is not told again is forgotten after a minute, and the oldest makes room.
//!
//! # When…
//! - *no hint is there*: the node asks its seeds, and waits;
//! - *hints are wrong*: frames to nowhere, and frames that whoever is there refuses;
//! - *hints change*: the new ones are asked at once, the old ones no more; who has answered is known by its answers;
//! - *a locator dies*: it is asked on, at a slower pace, while everything else goes on; what it told lasts a minute.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::Time;

/// The most addresses that are kept of what [`Node::set_hints`](crate::Node::set_hints) gives, and of what others tell.
pub const MAX_HINTS: usize = 256;
/// The most locators that are asked.
pub const MAX_LOCATORS: usize = 16;
/// Hints asked in one round.
const PER_ROUND: usize = 16;
/// What was told is forgotten after this long.
const TOLD_FOR: Duration = Duration::from_secs(60);

/// Addresses found at run time. What is given replaces what was given before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// Where nodes of the cluster may be. The first [`MAX_HINTS`] are used.
    pub nodes: Vec<SocketAddr>,
    /// Where locators may be. The first [`MAX_LOCATORS`] are used.
    pub locators: Vec<SocketAddr>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    at: Option<Time>,
    answered: Option<Time>,
}

/// What is known of whom to ask.
#[derive(Debug, Default)]
pub(crate) struct Whom {
    hinted: BTreeSet<SocketAddr>,
    told: BTreeMap<SocketAddr, Time>,
    locators: BTreeMap<SocketAddr, Asked>,
    /// The last one asked by turns.
    last: Option<SocketAddr>,
}

impl Whom {
    /// Replaces what was given from outside; whether there is anybody new.
    pub(crate) fn set(&mut self, hints: Hints) -> bool {
        let hinted: BTreeSet<SocketAddr> = hints.nodes.into_iter().take(MAX_HINTS).collect();
        let locators: BTreeSet<SocketAddr> = hints.locators.into_iter().take(MAX_LOCATORS).collect();
        let news = !hinted.is_subset(&self.hinted)
            || locators
                .iter()
                .any(|locator| !self.locators.contains_key(locator));
        self.hinted = hinted;
        self.locators = locators
            .into_iter()
            .map(|locator| (locator, self.locators.get(&locator).copied().unwrap_or_default()))
            .collect();
        news
    }

    /// Somebody knows of a node at an address; whether that is news.
    pub(crate) fn tell(&mut self, now: Time, addr: SocketAddr) -> bool {
        if addr.port() == 0 || addr.ip().is_unspecified() || addr.ip().is_multicast() {
            return false;
        }
        let news = self.told.insert(addr, now).is_none() && !self.hinted.contains(&addr);
        if self.told.len() > MAX_HINTS {
            let oldest = self.told.iter().min_by_key(|(_, at)| **at).map(|(addr, _)| *addr);
            oldest.map(|oldest| self.told.remove(&oldest));
        }
        news
    }

    /// Whom to ask in this round.
    pub(crate) fn turn(&mut self, now: Time) -> Vec<SocketAddr> {
        self.told.retain(|_, at| now.since(*at) < TOLD_FOR);
        let all = self.all();
        let after = |addr: &&SocketAddr| self.last.is_none_or(|last| **addr > last);
        let turn: Vec<SocketAddr> = all
            .iter()
            .filter(after)
            .chain(all.iter().filter(|addr| !after(addr)))
            .take(PER_ROUND)
            .copied()
            .collect();
        self.last = turn.last().copied();
        turn
    }

    /// How many rounds it takes to ask all of them; at least 1.
    pub(crate) fn rounds(&self) -> u32 {
        let rounds = self.all().len().div_ceil(PER_ROUND).max(1);
        u32::try_from(rounds).unwrap_or(u32::MAX)
    }

    /// How many there are.
    pub(crate) fn known(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> BTreeSet<SocketAddr> {
        self.hinted.iter().chain(self.told.keys()).copied().collect()
    }

    /// The locators to ask now: those that have answered lately after `known`, the others after `silent`.
    pub(crate) fn due(&mut self, now: Time, known: Duration, silent: Duration) -> Vec<SocketAddr> {
        let mut due = Vec::new();
        for (addr, asked) in &mut self.locators {
            let heard = asked.answered.is_some_and(|at| now.since(at) < known * 3);
            let pace = if heard { known } else { silent };
            if asked.at.is_none_or(|at| now.since(at) >= pace) {
                asked.at = Some(now);
                due.push(*addr);
            }
        }
        due
    }

    /// This node has become a member: its locators are told at once.
    pub(crate) fn register_anew(&mut self) {
        for asked in self.locators.values_mut() {
            asked.at = None;
        }
    }

    /// A locator answered.
    pub(crate) fn answered(&mut self, now: Time, addr: SocketAddr) {
        if let Some(asked) = self.locators.get_mut(&addr) {
            asked.answered = Some(now);
        }
    }

    pub(crate) fn is_locator(&self, addr: SocketAddr) -> bool {
        self.locators.contains_key(&addr)
    }

    /// The locators that have not answered for this long.
    pub(crate) fn silent_locators(&self, now: Time, within: Duration) -> impl Iterator<Item = SocketAddr> {
        self.locators
            .iter()
            .filter(move |(_, asked)| asked.answered.is_none_or(|at| now.since(at) > within))
            .map(|(addr, _)| *addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn hints(ports: std::ops::Range<u16>) -> Hints {
        Hints {
            nodes: ports.map(addr).collect(),
            locators: Vec::new(),
        }
    }

    #[test]
    fn all_hints_have_their_turn_and_none_twice_in_a_round() {
        let mut whom = Whom::default();
        assert!(whom.set(hints(1..41)));
        assert!(!whom.set(hints(1..41)), "nothing new");
        assert_eq!(whom.rounds(), 3);
        let mut asked = BTreeSet::new();
        for _ in 0..3 {
            let turn = whom.turn(Time::ZERO);
            let different: BTreeSet<_> = turn.iter().collect();
            assert_eq!(different.len(), turn.len());
            asked.extend(turn);
        }
        assert_eq!(asked.len(), 40);
    }

    #[test]
    fn hints_are_bounded_and_what_is_not_told_again_is_forgotten() {
        let mut whom = Whom::default();
        whom.set(hints(1..1000));
        assert_eq!(whom.all().len(), MAX_HINTS);
        whom.set(Hints::default());
        let later = |seconds| Time::ZERO + Duration::from_secs(seconds);
        for port in 1..1000 {
            assert!(whom.tell(later(u64::from(port) / 100), addr(port)));
        }
        assert_eq!(whom.all().len(), MAX_HINTS);
        assert!(whom.all().contains(&addr(999)), "the latest are kept");
        assert!(!whom.tell(later(40), addr(999)));
        whom.turn(later(75));
        assert_eq!(whom.all(), BTreeSet::from([addr(999)]));
        assert!(!whom.tell(later(75), SocketAddr::from(([0, 0, 0, 0], 7400))));
        assert!(!whom.tell(later(75), addr(0)));
    }

    #[test]
    fn a_locator_that_answers_is_asked_less_often() {
        let mut whom = Whom::default();
        let locators = vec![addr(1), addr(2)];
        whom.set(Hints {
            nodes: Vec::new(),
            locators: locators.clone(),
        });
        let (known, silent) = (Duration::from_secs(10), Duration::from_secs(1));
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        assert_eq!(whom.due(at(0), known, silent), locators);
        whom.answered(at(0), addr(1));
        assert_eq!(whom.due(at(1), known, silent), [addr(2)]);
        assert_eq!(whom.silent_locators(at(1), known).collect::<Vec<_>>(), [addr(2)]);
        assert_eq!(whom.due(at(10), known, silent), locators);
        assert_eq!(whom.due(at(31), known, silent), locators);
        assert_eq!(whom.due(at(32), known, silent), locators, "it has fallen silent");
    }
}
