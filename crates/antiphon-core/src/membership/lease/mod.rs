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

pub(crate) mod rounds;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use antiphon_wire::{Incarnation, NodeView, ViewId};

use crate::config::LONGEST_LEASE;
use crate::membership::agree::slot::Value;
use crate::membership::monitor::ranks::Ranks;
use crate::{Config, Policy, Time};

/// Others wait longer than a lease lasts, by this part of it: clocks do not all go at the same speed.
pub(crate) const MARGIN: u32 = 32;
/// This many of this node's own heartbeats are remembered: those of a lease, and many more.
const REMEMBERED: usize = 128;
/// The answers are counted again at most this often in a lease.
const COUNTS: u32 = 16;

/// Ticks that come closer to each other than this part of a lease are remembered as one, which came with the
/// last of them.
const TICKS_A_LEASE: u32 = 16;

/// A heartbeat of another member that was noted: it is answered.
#[derive(Debug, Clone, Copy)]
struct Noted {
    round: u64,
    view: ViewId,
    came: Time,
}

/// Ticks that were answered: which members they let believe, and when they came.
#[derive(Debug)]
struct TickNoted {
    fresh: Ranks,
    first: Time,
    last: Time,
}

/// What this node believes of its view, and what it lets others believe.
#[derive(Debug)]
pub(crate) struct Lease {
    /// For how long an answer is good; `None` if this node believes without answers.
    length: Option<Duration>,
    /// Heartbeats of this node: number, and when it was sent.
    sent: VecDeque<(u64, Time)>,
    /// When the latest heartbeat that a member answered was sent.
    answered: BTreeMap<Incarnation, Time>,
    /// A quorum answered what this node sent then.
    since: Option<Time>,
    /// Whether anything came since the last count of the answers that may make `since` later.
    pub(crate) fresh: bool,
    /// When the answers are counted again even without that.
    pub(crate) count_again: Time,
    /// When this node voted first in the slot, and whether for a view that has it.
    voted: Option<(Time, bool)>,
    /// Which other members have voted, as they say or as votes tell, and since when this is known.
    pub(crate) voters: BTreeMap<Incarnation, Time>,
    noted: BTreeMap<Incarnation, Noted>,
    /// For how long each member believes an answer, as it said.
    lengths: BTreeMap<Incarnation, Duration>,
    /// Members that are to be removed: their heartbeats are not noted until then.
    withheld: BTreeMap<Incarnation, Time>,
    pub(crate) answered_at_once: BTreeMap<Incarnation, (Time, Duration)>,
    installed: Time,
    /// When the last proof of death came.
    proven: Option<Time>,
    /// Whether not all members are neighbours. Then no heartbeats are answered, only ticks are.
    pub(crate) by_rounds: bool,
    /// The ticks of this view that were answered.
    ticks: VecDeque<TickNoted>,
    /// The longest that ticks were good for, in this view and in the one before.
    tick_length: Duration,
    tick_length_before: Duration,
    /// What the application was told last.
    pub(crate) told: bool,
    /// How long the lease of a member is that has not told its length.
    usual: Duration,
    /// How many others are in the view.
    others: usize,
}

impl Lease {
    pub(crate) fn new(config: &Config, now: Time) -> Self {
        // Nobody has a lease where each component goes on.
        let usual = match config.policy {
            Policy::Majority => config.profile.usual_lease(),
            Policy::Any => Duration::ZERO,
        };
        Self {
            length: config.lease(),
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
            by_rounds: false,
            ticks: VecDeque::new(),
            tick_length: Duration::ZERO,
            tick_length_before: Duration::ZERO,
            told: false,
            usual,
            others: 0,
        }
    }

    /// The next primary view of the lineage, or the first one, was installed.
    pub(crate) fn install(&mut self, now: Time, view: &NodeView, by_rounds: bool) {
        let stays = |member: &Incarnation| view.contains(*member);
        self.noted
            .retain(|member, noted| stays(member) && noted.view == view.primary_id());
        self.lengths.retain(|member, _| stays(member));
        self.answered_at_once.retain(|member, _| stays(member));
        self.answered.clear();
        self.withheld.clear();
        self.voters.clear();
        self.voted = None;
        self.installed = now;
        self.others = view.members.len().saturating_sub(1);
        self.fresh = true;
        self.by_rounds = by_rounds;
        self.ticks.clear();
        self.tick_length_before = std::mem::take(&mut self.tick_length);
    }

    /// Nothing that this node believed in another lineage counts in this one.
    pub(crate) fn begin_lineage(&mut self) {
        self.since = None;
    }

