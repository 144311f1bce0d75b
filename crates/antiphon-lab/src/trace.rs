//! What every process of a story said, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use antiphon_api::blocks::{Failure, Id, Kind, Lost, Reply, To};
use antiphon_api::{Event, NodeView, Payload, View};

use crate::mouth::Mouth;

/// Everything that happened in one story.
#[derive(Debug, Default)]
pub struct Trace {
    /// One entry per process ever started, in order of starting.
    pub runs: Vec<Run>,
}

/// One process, from start to end.
#[derive(Debug, Default)]
pub struct Run {
    /// The node's name.
    pub name: String,
    /// The how-manieth process of this name, from 0.
    pub start: usize,
    /// When it was started.
    pub began: Duration,
    /// What it said, with the time since the story's beginning. Payloads are texts here: what was in a file,
    /// its [`fingerprint`]. Of an agent also what its program was told: between the two there is no order.
    pub events: Vec<(Duration, Event)>,
    /// Lines of its standard output that are no event.
    pub garbage: Vec<String>,
    /// Its standard error.
    pub log: Vec<String>,
    /// What it was told to send, in order.
    pub sent: Vec<Said>,
    /// What it was to tell single members, in order.
    pub told: Vec<Tells>,
    /// What it was to call, in order.
    pub called: Vec<Called>,
    /// When it was frozen and thawed.
    pub frozen: Vec<(Duration, Option<Duration>)>,
    /// When its end was noticed.
    pub ended: Option<Duration>,
    /// Whether its groups are scoped: then it sends in one scope after the other.
    pub scoped: bool,
    /// Whether the story killed it.
    pub killed: bool,
    /// Whether it was told to leave after all that it was told to send.
    pub dismissed: bool,
    /// Whether the process was seen to be gone.
    pub(crate) dead: bool,
    /// Takes what the node is told; nobody once it is on its way out.
    pub(crate) mouth: Option<Arc<Mouth>>,
    /// What the program of an agent is called in groups, once it was welcome.
    pub(crate) client: Option<String>,
    pub(crate) incarnation: String,
    pub(crate) addr: String,
    pub(crate) node_view: Option<(Duration, NodeView)>,
    pub(crate) views: BTreeMap<String, (Duration, View)>,
    pub(crate) delivered: BTreeMap<String, Vec<String>>,
    /// How many of its own messages it has delivered.
    pub(crate) own: usize,
    /// Its calls that were replied to.
    pub(crate) replied: BTreeSet<String>,
    /// How many events were there before the program of an agent was welcome.
    pub(crate) welcome_at: usize,
}

/// A message that a process was told to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// To which group.
    pub group: String,
    /// What stands for its payload in the trace. That of one name is never the same twice.
    pub what: String,
    /// In which scope.
    pub scope: Option<u32>,
    /// Whether it is so large that messages may pass it.
    pub object: bool,
    /// How many events the process had told before.
    pub heard: usize,
}

/// A message that a process was to tell one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tells {
    /// In which group.
    pub group: String,
    /// The member.
    pub to: String,
    /// Its payload. That of one name is never the same twice.
    pub what: String,
    /// How many events the process had told before.
    pub heard: usize,
}

/// A call that a process was to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Called {
    /// In which group.
    pub group: String,
    /// Which members it asks.
    pub to: To,
    /// Its payload, and the id of its reply. That of one name is never the same twice.
    pub what: String,
    /// How many events the process had told before.
    pub heard: usize,
}

impl Trace {
    /// The latest process of a name.
    ///
    /// # Panics
    /// If there was none.
    pub fn last(&self, name: &str) -> &Run {
        let last = self.runs.iter().rev().find(|run| run.name == name);
        last.unwrap_or_else(|| panic!("no process was started for {name}"))
    }

    /// The same, to write in its books.
    ///
    /// # Panics
    /// If there was none.
    pub fn last_mut(&mut self, name: &str) -> &mut Run {
        let last = self.runs.iter_mut().rev().find(|run| run.name == name);
        last.unwrap_or_else(|| panic!("no process was started for {name}"))
    }

