//! Direct messages that an application was given and has not taken, whatever has become of their pairs.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::Incarnation;

use crate::group::direct::limits::{MAX_UNTAKEN_BYTES, TELL_CREDIT_BYTES};

/// Direct messages that the application has not taken, by sender.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Untaken {
    senders: BTreeMap<Incarnation, Unread>,
    bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Unread {
    runs: VecDeque<Run>,
    bytes: usize,
}

/// Messages that came in one block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    left: u64,
    charge: usize,
    /// The pair by which they came goes on.
    live: bool,
}

impl Untaken {
    /// How many bytes more may be given of this sender.
    pub(super) fn room(&self, from: Incarnation) -> usize {
        let unread = self.senders.get(&from).map_or(0, |unread| unread.bytes);
        let own = TELL_CREDIT_BYTES.saturating_sub(unread);
        own.min(MAX_UNTAKEN_BYTES.saturating_sub(self.bytes))
    }

    /// Messages were given to the application.
    pub(super) fn given(&mut self, from: Incarnation, count: u64, charge: usize) {
        let unread = self.senders.entry(from).or_default();
        unread.bytes += charge;
        self.bytes += charge;
        unread.runs.push_back(Run {
            left: count,
            charge,
            live: true,
        });
        assert!(
            self.bytes <= MAX_UNTAKEN_BYTES && unread.bytes <= TELL_CREDIT_BYTES || planted!(),
            "R21: {} bytes of {from:?} are not taken, {} of all",
            unread.bytes,
            self.bytes
        );
    }

    /// The application has taken so many more messages of this sender. Returns how many of them came by the
    /// pair that goes on, and the bytes of the runs that it has taken whole.
    pub(super) fn consume(&mut self, from: Incarnation, mut messages: u64) -> (u64, usize) {
        let Some(unread) = self.senders.get_mut(&from) else {
            return (0, 0);
        };
        let (mut taken, mut bytes) = (0, 0);
        while messages > 0
            && let Some(front) = unread.runs.front_mut()
        {
            let count = messages.min(front.left);
            front.left -= count;
            messages -= count;
            if front.live {
                taken += count;
            }
            if front.left == 0 {
                bytes += front.charge;
                unread.runs.pop_front();
            }
        }
        unread.bytes -= bytes;
        self.bytes -= bytes;
        if unread.runs.is_empty() {
            self.senders.remove(&from);
        }
        (taken, bytes)
    }

    /// The pairs with these senders are over.
    pub(super) fn end(&mut self, over: impl Fn(Incarnation) -> bool) {
        let senders = self.senders.iter_mut().filter(|(from, _)| over(**from));
        for (_, unread) in senders {
            unread.runs.iter_mut().for_each(|run| run.live = false);
        }
    }
}
