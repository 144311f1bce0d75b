//! Non-primary views: a component without a quorum agrees on its members (R6).
//!
//! ```text
//!   coordinator of the component            its other members
//!   Gather(base, attempt, members) ───────► same base, attempt above all seen, no quorum here either?
//!                       ◄── Gathered ──────   yes
//!                       ◄── Scatter ───────   no: restart with a higher attempt
//!   all acknowledged: install, Assemble ──► install
//! ```
//!
//! Such a view consumes no counter, decides nothing and promotes nobody. It lies on top of the last primary
//! view, and the slot after that view is retried as soon as a quorum can be heard again. A component of one
//! member installs its view by itself.
//!
//! Under the policy `any` the same messages agree on a view that is primary, in a lineage of its own
//! ([`split`]).
//!
//! In a wide view the question names ranks only ([`MembershipMessage::GatherRanks`]), since both sides have
//! the base. A whole view for each of a thousand members, with all departed members and their accusers, is
//! more than a channel takes before the pause is over and the next question is due. In a wide view the member
//! that gathers is the only accuser.
//!
//! A member that does not answer is asked again, for the same view. A new view at each question would void
//! every answer that takes longer than the pause between two questions. Another attempt follows when the
//! component has changed, or a member says no.
//!
//! If a member dies before all acknowledged, the others doubt it in time, and a higher attempt follows
//! without it. If the coordinator dies after some members installed, the next coordinator of the component
//! gathers again.
//!
//! # When members disagree
//!
//! A member may install another view than its coordinator, and then hear the coordinator again. Either the
//! member was alone with its doubts for a while, or it said yes to two proposals in a row and follows the
//! later one. The coordinator sees nothing of that: its own view fits its component. So a member that does
//! not coordinate, and whose view does not fit the members that it hears, says so after a while. It sends a
//! Scatter with the highest attempt that it has seen. If that attempt is above that of the coordinator's
//! view, the coordinator no longer takes the view for settled, and gathers anew, above that attempt. A member
//! that is wrongly taken for the coordinator passes the word on. And a coordinator does not gather a member
//! that says that it does not hear the coordinator: that member has a component of its own.
//!
//! [`split`]: crate::membership::partition::split

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, LineageMark, NodeView, NodeViewId, ViewId};

use crate::Time;
use crate::membership::context::Context;
use crate::membership::effect::Effect;
use crate::membership::partition::proposal::{Proposal, by_rank, compose, compose_by_word, for_ms};
use crate::membership::partition::split;

/// If a member does not answer, the proposer asks it again after one heartbeat. Each further pause is twice
/// as long, with at most so many doublings.
const MOST_PATIENT: u32 = 3;
/// A member whose view does not fit the members that it hears complains again after twice as many heartbeats
/// as the last time, up to this power of two.
const MOST_COMPLAINTS: u32 = 7;

/// A refusal raises the attempt by so much at most: a member that lies must not use up the numbers.
const MAX_ATTEMPTS_AHEAD: u32 = 1 << 10;
/// Attempts rise by one, so no node of this program gets this far. There is no number above the last one, so
/// a node would use that one for two views (R5).
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
    /// How often the members that have not answered were asked again.
    reminded: u32,
}

impl Gathering {
    /// Asks all members that have not answered yet. The longer that takes, the longer the pauses: a yes
    /// counts however late it comes. A member that has not yet taken what it was sent before is not asked
    /// again.
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
struct Agreed {
    base: ViewId,
    attempt: u32,
    proposer: Incarnation,
    view: NodeView,
}

/// What a message of another member means for this node.
#[derive(Debug)]
pub(crate) enum Heard {
    Nothing,
    /// The sender has a later view.
    Behind,
    /// The sender waits for an answer ([`Nonprimary::answer`]).
    Proposed(Proposal),
    /// All members of this view have acknowledged it.
    Assembled(NodeView),
}

/// The non-primary views on top of the last primary view.
#[derive(Debug, Default)]
pub(crate) struct Nonprimary {
    /// The non-primary view installed.
    view: Option<Arc<NodeView>>,
    /// When the first non-primary view since the last primary view was installed.
    since: Option<Time>,
    gathering: Option<Gathering>,
    /// The last proposal to which this node said yes.
    agreed: Option<Agreed>,
    /// The highest attempt seen for the present primary view.
    attempt: u32,
    /// Since when there is no quorum, or since when the component has other members.
    lost: Option<Time>,
    /// After a refusal: no new attempt before then.
    pause: Option<Time>,
    /// A member has seen a higher attempt than that of the view installed here.
    disputed: bool,
    /// When this member next complains to the coordinator that its view does not fit the members that it
    /// hears, and how often it did.
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

