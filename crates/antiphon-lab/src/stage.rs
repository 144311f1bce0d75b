//! The trace of a story and its clock, and the nodes and programs that write lines into it.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use antiphon_api::{Event, Message, Payload, command};
use rustix::process::Signal;

use crate::client::Client;
use crate::trace::{Run, Trace, fingerprint};
use crate::{Child, Finding, Heard, Rules};

/// Lines of a node's log that are kept.
const MAX_LOG_LINES: usize = 20_000;
/// How often a condition is looked at. Not at every event: looking at a long trace keeps the listeners from
/// writing it.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// What a dead process has said is read after this at the latest.
const READ_WITHIN: Duration = Duration::from_secs(2);

/// The trace of a story and its clock.
#[derive(Debug)]
pub struct Stage {
    trace: Mutex<Trace>,
    began: Instant,
}

impl Stage {
    /// An empty one; the story begins now.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            trace: Mutex::default(),
            began: Instant::now(),
        })
    }

    /// The time since the story began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// What was said so far. No process is listened to while it is held.
    pub fn trace(&self) -> MutexGuard<'_, Trace> {
        // A story that panicked while it held the trace has failed already; its cleanup still wants to read
        // it.
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is an answer; `None` if there is none within the bound.
    pub fn wait<T>(&self, bound: Duration, look: impl Fn(&Trace) -> Option<T>) -> Option<T> {
        let until = Instant::now() + bound;
        loop {
            if let Some(answer) = look(&self.trace()) {
                return Some(answer);
            }
            let left = until.checked_duration_since(Instant::now())?;
            std::thread::sleep(left.min(LOOK_EVERY));
        }
    }

    /// Waits until the condition holds; false if it does not within the bound.
    pub fn until(&self, bound: Duration, condition: impl Fn(&Trace) -> bool) -> bool {
        self.wait(bound, |trace| condition(trace).then_some(())).is_some()
    }

    /// Writes down a line of a node, or of an agent to its program.
    fn hear(&self, run: usize, at: Duration, line: &str) {
        let event = read(line);
        let run = &mut self.trace().runs[run];
        match event {
            Ok(event) => run.record(at, event),
            Err(error) => run.garbage.push(format!("{error}: {line}")),
        }
    }

    /// Judges what was said, once all that dead processes said was read.
    pub fn judge(&self, rules: &Rules) -> Vec<Finding> {
        self.until(READ_WITHIN, |trace| {
            trace.runs.iter().all(|run| !run.dead || run.ended.is_some())
        });
        crate::judge(&self.trace(), rules)
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
        *self.covered.lock().unwrap_or_else(PoisonError::into_inner) = covered;
        self.uncovered.notify_all();
    }

    fn wait(&self) {
        let covered = self.covered.lock().unwrap_or_else(PoisonError::into_inner);
        // Poisoned or not, the wait is over.
        drop(self.uncovered.wait_while(covered, |covered| *covered));
    }
}

/// A node as a process, killed when dropped; or an agent, with the program that is connected to it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    client: Mutex<Option<Client>>,
    name: String,
    run: usize,
    stage: Arc<Stage>,
    ear: Arc<Ear>,
}

