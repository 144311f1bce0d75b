//! The joiner's side of a transfer: what it holds, and what has come of the state.

use std::collections::VecDeque;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::format::{self, Image, Member, Point};

/// What one item costs beside its payload.
const ITEM_BYTES: usize = 64;

/// What the group's stream consists of.
#[derive(Debug, Clone)]
pub(super) enum Item {
    View(ViewItem),
    Message { sender: Member, payload: Bytes },
}

/// What of a view concerns the state.
#[derive(Debug, Clone)]
pub(super) struct ViewItem {
    pub(super) members: Vec<Member>,
    pub(super) joined: Vec<Member>,
    pub(super) gone: Vec<Member>,
}

/// What was delivered and cannot be applied yet, each with its point.
#[derive(Debug, Default)]
pub(super) struct Held {
    items: VecDeque<(Point, Item)>,
    bytes: usize,
    /// The state that comes has all up to here.
    after: Point,
}

impl Held {
    /// Takes an item, unless the state that comes has it.
    pub(super) fn push(&mut self, point: Point, item: Item) {
        if point <= self.after {
            return;
        }
        let item = match item {
            // The payload is a slice of a large buffer, all of which would be kept with it.
            Item::Message { sender, payload } => Item::Message {
                sender,
                payload: Bytes::copy_from_slice(&payload),
            },
            view @ Item::View(_) => view,
        };
        self.bytes += cost(&item);
        self.items.push_back((point, item));
    }

    /// The next item to apply.
    pub(super) fn pop(&mut self) -> Option<(Point, Item)> {
        let (point, item) = self.items.pop_front()?;
        self.bytes -= cost(&item);
        Some((point, item))
    }

    /// The state that comes has all up to this point.
    pub(super) fn forget(&mut self, upto: Point) {
        self.after = upto.max(self.after);
        while self.items.front().is_some_and(|(point, _)| *point <= upto) {
            self.pop();
        }
    }

    /// The state that comes is that of this point or a later one.
    pub(super) fn after(&self) -> Point {
        self.after
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

fn cost(item: &Item) -> usize {
    let content = match item {
        Item::View(view) => 16 * (view.members.len() + view.joined.len() + view.gone.len()),
        Item::Message { payload, .. } => payload.len(),
    };
    ITEM_BYTES + content
}

/// The state as it comes.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) source: Member,
    pub(super) point: Point,
    pub(super) total: u64,
    digest: u64,
    bytes: Vec<u8>,
    /// What the source was told.
    told: Option<u64>,
}

impl Incoming {
    pub(super) fn new(source: Member, point: Point, total: u64, digest: u64) -> Self {
        Self {
            source,
            point,
            total,
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
        if image.agreed.point == self.point {
            Ok(image)
        } else {
            Err(Damage::Misplaced)
        }
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
