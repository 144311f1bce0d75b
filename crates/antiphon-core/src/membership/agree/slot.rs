//! The slot: how one primary view is decided, as a pure state machine.
//!
//! One [`Slot`] is one node's whole part in deciding one view: its votes as an acceptor, its own proposal if
//! it makes one, and the proofs of death it holds. It knows no messages, timers or peers; callers carry its
//! answers about.
//!
//! ```text
//!   proposer                        acceptors (members of view n, joiners of n+1 echo phase 2)
//!   Idle ──prepare──► Preparing ──── Prepare ───►  promise: nothing lower from now on
//!     │                  │ ◄──────── Promise ────  with the last accepted value
//!     │ open             ▼ quorum
//!     │ (elder,       Choosing / forced value
//!     │  round 0)        │
//!     └──────────────► Accepting ─── Accept ────►  accepted
//!                        │ ◄──────── Accepted ──
//!                        ▼ quorum of n and quorum of n+1
//!                     Decided
//! ```
//!
//! In a *leaderless* slot, round 0 is the fast ballot, and no proposer owns it. Every voter may accept one
//! value there that it found by itself, once, and tell all others ([`Slot::cast`], [`Slot::on_cast`]). A
//! member that counts a fast quorum for one value knows that this value is decided. All higher rounds are as
//! above, with one difference: phase 1 may find several values of one ballot. [`Voters::is_fast_quorum`] and
//! `Slot::forced` say what follows from them.
//!
//! Invariants:
//! - one value per ballot, also when the proposer has changed its mind (R1);
//! - the accepted value of the highest ballot among the answers is proposed unchanged (R1);
//! - a quorum is a majority of the weight, or exactly half of it with the most senior member that has weight.
//!   The weight is that of all voters, or of all but the proposer's certified dead (R2);
//! - a certificate counts as an answer to phase 1, and only if its last promise is not above the ballot (R2);
//! - a decision needs a quorum of the view it makes as well (R3);
//! - an acceptor casts one vote in the fast ballot, and none after it promised a higher ballot.
//!
//! When a participant dies: a dead acceptor is a missing answer, or an answer by certificate. A dead proposer
//! leaves at most one value per ballot behind; the next proposer's phase 1 finds that value if it may have
//! been decided. If all voters of the view that this value makes are dead, the other voters can decide
//! nothing any more: they are as good as cut off, and [`Slot::could_decide`] says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use antiphon_wire::membership::Ballot;
use antiphon_wire::{Incarnation, NodeView};

mod certificates;

/// The voters of a slot, in seniority order, with their weights.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Voters<A> {
    /// Each voter and its weight; the most senior first.
    pub members: Vec<(A, u32)>,
    /// Whether exactly half of the weight suffices if the most senior voter with weight is in it.
    pub senior_breaks_tie: bool,
}

impl<A: Ord + Clone> Voters<A> {
    /// Whether all voters with weight are among the dead.
    fn are_in<T>(&self, dead: &BTreeMap<A, T>) -> bool {
        let mut voters = self.members.iter().filter(|(_, weight)| *weight > 0);
        voters.all(|(voter, _)| dead.contains_key(voter))
    }

    /// Whether `voted` is enough to bind all voters. The count leaves `dead` out.
    pub fn is_quorum(&self, voted: &BTreeSet<A>, dead: &BTreeSet<A>) -> bool {
        let alive = || {
            self.members
                .iter()
                .filter(|(voter, weight)| *weight > 0 && !dead.contains(voter))
        };
        let total: u64 = alive().map(|(_, weight)| u64::from(*weight)).sum();
        let mut have = 0;
        for (_, weight) in alive().filter(|(voter, _)| voted.contains(voter)) {
            have += u64::from(*weight);
            // This is asked all the time. Of thousands of voters, half are enough to say so.
            if have * 2 > total {
                break;
            }
        }
        let senior_voted = || alive().next().is_some_and(|(senior, _)| voted.contains(senior));
        (planted!(PromoteMinority) && have > 0)
            || have * 2 > total
            || (self.senior_breaks_tie && total > 0 && have * 2 == total && senior_voted())
    }

