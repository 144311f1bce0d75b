//! What a member does with the records of its group: messages, rows, repairs, and records that come too
//! early.

use antiphon_wire::codec::MAX_LIST;
use antiphon_wire::group::{Decision, DepartedSender, GroupData};
use antiphon_wire::{Block, GroupViewId, Incarnation};

use super::Context;
use super::log::{BLOCK_OVERHEAD, charge};
use super::member::*;
use super::stream::BatchHeader;
use crate::order::Word;

/// The most departed senders whose end is remembered, and for how many views.
const MAX_DEPARTED: usize = 256;
const DEPARTED_VIEWS: u32 = 100;
/// The most runs behind gaps that are remembered, of all departed senders together.
const MAX_DEPARTED_RUNS: usize = 8192;
/// Frames held for a view that is not installed yet, in bytes.
pub(super) const MAX_EARLY_BYTES: usize = 4 << 20;

impl Joined {
    /// True if messages may have become deliverable or credit free.
    pub(super) fn handle_data(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        record: GroupData,
    ) -> bool {
        let (now, profile) = (ctx.now, ctx.profile);
        // G11 same view for all: a message names the view that it was sent in, and is taken in no other.
        match record {
            GroupData::Batch {
                view,
                sender,
                first,
                stable,
                ask,
                messages,
                ..
            } if view == self.stream.id => {
                // R13: from its report on, a member takes old-view messages only as repairs of the flush.
                let open = self.flush.is_open() || planted!(ReceiveAfterWedge);
                let sender = usize::from(sender);
                if !open || self.stream.rank(from) != Some(sender) {
                    return false;
                }
                let header = BatchHeader {
                    sender,
                    first,
                    stable,
                    ask,
                };
                self.stream.batch(now, profile, header, messages, ctx.effects);
                true
            }
            GroupData::Orders { view, .. } if view == self.stream.id => self.hear(ctx, from, record),
            GroupData::Token { view, .. } if view == self.stream.id || planted!(TokenOfOldView) => {
                self.hear(ctx, from, record)
            }
            GroupData::OrderNak { view, .. } | GroupData::TokenHeld { view, .. }
                if view == self.stream.id =>
            {
                self.hear_always(ctx, from, record);
                false
            }
            GroupData::Rows {
                view, ask, ref reach, ..
            } if view == self.stream.id => {
                let Some(rank) = self.stream.rank(from).filter(|_| self.flush.is_open()) else {
                    return false;
                };
                self.stream.rows(rank, ask, reach)
            }
            GroupData::Batch { view, .. }
            | GroupData::Orders { view, .. }
            | GroupData::Token { view, .. }
            | GroupData::Offer { view, .. }
            | GroupData::Want { view, .. }
            | GroupData::Held { view, .. }
            | GroupData::Tell { view, .. }
            | GroupData::TellAck { view, .. }
            | GroupData::Rows { view, .. } => {
                if view > self.stream.id {
                    self.hold_early(from, record);
                }
                false
            }
            GroupData::Ack {
                view,
                to,
                held,
                consumed,
                ordered,
                ..
            } if view == self.stream.id => {
                let Some(rank) = self.stream.rank(from) else {
                    return false;
                };
                // A frame may come to members that it was not sent to. If this member took such an
                // acknowledgement for its own log, messages would count as safe (G24) that no other member
                // has.
                if !self.stream.is_mine(to) && !planted!(AcksAreAnybodys) {
                    return false;
                }
                self.stream.ack(now, profile, rank, held, consumed, ordered)
            }
            GroupData::Nak {
                view,
                sender,
                first,
                end,
                ..
            } if view == self.stream.id => {
                if let Some(rank) = self.stream.rank(from) {
                    self.stream
                        .nak(rank, usize::from(sender), first, end, ctx.effects);
                }
                false
            }
            GroupData::Ack { .. }
            | GroupData::Nak { .. }
            | GroupData::OrderNak { .. }
            | GroupData::TokenHeld { .. } => false,
            // A chunk is for the member that asked for it, and was handled before.
            GroupData::Chunk { .. } => false,
            GroupData::Pull {
                view,
                sender,
                first,
                end,
                ..
            } if view == self.stream.id => {
                self.stream
                    .pull(from, usize::from(sender), first, end, ctx.effects);
                false
            }
            GroupData::PullOrders { view, first, .. } if view == self.stream.id => {
                self.stream.pull_orders(from, first, ctx.effects);
                false
            }
            GroupData::Pull { .. } | GroupData::PullOrders { .. } => {
                if let Some(retained) = &self.flush.retained {
                    retained.answer(from, &record, ctx.effects);
                }
                false
            }
            GroupData::Repair {
                view,
                sender,
                first,
                messages,
                ..
            } if view == self.stream.id && self.takes_supplies() => {
                let Some(supplier) = self.stream.rank(from) else {
                    return false;
                };
                let sender = if planted!(RepairIsSuppliers) {
                    supplier
                } else {
                    usize::from(sender)
                };
                self.stream
                    .supplied(now, profile, sender, first, messages, ctx.effects);
                true
            }
            GroupData::Repair { .. } | GroupData::RepairOrders { .. } => {
                let flush = &mut self.flush;
                flush.take_repair(ctx.now, ctx.profile, &mut self.stream, record);
                false
            }
        }
    }

