//! Groups: named sets of nodes with one stream of views and messages.
//!
//! ```text
//!  send ─► outbox: one copy into the open block ──wake──► driver ─► core ─► … ─► core ─► driver ─► inbox ─► next
//!             ▲                        │ blocks                                                      │
//!             └── room ◄── taken ◄─────┘                          credit ◄── consumed ◄──────────────┘
//! ```
//! A message costs its sender one lock, one copy, and one wake-up that many sends share before the driver
//! comes round. From then on only blocks of messages move. A reader that takes [`Run`]s pays one lock a block
//! and reads the payloads where they arrived; [`Group::next`] takes messages out one by one.
//!
//! A payload above 1 MiB (or above the window) is an *object*: it does not go through the open block, and the
//! messages behind it pass it. One object waits in the outbox while the core has as much as it takes.
//!
//! A message to one member alone goes by [`tells`] in place of the outbox, and comes in the same stream.
//!
//! Bounds: the outbox takes 256 KiB and an object, then `send` waits. The group's credit bounds unread
//! messages, since the driver returns credit only for what was taken from the stream. [`MAX_UNREAD_NOTICES`]
//! bounds other unread events; beyond it this member leaves the group. If a member takes no message for
//! `slow_after` (30 s) while others wait for it, it is removed and told [`Event::Resync`]; it joins again
//! when it has read all.
//!
//! Read and send in different tasks: a task that waits for room while it does not read may wait for itself.

mod inbox;
mod outbox;
mod scopes;
mod shared;
mod tells;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::outbox::Payload;
use antiphon_core::wire::{Incarnation, Level};
use antiphon_core::{Dissemination, GroupOptions, Order, Outcome, TellError, Ticket, TotalEngine};
use bytes::Bytes;
use tokio::sync::watch;

use crate::cluster::{Command, Handle};
use crate::{Cluster, Error, Event, Scope, SendError};
pub use inbox::Run;
pub use scopes::{ScopeRun, Scopes, Turn};
pub(crate) use shared::{GroupShared, Membership, Unclaimed};
pub use tells::TellReceipt;

/// Events other than messages that may wait for the application.
pub(crate) const MAX_UNREAD_NOTICES: usize = 4096;

/// A group to join.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until `join` or `start`"]
pub struct GroupBuilder {
    cluster: Cluster,
    name: String,
    options: GroupOptions,
}

impl GroupBuilder {
    pub(crate) fn new(cluster: Cluster, name: String) -> Self {
        let options = cluster.handle.shared.settings.group_options;
        Self {
            cluster,
            name,
            options,
        }
    }

    /// The delivery order; [`Order::Total`] unless given. All members must ask for the same.
    pub fn order(mut self, order: Order) -> Self {
        self.options.order = order;
        self
    }

    /// How many bytes each member may have sent that some member has not consumed; 64 KiB to 64 MiB, 1 MiB
    /// unless given. Every member reserves as much for every other. All members must ask for the same.
    pub fn window_bytes(mut self, window_bytes: u32) -> Self {
        self.options.window_bytes = window_bytes;
        self
    }

    /// What makes the order of a group of [`Order::Total`]; [`TotalEngine::Sequencer`] unless given. All
    /// members must ask for the same.
    pub fn engine(mut self, engine: TotalEngine) -> Self {
        self.options.engine = engine;
        self
    }

    /// The way of messages from their sender to the others; [`Dissemination::Direct`] unless given. All
    /// members must ask for the same.
    pub fn dissemination(mut self, dissemination: Dissemination) -> Self {
        self.options.dissemination = dissemination;
        self
    }

    /// After how long a member is removed if its application takes no message while others wait for it: 1 s
    /// to 1 h, in whole milliseconds, or `None` for never; 30 s unless given. The member gets
    /// [`Event::Resync`] with a cause that begins with `slow`, the others a view that says the same. It is a
    /// member again when its application has read what it was given. All members must ask for the same.
    pub fn slow_after(mut self, slow_after: Option<Duration>) -> Self {
        self.options.slow_after = slow_after;
        self
    }

