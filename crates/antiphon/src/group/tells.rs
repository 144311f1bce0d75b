//! Direct messages to single members, until the core takes them, and the tasks that wait for their fates.
//!
//! ```text
//!  tell ─► line of the receiver ──driver──► core, while it has credit ─► … ─► TellReceipts ─► receipt
//!   ▲             │
//!   └─── room ◄───┘
//! ```
//! Each receiver has a line of its own, with its own bound and its own waiting tasks: a receiver without
//! credit delays no message to others. A line is open while its receiver is in the view that the application
//! was given. When it closes, messages that the core has not taken are `NotDelivered`, with the view's cause;
//! the core says what became of the others. The lock is never held while the core works.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use antiphon_core::outbox::Standing;
use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupView, MAX_TELL_BYTES, Parting, TELL_OVERHEAD, TellError, TellOutcome, Ticket};
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};

/// A line takes messages until so many bytes wait, each message with a charge of [`TELL_OVERHEAD`]; the last
/// one may go beyond.
const LINE_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Tells(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    standing: Standing,
    /// How often this member had to join anew.
    #[cfg(feature = "blocks")]
    epoch: u64,
    lines: BTreeMap<Incarnation, Line>,
}

/// What one member is told.
#[derive(Debug, Default)]
struct Line {
    /// The member is in the view.
    open: bool,
    waiting: VecDeque<Waiting>,
    /// What waits, or is on its way into the core.
    bytes: usize,
    /// The core has no credit, and will say when it has.
    full: bool,
    /// Told when there is room again, or when the line closes.
    room: Arc<Notify>,
    /// What the core has taken, by ticket.
    taken: VecDeque<(Ticket, oneshot::Sender<TellOutcome>)>,
}

#[derive(Debug)]
struct Waiting {
    payload: Bytes,
    receipt: oneshot::Sender<TellOutcome>,
}

impl Waiting {
    fn cost(&self) -> usize {
        self.payload.len() + TELL_OVERHEAD
    }
}

/// Tells what became of a direct message. May be dropped: the message is sent all the same.
///
/// It is a future, too: awaiting it gives the same as [`TellReceipt::outcome`].
#[derive(Debug)]
pub struct TellReceipt(oneshot::Receiver<TellOutcome>);

impl TellReceipt {
    /// Waits until it is known what became of the message. `Delivered`: its receiver has it in its stream of
    /// events, unless it crashes, leaves or starts over before it reads it. Otherwise the outcome has the
    /// cause.
    ///
    /// # Cancel safety
    /// Dropping the future gives the receipt up and changes nothing else. To wait in turns, await
    /// `&mut receipt`.
    pub async fn outcome(self) -> TellOutcome {
        self.await
    }
}

impl Future for TellReceipt {
    type Output = TellOutcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<TellOutcome> {
        // Without an answer the node has stopped.
        let ended = |_| TellOutcome::Unknown(Parting::Ended);
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|known| known.unwrap_or_else(ended))
    }
}

/// The application's side.
impl Tells {
    /// Takes a message if there is room for it.
    pub(super) fn accept(&self, to: Incarnation, payload: &[u8]) -> Result<TellReceipt, TellError> {
        self.accept_up_to(to, payload, LINE_BYTES)
    }

    /// The same if less than so many bytes wait for this member.
    pub(super) fn accept_up_to(
        &self,
        to: Incarnation,
        payload: &[u8],
        limit: usize,
    ) -> Result<TellReceipt, TellError> {
        self.inside()
            .accept(to, payload.len(), limit, || Bytes::copy_from_slice(payload))
    }

    /// The same without a copy, if this node is still the member that it was in this epoch. A sender that has
    /// not read yet that its member was removed must not speak for the new member.
    #[cfg(feature = "blocks")]
    pub(super) fn accept_in(
        &self,
        epoch: u64,
        to: Incarnation,
        payload: Bytes,
    ) -> Result<TellReceipt, TellError> {
        let mut inside = self.inside();
        if inside.epoch != epoch {
            return Err(TellError::NotMember);
        }
        inside.accept(to, payload.len(), LINE_BYTES, || payload)
    }

    /// Told when a receiver's line has room again, or closes. `None` if it has none.
    pub(super) fn room(&self, to: Incarnation) -> Option<Arc<Notify>> {
        self.inside().lines.get(&to).map(|line| line.room.clone())
    }
}

