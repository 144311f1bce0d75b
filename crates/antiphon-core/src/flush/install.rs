//! The end of a view and the beginning of the next: deliver the rest of the cut, install, tell the leader.

use std::collections::BTreeSet;

use antiphon_wire::group::{Decision, GroupMessage, GroupTerms};
use antiphon_wire::{GroupId, GroupViewId, Incarnation, Member};

use super::{Flow, Lead, Retained, cut_of};
use crate::GroupEvent;
use crate::flush::state::Ghost;
use crate::group::context::{Floor, id_is_possible};
use crate::group::entry::Past;
use crate::group::large::Assembly;
use crate::group::member::{Group, Membership, Phase};
use crate::group::reached::Reached;
use crate::group::stream::{Beginning, Stream};
use crate::group::{Context, MAX_GROUP_MEMBERS};

impl Membership {
    /// What holds before a cut is delivered. A decision that does not fit was refused ([`Membership::fits`]).
    fn assert_complete(&self, decision: &Decision) {
        let stream = &self.stream;
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
}

/// The runs of numbers that a cut has.
fn cut_spans(cut: &Reached) -> impl Iterator<Item = (u64, u64)> + '_ {
    std::iter::once((0, cut.next())).chain(cut.beyond())
}

impl Stream {
    /// What holds after a cut was delivered: all messages of the participants in the cut were delivered, and
    /// no others.
    fn assert_cut_delivered(&self, decision: &Decision, survives: &[bool]) {
        for (rank, log) in self.logs.iter().enumerate() {
            let (cut, delivered) = (cut_of(decision, rank), log.delivered_set());
            // Where delivery passes gaps, no member delivers a message that is not whole. In total order no
            // member delivers what the dead left behind the walk.
            let whole = !self.engine.passes_gaps() && (survives[rank] || !self.engine.is_total());
            assert!(
                cut.covers_all(&delivered) && (!whole || delivered.next() == cut.next()) || planted!(),
                "G14: of {rank} the cut has {cut:?}, and {delivered:?} was delivered with it"
            );
        }
    }
}

impl Group {
    /// Delivers the rest of the cut and installs the view, in one step: no member has delivered without
    /// installing.
    pub(super) fn install(&mut self, ctx: &mut Context<'_>, decision: Decision) {
        if !decision.members.contains(&ctx.me) && !decision.left.contains(&ctx.me) {
            // G17: the members that complete the view do so without this member.
            let cause = decision
                .causes
                .into_iter()
                .find(|cause| cause.incarnation == ctx.me);
            let cause = cause.map_or("the group's members have removed it".to_owned(), |cause| {
                cause.cause
            });
            return self.removed(ctx, cause);
        }
        self.deliver_cut(ctx, &decision);
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        membership.remember_departed(&decision);
        ctx.floors.insert(membership.id, Floor::installed(decision.id));
        if planted!(LoseOwnMessages) {
            self.lose_queue();
        }
        if decision.members.contains(&ctx.me) {
            self.install_next(ctx, decision);
        } else {
            self.install_without_me(ctx, decision);
        }
    }

