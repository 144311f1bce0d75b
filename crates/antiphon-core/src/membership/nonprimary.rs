//! Non-primary views: a component without a quorum agrees on who is in it (R6).
//!
//! ```text
//!   coordinator of the component            its other members
//!   Gather(base, attempt, members) ───────► same base, attempt above all seen, no quorum here either?
//!                       ◄── Gathered ──────   yes
//!                       ◄── Scatter ───────   no: restart with a higher attempt
//!   all acknowledged: install, Assemble ──► install
//! ```
//!
//! Such a view consumes no counter, decides nothing and promotes nobody: it lies on top of the last primary
//! view, and the slot after that one is retried as soon as a quorum can be heard again. A component of one
//! installs itself.
//!
//! Under the policy `any` the same messages agree on a view that is primary, of a lineage of its own
//! ([`super::separation`]).
//!
//! In a wide view nothing but ranks is asked ([`MembershipMessage::GatherRanks`]): both sides have the base.
//! A whole view to each of a thousand, with all who departed and their accusers, is more than a link takes
//! before the pause is over, and the next is asked for. There whoever gathers is the only accuser.
//!
//! Who does not answer is asked again, for the same view: a new one at each question would void every answer
//! that takes longer than the pause between two. Another attempt follows when the component is another one,
//! or somebody says no.
//!
//! If a member dies before all acknowledged, the others doubt it in time and a higher attempt follows without
//! it. If the coordinator dies after some installed, the next coordinator of the component gathers again.
//!
//! # When members disagree
//!
//! A member may install another view than its coordinator, and hear it again: it was alone with its doubts
//! for a while, or said yes to two in a row and follows the later one. The coordinator sees nothing of that:
//! its own view is that of its component. So whoever is not in the view that it hears, and does not
//! coordinate, says so after a while: a Scatter with the highest attempt that it has seen. If that is above
//! the view's, the coordinator (or whoever takes it for one, who passes it on) does not take the view for
//! settled, and gathers anew, above that attempt. And a coordinator gathers nobody who says that it does not
//! hear it: that one has a component of its own.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{
    Accusation, Cause, Departure, Evidence, Incarnation, Lineage, NodeView, NodeViewId, ViewId,
};

use super::check;
use super::context::Context;
use super::cut::ranks::Ranks;
use super::separation;
use super::{Effect, seat::Seat};
use crate::Time;

/// Who does not answer is asked again after one heartbeat, and then after twice as long each time, so often.
const MOST_PATIENT: u32 = 3;
/// Who is not in the view that it hears says so again after twice as many heartbeats as the last time, up to
/// this power of two.
const MOST_COMPLAINTS: u32 = 7;
/// A refusal raises the attempts by so many at most: a member that lies must not use them up.
const MAX_ATTEMPTS_AHEAD: u32 = 1 << 10;
/// Attempts rise by one, so no node of this program gets this far. Above the last number there is no other,
/// and a node would use that for two views (R5).
const MAX_ATTEMPT: u32 = u32::MAX / 2;

/// The attempt this node proposes.
#[derive(Debug)]
struct Gathering {
    attempt: u32,
    base: ViewId,
    view: NodeView,
    question: MembershipMessage,
    gathered: BTreeSet<Incarnation>,
    retry: Time,
    /// How often those who have not answered were asked again.
    reminded: u32,
}

impl Gathering {
    /// Asks all who have not answered yet, the more patiently the longer that takes: a yes counts however
    /// late it comes. Not again whoever has not taken yet what it was sent before.
    fn ask(&mut self, cx: &mut Context, now: Time) {
        for member in self.view.members.iter().map(|member| member.incarnation) {
            let has_it = self.reminded > 0 && cx.crowded.contains(&member);
            if !self.gathered.contains(&member) && !has_it {
                cx.send(member, self.question.clone());
            }
        }
        let pause = cx.config.profile.heartbeat * (1 << self.reminded.min(MOST_PATIENT));
        self.retry = now + cx.jitter(pause);
        self.reminded = self.reminded.saturating_add(1);
    }
}

/// A proposal to which this node said yes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) base: ViewId,
    pub(super) attempt: u32,
    pub(super) proposer: Incarnation,
    pub(super) view: NodeView,
}

