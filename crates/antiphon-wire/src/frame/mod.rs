//! Frames: the unit handed to a transport.
//!
//! ```text
//!  0      2         3      4             12       16                   32      40
//!  | magic | version | kind | cluster tag | key id | sender incarnation | nonce | records … | tag 16 |
//!  '---------------------------------- header ---------------------------------'
//! ```
//! A frame is authenticated before it is parsed: [`FrameCodec::open`] checks the tag over header and records
//! before any code looks at the records. Before the tag, only the fields are read that say whether this build
//! could check it at all. The order gives the most helpful error: magic, version, cluster, key id, tag,
//! replay.
//!
//! Two modes, told apart by the key id:
//! - **plain** (key id 0): the tag is an XXH3-128 hash. It finds corruption, **it is no security**: any host
//!   that reaches the port can make such frames.
//! - **keyed**: AES-256-GCM over the records with the header as additional data. Every incarnation seals with
//!   subkeys of its own, one per kind (R24), so a counter is a nonce that never repeats. One sealing serves
//!   all destinations.
//!
//! What a frame costs: sealing is one allocation, one copy of the records and one pass over them. Opening a
//! plain frame is one pass and no copy: the records are a slice of what was read. Opening a keyed frame
//! decrypts in place if the buffer has no other owner, otherwise in one copy.
//!
//! What the replay window does not do: a receiver that has just started knows no nonces, and it forgets a
//! sender that was evicted from the table of the last [`MAX_SENDERS`]. Records are therefore idempotent or
//! numbered by themselves. The window keeps late duplicates away from them, but their correctness does not
//! rest on it.

mod key;
mod replay;

use bytes::{Bytes, BytesMut};
use ring::aead;
use twox_hash::{XxHash3_64, XxHash3_128, xxhash3_128};

pub use self::key::{ClusterKey, KeyError};
use self::key::{Mode, SubKey};
use self::replay::Senders;
pub use self::replay::{MAX_SENDERS, REPLAY_WINDOW};
use crate::Incarnation;

/// The first two bytes of every frame.
pub const MAGIC: [u8; 2] = [0xa7, 0x1f];
/// The version of the frame layout this build reads and writes.
pub const WIRE_VERSION: u8 = 1;
/// The largest frame, header and tag included.
pub const MAX_FRAME_BYTES: usize = 65_536;
/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;
/// Bytes of the tag.
pub const TAG_BYTES: usize = 16;
/// The smallest frame: header and tag without a record.
pub const MIN_FRAME_BYTES: usize = HEADER_BYTES + TAG_BYTES;
/// The most bytes that a frame has room for between header and tag.
const MAX_CONTENT_BYTES: usize = MAX_FRAME_BYTES - HEADER_BYTES - TAG_BYTES;
/// The bytes around a frame that is inside another frame, for a node to pass on: a tag, a list of
/// [`MAX_RELAYED_TO`] incarnations, a length.
const ENVELOPE_BYTES: usize = 1 + 1 + 16 * MAX_RELAYED_TO + 3;
/// One frame may be passed on to at most so many nodes.
pub const MAX_RELAYED_TO: usize = 32;
/// The largest frame that fits into another one, to be passed on.
pub const MAX_RELAYED_BYTES: usize = MAX_CONTENT_BYTES - ENVELOPE_BYTES;
/// The most bytes of records in a frame. A frame that has to be passed on then fits into another frame.
pub const MAX_RECORDS_BYTES: usize = MAX_RELAYED_BYTES - HEADER_BYTES - TAG_BYTES;
/// The largest frame of kind [`Kind::Probe`]: a datagram of it passes everywhere in one piece, tunnels
/// included.
pub const MAX_PROBE_BYTES: usize = 1200;
/// The most bytes of records that a probe has room for.
pub const MAX_PROBE_RECORDS_BYTES: usize = MAX_PROBE_BYTES - HEADER_BYTES - TAG_BYTES;
/// A block below this is copied into its frame: a part of its own would cost more.
const WORTH_SHARING: usize = 2048;

