//! What the core tells the application.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_wire::{
    Accusation, Block, Cause, GroupId, GroupViewId, Incarnation, Level, Member, NodeView, Subview, ViewId,
};
use bytes::Bytes;

use crate::{Order, PathTrouble};

/// Something the application should know. Per group, views and messages come in one sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The node goes by this incarnation from here on: emitted first at its start, and again after each
    /// expulsion or merge. Everything that belonged to the previous incarnation is over.
    Incarnation(Incarnation),
    /// No cluster yet: these seeds and locators have not answered, or not enough nodes are ready to found.
    /// Said again when something of it changes, and every five seconds.
    Forming {
        /// The seeds and locators missed.
        missing: Vec<SocketAddr>,
        /// Of those, the ones that take a connection and end it as soon as this node has spoken, again and
        /// again: they do not accept its frames. Most likely the key or the cluster's name differs; their
        /// logs say which.
        rejecting: Vec<SocketAddr>,
        /// What ends this state.
        awaits: Awaits,
    },
    /// This node has founded a cluster of itself alone, because its settings say so. [`Event::NodeView`]
    /// follows.
    Alone {
        /// Which of them.
        reason: Alone,
    },
    /// [`Policy::Any`](crate::Policy::Any): components that went on apart meet in the view that follows at
    /// once.
    Merge {
        /// Who comes from where: first those who were members of this lineage already, with their view
        /// before; then those of each lineage that gave way, by the last primary view that they had installed
        /// there. All by their incarnations in the view that follows.
        subviews: Vec<Subview>,
    },
    /// A node view was installed, primary or not.
    NodeView(Arc<NodeView>),
    /// The cluster, or a peer on the way to it, refused this node. Unless it says `fatal`, the node goes on
    /// trying.
    Refused {
        /// Which side must change what.
        reason: String,
        /// Whether trying again is pointless until the configuration changes.
        fatal: bool,
    },
    /// This incarnation was removed from the cluster while it was alive (R8). With `Config::rejoin` the node
    /// joins again as a fresh incarnation; each of its groups then starts with [`GroupEvent::Resync`].
    Expelled {
        /// Why, and who said so.
        cause: String,
    },
    /// This node believes in its primary view, or does not for now: no quorum of it has answered for so long
    /// that the others may have gone on without this node
    /// ([`Config::primary_lease`](crate::Config::primary_lease)). Each incarnation begins without, and is
    /// told a moment after its first view that it has it. Without it nothing is delivered, and what is sent
    /// waits. No view changes by it.
    Lease {
        /// Whether it believes.
        held: bool,
    },
    /// A link to a peer with several addresses went up or down, or another one is used now. No view changes
    /// by it.
    Link {
        /// The peer's links as they are now.
        links: PeerLinks,
        /// Which of them changed, from 0.
        number: usize,
        /// What happened to it.
        cause: LinkCause,
    },
    /// This node itself did not run for much of the last time: it was stopped, or got too little processor.
    /// It accuses nobody for what it missed; but others may miss it.
    Starved {
        /// For so long it did not run although something was to be done.
        missed: Duration,
        /// In so much time.
        within: Duration,
    },
    /// The direct path to a member is dead, and what is sent to it goes through another one; or it goes
    /// directly again, or through yet another one. No view changes by it.
    Path(PeerPath),
    /// A peer hears this node's multicast now, or does not (any more) and is sent to directly. Said of each
    /// peer when it is known, and again when it changes.
    Multicast {
        /// The peer.
        peer: Incarnation,
        /// Whether it hears.
        hears: bool,
    },
    /// The node left in order; nothing follows.
    Left,
    /// Of one group.
    Group(GroupHandle, GroupEvent),
}

/// The paths between this node and another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PeerPath {
    /// The member.
    pub peer: Incarnation,
    /// The member that passes on what this node sends to it; `None`: nobody, it goes directly.
    pub sends_through: Option<Incarnation>,
    /// The member that passed on what was heard of it last, if any did lately.
    pub heard_through: Option<Incarnation>,
    /// Whether this node hears it directly.
    pub hears_directly: bool,
    /// Whether it hears this node directly, as it said last.
    pub heard_directly: bool,
}

/// What a node without a view waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Awaits {
    /// A cluster to join; or, if there is none, this many nodes that may found one.
    Founders {
        /// How many are there, this one included.
        present: usize,
        /// How many are needed.
        needed: usize,
    },
    /// A cluster to join: this node founds none. It is not among its seeds, its seeds name nobody else while
    /// it looks for others at run time, or it was a member before.
    Cluster,
}

