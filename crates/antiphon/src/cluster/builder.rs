//! From settings to a running node.

mod addresses;
mod check;
mod discover;
mod to_core;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::frame::cluster_tag;
use antiphon_core::{ClusterKey, EngineKind, GroupOptions, Policy, Profile};
use antiphon_net::Inputs;
use antiphon_net::memory::MemoryNetwork;
use antiphon_net::tcp::{self, TcpConfig, TcpTransport};
use antiphon_net::udp::{self, MulticastConfig, UdpConfig, UdpTransport};
use antiphon_net::witness::LastVoteRecord;
use tokio::sync::mpsc;

use super::shared::MAX_COMMANDS;
use super::{Cluster, ClusterShared, Handle, Settings};
use crate::discovery::{Board, Source, Tasks};
use crate::driver::{self, Driver};
use crate::host::Host;
use crate::{ClusterEvent, Error};
use addresses::{advertised, conflict, firsts, resolve_all};

pub(crate) use addresses::{check_addresses_of, parse_all};

/// How messages travel between nodes. Each node chooses for what it sends; nodes that chose differently
/// understand each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Everything by TCP.
    #[default]
    Tcp,
    /// Messages by UDP on the same port number, everything else by TCP. To peers that UDP does not reach
    /// (they have no UDP, or a firewall drops it) messages go by TCP as well.
    Udp,
}

antiphon_core::named!(Transport, "transport": Tcp = "tcp", Udp = "udp");

/// Where a node sends and listens by IP multicast. Made with [`Multicast::at`], then changed field by field.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Multicast {
    /// The multicast address and port, the same at all nodes of the cluster, IPv4 or IPv6.
    pub group: SocketAddr,
    /// The interface: for IPv4 by one of its IPv4 addresses, and unless given the one with the node's first
    /// IPv4 address; for IPv6 by its number, which must be given. Without a key it must be a loopback IPv4
    /// address.
    pub interface: Option<Interface>,
    /// How far it goes: 1, the default, is this network and no farther; each router on the way takes 1. 1
    /// to 255.
    pub hops: u8,
}

/// A network interface of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Interface {
    /// The one with this address.
    Address(IpAddr),
    /// The one with this number, from 1.
    Index(u32),
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interface::Address(ip) => write!(f, "the one with address {ip}"),
            Interface::Index(index) => write!(f, "number {index}"),
        }
    }
}

/// `239.255.74.0:7401, 1 hop far`.
impl fmt::Display for Multicast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.group)?;
        if let Some(interface) = self.interface {
            write!(f, " on interface {interface}")?;
        }
        match self.hops {
            1 => f.write_str(", 1 hop far"),
            hops => write!(f, ", {hops} hops far"),
        }
    }
}

/// The port of multicast groups unless said otherwise: not that of nodes, which may listen on every address.
pub const MULTICAST_PORT: u16 = 7401;

impl Multicast {
    /// The cluster's own group among those of one's own site: 239.255.X.Y, port [`MULTICAST_PORT`], where X
    /// and Y are the first two bytes of the tag that stands for the cluster's name in each frame. Two
    /// clusters may have the same; then they hear and ignore each other.
    pub fn of_cluster(cluster: &str) -> Self {
        let [x, y, ..] = cluster_tag(cluster);
        Self::at(([239, 255, x, y], MULTICAST_PORT).into())
    }

    /// This group, on the interface of the node's own address, one hop far.
    pub fn at(group: SocketAddr) -> Self {
        Self {
            group,
            interface: None,
            hops: 1,
        }
    }
}

