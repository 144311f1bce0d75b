//! The handles: a group of clients, one client, and what it is told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::{Level, Member};
use antiphon_replica::clients::BundleWriter;
use bytes::Bytes;

use super::shared::{Said, Shared};
use super::{Bundle, ClientEntry, ClientViewId, Departure, MAX_BUNDLE, Refusal, task};
use crate::{Cluster, Error, GroupBuilder, Order, Receipt, SafeReceipt, SendError, TotalEngine};

/// What the names of groups of clients begin with.
pub const GROUPS: &str = "clients/";
const SLOW_AFTER: Duration = Duration::from_secs(10);
const LONGEST_SLOW: Duration = Duration::from_secs(20);
/// Of the node in the group.
const NODE_SLOW_AFTER: Duration = Duration::from_secs(30);

/// A group of clients to take part in.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until `join` or `start`"]
pub struct ClientsBuilder {
    group: GroupBuilder,
    slow_after: Duration,
}

impl ClientsBuilder {
    /// How many bytes each node may have sent that some client has not taken: see
    /// [`GroupBuilder::window_bytes`]. All nodes must ask for the same.
    pub fn window_bytes(mut self, window_bytes: u32) -> Self {
        self.group = self.group.window_bytes(window_bytes);
        self
    }

    /// What makes the group's order: see [`GroupBuilder::engine`]. All nodes must ask for the same.
    pub fn engine(mut self, engine: TotalEngine) -> Self {
        self.group = self.group.engine(engine);
        self
    }

    /// After how long a client of this node is removed if it has not taken what waited for it, and that was a
    /// quarter of the window or more; 1 s to 20 s, 10 s unless given. The group's own limit, for this node,
    /// is 30 s.
    pub fn slow_after(mut self, slow_after: Duration) -> Self {
        self.slow_after = slow_after.clamp(Duration::from_secs(1), LONGEST_SLOW);
        self
    }

    /// Joins, or founds, the group and waits for its first view. It has no client of this node yet.
    ///
    /// # Errors
    /// As [`GroupBuilder::join`].
    ///
    /// # Cancel safety
    /// As [`GroupBuilder::join`].
    pub async fn join(self) -> Result<ClientGroup, Error> {
        let (slow_after, window) = (self.slow_after, self.group.window());
        Ok(ClientGroup::new(self.group.join().await?, slow_after, window))
    }

    /// Starts to join and returns at once, also while the cluster is still forming. Clients may enter, and
    /// wait.
    ///
    /// # Errors
    /// As [`GroupBuilder::start`].
    ///
    /// # Cancel safety
    /// As [`GroupBuilder::start`].
    pub async fn start(self) -> Result<ClientGroup, Error> {
        let (slow_after, window) = (self.slow_after, self.group.window());
        Ok(ClientGroup::new(self.group.start().await?, slow_after, window))
    }
}

impl Cluster {
    /// A group of clients of nodes, this node's clients among them. The name has at most 56 bytes.
    ///
    /// ```no_run
    /// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
    /// use antiphon::clients::ClientEvent;
    /// let chat = cluster.clients("chat").join().await?;
    /// let mut ada = chat.enter("ada")?;
    /// while let Some(event) = ada.next().await {
    ///     match event {
    ///         ClientEvent::View(view) => println!("{view}"),
    ///         ClientEvent::Message(said) => println!("{}: {:?}", said.from, said.payload),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn clients(&self, name: impl AsRef<str>) -> ClientsBuilder {
        let group = self.group(format!("{GROUPS}{}", name.as_ref()));
        ClientsBuilder {
            group: group.order(Order::Total).slow_after(Some(NODE_SLOW_AFTER)),
            slow_after: SLOW_AFTER,
        }
    }
}

/// A group of clients of nodes. A cheap handle: clones speak of the same membership. The membership ends when
/// all handles and clients are dropped.
#[derive(Clone)]
pub struct ClientGroup {
    membership: Arc<Membership>,
}

/// The last handle to go leaves.
struct Membership {
    shared: Arc<Shared>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.ask_to_leave();
        self.shared.dropped.notify_one();
    }
}

impl fmt::Debug for ClientGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientGroup").finish_non_exhaustive()
    }
}

impl ClientGroup {
    fn new(group: crate::Group, slow_after: Duration, window_bytes: usize) -> Self {
        let shared = Shared::new(group.sender(), group.name(), slow_after, window_bytes);
        let shared = Arc::new(shared);
        shared.spawn(task::run(shared.clone(), group));
        let membership = Arc::new(Membership { shared });
        Self { membership }
    }

    /// Enters a client. Its first event is the first view that has it, however long that takes.
    ///
    /// # Errors
    /// [`Refusal::Name`], [`Refusal::Full`]; [`Refusal::NotIn`] once this node has left the group.
    pub fn enter(&self, name: &str) -> Result<Client, Refusal> {
        let number = self.membership.shared.enter(name)?;
        let membership = self.membership.clone();
        Ok(Client {
            sender: ClientSender { number, membership },
        })
    }

