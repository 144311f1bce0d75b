//! The nodes of one process of a swarm, through the public API alone.
//!
//! ```text
//!  asks ──► Crowd ── start, leave ──► node, node, …     each with a task that reads its events
//!                                       └── events ──► Watch ── says at once when all here are in a complete view,
//!                                                            and when one no longer is
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use antiphon::{Cause, Cluster, ClusterEvent, ClusterKey, Event, Group, NodeView};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::words::{Ask, Counts, Say, Seen, Setup};
use crate::exit::{Exit, Failed};
use crate::hands::{self, say};
use crate::{node, usage};

/// The group that all join if they join one.
const GROUP: &str = "swarm";
/// Between two words on what was seen.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// What is remembered of views and sizes is bounded.
const MAX_REMEMBERED: usize = 10_000;

/// Runs the nodes of one process until it is told to leave.
pub(super) fn run() -> Result<Exit, Failed> {
    let setup: Setup = hands::setup("antiphon swarm")?;
    // A pid of the kernel's, so it fits.
    node::die_with(setup.die_with as i32);
    node::start_log();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(setup.threads)
        .enable_all()
        .build()
        .map_err(|error| Failed::cannot("start threads", &error))?;
    let asked = hands::asks();
    let result = runtime.block_on(Crowd::new(setup).live(asked));
    if let Err(failed) = &result {
        say(&Say::Failed {
            reason: failed.message.clone(),
        });
    }
    runtime.shutdown_background();
    result.map(|()| Exit::Success)
}

struct Crowd {
    setup: Setup,
    nodes: Vec<Cluster>,
    joiner: Option<Cluster>,
    /// Joiners so far, also those that left.
    joined: usize,
    watch: Arc<Watch>,
    /// What the process took before its first node.
    memory_before: u64,
    descriptors_before: u64,
}

impl Crowd {
    fn new(setup: Setup) -> Self {
        Self {
            watch: Arc::new(Watch::new(setup.all, setup.group)),
            setup,
            nodes: Vec::new(),
            joiner: None,
            joined: 0,
            memory_before: memory(),
            descriptors_before: descriptors(),
        }
    }

    async fn live(mut self, mut asked: mpsc::Receiver<Ask>) -> Result<(), Failed> {
        say(&Say::Ready);
        let watch = self.watch.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TELL_EVERY).await;
                watch.tell();
            }
        });
        // Without a conductor the swarm has no purpose.
        while let Some(ask) = asked.recv().await {
            match ask {
                Ask::Start => self.start_all().await?,
                Ask::Expect { members } => self.watch.expect(members),
                Ask::Count => {
                    let counts = self.count().await?;
                    self.watch.tell();
                    say(&Say::Counted { counts });
                }
                Ask::Join => self.join().await?,
                Ask::Part => {
                    if let Some(joiner) = self.joiner.take() {
                        leave(&self.watch, joiner).await;
                    }
                    say(&Say::Parted);
                }
                Ask::Leave => break,
            }
        }
        self.watch.leave();
        let mut leaving = JoinSet::new();
        for node in self.nodes.drain(..).chain(self.joiner.take()) {
            leaving.spawn(async move {
                // Bounded by the profile; that it is closed already is as good.
                let _ = node.leave().await;
            });
        }
        while leaving.join_next().await.is_some() {}
        say(&Say::Left);
        Ok(())
    }

    async fn start_all(&mut self) -> Result<(), Failed> {
        let mut starting = JoinSet::new();
        for index in 0..self.setup.nodes {
            let number = self.setup.first + index;
            let builder = self.builder(number, self.setup.own_seeds.get(index));
            self.watch.count_in(number);
            let (watch, group) = (self.watch.clone(), self.setup.group);
            starting.spawn(async move { start(builder, number, watch, group).await });
        }
        while let Some(started) = starting.join_next().await {
            // A task here ends early only with the runtime.
            let started = started.map_err(|error| Failed::run(error.to_string()))?;
            self.nodes.push(started?);
        }
        Ok(())
    }

    fn builder(&self, number: usize, bind: Option<&SocketAddr>) -> antiphon::Builder {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let builder = Cluster::builder(&self.setup.cluster)
            .name(format!("n{number}"))
            .bind(bind.unwrap_or(&any))
            .seeds(&self.setup.seeds)
            .membership(self.setup.membership)
            .transport(self.setup.transport)
            .profile(self.setup.profile.clone());
        match self.setup.key {
            Some(key) => builder.key(ClusterKey::from_bytes(key)),
            None => builder,
        }
    }

    /// One more node; its names go on behind those of all crowds.
    async fn join(&mut self) -> Result<(), Failed> {
        let number = self.setup.all + self.joined;
        self.joined += 1;
        let builder = self.builder(number, None);
        self.watch.count_in(number);
        let begun = Instant::now();
        let joiner = start(builder, number, self.watch.clone(), self.setup.group).await?;
        let mut events = joiner.events();
        let expected = self.watch.expected();
        loop {
            match events.next().await {
                Some(ClusterEvent::View(view)) if view.is_primary() && view.members.len() == expected => {
                    break;
                }
                Some(ClusterEvent::Refused { reason, fatal: true }) => return Err(Failed::run(reason)),
                Some(_) => {}
                None => return Err(Failed::run("the joiner has stopped")),
            }
        }
        say(&Say::Joined {
            ms: begun.elapsed().as_secs_f64() * 1000.0,
        });
        self.joiner = Some(joiner);
        Ok(())
    }

    async fn count(&self) -> Result<Counts, Failed> {
        let mut counts = Counts {
            descriptors: descriptors().saturating_sub(self.descriptors_before),
            memory_bytes: memory().saturating_sub(self.memory_before),
            cpu_s: usage::own_cpu().unwrap_or_default().as_secs_f64(),
            ..Counts::default()
        };
        for node in &self.nodes {
            let status = node
                .status()
                .await
                .map_err(|error| Failed::run(error.to_string()))?;
            let transport = status.transport;
            counts.bytes_sent += transport.bytes_sent;
            counts.bytes_received += transport.bytes_received;
            counts.frames_sent += transport.frames_sent;
            counts.frames_dropped += transport.frames_dropped;
            counts.most_connections = counts.most_connections.max(transport.connections);
        }
        Ok(counts)
    }
}

