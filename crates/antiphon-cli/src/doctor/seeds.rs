//! Asks the seeds, the other nodes that are found, and the locators, all at the same time.
//!
//! ```text
//!   each address ── enquiry ──► notice: taken, or why not          steps: reach, version, cluster, key
//!                               answers, at the addresses of this node   steps: answer, wire level, engine, verdict, groups
//!   nodes that a locator knows, then members that admit nodes, are asked the same way, unless asked already
//! ```
//! A locator answers with the nodes that it knows. A node may lose an answer: it has just tried in vain to
//! reach the node that is not running here. So a node that took the question and has not answered is asked
//! again, a few times.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::wire::enquiry::{Answer, KnownThere, Notice, Verdict};
use antiphon_core::{Enquirer, GroupOptions, Told};
use antiphon_net::tcp::{Reached, TcpConfig, TcpTransport, enquire};
use antiphon_net::{Input, Inputs};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::datagrams::Udp;
use super::port::Port;
use super::report::Report;
use super::sources::Found;
use crate::exit::Failed;
use crate::settings::Settings;

/// How often a node is asked that takes the question and is silent.
const ROUNDS: u32 = 3;
/// Addresses asked at most.
const MAX_ASKED: usize = 512;
/// Addresses asked at most of those that one locator knows.
const MAX_TOLD: usize = 64;
/// Inputs taken at a time.
const INPUTS: usize = 64;

/// One address that is asked.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) addr: SocketAddr,
    /// The seed it is an address of, by its place in the list; where a number of nodes is expected, those
    /// that were found have places after it. None: it counts for no founding.
    pub(super) seed: Option<usize>,
    pub(super) locator: bool,
    pub(super) reached: Option<Reached>,
    pub(super) answer: Option<Answer>,
    /// What a locator said.
    pub(super) known: Option<KnownThere>,
    /// A locator answered where a node is expected, or a node where a locator is.
    pub(super) mistaken: bool,
    /// The addresses of this node at which answers came.
    pub(super) arrived: BTreeSet<SocketAddr>,
}

