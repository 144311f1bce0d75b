//! Asking the seeds, whoever is found besides, and the locators, all at the same time.
//!
//! ```text
//!   each address ── enquiry ──► notice: taken, or why not          steps: reach, version, cluster, key
//!                               answers, at the addresses of this node   steps: answer, wire level, engine, verdict, groups
//!   whoever admits nodes and is no seed is asked the same way afterwards
//! ```
//! A locator takes the question, which shows that it is one of this cluster, and has no answer to it.
//! A node may lose an answer: it has just tried in vain to reach the node that is not running here. So whoever took the question and
//! has not answered is asked again, a few times.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::wire::enquiry::{Answer, Notice, Verdict};
use antiphon_core::wire::frame::WIRE_VERSION;
use antiphon_core::wire::membership::WIRE_LEVEL;
use antiphon_core::{EngineKind, Enquirer, GroupOptions};
use antiphon_net::tcp::{Reached, TcpConfig, TcpTransport, enquire};
use antiphon_net::udp::{Greeted, greet};
use antiphon_net::{Input, Inputs};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::port::Port;
use super::report::{Report, Step};
use super::sources::Found;
use crate::cli::args::TransportName;
use crate::cli::exit::Failed;
use crate::cli::settings::Settings;

/// How often a node is asked that takes the question and is silent.
const ROUNDS: u32 = 3;
/// Addresses asked at most.
const MAX_ASKED: usize = 512;
/// Inputs taken at a time.
const INPUTS: usize = 64;

/// One address that is asked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) addr: SocketAddr,
    /// The seed it is an address of, by its place in the list; where a number of nodes is expected, those that were found have
    /// places after it. None: it counts for no founding.
    pub(super) seed: Option<usize>,
    locator: bool,
    reached: Option<Reached>,
    pub(super) answer: Option<Answer>,
    /// The addresses of this node at which answers came.
    arrived: BTreeSet<SocketAddr>,
}

impl Asked {
    fn new(addr: SocketAddr, seed: Option<usize>) -> Self {
        Self {
            addr,
            seed,
            locator: false,
            reached: None,
            answer: None,
            arrived: BTreeSet::new(),
        }
    }

    fn locator(addr: SocketAddr) -> Self {
        Self {
            locator: true,
            ..Self::new(addr, None)
        }
    }

    fn notice(&self) -> Option<&Notice> {
        match &self.reached {
            Some(Reached::Node { notice, .. }) => Some(notice),
            _ => None,
        }
    }

    /// Whether it is a node that has the question.
    fn took_it(&self) -> bool {
        let taken = |notice: &Notice| notice.verdict == Verdict::Taken;
        !self.locator && self.notice().is_some_and(taken)
    }
}

/// All that are asked, and what they said.
#[derive(Debug)]
pub(super) struct Enquiries {
    cluster: String,
    /// How the key of this side is called.
    key: String,
    udp: bool,
    within: Duration,
    port: PortInUse,
    enquirer: Enquirer,
    /// The digest of this node's seed list.
    pub(super) seeds: u64,
    /// Whether this node would be one of those that found the cluster.
    pub(super) founder: bool,
    /// Seeds that are not this node itself.
    pub(super) others: usize,
    pub(super) asked: Vec<Asked>,
}

#[derive(Debug)]
struct PortInUse {
    reached_at: Vec<SocketAddr>,
    is_the_nodes: bool,
    inputs: Inputs,
    /// Listens as long as this is here.
    _transport: TcpTransport,
}

