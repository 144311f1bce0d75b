//! This process as a node of a cluster.
//!
//! ```text
//!  Builder ── start/join ──► Cluster ── group(..) ──► GroupBuilder ── join ──► Group
//!                              │ commands, wake-ups           ▲ events, receipts
//!                              ▼                              │
//!                            driver task (owns the core and the transport)
//! ```
//! [`Cluster`] and [`Group`](crate::Group) are handles: they hold no protocol state. When the last handle is
//! dropped without [`Cluster::leave`], the driver resets all lifelines and stops. The other members see that
//! as a lost connection.

mod builder;
mod events;
mod journal;
mod observer;
mod quorum;
mod shared;
mod status;

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_core::wire::{Incarnation, NodeView};
use antiphon_core::{Inspection, Recovery, WhyReport};
use antiphon_net::Fault;
use tokio::sync::oneshot;

pub(crate) use builder::{Bound, check_addresses_of, parse_all};
pub use builder::{Builder, Interface, MULTICAST_PORT, Multicast, Transport};
pub use events::ClusterEvents;
pub(crate) use events::Hub;
pub use journal::Noted;
pub use observer::{Guest, Observer};
pub(crate) use shared::{ClusterShared, Command, Handle, Wake};
pub use shared::{Examined, MAX_GUESTS, Settings};
pub use status::{GroupStatus, Phase, Status};

use crate::{Error, GroupBuilder};

/// A node of a cluster. A cheap handle: clones speak of the same node.
///
/// Dropping the last handle (groups hold one too) without [`leave`](Cluster::leave) stops the node at once;
/// the others see a lost connection and remove it after their suspicion time. Maps, locks, calls and the like
/// leave their groups in the background when they are dropped: each of them holds a handle until it has left,
/// but for [`Profile::leave_within`](crate::Profile::leave_within) at most, so that the node stops without a
/// majority as well.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub(crate) handle: Arc<Handle>,
}

impl Cluster {
    /// Describes a node of the cluster with this name (1 to 64 bytes). Nodes of clusters with different names
    /// accept nothing from each other. A seed that accepts nothing is among those that
    /// [`ClusterEvent::Forming`](crate::ClusterEvent::Forming) tells as `rejecting`.
    pub fn builder(cluster: impl Into<String>) -> Builder {
        Builder::new(cluster.into())
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.handle.shared.settings.name
    }

    /// Where the others reach this node.
    pub fn addr(&self) -> SocketAddr {
        self.handle.shared.addrs[0]
    }

    /// Where else they do, best first: the further addresses of [`Builder::bind`].
    pub fn further(&self) -> &[SocketAddr] {
        &self.handle.shared.addrs[1..]
    }

