//! Which nonces were seen: one sliding window per sender and kind, of the senders heard last.
//!
//! In keyed mode only a frame whose tag was right makes an entry, so only holders of the cluster key can fill
//! the table. In plain mode any host can. The table is bounded all the same, and the sender heard longest ago
//! makes room.

use std::collections::BTreeMap;

use super::key::SubKey;
use super::{KINDS, Kind};
use crate::Incarnation;

/// How many senders are remembered.
pub const MAX_SENDERS: usize = 1024;
/// A frame this far behind the newest of its sender and kind, or farther, is refused.
pub const REPLAY_WINDOW: u64 = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct Senders {
    known: BTreeMap<Incarnation, Sender>,
    /// Rises with each frame: the time of "longest ago".
    clock: u64,
}

#[derive(Debug, Clone, Default)]
struct Sender {
    last_heard: u64,
    kinds: [Option<Box<State>>; KINDS],
}

/// What is known of one kind of one sender's frames.
#[derive(Debug, Clone)]
struct State {
    key: SubKey,
    window: Option<Window>,
}

impl Senders {
    /// The subkey that has opened a frame of this sender and kind before.
    pub(super) fn sub_key(&self, sender: Incarnation, kind: Kind) -> Option<&SubKey> {
        self.known.get(&sender)?.kinds[kind.index()]
            .as_ref()
            .map(|state| &state.key)
    }

    /// Keeps a subkey that has just opened an authentic frame.
    pub(super) fn remember(&mut self, sender: Incarnation, kind: Kind, key: SubKey) {
        self.entry(sender).kinds[kind.index()] = Some(Box::new(State { key, window: None }));
    }

    /// Notes the nonce of an authentic frame; false if it was seen before or lies behind the window.
    pub(super) fn admit(&mut self, sender: Incarnation, kind: Kind, nonce: u64) -> bool {
        let state = self.entry(sender).kinds[kind.index()].get_or_insert_with(|| {
            Box::new(State {
                key: SubKey::Plain,
                window: None,
            })
        });
        match &mut state.window {
            Some(window) => window.admit(nonce),
            None => {
                state.window = Some(Window::starting_at(nonce));
                true
            }
        }
    }

    /// How many senders are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    fn entry(&mut self, sender: Incarnation) -> &mut Sender {
        if self.known.len() >= MAX_SENDERS && !self.known.contains_key(&sender) {
            let quietest = self
                .known
                .iter()
                .min_by_key(|(_, sender)| sender.last_heard)
                .map(|(id, _)| *id);
            if let Some(quietest) = quietest {
                self.known.remove(&quietest);
            }
        }
        self.clock += 1;
        let entry = self.known.entry(sender).or_default();
        entry.last_heard = self.clock;
        entry
    }
}

/// One word more than the window needs: the newest nonce's word may be only partly used.
const WORDS: u64 = REPLAY_WINDOW / 64 + 1;

/// A ring of bits, one per nonce, that ends at the newest nonce (the scheme of RFC 6479).
#[derive(Debug, Clone)]
struct Window {
    newest: u64,
    seen: [u64; WORDS as usize],
}

impl Window {
    fn starting_at(nonce: u64) -> Self {
        let mut window = Self {
            newest: nonce,
            seen: [0; WORDS as usize],
        };
        window.mark(nonce);
        window
    }

    fn admit(&mut self, nonce: u64) -> bool {
        if nonce > self.newest {
            let fresh_words = (nonce / 64 - self.newest / 64).min(WORDS);
            for word in 1..=fresh_words {
                self.seen[((self.newest / 64 + word) % WORDS) as usize] = 0;
            }
            self.newest = nonce;
        } else if self.newest - nonce >= REPLAY_WINDOW || self.is_marked(nonce) {
            return false;
        }
        self.mark(nonce);
        true
    }

    fn is_marked(&self, nonce: u64) -> bool {
        self.seen[(nonce / 64 % WORDS) as usize] & 1 << (nonce % 64) != 0
    }

    fn mark(&mut self, nonce: u64) {
        self.seen[(nonce / 64 % WORDS) as usize] |= 1 << (nonce % 64);
    }
}