impl Enquiries {
    pub(super) fn new(
        settings: &Settings,
        found: &Found,
        port: Port,
        within: Duration,
    ) -> Result<Self, Failed> {
        let addrs_of_seeds: Vec<Vec<SocketAddr>> = settings.seeds.iter().map(|seed| seed.0.clone()).collect();
        let config = settings
            .builder()?
            .core_config(&settings.name, &port.advertised, &addrs_of_seeds);
        let entropy =
            || getrandom::u64().map_err(|error| Failed::run(format!("the system gave no entropy: {error}")));
        let seed = [entropy()?, entropy()?, entropy()?];
        let groups: Vec<(String, GroupOptions)> = settings
            .groups
            .iter()
            .map(|group| (group.clone(), settings.group_options()))
            .collect();
        let enquirer = Enquirer::new(&config, &groups, seed, port.reached_at.clone())
            .map_err(|error| Failed::usage(error.to_string()))?;
        let started = TcpTransport::start_all(port.listeners, TcpConfig::new(port.reached_at[0]));
        let (transport, inputs) =
            started.map_err(|error| Failed::run(format!("cannot listen for answers: {error}")))?;
        let own: BTreeSet<SocketAddr> = port.advertised.iter().chain(&settings.bind).copied().collect();
        let mut asked = Vec::new();
        let mut others = 0;
        for (number, seed) in settings.seeds.iter().enumerate() {
            if !seed.0.iter().any(|addr| own.contains(addr)) {
                asked.extend(seed.0.iter().map(|addr| Asked::new(*addr, Some(number))));
                others += 1;
            }
        }
        let mut known: BTreeSet<SocketAddr> = asked.iter().map(|asked: &Asked| asked.addr).collect();
        known.extend(own);
        for (number, addr) in found.nodes.iter().enumerate() {
            if known.insert(*addr) {
                let place = settings.expect.map(|_| settings.seeds.len() + number);
                asked.push(Asked::new(*addr, place));
            }
        }
        let locators = found.locators.iter().filter(|addr| known.insert(**addr));
        asked.extend(locators.map(|addr| Asked::locator(*addr)));
        asked.truncate(MAX_ASKED);
        Ok(Self {
            cluster: settings.cluster.clone(),
            key: settings
                .key
                .as_ref()
                .map_or("no key".to_owned(), |key| format!("key {}", key.id())),
            udp: settings.transport == TransportName::Udp,
            within,
            port: PortInUse {
                reached_at: port.reached_at,
                is_the_nodes: port.is_the_nodes,
                inputs,
                _transport: transport,
            },
            seeds: enquirer.seeds(),
            founder: enquirer.founder(),
            others,
            enquirer,
            asked,
        })
    }

    /// Asks all, and tells what came.
    pub(super) async fn run(&mut self, report: &mut Report) {
        self.ask(0).await;
        let seeds = self.asked.len();
        let known: BTreeSet<SocketAddr> = self.asked.iter().map(|asked| asked.addr).collect();
        let coordinators: BTreeSet<SocketAddr> = self
            .asked
            .iter()
            .filter_map(|asked| asked.answer.as_ref()?.coordinator.as_ref())
            .map(|(_, addr)| *addr)
            .filter(|addr| !known.contains(addr) && !self.port.reached_at.contains(addr))
            .collect();
        self.asked
            .extend(coordinators.into_iter().map(|addr| Asked::new(addr, None)));
        if self.asked.len() > seeds {
            self.ask(seeds).await;
        }
        for asked in &self.asked {
            self.tell(report, asked);
        }
        self.greet(report).await;
    }

    /// Asks those from this one on, until they have answered or the time is over.
    async fn ask(&mut self, first: usize) {
        for _ in 0..ROUNDS {
            let waiting: Vec<usize> = (first..self.asked.len())
                .filter(|number| {
                    let asked = &self.asked[*number];
                    asked.reached.is_none()
                        || (asked.took_it() && asked.arrived.len() < self.port.reached_at.len())
                })
                .collect();
            if waiting.is_empty() {
                return;
            }
            let mut reaching = JoinSet::new();
            for number in waiting {
                // There are at most MAX_ASKED.
                let frame = self.enquirer.question(number as u16);
                let (to, from, within) = (self.asked[number].addr, self.port.reached_at[0], self.within);
                reaching.spawn(async move { (number, enquire(to, from, &frame, within).await) });
            }
            let mut deadline = None;
            let mut inputs = Vec::with_capacity(INPUTS);
            while !self.is_done(first) || !reaching.is_empty() {
                let soon = deadline.unwrap_or_else(|| Instant::now() + self.within * 3);
                let turn = async {
                    tokio::select! {
                        Some(reached) = reaching.join_next(), if !reaching.is_empty() => Turn::Reached(reached.ok()),
                        count = self.port.inputs.recv_many(&mut inputs, INPUTS) => Turn::Inputs(count),
                    }
                };
                match timeout_at(soon, turn).await {
                    Err(_) => break,
                    Ok(Turn::Inputs(0)) => return,
                    Ok(Turn::Inputs(_)) => self.take(&mut inputs),
                    Ok(Turn::Reached(reached)) => {
                        if let Some((number, reached)) = reached {
                            self.asked[number].reached = Some(reached);
                        }
                        if reaching.is_empty() {
                            deadline = Some(Instant::now() + self.within / ROUNDS);
                        }
                    }
                }
            }
        }
    }

