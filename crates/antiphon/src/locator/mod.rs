//! A locator as a server: a port, the state machine of the core, and a file if wanted.
//!
//! ```text
//!   transport ── frames ──► task ── Locator of the core ── answers ──► transport
//!                            │ ▲
//!            file, if wanted ▼ │ read once, at the start
//! ```
//! The page of `antiphon-core`'s module `locator` tells what a locator is for, what it answers and what
//! happens when it dies. This page tells of the file. Its only use: after the locator was started again,
//! newcomers find the cluster a few seconds earlier. The file is replaced as a whole, so that a crash leaves
//! the old or the new one. A damaged file is set aside with a warning, and the locator starts without knowing
//! any node.

mod state;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use antiphon_core::{ClusterKey, Locator as Core, Output, Time};
use antiphon_net::{Input, Inputs, Transport};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

pub use antiphon_core::Located;

use crate::cluster::{Bound, Builder};
use crate::lacks::Lacks;
use crate::{Cluster, Error};

/// The file is written this long after something changed.
const SAVE_AFTER: Duration = Duration::from_secs(2);
/// And at least this often while nodes are heard, for the ages in it.
const SAVE_EVERY: Duration = Duration::from_secs(60);
/// A disk that takes longer hangs: that is said, and at its end a locator waits no longer.
const SAVE_WITHIN: Duration = Duration::from_secs(5);
/// Trouble with the file is said again after this long.
const REPEAT: Duration = Duration::from_secs(60);
/// How long answers that are queued at the end may take to leave.
const LINGER: Duration = Duration::from_millis(500);
/// Events that wait for a reader; what comes when there are more is not told.
const MAX_EVENTS: usize = 1024;
/// Inputs handled at a time.
const INPUTS_PER_TURN: usize = 256;
/// Why a file is not written.
const HANGS: &str = "its disk does not answer";

/// A locator's settings. From [`Locator::builder`].
#[derive(Debug, Clone)]
#[must_use = "nothing happens until `start`"]
pub struct LocatorBuilder {
    cluster: String,
    base: Builder,
    binds: Vec<String>,
    advertises: Vec<String>,
    key: Option<ClusterKey>,
    state: Option<PathBuf>,
}

impl LocatorBuilder {
    /// The address and port to listen on, as of a node. `127.0.0.1:7410` unless given; again for more.
    pub fn bind(mut self, addr: impl ToString) -> Self {
        self.binds.push(addr.to_string());
        self
    }

    /// Where nodes reach it, if that differs.
    pub fn advertise(mut self, addr: impl ToString) -> Self {
        self.advertises.push(addr.to_string());
        self
    }

    /// The cluster's secret.
    pub fn key(mut self, key: ClusterKey) -> Self {
        self.base = self.base.key(key.clone());
        self.key = Some(key);
        self
    }

    /// Allows addresses other than loopback without a key: any program that reaches the port can lead
    /// newcomers astray.
    pub fn insecure(mut self) -> Self {
        self.base = self.base.insecure();
        self
    }

    /// A file to remember nodes in, across restarts of the locator. Its folder must exist.
    pub fn state(mut self, path: impl Into<PathBuf>) -> Self {
        self.state = Some(path.into());
        self
    }

    /// Starts to listen. Must be called on a tokio runtime with time and I/O enabled.
    ///
    /// # Errors
    /// [`Error::Config`] (also if the file is of another cluster), [`Error::Address`], [`Error::Bind`],
    /// [`Error::State`].
    ///
    /// # Cancel safety
    /// If the future is dropped, no locator is started.
    pub async fn start(self) -> Result<Locator, Error> {
        let (locator, task) = self.prepare()?;
        tokio::spawn(task.run());
        Ok(locator)
    }

