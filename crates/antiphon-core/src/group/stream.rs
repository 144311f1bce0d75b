//! The messages of one group in one view: a log per sender, the order, acknowledgements and repairs.
//!
//! What a message costs: its sender copies it once into a [block](Block). The block is kept, sent to all and
//! delivered as it is. A receiver tells each sender two numbers: what it holds, and what its application has
//! consumed. It does so at the end of a receive batch if the sender asked or if much came in, otherwise by a
//! short timer. A receiver asks for a gap at once. The sender notices a lost tail and shows the members that
//! lag how far its log reaches. Everything here is per view; a flush ends it.

mod asking;
mod loose;
mod repair;
mod rows;
mod safe;

use std::collections::VecDeque;
use std::time::Duration;

use antiphon_wire::group::{Decision, GroupData};
use antiphon_wire::{Block, GroupId, GroupViewId, Incarnation, Level};

use self::asking::{Asking, Came};
use self::rows::Safe;
use super::Effect;
use super::cut::cut_of;
use super::log::{Inserted, Log};
use super::reached::Reached;
use crate::dissemination::Disseminator;
use crate::order::{Engine, Heard, MAX_RUNS, Word};
use crate::{Class, GroupOptions, Profile, Time};

/// Blocks that together have no more than this share a frame.
const JOIN_BYTES: usize = 4096;
/// Order records ride on a data frame only if it is below this.
const PIGGYBACK_BYTES: usize = 50_000;

/// How far a member has come in this member's log, as it said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    held: u64,
    consumed: u64,
    ordered: u64,
    /// When it came further in what it lags in.
    moved: Time,
}

/// What a sender was last told about its log here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    held: u64,
    consumed: u64,
    ordered: u64,
    /// Bytes that came in since.
    bytes: usize,
    /// To be told at the end of this batch.
    now: bool,
    /// The sender waits for credit: tell it as soon as a fair part is consumed.
    eager: bool,
    asking: Asking,
}

/// Where a member stands when a view begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beginning<'a> {
    /// Its rank.
    pub(crate) me: usize,
    /// Per rank, the number of the first message.
    pub(crate) start: &'a [u64],
    /// Per rank, what that member was known to have consumed of this member's log.
    pub(crate) credit: &'a [u64],
}

/// What a batch of messages says besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// The rank of their sender.
    pub(crate) sender: usize,
    /// The number of the first one.
    pub(crate) first: u64,
    /// All members hold the sender's messages before this one.
    pub(crate) stable: u64,
    /// The sender wants an acknowledgement at once.
    pub(crate) ask: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) group: GroupId,
    pub(crate) id: GroupViewId,
    pub(crate) members: Vec<Incarnation>,
    pub(crate) me: usize,
    pub(crate) logs: Vec<Log>,
    pub(crate) engine: Engine,
    pub(crate) disseminator: Disseminator,
    safe: Safe,
    window: usize,
    rows: Vec<Row>,
    /// Per sender, what this member's application has consumed.
    consumed: Vec<Reached>,
    told: Vec<Told>,
    unsent: u64,
    published: u64,
    /// Messages wait for credit.
    starved: bool,
    backoff: u32,
    ack_at: Option<Time>,
    /// When some gap is asked for again, or looked at.
    nak_at: Option<Time>,
    order_nak_at: Option<Time>,
    probe_at: Option<Time>,
    mark_at: Option<Time>,
    /// Records that made no sense or found no room.
    pub(crate) dropped: u64,
}

