//! What a node is told at its start.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::sound::{addresses_are_sound, metadata_is_sound};
use antiphon_wire::MAX_NAME_BYTES;
pub use antiphon_wire::frame::ClusterKey;

/// The longest lease that a member can have: others hold votes back for so long.
pub(crate) const LONGEST_LEASE: Duration = Duration::from_secs(60);

/// The shortest and the longest `slow_after`.
pub(crate) const SLOW_AFTER: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

/// A node's configuration. Build it from a preset: `Config::new(cluster, name, addr)` has the `lan` profile.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The cluster's name, 1 to 64 bytes. Nodes of other names are refused.
    pub cluster: String,
    /// The node's name, 1 to 64 bytes, unique in the cluster.
    pub name: String,
    /// The address the others reach this node at.
    pub addr: SocketAddr,
    /// Where else they reach it, best first: at most seven addresses, in networks that fail apart.
    pub further: Vec<SocketAddr>,
    /// The configured seeds: the acceptors of the founding slot. May or may not contain `addr`.
    pub seeds: Vec<SocketAddr>,
    /// Where else a seed is reached, by its address in `seeds`: for a node that starts while its first
    /// network is down.
    pub further_of_seeds: BTreeMap<SocketAddr, Vec<SocketAddr>>,
    /// Found only when this many different nodes are present, and all of them vote for it; the seeds then are
    /// only where to ask. Two clusters cannot be founded as long as fewer than twice as many nodes are
    /// started before the first view. The same at all nodes, at most 256.
    pub expect: Option<u16>,
    /// Whether the driver tells of others at run time ([`Node::set_hints`](crate::Node::set_hints)). Then a
    /// list of seeds that names nobody else does not mean that the node is alone, and such a node founds by
    /// `expect` or `found` only.
    pub discovers: bool,
    /// Found at once, alone if need be. Two nodes so started are two clusters; where they find each other,
    /// one gives way to the other and starts over.
    pub found: bool,
    /// Free for the application; every view carries it.
    pub metadata: BTreeMap<String, String>,
    /// Votes in quorums. Default 1. A cluster is not founded before a node is there that has any.
    pub weight: u16,
    /// The partition policy. All nodes of a cluster have the same; one with another is refused.
    pub policy: Policy,
    /// The membership engine. All nodes of a cluster run the same; one with another is refused.
    pub engine: EngineKind,
    /// How many observers a node has with [`EngineKind::Cut`], the same at all nodes. For tests: 10, or views
    /// of few nodes have no two that are not neighbours.
    #[doc(hidden)]
    pub rings: usize,
    /// Whether this node believes in its view only for as long as a quorum answers it: a member that was cut
    /// off or stopped delivers nothing any more when the others may have removed it. All nodes hold their
    /// votes back for each other, whatever this one does. Without effect under [`Policy::Any`], where whoever
    /// is cut off goes on as well.
    pub primary_lease: bool,
    /// Timing.
    pub profile: Profile,
    /// The cluster key; `None` is the plain mode: frames carry a checksum, anyone can forge them.
    pub key: Option<ClusterKey>,
    /// Whether a witness keeps what this node voted
    /// ([`Output::LastVoteRecord`](crate::Output::LastVoteRecord)). Only with a key.
    pub witness: bool,
    /// Whether the driver sends and takes probes ([`Output::Probe`](crate::Output::Probe)): signs of life
    /// beside what else carries frames.
    pub udp_probes: bool,
    /// Whether the driver can send by IP multicast. Without, groups of [`Dissemination::Multicast`] are sent
    /// to directly.
    pub multicast: bool,
    /// Whether the node joins again by itself, as a fresh incarnation, after it was removed while alive.
    pub rejoin: bool,
    /// Unix time of `Time::ZERO` in milliseconds, for lineages and view numbers (R5). The driver fills it in.
    pub unix_time_ms: u64,
}

impl Config {
    /// A node of `cluster` called `name`, reached at `addr`, with no seeds, profile `lan`, policy `majority`.
    pub fn new(cluster: impl Into<String>, name: impl Into<String>, addr: SocketAddr) -> Self {
        Self {
            cluster: cluster.into(),
            name: name.into(),
            addr,
            further: Vec::new(),
            seeds: Vec::new(),
            further_of_seeds: BTreeMap::new(),
            expect: None,
            discovers: false,
            found: false,
            metadata: BTreeMap::new(),
            weight: 1,
            policy: Policy::Majority,
            engine: EngineKind::Coordinator,
            rings: 10,
            primary_lease: true,
            profile: Profile::lan(),
            key: None,
            witness: false,
            udp_probes: true,
            multicast: false,
            rejoin: true,
            unix_time_ms: 0,
        }
    }
}

