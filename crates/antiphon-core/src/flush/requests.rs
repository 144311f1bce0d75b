//! What members and joiners ask of a group's leader between flushes: to be let in, to leave, to go on,
//! whether they still belong. Also what a member that has left still does for members that are where it was.

use antiphon_wire::group::{Decision, GroupData, GroupMessage, Joiner, Standing};
use antiphon_wire::{GroupId, GroupViewId, Incarnation};

use super::{Flow, Lead, Retained};
use crate::group::member::{Group, Phase};
use crate::group::{Context, MAX_GROUP_MEMBERS};

impl Group {
    /// A joiner with the right options.
    pub(crate) fn admit(&mut self, ctx: &mut Context<'_>, joiner: Joiner, name: String) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if !membership.am_leader(ctx) {
            return self.direct(ctx, &joiner, name);
        }
        let from = joiner.incarnation;
        if membership.stream.members.len() + membership.joins.len() >= MAX_GROUP_MEMBERS {
            let reason = format!(
                "the group {name:?} has {MAX_GROUP_MEMBERS} members already, the most it can have: start the node in another group, or in none"
            );
            return ctx.send(from, GroupMessage::Refused { name, reason });
        }
        // R12: joins are idempotent: a joiner that is on its way into the group is not admitted twice.
        membership.joins.retain(|other| other.incarnation != from);
        let decided = membership
            .retained
            .iter()
            .flat_map(|retained| &retained.decision.joined);
        let unconfirmed = decided.into_iter().any(|other| *other == joiner);
        let deciding = matches!(
            (&membership.lead, &membership.flow),
            (Lead::Deciding { .. }, Flow::Catching(catch_up)) if catch_up.decision.members.contains(&from)
        );
        if unconfirmed || deciding {
            return;
        }
        membership.joins.push(joiner);
        if membership.stream.rank(from).is_some() {
            // A leader that this one has not heard of removed it. It says so by joining again.
            membership.dropped.insert(from, "it joins again".to_owned());
        }
        self.gather(ctx);
    }

    /// A node asks to be let in, and this member does not lead.
    fn direct(&mut self, ctx: &mut Context<'_>, joiner: &Joiner, name: String) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        let came = |decision: &Decision| {
            let joined = &decision.joined;
            joined.contains(joiner) && joined.iter().any(|other| other.incarnation == ctx.me)
        };
        let retained = membership.retained.as_ref();
        let retained = retained.filter(|retained| came(&retained.decision));
        let leader = membership.leader(ctx);
        if leader != Some(joiner.incarnation) {
            return ctx.send(joiner.incarnation, GroupMessage::Moved { name, leader });
        }
        // The joiner is to lead itself.
        let answer = match retained {
            // No member is left that was there before the joiner came. So it came with the present view, like
            // this member, and has not heard of that. All members that were there before had heard (R12).
            Some(retained) => self.first_view(ctx, membership, &retained.decision),
            // The joiner's question may be late. If it is no member, it says so.
            None => GroupMessage::Check {
                group: membership.id,
                view: membership.stream.id,
            },
        };
        ctx.send(joiner.incarnation, answer);
    }

    /// A member wants to leave.
    pub(crate) fn handle_leave(&mut self, ctx: &mut Context<'_>, from: Incarnation, group: GroupId) {
        let Some(membership) = self.leading(ctx) else {
            return self.tell_removed(ctx, from, group);
        };
        membership.joins.retain(|joiner| joiner.incarnation != from);
        if let Lead::Confirming(confirm) = &mut membership.lead {
            confirm.joiners.remove(&from);
        }
        if membership.stream.rank(from).is_none() {
            return self.tell_removed(ctx, from, group);
        }
        membership.leaves.insert(from);
        self.confirmed(ctx);
        self.gather(ctx);
    }

    /// A member waits for a flush.
    pub(crate) fn handle_resume(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        group: GroupId,
        view: GroupViewId,
    ) {
        self.help_behind(ctx, from, view);
        let Some(membership) = self.leading(ctx) else {
            return self.tell_removed(ctx, from, group);
        };
        if membership.stream.rank(from).is_none() || membership.dropped.contains_key(&from) {
            return self.tell_removed(ctx, from, group);
        }
        match membership.lead {
            Lead::Idle | Lead::Batching { .. } => {
                if view != membership.stream.id {
                    membership
                        .dropped
                        .insert(from, "it is in another view than the group".to_owned());
                }
                membership.resume = true;
                self.collect(ctx);
            }
            Lead::Confirming(_) => membership.resume |= view == membership.stream.id,
            Lead::Collecting(_) | Lead::Deciding { .. } => {}
        }
    }

    /// A member asks whether it still is one: a message that told it otherwise may have been void under a new
    /// node view.
    pub(crate) fn handle_check(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        group: GroupId,
        view: GroupViewId,
    ) {
        self.help_behind(ctx, from, view);
        let Some(membership) = self.leading(ctx) else {
            return self.tell_removed(ctx, from, group);
        };
        let idle = matches!(membership.lead, Lead::Idle | Lead::Batching { .. });
        if idle && membership.stream.rank(from).is_some() && view != membership.stream.id {
            return self.handle_resume(ctx, from, group, view);
        }
        self.tell_removed(ctx, from, group);
    }

    /// Tells a node that speaks of this group that it is no member; silent if it may well be one.
    pub(crate) fn tell_removed(&mut self, ctx: &mut Context<'_>, to: Incarnation, group: GroupId) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        let known = membership.stream.rank(to).is_some() && !membership.dropped.contains_key(&to);
        // A member that leaves with the present view may not have heard of the view yet; it belongs to the
        // group.
        let leaves = membership
            .retained
            .as_ref()
            .is_some_and(|retained| retained.decision.left.contains(&to));
        if !known && !leaves {
            let cause = membership.dropped.get(&to);
            let cause = cause.map_or("the group's members have removed it", String::as_str);
            let (view, cause) = (membership.stream.id, cause.to_owned());
            ctx.send(to, GroupMessage::Removed { group, view, cause });
        }
    }

    /// A member has not heard of the view that this leader left with. No other node leads the members that
    /// are where it is.
    fn help_behind(&mut self, ctx: &mut Context<'_>, from: Incarnation, view: GroupViewId) {
        let until = ctx.now + ctx.profile.flush_stall;
        let Phase::Ghost {
            group,
            retained,
            until: end,
        } = &mut self.phase
        else {
            return;
        };
        if view != retained.decision.from {
            return;
        }
        *end = until;
        let k = retained.decision.id.k.saturating_add(1);
        let target = GroupViewId {
            node: ctx.node.id,
            number: ctx.node.number,
            k,
        };
        let (group, view, name) = (*group, retained.decision.id, self.name.clone());
        ctx.send(
            from,
            GroupMessage::FlushStart {
                group,
                name,
                view,
                target,
            },
        );
    }

    pub(super) fn complete_as_ghost(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        target: GroupViewId,
        standing: &Standing,
    ) {
        let Phase::Ghost { group, retained, .. } = &self.phase else {
            return;
        };
        if matches!(standing, Standing::At { view, .. } if *view == retained.decision.from) {
            let (group, decision) = (*group, Box::new(retained.decision.clone()));
            ctx.send(
                from,
                GroupMessage::Complete {
                    group,
                    target,
                    decision,
                    installed: true,
                },
            );
        }
    }
}

impl Retained {
    /// Supplies what a member lacks of the previous view.
    pub(crate) fn answer(&self, ctx: &mut Context<'_>, from: Incarnation, record: &GroupData) {
        let Some(stream) = &self.stream else { return };
        match *record {
            GroupData::Pull {
                view,
                sender,
                first,
                end,
                ..
            } if view == stream.id => {
                stream.pull(from, usize::from(sender), first, end, ctx.effects);
            }
            GroupData::PullOrders { view, first, .. } if view == stream.id => {
                stream.pull_orders(from, first, ctx.effects);
            }
            _ => {}
        }
    }
}
