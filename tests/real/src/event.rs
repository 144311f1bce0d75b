//! What a node says with `--json`, read independently of the code that writes it.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::path::Path;

use serde::Deserialize;

/// One line of a node's standard output.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The node listens.
    Ready {
        /// Its first incarnation.
        incarnation: String,
    },
    /// It goes on as a fresh incarnation.
    Incarnation {
        /// Which.
        incarnation: String,
    },
    /// No cluster yet.
    Forming {
        /// The seeds missed.
        missing: Vec<String>,
        /// How many nodes are there that may found.
        #[serde(default)]
        present: Option<usize>,
        /// How many it takes.
        #[serde(default)]
        needed: Option<usize>,
        /// What the node thinks is wrong.
        #[serde(default)]
        reason: Option<String>,
    },
    /// It has founded a cluster of itself.
    FoundedAlone {
        /// By which setting.
        reason: String,
    },
    /// A source of addresses found others than before, or cannot.
    Discovery {
        /// As it was given.
        source: String,
        /// What is in use of it.
        found: Vec<String>,
        /// What is wrong.
        #[serde(default)]
        problem: Option<String>,
    },
    /// Components meet in the view that follows.
    Merge {
        /// Who comes from where.
        parts: Vec<Part>,
    },
    /// A view of the cluster.
    NodeView(NodeView),
    /// A link to a node changed.
    Link {
        /// The node.
        peer: String,
        /// Which link.
        number: usize,
        /// What happened to it.
        cause: String,
        /// Which is used now.
        in_use: usize,
    },
    /// Its lease of the primary began, or is over.
    Lease {
        /// Whether what it believes of the primary can be relied upon.
        held: bool,
    },
    /// The node itself was stopped, or gets too little processor.
    Starved {
        /// For so many milliseconds it did not run.
        missed_ms: u64,
        /// In so many.
        within_ms: u64,
    },
    /// What is sent to a node goes through another one, or directly again.
    Path {
        /// The node.
        peer: String,
        /// The one in between.
        through: Option<String>,
    },
    /// A node hears this one's multicast, or does not.
    Multicast {
        /// The node.
        peer: String,
        /// Whether it hears.
        hears: bool,
    },
    /// A view of a group.
    View(View),
    /// What follows was completed by a flush.
    Transitional {
        /// Which group.
        group: String,
    },
    /// A message.
    Message(Message),
    /// The group's majority is lost.
    Suspended {
        /// Which group.
        group: String,
    },
    /// The state held for the group is void.
    Resync {
        /// Which group.
        group: String,
        /// Why.
        cause: String,
    },
    /// What became of a pending message.
    Receipt {
        /// Which group.
        group: String,
        /// Which accepted send of this process to the group, from 1.
        ticket: u64,
        /// `delivered`, `not_delivered` or `unknown`.
        outcome: String,
    },
    /// How far a large payload is.
    Progress {
        /// Which send of this process to the group, from 1.
        ticket: u64,
        /// Bytes that all others have.
        bytes: u64,
        /// Its bytes.
        length: u64,
    },
    /// Removed while alive.
    Expelled {
        /// Why.
        cause: String,
    },
    /// Refused by the cluster, a group, or this node itself.
    Refused {
        /// The group, if it was one.
        group: Option<String>,
        /// Why.
        reason: String,
    },
    /// Left a group.
    GroupLeft {
        /// Which.
        group: String,
    },
    /// Left the cluster.
    Left,
    /// An answer to why.
    Why {
        /// The facts.
        facts: Vec<String>,
    },
    /// A request was not carried out.
    Error {
        /// Why.
        reason: String,
    },
}

/// A view of the cluster.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct NodeView {
    /// Its id.
    pub id: ViewName,
    /// By seniority.
    pub members: Vec<Member>,
    /// Names new since the previous primary view.
    pub joined: Vec<String>,
    /// Those that left in order.
    pub left: Vec<Gone>,
    /// Those removed.
    pub crashed: Vec<Crash>,
    /// Whether this component decides for the cluster.
    pub primary: bool,
}

