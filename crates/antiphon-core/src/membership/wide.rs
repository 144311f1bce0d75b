//! Large views of the cut engine: what is sent to all elsewhere goes from neighbour to neighbour here.
//!
//! ```text
//!   narrow views (all observe all)            wide views
//!   heartbeats ──► all members                heartbeats ──► one's observers
//!   doubts in every heartbeat                 opinions: rumours, when they change
//!   slot messages to all, answers to one      proposals and tallies: rumours
//!   Decide to all                             everyone counts the votes itself; Decided: a rumour
//! ```
//! Above this file both are the same: the engine gets the same messages in the same order of events, and the detector is told what
//! each accuser says. Below it, [`Rumours`] knows who has what.
//!
//! # Invariants
//!
//! - A vote becomes a rumour after it is on the lifelines, as it becomes a message elsewhere (R2).
//! - Rumours are about one view, and mean nothing in another. Proofs of death are told again in each.
//! - A promise shows what was accepted, or is none. What stands for a view is its digest; whoever counts a vote knows the view.
//! - Who is not heard here is lost if its observers say so. Who is not lost is reachable if there is word of it, and of this node there:
//!   from each to its subjects, to theirs, and so on, over edges that are not down ([`Seat::hear_of_others`]). That it is not known to be
//!   lost is not enough, or whoever is cut off, alone or with some, would go on believing in a view that has long been another.
//!
//! # When participants die
//!
//! - *An observer*: its edges count as down once it is lost itself. What it had told is with its neighbours.
//! - *A neighbour through which a rumour was to come*: there are some twenty; what all ways lost is found by the sums in heartbeats.
//! - *The leader, with its question or ballot on the way*: it reaches all, or some. Their votes are with those who count, and the next
//!   leader's phase 1 asks all; it is the next once its observers have lost the old one.
//! - *The observer from which a joiner was to learn of its admission*: the joiner goes on asking, and whoever has installed the view
//!   tells it.
//! - *Joiners*: they acknowledge nothing, unless a ballot must be tried again.
//! - *Whoever installed a view first*: `Decided` is on its way to its neighbours on the tree before it installs. Who does not know what was decided pulls it
//!   from whoever said so, and passes the word on when it has it too; who was told nothing hears of a later view by heartbeats and pulls it.
//! - *A partition*: who has a majority goes on, its observers' words being enough; a part without one has word of itself only, and gathers a
//!   non-primary view.
//!
//! What stays between two members: probes of joiners, the decision to those who join (from one of their observers each), views
//! that someone pulls, and all of a component that has lost the primary.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{Ayes, MembershipMessage, Rumour, SlotMessage, Suspicion, WIRE_LEVEL};
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewDigest, ViewId};

use super::check;
use super::context::Context;
use super::cut::Rings;
use super::cut::ranks::Ranks;
use super::cut::rumours::Rumours;
use super::seat::{Report, Seat};
use super::slot::FAST;
use crate::Time;

/// Views that votes may be about; of more, the latest are kept.
const MAX_VALUES: usize = 256;
/// Votes about so many views that are not known here wait for them.
const MAX_WAITING: usize = 256;
/// Rumours of the next view that are kept until it is installed, in bytes.
const MAX_EARLY_BYTES: usize = 4 << 20;
/// What a message of them takes besides, about: one without rumours is not free.
const EARLY_MESSAGE_BYTES: usize = 64;
/// More edges than this no member has.
const MAX_EDGES: usize = 256;

/// What a member of a wide view keeps for it.
#[derive(Debug)]
pub(crate) struct Wide {
    pub(crate) rumours: Rumours,
    neighbours: BTreeSet<Incarnation>,
    /// What this node has said of itself last.
    said: (u32, Said),
    values: BTreeMap<ViewDigest, Arc<NodeView>>,
    /// These, in the order in which they became known.
    known: VecDeque<ViewDigest>,
    /// Votes about views that are not known here yet.
    waiting: BTreeMap<Ayes, Ranks>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    primary: bool,
    leaving: bool,
    wire_level: u8,
    /// And why: who says that a path loses much must say so again when nothing comes any more.
    down: Vec<(Incarnation, Discriminant<Evidence>)>,
}

