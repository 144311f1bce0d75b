//! Groups of clients: many members of a group in one node, each with its own stream.
//!
//! ```text
//!  Client::send ──lock──► the machine ──► the group ─► … ─► task ──► the machine ──► a queue for each client ──► next
//!                                           ▲                                                                    │
//!                                           └────────────────── credit: what the slowest of them has taken ◄─────┘
//! ```
//! A node takes part in the group once, for all of its clients. The protocol, what holds, and what happens
//! when nodes or clients die are on the page of the machine, [`antiphon_replica::clients`]. The group is the
//! clients' own: its name begins with `clients/`, and nothing else is said in it.
//!
//! # A slow client
//! The task takes everything from the group, and gives the credit for it back when the slowest client here
//! has taken it. So the group's windows bound what waits for clients, whatever their number, and a slow
//! client holds up the clients that send to it. If a client has not taken what waits for it within
//! [`ClientsBuilder::slow_after`], it is removed, with a cause, and what waits for it is dropped.

mod handle;
mod seat;
mod shared;
mod task;

pub use antiphon_replica::clients::{
    Bundle, Client as ClientEntry, ClientId, ClientViewId, Departure, MAX_BUNDLE, MAX_CLIENTS,
    MAX_NAME_BYTES, Refusal,
};

pub use handle::{
    Client, ClientBundle, ClientEvent, ClientGroup, ClientMember, ClientMessage, ClientSendError,
    ClientSender, ClientView, ClientsBuilder, GROUPS,
};