/// A node's settings. From [`Cluster::builder`]. Names are those of the configuration file and the flags.
#[derive(Debug, Clone)]
#[must_use = "nothing happens until `join` or `start`"]
pub struct Builder {
    cluster: String,
    name: Option<String>,
    bind: Vec<String>,
    advertise: Vec<String>,
    seeds: Vec<String>,
    sources: Vec<Source>,
    locators: Vec<String>,
    dns_servers: Vec<SocketAddr>,
    metadata: BTreeMap<String, String>,
    expect: Option<u16>,
    found: bool,
    profile: Profile,
    pub(super) policy: Policy,
    pub(super) membership: EngineKind,
    pub(super) weight: u16,
    pub(super) primary_lease: bool,
    key: Option<ClusterKey>,
    insecure: bool,
    rejoin: bool,
    allow_faults: bool,
    transport: Transport,
    pub(super) udp_probes: bool,
    max_datagram: Option<u16>,
    multicast: Option<Multicast>,
    memory: Option<MemoryNetwork>,
    last_vote: Option<PathBuf>,
    group_options: GroupOptions,
    host: Host,
}

/// A transport that listens, what comes in by it, and where the others reach it: at least one address.
pub(crate) type Bound = (Box<dyn antiphon_net::Transport>, Inputs, Vec<SocketAddr>);

impl Builder {
    pub(crate) fn new(cluster: String) -> Self {
        Self {
            cluster,
            name: None,
            bind: Vec::new(),
            advertise: Vec::new(),
            seeds: Vec::new(),
            sources: Vec::new(),
            locators: Vec::new(),
            dns_servers: Vec::new(),
            metadata: BTreeMap::new(),
            expect: None,
            found: false,
            profile: Profile::lan(),
            policy: Policy::Majority,
            membership: EngineKind::Coordinator,
            weight: 1,
            primary_lease: true,
            key: None,
            insecure: false,
            rejoin: true,
            allow_faults: false,
            transport: Transport::default(),
            udp_probes: true,
            max_datagram: None,
            multicast: None,
            memory: None,
            last_vote: None,
            group_options: GroupOptions::default(),
            host: Host::default(),
        }
    }

    /// Lives there.
    #[cfg(feature = "testkit")]
    pub(crate) fn host(mut self, host: Host) -> Self {
        self.host = host;
        self
    }

    /// The node's name, 1 to 64 bytes without slashes, unique in the cluster. Unless given: `node-` and eight
    /// random digits.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The address and port to listen on, for everything. Port 0 takes a free one. `127.0.0.1:0` unless
    /// given. Without a key only loopback addresses are allowed, unless [`insecure`](Builder::insecure).
    ///
    /// Given again, for up to 8 addresses in networks that fail apart, best first: the others send to the
    /// first that works, and no view changes as long as one does. The first is what seeds name this node by.
    /// An unspecified address (`0.0.0.0`, `[::]`) must be the only one; say with
    /// [`advertise`](Builder::advertise) which addresses it stands for.
    pub fn bind(mut self, addr: impl ToString) -> Self {
        self.bind.push(addr.to_string());
        self
    }

    /// The address and port the others reach this node at, where it is not the one bound. With several
    /// addresses once for each, in their order.
    pub fn advertise(mut self, addr: impl ToString) -> Self {
        self.advertise.push(addr.to_string());
        self
    }

