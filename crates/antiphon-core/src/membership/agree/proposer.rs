//! The proposer: leads ballots of a slot, and answers as a voter of the slot.
//!
//! ```text
//!   wanted ──batch──► joins, leaves, proven deaths, nothing prepared yet?
//!                     I am the elder, and own round 0:   Accept in round 0, one round trip
//!                     round 0 is the fast ballot:        ask for votes in it, one round trip ([`fast`])
//!                   else: Prepare (naming the members to remove) ──► objections? wait, retry without them
//!                          promises of a quorum ──► forced value unchanged, or the wanted change
//! ```
//!
//! When participants die: a dead voter is a missing answer until it is proven dead; then the count is without
//! it. Doubt alone leaves nobody out. When the proposer dies, the next senior member proposes, and its phase
//! 1 finds what the dead proposer left. A joiner that dies counts only in the quorum of the view that would
//! contain it. A proposer that gets no answer retries in a higher round after a random time. So two members
//! that both think it is their turn do not outbid each other for ever.
//!
//! [`fast`]: crate::membership::agree::fast

use antiphon_wire::membership::{AcceptedValue, Ballot, Proof, SlotMessage, VoteState, Voted, VotedIn};
use antiphon_wire::{Incarnation, NodeView, ViewDigest};
mod holding;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::membership::agree::interface::Votes;
use crate::membership::agree::interface::{EngineEffect, ProposedChange, Surroundings};
use crate::membership::agree::slot::{Acceptance, FAST, LastVote, Proposal, Slot, Step, Used, Value};
use crate::membership::view::check;
use crate::{Profile, Time};

/// In a large view, changes are gathered for this long for each member, up to a quarter of a second.
const GATHER_PER_MEMBER: Duration = Duration::from_millis(1);
/// A view is at rest once it has stood for this many gathering times. A node that joins then is not one of
/// many, as far as anyone can know.
const CALM: u32 = 4;

/// An objection counts for this many times the patience with a ballot, and so does the lack of one.
const ANSWERS_COUNT: u32 = 2;
/// At most this many different values that others accepted are kept.
const MAX_READ: usize = 64;

/// A proposal that removes a member which may believe in its view for a while yet (R7).
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) until: Time,
    ballot: Ballot,
    value: Arc<NodeView>,
    used: Vec<Used<Incarnation>>,
}

/// A member's part in the slot after `view`: the slot with its votes, the ballots it leads, and the effects.
#[derive(Debug)]
pub(crate) struct Proposer {
    me: Incarnation,
    view: Arc<NodeView>,
    slot: Slot<Incarnation, Arc<NodeView>>,
    batch: Duration,
    patience: Duration,
    outbid_pause: Duration,
    /// When the view was first looked at.
    began: Option<Time>,
    /// The change that is wanted, and since when there is one.
    wanted: Option<(Time, ProposedChange)>,
    /// The ballot of the last value proposed.
    proposed: Option<Ballot>,
    /// The value for which this node asked votes in the fast ballot.
    asked: Option<Arc<NodeView>>,
    /// Values that others accepted, as they were told. Many members tell the same value.
    read: BTreeMap<ViewDigest, Arc<NodeView>>,
    votes: Votes,
    /// Whether joiners are asked for votes in the fast ballot. In a wide view they are not: nobody speaks to
    /// them before they are in.
    joiners_cast: bool,
    /// The members that the current ballot announced it would remove, against possible objections, and until
    /// when the answers to that count.
    announced: BTreeSet<Incarnation>,
    announced_until: Time,
    /// Those of them that are one of two that do not hear each other, with the other one.
    partners: BTreeMap<Incarnation, Incarnation>,
    /// The voters that promised in that ballot, also after there were enough promises.
    promised_by: BTreeSet<Incarnation>,
    /// Members that another member hears well: they are left out of the wanted change until then.
    objections: BTreeMap<Incarnation, Time>,
    /// Members to whose removal nobody objected when asked, and which may believe in their view for a while
    /// yet (R7); until when the answers count.
    unopposed: BTreeMap<Incarnation, Time>,
    /// Members that get no answers because this node would remove them.
    withheld: BTreeSet<Incarnation>,
    /// When the ballot under way is given up for a higher one.
    retry: Option<Time>,
    /// When to look at the wanted change again.
    wake: Option<Time>,
    /// A proposal that this node accepts as soon as it may (R7).
    deferred: Option<Deferred>,
    /// A value that is decided as soon as the dead may be left out of the count (R7).
    late: Option<(Time, Ballot, Arc<NodeView>)>,
    /// The members that accepted what this node proposed last.
    accepted_by: BTreeSet<Incarnation>,
    effects: VecDeque<EngineEffect>,
}

