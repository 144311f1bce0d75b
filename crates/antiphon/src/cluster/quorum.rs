//! How a node takes part in decisions about the cluster.

use antiphon_core::{EngineKind, Policy};

use super::Builder;

impl Builder {
    /// Which component may go on after a partition; the majority unless given.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Whether this node acts as a member of the primary only for as long as a majority answers it (G42); it
    /// does unless told otherwise. Without the lease, a node that was cut off or stopped may deliver messages
    /// while the others have gone on without it, until it learns of that. The others hold back their votes
    /// for a member with a lease, whether or not they use leases themselves. It has no effect under
    /// [`Policy::Any`], where a node that is cut off goes on as well.
    pub fn primary_lease(mut self, primary_lease: bool) -> Self {
        self.primary_lease = primary_lease;
        self
    }

    /// Whether a heartbeat that TCP may hold up goes also by UDP, on the port number that the node listens
    /// on; it does unless told otherwise. So a host that loses a third of its packets is not taken for dead
    /// while TCP waits. Nothing is sent by UDP as long as heartbeats come as they should. Where UDP does not
    /// pass, or the port is taken, this has no effect.
    pub fn udp_probes(mut self, udp_probes: bool) -> Self {
        self.udp_probes = udp_probes;
        self
    }

    /// How node views are agreed on, the same at all nodes; [`EngineKind::Coordinator`] unless given.
    pub fn membership(mut self, membership: EngineKind) -> Self {
        self.membership = membership;
        self
    }

    /// Votes in quorums; 1 unless given, 0 never counts. Nodes without a vote wait for one that has any
    /// before they found a cluster, and such a node founds none alone.
    pub fn weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }
}
