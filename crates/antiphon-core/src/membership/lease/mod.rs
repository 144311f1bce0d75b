//! The lease of the primary: for how long a member may go on believing in its view (R7, G42).
//!
//! Two primary views never *decide* at the same time. Two members may still *believe* to be in one: a member
//! that is cut off, or was stopped, does not hear that the others removed it. The lease bounds that. A member
//! believes only as long as a quorum of its view answered a heartbeat that it sent within `L`, and nobody
//! votes it out before that time is over.
//!
//! ```text
//!   m                                           a, another member of the same view
//!   heartbeat r, sent at s ───────────────────► came at c ≥ s: noted, unless a has a vote
//!                                                 in the slot, or withholds it from m
//!   a answered r                 ◄───────────── its next heartbeat: "yours, r"; at once if m asked
//!   a quorum answered what was sent at s or later: believes until s + L
//!
//!   later: remove m, which is not proven dead? ─► not before c + L', nor before L' after a installed this
//!                                                 view, and a leader not before its last proof of death + L'
//!                                                 (L' = L and a margin for clocks)
//! ```
//! The answer rides on heartbeats, each of which goes to one member anyway: it costs some bytes. In a view
//! whose members are not all neighbours, no member hears a quorum. There the answers go another way
//! ([`rounds`]), and all else is the same.
//!
//! While m does not believe, it stays a member, votes, answers and sends. But nothing is delivered to its
//! application, and the application is told so. What was held back is delivered when the lease is renewed,
//! also after the loss of the primary. It is dropped if m turns out to be removed.
//!
//! # Invariants
//!
//! - **A vote ends the answers.** A member that accepted anything in the slot after its view notes no more
//!   heartbeats, not even its own, until it has installed the next view. (Its own heartbeat counts as of that
//!   moment, or not at all if the member accepted a view without itself.)
//! - **An answer holds back the vote.** A member that noted a heartbeat of m votes for no view without m
//!   until that answer has no effect any more, unless m is proven dead, or leaves.
//! - **Only heartbeats of one's own view are answered**, and only of members that say that they hear this
//!   node.
//! - **A dead member counts out of the quorum of the lease if it never accepted anything in the slot.** If it
//!   did, it may have decided a view without m.
//! - **A proof of death may be younger than an answer of the dead.** So a leader that counts without the dead
//!   waits for as long as such an answer lasts.
//! - What a member believed in one view holds in the next one: it was answered before the next one was
//!   decided.
//!
//! That no member believes beside a later view without it is for the simulator to judge
//! (`check/inside/leases`, G42).
//!
//! # Why this is enough
//!
//! *Nobody is removed while it believes.* Let X, without m, be decided at τ by a leader p. Q is the quorum of
//! the members that accepted X, counted without the dead D. Let m believe later by the quorum A of the
//! members that answered it, counted without the dead E. None of D is in A: it died before p knew, and p
//! waited L' after that. None of E is in Q: it accepted nothing. So A and Q are both quorums of what is left
//! without D and E, and have a member a in common. If a noted m's heartbeat first, it voted L' later, and m's
//! lease was over. If a voted first, it noted no heartbeat after that. And if a is m itself, m accepted a
//! view without itself, and counts itself no more.
//!
//! *Nor while it is behind.* Let m be in view n, and X be view n + 2, without m. Each member that votes for X
//! has installed n + 1, after n + 1 was decided, and waits L' from then on. What m believes later, a quorum
//! of n answered, and no member of that quorum had voted for n + 1 when it noted m's heartbeat. But the
//! quorum that decided n + 1 had voted, and the two quorums have a member in common, by the same argument. So
//! all those answers were noted before n + 1 was decided, and are over.
//!
//! # When participants die
//!
//! - *m*: it believes nothing any more. With a proof of death it is removed at once. Without a proof it is
//!   removed after `L'`, which is less than the silence that makes it suspected.
//! - *a, after it answered*: its answer counts for as long as any other. A leader waits for that (above).
//! - *a leader, after some members accepted a view*: these members answer nobody, and say so. The next leader
//!   completes what they voted for, whether it wishes for anything itself or not. A member that believed by
//!   their answers alone loses the lease until that view is decided.
//! - *everyone but m*: with proofs of death, m is a quorum of one, and answers itself. Without them it does
//!   not believe.
//! - *m was stopped, and goes on*: its clock tells it that its lease is over before it does anything else, or
//!   it asks anew if it missed more than L/2.
//!
//! # What it assumes
//!
//! Clocks of two hosts that measure the same L differ by less than one part in [`MARGIN`], and go on while a
//! host sleeps (`CLOCK_BOOTTIME`). All nodes have the same profile. Each node tells its own L with its
//! heartbeats, so that the members that hear it do not vote it out early if its L is another one. (In a large
//! view not all members hear it. There nobody believes for longer than the time for which all wait, as the
//! tick says.)
//!
//! # Parts
//!
//! `seat` tells the [`Lease`] what came, and asks it until when this node believes, which votes are held
//! back, and what to say. [`answers`]: how the lease is renewed by heartbeats, in small views. `ticks`: how
//! it is renewed by ticks, in large ones. [`rounds`]: which member makes ticks, and which way they go.

