//! The command line. Every setting of `node` is an `Option` here: what is not given falls back to the
//! configuration file, then to the default (see `settings`). clap reads the environment, below flags and
//! above the file.

use std::error::Error;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::str::FromStr;

use antiphon::config::{Given, Patience, Size, pairs};
use antiphon::{Dissemination, EngineKind, Order, Policy, Profile, TotalEngine, Transport};
use antiphon_agent::access::Files;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::{Args, FromArgMatches as _, Parser, Subcommand};

use super::bench::BenchArgs;
use super::console::args::{self as console, MembersArgs, RecoverArgs, ViewArgs, WhyArgs};
use super::doctor::args::{self as doctor, DoctorArgs};
use super::exit::{self, Failed};
use super::locator::LocatorArgs;
use super::settings::{Agent, Peers};
use super::swarm::{self, SwarmArgs};

/// Nodes that find each other, agree on who is there, and deliver messages in one order.
#[derive(Debug, Parser)]
#[command(name = "antiphon", version, propagate_version = true, after_help = help(), max_term_width = 110)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a cluster of real processes on this machine, break it in every way, and check what it delivered
    #[command(after_help = exit::HELP_DEMO)]
    Demo(DemoArgs),
    /// Run one node of a cluster until it is told to leave
    #[command(after_help = node_help())]
    Node(Box<NodeArgs>),
    /// Run one node of a cluster that programs of any language use: groups, locks, maps, requests
    #[command(after_help = agent_help())]
    Agent(Box<AgentArgs>),
    /// Tell newcomers where the nodes of a cluster are: a small server that is no node itself
    #[command(after_help = exit::HELP_LOCATOR)]
    Locator(LocatorArgs),
    /// Make a new key, of a cluster or as a token of an agent, in a file that only you can read
    #[command(after_help = exit::HELP_KEY)]
    Key(KeyArgs),
    /// Find out why a node with these settings cannot form or join a cluster, step by step; nothing joins
    #[command(after_help = doctor::HELP)]
    Doctor(Box<DoctorArgs>),
    /// Show the members of the cluster as a node on this host sees them, and who suspects whom
    #[command(after_help = console::HELP)]
    Members(MembersArgs),
    /// Tell why a node is, or is not, a member, as a node on this host knows it
    #[command(after_help = console::HELP)]
    Why(WhyArgs),
    /// Show the last 100 views with their causes, and what else happened to a node on this host
    #[command(after_help = console::HELP)]
    View(ViewArgs),
    /// UNSAFE, when the majority is lost for good: have one survivor on this host go on alone, as a new
    /// cluster
    #[command(after_help = exit::HELP_RECOVER)]
    Recover(RecoverArgs),
    /// Measure throughput, latency, idle cost and changes of view, on this machine or between hosts
    #[command(after_help = exit::HELP_MEASURED)]
    Bench(Box<BenchArgs>),
    /// Run many whole nodes on this machine: how fast they form and leave, and what each takes
    #[command(after_help = swarm_help())]
    Swarm(SwarmArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// How many nodes, 3 to 9
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=9))]
    pub(crate) nodes: u8,
    /// Run agents in place of nodes. Each has a program that connects to its Unix socket as a client, and is
    /// the member of the group. One program also ends its connection, with the lock, and comes again. An
    /// agent takes no faults: in place of a broken network first the majority and then the minority stands
    /// still (SIGSTOP)
    #[arg(long)]
    pub(crate) agents: bool,
    /// Tell the story as JSON lines; the last one is the summary
    #[arg(long)]
    pub(crate) json: bool,
    /// Leave what every node printed, or its program was told, in this folder: lines with the milliseconds of
    /// their arrival, and logs
    #[arg(long, value_name = "DIR")]
    pub(crate) logs: Option<PathBuf>,
}

