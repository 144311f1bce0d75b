//! Reading scope by scope: several tasks share a group's stream, each with the messages of one scope at a
//! time.
//!
//! ```text
//!  stream ─► A1 B1 A2 C1 A3 …        shelves   A: │2│3│      taken by task 1, which handles A1
//!                                              B: │1│        next
//!                                              C: │1│
//! ```
//! The next task that asks gets the scope that has waited longest of all that no task handles. A task that
//! stalls keeps its scope and no other: new messages of that scope go to its shelf.
//!
//! # Bounds
//! Messages on shelves have been taken from the stream, and so their credit has gone back to their senders:
//! that is why a scope that stalls does not stop the others. They take at most [`Scopes::set_backlog_bytes`],
//! each counted with 128 bytes besides its payload, plus one block. When that is used up, nothing more is
//! taken from the stream: all scopes wait, and credit holds the senders back. After `slow_after` this member
//! is removed, unless it goes on. Payloads on shelves are copies: a slice would keep its whole block.
//!
//! # Views
//! A view, or any other event that is not a message to all, belongs to no scope. It is handed out at once,
//! ahead of messages that wait on their shelves; each message says which view it belongs to. A direct message
//! ([`Event::Told`]) counts in what is on shelves until it is handed out.
//!
//! # The end of a membership
//! While the lease is over (R7), only events that tell the application to stop are handed out. When this node
//! was removed, what is on shelves is void: it is dropped before [`Event::Resync`] is handed out. What a task
//! gives back after that is dropped as well.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::inbox::tells_to_stop;
use super::{Group, GroupSender, Run};
use crate::{Error, Event, Message, Scope};

/// What a message on a shelf is counted with besides its payload.
const OVERHEAD: usize = 128;
/// How much may be on shelves unless told otherwise.
const BACKLOG_BYTES: usize = 4 << 20;

/// A reader of a group of [`Order::Scoped`](crate::Order::Scoped), scope by scope. Clone it for each task
/// that handles messages: each [`next`](Scopes::next) gives a scope that no other task has at that time. (In
/// a group of another order all messages have scope 0.)
///
/// When the last clone is dropped, and no [`ScopeRun`] is left, the node leaves the group in order, in the
/// background.
#[derive(Debug, Clone)]
pub struct Scopes {
    desk: Arc<Desk>,
}

/// What [`Scopes::next`] gives.
#[derive(Debug)]
#[non_exhaustive]
pub enum Turn {
    /// Messages of one scope.
    Messages(ScopeRun),
    /// Anything else. Never [`Event::Message`].
    Event(Event),
}

/// Messages of one scope, in its order for each sender. While it lives, no other task gets messages of this
/// scope. Messages that are left in it when it is dropped go back to the front.
#[derive(Debug)]
pub struct ScopeRun {
    desk: Arc<Desk>,
    scope: Scope,
    messages: VecDeque<Message>,
    /// [`Shelves::memberships`] when they were taken.
    memberships: u64,
}

#[derive(Debug)]
struct Desk {
    group: Group,
    shelves: Mutex<Shelves>,
    /// Told when a scope is free again, or there is room on the shelves.
    freed: Notify,
}

#[derive(Debug)]
struct Shelves {
    scopes: BTreeMap<Scope, Shelf>,
    /// Scopes that have messages and that no task handles, by how long they have waited.
    ready: VecDeque<Scope>,
    events: VecDeque<Event>,
    /// What is on shelves, or in runs and not taken.
    bytes: usize,
    backlog_bytes: usize,
    /// How often what waited in the group's inbox had become void when something was last taken from there.
    voided: u64,
    /// Memberships whose rest was dropped: what was taken in an earlier one is void.
    memberships: u64,
}

#[derive(Debug, Default)]
struct Shelf {
    messages: VecDeque<Message>,
    /// A task handles this scope.
    taken: bool,
}

impl Scopes {
    pub(super) fn new(group: Group) -> Self {
        let shelves = Shelves {
            scopes: BTreeMap::new(),
            ready: VecDeque::new(),
            events: VecDeque::new(),
            bytes: 0,
            backlog_bytes: BACKLOG_BYTES,
            voided: 0,
            memberships: 0,
        };
        let desk = Desk {
            group,
            shelves: Mutex::new(shelves),
            freed: Notify::new(),
        };
        Self { desk: Arc::new(desk) }
    }

