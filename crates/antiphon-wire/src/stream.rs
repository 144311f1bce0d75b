//! Frames on a byte stream: each behind its length, as four bytes little-endian.
//!
//! The length is checked before a byte is reserved for it. So a peer (or whatever dialled the port) can make
//! this side hold one frame at most, and a length that no frame has ends the stream at once.

use bytes::{Buf, Bytes, BytesMut};

use crate::frame::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};

/// Bytes of the length before each frame.
pub const PREFIX_BYTES: usize = 4;

/// The length that goes before a frame on a stream. It is written apart from the frame, so that the frame's
/// one encoding serves all.
///
/// # Panics
/// If no frame has this length: only sealed frames travel.
pub fn length_prefix(length: usize) -> [u8; PREFIX_BYTES] {
    assert!(
        (MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&length),
        "{length} bytes are no frame"
    );
    (length as u32).to_le_bytes()
}

/// The stream is not a stream of frames. It cannot be resumed: close it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamError {
    /// The length that stood where a frame's should.
    pub length: u32,
}

impl std::fmt::Display for StreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "a frame has {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES} bytes, the stream announces {}: the other side does not \
             speak this protocol",
            self.length
        )
    }
}

impl std::error::Error for StreamError {}

/// Cuts what is read from a stream into frames. Frames are slices of the read buffer.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    buffer: BytesMut,
    broken: Option<StreamError>,
}

impl StreamDecoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// The buffer to read into. Append what arrived, then take frames until there is none. If every read is
    /// followed by that, less than one frame stays behind.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Appends what arrived.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes wait for the rest of their frame.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }

    /// How many bytes the frame at the front still lacks, at least; 0 if one can be taken.
    pub fn missing(&self) -> usize {
        let expected = match self.announced() {
            None => PREFIX_BYTES,
            Some(length) => PREFIX_BYTES + length as usize,
        };
        expected.saturating_sub(self.buffer.len())
    }

    /// The next whole frame, if it is there. After an error every call fails.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, StreamError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        let Some(length) = self.announced() else {
            return Ok(None);
        };
        if !(MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&(length as usize)) {
            let error = StreamError { length };
            self.broken = Some(error);
            self.buffer = BytesMut::new();
            return Err(error);
        }
        let length = length as usize;
        if self.buffer.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// The length that stands at the front, unchecked.
    fn announced(&self) -> Option<u32> {
        let prefix = self.buffer.first_chunk::<PREFIX_BYTES>()?;
        Some(u32::from_le_bytes(*prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_stream(frame: &[u8]) -> Vec<u8> {
        [&length_prefix(frame.len())[..], frame].concat()
    }

    #[test]
    fn frames_come_out_whole_however_the_stream_was_cut() {
        let frames: Vec<Vec<u8>> = (0..5u8)
            .map(|i| vec![i; MIN_FRAME_BYTES + usize::from(i) * 7])
            .collect();
        let stream: Vec<u8> = frames.iter().flat_map(|frame| on_a_stream(frame)).collect();
        for chunk in 1..stream.len() {
            let mut decoder = StreamDecoder::new();
            let mut got = Vec::new();
            for part in stream.chunks(chunk) {
                decoder.extend(part);
                while let Some(frame) = decoder.next_frame().expect("a good stream") {
                    got.push(frame.to_vec());
                }
                assert!(decoder.missing() > 0);
            }
            assert_eq!(got, frames, "in chunks of {chunk}");
            assert_eq!(decoder.pending(), 0);
        }
    }

    #[test]
    fn a_length_of_four_gibibytes_ends_the_stream_before_anything_is_reserved() {
        let mut decoder = StreamDecoder::new();
        decoder.extend(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.next_frame(), Err(StreamError { length: u32::MAX }));
        assert_eq!(decoder.buffer.capacity(), 0);
        decoder.extend(&on_a_stream(&[0; MIN_FRAME_BYTES]));
        assert!(decoder.next_frame().is_err(), "a broken stream stays broken");
    }

    #[test]
    fn lengths_no_frame_has_are_refused_and_the_limits_themselves_are_not() {
        for (length, good) in [
            (0, false),
            (MIN_FRAME_BYTES - 1, false),
            (MIN_FRAME_BYTES, true),
            (MAX_FRAME_BYTES, true),
            (MAX_FRAME_BYTES + 1, false),
        ] {
            let mut decoder = StreamDecoder::new();
            decoder.extend(&(length as u32).to_le_bytes());
            assert_eq!(decoder.next_frame().is_ok(), good, "{length}");
        }
    }
}
