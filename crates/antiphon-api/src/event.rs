//! What a node tells: one JSON object a line, or a text for people.
//!
//! Shapes are a promise to programs in any language; `golden/events.txt` pins each of them, with its text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::console::Suspicion;
use crate::text::now_ms;
use crate::{Payload, Payloads, blocks, commands};

/// Something that a node tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The node listens. Always the first line.
    Ready {
        /// The configured name.
        name: String,
        /// Where others reach it.
        addr: String,
        /// Where else they do, best first. Left out if nowhere.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        further: Vec<String>,
        /// 32 hex digits.
        incarnation: String,
    },
    /// An agent takes programs here.
    Serving {
        /// TCP addresses.
        addrs: Vec<String>,
        /// A Unix socket. Left out if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket: Option<String>,
        /// Where it takes commands of peers. Left out if nowhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commands: Option<String>,
    },
    /// To a client that may come back: so many of its lines were taken.
    Took {
        /// Since its first.
        lines: u64,
    },
    /// The node goes on as a fresh incarnation (after `expelled` or a merge).
    Incarnation {
        /// 32 hex digits.
        incarnation: String,
    },
    /// No cluster yet.
    Forming {
        /// The seeds and locators that have not answered or are not ready.
        missing: Vec<String>,
        /// How many nodes are there of the `needed` ones to found a cluster, this one included. Left out if
        /// this node founds none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        present: Option<usize>,
        /// How many it takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        needed: Option<usize>,
        /// What is probably wrong, if there is a sign of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// This node has founded a cluster of itself alone, as it was told.
    FoundedAlone {
        /// By which setting.
        reason: String,
    },
    /// A source of addresses found others than before, or cannot find any, or can again.
    Discovery {
        /// As it is written in `seeds`; a locator's with `locator ` in front.
        source: String,
        /// What is in use of it now.
        found: Vec<String>,
        /// What is wrong, if something is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// Policy `any`: components that went on apart meet in the view that follows.
    Merge {
        /// First the members that were here already, then those of each component that gave way.
        parts: Vec<Part>,
    },
    /// A view of the cluster.
    NodeView(NodeView),
    /// A link to a node with several addresses went up or down, or another one is used now. No view changes
    /// by it.
    Link {
        /// The node's name.
        peer: String,
        /// Which of its links changed: link j is its j-th address, from 0.
        number: usize,
        /// `works`, `silent`, `lost`, `refused`, `timed out`, or `last heard` if none is up and this one is
        /// used for that.
        cause: String,
        /// All its links, as they are now.
        links: Vec<PeerLink>,
        /// The number of the link that this node sends on.
        in_use: usize,
    },
    /// This node itself was stopped, or gets too little processor.
    Starved {
        /// For how many milliseconds it did not run although it had something to do.
        missed_ms: u64,
        /// In so many.
        within_ms: u64,
    },
    /// This node believes in its view, or does not for now, since no majority answers it: nothing is
    /// delivered meanwhile.
    Lease {
        /// Whether it believes.
        held: bool,
    },
    /// Since the direct path is dead, what this node sends to a node goes through another one; or it goes
    /// directly again. No view changes by it.
    Path {
        /// The node's name.
        peer: String,
        /// The name of the node in between; `null`: none.
        through: Option<String>,
        /// Whether this node hears it directly.
        hears: bool,
        /// Whether it hears this node directly.
        heard: bool,
    },
    /// A node hears this one's multicast now, or does not (any more) and is sent to directly.
    Multicast {
        /// The node's name.
        peer: String,
        /// Whether it hears.
        hears: bool,
    },
    /// A view of a group; messages that follow are delivered in it.
    View(View),
    /// What follows until the group's next `view` was completed among these members only.
    Transitional {
        /// The group's name. Left out of an event that stands alone, outside its group's stream.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        group: String,
        /// Names.
        members: Vec<String>,
    },
    /// A message, in the group's order.
    Message(Message),
    /// Messages that were sent together, in the group's order. Only for a client that joined with `bundles`.
    Bundle(Bundle),
    /// What a member told this one alone, in the order of its telling.
    Told(Message),
    /// This component lost the majority: the group delivers nothing and takes no message until its next
    /// event.
    Suspended {
        /// The group's name. Left out of an event that stands alone, outside its group's stream.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        group: String,
    },
    /// The state held for the group is void; the next `view` is this node's first.
    Resync {
        /// The group's name. Left out of an event that stands alone, outside its group's stream.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        group: String,
        /// Why.
        cause: String,
    },
    /// What became of a message that was still being sent when the majority was lost or this node was
    /// removed.
    Receipt {
        /// The group's name.
        group: String,
        /// The how-manieth accepted send of this node to the group it was, from 1.
        ticket: u64,
        /// `delivered`, `not_delivered` or `unknown`.
        outcome: String,
    },
    /// A direct message of this node was not delivered, or it is not known whether it was.
    TellReceipt {
        /// The group's name.
        group: String,
        /// The name of the member that it is for.
        to: String,
        /// The how-manieth accepted `tell` of this node to the group it was, from 1.
        ticket: u64,
        /// `not_delivered` or `unknown`.
        outcome: String,
        /// Why: `left`, `crashed`, as in the view without the receiver, or this member's own end.
        cause: String,
    },
    /// How far a payload above 1 MiB of this node is on its way; a few times for each.
    Progress {
        /// The group's name.
        group: String,
        /// The how-manieth send of this node to the group it is, from 1.
        ticket: u64,
        /// Bytes that every other member has.
        bytes: u64,
        /// Its bytes.
        length: u64,
    },
    /// The answer to an operation on a block.
    Reply(blocks::Reply),
    /// A lock, leadership or watch is over that was not given back.
    Lost(blocks::Lost),
    /// A watch begins, or begins anew.
    Watching(blocks::Watching),
    /// A key of a watched map changed.
    Changed(blocks::Changed),
    /// A member wants an answer.
    Request(blocks::Request),
    /// A node asks what this program serves of its list.
    Command(commands::Asked),
    /// Nobody waits for this program's answer any more: the time is over, or the caller has cancelled or is
    /// gone.
    Cancelled {
        /// The number of the `request` or `command`.
        request: u64,
    },
    /// This node was removed while it was alive.
    Expelled {
        /// Why, and which member said so.
        cause: String,
    },
    /// The cluster or a group refused this node.
    Refused {
        /// The group's name; null if the cluster refused.
        group: Option<String>,
        /// Which side must change what.
        reason: String,
        /// Whether trying again is pointless until the configuration changes: the node then ends.
        fatal: bool,
        /// The `send` that was refused, if it is one that was: as [`Command::echo`](crate::Command::echo)
        /// gives it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<Value>,
    },
    /// The node left the group in order.
    GroupLeft {
        /// The group's name. Left out of an event that stands alone, outside its group's stream.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        group: String,
    },
    /// One member began to suspect another; only while a console watches.
    Suspected(Suspicion),
    /// A suspicion was withdrawn, or the suspected member is gone; only while a console watches.
    Cleared {
        /// The member that suspected.
        accuser: String,
        /// The member that it suspected.
        accused: String,
    },
    /// More happened than the reader took: its stream of node events ends here. The program begins a new one
    /// instead, with the present state.
    Overrun,
    /// The node left in order. Always the last line.
    Left,
    /// The answer to `{"why":{"node":NAME}}`.
    Why {
        /// The name asked for.
        node: String,
        /// What this node knows, latest last, one readable sentence each.
        facts: Vec<String>,
    },
    /// A line of stdin was not carried out.
    Error {
        /// Why not.
        reason: String,
        /// The request as it came; a string if it was no JSON.
        request: Value,
    },
    /// Of a newer build: something that this one has no words for.
    #[serde(other)]
    Unknown,
}

/// An event and its time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// When, in milliseconds since 1970 by the clock of the node's host.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// A view of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// The number of a primary view, a string such as "57301-1@ab12cd34" for a non-primary one.
    pub id: ViewName,
    /// Strictly increasing from primary view to primary view; a non-primary view repeats its base's.
    pub number: u32,
    /// Whether this component may go on.
    pub primary: bool,
    /// By seniority: the first is the elder.
    pub members: Vec<ViewMember>,
    /// How many members it has. Only in the history of a large cluster, where the members of old views are
    /// not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// Names the previous primary view did not have.
    pub joined: Vec<String>,
    /// The members of the previous primary view that left in order.
    pub left: Vec<Departed>,
    /// The members that were removed, with the reason.
    pub crashed: Vec<Removed>,
}

