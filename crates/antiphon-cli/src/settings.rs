//! A node's settings: file < environment < flag < nothing else, then checked as a whole.
//!
//! Names are the same everywhere: `--key-file`, `ANTIPHON_KEY_FILE`, `key-file = "…"`. An unknown key in the
//! file is an error that names it, since a setting that is silently ignored is found only when it was needed.

mod addresses;
mod discovery;
mod groups;
mod library;
mod multicast;
mod print;
mod text;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use antiphon::discovery::Source;
use antiphon::{ClusterKey, Profile};
use serde::Deserialize;

use super::args::{
    DisseminationName, EngineName, MembershipName, NodeArgs, OrderName, PolicyName, ProfileName,
    TransportName,
};
use super::exit::Failed;
use super::key;
use super::patience::Patience;
use super::size::Size;
use addresses::list;
pub(crate) use addresses::{DEFAULT_PORT, Written as WrittenAddress, address, address_with};
pub(crate) use discovery::DiscoverySettings;
use multicast::MulticastSettings;

/// The longest cluster, node or group name.
const MAX_NAME_BYTES: usize = 64;
/// The library's.
const DEFAULT_MAX_OBJECT: Size = Size(256 << 20);
/// What `max-object` may be: as in the library, which refuses what is beyond.
const SMALLEST_MAX_OBJECT: Size = Size(64 << 10);
const LARGEST_MAX_OBJECT: Size = Size(1 << 30);

/// What a node runs with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) cluster: String,
    pub(crate) name: String,
    /// At least one.
    pub(crate) bind: Vec<SocketAddr>,
    pub(crate) advertise: Vec<SocketAddr>,
    /// Those that are written out.
    pub(crate) seeds: Vec<Seed>,
    pub(crate) discovery: DiscoverySettings,
    /// None with `no-group`.
    pub(crate) groups: Vec<String>,
    pub(crate) order: OrderName,
    pub(crate) engine: EngineName,
    pub(crate) dissemination: DisseminationName,
    /// Only with that dissemination.
    pub(crate) multicast: Option<MulticastSettings>,
    pub(crate) slow_after: Patience,
    pub(crate) max_object: Size,
    pub(crate) object_memory: Size,
    pub(crate) spool: Option<PathBuf>,
    pub(crate) transport: TransportName,
    pub(crate) max_datagram: Option<u16>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) expect: Option<u16>,
    pub(crate) found: bool,
    pub(crate) profile: Profile,
    pub(crate) membership: MembershipName,
    pub(crate) policy: PolicyName,
    pub(crate) primary_lease: bool,
    pub(crate) udp_probes: bool,
    pub(crate) weight: u16,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) key: Option<ClusterKey>,
    /// Whether this process only supervises the node, and witnesses its end.
    pub(crate) witness: bool,
    /// What this node's witness keeps; only in a process that a witness has started.
    pub(crate) testament: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) allow_faults: bool,
    /// Where the console is to be, unless at the default place; `none`: nowhere.
    pub(crate) socket: Option<PathBuf>,
    pub(crate) json: bool,
    /// What the person who started the node should know, though it works.
    pub(crate) warnings: Vec<String>,
}

/// A seed: its first address, and where else it is reached. Written with slashes in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seed(pub(crate) Vec<SocketAddr>);

impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&addresses.join("/"))
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

