//! Faults injected on purpose: a path to a peer that is cut, slow or lossy.
//!
//! Faults act where frames leave and enter this node. They know peers by their advertised address, so a peer
//! that restarts at its address stays cut off. Lifelines behave as if a cable were cut, as far as one end can
//! do that: what a blocked peer wrote on its lifeline, its FIN included, stays unread in the kernel until the
//! block ends. What *this* node writes on a lifeline is written all the same. A record held back in user
//! space would die with the process while the FIN goes out, and the watcher would take a stale vote for the
//! last one (R2). To cut a cable, block at both ends. Frames heard by multicast are untouched: the address
//! that they come from does not say where their sender is reached.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// What is wrong on the path to one peer, both directions unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Fault {
    /// Nothing passes, as if the cable were cut.
    pub block: bool,
    /// Frames to the peer leave this much later.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "delay_ms", with = "antiphon_core::wire::json::millis")
    )]
    pub delay: Duration,
    /// This part of the frames to the peer is lost, from 0.0 to 1.0.
    pub drop: f64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.block {
            true => f.write_str("blocked"),
            false => write!(f, "{:?} later, {} % lost", self.delay, self.drop * 100.0),
        }
    }
}

/// What is wrong, peer by peer. Peers not listed are untouched.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Faults {
    /// By advertised address.
    pub peers: BTreeMap<SocketAddr, Fault>,
}

impl Faults {
    /// Whether nothing passes between this node and the peer.
    pub fn blocks(&self, peer: SocketAddr) -> bool {
        self.peers.get(&peer).is_some_and(|fault| fault.block)
    }
}

/// The present faults, seen by every connection's task.
#[derive(Debug, Clone)]
pub(crate) struct FaultTable {
    sender: Arc<watch::Sender<Faults>>,
}

impl FaultTable {
    pub(crate) fn new() -> Self {
        Self {
            sender: Arc::new(watch::Sender::new(Faults::default())),
        }
    }

    pub(crate) fn set(&self, faults: Faults) {
        self.sender.send_replace(faults);
    }

    pub(crate) fn fault(&self, peer: SocketAddr) -> Fault {
        self.sender.borrow().peers.get(&peer).copied().unwrap_or_default()
    }

    pub(crate) fn blocks(&self, peer: SocketAddr) -> bool {
        self.sender.borrow().blocks(peer)
    }

    /// Returns once nothing blocks the peer.
    pub(crate) async fn unblocked(&self, peer: SocketAddr) {
        let mut receiver = self.sender.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|faults| !faults.blocks(peer)).await;
    }
}

/// Whether chance takes this frame.
pub(crate) fn is_lost(drop: f64) -> bool {
    if drop <= 0.0 {
        return false;
    }
    let chance = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    chance < drop
}
