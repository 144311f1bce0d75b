//! A few nodes in one thread: virtual time, a network that loses nothing unless told to, lifelines like a
//! kernel's. The simulator does all of this with faults; this is the small version for stories about the core
//! alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_core::wire::Block;
use antiphon_core::{
    Config, DialId, Event, GroupEvent, GroupHandle, GroupOptions, GroupView, Inspection, LifelineCommand,
    LifelineEnd, LifelineEvent, Message, Node, Output, PathTrouble, SendError, Ticket, Time, WhyReport,
};
use bytes::Bytes;

/// One way over the network.
const LATENCY: Duration = Duration::from_micros(200);
/// A way that is thin lets frames pass for one heartbeat of this time.
const THIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(750));

pub(crate) struct Cluster {
    pub(crate) now: Time,
    hosts: BTreeMap<usize, Host>,
    /// (when, order of sending) → what arrives where.
    in_flight: BTreeMap<(Time, u64), (usize, Arrival)>,
    sent: u64,
    tickets: u64,
    /// Pairs that cannot talk; what a lifeline carries waits for the heal.
    cut: BTreeSet<(usize, usize)>,
    waiting: Vec<(usize, usize, Arrival)>,
    /// Ways, from and to, that lose most frames.
    thin: BTreeSet<(usize, usize)>,
    connections: u64,
    configure: fn(usize, &mut Config),
    /// Whether probes pass, whatever is cut; else none does.
    pub(crate) probes_pass: bool,
    /// Frames to addresses that no host ever had.
    pub(crate) strays: Vec<(SocketAddr, Bytes)>,
}

struct Host {
    node: Option<Node>,
    starts: u64,
    log: Log,
    /// Lifelines on which this host is watched: dial → (connection, watcher).
    outbound: BTreeMap<DialId, (u64, usize)>,
    /// What the last process here left to its witness.
    last_vote: Bytes,
}

/// What a host's application saw, over all its starts.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) events: Vec<Event>,
}

enum Arrival {
    Frame(SocketAddr, Bytes),
    Probe(Bytes),
    Lifeline(LifelineEvent),
    Trouble(SocketAddr, PathTrouble),
}

pub(crate) fn addr(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7400))
}

impl Cluster {
    /// `hosts` nodes that all have each other as seeds, started at once.
    pub(crate) fn start(hosts: usize) -> Self {
        Self::start_with(hosts, |_, _| {})
    }

    pub(crate) fn start_with(hosts: usize, configure: fn(usize, &mut Config)) -> Self {
        let mut cluster = Self {
            now: Time::from_micros(1_000_000),
            hosts: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sent: 0,
            tickets: 0,
            cut: BTreeSet::new(),
            waiting: Vec::new(),
            thin: BTreeSet::new(),
            connections: 0,
            configure,
            probes_pass: false,
            strays: Vec::new(),
        };
        let seeds: Vec<usize> = (1..=hosts).collect();
        for host in 1..=hosts {
            cluster.start_host(host, &seeds);
        }
        cluster
    }

    pub(crate) fn start_host(&mut self, host: usize, seeds: &[usize]) {
        let entry = self.hosts.entry(host).or_insert_with(|| Host {
            node: None,
            starts: 0,
            log: Log::default(),
            outbound: BTreeMap::new(),
            last_vote: Bytes::new(),
        });
        entry.starts += 1;
        let mut config = Config::new("story", format!("n{host}"), addr(host));
        config.seeds = seeds.iter().map(|seed| addr(*seed)).collect();
        (self.configure)(host, &mut config);
        let seed = [host as u64, entry.starts, 3, 4];
        entry.node = Some(Node::new(config, seed, self.now).expect("a valid configuration"));
        self.drain(host);
    }

    pub(crate) fn log(&self, host: usize) -> &Log {
        &self.hosts[&host].log
    }

    pub(crate) fn node(&self, host: usize) -> &Node {
        self.hosts[&host].node.as_ref().expect("the host runs")
    }

