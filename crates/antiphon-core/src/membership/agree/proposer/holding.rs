//! Votes and decisions that are held back for those who may believe in their view for a while yet (R7,
//! [`lease`]).
//!
//! Only deaths and members that leave, which end by themselves, go before one that has to go and may not yet:
//! what each new view puts off for all its members again must not be a node that comes, or cluster growth
//! would keep it in for ever. Nor does another one that had to wait go a moment before it: of members that go
//! deaf together, or fall silent, the heartbeats noted last are up to a heartbeat apart.
//!
//! Whom others may object to is asked about first, held back or not. If nobody does, it is answered no more
//! until it may go, and asked about once more then.
//!
//! In a wide view the quorum that answers first need not have one of the few who could object: whoever
//! proposes waits for these ([`Proposer::not_vouched_for`]).
//!
//! [`lease`]: crate::membership::lease

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::Ballot;
use antiphon_wire::{Cause, Departure, Evidence, Incarnation, NodeView};

use super::{ANSWERS_COUNT, Deferred, Proposer, random_part};
use crate::Time;
use crate::membership::agree::compose::compose;
use crate::membership::agree::interface::{EngineEffect, ProposedChange, Surroundings};
use crate::membership::agree::slot::FAST;
use crate::membership::agree::slot::{Proposal, Step, Used, Value};
use crate::membership::view::check;

impl Proposer {
    /// A voter refuses: it promised a higher ballot, or hears some that this ballot would remove.
    pub(crate) fn on_nack(
        &mut self,
        around: &mut Surroundings<'_>,
        ballot: Ballot,
        promised: Option<Ballot>,
        hears: &[Incarnation],
    ) {
        self.slot.on_nack(promised);
        if ballot == FAST && self.asked.is_some() && self.is_asking() {
            self.hurry(around);
            return;
        }
        let mine = match self.slot.proposal() {
            Proposal::Preparing { ballot, .. } | Proposal::Accepting { ballot, .. } => *ballot,
            Proposal::Idle | Proposal::Choosing { .. } | Proposal::Decided { .. } => return,
        };
        if ballot != mine {
            return;
        }
        for member in hears.iter().filter(|member| self.announced.contains(member)) {
            self.objections
                .insert(*member, around.now + self.patience * ANSWERS_COUNT);
        }
        if promised.is_some() {
            let pause = self.outbid_pause + random_part(around, self.outbid_pause * 2);
            self.retry = Some(around.now + pause);
            self.wake = self.retry;
        }
    }

    /// Whether this node has voted for a view with that one, or waits until it may.
    pub(crate) fn names(&self, member: Incarnation) -> bool {
        let accepted = self.slot.vote().accepted.as_ref().map(|accepted| &accepted.value);
        let deferred = self.deferred.as_ref().map(|deferred| &deferred.value);
        accepted
            .into_iter()
            .chain(deferred)
            .any(|value| value.contains(member))
    }

    /// What this node may vote for, or decide, by now.
    pub(crate) fn resume(&mut self, around: &mut Surroundings<'_>) {
        if let Some(deferred) = self.deferred.take_if(|deferred| deferred.until <= around.now) {
            let (ballot, value, used) = (deferred.ballot, deferred.value, deferred.used);
            if ballot.proposer != self.me {
                self.on_accept(around, ballot, value, &used);
            } else if !self.defers(around, ballot, &value, &used) {
                // One of them may have been let believe for longer since.
                self.accept_own(around, ballot, value, &used);
            }
        }
        if let Some((_, ballot, value)) = self.late.take_if(|(until, ..)| *until <= around.now) {
            self.decided(ballot, value, true);
        }
    }

    /// R7: until when this node may not vote for that these depart, if it may not: one of them may believe in
    /// its view that long. Not one that is proven dead, by the knowledge of this node or of whoever proposes
    /// it, nor one that leaves.
    pub(crate) fn held(
        &self,
        around: &Surroundings<'_>,
        departed: &[Departure],
        used: &[Used<Incarnation>],
    ) -> Option<Time> {
        let waits = |departure: &Departure| {
            self.is_unproven(departure, used)
                .then(|| (around.held)(departure.member.incarnation))
                .flatten()
        };
        departed.iter().filter_map(waits).max()
    }

    pub(crate) fn is_unproven(&self, departure: &Departure, used: &[Used<Incarnation>]) -> bool {
        let who = departure.member.incarnation;
        let proof = |accusation: &antiphon_wire::Accusation| accusation.evidence == Evidence::ProofOfDeath;
        !matches!(departure.cause, Cause::Left)
            && who != self.me
            && !self.is_certified(who)
            && !used.iter().any(|(dead, _)| *dead == who)
            && !departure.accusers.iter().any(proof)
    }

