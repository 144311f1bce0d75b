//! What a group's handles and the driver share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use antiphon_core::{GroupHandle, Outcome};
use bytes::Bytes;
use tokio::sync::{Notify, Semaphore, oneshot, watch};

use super::{MAX_UNREAD_NOTICES, OUTBOX_BYTES};
use crate::cluster::Wake;
use crate::{Error, Event, SendError};

/// Whether this node may send to the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Membership {
    /// No view yet, or none again.
    Joining,
    /// In the group's view.
    Member,
    /// In it, but the component is not primary.
    Suspended,
    /// On the way out: what was accepted is still sent, nothing more is accepted.
    Leaving,
    /// Refused, for this reason.
    Refused(String),
    /// Left, or the node has stopped.
    Gone,
}

/// An accepted message on its way to the core.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) payload: Bytes,
    pub(crate) cost: u32,
    pub(crate) outcome: oneshot::Sender<Outcome>,
}

#[derive(Debug)]
pub(crate) struct GroupShared {
    pub(crate) name: String,
    handle: GroupHandle,
    /// Bytes of the outbox that are free.
    pub(crate) room: Semaphore,
    membership: watch::Sender<Membership>,
    inbox: Mutex<Inbox>,
    arrived: Notify,
    outbox: Mutex<VecDeque<Outgoing>>,
    /// Whether the driver already knows that there is something to do.
    woken: AtomicBool,
    abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct Inbox {
    events: VecDeque<Event>,
    /// Events among them that are not messages.
    notices: usize,
    /// Messages taken by the application whose credit the driver has not returned yet.
    consumed: u64,
    /// Nothing more will come.
    ended: bool,
}

/// The application's side.
impl GroupShared {
    /// Returns when something has arrived since the last call. There is one reader, so the arrival is never lost.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(crate) fn take_one(&self, wake: &Wake) -> Option<Event> {
        let mut inbox = self.inbox();
        let event = inbox.pop()?;
        let consumed = matches!(event, Event::Message(_));
        drop(inbox);
        if consumed {
            self.wake(wake);
        }
        Some(event)
    }

    pub(crate) fn take(&self, into: &mut Vec<Event>, limit: usize, wake: &Wake) -> usize {
        let mut inbox = self.inbox();
        let before = inbox.consumed;
        let taken = inbox.events.len().min(limit);
        into.reserve(taken);
        for _ in 0..taken {
            into.extend(inbox.pop());
        }
        let consumed = inbox.consumed > before;
        drop(inbox);
        if consumed {
            self.wake(wake);
        }
        taken
    }

    pub(crate) fn has_ended(&self) -> bool {
        let inbox = self.inbox();
        inbox.ended && inbox.events.is_empty()
    }

    pub(crate) async fn first_view(&self) -> Result<(), Error> {
        let mut membership = self.membership.subscribe();
        let settled = membership
            .wait_for(|membership| *membership != Membership::Joining)
            .await;
        match settled.as_deref() {
            Ok(Membership::Refused(reason)) => Err(Error::GroupRefused {
                reason: reason.clone(),
            }),
            Ok(Membership::Gone) | Err(_) => Err(Error::Closed),
            Ok(_) => Ok(()),
        }
    }

    /// Returns when this node is no longer in the group.
    pub(crate) async fn ended(&self) {
        let ended = |membership: &Membership| matches!(membership, Membership::Refused(_) | Membership::Gone);
        // The sender is part of `self`, so waiting cannot fail.
        let _ = self.membership.subscribe().wait_for(ended).await;
    }

    pub(crate) fn may_send(&self) -> Result<(), SendError> {
        match &*self.membership.borrow() {
            Membership::Member => Ok(()),
            Membership::Joining => Err(SendError::NotMember),
            Membership::Suspended => Err(SendError::NotPrimary),
            Membership::Leaving | Membership::Refused(_) | Membership::Gone => Err(SendError::Closed),
        }
    }

    pub(crate) fn enqueue(&self, outgoing: Outgoing, wake: &Wake) -> Result<(), SendError> {
        let mut outbox = self.outbox();
        // Under the lock under which the driver empties the outbox when membership changes: a message is either
        // refused here or seen there.
        self.may_send()?;
        outbox.push_back(outgoing);
        drop(outbox);
        self.wake(wake);
        Ok(())
    }

    /// The reader is gone: the driver leaves the group and discards what arrives.
    pub(crate) fn abandon(&self, wake: &Wake) {
        if !self.abandoned.swap(true, Ordering::AcqRel) {
            wake.group(self.handle);
        }
    }

    fn wake(&self, wake: &Wake) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            wake.group(self.handle);
        }
    }
}

/// The driver's side.
impl GroupShared {
    pub(crate) fn new(name: String, handle: GroupHandle) -> Self {
        Self {
            name,
            handle,
            room: Semaphore::new(OUTBOX_BYTES),
            membership: watch::Sender::new(Membership::Joining),
            inbox: Mutex::default(),
            arrived: Notify::new(),
            outbox: Mutex::default(),
            woken: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
        }
    }

    /// From here on a wake-up comes again for what is added later.
    pub(crate) fn clear_wake(&self) {
        self.woken.store(false, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Adds events to the stream. False if too many notices wait: the application has stopped reading.
    pub(crate) fn deliver(&self, events: impl IntoIterator<Item = Event>) -> bool {
        let mut inbox = self.inbox();
        for event in events {
            inbox.notices += usize::from(!matches!(event, Event::Message(_)));
            inbox.events.push_back(event);
        }
        let healthy = inbox.notices <= MAX_UNREAD_NOTICES;
        drop(inbox);
        self.arrived.notify_one();
        healthy
    }

    /// How many messages the application has taken since the last call.
    pub(crate) fn take_consumed(&self) -> u64 {
        std::mem::take(&mut self.inbox().consumed)
    }

    /// Discards what waits; its messages count as consumed.
    pub(crate) fn discard(&self) {
        let mut inbox = self.inbox();
        while inbox.pop().is_some() {}
    }

    pub(crate) fn unread(&self) -> usize {
        self.inbox().events.len()
    }

    pub(crate) fn waiting_to_leave(&self) -> usize {
        self.outbox().len()
    }

    pub(crate) fn pop_outgoing(&self) -> Option<Outgoing> {
        self.outbox().pop_front()
    }

    pub(crate) fn put_back(&self, outgoing: Outgoing) {
        self.outbox().push_front(outgoing);
    }

    /// Changes what senders are told. What waited in the outbox is refused if it cannot be sent any more.
    pub(crate) fn set_membership(&self, membership: Membership) {
        let mut outbox = self.outbox();
        let sendable = matches!(membership, Membership::Member | Membership::Leaving);
        let over = matches!(membership, Membership::Refused(_) | Membership::Gone);
        self.membership.send_replace(membership);
        if over {
            self.room.close();
            self.inbox().ended = true;
            self.arrived.notify_one();
        }
        if !sendable {
            for outgoing in outbox.drain(..) {
                self.refuse(outgoing);
            }
        }
    }

    pub(crate) fn membership(&self) -> Membership {
        self.membership.borrow().clone()
    }

    /// The message was accepted and was never sent.
    pub(crate) fn refuse(&self, outgoing: Outgoing) {
        self.room.add_permits(outgoing.cost as usize);
        // The application may have dropped the receipt.
        let _ = outgoing.outcome.send(Outcome::NotDelivered);
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outbox(&self) -> MutexGuard<'_, VecDeque<Outgoing>> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    fn pop(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        match event {
            Event::Message(_) => self.consumed += 1,
            _ => self.notices -= 1,
        }
        Some(event)
    }
}