    fn prepare(self) -> Result<(Locator, Task), Error> {
        let binds = match self.binds.as_slice() {
            [] => vec![format!("127.0.0.1:{}", crate::discovery::LOCATOR_PORT)],
            given => given.to_vec(),
        };
        let (transport, inputs, addrs) = self.base.listen(&binds, &self.advertises)?;
        let mut seed = [0u64; 4];
        for word in &mut seed {
            *word = getrandom::u64().map_err(|_| Error::Entropy)?;
        }
        let mut core = Core::new(&self.cluster, addrs[0], self.key.as_ref(), seed, Time::ZERO)?;
        let mut problem = None;
        let mut restored = 0;
        if let Some(path) = &self.state {
            let (located, trouble) = state::load(path, &self.cluster, unix_now())?;
            restored = located.len();
            core.restore(Time::ZERO, located);
            problem = trouble;
        }
        let (commands, receiver) = mpsc::channel(16);
        let (events, event_receiver) = mpsc::channel(MAX_EVENTS);
        let mut task = Task {
            core,
            cluster: self.cluster,
            transport: Some(transport),
            inputs,
            commands: receiver,
            events,
            began: Instant::now(),
            state: self.state,
            save_at: None,
            saved: Instant::now(),
            saving: JoinSet::new(),
            complained: None,
            lacks: Lacks::default(),
        };
        if let Some(problem) = problem {
            task.complain(problem);
        }
        let locator = Locator {
            addrs,
            restored,
            commands,
            events: event_receiver,
        };
        Ok((locator, task))
    }
}

/// Something a locator noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "event"))]
pub enum LocatorEvent {
    /// The locator heard a node that is new here, was not heard for long, became a member of a cluster, or is
    /// no member any more.
    #[cfg_attr(feature = "serde", serde(rename = "node"))]
    Heard(Located),
    /// The file cannot be used or written. The locator works on without.
    #[cfg_attr(feature = "serde", serde(rename = "trouble"))]
    State {
        /// What is wrong, and what became of it.
        problem: String,
    },
}

impl fmt::Display for LocatorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocatorEvent::Heard(located) => located.fmt(f),
            LocatorEvent::State { problem } => f.write_str(problem),
        }
    }
}

enum Command {
    Located(oneshot::Sender<Vec<Located>>),
    Stop(oneshot::Sender<()>),
}

/// A server that tells newcomers where the nodes of its cluster are. It is no member, never votes and founds
/// nothing; nodes register with all locators they are given by
/// [`Builder::locators`](crate::Builder::locators), so there may be several, started and stopped at any time.
/// Dropped, it answers no more, and keeps its port until its file is written, for 5 s at most.
///
/// ```no_run
/// # async fn run() -> Result<(), antiphon::Error> {
/// let mut locator = antiphon::Locator::builder("shop").bind("127.0.0.1:7410").state("/var/lib/antiphon/locator").start().await?;
/// while let Some(event) = locator.next().await {
///     println!("{event:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Locator {
    addrs: Vec<SocketAddr>,
    restored: usize,
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<LocatorEvent>,
}

impl Locator {
    /// Describes a locator for the cluster of this name, 1 to 64 bytes.
    pub fn builder(cluster: impl Into<String>) -> LocatorBuilder {
        let cluster = cluster.into();
        LocatorBuilder {
            base: Cluster::builder(&cluster),
            cluster,
            binds: Vec::new(),
            advertises: Vec::new(),
            key: None,
            state: None,
        }
    }

    /// Where nodes reach it.
    pub fn addr(&self) -> SocketAddr {
        self.addrs[0]
    }

    /// How many nodes it knew from its file when it started.
    pub fn restored(&self) -> usize {
        self.restored
    }

