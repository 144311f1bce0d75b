//! What follows from the reports of all participants: another view to complete first, or a cut and the next
//! view.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::group::{CutSpan, Decision, DepartureCause, Joiner, Span, Standing, TellsHeard};
use antiphon_wire::{GroupViewId, Incarnation};

use super::member::MAX_CUT_AHEAD;
use super::safe::cut_held_by;
use super::{Around, Flush};
use crate::group::MAX_GROUP_MEMBERS;
use crate::group::cut::cut_of;
use crate::group::direct::is_possible;
use crate::group::effect::MAX_CAUSE_BYTES;
use crate::group::reached::Reached;

/// No number in a report is this far ahead of what the leader holds. Of what other members hold it is not
/// twice as far ahead, so each of them takes the decision.
const MAX_AHEAD: u64 = MAX_CUT_AHEAD / 2;
/// How many holders of a prefix a decision names.
const MAX_HOLDERS: usize = 3;

/// What follows from the reports of all participants.
pub(super) enum Verdict {
    /// This participant has installed a later view than the leader, or (`false`) has said that it holds a cut
    /// with safe messages.
    Adopt(Box<Decision>, Incarnation, bool),
    /// The next view is installed, but what this leader lacks of the view before is gone with all that had
    /// it.
    Lost,
    /// These have not installed the leader's view: survivors, joiners.
    Complete(BTreeSet<Incarnation>, BTreeSet<Incarnation>),
    /// These participants do not fit at all: they are removed.
    Drop(Vec<Incarnation>),
    /// All stand where the leader stands.
    Decide(Box<Decision>, Vec<Incarnation>),
}

/// What a participant holds in the view that ends.
struct Row<'a> {
    rank: usize,
    held: &'a [u64],
    beyond: &'a [Span],
    nulls: &'a [u64],
    ordered: u64,
}

impl Flush {
    pub(super) fn judge(
        &self,
        around: &Around<'_>,
        target: GroupViewId,
        reports: &BTreeMap<Incarnation, Standing>,
    ) -> Verdict {
        let mine = around.stream.id;
        if is_left_behind(around, reports) {
            return Verdict::Lost;
        }
        let mut behind = BTreeSet::new();
        let mut joining = BTreeSet::new();
        let mut misfits = Vec::new();
        for (&from, standing) in reports {
            match standing {
                Standing::Gone { removed: Some(cause) } if cause.len() > MAX_CAUSE_BYTES => {
                    misfits.push(from)
                }
                Standing::Gone { .. } => {}
                Standing::Joining if self.retained.is_some() => drop(joining.insert(from)),
                Standing::Joining => misfits.push(from),
                Standing::At {
                    view,
                    held,
                    nulls,
                    beyond,
                    ordered,
                    told,
                    ..
                } if *view == mine => {
                    let stream = around.stream;
                    let members = stream.members.len();
                    let far = |rank: usize| stream.logs[rank].next().saturating_add(MAX_AHEAD);
                    let shape = held.len() == members && nulls.len() == members;
                    let possible = nulls.iter().zip(held).all(|(nulls, held)| nulls <= held);
                    let near = held.iter().zip(0..members).all(|(held, rank)| *held < far(rank));
                    let near = near && *ordered < stream.engine.ordered().saturating_add(MAX_AHEAD);
                    let passes = stream.engine.passes_gaps();
                    let spans = beyond.iter().all(|span| {
                        let (rank, end) = (usize::from(span.sender), span.first.checked_add(span.count));
                        rank < members && end.is_some_and(|end| end <= far(rank))
                    });
                    let spans = spans && (passes || beyond.is_empty());
                    let possible = possible && is_possible(told, members);
                    // Nobody delivers of another member what that has not sent.
                    let sent = stream.rank(from).filter(|_| shape).is_some_and(|rank| {
                        let sent = Reached::new(held[rank].saturating_add(1));
                        from == around.me || sent.covers_all(&stream.logs[rank].delivered_set())
                    });
                    if !(shape && possible && near && spans && sent) {
                        misfits.push(from);
                    }
                }
                Standing::At { view, decision, .. } if *view > mine => match decision {
                    // R14: planted, the leader overlooks that a member has installed a view already.
                    _ if planted!(SkipInstalledView) => {}
                    Some(decision) if decision.from == mine && decision.id == *view => {
                        return Verdict::Adopt(decision.clone(), from, true);
                    }
                    _ => misfits.push(from),
                },
                Standing::At { view, .. } => match &self.retained {
                    Some(retained) if retained.decision.from == *view => drop(behind.insert(from)),
                    _ => misfits.push(from),
                },
            }
        }
        if !misfits.is_empty() {
            return Verdict::Drop(misfits);
        }
        if !(behind.is_empty() && joining.is_empty()) {
            return Verdict::Complete(behind, joining);
        }
        // G25: a member that is gone may have delivered it.
        if let Some((decision, holder)) = cut_held_by(around, reports.iter()) {
            return Verdict::Adopt(Box::new(decision.clone()), holder, false);
        }
        let (decision, survivors) = self.decide(around, target, reports);
        Verdict::Decide(Box::new(decision), survivors)
    }

