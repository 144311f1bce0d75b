//! Every participant's side: wedge and report, fetch the cut, install.

use std::collections::BTreeSet;
use std::time::Duration;

use antiphon_wire::group::{CutSpan, Decision, GroupData, GroupMessage, Standing};
use antiphon_wire::{Evidence, GroupId, GroupViewId, Incarnation};

use super::asked::Asked;
use super::{CatchUp, Flow, Lead, Promise, cut_of};
use crate::Class;
use crate::group::context::id_is_possible;
use crate::group::direct;
use crate::group::log::Log;
use crate::group::member::{Group, Membership, Phase};
use crate::group::{Context, Effect, MAX_GROUP_MEMBERS};

/// In one view no log reaches further than this beyond what a member has delivered.
const MAX_CUT_AHEAD: u64 = 1 << 32;

/// So often the named holders are asked before all others of the view are asked as well.
const ASKED_IN_VAIN: usize = 4;

impl Membership {
    fn standing(&self) -> Standing {
        let (held, nulls) = self.stream.held();
        Standing::At {
            view: self.stream.id,
            held,
            beyond: self.stream.beyond(),
            nulls,
            ordered: self.stream.engine.ordered(),
            decision: self
                .retained
                .as_ref()
                .map(|retained| Box::new(retained.decision.clone())),
            safe: self.stream.has_undelivered_safe(),
            held_cut: self.held_cut.clone().map(Box::new),
            told: self.direct.heard(&self.stream.members),
        }
    }

    /// Whether this member can follow a decision at all.
    fn fits(&self, decision: &Decision) -> bool {
        let old = self.stream.members.len();
        let distinct: BTreeSet<_> = decision.members.iter().collect();
        let shape = decision.cut.len() == old
            && decision.holders.len() == old
            && decision.start.len() == decision.members.len()
            && decision.members.len() <= MAX_GROUP_MEMBERS
            && distinct.len() == decision.members.len()
            && decision.id > decision.from
            && decision
                .start
                .iter()
                .all(|start| (1..u64::MAX / 2).contains(start));
        let told = decision
            .told
            .iter()
            .all(|told| usize::from(told.member) < old && direct::is_possible(&told.heard, old))
            && decision.told.is_sorted_by(|a, b| a.member < b.member);
        let spans = decision.beyond.iter().map(|part| part.span);
        let spans = if self.stream.engine.passes_gaps() {
            spans
                .clone()
                .all(|span| usize::from(span.sender) < old && span.count > 0)
        } else {
            spans.len() == 0
        };
        // Every cut has what was delivered here (R15). No leader makes a cut without it.
        let reach = self.stream.logs.iter().enumerate().all(|(rank, log)| {
            let cut = cut_of(decision, rank);
            (cut.covers_all(&log.delivered_set()) || planted!())
                && cut.end() <= log.next().saturating_add(MAX_CUT_AHEAD)
        });
        shape && told && spans && reach && decision.from == self.stream.id
    }

    /// Takes what a holder supplies, while a cut says what is missing.
    pub(crate) fn take_repair(&mut self, ctx: &mut Context<'_>, record: GroupData) {
        let Flow::Catching(catch_up) = &mut self.flow else {
            return;
        };
        match record {
            GroupData::Repair {
                view,
                sender,
                first,
                last,
                messages,
                ..
            } if view == self.stream.id => {
                let rank = usize::from(sender);
                if rank >= self.stream.logs.len() {
                    return;
                }
                let cut = cut_of(&catch_up.decision, rank);
                self.stream.repair(rank, first, messages, &cut);
                if last && catch_up.asked.answered(rank, first) {
                    // The rest of this run is not on its way: ask for it at once.
                    catch_up.pull_at = ctx.now;
                }
            }
            GroupData::RepairOrders {
                view,
                first,
                ref runs,
                ..
            } if view == self.stream.id => {
                self.stream.repair_orders(first, runs);
                catch_up.asked.orders_answered();
                catch_up.pull_at = ctx.now;
            }
            _ => return,
        }
        if let Some((at, _)) = &mut self.watch {
            *at = ctx.now + ctx.profile.flush_stall;
        }
    }

