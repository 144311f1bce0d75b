//! The cut engine: whoever observes enough agrees without a leader, and a leader stands behind.
//!
//! After *Stable and Consistent Membership at Scale with Rapid* (Suresh et al., USENIX ATC 2018), with its known faults mended.
//!
//! ```text
//!   observers ([`rings`]) ──doubts──► all ──► the cut ([`detection`]): stable? quiet?
//!                                              │ everyone composes the same view of it
//!                                              ▼
//!      fast ballot      cast ──Cast(digest)──► all: three quarters of the weight cast the same? decided
//!                                              │ no: others see another cut, or too few are left
//!                                              ▼ the most senior member that is not doubted, after a while
//!      higher ballots   Prepare ──► Promise ──► Accept ──► Accepted ──► Decide       ([`super::coordinator`])
//! ```
//! Joins, leaves and all that is no loss are one node's wish to begin with: it asks for votes in the fast ballot with
//! `Fast(view)`, and all that have cast none and object to nothing cast theirs for it, to the asker. A round trip, as in the
//! coordinator engine.
//!
//! # How the fast ballot relates to the rules
//!
//! **R1, one view, one Paxos slot.** The fast ballot is round 0 of the same slot, with the same acceptors in the same state: to cast
//! is to accept in ballot (0, nobody), once. An acceptor that promised a higher ballot casts no more (`Slot::cast` is the only
//! way to a vote, and it refuses); what it cast is in every promise it makes. "One value per ballot" is the one thing that does not
//! hold of round 0, and so phase 1 concludes from it by Fast Paxos' rule instead of "the value of the highest ballot": a value
//! may have been decided only if those who answered that they cast it, together with all who did not answer, are a fast quorum.
//! That can be so of one value only, and that one is proposed unchanged; if of none, the leader is free. Ballots from round 1 on
//! have one proposer and one value each. Nobody casts in a slot before installing its predecessor.
//!
//! **Why three quarters.** Let F and G be sets that might decide two values in the fast ballot, and A all who answered a leader or
//! left a usable proof of death. F ∩ G has cast both values, so it is outside of A. It weighs at least half of all (¾ + ¾ − 1),
//! exactly half only if both are exactly ¾ and so contain the most senior member. A weighs more than half of all: with D the dead
//! in it, it has more than half of what is left without D, and D itself; exactly half only if D weighs nothing and the most
//! senior member is in A. Both cannot be.
//!
//! **R2, proof of death.** A fast quorum is counted among *all* of the view: no proof reduces it. If it did, two learners with
//! different proofs would have different fast quorums, and a leader could not know which of them to fear. For phase 1 proofs count
//! as they do for any ballot, with the vote they show: a cast is on all lifelines before it is told to anyone, like a promise. A
//! member that died without its cast in the proof told it nobody. So killing a cluster down to one works by the leader's
//! rounds, as before.
//!
//! **R3, joint quorum.** A fast decision needs the acknowledgement of a quorum of the next view as well, joiners' included, who
//! get `Fast` like everyone. It is about what the next view can do, not about what this one decided: a value with a fast quorum
//! and without its joint quorum is not decided, and a leader completes it all the same.
//!
//! # Invariants
//!
//! - A vote in the fast ballot exists only in the acceptor's slot; nothing else makes a `Cast` message.
//! - What is cast without being asked removes members and does nothing else; it is a function of the view and the ranks lost, so
//!   that all who see the same cut cast the same bytes. Its accusers are the observers by the rings, with [`Evidence::Observed`].
//! - Nothing is cast without being asked while anyone is unstable, or before the cut was quiet: losses come in bursts.
//! - A proof, a fast vote and a promise count once for each voter, by its incarnation.
//! - A decision is a whole view with all records. Whoever misses it pulls it by its id: heartbeats tell which one is installed.
//!
//! # When participants die
//!
//! - *An observer*: its edges count as down once it is being lost itself; the rest reports without it.
//! - *A member that cast*: its vote stays counted where it arrived; a leader finds it in a proof, or cannot know and counts the silent
//!   as having cast whatever they might have.
//! - *The asker, with some votes cast for it*: the next leader's phase 1 finds what may be decided.
//! - *The leader of a higher round, at any point*: the next one, in a round above; tried again for as long as something is wished for.
//! - *More than a quarter at once*: the fast ballot cannot decide; the leader does not wait for it.
//! - *Everyone who knows of a decision*: it is in their proofs, or more than half of the view is silent and the slot waits.
//!
//! What this module does not do: hear, doubt, or say who leads. Membership does ([`super::seat`]), for both engines.

mod detection;
mod rings;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{SlotMessage, VoteState};
use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, NodeView, ViewDigest};

use self::detection::Found;
use self::rings::Rings;
use super::check;
use super::coordinator::{Coordinator, compose};
use super::engine::{EngineEffect, Surroundings, Wish};
use super::slot::Step;
use crate::{Profile, Time};

/// More different values of one fast ballot than this are not counted.
const MAX_VALUES: usize = 64;
/// A departure names this many of its observers.
const MAX_ACCUSERS: usize = 8;

