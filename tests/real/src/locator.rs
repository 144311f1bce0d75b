//! One `antiphon locator --json` process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Between two looks at its lines.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A locator, killed when dropped.
#[derive(Debug)]
pub struct LocatorProcess {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl LocatorProcess {
    /// Starts what the command says, and waits until it listens.
    ///
    /// # Panics
    /// If it does not within ten seconds.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let stdout = child.stdout.take();
        let heard = lines.clone();
        std::thread::spawn(move || {
            let lines = stdout
                .into_iter()
                .flat_map(|stdout| BufReader::new(stdout).lines());
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let locator = Self { child, lines };
        locator.until(|line| line["event"] == "ready");
        locator
    }

    /// Waits for a line.
    ///
    /// # Panics
    /// If it does not come within ten seconds.
    #[track_caller]
    pub fn until(&self, said: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + Duration::from_secs(10);
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
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and its end.
    ///
    /// # Panics
    /// If that does not come.
    pub fn stop(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap_or_else(|e| panic!("{e}"));
        self.until(|line| line["event"] == "stopped");
        self.child.wait().unwrap_or_else(|e| panic!("{e}"))
    }
}

impl Drop for LocatorProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
