//! Every participant's side: wedge and report, fetch the cut, install.

use std::collections::BTreeSet;
use std::time::Duration;

use antiphon_wire::group::{CutSpan, Decision, GroupData, GroupMessage, Standing};
use antiphon_wire::{GroupViewId, Incarnation};

use super::asked::Asked;
use super::{Around, CatchUp, Flow, Flush, FlushEffect, Lead, Promise};
use crate::group::MAX_GROUP_MEMBERS;
use crate::group::cut::cut_of;
use crate::group::direct::is_possible;
use crate::group::log::Log;
use crate::group::reached::Reached;
use crate::group::stream::Stream;
use crate::{Profile, Time};

/// In one view no log reaches further than this beyond what a member holds: windows do not allow it.
pub(super) const MAX_CUT_AHEAD: u64 = 1 << 40;

/// So often the named holders are asked before all others of the view are asked as well.
const ASKED_IN_VAIN: usize = 4;

impl Flush {
    /// Where this member stands, for a report.
    fn standing(&self, around: &Around<'_>) -> Standing {
        let stream = around.stream;
        let (held, nulls) = stream.held();
        let retained = self.retained.as_ref();
        Standing::At {
            view: stream.id,
            held,
            beyond: stream.beyond(),
            nulls,
            ordered: stream.engine.ordered(),
            decision: retained.map(|retained| Box::new(retained.decision.clone())),
            safe: stream.has_undelivered_safe(),
            held_cut: self.held_cut.clone().map(Box::new),
            told: around.direct.heard(&stream.members),
        }
    }

    /// The leader is doubted if the flush does not go on from here.
    fn watch_leader(&mut self, around: &Around<'_>) {
        self.watch = Some((around.stall_at(), 0));
    }

    /// A new primary view: flushes of earlier node views are void, and so are promises to their leaders.
    pub(crate) fn restart(&mut self, around: &Around<'_>, was_suspended: bool) {
        self.promise = None;
        if let Flow::Catching(_) = self.flow {
            self.flow = Flow::Wedged;
        }
        // If the application waits for a view and the request for it comes to nothing, ask again.
        let resumed = was_suspended && self.suspended;
        if resumed || self.flow != Flow::Open {
            self.watch_leader(around);
        }
        self.restart_lead(around, resumed);
    }

    /// A leader asks where this member stands; `view` is what the leader has installed.
    pub(crate) fn handle_start(
        &mut self,
        around: &Around<'_>,
        from: Incarnation,
        view: GroupViewId,
        target: GroupViewId,
    ) {
        let (group, mine) = (around.group, around.stream);
        let retained = self.retained.as_ref();
        let left_with_mine = retained.is_some_and(|retained| retained.decision.left.contains(&from));
        if view < mine.id && mine.rank(from).is_none() && !left_with_mine {
            let (view, cause) = (mine.id, "the group's members have removed it".to_owned());
            return self
                .effects
                .send(from, GroupMessage::Removed { group, view, cause });
        }
        // R14: this member has gone on from the leader's view. That is a fact, whatever it promised to which
        // leader. Otherwise two leaders, one of them behind, would outbid each other.
        let followed = retained.is_some_and(|retained| retained.decision.from == view);
        let to_other = self.promise.is_some_and(|promise| promise.leader != from);
        if !(followed && to_other) {
            if let Some(promise) = self.promise
                && (target < promise.target || target == promise.target && from != promise.leader)
            {
                let promised = promise.target;
                return self
                    .effects
                    .send(from, GroupMessage::FlushRefused { group, promised });
            }
            self.promise = Some(Promise { target, leader: from });
            self.watch_leader(around);
            // R13: nothing more is accepted in this view, except what the cut of this flush names.
            if !planted!(ReportBeforeWedge) || self.flow != Flow::Open {
                self.flow = Flow::Wedged;
            }
            self.reported = mine.logs.iter().map(Log::end).collect();
        }
        let report = GroupMessage::FlushReport {
            group,
            target,
            standing: self.standing(around),
        };
        self.effects.send(from, report);
    }

    /// The leader's decision.
    pub(super) fn handle_cut(&mut self, around: &Around<'_>, from: Incarnation, decision: Decision) {
        let (target, leader) = (decision.id, from);
        if self.promise == Some(Promise { target, leader }) {
            self.catch_up(around, decision, None, false);
        }
    }

    /// The leader completes a view that a member has installed already, or whose cut a member has said to
    /// hold.
    pub(super) fn handle_complete(
        &mut self,
        around: &Around<'_>,
        from: Incarnation,
        target: GroupViewId,
        decision: Decision,
        installed: bool,
    ) {
        if self.promise != Some(Promise { target, leader: from }) {
            return;
        }
        if around.stream.id == decision.id {
            let (group, view) = (around.group, decision.id);
            return self.effects.send(from, GroupMessage::Installed { group, view });
        }
        self.catch_up(around, decision, Some(from), installed);
    }

