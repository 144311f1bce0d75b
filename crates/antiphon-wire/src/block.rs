//! Blocks: consecutive messages of one sender, in the bytes in which they travel and are kept.
//!
//! ```text
//!  | length | payload | length | payload | …        length: a varint; one or two bytes for most messages
//! ```
//! A message is copied once, into its sender's block. From there on the block is shared: the sender's log,
//! every frame it is sent or repaired in, the receivers' logs and their applications hold slices of the same
//! bytes. So a message costs its length prefix on the wire and one walk over that prefix at each step. There
//! is no allocation and no reference count per message unless an application takes a payload out of its
//! block.
//!
//! All messages of a block have one delivery [`Level`]: it costs a bit of the block's count and nothing per
//! message.
//!
//! Messages of a scoped group have a [tag](Tag) in front of their payload, counted by their length: the
//! scope, and how far back in the sender's log the previous message of that scope is.
//!
//! ```text
//!  | length | scope | back | payload | …         scope: 4 bytes; back: a varint; together at most eight for most messages
//! ```
//! The tag is beside each message and there is no block per scope: otherwise an application that sends to a
//! hundred scopes in turn would pay a record of 30 bytes for each message. A scope has four bytes for the
//! same reason.
//!
//! A block with a count and no bytes is a run of **nulls**: numbers that a sender gives up because it has
//! nothing to send.
//!
//! A message that fits no block travels in pieces. Each piece is a block, consecutive in the sender's log,
//! and its bytes are a slice of the payload without a length in front. Each says how many pieces come before
//! it, so a member that has one of them knows where the message begins, also behind a gap. The sender keeps
//! the message whole until it goes into the log, and the receivers put it together. Then its block is
//! [large](Block::large), and never on the wire. A message that is larger still is an
//! [object](crate::object): it travels beside the log, and its block only [names](Block::object) it.

mod tag;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::codec::{DecodeError, Reader, Wire, decode_all, encode_to_vec, put_varint, varint_len};
use crate::object::{MAX_OBJECT_BYTES, ObjectRecord};

pub use tag::{After, Tag};

/// The most bytes of a block: one fits a frame together with everything else in it.
pub const MAX_BLOCK_BYTES: usize = 60_400;

/// The bytes of a piece that is not the last of its message.
pub const PIECE_BYTES: usize = 60_000;

/// A decoded block of this size is a slice of the buffer that it was read into, which is at most sixteen
/// times as large. A smaller block is copied: otherwise it would keep many times its own bytes in memory.
pub const WORTH_KEEPING: usize = 32 << 10;

/// When a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// As soon as its place in the order is known here.
    #[default]
    Agreed,
    /// Only when every member of the view is known to hold it, and all that comes before it in the order.
    Safe,
}

/// What the bytes of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Messages, each with its length in front.
    #[default]
    Messages,
    /// A part of the payload of one message; more follow.
    Piece,
    /// The last part of a payload.
    LastPiece,
    /// The payload of one message that is too large for a block. Never on the wire.
    Large,
    /// An [`ObjectRecord`] instead of the payload that it names.
    Object,
}

/// Consecutive messages of one sender, or a part of one. Never damaged: it is checked when it is decoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Block {
    count: u32,
    /// If it is a piece: how many pieces come before it.
    index: u16,
    /// Whether its messages have tags.
    scoped: bool,
    form: Form,
    level: Level,
    bytes: Bytes,
}

impl Block {
    /// A block of one message.
    pub fn of(payload: &[u8]) -> Self {
        let mut builder = BlockBuilder::default();
        builder.push(payload);
        builder.finish()
    }

