//! What every process of a story said, and when.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::event::{Event, NodeView, View};

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
    /// What it said, with the time since the story's beginning.
    pub events: Vec<(Duration, Event)>,
    /// Lines of its standard output that are no event.
    pub garbage: Vec<String>,
    /// Its standard error.
    pub log: Vec<String>,
    /// The payloads it was told to send, with the group, in order.
    pub sent: Vec<(String, String)>,
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
    pub(crate) mouth: Option<Sender<String>>,
    pub(crate) incarnation: String,
    pub(crate) node_view: Option<NodeView>,
    pub(crate) views: BTreeMap<String, View>,
    pub(crate) delivered: BTreeMap<String, Vec<String>>,
    /// How many of its own messages it has delivered.
    pub(crate) own: usize,
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

    pub(crate) fn last_mut(&mut self, name: &str) -> &mut Run {
        let last = self.runs.iter_mut().rev().find(|run| run.name == name);
        last.unwrap_or_else(|| panic!("no process was started for {name}"))
    }

    /// Whether all of these have installed one same primary node view of exactly them.
    pub fn together(&self, names: &[&str]) -> bool {
        let mut expected: Vec<_> = names.to_vec();
        expected.sort_unstable();
        let views: Vec<_> = names
            .iter()
            .map(|name| self.last(name).node_view.as_ref())
            .collect();
        views.iter().all(|view| {
            view.is_some_and(|v| v.primary && v.names() == expected && Some(&v.id) == views[0].map(|f| &f.id))
        })
    }

    /// Whether all of these have installed one same view of the group with exactly them.
    pub fn together_in(&self, group: &str, names: &[&str]) -> bool {
        let views: Vec<_> = names
            .iter()
            .map(|name| self.last(name).views.get(group))
            .collect();
        views.iter().all(|view| {
            view.is_some_and(|v| {
                v.members.len() == names.len()
                    && names.iter().all(|name| v.members.iter().any(|m| m == name))
                    && Some(&v.id) == views[0].map(|f| &f.id)
            })
        })
    }
}

impl Run {
    pub(crate) fn record(&mut self, at: Duration, event: Event) {
        match &event {
            Event::Ready { incarnation } | Event::Incarnation { incarnation } => {
                self.incarnation.clone_from(incarnation);
                self.node_view = None;
                self.views.clear();
            }
            Event::NodeView(view) => self.node_view = Some(view.clone()),
            Event::View(view) => {
                self.views.insert(view.group.clone(), view.clone());
            }
            // No member any more until the next view.
            Event::Suspended { group } | Event::Resync { group, .. } => {
                self.views.remove(group);
            }
            Event::Message(message) => {
                self.own += usize::from(message.sender == self.name);
                self.delivered
                    .entry(message.group.clone())
                    .or_default()
                    .push(message.payload.clone());
            }
            _ => {}
        }
        self.events.push((at, event));
    }

    /// Its present incarnation; empty before it is ready.
    pub fn incarnation(&self) -> &str {
        &self.incarnation
    }

    /// The latest node view.
    pub fn node_view(&self) -> Option<&NodeView> {
        self.node_view.as_ref()
    }

    /// Whether it believes that it is part of the primary.
    pub fn primary(&self) -> bool {
        self.node_view.as_ref().is_some_and(|view| view.primary)
    }

    /// The latest view of a group.
    pub fn view(&self, group: &str) -> Option<&View> {
        self.views.get(group)
    }

    /// All payloads delivered in a group, in order.
    pub fn delivered(&self, group: &str) -> &[String] {
        self.delivered.get(group).map_or(&[], Vec::as_slice)
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

    /// Whether it was frozen at some time between these two moments.
    pub(crate) fn frozen_between(&self, from: Duration, to: Duration) -> bool {
        self.frozen
            .iter()
            .any(|(start, end)| *start < to && end.is_none_or(|end| end > from))
    }

    /// One line about its state, for people.
    pub fn summary(&self) -> String {
        let view = self.node_view.as_ref().map_or("no node view".to_owned(), |view| {
            format!(
                "{} {:?} {:?}",
                if view.primary { "primary" } else { "non-primary" },
                view.id,
                view.names()
            )
        });
        let groups: Vec<_> = self
            .views
            .values()
            .map(|v| format!("{} {} {:?}", v.group, v.id, v.members))
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
