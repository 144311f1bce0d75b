//! Repairs: asks for what is missing of a log or of the order, and answers such requests.
//!
//! In an open view a member asks for a gap at once. Answers are bounded per request, so that an answer never
//! floods the member that asked. When so much has come, it asks for the rest. If nothing comes for the
//! retransmit interval, it asks again. On a slow link, or behind a long queue, the answer may be under way,
//! and would be sent once more behind itself. So if a part of the answer came, or none to several questions,
//! the member waits twice as long, and so on. In a flush a member asks the holders that the cut names
//! ([pull](Stream::pull)).

use std::collections::VecDeque;

use antiphon_wire::group::{GroupData, Run};
use antiphon_wire::{Block, Incarnation, Level};

use super::asking::Came;
use super::{MAX_LOG, Stream};
use crate::dissemination::Disseminator;
use crate::group::Effect;
use crate::group::log::{Inserted, Log, Room, charge};
use crate::group::reached::Reached;
use crate::{Class, Profile, Time};

/// How much one request for repair is answered with.
const REPAIR_BYTES: usize = 128 * 1024;
/// How many gaps of one sender are asked for at once.
const MAX_NAKS: usize = 64;
/// The largest record of a repair that joins blocks.
const REPAIR_RECORD_BYTES: usize = 32 * 1024;

impl Stream {
    pub(super) fn ask_for_gap(
        &mut self,
        now: Time,
        profile: &Profile,
        sender: usize,
        again: bool,
        out: &mut VecDeque<Effect>,
    ) {
        let log = &self.logs[sender];
        let asking = &mut self.told[sender].asking;
        let gaps: Vec<_> = log.gaps(asking.upto).take(MAX_NAKS).collect();
        if let Some((_, end)) = gaps.last() {
            asking.upto = *end;
        }
        match log.gaps(0).next() {
            Some((next, _)) => {
                if let Some((first, end)) = gaps.first()
                    && *first == next
                {
                    (asking.again, asking.first_ends, asking.bytes) = (again, *end, 0);
                }
                let patience = asking.patience(profile);
                let at = *asking.again_at.get_or_insert(now + patience);
                self.nak_at = Some(self.nak_at.map_or(at, |due| due.min(at)));
            }
            None => (asking.again_at, asking.doublings) = (None, 0),
        }
        for gap in gaps {
            self.ask_for(sender, again, gap, out);
        }
    }

    /// Messages of a sender have come. Asks for the rest of the first gap if an answer has come whole and was
    /// not enough.
    pub(super) fn ask_for_rest(
        &mut self,
        now: Time,
        profile: &Profile,
        sender: usize,
        Came { first, bytes, news }: Came,
        out: &mut VecDeque<Effect>,
    ) {
        let log = &self.logs[sender];
        let next = log.next();
        let asking = &mut self.told[sender].asking;
        // A mark answers nothing.
        if asking.again_at.is_none() || bytes == 0 || !news && first >= asking.first_ends {
            return;
        }
        asking.unanswered = 0;
        if next >= asking.first_ends {
            let gap = log.gaps(0).next();
            (asking.first_ends, asking.bytes) = (gap.map_or(next, |(_, end)| end), 0);
            asking.doublings = 0;
            // The next gap was not asked for yet: that begins anew.
            if gap.is_none_or(|(first, _)| first >= asking.upto) {
                asking.again_at = None;
            }
            return;
        }
        // What comes twice answers an earlier question: the answer to the last one comes behind it.
        if news && first < asking.first_ends {
            asking.bytes += bytes;
        }
        asking.again_at = Some(now + asking.patience(profile));
        if asking.bytes >= REPAIR_BYTES {
            asking.bytes = 0;
            let (again, rest) = (asking.again, (next, asking.first_ends));
            self.ask_for(sender, again, rest, out);
        }
    }

    fn ask_for(&self, sender: usize, again: bool, (first, end): (u64, u64), out: &mut VecDeque<Effect>) {
        let nak = GroupData::Nak {
            group: self.group,
            view: self.id,
            sender: sender as u16,
            first,
            end,
        };
        let to = self.disseminator.whom_to_ask(sender, again);
        self.send_to(to, Class::Control, nak, out);
    }

    /// Answers a request for messages of this or another member.
    pub(crate) fn nak(
        &mut self,
        from: usize,
        sender: usize,
        first: u64,
        end: u64,
        out: &mut VecDeque<Effect>,
    ) {
        if planted!(TrustMulticast) && self.disseminator == Disseminator::Multicast {
            return;
        }
        if sender == self.me {
            return self.send_again(from, first, end, out);
        }
        self.pull(self.members[from], sender, first, end, out);
        let Some(log) = self.logs.get(sender) else { return };
        let mut at = first;
        for _ in 0..MAX_NAKS {
            let Some((first, end)) = log.missing(at, end) else {
                break;
            };
            self.disseminator.owe(from, sender, first, end);
            at = end;
        }
    }

    /// The next member in the chain has asked for something that was not here, and now is.
    pub(super) fn supply_owed(&mut self, sender: usize, out: &mut VecDeque<Effect>) {
        let log = &self.logs[sender];
        for (to, first, end) in self
            .disseminator
            .due(sender, |first, end| log.missing(first, end))
        {
            self.pull(self.members[to], sender, first, end, out);
        }
    }

