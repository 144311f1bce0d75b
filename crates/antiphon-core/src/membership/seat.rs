//! A member's seat: the primary view it has installed, and everything it does to get to the next one.
//!
//! Every input changes what this node knows: whom it hears, who leaves, who wants in, who is proven dead. After each,
//! [`Seat::evaluate`] asks again:
//!
//! ```text
//!   reachable = members not doubted            coordinator = the most senior of them that no majority doubts
//!   could the reachable decide?   yes, and I coordinate: wish for the next view ──► engine
//!                                 no,  and I coordinate: gather a non-primary view
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_wire::membership::{
    Certificate, Heartbeat, LifelineRecord, MembershipMessage, SlotMessage, Suspicion, VoteState, WIRE_LEVEL,
};
use antiphon_wire::{Cause, Departure, Evidence, Incarnation, NodeView, ViewId};

use super::Effect;
use super::check;
use super::context::{Context, Fate, Past};
use super::engine::{Engine, EngineEffect, Surroundings};
use super::joining::Joiners;
use super::leaving::Leaving;
use super::nonprimary::Nonprimary;
use super::slot::{self, Value};
use crate::{BallotStep, EngineKind, Event, LifelineEvent, Time};

/// What a member said of itself in its last heartbeat.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub(crate) round: u64,
    pub(crate) view: ViewId,
    pub(crate) primary: bool,
    pub(crate) leaving: bool,
    pub(crate) wire_level: u8,
}

/// The state of a member.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The last primary view installed.
    pub(crate) view: Arc<NodeView>,
    pub(crate) engine: Engine,
    pub(crate) nonprimary: Nonprimary,
    pub(crate) reports: BTreeMap<Incarnation, Report>,
    pub(crate) joiners: Joiners,
    pub(crate) leaving: Leaving,
    certificates: BTreeMap<Incarnation, VoteState>,
    pub(crate) next_heartbeat: Time,
    pub(crate) next_seek: Time,
    next_pull: Time,
    pub(crate) told: BTreeMap<Incarnation, Time>,
}

impl Seat {
    /// The first view of this incarnation.
    pub(crate) fn new(cx: &mut Context, now: Time, view: NodeView) -> Self {
        let view = Arc::new(view);
        let mut seat = Self {
            engine: Engine::new(cx.config.engine, cx.me, view.clone(), &cx.config.profile),
            view: view.clone(),
            nonprimary: Nonprimary::default(),
            reports: BTreeMap::new(),
            joiners: Joiners::default(),
            leaving: Leaving::No,
            certificates: BTreeMap::new(),
            next_heartbeat: now,
            next_seek: now,
            next_pull: now,
            told: BTreeMap::new(),
        };
        seat.install(cx, now, view);
        seat
    }

    /// Installs a primary view of which this node is a member.
    pub(crate) fn install(&mut self, cx: &mut Context, now: Time, view: Arc<NodeView>) {
        self.view = view.clone();
        self.nonprimary = Nonprimary::default();
        self.reports.retain(|member, _| view.contains(*member));
        self.told.clear();
        cx.history.push(now, view.clone());
        cx.detector
            .watch(now, view.members.iter().map(|member| member.incarnation));
        let contacts = view.members.iter().map(|member| member.addr).collect();
        let seen = cx.past.as_ref().map_or(0, |past| past.number);
        cx.past = Some(Past {
            number: view.number.max(seen),
            contacts,
        });
        for member in &view.members {
            cx.know_peer(member.incarnation, member.addr);
        }
        let joiners = &self.joiners;
        cx.keep_peers(|peer| view.contains(peer) || joiners.contains(peer));
        self.joiners
            .expire(cx, now, &view, cx.config.profile.suspect_after * 2);
        cx.effects.push_back(Effect::Installed(announced(&view)));
        let mut commands = Vec::new();
        cx.lifelines.follow(&view, cx.me, &mut commands);
        cx.lifeline_commands(commands);
        self.engine = Engine::new(cx.config.engine, cx.me, view.clone(), &cx.config.profile);
        self.certificates.retain(|dead, _| view.contains(*dead));
        for (dead, vote) in self.certificates.clone() {
            self.with_engine(cx, now, |engine, around| engine.certify(around, dead, &vote));
        }
        self.next_heartbeat = now;
    }