/// Settings of an agent: those of its node, and where programs reach it.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentArgs {
    #[command(flatten)]
    pub(crate) node: NodeArgs,

    /// TCP address for programs: of loopback, or with TLS and a token or certificates of clients any other;
    /// give it again for more [default: 127.0.0.1:7480, unless there is a --socket, or a service manager has
    /// handed one over]
    #[arg(
        long,
        env = "ANTIPHON_LISTEN",
        value_name = "ADDR:PORT",
        value_delimiter = ','
    )]
    pub(crate) listen: Option<Vec<String>>,

    /// Unix socket for programs of this user and root
    #[arg(long, env = "ANTIPHON_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// File with the agent's certificate, and those up to its authority, in PEM: programs speak TLS at all
    /// TCP addresses. SIGHUP has it, and the files of the next three, read again
    #[arg(long, env = "ANTIPHON_TLS_CERT", value_name = "PEM")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// File with the key of that certificate, in PEM; not open to other users
    #[arg(long, env = "ANTIPHON_TLS_KEY", value_name = "PEM")]
    pub(crate) tls_key: Option<PathBuf>,

    /// File with authorities, in PEM: a program that shows a certificate of theirs needs no token, and
    /// without --token-file each must show one
    #[arg(long, env = "ANTIPHON_TLS_CLIENT_CA", value_name = "PEM")]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// File with tokens, one a line, not open to other users: programs must show one of them at all TCP
    /// addresses. `antiphon key FILE` makes a file with one
    #[arg(long, env = "ANTIPHON_TOKEN_FILE", value_name = "F")]
    pub(crate) token_file: Option<PathBuf>,

    /// File with the commands that nodes may ask each other, in TOML (docs/commands.md): programs of this
    /// node may ask and serve them. SIGHUP has it read again
    #[arg(long, env = "ANTIPHON_COMMANDS", value_name = "TOML")]
    pub(crate) commands: Option<PathBuf>,

    /// Address for commands of peers by HTTP, WebSocket, RESP and UDP: only what is signed is answered
    #[arg(long, env = "ANTIPHON_COMMANDS_LISTEN", value_name = "ADDR:PORT")]
    pub(crate) commands_listen: Option<String>,

    /// File with authorities, in PEM, whose certificates peers show for commands by HTTPS, each for its
    /// node's name. SIGHUP has it read again
    #[arg(long, env = "ANTIPHON_COMMANDS_CA", value_name = "PEM")]
    pub(crate) commands_ca: Option<PathBuf>,
}

