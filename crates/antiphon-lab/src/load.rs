//! A load: every running node sends a numbered message per tick, or some of them all they can.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use antiphon_api::blocks::Id;
use antiphon_api::{Command, Payload, command};

use crate::{Run, Said, Stage, Tells, Trace};

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
    /// Every member of the group sends a message each tick. Only members speak: what others would send is
    /// refused, and that is another story's business.
    pub fn start(stage: &Arc<Stage>, group: &str, tick: Duration) -> Self {
        let of = group.to_owned();
        Self::by(stage, group, tick, move |run| run.view(&of).is_some())
    }

    /// Every node of which this holds sends a message each tick.
    pub fn by(
        stage: &Arc<Stage>,
        group: &str,
        tick: Duration,
        speaks: impl Fn(&Run) -> bool + Send + 'static,
    ) -> Self {
        let group = group.to_owned();
        Self::each(stage, tick, move |trace| {
            for run in trace.runs.iter_mut().filter(|run| speaks(run)) {
                run.say(&group, 1);
            }
        })
    }

    /// These nodes send messages of a kilobyte, each as long as it does not lag far behind with delivering
    /// its own: far more than a window is always on its way to it.
    pub fn press(stage: &Arc<Stage>, group: &str, names: &[&str]) -> Self {
        let group = group.to_owned();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Self::each(stage, PRESS_EVERY, move |trace| {
            for name in &names {
                let run = trace.last_mut(name);
                if run.view(&group).is_some() && run.sent.len() < run.own() + PRESSED {
                    run.say_long(&group, PRESS, PRESS_BYTES);
                }
            }
        })
    }

    pub(crate) fn each(
        stage: &Arc<Stage>,
        tick: Duration,
        mut speak: impl FnMut(&mut Trace) + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let stage = Arc::clone(stage);
        let thread = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(tick) {
                speak(&mut stage.trace());
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

impl Run {
    /// Hands the node a command, unless it is on its way out.
    pub fn ask(&self, command: &Command) -> bool {
        self.mouth
            .as_ref()
            .is_some_and(|mouth| mouth.say(command.to_json()))
    }

    /// Tells the node to send this many numbered messages, and writes them in its books.
    pub fn say(&mut self, group: &str, count: usize) {
        self.say_long(group, count, 0);
    }

    /// The same with messages of at least so many bytes.
    fn say_long(&mut self, group: &str, count: usize, bytes: usize) {
        // What a frozen node is told would wait in this program.
        if matches!(self.frozen.last(), Some((_, None))) {
            return;
        }
        for _ in 0..count {
            let number = format!("{}#{}:{}", self.name, self.start, self.sent.len());
            let scope = (self.sent.len() % SCOPES) as u32;
            let what = format!("{number:.<bytes$}");
            self.send(
                group,
                Payload::Text(what.clone()),
                what,
                self.scoped.then_some(scope),
            );
        }
    }

    /// Has the node tell a member this many numbered messages, and writes them in its books. It waits where
    /// there is no room.
    pub fn tell(&mut self, group: &str, to: &str, count: usize) {
        self.tell_so(group, to, count, true);
    }

    /// The same without waiting: where there is no room, the node refuses.
    pub fn tell_at_once(&mut self, group: &str, to: &str, count: usize) {
        self.tell_so(group, to, count, false);
    }

    fn tell_so(&mut self, group: &str, to: &str, count: usize, wait: bool) {
        for _ in 0..count {
            let what = format!("{}#{}>{to}:{}", self.name, self.start, self.told.len());
            let tell = command::Tell {
                group: Some(group.to_owned()),
                to: to.to_owned(),
                payload: Payload::Text(what.clone()),
                wait,
            };
            if self.ask(&Command::Tell(tell)) {
                self.told.push(Tells {
                    group: group.to_owned(),
                    to: to.to_owned(),
                    what,
                    heard: self.events.len(),
                });
            }
        }
    }

    /// Tells the node to send a payload, which will stand in the trace as `what`.
    pub fn send(&mut self, group: &str, payload: Payload, what: String, scope: Option<u32>) {
        // Stories send no small file.
        let object = matches!(payload, Payload::File { .. });
        let send = command::Send {
            group: Some(group.to_owned()),
            payload,
            safe: false,
            scope: scope.map(command::ScopeName::Number),
            // A client learns by the reply what becomes of it.
            id: self.client.is_some().then(|| Id::Text(what.clone())),
        };
        if self.ask(&Command::Send(send)) {
            self.sent.push(Said {
                group: group.to_owned(),
                what,
                scope,
                object,
                heard: self.events.len(),
            });
        }
    }
}