impl Config {
    /// For how long this node believes in its view after a quorum answered it (R7); `None` if for as long as
    /// it hears nothing else.
    pub(crate) fn lease(&self) -> Option<Duration> {
        (self.primary_lease && self.policy == Policy::Majority).then(|| self.profile.usual_lease())
    }

    /// Whether this node is told to found a cluster without asking.
    pub(crate) fn is_told_to_found(&self) -> bool {
        self.found || self.expect == Some(1)
    }

    /// Whether the configuration leads to no other node.
    pub(crate) fn has_nobody_to_ask(&self) -> bool {
        self.expect.is_none() && !self.discovers && !self.names_others()
    }

    pub(crate) fn names_others(&self) -> bool {
        self.seeds.iter().any(|seed| *seed != self.addr)
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        validate_name("cluster", &self.cluster)?;
        validate_name("name", &self.name)?;
        if !metadata_is_sound(&self.metadata) {
            return Err(ConfigError::Metadata);
        }
        let conflict = |reason: &str| {
            Err(ConfigError::Conflict {
                reason: reason.into(),
            })
        };
        if self.found && self.expect.is_some() {
            return conflict(
                "`found` starts a cluster at once and `expect` waits for others: give only one of them",
            );
        }
        if self.witness && self.key.is_none() {
            return conflict(
                "a witness needs a cluster key: without one, whoever reaches a node could declare others dead",
            );
        }
        if self.weight == 0 && (self.is_told_to_found() || self.has_nobody_to_ask()) {
            return conflict(
                "this node founds a cluster alone, and has no vote (weight 0), so nobody could ever join it: give it a weight above 0, or seeds to ask",
            );
        }
        if self.expect == Some(0) {
            return conflict("`expect` must be at least 1: it counts this node too");
        }
        if self
            .expect
            .is_some_and(|expect| usize::from(expect) > MAX_FOUNDERS)
        {
            return conflict("`expect` is above 256: let fewer found the cluster, and the others join it");
        }
        if self.seeds.len() > MAX_SEEDS {
            return conflict(
                "more than 64 seeds: a few addresses that are always up are enough to find the others",
            );
        }
        let cannot_be_dialled = |addr: &SocketAddr| addr.port() == 0 || addr.ip().is_unspecified();
        if [self.addr].iter().chain(&self.further).any(cannot_be_dialled) {
            return conflict(
                "the advertised address must be one that others can dial: give a concrete address and port",
            );
        }
        let all = [self.addr].into_iter().chain(self.further.iter().copied());
        let all = all.chain(self.seeds.iter().copied());
        let all = all.chain(self.further_of_seeds.values().flatten().copied());
        if let Some(addr) = all.into_iter().find(|addr| is_link_local(addr.ip())) {
            return conflict(&link_local(addr));
        }
        if !addresses_are_sound(self.addr, &self.further) {
            return conflict("a node has at most 8 addresses, each of them once: leave some out");
        }
        let of_seeds = self.further_of_seeds.iter();
        if of_seeds
            .clone()
            .any(|(seed, further)| !addresses_are_sound(*seed, further))
        {
            return conflict("a seed has at most 8 addresses, each of them once: leave some out");
        }
        let profile = &self.profile;
        let timers = [
            profile.heartbeat,
            profile.suspect_after_loss,
            profile.retransmit,
            profile.batch,
        ];
        if timers
            .iter()
            .any(|timer| !(MIN_TIMER..=MAX_TIMER).contains(timer))
        {
            return conflict(
                "`heartbeat`, `suspect_after_loss`, `retransmit` and `batch` of a profile must be 1 ms to 1 h",
            );
        }
        let least = profile.heartbeat.saturating_mul(4);
        if profile.suspect_after < least || profile.suspect_after_loss > profile.suspect_after {
            return conflict(
                "`suspect_after` must be at least 4 × `heartbeat`, and `suspect_after_loss` not above it",
            );
        }
        let waits = [
            profile.suspect_after,
            profile.unreachable_after,
            profile.founding_wait,
            profile.flush_stall,
            profile.leave_within,
        ];
        if waits.iter().any(|wait| *wait > MAX_WAIT) {
            return conflict(
                "`suspect_after`, `unreachable_after`, `founding_wait`, `flush_stall` and `leave_within` of a profile must be 24 h at most",
            );
        }
        Ok(())
    }
}

