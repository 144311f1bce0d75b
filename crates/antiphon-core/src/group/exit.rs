//! The ways out of a group: leaving in order, being removed, and starting over as a fresh incarnation (R17).
//!
//! Messages that were sent and not delivered here when a membership ended are kept until the group's next
//! view tells what became of them.

use antiphon_wire::Incarnation;
use antiphon_wire::group::{DepartedSender, GroupMessage};

use super::Context;
use super::context::Floor;
use super::credit::Credit;
use super::member::*;
use super::queue::Tickets;
use super::reached::Reached;
use crate::{GroupEvent, Outcome};

impl Group {
    pub(crate) fn leave(&mut self, ctx: &mut Context<'_>) -> bool {
        if self.leaving.is_some() {
            return false;
        }
        self.leaving = Some(ctx.now);
        match &self.phase {
            Phase::Member(_) => {
                self.ask_to_leave(ctx);
                false
            }
            // A leader may already have admitted it: it becomes a member and leaves as one.
            Phase::Locating { .. } | Phase::Joining { .. } => !self.asked,
            Phase::Refused => true,
            Phase::Ghost { .. } => false,
        }
    }

    pub(super) fn ask_to_leave_again(&mut self, ctx: &mut Context<'_>) {
        if let Phase::Member(membership) = &mut self.phase {
            membership.leave_at = None;
        }
        self.ask_to_leave(ctx);
    }

    /// Asks the leader to be left out of the next view, once all accepted messages were sent.
    pub(super) fn ask_to_leave(&mut self, ctx: &mut Context<'_>) {
        let Some(since) = self.leaving else { return };
        let waited = ctx.now.since(since) >= ctx.profile.leave_within / 2;
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let all_sent =
            self.queue.is_empty() && membership.objects.all_sent() && membership.direct.all_heard();
        if ctx.suspended || !all_sent && !waited {
            return;
        }
        if membership.leave_at.is_some_and(|at| ctx.now < at) {
            return;
        }
        membership.leave_at = Some(ctx.now + ctx.profile.retransmit * 16);
        let group = membership.id;
        if let Some(leader) = membership.leader(ctx) {
            ctx.send(leader, GroupMessage::Leave { group });
        }
    }

    /// This node has left, as the last event says, or was not let in. Messages that were accepted but never
    /// sent will not be sent any more. No member will tell it what became of messages that were sent and
    /// never came back (R17: each of them gets its receipt).
    pub(crate) fn end(&mut self, ctx: &mut Context<'_>, last: GroupEvent) {
        self.end_direct(ctx);
        let own = self.sent.clear().map(|(_, tickets)| (true, tickets));
        let pending = std::mem::take(&mut self.pending).into_iter();
        let sent = pending
            .flat_map(|pending| pending.messages)
            .map(|(seq, tickets)| (seq.is_some(), tickets));
        let queued = self.clear_queued().map(|tickets| (false, tickets));
        let receipts: Vec<_> = sent.chain(own).chain(queued).collect();
        for (sent, Tickets { first, count }) in receipts {
            let outcome = if sent {
                Outcome::Unknown
            } else {
                Outcome::NotDelivered
            };
            self.event(
                ctx,
                GroupEvent::Receipts {
                    first,
                    count,
                    outcome,
                },
            );
        }
        self.event(ctx, last);
    }

    /// The membership is void; the group is joined again. False if this node wanted to leave anyway.
    pub(crate) fn resync(&mut self, ctx: &mut Context<'_>, cause: String) -> bool {
        if let Phase::Member(membership) = &self.phase {
            let promised = membership.flush.promise.as_ref().map(|promise| promise.target);
            let floor = promised.unwrap_or(membership.stream.id).max(membership.stream.id);
            ctx.floors.insert(membership.id, Floor::removed(floor, &cause));
        }
        if self.leaving.is_some() {
            return false;
        }
        self.end_direct(ctx);
        self.keep_pending(ctx.me);
        self.event(ctx, GroupEvent::Resync { cause });
        self.nonce = ctx.random.next_u64();
        self.asked = false;
        let back_off = ctx.profile.retransmit * 4 * (1 << self.resyncs.min(6));
        self.resyncs += 1;
        self.phase = Phase::Locating {
            retry_at: ctx.now + back_off,
        };
        true
    }