    /// A leader that leaves with its own decision stays until another member has installed it. Otherwise no
    /// member would know the decision by which the leader has delivered.
    fn must_stay(&mut self, ctx: &Context<'_>) -> bool {
        let Flow::Catching(catch_up) = &mut self.flow else {
            return false;
        };
        let decision = &catch_up.decision;
        let stays = matches!(self.lead, Lead::Deciding { adopted: false, .. })
            && !decision.members.contains(&ctx.me)
            && !decision.members.is_empty()
            && !self.confirmations.values().any(|view| *view == decision.id);
        if stays {
            catch_up.pull_at = ctx.now + ctx.profile.flush_stall;
        }
        stays
    }

    /// Asks holders for the missing part of the cut. True if nothing is missing.
    fn pull(&mut self, ctx: &mut Context<'_>) -> bool {
        let Flow::Catching(catch_up) = &mut self.flow else {
            return false;
        };
        let catch_up = &mut **catch_up;
        let stream = &self.stream;
        let decision = &catch_up.decision;
        let prefixes = (0..stream.logs.len()).filter_map(|rank| {
            let end = decision.cut[rank].saturating_add(1);
            let (first, _) = stream.logs[rank].missing(0, end)?;
            Some((rank, first, end, &decision.holders[rank]))
        });
        let spans = decision.beyond.iter().filter_map(|CutSpan { span, holders }| {
            let rank = usize::from(span.sender);
            let end = span.first.saturating_add(span.count);
            let (first, end) = stream.logs[rank].missing(span.first, end)?;
            Some((rank, first, end, holders))
        });
        let mut missing = prefixes.chain(spans).peekable();
        let order_missing = stream.engine.ordered() < decision.ordered;
        if missing.peek().is_none() && !order_missing {
            return true;
        }
        if catch_up.pull_at > ctx.now {
            return false;
        }
        let asked = &mut catch_up.asked;
        if asked.expire(ctx.now) {
            // Others may hold it as well.
            catch_up.attempt += 1;
        }
        let until = ctx.now + ctx.profile.retransmit * 2;
        let attempt = catch_up.attempt;
        let holder = |named: &[u16]| {
            let named = named
                .iter()
                .filter_map(|rank| stream.members.get(usize::from(*rank)).copied());
            let live = |who: &Incarnation| *who != ctx.me && ctx.present(*who);
            let all = catch_up.source.into_iter().chain(named);
            let mut live_ones: Vec<_> = all.filter(live).collect();
            // Not all holders are named. The named ones may be gone, or no members any more, when this member
            // fetches.
            if attempt >= live_ones.len() * ASKED_IN_VAIN {
                live_ones.extend(stream.members.iter().copied().filter(live));
            }
            live_ones.get(attempt % live_ones.len().max(1)).copied()
        };
        let (group, view) = (self.id, stream.id);
        let mut pulls = Vec::new();
        for (rank, first, end, holders) in missing {
            if asked.room() == 0 {
                break;
            }
            if asked.awaits(rank, first, end) {
                continue;
            }
            asked.ask(rank, first, end, until);
            let sender = rank as u16;
            pulls.push((
                holder(holders),
                GroupData::Pull {
                    group,
                    view,
                    sender,
                    first,
                    end,
                },
            ));
        }
        if order_missing && !asked.awaits_orders() {
            asked.ask_for_orders(until);
            let first = stream.engine.ordered();
            pulls.push((
                holder(&decision.order_holders),
                GroupData::PullOrders { group, view, first },
            ));
        }
        for (to, pull) in pulls {
            if let Some(to) = to {
                ctx.effects.push_back(Effect::Data {
                    to: vec![to],
                    class: Class::Control,
                    records: vec![pull],
                });
            }
        }
        catch_up.pull_at = asked.next_timeout().unwrap_or(until);
        false
    }
}

impl Group {
    /// A new primary view: flushes of earlier node views are void, and so are promises to their leaders.
    pub(crate) fn restart_flush(&mut self, ctx: &mut Context<'_>, was_suspended: bool) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        membership.promise = None;
        if let Flow::Catching(_) = membership.flow {
            membership.flow = Flow::Wedged;
        }
        if membership.flow != Flow::Open {
            membership.watch = Some((ctx.now + ctx.profile.flush_stall, 0));
        }
        let resumed = was_suspended && membership.suspended;
        if resumed {
            // The application waits for a view; if the request for it comes to nothing, ask again.
            membership.watch = Some((ctx.now + ctx.profile.flush_stall, 0));
        }
        self.restart_lead(ctx, resumed);
    }

