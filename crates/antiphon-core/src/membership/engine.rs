//! The engine interface: who decides the next primary view, and how.
//!
//! Membership knows what it would like to change and whom it hears; an engine turns that into one agreed
//! view. An engine lives for one view: each installed view starts a fresh one. A cluster has one of two: the
//! coordinator, or the cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_wire::membership::{Ayes, Ballot, Origin, Proof, SlotMessage, VoteState};
use antiphon_wire::{Accusation, Departure, Incarnation, Member, NodeView, ViewDigest};

use super::coordinator::{Coordinator, Votes};
use super::cut::{Cut, Rings};
use super::slot::Slot;
use crate::random::Random;
use crate::{EngineKind, Profile, Time};

/// What this node would change in the view if it were up to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
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

/// A membership engine, for the slot after one installed view.
#[derive(Debug)]
pub(crate) enum Engine {
    /// The elder proposes, each view is one Paxos slot.
    Coordinator(Box<Coordinator>),
    /// Observers on rings, and a fast ballot without a leader.
    Cut(Box<Cut>),
}

impl Engine {
    pub(crate) fn new(
        kind: EngineKind,
        me: Incarnation,
        view: Arc<NodeView>,
        rings: Arc<Rings>,
        votes: Votes,
        profile: &Profile,
    ) -> Self {
        match kind {
            EngineKind::Coordinator => Engine::Coordinator(Box::new(Coordinator::new(me, view, profile))),
            EngineKind::Cut => Engine::Cut(Box::new(Cut::new(me, view, rings, votes, profile))),
        }
    }

    /// Takes over from the engine of the view before what is known of members and not of a slot.
    pub(crate) fn follow(&mut self, before: Self) {
        if let (Engine::Cut(cut), Engine::Cut(before)) = (self, before) {
            cut.follow(*before);
        }
    }

    /// All votes of this node since it installed the view.
    pub(crate) fn vote_state(&self) -> VoteState {
        match self {
            Engine::Coordinator(coordinator) => coordinator.vote_state(),
            Engine::Cut(cut) => cut.vote_state(),
        }
    }

    /// Whether these members could decide the next view, given the proofs of death held.
    pub(crate) fn could_decide(&self, reachable: &BTreeSet<Incarnation>) -> bool {
        match self {
            Engine::Coordinator(coordinator) => coordinator.could_decide(reachable),
            Engine::Cut(cut) => cut.could_decide(reachable),
        }
    }

    /// Whether these members could decide what this node has accepted; true if it has accepted nothing.
    pub(crate) fn could_conclude(&self, reachable: &BTreeSet<Incarnation>) -> bool {
        match self {
            Engine::Coordinator(coordinator) => coordinator.slot().could_conclude(reachable),
            Engine::Cut(cut) => cut.could_conclude(reachable),
        }
    }

    /// Whether this node has accepted a view.
    pub(crate) fn is_bound(&self) -> bool {
        match self {
            Engine::Coordinator(coordinator) => coordinator.is_bound(),
            Engine::Cut(cut) => cut.is_bound(),
        }
    }

    /// Whether this node has voted for a view with that one, or is about to.
    pub(crate) fn names(&self, member: Incarnation) -> bool {
        match self {
            Engine::Coordinator(coordinator) => coordinator.names(member),
            Engine::Cut(cut) => cut.names(member),
        }
    }

    /// A member is proven dead, and this was its last vote.
    pub(crate) fn certify(&mut self, around: &mut Surroundings<'_>, dead: Incarnation, vote: &VoteState) {
        match self {
            Engine::Coordinator(coordinator) => coordinator.certify(around, dead, vote),
            Engine::Cut(cut) => cut.certify(around, dead, vote),
        }
    }

    /// The slot that is being decided.
    pub(crate) fn slot(&self) -> &Slot<Incarnation, Arc<NodeView>> {
        match self {
            Engine::Coordinator(coordinator) => coordinator.slot(),
            Engine::Cut(cut) => cut.slot(),
        }
    }

    /// All members that are proven dead.
    pub(crate) fn certified(&self) -> BTreeSet<Incarnation> {
        match self {
            Engine::Coordinator(coordinator) => coordinator.slot().certified(),
            Engine::Cut(cut) => cut.certified(),
        }
    }

