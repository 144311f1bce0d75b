//! The memory that a connection reads into.
//!
//! Frames are slices of the read buffer, and a buffer lives as long as any of its frames: in a log, in an
//! application's hands. A busy connection would therefore ask the system for fresh memory all the time, and
//! the kernel would clear every page of it. So buffers that were read full are kept for a while, and used
//! again once no frame of theirs is held any more. A quiet connection keeps none and reads little at a time.
//! It reads a small amount by way of the stack into memory of its own size: otherwise a message of a hundred
//! bytes would hold the memory of a whole read, until all members have it.

use std::io;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use antiphon_wire::frame::MAX_FRAME_BYTES;
use antiphon_wire::stream::StreamDecoder;
use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Room for a read of a quiet connection, and of a connection that fills what it is given.
const READ_BYTES: RangeInclusive<usize> = 16 << 10..=256 << 10;
/// A buffer of a busy connection. The rest of a frame that ends the buffer moves to the next buffer, which is
/// rare at this size. At most sixteen times what the core keeps a slice of
/// ([`antiphon_wire::block::WORTH_KEEPING`]): frames that stay hold little more.
const BUSY_BUFFER_BYTES: usize = 512 << 10;
/// Room for a read of a quiet connection, as long as it does not fill it.
const SMALL_READ_BYTES: usize = 4 << 10;
const _: () = assert!(BUSY_BUFFER_BYTES <= 16 * antiphon_wire::block::WORTH_KEEPING);
/// Buffers of a busy connection that wait for their frames to be forgotten.
const MAX_SPENT: usize = 8;

#[derive(Debug)]
pub(super) struct ReadBuffers {
    /// How much the next read may bring.
    room: usize,
    spent: Vec<BytesMut>,
}

impl ReadBuffers {
    pub(super) fn new() -> Self {
        Self {
            room: *READ_BYTES.start(),
            spent: Vec::new(),
        }
    }

