//! What a joiner holds until it can be applied: in memory, then in a file of its owner's.
//!
//! ```text
//!  delivered ──► front ──────────────────────────────────────────────────────► applied
//!                  │ full                                               ▲
//!                  └──► back ──► part ── Write ──► file ── Read ────────┘ when the front is empty
//! ```
//! This machine does no I/O: it says what is to be written or read ([`Spill`]), one thing at a time, and is
//! told when that is done. Without a file the front takes all.
//!
//! **Bounds.** With a file the front has at most half of the memory, and so has the rest: the back and the
//! part that is being written. A part has a sixteenth of the memory, or one message. The file is a ring of
//! fixed length: a part goes where the oldest ones were, once they are read.
//!
//! **Order.** Items go to the back as long as anything is in the back or in the file, so whatever is in the
//! front is older than what is in the file, and that is older than what is in the back.
//!
//! **Loss.** A part is known by its length and checksum. A disk that fails or gives back something else ends
//! the joiner's membership with a reason; nothing is skipped.

use std::collections::VecDeque;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::event::{Spill, SpillId};
use super::format::{self, Member, Point};
use crate::format::as_bytes;

/// What one item costs beside its payload: in memory, and more than in the file.
const ITEM_BYTES: usize = 64;
/// The same of a member of a view.
const MEMBER_BYTES: usize = 24;

/// What the group's stream consists of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Item {
    View(ViewItem),
    Message {
        sender: Member,
        #[serde(serialize_with = "as_bytes")]
        payload: Bytes,
    },
}

/// What of a view concerns the state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ViewItem {
    /// Of its id and members.
    pub(super) hash: u64,
    pub(super) members: Vec<Member>,
    pub(super) joined: Vec<Member>,
    pub(super) gone: Vec<Member>,
    /// Those of `gone` that left in order.
    pub(super) left: Vec<Member>,
}

/// What was delivered and cannot be applied yet, each with its point.
#[derive(Debug, Default)]
pub(super) struct Held {
    memory_bytes: usize,
    file_bytes: u64,
    front: Queue,
    /// In the file, or on the way there; oldest first.
    parts: VecDeque<Part>,
    back: Queue,
    doing: Option<(SpillId, Doing)>,
    /// The state that comes has all up to here.
    after: Point,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<(Point, Item)>,
    bytes: usize,
}

/// Items in the file.
#[derive(Debug)]
struct Part {
    at: u64,
    /// What it takes of the file: no less than its length.
    room: u64,
    length: usize,
    check: u64,
    /// Of its last item.
    point: Point,
}

#[derive(Debug)]
enum Doing {
    /// What the part costs in memory.
    Write(usize),
    Read(Part),
}

