//! The cut engine: members that see enough agree without a leader, and a leader stands behind.
//!
//! After *Stable and Consistent Membership at Scale with Rapid* (Suresh et al., USENIX ATC 2018), with its
//! known faults mended.
//!
//! ```text
//!   observers ([`rings`]) ──doubts──► all ──► the cut ([`detection`]): stable? quiet?
//!                                              │ everyone composes the same view of it
//!                                              ▼
//!      fast ballot      cast ──Cast(digest)──► all: three quarters of the weight cast the same? decided
//!                                              │ no: others see another cut, or too few are left
//!                                              ▼ after a while: the most senior, neither doubted nor lost
//!      higher ballots   Prepare ──► Promise ──► Accept ──► Accepted ──► Decide       ([`proposer`])
//! ```
//! Joins, leaves and all that is no loss begin as one node's wish. That node asks for votes in the fast
//! ballot with `Fast(view)`. All members that have cast no vote and object to nothing cast theirs for this
//! view, and tell the asker. This takes a round trip, as in the coordinator engine.
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
//! A leader goes on then. It must know what the observers know. A member whose paths lose most of everything,
//! or that hears nobody, is still heard by all, so nobody doubts it. A leader that looked at doubts alone
//! would wish nothing, or would be that very member. So for every leader:
//!
//! ```text
//!   lost   = a member in the cut that is proven dead, or is in the cut by its own word, or that is reported
//!            by more than half of those of its observers that are not in the cut themselves;
//!            but nobody is lost, unless this node is primary and the others that it hears could decide
//!            without the lost
//!   leader = the most senior member that is heard, that no majority doubts, and that is not lost
//!   wish   = removes the lost members just as members that a majority doubts: nobody objects
//! ```
//! Fewer votes are behind a leader's round than behind a fast ballot, and a leader may take them at once. So
//! it must not take a member for lost that is in the cut only because its observers are. If three members
//! hear nobody and so report everybody, their reports come first; what others report of the three comes a
//! moment later. And half of a cluster does not throw out the other half because paths between them are bad.
//! After a partition, edges are down that were down in it. The leader leaves the cut to the observers first:
//! until the cut was quiet, while the observers could decide it, and until their votes had time.
//!
//! **R20, objections.** A member that casts unprompted asks nobody, and a leader does not ask about members
//! that it removes as lost. So nobody objects, not even a member that hears the lost one well. Ten observers
//! stand for all. In a view of fifty, a member that nine of them have lost goes although the other forty hear
//! it. Paths that fail so are taken for the member's own; if they are not, this costs a healthy member. A
//! leader that alone doubts a member has to ask as in the other engine, and then all members that hear it
//! object.
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
//! - A vote cast without being asked removes members and does nothing else. It is a function of the view and
//!   the ranks lost, so that all members that see the same cut cast the same bytes. Its accusers are the
//!   observers by the rings, with [`Evidence::Observed`].
//! - Nobody casts without being asked while any member is unstable. Nor does anybody cast before nothing has
//!   changed for a quiet, or three quiets have passed since the first of the cut came into it: losses come in
//!   bursts.
//! - As long as a member is unstable, a leader removes nobody, but for three quiets at most, counted over all
//!   views. Joins and leaves do not wait for that; they wait as long as a member is in the cut.
//! - Nobody casts for its own removal, asked or not, unless it leaves.
//! - A proof, a fast vote and a promise count once for each voter, by its incarnation.
//! - A decision is a whole view with all records. A member that misses it pulls it by its id: heartbeats tell
//!   which view is installed.
//!
//! # When participants die
//!
//! - *An observer*: its edges count as down once it is being lost itself; the other observers report without
//!   it.
//! - *A member that cast*: its vote stays counted where it arrived. A leader finds the vote in a proof. Or it
//!   cannot know, and counts the silent member as having cast whatever that member might have cast.
//! - *The asker, with some votes cast for it*: the next leader's phase 1 finds what may be decided.
//! - *The leader of a higher round, at any point*: the next leader goes on in a round above. This repeats for
//!   as long as something is wished for.
//! - *More than a quarter at once, silent or proven dead*: the fast ballot cannot decide; the leader does not
//!   wait for it.
//! - *A quarter, or the most senior member, lost but still heard*: none of them votes for the cut, but they
//!   might vote for something else. The leader waits until the fast ballot had its time.
//! - *All that know of a decision*: the decision is in their proofs, or more than half of the view is silent
//!   and the slot waits.
//!
//! What this module does not do: hear members, doubt them, or say which one leads. Membership does
//! ([`seat`]), for both engines.
//!
//! [`detection`]: crate::membership::monitor::detection
//! [`proposer`]: crate::membership::agree::proposer
//! [`rings`]: crate::membership::monitor::rings
//! [`seat`]: crate::membership::seat

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{Ayes, Ballot, Proof, SlotMessage, VoteState};
use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, NodeView, ViewDigest};

