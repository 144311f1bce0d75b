//! Hosts: network namespaces on one bridge.
//!
//! ```text
//!   <prefix><pid>x<n>-1   …-2              …-3            one namespace per host: eth0 10.99.0.i/24, own firewall
//!        │ eth0           │ eth0           │ eth0
//!        └──── p1 ────────┴── p2 ──────────┴── p3         …-0, the switch: a bridge, where cables are cut
//! ```
//! Hosts may have a second interface, `eth1` with fd99::i/64. Its cables (`q1`, `q2`, …) end at a bridge of
//! their own.
//!
//! The switch is a namespace of its own, so that nothing is visible outside and deleting the namespaces
//! deletes all. They are deleted when the network is dropped, also by a panic, and by
//! [`Network::remove_all`]. If a program was killed, the next program with its prefix deletes them. A process
//! that still runs in a namespace keeps it: end processes before.
//!
//! Cutting a cable drops frames between two ports of the bridge: both hosts just see silence. A rejecting
//! firewall stands on the hosts themselves and answers for the peer: with resets to both sides, or with ICMP.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long the processes of a namespace may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(5);

/// How a rejecting firewall refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// TCP resets, into both directions of existing and new connections.
    Reset,
    /// ICMP "administratively prohibited".
    Icmp,
}

#[cfg(test)]
mod tests;

/// The namespaces of one story. What fails while it is used, panics: all of it could be done a moment ago.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    hosts: usize,
    links: usize,
    /// Link, from, to.
    dropped: Mutex<BTreeSet<(usize, usize, usize)>>,
}

