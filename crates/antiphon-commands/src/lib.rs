//! Commands to peers: a node asks others to do what a list allows, by any of eight ways.
//!
//! ```text
//!  program ─ command ─► its list ─► queue of (peer, way) ─► signed ─┬─ library ──────────────┐
//!     ▲                    │ refused       │ full, late             ├─ HTTP, HTTPS, new, kept ┤ gate
//!     └── replies, failures ◄──────────────┴─── signed reply ◄──────┼─ WebSocket, RESP ──────┤
//!                                                                   └─ UDP ──────────────────┘
//!  at the peer: signature ─► cluster, target ─► number ─► member, time ─► its own list ─► delivered to
//!               a session that serves the verb · a web hook of its host · a program of the list · the node
//! ```
//! - [`list`]: the allow-list, which is data: verbs, their typed and bounded arguments, which nodes may ask
//!   which nodes, what carries each out;
//! - `envelope`: a command and its reply as signed bytes, the same by all ways;
//! - [`window`]: a command that came does not come again;
//! - [`lane`]: what waits for one peer by one way, bounded, with its age and its drops;
//! - `ways`: how an envelope gets to a peer, and the reply back; [`gate`]: where it comes in;
//! - [`deliver`]: how a command reaches what carries it out;
//! - [`counts`]: how many, by verb, peer and outcome;
//! - `node`: all of it together, behind the handle [`Commands`].
//!
//! # What a command is
//! A verb, its arguments, a node that asks, nodes that are asked ([`To`]). Each of these gets an envelope of
//! its own, and has a reply or a failure of its own. Without a reply wanted, its part is over when the peer
//! says that it takes it; by UDP, when it is sent.
//!
//! # What holds
//! - **At most once.** An envelope is sent once, and carried out once, whatever the network does to it.
//!   Nothing is retransmitted, also not by UDP.
//! - **A failure says whether it ran**: `no` if nothing left this node, or if the peer says so; `yes` if the
//!   peer says that; `maybe` otherwise. A node that signs `no` has taken the command's number first, so that
//!   no copy of it can run later. A number that was taken before is not answered at all: any answer would be
//!   taken for that to the first.
//! - **A reply is that of its command**: it has the command's signature in it.
//! - **Both ends check.** The sender refuses what its list does not allow before anything is sent. The
//!   receiver checks with its own list, and fills in its own defaults. It trusts nothing of the sender's, and
//!   says its version.
//! - **A peer costs a caller nothing but its reply.** To hand a command over is to put it into queues; it is
//!   signed and sent by tasks of its own. A peer that is dead or hung fills its own queue of
//!   [`lane::MAX_QUEUED`] commands; then those to it, by that way, are refused at once.
//! - **A list is replaced whole.** A file that is not right changes nothing. What runs goes on; what waits is
//!   checked again when its turn comes.
//!
//! # Envelopes
//! `HEX SPACE JSON`: HMAC-SHA256 of the JSON, and the JSON. Keys are made of the cluster's, or of files that
//! the list names: the first one signs, each is accepted, and a reply is signed with the key of its command;
//! so keys are changed one node after the other. The receiver checks, in this order: the signature; the
//! cluster, the way and the target, which is a name *and an incarnation*; the number; that the sender is a
//! member of its view, and by UDP that the address is one of the sender's; the time; the list.
//!
//! A number counts what one start of a sender asks one start of a target by one way. The receiver keeps the
//! window of RFC 4303 for each: what came, or is older than [`window::WIDTH`] numbers, is refused. The
//! sender numbers no command while one so old is open. What a receiver remembers grows with the members,
//! not with the commands. It rests on one thing: an incarnation that has left the view never comes back into
//! one, and a node that was removed or started again goes by another. Then nothing that was for the former
//! one is for it. The receiver forgets an incarnation that is not in its view and has sent nothing for 12
//! minutes: if the view is still to come, what was sent before is late.
//!
//! A command has a time by the sender's clock and how long it is good for, 10 minutes at most. It runs no
//! later than that, and the `clock-skew` of the receiver's list; nodes whose clocks differ by more cannot
//! command each other, and say both times.
//!
//! # What happens when…
//! | what | then |
//! |---|---|
//! | the peer is in no view, or goes while the command waits | `unavailable`, `no` |
//! | the peer goes when it was sent | `unknown`, `maybe`, with the next view |
//! | the peer hangs, or its packets are lost | `timeout` at the deadline: `no` in the queue, `maybe` behind it |
//! | the connection ends in between | `unknown`, `maybe`; the connection is not used again |
//! | the sender dies | what its peers have begun, they do |
//! | the sender has joined a moment ago, in a view that the receiver does not have yet | the receiver waits 1 s for it, then `unavailable`, `no`; by UDP it then answers nothing |
//! | this node is removed from the cluster | what waits is refused, what was sent is `unknown`; it goes on as another incarnation |
//! | there is no majority | commands go on among those that reach each other; by the library's way none do, and by no way those with `primary = true`: `unavailable`, `no` |
//! | the receiver's list refuses | `refused`, `no`, with its version |
//! | no session serves the verb; too much runs | `unavailable`, `no` |
//! | what carries it out dies, or takes too long | `failed` or `timeout`, `maybe`; a program is killed with its group |
//! | the node stops | programs that it started are killed; it takes no commands, and what it was asked is `unknown` or `timeout`, `maybe`; what it asked is `unknown`, `maybe` |
//! | the node is killed with SIGKILL | programs that it started go on |
//!
//! # Bounds
//! A list: 1 MiB, 256 verbs, 32 arguments a verb. An envelope 64 KiB; a reply 64 KiB unless its verb says
//! less or more, up to 1 MiB; by the library's way 59,744 bytes and by UDP 1,400 each way, signatures
//! included. A queue: 1,024 commands, 4 MiB. Under way to a peer by a way: 64, or 16 connections. At a node
//! run 256 commands, 64 of one peer, 16 of a verb unless its list says another number; more are refused, by
//! each way at once. By the library's way a node serves 1,024 calls at a time. A gate: 1,024 connections, of
//! which addresses that are no member's have 256 together and 8 each; 10 s for a first byte, 10 s for a
//! request's head, and for a first envelope by RESP and WebSocket; 60 s idle.
//!
//! # What it does not do
//! A key is that of the whole cluster: a process that has it can say to be any member. "Which nodes may
//! ask" guards against mistakes, and against programs of a node, not against a node that was broken into.
//! Each session of a node may ask what the node may. Without TLS, what is asked by HTTP, WebSocket, RESP
//! and UDP is signed but can be read. Commands have no order, also not those of one sender by one way. A
//! handler that asks all nodes for what it serves itself makes a storm, which only the bounds above end.
#![forbid(unsafe_code)]
#![cfg(unix)]