    /// Members this node does not doubt, itself included.
    pub(crate) fn reachable(&self, cx: &Context) -> BTreeSet<Incarnation> {
        self.view
            .members
            .iter()
            .map(|member| member.incarnation)
            .filter(|member| !cx.detector.suspects(*member) && !self.engine.is_certified(*member))
            .collect()
    }

    /// Those whom a majority of the weight doubts, of members that this node hears and that have a say.
    fn doubted(
        &self,
        cx: &Context,
        reachable: &BTreeSet<Incarnation>,
        has_a_say: impl Fn(Incarnation) -> bool,
    ) -> BTreeSet<Incarnation> {
        let mut against: BTreeMap<Incarnation, u64> = BTreeMap::new();
        for accuser in &self.view.members {
            if reachable.contains(&accuser.incarnation) && has_a_say(accuser.incarnation) {
                for accused in cx.detector.doubted_by(accuser.incarnation) {
                    *against.entry(accused).or_default() += u64::from(accuser.weight);
                }
            }
        }
        let total: u64 = self
            .view
            .members
            .iter()
            .map(|member| u64::from(member.weight))
            .sum();
        against
            .into_iter()
            .filter(|(accused, against)| self.view.contains(*accused) && against * 2 > total)
            .map(|(accused, _)| accused)
            .collect()
    }

    /// Members that a majority does not hear, so that one who does has no objection. Who is doubted by a majority itself
    /// has no say: where hardly anybody hears anybody, as in a star of links, it is paths that are broken, not
    /// processes, and the hub, who hears all, must not throw out all the others on their word. Pairs are broken there.
    pub(crate) fn outvoted(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        let doubted = self.doubted(cx, reachable, |_| true);
        if doubted.is_empty() {
            return doubted;
        }
        self.doubted(cx, reachable, |accuser| !doubted.contains(&accuser))
    }

    /// Who should propose, as far as this node can tell: not one whom a majority cannot hear, for whatever reason.
    pub(crate) fn coordinator(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> Incarnation {
        let doubted = self.doubted(cx, reachable, |_| true);
        self.view
            .members
            .iter()
            .map(|member| member.incarnation)
            .find(|member| reachable.contains(member) && !doubted.contains(member))
            .unwrap_or(cx.me)
    }

    /// Whether this node believes to be in the primary view now.
    pub(crate) fn is_primary(&self) -> bool {
        self.nonprimary.view().is_none()
    }

    /// Draws the consequences of whatever has changed.
    pub(crate) fn evaluate(&mut self, cx: &mut Context, now: Time) {
        if cx.fate.is_some() || self.tend_departure(cx, now) {
            return;
        }
        // Reinforcement: what some observers report, the others look at again.
        let mut news = false;
        for member in self.engine.unstable() {
            news |= cx.detector.reinforce(now, member);
        }
        if news {
            self.beat(cx, now);
        }
        let reachable = self.reachable(cx);
        let coordinator = self.coordinator(cx, &reachable);
        let quorum = self.engine.could_decide(&reachable);
        self.ask_to_leave(cx, coordinator);
        let wish = if coordinator == cx.me && quorum {
            self.wish(cx, now, &reachable)
        } else {
            None
        };
        if wish.is_some() && !self.joiners.is_empty() {
            self.joiners.probe(cx, now);
        }
        self.with_engine(cx, now, |engine, around| engine.pursue(around, wish));
        if quorum || coordinator != cx.me {
            self.nonprimary.calm();
        } else if cx.fate.is_none() {
            let (view, component) = (self.view.clone(), self.reachable(cx));
            self.nonprimary.tend(cx, now, &view, &component);
        }
    }

    /// Lets the engine do something and performs what it wants.
    fn with_engine(
        &mut self,
        cx: &mut Context,
        now: Time,
        action: impl FnOnce(&mut Engine, &mut Surroundings<'_>),
    ) {
        let reachable = self.reachable(cx);
        let outvoted = self.outvoted(cx, &reachable);
        let primary = self.is_primary();
        let Context { random, detector, .. } = cx;
        let objects = |member| detector.hears_well(now, member) && !outvoted.contains(&member);
        let suspects = detector.lost_to_anyone();
        let edge_is_down = |observer, subject| detector.edge_is_down(observer, subject);
        action(
            &mut self.engine,
            &mut Surroundings {
                now,
                random,
                objects: &objects,
                reachable: &reachable,
                suspects: &suspects,
                edge_is_down: &edge_is_down,
                primary,
            },
        );
        let slot = check::slot_after(&self.view);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                // R2: on the lifelines before any message that carries the vote.
                EngineEffect::Voted => cx.write_lifelines(&LifelineRecord::Vote(self.engine.vote_state())),
                EngineEffect::Send { to, message } => cx.send(to, MembershipMessage::Slot { slot, message }),
                EngineEffect::Accepted { ballot, view } => {
                    cx.trail(slot, Some(ballot), *view, BallotStep::Accepted);
                }
                EngineEffect::Decided {
                    ballot,
                    dead,
                    view,
                    announce,
                } => {
                    cx.trail(slot, Some(ballot), (*view).clone(), BallotStep::Decided { dead });
                    if announce {
                        self.announce(cx, now, *view);
                    } else {
                        self.learn(cx, now, *view, None);
                    }
                    return;
                }
            }
        }
    }

