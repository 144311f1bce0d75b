//! The fast ballot: members that see the same agree without a leader, and a leader stands behind.
//!
//! ```text
//!      fast ballot      cast ──Cast(digest)──► all: three quarters of the weight cast the same? decided
//!                                              │ no: others see another cut, or too few are left
//!                                              ▼ after a while: the most senior, neither doubted nor lost
//!      higher ballots   Prepare ──► Promise ──► Accept ──► Accepted ──► Decide       ([`proposer`])
//! ```
//! A member casts its vote in one of two ways:
//!
//! - *Unprompted*, for the view without the members of the multi-node cut ([`cut`]), once the cut is quiet.
//! - *Asked.* Joins, leaves and all that is no loss begin as one node's proposed change. The proposer of that
//!   node asks for votes in the fast ballot with `Fast(view)`. All members that have cast no vote and object
//!   to nothing cast theirs for this view, and tell the asker. This takes a round trip, as in the coordinator
//!   engine.
//!
//! # When the fast ballot does not decide
//!
//! Each member has one vote in the fast ballot. The ballot does not decide where too few members see the
//! same:
//!
//! - the lost members weigh more than a quarter, or exactly a quarter and the most senior member is one of
//!   them (it casts no vote for its own removal);
//! - votes are split between two cuts;
//! - a member is unstable all the time, and nobody casts.
//!
//! The proposer of the leader goes on then, in a higher ballot of the same slot.
//!
//! # How the fast ballot relates to the rules
//!
//! **R1, one view, one Paxos slot.** The fast ballot is round 0 of the same slot, with the same acceptors in
//! the same state: to cast is to accept in ballot (0, nobody), once. An acceptor that promised a higher
//! ballot casts no more: `Slot::cast` is the only way to a vote, and it refuses. What an acceptor cast is in
//! every promise it makes. "One value per ballot" is the one thing that does not hold of round 0. So phase 1
//! concludes from round 0 by Fast Paxos' rule instead of "the value of the highest ballot". A value may have
//! been decided only if the voters that answered that they cast it, together with all voters that did not
//! answer, are a fast quorum. That can be so of one value only, and the leader proposes that value unchanged.
//! If it is so of none, the leader is free. Ballots from round 1 on have one proposer and one value each.
//! Nobody casts in a slot before installing its predecessor.
//!
//! **Why three quarters.** Let F and G be sets that might decide two values in the fast ballot. Let A be all
//! members that answered a leader or left a usable proof of death. F ∩ G has cast both values, so it is
//! outside of A. It weighs at least half of all (¾ + ¾ − 1). It weighs exactly half only if both are exactly
//! ¾ and so contain the most senior member. A weighs more than half of all: let D be the dead in A; A has
//! more than half of what is left without D, and D itself. A weighs exactly half only if D weighs nothing and
//! the most senior member is in A. Both cannot be.
//!
//! **R2, proof of death.** A fast quorum is counted among *all* members of the view: no proof reduces it.
//! Otherwise two learners with different proofs would have different fast quorums, and a leader could not
//! know which of them to fear. For phase 1 proofs count as they do for any ballot, with the vote they show. A
//! cast is on all lifelines before anyone is told of it, like a promise. If a member died without its cast in
//! the proof, it told nobody of that cast. So a cluster can be killed down to one member: that works by the
//! leader's rounds, as before.
//!
//! **R3, joint quorum.** A fast decision also needs the acknowledgement of a quorum of the next view. Joiners
//! count in it; they get `Fast` like everyone. The joint quorum is about what the next view can do, not about
//! what this one decided. A value with a fast quorum and without its joint quorum is not decided, and a
//! leader completes it all the same.
//!
//! # Invariants
//!
//! - A vote in the fast ballot exists only in the acceptor's slot; nothing else makes a `Cast` message.
//! - A vote cast without being asked is for the view without the members of the cut.
//! - Nobody casts for its own removal, asked or not, unless it leaves.
//! - A proof, a fast vote and a promise count once for each voter, by its incarnation.
//! - A decision is a whole view with all records. A member that misses it pulls it by its id: heartbeats tell
//!   which view is installed.
//!
//! # When participants die
//!
//! - *A member that cast*: its vote stays counted where it arrived. A leader finds the vote in a proof. Or it
//!   cannot know, and counts the silent member as having cast whatever that member might have cast.
//! - *The asker, with some votes cast for it*: the next leader's phase 1 finds what may be decided.
//! - *The leader of a higher round, at any point*: the next leader goes on in a round above. This repeats for
//!   as long as something is wanted.
//! - *More than a quarter at once, silent or proven dead*: the fast ballot cannot decide; the leader does not
//!   wait for it.
//! - *A quarter, or the most senior member, lost but still heard*: none of them votes for the cut, but they
//!   might vote for something else. The leader waits until the fast ballot had its time.
//! - *All that know of a decision*: the decision is in their proofs, or more than half of the view is silent
//!   and the slot waits.
//!
//! [`cut`]: crate::membership::agree::cut
//! [`proposer`]: crate::membership::agree::proposer

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::SlotMessage;
use antiphon_wire::{Cause, Incarnation, NodeView, ViewDigest};