    /// For how long this node believes an answer, as it tells the members that answer; zero if it needs no
    /// lease.
    pub(crate) fn length(&self) -> Duration {
        self.length.unwrap_or_default()
    }

    /// A heartbeat leaves with this number.
    pub(crate) fn send(&mut self, now: Time, round: u64) {
        if self.sent.len() >= REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((round, now));
        assert!(
            self.sent.len() <= REMEMBERED,
            "R7: {} heartbeats are remembered",
            self.sent.len()
        );
    }

    /// The number of the heartbeat of a member that this node has noted in its view; 0 if none.
    pub(crate) fn answer_to(&self, member: Incarnation, view: ViewId) -> u64 {
        let noted = self.noted.get(&member).filter(|noted| noted.view == view);
        noted.map_or(0, |noted| noted.round)
    }

    /// A heartbeat of a member came, and says how long its lease is.
    pub(crate) fn note(&mut self, now: Time, of: Incarnation, round: u64, view: ViewId, length: Duration) {
        let length = length.min(LONGEST_LEASE);
        self.lengths.insert(of, length);
        let voted = self.voted.is_some() && !planted!(AnswerAfterVote);
        let withheld = self.withheld.get(&of).is_some_and(|until| now < *until);
        if voted || withheld || self.by_rounds || view < self.view_floor(of) {
            return;
        }
        assert!(
            self.voted.is_none() && !self.by_rounds || planted!(),
            "R7: heartbeat {round} of {of:?} is noted after a vote, {:?}",
            self.voted
        );
        self.noted.insert(
            of,
            Noted {
                round,
                view,
                came: now,
            },
        );
    }

    /// Whether this node answers ticks: it has no vote in the slot.
    pub(crate) fn answers_ticks(&self) -> bool {
        self.by_rounds && (self.voted.is_none() || planted!(AnswerAfterVote))
    }

    /// Whether this node makes ticks: it answers them, and has a lease itself.
    pub(crate) fn makes_ticks(&self) -> bool {
        self.answers_ticks() && self.length.is_some()
    }

    /// A tick came. It is good for so long to the members that it lets believe.
    pub(crate) fn hear_tick(&mut self, length: Duration) {
        self.tick_length = self.tick_length.max(length);
    }

    fn tick_length(&self) -> Duration {
        self.tick_length.max(self.tick_length_before)
    }

    /// This node answers a tick that lets these members believe.
    pub(crate) fn note_tick(&mut self, now: Time, fresh: Ranks) {
        assert!(
            self.answers_ticks() || planted!(),
            "R7: a tick is answered after a vote, {:?}",
            self.voted
        );
        let longest = self.tick_length().max(self.usual);
        self.ticks.retain(|tick| now.since(tick.last) < longest * 2);
        match self.ticks.back_mut() {
            Some(tick) if now.since(tick.first) < longest / TICKS_A_LEASE => {
                tick.fresh.merge(&fresh);
                tick.last = now;
            }
            _ => self.ticks.push_back(TickNoted {
                fresh,
                first: now,
                last: now,
            }),
        }
    }

    /// This node gave an answer at this time, and a quorum answered a tick that was made after that. So this
    /// node believes for so long.
    pub(crate) fn renewed_by_tick(&mut self, at: Time, good_for: Duration) {
        let removed = self.voted.is_some_and(|(_, keeps)| !keeps);
        if removed || !self.by_rounds {
            return;
        }
        // `since` is a time from which this node's own length counts.
        let less = self.length().saturating_sub(good_for);
        if at >= Time::ZERO + less {
            self.since = self.since.max(Some(at - less));
        }
    }

    /// The view in which a heartbeat of this member was noted last.
    fn view_floor(&self, of: Incarnation) -> ViewId {
        let first = ViewId { epoch: 0, counter: 0 };
        self.noted.get(&of).map_or(first, |noted| noted.view)
    }

