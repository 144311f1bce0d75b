//! Children of this program that do what they are told: JSON lines both ways.
//!
//! ```text
//!  this program ── stdin: a setup, then asks ──► hand: the same program, started with other arguments
//!       ▲       ◄─ stdout: what it says ───────
//!       └── one reader thread a hand
//! ```
//! Hands end with their master, however it ends: their stdin ends, dropping a [`Hand`] kills it, and on Linux the kernel
//! kills it with the master's main thread (they ask for that with [`crate::node::die_with`]). They have process groups
//! of their own, so Ctrl-C at the terminal reaches the master alone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::exit::Failed;

/// A child.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) name: String,
    child: Child,
    stdin: ChildStdin,
}

impl Hand {
    /// Starts one. `hear` is called in a thread of its own with each line, and with `None` when there are no more; it says
    /// whether anybody still listens. Call it from the main thread: the kernel takes the thread for the parent that children
    /// die with.
    pub(crate) fn start<S: DeserializeOwned>(
        name: &str,
        args: &[&str],
        setup: &impl Serialize,
        hear: impl Fn(Option<S>) -> bool + Send + 'static,
    ) -> Result<Self, Failed> {
        let program = std::env::current_exe()
            .map_err(|error| Failed::cannot("find this program to start nodes with", &error))?;
        let mut child = Command::new(&program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| Failed::run(format!("cannot start {}: {error}", program.display())))?;
        // Both were asked to be pipes.
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for say in lines.map_while(|line| serde_json::from_str(&line).ok()) {
                if !hear(Some(say)) {
                    return;
                }
            }
            hear(None);
        });
        let name = name.to_owned();
        let mut hand = Self { name, child, stdin };
        hand.ask(setup)?;
        Ok(hand)
    }

    /// One line to it.
    pub(crate) fn ask(&mut self, ask: &impl Serialize) -> Result<(), Failed> {
        let written = serde_json::to_string(ask)
            .map_err(std::io::Error::from)
            .and_then(|text| self.stdin.write_all(format!("{text}\n").as_bytes()));
        written.map_err(|error| Failed::run(format!("node {} has ended: {error}", self.name)))
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself, or until the time is over.
    pub(crate) fn wait_until(&mut self, deadline: Instant) {
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        // Both fail only if the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: the first line.
pub(crate) fn setup<T: DeserializeOwned>(master: &str) -> Result<T, Failed> {
    let mut first = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut first)
        .map_err(|error| Failed::cannot("read stdin", &error))?;
    serde_json::from_str(&first).map_err(|error| {
        Failed::usage(format!(
            "this is started by `{master}`, which tells it what to do: {error}"
        ))
    })
}

/// In a child: the lines after the first, until stdin ends.
pub(crate) fn asks<T: DeserializeOwned + Send + 'static>() -> mpsc::Receiver<T> {
    let (asks, asked) = mpsc::channel(16);
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        for ask in lines.map_while(|line| serde_json::from_str(&line).ok()) {
            if asks.blocking_send(ask).is_err() {
                return;
            }
        }
    });
    asked
}

/// In a child: one line to the master. If it is gone, stdin ends too.
pub(crate) fn say(line: &impl Serialize) {
    // Plain data always has a JSON form.
    let text = serde_json::to_string(line).unwrap_or_default();
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
