//! Events as the crate `antiphon-api` declares them (feature `serde`): the one place that knows both. Serde
//! writes them as they are declared there, and as `antiphon node --json` prints them.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use antiphon_api as api;
use antiphon_core::wire::{Accusation, Cause, Incarnation, Member, NodeView, NodeViewId};
use antiphon_core::{LinkStatus, ViewChange};
use serde::{Serialize, Serializer};

use super::{Awaits, ClusterEvent, Event, Message, Part, View, rejection};

/// Writes an incarnation as the node's name where the view that comes with it knows the node; otherwise as
/// its first digits.
impl Serialize for ClusterEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let told = match self {
            ClusterEvent::View(view) => self.told(&|node| view.name_of(node)),
            ClusterEvent::PastView(view) => self.told(&|node| view.name_of(node)),
            _ => self.told(&|node| node.short()),
        };
        told.serialize(serializer)
    }
}

/// Without `group`, which an event does not know: see [`Event::told`].
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.told("").serialize(serializer)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        part(self).serialize(serializer)
    }
}

impl Serialize for View {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        group_view(self).serialize(serializer)
    }
}

/// The payload is a text, or `{"base64":"…"}` if it is none.
impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let payload = api::Payload::from_bytes(&self.payload);
        self.told("", payload).serialize(serializer)
    }
}

impl ClusterEvent {
    /// This event as the API has it. `name` says how to call a node of which the event has the incarnation
    /// alone. Needs the feature `serde`.
    pub fn told(&self, name: &dyn Fn(Incarnation) -> String) -> api::Event {
        match self {
            ClusterEvent::Incarnation(incarnation) => api::Event::Incarnation {
                incarnation: incarnation.to_string(),
            },
            ClusterEvent::Forming {
                missing,
                rejecting,
                agents,
                awaits,
            } => {
                let (present, needed) = match awaits {
                    Awaits::Founders { present, needed } => (Some(*present), Some(*needed)),
                    _ => (None, None),
                };
                api::Event::Forming {
                    missing: texts(missing),
                    present,
                    needed,
                    reason: rejection(rejecting, agents),
                }
            }
            ClusterEvent::Alone { reason } => api::Event::FoundedAlone {
                reason: reason.to_string(),
            },
            ClusterEvent::Discovery {
                source,
                found,
                problem,
            } => api::Event::Discovery {
                source: source.clone(),
                found: texts(found),
                problem: problem.clone(),
            },
            ClusterEvent::Merge { parts } => api::Event::Merge {
                parts: parts.iter().map(part).collect(),
            },
            ClusterEvent::View(view) => node_view(view, name),
            ClusterEvent::PastView(view) => past_view(view, name),
            ClusterEvent::Refused { reason, fatal } => api::Event::Refused {
                group: None,
                reason: reason.clone(),
                fatal: *fatal,
                request: None,
            },
            ClusterEvent::Expelled { cause } => api::Event::Expelled { cause: cause.clone() },
            ClusterEvent::Multicast { peer, hears } => api::Event::Multicast {
                peer: peer.name.clone(),
                hears: *hears,
            },
            ClusterEvent::Starved { missed, within } => api::Event::Starved {
                missed_ms: millis(*missed),
                within_ms: millis(*within),
            },
            ClusterEvent::Lease { held } => api::Event::Lease { held: *held },
            ClusterEvent::Path {
                peer,
                through,
                hears_directly,
                heard_directly,
            } => api::Event::Path {
                peer: peer.name.clone(),
                through: through.as_ref().map(|via| via.name.clone()),
                hears: *hears_directly,
                heard: *heard_directly,
            },
            ClusterEvent::Link {
                peer,
                links,
                number,
                cause,
            } => api::Event::Link {
                peer: peer.name.clone(),
                number: *number,
                cause: cause.to_string(),
                links: links.links.iter().map(link).collect(),
                in_use: links.in_use,
            },
            ClusterEvent::Left => api::Event::Left,
            ClusterEvent::Overrun => api::Event::Overrun,
        }
    }
}

