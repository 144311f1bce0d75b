//! Your code and real clusters on virtual time, in an ordinary test (feature `testkit`).
//!
//! ```
//! use antiphon::testkit::{RunError, World};
//! use antiphon::Event;
//!
//! # fn main() -> Result<(), RunError> {
//! World::new(7, ["a", "b", "c"]).run(async |world| {
//!     let a = world.node("a")?.start().await?; // an `antiphon::Builder`, and an `antiphon::Cluster`
//!     let b = world.node("b")?.start().await?;
//!     let _c = world.node("c")?.start().await?;
//!     let mut reader = b.group("jobs").join().await?;
//!     let writer = a.group("jobs").join().await?;
//!     world.partition(["a"], ["b", "c"])?;
//!     world.sleep_ms(10_000).await;
//!     assert!(!a.view().unwrap().is_primary() && b.view().unwrap().is_primary());
//!     world.heal();
//!     // …
//! #   let (_, _) = (&mut reader, writer);
//!     Ok(())
//! })
//! # }
//! ```
//! One seed decides everything. A test that fails says its seed, and fails again with it; a loop over seeds
//! finds the schedule that breaks your code. Ten seconds of a cluster's life take some milliseconds.
//!
//! ```text
//!   your code ─► Cluster, Group ─► driver ─► core        what ships
//!   ─────────────────────────────────┼──────────────────────────────
//!   network of memory and weather ◄──┤
//!   clock of the paused runtime   ◄──┤ Host                replaced
//!   chance from the seed          ◄──┘
//! ```
//! # What is real
//! Handles, driver, inboxes, credit and back-pressure, and the core: the code that ships. A node is made by
//! the same [`Builder`]; you change its settings as in a product (profile, policy, weight, key, engine …).
//!
//! # What is replaced
//! - **Time**: [`World::run`] has a runtime of one thread. Its clock stands still while anything runs, and
//!   jumps to the next timer when nothing runs. `tokio::time` in your code follows it; `std::time` does not.
//!   It moves in whole milliseconds.
//! - **The network**: in memory, 1 to 2 ms in each direction unless changed, and in the order sent. You
//!   decide what takes longer, is lost or cut: [`World::partition`], [`World::cut`], [`World::slow`],
//!   [`World::lossy`].
//! - **Processes**: [`World::kill`] ends one as the system does, [`World::power_off`] without a word;
//!   [`World::pause`] stops one. What your code does on a node belongs into [`World::spawn`], which ends and
//!   stops with it. The scene of [`World::run`] itself, and all that `tokio::spawn` spawns, is the tester,
//!   and runs on.
//! - **Chance**: incarnations, jitter, latencies and losses come from the seed.
//!
//! # What is not simulated
//! - TCP and UDP themselves: queues of kernels, their timeouts, what a full one drops; bandwidth.
//! - Several addresses of a node, multicast, discovery by names, files and locators, a witness: a node that
//!   asks for them is refused with [`Error::Config`](crate::Error::Config).
//! - Disks, other processes, other threads. A test that waits for those ([`tokio::task::spawn_blocking`],
//!   sockets, files, `std::thread`) does not repeat, and time may jump meanwhile.
//! - The guarantees are not checked here; `antiphon-sim` does that with far worse faults. Here your code is
//!   under test.
//!
//! # Limits
//! - [`MAX_NODES`] names in a world. Latencies of [`MAX_LATENCY`] at most.
//! - A run ends with [`RunError::Stuck`] after [`World::limit`] of virtual time, 5 minutes unless set, and
//!   says what each node waits for. A task that never waits stops time, so nothing ends it.
//! - The log holds the last [`MAX_LOG`] lines.
//! - A run repeats if your code does: no other threads, no `HashMap` with an order that matters, and
//!   `biased;` in each `tokio::select!`, which otherwise draws its order from the system.

#[cfg(feature = "blocks")]
mod check;
mod error;
mod ground;
mod machine;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_net::memory::Path;
pub use antiphon_net::memory::{MAX_LATENCY, SENT_AGAIN_AFTER};
use tokio::task::JoinHandle;