pub(crate) mod answers;
pub(crate) mod rounds;
mod ticks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{Ballot, Pulse};
use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, NodeView, ViewId};

use crate::membership::agree::engine::Engine;
use crate::membership::agree::slot::FAST;
use crate::membership::lease::rounds::{Inherited, Rounds};
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::rings::Rings;
use crate::{Config, Policy, Time};

/// Others wait longer than a lease lasts, by this part of it: clocks do not all go at the same speed.
pub(crate) const MARGIN: u32 = 32;
/// Of the members of a large view that have voted, about so many are noted.
const VOTERS_NOTED: usize = 16;
/// Without news, answers are counted again when only one part in so many of the lease is left.
const RENEWS_BEFORE: u32 = 4;

/// A heartbeat of another member that was noted: it is answered.
#[derive(Debug, Clone, Copy)]
struct Noted {
    round: u64,
    view: ViewId,
    came: Time,
}

/// A member that is to be removed is not noted until then.
#[derive(Debug, Clone, Copy)]
struct Withheld {
    until: Time,
    /// The leader that means to remove it; none if this node does, or waits to vote for it.
    said_by: Option<Incarnation>,
}

/// Ticks that were answered: which members they let believe, and when they came.
#[derive(Debug)]
struct TickNoted {
    fresh: Ranks,
    first: Time,
    last: Time,
}

/// What a lease depends on besides its view.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'a> {
    /// What is proven and decided about the slot after the view.
    pub(crate) engine: &'a Engine,
    /// Whether this node is in the primary view.
    pub(crate) primary: bool,
    /// Whether this node has left, and only waits until others know.
    pub(crate) departing: bool,
}

/// What this node believes of its view, and what it lets others believe.
#[derive(Debug)]
pub(crate) struct Lease {
    me: Incarnation,
    view: Arc<NodeView>,
    rings: Arc<Rings>,
    /// For how long an answer is good; `None` if this node believes without answers.
    length: Option<Duration>,
    /// The pause between two heartbeats.
    heartbeat: Duration,
    /// Heartbeats of this node: number, and when it was sent.
    sent: VecDeque<(u64, Time)>,
    /// When the latest heartbeat that a member answered was sent.
    answered: BTreeMap<Incarnation, Time>,
    /// A quorum answered what this node sent then.
    since: Option<Time>,
    /// Whether anything came since the last count of the answers that may make `since` later.
    fresh: bool,
    /// When the answers are counted again even without that.
    count_again: Time,
    /// When this node voted first in the slot, and whether for a view that has it.
    voted: Option<(Time, bool)>,
    /// Which other members have voted, as they say or as votes tell, and since when this is known.
    voters: BTreeMap<Incarnation, Time>,
    noted: BTreeMap<Incarnation, Noted>,
    /// For how long each member believes an answer, as it said.
    lengths: BTreeMap<Incarnation, Duration>,
    /// Members that are to be removed: their heartbeats are not noted.
    withheld: BTreeMap<Incarnation, Withheld>,
    /// The members that were answered at once, when, and the pause before that is done again.
    answered_at_once: BTreeMap<Incarnation, (Time, Duration)>,
    installed: Time,
    /// When the last proof of death came.
    proven: Option<Time>,
    /// Whether not all members are neighbours. Then no heartbeats are answered, only ticks are.
    by_rounds: bool,
    /// The rounds of ticks; `None` also where nobody has a lease.
    rounds: Option<Rounds>,
    /// A tick of the next view that came before that view, and the member that it came from.
    early_tick: Option<(Incarnation, Pulse)>,
    /// The ticks of this view that were answered.
    ticks: VecDeque<TickNoted>,
    /// The longest that ticks were good for, in this view and in the one before.
    tick_length: Duration,
    tick_length_before: Duration,
    /// What the application was told last.
    told: bool,
    /// How long the lease of a member is that has not told its length.
    usual: Duration,
}

