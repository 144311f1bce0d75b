//! After each input: which members are reachable, which one proposes, and what this node does about it.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::Incarnation;
use antiphon_wire::membership::LifelineRecord;

use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::{EngineEffect, Surroundings};
use crate::membership::context::Context;
use crate::membership::seat::Seat;
use crate::membership::view::check;
use crate::{BallotStep, EngineKind, Time};

impl Seat {
    /// Members that this node does not doubt, itself included.
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

    /// The members that a majority of the weight doubts. Only the doubts of members count that this node
    /// hears, and that have a say.
    fn doubted(
        &self,
        cx: &Context,
        reachable: &BTreeSet<Incarnation>,
        has_a_say: impl Fn(Incarnation) -> bool,
    ) -> BTreeSet<Incarnation> {
        let mut against: BTreeMap<Incarnation, u64> = BTreeMap::new();
        // This is asked all the time, and nearly always no member doubts another.
        if !cx.detector.has_doubts() {
            return BTreeSet::new();
        }
        for accuser in &self.installed.view.members {
            if reachable.contains(&accuser.incarnation) && has_a_say(accuser.incarnation) {
                for accused in cx.detector.doubted_by(accuser.incarnation) {
                    *against.entry(accused).or_default() += u64::from(accuser.weight);
                }
            }
        }
        let total: u64 = self
            .installed
            .view
            .members
            .iter()
            .map(|member| u64::from(member.weight))
            .sum();
        against
            .into_iter()
            .filter(|(accused, against)| self.installed.rings.contains(*accused) && against * 2 > total)
            .map(|(accused, _)| accused)
            .collect()
    }

    /// Members that a majority does not hear. A member that hears one of them does not object to its removal.
    /// A member that a majority doubts has no say itself. Where hardly any member hears another, as in a star
    /// of links, paths are broken, not processes. The hub hears all, and must not remove all the others on
    /// their word; there, pairs are broken instead. The members that their observers have lost count as
    /// outvoted as well: in a wide view no other member knows.
    pub(crate) fn outvoted(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        if !self.installed.topology.hears_all() {
            return self.lost(reachable);
        }
        let doubted = self.doubted(cx, reachable, |_| true);
        let mut outvoted = if doubted.is_empty() {
            doubted
        } else {
            self.doubted(cx, reachable, |accuser| !doubted.contains(&accuser))
        };
        outvoted.append(&mut self.lost(reachable));
        outvoted
    }

    /// Members that their observers have lost beyond doubt, or that are deaf, if this node is primary and the
    /// members left could decide without them. One half does not remove the other because paths between them
    /// are bad, and what members said during a partition is old.
    fn lost(&self, reachable: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        let mut lost: BTreeSet<Incarnation> = self.installed.engine.certain().into_iter().collect();
        lost.extend(&self.deaf);
        if !lost.is_empty() {
            let left: BTreeSet<Incarnation> = reachable.difference(&lost).copied().collect();
            if !self.is_primary() || !self.installed.engine.could_decide(&left) {
                lost.clear();
            }
        }
        lost
    }

    /// The member that should propose, as far as this node can tell. It is not a member that a majority
    /// cannot hear, for whatever reason, nor one that its observers have lost.
    pub(crate) fn coordinator(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> Incarnation {
        let mut doubted: BTreeSet<Incarnation> = if self.installed.topology.hears_all() {
            self.doubted(cx, reachable, |_| true)
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

    /// Draws the consequences of whatever has changed.
    pub(crate) fn evaluate(&mut self, cx: &mut Context, now: Time) {
        if cx.fate.is_some() || self.tend_departure(cx, now) {
            return;
        }
        // To weigh a thousand members takes a while, so inputs that come together are weighed together.
        let next = self
            .installed
            .topology
            .weighs_again(self.installed.weighed, cx.config.profile.batch);
        if now < next {
            let sooner = self.installed.weigh.filter(|at| *at > now && *at < next);
            self.installed.weigh = Some(sooner.unwrap_or(next));
            return;
        }
        self.installed.weigh = None;
        if !self.installed.topology.hears_all() {
            self.installed.weighed = now;
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
        self.deaf = self.deaf_by_their_word(cx, now, &reachable);
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
        let change = leads.then(|| self.proposed_change(cx, now, &reachable));
        let mut change = change.flatten();
        if leads && !self.joiners.is_empty() {
            self.joiners.probe(cx, now);
        }
        let view = self.installed.view.primary_id();
        if let Some(until) = self.joiners.wait(cx, now, view, change.as_ref()) {
            self.installed.weigh = Some(self.installed.weigh.map_or(until, |at| at.min(until)));
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
        let (lease, rings, view) = (&self.lease, &self.installed.rings, &self.installed.view);
        let by_observers = !self.installed.topology.hears_all();
        let observers = |member| {
            rings
                .observers_in(view, member)
                .filter(|_| by_observers)
                .collect()
        };
        let held = |member| lease.holds(now, member, rings.rank(member));
        let counts_dead_from = lease.counts_dead_from().filter(|from| now < *from);
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
                counts_dead_from,
                primary,
            },
        );
        let slot = check::slot_after(&self.installed.view);
        while let Some(effect) = self.installed.engine.poll_effect() {
            match effect {
                // R2: the vote is on the lifelines before any message carries it.
                EngineEffect::Voted => {
                    // R10: the witness is told first, so that it has what any lifeline shows, or nothing.
                    if !planted!(TestamentOfTheInstall) {
                        self.leave_testament(cx);
                    }
                    cx.write_lifelines(&LifelineRecord::Vote(self.installed.engine.vote_state()));
                    self.installed.shown = self.installed.engine.slot().vote().ballots();
                }
                EngineEffect::Send { to, message } => {
                    self.assert_shown(&message);
                    self.reply(cx, now, to, message);
                }
                EngineEffect::Broadcast { joiners, message } => {
                    self.assert_shown(&message);
                    self.spread(cx, now, &joiners, message);
                }
                EngineEffect::Withhold { from } => self.lease.withhold(now, &from),
                EngineEffect::Accepted { ballot, view } => {
                    self.assert_nobody_believes(cx, now, ballot, &view);
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
