//! The allow-list: which commands there are, with which arguments, from which nodes to which, what each does.
//!
//! It is data: a TOML file, read whole, refused whole. Nothing in it is a pattern, and nothing is ever put
//! into a command line: a program is started with the arguments that the list has for it, each an element of
//! its own.
//!
//! ```toml
//! version = 3
//!
//! [[verb]]
//! name = "cache.flush"
//! from = ["web-1", "web-2"]        # nodes that may ask; "all": each member of the cluster
//! to = "all"                       # nodes that may be asked
//! deliver = { program = ["/usr/local/bin/flush", "--key", { arg = "key" }] }
//! within = "2s"
//! args.key = { type = "text", max-bytes = 200 }
//! args.depth = { type = "integer", min = 0, max = 10, default = 1 }
//! ```

#[cfg(test)]
mod tests;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use antiphon::config::parse_toml;
pub use antiphon_api::commands::{Args, Value};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

/// The longest file of a list.
pub const MAX_LIST_BYTES: u64 = 1 << 20;
/// The most verbs of a list.
pub const MAX_VERBS: usize = 256;
/// The most arguments of a verb.
pub const MAX_ARGS: usize = 32;
/// The longest name of a verb, an argument or a node.
pub const MAX_NAME_BYTES: usize = 64;
/// The longest text of an argument.
pub const MAX_TEXT_BYTES: u32 = 16 << 10;
/// The longest reply.
pub const MAX_REPLY_BYTES: u32 = 1 << 20;
/// How long a reply may be unless its list says another length.
const REPLY_BYTES: u32 = 64 << 10;
/// The longest time that a command may have.
pub const MAX_WITHIN: Duration = Duration::from_secs(600);
/// A verb's time unless its list says another.
const WITHIN: Duration = Duration::from_secs(5);
/// How many of a verb run at a time unless its list says another.
const RUNNING: u16 = 16;
/// How far clocks may differ unless the list says another.
const CLOCK_SKEW: Duration = Duration::from_secs(1);
/// How far they may differ at most.
pub(crate) const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);
/// What is expected of an argument that a program takes: its options are the list's alone.
const NO_OPTION: &str = "what does not begin with `-`, since a program takes it";

/// An allow-list.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// What its author calls this state of it. It is told with each refusal and reply.
    pub version: u64,
    /// Keys for signatures, where they are not the cluster's: the first one signs, each is accepted.
    pub key_files: Vec<PathBuf>,
    /// How far a sender's clock may differ from the receiver's.
    pub clock_skew: Duration,
    verbs: BTreeMap<String, Arc<Verb>>,
}

/// A command that a list allows.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Verb {
    /// What it is called.
    pub name: String,
    /// What it is for, for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The nodes that may ask.
    pub from: Nodes,
    /// The nodes that may be asked.
    pub to: Nodes,
    /// Its arguments, by name.
    pub args: BTreeMap<String, Argument>,
    /// What carries it out.
    pub deliver: Deliver,
    /// How long it may take, unless the asker says less.
    #[serde(rename = "within_ms", serialize_with = "as_ms")]
    pub within: Duration,
    /// Only where the node asked is in a primary view.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub primary: bool,
    /// How many of it a node runs at a time. More are refused. Not of what the node does itself.
    pub max_running: u16,
    /// How long its reply may be. A longer one is a failure. Not of what the node does itself.
    pub max_reply_bytes: u32,
}

/// Nodes, by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Nodes {
    /// Each member of the cluster.
    All(AllWord),
    /// These.
    Named(BTreeSet<String>),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllWord {
    /// It.
    All,
}

impl Nodes {
    /// Whether this node is one of them.
    pub fn contain(&self, node: &str) -> bool {
        match self {
            Nodes::All(_) => true,
            Nodes::Named(names) => names.contains(node),
        }
    }
}