impl Lease {
    /// The lease of a member in its first view. `by_rounds`: whether it is renewed in rounds.
    pub(crate) fn new(
        config: &Config,
        me: Incarnation,
        now: Time,
        (view, rings): (&Arc<NodeView>, &Arc<Rings>),
        by_rounds: bool,
    ) -> Self {
        // Nobody has a lease where each component goes on.
        let usual = match config.policy {
            Policy::Majority => config.profile.usual_lease(),
            Policy::Any => Duration::ZERO,
        };
        Self {
            me,
            view: view.clone(),
            rings: rings.clone(),
            length: config.lease(),
            heartbeat: config.profile.heartbeat,
            sent: VecDeque::new(),
            answered: BTreeMap::new(),
            since: None,
            fresh: true,
            count_again: now,
            voted: None,
            voters: BTreeMap::new(),
            noted: BTreeMap::new(),
            lengths: BTreeMap::new(),
            withheld: BTreeMap::new(),
            answered_at_once: BTreeMap::new(),
            installed: now,
            proven: None,
            by_rounds,
            rounds: Rounds::of(config, me, now, view, (rings, by_rounds), &Inherited::default()),
            early_tick: None,
            ticks: VecDeque::new(),
            tick_length: Duration::ZERO,
            tick_length_before: Duration::ZERO,
            told: false,
            usual,
        }
    }

    /// Another primary view was installed. Nothing that this node believed in another lineage counts in this
    /// one.
    pub(crate) fn install(
        &mut self,
        config: &Config,
        now: Time,
        (view, rings): (&Arc<NodeView>, &Arc<Rings>),
        by_rounds: bool,
    ) {
        if view.lineage != self.view.lineage {
            self.since = None;
        }
        let inherited = self.rounds.as_ref();
        let inherited = inherited.map_or_else(Inherited::default, |rounds| rounds.leaves_behind(&self.view));
        self.rounds = Rounds::of(config, self.me, now, view, (rings, by_rounds), &inherited);
        (self.view, self.rings) = (view.clone(), rings.clone());
        let stays = |member: &Incarnation| rings.contains(*member);
        self.noted
            .retain(|member, noted| stays(member) && noted.view == view.primary_id());
        self.lengths.retain(|member, _| stays(member));
        self.answered_at_once.retain(|member, _| stays(member));
        self.answered.clear();
        self.withheld.clear();
        self.voters.clear();
        self.voted = None;
        self.installed = now;
        self.fresh = true;
        self.by_rounds = by_rounds;
        self.ticks.clear();
        self.tick_length_before = std::mem::take(&mut self.tick_length);
    }

    /// Until when this node believes; `None` if that has no end. It is in the past if this node does not
    /// believe.
    pub(crate) fn until(&self) -> Option<Time> {
        let length = self.length.filter(|_| !planted!(BelieveForever))?;
        let length = if planted!(LeaseOfAMoment) {
            length / 8
        } else {
            length
        };
        Some(self.since.map_or(Time::ZERO, |since| since + length))
    }

    /// Whether this node does not believe in its view any more, or not yet.
    pub(crate) fn is_over(&self, now: Time) -> bool {
        self.until().is_some_and(|until| until <= now)
    }

