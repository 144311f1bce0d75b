//! What a group's handles and the driver share.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
#[cfg(feature = "blocks")]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
#[cfg(feature = "blocks")]
use std::task::{Context, Poll};

use antiphon_core::outbox::{Payload, Settled, Standing};
use antiphon_core::wire::{Block, Incarnation, Level};
use antiphon_core::{
    GroupHandle, GroupOptions, GroupView, Outcome, SendError as CoreSendError, TellError, TellOutcome, Ticket,
};
use bytes::Bytes;
use tokio::sync::{Notify, watch};

use super::MAX_UNREAD_NOTICES;
use super::inbox::{Inbox, Run};
use super::outbox::Outbox;
use super::tells::{TellReceipt, Tells};
use crate::cluster::{ClusterShared, Wake};
use crate::driver::Bound;
use crate::{Error, Event, Progress, Scope, SendError};

/// The epoch while the node is no member. No node joins anew so often that its epoch becomes this.
#[cfg(feature = "blocks")]
const NO_EPOCH: u64 = u64::MAX;

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

impl Membership {
    fn standing(&self) -> Standing {
        match self {
            Membership::Joining => Standing::Joining,
            Membership::Member => Standing::Member,
            Membership::Suspended => Standing::Suspended,
            Membership::Leaving => Standing::Leaving,
            Membership::Refused(_) | Membership::Gone => Standing::Gone,
        }
    }
}

#[derive(Debug)]
pub(crate) struct GroupShared {
    pub(crate) name: String,
    handle: GroupHandle,
    bound: Arc<Bound>,
    membership: watch::Sender<Membership>,
    /// The outbox's epoch while this node is a member, otherwise [`NO_EPOCH`]: each read of a replica asks.
    #[cfg(feature = "blocks")]
    good_epoch: AtomicU64,
    inbox: Mutex<Inbox>,
    arrived: Notify,
    outbox: Outbox,
    tells: Tells,
    /// Told when the outbox has room again.
    room: Notify,
    /// Whether the driver already knows that there is something to do.
    woken: AtomicBool,
    abandoned: AtomicBool,
}