    /// Since when all of these have been in one same primary node view of exactly them; `None` if they are
    /// not.
    pub fn together_since(&self, names: &[&str]) -> Option<Duration> {
        let views = names.iter().map(|name| self.last(name).node_view.as_ref());
        let views = views.collect::<Option<Vec<_>>>()?;
        let same = |view: &NodeView| {
            view.primary
                && view.id == views[0].1.id
                && view.members.len() == names.len()
                && names
                    .iter()
                    .all(|name| view.members.iter().any(|m| m.name == *name))
        };
        views.iter().all(|(_, view)| same(view)).then_some(())?;
        views.iter().map(|(at, _)| *at).max()
    }

    /// The same in a view of the group, of which they, or their programs, are the members.
    pub fn together_in_since(&self, group: &str, names: &[&str]) -> Option<Duration> {
        let views = names.iter().map(|name| self.last(name).views.get(group));
        let views = views.collect::<Option<Vec<_>>>()?;
        let same = |view: &View| {
            view.id == views[0].1.id
                && view.members.len() == names.len()
                && names
                    .iter()
                    .all(|name| view.members.iter().any(|m| m == self.last(name).member()))
        };
        views.iter().all(|(_, view)| same(view)).then_some(())?;
        views.iter().map(|(at, _)| *at).max()
    }

    /// Whether all of these have installed one same primary node view of exactly them.
    pub fn together(&self, names: &[&str]) -> bool {
        names.is_empty() || self.together_since(names).is_some()
    }

    /// Whether all of these have installed one same view of the group with exactly them.
    pub fn together_in(&self, group: &str, names: &[&str]) -> bool {
        names.is_empty() || self.together_in_since(group, names).is_some()
    }
}

impl Run {
    /// Writes down what it said.
    pub fn record(&mut self, at: Duration, event: Event) {
        match &event {
            Event::Ready {
                incarnation, addr, ..
            } => {
                self.incarnation.clone_from(incarnation);
                self.addr.clone_from(addr);
            }
            Event::Incarnation { incarnation } => {
                self.incarnation.clone_from(incarnation);
                self.node_view = None;
                self.views.clear();
            }
            Event::NodeView(view) => self.node_view = Some((at, view.clone())),
            Event::View(view) => {
                self.views.insert(view.group.clone(), (at, view.clone()));
            }
            // No member any more until the next view.
            Event::Suspended { group }
            | Event::Resync { group, .. }
            | Event::Lost(Lost {
                what: Kind::Group,
                name: group,
                ..
            }) => {
                self.views.remove(group);
            }
            // A new client, which is in no group.
            Event::Reply(Reply {
                welcome: Some(welcome),
                ..
            }) => {
                self.client = Some(format!("{}/{}", welcome.node, welcome.client));
                self.welcome_at = self.events.len();
                self.views.clear();
            }
            Event::Message(message) => {
                self.own += usize::from(message.sender == self.member());
                let payload = text_of(&message.payload).to_owned();
                self.delivered
                    .entry(message.group.clone())
                    .or_default()
                    .push(payload);
            }
            Event::Reply(Reply {
                op,
                id: Some(Id::Text(what)),
                ..
            }) if op == "call" => {
                self.replied.insert(what.clone());
            }
            _ => {}
        }
        self.events.push((at, event));
    }

    /// What it is called in groups: by its name, or, if it is an agent, by that of its program there.
    pub fn member(&self) -> &str {
        self.client.as_deref().unwrap_or(&self.name)
    }

    /// Its present incarnation; empty before it is ready.
    pub fn incarnation(&self) -> &str {
        &self.incarnation
    }

    /// Where it listens; empty before it is ready.
    pub fn addr(&self) -> &str {
        &self.addr
    }

    /// The latest node view.
    pub fn node_view(&self) -> Option<&NodeView> {
        self.node_view.as_ref().map(|(_, view)| view)
    }

    /// When it came.
    pub fn node_view_at(&self) -> Option<Duration> {
        self.node_view.as_ref().map(|(at, _)| *at)
    }

    /// Whether it believes that it is part of the primary.
    pub fn primary(&self) -> bool {
        self.node_view().is_some_and(|view| view.primary)
    }

    /// The latest view of a group; `None` while this node is no member that can send.
    pub fn view(&self, group: &str) -> Option<&View> {
        self.views.get(group).map(|(_, view)| view)
    }

