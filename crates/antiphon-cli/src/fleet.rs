//! Many nodes as child processes: what the demo and the benchmark drive.
//!
//! ```text
//!   this program ── stdin: requests ──► antiphon node --json ──┐  real processes, real sockets on loopback
//!        ▲ one reader thread a node                            │
//!        └────────────── stdout: lines, stamped on arrival ◄───┘
//! ```
//! Children end with this program, however it ends: their kernel kills them with their parent ([`crate::node`]'s
//! `--die-with`), and dropping a [`Node`] does so at once. They have process groups of their own, so Ctrl-C at the
//! terminal reaches this program alone.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{self, Child, ChildStdin, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::exit::Failed;
use antiphon_api::{Command, Event, ViewMember};

/// The group that all nodes of a fleet join.
pub(crate) const GROUP: &str = "demo";
/// Lines of a child's stderr that are kept.
const MAX_COMPLAINTS: usize = 10_000;
/// Below the range from which kernels take ports for outgoing connections, so that a restarted node finds its own free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How the nodes of a fleet are started.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    program: PathBuf,
    cluster: String,
    profile: &'static str,
    seeds: Vec<SocketAddr>,
}

impl Plan {
    /// A cluster with these seeds, started with this very program.
    pub(crate) fn new(profile: &'static str, seeds: Vec<SocketAddr>) -> Result<Self, Failed> {
        let program = std::env::current_exe()
            .map_err(|error| Failed::cannot("find this program to start nodes with", &error))?;
        Ok(Self {
            program,
            cluster: format!("demo-{}", std::process::id()),
            profile,
            seeds,
        })
    }
}

/// Free ports on loopback, as far as can be known.
pub(crate) fn free_addrs(count: usize) -> Result<Vec<SocketAddr>, Failed> {
    // Programs that run at the same time start at different places.
    let span = u32::from(PORTS.end - PORTS.start);
    let offset = std::process::id().wrapping_mul(97) % span;
    let mut addrs = Vec::new();
    for step in 0..span {
        // Within PORTS, so it fits.
        let port = PORTS.start + ((offset + step) % span) as u16;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(addr).is_ok() {
            addrs.push(addr);
            if addrs.len() == count {
                return Ok(addrs);
            }
        }
    }
    Err(Failed::run(format!(
        "there are no {count} free ports on 127.0.0.1 from {} to {}",
        PORTS.start, PORTS.end
    )))
}

/// What all reader threads share: something arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Arrivals {
    fn announce(&self) {
        *lock(&self.count) += 1;
        self.changed.notify_all();
    }

    /// Looks again whenever a line arrives, until there is an answer or the time is over.
    pub(crate) fn wait<T>(&self, within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + within;
        loop {
            let seen = *lock(&self.count);
            if let Some(answer) = look() {
                return Some(answer);
            }
            let mut count = lock(&self.count);
            while *count == seen {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    drop(count);
                    return look();
                }
                count = self
                    .changed
                    .wait_timeout(count, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }
}

/// A line and when it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Stamped {
    pub(crate) at: Instant,
    pub(crate) line: Event,
}

/// A child's output so far.
#[derive(Debug, Default)]
struct Output {
    lines: Mutex<Vec<Stamped>>,
    state: Mutex<State>,
    /// Lines on stdout that no node should print.
    garbage: Mutex<Vec<String>>,
    complaints: Mutex<VecDeque<String>>,
}

/// Where a node stands, by its lines. Kept beside them: questions about it are asked with every line that arrives.
#[derive(Debug, Default)]
struct State {
    node_view: Option<View>,
    group_view: Option<GroupView>,
}

impl State {
    fn learn(&mut self, stamped: &Stamped) {
        match &stamped.line {
            Event::NodeView {
                number,
                primary,
                members,
                ..
            } => {
                let members = members.clone();
                self.node_view = Some(View {
                    at: stamped.at,
                    number: *number,
                    primary: *primary,
                    members,
                });
            }
            Event::View { members, .. } => {
                self.group_view = Some(GroupView {
                    at: stamped.at,
                    members: members.clone(),
                });
            }
            Event::Suspended { .. } | Event::Resync { .. } | Event::Expelled { .. } => self.group_view = None,
            _ => {}
        }
    }
}

