//! Proofs of death: what a member does with the events of its lifelines, and with the proofs that others
//! send.
//!
//! ```text
//!   lifeline ends with a FIN ──► certificate: dead, and this was its last vote ──► to all (in a wide view: a rumour)
//!   a witness saw it end (R10) ──► the same
//!   a vote on a lifeline, or in a certificate, given in a later view ──► that view is decided: installed, or pulled
//! ```
//! A certificate is kept for as long as the dead node is a member, and used in each slot until then. Of two
//! certificates of one death, the one that shows the later vote is kept. If its holder dies before it tells
//! it, other watchers of the dead node have their own.
//!
//! The holder tells it to the members that it hears when the certificate comes. A member that was cut off or
//! did not run then needs it as well: that member may be the one to propose, and find no quorum where the
//! others count one and wait for it. In a wide view rumours are compared with every heartbeat. In a narrow
//! one a heartbeat that does not name the proof of a death shows that its sender lacks it
//! ([`Seat::prove_again`]).

use std::sync::Arc;

use antiphon_wire::membership::{
    AcceptedValue, Certificate, MembershipMessage, Rumour, SlotId, SlotMessage, Suspicion, VoteState, Voted,
    VotedIn,
};
use antiphon_wire::{Evidence, Incarnation};

use crate::membership::agree::lifelines;
use crate::membership::agree::lifelines::{Ended, Said};
use crate::membership::context::Context;
use crate::membership::seat::Seat;
use crate::membership::view::check;
use crate::{BallotStep, LifelineEvent, Time, witness};

/// A member that lacks a proof is told it again after so many heartbeats, and never sooner.
const PROVES_AGAIN_AFTER: u32 = 4;
/// At most so many proofs are sent at a time: each may have two whole views.
const PROVES_AT_ONCE: usize = 16;

impl Seat {
    pub(crate) fn handle_lifeline(
        &mut self,
        cx: &mut Context,
        now: Time,
        event: LifelineEvent,
        sender: Option<Incarnation>,
    ) {
        match event {
            LifelineEvent::Opened { dial, local, remote } => {
                let vote = self.installed.engine.vote_state();
                let command = cx.lifelines.opened(dial, local, remote, vote);
                cx.lifeline_commands(command);
            }
            LifelineEvent::Failed { dial } => {
                let retry = cx.config.profile.retransmit * 2;
                if let Some(to) = cx.lifelines.failed(now, dial, retry) {
                    cx.detector.trouble(now, to);
                }
            }
            LifelineEvent::Record {
                connection,
                local,
                remote,
                record,
            } => {
                let Some(sender) = sender else { return };
                match cx.lifelines.record(connection, local, remote, sender, record) {
                    // A view that a member has installed is decided: no need to wait for its announcement.
                    Said::Voted(vote) => {
                        let view = vote.view.clone();
                        self.learn_shown(cx, now, &view, Some(sender));
                    }
                    // The sender knows of the view without it, which is the next one at least.
                    Said::Goodbye => {
                        let without = check::next_id(self.installed.view.primary_id());
                        self.leaving.confirmed(sender, without);
                    }
                    Said::Nothing => {}
                }
            }
            LifelineEvent::Ended { connection, end } => match cx.lifelines.ended(connection, end) {
                // The writer may have gone to another lineage, or this node did. It is gone all the same,
                // whatever it voted here.
                Ended::Dead { writer, vote } if vote.view.lineage() != self.installed.view.lineage => {
                    cx.detector.trouble(now, writer);
                }
                Ended::Dead { writer, vote } => {
                    self.certify(cx, now, writer, vote, true);
                }
                Ended::Broken { writer } => cx.detector.trouble(now, writer),
                Ended::Nothing => {}
            },
        }
        self.evaluate(cx, now);
    }

    /// R2: no message tells of a vote that the lifelines do not show.
    pub(crate) fn assert_shown(&self, message: &SlotMessage) {
        let voted = self.installed.engine.slot().vote().ballots();
        let tells = matches!(
            message,
            SlotMessage::Promise { .. } | SlotMessage::Accepted { .. } | SlotMessage::Cast { .. }
        );
        assert!(
            !tells || self.installed.shown == voted || planted!(),
            "R2: {message:?} tells of a vote in {voted:?}, and the lifelines show {:?}",
            self.installed.shown
        );
    }

