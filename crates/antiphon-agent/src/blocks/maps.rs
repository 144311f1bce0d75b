//! Maps: keys are texts, values are bytes, both as they are.

use std::fmt;
use std::sync::Arc;

use antiphon::Cluster;
use antiphon::replicated::map::{
    Changed as MapChanged, Entry, MapMachine, Now, Options, Refused, State, Watch, Write, Written,
};
use antiphon::replicated::{
    ReadError, ReplicaEvent, ReplicaEvents, Replicable, Replicated, Version, WriteError,
};
use antiphon_api::blocks::{
    self, Changed, Code, Failure, Id, Kind, Lost, Ran, Reply, Serial, Value, Watching,
};
use antiphon_api::{Command, Event, Payload};
use bytes::Bytes;

use super::begun::Copies;
use super::desk::{Desk, Operation};
use super::failure::{not_done, of_read, of_replica, of_write};
use super::worker::{Block, Job};
use super::writes::key_of;

/// What the bytes are, as a part of the map's definition.
const MEANING: &str = "text -> bytes 1";

/// One map.
#[derive(Clone)]
pub(super) struct MapBlock {
    name: Arc<str>,
    machine: Replicated<MapMachine>,
    copies: Copies,
}

/// This node's copy of one map.
#[derive(Debug, Clone)]
pub(crate) struct MapCopy(pub(super) Replicated<MapMachine>);

impl MapCopy {
    /// The value of a key. It fails while this member does not serve; then the map's worker says why.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<(Bytes, Serial)>, ReadError> {
        self.0.read(|machine| {
            let entry = machine.get(key);
            entry.map(|entry| (entry.value.clone(), serial(entry.version)))
        })
    }

    /// How many members hold the map, this one included.
    pub(crate) fn members(&self) -> usize {
        self.0.members().len()
    }
}

impl fmt::Debug for MapBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MapBlock").field(&self.name).finish()
    }
}

impl MapBlock {
    pub(super) async fn join(
        cluster: Cluster,
        group: String,
        name: String,
        copies: Copies,
    ) -> Result<Self, Failure> {
        let make = || MapMachine::new(Options::default()).of(MEANING);
        let started = cluster.replicated(group.clone(), make).start().await;
        let machine = started.map_err(|error| of_replica(&error))?;
        copies.keep_status(group, machine.watch_status());
        machine.joined().await.map_err(|error| of_replica(&error))?;
        copies.keep_map(name.clone(), machine.clone());
        Ok(Self {
            name: name.into(),
            machine,
            copies,
        })
    }

    async fn reply(&self, command: &Command, data: &Bytes) -> Result<Reply, Failure> {
        match command {
            Command::Put(put) => self.write(WriteAsked::put(put, data.clone())).await,
            Command::Remove(remove) => self.write(WriteAsked::remove(remove)).await,
            Command::Get(get) => {
                let read = |machine: &MapMachine| machine.get(get.key.as_bytes()).cloned();
                let entry = match get.latest {
                    true => Box::pin(self.machine.read_latest(read)).await,
                    false => self.machine.read(read),
                };
                Ok(found(entry.map_err(|error| of_read(&error))?))
            }
            other => unreachable!("nothing that is asked of a map: {other:?}"),
        }
    }

    async fn write(&self, asked: WriteAsked) -> Result<Reply, Failure> {
        answered(self.machine.write(asked.write.into()).await, asked.done)
    }

