//! A node's settings: file < environment < flag < nothing else, then checked as a whole.
//!
//! Names are the same everywhere: `--key-file`, `ANTIPHON_KEY_FILE`, `key-file = "…"`. An unknown key in the file is an
//! error that names it, since a setting that is silently ignored is found only when it was needed.

mod discovery;
mod groups;
mod library;
mod multicast;
mod print;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

use antiphon::discovery::Source;
use antiphon::{ClusterKey, Profile};
use antiphon_core::{is_link_local, link_local};
use serde::Deserialize;

use super::args::{
    DisseminationName, EngineName, MembershipName, NodeArgs, OrderName, PolicyName, ProfileName,
    TransportName,
};
use super::exit::Failed;
use super::key;
use super::patience::Patience;
use super::size::Size;
pub(crate) use discovery::DiscoverySettings;
use multicast::MulticastSettings;

/// The longest cluster, node or group name.
const MAX_NAME_BYTES: usize = 64;
/// The port where none is given.
pub(crate) const DEFAULT_PORT: u16 = 7400;
/// The library's.
const DEFAULT_MAX_OBJECT: Size = Size(256 << 20);
/// A configuration file larger than this is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

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
        let file = match &args.config {
            Some(path) => read_file(path)?,
            None => File::default(),
        };
        Self::merge(args, file)
    }

    /// Whether a node is meant at all: by its file, its names or its addresses. What it lacks then is an error.
    pub(crate) fn are_given(args: &NodeArgs) -> bool {
        let names = [&args.cluster, &args.name];
        let addresses = [&args.bind, &args.advertise, &args.seeds, &args.locators];
        args.config.is_some()
            || names.into_iter().any(Option::is_some)
            || addresses.into_iter().any(Option::is_some)
    }

    /// What is needed before the rest is checked: the addresses as they were written, before any name is looked up.
    pub(crate) fn written(args: &NodeArgs) -> Result<Written, Failed> {
        let file = match &args.config {
            Some(path) => read_file(path)?,
            None => File::default(),
        };
        let either = |given: &Option<Vec<String>>, file: Option<Strings>| {
            let texts = given.clone().or(file.map(Strings::into_vec)).unwrap_or_default();
            texts.into_iter().filter(|text| !text.is_empty()).collect()
        };
        Ok(Written {
            bind: either(&args.bind, file.bind),
            advertise: either(&args.advertise, file.advertise),
            seeds: either(&args.seeds, file.seeds),
            json: args.json.or(file.json).unwrap_or(false),
        })
    }

    fn merge(args: NodeArgs, file: File) -> Result<Self, Failed> {
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

        let addresses = |field: &str, given: Option<Vec<String>>| {
            let texts = given.unwrap_or_default();
            let texts = texts.iter().filter(|text| !text.is_empty());
            texts
                .map(|text| address(field, text))
                .collect::<Result<Vec<_>, _>>()
        };
        let mut bind = addresses("bind", args.bind.or(file.bind.map(Strings::into_vec)))?;
        if bind.is_empty() {
            bind.push(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)));
        }
        let advertise = args.advertise.or(file.advertise.map(Strings::into_vec));
        let advertise = addresses("advertise", advertise)?;
        let seeds = args
            .seeds
            .or(file.seeds.map(Strings::into_vec))
            .unwrap_or_default();
        let discovery = DiscoverySettings::merge(
            &seeds,
            args.locators.or(file.locators.map(Strings::into_vec)),
            args.dns_server.or(file.dns_server.map(Strings::into_vec)),
        )?;
        let seeds = seeds
            .iter()
            .filter(|text| !text.is_empty() && !Source::is_meant_by(text))
            .map(|text| text.split('/').map(|part| address("seeds", part)).collect())
            .map(|addresses: Result<_, _>| addresses.map(Seed))
            .collect::<Result<Vec<_>, _>>()?;

        let in_file = (file.group.map(Strings::into_vec), file.no_group);
        let groups = groups::merge((args.group, args.no_group), in_file)?;

        let metadata = match (args.metadata, file.metadata) {
            (Some(pairs), _) | (None, Some(Metadata::Pairs(pairs))) => pairs_to_map(&pairs)?,
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

    /// Without a key anyone who reaches the port can join and forge: only this host may, unless told otherwise.
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
            .find(|(_, address)| !is_loopback(address.ip()));
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

fn read_file(path: &Path) -> Result<File, Failed> {
    use std::io::Read as _;
    let shown = path.display();
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
        .map_err(|error| Failed::usage(format!("cannot read configuration file {shown}: {error}")))?;
    // toml's errors name the line, the unknown key and the keys there are.
    toml::from_str(&text).map_err(|error| Failed::usage(format!("configuration file {shown}: {error}")))
}

fn checked_name(field: &str, name: &str) -> Result<(), Failed> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return Err(Failed::usage(format!(
            "{field} {name:?} must have 1 to 64 bytes and no control characters"
        )));
    }
    Ok(())
}