    /// Counts the answers again if that is due. Returns whether this node holds its lease from now on, if
    /// that has changed: the application must be told. An incarnation begins without a lease.
    pub(crate) fn look(&mut self, now: Time, around: Around<'_>) -> Option<bool> {
        self.renew(now, around.engine);
        let held = !self.is_over(now);
        // A non-primary view says so itself.
        if held == self.told || !around.primary {
            return None;
        }
        self.told = held;
        // The sooner it asks, the sooner it knows.
        if let (Some(rounds), false) = (&mut self.rounds, held) {
            rounds.ask(now);
        }
        Some(held)
    }

    /// When this node looks at its lease again, and tends its ticks.
    pub(crate) fn next_deadline(&self, around: Around<'_>) -> Option<Time> {
        let until = self.until().filter(|_| self.told && around.primary);
        let looks = until.map(|until| match self.by_rounds {
            true => until,
            false => {
                let early = until - self.length() / RENEWS_BEFORE;
                early.max(self.count_again).min(until)
            }
        });
        let tends = self.rounds.as_ref();
        let tends = tends.map(|rounds| rounds.next_deadline(self.makes_ticks(rounds, around)));
        looks.into_iter().chain(tends).min()
    }

    /// For how long this node believes an answer, as it tells the members that answer; zero if it needs no
    /// lease.
    fn length(&self) -> Duration {
        self.length.unwrap_or_default()
    }

    /// This node has a vote in the slot, for a view that contains it (`keeps`) or not.
    pub(crate) fn vote(&mut self, now: Time, keeps: bool) {
        let since = self.voted.map_or(now, |(since, _)| since);
        self.voted = Some((since, keeps));
        if !keeps {
            // This node's own answers count no more, not even those that were counted already.
            self.since = None;
            self.fresh = true;
        }
    }

    /// Whether this node or one of these members voted so long ago, and nothing came of it.
    pub(crate) fn is_unfinished(
        &self,
        now: Time,
        reachable: &BTreeSet<Incarnation>,
        patience: Duration,
    ) -> bool {
        let others = self
            .voters
            .iter()
            .filter(|(member, _)| reachable.contains(member));
        let own = self.voted.map(|(since, _)| since);
        let mut all = others.map(|(_, since)| *since).chain(own);
        all.any(|since| now.since(since) >= patience)
    }

    /// Members of a large view have a vote in the slot. About so many of them are noted, spread over all
    /// ranks: this node hears some of them.
    pub(crate) fn have_voted(&mut self, now: Time, by: &Ranks) {
        let every = by.len().div_ceil(VOTERS_NOTED).max(1);
        let voters = by.iter().step_by(every);
        for voter in voters.filter_map(|rank| self.view.members.get(rank)) {
            self.voters.entry(voter.incarnation).or_insert(now);
        }
    }

    /// These members are to be removed: what they send is not noted for as long as that may take.
    pub(crate) fn withhold(&mut self, now: Time, from: &[Incarnation]) {
        for member in from {
            let until = now + self.waits_for(*member) * 2;
            let said_by = None;
            self.withheld.insert(*member, Withheld { until, said_by });
        }
    }

    /// This node removes these members no more. To note them again only puts votes off (R7).
    pub(crate) fn release(&mut self, members: &[Incarnation]) {
        self.withheld
            .retain(|member, withheld| withheld.said_by.is_some() || !members.contains(member));
    }

    /// A leader is about to remove these members, and no others any more.
    fn withhold_for(&mut self, now: Time, leader: Incarnation, from: &[Incarnation]) {
        let by_leader = |withheld: &Withheld| withheld.said_by == Some(leader);
        self.withheld
            .retain(|member, withheld| !by_leader(withheld) || from.contains(member));
        for member in from {
            if *member != self.me && self.rings.contains(*member) {
                let until = now + self.waits_for(*member) * 2;
                let said_by = Some(leader);
                let withheld = self.withheld.entry(*member);
                let withheld = withheld.or_insert(Withheld { until, said_by });
                withheld.until = withheld.until.max(until);
            }
        }
    }

