//! Lines of nodes as [`antiphon_judge`] reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use antiphon_api::blocks::{Failure, Kind, Lost, Reply};
use antiphon_api::{Event, Message, View, ViewName};
use antiphon_judge::group::{Account, Delivered, Fate, InView, Notice, SeenBefore, Sent, Stay, Tell, Told};
use antiphon_judge::nodes::{self, Membership, NodeView};
use antiphon_judge::{Id, Micros, Report};

use super::{Life, Rules, micros, short};
use crate::trace::{Run, Said, Trace, text_of};

/// An incarnation of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who<'a> {
    name: &'a str,
    incarnation: &'a str,
}

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, short(self.incarnation))
    }
}

/// The name of a node view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Called<'a>(&'a ViewName);

impl fmt::Display for Called<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ViewName::Primary(number) => number.fmt(f),
            ViewName::NonPrimary(name) => name.fmt(f),
        }
    }
}

/// Lines do not tell lineages. Where there may be several, each life stands for itself.
fn lineage(life: usize, rules: &Rules) -> u128 {
    if rules.any { life as u128 } else { 0 }
}

pub(super) fn membership<'a>(lives: &[Life<'a>], rules: &Rules) -> Membership<Who<'a>, Called<'a>> {
    let told = lives.iter().enumerate().map(|(number, life)| nodes::Life {
        name: life.label(),
        member: Who {
            name: &life.run.name,
            incarnation: life.incarnation,
        },
        views: node_views(life, lineage(number, rules)),
        rests: life.rests(rules) && !rules.any,
        frozen: life
            .run
            .frozen
            .iter()
            .map(|(from, to)| (micros(*from), to.map_or(Micros::MAX, micros)))
            .collect(),
    });
    Membership {
        lives: told.collect(),
        belief: micros(rules.belief),
    }
}

fn node_views<'a>(life: &Life<'a>, lineage: u128) -> Vec<NodeView<Who<'a>, Called<'a>>> {
    let mut views: Vec<NodeView<Who<'a>, Called<'a>>> = Vec::new();
    let believed = |views: &mut Vec<NodeView<_, _>>, until: Micros| {
        if let Some(view) = views.last_mut() {
            view.until = view.until.or(Some(until));
        }
    };
    for (at, event) in life.events() {
        match event {
            Event::NodeView(view) => {
                believed(&mut views, at);
                let members: Vec<Who<'a>> = view
                    .members
                    .iter()
                    .map(|member| Who {
                        name: &member.name,
                        incarnation: &member.incarnation,
                    })
                    .collect();
                let of_name = |name: &'a String| {
                    let member = members.iter().find(|member| member.name == name);
                    member.copied().unwrap_or(Who {
                        name,
                        incarnation: "",
                    })
                };
                let crashed = view.crashed.iter().map(|crash| &crash.member);
                let departed = view.left.iter().chain(crashed).map(|gone| Who {
                    name: &gone.name,
                    incarnation: &gone.incarnation,
                });
                views.push(NodeView {
                    id: Called(&view.id),
                    lineage,
                    place: Id([0, 0, view.number.into()]),
                    follows: None,
                    primary: view.primary,
                    crosses: false,
                    joined: view.joined.iter().map(of_name).collect(),
                    departed: departed.collect(),
                    members,
                    // Evidence differs: each member tells what it heard of.
                    rest: 0,
                    at,
                    until: None,
                });
            }
            Event::Expelled { .. } | Event::Left => believed(&mut views, at),
            _ => {}
        }
    }
    believed(&mut views, micros(life.end));
    views
}

