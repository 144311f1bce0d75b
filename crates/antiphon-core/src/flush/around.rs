//! What a flush sees of its group.

use antiphon_wire::{GroupId, Incarnation};

use crate::group::direct::Direct;
use crate::group::nodes::Nodes;
use crate::group::stream::Stream;
use crate::{Profile, Time};

/// What a flush sees of its group. It changes none of it.
pub(crate) struct Around<'a> {
    pub(crate) now: Time,
    pub(crate) me: Incarnation,
    pub(crate) node: &'a Nodes,
    pub(crate) profile: &'a Profile,
    pub(crate) group: GroupId,
    pub(crate) name: &'a str,
    /// The present view of the group, and what is held of it.
    pub(crate) stream: &'a Stream,
    pub(crate) direct: &'a Direct,
}

impl Around<'_> {
    /// The member that leads the group now.
    pub(super) fn leader(&self) -> Option<Incarnation> {
        self.node.leader_of(&self.stream.members)
    }

    pub(super) fn leads(&self) -> bool {
        self.leader() == Some(self.me)
    }

    /// When a flush has stalled if nothing comes.
    pub(super) fn stall_at(&self) -> Time {
        self.now + self.profile.flush_stall
    }

    /// Whether a member of the present view is missing in the node view.
    pub(super) fn has_departures(&self) -> bool {
        self.stream.members.iter().any(|member| !self.node.has(*member))
    }
}