pub mod counts;
pub mod deliver;
mod envelope;
#[doc(hidden)]
pub mod fuzzing;
pub mod gate;
pub mod lane;
pub mod list;
mod node;
#[cfg(test)]
mod tests;
mod ways;
pub mod window;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use antiphon::Cluster;
use antiphon_api::blocks::{Code, Failure, Ran};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;

use self::counts::failure;
use self::deliver::{Handled, Request, Serving};
use self::gate::Gate;
use self::list::{Args, ListError};
use self::node::{Node, Task};

pub use self::envelope::Way;
pub use self::node::{Config, GROUP, MAX_RUNNING, MAX_RUNNING_OF_ONE};
pub use self::ways::{MAX_DATAGRAM, Tls};

/// The most nodes that a command names.
pub const MAX_NAMED: usize = 1024;
/// The most bytes that the replies to one command may have together. Those beyond it are failures.
pub const MAX_REPLIES_BYTES: usize = 4 << 20;

/// The commands of a node: a cheap handle. When the last one is dropped, all that runs ends.
#[derive(Debug, Clone)]
pub struct Commands(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: Arc<Node>,
    /// Whose turn it is to be the one that is asked.
    turn: AtomicUsize,
    gate: Mutex<JoinSet<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.node.stop();
    }
}

/// Which nodes are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// Each member that the list lets take it, this node too.
    All,
    /// One of those, by turns, and no other if it fails.
    One,
    /// One of those, by turns; the next one as long as it is certain that it did not run. Each is asked once,
    /// and all of it has the time of one command. It needs a reply.
    Any,
    /// These.
    Nodes(Vec<String>),
}

/// A command that is asked of peers.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// What to do.
    pub verb: String,
    /// With what.
    pub args: Args,
    /// Which nodes.
    pub to: To,
    /// How it gets to them.
    pub way: Way,
    /// Whether a reply is wanted.
    pub reply: bool,
    /// How long it may take; as long as the list says if left out, and never longer.
    pub within: Option<Duration>,
}

/// What came of a command, by the nodes' names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replies {
    /// Of each that did it, what it gave.
    pub replies: BTreeMap<String, Bytes>,
    /// Of each that did not, why.
    pub failures: BTreeMap<String, Failure>,
}

