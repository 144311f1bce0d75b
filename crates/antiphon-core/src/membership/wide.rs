//! Large views of the cut engine: what is sent to all elsewhere goes from neighbour to neighbour here.
//!
//! ```text
//!   narrow views (all observe all)            wide views
//!   heartbeats ──► all members                heartbeats ──► one's observers
//!   doubts in every heartbeat                 opinions: rumours, when they change
//!   slot messages to all, answers to one      proposals and tallies: rumours
//!   Decide to all                             everyone counts the votes itself; Decided: a rumour
//! ```
//! Above this file both are the same: the engine gets the same messages in the same order of events, and the
//! detector is told what each accuser says. Below it, [`Rumours`] knows who has what. Here a member speaks;
//! [`hearing`] is what it does with what it is told.
//!
//! # Invariants
//!
//! - A vote becomes a rumour after it is on the lifelines, as it becomes a message elsewhere (R2).
//! - Rumours are about one view, and mean nothing in another. Proofs of death are told again in each.
//! - A promise shows what was accepted, or is none. What stands for a view is its digest; whoever counts a
//!   vote knows the view.
//! - Who is not heard here is lost if its observers say so. Who is not lost is reachable if there is word of
//!   it, and of this node there: from each to its subjects, to theirs, and so on, over edges that are not
//!   down ([`Seat::hear_of_others`]). That it is not known to be lost is not enough, or whoever is cut off,
//!   alone or with some, would go on believing in a view that has long been another.
//!
//! # When participants die
//!
//! - *An observer*: its edges count as down once it is lost itself. What it had told is with its neighbours.
//! - *A neighbour through which a rumour was to come*: there are some twenty; what all ways lost is found by
//!   the sums in heartbeats.
//! - *The leader, with its question or ballot on the way*: it reaches all, or some. Their votes are with
//!   those who count, and the next leader's phase 1 asks all; it is the next once its observers have lost the
//!   old one.
//! - *The observer from which a joiner was to learn of its admission*: the joiner goes on asking, and whoever
//!   has installed the view tells it.
//! - *Joiners*: they acknowledge nothing, unless a ballot must be tried again.
//! - *Whoever installed a view first*: `Decided` is on its way to its neighbours on the tree before it
//!   installs. Who does not know what was decided pulls it from whoever said so, and passes the word on when
//!   it has it too; who was told nothing hears of a later view by heartbeats and pulls it.
//! - *Whoever does not hear, and is heard*: it says so of all it observes, and is removed by its own word,
//!   while it is in the same view. If others went first, with whom it does not go, its observers see it stay
//!   behind ([`Wide::should_be_known`]).
//! - *A partition*: who has a majority goes on, its observers' words being enough; a part without one has
//!   word of itself only, and gathers a non-primary view.
//!
//! What stays between two members: probes of joiners, the decision to those who join (from one of their
//! observers each), views that someone pulls, and all of a component that has lost the primary.

mod hearing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::{Ayes, MembershipMessage, Rumour, SlotMessage, WIRE_LEVEL};
use antiphon_wire::{Cause, Evidence, Incarnation, NodeView, ViewDigest, ViewId};

use super::check;
use super::context::Context;
use super::cut::Rings;
use super::cut::ranks::Ranks;
use super::cut::rumours::Rumours;
use super::seat::Seat;
use super::slot::FAST;
use crate::{EngineKind, Time};

pub(crate) use self::hearing::Word;

/// A member that is in an earlier view after so many times the silence after which it would be suspected does
/// not hear enough.
const PATIENCE_WITH_LATE: u32 = 3;
/// Views that votes may be about; of more, the latest are kept.
const MAX_VALUES: usize = 256;

