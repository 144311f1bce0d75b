//! What the coordinator would change: which members should go and why, and which nodes may come.
//!
//! A member goes for one of these reasons: it is proven dead, wants to leave, was started again, or is
//! doubted by a majority or by the coordinator (others may object). Or it and another member have not heard
//! each other for long, while others hear both. Of such a pair the member with more broken pairs goes, or
//! else the junior: a node that hears nobody must not take all the others with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use antiphon_wire::membership::WIRE_LEVEL;
use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, Member};

use crate::membership::agree::interface::ProposedChange;
use crate::membership::context::Context;
use crate::membership::seat::Seat;
use crate::{EngineKind, Time};

impl Seat {
    /// The change that this coordinator would propose; `None` if all is well.
    pub(crate) fn wish(
        &self,
        cx: &Context,
        now: Time,
        reachable: &BTreeSet<Incarnation>,
    ) -> Option<ProposedChange> {
        let members = self.installed.view.members.len();
        let (mut join, join_level, number) =
            self.joiners
                .admissible(&cx.config, now, members, self.installed.named);
        self.limit(cx, reachable, &mut join);
        let outvoted = self.outvoted(cx, reachable);
        let mut causes: BTreeMap<Incarnation, Cause> = BTreeMap::new();
        let mut objectionable = BTreeSet::new();
        let joining: BTreeMap<SocketAddr, &Member> =
            join.iter().map(|joiner| (joiner.addr, joiner)).collect();
        for member in &self.installed.view.members {
            let who = member.incarnation;
            let successor = joining
                .get(&member.addr)
                .filter(|joiner| joiner.name == member.name);
            let leaving = self.reports.get(&who).is_some_and(|report| report.leaving)
                || (who == cx.me && self.leaving.is_wanted());
            // In a wide view this node observes a few members only; what it alone has lost is an edge.
            let doubt = cx
                .detector
                .doubt(cx.me, who)
                .filter(|_| self.installed.topology.hears_all());
            let cause = if self.installed.engine.is_certified(who) {
                Cause::Crashed
            } else if leaving {
                Cause::Left
            } else if let Some(successor) = successor {
                Cause::Superseded {
                    by: successor.incarnation,
                }
            } else if outvoted.contains(&who) {
                Cause::Crashed
            } else if let Some(doubt) = doubt {
                let deaf = doubt.evidence != Evidence::FlushStalled;
                if deaf && now.since(doubt.since) >= cx.config.profile.unreachable_after {
                    Cause::Unreachable { from: cx.me }
                } else {
                    objectionable.insert(who);
                    Cause::Crashed
                }
            } else if self.installed.reconnect.is_complete() && !reachable.contains(&who) {
                // The observers of this member may be gone as well. A member that hears it objects.
                objectionable.insert(who);
                Cause::Crashed
            } else {
                continue;
            };
            causes.insert(who, cause);
        }
        // In a wide view a broken path is an edge, or no member observes it. But where a group stands still
        // for it, one of the pair must go.
        let pairs = if self.installed.topology.hears_all() {
            cx.detector.deaf_pairs()
        } else {
            cx.detector.stalled_pairs()
        };
        self.break_pairs((cx, now), reachable, pairs, &mut causes);
        // R3: every view keeps a member of its predecessor. The last member to leave ends by itself.
        if causes.len() == self.installed.view.members.len() {
            causes.remove(&cx.me);
        }
        let members = self.installed.view.members.iter();
        let staying = members.filter(|member| !causes.contains_key(&member.incarnation));
        let names: BTreeSet<&str> = staying.clone().map(|member| member.name.as_str()).collect();
        let addrs: BTreeSet<SocketAddr> = staying.map(|member| member.addr).collect();
        join.retain(|joiner| !names.contains(joiner.name.as_str()) && !addrs.contains(&joiner.addr));
        let origins = self.joiners.origins(cx, &join);
        let remove: Vec<Departure> = self
            .installed
            .view
            .members
            .iter()
            .filter_map(|member| {
                let cause = causes.get(&member.incarnation)?.clone();
                self.departure(cx, now, member.incarnation, cause)
            })
            .collect();
        let survivors = self
            .installed
            .view
            .members
            .iter()
            .filter(|member| !causes.contains_key(&member.incarnation));
        let level = survivors
            .map(|member| match self.reports.get(&member.incarnation) {
                Some(report) => report.wire_level.min(WIRE_LEVEL),
                None if member.incarnation == cx.me => WIRE_LEVEL,
                None => self.installed.view.wire_level,
            })
            .min();
        let wire_level = level.unwrap_or(self.installed.view.wire_level).min(join_level);
        // R7: a member that has a vote in a slot answers nobody. So a slot that was begun for a change that
        // nobody wants any more must still come to its end.
        let patience = self.installed.topology.vote_patience(&cx.config.profile);
        let unfinished = self.lease.is_unfinished(now, reachable, patience);
        let renew = !self.is_primary() || self.somebody_lost_the_primary(cx, reachable);
        let needed = !remove.is_empty() || !join.is_empty() || renew || unfinished;
        needed.then_some(ProposedChange {
            remove,
            objectionable,
            join,
            renew,
            unfinished,
            wire_level,
            number,
            origins,
        })
    }