impl Proposer {
    pub(crate) fn new(me: Incarnation, view: Arc<NodeView>, profile: &Profile) -> Self {
        // R1: the elder of the previous view owns round 0.
        let slot = Slot::new(me, view.voters(), Some(view.elder().incarnation));
        Self {
            me,
            view,
            slot,
            batch: profile.batch,
            patience: profile.heartbeat,
            outbid_pause: profile.retransmit,
            began: None,
            wanted: None,
            proposed: None,
            asked: None,
            read: BTreeMap::new(),
            votes: Votes::Whole,
            joiners_cast: true,
            announced: BTreeSet::new(),
            announced_until: Time::ZERO,
            partners: BTreeMap::new(),
            promised_by: BTreeSet::new(),
            objections: BTreeMap::new(),
            unopposed: BTreeMap::new(),
            withheld: BTreeSet::new(),
            retry: None,
            wake: None,
            deferred: None,
            late: None,
            accepted_by: BTreeSet::new(),
            effects: VecDeque::new(),
        }
    }

    /// The proposer of a slot whose round 0 is the fast ballot, where members also vote by themselves. The
    /// proposer gives them so much `patience`.
    pub(crate) fn with_fast_ballot(
        me: Incarnation,
        view: Arc<NodeView>,
        (votes, patience): (Votes, Duration),
        joiners_cast: bool,
        profile: &Profile,
    ) -> Self {
        let slot = Slot::leaderless(me, view.voters());
        Self {
            slot,
            votes,
            patience,
            joiners_cast,
            ..Self::new(me, view, profile)
        }
    }

    /// The slot that is being decided.
    pub(crate) fn slot(&self) -> &Slot<Incarnation, Arc<NodeView>> {
        &self.slot
    }

    pub(crate) fn slot_mut(&mut self) -> &mut Slot<Incarnation, Arc<NodeView>> {
        &mut self.slot
    }

    /// All votes of this node since it installed the view.
    pub(crate) fn vote_state(&self) -> VoteState {
        let vote = self.slot.vote();
        let brief = |accepted: &Acceptance<Arc<NodeView>>| AcceptedValue {
            ballot: accepted.ballot,
            value: Voted::Change(Box::new(check::change_of(&self.view, &accepted.value))),
        };
        let accepted = vote.accepted.as_ref();
        let (view, accepted) = match &self.votes {
            Votes::Whole => (
                VotedIn::Whole(Box::new((*self.view).clone())),
                accepted.map(to_wire),
            ),
            Votes::Named(change) => {
                let view = VotedIn::Named {
                    lineage: self.view.lineage,
                    id: self.view.primary_id(),
                    change: change.clone().map(Box::new),
                };
                (view, accepted.map(brief))
            }
        };
        VoteState {
            view,
            promised: vote.promised,
            accepted,
        }
    }

    /// Whether the member is proven dead.
    pub(crate) fn is_certified(&self, member: Incarnation) -> bool {
        self.slot.certificates().contains_key(&member)
    }