/// The engine's state for the slot after `view`.
#[derive(Debug)]
pub(crate) struct Cut {
    me: Incarnation,
    view: Arc<NodeView>,
    rings: Rings,
    /// The leader's part, and the slot.
    classic: Coordinator,
    found: Found,
    /// Since when anyone is being lost, and since when the cut is what it is.
    trouble: Option<Trouble>,
    /// Values that votes may be for.
    values: BTreeMap<ViewDigest, NodeView>,
    /// The first vote of each member, also for values that are not known here.
    casts: BTreeMap<Incarnation, ViewDigest>,
    wake: Option<Time>,
    quiet_proven: Duration,
    quiet: Duration,
    fallback: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Trouble {
    since: Time,
    changed: Time,
}

/// Who observes the member of this rank.
#[cfg(test)]
pub(super) fn observers(view: &NodeView, rank: usize) -> Vec<Incarnation> {
    let rings = Rings::new(view);
    let members = rings.observers(rank).iter();
    members
        .map(|by| view.members[usize::from(*by)].incarnation)
        .collect()
}

impl Cut {
    pub(crate) fn new(me: Incarnation, view: Arc<NodeView>, profile: &Profile) -> Self {
        Self {
            me,
            rings: Rings::new(&view),
            classic: Coordinator::leaderless(me, view.clone(), profile),
            view,
            found: Found::default(),
            trouble: None,
            values: BTreeMap::new(),
            casts: BTreeMap::new(),
            wake: None,
            // Ends of connections come within milliseconds of each other, silences within a heartbeat.
            quiet_proven: profile.batch * 2,
            quiet: profile.heartbeat * 5 / 4,
            fallback: profile.retransmit * 2,
        }
    }

    pub(crate) fn vote_state(&self) -> VoteState {
        self.classic.vote_state()
    }

    pub(crate) fn could_decide(&self, reachable: &BTreeSet<Incarnation>) -> bool {
        self.classic.could_decide(reachable)
    }

    pub(crate) fn is_certified(&self, member: Incarnation) -> bool {
        self.classic.is_certified(member)
    }

    pub(crate) fn certify(&mut self, around: &mut Surroundings<'_>, dead: Incarnation, vote: &VoteState) {
        self.classic.certify(around, dead, vote);
    }

    /// Members about to be lost whom some of their observers have not given up: these should look again.
    pub(crate) fn unstable(&self) -> impl Iterator<Item = Incarnation> {
        let member = |rank: &usize| self.view.members.get(*rank).map(|member| member.incarnation);
        self.found.unstable.iter().filter_map(member)
    }

    pub(crate) fn pursue(&mut self, around: &mut Surroundings<'_>, wish: Option<Wish>) {
        self.wake = None;
        match self.observe(around) {
            Some(until) if self.classic.is_at_rest() => {
                self.wake = Some(until);
                self.classic.pursue(around, None);
            }
            _ => self.classic.pursue(around, wish),
        }
        self.count_own(around);
    }

    /// What the leader's part asked votes for has this node's.
    fn count_own(&mut self, around: &mut Surroundings<'_>) {
        if let Some(value) = self.classic.newly_asked() {
            let digest = value.digest();
            self.know(around, digest, value);
            self.on_cast(around, self.me, digest);
        }
    }

    /// Looks at the cut, and casts for it once it is clear. Gives how long a leader should leave it to the observers.
    fn observe(&mut self, around: &mut Surroundings<'_>) -> Option<Time> {
        let found = self.find(around);
        let now = around.now;
        if found.is_calm() {
            self.trouble = None;
            self.found = found;
            return None;
        }
        let trouble = self.trouble.get_or_insert(Trouble {
            since: now,
            changed: now,
        });
        if found != self.found {
            trouble.changed = now;
            self.found = found;
        }
        let Trouble { since, changed } = *trouble;
        let lost_me = self
            .view
            .rank(self.me)
            .is_none_or(|me| self.found.stable.contains(&me));
        if !around.primary || lost_me || !self.classic.slot().may_cast() {
            return None;
        }
        let all_proven = self
            .found
            .stable
            .iter()
            .all(|rank| self.is_certified(self.view.members[*rank].incarnation));
        let quiet = if all_proven { self.quiet_proven } else { self.quiet };
        let at_most = since + quiet * 3;
        if !self.found.unstable.is_empty() && !planted!(CutWithoutQuiet) {
            return (now < at_most).then_some(at_most);
        }
        let value = self.compose();
        if !check::is_successor(&self.view, &value)
            || !self.classic.slot().may_decide_fast(&value, around.reachable)
        {
            return None;
        }
        let due = at_most.min(changed + quiet);
        if now < due && !planted!(CutWithoutQuiet) {
            return Some(due);
        }
        self.cast(around, value, None);
        None
    }

    fn find(&self, around: &Surroundings<'_>) -> Found {
        let rank = |member: Incarnation| self.view.rank(member);
        let certified = self.view.members.iter().enumerate();
        let proven: BTreeSet<usize> = certified
            .filter(|(_, member)| self.is_certified(member.incarnation))
            .map(|(rank, _)| rank)
            .collect();
        let suspects: BTreeSet<usize> = around.suspects.iter().copied().filter_map(rank).collect();
        if suspects.is_empty() && proven.is_empty() {
            return Found::default();
        }
        let at = |rank: usize| self.view.members[rank].incarnation;
        detection::find(&self.rings, &suspects, &proven, |observer, subject| {
            (around.edge_is_down)(at(observer), at(subject))
        })
    }

