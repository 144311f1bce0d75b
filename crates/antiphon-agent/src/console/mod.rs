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
//! - A question changes nothing at the node, but for one: `recover` has it go on alone (R11), as the node had
//!   shown it to the one that asks. Whoever may connect could end the process just as well.
//! - Everything is bounded: clients at a time ([`MAX_CLIENTS`](antiphon_api::console::MAX_CLIENTS)), bytes of
//!   a question, of an answer, the time a client may stay silent or not read. A client that is too slow is
//!   dropped; the node never waits for one.
//! - Only the user who runs the node, and root, is answered: the socket and the directory of the default
//!   place are closed to others, and the credentials of the other end are checked as well.
//! - A socket file is removed by the node that made it, when it ends; one left behind by a killed process is
//!   removed by whoever finds that nobody listens and that the process in its name is gone, and one at a
//!   given path by the next node that is to be there.
//!
//! # What happens when…
//! - *the node ends*: who watches gets the events that led there, `end`, and the end of the connection,
//!   others the latter alone; a node that leaves in order waits for that, but not for long. A connection that
//!   ends without `end` was cut;
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
