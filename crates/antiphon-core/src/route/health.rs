//! How one link is doing.

use std::net::SocketAddr;
use std::time::Duration;

use crate::{LinkCause, Time};

/// A link fails if it was not acknowledged for this many rounds in a row in which others of the peer's links
/// were.
const MISSED: u32 = 3;
/// A link must be acknowledged for this many rounds before it is used: at first, and after it failed.
const UNPROVEN_ROUNDS: u32 = 2;
const RETURN_ROUNDS: u32 = 10;
/// At most this many, for a link that fails again and again.
const MAX_RETURN_ROUNDS: u32 = 80;
/// A link must be up for this many rounds before a failure counts as its first again.
const STEADY_ROUNDS: u32 = 300;

/// One link of a peer.
#[derive(Debug, Clone)]
pub(super) struct Health {
    pub(super) addr: SocketAddr,
    /// The highest round that the peer has said to have heard here.
    pub(super) acked: u64,
    /// That number when it was looked at last.
    judged: u64,
    missed: u32,
    state: State,
    /// Rounds that it must be acknowledged for after it fails.
    needed: u32,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Up { since: Time },
    Down { good: u32 },
}

impl Health {
    /// The first address of a node, which is used until it turns out not to work.
    pub(super) fn trusted(now: Time, addr: SocketAddr) -> Self {
        Self {
            addr,
            acked: 0,
            judged: 0,
            missed: 0,
            state: State::Up { since: now },
            needed: UNPROVEN_ROUNDS,
        }
    }

    /// A further address, which must show first that it works.
    pub(super) fn unproven(addr: SocketAddr) -> Self {
        Self {
            state: State::Down { good: 0 },
            ..Self::trusted(Time::ZERO, addr)
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Whether it was acknowledged since it was looked at last.
    pub(super) fn has_advanced(&self) -> bool {
        self.acked > self.judged
    }

    /// Looks at a round. `any`: some link of the peer has advanced in it.
    pub(super) fn judge(&mut self, now: Time, any: bool, interval: Duration) -> Option<LinkCause> {
        let advanced = self.has_advanced();
        self.judged = self.acked;
        if advanced {
            self.missed = 0;
        } else if any {
            self.missed += 1;
        }
        match &mut self.state {
            State::Up { .. } if self.missed >= MISSED => {
                self.fail(now, interval);
                Some(LinkCause::Silent)
            }
            State::Up { .. } => None,
            State::Down { good } => {
                if advanced {
                    *good += 1;
                } else if self.missed > 1 {
                    // Rounds of two nodes drift past each other: one now and then brings no news, and the
                    // next one brings two.
                    *good = 0;
                }
                if *good < self.needed && !(planted!(FailBackAtOnce) && advanced) {
                    return None;
                }
                self.state = State::Up { since: now };
                Some(LinkCause::Works)
            }
        }
    }

    /// It does not work. True if that is news.
    pub(super) fn fail(&mut self, now: Time, interval: Duration) -> bool {
        let State::Up { since } = self.state else {
            // What it had shown so far counts no more.
            self.state = State::Down { good: 0 };
            return false;
        };
        let steady = now.since(since) >= interval * STEADY_ROUNDS;
        self.needed = if steady {
            RETURN_ROUNDS
        } else {
            (self.needed * 2).clamp(RETURN_ROUNDS, MAX_RETURN_ROUNDS)
        };
        self.state = State::Down { good: 0 };
        true
    }
}