    /// The largest payload in bytes, if it is above 1 MiB (or above the window): such a payload is an
    /// *object*. 64 KiB to 1 GiB, 256 MiB unless given. All members must ask for the same: each holds as much
    /// of the objects of every sender, if [`GroupBuilder::object_memory_bytes`] admits it, and of its own.
    pub fn max_object_bytes(mut self, max_object_bytes: u32) -> Self {
        self.options.max_object_bytes = max_object_bytes;
        self
    }

    /// How many bytes of the objects of all other members this node holds for the group at most, from when
    /// they are offered until the application has taken them; their senders wait. At least
    /// [`GroupBuilder::max_object_bytes`]; 512 MiB unless given. Each member may have its own.
    pub fn object_memory_bytes(mut self, object_memory_bytes: u32) -> Self {
        self.options.object_memory_bytes = object_memory_bytes;
        self
    }

    /// See [`window_bytes`](Self::window_bytes).
    #[cfg(feature = "blocks")]
    pub(crate) fn window(&self) -> usize {
        self.options.window_bytes as usize
    }

    /// The most bytes of a payload that is no object.
    #[cfg(feature = "blocks")]
    pub(crate) fn largest_message(&self) -> usize {
        crate::MAX_PAYLOAD_BYTES.min(self.options.window_bytes as usize)
    }

    /// All of them at once, as the core knows them.
    #[doc(hidden)]
    pub fn options(mut self, options: GroupOptions) -> Self {
        self.options = options;
        self
    }

    /// Joins, or founds, the group and waits for the first view, which is also the first event of the stream.
    ///
    /// # Errors
    /// [`Error::GroupRefused`] if the group's options differ, [`Error::AlreadyJoined`],
    /// [`Error::StillLeaving`], [`Error::Config`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the node does not become a member, or leaves again in order.
    pub async fn join(self) -> Result<Group, Error> {
        let group = self.start().await?;
        group.shared.first_view().await?;
        Ok(group)
    }

    /// Starts to join and returns at once, also while the cluster is still forming. The first view, or a
    /// refusal, is the first event of the stream.
    ///
    /// # Errors
    /// [`Error::AlreadyJoined`], [`Error::StillLeaving`], [`Error::Config`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the node does not become a member, or leaves again in order.
    pub async fn start(self) -> Result<Group, Error> {
        let Self {
            cluster,
            name,
            options,
        } = self;
        let joined = cluster
            .ask(|reply| Command::JoinGroup { name, options, reply })
            .await??;
        let shared = joined.claim();
        Ok(Group {
            sender: GroupSender {
                shared: shared.clone(),
                handle: cluster.handle,
                scope: None,
            },
            shared,
        })
    }
}

/// A group this node is in: the reader of its events, and a sender.
///
/// Dropping it leaves the group in order, in the background.
#[derive(Debug)]
pub struct Group {
    shared: Arc<GroupShared>,
    sender: GroupSender,
}

impl Group {
    /// The group's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// A sender for other tasks: a cheap handle.
    pub fn sender(&self) -> GroupSender {
        self.sender.clone()
    }

    /// See [`GroupSender::in_scope`].
    pub fn in_scope(&self, scope: impl Into<Scope>) -> GroupSender {
        self.sender.in_scope(scope)
    }

    /// Reads the group scope by scope from here on, with as many tasks as there are clones of the reader. See
    /// [`Scopes`].
    pub fn by_scope(self) -> Scopes {
        Scopes::new(self)
    }