    /// The next event; `None` once it has stopped. A reader that lags by more than 1024 events misses what is
    /// newer.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<LocatorEvent> {
        self.events.recv().await
    }

    /// All nodes it knows: at most 1024, those not heard for a day left out.
    ///
    /// # Errors
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    /// A question: dropping the future changes nothing.
    pub async fn located(&self) -> Result<Vec<Located>, Error> {
        let (reply, answer) = oneshot::channel();
        let asked = self.commands.send(Command::Located(reply)).await;
        asked.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)
    }

    /// Writes the file, lets queued answers leave for half a second, and stops. Returns the events that
    /// nobody has read, such as that the file cannot be written.
    ///
    /// # Cancel safety
    /// If the future is dropped, it stops all the same.
    pub async fn stop(mut self) -> Vec<LocatorEvent> {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(Command::Stop(reply)).await.is_ok() {
            // It may have stopped by itself.
            let _ = answer.await;
        }
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// Owns the state machine, the port and the file.
struct Task {
    core: Core,
    cluster: String,
    transport: Option<Box<dyn Transport>>,
    inputs: Inputs,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<LocatorEvent>,
    began: Instant,
    state: Option<PathBuf>,
    save_at: Option<Instant>,
    saved: Instant,
    /// The thread that writes the file, if there is one.
    saving: JoinSet<std::io::Result<()>>,
    complained: Option<Instant>,
    lacks: Lacks,
}

impl Task {
    async fn run(mut self) {
        let mut inputs = Vec::with_capacity(INPUTS_PER_TURN);
        let stopped = loop {
            let (save_at, late_at) = (self.save_at, self.late_at());
            tokio::select! {
                received = self.inputs.recv_many(&mut inputs, INPUTS_PER_TURN) => {
                    if received == 0 {
                        tracing::error!(target: "antiphon::net", "the transport has stopped; so does the locator");
                        break None;
                    }
                    inputs.drain(..).for_each(|input| self.input(input));
                    self.perform();
                }
                command = self.commands.recv() => match command {
                    Some(Command::Located(reply)) => drop(reply.send(self.core.located(self.now()))),
                    Some(Command::Stop(reply)) => break Some(reply),
                    None => break None,
                },
                // A disk that hangs does not hold up the answers.
                Some(saved) = self.saving.join_next(), if !self.saving.is_empty() => self.saved(saved),
                () = tokio::time::sleep_until(late_at), if !self.saving.is_empty() => self.cannot_save(HANGS),
                () = tokio::time::sleep_until(save_at.unwrap_or_else(Instant::now)), if save_at.is_some() && self.saving.is_empty() => self.save(),
            }
        };
        self.finish_saving(stopped.is_some()).await;
        if let Some(reply) = stopped {
            if let Some(transport) = self.transport.take() {
                transport.close(LINGER).await;
            }
            // The caller may have stopped waiting.
            let _ = reply.send(());
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn input(&mut self, input: Input) {
        let now = self.now();
        match input {
            Input::Frames {
                connection, frames, ..
            } => {
                for frame in frames {
                    match self.core.handle_frame(now, frame) {
                        Ok(()) => connection.accepted(),
                        Err(error) => connection.refused(error),
                    }
                }
            }
            Input::Lack { lack } => {
                if self.lacks.note(now, lack) {
                    let remedy = lack.remedy();
                    tracing::warn!(target: "antiphon::net", cluster = %self.cluster, "a connection failed: {lack}; {remedy}");
                }
            }
            // A locator watches no node, and a node that it cannot reach asks again.
            Input::Probe { .. }
            | Input::Lifeline { .. }
            | Input::PathTrouble { .. }
            | Input::AgentPort { .. } => {}
        }
    }

    fn perform(&mut self) {
        while let Some(output) = self.core.poll_output() {
            if let (Output::Frame { to, class, frame }, Some(transport)) = (output, &mut self.transport) {
                transport.send(to, class, frame);
            }
        }
        if let Some(transport) = &mut self.transport {
            transport.flush();
        }
        let mut news = false;
        while let Some(located) = self.core.poll_news() {
            news = true;
            tracing::info!(target: "antiphon::discovery", name = %located.name, addr = %located.addr, member = located.member_of.is_some(), "heard");
            // A reader that is too slow misses some.
            let _ = self.events.try_send(LocatorEvent::Heard(located));
        }
        if self.state.is_some() {
            let soon = if news {
                Instant::now() + SAVE_AFTER
            } else {
                self.saved + SAVE_EVERY
            };
            self.save_at = Some(self.save_at.map_or(soon, |at| at.min(soon)));
        }
    }

    /// Begins to write the file; there is never more than one writer.
    fn save(&mut self) {
        self.save_at = None;
        self.saved = Instant::now();
        let Some(path) = self.state.clone() else { return };
        let (cluster, located, now) = (self.cluster.clone(), self.core.located(self.now()), unix_now());
        self.saving.spawn(async move {
            let (tell, told) = oneshot::channel();
            let write = move || drop(tell.send(state::save(&path, &cluster, &located, now)));
            // A thread of its own: a program does not wait for its end.
            std::thread::Builder::new()
                .name("antiphon-state".to_owned())
                .spawn(write)?;
            told.await
                .unwrap_or_else(|_| Err(std::io::Error::other("writing it failed")))
        });
    }

    /// When it is to be said that the writer takes too long, or said again.
    fn late_at(&self) -> Instant {
        let late = self.saved + SAVE_WITHIN;
        self.complained.map_or(late, |at| late.max(at + REPEAT))
    }

    fn saved(&mut self, saved: Result<std::io::Result<()>, JoinError>) {
        let error = match saved {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.cannot_save(&error);
    }

    fn cannot_save(&mut self, error: &str) {
        let shown = self
            .state
            .as_ref()
            .map_or_else(String::new, |path| path.display().to_string());
        self.complain(format!(
            "the state file {shown} cannot be written ({error}): after a restart this locator will know only who registers anew"
        ));
    }

    /// At the end: what is being written, and what is new since; not longer than a disk may take.
    async fn finish_saving(&mut self, ordered: bool) {
        let until = Instant::now() + SAVE_WITHIN;
        let mut once_more = ordered || self.save_at.is_some();
        // What is wrong now is wrong for good, and is said though the same was said a moment ago.
        self.complained = None;
        loop {
            if self.saving.is_empty() {
                if !std::mem::take(&mut once_more) {
                    return;
                }
                self.save();
            }
            match tokio::time::timeout_at(until, self.saving.join_next()).await {
                Ok(Some(saved)) => self.saved(saved),
                Ok(None) => return,
                Err(_) => return self.cannot_save(HANGS),
            }
        }
    }

    fn complain(&mut self, problem: String) {
        if self.complained.is_none_or(|at| at.elapsed() >= REPEAT) {
            self.complained = Some(Instant::now());
            tracing::warn!(target: "antiphon::discovery", %problem, "state");
            // A reader that is too slow misses it, the log has it.
            let _ = self.events.try_send(LocatorEvent::State { problem });
        }
    }
}

fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Builder {
    /// Listens without being a node.
    fn listen(&self, binds: &[String], advertises: &[String]) -> Result<Bound, Error> {
        let binds = crate::cluster::parse_all(binds)?;
        let advertises = crate::cluster::parse_all(advertises)?;
        crate::cluster::check_addresses_of(&binds, &advertises)?;
        for bind in &binds {
            self.check_loopback("bind", *bind)?;
        }
        self.bind_transport(&binds, &advertises, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for a loaded machine; no test waits for it unless something is broken.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn with_state(name: &str) -> (LocatorBuilder, PathBuf) {
        let folder = std::env::temp_dir().join(format!("antiphon-locator-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let builder = Locator::builder("shop").bind("127.0.0.1:0");
        (builder.state(folder.join("state")), folder)
    }

    fn told(event: &LocatorEvent) -> &str {
        match event {
            LocatorEvent::State { problem } => problem,
            LocatorEvent::Heard(located) => panic!("{located:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_wrong_with_the_file_at_the_end_is_told_though_another_trouble_was_told_before() {
        let (builder, folder) = with_state("end");
        std::fs::write(folder.join("state"), "antiphon locator 1, damaged").unwrap();
        let locator = builder.start().await.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let rest = locator.stop().await;
        let [damaged, last] = rest.as_slice() else {
            panic!("{rest:?}");
        };
        assert!(told(damaged).contains("is damaged"), "{damaged}");
        assert!(told(last).contains("cannot be written"), "{last}");
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_told_while_the_locator_runs() {
        let (builder, folder) = with_state("hangs");
        let (mut locator, mut task) = builder.prepare().unwrap();
        task.saving.spawn(std::future::pending());
        task.saved = Instant::now() - SAVE_WITHIN;
        tokio::spawn(task.run());
        let event = tokio::time::timeout(PATIENCE, locator.next()).await.unwrap();
        let event = event.expect("it runs");
        assert!(told(&event).contains(HANGS), "{event}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
