//! The transports of Antiphon: how frames and lifelines travel between processes.
//!
//! ```text
//!   driver ── send(to, class, frame) ──────►  Transport  ──► network
//!          ── lifeline(Open | Write | Reset) ►   │
//!          ◄── Inputs: frames, path troubles, lifeline events
//!          ── Connection::accepted / refused ►   │  (the core authenticates, the transport closes)
//! ```
//!
//! The core asks little of a transport: a frame may be lost, doubled or reordered, so a transport need not
//! retry and never waits. What it must do is *report truthfully*: a path trouble only if the network said so,
//! and a lifeline's FIN only if the kernel left no doubt (R9).
//!
//! - [`transport`](Transport): the interface, and what comes out of it ([`Inputs`]);
//! - [`tcp`]: one port per node for everything, IPv4 and IPv6;
//! - [`udp`]: the same, with UDP for messages where it passes;
//! - [`memory`]: nodes of one process, for tests and examples;
//! - [`lack`](Lack): what this host refuses its node, told apart from what a peer does;
//! - [`witness`]: what a node leaves to the process that started it, and how that process tells of its death
//!   (R10);
//! - [`faults`](Faults): blocked, slow and lossy paths, injected on purpose.
#![deny(unsafe_code)]

mod faults;
mod lack;
pub mod memory;
pub mod tcp;
mod transport;
pub mod udp;
pub mod witness;

pub use faults::{Fault, Faults};
pub use lack::Lack;
pub use transport::{Closing, Connection, Input, Inputs, PathStatus, Transport, TransportCounters};
