//! One group of this node: from the request to join until it has left.
//!
//! ```text
//!  Locating ──Located──► Joining ──FirstView──► Member ──Settled without it──► (gone)
//!     │  ▲                  │                     │  │            ▲
//!     │  └──── retry ───────┘◄──── resync ────────┘  └─► Ghost ───┘   left, still supplies repairs
//!     └──Grant──► Member (founder)          Refused: its options differ
//! ```

use std::collections::VecDeque;

use antiphon_wire::block::Form;
use antiphon_wire::group::{DepartedSender, GroupData, GroupReport, GroupTerms};
use antiphon_wire::{Block, GroupId, GroupViewId, Incarnation, ViewId};

use super::credit::{Backlog, Credit};
use super::direct::{Direct, Untaken};
use super::large::{Assembly, Part};
use super::log::{BLOCK_OVERHEAD, charge};
use super::object::{Issue, Objects};
use super::queue::{Queue, Sent, Tickets};
use super::standstill::Standstill;
use super::stream::Stream;
use super::{Context, Effect};
use crate::flush::state::Ghost;
use crate::flush::{Flush, Retained};
use crate::{
    GroupEvent, GroupHandle, GroupOptions, MAX_PAYLOAD_BYTES, Messages, Order, SendError, Ticket, Time,
};

/// Where this node stands with a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub(crate) enum Phase {
    /// Asks the elder where the group is.
    Locating {
        retry_at: Time,
    },
    /// Has asked a leader.
    Joining {
        leader: Incarnation,
        retry_at: Time,
    },
    Member(Box<Joined>),
    /// Has left; others may still need what it holds.
    Ghost {
        group: GroupId,
        retained: Box<Retained>,
        until: Time,
    },
    /// Its options differ from the group's.
    Refused,
}

/// Messages of an earlier membership whose fate this node does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(super) incarnation: Incarnation,
    /// The `k` of its last view.
    pub(super) last: u32,
    /// The number of the first of each run, if it was ever sent.
    pub(super) messages: Vec<(Option<u64>, Tickets)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) handle: GroupHandle,
    pub(crate) name: String,
    pub(crate) options: GroupOptions,
    pub(crate) phase: Phase,
    /// This attempt to join.
    pub(crate) nonce: u64,
    /// Whether a leader may know of this attempt.
    pub(crate) asked: bool,
    /// The member that it asked last because that member takes it for its leader, and under which node view.
    pub(crate) counted_on: Option<(Incarnation, ViewId)>,
    pub(super) next_seq: u64,
    pub(super) queue: Queue,
    /// The bytes of what was refused for want of room: the application is told when there is room.
    pub(super) refused: Option<usize>,
    /// The same of an object.
    pub(super) refused_object: Option<usize>,
    pub(super) sent: Sent,
    pub(super) pending: Vec<Pending>,
    pub(super) credit: Credit,
    pub(super) backlog: Backlog,
    /// How many direct messages were accepted, to all members together.
    pub(super) tells: u64,
    /// Direct messages that the application has not taken.
    pub(super) untaken: Untaken,
    /// The application reads what it was given before this node asks for the group again.
    pub(super) unread_first: bool,
    /// Since when it wants to leave.
    pub(crate) leaving: Option<Time>,
    pub(super) resyncs: u32,
    pub(super) early_joins: Vec<(Incarnation, GroupTerms, u64, u64)>,
}

/// What a member of a group has: the present view, and the flush that may be under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) id: GroupId,
    pub(crate) stream: Stream,
    pub(crate) flush: Flush,
    pub(crate) standstill: Standstill,
    pub(crate) departed: VecDeque<DepartedSender>,
    /// Messages of the present view that are delivered in part.
    pub(crate) assembly: Assembly,
    /// Payloads beside the log, whatever the view.
    pub(crate) objects: Objects,
    /// Direct messages between two members, whatever the view.
    pub(crate) direct: Direct,
    pub(super) early: Vec<(Incarnation, GroupData)>,
    pub(super) early_bytes: usize,
    pub(super) leave_at: Option<Time>,
}