    pub(crate) fn inspect(&self, host: usize) -> Inspection {
        let node = self.hosts[&host].node.as_ref().expect("the host runs");
        node.inspect(self.now)
    }

    pub(crate) fn why(&self, host: usize, name: &str) -> WhyReport {
        let node = self.hosts[&host].node.as_ref().expect("the host runs");
        node.why(self.now, name)
    }

    /// A frame of somebody who is no host arrives.
    pub(crate) fn hear(&mut self, host: usize, from: SocketAddr, frame: Bytes) {
        self.arrive(host, Arrival::Frame(from, frame));
    }

    pub(crate) fn join(&mut self, host: usize, group: &str, options: GroupOptions) -> GroupHandle {
        let now = self.now;
        let handle = self
            .node_mut(host)
            .join_group(now, group, options)
            .expect("valid options");
        self.drain(host);
        handle
    }

    pub(crate) fn send(
        &mut self,
        host: usize,
        group: GroupHandle,
        payload: &str,
    ) -> Result<Ticket, SendError> {
        let now = self.now;
        self.tickets += 1;
        let (ticket, message) = (Ticket(self.tickets), Block::of(payload.as_bytes()));
        let result = self.node_mut(host).send_block(now, group, ticket, message);
        self.drain(host);
        result.map(|()| ticket)
    }

    pub(crate) fn leave(&mut self, host: usize) {
        let now = self.now;
        self.node_mut(host).leave(now);
        self.drain(host);
    }

    /// What the process at this host, or the last one there, has left to its witness.
    pub(crate) fn last_vote(&self, host: usize) -> Bytes {
        self.hosts[&host].last_vote.clone()
    }

    /// The process is gone, and nobody hears anything of it.
    pub(crate) fn vanish(&mut self, host: usize) {
        let entry = self.hosts.get_mut(&host).expect("a host");
        entry.node = None;
        entry.outbound.clear();
    }

    /// The process is gone; its kernel says FIN on what it had open.
    pub(crate) fn kill(&mut self, host: usize) {
        let entry = self.hosts.get_mut(&host).expect("a host");
        entry.node = None;
        for (connection, watcher) in std::mem::take(&mut entry.outbound).into_values() {
            self.carry(
                host,
                watcher,
                Arrival::Lifeline(LifelineEvent::Ended {
                    connection,
                    end: LifelineEnd::Fin,
                }),
            );
        }
        let others: Vec<usize> = self
            .hosts
            .keys()
            .copied()
            .filter(|other| *other != host)
            .collect();
        for other in others {
            self.carry(host, other, Arrival::Trouble(addr(host), PathTrouble::Lost));
        }
    }

    /// Nothing passes between the two sides until [`Cluster::heal`]; what lifelines carry waits in the
    /// kernels.
    pub(crate) fn partition(&mut self, left: &[usize], right: &[usize]) {
        for a in left {
            for b in right {
                self.cut.insert((*a, *b));
                self.cut.insert((*b, *a));
            }
        }
    }

    /// About one heartbeat in four passes that way, until [`Cluster::heal`]; never is it silent for long.
    pub(crate) fn thin(&mut self, from: usize, to: usize) {
        self.thin.insert((from, to));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.thin.clear();
        for (from, to, arrival) in std::mem::take(&mut self.waiting) {
            self.carry(from, to, arrival);
        }
    }

    /// No host runs for so long. When they go on, all serve their timers before they read what has come.
    pub(crate) fn freeze(&mut self, duration: Duration) {
        self.now = self.now + duration;
        let running = self.hosts.iter().filter(|(_, entry)| entry.node.is_some());
        for host in running.map(|(host, _)| *host).collect::<Vec<usize>>() {
            let now = self.now;
            self.node_mut(host).handle_timeout(now);
            self.drain(host);
        }
    }

    pub(crate) fn run_for(&mut self, duration: Duration) {
        self.run_until(duration, |_| false);
    }

