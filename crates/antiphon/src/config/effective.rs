//! All settings of a node, given or by default, and checked against each other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::{DEFAULT_PORT, Error, Given, Patience, Seed, Size, address, groups, list, multicast, read_key};
use crate::discovery::Source;
use crate::{Builder, Cluster, ClusterKey, EngineKind, GroupOptions, Multicast, Policy, Profile, Transport};

/// The longest cluster, node or group name.
const MAX_NAME_BYTES: usize = 64;
/// What `max-object` may be: as in [`GroupOptions`], which refuses what is beyond.
const SMALLEST_MAX_OBJECT: Size = Size(64 << 10);
const LARGEST_MAX_OBJECT: Size = Size(1 << 30);
/// DNS servers listen here unless told otherwise.
const DNS_PORT: u16 = 53;

/// What a node runs with. From [`Given::effective`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Effective {
    /// The cluster's name.
    pub cluster: String,
    /// The node's name, unless it is to be a random one.
    pub name: Option<String>,
    /// Where it listens: at least one address.
    pub bind: Vec<SocketAddr>,
    /// Where the others reach it, if that is not where it listens.
    pub advertise: Vec<SocketAddr>,
    /// The seeds that are written out, their names resolved.
    pub seeds: Vec<Seed>,
    /// The sources of addresses among the seeds, as they were given.
    pub sources: Vec<String>,
    /// Locators, as they were given, each once.
    pub locators: Vec<String>,
    /// The DNS servers for what is found by name at run time, instead of those of the system.
    pub dns_servers: Vec<SocketAddr>,
    /// The groups to join; none with `no-group`.
    pub groups: Vec<String>,
    /// What each of them promises.
    pub options: GroupOptions,
    /// Where multicast goes, if it is used.
    pub multicast: Option<Multicast>,
    /// Its interface, as it was given.
    pub(super) interface: Option<String>,
    /// How messages are sent.
    pub transport: Transport,
    /// The largest datagram, in bytes; none: what the route takes.
    pub max_datagram: Option<u16>,
    /// Shown in every view.
    pub metadata: BTreeMap<String, String>,
    /// How many nodes found the cluster; none: a majority of the seeds.
    pub expect: Option<u16>,
    /// Whether it founds a cluster at once.
    pub found: bool,
    /// Timing.
    pub profile: Profile,
    /// How node views are agreed on.
    pub membership: EngineKind,
    /// Which component goes on after a partition.
    pub policy: Policy,
    /// Whether it acts as a member only while a majority answers.
    pub primary_lease: bool,
    /// Whether heartbeats go by UDP where TCP holds them up.
    pub udp_probes: bool,
    /// Its votes.
    pub weight: u16,
    /// The file with the cluster key.
    pub key_file: Option<PathBuf>,
    /// The key that is in it.
    pub key: Option<ClusterKey>,
    /// Whether it may do without a key beyond this host.
    pub insecure: bool,
    /// Whether faults may be injected.
    pub allow_faults: bool,
    /// What to tell the operator, though it works.
    pub warnings: Vec<String>,
}

impl Given {
    /// All settings, those that are not given by default, checked as a node is checked at its start: what
    /// the settings alone tell is found here. Host names are looked up now, once, and the key is read.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Value`], [`Error::Unresolved`], [`Error::Conflict`].
    pub fn effective(self) -> Result<Effective, Error> {
        let effective = self.effective_in_part()?;
        effective.check_as_a_node_does()?;
        Ok(effective)
    }