/// Why a node founded a cluster of itself alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Alone {
    /// [`Config::found`](crate::Config::found), or a [`Config::expect`](crate::Config::expect) of 1.
    Told,
    /// There is nobody to ask: the seeds name at most this node itself, and nobody is looked for at run time.
    NobodyElse,
    /// [`Policy::Any`](crate::Policy::Any): it was a member, is none any more, and hears of nobody who is.
    NobodyLeft,
}

impl fmt::Display for Awaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Awaits::Founders { present, needed } if present < needed => {
                write!(
                    f,
                    "{present} of {needed} nodes are here that it takes to found a cluster"
                )
            }
            Awaits::Founders { .. } => f.write_str("enough nodes are here to found a cluster"),
            Awaits::Cluster => f.write_str("looking for a cluster to join; this node founds none"),
        }
    }
}

/// By which setting.
impl fmt::Display for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Alone::Told => "--found or --expect 1 is given",
            Alone::NobodyElse => {
                "no seeds but itself, no other source of addresses and no --expect are given"
            }
            Alone::NobodyLeft => "it was a member, hears of nobody who is, and the policy is any",
        })
    }
}

impl fmt::Display for LinkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.addr, if self.up { "" } else { " (down)" })
    }
}

/// `10.0.0.2:7400 (down), [fd00::2]:7400, in use: 1`.
impl fmt::Display for PeerLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.links.iter().try_for_each(|link| write!(f, "{link}, "))?;
        write!(f, "in use: {}", self.in_use)
    }
}

impl fmt::Display for LinkCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkCause::Works => f.write_str("works"),
            LinkCause::Silent => f.write_str("silent"),
            LinkCause::Trouble(trouble) => trouble.fmt(f),
            LinkCause::LastHeard => f.write_str("last heard"),
        }
    }
}

antiphon_wire::written_as_text!(Alone, LinkCause);

/// `1f3a9c20, sent to through 5b6c7d8e`.
impl fmt::Display for PeerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.peer.short())?;
        match self.sends_through {
            Some(through) => write!(f, ", sent to through {}", through.short()),
            None => f.write_str(", sent to directly"),
        }
    }
}

/// The links to one peer, by number: link j is the peer's j-th address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PeerLinks {
    /// The peer.
    pub peer: Incarnation,
    /// Its links, best first.
    pub links: Vec<LinkStatus>,
    /// The number of the one that this node sends on: the first that is up; if none is, the one heard of
    /// last.
    pub in_use: usize,
}

/// One link to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LinkStatus {
    /// The peer's address.
    pub addr: SocketAddr,
    /// Whether what this node sends there arrives.
    pub up: bool,
}

/// What happened to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkCause {
    /// It works: it was acknowledged for long enough to be used, at first or after it had failed.
    Works,
    /// It failed: others of the peer's links were acknowledged, and this one was not.
    Silent,
    /// It failed: the network said so.
    Trouble(PathTrouble),
    /// None is up, and this one was acknowledged last.
    LastHeard,
}

/// This node's handle for a group it joined; stays the same across incarnations and resyncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupHandle(pub u32);

/// This node's number for a message it sent to a group, in the order of sending, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What happened in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupEvent {
    /// A new view: what follows is delivered in it.
    View(Arc<GroupView>),
    /// What follows until the next view was completed by a flush: it is held by these members, not by all of
    /// the view's (R17).
    Transitional {
        /// The members of the view that take part in the flush.
        members: Vec<Incarnation>,
    },
    /// Consecutive messages of one sender, in the group's order.
    Messages(Messages),
    /// The primary was lost: nothing is delivered and nothing can be sent until the next event of another
    /// kind.
    Suspended,
    /// The node is back as a fresh incarnation, or was removed from the group alone: the state it held is
    /// void, and the next view is its first. `cause` says which.
    Resync {
        /// Why.
        cause: String,
    },
    /// What became of messages whose sending was pending when the primary was lost or this member removed.
    Receipts {
        /// The first of them.
        first: Ticket,
        /// How many, with consecutive tickets.
        count: u64,
        /// What became of them.
        outcome: Outcome,
    },
    /// Direct messages of one member to this one, in the order in which they were told. Each stays counted
    /// against its sender until [`Node::told_consumed`](crate::Node::told_consumed).
    Told(Messages),
    /// What became of direct messages of this node. Each has one receipt.
    TellReceipts {
        /// Their receiver.
        to: Incarnation,
        /// The first of them.
        first: Ticket,
        /// How many, with consecutive tickets.
        count: u64,
        /// What became of them.
        outcome: TellOutcome,
    },
    /// This member may be told more again after [`TellError::Full`]. It does not come if the member leaves
    /// the view first.
    TellWritable {
        /// Which.
        to: Incarnation,
    },
    /// The group would take messages again after [`SendError::Full`].
    Writable,
    /// All other members have so much of an object that this node sends. Told a few times for each.
    Progress {
        /// Which.
        ticket: Ticket,
        /// Bytes that all of them have.
        bytes: u64,
        /// Its bytes.
        length: u64,
    },
    /// The group refused this member: its options differ, or it was removed for cause.
    Refused {
        /// Both sides of the difference.
        reason: String,
    },
    /// This member left the group in order; nothing follows.
    Left,
}