/// A view of a group; messages that follow are delivered in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The group's name.
    pub group: String,
    /// "number.k".
    pub id: String,
    /// Names by seniority in the group.
    pub members: Vec<String>,
    /// Names the previous view did not have.
    pub joined: Vec<String>,
    /// Names that left in order.
    pub left: Vec<String>,
    /// Names that were removed.
    pub crashed: Vec<String>,
    /// Why, by name, of those that the group itself removed while they were alive. Left out if there are
    /// none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub causes: BTreeMap<String, String>,
    /// The members that come from the same previous view as this node: they delivered the same messages in
    /// it.
    pub transitional: Vec<String>,
    /// Always true: groups are suspended in a non-primary component and install no view there.
    pub primary: bool,
    /// Of a block: the names of the members that have its state. Left out while this node does not know it,
    /// and of other groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced: Option<Vec<String>>,
}

/// A message, in the group's order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The group's name. Left out of an event that stands alone, outside its group's stream.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The view it was sent and is delivered in.
    pub view: String,
    /// The sender's name.
    pub sender: String,
    /// The sender's number for it in this group, from 1 for each of its incarnations; of one that was told,
    /// its number for this member.
    pub seq: u64,
    /// Its place among those that its client sent together with it and that have the same number, from 0.
    /// Left out of the first.
    #[serde(default, skip_serializing_if = "is_first")]
    pub part: u32,
    /// What it says.
    pub payload: Payload,
    /// Whether its sender wanted it safe: every member of the view holds it, or all that `transitional`
    /// named.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe: bool,
    /// Its scope, in a scoped group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u32>,
}

