//! The last primary node view, as groups need it.

use antiphon_wire::{GroupViewId, Incarnation, ViewId};

/// View ids of a group count up from 1. No member of this program gets this far. Above the last number there
/// is none, and the leader would use a view id twice (R5).
pub(crate) const MAX_K: u32 = u32::MAX / 2;

/// What groups need of the last primary node view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) id: ViewId,
    pub(crate) number: u32,
    pub(crate) members: Vec<Incarnation>,
    /// Their names.
    pub(crate) names: Vec<String>,
}

impl Nodes {
    /// Whether the view has this member.
    pub(crate) fn has(&self, member: Incarnation) -> bool {
        self.members.contains(&member)
    }

    /// The member of a group that leads it: the survivor of lowest group rank (R12).
    pub(crate) fn leader_of(&self, group: &[Incarnation]) -> Option<Incarnation> {
        if planted!(LeadByNodeRank) {
            return self.members.iter().find(|node| group.contains(node)).copied();
        }
        group.iter().find(|member| self.has(**member)).copied()
    }

    /// The id of a group's view that is decided under this node view.
    pub(crate) fn group_view(&self, k: u32) -> GroupViewId {
        GroupViewId {
            node: self.id,
            number: self.number,
            k,
        }
    }

    /// Whether a view of a group may have this id: its node view is this one or an earlier one.
    pub(crate) fn allows(&self, id: GroupViewId) -> bool {
        id.k < MAX_K && (id.node, id.number) <= (self.id, self.number)
    }
}
