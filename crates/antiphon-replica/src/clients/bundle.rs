//! Messages that a client says at once.
//!
//! They travel as one message of the group, so all members deliver all of them or none, and nothing comes
//! between them. In bytes: each message behind its length.

use bytes::Bytes;

use crate::format::{decode_first, encode_after};

/// Messages that one client said at once, in its order: at least one. An iterator over them; it copies none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    rest: Bytes,
    count: usize,
}

impl Bundle {
    /// Reads what a peer sent. None: it is not whole, or there is no message in it.
    pub(super) fn read(bytes: Bytes) -> Option<Self> {
        let (mut rest, mut count) = (&bytes[..], 0);
        while !rest.is_empty() {
            let (length, behind) = decode_first::<u32>(rest)?;
            rest = behind.get(length as usize..)?;
            count += 1;
        }
        (count > 0).then_some(Self { rest: bytes, count })
    }

    /// The bytes that they have together, their lengths included.
    pub fn bytes(&self) -> usize {
        self.rest.len()
    }

    fn advance(&mut self) -> Option<Bytes> {
        let (length, behind) = decode_first::<u32>(&self.rest)?;
        let begin = self.rest.len() - behind.len();
        let end = begin.checked_add(length as usize)?;
        let message = self.rest.slice(begin..end);
        bytes::Buf::advance(&mut self.rest, end);
        self.count -= 1;
        Some(message)
    }
}

impl Iterator for Bundle {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.advance()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Bundle {}

/// Appends a message to a bundle that is being made. A message of 4 GiB or more has no place in it; the
/// caller has a far smaller bound.
pub fn append(bundle: &mut Vec<u8>, message: &[u8]) {
    let length = u32::try_from(message.len()).expect("a message is far smaller than 4 GiB");
    *bundle = encode_after(std::mem::take(bundle), &length);
    bundle.extend_from_slice(message);
}
