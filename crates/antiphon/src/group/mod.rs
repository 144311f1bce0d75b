//! Groups: named sets of nodes with one stream of views and messages.
//!
//! ```text
//!  send ─► room (bytes) ─► outbox ──wake──► driver ─► core ─► … ─► core ─► driver ─► events ─► next
//!             ▲               │ taken by the core                                       │
//!             └── released ◄──┘                    credit ◄── consumed ◄────────────────┘
//! ```
//! A message costs its sender one lock and one wake-up (many sends before the driver comes round share one), and its
//! reader one lock a batch. Payloads are never copied here.
//!
//! Bounds: the outbox takes [`OUTBOX_BYTES`], then `send` waits; unread messages are bounded by the group's credit, since
//! the driver returns credit only for what was taken from the stream; other unread events are bounded by
//! [`MAX_UNREAD_NOTICES`], beyond which this member leaves the group.

mod shared;

use std::sync::Arc;

use antiphon_core::{GroupOptions, MAX_PAYLOAD_BYTES, Order, Outcome};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::cluster::{Command, Handle};
use crate::{Cluster, Error, Event, SendError};
pub(crate) use shared::{GroupShared, Membership, Outgoing};

/// Bytes of accepted messages, with 64 bytes for each, that may wait for the core to take them.
pub(crate) const OUTBOX_BYTES: usize = 256 << 10;
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
        Self {
            cluster,
            name,
            options: GroupOptions::default(),
        }
    }

    /// The delivery order; [`Order::Total`] unless given. All members must ask for the same.
    pub fn order(mut self, order: Order) -> Self {
        self.options.order = order;
        self
    }

    /// How many bytes each member may have sent that some member has not consumed; 64 KiB to 64 MiB, 1 MiB unless
    /// given. Every member reserves as much for every other. All members must ask for the same.
    pub fn window_bytes(mut self, window_bytes: u32) -> Self {
        self.options.window_bytes = window_bytes;
        self
    }

    /// Joins, or founds, the group and waits for the first view, which is also the first event of the stream.
    ///
    /// # Errors
    /// [`Error::GroupRefused`] if the group's options differ, [`Error::AlreadyJoined`], [`Error::Config`],
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the node does not become a member, or leaves again in order.
    pub async fn join(self) -> Result<Group, Error> {
        let group = self.start().await?;
        group.shared.first_view().await?;
        Ok(group)
    }

    /// Starts to join and returns at once, also while the cluster is still forming. The first view, or a refusal, is
    /// the first event of the stream.
    ///
    /// # Errors
    /// [`Error::AlreadyJoined`], [`Error::Config`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the node does not become a member, or leaves again in order.
    pub async fn start(self) -> Result<Group, Error> {
        let Self {
            cluster,
            name,
            options,
        } = self;
        let shared = cluster
            .ask(|reply| Command::JoinGroup { name, options, reply })
            .await??;
        Ok(Group {
            sender: GroupSender {
                shared: shared.clone(),
                handle: cluster.handle,
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

    /// The next view, message or other event; `None` once the group was left, refused this node, or the node stopped.
    /// Credit for a message goes back to its sender when it is taken here, so a reader that stops holds the group up.
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

    /// Appends what has arrived to `into`, `limit` events at most, waiting for the first. Returns how many; 0 once the
    /// group was left, refused this node, or the node stopped (or if `limit` is 0).
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

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Option<Event> {
        self.shared.take_one(&self.sender.handle.shared.wake)
    }

    /// See [`GroupSender::send`].
    ///
    /// # Cancel safety
    /// As [`GroupSender::send`].
    pub async fn send(&self, payload: impl Into<Bytes>) -> Result<Receipt, SendError> {
        self.sender.send(payload).await
    }

    /// See [`GroupSender::try_send`].
    pub fn try_send(&self, payload: impl Into<Bytes>) -> Result<Receipt, SendError> {
        self.sender.try_send(payload)
    }

    /// Leaves the group in order: what was accepted is delivered first. Unread events are discarded.
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
}

impl GroupSender {
    /// Sends a message to all members, this one included, waiting while the queue is full. Messages of one sender are
    /// delivered in the order in which they were accepted. `Ok` means accepted by this node: the receipt tells what
    /// became of it.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    ///
    /// # Cancel safety
    /// If the future is dropped before it is ready, nothing was sent, and the place in the queue is lost.
    pub async fn send(&self, payload: impl Into<Bytes>) -> Result<Receipt, SendError> {
        let payload = payload.into();
        self.check(&payload)?;
        let room = self
            .shared
            .room
            .acquire_many(cost(&payload))
            .await
            .map_err(|_| SendError::Closed)?;
        room.forget();
        self.accept(payload)
    }

    /// Sends a message if there is room for it at once.
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent.
    pub fn try_send(&self, payload: impl Into<Bytes>) -> Result<Receipt, SendError> {
        let payload = payload.into();
        self.check(&payload)?;
        match self.shared.room.try_acquire_many(cost(&payload)) {
            Ok(room) => room.forget(),
            Err(tokio::sync::TryAcquireError::NoPermits) => return Err(SendError::Full),
            Err(tokio::sync::TryAcquireError::Closed) => return Err(SendError::Closed),
        }
        self.accept(payload)
    }

    fn check(&self, payload: &Bytes) -> Result<(), SendError> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(SendError::TooLarge);
        }
        self.shared.may_send()
    }

    fn accept(&self, payload: Bytes) -> Result<Receipt, SendError> {
        let cost = cost(&payload);
        let (outcome, receipt) = oneshot::channel();
        match self.shared.enqueue(
            Outgoing {
                payload,
                cost,
                outcome,
            },
            &self.handle.shared.wake,
        ) {
            Ok(()) => Ok(Receipt { outcome: receipt }),
            Err(error) => {
                self.shared.room.add_permits(cost as usize);
                Err(error)
            }
        }
    }
}

/// What a message takes of the outbox. At most 60,064, so it fits.
fn cost(payload: &Bytes) -> u32 {
    payload.len() as u32 + 64
}

/// What became of a message. May be dropped: the message is sent all the same.
#[derive(Debug)]
pub struct Receipt {
    outcome: oneshot::Receiver<Outcome>,
}

impl Receipt {
    /// Waits until the message's fate is known. [`Outcome::Delivered`]: this node delivered it in the group's order (it
    /// is in the stream or was read from it), or, after a merge, the primary did. A message that was accepted but not
    /// sent before the primary was lost is [`Outcome::NotDelivered`]. [`Outcome::Unknown`] if the node stopped first, or
    /// the primary's memory does not reach back so far.
    ///
    /// A delivery known here can still be lost with this node's component by a partition at the same moment.
    ///
    /// # Cancel safety
    /// Dropping the future gives the receipt up and changes nothing else.
    pub async fn delivered(self) -> Outcome {
        self.outcome.await.unwrap_or(Outcome::Unknown)
    }
}
