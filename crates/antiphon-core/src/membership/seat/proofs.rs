//! Proofs of death: what a member does with the events of its lifelines, and with the proofs that others
//! send.
//!
//! ```text
//!   lifeline ends with a FIN ──► certificate: dead, and this was its last vote ──► to all (in a wide view: a rumour)
//!   a witness saw it end (R10) ──► the same
//!   a vote on a lifeline, or in a certificate, given in a later view ──► that view is decided: installed, or pulled
//! ```
//! Which proofs are kept, and which members are told of them again: [`proofs`].
//!
//! [`proofs`]: crate::membership::agree::proofs

use std::sync::Arc;

use antiphon_wire::membership::{Certificate, Suspicion, VoteState, VotedIn};
use antiphon_wire::{Evidence, Incarnation};

use crate::membership::agree::lifelines::{self, Ended, Said};
use crate::membership::agree::proofs;
use crate::membership::context::Context;
use crate::membership::seat::Seat;
use crate::membership::view::check::{self, Shown};
use crate::{BallotStep, LifelineEvent, Time, witness};

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
            // It is dialled again, and the watcher is not doubted for what this host lacks.
            LifelineEvent::NotDialled { dial } => {
                cx.lifelines.failed(now, dial, cx.config.profile.retransmit * 2);
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

    /// R10: all that this node has voted, to its witness.
    pub(crate) fn leave_last_vote(&self, cx: &mut Context) {
        if cx.config.witness {
            let watchers = lifelines::watchers(&self.installed.view, cx.me, &self.installed.rings);
            let vote = self.installed.engine.vote_state();
            let last_vote = witness::last_vote(&self.installed.view, cx.me, &watchers, vote);
            cx.leave_last_vote(Some(&last_vote));
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
        match check::shown_after(&self.installed.view, shown) {
            Shown::View(view) => self.learn(cx, now, Arc::new(view), from),
            Shown::Later => {
                if let Some(from) = from {
                    self.reach(cx, from);
                    self.pull(cx, now, from);
                }
            }
            Shown::Nothing => {}
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
        if !self.proofs.take(dead, &vote) {
            return true;
        }
        let view = self.installed.view.clone();
        let (slot, accepted, of) = proofs::last_slot(&view, &vote);
        cx.trail(slot, accepted, of, BallotStep::Certified { dead });
        cx.detector.accuse(now, dead, Evidence::ProofOfDeath);
        if share && !self.installed.topology.tells_all() {
            proofs::spread(now, &mut self.installed.topology, &view, dead, &vote);
        } else if share {
            let mut others = self.reachable(cx);
            others.retain(|member| *member != cx.me && *member != dead);
            for member in others {
                cx.send(member, proofs::certificate(dead, &vote));
            }
        }
        self.lease.proven(now);
        self.with_engine(cx, now, |engine, around| engine.certify(around, dead, &vote));
        true
    }

    /// Tells a member of a narrow view proofs again that it lacks, unless it does not take what it was sent
    /// before: then its channel would break.
    pub(crate) fn prove_again(
        &mut self,
        cx: &mut Context,
        now: Time,
        member: Incarnation,
        suspicions: &[Suspicion],
    ) {
        if !self.installed.topology.tells_all() || cx.crowded.contains(&member) {
            return;
        }
        let since = |dead| cx.detector.doubt(cx.me, dead).map(|doubt| doubt.since);
        let heartbeat = cx.config.profile.heartbeat;
        for proof in self.proofs.lacking(now, member, suspicions, heartbeat, since) {
            cx.send(member, proof);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use crate::detector::Came;
    use crate::membership::{Effect, Membership, Phase};
    use crate::random::Random;
    use crate::{Config, DialId, LifelineCommand};

    /// Two members, of which the first one dials its lifeline for ever.
    struct Pair {
        now: Time,
        members: [Membership; 2],
        names: [Incarnation; 2],
        dial: Option<DialId>,
    }

    fn addr(member: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 7000 + member as u16))
    }

    impl Pair {
        fn seated() -> Self {
            let members = [0, 1].map(|member| {
                let mut config = Config::new("test", format!("n{member}"), addr(member));
                config.seeds = vec![addr(0), addr(1)];
                let random = Random::new([7, member as u64 + 1, 3, 4]);
                Membership::new(Arc::new(config), random, Time::ZERO)
            });
            let mut pair = Self {
                now: Time::ZERO,
                members,
                names: [Incarnation(0); 2],
                dial: None,
            };
            for _ in 0..250 {
                pair.pass_ten_ms();
                while [0, 1].into_iter().any(|from| pair.carry(from)) {}
            }
            pair
        }

        fn pass_ten_ms(&mut self) {
            self.now = self.now + Duration::from_millis(10);
            for member in &mut self.members {
                if member.next_timeout().is_some_and(|at| at <= self.now) {
                    member.handle_timeout(self.now);
                }
            }
        }

        /// Brings the next thing that a member says to the other one, at once.
        fn carry(&mut self, from: usize) -> bool {
            let Some(effect) = self.members[from].poll_effect() else {
                return false;
            };
            let (now, sender) = (self.now, self.names[from]);
            let other = &mut self.members[1 - from];
            match effect {
                Effect::NewIncarnation { me, .. } => self.names[from] = me,
                Effect::Discovery { to, message } if to == addr(1 - from) => {
                    other.handle_discovery(now, addr(from), sender, message);
                }
                Effect::Send { message, .. } => other.handle_message(now, sender, message),
                Effect::Heartbeat { heartbeat, .. } => {
                    other.heard(now, sender, Came::Directly);
                    other.handle_heartbeat(now, sender, heartbeat, Came::Directly);
                }
                Effect::Lifeline(LifelineCommand::Open { dial, .. }) if from == 0 => self.dial = Some(dial),
                _ => {}
            }
            true
        }
    }

    /// Whether the first member hears the other one well after this event of its lifeline, and whether it
    /// suspects it when it has heard nothing more for 0.6 s.
    fn after(event: impl Fn(DialId) -> LifelineEvent) -> (bool, bool) {
        let mut pair = Pair::seated();
        let (now, peer) = (pair.now, pair.names[1]);
        let dial = pair.dial.expect("it dials");
        let member = &mut pair.members[0];
        assert!(matches!(&member.phase, Phase::Seated(seat) if seat.installed.view.members.len() == 2));
        member.handle_lifeline(now, event(dial), None);
        let hears_well = member.cx.detector.hears_well(now, peer);
        for _ in 0..60 {
            pair.pass_ten_ms();
        }
        (hears_well, pair.members[0].cx.detector.suspects(peer))
    }

    #[test]
    fn a_watcher_is_not_doubted_because_this_host_lacks_what_a_lifeline_takes() {
        assert_eq!(after(|dial| LifelineEvent::NotDialled { dial }), (true, false));
        assert_eq!(after(|dial| LifelineEvent::Failed { dial }), (false, true));
    }
}
