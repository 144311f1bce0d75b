//! The judge: reads what the nodes of a story said and names every guarantee that was broken.
//!
//! ```text
//!  node a  ── view 1.1 ─ m1 m2 m3 ── view 2.1 ─ m4 ── end          a *life*: what one incarnation said
//!  node b  ── view 1.1 ─ m1 m2 m3 ── view 2.1 ─ m4 ── end          an *epoch*: a view of a group, and what was
//!  node c  ── view 1.1 ─ m1 m2 ─ (killed)                          delivered in it; a `resync` begins a new sequence
//! ```
//! A life reaches from `ready` or `incarnation` to the next or to its process's end. A node's own lines and
//! those of its groups have no order between them, so a group that a life was in ends with it at the group's
//! own `resync`, which may come after the line `incarnation`. Those that go from the same view to the same
//! next one, or are in the same view when all is quiet, *move together*: a and b above.
//!
//! The judge looks only at what an application could see, and knows what GUARANTEES.md excepts: a frozen
//! process believes its last view; a process that was killed, and a member on its way out, owe nothing more
//! (G27).
//!
//! Its input is a [`Trace`] and nothing else: whoever has recorded lines can fill one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use antiphon_api::{Event, Message, NodeView, View};

use crate::trace::{Run, Trace, text_of};

mod delivery;
mod membership;
#[cfg(test)]
mod tests;

/// What a story allows.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The order of the groups: `unordered`, `scoped`, `fifo` or `total`.
    pub order: &'static str,
    /// How long a running node may believe an old primary view after a newer one without it was decided.
    pub belief: Duration,
    /// Whether every component goes on (policy `any`): then nothing is promised of what two of them do, and
    /// an id is one within a component.
    pub any: bool,
    /// Whether all is quiet: nothing is under way at those that still run.
    pub quiet: bool,
}

impl Default for Rules {
    /// Total order. For the profile `lan`: silence is noticed after 1.5 s; the rest is for a busy machine.
    fn default() -> Self {
        Self {
            order: "total",
            belief: Duration::from_secs(5),
            any: false,
            quiet: false,
        }
    }
}

/// What kind of thing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// A message that must be there is not.
    Lost,
    /// A message came twice.
    Duplicated,
    /// Messages came in an order, or in a view, that is not theirs.
    Order,
    /// A view, or what was said about it, or a message outside its view.
    View,
    /// A message that nobody sent.
    Invented,
    /// A line that is no event, a panic, or something said after the end.
    Process,
}

/// A guarantee that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub wrong: Wrong,
    /// The guarantee's name; empty for what no guarantee needs to say.
    pub guarantee: &'static str,
    /// How many messages, or once.
    pub count: u64,
    /// Who, what and where.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}{}",
            self.guarantee,
            if self.guarantee.is_empty() { "" } else { " " },
            self.text
        )
    }
}