    /// Leaves the group: each client of this node is told [`ClientEvent::Left`].
    ///
    /// Waits for the primary: while there is none, no other member can be told. Put a timeout around it, or
    /// leave by [`Cluster::leave`](crate::Cluster::leave), which takes bounded time.
    ///
    /// # Cancel safety
    /// Leaving goes on if the future is dropped.
    pub async fn leave(self) {
        self.membership.shared.ask_to_leave();
        self.membership.shared.ended().await;
    }
}

/// A client in a group: the reader of its events, and its voice. Dropping it has it leave.
#[derive(Debug)]
pub struct Client {
    sender: ClientSender,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.sender.shared().forget(self.sender.number);
    }
}

impl Client {
    /// What happens next; `None` once it is out for good ([`ClientEvent::Left`]).
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<ClientEvent> {
        let mut one = Vec::with_capacity(1);
        self.next_batch(&mut one, 1).await;
        one.pop()
    }

    /// Appends what has happened to `into`, `limit` events at most, waiting for the first. Returns how many;
    /// 0 once it is out for good (or if `limit` is 0).
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next_batch(&mut self, into: &mut Vec<ClientEvent>, limit: usize) -> usize {
        self.sender.shared().next(self.sender.number, into, limit).await
    }

    /// Sets whether messages that were sent together are told as one [`ClientEvent::Bundle`]. At first they
    /// are told one by one, as [`ClientEvent::Message`]. Set it before the first event: of a bundle that was
    /// told in part, a [`ClientEvent::Bundle`] is the rest.
    pub fn takes_bundles(&self, takes: bool) {
        self.sender.shared().take_bundles(self.sender.number, takes);
    }

    /// Its voice, for other tasks. A task that waits for room while it does not read may wait for itself.
    pub fn sender(&self) -> ClientSender {
        self.sender.clone()
    }

    /// See [`ClientSender::send`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn send(&self, payload: impl AsRef<[u8]>) -> Result<Receipt, ClientSendError> {
        self.sender.send(payload).await
    }

    /// See [`ClientSender::leave`].
    pub fn leave(&self, departure: Departure) {
        self.sender.leave(departure);
    }
}

/// Speaks for a client. A cheap handle; keeps the node's membership of the group alive, but not the client.
#[derive(Clone)]
pub struct ClientSender {
    number: u32,
    membership: Arc<Membership>,
}

impl fmt::Debug for ClientSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSender")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl ClientSender {
    fn shared(&self) -> &Arc<Shared> {
        &self.membership.shared
    }

    /// Waits until the client is in for the first time, or is to be out. What it says waits for the same,
    /// however long that takes: the cluster may be without a majority.
    ///
    /// # Cancel safety
    /// Nothing changes if the future is dropped.
    pub async fn came_in(&self) {
        self.shared().came_in(self.number).await;
    }

    /// Sends a message to all clients, this one included, waiting while there is no room, and for its first
    /// view. `Ok` means accepted by this node: the receipt tells what became of it. A payload has at most
    /// [`MAX_PAYLOAD_BYTES`](crate::MAX_PAYLOAD_BYTES), or the window if that is less, less 6.
    ///
    /// # Errors
    /// [`ClientSendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, nothing was sent.
    pub async fn send(&self, payload: impl AsRef<[u8]>) -> Result<Receipt, ClientSendError> {
        let said = self
            .shared()
            .say(self.number, Said::One(payload.as_ref()), Level::Agreed);
        Ok(self.shared().sender.receipt(said.await?))
    }

    /// Sends several messages together: every client is told all of them, in this order and with no other
    /// message of the group in between, or none, or is out. They travel as one message, so many small ones
    /// cost little more than one. Together they have at most what one payload may have, less what their
    /// lengths take, 1 to 3 bytes each; and they are [`MAX_BUNDLE`] at most.
    ///
    /// # Errors
    /// [`ClientSendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_bundle(
        &self,
        payloads: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<Receipt, ClientSendError> {
        let bundle = self.bundle(payloads)?;
        let said = self
            .shared()
            .say(self.number, Said::Bundle(&bundle), Level::Agreed);
        Ok(self.shared().sender.receipt(said.await?))
    }

    /// The same, delivered only when every node of the group holds it: see [`send_safe`](Self::send_safe).
    ///
    /// # Errors
    /// As [`send_bundle`](Self::send_bundle).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_bundle_safe(
        &self,
        payloads: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<SafeReceipt, ClientSendError> {
        let bundle = self.bundle(payloads)?;
        let said = self.shared().say(self.number, Said::Bundle(&bundle), Level::Safe);
        Ok(self.shared().sender.safe_receipt(said.await?))
    }

    /// The same as [`send`](Self::send), delivered only when every node of the group holds it: see
    /// [`GroupSender::send_safe`](crate::GroupSender::send_safe).
    ///
    /// # Errors
    /// [`ClientSendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_safe(&self, payload: impl AsRef<[u8]>) -> Result<SafeReceipt, ClientSendError> {
        let said = self
            .shared()
            .say(self.number, Said::One(payload.as_ref()), Level::Safe);
        Ok(self.shared().sender.safe_receipt(said.await?))
    }

    fn bundle(
        &self,
        payloads: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Result<BundleWriter, ClientSendError> {
        let limit = self.shared().largest;
        let mut bundle = BundleWriter::new(self.number);
        for payload in payloads {
            let payload = payload.as_ref();
            if bundle.len() == MAX_BUNDLE {
                return Err(ClientSendError::NoBundle);
            }
            if payload.len() > limit.saturating_sub(bundle.bytes()) {
                return Err(ClientSendError::Group(SendError::TooLarge { limit }));
            }
            bundle.push(payload);
        }
        match bundle.is_empty() {
            true => Err(ClientSendError::NoBundle),
            false => Ok(bundle),
        }
    }

    /// Sets whether the client is told the messages that are delivered from here on. At first it is; one that
    /// only sends spares its node each message that it would drop. It is told all else in any case, and what
    /// waited for it already.
    pub fn hears(&self, hears: bool) {
        self.shared().set_hears(self.number, hears);
    }

    /// Leaves, in order or not: others see it go with this departure. [`ClientEvent::Left`] follows.
    pub fn leave(&self, departure: Departure) {
        self.shared().leave(self.number, departure);
    }
}