    fn deliver_cut(&mut self, ctx: &mut Context<'_>, decision: &Decision) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if decision.from != membership.stream.id {
            return;
        }
        membership.assert_complete(decision);
        let stream = &mut membership.stream;
        let takes_part =
            |member: &Incarnation| decision.members.contains(member) || decision.left.contains(member);
        let survives: Vec<_> = stream.members.iter().map(takes_part).collect();
        let view = stream.id;
        let members = stream.members.iter().filter(|member| takes_part(member));
        let mut notice = Some(GroupEvent::Transitional {
            members: members.copied().collect(),
        });
        // Behind all messages: a planted mistake.
        let late = planted!(SafeBeforeNotice) && stream.has_undelivered_safe();
        // G23 views have a place in the order: all members deliver the cut by one rule, and then the view.
        let rest = stream.deliver_cut(decision, &survives);
        stream.assert_cut_delivered(decision, &survives);
        for (sender, first, block) in rest {
            if let Some(notice) = notice.take_if(|_| !late) {
                self.event(ctx, notice);
            }
            self.deliver(ctx, view, sender, (first, block));
        }
        if let Some(notice) = notice.filter(|_| late) {
            self.event(ctx, notice);
        }
    }

    fn install_next(&mut self, ctx: &mut Context<'_>, decision: Decision) {
        let consumed = self.consumed_positions(&decision);
        let (options, largest) = (self.options, self.largest());
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let Some(me) = decision.members.iter().position(|member| *member == ctx.me) else {
            return;
        };
        let old = &membership.stream;
        let first = decision.start[me];
        let credit: Vec<_> = decision
            .members
            .iter()
            .map(|member| old.consumed_by(*member).unwrap_or(first))
            .collect();
        // G15: the transitional set is the members that come along from the same view.
        let comes_along =
            |member: &&Incarnation| planted!(TransitionalIsWholeView) || old.rank(**member).is_some();
        let transitional = decision.members.iter().filter(comes_along).copied().collect();
        let (id, members) = (decision.id, decision.members.clone());
        let stream = Stream::new(
            membership.id,
            id,
            members,
            Beginning {
                me,
                start: &decision.start,
                credit: &credit,
            },
            consumed,
            options,
        );
        let old = std::mem::replace(&mut membership.stream, stream);
        let old_members = old.members.clone();
        membership.assembly = Assembly::new(largest);
        membership.objects.install(ctx.me, &decision);
        let receipts = membership.direct.install(&decision, &old_members, ctx.me);
        membership.flow = Flow::Open;
        membership.held_cut = None;
        membership.reported.clear();
        membership.watch = None;
        membership.suspended = false;
        membership.resume = false;
        let stays = |member: &Incarnation| decision.members.contains(member);
        let stayed = |member: Incarnation| stays(&member) && old_members.contains(&member);
        membership.standstill.keep(stayed, !decision.causes.is_empty());
        // If a member is still slow in the next view, its node says so again.
        membership.slow.clear();
        let old_joins = std::mem::take(&mut membership.joins);
        // A member that was removed and joins again is admitted once it is out.
        let joined = |who: Incarnation| decision.joined.iter().any(|joiner| joiner.incarnation == who);
        membership.joins = old_joins
            .into_iter()
            .filter(|joiner| !joined(joiner.incarnation))
            .collect();
        // What was said of a member that is admitted anew belongs to its earlier membership.
        membership
            .leaves
            .retain(|member| stays(member) && !joined(*member));
        membership
            .dropped
            .retain(|member, _| stays(member) && !joined(*member));
        let adopted = matches!(membership.lead, Lead::Deciding { adopted: true, .. });
        let group = membership.id;
        self.end_pairs_of(|member| stays(&member) && !joined(member));
        let view = self.view_event(group, &decision, transitional, Vec::new());
        let current_ballot = decision.id.node == ctx.node.id;
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        membership.retained = Some(Retained {
            decision,
            stream: Some(old),
        });
        let early = membership.take_early();
        self.event(ctx, view);
        self.tell_receipts(ctx, receipts);
        self.announce(ctx);
        self.report_installed(ctx, group, id);
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if membership.leader(ctx) == Some(ctx.me) {
            if adopted || !current_ballot {
                // R14: another leader's view is installed; now every member is read again.
                self.collect(ctx);
            } else {
                self.begin_confirming(ctx, &old_members);
            }
        } else {
            membership.lead = Lead::Idle;
        }
        for (from, record) in early {
            self.handle_data(ctx, from, record);
        }
        self.pump(ctx);
    }

    fn report_installed(&mut self, ctx: &mut Context<'_>, group: GroupId, view: GroupViewId) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let mut to: BTreeSet<_> = membership.leader(ctx).into_iter().collect();
        // The leader of the flush may leave with it: it waits until a member has the view.
        to.extend(membership.promise.map(|promise| promise.leader));
        for to in to.into_iter().filter(|to| *to != ctx.me).collect::<Vec<_>>() {
            ctx.send(to, GroupMessage::Installed { group, view });
        }
    }

    /// The decided view is without this member. The member leaves with it.
    fn install_without_me(&mut self, ctx: &mut Context<'_>, decision: Decision) {
        self.end_direct(ctx);
        let slow = decision.causes.iter().find(|cause| cause.incarnation == ctx.me);
        let slow = slow
            .filter(|_| self.leaving.is_none())
            .map(|cause| cause.cause.clone());
        let name = self.name.clone();
        if slow.is_none() {
            self.end(ctx);
        }
        let elder = ctx.elder();
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let (group, view) = (membership.id, decision.id);
        let next_leader = decision
            .members
            .iter()
            .find(|member| ctx.present(**member))
            .copied();
        match (next_leader, elder) {
            (Some(leader), _) => ctx.send(leader, GroupMessage::Installed { group, view }),
            (None, Some(elder)) => ctx.send(
                elder,
                GroupMessage::Dissolved {
                    group,
                    name,
                    k: view.k,
                },
            ),
            (None, None) => {}
        }
        // Others may still need what it holds. If no member is left, it is forgotten at the next opportunity.
        let until = if next_leader.is_some() {
            ctx.now + ctx.profile.flush_stall
        } else {
            ctx.now
        };
        let placeholder = Retained {
            decision,
            stream: None,
        };
        let stream = match std::mem::replace(&mut self.phase, Phase::Refused) {
            Phase::Member(membership) => Some(membership.stream),
            _ => None,
        };
        let retained = Box::new(Retained {
            stream,
            ..placeholder
        });
        let Some(cause) = slow else {
            self.phase = Phase::Ghost {
                group,
                retained,
                until,
            };
            return;
        };
        // The group goes on at this node from the start. What others may need of the old membership is kept
        // beside it.
        ctx.ghosts.push(Ghost {
            name: self.name.clone(),
            options: self.options,
            group,
            retained,
            until,
        });
        ctx.floors.insert(group, Floor::removed(view, &cause));
        self.resync(ctx, cause);
    }

    /// The group's members removed this one while it was alive.
    pub(super) fn removed(&mut self, ctx: &mut Context<'_>, cause: String) {
        if !self.resync(ctx, cause) {
            self.end(ctx);
            self.phase = Phase::Refused;
            ctx.over.push(self.handle);
        }
    }

    /// This joiner's first view.
    pub(crate) fn handle_first_view(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        group: GroupId,
        terms: GroupTerms,
        decision: Decision,
        past: Past,
    ) {
        let view = decision.id;
        match &self.phase {
            Phase::Member(membership) if membership.stream.id == view => {}
            Phase::Locating { .. } | Phase::Joining { .. } => {
                let nonce = self.nonce;
                let me = |joiner: &antiphon_wire::group::Joiner| {
                    joiner.incarnation == ctx.me && joiner.nonce == nonce
                };
                let is_gone = |member: &Member| {
                    let mut departed = decision.left.iter().chain(&decision.crashed);
                    departed.any(|departed| *departed == member.incarnation)
                };
                let floor = ctx.floors.get(&group);
                let acceptable = terms == self.terms()
                    && decision.joined.iter().any(me)
                    && decision.members.contains(&ctx.me)
                    && decision.start.len() == decision.members.len()
                    && decision.members.len() <= MAX_GROUP_MEMBERS
                    && past.gone.iter().all(is_gone)
                    && id_is_possible(ctx, view)
                    && decision
                        .start
                        .iter()
                        .all(|start| (1..u64::MAX / 2).contains(start))
                    && floor.is_none_or(|floor| floor.view < view);
                if !acceptable {
                    ctx.nonsense();
                    return;
                }
                let late = decision.members.iter().any(|member| !ctx.present(*member));
                self.enter(ctx, group, decision, past, false);
                if late {
                    // They are missing from a node view that was installed here before this group view.
                    self.restart_lead(ctx, false);
                }
            }
            Phase::Member(_) | Phase::Ghost { .. } | Phase::Refused => return,
        }
        ctx.send(from, GroupMessage::Installed { group, view });
    }
}