    /// Addresses or host names, each with its port, of the nodes to ask for the cluster: at most 64, the same
    /// list on all of them. A majority of them founds it; a node that is not among them only joins. None: see
    /// [`found`](Builder::found). The first address of a node with several; the others may follow it,
    /// `10.0.0.1:7400/10.1.0.1:7400`, so that it is found while its first network is down. Names are resolved
    /// once, at the start.
    ///
    /// Among them may be [`Source`]s as text (`dns:db.example:7400`, `srv:_antiphon._tcp.example`,
    /// `file:/etc/nodes`, `multicast`). The node looks for their addresses again and again, as with
    /// [`discover`](Builder::discover). These addresses are only asked: they do not count for the majority.
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = impl ToString>) -> Self {
        self.seeds.extend(seeds.into_iter().map(|seed| seed.to_string()));
        self
    }

    /// Free for the application, in every view: at most 32 entries and 4096 bytes in all, no control
    /// characters.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Looks for others there too, again and again; at most 16 sources. No node founds a cluster by addresses
    /// that are found so: give [`expect`](Builder::expect) or [`found`](Builder::found), or seeds that name
    /// others; otherwise this node waits for a cluster to join.
    pub fn discover(mut self, source: Source) -> Self {
        self.sources.push(source);
        self
    }

    /// Addresses or names of locators (see [`Locator`](crate::Locator)), such as `locator.example:7410`, or
    /// [`Source`]s as text; names are resolved again and again, and all their addresses used, at most 16. The
    /// node registers with each of them and asks each for other nodes. What [`discover`](Builder::discover)
    /// says of founding holds here, too.
    pub fn locators(mut self, locators: impl IntoIterator<Item = impl ToString>) -> Self {
        self.locators
            .extend(locators.into_iter().map(|locator| locator.to_string()));
        self
    }

    /// Asks these DNS servers instead of the system's, for all that is found by names at run time. Needs the
    /// feature `dns`.
    pub fn dns_servers(mut self, servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.dns_servers.extend(servers);
        self
    }

    /// The cluster is founded only when this many different nodes are there, this one included, and have
    /// voted for it; the seeds then are only asked. Two clusters cannot be founded as long as fewer than
    /// twice as many nodes are ever started before the first view: give more than half of the nodes that
    /// there may be. Give all of them the same number, at most 256.
    pub fn expect(mut self, nodes: u16) -> Self {
        self.expect = Some(nodes);
        self
    }

    /// The cluster is founded at once, by this node alone if need be. Two nodes that are started so found two
    /// clusters. Where these meet, the cluster with less weight, or the younger one, gives way: its nodes
    /// start over in the other one, and what they had is lost.
    pub fn found(mut self) -> Self {
        self.found = true;
        self
    }

    /// Timing; [`Profile::lan`] unless given.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// The cluster's secret: everything is encrypted, and a node without the secret is refused.
    ///
    /// `antiphon key FILE` makes one and writes it as 64 hexadecimal digits: [`ClusterKey::parse`] reads
    /// these; with the feature `config`, `config::read_key` reads the file. [`ClusterKey::from_bytes`] takes
    /// 32 bytes: they must come from a good source of random numbers, never from a password.
    pub fn key(mut self, key: ClusterKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Allows addresses other than loopback without a key: any program that reaches the port can join, read
    /// and forge.
    pub fn insecure(mut self) -> Self {
        self.insecure = true;
        self
    }

    /// Whether the node joins again by itself, as a fresh incarnation, after it was removed while alive; yes
    /// unless given.
    pub fn rejoin(mut self, rejoin: bool) -> Self {
        self.rejoin = rejoin;
        self
    }

    /// Allows [`Cluster::set_faults`]. Not for production.
    pub fn allow_faults(mut self) -> Self {
        self.allow_faults = true;
        self
    }

    /// How messages travel; by TCP unless given.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.transport = transport;
        self
    }

    /// The largest UDP datagram this node sends, in bytes without the headers of IP and UDP: at least 1232.
    /// Unless given, as much as the route to each peer takes; where such datagrams do not pass, the node
    /// finds out a smaller size. By multicast, unless given, what fills packets of 1500 bytes, or of what the
    /// interface takes if that is less. There the node does *not* find out a smaller size: a peer that does
    /// not hear such datagrams is sent to directly.
    pub fn max_datagram(mut self, bytes: u16) -> Self {
        self.max_datagram = Some(bytes);
        self
    }

    /// Sends messages of groups of [`Dissemination::Multicast`](crate::Dissemination::Multicast) by IP
    /// multicast, and listens there. Without, they are sent directly; each node chooses for itself. Injected
    /// faults do not act on what is heard so.
    pub fn multicast(mut self, multicast: Multicast) -> Self {
        self.multicast = Some(multicast);
        self
    }

    /// Lives on a network inside the process instead of TCP. Addresses are then mere names. The runtime needs
    /// its I/O all the same (`enable_all`): on Linux the node's timer is the kernel's.
    pub fn memory(mut self, network: &MemoryNetwork) -> Self {
        self.memory = Some(network.clone());
        self
    }

    /// Leaves what this node votes in this file, for the process that has started this one and witnesses its
    /// end: the path of a [`Keeper`](crate::witness::Keeper) there. Needs a [`key`](Builder::key). Then a
    /// death is proven also where lifelines prove nothing, if the host lives, and that process can reach
    /// members to tell them. Costs a copy of the view into memory for each vote.
    pub fn last_vote(mut self, path: impl Into<PathBuf>) -> Self {
        self.last_vote = Some(path.into());
        self
    }

    /// What the groups of this node promise, as far as their own
    /// [builders](crate::GroupBuilder) are not told otherwise.
    pub fn group_options(mut self, options: GroupOptions) -> Self {
        self.group_options = options;
        self
    }

    /// Starts the node and waits until it is a member of a primary view.
    ///
    /// It waits without end for whatever may still change, and some of that needs a person: no seed answers,
    /// too few nodes are there to found, the seeds have a key or the name of a cluster that this node has
    /// not, a live member has this node's name. The log says what it waits for (targets
    /// `antiphon::membership` and, at the seeds, `antiphon::net`). For a program [`start`](Builder::start)
    /// and [`Cluster::events`] say the same, by [`ClusterEvent::Forming`] and [`ClusterEvent::Refused`]:
    ///
    /// ```no_run
    /// # use antiphon::{Cluster, ClusterEvent};
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let cluster = Cluster::builder("shop").seeds(["127.0.0.1:7400"]).start().await?;
    /// let mut events = cluster.events();
    /// while let Some(event) = events.next().await {
    ///     match event {
    ///         ClusterEvent::View(view) if view.is_primary() => break,
    ///         ClusterEvent::Refused { reason, fatal: true } => return Err(reason.into()),
    ///         waits => println!("{waits}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`start`](Builder::start); [`Error::Refused`] if the cluster will not have this node until a
    /// setting changes, on one side or the other ([`ClusterEvent::Refused`] with `fatal`).
    ///
    /// # Cancel safety
    /// If the future is dropped, the node stops: no member is left behind (one that was just admitted is
    /// removed as lost).
    pub async fn join(self) -> Result<Cluster, Error> {
        let cluster = self.start().await?;
        let mut events = cluster.events();
        while let Some(event) = events.next().await {
            match event {
                ClusterEvent::View(view) if view.is_primary() => return Ok(cluster),
                ClusterEvent::Refused { reason, fatal: true } => {
                    cluster.abort();
                    cluster.closed().await;
                    return Err(Error::Refused { reason });
                }
                _ => {}
            }
        }
        cluster.closed().await;
        Err(Error::Closed)
    }

    /// Starts the node and returns at once: it looks for its cluster in the background. [`Cluster::events`]
    /// tells how that goes. Must be called on a tokio runtime with time and I/O enabled. The node lives
    /// there; so do its maps, locks, calls and the like, and the handlers of its calls, wherever they are
    /// joined. All handles work on any runtime, and on a thread that has none.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Address`] (host names among the seeds are tried for 30 s),
    /// [`Error::Bind`], [`Error::LastVoteRecord`].
    ///
    /// # Cancel safety
    /// If the future is dropped, no node is started.
    pub async fn start(self) -> Result<Cluster, Error> {
        let (bind, advertise) = self.addresses()?;
        self.check_name()?;
        self.check_datagram()?;
        let (written, sources) = self.split_seeds()?;
        let seeds = resolve_all(&written).await?;
        self.check_exposure(&bind, &seeds)?;
        let mut seed = [0u64; 4];
        for word in &mut seed {
            *word = self.host.entropy()?;
        }
        let (transport, inputs, addrs) = self.bind_transport(&bind, &advertise, &firsts(&seeds))?;
        let (addr, confined) = (addrs[0], self.is_confined());

        let sources = self.open_sources(sources, &bind, addr)?;
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| format!("node-{:08x}", seed[0] as u32));
        let config = self.core_config(&name, &addrs, &seeds);
        // The core mixes what it is given and hands parts out as incarnations: the name above must not tell
        // them.
        seed[0] = self.host.entropy()?;

        let (commands, command_receiver) = mpsc::channel(MAX_COMMANDS);
        let settings = Settings::of(&config, self.group_options);
        let shared = Arc::new(ClusterShared::new(addrs, settings, commands, self.host.clone()));
        let last_vote = self.last_vote.as_ref().map(|path| {
            LastVoteRecord::open(path).map_err(|source| Error::LastVoteRecord {
                path: path.clone(),
                source,
            })
        });
        let settings = driver::Settings {
            config,
            last_vote: last_vote.transpose()?,
            host: self.host.clone(),
            seed,
            allow_faults: self.allow_faults,
            discovery: (!sources.is_empty())
                .then(|| Tasks::start(sources, &Board::new(shared.clone(), confined))),
        };
        let driver = Driver::new(settings, shared.clone(), transport, inputs, command_receiver)?;
        self.host.run(&shared, driver.run());
        Ok(Cluster {
            handle: Arc::new(Handle::new(shared)),
        })
    }

    /// Listens, and says where the others reach this node: at least one address.
    pub(crate) fn bind_transport(
        &self,
        bind: &[SocketAddr],
        advertise: &[SocketAddr],
        seeds: &[SocketAddr],
    ) -> Result<Bound, Error> {
        let first = bind[0];
        if let Some(network) = &self.memory {
            if self.multicast.is_some() {
                return Err(conflict(
                    "a network inside the process has no `multicast`: leave it out".into(),
                ));
            }
            if bind.len() > 1 || advertise.len() > 1 {
                return Err(conflict(
                    "a network inside the process gives a node one address: leave the others out".into(),
                ));
            }
            let failed = |source| Error::Bind { addr: first, source };
            let (transport, inputs) = network.bind(first).map_err(failed)?;
            let addr = antiphon_net::Transport::local_addr(&transport);
            return Ok((Box::new(transport), inputs, vec![addr]));
        }
        let (mut listeners, mut sockets, mut bound) = (Vec::new(), Vec::new(), Vec::new());
        for addr in bind {
            let failed = |source| Error::Bind { addr: *addr, source };
            let listener = match self.transport {
                Transport::Tcp if self.udp_probes => {
                    let (listener, socket) = udp::listen_for_probes(*addr).map_err(failed)?;
                    match socket {
                        Ok(socket) => sockets.push(socket),
                        Err(error) => {
                            tracing::warn!(target: "antiphon::net", %addr, %error, "no UDP on the port for probes: where packets are lost, this node may seem dead while TCP waits (free the port, or say udp-probes = false)");
                        }
                    }
                    listener
                }
                Transport::Tcp => tcp::listen(*addr).map_err(failed)?,
                Transport::Udp => {
                    let (listener, socket) = udp::listen(*addr).map_err(failed)?;
                    sockets.push(socket);
                    listener
                }
            };
            bound.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
        }
        let addrs = advertised(&bound, advertise, seeds)?;
        let mut config = TcpConfig::new(addrs[0]);
        config.loopback_only = self.is_confined();
        config.user_timeout = self
            .profile
            .suspect_after
            .clamp(Duration::from_secs(2), Duration::from_secs(20));
        config.idle_control_timeout = self
            .profile
            .heartbeat
            .saturating_mul(5)
            .clamp(Duration::from_secs(1), Duration::from_secs(10));
        let failed = |source| Error::Bind { addr: first, source };
        let multicast = self.multicast_config(bind)?;
        let not_joined = |source| Error::Multicast {
            group: self.multicast.as_ref().map_or(first, |multicast| multicast.group),
            source,
        };
        if self.transport == Transport::Tcp {
            let (mut transport, inputs) = TcpTransport::start_all(listeners, config).map_err(failed)?;
            if !sockets.is_empty() {
                transport.with_probes(sockets).map_err(failed)?;
            }
            if let Some(multicast) = &multicast {
                transport.join_multicast(multicast).map_err(not_joined)?;
            }
            return Ok((Box::new(transport), inputs, addrs));
        }
        let mut with_udp = UdpConfig::new(addrs[0]);
        with_udp.tcp = config;
        with_udp.max_datagram = self.max_datagram.map(usize::from);
        let listeners = listeners.into_iter().zip(sockets).collect();
        let (mut transport, inputs) = UdpTransport::start_all(listeners, with_udp).map_err(failed)?;
        if let Some(multicast) = &multicast {
            transport.join_multicast(multicast).map_err(not_joined)?;
        }
        Ok((Box::new(transport), inputs, addrs))
    }

    /// How a node with these settings that listens here joins its multicast group, if it has one. Of use to
    /// try that without a node.
    ///
    /// # Errors
    /// [`Error::Config`].
    #[doc(hidden)]
    pub fn multicast_config(&self, bind: &[SocketAddr]) -> Result<Option<MulticastConfig>, Error> {
        let Some(multicast) = &self.multicast else {
            return Ok(None);
        };
        let group = multicast.group;
        if !group.ip().is_multicast() || group.port() == 0 {
            return Err(conflict(format!(
                "`multicast_group` is {group}, which is no multicast address with a port: such as 239.255.74.0:7401 or [ff15::7401]:7401"
            )));
        }
        if multicast.hops == 0 {
            return Err(conflict(
                "`multicast_hops` is 0, so nothing would leave this host: give 1 to 255".into(),
            ));
        }
        let own = bind.iter().map(SocketAddr::ip).find(IpAddr::is_ipv4);
        let any = IpAddr::from([0; 4]);
        let mut config = MulticastConfig::new(group, own.unwrap_or(any));
        match multicast.interface {
            Some(Interface::Address(ip)) if ip.is_ipv4() && group.is_ipv4() => config.interface = ip,
            Some(Interface::Index(index)) if index > 0 && group.is_ipv6() => {
                config.interface = IpAddr::from([0u16; 8]);
                config.interface_index = index;
            }
            None if group.is_ipv4() => {}
            given => {
                let given = given.map_or("not given".to_owned(), |interface| interface.to_string());
                return Err(conflict(format!(
                    "`multicast_interface` is {given}, but for group {group} it must be {}",
                    if group.is_ipv4() {
                        "one of the interface's IPv4 addresses"
                    } else {
                        "the interface's number or name"
                    }
                )));
            }
        }
        // Without a key messages stay on this host, as everything does, whatever was bound.
        if self.is_confined() && !(group.is_ipv4() && config.interface.is_loopback()) {
            return Err(conflict(format!(
                "`multicast_group` is {group}, on interface {}, and there is no `key`: whoever hears it could read and forge. Give a key \
                 (--key-file FILE), say that the network is trusted (--insecure), or stay on this host: an IPv4 group, on the interface with \
                 a loopback address such as 127.0.0.1",
                match config.interface_index {
                    0 => config.interface.to_string(),
                    index => format!("number {index}"),
                }
            )));
        }
        config.hops = multicast.hops.into();
        if let Some(bytes) = self.max_datagram {
            config.max_datagram = config.max_datagram.min(bytes.into());
        }
        Ok(Some(config))
    }

    fn check_datagram(&self) -> Result<(), Error> {
        match self.max_datagram {
            Some(bytes) if usize::from(bytes) < udp::SMALLEST_DATAGRAM => Err(conflict(format!(
                "`max_datagram` is {bytes}; every network passes {}, and smaller ones are not sent",
                udp::SMALLEST_DATAGRAM
            ))),
            Some(_) if self.transport == Transport::Tcp && self.multicast.is_none() => Err(conflict(
                "`max_datagram` is given, but `transport` is TCP, which has no datagrams, and there is no `multicast`".into(),
            )),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_confined(&self) -> bool {
        self.key.is_none() && !self.insecure && self.memory.is_none()
    }

    pub(crate) fn check_loopback(&self, field: &str, addr: SocketAddr) -> Result<(), Error> {
        if self.is_confined() && !addr.ip().is_loopback() {
            return Err(conflict(format!(
                "`{field}` has {addr}, which is not a loopback address, and there is no `key`: whoever reaches the port \
                 could join, read and forge. Give a key (--key-file FILE), or say that the network is trusted (--insecure)"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addrs(given: &[&str]) -> Vec<SocketAddr> {
        given.iter().map(|addr| addr.parse().unwrap()).collect()
    }

    fn multicast(
        builder: &Builder,
        bind: &str,
        group: &str,
        interface: Option<Interface>,
    ) -> Result<MulticastConfig, String> {
        let mut multicast = Multicast::at(group.parse().unwrap());
        multicast.interface = interface;
        let config = builder
            .clone()
            .multicast(multicast)
            .multicast_config(&addrs(&[bind]));
        config.map(Option::unwrap).map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_key_multicast_stays_on_the_loopback_interface_whatever_is_bound() {
        let confined = Cluster::builder("c");
        let trusting = Cluster::builder("c").insecure();
        let (local, abroad) = ("127.0.0.1:1", "10.0.0.1:1");
        let at = |ip: [u8; 4]| Some(Interface::Address(ip.into()));
        let (ipv4, ipv6) = ("239.255.0.1:7401", "[ff15::1]:7401");
        for (bind, group, interface) in [
            (local, ipv4, at([10, 0, 0, 1])),
            (local, ipv4, at([0, 0, 0, 0])),
            (abroad, ipv4, None),
            ("[::1]:1", ipv4, None),
            ("[::1]:1", ipv6, Some(Interface::Index(1))),
        ] {
            let error = multicast(&confined, bind, group, interface).unwrap_err();
            assert!(
                error.contains("--key-file") && error.contains("--insecure"),
                "{error}"
            );
            multicast(&trusting, bind, group, interface).unwrap();
        }
        let config = multicast(&confined, local, ipv4, None).unwrap();
        assert!(config.interface.is_loopback());
        let config = multicast(&confined, abroad, ipv4, at([127, 0, 0, 1])).unwrap();
        assert!(config.interface.is_loopback());
    }

    #[test]
    fn multicast_that_cannot_work_is_refused_with_what_to_give() {
        let trusting = Cluster::builder("c").insecure();
        for (group, interface, expected) in [
            ("239.255.0.1:7401", Some(Interface::Index(2)), "is number 2, but"),
            ("[ff15::1]:7401", None, "is not given, but"),
            ("[ff15::1]:7401", Some(Interface::Index(0)), "number or name"),
            ("10.0.0.1:7401", None, "no multicast address"),
        ] {
            let error = multicast(&trusting, "10.0.0.1:1", group, interface).unwrap_err();
            assert!(error.contains(expected), "{group} {interface:?}: {error}");
        }
        let mut nowhere = Multicast::of_cluster("c");
        nowhere.hops = 0;
        let error = trusting
            .clone()
            .multicast(nowhere)
            .multicast_config(&addrs(&["10.0.0.1:1"]));
        assert!(error.unwrap_err().to_string().contains("1 to 255"));
        let with_tcp = trusting.max_datagram(1400);
        assert!(with_tcp.check_datagram().is_err());
        let config = multicast(&with_tcp, "10.0.0.1:1", "239.255.0.1:7401", None).unwrap();
        assert_eq!(config.max_datagram, 1400);
        assert!(
            with_tcp
                .multicast(Multicast::of_cluster("c"))
                .check_datagram()
                .is_ok()
        );
    }

    #[test]
    fn each_cluster_has_a_group_of_its_own_site() {
        let group = |cluster| Multicast::of_cluster(cluster).group;
        assert_ne!(group("shop"), group("bank"));
        let tag = cluster_tag("shop");
        assert_eq!(
            group("shop"),
            SocketAddr::from(([239, 255, tag[0], tag[1]], 7401))
        );
    }
}
