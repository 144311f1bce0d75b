//! A member's seat: the primary view it has installed, and everything it does to get to the next one.
//!
//! Every input changes what this node knows: whom it hears, who leaves, who wants in, who is proven dead.
//! After each, [`Seat::evaluate`] asks again:
//!
//! ```text
//!   reachable = members not doubted            coordinator = the most senior of them that no majority doubts
//!   could the reachable decide?   yes, and I coordinate: wish for the next view ──► engine
//!                                 no,  and I coordinate: gather a non-primary view
//! ```

mod catching_up;
mod components;
mod deaf;
mod dissemination;
mod gossip;
mod heartbeats;
pub(crate) mod inspection;
mod leases;
mod leaving;
mod meeting;
mod merging;
mod proofs;
mod proposal;
mod reconnecting;
mod recovering;
mod rounds;
pub(crate) mod separation;
mod standstill;
mod timers;
mod withdrawals;

use antiphon_wire::membership::{
    Ballot, Change, LifelineRecord, MembershipMessage, Origin, Pulse, SlotId, SlotMessage, VoteState,
};
use antiphon_wire::{Cause, Evidence, Incarnation, NodeView, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::membership::agree::engine::Engine;
use crate::membership::agree::interface::{EngineEffect, Surroundings, Votes};
use crate::membership::agree::{lifelines, slot};
use crate::membership::change::joiners::Joiners;
use crate::membership::change::leaving::Leaving;
use crate::membership::change::merging::Merging;
use crate::membership::change::nonprimary::Nonprimary;
use crate::membership::context::{Context, Fate, Past};
use crate::membership::effect::Effect;
use crate::membership::lease::Lease;
use crate::membership::lease::rounds::{Inherited, Pulses};
use crate::membership::monitor::beyond::Beyond;
use crate::membership::monitor::reachability::Word;
use crate::membership::monitor::report::Report;
use crate::membership::monitor::rings::Rings;
use crate::membership::monitor::topology::{Early, Wide, are_named, rings_of};
use crate::membership::view::check;
use crate::{BallotStep, EngineKind, Event, Time};

/// The state of a member.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The last primary view installed.
    pub(crate) view: Arc<NodeView>,
    pub(crate) engine: Engine,
    pub(crate) nonprimary: Nonprimary,
    pub(crate) merging: Merging,
    /// Whether those whom this node does not doubt could decide the next view, as of the last time that it
    /// was weighed.
    pub(crate) quorum: bool,
    /// Since when this node has accepted a view that was not decided since, and has heard less than a quorum
    /// of that.
    pub(crate) blocked: Option<Time>,
    /// What the lifelines show of this node's vote in the slot: the ballots promised and accepted last.
    pub(crate) shown: (Option<Ballot>, Option<Ballot>),
    pub(crate) reports: BTreeMap<Incarnation, Report>,
    pub(crate) joiners: Joiners,
    pub(crate) leaving: Leaving,
    pub(crate) lease: Lease,
    pub(crate) certificates: BTreeMap<Incarnation, VoteState>,
    /// Who was told again of deaths that it had no proof of, and when last.
    pub(crate) proven_again: BTreeMap<Incarnation, Time>,
    pub(crate) next_heartbeat: Time,
    pub(crate) next_seek: Time,
    pub(crate) next_pull: Time,
    /// When to pull from a member that has a later view, unless it is installed by then.
    pub(crate) pull_at: Option<(Time, Incarnation)>,
    pub(crate) told: BTreeMap<Incarnation, Time>,
    /// Whose pulls were answered, and when: those of a moment ago.
    pub(crate) pulled: BTreeMap<Incarnation, Time>,
    pub(crate) rings: Arc<Rings>,
    /// Whether votes name what changes in the view.
    pub(crate) named: bool,
    /// The leader as of the last time that everything was weighed, in a wide view.
    pub(crate) leader: Option<Incarnation>,
    /// Set in views so large that not all hear all.
    pub(crate) wide: Option<Wide>,
    pub(crate) early: Early,
    /// In views where not all are neighbours, and a tick of the next one.
    pub(crate) pulses: Option<Pulses>,
    pub(crate) early_tick: Option<(Incarnation, Pulse)>,
    pub(crate) beyond: Beyond,
    /// When everything was weighed last, in a wide view, and when to do it again.
    pub(crate) weighed: Time,
    pub(crate) weigh: Option<Time>,
    /// Since when those that are ready to join have waited for others.
    pub(crate) waiting_since: Option<Time>,
    /// Of whom there was word then; `None` if nobody doubted anybody.
    pub(crate) heard_of: Option<Word>,
    /// Members that hear nobody, as of the last time that everything was weighed.
    pub(crate) deaf: BTreeSet<Incarnation>,
}

