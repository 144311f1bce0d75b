//! How much memory a group takes at this node, and the most it may take.
//!
//! Nothing that a peer, an application or a network does makes a group hold more than [`Memory::bound`]:
//!
//! | what | at most |
//! |---|---|
//! | accepted from the application, not sent yet | a window |
//! | pieces of messages that are not whole, of each sender | a message |
//! | each sender's log in the present view | two windows and a reserve: what its credit admits, and what was forgotten last |
//! | each sender's log in the view before, until all members have the present one | the same |
//! | each sender's log in the last view of an earlier membership, until all have the next one | the same |
//! | frames of a view that is not installed here yet | a fixed reserve |
//! | objects of each other sender (see [`super::object`]) | `max_object_bytes` |
//! | objects of all others, together with objects that the application was given and has not taken | `object_memory_bytes` |
//! | this member's own objects, the same way | `max_object_bytes` |
//! | direct messages to each other member, and what came of it behind a gap (see [`super::direct`]) | `TELL_CREDIT_BYTES` each |
//!
//! What the application was given and has not taken is not counted here; credit bounds it to a window per
//! sender. A member that starts over gives every sender its whole window again. So it asks for the group only
//! when its application has read what came before.

use super::data::MAX_EARLY_BYTES;
use super::large::MAX_PIECES;
use super::log::BLOCK_OVERHEAD;
use super::member::{Group, Phase};

/// Bytes of blocks, and a charge for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What is held now.
    pub held: usize,
    /// The most that may be held, with the present number of members.
    pub bound: usize,
    /// The objects among what is held: payloads beside the log, whole or not. Objects that the application
    /// was given are not counted.
    pub objects: usize,
}

impl Group {
    /// What this group takes at this node.
    pub(crate) fn memory(&self) -> Memory {
        let mut held = self.queue.bytes();
        let mut objects = 0;
        let mut bound = self.window() + MAX_PIECES * BLOCK_OVERHEAD;
        let streams = match &self.phase {
            Phase::Member(membership) => {
                held += membership.assembly.bytes();
                bound += membership.stream.members.len() * self.largest();
                held += membership.early_bytes;
                bound += MAX_EARLY_BYTES;
                let (own, others) = (
                    membership.objects.own_bytes(),
                    membership.objects.bytes_of_others(),
                );
                let each = self.options.max_object_bytes as usize;
                let all = self.options.object_memory_bytes as usize;
                held += membership.direct.bytes();
                bound += super::direct::bound(membership.stream.members.len() - 1);
                objects = own + others;
                held += objects;
                bound += own.min(each) + all.min(each.saturating_mul(membership.stream.members.len() - 1));
                let before = membership
                    .flush
                    .retained
                    .as_ref()
                    .and_then(|retained| retained.stream.as_ref());
                [Some(&membership.stream), before]
            }
            // Nothing is accepted any more.
            Phase::Ghost { retained, .. } => {
                bound = 0;
                [retained.stream.as_ref(), None]
            }
            Phase::Locating { .. } | Phase::Joining { .. } | Phase::Refused => [None, None],
        };
        for stream in streams.into_iter().flatten() {
            held += stream.held_bytes();
            bound += stream.room();
        }
        Memory { held, bound, objects }
    }
}