    /// A member is proven dead, and this was its last vote.
    pub(crate) fn certify(&mut self, around: &mut Surroundings<'_>, dead: Incarnation, vote: &VoteState) {
        // A last vote under an earlier view shows that the dead member never voted in this slot: nobody votes
        // in a slot before installing its predecessor (R1). A last vote under a later view says nothing about
        // this slot. An acceptance that cannot be read is not the same as none: such a proof is not used.
        let accepted = match &vote.accepted {
            Some(accepted) if vote.view.id() == self.view.primary_id() => {
                let Some(accepted) = self.accepted_by_another(accepted) else {
                    return;
                };
                Some(accepted)
            }
            _ => None,
        };
        let last = match vote.view.id().cmp(&self.view.primary_id()) {
            std::cmp::Ordering::Less => LastVote::default(),
            std::cmp::Ordering::Equal => LastVote {
                promised: vote.promised,
                accepted,
            },
            std::cmp::Ordering::Greater => return,
        };
        let step = self.slot.certify(dead, last);
        self.perform(around, step);
    }

    pub(crate) fn pursue(
        &mut self,
        around: &mut Surroundings<'_>,
        wanted: Option<ProposedChange>,
        is_restless: impl Fn(Incarnation) -> bool,
    ) {
        let now = around.now;
        let began = *self.began.get_or_insert(now);
        self.resume(around);
        let Some(wanted) = wanted else {
            self.wanted = None;
            self.unopposed.clear();
            self.wake = None;
            self.release_unwanted(is_restless);
            return;
        };
        let since = self.wanted.as_ref().map_or(now, |(since, _)| *since);
        let removed: BTreeSet<Incarnation> = wanted
            .remove
            .iter()
            .map(|departure| departure.member.incarnation)
            .collect();
        self.unopposed
            .retain(|member, until| *until > now && removed.contains(member));
        self.wanted = Some((since, wanted));
        self.release_unwanted(is_restless);
        self.objections.retain(|_, until| *until > now);
        // When a quorum comes together again after a partition, members that are silent now are about to be
        // heard.
        let reunion = self
            .wanted
            .as_ref()
            .is_some_and(|(_, wanted)| (wanted.renew || wanted.unfinished) && !wanted.asked_first.is_empty());
        let gather = if reunion {
            self.patience * 2
        } else if self.votes.are_named() {
            // A large view is worth waiting for: the joins and departures of the meantime go into the same
            // view.
            let members = u32::try_from(self.view.members.len()).unwrap_or(u32::MAX);
            let gather = self.patience.min(GATHER_PER_MEMBER * members.min(250));
            if self.only_joins() && since >= began + gather * CALM {
                self.batch
            } else {
                gather
            }
        } else {
            self.batch
        };
        if now < since + gather {
            self.wake = Some(since + gather);
            return;
        }
        self.proceed(around);
        self.wake = match self.slot.proposal() {
            Proposal::Idle if self.has_cast() => self.retry,
            Proposal::Idle | Proposal::Choosing { .. } => {
                self.retry = None;
                Some(now + self.patience)
            }
            Proposal::Preparing { .. } | Proposal::Accepting { .. } => self.retry,
            Proposal::Decided { .. } => None,
        };
        if let (Some(released), Some(wake)) = (self.withhold_removed(around), self.wake) {
            self.wake = Some(wake.min(released));
        }
    }

    /// Whether the wanted change lets nodes join and does nothing else.
    fn only_joins(&self) -> bool {
        let wanted = self.wanted.as_ref().map(|(_, wanted)| wanted);
        wanted.is_some_and(|wanted| {
            wanted.remove.is_empty() && !wanted.renew && !wanted.unfinished && !wanted.join.is_empty()
        })
    }

    fn proceed(&mut self, around: &mut Surroundings<'_>) {
        match self.slot.proposal() {
            Proposal::Decided { .. } => {}
            Proposal::Choosing { .. } => self.choose(around),
            Proposal::Accepting { .. } if planted!(TwoValuesPerBallot) => self.choose(around),
            Proposal::Idle if !self.has_cast() => self.start(around),
            Proposal::Idle | Proposal::Preparing { .. } | Proposal::Accepting { .. } => {
                if self.retry.is_none_or(|retry| retry <= around.now) {
                    self.start(around);
                }
            }
        }
    }