impl Joined {
    /// The member that leads the group.
    pub(crate) fn leader(&self, ctx: &Context<'_>) -> Option<Incarnation> {
        ctx.node.leader_of(&self.stream.members)
    }
}

impl Group {
    /// What is kept for others beside a group that this node has lost.
    pub(crate) fn of_ghost(handle: GroupHandle, now: Time, ghost: Ghost) -> Self {
        let mut former = Self::new(handle, ghost.name, ghost.options, now, 0);
        former.leaving = Some(now);
        former.phase = Phase::Ghost {
            group: ghost.group,
            retained: ghost.retained,
            until: ghost.until,
        };
        former
    }

    pub(crate) fn new(
        handle: GroupHandle,
        name: String,
        options: GroupOptions,
        now: Time,
        nonce: u64,
    ) -> Self {
        Self {
            handle,
            name,
            options,
            phase: Phase::Locating { retry_at: now },
            nonce,
            asked: false,
            counted_on: None,
            next_seq: 1,
            queue: Queue::default(),
            refused: None,
            refused_object: None,
            sent: Sent::default(),
            pending: Vec::new(),
            credit: Credit::new(1),
            backlog: Backlog::default(),
            tells: 0,
            untaken: Untaken::default(),
            unread_first: false,
            leaving: None,
            resyncs: 0,
            early_joins: Vec::new(),
        }
    }

    /// Numbers of messages, and what is outstanding of them, go on where an earlier membership of this
    /// incarnation ended.
    pub(crate) fn continue_from(&mut self, (next_seq, credit): (u64, Credit)) {
        self.next_seq = next_seq;
        self.credit = credit;
    }

    pub(crate) fn id(&self) -> Option<GroupId> {
        match &self.phase {
            Phase::Member(membership) => Some(membership.id),
            Phase::Ghost { group, .. } => Some(*group),
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Refused => None,
        }
    }

    pub(crate) fn terms(&self) -> GroupTerms {
        super::terms_of(&self.options)
    }

    pub(super) fn window(&self) -> usize {
        self.options.window_bytes as usize
    }

    /// The most bytes of a message that goes through the log; what is larger is an object.
    pub(crate) fn largest(&self) -> usize {
        MAX_PAYLOAD_BYTES.min(self.window())
    }

    pub(crate) fn event(&self, ctx: &mut Context<'_>, event: GroupEvent) {
        if matches!(event, GroupEvent::Left | GroupEvent::Refused { .. }) {
            ctx.remember_sent(&self.name, self.next_seq, self.credit.clone());
        }
        ctx.effects.push_back(Effect::Event(self.handle, event));
    }

    pub(crate) fn report(&self) -> Option<GroupReport> {
        let Phase::Member(membership) = &self.phase else {
            return None;
        };
        Some(GroupReport {
            name: self.name.clone(),
            group: membership.id,
            view: membership.stream.id,
            members: membership.stream.members.clone(),
        })
    }

    /// Takes messages whose tickets the caller has chosen: consecutive, each given once.
    pub(crate) fn send_block(
        &mut self,
        ctx: &mut Context<'_>,
        first: Ticket,
        block: Block,
    ) -> Result<(), SendError> {
        let length = block.bytes().len();
        if block.form() == Form::Large && block.payload_len() > self.largest() {
            if self.options.order == Order::Scoped {
                return Err(SendError::TooLarge {
                    limit: self.largest(),
                });
            }
            return self.send_object(ctx, first, block.level(), block.bytes().clone());
        }
        if !block.is_empty() && block.is_scoped() != (self.options.order == Order::Scoped) {
            return Err(SendError::NotScoped);
        }
        self.check_room(ctx, length)?;
        // No sender sends nulls.
        if planted!(LargeIsNotAtomic) {
            block.pieces().for_each(|piece| self.queue.push(first, piece));
        } else if !block.is_empty() && !block.is_nulls() {
            self.queue.push(first, block);
        }
        Ok(())
    }

    /// Whether messages of so many bytes may be accepted now.
    fn check_room(&mut self, ctx: &Context<'_>, bytes: usize) -> Result<(), SendError> {
        self.check_membership(ctx)?;
        if !self.has_room(bytes) {
            self.refused = Some(bytes);
            return Err(SendError::Full);
        }
        Ok(())
    }