/// What lies on top of the last primary view.
#[derive(Debug, Default)]
pub(crate) struct Nonprimary {
    /// The non-primary view installed.
    view: Option<Arc<NodeView>>,
    /// When the first one since the last primary view was.
    since: Option<Time>,
    gathering: Option<Gathering>,
    /// The proposal this node said yes to last.
    pub(super) agreed: Option<Agreed>,
    /// The highest attempt seen for the present primary view.
    attempt: u32,
    /// Since when there is no quorum, or since when the component is another one.
    lost: Option<Time>,
    /// After a refusal: not before then.
    pause: Option<Time>,
    /// Somebody has seen a higher attempt than that of the view installed here.
    disputed: bool,
    /// When the coordinator is told next that this member is not in the view that it hears, and how often it
    /// was.
    complaint: Option<(Time, u32)>,
}

impl Nonprimary {
    /// The non-primary view installed, if any.
    pub(crate) fn view(&self) -> Option<&Arc<NodeView>> {
        self.view.as_ref()
    }

    /// Since when this node is in no primary view.
    pub(crate) fn since(&self) -> Option<Time> {
        self.since
    }

    /// A quorum can be heard: nothing to gather.
    pub(crate) fn calm(&mut self) {
        self.follow();
        self.complaint = None;
    }

    /// Another member coordinates.
    fn follow(&mut self) {
        self.gathering = None;
        self.lost = None;
    }

    /// The attempt of the view installed; none is 0.
    fn installed(&self) -> u32 {
        self.view.as_ref().map_or(0, |view| attempt_of(view))
    }

    /// The component has no quorum, and another member coordinates it: what to tell that one, when it is
    /// time.
    pub(crate) fn complain(
        &mut self,
        cx: &mut Context,
        now: Time,
        primary: &NodeView,
        (component, coordinator): (&BTreeSet<Incarnation>, Incarnation),
    ) {
        let members = self.view.iter().flat_map(|view| &view.members);
        let fits = members
            .map(|member| member.incarnation)
            .eq(in_order(primary, component));
        // What it said yes to is under way, if nobody has gone meanwhile.
        let waits = self
            .agreed
            .as_ref()
            .is_some_and(|agreed| agreed.proposer == coordinator);
        let content = (fits && !self.disputed) || self.attempt == 0 || planted!(SettleApart);
        if content {
            self.complaint = None;
            return;
        }
        let heartbeat = cx.config.profile.heartbeat;
        let first = settles(cx) + heartbeat * if waits { 8 } else { 1 };
        let (due, said) = *self.complaint.get_or_insert((now + first, 0));
        if now >= due {
            // Not so often that what it leads to could be overtaken by the next one, however long messages
            // take.
            let pause = cx.jitter(heartbeat * (4 << said.min(MOST_COMPLAINTS)));
            self.complaint = Some((now + pause, said.saturating_add(1)));
            self.disputed = false;
            let (base, attempt) = (primary.primary_id(), self.attempt);
            cx.send(coordinator, MembershipMessage::Scatter { base, attempt });
        }
    }

    /// The component has no quorum, and this node is its coordinator.
    pub(crate) fn tend(
        &mut self,
        cx: &mut Context,
        now: Time,
        primary: &NodeView,
        component: &BTreeSet<Incarnation>,
        wide: bool,
    ) -> Option<NodeView> {
        self.complaint = None;
        let installed = self.view.as_ref().filter(|_| !self.disputed);
        if installed.is_some_and(|view| {
            view.members
                .iter()
                .map(|m| m.incarnation)
                .eq(in_order(primary, component))
        }) {
            self.calm();
            return None;
        }
        let lost = *self.lost.get_or_insert(now);
        let settled = lost + settles(cx);
        if now < settled || self.pause.is_some_and(|pause| now < pause) {
            return None;
        }
        let same = |gathering: &&mut Gathering| {
            let members = gathering.view.members.iter().map(|member| member.incarnation);
            gathering.base == primary.primary_id() && members.eq(in_order(primary, component))
        };
        if let Some(gathering) = self.gathering.as_mut().filter(same) {
            if now >= gathering.retry {
                gathering.ask(cx, now);
            }
            return None;
        }
        self.attempt = self.attempt.saturating_add(1);
        let attempt = self.attempt;
        let view = match separation::compose(cx, now, primary, component) {
            Some(view) => {
                separation::acknowledged(cx, &view);
                self.agreed = None;
                view
            }
            None if wide => compose_by_word(primary, component, (cx.me, attempt), for_ms(now, lost)),
            None => compose(cx, now, primary, component, attempt),
        };
        let question = if wide {
            by_rank(primary, &view, attempt, for_ms(now, lost))
        } else if view.is_primary() {
            let view = Box::new(view.clone());
            MembershipMessage::Separate { attempt, view }
        } else {
            MembershipMessage::Gather(Box::new(view.clone()))
        };
        let gathering = self.gathering.insert(Gathering {
            attempt,
            base: primary.primary_id(),
            view,
            question,
            gathered: BTreeSet::from([cx.me]),
            retry: now,
            reminded: 0,
        });
        gathering.ask(cx, now);
        self.conclude(cx)
    }

