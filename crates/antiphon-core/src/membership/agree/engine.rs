//! The engine: decides the view after the present one.
//!
//! Membership knows what it would like to change and which members it hears; the engine turns that into one
//! agreed view. An engine lives for one view: each installed view starts a fresh engine.
//!
//! ```text
//!   Engine ── proposer ([`proposer`])   the slot, and the ballots that this node leads in it
//!          └─ fast     ([`fast`])       only in the cut engine: round 0 of that slot, without a leader
//!                └── cut ([`cut`])      the members that are lost, and until when to wait for more
//! ```
//! In the *coordinator* engine the elder owns round 0 of the slot, and only proposers begin a view. In the
//! *cut* engine round 0 is the fast ballot. There, members that see the same cut vote by themselves, and a
//! proposer asks the others for their votes. What the fast ballot does not decide, a proposer decides in a
//! higher ballot, as in the coordinator engine.
//!
//! The proposer has what both engines have: the slot with its votes and proofs of death, and the effects.
//! The fast ballot is handed the proposer with each call, because a vote in it is a vote in that slot. All
//! effects go into the proposer's one queue, so a vote stands before the message that tells of it.
//!
//! [`cut`]: crate::membership::agree::cut
//! [`fast`]: crate::membership::agree::fast
//! [`proposer`]: crate::membership::agree::proposer

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::{Ayes, Ballot, Proof, SlotMessage, VoteState};
use antiphon_wire::{Accusation, Incarnation, NodeView, ViewDigest};

use crate::membership::agree::cut::Cut;
use crate::membership::agree::fast::FastBallot;
use crate::membership::agree::interface::{EngineEffect, ProposedChange, Surroundings, Votes};
use crate::membership::agree::proposer::{Proposer, used};
use crate::membership::agree::slot::{Acceptance, Slot};
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::Topology;
use crate::{EngineKind, Profile, Time};

#[cfg(test)]
mod tests;

/// A membership engine, for the slot after one installed view.
#[derive(Debug)]
pub(crate) struct Engine {
    proposer: Proposer,
    /// The fast ballot; `None` in the coordinator engine, which has none.
    fast: Option<Box<FastBallot>>,
}

impl Engine {
    pub(crate) fn new(
        kind: EngineKind,
        me: Incarnation,
        view: Arc<NodeView>,
        (rings, topology): (Arc<Rings>, &Topology),
        votes: Votes,
        profile: &Profile,
    ) -> Self {
        match kind {
            EngineKind::Coordinator => Self {
                proposer: Proposer::new(me, view, profile),
                fast: None,
            },
            EngineKind::Cut => {
                let patience = topology.ballot_patience(profile);
                let cut = Cut::new(
                    view.clone(),
                    (rings.clone(), topology),
                    votes.are_named(),
                    profile,
                );
                let fast = FastBallot::new(me, view.clone(), rings, cut, topology.fast_patience(profile));
                let asks_joiners = topology.tells_all();
                Self {
                    proposer: Proposer::with_fast_ballot(me, view, (votes, patience), asks_joiners, profile),
                    fast: Some(Box::new(fast)),
                }
            }
        }
    }

    /// Takes over what the engine of the view before knows of members, and nothing of its slot.
    pub(crate) fn follow(&mut self, before: Self) {
        if let Some((fast, before)) = self.fast.as_mut().zip(before.fast) {
            fast.cut.follow(before.cut);
        }
    }

    /// A member is proven dead, and this was its last vote.
    pub(crate) fn certify(&mut self, around: &mut Surroundings<'_>, dead: Incarnation, vote: &VoteState) {
        self.proposer.certify(around, dead, vote);
    }

    /// Looks again at which members are being lost.
    pub(crate) fn look(&mut self, around: &Surroundings<'_>) {
        if let Some(fast) = &mut self.fast {
            fast.cut.look(around, self.proposer.slot());
        }
    }

    /// Goes on with what [`Engine::look`] has just seen. This node is the proposer, and this is the change it
    /// wants. `None`: it is not the proposer, or all is well.
    pub(crate) fn pursue(&mut self, around: &mut Surroundings<'_>, wanted: Option<ProposedChange>) {
        let wanted = match &mut self.fast {
            Some(fast) => fast.go_first(&mut self.proposer, around, wanted),
            None => wanted,
        };
        let cut = self.fast.as_ref().map(|fast| &fast.cut);
        let is_restless = |member| cut.is_some_and(|cut| cut.is_restless(member));
        self.proposer.pursue(around, wanted, is_restless);
        self.count_own(around);
    }

    /// A message about the slot.
    pub(crate) fn handle(&mut self, around: &mut Surroundings<'_>, from: Incarnation, message: SlotMessage) {
        match (&mut self.fast, message) {
            (Some(fast), SlotMessage::Fast { value }) => {
                fast.on_fast(&mut self.proposer, around, from, *value);
            }
            (Some(fast), SlotMessage::Cast { value }) => {
                fast.on_casts(&mut self.proposer, around, &[from], value);
            }
            (_, message) => self.proposer.handle(around, from, message),
        }
        self.count_own(around);
    }

    /// A member asks all to vote for a view. The caller has seen that this view may follow the present one.
    pub(crate) fn asked(&mut self, around: &mut Surroundings<'_>, by: Incarnation, value: Arc<NodeView>) {
        if let Some(fast) = &mut self.fast {
            fast.on_asked(&mut self.proposer, around, by, value);
        }
        self.count_own(around);
    }

