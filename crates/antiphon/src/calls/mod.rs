//! Requests to members of a group, and their answers: the handles, and the task that drives them.
//!
//! ```text
//!  call ──lock──► the machine ──► Group::try_tell, try_send ─► … ─► the machine ──► handler, in a task of
//!   its own ▲                 ▲                                                                    │
//!   └── oneshot ◄─────┴── task: reads the group, receipts, deadlines, room ◄── answer ◄────┘
//! ```
//! The protocol, what holds, and what happens when members die are on the page of the machine,
//! [`antiphon_replica::calls`]. The group is the calls' own: nothing else is sent in it.
//!
//! A handler that itself calls members does so by [`Request::calls`]: such a call has the deadline of the
//! handler's request, ends with that request, and cannot wait in a circle. A handler that is cancelled is
//! dropped where it awaits.

mod handle;
mod shared;
mod task;

pub use antiphon_replica::calls::{
    Call, CallError, Config, Failure, MAX_CALL_BYTES, MAX_DEADLINE, MAX_VERB_BYTES, MAX_VERBS, Ran, Refusal,
    Replies, RequestId, Rule, Target, Why,
};

pub use handle::{AskError, Calls, CallsError, Request, Verb};