use crate::detector::MOST_PATIENCE;
use crate::membership::agree::compose::compose;
use crate::membership::agree::interface::{EngineEffect, ProposedChange, Surroundings, Votes};
use crate::membership::agree::proposer::{Proposer, used};
use crate::membership::agree::slot::{Acceptance, Slot, Step};
use crate::membership::monitor::detection::{Edge, Found};
#[cfg(test)]
use crate::membership::monitor::rings::RINGS;
use crate::membership::monitor::rings::Rings;
use crate::membership::view::check;
use crate::{Profile, Time};

#[cfg(test)]
mod tests;

/// At most this many different values of one fast ballot are counted.
const MAX_VALUES: usize = 64;
/// The cut is waited for at most this many quiets.
const MOST_QUIETS: u32 = 3;
/// A departure names this many of its observers.
const MAX_ACCUSERS: usize = 8;

/// The engine's state for the slot after `view`.
#[derive(Debug)]
pub(crate) struct FastProposer {
    me: Incarnation,
    view: Arc<NodeView>,
    rings: Arc<Rings>,
    /// Whether votes name what changes.
    named: bool,
    /// The leader's part, and the slot.
    classic: Proposer,
    found: Found,
    /// The view without the lost members, and which members these were when it was made; `None` for a view
    /// that may not follow this one.
    composed: Option<(BTreeSet<usize>, Option<Arc<NodeView>>)>,
    /// Since when anyone is being lost, and since when the cut is what it is; `None` while all is calm.
    trouble: Option<Trouble>,
    /// Members that are in the cut or about to be, or were a moment ago: since when, and when last. This goes
    /// from view to view.
    restless: BTreeMap<Incarnation, (Time, Time)>,
    /// Values that votes may be for.
    values: BTreeMap<ViewDigest, Arc<NodeView>>,
    /// The first vote of each member, also for values that are not known here.
    casts: BTreeMap<Incarnation, ViewDigest>,
    wake: Option<Time>,
    quiet_proven: Duration,
    quiet: Duration,
    /// However much patience an observer has learned, it has lost a silent subject after this long.
    most_patient: Duration,
    fallback: Duration,
}

#[derive(Debug, Clone)]
struct Trouble {
    since: Time,
    changed: Time,
    /// Since when each member of the cut is in it. A member that wavers keeps its time: otherwise it could
    /// hold up everything.
    lost: BTreeMap<usize, Time>,
}

/// The observers of the member of this rank.
#[cfg(test)]
pub(crate) fn observers(view: &NodeView, rank: usize) -> Vec<Incarnation> {
    let rings = Rings::new(view, RINGS);
    let members = rings.observers(rank).iter();
    members
        .map(|by| view.members[usize::from(*by)].incarnation)
        .collect()
}

impl FastProposer {
    pub(crate) fn new(
        me: Incarnation,
        view: Arc<NodeView>,
        rings: Arc<Rings>,
        votes: Votes,
        profile: &Profile,
    ) -> Self {
        let wide = rings.are_wide(view.members.len());
        // Votes need a few hops in a wide view.
        let patience = if wide {
            profile.heartbeat.max(profile.retransmit * 8)
        } else {
            profile.heartbeat
        };
        Self {
            me,
            rings,
            named: votes.are_named(),
            classic: Proposer::leaderless(me, view.clone(), (votes, patience), !wide, profile),
            view,
            found: Found::default(),
            composed: None,
            trouble: None,
            restless: BTreeMap::new(),
            values: BTreeMap::new(),
            casts: BTreeMap::new(),
            wake: None,
            fallback: if wide { patience } else { profile.retransmit * 2 },
            // Ends of connections come within milliseconds of each other, silences within a heartbeat.
            quiet_proven: if wide {
                profile.batch * 8
            } else {
                profile.batch * 2
            },
            quiet: profile.heartbeat * 5 / 4,
            most_patient: profile.suspect_after * MOST_PATIENCE,
        }
    }

    /// Goes on from the engine of the view before. Edges that are down are told again in each view. But bad
    /// paths may keep a member between noise and the cut for long: it would hold up every view anew if it
    /// were not known from the view before.
    pub(crate) fn follow(&mut self, before: Self) {
        self.restless = before.restless;
        self.restless.retain(|member, _| self.rings.contains(*member));
    }