    /// The view gathered, if all have acknowledged it: the others are told.
    fn conclude(&mut self, cx: &mut Context) -> Option<NodeView> {
        let all = |gathering: &mut Gathering| {
            gathering
                .view
                .members
                .iter()
                .all(|member| gathering.gathered.contains(&member.incarnation))
                || (planted!(SeparateUnacknowledged) && gathering.view.is_primary())
        };
        let Gathering {
            view, base, attempt, ..
        } = self.gathering.take_if(all)?;
        let me = cx.me;
        for member in view.members.iter().filter(|member| member.incarnation != me) {
            cx.send(member.incarnation, MembershipMessage::Assemble { base, attempt });
        }
        Some(view)
    }

    /// Says yes to a proposal, unless there was a later one; again, if it is asked again.
    pub(super) fn agree(&mut self, agreed: Agreed) -> bool {
        if self.agreed.as_ref() == Some(&agreed) {
            return true;
        }
        if agreed.attempt <= self.attempt || agreed.attempt > MAX_ATTEMPT {
            return false;
        }
        self.attempt = agreed.attempt;
        self.gathering = None;
        self.agreed = Some(agreed);
        true
    }

    /// The highest attempt seen for the present primary view.
    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(super) fn install(&mut self, cx: &mut Context, now: Time, view: NodeView) {
        // Of a proposal with a lower attempt than one that was agreed to since, nothing is kept.
        let attempt = attempt_of(&view);
        assert!(
            view.contains(cx.me) && attempt > self.installed() && attempt <= self.attempt || planted!(),
            "R6: {:?} installs {} after attempt {}, and has seen {}",
            cx.me,
            view.id,
            self.installed(),
            self.attempt
        );
        self.since.get_or_insert(now);
        self.lost = None;
        self.agreed = None;
        self.disputed = false;
        self.complaint = None;
        let view = Arc::new(view);
        self.view = Some(view.clone());
        cx.effects.push_back(Effect::Installed(view));
    }

    pub(crate) fn next_deadline(&self, cx: &Context) -> Option<Time> {
        let settled = self.lost.map(|lost| lost + settles(cx));
        let started = self.gathering.as_ref().map(|gathering| gathering.retry);
        let tends = started
            .or(settled)
            .max(self.pause.filter(|_| self.lost.is_some()));
        let complains = self.complaint.map(|(due, _)| due);
        [tends, complains].into_iter().flatten().min()
    }
}

impl Seat {
    /// Without a quorum a component agrees on who is in it.
    pub(super) fn tend_component(
        &mut self,
        cx: &mut Context,
        now: Time,
        quorum: bool,
        coordinator: Incarnation,
    ) {
        if quorum || cx.fate.is_some() {
            return self.nonprimary.calm();
        }
        let (view, component) = (self.view.clone(), self.component(cx));
        let coordinator = if component.contains(&coordinator) {
            coordinator
        } else {
            self.coordinator(cx, &component)
        };
        if coordinator != cx.me {
            self.nonprimary.follow();
            self.nonprimary
                .complain(cx, now, &view, (&component, coordinator));
            return;
        }
        component.iter().for_each(|member| self.reach(cx, *member));
        let wide = self.wide.is_some();
        if let Some(view) = self.nonprimary.tend(cx, now, &view, &component, wide) {
            self.assembled(cx, now, view);
        }
    }

    /// Whom this node hears, but for those who say that they do not hear it: they have a component of their
    /// own, and would acknowledge nothing.
    fn component(&self, cx: &Context) -> BTreeSet<Incarnation> {
        let mut component = self.reachable(cx);
        if !cx.any() && self.wide.is_none() && cx.detector.has_doubts() {
            component.retain(|member| *member == cx.me || !cx.detector.doubted_by(*member).contains(&cx.me));
        }
        component
    }

