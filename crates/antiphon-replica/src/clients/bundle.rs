//! Messages that a client says at once.
//!
//! They travel as one message of the group, so all members deliver all of them or none, and nothing comes
//! between them. In bytes: each message behind its length.

use bytes::{Buf as _, Bytes};

use super::format;
use crate::format::{decode_first, encode_after};

/// The most messages of a bundle. Told one by one, small ones are many times as long as in the bundle.
pub const MAX_BUNDLE: usize = 4096;

/// Messages that one client said at once, in its order: at least one. An iterator over them; it copies none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    rest: Bytes,
    count: usize,
}

impl Bundle {
    /// Reads what a peer sent. None: it is not whole, or there is no message in it, or too many are.
    pub(super) fn read(bytes: Bytes) -> Option<Self> {
        let (mut rest, mut count) = (&bytes[..], 0);
        while !rest.is_empty() {
            (_, rest) = first(rest)?;
            count += 1;
        }
        (1..=MAX_BUNDLE)
            .contains(&count)
            .then_some(Self { rest: bytes, count })
    }

    /// The bytes that they have together, their lengths included.
    pub fn bytes(&self) -> usize {
        self.rest.len()
    }

    /// Each of them.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = &self.rest[..];
        std::iter::from_fn(move || {
            let (message, rest) = first(left)?;
            left = rest;
            Some(message)
        })
    }
}

impl Iterator for Bundle {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let (message, rest) = first(&self.rest)?;
        let (message, used) = (self.rest.slice_ref(message), self.rest.len() - rest.len());
        self.rest.advance(used);
        self.count -= 1;
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Bundle {}

/// The first message, and what is behind it.
fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, behind) = match bytes {
        // As the format has it, in one byte.
        [length @ ..0x80, behind @ ..] => (u32::from(*length), behind),
        _ => decode_first::<u32>(bytes)?,
    };
    behind.split_at_checked(length as usize)
}

/// A bundle that is being made.
#[derive(Debug)]
pub struct BundleWriter {
    bytes: Vec<u8>,
    header: usize,
    count: usize,
}

impl BundleWriter {
    /// For the client of this number. Nothing is in it.
    pub fn new(number: u32) -> Self {
        let bytes = format::bundle(number);
        let header = bytes.len();
        Self {
            bytes,
            header,
            count: 0,
        }
    }

    /// Appends a message. One of 4 GiB or more has no place in it; the caller has a far smaller bound.
    pub fn push(&mut self, message: &[u8]) {
        match u8::try_from(message.len()) {
            Ok(length @ ..0x80) => self.bytes.push(length),
            _ => {
                let length = u32::try_from(message.len()).expect("a message is far smaller than 4 GiB");
                self.bytes = encode_after(std::mem::take(&mut self.bytes), &length);
            }
        }
        self.bytes.extend_from_slice(message);
        self.count += 1;
    }

    /// How many messages are in it.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes the messages have together, their lengths included.
    pub fn bytes(&self) -> usize {
        self.bytes.len() - self.header
    }

    /// What to send to the group, if its client [may say](super::Clients::may_say) something.
    pub fn said(&self) -> &[u8] {
        &self.bytes
    }
}