    pub(crate) fn vote_state(&self) -> VoteState {
        self.classic.vote_state()
    }

    pub(crate) fn slot(&self) -> &Slot<Incarnation, Arc<NodeView>> {
        self.classic.slot()
    }

    pub(crate) fn could_decide(&self, reachable: &BTreeSet<Incarnation>) -> bool {
        self.classic.could_decide(reachable)
    }

    pub(crate) fn could_conclude(&self, reachable: &BTreeSet<Incarnation>) -> bool {
        self.classic.slot().could_conclude(reachable)
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.classic.is_bound()
    }

    pub(crate) fn names(&self, member: Incarnation) -> bool {
        self.classic.names(member)
    }

    pub(crate) fn certified(&self) -> BTreeSet<Incarnation> {
        self.classic.slot().certified()
    }

    pub(crate) fn is_certified(&self, member: Incarnation) -> bool {
        self.classic.is_certified(member)
    }

    pub(crate) fn certify(&mut self, around: &mut Surroundings<'_>, dead: Incarnation, vote: &VoteState) {
        self.classic.certify(around, dead, vote);
    }

    /// Members that are in the cut.
    pub(crate) fn lost(&self) -> impl Iterator<Item = Incarnation> {
        let member = |rank: &usize| self.view.members.get(*rank).map(|member| member.incarnation);
        self.found.stable.iter().filter_map(member)
    }

    /// Members in the cut that are beyond doubt.
    pub(crate) fn certain(&self) -> impl Iterator<Item = Incarnation> {
        let member = |rank: &usize| self.view.members.get(*rank).map(|member| member.incarnation);
        self.found.certain.iter().filter_map(member)
    }

    /// The observers that accuse a member in the cut which is not proven dead.
    pub(crate) fn witnesses(&self, member: Incarnation) -> Vec<Accusation> {
        let rank = self.rings.rank(member);
        let lost = rank.filter(|rank| self.found.stable.contains(rank) && !self.is_certified(member));
        lost.map_or_else(Vec::new, |rank| self.accusers(rank))
    }

    /// The view with this digest, if votes may be for it.
    pub(crate) fn value(&self, digest: ViewDigest) -> Option<&Arc<NodeView>> {
        self.values.get(&digest)
    }

    /// Members about to be lost that some of their observers have not given up: these should look again.
    pub(crate) fn unstable(&self) -> impl Iterator<Item = Incarnation> {
        let member = |rank: &usize| self.view.members.get(*rank).map(|member| member.incarnation);
        self.found.unstable.iter().filter_map(member)
    }

    /// Goes on with what [`FastProposer::look`] has just seen.
    pub(crate) fn pursue(&mut self, around: &mut Surroundings<'_>, wish: Option<ProposedChange>) {
        let until = self.observe(around);
        self.wake = until.filter(|_| self.classic.is_at_rest());
        let waits = |wish: &ProposedChange| self.wake.is_some() && !self.goes_before(wish);
        let wish = wish.filter(|wish| !waits(wish));
        self.classic.pursue(around, wish);
        self.count_own(around);
    }

    /// Whether a wish need not wait for members that may be about to be lost: it only lets joiners in and
    /// lets leaving members go. If a member is lost, the wish waits: each view begins the cut anew, and joins
    /// that come all the time would keep the lost members in.
    fn goes_before(&self, wish: &ProposedChange) -> bool {
        let of_itself = |cause: &Cause| matches!(cause, Cause::Left | Cause::Superseded { .. });
        self.found.stable.is_empty()
            && !wish.renew
            && !wish.unfinished
            && wish.remove.iter().all(|departure| of_itself(&departure.cause))
    }

    /// Counts this node's own vote for what the leader's part has asked votes for.
    fn count_own(&mut self, around: &mut Surroundings<'_>) {
        if let Some(value) = self.classic.newly_asked() {
            let digest = value.digest();
            self.know(around, digest, value);
            self.on_cast(around, self.me, digest);
        }
    }

