//! The workers of a benchmark: started, told what to measure, heard.
//!
//! ```text
//!  one host (each worker a process)                several hosts (--join): one worker each
//!    conductor ─ Measure ─► every worker             senior's conductor ─ Go ─► group "bench-talk" ─► every conductor
//!        ▲                     │                     each: Measure ─► own worker ─ Done ─► group ─► every conductor
//!        └──────── Done ◄──────┘
//! ```
//! A worker that fails or ends fails the benchmark. Workers end with this program, however it ends.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use antiphon::Order;
use antiphon::config::{DEFAULT_PORT, Patience, address, read_key};
use serde::{Deserialize, Serialize};

use super::args::CrewArgs;
use super::worker::words::{Ask, Done, Say, Setup, Task};
use crate::exit::Failed;
use crate::fleet::free_addrs;
use crate::hands::Hand;
use crate::key;
use crate::progress::Progress;

/// For the nodes of this host to form their group.
const MUSTER_WITHIN: Duration = Duration::from_secs(60);
/// For those of other hosts to be started, and for their conductors to go on.
const OTHERS_WITHIN: Duration = Duration::from_secs(600);
/// For a measurement's result, beyond its time.
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at what changes during a measurement.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// For leaving in order.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);
/// Nodes that are named as seeds when all are on this host; more is refused.
const MAX_SEEDS: usize = 64;

/// What conductors of several hosts tell each other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "talk", rename_all = "snake_case")]
enum Talk {
    /// The senior's: measure this now.
    Go { task: Task },
    /// What a node measured.
    Done { result: Done },
}

/// The workers.
pub(super) struct Crew {
    workers: Vec<Worker>,
    said: Receiver<(usize, Option<Say>)>,
    members: usize,
    /// Among conductors of several hosts.
    joined: bool,
    told: VecDeque<String>,
    progress: Progress,
}

struct Worker {
    hand: Hand,
    rank: Option<usize>,
}

impl Crew {
    /// Starts the workers and waits until their group is complete.
    pub(super) fn muster(args: &CrewArgs, order: Order) -> Result<Self, Failed> {
        Self::muster_with(args, order, None)
    }

    /// The same, with another limit for members that do not read.
    pub(super) fn muster_with(
        args: &CrewArgs,
        order: Order,
        slow_after: Option<Patience>,
    ) -> Result<Self, Failed> {
        if let Some(path) = &args.key_file {
            read_key(path)?;
        }
        let joined = !args.join.is_empty();
        let setups = if joined {
            Self::one_of_many(args, order)?
        } else {
            Self::all_here(args, order)?
        };
        let members = if joined {
            usize::from(args.nodes.unwrap_or(1))
        } else {
            setups.len()
        };
        let (saying, said) = channel();
        let workers = setups
            .into_iter()
            .enumerate()
            .map(|(index, setup)| {
                let setup = Setup {
                    members,
                    slow_after,
                    ..setup
                };
                Worker::start(index, &setup, saying.clone())
            })
            .collect::<Result<Vec<_>, _>>()?;
        let mut crew = Self {
            workers,
            said,
            members,
            joined,
            told: VecDeque::new(),
            progress: Progress::new(),
        };
        let within = if joined { OTHERS_WITHIN } else { MUSTER_WITHIN };
        crew.progress.show(&format!("waiting for the group of {members}"));
        let deadline = Instant::now() + within;
        while crew.workers.iter().any(|worker| worker.rank.is_none()) {
            crew.hear(deadline, "the group to be complete")?;
        }
        Ok(crew)
    }

    /// All nodes on this host.
    fn all_here(args: &CrewArgs, order: Order) -> Result<Vec<Setup>, Failed> {
        let nodes = match (args.nodes.map(usize::from), args.netns.len()) {
            (Some(nodes), 0) => nodes,
            (None, 0) => 3,
            (None, places) => places,
            (Some(nodes), places) if nodes == places => nodes,
            (Some(nodes), places) => {
                return Err(Failed::usage(format!(
                    "--nodes says {nodes}, --netns has {places}: leave --nodes away"
                )));
            }
        };
        let addrs: Vec<SocketAddr> = if args.netns.is_empty() {
            free_addrs(nodes)?
        } else {
            args.netns
                .iter()
                .map(|place| SocketAddr::new(place.ip, DEFAULT_PORT))
                .collect()
        };
        let seeds: Vec<SocketAddr> = addrs.iter().copied().take(MAX_SEEDS).collect();
        let cluster = format!("bench-{}", std::process::id());
        // Told and not in a file, which a signal would leave behind.
        let key = args.keyed.then(key::fresh).transpose()?;
        Ok(addrs
            .iter()
            .enumerate()
            .map(|(index, bind)| Setup {
                cluster: cluster.clone(),
                name: format!("n{}", index + 1),
                bind: *bind,
                seeds: seeds.clone(),
                members: nodes,
                order,
                engine: args.engine,
                dissemination: args.dissemination,
                transport: args.transport,
                max_datagram: args.max_datagram,
                window_bytes: args.window_bytes,
                slow_after: None,
                profile: args.profile.clone(),
                insecure: args.key_file.is_none() && key.is_none() && !args.netns.is_empty(),
                key_file: args.key_file.clone(),
                key,
                threads: args.threads,
                netns: args.netns.get(index).map(|place| place.netns.clone()),
                talks: false,
                die_with: std::process::id(),
            })
            .collect())
    }