/// A client, and the node that it is a client of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientMember {
    /// The node.
    pub node: Arc<Member>,
    /// The client.
    pub client: Arc<ClientEntry>,
}

/// `a/ada`.
impl fmt::Display for ClientMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node.name, self.client.name)
    }
}

/// An agreed list of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientView {
    /// Its identity.
    pub id: ClientViewId,
    /// By seniority.
    pub members: Vec<ClientMember>,
    /// The clients that the previous view did not have.
    pub joined: Vec<ClientMember>,
    /// Those of the previous view that are gone, and why.
    pub departed: Vec<(ClientMember, Departure)>,
}

/// `view 57301.4.2: a/ada, b/bob`.
impl fmt::Display for ClientView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {}:", self.id)?;
        for (place, member) in self.members.iter().enumerate() {
            write!(f, "{} {member}", if place == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// What a client said.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientMessage {
    /// Which.
    pub from: ClientMember,
    /// The view that it is delivered in.
    pub view: ClientViewId,
    /// Its node's number for it: what one client says has rising numbers. Messages that were sent together
    /// have the same number.
    pub seq: u64,
    /// Its place among those that were sent together with it, from 0.
    pub part: u32,
    /// Whether it was to be delivered only when every node holds it.
    pub safe: bool,
    /// What it says.
    pub payload: Bytes,
}

/// What a client said at once: an iterator over the messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientBundle {
    /// Which.
    pub from: ClientMember,
    /// The view that they are delivered in.
    pub view: ClientViewId,
    /// Its node's number for them.
    pub seq: u64,
    /// Whether they were to be delivered only when every node holds them.
    pub safe: bool,
    /// What it says, as far as this iterator has not given it.
    pub payloads: Bundle,
    pub(super) part: u32,
}

impl Iterator for ClientBundle {
    type Item = ClientMessage;

    fn next(&mut self) -> Option<ClientMessage> {
        let payload = self.payloads.next()?;
        let part = self.part;
        self.part += 1;
        Some(ClientMessage {
            from: self.from.clone(),
            view: self.view,
            seq: self.seq,
            part,
            safe: self.safe,
            payload,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.payloads.size_hint()
    }
}

impl ExactSizeIterator for ClientBundle {}

/// What a client is told. Views and messages come in one sequence.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ClientEvent {
    /// A view: what follows is delivered in it.
    View(Arc<ClientView>),
    /// A message, in the group's order.
    Message(ClientMessage),
    /// Messages that were sent together, in the group's order. Only for a client that takes them so
    /// ([`Client::takes_bundles`]).
    Bundle(ClientBundle),
    /// What follows until the next view was completed among these clients only.
    Transitional {
        /// By seniority.
        members: Arc<Vec<ClientMember>>,
    },
    /// The primary was lost: until the next event nothing is delivered and nothing can be sent.
    Suspended,
    /// This node was removed from the group: this client is out, and comes in again as another one with the
    /// next view.
    Resync {
        /// Why.
        cause: Arc<str>,
    },
    /// This client is out, and nothing follows.
    Left {
        /// Why.
        departure: Departure,
    },
}

/// Why nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientSendError {
    /// The client is not in the group now.
    Refused(Refusal),
    /// The group does not take it.
    Group(SendError),
    /// A bundle of no messages, or of more than [`MAX_BUNDLE`].
    NoBundle,
}

impl fmt::Display for ClientSendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientSendError::Refused(refusal) => refusal.fmt(f),
            ClientSendError::Group(error) => error.fmt(f),
            ClientSendError::NoBundle => {
                write!(f, "a bundle has 1 to {MAX_BUNDLE} messages: make several of them")
            }
        }
    }
}

impl std::error::Error for ClientSendError {}