impl Event {
    /// This event as the API has it, with the name of its group; a payload is in it as a whole. Needs the
    /// feature `serde`.
    pub fn told(&self, group: &str) -> api::Event {
        let group = group.to_owned();
        match self {
            Event::View(view) => api::Event::View(group_view(view)),
            Event::Message(message) => {
                let payload = api::Payload::from_bytes(&message.payload);
                api::Event::Message(message.told(&group, payload))
            }
            Event::Told(message) => {
                let payload = api::Payload::from_bytes(&message.payload);
                api::Event::Told(message.told(&group, payload))
            }
            Event::Transitional { members } => api::Event::Transitional {
                group,
                members: names(members),
            },
            Event::Suspended => api::Event::Suspended { group },
            Event::Resync { cause } => api::Event::Resync {
                group,
                cause: cause.clone(),
            },
            Event::Refused { reason } => api::Event::Refused {
                group: Some(group).filter(|group| !group.is_empty()),
                reason: reason.clone(),
                fatal: false,
                request: None,
            },
            Event::Left => api::Event::GroupLeft { group },
        }
    }
}

impl Message {
    /// This message as the API has it, with the name of its group and a payload that stands for its own.
    /// Needs the feature `serde`.
    pub fn told(&self, group: &str, payload: api::Payload) -> api::Message {
        api::Message {
            group: group.to_owned(),
            view: self.view.to_string(),
            sender: self.sender.name.clone(),
            seq: self.seq,
            part: 0,
            payload,
            safe: self.safe,
            scope: self.scope.map(|scope| scope.0),
        }
    }
}

fn node_view(view: &NodeView, name: &dyn Fn(Incarnation) -> String) -> api::Event {
    let mut told = api::NodeView {
        id: view_name(view.id, view.number),
        number: view.number,
        primary: view.is_primary(),
        members: view.members.iter().map(member).collect(),
        size: None,
        joined: view.joined.iter().map(|joined| name(*joined)).collect(),
        left: Vec::new(),
        crashed: Vec::new(),
    };
    for gone in &view.departed {
        depart(
            &mut told,
            departed(&gone.member),
            &gone.cause,
            &gone.accusers,
            name,
        );
    }
    api::Event::NodeView(told)
}

/// A view of which the history keeps only the changes.
fn past_view(view: &ViewChange, name: &dyn Fn(Incarnation) -> String) -> api::Event {
    let mut told = api::NodeView {
        id: view_name(view.id, view.number),
        number: view.number,
        primary: view.is_primary(),
        members: Vec::new(),
        size: Some(view.members),
        joined: view.joined.iter().map(|(_, name)| name.clone()).collect(),
        left: Vec::new(),
        crashed: Vec::new(),
    };
    for gone in &view.departed {
        let member = api::Departed {
            name: gone.name.clone(),
            incarnation: gone.incarnation.to_string(),
            addr: None,
            further: Vec::new(),
            metadata: Default::default(),
        };
        depart(&mut told, member, &gone.cause, &gone.accusers, name);
    }
    api::Event::NodeView(told)
}

/// A member left in order, or was removed.
fn depart(
    view: &mut api::NodeView,
    member: api::Departed,
    cause: &Cause,
    accusers: &[Accusation],
    name: &dyn Fn(Incarnation) -> String,
) {
    if *cause == Cause::Left {
        return view.left.push(member);
    }
    let said: Vec<String> = accusers.iter().map(|said| said.with_names(name)).collect();
    view.crashed.push(api::Removed {
        member,
        cause: cause.with_names(name),
        accusers: accusers.iter().map(|said| name(said.accuser)).collect(),
        evidence: said.join("; "),
        before_ms: accusers.iter().map(|said| said.before_ms).max().unwrap_or(0),
    });
}

fn member(member: &Member) -> api::ViewMember {
    api::ViewMember {
        name: member.name.clone(),
        incarnation: member.incarnation.to_string(),
        addr: member.addr.to_string(),
        further: texts(&member.further),
        metadata: member.metadata.clone(),
    }
}

fn departed(member: &Member) -> api::Departed {
    api::Departed {
        name: member.name.clone(),
        incarnation: member.incarnation.to_string(),
        addr: Some(member.addr.to_string()),
        further: texts(&member.further),
        metadata: member.metadata.clone(),
    }
}

fn part(part: &Part) -> api::Part {
    api::Part {
        lineage: part.lineage.to_string(),
        view: part.view.to_string(),
        members: names(&part.members),
    }
}

fn group_view(view: &View) -> api::View {
    let causes = view.causes.iter();
    api::View {
        group: view.group.to_string(),
        id: view.id.to_string(),
        members: names(&view.members),
        joined: names(&view.joined),
        left: names(&view.left),
        crashed: names(&view.crashed),
        causes: causes
            .map(|(member, cause)| (member.name.clone(), cause.clone()))
            .collect(),
        transitional: names(&view.transitional),
        // Groups install no view without a majority.
        primary: true,
        synced: view.synced.as_deref().map(names),
    }
}

