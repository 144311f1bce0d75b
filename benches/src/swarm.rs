//! Many members of one system in one process: ours with `antiphon swarm`, the peers with clients of ours that
//! do the same.
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
use crate::tools::{self, Lines};

/// For everything a swarm does.
const PATIENCE: Duration = Duration::from_secs(240);
/// What of ours is measured: its name, its options, and the most nodes it is for on one machine.
const OURS: [Engine; 2] = [
    Engine {
        name: "coordinator",
        options: &["--membership", "coordinator"],
        // Of a hundred on two cores most attempts do not finish forming.
        most: 71,
    },
    Engine {
        name: "cut",
        options: &["--membership", "cut"],
        most: 200,
    },
];

pub(crate) struct Engine {
    name: &'static str,
    options: &'static [&'static str],
    most: usize,
}

/// What a swarm does besides forming and leaving.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Story<'a> {
    pub(crate) joins: usize,
    /// How long ours are looked at when they have nothing to do.
    pub(crate) rest_s: u32,
    /// Further options for `antiphon swarm`.
    pub(crate) more: &'a [&'a str],
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
    /// Open files of a node, the mean: the most while they formed, and at rest. Only ours tells.
    pub(crate) descriptors_forming: Option<f64>,
    pub(crate) descriptors_at_rest: Option<f64>,
}

/// All that can be had.
pub(crate) struct Systems {
    pub(crate) ours: Ours,
    jgroups: Option<JGroups>,
    memberlist: Option<Memberlist>,
}

/// One of them.
pub(crate) enum System<'a> {
    Ours(&'a Ours, &'static Engine),
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
        let (measured, left_out): (Vec<_>, Vec<_>) = OURS.iter().partition(|engine| nodes <= engine.most);
        for Engine { name, most, .. } in left_out {
            eprintln!("{name}: not measured with {nodes} members: it is for at most {most} on one machine");
        }
        let ours = measured
            .into_iter()
            .map(|engine| System::Ours(&self.ours, engine));
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

/// So many members, as a case's name.
pub(crate) fn members(nodes: usize) -> String {
    format!("{nodes} members")
}

const JGROUPS: &str = "JGroups tcp.xml";
const MEMBERLIST: &str = "memberlist";

impl System<'_> {
    /// As it is told.
    pub(crate) fn series(&self) -> &'static str {
        match self {
            System::Ours(_, engine) => engine.name,
            System::JGroups(_) => JGROUPS,
            System::Memberlist(_) => MEMBERLIST,
        }
    }

    /// So many members form, so many more join and leave one after the other, then all leave. If they cannot,
    /// the case says so; and it is not tried again, for that takes minutes each time.
    pub(crate) fn run(&self, nodes: usize, story: Story<'_>, case: &mut Case) -> Option<Told> {
        let series = self.series();
        if case.has_failed(series) {
            return None;
        }
        let is_ours = matches!(self, System::Ours(..));
        self.try_run(nodes, story)
            .map_err(|why| case.fail(series, is_ours, &why))
            .ok()
    }

    fn try_run(&self, nodes: usize, story: Story<'_>) -> Result<Told, Failure> {
        eprintln!("{}: {nodes} members, {} joins", self.series(), story.joins);
        let (count, joins) = (nodes.to_string(), story.joins.to_string());
        match self {
            System::Ours(ours, engine) => {
                let seconds = story.rest_s.to_string();
                let mut args = vec!["swarm", "--nodes", &count, "--joins", &joins, "--json"];
                args.extend(["--seconds", &seconds]);
                args.extend(engine.options.iter().chain(story.more));
                ours_told(&ours.printed(&args).map_err(|log| in_short(&log))?)
            }
            System::JGroups(jgroups) => peer_told(jgroups.swarm(&count, &joins)?),
            System::Memberlist(client) => {
                let mut command = tools::ends_with_this(&client.program);
                command.args(["swarm", &count, &joins]);
                peer_told(command)
            }
        }
    }
}

/// What a swarm of ours ended with, before its whole log:
/// `antiphon: forming: after 120 s 0 of 100 nodes report all; …` is its last line.
fn in_short(log: &str) -> Failure {
    let last = log.lines().next_back().unwrap_or_default();
    let last = last.strip_prefix("antiphon: ").unwrap_or(last);
    let short = match last.split_once(": after ") {
        Some((doing @ ("forming" | "parting"), rest)) => {
            let seconds = rest.split(' ').next().unwrap_or_default();
            format!("did not finish {doing} within {seconds} s")
        }
        _ => last.split(';').next().unwrap_or_default().to_owned(),
    };
    format!("{short}\n{log}")
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
        descriptors_forming: Some(number("most_descriptors_per_node")?),
        descriptors_at_rest: summary["rest"]["descriptors_per_node"].as_f64(),
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
    let mut formed = false;
    let result = lines.find(PATIENCE, "the members of a peer", |line| {
        formed |= line.starts_with("formed ");
        told.learn(line)
    });
    // It has ended by itself if all went well.
    let _ = child.kill();
    let _ = child.wait();
    let doing = if formed { "join and leave" } else { "form" };
    result.map_err(|why| format!("did not {doing} within {} s\n{why}", PATIENCE.as_secs()))??;
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
            ("failed", _) => {
                let (short, detail) = rest.split_once(": ").unwrap_or((rest, ""));
                return Some(Err(format!("{short}\n{detail}")));
            }
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
        let failed = told.learn("failed did not have all report 3 within 180 s: [1, 1, 2]");
        assert_eq!(
            failed,
            Some(Err("did not have all report 3 within 180 s\n[1, 1, 2]".to_owned()))
        );
    }

    #[test]
    fn of_a_log_the_end_is_told_first() {
        let log = "antiphon swarm --nodes 9: WARN no direct path\nantiphon: forming: after 120 s 0 of 9 nodes report all; their views have";
        let why = in_short(log);
        assert_eq!(why.lines().next(), Some("did not finish forming within 120 s"));
        assert!(why.ends_with(log), "{why}");
        let refused = in_short("antiphon: this takes up to 9000 open files; nothing was started");
        assert!(
            refused.starts_with("this takes up to 9000 open files\n"),
            "{refused}"
        );
    }
}