impl AgentArgs {
    /// What the environment alone says of an agent.
    ///
    /// # Errors
    /// A variable that an agent does not start with, on one line.
    pub(crate) fn of_environment() -> Result<Agent, String> {
        let command = Self::augment_args(clap::Command::new("agent").no_binary_name(true));
        let matches = command.try_get_matches_from(std::iter::empty::<&str>());
        let read = matches.and_then(|matches| Self::from_arg_matches(&matches));
        read.map(|args| args.agent()).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            line.trim_start_matches("error: ").to_owned()
        })
    }

    /// What is given of the agent itself.
    pub(crate) fn agent(&self) -> Agent {
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

#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The file to write; it must not exist yet
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Settings of a node. Flags win over the environment, the environment over the file.
#[derive(Debug, Default, Args)]
pub(crate) struct NodeArgs {
    /// Name of the cluster, 1 to 64 bytes: nodes of clusters with other names are refused [required]
    #[arg(long, env = "ANTIPHON_CLUSTER", value_name = "C")]
    pub(crate) cluster: Option<String>,

    /// Name of this node, 1 to 64 bytes, unique in the cluster [required]
    #[arg(long, env = "ANTIPHON_NAME", value_name = "N")]
    pub(crate) name: Option<String>,

    /// Address to listen at; the port is 7400 if left out, any free one if 0. Give it again, best first, for
    /// up to 8 addresses in networks that fail apart: as long as one works, no view changes [default:
    /// 127.0.0.1:7400]
    #[arg(long, env = "ANTIPHON_BIND", value_name = "ADDR:PORT", value_delimiter = ',')]
    pub(crate) bind: Option<Vec<String>>,

    /// Address the others reach this node at, where it differs from --bind (0.0.0.0, NAT); once for each
    /// --bind [default: --bind]
    #[arg(
        long,
        env = "ANTIPHON_ADVERTISE",
        value_name = "ADDR:PORT",
        value_delimiter = ','
    )]
    pub(crate) advertise: Option<Vec<String>>,

    /// Addresses of the nodes that may found the cluster, the same list at each; a majority of them founds
    /// it. Without seeds, or with only its own address, a node founds a cluster at once; an empty value is an
    /// error. Further addresses of a seed may follow its first: 10.0.0.1/10.1.0.1. And where to find nodes
    /// again and again, which founds nothing (see --expect): dns:NAME:PORT, srv:NAME, file:PATH,
    /// multicast[:GROUP[:PORT]][@IF]
    #[arg(long, env = "ANTIPHON_SEEDS", value_name = "A,B,…", value_delimiter = ',')]
    pub(crate) seeds: Option<Vec<String>>,

    /// Addresses or names of locators (see `antiphon locator`), or srv:NAME, file:PATH; the port is 7410 if
    /// left out. Each is told of this node, and asked for others
    #[arg(long, env = "ANTIPHON_LOCATORS", value_name = "A,B,…", value_delimiter = ',')]
    pub(crate) locators: Option<Vec<String>>,

    /// DNS servers to ask, again and again, for what is found by name, instead of the system's; the port is
    /// 53 if left out
    #[arg(
        long,
        env = "ANTIPHON_DNS_SERVER",
        value_name = "ADDR:PORT",
        value_delimiter = ','
    )]
    pub(crate) dns_server: Option<Vec<String>>,

    /// Group to join; give it again for more [default: main]
    #[arg(long, env = "ANTIPHON_GROUP", value_name = "G", value_delimiter = ',')]
    pub(crate) group: Option<Vec<String>>,

    /// Join no group: a node of the cluster alone. A group takes at most 64 members, a cluster more
    #[arg(long, env = "ANTIPHON_NO_GROUP", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) no_group: Option<bool>,

    /// Order of delivery in the groups, the same at each member: `unordered` each message as soon as it is
    /// here, `scoped` per sender and scope of the message, `fifo` per sender, `total` one sequence for all
    /// [default: total]
    #[arg(long, env = "ANTIPHON_ORDER", value_parser = named::<Order>(ORDERS), value_name = "ORDER")]
    pub(crate) order: Option<Order>,

    /// What makes the order of `total` groups, the same at each member: `sequencer` the first member numbers
    /// the messages, `rotation` members take turns by rule, `token` each numbers its own when it has the
    /// token [default: sequencer]
    #[arg(long, env = "ANTIPHON_ENGINE", value_parser = EngineParser, value_name = "ENGINE")]
    pub(crate) engine: Option<TotalEngine>,

    /// The way of the groups' messages, the same at each member: `direct` from the sender to each, `chain`
    /// from member to member, for links slower than their hosts, `multicast` once to all by IP multicast, and
    /// directly to those that do not hear it there [default: direct]
    #[arg(long, env = "ANTIPHON_DISSEMINATION", value_parser = named::<Dissemination>(DISSEMINATIONS), value_name = "WAY")]
    pub(crate) dissemination: Option<Dissemination>,

    /// With `multicast`: the multicast address and port of the cluster, IPv4 or IPv6; the port is
    /// 7401 if left out [default: 239.255.X.Y:7401, X and Y from the cluster's name]
    #[arg(long, env = "ANTIPHON_MULTICAST_GROUP", value_name = "ADDR:PORT")]
    pub(crate) multicast_group: Option<String>,

    /// With `multicast`: the network interface, by an IPv4 address of it for IPv4 [default: that of
    /// --bind], by its name or number for IPv6
    #[arg(long, env = "ANTIPHON_MULTICAST_INTERFACE", value_name = "IF")]
    pub(crate) multicast_interface: Option<String>,

    /// With `multicast`: how far it goes, 1 to 255; 1 stays in this network, each router on the way takes 1
    /// [default: 1]
    #[arg(long, env = "ANTIPHON_MULTICAST_HOPS", value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) multicast_hops: Option<u8>,

    /// Remove a member of the groups whose application takes no message for this long while others wait for
    /// it (on this node: whoever reads stdout); 1s to 1h, units ms, s, m, h, or `never`; the same at each
    /// member [default: 30s]
    #[arg(long, env = "ANTIPHON_SLOW_AFTER", value_name = "DURATION", value_parser = str::parse::<Patience>)]
    pub(crate) slow_after: Option<Patience>,

    /// Largest payload, if above 1 MiB; units KiB, MiB, GiB, 64KiB to 1GiB; the same at each member. Each
    /// holds at most as much of the large payloads of every other, and of its own [default: 256MiB]
    #[arg(long, env = "ANTIPHON_MAX_OBJECT", value_name = "SIZE", value_parser = str::parse::<Size>)]
    pub(crate) max_object: Option<Size>,

    /// The most memory, in each group, for the large payloads of all others together, at least --max-object;
    /// their senders wait [default: twice --max-object]
    #[arg(long, env = "ANTIPHON_OBJECT_MEMORY", value_name = "SIZE", value_parser = str::parse::<Size>)]
    pub(crate) object_memory: Option<Size>,

    /// Directory for the files of delivered payloads above 1 MiB; whoever reads the lines removes them
    /// [default: one of the node's own, removed when it ends]
    #[arg(long, env = "ANTIPHON_SPOOL", value_name = "DIR")]
    pub(crate) spool: Option<PathBuf>,

    /// How this node sends messages: `tcp`, or `udp` on the same port number (TCP where that does not pass).
    /// Nodes that differ in this understand each other [default: tcp]
    #[arg(long, env = "ANTIPHON_TRANSPORT", value_parser = named::<Transport>(TRANSPORTS), value_name = "NAME")]
    pub(crate) transport: Option<Transport>,

    /// Largest UDP datagram to send, also by multicast, without the headers of IP and UDP, at least 1232
    /// [default: what the route takes]
    #[arg(long, env = "ANTIPHON_MAX_DATAGRAM", value_name = "BYTES")]
    pub(crate) max_datagram: Option<u16>,

    /// Metadata that every view shows beside this node; give it again for more (32 entries, 4096 bytes in
    /// all, no control characters)
    #[arg(long, env = "ANTIPHON_METADATA", value_name = "K=V", value_delimiter = ',')]
    pub(crate) metadata: Option<Vec<String>>,

    /// Found the cluster when this many nodes are there, wherever they were found, and agree: more than half
    /// of all that may be started, at most 256, the same at each [default: a majority of the seeds]
    #[arg(long, env = "ANTIPHON_EXPECT", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) expect: Option<u16>,

    /// Found a cluster at once, alone if need be. Two nodes started so found two clusters; where those meet,
    /// one gives way, and its nodes start over without what they had
    #[arg(long, env = "ANTIPHON_FOUND", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) found: Option<bool>,

    /// Timing: `local` one host (a silent process is out in 0.6 s), `lan` one site (1.5 s), `wan` sites apart
    /// (8 s) [default: lan]
    #[arg(long, env = "ANTIPHON_PROFILE", value_parser = named::<Profile>(PROFILES), value_name = "NAME")]
    pub(crate) profile: Option<Profile>,

    /// How node views are agreed on, the same at all nodes: `coordinator`, or `cut` where several fail at
    /// once or paths lose much [default: coordinator]
    #[arg(long, env = "ANTIPHON_MEMBERSHIP", value_parser = named::<EngineKind>(MEMBERSHIPS), value_name = "NAME")]
    pub(crate) membership: Option<EngineKind>,

    /// Who goes on after a partition, the same at all nodes: `majority`, or `any`: every component, for
    /// caches and the like, merging later [default: majority]
    #[arg(long, env = "ANTIPHON_POLICY", value_parser = named::<Policy>(POLICIES), value_name = "NAME")]
    pub(crate) policy: Option<Policy>,

    /// Deliver only while a majority answers this node, so that it stops before the others may go on without
    /// it; without effect with `--policy any` [default: true]
    #[arg(long, env = "ANTIPHON_PRIMARY_LEASE", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) primary_lease: Option<bool>,

    /// Send heartbeats that TCP may hold up also by UDP, on the same port number, so that a host that loses a
    /// third of its packets is not taken for dead [default: true]
    #[arg(long, env = "ANTIPHON_UDP_PROBES", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) udp_probes: Option<bool>,

    /// Votes this node has in majorities; 0 never counts, and no cluster is founded by such nodes alone
    /// [default: 1]
    #[arg(long, env = "ANTIPHON_WEIGHT", value_name = "N")]
    pub(crate) weight: Option<u16>,

    /// File with the cluster key, 64 hex digits (see `antiphon key`): everything is encrypted and
    /// authenticated
    #[arg(long, env = "ANTIPHON_KEY_FILE", value_name = "F")]
    pub(crate) key_file: Option<PathBuf>,

    /// Run the node as a child of this process, which keeps what it votes and proves its death to the others
    /// where their connections prove nothing: behind cut cables, proxies, firewalls. Needs --key-file; Linux
    /// only
    #[arg(long, env = "ANTIPHON_WITNESS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) witness: Option<bool>,

    /// Without a key, allow addresses that are not loopback: whoever reaches the port may join and forge
    #[arg(long, env = "ANTIPHON_INSECURE", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) insecure: Option<bool>,

    /// Take {"fault":…} commands on stdin: for tests
    #[arg(long, env = "ANTIPHON_ALLOW_FAULTS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_faults: Option<bool>,

    /// File with settings (TOML): the same names as the flags, without the dashes in front
    #[arg(long, env = "ANTIPHON_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Socket at which this node answers `antiphon members`, `why`, `view` and `doctor`, or `none` [default:
    /// one in $ANTIPHON_RUNTIME_DIR, else $XDG_RUNTIME_DIR/antiphon, else, for root, /run/antiphon, else
    /// /tmp/antiphon-UID]
    #[arg(long, env = "ANTIPHON_CONSOLE", value_name = "PATH")]
    pub(crate) console: Option<PathBuf>,

    /// Speak JSON: one object a line on stdout and stdin, for programs; logs go to stderr
    #[arg(long, env = "ANTIPHON_JSON", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) json: Option<bool>,

    /// Check the settings, print what is in force as a configuration file, and end
    #[arg(long)]
    pub(crate) print_config: bool,

    /// End when this process ends: set by the demo and the benchmark for their children
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) die_with: Option<i32>,

    /// Where to leave what this node votes: set by the process of --witness for the node
    #[arg(long, value_name = "PATH", hide = true)]
    pub(crate) last_vote: Option<PathBuf>,
}

