//! Many members of one system on one machine: ours with `antiphon swarm`, in as few processes as their files allow, the peers in one
//! process with clients of ours that do the same.
//!
//! ```text
//!  formation ┐                ┌─ antiphon swarm --nodes N --joins J --json
//!  join      ┼─► System::run ─┼─ java Members swarm tcp.xml N J           ─► Told: formed, sizes seen, joins, left
//!  shutdown  ┘                └─ memberlist swarm N J
//! ```
//! All on loopback, all members at once, each time counted until every member reports all.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Common;
use crate::Failure;
use crate::jgroups::{self, JGroups};
use crate::memberlist::{self, Memberlist};
use crate::ours::Ours;
use crate::report::{Case, Headline, Report};
use crate::tools::Lines;

/// For everything a swarm does.
const PATIENCE: Duration = Duration::from_secs(240);
/// What of ours is measured: its name, its options, and the most nodes it is for on one machine.
const OURS: [Engine; 2] = [
    Engine {
        name: "coordinator",
        options: &["--membership", "coordinator"],
        most: 100,
    },
    Engine {
        name: "cut",
        options: &["--membership", "cut"],
        most: 200,
    },
];
/// Connections of ours in a process that may have 20,000 files: members that all hear of each other have two for each pair and
/// end, and where that is more, they are spread over several processes.
const CONNECTIONS_OF_A_PROCESS: usize = 16_000;

struct Engine {
    name: &'static str,
    options: &'static [&'static str],
    most: usize,
}

/// What a swarm told; times in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    pub(crate) formed: f64,
    /// How many different numbers of members were reported until then.
    pub(crate) sizes: f64,
    /// For each join: until the joiner saw all, and until all saw it.
    pub(crate) joins: Vec<(f64, f64)>,
    pub(crate) left: f64,
    /// Open files of a node once formed, the mean; only ours tells.
    pub(crate) descriptors: Option<f64>,
}

/// All that can be had.
pub(crate) struct Systems {
    pub(crate) ours: Ours,
    jgroups: Option<JGroups>,
    memberlist: Option<Memberlist>,
}

/// One of them.
pub(crate) enum System<'a> {
    Ours(&'a Ours, &'static str, &'static [&'static str]),
    JGroups(&'a JGroups),
    Memberlist(&'a Memberlist),
}

impl Systems {
    /// Builds and fetches.
    pub(crate) fn get(common: &Common) -> Result<Self, Failure> {
        Ok(Self {
            ours: Ours::build()?,
            jgroups: common.peer(JGroups::get())?,
            memberlist: common.peer(Memberlist::get())?,
        })
    }

    /// Those that are measured with this many members.
    ///
    /// # Errors
    /// None of ours is for so many.
    pub(crate) fn of(&self, nodes: usize, peers: bool) -> Result<Vec<System<'_>>, Failure> {
        let ours = OURS
            .iter()
            .filter(|engine| nodes <= engine.most)
            .map(|engine| System::Ours(&self.ours, engine.name, engine.options));
        let jgroups = self.jgroups.iter().map(System::JGroups);
        let memberlist = self.memberlist.iter().map(System::Memberlist);
        let peers_too = jgroups.chain(memberlist).filter(|_| peers);
        match OURS.iter().map(|engine| engine.most).max() {
            Some(most) if nodes > most => Err(format!(
                "{nodes} members: on one machine at most {most} of ours are measured"
            )),
            _ => Ok(ours.chain(peers_too).collect()),
        }
    }

    /// A report that compares ours with the peers.
    pub(crate) fn report(&self, bench: &str, title: &str) -> Report {
        let mut report = Report::new(bench, title, "ms");
        report.lower_is_better = true;
        let jgroups = self.jgroups.as_ref();
        let memberlist = self.memberlist.as_ref();
        report.headline = Headline {
            ours: OURS[OURS.len() - 1].name.to_owned(),
            peers: vec![MEMBERLIST.to_owned(), JGROUPS.to_owned()],
            limit: None,
        };
        let versions = [
            jgroups.map(|_| format!("JGroups {}", jgroups::VERSION)),
            memberlist.map(|_| format!("memberlist {}", memberlist::VERSION)),
        ];
        report.peer_version = Some(versions.into_iter().flatten().collect::<Vec<_>>().join(", "))
            .filter(|text| !text.is_empty());
        report
    }
}

/// In how many processes so many of ours are.
fn processes(nodes: usize) -> usize {
    (2 * nodes * (nodes - 1)).div_ceil(CONNECTIONS_OF_A_PROCESS)
}

/// So many members, as a case's name.
pub(crate) fn members(nodes: usize) -> String {
    match processes(nodes) {
        1 => format!("{nodes} members"),
        processes => format!("{nodes} members (ours in {processes} processes)"),
    }
}

