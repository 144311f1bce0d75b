//! A node between the library and the standard input and output of its process: JSON lines for a program,
//! text for a person.
//!
//! ```text
//!  stdin thread ─► commands ─► Cluster, GroupSender
//!                     │ error, why
//!                     ▼
//!  Cluster events ─► queue ─► stdout thread          the order of lines: node events among themselves, each group's
//!  Group events  ──►   (bounded)                     events among themselves, `left` last
//! ```
//! - [`Session`]: the tasks of a running node, and its own session at the [`Hub`](crate::Hub); [`Printer`]:
//!   writes events in the form that was asked for, and nothing behind the last line;
//! - `files`: sends the files that lines name, also those that were taken before the node leaves;
//! - [`stdin`], [`stdout`]: the threads that read and write, each behind a bounded queue;
//! - [`Spool`]: payloads that are too large for a line.
//!
//! # What happens when…
//! - *stdin ends*: nothing more is read, and the node goes on;
//! - *the reader of stdout has gone*: [`Printer::closed`] returns, and the program lets the node leave in
//!   order;
//! - *the reader of stdout is slow*: the queue fills, then the groups' credit, then their senders wait; views
//!   and votes go on. After `slow_after` the groups remove this member (`resync`).

mod fates;
mod files;
mod printer;
mod roster;
mod session;
mod spool;
pub mod stdin;
pub mod stdout;
#[cfg(test)]
mod tells;

pub use printer::Printer;
pub use session::{Ended, Groups, Session};
pub use spool::Spool;
pub(crate) use spool::check_file;
