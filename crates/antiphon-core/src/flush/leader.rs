//! The leader's side: gather, read all participants, complete or decide, confirm.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::group::{Decision, GroupMessage, Standing};
use antiphon_wire::{GroupViewId, Incarnation};

use super::Holding;
use super::verdict::Verdict;
use super::{Collect, Confirm, Flow, Lead, MAX_K, cut_of};
use crate::group::Context;
use crate::group::member::{Group, Membership, Phase};
use crate::group::slow;

/// The cause for the removal of a member that did not answer.
const STALLED: &str = "flush-stalled: it did not report to a flush, or finish it, in time";

impl Membership {
    /// Whether the present view should not stay.
    fn wants_flush(&self, ctx: &Context<'_>) -> bool {
        let outdated = |member: &Incarnation| !ctx.present(*member) || self.dropped.contains_key(member);
        self.resume
            || !self.joins.is_empty()
            || !self.leaves.is_empty()
            || !self.slow.is_empty()
            || self.stream.members.iter().any(outdated)
    }

    pub(super) fn am_leader(&self, ctx: &Context<'_>) -> bool {
        self.leader(ctx) == Some(ctx.me)
    }

    /// All participants that the leader must read: the members of its view, and those that left with it while
    /// that is not settled.
    fn participants(&self, ctx: &Context<'_>) -> BTreeSet<Incarnation> {
        let leavers = self.retained.iter().flat_map(|retained| &retained.decision.left);
        let all = self.stream.members.iter().chain(leavers).copied();
        all.filter(|member| ctx.present(*member) && !self.dropped.contains_key(member))
            .collect()
    }
}

impl Group {
    pub(crate) fn leading(&mut self, ctx: &Context<'_>) -> Option<&mut Membership> {
        let Phase::Member(membership) = &mut self.phase else {
            return None;
        };
        membership.am_leader(ctx).then_some(&mut **membership)
    }

    /// Gathers for a moment, then flushes.
    pub(crate) fn gather(&mut self, ctx: &mut Context<'_>) {
        if let Some(membership) = self.leading(ctx)
            && membership.lead == Lead::Idle
        {
            let wait = if membership.slow.is_empty() {
                ctx.profile.batch
            } else {
                slow::settling(ctx.profile)
            };
            membership.lead = Lead::Batching { at: ctx.now + wait };
        }
    }

    /// Begins a flush, or begins it again: reads every participant.
    pub(crate) fn collect(&mut self, ctx: &mut Context<'_>) {
        let name = self.name.clone();
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let promised = membership.promise.map_or(0, |promise| promise.target.k);
        let tried = match &membership.lead {
            Lead::Collecting(collect) => collect.target.k,
            _ => 0,
        };
        // R5: no view id is used twice. `k` rises above everything that this leader has seen, and the ballot
        // tells leaders apart.
        let k = membership.stream.id.k.max(promised).max(tried).saturating_add(1);
        let target = GroupViewId {
            node: ctx.node.id,
            number: ctx.node.number,
            k,
        };
        let (group, view) = (membership.id, membership.stream.id);
        // Ids that no member of this program can have reached were refused, and node views rise.
        assert!(
            target > view && target.k > promised.max(tried) || planted!(),
            "R5: a flush for {target:?} after {view:?}, promised {promised}, tried {tried}"
        );
        if let Flow::Catching(_) = membership.flow {
            membership.flow = Flow::Wedged;
        }
        let participants = membership.participants(ctx);
        // R14: every survivor is read, not a quorum of them.
        let waiting = if planted!(SkipFlush) {
            BTreeSet::from([ctx.me])
        } else {
            participants.clone()
        };
        membership.lead = Lead::Collecting(Collect {
            target,
            waiting,
            strangers: None,
            reports: BTreeMap::new(),
            stall_at: ctx.now + ctx.profile.flush_stall,
        });
        for to in participants {
            let name = name.clone();
            ctx.send(
                to,
                GroupMessage::FlushStart {
                    group,
                    name,
                    view,
                    target,
                },
            );
        }
        let departures = membership
            .stream
            .members
            .iter()
            .any(|member| !ctx.present(*member));
        if departures && !planted!(SkipFlush) {
            self.ask_strangers(ctx);
        }
    }