/// Whether an address means something only together with an interface: `fe80::/10`. A node is known by its
/// address to all others, which have other interfaces, and an address as it is written down and sent has
/// none.
#[doc(hidden)]
pub fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfe80)
}

/// Why such an address cannot be used, and what can.
#[doc(hidden)]
pub fn link_local(addr: SocketAddr) -> String {
    format!(
        "{addr} is a link-local address (fe80::/10), which means nothing without an interface of the host that uses it, and nodes tell each other \
         addresses alone: give a global address, or a unique local one (fd00::/8)"
    )
}

/// The most nodes that found a cluster together.
pub(crate) const MAX_FOUNDERS: usize = 256;

/// The most seeds a node may be given.
pub const MAX_SEEDS: usize = 64;

/// What happens each so often happens so often at most: a node must not flood others.
const MIN_TIMER: Duration = Duration::from_millis(1);
/// And what is multiplied has an end.
const MAX_TIMER: Duration = Duration::from_secs(3600);
/// The same of what is waited for.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn validate_name(field: &'static str, value: &str) -> Result<(), ConfigError> {
    if value.is_empty() || value.len() > MAX_NAME_BYTES || value.chars().any(char::is_control) {
        return Err(ConfigError::Name {
            field,
            value: value.chars().take(80).collect(),
        });
    }
    Ok(())
}

/// Who may go on after a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The majority of the last primary view's weights; exactly half with the elder. The default.
    Majority,
    /// Every component goes on, as a lineage of its own if it has no majority. When two hear each other
    /// again, the lighter one gives way: its members start over in the other, and what they did alone is
    /// theirs to merge. For caches and the like: order, locks and fencing hold within a component only.
    Any,
}

crate::named!(Policy, "policy": Majority = "majority", Any = "any");

impl Policy {
    /// What stands for it on the wire.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Policy::Majority => 0,
            Policy::Any => 1,
        }
    }

    /// What a node that says this has, for people.
    pub fn named(code: u8) -> &'static str {
        let known = Self::ALL.into_iter().find(|policy| policy.code() == code);
        known.map_or("another policy", Self::name)
    }
}

/// How node views are agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// The most senior member that is not doubted proposes, each view is one Paxos slot. The default.
    Coordinator,
    /// Each node is judged by ten observers on as many rings; one cut for each burst of failures, decided
    /// without a leader if three quarters of the weight see the same, and by one otherwise. Where several
    /// nodes fail at once, or paths lose much.
    Cut,
}

crate::named!(EngineKind, "membership engine": Coordinator = "coordinator", Cut = "cut");

impl EngineKind {
    /// The most members that a cluster can have. Their records may be too large before.
    pub const fn max_members(self) -> usize {
        match self {
            EngineKind::Coordinator => 256,
            EngineKind::Cut => antiphon_wire::MAX_MEMBERS,
        }
    }

    /// Up to how many members it is meant for. The coordinator's members all send heartbeats to all others,
    /// which is the square of their number; where processors are few, that alone makes them busy soon after.
    pub const fn meant_for(self) -> usize {
        match self {
            EngineKind::Coordinator => 50,
            EngineKind::Cut => self.max_members(),
        }
    }

    /// What stands for it on the wire.
    pub(crate) const fn code(self) -> u8 {
        match self {
            EngineKind::Coordinator => 0,
            EngineKind::Cut => 1,
        }
    }

    /// What a node that says this runs, for people.
    pub fn named(code: u8) -> &'static str {
        let known = Self::ALL.into_iter().find(|kind| kind.code() == code);
        known.map_or("another engine", Self::name)
    }
}

