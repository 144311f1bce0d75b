//! What a group tells a session that is in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use antiphon::clients::ClientEvent;
use antiphon_api::Event;
use antiphon_api::blocks::{Kind as What, Lost, Reply};
use tokio::task::JoinHandle;

use crate::blocks::{Desk, Operation};
use crate::groups::Seat;
use crate::hub::SLOW;
use crate::metrics::Removal;
use crate::outlet::Outlet;
use crate::pipe::Pipe;
use crate::told::{self, MessageLines};

/// Tells a session the events of its group, until one of the two is over.
pub(crate) struct Follower {
    pub(crate) seat: Seat,
    pub(crate) group: String,
    /// The session takes no messages, and none is made into an event.
    pub(crate) unheard: Arc<AtomicBool>,
    pub(crate) desk: Arc<Desk>,
}

impl Follower {
    /// Begins when `before` is over, with the reply to the one that joined; `ended` is called if the group
    /// ends and the session does not.
    pub(crate) async fn follow(
        mut self,
        before: Option<JoinHandle<()>>,
        joins: Operation,
        ended: impl FnOnce(),
    ) {
        if let Some(before) = before {
            // It ends with its client, which has left.
            let _ = before.await;
        }
        joins.reply(Reply::default()).await;
        let desk = self.desk.clone();
        tokio::select! {
            biased;
            () = desk.until_over() => {}
            () = self.tell() => ended(),
        }
    }

    async fn tell(&mut self) {
        let (mut events, mut messages) = (Vec::new(), MessageLines::default());
        while self.seat.next(&mut events).await > 0 {
            match self.desk.outlet() {
                Outlet::Written(pipe) => self.write(pipe, &mut messages, events.drain(..)).await,
                _ => self.print(events.drain(..)).await,
            }
        }
    }

    async fn print(&self, events: impl Iterator<Item = ClientEvent>) {
        for event in events {
            if matches!(event, ClientEvent::Message(_)) && self.unheard.load(Ordering::Relaxed) {
                continue;
            }
            self.desk.print(self.told(&event)).await;
        }
    }

    async fn write(
        &self,
        pipe: &Pipe,
        messages: &mut MessageLines,
        mut events: impl ExactSizeIterator<Item = ClientEvent>,
    ) {
        let line = |text: &mut Vec<u8>| {
            match events.next() {
                Some(ClientEvent::Message(message)) => messages.write(&self.group, &message, text),
                Some(event) => self.told(&event).write_line(text),
                None => {}
            }
            events.len() > 0
        };
        pipe.fill(line).await;
    }

    /// An event of the group as the session is told it.
    fn told(&self, event: &ClientEvent) -> Event {
        told::client_event(&self.group, event).unwrap_or_else(|cause| {
            if cause.starts_with(SLOW) {
                self.desk.meters().slow(Removal::Group);
            }
            Event::Lost(Lost {
                what: What::Group,
                name: self.group.clone(),
                token: None,
                id: None,
                cause,
            })
        })
    }
}