    /// Asks the nodes outside of the leader's view too. A missing member may have led on to a view without
    /// this leader, and only joiners may be left of that view: they answer that the leader was removed. A
    /// node that knows nothing says so.
    fn ask_strangers(&mut self, ctx: &mut Context<'_>) {
        let name = self.name.clone();
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let participants = membership.participants(ctx);
        let (group, view) = (membership.id, membership.stream.id);
        let Lead::Collecting(collect) = &mut membership.lead else {
            return;
        };
        let outside =
            |node: &Incarnation| !participants.contains(node) && !membership.dropped.contains_key(node);
        let strangers: BTreeSet<_> = ctx.node.members.iter().copied().filter(outside).collect();
        let target = collect.target;
        collect.strangers = Some(strangers.clone());
        for to in strangers {
            let name = name.clone();
            ctx.send(
                to,
                GroupMessage::FlushStart {
                    group,
                    name,
                    view,
                    target,
                },
            );
        }
    }

    /// A node outside of the leader's view has answered. If it still takes itself for a member, it is told
    /// that it is none.
    fn hear_stranger(&mut self, ctx: &mut Context<'_>, from: Incarnation, standing: Standing) {
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let (group, mine) = (membership.id, membership.stream.id);
        let Lead::Collecting(collect) = &mut membership.lead else {
            return;
        };
        match standing {
            Standing::At {
                view,
                decision: Some(ref decision),
                ..
            } if view > mine && decision.from == mine => drop(collect.reports.insert(from, standing)),
            Standing::At { view, .. } if view < mine => self.tell_removed(ctx, from, group),
            Standing::At { .. } | Standing::Joining | Standing::Gone { .. } => {}
        }
    }

    pub(crate) fn handle_report(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        target: GroupViewId,
        standing: Standing,
    ) {
        self.complete_as_ghost(ctx, from, target, &standing);
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let Lead::Collecting(collect) = &mut membership.lead else {
            return;
        };
        if collect.target != target {
            return;
        }
        if collect.waiting.remove(&from) {
            collect.reports.insert(from, standing);
        } else if collect
            .strangers
            .as_mut()
            .is_some_and(|strangers| strangers.remove(&from))
        {
            self.hear_stranger(ctx, from, standing);
        } else {
            return;
        }
        if let Some(Lead::Collecting(collect)) = self.leading(ctx).map(|membership| &mut membership.lead) {
            collect.stall_at = ctx.now + ctx.profile.flush_stall;
        }
        self.conclude_if_read(ctx);
    }

    /// Goes on once all have answered.
    fn conclude_if_read(&mut self, ctx: &mut Context<'_>) {
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let Lead::Collecting(collect) = &membership.lead else {
            return;
        };
        if !collect.waiting.is_empty() {
            return;
        }
        // A member that is gone went on without this leader, perhaps into a view that it has left since.
        let went_on = |(who, standing): (&Incarnation, &Standing)| {
            matches!(standing, Standing::Gone { .. }) && membership.stream.rank(*who).is_some()
        };
        if collect.strangers.is_none() && collect.reports.iter().any(went_on) {
            self.ask_strangers(ctx);
        }
        let lead = self.leading(ctx).map(|membership| &membership.lead);
        let all_read = matches!(lead, Some(Lead::Collecting(collect))
            if collect.strangers.as_ref().is_none_or(BTreeSet::is_empty));
        if all_read {
            self.conclude(ctx);
        }
    }

    /// A participant has answered a later flush than this leader's: go above it.
    pub(crate) fn handle_flush_refused(&mut self, ctx: &mut Context<'_>, promised: GroupViewId) {
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let Lead::Collecting(collect) = &mut membership.lead else {
            return;
        };
        if promised.node == ctx.node.id && promised >= collect.target && promised.k < MAX_K / 2 {
            collect.target.k = promised.k;
            self.collect(ctx);
        }
    }

