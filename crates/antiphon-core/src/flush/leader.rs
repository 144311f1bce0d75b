//! The leader's side: gather, read all participants, complete or decide, confirm.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::group::{Decision, GroupMessage, Standing};
use antiphon_wire::{GroupViewId, Incarnation};

use super::slowest::settling;
use super::verdict::Verdict;
use super::{Around, Collect, Confirm, Flow, Flush, FlushEffect, Holding, Lead, Requests, Retained};
use crate::group::cut::cut_of;
use crate::group::nodes::MAX_K;

/// The cause for the removal of a member that did not answer.
const STALLED: &str = "flush-stalled: it did not report to a flush, or finish it, in time";

impl Flush {
    /// Whether the present view should not stay.
    fn is_wanted(&self, around: &Around<'_>) -> bool {
        let dropped = |member: &Incarnation| self.requests.dropped.contains_key(member);
        !self.requests.are_none() || around.has_departures() || around.stream.members.iter().any(dropped)
    }

    /// All participants that the leader must read: the members of its view, and those that left with it while
    /// that is not settled.
    fn participants(&self, around: &Around<'_>) -> BTreeSet<Incarnation> {
        let leavers = self.retained.iter().flat_map(|retained| &retained.decision.left);
        let all = around.stream.members.iter().chain(leavers).copied();
        all.filter(|member| around.node.has(*member) && !self.requests.dropped.contains_key(member))
            .collect()
    }

    /// Gathers for a moment, then flushes.
    pub(super) fn gather(&mut self, around: &Around<'_>) {
        if around.leads() && self.lead == Lead::Idle {
            let wait = if self.requests.slow.is_empty() {
                around.profile.batch
            } else {
                settling(around.profile)
            };
            self.lead = Lead::Batching {
                at: around.now + wait,
            };
        }
    }

    /// Begins a flush, or begins it again: reads every participant.
    pub(super) fn collect(&mut self, around: &Around<'_>) {
        if !around.leads() {
            return;
        }
        let promised = self.promise.map_or(0, |promise| promise.target.k);
        let tried = match &self.lead {
            Lead::Collecting(collect) => collect.target.k,
            _ => 0,
        };
        // R5: no view id is used twice. `k` rises above everything that this leader has seen, and the ballot
        // tells leaders apart.
        let view = around.stream.id;
        let k = view.k.max(promised).max(tried).saturating_add(1);
        let target = around.node.group_view(k);
        // Ids that no member of this program can have reached were refused, and node views rise.
        assert!(
            target > view && target.k > promised.max(tried) || planted!(),
            "R5: a flush for {target:?} after {view:?}, promised {promised}, tried {tried}"
        );
        if let Flow::Catching(_) = self.flow {
            self.flow = Flow::Wedged;
        }
        let participants = self.participants(around);
        // R14: every survivor is read, not a quorum of them.
        let waiting = if planted!(SkipFlush) {
            BTreeSet::from([around.me])
        } else {
            participants.clone()
        };
        self.lead = Lead::Collecting(Collect {
            target,
            waiting,
            strangers: None,
            reports: BTreeMap::new(),
            stall_at: around.stall_at(),
        });
        self.read(around, target, participants);
        if around.has_departures() && !planted!(SkipFlush) {
            self.ask_strangers(around);
        }
    }

    /// Asks nodes where they stand.
    fn read(&mut self, around: &Around<'_>, target: GroupViewId, nodes: BTreeSet<Incarnation>) {
        for to in nodes {
            let start = GroupMessage::FlushStart {
                group: around.group,
                name: around.name.to_owned(),
                view: around.stream.id,
                target,
            };
            self.effects.send(to, start);
        }
    }

    /// Asks the nodes outside of the leader's view too. A missing member may have led on to a view without
    /// this leader, and only joiners may be left of that view: they answer that the leader was removed. A
    /// node that knows nothing says so.
    fn ask_strangers(&mut self, around: &Around<'_>) {
        let participants = self.participants(around);
        let Lead::Collecting(collect) = &mut self.lead else {
            return;
        };
        let dropped = &self.requests.dropped;
        let outside = |node: &Incarnation| !participants.contains(node) && !dropped.contains_key(node);
        let strangers: BTreeSet<_> = around.node.members.iter().copied().filter(outside).collect();
        let target = collect.target;
        collect.strangers = Some(strangers.clone());
        self.read(around, target, strangers);
    }