/// What was said of the groups. G3, G17: what has no place there is reported.
pub(super) fn accounts<'a>(
    trace: &'a Trace,
    lives: &[Life<'a>],
    rules: &Rules,
    report: &mut Report,
) -> Vec<Account<&'a str, &'a str>> {
    let spoken = lives.iter().flat_map(Life::events);
    let spoken = spoken.filter_map(|(_, event)| group_of(event));
    let sent = trace.runs.iter().flat_map(|run| &run.sent);
    let groups: BTreeSet<&str> = spoken.chain(sent.map(|said| said.group.as_str())).collect();
    let account = |group: &'a str| {
        let mut account = Account {
            group: group.to_owned(),
            order: rules.order,
            any: rules.any,
            clients: trace.runs.iter().any(|run| run.client.is_some()),
            stays: Vec::new(),
            sent: Vec::new(),
            tells: Vec::new(),
        };
        for run in &trace.runs {
            let mut marks = Marks::new();
            let own = |life: &&Life<'a>| std::ptr::eq(life.run, run);
            for (number, life) in lives.iter().enumerate().filter(|(_, life)| own(life)) {
                let mut reader = Reader {
                    group,
                    number,
                    life,
                    rules,
                    account: &mut account,
                    open: false,
                    void: None,
                    report: &mut *report,
                };
                reader.read(&mut marks);
            }
            // A group's last lines of one life may come after the next one has begun.
            marks.sort_by_key(|(index, _)| *index);
            account.sent.extend(sent_by(run, group, rules, &marks));
            account.tells.extend(told_by(run, group, rules, &marks));
        }
        account
    };
    groups.into_iter().map(account).collect()
}

fn group_of(event: &Event) -> Option<&str> {
    match event {
        Event::View(View { group, .. })
        | Event::Message(Message { group, .. })
        | Event::Told(Message { group, .. })
        | Event::Transitional { group, .. }
        | Event::Suspended { group }
        | Event::Resync { group, .. }
        | Event::GroupLeft { group }
        | Event::Lost(Lost {
            what: Kind::Group,
            name: group,
            ..
        }) => Some(group),
        _ => None,
    }
}

/// Whether another client of an agent begins.
fn is_welcome(event: &Event) -> bool {
    matches!(event, Event::Reply(Reply { welcome: Some(_), .. }))
}

/// Where a process was in a group after each of its events.
type Marks = Vec<(usize, Option<SeenBefore>)>;

/// Reads what one life said of one group.
struct Reader<'r, 'a> {
    group: &'a str,
    number: usize,
    life: &'r Life<'a>,
    rules: &'r Rules,
    account: &'r mut Account<&'a str, &'a str>,
    /// Whether it is in the last of the account's stays.
    open: bool,
    /// While the group is suspended: from which message on, and until which one surely.
    void: Option<Range<usize>>,
    report: &'r mut Report,
}