    /// Whether `voted` is enough in the fast ballot. The count leaves nobody out here, not even the dead: a
    /// decision without a leader must hold for every leader that comes after, whatever proofs it has.
    ///
    /// Any two such sets and any quorum have a member in common, because three quarters of the weight twice
    /// and half of it once are more than all of it twice. So, of two values, a quorum's answers leave at most
    /// one that can have been decided. Where it is exactly three quarters and exactly half, the most senior
    /// member must be in all three sets.
    pub fn is_fast_quorum(&self, voted: &BTreeSet<A>) -> bool {
        if planted!(FastQuorumIsMajority) {
            return self.is_quorum(voted, &BTreeSet::new());
        }
        let voters = || self.members.iter().filter(|(_, weight)| *weight > 0);
        let total: u64 = voters().map(|(_, weight)| u64::from(*weight)).sum();
        let have: u64 = voters()
            .filter(|(voter, _)| voted.contains(voter))
            .map(|(_, weight)| u64::from(*weight))
            .sum();
        let senior_voted = || voters().next().is_some_and(|(senior, _)| voted.contains(senior));
        (planted!(FastQuorumIsTwoThirds) && total > 0 && have * 3 >= total * 2)
            || have * 4 > total * 3
            || (total > 0 && have * 4 == total * 3 && senior_voted())
    }

    /// The voters among these, in one pass: they may be thousands.
    fn among(&self, some: &[A]) -> BTreeSet<A> {
        let some: BTreeSet<&A> = some.iter().collect();
        let voters = self.members.iter().map(|(voter, _)| voter);
        voters.filter(|voter| some.contains(voter)).cloned().collect()
    }

    /// Whether this is one of the voters.
    pub fn contains(&self, voter: &A) -> bool {
        self.members.iter().any(|(member, _)| member == voter)
    }
}

/// The fast ballot of a leaderless slot. No proposer owns it.
pub const FAST: Ballot = Ballot {
    round: 0,
    proposer: Incarnation(0),
};

/// What a slot can decide on.
pub trait Value<A>: Clone + PartialEq + Debug {
    /// The voters of the next slot, once this value is decided.
    fn voters(&self) -> Voters<A>;
}

impl<A, V: Value<A>> Value<A> for Arc<V> {
    fn voters(&self) -> Voters<A> {
        (**self).voters()
    }
}

impl Value<Incarnation> for NodeView {
    fn voters(&self) -> Voters<Incarnation> {
        Voters {
            members: self
                .members
                .iter()
                .map(|member| (member.incarnation, u32::from(member.weight)))
                .collect(),
            senior_breaks_tie: true,
        }
    }
}

/// A value accepted in a ballot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acceptance<V> {
    /// The ballot.
    pub ballot: Ballot,
    /// The value.
    pub value: V,
}

/// All that an acceptor has voted in a slot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastVote<V> {
    /// The highest ballot promised.
    pub promised: Option<Ballot>,
    /// The last value accepted.
    pub accepted: Option<Acceptance<V>>,
}

impl<V> Default for LastVote<V> {
    fn default() -> Self {
        Self {
            promised: None,
            accepted: None,
        }
    }
}

impl<V> LastVote<V> {
    /// The ballots promised and accepted last.
    pub fn ballots(&self) -> (Option<Ballot>, Option<Ballot>) {
        let accepted = self.accepted.as_ref();
        (self.promised, accepted.map(|accepted| accepted.ballot))
    }
}

/// A certificate as a ballot uses it: who is dead, and its last promise in this slot.
pub type Used<A> = (A, Option<Ballot>);

/// One answer to phase 1, and all voters that gave it. However many voters answer, few of the answers differ.
pub type Answer<A, V> = (Option<Acceptance<V>>, BTreeSet<A>);

/// Where the node's own proposal stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proposal<A, V> {
    /// Nothing proposed.
    Idle,
    /// Phase 1.
    Preparing {
        /// The ballot.
        ballot: Ballot,
        /// The answers: what was accepted, and which voters said so.
        promises: Vec<Answer<A, V>>,
    },
    /// Phase 1 is over and found no value: the proposer may choose.
    Choosing {
        /// The ballot.
        ballot: Ballot,
    },
    /// Phase 2.
    Accepting {
        /// The ballot.
        ballot: Ballot,
        /// The ballot's only value.
        value: V,
        /// The members that accepted it, joiners included.
        accepted: BTreeSet<A>,
    },
    /// This node knows the value decided.
    Decided {
        /// The value.
        value: V,
    },
}