    /// A node outside of the leader's view has answered. If it still takes itself for a member, it is told
    /// that it is none.
    fn hear_stranger(&mut self, around: &Around<'_>, from: Incarnation, standing: Standing) {
        let Lead::Collecting(collect) = &mut self.lead else {
            return;
        };
        let mine = around.stream.id;
        match standing {
            Standing::At {
                view,
                decision: Some(ref decision),
                ..
            } if view > mine && decision.from == mine => drop(collect.reports.insert(from, standing)),
            Standing::At { view, .. } if view < mine => self.tell_removed(around, from),
            Standing::At { .. } | Standing::Joining | Standing::Gone { .. } => {}
        }
    }

    pub(super) fn handle_report(
        &mut self,
        around: &Around<'_>,
        from: Incarnation,
        target: GroupViewId,
        standing: Standing,
    ) {
        let Lead::Collecting(collect) = &mut self.lead else {
            return;
        };
        if collect.target != target || !around.leads() {
            return;
        }
        let strangers = collect.strangers.as_mut();
        if collect.waiting.remove(&from) {
            collect.stall_at = around.stall_at();
            collect.reports.insert(from, standing);
        } else if strangers.is_some_and(|strangers| strangers.remove(&from)) {
            collect.stall_at = around.stall_at();
            self.hear_stranger(around, from, standing);
        } else {
            return;
        }
        self.conclude_if_read(around);
    }

    /// Goes on once all have answered.
    fn conclude_if_read(&mut self, around: &Around<'_>) {
        let Lead::Collecting(collect) = &self.lead else {
            return;
        };
        if !collect.waiting.is_empty() {
            return;
        }
        // A member that is gone went on without this leader, perhaps into a view that it has left since.
        let went_on = |(who, standing): (&Incarnation, &Standing)| {
            matches!(standing, Standing::Gone { .. }) && around.stream.rank(*who).is_some()
        };
        if collect.strangers.is_none() && collect.reports.iter().any(went_on) {
            self.ask_strangers(around);
        }
        let all_read = matches!(&self.lead, Lead::Collecting(collect)
            if collect.strangers.as_ref().is_none_or(BTreeSet::is_empty));
        if all_read {
            self.conclude(around);
        }
    }

    /// A participant has answered a later flush than this leader's: go above it.
    pub(super) fn handle_refused(&mut self, around: &Around<'_>, promised: GroupViewId) {
        let Lead::Collecting(collect) = &mut self.lead else {
            return;
        };
        let is_of_now = promised.node == around.node.id && around.leads();
        if is_of_now && promised >= collect.target && promised.k < MAX_K / 2 {
            collect.target.k = promised.k;
            self.collect(around);
        }
    }

    /// All have reported.
    fn conclude(&mut self, around: &Around<'_>) {
        let Lead::Collecting(collect) = &mut self.lead else {
            return;
        };
        assert!(
            collect.waiting.is_empty() || planted!(),
            "R14: a leader concludes without the reports of {:?}",
            collect.waiting
        );
        let target = collect.target;
        let reports = std::mem::take(&mut collect.reports);
        match self.judge(around, target, &reports) {
            Verdict::Adopt(decision, source, installed) => {
                let mine = around.stream.id;
                let stands_here =
                    |standing: &Standing| matches!(standing, Standing::At { view, .. } if *view == mine);
                let here = reports.iter().filter(|(_, standing)| stands_here(standing));
                let here = here.map(|(who, _)| *who);
                self.lead = Lead::Deciding {
                    adopted: true,
                    stall_at: around.stall_at(),
                    holding: Holding::of(&decision, target, here.clone()).filter(|_| !installed),
                };
                // R14: all get this view before anything else. This leader may leave with that very view.
                let others = here.filter(|to| *to != around.me);
                self.complete(around, others, target, &decision, installed);
                self.catch_up(around, *decision, Some(source), installed);
            }
            // No member can complete it for this member, nor for the members that stand where it does: each
            // of them finds that out when it leads.
            Verdict::Lost => {
                let cause = "what it lacks of an earlier view is gone with all members that had it";
                self.effects.push(FlushEffect::StartOver(cause.to_owned()));
            }
            Verdict::Complete(survivors, joiners) => {
                let Some(decision) = self.retained.as_ref().map(|retained| retained.decision.clone()) else {
                    return;
                };
                self.complete(around, survivors.iter().copied(), target, &decision, true);
                self.lead = Lead::Confirming(Confirm {
                    survivors,
                    joiners,
                    joiners_told: false,
                    completing: true,
                    stall_at: around.stall_at(),
                });
                self.confirmed(around);
            }
            Verdict::Drop(misfits) => {
                self.remove(around, misfits, "it is in another view than the group");
                self.collect(around);
            }
            Verdict::Decide(decision, survivors) => {
                // R15: the cut contains everything that this member has delivered; a smaller cut is our own
                // mistake.
                let mut logs = around.stream.logs.iter().enumerate();
                let covered =
                    logs.all(|(rank, log)| cut_of(&decision, rank).covers_all(&log.delivered_set()));
                assert!(
                    covered || planted!(),
                    "R15: the cut {:?} lacks what {:?} has delivered",
                    decision.cut,
                    around.me
                );
                // A member that is gone already has nothing to install.
                let gone = reports
                    .iter()
                    .filter(|(_, standing)| matches!(standing, Standing::Gone { .. }));
                self.confirmations
                    .extend(gone.map(|(who, _)| (*who, decision.id)));
                self.lead = Lead::Deciding {
                    adopted: false,
                    stall_at: around.stall_at(),
                    holding: Holding::of(&decision, target, survivors.iter().copied()),
                };
                for to in survivors.into_iter().filter(|to| *to != around.me) {
                    let (group, decision) = (around.group, decision.clone());
                    self.effects.send(to, GroupMessage::FlushCut { group, decision });
                }
                if planted!(JoinerFirst) {
                    self.welcome(&decision);
                }
                self.catch_up(around, *decision, None, false);
            }
        }
    }