    /// All have reported.
    fn conclude(&mut self, ctx: &mut Context<'_>) {
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let Lead::Collecting(collect) = &mut membership.lead else {
            return;
        };
        assert!(
            collect.waiting.is_empty() || planted!(),
            "R14: a leader concludes without the reports of {:?}",
            collect.waiting
        );
        let target = collect.target;
        let reports = std::mem::take(&mut collect.reports);
        let stall_at = ctx.now + ctx.profile.flush_stall;
        let group = membership.id;
        match membership.judge(ctx, target, &reports) {
            Verdict::Adopt(decision, source, installed) => {
                let mine = membership.stream.id;
                let stands_here =
                    |standing: &Standing| matches!(standing, Standing::At { view, .. } if *view == mine);
                let here = reports.iter().filter(|(_, standing)| stands_here(standing));
                let here = here.map(|(who, _)| *who);
                let holding = Holding::of(&decision, target, here.clone()).filter(|_| !installed);
                membership.lead = Lead::Deciding {
                    adopted: true,
                    stall_at,
                    holding,
                };
                // R14: all get this view before anything else. This leader may leave with that very view.
                let me = ctx.me;
                for to in here.filter(|to| *to != me) {
                    let decision = decision.clone();
                    ctx.send(
                        to,
                        GroupMessage::Complete {
                            group,
                            target,
                            decision,
                            installed,
                        },
                    );
                }
                self.catch_up(ctx, *decision, Some(source), installed);
            }
            // No member can complete it for this member, nor for the members that stand where it does: each
            // of them finds that out when it leads.
            Verdict::Lost => {
                let cause = "what it lacks of an earlier view is gone with all members that had it";
                self.removed(ctx, cause.to_owned());
            }
            Verdict::Complete(survivors, joiners) => {
                let Some(retained) = &membership.retained else {
                    return;
                };
                let decision = Box::new(retained.decision.clone());
                for to in &survivors {
                    let decision = decision.clone();
                    ctx.send(
                        *to,
                        GroupMessage::Complete {
                            group,
                            target,
                            decision,
                            installed: true,
                        },
                    );
                }
                let confirm = Confirm {
                    survivors,
                    joiners,
                    joiners_told: false,
                    completing: true,
                    stall_at,
                };
                membership.lead = Lead::Confirming(confirm);
                self.confirmed(ctx);
            }
            Verdict::Drop(misfits) => {
                self.remove(ctx, misfits, "it is in another view than the group");
                self.collect(ctx);
            }
            Verdict::Decide(decision, survivors) => {
                // R15: the cut contains everything that this member has delivered; a smaller cut is our own
                // mistake.
                let mut logs = membership.stream.logs.iter().enumerate();
                let covered =
                    logs.all(|(rank, log)| cut_of(&decision, rank).covers_all(&log.delivered_set()));
                // A member that is gone already has nothing to install.
                let gone = reports
                    .iter()
                    .filter(|(_, standing)| matches!(standing, Standing::Gone { .. }));
                membership
                    .confirmations
                    .extend(gone.map(|(who, _)| (*who, decision.id)));
                assert!(
                    covered || planted!(),
                    "R15: the cut {:?} lacks what {:?} has delivered",
                    decision.cut,
                    ctx.me
                );
                membership.lead = Lead::Deciding {
                    adopted: false,
                    stall_at,
                    holding: Holding::of(&decision, target, survivors.iter().copied()),
                };
                let me = ctx.me;
                for to in survivors.into_iter().filter(|to| *to != me) {
                    ctx.send(
                        to,
                        GroupMessage::FlushCut {
                            group,
                            decision: decision.clone(),
                        },
                    );
                }
                if planted!(JoinerFirst) {
                    self.welcome(ctx, &decision);
                }
                self.catch_up(ctx, *decision, None, false);
            }
        }
    }