impl Said {
    /// What goes without saying in a view.
    fn nothing(view: &NodeView) -> Self {
        Self {
            primary: true,
            leaving: false,
            wire_level: view.wire_level,
            down: Vec::new(),
        }
    }
}

/// Rumours of a view that is not installed yet.
#[derive(Debug, Default)]
pub(crate) struct Early {
    view: Option<ViewId>,
    heard: Vec<(Incarnation, Vec<Rumour>)>,
    bytes: usize,
}

impl Wide {
    /// What a member of this view needs; `None` if all are neighbours.
    pub(crate) fn of(cx: &Context, now: Time, view: &NodeView, rings: &Rings) -> Option<Self> {
        let rank = view.rank(cx.me)?;
        if !rings.are_wide(view.members.len()) {
            return None;
        }
        let neighbours = rings.neighbours(rank).into_iter();
        let neighbours: Vec<Incarnation> = neighbours.map(|rank| view.members[rank].incarnation).collect();
        let branches = rings.branches(rank).into_iter();
        let branches: BTreeSet<Incarnation> = branches.map(|rank| view.members[rank].incarnation).collect();
        let interval = cx.config.profile.batch * 2;
        Some(Self {
            neighbours: neighbours.iter().copied().collect(),
            rumours: Rumours::new(view.members.len(), neighbours, &branches, interval, now),
            said: (0, Said::nothing(view)),
            values: BTreeMap::new(),
            known: VecDeque::new(),
            waiting: BTreeMap::new(),
        })
    }

    pub(crate) fn is_neighbour(&self, member: Incarnation) -> bool {
        self.neighbours.contains(&member)
    }

    fn learn_value(&mut self, value: NodeView) -> ViewDigest {
        let digest = value.digest();
        if self.values.insert(digest, Arc::new(value)).is_none() {
            self.known.push_back(digest);
        }
        if self.known.len() > MAX_VALUES
            && let Some(oldest) = self.known.pop_front()
        {
            self.values.remove(&oldest);
        }
        digest
    }
}

impl Seat {
    /// Says by a rumour what this node thinks of itself and of its edges, if that has changed.
    pub(crate) fn opine(&mut self, cx: &mut Context, now: Time) {
        let (primary, leaving) = (self.is_primary(), self.leaving.is_wanted());
        let Some(wide) = &mut self.wide else { return };
        let suspicions = cx.detector.opinion(now);
        let down = suspicions
            .iter()
            .map(|suspicion| {
                let why = match planted!(CutOffSaidLossy) {
                    true => &Evidence::Deaf,
                    false => &suspicion.evidence,
                };
                (suspicion.member, discriminant(why))
            })
            .collect();
        let says = Said {
            primary,
            leaving,
            wire_level: WIRE_LEVEL,
            down,
        };
        if wide.said.1 == says {
            return;
        }
        let version = wide.said.0 + 1;
        wide.said = (version, says);
        let opinion = Rumour::Opinion {
            of: cx.me,
            version,
            primary,
            leaving,
            wire_level: WIRE_LEVEL,
            suspicions,
        };
        wide.rumours.take(now, None, opinion);
    }