    /// Tells what is there and how it changes, until it is cancelled or the map is of no use here.
    async fn watch(self, watch: blocks::Watch, mut operation: Operation) {
        let wanted = match (watch.key, watch.prefix) {
            (Some(key), _) => Watch::Key(key.into()),
            (None, Some(prefix)) => Watch::Prefix(prefix.into()),
            (None, None) => Watch::All,
        };
        let from_here = |machine: &MapMachine| machine.state().clone();
        let (state, events) = match self.machine.read_and_follow(from_here) {
            Ok(begun) => begun,
            Err(error) => {
                operation.reply(not_done(of_read(&error))).await;
                return;
            }
        };
        operation.reply_and_go_on(Reply::default()).await;
        let (id, desk) = (operation.id(), operation.desk().clone());
        let cause = tokio::select! {
            biased;
            () = operation.cancelled() => None,
            cause = self.tell(&desk, &wanted, state, events, &id) => Some(cause),
        };
        operation.end();
        if let Some(cause) = cause {
            let lost = Lost {
                what: Kind::Watch,
                name: self.name.to_string(),
                token: None,
                id,
                cause,
            };
            desk.print(Event::Lost(lost)).await;
        }
    }

    /// Returns why there is no more to tell.
    async fn tell(
        &self,
        desk: &Desk,
        wanted: &Watch,
        state: State,
        mut events: ReplicaEvents<MapChanged>,
        id: &Option<Id>,
    ) -> String {
        self.tell_all(desk, wanted, &state, id).await;
        drop(state);
        // The reader may have missed changes, and was not told the entries since.
        let mut behind = false;
        while let Some(event) = events.next().await {
            behind |= matches!(event, ReplicaEvent::Synced | ReplicaEvent::Lagged { .. });
            if behind {
                // It fails while this member does not serve. There is an event when it serves again.
                let from_here = |machine: &MapMachine| machine.state().clone();
                if let Ok((state, following)) = self.machine.read_and_follow(from_here) {
                    (events, behind) = (following, false);
                    // They have what this event says.
                    self.tell_all(desk, wanted, &state, id).await;
                    continue;
                }
            }
            if let ReplicaEvent::Machine { event, .. } = event
                && wanted.matches(&event.key)
            {
                desk.print(self.change(event, id)).await;
            }
        }
        "this node is not a member of the map any more: watch it again".to_owned()
    }

    async fn tell_all(&self, desk: &Desk, wanted: &Watch, state: &State, id: &Option<Id>) {
        let there = || state.iter().filter(|(key, _)| wanted.matches(key));
        let watching = Watching {
            map: self.name.to_string(),
            id: id.clone(),
            entries: there().count(),
        };
        desk.print(Event::Watching(watching)).await;
        for (key, entry) in there() {
            let line = self.changed(key, id, Some(&entry.value), entry.version, None);
            desk.print(line).await;
        }
    }

    fn change(&self, changed: MapChanged, id: &Option<Id>) -> Event {
        let gone = match changed.now {
            Now::Written(entry) => {
                return self.changed(&changed.key, id, Some(&entry.value), entry.version, None);
            }
            Now::Removed => "removed",
            Now::Expired => "expired",
            Now::Evicted => "evicted",
        };
        self.changed(&changed.key, id, None, changed.version, Some(gone))
    }

    fn changed(
        &self,
        key: &[u8],
        id: &Option<Id>,
        value: Option<&Bytes>,
        version: Version,
        gone: Option<&str>,
    ) -> Event {
        Event::Changed(Changed {
            map: self.name.to_string(),
            id: id.clone(),
            // All members say that keys are texts.
            key: String::from_utf8_lossy(key).into_owned(),
            value: value.map(|value| Payload::from_bytes(value)),
            version: serial(version),
            gone: gone.map(str::to_owned),
        })
    }
}

/// A write, and its reply if it happens.
pub(super) struct WriteAsked {
    pub(super) write: Write,
    pub(super) done: fn(Written) -> Reply,
}

impl WriteAsked {
    pub(super) fn put(put: &blocks::Put, value: Bytes) -> Self {
        let write = Write::put(put.key.clone(), value);
        let write = match put.ttl {
            Some(ttl) => write.expiring(ttl.0),
            None => write,
        };
        let done = |written: Written| Reply {
            version: written.new.map(|entry| serial(entry.version)),
            ..Reply::default()
        };
        Self::on(write, put.if_version, done)
    }