    /// Sends the joiners of a decision their first view.
    fn welcome(&mut self, ctx: &mut Context<'_>, decision: &Decision) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        let unsettled = match &membership.lead {
            Lead::Confirming(confirm) => confirm.survivors.len(),
            _ => usize::MAX,
        };
        assert!(
            unsettled == 0 || planted!(),
            "R12: joiners are told of {:?}, which {unsettled} survivors have not installed",
            decision.id
        );
        for joiner in &decision.joined {
            let confirmed = match &membership.lead {
                Lead::Confirming(confirm) => !confirm.joiners.contains(&joiner.incarnation),
                _ => false,
            };
            if confirmed {
                continue;
            }
            ctx.send(joiner.incarnation, self.first_view(ctx, membership, decision));
        }
    }

    /// What a joiner of this decision is told.
    pub(super) fn first_view(
        &self,
        ctx: &Context<'_>,
        membership: &Membership,
        decision: &Decision,
    ) -> GroupMessage {
        let gone = decision.left.iter().chain(&decision.crashed);
        let gone = gone.filter(|member| !ctx.present(**member) && !planted!(NamelessDeparted));
        let former = |gone: &Incarnation| ctx.former.iter().rev().find(|member| member.incarnation == *gone);
        GroupMessage::FirstView {
            group: membership.id,
            name: self.name.clone(),
            terms: self.terms(),
            decision: Box::new(decision.clone()),
            departed: membership.departed.iter().cloned().collect(),
            gone: gone.filter_map(former).cloned().collect(),
        }
    }

    /// The leader itself has installed its own decision: now all others are to install it.
    pub(crate) fn begin_confirming(&mut self, ctx: &mut Context<'_>, old_members: &[Incarnation]) {
        let stall_at = ctx.now + ctx.profile.flush_stall;
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let Some(retained) = &membership.retained else {
            return;
        };
        let decision = &retained.decision;
        let takes_part = |member: &&Incarnation| {
            **member != ctx.me
                && ctx.present(**member)
                && (decision.members.contains(member) || decision.left.contains(member))
                && membership.confirmations.get(member) != Some(&decision.id)
        };
        let survivors = old_members.iter().filter(takes_part).copied().collect();
        let joiners = decision.joined.iter().map(|joiner| joiner.incarnation);
        let joiners = joiners.filter(|joiner| ctx.present(*joiner)).collect();
        let confirm = Confirm {
            survivors,
            joiners,
            joiners_told: false,
            completing: false,
            stall_at,
        };
        membership.lead = Lead::Confirming(confirm);
        self.confirmed(ctx);
    }

    pub(crate) fn handle_installed(&mut self, ctx: &mut Context<'_>, from: Incarnation, view: GroupViewId) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if let Lead::Confirming(confirm) = &mut membership.lead
            && view == membership.stream.id
        {
            let news = confirm.survivors.remove(&from) | confirm.joiners.remove(&from);
            if news {
                confirm.stall_at = ctx.now + ctx.profile.flush_stall;
                self.confirmed(ctx);
            }
        } else if ctx.present(from) && view > membership.stream.id {
            membership.confirmations.insert(from, view);
            // A member that has installed it was told that all hold its cut.
            if let Flow::Catching(catch_up) = &mut membership.flow
                && catch_up.decision.id == view
            {
                catch_up.safe = true;
            }
            self.try_install(ctx);
        }
    }

    /// Goes on as far as the confirmations allow: survivors first, then joiners, then the next flush.
    pub(super) fn confirmed(&mut self, ctx: &mut Context<'_>) {
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let Lead::Confirming(confirm) = &mut membership.lead else {
            return;
        };
        if !confirm.survivors.is_empty() {
            return;
        }
        if !confirm.joiners.is_empty() {
            // R12: every survivor has it, so the next leader will not undo it, whichever member that is. Now
            // the joiners may have it too.
            if !std::mem::replace(&mut confirm.joiners_told, true)
                && let Some(retained) = &membership.retained
            {
                let decision = retained.decision.clone();
                self.welcome(ctx, &decision);
            }
            return;
        }
        let completing = confirm.completing;
        let (group, view) = (membership.id, membership.stream.id);
        let everyone = membership.participants(ctx);
        membership.retained = None;
        membership.lead = Lead::Idle;
        let me = ctx.me;
        for to in everyone.into_iter().filter(|to| *to != me) {
            ctx.send(to, GroupMessage::Settled { group, view });
        }
        let urgent = membership
            .stream
            .members
            .iter()
            .any(|member| !ctx.present(*member))
            || membership.resume;
        if completing || urgent {
            self.collect(ctx);
        } else if membership.wants_flush(ctx) {
            self.gather(ctx);
        }
    }

    /// Removes living members from this group alone, and tells them.
    fn remove(&mut self, ctx: &mut Context<'_>, members: Vec<Incarnation>, cause: &str) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        // If the removed member comes back, it must not take an earlier view for a later one.
        let k = membership
            .promise
            .map_or(0, |promise| promise.target.k)
            .max(membership.stream.id.k);
        let view = GroupViewId {
            node: ctx.node.id,
            number: ctx.node.number,
            k,
        };
        let me = ctx.me;
        for member in members.into_iter().filter(|member| *member != me) {
            membership.dropped.insert(member, cause.to_owned());
            membership.leaves.remove(&member);
            let (group, cause) = (membership.id, cause.to_owned());
            ctx.send(member, GroupMessage::Removed { group, view, cause });
        }
    }

    /// The leader's part of a new primary view: whatever is unfinished begins again under the new ballot.
    pub(crate) fn restart_lead(&mut self, ctx: &mut Context<'_>, resumed: bool) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let present = |member: &Incarnation| ctx.present(*member);
        membership.joins.retain(|joiner| present(&joiner.incarnation));
        membership.leaves.retain(present);
        membership.slow.retain(|member, _| present(member));
        membership.confirmations.clear();
        if !membership.am_leader(ctx) {
            membership.lead = Lead::Idle;
            membership.joins.clear();
            membership.leaves.clear();
            membership.slow.clear();
            membership.dropped.clear();
            membership.resume = false;
            let (group, view) = (membership.id, membership.stream.id);
            if let Some(leader) = membership.leader(ctx) {
                let waits = resumed || membership.flow != Flow::Open;
                ctx.send(
                    leader,
                    if waits {
                        GroupMessage::Resume { group, view }
                    } else {
                        GroupMessage::Check { group, view }
                    },
                );
            }
            return;
        }
        membership.resume |= resumed;
        let idle = matches!(membership.lead, Lead::Idle | Lead::Batching { .. });
        let departures = membership.stream.members.iter().any(|member| !present(member));
        let unfinished = !idle || membership.flow != Flow::Open || membership.retained.is_some();
        if unfinished || departures || membership.resume {
            self.collect(ctx);
        }
    }

    /// R18: a flush ends. A member that holds it up is removed from the group.
    pub(crate) fn lead_timeout(&mut self, ctx: &mut Context<'_>) {
        // G13 nothing hangs: a view that cannot deliver to a member ends without that member.
        let now = ctx.now;
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        match &mut membership.lead {
            Lead::Idle => {}
            Lead::Batching { at } if *at <= now => {
                membership.lead = Lead::Idle;
                if membership.wants_flush(ctx) {
                    self.collect(ctx);
                }
            }
            Lead::Collecting(collect) if collect.stall_at <= now && collect.waiting.is_empty() => {
                // A node outside of the view has been silent for so long, and the node layer does not call it
                // dead. The group does not stand still for it.
                collect.strangers = Some(BTreeSet::new());
                self.conclude(ctx);
            }
            Lead::Collecting(collect) if collect.stall_at <= now => {
                let stalled: Vec<_> = collect.waiting.iter().copied().collect();
                self.remove(ctx, stalled, STALLED);
                self.collect(ctx);
            }
            Lead::Deciding {
                stall_at, holding, ..
            } if *stall_at <= now => {
                let missing = holding.as_ref().map(Holding::missing).unwrap_or_default();
                self.remove(ctx, missing, STALLED);
                self.collect(ctx);
            }
            Lead::Confirming(confirm) if confirm.stall_at <= now => {
                let late = if confirm.survivors.is_empty() {
                    &mut confirm.joiners
                } else {
                    &mut confirm.survivors
                };
                let stalled = std::mem::take(late).into_iter().collect();
                confirm.stall_at = now + ctx.profile.flush_stall;
                self.remove(ctx, stalled, STALLED);
                self.confirmed(ctx);
            }
            Lead::Batching { .. } | Lead::Collecting(_) | Lead::Deciding { .. } | Lead::Confirming(_) => {}
        }
    }
}
