//! Every event, command, question and answer that passes between a node and the programs and people around
//! it, declared once: as a type, as JSON and as a text for people.
//!
//! ```text
//!   antiphon::ClusterEvent, antiphon::Event      what the library tells a Rust program
//!            │ antiphon-agent, one file: `told`
//!            ▼
//!   Event ── JSON ──► `antiphon node --json`, a watched console     Command ◄── JSON ── standard input
//!     └───── Display ► a person                                     Question ◄─ JSON ── a console's client
//! ```
//! - [`Event`]: what a node tells, and [`Told`]: with its time. The text for people is its
//!   [`Display`](std::fmt::Display).
//! - [`Command`]: what a program tells its node to do. [`Payload`]: a message's bytes, both ways.
//! - [`blocks`]: operations on locks, maps, counters and requests, and their replies.
//! - [`commands`]: what nodes ask each other to do, by a list;
//! - [`console`]: questions about a running node, and its answers.
//! - [`LineBuffer`]: cuts what was read into lines of bounded length.
//!
//! This crate knows nothing of nodes: a program that only reads and writes these lines needs no more than it.
//!
//! # What a new event touches
//! More than this crate: CONTRIBUTING.md has the list. If its arm in `told` is missing, no test fails, and
//! the event is told to nobody.
//!
//! Here: its variant, its text, its line in `golden/events.txt`. The tests fail without these.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod command;
pub mod commands;
pub mod console;
mod event;
mod lines;
mod mistake;
mod payload;
mod text;

pub use command::{Command, MAX_LINE_BYTES, shortened};
pub use event::{
    Bundle, Departed, Event, Message, NodeView, Part, PeerLink, Removed, Told, View, ViewMember, ViewName,
};
pub use lines::{LineBuffer, TooLong};
pub use payload::{NOTHING_BEHIND, Payload, Payloads};
pub use text::{Today, ago, now_ms, time_of_day, utc};