/// Consecutive messages of one sender as delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Messages {
    /// The view they were sent and are delivered in.
    pub view: GroupViewId,
    /// Who sent them.
    pub sender: Incarnation,
    /// The number of the first; of a large message, which travels in pieces that are numbered, that of its
    /// last piece.
    pub first: u64,
    /// What they say. Never empty.
    pub block: Block,
    /// The first one's ticket if this node sent them; the others' follow it.
    pub ticket: Option<Ticket>,
}

impl Messages {
    /// How many are left.
    pub fn len(&self) -> u64 {
        self.block.count()
    }

    /// Whether all were taken out.
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// Takes the first one out; `None` if there is none left.
    pub fn pop_front(&mut self) -> Option<Message> {
        let level = self.block.level();
        let (scope, payload) = self.block.pop_tagged()?;
        let message = Message {
            level,
            view: self.view,
            sender: self.sender,
            seq: self.first,
            scope,
            payload,
            ticket: self.ticket,
        };
        self.first += 1;
        self.ticket = self.ticket.map(|ticket| Ticket(ticket.0 + 1));
        Some(message)
    }
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        self.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.len() as usize;
        (left, Some(left))
    }
}

/// A message as delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The view it was sent and is delivered in.
    pub view: GroupViewId,
    /// Who sent it.
    pub sender: Incarnation,
    /// The sender's number for it in this group, from 1 for each incarnation.
    pub seq: u64,
    /// Its scope, in a scoped group.
    pub scope: Option<u32>,
    /// What it says.
    pub payload: Bytes,
    /// When it is delivered: its sender's choice.
    pub level: Level,
    /// Set if this node sent it.
    pub ticket: Option<Ticket>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The primary's members delivered it.
    Delivered,
    /// No member of the primary delivered it, nor will any.
    NotDelivered,
    /// The primary keeps no record that reaches back so far.
    Unknown,
}

crate::named!(Outcome, "outcome": Delivered = "delivered", NotDelivered = "not_delivered", Unknown = "unknown");

/// What became of a direct message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TellOutcome {
    /// The receiver took it, and hands it to its application unless it crashes or starts over before.
    Delivered,
    /// The receiver did not take it, and will not.
    NotDelivered(Parting),
    /// Nobody can say whether the receiver took it.
    Unknown(Parting),
}

/// `delivered`, `not delivered (crashed)`, `unknown (left)`.
impl std::fmt::Display for TellOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TellOutcome::Delivered => f.write_str("delivered"),
            TellOutcome::NotDelivered(parting) => write!(f, "not delivered ({parting})"),
            TellOutcome::Unknown(parting) => write!(f, "unknown ({parting})"),
        }
    }
}

/// Why a direct message is not on its way any more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parting {
    /// The receiver left the group in order.
    Left,
    /// A view is without the receiver, which crashed or was cut off.
    Crashed,
    /// The group itself removed the receiver while it was alive, for this cause: as in [`GroupView::causes`].
    Removed(String),
    /// This node's own membership has ended.
    Ended,
}

/// `left`, `crashed`, the group's own cause, or `this member's own membership ended`.
impl std::fmt::Display for Parting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Parting::Left => "left",
            Parting::Crashed => "crashed",
            Parting::Removed(cause) => cause,
            Parting::Ended => "this member's own membership ended",
        })
    }
}

crate::wire::written_as_text!(TellOutcome, Parting, TellError);

