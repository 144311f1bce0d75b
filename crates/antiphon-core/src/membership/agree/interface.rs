//! What an engine is told, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_wire::membership::{Ballot, Change, Origin, SlotMessage};
use antiphon_wire::{Departure, Incarnation, Member, NodeView};

use crate::Time;
use crate::random::Random;

/// What this node would change in the view if it alone decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProposedChange {
    /// Members to remove.
    pub(crate) remove: Vec<Departure>,
    /// The members of `remove` about which others are asked first. Such a member is not proven dead, does not
    /// leave, and neither a majority nor its observers accuse it. Others may object, or, if it is one of two
    /// that do not hear each other, the other one must answer.
    pub(crate) asked_first: BTreeSet<Incarnation>,
    /// Nodes to admit, all ready right now.
    pub(crate) join: Vec<Member>,
    /// Whether a view with the same members is wanted: a member has lost the primary and must be brought
    /// back.
    pub(crate) renew: bool,
    /// Whether a member has voted in the slot and nothing came of its vote. The slot must then come to its
    /// end, even if nothing else is wanted.
    pub(crate) unfinished: bool,
    /// The wire level that all speak.
    pub(crate) wire_level: u8,
    /// The highest view number that a joiner has seen in another lineage.
    pub(crate) number: u32,
    /// The origin of each node in `join` that was a member of a cluster before.
    pub(crate) origins: BTreeMap<Incarnation, Origin>,
}

/// What an engine wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineEffect {
    /// This node promised or accepted something: its lifelines must show it before anything that follows.
    Voted,
    /// These members are to be removed. This node does not answer them until then.
    Withhold { from: Vec<Incarnation> },
    /// They are not to be removed any more.
    Release { members: Vec<Incarnation> },
    /// To a voter, or to a joiner of the proposed view.
    Send { to: Incarnation, message: SlotMessage },
    /// To all voters that are not proven dead, and to these joiners of the proposed view.
    Broadcast {
        joiners: Vec<Incarnation>,
        message: SlotMessage,
    },
    /// This node accepted a value.
    Accepted { ballot: Ballot, view: Arc<NodeView> },
    /// This ballot decided the next view; these members are proven dead.
    Decided {
        ballot: Ballot,
        dead: Vec<Incarnation>,
        view: Arc<NodeView>,
        /// Whether this node tells all others, because they cannot know, or because it is this node's turn.
        announce: bool,
    },
}

/// What an engine may know of the world outside.
pub(crate) struct Surroundings<'a> {
    pub(crate) now: Time,
    pub(crate) random: &'a mut Random,
    /// Whether this node objects to the removal of a member.
    pub(crate) objects: &'a dyn Fn(Incarnation) -> bool,
    /// What `Seat::reachable` says.
    pub(crate) reachable: &'a BTreeSet<Incarnation>,
    /// Members that any member has lost.
    pub(crate) suspects: &'a BTreeSet<Incarnation>,
    /// Since when the observer (first) has lost the subject (second); `None` if, as far as this node knows,
    /// it has not.
    pub(crate) edge_down_since: &'a dyn Fn(Incarnation, Incarnation) -> Option<Time>,
    /// The observers of a member, where not all hear all; empty elsewhere.
    pub(crate) observers: &'a dyn Fn(Incarnation) -> Vec<Incarnation>,
    /// R7: until when this node may not vote to remove a member that is not proven dead; `None` if it may
    /// now.
    pub(crate) held: &'a dyn Fn(Incarnation) -> Option<Time>,
    /// R7: until when a decision to remove such a member may not be counted without the dead; `None` if it
    /// may now.
    pub(crate) counts_dead_from: Option<Time>,
    /// Whether this node is in the primary view.
    pub(crate) primary: bool,
}

/// How a vote shows the view that it is given in, and the view that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Votes {
    /// With all members.
    Whole,
    /// Only as what changes, in views that are too large. The change given is the one from the view before to
    /// the present view, if this node had the view before.
    Named(Option<Change>),
}

impl Votes {
    pub(crate) fn are_named(&self) -> bool {
        matches!(self, Votes::Named(_))
    }
}