/// A command that was handed over. Dropped, it goes on.
#[derive(Debug)]
pub struct Handed {
    /// What comes of it at each; nothing at one that is not asked after all.
    told: Vec<(String, oneshot::Receiver<Result<Bytes, Failure>>)>,
    asked: usize,
}

impl Handed {
    /// Waits until it is over everywhere, which is no later than its time.
    pub async fn replies(self) -> Replies {
        let mut all = Replies::default();
        for (node, told) in self.told {
            if let Ok(result) = told.await {
                all.add(node, result);
            }
        }
        all
    }

    /// How many nodes may be asked.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// What is over already: what was refused when it was handed over is.
    pub fn so_far(&mut self) -> Replies {
        let mut all = Replies::default();
        self.told.retain_mut(|(node, told)| match told.try_recv() {
            Ok(result) => {
                all.add(std::mem::take(node), result);
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Closed) => false,
        });
        all
    }
}

/// Tells what came of a command at one node, once. Dropped before, it tells that nobody can say: the node
/// stopped, and the task that waited for the answer ended with it.
struct Tell(Option<oneshot::Sender<Result<Bytes, Failure>>>);

impl Tell {
    fn new(told: oneshot::Sender<Result<Bytes, Failure>>) -> Self {
        Self(Some(told))
    }

    fn tell(mut self, result: Result<Bytes, Failure>) {
        if let Some(told) = self.0.take() {
            // It fails if the caller waits no more.
            let _ = told.send(result);
        }
    }
}

impl Drop for Tell {
    fn drop(&mut self) {
        if let Some(told) = self.0.take() {
            let reason = "this node stopped before the command was over";
            let _ = told.send(Err(failure(Code::Unknown, Ran::Maybe, reason)));
        }
    }
}

impl Replies {
    fn add(&mut self, node: String, result: Result<Bytes, Failure>) {
        let bytes: usize = self.replies.values().map(Bytes::len).sum();
        match result {
            Ok(reply) if bytes + reply.len() <= MAX_REPLIES_BYTES => drop(self.replies.insert(node, reply)),
            Ok(_) => {
                let reason = format!("the replies together have more than {MAX_REPLIES_BYTES} bytes");
                self.failures
                    .insert(node, failure(Code::Failed, Ran::Yes, reason));
            }
            Err(failed) => drop(self.failures.insert(node, failed)),
        }
    }
}

/// What a node's commands did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The version of its list.
    pub list: u64,
    /// The verbs of that.
    pub verbs: Vec<String>,
    /// What waits and is under way, by peers and ways that were ever used.
    pub queues: Vec<lane::LaneStatus>,
    /// How long ago each peer last sent something that was signed as it must be.
    pub last_contact_ms: BTreeMap<String, u64>,
    /// How many commands there were.
    pub counts: Vec<counts::Row>,
}

impl Commands {
    /// Begins to serve peers, by the library's way and at the gate, and to ask them. Must be called on a
    /// tokio runtime.
    ///
    /// # Errors
    /// The list cannot be used, and why.
    pub fn start(cluster: Cluster, config: Config, gate: Option<Gate>) -> Result<Self, ListError> {
        let node = Node::start(cluster, config)?;
        let gate = gate.map(|gate| gate.serve(&node)).unwrap_or_default();
        Ok(Self(Arc::new(Inner {
            node,
            turn: AtomicUsize::new(0),
            gate: Mutex::new(gate),
        })))
    }

    /// Checks what [`Commands::start`] would read, before there is a node.
    ///
    /// # Errors
    /// As there.
    pub fn check(config: &Config) -> Result<(), ListError> {
        node::Active::read(&config.list, config.key.as_ref()).map(drop)
    }