    /// This node's proposal is decided: tell everyone of both views, and install it.
    fn announce(&mut self, cx: &mut Context, now: Time, next: NodeView) {
        let old = self.view.members.iter().map(|member| member.incarnation);
        let new = next.joined.iter().copied();
        let to: BTreeSet<Incarnation> = old
            .chain(new)
            .filter(|to| *to != cx.me && !self.engine.is_certified(*to))
            .collect();
        for to in &to {
            cx.send(*to, MembershipMessage::Decide(Box::new(next.clone())));
        }
        self.depart_after(cx, now, &next, &to);
        self.learn(cx, now, next, None);
    }

    /// A decided view, from whatever source.
    pub(crate) fn learn(&mut self, cx: &mut Context, now: Time, next: NodeView, from: Option<Incarnation>) {
        if cx.fate.is_some()
            || next.lineage != self.view.lineage
            || next.primary_id() <= self.view.primary_id()
        {
            return;
        }
        if next.primary_id() != check::next_id(self.view.primary_id()) {
            // R2: a later view without this incarnation: it was removed somewhere in between.
            if !next.contains(cx.me) {
                self.lose_seat(cx, &next);
            } else if let Some(from) = from {
                self.pull(cx, now, from);
            }
            return;
        }
        if !check::is_successor(&self.view, &next) {
            return;
        }
        if next.contains(cx.me) {
            self.install(cx, now, Arc::new(next));
            self.evaluate(cx, now);
        } else {
            self.lose_seat(cx, &next);
        }
    }

    /// This incarnation is not in the view that follows.
    fn lose_seat(&mut self, cx: &mut Context, next: &NodeView) {
        let departure = next
            .departed
            .iter()
            .find(|departure| departure.member.incarnation == cx.me);
        let cause = departure.map_or(&Cause::Crashed, |departure| &departure.cause);
        if *cause == Cause::Left && self.leaving.is_wanted() {
            if !self.leaving.is_departing() {
                cx.write_lifelines(&LifelineRecord::Goodbye);
                cx.fate = Some(Fate::Left);
            }
            return;
        }
        let accusers: Vec<String> = departure
            .iter()
            .flat_map(|departure| &departure.accusers)
            .map(|accusation| self.name_of(accusation.accuser))
            .collect();
        let by = if accusers.is_empty() {
            String::new()
        } else {
            format!(", accused by {}", accusers.join(", "))
        };
        self.expelled(
            cx,
            format!(
                "removed by view {} ({}): {}{by}",
                next.number,
                next.id,
                check::cause_text(cause)
            ),
        );
    }

    /// R8: a node that believed itself primary is told that it was removed.
    pub(crate) fn expelled(&mut self, cx: &mut Context, cause: String) {
        if self.is_primary() {
            cx.event(Event::Expelled { cause: cause.clone() });
        }
        cx.fate = Some(if self.leaving.is_wanted() {
            Fate::Left
        } else {
            Fate::Over { cause }
        });
    }

    fn name_of(&self, incarnation: Incarnation) -> String {
        self.view
            .member(incarnation)
            .map_or_else(|| incarnation.short(), |member| member.name.clone())
    }