impl Asked {
    fn new(addr: SocketAddr, seed: Option<usize>) -> Self {
        Self {
            addr,
            seed,
            locator: false,
            reached: None,
            answer: None,
            known: None,
            mistaken: false,
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

    /// Whether somebody there has the question.
    pub(super) fn took_it(&self) -> bool {
        self.notice()
            .is_some_and(|notice| notice.verdict == Verdict::Taken)
    }
}

/// All that are asked, and what they said.
#[derive(Debug)]
pub(super) struct Enquiries {
    pub(super) cluster: String,
    /// How the key of this side is called.
    pub(super) key: String,
    /// Whether messages, or probes alone, would go by UDP.
    pub(super) udp: Udp,
    pub(super) within: Duration,
    pub(super) port: PortInUse,
    pub(super) enquirer: Enquirer,
    /// The digest of this node's seed list.
    pub(super) seeds: u64,
    /// Whether this node would be one of those that found the cluster.
    pub(super) founder: bool,
    /// Where a number of nodes is expected: the place of the next one that is found.
    next_place: Option<usize>,
    /// Seeds that are not this node itself.
    pub(super) others: usize,
    /// Sources that lead to nodes which are not seen from here.
    pub(super) unseen: Vec<String>,
    pub(super) asked: Vec<Asked>,
    /// Where this node would be, or is.
    pub(super) own: BTreeSet<SocketAddr>,
    /// Without a key and leave to trust the network, a node asks nobody beyond loopback.
    confined: bool,
}

#[derive(Debug)]
pub(super) struct PortInUse {
    pub(super) reached_at: Vec<SocketAddr>,
    pub(super) is_the_nodes: bool,
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
            .builder()
            .core_config(&settings.name, &port.advertised, &addrs_of_seeds);
        let entropy =
            || getrandom::u64().map_err(|error| Failed::run(format!("the system gave no entropy: {error}")));
        let seed = [entropy()?, entropy()?, entropy()?];
        let groups: Vec<(String, GroupOptions)> = settings
            .groups
            .iter()
            .map(|group| (group.clone(), settings.options))
            .collect();
        let enquirer = Enquirer::new(&config, &groups, seed, port.reached_at.clone())
            .map_err(|error| Failed::usage(error.to_string()))?;
        let started = TcpTransport::start_all(port.listeners, TcpConfig::new(port.reached_at[0]));
        let (transport, inputs) = started.map_err(|error| Failed::cannot("listen for answers", &error))?;
        let own: BTreeSet<SocketAddr> = port.advertised.iter().chain(&settings.bind).copied().collect();
        let mut asked = Vec::new();
        let mut others = 0;
        // A list may have an address twice: the node takes it for one seed.
        let mut known = own.clone();
        for (number, seed) in settings.seeds.iter().enumerate() {
            if !seed.0.iter().any(|addr| own.contains(addr)) {
                let new = seed.0.iter().filter(|addr| known.insert(**addr));
                asked.extend(new.map(|addr| Asked::new(*addr, Some(number))));
                others += 1;
            }
        }
        for (number, addr) in found.nodes.iter().enumerate() {
            if known.insert(*addr) {
                let place = settings.expect.map(|_| settings.seeds.len() + number);
                asked.push(Asked::new(*addr, place));
            }
        }
        let locators = found.locators.iter().filter(|addr| known.insert(**addr));
        asked.extend(locators.map(|addr| Asked::locator(*addr)));
        asked.truncate(MAX_ASKED);
        let reached_at = port.reached_at.clone();
        Ok(Self {
            cluster: settings.cluster.clone(),
            key: settings
                .key
                .as_ref()
                .map_or("no key".to_owned(), |key| format!("key {}", key.id())),
            udp: Udp::of(settings),
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
            unseen: found.unseen.clone(),
            next_place: settings.expect.map(|_| settings.seeds.len() + found.nodes.len()),
            enquirer,
            asked,
            own: own.into_iter().chain(reached_at).collect(),
            confined: settings.key.is_none() && !settings.insecure,
        })
    }

    /// Asks all, and tells what came.
    pub(super) async fn run(&mut self, report: &mut Report) {
        self.ask(0).await;
        let told: BTreeSet<SocketAddr> = (self.asked.iter().filter_map(|asked| asked.known.as_ref()))
            .flat_map(|known| known.nodes.iter().take(MAX_TOLD))
            .map(|node| node.addr)
            .filter(|addr| !self.confined || addr.ip().to_canonical().is_loopback())
            .collect();
        self.ask_more(told, true).await;
        let coordinators: BTreeSet<SocketAddr> = (self.asked.iter())
            .filter_map(|asked| asked.answer.as_ref()?.coordinator.as_ref())
            .map(|(_, addr)| *addr)
            .collect();
        self.ask_more(coordinators, false).await;
        for asked in &self.asked {
            self.tell(report, asked);
        }
        self.greet(report).await;
    }

    /// Asks those of these that were not asked; whether they count where a number of nodes is expected.
    async fn ask_more(&mut self, addrs: BTreeSet<SocketAddr>, count: bool) {
        let first = self.asked.len();
        for addr in addrs {
            let known = self.asked.iter().any(|asked| asked.addr == addr) || self.own.contains(&addr);
            if !known && self.asked.len() < MAX_ASKED {
                let place = self.next_place.as_mut().filter(|_| count);
                let place = place.map(|place| std::mem::replace(place, *place + 1));
                self.asked.push(Asked::new(addr, place));
            }
        }
        if self.asked.len() > first {
            self.ask(first).await;
        }
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
                            // An answer says to which address it was sent. Only an address at which others
                            // are to reach this node shows that a way is open.
                            let to = match &answer {
                                Told::Node(answer) => answer.to,
                                Told::Locator(known) => known.to,
                                _ => continue,
                            };
                            if let Some(asked) = self.asked.get_mut(usize::from(number))
                                && self.port.reached_at.contains(&to)
                            {
                                asked.arrived.insert(to);
                                match answer {
                                    Told::Node(answer) if !asked.locator => asked.answer = Some(*answer),
                                    Told::Locator(known) if asked.locator => asked.known = Some(known),
                                    _ => asked.mistaken = true,
                                }
                            }
                        }
                    }
                    Err(error) => connection.refused(error),
                }
            }
        }
    }
}

enum Turn {
    Reached(Option<(usize, Reached)>),
    Inputs(usize),
}
