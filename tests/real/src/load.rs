//! A load: every running node sends a numbered message per tick, or some of them all they can.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::Shared;
use crate::trace::Run;

/// What a node that is pressed is told at once, and how often.
const PRESS: usize = 10;
const PRESS_EVERY: Duration = Duration::from_millis(5);
const PRESS_BYTES: usize = 1024;
/// How many scopes a node sends in, if its groups are scoped.
const SCOPES: usize = 5;
/// How many of its messages it may not have delivered yet: four windows.
const PRESSED: usize = 4096;

/// Runs until dropped or ended.
#[derive(Debug)]
pub struct Load {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(shared: &Arc<Shared>, group: &str, tick: Duration) -> Self {
        let (stop, stopped) = channel();
        let (shared, group) = (Arc::clone(shared), group.to_owned());
        let thread = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(tick) {
                let mut trace = shared.lock();
                // Only members speak: what others would send is refused, and that is another story's business.
                for run in trace
                    .runs
                    .iter_mut()
                    .filter(|run| run.ended.is_none() && run.views.contains_key(&group))
                {
                    say(run, &group, 1);
                }
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// These nodes send messages of a kilobyte, each as long as it does not lag far behind with delivering its own: far
    /// more than a window is always on its way to it.
    pub(crate) fn press(shared: &Arc<Shared>, group: &str, names: &[&str]) -> Self {
        let (stop, stopped) = channel();
        let (shared, group) = (Arc::clone(shared), group.to_owned());
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let thread = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PRESS_EVERY) {
                let mut trace = shared.lock();
                for name in &names {
                    let run = trace.last_mut(name);
                    if run.views.contains_key(&group) && run.sent.len() < run.own + PRESSED {
                        say_long(run, &group, PRESS, PRESS_BYTES);
                    }
                }
            }
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Ends it; nothing is sent after this returns.
    pub fn end(self) {}
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells a node to send this many numbered messages.
pub(crate) fn say(run: &mut Run, group: &str, count: usize) {
    say_long(run, group, count, 0);
}

/// The same with messages of at least so many bytes.
fn say_long(run: &mut Run, group: &str, count: usize, bytes: usize) {
    let frozen = matches!(run.frozen.last(), Some((_, None)));
    let Some(mouth) = run.mouth.as_ref().filter(|_| !frozen) else {
        return;
    };
    for _ in 0..count {
        let number = format!("{}#{}:{}", run.name, run.start, run.sent.len());
        let payload = format!("{number:.<bytes$}");
        let mut send = serde_json::json!({ "group": group, "payload": payload });
        if run.scoped {
            send["scope"] = (run.sent.len() % SCOPES).into();
        }
        let request = serde_json::json!({ "send": send });
        if mouth.send(request.to_string()).is_ok() {
            run.sent.push((group.to_owned(), payload));
        }
    }
}
