//! What serves a node of Antiphon to other programs and to people.
//!
//! ```text
//!   antiphon (library) ──► told: the library's events as those of antiphon-api
//!                             │
//!              ┌──────────────┴──────────────┐
//!          hub: sessions of programs      console: a local socket
//!              ▲              ▲           for questions about a running node
//!          stdio: lines   socket: lines, HTTP
//!          of one program of many
//! ```
//! - [`hub`]: what sessions ask of a node, and are told: the one table of operations;
//! - [`stdio`]: a node that writes its events to standard output and takes commands on standard input;
//! - [`socket`]: sessions of other programs, at a Unix socket and a TCP port;
//! - [`access`]: what programs must show at the TCP port;
//! - `metrics`: what is counted and measured of all this;
//! - [`console`]: a socket at which a node answers what it knows, and a client for it;
//! - `ready`: whether the node may act for its cluster, and why not;
//! - `commands`: what sessions ask peers, and serve for them, by [`antiphon_commands`];
//! - [`Names`]: what incarnations are called.
//!
//! A carrier translates between [`antiphon_api`] and the library, and adds nothing.
#![forbid(unsafe_code)]
#![cfg(unix)]

pub mod access;
mod blocks;
mod commands;
pub mod console;
mod follower;
mod groups;
pub mod hub;
mod metrics;
mod names;
mod outlet;
mod pipe;
mod ready;
pub mod socket;
pub mod stdio;
#[cfg(test)]
mod testing;
mod told;

pub use blocks::GROUPS as BLOCK_GROUPS;
pub use hub::Hub;
pub use names::Names;