impl Held {
    /// With these bounds; no file if it is to have no bytes.
    pub(super) fn new(memory_bytes: usize, file_bytes: u64) -> Self {
        Self {
            memory_bytes,
            file_bytes,
            ..Self::default()
        }
    }

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
        let fits = self.file_bytes == 0 || self.front.bytes + cost(&item) <= self.memory_bytes / 2;
        let first = self.back.items.is_empty() && !self.has_parts();
        let queue = if first && fits {
            &mut self.front
        } else {
            &mut self.back
        };
        queue.push(point, item);
    }

    /// Whether it holds more than it may.
    pub(super) fn is_over(&self) -> bool {
        if self.file_bytes == 0 {
            self.front.bytes > self.memory_bytes
        } else {
            self.back.bytes + self.writing() > self.memory_bytes / 2
        }
    }

    /// The next item to apply; none also if it is still in the file.
    pub(super) fn pop(&mut self) -> Option<(Point, Item)> {
        if self.front.items.is_empty() && !self.has_parts() {
            std::mem::swap(&mut self.front, &mut self.back);
        }
        self.front.pop()
    }

    /// The state that comes has all up to this point.
    pub(super) fn forget(&mut self, upto: Point) {
        self.after = upto.max(self.after);
        self.front.forget(upto);
        while self.parts.front().is_some_and(|part| part.point <= upto) {
            self.parts.pop_front();
        }
        self.back.forget(upto);
    }

    /// The state that comes is that of this point or a later one.
    pub(super) fn after(&self) -> Point {
        self.after
    }

    /// What is in memory.
    pub(super) fn bytes(&self) -> usize {
        self.front.bytes + self.back.bytes + self.writing()
    }

    /// What is in the file, or on the way there.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.room).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front.items.is_empty() && self.back.items.is_empty() && !self.has_parts()
    }

    /// Whether there is something to apply at once.
    pub(super) fn is_ready(&self) -> bool {
        !self.front.items.is_empty() || !self.back.items.is_empty() && !self.has_parts()
    }

    /// What is to be done with the file, if anything. `applies`: items are wanted back.
    ///
    /// To write comes first where the back fills up: a joiner that applies slowly is not to overrun because
    /// it reads.
    pub(super) fn spill(&mut self, id: SpillId, applies: bool, planted: bool) -> Option<Spill> {
        if self.doing.is_some() {
            return None;
        }
        let urgent = self.back.bytes > self.memory_bytes / 4;
        let reads = applies && self.front.items.is_empty();
        if reads && !urgent {
            return self.read(id, planted).or_else(|| self.write(id));
        }
        let write = self.write(id);
        if write.is_none() && reads {
            return self.read(id, planted);
        }
        write
    }

    fn write(&mut self, id: SpillId) -> Option<Spill> {
        let part_bytes = (self.memory_bytes / 16).max(1);
        if self.file_bytes == 0 || self.back.bytes < part_bytes {
            return None;
        }
        let mut costs = 0;
        let fits = |(_, item): &&(Point, Item)| {
            let fits = costs == 0 || costs + cost(item) <= part_bytes;
            costs += if fits { cost(item) } else { 0 };
            fits
        };
        let count = self.back.items.iter().take_while(fits).count();
        let at = self.place(costs as u64)?;
        let mut bytes = Vec::with_capacity(costs);
        let mut point = Point::default();
        for _ in 0..count {
            let Some(item) = self.back.pop() else { break };
            point = item.0;
            bytes = format::encode_after(bytes, &item);
        }
        self.parts.push_back(Part {
            at,
            room: costs as u64,
            length: bytes.len(),
            check: XxHash3_64::oneshot(&bytes),
            point,
        });
        assert!(
            bytes.len() <= costs,
            "a part of {} bytes, not {costs}",
            bytes.len()
        );
        self.doing = Some((id, Doing::Write(costs)));
        Some(Spill::Write {
            at,
            bytes: bytes.into(),
        })
    }

    fn read(&mut self, id: SpillId, planted: bool) -> Option<Spill> {
        let part = if planted {
            self.parts.pop_back()?
        } else {
            self.parts.pop_front()?
        };
        let (at, length) = (part.at, part.length);
        self.doing = Some((id, Doing::Read(part)));
        Some(Spill::Read { at, length })
    }

    /// Where in the file so many bytes go, if there is room for them.
    fn place(&self, bytes: u64) -> Option<u64> {
        let (Some(first), Some(last)) = (self.parts.front(), self.parts.back()) else {
            return (bytes <= self.file_bytes).then_some(0);
        };
        let end = last.at + last.room;
        if end <= first.at {
            return (end + bytes <= first.at).then_some(end);
        }
        if end + bytes <= self.file_bytes {
            return Some(end);
        }
        (bytes <= first.at).then_some(0)
    }

    /// That is done: what was read, or why it failed. What of another time is done means nothing.
    pub(super) fn spilled(&mut self, id: SpillId, outcome: Result<Bytes, String>) -> Result<(), String> {
        let Some((_, doing)) = self.doing.take_if(|(doing, _)| *doing == id) else {
            return Ok(());
        };
        let bytes = outcome?;
        let Doing::Read(part) = doing else {
            return Ok(());
        };
        if bytes.len() != part.length || XxHash3_64::oneshot(&bytes) != part.check {
            return Err("the file gives back something else than was written to it".to_owned());
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let read = format::decode_first::<(Point, Item)>(rest);
            let ((point, item), after) = read.ok_or("what was written to the file cannot be read")?;
            rest = after;
            if point > self.after {
                self.front.push(point, item);
            }
        }
        Ok(())
    }

    fn has_parts(&self) -> bool {
        !self.parts.is_empty() || matches!(self.doing, Some((_, Doing::Read(_))))
    }

    fn writing(&self) -> usize {
        match self.doing {
            Some((_, Doing::Write(cost))) => cost,
            _ => 0,
        }
    }
}

impl Queue {
    fn push(&mut self, point: Point, item: Item) {
        self.bytes += cost(&item);
        self.items.push_back((point, item));
    }

    fn pop(&mut self) -> Option<(Point, Item)> {
        let (point, item) = self.items.pop_front()?;
        self.bytes -= cost(&item);
        Some((point, item))
    }

    fn forget(&mut self, upto: Point) {
        while self.items.front().is_some_and(|(point, _)| *point <= upto) {
            self.pop();
        }
    }
}

fn cost(item: &Item) -> usize {
    let content = match item {
        Item::View(view) => {
            let ViewItem {
                members,
                joined,
                gone,
                left,
                ..
            } = view;
            MEMBER_BYTES * (members.len() + joined.len() + gone.len() + left.len())
        }
        Item::Message { payload, .. } => payload.len(),
    };
    ITEM_BYTES + content
}
