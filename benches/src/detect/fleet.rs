//! Members of one system as processes, each in a namespace of the lab, and what each of them reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use antiphon_api::Event;
use antiphon_lab::{Child, Heard, Signal};

use crate::Failure;
use crate::jgroups::JGroups;
use crate::lab::Lab;
use crate::memberlist::Memberlist;
use crate::ours::Ours;

/// For all members to report all.
const START_WITHIN: Duration = Duration::from_secs(240);
/// Of ours and of memberlist.
const PORT: u16 = 7400;
/// Those of ours that found the cluster.
const SEEDS: usize = 3;

/// Whose members, and in which configuration.
pub(super) enum Kind<'a> {
    /// With this transport.
    Ours(&'a Ours, &'static str),
    /// With this membership engine, by TCP.
    Engine(&'a Ours, &'static str),
    /// By TCP alone: heartbeats that it holds up go by nothing else.
    OursByTcpAlone(&'a Ours),
    /// With this stack.
    JGroups(&'a JGroups, &'static str),
    Memberlist(&'a Memberlist),
}

impl Kind<'_> {
    pub(super) fn series(&self) -> &'static str {
        match self {
            Kind::Ours(_, "udp") => "antiphon udp",
            Kind::Ours(..) => "antiphon tcp",
            Kind::Engine(_, "cut") => "antiphon cut",
            Kind::Engine(..) => "antiphon coordinator",
            Kind::OursByTcpAlone(_) => "antiphon tcp, no probes",
            Kind::JGroups(_, "udp.xml") => "JGroups udp.xml",
            Kind::JGroups(..) => "JGroups tcp.xml",
            Kind::Memberlist(_) => "memberlist",
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Kind::Ours(..) | Kind::Engine(..) | Kind::OursByTcpAlone(_))
    }

    pub(super) fn is_udp(&self) -> bool {
        matches!(self, Kind::Ours(_, "udp") | Kind::JGroups(_, "udp.xml"))
    }

    /// Whether members are started one by one: one that finds none in time would found a cluster of its own.
    fn is_shy(&self) -> bool {
        matches!(self, Kind::JGroups(..))
    }
}

/// The name of a member, from 1.
pub(super) fn name(node: usize) -> String {
    format!("m{node}")
}

/// A line of a member: who is there, in its eyes.
struct Report {
    node: usize,
    at: Instant,
    /// `None`: it has ended.
    members: Option<BTreeSet<String>>,
    /// Which process of the node said so.
    start: usize,
}

struct Member {
    child: Child,
    start: usize,
    /// What it reported last, and when.
    members: BTreeSet<String>,
    since: Instant,
}

/// The members.
pub(super) struct Fleet<'a> {
    lab: &'a Lab,
    kind: &'a Kind<'a>,
    nodes: usize,
    members: BTreeMap<usize, Member>,
    reporting: Sender<Report>,
    reports: Receiver<Report>,
    starts: usize,
    /// How often each was no longer in what a member reported, by name.
    removals: BTreeMap<String, usize>,
}

impl<'a> Fleet<'a> {
    /// Starts all and waits until each reports all.
    pub(super) fn start(lab: &'a Lab, kind: &'a Kind<'a>, nodes: usize) -> Result<Self, Failure> {
        let (reporting, reports) = channel();
        let mut fleet = Self {
            lab,
            kind,
            nodes,
            members: BTreeMap::new(),
            reporting,
            reports,
            starts: 0,
            removals: BTreeMap::new(),
        };
        for node in 1..=nodes {
            fleet.start_one(node)?;
            if kind.is_shy() {
                fleet.wait(START_WITHIN, "let a member join", |members| {
                    members
                        .get(&node)
                        .is_some_and(|member| member.members.len() == node)
                })?;
            }
        }
        fleet.wait_for_all()?;
        Ok(fleet)
    }

    fn start_one(&mut self, node: usize) -> Result<(), Failure> {
        let (lab, nodes) = (self.lab, self.nodes);
        let own = name(node);
        let command = match self.kind {
            Kind::Ours(ours, _) | Kind::Engine(ours, _) | Kind::OursByTcpAlone(ours) => {
                let how: &[&str] = match self.kind {
                    Kind::Engine(_, engine) => &["--membership", engine],
                    Kind::OursByTcpAlone(_) => &["--transport", "tcp", "--udp-probes=false"],
                    Kind::Ours(_, transport) => &["--transport", transport],
                    _ => &[],
                };
                let seeds: Vec<String> = (1..=nodes.min(SEEDS)).map(|seed| lab.ip(seed)).collect();
                let mut command = lab.command(node, ours.program());
                command
                    .args([
                        "node",
                        "--json",
                        "--insecure",
                        "--cluster",
                        "detect",
                        "--name",
                        &own,
                    ])
                    .args([
                        "--bind",
                        &format!("{}:{PORT}", lab.ip(node)),
                        "--seeds",
                        &seeds.join(","),
                    ])
                    .args(how);
                command
            }
            Kind::JGroups(jgroups, stack) => jgroups.teller(lab, nodes, node, stack)?,
            Kind::Memberlist(client) => {
                let mut command = lab.command(node, &client.program);
                let seed = if node == 1 { 2 } else { 1 };
                command.args(["member", &own, &lab.ip(node), &PORT.to_string()]);
                command.arg(format!("{}:{PORT}", lab.ip(seed)));
                command
            }
        };
        self.starts += 1;
        let (reporting, start) = (self.reporting.clone(), self.starts);
        let child = Child::start(command, move |heard| {
            let members = match heard {
                Heard::Line(line) => match reported(&line) {
                    Some(members) => Some(members),
                    None => return,
                },
                Heard::Log(_) => return,
                Heard::End => None,
            };
            let at = Instant::now();
            // Nobody listens if the fleet is gone.
            let _ = reporting.send(Report {
                node,
                at,
                members,
                start,
            });
        })
        .map_err(|error| format!("a member of {}: {error}", self.kind.series()))?;
        let member = Member {
            child,
            start,
            members: BTreeSet::new(),
            since: Instant::now(),
        };
        self.members.insert(node, member);
        Ok(())
    }