    /// A slot message for all voters.
    pub(crate) fn spread(
        &mut self,
        cx: &mut Context,
        now: Time,
        joiners: &[Incarnation],
        message: SlotMessage,
    ) {
        let slot = check::slot_after(&self.view);
        let me = cx.me;
        let Some(wide) = &mut self.wide else {
            let voters = self.view.members.iter().map(|member| member.incarnation);
            let to: Vec<Incarnation> = voters
                .chain(joiners.iter().copied())
                .filter(|to| *to != me && !self.engine.is_certified(*to))
                .collect();
            for to in to {
                let message = message.clone();
                cx.send(to, MembershipMessage::Slot { slot, message });
            }
            return;
        };
        let rumour = match message {
            SlotMessage::Fast { value } => {
                let change = Box::new(check::change_of(&self.view, &value));
                let digest = wide.learn_value(*value);
                wide.rumours.take(now, None, Rumour::Ask { by: me, change });
                self.vote(now, me, Ayes::Cast { value: digest });
                return;
            }
            SlotMessage::Accept {
                ballot,
                value,
                proofs,
            } => {
                // Tried again, it lacks those of the next view that are not in this one; else they acknowledge nothing (see `limit`).
                if ballot.round > 1 {
                    for joiner in value
                        .members
                        .iter()
                        .filter(|member| joiners.contains(&member.incarnation))
                    {
                        let message = SlotMessage::Accept {
                            ballot,
                            value: value.clone(),
                            proofs: proofs.clone(),
                        };
                        cx.know_peer(joiner.incarnation, joiner.addr);
                        cx.send(joiner.incarnation, MembershipMessage::Slot { slot, message });
                    }
                }
                let change = Box::new(check::change_of(&self.view, &value));
                wide.learn_value(*value);
                Rumour::Accept {
                    ballot,
                    change,
                    proofs,
                }
            }
            SlotMessage::Prepare {
                ballot,
                proofs,
                removing,
            } => Rumour::Prepare {
                ballot,
                proofs,
                removing,
            },
            SlotMessage::Cast { value } => {
                self.vote(now, me, Ayes::Cast { value });
                return;
            }
            // Answers go to one.
            SlotMessage::Promise { .. } | SlotMessage::Accepted { .. } | SlotMessage::Nack { .. } => return,
        };
        wide.rumours.take(now, None, rumour);
    }

    /// A slot message for one: in wide views, a vote that all hear of.
    pub(crate) fn reply(&mut self, cx: &mut Context, now: Time, to: Incarnation, message: SlotMessage) {
        let slot = check::slot_after(&self.view);
        let what = match &message {
            _ if self.wide.is_none() || !self.view.contains(to) => None,
            // Whoever asked sees by the votes what others cast for.
            SlotMessage::Nack { ballot, .. } if *ballot == FAST => return,
            SlotMessage::Cast { value } => Some(Ayes::Cast { value: *value }),
            SlotMessage::Accepted { ballot } => Some(Ayes::Accepted { ballot: *ballot }),
            SlotMessage::Promise { ballot, accepted } => {
                let mut shown = None;
                if let (Some(accepted), Some(wide)) = (accepted, &mut self.wide) {
                    // A promise that does not show what was accepted would be one of somebody who has accepted nothing.
                    let Some(value) = check::voted(&self.view, &accepted.value) else {
                        return;
                    };
                    let change = check::change_of(&self.view, &value);
                    wide.rumours.take(now, None, Rumour::Value(Box::new(change)));
                    shown = Some(wide.learn_value(value));
                }
                Some(Ayes::Promise {
                    ballot: *ballot,
                    accepted_in: accepted.as_ref().map(|accepted| accepted.ballot),
                    accepted: shown,
                })
            }
            SlotMessage::Prepare { .. }
            | SlotMessage::Accept { .. }
            | SlotMessage::Fast { .. }
            | SlotMessage::Nack { .. } => None,
        };
        match what {
            Some(what) => self.vote(now, cx.me, what),
            None => {
                self.reach(cx, to);
                cx.send(to, MembershipMessage::Slot { slot, message });
            }
        }
    }

    fn vote(&mut self, now: Time, me: Incarnation, what: Ayes) {
        let rank = self.view.rank(me);
        if let (Some(wide), Some(rank)) = (&mut self.wide, rank) {
            let by = Ranks::of(rank).into_wire();
            wide.rumours.take(now, None, Rumour::Tally { what, by });
        }
    }

    /// Who observes a member.
    pub(crate) fn observers(&self, member: Incarnation) -> Vec<Incarnation> {
        let rank = self.view.rank(member).unwrap_or(usize::MAX);
        let members = &self.view.members;
        let observers = self.rings.observers(rank).iter();
        observers
            .filter_map(|by| Some(members.get(usize::from(*by))?.incarnation))
            .collect()
    }