    /// Takes what a member says about the order, in the open view only (R13).
    fn hear(&mut self, ctx: &mut Context<'_>, from: Incarnation, record: GroupData) -> bool {
        let open = self.flush.is_open() || planted!(ReceiveAfterWedge);
        open && self.hear_always(ctx, from, record)
    }

    /// Takes what a member says about the order, also in a flush. False if the record says nothing about the
    /// order.
    fn hear_always(&mut self, ctx: &mut Context<'_>, from: Incarnation, record: GroupData) -> bool {
        let (Some(rank), Some(word)) = (self.stream.rank(from), Word::of(record)) else {
            return false;
        };
        self.stream.hear(ctx.now, ctx.profile, rank, word, ctx.effects);
        true
    }

    /// Whether messages of one member may come from another now.
    fn takes_supplies(&self) -> bool {
        // R13: a reply to a request of the open view that comes after the report is not taken. The flush
        // knows what is missing, and asks for that itself.
        self.flush.is_open() && self.stream.disseminator.supplies()
    }

    /// The member that gets a frame with this record from this member, if there is one.
    pub(super) fn hand_on(&mut self, from: Incarnation, record: &GroupData) -> Option<Incarnation> {
        let GroupData::Batch {
            view,
            sender,
            first,
            messages,
            ..
        } = record
        else {
            return None;
        };
        let origin = self.stream.rank(from)?;
        let open = self.flush.is_open() && *view == self.stream.id;
        if (!open || origin != usize::from(*sender)) && !planted!(HandOnOldViews) {
            return None;
        }
        let end = first.saturating_add(messages.count());
        let next = self.stream.disseminator.hand_on(origin, *first, end)?;
        self.stream.members.get(next).copied()
    }

    /// Messages of a batch that were delivered before: only a planted mistake delivers them again.
    pub(super) fn known_messages(
        &self,
        sender: Incarnation,
        record: &GroupData,
    ) -> Option<(GroupViewId, u64, Block)> {
        let GroupData::Batch {
            view,
            first,
            messages,
            ..
        } = record
        else {
            return None;
        };
        let rank = self.stream.rank(sender).filter(|_| *view == self.stream.id)?;
        let delivered = self.stream.logs[rank].delivered();
        let known = messages.clone().split_front(delivered.saturating_sub(*first));
        (!known.is_empty() && !known.is_nulls()).then_some((*view, *first, known))
    }

    /// Remembers how far the messages of members that are not in the next view were delivered (R17).
    pub(crate) fn remember_departed(&mut self, decision: &Decision) {
        for (member, log) in self.stream.members.iter().zip(&self.stream.logs) {
            if !decision.members.contains(member) {
                let last = log.delivered_messages() - 1;
                let delivered = log.delivered_set();
                let beyond: Vec<_> = delivered
                    .beyond()
                    .map(|(first, end)| (first, end - first))
                    .collect();
                // No message may have more: then nobody can say what became of its last messages.
                if beyond.len() <= MAX_LIST {
                    self.departed.push_back(DepartedSender {
                        incarnation: *member,
                        last,
                        beyond,
                        k: decision.id.k,
                    });
                }
            }
        }
        self.departed
            .retain(|departed| departed.k.saturating_add(DEPARTED_VIEWS) > decision.id.k);
        let excess = self.departed.len().saturating_sub(MAX_DEPARTED);
        self.departed.drain(..excess);
        let mut runs: usize = self.departed.iter().map(|departed| departed.beyond.len()).sum();
        while runs > MAX_DEPARTED_RUNS
            && let Some(oldest) = self.departed.pop_front()
        {
            runs -= oldest.beyond.len();
        }
    }

    /// A member that has installed a later view was faster: a window of its frames is held.
    pub(super) fn hold_early(&mut self, from: Incarnation, record: GroupData) {
        let bytes = match &record {
            // A mark has no messages, and is not free either.
            GroupData::Batch { messages, .. } | GroupData::Tell { messages, .. } => {
                charge(messages).max(BLOCK_OVERHEAD)
            }
            _ => BLOCK_OVERHEAD,
        };
        if self.early_bytes + bytes <= MAX_EARLY_BYTES {
            self.early_bytes += bytes;
            self.early.push((from, record));
        }
        assert!(
            self.early_bytes <= MAX_EARLY_BYTES && self.early.len() * BLOCK_OVERHEAD <= self.early_bytes,
            "R21: {} early records of {} bytes",
            self.early.len(),
            self.early_bytes
        );
    }

    /// The frames that were held for the view that was just installed; later ones stay.
    pub(crate) fn take_early(&mut self) -> Vec<(Incarnation, GroupData)> {
        self.early_bytes = 0;
        std::mem::take(&mut self.early)
    }
}