    /// Whether anything may be accepted now.
    pub(super) fn check_membership(&self, ctx: &Context<'_>) -> Result<(), SendError> {
        if self.leaving.is_some() || matches!(self.phase, Phase::Ghost { .. }) {
            return Err(SendError::NoSuchGroup);
        }
        if ctx.suspended {
            return Err(SendError::NotPrimary);
        }
        if !matches!(self.phase, Phase::Member(_)) {
            return Err(SendError::NotMember);
        }
        Ok(())
    }

    /// Whether so many bytes can wait here besides what waits already. If nothing else waits, anything can.
    fn has_room(&self, bytes: usize) -> bool {
        self.queue.is_empty() || self.queue.bytes() + bytes + BLOCK_OVERHEAD <= self.window()
    }

    /// Whether the present view still takes messages of this member.
    pub(super) fn may_send(&self) -> bool {
        matches!(&self.phase, Phase::Member(membership) if membership.flush.is_open())
    }

    /// Moves what credit admits from the queue into the log, and delivers what is ready.
    pub(crate) fn pump(&mut self, ctx: &mut Context<'_>) {
        // R17: nothing moves under a non-primary view.
        if ctx.suspended && !planted!(DeliverWhileSuspended) {
            return;
        }
        let window = self.window();
        let open = self.may_send();
        if let Phase::Member(membership) = &mut self.phase {
            let stream = &mut membership.stream;
            self.credit.release(stream.consumed_by_all());
            // R22: the record of an object, in a view of which every member holds it.
            let mut object = membership.objects.front().filter(|_| open);
            while let Some(Issue { ticket, block }) = object.take() {
                if !self.credit.admits(charge(&block), window) {
                    object = Some(Issue { ticket, block });
                    break;
                }
                self.credit.spend(&block);
                self.credit.assert_within(charge(&block), window);
                let seq = stream.append(block);
                self.next_seq = seq + 1;
                let tickets = Tickets {
                    first: ticket,
                    count: 1,
                };
                self.sent.push(seq, tickets);
                membership.objects.issue(&stream.others());
                object = membership.objects.front();
            }
            while open
                && let Some(charge) = self.queue.front_charge()
                && (self.credit.admits(charge, window) || planted!(IgnoreCredit))
                && let Some((first, block)) = self.queue.pop()
            {
                let count = block.count();
                // R22: all pieces of a message in one view.
                for piece in block.pieces() {
                    let (form, places) = (piece.form(), piece.count());
                    self.credit.spend(&piece);
                    let seq = stream.append(piece);
                    self.next_seq = seq + places;
                    if form != Form::Piece {
                        self.sent.push(seq, Tickets { first, count });
                    }
                }
                self.credit.assert_within(charge, window);
            }
            let starved = open && !(self.queue.is_empty() && object.is_none());
            stream.set_starved(ctx.now, ctx.profile, starved);
            if starved || membership.objects.without_room().next().is_some() {
                self.watch_readers(ctx.now);
            }
        }
        self.deliver_ready(ctx);
        self.admit_objects(ctx);
        // The application is told only when the refused bytes have room: else it would offer them again for
        // ever.
        if self.refused.is_some_and(|bytes| self.has_room(bytes)) && self.queue.bytes() * 2 <= window {
            self.refused = None;
            self.event(ctx, GroupEvent::Writable);
        }
        if let Some(bytes) = self.refused_object
            && self.has_room_for_object(ctx.me, bytes)
        {
            self.refused_object = None;
            self.event(ctx, GroupEvent::Writable);
        }
        self.tell_writable(ctx);
        self.ask_to_leave(ctx);
    }

