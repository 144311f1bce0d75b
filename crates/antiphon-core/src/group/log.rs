//! One sender's messages in one group view, as one member holds them.
//!
//! ```text
//!        base          delivered        next            end
//!  ───────┼────────────────┼──────────────┼──── ░ ─ ░ ────┼──►  numbers
//!  stable │ kept for others│  undelivered │ gaps and ahead│
//! ```
//! A message stays until it is delivered here *and* the sender's stable mark says that every member holds it: until
//! then any survivor may have to supply it for a dead sender. Numbers go on across views.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// What a message costs in windows and limits besides its payload: empty messages are not free.
pub(crate) const MESSAGE_OVERHEAD: usize = 32;

/// A number this far ahead of what is held is no sender's.
const FAR_AHEAD: u64 = 1 << 32;

/// What a message is charged with.
pub(crate) fn charge(payload: &Bytes) -> usize {
    payload.len() + MESSAGE_OVERHEAD
}

/// What became of a message offered to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// It extends what is held.
    Held,
    /// It is kept behind a gap.
    Ahead,
    /// It was there before.
    Duplicate,
    /// There is no room for it, or its number is absurd.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Log {
    base: u64,
    entries: VecDeque<Bytes>,
    bytes: usize,
    ahead: BTreeMap<u64, Bytes>,
    ahead_bytes: usize,
    end: u64,
    delivered: u64,
    stable: u64,
}

impl Log {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            base: start,
            entries: VecDeque::new(),
            bytes: 0,
            ahead: BTreeMap::new(),
            ahead_bytes: 0,
            end: start,
            delivered: start,
            stable: start,
        }
    }

    /// The first message not held.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.entries.len() as u64
    }

    /// The first message not delivered.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// All members hold what comes before this.
    pub(crate) fn stable(&self) -> u64 {
        self.stable
    }

    /// What is kept, as it is charged.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes + self.ahead_bytes
    }

    /// Adds the sender's own next message.
    pub(crate) fn append(&mut self, payload: Bytes) -> u64 {
        let seq = self.next();
        self.bytes += charge(&payload);
        self.entries.push_back(payload);
        self.end = self.end.max(self.next());
        seq
    }

    /// Takes a message that arrived; `limit` bounds the bytes kept, in order and ahead each.
    pub(crate) fn insert(&mut self, seq: u64, payload: Bytes, limit: usize) -> Inserted {
        let next = self.next();
        if seq < next {
            return Inserted::Duplicate;
        }
        let charge = charge(&payload);
        if seq > next {
            if seq - next > FAR_AHEAD || self.ahead_bytes + charge > limit {
                return Inserted::Refused;
            }
            self.end = self.end.max(seq + 1);
            if self.ahead.contains_key(&seq) {
                return Inserted::Duplicate;
            }
            self.ahead_bytes += charge;
            self.ahead.insert(seq, payload);
            return Inserted::Ahead;
        }
        if self.bytes + charge > limit {
            return Inserted::Refused;
        }
        self.push(payload);
        while let Some(entry) = self.ahead.first_entry() {
            if *entry.key() != self.base + self.entries.len() as u64 {
                break;
            }
            let payload = entry.remove();
            self.ahead_bytes -= self::charge(&payload);
            self.push(payload);
        }
        Inserted::Held
    }

    fn push(&mut self, payload: Bytes) {
        self.bytes += charge(&payload);
        self.entries.push_back(payload);
        self.end = self.end.max(self.next());
    }

    /// Pretends that everything before `seq` was delivered: only a planted mistake does this.
    pub(crate) fn skip_to(&mut self, seq: u64) {
        *self = Self {
            end: self.end,
            ..Self::new(seq)
        };
    }

    /// The log reaches up to this number, exclusive.
    pub(crate) fn heard_of(&mut self, end: u64) {
        if end <= self.next().saturating_add(FAR_AHEAD) {
            self.end = self.end.max(end);
        }
    }

    /// The first run of missing messages, if any is known to exist.
    pub(crate) fn gap(&self) -> Option<(u64, u64)> {
        let next = self.next();
        let end = self.ahead.first_key_value().map_or(self.end, |(first, _)| *first);
        (next < end).then_some((next, end))
    }

    pub(crate) fn has_undelivered(&self) -> bool {
        self.delivered < self.next()
    }

    /// The next message to deliver; from here on it counts as delivered.
    pub(crate) fn deliver(&mut self) -> Option<(u64, Bytes)> {
        let seq = self.delivered;
        let payload = self.get(seq)?.clone();
        self.delivered += 1;
        self.release();
        Some((seq, payload))
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Bytes> {
        self.entries
            .get(usize::try_from(seq.checked_sub(self.base)?).ok()?)
    }

    /// Consecutive messages from `first` on, at least one if it is held, within `bytes` and before `end`.
    pub(crate) fn slice(&self, first: u64, end: u64, bytes: usize) -> Vec<Bytes> {
        let mut messages = Vec::new();
        let mut room = bytes;
        for seq in first..end.min(self.next()) {
            let Some(payload) = self.get(seq) else { break };
            let cost = payload.len() + 3;
            if !messages.is_empty() && (cost > room || messages.len() == MAX_MESSAGES) {
                break;
            }
            room = room.saturating_sub(cost);
            messages.push(payload.clone());
        }
        messages
    }

    /// The sender says that every member holds what comes before `stable`.
    pub(crate) fn set_stable(&mut self, stable: u64) {
        self.stable = self.stable.max(stable.min(self.next()));
        self.release();
    }

    fn release(&mut self) {
        while self.base < self.stable.min(self.delivered) {
            let Some(payload) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= charge(&payload);
            self.base += 1;
        }
    }
}

/// The most messages in one record.
pub(crate) const MAX_MESSAGES: usize = 2048;
