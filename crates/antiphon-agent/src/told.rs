//! From the library's events to those of the API: the one place that knows both.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use antiphon::{
    Accusation, Awaits, Cause, ClusterEvent, LinkStatus, Member, NodeView, NodeViewId, Noted, View,
    ViewChange, WhyReport, rejection,
};
use antiphon_api::{Departed, Event, Part, PeerLink, Removed, Told, ViewMember, ViewName};

use crate::Names;
use crate::stdio::Spool;

/// A noted event as it is told; none if there is nothing to tell of it.
pub(crate) fn noted(noted: &Noted, names: &Names) -> Option<Told> {
    Some(Told {
        at_ms: millis(noted.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        event: cluster_event(&noted.event, names)?,
    })
}

/// A node event, with the names of the members that it speaks of.
pub(crate) fn cluster_event(event: &ClusterEvent, names: &Names) -> Option<Event> {
    Some(match event {
        ClusterEvent::Incarnation(incarnation) => Event::Incarnation {
            incarnation: incarnation.to_string(),
        },
        ClusterEvent::Forming {
            missing,
            rejecting,
            awaits,
        } => {
            let (present, needed) = match awaits {
                Awaits::Founders { present, needed } => (Some(*present), Some(*needed)),
                _ => (None, None),
            };
            Event::Forming {
                missing: missing.iter().map(ToString::to_string).collect(),
                present,
                needed,
                reason: rejection(rejecting),
            }
        }
        ClusterEvent::Alone { reason } => Event::FoundedAlone {
            reason: reason.to_string(),
        },
        ClusterEvent::Discovery {
            source,
            found,
            problem,
        } => Event::Discovery {
            source: source.clone(),
            found: found.iter().map(ToString::to_string).collect(),
            problem: problem.clone(),
        },
        ClusterEvent::Merge { parts } => Event::Merge {
            parts: parts.iter().map(part).collect(),
        },
        ClusterEvent::View(view) => node_view(view, names),
        ClusterEvent::PastView(view) => past_view(view, names),
        ClusterEvent::Refused { reason, fatal } => Event::Refused {
            group: None,
            reason: reason.clone(),
            fatal: *fatal,
            request: None,
        },
        ClusterEvent::Expelled { cause } => Event::Expelled { cause: cause.clone() },
        ClusterEvent::Multicast { peer, hears } => Event::Multicast {
            peer: peer.name.clone(),
            hears: *hears,
        },
        ClusterEvent::Starved { missed, within } => Event::Starved {
            missed_ms: millis(*missed),
            within_ms: millis(*within),
        },
        ClusterEvent::Lease { held } => Event::Lease { held: *held },
        ClusterEvent::Path {
            peer,
            through,
            hears_directly,
            heard_directly,
        } => Event::Path {
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
        } => Event::Link {
            peer: peer.name.clone(),
            number: *number,
            cause: cause.to_string(),
            links: links.links.iter().map(link).collect(),
            in_use: links.in_use,
        },
        ClusterEvent::Left => Event::Left,
        _ => return None,
    })
}

fn node_view(view: &NodeView, names: &Names) -> Event {
    let departed = view.departed.iter().map(|departure| {
        let removed = removed(
            departed(&departure.member),
            &departure.cause,
            &departure.accusers,
            names,
        );
        (&departure.cause, removed)
    });
    let (left, crashed) = by_cause(departed);
    Event::NodeView(antiphon_api::NodeView {
        id: view_name(view.id, view.number),
        number: view.number,
        primary: view.is_primary(),
        members: view.members.iter().map(member).collect(),
        size: None,
        joined: view.joined.iter().map(|joined| names.name(*joined)).collect(),
        left,
        crashed,
    })
}

/// A view of which only the changes are kept.
fn past_view(view: &ViewChange, names: &Names) -> Event {
    let departed = view.departed.iter().map(|departed| {
        let member = Departed {
            name: departed.name.clone(),
            incarnation: departed.incarnation.to_string(),
            addr: None,
            further: Vec::new(),
            metadata: Default::default(),
        };
        (
            &departed.cause,
            removed(member, &departed.cause, &departed.accusers, names),
        )
    });
    let (left, crashed) = by_cause(departed);
    Event::NodeView(antiphon_api::NodeView {
        id: view_name(view.id, view.number),
        number: view.number,
        primary: view.is_primary(),
        members: Vec::new(),
        size: Some(view.members),
        joined: view.joined.iter().map(|(_, name)| name.clone()).collect(),
        left,
        crashed,
    })
}

/// The members that left in order, and those that were removed.
fn by_cause<'a>(departed: impl Iterator<Item = (&'a Cause, Removed)>) -> (Vec<Departed>, Vec<Removed>) {
    let (mut left, mut crashed) = (Vec::new(), Vec::new());
    for (cause, removed) in departed {
        match cause {
            Cause::Left => left.push(removed.member),
            _ => crashed.push(removed),
        }
    }
    (left, crashed)
}

