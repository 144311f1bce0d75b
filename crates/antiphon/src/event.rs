//! What the application is told.

mod text;
#[cfg(feature = "serde")]
mod told;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::{GroupViewId, Incarnation, Level, Lineage, Member, NodeView, ViewId};
use antiphon_core::{Alone, Awaits, LinkCause, Order, PeerLinks, Ticket, ViewChange};
use bytes::Bytes;

#[doc(hidden)]
pub use text::rejection;

/// What happened to this node in its cluster. From [`Cluster::events`](crate::Cluster::events).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// The node goes by this incarnation from here on: first at its start, and again after each expulsion or
    /// merge.
    Incarnation(Incarnation),
    /// No cluster yet: these seeds and locators have not answered, or not enough nodes are ready to found.
    /// Told again when any of this changes, and every five seconds.
    Forming {
        /// The seeds and locators missed.
        missing: Vec<SocketAddr>,
        /// Of those, the ones that take a connection and end it as soon as this node has spoken, again and
        /// again: they do not accept its frames. Most likely the key differs, only one side has a key, or the
        /// cluster's name differs. A node answers nothing to a frame that it does not accept, so that no
        /// stranger learns anything: only the logs of those nodes say which it is (target `antiphon::net`).
        /// The event as text says what to check.
        rejecting: Vec<SocketAddr>,
        /// Of those again, the ones at which an agent serves programs: a node has another port.
        agents: Vec<SocketAddr>,
        /// What ends this state.
        awaits: Awaits,
    },
    /// This node has founded a cluster of itself alone, because its settings say so. [`ClusterEvent::View`]
    /// follows.
    Alone {
        /// Which of them.
        reason: Alone,
    },
    /// A source of addresses ([`discovery::Source`](crate::discovery::Source), or a locator's name) found
    /// others than before, or cannot find any, or can again.
    Discovery {
        /// The source, as it is written.
        source: String,
        /// What is in use of it now.
        found: Vec<SocketAddr>,
        /// What is wrong, if something is.
        problem: Option<String>,
    },
    /// [`Policy::Any`](crate::Policy::Any): components that went on apart meet in the view that follows at
    /// once.
    Merge {
        /// Which members come from which component: first the members that were here already, then those of
        /// each component that gave way.
        parts: Vec<Part>,
    },
    /// A node view was installed, primary or not. None is skipped.
    View(Arc<NodeView>),
    /// Only in [`Cluster::history`](crate::Cluster::history), of a large cluster: a view that was installed
    /// long ago. Its members are not kept any more.
    PastView(Arc<ViewChange>),
    /// The cluster, or a peer on the way to it, refused this node. Unless `fatal`, the node goes on trying.
    Refused {
        /// Which side must change what.
        reason: String,
        /// Whether trying again is pointless until the configuration changes.
        fatal: bool,
    },
    /// This incarnation was removed from the cluster while it was alive. The node joins again as a fresh one;
    /// each of its groups then starts with [`Event::Resync`].
    Expelled {
        /// Why, and which member said so.
        cause: String,
    },
    /// A link to a peer with several addresses went up or down, or another one is used now. No view changes
    /// by it.
    Link {
        /// The peer.
        peer: Arc<Member>,
        /// Its links as they are now, by number: link j is its j-th address.
        links: PeerLinks,
        /// Which of them changed, from 0.
        number: usize,
        /// What happened to it.
        cause: LinkCause,
    },
    /// Lately this node itself did not run for much of the time: it was stopped, or its host gives it too
    /// little processor. It accuses no member for what it missed; but others may miss it. Told once in a
    /// while, as long as that goes on.
    Starved {
        /// For how long it did not run although it had something to do.
        missed: Duration,
        /// In so much time.
        within: Duration,
    },
    /// Whether this node believes in its primary view (the lease). It does not while no majority of the view
    /// has answered for so long that the others may have gone on without this node. Each incarnation begins
    /// without the lease, and is told a moment after its first view that it has it. Without it groups deliver
    /// nothing, and messages to send wait; no view changes by it. `View` alone says which members decided: a
    /// node is in charge only with a primary view *and* the lease. That it has the lease is told again if the
    /// lease was over only while the process did not run: messages may have been refused meanwhile.
    Lease {
        /// Whether it believes.
        held: bool,
    },
    /// The direct path to a member is dead, and what this node sends to it goes through another member, or
    /// now through a different one; or it goes directly again. No view changes by it.
    Path {
        /// The member.
        peer: Arc<Member>,
        /// The member that passes on what is sent to it; `None`: it goes directly.
        through: Option<Arc<Member>>,
        /// Whether this node hears the member directly.
        hears_directly: bool,
        /// Whether the member hears this node directly, as it said last.
        heard_directly: bool,
    },
    /// A peer hears this node's multicast now, or does not (any more) and is sent to directly. Said of each
    /// peer once it is known, in groups of [`Dissemination::Multicast`](crate::Dissemination::Multicast), and
    /// when it changes.
    Multicast {
        /// The peer.
        peer: Arc<Member>,
        /// Whether it hears.
        hears: bool,
    },
    /// The node has left in order. The stream ends.
    Left,
    /// The reader was too slow: more events waited than are kept. The stream ends here rather than skip a
    /// view; call [`Cluster::events`](crate::Cluster::events) again for the present state.
    Overrun,
}