use crate::Time;
use crate::membership::agree::cut::Cut;
use crate::membership::agree::interface::{ProposedChange, Surroundings};
use crate::membership::agree::proposer::Proposer;
use crate::membership::agree::slot::Step;
use crate::membership::monitor::rings::Rings;
use crate::membership::view::check;

/// At most this many different values of one fast ballot are counted.
const MAX_VALUES: usize = 64;

/// The fast ballot of the slot after `view`: which votes were cast, and what this node casts. The vote itself
/// is in the slot, which the proposer has.
#[derive(Debug)]
pub(crate) struct FastBallot {
    me: Incarnation,
    view: Arc<NodeView>,
    rings: Arc<Rings>,
    pub(crate) cut: Cut,
    /// Values that votes may be for.
    values: BTreeMap<ViewDigest, Arc<NodeView>>,
    /// The first vote of each member, also for values that are not known here.
    casts: BTreeMap<Incarnation, ViewDigest>,
    /// Whether this node's own vote is counted for what its proposer asked votes for.
    own_counted: bool,
    /// Until when the cut is left to the observers, if no ballot of this node is under way.
    pub(crate) wake: Option<Time>,
    /// The proposer starts no higher ballot for so long after this node cast a vote.
    fallback: Duration,
}

impl FastBallot {
    pub(crate) fn new(
        me: Incarnation,
        view: Arc<NodeView>,
        rings: Arc<Rings>,
        cut: Cut,
        fallback: Duration,
    ) -> Self {
        Self {
            me,
            view,
            rings,
            cut,
            values: BTreeMap::new(),
            casts: BTreeMap::new(),
            own_counted: false,
            wake: None,
            fallback,
        }
    }

    /// The view with this digest, if votes may be for it.
    pub(crate) fn value(&self, digest: ViewDigest) -> Option<&Arc<NodeView>> {
        self.values.get(&digest)
    }

    /// The observers go first: this node casts its vote for the cut as it was seen last, if it is time.
    /// Returns the wanted change of the proposer, unless that has to wait for the cut.
    pub(crate) fn go_first(
        &mut self,
        proposer: &mut Proposer,
        around: &mut Surroundings<'_>,
        wanted: Option<ProposedChange>,
    ) -> Option<ProposedChange> {
        let until = self.observe(proposer, around);
        self.wake = until.filter(|_| proposer.is_at_rest());
        wanted.filter(|wanted| self.wake.is_none() || self.cut.lets_pass(wanted))
    }

    /// Casts for the cut once it is clear. Returns until when a leader should leave the cut to the observers.
    fn observe(&mut self, proposer: &mut Proposer, around: &mut Surroundings<'_>) -> Option<Time> {
        let now = around.now;
        let wait = self.cut.wait(proposer.slot())?;
        if !around.primary || self.cut.contains(self.me) || !proposer.slot().may_cast() {
            return None;
        }
        if !self.cut.is_stable() && !planted!(CutWithoutQuiet) {
            return (now < wait.at_most).then_some(wait.at_most);
        }
        let value = self.cut.without_the_lost()?;
        if !proposer.slot().may_decide_fast(&value, around.reachable) {
            return None;
        }
        // R7: all that see this cut stop answering the lost now, so all may vote at the same time.
        let released = proposer.withhold(around, &value.departed);
        let due = released.map_or(wait.quiet, |released| wait.quiet.max(released));
        if now < due && !planted!(CutWithoutQuiet) {
            return Some(due);
        }
        self.cast(proposer, around, value, None);
        None
    }

    /// A node asks all for their votes for this view.
    pub(crate) fn on_fast(
        &mut self,
        proposer: &mut Proposer,
        around: &mut Surroundings<'_>,
        from: Incarnation,
        value: NodeView,
    ) {
        if self.rings.contains(from) && check::is_successor(&self.view, &value) {
            self.on_asked(proposer, around, from, Arc::new(value));
        }
    }

