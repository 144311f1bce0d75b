//! R17: receipts tell the truth, once, and none is forgotten. G8: each node's own messages carry the tickets
//! that it was given.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Outcome;
use antiphon_core::wire::{GroupViewId, Incarnation, Lineage};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{End, Epoch, Facts, GroupKey, History, Life, Send, Stay, StayEnd, ViewKey};
use crate::trace::{GroupIndex, ProcessId};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let delivered = deliveries(history);
    for (process, facts) in &history.processes {
        let mut seen = BTreeSet::new();
        for (at, group, ticket, outcome) in &facts.receipts {
            // Tickets may begin again with each membership: the last one given before the receipt is meant.
            let lives = history.lives.iter().filter(|life| life.process == *process);
            let sent = lives
                .filter_map(|life| {
                    let sends = life.sends.get(group)?;
                    let send = sends
                        .iter()
                        .rfind(|send| send.ticket == *ticket && send.at <= *at)?;
                    Some((life, send))
                })
                .max_by_key(|(_, send)| send.at);
            let Some((life, send)) = sent else {
                let what = format!("p{process} got a receipt for ticket {ticket}, which it never got");
                report.fail("R17", *at, what);
                continue;
            };
            let number = send.ticket;
            report.check("R17", *at, seen.insert((*group, *ticket, send.at)), || {
                format!("p{process} got two receipts for ticket {ticket} of group {group}")
            });
            let ended = ended_at(life, &life.stays[send.stay]);
            let over = ended.is_some_and(|ended| ended <= *at) || asked_to_leave(facts, life, send, *at);
            let mut since = life
                .views
                .iter()
                .filter(|(seen, _)| (send.at..=*at).contains(seen));
            let interrupted = over || since.any(|(_, view)| !view.is_primary());
            report.check("R17", *at, interrupted || *outcome == Outcome::Delivered, || {
                format!(
                    "{} was told {outcome:?} of its ticket {number}, and has been a member in the primary all the time",
                    history.name(life)
                )
            });
            let told_in = lineage_at(history, *process, *at);
            let of = message(life, send);
            let fate = delivered.get(&of);
            // The lineage may have ended since, and all its views with it.
            let is_known_there = || {
                let told_in = view_at(history, *process, life.stays[send.stay].group, *at);
                fate.is_some() && told_in.is_some_and(|view| has_led_to(history, of, view))
            };
            let truthful = match outcome {
                Outcome::Delivered => {
                    // A member of the primary knows what others delivered. One that comes back is told what
                    // became of it in the primary, and not among those that were cut off with it.
                    let was_there = ended.is_none_or(|ended| *at <= ended);
                    fate.is_some_and(|fate| fate.lives_on || fate.by_others > 0 && was_there)
                        || is_known_there()
                }
                Outcome::NotDelivered => fate.is_none_or(|fate| match history.trace.any {
                    true => told_in.is_none_or(|lineage| !fate.lives_in.contains(&lineage)),
                    false => !fate.lives_on && !is_known_there(),
                }),
                Outcome::Unknown => !is_remembered(history, life, send, *at),
            };
            report.check("R17", *at, truthful, || {
                format!(
                    "{} was told {outcome:?} of its ticket {number}: {fate:?}",
                    history.name(life)
                )
            });
        }
    }
    if history.at_rest {
        complete(history, &delivered, report);
    }
    for (life, stay) in history.stays() {
        for epoch in &stay.epochs {
            tickets(history, life, stay, epoch, report);
        }
    }
}

/// G8: a node's own messages have the ticket that it was given, other nodes' messages have none.
fn tickets(history: &History<'_>, life: &Life, stay: &Stay, epoch: &Epoch, report: &mut Report) {
    for (m, at) in epoch.log.iter().zip(&epoch.times) {
        let own = (m.sender == life.incarnation).then(|| history.sent(life, stay.group, m.payload));
        let ticket = own.flatten().map(|send| send.ticket);
        report.check("G8", *at, ticket == m.ticket, || {
            format!(
                "{} delivered #{} with ticket {:?} instead of {ticket:?}",
                history.name(life),
                m.seq,
                m.ticket
            )
        });
    }
}