    /// Numbers without messages, in no bytes.
    pub fn nulls(count: u32) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }

    /// Whether it has numbers and no messages.
    pub fn is_nulls(&self) -> bool {
        self.form == Form::Messages && self.count > 0 && self.bytes.is_empty()
    }

    /// Adds nulls to nulls. False, and nothing is changed, if one of them has messages or the sum is too
    /// large for a block.
    pub fn extend_nulls(&mut self, more: &Block) -> bool {
        let sum = self.count.checked_add(more.count);
        let Some(sum) = sum.filter(|_| self.is_nulls() && more.is_nulls()) else {
            return false;
        };
        self.count = sum;
        true
    }

    /// A block of one message that has to travel in pieces.
    pub fn large(payload: Bytes) -> Self {
        Self {
            count: 1,
            form: Form::Large,
            bytes: payload,
            ..Self::default()
        }
    }

    /// A block of one message that has to travel in pieces, with its tag.
    pub fn large_tagged(tag: Tag, payload: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(tag.cost() + payload.len());
        tag.put(&mut bytes);
        bytes.extend_from_slice(payload);
        Self::large(bytes.into()).with_tag()
    }

    /// The same block, but its one message begins with a tag.
    #[must_use]
    pub fn with_tag(self) -> Self {
        Self { scoped: true, ..self }
    }

    /// Whether its messages have tags.
    pub fn is_scoped(&self) -> bool {
        self.scoped
    }

    /// The tags of its messages; none unless it is scoped.
    pub fn tags(&self) -> impl Iterator<Item = Tag> + '_ {
        let scoped = self.scoped.then(|| self.raw()).into_iter().flatten();
        scoped.filter_map(|message| Some(Tag::read(message)?.0))
    }

    /// The messages, with their tags.
    fn raw(&self) -> Payloads<'_> {
        Payloads {
            rest: &self.bytes,
            whole: self.form != Form::Messages,
            scoped: false,
        }
    }

    /// A block of one message whose payload travels beside the log.
    pub fn object(record: &ObjectRecord) -> Self {
        Self {
            count: 1,
            form: Form::Object,
            bytes: encode_to_vec(record).into(),
            ..Self::default()
        }
    }

    /// What it names, if its payload travels beside the log.
    pub fn record(&self) -> Option<ObjectRecord> {
        let record = (self.form == Form::Object).then(|| decode_all::<ObjectRecord>(self.bytes.clone()))?;
        record
            .ok()
            .filter(|record| (1..=MAX_OBJECT_BYTES).contains(&record.length))
    }

    /// The same at this level.
    #[must_use]
    pub fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// The pieces in which a [large](Block::large) message travels. A block of another form is its own only
    /// piece.
    pub fn pieces(self) -> impl Iterator<Item = Block> {
        let mut whole = (self.form != Form::Large).then(|| self.clone());
        let Block {
            form,
            level,
            scoped,
            mut bytes,
            ..
        } = self;
        let mut over = form != Form::Large;
        let mut next = 0;
        std::iter::from_fn(move || {
            if over {
                return whole.take();
            }
            let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
            over = bytes.is_empty();
            let index = next;
            next += 1;
            Some(Block {
                count: 1,
                index,
                scoped,
                form: if over { Form::LastPiece } else { Form::Piece },
                level,
                bytes: piece,
            })
        })
    }

    /// The bytes of the message of a block that has one message, without its tag.
    pub fn payload_len(&self) -> usize {
        self.iter().map(<[u8]>::len).next().unwrap_or(0)
    }

    /// How many places it takes in its sender's log: as many as it will have pieces.
    pub fn places(&self) -> u64 {
        match self.form {
            Form::Large => self.bytes.len().div_ceil(PIECE_BYTES).max(1) as u64,
            _ => self.count(),
        }
    }

    /// If it is a piece: how many pieces of the message come before it.
    pub fn index(&self) -> u64 {
        u64::from(self.index)
    }

    /// Whether it has messages, and neither nulls nor a piece.
    pub fn is_messages(&self) -> bool {
        self.form == Form::Messages && !self.is_nulls()
    }

    /// Whether it is a part of a payload.
    pub fn is_piece(&self) -> bool {
        matches!(self.form, Form::Piece | Form::LastPiece)
    }

    /// What its bytes are.
    pub fn form(&self) -> Form {
        self.form
    }

    /// How many messages it has, or pieces, or nulls.
    pub fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Whether it has none: such a block only marks a place.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// When its messages are delivered.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Its bytes, lengths and payloads.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The payloads, without taking hold of them.
    pub fn iter(&self) -> Payloads<'_> {
        Payloads {
            scoped: self.scoped,
            ..self.raw()
        }
    }

    /// Takes the first message out.
    pub fn pop_front(&mut self) -> Option<Bytes> {
        Some(self.pop_tagged()?.1)
    }

    /// Takes the first message out, with the scope of its tag if it has one.
    pub fn pop_tagged(&mut self) -> Option<(Option<u32>, Bytes)> {
        if self.count == 0 {
            return None;
        }
        let scoped = self.scoped;
        let mut message = if self.form == Form::Messages {
            let (length, prefix) = read_length(&self.bytes)?;
            let mut front = self.bytes.split_to(prefix + length);
            self.count -= 1;
            front.split_off(prefix)
        } else {
            std::mem::take(self).bytes
        };
        if !scoped {
            return Some((None, message));
        }
        let (tag, length) = Tag::read(&message)?;
        Some((Some(tag.scope), message.split_off(length)))
    }

    /// Splits the first `count` messages off; all of them if it has no more.
    #[must_use]
    pub fn split_front(&mut self, count: u64) -> Block {
        if count >= self.count() {
            return std::mem::take(self);
        }
        let mut at = 0;
        let messages = if self.is_nulls() { 0 } else { count };
        for _ in 0..messages {
            let Some((length, prefix)) = read_length(&self.bytes[at..]) else {
                break;
            };
            at += prefix + length;
        }
        let front = Block {
            count: count as u32,
            index: self.index,
            scoped: self.scoped,
            form: self.form,
            level: self.level,
            bytes: self.bytes.split_to(at),
        };
        self.count -= front.count;
        front
    }
}

