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
    /// Bytes of them, about.
    consumed_bytes: usize,
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
            Run::Messages(messages) => self.took(messages.len() as u64, messages.bytes()),
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
            self.took(1, message.payload.len());
            return Some(Event::Message(message));
        }
        match self.pop_run()? {
            Run::Event(event) => Some(event),
            Run::Messages(_) => None,
        }
    }

    fn took(&mut self, messages: u64, bytes: usize) {
        self.messages -= messages;
        self.consumed += messages;
        self.consumed_bytes += bytes;
    }

    pub(super) fn take_consumed(&mut self) -> u64 {
        self.consumed_bytes = 0;
        std::mem::take(&mut self.consumed)
    }

    /// Messages, and about how many bytes, whose credit is to be returned.
    pub(super) fn consumed(&self) -> (u64, usize) {
        (self.consumed, self.consumed_bytes)
    }

    pub(super) fn len(&self) -> usize {
        self.messages as usize + self.notices
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}