impl Inside {
    fn accept(
        &mut self,
        to: Incarnation,
        length: usize,
        limit: usize,
        payload: impl FnOnce() -> Bytes,
    ) -> Result<TellReceipt, TellError> {
        if length > MAX_TELL_BYTES {
            let limit = MAX_TELL_BYTES;
            return Err(TellError::TooLarge { limit });
        }
        match self.standing {
            Standing::Member => {}
            Standing::Joining => return Err(TellError::NotMember),
            Standing::Suspended => return Err(TellError::NotPrimary),
            Standing::Leaving | Standing::Gone => return Err(TellError::NoSuchGroup),
        }
        let line = self.lines.get_mut(&to).filter(|line| line.open);
        let line = line.ok_or(TellError::NoSuchMember)?;
        if line.bytes >= limit {
            return Err(TellError::Full);
        }
        let (receipt, fate) = oneshot::channel();
        let payload = payload();
        let waiting = Waiting { payload, receipt };
        line.bytes += waiting.cost();
        line.waiting.push_back(waiting);
        Ok(TellReceipt(fate))
    }
}

/// The driver's side.
impl Tells {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Inside {
            standing: Standing::Joining,
            #[cfg(feature = "blocks")]
            epoch: 0,
            lines: BTreeMap::new(),
        }))
    }

    /// Whether the core has all that was told.
    pub(super) fn is_empty(&self) -> bool {
        let inside = self.inside();
        inside.lines.values().all(|line| line.waiting.is_empty())
    }

    /// Changes what callers of `tell` are told. Messages that wait for a member of no view are not sent any
    /// more.
    pub(super) fn set_standing(&self, standing: Standing) {
        let mut inside = self.inside();
        inside.standing = standing;
        #[cfg(feature = "blocks")]
        if standing == Standing::Joining {
            inside.epoch += 1;
        }
        if matches!(standing, Standing::Joining | Standing::Gone) {
            inside
                .lines
                .values_mut()
                .for_each(|line| line.close(&Parting::Ended));
            inside.lines.clear();
        }
        inside.lines.values().for_each(|line| line.room.notify_waiters());
    }

    /// The application is given a view.
    pub(super) fn set_view(&self, view: &GroupView, me: Incarnation) {
        let mut inside = self.inside();
        for (to, line) in &mut inside.lines {
            if !view.members.contains(to) || view.joined.contains(to) {
                line.close(&parting(view, *to));
            }
            // What was refused in the view before may have room in this one.
            line.full = false;
        }
        for member in view.members.iter().filter(|member| **member != me) {
            inside.lines.entry(*member).or_default().open = true;
        }
        inside.lines.retain(|_, line| !line.is_over());
    }

    /// This member may be told more again.
    pub(super) fn set_writable(&self, to: Incarnation) {
        if let Some(line) = self.inside().lines.get_mut(&to) {
            line.full = false;
        }
    }

    /// What waits will not be sent any more, since this member leaves.
    pub(super) fn give_up(&self) {
        let mut inside = self.inside();
        inside
            .lines
            .values_mut()
            .for_each(|line| line.close(&Parting::Ended));
        inside.lines.retain(|_, line| !line.is_over());
    }

    /// Gives `tell` what waits, each line until `tell` gives something back.
    pub(super) fn hand_over(&self, mut tell: impl FnMut(Incarnation, &[u8]) -> Result<Ticket, TellError>) {
        let ready =
            |(to, line): (&Incarnation, &Line)| (!line.full && !line.waiting.is_empty()).then_some(*to);
        let receivers: Vec<_> = self.inside().lines.iter().filter_map(ready).collect();
        for to in receivers {
            let Some(mut waiting) = self.with(to, |line| std::mem::take(&mut line.waiting)) else {
                continue;
            };
            let (mut taken, mut bytes, mut full) = (Vec::new(), 0, false);
            while let Some(first) = waiting.front() {
                match tell(to, &first.payload) {
                    Ok(ticket) => {
                        bytes += first.cost();
                        taken.extend(waiting.pop_front().map(|told| (ticket, told.receipt)));
                    }
                    // On any other answer of the core, a view or the end of this membership follows, and
                    // decides what becomes of the line.
                    Err(error) => {
                        full = error == TellError::Full;
                        break;
                    }
                }
            }
            self.with(to, |line| {
                waiting.append(&mut line.waiting);
                line.waiting = waiting;
                line.full = full;
                line.bytes -= bytes;
                if !taken.is_empty() {
                    line.room.notify_waiters();
                }
                line.taken.extend(taken);
            });
        }
    }

    /// It is known what became of messages to this member.
    pub(super) fn settle(&self, to: Incarnation, first: Ticket, count: u64, outcome: &TellOutcome) {
        let mut inside = self.inside();
        let Some(line) = inside.lines.get_mut(&to) else {
            return;
        };
        let end = first.0.saturating_add(count);
        while line.taken.front().is_some_and(|(ticket, _)| ticket.0 < end)
            && let Some((_, receipt)) = line.taken.pop_front()
        {
            // Fails only when the receipt was dropped.
            let _ = receipt.send(outcome.clone());
        }
        if line.is_over() {
            inside.lines.remove(&to);
        }
    }

    fn with<T>(&self, to: Incarnation, step: impl FnOnce(&mut Line) -> T) -> Option<T> {
        self.inside().lines.get_mut(&to).map(step)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // Another task's panic leaves it whole: each step is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Nothing more goes to the core.
    fn close(&mut self, parting: &Parting) {
        self.open = false;
        self.bytes = 0;
        for waiting in self.waiting.drain(..) {
            // Fails only when the receipt was dropped.
            let _ = waiting.receipt.send(TellOutcome::NotDelivered(parting.clone()));
        }
        self.room.notify_waiters();
    }

    fn is_over(&self) -> bool {
        !self.open && self.taken.is_empty()
    }
}

