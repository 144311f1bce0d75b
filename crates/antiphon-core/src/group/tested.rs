//! Windows for tests: what this node has of its groups that no application sees (see `node/tested.rs`).

use antiphon_wire::{GroupViewId, Incarnation};

use super::Groups;
use super::member::{Group, Phase};
use super::memory::Memory;
use crate::GroupHandle;

impl Groups {
    /// What a group takes at this node, and may take.
    pub fn memory(&self, group: GroupHandle) -> Option<Memory> {
        let group = self.groups.get(&group)?;
        let former = |other: &&Group| {
            other.name == group.name
                && other.handle != group.handle
                && matches!(other.phase, Phase::Ghost { .. })
        };
        let former = self.groups.values().filter(former).map(Group::memory);
        Some(former.fold(group.memory(), |sum, former| Memory {
            held: sum.held + former.held,
            bound: sum.bound + former.bound,
            objects: sum.objects + former.objects,
        }))
    }

    /// Whether this node holds a message of a group's present view, and all that comes before it in the
    /// order; `None` if it is in another view. A safe message is delivered only where all members hold it.
    pub fn holds(
        &self,
        group: GroupHandle,
        view: GroupViewId,
        sender: Incarnation,
        seq: u64,
    ) -> Option<bool> {
        self.groups.get(&group)?.holds(view, sender, seq)
    }

    /// A message of an unordered or scoped group that this member holds and could deliver in its present
    /// view, and has not delivered: its sender and its number.
    pub fn withheld(&self, group: GroupHandle) -> Option<(Incarnation, u64)> {
        self.groups.get(&group).filter(|_| !self.suspended)?.withheld()
    }

    /// The view of a group that this node has installed, whether or not its application was told, and the
    /// members of it that are removed already.
    pub fn roll(&self, group: GroupHandle) -> Option<(GroupViewId, &[Incarnation], Vec<Incarnation>)> {
        self.groups.get(&group)?.roll()
    }
}

impl Group {
    fn holds(&self, view: GroupViewId, sender: Incarnation, seq: u64) -> Option<bool> {
        let Phase::Member(membership) = &self.phase else {
            return None;
        };
        let stream = Some(&membership.stream).filter(|stream| stream.id == view)?;
        Some(stream.holds(stream.rank(sender)?, seq))
    }

    fn withheld(&self) -> Option<(Incarnation, u64)> {
        let Phase::Member(membership) = &self.phase else {
            return None;
        };
        let stream = Some(&membership.stream).filter(|_| membership.flush.is_open())?;
        let (rank, number) = stream.withheld()?;
        Some((stream.members[rank], number))
    }

    fn roll(&self) -> Option<(GroupViewId, &[Incarnation], Vec<Incarnation>)> {
        let Phase::Member(membership) = &self.phase else {
            return None;
        };
        let removed = membership.flush.dropped().collect();
        Some((membership.stream.id, &membership.stream.members, removed))
    }
}