    /// A leader asks where this member stands; `view` is what the leader has installed.
    pub(crate) fn handle_flush_start(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        group: GroupId,
        view: GroupViewId,
        target: GroupViewId,
    ) {
        if !id_is_possible(ctx, target) {
            return ctx.nonsense();
        }
        let answer = |standing| GroupMessage::FlushReport {
            group,
            target,
            standing,
        };
        match &mut self.phase {
            Phase::Locating { .. } | Phase::Joining { .. } => {
                // A member that was removed and asks to join again does not wait for a view that it had
                // before.
                let floor = ctx.floors.get(&group);
                let joining = self.asked && floor.is_none_or(|floor| floor.view < view);
                let standing = if joining {
                    Standing::Joining
                } else {
                    ctx.gone(group)
                };
                ctx.send(from, answer(standing));
            }
            // R14: this node has installed the view that it left with. Members that come from the same view
            // complete that.
            Phase::Ghost { retained, until, .. } if retained.decision.from == view => {
                *until = ctx.now + ctx.profile.flush_stall;
                let decision = retained.decision.clone();
                let standing = Standing::At {
                    view: decision.id,
                    held: Vec::new(),
                    beyond: Vec::new(),
                    nulls: Vec::new(),
                    ordered: 0,
                    decision: Some(Box::new(decision)),
                    safe: false,
                    held_cut: None,
                    told: Vec::new(),
                };
                ctx.send(from, answer(standing));
            }
            Phase::Ghost { .. } | Phase::Refused => {
                let standing = ctx.gone(group);
                ctx.send(from, answer(standing));
            }
            Phase::Member(membership) => {
                let mine = &membership.stream;
                let left_with_mine = membership
                    .retained
                    .as_ref()
                    .is_some_and(|retained| retained.decision.left.contains(&from));
                if view < mine.id && mine.rank(from).is_none() && !left_with_mine {
                    let (view, cause) = (mine.id, "the group's members have removed it".to_owned());
                    return ctx.send(from, GroupMessage::Removed { group, view, cause });
                }
                // R14: this member has gone on from the leader's view. That is a fact, whatever it promised
                // to which leader. Otherwise two leaders, one of them behind, would outbid each other.
                let followed = membership
                    .retained
                    .as_ref()
                    .is_some_and(|retained| retained.decision.from == view);
                if followed && membership.promise.is_some_and(|promise| promise.leader != from) {
                    let standing = membership.standing();
                    return ctx.send(from, answer(standing));
                }
                if let Some(promise) = membership.promise
                    && (target < promise.target || target == promise.target && from != promise.leader)
                {
                    return ctx.send(
                        from,
                        GroupMessage::FlushRefused {
                            group,
                            promised: promise.target,
                        },
                    );
                }
                membership.promise = Some(Promise { target, leader: from });
                membership.watch = Some((ctx.now + ctx.profile.flush_stall, 0));
                // R13: nothing more is accepted in this view, except what the cut of this flush names.
                if !planted!(ReportBeforeWedge) || membership.flow != Flow::Open {
                    membership.flow = Flow::Wedged;
                }
                membership.reported = membership.stream.logs.iter().map(Log::end).collect();
                let standing = membership.standing();
                ctx.send(from, answer(standing));
            }
        }
    }

    /// The leader's decision.
    pub(crate) fn handle_cut(&mut self, ctx: &mut Context<'_>, from: Incarnation, decision: Decision) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        if membership.promise
            == Some(Promise {
                target: decision.id,
                leader: from,
            })
        {
            self.catch_up(ctx, decision, None, false);
        }
    }

