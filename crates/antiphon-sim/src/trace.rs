//! The record of a simulation: what every application saw, and what the simulator itself did.
//!
//! The checkers read this and nothing else. It has three kinds of facts:
//! - what the applications saw and did, and the events of their nodes ([`Seen`], [`Heard`]);
//! - what the simulator did, and what the plan promises (starts, kills, cuts, pauses; the fields of [`Trace`]
//!   that say what may not happen under this plan, such as [`Trace::never_apart`]);
//! - six things from the *inside* of the nodes, since no application can tell them ([`Inside`], [`Hop`],
//!   [`Pass`]). *Which members voted for which view*: what applications see does not tell a rightful decision
//!   from a minority's. *The ways of frames that are handed on*: no application sees a frame that circles.
//!   *Which member lacked a message that was delivered as safe*: a member that is cut off or dead delivers no
//!   more what it held. *What was held and could have been delivered*: an application cannot tell a message
//!   that is kept from it from a message on its way. *Which member has which view and has removed which*: a
//!   leader that dies may have told only the member that it removed. *How much memory a group takes*.
//!
//! `check/app` reads the first kind and some of the second; `check/inside` reads all.

mod calls;
mod clients;

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_core::wire::{GroupId, GroupViewId, Incarnation, Lineage, Member, NodeView, Subview, ViewId};
use antiphon_core::{
    BallotNote, GroupOptions, GroupView, LinkCause, Outcome, PeerLinks, PeerPath, SendError, TellOutcome,
};
use antiphon_replica::locks::{self, Owner, Token};
use antiphon_replica::{Ack, At, Failure, Standing, counters, map};
use bytes::Bytes;

use crate::agenda::Micros;
use crate::machine::{Reply, Step, What};
use crate::plan::Faulty;

pub use calls::CallDeed;
pub use clients::ClientDeed;

/// A place where a node may run: an address and a name. One process after another may run there.
pub type Slot = usize;
/// One start of one operating-system process. Never reused.
pub type ProcessId = usize;
/// The group's place in [`crate::Plan::groups`].
pub type GroupIndex = usize;

/// Everything that happened, in order.
#[derive(Debug, Default)]
pub struct Trace {
    /// The lines.
    pub lines: Vec<Line>,
    /// The addresses of the configured seeds: the acceptors of the founding slot.
    pub seeds: Vec<SocketAddr>,
    /// How many nodes must be there to found, if there are no seeds.
    pub expect: Option<usize>,
    /// Whether some link worked between any two hosts at any time, and nothing else happened to them.
    pub never_apart: bool,
    /// If faults hit some hosts alone: which.
    pub faulty: Option<Faulty>,
    /// Whether, between any two hosts at any time, the direct paths work or those over one host between
    /// them, and nothing else happens.
    pub bridged: bool,
    /// In views of more members than this, if there is such a bound, nothing is passed on: not all are
    /// neighbours there.
    pub passes_on_up_to: Option<usize>,
    /// How long a pair may need at most until it is relayed, or removed: the profile's bounds together.
    pub pair_patience: Micros,
    /// The longest time for which any member may be said to have been silent: the longest patience that is
    /// learned, and a look at the clock later.
    pub longest_silence: Micros,
    /// If nothing but multicast can fail: how long a message may take once its sender knows which members
    /// hear it.
    pub prompt: Option<Micros>,
    /// If processes start and end and nothing else happens: how long a group may take for the view that
    /// follows a node view.
    pub follows_within: Option<Micros>,
    /// If all paths work: from then on no frame may go through another node, whatever happened to processors
    /// before.
    pub nothing_passes_from: Option<Micros>,
    /// If nodes come and leave in order, and nothing else happens: how long after it was asked one may still
    /// be in a view.
    pub leaves_within: Option<Micros>,
    /// How long a node that leaves waits for the others at most.
    pub leave_patience: Micros,
    /// The nodes' heartbeat.
    pub heartbeat: Micros,
    /// Places whose nodes do without the lease of the primary.
    pub unleased: Vec<Slot>,
    /// Whether every component goes on (policy `any`).
    pub any: bool,
    /// How many handlers of calls a member runs at once, for each depth.
    pub handlers_at_once: usize,
    /// The frames that were sent to be handed on, in order.
    pub hops: Vec<Hop>,
    /// The frames inside of others, on their way through another node, in order.
    pub passes: Vec<Pass>,
    /// What the run promised at its end, if it ran a liveness phase.
    pub settled: Settled,
    /// Since when nothing changes any more: all faults were taken back, all are in one view, and what was
    /// sent then is delivered.
    pub rests_since: Option<Micros>,
    /// When the run ended, which may be long after the last line.
    pub ended: Micros,
    /// Since when all replicas serve and nothing disturbs them: what is asked from then on is answered well.
    pub asked_at_rest: Option<Micros>,
}

