//! Children of this program that do what they are told: JSON lines both ways.
//!
//! ```text
//!  this program ── stdin: a setup, then asks ──► hand: the same program, started with other arguments
//!       ▲       ◄─ stdout: what it says ───────
//!       └── one reader thread a hand
//! ```
//! Hands end with their master, however it ends: their stdin ends, dropping a [`Hand`] kills it, and on Linux
//! the kernel kills it with the master's main thread (they ask for that with [`crate::node::die_with`]). They
//! have process groups of their own, so Ctrl-C at the terminal reaches the master alone.

use std::io::{BufRead as _, Write as _};
use std::process::Command;
use std::time::Instant;

use antiphon_lab::{Child, Heard};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::exit::Failed;
use super::fleet::this_program;

/// A child.
#[derive(Debug)]
pub(crate) struct Hand {
    pub(crate) name: String,
    child: Child,
}

impl Hand {
    /// Starts one. `hear` is called in a thread of its own with each line, and with `None` when there are no
    /// more. Call it from the main thread: the kernel takes the thread for the parent that children die with.
    pub(crate) fn start<S: DeserializeOwned>(
        name: &str,
        args: &[&str],
        setup: &impl Serialize,
        hear: impl Fn(Option<S>) + Send + Sync + 'static,
    ) -> Result<Self, Failed> {
        let mut command = Command::new(this_program()?);
        command.args(args);
        let child = Child::start(command, move |heard| match heard {
            // Both ends are this program: a line that is none of its own was printed by something else.
            Heard::Line(line) => {
                if let Ok(say) = serde_json::from_str(&line) {
                    hear(Some(say));
                }
            }
            Heard::Log(_) => {}
            Heard::End => hear(None),
        });
        let child = child.map_err(|error| Failed::run(error.to_string()))?;
        let name = name.to_owned();
        let hand = Self { name, child };
        hand.ask(setup)?;
        Ok(hand)
    }

    /// One line to it.
    pub(crate) fn ask(&self, ask: &impl Serialize) -> Result<(), Failed> {
        // Plain data always has a JSON form.
        let line = serde_json::to_string(ask).unwrap_or_default();
        match self.child.say(line) {
            true => Ok(()),
            false => Err(Failed::run(format!("node {} has ended", self.name))),
        }
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended by itself, or until the time is over.
    pub(crate) fn wait_until(&self, deadline: Instant) {
        self.child
            .exit(deadline.saturating_duration_since(Instant::now()));
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