    /// Opens round 0 or prepares a higher ballot, if there is something to propose.
    fn start(&mut self, around: &mut Surroundings<'_>) {
        let stalled = !matches!(self.slot.proposal(), Proposal::Idle) || self.has_cast();
        let Some((value, announced)) = self.desired(around, None) else {
            // Others objected to everything wanted. But a value may be under way, and it must come to its
            // end.
            if stalled {
                self.announced = BTreeSet::new();
                let step = self.slot.prepare(self.me);
                self.perform(around, step);
            }
            return;
        };
        if announced.is_empty() && self.slot.may_open(self.me) {
            let step = self.slot.open(self.me, value);
            self.perform(around, step);
        } else if announced.is_empty() && self.may_ask(around, &value) {
            self.ask(around, value);
        } else {
            self.announced = announced;
            let step = self.slot.prepare(self.me);
            self.perform(around, step);
        }
    }

    /// Whether the fast ballot can still decide this value.
    fn may_ask(&self, around: &Surroundings<'_>, value: &Arc<NodeView>) -> bool {
        self.slot.may_cast()
            && self
                .slot
                .may_decide_fast(value, &self.may_vote_for(around, value))
    }

    /// The members that may cast for this value, as far as this node knows.
    fn may_vote_for(&self, around: &Surroundings<'_>, value: &NodeView) -> BTreeSet<Incarnation> {
        let mut voters = around.reachable.clone();
        if self.joiners_cast {
            voters.extend(value.joined.iter().copied());
        }
        voters
    }

    /// Asks all members for their votes in the fast ballot.
    fn ask(&mut self, around: &mut Surroundings<'_>, value: Arc<NodeView>) {
        if self.cast(value.clone()) {
            self.retry = Some(around.now + self.patience + random_part(around, self.patience));
            let message = SlotMessage::Fast {
                value: Box::new((*value).clone()),
            };
            self.broadcast(&value.joined, &message);
            self.asked = Some(value);
        }
    }

    /// Casts this node's vote in the fast ballot, and shows it before anything that follows. Returns false if
    /// this node may not cast.
    pub(crate) fn cast(&mut self, value: Arc<NodeView>) -> bool {
        let may = self.slot.cast(value.clone());
        if may {
            self.accepted(FAST, value);
            self.effects.push_back(EngineEffect::Voted);
        }
        may
    }

    /// Whether this node has cast its vote in the fast ballot.
    fn has_cast(&self) -> bool {
        let accepted = self.slot.vote().accepted.as_ref();
        self.slot.is_leaderless() && accepted.is_some_and(|accepted| accepted.ballot == FAST)
    }

    /// The value for which this node asked votes in the fast ballot.
    pub(crate) fn asked(&self) -> Option<&Arc<NodeView>> {
        self.asked.as_ref()
    }

    /// This node starts no higher ballot before then.
    pub(crate) fn give_fast_ballot_until(&mut self, until: Time) {
        self.retry = Some(until);
    }

    fn is_asking(&self) -> bool {
        matches!(self.slot.proposal(), Proposal::Idle) && self.has_cast()
    }