    /// Where many nodes come at once, views should be few: each is one more that all must install, and one
    /// more size that an application sees. So a view that would only admit joiners waits for others that were
    /// asked just now whether they are there, while it has room for them. It does not wait long, whoever they
    /// are: half a heartbeat, and as much as this node is late itself.
    pub(crate) fn wait_for_joiners(
        &mut self,
        cx: &Context,
        now: Time,
        wish: Option<ProposedChange>,
    ) -> Option<ProposedChange> {
        let admits = |wish: &ProposedChange| wish.remove.is_empty() && !wish.renew && !wish.unfinished;
        let Some(wish) = wish else {
            self.installed.waiting_since = None;
            return None;
        };
        if !admits(&wish) {
            return Some(wish);
        }
        let patience = cx.config.profile.heartbeat / 2 + cx.detector.lag();
        let until = *self.installed.waiting_since.get_or_insert(now) + patience;
        let is_full = self.joiners.ready_count(&cx.config, now) > wish.join.len();
        if is_full || now >= until || !self.joiners.are_awaited(now, patience) {
            return Some(wish);
        }
        self.installed.weigh = Some(self.installed.weigh.map_or(until, |at| at.min(until)));
        None
    }

    /// R3: joiners may vanish after their proposal was accepted, and cannot be left out any more. So the
    /// members that stay must be a quorum of the next view by themselves. The other joiners join a view
    /// later.
    fn limit(&self, cx: &Context, reachable: &BTreeSet<Incarnation>, join: &mut Vec<Member>) {
        let staying = |member: &Member| {
            let leaving = self
                .reports
                .get(&member.incarnation)
                .is_some_and(|report| report.leaving);
            reachable.contains(&member.incarnation) && !leaving
        };
        let staying: Vec<&Member> = self
            .installed
            .view
            .members
            .iter()
            .filter(|member| staying(member))
            .collect();
        let weights = || staying.iter().map(|member| u64::from(member.weight));
        let stay: u64 = weights().sum();
        let heaviest = weights().max().unwrap_or(0);
        let most = self
            .installed
            .topology
            .most_joining(stay, heaviest, cx.detector.has_doubts());
        let mut admitted = 0;
        let mut weight = 0;
        for joiner in join.iter() {
            weight += u64::from(joiner.weight);
            // One joiner is always admitted, or a node heavier than the cluster could never join it. Half of
            // the weight is enough: the most senior member stays.
            if admitted > 0 && weight > most {
                break;
            }
            admitted += 1;
        }
        join.truncate(admitted);
    }