    /// A member of the same view answered this heartbeat.
    pub(crate) fn hear_answer(&mut self, from: Incarnation, round: u64) {
        let sent = self.sent.iter().rev().find(|(sent, _)| *sent == round);
        if let Some((_, at)) = sent {
            let latest = self.answered.entry(from).or_insert(Time::ZERO);
            self.fresh |= *at > *latest;
            *latest = (*latest).max(*at);
        }
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

    pub(crate) fn has_voted(&self) -> bool {
        self.voted.is_some()
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

    /// A member has a vote in the slot. In a large view all members are told so.
    pub(crate) fn has_a_vote(&mut self, now: Time, member: Incarnation) {
        self.voters.entry(member).or_insert(now);
    }

    /// These members are to be removed: what they send is not noted for as long as that may take.
    pub(crate) fn withhold(&mut self, now: Time, from: &[Incarnation]) {
        for member in from {
            let until = now + self.waits_for(*member) * 2;
            self.withheld.insert(*member, until);
        }
    }

    pub(crate) fn withheld(&self, now: Time) -> impl Iterator<Item = Incarnation> {
        let withheld = self.withheld.iter().filter(move |(_, until)| now < **until);
        withheld.map(|(member, _)| *member)
    }

    pub(crate) fn proven(&mut self, now: Time) {
        self.proven = Some(now);
        self.fresh = true;
    }

    /// This node missed so much time by itself. Returns whether that was too much: then what it was answered
    /// before is old. Otherwise it is still good.
    pub(crate) fn missed(&mut self, missed: Duration) -> bool {
        let much = self.length.is_some_and(|length| missed > length / 2) && !planted!(BelieveForever);
        if much {
            self.answered.clear();
            self.since = None;
            self.fresh = true;
        }
        much
    }

    /// How long a vote against this member is held back after this node answered it.
    fn waits_for(&self, member: Incarnation) -> Duration {
        let length = self.lengths.get(&member).copied().unwrap_or(self.usual);
        let length = length.max(self.tick_length());
        length + length / MARGIN
    }

    /// Until when this node may not vote for a view without this member, unless the member is proven dead. In
    /// a large view the member has this rank.
    pub(crate) fn holds(&self, now: Time, member: Incarnation, rank: Option<usize>) -> Option<Time> {
        let wait = self.waits_for(member);
        if wait.is_zero() || planted!(VoteWhileAnswered) {
            return None;
        }
        let noted = self.noted.get(&member).map(|noted| noted.came);
        let mut ticks = self.ticks.iter().rev();
        let tick = ticks.find(|tick| rank.is_some_and(|rank| tick.fresh.contains(rank)));
        let noted = noted.max(tick.map(|tick| tick.last));
        let installed = Some(self.installed).filter(|_| !planted!(VoteAtOnceInANewView));
        let last = noted.max(installed)?;
        Some(last + wait).filter(|until| now < *until)
    }

    /// Until when a decision that removes a member without a proof of death may not be counted without the
    /// proven dead: as long as any member's lease lasts. Where no member has a lease, nothing waits; in a
    /// large view no member knows that of all.
    pub(crate) fn counts_dead_from(&self) -> Option<Time> {
        if planted!(CountLateDead) {
            return None;
        }
        let unsaid = self.lengths.len() < self.others;
        let lengths = self.lengths.values().copied();
        let told = lengths.chain(unsaid.then_some(self.usual));
        let longest = told.chain(Some(self.tick_length())).max();
        let longest = longest.filter(|longest| !longest.is_zero())?;
        self.proven.map(|proven| proven + longest + longest / MARGIN)
    }

    /// Until when this node believes; `None` if that has no end. It is in the past if this node does not
    /// believe.
    pub(crate) fn until(&self) -> Option<Time> {
        let length = self.length.filter(|_| !planted!(BelieveForever))?;
        Some(self.since.map_or(Time::ZERO, |since| since + length))
    }

    /// Counts the answers again.
    pub(crate) fn renew(
        &mut self,
        now: Time,
        me: Incarnation,
        view: &NodeView,
        dead: &BTreeSet<Incarnation>,
    ) {
        let own = match self.voted {
            None => Some(now),
            Some((_, true)) if planted!(AnswerAfterVote) => Some(now),
            Some((since, keeps)) => keeps.then_some(since),
        };
        let own = own.map(|at| (at, me));
        let mut answers: Vec<(Time, Incarnation)> = self
            .answered
            .iter()
            .filter(|(member, _)| view.contains(**member) && !dead.contains(member))
            .map(|(member, at)| (*at, *member))
            .chain(own)
            .collect();
        self.fresh = false;
        self.count_again = now + self.length() / COUNTS;
        answers.sort_unstable_by(|one, other| other.cmp(one));
        let voters = view.voters();
        let mut who = BTreeSet::new();
        for (at, member) in answers {
            who.insert(member);
            if voters.is_quorum(&who, dead) {
                assert!(
                    self.voted.is_none_or(|(_, keeps)| keeps) || !who.contains(&me) || planted!(),
                    "R7: {me:?} counts itself after a vote for a view without it"
                );
                self.since = self.since.max(Some(at));
                return;
            }
        }
    }
}