    /// Messages about non-primary views.
    pub(crate) fn handle_nonprimary(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        message: MembershipMessage,
    ) {
        match message {
            MembershipMessage::Gather(view) => self.on_gather(cx, now, sender, *view),
            MembershipMessage::Gathered { base, attempt } => {
                let Some(gathering) = &mut self.nonprimary.gathering else {
                    return;
                };
                if (gathering.base, gathering.attempt) == (base, attempt) {
                    gathering.gathered.insert(sender);
                    if let Some(view) = self.nonprimary.conclude(cx) {
                        self.assembled(cx, now, view);
                    }
                }
            }
            MembershipMessage::Scatter { base, attempt } => {
                if base == self.view.primary_id() {
                    let most = self.nonprimary.attempt.saturating_add(MAX_ATTEMPTS_AHEAD);
                    let told = attempt.min(most).min(MAX_ATTEMPT);
                    self.nonprimary.attempt = self.nonprimary.attempt.max(told);
                    let own = self.nonprimary.gathering.as_ref();
                    // It said yes already: what it complains of is on its way to be mended.
                    if own.is_some_and(|own| own.gathered.contains(&sender) && attempt <= own.attempt) {
                        return;
                    }
                    self.nonprimary.disputed |=
                        self.nonprimary.view.is_some() && attempt > self.nonprimary.installed();
                    self.nonprimary.gathering = None;
                    let pause = now + cx.jitter(cx.config.profile.heartbeat / 2);
                    self.nonprimary.pause = Some(pause);
                } else if base > self.view.primary_id() {
                    self.pull(cx, now, sender);
                }
            }
            MembershipMessage::Assemble { base, attempt } => {
                let agreed = self.nonprimary.agreed.take_if(|agreed| {
                    (agreed.base, agreed.attempt, agreed.proposer) == (base, attempt, sender)
                });
                if let Some(agreed) = agreed.filter(|agreed| agreed.base == self.view.primary_id()) {
                    self.assembled(cx, now, agreed.view);
                }
            }
            MembershipMessage::Separate { attempt, view } => {
                self.on_separate(cx, now, sender, attempt, *view);
            }
            MembershipMessage::GatherRanks {
                lineage,
                base,
                attempt,
                for_ms,
                by,
            } => {
                if let Some(stay) = self.stay(cx, now, sender, (lineage, base, attempt), by) {
                    let view = compose_by_word(&self.view, &stay, (sender, attempt), for_ms);
                    self.on_gather(cx, now, sender, view);
                }
            }
            MembershipMessage::SeparateRanks {
                lineage,
                base,
                attempt,
                into,
                number,
                by,
            } => {
                if let Some(stay) = self.stay(cx, now, sender, (lineage, base, attempt), by)
                    && let Some(view) =
                        separation::part_of(&self.view, into, number, |member| stay.contains(&member))
                {
                    self.on_separate(cx, now, sender, attempt, view);
                }
            }
            _ => {}
        }
    }

    /// Who stays by the ranks of a proposal, if it is based on the view that is installed here. Else it is
    /// answered.
    fn stay(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        (lineage, base, attempt): (Lineage, ViewId, u32),
        by: Vec<u8>,
    ) -> Option<BTreeSet<Incarnation>> {
        let (mine, by) = (self.view.primary_id(), Ranks::from_wire(by));
        if lineage != self.view.lineage || !by.are_within(self.view.members.len()) {
            return None;
        }
        if base != mine {
            if base > mine {
                self.pull(cx, now, sender);
            }
            self.answer_gathering(cx, sender, (base, attempt), false);
            return None;
        }
        let members = self.view.members.iter().enumerate();
        let stay = members.filter(|(rank, _)| by.contains(*rank));
        Some(stay.map(|(_, member)| member.incarnation).collect())
    }

    fn on_gather(&mut self, cx: &mut Context, now: Time, sender: Incarnation, view: NodeView) {
        let NodeViewId::NonPrimary {
            base,
            attempt,
            proposer,
        } = view.id
        else {
            return;
        };
        let mine = self.view.primary_id();
        let sound = check::view_is_sound(&view)
            && view.lineage == self.view.lineage
            && view.number == self.view.number
            && proposer == sender
            && view.contains(sender)
            && view.contains(cx.me);
        if !sound {
            return;
        }
        if base > mine {
            self.pull(cx, now, sender);
        }
        let ours = view
            .members
            .iter()
            .all(|member| self.view.member(member.incarnation) == Some(member));
        // Who could help to a quorum does not settle for less.
        let reachable = self.reachable(cx);
        let content = !self.has_quorum(cx, now, &reachable);
        let agreed = Agreed {
            base,
            attempt,
            proposer,
            view,
        };
        if !content && base == mine {
            self.called_by_gathering(cx, now);
        }
        let agrees = base == mine && ours && content && self.nonprimary.agree(agreed);
        self.answer_gathering(cx, sender, (base, attempt), agrees);
    }

    /// Answers a proposal.
    pub(super) fn answer_gathering(
        &mut self,
        cx: &mut Context,
        to: Incarnation,
        (base, attempt): (ViewId, u32),
        agrees: bool,
    ) {
        let answer = if agrees {
            MembershipMessage::Gathered { base, attempt }
        } else {
            MembershipMessage::Scatter {
                base: self.view.primary_id(),
                attempt: self.nonprimary.attempt(),
            }
        };
        cx.send(to, answer);
    }

