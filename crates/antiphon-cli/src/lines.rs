//! The JSON lines a node speaks: what it prints on stdout and what it takes on stdin.
//!
//! One type per direction, both readable and writable, so that the demo and the benchmark read what the node wrote with
//! the very types that wrote it. Shapes are a promise to programs in any language; the golden tests below pin them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The longest line taken on stdin, in bytes, without its end.
pub(crate) const MAX_LINE_BYTES: usize = 4 << 20;

/// One line of stdout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Line {
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
    /// The node goes on as a fresh incarnation (after `expelled` or a merge).
    Incarnation {
        /// 32 hex digits.
        incarnation: String,
    },
    /// No cluster yet.
    Forming {
        /// The seeds and locators that have not answered or are not ready.
        missing: Vec<String>,
        /// How many nodes are there of the `needed` ones to found a cluster, this one included. Left out if this node founds none.
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
        /// First those who were here already, then those of each component that gave way.
        parts: Vec<PartLine>,
    },
    /// A view of the cluster.
    NodeView {
        /// The number of a primary view, a string such as "57301-1@ab12cd34" for a non-primary one.
        id: ViewName,
        /// Strictly increasing from primary view to primary view; a non-primary view repeats its base's.
        number: u32,
        /// Whether this component may go on.
        primary: bool,
        /// By seniority: the first is the elder.
        members: Vec<MemberLine>,
        /// Names the previous primary view did not have.
        joined: Vec<String>,
        /// Names that left in order.
        left: Vec<String>,
        /// Those removed, with the reason.
        crashed: Vec<CrashLine>,
    },
    /// A link to a node with several addresses went up or down, or another one is used now. No view changes by it.
    Link {
        /// The node's name.
        peer: String,
        /// Which of its links changed: link j is its j-th address, from 0.
        number: usize,
        /// `works`, `silent`, `lost`, `refused`, `timed out`, or `last heard` if none is up and this one is used for that.
        cause: String,
        /// All its links, as they are now.
        links: Vec<LinkLine>,
        /// The number of the one that this node sends on.
        in_use: usize,
    },
    /// This node itself was stopped, or gets too little processor.
    Starved {
        /// For so many milliseconds it did not run although something was to be done.
        missed_ms: u64,
        /// In so many.
        within_ms: u64,
    },
    /// This node believes in its view, or does not for now, since no majority answers it: nothing is delivered meanwhile.
    Lease {
        /// Whether it believes.
        held: bool,
    },
    /// What is sent to a node goes through another one, since the direct path is dead, or goes directly again. No view changes by it.
    Path {
        /// The node's name.
        peer: String,
        /// The name of the one in between; `null`: nobody.
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
    View {
        /// The group's name.
        group: String,
        /// "number.k".
        id: String,
        /// Names by seniority in the group.
        members: Vec<String>,
        /// Names the previous view did not have.
        joined: Vec<String>,
        /// Names that left in order.
        left: Vec<String>,
        /// Names that were removed.
        crashed: Vec<String>,
        /// Why, by name, of those that the group itself removed while they were alive. Left out if there are none.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        causes: BTreeMap<String, String>,
        /// Those that come from the same previous view as this node: they delivered the same messages in it.
        transitional: Vec<String>,
        /// Always true: groups are suspended in a non-primary component and install no view there.
        primary: bool,
    },
    /// What follows until the group's next `view` was completed among these members only.
    Transitional {
        /// The group's name.
        group: String,
        /// Names.
        members: Vec<String>,
    },
    /// A message, in the group's order.
    Message {
        /// The group's name.
        group: String,
        /// The view it was sent and is delivered in.
        view: String,
        /// The sender's name.
        sender: String,
        /// The sender's number for it in this group, from 1 for each of its incarnations.
        seq: u64,
        /// What it says.
        payload: Payload,
        /// Whether its sender wanted it safe: every member of the view holds it, or all that `transitional` named.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        safe: bool,
        /// Its scope, in a scoped group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<u32>,
    },
    /// This component lost the majority: the group delivers nothing and takes no message until its next event.
    Suspended {
        /// The group's name.
        group: String,
    },
    /// The state held for the group is void; the next `view` is this node's first.
    Resync {
        /// The group's name.
        group: String,
        /// Why.
        cause: String,
    },
    /// What became of a message whose sending was pending when the majority was lost or this node removed.
    Receipt {
        /// The group's name.
        group: String,
        /// The how-manieth accepted send of this node to the group it was, from 1.
        ticket: u64,
        /// `delivered`, `not_delivered` or `unknown`.
        outcome: String,
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
    /// This node was removed while it was alive.
    Expelled {
        /// Why, and who said so.
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
        /// The `send` that was refused, if it is one that was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<serde_json::Value>,
    },
    /// The node left the group in order.
    GroupLeft {
        /// The group's name.
        group: String,
    },
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
        request: serde_json::Value,
    },
}

/// A link to a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LinkLine {
    /// The node's address.
    pub(crate) addr: String,
    /// Whether what is sent there arrives.
    pub(crate) up: bool,
}

/// A member of a node view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemberLine {
    /// Its name.
    pub(crate) name: String,
    /// 32 hex digits.
    pub(crate) incarnation: String,
    /// Where others reach it.
    pub(crate) addr: String,
    /// Where else they do, best first. Left out if nowhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) further: Vec<String>,
    /// As configured at that node.
    pub(crate) metadata: BTreeMap<String, String>,
}