/// Starts a node and has its events read.
async fn start(
    builder: antiphon::Builder,
    number: usize,
    watch: Arc<Watch>,
    group: bool,
) -> Result<Cluster, Failed> {
    let failed = |error: antiphon::Error| Failed::run(error.to_string());
    let node = builder.start().await.map_err(failed)?;
    let mut events = node.events();
    let watched = watch.clone();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            watched.learn(number, &event);
        }
    });
    if group {
        let group = node.group(GROUP).start().await.map_err(failed)?;
        tokio::spawn(read(group, number, watch));
    }
    Ok(node)
}

/// Reads a group's events, so that nobody waits for this member.
async fn read(mut group: Group, number: usize, watch: Arc<Watch>) {
    while let Some(event) = group.next().await {
        match event {
            Event::View(view) => watch.learn_group(number, view.members.len()),
            Event::Suspended | Event::Resync { .. } => watch.learn_group(number, 0),
            Event::Refused { reason } => watch.refused(reason),
            _ => {}
        }
    }
}

/// One node of several leaves.
async fn leave(watch: &Watch, node: Cluster) {
    // Bounded by the profile; that it is closed already is as good.
    let _ = node.leave().await;
    watch.count_out(node.name());
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, Default)]
struct Stand {
    /// Members of the primary view it is in; 0 if it is in none.
    cluster: usize,
    group: usize,
}

/// What the nodes of this process reported.
#[derive(Debug)]
struct Watch {
    state: Mutex<State>,
    group: bool,
    /// Of the process before its first node.
    descriptors_before: u64,
}

#[derive(Debug, Default)]
struct State {
    expected: usize,
    stands: BTreeMap<usize, Stand>,
    /// What was said last.
    said_complete: bool,
    seen: Seen,
    told: Seen,
    /// Whether views still count: not when all leave.
    leaving: bool,
}

impl Watch {
    fn new(expected: usize, group: bool) -> Self {
        let state = State {
            expected,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            group,
            descriptors_before: descriptors(),
        }
    }

    /// A node is about to start.
    fn count_in(&self, number: usize) {
        self.lock().stands.insert(number, Stand::default());
    }