use crate::host::Host;
use crate::{Builder, Cluster};
#[cfg(feature = "blocks")]
pub use check::{CheckError, check, check_cluster, check_runs};
pub use error::{RunError, SceneError, UnknownNode};
use ground::Ground;
pub use ground::MAX_LOG;
pub(crate) use machine::Machine;

/// Names of nodes in a world: their addresses are on one loopback network.
pub const MAX_NODES: usize = 250;
/// How long a run may take in virtual time, unless set.
const LIMIT: Duration = Duration::from_secs(300);

/// Nodes, the network between them, and their time. A cheap handle: clones are the same world.
#[derive(Debug, Clone)]
pub struct World {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ground: Arc<Ground>,
    founders: Vec<String>,
    machines: Mutex<BTreeMap<String, Arc<Machine>>>,
    limit: Mutex<Duration>,
    ran: AtomicBool,
}

impl World {
    /// A world in which a majority of these nodes founds a cluster: they are the seeds of each. None of them
    /// runs yet. Nodes with other names join the cluster.
    pub fn new(seed: u64, founders: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let founders: Vec<String> = founders.into_iter().map(Into::into).collect();
        let world = Self {
            shared: Arc::new(Shared {
                ground: Arc::new(Ground::new(seed)),
                founders: founders.clone(),
                machines: Mutex::default(),
                limit: Mutex::new(LIMIT),
                ran: AtomicBool::new(false),
            }),
        };
        for name in &founders {
            world.declare(name);
        }
        world
    }

    /// After how much virtual time a run counts as stuck; 5 minutes unless set.
    pub fn limit(self, limit: Duration) -> Self {
        *self.shared.limit.lock().unwrap_or_else(PoisonError::into_inner) = limit;
        self
    }

    /// Runs this to its end, on a runtime of its own, in this thread. Then all nodes are killed, and handles
    /// that are left report [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Errors
    /// [`RunError`], which says the seed: what `scene` returns, [`RunError::Stuck`]; or one that says why it
    /// was not run.
    ///
    /// # Panics
    /// If `scene` does, or a node, or a task of [`World::spawn`]. The seed is written to standard error.
    pub fn run<T>(&self, scene: impl AsyncFnOnce(World) -> Result<T, SceneError>) -> Result<T, RunError> {
        let ground = &self.shared.ground;
        if self.shared.founders.len() > MAX_NODES {
            return Err(RunError::TooMany);
        }
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(RunError::Nested);
        }
        if self.shared.ran.swap(true, Ordering::AcqRel) {
            return Err(RunError::Again);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .map_err(RunError::Runtime)?;
        let _told = TellSeed(ground.seed);
        runtime.block_on(async {
            ground.begin();
            let weather = ground.weather.clone();
            let carrier = tokio::spawn(async move { weather.carry().await });
            let limit = *self.shared.limit.lock().unwrap_or_else(PoisonError::into_inner);
            // It keeps its handles while the nodes are asked what they wait for.
            let mut scene = pin!(scene(self.clone()));
            let ended = tokio::select! {
                biased;
                panic = ground.panicked() => std::panic::resume_unwind(panic),
                ended = tokio::time::timeout(limit, &mut scene) => ended,
            };
            let result = match ended {
                Ok(Ok(done)) => Ok(done),
                Ok(Err(source)) => Err(RunError::Scene {
                    seed: ground.seed,
                    source,
                }),
                Err(_) => Err(self.stuck(limit).await),
            };
            for machine in self.machines() {
                machine.end();
            }
            carrier.abort();
            result
        })
    }

    /// A node of this name, to be started: with its address, and the world's founders as its seeds. Change
    /// what you like, except for its name, address and network. Once it has stopped it can be started again,
    /// as a new incarnation.
    ///
    /// A name that is new joins the others: it is no founder.
    ///
    /// # Errors
    /// [`UnknownNode`]: a name that is new, and the world has [`MAX_NODES`] already.
    pub fn node(&self, name: &str) -> Result<Builder, UnknownNode> {
        let machine = self.declare(name).ok_or_else(|| self.unknown(name))?;
        let seeds = self.shared.founders.iter().map(|name| self.machine(name));
        let seeds = seeds.map(|machine| machine.map(|machine| machine.addr));
        let seeds = seeds.collect::<Result<Vec<SocketAddr>, UnknownNode>>()?;
        Ok(Cluster::builder("world")
            .name(name)
            .bind(machine.addr)
            .seeds(seeds)
            .memory(self.shared.ground.weather.network())
            .host(Host::simulated(machine)))
    }

