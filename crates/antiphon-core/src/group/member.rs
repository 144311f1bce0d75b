//! One group of this node: from the request to join until it has left.
//!
//! ```text
//!  Locating ──Located──► Joining ──FirstView──► Member ──Settled without it──► (gone)
//!     │  ▲                  │                     │  │            ▲
//!     │  └──── retry ───────┘◄──── resync ────────┘  └─► Ghost ───┘   left, still supplies repairs
//!     └──Grant──► Member (founder)          Refused: its options differ
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use antiphon_wire::group::{
    Decision, DepartedSender, GroupData, GroupMessage, GroupReport, GroupTerms, Joiner,
};
use antiphon_wire::{GroupId, GroupViewId, Incarnation};
use bytes::Bytes;

use super::credit::{Backlog, Credit};
use super::log::charge;
use super::stream::Stream;
use super::{Context, Effect};
use crate::flush::{Flow, Lead, Promise, Retained};
use crate::{
    GroupEvent, GroupHandle, GroupOptions, GroupView, MAX_PAYLOAD_BYTES, Message, Order, Outcome, SendError,
    Ticket, Time,
};

/// The most departed senders whose end is remembered, and for how many views.
const MAX_DEPARTED: usize = 256;
const DEPARTED_VIEWS: u32 = 100;
/// Joins that wait for this node to found the group it was asked for.
const MAX_EARLY_JOINS: usize = 256;

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
    Member(Box<Membership>),
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
struct Pending {
    incarnation: Incarnation,
    /// The message's number, if it was ever sent.
    messages: Vec<(Option<u64>, Ticket)>,
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
    next_ticket: u64,
    next_seq: u64,
    queue: VecDeque<(Ticket, Bytes)>,
    queue_bytes: usize,
    wants_writable: bool,
    own: VecDeque<(u64, Ticket)>,
    pending: Vec<Pending>,
    credit: Credit,
    backlog: Backlog,
    /// Since when it wants to leave.
    pub(crate) leaving: Option<Time>,
    resyncs: u32,
    early_joins: Vec<(Incarnation, GroupTerms, u64, u64)>,
}

/// Membership in a group: the present view, and the flush that may be under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) id: GroupId,
    pub(crate) stream: Stream,
    pub(crate) flow: Flow,
    /// The flush answered last under this node view.
    pub(crate) promise: Option<Promise>,
    /// When to doubt the flush's leader, and how often it was doubted.
    pub(crate) watch: Option<(Time, u32)>,
    /// What came before the present view, until all have installed that.
    pub(crate) retained: Option<Retained>,
    pub(crate) lead: Lead,
    pub(crate) joins: Vec<Joiner>,
    pub(crate) leaves: BTreeSet<Incarnation>,
    /// Alive, but to be removed; why.
    pub(crate) dropped: BTreeMap<Incarnation, String>,
    /// A member waits for a flush.
    pub(crate) resume: bool,
    /// `Installed` of members that were faster than this one.
    pub(crate) confirmations: BTreeMap<Incarnation, GroupViewId>,
    pub(crate) departed: VecDeque<DepartedSender>,
    /// The application was told that the group is suspended.
    pub(crate) suspended: bool,
    early: Vec<(Incarnation, GroupData)>,
    early_bytes: usize,
    leave_at: Option<Time>,
}

impl Membership {
    /// The survivor of lowest group rank leads (R12).
    pub(crate) fn leader(&self, ctx: &Context<'_>) -> Option<Incarnation> {
        let present = |member: &&Incarnation| ctx.present(**member);
        if planted!(LeadByNodeRank) {
            return ctx
                .node
                .members
                .iter()
                .find(|member| self.stream.members.contains(member))
                .copied();
        }
        self.stream.members.iter().find(present).copied()
    }
}

