//! Votes and decisions that are held back for those who may believe in their view for a while yet (R7, [`super::super::lease`]).

use antiphon_wire::membership::Ballot;
use antiphon_wire::{Cause, Departure, Evidence, Incarnation, NodeView};

use super::Coordinator;
use crate::Time;
use crate::membership::engine::{EngineEffect, Surroundings};
use crate::membership::slot::Used;

/// A proposal that removes a member who may believe in its view for a while yet.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) until: Time,
    ballot: Ballot,
    value: NodeView,
    used: Vec<Used<Incarnation>>,
}

impl Coordinator {
    /// What this node may vote for, or decide, by now.
    pub(super) fn resume(&mut self, around: &mut Surroundings<'_>) {
        if let Some(deferred) = self.deferred.take_if(|deferred| deferred.until <= around.now) {
            if deferred.ballot.proposer == self.me {
                self.accept_own(around, deferred.ballot, deferred.value, &deferred.used);
            } else {
                self.on_accept(around, deferred.ballot, deferred.value, &deferred.used);
            }
        }
        if let Some((_, ballot, value)) = self.late.take_if(|(until, ..)| *until <= around.now) {
            self.decided(ballot, value, true);
        }
    }

    /// R7: until when this node may not vote for that these depart, if it may not: one of them may believe in its view that long. Not one that is
    /// proven dead, by the knowledge of this node or of whoever proposes it, nor one that leaves.
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

    pub(super) fn is_unproven(&self, departure: &Departure, used: &[Used<Incarnation>]) -> bool {
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

    /// Whom this node would remove, and nobody may object to, is not answered any more. Until when the first of those wished for is held.
    pub(super) fn withhold_wished(&mut self, around: &Surroundings<'_>) -> Option<Time> {
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
        let settled = |departure: &&Departure| !wish.objectionable.contains(&departure.member.incarnation);
        let settled: Vec<Departure> = held.iter().filter(settled).cloned().collect();
        self.withhold(around, &settled);
        first
    }

    /// R7: whether this node must wait before it votes for this; then it will.
    pub(super) fn defers(
        &mut self,
        around: &Surroundings<'_>,
        ballot: Ballot,
        value: &NodeView,
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