    pub(super) fn remove(remove: &blocks::Remove) -> Self {
        let write = Write::remove(remove.key.clone());
        Self::on(write, remove.if_version, |written| found(written.old))
    }

    fn on(write: Write, if_version: Option<Serial>, done: fn(Written) -> Reply) -> Self {
        let write = match if_version {
            None => write,
            // No entry has this version.
            Some(Serial(0)) => write.if_absent(),
            Some(Serial(version)) => write.if_version(Version(version)),
        };
        Self { write, done }
    }
}

/// What is replied to a command of one write.
pub(super) fn answered(
    written: Result<Result<Vec<Written>, Refused>, WriteError>,
    done: fn(Written) -> Reply,
) -> Result<Reply, Failure> {
    match written.map_err(|error| of_write(&error))? {
        // It has one result.
        Ok(written) => Ok(written.into_iter().next().map(done).unwrap_or_default()),
        Err(Refused::Condition { found, .. }) => {
            let there = found.map_or("no value".to_owned(), |version| format!("version {version}"));
            // Each carrier calls it something else.
            let reason = format!("the condition does not hold: the key has {there}; get it, and decide anew");
            Ok(Reply {
                version: found.map(serial),
                ..not_done(Failure::nothing_done(Code::Conflict, reason))
            })
        }
        Err(refused) => Err(Failure::nothing_done(Code::Refused, refused.to_string())),
    }
}

impl Block for MapBlock {
    fn begin(&self, job: Job) -> impl Future<Output = ()> + Send + 'static {
        let this = self.clone();
        async move {
            let Job {
                mut operation,
                command,
                data,
            } = job;
            if let Command::Watch(watch) = command {
                // It takes much memory, and each operation would.
                return Box::pin(this.watch(watch, operation)).await;
            }
            let writes = operation.desk().writes().clone();
            let begin = |key: &str| (Ran::Maybe, Some(writes.begin(key_of(&this.name, key.as_bytes()))));
            // With the first poll, which comes in the order of the lines.
            let (ran, writing) = match &command {
                Command::Put(put) => begin(&put.key),
                Command::Remove(remove) => begin(&remove.key),
                _ => (Ran::No, None),
            };
            let work = async {
                if let Command::Get(get) = &command {
                    let key = key_of(&this.name, get.key.as_bytes());
                    writes.until_earlier_are_over(key).await;
                }
                this.reply(&command, &data).await
            };
            let done = operation.wait(ran, work).await;
            drop(writing);
            let reply = done.and_then(|done| done).unwrap_or_else(not_done);
            operation.reply(reply).await;
        }
    }

    async fn ended(&self) -> Failure {
        until_of_no_use(&self.machine).await
    }

    async fn leave(&self) {
        self.copies.forget_map(&self.name);
        self.machine.leave().await;
    }
}

/// Returns, with the reason, when this member cannot serve any more as it is. Then it leaves, and the next
/// operation joins again.
pub(super) async fn until_of_no_use<M: Replicable>(machine: &Replicated<M>) -> Failure {
    let mut events = machine.events();
    let why = loop {
        match events.next().await {
            Some(ReplicaEvent::StateLost) => break "all nodes that had its state are gone",
            Some(ReplicaEvent::Diverged { here: true, .. }) => {
                break "its state here differs from the others'";
            }
            Some(_) => {}
            None => break "this node has left its group",
        }
    };
    Failure::nothing_done(
        Code::Unavailable,
        format!("{why}: try again, which joins it anew"),
    )
}

fn found(entry: Option<Entry>) -> Reply {
    Reply {
        value: Some(match &entry {
            Some(entry) => Value::Bytes(Payload::from_bytes(&entry.value)),
            None => Value::Nothing,
        }),
        version: entry.map(|entry| serial(entry.version)),
        ..Reply::default()
    }
}

fn serial(version: Version) -> Serial {
    Serial(version.0)
}