/// Why a member is not in this view any more.
fn parting(view: &GroupView, member: Incarnation) -> Parting {
    match view.causes.iter().find(|(removed, _)| *removed == member) {
        Some((_, cause)) => Parting::Removed(cause.clone()),
        None if view.left.contains(&member) => Parting::Left,
        None => Parting::Crashed,
    }
}

#[cfg(test)]
mod tests {
    use antiphon_core::wire::{GroupId, GroupViewId, ViewId};
    use antiphon_core::{GroupView, Order};

    use super::*;

    const ME: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);
    const C: Incarnation = Incarnation(3);

    fn view(members: &[Incarnation], joined: &[Incarnation]) -> GroupView {
        let node = ViewId { epoch: 1, counter: 1 };
        GroupView {
            id: GroupViewId {
                node,
                number: 1,
                k: 1,
            },
            group: GroupId(1),
            name: "g".to_owned(),
            order: Order::Fifo,
            members: members.to_vec(),
            joined: joined.to_vec(),
            left: Vec::new(),
            crashed: Vec::new(),
            causes: vec![(B, "slow".to_owned())],
            transitional: Vec::new(),
            gone: Vec::new(),
        }
    }

    fn open() -> Tells {
        let tells = Tells::new();
        tells.set_standing(Standing::Member);
        tells.set_view(&view(&[ME, B, C], &[ME]), ME);
        tells
    }

    /// What is known by now.
    fn known(receipt: &mut TellReceipt) -> Option<TellOutcome> {
        match Pin::new(receipt).poll(&mut Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_receiver_without_credit_keeps_its_own_line_full_and_no_other() {
        let tells = open();
        let large = [0; MAX_TELL_BYTES];
        // The core has no credit for b.
        let core = |to, _: &[u8]| (to != B).then_some(Ticket(1)).ok_or(TellError::Full);
        for _ in 0..=LINE_BYTES / large.len() {
            assert!(tells.accept(B, &large).is_ok());
            tells.hand_over(core);
        }
        assert_eq!(tells.accept(B, b"more").err(), Some(TellError::Full));
        for _ in 0..10 {
            assert!(tells.accept(C, &large).is_ok());
            tells.hand_over(core);
        }
        // Nothing is asked for b again until the core says that there is credit.
        tells.hand_over(|_, _| panic!("it was refused"));
        tells.set_writable(B);
        let mut taken = Vec::new();
        tells.hand_over(|to, payload| {
            taken.push((to, payload.len()));
            Ok(Ticket(1))
        });
        assert_eq!(taken, vec![(B, MAX_TELL_BYTES); LINE_BYTES / large.len() + 1]);
        assert!(tells.accept(B, b"more").is_ok());
    }

    #[test]
    fn a_caller_that_does_not_wait_may_have_more_wait_for_one_member_and_no_other() {
        let tells = open();
        let large = [0; MAX_TELL_BYTES];
        let limit = 4 * LINE_BYTES;
        let mut receipts = Vec::new();
        let full = loop {
            match tells.accept_up_to(B, &large, limit) {
                Ok(receipt) => receipts.push(receipt),
                Err(error) => break error,
            }
        };
        assert_eq!(full, TellError::Full);
        assert_eq!(receipts.len(), limit.div_ceil(MAX_TELL_BYTES + TELL_OVERHEAD));
        // A caller that waits has room only when most of these are gone.
        assert_eq!(tells.accept(B, b"more").err(), Some(TellError::Full));
        assert!(tells.accept(C, b"told").is_ok(), "the line of c is empty");
        tells.set_view(&view(&[ME, C], &[]), ME);
        let slow = TellOutcome::NotDelivered(Parting::Removed("slow".to_owned()));
        for receipt in &mut receipts {
            assert_eq!(known(receipt), Some(slow.clone()));
        }
    }

    #[test]
    fn what_the_core_has_not_taken_is_not_delivered_when_its_receiver_goes_also_if_it_comes_again() {
        for members in [&[ME, C][..], &[ME, B, C]] {
            let tells = open();
            let mut receipts = [0; 3].map(|_| tells.accept(B, b"told").unwrap());
            let mut tickets = 5;
            tells.hand_over(|_, _| {
                tickets += 1;
                (tickets < 8).then_some(Ticket(tickets)).ok_or(TellError::Full)
            });
            tells.set_view(&view(members, &[B]), ME);
            let slow = Parting::Removed("slow".to_owned());
            let [first, second, third] = &mut receipts;
            assert_eq!(known(third), Some(TellOutcome::NotDelivered(slow.clone())));
            assert_eq!((known(first), known(second)), (None, None));
            tells.settle(B, Ticket(6), 1, &TellOutcome::Delivered);
            tells.settle(B, Ticket(7), 1, &TellOutcome::Unknown(slow.clone()));
            assert_eq!(known(first), Some(TellOutcome::Delivered));
            assert_eq!(known(second), Some(TellOutcome::Unknown(slow)));
            assert_eq!(tells.accept(B, b"again").is_ok(), members.contains(&B));
            assert_eq!(tells.inside().lines.len(), members.len() - 1);
        }
    }

    #[cfg(feature = "blocks")]
    #[test]
    fn a_teller_that_has_not_read_of_its_removal_tells_nothing_for_the_member_that_it_is_now() {
        let tells = open();
        assert!(tells.accept_in(0, B, Bytes::from_static(b"still")).is_ok());
        tells.set_standing(Standing::Joining);
        tells.set_standing(Standing::Member);
        tells.set_view(&view(&[ME, B], &[ME]), ME);
        assert_eq!(
            tells.accept_in(0, B, Bytes::from_static(b"late")).err(),
            Some(TellError::NotMember)
        );
        assert!(tells.accept_in(1, B, Bytes::from_static(b"now")).is_ok());
    }

    #[test]
    fn when_this_membership_ends_what_the_core_never_had_is_not_delivered_and_the_rest_unknown() {
        let tells = open();
        let mut taken = tells.accept(B, b"taken").unwrap();
        tells.hand_over(|_, _| Ok(Ticket(1)));
        let mut waits = tells.accept(B, b"waits").unwrap();
        tells.set_standing(Standing::Suspended);
        assert_eq!(tells.accept(B, b"no").err(), Some(TellError::NotPrimary));
        assert_eq!((known(&mut taken), known(&mut waits)), (None, None));
        tells.set_standing(Standing::Gone);
        assert_eq!(known(&mut taken), Some(TellOutcome::Unknown(Parting::Ended)));
        assert_eq!(known(&mut waits), Some(TellOutcome::NotDelivered(Parting::Ended)));
        assert_eq!(tells.accept(B, b"no").err(), Some(TellError::NoSuchGroup));
    }
}