/// Timing as one choice. All others follow from these.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Profile {
    /// The profile's name: `local`, `lan` or `wan`.
    pub name: &'static str,
    /// An idle member says that it lives this often.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "heartbeat_ms", with = "antiphon_wire::json::millis")
    )]
    pub heartbeat: Duration,
    /// A member not heard for this long is suspected. At least 4 × `heartbeat`.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "suspect_after_ms", with = "antiphon_wire::json::millis")
    )]
    pub suspect_after: Duration,
    /// A member whose connection was lost or refused, and that is not heard for this long since, is
    /// suspected.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "suspect_after_loss_ms", with = "antiphon_wire::json::millis")
    )]
    pub suspect_after_loss: Duration,
    /// A pair of members that cannot hear each other, while others hear both, loses its junior after this
    /// long.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "unreachable_after_ms", with = "antiphon_wire::json::millis")
    )]
    pub unreachable_after: Duration,
    /// Unacknowledged control messages are sent again after this long at first, doubling to 8 ×.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "retransmit_ms", with = "antiphon_wire::json::millis")
    )]
    pub retransmit: Duration,
    /// The coordinator gathers changes for this long before it proposes a view.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "batch_ms", with = "antiphon_wire::json::millis")
    )]
    pub batch: Duration,
    /// With a majority of the seeds but not all of them present, founding waits this long for the rest.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "founding_wait_ms", with = "antiphon_wire::json::millis")
    )]
    pub founding_wait: Duration,
    /// Without report or progress for this long a flush's laggard is removed from the group (R18).
    #[cfg_attr(
        feature = "serde",
        serde(rename = "flush_stall_ms", with = "antiphon_wire::json::millis")
    )]
    pub flush_stall: Duration,
    /// A graceful leave is bounded by this.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "leave_within_ms", with = "antiphon_wire::json::millis")
    )]
    pub leave_within: Duration,
}

/// Its name, and how long a silent member has.
impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (heartbeat, suspect) = (self.heartbeat, self.suspect_after);
        write!(
            f,
            "{} (heartbeats every {heartbeat:?}, suspected after {suspect:?})",
            self.name
        )
    }
}

impl Profile {
    /// How long an answer is good if nothing else is said (R7): a member that falls silent stops believing a
    /// little before it is suspected.
    pub(crate) fn usual_lease(&self) -> Duration {
        self.suspect_after
            .saturating_sub(self.heartbeat)
            .min(LONGEST_LEASE)
    }

    /// The names of the presets.
    pub const NAMES: &[&str] = &["local", "lan", "wan"];

    /// Processes of one host. Detects a silent process in 0.6 s.
    pub fn local() -> Self {
        Self {
            name: "local",
            heartbeat: Duration::from_millis(100),
            suspect_after: Duration::from_millis(600),
            suspect_after_loss: Duration::from_millis(200),
            unreachable_after: Duration::from_millis(1500),
            retransmit: Duration::from_millis(30),
            batch: Duration::from_millis(2),
            founding_wait: Duration::from_millis(200),
            flush_stall: Duration::from_secs(3),
            leave_within: Duration::from_secs(5),
        }
    }

    /// Hosts of one site: round trips below 5 ms, pauses up to a second forgiven, a silent host out within 2
    /// s.
    pub fn lan() -> Self {
        Self {
            name: "lan",
            heartbeat: Duration::from_millis(200),
            suspect_after: Duration::from_millis(1500),
            suspect_after_loss: Duration::from_millis(500),
            unreachable_after: Duration::from_secs(4),
            retransmit: Duration::from_millis(50),
            batch: Duration::from_millis(5),
            founding_wait: Duration::from_millis(500),
            flush_stall: Duration::from_secs(5),
            leave_within: Duration::from_secs(5),
        }
    }

    /// Sites apart: round trips up to 300 ms, a silent host out within 10 s.
    pub fn wan() -> Self {
        Self {
            name: "wan",
            heartbeat: Duration::from_secs(1),
            suspect_after: Duration::from_secs(8),
            suspect_after_loss: Duration::from_secs(3),
            unreachable_after: Duration::from_secs(20),
            retransmit: Duration::from_millis(400),
            batch: Duration::from_millis(20),
            founding_wait: Duration::from_secs(2),
            flush_stall: Duration::from_secs(20),
            leave_within: Duration::from_secs(20),
        }
    }
}

/// A preset by its name.
impl std::str::FromStr for Profile {
    type Err = crate::NameError;

    fn from_str(text: &str) -> Result<Self, crate::NameError> {
        let presets = [Self::local(), Self::lan(), Self::wan()];
        let named = presets.into_iter().find(|preset| preset.name == text);
        named.ok_or_else(|| crate::NameError::new("profile", text, Self::NAMES))
    }
}

