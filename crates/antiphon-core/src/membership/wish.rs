//! What the coordinator would change: who should go and why, who may come.
//!
//! A member goes because it is proven dead, wants to leave, was started again, is doubted by the coordinator (others
//! may object) or by a majority, or because it and another member have not heard each other for long while others hear
//! both. Of such a pair the one with more broken pairs goes, or else the junior: a node that hears nobody must not take
//! all the others with it.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::membership::WIRE_LEVEL;
use antiphon_wire::{Cause, Departure, Evidence, Incarnation, Member};

use super::context::Context;
use super::engine::Wish;
use super::seat::Seat;
use super::slot::Voters;
use crate::{EngineKind, Time};

impl Seat {
    /// The next view as this coordinator would have it; `None` if all is well.
    pub(crate) fn wish(&self, cx: &Context, now: Time, reachable: &BTreeSet<Incarnation>) -> Option<Wish> {
        let (mut join, join_level, number) = self.joiners.admissible(now, cx.config.profile.heartbeat);
        self.limit(reachable, &mut join);
        let outvoted = self.outvoted(cx, reachable);
        let mut causes: BTreeMap<Incarnation, Cause> = BTreeMap::new();
        let mut objectionable = BTreeSet::new();
        for member in &self.view.members {
            let who = member.incarnation;
            let successor = join
                .iter()
                .find(|joiner| joiner.name == member.name && joiner.addr == member.addr);
            let leaving = self.reports.get(&who).is_some_and(|report| report.leaving)
                || (who == cx.me && self.leaving.is_wanted());
            let doubt = cx.detector.doubt(cx.me, who);
            let cause = if self.engine.is_certified(who) {
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
            } else {
                continue;
            };
            causes.insert(who, cause);
        }
        self.break_pairs(cx, now, reachable, &mut causes);
        // R3: every view keeps a member of its predecessor. The last to leave turns off the light by itself.
        if causes.len() == self.view.members.len() {
            causes.remove(&cx.me);
        }
        let stays = |who: Incarnation| !causes.contains_key(&who);
        join.retain(|joiner| {
            !self.view.members.iter().any(|member| {
                stays(member.incarnation) && (member.name == joiner.name || member.addr == joiner.addr)
            })
        });
        let remove: Vec<Departure> = self
            .view
            .members
            .iter()
            .filter_map(|member| {
                let cause = causes.get(&member.incarnation)?.clone();
                self.departure(cx, now, member.incarnation, cause)
            })
            .collect();
        let survivors = self
            .view
            .members
            .iter()
            .filter(|member| !causes.contains_key(&member.incarnation));
        let level = survivors
            .map(|member| match self.reports.get(&member.incarnation) {
                Some(report) => report.wire_level.min(WIRE_LEVEL),
                None if member.incarnation == cx.me => WIRE_LEVEL,
                None => self.view.wire_level,
            })
            .min();
        let wire_level = level.unwrap_or(self.view.wire_level).min(join_level);
        let renew = !self.is_primary() || self.somebody_lost_the_primary(cx, reachable);
        let needed = !remove.is_empty() || !join.is_empty() || renew;
        needed.then_some(Wish {
            remove,
            objectionable,
            join,
            renew,
            wire_level,
            number,
        })
    }

    /// R3: joiners may vanish after their proposal was accepted and cannot be left out any more. So the members that
    /// stay must be a quorum of the next view by themselves; the rest joins a view later. A cluster doubles at best.
    fn limit(&self, reachable: &BTreeSet<Incarnation>, join: &mut Vec<Member>) {
        let staying = |member: &Member| {
            let leaving = self
                .reports
                .get(&member.incarnation)
                .is_some_and(|report| report.leaving);
            reachable.contains(&member.incarnation) && !leaving
        };
        let mut members: Vec<(Incarnation, u32)> = self
            .view
            .members
            .iter()
            .filter(|member| staying(member))
            .map(|member| (member.incarnation, u32::from(member.weight)))
            .collect();
        let stay: BTreeSet<Incarnation> = members.iter().map(|(member, _)| *member).collect();
        let mut admitted = 0;
        for joiner in join.iter() {
            members.push((joiner.incarnation, u32::from(joiner.weight)));
            let voters = Voters {
                members: members.clone(),
                senior_breaks_tie: true,
            };
            // One at a time always, or a node heavier than the cluster could never join it.
            if admitted > 0 && !voters.is_quorum(&stay, &BTreeSet::new()) {
                break;
            }
            admitted += 1;
        }
        join.truncate(admitted);
    }

    /// A reachable member is in a non-primary view although it hears everyone again.
    fn somebody_lost_the_primary(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> bool {
        self.reports.iter().any(|(member, report)| {
            reachable.contains(member)
                && !report.primary
                && report.view == self.view.primary_id()
                && reachable
                    .iter()
                    .all(|other| cx.detector.doubt(*member, *other).is_none())
        })
    }

    /// Pairs of reachable members that have not heard each other for long.
    fn break_pairs(
        &self,
        cx: &Context,
        now: Time,
        reachable: &BTreeSet<Incarnation>,
        causes: &mut BTreeMap<Incarnation, Cause>,
    ) {
        let mut pairs: BTreeSet<(Incarnation, Incarnation)> = cx
            .detector
            .deaf_pairs()
            .into_iter()
            .filter(|(_, _, since)| now.since(*since) >= cx.config.profile.unreachable_after)
            .filter(|(one, other, _)| reachable.contains(one) && reachable.contains(other))
            .filter(|(one, other, _)| !causes.contains_key(one) && !causes.contains_key(other))
            .map(|(one, other, _)| (one.min(other), one.max(other)))
            .collect();
        let rank = |member: Incarnation| self.view.rank(member).unwrap_or(usize::MAX);
        // With observers, edges tell more than pairs that are broken for long: who loses most of everything has many that are down.
        let edges_down = |member: Incarnation| match cx.config.engine {
            EngineKind::Coordinator => 0,
            EngineKind::Cut => {
                let members = self.view.members.iter().map(|member| member.incarnation);
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
}