    /// The cut and the next view, from the reports of all survivors. No survivor has delivered more than it
    /// reported.
    fn decide(
        &self,
        around: &Around<'_>,
        target: GroupViewId,
        reports: &BTreeMap<Incarnation, Standing>,
    ) -> (Decision, Vec<Incarnation>) {
        let old = &around.stream.members;
        let rows: Vec<Row<'_>> = old
            .iter()
            .enumerate()
            .filter_map(|(rank, member)| match reports.get(member) {
                Some(Standing::At {
                    held,
                    beyond,
                    nulls,
                    ordered,
                    view,
                    ..
                }) if *view == around.stream.id => Some(Row {
                    rank,
                    held,
                    beyond,
                    nulls,
                    ordered: *ordered,
                }),
                _ => None,
            })
            .collect();
        let survives = |rank: usize| {
            reports
                .get(&old[rank])
                .is_some_and(|standing| !matches!(standing, Standing::Gone { .. }))
        };
        let mut cut = Vec::new();
        let mut start = Vec::new();
        let mut holders = Vec::new();
        for sender in 0..old.len() {
            let held = rows.iter().map(|row| row.held[sender]);
            // R15: all deliver whatever any survivor holds contiguously.
            let end = if planted!(CutIsMinimum) {
                held.min()
            } else {
                held.max()
            };
            let mut end = end.unwrap_or(0);
            if planted!(ForgetDeadSendersMessages) && !survives(sender) {
                end = around.stream.held().0[sender];
            }
            let holds = rows
                .iter()
                .filter(|row| row.held[sender] >= end)
                .map(|row| row.rank);
            // The sender itself has all it ever sent; asking it spreads the load.
            let sender_first = holds.clone().filter(|rank| *rank == sender);
            let others = holds.filter(|rank| *rank != sender);
            holders.push(
                sender_first
                    .chain(others)
                    .take(MAX_HOLDERS)
                    .map(|rank| rank as u16)
                    .collect(),
            );
            // A view begins with numbers of messages alone. A log has one content: members that hold the same
            // numbers have the same nulls.
            let same = rows.iter().find(|row| row.held[sender] == end);
            start.push((end + 1).saturating_sub(same.map_or(0, |row| row.nulls[sender])));
            cut.push(end);
        }
        let ordered = rows.iter().map(|row| row.ordered).max().unwrap_or(0);
        let order_holders = rows.iter().filter(|row| row.ordered >= ordered);
        let order_holders = order_holders
            .take(MAX_HOLDERS)
            .map(|row| row.rank as u16)
            .collect();

        let survivors: Vec<_> = (0..old.len()).filter(|rank| survives(*rank)).collect();
        let slowest = self.requests.slowest(around, |member| {
            survivors.len() > 1 && survivors.iter().any(|rank| old[*rank] == member)
        });
        let mut leaves =
            |rank: &usize| self.requests.leaves.contains(&old[*rank]) || slowest == Some(old[*rank]);
        // The leader leaves last: until then it answers for the group.
        let leader_stays = survivors.len() > 1 && survivors.iter().all(&mut leaves);
        let keeps_leader = leader_stays || planted!(KeepSlowLeader) && slowest == Some(around.me);
        let stays = |rank: &usize| !leaves(rank) || keeps_leader && old[*rank] == around.me;
        let staying: Vec<usize> = survivors.iter().copied().filter(stays).collect();
        let room = MAX_GROUP_MEMBERS.saturating_sub(staying.len());
        let admissible =
            |joiner: &&Joiner| around.node.has(joiner.incarnation) && !old.contains(&joiner.incarnation);
        let joined: Vec<Joiner> = if staying.is_empty() {
            Vec::new()
        } else {
            self.requests
                .joins
                .iter()
                .filter(admissible)
                .take(room)
                .copied()
                .collect()
        };
        let members: Vec<_> = staying
            .iter()
            .map(|rank| (old[*rank], start[*rank]))
            .chain(joined.iter().map(|joiner| (joiner.incarnation, joiner.first)))
            .collect();
        // G7: a member that was removed has not left, although its part in the flush is the same.
        let gone = |member: &Incarnation| reports.get(member) == Some(&Standing::Gone { removed: None });
        let removed = |member: &Incarnation| match reports.get(member) {
            Some(Standing::Gone { removed }) => removed.as_ref(),
            _ => None,
        };
        let left: Vec<_> = old
            .iter()
            .enumerate()
            .filter(|(rank, member)| gone(member) || survives(*rank) && !staying.contains(rank))
            .map(|(_, member)| *member)
            .collect();
        let crashed = old
            .iter()
            .enumerate()
            .filter(|(rank, member)| !survives(*rank) && !gone(member));
        let causes = old.iter().filter_map(|member| {
            let stays = members.iter().any(|(other, _)| other == member);
            // If a slow member has asked to leave meanwhile, it leaves in order.
            let slow = slowest == Some(*member) && !self.requests.leaves.contains(member);
            let slow = self
                .requests
                .slow
                .get(member)
                .filter(|_| slow)
                .map(|slow| &slow.cause);
            let cause = slow.or_else(|| self.requests.dropped.get(member));
            let cause = cause.or_else(|| removed(member)).filter(|_| !stays)?;
            Some(DepartureCause {
                incarnation: *member,
                cause: cause.clone(),
            })
        });
        let causes = causes.collect();
        let safe = reports.values().any(
            |standing| matches!(standing, Standing::At { view, safe: true, .. } if *view == around.stream.id),
        );
        let beyond = if planted!(PrefixCutForUnordered) {
            Vec::new()
        } else {
            union(&rows, &cut, survives)
        };
        let stays = |member: &Incarnation| members.iter().any(|(other, _)| other == member);
        let told = old.iter().enumerate().filter(|(_, member)| !stays(member));
        // They have reported what they took, and they take no more (R13).
        let told = told.filter_map(|(rank, member)| match reports.get(member) {
            Some(Standing::At { told, view, .. }) if *view == around.stream.id => Some(TellsHeard {
                member: rank as u16,
                heard: told.clone(),
            }),
            _ => None,
        });
        let told = told.collect();
        let decision = Decision {
            beyond,
            causes,
            safe,
            told,
            id: target,
            from: around.stream.id,
            crashed: crashed.map(|(_, member)| *member).collect(),
            cut,
            holders,
            ordered,
            order_holders,
            start: members.iter().map(|(_, start)| *start).collect(),
            members: members.into_iter().map(|(member, _)| member).collect(),
            joined,
            left,
        };
        // R12: members that stay keep their order of rank, and joiners come last.
        let ranks = decision.members.iter().map(|member| around.stream.rank(*member));
        let ranks: Vec<_> = ranks.map(|rank| rank.unwrap_or(usize::MAX)).collect();
        assert!(
            decision.id > decision.from && ranks.is_sorted() && ranks.len() <= MAX_GROUP_MEMBERS
                || planted!(),
            "R12: {:?} after {:?} has the former ranks {ranks:?}",
            decision.id,
            decision.from
        );
        (decision, survivors.into_iter().map(|rank| old[rank]).collect())
    }
}

