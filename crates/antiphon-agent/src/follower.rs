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
    /// The session is told no messages, and none is made into an event.
    pub(crate) unheard: Arc<AtomicBool>,
    pub(crate) desk: Arc<Desk>,
}

impl Follower {
    /// Waits for `before`, the follower of the session's former membership, and then replies to the join.
    /// Calls `ended` if the membership is over before the session.
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

#[cfg(test)]
mod tests {
    use antiphon::memory::MemoryNetwork;
    use antiphon::{Cluster, Profile};
    use antiphon_api::{Command, Payload};

    use super::*;
    use crate::Hub;
    use crate::hub::Events;

    /// The next event; messages are noted too.
    async fn next(events: &mut Events, told: &mut Vec<Payload>) -> Event {
        let event = events.next().await.expect("the session goes on");
        if let Event::Message(message) = &event {
            told.push(message.payload.clone());
        }
        event
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_that_does_not_hear_a_group_is_told_no_messages_and_all_else() {
        let builder = Cluster::builder("follower").name("n1").bind("10.0.0.1:7400");
        let builder = builder.memory(&MemoryNetwork::new()).profile(Profile::local());
        let hub = Hub::new(builder.found().start().await.unwrap());
        let (session, mut events) = hub.session().unwrap();
        let join = || Command::parse(r#"{"join":{"group":"g"}}"#).unwrap();
        session.obey(join()).await;
        let mut told = Vec::new();
        while !matches!(next(&mut events, &mut told).await, Event::View(_)) {}
        for (hears, payload) in [(true, "one"), (false, "two"), (true, "three")] {
            session.hears("g", hears);
            let line = format!(r#"{{"send":{{"group":"g","payload":"{payload}","id":1}}}}"#);
            session.obey(Command::parse(&line).unwrap()).await;
            while !matches!(next(&mut events, &mut told).await, Event::Reply(reply) if reply.id.is_some()) {}
            // The view is behind the message: the follower has passed both.
            let (other, _told) = hub.session().unwrap();
            other.obey(join()).await;
            while !matches!(next(&mut events, &mut told).await, Event::View(_)) {}
        }
        assert_eq!(
            told,
            [Payload::Text("one".to_owned()), Payload::Text("three".to_owned())]
        );
    }
}