impl Stream {
    /// `consumed` is, per rank, what this member's application has consumed.
    pub(crate) fn new(
        group: GroupId,
        id: GroupViewId,
        members: Vec<Incarnation>,
        Beginning { me, start, credit }: Beginning<'_>,
        consumed: Vec<Reached>,
        options: GroupOptions,
    ) -> Self {
        // A decision is looked through before it is followed.
        let count = members.len();
        assert!(
            me < count && [start.len(), consumed.len(), credit.len()] == [count; 3],
            "G4: {id:?} has {count} members, {} starts, and this one is {me}",
            start.len()
        );
        let engine = Engine::new(&options, start, me);
        let told = start.iter().zip(&consumed).map(|(&held, consumed)| Told {
            held,
            consumed: consumed.next(),
            ordered: 0,
            bytes: 0,
            now: false,
            eager: false,
            asking: Asking::new(held),
        });
        Self {
            group,
            id,
            me,
            logs: start.iter().map(|&start| engine.log(start)).collect(),
            safe: Safe::new(me, &engine, start),
            engine,
            window: options.window_bytes as usize,
            disseminator: Disseminator::new(options.dissemination, me, members.len()),
            rows: credit
                .iter()
                .map(|&consumed| Row {
                    held: start[me],
                    consumed,
                    ordered: 0,
                    moved: Time::ZERO,
                })
                .collect(),
            told: told.collect(),
            unsent: start[me],
            published: start[me],
            consumed,
            members,
            starved: false,
            backoff: 0,
            ack_at: None,
            nak_at: None,
            order_nak_at: None,
            probe_at: None,
            mark_at: None,
            dropped: 0,
        }
    }

    pub(crate) fn rank(&self, incarnation: Incarnation) -> Option<usize> {
        self.members.iter().position(|member| *member == incarnation)
    }

    /// Whether this is the rank of this member.
    pub(crate) fn is_mine(&self, rank: u16) -> bool {
        usize::from(rank) == self.me
    }

    pub(crate) fn others(&self) -> Vec<Incarnation> {
        self.members
            .iter()
            .copied()
            .filter(|member| *member != self.members[self.me])
            .collect()
    }

    /// Adds messages of this member; gives the number of the first, as applications count.
    pub(crate) fn append(&mut self, block: Block) -> u64 {
        if block.level() == Level::Safe {
            self.note_safe();
        }
        let seq = self.logs[self.me].append(block);
        self.rows[self.me].held = self.logs[self.me].next();
        self.engine.held(self.me, &self.logs[self.me]);
        self.refresh_stable();
        seq
    }

    /// The next messages to deliver, all of one sender.
    pub(crate) fn deliver(&mut self) -> Option<(usize, u64, Block)> {
        if self.engine.passes_gaps() {
            return self.deliver_any();
        }
        loop {
            let (rank, count) = self.engine.next(&self.logs, |rank| self.safe.until(rank))?;
            assert!(
                (1..=self.logs[rank].undelivered()).contains(&count) || planted!(),
                "G21: {count} messages of {rank} come next, and {} are here",
                self.logs[rank].undelivered()
            );
            let (first, block) = self.logs[rank].deliver(count)?;
            self.engine.took(block.count());
            if !block.is_nulls() {
                return Some((rank, first, block));
            }
            self.engine.pass_silence(&mut self.logs);
        }
    }

    /// What the cut of a flush still brings, in the order in which all deliver it.
    pub(crate) fn deliver_cut(
        &mut self,
        decision: &Decision,
        survives: &[bool],
    ) -> Vec<(Incarnation, u64, Block)> {
        let mut rest = Vec::new();
        if self.engine.passes_gaps() {
            for (rank, log) in self.logs.iter_mut().enumerate() {
                let blocks = log.deliver_cut(&cut_of(decision, rank)).into_iter();
                rest.extend(blocks.map(|(first, block)| (self.members[rank], first, block)));
            }
            return rest;
        }
        let (cut, ordered) = (&decision.cut, decision.ordered);
        for (rank, mut left) in self.engine.tail(&self.logs, cut, ordered, self.me, survives) {
            while let Some((first, block)) = self.logs[rank].deliver(left) {
                left -= block.count();
                if !block.is_nulls() {
                    rest.push((self.members[rank], first, block));
                }
            }
        }
        rest
    }

    /// Does this member's part of the order at the end of a receive batch. True if there was something to do.
    pub(crate) fn end_batch(&mut self) -> bool {
        let done = self.engine.end_batch(&mut self.logs);
        self.rows[self.me].held = self.logs[self.me].next();
        done
    }