/// Names of values, and what each stands for.
type Values = &'static [(&'static str, &'static str)];

pub(crate) const ORDERS: Values = &[
    ("unordered", "None"),
    ("scoped", "Per sender and scope"),
    ("fifo", "Per sender"),
    ("total", "One sequence for all, views included"),
];
pub(crate) const ENGINES: Values = &[
    ("sequencer", "The group's first member numbers the messages"),
    ("rotation", "Members take turns by rule"),
    ("token", "Each numbers its own when it has the token"),
];
pub(crate) const DISSEMINATIONS: Values = &[
    ("direct", "From the sender to each member"),
    ("chain", "From member to member"),
    ("multicast", "Once to all, by IP multicast"),
];
pub(crate) const TRANSPORTS: Values = &[("tcp", "Everything by TCP"), ("udp", "Messages by UDP")];
pub(crate) const PROFILES: Values = &[
    ("local", "Processes of one host"),
    ("lan", "Hosts of one site"),
    ("wan", "Sites apart"),
];
pub(crate) const MEMBERSHIPS: Values = &[
    ("coordinator", "The most senior node proposes"),
    ("cut", "Ten observers for each node, and mostly no leader"),
];
const POLICIES: Values = &[
    (
        "majority",
        "The majority of the last view, or half of it with the elder",
    ),
    ("any", "Every component, as a lineage of its own"),
];