    pub(super) fn deliver_ready(&mut self, ctx: &mut Context<'_>) {
        loop {
            let Phase::Member(membership) = &mut self.phase else {
                return;
            };
            let open = membership.flush.is_open();
            let wedged = !open && !planted!(ReceiveAfterWedge);
            if wedged || ctx.suspended && !planted!(DeliverWhileSuspended) {
                return;
            }
            let stream = &mut membership.stream;
            let Some((rank, first, block)) = stream.deliver() else {
                return;
            };
            let (view, sender) = (stream.id, stream.members[rank]);
            if let Some(skipped) = self.deliver(ctx, view, sender, (first, block))
                && let Phase::Member(membership) = &mut self.phase
            {
                let stream = &mut membership.stream;
                stream.set_consumed(ctx.now, ctx.profile, rank, skipped);
            }
        }
    }

    pub(crate) fn consumed(&mut self, ctx: &mut Context<'_>, messages: u64) {
        let positions = self.backlog.consume(ctx.now, messages);
        let looks = matches!(self.phase, Phase::Locating { .. });
        if looks && self.unread_first && self.backlog.is_empty() && !ctx.suspended {
            self.locate(ctx);
        }
        if let Phase::Member(membership) = &mut self.phase {
            membership.standstill.has_read();
            let stream = &mut membership.stream;
            for (sender, consumed) in positions {
                if let Some(rank) = stream.rank(sender) {
                    stream.set_consumed(ctx.now, ctx.profile, rank, consumed);
                }
            }
        }
        self.pump(ctx);
    }

    /// Packs frames: called when a batch of inputs is over.
    pub(crate) fn pack(&mut self, ctx: &mut Context<'_>) {
        self.pump(ctx);
        if let Phase::Member(membership) = &mut self.phase
            && !ctx.suspended
            && membership.flush.is_open()
        {
            let stream = &mut membership.stream;
            let filled = stream.end_batch();
            stream.pack(ctx.now, ctx.profile, self.credit.outstanding(), ctx.effects);
            if filled {
                // Some messages waited for this member's own part of the order.
                self.deliver_ready(ctx);
                if let Phase::Member(membership) = &mut self.phase {
                    membership.stream.watch_rows(ctx.now, ctx.profile);
                }
            }
            if let Phase::Member(membership) = &mut self.phase {
                membership.pack_objects(ctx);
                membership.pack_direct(ctx);
            }
        }
    }

    pub(crate) fn handle_data(&mut self, ctx: &mut Context<'_>, from: Incarnation, record: GroupData) {
        match &mut self.phase {
            Phase::Member(_) => {
                if ctx.suspended && !planted!(DeliverWhileSuspended) {
                    return;
                }
                let record = self.handle_object(ctx, from, record);
                let Some(record) = record.and_then(|record| self.handle_direct(ctx, from, record)) else {
                    return self.pump(ctx);
                };
                let Phase::Member(membership) = &mut self.phase else {
                    return;
                };
                let again = if planted!(ForgetDedup) {
                    membership.known_messages(from, &record)
                } else {
                    None
                };
                if membership.handle_data(ctx, from, record) {
                    self.pump(ctx);
                }
                if let Some((view, first, block)) = again {
                    self.deliver(ctx, view, from, (first, block));
                }
            }
            Phase::Ghost { retained, .. } => retained.answer(from, &record, ctx.effects),
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Refused => {}
        }
        self.flush(ctx, Flush::try_install);
    }

    /// The member that gets a frame with this record from this member, if there is one.
    pub(crate) fn hand_on(
        &mut self,
        ctx: &Context<'_>,
        from: Incarnation,
        record: &GroupData,
    ) -> Option<Incarnation> {
        match &mut self.phase {
            Phase::Member(membership) if !ctx.suspended => membership.hand_on(from, record),
            _ => None,
        }
    }

    /// A new primary node view: everything unfinished begins again.
    pub(crate) fn handle_primary(&mut self, ctx: &mut Context<'_>, was_suspended: bool) {
        self.early_joins.clear();
        match &self.phase {
            Phase::Locating { .. } | Phase::Joining { .. } => self.locate(ctx),
            Phase::Member(_) => {
                self.flush(ctx, |flush, around| flush.restart(around, was_suspended));
                self.ask_to_leave_again(ctx);
            }
            Phase::Ghost { .. } | Phase::Refused => {}
        }
    }

    pub(crate) fn handle_non_primary(&mut self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if membership.flush.suspend() {
            self.event(ctx, GroupEvent::Suspended);
        }
    }

