//! What the coordinator would change: which members should go and why, and which nodes may come.
//!
//! A member goes for one of these reasons: it is proven dead, wants to leave, was started again, or is
//! doubted by a majority or by the coordinator (others may object). Or it and another member have not heard
//! each other for long, while others hear both. Of such a pair the member with more broken pairs goes, or
//! else the junior: a node that hears nobody must not take all the others with it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, Member, NodeView};

use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::ProposedChange;
use crate::membership::change::joiners::Joiners;
use crate::membership::context::Context;
use crate::membership::monitor::deaf::Deaf;
use crate::membership::monitor::doubts::break_pairs;
use crate::membership::monitor::report::Reports;
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::Topology;
use crate::{EngineKind, Time};

/// A view names at most so many accusers of a member. It must stay small, and these are enough to answer why.
const MOST_ACCUSERS: usize = 8;

/// What a coordinator knows that decides what it would change in its view.
pub(crate) struct Wants<'a> {
    pub(crate) cx: &'a Context,
    pub(crate) now: Time,
    pub(crate) view: &'a NodeView,
    pub(crate) rings: &'a Rings,
    pub(crate) topology: &'a Topology,
    /// Whether votes name what changes in the view.
    pub(crate) named: bool,
    pub(crate) engine: &'a Engine,
    pub(crate) reports: &'a Reports,
    /// What `Seat::reachable` says.
    pub(crate) reachable: &'a BTreeSet<Incarnation>,
    /// Members that a majority, or their observers, do without.
    pub(crate) outvoted: &'a BTreeSet<Incarnation>,
    /// If all members were asked where no ring leads: the members that are not reachable gave no answer for
    /// this long.
    pub(crate) silent_for: Option<Duration>,
    pub(crate) deaf: &'a Deaf,
    /// Whether this node wants to leave.
    pub(crate) leaves: bool,
    /// Whether this node is in no primary view.
    pub(crate) lost_the_primary: bool,
    /// Whether a member has voted in the slot and nothing came of its vote.
    pub(crate) unfinished: bool,
}

