//! A node's settings: file < environment < flag < nothing else, then checked as a whole. The library reads
//! and checks what describes the node ([`antiphon::config`]); this module reads what the program has for
//! itself.
//!
//! Names are the same everywhere: `--key-file`, `ANTIPHON_KEY_FILE`, `key-file = "…"`. An unknown key in the
//! file is an error that names it, since a setting that is silently ignored is found only when it was needed.

mod library;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use antiphon::clients::GROUPS as CLIENT_GROUPS;
use antiphon::config::{self, Effective, Given, list};
use antiphon_agent::BLOCK_GROUPS;
use antiphon_agent::access::Files;
use serde::Deserialize;

use super::args::NodeArgs;
use super::exit::Failed;

/// What a node runs with: its own settings, which the library reads and checks, and those of the program.
#[derive(Debug)]
pub(crate) struct Settings {
    node: Effective,
    pub(crate) name: String,
    pub(crate) spool: Option<PathBuf>,
    /// Whether this process only supervises the node, and witnesses its end.
    pub(crate) witness: bool,
    /// What this node's witness keeps; only in a process that a witness has started.
    pub(crate) last_vote: Option<PathBuf>,
    /// Where the console is to be, unless at the default place; `none`: nowhere.
    pub(crate) console_at: Option<PathBuf>,
    /// Where an agent serves programs, as far as the file says.
    pub(crate) agent: Agent,
    pub(crate) json: bool,
}

/// Where an agent serves programs, and what it asks of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Agent {
    /// TCP addresses.
    pub(crate) listen: Option<Vec<String>>,
    /// A Unix socket.
    pub(crate) socket: Option<PathBuf>,
    /// Certificates and tokens.
    pub(crate) files: Files,
    /// Commands to peers and of them.
    pub(crate) commands: Peers,
}

/// What an agent is told of commands to peers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers {
    /// The list.
    pub(crate) list: Option<PathBuf>,
    /// Where peers' commands come in.
    pub(crate) listen: Option<String>,
    /// The authorities that sign the certificates of peers.
    pub(crate) authorities: Option<PathBuf>,
}

impl Agent {
    /// These settings, and where one is not given, that of `below`.
    pub(crate) fn over(self, below: Self) -> Self {
        Self {
            listen: self.listen.or(below.listen),
            socket: self.socket.or(below.socket),
            files: Files {
                certificate: self.files.certificate.or(below.files.certificate),
                key: self.files.key.or(below.files.key),
                client_ca: self.files.client_ca.or(below.files.client_ca),
                tokens: self.files.tokens.or(below.files.tokens),
            },
            commands: Peers {
                list: self.commands.list.or(below.commands.list),
                listen: self.commands.listen.or(below.commands.listen),
                authorities: self.commands.authorities.or(below.commands.authorities),
            },
        }
    }
}

/// A configuration file that is read once more while an agent runs.
#[derive(Debug, Default)]
pub(crate) struct Reread {
    table: toml::Table,
    own: Own,
}

impl Reread {
    /// Its keys and their types are checked; what follows from its values is at the next start.
    pub(crate) fn of(path: &Path) -> Result<Self, Failed> {
        let (_, table) = Given::and_more::<toml::Table>(path)?;
        let own = toml::Value::Table(table.clone()).try_into::<Own>();
        let own = own.map_err(|error| Failed::usage(format!("{}: {error}", path.display())))?;
        Ok(Self { table, own })
    }

    /// What it says of the agent.
    pub(crate) fn agent(&self) -> Agent {
        self.own.agent()
    }

    /// The keys that differ and take a restart.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<String> {
        let keys: std::collections::BTreeSet<_> = self.table.keys().chain(before.table.keys()).collect();
        let changed = keys.into_iter().filter(|key| {
            !RELOADED.contains(&key.as_str()) && self.table.get(*key) != before.table.get(*key)
        });
        changed.cloned().collect()
    }
}