    pub(super) fn send_again(&self, from: usize, first: u64, end: u64, out: &mut VecDeque<Effect>) {
        let (group, view, sender) = (self.group, self.id, self.me as u16);
        let end = end.min(self.unsent);
        for (first, messages) in chunks(&self.logs[self.me], first, end) {
            let stable = self.published;
            let record = GroupData::Batch {
                group,
                view,
                sender,
                first,
                stable,
                ask: false,
                messages,
            };
            // Messages that the next member lacks are missing at every member behind it.
            if self.disseminator.first_hop() == Some(from) {
                out.push_back(Effect::Chain {
                    to: self.members[from],
                    records: vec![record],
                });
            } else {
                self.send_to(from, Class::Bulk, record, out);
            }
        }
    }

    /// Answers a pull of a flush with what is held of a sender's log.
    pub(crate) fn pull(
        &self,
        to: Incarnation,
        sender: usize,
        first: u64,
        end: u64,
        out: &mut VecDeque<Effect>,
    ) {
        let (group, view) = (self.group, self.id);
        let Some(log) = self.logs.get(sender) else { return };
        let chunks = chunks(log, first, end);
        let count = chunks.len();
        for (index, (first, messages)) in chunks.into_iter().enumerate() {
            let last = index + 1 == count;
            let record = GroupData::Repair {
                group,
                view,
                sender: sender as u16,
                first,
                last,
                messages,
            };
            out.push_back(Effect::Data {
                to: vec![to],
                class: Class::Bulk,
                records: vec![record],
            });
        }
    }

    /// Answers a pull of a flush with order records.
    pub(crate) fn pull_orders(&self, to: Incarnation, first: u64, out: &mut VecDeque<Effect>) {
        if let Some((first, runs)) = self.engine.slice(first) {
            let record = GroupData::RepairOrders {
                group: self.group,
                view: self.id,
                first,
                runs,
            };
            out.push_back(Effect::Data {
                to: vec![to],
                class: Class::Control,
                records: vec![record],
            });
        }
    }

    /// Takes what a holder supplied in a flush, as far as the cut of this sender has it.
    pub(crate) fn repair(&mut self, sender: usize, first: u64, messages: Block, cut: &Reached) {
        let room = Room {
            bytes: self.limit(),
            runs: usize::MAX,
        };
        if first.checked_add(MAX_LOG).is_none() || messages.is_nulls() && !self.engine.takes_nulls() {
            return;
        }
        if messages.level() == Level::Safe {
            self.note_safe();
        }
        let Some(mut messages) = self.as_ordered(messages) else {
            self.dropped += 1;
            return;
        };
        let end = first + messages.count();
        let mut at = first;
        while at < end {
            let (gap, gap_end) = cut.missing(at, end).unwrap_or((end, end));
            let wanted = messages.split_front(gap - at);
            if !wanted.is_empty() && self.logs[sender].insert(at, wanted, room) == Inserted::Refused {
                self.dropped += 1;
            }
            drop(messages.split_front(gap_end - gap));
            at = gap_end;
        }
    }

    /// Takes order records that a holder supplied in a flush.
    pub(crate) fn repair_orders(&mut self, first: u64, runs: &[Run]) {
        if !self.engine.repair(first, runs) {
            self.dropped += 1;
        }
    }

    /// Asks again for the gaps of which nothing has come for long.
    pub(super) fn ask_again(&mut self, now: Time, profile: &Profile, out: &mut VecDeque<Effect>) {
        for rank in 0..self.members.len() {
            let asking = &mut self.told[rank].asking;
            if rank != self.me && asking.again_at.is_some_and(|at| at <= now) {
                asking.went_unanswered();
                self.ask_for_gap(now, profile, rank, true, out);
            }
        }
        self.nak_at = self.told.iter().filter_map(|told| told.asking.again_at).min();
    }

    /// Asks for the part of the order that is missing.
    pub(super) fn ask_for_order(
        &mut self,
        now: Time,
        profile: &Profile,
        again: bool,
        out: &mut VecDeque<Effect>,
    ) {
        if let Some((to, word)) = self.engine.missing(again) {
            self.say(to, word, out);
            self.order_nak_at.get_or_insert(now + profile.retransmit);
        }
    }
}

/// What is held of `first..end`, also behind gaps, in records for a repair.
fn chunks(log: &Log, mut first: u64, end: u64) -> Vec<(u64, Block)> {
    let mut chunks = Vec::new();
    let mut bytes = 0;
    while bytes < REPAIR_BYTES {
        let Some((at, block)) = log.slice(first, end, REPAIR_RECORD_BYTES) else {
            match log.missing(first, end) {
                Some((gap, gap_end)) if gap == first => first = gap_end,
                _ => break,
            }
            continue;
        };
        if planted!(ForgetNulls) && block.is_nulls() {
            break;
        }
        bytes += charge(&block);
        first += block.count();
        chunks.push((at, block));
    }
    chunks
}