/// The configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    cluster: Option<String>,
    name: Option<String>,
    bind: Option<Strings>,
    advertise: Option<Strings>,
    seeds: Option<Strings>,
    locators: Option<Strings>,
    dns_server: Option<Strings>,
    group: Option<Strings>,
    no_group: Option<bool>,
    order: Option<OrderName>,
    engine: Option<EngineName>,
    dissemination: Option<DisseminationName>,
    multicast_group: Option<String>,
    multicast_interface: Option<String>,
    multicast_hops: Option<u8>,
    slow_after: Option<Patience>,
    max_object: Option<Size>,
    object_memory: Option<Size>,
    spool: Option<PathBuf>,
    transport: Option<TransportName>,
    max_datagram: Option<u16>,
    metadata: Option<Metadata>,
    expect: Option<u16>,
    found: Option<bool>,
    profile: Option<ProfileName>,
    membership: Option<MembershipName>,
    policy: Option<PolicyName>,
    primary_lease: Option<bool>,
    udp_probes: Option<bool>,
    weight: Option<u16>,
    key_file: Option<PathBuf>,
    witness: Option<bool>,
    insecure: Option<bool>,
    allow_faults: Option<bool>,
    socket: Option<PathBuf>,
    json: Option<bool>,
}

/// `["a", "b"]` or `"a,b"`.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a list of strings, or one string with commas")]
enum Strings {
    Many(Vec<String>),
    One(String),
}

impl Strings {
    fn into_vec(self) -> Vec<String> {
        match self {
            Strings::Many(strings) => strings,
            Strings::One(string) => string.split(',').map(|part| part.trim().to_owned()).collect(),
        }
    }
}

/// A table, or a list of `"k=v"`.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "expected a table of strings, such as metadata = { role = \"db\" }"
)]
enum Metadata {
    Table(BTreeMap<String, String>),
    Pairs(Vec<String>),
}

impl Settings {
    /// Puts flags, environment (both in `args`) and file together and checks them.
    pub(crate) fn resolve(args: NodeArgs) -> Result<Self, Failed> {
        let file = file_of(&args)?;
        Self::merge(args, file)
    }

    /// The same where seeds that do not resolve were left out: what follows from a list as a whole is not
    /// checked.
    pub(crate) fn resolve_in_part(args: NodeArgs) -> Result<Self, Failed> {
        let file = file_of(&args)?;
        Self::assemble(args, file)
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
        let file = file_of(args)?;
        let either = |field: &str, given: &Option<Vec<String>>, file: Option<Strings>| {
            let texts = list(field, given.clone().or(file.map(Strings::into_vec)))?;
            Ok::<_, Failed>(texts.unwrap_or_default())
        };
        Ok(Written {
            bind: either("bind", &args.bind, file.bind)?,
            advertise: either("advertise", &args.advertise, file.advertise)?,
            seeds: either("seeds", &args.seeds, file.seeds)?,
            json: args.json.or(file.json).unwrap_or(false),
        })
    }

    fn merge(args: NodeArgs, file: File) -> Result<Self, Failed> {
        let settings = Self::assemble(args, file)?;
        settings.check_as_the_library_does()?;
        Ok(settings)
    }

