//! What a member does with its lease: it counts answers, gives them, and says when it believes in its view.

use std::time::Duration;

use antiphon_wire::membership::Ballot;
use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, NodeView, ViewId};

use crate::membership::agree::slot::FAST;
use crate::membership::context::Context;
use crate::membership::seat::Seat;
use crate::{Event, Time};

/// A member that asks is answered at once, but no more often than so many times in a heartbeat. If it goes on
/// asking, each pause before an answer is twice as long, and never longer than so many heartbeats. A member
/// that is so late that all answers are too old when it reads them asks with each heartbeat; to read more
/// answers makes it later still.
const ANSWERS_PER_BEAT: u32 = 4;
const LONGEST_PAUSE_BEATS: u32 = 16;
/// Without news, answers are counted again when only one part in so many of the lease is left.
const RENEWS_BEFORE: u32 = 4;

impl Seat {
    /// Counts the answers again, well before the last count is over: a caller in between must not find that
    /// the lease is over.
    pub(crate) fn renew_lease(&mut self, cx: &Context, now: Time) {
        let Some(until) = self.lease.until().filter(|_| !self.lease.by_rounds) else {
            return;
        };
        let length = self.lease.length();
        let soon = until <= now + length / 2;
        let due = until <= now + length / RENEWS_BEFORE && now >= self.lease.count_again;
        if soon && (self.lease.fresh || due) {
            let dead = self.installed.engine.dead_without_vote();
            self.lease.renew(now, cx.me, &self.installed.view, &dead);
        }
    }

    /// Whether this node may act as a member of the primary view.
    pub(crate) fn believes(&self, now: Time) -> bool {
        self.is_primary() && self.lease.until().is_none_or(|until| now < until)
    }

    /// R7: no member that this vote removes, and that is not proven dead, still believes in its view by an
    /// answer of this node. This node does not know the proofs of another proposer.
    pub(crate) fn assert_nobody_believes(&self, cx: &Context, now: Time, ballot: Ballot, view: &NodeView) {
        let by_own_proofs = ballot == FAST || ballot.proposer == cx.me;
        let proof = |by: &Accusation| by.evidence == Evidence::ProofOfDeath;
        let may_believe = |departure: &&Departure| {
            let who = departure.member.incarnation;
            let goes_now = departure.cause == Cause::Left || departure.accusers.iter().any(proof);
            let gone = goes_now || who == cx.me || self.installed.engine.is_certified(who);
            !gone
                && self
                    .lease
                    .holds(now, who, self.installed.rings.rank(who))
                    .is_some()
        };
        let believes = view.departed.iter().filter(|_| by_own_proofs).find(may_believe);
        assert!(
            believes.is_none() || planted!(),
            "R7: {:?} votes in {ballot:?} for {}, without {believes:?}, which may believe in {}",
            cx.me,
            view.id,
            self.installed.view.id
        );
    }

    /// Tells the application when this node begins or ceases to believe in its view. An incarnation begins
    /// without a lease.
    pub(crate) fn tell_lease(&mut self, cx: &mut Context, now: Time) {
        self.renew_lease(cx, now);
        let believes = self.believes(now);
        // A non-primary view says so itself.
        if believes == self.lease.told || !self.is_primary() {
            return;
        }
        self.lease.told = believes;
        cx.event(Event::Lease { held: believes });
        if !believes {
            // The sooner it asks, the sooner it knows.
            match &mut self.installed.rounds {
                Some(rounds) => rounds.ask(now),
                None => self.next_heartbeat = self.next_heartbeat.min(now),
            }
        }
    }

    /// When this node looks at its lease again.
    pub(crate) fn lease_deadline(&self) -> Option<Time> {
        let until = self.lease.until();
        let until = until.filter(|_| self.lease.told && self.is_primary())?;
        if self.lease.by_rounds {
            return Some(until);
        }
        let early = until - self.lease.length() / RENEWS_BEFORE;
        Some(early.max(self.lease.count_again).min(until))
    }

    /// Takes what a member's heartbeat says of leases. `hears_this`: whether the member hears this node. If
    /// it does not, it could not hear an answer either, so nothing is held back for it.
    pub(crate) fn hear_lease(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        (round, view): (u64, ViewId),
        (said, hears_this): (&antiphon_wire::membership::LeaseNote, bool),
    ) {
        // A member must not count what another member was answered, however it came there.
        if self.installed.topology.leases_by_rounds() || said.to != cx.me && !planted!(AnswersAreAnybodys) {
            return;
        }
        let length = Duration::from_millis(u64::from(said.length_ms));
        if hears_this {
            self.lease.note(now, sender, round, view, length);
        }
        if view == self.installed.view.primary_id() {
            self.lease.hear_answer(sender, said.answers);
            if said.voted {
                self.lease.voters.entry(sender).or_insert(now);
            } else {
                self.lease.voters.remove(&sender);
            }
            // The leader is about to remove these members, and will ask others to vote them out.
            if !said.withheld.is_empty() && self.installed.leader == Some(sender) {
                let me = cx.me;
                let members: Vec<Incarnation> = said
                    .withheld
                    .iter()
                    .copied()
                    .filter(|member| *member != me && self.installed.view.contains(*member))
                    .collect();
                self.lease.withhold(now, &members);
            }
            if !said.asks {
                self.lease.answered_at_once.remove(&sender);
            } else if self.lease.answer_to(sender, view) == round {
                let heartbeat = cx.config.profile.heartbeat;
                let first = heartbeat / ANSWERS_PER_BEAT;
                let before = self.lease.answered_at_once.get(&sender);
                let due = before.is_none_or(|(last, pause)| now.since(*last) >= *pause);
                if due {
                    let pause = before.map_or(first, |(_, pause)| *pause * 2);
                    let pause = pause.min(heartbeat * LONGEST_PAUSE_BEATS);
                    self.lease.answered_at_once.insert(sender, (now, pause));
                    self.beat_to(cx, now, sender);
                }
            }
        }
    }

    /// The members that this node would remove, and therefore does not answer.
    pub(crate) fn withholds(&self, now: Time) -> Vec<Incarnation> {
        let mut members: Vec<Incarnation> = self.lease.withheld(now).collect();
        members.truncate(MOST_NAMED);
        members
    }
}

/// A heartbeat names at most so many members that are about to be removed.
const MOST_NAMED: usize = 64;
