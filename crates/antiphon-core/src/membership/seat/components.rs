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
//! ([`separation`]).
//!
//! In a wide view the question names ranks only ([`MembershipMessage::GatherRanks`]), since both sides have
//! the base. A whole view for each of a thousand members, with all departed members and their accusers, is
//! more than a link takes before the pause is over and the next question is due. In a wide view the member
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
//! [`separation`]: crate::membership::seat::separation

use std::collections::BTreeSet;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, Lineage, NodeView, NodeViewId, ViewId};

use crate::Time;
use crate::membership::change::nonprimary::*;
use crate::membership::change::parts::part_of;
use crate::membership::context::Context;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::seat::Seat;
use crate::membership::view::check;

impl Seat {
    /// Without a quorum a component agrees on its members.
    pub(crate) fn tend_component(
        &mut self,
        cx: &mut Context,
        now: Time,
        quorum: bool,
        coordinator: Incarnation,
    ) {
        if quorum || cx.fate.is_some() {
            return self.installed.nonprimary.calm();
        }
        let (view, component) = (self.installed.view.clone(), self.component(cx));
        let coordinator = if component.contains(&coordinator) {
            coordinator
        } else {
            self.coordinator(cx, &component)
        };
        if coordinator != cx.me {
            self.installed.nonprimary.follow();
            self.installed
                .nonprimary
                .complain(cx, now, &view, (&component, coordinator));
            return;
        }
        component.iter().for_each(|member| self.reach(cx, *member));
        let by_word = !self.installed.topology.hears_all();
        if let Some(view) = self
            .installed
            .nonprimary
            .tend(cx, now, &view, &component, by_word)
        {
            self.assembled(cx, now, view);
        }
    }

    /// The members that this node hears, except those that say that they do not hear it: these have a
    /// component of their own, and would acknowledge nothing.
    fn component(&self, cx: &Context) -> BTreeSet<Incarnation> {
        let mut component = self.reachable(cx);
        if !cx.any() && self.installed.topology.hears_all() && cx.detector.has_doubts() {
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
                if let Some(view) = self.installed.nonprimary.gathered(cx, sender, (base, attempt)) {
                    self.assembled(cx, now, view);
                }
            }
            MembershipMessage::Scatter { base, attempt } => {
                if base == self.installed.view.primary_id() {
                    self.installed.nonprimary.refused(cx, now, sender, attempt);
                } else if base > self.installed.view.primary_id() {
                    self.pull(cx, now, sender);
                }
            }
            MembershipMessage::Assemble { base, attempt } => {
                let agreed = self.installed.nonprimary.agreed.take_if(|agreed| {
                    (agreed.base, agreed.attempt, agreed.proposer) == (base, attempt, sender)
                });
                if let Some(agreed) = agreed.filter(|agreed| agreed.base == self.installed.view.primary_id())
                {
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
                    let view = compose_by_word(&self.installed.view, &stay, (sender, attempt), for_ms);
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
                    && let Some(view) = part_of(&self.installed.view, into, number, |member| {
                        stay.contains(&member)
                    })
                {
                    self.on_separate(cx, now, sender, attempt, view);
                }
            }
            _ => {}
        }
    }

    /// The members that stay, by the ranks of a proposal, if it is based on the view installed here. A
    /// proposal with another base is answered here.
    fn stay(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        (lineage, base, attempt): (Lineage, ViewId, u32),
        by: Vec<u8>,
    ) -> Option<BTreeSet<Incarnation>> {
        let (mine, by) = (self.installed.view.primary_id(), Ranks::from_wire(by));
        if lineage != self.installed.view.lineage || !by.are_within(self.installed.view.members.len()) {
            return None;
        }
        if base != mine {
            if base > mine {
                self.pull(cx, now, sender);
            }
            self.answer_gathering(cx, sender, (base, attempt), false);
            return None;
        }
        let members = self.installed.view.members.iter().enumerate();
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
        let mine = self.installed.view.primary_id();
        let sound = check::view_is_sound(&view)
            && view.lineage == self.installed.view.lineage
            && view.number == self.installed.view.number
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
            .all(|member| self.installed.view.member(member.incarnation) == Some(member));
        // A node that could help to a quorum does not settle for less.
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
        let agrees = base == mine && ours && content && self.installed.nonprimary.agree(agreed);
        self.answer_gathering(cx, sender, (base, attempt), agrees);
    }

    /// Answers a proposal.
    pub(crate) fn answer_gathering(
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
                base: self.installed.view.primary_id(),
                attempt: self.installed.nonprimary.attempt(),
            }
        };
        cx.send(to, answer);
    }

    /// All have acknowledged this view.
    pub(crate) fn assembled(&mut self, cx: &mut Context, now: Time, view: NodeView) {
        if view.is_primary() {
            self.separate(cx, now, view);
        } else {
            let mine = self.installed.view.primary_id();
            assert!(
                matches!(view.id, NodeViewId::NonPrimary { base, .. } if base == mine) || planted!(),
                "R6: {} is installed on top of {mine}",
                view.id
            );
            self.installed.nonprimary.install(cx, now, view);
        }
    }
}