    /// The view without those lost: the same bytes wherever the same are lost.
    fn compose(&self) -> NodeView {
        let remove = self.found.stable.iter().map(|rank| Departure {
            member: self.view.members[*rank].clone(),
            cause: Cause::Crashed,
            accusers: self.accusers(*rank),
        });
        let wish = Wish {
            remove: Vec::new(),
            objectionable: BTreeSet::new(),
            join: Vec::new(),
            renew: false,
            wire_level: self.view.wire_level,
            number: 0,
        };
        compose(&self.view, remove.collect(), &wish)
    }

    fn accusers(&self, rank: usize) -> Vec<Accusation> {
        let mut observers: Vec<usize> = self
            .rings
            .observers(rank)
            .iter()
            .map(|by| usize::from(*by))
            .collect();
        observers.sort_unstable();
        if observers.iter().any(|by| !self.found.stable.contains(by)) {
            observers.retain(|by| !self.found.stable.contains(by));
        }
        let accusation = |by: &usize| Accusation {
            accuser: self.view.members[*by].incarnation,
            evidence: Evidence::Observed,
            before_ms: 0,
        };
        observers.iter().take(MAX_ACCUSERS).map(accusation).collect()
    }

    /// Casts this node's vote; tells the asker, or all.
    fn cast(&mut self, around: &mut Surroundings<'_>, value: NodeView, asker: Option<Incarnation>) {
        let digest = value.digest();
        if !self.classic.cast(value.clone()) {
            return;
        }
        self.classic.give_fast_ballot_until(around.now + self.fallback);
        let message = SlotMessage::Cast { value: digest };
        match asker {
            Some(asker) => self.classic.send(asker, message),
            None => self.classic.broadcast(&[], &message),
        }
        self.know(around, digest, value);
        self.on_cast(around, self.me, digest);
    }

    pub(crate) fn handle(&mut self, around: &mut Surroundings<'_>, from: Incarnation, message: SlotMessage) {
        match message {
            SlotMessage::Fast { value } if self.view.contains(from) => self.on_fast(around, from, *value),
            SlotMessage::Cast { value } => self.on_cast(around, from, value),
            message => self.classic.handle(around, from, message),
        }
        self.count_own(around);
    }

    /// A member asks for a vote. Who sees another cut, or hears one who would go, casts none for it.
    fn on_fast(&mut self, around: &mut Surroundings<'_>, asker: Incarnation, value: NodeView) {
        if !check::is_successor(&self.view, &value) {
            return;
        }
        self.found = self.find(around);
        let agrees = value.departed.iter().all(|departure| match departure.cause {
            Cause::Left | Cause::Superseded { .. } => true,
            // No vote overrides anybody.
            Cause::Overridden { .. } => false,
            Cause::Crashed | Cause::Unreachable { .. } => {
                let rank = self.view.rank(departure.member.incarnation);
                rank.is_some_and(|rank| self.found.stable.contains(&rank))
            }
        });
        let digest = value.digest();
        self.know(around, digest, value.clone());
        if agrees && self.classic.slot().may_cast() {
            self.cast(around, value, Some(asker));
        } else if self.casts.get(&self.me) == Some(&digest) {
            self.classic.send(asker, SlotMessage::Cast { value: digest });
        } else {
            self.classic.refuse_fast(asker);
        }
    }

    /// Votes may be for this value.
    fn know(&mut self, around: &mut Surroundings<'_>, digest: ViewDigest, value: NodeView) {
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
        for from in waiting {
            self.count(around, from, digest);
        }
    }

    fn on_cast(&mut self, around: &mut Surroundings<'_>, from: Incarnation, digest: ViewDigest) {
        // Joiners of some value are no members; of those there is no end, so only a value that is known may name them.
        let joins = |value: &NodeView| value.joined.contains(&from);
        if !self.view.contains(from) && !self.values.get(&digest).is_some_and(joins) {
            return;
        }
        let first = *self.casts.entry(from).or_insert(digest);
        self.count(around, from, first);
    }

    fn count(&mut self, around: &mut Surroundings<'_>, from: Incarnation, digest: ViewDigest) {
        let Some(value) = self.values.get(&digest) else {
            return;
        };
        match self.classic.slot_mut().on_cast(&from, value) {
            Step::Decided { value } => {
                // Of those who count the same votes one tells the others: whoever asked, or else the first that stays.
                let first = value.members.iter().map(|member| member.incarnation);
                let first = first.clone().find(|member| around.reachable.contains(member));
                let announce = self.classic.has_asked() || first == Some(self.me);
                self.classic.decided_fast(value, announce);
            }
            _ => self.classic.on_fast_news(around),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        [self.wake, self.classic.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(crate) fn poll_effect(&mut self) -> Option<EngineEffect> {
        self.classic.poll_effect()
    }
}