    /// The next view, message or other event; `None` once the group was left, refused this node, or the node
    /// stopped. Credit for a message goes back to its sender when it is taken here, so a reader that stops
    /// holds the group up.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if self.shared.has_ended() {
                return None;
            }
            self.shared.arrived().await;
        }
    }

    /// Appends what has arrived to `into`, `limit` events at most, waiting for the first. Returns how many; 0
    /// once the group was left, refused this node, or the node stopped (or if `limit` is 0).
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next_batch(&mut self, into: &mut Vec<Event>, limit: usize) -> usize {
        loop {
            let taken = self.shared.take(into, limit, &self.sender.handle.shared.wake);
            if taken > 0 || limit == 0 || self.shared.has_ended() {
                return taken;
            }
            self.shared.arrived().await;
        }
    }

    /// As [`next_batch`](Self::next_batch), for a task of the library that comes back at once: its credit
    /// goes back then, in one turn of the driver with what the task and its callers have sent meanwhile.
    ///
    /// # Cancel safety
    /// As there.
    #[cfg(feature = "blocks")]
    pub(crate) async fn next_turn(&mut self, into: &mut Vec<Event>, limit: usize) -> usize {
        loop {
            let wake = &self.sender.handle.shared.wake;
            let taken = self.shared.take_in_turns(into, limit, wake);
            if taken > 0 || self.shared.has_ended() {
                return taken;
            }
            self.shared.arrived().await;
        }
    }

    /// Gives its hold on the node to the caller.
    #[cfg(feature = "blocks")]
    pub(crate) fn take_hold(&mut self) -> Arc<Handle> {
        let without = self.sender().without_hold();
        std::mem::replace(&mut self.sender, without).handle
    }

    /// From here on the credit for what is taken goes back by [`GroupSender::give_back`] alone, in the order
    /// of taking.
    #[cfg(feature = "blocks")]
    pub(crate) fn keep_credit(&self) {
        self.shared.keep_credit();
    }

    /// The next messages in the block in which they came, or the next other event; `None` as with
    /// [`Group::next`]. This is the way to read many small messages: nothing is paid per message but the walk
    /// over them.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn next_run(&mut self) -> Option<Run> {
        loop {
            if let Some(run) = self.shared.take_run(&self.sender.handle.shared.wake) {
                return Some(run);
            }
            if self.shared.has_ended() {
                return None;
            }
            self.shared.arrived().await;
        }
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.shared.take_one(&self.sender.handle.shared.wake)
    }

    /// See [`GroupSender::send`].
    ///
    /// # Cancel safety
    /// As [`GroupSender::send`].
    pub async fn send(&self, payload: impl AsRef<[u8]>) -> Result<Receipt, SendError> {
        self.sender.send(payload).await
    }

    /// See [`GroupSender::send_bytes`].
    ///
    /// # Cancel safety
    /// As [`GroupSender::send`].
    pub async fn send_bytes(&self, payload: Bytes) -> Result<Receipt, SendError> {
        self.sender.send_bytes(payload).await
    }

    /// See [`GroupSender::try_send`].
    pub fn try_send(&self, payload: impl AsRef<[u8]>) -> Result<Receipt, SendError> {
        self.sender.try_send(payload)
    }

    /// See [`GroupSender::send_safe`].
    ///
    /// # Cancel safety
    /// As [`GroupSender::send`].
    pub async fn send_safe(&self, payload: impl AsRef<[u8]>) -> Result<SafeReceipt, SendError> {
        self.sender.send_safe(payload).await
    }

    /// See [`GroupSender::try_send_safe`].
    pub fn try_send_safe(&self, payload: impl AsRef<[u8]>) -> Result<SafeReceipt, SendError> {
        self.sender.try_send_safe(payload)
    }

    /// See [`GroupSender::tell`].
    ///
    /// # Cancel safety
    /// As [`GroupSender::tell`].
    pub async fn tell(
        &self,
        to: impl Into<Incarnation>,
        payload: impl AsRef<[u8]>,
    ) -> Result<TellReceipt, TellError> {
        self.sender.tell(to, payload).await
    }

    /// See [`GroupSender::try_tell`].
    pub fn try_tell(
        &self,
        to: impl Into<Incarnation>,
        payload: impl AsRef<[u8]>,
    ) -> Result<TellReceipt, TellError> {
        self.sender.try_tell(to, payload)
    }

    /// Leaves the group in order: what was accepted is delivered first. Direct messages to single members are
    /// delivered first as far as there is credit for them; receipts tell. Unread events are discarded.
    ///
    /// Waits for the primary: while there is none, no other member can be told. Put a timeout around it, or
    /// leave by [`Cluster::leave`](crate::Cluster::leave), which takes bounded time.
    ///
    /// # Cancel safety
    /// Leaving goes on if the future is dropped.
    pub async fn leave(self) -> Result<(), Error> {
        self.shared.abandon(&self.sender.handle.shared.wake);
        self.shared.ended().await;
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.abandon(&self.sender.handle.shared.wake);
    }
}

