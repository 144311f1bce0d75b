//! The joiner's side of a transfer: what has come of the state. What it holds meanwhile is in `held`.

use twox_hash::XxHash3_64;

use super::clock::Clock;
use super::format::{self, Image, Member, Point};

/// No group has applied so much.
const MAX_COUNT: u64 = u64::MAX >> 1;

/// The state as it comes.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) source: Member,
    pub(super) point: Point,
    pub(super) total: u64,
    pub(super) clock: Clock,
    digest: u64,
    bytes: Vec<u8>,
    /// What the source was told.
    told: Option<u64>,
}

impl Incoming {
    pub(super) fn new(source: Member, point: Point, total: u64, digest: u64, clock: Clock) -> Self {
        Self {
            source,
            point,
            total,
            clock,
            digest,
            bytes: Vec::new(),
            told: None,
        }
    }

    pub(super) fn received(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Takes a chunk. Whether that was the last.
    pub(super) fn chunk(&mut self, offset: u64, check: u64, bytes: &[u8]) -> Result<bool, Damage> {
        let end = offset.saturating_add(bytes.len() as u64);
        if offset != self.received() || bytes.is_empty() || end > self.total {
            return Err(Damage::Misplaced);
        }
        if XxHash3_64::oneshot(bytes) != check {
            return Err(Damage::Altered);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(end == self.total)
    }

    /// The whole.
    pub(super) fn image(&self) -> Result<Image<'_>, Damage> {
        if XxHash3_64::oneshot(&self.bytes) != self.digest {
            return Err(Damage::Altered);
        }
        let image: Image<'_> = format::decode(&self.bytes).ok_or(Damage::Unreadable)?;
        if image.agreed.point != self.point {
            return Err(Damage::Misplaced);
        }
        // This member counts on from them.
        if image.agreed.index.max(image.agreed.commands) > MAX_COUNT {
            return Err(Damage::Unreadable);
        }
        Ok(image)
    }

    /// How much is here, if the source does not know.
    pub(super) fn untold(&self) -> Option<u64> {
        (self.told != Some(self.received())).then_some(self.received())
    }

    pub(super) fn told(&mut self, bytes: u64) {
        self.told = Some(bytes);
    }
}

/// What is wrong with a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    Misplaced,
    Altered,
    Unreadable,
}

impl Damage {
    pub(super) fn text(self) -> &'static str {
        match self {
            Damage::Misplaced => "it is not the part that comes next",
            Damage::Altered => "its bytes are not those that its checksum was made of",
            Damage::Unreadable => "it cannot be decoded",
        }
    }
}