    fn is_done(&self, first: usize) -> bool {
        let done = |asked: &Asked| match &asked.reached {
            None => false,
            Some(_) => !asked.took_it() || asked.arrived.len() >= self.port.reached_at.len(),
        };
        self.asked[first..].iter().all(done)
    }

    fn take(&mut self, inputs: &mut Vec<Input>) {
        for input in inputs.drain(..) {
            let Input::Frames {
                connection, frames, ..
            } = input
            else {
                continue;
            };
            for frame in frames {
                match self.enquirer.open(frame) {
                    Ok(answers) => {
                        connection.accepted();
                        for (number, answer) in answers {
                            // Whoever answers says where to; only what was asked for shows that a way is open.
                            if let Some(asked) = self.asked.get_mut(usize::from(number))
                                && self.port.reached_at.contains(&answer.to)
                            {
                                asked.arrived.insert(answer.to);
                                asked.answer = Some(answer);
                            }
                        }
                    }
                    Err(error) => connection.refused(error),
                }
            }
        }
    }

    fn tell(&self, report: &mut Report, asked: &Asked) {
        let Some(reached) = &asked.reached else {
            return;
        };
        let notice = match self.reach(asked, reached) {
            Ok((step, notice)) => {
                report.add(step);
                notice
            }
            Err(step) => return report.add(step),
        };
        if let Some(step) = self.identity(asked, notice) {
            return report.add(step);
        }
        let what = if asked.locator { "locator" } else { "node" };
        report.add(Step::ok(
            "identity",
            asked.addr,
            format!(
                "a {what} of cluster {}, same key, frame version {}, wire level {}",
                self.cluster, notice.version, notice.wire_level
            ),
        ));
        if asked.locator {
            return;
        }
        let Some(answer) = &asked.answer else {
            return report.add(self.no_answer(asked));
        };
        self.told(report, asked, answer);
    }