/// When a membership was over, if it was.
fn ended_at(life: &Life, stay: &Stay) -> Option<Micros> {
    stay.ended.or(match life.end {
        End::Open => None,
        End::Process(at, _) | End::Succeeded(at) => Some(at),
    })
}

/// Whether its application had asked until then to leave the group, or the cluster: if that takes too long,
/// what was not sent is given up.
fn asked_to_leave(facts: &Facts, life: &Life, send: &Send, at: Micros) -> bool {
    let group = life.stays[send.stay].group;
    let mut asked = facts.asked_to_leave_group.iter();
    let asked = asked.any(|(asked, of)| *of == group && (send.at..=at).contains(asked));
    asked || facts.asked_to_leave.is_some_and(|asked| asked <= at)
}

/// R17: whether the primary still knows what became of this. Its sender was removed and is back in the same
/// group of the same lineage, soon enough, and dropped nothing that it had held back.
fn is_remembered(history: &History<'_>, life: &Life, send: &Send, at: Micros) -> bool {
    /// For so many views the group remembers members that are gone, less what views overtake each other.
    const VIEWS: u32 = 90;
    let stay = &life.stays[send.stay];
    let over =
        stay.end == StayEnd::Resync || stay.end == StayEnd::Open && matches!(life.end, End::Succeeded(_));
    let Some(last) = stay.epochs.last().filter(|_| over && life.lost_belief.is_none()) else {
        return false;
    };
    let lives = history.lives.iter().filter(|next| next.process == life.process);
    let mut later = lives.flat_map(|next| &next.stays).filter(|next| {
        let begins = next.epochs.first().map(|first| first.at);
        next.group == stay.group && begins.is_some_and(|begins| begins > last.at)
    });
    // The next one alone: there it is told.
    let back = later.next().filter(|next| next.key == stay.key);
    let first = back.and_then(|next| next.epochs.first());
    first.is_some_and(|first| {
        let soon = first.view.id.k < last.view.id.k.saturating_add(VIEWS);
        first.at <= at && first.lineage == last.lineage && soon && !history.trace.any
    })
}

/// In which lineage a process is at a time.
fn lineage_at(history: &History<'_>, process: ProcessId, at: Micros) -> Option<Lineage> {
    let lives = history.lives.iter().filter(|life| life.process == process);
    let mut views = lives.flat_map(|life| &life.views).filter(|(seen, _)| *seen <= at);
    views.next_back().map(|(_, view)| view.lineage)
}

/// In which view of a group a process is at a time.
fn view_at(history: &History<'_>, process: ProcessId, group: GroupIndex, at: Micros) -> Option<ViewKey> {
    let lives = history.lives.iter().filter(|life| life.process == process);
    let stays = lives
        .flat_map(|life| &life.stays)
        .filter(|stay| stay.group == group);
    let epochs = stays.flat_map(|stay| &stay.epochs);
    let seen = epochs.filter(|epoch| epoch.at <= at);
    seen.max_by_key(|epoch| epoch.at).map(Epoch::key)
}

/// Whether a member that delivered this message went on to a view that led to this one.
fn has_led_to(history: &History<'_>, (group, sender, payload): MessageKey, view: ViewKey) -> bool {
    let leading = views_that_lead(history, |_, _, epoch| epoch.key() == view);
    let mut stays = history.stays().filter(|(_, stay)| stay.key == group);
    stays.any(|(_, stay)| {
        stay.epochs.windows(2).any(|pair| {
            let mut log = pair[0].log.iter();
            leading.contains(&pair[1].key()) && log.any(|m| (m.sender, m.payload) == (sender, payload))
        })
    })
}

/// A message: payloads are distinct, numbers may begin again with a membership.
type MessageKey = (GroupKey, Incarnation, u64);

fn message(life: &Life, send: &Send) -> MessageKey {
    (life.stays[send.stay].key, life.incarnation, send.payload)
}