/// What the proposer has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<A, V> {
    /// Wait for answers, or nothing changed.
    Wait,
    /// Ask all voters to promise.
    Prepare {
        /// The ballot.
        ballot: Ballot,
        /// The certificates used.
        used: Vec<Used<A>>,
    },
    /// Choose a value freely with [`Slot::choose`].
    Choose,
    /// Ask all voters, and the joiners of the value, to accept.
    Accept {
        /// The ballot.
        ballot: Ballot,
        /// The value.
        value: V,
        /// The certificates used.
        used: Vec<Used<A>>,
    },
    /// The value is decided.
    Decided {
        /// The value.
        value: V,
    },
}

/// Rounds rise by one, so no node of this program gets this far. Above the last number there is no other: a
/// proposer that got there would use it for two values.
const MAX_ROUND: u32 = u32::MAX / 2;

/// R1: whether a member answers in a slot whose predecessor it has not installed. It never does: it has
/// nothing to keep the vote in.
pub fn votes_ahead() -> bool {
    planted!(VoteBeforeInstalling)
}

/// One node's part in deciding one view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot<A, V> {
    me: A,
    voters: Voters<A>,
    owner: Option<Incarnation>,
    vote: LastVote<V>,
    certificates: BTreeMap<A, LastVote<V>>,
    proposal: Proposal<A, V>,
    highest_round: u32,
    opened: bool,
    leaderless: bool,
    /// What was cast in the fast ballot, as far as this node was told: each value, and the members that cast
    /// it.
    tallies: Vec<(V, BTreeSet<A>)>,
}

impl<A: Ord + Clone + Debug, V: Value<A>> Slot<A, V> {
    /// A fresh slot. `owner` may propose in round 0 without phase 1: nobody else can have proposed below it.
    pub fn new(me: A, voters: Voters<A>, owner: Option<Incarnation>) -> Self {
        Self {
            me,
            voters,
            owner,
            vote: LastVote::default(),
            certificates: BTreeMap::new(),
            proposal: Proposal::Idle,
            highest_round: 0,
            opened: false,
            leaderless: false,
            tallies: Vec::new(),
        }
    }

    /// A fresh slot whose round 0 is the fast ballot.
    pub fn leaderless(me: A, voters: Voters<A>) -> Self {
        Self {
            leaderless: true,
            ..Self::new(me, voters, None)
        }
    }

    /// What this node has voted: what its lifelines must show before the vote goes anywhere.
    pub fn vote(&self) -> &LastVote<V> {
        &self.vote
    }

    /// Where the node's own proposal stands.
    pub fn proposal(&self) -> &Proposal<A, V> {
        &self.proposal
    }

    /// Whether its round 0 is the fast ballot.
    pub fn is_leaderless(&self) -> bool {
        self.leaderless
    }

    /// The voters of this slot.
    pub fn voters(&self) -> &Voters<A> {
        &self.voters
    }

    /// For founding by number: the voters are known only once enough nodes are present, and may change from
    /// ballot to ballot. Call this right before [`Slot::prepare`]; it does nothing once the value is decided.
    /// The caller sees to it that quorums of any two of the sets it gives, at whatever node, have a voter in
    /// common.
    pub fn set_voters(&mut self, voters: Voters<A>) {
        if !matches!(self.proposal, Proposal::Decided { .. }) {
            self.voters = voters;
        }
    }

    /// Whether `proposer` may propose now without phase 1.
    pub fn may_open(&self, proposer: Incarnation) -> bool {
        self.owner == Some(proposer)
            && !self.opened
            && self.vote.promised.is_none()
            && self.highest_round == 0
    }

    /// Round 0: the owner proposes without phase 1, once.
    pub fn open(&mut self, proposer: Incarnation, value: V) -> Step<A, V> {
        if !self.may_open(proposer) {
            return Step::Wait;
        }
        self.opened = true;
        self.accept_with(Ballot { round: 0, proposer }, value)
    }

    /// Whether this node may still cast a vote in the fast ballot. It may not after it promised a higher
    /// ballot: the fast ballot could then decide after a leader has read all the answers it needs.
    pub fn may_cast(&self) -> bool {
        self.leaderless
            && (self.vote.promised.is_none() || (planted!(CastAfterPromise) && self.vote.accepted.is_none()))
            && !matches!(self.proposal, Proposal::Decided { .. })
    }