    /// Gives messages of this sender in the present view to the application; its own with their tickets.
    /// Returns the numbers of the sender that count as taken at once, because the application will never get
    /// them. At the end of a view no member needs these numbers, since the next view begins with its own
    /// positions.
    pub(crate) fn deliver(
        &mut self,
        ctx: &mut Context<'_>,
        view: GroupViewId,
        sender: Incarnation,
        (mut first, block): (u64, Block),
    ) -> Option<(u64, u64)> {
        let Phase::Member(membership) = &mut self.phase else {
            return None;
        };
        assert!(
            !ctx.suspended && view == membership.stream.id || planted!(),
            "R17: {first} of {sender:?} is delivered in {view:?}, at a member of {:?}, suspended: {}",
            membership.stream.id,
            ctx.suspended
        );
        let part = match block.record() {
            Some(record) => match membership.objects.take(ctx.me, sender, &record) {
                Some(payload) => Part::Object(Block::large(payload).with_level(block.level())),
                None => Part::Dropped(1),
            },
            None => membership.assembly.take(sender, block),
        };
        let mut block = match part {
            Part::Messages(block) => {
                self.backlog.delivered(ctx.now, sender, first, block.count(), 1);
                block
            }
            Part::Unfinished => return None,
            Part::Dropped(pieces) => {
                ctx.nonsense();
                let skipped = ((first + 1).saturating_sub(pieces), first + 1);
                return self.backlog.skipped(sender, skipped).then_some(skipped);
            }
            Part::Whole(block, pieces) => {
                self.backlog
                    .delivered(ctx.now, sender, first + 1 - pieces, 1, pieces);
                block
            }
            Part::Object(block) => {
                self.backlog
                    .delivered_object(ctx.now, sender, first, block.bytes().len());
                block
            }
        };
        while !block.is_empty() {
            let tickets = if sender == ctx.me {
                self.sent.take(first, block.count())
            } else {
                None
            };
            let front = block.split_front(tickets.map_or(u64::MAX, |tickets| tickets.count));
            let count = front.count();
            let messages = Messages {
                view,
                sender,
                first,
                block: front,
                ticket: tickets.map(|tickets| tickets.first),
            };
            first += count;
            ctx.effects
                .push_back(Effect::Event(self.handle, GroupEvent::Messages(messages)));
        }
        None
    }

    pub(crate) fn lose_queue(&mut self) {
        self.queue.clear();
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Locating { retry_at } | Phase::Joining { retry_at, .. } => Some(*retry_at),
            Phase::Member(membership) => {
                let open = membership.flush.is_open();
                let stream = open.then(|| membership.stream.next_timeout());
                let objects = open.then(|| membership.objects.next_timeout());
                let direct = open.then(|| membership.direct.next_timeout());
                let leave = self.leaving.and(membership.leave_at);
                [
                    stream.flatten(),
                    objects.flatten(),
                    direct.flatten(),
                    leave,
                    membership.flush.next_timeout(),
                    membership.standstill.next_timeout(),
                ]
                .into_iter()
                .flatten()
                .min()
            }
            Phase::Ghost { until, .. } => Some(*until),
            Phase::Refused => None,
        }
    }

    pub(crate) fn timeout(&mut self, ctx: &mut Context<'_>) {
        match &mut self.phase {
            Phase::Locating { retry_at } | Phase::Joining { retry_at, .. } => {
                if *retry_at <= ctx.now {
                    self.locate(ctx);
                }
            }
            Phase::Member(membership) => {
                if membership.flush.is_open() {
                    membership.stream.timeout(ctx.now, ctx.profile, ctx.effects);
                    membership.objects_timeout(ctx);
                    membership.direct_timeout(ctx.now);
                }
                self.slow_timeout(ctx);
                if ctx.suspended {
                    self.flush(ctx, Flush::delay);
                } else {
                    self.flush(ctx, Flush::try_install);
                    self.flush(ctx, Flush::timeout);
                }
                self.ask_to_leave(ctx);
            }
            Phase::Ghost { .. } | Phase::Refused => {}
        }
    }
}
