//! The attempts of a component without a quorum to agree on its members, on top of the last primary view.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Accusation, Cause, Departure, Evidence, Incarnation, NodeView, NodeViewId, ViewId};

use crate::Time;
use crate::membership::change::parts;
use crate::membership::context::Context;
use crate::membership::effect::Effect;
use crate::membership::monitor::ranks::Ranks;

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
    pub(crate) attempt: u32,
    pub(crate) base: ViewId,
    view: NodeView,
    question: MembershipMessage,
    pub(crate) gathered: BTreeSet<Incarnation>,
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
pub(crate) struct Agreed {
    pub(crate) base: ViewId,
    pub(crate) attempt: u32,
    pub(crate) proposer: Incarnation,
    pub(crate) view: NodeView,
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
    pub(crate) agreed: Option<Agreed>,
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
        self.follow();
        self.complaint = None;
    }

    /// Another member coordinates.
    pub(crate) fn follow(&mut self) {
        self.gathering = None;
        self.lost = None;
    }

    /// The attempt of the view installed; 0 without one.
    fn installed(&self) -> u32 {
        self.view.as_ref().map_or(0, |view| attempt_of(view))
    }

    /// The component has no quorum, and another member coordinates it: this node complains to that
    /// coordinator when it is time.
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
        let view = match parts::compose(cx, now, primary, component) {
            Some(view) => {
                parts::acknowledged(cx, &view);
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

    /// Says yes to a proposal, unless there was a later one. If it is asked again, it says yes again.
    pub(crate) fn agree(&mut self, agreed: Agreed) -> bool {
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

    /// A member says yes to an attempt. Returns the view if that was the last yes needed.
    pub(crate) fn gathered(
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
    pub(crate) fn refused(&mut self, cx: &mut Context, now: Time, by: Incarnation, attempt: u32) {
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

    /// The highest attempt seen for the present primary view.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    pub(crate) fn install(&mut self, cx: &mut Context, now: Time, view: NodeView) {
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

/// Suspicions come in a burst, and one view should cover all of them. Under `any` a separation costs the
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

/// The question in a wide view: it names the members that stay by their ranks.
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
        // Nobody here doubts a member that is heard, but it may have a component of its own because it does
        // not hear this node.
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

/// The same, with the proposer as the accuser of all others: so all members that have the base compose the
/// same view.
pub(crate) fn compose_by_word(
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