    /// The one node of this host among those of others.
    fn one_of_many(args: &CrewArgs, order: Order) -> Result<Vec<Setup>, Failed> {
        let bind = address("bind", args.bind.as_deref().unwrap_or_default(), DEFAULT_PORT)?;
        let seeds = args
            .join
            .iter()
            .map(|seed| address("join", seed, DEFAULT_PORT))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(vec![Setup {
            cluster: args.cluster.clone(),
            // Addresses are unique where names would have to be made up.
            name: bind.to_string(),
            bind,
            seeds,
            members: 0,
            order,
            engine: args.engine,
            dissemination: args.dissemination,
            transport: args.transport,
            max_datagram: args.max_datagram,
            window_bytes: args.window_bytes,
            slow_after: None,
            profile: args.profile.clone(),
            key_file: args.key_file.clone(),
            key: None,
            insecure: args.insecure,
            threads: args.threads,
            netns: None,
            talks: true,
            die_with: std::process::id(),
        }])
    }

    /// How many members the group has.
    pub(super) fn members(&self) -> usize {
        self.members
    }

    /// Whether it is spread over hosts, which have clocks of their own.
    pub(super) fn is_spread(&self) -> bool {
        self.joined
    }

    /// The processes of this host, by name.
    pub(super) fn processes(&self) -> impl Iterator<Item = (&str, u32)> {
        self.workers
            .iter()
            .map(|worker| (worker.hand.name.as_str(), worker.hand.process()))
    }

    /// The process on this host of the member of this rank.
    pub(super) fn process_of(&self, rank: usize) -> Option<u32> {
        let mut found = self.workers.iter().filter(|worker| worker.rank == Some(rank));
        found.next().map(|worker| worker.hand.process())
    }

    /// Has all nodes of this host measure what may change the group; `look` is called all the time.
    pub(super) fn watch(
        &mut self,
        task: &Task,
        label: &str,
        mut look: impl FnMut(Duration),
    ) -> Result<Vec<Done>, Failed> {
        for worker in &mut self.workers {
            worker.hand.ask(&Ask::Measure { task: task.clone() })?;
        }
        let began = Instant::now();
        let deadline = began + Duration::from_millis(task.whole_ms()) + DONE_WITHIN;
        let mut results = Vec::new();
        while results.len() < self.workers.len() {
            look(began.elapsed());
            match self.heard_within(LOOK_EVERY)? {
                Some(Heard::Done(result)) => results.push(result),
                Some(Heard::Progress(received)) => {
                    let seconds = began.elapsed().as_secs();
                    self.progress
                        .show(&format!("{label}, {seconds} s: {received} msg/s at a member"));
                }
                Some(Heard::Other) => {}
                None if Instant::now() > deadline => {
                    return Err(Failed::run(format!("waited in vain for {label}")));
                }
                None => {}
            }
        }
        results.sort_by_key(|result| result.rank);
        Ok(results)
    }

    /// Has all nodes measure; the results by seniority.
    pub(super) fn measure(&mut self, task: &Task, label: &str) -> Result<Vec<Done>, Failed> {
        let mut results = if self.joined {
            self.measure_together(task, label)?
        } else {
            self.measure_here(task, label)?
        };
        results.sort_by_key(|result| result.rank);
        if let Some(result) = results.iter().find(|result| result.views > 0) {
            return Err(Failed::run(format!(
                "{} views came in the middle of {label} at {}: nodes were lost, so the figures would mean nothing",
                result.views, result.name
            )));
        }
        Ok(results)
    }

    fn measure_here(&mut self, task: &Task, label: &str) -> Result<Vec<Done>, Failed> {
        for worker in &mut self.workers {
            worker.hand.ask(&Ask::Measure { task: task.clone() })?;
        }
        let deadline = Instant::now() + Duration::from_millis(task.whole_ms()) + DONE_WITHIN;
        let mut results = Vec::new();
        let mut second = Second::default();
        while results.len() < self.workers.len() {
            match self.hear(deadline, label)? {
                Heard::Done(result) => results.push(result),
                Heard::Progress(received) => {
                    if let Some(sum) = second.add(received, self.workers.len()) {
                        self.progress.show(&format!(
                            "{label}: {:.0} msg/s per member",
                            sum as f64 / self.workers.len() as f64
                        ));
                    }
                }
                Heard::Other => {}
            }
        }
        Ok(results)
    }