/// A frame that its receiver hands on left a process.
#[derive(Debug, Clone, Copy)]
pub struct Hop {
    /// When.
    pub at: Micros,
    /// Which process sent it.
    pub by: ProcessId,
    /// To where.
    pub to: Slot,
    /// The incarnation that sealed it, and its number among that incarnation's frames.
    pub frame: (Incarnation, u64),
    /// The group of its messages.
    pub group: GroupId,
    /// Their view.
    pub view: GroupViewId,
}

/// A frame inside of another one left a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// When.
    pub at: Micros,
    /// Which process sent it.
    pub by: ProcessId,
    /// As which incarnation: what this one did, the next one does not know.
    pub incarnation: Incarnation,
    /// To where.
    pub to: Slot,
    /// The members that it is to be passed on to; empty if it was.
    pub targets: Vec<Incarnation>,
    /// The kind of the frame inside, the incarnation that sealed it, and its number among that incarnation's
    /// frames.
    pub frame: (u8, Incarnation, u64),
    /// Whether there is another one inside of that.
    pub nested: bool,
}

/// Whether the run ended with a cluster at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Settled {
    /// Not asked for: only safety can be checked.
    #[default]
    Unknown,
    /// All faults were taken back, and the cluster came to rest.
    AtRest,
}

/// Something that happened to a process.
#[derive(Debug, Clone)]
pub struct Line {
    /// When.
    pub at: Micros,
    /// The process that gets it.
    pub process: ProcessId,
    /// What.
    pub what: Seen,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Seen {
    /// The simulator started the process. `member` is how it should appear in views, but for the
    /// incarnation.
    Started {
        /// Where.
        slot: Slot,
        /// Name, address, metadata and weight as configured.
        member: Member,
        /// Whether it was told another cluster's name.
        foreign: bool,
    },
    /// The simulator ended the process.
    Ended(Ending),
    /// The simulator did something to it, or to the network around it; for people.
    Fault(String),
    /// What leaves the first host does not reach the second from here on, or does again; on one of its links
    /// at least.
    Cut {
        /// From where.
        from: Slot,
        /// To where.
        to: Slot,
        /// Whether it is cut.
        cut: bool,
    },
    /// The processes of this host were stopped or slowed down, or its paths held things back, until then.
    Disturbed {
        /// Where.
        slot: Slot,
        /// Until when at most.
        until: Micros,
        /// Whether they were stopped, and not only slow.
        stopped: bool,
    },
    /// The nodes that the node at this place, or the next one there, is to ask from here on.
    Told {
        /// Where.
        slot: Slot,
        /// The nodes.
        whom: Vec<Slot>,
    },
    /// A locator began to listen at this place, or ended.
    Locator {
        /// Where.
        slot: Slot,
        /// Whether it is there.
        up: bool,
    },
    /// From here on the network loses much everywhere, or does not any more.
    Rough(bool),
    /// The application asked to leave the cluster.
    AskedToLeave,
    /// The application joined a group.
    AskedToJoin {
        /// Which.
        group: GroupIndex,
        /// Its name.
        name: String,
        /// With these options.
        options: GroupOptions,
    },
    /// The application asked to leave a group.
    AskedToLeaveGroup(GroupIndex),
    /// The application sent a message: the group's outbox took it.
    Sent {
        /// To which group.
        group: GroupIndex,
        /// The number the outbox gave it.
        ticket: u64,
        /// A hash of its bytes.
        payload: u64,
        /// Whether it is to be safe.
        safe: bool,
        /// Its scope, in a scoped group.
        scope: Option<u32>,
        /// Whether it is an object: messages pass it.
        object: bool,
    },
    /// The group's outbox refused a message.
    NotSent {
        /// To which group.
        group: GroupIndex,
        /// Why.
        error: SendError,
    },
    /// The application told a member of a group something: the node took it.
    Tells {
        /// Of which group.
        group: GroupIndex,
        /// The receiver.
        to: Incarnation,
        /// The number that the node gave it.
        ticket: u64,
        /// A hash of its bytes.
        payload: u64,
    },
    /// [`antiphon_core::Event::Incarnation`].
    Incarnation(Incarnation),
    /// [`antiphon_core::Event::Forming`].
    Forming(Vec<SocketAddr>),
    /// [`antiphon_core::Event::NodeView`].
    NodeView(Arc<NodeView>),
    /// [`antiphon_core::Event::Merge`].
    Merge(Vec<Subview>),
    /// [`antiphon_core::Event::Refused`].
    Refused {
        /// Why.
        reason: String,
        /// Whether trying again is pointless.
        fatal: bool,
    },
    /// [`antiphon_core::Event::Expelled`].
    Expelled(String),
    /// [`antiphon_core::Event::Link`].
    Link {
        /// As they are now.
        links: PeerLinks,
        /// Which changed.
        number: usize,
        /// What happened to it.
        cause: LinkCause,
    },
    /// [`antiphon_core::Event::Starved`]: how long it did not run.
    Starved(Micros),
    /// [`antiphon_core::Event::Lease`]: whether it believes in its view.
    Lease(bool),
    /// [`antiphon_core::Event::Path`].
    Path(PeerPath),
    /// [`antiphon_core::Event::Multicast`].
    Multicast {
        /// The peer.
        peer: Incarnation,
        /// Whether it hears.
        hears: bool,
    },
    /// An operator had it go on alone, from this view of this lineage.
    Recovered(Lineage, ViewId),
    /// [`antiphon_core::Event::Left`].
    Left,
    /// From here on the application takes what it is given, or takes nothing.
    Reads(bool),
    /// An event of a group.
    Group(GroupIndex, Heard),
    /// What a replica over a group did, or its clients.
    Replica(GroupIndex, Deed),
    /// What was called in a group, and what became of it.
    Call(GroupIndex, CallDeed),
    /// What clients of a member did in a group, or were told.
    Client(GroupIndex, ClientDeed),
    /// What no application sees.
    Inside(Inside),
    /// A promise of the core to its driver was broken; the text says which.
    Contract(String),
}

/// What a node did or has that no application sees. Only the checkers in `check/inside` read it.
#[derive(Debug, Clone)]
pub enum Inside {
    /// The process voted for a view, or decided it.
    Ballot(BallotNote),
    /// A group took more memory than before: in the core (no sender), or of one sender's messages that the
    /// application has not taken.
    Memory {
        /// Which group.
        group: GroupIndex,
        /// The sender of the messages.
        sender: Option<Incarnation>,
        /// How many bytes.
        held: usize,
        /// The most there may be.
        bound: usize,
    },
    /// The process was given a safe message before any transitional notice, and this member of the view, at
    /// the time of its death or now, did not hold it.
    Unheld {
        /// Which group.
        group: GroupIndex,
        /// The message's sender.
        sender: Incarnation,
        /// Its number.
        seq: u64,
        /// The member that lacks it.
        lacks: Incarnation,
    },
    /// The process holds a message that nothing keeps it from delivering, and has not delivered it.
    Withheld {
        /// Which group.
        group: GroupIndex,
        /// The message's sender.
        sender: Incarnation,
        /// Its number.
        seq: u64,
    },
    /// What the process's node has of a group, which its application may not know: another view than before,
    /// or a removal.
    Roll {
        /// Which group.
        group: GroupIndex,
        /// The view that is installed.
        view: GroupViewId,
        /// Its members.
        members: Vec<Incarnation>,
        /// The members of it that the next view will not have.
        removed: Vec<Incarnation>,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// kill −9: its kernel goes on.
    Killed,
    /// The whole host lost power: nothing more comes from it, not even a FIN.
    PowerLost,
    /// It left in order and exited.
    Exited,
}

/// What a group told its application; [`antiphon_core::GroupEvent`] with the payload as a hash.
#[derive(Debug, Clone)]
pub enum Heard {
    /// A new view.
    View(Arc<GroupView>),
    /// What follows was completed by a flush among these.
    Transitional(Vec<Incarnation>),
    /// A message.
    Message(Delivery),
    /// A direct message.
    Told(Delivery),
    /// What became of direct messages.
    TellReceipts {
        /// The receiver.
        to: Incarnation,
        /// The first one's ticket.
        first: u64,
        /// How many.
        count: u64,
        /// What.
        outcome: TellOutcome,
    },
    /// A member may be told more.
    TellWritable(Incarnation),
    /// The primary was lost.
    Suspended,
    /// The state held is void.
    Resync(String),
    /// What became of messages.
    Receipts {
        /// The first one's ticket.
        first: u64,
        /// How many.
        count: u64,
        /// What.
        outcome: Outcome,
    },
    /// Messages are taken again.
    Writable,
    /// The group refused this member.
    Refused(String),
    /// This member left in order.
    Left,
}

/// What a replica did, or its clients. Each request has a number that no other one of the run has.
#[derive(Debug, Clone)]
pub enum Deed {
    /// The replica goes by this incarnation from here on. Its node may have another one already.
    Is(Incarnation),
    /// A client gave a command, and the replica took it.
    Writes {
        /// The request.
        op: u64,
        /// When it wants to be answered.
        ack: Ack,
        /// The command.
        what: What,
    },
    /// A client asked to read all that was answered anywhere, and the replica took it.
    WantsLatest {
        /// The request.
        op: u64,
    },
    /// A write was answered.
    Written {
        /// The request.
        op: u64,
        /// With what.
        outcome: Result<(At, Reply), Failure>,
    },
    /// A read of all that was answered has no answer.
    Unread {
        /// The request.
        op: u64,
        /// Why.
        failure: Failure,
    },
    /// A client read the state as it is here.
    Reads {
        /// The request, if it is the answer to one.
        op: Option<u64>,
        /// The name of the state.
        state: u64,
        /// The place of its last step.
        index: u64,
        /// What it saw.
        saw: Box<Saw>,
    },
    /// The machine made a step; and whether any reader is shown it.
    Steps(At, bool, Box<Step>),
    /// The replica says which members there are, and which of them have the state.
    Members(Vec<(Incarnation, bool)>),
    /// What it is to the state, whenever that is new.
    Stands(Standing),
    /// It says what must not happen while all keep the rules.
    Wrong(String),
    /// The application wants to leave the group.
    WantsToLeave,
    /// It leaves the group, for this reason.
    Leaves(String),
    /// A client does what only the holder of an exclusive lock may do.
    Uses {
        /// The lock.
        lock: locks::Name,
        /// The token with which it was granted.
        token: Token,
    },
}

/// What a client saw of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saw {
    /// An entry of the map.
    pub entry: (Bytes, Option<map::Entry>),
    /// A counter.
    pub counter: (counters::Name, Option<counters::Counter>),
    /// The holders of a lock.
    pub lock: (locks::Name, Vec<(Token, Owner)>),
}

/// A message as it was handed to an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The view named on it.
    pub view: GroupViewId,
    /// The sender named on it.
    pub sender: Incarnation,
    /// The sender's number named on it.
    pub seq: u64,
    /// How many of the sender's numbers it takes, up to its own number.
    pub numbers: u64,
    /// A hash of its bytes.
    pub payload: u64,
    /// Whether it was said to be safe.
    pub safe: bool,
    /// The scope named on it.
    pub scope: Option<u32>,
    /// The ticket named on it.
    pub ticket: Option<u64>,
}

impl Trace {
    /// Adds a line.
    pub fn add(&mut self, at: Micros, process: ProcessId, what: Seen) {
        self.lines.push(Line { at, process, what });
    }
}

/// A fast 64-bit hash, for payloads and for the digest of a run. Not for adversaries.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    const M: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = seed ^ (bytes.len() as u64).wrapping_mul(M);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        state = (state ^ word).wrapping_mul(M).rotate_left(29);
    }
    for byte in chunks.remainder() {
        state = (state ^ u64::from(*byte)).wrapping_mul(M).rotate_left(29);
    }
    state ^ (state >> 31)
}
