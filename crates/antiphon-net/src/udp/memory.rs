//! Memory for frames while they are put together.
//!
//! As with TCP ([`crate::tcp`]), frames are slices of large buffers. A buffer is used again once none of its
//! frames is held any more: memory that is fresh from the system costs more than the copy into it.
//!
//! Only frames of authenticated connections are slices. A slice keeps its whole buffer: a stranger could hold
//! a few bytes in each of a thousand buffers, and the limit of its session counts only those bytes. So each
//! frame of a stranger has memory of its own.

use antiphon_wire::block::WORTH_KEEPING;
use bytes::BytesMut;

use crate::Connection;

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
    /// Empty memory with room for this many bytes of a frame that comes by this connection.
    pub(super) fn room(&mut self, connection: &Connection, bytes: usize) -> BytesMut {
        if !connection.is_authenticated() {
            return BytesMut::with_capacity(bytes);
        }
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
    use std::net::SocketAddr;

    use antiphon_wire::datagram::{Assembly, Inserted, Segment};

    use super::*;
    use crate::tcp::refusals::Refusals;

    fn connection() -> Connection {
        Connection::new(SocketAddr::from(([10, 0, 0, 1], 7)), Refusals::default())
    }

    #[test]
    fn memory_is_used_again_once_its_frames_are_forgotten() {
        let mut memory = Memory::default();
        let member = connection();
        member.accepted();
        let mut seen = std::collections::BTreeSet::new();
        let mut held = std::collections::VecDeque::new();
        for _ in 0..500 {
            let mut frame = memory.room(&member, 60_000);
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

    #[test]
    fn a_stranger_holds_no_more_memory_than_its_frames_have_bytes() {
        const LIMIT_BYTES: usize = 128 << 10;
        const SIZE: usize = 1040;
        let mut memory = Memory::default();
        let stranger = connection();
        let (mut filling, mut holding) = (Assembly::new(LIMIT_BYTES), Assembly::new(LIMIT_BYTES));
        let mut feed = |assembly: &mut Assembly, segment: &Segment<'_>| {
            let taken = assembly.insert(segment, |bytes| memory.room(&stranger, bytes));
            assert_eq!(taken, Inserted::Taken);
        };
        let small = |number: u64, index| Segment {
            session: 1,
            number,
            behind: (number - 1) as u16,
            length: 100,
            size: 60,
            index,
            report_at_once: false,
            bytes: &[1; 60][..if index == 0 { 60 } else { 40 }],
        };
        // Eight large frames, each with one byte of its end and given up when the next one comes, use up a
        // buffer. Then a small part of a frame stays.
        for round in 1..=1000 {
            for nth in 0..8 {
                let last = Segment {
                    session: 2,
                    number: 2 * (8 * round + nth),
                    behind: 0,
                    length: 63 * SIZE + 1,
                    size: SIZE,
                    index: 63,
                    report_at_once: false,
                    bytes: b"x",
                };
                feed(&mut filling, &last);
            }
            feed(&mut holding, &small(round, 0));
        }
        drop(filling);
        // The rest of them comes only so that the test can have the memory in hand.
        (1..=1000).for_each(|number| feed(&mut holding, &small(number, 1)));
        drop(memory);
        let frames: Vec<_> = std::iter::from_fn(|| holding.take()).collect();
        assert_eq!(frames.len(), 1000);
        let alive: usize = frames.into_iter().map(all_that_it_keeps).sum();
        assert!(alive <= LIMIT_BYTES, "{alive} bytes are alive");
    }

    /// The whole buffer that this is a slice of, if nothing else is.
    fn all_that_it_keeps(frame: bytes::Bytes) -> usize {
        let Ok(mut frame) = frame.try_into_mut() else {
            return 0;
        };
        frame.clear();
        // This never takes more memory: it succeeds if the buffer is as large.
        let _ = frame.try_reclaim(CHUNK_BYTES);
        frame.capacity()
    }
}
