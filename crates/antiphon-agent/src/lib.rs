//! What serves a node of Antiphon to other programs and to people.
//!
//! ```text
//!   antiphon (library) ──► told: the library's events as those of antiphon-api
//!                             │
//!              ┌──────────────┴──────────────┐
//!          stdio: JSON lines, text       console: a local socket
//!          of one program or person      for questions about a running node
//! ```
//! - [`stdio`]: a node whose events go to standard output, and that takes commands on standard input;
//! - [`console`]: a socket at which a node answers what it knows, and a client for it;
//! - [`Names`]: what incarnations are called.
//!
//! A carrier translates between [`antiphon_api`] and the library, and adds nothing.
#![forbid(unsafe_code)]
#![cfg(unix)]

pub mod console;
mod names;
pub mod stdio;
mod told;

pub use names::Names;
