//! A cluster of real processes, and the words stories are told in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use antiphon_api::blocks::To;
use antiphon_api::{Command as Request, Payload, command};
use antiphon_lab::{Load, Network, Process, Refusal, Rules, Signal, Stage, Trace, fingerprint};

use crate::{Engine, program};

/// The group all nodes of a story join.
pub(crate) const GROUP: &str = "g";

/// What a story's nodes have in common.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// `unordered`, `scoped`, `fifo` or `total`.
    pub(crate) order: &'static str,
    /// `local`, `lan` or `wan`.
    pub(crate) profile: &'static str,
    /// Whether frames are sealed with a key.
    pub(crate) keyed: bool,
    /// `tcp` or `udp`.
    pub(crate) transport: &'static str,
    /// How node views are agreed on: `coordinator` or `cut`.
    pub(crate) membership: Engine,
    /// What the judge allows.
    pub(crate) rules: Rules,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: "total",
            profile: "lan",
            keyed: false,
            transport: "tcp",
            membership: Engine::Coordinator,
            rules: Rules::default(),
        }
    }
}

/// A cluster: nodes called `n1`, `n2`, … on loopback or on hosts of their own.
#[derive(Debug)]
pub(crate) struct Cluster {
    options: Options,
    stage: Arc<Stage>,
    seeds: Vec<SocketAddr>,
    /// Flags instead of the seeds.
    finds_by: Option<Vec<String>>,
    processes: BTreeMap<String, Process>,
    folder: PathBuf,
    // Dropped after the processes that live in it.
    network: Option<Network>,
}

impl Cluster {
    /// A cluster whose seeds are its first `seeds` nodes, each at a loopback address of its own. Nothing is
    /// started.
    pub(crate) fn on_loopback(seeds: usize, options: Options) -> Self {
        // A network of its own for each story: fixed ports never meet those that outgoing connections get.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let story = COUNT.fetch_add(1, Ordering::Relaxed);
        let (high, low) = (64 + (std::process::id() % 128) as u8, (story % 256) as u8);
        let seeds = (1..=seeds)
            .map(|i| SocketAddr::from(([127, high, low, i as u8], 7400)))
            .collect();
        Self::new(seeds, None, options)
    }

    /// A cluster with a host for each of its `hosts` nodes, all of them seeds; `None` where that cannot be.
    pub(crate) fn on_hosts(hosts: usize, options: Options) -> Option<Self> {
        Self::on_hosts_with_links(hosts, 1, options)
    }

    /// The same with so many interfaces for each host, one or two; nodes listen at all of them.
    pub(crate) fn on_hosts_with_links(hosts: usize, links: usize, options: Options) -> Option<Self> {
        let network = Network::new("apr", hosts, links)
            .map_err(|missing| crate::skipped(&missing))
            .ok()?;
        let seeds = (1..=hosts).map(|host| network.address(host)).collect();
        Some(Self::new(seeds, Some(network), options))
    }

    fn new(seeds: Vec<SocketAddr>, network: Option<Network>, options: Options) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let story = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("antiphon-real-{}-{story}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        std::fs::write(folder.join("key"), "5e".repeat(32))
            .unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        restrict(&folder.join("key"));
        Self {
            options,
            stage: Stage::new(),
            seeds,
            finds_by: None,
            processes: BTreeMap::new(),
            folder,
            network,
        }
    }

    /// What its nodes call it: no two do that find each other by multicast.
    pub(crate) fn name(&self) -> &str {
        let name = self.folder.file_name().and_then(|name| name.to_str());
        name.expect("the folder has a name in ASCII")
    }

    /// Starts these nodes, all at once.
    pub(crate) fn start(&mut self, names: &[&str]) {
        for name in names {
            self.start_with(name, &[]);
        }
    }

    /// Starts a node, with more flags.
    pub(crate) fn start_with(&mut self, name: &str, more: &[&str]) {
        let mut command = self.command(name);
        command.args(more);
        let process = self.adopt(name, command);
        let before = self.processes.insert(name.to_owned(), process);
        assert!(
            before.is_none_or(|old| old.exit(Duration::ZERO).is_some()),
            "{name} runs already"
        );
    }

    /// From now on nodes are started with these flags instead of seeds.
    pub(crate) fn finds_by(&mut self, flags: &[&str]) {
        self.finds_by = Some(flags.iter().map(|flag| (*flag).to_owned()).collect());
    }

    /// Starts a node by a command of its own.
    pub(crate) fn start_command(&mut self, name: &str, command: Command) {
        let process = self.adopt(name, command);
        self.processes.insert(name.to_owned(), process);
    }

