//! One `antiphon locator --json` process.

use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use antiphon_lab::{Child, Heard, Signal};
use serde_json::Value;

/// Whatever is waited for takes less than a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at its lines.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A locator, killed when dropped.
#[derive(Debug)]
pub(crate) struct LocatorProcess {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl LocatorProcess {
    /// Starts what the command says, and waits until it listens.
    ///
    /// # Panics
    /// If it does not within ten seconds.
    pub(crate) fn start(command: Command) -> Self {
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let heard = lines.clone();
        let child = Child::start(command, move |said| {
            if let Heard::Line(line) = said {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let child = child.unwrap_or_else(|error| panic!("{error}"));
        let locator = Self { child, lines };
        locator.until(|line| line["event"] == "ready");
        locator
    }

    /// Waits for a line.
    ///
    /// # Panics
    /// If it does not come within ten seconds.
    #[track_caller]
    pub(crate) fn until(&self, said: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = lines.iter().find(|line| said(line)) {
                return line.clone();
            }
            assert!(Instant::now() < until, "not among {lines:#?}");
            drop(lines);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// kill −9.
    pub(crate) fn kill(self) {}

    /// SIGTERM, and its end.
    ///
    /// # Panics
    /// If that does not come.
    pub(crate) fn stop(self) -> ExitStatus {
        self.child.signal(Signal::TERM);
        self.until(|line| line["event"] == "stopped");
        self.child.exit(PATIENCE).expect("it has stopped")
    }
}