/// A preset by its name, with whatever else is written in the place of what it has.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Profile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            name: String,
            heartbeat_ms: Option<u64>,
            suspect_after_ms: Option<u64>,
            suspect_after_loss_ms: Option<u64>,
            unreachable_after_ms: Option<u64>,
            retransmit_ms: Option<u64>,
            batch_ms: Option<u64>,
            founding_wait_ms: Option<u64>,
            flush_stall_ms: Option<u64>,
            leave_within_ms: Option<u64>,
        }
        let written = Written::deserialize(deserializer)?;
        let mut profile: Self = written.name.parse().map_err(serde::de::Error::custom)?;
        for (field, ms) in [
            (&mut profile.heartbeat, written.heartbeat_ms),
            (&mut profile.suspect_after, written.suspect_after_ms),
            (&mut profile.suspect_after_loss, written.suspect_after_loss_ms),
            (&mut profile.unreachable_after, written.unreachable_after_ms),
            (&mut profile.retransmit, written.retransmit_ms),
            (&mut profile.batch, written.batch_ms),
            (&mut profile.founding_wait, written.founding_wait_ms),
            (&mut profile.flush_stall, written.flush_stall_ms),
            (&mut profile.leave_within, written.leave_within_ms),
        ] {
            *field = ms.map_or(*field, Duration::from_millis);
        }
        Ok(profile)
    }
}

/// What a group promises. All members must ask for the same; a difference is refused with both sides shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct GroupOptions {
    /// The delivery order.
    pub order: Order,
    /// Each member may have this many bytes sent that some member's application has not consumed; every
    /// member reserves as much for every other. 64 KiB to 64 MiB.
    pub window_bytes: u32,
    /// The way of the messages from their sender to the others.
    pub dissemination: Dissemination,
    /// A member whose application takes nothing for this long while others wait for it is removed, with the
    /// cause `slow`. 1 s to 1 h in whole milliseconds; `None` is never.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "slow_after_ms", with = "antiphon_wire::json::millis_if_any")
    )]
    pub slow_after: Option<Duration>,
    /// What makes the order of a total group; of no meaning in any other.
    pub engine: TotalEngine,
    /// The largest payload, in bytes, if it is above 1 MiB or the window: an object, which travels beside the
    /// messages. A member holds at most this much of the objects of one sender, and a sender of its own. 64
    /// KiB to 1 GiB.
    pub max_object_bytes: u32,
    /// This much of the objects of all other senders together is held by this member, in bytes, from when
    /// they are offered until the application has taken them; senders wait. At least `max_object_bytes`, at
    /// most 4 GiB. Each member may have its own.
    pub object_memory_bytes: u32,
}

/// The smallest window: the largest payload fits.
pub const MIN_WINDOW_BYTES: u32 = 64 << 10;
/// The largest window.
pub const MAX_WINDOW_BYTES: u32 = 64 << 20;
/// What the largest payload may be set to.
const MAX_OBJECT_BYTES: std::ops::RangeInclusive<u32> = 64 << 10..=antiphon_wire::object::MAX_OBJECT_BYTES;

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            order: Order::Total,
            window_bytes: 1 << 20,
            dissemination: Dissemination::Direct,
            slow_after: Some(Duration::from_secs(30)),
            engine: TotalEngine::Sequencer,
            max_object_bytes: 256 << 20,
            object_memory_bytes: 512 << 20,
        }
    }
}

/// `total by sequencer, direct, a window of 1048576 bytes, …`.
impl std::fmt::Display for GroupOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.order)?;
        if self.order == Order::Total {
            write!(f, " by {}", self.engine)?;
        }
        write!(
            f,
            ", {}, a window of {} bytes, payloads of up to {} bytes and {} bytes of them in memory, ",
            self.dissemination, self.window_bytes, self.max_object_bytes, self.object_memory_bytes
        )?;
        match self.slow_after {
            Some(after) => write!(f, "members that read nothing removed after {after:?}"),
            None => f.write_str("members that read nothing never removed"),
        }
    }
}