    /// How many bytes of each log are kept at most. A sender that keeps to its window needs far less. Between
    /// any two blocks there may be a run of nulls, which is charged with half of the least charge of a block.
    fn limit(&self) -> usize {
        let windows = if self.engine.takes_nulls() { 3 } else { 2 };
        self.window * windows + (1 << 17)
    }

    /// What all logs keep.
    pub(crate) fn held_bytes(&self) -> usize {
        self.logs.iter().map(Log::held_bytes).sum()
    }

    /// The most that all logs may keep.
    pub(crate) fn room(&self) -> usize {
        self.logs.len() * self.limit()
    }

    /// A sender's messages or mark arrived.
    pub(crate) fn batch(
        &mut self,
        now: Time,
        profile: &Profile,
        header: BatchHeader,
        messages: Block,
        out: &mut VecDeque<Effect>,
    ) {
        let BatchHeader {
            sender,
            first,
            stable,
            ask,
        } = header;
        if sender == self.me || sender >= self.logs.len() || first.checked_add(MAX_LOG).is_none() {
            self.dropped += 1;
            return;
        }
        let gap = !self.engine.passes_gaps() && first > self.logs[sender].next();
        if planted!(DeliverFifoGap) && !messages.is_empty() && gap {
            self.logs[sender].skip_to(first);
        }
        if messages.is_nulls() && !self.engine.takes_nulls() {
            self.dropped += 1;
            return;
        }
        let (bytes, next) = (super::log::charge(&messages), self.logs[sender].next());
        self.take(sender, first, messages);
        self.logs[sender].set_stable(stable);
        let came = Came {
            first,
            bytes,
            news: self.logs[sender].next() > next,
        };
        self.ask_for_rest(now, profile, sender, came, out);
        self.ask_for_gap(now, profile, sender, false, out);
        self.supply_owed(sender, out);
        self.owe_ack(now, profile, sender, bytes, ask);
    }

    /// Another member has supplied messages of a sender, and says nothing else of that sender.
    pub(crate) fn supplied(
        &mut self,
        now: Time,
        profile: &Profile,
        sender: usize,
        first: u64,
        messages: Block,
        out: &mut VecDeque<Effect>,
    ) {
        let header = BatchHeader {
            sender,
            first,
            stable: 0,
            ask: false,
        };
        self.batch(now, profile, header, messages, out);
    }

    /// Puts messages into their log and shows them to the order.
    fn take(&mut self, sender: usize, first: u64, messages: Block) {
        let Some(messages) = self.as_ordered(messages) else {
            self.dropped += 1;
            return;
        };
        if messages.level() == Level::Safe {
            self.note_safe();
        }
        let room = self.room_of(sender, first);
        let log = &mut self.logs[sender];
        let end = first + messages.count();
        let refused = !messages.is_empty()
            && (!self.engine.may_reach(log, end, messages.is_nulls())
                || log.insert(first, messages, room) == Inserted::Refused);
        log.heard_of(first);
        if refused {
            self.dropped += 1;
            // If this member asked for it at once, it would come again at once. Messages behind a gap are
            // asked for again when the repair of the gap takes long.
            self.told[sender].asking.refused(log.end());
        }
        self.engine.held(sender, log);
    }

    fn owe_ack(&mut self, now: Time, profile: &Profile, sender: usize, bytes: usize, ask: bool) {
        let told = &mut self.told[sender];
        told.bytes += bytes;
        told.eager |= ask;
        if ask || told.bytes >= self.window / 2 {
            told.now = true;
        } else {
            self.ack_later(now, profile);
        }
    }

