//! Membership: which nodes there are.
//!
//! BOUNDARY (kept stable while the layers are built in parallel; `node.rs` is the only caller):
//! inputs are methods of [`Membership`], everything it wants done is a [`Effect`], drained in order after each call.

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::membership::{Discovery, Heartbeat, MembershipMessage};
use antiphon_wire::{Evidence, Incarnation, NodeView, ViewId};

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

/// Everything this node knows and decides about who is a member.
#[derive(Debug)]
pub(crate) struct Membership {}

impl Membership {
    /// A fresh node: it begins to look for its seeds at once.
    pub(crate) fn new(config: Arc<Config>, random: Random, now: Time) -> Self {
        let _ = (config, random, now);
        Self {}
    }

    /// Something came from an address, from whoever is there.
    pub(crate) fn handle_discovery(
        &mut self,
        now: Time,
        from: SocketAddr,
        sender: Incarnation,
        message: Discovery,
    ) {
        let _ = (now, from, sender, message);
    }

    /// A heartbeat; also to be called when the sender is no known peer.
    pub(crate) fn handle_heartbeat(&mut self, now: Time, sender: Incarnation, heartbeat: Heartbeat) {
        let _ = (now, sender, heartbeat);
    }

    /// A message of the control channel.
    pub(crate) fn handle_message(&mut self, now: Time, sender: Incarnation, message: MembershipMessage) {
        let _ = (now, sender, message);
    }

    /// Any authentic frame of that incarnation arrived.
    pub(crate) fn heard(&mut self, now: Time, sender: Incarnation) {
        let _ = (now, sender);
    }

    /// The transport noticed something about the path to an address.
    pub(crate) fn handle_path_trouble(&mut self, now: Time, addr: SocketAddr, trouble: PathTrouble) {
        let _ = (now, addr, trouble);
    }

    /// A lifeline event; a record is already opened, and `sender` is the incarnation that sealed it.
    pub(crate) fn handle_lifeline(&mut self, now: Time, event: LifelineEvent, sender: Option<Incarnation>) {
        let _ = (now, event, sender);
    }

    /// The group layer or a link doubts a peer.
    pub(crate) fn accuse(&mut self, now: Time, peer: Incarnation, evidence: Evidence) {
        let _ = (now, peer, evidence);
    }

    /// A peer spoke of a primary view that is not installed here: pull it.
    pub(crate) fn behind(&mut self, now: Time, view: ViewId, peer: Incarnation) {
        let _ = (now, view, peer);
    }

    /// Leave the cluster in order.
    pub(crate) fn leave(&mut self, now: Time) {
        let _ = now;
    }

    /// A deadline passed, or may have.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// When [`Membership::handle_timeout`] wants to be called.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// The next thing to do.
    pub(crate) fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    /// The installed view, primary or not.
    pub(crate) fn view(&self) -> Option<&Arc<NodeView>> {
        None
    }

    /// What is known about why a named node is or is not a member.
    pub(crate) fn why(&self, now: Time, name: &str) -> WhyReport {
        let _ = (now, name);
        WhyReport {
            name: name.to_owned(),
            entries: Vec::new(),
        }
    }
}