    /// Whom a member observes.
    pub(crate) fn subjects(&self, member: Incarnation) -> Vec<Incarnation> {
        let rank = self.view.rank(member).unwrap_or(usize::MAX);
        let members = &self.view.members;
        let subjects = self.rings.subjects(rank);
        subjects
            .filter_map(|of| Some(members.get(of)?.incarnation))
            .collect()
    }

    /// Makes a member reachable that is no neighbour.
    pub(crate) fn reach(&self, cx: &mut Context, member: Incarnation) {
        if let Some(member) = self.view.member(member).filter(|_| self.wide.is_some()) {
            cx.know_peer(member.incarnation, member.addr);
        }
    }

    /// Rumours from a member.
    pub(crate) fn handle_rumours(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        view: ViewId,
        rumours: Vec<Rumour>,
    ) {
        if view > self.view.primary_id() {
            if view == check::next_id(self.view.primary_id()) {
                if self.early.view != Some(view) {
                    self.early = Early {
                        view: Some(view),
                        ..Early::default()
                    };
                }
                let bytes = rumours
                    .iter()
                    .map(|rumour| encode_to_vec(rumour).len())
                    .sum::<usize>()
                    + EARLY_MESSAGE_BYTES;
                if self.early.bytes + bytes <= MAX_EARLY_BYTES {
                    self.early.bytes += bytes;
                    self.early.heard.push((sender, rumours));
                }
            }
            self.pull_soon(cx, now, sender);
        } else {
            self.hear(cx, now, sender, view, rumours);
        }
    }

    /// A member has a later view. In a wide one the decision is on its way to this node as well, most likely, and a whole view is
    /// much to ask for.
    pub(crate) fn pull_soon(&mut self, cx: &mut Context, now: Time, from: Incarnation) {
        if self.wide.is_none() {
            self.pull(cx, now, from);
        } else {
            let at = now + cx.config.profile.batch * 8;
            self.pull_at.get_or_insert((at, from));
        }
    }

    pub(crate) fn pull_late(&mut self, cx: &mut Context, now: Time) {
        if let Some((_, from)) = self.pull_at.take_if(|(at, _)| *at <= now) {
            self.reach(cx, from);
            self.pull(cx, now, from);
        }
    }

    /// Rumours that came before the view that they are about.
    pub(crate) fn hear_early(&mut self, cx: &mut Context, now: Time) {
        if self.early.view > Some(self.view.primary_id()) {
            return;
        }
        let early = std::mem::take(&mut self.early);
        for (sender, rumours) in early.heard {
            if let Some(view) = early.view {
                self.hear(cx, now, sender, view, rumours);
            }
        }
    }

    /// Whether a rumour is about members of this view, makes sense, and is no larger than any that a member would tell: what is taken is passed on, and
    /// more than a link carries would break it.
    fn is_sound(&self, rumour: &Rumour) -> bool {
        let most = self.view.members.len();
        match rumour {
            Rumour::Opinion { of, suspicions, .. } => {
                self.view.contains(*of) && suspicions.len() <= MAX_EDGES
            }
            Rumour::Ask { by, change } => self.view.contains(*by) && check::change_fits(change),
            Rumour::Prepare {
                ballot,
                proofs,
                removing,
            } => {
                ballot.round > 0
                    && self.view.contains(ballot.proposer)
                    && proofs.len() <= most
                    && removing.len() <= most
            }
            Rumour::Accept {
                ballot,
                change,
                proofs,
            } => {
                ballot.round > 0
                    && self.view.contains(ballot.proposer)
                    && proofs.len() <= most
                    && check::change_fits(change)
            }
            Rumour::Certificate(certificate) => {
                self.view.contains(certificate.dead)
                    && check::vote_is_sound(&certificate.vote)
                    && check::certificate_fits(certificate)
            }
            Rumour::Tally { what, .. } => match what {
                Ayes::Cast { .. } => true,
                Ayes::Accepted { ballot } => ballot.round > 0 && self.view.contains(ballot.proposer),
                Ayes::Promise {
                    ballot,
                    accepted_in,
                    accepted,
                } => {
                    ballot.round > 0
                        && self.view.contains(ballot.proposer)
                        && accepted_in.is_some() == accepted.is_some()
                        && *accepted_in < Some(*ballot)
                }
            },
            Rumour::Value(change) => check::change_fits(change),
            Rumour::Decided { .. } => true,
        }
    }