impl Wants<'_> {
    /// The change that this coordinator would propose; `None` if all is well.
    pub(crate) fn change(&self, joiners: &Joiners) -> Option<ProposedChange> {
        let (cx, now, view) = (self.cx, self.now, self.view);
        let members = view.members.len();
        let (mut join, join_level, number) = joiners.admissible(&cx.config, now, view, self.named);
        self.limit(&mut join);
        let (mut causes, mut asked_first) = self.causes(&join);
        self.part_pairs(&mut causes, &mut asked_first);
        // R3: every view keeps a member of its predecessor. The last member to leave ends by itself.
        if causes.len() == members {
            causes.remove(&cx.me);
        }
        let staying = || {
            let members = view.members.iter();
            members.filter(|member| !causes.contains_key(&member.incarnation))
        };
        let names: BTreeSet<&str> = staying().map(|member| member.name.as_str()).collect();
        let addrs: BTreeSet<SocketAddr> = staying().map(|member| member.addr).collect();
        join.retain(|joiner| !names.contains(joiner.name.as_str()) && !addrs.contains(&joiner.addr));
        let origins = joiners.origins(cx, &join);
        let going = view.members.iter().filter_map(|member| {
            let cause = causes.get(&member.incarnation)?.clone();
            Some(self.departure(member, cause))
        });
        let remove: Vec<Departure> = going.collect();
        let level = self.reports.wire_level(cx.me, view, staying());
        let wire_level = level.min(join_level);
        let renew = self.lost_the_primary || self.somebody_lost_the_primary();
        let needed = !remove.is_empty() || !join.is_empty() || renew || self.unfinished;
        needed.then_some(ProposedChange {
            remove,
            asked_first,
            join,
            renew,
            unfinished: self.unfinished,
            wire_level,
            number,
            origins,
        })
    }

    /// Why members should go, if these join; and to the removal of which of them others may object.
    fn causes(&self, join: &[Member]) -> (BTreeMap<Incarnation, Cause>, BTreeSet<Incarnation>) {
        let cx = self.cx;
        let mut causes: BTreeMap<Incarnation, Cause> = BTreeMap::new();
        let mut asked_first = BTreeSet::new();
        let joining: BTreeMap<SocketAddr, &Member> =
            join.iter().map(|joiner| (joiner.addr, joiner)).collect();
        for member in &self.view.members {
            let who = member.incarnation;
            let successor = joining
                .get(&member.addr)
                .filter(|joiner| joiner.name == member.name);
            // In a wide view this node observes a few members only; what it alone has lost is an edge.
            let doubt = cx
                .detector
                .doubt(cx.me, who)
                .filter(|_| self.topology.hears_all());
            let cause = if self.engine.is_certified(who) {
                Cause::Crashed
            } else if self.reports.is_leaving(who) || (who == cx.me && self.leaves) {
                Cause::Left
            } else if let Some(successor) = successor {
                Cause::Superseded {
                    by: successor.incarnation,
                }
            } else if self.outvoted.contains(&who) {
                Cause::Crashed
            } else if let Some(doubt) = doubt {
                let deaf = doubt.evidence != Evidence::FlushStalled;
                if deaf && self.now.since(doubt.since) >= cx.config.profile.unreachable_after {
                    Cause::Unreachable { from: cx.me }
                } else {
                    asked_first.insert(who);
                    Cause::Crashed
                }
            } else if self.silent_for.is_some() && !self.reachable.contains(&who) {
                // The observers of this member may be gone as well. A member that hears it objects.
                asked_first.insert(who);
                Cause::Crashed
            } else {
                continue;
            };
            causes.insert(who, cause);
        }
        (causes, asked_first)
    }

    /// Leaves out joiners that must join a view later, beside the members that stay.
    fn limit(&self, join: &mut Vec<Member>) {
        let stays =
            |member: Incarnation| self.reachable.contains(&member) && !self.reports.is_leaving(member);
        let members = self.view.members.iter();
        let staying = members.filter(|member| stays(member.incarnation));
        let weights = staying.map(|member| member.weight);
        self.topology.limit(weights, self.cx.detector.has_doubts(), join);
    }

    /// Whether a reachable member is in a non-primary view although it hears everyone again. A member of the
    /// multi-node cut does not count, since it is about to go: in a wide view its opinion may be unknown, and
    /// a view for its sake would keep it in.
    fn somebody_lost_the_primary(&self) -> bool {
        let lost = self.engine.in_cut();
        let hears = |member| {
            let mut others = self.reachable.iter();
            others.all(|other| self.cx.detector.doubt(member, *other).is_none())
        };
        let mut lacking = self.reports.lacking_primary(self.view.primary_id());
        lacking.any(|member| self.reachable.contains(&member) && !lost.contains(&member) && hears(member))
    }

    /// Of each pair of reachable members that have not heard each other for long, one goes. Both must be
    /// heard here. Otherwise, suppose that a member stopped, and all others wait for it since it stopped
    /// before: the first member to doubt it would be blamed alone.
    fn part_pairs(&self, causes: &mut BTreeMap<Incarnation, Cause>, asked_first: &mut BTreeSet<Incarnation>) {
        let (detector, hears_all) = (&self.cx.detector, self.topology.hears_all());
        // In a wide view a broken path is an edge, or no member observes it. But where a group stands still
        // for it, one of the pair must go.
        let pairs = if hears_all {
            detector.deaf_pairs()
        } else {
            detector.stalled_pairs()
        };
        let patience = self.cx.config.profile.unreachable_after;
        // In a wide view the leader hears a few members only.
        let is_heard = |member| !hears_all || detector.hears(self.now, member);
        let stays =
            |member| self.reachable.contains(&member) && is_heard(member) && !causes.contains_key(&member);
        let pairs = pairs
            .into_iter()
            .filter(|(one, other, since)| self.now.since(*since) >= patience && stays(*one) && stays(*other))
            .map(|(one, other, _)| (one, other));
        // With observers, edges tell more than pairs that are broken for long: a member that loses most of
        // everything has many edges that are down.
        let edges_down = |member: Incarnation| match self.cx.config.engine {
            EngineKind::Coordinator => 0,
            EngineKind::Cut => {
                let members = self.view.members.iter().map(|member| member.incarnation);
                let is_down = |by: &Incarnation| detector.edge_is_down(*by, member);
                members.filter(is_down).count()
            }
        };
        let rank = |member: Incarnation| self.view.rank(member).unwrap_or(usize::MAX);
        let going = break_pairs(pairs, edges_down, rank);
        // Of a pair with this node itself, this node knows.
        let asked = going.iter().filter(|(_, from)| *from != self.cx.me);
        asked_first.extend(asked.map(|(goes, _)| *goes));
        causes.extend(
            going
                .into_iter()
                .map(|(goes, from)| (goes, Cause::Unreachable { from })),
        );
    }

    /// The members that know, as far as this node was told, that a member is gone which nobody doubts: this
    /// node if it has the proof, otherwise the observers of that member.
    fn accusations(&self, member: Incarnation) -> Vec<Accusation> {
        let says = |accuser: Incarnation, evidence: Evidence| Accusation {
            accuser,
            evidence,
            before_ms: 0,
        };
        if self.engine.is_certified(member) {
            return vec![says(self.cx.me, Evidence::ProofOfDeath)];
        }
        let observers = self.rings.observers_in(self.view, member);
        let lost = observers.filter(|by| self.cx.detector.edge_is_down(*by, member));
        let accusers = lost.take(MOST_ACCUSERS).map(|by| says(by, Evidence::Observed));
        let mut accusers: Vec<Accusation> = accusers.collect();
        if let Some(silent_for) = self.silent_for
            && accusers.is_empty()
        {
            let for_ms = u32::try_from(silent_for.as_millis()).unwrap_or(u32::MAX);
            accusers.push(says(self.cx.me, Evidence::Silent { for_ms }));
        }
        accusers
    }

    /// A member's departure as a view records it.
    fn departure(&self, member: &Member, cause: Cause) -> Departure {
        let (who, detector) = (member.incarnation, &self.cx.detector);
        // A member that its observers have lost goes by their word, even if another member did not hear it
        // just now.
        let mut accusers = match cause {
            Cause::Crashed => self.engine.accusations(who),
            _ => Vec::new(),
        };
        if accusers.is_empty() {
            accusers = detector.accusers(self.now, who);
        }
        if accusers.is_empty() {
            accusers = self.deaf.unheard_by(self.now, detector, who);
        }
        accusers.truncate(MOST_ACCUSERS);
        if let Cause::Unreachable { from } = cause
            && accusers.is_empty()
            && let Some(doubt) = detector.doubt(who, from)
        {
            // Only the member that goes could not hear the other one: the pair is the witness.
            accusers.push(Accusation {
                accuser: from,
                evidence: doubt.evidence.clone(),
                before_ms: u32::try_from(self.now.since(doubt.since).as_millis()).unwrap_or(u32::MAX),
            });
        }
        if cause == Cause::Crashed && accusers.is_empty() {
            accusers = self.accusations(who);
        }
        Departure {
            member: member.clone(),
            cause,
            accusers,
        }
    }
}