/// What carries a command out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Deliver {
    /// A session of the node that serves the verb, by turns.
    Session,
    /// A web server of the node's host: POST, with the command as JSON.
    Hook(Hook),
    /// A program, started for it.
    Program(Vec<Word>),
    /// The node itself.
    Node(NodeVerb),
}

/// A web hook: an address of this host and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// A loopback address, which needs no resolver.
    pub addr: SocketAddr,
    /// Of the request, with its query.
    pub path: String,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.addr, self.path)
    }
}

impl Serialize for Hook {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One element of a program's arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// As it is.
    Literal(String),
    /// The value of an argument; left out if the command has none.
    Arg {
        /// Its name.
        arg: String,
    },
}

/// What a node does itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeVerb {
    /// Tell its view.
    Members,
    /// Tell what its commands did: its queues and counts.
    Status,
    /// Leave the cluster in order, and end.
    Leave,
}

/// What an argument may be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Argument {
    /// Its type, with its bounds.
    #[serde(flatten)]
    pub kind: Kind,
    /// What it is where the command does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Whether a command may be without it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The type of an argument.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A text without control characters.
    Text {
        /// Its length in UTF-8.
        max_bytes: u32,
    },
    /// A whole number.
    Integer {
        /// The least.
        min: i64,
        /// The greatest.
        max: i64,
    },
    /// True or false.
    Boolean,
    /// One of some texts.
    Choice {
        /// Which.
        of: Vec<String>,
    },
}

/// Why a list refuses a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// It has no such verb.
    Verb(String),
    /// This node may not ask.
    From(String),
    /// This node may not be asked.
    To(String),
    /// An argument is missing, unknown or out of its bounds.
    Argument(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Verb(verb) => write!(f, "it has no verb {verb}"),
            Refusal::From(node) => write!(f, "{node} is not among the nodes that may ask"),
            Refusal::To(node) => write!(f, "{node} is not among the nodes that may be asked"),
            Refusal::Argument(reason) => f.write_str(reason),
        }
    }
}

impl List {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn read(path: &Path) -> Result<Self, ListError> {
        use std::io::Read as _;
        let error = |reason: String| ListError(format!("{}: {reason}", path.display()));
        let mut text = String::new();
        let mut read = || {
            let file = std::fs::File::open(path)?;
            let found = file.metadata()?;
            file.take(MAX_LIST_BYTES + 1).read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(found)
        };
        let found = read().map_err(|reason| error(reason.to_string()))?;
        may_be_trusted(found.uid(), found.mode(), geteuid().as_raw())
            .map_err(|reason| error(format!("it {reason}")))?;
        if text.len() as u64 > MAX_LIST_BYTES {
            return Err(error(format!("a list has at most {MAX_LIST_BYTES} bytes")));
        }
        Self::parse(&text).map_err(|reason| error(reason.0))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, ListError> {
        let file: written::File = parse_toml(text).map_err(ListError)?;
        file.check()
    }

    /// The verbs, by name.
    pub fn verbs(&self) -> impl Iterator<Item = &Arc<Verb>> {
        self.verbs.values()
    }

    /// A verb that there is.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn verb(&self, name: &str) -> Result<&Arc<Verb>, Refusal> {
        let short = || name.chars().take(MAX_NAME_BYTES).collect();
        self.verbs.get(name).ok_or_else(|| Refusal::Verb(short()))
    }

    /// Checks a command that this node is asked. Arguments that have a default get it.
    ///
    /// # Errors
    /// The first thing that is not allowed.
    pub fn check(&self, from: &str, to: &str, verb: &str, args: &mut Args) -> Result<Arc<Verb>, Refusal> {
        let verb = self.allows(from, to, verb, args)?;
        verb.complete(args);
        Ok(verb.clone())
    }