    /// A proposer asks the same in a higher ballot.
    pub(crate) fn proposed(
        &mut self,
        around: &mut Surroundings<'_>,
        ballot: Ballot,
        value: Arc<NodeView>,
        proofs: &[Proof],
    ) {
        self.proposer.on_accept(around, ballot, value, &used(proofs));
        self.count_own(around);
    }

    /// Members said the same about the slot. `accepted` is what they promised to have accepted, if they did:
    /// a view that may follow this one. What all of them say is weighed once.
    pub(crate) fn count(
        &mut self,
        around: &mut Surroundings<'_>,
        what: Ayes,
        voters: &[Incarnation],
        accepted: Option<&Arc<NodeView>>,
    ) {
        match what {
            Ayes::Cast { value } => {
                if let Some(fast) = &mut self.fast {
                    fast.on_casts(&mut self.proposer, around, voters, value);
                }
            }
            Ayes::Promise {
                ballot, accepted_in, ..
            } if accepted_in.is_some() == accepted.is_some() => {
                let accepted = accepted_in.zip(accepted).map(|(ballot, value)| Acceptance {
                    ballot,
                    value: value.clone(),
                });
                self.proposer.on_promises(around, voters, ballot, accepted);
            }
            // An answer that does not show what was accepted is none.
            Ayes::Promise { .. } => {}
            Ayes::Accepted { ballot } => self.proposer.on_accepteds(around, voters, ballot),
        }
        self.count_own(around);
    }

    /// When [`Engine::pursue`] should be called again.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let wake = self.fast.as_ref().and_then(|fast| fast.wake);
        [wake, self.proposer.next_deadline()].into_iter().flatten().min()
    }

    /// The next thing to do.
    pub(crate) fn poll_effect(&mut self) -> Option<EngineEffect> {
        self.proposer.poll_effect()
    }

    /// The proposer may have asked for votes. Then this node has cast one as well.
    fn count_own(&mut self, around: &mut Surroundings<'_>) {
        if let Some(fast) = &mut self.fast {
            fast.count_own(&mut self.proposer, around);
        }
    }
}

/// What the seat asks of the slot.
impl Engine {
    /// The slot that is being decided.
    pub(crate) fn slot(&self) -> &Slot<Incarnation, Arc<NodeView>> {
        self.proposer.slot()
    }

    /// All votes of this node since it installed the view.
    pub(crate) fn vote_state(&self) -> VoteState {
        self.proposer.vote_state()
    }

    /// Whether this node has accepted a view.
    pub(crate) fn is_bound(&self) -> bool {
        self.slot().vote().accepted.is_some()
    }

    /// Whether this node has voted, or is about to vote, for a view that contains this member.
    pub(crate) fn names(&self, member: Incarnation) -> bool {
        self.proposer.names(member)
    }

    /// Whether these members could decide the next view, given the proofs of death held.
    pub(crate) fn could_decide(&self, reachable: &BTreeSet<Incarnation>) -> bool {
        self.slot().could_decide(reachable)
    }

    /// Whether these members could decide what this node has accepted; true if it has accepted nothing.
    pub(crate) fn could_conclude(&self, reachable: &BTreeSet<Incarnation>) -> bool {
        self.slot().could_conclude(reachable)
    }

    /// Whether the member is proven dead.
    pub(crate) fn is_certified(&self, member: Incarnation) -> bool {
        self.proposer.is_certified(member)
    }

    /// All members that are proven dead.
    pub(crate) fn certified(&self) -> BTreeSet<Incarnation> {
        self.slot().certified()
    }

    /// The members that are proven dead and accepted nothing in the slot.
    pub(crate) fn dead_without_vote(&self) -> BTreeSet<Incarnation> {
        let certificates = self.slot().certificates().iter();
        certificates
            .filter(|(_, last)| last.accepted.is_none())
            .map(|(dead, _)| *dead)
            .collect()
    }
}

/// What only a fast ballot knows. Without one, no member is lost.
impl Engine {
    fn cut(&self) -> Option<&Cut> {
        self.fast.as_ref().map(|fast| &fast.cut)
    }

    /// Members that enough of their observers have lost.
    pub(crate) fn in_cut(&self) -> Vec<Incarnation> {
        self.cut().map_or_else(Vec::new, |cut| cut.in_cut().collect())
    }

    /// Those of them whose loss is beyond doubt.
    pub(crate) fn certain(&self) -> Vec<Incarnation> {
        self.cut().map_or_else(Vec::new, |cut| cut.certain().collect())
    }

    /// Members that some of their observers have lost and others have not. If this node observes such a
    /// member, it should look at it again.
    pub(crate) fn unstable(&self) -> Vec<Incarnation> {
        self.cut().map_or_else(Vec::new, |cut| cut.unstable().collect())
    }

    /// The observers that have lost this member, unless it is proven dead.
    pub(crate) fn accusations(&self, member: Incarnation) -> Vec<Accusation> {
        let cut = self.cut().filter(|_| !self.is_certified(member));
        cut.map_or_else(Vec::new, |cut| cut.accusations(member))
    }

    /// The view with this digest, if votes may be for it.
    pub(crate) fn value(&self, digest: ViewDigest) -> Option<&Arc<NodeView>> {
        self.fast.as_ref()?.value(digest)
    }
}