    /// Whether the member is proven dead.
    pub(crate) fn is_certified(&self, member: Incarnation) -> bool {
        match self {
            Engine::Coordinator(coordinator) => coordinator.is_certified(member),
            Engine::Cut(cut) => cut.is_certified(member),
        }
    }

    /// This node is the one to propose, and this is what it wishes; `None`: it is not, or all is well.
    pub(crate) fn pursue(&mut self, around: &mut Surroundings<'_>, wish: Option<Wish>) {
        match self {
            Engine::Coordinator(coordinator) => coordinator.pursue(around, wish),
            Engine::Cut(cut) => cut.pursue(around, wish),
        }
    }

    /// Members that enough of their observers have lost.
    pub(crate) fn lost(&self) -> Vec<Incarnation> {
        match self {
            Engine::Coordinator(_) => Vec::new(),
            Engine::Cut(cut) => cut.lost().collect(),
        }
    }

    /// Looks again at who is being lost.
    pub(crate) fn look(&mut self, around: &Surroundings<'_>) {
        match self {
            Engine::Coordinator(_) => {}
            Engine::Cut(cut) => cut.look(around),
        }
    }

    /// Of those lost, the ones that are beyond doubt.
    pub(crate) fn certain(&self) -> Vec<Incarnation> {
        match self {
            Engine::Coordinator(_) => Vec::new(),
            Engine::Cut(cut) => cut.certain().collect(),
        }
    }

    /// The observers that have lost this member.
    pub(crate) fn witnesses(&self, member: Incarnation) -> Vec<Accusation> {
        match self {
            Engine::Coordinator(_) => Vec::new(),
            Engine::Cut(cut) => cut.witnesses(member),
        }
    }

    /// The view with this digest, if votes may be for it.
    pub(crate) fn value(&self, digest: ViewDigest) -> Option<&Arc<NodeView>> {
        match self {
            Engine::Coordinator(_) => None,
            Engine::Cut(cut) => cut.value(digest),
        }
    }

    /// Voters said the same about the slot. What they accepted is a view that may follow this one.
    pub(crate) fn count(
        &mut self,
        around: &mut Surroundings<'_>,
        what: Ayes,
        voters: &[Incarnation],
        accepted: Option<&Arc<NodeView>>,
    ) {
        if let Engine::Cut(cut) = self {
            cut.count_all(around, what, voters, accepted);
        }
    }

    /// Members that some of their observers have lost and others not: those whom this node observes it should
    /// look at again.
    pub(crate) fn unstable(&self) -> Vec<Incarnation> {
        match self {
            Engine::Coordinator(_) => Vec::new(),
            Engine::Cut(cut) => cut.unstable().collect(),
        }
    }

    /// A member asks all to vote for a view that may follow this one, as whoever hands it on has seen.
    pub(crate) fn asked(&mut self, around: &mut Surroundings<'_>, by: Incarnation, value: Arc<NodeView>) {
        if let Engine::Cut(cut) = self {
            cut.asked(around, by, value);
        }
    }

    /// The same in a higher ballot.
    pub(crate) fn proposed(
        &mut self,
        around: &mut Surroundings<'_>,
        ballot: Ballot,
        value: Arc<NodeView>,
        proofs: &[Proof],
    ) {
        if let Engine::Cut(cut) = self {
            cut.proposed(around, ballot, value, proofs);
        }
    }

    /// A message about the slot.
    pub(crate) fn handle(&mut self, around: &mut Surroundings<'_>, from: Incarnation, message: SlotMessage) {
        match self {
            Engine::Coordinator(coordinator) => coordinator.handle(around, from, message),
            Engine::Cut(cut) => cut.handle(around, from, message),
        }
    }

    /// When [`Engine::pursue`] should be called again.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Engine::Coordinator(coordinator) => coordinator.next_deadline(),
            Engine::Cut(cut) => cut.next_deadline(),
        }
    }

    /// The next thing to do.
    pub(crate) fn poll_effect(&mut self) -> Option<EngineEffect> {
        match self {
            Engine::Coordinator(coordinator) => coordinator.poll_effect(),
            Engine::Cut(cut) => cut.poll_effect(),
        }
    }
}