    /// Runs a task on a node: it stands still while the node is paused, and is dropped when the node is
    /// killed. `None` then.
    ///
    /// # Errors
    /// [`UnknownNode`].
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<JoinHandle<Option<T>>, UnknownNode> {
        Ok(self.machine(name)?.spawn(task))
    }

    /// Cuts both directions between each node of the one list and each of the other. Other cuts stay.
    ///
    /// # Errors
    /// [`UnknownNode`]: nothing has changed.
    pub fn partition<'a>(
        &self,
        one: impl IntoIterator<Item = &'a str>,
        other: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), UnknownNode> {
        let (one, other): (Vec<&str>, Vec<&str>) = (one.into_iter().collect(), other.into_iter().collect());
        self.each(&one, &other, "cut", |path| path.cut = true)?;
        self.each(&other, &one, "cut", |path| path.cut = true)
    }

    /// Cuts the direction from each of the first to each of the second.
    ///
    /// # Errors
    /// [`UnknownNode`]: nothing has changed.
    pub fn cut<'a>(
        &self,
        from: impl IntoIterator<Item = &'a str>,
        to: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), UnknownNode> {
        let (from, to): (Vec<&str>, Vec<&str>) = (from.into_iter().collect(), to.into_iter().collect());
        self.each(&from, &to, "cut", |path| path.cut = true)
    }

    /// Frames from each of the first to each of the second take so long, each its own time; in whole
    /// milliseconds from 1 to [`MAX_LATENCY`], rounded.
    ///
    /// # Errors
    /// [`UnknownNode`]: nothing has changed.
    pub fn slow<'a>(
        &self,
        from: impl IntoIterator<Item = &'a str>,
        to: impl IntoIterator<Item = &'a str>,
        latency: RangeInclusive<Duration>,
    ) -> Result<(), UnknownNode> {
        let (from, to): (Vec<&str>, Vec<&str>) = (from.into_iter().collect(), to.into_iter().collect());
        let what = format!("takes {latency:?}");
        self.each(&from, &to, &what, |path| path.latency = latency.clone())
    }

    /// This part of the frames from each of the first to each of the second is lost, from 0.0 to 1.0; what is
    /// outside counts as the nearest of these.
    ///
    /// # Errors
    /// [`UnknownNode`]: nothing has changed.
    pub fn lossy<'a>(
        &self,
        from: impl IntoIterator<Item = &'a str>,
        to: impl IntoIterator<Item = &'a str>,
        loss: f64,
    ) -> Result<(), UnknownNode> {
        let (from, to): (Vec<&str>, Vec<&str>) = (from.into_iter().collect(), to.into_iter().collect());
        self.each(&from, &to, &format!("loses {loss}"), |path| path.loss = loss)
    }

    /// Every path is as at first: nothing cut, slow or lossy.
    pub fn heal(&self) {
        self.shared.ground.log("all paths work");
        self.shared.ground.weather.clear();
    }

    /// Ends the node's process as the system does when it is killed: its tasks are dropped, its connections
    /// end, so that the others can prove its death. Its handles report
    /// [`Error::Closed`](crate::Error::Closed) at once. Nothing happens if it does not run.
    ///
    /// # Errors
    /// [`UnknownNode`].
    pub fn kill(&self, name: &str) -> Result<(), UnknownNode> {
        self.machine(name)?.kill();
        Ok(())
    }

    /// The same by a loss of power: nothing tells the others. They find out by silence, and cannot prove the
    /// death. The host is silent until the node is started again.
    ///
    /// # Errors
    /// [`UnknownNode`].
    pub fn power_off(&self, name: &str) -> Result<(), UnknownNode> {
        self.machine(name)?.power_off();
        Ok(())
    }

    /// Stops the node and its tasks for this long, as a debugger, a host that sleeps, or one without
    /// processor time does. What arrives meanwhile waits, up to what its queues take. A second call sets the
    /// end anew, if that is later.
    ///
    /// # Errors
    /// [`UnknownNode`].
    pub fn pause(&self, name: &str, length: Duration) -> Result<(), UnknownNode> {
        self.machine(name)?.pause(length);
        Ok(())
    }

    /// Virtual time since the run began.
    pub fn now(&self) -> Duration {
        self.shared.ground.now()
    }

    /// Lets this much time pass: `tokio::time::sleep`.
    pub async fn sleep_ms(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// Waits until this is so, and looks again every millisecond of virtual time: without end, if it never
    /// is, so that the run ends as stuck.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            self.sleep_ms(1).await;
        }
    }

    /// A number from the seed, for choices of your own.
    pub fn draw(&self) -> u64 {
        self.shared.ground.weather.draw()
    }

    /// Writes a line of your own into the log.
    pub fn log(&self, line: impl AsRef<str>) {
        self.shared.ground.log(line.as_ref());
    }

    /// What happened so far, one line each with its time: faults, the events of all nodes, your own lines.
    /// The last [`MAX_LOG`] lines.
    pub fn lines(&self) -> Vec<String> {
        self.shared.ground.lines()
    }

    /// A digest of everything that has happened so far: each frame that arrived or was lost, byte by byte,
    /// with its time. If two runs differ in a frame or in its time, their digests differ, but for one chance
    /// in 2⁶⁴.
    pub fn fingerprint(&self) -> u64 {
        self.shared.ground.weather.fingerprint()
    }

    fn each(
        &self,
        from: &[&str],
        to: &[&str],
        what: &str,
        change: impl Fn(&mut Path),
    ) -> Result<(), UnknownNode> {
        let addrs = |names: &[&str]| -> Result<Vec<SocketAddr>, UnknownNode> {
            let addr = |name: &&str| self.machine(name).map(|machine| machine.addr);
            names.iter().map(addr).collect()
        };
        let (froms, tos) = (addrs(from)?, addrs(to)?);
        self.shared.ground.log(&format!("{from:?} to {to:?}: {what}"));
        for (from, to) in froms.iter().flat_map(|from| tos.iter().map(move |to| (from, to))) {
            if from != to {
                self.shared.ground.weather.change(*from, *to, &change);
            }
        }
        Ok(())
    }

    /// The machine of this name, made if there is room for it.
    fn declare(&self, name: &str) -> Option<Arc<Machine>> {
        let mut machines = self.lock();
        if let Some(machine) = machines.get(name) {
            return Some(machine.clone());
        }
        let number = u8::try_from(machines.len() + 1).ok()?;
        if machines.len() >= MAX_NODES {
            return None;
        }
        let addr = SocketAddr::from(([127, 0, 0, number], 7400));
        let machine = Arc::new(Machine::new(name, addr, self.shared.ground.clone()));
        machines.insert(name.to_owned(), machine.clone());
        Some(machine)
    }

    fn machine(&self, name: &str) -> Result<Arc<Machine>, UnknownNode> {
        let machine = self.lock().get(name).cloned();
        machine.ok_or_else(|| self.unknown(name))
    }

    fn machines(&self) -> Vec<Arc<Machine>> {
        self.lock().values().cloned().collect()
    }

    fn unknown(&self, name: &str) -> UnknownNode {
        UnknownNode {
            name: name.to_owned(),
            known: self.lock().keys().cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Machine>>> {
        self.shared
            .machines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn stuck(&self, limit: Duration) -> RunError {
        let mut waits = Vec::new();
        for machine in self.machines() {
            waits.push((machine.name.clone(), machine.waits_for().await));
        }
        let mut last = self.lines();
        last.drain(..last.len().saturating_sub(error::LAST_LINES));
        RunError::Stuck {
            seed: self.shared.ground.seed,
            limit,
            waits,
            last,
        }
    }
}

/// Says the seed of a run that panics.
struct TellSeed(u64);

impl Drop for TellSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("antiphon::testkit: this was a run of seed {}", self.0);
        }
    }
}