/// Sends to a group. A cheap handle; keeps the node alive, but not the membership of the group.
#[derive(Debug, Clone)]
pub struct GroupSender {
    shared: Arc<GroupShared>,
    handle: Arc<Handle>,
    scope: Option<Scope>,
}

impl GroupSender {
    /// A sender of messages of this scope, in a group of [`Order::Scoped`]: they are delivered in the order
    /// in which they were accepted, and wait for no message of another scope. Messages that are sent there
    /// without a scope have scope 0. In a group of another order, sending is refused with
    /// [`SendError::NotScoped`].
    #[must_use]
    pub fn in_scope(&self, scope: impl Into<Scope>) -> Self {
        Self {
            scope: Some(scope.into()),
            ..self.clone()
        }
    }

    /// Sends a message to all members, this one included, waiting while the queue is full. Messages of one
    /// sender are delivered in the order in which they were accepted, except in groups of
    /// [`Order::Unordered`], and across the scopes of [`Order::Scoped`]. `Ok` means accepted by this node:
    /// the receipt tells what became of it.
    ///
    /// A payload above 1 MiB, or above the group's window, is an *object*, up to
    /// [`GroupBuilder::max_object_bytes`]: it goes to each member beside the messages, with less right to the
    /// network, and has its place in the order when all members hold it. So messages that were accepted after
    /// it may be delivered before it; objects of one sender keep their order. [`Receipt::progress`] tells how
    /// far it is.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, nothing was sent.
    pub async fn send(&self, payload: impl AsRef<[u8]>) -> Result<Receipt, SendError> {
        self.send_at(payload.as_ref(), Level::Agreed).await
    }

    /// [`GroupSender::send`] of a payload that is not copied if it has more than 60,000 bytes.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// As [`GroupSender::send`].
    pub async fn send_bytes(&self, payload: Bytes) -> Result<Receipt, SendError> {
        self.send_payload(Payload::Shared(&payload), Level::Agreed).await
    }

    /// [`GroupSender::send_safe`] of a payload that is not copied if it has more than 60,000 bytes.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// As [`GroupSender::send`].
    pub async fn send_safe_bytes(&self, payload: Bytes) -> Result<SafeReceipt, SendError> {
        let sent = self.send_payload(Payload::Shared(&payload), Level::Safe).await;
        sent.map(SafeReceipt)
    }