fn removed(member: Departed, cause: &Cause, accusers: &[Accusation], names: &Names) -> Removed {
    Removed {
        member,
        cause: names.cause(cause),
        accusers: accusers
            .iter()
            .map(|accusation| names.name(accusation.accuser))
            .collect(),
        evidence: names.accusations(accusers),
        before_ms: accusers
            .iter()
            .map(|accusation| accusation.before_ms)
            .max()
            .unwrap_or(0),
    }
}

fn member(member: &Member) -> ViewMember {
    ViewMember {
        name: member.name.clone(),
        incarnation: member.incarnation.to_string(),
        addr: member.addr.to_string(),
        further: member.further.iter().map(ToString::to_string).collect(),
        metadata: member.metadata.clone(),
    }
}

fn departed(member: &Member) -> Departed {
    Departed {
        name: member.name.clone(),
        incarnation: member.incarnation.to_string(),
        addr: Some(member.addr.to_string()),
        further: member.further.iter().map(ToString::to_string).collect(),
        metadata: member.metadata.clone(),
    }
}

fn part(part: &antiphon::Part) -> Part {
    Part {
        lineage: part.lineage.to_string(),
        view: part.view.to_string(),
        members: names(&part.members),
    }
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
pub(crate) fn group_event(name: &str, event: antiphon::Event, spool: &Spool) -> Option<Event> {
    let group = name.to_owned();
    Some(match event {
        antiphon::Event::View(view) => group_view(group, &view),
        antiphon::Event::Message(message) => Event::Message(antiphon_api::Message {
            group,
            view: message.view.to_string(),
            sender: message.sender.name.clone(),
            seq: message.seq,
            payload: spool.payload(name, &message),
            safe: message.safe,
            scope: message.scope.map(|scope| scope.0),
        }),
        antiphon::Event::Transitional { members } => Event::Transitional {
            group,
            members: names(&members),
        },
        antiphon::Event::Suspended => Event::Suspended { group },
        antiphon::Event::Resync { cause } => Event::Resync { group, cause },
        antiphon::Event::Refused { reason } => Event::Refused {
            group: Some(group),
            reason,
            fatal: false,
            request: None,
        },
        antiphon::Event::Left => Event::GroupLeft { group },
        _ => return None,
    })
}

fn group_view(group: String, view: &View) -> Event {
    Event::View(antiphon_api::View {
        group,
        id: view.id.to_string(),
        members: names(&view.members),
        joined: names(&view.joined),
        left: names(&view.left),
        crashed: names(&view.crashed),
        causes: view
            .causes
            .iter()
            .map(|(member, cause)| (member.name.clone(), cause.clone()))
            .collect(),
        transitional: names(&view.transitional),
        primary: true,
    })
}

fn names(members: &[Arc<Member>]) -> Vec<String> {
    members.iter().map(|member| member.name.clone()).collect()
}

/// A primary view is its number; a non-primary one shows what it is based on, the attempt and the proposer.
fn view_name(id: NodeViewId, number: u32) -> ViewName {
    match id {
        NodeViewId::Primary { .. } => ViewName::Primary(number),
        NodeViewId::NonPrimary {
            attempt, proposer, ..
        } => ViewName::NonPrimary(format!("{number}-{attempt}@{}", proposer.short())),
    }
}

fn link(link: &LinkStatus) -> PeerLink {
    PeerLink {
        addr: link.addr.to_string(),
        up: link.up,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use antiphon::{Accusation, Departure, Evidence, Incarnation, Lineage, ViewId};

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
        let mut names = Names::default();
        names.learn(&view);
        let Some(Event::NodeView(antiphon_api::NodeView {
            id, left, crashed, ..
        })) = cluster_event(&ClusterEvent::View(Arc::new(view)), &names)
        else {
            panic!("no node view");
        };
        assert_eq!(id, ViewName::Primary(57301));
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
        match node_view(&view(id, vec![member("a", 1)], vec![]), &Names::default()) {
            Event::NodeView(antiphon_api::NodeView {
                id, number, primary, ..
            }) => {
                assert_eq!(id, ViewName::NonPrimary("57301-2@ab12cd34".into()));
                assert_eq!((number, primary), (57301, false));
            }
            other => panic!("{other:?}"),
        }
    }

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