/// Members that come from one component, in [`ClusterEvent::Merge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The lineage of its views.
    pub lineage: Lineage,
    /// The last primary view of that lineage that they had installed: what they did together until then is in
    /// the state of each of them.
    pub view: ViewId,
    /// These members in the view that follows, by seniority.
    pub members: Vec<Arc<Member>>,
}

/// What happened in a group. Views and messages come in one sequence.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A new view: what follows is delivered in it.
    View(Arc<View>),
    /// A message, in the group's order.
    Message(Message),
    /// What a member told this one alone ([`GroupSender::tell`](crate::GroupSender::tell)): in the order of
    /// telling, in the view that it was sent in; taking it from the stream gives its sender credit for more.
    /// Its `seq` counts what that sender tells this member, as long as both are members.
    Told(Message),
    /// What follows until the next view was completed by a flush: these members have it, not all of the
    /// view's.
    Transitional {
        /// The members of the view that take part in the flush.
        members: Vec<Arc<Member>>,
    },
    /// The primary was lost: until the next event of another kind nothing is delivered and nothing can be
    /// sent.
    Suspended,
    /// The node is back as a fresh incarnation, or was removed from the group alone: the state it held is
    /// void, and the next view is its first.
    Resync {
        /// Why.
        cause: String,
    },
    /// The group refused this member: its options differ, or it was removed for cause. The stream ends.
    Refused {
        /// Both sides of the difference.
        reason: String,
    },
    /// This member left the group in order. The stream ends.
    Left,
}

/// Consecutive messages of one sender as delivered. An iterator over them.
#[derive(Debug, Clone)]
pub struct Messages {
    run: antiphon_core::Messages,
    sender: Arc<Member>,
}

impl Messages {
    pub(crate) fn new(run: antiphon_core::Messages, sender: Arc<Member>) -> Self {
        Self { run, sender }
    }

    /// The view they were sent and are delivered in.
    pub fn view(&self) -> GroupViewId {
        self.run.view
    }

    /// The member that sent them.
    pub fn sender(&self) -> &Arc<Member> {
        &self.sender
    }

    /// Whether this node sent them.
    pub fn are_mine(&self) -> bool {
        self.run.ticket.is_some()
    }

    /// Whether their sender wanted them safe: delivered only when every member of the view held them, or,
    /// behind [`Event::Transitional`], all that it names.
    pub fn are_safe(&self) -> bool {
        self.run.block.level() == Level::Safe
    }

    /// The sender's number for the first of them; the others' follow it.
    pub fn first_seq(&self) -> u64 {
        self.run.first
    }

    /// The payloads where they lie, without taking them out: nothing is copied or counted.
    pub fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.run.block.iter()
    }
}

