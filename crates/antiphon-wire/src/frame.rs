//! Frames: the unit handed to a transport.
//!
//! ```text
//! | magic 2 | version 1 | kind 1 | cluster tag 8 | key id 4 | sender incarnation 16 | nonce 8 | records … | tag 16 |
//! ```
//! Authenticated before parsed: [`open`] checks the tag over header and records before anything else is read.

use bytes::Bytes;

use crate::Incarnation;

/// The largest frame, header and tag included.
pub const MAX_FRAME_BYTES: usize = 65_536;
/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;
/// Bytes of the tag.
pub const TAG_BYTES: usize = 16;
/// The most bytes of records in a frame.
pub const MAX_RECORDS_BYTES: usize = MAX_FRAME_BYTES - HEADER_BYTES - TAG_BYTES;

/// What the frame is for. Each kind has its own nonce counter and replay window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Membership, flush, rows.
    Control,
    /// Messages and repairs.
    Bulk,
    /// A record on a lifeline.
    Lifeline,
}

/// The cluster's 256-bit secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; 32]);

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

/// A frame whose tag was right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// What it is for.
    pub kind: Kind,
    /// Which incarnation sealed it.
    pub sender: Incarnation,
    /// Its records, decrypted: a slice of the frame's buffer where the mode allows.
    pub records: Bytes,
}

/// Why a frame was refused. It is dropped; nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// Not a frame of ours, or cut short.
    NotAFrame,
    /// A wire version this build does not speak.
    Version(u8),
    /// A frame of another cluster.
    OtherCluster,
    /// Sealed with another key, with a key where we have none, or without one where we have one.
    Key,
    /// The tag does not fit the bytes.
    BadTag,
    /// Seen before, or older than the replay window.
    Replayed,
}

/// Seals this incarnation's frames and opens those of others.
#[derive(Debug)]
pub struct FrameCodec {
    _private: (),
}

// To be implemented here:
//   FrameCodec::new(cluster: &str, key: Option<&ClusterKey>, me: Incarnation) -> Self
//   seal(&mut self, kind: Kind, records: &[u8]) -> Bytes
//   open(&mut self, frame: Bytes) -> Result<Opened, OpenError>
//   ClusterKey::parse(text: &str) -> Result<Self, KeyError>   (64 hex digits), ClusterKey::from_bytes
