//! Bulk objects: payloads that the log only names.
//!
//! An object travels beside the log in chunks of [`CHUNK_BYTES`], the last one shorter. Chunks are named by
//! their place, so none overlaps another, and their length follows from the object's. The log has only an
//! [`ObjectRecord`] of it.

use std::fmt;

use twox_hash::xxhash3_128;

use crate::block::PIECE_BYTES;
use crate::codec::{DecodeError, Reader, Wire};
use crate::wire_struct;

/// The bytes of a chunk that is not the last of its object.
pub const CHUNK_BYTES: usize = PIECE_BYTES;

/// The most bytes of an object, whatever a group admits.
pub const MAX_OBJECT_BYTES: u32 = 1 << 30;

/// The most runs of chunks that a [`Want`](crate::group::GroupData::Want) names.
pub const MAX_SPANS: usize = 32;

/// XXH3-128 of an object's bytes. It finds accidental damage. The frames' seal protects against forgery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Wire for Digest {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        u128::decode(input).map(Self)
    }
}

wire_struct! {
    /// What the log says of an object: from here on every member of the view holds it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ObjectRecord {
        /// Its sender's number for it.
        pub object: u64,
        /// Its bytes; never 0.
        pub length: u32,
        /// Of its bytes.
        pub digest: Digest,
    }
}

wire_struct! {
    /// Consecutive chunks of an object.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ChunkSpan {
        /// The first one.
        pub first: u32,
        /// The first one after them.
        pub end: u32,
    }
}

/// How many chunks an object of this length has.
pub const fn chunks(length: u32) -> u32 {
    (length as usize).div_ceil(CHUNK_BYTES) as u32
}

/// Where the bytes of a chunk are in its object; empty if the object has no such chunk.
pub fn chunk_range(length: u32, index: u32) -> std::ops::Range<usize> {
    let length = length as usize;
    let start = (index as usize).saturating_mul(CHUNK_BYTES).min(length);
    start..(start + CHUNK_BYTES).min(length)
}

/// The digest of bytes that come one after the other.
#[derive(Clone)]
pub struct Hasher(xxhash3_128::Hasher);

impl Default for Hasher {
    fn default() -> Self {
        Self(xxhash3_128::Hasher::new())
    }
}

impl Hasher {
    /// These bytes come next.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The digest of all that came so far.
    pub fn digest(&self) -> Digest {
        Digest(self.0.finish_128())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digest().fmt(f)
    }
}

impl PartialEq for Hasher {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for Hasher {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunks_of_an_object_are_all_of_it_and_none_overlaps() {
        for length in [
            1,
            CHUNK_BYTES - 1,
            CHUNK_BYTES,
            CHUNK_BYTES + 1,
            5 * CHUNK_BYTES + 7,
        ] {
            let count = chunks(length as u32);
            let mut end = 0;
            for index in 0..count {
                let range = chunk_range(length as u32, index);
                assert_eq!(range.start, end, "chunk {index} of {length}");
                assert!(!range.is_empty());
                end = range.end;
            }
            assert_eq!(end, length);
            for beyond in [count, u32::MAX] {
                assert!(chunk_range(length as u32, beyond).is_empty());
            }
        }
    }

    #[test]
    fn a_digest_is_the_same_in_however_many_parts_the_bytes_come() {
        let bytes: Vec<u8> = (0..200_000u32).map(|at| (at * 7) as u8).collect();
        let mut whole = Hasher::default();
        whole.update(&bytes);
        let mut parts = Hasher::default();
        bytes.chunks(CHUNK_BYTES).for_each(|chunk| parts.update(chunk));
        assert_eq!(whole, parts);
        parts.update(b"x");
        assert_ne!(whole.digest(), parts.digest());
        assert_eq!(
            whole.digest().0,
            twox_hash::XxHash3_128::oneshot(&bytes),
            "it is XXH3-128 as everyone computes it"
        );
    }
}