impl GroupOptions {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if !(MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES).contains(&self.window_bytes) {
            return Err(ConfigError::Conflict {
                reason: format!(
                    "`window_bytes` is {}; it must be 65536 to 67108864",
                    self.window_bytes
                ),
            });
        }
        if let Some(slow_after) = self.slow_after
            && (!SLOW_AFTER.contains(&slow_after) || slow_after.subsec_nanos() % 1_000_000 != 0)
        {
            return Err(ConfigError::Conflict {
                reason: format!(
                    "`slow_after` is {slow_after:?}; it must be 1 s to 1 h in whole milliseconds, or `None` for never"
                ),
            });
        }
        if !MAX_OBJECT_BYTES.contains(&self.max_object_bytes) {
            return Err(ConfigError::Conflict {
                reason: format!(
                    "`max_object_bytes` is {}; it must be 65536 to 1073741824",
                    self.max_object_bytes
                ),
            });
        }
        if self.object_memory_bytes < self.max_object_bytes {
            return Err(ConfigError::Conflict {
                reason: format!(
                    "`object_memory_bytes` is {}; it must be at least `max_object_bytes`, which is {}",
                    self.object_memory_bytes, self.max_object_bytes
                ),
            });
        }
        Ok(())
    }

    /// These options with another limit for payloads.
    pub fn max_object_bytes(self, max_object_bytes: u32) -> Self {
        Self {
            max_object_bytes,
            ..self
        }
    }

    /// These options with other memory for objects of others.
    pub fn object_memory_bytes(self, object_memory_bytes: u32) -> Self {
        Self {
            object_memory_bytes,
            ..self
        }
    }

    /// These options with another order.
    pub fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// These options with another window.
    pub fn window_bytes(self, window_bytes: u32) -> Self {
        Self { window_bytes, ..self }
    }

    /// These options with another dissemination.
    pub fn dissemination(self, dissemination: Dissemination) -> Self {
        Self {
            dissemination,
            ..self
        }
    }

    /// These options with another limit for members that do not read; `None` is never.
    pub fn slow_after(self, slow_after: Option<Duration>) -> Self {
        Self { slow_after, ..self }
    }

    /// These options with another engine of the total order.
    pub fn engine(self, engine: TotalEngine) -> Self {
        Self { engine, ..self }
    }
}

/// The order in which a group delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Order {
    /// None: each message as soon as it is here, also when one that its sender sent before is late or lost on
    /// the way and comes later. Reliable, and once.
    Unordered,
    /// Per sender and scope: each message names a scope, and comes after those of its sender with the same
    /// scope, whatever becomes of others. The application may handle scopes in parallel.
    Scoped,
    /// Per sender.
    Fifo,
    /// One sequence for all, views included.
    Total,
}

crate::named!(Order, "order": Unordered = "unordered", Scoped = "scoped", Fifo = "fifo", Total = "total");

/// What makes the one sequence of a group of [`Order::Total`]. All promise the same; they differ in what they
/// cost where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TotalEngine {
    /// The group's first member numbers the messages, and sends the numbers to all.
    Sequencer,
    /// Members take turns by rule, so that no order travels; whoever has nothing to send passes, once for any
    /// number of turns. Every member is waited for.
    Rotation,
    /// A token goes from member to member; whoever has it numbers its own messages.
    Token,
}

crate::named!(TotalEngine, "engine": Sequencer = "sequencer", Rotation = "rotation", Token = "token");

impl TotalEngine {
    /// What stands for it on the wire.
    pub(crate) const fn code(self) -> u8 {
        match self {
            TotalEngine::Sequencer => 0,
            TotalEngine::Rotation => 1,
            TotalEngine::Token => 2,
        }
    }
}

/// How a group's messages get from their sender to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Dissemination {
    /// The sender sends each message to every other member: the shortest way, paid by the sender's link.
    Direct,
    /// The sender sends each message to one member, which hands it on to the next, and so on: every link
    /// carries it once, and it takes one hop more per member. For links that are slower than their hosts, and
    /// large messages.
    Chain,
    /// The sender sends each message once, to a multicast address of the network, and directly to those that
    /// do not hear it there. For switched networks that pass IP multicast, and many members.
    Multicast,
}

crate::named!(Dissemination, "dissemination": Direct = "direct", Chain = "chain", Multicast = "multicast");

/// A configuration that cannot work. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A name is empty, too long, or has control characters.
    Name {
        /// Which field.
        field: &'static str,
        /// What was given.
        value: String,
    },
    /// Metadata has too many entries or bytes.
    Metadata,
    /// Two settings contradict each other.
    Conflict {
        /// Both, and the remedy.
        reason: String,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Name { field, value } => {
                write!(
                    f,
                    "{field} {value:?} must have 1 to 64 bytes and no control characters"
                )
            }
            ConfigError::Metadata => {
                f.write_str("metadata may have 32 entries and 4096 bytes in all, and no control characters")
            }
            ConfigError::Conflict { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for ConfigError {}

antiphon_wire::written_as_text!(ConfigError);
