//! The engine interface: how the next primary view is decided.
//!
//! Membership knows what it would like to change and which members it hears; an engine turns that into one
//! agreed view. An engine lives for one view: each installed view starts a fresh engine. A cluster has one of
//! two engines: the coordinator, or the cut.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::{Ayes, Ballot, Proof, SlotMessage, VoteState};
use antiphon_wire::{Accusation, Incarnation, NodeView, ViewDigest};

use crate::membership::agree::fast::FastProposer;
use crate::membership::agree::interface::EngineEffect;
use crate::membership::agree::interface::ProposedChange;
use crate::membership::agree::interface::Surroundings;
use crate::membership::agree::interface::Votes;
use crate::membership::agree::proposer::Proposer;
use crate::membership::agree::slot::Slot;
use crate::membership::monitor::rings::Rings;
use crate::{EngineKind, Profile, Time};

/// A membership engine, for the slot after one installed view.
#[derive(Debug)]
pub(crate) enum Engine {
    /// The elder proposes. Each view is one Paxos slot.
    Coordinator(Box<Proposer>),
    /// Observers on rings, and a fast ballot without a leader.
    Cut(Box<FastProposer>),
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
            EngineKind::Coordinator => Engine::Coordinator(Box::new(Proposer::new(me, view, profile))),
            EngineKind::Cut => Engine::Cut(Box::new(FastProposer::new(me, view, rings, votes, profile))),
        }
    }

    /// Takes over what the engine of the view before knows of members, and nothing of its slot.
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

    /// Whether this node has voted, or is about to vote, for a view that contains this member.
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

    /// This node is the proposer, and this is its wish. `None`: it is not the proposer, or all is well.
    pub(crate) fn pursue(&mut self, around: &mut Surroundings<'_>, wish: Option<ProposedChange>) {
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

    /// Looks again at which members are being lost.
    pub(crate) fn look(&mut self, around: &Surroundings<'_>) {
        match self {
            Engine::Coordinator(_) => {}
            Engine::Cut(cut) => cut.look(around),
        }
    }

    /// The lost members whose loss is beyond doubt.
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

    /// Voters said the same about the slot. If they accepted a view, that view may follow this one.
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

    /// Members that some of their observers have lost and others have not. If this node observes such a
    /// member, it should look at it again.
    pub(crate) fn unstable(&self) -> Vec<Incarnation> {
        match self {
            Engine::Coordinator(_) => Vec::new(),
            Engine::Cut(cut) => cut.unstable().collect(),
        }
    }

    /// A member asks all to vote for a view. The caller has seen that this view may follow the present one.
    pub(crate) fn asked(&mut self, around: &mut Surroundings<'_>, by: Incarnation, value: Arc<NodeView>) {
        if let Engine::Cut(cut) = self {
            cut.asked(around, by, value);
        }
    }

    /// A proposer asks the same in a higher ballot.
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

impl Engine {
    /// The members that are proven dead and accepted nothing in the slot.
    pub(crate) fn dead_without_vote(&self) -> BTreeSet<Incarnation> {
        let certificates = self.slot().certificates().iter();
        certificates
            .filter(|(_, last)| last.accepted.is_none())
            .map(|(dead, _)| *dead)
            .collect()
    }
}