    /// R10: all that this node has voted, to its witness.
    pub(crate) fn leave_testament(&self, cx: &mut Context) {
        if cx.config.witness {
            let watchers = lifelines::watchers(&self.installed.view, cx.me, &self.installed.rings);
            let vote = self.installed.engine.vote_state();
            let testament = witness::testament(&self.installed.view, cx.me, &watchers, vote);
            cx.leave_testament(Some(&testament));
        }
    }

    /// R10: a witness saw a process end. Its report is used, and shared, as the end of a lifeline is: members
    /// that hear of it here need not hear of it from the witness. True if that was of use, or was known.
    pub(crate) fn handle_witnessed(&mut self, cx: &mut Context, now: Time, certificate: Certificate) -> bool {
        let Certificate { dead, vote } = certificate;
        // Only this node can know that the report is wrong. Others count without this incarnation now, so it
        // must not go on.
        if dead == cx.me && vote.view.lineage() == self.installed.view.lineage {
            let cause = "a witness said that this process has ended: it waited for another one";
            self.expelled(cx, cause.to_owned());
            return true;
        }
        if !check::vote_is_sound(&vote) || planted!(IgnoreWitness) {
            return false;
        }
        let used = self.certify(cx, now, dead, vote, true);
        self.evaluate(cx, now);
        used
    }

    /// A view that a member has installed, and shows with a vote, is decided.
    fn learn_shown(&mut self, cx: &mut Context, now: Time, shown: &VotedIn, from: Option<Incarnation>) {
        if shown.lineage() != self.installed.view.lineage {
            return;
        }
        let next = check::next_id(self.installed.view.primary_id());
        match shown {
            VotedIn::Whole(view) => self.learn(cx, now, Arc::new((**view).clone()), from),
            VotedIn::Named {
                id,
                change: Some(change),
                ..
            } if *id == next => {
                if let Some(view) = check::apply(&self.installed.view, (**change).clone()) {
                    self.learn(cx, now, Arc::new(view), from);
                }
            }
            VotedIn::Named { id, .. } if *id > self.installed.view.primary_id() => {
                if let Some(from) = from {
                    self.reach(cx, from);
                    self.pull(cx, now, from);
                }
            }
            VotedIn::Named { .. } => {}
        }
    }

    /// Takes a proof of death: it is remembered, shared and used. True if it was used, or is needed no more,
    /// because it is known or the dead member was removed.
    pub(crate) fn certify(
        &mut self,
        cx: &mut Context,
        now: Time,
        dead: Incarnation,
        vote: VoteState,
        share: bool,
    ) -> bool {
        if dead == cx.me || vote.view.lineage() != self.installed.view.lineage {
            return false;
        }
        // R2: a last vote under a later view shows that this node is behind, or out.
        self.learn_shown(cx, now, &vote.view, None);
        if cx.fate.is_some() {
            return false;
        }
        if !self.installed.view.contains(dead) {
            // A node that voted in a view is a member of it.
            return self.installed.view.primary_id() > vote.view.id();
        }
        let rank = |vote: &VoteState| (vote.view.id(), vote.promised);
        if self
            .certificates
            .get(&dead)
            .is_some_and(|known| rank(known) >= rank(&vote))
        {
            return true;
        }
        // The proof need not show what the dead node voted in an earlier slot than the present one.
        let (voted_in, accepted) = match &vote.view {
            VotedIn::Named { id, .. } if *id < self.installed.view.primary_id() => {
                (self.installed.view.primary_id(), None)
            }
            view => (view.id(), vote.accepted.as_ref().map(|accepted| accepted.ballot)),
        };
        let slot = SlotId {
            lineage: self.installed.view.lineage,
            next: check::next_id(voted_in),
        };
        let view = || match &vote.view {
            VotedIn::Whole(view) => Arc::new((**view).clone()),
            VotedIn::Named { .. } => self.installed.view.clone(),
        };
        cx.trail(slot, accepted, view, BallotStep::Certified { dead });
        cx.detector.accuse(now, dead, Evidence::ProofOfDeath);
        if share && !self.installed.topology.tells_all() {
            self.spread_certificate(now, dead, &vote);
        } else if share {
            let me = cx.me;
            for member in self
                .reachable(cx)
                .into_iter()
                .filter(|member| *member != me && *member != dead)
            {
                cx.send(member, certificate(dead, &vote));
            }
        }
        self.certificates.insert(dead, vote.clone());
        self.lease.proven(now);
        self.with_engine(cx, now, |engine, around| engine.certify(around, dead, &vote));
        true
    }

