//! Addresses that were given as nodes', and at which an agent serves programs: the likeliest slip in a list
//! of seeds.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use antiphon_net::tcp::{GIVE_THE_NODES_PORT, IS_AN_AGENTS_PORT};

/// A node dials the addresses of its settings again and again; this many are more than anybody gives.
const MAX_KNOWN: usize = 256;

/// Those that are known.
#[derive(Debug, Default)]
pub(super) struct Agents {
    known: BTreeSet<SocketAddr>,
}

impl Agents {
    /// An agent has answered there. It is logged once.
    pub(super) fn note(&mut self, node: &str, to: SocketAddr) {
        if self.known.len() < MAX_KNOWN && self.known.insert(to) {
            tracing::warn!(
                target: "antiphon::net", %node, %to,
                "this {IS_AN_AGENTS_PORT}: {GIVE_THE_NODES_PORT}"
            );
        }
    }

    /// Those of them that are among these addresses.
    pub(super) fn among(&self, addrs: &[SocketAddr]) -> Vec<SocketAddr> {
        let known = addrs.iter().filter(|addr| self.known.contains(*addr));
        known.copied().collect()
    }

    pub(super) fn all(&self) -> Vec<SocketAddr> {
        self.known.iter().copied().collect()
    }
}