/// `ADDR`, `ADDR:PORT` or `HOST:PORT`; a host is looked up once, now.
pub(crate) fn address(field: &str, text: &str) -> Result<SocketAddr, Failed> {
    address_with(field, text, DEFAULT_PORT)
}

pub(crate) fn address_with(field: &str, text: &str, port: u16) -> Result<SocketAddr, Failed> {
    let text = text.trim();
    let given = text.parse::<SocketAddr>().ok();
    let given = given.or_else(|| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, port)));
    let usable = |address: SocketAddr| match is_link_local(address.ip()) {
        true => Err(Failed::usage(format!(
            "{field} {text:?}: {}",
            link_local(address)
        ))),
        false => Ok(address),
    };
    if let Some(address) = given {
        return usable(address);
    }
    let looked_up = if text
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        text.to_socket_addrs()
    } else {
        (text, port).to_socket_addrs()
    };
    // A name may stand for an address of a link beside others.
    let best = looked_up.map(|addresses| addresses.min_by_key(|address| is_link_local(address.ip())));
    match best {
        Ok(Some(address)) => usable(address),
        Ok(None) => Err(Failed::usage(format!(
            "{field} {text:?}: the name has no address"
        ))),
        Err(error) => {
            let later = match field {
                "seeds" => {
                    "; a name that may resolve later is written dns:NAME:PORT, by which nobody founds: see --expect"
                }
                _ => "",
            };
            Err(Failed::usage(format!(
                "{field} {text:?} is no address and no name that resolves ({error}); expected such as 10.0.0.1:7400 or [::1]:7400{later}"
            )))
        }
    }
}