    /// How many bytes of messages may wait for scopes that are being handled, each counted with 128 bytes
    /// more; 4 MiB unless set. When more wait, all scopes wait for them. A block of messages more may be
    /// there at that moment.
    pub fn set_backlog_bytes(&self, backlog_bytes: usize) {
        self.desk.shelves().backlog_bytes = backlog_bytes.max(1);
        self.desk.freed.notify_waiters();
    }

    /// How many bytes wait now.
    pub fn waiting_bytes(&self) -> usize {
        self.desk.shelves().bytes
    }

    /// The next messages of a scope that no task handles, or the next other event; `None` once the group was
    /// left, refused this node, or the node stopped, and all was handed out.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped: another task gets it.
    pub async fn next(&self) -> Option<Turn> {
        loop {
            let mut freed = pin!(self.desk.freed.notified());
            // From here on no change is missed.
            freed.as_mut().enable();
            if let Some(turn) = self.try_next() {
                return Some(turn);
            }
            if self.desk.is_over() {
                return None;
            }
            tokio::select! {
                biased;
                () = freed => {}
                () = self.desk.group.shared.arrived() => {
                    // There may be more in it than this task takes.
                    self.desk.take_in();
                    self.desk.freed.notify_waiters();
                }
            }
        }
    }

    /// The next messages or event if there are any now.
    pub fn try_next(&self) -> Option<Turn> {
        // Asked first: if the lease is back because the node was removed and has joined anew, `take_in` drops
        // what is void.
        let late = self.desk.group.shared.is_late();
        self.desk.take_in();
        let mut shelves = self.desk.shelves();
        if let Some(event) = shelves.pop_event(late) {
            if let Event::Told(message) = &event
                && shelves.release(cost(message))
            {
                self.desk.freed.notify_waiters();
            }
            return Some(Turn::Event(event));
        }
        if late {
            // After the group's end no lease comes back that would let the application take the rest.
            if self.desk.group.shared.has_ended() {
                shelves.drop_void();
                self.desk.freed.notify_waiters();
            }
            return None;
        }
        let scope = shelves.ready.pop_front()?;
        let memberships = shelves.memberships;
        let shelf = shelves.scopes.get_mut(&scope)?;
        shelf.taken = true;
        let messages = std::mem::take(&mut shelf.messages);
        drop(shelves);
        Some(Turn::Messages(ScopeRun {
            desk: self.desk.clone(),
            scope,
            messages,
            memberships,
        }))
    }

    /// The group's name.
    pub fn name(&self) -> &str {
        self.desk.group.name()
    }

    /// A sender; see [`GroupSender::in_scope`].
    pub fn sender(&self) -> GroupSender {
        self.desk.group.sender()
    }

    /// Leaves the group in order: what was accepted is delivered first. Unread events are discarded, for all
    /// tasks. Waits for the primary, as [`Group::leave`] does.
    ///
    /// # Errors
    /// [`Error`] as of [`Group::leave`].
    ///
    /// # Cancel safety
    /// Leaving goes on if the future is dropped.
    pub async fn leave(self) -> Result<(), Error> {
        let group = &self.desk.group;
        group.shared.abandon(&group.sender.handle.shared.wake);
        group.shared.ended().await;
        let mut shelves = self.desk.shelves();
        shelves.drop_void();
        shelves.events.clear();
        drop(shelves);
        self.desk.freed.notify_waiters();
        Ok(())
    }
}

