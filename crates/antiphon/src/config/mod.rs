//! A node's settings as people write them: in a TOML file and in the environment.
//!
//! ```text
//!   node.toml ── from_toml_file ──► Given ─┐
//!   ANTIPHON_… ─ from_env ────────► Given ─┼─ over ─► Given ─ effective ─► Effective ─ builder ─► Builder
//!   flags, your own ──────────────► Given ─┘        each setting or not   all of them, checked
//! ```
//!
//! The program `antiphon` is set up by the same code, and reads the same file: its names are those of its
//! flags, and docs/node.md says what each means.
//!
//! ```
//! # fn main() -> Result<(), antiphon::config::Error> {
//! let node = antiphon::Builder::from_toml_str(
//!     r#"
//!     cluster = "shop"
//!     name = "a"
//!     bind = "127.0.0.1:7400"
//!     seeds = ["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]
//!     metadata = { role = "db" }
//!     slow-after = "1m"
//!     "#,
//! )?;
//! # drop(node);
//! # Ok(())
//! # }
//! ```
//!
//! # What wins
//! Flags over the environment, the environment over the file, the file over the default; each setting by
//! itself, lists and metadata as a whole. With [`Given::over`] that is
//! `flags.over(environment).over(file).effective()?`.
//!
//! # What is refused
//! An unknown key in a file; a value that is not understood; an empty value, which is mostly a variable that
//! is not set; settings that contradict each other. An [`Error`] says which key it is, what was given and
//! what is accepted, and of a file the line. A file has at most 1 MiB.
//!
//! # What it reads
//! The file, the file with the key, and for host names the system's resolver, once: that blocks, as long as
//! the resolver takes for each name (a name that may resolve later is written `dns:NAME:PORT`). In a program
//! that has begun to serve, call [`Given::effective`] where it may block (`tokio::task::spawn_blocking`).
//!
//! # What the program has for itself
//! `spool`, `console`, `json` and `witness` are settings of the program `antiphon`, not of a node, and so is
//! what an agent has for itself: `listen`, `socket`, `tls-cert`, `tls-key`, `tls-client-ca`, `token-file`,
//! `commands`, `commands-listen`, `commands-ca`. They may stand in the file, and are passed over here.

mod addresses;
mod effective;
mod groups;
mod key;
mod multicast;
mod patience;
mod print;
mod size;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::{Builder, Dissemination, EngineKind, Order, Policy, Profile, TotalEngine, Transport};

pub use addresses::{DEFAULT_PORT, Seed, Written, address, list};
pub use effective::Effective;
pub use key::{KeyFile, read_key};
pub use patience::{Patience, limited};
pub use size::Size;
#[doc(hidden)]
pub use text::parse as parse_toml;

/// Why settings cannot be used. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A setting that has no default is given nowhere.
    Missing {
        /// Its key.
        key: &'static str,
    },
    /// A setting has a value that cannot be used, or not beside the others.
    Value {
        /// Its key, or that of one of them.
        key: &'static str,
        /// What was given, and what is accepted.
        reason: String,
    },
    /// The name of a host has no address now. It may have one later: the same settings may be tried again.
    Unresolved {
        /// The key that names the host.
        key: &'static str,
        /// The name, and what the resolver says.
        reason: String,
    },
    /// A node with these settings would not start, or not join its groups.
    Conflict {
        /// Which contradict each other, and what to do.
        reason: String,
    },
    /// A text or a file has such a value, or something that is no setting.
    File {
        /// The file, unless it is a text.
        path: Option<PathBuf>,
        /// Where in it, and what is wrong.
        reason: String,
    },
    /// The file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// An environment variable has a value that is not understood.
    Variable {
        /// Its name.
        name: String,
        /// What was given, and what is accepted.
        reason: String,
    },
}