impl Seat {
    /// The first view of this incarnation.
    pub(crate) fn new(cx: &mut Context, now: Time, view: NodeView) -> Self {
        let view = Arc::new(view);
        let rings = rings_of(cx, &view);
        let mut seat = Self {
            engine: Engine::new(
                cx.config.engine,
                cx.me,
                view.clone(),
                rings.clone(),
                Votes::Whole,
                &cx.config.profile,
            ),
            rings,
            named: false,
            leader: None,
            wide: None,
            early: Early::default(),
            pulses: None,
            early_tick: None,
            beyond: Beyond::default(),
            weighed: Time::ZERO,
            weigh: None,
            waiting_since: None,
            heard_of: None,
            deaf: BTreeSet::new(),
            view: view.clone(),
            nonprimary: Nonprimary::default(),
            merging: Merging::default(),
            quorum: true,
            blocked: None,
            shown: (None, None),
            reports: BTreeMap::new(),
            joiners: Joiners::default(),
            leaving: Leaving::No,
            lease: Lease::new(&cx.config, now),
            certificates: BTreeMap::new(),
            proven_again: BTreeMap::new(),
            next_heartbeat: now,
            next_seek: now,
            next_pull: now,
            pull_at: None,
            told: BTreeMap::new(),
            pulled: BTreeMap::new(),
        };
        seat.install(cx, now, view, None);
        seat
    }

    /// Installs a primary view of which this node is a member.
    pub(crate) fn install(&mut self, cx: &mut Context, now: Time, view: Arc<NodeView>, base: Option<Change>) {
        self.rings = rings_of(cx, &view);
        let rings = self.rings.clone();
        let follows = base.is_some();
        // The first one of this incarnation follows none.
        if !Arc::ptr_eq(&self.view, &view) {
            check::assert_goes_on(cx.me, &self.view, &view, follows);
        }
        self.named = are_named(cx, &view, &rings);
        let inherited = self
            .pulses
            .take()
            .map_or_else(Inherited::default, |pulses| pulses.leaves_behind(&self.view));
        let beyond = std::mem::take(&mut self.beyond);
        if view.members == self.view.members {
            self.beyond = beyond.renewed();
        }
        if view.lineage != self.view.lineage {
            self.lease.begin_lineage();
        }
        self.view = view.clone();
        self.nonprimary = Nonprimary::default();
        self.quorum = true;
        self.blocked = None;
        self.reports.retain(|member, _| view.contains(*member));
        self.told.clear();
        cx.history.push(now, view.clone());
        let was_wide = self.wide.is_some();
        self.leader = None;
        self.weigh = None;
        self.weighed = Time::ZERO;
        self.waiting_since = None;
        self.heard_of = None;
        self.pull_at = None;
        self.wide = Wide::of(cx, now, &view, &rings);
        self.lease.install(now, &view, self.wide.is_some());
        self.pulses = Pulses::of(&cx.config, cx.me, now, &view, &rings, &inherited);
        let wide = self.wide.as_ref();
        let is_near = |member: Incarnation| wide.is_none_or(|wide| wide.is_neighbour(member));
        let members = || view.members.iter().map(|member| member.incarnation);
        let observed: Option<BTreeSet<Incarnation>> =
            wide.map(|_| self.subjects(cx.me).into_iter().collect());
        cx.detector.watch(now, members(), observed.as_ref());
        let contacts = view.members.iter().map(|member| member.addr).collect();
        let (seen, founded_ms) = cx
            .past
            .as_ref()
            .map_or((0, 0), |past| (past.number, past.founded_ms));
        cx.past = Some(Past {
            number: view.number.max(seen),
            founded_ms: view.lineage.founded_ms().max(founded_ms),
            contacts,
            origin: Origin {
                lineage: view.lineage,
                view: view.primary_id(),
            },
            gave_way: None,
        });
        if cx.any() {
            cx.left_behind.note(now, &view);
        }
        cx.remember_override(&view);
        for member in view.members.iter().filter(|member| is_near(member.incarnation)) {
            cx.know_peer(member.incarnation, member.addr);
        }
        let (joiners, leaving) = (&self.joiners, &self.leaving);
        let waiting: BTreeSet<Incarnation> = cx.withdrawn.waiting().collect();
        let is_wide = wide.is_some();
        cx.keep_peers(|peer| {
            let stays = if is_wide {
                is_near(peer)
            } else {
                view.contains(peer)
            };
            stays || joiners.contains(peer) || leaving.waits_for(peer) || waiting.contains(&peer)
        });
        self.joiners
            .expire(cx, now, &view, cx.config.profile.suspect_after * 2);
        if !is_wide {
            self.joiners.ask_anew();
        }
        cx.effects.push_back(Effect::Installed(announced(&view)));
        let mut commands = Vec::new();
        let watchers = lifelines::watchers(&view, cx.me, &rings);
        cx.lifelines.follow(watchers, &mut commands);
        cx.lifeline_commands(commands);
        let votes = if self.named {
            Votes::Named(base.filter(check::change_fits))
        } else {
            Votes::Whole
        };
        let engine = Engine::new(
            cx.config.engine,
            cx.me,
            view.clone(),
            rings.clone(),
            votes,
            &cx.config.profile,
        );
        let before = std::mem::replace(&mut self.engine, engine);
        self.engine.follow(before);
        self.shown = (None, None);
        self.remember_leavers(cx, now);
        self.leave_testament(cx);
        if follows && was_wide {
            self.receive_joiners(cx, &view, &rings);
        }
        // What the others cannot use, since it was voted in the lineage that was left, this node must not
        // count on.
        for (dead, vote) in std::mem::take(&mut self.certificates) {
            if vote.view.lineage() != view.lineage {
                cx.detector.unprove(now, dead);
            } else if view.contains(dead) {
                self.certificates.insert(dead, vote);
            }
        }
        self.proven_again.clear();
        for (dead, vote) in self.certificates.clone() {
            // Who watches it only now did not doubt it before.
            cx.detector.accuse(now, dead, Evidence::ProofOfDeath);
            self.with_engine(cx, now, |engine, around| engine.certify(around, dead, &vote));
            // In the view before not all need have heard of it.
            self.spread_certificate(now, dead, &vote);
        }
        if was_wide && self.wide.is_some() {
            // Heartbeats say nothing there that rumours do not, and if all sent one at once whenever somebody
            // comes or goes, they would be most of what that costs.
            self.opine(cx, now);
        } else {
            self.next_heartbeat = now;
        }
        self.hear_early(cx, now);
        self.hear_early_tick(cx, now);
    }