    /// A quorum can be heard, so there is nothing to gather.
    pub(crate) fn calm(&mut self) {
        self.rest();
        self.complaint = None;
    }

    fn rest(&mut self) {
        self.gathering = None;
        self.lost = None;
    }

    /// The attempt of the view installed; 0 without one.
    fn installed(&self) -> u32 {
        self.view.as_ref().map_or(0, |view| attempt_of(view))
    }

    /// The component has no quorum, and another member coordinates it: this node complains to that
    /// coordinator when it is time.
    pub(crate) fn follow(
        &mut self,
        cx: &mut Context,
        now: Time,
        primary: &NodeView,
        (component, coordinator): (&BTreeSet<Incarnation>, Incarnation),
    ) {
        self.rest();
        let members = self.view.iter().flat_map(|view| &view.members);
        let fits = members
            .map(|member| member.incarnation)
            .eq(in_order(primary, component));
        // The view that this node said yes to is under way, if nobody has gone meanwhile.
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
            // The pause grows, so that the next complaint cannot overtake what this one leads to, however
            // long messages take.
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
        by_word: bool,
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
        let view = match split::compose(cx, now, primary, component) {
            Some(view) => {
                split::acknowledged(cx, &view);
                self.agreed = None;
                view
            }
            None if by_word => compose_by_word(primary, component, (cx.me, attempt), for_ms(now, lost)),
            None => compose(cx, now, primary, component, attempt),
        };
        let question = if by_word {
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

    /// The view gathered, if all its members have acknowledged it; the others are told.
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
        // A later proposal ends this node's own attempt, be it seen or agreed to.
        assert!(
            attempt == self.attempt && (!view.is_primary() || self.agreed.is_none()) || planted!(),
            "R6: {:?} concludes its attempt {attempt} at {}, has seen {}, and said yes to {:?}",
            cx.me,
            view.id,
            self.attempt,
            self.agreed
        );
        let me = cx.me;
        for member in view.members.iter().filter(|member| member.incarnation != me) {
            cx.send(member.incarnation, MembershipMessage::Assemble { base, attempt });
        }
        Some(view)
    }

    /// A message of another member of the primary view about this node's component.
    pub(crate) fn hear(
        &mut self,
        cx: &mut Context,
        now: Time,
        primary: &NodeView,
        sender: Incarnation,
        message: MembershipMessage,
    ) -> Heard {
        let mine = primary.primary_id();
        let assembled = |view: Option<NodeView>| view.map_or(Heard::Nothing, Heard::Assembled);
        match message {
            MembershipMessage::Gathered { base, attempt } => {
                assembled(self.gathered(cx, sender, (base, attempt)))
            }
            MembershipMessage::Scatter { base, attempt } => {
                if base > mine {
                    return Heard::Behind;
                }
                if base == mine {
                    self.refused(cx, now, sender, attempt);
                }
                Heard::Nothing
            }
            MembershipMessage::Assemble { base, attempt } => {
                let agreed = self.agreed.take_if(|agreed| {
                    (agreed.base, agreed.attempt, agreed.proposer) == (base, attempt, sender)
                });
                let agreed = agreed.filter(|agreed| agreed.base == mine);
                assembled(agreed.map(|agreed| agreed.view))
            }
            question => Proposal::read(cx, primary, sender, question).map_or(Heard::Nothing, Heard::Proposed),
        }
    }

    /// A member of this lineage is there already: so it has installed what all acknowledged. Returns that
    /// view if this node said yes to it, in the view that is its last one.
    pub(crate) fn installed_by(
        &mut self,
        primary: &NodeView,
        lineage: LineageMark,
        by: Incarnation,
    ) -> Option<NodeView> {
        let mark = |agreed: &mut Agreed| agreed.view.lineage.mark() == lineage && agreed.view.contains(by);
        let agreed = self.agreed.take_if(mark)?;
        let is_split = agreed.base == primary.primary_id() && agreed.view.is_primary();
        is_split.then_some(agreed.view)
    }

    /// This node's answer to a proposal. `willing`: whether it would settle for what fits.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Context,
        primary: &NodeView,
        proposal: Proposal,
        willing: bool,
    ) -> MembershipMessage {
        let Proposal {
            base,
            attempt,
            proposer,
            ..
        } = proposal;
        let agreed = proposal.view.filter(|_| willing).map(|view| Agreed {
            base,
            attempt,
            proposer,
            view,
        });
        if agreed.is_some_and(|agreed| self.agree(cx, agreed)) {
            return MembershipMessage::Gathered { base, attempt };
        }
        MembershipMessage::Scatter {
            base: primary.primary_id(),
            attempt: self.attempt,
        }
    }