impl IntoIterator for Block {
    type Item = Bytes;
    type IntoIter = IntoPayloads;

    fn into_iter(self) -> IntoPayloads {
        IntoPayloads { block: self }
    }
}

/// Payloads that share their block's bytes.
#[derive(Debug, Clone)]
pub struct IntoPayloads {
    block: Block,
}

impl Iterator for IntoPayloads {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.block.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.block.count as usize, Some(self.block.count as usize))
    }
}

/// The payloads of a block.
#[derive(Debug, Clone)]
pub struct Payloads<'a> {
    rest: &'a [u8],
    /// All of it is one payload.
    whole: bool,
    /// Each begins with a tag, which is left out.
    scoped: bool,
}

impl<'a> Iterator for Payloads<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let message = if std::mem::take(&mut self.whole) {
            std::mem::take(&mut self.rest)
        } else {
            let (length, prefix) = read_length(self.rest)?;
            let (message, rest) = self.rest.split_at_checked(prefix + length)?;
            self.rest = rest;
            &message[prefix..]
        };
        if !self.scoped {
            return Some(message);
        }
        let (_, length) = Tag::read(message)?;
        Some(&message[length..])
    }
}

/// The length at the front and how many bytes it takes. Lengths are below 2²¹.
#[inline]
fn read_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*bytes.first()?);
    if first < 0x80 {
        return Some((first, 1));
    }
    let second = usize::from(*bytes.get(1)?);
    let low = first & 0x7f | (second & 0x7f) << 7;
    if second < 0x80 {
        return (second != 0).then_some((low, 2));
    }
    let third = usize::from(*bytes.get(2)?);
    (third < 0x80 && third != 0).then_some((low | third << 14, 3))
}

/// A block in the making.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockBuilder {
    count: u32,
    level: Level,
    scoped: bool,
    bytes: Vec<u8>,
}

impl BlockBuilder {
    /// How many messages it has.
    pub fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether a payload of this length still fits. The largest payload fits an empty block.
    pub fn has_room(&self, length: usize) -> bool {
        self.bytes.len() + length + 3 <= MAX_BLOCK_BYTES
    }

    /// Whether messages of this level may be added: an empty builder takes either.
    #[inline]
    pub fn takes(&self, level: Level) -> bool {
        self.count == 0 || self.level == level
    }

    /// Whether messages with tags, or without, may be added: an empty builder takes either.
    #[inline]
    pub fn takes_tags(&self, tagged: bool) -> bool {
        self.count == 0 || self.scoped == tagged
    }

    /// The level of all messages that this block will have. The caller has asked whether it takes them.
    #[inline]
    pub fn set_level(&mut self, level: Level) {
        debug_assert!(self.takes(level));
        self.level = level;
    }

    /// Copies a message to the end. The caller has asked whether it fits.
    #[inline]
    pub fn push(&mut self, payload: &[u8]) {
        debug_assert!(self.has_room(payload.len()) || self.is_empty());
        if self.bytes.len() + payload.len() + 3 > self.bytes.capacity() {
            self.grow(payload.len() + 3);
        }
        put_varint(&mut self.bytes, payload.len() as u64);
        self.bytes.extend_from_slice(payload);
        self.count += 1;
    }

    /// Copies a message with its tag to the end. The caller has asked whether both fit.
    #[inline]
    pub fn push_tagged(&mut self, tag: Tag, payload: &[u8]) {
        debug_assert!(self.takes_tags(true));
        let length = tag.cost() + payload.len();
        if self.bytes.len() + length + 3 > self.bytes.capacity() {
            self.grow(length + 3);
        }
        self.scoped = true;
        put_varint(&mut self.bytes, length as u64);
        tag.put(&mut self.bytes);
        self.bytes.extend_from_slice(payload);
        self.count += 1;
    }

