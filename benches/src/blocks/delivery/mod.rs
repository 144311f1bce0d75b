//! `delivery`: commands to a peer by every way, the next one after the reply to the last one, beside a
//! message there and back by TCP and by UDP without any protocol; what it costs to hand one over; and how
//! long those to four peers take when the fifth one hangs or is dead.
//!
//! ```text
//!  benchmark ──┬── host 1: agent, a client ── library, HTTP, HTTPS, WebSocket, RESP, UDP ──► host 2: agent, a client
//!              └── host 1: end n1 ── the same ──► host 2: end n2, …
//! ```
//! A client is a program that says JSON lines to its agent by a Unix socket. An [`end`] is a process that
//! embeds the library and its commands: what lies between the two is the agents and their sockets.

pub(crate) mod end;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use antiphon_api::commands::Way;
use clap::Args;
use rustix::process::{Signal, kill_process};
use serde_json::json;

use self::end::Ask;
use super::Figures;
use super::java::Peer;
use crate::agents::{self, Agents};
use crate::lab::Lab;
use crate::ours::{Ours, version};
use crate::report::{Case, Headline, Report};
use crate::scratch::Scratch;
use crate::{Common, Failure, tools};

const NODE_PORT: u16 = 7400;
const GATE_PORT: u16 = 7490;
/// Of messages without any protocol.
const RAW_PORT: u16 = 7500;
/// Those that one is asked, and the caller.
const CROWD: usize = 6;
const START_WITHIN: Duration = Duration::from_secs(60);
const TCP: &str = "TCP alone";
const UDP: &str = "UDP alone";
/// Commands to each peer per second, beside one that hangs or is dead.
const PACE: u32 = 100;
const MICROSECONDS: &str = "us";

/// What is measured beside a peer that does not answer.
const BESIDE: [Way; 3] = [Way::Library, Way::HttpKept, Way::Udp];

#[derive(Debug, Args)]
pub(crate) struct DeliveryArgs {
    #[command(flatten)]
    common: Common,
    /// Threads of a node's runtime; 1 is what is quickest for one command at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    threads: u8,
}

/// What happens to one of five peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Hung,
    Dead,
}

impl Fault {
    fn word(self) -> &'static str {
        match self {
            Fault::Hung => "hung",
            Fault::Dead => "dead",
        }
    }
}

/// The files that all ends of one benchmark have.
struct Files {
    folder: Scratch,
    has_certificates: bool,
}