    /// As acceptor: accepts this value in the fast ballot. Returns false if it may not. The lifelines must
    /// show the vote before anyone is told of it.
    pub fn cast(&mut self, value: V) -> bool {
        if !self.may_cast() {
            return false;
        }
        assert!(
            self.vote.accepted.is_none() || planted!(),
            "R1: {:?} casts a second vote in the fast ballot",
            self.me
        );
        self.accept(FAST, value);
        true
    }

    /// A voter, or a joiner of the value, cast this in the fast ballot. This call counts this node's own vote
    /// as well.
    pub fn on_cast(&mut self, from: &A, value: &V) -> Step<A, V> {
        self.on_casts(std::slice::from_ref(from), value)
    }

    /// The same, for several at once.
    pub fn on_casts(&mut self, from: &[A], value: &V) -> Step<A, V> {
        if matches!(self.proposal, Proposal::Decided { .. }) || !self.leaderless {
            return Step::Wait;
        }
        // Each member has one vote, however often it is told.
        let tallies = &self.tallies;
        let is_new = |from: &&A| !tallies.iter().any(|(_, voted)| voted.contains(from));
        let new: Vec<A> = from.iter().filter(is_new).cloned().collect();
        if new.is_empty() {
            return Step::Wait;
        }
        let known = self.tallies.iter().position(|(tallied, _)| tallied == value);
        let at = known.unwrap_or_else(|| {
            self.tallies.push((value.clone(), BTreeSet::new()));
            self.tallies.len() - 1
        });
        self.tallies[at].1.extend(new);
        let (value, voted) = &self.tallies[at];
        if !self.is_decided_fast(value, voted) {
            return Step::Wait;
        }
        let value = value.clone();
        self.proposal = Proposal::Decided { value: value.clone() };
        Step::Decided { value }
    }

    /// Whether these votes for a value in the fast ballot decide it.
    pub fn is_decided_fast(&self, value: &V, voted: &BTreeSet<A>) -> bool {
        self.voters.is_fast_quorum(voted)
            && (planted!(SkipJointQuorum) || self.is_quorum_of(&value.voters(), voted, FAST))
    }

    /// Whether the fast ballot can still decide this value, if each reachable member that has not cast for
    /// another value casts for it.
    pub fn may_decide_fast(&self, value: &V, reachable: &BTreeSet<A>) -> bool {
        let mut voted = reachable.clone();
        for (tallied, voters) in &self.tallies {
            if tallied == value {
                voted.extend(voters.iter().cloned());
            } else {
                voted.retain(|voter| !voters.contains(voter));
            }
        }
        self.is_decided_fast(value, &voted)
    }

    /// Starts phase 1 of a ballot above all that this node has seen.
    pub fn prepare(&mut self, proposer: Incarnation) -> Step<A, V> {
        if matches!(self.proposal, Proposal::Decided { .. }) {
            return Step::Wait;
        }
        self.opened = true;
        self.highest_round = self.highest_round.saturating_add(1);
        let ballot = Ballot {
            round: self.highest_round,
            proposer,
        };
        self.proposal = Proposal::Preparing {
            ballot,
            promises: Vec::new(),
        };
        Step::Prepare {
            ballot,
            used: self.used(ballot),
        }
    }

    /// Drops this node's own proposal, unless it is decided: what follows takes a higher ballot and phase 1.
    /// Its votes stay.
    pub fn give_up(&mut self) {
        if !matches!(self.proposal, Proposal::Decided { .. }) {
            self.proposal = Proposal::Idle;
        }
    }

    /// For a founding: the value that was accepted or decided here is void, because no process lives that it
    /// could make a member. What was promised stays, and so do the ballots used.
    pub fn annul(&mut self) {
        self.vote.accepted = None;
        self.proposal = Proposal::Idle;
    }

    /// Proposes a value of the proposer's own choice, after phase 1 found none.
    pub fn choose(&mut self, value: V) -> Step<A, V> {
        match &self.proposal {
            Proposal::Choosing { ballot } => {
                let ballot = *ballot;
                self.accept_with(ballot, value)
            }
            // R1: the same ballot once more with what the proposer would rather have now.
            Proposal::Accepting {
                ballot, value: first, ..
            } if *first != value && planted!(TwoValuesPerBallot) => {
                let ballot = *ballot;
                self.accept_with(ballot, value)
            }
            _ => Step::Wait,
        }
    }

