//! What a group tells a session that is in it.

use std::sync::Arc;

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
    pub(crate) desk: Arc<Desk>,
    /// Payloads are told as they are, behind their lines.
    pub(crate) bytes: bool,
}

impl Follower {
    /// Waits for `before`, the follower of the session's former membership, and then replies to the join.
    /// Calls `ended` before it tells that the membership is over, and again when nothing more is told.
    pub(crate) async fn follow(mut self, before: Option<JoinHandle<()>>, joins: Operation, ended: impl Fn()) {
        if let Some(before) = before {
            // It ends with its client, which has left.
            let _ = before.await;
        }
        joins.reply(Reply::default()).await;
        let desk = self.desk.clone();
        tokio::select! {
            biased;
            () = desk.until_over() => {}
            () = self.tell(ended) => {}
        }
    }

    async fn tell(&mut self, ended: impl Fn()) {
        let (mut events, mut messages) = (Vec::new(), MessageLines::default());
        while self.seat.next(&mut events).await > 0 {
            // Nothing follows it, and a program that is told so may join again at once.
            if let Some(ClientEvent::Left { .. }) = events.last() {
                ended();
            }
            match self.desk.outlet() {
                Outlet::Written(pipe) => self.write(pipe, &mut messages, events.drain(..)).await,
                _ => self.print(events.drain(..)).await,
            }
        }
        ended();
    }