/// What became of a message, over all members.
#[derive(Debug, Default)]
struct Fate {
    /// How many members but the sender delivered it.
    by_others: usize,
    /// Whether a process that delivered it went on to a view that the group went on from: then the primary
    /// has it.
    lives_on: bool,
    /// The lineages of such views: where every component goes on, one knows of its own.
    lives_in: BTreeSet<Lineage>,
}

fn deliveries(history: &History<'_>) -> BTreeMap<MessageKey, Fate> {
    let alive = views_that_live_on(history);
    let mut result: BTreeMap<MessageKey, Fate> = BTreeMap::new();
    for (life, stay) in history.stays() {
        for (index, epoch) in stay.epochs.iter().enumerate() {
            let next = stay.epochs.get(index + 1);
            let lives_on = next.is_some_and(|next| alive.contains(&next.key()));
            for m in &epoch.log {
                let fate = result.entry((stay.key, m.sender, m.payload)).or_default();
                fate.by_others += usize::from(m.sender != life.incarnation);
                fate.lives_on |= lives_on;
                fate.lives_in
                    .extend(next.filter(|_| lives_on).map(|next| next.lineage));
            }
        }
    }
    result
}

/// The views that are not dead ends: a member left the group in them, is in them still, or went on to a view
/// that is no dead end either. A leader that installs a view, delivers its cut and dies before any other
/// member has installed it made a dead end. The others make another view, and what only the dead leader
/// delivered is rightly called not delivered.
fn views_that_live_on(history: &History<'_>) -> BTreeSet<ViewKey> {
    views_that_lead(history, |life, stay, epoch| {
        let is_last = stay.epochs.last().is_some_and(|last| last.key() == epoch.key());
        is_last && (stay.end == StayEnd::Left || stay.end == StayEnd::Open && life.is_open())
    })
}

/// The views that are such an end for one of their members, or from which one went on to such a view.
fn views_that_lead(
    history: &History<'_>,
    is_end: impl Fn(&Life, &Stay, &Epoch) -> bool,
) -> BTreeSet<ViewKey> {
    // Successors have higher ids: from the highest down, what follows a view is known before the view itself.
    let mut steps: BTreeMap<(GroupViewId, ViewKey), Vec<Option<ViewKey>>> = BTreeMap::new();
    for (life, stay) in history.stays() {
        for (index, epoch) in stay.epochs.iter().enumerate() {
            let into = steps.entry((epoch.view.id, epoch.key())).or_default();
            into.extend(is_end(life, stay, epoch).then_some(None));
            into.extend(stay.epochs.get(index + 1).map(|next| Some(next.key())));
        }
    }
    let mut alive = BTreeSet::new();
    for ((_, key), goes_on) in steps.into_iter().rev() {
        let lives = |next: &Option<ViewKey>| next.is_none_or(|next| alive.contains(&next));
        if goes_on.iter().any(lives) {
            alive.insert(key);
        }
    }
    alive
}

/// A process that lost its membership alive learns what became of each message it had sent and not delivered.
fn complete(history: &History<'_>, delivered: &BTreeMap<MessageKey, Fate>, report: &mut Report) {
    for life in &history.lives {
        let Some(facts) = history
            .processes
            .get(&life.process)
            .filter(|facts| facts.ended.is_none())
        else {
            continue;
        };
        for (group, sends) in &life.sends {
            for send in sends {
                let stay = &life.stays[send.stay];
                let over = stay.end == StayEnd::Resync
                    || (stay.end == StayEnd::Open && matches!(life.end, End::Succeeded(_)));
                if !over || own_delivery(life, send) {
                    continue;
                }
                let told = facts
                    .receipts
                    .iter()
                    .any(|(_, g, ticket, _)| g == group && *ticket == send.ticket);
                report.check("R17", send.at, told, || {
                    format!(
                        "{} never learned what became of its ticket {}: {:?}",
                        history.name(life),
                        send.ticket,
                        delivered.get(&message(life, send))
                    )
                });
            }
        }
    }
}

fn own_delivery(life: &Life, send: &Send) -> bool {
    let own = |epoch: &Epoch| {
        epoch
            .log
            .iter()
            .any(|m| m.sender == life.incarnation && m.payload == send.payload)
    };
    life.stays[send.stay].epochs.iter().any(own)
}
