//! What members say to each other of their clients: postcard, in messages to the group.
//!
//! Bytes from a peer are decoded here and nowhere else. What does not decode, is beyond a bound, or has bytes
//! left over, is counted, named ([`Event::Malformed`](super::Event)), and changes nothing: at any member,
//! since all of them decode the same.

use antiphon_core::wire::{GroupViewId, ViewId};
use serde::{Deserialize, Serialize};

use super::{ClientViewId, Departure, MAX_CAUSE_BYTES, MAX_CLIENTS, is_name};
use crate::format::{decode_first, encode};

/// A message to the group. Behind [`Words::Said`] the payload follows, behind [`Words::Bundle`] the
/// [bundle](super::Bundle).
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Words {
    /// A client of the sender says what follows.
    Said { number: u32 },
    /// Clients of the sender come and go.
    Change { enter: Vec<Named>, leave: Vec<Leaving> },
    /// All clients of the sender, by seniority.
    Here(Vec<Listed>),
    /// A client of the sender says all that follows.
    Bundle { number: u32 },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    pub(super) number: u32,
    pub(super) name: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leaving {
    pub(super) number: u32,
    pub(super) departure: Departure,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) named: Named,
    pub(super) since: Since,
}

/// The view in which a client is for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Since {
    epoch: u32,
    counter: u32,
    number: u32,
    k: u32,
    change: u32,
}

impl From<ClientViewId> for Since {
    fn from(id: ClientViewId) -> Self {
        let GroupViewId { node, number, k } = id.group;
        Self {
            epoch: node.epoch,
            counter: node.counter,
            number,
            k,
            change: id.change,
        }
    }
}

impl From<Since> for ClientViewId {
    fn from(since: Since) -> Self {
        let node = ViewId {
            epoch: since.epoch,
            counter: since.counter,
        };
        Self {
            group: GroupViewId {
                node,
                number: since.number,
                k: since.k,
            },
            change: since.change,
        }
    }
}

pub(super) fn words(words: &Words) -> Vec<u8> {
    encode(words)
}

/// What a client says, behind its number.
pub(super) fn said(number: u32, payload: &[u8]) -> Vec<u8> {
    let bytes = Vec::with_capacity(payload.len() + super::HEADER_BYTES);
    let mut bytes = crate::format::encode_after(bytes, &Words::Said { number });
    bytes.extend_from_slice(payload);
    bytes
}

/// What stands before a bundle.
pub(super) fn bundle(number: u32) -> Vec<u8> {
    words(&Words::Bundle { number })
}

/// Reads a message, and gives the payload behind it.
pub(super) fn read(bytes: &[u8]) -> Option<(Words, &[u8])> {
    let (words, rest) = decode_first(bytes)?;
    let possible = match &words {
        Words::Said { .. } | Words::Bundle { .. } => return Some((words, rest)),
        Words::Change { enter, leave } => {
            enter.len() <= MAX_CLIENTS
                && leave.len() <= MAX_CLIENTS
                && enter.iter().all(|named| is_name(&named.name))
                && leave.iter().all(|leaving| is_short(&leaving.departure))
        }
        Words::Here(all) => all.len() <= MAX_CLIENTS && all.iter().all(|listed| is_name(&listed.named.name)),
    };
    (possible && rest.is_empty()).then_some((words, rest))
}

fn is_short(departure: &Departure) -> bool {
    match departure {
        Departure::Left => true,
        Departure::Lost { cause } => cause.len() <= MAX_CAUSE_BYTES,
    }
}