/// What the frame is for. Each kind has its own nonce counter and replay window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Membership, flush, rows.
    Control,
    /// Messages and repairs.
    Bulk,
    /// A record on a lifeline.
    Lifeline,
    /// Messages that receivers hand on as they are: such a frame comes from its sender, but not always
    /// directly. It travels among the bulk frames.
    Chain,
    /// Messages that go to all at once by IP multicast. To members that multicast does not reach, they travel
    /// among the bulk frames.
    Multicast,
    /// A sign of life that goes alone in one datagram, beside the way that carries frames, and never on a
    /// stream.
    Probe,
}

/// How many kinds there are.
const KINDS: usize = 6;

impl Kind {
    const ALL: [Kind; KINDS] = [
        Kind::Control,
        Kind::Bulk,
        Kind::Lifeline,
        Kind::Chain,
        Kind::Multicast,
        Kind::Probe,
    ];

    /// The kind's byte in the header. Zero is no kind, so that an empty buffer is no frame.
    const fn to_byte(self) -> u8 {
        match self {
            Kind::Control => 1,
            Kind::Bulk => 2,
            Kind::Lifeline => 3,
            Kind::Chain => 4,
            Kind::Multicast => 5,
            Kind::Probe => 6,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Kind::Control),
            2 => Some(Kind::Bulk),
            3 => Some(Kind::Lifeline),
            4 => Some(Kind::Chain),
            5 => Some(Kind::Multicast),
            6 => Some(Kind::Probe),
            _ => None,
        }
    }

    const fn index(self) -> usize {
        self.to_byte() as usize - 1
    }
}

/// A sealed frame, in up to three parts that follow one another on the wire. Cloning it copies no bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    head: Bytes,
    body: Bytes,
    tail: Bytes,
}

impl Frame {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Whether it has no bytes. A sealed frame has some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its parts; the later ones may be empty.
    pub fn parts(&self) -> [&Bytes; 3] {
        [&self.head, &self.body, &self.tail]
    }

    /// All of it in one piece: copied unless it is in one piece already.
    pub fn to_bytes(&self) -> Bytes {
        if self.body.is_empty() && self.tail.is_empty() {
            return self.head.clone();
        }
        self.parts().map(|part| &part[..]).concat().into()
    }
}

