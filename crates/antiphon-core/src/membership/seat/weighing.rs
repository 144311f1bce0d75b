//! After each input: which members are reachable, which one proposes, and what this node does about it.

use std::collections::BTreeSet;

use antiphon_wire::Incarnation;

use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::{EngineEffect, Surroundings};
use crate::membership::context::Context;
use crate::membership::monitor::doubts;
use crate::membership::seat::Seat;
use crate::membership::seat::installed::Installed;
use crate::membership::view::check;
use crate::{BallotStep, EngineKind, Time};

impl Seat {
    /// This node, and the members that it does not doubt, whose death is not proven, and of which, on rings,
    /// there is word.
    pub(crate) fn reachable(&self, cx: &Context) -> BTreeSet<Incarnation> {
        let certified = self.installed.engine.certified();
        let is_reachable = |(member, rank): (Incarnation, usize)| {
            let by_rings = || self.installed.topology.has_word_of(rank);
            let known = self.installed.reconnect.answers(member).unwrap_or_else(by_rings);
            let heard = !cx.detector.suspects(member) && !certified.contains(&member);
            (heard && known) || member == cx.me
        };
        // The members come in the order of the set, so it is built soonest.
        let reachable = self
            .installed
            .rings
            .members()
            .filter(|member| is_reachable(*member));
        reachable.map(|(member, _)| member).collect()
    }

    /// Members that a majority does not hear, or that their observers have lost: in a wide view no other
    /// member knows.
    pub(crate) fn outvoted(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        let mut outvoted = self.lost(reachable);
        if self.installed.topology.hears_all() {
            let Installed { view, rings, .. } = &self.installed;
            let is_heard = |member| reachable.contains(&member);
            outvoted.append(&mut doubts::outvoted(view, rings, &cx.detector, is_heard));
        }
        outvoted
    }

    /// Members that their observers have lost beyond doubt, or that are deaf, if this node is primary and the
    /// members left could decide without them. One half does not remove the other because paths between them
    /// are bad, and what members said during a partition is old.
    fn lost(&self, reachable: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        let mut lost: BTreeSet<Incarnation> = self.installed.engine.certain().into_iter().collect();
        lost.extend(self.deaf.members());
        if !lost.is_empty() {
            let left: BTreeSet<Incarnation> = reachable.difference(&lost).copied().collect();
            if !self.is_primary() || !self.installed.engine.could_decide(&left) {
                lost.clear();
            }
        }
        lost
    }

