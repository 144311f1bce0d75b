//! Nodes that form a cluster, agree on its members, and exchange ordered messages.
//!
//! ```no_run
//! use antiphon::{Cluster, Event, Order};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::builder("shop").name("a").bind("127.0.0.1:7400").seeds(["127.0.0.1:7401"]).join().await?;
//! let mut orders = cluster.group("orders").order(Order::Total).join().await?;
//! orders.send("hello").await?; // accepted; `.delivered()` on the receipt
//! while let Some(event) = orders.next().await {
//!     match event {
//!         Event::View(view) => println!("{view}"),
//!         Event::Message(message) => println!("{}: {:?}", message.sender.name, message.payload),
//!         _ => {}
//!     }
//! }
//! cluster.leave().await?; // orderly and bounded; a plain drop looks like a lost connection
//! # Ok(())
//! # }
//! ```
//!
//! # What there is
//! - [`Cluster`]: this process as a node: the agreed [`NodeView`], why it is as it is, and how to leave.
//! - [`Group`]: a named set of nodes. Views and messages come in *one* stream, in the same order at every
//!   member.
//! - [`Receipt`]: what became of a message.
//! - [`Group::tell`]: to one member alone; [`TellReceipt`]: what became of that.
//! - [`Run`]: many small messages at a time, where they arrived: see [`Group::next_run`].
//! - [`Scope`] and [`Scopes`]: messages that need an order among themselves only, handled in parallel.
//! - [`owners`]: which members own a key, for sharding.
//! - [`Observer`]: all that a node knows, without keeping the node alive; the crate `antiphon-agent` serves
//!   it to consoles.
//! - [`discovery`]: how nodes find each other, while that may change; [`Locator`]: a small server that tells
//!   newcomers where the others are.
//! - `calls`, with the feature `blocks`: requests to one, several or all members of a group, with answers.
//! - `clients`, with the feature `blocks`: groups of clients of nodes, many in one node: users of a web
//!   server, programs beside an agent.
//! - `replicated`, with the feature `blocks`: state that all members have a copy of: maps with watches, locks
//!   and leaders with fencing tokens, counters, machines of your own. It brings some twenty packages, serde
//!   among them.
//! - `config`, with the feature of that name: a node's settings from a TOML file and the environment.
//! - [`memory`]: a network inside the process, for tests and examples.
//!
//! # What to rely on
//! A message is delivered in the view it was sent in, or nowhere. Members that go from one view to the next
//! together have delivered the same messages between them. A component without a majority of the last primary
//! view says so, and does nothing that the primary could contradict.
//!
//! # Values as text and as JSON
//! What a person would print has `Display`. With the feature `serde` it can also be written by serde, and
//! read where nothing is lost on the way:
//! - An identity is its text; what has a name ([`Order`], [`Policy`], …) is the name. Both are read.
//! - A time is a number of milliseconds, in a field that ends in `_ms`.
//! - [`ClusterEvent`], [`Event`] and views are the objects that `antiphon node --json` prints, declared by
//!   the crate `antiphon-api`. An event does not know its group: `Event::told` says that, too. A node that no
//!   view here names is called by the first digits of its incarnation, where the program remembers names.
//! - A [`NodeView`] has beside that what the program leaves out: `lineage`, `merged`, `wire_level`.
//! - An [`Inspection`], a [`Status`] and a [`WhyReport`] are what a console's answers are put together from.
//!   They name nodes by incarnation, and have fields of the same names as those answers, where they say the
//!   same.
//! - Errors, causes and evidence are sentences: written, and not read.
//!
//! # Processes
//! A node holds connections; their end proves that the process is gone. They are closed on exec and must not
//! survive the process in another way. So after joining, do not fork without exec, and do not close foreign
//! file descriptors.
#![forbid(unsafe_code)]

#[cfg(feature = "blocks")]
pub mod calls;
#[cfg(feature = "blocks")]
pub mod clients;
mod cluster;
#[cfg(feature = "config")]
pub mod config;
pub mod discovery;
#[cfg(feature = "blocks")]
mod driven;
mod driver;
mod error;
mod event;
mod files;
mod group;
mod host;
mod lacks;
mod locator;
mod owners;
#[cfg(feature = "blocks")]
pub mod replicated;
#[cfg(feature = "testkit")]
pub mod testkit;
#[cfg(feature = "blocks")]
mod typed;
pub mod witness;

pub use antiphon_core::inspection;
pub use antiphon_core::wire::{
    Accusation, Cause, Departure, Evidence, GroupViewId, IdError, Incarnation, Lineage, Member, NodeView,
    NodeViewId, Subview, ViewId, ViewStamp,
};
pub use antiphon_core::{
    Abandoned, Alone, Awaits, ClusterKey, ConfigError, Departed, Dissemination, EngineKind, GroupOptions,
    Heard, Inspection, LinkCause, LinkStatus, MAX_PAYLOAD_BYTES, MAX_TELL_BYTES, NameError, Order, Outcome,
    Parting, PathTrouble, PeerLinks, PeerPath, Policy, Profile, Recovery, RecoveryError, TELL_CREDIT_BYTES,
    TELL_OVERHEAD, TellError, TellOutcome, Ticket, TotalEngine, ViewChange, WhyEntry, WhyReport,
};
pub use antiphon_net::memory;
pub use antiphon_net::{Fault, Lack, PathStatus, TransportCounters};

pub use cluster::{
    Builder, Cluster, ClusterEvents, Examined, GroupStatus, Guest, Interface, MAX_GUESTS, MULTICAST_PORT,
    Multicast, Noted, Observer, Phase, Settings, Status, Transport,
};
pub use error::{Error, SendError};
#[doc(hidden)]
pub use event::rejection;
pub use event::{ClusterEvent, Event, Message, Messages, Part, Scope, View};
pub use files::{FILES_OF_A_PROCESS, files_of_a_node};
pub use group::{
    Group, GroupBuilder, GroupSender, Progress, Receipt, Run, SafeReceipt, ScopeRun, Scopes, TellReceipt,
    Turn,
};
pub use locator::{Located, Locator, LocatorBuilder, LocatorEvent};
pub use owners::{Moved, owners};
#[cfg(feature = "blocks")]
pub use replicated::{Counters, Locks, Map, Replicated};