    /// In a narrow view, what a member says of others in its heartbeat shows which proofs it lacks. The
    /// heartbeat may have been sent before the proof came to that member, so it is not told at once, and
    /// seldom again. It is not told at all while it does not take what it was sent before, or its link would
    /// break.
    pub(crate) fn prove_again(
        &mut self,
        cx: &mut Context,
        now: Time,
        member: Incarnation,
        suspicions: &[Suspicion],
    ) {
        if self.certificates.is_empty() || !self.installed.topology.tells_all() || planted!(ProveOnce) {
            return;
        }
        let pause = cx.config.profile.heartbeat * PROVES_AGAIN_AFTER;
        let told = self.installed.proven_again.get(&member);
        if told.is_some_and(|at| now.since(*at) < pause) || cx.crowded.contains(&member) {
            return;
        }
        let knows = |dead: Incarnation| {
            let known = |said: &Suspicion| said.member == dead && said.evidence == Evidence::ProofOfDeath;
            dead == member || suspicions.iter().any(known)
        };
        let proven_before = |dead: Incarnation| {
            let doubt = cx.detector.doubt(cx.me, dead);
            doubt.is_some_and(|doubt| now.since(doubt.since) >= pause)
        };
        let proven = self.certificates.iter();
        let lacks: Vec<MembershipMessage> = proven
            .filter(|(dead, _)| !knows(**dead) && proven_before(**dead))
            .map(|(dead, vote)| certificate(*dead, vote))
            .take(PROVES_AT_ONCE)
            .collect();
        if !lacks.is_empty() {
            self.installed.proven_again.insert(member, now);
        }
        for proof in lacks {
            cx.send(member, proof);
        }
    }

    /// Spreads a proof of death to all members of a wide view. Of a vote in an earlier view they need to know
    /// only that there was one. A vote in a later view is told to nobody before that view is installed: the
    /// vote without what was voted would be taken for none.
    pub(crate) fn spread_certificate(&mut self, now: Time, dead: Incarnation, vote: &VoteState) {
        let Some(gossip) = self.installed.topology.gossip_mut() else {
            return;
        };
        let id = vote.view.id();
        let present = id == self.installed.view.primary_id();
        if id > self.installed.view.primary_id() {
            return;
        }
        let brief = |accepted: &AcceptedValue| {
            let value = check::voted(&self.installed.view, &accepted.value)?;
            let change = check::change_of(&self.installed.view, &value);
            Some(AcceptedValue {
                ballot: accepted.ballot,
                value: Voted::Change(Box::new(change)),
            })
        };
        let accepted = vote.accepted.as_ref().filter(|_| present).map(brief);
        // An accepted value that cannot be read must not pass for none.
        if accepted.as_ref().is_some_and(Option::is_none) {
            return;
        }
        let vote = VoteState {
            view: VotedIn::Named {
                lineage: self.installed.view.lineage,
                id,
                change: None,
            },
            promised: vote.promised.filter(|_| present),
            accepted: accepted.flatten(),
        };
        let certificate = Box::new(Certificate { dead, vote });
        gossip.rumours.take(now, None, Rumour::Certificate(certificate));
    }
}

fn certificate(dead: Incarnation, vote: &VoteState) -> MembershipMessage {
    let vote = vote.clone();
    MembershipMessage::Certificate(Box::new(Certificate { dead, vote }))
}