    /// Whether a reachable member is in a non-primary view although it hears everyone again. A member of the
    /// multi-node cut does not count, since it is about to go: in a wide view its opinion may be unknown, and
    /// a view for its sake would keep it in.
    fn somebody_lost_the_primary(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> bool {
        let lost = self.installed.engine.lost();
        self.reports.iter().any(|(member, report)| {
            reachable.contains(member)
                && !report.primary
                && !lost.contains(member)
                && report.view == self.installed.view.primary_id()
                && reachable
                    .iter()
                    .all(|other| cx.detector.doubt(*member, *other).is_none())
        })
    }

    /// Of each pair of reachable members that have not heard each other for long, one goes. Both must be
    /// heard here. Otherwise, suppose that a member stopped, and all others wait for it since it stopped
    /// before: the first member to doubt it would be blamed alone.
    fn break_pairs(
        &self,
        (cx, now): (&Context, Time),
        reachable: &BTreeSet<Incarnation>,
        pairs: Vec<(Incarnation, Incarnation, Time)>,
        causes: &mut BTreeMap<Incarnation, Cause>,
    ) {
        // In a wide view the leader hears a few members only.
        let is_heard =
            |member: Incarnation| !self.installed.topology.hears_all() || cx.detector.hears(now, member);
        let mut pairs: BTreeSet<(Incarnation, Incarnation)> = pairs
            .into_iter()
            .filter(|(_, _, since)| now.since(*since) >= cx.config.profile.unreachable_after)
            .filter(|(one, other, _)| reachable.contains(one) && reachable.contains(other))
            .filter(|(one, other, _)| is_heard(*one) && is_heard(*other))
            .filter(|(one, other, _)| !causes.contains_key(one) && !causes.contains_key(other))
            .map(|(one, other, _)| (one.min(other), one.max(other)))
            .collect();
        let rank = |member: Incarnation| self.installed.view.rank(member).unwrap_or(usize::MAX);
        // With observers, edges tell more than pairs that are broken for long: a member that loses most of
        // everything has many edges that are down.
        let edges_down = |member: Incarnation| match cx.config.engine {
            EngineKind::Coordinator => 0,
            EngineKind::Cut => {
                let members = self
                    .installed
                    .view
                    .members
                    .iter()
                    .map(|member| member.incarnation);
                let is_down = |by: &Incarnation| cx.detector.edge_is_down(*by, member);
                members.filter(is_down).count()
            }
        };
        while !pairs.is_empty() {
            let mut broken: BTreeMap<Incarnation, usize> = BTreeMap::new();
            for (one, other) in &pairs {
                *broken.entry(*one).or_default() += 1;
                *broken.entry(*other).or_default() += 1;
            }
            let Some((worst, _)) = broken
                .into_iter()
                .max_by_key(|(member, count)| (*count, edges_down(*member), rank(*member)))
            else {
                return;
            };
            let partner = pairs
                .iter()
                .filter(|(one, other)| *one == worst || *other == worst)
                .map(|(one, other)| if *one == worst { *other } else { *one })
                .min_by_key(|member| rank(*member));
            if let Some(from) = partner {
                causes.insert(worst, Cause::Unreachable { from });
            }
            pairs.retain(|(one, other)| *one != worst && *other != worst);
        }
    }

    /// The members that know, as far as this node was told, that a member is gone which nobody doubts: this
    /// node if it has the proof, otherwise the observers of that member.
    fn witnesses(&self, cx: &Context, member: Incarnation) -> Vec<Accusation> {
        let says = |accuser: Incarnation, evidence: Evidence| Accusation {
            accuser,
            evidence,
            before_ms: 0,
        };
        if self.installed.engine.is_certified(member) {
            return vec![says(cx.me, Evidence::ProofOfDeath)];
        }
        let observers = self.observers(member).into_iter();
        let lost = observers.filter(|by| cx.detector.edge_is_down(*by, member));
        let mut accusers: Vec<Accusation> = lost.take(8).map(|by| says(by, Evidence::Observed)).collect();
        if accusers.is_empty() && self.installed.reconnect.is_complete() {
            let for_ms =
                u32::try_from(self.installed.reconnect.lapses_after().as_millis()).unwrap_or(u32::MAX);
            accusers.push(says(cx.me, Evidence::Silent { for_ms }));
        }
        accusers
    }

    /// A member's departure as a view records it.
    pub(crate) fn departure(
        &self,
        cx: &Context,
        now: Time,
        member: Incarnation,
        cause: Cause,
    ) -> Option<Departure> {
        let member = self.installed.view.member(member)?.clone();
        // A member that its observers have lost goes by their word, even if another member did not hear it
        // just now.
        let mut accusers = match cause {
            Cause::Crashed => self.installed.engine.witnesses(member.incarnation),
            _ => Vec::new(),
        };
        if accusers.is_empty() {
            accusers = cx.detector.accusers(now, member.incarnation);
        }
        if accusers.is_empty() {
            accusers = self.unheard_by(cx, now, member.incarnation);
        }
        // A view must stay small: eight witnesses are enough to answer why.
        accusers.truncate(8);
        if let Cause::Unreachable { from } = cause
            && accusers.is_empty()
            && let Some(doubt) = cx.detector.doubt(member.incarnation, from)
        {
            // Only the member that goes could not hear the other one: the pair is the witness.
            accusers.push(Accusation {
                accuser: from,
                evidence: doubt.evidence.clone(),
                before_ms: u32::try_from(now.since(doubt.since).as_millis()).unwrap_or(u32::MAX),
            });
        }
        if cause == Cause::Crashed && accusers.is_empty() {
            accusers = self.witnesses(cx, member.incarnation);
        }
        Some(Departure {
            member,
            cause,
            accusers,
        })
    }
}