    /// The command of a locator of this cluster, at an address.
    pub(crate) fn locator(&self, addr: SocketAddr) -> Command {
        let mut command = Command::new(program());
        command.args([
            "locator",
            "--json",
            "--cluster",
            self.name(),
            "--bind",
            &addr.to_string(),
        ]);
        command.args(["--die-with", &std::process::id().to_string()]);
        if self.options.keyed {
            command.arg("--key-file").arg(self.key_file());
        }
        command
    }

    /// Starts a process that is not one of the cluster's nodes, under the cluster's eyes.
    pub(crate) fn adopt(&self, name: &str, command: Command) -> Process {
        Process::start(&self.stage, name, command).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The command that would start a node.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = self.bare_command(name);
        let addresses = match &self.network {
            Some(network) => network.addresses(host(name)),
            None => vec![self.address(name)],
        };
        for address in addresses {
            command.args(["--bind", &address.to_string()]);
        }
        command
    }

    /// The same without an address to listen at.
    pub(crate) fn bare_command(&self, name: &str) -> Command {
        let mut command = match &self.network {
            Some(network) => network.command(host(name), program()),
            None => Command::new(program()),
        };
        let seeds: Vec<String> = match &self.network {
            Some(network) => (1..=self.seeds.len())
                .map(|host| network.addresses(host))
                .map(|addresses| {
                    addresses
                        .iter()
                        .map(ToString::to_string)
                        .collect::<Vec<_>>()
                        .join("/")
                })
                .collect(),
            None => self.seeds.iter().map(ToString::to_string).collect(),
        };
        command.args(["node", "--json", "--cluster", self.name(), "--name", name]);
        match &self.finds_by {
            Some(flags) => command.args(flags),
            None => command.args(["--seeds", &seeds.join(",")]),
        };
        command.args(["--group", GROUP]);
        command.args(["--order", self.options.order, "--profile", self.options.profile]);
        command.env("ANTIPHON_TRANSPORT", self.options.transport);
        command.args(["--membership", self.options.membership.name()]);
        // Which way messages take is in the log alone: nobody should have to care.
        command.env("ANTIPHON_LOG", "warn,antiphon::net=info");
        // What a killed node leaves goes with the story.
        command.env("TMPDIR", &self.folder);
        command.args(["--die-with", &std::process::id().to_string()]);
        if self.options.keyed {
            command.arg("--key-file").arg(self.key_file());
        } else if self.network.is_some() {
            command.arg("--insecure");
        } else {
            command.arg("--allow-faults");
        }
        command
    }