    /// Asks a member for the views that are missing here.
    pub(crate) fn pull(&mut self, cx: &mut Context, now: Time, from: Incarnation) {
        if now >= self.next_pull {
            self.next_pull = now + cx.config.profile.retransmit / 2;
            let (lineage, after) = (self.view.lineage, self.view.primary_id());
            cx.send(from, MembershipMessage::Pull { lineage, after });
        }
    }

    /// A proof of death: remembered, shared, and used.
    fn certify(&mut self, cx: &mut Context, now: Time, dead: Incarnation, vote: VoteState, share: bool) {
        if dead == cx.me || vote.view.lineage != self.view.lineage {
            return;
        }
        // R2: a last vote under a later view shows that this node is behind, or out.
        self.learn(cx, now, (*vote.view).clone(), None);
        if cx.fate.is_some() || !self.view.contains(dead) {
            return;
        }
        let rank = |vote: &VoteState| (vote.view.primary_id(), vote.promised);
        if self
            .certificates
            .get(&dead)
            .is_some_and(|known| rank(known) >= rank(&vote))
        {
            return;
        }
        let accepted = vote.accepted.as_ref().map(|accepted| accepted.ballot);
        let (slot, view) = (check::slot_after(&vote.view), (*vote.view).clone());
        cx.trail(slot, accepted, view, BallotStep::Certified { dead });
        cx.detector.accuse(now, dead, Evidence::ProofOfDeath);
        if share {
            let me = cx.me;
            for member in self
                .reachable(cx)
                .into_iter()
                .filter(|member| *member != me && *member != dead)
            {
                let certificate = Certificate {
                    dead,
                    vote: vote.clone(),
                };
                cx.send(member, MembershipMessage::Certificate(Box::new(certificate)));
            }
        }
        self.certificates.insert(dead, vote.clone());
        self.with_engine(cx, now, |engine, around| engine.certify(around, dead, &vote));
    }

    pub(crate) fn handle_message(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: MembershipMessage,
    ) {
        match message {
            MembershipMessage::Slot { slot, message } if slot.lineage == self.view.lineage => {
                self.handle_slot(cx, now, sender, slot.next, message);
            }
            MembershipMessage::Decide(view)
                if check::primary_is_sound(&view) && view.lineage == self.view.lineage =>
            {
                let (lineage, id) = (view.lineage, view.primary_id());
                cx.send(sender, MembershipMessage::Confirm { lineage, view: id });
                self.learn(cx, now, *view, Some(sender));
            }
            MembershipMessage::Confirm { lineage, view } if lineage == self.view.lineage => {
                self.leaving.confirmed(sender, view);
            }
            MembershipMessage::Pull { lineage, after } => match cx.history.after(lineage, after) {
                Some(views) => {
                    for view in views {
                        cx.send(sender, MembershipMessage::Decide(Box::new((*view).clone())));
                    }
                }
                // Too far behind to follow view by view: only a fresh incarnation gets in again.
                None => self.tell_removed(cx, now, sender),
            },
            MembershipMessage::Certificate(certificate)
                if check::vote_is_sound(&certificate.vote) && self.view.contains(sender) =>
            {
                self.certify(cx, now, certificate.dead, certificate.vote, false);
            }
            MembershipMessage::JoinReady { nonce } => self.joiners.ready(now, sender, nonce),
            MembershipMessage::Leave => {
                if let Some(report) = self.reports.get_mut(&sender) {
                    report.leaving = true;
                } else if self.view.contains(sender) {
                    let view = self.view.primary_id();
                    let report = Report {
                        round: 0,
                        view,
                        primary: true,
                        leaving: true,
                        wire_level: self.view.wire_level,
                    };
                    self.reports.insert(sender, report);
                }
            }
            MembershipMessage::Gather(_)
            | MembershipMessage::Gathered { .. }
            | MembershipMessage::Scatter { .. }
            | MembershipMessage::Assemble { .. }
                if self.view.contains(sender) =>
            {
                self.handle_nonprimary(cx, now, sender, message);
            }
            MembershipMessage::Dissolve { into, addr } if self.view.contains(sender) => {
                self.dissolve(cx, into, addr, false);
            }
            // For founders and joiners, or about another lineage.
            _ => {}
        }
        self.evaluate(cx, now);
    }