/// Reads a value by its name, and lists all names.
pub(crate) fn named<T>(values: Values) -> impl TypedValueParser<Value = T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(possible(values)).try_map(|name| T::from_str(&name))
}

fn possible(values: Values) -> impl Iterator<Item = PossibleValue> {
    let values = values.iter();
    values.map(|(name, what)| PossibleValue::new(*name).help(*what))
}

/// Reads `--engine`. A user who means an engine of the other kind is told where to give it.
#[derive(Debug, Clone, Copy)]
struct EngineParser;

impl TypedValueParser for EngineParser {
    type Value = TotalEngine;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<TotalEngine, clap::Error> {
        let read = named::<TotalEngine>(ENGINES).parse_ref(command, arg, value);
        read.map_err(|mut error| {
            if value
                .to_str()
                .is_some_and(|name| EngineKind::from_str(name).is_ok())
            {
                let tip = "membership engines are chosen with `--membership`".into();
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
            }
            error
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(possible(ENGINES)))
    }
}

impl NodeArgs {
    /// What is given of the node.
    pub(crate) fn given(&self) -> Result<Given, Failed> {
        let mut given = Given::default();
        macro_rules! take {
            ($($field:ident),*) => {$( given.$field.clone_from(&self.$field); )*};
        }
        take!(
            cluster,
            name,
            bind,
            advertise,
            seeds,
            locators,
            dns_server,
            group,
            no_group,
            order,
            engine,
            dissemination,
            multicast_group,
            multicast_interface,
            multicast_hops,
            slow_after,
            max_object,
            object_memory,
            transport,
            max_datagram,
            expect,
            found,
            profile,
            membership,
            policy,
            primary_lease,
            udp_probes,
            weight,
            key_file,
            insecure,
            allow_faults
        );
        let metadata = self.metadata.as_deref().map(pairs).transpose();
        given.metadata = metadata.map_err(Failed::usage)?;
        Ok(given)
    }
}

fn help() -> String {
    format!(
        "Of `antiphon node`; every other command has its own: `antiphon members --help`, `antiphon doctor --help`.\n{}",
        exit::HELP
    )
}

fn swarm_help() -> String {
    format!("{}\n\n{}", swarm::HELP, exit::HELP_MEASURED)
}

/// What goes over standard input and output, by name. docs/node.md says what each means.
pub(crate) const JSON_HELP: &str = "\
With --json, one object a line; docs/node.md says what each means.
  Commands, on standard input (an agent takes them from each program that connects):
    {\"send\":{\"group\":\"chat\",\"payload\":\"hello\"}}   {\"leave\":{}}
    {\"tell\":{\"group\":\"chat\",\"to\":\"b\",\"payload\":\"hello\",\"wait\":true}}
    {\"why\":{\"node\":\"a\"}}   {\"members\":{\"id\":1}}   {\"members\":{\"group\":\"block/map/m\",\"id\":1}}   {\"fault\":{\"block\":[\"b\"]}}
    {\"hello\":{\"name\":\"web-1\",\"id\":1}}   {\"join\":{\"group\":\"chat\",\"id\":2}}   {\"leave\":{\"group\":\"chat\",\"id\":3}}
    `payload` may be {\"base64\":\"…\"} or {\"file\":\"/path\"}; beside it \"safe\":true, or \"scope\":17
  Locks, leaders, maps, counters and requests, each answered by one `reply` with the same \"id\":
    {\"lock\":{\"name\":\"x\",\"within\":\"5s\",\"id\":1}}   {\"unlock\":{\"name\":\"x\",\"token\":T,\"id\":2}}
    {\"lead\":{\"name\":\"job\",\"id\":3}}   {\"resign\":{\"name\":\"job\",\"token\":T,\"to\":\"b\",\"id\":4}}
    {\"put\":{\"map\":\"m\",\"key\":\"k\",\"value\":\"v\",\"if_version\":V,\"ttl\":\"10s\",\"id\":5}}
    {\"get\":{\"map\":\"m\",\"key\":\"k\",\"latest\":true,\"id\":6}}   {\"remove\":{\"map\":\"m\",\"key\":\"k\",\"if_version\":V,\"id\":7}}
    {\"watch\":{\"map\":\"m\",\"prefix\":\"user/\",\"id\":8}}   {\"cancel\":{\"of\":8,\"id\":9}}
    {\"add\":{\"counter\":\"c\",\"by\":-1,\"id\":10}}   {\"take_ids\":{\"count\":100,\"id\":11}}
    {\"serve\":{\"group\":\"g\",\"verb\":\"v\",\"id\":12}}   {\"answer\":{\"request\":R,\"payload\":\"yes\"}}
    {\"call\":{\"group\":\"g\",\"verb\":\"v\",\"to\":\"all\",\"payload\":\"?\",\"within\":\"2s\",\"id\":13}}
  Events, on standard output, by the field `event`:
    of the node   ready, serving, forming, founded_alone, discovery, refused, node_view, merge, lease,
                  expelled, incarnation, starved, link, path, multicast, left
    of a group    view, message, bundle, told, transitional, suspended, resync, receipt, tell_receipt,
                  progress, refused, group_left
    of blocks     reply, lost, watching, changed, request, cancelled, and of an agent command
    answers       why, error, refused
Without --json, lines are sent to the first group; /why NAME, /view and /leave are commands.";

fn node_help() -> String {
    format!(
        "\
Every setting can also stand in the file given with --config (the same name, such as `key-file = \"/etc/antiphon.key\"`)
or in the environment (ANTIPHON_KEY_FILE): file < environment < flag.

Examples:
  Three terminals, one cluster:
    antiphon node --cluster shop --name a --bind 127.0.0.1:7401 --seeds 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403
    antiphon node --cluster shop --name b --bind 127.0.0.1:7402 --seeds 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403
    antiphon node --cluster shop --name c --bind 127.0.0.1:7403 --seeds 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403
  Between hosts, with a key that was copied to each:
    antiphon node --cluster shop --name a --bind 10.0.0.1:7400 --seeds 10.0.0.1,10.0.0.2,10.0.0.3 --key-file shop.key
  Under a program that reads and writes JSON lines:
    antiphon node --config node.toml --json

{JSON_HELP}

{}",
        exit::HELP
    )
}

fn agent_help() -> String {
    format!(
        "\
Each program that connects is a client of this node: docs/agent.md says what it can ask, and in which languages.

Examples:
  Three agents on one host:
    antiphon agent --cluster shop --name a --bind 127.0.0.1:7401 --seeds 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403 --listen 127.0.0.1:7481
    antiphon agent --cluster shop --name b --bind 127.0.0.1:7402 --seeds 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403 --listen 127.0.0.1:7482
    antiphon agent --cluster shop --name c --bind 127.0.0.1:7403 --seeds 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403 --listen 127.0.0.1:7483
  Two programs in one group:
    nc 127.0.0.1 7481     and then the lines  {{\"join\":{{\"group\":\"chat\"}}}}  {{\"send\":{{\"group\":\"chat\",\"payload\":\"hello\"}}}}
    nc 127.0.0.1 7482     and the same
  For programs of other hosts, with TLS and tokens:
    antiphon key agent.token
    antiphon agent --config node.toml --listen 10.0.0.1:7480 --tls-cert agent.pem --tls-key agent.key --token-file agent.token
    curl --cacert ca.pem -H \"Authorization: Bearer $(cat agent.token)\" https://10.0.0.1:7480/v1/members

  Commands to peers, by a list (docs/commands.md):
    antiphon agent --config node.toml --key-file shop.key --commands commands.toml --commands-listen 0.0.0.0:7490
    curl -s 'localhost:7480/v1/commands/cache.flush?to=all' -d '{{\"key\":\"/tea\"}}'

SIGHUP has it read certificates, keys, authorities and tokens again; it says what of the file takes a restart.
Under systemd it tells when it is ready, and takes sockets: docs/agent.md.

{}",
        exit::HELP
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_a_flag_are_those_of_the_library() {
        for (values, names) in [
            (ORDERS, Order::NAMES),
            (ENGINES, TotalEngine::NAMES),
            (DISSEMINATIONS, Dissemination::NAMES),
            (TRANSPORTS, Transport::NAMES),
            (PROFILES, Profile::NAMES),
            (MEMBERSHIPS, EngineKind::NAMES),
            (POLICIES, Policy::NAMES),
        ] {
            let listed: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
            assert_eq!(listed, names);
        }
    }

    #[test]
    fn the_help_names_every_event_that_a_node_prints() {
        let golden = include_str!("../../antiphon-api/golden/events.txt");
        for json in golden.lines().filter(|line| line.starts_with('{')) {
            let event: serde_json::Value = serde_json::from_str(json).unwrap();
            let event = event["event"].as_str().unwrap();
            // Suspicions are told by a watched console alone, and what was taken at an agent's socket.
            let printed = !matches!(event, "suspected" | "cleared" | "overrun" | "took");
            let mut named = JSON_HELP.split([' ', ',', '\n']);
            assert!(
                !printed || named.any(|word| word == event),
                "`antiphon node --help` does not name {event}"
            );
        }
    }
}
