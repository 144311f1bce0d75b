//! Hosts of a story: network namespaces on one bridge.
//!
//! ```text
//!   apr<pid>x<n>-1   apr<pid>x<n>-2   apr<pid>x<n>-3      one namespace per host: eth0 10.99.0.i/24, own firewall
//!        │ eth0           │ eth0           │ eth0
//!        └──── p1 ────────┴── p2 ──────────┴── p3         apr<pid>x<n>-0, the switch: a bridge, where cables are cut
//! ```
//! Hosts may have a second interface, `eth1` with fd99::i/64, whose cables (`q1`, `q2`, …) end at a bridge of their own.
//!
//! The switch is a namespace of its own, so that nothing is visible outside and deleting the namespaces deletes all. They
//! are deleted when the network is dropped, also by a panic; those of a test run that was killed, by the next one.
//!
//! Cutting a cable drops frames between two ports of the bridge: both hosts just see silence. A rejecting firewall stands
//! on the hosts themselves and answers for the peer: with resets to both sides, or with ICMP.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// The namespaces of one story.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    hosts: usize,
    links: usize,
    /// Link, from, to.
    dropped: BTreeSet<(usize, usize, usize)>,
}

impl Network {
    /// Hosts 1 to `hosts`, all connected; `None`, having said so, without the rights or tools.
    pub fn new(hosts: usize) -> Option<Self> {
        Self::with_links(hosts, 1)
    }

    /// The same with one or two interfaces for each host, in networks of their own: the first has IPv4, the second IPv6.
    pub fn with_links(hosts: usize, links: usize) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if let Err(missing) = possible() {
            crate::skipped(&missing);
            return None;
        }
        sweep();
        let prefix = format!(
            "apr{}x{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let network = Self {
            prefix,
            hosts,
            links,
            dropped: BTreeSet::new(),
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
        Some(network)
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
            match link {
                0 => ip(&[
                    "-n",
                    &here,
                    "addr",
                    "add",
                    &format!("10.99.0.{host}/24"),
                    "dev",
                    &interface,
                ]),
                // Without a test for duplicates, which would keep it from being used for two seconds.
                _ => ip(&[
                    "-n",
                    &here,
                    "addr",
                    "add",
                    &format!("fd99::{host}/64"),
                    "dev",
                    &interface,
                    "nodad",
                ]),
            }
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
    pub fn switch_interface(&mut self, host: usize, link: usize, up: bool) {
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
    pub fn cut_link(&mut self, link: usize) {
        for from in 1..=self.hosts {
            self.dropped.extend((1..=self.hosts).map(|to| (link, from, to)));
        }
        self.apply_drops();
    }

    /// A command on this host.
    pub fn command(&self, host: usize, program: &std::path::Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace(host)])
            .arg(program);
        command
    }

    /// Cuts the cable in one direction: nothing that `from` sends reaches `to`.
    pub fn drop_from_to(&mut self, from: usize, to: usize) {
        self.dropped.extend((0..self.links).map(|link| (link, from, to)));
        self.apply_drops();
    }