    /// An acceptor promised.
    pub fn on_promise(&mut self, from: &A, ballot: Ballot, accepted: Option<Acceptance<V>>) -> Step<A, V> {
        self.on_promises(std::slice::from_ref(from), ballot, accepted)
    }

    /// The same, for several at once that had accepted the same. What follows from it is worked out once.
    pub fn on_promises(&mut self, from: &[A], ballot: Ballot, accepted: Option<Acceptance<V>>) -> Step<A, V> {
        let Proposal::Preparing {
            ballot: mine,
            promises,
        } = &mut self.proposal
        else {
            return Step::Wait;
        };
        if *mine != ballot {
            return Step::Wait;
        }
        // Each voter gives one answer, however often it is told.
        let mut new = self.voters.among(from);
        new.retain(|voter| !promises.iter().any(|(_, voters)| voters.contains(voter)));
        if new.is_empty() {
            return Step::Wait;
        }
        match promises.iter_mut().find(|(known, _)| *known == accepted) {
            Some((_, voters)) => voters.extend(new),
            None => promises.push((accepted, new)),
        }
        self.conclude()
    }

    /// An acceptor, or a joiner of the value, accepted.
    pub fn on_accepted(&mut self, from: &A, ballot: Ballot) -> Step<A, V> {
        self.on_accepteds(std::slice::from_ref(from), ballot)
    }

    /// The same, for several at once.
    pub fn on_accepteds(&mut self, from: &[A], ballot: Ballot) -> Step<A, V> {
        match &mut self.proposal {
            Proposal::Accepting {
                ballot: mine,
                accepted,
                ..
            } if *mine == ballot => {
                accepted.extend(from.iter().cloned());
                self.conclude()
            }
            _ => Step::Wait,
        }
    }

    /// An acceptor refused because of a higher promise: the next ballot must be above it.
    pub fn on_nack(&mut self, promised: Option<Ballot>) {
        if let Some(promised) = promised.filter(|promised| promised.round <= MAX_ROUND) {
            self.highest_round = self.highest_round.max(promised.round);
        }
    }

    /// Whether these voters could decide in a ballot above all that this node has seen, given the
    /// certificates held.
    pub fn could_decide(&self, reachable: &BTreeSet<A>) -> bool {
        self.voters.is_quorum(reachable, &self.certified()) && !self.is_dead_end()
    }

    /// Whether these voters could decide the value that this node accepted, if it accepted one: by R1 it is
    /// proposed unchanged, and by R3 it needs a quorum of the view it makes.
    pub fn could_conclude(&self, reachable: &BTreeSet<A>) -> bool {
        let accepted = self.vote.accepted.as_ref();
        accepted.is_none_or(|accepted| accepted.value.voters().is_quorum(reachable, &self.certified()))
    }

    /// Whether all voters of the view accepted here are proven dead. By R1 it must be proposed again, and by
    /// R3 nobody can decide it. (Two of three vote the third out, and both die before either has decided
    /// that.)
    fn is_dead_end(&self) -> bool {
        let accepted = self.vote.accepted.as_ref();
        accepted.is_some_and(|accepted| accepted.value.voters().are_in(&self.certificates))
    }

    /// As acceptor: a proposer asks to promise. The answer is what was accepted last, or the higher promise.
    pub fn on_prepare(
        &mut self,
        ballot: Ballot,
        used: &[Used<A>],
    ) -> Result<Option<Acceptance<V>>, Option<Ballot>> {
        if ballot.round > MAX_ROUND {
            return Err(self.vote.promised);
        }
        self.highest_round = self.highest_round.max(ballot.round);
        if self.vote.promised > Some(ballot) || !self.may_use(ballot, used) {
            return Err(self.vote.promised);
        }
        self.promise(ballot);
        Ok(self.vote.accepted.clone())
    }

