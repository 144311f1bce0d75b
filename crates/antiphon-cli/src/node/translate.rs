//! From the library's events to lines.

use std::net::SocketAddr;
use std::sync::Arc;

use antiphon::{
    Alone, Awaits, Cause, ClusterEvent, Departure, Event, LinkCause, LinkStatus, Member, NodeView,
    NodeViewId, Outcome, PathTrouble, View, WhyReport,
};

use super::spool::Spool;
use crate::lines::{CrashLine, Line, LinkLine, MemberLine, PartLine, ViewName};

/// What incarnations are called, and what is told of them.
#[derive(Debug, Default)]
pub(crate) struct Names(antiphon::console::Names);

impl Names {
    /// Remembers everyone a view speaks of.
    pub(crate) fn learn(&mut self, view: &NodeView) {
        self.0.learn(view);
    }

    fn crash(&self, departure: &Departure) -> CrashLine {
        CrashLine {
            name: departure.member.name.clone(),
            cause: self.0.cause(&departure.cause),
            accusers: departure
                .accusers
                .iter()
                .map(|accusation| self.0.name(accusation.accuser))
                .collect(),
            evidence: self.0.accusations(&departure.accusers),
            before_ms: departure
                .accusers
                .iter()
                .map(|accusation| accusation.before_ms)
                .max()
                .unwrap_or(0),
        }
    }

    /// A node view.
    pub(crate) fn node_view(&self, view: &NodeView) -> Line {
        let (left, crashed): (Vec<_>, Vec<_>) = view
            .departed
            .iter()
            .partition(|departure| departure.cause == Cause::Left);
        Line::NodeView {
            id: view_name(view),
            number: view.number,
            primary: view.is_primary(),
            members: view
                .members
                .iter()
                .map(|member| MemberLine {
                    name: member.name.clone(),
                    incarnation: member.incarnation.to_string(),
                    addr: member.addr.to_string(),
                    further: member.further.iter().map(ToString::to_string).collect(),
                    metadata: member.metadata.clone(),
                })
                .collect(),
            joined: view.joined.iter().map(|joined| self.0.name(*joined)).collect(),
            left: left
                .into_iter()
                .map(|departure| departure.member.name.clone())
                .collect(),
            crashed: crashed
                .into_iter()
                .map(|departure| self.crash(departure))
                .collect(),
        }
    }

    /// A node event; `None` for those that the node's end takes care of.
    pub(crate) fn cluster_event(&mut self, event: ClusterEvent) -> Option<Line> {
        match event {
            ClusterEvent::Incarnation(incarnation) => Some(Line::Incarnation {
                incarnation: incarnation.to_string(),
            }),
            ClusterEvent::Forming {
                missing,
                rejecting,
                awaits,
            } => {
                let (present, needed) = match awaits {
                    Awaits::Founders { present, needed } => (Some(present), Some(needed)),
                    _ => (None, None),
                };
                Some(Line::Forming {
                    missing: missing.iter().map(ToString::to_string).collect(),
                    present,
                    needed,
                    reason: rejection(&rejecting),
                })
            }
            ClusterEvent::Alone { reason } => Some(Line::FoundedAlone {
                reason: match reason {
                    Alone::Told => "--found or --expect 1 is given".to_owned(),
                    Alone::NobodyLeft => {
                        "it was a member, hears of nobody who is, and the policy is any".to_owned()
                    }
                    _ => "no seeds but itself, no other source of addresses and no --expect are given"
                        .to_owned(),
                },
            }),
            ClusterEvent::Discovery {
                source,
                found,
                problem,
            } => Some(Line::Discovery {
                source,
                found: found.iter().map(ToString::to_string).collect(),
                problem,
            }),
            ClusterEvent::Merge { parts } => Some(Line::Merge {
                parts: parts.iter().map(PartLine::of).collect(),
            }),
            ClusterEvent::View(view) => {
                self.learn(&view);
                Some(self.node_view(&view))
            }
            ClusterEvent::Refused { reason, fatal } => Some(Line::Refused {
                group: None,
                reason,
                fatal,
                request: None,
            }),
            ClusterEvent::Expelled { cause } => Some(Line::Expelled { cause }),
            ClusterEvent::Multicast { peer, hears } => Some(Line::Multicast {
                peer: peer.name.clone(),
                hears,
            }),
            ClusterEvent::Starved { missed, within } => Some(Line::Starved {
                missed_ms: u64::try_from(missed.as_millis()).unwrap_or(u64::MAX),
                within_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
            }),
            ClusterEvent::Lease { held } => Some(Line::Lease { held }),
            ClusterEvent::Path {
                peer,
                through,
                hears_directly,
                heard_directly,
            } => Some(Line::Path {
                peer: peer.name.clone(),
                through: through.map(|via| via.name.clone()),
                hears: hears_directly,
                heard: heard_directly,
            }),
            ClusterEvent::Link {
                peer,
                links,
                number,
                cause,
            } => Some(Line::Link {
                peer: peer.name.clone(),
                number,
                cause: link_cause(cause).to_owned(),
                links: links.links.iter().map(link_line).collect(),
                in_use: links.in_use,
            }),
            _ => None,
        }
    }