    /// Whether this node leads no ballot.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.slot.proposal(), Proposal::Idle) && !self.has_cast()
    }

    /// A vote was counted. If the fast ballot cannot decide this node's value any more, a higher ballot is
    /// due.
    pub(crate) fn on_fast_news(&mut self, around: &mut Surroundings<'_>) {
        let Some(accepted) = self.slot.vote().accepted.as_ref().filter(|_| self.has_cast()) else {
            return;
        };
        let voters = self.may_vote_for(around, &accepted.value);
        if !self.slot.may_decide_fast(&accepted.value, &voters) {
            self.hurry(around);
        }
    }

    fn hurry(&mut self, around: &mut Surroundings<'_>) {
        let soon = around.now + random_part(around, self.outbid_pause);
        self.retry = Some(self.retry.map_or(soon, |retry| retry.min(soon)));
        self.wake = self.retry;
    }

    /// Tells the asker that this node casts no vote for its value.
    pub(crate) fn refuse_fast(&mut self, asker: Incarnation) {
        let message = SlotMessage::Nack {
            ballot: FAST,
            promised: self.slot.vote().promised,
            hears: Vec::new(),
        };
        self.send(asker, message);
    }

    /// The fast ballot decided.
    pub(crate) fn decided_fast(&mut self, value: Arc<NodeView>, announce: bool) {
        self.decided(FAST, value, announce);
    }

    fn decided(&mut self, ballot: Ballot, view: Arc<NodeView>, announce: bool) {
        check::assert_value(&self.view, &view);
        self.retry = None;
        let certificates = self.slot.certificates().iter();
        let dead = certificates
            .filter(|(_, last)| last.promised <= Some(ballot))
            .map(|(dead, _)| *dead)
            .collect();
        self.effects.push_back(EngineEffect::Decided {
            ballot,
            dead,
            view,
            announce,
        });
    }

    /// Phase 1 left the choice free.
    fn choose(&mut self, around: &mut Surroundings<'_>) {
        // A ballot may stay free for long, if others objected to all that was wanted. A member that
        // nobody heard then may be heard well by now, so the proposer asks again.
        if around.now >= self.announced_until {
            self.announced.clear();
        }
        // An objection may be on its way. If no word comes from their observers, these members stay and are
        // asked about anew.
        let unheard = self.not_vouched_for(around);
        if !unheard.is_empty() && around.now + self.patience < self.announced_until {
            return;
        }
        let announced: BTreeSet<Incarnation> = self.announced.difference(&unheard).copied().collect();
        self.note_unopposed(around, &announced);
        if let Some((value, _)) = self.desired(around, Some(&announced)) {
            let step = self.slot.choose(value);
            self.perform(around, step);
        } else if unheard.is_empty() && self.desired(around, None).is_some() {
            // Phase 1 did not announce to the acceptors what is wanted now.
            self.start(around);
        }
    }

    pub(crate) fn handle(&mut self, around: &mut Surroundings<'_>, from: Incarnation, message: SlotMessage) {
        if !self.slot.voters().contains(&from) && !matches!(message, SlotMessage::Accepted { .. }) {
            return;
        }
        match message {
            SlotMessage::Prepare {
                ballot,
                proofs,
                removing,
            } if ballot.proposer == from => {
                self.on_prepare(around, ballot, &used(&proofs), &removing);
            }
            SlotMessage::Accept {
                ballot,
                value,
                proofs,
            } if ballot.proposer == from => {
                if check::is_successor(&self.view, &value) {
                    self.on_accept(around, ballot, Arc::new(*value), &used(&proofs));
                }
            }
            SlotMessage::Promise { ballot, accepted } => {
                let told = accepted
                    .as_ref()
                    .map(|accepted| self.accepted_by_another(accepted));
                // A promise with a value that this slot cannot have is no answer.
                if told.as_ref().is_none_or(Option::is_some) {
                    self.on_promises(around, &[from], ballot, told.flatten());
                }
            }
            SlotMessage::Accepted { ballot } => self.on_accepteds(around, &[from], ballot),
            SlotMessage::Nack {
                ballot,
                promised,
                hears,
            } => self.on_nack(around, ballot, promised, &hears),
            // From a sender that is not the ballot's proposer, or about the fast ballot, which the engine
            // hands to it.
            SlotMessage::Prepare { .. }
            | SlotMessage::Accept { .. }
            | SlotMessage::Fast { .. }
            | SlotMessage::Cast { .. } => {}
        }
    }

    /// Voters promised. All of them had accepted this.
    pub(crate) fn on_promises(
        &mut self,
        around: &mut Surroundings<'_>,
        from: &[Incarnation],
        ballot: Ballot,
        accepted: Option<Acceptance<Arc<NodeView>>>,
    ) {
        from.iter().for_each(|from| self.note_promise(*from, ballot));
        let step = self.slot.on_promises(from, ballot, accepted);
        self.perform(around, step);
    }

    /// Voters, or joiners of the value, accepted.
    pub(crate) fn on_accepteds(
        &mut self,
        around: &mut Surroundings<'_>,
        from: &[Incarnation],
        ballot: Ballot,
    ) {
        let step = self.accepted_by(from, ballot);
        self.perform(around, step);
    }

    /// What another member accepted in this slot; `None` if it cannot have accepted that. To check a view
    /// takes a while, and thousands of members accept the same one.
    fn accepted_by_another(&mut self, told: &AcceptedValue) -> Option<Acceptance<Arc<NodeView>>> {
        let digest = match &told.value {
            Voted::Whole(view) => view.digest(),
            Voted::Change(change) => change.digest(),
        };
        let value = match self.read.get(&digest) {
            Some(known) => known.clone(),
            None => {
                let value = Arc::new(check::voted(&self.view, &told.value)?);
                if self.read.len() < MAX_READ {
                    self.read.insert(digest, value.clone());
                }
                value
            }
        };
        let ballot = told.ballot;
        Some(Acceptance { ballot, value })
    }

    fn on_prepare(
        &mut self,
        around: &Surroundings<'_>,
        ballot: Ballot,
        used: &[Used<Incarnation>],
        removing: &[Incarnation],
    ) {
        let certified = self.slot.certified();
        let hears: Vec<Incarnation> = removing
            .iter()
            .copied()
            .filter(|member| !certified.contains(member) && (*member == self.me || (around.objects)(*member)))
            .collect();
        let answer = if hears.is_empty() {
            self.slot.on_prepare(ballot, used)
        } else {
            Err(None)
        };
        let message = match answer {
            Ok(accepted) => SlotMessage::Promise {
                ballot,
                accepted: accepted.as_ref().map(to_wire),
            },
            Err(promised) => {
                self.send(
                    ballot.proposer,
                    SlotMessage::Nack {
                        ballot,
                        promised,
                        hears,
                    },
                );
                return;
            }
        };
        self.vote(ballot.proposer, message);
    }

    pub(crate) fn on_accept(
        &mut self,
        around: &Surroundings<'_>,
        ballot: Ballot,
        value: Arc<NodeView>,
        used: &[Used<Incarnation>],
    ) {
        if self.slot.vote().promised <= Some(ballot) && self.defers(around, ballot, &value, used) {
            return;
        }
        match self.slot.on_accept(ballot, value.clone(), used) {
            Ok(()) => {
                self.accepted(ballot, value);
                self.vote(ballot.proposer, SlotMessage::Accepted { ballot });
            }
            Err(promised) => {
                self.send(
                    ballot.proposer,
                    SlotMessage::Nack {
                        ballot,
                        promised,
                        hears: Vec::new(),
                    },
                );
            }
        }
    }

    /// This node's own vote for what it proposes.
    fn accept_own(
        &mut self,
        around: &mut Surroundings<'_>,
        ballot: Ballot,
        value: Arc<NodeView>,
        used: &[Used<Incarnation>],
    ) {
        if self.slot.on_accept(ballot, value.clone(), used).is_ok() {
            self.accepted(ballot, value);
            self.effects.push_back(EngineEffect::Voted);
            self.on_accepteds(around, &[self.me], ballot);
        }
    }

    fn accepted(&mut self, ballot: Ballot, view: Arc<NodeView>) {
        check::assert_value(&self.view, &view);
        self.effects.push_back(EngineEffect::Accepted { ballot, view });
    }

    /// R2: the lifelines show a vote before it goes anywhere.
    fn vote(&mut self, to: Incarnation, message: SlotMessage) {
        if planted!(VoteBeforeLifeline) {
            self.send(to, message);
            return;
        }
        self.effects.push_back(EngineEffect::Voted);
        self.send(to, message);
    }

    fn perform(&mut self, around: &mut Surroundings<'_>, step: Step<Incarnation, Arc<NodeView>>) {
        match step {
            Step::Wait => {}
            Step::Choose => self.choose(around),
            Step::Prepare { ballot, used } => {
                self.retry = Some(around.now + self.patience + random_part(around, self.patience));
                if let Ok(accepted) = self.slot.on_prepare(ballot, &used) {
                    self.effects.push_back(EngineEffect::Voted);
                    self.announced_until = around.now + self.patience * ANSWERS_COUNT;
                    self.promised_by = BTreeSet::from([self.me]);
                    let announced = self.announced.iter();
                    let partners = announced.filter_map(|member| Some((*member, self.partner(*member)?)));
                    self.partners = partners.collect();
                    let announced = self.announced.iter().copied();
                    let removing = announced
                        .filter(|member| !self.partners.contains_key(member))
                        .collect();
                    self.broadcast(
                        &[],
                        &SlotMessage::Prepare {
                            ballot,
                            proofs: proofs(&used),
                            removing,
                        },
                    );
                    self.on_promises(around, &[self.me], ballot, accepted);
                }
            }
            Step::Accept { ballot, value, used } => {
                self.retry = Some(around.now + self.patience + random_part(around, self.patience));
                let joiners = value.joined.clone();
                if self.defers(around, ballot, &value, &used) {
                    // The others may be free to vote by now. And a value that phase 1 found is not this
                    // node's choice.
                    self.propose(ballot);
                    let message = SlotMessage::Accept {
                        ballot,
                        value: Box::new((*value).clone()),
                        proofs: proofs(&used),
                    };
                    self.broadcast(&joiners, &message);
                } else if self.slot.on_accept(ballot, value.clone(), &used).is_ok() {
                    self.propose(ballot);
                    self.accepted(ballot, value.clone());
                    self.effects.push_back(EngineEffect::Voted);
                    let message = SlotMessage::Accept {
                        ballot,
                        value: Box::new((*value).clone()),
                        proofs: proofs(&used),
                    };
                    self.broadcast(&joiners, &message);
                    self.on_accepteds(around, &[self.me], ballot);
                }
            }
            Step::Decided { value } => {
                self.retry = None;
                if let Some(ballot) = self.proposed_in(&value) {
                    match self.counts_from(around, &value) {
                        Some(until) => self.late = Some((until, ballot, value)),
                        None => self.decided(ballot, value, true),
                    }
                }
            }
        }
    }

    pub(crate) fn broadcast(&mut self, joiners: &[Incarnation], message: &SlotMessage) {
        let (joiners, message) = (joiners.to_vec(), message.clone());
        self.effects
            .push_back(EngineEffect::Broadcast { joiners, message });
    }

    pub(crate) fn send(&mut self, to: Incarnation, message: SlotMessage) {
        self.effects.push_back(EngineEffect::Send { to, message });
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let deferred = self.deferred.as_ref().map(|deferred| deferred.until);
        let late = self.late.as_ref().map(|(until, ..)| *until);
        let wake = self.wanted.as_ref().and(self.wake);
        [wake, deferred, late].into_iter().flatten().min()
    }

    /// The next thing to do.
    pub(crate) fn poll_effect(&mut self) -> Option<EngineEffect> {
        self.effects.pop_front()
    }
}

fn random_part(around: &mut Surroundings<'_>, bound: Duration) -> Duration {
    let micros = u64::try_from(bound.as_micros()).unwrap_or(u64::MAX).max(1);
    Duration::from_micros(around.random.below(micros))
}

pub(crate) fn to_wire(accepted: &Acceptance<impl Borrow<NodeView>>) -> AcceptedValue {
    AcceptedValue {
        ballot: accepted.ballot,
        value: Voted::Whole(Box::new(accepted.value.borrow().clone())),
    }
}

pub(crate) fn used(proofs: &[Proof]) -> Vec<Used<Incarnation>> {
    proofs.iter().map(|proof| (proof.dead, proof.promised)).collect()
}

fn proofs(used: &[Used<Incarnation>]) -> Vec<Proof> {
    used.iter()
        .map(|(dead, promised)| Proof {
            dead: *dead,
            promised: *promised,
        })
        .collect()
}
