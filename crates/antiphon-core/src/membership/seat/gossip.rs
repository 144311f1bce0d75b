//! What a member of a wide view does with the rumours that it is told, and of which members it has word by
//! them.

use std::sync::Arc;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{Ayes, Change, Rumour, SlotMessage, Suspicion};
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewDigest, ViewId};

use crate::Time;
use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::Surroundings;
use crate::membership::context::Context;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::reachability::{Basis, Word};
use crate::membership::monitor::report::Report;
use crate::membership::monitor::topology::Early;
use crate::membership::seat::Seat;
use crate::membership::view::check;

/// Votes about at most so many unknown views wait until these views are known.
const MAX_WAITING: usize = 256;
/// Of the members that have voted about so many are noted, spread over all ranks: this node hears some of
/// them.
const VOTERS_NOTED: usize = 16;
/// Rumours of the next view that are kept until it is installed, in bytes.
const MAX_EARLY_BYTES: usize = 4 << 20;
/// About what a message takes besides its rumours: a message without rumours is not free.
const EARLY_MESSAGE_BYTES: usize = 64;
/// No member has more edges than this.
const MAX_EDGES: usize = 256;

impl Seat {
    /// Rumours from a member.
    pub(crate) fn handle_rumours(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        view: ViewId,
        rumours: Vec<Rumour>,
    ) {
        if view > self.installed.view.primary_id() {
            if view == check::next_id(self.installed.view.primary_id()) {
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

    /// Handles the rumours that came before the view that they are about.
    pub(crate) fn hear_early(&mut self, cx: &mut Context, now: Time) {
        if self.early.view > Some(self.installed.view.primary_id()) {
            return;
        }
        let early = std::mem::take(&mut self.early);
        for (sender, rumours) in early.heard {
            if let Some(view) = early.view {
                self.hear(cx, now, sender, view, rumours);
            }
        }
    }

    /// Whether a rumour is about members of this view, makes sense, and is no larger than any that a member
    /// would tell. A rumour that is taken is passed on, and one larger than a link carries would break the
    /// link.
    fn is_sound(&self, rumour: &Rumour) -> bool {
        let most = self.installed.view.members.len();
        match rumour {
            Rumour::Opinion { of, suspicions, .. } => {
                self.installed.rings.contains(*of) && suspicions.len() <= MAX_EDGES
            }
            Rumour::Ask { by, change } => self.installed.rings.contains(*by) && check::change_fits(change),
            Rumour::Prepare {
                ballot,
                proofs,
                removing,
            } => {
                ballot.round > 0
                    && self.installed.rings.contains(ballot.proposer)
                    && proofs.len() <= most
                    && removing.len() <= most
            }
            Rumour::Accept {
                ballot,
                change,
                proofs,
            } => {
                ballot.round > 0
                    && self.installed.rings.contains(ballot.proposer)
                    && proofs.len() <= most
                    && check::change_fits(change)
            }
            Rumour::Certificate(certificate) => {
                self.installed.rings.contains(certificate.dead)
                    && check::vote_is_sound(&certificate.vote)
                    && check::certificate_fits(certificate)
            }
            Rumour::Tally { what, .. } => match what {
                Ayes::Cast { .. } => true,
                Ayes::Accepted { ballot } => {
                    ballot.round > 0 && self.installed.rings.contains(ballot.proposer)
                }
                Ayes::Promise {
                    ballot,
                    accepted_in,
                    accepted,
                } => {
                    ballot.round > 0
                        && self.installed.rings.contains(ballot.proposer)
                        && accepted_in.is_some() == accepted.is_some()
                        && *accepted_in < Some(*ballot)
                }
            },
            Rumour::Value(change) => check::change_fits(change),
            Rumour::Decided { .. } => true,
        }
    }

    /// Rumours about a view count only as long as it is the installed one, and each of them may end it.
    /// Ranks, ballots and versions begin anew in the next view: a vote that was counted there would be one
    /// that no member has cast (R1).
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
                // Not passed on: a member that is told could ask this node for the unknown view only after it
                // is installed here. The sender has installed it.
                self.pull(cx, now, sender);
                continue;
            }
            let Some(gossip) = self.installed.topology.gossip_mut() else {
                return;
            };
            let Some(news) = gossip.rumours.take(now, Some(sender), rumour) else {
                continue;
            };
            match news {
                Rumour::Tally { what, by } => {
                    let by = Ranks::from_wire(by);
                    if !matches!(what, Ayes::Promise { .. }) {
                        let every = by.len().div_ceil(VOTERS_NOTED).max(1);
                        let voters = by.iter().step_by(every);
                        for voter in voters.filter_map(|rank| self.installed.view.members.get(rank)) {
                            self.lease.has_a_vote(now, voter.incarnation);
                        }
                    }
                    votes.push((what, by));
                }
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
                    if let Some(value) = self.know_value(*change) {
                        self.hand(cx, now, by, |engine, around| engine.asked(around, by, value));
                    }
                }
                Rumour::Accept {
                    ballot,
                    change,
                    proofs,
                } => {
                    if let Some(value) = self.know_value(*change) {
                        self.hand(cx, now, ballot.proposer, |engine, around| {
                            engine.proposed(around, ballot, value, &proofs);
                        });
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
                    self.hand(cx, now, ballot.proposer, |engine, around| {
                        engine.handle(around, ballot.proposer, message);
                    });
                }
                Rumour::Value(change) => {
                    self.know_value(*change);
                }
                Rumour::Certificate(certificate) => {
                    self.certify(cx, now, certificate.dead, certificate.vote, false);
                }
                Rumour::Decided { value } => {
                    if let Some(next) = self.known_value(value) {
                        self.follow(cx, now, next);
                    }
                }
            }
        }
        if !self.is_over(cx, about) {
            self.count_votes(cx, now, votes);
        }
    }

