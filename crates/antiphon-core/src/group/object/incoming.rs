//! The receivers' side: finds room for what is offered, asks for chunks and puts them together.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use antiphon_wire::group::GroupData;
use antiphon_wire::object::{ChunkSpan, Digest, Hasher, MAX_SPANS, ObjectRecord, chunk_range, chunks};
use antiphon_wire::{GroupId, GroupViewId, Incarnation};
use bytes::Bytes;

use crate::group::credit::Backlog;
use crate::group::object::limits::patience;
use crate::{GroupOptions, Profile, Time};

/// The most objects of one sender, however small.
const MAX_OBJECTS: usize = 64;

/// Objects of others, from the offer to the delivery.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Incoming {
    senders: BTreeMap<Incarnation, Sender>,
    /// Offers without room, in the order in which they came; at most one of each sender.
    waiting: VecDeque<Waiting>,
    /// Lengths of all objects here.
    bytes: usize,
    /// Senders that are to be told something, and about which object.
    answers: VecDeque<(Incarnation, u64)>,
    stall_at: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    sender: Incarnation,
    number: u64,
    length: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Sender {
    objects: BTreeMap<u64, Object>,
    bytes: usize,
    /// Objects up to this number are over.
    done: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Object {
    Filling(Box<Filling>),
    Whole { bytes: Bytes, digest: Digest },
}

/// An object of which chunks are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filling {
    buffer: Vec<u8>,
    /// Which chunks are here, a bit each.
    here: Vec<u64>,
    /// All before this are here, and in the digest.
    next: u32,
    hasher: Hasher,
    /// No chunk from here on has come.
    end: u32,
    /// Chunks before this were asked for.
    until: u32,
    /// Chunks that were overtaken.
    again: Vec<ChunkSpan>,
    /// When something should have come, and how often nothing came.
    stall_at: Time,
    attempt: u32,
}

/// How much room there is.
pub(super) struct Room<'a> {
    /// Of one sender.
    each: usize,
    /// Of all others.
    all: usize,
    /// What the application was given and has not taken.
    unread: &'a Backlog,
    /// The part that this member itself has sent does not count as others' objects.
    me: Incarnation,
}

impl<'a> Room<'a> {
    pub(super) fn of(options: &GroupOptions, unread: &'a Backlog, me: Incarnation) -> Self {
        Self {
            each: options.max_object_bytes as usize,
            all: options.object_memory_bytes as usize,
            unread,
            me,
        }
    }

    /// Whether an object fits beside so much of its sender, and so much of all others.
    fn fits(taken: usize, length: usize, limit: usize) -> bool {
        taken == 0 || taken + length <= limit
    }
}

/// How a receiver asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) now: Time,
    /// Chunks granted ahead of what is here.
    pub(super) window: u32,
    /// If no chunk comes for so long, the receiver asks again for the chunks that it granted. An answer to
    /// the sender does not restart this time: otherwise a sender that keeps asking would make all others
    /// wait.
    pub(super) patience: Duration,
}

/// What a sender offers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    pub(super) object: u64,
    pub(super) length: u32,
    pub(super) wrong: Option<Digest>,
}

/// What a sender is told of its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Want {
        object: u64,
        next: u32,
        until: u32,
        again: Vec<ChunkSpan>,
    },
    Held {
        object: u64,
        digest: Digest,
    },
}

impl Answer {
    pub(super) fn record(self, group: GroupId, view: GroupViewId) -> GroupData {
        match self {
            Answer::Want {
                object,
                next,
                until,
                again,
            } => GroupData::Want {
                group,
                view,
                object,
                next,
                until,
                again,
            },
            Answer::Held { object, digest } => GroupData::Held {
                group,
                view,
                object,
                digest,
            },
        }
    }
}