    /// The member that should propose, as far as this node can tell. It is not a member that a majority
    /// cannot hear, for whatever reason, or on rings one that is about to be in the cut; nor one that its
    /// observers have lost.
    pub(crate) fn coordinator(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> Incarnation {
        let mut doubted: BTreeSet<Incarnation> = if self.installed.topology.hears_all() {
            let Installed { view, rings, .. } = &self.installed;
            doubts::doubted(view, rings, &cx.detector, |member| reachable.contains(&member))
        } else {
            self.installed.engine.unstable().into_iter().collect()
        };
        doubted.append(&mut self.lost(reachable));
        self.installed
            .view
            .members
            .iter()
            .map(|member| member.incarnation)
            .find(|member| reachable.contains(member) && !doubted.contains(member))
            .unwrap_or(cx.me)
    }

    /// Whether these members could decide the next view, and this node is not blocked.
    pub(crate) fn has_quorum(&mut self, cx: &Context, now: Time, reachable: &BTreeSet<Incarnation>) -> bool {
        let Installed {
            engine, standstill, ..
        } = &mut self.installed;
        let concludes = engine.could_conclude(reachable);
        !standstill.look(now, concludes, cx.config.profile.unreachable_after)
            && engine.could_decide(reachable)
    }

    /// Draws the consequences of whatever has changed.
    pub(crate) fn evaluate(&mut self, cx: &mut Context, now: Time) {
        if cx.fate.is_some() || self.tend_departure(cx, now) {
            return;
        }
        if !self.installed.weighing.begin(now) {
            return;
        }
        if !self.installed.topology.hears_all() {
            self.hear_of_others(cx);
            self.look_beyond(cx, now);
        }
        let mut reachable = self.reachable(cx);
        if cx.config.engine == EngineKind::Cut {
            self.with_engine_hearing(cx, now, &reachable, |engine, around| engine.look(around));
        }
        // Reinforcement: if some observers report a member, the others look at it again.
        let mut news = false;
        for member in self.installed.engine.unstable() {
            news |= cx.detector.reinforce(now, member);
        }
        if news {
            self.beat(cx, now);
            reachable = self.reachable(cx);
            self.with_engine_hearing(cx, now, &reachable, |engine, around| engine.look(around));
        }
        if cx.config.engine == EngineKind::Coordinator {
            let (view, engine) = (&self.installed.view, &self.installed.engine);
            let is_heard = |member: Incarnation| member != cx.me && reachable.contains(&member);
            let knows = |by, other| self.reports.knows(&cx.history, view.lineage, cx.me, (by, other));
            let may_ignore = |by, other| engine.is_certified(other) || !knows(by, other);
            let beats = (now, cx.config.profile.heartbeat);
            self.deaf.look(beats, &cx.detector, view, is_heard, may_ignore);
        }
        let coordinator = self.coordinator(cx, &reachable);
        self.installed.leader = Some(coordinator);
        let quorum = self.has_quorum(cx, now, &reachable);
        self.installed.quorum = quorum;
        if quorum {
            self.merging.hears_quorum();
        }
        // In a wide view this node's opinion says it to all.
        if self.installed.topology.tells_all() {
            self.leaving.ask(cx, coordinator);
        }
        let leads = coordinator == cx.me && self.installed.engine.could_decide(&reachable);
        let mut change = leads.then(|| self.proposed_change(cx, now, &reachable)).flatten();
        if leads {
            self.joiners.probe(cx, now);
        }
        if let Some(until) = self.joiners.wait(cx, now, change.as_ref()) {
            self.installed.weighing.by(until);
            change = None;
        }
        self.with_engine_hearing(cx, now, &reachable, |engine, around| {
            engine.pursue(around, change)
        });
        self.tend_component(cx, now, quorum, coordinator);
    }

    /// Lets the engine act, and performs what it wants.
    pub(crate) fn with_engine(
        &mut self,
        cx: &mut Context,
        now: Time,
        action: impl FnOnce(&mut Engine, &mut Surroundings<'_>),
    ) {
        let reachable = self.reachable(cx);
        self.with_engine_hearing(cx, now, &reachable, action);
    }

    /// The same, where the reachable members were just found: in a large view that takes a while.
    fn with_engine_hearing(
        &mut self,
        cx: &mut Context,
        now: Time,
        reachable: &BTreeSet<Incarnation>,
        action: impl FnOnce(&mut Engine, &mut Surroundings<'_>),
    ) {
        let outvoted = self.outvoted(cx, reachable);
        let primary = self.is_primary();
        let Context { random, detector, .. } = cx;
        let objects = |member| detector.hears_well(now, member) && !outvoted.contains(&member);
        let suspects = detector.lost_to_anyone();
        let edge_down_since = |observer, subject| detector.edge_down_since(observer, subject);
        let (rings, view) = (&self.installed.rings, &self.installed.view);
        let by_observers = !self.installed.topology.hears_all();
        let observers = |member| {
            rings
                .observers_in(view, member)
                .filter(|_| by_observers)
                .collect()
        };
        let held = |member| self.lease.holds(now, member);
        action(
            &mut self.installed.engine,
            &mut Surroundings {
                now,
                random,
                objects: &objects,
                reachable,
                suspects: &suspects,
                edge_down_since: &edge_down_since,
                observers: &observers,
                held: &held,
                counts_dead_from: self.lease.counts_dead_from(now),
                primary,
            },
        );
        let slot = check::slot_after(&self.installed.view);
        while let Some(effect) = self.installed.engine.poll_effect() {
            match effect {
                // R2: the vote is on the lifelines before any message carries it.
                EngineEffect::Voted => {
                    // R10: the witness is told first, so that it has what any lifeline shows, or nothing.
                    if !planted!(LastVoteOfTheInstall) {
                        self.leave_last_vote(cx);
                    }
                    let shown = cx.lifelines.vote(self.installed.engine.vote_state());
                    cx.lifeline_commands(shown);
                }
                EngineEffect::Send { to, message } => {
                    cx.lifelines
                        .assert_show(self.installed.engine.slot().vote().ballots(), &message);
                    self.reply(cx, now, to, message);
                }
                EngineEffect::Broadcast { joiners, message } => {
                    cx.lifelines
                        .assert_show(self.installed.engine.slot().vote().ballots(), &message);
                    self.spread(cx, now, &joiners, message);
                }
                EngineEffect::Withhold { from } => self.lease.withhold(now, &from),
                EngineEffect::Release { members } => self.lease.release(&members),
                EngineEffect::Accepted { ballot, view } => {
                    self.lease
                        .assert_none_believes(now, &self.installed.engine, ballot, &view);
                    self.lease.vote(now, view.contains(cx.me));
                    cx.trail(slot, Some(ballot), || view, BallotStep::Accepted);
                }
                EngineEffect::Decided {
                    ballot,
                    dead,
                    view,
                    announce,
                } => {
                    cx.trail(slot, Some(ballot), || view.clone(), BallotStep::Decided { dead });
                    if announce {
                        self.announce(cx, now, view);
                    } else {
                        self.follow(cx, now, view);
                    }
                    return;
                }
            }
        }
    }
}