impl Iterator for Messages {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let message = self.run.pop_front()?;
        Some(Message {
            view: message.view,
            sender: self.sender.clone(),
            seq: message.seq,
            scope: message.scope.map(Scope),
            payload: message.payload,
            safe: message.level == Level::Safe,
            ticket: message.ticket,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.run.len() as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Messages {}

/// What a message in a group of [`Order::Scoped`] is about. Messages of one sender with the same scope come
/// in the order in which they were sent, and wait for no other messages.
///
/// A number of the application's own, or [one made of a name](Scope::named). It has four bytes, because each
/// message carries it: of a thousand names, two share a scope in one case of ten thousand. Then their
/// messages share an order, and nothing breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Scope(pub u32);

impl Scope {
    /// The scope of a name: the same at every node and in every version (FNV-1a of its bytes, folded).
    pub fn named(name: impl AsRef<[u8]>) -> Self {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let hash = name.as_ref().iter().fold(0xcbf2_9ce4_8422_2325, fold);
        Self((hash >> 32) as u32 ^ hash as u32)
    }
}

impl From<u32> for Scope {
    fn from(scope: u32) -> Self {
        Self(scope)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message as delivered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Message {
    /// The view it was sent and is delivered in.
    pub view: GroupViewId,
    /// The member that sent it.
    pub sender: Arc<Member>,
    /// The sender's number for it in this group, from 1 for each incarnation.
    pub seq: u64,
    /// Its scope, in a group of [`Order::Scoped`].
    pub scope: Option<Scope>,
    /// What it says: a slice of the receive buffer. Copy it if it is kept for long.
    pub payload: Bytes,
    /// Whether its sender wanted it safe; see [`Messages::are_safe`].
    pub safe: bool,
    /// If this node sent it: the number that its [receipt](crate::Receipt::ticket) has too.
    pub ticket: Option<Ticket>,
}

/// An agreed list of a group's members.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// Its identity; strictly increasing at every member.
    pub id: GroupViewId,
    /// The group's name.
    pub group: Arc<str>,
    /// The group's order.
    pub order: Order,
    /// The members by group seniority.
    pub members: Vec<Arc<Member>>,
    /// The members that the previous view did not have.
    pub joined: Vec<Arc<Member>>,
    /// Those of the previous view that left in order.
    pub left: Vec<Arc<Member>>,
    /// Those of the previous view that were removed: by a node view, for stalling the flush, or for not
    /// reading.
    pub crashed: Vec<Arc<Member>>,
    /// Why the group itself removed members of `crashed` while they were alive: `slow: …`, `flush-stalled:
    /// …`.
    pub causes: Vec<(Arc<Member>, String)>,
    /// The members that came with this one from its previous view: they delivered the same messages there.
    pub transitional: Vec<Arc<Member>>,
    /// This node's incarnation in this view.
    pub me: Incarnation,
    /// Those that have the state of a replicated group, by seniority: in views of `ReplicaStatus` (feature
    /// `blocks`). `None` if this member does not know it yet, and in views that a group tells.
    pub synced: Option<Vec<Arc<Member>>>,
}

impl View {
    /// Whether this node is the group's most senior member: a leader that all members agree on, view by view.
    pub fn is_leader(&self) -> bool {
        self.members
            .first()
            .is_some_and(|leader| leader.incarnation == self.me)
    }

    /// This node's rank by seniority, from 0.
    pub fn rank(&self) -> Option<usize> {
        self.members
            .iter()
            .position(|member| member.incarnation == self.me)
    }

    /// The members' names by seniority.
    pub fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| member.name.as_str()).collect()
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} [{}]", self.group, self.id, self.names().join(" "))?;
        for (label, members) in [
            ("joined", &self.joined),
            ("left", &self.left),
            ("crashed", &self.crashed),
        ] {
            if !members.is_empty() {
                let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
                write!(f, ", {label}: {}", names.join(" "))?;
            }
        }
        for (member, cause) in &self.causes {
            write!(f, ", {}: {cause}", member.name)?;
        }
        if let Some(synced) = &self.synced {
            write!(f, "; synced:")?;
            for member in synced {
                write!(f, " {}", member.name)?;
            }
        }
        Ok(())
    }
}
