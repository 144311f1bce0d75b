//! How a node takes part in decisions about the cluster.

use antiphon_core::{EngineKind, Policy};

use super::Builder;

impl Builder {
    /// Who may go on after a partition; the majority unless given.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How node views are agreed on, the same at all nodes; [`EngineKind::Coordinator`] unless given.
    pub fn membership(mut self, membership: EngineKind) -> Self {
        self.membership = membership;
        self
    }

    /// Votes in quorums; 1 unless given, 0 never counts.
    pub fn weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }
}