    /// This node's present incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.handle.shared.hub().incarnation()
    }

    /// The installed node view, primary or not; `None` while this node is in none: while the cluster is
    /// forming, after a removal until it has joined again, and once it has left or stopped.
    pub fn view(&self) -> Option<Arc<NodeView>> {
        self.handle.shared.hub().view()
    }

    /// A stream of what happens to this node from now on. It starts with the present incarnation, view and
    /// lease, if any, and with what each source of addresses found last.
    pub fn events(&self) -> ClusterEvents {
        self.handle.shared.hub().subscribe()
    }

    /// What has happened to this node so far, oldest first: its last 100 views, primary or not, and its last
    /// 200 other events. The last views are whole as long as they have at most 100,000 members in all; of
    /// older views there is only what they changed ([`crate::ClusterEvent::PastView`]). There are fewer than
    /// 100 views only if 100,000 nodes came, went or accused in them. It comes with a stream of what follows,
    /// without a gap in between.
    pub fn history(&self) -> (Vec<Noted>, ClusterEvents) {
        self.handle.shared.hub().history()
    }

    /// A group to join. Nothing happens until [`GroupBuilder::join`] or [`GroupBuilder::start`].
    pub fn group(&self, name: impl Into<String>) -> GroupBuilder {
        GroupBuilder::new(self.clone(), name.into())
    }

    /// What is to be known of this node, and what an operator may do with it, in a handle that does not keep
    /// it alive.
    pub fn observer(&self) -> Observer {
        Observer::of(self.handle.shared.clone())
    }

    /// Why a node of this name is, or is not, a member: the views that admitted or removed it, which members
    /// accused it of what, and which members suspect it now.
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn why(&self, name: impl Into<String>) -> Result<WhyReport, Error> {
        self.observer().why(name).await
    }

    /// What the node knows of its cluster now: which members it hears, which members suspect which, which
    /// nodes wait to be admitted, and which nodes it misses.
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        Ok(self.observer().examine().await?.inspection)
    }

    /// What the node is doing, in one piece.
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn status(&self) -> Result<Status, Error> {
        self.ask(|reply| Command::Status { reply }).await
    }

    /// What would be given up if this node went on alone by [`Cluster::recover`]: to be shown to a person
    /// before that.
    ///
    /// # Errors
    /// [`Error::NotRecovered`]: why that is no way out here.
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn recovery(&self) -> Result<Recovery, Error> {
        self.observer().recovery().await
    }

    /// An operator's word, where the majority is lost for good: this node goes on alone, and the others that
    /// still live join it as new members. It returns the first view of the new lineage, which says what was
    /// overridden. **Unsafe**: all that the others did and this node does not know is given up; and if a
    /// majority of them lives on, there are two clusters until they meet. It is for people who know that no
    /// majority lives on, never for a program's own judgement; `antiphon recover` asks before it does the
    /// same.
    ///
    /// # Errors
    /// [`Error::NotRecovered`]; nothing has changed.
    ///
    /// # Cancel safety
    /// If the future is dropped, it may or may not have happened.
    pub async fn recover(&self, shown: Recovery) -> Result<Arc<NodeView>, Error> {
        self.observer().recover(shown).await
    }

    /// Replaces the injected faults: whatever peer is not named has none. Peers are named as in a view, or by
    /// their advertised address. Only for nodes built with [`Builder::allow_faults`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the faults may or may not be in force.
    pub async fn set_faults(
        &self,
        faults: impl IntoIterator<Item = (impl Into<String>, Fault)>,
    ) -> Result<(), Error> {
        let faults = faults
            .into_iter()
            .map(|(peer, fault)| (peer.into(), fault))
            .collect();
        self.ask(|reply| Command::SetFaults { faults, reply }).await?
    }

    /// Cuts this node off from these peers, and only from these. See [`set_faults`](Cluster::set_faults).
    ///
    /// # Cancel safety
    /// If the future is dropped, the faults may or may not be in force.
    pub async fn block(&self, peers: impl IntoIterator<Item = impl Into<String>>) -> Result<(), Error> {
        self.set_faults(peers.into_iter().map(|peer| {
            (
                peer,
                Fault {
                    block: true,
                    ..Fault::default()
                },
            )
        }))
        .await
    }

    /// Leaves the cluster in order: what was accepted in its groups is delivered first, then the others
    /// install a view that says `left`. Bounded by [`Profile::leave_within`](crate::Profile::leave_within);
    /// afterwards every handle of this node reports `Closed`. Leaving again changes nothing, and is no error.
    ///
    /// # Errors
    /// [`Error::Closed`]: the node has stopped without leaving.
    ///
    /// # Cancel safety
    /// Leaving goes on if the future is dropped.
    pub async fn leave(&self) -> Result<(), Error> {
        match self.ask(|reply| Command::Leave { reply }).await {
            Err(Error::Closed) if self.handle.shared.hub().has_left() => Ok(()),
            asked => asked,
        }
    }

    /// Stops at once, as if the process had lost its network: lifelines are reset, nothing is said to the
    /// others.
    pub fn abort(&self) {
        self.handle.shared.abort();
    }

    /// Returns when the node has stopped, whatever the reason, and its ports are free.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn closed(&self) {
        self.handle.shared.closed().await;
    }

    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.handle
            .shared
            .commands
            .send(command(reply))
            .await
            .map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)
    }
}
