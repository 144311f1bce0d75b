//! What waits for an application to read it, in order. Messages stay in their blocks until they are taken one by one.

use std::collections::VecDeque;

use crate::{Event, Messages};

/// One thing in a group's stream: consecutive messages of one sender, or another event.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Run {
    /// Messages; never none.
    Messages(Messages),
    /// Anything else. Never [`Event::Message`].
    Event(Event),
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    runs: VecDeque<Run>,
    /// Messages in it.
    messages: u64,
    /// Events among them that are not messages.
    notices: usize,
    /// Messages taken by the application whose credit the driver has not returned yet.
    consumed: u64,
    /// Nothing more will come.
    pub(super) ended: bool,
}

impl Inbox {
    /// Adds to the end; gives how many events other than messages wait.
    pub(super) fn push(&mut self, run: Run) -> usize {
        match &run {
            Run::Messages(messages) => self.messages += messages.len() as u64,
            Run::Event(_) => self.notices += 1,
        }
        self.runs.push_back(run);
        self.notices
    }

    pub(super) fn pop_run(&mut self) -> Option<Run> {
        let run = self.runs.pop_front()?;
        match &run {
            Run::Messages(messages) => self.took(messages.len() as u64),
            Run::Event(_) => self.notices -= 1,
        }
        Some(run)
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        if let Some(Run::Messages(messages)) = self.runs.front_mut()
            && let Some(message) = messages.next()
        {
            if messages.len() == 0 {
                self.runs.pop_front();
            }
            self.took(1);
            return Some(Event::Message(message));
        }
        match self.pop_run()? {
            Run::Event(event) => Some(event),
            Run::Messages(_) => None,
        }
    }

    /// The first event that tells the application to stop, or that it is over; what else waits stays where it is (R7).
    pub(super) fn pop_stop(&mut self) -> Option<Event> {
        let goes_on = |event: &Event| matches!(event, Event::View(_) | Event::Transitional { .. });
        let stops = |run: &Run| matches!(run, Run::Event(event) if !goes_on(event));
        let at = self.runs.iter().position(stops)?;
        match self.runs.remove(at)? {
            Run::Event(event) => {
                self.notices -= 1;
                Some(event)
            }
            Run::Messages(_) => None,
        }
    }

    /// Drops the messages that wait, as if they had been taken.
    pub(super) fn discard_messages(&mut self) {
        self.runs.retain(|run| matches!(run, Run::Event(_)));
        self.took(self.messages);
    }

    fn took(&mut self, messages: u64) {
        self.messages -= messages;
        self.consumed += messages;
    }

    pub(super) fn take_consumed(&mut self) -> u64 {
        std::mem::take(&mut self.consumed)
    }

    pub(super) fn has_consumed(&self) -> bool {
        self.consumed > 0
    }

    pub(super) fn len(&self) -> usize {
        self.messages as usize + self.notices
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
