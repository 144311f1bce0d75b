//! The way into a group: a node asks the elder where the group is, asks its leader to be let in, or founds it
//! (R12).
//!
//! A node that waits asks again by a timer, through the elder: the answer may be lost, and the member that
//! gave it may be gone.

use std::sync::Arc;

use antiphon_wire::group::{Decision, DepartedSender, GroupMessage, GroupTerms, Joiner};
use antiphon_wire::{GroupId, GroupViewId, Incarnation, Member};

use super::context::Floor;
use super::direct::Direct;
use super::large::Assembly;
use super::member::*;
use super::nodes::MAX_K;
use super::object::Objects;
use super::reached::Reached;
use super::standstill::Standstill;
use super::stream::{Beginning, Stream};
use super::terms::differ;
use super::{Context, MAX_FIRST};
use crate::flush::{Flush, Retained};
use crate::{GroupEvent, GroupView};

/// Joins that wait for this node to found the group it was asked for.
const MAX_EARLY_JOINS: usize = 256;

/// What a joiner is told of earlier members.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// How far the messages of members that departed lately were delivered.
    pub(crate) departed: Vec<DepartedSender>,
    /// The members that departed with its first view, if it may have seen them in no node view.
    pub(crate) gone: Vec<Member>,
}

impl Group {
    pub(crate) fn locate(&mut self, ctx: &mut Context<'_>) {
        self.phase = Phase::Locating {
            retry_at: ctx.now + ctx.profile.retransmit * 4,
        };
        // R21: a node that starts over gets a window of every sender again. Messages that its application was
        // given before take room until the application has read them.
        self.unread_first = !self.backlog.is_empty();
        if self.unread_first {
            return;
        }
        if let Some(elder) = ctx.elder() {
            ctx.send(
                elder,
                GroupMessage::Lookup {
                    name: self.name.clone(),
                },
            );
        }
    }

    /// The node that was asked is no member, and tells the elder so: ask the elder again.
    pub(crate) fn not_there(&mut self, ctx: &mut Context<'_>, who: Incarnation) {
        if matches!(&self.phase, Phase::Joining { leader, .. } if *leader == who) {
            self.phase = Phase::Locating {
                retry_at: ctx.now + ctx.profile.retransmit,
            };
        }
    }

    pub(crate) fn located(&mut self, ctx: &mut Context<'_>, leader: Incarnation) {
        let looking = matches!(self.phase, Phase::Locating { .. } | Phase::Joining { .. });
        if !looking || leader == ctx.me || !ctx.node.has(leader) {
            return;
        }
        self.phase = Phase::Joining {
            leader,
            retry_at: ctx.now + ctx.profile.retransmit * 8,
        };
        self.ask(ctx, leader);
    }

    /// A member takes this node for a member of a group. This node is none, but it may have been let in and
    /// not have heard of it: it asks that member to let it in. False if that member cannot let it in: it
    /// shows this when it checks again.
    pub(super) fn is_counted_on(&mut self, ctx: &mut Context<'_>, by: Incarnation, checks: bool) -> bool {
        let looking = matches!(self.phase, Phase::Locating { .. } | Phase::Joining { .. });
        let asked = Some((by, ctx.node.id));
        if !looking || !self.asked || (checks && self.counted_on == asked) || planted!(NobodyHelpsALeaderIn) {
            return false;
        }
        self.counted_on = asked;
        self.ask(ctx, by);
        true
    }

    fn ask(&mut self, ctx: &mut Context<'_>, member: Incarnation) {
        self.asked = true;
        ctx.send(
            member,
            GroupMessage::Join {
                name: self.name.clone(),
                terms: self.terms(),
                nonce: self.nonce,
                first: self.next_seq,
            },
        );
    }

    /// Founds the group. False if this node does not want it any more.
    pub(crate) fn found(&mut self, ctx: &mut Context<'_>, last_k: u32) -> bool {
        if !matches!(self.phase, Phase::Locating { .. } | Phase::Joining { .. }) || self.leaving.is_some() {
            return false;
        }
        let group = GroupId(ctx.random.next_u64());
        let joiner = Joiner {
            incarnation: ctx.me,
            nonce: self.nonce,
            first: self.next_seq,
        };
        // A view number that no group can have reached does not count.
        let k = last_k.checked_add(1).filter(|k| *k < MAX_K).unwrap_or(1);
        let id = ctx.node.group_view(k);
        let decision = Decision {
            id,
            from: GroupViewId { k: 0, ..id },
            cut: Vec::new(),
            holders: Vec::new(),
            beyond: Vec::new(),
            ordered: 0,
            order_holders: Vec::new(),
            members: vec![ctx.me],
            start: vec![self.next_seq],
            joined: vec![joiner],
            left: Vec::new(),
            crashed: Vec::new(),
            causes: Vec::new(),
            safe: false,
            told: Vec::new(),
        };
        self.enter(ctx, group, decision, Past::default(), true);
        for (from, terms, nonce, first) in std::mem::take(&mut self.early_joins) {
            self.handle_join(ctx, from, terms, nonce, first);
        }
        true
    }