    async fn print(&self, events: impl Iterator<Item = ClientEvent>) {
        for event in events {
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
                Some(ClientEvent::Message(message)) => {
                    messages.write(&self.group, &message, self.bytes, text)
                }
                Some(ClientEvent::Bundle(bundle)) => {
                    told::write_bundle(&self.group, &bundle, self.bytes, text)
                }
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
    use std::time::Duration;

    use antiphon::memory::MemoryNetwork;
    use antiphon::{Cluster, Profile};
    use antiphon_api::{Command, Payload};
    use tokio::time::timeout;

    use super::*;
    use crate::Hub;
    use crate::hub::Events;
    use crate::testing::{Agent, SOON, until};

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
        let (mut told, mut others) = (Vec::new(), Vec::new());
        while !matches!(next(&mut events, &mut told).await, Event::View(_)) {}
        for (hears, payload) in [(true, "one"), (false, "two"), (true, "three")] {
            session.hears("g", hears);
            let line = format!(r#"{{"send":{{"group":"g","payload":"{payload}","id":1}}}}"#);
            session.obey(Command::parse(&line).unwrap()).await;
            while !matches!(next(&mut events, &mut told).await, Event::Reply(reply) if reply.id.is_some()) {}
            // The view is behind the message: the follower has passed both.
            let (other, unread) = hub.session().unwrap();
            other.obey(join()).await;
            // It stays: the view without it could come in the next round.
            others.push((other, unread));
            while !matches!(next(&mut events, &mut told).await, Event::View(_)) {}
        }
        assert_eq!(
            told,
            [Payload::Text("one".to_owned()), Payload::Text("three".to_owned())]
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_session_may_join_again_before_it_is_told_that_a_group_was_lost() {
        let agent = Agent::alone().await;
        let (session, mut events) = agent.hub.session().unwrap();
        let join = Command::parse(r#"{"join":{"group":"g"}}"#).unwrap();
        session.obey(join).await;
        while !matches!(events.next().await, Some(Event::View(_))) {}
        // So much waits for the program that it cannot be told more.
        let tell = || timeout(Duration::from_millis(200), session.tell(Event::Took { lines: 0 }));
        while tell().await.is_ok() {}
        agent.hub.close().await;
        until(|| !session.has_joined("g")).await;
        let lost = async { while !matches!(events.next().await, Some(Event::Lost(_))) {} };
        timeout(SOON, lost).await.expect("it is told");
    }

    /// Each line that it is told, as an event.
    async fn lines(text: &mut crate::pipe::Text, count: usize) -> Vec<Event> {
        let mut said = Vec::new();
        while said.iter().filter(|byte| **byte == b'\n').count() < count {
            assert!(text.ready().await);
            said.extend_from_slice(text.left());
            text.advance(text.left().len());
        }
        let lines = std::str::from_utf8(&said).unwrap().lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bundle_is_one_line_for_a_program_that_asks_for_it_and_a_line_each_for_others() {
        let builder = Cluster::builder("bundles").name("n1").bind("10.0.0.1:7400");
        let builder = builder.memory(&MemoryNetwork::new()).profile(Profile::local());
        let hub = Hub::new(builder.found().start().await.unwrap());
        let (whole, mut whole_told) = hub.session_in_lines(true).unwrap();
        let (each, mut each_told) = hub.session_in_lines(false).unwrap();
        let parse = |line: &str| Command::parse(line).unwrap();
        whole
            .obey(parse(r#"{"join":{"group":"g","bundles":true}}"#))
            .await;
        lines(&mut whole_told, 2).await;
        each.obey(parse(r#"{"join":{"group":"g"}}"#)).await;
        lines(&mut each_told, 2).await;
        lines(&mut whole_told, 1).await;
        let payloads = r#"["one","","tw\"o\n",{"base64":"/wD+"},"grüße"]"#;
        let send = format!(r#"{{"send_bundle":{{"group":"g","payloads":{payloads},"safe":true}}}}"#);
        each.obey(parse(&send)).await;
        let told = lines(&mut whole_told, 1).await;
        let [Event::Bundle(bundle)] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(serde_json::to_string(&bundle.payloads).unwrap(), payloads);
        assert!(bundle.safe && bundle.sender == "n1/c2");
        let told = lines(&mut each_told, 5).await;
        let parts = told.iter().map(|event| match event {
            Event::Message(message) => (
                message.seq,
                message.part,
                message.payload.clone().into_bytes().unwrap(),
            ),
            other => panic!("{other:?}"),
        });
        let expected = bundle.payloads.iter().enumerate();
        let expected = expected.map(|(part, payload)| (bundle.seq, part as u32, payload.to_vec().into()));
        assert!(parts.eq(expected), "{told:?}");
        for (line, expected) in [
            (
                r#"{"send_bundle":{"group":"g","payloads":[],"id":1}}"#.to_owned(),
                "1 to 4096 messages",
            ),
            (
                r#"{"send_bundle":{"group":"h","payloads":["x"],"id":2}}"#.to_owned(),
                "has not joined h",
            ),
            (
                format!(
                    r#"{{"send_bundle":{{"group":"g","payloads":["{}"],"id":3}}}}"#,
                    "x".repeat(1 << 20)
                ),
                "send it in parts",
            ),
        ] {
            each.obey(parse(&line)).await;
            let told = lines(&mut each_told, 1).await;
            assert!(told[0].to_json().contains(expected), "{told:?}");
        }
        // Without an id a refusal names what was refused.
        each.obey(parse(r#"{"send_bundle":{"group":"g","payloads":[]}}"#))
            .await;
        let told = lines(&mut each_told, 1).await;
        assert!(
            told[0].to_json().contains(r#""request":{"send_bundle":"#),
            "{told:?}"
        );
        // And of a long one no more than its program needs to know which it was.
        let long = "x".repeat(1 << 20);
        each.obey(parse(&format!(
            r#"{{"send":{{"group":"g","payload":"{long}"}}}}"#
        )))
        .await;
        let told = lines(&mut each_told, 1).await;
        let request = r#""request":{"send":{"group":"g"}}"#;
        assert!(told[0].to_json().contains(request), "{told:?}");
        // Payloads that were not read are none, also for the node's own program.
        let (queue, mut told) = crate::outlet::queue();
        let own = hub.open(Outlet::Queued(queue), true).unwrap();
        own.obey(parse(
            r#"{"send_bundle":{"group":"g","payloads":{"bytes":[3,5]}}}"#,
        ))
        .await;
        let told = told.next().await.unwrap();
        assert!(told.to_json().contains("bytes behind a line"), "{told:?}");
    }
}