    /// Members this node does not doubt, itself included.
    pub(crate) fn reachable(&self, cx: &Context) -> BTreeSet<Incarnation> {
        let certified = self.engine.certified();
        let is_reachable = |(member, rank): (Incarnation, usize)| {
            let by_rings = || self.heard_of.as_ref().is_none_or(|word| word.of[rank]);
            let known = self.beyond.answers(member).unwrap_or_else(by_rings);
            let heard = !cx.detector.suspects(member) && !certified.contains(&member);
            (heard && known) || member == cx.me
        };
        // In their order, of which such a set is made soonest.
        let reachable = self.rings.members().filter(|member| is_reachable(*member));
        reachable.map(|(member, _)| member).collect()
    }

    /// Those whom a majority of the weight doubts, of members that this node hears and that have a say.
    fn doubted(
        &self,
        cx: &Context,
        reachable: &BTreeSet<Incarnation>,
        has_a_say: impl Fn(Incarnation) -> bool,
    ) -> BTreeSet<Incarnation> {
        let mut against: BTreeMap<Incarnation, u64> = BTreeMap::new();
        // Asked all the time, and nearly always nobody doubts anybody.
        if !cx.detector.has_doubts() {
            return BTreeSet::new();
        }
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
            .filter(|(accused, against)| self.rings.contains(*accused) && against * 2 > total)
            .map(|(accused, _)| accused)
            .collect()
    }