impl Desk {
    /// Moves what has arrived to its shelves, as far as there is room. Drops what is void.
    fn take_in(&self) {
        let mut shelves = self.shelves();
        loop {
            let has_room = shelves.bytes < shelves.backlog_bytes;
            let wake = &self.group.sender.handle.shared.wake;
            let (run, voided) = self.group.shared.take_run_if(has_room, wake);
            let is_void = std::mem::replace(&mut shelves.voided, voided) != voided;
            if is_void || matches!(run, Some(Run::Event(Event::Resync { .. }))) {
                shelves.drop_void();
            }
            match run {
                Some(Run::Event(event)) => shelves.events.push_back(event),
                Some(Run::Messages(messages)) => messages.for_each(|message| shelves.put(message)),
                Some(Run::Told(messages)) => messages.for_each(|message| shelves.put_told(message)),
                // There may be room now.
                None if is_void => {}
                None => return,
            }
        }
    }

    fn is_over(&self) -> bool {
        let shelves = self.shelves();
        let nothing =
            shelves.events.is_empty() && shelves.scopes.values().all(|shelf| shelf.messages.is_empty());
        nothing && self.group.shared.has_ended()
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelves {
    /// The next event; if the lease is over, the next one that tells the application to stop.
    fn pop_event(&mut self, late: bool) -> Option<Event> {
        let at = match late {
            true => self.events.iter().position(tells_to_stop)?,
            false => 0,
        };
        self.events.remove(at)
    }

    /// Drops what waits, except events that tell the application to stop.
    fn drop_void(&mut self) {
        self.memberships += 1;
        let (kept, dropped): (VecDeque<Event>, VecDeque<Event>) =
            self.events.drain(..).partition(tells_to_stop);
        self.events = kept;
        for event in dropped {
            if let Event::Told(message) = event {
                self.bytes -= cost(&message);
            }
        }
        self.ready.clear();
        for shelf in self.scopes.values_mut() {
            let dropped = shelf.messages.drain(..);
            self.bytes -= dropped.map(|message| cost(&message)).sum::<usize>();
        }
        self.scopes.retain(|_, shelf| shelf.taken);
    }

    fn put(&mut self, message: Message) {
        let scope = message.scope.unwrap_or_default();
        let message = self.take(message);
        let shelf = self.scopes.entry(scope).or_default();
        if !shelf.taken && shelf.messages.is_empty() {
            self.ready.push_back(scope);
        }
        shelf.messages.push_back(message);
    }

    fn put_told(&mut self, message: Message) {
        let message = self.take(message);
        self.events.push_back(Event::Told(message));
    }

    fn take(&mut self, message: Message) -> Message {
        self.bytes += cost(&message);
        Message {
            payload: Bytes::copy_from_slice(&message.payload),
            ..message
        }
    }

    /// So many bytes are taken. Returns whether there is room now and was none before.
    fn release(&mut self, bytes: usize) -> bool {
        let was_full = self.bytes >= self.backlog_bytes;
        self.bytes -= bytes;
        was_full && self.bytes < self.backlog_bytes
    }

    /// No task handles this scope any more; these messages were not taken. They are dropped if they are void.
    fn put_back(&mut self, scope: Scope, mut rest: VecDeque<Message>, memberships: u64) {
        if memberships != self.memberships {
            self.bytes -= rest.drain(..).map(|message| cost(&message)).sum::<usize>();
        }
        let Some(shelf) = self.scopes.get_mut(&scope) else {
            return;
        };
        shelf.taken = false;
        rest.append(&mut shelf.messages);
        shelf.messages = rest;
        if shelf.messages.is_empty() {
            self.scopes.remove(&scope);
        } else {
            self.ready.push_back(scope);
        }
    }
}

fn cost(message: &Message) -> usize {
    message.payload.len() + OVERHEAD
}

impl ScopeRun {
    /// Their scope.
    pub fn scope(&self) -> Scope {
        self.scope
    }
}

impl Iterator for ScopeRun {
    type Item = Message;

    fn next(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        let mut shelves = self.desk.shelves();
        let has_room = shelves.release(cost(&message));
        drop(shelves);
        if has_room {
            self.desk.freed.notify_waiters();
        }
        Some(message)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.messages.len(), Some(self.messages.len()))
    }
}

impl ExactSizeIterator for ScopeRun {}

impl Drop for ScopeRun {
    fn drop(&mut self) {
        let rest = std::mem::take(&mut self.messages);
        self.desk.shelves().put_back(self.scope, rest, self.memberships);
        self.desk.freed.notify_waiters();
    }
}