    /// Gives members a decision of another leader, or one that was installed.
    fn complete(
        &mut self,
        around: &Around<'_>,
        members: impl Iterator<Item = Incarnation>,
        target: GroupViewId,
        decision: &Decision,
        installed: bool,
    ) {
        for to in members {
            let complete = GroupMessage::Complete {
                group: around.group,
                target,
                decision: Box::new(decision.clone()),
                installed,
            };
            self.effects.send(to, complete);
        }
    }

    /// Sends the joiners of a decision their first view.
    fn welcome(&mut self, decision: &Decision) {
        let (unsettled, joiners) = match &self.lead {
            Lead::Confirming(confirm) => (confirm.survivors.len(), Some(&confirm.joiners)),
            _ => (usize::MAX, None),
        };
        assert!(
            unsettled == 0 || planted!(),
            "R12: joiners are told of {:?}, which {unsettled} survivors have not installed",
            decision.id
        );
        let joined = decision.joined.iter().map(|joiner| joiner.incarnation);
        for joiner in joined.filter(|joiner| joiners.is_none_or(|waiting| waiting.contains(joiner))) {
            let decision = Box::new(decision.clone());
            self.effects.push(FlushEffect::Welcome { joiner, decision });
        }
    }

    /// The next view is installed here: tells the leader. The leader itself goes on.
    pub(crate) fn installed(&mut self, around: &Around<'_>) {
        let Some(Retained { decision, stream }) = &self.retained else {
            return;
        };
        let leader = around.leader();
        // The leader of the flush may leave with it: it waits until a member has the view.
        let led = self.promise.map(|promise| promise.leader);
        let to: BTreeSet<_> = leader.into_iter().chain(led).collect();
        for to in to.into_iter().filter(|to| *to != around.me) {
            let (group, view) = (around.group, decision.id);
            self.effects.send(to, GroupMessage::Installed { group, view });
        }
        let adopted = matches!(self.lead, Lead::Deciding { adopted: true, .. });
        if leader != Some(around.me) {
            self.lead = Lead::Idle;
        } else if adopted || decision.id.node != around.node.id {
            // R14: another leader's view is installed; now every member is read again.
            self.collect(around);
        } else {
            let takes_part = |member: &&Incarnation| {
                **member != around.me
                    && around.node.has(**member)
                    && (decision.members.contains(member) || decision.left.contains(member))
                    && self.confirmations.get(member) != Some(&decision.id)
            };
            let old_members = stream.iter().flat_map(|stream| &stream.members);
            let survivors = old_members.filter(takes_part).copied().collect();
            let joiners = decision.joined.iter().map(|joiner| joiner.incarnation);
            let joiners = joiners.filter(|joiner| around.node.has(*joiner)).collect();
            self.lead = Lead::Confirming(Confirm {
                survivors,
                joiners,
                joiners_told: false,
                completing: false,
                stall_at: around.stall_at(),
            });
            self.confirmed(around);
        }
    }

    pub(super) fn handle_installed(&mut self, around: &Around<'_>, from: Incarnation, view: GroupViewId) {
        let mine = around.stream.id;
        if let Lead::Confirming(confirm) = &mut self.lead
            && view == mine
        {
            if confirm.survivors.remove(&from) | confirm.joiners.remove(&from) {
                confirm.stall_at = around.stall_at();
                self.confirmed(around);
            }
        } else if around.node.has(from) && view > mine {
            self.confirmations.insert(from, view);
            // A member that has installed it was told that all hold its cut.
            if let Flow::Catching(catch_up) = &mut self.flow
                && catch_up.decision.id == view
            {
                catch_up.safe = true;
            }
            self.try_install(around);
        }
    }