/// An agreed list of a group's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    /// Its identity; strictly increasing at every member.
    pub id: GroupViewId,
    /// The group.
    pub group: GroupId,
    /// The group's name.
    pub name: String,
    /// The group's order.
    pub order: Order,
    /// The members by group seniority: the first leads flushes and, under total order, sequences.
    pub members: Vec<Incarnation>,
    /// Those that the previous view did not have.
    pub joined: Vec<Incarnation>,
    /// Those of the previous view that left in order.
    pub left: Vec<Incarnation>,
    /// Those of the previous view that were removed: by a node view, for stalling the flush, or for not
    /// reading.
    pub crashed: Vec<Incarnation>,
    /// Why, of those in `crashed` that the group itself removed while they were alive: `slow: …`,
    /// `flush-stalled: …`.
    pub causes: Vec<(Incarnation, String)>,
    /// The members that came with this one from its previous view: they delivered the same messages there.
    pub transitional: Vec<Incarnation>,
    /// In this node's first view of the group: members among those that left or crashed which this node may
    /// have seen in no node view.
    pub gone: Vec<Member>,
}

/// Why a message was not taken. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The handle names no group of this node, or the node left it.
    NoSuchGroup,
    /// The node is not a member of the group yet, or not any more until it has joined again.
    NotMember,
    /// This component has no majority: it may not send until it is part of the primary again.
    NotPrimary,
    /// The window and the queue behind it are full; wait for [`GroupEvent::Writable`].
    Full,
    /// Larger than any payload of the group.
    TooLarge {
        /// The most bytes of a payload:
        /// [`GroupOptions::max_object_bytes`](crate::GroupOptions::max_object_bytes).
        limit: usize,
    },
    /// It has a scope, and the group is not scoped.
    NotScoped,
}

/// Why a direct message was not taken. Nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TellError {
    /// The handle names no group of this node, or the node left it.
    NoSuchGroup,
    /// The node is not a member of the group yet, or not any more until it has joined again.
    NotMember,
    /// This component has no majority: it may not send until it is part of the primary again.
    NotPrimary,
    /// The group's present view has no such other member.
    NoSuchMember,
    /// The receiver's application has not taken what it was told before; wait for
    /// [`GroupEvent::TellWritable`].
    Full,
    /// Larger than any direct message.
    TooLarge {
        /// The most bytes of a payload.
        limit: usize,
    },
}

impl std::fmt::Display for TellError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            TellError::TooLarge { limit } => {
                return write!(
                    f,
                    "the payload is larger than {limit} bytes, the most that one member may be told at once; send it in parts"
                );
            }
            TellError::NoSuchGroup => "this node has not joined the group, or has left it",
            TellError::NotMember => "this node is not a member of the group yet; wait for its first view",
            TellError::NotPrimary => {
                "this component has no majority of the last primary view; telling resumes when it is reunited with it"
            }
            TellError::NoSuchMember => "the group's present view has no such other member",
            TellError::Full => {
                "the receiver has not taken what it was told before; wait until it may be told more"
            }
        };
        f.write_str(text)
    }
}

impl std::error::Error for TellError {}

/// The largest payload that goes through a sender's log; in a group with a smaller window, its window. A
/// larger one is an object, of up to
/// [`GroupOptions::max_object_bytes`](crate::GroupOptions::max_object_bytes).
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            SendError::TooLarge { limit } => {
                return write!(
                    f,
                    "the payload is larger than {limit} bytes, the most that the group takes; send it in parts, or raise max_object_bytes at all its members (a scoped group takes no more than a window, or 1 MiB)"
                );
            }
            SendError::NoSuchGroup => "this node has not joined the group, or has left it",
            SendError::NotMember => "this node is not a member of the group yet; wait for its first view",
            SendError::NotPrimary => {
                "this component has no majority of the last primary view; sending resumes when it is reunited with it"
            }
            SendError::NotScoped => {
                "the message has a scope, and the group's order is not `scoped`: join it with that, or send without"
            }
            SendError::Full => {
                "the group's window is full: some member has not consumed what was sent; wait until it is writable"
            }
        };
        f.write_str(text)
    }
}

impl std::error::Error for SendError {}

/// What is known about why a member is or is not in the view.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WhyReport {
    /// The name asked for.
    pub name: String,
    /// What this node knows of it, latest last: each view that admitted or removed a node of this name, and
    /// the suspicions held now.
    pub entries: Vec<WhyEntry>,
}