    /// Runs until the condition holds or `at_most` has passed; says whether it held.
    pub(crate) fn run_until(&mut self, at_most: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + at_most;
        while !condition(self) {
            let timer = self
                .hosts
                .iter()
                .filter_map(|(host, entry)| Some((entry.node.as_ref()?.poll_timeout()?, *host)))
                .min();
            let arrival = self.in_flight.keys().next().copied();
            match (arrival, timer) {
                (Some(key), timer) if timer.is_none_or(|(at, _)| key.0 <= at) && key.0 <= end => {
                    self.now = self.now.max(key.0);
                    let (host, arrival) = self.in_flight.remove(&key).expect("just seen");
                    self.arrive(host, arrival);
                }
                (_, Some((at, host))) if at <= end => {
                    self.now = self.now.max(at);
                    let now = self.now;
                    self.node_mut(host).handle_timeout(now);
                    self.drain(host);
                }
                _ => {
                    self.now = end;
                    return condition(self);
                }
            }
        }
        true
    }

    pub(crate) fn node_mut(&mut self, host: usize) -> &mut Node {
        self.hosts
            .get_mut(&host)
            .and_then(|entry| entry.node.as_mut())
            .expect("the host runs")
    }

    fn arrive(&mut self, host: usize, arrival: Arrival) {
        let now = self.now;
        let Some(node) = self.hosts.get_mut(&host).and_then(|entry| entry.node.as_mut()) else {
            return;
        };
        match arrival {
            Arrival::Frame(from, frame) => node.handle_frame(now, from, frame).expect("our own frame"),
            // One that is on its way while a view changes may come from a stranger.
            Arrival::Probe(frame) => drop(node.handle_probe(now, frame)),
            Arrival::Lifeline(event) => node.handle_lifeline(now, event).expect("our own record"),
            Arrival::Trouble(to, trouble) => node.handle_path_trouble(now, to, trouble),
        }
        self.drain(host);
    }

    fn carry(&mut self, from: usize, to: usize, arrival: Arrival) {
        if self.cut.contains(&(from, to)) && !matches!(arrival, Arrival::Probe(_)) {
            if matches!(arrival, Arrival::Lifeline(_)) {
                self.waiting.push((from, to, arrival));
            }
            return;
        }
        let (passes, of) = (THIN.0.as_micros(), THIN.1.as_micros());
        let at = u128::from(self.now.as_micros());
        let is_lost = self.thin.contains(&(from, to)) && at % of >= passes;
        if is_lost && matches!(arrival, Arrival::Frame(..)) {
            return;
        }
        self.sent += 1;
        self.in_flight
            .insert((self.now + LATENCY, self.sent), (to, arrival));
    }

    fn drain(&mut self, host: usize) {
        let now = self.now;
        let mut outputs = VecDeque::new();
        let node = self.node_mut(host);
        while let Some(output) = node.poll_output() {
            outputs.push_back(output);
        }
        let mut consumed = BTreeMap::<GroupHandle, u64>::new();
        let mut events = Vec::new();
        while let Some(event) = node.poll_event() {
            if let Event::Group(group, GroupEvent::Messages(messages)) = &event {
                *consumed.entry(*group).or_default() += messages.len();
            }
            events.push(event);
        }
        self.hosts
            .get_mut(&host)
            .expect("a host")
            .log
            .events
            .extend(events);
        for output in outputs {
            self.perform(host, output);
        }
        if !consumed.is_empty() {
            for (group, messages) in consumed {
                self.node_mut(host).consumed(now, group, messages);
            }
            self.drain(host);
        }
    }