    /// The same where seeds that do not resolve were left out: conditions on the whole list are not checked.
    #[doc(hidden)]
    pub fn effective_in_part(self) -> Result<Effective, Error> {
        let cluster = self.cluster.as_deref().unwrap_or_default();
        if cluster.is_empty() {
            return Err(Error::Missing { key: "cluster" });
        }
        check_name("cluster", cluster)?;
        if let Some(name) = &self.name {
            check_name("name", name)?;
            if name.contains('/') {
                let reason =
                    format!("name {name:?} must have no slash: clients of a node are called NODE/CLIENT");
                return Err(Error::value("name", reason));
            }
        }
        let mut bind = addresses("bind", self.bind.clone())?;
        if bind.is_empty() {
            bind.push(SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)));
        }
        let advertise = addresses("advertise", self.advertise.clone())?;
        let all_seeds = list("seeds", self.seeds.clone())?.unwrap_or_default();
        let (sources, written): (Vec<String>, Vec<String>) =
            all_seeds.into_iter().partition(|text| Source::is_meant_by(text));
        for source in &sources {
            let parsed = source.parse::<Source>();
            parsed.map_err(|error| Error::value("seeds", format!("seeds {error}")))?;
        }
        let locators = list("locators", self.locators.clone())?.unwrap_or_default();
        let locators = Source::locators(locators)
            .map_err(|error| Error::value("locators", format!("locators {error}")))?;
        let locators = locators.into_iter().map(|(text, _)| text).collect();
        let dns_servers = list("dns-server", self.dns_server.clone())?.unwrap_or_default();
        let dns_servers = dns_servers.iter().map(|text| dns_server(text));
        let dns_servers = dns_servers.collect::<Result<_, _>>()?;
        let seeds = written.iter().map(|text| {
            let parts = text.split('/').map(|part| address("seeds", part, DEFAULT_PORT));
            parts.collect::<Result<_, _>>().map(Seed)
        });
        let seeds = seeds.collect::<Result<Vec<_>, _>>()?;
        let groups = groups::joined(self.group.clone(), self.no_group)?;

        let default = GroupOptions::default();
        let dissemination = self.dissemination.unwrap_or(default.dissemination);
        let multicast = multicast::of(&self, dissemination, cluster)?;
        let max_object = self.max_object.unwrap_or(Size(default.max_object_bytes));
        let twice = Size(max_object.0.saturating_mul(2));
        let options = default
            .order(self.order.unwrap_or(default.order))
            .engine(self.engine.unwrap_or(default.engine))
            .dissemination(dissemination)
            .slow_after(
                self.slow_after
                    .map_or(default.slow_after, |Patience(after)| after),
            )
            .max_object_bytes(max_object.0)
            .object_memory_bytes(self.object_memory.unwrap_or(twice).0);

        let mut effective = Effective {
            cluster: cluster.to_owned(),
            name: self.name,
            bind,
            advertise,
            seeds,
            sources,
            locators,
            dns_servers,
            groups,
            options,
            multicast,
            interface: self.multicast_interface,
            transport: self.transport.unwrap_or_default(),
            max_datagram: self.max_datagram,
            metadata: self.metadata.unwrap_or_default(),
            expect: self.expect,
            found: self.found.unwrap_or(false),
            profile: self.profile.unwrap_or_else(Profile::lan),
            membership: self.membership.unwrap_or(EngineKind::Coordinator),
            policy: self.policy.unwrap_or(Policy::Majority),
            primary_lease: self.primary_lease.unwrap_or(true),
            udp_probes: self.udp_probes.unwrap_or(true),
            weight: self.weight.unwrap_or(1),
            key_file: self.key_file,
            key: None,
            insecure: self.insecure.unwrap_or(false),
            allow_faults: self.allow_faults.unwrap_or(false),
            warnings: Vec::new(),
        };
        effective.check_reachable()?;
        effective.check_objects()?;
        if let Some(path) = &effective.key_file {
            let file = read_key(path)?;
            effective.key = Some(file.key);
            effective.warnings.extend(file.warning);
        }
        effective.check_exposure()?;
        if effective.expect == Some(0) {
            return Err(Error::value(
                "expect",
                "expect must be at least 1: the number of nodes the cluster is planned for",
            ));
        }
        Ok(effective)
    }
}

impl Effective {
    /// A node with these settings. Its groups have these options unless they are told others; it joins none
    /// of `groups` by itself.
    pub fn builder(&self) -> Builder {
        let mut builder = Cluster::builder(&self.cluster)
            .seeds(self.all_seeds())
            .locators(&self.locators)
            .dns_servers(self.dns_servers.iter().copied())
            .profile(self.profile.clone())
            .transport(self.transport)
            .membership(self.membership)
            .policy(self.policy)
            .primary_lease(self.primary_lease)
            .udp_probes(self.udp_probes)
            .weight(self.weight)
            .group_options(self.options);
        if let Some(name) = &self.name {
            builder = builder.name(name);
        }
        if let Some(bytes) = self.max_datagram {
            builder = builder.max_datagram(bytes);
        }
        if let Some(multicast) = &self.multicast {
            builder = builder.multicast(multicast.clone());
        }
        for (key, value) in &self.metadata {
            builder = builder.metadata(key, value);
        }
        for bind in &self.bind {
            builder = builder.bind(bind);
        }
        for advertise in &self.advertise {
            builder = builder.advertise(advertise);
        }
        if let Some(expect) = self.expect {
            builder = builder.expect(expect);
        }
        if self.found {
            builder = builder.found();
        }
        if let Some(key) = &self.key {
            builder = builder.key(key.clone());
        }
        if self.insecure {
            builder = builder.insecure();
        }
        if self.allow_faults {
            builder = builder.allow_faults();
        }
        builder
    }

    /// The seeds as [`Builder::seeds`] takes them: those that are written out, then the sources.
    pub fn all_seeds(&self) -> Vec<String> {
        let written = self.seeds.iter().map(ToString::to_string);
        written.chain(self.sources.iter().cloned()).collect()
    }

