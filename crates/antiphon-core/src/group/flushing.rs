//! What a group does for its flush: it lends the flush what it sees, and carries out what the flush wants. It
//! also answers members if this node is none, or none any more.

use antiphon_wire::group::{Decision, GroupMessage, Standing};
use antiphon_wire::{Evidence, GroupId, GroupViewId, Incarnation};

use super::member::{Group, Joined, Phase};
use super::{Context, Effect};
use crate::Class;
use crate::flush::{Around, Flush, FlushEffect};

impl Group {
    /// As a member: tells the flush something, and carries out what it wants.
    pub(crate) fn flush(&mut self, ctx: &mut Context<'_>, tell: impl FnOnce(&mut Flush, &Around<'_>)) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let Joined {
            id,
            stream,
            direct,
            flush,
            ..
        } = &mut **membership;
        let around = Around {
            now: ctx.now,
            me: ctx.me,
            node: ctx.node,
            profile: ctx.profile,
            group: *id,
            name: &self.name,
            stream,
            direct,
        };
        tell(flush, &around);
        while let Phase::Member(membership) = &mut self.phase
            && let Some(effect) = membership.flush.poll()
        {
            self.carry_out(ctx, effect);
        }
    }

    fn carry_out(&mut self, ctx: &mut Context<'_>, effect: FlushEffect) {
        match effect {
            FlushEffect::Send { to, message } => ctx.send(to, message),
            FlushEffect::Ask { to, question } => ctx.effects.push_back(Effect::Data {
                to: vec![to],
                class: Class::Control,
                records: vec![question],
            }),
            FlushEffect::Welcome { joiner, decision } => self.welcome(ctx, joiner, decision),
            FlushEffect::Accuse(peer) => ctx.effects.push_back(Effect::Accuse {
                peer,
                evidence: Evidence::FlushStalled,
            }),
            FlushEffect::Nonsense => ctx.nonsense(),
            FlushEffect::Install(decision) => self.install(ctx, *decision),
            FlushEffect::StartOver(cause) => self.removed(ctx, cause),
        }
    }

    /// Sends a joiner its first view.
    fn welcome(&self, ctx: &mut Context<'_>, joiner: Incarnation, decision: Box<Decision>) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        let gone = decision.left.iter().chain(&decision.crashed);
        let gone = gone.filter(|member| !ctx.node.has(**member) && !planted!(NamelessDeparted));
        let former = |gone: &Incarnation| ctx.former.iter().rev().find(|member| member.incarnation == *gone);
        let first_view = GroupMessage::FirstView {
            group: membership.id,
            name: self.name.clone(),
            terms: self.terms(),
            departed: membership.departed.iter().cloned().collect(),
            gone: gone.filter_map(former).cloned().collect(),
            decision,
        };
        ctx.send(joiner, first_view);
    }

    /// A leader asks where this node stands; `view` is what the leader has installed.
    pub(super) fn handle_flush_start(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        group: GroupId,
        view: GroupViewId,
        target: GroupViewId,
    ) {
        if !ctx.node.allows(target) {
            return ctx.nonsense();
        }
        let standing = match &mut self.phase {
            Phase::Member(_) => {
                return self.flush(ctx, |flush, around| {
                    flush.handle_start(around, from, view, target);
                });
            }
            // A member that was removed and asks to join again does not wait for a view that it had before.
            Phase::Locating { .. } | Phase::Joining { .. }
                if self.asked && ctx.floors.get(&group).is_none_or(|floor| floor.view < view) =>
            {
                Standing::Joining
            }
            // R14: this node has installed the view that it left with. Members that come from the same view
            // complete that.
            Phase::Ghost { retained, until, .. } if retained.decision.from == view => {
                *until = ctx.now + ctx.profile.flush_stall;
                let decision = retained.decision.clone();
                Standing::At {
                    view: decision.id,
                    held: Vec::new(),
                    beyond: Vec::new(),
                    nulls: Vec::new(),
                    ordered: 0,
                    decision: Some(Box::new(decision)),
                    safe: false,
                    held_cut: None,
                    told: Vec::new(),
                }
            }
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Ghost { .. } | Phase::Refused => {
                ctx.gone(group)
            }
        };
        let report = GroupMessage::FlushReport {
            group,
            target,
            standing,
        };
        ctx.send(from, report);
    }

    /// If this node has left: answers members that have not heard of the view that it left with.
    pub(super) fn answer_as_ghost(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        message: &GroupMessage,
    ) {
        let Phase::Ghost {
            group,
            retained,
            until,
        } = &mut self.phase
        else {
            return;
        };
        let (group, decision) = (*group, &retained.decision);
        match message {
            // The member takes this node for its leader. No other node leads the members that are where it
            // is.
            GroupMessage::Resume { view, .. } | GroupMessage::Check { view, .. }
                if *view == decision.from =>
            {
                *until = ctx.now + ctx.profile.flush_stall;
                let start = GroupMessage::FlushStart {
                    group,
                    name: self.name.clone(),
                    view: decision.id,
                    target: ctx.node.group_view(decision.id.k.saturating_add(1)),
                };
                ctx.send(from, start);
            }
            GroupMessage::FlushReport {
                target,
                standing: Standing::At { view, .. },
                ..
            } if *view == decision.from => {
                let complete = GroupMessage::Complete {
                    group,
                    target: *target,
                    decision: Box::new(decision.clone()),
                    installed: true,
                };
                ctx.send(from, complete);
            }
            // This node left with that very view.
            GroupMessage::Complete { decision: told, .. } if told.id == decision.id => {
                let view = decision.id;
                ctx.send(from, GroupMessage::Installed { group, view });
            }
            // All members have it.
            GroupMessage::Settled { view, .. } if *view >= decision.id => ctx.over.push(self.handle),
            _ => {}
        }
    }
}