    /// A node has left.
    fn count_out(&self, name: &str) {
        let mut state = self.lock();
        if let Some(number) = name.strip_prefix('n').and_then(|number| number.parse().ok()) {
            state.stands.remove(&number);
        }
        self.judge(&mut state);
    }

    fn expect(&self, members: usize) {
        let mut state = self.lock();
        state.expected = members;
        self.judge(&mut state);
    }

    fn expected(&self) -> usize {
        self.lock().expected
    }

    /// What follows is said no more.
    fn leave(&self) {
        self.lock().leaving = true;
    }

    fn learn(&self, number: usize, event: &ClusterEvent) {
        let mut state = self.lock();
        match event {
            ClusterEvent::View(view) => {
                remember(&mut state, view);
                let members = if view.is_primary() { view.members.len() } else { 0 };
                if let Some(stand) = state.stands.get_mut(&number) {
                    stand.cluster = members;
                }
            }
            ClusterEvent::Incarnation(_) | ClusterEvent::Expelled { .. } => {
                if let Some(stand) = state.stands.get_mut(&number) {
                    *stand = Stand::default();
                }
            }
            ClusterEvent::Refused { reason, .. } => state.seen.refused = Some(reason.clone()),
            _ => return,
        }
        self.judge(&mut state);
    }

    fn learn_group(&self, number: usize, members: usize) {
        let mut state = self.lock();
        if let Some(stand) = state.stands.get_mut(&number) {
            stand.group = members;
        }
        self.judge(&mut state);
    }

    /// Why a node was refused, by the cluster or the group: told if not all come together.
    fn refused(&self, reason: String) {
        self.lock().seen.refused = Some(reason);
    }

    /// Says whether all are complete if that has changed.
    fn judge(&self, state: &mut State) {
        let expected = state.expected;
        let is_complete =
            |stand: &&Stand| stand.cluster == expected && (!self.group || stand.group == expected);
        let sizes = || state.stands.values().map(|stand| stand.cluster);
        let (largest, smallest) = (sizes().max().unwrap_or(0), sizes().min().unwrap_or(0));
        let complete = state.stands.values().filter(is_complete).count();
        (state.seen.complete, state.seen.largest, state.seen.smallest) = (complete, largest, smallest);
        let all = complete > 0 && complete == state.stands.len();
        if all != state.said_complete && !state.leaving {
            state.said_complete = all;
            say(&Say::Complete { complete: all });
        }
    }

    /// Tells what was seen if there is news.
    fn tell(&self) {
        let mut state = self.lock();
        let taken = descriptors().saturating_sub(self.descriptors_before);
        state.seen.most_descriptors = state.seen.most_descriptors.max(taken);
        if state.seen != state.told && !state.leaving {
            state.told = state.seen.clone();
            say(&Say::Seen {
                seen: state.seen.clone(),
            });
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(state: &mut State, view: &NodeView) {
    if state.leaving {
        return;
    }
    let seen = &mut state.seen;
    if view.is_primary() && !seen.views.contains(&view.number) && seen.views.len() < MAX_REMEMBERED {
        seen.views.push(view.number);
    }
    if view.is_primary() && !seen.sizes.contains(&view.members.len()) {
        seen.sizes.push(view.members.len());
    }
    for departure in &view.departed {
        let in_order = matches!(departure.cause, Cause::Left | Cause::Superseded { .. });
        let name = &departure.member.name;
        if !in_order && !seen.removed.contains(name) && seen.removed.len() < MAX_REMEMBERED {
            seen.removed.push(name.clone());
        }
    }
}

/// Files this process has open.
fn descriptors() -> u64 {
    let folder = Path::new("/proc/self/fd");
    // Newer kernels say how many there are as the folder's size; listing thousands takes milliseconds.
    match std::fs::metadata(folder) {
        Ok(metadata) if metadata.len() > 0 => metadata.len(),
        _ => std::fs::read_dir(folder).map_or(0, |files| files.count() as u64),
    }
}

fn memory() -> u64 {
    usage::memory_of(Path::new("/proc/self")).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn an_open_file_counts() {
        let before = descriptors();
        let files: Vec<_> = (0..50)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        assert!(descriptors() >= before + 40);
        drop(files);
    }
}