impl From<Bytes> for Frame {
    fn from(whole: Bytes) -> Self {
        Self {
            head: whole,
            body: Bytes::new(),
            tail: Bytes::new(),
        }
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
    /// By multicast, from a sender that the receiver does not speak to: not opened.
    Stranger,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::NotAFrame => f.write_str("the bytes are not an Antiphon frame"),
            OpenError::Version(theirs) if *theirs > WIRE_VERSION => write!(
                f,
                "the sender speaks frame version {theirs}, this node speaks {WIRE_VERSION}: upgrade this node"
            ),
            OpenError::Version(theirs) => write!(
                f,
                "the sender speaks frame version {theirs}, this node speaks {WIRE_VERSION}: upgrade the sender"
            ),
            OpenError::OtherCluster => {
                f.write_str("the frame belongs to a cluster of another name: one side has a wrong address or name")
            }
            OpenError::Key => f.write_str(
                "the sender uses another cluster key, or only one side uses a key: give both the same key file",
            ),
            OpenError::BadTag => f.write_str("the frame was damaged or forged: its tag does not fit its bytes"),
            OpenError::Replayed => f.write_str("the frame was seen before, or is older than the replay window"),
            OpenError::Stranger => f.write_str("the frame came by multicast from nobody this node speaks to"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Seals this incarnation's frames and opens those of others.
///
/// Deterministic: the same calls give the same bytes. It is `Clone` so that a simulation can branch. Only one
/// of a codec and its clone may go on sealing frames that leave the process, since both would use the same
/// nonces.
#[derive(Debug, Clone)]
pub struct FrameCodec {
    /// Everything of the header that never changes; kind and nonce are filled in.
    header: [u8; HEADER_BYTES],
    mode: Mode,
    own: [SubKey; KINDS],
    nonces: [u64; KINDS],
    senders: Senders,
}

impl FrameCodec {
    /// A codec for frames of the cluster of this name, sealed as `me`, with the key if there is one.
    pub fn new(cluster: &str, key: Option<&ClusterKey>, me: Incarnation) -> Self {
        let mode = Mode::new(key);
        let mut header = [0; HEADER_BYTES];
        header[0..2].copy_from_slice(&MAGIC);
        header[2] = WIRE_VERSION;
        header[4..12].copy_from_slice(&cluster_tag(cluster));
        header[12..16].copy_from_slice(&mode.key_id());
        header[16..32].copy_from_slice(&me.0.to_le_bytes());
        let own = Kind::ALL.map(|kind| mode.sub_key(me, kind));
        Self {
            header,
            mode,
            own,
            nonces: [0; KINDS],
            senders: Senders::default(),
        }
    }

    /// Seals one frame for all its destinations.
    ///
    /// # Panics
    /// If `records` is larger than a frame. Callers stop at [`MAX_RECORDS_BYTES`]. Only a frame around
    /// another frame has more, at most [`MAX_RELAYED_BYTES`].
    pub fn seal(&mut self, kind: Kind, records: &[u8]) -> Bytes {
        self.seal_all(kind, &[records])
    }

    /// Seals one frame with these records in a row.
    fn seal_all(&mut self, kind: Kind, records: &[&[u8]]) -> Bytes {
        let length = records.iter().map(|part| part.len()).sum();
        let header = self.next_header(kind, length);
        let mut frame = Vec::with_capacity(MIN_FRAME_BYTES + length);
        frame.extend_from_slice(&header);
        records.iter().for_each(|part| frame.extend_from_slice(part));
        let tag = match &self.own[kind.index()] {
            SubKey::Plain => XxHash3_128::oneshot(&frame).to_le_bytes(),
            SubKey::Sealed(key) => encrypt(key, kind, &header, &mut frame[HEADER_BYTES..]),
        };
        frame.extend_from_slice(&tag);
        Bytes::from(frame)
    }

    /// Seals one frame whose records are `before`, `block` and `after` in a row. Without a key the block's
    /// bytes are shared, not copied; a key makes new bytes of all.
    ///
    /// # Panics
    /// As [`FrameCodec::seal`].
    pub fn seal_around(&mut self, kind: Kind, before: &[u8], block: &Bytes, after: &[u8]) -> Frame {
        let length = before.len() + block.len() + after.len();
        if matches!(self.own[kind.index()], SubKey::Sealed(_)) || block.len() < WORTH_SHARING {
            return self.seal_all(kind, &[before, block, after]).into();
        }
        let header = self.next_header(kind, length);
        let mut head = Vec::with_capacity(HEADER_BYTES + before.len());
        head.extend_from_slice(&header);
        head.extend_from_slice(before);
        let mut hash = xxhash3_128::Hasher::new();
        for part in [&head[..], block, after] {
            hash.write(part);
        }
        let mut tail = Vec::with_capacity(after.len() + TAG_BYTES);
        tail.extend_from_slice(after);
        tail.extend_from_slice(&hash.finish_128().to_le_bytes());
        Frame {
            head: head.into(),
            body: block.clone(),
            tail: tail.into(),
        }
    }

    fn next_header(&mut self, kind: Kind, records: usize) -> [u8; HEADER_BYTES] {
        assert!(
            records <= MAX_CONTENT_BYTES,
            "{records} bytes of records do not fit a frame"
        );
        let nonce = &mut self.nonces[kind.index()];
        // 2⁶⁴ frames do not happen in the life of a process, so the counter never repeats a nonce.
        *nonce += 1;
        let mut header = self.header;
        header[3] = kind.to_byte();
        header[32..40].copy_from_slice(&nonce.to_le_bytes());
        header
    }

    /// Checks a frame and yields its records. A refused frame changes nothing.
    pub fn open(&mut self, frame: Bytes) -> Result<Opened, OpenError> {
        let header = Header::read(&frame)?;
        if header.cluster_tag != self.header[4..12] {
            return Err(OpenError::OtherCluster);
        }
        if header.key_id != self.header[12..16] {
            return Err(OpenError::Key);
        }
        let Header {
            kind, sender, nonce, ..
        } = header;
        let records = match &self.mode {
            Mode::Plain => open_plain(frame)?,
            Mode::Keyed(_) => match self.senders.sub_key(sender, kind) {
                Some(key) => open_keyed(key, kind, nonce, frame)?,
                None => {
                    // The key is remembered only once it has opened a frame. So without the cluster key no
                    // host can make this node keep anything.
                    let key = self.mode.sub_key(sender, kind);
                    let records = open_keyed(&key, kind, nonce, frame)?;
                    self.senders.remember(sender, kind, key);
                    records
                }
            },
        };
        if !self.senders.admit(sender, kind, nonce) {
            return Err(OpenError::Replayed);
        }
        Ok(Opened {
            kind,
            sender,
            records,
        })
    }
}

/// What a frame claims to be, before anything is authenticated: enough to route a stream, not to believe it.
pub fn peek(frame: &[u8]) -> Result<(Kind, Incarnation), OpenError> {
    Header::read(frame).map(|header| (header.kind, header.sender))
}

/// The header's name for a cluster: a filter against foreign traffic, not a secret.
pub fn cluster_tag(cluster: &str) -> [u8; 8] {
    XxHash3_64::oneshot(cluster.as_bytes()).to_le_bytes()
}

/// The header's fields, believed only once the tag was right.
struct Header {
    kind: Kind,
    cluster_tag: [u8; 8],
    key_id: [u8; 4],
    sender: Incarnation,
    nonce: u64,
}

impl Header {
    fn read(frame: &[u8]) -> Result<Self, OpenError> {
        // The version comes before any length: another version may have another header.
        if frame.len() < 3 || frame[0..2] != MAGIC {
            return Err(OpenError::NotAFrame);
        }
        if frame[2] != WIRE_VERSION {
            return Err(OpenError::Version(frame[2]));
        }
        if frame.len() < MIN_FRAME_BYTES || frame.len() > MAX_FRAME_BYTES {
            return Err(OpenError::NotAFrame);
        }
        let kind = Kind::from_byte(frame[3]).ok_or(OpenError::NotAFrame)?;
        Ok(Self {
            kind,
            cluster_tag: field(frame, 4),
            key_id: field(frame, 12),
            sender: Incarnation(u128::from_le_bytes(field(frame, 16))),
            nonce: u64::from_le_bytes(field(frame, 32)),
        })
    }
}

/// A fixed field of the header; the caller has checked that the header is whole.
fn field<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&frame[at..at + N]);
    out
}

/// Bytes after the header; the length was checked when the header was read.
fn open_plain(mut frame: Bytes) -> Result<Bytes, OpenError> {
    let tag = frame.split_off(frame.len() - TAG_BYTES);
    if XxHash3_128::oneshot(&frame).to_le_bytes() != tag[..] {
        return Err(OpenError::BadTag);
    }
    Ok(frame.split_off(HEADER_BYTES))
}

fn open_keyed(key: &SubKey, kind: Kind, nonce: u64, frame: Bytes) -> Result<Bytes, OpenError> {
    let SubKey::Sealed(key) = key else {
        return Err(OpenError::Key);
    };
    let mut frame = frame
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    let (header, sealed) = frame.split_at_mut(HEADER_BYTES);
    let length = key
        .open_in_place(aead_nonce(kind, nonce), aead::Aad::from(header), sealed)
        .map_err(|_| OpenError::BadTag)?
        .len();
    Ok(frame.freeze().slice(HEADER_BYTES..HEADER_BYTES + length))
}

/// Encrypts in place; returns the tag.
fn encrypt(
    key: &aead::LessSafeKey,
    kind: Kind,
    header: &[u8; HEADER_BYTES],
    records: &mut [u8],
) -> [u8; TAG_BYTES] {
    let counter = u64::from_le_bytes(field(header, 32));
    let tag = key
        .seal_in_place_separate_tag(aead_nonce(kind, counter), aead::Aad::from(header), records)
        .expect("a frame is far below the 64 GiB that one AES-GCM nonce may cover");
    field(tag.as_ref(), 0)
}

/// The 96-bit nonce: kind, three zero bytes, counter. Kinds have separate keys too; this is the second belt.
fn aead_nonce(kind: Kind, counter: u64) -> aead::Nonce {
    let mut nonce = [0; aead::NONCE_LEN];
    nonce[0] = kind.to_byte();
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    aead::Nonce::assume_unique_for_key(nonce)
}

#[cfg(test)]
mod tests;