    /// This node goes on as a fresh incarnation; `old` is the one before. False if the group is to be
    /// forgotten.
    pub(crate) fn start_over(
        &mut self,
        ctx: &mut Context<'_>,
        old: Option<Incarnation>,
        cause: Option<&str>,
    ) -> bool {
        if self.leaving.is_some() {
            if !matches!(self.phase, Phase::Ghost { .. }) {
                self.end(ctx, GroupEvent::Left);
            }
            return false;
        }
        if let Some(old) = old {
            self.keep_pending(old);
        }
        self.end_direct(ctx);
        if matches!(self.phase, Phase::Member(_)) {
            let cause = cause.unwrap_or("the node has a new incarnation").to_owned();
            self.event(ctx, GroupEvent::Resync { cause });
        }
        self.nonce = ctx.random.next_u64();
        self.asked = false;
        self.next_seq = 1;
        self.credit = Credit::new(1);
        if !matches!(self.phase, Phase::Refused) {
            self.phase = Phase::Locating { retry_at: ctx.now };
        }
        true
    }

    /// Empties what was accepted and never sent.
    fn clear_queued(&mut self) -> impl Iterator<Item = Tickets> + use<> {
        let mut queued = self.queue.clear();
        if let Phase::Member(membership) = &mut self.phase {
            queued.extend(membership.objects.clear_unsent());
        }
        queued.into_iter()
    }

    pub(super) fn keep_pending(&mut self, incarnation: Incarnation) {
        let sent = self.sent.clear().map(|(seq, tickets)| (Some(seq), tickets));
        let queued = self.clear_queued().map(|tickets| (None, tickets));
        let messages: Vec<_> = sent.chain(queued).collect();
        let last = match &self.phase {
            Phase::Member(membership) => membership.stream.id.k,
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Ghost { .. } | Phase::Refused => 0,
        };
        if !messages.is_empty() {
            self.pending.push(Pending {
                incarnation,
                last,
                messages,
            });
        }
    }

    /// R17: what became of messages of an earlier membership, from the primary's recorded cuts.
    pub(super) fn resolve_receipts(&mut self, ctx: &mut Context<'_>, founded: bool) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        let mut receipts = Vec::new();
        for Pending {
            incarnation,
            last,
            messages,
        } in std::mem::take(&mut self.pending)
        {
            // The first record after its last view counts. The member may have been admitted since, and
            // removed again before it heard of that. The record of such a stay has none of these messages: it
            // begins behind all that was sent before.
            let record = membership.departed.iter().find(|departed| {
                let later = departed.k > last && !planted!(ForgetRecords);
                departed.incarnation == incarnation && later
            });
            for (seq, Tickets { first, count }) in messages {
                let runs = match (seq, record) {
                    (None, _) => vec![(count, Outcome::NotDelivered)],
                    (Some(_), _) if founded => vec![(count, Outcome::Unknown)],
                    (Some(_), None) => vec![(count, Outcome::Unknown)],
                    (Some(seq), Some(record)) => fates(record, seq, count),
                };
                let mut first = first;
                for (count, outcome) in runs {
                    receipts.push(GroupEvent::Receipts {
                        first,
                        count,
                        outcome,
                    });
                    first.0 += count;
                }
            }
        }
        for receipt in receipts {
            self.event(ctx, receipt);
        }
    }
}

/// What the record of a departed sender says of so many messages from this number on, in runs.
fn fates(record: &DepartedSender, first: u64, count: u64) -> Vec<(u64, Outcome)> {
    let mut delivered = Reached::new(record.last.saturating_add(1));
    for (run, count) in &record.beyond {
        delivered.add(*run, run.saturating_add(*count));
    }
    let (mut at, end) = (first, first.saturating_add(count));
    let mut fates = Vec::new();
    while at < end {
        let (gap, gap_end) = delivered.missing(at, end).unwrap_or((end, end));
        let runs = [
            (gap - at, Outcome::Delivered),
            (gap_end - gap, Outcome::NotDelivered),
        ];
        fates.extend(runs.into_iter().filter(|(count, _)| *count > 0));
        at = gap_end;
    }
    fates
}
