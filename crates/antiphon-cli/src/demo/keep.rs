//! What the nodes keep together: a map, whose entries outlive the nodes that wrote them, and a lock, which
//! goes on to a node that waits when its holder dies.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_api::blocks::{Get, Id, Lock, Put, Reply, Value};
use antiphon_api::{Command, Event, Payload};
use antiphon_lab::{Process, Trace};
use serde_json::json;

use super::cast::ms;
use super::screen::Tone;
use super::story::{PATIENCE, Story};
use crate::exit::Failed;

/// The map, and the lock.
const NAME: &str = "demo";

/// What was written and granted so far.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Every entry that was replied to as written.
    entries: BTreeMap<String, String>,
    /// The grants of the lock, in their order: the fencing token, and the node.
    pub(super) grants: Vec<(u64, String)>,
    /// The last id that a node was asked with.
    asked: u64,
    /// Entries that a node did not find any more.
    pub(super) lost: u64,
    /// Longest from the death of a holder to the next grant.
    pub(super) lock_moved: Option<Duration>,
}

impl Kept {
    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    /// How many grants have a token that is not above all those before.
    pub(super) fn stale(&self) -> u64 {
        let falls = |pair: &&[(u64, String)]| pair[0].0 >= pair[1].0;
        self.grants.windows(2).filter(falls).count() as u64
    }
}

impl Story<'_> {
    /// Every node writes an entry of its own; one holds the lock, and all others wait for it.
    pub(super) fn keep(&mut self) -> Result<(), Failed> {
        self.act(
            "keep",
            "every node writes an entry of a map, the elder takes a lock, and all others wait for it",
        );
        for actor in self.alive() {
            self.write(&actor, actor.name(), "was here")?;
        }
        let elder = self.elder()?;
        self.want_lock(&elder);
        let token = self.granted()?.0;
        for actor in self.alive().iter().filter(|actor| actor.name() != elder.name()) {
            self.want_lock(actor);
        }
        self.good(
            "kept",
            &format!(
                "{} entries are written, {} holds the lock with token {token}",
                self.kept.entries(),
                elder.name()
            ),
            json!({"entries": self.kept.entries(), "holder": elder.name(), "token": token}),
        );
        Ok(())
    }

    /// A node writes an entry: it is done when all that are there have it.
    pub(super) fn write(&mut self, actor: &Process, key: &str, value: &str) -> Result<(), Failed> {
        let id = self.next_id();
        actor.ask(&Command::Put(Put {
            map: NAME.to_owned(),
            key: key.to_owned(),
            value: Payload::Text(value.to_owned()),
            if_version: None,
            ttl: None,
            id: Some(Id::Number(id)),
        }));
        let reply = self.reply(actor, id, &format!("{} to write an entry", actor.name()))?;
        if let Some(error) = reply.error {
            let reason = error.reason;
            return Err(Failed::run(format!("{} could not write: {reason}", actor.name())));
        }
        self.kept.entries.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// A node will have the lock when those before it are done or dead.
    pub(super) fn want_lock(&mut self, actor: &Process) {
        let id = self.next_id();
        actor.ask(&Command::Lock(Lock {
            name: NAME.to_owned(),
            within: None,
            id: Some(Id::Number(id)),
        }));
    }

    /// Who holds the lock, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        self.kept.grants.last().map(|(_, node)| node.as_str())
    }

    /// If the node that died, or is in the minority, had the lock, another one has it now.
    pub(super) fn lock_goes_on(&mut self, gone: &[String], since: Duration) -> Result<(), Failed> {
        let Some(before) = self
            .holder()
            .filter(|holder| gone.iter().any(|name| name == holder))
        else {
            return Ok(());
        };
        let before = before.to_owned();
        let (token, holder, at) = self.granted()?;
        let took = at.saturating_sub(since);
        self.kept.lock_moved = self.kept.lock_moved.max(Some(took));
        self.good(
            "lock",
            &format!(
                "the lock went from {before} to {holder} after {} ms, with the greater token {token}",
                ms(took)
            ),
            json!({"from": before, "to": holder, "ms": ms(took), "token": token}),
        );
        Ok(())
    }

    /// The next grant of the lock: its token, the node, and when that said so.
    fn granted(&mut self) -> Result<(u64, String, Duration), Failed> {
        let known = self.kept.grants.clone();
        let next = |trace: &Trace| {
            trace.runs.iter().filter(|run| run.stays()).find_map(|run| {
                run.events.iter().find_map(|(at, event)| match event {
                    Event::Reply(Reply {
                        op,
                        token: Some(token),
                        ..
                    }) if op == "lock" => {
                        let grant = (token.0, run.name.clone());
                        (!known.contains(&grant)).then(|| (token.0, run.name.clone(), *at))
                    }
                    _ => None,
                })
            })
        };
        let grant = self.expect("a node to be granted the lock", next)?;
        self.kept.grants.push((grant.0, grant.1.clone()));
        Ok(grant)
    }

    /// A node reads all that was ever written.
    pub(super) fn find_all(&mut self, actor: &Process) -> Result<(), Failed> {
        let mut lost = 0;
        for (key, value) in self.kept.entries.clone() {
            let found = self.read(actor, &key)?;
            if found != Some(Value::Bytes(Payload::Text(value))) {
                lost += 1;
                let text = format!("{} finds {found:?} for {key}", actor.name());
                self.screen.tell(Tone::Bad, "map", &text, json!({"key": key}));
            }
        }
        self.kept.lost = self.kept.lost.max(lost);
        if lost == 0 {
            let (name, entries) = (actor.name(), self.kept.entries());
            self.good(
                "map",
                &format!("{name} reads all {entries} entries of the map"),
                json!({"node": name, "entries": entries}),
            );
        }
        Ok(())
    }

    /// A node reads an entry, with all that was replied to any node before.
    fn read(&mut self, actor: &Process, key: &str) -> Result<Option<Value>, Failed> {
        let begun = self.stage.now();
        loop {
            let id = self.next_id();
            actor.ask(&Command::Get(Get {
                map: NAME.to_owned(),
                key: key.to_owned(),
                latest: true,
                id: Some(Id::Number(id)),
            }));
            let reply = self.reply(actor, id, &format!("{} to read an entry", actor.name()))?;
            // A node that has just come back takes the state over first: what it was asked meanwhile it may
            // have to be asked again.
            match reply.error {
                Some(error) if self.stage.now() - begun > PATIENCE => {
                    let (name, reason) = (actor.name(), error.reason);
                    return Err(Failed::run(format!("{name} could not read {key}: {reason}")));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
                None => return Ok(reply.value),
            }
        }
    }

    fn next_id(&mut self) -> u64 {
        self.kept.asked += 1;
        self.kept.asked
    }

    fn reply(&self, actor: &Process, id: u64, what: &str) -> Result<Reply, Failed> {
        let (run, id) = (actor.run(), Some(Id::Number(id)));
        self.expect(what, |trace| {
            trace.runs[run].events.iter().find_map(|(_, event)| match event {
                Event::Reply(reply) if reply.id == id => Some(reply.clone()),
                _ => None,
            })
        })
    }
}