/// Measures and reports.
pub(crate) fn run(args: &DeliveryArgs) -> Result<(), Failure> {
    let common = &args.common;
    let ours = Ours::build()?;
    let lab = Lab::new(CROWD, !common.no_offload)?;
    let files = Files::make()?;
    let mut p50 = Case::new("a command and its reply, p50".to_owned());
    let mut p99 = Case::new("a command and its reply, p99".to_owned());
    let mut handed = [
        Case::of("to hand a command over, p50".to_owned(), MICROSECONDS),
        Case::of("to hand a command over, p99".to_owned(), MICROSECONDS),
    ];
    let mut beside: Vec<Case> = Vec::new();
    for fault in [Fault::Hung, Fault::Dead] {
        for way in BESIDE {
            let name = format!(
                "p99 to four peers by {}, the fifth is {}",
                way.word(),
                fault.word()
            );
            beside.push(Case::of(name, MICROSECONDS).comparing(AFTER));
        }
    }
    for run in 1..=common.runs() {
        eprintln!("one at a time, run {run}");
        let mut ends = muster(&lab, &files, 2, args)?;
        let mut add = |series: &str, figures: &Figures| {
            p50.add(series, figure(figures, "p50_us"));
            p99.add(series, figure(figures, "p99_us"));
        };
        let ways: Vec<Way> = Way::ALL
            .into_iter()
            .filter(|way| files.has_certificates || !matches!(way, Way::Https | Way::HttpsKept))
            .collect();
        for (series, udp) in [(TCP, false), (UDP, true)] {
            let server = format!("{}:{RAW_PORT}", lab.ip(2));
            let server = server.parse().map_err(|_| format!("{server} is no address"))?;
            let raw = Ask::Raw {
                udp,
                server,
                time: common.time(),
            };
            add(series, &ends[0].done_by(&raw, common)?);
        }
        for way in ways.iter().copied() {
            let ping = Ask::Ping {
                way,
                to: "n2".to_owned(),
                time: common.time(),
            };
            add(way.word(), &ends[0].done_by(&ping, common)?);
        }
        // Of a command without a reply there is only the way there.
        let notice = Ask::Notice {
            way: Way::Udp,
            to: "n2".to_owned(),
            time: common.time(),
        };
        ends[0].done_by(&notice, common)?;
        add("udp, no reply: one way", &ends[1].done_by(&Ask::Arrived, common)?);
        let hand_over = Ask::HandOver {
            way: Way::HttpKept,
            to: "n2".to_owned(),
            time: common.time(),
        };
        let figures = ends[0].done_by(&hand_over, common)?;
        handed[0].add("in the library", figure(&figures, "p50_us"));
        handed[1].add("in the library", figure(&figures, "p99_us"));
        drop(ends);
        lab.kill_all();
        let by_agents = by_agents(&lab, &ours, &files, common, &ways);
        lab.kill_all();
        let (asked, by_socket) = by_agents?;
        for (way, figures) in &asked {
            add(&named(*way), figures);
        }
        for (series, figures) in [ANSWERED, UNANSWERED].into_iter().zip(&by_socket) {
            handed[0].add(series, figure(figures, "p50_us"));
            handed[1].add(series, figure(figures, "p99_us"));
        }
        let mut cases = beside.iter_mut();
        for fault in [Fault::Hung, Fault::Dead] {
            for way in BESIDE {
                eprintln!("{} beside one that is {}, run {run}", way.word(), fault.word());
                let told = beside_one(&lab, &files, way, fault, args);
                match (cases.next(), told) {
                    (Some(case), Ok((before, after))) => {
                        case.add(BEFORE, before);
                        case.add(AFTER, after);
                    }
                    (Some(case), Err(failure)) => case.fail(AFTER, true, &failure),
                    (None, _) => {}
                }
            }
        }
    }
    let mut report = Report::new(
        "delivery",
        "microseconds for a command to a peer and its reply, one at a time",
        MICROSECONDS,
    );
    report.cases = vec![p50, p99];
    report.cases.extend(handed);
    report.cases.extend(beside);
    report.lower_is_better = true;
    report.headline = Headline {
        ours: named(Way::HttpKept),
        peers: vec![TCP.to_owned(), BEFORE.to_owned()],
        limit: None,
    };
    report.tell(&version(), common)
}

/// As fast as the agent says that it is handed over.
const ANSWERED: &str = "at an agent's socket, told so";
/// Told only if it is not, at a pace of 1000/s.
const UNANSWERED: &str = "at an agent's socket, one line";
/// That it does not answer.
const BEFORE: &str = "before";
const AFTER: &str = "from then on";

fn figure(figures: &Figures, name: &str) -> f64 {
    figures.get(name).copied().unwrap_or(f64::NAN)
}

/// Starts an end on each of the first hosts, and waits until they are one cluster.
fn muster(lab: &Lab, files: &Files, nodes: usize, args: &DeliveryArgs) -> Result<Vec<Peer>, Failure> {
    let mut ends = Vec::new();
    for node in 1..=nodes {
        ends.push(start(lab, files, node, nodes, args)?);
    }
    for end in &ends {
        end.expect("ready", START_WITHIN)?;
    }
    Ok(ends)
}