    /// As acceptor: a proposer asks to accept.
    pub fn on_accept(&mut self, ballot: Ballot, value: V, used: &[Used<A>]) -> Result<(), Option<Ballot>> {
        if ballot.round > MAX_ROUND {
            return Err(self.vote.promised);
        }
        self.highest_round = self.highest_round.max(ballot.round);
        // In the fast ballot each voter casts its vote itself: no `Accept` makes it.
        let foreign_zero = ballot.round == 0 && self.owner != Some(ballot.proposer);
        // R1: the next proposer could not tell two values of one ballot apart.
        let second_value = !planted!(TwoValuesPerBallot)
            && self
                .vote
                .accepted
                .as_ref()
                .is_some_and(|last| last.ballot == ballot && last.value != value);
        if self.vote.promised > Some(ballot) || foreign_zero || second_value || !self.may_use(ballot, used) {
            return Err(self.vote.promised);
        }
        self.accept(ballot, value);
        Ok(())
    }

    /// Every promise of this node is made here. The caller has refused what is below an earlier promise.
    fn promise(&mut self, ballot: Ballot) {
        assert!(
            self.vote.promised <= Some(ballot) || planted!(),
            "R1: {:?} takes back its promise of {:?} for {ballot:?}",
            self.me,
            self.vote.promised
        );
        self.vote.promised = self.vote.promised.max(Some(ballot));
    }

    /// Every vote of this node is given here. The caller has refused a second value of the ballot.
    fn accept(&mut self, ballot: Ballot, value: V) {
        let is_only =
            |last: &Acceptance<V>| last.ballot < ballot || (last.ballot == ballot && last.value == value);
        assert!(
            self.vote.accepted.as_ref().is_none_or(is_only) || planted!(),
            "R1: {:?} accepts another value of {ballot:?} than before, or of a lower ballot: {:?}",
            self.me,
            self.vote.accepted
        );
        self.promise(ballot);
        self.vote.accepted = Some(Acceptance { ballot, value });
    }

    /// R2: a proposal is refused if it counts a dead voter that may have promised a higher ballot.
    fn may_use(&self, ballot: Ballot, used: &[Used<A>]) -> bool {
        planted!(CertificateWithoutLastVote)
            || used.iter().all(|(dead, promised)| {
                *dead != self.me
                    && *promised <= Some(ballot)
                    && self
                        .certificates
                        .get(dead)
                        .is_none_or(|own| own.promised <= Some(ballot))
            })
    }

    fn used(&self, ballot: Ballot) -> Vec<Used<A>> {
        self.usable(ballot)
            .map(|(dead, last)| (dead.clone(), last.promised))
            .collect()
    }

    /// R2: only certificates whose last promise is not above the ballot.
    fn usable(&self, ballot: Ballot) -> impl Iterator<Item = (&A, &LastVote<V>)> {
        self.certificates
            .iter()
            .filter(move |(_, last)| last.promised <= Some(ballot))
    }

    fn is_quorum_of(&self, voters: &Voters<A>, voted: &BTreeSet<A>, ballot: Ballot) -> bool {
        let dead: BTreeSet<A> = self.usable(ballot).map(|(dead, _)| dead.clone()).collect();
        // A proposer may use any of its certificates, or none: a vote of a dead voter that arrived counts as
        // well.
        voters.is_quorum(voted, &dead) || voters.is_quorum(voted, &BTreeSet::new())
    }

    fn accept_with(&mut self, ballot: Ballot, value: V) -> Step<A, V> {
        // All ballots that others name are below MAX_ROUND, so the next ballot is always above all earlier
        // ones.
        let is_new = match &self.proposal {
            Proposal::Idle => true,
            Proposal::Preparing { ballot: mine, .. } | Proposal::Choosing { ballot: mine } => *mine == ballot,
            Proposal::Accepting { .. } | Proposal::Decided { .. } => false,
        };
        assert!(
            is_new || planted!(),
            "R1: {:?} proposes a second value in {ballot:?}, after {:?}",
            self.me,
            self.proposal
        );
        self.proposal = Proposal::Accepting {
            ballot,
            value: value.clone(),
            accepted: BTreeSet::new(),
        };
        Step::Accept {
            ballot,
            value,
            used: self.used(ballot),
        }
    }