    /// The same, and from now on these are not answered.
    pub(crate) fn withhold(&mut self, around: &Surroundings<'_>, departed: &[Departure]) -> Option<Time> {
        let until = self.held(around, departed, &[])?;
        let from = departed
            .iter()
            .filter(|departure| self.is_unproven(departure, &[]));
        let from = from.map(|departure| departure.member.incarnation).collect();
        self.effects.push_back(EngineEffect::Withhold { from });
        Some(until)
    }

    /// The wish as a view, and whom it removes against possible objections: all, or only those announced.
    pub(crate) fn desired(
        &self,
        around: &Surroundings<'_>,
        only: Option<&BTreeSet<Incarnation>>,
    ) -> Option<(Arc<NodeView>, BTreeSet<Incarnation>)> {
        let (_, wish) = self.wish.as_ref()?;
        let mut remove = Vec::new();
        let mut announced = BTreeSet::new();
        let mut waits = None;
        for departure in &wish.remove {
            let member = departure.member.incarnation;
            let objectionable = wish.objectionable.contains(&member);
            let held = self.goes_from(around, departure);
            if let Some(from) = held.filter(|_| self.is_settled(wish, member)) {
                waits = Some(waits.map_or(from, |first: Time| first.min(from)));
            } else if !objectionable {
                remove.push(departure.clone());
            } else if !self.objections.contains_key(&member) && only.is_none_or(|only| only.contains(&member))
            {
                announced.insert(member);
                remove.push(departure.clone());
            }
        }
        // What has waited for a lease itself waits for a heartbeat more, and goes with the next.
        let soon = waits.is_some_and(|from| from <= around.now + self.patience);
        if soon && !wish.unfinished {
            remove.retain(|departure| !self.is_unproven(departure, &[]));
            announced.clear();
        }
        let calm;
        let wish = if waits.is_some() {
            calm = ProposedChange {
                join: Vec::new(),
                renew: false,
                ..wish.clone()
            };
            &calm
        } else {
            wish
        };
        let value = compose(&self.view, remove, wish, self.votes.are_named());
        let unchanged =
            value.departed.is_empty() && value.joined.is_empty() && !wish.renew && !wish.unfinished;
        (!unchanged && check::is_successor(&self.view, &value)).then(|| (Arc::new(value), announced))
    }

    /// Whether nobody may object to this removal, or nobody did.
    fn is_settled(&self, wish: &ProposedChange, member: Incarnation) -> bool {
        !wish.objectionable.contains(&member) || self.unopposed.contains_key(&member)
    }

    /// From when a view may be proposed without this member, if not now. A proof of death that is young may
    /// be younger than an answer of the dead.
    fn goes_from(&self, around: &Surroundings<'_>, departure: &Departure) -> Option<Time> {
        let held = self.held(around, std::slice::from_ref(departure), &[]);
        let counts = around
            .counts_dead_from
            .filter(|_| self.is_unproven(departure, &[]));
        held.max(counts)
    }

    /// Phase 1 left the choice free: who was announced, and may not go yet, has nobody's objection.
    pub(crate) fn note_unopposed(&mut self, around: &Surroundings<'_>) {
        let Some((_, wish)) = &self.wish else { return };
        let unopposed = wish.remove.iter().filter(|departure| {
            let member = departure.member.incarnation;
            self.announced.contains(&member) && !self.objections.contains_key(&member)
        });
        for departure in unopposed {
            if let Some(from) = self.goes_from(around, departure) {
                let until = from + self.patience * ANSWERS_COUNT;
                self.unopposed.insert(departure.member.incarnation, until);
            }
        }
    }

    /// A member has promised, perhaps after there were enough.
    pub(crate) fn note_promise(&mut self, from: Incarnation, ballot: Ballot) {
        if let Proposal::Preparing { ballot: mine, .. } | Proposal::Choosing { ballot: mine } =
            self.slot.proposal()
            && *mine == ballot
        {
            self.promised_by.insert(from);
        }
    }