fn start(lab: &Lab, files: &Files, node: usize, nodes: usize, args: &DeliveryArgs) -> Result<Peer, Failure> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let at = |port: u16| format!("{}:{port}", lab.ip(node));
    let name = format!("n{node}");
    let mut command = lab.command(node, &program);
    command
        .args(["end", "--name", &name, "--bind", &at(NODE_PORT)])
        .args(["--gate", &at(GATE_PORT), "--raw", &at(RAW_PORT)])
        .args(["--seeds", &agents::seeds(lab, nodes)])
        .args([
            "--members",
            &nodes.to_string(),
            "--threads",
            &args.threads.to_string(),
        ])
        .arg("--key-file")
        .arg(files.key())
        .arg("--list")
        .arg(files.list())
        .stderr(Stdio::inherit());
    if files.has_certificates && nodes == 2 {
        let file = |ending: &str| files.folder.path().join(format!("{name}.{ending}"));
        command.arg("--certificate").arg(file("pem"));
        command.arg("--certificate-key").arg(file("key"));
        command.arg("--authority").arg(files.folder.path().join("ca.pem"));
    }
    Peer::start(command, "a node that is commanded")
}

impl Peer {
    /// Has it do something, and gives what came of it.
    fn done_by(&mut self, ask: &Ask, common: &Common) -> Result<Figures, Failure> {
        self.tell(&serde_json::to_string(ask).map_err(|error| error.to_string())?)?;
        self.done(common.patience())
    }
}

/// How a way between two agents is called; alone its word is that of processes that embed the library.
fn named(way: Way) -> String {
    format!("{}, by agents", way.word())
}

/// What two agents do for two programs: commands and their replies by each way, and the time of handing over
/// a command without a reply of its peer: until the agent says so, and of saying it.
type ByAgents = (Vec<(Way, Figures)>, [Figures; 2]);

fn by_agents(
    lab: &Lab,
    ours: &Ours,
    files: &Files,
    common: &Common,
    ways: &[Way],
) -> Result<ByAgents, Failure> {
    let agents = Agents::start(lab, ours.program(), 2, |node| files.words(lab, node))?;
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let client = |node: usize, more: &[&str]| -> Result<Peer, Failure> {
        let mut command = lab.command(node, &program);
        command
            .args(["client", "--alone", "--socket"])
            .arg(agents.socket(node))
            .args(more)
            .stderr(Stdio::inherit());
        let client = Peer::start(command, "a client of an agent")?;
        client.expect("ready", START_WITHIN)?;
        Ok(client)
    };
    let _serving = client(2, &["--serve", "ping"])?;
    let mut caller = client(1, &[])?;
    let time = common.time();
    let mut measure = |word: &str, command: serde_json::Value| {
        let (warmup, measured) = (time.warmup_ms, time.measured_ms);
        caller.tell(&format!("{word} {warmup} {measured} {command}"))?;
        caller.done(common.patience())
    };
    let text = "x".repeat(end::TEXT_BYTES);
    let mut asked = Vec::new();
    for way in ways {
        let command = json!({"command": {
            "verb": "ping", "args": {"text": text}, "to": ["n2"], "by": way.word(), "reply": true,
        }});
        asked.push((*way, measure("ask", command)?));
    }
    // No program serves this verb, which the first agent does not wait for.
    let notice = json!({"command": {
        "verb": "notice", "args": {"sent": 0, "text": text},
        "to": ["n2"], "by": "http_kept", "reply": false,
    }});
    Ok((asked, [measure("ask", notice.clone())?, measure("tell", notice)?]))
}

