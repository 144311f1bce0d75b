//! A process that speaks in lines, and is killed when it is dropped.
//!
//! The child has a process group of its own. So Ctrl-C at the terminal reaches this program alone, which then
//! ends its children.

use std::io::{self, BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::mouth::Mouth;

/// Between two looks at a process that is to end.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// For a process that is to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

/// What a child said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A line on its standard output.
    Line(String),
    /// A line on its standard error, if the command made that a pipe.
    Log(String),
    /// Its standard output has ended.
    End,
}

/// A process.
#[derive(Debug)]
pub struct Child {
    child: Mutex<process::Child>,
    pid: Pid,
    mouth: Arc<Mouth>,
    started: Instant,
}

impl Child {
    /// Starts one. `hear` is called in threads of its own.
    ///
    /// A child that asks its kernel to die with its parent must be started from the main thread: the kernel
    /// takes the thread for the parent.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut command: Command, hear: impl Fn(Heard) + Send + Sync + 'static) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let started = Instant::now();
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
        })?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both were asked to be pipes");
        };
        let hear = Arc::new(hear);
        let log = child.stderr.take().map(|stderr| {
            let hear = Arc::clone(&hear);
            std::thread::spawn(move || lines(stderr).for_each(|line| hear(Heard::Log(line))))
        });
        std::thread::spawn(move || {
            lines(stdout).for_each(|line| hear(Heard::Line(line)));
            // Its last lines are heard before its end, on whichever output they are. A panic there is shown
            // already.
            let _ = log.map(std::thread::JoinHandle::join);
            hear(Heard::End);
        });
        Ok(Self {
            pid: Pid::from_child(&child),
            child: Mutex::new(child),
            mouth: Mouth::new(stdin),
            started,
        })
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.lock().id()
    }

    /// Writes a line to its standard input. False if it is known to read no more.
    pub fn say(&self, line: impl Into<Vec<u8>>) -> bool {
        self.mouth.say(line)
    }

    pub(crate) fn mouth(&self) -> &Arc<Mouth> {
        &self.mouth
    }

    /// Ends its standard input, once it has read all.
    pub fn hush(&self) {
        self.mouth.close();
    }

    /// Sends a signal. It fails only if the process is gone; the story notices when it waits for lines. A
    /// process that is to stop has stopped then: a busy machine lets its threads run for a while yet.
    pub fn signal(&self, signal: Signal) {
        // Held so that the process id stays its own: no other thread reaps it meanwhile.
        let mut child = self.lock();
        if matches!(child.try_wait(), Ok(None))
            && kill_process(self.pid, signal).is_ok()
            && signal == Signal::STOP
        {
            let until = Instant::now() + STOPS_WITHIN;
            while !self.has_stopped() && Instant::now() < until {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// Whether none of its threads runs.
    fn has_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero()));
        let states = threads.into_iter().flatten().flatten().filter_map(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
            // The name before it may have any characters.
            stat.rsplit_once(") ")?.1.chars().next()
        });
        states
            .into_iter()
            .all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
    }

    /// Kills its child process, of which it waits for the end: until then the number is its own.
    ///
    /// # Panics
    /// If it has none.
    pub fn kill_child(&self) {
        let pid = self.pid.as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let child = children.ok().and_then(|children| children.trim().parse().ok());
        let child = child.and_then(Pid::from_raw).expect("a process with a child");
        kill_process(child, Signal::KILL).unwrap_or_else(|e| panic!("kill: {e}"));
    }

    /// kill −9, and wait until the kernel has done it.
    pub fn kill(&self) {
        let mut child = self.lock();
        // Both fail only if the process is gone already.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Waits for its end; `None` if it does not end by itself within the bound.
    pub fn exit(&self, bound: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + bound;
        loop {
            if let Ok(Some(status)) = self.lock().try_wait() {
                return Some(status);
            }
            let left = until.checked_duration_since(Instant::now())?;
            std::thread::sleep(left.min(LOOK_EVERY));
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

    fn lock(&self) -> MutexGuard<'_, process::Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lines(output: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(output).lines().map_while(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_to_stop_has_stopped() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let child = Child::start(command, |_| {}).unwrap();
        for _ in 0..20 {
            assert!(!child.has_stopped());
            child.signal(Signal::STOP);
            assert!(child.has_stopped());
            child.signal(Signal::CONT);
        }
        child.kill();
    }
}