    /// From here on this member knows the cut. `installed` says that it may deliver the cut as soon as it
    /// holds it.
    pub(super) fn catch_up(
        &mut self,
        around: &Around<'_>,
        decision: Decision,
        source: Option<Incarnation>,
        installed: bool,
    ) {
        if planted!(SkipInstalledView) && decision.from < around.stream.id {
            return self.effects.push(FlushEffect::Install(Box::new(decision)));
        }
        if !fits(around.stream, &decision) || !around.node.allows(decision.id) {
            return self.effects.push(FlushEffect::Nonsense);
        }
        self.flow = Flow::Catching(Box::new(CatchUp {
            decision,
            said: false,
            safe: installed,
            source,
            attempt: 0,
            asked: Asked::default(),
            pull_at: around.now,
        }));
        if !around.leads() {
            self.watch_leader(around);
        }
        self.try_install(around);
    }

    /// Installs the decided view if all of the cut is here, and asks for the part that is missing.
    pub(crate) fn try_install(&mut self, around: &Around<'_>) {
        if !self.pull(around) || !self.may_deliver(around) || self.must_stay(around) {
            return;
        }
        if let Flow::Catching(catch_up) = std::mem::replace(&mut self.flow, Flow::Wedged) {
            self.effects
                .push(FlushEffect::Install(Box::new(catch_up.decision)));
        }
    }