    /// Of those announced, the ones that might have an objection on its way. In a wide view a few observers
    /// hear a member, and any quorum has none: its promises may all be there before the first objection. So
    /// more than half of the observers that are reachable have to be among those who have promised. Whom only
    /// those observe that go as well nobody can vouch for.
    pub(crate) fn not_vouched_for(&self, around: &Surroundings<'_>) -> BTreeSet<Incarnation> {
        let is_vouched_for = |member: Incarnation| {
            let mut observers = (around.observers)(member);
            observers.retain(|by| around.reachable.contains(by) && !self.announced.contains(by));
            let promised = observers.iter().filter(|by| self.promised_by.contains(by));
            observers.is_empty() || promised.count() * 2 > observers.len()
        };
        let announced = self.announced.iter().copied();
        let open = announced.filter(|member| !self.objections.contains_key(member));
        open.filter(|member| !is_vouched_for(*member)).collect()
    }

    /// Begins to propose in this ballot.
    pub(crate) fn propose(&mut self, ballot: Ballot) {
        assert!(
            self.proposed < Some(ballot) && ballot.proposer == self.me || planted!(),
            "R1: {:?} proposes in {ballot:?} after {:?}",
            self.me,
            self.proposed
        );
        self.proposed = Some(ballot);
        self.accepted_by.clear();
    }

    /// In which ballot what was found decided was proposed: nothing else can be found so.
    pub(crate) fn proposed_in(&self, value: &NodeView) -> Option<Ballot> {
        assert!(
            self.proposed.is_some() || planted!(),
            "R1: {} is found decided, and was never proposed",
            value.id
        );
        self.proposed
    }

    /// Votes for what this node proposes.
    pub(crate) fn accepted_by(
        &mut self,
        from: &[Incarnation],
        ballot: Ballot,
    ) -> Step<Incarnation, Arc<NodeView>> {
        if self.proposed == Some(ballot) {
            self.accepted_by.extend(from);
        }
        let whole = |(_, _, value): &mut (Time, Ballot, Arc<NodeView>)| {
            accepted_without_dead(&self.view, value, &self.accepted_by)
        };
        if let Some((_, ballot, value)) = self.late.take_if(whole) {
            self.decided(ballot, value, true);
        }
        self.slot.on_accepteds(from, ballot)
    }

    /// From when this may be called decided, if not now: the proof of a death that it counts on may be
    /// younger than an answer of the dead.
    pub(crate) fn counts_from(&self, around: &Surroundings<'_>, value: &NodeView) -> Option<Time> {
        let mut departed = value.departed.iter();
        let unproven = departed.any(|departure| self.is_unproven(departure, &[]));
        let counted = unproven && !accepted_without_dead(&self.view, value, &self.accepted_by);
        around.counts_dead_from.filter(|_| counted)
    }

    /// Whom this node would remove, and nobody objects to, is not answered any more. Until when the first of
    /// those wished for is held.
    pub(crate) fn withhold_wished(&mut self, around: &Surroundings<'_>) -> Option<Time> {
        let (_, wish) = self.wish.as_ref()?;
        let held: Vec<Departure> = wish
            .remove
            .iter()
            .filter(|departure| self.held(around, std::slice::from_ref(departure), &[]).is_some())
            .cloned()
            .collect();
        let first = held
            .iter()
            .filter_map(|departure| (around.held)(departure.member.incarnation));
        let first = first.min();
        let settled = |departure: &&Departure| self.is_settled(wish, departure.member.incarnation);
        let settled: Vec<Departure> = held.iter().filter(settled).cloned().collect();
        self.withhold(around, &settled);
        first
    }

    /// R7: whether this node must wait before it votes for this; then it will.
    pub(crate) fn defers(
        &mut self,
        around: &Surroundings<'_>,
        ballot: Ballot,
        value: &Arc<NodeView>,
        used: &[Used<Incarnation>],
    ) -> bool {
        let Some(until) = self.held(around, &value.departed, used) else {
            return false;
        };
        let later = self.deferred.as_ref().is_none_or(|known| known.ballot <= ballot);
        if later {
            self.deferred = Some(Deferred {
                until,
                ballot,
                value: value.clone(),
                used: used.to_vec(),
            });
        }
        let waits = |departure: &&Departure| self.is_unproven(departure, used);
        let from = value.departed.iter().filter(waits);
        let from = from.map(|departure| departure.member.incarnation).collect();
        self.effects.push_back(EngineEffect::Withhold { from });
        true
    }
}

/// Whether these are quorums of both views with nobody left out of the count.
fn accepted_without_dead(view: &NodeView, value: &NodeView, accepted: &BTreeSet<Incarnation>) -> bool {
    let nobody = BTreeSet::new();
    view.voters().is_quorum(accepted, &nobody) && value.voters().is_quorum(accepted, &nobody)
}