impl Incoming {
    /// Lengths of all objects here, whole or not.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.stall_at
    }

    pub(super) fn waits_for_room(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Forgets the objects of senders that are gone: their records are in no later view.
    pub(super) fn keep(&mut self, stays: impl Fn(Incarnation) -> bool) {
        self.senders.retain(|sender, _| stays(*sender));
        self.waiting.retain(|offer| stays(offer.sender));
        self.answers.retain(|(sender, _)| stays(*sender));
        self.bytes = self.senders.values().map(|sender| sender.bytes).sum();
        self.watch();
    }

    /// An object was offered. False if no node of ours would offer it.
    pub(super) fn offered(&mut self, from: Incarnation, offer: Offer, pace: Pace, room: &Room<'_>) -> bool {
        let Offer {
            object: number,
            length,
            wrong,
        } = offer;
        if length == 0 || length as usize > room.each {
            return false;
        }
        if self.is_over(from, number) {
            return true;
        }
        let sender = self.senders.entry(from).or_default();
        match sender.objects.get_mut(&number) {
            Some(object) if object.length() != length => return false,
            // A copy stays if it is not the one that was called wrong: this offer is late.
            Some(object @ Object::Whole { .. }) => {
                if matches!(object, Object::Whole { digest, .. } if wrong == Some(*digest)) {
                    *object = Object::Filling(Box::new(Filling::new(length, pace)));
                }
                self.answers.push_back((from, number));
            }
            Some(Object::Filling(_)) => self.answers.push_back((from, number)),
            None => {
                let known = self.waiting.iter().find(|offer| offer.sender == from);
                if let Some(known) = known {
                    return known.number == number;
                }
                self.waiting.push_back(Waiting {
                    sender: from,
                    number,
                    length,
                });
                self.admit(pace, room);
            }
        }
        true
    }

    fn is_over(&self, sender: Incarnation, number: u64) -> bool {
        let sender = self.senders.get(&sender);
        sender.is_some_and(|sender| number <= sender.done)
    }

    /// Takes in the offers for which there is room by now, in the order in which they came.
    pub(super) fn admit(&mut self, pace: Pace, room: &Room<'_>) {
        let mut left = VecDeque::new();
        let mut full = false;
        for offer in std::mem::take(&mut self.waiting) {
            if self.is_over(offer.sender, offer.number) {
                continue;
            }
            let length = offer.length as usize;
            let unread = room.unread.object_bytes() - room.unread.object_bytes_of(room.me);
            let all = Room::fits(self.bytes + unread, length, room.all);
            let sender = self.senders.entry(offer.sender).or_default();
            let of_sender = sender.bytes + room.unread.object_bytes_of(offer.sender);
            let each = Room::fits(of_sender, length, room.each) && sender.objects.len() < MAX_OBJECTS;
            // An offer that waits for others' objects keeps its turn. An offer that waits for its own
            // sender's objects holds up no other offer.
            full |= each && !all;
            if full || !each {
                left.push_back(offer);
                continue;
            }
            sender.bytes += length;
            self.bytes += length;
            let filling = Filling::new(offer.length, pace);
            sender
                .objects
                .insert(offer.number, Object::Filling(Box::new(filling)));
            self.answers.push_back((offer.sender, offer.number));
        }
        self.waiting = left;
        let counted: usize = self.senders.values().map(|sender| sender.bytes).sum();
        assert!(
            self.bytes == counted
                && self.bytes <= room.all.max(room.each)
                && self.senders.values().all(|sender| sender.bytes <= room.each)
                && self.waiting.len() <= self.senders.len(),
            "R22: {counted} bytes of objects, counted as {}, {} wait; room for {} of each, {} of all",
            self.bytes,
            self.waiting.len(),
            room.each,
            room.all
        );
    }

    /// A chunk arrived. What was not asked for, or does not fit, is dropped.
    pub(super) fn chunk(&mut self, from: Incarnation, number: u64, index: u32, bytes: &[u8], pace: Pace) {
        let sender = self.senders.get_mut(&from);
        let Some(object) = sender.and_then(|sender| sender.objects.get_mut(&number)) else {
            return;
        };
        let Object::Filling(filling) = object else {
            return;
        };
        if !filling.put(pace, index, bytes) {
            return;
        }
        let answer = if filling.is_whole() {
            *object = Object::Whole {
                digest: filling.hasher.digest(),
                bytes: std::mem::take(&mut filling.buffer).into(),
            };
            true
        } else {
            filling.extend(pace.window) || !filling.again.is_empty()
        };
        if answer {
            self.answers.push_back((from, number));
        }
    }

    /// The next thing that a sender is to be told. Drained before anything else happens.
    pub(super) fn poll_answer(&mut self) -> Option<(Incarnation, Answer)> {
        while let Some((to, number)) = self.answers.pop_front() {
            let sender = self.senders.get_mut(&to);
            let Some(object) = sender.and_then(|sender| sender.objects.get_mut(&number)) else {
                continue;
            };
            let answer = match object {
                Object::Whole { digest, .. } => Answer::Held {
                    object: number,
                    digest: *digest,
                },
                Object::Filling(filling) => Answer::Want {
                    object: number,
                    next: filling.next,
                    until: filling.until,
                    again: std::mem::take(&mut filling.again),
                },
            };
            return Some((to, answer));
        }
        self.watch();
        None
    }

    fn watch(&mut self) {
        let objects = self.senders.values().flat_map(|sender| sender.objects.values());
        let stalls = objects.filter_map(|object| match object {
            Object::Filling(filling) => Some(filling.stall_at),
            Object::Whole { .. } => None,
        });
        self.stall_at = stalls.min();
    }

    /// Asks again for what should have come.
    pub(super) fn timeout(&mut self, now: Time, profile: &Profile) {
        if self.stall_at.is_none_or(|at| at > now) {
            return;
        }
        for (from, sender) in &mut self.senders {
            for (number, object) in &mut sender.objects {
                let Object::Filling(filling) = object else {
                    continue;
                };
                if filling.stall_at <= now {
                    filling.attempt = filling.attempt.saturating_add(1);
                    filling.stall_at = now + patience(profile, filling.attempt);
                    filling.again = filling.missing();
                    self.answers.push_back((*from, *number));
                }
            }
        }
        self.watch();
    }

    /// The record of an object is delivered: returns the object. `None` if the object is not here, or is
    /// another one than the record says; then its sender is no node of ours.
    pub(super) fn take(&mut self, from: Incarnation, record: &ObjectRecord) -> Option<Bytes> {
        let sender = self.senders.get_mut(&from)?;
        sender.done = sender.done.max(record.object);
        let object = sender.objects.remove(&record.object)?;
        let length = object.length();
        sender.bytes -= length as usize;
        self.bytes -= length as usize;
        match object {
            Object::Whole { bytes, digest } => {
                let right = digest == record.digest && length == record.length;
                (right || planted!(DeliverIncompleteObject)).then_some(bytes)
            }
            Object::Filling(_) => None,
        }
    }
}