/// What was found so far, each once.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, wrong: Wrong, guarantee: &'static str, text: String) {
        self.add_many(wrong, guarantee, 1, text);
    }

    fn view(&mut self, guarantee: &'static str, text: String) {
        self.add(Wrong::View, guarantee, text);
    }

    fn add_many(&mut self, wrong: Wrong, guarantee: &'static str, count: usize, text: String) {
        self.0.push(Finding {
            wrong,
            guarantee,
            count: count as u64,
            text,
        });
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

impl<'a> Life<'a> {
    fn label(&self) -> String {
        let short = self.incarnation.get(..6).unwrap_or(self.incarnation);
        format!("{}#{}/{short}", self.run.name, self.run.start)
    }

    fn node_views(&self) -> impl Iterator<Item = (Duration, &'a NodeView)> {
        self.events.iter().filter_map(|(at, event)| match event {
            Event::NodeView(view) => Some((*at, view)),
            _ => None,
        })
    }

    /// Whether it is in its last views still, with nothing under way.
    fn rests(&self, rules: &Rules) -> bool {
        rules.quiet && self.run.stays() && !self.superseded
    }

    /// The views of each group with the messages delivered in each, in order. A resync ends one sequence of
    /// views and begins another.
    fn sequences(&self) -> Vec<Sequence<'a>> {
        let mut all: Vec<Sequence<'a>> = Vec::new();
        let mut open: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, event) in &self.events {
            match event {
                Event::View(view) => {
                    let at = *open.entry(&view.group).or_insert_with(|| {
                        all.push(Sequence {
                            group: &view.group,
                            epochs: Vec::new(),
                            open: true,
                        });
                        all.len() - 1
                    });
                    all[at].open = true;
                    all[at].epochs.push(Epoch {
                        view,
                        messages: Vec::new(),
                    });
                }
                Event::Message(message) => {
                    let epochs = open.get(message.group.as_str()).map(|at| &mut all[*at].epochs);
                    if let Some(epoch) = epochs.and_then(|epochs| epochs.last_mut()) {
                        epoch.messages.push(message);
                    }
                }
                Event::Suspended { group } => {
                    if let Some(at) = open.get(group.as_str()) {
                        all[*at].open = false;
                    }
                }
                Event::Resync { group, .. } => {
                    if let Some(at) = open.remove(group.as_str()) {
                        all[at].open = false;
                    }
                }
                _ => {}
            }
        }
        all
    }
}

/// A life's successive views of one group.
#[derive(Debug)]
struct Sequence<'a> {
    group: &'a str,
    epochs: Vec<Epoch<'a>>,
    /// Whether its last view is in force.
    open: bool,
}

/// A view of a group and what was delivered in it.
#[derive(Debug)]
struct Epoch<'a> {
    view: &'a View,
    messages: Vec<&'a Message>,
}

/// A message's identity: payloads of one sender are never the same twice.
type Key<'a> = (&'a str, &'a str);

impl<'a> Epoch<'a> {
    fn keys(&self) -> Vec<Key<'a>> {
        self.messages.iter().map(|message| key(message)).collect()
    }
}

fn key(message: &Message) -> Key<'_> {
    (&message.sender, text_of(&message.payload))
}

/// Everything that is wrong with a story.
pub fn judge(trace: &Trace, rules: &Rules) -> Vec<Finding> {
    let mut found = Findings::default();
    for run in &trace.runs {
        let label = format!("{}#{}", run.name, run.start);
        for line in &run.garbage {
            let text = format!("{label}: standard output is not an event: {line}");
            found.add(Wrong::Process, "", text);
        }
        for line in run.log.iter().filter(|line| line.contains("panicked at")) {
            found.add(Wrong::Process, "", format!("{label}: panicked: {line}"));
        }
    }
    let lives = lives(trace);
    membership::judge(&lives, rules, &mut found);
    delivery::judge(trace, &lives, rules, &mut found);
    let mut seen = BTreeSet::new();
    found.0.retain(|finding| seen.insert(finding.text.clone()));
    found.0
}

fn lives(trace: &Trace) -> Vec<Life<'_>> {
    let last = |run: &Run| run.events.last().map_or(Duration::ZERO, |(at, _)| *at);
    let the_end = trace.runs.iter().map(|run| run.ended.unwrap_or(last(run)));
    let the_end = the_end.max().unwrap_or_default();
    let mut lives = Vec::new();
    for run in &trace.runs {
        let starts: Vec<(usize, &str)> = run
            .events
            .iter()
            .enumerate()
            .filter_map(|(at, (_, event))| match event {
                Event::Ready { incarnation, .. } | Event::Incarnation { incarnation } => {
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
            | Event::Transitional { group, .. }
            | Event::Suspended { group } => groups.get(group.as_str()).copied().unwrap_or(node),
            Event::Resync { group, .. } => groups.remove(group.as_str()).unwrap_or(node),
            _ => node,
        });
    }
    of_whom
}
