//! Telling a death to members: to each on a connection of its own, again and again.
//!
//! A member says on that connection whether it took the frame, and whether it could use it. A node that is in
//! no view, or in another lineage, cannot use it, and may be a member later. Only a member that could use it
//! shares it, so only such a member shortens the telling. That notice is not authenticated, and need not be:
//! a host that can forge it can as well keep the frame from arriving. It only decides whether the frame is
//! sent again.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::witness::Death;
use antiphon_wire::enquiry::Verdict;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::tcp::{Reached, enquire};

/// Each step of a telling may take this long.
const WITHIN: Duration = Duration::from_secs(1);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(300);
/// If a member is not there, or another node has its address, in so many rounds in a row, it is not told any
/// more, once another member took the certificate.
const ABSENT_ROUNDS: u8 = 3;

/// Once a member has taken it, the others are tried for so long: that member shares it with all members that
/// it reaches.
const REST: Duration = Duration::from_secs(2);

/// In place of a patience that no clock counts.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// What came of telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Handed {
    /// So many members took it.
    pub taken: usize,
    /// So many are not there: their hosts refuse, or others have their addresses.
    pub absent: usize,
    /// So many could not be reached in all that time, or were in no view in which they could have used it.
    pub unreached: usize,
}

impl fmt::Display for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, absent, unreached) = (self.taken, self.absent, self.unreached);
        write!(
            f,
            "{taken} members took it, {absent} are not there, {unreached} were not reached"
        )
    }
}

/// One member to be told.
#[derive(Debug)]
struct Listener {
    addresses: Vec<SocketAddr>,
    /// The address that is next.
    next: usize,
    /// How often in a row something said that it is not there.
    absent: u8,
}

/// What came of telling one member once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Taken,
    /// It is there, and cannot use it now.
    Unused,
    Absent,
    Nothing,
}

/// Tells a death to all members that it names, until each has taken it or is not there. This takes at most
/// `patience`, and at most two seconds once a member has taken it. It tells at least once, which takes up to
/// two seconds. `of` is where the dead node was reached: injected faults act on the witness of a node as on
/// the node.
///
/// # Cancel safety
/// Nothing is sent any more if the future is dropped.
pub async fn tell(mut death: Death, of: SocketAddr, patience: Duration) -> Handed {
    let now = Instant::now();
    // Longer than any clock counts is for ever.
    let mut until = now.checked_add(patience).unwrap_or(now + FOR_EVER);
    let mut handed = Handed::default();
    let mut listeners: Vec<Listener> = death.tell().iter().cloned().map(Listener::new).collect();
    while !listeners.is_empty() {
        let mut round = JoinSet::new();
        for mut listener in listeners.drain(..) {
            let (to, frame) = (listener.address(), death.frame());
            round.spawn(async move { (answer(enquire(to, of, &frame, WITHIN).await), listener) });
        }
        while let Some(told) = round.join_next().await {
            // Fails only if the task panicked: an enquiry has nothing to panic for.
            let Ok((answer, mut listener)) = told else {
                continue;
            };
            match answer {
                Answer::Taken => {
                    handed.taken += 1;
                    until = until.min(Instant::now() + REST);
                }
                // R9: a refusal proves nothing, it may come from a firewall. It is enough only if another
                // member knows of the death.
                Answer::Absent if listener.is_gone() && handed.taken > 0 => handed.absent += 1,
                Answer::Absent => listeners.push(listener),
                Answer::Unused | Answer::Nothing => {
                    listener.absent = 0;
                    listeners.push(listener);
                }
            }
        }
        if Instant::now() >= until {
            break;
        }
        if !listeners.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
    handed.unreached = listeners.len();
    handed
}

impl Listener {
    fn new(addresses: Vec<SocketAddr>) -> Self {
        Self {
            addresses,
            next: 0,
            absent: 0,
        }
    }

    /// Where to try it now: one address after the other. There is at least one.
    fn address(&mut self) -> SocketAddr {
        let address = self.addresses[self.next % self.addresses.len()];
        self.next += 1;
        address
    }

    /// One more answer that it is not there. Returns whether it was the last one needed: so many at each
    /// address.
    fn is_gone(&mut self) -> bool {
        self.absent = self.absent.saturating_add(1);
        usize::from(self.absent) >= usize::from(ABSENT_ROUNDS) * self.addresses.len()
    }
}

fn answer(reached: Reached) -> Answer {
    match reached {
        Reached::Node { notice, .. } if notice.verdict == Verdict::Taken => Answer::Taken,
        Reached::Node { notice, .. } if notice.verdict == Verdict::Unused => Answer::Unused,
        // Another cluster's node, or no node at all.
        Reached::Node { .. } | Reached::Refused | Reached::Stranger(_) => Answer::Absent,
        _ => Answer::Nothing,
    }
}
