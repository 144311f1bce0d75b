//! `antiphon bench worker`: one node that sends and counts as it is told, through the public API alone.
//!
//! ```text
//!  conductor ── stdin: Setup, then Ask… ──► worker ── Cluster, Group "bench" ──► other workers
//!            ◄──────── stdout: Say… ───────   │
//!                                             └── Group "bench-talk": conductors of several hosts among themselves
//! ```
//! - [`words`]: the lines; [`load`]: the loops of throughput; [`pace`]: those of latency.
//!
//! A worker ends with its conductor: when stdin ends, or, if the conductor is killed, by a signal of the
//! kernel. If a view comes in the middle of a measurement, the worker counts it, and the conductor throws the
//! measurement away.

mod load;
mod pace;
pub(super) mod words;

use std::time::Duration;

use antiphon::Dissemination;
use antiphon::{Cluster, ClusterKey, Event, Group};
use tokio::sync::mpsc;

use crate::exit::{Exit, Failed};
use crate::hands::{self, say};
use crate::node;
use words::{Ask, Datagrams, Say, Setup, Stop, Task};

/// Threads of a node unless told otherwise: it runs with its load on one, as two cores and several nodes want
/// it.
pub(super) const THREADS: u8 = 1;
/// The group that is measured.
const GROUP: &str = "bench";
/// The group in which conductors of several hosts agree on what is measured.
const TALK: &str = "bench-talk";

/// Runs a worker until it is told to leave.
pub(super) fn run() -> Result<Exit, Failed> {
    let setup: Setup = hands::setup("antiphon bench")?;
    // A pid of the kernel's, so it fits.
    node::die_with(setup.die_with as i32);
    node::start_log();
    if let Some(netns) = &setup.netns {
        enter(netns)?;
    }
    let mut runtime = match setup.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        threads => {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            runtime.worker_threads(threads.into());
            runtime
        }
    };
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| Failed::cannot("start threads", &error))?;
    let asked = hands::asks();
    // A task like the node's: what a runtime blocks on itself is woken by way of the system, also from its
    // own thread.
    let lived = runtime.spawn(live(setup, asked));
    let result = match runtime.block_on(lived) {
        Ok(result) => result,
        Err(error) => Err(Failed::run(format!("the measurement ended by itself: {error}"))),
    };
    if let Err(failed) = &result {
        say(&Say::Failed {
            reason: failed.message.clone(),
        });
    }
    runtime.shutdown_background();
    result
}

/// Enters a network namespace, before there are other threads.
#[cfg(target_os = "linux")]
fn enter(netns: &str) -> Result<(), Failed> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd as _;
    let failed = |error: std::io::Error| {
        Failed::run(format!(
            "cannot enter network namespace {netns}: {error} (root is needed; `ip netns add` makes one)"
        ))
    };
    let file = std::fs::File::open(format!("/run/netns/{netns}")).map_err(failed)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| failed(error.into()))
}

#[cfg(not(target_os = "linux"))]
fn enter(netns: &str) -> Result<(), Failed> {
    Err(Failed::usage(format!(
        "network namespace {netns}: there are none on this system"
    )))
}

async fn live(setup: Setup, mut asked: mpsc::Receiver<Ask>) -> Result<Exit, Failed> {
    let cluster = join(&setup).await?;
    let failed = |error: antiphon::Error| Failed::run(error.to_string());
    let mut builder = cluster
        .group(GROUP)
        .order(setup.order)
        .engine(setup.engine)
        .dissemination(setup.dissemination);
    if let Some(window_bytes) = setup.window_bytes {
        builder = builder.window_bytes(window_bytes);
    }
    if let Some(slow_after) = setup.slow_after {
        builder = builder.slow_after(slow_after.0);
    }
    let mut talk = match setup.talks {
        true => Some(cluster.group(TALK).join().await.map_err(failed)?),
        false => None,
    };
    let mut worker = Worker {
        group: builder.join().await.map_err(failed)?,
        setup,
        rank: None,
    };
    loop {
        tokio::select! {
            ask = asked.recv() => match ask {
                Some(Ask::Measure { task }) => {
                    let before = cluster.status().await.map_err(failed)?.transport;
                    let mut result = worker.measure(&task).await?;
                    let after = cluster.status().await.map_err(failed)?.transport;
                    result.datagrams = Datagrams::between(&before, &after);
                    say(&Say::Done { result });
                }
                Some(Ask::Tell { text }) => {
                    if let Some(talk) = &talk {
                        talk.send(text).await.map_err(|error| Failed::run(error.to_string()))?;
                    }
                }
                Some(Ask::Leave) | None => break,
            },
            event = worker.group.next() => worker.learn(event)?,
            Some(event) = heard(&mut talk) => {
                if let Event::Message(message) = event {
                    say(&Say::Told {
                        from: message.sender.name.to_string(),
                        text: String::from_utf8_lossy(&message.payload).into_owned(),
                    });
                }
            }
        }
    }
    // Bounded by the profile; that it is closed already is as good.
    let _ = cluster.leave().await;
    Ok(Exit::Success)
}

