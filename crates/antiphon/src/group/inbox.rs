//! What waits for an application to read it, in order. Messages stay in their blocks until they are taken one
//! by one.

use std::collections::{BTreeMap, VecDeque};

use antiphon_core::wire::Incarnation;

use crate::{Event, Messages};

/// One thing in a group's stream: consecutive messages of one sender, or another event.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Run {
    /// Messages; never none.
    Messages(Messages),
    /// What one member told this one alone; never none.
    Told(Messages),
    /// Anything else. Never [`Event::Message`] or [`Event::Told`].
    Event(Event),
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    runs: VecDeque<Run>,
    /// Messages in it.
    messages: u64,
    /// Direct messages in it.
    told: u64,
    /// Events among them that are not messages.
    notices: usize,
    /// Messages taken by the application, for which the driver has not returned the credit yet.
    consumed: u64,
    /// Messages taken, for which the reader keeps the credit until it gives it back; none if it keeps none.
    #[cfg(feature = "blocks")]
    kept: Option<u64>,
    /// The same of direct messages, by sender.
    told_consumed: BTreeMap<Incarnation, u64>,
    /// How often what waited became void: the member was removed before it was taken.
    pub(super) voided: u64,
    /// Nothing more will come.
    pub(super) ended: bool,
}

impl Inbox {
    /// Adds to the end; gives how many events other than messages wait.
    pub(super) fn push(&mut self, run: Run) -> usize {
        match &run {
            Run::Messages(messages) => self.messages += messages.len() as u64,
            Run::Told(messages) => self.told += messages.len() as u64,
            Run::Event(_) => self.notices += 1,
        }
        self.runs.push_back(run);
        self.notices
    }

    pub(super) fn pop_run(&mut self) -> Option<Run> {
        let run = self.runs.pop_front()?;
        match &run {
            Run::Messages(messages) => self.took(messages.len() as u64),
            Run::Told(messages) => self.took_told(messages.sender().incarnation, messages.len() as u64),
            Run::Event(_) => self.notices -= 1,
        }
        Some(run)
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        let front = self.runs.front_mut()?;
        let to_all = matches!(front, Run::Messages(_));
        let (Run::Messages(messages) | Run::Told(messages)) = front else {
            return self.pop_event();
        };
        let message = messages.next()?;
        if messages.len() == 0 {
            self.runs.pop_front();
        }
        if to_all {
            self.took(1);
            return Some(Event::Message(message));
        }
        self.took_told(message.sender.incarnation, 1);
        Some(Event::Told(message))
    }

    fn pop_event(&mut self) -> Option<Event> {
        match self.pop_run()? {
            Run::Event(event) => Some(event),
            Run::Messages(_) | Run::Told(_) => None,
        }
    }

    /// Takes the first event that tells the application to stop, or that the membership is over; all else
    /// that waits stays where it is (R7). But events before the end of a membership are dropped: the
    /// application could take them only after the end.
    pub(super) fn pop_stop(&mut self) -> Option<Event> {
        let at = self.runs.iter().position(stops)?;
        if !matches!(self.runs[at], Run::Event(Event::Suspended)) {
            self.voided += 1;
            self.drop_first(at);
            return self.pop();
        }
        match self.runs.remove(at)? {
            Run::Event(event) => {
                self.notices -= 1;
                Some(event)
            }
            Run::Messages(_) | Run::Told(_) => None,
        }
    }

    /// Drops what waits, as if it had been taken, except events that tell the application to stop. Views go
    /// with the messages before them (G14, G23): others delivered those messages, so an application that
    /// never gets them must not see the view follow the one before.
    pub(super) fn discard_late(&mut self) {
        self.voided += 1;
        let (kept, dropped) = self.runs.drain(..).partition(stops);
        self.runs = dropped;
        self.drop_first(self.runs.len());
        self.runs = kept;
    }

    /// Drops these many runs; no reader has their credit to give back.
    pub(super) fn drop_first(&mut self, runs: usize) {
        #[cfg(feature = "blocks")]
        let kept = self.kept.take();
        (0..runs).for_each(|_| drop(self.pop_run()));
        #[cfg(feature = "blocks")]
        {
            self.kept = kept;
        }
    }

    /// From here on the reader gives credit back itself.
    #[cfg(feature = "blocks")]
    pub(super) fn keep_credit(&mut self) {
        self.kept.get_or_insert(0);
    }

    /// The reader is done with so many more messages.
    #[cfg(feature = "blocks")]
    pub(super) fn give_back(&mut self, messages: u64) {
        let kept = self.kept.as_mut().filter(|kept| **kept >= messages);
        *kept.expect("a reader gives back what it has kept") -= messages;
        self.consumed += messages;
    }

    fn took(&mut self, messages: u64) {
        self.messages -= messages;
        #[cfg(feature = "blocks")]
        if let Some(kept) = &mut self.kept {
            *kept += messages;
            return;
        }
        self.consumed += messages;
    }

    fn took_told(&mut self, sender: Incarnation, messages: u64) {
        self.told -= messages;
        *self.told_consumed.entry(sender).or_default() += messages;
    }

    pub(super) fn take_consumed(&mut self) -> (u64, BTreeMap<Incarnation, u64>) {
        let told = std::mem::take(&mut self.told_consumed);
        (std::mem::take(&mut self.consumed), told)
    }