impl Error {
    fn value(key: &'static str, reason: impl Into<String>) -> Self {
        Error::Value {
            key,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing { key } => {
                write!(
                    f,
                    "no {key} is given: write `{key} = …` in the file, or give it in the environment"
                )
            }
            Error::Value { reason, .. } | Error::Unresolved { reason, .. } | Error::Conflict { reason } => {
                f.write_str(reason)
            }
            Error::File { path: None, reason } => write!(f, "configuration, {reason}"),
            Error::File {
                path: Some(path),
                reason,
            } => write!(f, "configuration file {}: {reason}", path.display()),
            Error::Unreadable { path, reason } => {
                write!(f, "cannot read configuration file {}: {reason}", path.display())
            }
            Error::Variable { name, reason } => write!(f, "{name}: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

antiphon_core::wire::written_as_text!(Error);

/// Declares the settings: their fields, keys, and how each is read from TOML.
macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty, $key:literal, $read:literal;)*) => {
        /// What is given of a node: each setting, or not. Made with [`Given::default`] or read from
        /// somewhere, then changed field by field.
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        #[non_exhaustive]
        pub struct Given {
            $(
                $(#[$doc])*
                #[serde(default, deserialize_with = $read)]
                pub $field: Option<$type>,
            )*
            #[serde(default, rename = "spool")]
            _spool: IgnoredAny,
            #[serde(default, rename = "console")]
            _console: IgnoredAny,
            #[serde(default, rename = "socket")]
            _socket: IgnoredAny,
            #[serde(default, rename = "listen")]
            _listen: IgnoredAny,
            #[serde(default, rename = "tls-cert")]
            _tls_cert: IgnoredAny,
            #[serde(default, rename = "tls-key")]
            _tls_key: IgnoredAny,
            #[serde(default, rename = "tls-client-ca")]
            _tls_client_ca: IgnoredAny,
            #[serde(default, rename = "token-file")]
            _token_file: IgnoredAny,
            #[serde(default, rename = "commands")]
            _commands: IgnoredAny,
            #[serde(default, rename = "commands-listen")]
            _commands_listen: IgnoredAny,
            #[serde(default, rename = "commands-ca")]
            _commands_ca: IgnoredAny,
            #[serde(default, rename = "json")]
            _json: IgnoredAny,
            #[serde(default, rename = "witness")]
            _witness: IgnoredAny,
        }

        impl Given {
            /// The keys, as they are written in a file.
            pub const KEYS: &[&str] = &[$($key),*];

            /// These settings, and where one is not given, that of `below`.
            #[must_use]
            pub fn over(self, below: Self) -> Self {
                let groups = self.groups_over(&below);
                let mut merged = Self {
                    $($field: self.$field.or(below.$field),)*
                    ..Self::default()
                };
                (merged.group, merged.no_group) = groups;
                merged
            }

            /// Reads a setting as it stands in a variable: lists have commas between their entries.
            fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
                match key {
                    $($key => self.$field = Some(FromText::from_text(text)?),)*
                    key => return Err(format!("there is no setting {key}")),
                }
                Ok(())
            }
        }
    };
}

settings! {
    /// The cluster's name. Required.
    cluster: String, "cluster", "text";
    /// The node's name.
    name: String, "name", "text";
    /// Where it listens; `127.0.0.1:7400` unless given.
    bind: Vec<String>, "bind", "strings";
    /// Where the others reach it.
    advertise: Vec<String>, "advertise", "strings";
    /// Seeds, and sources of addresses.
    seeds: Vec<String>, "seeds", "strings";
    /// Locators.
    locators: Vec<String>, "locators", "strings";
    /// DNS servers for what is found by name at run time. Needs the feature `dns`.
    dns_server: Vec<String>, "dns-server", "strings";
    /// Groups to join; `main` unless given.
    group: Vec<String>, "group", "strings";
    /// Whether it joins none.
    no_group: bool, "no-group", "text";
    /// The order of its groups.
    order: Order, "order", "text";
    /// What makes the order of groups of [`Order::Total`].
    engine: TotalEngine, "engine", "text";
    /// The way of their messages.
    dissemination: Dissemination, "dissemination", "text";
    /// Where it goes by multicast.
    multicast_group: String, "multicast-group", "text";
    /// On which interface.
    multicast_interface: String, "multicast-interface", "text";
    /// How far.
    multicast_hops: u8, "multicast-hops", "text";
    /// When members that read nothing are removed from groups.
    slow_after: Patience, "slow-after", "text";
    /// The largest payload.
    max_object: Size, "max-object", "text";
    /// The most memory for those of others.
    object_memory: Size, "object-memory", "text";
    /// How messages are sent.
    transport: Transport, "transport", "text";
    /// The largest datagram, in bytes.
    max_datagram: u16, "max-datagram", "text";
    /// Shown in every view.
    metadata: BTreeMap<String, String>, "metadata", "metadata";
    /// How many nodes found the cluster.
    expect: u16, "expect", "text";
    /// Whether it founds one at once.
    found: bool, "found", "text";
    /// Timing.
    profile: Profile, "profile", "named";
    /// How node views are agreed on.
    membership: EngineKind, "membership", "text";
    /// Which component goes on after a partition.
    policy: Policy, "policy", "text";
    /// Whether it acts as a member only while a majority answers.
    primary_lease: bool, "primary-lease", "text";
    /// Whether heartbeats go by UDP where TCP holds them up.
    udp_probes: bool, "udp-probes", "text";
    /// Its votes.
    weight: u16, "weight", "text";
    /// The file with the cluster key.
    key_file: PathBuf, "key-file", "text";
    /// Whether it may do without a key beyond this host.
    insecure: bool, "insecure", "text";
    /// Whether faults may be injected.
    allow_faults: bool, "allow-faults", "text";
}

impl Given {
    /// What a text in TOML gives.
    ///
    /// # Errors
    /// [`Error::File`] with the line, and for a key that there is not, all that there are.
    pub fn from_toml_str(text: &str) -> Result<Self, Error> {
        let read = text::parse(text);
        read.map_err(|reason| Error::File { path: None, reason })
    }

