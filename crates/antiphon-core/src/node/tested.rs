//! Windows for tests: what a node did and has that no application sees. A product opens none of them.
//!
//! The simulator looks through them after each input, and its checkers of the inside (`check/inside`) judge
//! what it saw: the steps of ballots, which members hold a message that was delivered as safe, what is kept
//! back, which members a group removed, how much memory it takes. None of them changes what the node does.
//! [`Node::keep_trail`] alone costs anything: memory without bound. What people ask a running node is
//! elsewhere: [`Node::inspect`], [`Node::why`].

use antiphon_wire::{GroupViewId, Incarnation};

use super::Node;
use crate::{BallotNote, GroupHandle, Memory};

impl Node {
    /// Keeps from here on what [`Node::poll_trail`] gives, without bound: for simulators.
    pub fn keep_trail(&mut self) {
        self.membership.keep_trail();
    }

    /// The next step of a ballot, if they are kept.
    pub fn poll_trail(&mut self) -> Option<BallotNote> {
        self.membership.poll_trail()
    }

    /// Whether this node holds a message of a group's present view, and all that comes before it in the
    /// order; `None` if it is in another view. This is what safe delivery is about.
    pub fn holds(
        &self,
        group: GroupHandle,
        view: GroupViewId,
        sender: Incarnation,
        seq: u64,
    ) -> Option<bool> {
        self.groups.holds(group, view, sender, seq)
    }

    /// What a group takes of this node's memory, and the most it may take.
    pub fn memory(&self, group: GroupHandle) -> Option<Memory> {
        self.groups.memory(group)
    }

    /// A message of an unordered or scoped group that this node holds and could deliver, and has not
    /// delivered: its sender and number. Between two inputs there is none.
    pub fn withheld(&self, group: GroupHandle) -> Option<(Incarnation, u64)> {
        self.groups.withheld(group)
    }

    /// The view of a group that this node has installed, whether or not its application was told; its
    /// members; and which of them are removed already: they were left out before this node knew.
    pub fn roll(&self, group: GroupHandle) -> Option<(GroupViewId, &[Incarnation], Vec<Incarnation>)> {
        self.groups.roll(group)
    }
}