    fn is_over(&self, cx: &Context, view: ViewId) -> bool {
        self.installed.view.primary_id() != view || cx.fate.is_some()
    }

    fn hand(
        &mut self,
        cx: &mut Context,
        now: Time,
        from: Incarnation,
        action: impl FnOnce(&mut Engine, &mut Surroundings<'_>),
    ) {
        if self.installed.rings.contains(from) && from != cx.me && !self.leaving.is_departing() {
            self.with_engine(cx, now, action);
        }
    }

    /// The view with this digest, if votes may be for it.
    fn known_value(&self, digest: ViewDigest) -> Option<Arc<NodeView>> {
        let shown = self
            .installed
            .topology
            .gossip()
            .and_then(|gossip| gossip.values.get(&digest));
        shown.or_else(|| self.installed.engine.value(digest)).cloned()
    }

    /// Notes a view that votes may be about; `None` if it cannot follow this one. Each view that is known by
    /// its digest was checked here.
    fn know_value(&mut self, change: Change) -> Option<Arc<NodeView>> {
        let value = Arc::new(check::apply(&self.installed.view, change)?);
        if let Some(gossip) = self.installed.topology.gossip_mut() {
            gossip.learn_value(value.clone());
        }
        Some(value)
    }

    /// Counts votes. Votes about a view that is not known here wait for it.
    fn count_votes(&mut self, cx: &mut Context, now: Time, mut votes: Vec<(Ayes, Ranks)>) {
        let about = self.installed.view.primary_id();
        let Some(gossip) = self.installed.topology.gossip_mut() else {
            return;
        };
        votes.extend(std::mem::take(&mut gossip.waiting));
        for (what, by) in votes {
            if self.is_over(cx, about) {
                return;
            }
            let Some(gossip) = self.installed.topology.gossip_mut() else {
                return;
            };
            let accepted = match what {
                Ayes::Promise {
                    accepted: Some(value),
                    ..
                } => match gossip.values.get(&value) {
                    Some(value) => Some(value.clone()),
                    None => {
                        if gossip.waiting.len() < MAX_WAITING || gossip.waiting.contains_key(&what) {
                            gossip.waiting.entry(what).or_default().merge(&by);
                        }
                        continue;
                    }
                },
                _ => None,
            };
            let members = &self.installed.view.members;
            let voters: Vec<Incarnation> = by
                .iter()
                .filter_map(|rank| members.get(rank))
                .map(|member| member.incarnation)
                .collect();
            if !self.leaving.is_departing() {
                self.with_engine(cx, now, |engine, around| {
                    engine.count(around, what, &voters, accepted.as_ref());
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
        let view = self.installed.view.primary_id();
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
        let edges = self.edges_of(of, suspicions);
        cx.detector.told(now, of, &edges);
    }

    /// The suspicions that a member can have by itself: it knows only of the members that it observes, and of
    /// what its groups find.
    fn edges_of(&self, of: Incarnation, suspicions: &[Suspicion]) -> Vec<Suspicion> {
        let suspicions = suspicions.iter();
        let known = suspicions.filter(|suspicion| {
            suspicion.evidence == Evidence::FlushStalled || self.observes(of, suspicion.member)
        });
        known.cloned().collect()
    }

    /// Takes what a heartbeat says of others. True if that changed which members its sender accuses.
    ///
    /// In a wide view this counts for nothing: few members hear the heartbeat, and all must go by the same. A
    /// member says its opinion by a rumour, which reaches all members, or is told again to a member that
    /// lacks it. A heartbeat may have been sent before that rumour, and be held up. If no other heartbeat
    /// came, nothing would take back what it says.
    pub(crate) fn hear_opinion(
        &self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        suspicions: &[Suspicion],
    ) -> bool {
        self.installed.topology.hears_all() && cx.detector.told(now, sender, suspicions)
    }

    /// Finds of which members this node has word; `None` while nobody doubts anybody, or in a narrow view.
    /// The node hears its subjects, or doubts them. From the subjects that it hears it knows which members
    /// these hear, and so on. A node that is cut off, alone or with a part of the view, hears nothing of what
    /// the others have found. Without this check it would believe for ever that the view goes on as it was.
    ///
    /// If these members are too few to decide anything, only those count that have word of this node as well:
    /// some hear it, others hear these, and so on. All members that are connected in this way find the same
    /// set, and gather with no member that does not hear them.
    ///
    /// There are two exceptions. No member has word of a member whose observers are all lost, and that is not
    /// its fault. And a node is not cut off if its own losses are losses that the others have found as well:
    /// cut off, it would not know of that. Such a node needs no word of members of which nobody has said
    /// anything. But the exceptions do not make these members heard
    /// ([`misses`](crate::membership::monitor::reachability::Word::misses)).
    pub(crate) fn hear_of_others(&mut self, cx: &Context) {
        let Some(gossip) = self.installed.topology.gossip_mut() else {
            return;
        };
        let me = self.installed.rings.rank(cx.me);
        let Some(me) = me.filter(|_| cx.detector.has_doubts() && !planted!(CutOffBelieves)) else {
            gossip.heard_of = None;
            return;
        };
        let rank = |member| self.installed.rings.rank(member);
        let doubts = cx.detector.doubting();
        let mut down: Vec<(usize, usize)> = doubts
            .filter_map(|(by, subject)| rank(by).zip(rank(subject)))
            .collect();
        down.sort_unstable();
        let basis = Basis {
            down,
            lost: self
                .installed
                .engine
                .lost()
                .into_iter()
                .filter_map(rank)
                .collect(),
            proven: self.installed.engine.slot().certificates().len(),
        };
        // This is asked all the time while any member doubts another, and what they say of each other changes
        // seldom.
        let same = |word: &Word| word.basis.as_ref() == Some(&basis);
        if !gossip.heard_of.as_ref().is_some_and(same) {
            let (engine, members) = (&self.installed.engine, &self.installed.view.members);
            let is_proven = |rank: usize| engine.is_certified(members[rank].incarnation);
            let could_decide = |heard_of: &[bool]| {
                let heard = members.iter().zip(heard_of).filter(|(_, heard_of)| **heard_of);
                engine.could_decide(&heard.map(|(member, _)| member.incarnation).collect())
            };
            gossip.heard_of = Some(Word::by(
                &self.installed.rings,
                me,
                basis,
                is_proven,
                could_decide,
            ));
        }
    }
}
