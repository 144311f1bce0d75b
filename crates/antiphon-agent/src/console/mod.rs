//! The console: a local socket at which a running node answers what it knows, for `antiphon members`, `why`,
//! `view` and `doctor`, and takes an operator's word, `antiphon recover`.
//!
//! ```text
//!   antiphon members ── {"v":1,"ask":"members"} ──►  socket ── server task ── command ──► driver task
//!                    ◄── {"answer":"hello",…}        (0600, in a directory of 0700)        │ examines the core, changes nothing
//!                    ◄── {"answer":"members",…}      ◄─────────────────────────────────────┘
//!   antiphon view --watch: answers go on coming until either side ends
//! ```
//! - [`place`]: where sockets are, and which of them are alive;
//! - [`Console`]: serves one node; [`Client`]: asks one; questions and answers are those of
//!   [`antiphon_api::console`];
//! - `answers`: from what a node knows to answers; `recovering`: the operator's way out.
//!
//! # Invariants
//! - Questions change nothing at the node, except `recover`: the node then goes on alone (R11), with the
//!   consequences that it has shown to this client before. A client that may connect could just as well end
//!   the process.
//! - Everything is bounded: clients at a time ([`MAX_CLIENTS`](antiphon_api::console::MAX_CLIENTS)), the
//!   bytes of a question and of an answer, the time in which a client may stay silent or not read. The node
//!   drops a client that is too slow, and never waits for a client.
//! - The node answers only the user who runs it, and root: the socket and the directory of the default place
//!   are closed to others, and the node checks the credentials of the other end as well.
//! - A node that ends removes the socket file that it made. A killed process leaves its file behind. In the
//!   default place the next process that looks there removes it, if nobody listens at it and the process in
//!   its name is gone; at a given path the next node that is to listen there replaces it.
//!
//! # What happens when…
//! - *the node ends*: a watching client gets the events that led there, `end`, and the end of the connection;
//!   other clients get only the end of the connection. A node that leaves in order waits for that, but not
//!   for long. A connection that ends without `end` was cut;
//! - *a client dies*: its connection ends, and with it the task that served it;
//! - *the directory cannot be used* (not ours, open to others, not writable): with the default place the node
//!   runs without a console and says so in its log; with a path that was asked for, it does not start.

mod answers;
mod client;
pub mod place;
mod recovering;
mod server;

pub use client::{Answered, Client, ClientError};
pub(crate) use place::{Socket, listen_at};
pub use server::Console;
