//! Memory for frames while they are put together.
//!
//! As with TCP ([`crate::tcp`]), frames are slices of large buffers. A buffer is used again once none of its
//! frames is held any more: memory that is fresh from the system costs more than the copy into it.

use antiphon_wire::block::WORTH_KEEPING;
use bytes::BytesMut;

/// At most sixteen times what the core keeps a slice of: frames that stay hold little more.
const CHUNK_BYTES: usize = 16 * WORTH_KEEPING;
/// Chunks that wait for their frames to be forgotten.
const MAX_SPENT: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Empty, with room for the next frames.
    chunk: BytesMut,
    spent: Vec<BytesMut>,
}

impl Memory {
    /// Empty memory with room for this many bytes.
    pub(super) fn room(&mut self, bytes: usize) -> BytesMut {
        if self.chunk.capacity() < bytes {
            let fresh = self.fresh(bytes);
            let old = std::mem::replace(&mut self.chunk, fresh);
            if old.capacity() > 0 && self.spent.len() < MAX_SPENT {
                self.spent.push(old);
            }
        }
        let rest = self.chunk.split_off(bytes);
        std::mem::replace(&mut self.chunk, rest)
    }

    fn fresh(&mut self, bytes: usize) -> BytesMut {
        // The latest free chunk is the most likely to be in the cache still.
        let free = (0..self.spent.len())
            .rev()
            .find(|index| self.spent[*index].try_reclaim(CHUNK_BYTES));
        match free {
            Some(index) => self.spent.remove(index),
            None => BytesMut::with_capacity(bytes.max(CHUNK_BYTES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_its_frames_are_forgotten() {
        let mut memory = Memory::default();
        let mut seen = std::collections::BTreeSet::new();
        let mut held = std::collections::VecDeque::new();
        for _ in 0..500 {
            let mut frame = memory.room(60_000);
            assert!(frame.is_empty() && frame.capacity() >= 60_000);
            frame.resize(60_000, 1);
            let frame = frame.freeze();
            seen.insert(frame.as_ptr() as usize / CHUNK_BYTES);
            held.push_back(frame);
            if held.len() > 20 {
                held.pop_front();
            }
        }
        assert!(seen.len() < 30, "{} different places", seen.len());
        assert!(memory.spent.len() <= MAX_SPENT);
    }
}