    /// Whether it was neither killed nor told to leave, and has not ended.
    pub fn stays(&self) -> bool {
        !self.killed && !self.dismissed && !self.dead && self.ended.is_none()
    }

    /// All payloads delivered in a group, in order.
    pub fn delivered(&self, group: &str) -> &[String] {
        self.delivered.get(group).map_or(&[], Vec::as_slice)
    }

    /// How many of its own messages it has delivered.
    pub fn own(&self) -> usize {
        self.own
    }

    /// The payloads that it was told to send, to all or to one, and refused.
    pub fn refused(&self) -> BTreeSet<&str> {
        let requests = self.events.iter().filter_map(|(_, event)| match event {
            Event::Error { request, .. } => Some(request),
            Event::Refused { request, .. } => request.as_ref(),
            _ => None,
        });
        requests
            .filter_map(|request| {
                let to_all = request.pointer("/send/payload");
                to_all.or_else(|| request.pointer("/tell/payload"))?.as_str()
            })
            .collect()
    }

    /// What an agent's program was told of the payloads that it was to send: that they were delivered, or why
    /// not. Each send has its payload as its id.
    pub fn fates(&self) -> BTreeMap<&str, Option<&Failure>> {
        let fates = self.events.iter().filter_map(|(_, event)| match event {
            Event::Reply(Reply {
                op,
                id: Some(Id::Text(what)),
                error,
                ..
            }) if op == "send" => Some((what.as_str(), error.as_ref())),
            _ => None,
        });
        fates.collect()
    }

    /// What it was told of its calls: what each was, and the reply. Each call has its payload as its id.
    pub fn replies_to_calls(&self) -> impl Iterator<Item = (&str, &Reply)> {
        self.events.iter().filter_map(|(_, event)| match event {
            Event::Reply(reply) if reply.op == "call" => match &reply.id {
                Some(Id::Text(what)) => Some((what.as_str(), reply)),
                _ => None,
            },
            _ => None,
        })
    }

    /// Its calls that had no reply yet. Those of an earlier program of an agent are not among them: they
    /// ended with its connection.
    pub fn open_calls(&self) -> impl Iterator<Item = &Called> {
        let here = |called: &&Called| called.heard > self.welcome_at && !self.replied.contains(&called.what);
        self.called.iter().filter(here)
    }

    /// Whether an event of this kind came.
    pub fn said(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(|(_, event)| wanted(event))
    }

    /// When the first event of this kind came, at or after a moment.
    pub fn when(&self, from: Duration, wanted: impl Fn(&Event) -> bool) -> Option<Duration> {
        self.events
            .iter()
            .find(|(at, event)| *at >= from && wanted(event))
            .map(|(at, _)| *at)
    }

    /// One line about its state, for people.
    pub fn summary(&self) -> String {
        let view = self.node_view().map_or("no node view".to_owned(), |view| {
            let kind = if view.primary { "primary" } else { "non-primary" };
            format!("{kind} {:?} {:?}", view.id, view.names())
        });
        let groups: Vec<_> = self
            .views
            .values()
            .map(|(_, v)| format!("{} {} {:?}", v.group, v.id, v.members))
            .collect();
        let delivered: Vec<_> = self
            .delivered
            .iter()
            .map(|(group, all)| format!("{group} {}", all.len()))
            .collect();
        let state = match (self.ended, self.frozen.last()) {
            (Some(at), _) => format!("ended at {at:.1?}"),
            (None, Some((_, None))) => "frozen".to_owned(),
            _ => "running".to_owned(),
        };
        format!(
            "{}#{} {state}: {view}; groups {groups:?}; delivered {delivered:?} of own {}",
            self.name,
            self.start,
            self.sent.len()
        )
    }
}

/// A payload as it stands in a line.
pub fn text_of(payload: &Payload) -> &str {
    match payload {
        Payload::Text(text) | Payload::Binary { base64: text } | Payload::File { file: text, .. } => text,
        Payload::Behind { .. } => "",
    }
}

/// The length and a hash of a file: what stands for a payload that is too large for a line.
///
/// # Errors
/// It cannot be read.
pub fn fingerprint(path: &Path) -> Result<String, String> {
    let content = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(&content);
    Ok(format!("{} bytes, {:016x}", content.len(), hasher.finish()))
}