    /// Whether a node is there at all.
    fn reach<'a>(&self, asked: &Asked, reached: &'a Reached) -> Result<(Step, &'a Notice), Step> {
        let within = self.within.as_secs_f32();
        let (code, cause, remedy) = match reached {
            Reached::Node { notice, connected } => {
                let text = format!("connected in {:.1} ms", connected.as_secs_f64() * 1000.0);
                return Ok((Step::ok("reach", asked.addr, text), notice));
            }
            Reached::Refused => (
                "nobody-listens",
                "nobody listens there: the host refuses the connection".to_owned(),
                "start that node; if it runs, compare its --bind with this address, and look for a firewall that rejects",
            ),
            Reached::TimedOut => (
                "timeout",
                format!("no answer to the connection within {within} s"),
                "packets are dropped on the way: a firewall (here, there or between), a wrong address, or the host is down",
            ),
            Reached::Unreachable(error) => (
                "unreachable",
                format!("the system cannot send there: {error}"),
                "mend the address, the route or the interface of this host",
            ),
            Reached::Silent => (
                "silent",
                format!("it takes the connection, and says nothing for {within} s"),
                "a node whose process is stopped or starved does this, and so does something that is no node: look which process has that port",
            ),
            Reached::Closed => (
                "closed",
                "it takes the connection and ends it without a word".to_owned(),
                "a node at its limit of connections does this, an overloaded proxy, or something that is no node: look which process has that port, and into its log",
            ),
            Reached::Stranger(bytes) => (
                "stranger",
                format!(
                    "something else than Antiphon answers: it begins with {}",
                    shown(bytes)
                ),
                "mend the address or port in the seed list, or stop what has taken the node's port",
            ),
            _ => (
                "reach",
                "it is not understood what is there".to_owned(),
                "use a newer `antiphon`",
            ),
        };
        Err(Step::failed("reach", code, asked.addr, cause, remedy))
    }

    /// Whether the node there is one of this cluster that can be talked to.
    fn identity(&self, asked: &Asked, notice: &Notice) -> Option<Step> {
        let older = |theirs: u8, ours: u8| match theirs < ours {
            true => "upgrade that node",
            false => "upgrade this one",
        };
        let (code, cause, remedy) = match notice.verdict {
            Verdict::Taken => {
                let apart = notice.wire_level.abs_diff(WIRE_LEVEL);
                if apart <= 1 && notice.wire_level > 0 {
                    return None;
                }
                (
                    "wire-level",
                    format!(
                        "it speaks wire level {} and this build {WIRE_LEVEL}: a build supports its own and the one before",
                        notice.wire_level
                    ),
                    older(notice.wire_level, WIRE_LEVEL).to_owned(),
                )
            }
            Verdict::Version => (
                "wire-version",
                format!(
                    "it speaks frame version {} and this build {WIRE_VERSION}",
                    notice.version
                ),
                older(notice.version, WIRE_VERSION).to_owned(),
            ),
            Verdict::OtherCluster => (
                "other-cluster",
                format!(
                    "the node there belongs to a cluster of another name than {:?}",
                    self.cluster
                ),
                "give both the same --cluster, or mend the address in the seed list".to_owned(),
            ),
            Verdict::Key => (
                "wrong-key",
                format!(
                    "the node there has another cluster key, or only one side has one: this side has {}",
                    self.key
                ),
                "give both the same --key-file; `antiphon doctor` on that host shows the id of its key"
                    .to_owned(),
            ),
            Verdict::BadTag => (
                "bad-tag",
                "the frame did not open there: it was damaged on the way, or sealed with another key"
                    .to_owned(),
                "compare the key files; look for a middle box that changes what passes".to_owned(),
            ),
            Verdict::NotAFrame | Verdict::Other(_) | _ => (
                "not-taken",
                "the node there refused the frame for another reason".to_owned(),
                "its log says why".to_owned(),
            ),
        };
        Some(Step::failed("identity", code, asked.addr, cause, remedy))
    }

    fn no_answer(&self, asked: &Asked) -> Step {
        let at: Vec<String> = self.port.reached_at.iter().map(ToString::to_string).collect();
        let at = at.join(", ");
        let cause = format!(
            "it took the question, and its answer did not come to {at}: the way there is open, the way back is not"
        );
        let step = Step::failed(
            "answer",
            "no-answer",
            asked.addr,
            cause,
            "it must reach this node at that address: mend --advertise, or open the port in the firewall of this host",
        );
        match self.port.is_the_nodes {
            true => step,
            // A firewall may well pass the node's own port only.
            false => step.but_harmless(),
        }
    }

    /// What an answer says.
    fn told(&self, report: &mut Report, asked: &Asked, answer: &Answer) {
        let missed: Vec<String> = self
            .port
            .reached_at
            .iter()
            .filter(|addr| !asked.arrived.contains(addr))
            .map(ToString::to_string)
            .collect();
        let node = &answer.node;
        let text = format!("{} answers, and reaches this node", node.name);
        report.add(match missed.as_slice() {
            [] => Step::ok("answer", asked.addr, text),
            missed => Step::failed(
                "answer",
                "no-answer",
                asked.addr,
                format!(
                    "{} answers, but what it sends to {} does not arrive",
                    node.name,
                    missed.join(", ")
                ),
                "open that port in the firewall of this host, or mend --advertise",
            )
            .but_harmless(),
        });
        if node.addr != asked.addr && !node.further.contains(&asked.addr) {
            report.add(Step::warning(
                "answer",
                asked.addr,
                format!(
                    "{} calls itself {}: seed lists must name it by that address, or it is taken for another founder",
                    node.name, node.addr
                ),
            ));
        }
        self.compare(report, asked, answer);
        if let Some(objection) = &answer.objection {
            report.add(Step::failed(
                "verdict",
                "refused",
                asked.addr,
                format!("{} would refuse this node: {}", node.name, objection.reason),
                if objection.fatal {
                    "a node with these settings is told so and ends"
                } else {
                    "a node with these settings is told so and goes on trying"
                },
            ));
        } else {
            report.add(Step::ok("verdict", asked.addr, standing(answer)));
        }
        for (group, reason) in &answer.groups {
            report.add(Step::failed(
                "group",
                "group-options",
                format!("{group} at {}", asked.addr),
                reason.clone(),
                "give all members of the group the same options",
            ));
        }
    }

    /// What both sides must have alike.
    fn compare(&self, report: &mut Report, asked: &Asked, answer: &Answer) {
        let own = self.enquirer.node();
        let node = &answer.node;
        if (node.engine, node.policy) != (own.engine, own.policy) {
            report.add(Step::failed(
                "engine",
                "engine",
                asked.addr,
                format!(
                    "{} runs the membership engine `{}` (policy {}), and this node would run `{}` (policy {})",
                    node.name,
                    EngineKind::named(node.engine),
                    node.policy,
                    EngineKind::named(own.engine),
                    own.policy
                ),
                "give all nodes of the cluster the same --membership",
            ));
        } else {
            report.add(Step::ok(
                "engine",
                asked.addr,
                "the same membership engine and policy",
            ));
        }
        let both_found = self.founder && answer.standing.is_none() && asked.seed.is_some();
        if both_found && answer.seeds != self.seeds && answer.objection.is_none() {
            report.add(Step::failed(
                "seeds",
                "seed-list",
                asked.addr,
                format!("{} has another seed list, or another --expect", node.name),
                "give all founding nodes the same",
            ));
        }
    }

    /// Whether UDP passes where it is to be used. Without it messages go by TCP, so nothing fails.
    async fn greet(&self, report: &mut Report) {
        if !self.udp {
            return report.add(Step::skipped(
                "udp",
                "",
                "this node would send by TCP (--transport)",
            ));
        }
        let mut greeting = JoinSet::new();
        for asked in self.asked.iter().filter(|asked| asked.took_it()) {
            let (to, from, within) = (asked.addr, self.port.reached_at[0], self.within);
            greeting.spawn(async move { (to, greet(to, from, within).await) });
        }
        let mut greeted = BTreeMap::new();
        while let Some(Ok((to, found))) = greeting.join_next().await {
            greeted.insert(to, found);
        }
        for (to, found) in greeted {
            let by_tcp = "messages to it go by TCP";
            report.add(match found {
                Greeted::Welcome { after } => Step::ok(
                    "udp",
                    to,
                    format!("answers a datagram in {:.1} ms", after.as_secs_f64() * 1000.0),
                ),
                Greeted::Refused => Step::warning(
                    "udp",
                    to,
                    format!("nothing takes datagrams there (it runs with --transport tcp): {by_tcp}"),
                ),
                Greeted::Silent => Step::warning(
                    "udp",
                    to,
                    format!("no answer to a datagram: a firewall drops UDP; {by_tcp}"),
                ),
                Greeted::Unreachable(error) => Step::warning(
                    "udp",
                    to,
                    format!("the system cannot send there: {error}; {by_tcp}"),
                ),
                _ => Step::warning(
                    "udp",
                    to,
                    format!("something else than Antiphon takes datagrams there; {by_tcp}"),
                ),
            });
        }
    }
}

enum Turn {
    Reached(Option<(usize, Reached)>),
    Inputs(usize),
}

/// Where a node stands that would have this one.
fn standing(answer: &Answer) -> String {
    let name = &answer.node.name;
    match &answer.standing {
        None if answer.missing.is_empty() => format!("{name} is in no cluster yet, and misses nobody"),
        None => {
            let missing: Vec<String> = answer.missing.iter().map(ToString::to_string).collect();
            format!(
                "{name} is in no cluster yet; it has no answer from {}",
                missing.join(", ")
            )
        }
        Some(standing) => {
            let admits = answer.coordinator.as_ref().map_or(String::new(), |(admits, _)| {
                format!(", where {admits} admits nodes")
            });
            let majority = match standing.primary {
                true => "",
                false => " WITHOUT a majority",
            };
            let present = match answer.present {
                true => "; this node is a member already",
                false => "",
            };
            format!(
                "{name} is in view {}{majority} of {} members{admits}{present}",
                standing.number, answer.members
            )
        }
    }
}

/// What something that is no node said, as far as it can be printed.
fn shown(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}