    /// Sends a message if there is room for it at once.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    pub fn try_send(&self, payload: impl AsRef<[u8]>) -> Result<Receipt, SendError> {
        self.try_send_at(payload.as_ref(), Level::Agreed)
    }

    /// Sends a message that is delivered only when every member of the view holds it, and all that comes
    /// before it in the group's order; messages behind it wait for it, if the group has an order. It takes
    /// one more message delay; two where a sequencer makes the order of five members or more. If a view
    /// change completes the message, it comes behind [`Event::Transitional`] and is held by the members named
    /// there. Otherwise as [`GroupSender::send`].
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// As [`GroupSender::send`].
    pub async fn send_safe(&self, payload: impl AsRef<[u8]>) -> Result<SafeReceipt, SendError> {
        self.send_at(payload.as_ref(), Level::Safe).await.map(SafeReceipt)
    }

    /// [`GroupSender::send_safe`] if there is room for it at once.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    pub fn try_send_safe(&self, payload: impl AsRef<[u8]>) -> Result<SafeReceipt, SendError> {
        self.try_send_at(payload.as_ref(), Level::Safe).map(SafeReceipt)
    }

    /// Tells one other member of the present view something, waiting while that member has no room: reliably,
    /// in the order of telling, up to [`MAX_TELL_BYTES`](crate::MAX_TELL_BYTES). The receiver gets it as
    /// [`Event::Told`], in the view that it is sent in. Between direct messages and messages to all there is
    /// no order, and scopes mean nothing to them. `Ok` means accepted by this node: the receipt tells what
    /// became of it.
    ///
    /// A member has room for [`TELL_CREDIT_BYTES`](crate::TELL_CREDIT_BYTES) of each sender that its
    /// application has not taken; some 256 KiB more wait here. A member that does not read delays only the
    /// direct messages to itself, and nothing else.
    ///
    /// # Errors
    /// [`TellError`], but never `Full`: nothing was sent.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, nothing was sent.
    pub async fn tell(
        &self,
        to: impl Into<Incarnation>,
        payload: impl AsRef<[u8]>,
    ) -> Result<TellReceipt, TellError> {
        let wake = &self.handle.shared.wake;
        self.shared
            .tell_when_free(to.into(), payload.as_ref(), wake)
            .await
    }

    /// [`GroupSender::tell`] if there is room for it at once.
    ///
    /// # Errors
    /// [`TellError`]: nothing was sent.
    pub fn try_tell(
        &self,
        to: impl Into<Incarnation>,
        payload: impl AsRef<[u8]>,
    ) -> Result<TellReceipt, TellError> {
        let wake = &self.handle.shared.wake;
        self.shared.tell(to.into(), payload.as_ref(), wake)
    }

    /// [`GroupSender::try_tell`] with another bound: so many bytes may wait here for this member in place of
    /// 256 KiB, each message with a charge of [`TELL_OVERHEAD`](crate::TELL_OVERHEAD).
    ///
    /// # Errors
    /// [`TellError`]: nothing was sent.
    pub fn try_tell_up_to(
        &self,
        to: impl Into<Incarnation>,
        payload: impl AsRef<[u8]>,
        bytes: usize,
    ) -> Result<TellReceipt, TellError> {
        let wake = &self.handle.shared.wake;
        self.shared.tell_up_to(to.into(), payload.as_ref(), bytes, wake)
    }

    async fn send_at(&self, payload: &[u8], level: Level) -> Result<Receipt, SendError> {
        self.send_payload(Payload::Borrowed(payload), level).await
    }

    async fn send_payload(&self, payload: Payload<'_>, level: Level) -> Result<Receipt, SendError> {
        let wake = &self.handle.shared.wake;
        let ticket = self
            .shared
            .accept_when_free(payload, level, self.scope, wake)
            .await?;
        Ok(self.receipt(ticket))
    }

    fn try_send_at(&self, payload: &[u8], level: Level) -> Result<Receipt, SendError> {
        let wake = &self.handle.shared.wake;
        let ticket = self
            .shared
            .accept(Payload::Borrowed(payload), level, self.scope, wake)?;
        Ok(self.receipt(ticket))
    }

    pub(crate) fn receipt(&self, ticket: Ticket) -> Receipt {
        Receipt {
            shared: self.shared.clone(),
            ticket,
            progress: self.shared.watch(ticket),
        }
    }
}

/// For what the library builds on groups.
#[cfg(feature = "blocks")]
impl GroupSender {
    /// The same without a hold on the node.
    pub(crate) fn without_hold(self) -> Self {
        let handle = Arc::new(Handle::uncounted(self.handle.shared.clone()));
        Self { handle, ..self }
    }

    /// See [`ClusterShared::spawn`](crate::cluster::ClusterShared::spawn).
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.shared.spawn(task);
    }

    /// See [`GroupShared::accept_in`].
    pub(crate) fn try_send_in(&self, epoch: u64, payload: &[u8], level: Level) -> Result<Ticket, SendError> {
        let wake = &self.handle.shared.wake;
        self.shared.accept_in(epoch, payload, level, wake)
    }

    /// See [`GroupShared::give_back`].
    pub(crate) fn give_back(&self, messages: u64) {
        self.shared.give_back(messages, &self.handle.shared.wake);
    }

    /// For a message that [`try_send_in`](Self::try_send_in) took.
    pub(crate) fn safe_receipt(&self, ticket: Ticket) -> SafeReceipt {
        SafeReceipt(self.receipt(ticket))
    }

    /// See [`GroupShared::poll_fate`].
    pub(crate) fn poll_fate(&self, ticket: Ticket, cx: &std::task::Context<'_>) -> std::task::Poll<Outcome> {
        self.shared.poll_fate(ticket, cx)
    }

    /// See [`GroupShared::tell_in`].
    pub(crate) fn try_tell_in(
        &self,
        epoch: u64,
        to: Incarnation,
        payload: Bytes,
    ) -> Result<TellReceipt, TellError> {
        self.shared.tell_in(epoch, to, payload, &self.handle.shared.wake)
    }

    /// See [`GroupShared::is_good`].
    pub(crate) fn is_good(&self, epoch: u64) -> bool {
        self.shared.is_good(epoch)
    }

    /// See [`GroupShared::is_late_in`].
    pub(crate) fn is_late_in(&self, epoch: u64) -> bool {
        self.shared.is_late_in(epoch)
    }

    /// See [`GroupShared::voided`].
    pub(crate) fn voided(&self) -> u64 {
        self.shared.voided()
    }

    /// Told when the group may have room again, or its readers may read again.
    pub(crate) fn room(&self) -> &tokio::sync::Notify {
        self.shared.room()
    }

    /// Told when this member may have room again; `None` if it is in no view.
    pub(crate) fn tell_room(&self, to: Incarnation) -> Option<Arc<tokio::sync::Notify>> {
        self.shared.tell_room(to)
    }

    /// What the node runs on.
    pub(crate) fn host(&self) -> crate::host::Host {
        self.handle.shared.hub().host().clone()
    }

    /// The node's present incarnation.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.handle.shared.hub().incarnation()
    }

    /// The node's events from now on, with its present state.
    pub(crate) fn node_events(&self) -> crate::ClusterEvents {
        self.handle.shared.hub().subscribe()
    }
}

