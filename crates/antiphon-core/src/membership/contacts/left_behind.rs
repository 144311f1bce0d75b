//! Members that were left behind: addresses where they may live on in components of their own (policy `any`).
//!
//! Nodes of different lineages send each other no heartbeats, and seeds may be gone or all on one side. So a
//! node that no longer hears former fellow members asks at their addresses, a few of them with each slow
//! Seek. It does so for as long as this process runs, through all its incarnations, until a member is there
//! again or a week is over. It is enough that one side asks; both do: the members that went on in the old
//! lineage, and those that split off from it.
//!
//! # Bounds
//! [`MAX_LEFT_BEHIND`] addresses; the oldest makes room. [`PER_ROUND`] of them with each round of Seeks.
//!
//! # When…
//! - *a member was proven dead, or left in order*: nobody asks for it. A process that starts there anew asks
//!   its seeds itself;
//! - *a member is gone for good*: a frame goes to nowhere now and then, for a week;
//! - *all nodes that knew of a member die*: their successors never met it. Then seeds, hints and locators
//!   must do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::{Cause, Departure, Evidence, NodeView};

use crate::Time;

/// The most addresses that are kept.
const MAX_LEFT_BEHIND: usize = 256;
/// So many addresses are asked in one round.
const PER_ROUND: usize = 4;
/// After this long no member is expected there any more.
const ASKED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The addresses, and when a member was left behind there.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind {
    since: BTreeMap<SocketAddr, Time>,
    /// The last address asked.
    last: Option<SocketAddr>,
}

impl LeftBehind {
    /// A primary view was installed.
    pub(crate) fn note(&mut self, now: Time, view: &NodeView) {
        let lost = view.departed.iter().filter(|departure| may_live(departure));
        if !planted!(ForgetLeftBehind) {
            self.since
                .extend(lost.map(|departure| (departure.member.addr, now)));
        }
        let members: BTreeSet<SocketAddr> = view.members.iter().map(|member| member.addr).collect();
        self.since
            .retain(|addr, since| !members.contains(addr) && now.since(*since) < ASKED_FOR);
        while self.since.len() > MAX_LEFT_BEHIND {
            let oldest = self.since.iter().min_by_key(|(_, since)| **since);
            let Some(oldest) = oldest.map(|(addr, _)| *addr) else {
                return;
            };
            self.since.remove(&oldest);
        }
        assert!(
            self.since.len() <= MAX_LEFT_BEHIND,
            "apart: {} addresses are kept",
            self.since.len()
        );
    }

    /// The addresses to ask in this round.
    pub(crate) fn turn(&mut self, now: Time) -> Vec<SocketAddr> {
        self.since.retain(|_, since| now.since(*since) < ASKED_FOR);
        let after = |addr: &&SocketAddr| self.last.is_none_or(|last| **addr > last);
        let turn: Vec<SocketAddr> = self
            .since
            .keys()
            .filter(after)
            .chain(self.since.keys().filter(|addr| !after(addr)))
            .take(PER_ROUND)
            .copied()
            .collect();
        self.last = turn.last().copied();
        turn
    }
}

fn may_live(departure: &Departure) -> bool {
    let proven = |evidence: &Evidence| *evidence == Evidence::ProofOfDeath;
    match departure.cause {
        Cause::Left | Cause::Superseded { .. } => false,
        Cause::Crashed => !departure.accusers.iter().any(|by| proven(&by.evidence)),
        Cause::Unreachable { .. } | Cause::Overridden { .. } | Cause::Separated { .. } => true,
    }
}