impl Process {
    /// Starts a node and the threads that listen to it. It dies with the thread that starts it, if the
    /// command says so.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(stage: &Arc<Stage>, name: &str, mut command: Command) -> io::Result<Self> {
        command.stderr(Stdio::piped());
        let scoped = command.get_args().any(|arg| arg == "scoped");
        let run = {
            let mut trace = stage.trace();
            let start = trace.runs.iter().filter(|run| run.name == name).count();
            trace.runs.push(Run {
                name: name.to_owned(),
                start,
                scoped,
                began: stage.now(),
                ..Run::default()
            });
            trace.runs.len() - 1
        };
        let ear = Arc::<Ear>::default();
        let (listener, covered) = (Arc::clone(stage), Arc::clone(&ear));
        let child = Child::start(command, move |heard| {
            if let Heard::Line(_) = heard {
                covered.wait();
            }
            let at = listener.now();
            match heard {
                Heard::Line(line) => listener.hear(run, at, &line),
                Heard::Log(line) => {
                    let run = &mut listener.trace().runs[run];
                    if run.log.len() < MAX_LOG_LINES {
                        run.log.push(format!("{:9.3} {line}", at.as_secs_f64()));
                    }
                }
                Heard::End => {
                    let run = &mut listener.trace().runs[run];
                    run.ended = Some(at);
                    run.mouth = None;
                }
            }
        })?;
        let this = &mut stage.trace().runs[run];
        this.mouth = this.ended.is_none().then(|| Arc::clone(child.mouth()));
        Ok(Self {
            child,
            client: Mutex::default(),
            name: name.to_owned(),
            run,
            stage: Arc::clone(stage),
            ear,
        })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which of the trace's runs it is.
    pub fn run(&self) -> usize {
        self.run
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Looks at what it said so far.
    pub fn look<T>(&self, at: impl FnOnce(&Run) -> T) -> T {
        at(&self.stage.trace().runs[self.run])
    }

    /// Connects a program to this agent, which has said by now where its socket is. From now on commands go
    /// through this program, in place of standard input. The program joins the group.
    ///
    /// # Errors
    /// The agent has no socket, or does not answer there.
    pub fn connect(&self, name: &str, group: &str) -> io::Result<()> {
        let socket = self.look(|run| {
            run.events.iter().find_map(|(_, event)| match event {
                Event::Serving { socket, .. } => socket.as_ref().map(PathBuf::from),
                _ => None,
            })
        });
        let socket = socket.ok_or_else(|| io::Error::other(format!("{} has named no socket", self.name)))?;
        let (listener, run) = (Arc::clone(&self.stage), self.run);
        let client = Client::connect(&socket, move |line| listener.hear(run, listener.now(), line))?;
        let (name, group) = (Some(name.to_owned()), group.to_owned());
        let hello = command::Hello {
            name,
            ..command::Hello::default()
        };
        let join = command::Join {
            group,
            bundles: false,
            bytes: false,
            id: None,
        };
        for command in [
            antiphon_api::Command::Hello(hello),
            antiphon_api::Command::Join(join),
        ] {
            client.mouth().say(command.to_json());
        }
        self.change(|run| run.mouth = Some(Arc::clone(client.mouth())));
        *self.client() = Some(client);
        Ok(())
    }

    /// The connection of its program ends.
    pub fn disconnect(&self) {
        self.change(|run| run.mouth = None);
        *self.client() = None;
    }

    /// Hands it, or its program, a command. False if it is known to be gone.
    pub fn ask(&self, command: &antiphon_api::Command) -> bool {
        let client = self.client();
        let mouth = client.as_ref().map_or(self.child.mouth(), Client::mouth);
        mouth.say(command.to_json())
    }

    /// Has it leave, after all that it was told to send; of an agent its program first.
    pub fn dismiss(&self) {
        self.change(|run| {
            run.mouth = None;
            run.dismissed = true;
        });
        self.ask(&antiphon_api::Command::Leave(command::Leave::default()));
        if let Some(client) = self.client().take() {
            client.wait(READ_WITHIN);
            drop(client);
            self.child.signal(Signal::TERM);
        }
    }

    /// Stops reading its standard output, as a program does that hangs; or reads on.
    pub fn cover_ear(&self, covered: bool) {
        self.ear.cover(covered);
    }

    /// kill −9, and wait until the kernel has done it.
    pub fn kill(&self) {
        self.mark_killed();
        self.end();
    }

    /// kill −9 of the node that this process is the witness of, and the process lives on.
    ///
    /// # Panics
    /// If it has no child.
    pub fn kill_child(&self) {
        self.mark_killed();
        self.child.kill_child();
    }

    fn mark_killed(&self) {
        self.change(|run| {
            run.killed = true;
            run.mouth = None;
        });
    }

    /// Ends it because the story is over, which says nothing about the story.
    pub fn end(&self) {
        self.ear.cover(false);
        self.child.kill();
        *self.client() = None;
        self.change(|run| run.dead = true);
    }

    /// Any other signal.
    pub fn signal(&self, signal: Signal) {
        let now = self.stage.now();
        self.change(|run| match signal {
            Signal::STOP => run.frozen.push((now, None)),
            Signal::CONT => run
                .frozen
                .iter_mut()
                .for_each(|(_, end)| *end = end.or(Some(now))),
            _ => {}
        });
        self.child.signal(signal);
    }

    /// Waits for its end, and until all that it said was read; `None` if it does not end within the bound.
    pub fn exit(&self, bound: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + bound;
        self.stage
            .until(bound, |trace| trace.runs[self.run].ended.is_some());
        // Its end closes its output; then the kernel needs a moment more.
        self.child.exit(until.saturating_duration_since(Instant::now()))
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> u64 {
        self.child.memory()
    }

    fn client(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, what: impl FnOnce(&mut Run)) {
        what(&mut self.stage.trace().runs[self.run]);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // No more commands go to it.
        self.change(|run| run.mouth = None);
        self.end();
    }
}

/// A line of a node. What came in a file is read now, for the node takes its files along when it ends.
fn read(line: &str) -> Result<Event, String> {
    let mut event: Event = serde_json::from_str(line).map_err(|error| error.to_string())?;
    match &mut event {
        Event::Unknown => return Err("not an event of this build".to_owned()),
        Event::Message(Message { payload, .. }) => {
            if let Payload::File { file, bytes } = payload {
                let print = fingerprint(file.as_ref())?;
                let bytes = bytes.unwrap_or_default();
                if !print.starts_with(&format!("{bytes} bytes")) {
                    return Err(format!("{file} has not {bytes} bytes: {print}"));
                }
                *payload = Payload::Text(print);
            }
        }
        _ => {}
    }
    Ok(event)
}