fn is_first(part: &u32) -> bool {
    *part == 0
}

/// Messages that a client sent together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bundle {
    /// The group's name.
    pub group: String,
    /// The view they are delivered in.
    pub view: String,
    /// The sender's name.
    pub sender: String,
    /// The number of all of them: the sender's node counts its messages in this group.
    pub seq: u64,
    /// Whether their sender wanted them safe.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe: bool,
    /// What they say, in their order. Always the last field.
    pub payloads: Payloads,
}

/// A link to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerLink {
    /// The node's address.
    pub addr: String,
    /// Whether what is sent there arrives.
    pub up: bool,
}

/// A member of a node view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewMember {
    /// Its name.
    pub name: String,
    /// 32 hex digits.
    pub incarnation: String,
    /// Where others reach it.
    pub addr: String,
    /// Where else they do, best first. Left out if nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<String>,
    /// As configured at that node.
    pub metadata: BTreeMap<String, String>,
}

/// Members that come from one component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The lineage of its views.
    pub lineage: String,
    /// The last primary view of it that they had installed.
    pub view: String,
    /// Their names, by seniority.
    pub members: Vec<String>,
}

/// A node that is no member any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// Its name.
    pub name: String,
    /// 32 hex digits.
    pub incarnation: String,
    /// Where others reached it. Left out, as all below, of old views of a large cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// Where else they did, best first. Left out if nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further: Vec<String>,
    /// As configured at that node. Left out if there is none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// A member that was removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Removed {
    /// The member.
    #[serde(flatten)]
    pub member: Departed,
    /// `crashed`, `unreachable from NAME` or `superseded by a new start`.
    pub cause: String,
    /// The names of the members that said so.
    pub accusers: Vec<String>,
    /// What each of them saw, for people.
    pub evidence: String,
    /// How long before the view was proposed the first of them said so, in milliseconds.
    pub before_ms: u32,
}

/// How a node view is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ViewName {
    /// A primary view: its number.
    Primary(u32),
    /// A non-primary view: the number it is based on, the attempt, the proposer.
    NonPrimary(String),
}

impl NodeView {
    /// Its members' names, by seniority.
    pub fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| member.name.as_str()).collect()
    }

    /// Whether this incarnation is a member.
    pub fn has(&self, incarnation: &str) -> bool {
        self.members
            .iter()
            .any(|member| member.incarnation == incarnation)
    }
}

impl Told {
    /// Of this moment.
    pub fn now(event: Event) -> Self {
        let at_ms = now_ms();
        Self { at_ms, event }
    }
}

impl Event {
    /// The line without its end.
    pub fn to_json(&self) -> String {
        // Strings, numbers and string-keyed maps only: nothing in an `Event` can fail to serialise.
        serde_json::to_string(self).expect("a line has only string keys")
    }

