//! A node and its sessions: what programs ask of it, whatever carries their words.
//!
//! ```text
//!   carrier ── Command ──► Session ──┬─► blocks: locks, maps, counters, requests
//!           ◄── Event ────  desk     ├─► groups: clients of this node
//!                                    └─► commands to peers
//! ```
//! A [`Session`] is one program: a line of standard input and output, or a connection. It is told [`Event`]s
//! in one stream, and does what [`Command`]s say. A carrier translates both and adds nothing.
//!
//! # A session is a client
//! A session has a name that no other session of the node has at that time, and is called NODE/NAME in
//! groups. It ends by its own word or with its connection. Then it leaves its groups with that cause, its
//! locks and leaderships are free, and the requests that it was handed are answered with an error.
//!
//! # Bounds
//! A node has at most [`MAX_SESSIONS`], or fewer where its process may open few files ([`Hub::of`]); a
//! session is in at most [`MAX_JOINED`] groups. Some 256 KiB of events wait for a carrier. Beyond that the
//! operations of the session wait with their replies, and the events of its groups wait as
//! [`antiphon::clients`] says: the session holds up others only for a bounded time.

mod naming;
mod saying;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use antiphon::clients::{ClientSender, Departure};
use antiphon::{Cluster, Error};
use antiphon_api::blocks::{Code, Failure, Reply, Serial};
use antiphon_api::{Command, Event, NOTHING_BEHIND, command, shortened};
use antiphon_commands::Commands;
use antiphon_commands::deliver::Serving;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::blocks::{Begun, Blocks, Desk, Kind, MapCopy, Operation, Senseless, not_done};
use crate::follower::Follower;
use crate::groups::Groups;
use crate::metrics::{Meters, Reload, Removal};
pub use crate::outlet::Events;
use crate::outlet::{Outlet, queue};
use crate::pipe::{MAX_BYTES, Text, pipe};
use crate::ready::Readiness;
use crate::{Names, commands, told};

/// The most sessions of a node.
pub const MAX_SESSIONS: usize = 8192;
/// The most groups of a session.
pub const MAX_JOINED: usize = 64;
/// How the causes of clients begin that did not read.
pub(crate) const SLOW: &str = "slow: ";

/// A node that sessions speak to. A cheap handle.
#[derive(Debug, Clone)]
pub struct Hub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cluster: Cluster,
    readiness: Arc<Readiness>,
    /// Sessions at a time.
    most: usize,
    names: Arc<Mutex<Names>>,
    blocks: Blocks,
    groups: Groups,
    /// The commands to peers; none until they are there, and for ever at a node without a list.
    commands: OnceLock<Commands>,
    /// The names of the present sessions.
    clients: Mutex<BTreeSet<String>>,
    /// One of them has gone.
    freed: Notify,
    last: AtomicU64,
    meters: Arc<Meters>,
    closing: AtomicBool,
}

/// There are as many sessions already as there may be: so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full(pub usize);