    /// Copies the messages of a block to the end. It has no piece.
    pub fn extend(&mut self, block: &Block) {
        debug_assert_eq!(block.form, Form::Messages);
        debug_assert!(self.takes_tags(block.scoped));
        self.scoped = block.scoped;
        self.set_level(block.level);
        self.grow(block.bytes.len());
        self.bytes.extend_from_slice(&block.bytes);
        self.count += block.count;
    }

    /// A builder that has seen some messages will see more: it takes four times the room. It does not take a
    /// whole block at once, because a block of some kilobytes would keep all of that memory.
    #[cold]
    fn grow(&mut self, more: usize) {
        let length = self.bytes.len();
        let room = if length < 1024 {
            more
        } else {
            let left = MAX_BLOCK_BYTES.saturating_sub(length);
            (3 * length).min(left).max(more)
        };
        self.bytes.reserve_exact(room);
    }

    /// The block; the builder is empty afterwards.
    pub fn finish(&mut self) -> Block {
        Block {
            count: std::mem::take(&mut self.count),
            index: 0,
            scoped: std::mem::take(&mut self.scoped),
            form: Form::Messages,
            level: std::mem::take(&mut self.level),
            bytes: Bytes::from(std::mem::take(&mut self.bytes)),
        }
    }
}

impl Wire for Block {
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_prefix(out);
        out.extend_from_slice(&self.bytes);
    }

    fn decode(input: &mut Reader) -> Result<Self, DecodeError> {
        let head = input.varint()?;
        let count = u32::try_from(head >> 4).map_err(|_| DecodeError::Invalid)?;
        let scoped = head & 7 == 4;
        let form = match head & 7 {
            0 | 4 => Form::Messages,
            1 => Form::Piece,
            2 => Form::LastPiece,
            3 => Form::Object,
            _ => return Err(DecodeError::Invalid),
        };
        let safe = head & 8 != 0;
        let level = if safe { Level::Safe } else { Level::Agreed };
        let length = input.length(MAX_BLOCK_BYTES)?;
        let bytes = input.take(length)?;
        // What has no message has no level.
        if safe && (count == 0 || bytes.is_empty()) {
            return Err(DecodeError::Invalid);
        }
        let (count, index) = if form == Form::Messages {
            check_messages(count, scoped, &bytes)?;
            (count, 0)
        } else {
            let before = count.checked_sub(1).and_then(|before| u16::try_from(before).ok());
            (
                1,
                before.filter(|_| !bytes.is_empty()).ok_or(DecodeError::Invalid)?,
            )
        };
        let bytes = if length < WORTH_KEEPING {
            Bytes::copy_from_slice(&bytes)
        } else {
            bytes
        };
        let block = Self {
            count,
            index,
            scoped,
            form,
            level,
            bytes,
        };
        if form == Form::Object && (index > 0 || block.record().is_none()) {
            return Err(DecodeError::Invalid);
        }
        Ok(block)
    }
}

/// Whether these are so many messages, or nulls.
fn check_messages(count: u32, scoped: bool, mut rest: &[u8]) -> Result<(), DecodeError> {
    if rest.is_empty() {
        return if scoped { Err(DecodeError::Invalid) } else { Ok(()) };
    }
    for _ in 0..count {
        let (length, prefix) = read_length(rest).ok_or(DecodeError::Invalid)?;
        let message = rest.get(prefix..prefix + length).ok_or(DecodeError::TooLong)?;
        if scoped && Tag::read(message).is_none() {
            return Err(DecodeError::Invalid);
        }
        rest = rest.get(prefix + length..).ok_or(DecodeError::TooLong)?;
    }
    if rest.is_empty() {
        Ok(())
    } else {
        Err(DecodeError::TrailingBytes)
    }
}

impl Block {
    /// What stands before the block's bytes on the wire: how many messages, or which piece, in which form,
    /// and how many bytes.
    pub fn encode_prefix(&self, out: &mut Vec<u8>) {
        let safe = u64::from(self.level == Level::Safe);
        let form = match self.form {
            Form::Messages if self.scoped => 4,
            Form::Messages => 0,
            Form::Piece => 1,
            Form::LastPiece => 2,
            // No receiver takes a large block: it goes into the log in pieces.
            Form::Object | Form::Large => 3,
        };
        let count = u64::from(self.count) + u64::from(self.index);
        put_varint(out, count << 4 | safe << 3 | form);
        put_varint(out, self.bytes.len() as u64);
    }

    /// What a message of this length takes in a block.
    pub const fn cost(length: usize) -> usize {
        varint_len(length as u64) + length
    }
}