    fn handle_slot(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        next: ViewId,
        message: SlotMessage,
    ) {
        if next == check::next_id(self.view.primary_id()) {
            if !self.leaving.is_departing() {
                self.with_engine(cx, now, |engine, around| engine.handle(around, sender, message));
            }
        } else if next > self.view.primary_id() {
            // R1: nobody votes in a slot before installing its predecessor.
            if slot::votes_ahead() {
                let answer = match message {
                    SlotMessage::Prepare { ballot, .. } => SlotMessage::Promise {
                        ballot,
                        accepted: None,
                    },
                    SlotMessage::Accept { ballot, .. } => SlotMessage::Accepted { ballot },
                    _ => return,
                };
                let slot = antiphon_wire::membership::SlotId {
                    lineage: self.view.lineage,
                    next,
                };
                cx.send(
                    sender,
                    MembershipMessage::Slot {
                        slot,
                        message: answer,
                    },
                );
            }
            self.pull(cx, now, sender);
        } else if matches!(
            message,
            SlotMessage::Prepare { .. } | SlotMessage::Accept { .. } | SlotMessage::Fast { .. }
        ) {
            // The proposer has missed the decision.
            if let Some(view) = cx.history.get(self.view.lineage, next).cloned() {
                cx.send(sender, MembershipMessage::Decide(Box::new((*view).clone())));
            }
        }
    }

    pub(crate) fn handle_heartbeat(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        heartbeat: Heartbeat,
    ) {
        if heartbeat.lineage != self.view.lineage {
            return;
        }
        if !self.view.contains(sender) {
            if heartbeat.view <= self.view.primary_id() {
                self.tell_removed(cx, now, sender);
            }
            return;
        }
        // It comes on two ways of different speed where one goes through another member, and a path that was cut delivers late what it held.
        // An opinion that was withdrawn since must not be taken for a fresh one.
        if self
            .reports
            .get(&sender)
            .is_some_and(|report| heartbeat.round < report.round)
        {
            return;
        }
        let Heartbeat {
            round,
            view,
            primary,
            leaving,
            wire_level,
            suspicions,
            ..
        } = heartbeat;
        // Wanting to leave is not taken back.
        let leaving = leaving || self.reports.get(&sender).is_some_and(|report| report.leaving);
        self.reports.insert(
            sender,
            Report {
                round,
                view,
                primary,
                leaving,
                wire_level,
            },
        );
        cx.detector.told(now, sender, &suspicions);
        if cx.config.engine == EngineKind::Cut {
            let lost = |suspicion: &Suspicion| {
                suspicion.member == cx.me
                    && matches!(
                        suspicion.evidence,
                        Evidence::Silent { .. } | Evidence::ConnectionLost | Evidence::Lossy { .. }
                    )
            };
            let deaf = suspicions.iter().any(lost);
            if cx.detector.says_deaf(now, sender, deaf) {
                self.next_heartbeat = now;
            }
        }
        self.leaving.confirmed(sender, view);
        if view > self.view.primary_id() {
            self.pull(cx, now, sender);
        }
        // One wake-up for both: members that are idle come to beat at the same time.
        if self.next_heartbeat <= now + cx.config.profile.heartbeat / 2 {
            self.beat(cx, now);
        }
        self.evaluate(cx, now);
    }

    /// Heartbeats to all members.
    pub(crate) fn beat(&mut self, cx: &mut Context, now: Time) {
        self.next_heartbeat = now + cx.config.profile.heartbeat;
        cx.beats += 1;
        let heartbeat = Heartbeat {
            round: cx.beats,
            lineage: self.view.lineage,
            view: self.view.primary_id(),
            primary: self.is_primary(),
            leaving: self.leaving.is_wanted(),
            wire_level: WIRE_LEVEL,
            suspicions: cx.detector.opinion(now),
        };
        for member in self
            .view
            .members
            .iter()
            .filter(|member| member.incarnation != cx.me)
        {
            if !self.engine.is_certified(member.incarnation) {
                let effect = Effect::Heartbeat {
                    to: member.incarnation,
                    heartbeat: heartbeat.clone(),
                };
                cx.effects.push_back(effect);
            }
        }
    }