    /// Appends the line with its end.
    pub fn write_line(&self, text: &mut Vec<u8>) {
        // As there, and writing to memory does not fail.
        serde_json::to_writer(&mut *text, self).expect("a line has only string keys");
        text.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const GOLDEN: &str = include_str!("../golden/events.txt");

    /// The golden file: each event's JSON, and its text.
    fn golden() -> Vec<(String, String)> {
        let mut told: Vec<(String, String)> = Vec::new();
        for line in GOLDEN.lines() {
            match (line.strip_prefix("    "), told.last_mut()) {
                (None, _) => told.push((line.to_owned(), String::new())),
                (Some(text), Some((_, last))) if last.is_empty() => text.clone_into(last),
                (Some(text), Some((_, last))) => *last = format!("{last}\n{text}"),
                (Some(_), None) => panic!("a text without an event"),
            }
        }
        told
    }

    #[test]
    fn each_event_is_written_read_and_said_as_the_golden_file_has_it() {
        for (json, text) in golden() {
            let event: Event = serde_json::from_str(&json).unwrap();
            assert_eq!(event.to_json(), json);
            let mut line = b"before ".to_vec();
            event.write_line(&mut line);
            assert_eq!(line, format!("before {json}\n").into_bytes());
            assert_eq!(event.to_string(), text, "{json}");
        }
    }

    /// A new variant does not compile here before it is named, and then fails before the golden file has it.
    #[test]
    fn the_golden_file_has_every_event() {
        fn follows(event: Option<&Event>) -> Option<&'static str> {
            Some(match event {
                None => "ready",
                Some(event) => match event {
                    Event::Ready { .. } => "serving",
                    Event::Serving { .. } => "took",
                    Event::Took { .. } => "incarnation",
                    Event::Incarnation { .. } => "forming",
                    Event::Forming { .. } => "founded_alone",
                    Event::FoundedAlone { .. } => "discovery",
                    Event::Discovery { .. } => "merge",
                    Event::Merge { .. } => "node_view",
                    Event::NodeView { .. } => "link",
                    Event::Link { .. } => "starved",
                    Event::Starved { .. } => "lease",
                    Event::Lease { .. } => "path",
                    Event::Path { .. } => "multicast",
                    Event::Multicast { .. } => "view",
                    Event::View { .. } => "transitional",
                    Event::Transitional { .. } => "message",
                    Event::Message { .. } => "bundle",
                    Event::Bundle { .. } => "told",
                    Event::Told { .. } => "suspended",
                    Event::Suspended { .. } => "resync",
                    Event::Resync { .. } => "receipt",
                    Event::Receipt { .. } => "tell_receipt",
                    Event::TellReceipt { .. } => "progress",
                    Event::Progress { .. } => "reply",
                    Event::Reply(_) => "lost",
                    Event::Lost(_) => "watching",
                    Event::Watching(_) => "changed",
                    Event::Changed(_) => "request",
                    Event::Request(_) => "command",
                    Event::Command(_) => "cancelled",
                    Event::Cancelled { .. } => "expelled",
                    Event::Expelled { .. } => "refused",
                    Event::Refused { .. } => "group_left",
                    Event::GroupLeft { .. } => "suspected",
                    Event::Suspected(_) => "cleared",
                    Event::Cleared { .. } => "overrun",
                    Event::Overrun => "left",
                    Event::Left => "why",
                    Event::Why { .. } => "error",
                    Event::Error { .. } | Event::Unknown => return None,
                },
            })
        }
        let golden: Vec<Event> = golden()
            .iter()
            .map(|(json, _)| serde_json::from_str(json).unwrap())
            .collect();
        let name = |event: &Event| serde_json::to_value(event).unwrap()["event"].clone();
        let known: BTreeSet<String> = golden.iter().map(|event| name(event).to_string()).collect();
        let mut last = None;
        let mut seen = 0;
        while let Some(next) = follows(last) {
            last = golden.iter().find(|event| name(event) == next);
            assert!(last.is_some(), "golden/events.txt lacks {next}");
            seen += 1;
        }
        assert_eq!(seen, known.len());
    }

    #[test]
    fn an_event_of_a_newer_build_is_passed_over() {
        let newer = r#"{"event":"from_the_future","x":1}"#;
        assert_eq!(serde_json::from_str::<Event>(newer).unwrap(), Event::Unknown);
    }

    #[test]
    fn what_was_told_has_its_time_and_further_lines_stand_under_the_text() {
        let told = Told {
            at_ms: 86_400_000 * 3 + 3_723_004,
            event: Event::Why {
                node: "a".into(),
                facts: vec!["left".into()],
            },
        };
        assert_eq!(
            told.to_string(),
            "1970-01-04 01:02:03.004  why a:\n                         left"
        );
        assert_eq!(
            crate::Today(&told).to_string(),
            "01:02:03.004  why a:\n              left"
        );
        let json = serde_json::to_string(&told).unwrap();
        assert!(json.starts_with(r#"{"at_ms":262923004,"event":"why""#), "{json}");
        assert_eq!(serde_json::from_str::<Told>(&json).unwrap(), told);
    }
}