    /// Installs this member's first view of the group.
    pub(crate) fn enter(
        &mut self,
        ctx: &mut Context<'_>,
        group: GroupId,
        decision: Decision,
        past: Past,
        founded: bool,
    ) {
        let Some(me) = decision.members.iter().position(|member| *member == ctx.me) else {
            return;
        };
        let start = &decision.start;
        self.credit.go_on(start[me]);
        self.next_seq = start[me];
        let consumed = self.consumed_positions(&decision);
        let mut credit = vec![self.credit.first(); start.len()];
        credit[me] = consumed[me].next();
        let stream = Stream::new(
            group,
            decision.id,
            decision.members.clone(),
            Beginning {
                me,
                start,
                credit: &credit,
            },
            consumed,
            self.options,
        );
        let mut objects = Objects::default();
        objects.install(ctx.me, &decision);
        let largest = self.largest();
        let view = self.view_event(group, &decision, vec![ctx.me], past.gone);
        ctx.floors.insert(group, Floor::installed(decision.id));
        let retained = (!founded).then(|| Retained {
            decision,
            stream: None,
        });
        self.phase = Phase::Member(Box::new(Joined {
            id: group,
            stream,
            flush: Flush::new(retained),
            standstill: Standstill::default(),
            departed: past.departed.into(),
            assembly: Assembly::new(largest),
            objects,
            direct: Direct::default(),
            early: Vec::new(),
            early_bytes: 0,
            leave_at: None,
        }));
        self.resyncs = 0;
        self.event(ctx, view);
        self.resolve_receipts(ctx, founded);
        self.announce(ctx);
        self.pump(ctx);
    }

    /// Tells the elder, as the group's leader, which view the group has.
    pub(crate) fn announce(&self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        if membership.leader(ctx) == Some(ctx.me)
            && let (Some(elder), Some(report)) = (ctx.elder(), self.report())
        {
            ctx.send(elder, GroupMessage::Announce(report));
        }
    }

    pub(crate) fn view_event(
        &self,
        group: GroupId,
        decision: &Decision,
        transitional: Vec<Incarnation>,
        gone: Vec<Member>,
    ) -> GroupEvent {
        let id = if planted!(ReuseGroupViewId) && decision.from.k > 0 {
            decision.from
        } else {
            decision.id
        };
        // A member that the group removed has not left in order, although it went as a leaver goes.
        let removed = |member: &Incarnation| decision.causes.iter().any(|cause| cause.incarnation == *member);
        let (removed, left): (Vec<_>, Vec<_>) = decision.left.iter().copied().partition(removed);
        let causes = decision.causes.iter();
        GroupEvent::View(Arc::new(GroupView {
            id,
            group,
            name: self.name.clone(),
            order: self.options.order,
            members: decision.members.clone(),
            joined: decision.joined.iter().map(|joiner| joiner.incarnation).collect(),
            left,
            crashed: decision.crashed.iter().copied().chain(removed).collect(),
            causes: causes
                .map(|cause| (cause.incarnation, cause.cause.clone()))
                .collect(),
            transitional,
            gone,
        }))
    }

    /// Per member of the decided view, what was consumed here.
    pub(crate) fn consumed_positions(&self, decision: &Decision) -> Vec<Reached> {
        let positions = decision.members.iter().zip(&decision.start);
        positions
            .map(|(member, start)| self.backlog.consumed_of(*member, *start))
            .collect()
    }

    /// A join arrived at this node.
    pub(crate) fn handle_join(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        terms: GroupTerms,
        nonce: u64,
        first: u64,
    ) {
        let mine = self.terms();
        match &self.phase {
            Phase::Member(_) => {}
            Phase::Locating { .. } | Phase::Joining { .. } => {
                if self.early_joins.len() < MAX_EARLY_JOINS {
                    self.early_joins.retain(|(joiner, ..)| *joiner != from);
                    self.early_joins.push((from, terms, nonce, first));
                }
                return;
            }
            Phase::Ghost { .. } | Phase::Refused => return ctx.not_here(from, self.name.clone()),
        }
        if !(1..MAX_FIRST).contains(&first) {
            return ctx.nonsense();
        }
        if terms != mine {
            let reason = differ(&self.name, mine, terms);
            return ctx.send(
                from,
                GroupMessage::Refused {
                    name: self.name.clone(),
                    reason,
                },
            );
        }
        let joiner = Joiner {
            incarnation: from,
            nonce,
            first,
        };
        self.flush(ctx, |flush, around| flush.admit(around, joiner));
    }
}