/// The application's side.
impl GroupShared {
    /// Returns when something has arrived since the last call. There is one reader, so the arrival is never
    /// lost.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    pub(crate) fn take_one(&self, wake: &Wake) -> Option<Event> {
        if self.bound.is_over() {
            return self.read(wake, Inbox::pop_stop);
        }
        self.read(wake, Inbox::pop)
    }

    pub(crate) fn take_run(&self, wake: &Wake) -> Option<Run> {
        self.take_run_if(true, wake).0
    }

    /// The next run if the reader has room for it, and how often what waited became void so far. A reader
    /// that keeps what it took compares that number: what it took before the number rose is void as well.
    pub(super) fn take_run_if(&self, has_room: bool, wake: &Wake) -> (Option<Run>, u64) {
        let late = self.is_late();
        self.read(wake, |inbox| {
            let run = match late {
                true => inbox.pop_stop().map(Run::Event),
                false if has_room => inbox.pop_run(),
                false => None,
            };
            (run, inbox.voided)
        })
    }

    /// Whether the application may take no message now: the others may have gone on without this node (R7).
    pub(super) fn is_late(&self) -> bool {
        self.bound.is_over()
    }

    /// The same for a reader that has read of this many removals of its member: after another one, what it
    /// took is void.
    #[cfg(feature = "blocks")]
    pub(crate) fn is_late_in(&self, epoch: u64) -> bool {
        self.is_late() || self.outbox.epoch() != epoch
    }

    /// How often what waited became void so far.
    #[cfg(feature = "blocks")]
    pub(crate) fn voided(&self) -> u64 {
        self.inbox().voided
    }

    pub(crate) fn take(&self, into: &mut Vec<Event>, limit: usize, wake: &Wake) -> usize {
        let before = into.len();
        if self.bound.is_over() {
            // R7: the reader is told when it may take the rest.
            into.extend(self.take_one(wake));
            return into.len() - before;
        }
        self.read(wake, |inbox| {
            into.reserve(inbox.len().min(limit));
            into.extend(std::iter::from_fn(|| inbox.pop()).take(limit));
        });
        into.len() - before
    }

    /// As [`take`](Self::take), for a reader that soon comes back: the driver learns at the next call what it
    /// takes now, with what the reader has sent by then.
    #[cfg(feature = "blocks")]
    pub(crate) fn take_in_turns(&self, into: &mut Vec<Event>, limit: usize, wake: &Wake) -> usize {
        let mut inbox = self.inbox();
        let consumed = inbox.has_consumed();
        let before = into.len();
        if self.bound.is_over() {
            into.extend(inbox.pop_stop());
        } else {
            into.reserve(inbox.len().min(limit));
            into.extend(std::iter::from_fn(|| inbox.pop()).take(limit));
        }
        drop(inbox);
        if consumed {
            self.wake(wake);
        }
        into.len() - before
    }

    /// Reads, and tells the driver if that made credit.
    fn read<T>(&self, wake: &Wake, read: impl FnOnce(&mut Inbox) -> T) -> T {
        let mut inbox = self.inbox();
        let read = read(&mut inbox);
        let consumed = inbox.has_consumed();
        drop(inbox);
        if consumed {
            self.wake(wake);
        }
        read
    }

    pub(crate) fn has_ended(&self) -> bool {
        let inbox = self.inbox();
        inbox.ended && inbox.is_empty()
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

    /// Takes a message if there is room.
    pub(crate) fn accept(
        &self,
        payload: Payload<'_>,
        level: Level,
        scope: Option<Scope>,
        wake: &Wake,
    ) -> Result<Ticket, SendError> {
        // An object takes long to copy: not while the driver may want the outbox.
        let object = self.outbox.is_object(payload.bytes().len())?;
        if let (true, Payload::Borrowed(bytes)) = (object, payload) {
            return self.accept(
                Payload::Shared(&Bytes::copy_from_slice(bytes)),
                level,
                scope,
                wake,
            );
        }
        let ticket = self.outbox.accept(payload, level, scope)?;
        self.wake(wake);
        Ok(ticket)
    }

    /// How far an object is; `None` if it is none, or its fate is known.
    pub(crate) fn watch(&self, ticket: Ticket) -> Option<watch::Receiver<Progress>> {
        self.outbox.watch(ticket)
    }

    /// Takes a message as soon as there is room.
    pub(crate) async fn accept_when_free(
        &self,
        payload: Payload<'_>,
        level: Level,
        scope: Option<Scope>,
        wake: &Wake,
    ) -> Result<Ticket, SendError> {
        loop {
            match self.accept(payload, level, scope, wake) {
                Err(SendError::Full) => {}
                accepted => return accepted,
            }
            let mut room = pin!(self.room.notified());
            // From here on no room is missed.
            room.as_mut().enable();
            match self.accept(payload, level, scope, wake) {
                Err(SendError::Full) => room.await,
                accepted => return accepted,
            }
        }
    }

    /// Takes a message of a task that has read of this many removals of its member.
    #[cfg(feature = "blocks")]
    pub(crate) fn accept_in(
        &self,
        epoch: u64,
        payload: &[u8],
        level: Level,
        wake: &Wake,
    ) -> Result<Ticket, SendError> {
        let ticket = self.outbox.accept_in(epoch, payload, level)?;
        self.wake(wake);
        Ok(ticket)
    }

    /// What became of a message; if that is not known yet, notes the task to wake.
    #[cfg(feature = "blocks")]
    pub(crate) fn poll_fate(&self, ticket: Ticket, cx: &Context<'_>) -> Poll<Outcome> {
        self.outbox.poll(ticket, cx)
    }

    /// Whether a task that has read of this many removals of its member may act as that member: the member is
    /// in the group's primary view, and the others have not gone on without it (R7). Asks the clock, not the
    /// driver, which may have been stopped as well.
    #[cfg(feature = "blocks")]
    pub(crate) fn is_good(&self, epoch: u64) -> bool {
        self.good_epoch.load(Ordering::Acquire) == epoch && !self.bound.is_over()
    }

    /// Told when messages were taken, and when that, or reading, may have become possible.
    #[cfg(feature = "blocks")]
    pub(crate) fn room(&self) -> &Notify {
        &self.room
    }

    /// From here on the credit for what the reader takes goes back by [`give_back`](Self::give_back) alone.
    #[cfg(feature = "blocks")]
    pub(crate) fn keep_credit(&self) {
        self.inbox().keep_credit();
    }

    /// The credit for so many messages more that the reader took.
    #[cfg(feature = "blocks")]
    pub(crate) fn give_back(&self, messages: u64, wake: &Wake) {
        self.inbox().give_back(messages);
        self.wake(wake);
    }

    /// Takes a message for one member if there is room.
    pub(crate) fn tell(
        &self,
        to: Incarnation,
        payload: &[u8],
        wake: &Wake,
    ) -> Result<TellReceipt, TellError> {
        let receipt = self.tells.accept(to, payload)?;
        self.wake(wake);
        Ok(receipt)
    }

    /// The same if less than so many bytes wait here for that member.
    pub(crate) fn tell_up_to(
        &self,
        to: Incarnation,
        payload: &[u8],
        bytes: usize,
        wake: &Wake,
    ) -> Result<TellReceipt, TellError> {
        let receipt = self.tells.accept_up_to(to, payload, bytes)?;
        self.wake(wake);
        Ok(receipt)
    }

    /// The same of a member that has read of so many of its removals.
    #[cfg(feature = "blocks")]
    pub(crate) fn tell_in(
        &self,
        epoch: u64,
        to: Incarnation,
        payload: Bytes,
        wake: &Wake,
    ) -> Result<TellReceipt, TellError> {
        let receipt = self.tells.accept_in(epoch, to, payload)?;
        self.wake(wake);
        Ok(receipt)
    }

    /// Takes a message for one member as soon as there is room.
    pub(crate) async fn tell_when_free(
        &self,
        to: Incarnation,
        payload: &[u8],
        wake: &Wake,
    ) -> Result<TellReceipt, TellError> {
        loop {
            match self.tell(to, payload, wake) {
                Err(TellError::Full) => {}
                told => return told,
            }
            // Without a line the next try says why.
            let Some(room) = self.tells.room(to) else {
                continue;
            };
            let mut room = pin!(room.notified());
            // From here on no room is missed.
            room.as_mut().enable();
            match self.tell(to, payload, wake) {
                Err(TellError::Full) => room.await,
                told => return told,
            }
        }
    }

    /// The same for one member; `None` if it is in no view.
    #[cfg(feature = "blocks")]
    pub(crate) fn tell_room(&self, to: Incarnation) -> Option<Arc<Notify>> {
        self.tells.room(to)
    }

    /// What became of a message.
    pub(crate) async fn fate(&self, ticket: Ticket) -> Outcome {
        let _waiting = Waiting { shared: self, ticket };
        poll_fn(|cx| self.outbox.poll(ticket, cx)).await
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

/// A membership on its way to the caller that has asked for it. If it is dropped there, or before, the group
/// is left.
#[derive(Debug)]
pub(crate) struct Unclaimed {
    group: Option<Arc<GroupShared>>,
    cluster: Arc<ClusterShared>,
}

impl Unclaimed {
    pub(crate) fn new(group: Arc<GroupShared>, cluster: Arc<ClusterShared>) -> Self {
        let group = Some(group);
        Self { group, cluster }
    }

    pub(crate) fn claim(mut self) -> Arc<GroupShared> {
        self.group.take().expect("it is claimed once")
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            group.abandon(&self.cluster.wake);
        }
    }
}

/// The driver's side.
impl GroupShared {
    pub(crate) fn new(name: String, handle: GroupHandle, options: &GroupOptions, bound: Arc<Bound>) -> Self {
        Self {
            name,
            handle,
            bound,
            membership: watch::Sender::new(Membership::Joining),
            #[cfg(feature = "blocks")]
            good_epoch: AtomicU64::new(NO_EPOCH),
            inbox: Mutex::default(),
            arrived: Notify::new(),
            outbox: Outbox::new(options),
            tells: Tells::new(),
            room: Notify::new(),
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

    /// Adds to the stream. False if too many notices wait: the application has stopped reading.
    pub(crate) fn deliver(&self, run: Run) -> bool {
        let notices = self.inbox().push(run);
        self.arrived.notify_one();
        notices <= MAX_UNREAD_NOTICES
    }

    /// How many messages the application has taken since the last call, and how many direct ones of each
    /// sender.
    pub(crate) fn take_consumed(&self) -> (u64, BTreeMap<Incarnation, u64>) {
        self.inbox().take_consumed()
    }

    /// Discards what waits; its messages count as consumed.
    pub(crate) fn discard(&self) {
        let mut inbox = self.inbox();
        let all = inbox.runs();
        inbox.drop_first(all);
    }

    /// The same for all that the application may take no more (R7): each event that does not tell it to stop.
    pub(crate) fn discard_late(&self) {
        self.inbox().discard_late();
    }

    /// Has the reader look again, and the clients of this node that read what it took.
    pub(crate) fn tell_reader(&self) {
        self.arrived.notify_one();
        self.room.notify_waiters();
    }

    pub(crate) fn unread(&self) -> usize {
        self.inbox().len()
    }

    /// Whether accepted messages wait for the core.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty() || !self.tells.is_empty()
    }

    /// How many accepted messages have no fate yet.
    pub(crate) fn pending(&self) -> u64 {
        self.outbox.pending()
    }

    /// Gives `send` what waits for the core, block by block, until it gives one back. Returns whether it has
    /// all.
    pub(crate) fn send_with(&self, send: impl FnMut(Ticket, Block) -> Result<(), CoreSendError>) -> bool {
        if self.outbox.hand_over(send) {
            self.room.notify_waiters();
        }
        self.outbox.is_empty()
    }

    /// The same of what single members are told.
    pub(crate) fn tell_with(&self, tell: impl FnMut(Incarnation, &[u8]) -> Result<Ticket, TellError>) {
        self.tells.hand_over(tell);
    }

    /// Direct messages that the core has not taken are not sent any more.
    pub(crate) fn give_up_tells(&self) {
        self.tells.give_up();
    }

    /// This member may be told more again.
    pub(crate) fn set_tellable(&self, to: Incarnation) {
        self.tells.set_writable(to);
    }

    /// Direct messages to this member have this outcome.
    pub(crate) fn settle_tells(&self, to: Incarnation, first: Ticket, count: u64, outcome: &TellOutcome) {
        self.tells.settle(to, first, count, outcome);
    }

    /// The members of this view may be told something.
    pub(crate) fn set_view(&self, view: &GroupView, me: Incarnation) {
        self.tells.set_view(view, me);
    }

    /// So much of an object is at all other members.
    pub(crate) fn set_progress(&self, ticket: Ticket, progress: Progress) {
        self.outbox.set_progress(ticket, progress);
    }

    /// These messages have this fate.
    pub(crate) fn settle(&self, first: Ticket, count: u64, outcome: Outcome) {
        self.outbox.settle(Settled {
            first,
            count,
            outcome,
        });
    }

    /// Changes what senders are told. What waited in the outbox is refused if it cannot be sent any more.
    pub(crate) fn set_membership(&self, membership: Membership) {
        let standing = membership.standing();
        // A member that is told so again, as with each view, does not stop being one in between.
        #[cfg(feature = "blocks")]
        if standing != Standing::Member {
            self.good_epoch.store(NO_EPOCH, Ordering::Release);
        }
        // A task that sees that this node is a member may send at once.
        self.outbox.set_standing(standing);
        self.tells.set_standing(standing);
        #[cfg(feature = "blocks")]
        if standing == Standing::Member {
            self.good_epoch.store(self.outbox.epoch(), Ordering::Release);
        }
        self.membership.send_replace(membership);
        self.room.notify_waiters();
        if standing == Standing::Gone {
            self.inbox().ended = true;
            self.arrived.notify_one();
        }
    }

    pub(crate) fn membership(&self) -> Membership {
        self.membership.borrow().clone()
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller waits for a fate, until this is dropped.
struct Waiting<'a> {
    shared: &'a GroupShared,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.outbox.stop_waiting(self.ticket);
    }
}

#[cfg(all(test, feature = "blocks"))]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_told_of_another_view_is_one_all_the_time() {
        let shared = GroupShared::new(
            "g".to_owned(),
            GroupHandle(1),
            &GroupOptions::default(),
            Arc::new(Bound::none()),
        );
        shared.set_membership(Membership::Member);
        let epoch = shared.outbox.epoch();
        std::thread::scope(|scope| {
            let views = scope.spawn(|| {
                for _ in 0..100_000 {
                    shared.set_membership(Membership::Member);
                }
            });
            while !views.is_finished() {
                assert!(shared.is_good(epoch));
            }
        });
        shared.set_membership(Membership::Leaving);
        assert!(!shared.is_good(epoch));
    }
}