    /// Members that a majority does not hear, so that one who does has no objection. Who is doubted by a
    /// majority itself has no say: where hardly anybody hears anybody, as in a star of links, it is paths
    /// that are broken, not processes, and the hub, who hears all, must not throw out all the others on their
    /// word. Pairs are broken there. Whom their observers have lost is among them as well: in a wide view
    /// nobody else knows.
    pub(crate) fn outvoted(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        if self.wide.is_some() {
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

    /// Members that their observers have lost beyond doubt, or that are deaf, if this node is primary and
    /// those who are left could decide without them: a half does not throw out the other because paths
    /// between them are bad, and what was said during a partition is old.
    fn lost(&self, reachable: &BTreeSet<Incarnation>) -> BTreeSet<Incarnation> {
        let mut lost: BTreeSet<Incarnation> = self.engine.certain().into_iter().collect();
        lost.extend(&self.deaf);
        if !lost.is_empty() {
            let left: BTreeSet<Incarnation> = reachable.difference(&lost).copied().collect();
            if !self.is_primary() || !self.engine.could_decide(&left) {
                lost.clear();
            }
        }
        lost
    }

    /// Who should propose, as far as this node can tell: not one whom a majority cannot hear, for whatever
    /// reason, nor one whom its observers have lost.
    pub(crate) fn coordinator(&self, cx: &Context, reachable: &BTreeSet<Incarnation>) -> Incarnation {
        let mut doubted: BTreeSet<Incarnation> = if self.wide.is_some() {
            self.engine.unstable().into_iter().collect()
        } else {
            self.doubted(cx, reachable, |_| true)
        };
        doubted.append(&mut self.lost(reachable));
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
        // To weigh a thousand members takes a while; what comes in together is weighed together.
        let next = self.weighed + cx.config.profile.batch;
        if self.wide.is_some() && now < next {
            let sooner = self.weigh.filter(|at| *at > now && *at < next);
            self.weigh = Some(sooner.unwrap_or(next));
            return;
        }
        self.weigh = None;
        if self.wide.is_some() {
            self.weighed = now;
            self.hear_of_others(cx);
            self.look_beyond(cx, now);
        }
        let mut reachable = self.reachable(cx);
        if cx.config.engine == EngineKind::Cut {
            self.with_engine_hearing(cx, now, &reachable, |engine, around| engine.look(around));
        }
        // Reinforcement: what some observers report, the others look at again.
        let mut news = false;
        for member in self.engine.unstable() {
            news |= cx.detector.reinforce(now, member);
        }
        if news {
            self.beat(cx, now);
            reachable = self.reachable(cx);
            self.with_engine_hearing(cx, now, &reachable, |engine, around| engine.look(around));
        }
        self.deaf = self.deaf_by_their_word(cx, now, &reachable);
        let coordinator = self.coordinator(cx, &reachable);
        self.leader = Some(coordinator);
        let quorum = self.has_quorum(cx, now, &reachable);
        self.quorum = quorum;
        if quorum {
            self.merging.hears_quorum();
        }
        self.ask_to_leave(cx, coordinator);
        let leads = coordinator == cx.me && self.engine.could_decide(&reachable);
        let wish = if leads {
            self.wish(cx, now, &reachable)
        } else {
            None
        };
        if leads && !self.joiners.is_empty() {
            self.joiners.probe(cx, now);
        }
        let wish = self.wait_for_joiners(cx, now, wish);
        self.with_engine_hearing(cx, now, &reachable, |engine, around| engine.pursue(around, wish));
        self.tend_component(cx, now, quorum, coordinator);
    }

    /// Lets the engine do something and performs what it wants.
    pub(crate) fn with_engine(
        &mut self,
        cx: &mut Context,
        now: Time,
        action: impl FnOnce(&mut Engine, &mut Surroundings<'_>),
    ) {
        let reachable = self.reachable(cx);
        self.with_engine_hearing(cx, now, &reachable, action);
    }

    /// The same where it was just found who is reachable: in a large view that takes a while.
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
        let (lease, rings, view) = (&self.lease, &self.rings, &self.view);
        let wide = self.wide.is_some();
        let observers = |member| rings.observers_in(view, member).filter(|_| wide).collect();
        let held = |member| lease.holds(now, member, rings.rank(member));
        let counts_dead_from = lease.counts_dead_from().filter(|from| now < *from);
        action(
            &mut self.engine,
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
        let slot = check::slot_after(&self.view);
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                // R2: on the lifelines before any message that carries the vote.
                EngineEffect::Voted => {
                    // R10: first, so that what any lifeline shows the witness has, or nothing.
                    if !planted!(TestamentOfTheInstall) {
                        self.leave_testament(cx);
                    }
                    cx.write_lifelines(&LifelineRecord::Vote(self.engine.vote_state()));
                    self.shown = self.engine.slot().vote().ballots();
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

    /// This node's proposal is decided: tell everyone of both views, and install it.
    fn announce(&mut self, cx: &mut Context, now: Time, next: Arc<NodeView>) {
        let old = self.view.members.iter().map(|member| member.incarnation);
        let new = next.joined.iter().copied();
        let certified = self.engine.certified();
        let wide = self.wide.as_ref();
        let is_near = |to: &Incarnation| wide.is_none_or(|wide| wide.is_neighbour(*to));
        // In wide views whoever installs it tells its neighbours, and confirms it to those who wait to leave;
        // those who join have their observers.
        let to: BTreeSet<Incarnation> = old
            .chain(new.filter(|_| self.wide.is_none()))
            .filter(|to| *to != cx.me && !certified.contains(to) && is_near(to))
            .collect();
        for to in to.iter().filter(|_| self.wide.is_none()) {
            if next.joined.contains(to) {
                self.tell_admission(cx, *to, &next);
            } else {
                cx.send(*to, MembershipMessage::Decide(Box::new((*next).clone())));
            }
        }
        self.depart_after(cx, now, &next, &to);
        self.follow(cx, now, next);
    }

    /// A decided view, from whatever source.
    pub(crate) fn learn(
        &mut self,
        cx: &mut Context,
        now: Time,
        next: Arc<NodeView>,
        from: Option<Incarnation>,
    ) {
        if cx.fate.is_some()
            || next.lineage != self.view.lineage
            || next.primary_id() <= self.view.primary_id()
        {
            return;
        }
        // G18 no view is skipped: a member that is behind pulls those between.
        if next.primary_id() != check::next_id(self.view.primary_id()) {
            // R2: a later view without this incarnation: it was removed somewhere in between.
            if !next.contains(cx.me) {
                self.lose_seat(cx, now, &next);
            } else if let Some(from) = from {
                self.pull(cx, now, from);
            }
            return;
        }
        if check::is_successor(&self.view, &next) {
            self.follow(cx, now, next);
        }
    }

    /// The view that follows this one is decided, and was looked through already.
    pub(crate) fn follow(&mut self, cx: &mut Context, now: Time, next: Arc<NodeView>) {
        if cx.fate.is_some() {
            return;
        }
        self.tell_decision(cx, now, &next);
        self.confirm_to_leavers(cx, &next);
        if next.contains(cx.me) {
            // A node that departs has left by another view of this id. One of the two is a lie.
            if cx.history.latest(next.lineage) >= Some(next.primary_id()) {
                return;
            }
            let base = check::change_of(&self.view, &next);
            self.install(cx, now, next, Some(base));
            self.evaluate(cx, now);
        } else {
            self.lose_seat(cx, now, &next);
        }
    }

    /// This incarnation is not in the view that follows.
    fn lose_seat(&mut self, cx: &mut Context, now: Time, next: &Arc<NodeView>) {
        let departure = next
            .departed
            .iter()
            .find(|departure| departure.member.incarnation == cx.me);
        let cause = departure.map_or(&Cause::Crashed, |departure| &departure.cause);
        if *cause == Cause::Left && self.leaving.is_wanted() {
            return self.gone_from(cx, now, next);
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
                self.learn(cx, now, Arc::new(*view), Some(sender));
            }
            MembershipMessage::Confirm { lineage, view } if lineage == self.view.lineage => {
                self.leaving.confirmed(sender, view);
                if view > self.view.primary_id() && !self.leaving.is_departing() {
                    self.pull_soon(cx, now, sender);
                }
            }
            MembershipMessage::Pull { lineage, after } => self.show_views(cx, now, sender, (lineage, after)),
            MembershipMessage::Certificate(certificate)
                if check::vote_is_sound(&certificate.vote) && self.rings.contains(sender) =>
            {
                self.certify(cx, now, certificate.dead, certificate.vote, false);
            }
            MembershipMessage::JoinReady { nonce } => self.joiners.ready(now, sender, nonce),
            MembershipMessage::Leave => {
                if self.rings.contains(sender) {
                    self.note_leaver(sender);
                } else {
                    self.hear_leaver(cx, now, sender);
                }
            }
            MembershipMessage::Gather(_)
            | MembershipMessage::Gathered { .. }
            | MembershipMessage::Scatter { .. }
            | MembershipMessage::GatherRanks { .. }
            | MembershipMessage::Separate { .. }
            | MembershipMessage::SeparateRanks { .. }
            | MembershipMessage::Assemble { .. }
                if self.rings.contains(sender) =>
            {
                self.handle_nonprimary(cx, now, sender, message);
            }
            MembershipMessage::Rumours {
                lineage,
                view,
                rumours,
            } if lineage == self.view.lineage && self.rings.contains(sender) => {
                self.handle_rumours(cx, now, sender, view, rumours);
            }
            MembershipMessage::Dissolve { into, addr } if self.rings.contains(sender) => {
                self.meet(cx, now, into, addr);
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
                let slot = SlotId {
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

    /// The weight of the primary view.
    pub(crate) fn weight(&self) -> u32 {
        let weights = self.view.members.iter().map(|member| u32::from(member.weight));
        weights.sum()
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