impl Network {
    /// Hosts 1 to `hosts`, all connected, with one or two interfaces each, in networks of their own: the
    /// first has IPv4, the second IPv6. The names of the namespaces begin with the prefix.
    ///
    /// # Errors
    /// What is missing: the rights, or a tool.
    pub fn new(prefix: &str, hosts: usize, links: usize) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        possible()?;
        sweep(prefix, |pid| !Path::new(&format!("/proc/{pid}")).exists());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let network = Self {
            prefix: format!("{prefix}{}x{number}", std::process::id()),
            hosts,
            links,
            dropped: Mutex::default(),
        };
        let switch = network.namespace(0);
        ip(&["netns", "add", &switch]);
        for host in 1..=hosts {
            let here = network.namespace(host);
            ip(&["netns", "add", &here]);
            ip(&["-n", &here, "link", "set", "lo", "up"]);
        }
        for link in 0..links {
            network.connect(link);
        }
        Ok(network)
    }

    /// Deletes every network of this program: for a program that is about to end without dropping anything.
    pub fn remove_all(prefix: &str) {
        let own = |pid: u32| pid == std::process::id();
        // A process that was just being started may come into its namespace while they are looked through.
        for name in namespaces_of(prefix, own) {
            end_all(&name);
        }
        sweep(prefix, own);
    }

    /// A bridge, and an interface of every host on it.
    fn connect(&self, link: usize) {
        let switch = self.namespace(0);
        let (bridge, interface) = (format!("br{link}"), format!("eth{link}"));
        let add = ["link", "add", &bridge, "type", "bridge", "forward_delay", "0"];
        ip(&[&["-n", &switch][..], &add].concat());
        ip(&["-n", &switch, "link", "set", &bridge, "up"]);
        for host in 1..=self.hosts {
            let (here, port) = (self.namespace(host), port(link, host));
            let add = [
                "link", "add", &interface, "type", "veth", "peer", "name", &port, "netns", &switch,
            ];
            ip(&[&["-n", &here][..], &add].concat());
            let address = match link {
                0 => vec![format!("10.99.0.{host}/24")],
                // Without a test for duplicates, which would keep it from being used for two seconds.
                _ => vec![format!("fd99::{host}/64"), "nodad".to_owned()],
            };
            let address: Vec<&str> = address.iter().map(String::as_str).collect();
            ip(&[&["-n", &here, "addr", "add", "dev", &interface][..], &address].concat());
            ip(&["-n", &here, "link", "set", &interface, "up"]);
            ip(&["-n", &switch, "link", "set", &port, "master", &bridge, "up"]);
        }
    }

    /// Where a node on this host listens.
    pub fn address(&self, host: usize) -> SocketAddr {
        self.addresses(host)[0]
    }

    /// All addresses at which it does, the one of its first interface first.
    pub fn addresses(&self, host: usize) -> Vec<SocketAddr> {
        assert!(
            (1..=self.hosts).contains(&host),
            "hosts are numbered from 1 to {}",
            self.hosts
        );
        let first = SocketAddr::from(([10, 99, 0, host as u8], 7400));
        let second = SocketAddr::from(([0xfd99, 0, 0, 0, 0, 0, 0, host as u16], 7400));
        [first, second].into_iter().take(self.links).collect()
    }

    /// Takes an interface of a host down, or up again.
    pub fn switch_interface(&self, host: usize, link: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&[
            "-n",
            &self.namespace(host),
            "link",
            "set",
            &format!("eth{link}"),
            state,
        ]);
    }

    /// Cuts all cables of one network.
    pub fn cut_link(&self, link: usize) {
        for from in 1..=self.hosts {
            self.dropped().extend((1..=self.hosts).map(|to| (link, from, to)));
        }
        self.apply_drops();
    }

    /// A command on this host.
    pub fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace(host)])
            .arg(program);
        command
    }

    /// Cuts the cable in one direction: nothing that `from` sends reaches `to`.
    pub fn drop_from_to(&self, from: usize, to: usize) {
        self.dropped()
            .extend((0..self.links).map(|link| (link, from, to)));
        self.apply_drops();
    }

    /// Cuts all cables between hosts of different sides.
    pub fn partition(&self, sides: &[&[usize]]) {
        for (at, side) in sides.iter().enumerate() {
            for other in sides
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .flat_map(|(_, hosts)| hosts.iter())
            {
                for link in 0..self.links {
                    self.dropped()
                        .extend(side.iter().map(|host| (link, *host, *other)));
                }
            }
        }
        self.apply_drops();
    }

    /// Puts a firewall between hosts of different sides that refuses instead of dropping.
    pub fn refuse(&self, sides: &[&[usize]], how: Refusal) {
        for (at, side) in sides.iter().enumerate() {
            let others: Vec<usize> = sides
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .flat_map(|(_, hosts)| hosts.to_vec())
                .collect();
            for host in *side {
                let rules = |field: &str| -> String {
                    let with = match how {
                        Refusal::Reset => "meta l4proto tcp reject with tcp reset",
                        Refusal::Icmp => "reject with icmpx admin-prohibited",
                    };
                    others
                        .iter()
                        .map(|other| format!("  ip {field} 10.99.0.{other} {with}\n"))
                        .collect()
                };
                // What this firewall itself answered comes back in, and so do the answers of the peer's: let
                // them pass.
                let input = format!(
                    "iifname \"lo\" accept\n  tcp flags rst accept\n{}",
                    rules("saddr")
                );
                self.wall(*host, &[("input", input), ("output", rules("daddr"))]);
            }
        }
    }

    /// Every host loses this many of a hundred UDP packets that reach it.
    pub fn lose_udp(&self, percent: u8) {
        let rule = format!("iifname != \"lo\" meta l4proto udp {}drop", chance(percent));
        for host in 1..=self.hosts {
            self.wall(host, &[("input", rule.clone())]);
        }
    }

    /// This host drops what comes by TCP, and passes UDP.
    pub fn drop_tcp(&self, host: usize) {
        let rule = "iifname != \"lo\" meta l4proto tcp drop";
        self.wall(host, &[("input", rule.to_owned())]);
    }

    /// This host loses the packets of more bytes that come to it, and passes smaller ones: no sender is told.
    pub fn swallow_large(&self, host: usize, bytes: usize) {
        for sender in 1..=self.hosts {
            // A packet here is one on a wire, and not many that a network card would part.
            let namespace = self.namespace(sender);
            ip(&["-n", &namespace, "link", "set", "eth0", "gso_max_segs", "1"]);
        }
        let rule = format!("iifname != \"lo\" meta length > {bytes} drop");
        self.wall(host, &[("input", rule)]);
    }

    /// This host loses so many of a hundred packets that come to a multicast address.
    pub fn lose_multicast(&self, host: usize, percent: u8) {
        let chance = chance(percent);
        let rules = format!("ip daddr 224.0.0.0/4 {chance}drop\n  ip6 daddr ff12::/16 {chance}drop");
        self.wall(host, &[("input", rules)]);
    }

    /// A firewall on a host, instead of the one before: rules by hook.
    fn wall(&self, host: usize, chains: &[(&str, String)]) {
        let chain = |(hook, rules): &(&str, String)| {
            format!(" chain {hook} {{\n  type filter hook {hook} priority 0\n  {rules}\n }}\n")
        };
        let chains: String = chains.iter().map(chain).collect();
        nft(
            &self.namespace(host),
            &format!("{NO_WALL}table inet wall {{\n{chains}}}\n"),
        );
    }

    /// This host loses so many of a hundred packets, both of the packets that it sends and of the packets
    /// that reach it. They are lost where they arrive, at either end of its cable: no sender is told.
    pub fn lose_packets(&self, host: usize, percent: u8) {
        let both = [
            (self.namespace(host), "eth0".to_owned()),
            (self.namespace(0), port(0, host)),
        ];
        for (namespace, device) in both {
            let table = format!(
                "table netdev {device} {{\n chain in {{\n  type filter hook ingress device \"{device}\" priority 0\n  \
                 {}drop\n }}\n}}\n",
                chance(percent)
            );
            nft(&namespace, &(no_loss(&device) + &table));
        }
    }

    /// It loses nothing any more.
    pub fn lose_nothing(&self, host: usize) {
        nft(&self.namespace(host), &no_loss("eth0"));
        nft(&self.namespace(0), &no_loss(&port(0, host)));
    }

    /// Mends all cables and takes all firewalls down.
    pub fn heal(&self) {
        self.dropped().clear();
        self.apply_drops();
        for host in 1..=self.hosts {
            nft(&self.namespace(host), NO_WALL);
            self.lose_nothing(host);
        }
    }

    /// Ends every process on a host.
    pub fn end_all(&self, host: usize) {
        end_all(&self.namespace(host));
    }

    /// The processes on a host.
    pub fn pids(&self, host: usize) -> Vec<i32> {
        pids(&self.namespace(host))
    }

    fn dropped(&self) -> MutexGuard<'_, BTreeSet<(usize, usize, usize)>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply_drops(&self) {
        let rules: String = self
            .dropped()
            .iter()
            .map(|(link, from, to)| (port(*link, *from), port(*link, *to)))
            .map(|(from, to)| format!("  iifname \"{from}\" oifname \"{to}\" drop\n"))
            .collect();
        let table = format!(
            "table bridge cut\ndelete table bridge cut\ntable bridge cut {{\n chain forward {{\n  \
             type filter hook forward priority 0\n{rules} }}\n}}\n"
        );
        nft(&self.namespace(0), &table);
    }

    /// The name of a host's namespace; 0 is the switch.
    pub fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..=self.hosts {
            end_all(&self.namespace(host));
            let _ = quiet(tool("ip").args(["netns", "del", &self.namespace(host)]));
        }
    }
}