impl<'a> Reader<'_, 'a> {
    fn read(&mut self, marks: &mut Marks) {
        let life = self.life;
        for (index, (at, event)) in life.events.iter().zip(life.events()) {
            if let Event::NodeView(view) = event
                && life.run.client.is_none()
            {
                self.majority(view.primary);
            } else if group_of(event) == Some(self.group) || is_welcome(event) {
                self.hear(at, event);
                marks.push((*index, self.seen()));
            }
        }
        self.resume();
    }

    fn hear(&mut self, at: Micros, event: &'a Event) {
        if !matches!(
            event,
            Event::Message(_) | Event::Told(_) | Event::Suspended { .. }
        ) {
            self.resume();
        }
        let (group, name) = (self.group, self.life.label());
        match event {
            Event::View(view) => {
                if !self.open {
                    self.open = true;
                    self.account.stays.push(Stay {
                        name,
                        member: self.life.run.member(),
                        life: self.number,
                        views: Vec::new(),
                        rests: false,
                        whole: false,
                    });
                }
                let view = in_view(view, at, lineage(self.number, self.rules));
                if let Some(stay) = self.account.stays.last_mut() {
                    stay.views.push(view);
                    stay.rests = self.life.rests(self.rules);
                    stay.whole = stay.rests;
                }
            }
            Event::Message(message) => match self.view() {
                Some(view) => view.log.push(delivered(message, at)),
                None => {
                    let what = text_of(&message.payload);
                    let text = format!("{name}: {what} before the first view of {group}");
                    self.report.fail("G3", at, text);
                }
            },
            Event::Told(message) => {
                let stay = self.account.stays.last_mut().filter(|_| self.open);
                let before = stay
                    .iter()
                    .flat_map(|stay| &stay.views)
                    .map(|view| view.told.len());
                let place = before.sum();
                match stay.and_then(|stay| stay.views.last_mut()) {
                    Some(view) => view.told.push(Told {
                        at,
                        place,
                        view: id_of(&message.view),
                        sender: message.sender.as_str(),
                        seq: message.seq,
                        payload: text_of(&message.payload),
                    }),
                    None => {
                        let what = text_of(&message.payload);
                        let text = format!("{name}: told {what} before the first view of {group}");
                        self.report.fail("G3", at, text);
                    }
                }
            }
            Event::Transitional { members, .. } => match self.view() {
                Some(view) if view.notice.is_none() => {
                    view.notice = Some(Notice {
                        after: view.log.len(),
                        members: members.iter().map(String::as_str).collect(),
                    });
                }
                _ => {
                    let text = format!("{name}: a notice outside a view of {group}, or a second one");
                    self.report.fail("G17", at, text);
                }
            },
            Event::Suspended { .. } => {
                let until_now = self.view().map(|view| view.log.len()..view.log.len());
                // Said again, it begins nothing new.
                self.void = self.void.take().or(until_now);
                self.unrest();
            }
            // Of `lost` and `reply` only those come here that end it.
            Event::Resync { .. } | Event::GroupLeft { .. } | Event::Lost(_) | Event::Reply(_) => {
                self.unrest();
                self.open = false;
            }
            _ => {}
        }
    }

    /// Until its next view more may be under way.
    fn unrest(&mut self) {
        if let Some(stay) = self.account.stays.last_mut().filter(|_| self.open) {
            stay.rests = false;
            stay.whole = false;
        }
    }

    /// The view that it is in.
    fn view(&mut self) -> Option<&mut InView<&'a str, &'a str>> {
        let stay = self.account.stays.last_mut().filter(|_| self.open)?;
        stay.views.last_mut()
    }

    fn seen(&self) -> Option<SeenBefore> {
        let stay = self.account.stays.last().filter(|_| self.open)?;
        Some(SeenBefore {
            stay: self.account.stays.len() - 1,
            view: stay.views.len() - 1,
            messages: stay.views.last()?.log.len(),
        })
    }

    /// A node says what its majority is. The line that a majority is back may come behind messages that it
    /// let through; the line that it is lost may not. A program of an agent learns only by the group's own
    /// events that a majority is back: with `transitional`, `view` or `resync`.
    fn majority(&mut self, here: bool) {
        let Some(mut void) = self.void.take() else { return };
        let Some(view) = self.view() else { return };
        if here {
            view.suspended.push(void);
        } else {
            void.end = view.log.len();
            self.void = Some(void);
        }
    }

    /// All that came until now came while it was suspended.
    fn resume(&mut self) {
        self.majority(false);
        self.majority(true);
    }
}

/// What a process was told to send to a group, and did not refuse.
fn sent_by<'a>(run: &'a Run, group: &'a str, rules: &Rules, marks: &Marks) -> Vec<Sent<&'a str, &'a str>> {
    let rests = rules.quiet && run.stays();
    let left = run.dismissed && run.events.last().is_some_and(|(_, event)| *event == Event::Left);
    let client = OfClient::new(run, group);
    // Then some of what it was told to send may not have been sent.
    let troubled = run.said(|event| {
        matches!(
            event,
            Event::Incarnation { .. }
                | Event::Refused { .. }
                | Event::Error { .. }
                | Event::Receipt { .. }
                | Event::Suspended { .. }
        )
    });
    let refused = run.refused();
    let receipts: BTreeSet<u64> = run
        .events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::Receipt {
                group: of, ticket, ..
            } if of == group => Some(*ticket),
            _ => None,
        })
        .collect();
    let of_group = run.sent.iter().filter(|said| said.group == group);
    let taken = of_group.filter(|said| !refused.contains(said.what.as_str()));
    // Each accepted send of a group has a number of its own.
    let sent = taken.zip(1..).map(|(said, ticket)| {
        let before = marks.partition_point(|(index, _)| *index < said.heard);
        Sent {
            sender: run.member(),
            payload: said.what.as_str(),
            safe: false,
            scope: said.scope,
            object: said.object,
            at: None,
            seen: marks[..before].last().and_then(|(_, seen)| *seen),
            owed: (rests || left && !troubled)
                && !receipts.contains(&ticket)
                && client.as_ref().is_none_or(|client| client.is_owed(said, rests)),
        }
    });
    sent.collect()
}

/// What became of what the program of an agent sent to a group.
struct OfClient<'a> {
    fates: BTreeMap<&'a str, Option<&'a Failure>>,
    /// Which of its events is the last at which it became another client.
    welcome: Option<usize>,
    /// Which is the last at which it was out of the group.
    out: Option<usize>,
}