impl Group {
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
            next_ticket: 1,
            next_seq: 1,
            queue: VecDeque::new(),
            queue_bytes: 0,
            wants_writable: false,
            own: VecDeque::new(),
            pending: Vec::new(),
            credit: Credit::new(1),
            backlog: Backlog::default(),
            leaving: None,
            resyncs: 0,
            early_joins: Vec::new(),
        }
    }

    /// Numbers of messages go on where an earlier membership of this incarnation ended.
    pub(crate) fn continue_from(&mut self, next_seq: u64) {
        self.next_seq = next_seq;
    }

    pub(crate) fn id(&self) -> Option<GroupId> {
        match &self.phase {
            Phase::Member(membership) => Some(membership.id),
            Phase::Ghost { group, .. } => Some(*group),
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Refused => None,
        }
    }

    pub(crate) fn terms(&self) -> GroupTerms {
        let order = match self.options.order {
            Order::Fifo => 0,
            Order::Total => 1,
        };
        GroupTerms {
            order,
            window_bytes: self.options.window_bytes,
        }
    }

    fn window(&self) -> usize {
        self.options.window_bytes as usize
    }

    pub(crate) fn event(&self, ctx: &mut Context<'_>, event: GroupEvent) {
        if event == GroupEvent::Left {
            ctx.remember_next_seq(&self.name, self.next_seq);
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

    // Sending and consuming.

    pub(crate) fn send(&mut self, ctx: &mut Context<'_>, payload: Bytes) -> Result<Ticket, SendError> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(SendError::TooLarge);
        }
        if self.leaving.is_some() || matches!(self.phase, Phase::Ghost { .. }) {
            return Err(SendError::NoSuchGroup);
        }
        if ctx.suspended {
            return Err(SendError::NotPrimary);
        }
        if !matches!(self.phase, Phase::Member(_)) {
            return Err(SendError::NotMember);
        }
        let cost = charge(&payload);
        let direct = self.queue.is_empty() && self.may_send() && self.credit.admits(cost, self.window());
        if !direct && self.queue_bytes + cost > self.window() {
            self.wants_writable = true;
            return Err(SendError::Full);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.queue_bytes += cost;
        self.queue.push_back((ticket, payload));
        self.pump(ctx);
        Ok(ticket)
    }

    /// Whether the present view still takes messages of this member.
    fn may_send(&self) -> bool {
        matches!(&self.phase, Phase::Member(membership) if matches!(membership.flow, Flow::Open))
    }

    /// Moves what credit admits from the queue into the log, and delivers what is ready.
    pub(crate) fn pump(&mut self, ctx: &mut Context<'_>) {
        // R17: nothing moves under a non-primary view.
        if ctx.suspended {
            return;
        }
        let window = self.window();
        let open = self.may_send();
        if let Phase::Member(membership) = &mut self.phase {
            let stream = &mut membership.stream;
            self.credit.release(stream.consumed_by_all());
            while open && let Some((_, payload)) = self.queue.front() {
                let cost = charge(payload);
                if !self.credit.admits(cost, window) {
                    break;
                }
                let Some((ticket, payload)) = self.queue.pop_front() else {
                    break;
                };
                self.queue_bytes -= cost;
                self.credit.spend(cost);
                let seq = stream.append(payload);
                self.own.push_back((seq, ticket));
                self.next_seq = seq + 1;
            }
            stream.set_starved(ctx.now, ctx.profile, open && !self.queue.is_empty());
        }
        self.deliver_ready(ctx);
        if self.wants_writable && self.queue_bytes * 2 <= window {
            self.wants_writable = false;
            self.event(ctx, GroupEvent::Writable);
        }
        self.ask_to_leave(ctx);
    }

    fn deliver_ready(&mut self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let open = matches!(membership.flow, Flow::Open);
        let wedged = !open && !planted!(ReceiveAfterWedge);
        if wedged || ctx.suspended && !planted!(DeliverWhileSuspended) {
            return;
        }
        let stream = &mut membership.stream;
        while let Some((rank, seq, payload)) = stream.deliver() {
            let delivery = (stream.id, stream.members[rank], seq, payload);
            hand_over(self.handle, &mut self.backlog, &mut self.own, ctx, delivery);
        }
    }

    pub(crate) fn consumed(&mut self, ctx: &mut Context<'_>, messages: u64) {
        let positions = self.backlog.consume(messages);
        if let Phase::Member(membership) = &mut self.phase {
            let stream = &mut membership.stream;
            for (sender, position) in positions {
                if let Some(rank) = stream.rank(sender) {
                    stream.set_consumed(ctx.now, ctx.profile, rank, position);
                }
            }
        }
        self.pump(ctx);
    }

    /// Packs frames: called when a batch of inputs is over.
    pub(crate) fn pack(&mut self, ctx: &mut Context<'_>) {
        if let Phase::Member(membership) = &mut self.phase
            && !ctx.suspended
            && matches!(membership.flow, Flow::Open)
        {
            membership
                .stream
                .pack(ctx.now, ctx.profile, self.credit.outstanding(), ctx.effects);
        }
    }

    // Data.

    pub(crate) fn handle_data(&mut self, ctx: &mut Context<'_>, from: Incarnation, record: GroupData) {
        match &mut self.phase {
            Phase::Member(membership) => {
                if ctx.suspended && !planted!(DeliverWhileSuspended) {
                    return;
                }
                let again = planted!(ForgetDedup).then(|| membership.known_messages(from, &record));
                if membership.handle_data(ctx, from, record) {
                    self.pump(ctx);
                }
                for (view, seq, payload) in again.into_iter().flatten() {
                    let delivery = (view, from, seq, payload);
                    hand_over(self.handle, &mut self.backlog, &mut self.own, ctx, delivery);
                }
            }
            Phase::Ghost { retained, .. } => retained.answer(ctx, from, &record),
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Refused => {}
        }
        self.try_install(ctx);
    }

    // Joining.

    /// A new primary node view: everything unfinished begins again.
    pub(crate) fn handle_primary(&mut self, ctx: &mut Context<'_>, was_suspended: bool) {
        self.early_joins.clear();
        match &self.phase {
            Phase::Locating { .. } | Phase::Joining { .. } => self.locate(ctx),
            Phase::Member(_) => {
                self.restart_flush(ctx, was_suspended);
                self.ask_to_leave_again(ctx);
            }
            Phase::Ghost { .. } | Phase::Refused => {}
        }
    }

    pub(crate) fn handle_non_primary(&mut self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        // R17: whatever comes now waits for the flush that follows the next primary view.
        if membership.flow == Flow::Open && !planted!(DeliverWhileSuspended) {
            membership.flow = Flow::Wedged;
        }
        if !std::mem::replace(&mut membership.suspended, true) {
            self.event(ctx, GroupEvent::Suspended);
        }
    }

    pub(crate) fn locate(&mut self, ctx: &mut Context<'_>) {
        self.phase = Phase::Locating {
            retry_at: ctx.now + ctx.profile.retransmit * 4,
        };
        if let Some(elder) = ctx.elder() {
            ctx.send(
                elder,
                GroupMessage::Lookup {
                    name: self.name.clone(),
                },
            );
        }
    }

    /// The one that was asked is no member, and tells the elder so: ask that again.
    pub(crate) fn not_there(&mut self, ctx: &mut Context<'_>, who: Incarnation) {
        if matches!(&self.phase, Phase::Joining { leader, .. } if *leader == who) {
            self.phase = Phase::Locating {
                retry_at: ctx.now + ctx.profile.retransmit,
            };
        }
    }

    pub(crate) fn located(&mut self, ctx: &mut Context<'_>, leader: Incarnation) {
        let looking = matches!(self.phase, Phase::Locating { .. } | Phase::Joining { .. });
        if !looking || leader == ctx.me || !ctx.present(leader) {
            return;
        }
        self.phase = Phase::Joining {
            leader,
            retry_at: ctx.now + ctx.profile.retransmit * 8,
        };
        self.asked = true;
        ctx.send(
            leader,
            GroupMessage::Join {
                name: self.name.clone(),
                terms: self.terms(),
                nonce: self.nonce,
                first: self.next_seq,
            },
        );
    }

    /// Founds the group. False if this node does not want it any more.
    pub(crate) fn found(&mut self, ctx: &mut Context<'_>, last_k: u32) -> bool {
        if !matches!(self.phase, Phase::Locating { .. } | Phase::Joining { .. }) || self.leaving.is_some() {
            return false;
        }
        let group = GroupId(ctx.random.next_u64());
        let joiner = Joiner {
            incarnation: ctx.me,
            nonce: self.nonce,
            first: self.next_seq,
        };
        let id = GroupViewId {
            node: ctx.node.id,
            number: ctx.node.number,
            k: last_k.saturating_add(1),
        };
        let decision = Decision {
            id,
            from: GroupViewId { k: 0, ..id },
            cut: Vec::new(),
            holders: Vec::new(),
            ordered: 0,
            order_holders: Vec::new(),
            members: vec![ctx.me],
            start: vec![self.next_seq],
            joined: vec![joiner],
            left: Vec::new(),
            crashed: Vec::new(),
        };
        self.enter(ctx, group, decision, Vec::new(), true);
        for (from, terms, nonce, first) in std::mem::take(&mut self.early_joins) {
            self.handle_join(ctx, from, terms, nonce, first);
        }
        true
    }

    /// Installs this member's first view of the group.
    pub(crate) fn enter(
        &mut self,
        ctx: &mut Context<'_>,
        group: GroupId,
        decision: Decision,
        departed: Vec<DepartedSender>,
        founded: bool,
    ) {
        let Some(me) = decision.members.iter().position(|member| *member == ctx.me) else {
            return;
        };
        let start = &decision.start;
        self.credit = Credit::new(start[me]);
        self.next_seq = start[me];
        let consumed = self.consumed_positions(&decision);
        let stream = Stream::new(
            group,
            decision.id,
            decision.members.clone(),
            me,
            start,
            consumed,
            &vec![start[me]; start.len()],
            self.options.order,
            self.window(),
        );
        let view = self.view_event(group, &decision, vec![ctx.me]);
        ctx.floors.insert(group, decision.id);
        let retained = (!founded).then(|| Retained {
            decision,
            stream: None,
        });
        self.phase = Phase::Member(Box::new(Membership {
            id: group,
            stream,
            flow: Flow::Open,
            promise: None,
            watch: None,
            retained,
            lead: Lead::Idle,
            joins: Vec::new(),
            leaves: BTreeSet::new(),
            dropped: BTreeMap::new(),
            resume: false,
            confirmations: BTreeMap::new(),
            departed: departed.into(),
            suspended: false,
            early: Vec::new(),
            early_bytes: 0,
            leave_at: None,
        }));
        self.resyncs = 0;
        self.event(ctx, view);
        self.resolve_receipts(ctx, founded);
        self.announce(ctx);
        self.pump(ctx);
    }

    /// Tells the elder, as the group's leader, which view the group has.
    pub(crate) fn announce(&self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        if membership.leader(ctx) == Some(ctx.me)
            && let (Some(elder), Some(report)) = (ctx.elder(), self.report())
        {
            ctx.send(elder, GroupMessage::Announce(report));
        }
    }

    pub(crate) fn view_event(
        &self,
        group: GroupId,
        decision: &Decision,
        transitional: Vec<Incarnation>,
    ) -> GroupEvent {
        let id = if planted!(ReuseGroupViewId) && decision.from.k > 0 {
            decision.from
        } else {
            decision.id
        };
        GroupEvent::View(Arc::new(GroupView {
            id,
            group,
            name: self.name.clone(),
            order: self.options.order,
            members: decision.members.clone(),
            joined: decision.joined.iter().map(|joiner| joiner.incarnation).collect(),
            left: decision.left.clone(),
            crashed: decision.crashed.clone(),
            transitional,
        }))
    }

    /// Per member of the decided view, the first message that was not consumed here.
    pub(crate) fn consumed_positions(&self, decision: &Decision) -> Vec<u64> {
        let positions = decision.members.iter().zip(&decision.start);
        positions
            .map(|(member, start)| self.backlog.first_of(*member).unwrap_or(*start))
            .collect()
    }

    /// A join arrived at this node.
    pub(crate) fn handle_join(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        terms: GroupTerms,
        nonce: u64,
        first: u64,
    ) {
        let mine = self.terms();
        match &self.phase {
            Phase::Member(_) => {}
            Phase::Locating { .. } | Phase::Joining { .. } => {
                if self.early_joins.len() < MAX_EARLY_JOINS {
                    self.early_joins.retain(|(joiner, ..)| *joiner != from);
                    self.early_joins.push((from, terms, nonce, first));
                }
                return;
            }
            Phase::Ghost { .. } | Phase::Refused => return ctx.not_here(from, self.name.clone()),
        }
        if terms != mine {
            let reason = format!(
                "the group {:?} has {}; this node asked for {}",
                self.name,
                describe(mine),
                describe(terms)
            );
            return ctx.send(
                from,
                GroupMessage::Refused {
                    name: self.name.clone(),
                    reason,
                },
            );
        }
        let name = self.name.clone();
        self.admit(
            ctx,
            Joiner {
                incarnation: from,
                nonce,
                first,
            },
            name,
        );
    }

    // Leaving.

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

    fn ask_to_leave_again(&mut self, ctx: &mut Context<'_>) {
        if let Phase::Member(membership) = &mut self.phase {
            membership.leave_at = None;
        }
        self.ask_to_leave(ctx);
    }

    /// Asks the leader to be left out of the next view, once everything accepted was sent.
    fn ask_to_leave(&mut self, ctx: &mut Context<'_>) {
        let Some(since) = self.leaving else { return };
        let waited = ctx.now.since(since) >= ctx.profile.leave_within / 2;
        if ctx.suspended || !self.queue.is_empty() && !waited {
            return;
        }
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if membership.leave_at.is_some_and(|at| ctx.now < at) {
            return;
        }
        membership.leave_at = Some(ctx.now + ctx.profile.retransmit * 16);
        let group = membership.id;
        if let Some(leader) = membership.leader(ctx) {
            ctx.send(leader, GroupMessage::Leave { group });
        }
    }

    /// What was accepted but never sent will not be sent any more.
    pub(crate) fn abandon_queue(&mut self, ctx: &mut Context<'_>) {
        for (ticket, _) in std::mem::take(&mut self.queue) {
            self.event(
                ctx,
                GroupEvent::Receipt {
                    ticket,
                    outcome: Outcome::NotDelivered,
                },
            );
        }
        self.queue_bytes = 0;
    }

    // Starting over.

    /// The membership is void; the group is joined again. False if this node wanted to leave anyway.
    pub(crate) fn resync(&mut self, ctx: &mut Context<'_>, cause: String) -> bool {
        if self.leaving.is_some() {
            return false;
        }
        self.keep_pending(ctx.me);
        if let Phase::Member(membership) = &self.phase {
            let promised = membership.promise.as_ref().map(|promise| promise.target);
            let floor = promised.unwrap_or(membership.stream.id).max(membership.stream.id);
            ctx.floors.insert(membership.id, floor);
        }
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

    /// This node goes on as a fresh incarnation; `old` is what it was. False if the group is to be forgotten.
    pub(crate) fn start_over(
        &mut self,
        ctx: &mut Context<'_>,
        old: Option<Incarnation>,
        cause: Option<&str>,
    ) -> bool {
        if self.leaving.is_some() {
            if !matches!(self.phase, Phase::Ghost { .. }) {
                self.abandon_queue(ctx);
                self.event(ctx, GroupEvent::Left);
            }
            return false;
        }
        if let Some(old) = old {
            self.keep_pending(old);
        }
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

    fn keep_pending(&mut self, incarnation: Incarnation) {
        let sent = std::mem::take(&mut self.own)
            .into_iter()
            .map(|(seq, ticket)| (Some(seq), ticket));
        let queued = std::mem::take(&mut self.queue)
            .into_iter()
            .map(|(ticket, _)| (None, ticket));
        let messages: Vec<_> = sent.chain(queued).collect();
        self.queue_bytes = 0;
        if !messages.is_empty() {
            self.pending.push(Pending {
                incarnation,
                messages,
            });
        }
    }

    /// R17: what became of messages of an earlier membership, from the primary's recorded cuts.
    fn resolve_receipts(&mut self, ctx: &mut Context<'_>, founded: bool) {
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        let mut receipts = Vec::new();
        for Pending {
            incarnation,
            messages,
        } in std::mem::take(&mut self.pending)
        {
            let record = membership
                .departed
                .iter()
                .rev()
                .find(|departed| departed.incarnation == incarnation);
            for (seq, ticket) in messages {
                let outcome = match (seq, record) {
                    (None, _) => Outcome::NotDelivered,
                    (Some(_), _) if founded => Outcome::Unknown,
                    (Some(_), None) => Outcome::Unknown,
                    (Some(seq), Some(record)) if seq <= record.last => Outcome::Delivered,
                    (Some(_), Some(_)) => Outcome::NotDelivered,
                };
                receipts.push(GroupEvent::Receipt { ticket, outcome });
            }
        }
        for receipt in receipts {
            self.event(ctx, receipt);
        }
    }

    // Parts that the flush needs.

    /// Delivers one message of the cut.
    pub(crate) fn deliver_of_cut(
        &mut self,
        ctx: &mut Context<'_>,
        view: GroupViewId,
        sender: Incarnation,
        message: (u64, Bytes),
    ) {
        let delivery = (view, sender, message.0, message.1);
        hand_over(self.handle, &mut self.backlog, &mut self.own, ctx, delivery);
    }

    pub(crate) fn lose_queue(&mut self) {
        self.queue.clear();
        self.queue_bytes = 0;
    }

    // Time.

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Locating { retry_at } | Phase::Joining { retry_at, .. } => Some(*retry_at),
            Phase::Member(membership) => {
                let stream = matches!(membership.flow, Flow::Open).then(|| membership.stream.next_timeout());
                let leave = self.leaving.and(membership.leave_at);
                let watch = membership.watch.map(|(at, _)| at);
                let flow = membership.flow.next_timeout();
                [
                    stream.flatten(),
                    leave,
                    watch,
                    flow,
                    membership.lead.next_timeout(),
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
                if matches!(membership.flow, Flow::Open) {
                    membership.stream.timeout(ctx.now, ctx.profile, ctx.effects);
                }
                self.flush_timeout(ctx);
                self.ask_to_leave(ctx);
            }
            Phase::Ghost { .. } | Phase::Refused => {}
        }
    }
}

impl Membership {
    /// True if messages may have become deliverable or credit free.
    fn handle_data(&mut self, ctx: &mut Context<'_>, from: Incarnation, record: GroupData) -> bool {
        let (now, profile) = (ctx.now, ctx.profile);
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
                let open = matches!(self.flow, Flow::Open) || planted!(ReceiveAfterWedge);
                let sender = usize::from(sender);
                if !open || self.stream.rank(from) != Some(sender) {
                    return false;
                }
                self.stream
                    .batch(now, profile, sender, first, stable, ask, messages, ctx.effects);
                true
            }
            GroupData::Orders {
                view,
                first,
                stable,
                ask,
                ref runs,
                ..
            } if view == self.stream.id => {
                let open = matches!(self.flow, Flow::Open) || planted!(ReceiveAfterWedge);
                let Some(rank) = self.stream.rank(from).filter(|_| open) else {
                    return false;
                };
                self.stream
                    .orders(now, profile, rank, first, stable, ask, runs, ctx.effects);
                true
            }
            GroupData::Batch { view, .. } | GroupData::Orders { view, .. } => {
                if view > self.stream.id {
                    self.hold_early(from, record);
                }
                false
            }
            GroupData::Ack {
                view,
                held,
                consumed,
                ordered,
                ..
            } if view == self.stream.id => {
                let Some(rank) = self.stream.rank(from) else {
                    return false;
                };
                self.stream.ack(now, profile, rank, held, consumed, ordered)
            }
            GroupData::Nak { view, first, end, .. } if view == self.stream.id => {
                if let Some(rank) = self.stream.rank(from) {
                    self.stream.nak(rank, first, end, ctx.effects);
                }
                false
            }
            GroupData::OrderNak { view, first, .. } if view == self.stream.id => {
                if let Some(rank) = self.stream.rank(from) {
                    self.stream.order_nak(rank, first, ctx.effects);
                }
                false
            }
            GroupData::Ack { .. } | GroupData::Nak { .. } | GroupData::OrderNak { .. } => false,
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
                if let Some(retained) = &self.retained {
                    retained.answer(ctx, from, &record);
                }
                false
            }
            GroupData::Repair { .. } | GroupData::RepairOrders { .. } => {
                self.take_repair(ctx, record);
                false
            }
        }
    }

    /// Messages of a batch that were delivered before: only a planted mistake delivers them again.
    fn known_messages(&self, sender: Incarnation, record: &GroupData) -> Vec<(GroupViewId, u64, Bytes)> {
        let GroupData::Batch {
            view,
            first,
            messages,
            ..
        } = record
        else {
            return Vec::new();
        };
        let Some(rank) = self.stream.rank(sender).filter(|_| *view == self.stream.id) else {
            return Vec::new();
        };
        let delivered = self.stream.logs[rank].delivered();
        let known = (*first..delivered).zip(messages);
        known
            .map(|(seq, payload)| (*view, seq, payload.clone()))
            .collect()
    }

    /// Remembers how far the messages of those that are not in the next view were delivered (R17).
    pub(crate) fn remember_departed(&mut self, decision: &Decision) {
        for (member, log) in self.stream.members.iter().zip(&self.stream.logs) {
            if !decision.members.contains(member) {
                let last = log.delivered() - 1;
                self.departed.push_back(DepartedSender {
                    incarnation: *member,
                    last,
                    k: decision.id.k,
                });
            }
        }
        self.departed
            .retain(|departed| departed.k.saturating_add(DEPARTED_VIEWS) > decision.id.k);
        let excess = self.departed.len().saturating_sub(MAX_DEPARTED);
        self.departed.drain(..excess);
    }

    /// A member that has installed a later view was faster: a window of its frames is held.
    fn hold_early(&mut self, from: Incarnation, record: GroupData) {
        let bytes = match &record {
            GroupData::Batch { messages, .. } => messages.iter().map(charge).sum::<usize>() + 64,
            _ => 64,
        };
        if self.early_bytes + bytes <= MAX_EARLY_BYTES {
            self.early_bytes += bytes;
            self.early.push((from, record));
        }
    }

    /// The frames that were held for the view that was just installed; later ones stay.
    pub(crate) fn take_early(&mut self) -> Vec<(Incarnation, GroupData)> {
        self.early_bytes = 0;
        std::mem::take(&mut self.early)
    }
}

/// Frames held for a view that is not installed yet, in bytes.
const MAX_EARLY_BYTES: usize = 4 << 20;

type Delivery = (GroupViewId, Incarnation, u64, Bytes);

/// Gives a message to the application.
fn hand_over(
    handle: GroupHandle,
    backlog: &mut Backlog,
    own: &mut VecDeque<(u64, Ticket)>,
    ctx: &mut Context<'_>,
    (view, sender, seq, payload): Delivery,
) {
    backlog.delivered(sender, seq);
    let mut ticket = None;
    if sender == ctx.me {
        while own.front().is_some_and(|(own, _)| *own <= seq) {
            ticket = own
                .pop_front()
                .filter(|(own, _)| *own == seq)
                .map(|(_, ticket)| ticket);
        }
    }
    let message = Message {
        view,
        sender,
        seq,
        payload,
        ticket,
    };
    ctx.effects
        .push_back(Effect::Event(handle, GroupEvent::Message(message)));
}

fn describe(terms: GroupTerms) -> String {
    let order = match terms.order {
        0 => "fifo".to_owned(),
        1 => "total".to_owned(),
        other => format!("unknown ({other})"),
    };
    format!("order {order} and a window of {} bytes", terms.window_bytes)
}