    /// Rumours about a view count as long as it is the installed one, which each of them may end. Ranks, ballots and versions begin anew in
    /// the next: counted there, a vote would be one that nobody has cast (R1).
    fn hear(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        about: ViewId,
        rumours: Vec<Rumour>,
    ) {
        let mut votes = Vec::new();
        for rumour in rumours {
            if self.is_over(cx, about) {
                return;
            }
            if !self.is_sound(&rumour) {
                continue;
            }
            if let Rumour::Decided { value } = rumour
                && self.known_value(value).is_none()
            {
                // Not passed on: whoever is told can ask here for what it does not know only after it is installed. It was at the sender.
                self.pull(cx, now, sender);
                continue;
            }
            let Some(wide) = &mut self.wide else { return };
            let Some(news) = wide.rumours.take(now, Some(sender), rumour) else {
                continue;
            };
            match news {
                Rumour::Tally { what, by } => votes.push((what, Ranks::from_wire(by))),
                Rumour::Opinion { of, .. } if of == cx.me => {}
                Rumour::Opinion {
                    of,
                    primary,
                    leaving,
                    wire_level,
                    suspicions,
                    ..
                } => self.heard_of(cx, now, of, (primary, leaving, wire_level), &suspicions),
                Rumour::Ask { by, change } => {
                    if let Some(value) = check::apply(&self.view, *change) {
                        self.know_value(value.clone());
                        let value = Box::new(value);
                        self.hand(cx, now, by, SlotMessage::Fast { value });
                    }
                }
                Rumour::Accept {
                    ballot,
                    change,
                    proofs,
                } => {
                    if let Some(value) = check::apply(&self.view, *change) {
                        self.know_value(value.clone());
                        let value = Box::new(value);
                        let message = SlotMessage::Accept {
                            ballot,
                            value,
                            proofs,
                        };
                        self.hand(cx, now, ballot.proposer, message);
                    }
                }
                Rumour::Prepare {
                    ballot,
                    proofs,
                    removing,
                } => {
                    let message = SlotMessage::Prepare {
                        ballot,
                        proofs,
                        removing,
                    };
                    self.hand(cx, now, ballot.proposer, message);
                }
                Rumour::Value(change) => {
                    if let Some(value) = check::apply(&self.view, *change) {
                        self.know_value(value);
                    }
                }
                Rumour::Certificate(certificate) => {
                    self.certify(cx, now, certificate.dead, certificate.vote, false);
                }
                Rumour::Decided { value } => {
                    if let Some(next) = self.known_value(value) {
                        self.learn(cx, now, next, Some(sender));
                    }
                }
            }
        }
        if !self.is_over(cx, about) {
            self.count_votes(cx, now, votes);
        }
    }

    fn is_over(&self, cx: &Context, view: ViewId) -> bool {
        self.view.primary_id() != view || cx.fate.is_some()
    }

    fn hand(&mut self, cx: &mut Context, now: Time, from: Incarnation, message: SlotMessage) {
        if self.view.contains(from) && from != cx.me && !self.leaving.is_departing() {
            self.with_engine(cx, now, |engine, around| engine.handle(around, from, message));
        }
    }

    /// The view with this digest, if votes may be for it.
    fn known_value(&self, digest: ViewDigest) -> Option<NodeView> {
        let shown = self.wide.as_ref().and_then(|wide| wide.values.get(&digest));
        let shown = shown.map(|next| &**next);
        shown.or_else(|| self.engine.value(digest)).cloned()
    }

    fn know_value(&mut self, value: NodeView) {
        if let Some(wide) = &mut self.wide {
            wide.learn_value(value);
        }
    }