    /// The leader completes a view that a member has installed already, or whose cut a member has said to
    /// hold.
    pub(crate) fn handle_complete(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        target: GroupViewId,
        decision: Decision,
        installed: bool,
    ) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        if membership.promise != Some(Promise { target, leader: from }) {
            return;
        }
        if membership.stream.id == decision.id {
            let (group, view) = (membership.id, decision.id);
            return ctx.send(from, GroupMessage::Installed { group, view });
        }
        self.catch_up(ctx, decision, Some(from), installed);
    }

    /// From here on this member knows the cut. `installed` says that it may deliver the cut as soon as it
    /// holds it.
    pub(crate) fn catch_up(
        &mut self,
        ctx: &mut Context<'_>,
        decision: Decision,
        source: Option<Incarnation>,
        installed: bool,
    ) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if planted!(SkipInstalledView) && decision.from < membership.stream.id {
            return self.install(ctx, decision);
        }
        if !membership.fits(&decision) || !id_is_possible(ctx, decision.id) {
            ctx.nonsense();
            return;
        }
        let pull_at = ctx.now;
        membership.flow = Flow::Catching(Box::new(CatchUp {
            decision,
            said: false,
            safe: installed,
            source,
            attempt: 0,
            asked: Asked::default(),
            pull_at,
        }));
        if membership.leader(ctx) != Some(ctx.me) {
            membership.watch = Some((ctx.now + ctx.profile.flush_stall, 0));
        }
        self.try_install(ctx);
    }

    /// Installs the decided view if all of the cut is here, and asks for the part that is missing.
    pub(crate) fn try_install(&mut self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if !membership.pull(ctx) || !membership.may_deliver(ctx) || membership.must_stay(ctx) {
            return;
        }
        let Flow::Catching(catch_up) = std::mem::replace(&mut membership.flow, Flow::Wedged) else {
            return;
        };
        self.install(ctx, catch_up.decision);
    }

    /// All members have the view: the messages of the view before are not needed any more.
    pub(crate) fn handle_settled(&mut self, ctx: &mut Context<'_>, view: GroupViewId) {
        match &mut self.phase {
            Phase::Member(membership)
                if membership.stream.id == view && !matches!(membership.lead, Lead::Confirming(_)) =>
            {
                membership.retained = None;
            }
            Phase::Ghost { retained, .. } if retained.decision.id <= view => ctx.over.push(self.handle),
            _ => {}
        }
    }

    /// Another node says that this node is no member any more.
    pub(crate) fn handle_removed(&mut self, ctx: &mut Context<'_>, view: GroupViewId, cause: String) {
        if let Phase::Member(membership) = &self.phase
            && view >= membership.stream.id
        {
            self.removed(ctx, cause);
        }
    }

    pub(crate) fn flush_timeout(&mut self, ctx: &mut Context<'_>) {
        if ctx.suspended {
            if let Phase::Member(membership) = &mut self.phase {
                // Nothing is due before there is a primary again; do not ask to be called at once.
                membership.delay(ctx);
            }
            return;
        }
        self.try_install(ctx);
        self.lead_timeout(ctx);
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let Some((at, doubts)) = membership.watch else {
            return;
        };
        if at > ctx.now {
            return;
        }
        let waiting = membership.flow != Flow::Open || membership.suspended;
        let leader = membership.leader(ctx).filter(|leader| *leader != ctx.me);
        let (true, Some(leader)) = (waiting, leader) else {
            membership.watch = None;
            return;
        };
        membership.watch = Some((ctx.now + ctx.profile.flush_stall, doubts.saturating_add(1)));
        let (group, view) = (membership.id, membership.stream.id);
        ctx.send(leader, GroupMessage::Resume { group, view });
        // R18: a stalled leader is replaced by a node view only.
        if doubts > 0 {
            ctx.effects.push_back(Effect::Accuse {
                peer: leader,
                evidence: Evidence::FlushStalled,
            });
        }
    }

    /// G37: this node did not run for so long. It has not yet read the messages that came meanwhile.
    pub(crate) fn forgive(&mut self, missed: Duration) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if let Some((at, _)) = &mut membership.watch {
            *at = *at + missed;
        }
        match &mut membership.lead {
            Lead::Idle | Lead::Batching { .. } => {}
            Lead::Collecting(super::Collect { stall_at, .. })
            | Lead::Deciding { stall_at, .. }
            | Lead::Confirming(super::Confirm { stall_at, .. }) => *stall_at = *stall_at + missed,
        }
    }
}

impl Membership {
    /// Pushes all deadlines of the flush past now.
    fn delay(&mut self, ctx: &Context<'_>) {
        let later = ctx.now + ctx.profile.flush_stall;
        if let Some((at, _)) = &mut self.watch {
            *at = later;
        }
        if let Flow::Catching(catch_up) = &mut self.flow {
            catch_up.pull_at = later;
        }
        match &mut self.lead {
            Lead::Idle => {}
            Lead::Batching { at } => *at = later,
            Lead::Collecting(super::Collect { stall_at, .. })
            | Lead::Deciding { stall_at, .. }
            | Lead::Confirming(super::Confirm { stall_at, .. }) => *stall_at = later,
        }
    }
}