/// The keys with files that are read again; then they may also name other files.
const RELOADED: [&str; 5] = [
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "token-file",
    "commands-ca",
];

/// All that describes the node is read where the library has it.
impl Deref for Settings {
    type Target = Effective;

    fn deref(&self) -> &Effective {
        &self.node
    }
}

/// Addresses as they were written, with names, and seeds with slashes; and how to speak of them.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) bind: Vec<String>,
    pub(crate) advertise: Vec<String>,
    pub(crate) seeds: Vec<String>,
    pub(crate) json: bool,
}

/// The keys that the program has in the configuration file for itself. The library refuses keys that neither
/// of the two knows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Own {
    spool: Option<PathBuf>,
    witness: Option<bool>,
    console: Option<PathBuf>,
    listen: Option<Vec<String>>,
    socket: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_client_ca: Option<PathBuf>,
    token_file: Option<PathBuf>,
    commands: Option<PathBuf>,
    commands_listen: Option<String>,
    commands_ca: Option<PathBuf>,
    json: Option<bool>,
}

impl Own {
    fn agent(&self) -> Agent {
        Agent {
            listen: self.listen.clone(),
            socket: self.socket.clone(),
            files: Files {
                certificate: self.tls_cert.clone(),
                key: self.tls_key.clone(),
                client_ca: self.tls_client_ca.clone(),
                tokens: self.token_file.clone(),
            },
            commands: Peers {
                list: self.commands.clone(),
                listen: self.commands_listen.clone(),
                authorities: self.commands_ca.clone(),
            },
        }
    }
}

impl From<config::Error> for Failed {
    fn from(error: config::Error) -> Self {
        match error {
            // The settings may be right, and the resolver not there yet: a service manager starts it again.
            config::Error::Unresolved { reason, .. } => Failed::run(reason),
            config::Error::Missing { key } => Failed::usage(missing(key)),
            other => Failed::usage(other.to_string()),
        }
    }
}

fn missing(key: &str) -> String {
    format!(
        "no {key} is given: use --{key}, ANTIPHON_{} or `{key} = …` in the file of --config",
        key.to_uppercase()
    )
}

impl Settings {
    /// Puts flags, environment (both in `args`) and file together and checks them.
    pub(crate) fn resolve(args: NodeArgs) -> Result<Self, Failed> {
        let file = file_of(&args)?;
        Self::assemble(args, file, Given::effective)
    }

    /// The same where seeds that do not resolve were left out: conditions on the whole list are not checked.
    pub(crate) fn resolve_in_part(args: NodeArgs) -> Result<Self, Failed> {
        let file = file_of(&args)?;
        Self::assemble(args, file, Given::effective_in_part)
    }

    /// Whether a node is meant at all: by its file, its names or its addresses. What it lacks then is an
    /// error.
    pub(crate) fn are_given(args: &NodeArgs) -> bool {
        let names = [&args.cluster, &args.name];
        let addresses = [&args.bind, &args.advertise, &args.seeds, &args.locators];
        args.config.is_some()
            || names.into_iter().any(Option::is_some)
            || addresses.into_iter().any(Option::is_some)
    }

    /// What is needed before the rest is checked: the addresses as they were written, before any name is
    /// looked up.
    pub(crate) fn written(args: &NodeArgs) -> Result<Written, Failed> {
        let (file, own) = file_of(args)?;
        let given = args.given()?.over(file);
        Ok(Written {
            bind: list("bind", given.bind)?.unwrap_or_default(),
            advertise: list("advertise", given.advertise)?.unwrap_or_default(),
            seeds: list("seeds", given.seeds)?.unwrap_or_default(),
            json: args.json.or(own.json).unwrap_or(false),
        })
    }

