//! The core's [outbox](antiphon_core::outbox) behind a lock, and the tasks that wait for the fates of
//! messages.
//!
//! The lock is held for one step at a time, never while the core works. A channel tells how far an object is
//! on its way; it lives until the object's fate is known.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use antiphon_core::outbox::{self, Handed, Keeper, Payload, Settled, Standing};
use antiphon_core::wire::{Block, Level};
use antiphon_core::{GroupOptions, Outcome, SendError as CoreSendError, Ticket};
use tokio::sync::watch;

use crate::{Progress, Scope, SendError};

#[derive(Debug)]
pub(super) struct Outbox(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    outbox: outbox::Outbox,
    /// How often this member had to join anew.
    #[cfg(feature = "blocks")]
    epoch: u64,
    /// By ticket.
    waiting: BTreeMap<u64, Waker>,
    progress: BTreeMap<u64, watch::Sender<Progress>>,
}

impl Outbox {
    pub(super) fn new(options: &GroupOptions) -> Self {
        Self(Mutex::new(Inside {
            outbox: outbox::Outbox::new(options),
            #[cfg(feature = "blocks")]
            epoch: 0,
            waiting: BTreeMap::new(),
            progress: BTreeMap::new(),
        }))
    }

    /// Whether a payload is an object, which goes beside the messages. An error if it is none that may be
    /// sent now.
    pub(super) fn is_object(&self, length: usize) -> Result<bool, SendError> {
        Ok(self.inside().outbox.is_object(length)?)
    }

    /// Takes a payload if there is room.
    pub(super) fn accept(
        &self,
        payload: Payload<'_>,
        level: Level,
        scope: Option<Scope>,
    ) -> Result<Ticket, SendError> {
        let length = payload.bytes().len();
        let mut inside = self.inside();
        let object = inside.outbox.is_object(length);
        let ticket = inside
            .outbox
            .accept(payload, level, scope.map(|Scope(scope)| scope))?;
        if object == Ok(true) {
            let (bytes, length) = (0, length as u64);
            let progress = watch::Sender::new(Progress { bytes, length });
            inside.progress.insert(ticket.0, progress);
        }
        Ok(ticket)
    }

    /// Takes a message if there is room and this node is still the member that it was in this epoch. A sender
    /// that has not read yet that its member was removed must not speak for the new member.
    #[cfg(feature = "blocks")]
    pub(super) fn accept_in(&self, epoch: u64, payload: &[u8], level: Level) -> Result<Ticket, SendError> {
        let mut inside = self.inside();
        if inside.epoch != epoch {
            return Err(SendError::NotMember);
        }
        Ok(inside.outbox.accept(Payload::Borrowed(payload), level, None)?)
    }

    #[cfg(feature = "blocks")]
    pub(super) fn epoch(&self) -> u64 {
        self.inside().epoch
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inside().outbox.is_empty()
    }

    pub(super) fn pending(&self) -> u64 {
        self.inside().outbox.pending()
    }

    /// Gives `send` what waits, until it gives something back. Returns whether there is room again.
    pub(super) fn hand_over(&self, send: impl FnMut(Ticket, Block) -> Result<(), CoreSendError>) -> bool {
        let Handed { any, refused } = outbox::hand_over(&mut &*self, send);
        wake(self.inside(), &refused);
        any
    }

    /// Changes what senders are told.
    pub(super) fn set_standing(&self, standing: Standing) {
        let mut inside = self.inside();
        #[cfg(feature = "blocks")]
        if standing == Standing::Joining {
            inside.epoch += 1;
        }
        let settled = inside.outbox.set_standing(standing);
        wake(inside, &settled);
    }

    /// These messages have this fate.
    pub(super) fn settle(&self, settled: Settled) {
        let Settled {
            first,
            count,
            outcome,
        } = settled;
        let mut inside = self.inside();
        inside.outbox.settle(first, count, outcome);
        wake(inside, &[settled]);
    }

