//! `locks`: eight nodes take and give back locks, each its own or all the same one.
//!
//! | series | a lock is | it survives |
//! |---|---|---|
//! | antiphon | an ordered message to take it, one to give it back | any minority |
//! | lock server | a request and its answer for each, at one process | nothing |
//! | ZooKeeper, etcd | a write that a majority of three has, and what their clients do besides | one of three |

use std::time::Duration;

use clap::Args;

use super::crew::Crew;
use super::etcd::{ETCD, Etcd};
use super::java::{Java, ZOOKEEPER, all_done};
use super::sum;
use super::worker::words::{Ask, Lock, Open};
use crate::lab::Lab;
use crate::ours::version;
use crate::report::{Case, Headline, Report};
use crate::scratch::Scratch;
use crate::{Common, Failure};

const NODES: usize = 8;
/// Of ZooKeeper and etcd; the clients are on the same hosts.
const SERVERS: usize = 3;
const SERVER_PORT: u16 = 7500;
/// A JVM's first seconds say nothing about the next hours.
const WARMUP_S: u32 = 10;
const OURS: &str = "antiphon";
const SERVER: &str = "lock server";

#[derive(Debug, Args)]
pub(crate) struct LocksArgs {
    #[command(flatten)]
    common: Common,
    /// Clients at each of eight nodes, measured one after the other
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 64])]
    clients: Vec<usize>,
}

/// Measures and reports.
pub(crate) fn run(args: &LocksArgs) -> Result<(), Failure> {
    let common = &args.common;
    let java = Java::get("CuratorLocks.java");
    let etcd = Etcd::get();
    let lab = Lab::new(NODES, !common.no_offload)?;
    let clients = if common.smoke {
        &args.clients[..1]
    } else {
        &args.clients[..]
    };
    let loads: Vec<(bool, usize)> = [false, true]
        .into_iter()
        .flat_map(|contended| clients.iter().map(move |clients| (contended, *clients)))
        .collect();
    let name = |(contended, clients): &(bool, usize)| match contended {
        false => format!("a lock for each client, {clients} at each node"),
        true => format!("one lock for all, {clients} at each node"),
    };
    let mut cases: Vec<Case> = loads.iter().map(|load| Case::new(name(load))).collect();
    let all: Vec<usize> = (1..=NODES).collect();
    for run in 1..=common.runs() {
        let mut crew = Crew::muster(&lab, NODES)?;
        crew.open(Open::Locks)?;
        let server = format!("{}:{SERVER_PORT}", lab.ip(1));
        let server = server.parse().map_err(|_| format!("{server} is no address"))?;
        crew.ask(&[1], &Ask::Serve { bind: server })?;
        for (case, (contended, clients)) in cases.iter_mut().zip(&loads) {
            eprintln!("run {run}");
            let (clients, contended, time) = (*clients, *contended, common.time());
            let lock = Lock { clients, contended };
            let told = crew.done(&all, &Ask::Lock { lock, time }, common.patience())?;
            case.add(OURS, sum(&told, "rate"));
            for node in &all {
                let rank = *node;
                crew.ask(
                    &[rank],
                    &Ask::LockAt {
                        server,
                        rank,
                        lock,
                        time,
                    },
                )?;
            }
            let told = crew.figures(&all, common.patience())?;
            case.add(SERVER, sum(&told, "rate"));
        }
        drop(crew);
        for (contended, clients, case) in loads
            .iter()
            .zip(&mut cases)
            .map(|(load, case)| (load.0, load.1, case))
        {
            // As many in all, in fewer processes: the machine has two processors.
            let load = Load {
                clients: (clients * NODES).div_ceil(SERVERS),
                contended,
                warmup: if common.smoke { 1 } else { WARMUP_S },
                seconds: common.seconds(),
            };
            eprintln!("peers, run {run}");
            if common.smoke {
                eprintln!("SKIPPED ZooKeeper: six JVMs take longer to start than a smoke test may take");
            } else {
                let sample = java.as_ref().map_err(Clone::clone);
                let sample = sample.and_then(|java| zookeeper(&lab, java, load));
                common.add_peer(case, "ZooKeeper with Curator", sample);
            }
            let sample = etcd.as_ref().map_err(Clone::clone);
            let sample = sample.and_then(|etcd| etcd.locks(&lab, SERVERS, load));
            common.add_peer(case, "etcd", sample);
        }
    }
    let mut report = Report::new(
        "locks",
        "locks taken and given back per second, eight nodes in all",
        "locks/s",
    );
    report.cases = cases;
    report.headline = Headline {
        ours: OURS.to_owned(),
        peers: vec!["ZooKeeper with Curator".to_owned(), "etcd".to_owned()],
        limit: Some(SERVER.to_owned()),
    };
    report.peer_version = Some(format!("{ZOOKEEPER}, {ETCD}, data on tmpfs"));
    report.tell(&version(), common)
}

/// What each of three clients does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) clients: usize,
    pub(super) contended: bool,
    pub(super) warmup: u32,
    pub(super) seconds: u32,
}

impl Load {
    /// `CLIENTS one|own WARMUP_S MEASURED_S`.
    pub(super) fn line(self) -> String {
        let which = if self.contended { "one" } else { "own" };
        format!("{} {which} {} {}", self.clients, self.warmup, self.seconds)
    }

    pub(super) fn within(self) -> Duration {
        Duration::from_secs(60 + u64::from(self.warmup + self.seconds))
    }
}

fn zookeeper(lab: &Lab, java: &Java, load: Load) -> Result<f64, Failure> {
    let result = (|| {
        let scratch = Scratch::new("zookeeper")?;
        let ips: Vec<String> = (1..=SERVERS).map(|node| lab.ip(node)).collect();
        let ensemble: String = (1..)
            .zip(&ips)
            .map(|(id, ip)| format!("server.{id}={ip}:2888:3888\n"))
            .collect();
        let mut servers = Vec::new();
        for node in 1..=SERVERS {
            let folder = scratch.folder(&node.to_string())?;
            let put = |name: &str, text: String| {
                let path = folder.join(name);
                std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
                Ok::<_, Failure>(path.to_string_lossy().into_owned())
            };
            put("myid", node.to_string())?;
            let config = put(
                "zoo.cfg",
                format!(
                    "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort=2181\nclientPortAddress={}\n\
                     admin.enableServer=false\nmaxClientCnxns=0\n{ensemble}",
                    folder.display(),
                    ips[node - 1]
                ),
            )?;
            let class = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
            servers.push(java.start(lab, SERVERS, node, &[class, &config])?);
        }
        let connect: Vec<String> = ips.iter().map(|ip| format!("{ip}:2181")).collect();
        let mut clients = Vec::new();
        for node in 1..=SERVERS {
            let name = format!("c{node}");
            let client = java.start(lab, SERVERS, node, &["CuratorLocks", &connect.join(","), &name])?;
            client.expect("connected", Duration::from_secs(60))?;
            clients.push(client);
        }
        let told = all_done(&mut clients, &load.line(), load.within())?;
        Ok(sum(&told, "rate"))
    })();
    lab.kill_all();
    result
}