    /// Cuts all cables between hosts of different sides.
    pub fn partition(&mut self, sides: &[&[usize]]) {
        for (at, side) in sides.iter().enumerate() {
            for other in sides
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != at)
                .flat_map(|(_, hosts)| hosts.iter())
            {
                for link in 0..self.links {
                    self.dropped.extend(side.iter().map(|host| (link, *host, *other)));
                }
            }
        }
        self.apply_drops();
    }

    /// Puts a firewall between hosts of different sides that refuses instead of dropping.
    pub fn refuse(&mut self, sides: &[&[usize]], how: Refusal) {
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
                // What this firewall itself answered comes back in, and so do the answers of the peer's: let them pass.
                let table = format!(
                    "table inet wall\ndelete table inet wall\ntable inet wall {{\n chain in {{\n  type filter hook input priority 0\n  \
                     iifname \"lo\" accept\n  tcp flags rst accept\n{} }}\n \
                     chain out {{\n  type filter hook output priority 0\n{} }}\n}}\n",
                    rules("saddr"),
                    rules("daddr"),
                );
                nft(&self.namespace(*host), &table);
            }
        }
    }

    /// Every host loses this many of a hundred UDP packets that reach it.
    pub fn lose_udp(&mut self, percent: u8) {
        let chance = match percent {
            100.. => String::new(),
            some => format!("numgen random mod 100 < {some} "),
        };
        for host in 1..=self.hosts {
            let table = format!(
                "table inet wall\ndelete table inet wall\ntable inet wall {{\n chain in {{\n  type filter hook input priority 0\n  \
                 iifname != \"lo\" meta l4proto udp {chance}drop\n }}\n}}\n"
            );
            nft(&self.namespace(host), &table);
        }
    }

    /// This host loses so many of a hundred packets, of those that it sends and of those that reach it.
    pub fn lose_packets(&mut self, host: usize, percent: u8) {
        let chain = |name: &str, device: &str| {
            format!(
                " chain {name} {{\n  type filter hook {name} priority 0\n  {device} != \"lo\" numgen random mod 100 < {percent} drop\n }}\n"
            )
        };
        let table = format!(
            "table inet wall\ndelete table inet wall\ntable inet wall {{\n{}{}}}\n",
            chain("input", "iifname"),
            chain("output", "oifname"),
        );
        nft(&self.namespace(host), &table);
    }

    /// This host drops what comes by TCP, and passes UDP.
    pub fn drop_tcp(&mut self, host: usize) {
        let table = "table inet wall\ndelete table inet wall\ntable inet wall {\n chain in {\n  type filter hook input priority 0\n  \
                     iifname != \"lo\" meta l4proto tcp drop\n }\n}\n";
        nft(&self.namespace(host), table);
    }

    /// This host loses so many of a hundred packets that come to a multicast address.
    pub fn lose_multicast(&mut self, host: usize, percent: u8) {
        let chance = match percent {
            100.. => String::new(),
            some => format!("numgen random mod 100 < {some} "),
        };
        let table = format!(
            "table inet wall\ndelete table inet wall\ntable inet wall {{\n chain in {{\n  type filter hook input priority 0\n  \
             ip daddr 224.0.0.0/4 {chance}drop\n  ip6 daddr ff12::/16 {chance}drop\n }}\n}}\n"
        );
        nft(&self.namespace(host), &table);
    }

    /// Mends all cables and takes all firewalls down.
    pub fn heal(&mut self) {
        self.dropped.clear();
        self.apply_drops();
        for host in 1..=self.hosts {
            nft(&self.namespace(host), "table inet wall\ndelete table inet wall\n");
        }
    }

    fn apply_drops(&self) {
        let rules: String = self
            .dropped
            .iter()
            .map(|(link, from, to)| (port(*link, *from), port(*link, *to)))
            .map(|(from, to)| format!("  iifname \"{from}\" oifname \"{to}\" drop\n"))
            .collect();
        let table = format!(
            "table bridge cut\ndelete table bridge cut\ntable bridge cut {{\n chain forward {{\n  type filter hook forward priority 0\n{rules} }}\n}}\n"
        );
        nft(&self.namespace(0), &table);
    }

    fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.prefix)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in 0..=self.hosts {
            let _ = quiet(Command::new("ip").args(["netns", "del", &self.namespace(host)]));
        }
    }
}

/// The bridge's end of a host's cable.
fn port(link: usize, host: usize) -> String {
    let letter = if link == 0 { 'p' } else { 'q' };
    format!("{letter}{host}")
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
    for (tool, argument) in [("ip", "-V"), ("nft", "-v")] {
        if !quiet(Command::new(tool).arg(argument)) {
            return Err(format!("network namespaces need the command {tool}"));
        }
    }
    let probe = format!("apr{}x-probe", std::process::id());
    let made = quiet(Command::new("ip").args(["netns", "add", &probe]));
    let _ = quiet(Command::new("ip").args(["netns", "del", &probe]));
    if made {
        Ok(())
    } else {
        Err("this kernel or container makes no network namespaces".to_owned())
    }
}

/// Deletes what a test run left behind that was killed.
fn sweep() {
    let listed = Command::new("ip")
        .args(["netns", "list"])
        .output()
        .map(|o| o.stdout)
        .unwrap_or_default();
    for name in String::from_utf8_lossy(&listed)
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        let pid = name
            .strip_prefix("apr")
            .and_then(|rest| rest.split_once('x'))
            .and_then(|(pid, _)| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = quiet(Command::new("ip").args(["netns", "del", name]));
        }
    }
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip")
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
    let mut child = Command::new("ip")
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