    /// Says yes to a proposal, unless there was a later one. If it is asked again, it says yes again.
    fn agree(&mut self, cx: &mut Context, agreed: Agreed) -> bool {
        let again = self.agreed.as_ref() == Some(&agreed);
        if !again && (agreed.attempt <= self.attempt || agreed.attempt > MAX_ATTEMPT) {
            return false;
        }
        if agreed.view.is_primary() {
            split::acknowledged(cx, &agreed.view);
        }
        if !again {
            self.attempt = agreed.attempt;
            self.gathering = None;
            self.agreed = Some(agreed);
        }
        true
    }

    /// A member says yes to an attempt. Returns the view if that was the last yes needed.
    fn gathered(
        &mut self,
        cx: &mut Context,
        by: Incarnation,
        (base, attempt): (ViewId, u32),
    ) -> Option<NodeView> {
        let gathering = self.gathering.as_mut();
        let gathering = gathering.filter(|own| (own.base, own.attempt) == (base, attempt))?;
        gathering.gathered.insert(by);
        self.conclude(cx)
    }

    /// A member refuses, because it has seen this attempt.
    fn refused(&mut self, cx: &mut Context, now: Time, by: Incarnation, attempt: u32) {
        let most = self.attempt.saturating_add(MAX_ATTEMPTS_AHEAD);
        let told = attempt.min(most).min(MAX_ATTEMPT);
        self.attempt = self.attempt.max(told);
        let own = self.gathering.as_ref();
        // The member said yes to the present attempt already, which mends what it complains of.
        if own.is_some_and(|own| own.gathered.contains(&by) && attempt <= own.attempt) {
            return;
        }
        self.disputed |= self.view.is_some() && attempt > self.installed();
        self.gathering = None;
        let pause = now + cx.jitter(cx.config.profile.heartbeat / 2);
        self.pause = Some(pause);
    }

    /// Installs a non-primary view on top of this primary view.
    pub(crate) fn install(&mut self, cx: &mut Context, now: Time, primary: &NodeView, view: NodeView) {
        let mine = primary.primary_id();
        assert!(
            matches!(view.id, NodeViewId::NonPrimary { base, .. } if base == mine) || planted!(),
            "R6: {} is installed on top of {mine}",
            view.id
        );
        // A proposal with a lower attempt than one that was agreed to since is not kept.
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

/// Suspicions come in a burst, and one view should cover all of them. Under `any` a split costs the
/// members what the others have, so they get more time.
fn settles(cx: &Context) -> Duration {
    let heartbeat = cx.config.profile.heartbeat;
    if cx.any() { heartbeat * 2 } else { heartbeat / 2 }
}

/// The attempt of a non-primary view; 0 for a primary one.
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

/// Of the members that this node hears, those that are its component. A member that says that it does not
/// hear this node has a component of its own, and would acknowledge nothing.
pub(crate) fn component_of(
    cx: &Context,
    mut reachable: BTreeSet<Incarnation>,
    hears_all: bool,
) -> BTreeSet<Incarnation> {
    if !cx.any() && hears_all && cx.detector.has_doubts() {
        reachable.retain(|member| *member == cx.me || !cx.detector.doubted_by(*member).contains(&cx.me));
    }
    reachable
}