    /// Checks a command that this node asks. Its peer has defaults of its own: sent along, one that is new
    /// here would be unknown to a peer with an older list.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn allows(
        &self,
        from: &str,
        to: &str,
        verb: &str,
        args: &Args,
    ) -> Result<&Arc<Verb>, Refusal> {
        let verb = self.verb(verb)?;
        if !verb.from.contain(from) {
            return Err(Refusal::From(from.to_owned()));
        }
        if !verb.to.contain(to) {
            return Err(Refusal::To(to.to_owned()));
        }
        verb.check(args)?;
        Ok(verb)
    }
}

impl Verb {
    /// Checks arguments. Those that have a default need not be there.
    ///
    /// # Errors
    /// [`Refusal::Argument`].
    pub fn check(&self, args: &Args) -> Result<(), Refusal> {
        if let Some(unknown) = args.keys().find(|name| !self.args.contains_key(*name)) {
            let known: Vec<_> = self.args.keys().map(String::as_str).collect();
            let unknown: String = unknown.chars().take(MAX_NAME_BYTES).collect();
            return Err(Refusal::Argument(format!(
                "{} has no argument {unknown}; it has: {}",
                self.name,
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            )));
        }
        for (name, argument) in &self.args {
            match args.get(name) {
                Some(value) => {
                    let refused = |expected| {
                        Refusal::Argument(format!("argument {name} of {}: expected {expected}", self.name))
                    };
                    argument.kind.check(value).map_err(refused)?;
                    if self.gives_option(name, value) {
                        return Err(refused(NO_OPTION.to_owned()));
                    }
                }
                None if argument.optional || argument.default.is_some() => {}
                None => {
                    let reason = format!("{} lacks its argument {name}", self.name);
                    return Err(Refusal::Argument(reason));
                }
            }
        }
        Ok(())
    }

    /// Adds arguments that have a default and are not there.
    fn complete(&self, args: &mut Args) {
        for (name, argument) in &self.args {
            if let Some(default) = &argument.default {
                args.entry(name.clone()).or_insert_with(|| default.clone());
            }
        }
    }

    /// Whether a program would take this value of an argument for an option.
    fn gives_option(&self, name: &str, value: &Value) -> bool {
        let is_taken = match &self.deliver {
            Deliver::Program(words) => words
                .iter()
                .any(|word| matches!(word, Word::Arg { arg } if arg == name)),
            _ => false,
        };
        is_taken && value.to_string().starts_with('-')
    }
}

impl Kind {
    /// # Errors
    /// What is expected.
    fn check(&self, value: &Value) -> Result<(), String> {
        match (self, value) {
            (Kind::Text { max_bytes }, Value::Text(text))
                if text.len() as u64 <= u64::from(*max_bytes) && !text.chars().any(char::is_control) =>
            {
                Ok(())
            }
            (Kind::Text { max_bytes }, _) => Err(format!(
                "a text of at most {max_bytes} bytes without control characters"
            )),
            (Kind::Integer { min, max }, Value::Integer(value)) if (min..=max).contains(&value) => Ok(()),
            (Kind::Integer { min, max }, _) => Err(format!("a whole number from {min} to {max}")),
            (Kind::Boolean, Value::Boolean(_)) => Ok(()),
            (Kind::Boolean, _) => Err("true or false".to_owned()),
            (Kind::Choice { of }, Value::Text(text)) if of.contains(text) => Ok(()),
            (Kind::Choice { of }, _) => Err(format!("one of: {}", of.join(", "))),
        }
    }
}

/// Whether this user alone, or root, may write a file. Its owner may make it writable at any time. Folders
/// above it are not looked at.
fn may_be_trusted(owner: u32, mode: u32, us: u32) -> Result<(), &'static str> {
    if mode & 0o022 != 0 {
        return Err("can be written by others: `chmod go-w` it");
    }
    match owner == 0 || owner == us {
        true => Ok(()),
        false => Err("belongs to another user, and that user can write it: `chown` it"),
    }
}

/// Why a list cannot be used. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListError(pub(crate) String);

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ListError {}

fn as_ms<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