    /// What a file gives.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::File`] with the line.
    pub fn from_toml_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::and_more::<IgnoredAny>(path.as_ref())?.0)
    }

    /// What a file gives, and what it gives a program that has settings of its own there.
    #[doc(hidden)]
    pub fn and_more<T: DeserializeOwned>(path: &Path) -> Result<(Self, T), Error> {
        let text = text::read(path)?;
        let read = text::parse(&text).and_then(|given| Ok((given, text::parse(&text)?)));
        read.map_err(|reason| Error::File {
            path: Some(path.to_owned()),
            reason,
        })
    }

    /// What the environment gives: of each key the variable with that prefix, in capitals and with `_` for
    /// `-`, such as `ANTIPHON_KEY_FILE`. Entries of lists and of `metadata` (`k=v`) have commas in between.
    /// Other variables are not looked at.
    ///
    /// # Errors
    /// [`Error::Variable`].
    pub fn from_env(prefix: &str) -> Result<Self, Error> {
        Self::from_variables(prefix, |name| std::env::var_os(name))
    }

    /// The same of variables that stand elsewhere.
    #[doc(hidden)]
    pub fn from_variables(
        prefix: &str,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Self, Error> {
        let mut given = Self::default();
        for key in Self::KEYS {
            let name = format!("{prefix}{}", key.replace('-', "_").to_uppercase());
            let Some(text) = variable(&name) else { continue };
            let read = text.to_str().ok_or_else(|| "it is no UTF-8".to_owned());
            let set = read.and_then(|text| given.set(key, text));
            set.map_err(|reason| Error::Variable { name, reason })?;
        }
        Ok(given)
    }
}

impl Builder {
    /// A node as a text in TOML describes it: see [`config`](crate::config). `name` is random unless given,
    /// and groups are joined as the application says, with the options that are given here.
    ///
    /// # Errors
    /// [`Error`](crate::config::Error) with the line.
    pub fn from_toml_str(text: &str) -> Result<Self, Error> {
        built(Given::from_toml_str(text)?, text, None)
    }