    fn assemble(args: NodeArgs, file: File) -> Result<Self, Failed> {
        let required = |value: Option<String>, name: &str| {
            value.filter(|value| !value.is_empty()).ok_or_else(|| {
                Failed::usage(format!(
                    "no {name} is given: use --{name}, ANTIPHON_{} or `{name} = …` in the file of --config",
                    name.to_uppercase()
                ))
            })
        };
        let cluster = required(args.cluster.or(file.cluster), "cluster")?;
        let name = required(args.name.or(file.name), "name")?;
        checked_name("cluster", &cluster)?;
        checked_name("name", &name)?;

        let either = |field: &str, given: Option<Vec<String>>, file: Option<Strings>| {
            list(field, given.or(file.map(Strings::into_vec)))
        };
        let addresses = |field: &str, given: Option<Vec<String>>, file: Option<Strings>| {
            let texts = either(field, given, file)?.unwrap_or_default();
            texts
                .iter()
                .map(|text| address(field, text))
                .collect::<Result<Vec<_>, _>>()
        };
        let mut bind = addresses("bind", args.bind, file.bind)?;
        if bind.is_empty() {
            bind.push(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)));
        }
        let advertise = addresses("advertise", args.advertise, file.advertise)?;
        let seeds = either("seeds", args.seeds, file.seeds)?.unwrap_or_default();
        let discovery = DiscoverySettings::merge(
            &seeds,
            either("locators", args.locators, file.locators)?,
            either("dns-server", args.dns_server, file.dns_server)?,
        )?;
        let seeds = seeds
            .iter()
            .filter(|text| !Source::is_meant_by(text))
            .map(|text| text.split('/').map(|part| address("seeds", part)).collect())
            .map(|addresses: Result<_, _>| addresses.map(Seed))
            .collect::<Result<Vec<_>, _>>()?;

        let in_file = (list("group", file.group.map(Strings::into_vec))?, file.no_group);
        let groups = groups::merge((list("group", args.group)?, args.no_group), in_file)?;

        let metadata = match (args.metadata, file.metadata) {
            (Some(pairs), _) | (None, Some(Metadata::Pairs(pairs))) => pairs_to_map(pairs)?,
            (None, Some(Metadata::Table(table))) => table,
            (None, None) => BTreeMap::new(),
        };

        let dissemination = args
            .dissemination
            .or(file.dissemination)
            .unwrap_or(DisseminationName::Direct);
        let multicast = MulticastSettings::merge(
            dissemination,
            &cluster,
            args.multicast_group.or(file.multicast_group),
            args.multicast_interface.or(file.multicast_interface),
            args.multicast_hops.or(file.multicast_hops),
        )?;
        let max_object = args.max_object.or(file.max_object).unwrap_or(DEFAULT_MAX_OBJECT);
        let twice = Size(max_object.0.saturating_mul(2));
        let object_memory = args.object_memory.or(file.object_memory).unwrap_or(twice);

        let mut settings = Self {
            cluster,
            name,
            bind,
            advertise,
            seeds,
            discovery,
            groups,
            order: args.order.or(file.order).unwrap_or(OrderName::Total),
            engine: args.engine.or(file.engine).unwrap_or_default(),
            dissemination,
            multicast,
            slow_after: args.slow_after.or(file.slow_after).unwrap_or_default(),
            max_object,
            object_memory,
            spool: args.spool.or(file.spool),
            transport: args.transport.or(file.transport).unwrap_or(TransportName::Tcp),
            max_datagram: args.max_datagram.or(file.max_datagram),
            metadata,
            expect: args.expect.or(file.expect),
            found: args.found.or(file.found).unwrap_or(false),
            profile: args
                .profile
                .or(file.profile)
                .unwrap_or(ProfileName::Lan)
                .profile(),
            membership: args.membership.or(file.membership).unwrap_or_default(),
            policy: args.policy.or(file.policy).unwrap_or_default(),
            primary_lease: args.primary_lease.or(file.primary_lease).unwrap_or(true),
            udp_probes: args.udp_probes.or(file.udp_probes).unwrap_or(true),
            weight: args.weight.or(file.weight).unwrap_or(1),
            key_file: args.key_file.or(file.key_file),
            key: None,
            witness: args.witness.or(file.witness).unwrap_or(false),
            testament: args.testament,
            insecure: args.insecure.or(file.insecure).unwrap_or(false),
            allow_faults: args.allow_faults.or(file.allow_faults).unwrap_or(false),
            socket: args.socket.or(file.socket),
            json: args.json.or(file.json).unwrap_or(false),
            warnings: Vec::new(),
        };
        settings.check_reachable()?;
        settings.check_spool()?;
        settings.check_objects()?;
        settings.read_key()?;
        settings.check_exposure()?;
        settings.check_witness()?;
        if settings.expect == Some(0) {
            return Err(Failed::usage(
                "expect must be at least 1: the number of nodes the cluster is planned for",
            ));
        }
        Ok(settings)
    }

    /// The others dial what this node advertises: 0.0.0.0 and port 0 lead nowhere.
    fn check_reachable(&self) -> Result<(), Failed> {
        let leads_nowhere = |address: &&SocketAddr| address.ip().is_unspecified() || address.port() == 0;
        if let Some(address) = self.advertise.iter().find(leads_nowhere) {
            return Err(Failed::usage(format!(
                "advertise {address} is no address the others can reach: give the host's address and a port"
            )));
        }
        match self.bind.iter().find(|address| address.ip().is_unspecified()) {
            Some(address) if self.advertise.is_empty() => Err(Failed::usage(format!(
                "bind {address} listens everywhere, but the others need an address to reach this node at: add --advertise"
            ))),
            _ => Ok(()),
        }
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

    /// The library says the same by other names, and for `max-object` in bytes.
    fn check_objects(&self) -> Result<(), Failed> {
        let (largest, memory) = (self.max_object, self.object_memory);
        if !(SMALLEST_MAX_OBJECT..=LARGEST_MAX_OBJECT).contains(&largest) {
            return Err(Failed::usage(format!(
                "max-object is {largest}: give {SMALLEST_MAX_OBJECT} to {LARGEST_MAX_OBJECT}"
            )));
        }
        if memory < largest {
            return Err(Failed::usage(format!(
                "object-memory is {memory}, which does not hold one payload of the largest size: give at least max-object, {largest}"
            )));
        }
        Ok(())
    }

    fn read_key(&mut self) -> Result<(), Failed> {
        if let Some(path) = &self.key_file {
            let file = key::read(path)?;
            self.key = Some(file.key);
            self.warnings.extend(file.warning);
        }
        Ok(())
    }

    /// R10: without a key anyone who reaches a port could declare others dead, so nobody is believed.
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

    /// Without a key anyone who reaches the port can join and forge: only this host may, unless told
    /// otherwise.
    fn check_exposure(&mut self) -> Result<(), Failed> {
        if self.key.is_some() {
            return Ok(());
        }
        let seeds = self.seeds.iter().flat_map(|seed| &seed.0);
        let addresses = (self.bind.iter().map(|address| ("bind", *address)))
            .chain(self.advertise.iter().map(|address| ("advertise", *address)))
            .chain(seeds.map(|address| ("seeds", *address)));
        let exposed = addresses
            .into_iter()
            .find(|(_, address)| !address.ip().is_loopback());
        let exposed = exposed.map(|(field, address)| (format!("{field} {address}"), address.to_string()));
        let by_multicast = self
            .multicast
            .as_ref()
            .and_then(|multicast| multicast.exposure(&self.bind));
        match exposed.or(by_multicast.map(|group| (group.clone(), group))) {
            None => Ok(()),
            Some((_, address)) if self.insecure => {
                self.warnings.push(format!(
                    "insecure: no key, and {address} is not loopback; whoever reaches the port can join the cluster and forge its messages"
                ));
                Ok(())
            }
            Some((given, _)) => Err(Failed::usage(format!(
                "{given} is not on loopback and there is no key, so whoever reaches the port could join and forge; \
                 give --key-file (make one with `antiphon key FILE`), or --insecure if that is acceptable"
            ))),
        }
    }
}

fn file_of(args: &NodeArgs) -> Result<File, Failed> {
    args.config
        .as_deref()
        .map_or_else(|| Ok(File::default()), text::read)
}

fn checked_name(field: &str, name: &str) -> Result<(), Failed> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(Failed::usage(format!(
            "{field} {name:?} must have 1 to 64 bytes and no control characters"
        )));
    }
    Ok(())
}

fn pairs_to_map(pairs: Vec<String>) -> Result<BTreeMap<String, String>, Failed> {
    let mut map = BTreeMap::new();
    for pair in list("metadata", Some(pairs))?.unwrap_or_default() {
        let (key, value) = match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => (key, value),
            _ => {
                return Err(Failed::usage(format!(
                    "metadata {pair:?} must look like key=value"
                )));
            }
        };
        if let Some(other) = map.insert(key.to_owned(), value.to_owned()) {
            return Err(Failed::usage(format!(
                "metadata gives {key:?} twice, as {other:?} and as {value:?}: leave one out"
            )));
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests;