    /// A member asks all for their votes for this view, which may follow the present one. This node casts
    /// none if it sees another cut, or hears a member that would go.
    pub(crate) fn on_asked(
        &mut self,
        proposer: &mut Proposer,
        around: &mut Surroundings<'_>,
        asker: Incarnation,
        value: Arc<NodeView>,
    ) {
        self.cut.look(around, proposer.slot());
        let agrees = value.departed.iter().all(|departure| match departure.cause {
            Cause::Left | Cause::Superseded { .. } => true,
            // No vote here overrides a member or splits it off.
            Cause::Overridden { .. } | Cause::Separated { .. } => false,
            Cause::Crashed | Cause::Unreachable { .. } => {
                let who = departure.member.incarnation;
                who != self.me && self.cut.contains(who)
            }
        });
        let agrees = agrees && proposer.held(around, &value.departed, &[]).is_none();
        let digest = value.digest();
        self.know(proposer, around, digest, value.clone());
        if agrees && proposer.slot().may_cast() {
            self.cast(proposer, around, value, Some(asker));
        } else if self.casts.get(&self.me) == Some(&digest) {
            proposer.send(asker, SlotMessage::Cast { value: digest });
        } else {
            proposer.refuse_fast(asker);
        }
    }

    /// Casts this node's vote, and tells the asker of it, or all members.
    fn cast(
        &mut self,
        proposer: &mut Proposer,
        around: &mut Surroundings<'_>,
        value: Arc<NodeView>,
        asker: Option<Incarnation>,
    ) {
        let digest = value.digest();
        let own = value
            .departed
            .iter()
            .find(|gone| gone.member.incarnation == self.me);
        let of_itself = |cause: &Cause| matches!(cause, Cause::Left | Cause::Superseded { .. });
        assert!(
            own.is_none_or(|own| of_itself(&own.cause)) || planted!(),
            "R1: {:?} casts its vote for its own removal by {}",
            self.me,
            value.id
        );
        assert!(
            asker.is_some() || value.joined.is_empty() && !value.departed.is_empty() || planted!(),
            "R1: nobody has asked for {}, which {} join and {} leave",
            value.id,
            value.joined.len(),
            value.departed.len()
        );
        if !proposer.cast(value.clone()) {
            return;
        }
        proposer.give_fast_ballot_until(around.now + self.fallback);
        let message = SlotMessage::Cast { value: digest };
        match asker {
            Some(asker) => proposer.send(asker, message),
            None => proposer.broadcast(&[], &message),
        }
        self.know(proposer, around, digest, value);
        self.on_casts(proposer, around, &[self.me], digest);
    }

    /// Counts this node's own vote for what its proposer has asked votes for.
    pub(crate) fn count_own(&mut self, proposer: &mut Proposer, around: &mut Surroundings<'_>) {
        if !self.own_counted
            && let Some(value) = proposer.asked().cloned()
        {
            self.own_counted = true;
            let digest = value.digest();
            self.know(proposer, around, digest, value);
            self.on_casts(proposer, around, &[self.me], digest);
        }
    }

    /// Votes may be for this value.
    fn know(
        &mut self,
        proposer: &mut Proposer,
        around: &mut Surroundings<'_>,
        digest: ViewDigest,
        value: Arc<NodeView>,
    ) {
        if self.values.contains_key(&digest) || self.values.len() >= MAX_VALUES {
            return;
        }
        self.values.insert(digest, value);
        let waiting: Vec<Incarnation> = self
            .casts
            .iter()
            .filter(|(_, cast)| **cast == digest)
            .map(|(from, _)| *from)
            .collect();
        self.count(proposer, around, &waiting, digest);
    }

    /// These members cast their votes for this value.
    pub(crate) fn on_casts(
        &mut self,
        proposer: &mut Proposer,
        around: &mut Surroundings<'_>,
        from: &[Incarnation],
        digest: ViewDigest,
    ) {
        // Joiners of some value are no members, and there is no end of them. So only a value that is known
        // may name them.
        let value = self.values.get(&digest);
        let joins = |who: &Incarnation| value.is_some_and(|value| value.joined.contains(who));
        let mut first = Vec::with_capacity(from.len());
        for member in from {
            if (self.rings.contains(*member) || joins(member))
                && *self.casts.entry(*member).or_insert(digest) == digest
            {
                first.push(*member);
            }
        }
        if !first.is_empty() {
            self.count(proposer, around, &first, digest);
        }
    }

    fn count(
        &mut self,
        proposer: &mut Proposer,
        around: &mut Surroundings<'_>,
        from: &[Incarnation],
        digest: ViewDigest,
    ) {
        let Some(value) = self.values.get(&digest) else {
            return;
        };
        match proposer.slot_mut().on_casts(from, value) {
            Step::Decided { value } => {
                // Of the members that count the same votes, one tells the others: the asker, or else the
                // first that stays.
                let first = value.members.iter().map(|member| member.incarnation);
                let first = first.clone().find(|member| around.reachable.contains(member));
                let announce = proposer.asked().is_some() || first == Some(self.me);
                proposer.decided_fast(value, announce);
            }
            _ => proposer.on_fast_news(around),
        }
    }
}