    /// A member that was killed starts again; returns when all report all.
    pub(super) fn restart(&mut self, node: usize) -> Result<(), Failure> {
        self.start_one(node)?;
        self.wait_for_all()
    }

    fn wait_for_all(&mut self) -> Result<(), Failure> {
        let all: BTreeSet<String> = (1..=self.nodes).map(name).collect();
        self.wait(START_WITHIN, "have all members report all", |members| {
            members.values().all(|member| member.members == all)
        })
        .map(drop)
    }

    /// When the last of the others no longer reported this member.
    pub(super) fn wait_without(&mut self, gone: usize, within: Duration) -> Result<Instant, Failure> {
        let name = name(gone);
        self.wait(
            within,
            "have all others without the one that was gone",
            |members| {
                let mut others = members.iter().filter(|(node, _)| **node != gone);
                others.all(|(_, member)| !member.members.contains(&name))
            },
        )?;
        let others = self.members.iter().filter(|(node, _)| **node != gone);
        Ok(others
            .map(|(_, member)| member.since)
            .max()
            .unwrap_or_else(Instant::now))
    }

    /// kill -9.
    pub(super) fn kill(&mut self, node: usize) {
        self.members.remove(&node);
    }

    pub(super) fn signal(&self, node: usize, signal: Signal) {
        if let Some(member) = self.members.get(&node) {
            member.child.signal(signal);
        }
    }

    pub(super) fn processes(&self) -> Vec<u32> {
        self.members.values().map(|member| member.child.id()).collect()
    }

    pub(super) fn forget_removals(&mut self) {
        while let Ok(report) = self.reports.try_recv() {
            // One that has ended is noticed by whoever listens next.
            let _ = self.learn(report);
        }
        self.removals.clear();
    }

    /// Lets time pass and learns what the members report.
    pub(super) fn listen(&mut self, time: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            self.hear(deadline)?;
        }
        Ok(())
    }

    /// Who was removed by someone since then, and by how many members' reports.
    pub(super) fn removed(&self) -> &BTreeMap<String, usize> {
        &self.removals
    }

    fn wait(
        &mut self,
        within: Duration,
        what: &str,
        done: impl Fn(&BTreeMap<usize, Member>) -> bool,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + within;
        while !done(&self.members) {
            if Instant::now() >= deadline {
                let seen: Vec<String> = self
                    .members
                    .iter()
                    .map(|(node, member)| format!("{} reports {}", name(*node), member.members.len()))
                    .collect();
                return Err(format!(
                    "did not {what} within {} s\n{}",
                    within.as_secs(),
                    seen.join(", ")
                ));
            }
            self.hear(deadline)?;
        }
        Ok(())
    }

    fn hear(&mut self, deadline: Instant) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.reports.recv_timeout(left) {
            Ok(report) => self.learn(report),
            // The fleet holds a sender itself, so there is no other end.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(()),
        }
    }

    fn learn(&mut self, report: Report) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(&report.node) else {
            return Ok(());
        };
        if member.start != report.start {
            return Ok(());
        }
        let Some(members) = report.members else {
            let name = name(report.node);
            return Err(format!("the member {name} has ended by itself"));
        };
        for gone in member.members.difference(&members) {
            *self.removals.entry(gone.clone()).or_default() += 1;
        }
        if member.members != members {
            member.members = members;
            member.since = report.at;
        }
        Ok(())
    }
}

/// The members that a line names: of a node of ours, with or without a majority, or of a client of ours for a
/// peer.
fn reported(line: &str) -> Option<BTreeSet<String>> {
    if let Some(names) = line.strip_prefix("members ") {
        return Some(names.split(' ').map(str::to_owned).collect());
    }
    match serde_json::from_str(line).ok()? {
        Event::NodeView(view) => Some(view.names().into_iter().map(str::to_owned).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_from_lines_of_ours_and_of_the_clients() {
        let member = |name| format!(r#"{{"name":"{name}","incarnation":"","addr":"","metadata":{{}}}}"#);
        let ours = format!(
            r#"{{"event":"node_view","id":3,"number":3,"primary":true,"members":[{},{}],"joined":[],"left":[],"crashed":[]}}"#,
            member("m1"),
            member("m2")
        );
        let both = BTreeSet::from(["m1".to_owned(), "m2".to_owned()]);
        assert_eq!(reported(&ours), Some(both.clone()));
        assert_eq!(reported("members m2 m1"), Some(both));
        assert_eq!(
            reported(&ours.replace("true", "false")),
            Some(BTreeSet::from(["m1".to_owned(), "m2".to_owned()])),
            "who has lost the majority has lost members, too"
        );
        assert_eq!(reported("GMS: address=m1"), None);
    }
}