    /// So much of an object is at all other members.
    pub(super) fn set_progress(&self, ticket: Ticket, progress: Progress) {
        if let Some(sender) = self.inside().progress.get(&ticket.0) {
            sender.send_replace(progress);
        }
    }

    /// How far an object is; the channel ends with its fate.
    pub(super) fn watch(&self, ticket: Ticket) -> Option<watch::Receiver<Progress>> {
        self.inside()
            .progress
            .get(&ticket.0)
            .map(watch::Sender::subscribe)
    }

    pub(super) fn poll(&self, ticket: Ticket, cx: &Context<'_>) -> Poll<Outcome> {
        let mut inside = self.inside();
        match inside.outbox.fate(ticket) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                inside.waiting.insert(ticket.0, cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn stop_waiting(&self, ticket: Ticket) {
        self.inside().waiting.remove(&ticket.0);
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Another task's panic leaves it whole: each step is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper for &Outbox {
    fn with<T>(&mut self, step: impl FnOnce(&mut outbox::Outbox) -> T) -> T {
        step(&mut self.inside().outbox)
    }
}

/// Tells the tasks that wait for these fates.
fn wake(mut inside: MutexGuard<'_, Inside>, settled: &[Settled]) {
    let Inside {
        waiting, progress, ..
    } = &mut *inside;
    if waiting.is_empty() && progress.is_empty() {
        return;
    }
    let mut woken = Vec::new();
    for Settled { first, count, .. } in settled {
        let tickets = first.0..first.0.saturating_add(*count);
        progress.retain(|ticket, _| !tickets.contains(ticket));
        while let Some((ticket, _)) = waiting.range(tickets.clone()).next() {
            let ticket = *ticket;
            woken.extend(waiting.remove(&ticket));
        }
    }
    drop(inside);
    woken.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn open() -> Outbox {
        let outbox = Outbox::new(&GroupOptions::default());
        outbox.set_standing(Standing::Member);
        outbox
    }

    #[test]
    fn whoever_waits_for_a_fate_is_woken_by_it_alone() {
        let (outbox, cx) = (open(), Context::from_waker(Waker::noop()));
        let small = || outbox.accept(Payload::Borrowed(b"m"), Level::Agreed, None);
        let (first, second) = (small().unwrap(), small().unwrap());
        assert_eq!(outbox.poll(first, &cx), Poll::Pending);
        assert_eq!(outbox.poll(second, &cx), Poll::Pending);
        outbox.settle(Settled {
            first,
            count: 1,
            outcome: Outcome::Delivered,
        });
        assert_eq!(outbox.poll(first, &cx), Poll::Ready(Outcome::Delivered));
        assert_eq!(outbox.inside().waiting.keys().collect::<Vec<_>>(), [&second.0]);
        outbox.set_standing(Standing::Gone);
        assert!(outbox.inside().waiting.is_empty());
    }

    #[test]
    fn progress_is_told_until_the_fate_is_known() {
        let outbox = open();
        let payload = Bytes::from(vec![7; (1 << 20) + 1]);
        let ticket = outbox
            .accept(Payload::Shared(&payload), Level::Agreed, None)
            .unwrap();
        let small = outbox
            .accept(Payload::Borrowed(b"small"), Level::Agreed, None)
            .unwrap();
        assert!(outbox.watch(small).is_none());
        let mut watch = outbox.watch(ticket).expect("an object");
        let length = payload.len() as u64;
        assert_eq!(*watch.borrow(), Progress { bytes: 0, length });
        outbox.set_progress(ticket, Progress { bytes: 5, length });
        assert!(watch.has_changed().unwrap());
        assert_eq!(watch.borrow_and_update().bytes, 5);
        let delivered = |first| Settled {
            first,
            count: 1,
            outcome: Outcome::Delivered,
        };
        outbox.settle(delivered(small));
        assert!(!watch.has_changed().unwrap());
        outbox.settle(delivered(ticket));
        assert!(watch.has_changed().is_err(), "it has ended");
    }
}
