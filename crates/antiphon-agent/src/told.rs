//! From the library's events to those of the API, with what a session knows beside: names and files.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use antiphon::clients::{
    ClientBundle, ClientEntry, ClientEvent, ClientMember, ClientMessage, ClientViewId, Departure,
};
use antiphon::{ClusterEvent, Noted, WhyReport};
use antiphon_api::{Bundle, Event, Message, NodeView, Payload, Payloads, Told, View};
use serde::Serialize;

use crate::Names;
use crate::stdio::Spool;

/// A noted event as it is told.
pub(crate) fn noted(noted: &Noted, names: &Names) -> Told {
    Told {
        at_ms: millis(noted.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        event: cluster_event(&noted.event, names),
    }
}

/// A node event, with the names of the members that it speaks of.
pub(crate) fn cluster_event(event: &ClusterEvent, names: &Names) -> Event {
    event.told(&|node| names.name(node))
}

/// A view of the cluster.
pub(crate) fn node_view(view: &std::sync::Arc<antiphon::NodeView>, names: &Names) -> NodeView {
    match cluster_event(&ClusterEvent::View(view.clone()), names) {
        Event::NodeView(view) => view,
        other => unreachable!("a view is told as one: {other:?}"),
    }
}

/// An event of a group of clients.
///
/// # Errors
/// The client's membership is over otherwise than by its own word, and why.
pub(crate) fn client_event(group: &str, event: &ClientEvent) -> Result<Event, String> {
    let names = |members: &[ClientMember]| members.iter().map(ToString::to_string).collect();
    let group = group.to_owned();
    Ok(match event {
        ClientEvent::View(view) => {
            let (mut left, mut crashed, mut causes) =
                (Vec::new(), Vec::new(), std::collections::BTreeMap::new());
            for (member, departure) in &view.departed {
                match departure {
                    Departure::Left => left.push(member.to_string()),
                    Departure::Lost { cause } => {
                        crashed.push(member.to_string());
                        causes.insert(member.to_string(), cause.clone());
                    }
                }
            }
            // Clients that were there before have seen the same.
            let stayed = view
                .members
                .iter()
                .filter(|member| member.client.since != view.id);
            Event::View(View {
                group,
                id: view.id.to_string(),
                members: names(&view.members),
                joined: names(&view.joined),
                left,
                crashed,
                causes,
                transitional: stayed.map(ToString::to_string).collect(),
                primary: true,
                synced: None,
            })
        }
        ClientEvent::Message(said) => {
            let said = Said::of(said);
            Event::Message(said.message(group, Payload::from_bytes(said.payload)))
        }
        ClientEvent::Bundle(said) => {
            let mut bundle = bundle(group, said);
            bundle.payloads = said.payloads.slices().collect();
            Event::Bundle(bundle)
        }
        ClientEvent::Transitional { members } => Event::Transitional {
            group,
            members: names(members),
        },
        ClientEvent::Suspended => Event::Suspended { group },
        ClientEvent::Resync { cause } => Event::Resync {
            group,
            cause: cause.to_string(),
        },
        ClientEvent::Left {
            departure: Departure::Left,
        } => Event::GroupLeft { group },
        ClientEvent::Left {
            departure: Departure::Lost { cause },
        } => return Err(cause.clone()),
        other => return Err(format!("something of a newer build: {other:?}")),
    })
}

/// A message of a client.
struct Said<'a> {
    from: &'a ClientMember,
    view: ClientViewId,
    seq: u64,
    part: u32,
    safe: bool,
    payload: &'a [u8],
}

impl<'a> Said<'a> {
    fn of(message: &'a ClientMessage) -> Self {
        Self {
            from: &message.from,
            view: message.view,
            seq: message.seq,
            part: message.part,
            safe: message.safe,
            payload: &message.payload,
        }
    }

    fn message(&self, group: String, payload: Payload) -> Message {
        Message {
            group,
            view: self.view.to_string(),
            sender: self.from.to_string(),
            seq: self.seq,
            part: self.part,
            payload,
            safe: self.safe,
            scope: None,
        }
    }
}