/// The p99 of commands to four peers, while the fifth one answers, and from the moment on from which it does
/// not.
fn beside_one(
    lab: &Lab,
    files: &Files,
    way: Way,
    fault: Fault,
    args: &DeliveryArgs,
) -> Result<(f64, f64), Failure> {
    let common = &args.common;
    let result = (|| {
        let mut ends = muster(lab, files, CROWD, args)?;
        let paced = Ask::Paced {
            way,
            to: (2..=CROWD).map(|node| format!("n{node}")).collect(),
            silent: format!("n{CROWD}"),
            per_second: PACE,
            time: common.time(),
        };
        let before = ends[0].done_by(&paced, common)?;
        ends[0].tell(&serde_json::to_string(&paced).map_err(|error| error.to_string())?)?;
        // Just before it counts: a command that is under way then is among the first that count.
        std::thread::sleep(common.time().warmup().saturating_sub(Duration::from_millis(50)));
        let signal = match fault {
            Fault::Hung => Signal::STOP,
            Fault::Dead => Signal::KILL,
        };
        kill_process(ends[CROWD - 1].pid(), signal).map_err(|error| format!("{signal:?}: {error}"))?;
        let after = ends[0].done(common.patience())?;
        for (when, figures) in [("before", &before), ("after", &after)] {
            let failed = figure(figures, "failed");
            if failed > 0.0 {
                // What fails at once would be quick.
                return Err(format!("{failed} commands to the other four failed {when}"));
            }
        }
        Ok((figure(&before, "p99_us"), figure(&after, "p99_us")))
    })();
    lab.kill_all();
    result
}

impl Files {
    /// A key, a list, and certificates if there is openssl.
    fn make() -> Result<Self, Failure> {
        let mut files = Self {
            folder: Scratch::new("delivery")?,
            has_certificates: false,
        };
        let write = |path: &Path, text: &str| {
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            let alone = Permissions::from_mode(0o600);
            std::fs::set_permissions(path, alone).map_err(|error| format!("{}: {error}", path.display()))
        };
        write(&files.key(), &format!("{}\n", "5e".repeat(32)))?;
        write(&files.list(), end::LIST)?;
        match files.certificates() {
            Ok(()) => files.has_certificates = true,
            Err(failure) => eprintln!("SKIPPED https: {failure}"),
        }
        Ok(files)
    }

    fn key(&self) -> PathBuf {
        self.folder.path().join("cluster.key")
    }

    fn list(&self) -> PathBuf {
        self.folder.path().join("commands.toml")
    }

    /// What an agent is started with, to be asked by each way.
    fn words(&self, lab: &Lab, node: usize) -> Vec<String> {
        let gate = format!("{}:{GATE_PORT}", lab.ip(node));
        let file = |name: String| self.folder.path().join(name).to_string_lossy().into_owned();
        let mut words = vec![
            ("--key-file", self.key().to_string_lossy().into_owned()),
            ("--commands", self.list().to_string_lossy().into_owned()),
            ("--commands-listen", gate),
        ];
        if self.has_certificates {
            words.extend([
                ("--tls-cert", file(format!("n{node}.pem"))),
                ("--tls-key", file(format!("n{node}.key"))),
                ("--commands-ca", file("ca.pem".to_owned())),
            ]);
        }
        words
            .into_iter()
            .flat_map(|(flag, value)| [flag.to_owned(), value])
            .collect()
    }

    /// An authority, and a certificate of it for the name of each node.
    fn certificates(&self) -> Result<(), Failure> {
        tools::need("openssl", &["openssl"])?;
        let path = |name: &str| self.folder.path().join(name).to_string_lossy().into_owned();
        let new = |name: &str, more: &[&str]| {
            let (key, pem, subject) = (
                path(&format!("{name}.key")),
                path(&format!("{name}.pem")),
                format!("/CN={name}"),
            );
            let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
            let common = [
                "-nodes", "-days", "30", "-keyout", &key, "-out", &pem, "-subj", &subject,
            ];
            let all = [&["req", "-x509"][..], &curve[..], &common[..], more].concat();
            tools::run("openssl", &all).map(drop)
        };
        new("ca", &[])?;
        for node in 1..=2 {
            let name = format!("n{node}");
            let (ca, key, alternative) = (
                path("ca.pem"),
                path("ca.key"),
                format!("subjectAltName=DNS:{name}"),
            );
            let more = ["-CA", &ca, "-CAkey", &key, "-addext", &alternative];
            let leaf = ["-addext", "basicConstraints=critical,CA:FALSE"];
            new(&name, &[&more[..], &leaf[..]].concat())?;
        }
        Ok(())
    }
}
