//! The end of a view and the beginning of the next: deliver the rest of the cut, install, tell the leader.

use std::collections::BTreeSet;

use antiphon_wire::group::{Decision, GroupMessage, GroupTerms};
use antiphon_wire::{GroupId, Incarnation, Member};

use super::context::Floor;
use super::cut::cut_of;
use super::entry::Past;
use super::large::Assembly;
use super::member::{Group, Phase};
use super::stream::{Beginning, Stream};
use super::{Context, MAX_GROUP_MEMBERS};
use crate::GroupEvent;
use crate::flush::state::Ghost;
use crate::flush::{Flush, Retained};

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
        membership.flush.assert_complete(&membership.stream, decision);
        let stream = &mut membership.stream;
        // A member that had left before it could report is called left as well, and need not have what the
        // others deliver now. A member that reported holds all that it sent itself, and the decision says so.
        let reported = |rank: usize| {
            let holders = decision.holders.get(rank);
            holders.is_some_and(|holders| holders.contains(&(rank as u16)))
        };
        let takes_part = |(rank, member): (usize, &Incarnation)| {
            decision.members.contains(member) || decision.left.contains(member) && reported(rank)
        };
        let survives: Vec<_> = stream.members.iter().enumerate().map(takes_part).collect();
        let view = stream.id;
        let members = stream.members.iter().zip(&survives);
        let members = members.filter(|(_, survives)| **survives);
        let mut notice = Some(GroupEvent::Transitional {
            members: members.map(|(member, _)| *member).collect(),
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
        let goes_apart = id.node.epoch != old.id.node.epoch;
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
        let stays = |member: &Incarnation| decision.members.contains(member);
        let stayed = |member: Incarnation| stays(&member) && old_members.contains(&member);
        membership.standstill.keep(stayed, !decision.causes.is_empty());
        let joined = |who: Incarnation| decision.joined.iter().any(|joiner| joiner.incarnation == who);
        let group = membership.id;
        self.end_pairs_of(|member| stays(&member) && !joined(member));
        let view = self.view_event(group, &decision, transitional, Vec::new());
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        membership.flush.begin_view(decision, old);
        let early = membership.take_early();
        self.event(ctx, view);
        if !(goes_apart && planted!(NoReceiptsApart)) {
            self.tell_receipts(ctx, receipts);
        }
        self.announce(ctx);
        self.flush(ctx, Flush::installed);
        for (from, record) in early {
            self.handle_data(ctx, from, record);
        }
        self.pump(ctx);
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
            self.end(ctx, GroupEvent::Left);
        }
        let elder = ctx.elder();
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let (group, view) = (membership.id, decision.id);
        let next_leader = decision
            .members
            .iter()
            .find(|member| ctx.node.has(**member))
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
        // Objects that were not sent are lost with the phase; their tickets are not.
        self.keep_pending(ctx.me);
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
            self.end(ctx, GroupEvent::Left);
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
                let distinct: BTreeSet<_> = decision.members.iter().collect();
                let acceptable = terms == self.terms()
                    && distinct.len() == decision.members.len()
                    && decision.id > decision.from
                    && decision.joined.iter().any(me)
                    && decision.members.contains(&ctx.me)
                    && decision.start.len() == decision.members.len()
                    && decision.members.len() <= MAX_GROUP_MEMBERS
                    && past.gone.iter().all(is_gone)
                    && ctx.node.allows(view)
                    && decision
                        .start
                        .iter()
                        .all(|start| (1..u64::MAX / 2).contains(start))
                    && floor.is_none_or(|floor| floor.view < view);
                if !acceptable {
                    ctx.nonsense();
                    return;
                }
                let late = decision.members.iter().any(|member| !ctx.node.has(*member));
                self.enter(ctx, group, decision, past, false);
                if late {
                    // They are missing from a node view that was installed here before this group view.
                    self.flush(ctx, |flush, around| flush.restart_lead(around, false));
                }
            }
            Phase::Member(_) | Phase::Ghost { .. } | Phase::Refused => return,
        }
        ctx.send(from, GroupMessage::Installed { group, view });
    }
}