pub(crate) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn pairs_to_map(pairs: &[String]) -> Result<BTreeMap<String, String>, Failed> {
    pairs
        .iter()
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Failed::usage(format!(
                "metadata {pair:?} must look like key=value"
            ))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use antiphon::{Interface, Multicast};
    use clap::Parser as _;

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn args(flags: &str) -> NodeArgs {
        let line = ["antiphon", "node"].into_iter().chain(flags.split_whitespace());
        match Cli::try_parse_from(line).unwrap().command {
            Command::Node(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    fn resolve(flags: &str, file: &str) -> Result<Settings, String> {
        let file = toml::from_str::<File>(file).map_err(|error| error.to_string())?;
        Settings::merge(args(flags), file).map_err(|failed| failed.message)
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let file = r#"
            cluster = "file"
            name = "f"
            bind = "127.0.0.1:1"
            seeds = ["127.0.0.1:1", "[::1]:2"]
            group = "g,h"
            order = "fifo"
            engine = "rotation"
            dissemination = "chain"
            slow-after = "90s"
            max-object = "64MiB"
            object-memory = "100MiB"
            transport = "udp"
            max-datagram = 1400
            profile = "wan"
            membership = "cut"
            policy = "any"
            primary-lease = false
            udp-probes = false
            weight = 3
            found = true
            allow-faults = true
            metadata = { role = "db" }
        "#;
        let settings = resolve(
            "--name flag --found=false --seeds 127.0.0.1:9 --metadata a=b=c",
            file,
        )
        .unwrap();
        assert_eq!(settings.cluster, "file");
        assert_eq!(settings.name, "flag");
        assert_eq!(settings.bind[0].port(), 1);
        assert_eq!(settings.seeds, [Seed(vec!["127.0.0.1:9".parse().unwrap()])]);
        assert_eq!(settings.groups, ["g", "h"]);
        assert_eq!(settings.order, OrderName::Fifo);
        assert_eq!(settings.engine, EngineName::Rotation);
        assert_eq!(settings.dissemination, DisseminationName::Chain);
        assert_eq!(settings.slow_after.to_string(), "90s");
        assert_eq!(
            (settings.max_object, settings.object_memory),
            (Size(64 << 20), Size(100 << 20))
        );
        assert_eq!(
            (settings.transport, settings.max_datagram),
            (TransportName::Udp, Some(1400))
        );
        assert_eq!(settings.profile.name, "wan");
        assert_eq!((settings.weight, settings.membership), (3, MembershipName::Cut));
        assert_eq!(settings.policy, PolicyName::Any);
        assert!(!settings.primary_lease && !settings.udp_probes);
        assert!(!settings.found);
        assert!(settings.allow_faults);
        assert!(!settings.json);
        assert_eq!(
            settings.metadata,
            BTreeMap::from([("a".to_owned(), "b=c".to_owned())])
        );
    }

    #[test]
    fn two_names_are_enough_for_a_first_node() {
        let settings = resolve("--cluster c --name n", "").unwrap();
        assert_eq!(settings.bind, ["127.0.0.1:7400".parse().unwrap()]);
        assert_eq!(settings.groups, ["main"]);
        assert_eq!(settings.order, OrderName::Total);
        assert_eq!(
            settings.engine.engine(),
            antiphon_core::GroupOptions::default().engine
        );
        assert_eq!(settings.dissemination, DisseminationName::Direct);
        // As --help says.
        assert_eq!(settings.slow_after.to_string(), "30s");
        assert_eq!(
            (settings.max_object, settings.object_memory),
            (Size(256 << 20), Size(512 << 20))
        );
        assert_eq!(
            (settings.transport, settings.max_datagram),
            (TransportName::Tcp, None)
        );
        assert_eq!(settings.profile.name, "lan");
        assert_eq!(
            (settings.weight, settings.membership),
            (1, MembershipName::Coordinator)
        );
        assert_eq!(settings.policy.policy(), antiphon::Policy::Majority);
        assert!(settings.primary_lease && settings.udp_probes);
        assert!(settings.seeds.is_empty() && settings.warnings.is_empty());
    }

    #[test]
    fn what_is_printed_gives_the_same_settings_again() {
        let flags = "--cluster c --name n --bind [::1]:5 --bind 127.0.0.1:5 --seeds 127.0.0.1:5/[::1]:7,[::1]:6,dns:db:1 --locators loc:1,127.0.0.1 --dns-server 127.0.0.1 --group a --group b \
                     --metadata role=db,zone=z.1 --expect 3 --profile local --order fifo --engine rotation --dissemination chain --slow-after never --max-object 1MiB --spool / --json --weight 0 --membership cut --policy any --primary-lease=false --udp-probes=false \
                     --transport udp --max-datagram 9000";
        let printed = resolve(flags, "").unwrap().to_toml();
        let again = resolve("", &printed).unwrap();
        assert_eq!(again.to_toml(), printed);
        assert_eq!(again.metadata.len(), 2);
        let printed = resolve("--cluster c --name n --no-group", "").unwrap().to_toml();
        assert_eq!(resolve("", &printed).unwrap().groups, [""; 0]);
    }

    #[test]
    fn where_multicast_goes_is_said_only_with_it_and_printed() {
        let flags = "--cluster c --name n --dissemination multicast";
        let default = resolve(flags, "").unwrap();
        let own = Multicast::of_cluster("c");
        assert_eq!(default.multicast.unwrap().to_library().unwrap(), own);
        let flags = "--cluster c --name n --dissemination multicast --multicast-group [ff12::1]:9 --multicast-interface 3 \
                     --multicast-hops 2 --insecure";
        let printed = resolve(flags, "").unwrap().to_toml();
        let again = resolve("", &printed).unwrap();
        assert_eq!(again.to_toml(), printed);
        let multicast = again.multicast.unwrap().to_library().unwrap();
        assert_eq!(
            (multicast.interface, multicast.hops),
            (Some(Interface::Index(3)), 2)
        );
        for (flags, expected) in [
            ("--multicast-hops 2", "--dissemination multicast"),
            (
                "--dissemination multicast --multicast-interface no/such",
                "network interface",
            ),
            (
                "--dissemination multicast --multicast-interface lo",
                "multicast-interface is \"lo\", but for the IPv4 group",
            ),
            (
                "--dissemination multicast --multicast-group [ff12::1]:9",
                "give --multicast-interface",
            ),
            (
                "--dissemination multicast --multicast-interface 10.0.0.1",
                "on interface 10.0.0.1 is not on loopback",
            ),
            (
                "--dissemination multicast --multicast-group [ff12::1]:9 --multicast-interface 3",
                "--insecure",
            ),
        ] {
            let error = resolve(&format!("--cluster c --name n {flags}"), "").unwrap_err();
            assert!(error.contains(expected), "{flags}: {error}");
        }
    }

    #[test]
    fn an_unknown_key_in_the_file_is_named() {
        let error = resolve("", "cluster = \"c\"\nname = \"n\"\nseed = [\"127.0.0.1:1\"]").unwrap_err();
        assert!(
            error.contains("seed") && error.contains("seeds") && error.contains("line 3"),
            "{error}"
        );
        let error = resolve("", "key_file = \"k\"").unwrap_err();
        assert!(
            error.contains("key_file") && error.contains("key-file"),
            "{error}"
        );
    }

    #[test]
    fn wrong_values_are_errors_that_name_the_setting() {
        for (flags, file, expected) in [
            ("--name n", "", "no cluster is given"),
            ("--cluster c", "", "ANTIPHON_NAME"),
            ("--cluster c --name n", "weight = -1", "weight"),
            ("--cluster c --name n", "seeds = [1]", "list of strings"),
            ("--cluster c --name n", "order = \"causal\"", "causal"),
            ("--cluster c --name n", "dissemination = \"ring\"", "ring"),
            ("--cluster c --name n", "slow-after = \"30\"", "slow-after"),
            ("--cluster c --name n", "max-object = \"big\"", "256MiB"),
            (
                "--cluster c --name n --spool /nonexistent/spool",
                "",
                "/nonexistent/spool",
            ),
            ("--cluster c --name n", "transport = \"sctp\"", "sctp"),
            ("--cluster c --name n", "expect = 0", "expect"),
            ("--cluster c --name n --bind 127.0.0.1:99999", "", "bind"),
            (
                "--cluster c --name n --seeds 127.0.0.1:1,nowhere.invalid",
                "",
                "nowhere.invalid",
            ),
            ("--cluster c --name n --seeds nowhere.invalid", "", "dns:NAME"),
            (
                "--cluster c --name n --bind [fe80::1]:7400 --insecure",
                "",
                "bind \"[fe80::1]:7400\"",
            ),
            (
                "--cluster c --name n --bind [::]:7400 --advertise fe80::1 --insecure",
                "",
                "unique local",
            ),
            (
                "--cluster c --name n --seeds [fd00::1]:1,[fe80::1%2]:1 --insecure",
                "",
                "seeds \"[fe80::1%2]:1\"",
            ),
            ("--cluster c --name n --locators fe80::9", "", "unique local"),
            ("--cluster c --name n --metadata role", "", "key=value"),
            ("--cluster c --name n --group a --group a", "", "twice"),
            ("--cluster c --name n --key-file /nonexistent", "", "antiphon key"),
            (
                "--cluster c --name n --bind 0.0.0.0 --insecure",
                "",
                "--advertise",
            ),
        ] {
            let error = resolve(flags, file).expect_err(flags);
            assert!(error.contains(expected), "{flags} {file}: {error}");
        }
        let long = "x".repeat(65);
        assert!(
            resolve(&format!("--cluster {long} --name n"), "")
                .unwrap_err()
                .contains("64 bytes")
        );
    }

    #[test]
    fn without_a_key_only_loopback_is_allowed_unless_insecure_is_said() {
        for flags in [
            "--bind 10.0.0.1",
            "--bind 127.0.0.1 --seeds 127.0.0.1,10.0.0.2:1",
            "--advertise 10.0.0.1:7400",
        ] {
            let flags = format!("--cluster c --name n {flags}");
            let error = resolve(&flags, "").unwrap_err();
            assert!(
                error.contains("loopback") && error.contains("--key-file"),
                "{error}"
            );
            let allowed = resolve(&format!("{flags} --insecure"), "").unwrap();
            assert!(allowed.warnings[0].contains("insecure"));
        }
        assert!(
            resolve(
                "--cluster c --name n --bind [::ffff:127.0.0.1]:1 --seeds [::1]:1",
                ""
            )
            .is_ok()
        );
    }

    #[test]
    fn a_port_that_is_left_out_is_the_default_one() {
        let settings = resolve(
            "--cluster c --name n --bind 127.0.0.2 --seeds ::1,127.0.0.1,localhost:9/127.0.0.3",
            "",
        )
        .unwrap();
        assert_eq!(settings.bind, ["127.0.0.2:7400".parse().unwrap()]);
        assert_eq!(settings.seeds[0].to_string(), "[::1]:7400");
        assert_eq!(settings.seeds[2].0[0].port(), 9);
        assert_eq!(settings.seeds[2].0[1], "127.0.0.3:7400".parse().unwrap());
    }
}