    /// Counts votes; those about a view that is not known here wait for it.
    fn count_votes(&mut self, cx: &mut Context, now: Time, mut votes: Vec<(Ayes, Ranks)>) {
        let about = self.view.primary_id();
        let Some(wide) = &mut self.wide else { return };
        votes.extend(std::mem::take(&mut wide.waiting));
        for (what, by) in votes {
            if self.is_over(cx, about) {
                return;
            }
            let Some(wide) = &mut self.wide else { return };
            let accepted = match what {
                Ayes::Promise {
                    accepted: Some(value),
                    ..
                } => match wide.values.get(&value) {
                    Some(value) => Some(value.clone()),
                    None => {
                        if wide.waiting.len() < MAX_WAITING || wide.waiting.contains_key(&what) {
                            wide.waiting.entry(what).or_default().merge(&by);
                        }
                        continue;
                    }
                },
                _ => None,
            };
            let members = &self.view.members;
            let voters: Vec<Incarnation> = by
                .iter()
                .filter_map(|rank| members.get(rank))
                .map(|member| member.incarnation)
                .collect();
            if !self.leaving.is_departing() {
                self.with_engine(cx, now, |engine, around| {
                    engine.count(around, what, &voters, accepted.as_deref());
                });
            }
        }
    }

    /// What a member says of itself, by a rumour.
    pub(crate) fn heard_of(
        &mut self,
        cx: &mut Context,
        now: Time,
        of: Incarnation,
        (primary, leaving, wire_level): (bool, bool, u8),
        suspicions: &[Suspicion],
    ) {
        let view = self.view.primary_id();
        let known = self.reports.get(&of).copied();
        let leaving = leaving || known.is_some_and(|report| report.leaving);
        self.reports.insert(
            of,
            Report {
                round: known.map_or(0, |report| report.round),
                view,
                primary,
                leaving,
                wire_level,
            },
        );
        // Only of those whom it observes can it know anything, but for what its groups find.
        let rank = self.view.rank(of);
        let observes = |subject: Incarnation| {
            let subject = self.view.rank(subject).unwrap_or(usize::MAX);
            let mut observers = self.rings.observers(subject).iter();
            observers.any(|by| Some(usize::from(*by)) == rank)
        };
        let edges: Vec<Suspicion> = suspicions
            .iter()
            .filter(|suspicion| suspicion.evidence == Evidence::FlushStalled || observes(suspicion.member))
            .cloned()
            .collect();
        cx.detector.told(now, of, &edges);
    }

    /// Neighbours that wait to leave stay until theirs know that they have left.
    pub(crate) fn confirm_to_leavers(&self, cx: &mut Context, next: &NodeView) {
        let Some(wide) = &self.wide else { return };
        let (lineage, view) = (next.lineage, next.primary_id());
        let leaves = |member: &&Incarnation| self.reports.get(member).is_some_and(|report| report.leaving);
        for leaver in wide.neighbours.iter().filter(leaves) {
            cx.send(*leaver, MembershipMessage::Confirm { lineage, view });
        }
    }