    /// Takes what a holder supplies, while a cut says what is missing.
    pub(crate) fn take_repair(
        &mut self,
        now: Time,
        profile: &Profile,
        stream: &mut Stream,
        record: GroupData,
    ) {
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
            } if view == stream.id => {
                let rank = usize::from(sender);
                if rank >= stream.logs.len() {
                    return;
                }
                let cut = cut_of(&catch_up.decision, rank);
                stream.repair(rank, first, messages, &cut);
                if last && catch_up.asked.answered(rank, first) {
                    // The rest of this run is not on its way: ask for it at once.
                    catch_up.pull_at = now;
                }
            }
            GroupData::RepairOrders {
                view,
                first,
                ref runs,
                ..
            } if view == stream.id => {
                stream.repair_orders(first, runs);
                catch_up.asked.orders_answered();
                catch_up.pull_at = now;
            }
            _ => return,
        }
        if let Some((at, _)) = &mut self.watch {
            *at = now + profile.flush_stall;
        }
    }

    /// A leader that leaves with its own decision stays until another member has installed it. Otherwise no
    /// member would know the decision by which the leader has delivered.
    fn must_stay(&mut self, around: &Around<'_>) -> bool {
        let Flow::Catching(catch_up) = &mut self.flow else {
            return false;
        };
        let decision = &catch_up.decision;
        let stays = matches!(self.lead, Lead::Deciding { adopted: false, .. })
            && !decision.members.contains(&around.me)
            && !decision.members.is_empty()
            && !self.confirmations.values().any(|view| *view == decision.id);
        if stays {
            catch_up.pull_at = around.stall_at();
        }
        stays
    }

    /// Asks holders for the missing part of the cut. True if nothing is missing.
    fn pull(&mut self, around: &Around<'_>) -> bool {
        let Flow::Catching(catch_up) = &mut self.flow else {
            return false;
        };
        let catch_up = &mut **catch_up;
        let stream = around.stream;
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
        if catch_up.pull_at > around.now {
            return false;
        }
        let asked = &mut catch_up.asked;
        if asked.expire(around.now) {
            // Others may hold it as well.
            catch_up.attempt += 1;
        }
        let until = around.now + around.profile.retransmit * 2;
        let attempt = catch_up.attempt;
        let holder = |named: &[u16]| {
            let named = named
                .iter()
                .filter_map(|rank| stream.members.get(usize::from(*rank)).copied());
            let live = |who: &Incarnation| *who != around.me && around.node.has(*who);
            let all = catch_up.source.into_iter().chain(named);
            let mut live_ones: Vec<_> = all.filter(live).collect();
            // Not all holders are named. The named ones may be gone, or no members any more, when this member
            // fetches.
            if attempt >= live_ones.len() * ASKED_IN_VAIN {
                live_ones.extend(stream.members.iter().copied().filter(live));
            }
            live_ones.get(attempt % live_ones.len().max(1)).copied()
        };
        let (group, view) = (around.group, stream.id);
        let mut ask = |to: Option<Incarnation>, question: GroupData| {
            if let Some(to) = to {
                self.effects.push(FlushEffect::Ask { to, question });
            }
        };
        for (rank, first, end, holders) in missing {
            if asked.room() == 0 {
                break;
            }
            if asked.awaits(rank, first, end) {
                continue;
            }
            asked.ask(rank, first, end, until);
            let question = GroupData::Pull {
                group,
                view,
                sender: rank as u16,
                first,
                end,
            };
            ask(holder(holders), question);
        }
        if order_missing && !asked.awaits_orders() {
            asked.ask_for_orders(until);
            let first = stream.engine.ordered();
            let question = GroupData::PullOrders { group, view, first };
            ask(holder(&decision.order_holders), question);
        }
        catch_up.pull_at = asked.next_timeout().unwrap_or(until);
        false
    }

    /// What holds before a cut is delivered. A decision that does not fit was refused.
    pub(crate) fn assert_complete(&self, stream: &Stream, decision: &Decision) {
        // G16 no member takes a detour, G18 no view is skipped: only a decision about this very view ends it.
        assert!(
            decision.from == stream.id && decision.id > stream.id || planted!(),
            "G18: {:?} follows {:?}, and is installed after {:?}",
            decision.id,
            decision.from,
            stream.id
        );
        for (rank, log) in stream.logs.iter().enumerate() {
            let (cut, delivered) = (cut_of(decision, rank), log.delivered_set());
            assert!(
                cut.covers_all(&delivered) || planted!(),
                "R15: of {rank} the cut has {cut:?}, and {delivered:?} was delivered here"
            );
            let missing = cut_spans(&cut).find_map(|(first, end)| log.missing(first, end));
            assert!(
                missing.is_none() || planted!(),
                "G14: of {rank} the cut has {cut:?}, and {missing:?} is missing here"
            );
            let reported = self.reported.get(rank).copied().unwrap_or(u64::MAX);
            assert!(
                log.end() <= reported.max(cut.end()) || planted!(),
                "R13: of {rank} {reported} was reported, the cut ends at {}, and the log at {}",
                cut.end(),
                log.end()
            );
        }
        assert!(
            stream.engine.ordered() >= decision.ordered || planted!(),
            "R16: the cut has {} places of the order, and {} are known here",
            decision.ordered,
            stream.engine.ordered()
        );
    }

    /// All members have the view: the messages of the view before are not needed any more.
    pub(super) fn handle_settled(&mut self, around: &Around<'_>, view: GroupViewId) {
        if around.stream.id == view && !matches!(self.lead, Lead::Confirming(_)) {
            self.retained = None;
        }
    }

    /// Another node says that this node is no member any more.
    pub(super) fn handle_removed(&mut self, around: &Around<'_>, view: GroupViewId, cause: String) {
        if view >= around.stream.id {
            self.effects.push(FlushEffect::StartOver(cause));
        }
    }

    /// Time has passed under a primary view.
    pub(crate) fn timeout(&mut self, around: &Around<'_>) {
        self.lead_timeout(around);
        let Some((at, doubts)) = self.watch else {
            return;
        };
        if at > around.now {
            return;
        }
        let waiting = self.flow != Flow::Open || self.suspended;
        let leader = around.leader().filter(|leader| *leader != around.me);
        let (true, Some(leader)) = (waiting, leader) else {
            self.watch = None;
            return;
        };
        self.watch = Some((around.stall_at(), doubts.saturating_add(1)));
        let (group, view) = (around.group, around.stream.id);
        self.effects.send(leader, GroupMessage::Resume { group, view });
        // R18: a stalled leader is replaced by a node view only.
        if doubts > 0 {
            self.effects.push(FlushEffect::Accuse(leader));
        }
    }

    /// Time has passed without a primary view. Nothing is due before there is one again: this member does not
    /// ask to be called at once.
    pub(crate) fn delay(&mut self, around: &Around<'_>) {
        let later = around.stall_at();
        if let Some((at, _)) = &mut self.watch {
            *at = later;
        }
        if let Flow::Catching(catch_up) = &mut self.flow {
            catch_up.pull_at = later;
        }
        if let Lead::Batching { at } = &mut self.lead {
            *at = later;
        }
        if let Some(at) = self.lead.stall_at() {
            *at = later;
        }
    }

    /// G37: this node did not run for so long. It has not yet read the messages that came meanwhile.
    pub(crate) fn forgive(&mut self, missed: Duration) {
        let watch = self.watch.as_mut().map(|(at, _)| at);
        for at in watch.into_iter().chain(self.lead.stall_at()) {
            *at = *at + missed;
        }
    }
}

/// Whether a member can follow a decision about its present view at all.
fn fits(stream: &Stream, decision: &Decision) -> bool {
    let old = stream.members.len();
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
        .all(|told| usize::from(told.member) < old && is_possible(&told.heard, old))
        && decision.told.is_sorted_by(|a, b| a.member < b.member);
    let spans = decision.beyond.iter().map(|part| part.span);
    let spans = if stream.engine.passes_gaps() {
        spans
            .clone()
            .all(|span| usize::from(span.sender) < old && span.count > 0)
    } else {
        spans.len() == 0
    };
    // Every cut has what was delivered here (R15). No leader makes a cut without it.
    let reach = stream.logs.iter().enumerate().all(|(rank, log)| {
        let cut = cut_of(decision, rank);
        (cut.covers_all(&log.delivered_set()) || planted!())
            && cut.end() <= log.next().saturating_add(MAX_CUT_AHEAD)
    });
    shape && told && spans && reach && decision.from == stream.id
}

/// The runs of numbers that a cut has.
fn cut_spans(cut: &Reached) -> impl Iterator<Item = (u64, u64)> + '_ {
    std::iter::once((0, cut.next())).chain(cut.beyond())
}