/// A number for primary views, a text for others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(untagged)]
pub enum ViewName {
    /// Of a primary view.
    Number(u64),
    /// Of another.
    Text(String),
}

/// A member of a node view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its incarnation.
    pub incarnation: String,
    /// Its address.
    pub addr: String,
    /// Its metadata.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// Members that come from one component.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Part {
    /// The lineage of its views.
    pub lineage: String,
    /// The last primary view of it that they had installed.
    pub view: String,
    /// Their names.
    pub members: Vec<String>,
}

/// A member that left in order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Gone {
    /// Its name.
    pub name: String,
}

/// A removed member.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Crash {
    /// Its name.
    pub name: String,
    /// Why.
    #[serde(default)]
    pub cause: String,
    /// Who said so.
    pub accusers: Vec<String>,
    /// On what evidence.
    pub evidence: String,
}

/// A view of a group.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct View {
    /// Which group.
    pub group: String,
    /// `n.k`: the k-th view under node view n, or since.
    pub id: String,
    /// By seniority in the group.
    pub members: Vec<String>,
    /// New since the previous view.
    pub joined: Vec<String>,
    /// Left in order.
    pub left: Vec<String>,
    /// Removed.
    pub crashed: Vec<String>,
    /// Why, of those that the group itself removed.
    #[serde(default)]
    pub causes: BTreeMap<String, String>,
    /// Came along from this node's previous view.
    pub transitional: Vec<String>,
    /// Whether messages may be sent.
    pub primary: bool,
}

impl View {
    /// The id as two numbers that can be compared.
    pub fn order(&self) -> Option<(u64, u64)> {
        let (n, k) = self.id.split_once('.')?;
        Some((n.parse().ok()?, k.parse().ok()?))
    }
}

/// A delivered message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Message {
    /// Which group.
    pub group: String,
    /// The id of the view it was sent in.
    pub view: String,
    /// Who sent it.
    pub sender: String,
    /// The sender's number for it.
    pub seq: u64,
    /// In a scoped group, its scope.
    #[serde(default)]
    pub scope: Option<u32>,
    /// What it says; of one in a file, its length and a hash.
    #[serde(deserialize_with = "payload")]
    pub payload: String,
}

/// A payload as it stands in a line.
#[derive(Deserialize)]
#[serde(untagged)]
enum Payload {
    Text(String),
    File { file: String, bytes: u64 },
}

fn payload<'de, D: serde::Deserializer<'de>>(line: D) -> Result<String, D::Error> {
    match Payload::deserialize(line)? {
        Payload::Text(text) => Ok(text),
        Payload::File { file, bytes } => {
            let fingerprint = fingerprint(Path::new(&file)).map_err(serde::de::Error::custom)?;
            if fingerprint.starts_with(&format!("{bytes} bytes")) {
                Ok(fingerprint)
            } else {
                Err(serde::de::Error::custom(format!(
                    "{file} has not {bytes} bytes: {fingerprint}"
                )))
            }
        }
    }
}

/// The length and a hash of a file: what stands for a payload that is too large for a line.
pub(crate) fn fingerprint(path: &Path) -> Result<String, String> {
    let content = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(&content);
    Ok(format!("{} bytes, {:016x}", content.len(), hasher.finish()))
}

impl NodeView {
    /// The number of a primary view.
    pub fn number(&self) -> Option<u64> {
        match (&self.id, self.primary) {
            (ViewName::Number(number), true) => Some(*number),
            _ => None,
        }
    }

    /// The members' names, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.members.iter().map(|m| m.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    /// Whether this incarnation is a member.
    pub fn has(&self, incarnation: &str) -> bool {
        self.members.iter().any(|m| m.incarnation == incarnation)
    }
}
