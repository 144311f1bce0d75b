//! One `antiphon node --json` process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::trace::{Run, Trace};

/// Lines of a node's log that are kept.
const MAX_LOG_LINES: usize = 20_000;

/// How often a condition is looked at. Not at every event: looking at a long trace keeps the listeners from writing it.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// The trace of a story and its clock.
#[derive(Debug)]
pub(crate) struct Shared {
    trace: Mutex<Trace>,
    began: Instant,
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            trace: Mutex::default(),
            began: Instant::now(),
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Trace> {
        // A story that panicked while it held the trace has failed already; its cleanup still wants to read it.
        self.trace.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until the condition holds; false if it does not within the bound.
    pub(crate) fn wait(&self, bound: Duration, condition: impl Fn(&Trace) -> bool) -> bool {
        let until = Instant::now() + bound;
        loop {
            if condition(&self.lock()) {
                return true;
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return false;
            };
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    fn change(&self, run: usize, what: impl FnOnce(&mut Run)) {
        what(&mut self.lock().runs[run]);
    }
}

/// Whether a process's standard output is read.
#[derive(Debug, Default)]
struct Ear {
    covered: Mutex<bool>,
    uncovered: Condvar,
}

impl Ear {
    fn cover(&self, covered: bool) {
        *self
            .covered
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = covered;
        self.uncovered.notify_all();
    }

    fn wait(&self) {
        let covered = self
            .covered
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // Poisoned or not, the wait is over.
        drop(self.uncovered.wait_while(covered, |covered| *covered));
    }
}

/// A process, killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: Pid,
    run: usize,
    shared: Arc<Shared>,
    ear: Arc<Ear>,
}

impl Process {
    /// Starts a node and the threads that listen to it.
    pub(crate) fn start(shared: &Arc<Shared>, name: &str, mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let scoped = command.get_args().any(|arg| arg == "scoped");
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let pid = Pid::from_child(&child);
        let (mouth, words) = channel::<String>();
        let run = {
            let mut trace = shared.lock();
            let start = trace.runs.iter().filter(|run| run.name == name).count();
            trace.runs.push(Run {
                name: name.to_owned(),
                start,
                scoped,
                mouth: Some(mouth),
                ..Run::default()
            });
            trace.runs.len() - 1
        };
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three were asked to be pipes");
        };
        std::thread::spawn(move || {
            for line in words {
                if stdin
                    .write_all(line.as_bytes())
                    .and_then(|()| stdin.write_all(b"\n"))
                    .is_err()
                {
                    return;
                }
            }
        });
        let ear = Arc::<Ear>::default();
        let (listener, covered) = (Arc::clone(shared), Arc::clone(&ear));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                covered.wait();
                let at = listener.now();
                listener.change(run, |run| match serde_json::from_str(&line) {
                    Ok(event) => run.record(at, event),
                    Err(error) => run.garbage.push(format!("{error}: {line}")),
                });
            }
            let at = listener.now();
            listener.change(run, |run| {
                run.ended = Some(at);
                run.mouth = None;
            });
        });
        let listener = Arc::clone(shared);
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let at = listener.now();
                listener.change(run, |run| {
                    if run.log.len() < MAX_LOG_LINES {
                        run.log.push(format!("{:9.3} {line}", at.as_secs_f64()));
                    }
                });
            }
        });
        Self {
            child,
            pid,
            run,
            shared: Arc::clone(shared),
            ear,
        }
    }

    /// Stops reading its standard output, as a program does that hangs; or reads on.
    pub fn cover_ear(&self, covered: bool) {
        self.ear.cover(covered);
    }

    /// kill −9, and wait until the kernel has done it.
    pub fn kill(&mut self) {
        self.shared.change(self.run, |run| {
            run.killed = true;
            run.mouth = None;
        });
        self.end();
    }

    /// kill −9 of the node that this process is the witness of, and the process lives on.
    ///
    /// # Panics
    /// If it has no child.
    pub fn kill_child(&mut self) {
        let pid = self.pid.as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let child = children.ok().and_then(|children| children.trim().parse().ok());
        let child = child.and_then(Pid::from_raw).expect("a witness with its node");
        self.shared.change(self.run, |run| {
            run.killed = true;
            run.mouth = None;
        });
        // Its parent waits for it, so until then the number is its own.
        kill_process(child, Signal::KILL).unwrap_or_else(|e| panic!("kill: {e}"));
    }

    /// Ends it because the story is over, which says nothing about the story.
    pub(crate) fn end(&mut self) {
        self.ear.cover(false);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Any other signal.
    pub fn signal(&self, signal: Signal) {
        let now = self.shared.now();
        self.shared.change(self.run, |run| match signal {
            Signal::STOP => run.frozen.push((now, None)),
            Signal::CONT => run
                .frozen
                .iter_mut()
                .for_each(|(_, end)| *end = end.or(Some(now))),
            _ => {}
        });
        // The child is not reaped before `kill` or `exit` returns, so its pid is its own.
        kill_process(self.pid, signal).unwrap_or_else(|e| panic!("signal {signal:?}: {e}"));
    }

    /// Waits for its end; `None` if it does not end within the bound.
    pub fn exit(&mut self, bound: Duration) -> Option<ExitStatus> {
        let run = self.run;
        // Its end closes its output; then the kernel needs a moment more.
        let until = Instant::now() + bound;
        self.shared.wait(bound, |trace| trace.runs[run].ended.is_some());
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() > until {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid.as_raw_nonzero());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kib.unwrap_or_default() * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.end();
        }
    }
}