fn names(members: &[Arc<Member>]) -> Vec<String> {
    members.iter().map(|member| member.name.clone()).collect()
}

fn texts(values: &[impl Display]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// A primary view is its number; a non-primary one shows what it is based on, the attempt and the proposer.
fn view_name(id: NodeViewId, number: u32) -> api::ViewName {
    match id {
        NodeViewId::Primary { .. } => api::ViewName::Primary(number),
        NodeViewId::NonPrimary {
            attempt, proposer, ..
        } => api::ViewName::NonPrimary(format!("{number}-{attempt}@{}", proposer.short())),
    }
}

fn link(link: &LinkStatus) -> api::PeerLink {
    api::PeerLink {
        addr: link.addr.to_string(),
        up: link.up,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use antiphon_core::wire::{Departure, Evidence, Lineage, ViewId};

    use super::*;

    fn member(name: &str, incarnation: u128) -> Member {
        Member {
            incarnation: Incarnation(incarnation << 96),
            name: name.to_owned(),
            addr: "127.0.0.1:1".parse().unwrap(),
            further: Vec::new(),
            metadata: BTreeMap::from([("role".to_owned(), "db".to_owned())]),
            weight: 1,
        }
    }

    fn view(id: NodeViewId, members: Vec<Member>, departed: Vec<Departure>) -> NodeView {
        NodeView {
            lineage: Lineage(1),
            id,
            number: 57301,
            members,
            joined: vec![],
            departed,
            merged: Vec::new(),
            wire_level: 1,
        }
    }

    const BASE: ViewId = ViewId { epoch: 1, counter: 4 };

    #[test]
    fn a_view_that_lost_members_names_each_with_cause_and_accusers() {
        let accuser = |accuser: u128, evidence| Accusation {
            accuser: Incarnation(accuser << 96),
            evidence,
            before_ms: accuser as u32,
        };
        let departed = vec![
            Departure {
                member: member("c", 3),
                cause: Cause::Left,
                accusers: vec![],
            },
            Departure {
                member: member("d", 4),
                cause: Cause::Crashed,
                accusers: vec![
                    accuser(1, Evidence::ProofOfDeath),
                    accuser(2, Evidence::Silent { for_ms: 1500 }),
                ],
            },
            Departure {
                member: member("e", 5),
                cause: Cause::Unreachable {
                    from: Incarnation(1 << 96),
                },
                accusers: vec![],
            },
        ];
        let view = view(
            NodeViewId::Primary { id: BASE },
            vec![member("a", 1), member("b", 2)],
            departed,
        );
        let names = view.clone();
        let event = ClusterEvent::View(Arc::new(view));
        let api::Event::NodeView(api::NodeView {
            id, left, crashed, ..
        }) = event.told(&|node| names.name_of(node))
        else {
            panic!("no node view");
        };
        assert_eq!(id, api::ViewName::Primary(57301));
        assert_eq!(left[0].name, "c");
        assert_eq!(left[0].addr.as_deref(), Some("127.0.0.1:1"));
        assert_eq!(left[0].metadata["role"], "db");
        assert_eq!(crashed[0].accusers, ["a", "b"]);
        assert!(
            crashed[0].evidence.contains("a: its process has ended"),
            "{}",
            crashed[0].evidence
        );
        assert!(
            crashed[0].evidence.contains("b: silent for 1500 ms"),
            "{}",
            crashed[0].evidence
        );
        assert_eq!(crashed[0].before_ms, 2);
        assert_eq!(crashed[1].cause, "unreachable from a");
    }

    #[test]
    fn a_view_without_a_majority_has_a_name_instead_of_a_number() {
        let id = NodeViewId::NonPrimary {
            base: BASE,
            attempt: 2,
            proposer: Incarnation(0xab12_cd34 << 96),
        };
        match node_view(&view(id, vec![member("a", 1)], vec![]), &|node| node.short()) {
            api::Event::NodeView(api::NodeView {
                id, number, primary, ..
            }) => {
                assert_eq!(id, api::ViewName::NonPrimary("57301-2@ab12cd34".into()));
                assert_eq!((number, primary), (57301, false));
            }
            other => panic!("{other:?}"),
        }
    }
}