    fn measure_together(&mut self, task: &Task, label: &str) -> Result<Vec<Done>, Failed> {
        if self.workers.iter().any(|worker| worker.rank == Some(0)) {
            self.tell(&Talk::Go { task: task.clone() })?;
        }
        let task = loop {
            let waited_for = "the senior node's word to begin; were all started with the same options?";
            if let Talk::Go { task } = self.next_told(Instant::now() + OTHERS_WITHIN, waited_for)? {
                break task;
            }
        };
        let own = self.measure_here(&task, label)?;
        for mut result in own {
            thin(&mut result.latencies);
            self.tell(&Talk::Done { result })?;
        }
        let deadline = Instant::now() + DONE_WITHIN;
        let mut results = Vec::new();
        while results.len() < self.members {
            if let Talk::Done { result } = self.next_told(deadline, "the figures of the other nodes")? {
                results.push(result);
            }
        }
        Ok(results)
    }

    fn tell(&mut self, talk: &Talk) -> Result<(), Failed> {
        // Plain data always has a JSON form.
        let text = serde_json::to_string(talk).unwrap_or_default();
        self.workers
            .iter_mut()
            .try_for_each(|worker| worker.hand.ask(&Ask::Tell { text: text.clone() }))
    }

    fn next_told(&mut self, deadline: Instant, what: &str) -> Result<Talk, Failed> {
        loop {
            while let Some(text) = self.told.pop_front() {
                // Other messages in that group do not come from this program.
                if let Ok(talk) = serde_json::from_str(&text) {
                    return Ok(talk);
                }
            }
            self.hear(deadline, what)?;
        }
    }

    /// The next line of a worker.
    fn hear(&mut self, deadline: Instant, what: &str) -> Result<Heard, Failed> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.heard_within(left)?
            .ok_or_else(|| Failed::run(format!("waited in vain for {what}")))
    }

    /// The next line of a worker, if one comes in time.
    fn heard_within(&mut self, within: Duration) -> Result<Option<Heard>, Failed> {
        let (index, say) = match self.said.recv_timeout(within) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(Failed::run("all nodes have ended")),
        };
        let worker = &mut self.workers[index];
        match say {
            Some(Say::Complete { rank }) => worker.rank = Some(rank),
            Some(Say::Done { result }) => return Ok(Some(Heard::Done(result))),
            Some(Say::Progress { received }) => return Ok(Some(Heard::Progress(received))),
            Some(Say::Told { text, .. }) => self.told.push_back(text),
            Some(Say::Failed { reason }) => {
                return Err(Failed::run(format!("node {}: {reason}", worker.hand.name)));
            }
            None => return Err(Failed::run(format!("node {} has ended", worker.hand.name))),
        }
        Ok(Some(Heard::Other))
    }

    /// Shows a waiting person what goes on.
    pub(super) fn show(&mut self, text: &str) {
        self.progress.show(text);
    }

    /// Has all workers leave in order; kills the workers that do not.
    pub(super) fn disband(mut self) {
        self.progress.clear();
        for worker in &mut self.workers {
            // It may be gone, which is what is wanted.
            let _ = worker.hand.ask(&Ask::Leave);
        }
        let deadline = Instant::now() + LEAVE_WITHIN;
        for worker in &mut self.workers {
            worker.hand.wait_until(deadline);
        }
    }
}

enum Heard {
    Done(Done),
    Progress(u64),
    Other,
}

impl Worker {
    /// Call it from the main thread, as [`Hand::start`].
    fn start(index: usize, setup: &Setup, saying: Sender<(usize, Option<Say>)>) -> Result<Self, Failed> {
        let hear = move |say| {
            // It fails only if the benchmark is over.
            let _ = saying.send((index, say));
        };
        Ok(Self {
            hand: Hand::start(&setup.name, &["bench", "worker"], setup, hear)?,
            rank: None,
        })
    }
}

/// To seven significant bits, so that the latencies of a node fit into one message of the group.
fn thin(latencies: &mut Vec<(u64, u64)>) {
    let mut thinned: Vec<(u64, u64)> = Vec::new();
    for (value, count) in latencies.drain(..) {
        let low_bits = (u64::BITS - value.leading_zeros()).saturating_sub(7);
        let value = (value >> low_bits) << low_bits;
        match thinned.last_mut() {
            Some((last, counted)) if *last == value => *counted += count,
            _ => thinned.push((value, count)),
        }
    }
    *latencies = thinned;
}

/// Adds up what nodes say about the same second.
#[derive(Default)]
struct Second {
    sum: u64,
    heard: usize,
}

impl Second {
    fn add(&mut self, received: u64, of: usize) -> Option<u64> {
        self.sum += received;
        self.heard += 1;
        if self.heard < of {
            return None;
        }
        Some(std::mem::take(self).sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinned_latencies_keep_their_number_and_nearly_their_values() {
        let mut latencies = vec![(1_000, 1), (1_000_000, 2), (1_000_100, 3), (2_000_000, 4)];
        thin(&mut latencies);
        assert_eq!(latencies.len(), 3);
        assert_eq!(latencies.iter().map(|(_, count)| count).sum::<u64>(), 10);
        assert!(
            latencies
                .iter()
                .zip([1_000, 1_000_000, 2_000_000])
                .all(|((value, _), real)| *value * 64 > real * 63)
        );
    }
}