    /// Whether the node looks for no other nodes at run time.
    pub fn looks_for_nobody(&self) -> bool {
        self.sources.is_empty() && self.locators.is_empty()
    }

    /// Whether a node with these settings can start and join its groups, as far as the settings alone tell:
    /// what it refuses only when it is a member is found here.
    fn check_as_a_node_does(&self) -> Result<(), Error> {
        let seeds: Vec<Vec<SocketAddr>> = self.seeds.iter().map(|seed| seed.0.clone()).collect();
        let groups = self.groups.iter().map(|group| (group.clone(), self.options));
        let groups: Vec<_> = groups.collect();
        let checked = self.builder().check(&seeds, &groups);
        checked.map_err(|error| Error::Conflict {
            reason: error.to_string(),
        })
    }

    /// The others dial what this node advertises: 0.0.0.0 and port 0 lead nowhere.
    fn check_reachable(&self) -> Result<(), Error> {
        let leads_nowhere = |address: &&SocketAddr| address.ip().is_unspecified() || address.port() == 0;
        if let Some(address) = self.advertise.iter().find(leads_nowhere) {
            let reason = format!(
                "advertise {address} is no address the others can reach: give the host's address and a port"
            );
            return Err(Error::value("advertise", reason));
        }
        match self.bind.iter().find(|address| address.ip().is_unspecified()) {
            Some(address) if self.advertise.is_empty() => Err(Error::value(
                "bind",
                format!(
                    "bind {address} listens everywhere, but the others need an address to reach this node at: add --advertise"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// A node says the same by other names, and for `max-object` in bytes.
    fn check_objects(&self) -> Result<(), Error> {
        let (largest, memory) = (
            Size(self.options.max_object_bytes),
            Size(self.options.object_memory_bytes),
        );
        if !(SMALLEST_MAX_OBJECT..=LARGEST_MAX_OBJECT).contains(&largest) {
            let reason =
                format!("max-object is {largest}: give {SMALLEST_MAX_OBJECT} to {LARGEST_MAX_OBJECT}");
            return Err(Error::value("max-object", reason));
        }
        if memory < largest {
            return Err(Error::value(
                "object-memory",
                format!(
                    "object-memory is {memory}, which does not hold one payload of the largest size: give at least max-object, {largest}"
                ),
            ));
        }
        Ok(())
    }

    /// Without a key every program that reaches the port can join and forge. So unless told otherwise, only
    /// this host may reach it.
    fn check_exposure(&mut self) -> Result<(), Error> {
        if self.key.is_some() {
            return Ok(());
        }
        let seeds = self.seeds.iter().flat_map(|seed| &seed.0);
        let addresses = (self.bind.iter().map(|address| ("bind", *address)))
            .chain(self.advertise.iter().map(|address| ("advertise", *address)))
            .chain(seeds.map(|address| ("seeds", *address)));
        let exposed = addresses
            .into_iter()
            .find(|(_, address)| !address.ip().is_loopback())
            .map(|(field, address)| (field, format!("{field} {address}"), address.to_string()));
        let by_multicast = self
            .multicast
            .as_ref()
            .and_then(|multicast| multicast::exposure(multicast, self.interface.as_deref(), &self.bind));
        match exposed.or(by_multicast.map(|group| ("multicast-group", group.clone(), group))) {
            None => Ok(()),
            Some((_, _, address)) if self.insecure => {
                self.warnings.push(format!(
                    "insecure: no key, and {address} is not loopback; whoever reaches the port can join the cluster and forge its messages"
                ));
                Ok(())
            }
            Some((key, given, _)) => Err(Error::value(
                key,
                format!(
                    "{given} is not on loopback and there is no key, so whoever reaches the port could join and forge; \
                 give --key-file (make one with `antiphon key FILE`), or --insecure if that is acceptable"
                ),
            )),
        }
    }
}

fn addresses(key: &'static str, given: Option<Vec<String>>) -> Result<Vec<SocketAddr>, Error> {
    let texts = list(key, given)?.unwrap_or_default();
    texts
        .iter()
        .map(|text| address(key, text, DEFAULT_PORT))
        .collect()
}

fn dns_server(text: &str) -> Result<SocketAddr, Error> {
    let ip = || {
        text.parse::<IpAddr>()
            .ok()
            .map(|ip| SocketAddr::new(ip, DNS_PORT))
    };
    text.parse().ok().or_else(ip).ok_or_else(|| {
        let reason =
            format!("dns-server {text:?} is no address; expected such as 10.0.0.53 or 127.0.0.1:8600");
        Error::value("dns-server", reason)
    })
}

pub(super) fn check_name(key: &'static str, name: &str) -> Result<(), Error> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let reason = format!("{key} {name:?} must have 1 to 64 bytes and no control characters");
        return Err(Error::value(key, reason));
    }
    Ok(())
}
