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
//! Such a view consumes no counter, decides nothing and promotes nobody: it lies on top of the last primary view, and
//! the slot after that one is retried as soon as a quorum can be heard again. A component of one installs itself.
//!
//! If a member dies before all acknowledged, the others doubt it in time and a higher attempt follows without it. If
//! the coordinator dies after some installed, the next coordinator of the component gathers again.

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Cause, Departure, Incarnation, NodeView, NodeViewId, ViewId};

use super::check;
use super::context::Context;
use super::{Effect, seat::Seat};
use crate::Time;

/// The attempt this node proposes.
#[derive(Debug)]
struct Gathering {
    view: NodeView,
    gathered: BTreeSet<Incarnation>,
    retry: Time,
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
    agreed: Option<NodeView>,
    /// The highest attempt seen for the present primary view.
    attempt: u32,
    /// Since when there is no quorum, or since when the component is another one.
    lost: Option<Time>,
    /// After a refusal: not before then.
    pause: Option<Time>,
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
        self.gathering = None;
        self.lost = None;
    }

    /// The component has no quorum, and this node is its coordinator.
    pub(crate) fn tend(
        &mut self,
        cx: &mut Context,
        now: Time,
        primary: &NodeView,
        component: &BTreeSet<Incarnation>,
    ) {
        let installed = self.view.as_ref();
        if installed.is_some_and(|view| {
            view.members
                .iter()
                .map(|m| m.incarnation)
                .eq(in_order(primary, component))
        }) {
            self.calm();
            return;
        }
        // Suspicions come in a burst; one view for all of them.
        let settled = *self.lost.get_or_insert(now) + cx.config.profile.heartbeat / 2;
        if now < settled || self.pause.is_some_and(|pause| now < pause) {
            return;
        }
        if let Some(gathering) = &self.gathering {
            let same = gathering
                .view
                .members
                .iter()
                .map(|m| m.incarnation)
                .eq(in_order(primary, component));
            if same && now < gathering.retry {
                return;
            }
        }
        self.attempt = self.attempt.saturating_add(1);
        let view = compose(cx, now, primary, component, self.attempt);
        let others: Vec<Incarnation> = component
            .iter()
            .copied()
            .filter(|member| *member != cx.me)
            .collect();
        for to in &others {
            cx.send(*to, MembershipMessage::Gather(Box::new(view.clone())));
        }
        let retry = now + cx.jitter(cx.config.profile.heartbeat);
        self.gathering = Some(Gathering {
            view,
            gathered: BTreeSet::from([cx.me]),
            retry,
        });
        self.conclude(cx, now);
    }

    fn conclude(&mut self, cx: &mut Context, now: Time) {
        let all = |gathering: &mut Gathering| {
            gathering
                .view
                .members
                .iter()
                .all(|member| gathering.gathered.contains(&member.incarnation))
        };
        let Some(Gathering { view, .. }) = self.gathering.take_if(all) else {
            return;
        };
        let me = cx.me;
        for member in view.members.iter().filter(|member| member.incarnation != me) {
            let message = MembershipMessage::Assemble {
                base: view.primary_id(),
                attempt: attempt_of(&view),
            };
            cx.send(member.incarnation, message);
        }
        self.install(cx, now, view);
    }

    fn install(&mut self, cx: &mut Context, now: Time, view: NodeView) {
        self.since.get_or_insert(now);
        self.lost = None;
        self.agreed = None;
        let view = Arc::new(view);
        self.view = Some(view.clone());
        cx.effects.push_back(Effect::Installed(view));
    }

    pub(crate) fn next_deadline(&self, cx: &Context) -> Option<Time> {
        let settled = self.lost.map(|lost| lost + cx.config.profile.heartbeat / 2);
        let started = self.gathering.as_ref().map(|gathering| gathering.retry);
        started
            .or(settled)
            .max(self.pause.filter(|_| self.lost.is_some()))
    }
}

impl Seat {
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
                if gathering.view.primary_id() == base && attempt_of(&gathering.view) == attempt {
                    gathering.gathered.insert(sender);
                    self.nonprimary.conclude(cx, now);
                }
            }
            MembershipMessage::Scatter { base, attempt } => {
                if base == self.view.primary_id() {
                    self.nonprimary.attempt = self.nonprimary.attempt.max(attempt);
                    self.nonprimary.gathering = None;
                    let pause = now + cx.jitter(cx.config.profile.heartbeat / 2);
                    self.nonprimary.pause = Some(pause);
                } else if base > self.view.primary_id() {
                    self.pull(cx, now, sender);
                }
            }
            MembershipMessage::Assemble { base, attempt } => {
                let agreed = self.nonprimary.agreed.take_if(|view| {
                    matches!(view.id, NodeViewId::NonPrimary { base: b, attempt: a, proposer }
                        if b == base && a == attempt && proposer == sender)
                });
                if let Some(view) = agreed.filter(|view| view.primary_id() == self.view.primary_id()) {
                    self.nonprimary.install(cx, now, view);
                }
            }
            _ => {}
        }
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
        let content = !self.engine.could_decide(&self.reachable(cx));
        if base != mine || !ours || attempt <= self.nonprimary.attempt || !content {
            let attempt = self.nonprimary.attempt;
            cx.send(sender, MembershipMessage::Scatter { base: mine, attempt });
            return;
        }
        self.nonprimary.attempt = attempt;
        self.nonprimary.gathering = None;
        self.nonprimary.agreed = Some(view);
        cx.send(sender, MembershipMessage::Gathered { base, attempt });
    }
}

fn in_order(primary: &NodeView, component: &BTreeSet<Incarnation>) -> impl Iterator<Item = Incarnation> {
    primary
        .members
        .iter()
        .map(|member| member.incarnation)
        .filter(|member| component.contains(member))
}

fn attempt_of(view: &NodeView) -> u32 {
    match view.id {
        NodeViewId::NonPrimary { attempt, .. } => attempt,
        NodeViewId::Primary { .. } => 0,
    }
}

fn compose(
    cx: &Context,
    now: Time,
    primary: &NodeView,
    component: &BTreeSet<Incarnation>,
    attempt: u32,
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
            accusers: cx
                .detector
                .accusers(now, member.incarnation)
                .into_iter()
                .take(8)
                .collect(),
            member,
            cause: Cause::Crashed,
        })
        .collect();
    NodeView {
        lineage: primary.lineage,
        id: NodeViewId::NonPrimary {
            base,
            attempt,
            proposer: cx.me,
        },
        number: primary.number,
        members,
        joined: Vec::new(),
        departed,
        wire_level: primary.wire_level,
    }
}
