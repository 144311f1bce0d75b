//! Events as `antiphon-api` has them, and as `antiphon node --json` prints them (feature `serde`): one object
//! each, with the field `event`. They are read by the types of that crate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::json::millis;
use antiphon_core::wire::{GroupViewId, Incarnation, Lineage, Member, NodeView, ViewId};
use antiphon_core::{Alone, Awaits, LinkCause, LinkStatus, ViewChange};
use base64::Engine as _;
use serde::{Serialize, Serializer};

use super::{ClusterEvent, Event, Message, Part, Scope, View, rejection};

/// The objects. `group` is left out where it is not known.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Incarnation {
        incarnation: Incarnation,
    },
    Forming {
        missing: &'a [SocketAddr],
        #[serde(skip_serializing_if = "Option::is_none")]
        present: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        needed: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    FoundedAlone {
        reason: Alone,
    },
    Discovery {
        source: &'a str,
        found: &'a [SocketAddr],
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<&'a str>,
    },
    Merge {
        parts: &'a [Part],
    },
    NodeView(&'a NodeView),
    #[serde(rename = "node_view")]
    PastView(&'a ViewChange),
    Link {
        peer: &'a str,
        number: usize,
        cause: LinkCause,
        links: &'a [LinkStatus],
        in_use: usize,
    },
    Starved {
        #[serde(with = "millis")]
        missed_ms: Duration,
        #[serde(with = "millis")]
        within_ms: Duration,
    },
    Lease {
        held: bool,
    },
    Path {
        peer: &'a str,
        through: Option<&'a str>,
        hears: bool,
        heard: bool,
    },
    Multicast {
        peer: &'a str,
        hears: bool,
    },
    Expelled {
        cause: &'a str,
    },
    Left,
    Overrun,
    View(&'a View),
    Transitional {
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a str>,
        members: Vec<&'a str>,
    },
    Message {
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a str>,
        #[serde(flatten)]
        message: &'a Message,
    },
    Suspended {
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a str>,
    },
    Resync {
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a str>,
        cause: &'a str,
    },
    Refused {
        group: Option<&'a str>,
        reason: &'a str,
        fatal: bool,
    },
    GroupLeft {
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a str>,
    },
}

impl Serialize for ClusterEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let line = match self {
            ClusterEvent::Incarnation(incarnation) => Line::Incarnation {
                incarnation: *incarnation,
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
                Line::Forming {
                    missing,
                    present,
                    needed,
                    reason: rejection(rejecting),
                }
            }
            ClusterEvent::Alone { reason } => Line::FoundedAlone { reason: *reason },
            ClusterEvent::Discovery {
                source,
                found,
                problem,
            } => Line::Discovery {
                source,
                found,
                problem: problem.as_deref(),
            },
            ClusterEvent::Merge { parts } => Line::Merge { parts },
            ClusterEvent::View(view) => Line::NodeView(view),
            ClusterEvent::PastView(view) => Line::PastView(view),
            ClusterEvent::Refused { reason, fatal } => Line::Refused {
                group: None,
                reason,
                fatal: *fatal,
            },
            ClusterEvent::Expelled { cause } => Line::Expelled { cause },
            ClusterEvent::Link {
                peer,
                links,
                number,
                cause,
            } => Line::Link {
                peer: &peer.name,
                number: *number,
                cause: *cause,
                links: &links.links,
                in_use: links.in_use,
            },
            ClusterEvent::Starved { missed, within } => Line::Starved {
                missed_ms: *missed,
                within_ms: *within,
            },
            ClusterEvent::Lease { held } => Line::Lease { held: *held },
            ClusterEvent::Path {
                peer,
                through,
                hears_directly,
                heard_directly,
            } => Line::Path {
                peer: &peer.name,
                through: through.as_ref().map(|through| through.name.as_str()),
                hears: *hears_directly,
                heard: *heard_directly,
            },
            ClusterEvent::Multicast { peer, hears } => Line::Multicast {
                peer: &peer.name,
                hears: *hears,
            },
            ClusterEvent::Left => Line::Left,
            ClusterEvent::Overrun => Line::Overrun,
        };
        line.serialize(serializer)
    }
}

/// Without `group` in any but a view, since an event does not know it: see [`Event::of_group`].
impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        line(self, None).serialize(serializer)
    }
}

impl Event {
    /// This event as `antiphon node --json` prints it, with the name of its group; a payload above 1 MiB is
    /// in it as a whole. Needs the feature `serde`.
    pub fn of_group<'a>(&'a self, group: &'a str) -> impl Serialize + 'a {
        line(self, Some(group))
    }
}

fn line<'a>(event: &'a Event, group: Option<&'a str>) -> Line<'a> {
    match event {
        Event::View(view) => Line::View(view),
        Event::Message(message) => Line::Message { group, message },
        Event::Transitional { members } => Line::Transitional {
            group,
            members: names(members),
        },
        Event::Suspended => Line::Suspended { group },
        Event::Resync { cause } => Line::Resync { group, cause },
        Event::Refused { reason } => Line::Refused {
            group,
            reason,
            fatal: false,
        },
        Event::Left => Line::GroupLeft { group },
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            lineage: Lineage,
            view: ViewId,
            members: Vec<&'a str>,
        }
        let written = Written {
            lineage: self.lineage,
            view: self.view,
            members: names(&self.members),
        };
        written.serialize(serializer)
    }
}

impl Serialize for View {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Written<'a> {
            group: &'a str,
            id: GroupViewId,
            members: Vec<&'a str>,
            joined: Vec<&'a str>,
            left: Vec<&'a str>,
            crashed: Vec<&'a str>,
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            causes: BTreeMap<&'a str, &'a str>,
            transitional: Vec<&'a str>,
            primary: bool,
        }
        let causes = self.causes.iter();
        let written = Written {
            group: &self.group,
            id: self.id,
            members: names(&self.members),
            joined: names(&self.joined),
            left: names(&self.left),
            crashed: names(&self.crashed),
            causes: causes
                .map(|(member, cause)| (member.name.as_str(), cause.as_str()))
                .collect(),
            transitional: names(&self.transitional),
            // Groups install no view without a majority.
            primary: true,
        };
        written.serialize(serializer)
    }
}

/// The payload is a text, or `{"base64":"…"}` if it is none.
impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Payload<'a> {
            Text(&'a str),
            Binary { base64: String },
        }
        #[derive(Serialize)]
        struct Written<'a> {
            view: GroupViewId,
            sender: &'a str,
            seq: u64,
            payload: Payload<'a>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            safe: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            scope: Option<Scope>,
        }
        let written = Written {
            view: self.view,
            sender: &self.sender.name,
            seq: self.seq,
            payload: match std::str::from_utf8(&self.payload) {
                Ok(text) => Payload::Text(text),
                Err(_) => Payload::Binary {
                    base64: base64::engine::general_purpose::STANDARD.encode(&self.payload),
                },
            },
            safe: self.safe,
            scope: self.scope,
        };
        written.serialize(serializer)
    }
}

fn names(members: &[Arc<Member>]) -> Vec<&str> {
    members.iter().map(|member| member.name.as_str()).collect()
}