/// Takes a host's firewall down, also if there is none.
const NO_WALL: &str = "table inet wall\ndelete table inet wall\n";

/// The same with losses at an interface.
fn no_loss(device: &str) -> String {
    format!("table netdev {device}\ndelete table netdev {device}\n")
}

/// A rule's condition.
fn chance(percent: u8) -> String {
    match percent {
        100.. => String::new(),
        some => format!("numgen random mod 100 < {some} "),
    }
}

/// The bridge's end of a host's cable.
fn port(link: usize, host: usize) -> String {
    let letter = if link == 0 { 'p' } else { 'q' };
    format!("{letter}{host}")
}

/// Kills every process in a namespace, and waits until they are gone, which for a while keep it and its
/// cables.
fn end_all(namespace: &str) {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let pids = pids(namespace);
        if pids.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            // It may be gone already.
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn pids(namespace: &str) -> Vec<i32> {
    let listed = tool("ip").args(["netns", "pids", namespace]).output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    let pids = String::from_utf8_lossy(&listed);
    pids.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Why namespaces cannot be made here; tried once.
fn possible() -> Result<(), String> {
    static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
    TRIED.get_or_init(try_everything).clone()
}

fn try_everything() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("network namespaces need root".to_owned());
    }
    for (name, argument) in [("ip", "-V"), ("nft", "-v")] {
        if !quiet(tool(name).arg(argument)) {
            return Err(format!("network namespaces need the command {name}"));
        }
    }
    let probe = format!("antiphon{}x-probe", std::process::id());
    let made = quiet(tool("ip").args(["netns", "add", &probe]));
    let _ = quiet(tool("ip").args(["netns", "del", &probe]));
    if made {
        Ok(())
    } else {
        Err("this kernel or container makes no network namespaces".to_owned())
    }
}

/// Deletes the namespaces that programs with this prefix have left behind, and ends the processes in them.
fn sweep(prefix: &str, whose: impl Fn(u32) -> bool) {
    for name in namespaces_of(prefix, whose) {
        end_all(&name);
        let _ = quiet(tool("ip").args(["netns", "del", &name]));
    }
}

/// The namespaces of programs with this prefix.
fn namespaces_of(prefix: &str, whose: impl Fn(u32) -> bool) -> Vec<String> {
    let listed = tool("ip").args(["netns", "list"]).output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    let is_meant = |name: &&str| {
        let pid = name
            .strip_prefix(prefix)
            .and_then(|rest| rest.split_once('x'))
            .and_then(|(pid, _)| pid.parse::<u32>().ok());
        pid.is_some_and(&whose)
    };
    let listed = String::from_utf8_lossy(&listed);
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(is_meant).map(str::to_owned).collect()
}

/// A tool that a Ctrl-C at the terminal does not end: it has a process group of its own.
fn tool(program: &str) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    command
}

fn ip(arguments: &[&str]) {
    let output = tool("ip")
        .args(arguments)
        .output()
        .expect("ip was there a moment ago");
    assert!(
        output.status.success(),
        "ip {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn nft(namespace: &str, rules: &str) {
    let mut child = tool("ip")
        .args(["netns", "exec", namespace, "nft", "-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ip was there a moment ago");
    if let Some(mut stdin) = child.stdin.take() {
        // If nft ended early its complaint, below, says why.
        let _ = stdin.write_all(rules.as_bytes());
    }
    let output = child.wait_with_output().expect("the child was just started");
    assert!(
        output.status.success(),
        "nft: {}\n{rules}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn quiet(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