    /// Of whom this node has word, by rank; `None` while nobody doubts anybody, or in a narrow view. It hears its subjects, or doubts
    /// them; of these it knows what they hear, and so on. Cut off, alone or with a part of the view, it hears nothing of what the others
    /// have found, and without this it would believe for ever that the view goes on as it was.
    ///
    /// If they are too few to decide anything, those of them who have word of this node as well: some hear it, others hear these, and
    /// so on. All who are connected so find the same, and gather with nobody who does not hear them.
    ///
    /// Of one whose observers are all lost nobody has word, and that is not its fault. Nor is a node cut off whose own losses are those that the
    /// others have found as well: it would not know of that. It needs no word of those of whom nobody has said anything.
    pub(crate) fn hear_of_others(&self, cx: &Context) -> Option<Vec<bool>> {
        if self.wide.is_none() || !cx.detector.has_doubts() || planted!(CutOffBelieves) {
            return None;
        }
        let members = &self.view.members;
        let me = self.view.rank(cx.me)?;
        let mut down: Vec<(usize, usize)> = Vec::new();
        for (by, member) in members.iter().enumerate() {
            let doubts = cx.detector.doubted_by(member.incarnation).into_iter();
            down.extend(doubts.filter_map(|subject| Some((by, self.view.rank(subject)?))));
        }
        down.sort_unstable();
        let hears = |by: usize, subject: usize| down.binary_search(&(by, subject)).is_err();
        let mut lost = vec![false; members.len()];
        for rank in self
            .engine
            .lost()
            .into_iter()
            .filter_map(|lost| self.view.rank(lost))
        {
            lost[rank] = true;
        }
        if down.iter().all(|(by, subject)| *by != me || lost[*subject]) {
            let is_heard = |rank: usize| {
                let mut observers = self.rings.observers(rank).iter().map(|by| usize::from(*by));
                observers.any(|by| !lost[by] && hears(by, rank))
            };
            let stays = |rank: usize| rank == me || !lost[rank] || is_heard(rank);
            return Some((0..members.len()).map(stays).collect());
        }
        let mut heard_of = vec![false; members.len()];
        heard_of[me] = true;
        let mut ask = vec![me];
        while !ask.is_empty() {
            while let Some(by) = ask.pop() {
                for subject in self.rings.subjects(by) {
                    if !heard_of[subject] && hears(by, subject) {
                        heard_of[subject] = true;
                        ask.push(subject);
                    }
                }
            }
            for rank in 0..members.len() {
                let is_gone = |rank: usize| !heard_of[rank] && lost[rank];
                let mut observers = self.rings.observers(rank).iter();
                let excused = !heard_of[rank] && !lost[rank] && observers.all(|by| is_gone(usize::from(*by)));
                if excused {
                    heard_of[rank] = true;
                    ask.push(rank);
                }
            }
        }
        let heard = members.iter().zip(&heard_of).filter(|(_, heard_of)| **heard_of);
        if self
            .engine
            .could_decide(&heard.map(|(member, _)| member.incarnation).collect())
        {
            return Some(heard_of);
        }
        let mut connected = vec![false; members.len()];
        connected[me] = true;
        let mut tell = vec![me];
        while let Some(subject) = tell.pop() {
            for by in self.rings.observers(subject).iter().map(|by| usize::from(*by)) {
                if heard_of[by] && !connected[by] && hears(by, subject) {
                    connected[by] = true;
                    tell.push(by);
                }
            }
        }
        Some(connected)
    }

    /// Sends the rumours that are due, or with `hurry` all for those that are told at once.
    pub(crate) fn tell_rumours(&mut self, cx: &mut Context, now: Time, hurry: bool) {
        let (lineage, view) = (self.view.lineage, self.view.primary_id());
        let Some(wide) = &mut self.wide else { return };
        for (to, rumours) in wide.rumours.poll(now, hurry, &cx.crowded) {
            let message = MembershipMessage::Rumours {
                lineage,
                view,
                rumours,
            };
            cx.send(to, message);
        }
    }

    /// The decision is told in the view that made it, before that is left.
    pub(crate) fn tell_decision(&mut self, cx: &mut Context, now: Time, next: &NodeView) {
        if let Some(wide) = &mut self.wide {
            let value = next.digest();
            wide.rumours.take(now, None, Rumour::Decided { value });
        }
        self.tell_rumours(cx, now, true);
    }

    /// Who joined learns it from one of its observers that was there before.
    pub(crate) fn receive_joiners(&self, cx: &mut Context, view: &Arc<NodeView>, rings: &Rings) {
        let Some(me) = view.rank(cx.me) else { return };
        let old = view.members.len() - view.joined.len();
        if me >= old {
            return;
        }
        for joiner in old..view.members.len() {
            let first = rings
                .observers(joiner)
                .iter()
                .map(|by| usize::from(*by))
                .find(|by| *by < old);
            if first.unwrap_or(0) == me {
                let member = &view.members[joiner];
                cx.know_peer(member.incarnation, member.addr);
                cx.send(
                    member.incarnation,
                    MembershipMessage::Decide(Box::new((**view).clone())),
                );
            }
        }
    }
}