    /// What is known about a name, one sentence each.
    pub(crate) fn why(&self, report: &WhyReport) -> Line {
        let mut facts: Vec<String> = report.entries.iter().map(|entry| self.0.why(entry)).collect();
        if facts.is_empty() {
            facts.push(format!(
                "no node called {} was in a view while this node was in the cluster",
                report.name
            ));
        }
        Line::Why {
            node: report.name.clone(),
            facts,
        }
    }
}

/// An event of a group. One that is a large payload takes as long as the disk does.
pub(crate) fn group_event(name: &str, event: Event, spool: &Spool) -> Option<Line> {
    let group = name.to_owned();
    Some(match event {
        Event::View(view) => group_view(group, &view),
        Event::Message(message) => Line::Message {
            group,
            view: message.view.to_string(),
            sender: message.sender.name.clone(),
            seq: message.seq,
            payload: spool.payload(name, &message),
            safe: message.safe,
            scope: message.scope.map(|scope| scope.0),
        },
        Event::Transitional { members } => Line::Transitional {
            group,
            members: names(&members),
        },
        Event::Suspended => Line::Suspended { group },
        Event::Resync { cause } => Line::Resync { group, cause },
        Event::Refused { reason } => Line::Refused {
            group: Some(group),
            reason,
            fatal: false,
            request: None,
        },
        Event::Left => Line::GroupLeft { group },
        _ => return None,
    })
}

fn group_view(group: String, view: &View) -> Line {
    Line::View {
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
    }
}

/// How an outcome is written.
pub(crate) fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered => "delivered",
        Outcome::NotDelivered => "not_delivered",
        Outcome::Unknown => "unknown",
    }
}

fn names(members: &[Arc<Member>]) -> Vec<String> {
    members.iter().map(|member| member.name.clone()).collect()
}

/// A primary view is its number; a non-primary one shows what it is based on, the attempt and the proposer.
fn view_name(view: &NodeView) -> ViewName {
    match view.id {
        NodeViewId::Primary { .. } => ViewName::Primary(view.number),
        NodeViewId::NonPrimary {
            attempt, proposer, ..
        } => ViewName::NonPrimary(format!("{}-{attempt}@{}", view.number, proposer.short())),
    }
}

/// What to tell whoever started a node whose frames are not accepted.
fn rejection(by: &[SocketAddr]) -> Option<String> {
    let by: Vec<String> = by.iter().map(ToString::to_string).collect();
    (!by.is_empty()).then(|| {
        format!(
            "{} closed each connection after this node's first frame: check that --key-file and --cluster are the \
             same here and there (the log there says which differs)",
            by.join(", ")
        )
    })
}

fn link_line(link: &LinkStatus) -> LinkLine {
    LinkLine {
        addr: link.addr.to_string(),
        up: link.up,
    }
}

fn link_cause(cause: LinkCause) -> &'static str {
    match cause {
        LinkCause::Works => "works",
        LinkCause::Silent => "silent",
        LinkCause::Trouble(PathTrouble::Lost) => "lost",
        LinkCause::Trouble(PathTrouble::Refused) => "refused",
        LinkCause::Trouble(PathTrouble::TimedOut) => "timed out",
        LinkCause::LastHeard => "last heard",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use antiphon::{Accusation, Evidence, Incarnation, Lineage, ViewId};

    use super::*;

    fn member(name: &str, incarnation: u128) -> Member {
        Member {
            incarnation: Incarnation(incarnation << 96),
            name: name.to_owned(),
            addr: "127.0.0.1:1".parse().unwrap(),
            further: Vec::new(),
            metadata: BTreeMap::new(),
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
        let Some(Line::NodeView {
            id, left, crashed, ..
        }) = names.cluster_event(ClusterEvent::View(Arc::new(view)))
        else {
            panic!("no node view");
        };
        assert_eq!(id, ViewName::Primary(57301));
        assert_eq!(left, ["c"]);
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
        match Names::default().node_view(&view(id, vec![member("a", 1)], vec![])) {
            Line::NodeView {
                id, number, primary, ..
            } => {
                assert_eq!(id, ViewName::NonPrimary("57301-2@ab12cd34".into()));
                assert_eq!((number, primary), (57301, false));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn why_answers_also_about_a_name_nobody_knows() {
        match Names::default().why(&WhyReport {
            name: "x".into(),
            entries: vec![],
        }) {
            Line::Why { facts, .. } => assert!(facts[0].contains("no node called x")),
            other => panic!("{other:?}"),
        }
    }
}