/// Members that come from one component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartLine {
    /// The lineage of its views.
    pub(crate) lineage: String,
    /// The last primary view of it that they had installed.
    pub(crate) view: String,
    /// Their names, by seniority.
    pub(crate) members: Vec<String>,
}

impl PartLine {
    /// As the library tells it.
    pub(crate) fn of(part: &antiphon::Part) -> Self {
        Self {
            lineage: part.lineage.to_string(),
            view: part.view.to_string(),
            members: part.members.iter().map(|member| member.name.clone()).collect(),
        }
    }
}

/// A member that was removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CrashLine {
    /// Its name.
    pub(crate) name: String,
    /// `crashed`, `unreachable from NAME` or `superseded by a new start`.
    pub(crate) cause: String,
    /// The names of those that said so.
    pub(crate) accusers: Vec<String>,
    /// What each of them saw, for people.
    pub(crate) evidence: String,
    /// How long before the view was proposed the first of them said so, in milliseconds.
    pub(crate) before_ms: u32,
}

/// How a node view is called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum ViewName {
    /// A primary view: its number.
    Primary(u32),
    /// A non-primary view: the number it is based on, the attempt, the proposer.
    NonPrimary(String),
}

/// A message's bytes: a JSON string if they are UTF-8, `{"base64":"…"}` if not, `{"file":"…","bytes":n}` above 1 MiB. Each
/// form is taken on stdin, the last without `bytes` too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "payload must be a string, {\"base64\": \"…\"} or {\"file\": \"…\"}")]
pub(crate) enum Payload {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Binary {
        /// Standard alphabet, padded.
        base64: String,
    },
    /// What is in a file.
    File {
        /// Its path.
        file: String,
        /// Its length; of no meaning on stdin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
}

impl Payload {
    /// The bytes as a payload.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Payload::Text(text.to_owned()),
            Err(_) => Payload::Binary {
                base64: BASE64.encode(bytes),
            },
        }
    }

    /// The payload as bytes. What is in a file is read by whoever waits for disks.
    pub(crate) fn into_bytes(self) -> Result<Bytes, String> {
        match self {
            Payload::Text(text) => Ok(Bytes::from(text)),
            Payload::Binary { base64 } => BASE64
                .decode(base64.as_bytes())
                .map(Bytes::from)
                .map_err(|error| format!("the payload is no base64 (standard alphabet, padded): {error}")),
            Payload::File { file, .. } => std::fs::read(&file)
                .map(Bytes::from)
                .map_err(|error| format!("cannot read the file {file}: {error}")),
        }
    }
}

/// One line of stdin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Send a message.
    Send(SendRequest),
    /// Cut this node off from others, or heal it (with `--allow-faults`).
    Fault(FaultRequest),
    /// Tell what is known about a node.
    Why(WhyRequest),
    /// Leave in order and end.
    Leave(LeaveRequest),
}

/// `{"send":{"group":G,"payload":P,"safe":true,"scope":S}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendRequest {
    /// The group's name; the first group if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    /// What to say.
    pub(crate) payload: Payload,
    /// Deliver it only when every member of the view holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) safe: bool,
    /// In a scoped group, what it is about: its number, or a name of which one is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<ScopeName>,
}

/// A scope on standard input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "scope must be a number below 4294967296 or a string")]
pub(crate) enum ScopeName {
    /// As it is.
    Number(u32),
    /// What [`antiphon::Scope::named`] makes of it.
    Name(String),
}

impl ScopeName {
    /// What it stands for.
    pub(crate) fn scope(&self) -> antiphon::Scope {
        match self {
            ScopeName::Number(number) => antiphon::Scope(*number),
            ScopeName::Name(name) => antiphon::Scope::named(name),
        }
    }
}

/// `{"fault":{"block":[NAME,…]}}`; without names it clears all faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultRequest {
    /// Nothing is sent to or taken from these nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) block: Vec<String>,
}

/// `{"why":{"node":NAME}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhyRequest {
    /// The name asked for.
    pub(crate) node: String,
}

/// `{"leave":{}}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaveRequest {}

impl Line {
    /// The line without its end.
    pub(crate) fn to_json(&self) -> String {
        // Strings, numbers and string-keyed maps only: nothing in a `Line` can fail to serialise.
        serde_json::to_string(self).expect("a line has only string keys")
    }
}

impl Request {
    /// Reads a line of stdin. The error says what was expected.
    pub(crate) fn parse(line: &str) -> Result<Self, Box<Line>> {
        let error = |reason, request| Box::new(Line::Error { reason, request });
        let value: serde_json::Value = serde_json::from_str(line).map_err(|parse| {
            let example = r#"{"send":{"group":"chat","payload":"hello"}}"#;
            let reason = format!("not JSON ({parse}); expected one object, such as {example}");
            error(reason, serde_json::Value::String(shortened(line)))
        })?;
        serde_json::from_value(value.clone()).map_err(|parse| {
            let known = r#"{"send":{"group","payload","safe","scope"}}, {"fault":{"block":[names]}}, {"fault":{}}, {"why":{"node"}} or {"leave":{}}"#;
            error(format!("{parse}; expected {known}"), value)
        })
    }

    /// The request as it is echoed in an error.
    pub(crate) fn to_value(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a request has only string keys")
    }

    /// The line without its end.
    pub(crate) fn to_json(&self) -> String {
        self.to_value().to_string()
    }
}

/// The beginning of a text that may be long, for echoing.
pub(crate) fn shortened(text: &str) -> String {
    const SHOWN_CHARS: usize = 200;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
