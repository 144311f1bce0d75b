//! The judge: reads what the nodes of a story said and names every guarantee that was broken.
//!
//! ```text
//!  Trace: lines of nodes ──► lives, one per incarnation ──► told: Membership, Accounts ──► antiphon_judge
//!             │                └──► lines: what a line says of itself            ──┐       ▲  │
//!             └──────────────────────────────────────────────────► called: Calls ──┼───────┘  │
//!                                                                                  └► Finding ◄┘
//! ```
//! The rules between views, messages and calls are those of [`antiphon_judge`]; the simulator uses those of
//! views and messages, too. Here their input is made of lines ([`told`], [`called`]). Only [`lines`] has
//! rules of its own: about texts, which the simulator has none of.
//!
//! A life lasts from `ready` or `incarnation` to the next `incarnation` or to the end of its process. There
//! is no order between a node's own lines and those of its groups. So for a group the life ends at the
//! group's own `resync`, which may come after the line `incarnation`.
//!
//! For an agent, the judge reads what its program was told of groups. `welcome` begins another client of the
//! same life, which is in no group yet, and `lost` ends its time in a group. An agent's node views come by
//! another way than its program's messages, so there is no order between the two.
//!
//! The judge looks only at what an application could see, and knows the exceptions of GUARANTEES.md: a frozen
//! process believes its last view; a process that was killed, and a member on its way out, owe nothing more
//! (G27).
//!
//! Its input is a [`Trace`] and nothing else: a program that has recorded lines can fill one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use antiphon_api::blocks::{Kind, Lost, Reply};
use antiphon_api::{Event, Message};
use antiphon_judge::{Micros, Order, Report, Violation};

use crate::trace::{Run, Trace};

mod called;
mod lines;
#[cfg(test)]
mod tests;
mod told;

/// What a story allows.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The order of the groups.
    pub order: Order,
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
            order: Order::Total,
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
    /// A call that was handed out although its caller was told that it did not run, or twice, or that nobody
    /// made.
    Call,
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
    /// Which node, what and where.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.guarantee.is_empty() { "" } else { " " };
        write!(f, "{}{space}{}", self.guarantee, self.text)
    }
}

impl From<Violation> for Finding {
    fn from(violation: Violation) -> Self {
        let Violation {
            guarantee,
            missing,
            what,
            ..
        } = violation;
        let wrong = match guarantee {
            _ if missing > 0 => Wrong::Lost,
            "G8" => Wrong::Invented,
            "G9" => Wrong::Duplicated,
            "G11" | "G12" | "G19" | "G20" | "G21" | "G22" | "G23" | "G26" | "G34" => Wrong::Order,
            "G49" => Wrong::Call,
            lines::PROCESS => Wrong::Process,
            _ => Wrong::View,
        };
        Self {
            wrong,
            guarantee,
            count: missing.max(1) as u64,
            text: what,
        }
    }
}

/// Everything that is wrong with a story.
pub fn judge(trace: &Trace, rules: &Rules) -> Vec<Finding> {
    let lives = lives(trace);
    let mut report = Report::default();
    lines::check(trace, &lives, rules, &mut report);
    antiphon_judge::nodes::judge(&told::membership(&lives, rules), &mut report);
    for account in told::accounts(trace, &lives, rules, &mut report) {
        antiphon_judge::group::judge(&account, &mut report);
    }
    for calls in called::calls(trace) {
        antiphon_judge::calls::judge(&calls, &mut report);
    }
    let mut seen = BTreeSet::new();
    let found = report.violations.into_iter().map(Finding::from);
    found
        .filter(|finding| seen.insert(finding.text.clone()))
        .collect()
}

/// One incarnation's story.
#[derive(Debug)]
struct Life<'a> {
    run: &'a Run,
    incarnation: &'a str,
    /// Which of the process's events are its own.
    events: Vec<usize>,
    /// When its last event's meaning ends: the next life, the process's end, or the end of all.
    end: Duration,
    /// Whether the process went on as another incarnation.
    superseded: bool,
}

impl<'a> Life<'a> {
    fn label(&self) -> String {
        format!("{}#{}/{}", self.run.name, self.run.start, short(self.incarnation))
    }

    fn events(&self) -> impl Iterator<Item = (Micros, &'a Event)> + Clone {
        let run = self.run;
        self.events.iter().map(move |index| {
            let (at, event) = &run.events[*index];
            (micros(*at), event)
        })
    }

    /// Whether it is in its last views still, with nothing under way.
    fn rests(&self, rules: &Rules) -> bool {
        rules.quiet && self.run.stays() && !self.superseded
    }
}

fn short(incarnation: &str) -> &str {
    incarnation.get(..6).unwrap_or(incarnation)
}

fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

fn lives(trace: &Trace) -> Vec<Life<'_>> {
    let last = |run: &Run| run.events.last().map_or(Duration::ZERO, |(at, _)| *at);
    let the_end = trace.runs.iter().map(|run| run.ended.unwrap_or(last(run)));
    let the_end = the_end.max().unwrap_or_default();
    let mut lives = Vec::new();
    for run in &trace.runs {
        let events = run.events.iter().enumerate();
        let starts: Vec<(usize, &str)> = events
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
            let own = (0..run.events.len()).filter(|event| of_whom[*event] == Some(*from));
            lives.push(Life {
                run,
                incarnation,
                events: own.collect(),
                end: next.map_or(run.ended.unwrap_or(the_end), |at| run.events[at].0),
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
            | Event::Told(Message { group, .. })
            | Event::Transitional { group, .. }
            | Event::Suspended { group } => groups.get(group.as_str()).copied().unwrap_or(node),
            Event::Resync { group, .. }
            | Event::Lost(Lost {
                what: Kind::Group,
                name: group,
                ..
            }) => groups.remove(group.as_str()).unwrap_or(node),
            Event::Reply(Reply { welcome: Some(_), .. }) => {
                groups.clear();
                node
            }
            _ => node,
        });
    }
    of_whom
}
