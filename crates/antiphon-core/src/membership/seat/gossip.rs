//! What a member of a wide view does with the rumours that it is told, and of which members it has word by
//! them.

use std::sync::Arc;

use antiphon_wire::membership::{Ayes, Rumour, SlotMessage};
use antiphon_wire::{Incarnation, NodeView, ViewDigest, ViewId};

use crate::Time;
use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::Surroundings;
use crate::membership::context::Context;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::monitor::reachability::Basis;
use crate::membership::monitor::report::Report;
use crate::membership::monitor::rumour::{is_sound, own_suspicions};
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::membership::view::check;

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
        let installed = self.installed.view.primary_id();
        if view <= installed {
            return self.hear(cx, now, sender, view, rumours);
        }
        if view == check::next_id(installed) {
            self.early.keep(view, sender, rumours);
        }
        self.pull_soon(cx, now, sender);
    }

    /// Handles the rumours that came before the view that they are about.
    pub(crate) fn hear_early(&mut self, cx: &mut Context, now: Time) {
        let installed = self.installed.view.primary_id();
        for (sender, rumours) in self.early.take(installed) {
            self.hear(cx, now, sender, installed, rumours);
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
            if !is_sound(&rumour, &self.installed.view, &self.installed.rings) {
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
            let Installed { view, topology, .. } = &mut self.installed;
            let Some(gossip) = topology.gossip_mut() else {
                return;
            };
            let Some(news) = gossip.rumours.take(now, Some(sender), rumour) else {
                continue;
            };
            match news {
                Rumour::Tally { what, by } => {
                    let by = Ranks::from_wire(by);
                    if !matches!(what, Ayes::Promise { .. }) {
                        self.lease.have_voted(now, &by);
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
                } => {
                    let said = Report {
                        round: 0,
                        view: about,
                        primary,
                        leaving,
                        wire_level,
                    };
                    self.reports.hear_rumour(of, said);
                    let edges = own_suspicions(&self.installed.rings, of, &suspicions);
                    cx.detector.told(now, of, &edges);
                }
                Rumour::Ask { by, change } => {
                    if let Some(value) = gossip.values.learn_change(view, *change) {
                        self.hand(cx, now, by, |engine, around| engine.asked(around, by, value));
                    }
                }
                Rumour::Accept {
                    ballot,
                    change,
                    proofs,
                } => {
                    if let Some(value) = gossip.values.learn_change(view, *change) {
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
                    gossip.values.learn_change(view, *change);
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
        let shown = self.installed.topology.shown(digest);
        shown.or_else(|| self.installed.engine.value(digest)).cloned()
    }

    /// Counts votes. Votes about a view that is not known here wait for it.
    fn count_votes(&mut self, cx: &mut Context, now: Time, mut votes: Vec<(Ayes, Ranks)>) {
        let about = self.installed.view.primary_id();
        let Some(gossip) = self.installed.topology.gossip_mut() else {
            return;
        };
        votes.extend(gossip.values.take_waiting());
        for (what, by) in votes {
            if self.is_over(cx, about) {
                return;
            }
            let Some(gossip) = self.installed.topology.gossip_mut() else {
                return;
            };
            let Some(accepted) = gossip.values.accepted_by(what, &by) else {
                continue;
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

    /// Finds of which members this node has word.
    pub(crate) fn hear_of_others(&mut self, cx: &Context) {
        let Installed {
            view,
            rings,
            topology,
            engine,
            ..
        } = &mut self.installed;
        let Some(gossip) = topology.gossip_mut() else {
            return;
        };
        let rank = |member| rings.rank(member);
        let basis = cx.detector.has_doubts().then(|| {
            let doubts = cx.detector.doubting();
            let mut down: Vec<(usize, usize)> = doubts
                .filter_map(|(by, subject)| rank(by).zip(rank(subject)))
                .collect();
            down.sort_unstable();
            Basis {
                down,
                lost: engine.in_cut().into_iter().filter_map(rank).collect(),
                proven: engine.slot().certificates().len(),
            }
        });
        let is_proven = |rank: usize| engine.is_certified(view.members[rank].incarnation);
        let could_decide = |heard_of: &[bool]| {
            let heard = view
                .members
                .iter()
                .zip(heard_of)
                .filter(|(_, heard_of)| **heard_of);
            engine.could_decide(&heard.map(|(member, _)| member.incarnation).collect())
        };
        gossip.hear_of_others(rings, basis, is_proven, could_decide);
    }
}