    /// Reads once, without waiting. If a read does not fill its room, the next read would find nothing and is
    /// spared. Returns the number of bytes; 0 is the end of the stream.
    pub(super) fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        decoder: &mut StreamDecoder,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let (polled, wanted) = if self.reads_small(decoder) {
            let mut room = [MaybeUninit::uninit(); SMALL_READ_BYTES];
            let mut room = ReadBuf::uninit(&mut room);
            let polled = Pin::new(stream).poll_read(cx, &mut room);
            decoder.extend(room.filled());
            (polled.map_ok(|()| room.filled().len()), SMALL_READ_BYTES)
        } else {
            let wanted = self.prepare(decoder);
            let mut room = decoder.buffer().limit(wanted);
            (pin!(stream.read_buf(&mut room)).poll(cx), wanted)
        };
        if let Poll::Ready(Ok(read @ 1..)) = polled {
            self.has_read(read, wanted);
        }
        polled
    }

    /// Whether the next read is, as far as one can know, a small one.
    fn reads_small(&self, decoder: &StreamDecoder) -> bool {
        self.room == *READ_BYTES.start() && decoder.missing() <= SMALL_READ_BYTES
    }

    /// Makes room in the decoder's buffer; gives how much the next read may bring.
    fn prepare(&mut self, decoder: &mut StreamDecoder) -> usize {
        let wanted = self.room.max(decoder.missing().min(MAX_FRAME_BYTES));
        let buffer = decoder.buffer();
        if buffer.capacity() - buffer.len() < wanted {
            // Frames that were cut from the old buffer keep it; only the rest of a frame is copied.
            let mut next = self.fresh(buffer.len() + wanted);
            next.extend_from_slice(buffer);
            let mut old = std::mem::replace(buffer, next);
            old.clear();
            if self.is_busy() && self.spent.len() < MAX_SPENT {
                self.spent.push(old);
            }
        }
        wanted
    }

    /// Before a wait that may be long: a quiet connection that holds no part of a frame gives back its
    /// buffer. The next read would not have had room in it anyway. A node may have hundreds of connections
    /// that bring a few frames a second.
    pub(super) fn pause(&self, decoder: &mut StreamDecoder) {
        if !self.is_busy() && decoder.buffer().is_empty() {
            *decoder.buffer() = BytesMut::new();
        }
    }

    fn fresh(&mut self, at_least: usize) -> BytesMut {
        if !self.is_busy() {
            return BytesMut::with_capacity(at_least);
        }
        // The latest free buffer is the most likely to be in the cache still.
        let free = (0..self.spent.len())
            .rev()
            .find(|index| self.spent[*index].try_reclaim(BUSY_BUFFER_BYTES));
        match free {
            Some(index) => self.spent.remove(index),
            None => BytesMut::with_capacity(at_least.max(BUSY_BUFFER_BYTES)),
        }
    }

    fn is_busy(&self) -> bool {
        self.room == *READ_BYTES.end()
    }

    /// A read that might have brought `wanted` brought this much.
    fn has_read(&mut self, read: usize, wanted: usize) {
        let room = if read >= wanted {
            self.room * 2
        } else if read < SMALL_READ_BYTES {
            *READ_BYTES.start()
        } else {
            self.room.min(read * 8)
        };
        self.room = room.clamp(*READ_BYTES.start(), *READ_BYTES.end());
        if !self.is_busy() {
            self.spent = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(buffers: &mut ReadBuffers, decoder: &mut StreamDecoder, bytes: usize) -> usize {
        let wanted = buffers.prepare(decoder);
        let read = wanted.min(bytes);
        decoder.extend(&vec![0; read]);
        buffers.has_read(read, wanted);
        decoder.buffer().as_ptr() as usize
    }

    #[test]
    fn a_busy_connection_reads_into_memory_it_had_before_once_its_frames_are_forgotten() {
        let (mut buffers, mut decoder) = (ReadBuffers::new(), StreamDecoder::new());
        let mut seen = std::collections::BTreeSet::new();
        let mut held = std::collections::VecDeque::new();
        for _ in 0..200 {
            read(&mut buffers, &mut decoder, usize::MAX);
            let buffer = decoder.buffer();
            let frames = buffer.split().freeze();
            seen.insert(frames.as_ptr() as usize / BUSY_BUFFER_BYTES);
            held.push_back(frames);
            if held.len() > 3 {
                held.pop_front();
            }
        }
        assert!(seen.len() < 20, "{} different places", seen.len());
        assert!(buffers.spent.len() <= MAX_SPENT);
    }

    #[test]
    fn a_quiet_connection_keeps_nothing_and_reads_little_at_a_time() {
        let (mut buffers, mut decoder) = (ReadBuffers::new(), StreamDecoder::new());
        for _ in 0..20 {
            read(&mut buffers, &mut decoder, usize::MAX);
            decoder.buffer().clear();
        }
        assert!(buffers.is_busy());
        for _ in 0..5 {
            read(&mut buffers, &mut decoder, 100);
            decoder.buffer().clear();
        }
        assert_eq!((buffers.room, buffers.spent.len()), (*READ_BYTES.start(), 0));
    }

    /// Reads once what `stream` has; gives how much.
    fn poll(buffers: &mut ReadBuffers, decoder: &mut StreamDecoder, mut stream: &[u8]) -> usize {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match buffers.poll_read(&mut stream, decoder, &mut cx) {
            Poll::Ready(Ok(read)) => read,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_small_is_read_into_memory_of_its_own_size_also_after_a_burst() {
        let (mut buffers, mut decoder) = (ReadBuffers::new(), StreamDecoder::new());
        let bytes = vec![7; 1 << 20];
        for _ in 0..3 {
            assert_eq!(poll(&mut buffers, &mut decoder, &bytes[..3000]), 3000);
            assert!(
                decoder.buffer().capacity() < 4000,
                "{}",
                decoder.buffer().capacity()
            );
            buffers.pause(&mut decoder);
            decoder = StreamDecoder::new();
            // As much as goes by the stack: there is more.
            assert_eq!(poll(&mut buffers, &mut decoder, &bytes), SMALL_READ_BYTES);
            decoder = StreamDecoder::new();
            assert!(poll(&mut buffers, &mut decoder, &bytes) > SMALL_READ_BYTES);
            decoder = StreamDecoder::new();
            assert_eq!(poll(&mut buffers, &mut decoder, &bytes[..3000]), 3000);
            decoder = StreamDecoder::new();
        }
        assert_eq!(poll(&mut buffers, &mut decoder, &[]), 0, "the end");
    }

    #[test]
    fn the_rest_of_a_large_frame_is_not_read_in_small_pieces() {
        let (mut buffers, mut decoder) = (ReadBuffers::new(), StreamDecoder::new());
        let mut stream = (50_000_u32).to_le_bytes().to_vec();
        stream.resize(50_004, 7);
        assert_eq!(poll(&mut buffers, &mut decoder, &stream[..100]), 100);
        assert_eq!(
            poll(&mut buffers, &mut decoder, &stream[100..]),
            stream.len() - 100
        );
        assert_eq!(decoder.missing(), 0);
    }
}
