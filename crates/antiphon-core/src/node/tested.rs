//! What only tests look at.

use antiphon_wire::{GroupViewId, Incarnation};

use super::Node;
use crate::GroupHandle;

impl Node {
    /// A message of an unordered or scoped group that this node holds and could deliver, and has not delivered: its sender and number. For
    /// the tests of just that; between two inputs there is none.
    pub fn withheld(&self, group: GroupHandle) -> Option<(Incarnation, u64)> {
        self.groups.withheld(group)
    }

    /// The view of a group that this node has installed, whether or not its application was told, its members, and which of them are
    /// removed already. For the tests of who is told to start over.
    #[doc(hidden)]
    pub fn roll(&self, group: GroupHandle) -> Option<(GroupViewId, &[Incarnation], Vec<Incarnation>)> {
        self.groups.roll(group)
    }
}