    /// Where the nodes put what is theirs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The key of a keyed cluster.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.folder.join("key")
    }

    /// A file that only this story has, with this content.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        restrict(&path);
        path
    }

    /// Where a node listens.
    pub(crate) fn address(&self, name: &str) -> SocketAddr {
        let number = host(name);
        match (&self.network, self.seeds.get(number - 1), self.seeds[0]) {
            (_, Some(seed), _) => *seed,
            (None, None, SocketAddr::V4(first)) => {
                let [a, b, c, _] = first.ip().octets();
                SocketAddr::from(([a, b, c, number as u8], first.port()))
            }
            (Some(network), None, _) => network.address(number),
            (None, None, SocketAddr::V6(_)) => unreachable!("loopback stories are told over IPv4"),
        }
    }

    /// The running process of a node.
    ///
    /// # Panics
    /// If it was not started.
    pub(crate) fn process(&self, name: &str) -> &Process {
        self.processes
            .get(name)
            .unwrap_or_else(|| panic!("{name} was not started"))
    }

    /// kill −9.
    pub(crate) fn kill(&mut self, name: &str) {
        self.process(name).kill();
    }

    /// SIGSTOP: the process is silent, its connections stay.
    pub(crate) fn freeze(&mut self, name: &str) {
        self.process(name).signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn thaw(&mut self, name: &str) {
        self.process(name).signal(Signal::CONT);
    }

    /// SIGTERM, and the graceful end it must lead to.
    pub(crate) fn leave(&mut self, name: &str) -> ExitStatus {
        self.process(name).signal(Signal::TERM);
        let status = self.process(name).exit(Duration::from_secs(10));
        status.unwrap_or_else(|| panic!("{name} did not leave within 10 s\n{}", self.report()))
    }

    /// Has a node leave by command: it comes after everything the node was told to send, so that all of it
    /// counts.
    pub(crate) fn dismiss(&mut self, name: &str) -> ExitStatus {
        self.dismiss_all(&[name])[0]
    }

    /// The same of several at once.
    pub(crate) fn dismiss_all(&mut self, names: &[&str]) -> Vec<ExitStatus> {
        names.iter().for_each(|name| self.process(name).dismiss());
        let ended = |name: &&str| {
            let status = self.process(name).exit(Duration::from_secs(10));
            status.unwrap_or_else(|| panic!("{name} did not leave within 10 s\n{}", self.report()))
        };
        names.iter().map(ended).collect()
    }

    /// Cuts the nodes into sides that cannot talk: with cut cables between hosts, with injected faults on
    /// loopback.
    pub(crate) fn partition(&mut self, sides: &[&[&str]]) {
        match &self.network {
            Some(network) => {
                let sides = numbered(sides);
                network.partition(&sides.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
            None => {
                for (at, side) in sides.iter().enumerate() {
                    let others = sides.iter().enumerate().filter(|(other, _)| *other != at);
                    let others: Vec<&str> = others.flat_map(|(_, side)| side.iter().copied()).collect();
                    for name in *side {
                        self.block(name, &others);
                    }
                }
            }
        }
    }

    /// The hosts.
    ///
    /// # Panics
    /// If the nodes are on loopback.
    pub(crate) fn hosts(&self) -> &Network {
        self.network.as_ref().expect("a cluster on hosts")
    }

    /// Nothing that `from` sends reaches `to` any more; the other direction works.
    pub(crate) fn deafen(&self, from: &str, to: &str) {
        self.hosts().drop_from_to(host(from), host(to));
    }

    /// A firewall between the sides that refuses instead of dropping.
    pub(crate) fn refuse(&self, sides: &[&[&str]], how: Refusal) {
        let sides = numbered(sides);
        self.hosts()
            .refuse(&sides.iter().map(Vec::as_slice).collect::<Vec<_>>(), how);
    }

    /// A node's host forgets the connections of dead processes at once, if nobody answers there: no FIN is
    /// sent again.
    pub(crate) fn forget_the_dead(&mut self, name: &str) {
        let mut command = self.hosts().command(host(name), Path::new("sh"));
        command.args(["-c", "echo 1 > /proc/sys/net/ipv4/tcp_orphan_retries"]);
        let status = command.status().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(status.success(), "{command:?}: {status}");
    }

    /// Ends all cuts.
    pub(crate) fn heal(&mut self) {
        match &self.network {
            Some(network) => network.heal(),
            None => {
                self.processes.keys().for_each(|name| self.block(name, &[]));
            }
        }
    }

    /// Has a node neither send to these nor take anything from them.
    fn block(&self, name: &str, others: &[&str]) {
        let block = others.iter().map(|name| (*name).to_owned()).collect();
        self.tell(name, &Request::Fault(command::Fault { block }));
    }

    /// Gives a node a command.
    pub(crate) fn tell(&self, name: &str, request: &Request) {
        self.stage.trace().last(name).ask(request);
    }

    /// Has a node send this many messages.
    pub(crate) fn say(&self, name: &str, count: usize) {
        self.stage.trace().last_mut(name).say(GROUP, count);
    }

    /// Has a node tell a member this many messages.
    pub(crate) fn tell_member(&self, name: &str, to: &str, count: usize) {
        self.stage.trace().last_mut(name).tell(GROUP, to, count);
    }

    /// The same, and where there is no room the node refuses.
    pub(crate) fn tell_member_at_once(&self, name: &str, to: &str, count: usize) {
        self.stage.trace().last_mut(name).tell_at_once(GROUP, to, count);
    }

    /// Has a node call members; gives what stands for the call in the trace.
    pub(crate) fn call(&self, name: &str, group: &str, verb: &str, to: To, within: &str) -> String {
        let within = within.parse().expect("a time");
        let mut trace = self.stage.trace();
        let called = trace.last_mut(name).call(group, verb, to, within);
        called.unwrap_or_else(|| panic!("{name} is asked to call, and does not run"))
    }

    /// Has a node send what is in a file; gives what stands for it in the trace.
    pub(crate) fn say_file(&self, name: &str, path: &Path) -> String {
        let what = fingerprint(path).unwrap_or_else(|error| panic!("{error}"));
        let (file, bytes) = (path.display().to_string(), None);
        let payload = Payload::File { file, bytes };
        self.stage
            .trace()
            .last_mut(name)
            .send(GROUP, payload, what.clone(), None);
        what
    }

    /// Has every running member send a message each tick, until the load is ended.
    pub(crate) fn load(&self, tick: Duration) -> Load {
        Load::start(&self.stage, GROUP, tick)
    }

    /// Has these members send all they can, until the load is ended.
    pub(crate) fn press(&self, names: &[&str]) -> Load {
        Load::press(&self.stage, GROUP, names)
    }

    /// Stops reading what a node says; it finds its standard output full.
    pub(crate) fn cover_ear(&mut self, name: &str) {
        self.process(name).cover_ear(true);
    }

    /// Reads what it says again.
    pub(crate) fn uncover_ear(&mut self, name: &str) {
        self.process(name).cover_ear(false);
    }

    /// The time since the story began.
    pub(crate) fn now(&self) -> Duration {
        self.stage.now()
    }

    /// Looks at what was said so far.
    pub(crate) fn look<T>(&self, at: impl FnOnce(&Trace) -> T) -> T {
        at(&self.stage.trace())
    }

    /// Waits until something is the case, and says how long that took.
    ///
    /// # Panics
    /// If it is not within the bound: with the state of every node.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, bound: Duration, condition: impl Fn(&Trace) -> bool) -> Duration {
        let from = self.now();
        assert!(
            self.stage.until(bound, condition),
            "not within {bound:?}: {what}\n{}",
            self.report()
        );
        self.now() - from
    }

    /// Watches that something stays the case for a time.
    ///
    /// # Panics
    /// If it ceases to be.
    #[track_caller]
    pub(crate) fn throughout(&self, what: &str, time: Duration, condition: impl Fn(&Trace) -> bool) {
        assert!(
            !self.stage.until(time, |trace| !condition(trace)),
            "ceased to hold within {time:?}: {what}\n{}",
            self.report()
        );
    }

    /// Waits until all of these, and nobody else, are in one primary node view and one view of the group.
    #[track_caller]
    pub(crate) fn until_together(&self, names: &[&str], bound: Duration) -> Duration {
        let what = format!("{names:?} in one primary view and one view of the group");
        self.until(&what, bound, |trace| {
            trace.together(names) && trace.together_in(GROUP, names)
        })
    }

    /// Has each of these members say one last thing, and waits until all of them have delivered all of that.
    /// What each said before is then delivered too: the judge looks for gaps.
    #[track_caller]
    pub(crate) fn until_delivered(&self, names: &[&str], bound: Duration) {
        names.iter().for_each(|name| self.say(name, 1));
        let said: Vec<String> = self.look(|trace| {
            let last = names.iter().filter_map(|name| trace.last(name).sent.last());
            last.map(|said| said.what.clone()).collect()
        });
        self.until(
            &format!("{names:?} have delivered the last words of each other"),
            bound,
            |trace| {
                names.iter().all(|name| {
                    let heard = trace.last(name).delivered(GROUP);
                    said.iter()
                        .all(|payload| heard.iter().rev().any(|h| h == payload))
                })
            },
        );
    }

    /// Ends the story: stops everything and has the judge look at all that was said.
    ///
    /// # Panics
    /// If a guarantee was broken.
    #[track_caller]
    pub(crate) fn finish(self) {
        for process in self.processes.values() {
            if process.exit(Duration::ZERO).is_none() {
                process.end();
            }
        }
        let rules = Rules {
            order: self.options.order.parse().expect("a story knows the orders"),
            ..self.options.rules.clone()
        };
        let violations: Vec<String> = self.stage.judge(&rules).iter().map(ToString::to_string).collect();
        assert!(
            violations.is_empty(),
            "{} violations:\n{}\n{}",
            violations.len(),
            violations.join("\n"),
            self.report()
        );
    }

    /// The state of every node and the end of its log.
    fn report(&self) -> String {
        const LOG_LINES: usize = 25;
        let trace = self.stage.trace();
        let mut report = format!(
            "at {:.1?}; everything that was said: {}\n",
            self.now(),
            self.folder.display()
        );
        for run in &trace.runs {
            report.push_str(&format!("── {}\n", run.summary()));
            run.log
                .iter()
                .rev()
                .take(LOG_LINES)
                .rev()
                .for_each(|line| report.push_str(&format!("   {line}\n")));
        }
        report
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.processes.clear();
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
            return;
        }
        let trace = self.stage.trace();
        for run in &trace.runs {
            let said: String = run
                .events
                .iter()
                .map(|(at, event)| format!("{:9.3} {event:?}\n", at.as_secs_f64()))
                .collect();
            let path = self.folder.join(format!("{}-{}", run.name, run.start));
            let _ = std::fs::write(path.with_extension("events"), said);
            let _ = std::fs::write(path.with_extension("log"), run.log.join("\n"));
        }
    }
}

/// Nodes and hosts by number.
fn numbered(sides: &[&[&str]]) -> Vec<Vec<usize>> {
    sides
        .iter()
        .map(|side| side.iter().map(|name| host(name)).collect())
        .collect()
}

/// The number of a node and its host: `n3` is number 3.
pub(crate) fn host(name: &str) -> usize {
    let number = name.strip_prefix('n').and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| panic!("nodes of a story are called n1, n2, …, not {name:?}"))
}

/// Keys are for their owner only.
fn restrict(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
}