    /// Goes on as far as the confirmations allow: survivors first, then joiners, then the next flush.
    pub(super) fn confirmed(&mut self, around: &Around<'_>) {
        let Lead::Confirming(confirm) = &mut self.lead else {
            return;
        };
        if !confirm.survivors.is_empty() || !around.leads() {
            return;
        }
        if !confirm.joiners.is_empty() {
            // R12: every survivor has it, so the next leader will not undo it, whichever member that is. Now
            // the joiners may have it too.
            if !std::mem::replace(&mut confirm.joiners_told, true)
                && let Some(retained) = &self.retained
            {
                let decision = retained.decision.clone();
                self.welcome(&decision);
            }
            return;
        }
        let completing = confirm.completing;
        let everyone = self.participants(around);
        self.retained = None;
        self.lead = Lead::Idle;
        for to in everyone.into_iter().filter(|to| *to != around.me) {
            let (group, view) = (around.group, around.stream.id);
            self.effects.send(to, GroupMessage::Settled { group, view });
        }
        // A late question of the leader before may have wedged this view: nobody else would ask for its end.
        let wedged = !self.is_open();
        if completing || wedged || around.has_departures() || self.requests.resume {
            self.collect(around);
        } else if self.is_wanted(around) {
            self.gather(around);
        }
    }

    /// Removes living members from this group alone, and tells them.
    fn remove(&mut self, around: &Around<'_>, members: Vec<Incarnation>, cause: &str) {
        // If the removed member comes back, it must not take an earlier view for a later one.
        let promised = self.promise.map_or(0, |promise| promise.target.k);
        let view = around.node.group_view(promised.max(around.stream.id.k));
        for member in members.into_iter().filter(|member| *member != around.me) {
            self.requests.dropped.insert(member, cause.to_owned());
            self.requests.leaves.remove(&member);
            let removed = GroupMessage::Removed {
                group: around.group,
                view,
                cause: cause.to_owned(),
            };
            self.effects.send(member, removed);
        }
    }

    /// The leader's part of a new primary view: whatever is unfinished begins again under the new ballot.
    pub(crate) fn restart_lead(&mut self, around: &Around<'_>, resumed: bool) {
        self.requests.keep(|member| around.node.has(member));
        self.confirmations.clear();
        if !around.leads() {
            self.lead = Lead::Idle;
            self.requests = Requests::default();
            if let Some(leader) = around.leader() {
                let (group, view) = (around.group, around.stream.id);
                let waits = resumed || self.flow != Flow::Open;
                let question = if waits {
                    GroupMessage::Resume { group, view }
                } else {
                    GroupMessage::Check { group, view }
                };
                self.effects.send(leader, question);
            }
            return;
        }
        self.requests.resume |= resumed;
        let idle = matches!(self.lead, Lead::Idle | Lead::Batching { .. });
        let unfinished = !idle || self.flow != Flow::Open || self.retained.is_some();
        if unfinished || around.has_departures() || self.requests.resume {
            self.collect(around);
        }
    }

    /// R18: a flush ends. A member that holds it up is removed from the group.
    pub(super) fn lead_timeout(&mut self, around: &Around<'_>) {
        // G13 nothing hangs: a view that cannot deliver to a member ends without that member.
        let now = around.now;
        if !around.leads() {
            return;
        }
        match &mut self.lead {
            Lead::Idle => {}
            Lead::Batching { at } if *at <= now => {
                self.lead = Lead::Idle;
                if self.is_wanted(around) {
                    self.collect(around);
                }
            }
            Lead::Collecting(collect) if collect.stall_at <= now && collect.waiting.is_empty() => {
                // A node outside of the view has been silent for so long, and the node layer does not call it
                // dead. The group does not stand still for it.
                collect.strangers = Some(BTreeSet::new());
                self.conclude(around);
            }
            Lead::Collecting(collect) if collect.stall_at <= now => {
                let stalled: Vec<_> = collect.waiting.iter().copied().collect();
                self.remove(around, stalled, STALLED);
                self.collect(around);
            }
            Lead::Deciding {
                stall_at, holding, ..
            } if *stall_at <= now => {
                let missing = holding.as_ref().map(Holding::missing).unwrap_or_default();
                self.remove(around, missing, STALLED);
                self.collect(around);
            }
            Lead::Confirming(confirm) if confirm.stall_at <= now => {
                let late = if confirm.survivors.is_empty() {
                    &mut confirm.joiners
                } else {
                    &mut confirm.survivors
                };
                let stalled = std::mem::take(late).into_iter().collect();
                confirm.stall_at = around.stall_at();
                self.remove(around, stalled, STALLED);
                self.confirmed(around);
            }
            Lead::Batching { .. } | Lead::Collecting(_) | Lead::Deciding { .. } | Lead::Confirming(_) => {}
        }
    }
}