/// What a member of a wide view keeps for it.
#[derive(Debug)]
pub(crate) struct Wide {
    /// When this node installed the view.
    began: Time,
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
        let mut rumours = Rumours::new(view.members.len(), neighbours.clone(), &branches, interval, now);
        rumours.lags(cx.detector.lag());
        Some(Self {
            began: now,
            neighbours: neighbours.into_iter().collect(),
            rumours,
            said: (0, Said::nothing(view)),
            values: BTreeMap::new(),
            known: VecDeque::new(),
            waiting: BTreeMap::new(),
        })
    }

    /// Whether whoever is in an earlier view has had the time to follow: it is told of this one again and
    /// again, and does not hear that. Its opinions, which are about a view that is over, do not say so.
    pub(crate) fn should_be_known(&self, now: Time, suspect_after: Duration) -> bool {
        now.since(self.began) >= suspect_after * PATIENCE_WITH_LATE && !planted!(WaitForWhoIsBehind)
    }

    pub(crate) fn neighbours(&self) -> impl Iterator<Item = Incarnation> {
        self.neighbours.iter().copied()
    }

    pub(crate) fn is_neighbour(&self, member: Incarnation) -> bool {
        self.neighbours.contains(&member)
    }

    fn learn_value(&mut self, value: Arc<NodeView>) -> ViewDigest {
        let digest = value.digest();
        if self.values.insert(digest, value).is_none() {
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

/// Who observes whom; nobody in particular with the coordinator.
pub(super) fn rings_of(cx: &Context, view: &NodeView) -> Arc<Rings> {
    Arc::new(match cx.config.engine {
        EngineKind::Cut => Rings::new(view, cx.config.rings.max(1)),
        EngineKind::Coordinator => Rings::new(view, 0),
    })
}

/// Whether votes in this view name what changes instead of carrying whole views: where two of these do not
/// fit one record of a lifeline, or not all members are neighbours.
pub(super) fn are_named(cx: &Context, view: &NodeView, rings: &Rings) -> bool {
    let is_large = || check::records_bytes(view) > check::MAX_RECORDS_BYTES;
    cx.config.engine == EngineKind::Cut && (rings.are_wide(view.members.len()) || is_large())
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
                let digest = wide.learn_value(Arc::new(*value));
                wide.rumours.take(now, None, Rumour::Ask { by: me, change });
                self.vote(now, me, Ayes::Cast { value: digest });
                return;
            }
            SlotMessage::Accept {
                ballot,
                value,
                proofs,
            } => {
                // Tried again, it lacks those of the next view that are not in this one; else they
                // acknowledge nothing (see `limit`).
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
                wide.learn_value(Arc::new(*value));
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
            _ if self.wide.is_none() || !self.rings.contains(to) => None,
            // Whoever asked sees by the votes what others cast for.
            SlotMessage::Nack { ballot, .. } if *ballot == FAST => return,
            SlotMessage::Cast { value } => Some(Ayes::Cast { value: *value }),
            SlotMessage::Accepted { ballot } => Some(Ayes::Accepted { ballot: *ballot }),
            SlotMessage::Promise { ballot, accepted } => {
                let mut shown = None;
                if let (Some(accepted), Some(wide)) = (accepted, &mut self.wide) {
                    // A promise that does not show what was accepted would be one of somebody who has
                    // accepted nothing.
                    let Some(value) = check::voted(&self.view, &accepted.value) else {
                        return;
                    };
                    let change = check::change_of(&self.view, &value);
                    wide.rumours.take(now, None, Rumour::Value(Box::new(change)));
                    shown = Some(wide.learn_value(Arc::new(value)));
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
        let rank = self.rings.rank(me);
        if let (Some(wide), Some(rank)) = (&mut self.wide, rank) {
            let by = Ranks::of(rank).into_wire();
            wide.rumours.take(now, None, Rumour::Tally { what, by });
        }
    }

    /// Who observes a member.
    pub(crate) fn observers(&self, member: Incarnation) -> Vec<Incarnation> {
        self.rings.observers_in(&self.view, member).collect()
    }

    /// Whether one member observes another.
    pub(crate) fn observes(&self, by: Incarnation, subject: Incarnation) -> bool {
        let Some(rank) = self.rings.rank(by) else {
            return false;
        };
        let subject = self.rings.rank(subject).unwrap_or(usize::MAX);
        let mut observers = self.rings.observers(subject).iter();
        observers.any(|by| usize::from(*by) == rank)
    }

    /// Whom a member observes.
    pub(crate) fn subjects(&self, member: Incarnation) -> Vec<Incarnation> {
        let rank = self.rings.rank(member).unwrap_or(usize::MAX);
        let members = &self.view.members;
        let subjects = self.rings.subjects(rank);
        subjects
            .filter_map(|of| Some(members.get(of)?.incarnation))
            .collect()
    }

    /// Makes a member reachable that is no neighbour.
    pub(crate) fn reach(&self, cx: &mut Context, member: Incarnation) {
        let rank = self.rings.rank(member).filter(|_| self.wide.is_some());
        if let Some(member) = rank.and_then(|rank| self.view.members.get(rank)) {
            cx.know_peer(member.incarnation, member.addr);
        }
    }

    /// Neighbours that wait to leave stay until theirs know that they have left.
    pub(crate) fn confirm_to_leavers(&self, cx: &mut Context, next: &NodeView) {
        let Some(wide) = &self.wide else { return };
        let (lineage, view) = (next.lineage, next.primary_id());
        // That somebody wants to leave may come by way of its being done.
        let departed = next.departed.iter();
        let left = departed.filter(|departure| departure.cause == Cause::Left);
        let left: BTreeSet<Incarnation> = left.map(|departure| departure.member.incarnation).collect();
        let says = |member: &Incarnation| self.reports.get(member).is_some_and(|report| report.leaving);
        let leaves = |member: &&Incarnation| left.contains(member) || says(member);
        for leaver in wide.neighbours.iter().filter(leaves) {
            cx.send(*leaver, MembershipMessage::Confirm { lineage, view });
        }
    }

    /// Sends the rumours that are due, or with `hurry` all for those that are told at once.
    pub(crate) fn tell_rumours(&mut self, cx: &mut Context, now: Time, hurry: bool) {
        let (lineage, view) = (self.view.lineage, self.view.primary_id());
        let Some(wide) = &mut self.wide else { return };
        wide.rumours.lags(cx.detector.lag());
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
