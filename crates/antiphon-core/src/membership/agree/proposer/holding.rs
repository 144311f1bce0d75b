//! Votes and decisions that wait because a member that they remove may believe in its view for a while yet
//! (R7, [`lease`]).
//!
//! While the removal of a member waits, only deaths and leaving members go before it: both end by themselves.
//! A join does not go before it. Each new view puts removals off again for all its members, so a growing
//! cluster would keep that member in for ever. Nor does another member whose removal had to wait go a moment
//! before it: they go together. If members go deaf or fall silent together, their last heartbeats are up to
//! one heartbeat apart.
//!
//! Where others may know better, the proposer asks about a removal first, whether it must wait or not. If
//! nobody objects, the member gets no answers until it may go, and the proposer then asks once more.
//!
//! In a wide view only a few members could object to a removal. The quorum that answers first may have none
//! of them, so the proposer waits for these few ([`Proposer::not_vouched_for`]).
//!
//! Of two members that do not hear each other one goes, if the proposer hears both. But a proposer that was
//! slow may read now what the other one said before it stopped, and would remove the one that told of it
//! first. So the other one must have answered the proposer's question: that it lives is newer than the
//! question.
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
    /// A voter refuses: it has promised a higher ballot, or it hears members that this ballot would remove.
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
            Proposal::Preparing { ballot, .. }
            | Proposal::Choosing { ballot }
            | Proposal::Accepting { ballot, .. } => *ballot,
            Proposal::Idle | Proposal::Decided { .. } => return,
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

    /// Whether this node has voted, or waits to vote, for a view that contains this member.
    pub(crate) fn names(&self, member: Incarnation) -> bool {
        let accepted = self.slot.vote().accepted.as_ref().map(|accepted| &accepted.value);
        let deferred = self.deferred.as_ref().map(|deferred| &deferred.value);
        accepted
            .into_iter()
            .chain(deferred)
            .any(|value| value.contains(member))
    }

    /// Votes for what this node may vote for by now, and decides what it may decide by now.
    pub(crate) fn resume(&mut self, around: &mut Surroundings<'_>) {
        if let Some(deferred) = self.deferred.take_if(|deferred| deferred.until <= around.now) {
            let (ballot, value, used) = (deferred.ballot, deferred.value, deferred.used);
            if ballot.proposer != self.me {
                self.on_accept(around, ballot, value, &used);
            } else if !self.defers(around, ballot, &value, &used) {
                // Since then, one of the removed members may have been allowed to believe for longer.
                self.accept_own(around, ballot, value, &used);
            }
        }
        if let Some((_, ballot, value)) = self.late.take_if(|(until, ..)| *until <= around.now) {
            self.decided(ballot, value, true);
        }
    }

    /// R7: until when this node may not vote for these departures, because one of the members may believe in
    /// its view that long; `None` if it may vote now. A member that leaves does not count, nor one that this
    /// node or the proposer knows to be proven dead.
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

    /// The same, and from now on this node does not answer these members.
    pub(crate) fn withhold(&mut self, around: &Surroundings<'_>, departed: &[Departure]) -> Option<Time> {
        let until = self.held(around, departed, &[])?;
        let from = departed
            .iter()
            .filter(|departure| self.is_unproven(departure, &[]));
        let from: Vec<Incarnation> = from.map(|departure| departure.member.incarnation).collect();
        self.withheld.extend(&from);
        self.effects.push_back(EngineEffect::Withhold { from });
        Some(until)
    }

    /// The wanted change as a view, and the members that it removes and others are asked about first: all of
    /// them, or only those announced.
    pub(crate) fn desired(
        &self,
        around: &Surroundings<'_>,
        only: Option<&BTreeSet<Incarnation>>,
    ) -> Option<(Arc<NodeView>, BTreeSet<Incarnation>)> {
        let (_, wanted) = self.wanted.as_ref()?;
        let mut remove = Vec::new();
        let mut announced = BTreeSet::new();
        let mut waits = None;
        for departure in &wanted.remove {
            let member = departure.member.incarnation;
            let asked_first = wanted.asked_first.contains(&member);
            let held = self.goes_from(around, departure);
            if let Some(from) = held.filter(|_| self.is_settled(wanted, member)) {
                waits = Some(waits.map_or(from, |first: Time| first.min(from)));
            } else if !asked_first {
                remove.push(departure.clone());
            } else if !self.objections.contains_key(&member) && only.is_none_or(|only| only.contains(&member))
            {
                announced.insert(member);
                remove.push(departure.clone());
            }
        }
        // A removal that has waited for its lease waits up to one heartbeat more, and goes with the next
        // removal.
        let soon = waits.is_some_and(|from| from <= around.now + self.patience);
        if soon && !wanted.unfinished {
            remove.retain(|departure| !self.is_unproven(departure, &[]));
            announced.clear();
        }
        let calm;
        let wanted = if waits.is_some() {
            calm = ProposedChange {
                join: Vec::new(),
                renew: false,
                ..wanted.clone()
            };
            &calm
        } else {
            wanted
        };
        let value = compose(&self.view, remove, wanted, self.votes.are_named());
        let unchanged =
            value.departed.is_empty() && value.joined.is_empty() && !wanted.renew && !wanted.unfinished;
        (!unchanged && check::is_successor(&self.view, &value)).then(|| (Arc::new(value), announced))
    }

    /// Whether nobody may object to this removal, or nobody objected when asked.
    fn is_settled(&self, wanted: &ProposedChange, member: Incarnation) -> bool {
        !wanted.asked_first.contains(&member) || self.unopposed.contains_key(&member)
    }

    /// From when a view without this member may be proposed; `None` if it may be now. A young proof of death
    /// may be younger than an answer of the dead member.
    fn goes_from(&self, around: &Surroundings<'_>, departure: &Departure) -> Option<Time> {
        let held = self.held(around, std::slice::from_ref(departure), &[]);
        let counts = around
            .counts_dead_from
            .filter(|_| self.is_unproven(departure, &[]));
        held.max(counts)
    }

    /// Phase 1 left the choice free: nobody objects to these announced members. Notes those that may not go
    /// yet.
    pub(crate) fn note_unopposed(&mut self, around: &Surroundings<'_>, announced: &BTreeSet<Incarnation>) {
        let Some((_, wanted)) = &self.wanted else { return };
        let unopposed = wanted.remove.iter().filter(|departure| {
            let member = departure.member.incarnation;
            announced.contains(&member) && !self.objections.contains_key(&member)
        });
        for departure in unopposed {
            if let Some(from) = self.goes_from(around, departure) {
                let until = from + self.patience * ANSWERS_COUNT;
                self.unopposed.insert(departure.member.incarnation, until);
            }
        }
    }

    /// A voter has promised, perhaps after there were enough promises.
    pub(crate) fn note_promise(&mut self, from: Incarnation, ballot: Ballot) {
        if let Proposal::Preparing { ballot: mine, .. } | Proposal::Choosing { ballot: mine } =
            self.slot.proposal()
            && *mine == ballot
        {
            self.promised_by.insert(from);
        }
    }

    /// The announced members to whose removal an objection may be on its way. In a wide view only a few
    /// observers hear a member, and a quorum may have none of them: all its promises may arrive before the
    /// first objection. So more than half of the member's reachable observers must have promised. If all
    /// these observers are to go as well, nobody can vouch for the member, and the proposer does not wait.
    pub(crate) fn not_vouched_for(&self, around: &Surroundings<'_>) -> BTreeSet<Incarnation> {
        let is_vouched_for = |member: Incarnation| {
            let partner = self.partner(member);
            if partner != self.partners.get(&member).copied() {
                return false;
            }
            if let Some(partner) = partner {
                return self.promised_by.contains(&partner);
            }
            let mut observers = (around.observers)(member);
            observers.retain(|by| around.reachable.contains(by) && !self.announced.contains(by));
            let promised = observers.iter().filter(|by| self.promised_by.contains(by));
            observers.is_empty() || promised.count() * 2 > observers.len()
        };
        let announced = self.announced.iter().copied();
        let open = announced.filter(|member| !self.objections.contains_key(member));
        open.filter(|member| !is_vouched_for(*member)).collect()
    }

    /// The member that a wanted removal leaves in the view of a pair that do not hear each other, and this
    /// node hears both. To such a removal nobody objects, for all may hear both.
    pub(crate) fn partner(&self, member: Incarnation) -> Option<Incarnation> {
        let (_, wanted) = self.wanted.as_ref()?;
        let mut removed = wanted.remove.iter();
        let departure = removed.find(|departure| departure.member.incarnation == member)?;
        match departure.cause {
            Cause::Unreachable { from } => (from != self.me).then_some(from),
            _ => None,
        }
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

    /// The ballot in which a value was proposed that is now found decided: nothing else can be found so.
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

    /// From when this value may be called decided; `None` if it may be now. It may count on a proof of death
    /// that is younger than an answer of the dead member.
    pub(crate) fn counts_from(&self, around: &Surroundings<'_>, value: &NodeView) -> Option<Time> {
        let mut departed = value.departed.iter();
        let unproven = departed.any(|departure| self.is_unproven(departure, &[]));
        let counted = unproven && !accepted_without_dead(&self.view, value, &self.accepted_by);
        around.counts_dead_from.filter(|_| counted)
    }

    /// A member that this node would remove, and to whose removal nobody objects, gets no answers any more.
    /// Returns until when the first of the wanted removals is held.
    pub(crate) fn withhold_removed(&mut self, around: &Surroundings<'_>) -> Option<Time> {
        let (_, wanted) = self.wanted.as_ref()?;
        let held: Vec<Departure> = wanted
            .remove
            .iter()
            .filter(|departure| self.held(around, std::slice::from_ref(departure), &[]).is_some())
            .cloned()
            .collect();
        let first = held
            .iter()
            .filter_map(|departure| (around.held)(departure.member.incarnation));
        let first = first.min();
        let settled = |departure: &&Departure| self.is_settled(wanted, departure.member.incarnation);
        let settled: Vec<Departure> = held.iter().filter(settled).cloned().collect();
        self.withhold(around, &settled);
        first
    }

    /// Members that this node would have removed, and now would not, get answers again. `is_restless`:
    /// whether a member is in the cut, or was a moment ago. One that wavers would be answered each time, and
    /// put off the votes against it each time.
    pub(crate) fn release_unwanted(&mut self, is_restless: impl Fn(Incarnation) -> bool) {
        if self.withheld.is_empty() {
            return;
        }
        let wanted = self.wanted.iter().flat_map(|(_, wanted)| &wanted.remove);
        let deferred = self.deferred.iter().flat_map(|deferred| &deferred.value.departed);
        let removed = wanted
            .chain(deferred)
            .map(|departure| departure.member.incarnation);
        let removed: BTreeSet<Incarnation> = removed.collect();
        let stays = |member: &Incarnation| removed.contains(member) || is_restless(*member);
        let (withheld, released): (BTreeSet<_>, BTreeSet<_>) = self.withheld.iter().copied().partition(stays);
        self.withheld = withheld;
        if !released.is_empty() {
            let members = released.into_iter().collect();
            self.effects.push_back(EngineEffect::Release { members });
        }
    }

    /// R7: whether this node must wait before it votes for this value; it then votes as soon as it may.
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
        let from: Vec<Incarnation> = from.map(|departure| departure.member.incarnation).collect();
        self.withheld.extend(&from);
        self.effects.push_back(EngineEffect::Withhold { from });
        true
    }
}

/// Whether these members are quorums of both views, with nobody left out of the count.
fn accepted_without_dead(view: &NodeView, value: &NodeView, accepted: &BTreeSet<Incarnation>) -> bool {
    let nobody = BTreeSet::new();
    view.voters().is_quorum(accepted, &nobody) && value.voters().is_quorum(accepted, &nobody)
}
