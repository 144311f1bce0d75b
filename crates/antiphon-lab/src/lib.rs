//! Internal to Antiphon: nodes as processes, what is done to them, and the judge of what they did.
//!
//! ```text
//!  story ──┬── Process "a" ── antiphon node --json ──┐ stdout, one JSON object a line
//!          ├── Process "b" ── …                      ├──► Stage: the Trace (what every node said, and when)
//!          ├── Process "c" ── …                      ┘        │
//!          ├── Process "d" ── antiphon agent --json ─ stdout ─┤
//!          │      └──────────── its program ──────── socket ──┘
//!          └── Network (namespaces, bridge, nft)              ▼
//!              Load (members send, all the time)         judge: GUARANTEES.md, from outside
//! ```
//! - [`Child`]: a process that speaks in lines; [`Process`]: one that speaks as a node does, on a [`Stage`];
//!   an agent does so by a program that is connected to it.
//! - [`Network`]: hosts as network namespaces, with cables to cut and firewalls that refuse.
//! - [`Load`]: members send, so many or all they can.
//! - [`Calls`]: members call each other, and answer.
//! - [`judge()`]: reads a [`Trace`] and names every guarantee that was broken, by the rules of
//!   [`antiphon_judge`].
//!
//! The demo, the benchmarks and the stories with real processes use it. It knows nothing of the protocol: it
//! reads `antiphon_api::Event` and writes `antiphon_api::Command`.
#![forbid(unsafe_code)]

mod calls;
mod child;
mod client;
mod judge;
mod load;
mod mouth;
mod network;
mod ports;
mod program;
mod stage;
mod trace;

pub use antiphon_judge::Order;
pub use calls::Calls;
pub use child::{Child, Heard};
pub use judge::{Finding, Rules, Wrong, judge};
pub use load::Load;
pub use network::{Network, Refusal};
pub use ports::free_addrs;
pub use program::{Build, program};
pub use rustix::process::Signal;
pub use stage::{Process, Stage};
pub use trace::{Called, Run, Said, Tells, Trace, fingerprint, text_of};