impl Hub {
    /// The sessions of this node: none yet.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    pub fn new(cluster: Cluster) -> Self {
        Self::of(cluster, MAX_SESSIONS)
    }

    /// The same with another bound of sessions, and of connections of programs as well. Each connection is an
    /// open file of the process, and the node needs files of its own.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    pub fn of(cluster: Cluster, most: usize) -> Self {
        let readiness = Arc::new(Readiness::of(cluster.clone()));
        Self(Arc::new(Inner {
            most,
            blocks: Blocks::new(cluster.clone(), readiness.clone()),
            groups: Groups::new(cluster.clone()),
            commands: OnceLock::new(),
            cluster,
            readiness,
            names: Arc::default(),
            clients: Mutex::default(),
            freed: Notify::new(),
            last: AtomicU64::new(0),
            meters: Arc::default(),
            closing: AtomicBool::new(false),
        }))
    }

    /// A program comes. What it is told comes from the queue, which ends with the session. What it asks waits
    /// for a cluster or a majority only for a moment, unless it says for how long.
    ///
    /// # Errors
    /// [`Full`].
    pub fn session(&self) -> Result<(Session, Events), Full> {
        let (queue, events) = queue();
        Ok((self.open_for(Outlet::Queued(queue), false, true)?, events))
    }

    /// The same for a program that reads lines. `takes_bytes`: whether it can be told what stands behind a
    /// line.
    pub(crate) fn session_in_lines(&self, takes_bytes: bool) -> Result<(Session, Text), Full> {
        let (pipe, text) = pipe(MAX_BYTES);
        let mut session = self.open(Outlet::Written(pipe), false)?;
        session.takes_bytes = takes_bytes;
        Ok((session, text))
    }

    pub(crate) fn open(&self, outlet: Outlet, may_name_files: bool) -> Result<Session, Full> {
        self.open_for(outlet, may_name_files, false)
    }

    /// `hurries`: what it asks is refused rather than to wait for a majority.
    fn open_for(&self, outlet: Outlet, may_name_files: bool, hurries: bool) -> Result<Session, Full> {
        let mut clients = self.clients();
        if clients.len() >= self.0.most {
            return Err(Full(self.0.most));
        }
        let name = loop {
            let name = format!("c{}", self.0.last.fetch_add(1, Ordering::Relaxed) + 1);
            if clients.insert(name.clone()) {
                break name;
            }
        };
        drop(clients);
        Ok(Session {
            desk: Arc::new(Desk::new(outlet, hurries, self)),
            hub: self.clone(),
            inside: Arc::new(Mutex::new(Inside {
                name,
                ..Inside::default()
            })),
            may_name_files,
            takes_bytes: false,
            departure: Mutex::new(Departure::lost("its connection ended")),
        })
    }

    /// Lets sessions command peers. Only the first time.
    pub fn set_commands(&self, commands: Commands) {
        let _ = self.0.commands.set(commands);
    }

    /// Commands to peers, if this node has a list of them.
    pub fn commands(&self) -> Option<&Commands> {
        self.0.commands.get()
    }

    /// The node.
    pub fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }

    /// Whether it may act for the cluster.
    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.0.readiness
    }

    pub(crate) fn names(&self) -> &Arc<Mutex<Names>> {
        &self.0.names
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.clients().len()
    }

    /// How many sessions there may be.
    pub(crate) fn most(&self) -> usize {
        self.0.most
    }

    /// How many groups of clients this node is in.
    pub(crate) fn groups(&self) -> usize {
        self.0.groups.len()
    }

    pub(crate) fn meters(&self) -> &Arc<Meters> {
        &self.0.meters
    }

    /// Tokens and certificates were read again; counts whether all of them are in force.
    pub fn reloaded(&self, all: bool) {
        let how = if all { Reload::Done } else { Reload::Kept };
        self.meters().reloaded(how);
    }

    /// Whether the node is about to leave.
    pub(crate) fn is_closing(&self) -> bool {
        self.0.closing.load(Ordering::Relaxed)
    }

    /// Leaves groups and blocks in order, before the node leaves: what was taken happens, and each operation
    /// is replied to. It takes a few seconds at most.
    pub async fn close(&self) {
        self.0.closing.store(true, Ordering::Relaxed);
        if let Some(commands) = self.commands() {
            commands.stop();
        }
        self.0.groups.close().await;
        self.0.blocks.close().await;
    }

    fn clients(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One program. Dropped, it is over: what it held is free, and its groups are without it.
#[derive(Debug)]
pub struct Session {
    hub: Hub,
    desk: Arc<Desk>,
    inside: Arc<Mutex<Inside>>,
    /// It is the node's own session: a payload may be in a file.
    may_name_files: bool,
    /// It can be told bytes behind a line.
    takes_bytes: bool,
    departure: Mutex<Departure>,
}

#[derive(Debug, Default)]
struct Inside {
    name: String,
    joined: BTreeMap<String, Joined>,
    /// The tasks that tell what groups tell, or told.
    followed: BTreeMap<String, JoinHandle<()>>,
    /// The tasks that wait for what becomes of messages, and tell it.
    awaited: JoinSet<()>,
    /// The verbs of the list that it serves.
    serving: BTreeMap<String, Serving>,
    /// The key with which its program comes back, if it may.
    key: Option<String>,
    /// It was told what it is called.
    welcomed: bool,
    last: u64,
}

impl Inside {
    /// Why it cannot join a group, if it cannot.
    fn refuses_to_join(&self, group: &str) -> Option<Failure> {
        let twice = self
            .joined
            .contains_key(group)
            .then(|| refused(format!("this client has joined {group} already")));
        let many = (self.joined.len() >= MAX_JOINED)
            .then(|| refused(format!("a client is in {MAX_JOINED} groups at most: leave one")));
        twice.or(many)
    }
}

/// A group that it has joined.
#[derive(Debug)]
struct Joined {
    sender: ClientSender,
    since: tokio::time::Instant,
    /// Tells this membership from earlier ones of the session.
    number: u64,
}

impl Drop for Session {
    fn drop(&mut self) {
        let departure = self.departure().clone();
        if matches!(&departure, Departure::Lost { cause } if cause.starts_with(SLOW)) {
            self.hub.meters().slow(Removal::Node);
        }
        let mut inside = self.inside();
        // The groups are left with this cause before anything else that follows from the end.
        for joined in std::mem::take(&mut inside.joined).into_values() {
            joined.sender.leave(departure.clone());
        }
        inside.serving.clear();
        // They count their replies, though nobody hears them.
        inside.awaited.detach_all();
        self.desk.close();
        self.hub.clients().remove(&inside.name);
        self.hub.0.freed.notify_waiters();
    }
}

impl Session {
    /// What it is called at its node.
    pub fn name(&self) -> String {
        self.inside().name.clone()
    }

    /// Sets the cause that its groups are told when the session ends. Unless one is set, the cause is that
    /// its connection has ended.
    pub fn ends_for(&self, departure: Departure) {
        *self.departure() = departure;
    }

    /// From here on its program may come back by another connection, with this key.
    pub(crate) fn may_resume(&self, key: &str) {
        self.inside().key = Some(key.to_owned());
    }

    /// Only a program that was welcomed knows its key.
    pub(crate) fn is_welcomed(&self) -> bool {
        self.inside().welcomed
    }

    /// Whether its node may act for the cluster.
    pub(crate) fn readiness(&self) -> &Readiness {
        self.hub.readiness()
    }

    fn departure(&self) -> MutexGuard<'_, Departure> {
        self.departure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the program something out of its turn.
    pub async fn tell(&self, event: Event) {
        self.desk.print(event).await;
    }

    /// Tells the program that what it said is no command, and counts that.
    pub(crate) async fn tell_malformed(&self, error: Event) {
        self.hub.meters().malformed();
        self.tell(error).await;
    }

    /// Sets whether it is told the messages of a group that it has joined. At first it is.
    pub(crate) fn hears(&self, group: &str, hears: bool) {
        if let Some(joined) = self.inside().joined.get(group) {
            joined.sender.hears(hears);
        }
    }

    /// Whether it has joined this group.
    pub(crate) fn has_joined(&self, group: &str) -> bool {
        self.inside().joined.contains_key(group)
    }

    /// Does what is said, and waits while there is too much under way. What comes of it is told.
    pub async fn obey(&self, command: Command) {
        if let Err(Senseless { reason, request }) = self.try_obey(command).await {
            self.desk.print(Event::Error { reason, request }).await;
        }
    }

    /// The same for a carrier that writes each reply in its own place: if a command makes no sense, the
    /// session is not told, but this returns the reason.
    ///
    /// # Errors
    /// The reason; then there is no reply.
    pub async fn obey_or(&self, command: Command) -> Result<(), String> {
        self.try_obey(command).await.map_err(|senseless| senseless.reason)
    }

    /// This node's copy of a map, if it has one that can be read now. The copy may lack writes that this
    /// session has under way.
    pub(crate) fn copy(&self, map: &str) -> Option<MapCopy> {
        self.hub.0.blocks.copy(map)
    }

    /// Whether it holds this lock now, by the clock.
    pub(crate) async fn holds(&self, lock: &str, token: Serial) -> bool {
        self.hub.0.blocks.holds(&self.desk, lock, token).await
    }

    /// Begins a write at once, if this node can take it now. The carrier tells what comes of it, and has no
    /// other write of this session under way that it gave to [`obey_or`](Self::obey_or).
    pub(crate) fn begin(&self, command: &Command) -> Option<Begun> {
        self.hub.0.blocks.begin(command)
    }

    async fn try_obey(&self, command: Command) -> Result<(), Senseless> {
        let obeyed = self.obey_sense(command).await;
        if obeyed.is_err() {
            self.hub.meters().malformed();
        }
        obeyed
    }

    async fn obey_sense(&self, mut command: Command) -> Result<(), Senseless> {
        let (is_unread, names_a_file) = (command.is_unread(), command.names_a_file());
        let senseless = |reason: &str| Err(Senseless::of(&command, reason));
        if is_unread {
            return senseless(NOTHING_BEHIND);
        }
        if names_a_file && !self.may_name_files {
            return senseless(
                "a payload from a file is for the node's own program: give it as a text or base64",
            );
        }
        match &command {
            Command::Leave(command::Leave { group: None, .. }) => {
                return senseless("the session ends with its connection: close it");
            }
            Command::Tell(_) => {
                return senseless(
                    "clients are not told anything alone: send it to the group, or call a verb",
                );
            }
            Command::Took(_) => {
                return senseless(
                    "it is for a client that may come back: ask for `grace` in the first hello",
                );
            }
            Command::Fault(_) => {
                return senseless("faults are for a node's own program: `antiphon node --json`");
            }
            Command::Send(send) => {
                let scoped = "a group of clients has one order for all: leave the scope out";
                let scoped = send.scope.is_some().then(|| scoped.to_owned());
                if let Some(reason) = scoped.or_else(|| self.names_no_group(send.group.as_ref())) {
                    return senseless(&reason);
                }
            }
            Command::SendBundle(send) => {
                if let Some(reason) = self.names_no_group(send.group.as_ref()) {
                    return senseless(&reason);
                }
            }
            Command::Why(command::AskWhy { node }) => {
                return match self.hub.cluster().why(node.clone()).await {
                    Ok(report) => {
                        let no_view = self.hub.readiness().why_no_view();
                        let event = told::why(&report, &self.hub.names_now(), no_view);
                        self.desk.print(event).await;
                        Ok(())
                    }
                    Err(error) => senseless(&error.to_string()),
                };
            }
            Command::Command(_) | Command::ServeCommand(_) | Command::Commands(_) => {
                return self.to_peers(command).await;
            }
            Command::Hello(_) | Command::Members(_) | Command::Join(_) | Command::Leave(_) => {}
            _ => return self.hub.0.blocks.take(&self.desk, command).await,
        }
        let id = match &command {
            Command::Hello(command::Hello { id, .. })
            | Command::Members(command::Members { id, .. })
            | Command::Join(command::Join { id, .. })
            | Command::Leave(command::Leave { id, .. })
            | Command::Send(command::Send { id, .. })
            | Command::SendBundle(command::SendBundle { id, .. }) => id.clone(),
            _ => None,
        };
        // A message without an id has no reply.
        let operation = match (&command, &id) {
            (Command::Send(_) | Command::SendBundle(_), None) => None,
            _ => {
                let admitted = self.desk.admit(command.word(), id, Kind::Quick, None).await;
                match admitted.map_err(|reason| Senseless::of(&command, reason))? {
                    Some(operation) => Some(operation),
                    None => return Ok(()),
                }
            }
        };
        match (command, operation) {
            (Command::Hello(hello), Some(operation)) => {
                let reply = self.hello(hello).await;
                operation.reply(reply).await;
            }
            (Command::Members(members), Some(operation)) => {
                operation.reply(self.members(members.group.as_deref())).await;
            }
            (Command::Join(join), Some(operation)) => self.join(join, operation).await,
            (
                Command::Leave(command::Leave {
                    group: Some(group), ..
                }),
                Some(operation),
            ) => {
                operation.reply(self.leave(&group)).await;
            }
            (Command::Send(send), operation) => self.send(send, operation).await,
            (Command::SendBundle(send), operation) => self.send_bundle(send, operation).await,
            (other, _) => unreachable!("each command is either of these or of the blocks: {other:?}"),
        }
        Ok(())
    }

    /// Commands to peers, and of them.
    async fn to_peers(&self, command: Command) -> Result<(), Senseless> {
        let (kind, id, within) = match &command {
            Command::Command(ask) => (Kind::Long, &ask.id, ask.within),
            Command::ServeCommand(serve) => (Kind::Quick, &serve.id, None),
            Command::Commands(status) => (Kind::AtOnce, &status.id, None),
            other => unreachable!("it is not about commands: {other:?}"),
        };
        let within = within.map(|within| within.0);
        let admitted = self.desk.admit(command.word(), id.clone(), kind, within).await;
        let Some(operation) = admitted.map_err(|reason| Senseless::of(&command, reason))? else {
            return Ok(());
        };
        let Some(commands) = self.hub.commands() else {
            let reason = "this node has no list of commands: start it with --commands FILE";
            operation.reply(not_done(refused(reason.to_owned()))).await;
            return Ok(());
        };
        let reply = match command {
            Command::Command(ask) => {
                commands::ask(commands, ask, operation).await;
                return Ok(());
            }
            // A session that says it twice gets no second turn.
            Command::ServeCommand(serve) if self.inside().serving.contains_key(&serve.verb) => {
                Reply::default()
            }
            Command::ServeCommand(serve) => match commands::serve(commands, &serve.verb, &self.desk) {
                Ok(serving) => {
                    self.inside().serving.insert(serve.verb, serving);
                    Reply::default()
                }
                Err(failure) => not_done(failure),
            },
            _ => commands::status(commands),
        };
        operation.reply(reply).await;
        Ok(())
    }

    /// Why it is not clear which group is meant, if it is not.
    fn names_no_group(&self, group: Option<&String>) -> Option<String> {
        let only = || self.only_group().err();
        group.is_none().then(only).flatten()
    }

    fn members(&self, group: Option<&str>) -> Reply {
        if let Some(group) = group {
            return self.hub.0.blocks.view(group).map_or_else(not_done, |view| Reply {
                group_view: Some(Box::new(view)),
                ..Reply::default()
            });
        }
        let view = self.hub.cluster().view();
        let view = view.map(|view| told::node_view(&view, &self.hub.names_now()));
        let none = || {
            let why = self.readiness().why_no_view();
            let why = why.unwrap_or_else(|| "wait until it has joined one".to_owned());
            not_done(unavailable(&format!("this node is in no cluster now: {why}")))
        };
        view.map_or_else(none, |view| Reply {
            view: Some(Box::new(view)),
            ..Reply::default()
        })
    }

    fn leave(&self, group: &str) -> Reply {
        let joined = self.inside().joined.remove(group);
        match joined {
            Some(joined) => {
                joined.sender.leave(Departure::Left);
                Reply::default()
            }
            None => not_done(not_joined(group)),
        }
    }

    async fn join(&self, join: command::Join, operation: Operation) {
        let group = join.group;
        let (name, refusal) = {
            let inside = self.inside();
            (inside.name.clone(), inside.refuses_to_join(&group))
        };
        let is_behind = join.bytes.then(|| refused(NO_BYTES.to_owned()));
        let refusal = is_behind.filter(|_| !self.takes_bytes).or(refusal);
        let mut client = match refusal {
            Some(failure) => Err(failure),
            None => self.hub.0.groups.enter(&group, &name, join.bundles).await,
        };
        // Other commands of the same session may have joined meanwhile.
        let refusal = self.inside().refuses_to_join(&group);
        if let (Ok(_), Some(failure)) = (&client, refusal) {
            client = Err(failure);
        }
        let seat = match client {
            Ok(seat) => seat,
            Err(failure) => {
                operation.reply(not_done(failure)).await;
                return;
            }
        };
        let mut inside = self.inside();
        inside.last += 1;
        let number = inside.last;
        let sender = seat.sender();
        let joined = Joined {
            sender,
            since: tokio::time::Instant::now(),
            number,
        };
        inside.joined.insert(group.clone(), joined);
        // The new follower first waits until the follower of the former membership has told everything.
        let before = inside.followed.remove(&group);
        // One that has told everything is of no use, and a session may join ever other groups.
        inside.followed.retain(|_, following| !following.is_finished());
        let follower = Follower {
            seat,
            group: group.clone(),
            desk: self.desk.clone(),
            bytes: join.bytes,
        };
        let (session, ended) = (self.inside.clone(), group.clone());
        // It may join again.
        let ended = move || {
            let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
            if session
                .joined
                .get(&ended)
                .is_some_and(|joined| joined.number == number)
            {
                session.joined.remove(&ended);
            }
        };
        let following = tokio::spawn(follower.follow(before, operation, ended));
        inside.followed.insert(group, following);
    }

    /// The group that it has joined, if that is one.
    fn only_group(&self) -> Result<String, String> {
        let inside = self.inside();
        match (inside.joined.len(), inside.joined.keys().next()) {
            (1, Some(group)) => Ok(group.clone()),
            (joined, _) => Err(format!("name a group: this client is in {joined}")),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    pub(crate) fn names_now(&self) -> MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a client is not told bytes behind lines.
const NO_BYTES: &str =
    "bytes behind lines are for a connection of JSON lines without `grace`: leave `bytes` out";

fn not_joined(group: &str) -> Failure {
    let reason = format!("this client has not joined {}: join it first", shortened(group));
    Failure::nothing_done(Code::NotHeld, reason)
}

fn unavailable(reason: &str) -> Failure {
    Failure::nothing_done(Code::Unavailable, reason)
}

fn refused(reason: String) -> Failure {
    Failure::nothing_done(Code::Refused, reason)
}

/// Why a group cannot be joined.
pub(crate) fn of_join(error: &Error) -> Failure {
    match error {
        Error::Config(_) | Error::GroupRefused { .. } => refused(error.to_string()),
        other => unavailable(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use antiphon::memory::MemoryNetwork;
    use antiphon_api::blocks::Id;

    use super::*;
    use crate::testing::Agent;

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_session_says_right_behind_its_join_is_not_refused() {
        let agent = Agent::alone().await;
        let (session, mut told) = agent.hub.session().unwrap();
        for number in 0..20 {
            let group = format!("g{number}");
            for line in [
                format!(r#"{{"join":{{"group":"{group}"}}}}"#),
                format!(r#"{{"send":{{"group":"{group}","payload":"at once"}}}}"#),
            ] {
                session.obey(Command::parse(&line).unwrap()).await;
            }
            loop {
                match told.next().await {
                    Some(Event::Message { .. }) => break,
                    Some(Event::Refused { reason, .. }) => panic!("{reason}"),
                    _ => {}
                }
            }
        }
    }

    #[tokio::test]
    async fn without_a_majority_what_is_said_behind_a_join_is_refused_and_holds_up_no_more() {
        let network = MemoryNetwork::new();
        let agent = Agent::start(&network, 2, false).await;
        let (session, mut told) = agent.hub.session().unwrap();
        let say = async |line: &str| session.obey(Command::parse(line).unwrap()).await;
        let all = async {
            say(r#"{"join":{"group":"g"}}"#).await;
            for id in 1..=50 {
                say(&format!(r#"{{"send":{{"group":"g","payload":"x","id":{id}}}}}"#)).await;
            }
            say(r#"{"leave":{"group":"g","id":51}}"#).await;
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
        let mut refused = 0;
        while let Some(event) = told.next().await {
            match event {
                Event::Reply(reply) if reply.id == Some(Id::Number(51)) => break,
                Event::Reply(reply) if reply.error.is_some() => refused += 1,
                _ => {}
            }
        }
        assert_eq!(refused, 50);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_that_joins_ever_other_groups_keeps_nothing_of_those_that_it_has_left() {
        let agent = Agent::alone().await;
        let (session, mut told) = agent.hub.session().unwrap();
        for number in 0..20 {
            let group = format!("g{number}");
            for word in ["join", "leave"] {
                let line = format!("{{\"{word}\":{{\"group\":\"{group}\"}}}}");
                session.obey(Command::parse(&line).unwrap()).await;
            }
            while !matches!(told.next().await, Some(Event::GroupLeft { .. })) {}
        }
        let kept = session.inside().followed.len();
        assert!(kept < 5, "{kept}");
    }
}