/// One fact about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(tag = "kind", rename_all = "snake_case")
)]
pub enum WhyEntry {
    /// It joined in this view.
    Joined {
        /// Which incarnation.
        incarnation: Incarnation,
        /// The view.
        view: ViewId,
        /// The view's number.
        number: u32,
        /// How long ago this node installed the view, in milliseconds.
        ago_ms: u64,
    },
    /// It departed in this view.
    Departed {
        /// Which incarnation.
        incarnation: Incarnation,
        /// The view.
        view: ViewId,
        /// The view's number.
        number: u32,
        /// Why.
        cause: Cause,
        /// Who accused it, of what.
        accusers: Vec<Accusation>,
        /// How long ago this node installed the view, in milliseconds.
        ago_ms: u64,
    },
    /// It asked this node to be admitted, and was refused.
    Refused {
        /// Which incarnation.
        incarnation: Incarnation,
        /// Its address.
        addr: SocketAddr,
        /// Which side must change what.
        reason: String,
        /// Whether it was told that trying again is pointless.
        fatal: bool,
        /// How often in a row.
        times: u32,
        /// How long ago for the last time, in milliseconds.
        ago_ms: u64,
    },
    /// It waits to be admitted by this node.
    Joining {
        /// Which incarnation.
        incarnation: Incarnation,
        /// Its address.
        addr: SocketAddr,
        /// How long ago it asked last, in milliseconds.
        asked_ms: u64,
        /// How long ago it last answered whether it is ready, in milliseconds; only then it is admitted.
        ready_ms: Option<u64>,
    },
    /// What the member said of itself in its last heartbeat.
    Said {
        /// Which incarnation.
        incarnation: Incarnation,
        /// The last primary view that it had installed.
        view: ViewId,
        /// Whether it believed to be in the primary view.
        primary: bool,
        /// Whether it wanted to leave.
        leaving: bool,
        /// Whom it doubted.
        doubts: Vec<Incarnation>,
    },
    /// It is a member now; who hears it.
    Member {
        /// Which incarnation.
        incarnation: Incarnation,
        /// Whether this node hears it, and when it did last.
        heard: Heard,
        /// Suspicions held now.
        accusers: Vec<Accusation>,
    },
}

/// Who hears a member. In a view so large that not all hear all, its observers do, and no others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Heard {
    /// It is this node itself.
    Itself,
    /// This node does.
    Here {
        /// How long ago for the last time, in milliseconds.
        ago_ms: u64,
    },
    /// This node does not observe it: these do.
    By(Vec<Incarnation>),
}

/// A line for each fact.
impl fmt::Display for WhyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() {
            let name = &self.name;
            return write!(
                f,
                "no node called {name} was in a view while this node was in the cluster"
            );
        }
        write!(f, "{}:", self.name)?;
        self.entries.iter().try_for_each(|entry| write!(f, "\n- {entry}"))
    }
}

impl fmt::Display for WhyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyEntry::Joined { number, ago_ms, .. } => {
                write!(f, "joined with view {number}, {ago_ms} ms ago")
            }
            WhyEntry::Departed {
                number,
                cause,
                accusers,
                ago_ms,
                ..
            } => {
                write!(f, "gone with view {number}, {ago_ms} ms ago: {cause}")?;
                accusers.iter().try_for_each(|said| write!(f, " ({said})"))
            }
            WhyEntry::Refused {
                addr, reason, ago_ms, ..
            } => write!(f, "refused, at {addr}, {ago_ms} ms ago: {reason}"),
            WhyEntry::Joining { addr, ready_ms, .. } => match ready_ms {
                Some(_) => write!(f, "waits at {addr} to be admitted, and is ready"),
                None => write!(f, "waits at {addr} to be admitted, and does not answer"),
            },
            WhyEntry::Said { view, primary, .. } => {
                let majority = if *primary { "in" } else { "without" };
                write!(f, "said last that it has view {view}, {majority} the majority")
            }
            WhyEntry::Member { heard, accusers, .. } => {
                write!(f, "member, {heard}")?;
                accusers
                    .iter()
                    .try_for_each(|said| write!(f, "; suspected by {said}"))
            }
        }
    }
}

impl fmt::Display for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Heard::Itself => f.write_str("this node itself"),
            Heard::Here { ago_ms } => write!(f, "heard {ago_ms} ms ago"),
            Heard::By(observers) => {
                let observers: Vec<String> = observers.iter().map(|by| by.short()).collect();
                write!(f, "observed by {}", observers.join(", "))
            }
        }
    }
}