    /// A member said something about the order.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        profile: &Profile,
        from: usize,
        word: Word,
        out: &mut VecDeque<Effect>,
    ) {
        match self.engine.hear(from, word) {
            Heard::Taken => {}
            Heard::Refused => self.dropped += 1,
            Heard::Answered(word) => self.say(from, word, out),
            Heard::Owed { ask } => {
                self.ask_for_order(now, profile, false, out);
                self.told[from].now |= ask;
                self.ack_later(now, profile);
            }
        }
    }

    /// Tells one member something about the order.
    fn say(&self, to: usize, word: Word, out: &mut VecDeque<Effect>) {
        self.send_to(to, Class::Control, word.record(self.group, self.id), out);
    }

    fn ack_later(&mut self, now: Time, profile: &Profile) {
        self.ack_at
            .get_or_insert(now + Duration::from_millis(25).min(profile.retransmit / 4));
    }

    fn send_to(&self, rank: usize, class: Class, record: GroupData, out: &mut VecDeque<Effect>) {
        out.push_back(Effect::Data {
            to: vec![self.members[rank]],
            class,
            records: vec![record],
        });
    }

    /// A member said how far it has come in this member's log. True if that makes room, or something safe.
    pub(crate) fn ack(
        &mut self,
        now: Time,
        profile: &Profile,
        from: usize,
        held: u64,
        consumed: u64,
        ordered: u64,
    ) -> bool {
        let next = self.logs[self.me].next();
        if from == self.me
            || held > next
            || consumed > next
            || ordered > self.engine.ordered() && self.makes_order()
        {
            self.dropped += 1;
            return false;
        }
        let row = &mut self.rows[from];
        let before = *row;
        row.held = row.held.max(held);
        row.consumed = row.consumed.max(consumed);
        row.ordered = row.ordered.max(ordered);
        let row = *row;
        let (progress, room) = (row != before, row.consumed > before.consumed);
        // A member that lacks the end of the log may come further in all else for long.
        let lags_in_order = self.makes_order() && row.ordered < self.engine.ordered();
        if row.held > before.held
            || row.held >= self.unsent && (row.ordered > before.ordered || !lags_in_order)
        {
            self.rows[from].moved = now;
        }
        if progress {
            self.backoff = 0;
            let probe_at = self.probe_at.unwrap_or(now + self.patience(profile));
            self.probe_at = self.waits_for_rows().then_some(probe_at);
            self.refresh_stable();
            if self.logs[self.me].stable() > self.published {
                self.mark_at.get_or_insert(now + profile.retransmit * 2);
            }
        }
        let safe = self.row_of_ack(from, held);
        room || safe
    }

    /// Whether this member makes the order for all.
    fn makes_order(&self) -> bool {
        self.engine.maker() == Some(self.me)
    }

    fn refresh_stable(&mut self) {
        let held = self.rows.iter().map(|row| row.held);
        // G14: a message may be forgotten only when no survivor can miss it: the minimum, over all members.
        let stable = if planted!(DropStableTooEarly) {
            held.max()
        } else {
            held.min()
        };
        self.logs[self.me].set_stable(stable.unwrap_or(0));
        if self.makes_order() {
            let ordered = self.other_rows().map(|row| row.ordered).min();
            self.engine.all_hold(ordered.unwrap_or(0));
        }
    }

    /// The first message of this member that some member's application has not consumed.
    pub(crate) fn consumed_by_all(&self) -> u64 {
        self.rows.iter().map(|row| row.consumed).min().unwrap_or(0)
    }

    /// Per member, what it was known to have consumed of this member's log.
    pub(crate) fn consumed_by(&self, member: Incarnation) -> Option<u64> {
        Some(self.rows[self.rank(member)?].consumed)
    }

    /// This member's application has consumed these messages of this sender.
    pub(crate) fn set_consumed(
        &mut self,
        now: Time,
        profile: &Profile,
        rank: usize,
        (first, end): (u64, u64),
    ) {
        let consumed = &mut self.consumed[rank];
        if self.engine.passes_gaps() {
            consumed.add(first, end);
        } else {
            consumed.raise(end);
        }
        let consumed = consumed.next();
        if rank == self.me {
            self.rows[rank].consumed = consumed;
            return;
        }
        let told = &mut self.told[rank];
        assert!(
            consumed >= told.consumed || planted!(),
            "R21: {consumed} consumed of {rank}, which was told {}",
            told.consumed
        );
        let open = self.logs[rank].next_message().saturating_sub(told.consumed);
        if told.eager && (consumed - told.consumed) * 4 >= open {
            told.now = true;
        }
        self.ack_later(now, profile);
    }

    /// Messages wait for credit. The members that hold them back are asked, in case their acknowledgement was
    /// lost.
    pub(crate) fn set_starved(&mut self, now: Time, profile: &Profile, starved: bool) {
        self.starved = starved;
        if starved && self.probe_at.is_none() {
            self.probe_at = Some(now + self.patience(profile));
        }
    }

    fn patience(&self, profile: &Profile) -> Duration {
        profile.retransmit * 2 * (1 << self.backoff.min(3))
    }

    fn lags(&self, row: &Row) -> bool {
        row.held < self.unsent || self.starved && row.consumed < self.logs[self.me].next_message()
    }

    fn lags_in_order(&self, row: &Row) -> bool {
        self.makes_order() && row.ordered < self.engine.ordered()
    }

    fn other_rows(&self) -> impl Iterator<Item = &Row> {
        let others = self.rows.iter().enumerate().filter(|(rank, _)| *rank != self.me);
        others.map(|(_, row)| row)
    }

    fn waits_for_rows(&self) -> bool {
        self.other_rows()
            .any(|row| self.lags(row) || self.lags_in_order(row))
    }

    /// Packs what was sent, ordered and received since the last time into frames.
    pub(crate) fn pack(
        &mut self,
        now: Time,
        profile: &Profile,
        outstanding: usize,
        out: &mut VecDeque<Effect>,
    ) {
        let others = self.others();
        let (group, view) = (self.group, self.id);
        if others.is_empty() {
            self.unsent = self.logs[self.me].next();
            self.engine.keep_alone();
            self.refresh_stable();
            return;
        }
        let mut sent = false;
        while self.unsent < self.logs[self.me].next() {
            let log = &self.logs[self.me];
            let Some((first, messages)) = log.slice(self.unsent, u64::MAX, JOIN_BYTES) else {
                break;
            };
            let bytes = messages.bytes().len();
            self.unsent += messages.count();
            self.published = log.stable();
            let (sender, stable) = (self.me as u16, self.published);
            let ask = outstanding * 2 >= self.window || self.starved;
            let batch = |first, messages, ask| GroupData::Batch {
                group,
                view,
                sender,
                first,
                stable,
                ask,
                messages,
            };
            let nulls = log.slice(self.unsent, u64::MAX, 0);
            let nulls = nulls.filter(|(_, block)| block.is_nulls());
            let mut records = vec![batch(first, messages, ask)];
            if let Some((first, nulls)) = nulls {
                self.unsent += nulls.count();
                records.push(batch(first, nulls, false));
            }
            if bytes < PIGGYBACK_BYTES {
                records.extend(self.engine.tell_all().map(|word| word.record(group, view)));
            }
            out.push_back(match &self.disseminator {
                Disseminator::Chain(chain) => Effect::Chain {
                    to: self.members[chain.next()],
                    records,
                },
                Disseminator::Multicast => Effect::Multicast {
                    to: others.clone(),
                    records,
                },
                Disseminator::Direct => Effect::Data {
                    to: others.clone(),
                    class: Class::Bulk,
                    records,
                },
            });
            sent = true;
        }
        while let Some(word) = self.engine.tell_all() {
            out.push_back(Effect::Data {
                to: others.clone(),
                class: Class::Control,
                records: vec![word.record(group, view)],
            });
            sent = true;
        }
        if let Some((to, word)) = self.engine.tell_one(&self.logs, now, profile.retransmit) {
            self.say(to, word, out);
        }
        if sent {
            self.mark_at = None;
            self.probe_at.get_or_insert(now + self.patience(profile));
        }
        for rank in 0..self.members.len() {
            if self.told[rank].now {
                self.tell(rank, out);
            }
        }
        self.tell_rows(now, profile, out);
    }

    fn tell(&mut self, rank: usize, out: &mut VecDeque<Effect>) {
        let (held, consumed) = (self.logs[rank].next(), self.consumed[rank].next());
        let behind = consumed < self.logs[rank].next_message();
        let ordered = self.engine.ordered();
        let told = &mut self.told[rank];
        // The credit that the sender waited for has come: back to the timer until the sender asks again.
        let eager = told.eager && behind;
        *told = Told {
            held,
            consumed,
            ordered,
            bytes: 0,
            now: false,
            eager,
            asking: told.asking,
        };
        let ack = GroupData::Ack {
            group: self.group,
            view: self.id,
            to: rank as u16,
            held,
            consumed,
            ordered,
        };
        self.send_to(rank, Class::Control, ack, out);
    }

    /// Per rank, the last number up to which all are held, and how many of them are nulls.
    pub(crate) fn held(&self) -> (Vec<u64>, Vec<u64>) {
        let held = |log: &Log| {
            if planted!(NullsOnlyOnRows) {
                let trailing = log.next() - log.messages_end();
                return (log.messages_end() - 1, log.nulls() - trailing);
            }
            (log.next() - 1, log.nulls())
        };
        self.logs.iter().map(held).unzip()
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        [
            self.ack_at,
            self.nak_at,
            self.order_nak_at,
            self.probe_at,
            self.mark_at,
            self.engine.next_timeout(),
            self.safe.next_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(crate) fn timeout(&mut self, now: Time, profile: &Profile, out: &mut VecDeque<Effect>) {
        let due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        if due(self.ack_at) {
            self.ack_at = None;
            let ordered = self.engine.ordered();
            let me = self.me;
            for rank in (0..self.members.len()).filter(|rank| *rank != me) {
                let told = self.told[rank];
                let order_news = self.engine.maker() == Some(rank) && ordered != told.ordered;
                let consumed = self.consumed[rank].next();
                if self.logs[rank].next() != told.held || consumed != told.consumed || order_news {
                    self.tell(rank, out);
                }
            }
        }
        if due(self.nak_at) {
            self.ask_again(now, profile, out);
        }
        if due(self.order_nak_at) {
            self.order_nak_at = None;
            self.ask_for_order(now, profile, true, out);
        }
        if due(self.probe_at) {
            self.probe_at = None;
            self.probe(now, profile, out);
        }
        if let Some((to, word)) = self.engine.timeout(now, profile.retransmit) {
            self.say(to, word, out);
        }
        self.ask_for_rows(now, profile, out);
        if due(self.mark_at) {
            self.mark_at = None;
            self.published = self.logs[self.me].stable();
            let marks = self.marks(false);
            out.push_back(Effect::Data {
                to: self.others(),
                class: Class::Control,
                records: marks,
            });
        }
    }

    /// Shows the members that lag and stand still how far the log reaches: a lost tail leaves no gap that
    /// they could see.
    fn probe(&mut self, now: Time, profile: &Profile, out: &mut VecDeque<Effect>) {
        let lagging = |(rank, row): &(usize, &Row)| {
            let still = now.since(row.moved) >= profile.retransmit * 2;
            *rank != self.me && still && (self.lags(row) || self.lags_in_order(row))
        };
        let to: Vec<_> = self
            .rows
            .iter()
            .enumerate()
            .filter(lagging)
            .map(|(rank, _)| self.members[rank])
            .collect();
        if to.is_empty() {
            self.probe_at = self.waits_for_rows().then_some(now + self.patience(profile));
            return;
        }
        let records = self.marks(true);
        out.push_back(Effect::Data {
            to,
            class: Class::Control,
            records,
        });
        self.backoff = (self.backoff + 1).min(3);
        self.probe_at = Some(now + self.patience(profile));
    }

    /// What shows others, if they are asked, how far this member's log reaches, and otherwise only what all
    /// of them hold: the rest may be under way, and would look lost.
    fn marks(&self, ask: bool) -> Vec<GroupData> {
        let (group, view, stable) = (self.group, self.id, self.published);
        let sender = self.me as u16;
        let first = if ask { self.unsent } else { stable };
        let mut marks = vec![GroupData::Batch {
            group,
            view,
            sender,
            first,
            stable,
            ask,
            messages: Block::default(),
        }];
        marks.extend(self.engine.mark(ask).map(|word| word.record(group, view)));
        marks
    }
}

/// No sender has numbers this close to the end of their type.
const MAX_LOG: u64 = 1 << 33;

const _: () = assert!(MAX_RUNS * 6 + PIGGYBACK_BYTES + 256 < antiphon_wire::frame::MAX_RECORDS_BYTES);