    fn assemble(
        args: NodeArgs,
        (file, own): (Given, Own),
        check: impl Fn(Given) -> Result<Effective, config::Error>,
    ) -> Result<Self, Failed> {
        let given = args.given()?.over(file);
        let is_given = |value: &Option<String>| value.as_ref().is_some_and(|value| !value.is_empty());
        // A node of the program has a name of its own, which does not change from start to start.
        if is_given(&given.cluster) && !is_given(&given.name) {
            return Err(Failed::usage(missing("name")));
        }
        let name = given.name.clone().unwrap_or_default();
        let settings = Self {
            node: check(given)?,
            name,
            agent: own.agent(),
            spool: args.spool.or(own.spool),
            witness: args.witness.or(own.witness).unwrap_or(false),
            last_vote: args.last_vote,
            console_at: args.console.or(own.console),
            json: args.json.or(own.json).unwrap_or(false),
        };
        settings.check_groups()?;
        settings.check_spool()?;
        settings.check_witness()?;
        Ok(settings)
    }

    /// The settings as a configuration file that gives the same settings.
    pub(crate) fn to_toml(&self) -> String {
        let mut own = toml::Table::new();
        let text = |path: &Path| toml::Value::String(path.display().to_string());
        own.extend(self.spool.as_deref().map(|path| ("spool".to_owned(), text(path))));
        let console = self.console_at.as_deref();
        own.extend(console.map(|path| ("console".to_owned(), text(path))));
        let files = &self.agent.files;
        for (key, path) in [
            ("socket", &self.agent.socket),
            ("tls-cert", &files.certificate),
            ("tls-key", &files.key),
            ("tls-client-ca", &files.client_ca),
            ("token-file", &files.tokens),
            ("commands", &self.agent.commands.list),
            ("commands-ca", &self.agent.commands.authorities),
        ] {
            own.extend(path.as_deref().map(|path| (key.to_owned(), text(path))));
        }
        own.extend(
            self.agent
                .listen
                .clone()
                .map(|listen| ("listen".to_owned(), listen.into())),
        );
        let commands = self.agent.commands.listen.clone();
        own.extend(commands.map(|listen| ("commands-listen".to_owned(), listen.into())));
        own.insert("witness".to_owned(), self.witness.into());
        own.insert("json".to_owned(), self.json.into());
        format!("{}{own}", self.node.to_toml())
    }

    /// Locks, maps and the like have groups of their own, and so have clients.
    fn check_groups(&self) -> Result<(), Failed> {
        for (begins, of) in [
            (BLOCK_GROUPS, "locks, maps and requests"),
            (CLIENT_GROUPS, "clients"),
        ] {
            if let Some(group) = self.groups.iter().find(|group| group.starts_with(begins)) {
                return Err(Failed::usage(format!(
                    "group {group:?} begins with {begins:?}, as the groups of {of} do: take another name"
                )));
            }
        }
        Ok(())
    }

    /// A directory that is not there would be noticed with the first payload only.
    fn check_spool(&self) -> Result<(), Failed> {
        match &self.spool {
            Some(path) if !path.is_dir() => Err(Failed::usage(format!(
                "spool {} is no directory: make it first, or leave --spool out",
                path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// R10: without a key any program that reaches a port could declare others dead. So no witness is
    /// believed.
    fn check_witness(&self) -> Result<(), Failed> {
        if !self.witness {
            return Ok(());
        }
        if self.key.is_none() {
            return Err(Failed::usage(
                "--witness needs a cluster key, without which the other nodes do not believe a witness: \
                 give --key-file (make one with `antiphon key FILE`), the same to each node",
            ));
        }
        if !cfg!(target_os = "linux") {
            return Err(Failed::usage("--witness works on Linux only: leave it out"));
        }
        Ok(())
    }
}

fn file_of(args: &NodeArgs) -> Result<(Given, Own), Failed> {
    match args.config.as_deref() {
        Some(path) => Ok(Given::and_more(path)?),
        None => Ok(Default::default()),
    }
}

#[cfg(test)]
mod tests;
