//! What callers and servers say to each other: postcard, in direct messages and, for calls to all, in
//! messages to the group.
//!
//! Bytes from a peer are decoded here and nowhere else. What does not decode, or has bytes left over, is
//! counted, named ([`Event::Malformed`](super::Event)), and changes nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::format::as_bytes;
pub(super) use crate::format::{decode, encode, encode_about};

/// A message to the group.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToAll<'a> {
    #[serde(borrow)]
    Request(Request<'a>),
}

/// A direct message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Told<'a> {
    #[serde(borrow)]
    Request(Request<'a>),
    /// The answer to this request is not wanted any more.
    Cancel {
        number: u64,
        /// The request went to all: it may come after this.
        all: bool,
    },
    Reply {
        number: u64,
        /// Requests that are running or waiting at the server.
        load: u32,
        /// From when the server had the request until it had the answer.
        micros: u64,
        #[serde(borrow)]
        answer: Answer<'a>,
    },
    /// The verbs that the sender serves, all of them.
    Serving {
        load: u32,
        #[serde(borrow)]
        verbs: BTreeSet<&'a str>,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request<'a> {
    /// The caller's number for the call.
    pub(super) number: u64,
    /// 0: not made by a handler.
    pub(super) depth: u8,
    /// Until its deadline, when it was sent.
    pub(super) millis: u64,
    pub(super) verb: &'a str,
    #[serde(borrow, serialize_with = "as_bytes")]
    pub(super) payload: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer<'a> {
    Reply(#[serde(borrow, serialize_with = "as_bytes")] &'a [u8]),
    /// The handler's own error.
    Error(#[serde(borrow, serialize_with = "as_bytes")] &'a [u8]),
    Busy,
    NoSuchVerb,
    TooDeep,
    /// The handler ran; there was no room to keep its reply.
    Lost,
    /// What was to run it has gone.
    GivenUp {
        may_have_run: bool,
    },
}
