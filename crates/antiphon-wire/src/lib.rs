//! The wire format of Antiphon: what bytes mean, and nothing about when they are sent.
//!
//! - [`codec`]: how values are read and written, with every length checked before it is believed;
//! - [`id`](Incarnation) and [`view`](NodeView): the identities and views that messages carry;
//! - [`frame`]: the unit handed to a transport: fixed header, records, authentication tag;
//! - [`stream`]: frames on a byte stream;
//! - [`datagram`]: frames on datagrams;
//! - [`level`]: which messages two builds may use with each other;
//! - [`object`]: payloads beside the log, in chunks, and what the log says of them;
//! - [`record`]: what a frame may hold, from discovery to group data;
//! - [`enquiry`]: what a node would answer to another, asked by a program that does not join;
//! - [`membership`] and [`group`]: the protocol messages of the two layers of views.
//!
//! `WIRE.md` at the root of the repository is the specification; `vectors/` holds golden frames that every
//! implementation reads.
#![forbid(unsafe_code)]

mod as_text;
pub mod block;
pub mod codec;
pub mod datagram;
mod display;
pub mod enquiry;
pub mod frame;
pub mod group;
mod id;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub mod json;
pub mod level;
pub mod membership;
pub mod object;
pub mod record;
pub mod stream;
mod view;

pub use block::{Block, BlockBuilder, Level};
pub use codec::{DecodeError, Reader, Wire};
pub use id::*;
pub use view::*;
