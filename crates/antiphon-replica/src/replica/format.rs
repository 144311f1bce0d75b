//! What replicas say to each other: postcard, in ordered and in direct messages.
//!
//! Bytes from a peer are decoded here and nowhere else. What does not decode, or has bytes left over, is
//! counted and named ([`Event::Malformed`](super::Event)), and changes nothing: an ordered message fails to
//! decode at all members alike.

use std::borrow::Cow;

use antiphon_core::GroupView;
use antiphon_core::wire::Incarnation;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::AgreedTime;
use crate::format::as_bytes;
pub(super) use crate::format::{decode, decode_first, encode, encode_about, encode_after};

/// Stands for a value.
pub(super) fn hash<T: Serialize>(value: &T) -> u64 {
    XxHash3_64::oneshot(&encode(value))
}

/// A member as it stands in messages and in the agreed state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Member(u128);

impl From<Incarnation> for Member {
    fn from(incarnation: Incarnation) -> Self {
        Self(incarnation.0)
    }
}

impl From<Member> for Incarnation {
    fn from(member: Member) -> Self {
        Self(member.0)
    }
}

/// A place in the group's stream that all its members name alike, also those without the state: so many
/// ordered messages after a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) struct Point {
    /// The view's place among the group's views, [`GroupViewId::k`](antiphon_core::wire::GroupViewId).
    pub(super) view: u32,
    /// Messages delivered in it so far.
    pub(super) messages: u64,
}

impl Point {
    pub(super) fn of(view: &GroupView) -> Self {
        Self {
            view: view.id.k,
            messages: 0,
        }
    }

    pub(super) fn next(self) -> Self {
        Self {
            messages: self.messages + 1,
            ..self
        }
    }
}

/// An ordered message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ordered<'a> {
    /// The agreed time, if the sender has the state.
    pub(super) stamp: Option<AgreedTime>,
    #[serde(borrow)]
    pub(super) body: Body<'a>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Body<'a> {
    /// A command for the machine.
    Command {
        /// The sender's number for it.
        request: u64,
        /// The sender wants to be told how far its commands are applied.
        all: bool,
        #[serde(borrow, serialize_with = "as_bytes")]
        command: Cow<'a, [u8]>,
    },
    /// Answers the sender's reads up to this number.
    Barrier { upto: u64 },
    /// The sender has the state of this point from this source, and has applied what followed. Before, it has
    /// seen this of another state.
    Synced {
        source: Member,
        point: Point,
        seen: Option<Seen>,
    },
    /// The sender's digest of its state after so many commands.
    Digest { round: u64, digest: Option<u64> },
    /// Carries a stamp.
    Tick,
    /// The sender wants to leave when the state is safe with others.
    Leaving,
    /// The sender's state differs from the others': it serves no more. They know; joiners do not.
    Differs { point: Point },
    /// From the most senior member: no member has the state at this point.
    Lost { point: Point },
    /// The same at the message's own place, and the sender founds the state anew.
    Founded { point: Point },
}

/// How far a member saw a state that is void for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// The highest number it gave.
    pub(super) serial: u64,
    /// The latest time.
    pub(super) time: AgreedTime,
    /// The last view, by the hash of its id and members: two components may give one id twice.
    pub(super) view: u64,
    /// Messages delivered in it.
    pub(super) messages: u64,
}

/// A direct message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Told<'a> {
    /// To a joiner: the state of this point follows: what all members agree on, then the machine's state.
    Offer {
        point: Point,
        /// The source's definition.
        definition: &'a str,
        /// Of the state, about.
        bytes: u64,
        /// The joiner says what it has by quarters of this.
        budget: u64,
        /// The agreed time by the source's clock; the state has what was last said.
        time: AgreedTime,
    },
    /// The state from this offset on. None: it is complete.
    Chunk {
        point: Point,
        offset: u64,
        /// XXH3 of `bytes`, the seed being that of the chunk before.
        check: u64,
        #[serde(borrow, serialize_with = "as_bytes")]
        bytes: &'a [u8],
    },
    /// To the source: so much of the state is here.
    Received { point: Point, bytes: u64 },
    /// To a writer: all its commands up to this one are applied here.
    Applied { upto: u64 },
    /// To a joiner: its source cannot write the state of this point.
    Failed { point: Point, reason: Cow<'a, str> },
}