impl Object {
    fn length(&self) -> u32 {
        match self {
            Object::Filling(filling) => filling.buffer.len() as u32,
            Object::Whole { bytes, .. } => bytes.len() as u32,
        }
    }
}

impl Filling {
    /// The length fits the room that there is. Only now is memory taken for the object, once.
    fn new(length: u32, pace: Pace) -> Self {
        let chunks = chunks(length);
        Self {
            buffer: vec![0; length as usize],
            here: vec![0; chunks.div_ceil(64) as usize],
            next: 0,
            hasher: Hasher::default(),
            end: 0,
            until: pace.window.min(chunks),
            again: Vec::new(),
            stall_at: pace.now + pace.patience,
            attempt: 0,
        }
    }

    fn length(&self) -> u32 {
        self.buffer.len() as u32
    }

    fn has(&self, index: u32) -> bool {
        let word = self.here.get((index / 64) as usize);
        word.is_some_and(|word| word & 1 << (index % 64) != 0)
    }

    fn is_whole(&self) -> bool {
        self.next == chunks(self.length()) || planted!(DeliverIncompleteObject) && self.end > 0
    }

    /// Puts a chunk to its place. False if it does not belong to what was asked for, or was here before.
    fn put(&mut self, pace: Pace, index: u32, bytes: &[u8]) -> bool {
        let range = chunk_range(self.length(), index);
        if index >= self.until || range.len() != bytes.len() || self.has(index) {
            return false;
        }
        self.buffer[range].copy_from_slice(bytes);
        self.here[(index / 64) as usize] |= 1 << (index % 64);
        // This chunk has overtaken these chunks, or they are lost.
        if index > self.end && self.again.len() < MAX_SPANS {
            self.again.push(ChunkSpan {
                first: self.end,
                end: index,
            });
        }
        self.end = self.end.max(index + 1);
        while self.has(self.next) {
            let range = chunk_range(self.length(), self.next);
            self.hasher.update(&self.buffer[range]);
            self.next += 1;
        }
        self.attempt = 0;
        self.stall_at = pace.now + pace.patience;
        true
    }

    /// Asks for more once half of what was asked for is here. True if it does.
    fn extend(&mut self, window: u32) -> bool {
        let until = (self.next + window).min(chunks(self.length()));
        let half = self.until.saturating_sub(self.next) * 2 <= window;
        let more = half && until > self.until;
        if more {
            self.until = until;
        }
        more
    }

    /// The chunks that were asked for and are not here.
    fn missing(&self) -> Vec<ChunkSpan> {
        let mut spans: Vec<ChunkSpan> = Vec::new();
        for index in (self.next..self.until).filter(|index| !self.has(*index)) {
            if let Some(span) = spans.last_mut().filter(|span| span.end == index) {
                span.end += 1;
            } else if spans.len() < MAX_SPANS {
                spans.push(ChunkSpan {
                    first: index,
                    end: index + 1,
                });
            } else {
                break;
            }
        }
        spans
    }
}