/// Whether this leader was left behind. Two things must hold. All members that have gone on from this
/// view came with the next view, and hold nothing of this one. The members that are still here do not
/// hold the whole cut together: the members that did are gone. R12: joiners have the next view, so its
/// leader did not wait for this member any more, and had removed it.
fn is_left_behind(around: &Around<'_>, reports: &BTreeMap<Incarnation, Standing>) -> bool {
    let mine = around.stream.id;
    let mut next = reports.iter().filter_map(|(who, standing)| match standing {
        Standing::At {
            view,
            decision: Some(decision),
            ..
        } if *view > mine && decision.from == mine && decision.id == *view => Some((*who, &**decision)),
        _ => None,
    });
    let came =
        |(who, next): (Incarnation, &Decision)| next.joined.iter().any(|joiner| joiner.incarnation == who);
    // The first decision is the one that would be completed.
    let Some((_, decision)) = next.clone().next().filter(|_| next.all(came)) else {
        return false;
    };
    !planted!(SkipInstalledView) && !is_held_here(around, decision, reports)
}

/// Whether the members that are still in this view, this member among them, hold all of a cut of it
/// together.
fn is_held_here(around: &Around<'_>, decision: &Decision, reports: &BTreeMap<Incarnation, Standing>) -> bool {
    let mut held: Vec<Reached> = around.stream.members.iter().map(|_| Reached::new(0)).collect();
    let mut most = 0;
    for standing in reports.values() {
        let Standing::At {
            view,
            held: prefixes,
            beyond,
            ordered,
            ..
        } = standing
        else {
            continue;
        };
        if *view != around.stream.id {
            continue;
        }
        for (held, last) in held.iter_mut().zip(prefixes) {
            held.raise(last.saturating_add(1));
        }
        for span in beyond {
            if let Some(held) = held.get_mut(usize::from(span.sender)) {
                held.add(span.first, span.first.saturating_add(span.count));
            }
        }
        most = most.max(*ordered);
    }
    let mut held = held.iter().enumerate();
    most >= decision.ordered && held.all(|(rank, held)| held.covers_all(&cut_of(decision, rank)))
}

