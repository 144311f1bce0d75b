//! The load: every node sends a small message every few milliseconds, all the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::fleet::{GROUP, Node};
use crate::judge::Record;
use antiphon_api::{Command, Payload, command};

/// How often each node is asked to send.
pub(crate) const EVERY: Duration = Duration::from_millis(20);

/// One process of the story, from its start to its end.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) node: Node,
    /// Distinguishes the payloads of a restarted node from those of its predecessor.
    run: usize,
    asked: Mutex<Vec<String>>,
    /// Once a member of the group; before, sends would only be refused.
    speaks: AtomicBool,
    /// Killed, or told to leave.
    gone: AtomicBool,
}

impl Actor {
    pub(crate) fn new(node: Node, run: usize) -> Self {
        Self {
            node,
            run,
            asked: Mutex::default(),
            speaks: false.into(),
            gone: false.into(),
        }
    }

    /// Hands the node its next message to send, and returns it.
    pub(crate) fn say(&self) -> String {
        let mut asked = lock(&self.asked);
        let payload = format!("{}.{}#{}", self.node.name, self.run, asked.len() + 1);
        // First into the books: the message may be delivered before the writing returns.
        asked.push(payload.clone());
        drop(asked);
        let send = command::Send {
            group: Some(GROUP.to_owned()),
            payload: Payload::Text(payload.clone()),
            safe: false,
            scope: None,
        };
        // False if the process is gone: a killed node promises nothing.
        self.node.ask(&Command::Send(send));
        payload
    }

    /// The how-manieth process of the story it is.
    pub(crate) fn run(&self) -> usize {
        self.run
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Nothing more is asked of it.
    pub(crate) fn retire(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// What the judge reads.
    pub(crate) fn record(&self, stayed: bool) -> Record {
        // The lines first: whatever they show was asked before.
        let lines = self
            .node
            .lines()
            .into_iter()
            .map(|stamped| stamped.line)
            .collect();
        Record {
            name: self.node.name.clone(),
            asked: lock(&self.asked).clone(),
            lines,
            stayed,
        }
    }
}

/// The thread that makes everyone talk.
#[derive(Debug)]
pub(crate) struct Load {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    actors: Mutex<Vec<Arc<Actor>>>,
    talking: AtomicBool,
    /// Held while a round is under way.
    round: Mutex<()>,
    ended: AtomicBool,
}

impl Load {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        std::thread::spawn({
            let shared = shared.clone();
            move || {
                while !shared.ended.load(Ordering::Acquire) {
                    shared.round();
                    std::thread::sleep(EVERY);
                }
            }
        });
        Self { shared }
    }

    /// From now on it talks, too.
    pub(crate) fn add(&self, actor: Arc<Actor>) {
        lock(&self.shared.actors).push(actor);
    }

    pub(crate) fn start(&self) {
        self.shared.talking.store(true, Ordering::Release);
    }

    /// Returns when nobody says anything any more.
    pub(crate) fn stop(&self) {
        self.shared.talking.store(false, Ordering::Release);
        drop(lock(&self.shared.round));
    }
}

impl Shared {
    fn round(&self) {
        let _round = lock(&self.round);
        if !self.talking.load(Ordering::Acquire) {
            return;
        }
        let actors = lock(&self.actors).clone();
        for actor in actors.iter().filter(|actor| !actor.is_gone()) {
            if !actor.speaks.load(Ordering::Acquire) {
                actor
                    .speaks
                    .store(actor.node.group_view().is_some(), Ordering::Release);
                continue;
            }
            actor.say();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