    pub(super) fn has_consumed(&self) -> bool {
        self.consumed > 0 || !self.told_consumed.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        (self.messages + self.told) as usize + self.notices
    }

    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

fn stops(run: &Run) -> bool {
    match run {
        Run::Messages(_) | Run::Told(_) => false,
        Run::Event(event) => tells_to_stop(event),
    }
}

/// Whether this tells the application to stop, or that it is over.
pub(super) fn tells_to_stop(event: &Event) -> bool {
    match event {
        Event::View(_) | Event::Transitional { .. } | Event::Message(_) | Event::Told(_) => false,
        Event::Suspended | Event::Resync { .. } | Event::Refused { .. } | Event::Left => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use antiphon_core::Order;
    use antiphon_core::wire::{Block, GroupViewId, Incarnation, Member, ViewId};

    use super::*;
    use crate::View;

    fn id(k: u32) -> GroupViewId {
        let node = ViewId { epoch: 1, counter: 1 };
        GroupViewId { node, number: 1, k }
    }

    fn messages(first: u64) -> Run {
        let sender = Arc::new(Member {
            incarnation: Incarnation(1),
            name: "a".to_owned(),
            addr: ([127, 0, 0, 1], 7000).into(),
            further: Vec::new(),
            metadata: Default::default(),
            weight: 1,
        });
        let messages = antiphon_core::Messages {
            view: id(1),
            sender: sender.incarnation,
            first,
            block: Block::of(b"said"),
            ticket: None,
        };
        Run::Messages(Messages::new(messages, sender))
    }

    fn told(first: u64) -> Run {
        match messages(first) {
            Run::Messages(messages) => Run::Told(messages),
            other => other,
        }
    }

    fn view(k: u32) -> Run {
        Run::Event(Event::View(Arc::new(View {
            id: id(k),
            group: "g".into(),
            order: Order::Fifo,
            members: Vec::new(),
            joined: Vec::new(),
            left: Vec::new(),
            crashed: Vec::new(),
            causes: Vec::new(),
            transitional: Vec::new(),
            me: Incarnation(2),
            synced: None,
        })))
    }

    fn resync() -> Run {
        let cause = "removed".to_owned();
        Run::Event(Event::Resync { cause })
    }

    fn notice() -> Run {
        Run::Event(Event::Transitional { members: Vec::new() })
    }

    fn inbox(runs: impl IntoIterator<Item = Run>) -> Inbox {
        let mut inbox = Inbox::default();
        for run in runs {
            inbox.push(run);
        }
        inbox
    }

    /// What is in it, in short.
    fn rest(inbox: &mut Inbox) -> Vec<&'static str> {
        let name = |event: Event| match event {
            Event::Message(_) => "message",
            Event::Told(_) => "told",
            Event::View(_) => "view",
            Event::Transitional { .. } => "transitional",
            Event::Suspended => "suspended",
            Event::Resync { .. } => "resync",
            Event::Refused { .. } | Event::Left => "over",
        };
        std::iter::from_fn(|| inbox.pop().map(name)).collect()
    }

    /// Others delivered the first two messages between the two views. An application that lost these messages
    /// must see neither them nor the second view.
    #[test]
    fn a_view_that_was_not_read_in_time_is_dropped_with_the_messages_before_it() {
        let suspended = Run::Event(Event::Suspended);
        let mut inbox = inbox([
            messages(1),
            messages(2),
            notice(),
            view(2),
            messages(3),
            suspended,
            resync(),
        ]);
        inbox.discard_late();
        assert_eq!((inbox.len(), inbox.take_consumed().0), (2, 3));
        inbox.push(view(3));
        assert_eq!(rest(&mut inbox), ["suspended", "resync", "view"]);
        assert_eq!((inbox.len(), inbox.take_consumed().0), (0, 0));
    }

    /// The bound passes when the end is there already, and is lifted later.
    #[test]
    fn what_came_before_the_end_of_a_membership_is_not_read_after_it() {
        let mut inbox = inbox([messages(1), view(2), resync(), view(3), messages(1)]);
        assert!(matches!(inbox.pop_stop(), Some(Event::Resync { .. })));
        assert!(inbox.pop_stop().is_none());
        assert_eq!(inbox.take_consumed().0, 1, "whoever sent it waits for its credit");
        assert_eq!(rest(&mut inbox), ["view", "message"]);
    }

    #[test]
    fn what_one_member_told_is_credit_again_read_or_dropped_and_counts_apart() {
        let mut inbox = inbox([told(1), messages(1), told(2), resync(), told(1)]);
        assert_eq!(inbox.len(), 5);
        assert!(matches!(inbox.pop(), Some(Event::Told(message)) if message.seq == 1));
        assert_eq!(inbox.take_consumed(), (0, BTreeMap::from([(Incarnation(1), 1)])));
        inbox.discard_late();
        assert_eq!(inbox.take_consumed(), (1, BTreeMap::from([(Incarnation(1), 2)])));
        assert_eq!(rest(&mut inbox), ["resync"]);
    }

    #[cfg(feature = "blocks")]
    #[test]
    fn a_reader_may_keep_the_credit_for_what_it_took_and_not_for_what_it_never_got() {
        let mut inbox = inbox([messages(1), messages(2), messages(3), resync(), messages(4)]);
        inbox.keep_credit();
        inbox.pop();
        inbox.pop();
        assert!(!inbox.has_consumed());
        assert!(matches!(inbox.pop_stop(), Some(Event::Resync { .. })));
        assert_eq!(inbox.take_consumed().0, 1, "the third was dropped");
        inbox.give_back(2);
        assert_eq!(inbox.take_consumed().0, 2);
    }

    #[test]
    fn what_came_before_a_loss_of_the_primary_is_read_when_that_is_over() {
        let mut inbox = inbox([messages(1), view(2), Run::Event(Event::Suspended), messages(1)]);
        assert!(matches!(inbox.pop_stop(), Some(Event::Suspended)));
        assert!(inbox.pop_stop().is_none());
        assert_eq!(rest(&mut inbox), ["message", "view", "message"]);
    }
}
