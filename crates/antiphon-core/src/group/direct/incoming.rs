//! The receiver's side of a pair: what it took of one sender, and what it tells the sender about that.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_wire::Block;

use crate::group::direct::limits::{TELL_CREDIT_BYTES, charge};
use crate::{Profile, Time};

/// What this member has of the direct messages of one sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Incoming {
    /// The first number that was not taken.
    next: u64,
    /// Messages of the present view behind a gap.
    ahead: BTreeMap<u64, Block>,
    ahead_bytes: usize,
    /// The first that the application has not taken.
    consumed: u64,
    /// Bytes taken, by this member or by its application, since the sender was told last.
    untold: usize,
    /// To be told at the end of this batch.
    now: bool,
    /// The gap that begins here was asked for.
    asked: u64,
    ack_at: Option<Time>,
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            next: 1,
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            consumed: 1,
            untold: 0,
            now: false,
            asked: 0,
            ack_at: None,
        }
    }
}

impl Incoming {
    /// The first number that was not taken.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn ahead_bytes(&self) -> usize {
        self.ahead_bytes
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.ack_at
    }

    /// Messages from this number on came. There is room for so many bytes that the application has not taken.
    /// Returns the messages that are taken now, in order.
    pub(super) fn take(
        &mut self,
        now: Time,
        profile: &Profile,
        mut first: u64,
        mut block: Block,
        room: usize,
    ) -> Vec<(u64, Block)> {
        let mut taken = Vec::new();
        let end = first.saturating_add(block.count());
        if end <= self.next {
            // The sender does not know that this is here; or this is a mark.
            self.now = true;
            if planted!(TakeTellsTwice) && !block.is_empty() {
                taken.push((first, block));
            }
            return taken;
        }
        if first < self.next {
            let known = block.split_front(self.next - first);
            first += known.count();
        }
        if self.ahead_bytes + charge(&block) > room {
            return taken;
        }
        if first > self.next {
            if !block.is_empty() && !self.ahead.contains_key(&first) {
                self.ahead_bytes += charge(&block);
                self.ahead.insert(first, block);
            }
            self.now |= self.asked != self.next;
            return taken;
        }
        self.deliver(first, block, &mut taken);
        while let Some((first, block)) = self.ahead.pop_first() {
            if first > self.next {
                self.ahead.insert(first, block);
                break;
            }
            self.ahead_bytes -= charge(&block);
            let mut block = block;
            let known = block.split_front(self.next - first);
            if !block.is_empty() {
                self.deliver(first + known.count(), block, &mut taken);
            }
        }
        self.tell_later(now, profile);
        taken
    }

    fn deliver(&mut self, first: u64, block: Block, taken: &mut Vec<(u64, Block)>) {
        assert!(
            first == self.next || planted!(),
            "G44: {first} is taken where {} comes next",
            self.next
        );
        self.next += block.count();
        self.untold += charge(&block);
        taken.push((first, block));
    }

    /// The application has taken so many more messages, of so many bytes.
    pub(super) fn consume(&mut self, now: Time, profile: &Profile, (messages, bytes): (u64, usize)) {
        if messages > 0 && !planted!(ForgetTellCredit) {
            self.consumed = (self.consumed + messages).min(self.next);
            self.untold += bytes;
            self.tell_later(now, profile);
        }
    }

    fn tell_later(&mut self, now: Time, profile: &Profile) {
        self.now |= self.untold >= TELL_CREDIT_BYTES / 4;
        let at = now + Duration::from_millis(25).min(profile.retransmit / 4);
        self.ack_at.get_or_insert(at);
    }

    pub(super) fn timeout(&mut self, now: Time) {
        if self.ack_at.is_some_and(|at| at <= now) {
            self.ack_at = None;
            self.now = true;
        }
    }

    /// What the sender is to be told now, if anything: up to where messages were taken, the end of the gap,
    /// and up to where they were consumed.
    pub(super) fn poll_ack(&mut self) -> Option<(u64, u64, u64)> {
        if !std::mem::take(&mut self.now) {
            return None;
        }
        self.ack_at = None;
        self.untold = 0;
        // Once for each gap: if the repair is lost again, the sender's patience ends and it sends again.
        let missing = self.asked != self.next;
        let until = self.ahead.keys().next().filter(|_| missing).copied().unwrap_or(0);
        if until > 0 {
            self.asked = self.next;
        }
        Some((self.next, until, self.consumed))
    }

    /// A view was installed, and the sender is in it. Messages that were not taken in the view before come
    /// again, as messages of this view.
    pub(super) fn begin_view(&mut self) {
        self.ahead.clear();
        self.ahead_bytes = 0;
        self.asked = 0;
        self.now = true;
    }
}
