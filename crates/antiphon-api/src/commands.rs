//! Commands to peers: what a program asks other nodes to do, of the things that their lists allow.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::blocks::{Id, Span};

/// By which way a command goes to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The cluster's own links.
    #[default]
    Library,
    /// HTTP, a connection for each command.
    Http,
    /// HTTP over TLS, a connection for each command.
    Https,
    /// HTTP over connections that are kept.
    HttpKept,
    /// HTTP over TLS connections that are kept.
    HttpsKept,
    /// One WebSocket.
    Websocket,
    /// Connections with Redis' protocol.
    Resp,
    /// A datagram each way.
    Udp,
}

impl Way {
    /// All there are.
    pub const ALL: [Way; 8] = [
        Way::Library,
        Way::Http,
        Way::Https,
        Way::HttpKept,
        Way::HttpsKept,
        Way::Websocket,
        Way::Resp,
        Way::Udp,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Way::Library => "library",
            Way::Http => "http",
            Way::Https => "https",
            Way::HttpKept => "http_kept",
            Way::HttpsKept => "https_kept",
            Way::Websocket => "websocket",
            Way::Resp => "resp",
            Way::Udp => "udp",
        }
    }

    /// The way of a word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word() == word)
    }
}

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "an argument must be a string, a whole number, true or false")]
pub enum Value {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A text.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Boolean(value) => value.fmt(f),
            Value::Integer(value) => value.fmt(f),
            Value::Text(value) => value.fmt(f),
        }
    }
}

/// A command's arguments, by name.
pub type Args = BTreeMap<String, Value>;

/// Which nodes are asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[serde(expecting = "to must be \"all\", \"one\", \"any\" or a list of names")]
pub enum To {
    /// By a word.
    Word(Word),
    /// By their names.
    Nodes(Vec<String>),
}

/// Nodes without their names, of those that the list lets be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Each.
    All,
    /// One, by turns, and no other if it fails.
    One,
    /// One, by turns; the next one as long as it is certain that it did not run.
    Any,
}

/// `{"command":{"verb":V,"args":{…},"to":"all","by":"http","reply":false,"within":"2s","id":1}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// What to do.
    pub verb: String,
    /// With what.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: Args,
    /// Which nodes.
    pub to: To,
    /// How it gets to them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by: Way,
    /// Whether their replies are wanted.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub reply: bool,
    /// How long it may take; as long as the list says if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Span>,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

fn yes() -> bool {
    true
}

fn is_default(way: &Way) -> bool {
    *way == Way::default()
}

/// `{"serve_command":{"verb":V,"id":2}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// A verb that the list delivers to sessions.
    pub verb: String,
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// `{"commands":{"id":3}}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskStatus {
    /// For the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
}

/// A node asks what this program serves: to be answered by [`Answer`](crate::blocks::Answer).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Its number, for the answer.
    pub request: u64,
    /// What to do.
    pub verb: String,
    /// The node that asks.
    pub from: String,
    /// With what: as the list says.
    pub args: Args,
    /// How much time there is.
    pub within_ms: u64,
}
