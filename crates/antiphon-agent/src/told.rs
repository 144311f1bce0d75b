//! From the library's events to those of the API, with what a session knows beside: names and files.

use std::time::{Duration, UNIX_EPOCH};

use antiphon::clients::{ClientEvent, ClientMember, Departure};
use antiphon::{ClusterEvent, Noted, WhyReport};
use antiphon_api::{Event, Message, NodeView, Payload, Told, View};

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
            // Those that were there before have seen the same.
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
            })
        }
        ClientEvent::Message(message) => Event::Message(Message {
            group,
            view: message.view.to_string(),
            sender: message.from.to_string(),
            seq: message.seq,
            payload: Payload::from_bytes(&message.payload),
            safe: message.safe,
            scope: None,
        }),
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

/// What is known about a name, one sentence each.
pub(crate) fn why(report: &WhyReport, names: &Names) -> Event {
    let facts = match report.entries.as_slice() {
        [] => vec![report.to_string()],
        entries => entries.iter().map(|entry| names.why(entry)).collect(),
    };
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
    use super::*;

    #[test]
    fn why_answers_also_about_a_name_nobody_knows() {
        let report = WhyReport {
            name: "x".into(),
            entries: vec![],
        };
        match why(&report, &Names::default()) {
            Event::Why { facts, .. } => assert!(facts[0].contains("no node called x")),
            other => panic!("{other:?}"),
        }
    }
}