    /// All have acknowledged this view.
    pub(super) fn assembled(&mut self, cx: &mut Context, now: Time, view: NodeView) {
        if view.is_primary() {
            self.separate(cx, now, view);
        } else {
            let mine = self.view.primary_id();
            assert!(
                matches!(view.id, NodeViewId::NonPrimary { base, .. } if base == mine) || planted!(),
                "R6: {} is installed on top of {mine}",
                view.id
            );
            self.nonprimary.install(cx, now, view);
        }
    }
}

/// Suspicions come in a burst; one view for all of them. Where it costs the members what the others have,
/// they are given more time.
fn settles(cx: &Context) -> Duration {
    let heartbeat = cx.config.profile.heartbeat;
    if cx.any() { heartbeat * 2 } else { heartbeat / 2 }
}

/// The attempt of a non-primary view; of another one 0.
fn attempt_of(view: &NodeView) -> u32 {
    match view.id {
        NodeViewId::NonPrimary { attempt, .. } => attempt,
        NodeViewId::Primary { .. } => 0,
    }
}

fn in_order(primary: &NodeView, component: &BTreeSet<Incarnation>) -> impl Iterator<Item = Incarnation> {
    primary
        .members
        .iter()
        .map(|member| member.incarnation)
        .filter(|member| component.contains(member))
}

/// The question of a wide view: who stays, by rank.
fn by_rank(primary: &NodeView, view: &NodeView, attempt: u32, for_ms: u32) -> MembershipMessage {
    let ranks = view
        .members
        .iter()
        .filter_map(|member| primary.rank(member.incarnation));
    let by = ranks.collect::<Ranks>().into_wire();
    let (lineage, base) = (primary.lineage, primary.primary_id());
    if view.is_primary() {
        MembershipMessage::SeparateRanks {
            lineage,
            base,
            attempt,
            into: view.lineage,
            number: view.number,
            by,
        }
    } else {
        MembershipMessage::GatherRanks {
            lineage,
            base,
            attempt,
            for_ms,
            by,
        }
    }
}

fn for_ms(now: Time, since: Time) -> u32 {
    u32::try_from(now.since(since).as_millis()).unwrap_or(u32::MAX)
}

fn compose(
    cx: &Context,
    now: Time,
    primary: &NodeView,
    component: &BTreeSet<Incarnation>,
    attempt: u32,
) -> NodeView {
    let accusers = |member: Incarnation| {
        let accusers = cx.detector.accusers(now, member).into_iter();
        let mut accusers: Vec<Accusation> = accusers.take(8).collect();
        // Nobody here doubts one that is heard, and has a component of its own because it does not hear this
        // node.
        if let Some(doubt) = cx.detector.doubt(member, cx.me)
            && accusers.is_empty()
            && !planted!(PartUnaccused)
        {
            accusers.push(Accusation {
                accuser: cx.me,
                evidence: Evidence::Deaf,
                before_ms: for_ms(now, doubt.since),
            });
        }
        accusers
    };
    composed(primary, component, (cx.me, attempt), accusers)
}

/// The same where whoever proposes it is the accuser of all others: the same view at all who have the base.
fn compose_by_word(
    primary: &NodeView,
    component: &BTreeSet<Incarnation>,
    (proposer, attempt): (Incarnation, u32),
    for_ms: u32,
) -> NodeView {
    let says = Accusation {
        accuser: proposer,
        evidence: Evidence::Silent { for_ms },
        before_ms: 0,
    };
    composed(primary, component, (proposer, attempt), |_| vec![says.clone()])
}

fn composed(
    primary: &NodeView,
    component: &BTreeSet<Incarnation>,
    (proposer, attempt): (Incarnation, u32),
    accusers: impl Fn(Incarnation) -> Vec<Accusation>,
) -> NodeView {
    let base: ViewId = primary.primary_id();
    let (members, gone): (Vec<_>, Vec<_>) = primary
        .members
        .iter()
        .cloned()
        .partition(|member| component.contains(&member.incarnation));
    let departed = gone
        .into_iter()
        .map(|member| Departure {
            accusers: accusers(member.incarnation),
            member,
            cause: Cause::Crashed,
        })
        .collect();
    NodeView {
        lineage: primary.lineage,
        id: NodeViewId::NonPrimary {
            base,
            attempt,
            proposer,
        },
        number: primary.number,
        members,
        joined: Vec::new(),
        departed,
        merged: Vec::new(),
        wire_level: primary.wire_level,
    }
}