/// Tells what became of a message. May be dropped: the message is sent all the same.
#[derive(Debug)]
pub struct Receipt {
    shared: Arc<GroupShared>,
    ticket: Ticket,
    progress: Option<watch::Receiver<Progress>>,
}

/// How far an object is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Progress {
    /// Bytes that every other member of the view had when this was last told.
    pub bytes: u64,
    /// The object's bytes.
    pub length: u64,
}

/// `1048576 of 4194304 bytes`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.bytes, self.length)
    }
}

impl Receipt {
    /// This node's number for the message in its group, which [`Message::ticket`](crate::Message::ticket) has
    /// too.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// How far an object (a payload above 1 MiB, or above the group's window) is on its way; `None` of any
    /// other message, and when its fate is known.
    pub fn progress(&self) -> Option<Progress> {
        let progress = self.progress.as_ref()?;
        progress.has_changed().ok()?;
        Some(*progress.borrow())
    }

    /// Waits until an object is further, about a sixteenth of it at a time; `None` when its fate is known,
    /// and at once of any other message.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn progressed(&mut self) -> Option<Progress> {
        let progress = self.progress.as_mut()?;
        progress.changed().await.ok()?;
        Some(*progress.borrow_and_update())
    }

    /// Waits until the message's fate is known. [`Outcome::Delivered`]: this node delivered it in the group's
    /// order (it is in the stream or was read from it), or, after a merge, the primary did. A message that
    /// was accepted but not sent before the primary was lost is [`Outcome::NotDelivered`].
    /// [`Outcome::Unknown`] if the node stopped first, or the primary's memory does not reach back so far.
    ///
    /// A delivery known here can still be lost with this node's component by a partition at the same moment:
    /// for a message that must not be, there is [`GroupSender::send_safe`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the receipt up and changes nothing else.
    pub async fn delivered(self) -> Outcome {
        self.shared.fate(self.ticket).await
    }
}

/// Tells what became of a safe message. May be dropped: the message is sent all the same.
#[derive(Debug)]
pub struct SafeReceipt(Receipt);

impl SafeReceipt {
    /// See [`Receipt::ticket`].
    pub fn ticket(&self) -> Ticket {
        self.0.ticket()
    }

    /// See [`Receipt::progress`].
    pub fn progress(&self) -> Option<Progress> {
        self.0.progress()
    }

    /// See [`Receipt::progressed`].
    ///
    /// # Cancel safety
    /// As [`Receipt::progressed`].
    pub async fn progressed(&mut self) -> Option<Progress> {
        self.0.progressed().await
    }

    /// Waits until the message's fate is known. [`Outcome::Delivered`]: all members of its view hold it, or,
    /// if a view change completed it, all members that take part in that change. Each of them that goes on
    /// delivers it, whatever happens to this node. Or, after a merge, the primary delivered it. The other
    /// outcomes are those of [`Receipt::delivered`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the receipt up and changes nothing else.
    pub async fn safe(self) -> Outcome {
        self.0.delivered().await
    }
}
