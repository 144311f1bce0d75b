//! The judge: reads what the nodes of a story said and names every guarantee that was broken.
//!
//! It works on *lives*: what one incarnation said, from `ready` or `incarnation` to the next or to its process's end. A
//! node's own lines and those of its groups have no order between them, so a group that a life was in ends with it at the
//! group's own `resync`, which may come after the line `incarnation`. The judge looks only at what an application could
//! see, and knows what GUARANTEES.md excepts: a frozen process believes its last view, a process that was killed owes
//! nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::event::{Event, Message, NodeView, View};
use crate::trace::{Run, Trace};

mod delivery;
mod membership;
#[cfg(test)]
mod tests;

/// What a story allows.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How long a running node may believe an old primary view after a newer one without it was decided.
    pub belief: Duration,
    /// Whether every component goes on (policy `any`): then nothing is promised of what two of them do, and an id is one within a component.
    pub any: bool,
}

impl Default for Rules {
    /// For the profile `lan`: silence is noticed after 1.5 s; the rest is for a busy machine.
    fn default() -> Self {
        Self {
            belief: Duration::from_secs(5),
            any: false,
        }
    }
}

/// One incarnation's story.
#[derive(Debug)]
struct Life<'a> {
    run: &'a Run,
    incarnation: &'a str,
    events: Vec<&'a (Duration, Event)>,
    /// When its last event's meaning ends: the next life, the process's end, or the end of all.
    end: Duration,
    /// Whether the process went on as another incarnation.
    superseded: bool,
}

impl Life<'_> {
    fn label(&self) -> String {
        let short = self.incarnation.get(..6).unwrap_or(self.incarnation);
        format!("{}#{}/{short}", self.run.name, self.run.start)
    }

    fn node_views(&self) -> impl Iterator<Item = (Duration, &NodeView)> {
        self.events.iter().filter_map(|(at, event)| match event {
            Event::NodeView(view) => Some((*at, view)),
            _ => None,
        })
    }

    /// The views of each group with the messages delivered in each, in order. A resync ends one sequence of views and
    /// begins another.
    fn epochs(&self) -> Vec<(&str, Vec<Epoch<'_>>)> {
        let mut all: Vec<(&str, Vec<Epoch<'_>>)> = Vec::new();
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, event) in &self.events {
            match event {
                Event::View(view) => {
                    let at = *open.entry(&view.group).or_insert_with(|| {
                        all.push((&view.group, Vec::new()));
                        all.len() - 1
                    });
                    all[at].1.push(Epoch {
                        view,
                        messages: Vec::new(),
                    });
                }
                Event::Message(message) => {
                    let epochs = open.get(message.group.as_str()).map(|at| &mut all[*at].1);
                    if let Some(epoch) = epochs.and_then(|epochs| epochs.last_mut()) {
                        epoch.messages.push(message);
                    }
                }
                Event::Resync { group, .. } => {
                    open.remove(group.as_str());
                }
                _ => {}
            }
        }
        all
    }
}

/// A view of a group and what was delivered in it.
#[derive(Debug)]
struct Epoch<'a> {
    view: &'a View,
    messages: Vec<&'a Message>,
}

/// Everything that is wrong with a story, one line each.
pub fn judge(trace: &Trace, order: &str, rules: &Rules) -> Vec<String> {
    let mut wrong = Vec::new();
    for run in &trace.runs {
        let label = format!("{}#{}", run.name, run.start);
        wrong.extend(
            run.garbage
                .iter()
                .map(|line| format!("{label}: standard output is not an event: {line}")),
        );
        wrong.extend(panics(run).map(|line| format!("{label}: panicked: {line}")));
    }
    let lives = lives(trace);
    membership::judge(&lives, rules, &mut wrong);
    delivery::judge(trace, &lives, order, rules, &mut wrong);
    let mut seen = BTreeSet::new();
    wrong.retain(|line| seen.insert(line.clone()));
    wrong
}

fn panics(run: &Run) -> impl Iterator<Item = &String> {
    run.log.iter().filter(|line| line.contains("panicked at"))
}

fn lives(trace: &Trace) -> Vec<Life<'_>> {
    let last = |run: &Run| run.events.last().map_or(Duration::ZERO, |(at, _)| *at);
    let the_end = trace
        .runs
        .iter()
        .map(|run| run.ended.unwrap_or(last(run)))
        .max()
        .unwrap_or_default();
    let mut lives = Vec::new();
    for run in &trace.runs {
        let starts: Vec<(usize, &str)> = run
            .events
            .iter()
            .enumerate()
            .filter_map(|(at, (_, event))| match event {
                Event::Ready { incarnation } | Event::Incarnation { incarnation } => {
                    Some((at, incarnation.as_str()))
                }
                _ => None,
            })
            .collect();
        let of_whom = whose(run);
        for (index, (from, incarnation)) in starts.iter().enumerate() {
            let next = starts.get(index + 1).map(|(at, _)| *at);
            let end = next.map_or(run.ended.unwrap_or(the_end), |at| run.events[at].0);
            let own = run.events.iter().zip(&of_whom);
            lives.push(Life {
                run,
                incarnation,
                events: own
                    .filter(|(_, life)| **life == Some(*from))
                    .map(|(event, _)| event)
                    .collect(),
                end,
                superseded: next.is_some(),
            });
        }
    }
    lives
}

/// For each event of a process, where the life that it belongs to begins.
fn whose(run: &Run) -> Vec<Option<usize>> {
    let mut node = None;
    // Of each group that has a view: the life that it is in.
    let mut groups: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    let mut of_whom = Vec::with_capacity(run.events.len());
    for (at, (_, event)) in run.events.iter().enumerate() {
        of_whom.push(match event {
            Event::Ready { .. } | Event::Incarnation { .. } => {
                node = Some(at);
                node
            }
            Event::View(view) => *groups.entry(&view.group).or_insert(node),
            Event::Message(Message { group, .. })
            | Event::Transitional { group }
            | Event::Suspended { group } => groups.get(group.as_str()).copied().unwrap_or(node),
            Event::Resync { group, .. } => groups.remove(group.as_str()).unwrap_or(node),
            _ => node,
        });
    }
    of_whom
}