/// A node as a child process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) addr: SocketAddr,
    pub(crate) started: Instant,
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    output: Arc<Output>,
    readers: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Node {
    /// Starts a node. Call it from the main thread: the kernel takes the thread for the parent that children die with.
    pub(crate) fn start(
        plan: &Plan,
        name: &str,
        addr: SocketAddr,
        arrivals: &Arc<Arrivals>,
    ) -> Result<Self, Failed> {
        let seeds: Vec<String> = plan.seeds.iter().map(ToString::to_string).collect();
        let mut command = process::Command::new(&plan.program);
        command
            .args([
                "node",
                "--json",
                "--allow-faults",
                "--cluster",
                &plan.cluster,
                "--name",
                name,
            ])
            .args([
                "--bind",
                &addr.to_string(),
                "--seeds",
                &seeds.join(","),
                "--group",
                GROUP,
            ])
            .args([
                "--profile",
                plan.profile,
                "--die-with",
                &std::process::id().to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        // The nodes of a demo are not configured by whatever the environment says about other nodes.
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("ANTIPHON_") && variable != "ANTIPHON_LOG" {
                command.env_remove(variable);
            }
        }
        let started = Instant::now();
        let mut child = command
            .spawn()
            .map_err(|error| Failed::run(format!("cannot start {}: {error}", plan.program.display())))?;
        let output = Arc::new(Output::default());
        // All three were asked to be pipes.
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        let readers = vec![
            std::thread::spawn({
                let (output, arrivals) = (output.clone(), arrivals.clone());
                move || read_lines(BufReader::new(stdout), &output, &arrivals)
            }),
            std::thread::spawn({
                let output = output.clone();
                move || {
                    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                        let mut complaints = lock(&output.complaints);
                        complaints.push_back(line);
                        if complaints.len() > MAX_COMPLAINTS {
                            complaints.pop_front();
                        }
                    }
                }
            }),
        ];
        Ok(Self {
            name: name.to_owned(),
            addr,
            started,
            child: Mutex::new(child),
            stdin: Mutex::new(stdin),
            output,
            readers: Mutex::new(readers),
        })
    }

    /// Hands a request to the node. False if the process is gone.
    pub(crate) fn ask(&self, request: &Command) -> bool {
        let mut line = request.to_json();
        line.push('\n');
        lock(&self.stdin).write_all(line.as_bytes()).is_ok()
    }

    /// kill -9. Returns when the process is gone and everything it printed was read.
    pub(crate) fn kill(&self) {
        let mut child = lock(&self.child);
        // Both fail only if the process is gone already.
        let _ = child.kill();
        let _ = child.wait();
        for reader in std::mem::take(&mut *lock(&self.readers)) {
            // A panic there has been printed; what was read stays.
            let _ = reader.join();
        }
    }

    /// SIGSTOP: the process stands still, its connections stay open.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(lock(&self.child).id()).ok().and_then(Pid::from_raw) {
            // Fails only if the process is gone; whoever waits for its lines notices.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait_for_exit(&self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            match lock(&self.child).try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                _ => return None,
            }
        }
    }

    /// What it printed so far.
    pub(crate) fn lines(&self) -> Vec<Stamped> {
        lock(&self.output.lines).clone()
    }

    /// The oldest line from number `from` on that the question has an answer to.
    pub(crate) fn oldest<T>(
        &self,
        from: usize,
        mut question: impl FnMut(&Stamped) -> Option<T>,
    ) -> Option<T> {
        let lines = lock(&self.output.lines);
        lines.get(from..)?.iter().find_map(&mut question)
    }

    /// How many lines it printed so far: a mark to ask from.
    pub(crate) fn mark(&self) -> usize {
        lock(&self.output.lines).len()
    }

    /// The cluster view it is in.
    pub(crate) fn node_view(&self) -> Option<View> {
        lock(&self.output.state).node_view.clone()
    }

    /// The group view it is in; `None` before the first one, while suspended and after a resync.
    pub(crate) fn group_view(&self) -> Option<GroupView> {
        lock(&self.output.state).group_view.clone()
    }

    /// Lines on stdout that no node should print.
    pub(crate) fn garbage(&self) -> Vec<String> {
        lock(&self.output.garbage).clone()
    }

    /// The end of stderr.
    pub(crate) fn complaints(&self) -> Vec<String> {
        lock(&self.output.complaints).iter().cloned().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A cluster view as a node printed it.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) at: Instant,
    pub(crate) number: u32,
    pub(crate) primary: bool,
    pub(crate) members: Vec<ViewMember>,
}

/// A group view as a node printed it.
#[derive(Debug, Clone)]
pub(crate) struct GroupView {
    pub(crate) at: Instant,
    pub(crate) members: Vec<String>,
}

impl View {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| member.name.as_str()).collect()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.members.iter().any(|member| member.name == name)
    }
}

fn read_lines(stdout: impl std::io::BufRead, output: &Output, arrivals: &Arrivals) {
    for text in stdout.lines().map_while(Result::ok) {
        let at = Instant::now();
        match serde_json::from_str(&text) {
            Ok(line) => {
                let stamped = Stamped { at, line };
                lock(&output.state).learn(&stamped);
                lock(&output.lines).push(stamped);
            }
            Err(_) => lock(&output.garbage).push(text),
        }
        arrivals.announce();
    }
    arrivals.announce();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