/// Lines of a group's messages. The beginning that all messages of one client in one view share is made once.
/// A line is the same as that of the event.
#[derive(Debug, Default)]
pub(crate) struct MessageLines {
    /// For the clients that spoke last. While an entry is kept here, its address stays that of this client.
    beginnings: Vec<(Arc<ClientEntry>, ClientViewId, Vec<u8>)>,
    next: usize,
}

/// For how many clients the beginnings of lines are kept.
const MAX_BEGINNINGS: usize = 8;

impl MessageLines {
    /// Appends the line of a message. `behind`: and its payload as it is, behind the line.
    pub(crate) fn write(&mut self, group: &str, message: &ClientMessage, behind: bool, text: &mut Vec<u8>) {
        self.line(group, &Said::of(message), behind, text);
    }

    fn line(&mut self, group: &str, said: &Said<'_>, behind: bool, text: &mut Vec<u8>) {
        text.extend_from_slice(self.beginning(group, said));
        write_number(said.seq, text);
        if said.part > 0 {
            text.extend_from_slice(b",\"part\":");
            write_number(said.part, text);
        }
        text.extend_from_slice(b",\"payload\":");
        if behind {
            text.extend_from_slice(b"{\"bytes\":");
            write_number(said.payload.len(), text);
            text.push(b'}');
        } else {
            Payload::write_json(said.payload, text);
        }
        let end: &[u8] = if said.safe { b",\"safe\":true}\n" } else { b"}\n" };
        text.extend_from_slice(end);
        if behind {
            text.extend_from_slice(said.payload);
        }
    }

    /// All before the number.
    fn beginning(&mut self, group: &str, said: &Said<'_>) -> &[u8] {
        let client = &said.from.client;
        let is_it = |(of, view, _): &(Arc<ClientEntry>, ClientViewId, Vec<u8>)| {
            Arc::ptr_eq(of, client) && *view == said.view
        };
        let place = self.beginnings.iter().position(is_it).unwrap_or_else(|| {
            let event = Event::Message(Message {
                seq: 0,
                part: 0,
                safe: false,
                ..said.message(group.to_owned(), Payload::Text(String::new()))
            });
            let mut line = event.to_json();
            let end = "0,\"payload\":\"\"}";
            assert!(line.ends_with(end), "a message's line ends so: {line}");
            line.truncate(line.len() - end.len());
            let new = (client.clone(), said.view, line.into_bytes());
            self.next = (self.next + 1) % MAX_BEGINNINGS;
            match self.beginnings.get_mut(self.next) {
                Some(old) => {
                    *old = new;
                    self.next
                }
                None => {
                    self.beginnings.push(new);
                    self.beginnings.len() - 1
                }
            }
        });
        &self.beginnings[place].2
    }
}

/// A bundle as it is told, without its payloads.
fn bundle(group: String, said: &ClientBundle) -> Bundle {
    Bundle {
        group,
        view: said.view.to_string(),
        sender: said.from.to_string(),
        seq: said.seq,
        safe: said.safe,
        payloads: Payloads::default(),
    }
}

/// Appends the line of a bundle. `behind`: and its payloads as they are, behind the line.
pub(crate) fn write_bundle(group: &str, said: &ClientBundle, behind: bool, text: &mut Vec<u8>) {
    let line = Event::Bundle(bundle(group.to_owned(), said)).to_json();
    let before = line.strip_suffix("[]}").expect("the payloads are its last field");
    text.extend_from_slice(before.as_bytes());
    let begin: &[u8] = if behind { b"{\"bytes\":[" } else { b"[" };
    text.extend_from_slice(begin);
    for (place, payload) in said.payloads.slices().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        match behind {
            true => write_number(payload.len(), text),
            false => Payload::write_json(payload, text),
        }
    }
    let end: &[u8] = if behind { b"]}}\n" } else { b"]}\n" };
    text.extend_from_slice(end);
    if behind {
        said.payloads
            .slices()
            .for_each(|payload| text.extend_from_slice(payload));
    }
}