    fn is_withheld(&self, now: Time, member: Incarnation) -> bool {
        let withheld = self.withheld.get(&member);
        withheld.is_some_and(|withheld| now < withheld.until)
    }

    /// The members that this node would remove, and therefore does not answer.
    fn withheld(&self, now: Time) -> impl Iterator<Item = Incarnation> {
        let withheld = self.withheld.iter();
        let withheld = withheld.filter(move |(_, withheld)| now < withheld.until);
        withheld.map(|(member, _)| *member)
    }

    pub(crate) fn proven(&mut self, now: Time) {
        self.proven = Some(now);
        self.fresh = true;
    }

    /// This node missed so much time by itself. If that was too much, what it was answered before is old, and
    /// so are its own answers to ticks. Otherwise all of it is still good.
    pub(crate) fn missed(&mut self, missed: Duration) {
        let much = self.length.is_some_and(|length| missed > length / 2) && !planted!(BelieveForever);
        if much {
            self.answered.clear();
            self.since = None;
            self.fresh = true;
            self.rounds.iter_mut().for_each(Rounds::missed);
        }
    }

    /// How long a vote against this member is held back after this node answered it.
    fn waits_for(&self, member: Incarnation) -> Duration {
        let length = self.lengths.get(&member).copied().unwrap_or(self.usual);
        let length = length.max(self.tick_length());
        length + length / MARGIN
    }

    /// Until when this node may not vote for a view without this member, unless the member is proven dead.
    pub(crate) fn holds(&self, now: Time, member: Incarnation) -> Option<Time> {
        let wait = self.waits_for(member);
        if wait.is_zero() || planted!(VoteWhileAnswered) {
            return None;
        }
        let noted = self.noted.get(&member).map(|noted| noted.came);
        let rank = self.rings.rank(member);
        let mut ticks = self.ticks.iter().rev();
        let tick = ticks.find(|tick| rank.is_some_and(|rank| tick.fresh.contains(rank)));
        let noted = noted.max(tick.map(|tick| tick.last));
        let installed = Some(self.installed).filter(|_| !planted!(VoteAtOnceInANewView));
        let last = noted.max(installed)?;
        Some(last + wait).filter(|until| now < *until)
    }

    /// R7: no member that this vote removes, and that is not proven dead, still believes in its view by an
    /// answer of this node. This node does not know the proofs of another proposer.
    pub(crate) fn assert_none_believes(&self, now: Time, engine: &Engine, ballot: Ballot, next: &NodeView) {
        let by_own_proofs = ballot == FAST || ballot.proposer == self.me;
        let proof = |by: &Accusation| by.evidence == Evidence::ProofOfDeath;
        let may_believe = |departure: &&Departure| {
            let member = departure.member.incarnation;
            let goes_now = departure.cause == Cause::Left || departure.accusers.iter().any(proof);
            let gone = goes_now || member == self.me || engine.is_certified(member);
            !gone && self.holds(now, member).is_some()
        };
        let believes = next.departed.iter().filter(|_| by_own_proofs).find(may_believe);
        assert!(
            believes.is_none() || planted!(),
            "R7: {:?} votes in {ballot:?} for {}, without {believes:?}, which may believe in {}",
            self.me,
            next.id,
            self.view.id
        );
    }

    /// Until when a decision that removes a member without a proof of death may not be counted without the
    /// proven dead; `None` if it may now. It may not for as long as any member's lease lasts. Where no member
    /// has a lease, nothing waits; in a large view no member knows that of all.
    pub(crate) fn counts_dead_from(&self, now: Time) -> Option<Time> {
        if planted!(CountLateDead) {
            return None;
        }
        let unsaid = self.lengths.len() < self.view.members.len().saturating_sub(1);
        let lengths = self.lengths.values().copied();
        let told = lengths.chain(unsaid.then_some(self.usual));
        let longest = told.chain(Some(self.tick_length())).max();
        let longest = longest.filter(|longest| !longest.is_zero())?;
        let from = self.proven.map(|proven| proven + longest + longest / MARGIN);
        from.filter(|from| now < *from)
    }
}