impl<'a> OfClient<'a> {
    fn new(run: &'a Run, group: &str) -> Option<Self> {
        let last = |wanted: &dyn Fn(&Event) -> bool| run.events.iter().rposition(|(_, event)| wanted(event));
        run.client.as_ref().map(|_| Self {
            fates: run.fates(),
            welcome: last(&is_welcome),
            out: last(&|event| matches!(event, Event::Resync { group: of, .. } if of == group)),
        })
    }

    /// Whether it must have delivered a message by now. It need not if it leaves, if an earlier client sent
    /// the message, or if a reply told another fate; after it was out, also if a reply told that others
    /// delivered the message.
    fn is_owed(&self, said: &Said, rests: bool) -> bool {
        let since = |event: Option<usize>| event.is_none_or(|event| said.heard > event);
        let told = match self.fates.get(said.what.as_str()) {
            Some(Some(_)) => true,
            Some(None) => !since(self.out),
            None => false,
        };
        rests && since(self.welcome) && !told
    }
}

/// What a process was to tell single members, and did not refuse. There is no line for a delivered tell:
/// where all is quiet, each tell without a line was delivered.
fn told_by<'a>(run: &'a Run, group: &'a str, rules: &Rules, marks: &Marks) -> Vec<Tell<&'a str, &'a str>> {
    let rests = rules.quiet && run.stays();
    let refused = run.refused();
    let mut fates: BTreeMap<u64, Vec<(Micros, Fate)>> = BTreeMap::new();
    for (at, event) in &run.events {
        if let Event::TellReceipt {
            group: of,
            ticket,
            outcome,
            ..
        } = event
            && of == group
        {
            let fate = match outcome.as_str() {
                "not_delivered" => Fate::NotDelivered,
                _ => Fate::Unknown,
            };
            fates.entry(*ticket).or_default().push((micros(*at), fate));
        }
    }
    let of_group = run.told.iter().filter(|tells| tells.group == group);
    let taken = of_group.filter(|tells| !refused.contains(tells.what.as_str()));
    let tells = taken.zip(1..).filter_map(|(tells, ticket)| {
        let before = marks.partition_point(|(index, _)| *index < tells.heard);
        let seen = marks[..before].last().and_then(|(_, seen)| *seen)?;
        let (at, _) = run.events[..tells.heard].last()?;
        let untold = || {
            rests
                .then_some((Micros::MAX, Fate::Delivered))
                .into_iter()
                .collect()
        };
        Some(Tell {
            sender: run.name.as_str(),
            to: tells.to.as_str(),
            payload: tells.what.as_str(),
            at: micros(*at),
            stay: seen.stay,
            view: seen.view,
            fates: fates.remove(&ticket).unwrap_or_else(untold),
            owed: false,
        })
    });
    tells.collect()
}

fn in_view(view: &View, at: Micros, lineage: u128) -> InView<&str, &str> {
    InView {
        id: id_of(&view.id),
        lineage,
        at,
        members: view.members.iter().map(String::as_str).collect(),
        joined: view.joined.iter().map(String::as_str).collect(),
        departed: view
            .left
            .iter()
            .chain(&view.crashed)
            .map(String::as_str)
            .collect(),
        transitional: view.transitional.iter().map(String::as_str).collect(),
        log: Vec::new(),
        notice: None,
        suspended: Vec::new(),
        told: Vec::new(),
    }
}

fn delivered(message: &Message, at: Micros) -> Delivered<&str, &str> {
    Delivered {
        at,
        view: id_of(&message.view),
        sender: &message.sender,
        seq: message.seq,
        // Lines do not tell it, and stories send nothing in pieces.
        numbers: 1,
        payload: text_of(&message.payload),
        safe: message.safe,
        scope: message.scope,
    }
}

/// The id of a group view: `number.k`, or `number.k.change` of clients. One that is not written so is lower
/// than all others.
fn id_of(id: &str) -> Id {
    let parts: Result<Vec<u64>, _> = id.split('.').map(str::parse).collect();
    match parts.as_deref() {
        Ok(&[number, k]) => Id([0, number, k]),
        Ok(&[number, k, change]) => Id([number, k, change]),
        _ => Id::default(),
    }
}