    /// The same from a file.
    ///
    /// # Errors
    /// [`Error`](crate::config::Error) with the file and the line.
    pub fn from_toml_file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let text = text::read(path)?;
        let given = text::parse(&text).map_err(|reason| Error::File {
            path: Some(path.to_owned()),
            reason,
        })?;
        built(given, &text, Some(path))
    }

    /// A node as the environment describes it, by variables with this prefix, such as `ANTIPHON_`.
    ///
    /// # Errors
    /// [`Error`](crate::config::Error) with the variable or its key.
    pub fn from_env(prefix: &str) -> Result<Self, Error> {
        Ok(Given::from_env(prefix)?.effective()?.builder())
    }
}

/// The node that a text describes: what is wrong with a value is said with its place.
fn built(given: Given, text: &str, path: Option<&Path>) -> Result<Builder, Error> {
    let builder = given.effective().map(|effective| effective.builder());
    builder.map_err(|error| match error {
        Error::Value { key, reason } => Error::File {
            path: path.map(Path::to_owned),
            reason: match text::line_of(text, key) {
                Some(line) => format!("line {line}: {reason}"),
                None => reason,
            },
        },
        Error::Conflict { reason } => Error::File {
            path: path.map(Path::to_owned),
            reason,
        },
        other => other,
    })
}

/// What stands in a variable, or as a text in a file.
trait FromText: Sized {
    fn from_text(text: &str) -> Result<Self, String>;
}

macro_rules! from_text {
    ($($type:ty),*) => {$(
        impl FromText for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                <$type>::from_str(text).map_err(|error| error.to_string())
            }
        }
    )*};
}
from_text!(
    Dissemination,
    EngineKind,
    Order,
    PathBuf,
    Policy,
    Profile,
    String,
    TotalEngine,
    Transport
);

macro_rules! with_unit {
    ($($type:ty),*) => {$(
        impl FromText for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                <$type>::from_str(text).map_err(|expected| format!("{text:?}: {expected}"))
            }
        }
    )*};
}
with_unit!(Patience, Size);

impl FromText for bool {
    fn from_text(text: &str) -> Result<Self, String> {
        let read = text.parse();
        read.map_err(|_| format!("{text:?} is neither true nor false"))
    }
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl FromText for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                let read = text.parse();
                read.map_err(|_| format!("{text:?} is no number from 0 to {}", <$type>::MAX))
            }
        }
    )*};
}
number!(u8, u16);

impl FromText for Vec<String> {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.split(',').map(|part| part.trim().to_owned()).collect())
    }
}

impl FromText for BTreeMap<String, String> {
    fn from_text(text: &str) -> Result<Self, String> {
        pairs(&Vec::<String>::from_text(text)?)
    }
}

/// `k=v` each.
#[doc(hidden)]
pub fn pairs(pairs: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    for pair in list("metadata", Some(pairs.to_vec()))
        .map_err(|error| error.to_string())?
        .unwrap_or_default()
    {
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => (key, value),
            _ => return Err(format!("metadata {pair:?} must look like key=value")),
        };
        if let Some(other) = map.insert(key.to_owned(), value.to_owned()) {
            return Err(format!(
                "metadata gives {key:?} twice, as {other:?} and as {value:?}: leave one out"
            ));
        }
    }
    Ok(map)
}

fn text<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn named<'de, D: Deserializer<'de>, T: FromText>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    T::from_text(&text).map(Some).map_err(D::Error::custom)
}

/// `["a", "b"]` or `"a,b"`.
fn strings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a list of strings, or one string with commas")]
    enum Strings {
        Many(Vec<String>),
        One(String),
    }
    match Strings::deserialize(deserializer)? {
        Strings::Many(strings) => Ok(Some(strings)),
        Strings::One(string) => FromText::from_text(&string).map(Some).map_err(D::Error::custom),
    }
}

/// A table, or a list of `"k=v"`.
fn metadata<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected a table of strings, such as metadata = { role = \"db\" }"
    )]
    enum Metadata {
        Table(BTreeMap<String, String>),
        Pairs(Vec<String>),
    }
    match Metadata::deserialize(deserializer)? {
        Metadata::Table(table) => Ok(Some(table)),
        Metadata::Pairs(given) => pairs(&given).map(Some).map_err(D::Error::custom),
    }
}