    /// Hands a command over. It neither signs nor sends anything itself, and waits for nothing.
    ///
    /// # Errors
    /// Nothing was handed over to any node, and why: the list refuses it, or there is no node to ask.
    pub fn hand_over(&self, command: Command) -> Result<Handed, Failure> {
        let refused = |reason: String| failure(Code::Refused, Ran::No, reason);
        let node = &self.0.node;
        let active = node.active();
        let by_list = |refusal: list::Refusal| {
            refused(format!(
                "the list of {} (version {}): {refusal}",
                node.name, active.list.version
            ))
        };
        let verb = active.list.verb(&command.verb).map_err(by_list)?.clone();
        if !verb.from.contain(&node.name) {
            return Err(by_list(list::Refusal::From(node.name.clone())));
        }
        verb.check(&command.args).map_err(by_list)?;
        let (one, any) = (command.to == To::One, command.to == To::Any);
        let mut targets = match command.to {
            To::Nodes(names) if names.len() > MAX_NAMED => {
                return Err(refused(format!(
                    "a command names at most {MAX_NAMED} nodes: say all"
                )));
            }
            To::Nodes(names) => {
                if let Some(not) = names.iter().find(|name| !verb.to.contain(name)) {
                    return Err(by_list(list::Refusal::To(not.clone())));
                }
                names
            }
            _ => node
                .members()
                .into_iter()
                .filter(|name| verb.to.contain(name))
                .collect(),
        };
        targets.sort_unstable();
        targets.dedup();
        if targets.is_empty() {
            let reason = "no member of the cluster may be asked for it now: see `to` in the list";
            return Err(failure(Code::Unavailable, Ran::No, reason));
        }
        if one || any {
            let turn = self.0.turn.fetch_add(1, Ordering::Relaxed) % targets.len();
            targets.rotate_left(turn);
        }
        if one {
            targets.truncate(1);
        }
        let within = command
            .within
            .map_or(verb.within, |within| within.min(verb.within));
        let until = tokio::time::Instant::now() + within;
        let task = Task {
            verb: command.verb,
            args: command.args,
            way: command.way,
            reply: command.reply,
            until,
        };
        let asked = targets.len();
        let (ways_back, receivers): (Vec<_>, Vec<_>) = targets.iter().map(|_| oneshot::channel()).unzip();
        if any {
            if !command.reply {
                return Err(refused("to any needs a reply: without one, ask one".to_owned()));
            }
            let asking = node.clone();
            let mut turns = targets.clone().into_iter().zip(ways_back);
            let mut take_turn = move || turns.next().map(|(target, told)| (target, Tell::new(told)));
            // The task may end before it runs. Then the caller is told of the first node.
            let mut turn = take_turn();
            node.spawn(async move {
                while let Some((target, tell)) = turn {
                    let (over, result) = oneshot::channel();
                    asking.hand_over(&target, task.clone(), move |result| drop(over.send(result)));
                    let Ok(result) = result.await else { return };
                    let goes_on = matches!(&result, Err(failed) if failed.ran == Ran::No);
                    tell.tell(result);
                    if !goes_on || tokio::time::Instant::now() >= until {
                        return;
                    }
                    turn = take_turn();
                }
            });
        } else {
            let mut tasks = std::iter::repeat_n(task, asked);
            for (target, told) in targets.iter().zip(ways_back) {
                let Some(task) = tasks.next() else { break };
                let tell = Tell::new(told);
                node.hand_over(target, task, move |result| tell.tell(result));
            }
        }
        let told = targets.into_iter().zip(receivers).collect();
        Ok(Handed { told, asked })
    }

    /// Serves a verb whose list delivers it to a session, as long as the returned value is there. Others that
    /// serve it take its commands by turns.
    ///
    /// # Errors
    /// The list has no such verb, or delivers it to something else.
    pub fn serve(
        &self,
        verb: &str,
        handler: impl Fn(Request) -> Handled + Send + Sync + 'static,
    ) -> Result<Serving, Failure> {
        let refused = |reason: String| failure(Code::Refused, Ran::No, reason);
        let active = self.0.node.active();
        let known = active
            .list
            .verb(verb)
            .map_err(|refusal| refused(refusal.to_string()))?;
        if known.deliver != list::Deliver::Session {
            let reason = format!("the list does not deliver {verb} to a session (`deliver = \"session\"`)");
            return Err(refused(reason));
        }
        Ok(self.0.node.handlers.serve(verb, Arc::new(handler)))
    }

    /// Serves and asks nobody any more: programs that run are killed.
    pub fn stop(&self) {
        let mut gate = self.0.gate.lock().unwrap_or_else(PoisonError::into_inner);
        gate.abort_all();
        self.0.node.stop();
    }

    /// Reads the list again, and gives its version.
    ///
    /// # Errors
    /// It is not right, and why. The former one holds.
    pub fn reload(&self) -> Result<u64, ListError> {
        self.0.node.reload()
    }

    /// What was done, and what waits.
    pub fn status(&self) -> Status {
        self.0.node.status()
    }

    /// Returns when a peer, by a verb that the list allows for it, has told this node to leave the cluster.
    pub async fn told_to_leave(&self) {
        let mut leave = self.0.node.leave.subscribe();
        // The sender is the node's, which is there as long as this is.
        let _ = leave.wait_for(|leave| *leave).await;
    }
}