    /// The value that a quorum's answers force the proposer to propose.
    ///
    /// R1, R2: the proposer proposes the value accepted in the highest ballot, unchanged. A living voter
    /// tells it, or a dead voter's last vote shows it. If that ballot is the fast ballot, there may be
    /// several values in it. Such a value may have been decided only if the voters that answered that they
    /// cast it, together with all voters that did not answer, are a fast quorum. This can be true of one
    /// value at most: any two fast quorums and the answers have a voter in common, and that voter answered
    /// with one value. If it is true of no value, none was decided, and none will be: a voter that has
    /// answered casts no vote any more.
    fn forced(&self, ballot: Ballot, promises: &[Answer<A, V>]) -> Option<V> {
        // `found` has each accepted value once; `answers` says which of them each voter accepted. Values may
        // be large: they are compared once for each different answer, not once for each voter.
        let mut found: Vec<&Acceptance<V>> = Vec::new();
        let mut answers: BTreeMap<&A, Option<usize>> = BTreeMap::new();
        for (accepted, voters) in promises {
            let place = accepted.as_ref().map(|accepted| place_of(accepted, &mut found));
            answers.extend(voters.iter().map(|voter| (voter, place)));
        }
        for (dead, last) in self.usable(ballot) {
            let answer = answers.entry(dead).or_default();
            let later =
                |accepted: &&Acceptance<V>| answer.is_none_or(|known| found[known].ballot <= accepted.ballot);
            if let Some(accepted) = last.accepted.as_ref().filter(later) {
                *answer = Some(place_of(accepted, &mut found));
            }
        }
        let places: BTreeSet<usize> = answers.values().copied().flatten().collect();
        let accepted = places.iter().map(|place| found[*place]);
        let highest = accepted.max_by_key(|accepted| accepted.ballot)?;
        if highest.ballot != FAST || !self.leaderless || planted!(RecoverAnyFastVote) {
            return Some(highest.value.clone());
        }
        let cast_or_silent = |place: usize| -> BTreeSet<A> {
            let voters = self.voters.members.iter().map(|(voter, _)| voter);
            voters
                .filter(|voter| match answers.get(voter) {
                    Some(answer) => *answer == Some(place),
                    None => true,
                })
                .cloned()
                .collect()
        };
        let mut cast = places.into_iter();
        let mut may_be_decided = || cast.find(|place| self.voters.is_fast_quorum(&cast_or_silent(*place)));
        let bound = may_be_decided()?;
        // Each voter has said one thing only: two such sets together weigh too much.
        assert!(
            may_be_decided().is_none() || planted!(),
            "R1: {:?} finds two values that the fast ballot may have decided, by {answers:?}",
            self.me
        );
        Some(found[bound].value.clone())
    }

    fn conclude(&mut self) -> Step<A, V> {
        match &self.proposal {
            Proposal::Preparing { ballot, promises } => {
                let ballot = *ballot;
                let voted = promises.iter().flat_map(|(_, voters)| voters).cloned().collect();
                if !self.is_quorum_of(&self.voters, &voted, ballot) {
                    return Step::Wait;
                }
                let forced = self.forced(ballot, promises);
                match forced {
                    Some(value) if !planted!(IgnoreAcceptedValue) => self.accept_with(ballot, value),
                    _ => {
                        self.proposal = Proposal::Choosing { ballot };
                        Step::Choose
                    }
                }
            }
            Proposal::Accepting {
                ballot,
                value,
                accepted,
            } => {
                // G6 one primary: any later quorum finds what a quorum has accepted, and goes on from that.
                let decided = self.is_quorum_of(&self.voters, accepted, *ballot)
                    && (planted!(SkipJointQuorum) || self.is_quorum_of(&value.voters(), accepted, *ballot));
                if !decided {
                    return Step::Wait;
                }
                let value = value.clone();
                self.proposal = Proposal::Decided { value: value.clone() };
                Step::Decided { value }
            }
            Proposal::Idle | Proposal::Choosing { .. } | Proposal::Decided { .. } => Step::Wait,
        }
    }
}

/// The place of this in `found`; it goes to the end if it is new.
fn place_of<'a, V: PartialEq>(accepted: &'a Acceptance<V>, found: &mut Vec<&'a Acceptance<V>>) -> usize {
    let known = found.iter().position(|known| *known == accepted);
    known.unwrap_or_else(|| {
        found.push(accepted);
        found.len() - 1
    })
}

#[cfg(test)]
mod tests;
