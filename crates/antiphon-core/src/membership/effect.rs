//! What membership wants done.

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::membership::{Discovery, Heartbeat, MembershipMessage, Pulse};
use antiphon_wire::{Incarnation, NodeView};
use bytes::Bytes;

use crate::{Event, LifelineCommand};

/// What membership wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// From here on this node is `me`: forget all channels and peers, and seal with the new identity. Emitted
    /// at creation and at each rejoin, before all other effects of the new incarnation.
    NewIncarnation {
        me: Incarnation,
        /// Why the previous incarnation ended (`None` at creation).
        cause: Option<String>,
    },
    /// This incarnation is reached at this address. Comes before the first `Send` or `Heartbeat` to it.
    Peer { peer: Incarnation, addr: SocketAddr },
    /// No more traffic with this incarnation. Its channel is dropped once what is queued was acknowledged or
    /// the peer is gone.
    ForgetPeer { peer: Incarnation },
    /// Reliable, ordered, control class.
    Send {
        to: Incarnation,
        message: MembershipMessage,
    },
    /// Unreliable, control class, to the node at this address.
    Discovery { to: SocketAddr, message: Discovery },
    /// Unreliable, control class.
    Heartbeat { to: Incarnation, heartbeat: Heartbeat },
    /// Unreliable, control class.
    Pulse { to: Incarnation, pulse: Pulse },
    /// Unreliable, in a datagram of its own. `asks`: the sender wants probes in return.
    Probe {
        to: Incarnation,
        asks: bool,
        heartbeat: Heartbeat,
    },
    /// Lifelines. Records in `Write` are plaintext here; the node seals them.
    Lifeline(LifelineCommand),
    /// What is left to the witness from here on, in plaintext. It replaces what was left before; `None`
    /// leaves nothing.
    LastVoteRecord(Option<Bytes>),
    /// A node view was installed. The node tells groups and application, in this order.
    Installed(Arc<NodeView>),
    /// For the application.
    Event(Event),
    /// The node has left, or gave up for good. What was queued before this is still sent, and nothing after
    /// it.
    Stopped,
}
