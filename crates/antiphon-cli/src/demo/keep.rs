//! What the nodes keep together: a map and a lock. The map's entries outlive the nodes that wrote them. When
//! the holder of the lock dies, the lock goes on to a node that waits.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_api::blocks::{Get, Id, Lead, Lock, Put, Reply, Serial, Value};
use antiphon_api::{Command, Event, Payload};
use antiphon_lab::{Process, Trace};
use serde_json::json;

use super::cast::ms;
use super::screen::Tone;
use super::story::{PATIENCE, Story};
use crate::exit::Failed;

/// The map, and the lock.
const NAME: &str = "demo";

/// What was written and asked so far.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Every entry that was replied to as written.
    entries: BTreeMap<String, String>,
    /// The id with which each node wanted the lock last.
    wanted: BTreeMap<String, u64>,
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
}

/// A grant of the lock.
#[derive(Debug)]
pub(super) struct Grant {
    /// The fencing token.
    token: u64,
    node: String,
    /// When the node said so.
    at: Duration,
}

/// All grants of the lock, in their order.
pub(super) fn grants(trace: &Trace) -> Vec<Grant> {
    let mut grants = Vec::new();
    for run in &trace.runs {
        grants.extend(run.events.iter().filter_map(|(at, event)| match event {
            Event::Reply(Reply {
                op,
                token: Some(Serial(token)),
                ..
            }) if op == "lock" => Some(Grant {
                token: *token,
                node: run.name.clone(),
                at: *at,
            }),
            _ => None,
        }));
    }
    grants.sort_by_key(|grant| grant.at);
    grants
}

/// How many grants have a token that is not above that of the one before.
pub(super) fn stale(grants: &[Grant]) -> u64 {
    grants
        .windows(2)
        .filter(|pair| pair[0].token >= pair[1].token)
        .count() as u64
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
        let token = self.granted(Duration::ZERO)?.token;
        let others = self.alive();
        for actor in others.iter().filter(|actor| actor.name() != elder.name()) {
            self.want_lock(actor);
            self.stand_in_line(actor)?;
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
        self.kept.wanted.insert(actor.name().to_owned(), id);
        actor.ask(&Command::Lock(Lock {
            name: NAME.to_owned(),
            within: None,
            id: Some(Id::Number(id)),
        }));
    }

    /// Waits until a node has a copy of the table of locks, with its own wait in it: then the table outlives
    /// all others. A job that nobody else wants is granted behind the wait.
    fn stand_in_line(&mut self, actor: &Process) -> Result<(), Failed> {
        let id = self.next_id();
        actor.ask(&Command::Lead(Lead {
            name: actor.name().to_owned(),
            id: Some(Id::Number(id)),
        }));
        self.reply(actor, id, &format!("{} to wait for the lock", actor.name()))?;
        Ok(())
    }

    /// Each node that has lost the lock, or its place among those that wait, wants it again.
    pub(super) fn line_up(&mut self) {
        for actor in self.alive() {
            let wanted = self.kept.wanted.get(actor.name()).copied().map(Id::Number);
            let lost = |event: &Event| match event {
                Event::Reply(reply) => reply.error.is_some() && reply.id == wanted,
                Event::Lost(lost) => lost.id == wanted,
                _ => false,
            };
            if actor.look(|run| run.said(lost)) {
                self.want_lock(&actor);
            }
        }
    }

    /// If the node that died, or is in the minority, had the lock, another one has it now.
    pub(super) fn lock_goes_on(&mut self, gone: &[String], since: Duration) -> Result<(), Failed> {
        let had = self.look(grants).into_iter().rfind(|grant| grant.at < since);
        let Some(before) = had.filter(|grant| gone.contains(&grant.node)) else {
            return Ok(());
        };
        // On a busy machine also those that wait may have lost their leases.
        self.line_up();
        let Grant { token, node, at } = self.granted(since)?;
        let (before, took) = (before.node, at - since);
        self.kept.lock_moved = self.kept.lock_moved.max(Some(took));
        self.good(
            "lock",
            &format!(
                "the lock went from {before} to {node} after {} ms, with the greater token {token}",
                ms(took)
            ),
            json!({"from": before, "to": node, "ms": ms(took), "token": token}),
        );
        Ok(())
    }

    /// The first grant of the lock since then.
    fn granted(&self, since: Duration) -> Result<Grant, Failed> {
        self.expect("a node to be granted the lock", |trace| {
            grants(trace).into_iter().find(|grant| grant.at >= since)
        })
    }

    /// Which node holds the lock.
    pub(super) fn holder(&self) -> Result<String, Failed> {
        self.expect("a node to hold the lock", |trace| {
            let Grant { token, node, .. } = grants(trace).pop()?;
            let lost =
                |event: &Event| matches!(event, Event::Lost(lost) if lost.token == Some(Serial(token)));
            (!trace.last(&node).said(lost)).then_some(node)
        })
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