const JGROUPS: &str = "JGroups tcp.xml";
const MEMBERLIST: &str = "memberlist";

impl System<'_> {
    /// As it is told.
    pub(crate) fn series(&self) -> &'static str {
        match self {
            System::Ours(_, name, _) => name,
            System::JGroups(_) => JGROUPS,
            System::Memberlist(_) => MEMBERLIST,
        }
    }

    /// So many members form, so many more join and leave one after the other, then all leave. If they cannot, the case says so;
    /// and it is not tried again, for that takes minutes each time.
    pub(crate) fn run(&self, nodes: usize, joins: usize, more: &[&str], case: &mut Case) -> Option<Told> {
        if case.has_failed(self.series()) {
            return None;
        }
        let is_ours = matches!(self, System::Ours(..));
        self.try_run(nodes, joins, more)
            .map_err(|why| case.fail(self.series(), is_ours, &why))
            .ok()
    }

    fn try_run(&self, nodes: usize, joins: usize, more: &[&str]) -> Result<Told, Failure> {
        eprintln!("{}: {nodes} members, {joins} joins", self.series());
        let (count, joins) = (nodes.to_string(), joins.to_string());
        match self {
            System::Ours(ours, _, options) => {
                let processes = processes(nodes).to_string();
                let mut args = vec![
                    "swarm",
                    "--nodes",
                    &count,
                    "--joins",
                    &joins,
                    "--seconds",
                    "0",
                    "--json",
                ];
                args.extend(["--processes", &processes]);
                args.extend(options.iter().chain(more));
                ours_told(&ours.printed(&args)?)
            }
            System::JGroups(jgroups) => peer_told(jgroups.swarm(&count, &joins)?),
            System::Memberlist(client) => {
                let mut command = Command::new(&client.program);
                command.args(["swarm", &count, &joins]);
                peer_told(command)
            }
        }
    }
}

/// The summary of `antiphon swarm --json`.
fn ours_told(lines: &[Value]) -> Result<Told, Failure> {
    let summary = lines
        .iter()
        .rfind(|line| line["event"] == "summary")
        .ok_or("antiphon swarm gave no summary")?;
    let number = |name: &str| {
        summary[name]
            .as_f64()
            .ok_or(format!("no {name} in the summary of antiphon swarm"))
    };
    let joins = lines.iter().filter(|line| line["event"] == "join");
    Ok(Told {
        formed: number("formed_ms")?,
        sizes: number("sizes_seen")?,
        joins: joins
            .filter_map(|join| Some((join["own_ms"].as_f64()?, join["everywhere_ms"].as_f64()?)))
            .collect(),
        left: number("left_ms")?,
        descriptors: Some(number("descriptors_per_node")?),
    })
}

/// Runs a client of a peer to its end.
fn peer_told(mut command: Command) -> Result<Told, Failure> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start {:?}: {error}", command.get_program()))?;
    let lines = Lines::of(child.stdout.take().expect("stdout is a pipe"));
    let mut told = Told::default();
    let result = lines.find(PATIENCE, "the members of a peer", |line| told.learn(line));
    // It has ended by itself if all went well.
    let _ = child.kill();
    let _ = child.wait();
    result??;
    Ok(told)
}

impl Told {
    /// A line of a peer's client; an answer if it was the last.
    fn learn(&mut self, line: &str) -> Option<Result<(), Failure>> {
        let (word, rest) = line.split_once(' ')?;
        let numbers: Vec<f64> = rest.split(' ').filter_map(|number| number.parse().ok()).collect();
        match (word, numbers.as_slice()) {
            ("formed", [formed, sizes @ ..]) => (self.formed, self.sizes) = (*formed, sizes.len() as f64),
            ("join", [own, everywhere]) => self.joins.push((*own, *everywhere)),
            ("left", [left]) => {
                self.left = *left;
                return Some(Ok(()));
            }
            ("failed", _) => return Some(Err(format!("the members of a peer: {rest}"))),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_peers_client_are_read_until_it_has_left() {
        let mut told = Told::default();
        for line in [
            "formed 412.50 1 2 7 10",
            "join 12.00 80.25",
            "noise",
            "join 14 90",
        ] {
            assert!(told.learn(line).is_none());
        }
        assert_eq!(told.learn("left 3000.5"), Some(Ok(())));
        assert_eq!((told.formed, told.sizes, told.left), (412.5, 4.0, 3000.5));
        assert_eq!(told.joins, [(12.0, 80.25), (14.0, 90.0)]);
        assert!(told.learn("failed no port").unwrap().is_err());
    }
}