fn write_number(number: impl Serialize, text: &mut Vec<u8>) {
    serde_json::to_writer(text, &number).expect("a number is written to memory");
}

/// What is known about a name, one sentence each. `no_view`: why the node that answers is in no view; then it
/// says nothing of a node that was never in one.
pub(crate) fn why(report: &WhyReport, names: &Names, no_view: Option<String>) -> Event {
    let mut facts: Vec<String> = match report.entries.as_slice() {
        [] if no_view.is_some() => Vec::new(),
        [] => vec![report.to_string()],
        entries => entries.iter().map(|entry| names.why(entry)).collect(),
    };
    facts.extend(no_view.map(|why| format!("now: the node that answers is in no view; {why}")));
    Event::Why {
        node: report.name.clone(),
        facts,
    }
}

/// An event of a group. One that is a large payload takes as long as the disk does.
pub(crate) fn group_event(group: &str, event: &antiphon::Event, spool: &Spool) -> Event {
    match event {
        antiphon::Event::Message(message) => {
            Event::Message(message.told(group, spool.payload(group, message)))
        }
        _ => event.told(group),
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use antiphon::clients::ClientId;
    use antiphon_core::wire::{GroupViewId, Incarnation, Member, ViewId};

    use super::*;

    fn member(number: u32, name: &str) -> ClientMember {
        let node = Member {
            incarnation: Incarnation(7),
            name: "knöt\"en".to_owned(),
            addr: ([127, 0, 0, 1], 1).into(),
            further: Vec::new(),
            metadata: BTreeMap::new(),
            weight: 1,
        };
        let id = ClientId {
            node: node.incarnation,
            number,
        };
        let client = ClientEntry {
            id,
            name: name.to_owned(),
            since: view(1),
        };
        ClientMember {
            node: Arc::new(node),
            client: Arc::new(client),
        }
    }

    fn view(change: u32) -> ClientViewId {
        let node = ViewId { epoch: 1, counter: 4 };
        let group = GroupViewId {
            node,
            number: 57301,
            k: 4,
        };
        ClientViewId { group, change }
    }

    #[test]
    fn a_messages_line_is_that_of_its_event_whichever_clients_spoke_before() {
        let clients: Vec<ClientMember> = (0..20)
            .map(|number| member(number, &format!("c{number}\\")))
            .collect();
        let payloads: [&[u8]; 8] = [
            b"",
            b"plain text",
            b"with \"quotes\"",
            b"back\\slash",
            b"line\nand\x00more\x1f\x7f",
            "grüße".as_bytes(),
            b"\xff\x00\xfe",
            &[b'x'; 5000],
        ];
        let mut lines = MessageLines::default();
        for turn in 0..400usize {
            let said = Said {
                // Some speak often, others come and go.
                from: &clients[(turn * turn) % clients.len()],
                view: view((turn / 7) as u32),
                seq: (turn as u64).pow(5),
                part: (turn % 5) as u32,
                safe: turn % 3 == 0,
                payload: payloads[turn % payloads.len()],
            };
            let mut text = b"before".to_vec();
            lines.line("a \"group\"", &said, false, &mut text);
            let event = said.message("a \"group\"".to_owned(), Payload::from_bytes(said.payload));
            let expected = format!("before{}\n", Event::Message(event).to_json());
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
        assert!(lines.beginnings.len() <= MAX_BEGINNINGS);
    }

    #[test]
    fn why_answers_also_about_a_name_nobody_knows() {
        let report = WhyReport {
            name: "x".into(),
            entries: vec![],
        };
        for (no_view, expected) in [
            (None, "no node called x"),
            (
                Some("it is not admitted".to_owned()),
                "is in no view; it is not admitted",
            ),
        ] {
            match why(&report, &Names::default(), no_view) {
                Event::Why { facts, .. } => assert!(matches!(&facts[..], [fact] if fact.contains(expected))),
                other => panic!("{other:?}"),
            }
        }
    }
}