    pub(crate) fn handle_lifeline(
        &mut self,
        cx: &mut Context,
        now: Time,
        event: LifelineEvent,
        sender: Option<Incarnation>,
    ) {
        match event {
            LifelineEvent::Opened { dial, local, remote } => {
                let vote = self.engine.vote_state();
                let command = cx.lifelines.opened(dial, local, remote, vote);
                cx.lifeline_commands(command);
            }
            LifelineEvent::Failed { dial } => {
                let retry = cx.config.profile.retransmit * 2;
                if let Some(to) = cx.lifelines.failed(now, dial, retry) {
                    cx.detector.trouble(now, to);
                }
            }
            LifelineEvent::Record {
                connection,
                local,
                remote,
                record,
            } => {
                let Some(sender) = sender else { return };
                let shown = cx.lifelines.record(connection, local, remote, sender, record);
                // A view that someone installed is decided: no need to wait for its announcement.
                if let Some(view) = shown.map(|vote| (*vote.view).clone()) {
                    self.learn(cx, now, view, Some(sender));
                }
            }
            LifelineEvent::Ended { connection, end } => match cx.lifelines.ended(connection, end) {
                super::lifeline::Ended::Dead { writer, vote } => self.certify(cx, now, writer, vote, true),
                super::lifeline::Ended::Broken { writer } => cx.detector.trouble(now, writer),
                super::lifeline::Ended::Nothing => {}
            },
        }
        self.evaluate(cx, now);
    }

    pub(crate) fn tick(&mut self, cx: &mut Context, now: Time) {
        let news = cx.detector.tick(now);
        let mut commands = Vec::new();
        cx.lifelines.tick(now, &mut commands);
        cx.lifeline_commands(commands);
        if news || now >= self.next_heartbeat {
            // An accusation is told at once: others need it to agree.
            self.beat(cx, now);
        }
        self.seek_others(cx, now);
        let view = self.view.clone();
        self.joiners
            .expire(cx, now, &view, cx.config.profile.suspect_after * 2);
        self.evaluate(cx, now);
    }

    pub(crate) fn next_deadline(&self, cx: &Context) -> Time {
        let departing = self.leaving.is_departing();
        [
            cx.detector.next_deadline(),
            cx.lifelines.next_deadline(),
            self.engine.next_deadline().filter(|_| !departing),
            self.nonprimary.next_deadline(cx).filter(|_| !departing),
            self.leaving.next_deadline(),
            Some(self.next_seek),
        ]
        .into_iter()
        .flatten()
        .fold(self.next_heartbeat, Time::min)
    }

    /// The weight of the primary view.
    pub(crate) fn weight(&self) -> u32 {
        self.view.voters().members.iter().map(|(_, weight)| *weight).sum()
    }

    /// A member's departure as a view records it.
    pub(crate) fn departure(
        &self,
        cx: &Context,
        now: Time,
        member: Incarnation,
        cause: Cause,
    ) -> Option<Departure> {
        let member = self.view.member(member)?.clone();
        // A view must stay small: eight witnesses are enough to answer why.
        let mut accusers = cx.detector.accusers(now, member.incarnation);
        accusers.truncate(8);
        if let Cause::Unreachable { from } = cause
            && accusers.is_empty()
            && let Some(doubt) = cx.detector.doubt(member.incarnation, from)
        {
            // Only the one that goes could not hear the other: the pair is the witness.
            accusers.push(antiphon_wire::Accusation {
                accuser: from,
                evidence: doubt.evidence.clone(),
                before_ms: u32::try_from(now.since(doubt.since).as_millis()).unwrap_or(u32::MAX),
            });
        }
        Some(Departure {
            member,
            cause,
            accusers,
        })
    }
}

/// The view as the layers above see it.
fn announced(view: &Arc<NodeView>) -> Arc<NodeView> {
    if planted!(ReuseViewId) && !view.departed.is_empty() {
        // R5: an id is never used for two member lists.
        let mut reused = (**view).clone();
        let id = view.primary_id();
        let counter = id.counter.saturating_sub(1);
        reused.id = antiphon_wire::NodeViewId::Primary {
            id: ViewId {
                epoch: id.epoch,
                counter,
            },
        };
        return Arc::new(reused);
    }
    view.clone()
}