    fn perform(&mut self, host: usize, output: Output) {
        let host_of = |to: SocketAddr| match to {
            SocketAddr::V4(to) => usize::from(to.ip().octets()[3]),
            SocketAddr::V6(_) => 0,
        };
        match output {
            Output::Frame { to, frame, .. } => {
                let bytes = frame.to_bytes();
                if !self.hosts.contains_key(&host_of(to)) {
                    self.strays.push((to, bytes));
                    return;
                }
                let to = host_of(to);
                if self.hosts.get(&to).is_some_and(|entry| entry.node.is_some()) {
                    self.carry(host, to, Arrival::Frame(addr(host), bytes));
                } else if !self.cut.contains(&(host, to)) {
                    self.carry(to, host, Arrival::Trouble(addr(to), PathTrouble::Refused));
                }
            }
            Output::LastVoteRecord { sealed } => {
                self.hosts.get_mut(&host).expect("a host").last_vote = sealed.unwrap_or_default();
            }
            Output::Probe { to, frame } if self.probes_pass => {
                self.carry(host, host_of(to), Arrival::Probe(frame));
            }
            // Nobody here has a network with multicast.
            Output::Multicast { .. } | Output::Probe { .. } => {}
            Output::Lifeline(LifelineCommand::Open {
                dial, addr: watcher, ..
            }) => {
                let watcher = host_of(watcher);
                if self.cut.contains(&(host, watcher))
                    || self.hosts.get(&watcher).is_none_or(|e| e.node.is_none())
                {
                    self.carry(host, host, Arrival::Lifeline(LifelineEvent::Failed { dial }));
                } else {
                    self.connections += 1;
                    self.hosts
                        .get_mut(&host)
                        .expect("a host")
                        .outbound
                        .insert(dial, (self.connections, watcher));
                    let opened = LifelineEvent::Opened {
                        dial,
                        local: ephemeral(host, self.connections),
                        remote: addr(watcher),
                    };
                    self.carry(host, host, Arrival::Lifeline(opened));
                }
            }
            Output::Lifeline(LifelineCommand::Write { dial, record }) => {
                if let Some((connection, watcher)) = self.hosts[&host].outbound.get(&dial).copied() {
                    let (local, remote) = (addr(watcher), ephemeral(host, connection));
                    let event = LifelineEvent::Record {
                        connection,
                        local,
                        remote,
                        record,
                    };
                    self.carry(host, watcher, Arrival::Lifeline(event));
                }
            }
            Output::Lifeline(LifelineCommand::Reset { dial }) => {
                if let Some((connection, watcher)) =
                    self.hosts.get_mut(&host).expect("a host").outbound.remove(&dial)
                {
                    let event = LifelineEvent::Ended {
                        connection,
                        end: LifelineEnd::Broken,
                    };
                    self.carry(host, watcher, Arrival::Lifeline(event));
                }
            }
        }
    }
}

fn ephemeral(host: usize, connection: u64) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 20_000 + (connection % 40_000) as u16))
}

impl Log {
    /// The names in the last node view, and whether it is primary.
    pub(crate) fn view(&self) -> (Vec<&str>, bool) {
        self.events
            .iter()
            .rev()
            .find_map(|event| match event {
                Event::NodeView(view) => Some((
                    view.members.iter().map(|member| member.name.as_str()).collect(),
                    view.is_primary(),
                )),
                _ => None,
            })
            .unwrap_or_default()
    }

    pub(crate) fn group_events(&self, group: GroupHandle) -> impl Iterator<Item = &GroupEvent> {
        self.events.iter().filter_map(move |event| match event {
            Event::Group(of, event) if *of == group => Some(event),
            _ => None,
        })
    }

    pub(crate) fn group_view(&self, group: GroupHandle) -> Option<&GroupView> {
        let views: Vec<&GroupView> = self
            .group_events(group)
            .filter_map(|event| match event {
                GroupEvent::View(view) => Some(&**view),
                _ => None,
            })
            .collect();
        views.last().copied()
    }

    pub(crate) fn messages(&self, group: GroupHandle) -> Vec<Message> {
        self.group_events(group)
            .filter_map(|event| match event {
                GroupEvent::Messages(messages) => Some(messages.clone()),
                _ => None,
            })
            .flatten()
            .collect()
    }

    pub(crate) fn payloads(&self, group: GroupHandle) -> Vec<String> {
        self.messages(group)
            .iter()
            .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
            .collect()
    }
}
