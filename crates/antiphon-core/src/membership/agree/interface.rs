//! What an engine is told, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_wire::membership::{Ballot, Change, Origin, SlotMessage};
use antiphon_wire::{Departure, Incarnation, Member, NodeView};

use crate::Time;
use crate::random::Random;

/// What this node would change in the view if it were up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProposedChange {
    /// Members to remove.
    pub(crate) remove: Vec<Departure>,
    /// Of those, the ones that others may object to: neither proven dead, nor leaving, nor accused by a
    /// majority or by their observers.
    pub(crate) objectionable: BTreeSet<Incarnation>,
    /// Nodes to admit, all ready right now.
    pub(crate) join: Vec<Member>,
    /// Whether a view with the same members is wanted: someone has lost the primary and must be brought back.
    pub(crate) renew: bool,
    /// Whether somebody has a vote in the slot of which nothing came: it has to come to its end, also if
    /// nothing else is wished for.
    pub(crate) unfinished: bool,
    /// The wire level that all speak.
    pub(crate) wire_level: u8,
    /// The highest view number that a joiner has seen in another lineage.
    pub(crate) number: u32,
    /// Where those of `join` come from that were members of a cluster before.
    pub(crate) origins: BTreeMap<Incarnation, Origin>,
}

/// What an engine wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EngineEffect {
    /// This node promised or accepted something: its lifelines must show it before anything that follows.
    Voted,
    /// These are to be removed, and not to be answered until then.
    Withhold { from: Vec<Incarnation> },
    /// To a voter, or a joiner of the view proposed.
    Send { to: Incarnation, message: SlotMessage },
    /// To all voters that are not proven dead, and to these joiners of the view proposed.
    Broadcast {
        joiners: Vec<Incarnation>,
        message: SlotMessage,
    },
    /// This node accepted a value.
    Accepted { ballot: Ballot, view: Arc<NodeView> },
    /// The next view is decided by this ballot, with these proven dead.
    Decided {
        ballot: Ballot,
        dead: Vec<Incarnation>,
        view: Arc<NodeView>,
        /// Whether this node tells all others, because they cannot know or by its turn.
        announce: bool,
    },
}

/// What an engine may know of the world outside.
pub(crate) struct Surroundings<'a> {
    pub(crate) now: Time,
    pub(crate) random: &'a mut Random,
    /// Whether this node objects to the removal of a member.
    pub(crate) objects: &'a dyn Fn(Incarnation) -> bool,
    /// Members this node does not doubt, itself included.
    pub(crate) reachable: &'a BTreeSet<Incarnation>,
    /// Members that anyone has lost.
    pub(crate) suspects: &'a BTreeSet<Incarnation>,
    /// Since when an observer has lost its subject, if it has as far as this node knows.
    pub(crate) edge_down_since: &'a dyn Fn(Incarnation, Incarnation) -> Option<Time>,
    /// Who observes a member, where not all hear all; nobody elsewhere.
    pub(crate) observers: &'a dyn Fn(Incarnation) -> Vec<Incarnation>,
    /// Until when this node may not vote against a member that is not proven dead, if it may not (R7).
    pub(crate) held: &'a dyn Fn(Incarnation) -> Option<Time>,
    /// Until when a decision to remove such a member may not be counted without the dead, if it may not (R7).
    pub(crate) counts_dead_from: Option<Time>,
    /// Whether this node is in the primary view.
    pub(crate) primary: bool,
}

/// How the votes given in a view show it, and the views voted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Votes {
    /// With all members.
    Whole,
    /// As what changes: in views that are too large. This is how the present one differs from the one before,
    /// if this node had that.
    Named(Option<Change>),
}

impl Votes {
    pub(crate) fn are_named(&self) -> bool {
        matches!(self, Votes::Named(_))
    }
}
