//! Membership: which nodes there are.
//!
//! BOUNDARY (kept stable while the layers are built in parallel; `node.rs` is the only caller):
//! inputs are methods of [`Membership`], everything it wants done is a [`Effect`], drained in order after each call.

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::membership::{Discovery, Heartbeat, MembershipMessage};
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewId};
use bytes::Bytes;

use crate::random::Random;
use crate::{Config, Event, LifelineCommand, LifelineEvent, PathTrouble, Time, WhyReport};

/// What membership wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// From here on this node is `me`: forget all links and peers, seal with the new identity. Emitted at creation and
    /// at each rejoin, before anything else of the new incarnation.
    NewIncarnation {
        me: Incarnation,
        /// Why the previous incarnation ended (`None` at creation).
        cause: Option<String>,
    },
    /// This incarnation is reached at this address. Comes before the first `Send` or `Heartbeat` to it.
    Peer { peer: Incarnation, addr: SocketAddr },
    /// No more traffic with this incarnation; its link is dropped once what is queued was acknowledged or it is gone.
    ForgetPeer { peer: Incarnation },
    /// Reliable, ordered, control class.
    Send {
        to: Incarnation,
        message: MembershipMessage,
    },
    /// Unreliable, control class, to whoever is at the address.
    Discovery { to: SocketAddr, message: Discovery },
    /// Unreliable, control class.
    Heartbeat { to: Incarnation, heartbeat: Heartbeat },
    /// Lifelines. Records in `Write` are plaintext here; the node seals them.
    Lifeline(LifelineCommand),
    /// A node view was installed. The node tells groups and application, in this order.
    Installed(Arc<NodeView>),
    /// For the application.
    Event(Event),
    /// The node has left (or gave up for good): nothing more is sent after what was queued before this.
    Stopped,
}

// Methods that `node.rs` calls (all take `&mut self` and `now: Time`, and push onto the effect queue):
//   Membership::new(config: Arc<Config>, random: Random, now) -> Self
//   handle_discovery(now, from: SocketAddr, sender: Incarnation, message: Discovery)
//   handle_heartbeat(now, sender: Incarnation, heartbeat: Heartbeat)
//   handle_message(now, sender: Incarnation, message: MembershipMessage)
//   heard(now, sender: Incarnation)               -- any authentic frame of that incarnation
//   handle_path_trouble(now, addr: SocketAddr, trouble: PathTrouble)
//   handle_lifeline(now, event: LifelineEvent, sender: Option<Incarnation>)  -- records already opened; sender from the frame
//   accuse(now, peer: Incarnation, evidence: Evidence)                       -- by the group layer or a link
//   behind(now, view: ViewId, peer: Incarnation)  -- a peer spoke of a primary view we have not installed: pull it
//   leave(now)
//   handle_timeout(now); next_timeout() -> Option<Time>
//   poll_effect() -> Option<Effect>
//   view() -> Option<&Arc<NodeView>>              -- the installed one, primary or not
//   why(now, name: &str) -> WhyReport