    /// Casts for the cut once it is clear, as it was seen last. Returns until when a leader should leave the
    /// cut to the observers.
    fn observe(&mut self, around: &mut Surroundings<'_>) -> Option<Time> {
        let now = around.now;
        let trouble = self.trouble.as_ref()?;
        let lost = self.found.stable.iter().filter_map(|rank| trouble.lost.get(rank));
        let since = lost
            .min()
            .copied()
            .unwrap_or_else(|| self.restless_since(trouble));
        let changed = trouble.changed;
        if !around.primary || self.has_lost(self.me) || !self.classic.slot().may_cast() {
            return None;
        }
        let all_proven = self
            .found
            .stable
            .iter()
            .all(|rank| self.is_certified(self.view.members[*rank].incarnation));
        let quiet = if all_proven { self.quiet_proven } else { self.quiet };
        let at_most = since + quiet * MOST_QUIETS;
        if !self.found.unstable.is_empty() && !planted!(CutWithoutQuiet) {
            return (now < at_most).then_some(at_most);
        }
        let value = self.without_the_lost()?;
        if !self.classic.slot().may_decide_fast(&value, around.reachable) {
            return None;
        }
        let due = at_most.min(changed + quiet);
        // R7: all that see this cut stop answering the lost now, so all may vote at the same time.
        let released = self.classic.withhold(around, &value.departed);
        let due = released.map_or(due, |released| due.max(released));
        if now < due && !planted!(CutWithoutQuiet) {
            return Some(due);
        }
        self.cast(around, value, None);
        None
    }

    /// Looks at the edges, and at how long they have shown what they show.
    pub(crate) fn look(&mut self, around: &Surroundings<'_>) {
        let (found, now) = (self.find(around), around.now);
        if found.is_calm() {
            self.trouble = None;
        } else {
            let trouble = self.trouble.get_or_insert_with(|| Trouble {
                since: now,
                changed: now,
                lost: BTreeMap::new(),
            });
            if found.stable != self.found.stable || found.unstable != self.found.unstable {
                trouble.changed = now;
            }
            trouble
                .lost
                .retain(|rank, _| found.stable.contains(rank) || found.unstable.contains(rank));
            for rank in &found.stable {
                trouble.lost.entry(*rank).or_insert(now);
            }
        }
        for rank in found.stable.union(&found.unstable) {
            let member = self.view.members[*rank].incarnation;
            self.restless.entry(member).or_insert((now, now)).1 = now;
        }
        let lately = self.quiet * MOST_QUIETS;
        self.restless.retain(|_, (_, last)| now.since(*last) < lately);
        self.found = found;
    }

    /// Since when there have been members that are about to be lost, perhaps; earlier views count as well.
    fn restless_since(&self, trouble: &Trouble) -> Time {
        let known = self.unstable().filter_map(|member| self.restless.get(&member));
        let known = known.map(|(since, _)| *since).min();
        known.map_or(trouble.since, |since| since.min(trouble.since))
    }

    /// Whether a member is in the cut.
    fn has_lost(&self, member: Incarnation) -> bool {
        let rank = self.rings.rank(member);
        rank.is_some_and(|rank| self.found.stable.contains(&rank))
    }

    fn find(&self, around: &Surroundings<'_>) -> Found {
        let rank = |member: Incarnation| self.rings.rank(member);
        let certified = self.classic.slot().certificates().keys();
        let proven: BTreeSet<usize> = certified.filter_map(|dead| rank(*dead)).collect();
        let suspects: BTreeSet<usize> = around.suspects.iter().copied().filter_map(rank).collect();
        if suspects.is_empty() && proven.is_empty() {
            return Found::default();
        }
        let at = |rank: usize| self.view.members[rank].incarnation;
        let wide = self.rings.are_wide(self.view.members.len());
        let (now, most_patient) = (around.now, self.most_patient);
        crate::membership::monitor::detection::find(
            &self.rings,
            &suspects,
            &proven,
            wide,
            |observer, subject| match (around.edge_down_since)(at(observer), at(subject)) {
                None => Edge::Up,
                Some(since) if now.since(since) < most_patient => Edge::Down,
                Some(_) => Edge::DownForLong,
            },
        )
    }

    /// The view without the lost members, if it may follow this one. It is asked for at each input, and to
    /// make and check it takes long in a large view; so the last one is kept.
    fn without_the_lost(&mut self) -> Option<Arc<NodeView>> {
        if let Some((lost, value)) = &self.composed
            && *lost == self.found.stable
        {
            return value.clone();
        }
        let value = Arc::new(self.compose());
        let value = check::is_successor(&self.view, &value).then_some(value);
        self.composed = Some((self.found.stable.clone(), value.clone()));
        value
    }