/// R15: all that any survivor holds of departed senders behind the prefix. Each part names a member that
/// holds it first.
fn union(rows: &[Row<'_>], cut: &[u64], survives: impl Fn(usize) -> bool) -> Vec<CutSpan> {
    let mut parts = Vec::new();
    // A survivor's own log has no gap: what others hold of it is in its prefix.
    for sender in (0..cut.len()).filter(|sender| !survives(*sender)) {
        let of_sender = |span: &&Span| usize::from(span.sender) == sender;
        let mut known = Reached::new(cut[sender] + 1);
        for row in rows {
            for span in row.beyond.iter().filter(of_sender) {
                let end = span.first + span.count;
                let news: Vec<_> = known.all_missing(span.first, end).collect();
                known.add(span.first, end);
                parts.extend(news.into_iter().map(|(first, end)| {
                    let span = Span {
                        sender: sender as u16,
                        first,
                        count: end - first,
                    };
                    let holders = vec![row.rank as u16];
                    CutSpan { span, holders }
                }));
            }
        }
    }
    for CutSpan { span, holders } in &mut parts {
        let has = |held: &Span| {
            held.sender == span.sender
                && held.first <= span.first
                && span.first + span.count <= held.first + held.count
        };
        let also = rows.iter().filter(|row| row.beyond.iter().any(has));
        let also = also.map(|row| row.rank as u16);
        for rank in also.take(MAX_HOLDERS) {
            if holders.len() < MAX_HOLDERS && !holders.contains(&rank) {
                holders.push(rank);
            }
        }
    }
    parts
}