/// The next event of a group that there may be.
async fn heard(talk: &mut Option<Group>) -> Option<Event> {
    match talk {
        Some(talk) => talk.next().await,
        None => None,
    }
}

async fn join(setup: &Setup) -> Result<Cluster, Failed> {
    let mut builder = Cluster::builder(&setup.cluster)
        .name(&setup.name)
        .bind(setup.bind)
        .seeds(&setup.seeds)
        .transport(setup.transport)
        .profile(setup.profile.clone());
    if let Some(bytes) = setup.max_datagram {
        builder = builder.max_datagram(bytes);
    }
    if setup.dissemination == Dissemination::Multicast {
        builder = builder.multicast(antiphon::Multicast::of_cluster(&setup.cluster));
    }
    if let Some(path) = &setup.key_file {
        builder = builder.key(antiphon::config::read_key(path)?.key);
    }
    if let Some(key) = setup.key {
        builder = builder.key(ClusterKey::from_bytes(key));
    }
    if setup.insecure {
        builder = builder.insecure();
    }
    builder
        .join()
        .await
        .map_err(|error| Failed::run(error.to_string()))
}

struct Worker {
    setup: Setup,
    group: Group,
    /// This node's place in the group, once it is complete.
    rank: Option<usize>,
}

impl Worker {
    /// Between measurements: views are told, late messages of the last measurement thrown away.
    fn learn(&mut self, event: Option<Event>) -> Result<(), Failed> {
        match event {
            Some(Event::View(view)) => {
                self.rank = view.rank().filter(|_| view.members.len() == self.setup.members);
                if let Some(rank) = self.rank {
                    say(&Say::Complete { rank });
                }
            }
            Some(Event::Refused { reason }) => return Err(Failed::run(reason)),
            Some(_) => {}
            None => return Err(Failed::run("the node has stopped")),
        }
        Ok(())
    }

    async fn measure(&mut self, task: &Task) -> Result<words::Done, Failed> {
        let rank = self
            .rank
            .ok_or_else(|| Failed::run("asked to measure before the group was complete"))?;
        let progress = |received| say(&Say::Progress { received });
        let mut done = match *task {
            Task::Multicast {
                senders,
                size,
                safe,
                warmup_ms,
                measured_ms,
            } => {
                let load = load::Load {
                    sends: rank < senders,
                    reads: true,
                    size,
                    safe,
                    warmup: Duration::from_millis(warmup_ms),
                    measured: Duration::from_millis(measured_ms),
                };
                load::run(&mut self.group, &load, progress).await?
            }
            Task::Slow {
                size,
                stops,
                how,
                warmup_ms,
                measured_ms,
            } => {
                let load = load::Load {
                    sends: true,
                    reads: how != Stop::Reader || rank != stops,
                    size,
                    safe: false,
                    warmup: Duration::from_millis(warmup_ms),
                    measured: Duration::from_millis(measured_ms),
                };
                load::run(&mut self.group, &load, progress).await?
            }
            Task::Latency {
                way,
                senders,
                size,
                safe,
                bulk,
                interval_ns,
                warmup_ms,
                measured_ms,
            } => {
                let pace = pace::Pace {
                    way,
                    rank,
                    members: self.setup.members,
                    senders,
                    size: size.max(pace::MIN_SIZE),
                    safe,
                    bulk,
                    interval: Duration::from_nanos(interval_ns.max(1)),
                    warmup: Duration::from_millis(warmup_ms),
                    measured: Duration::from_millis(measured_ms),
                };
                pace::run(&mut self.group, &pace, progress).await?
            }
        };
        done.rank = rank;
        done.name.clone_from(&self.setup.name);
        Ok(done)
    }
}