    /// The view without the lost members: the same bytes wherever the same members are lost.
    fn compose(&self) -> NodeView {
        let remove = self.found.stable.iter().map(|rank| Departure {
            member: self.view.members[*rank].clone(),
            cause: Cause::Crashed,
            accusers: self.accusers(*rank),
        });
        let wish = ProposedChange {
            remove: Vec::new(),
            objectionable: BTreeSet::new(),
            join: Vec::new(),
            renew: false,
            unfinished: false,
            wire_level: self.view.wire_level,
            number: 0,
            origins: BTreeMap::new(),
        };
        compose(&self.view, remove.collect(), &wish, self.named)
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

    /// Casts this node's vote, and tells the asker of it, or all members.
    fn cast(&mut self, around: &mut Surroundings<'_>, value: Arc<NodeView>, asker: Option<Incarnation>) {
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
            SlotMessage::Fast { value } if self.rings.contains(from) => {
                if check::is_successor(&self.view, &value) {
                    self.on_fast(around, from, Arc::new(*value));
                }
            }
            SlotMessage::Cast { value } => self.on_cast(around, from, value),
            message => self.classic.handle(around, from, message),
        }
        self.count_own(around);
    }

    /// A member asks all for their votes for this view, which may follow the present one.
    pub(crate) fn asked(&mut self, around: &mut Surroundings<'_>, by: Incarnation, value: Arc<NodeView>) {
        self.on_fast(around, by, value);
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
        self.classic.on_accept(around, ballot, value, &used(proofs));
        self.count_own(around);
    }

    /// A member asks for a vote. This node casts none if it sees another cut, or hears a member that would
    /// go.
    fn on_fast(&mut self, around: &mut Surroundings<'_>, asker: Incarnation, value: Arc<NodeView>) {
        self.look(around);
        let agrees = value.departed.iter().all(|departure| match departure.cause {
            Cause::Left | Cause::Superseded { .. } => true,
            // No vote here overrides a member or splits it off.
            Cause::Overridden { .. } | Cause::Separated { .. } => false,
            Cause::Crashed | Cause::Unreachable { .. } => {
                let who = departure.member.incarnation;
                who != self.me && self.has_lost(who)
            }
        });
        let agrees = agrees && self.classic.held(around, &value.departed, &[]).is_none();
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
    fn know(&mut self, around: &mut Surroundings<'_>, digest: ViewDigest, value: Arc<NodeView>) {
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
        self.count(around, &waiting, digest);
    }

    fn on_cast(&mut self, around: &mut Surroundings<'_>, from: Incarnation, digest: ViewDigest) {
        // Joiners of some value are no members, and there is no end of them. So only a value that is known
        // may name them.
        let joins = |value: &Arc<NodeView>| value.joined.contains(&from);
        if !self.rings.contains(from) && !self.values.get(&digest).is_some_and(joins) {
            return;
        }
        let first = *self.casts.entry(from).or_insert(digest);
        self.count(around, &[from], first);
    }

    /// Members said the same. `accepted` is what they promised to have accepted, if they did: a view that may
    /// follow this one. What all of them say is weighed once.
    pub(crate) fn count_all(
        &mut self,
        around: &mut Surroundings<'_>,
        what: Ayes,
        members: &[Incarnation],
        accepted: Option<&Arc<NodeView>>,
    ) {
        match what {
            Ayes::Cast { value } => {
                let mut first = Vec::with_capacity(members.len());
                for member in members {
                    if *self.casts.entry(*member).or_insert(value) == value {
                        first.push(*member);
                    }
                }
                self.count(around, &first, value);
            }
            // Only the proposer counts the answers to a higher ballot. An answer that does not show what was
            // accepted is none.
            Ayes::Promise {
                ballot, accepted_in, ..
            } if ballot.proposer == self.me && accepted_in.is_some() == accepted.is_some() => {
                let accepted = accepted_in.zip(accepted).map(|(ballot, value)| Acceptance {
                    ballot,
                    value: value.clone(),
                });
                self.classic.on_promises(around, members, ballot, accepted);
                self.count_own(around);
            }
            Ayes::Accepted { ballot } if ballot.proposer == self.me => {
                self.classic.on_accepteds(around, members, ballot);
                self.count_own(around);
            }
            Ayes::Promise { .. } | Ayes::Accepted { .. } => {}
        }
    }

    fn count(&mut self, around: &mut Surroundings<'_>, from: &[Incarnation], digest: ViewDigest) {
        let Some(value) = self.values.get(&digest) else {
            return;
        };
        match self.classic.slot_mut().on_casts(from, value) {
            Step::Decided { value } => {
                // Of the members that count the same votes, one tells the others: the asker, or else the
                // first that stays.
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
