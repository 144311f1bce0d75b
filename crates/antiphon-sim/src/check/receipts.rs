//! R17: receipts tell the truth, once, and none is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Outcome;
use antiphon_core::wire::Incarnation;

use super::Report;
use super::history::{End, GroupKey, History, Life, StayEnd};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let delivered = deliveries(history);
    for (process, facts) in &history.processes {
        let mut seen = BTreeSet::new();
        for (at, group, ticket, outcome) in &facts.receipts {
            report.check("R17", *at, seen.insert((*group, *ticket)), || {
                format!("p{process} got two receipts for ticket {ticket} of group {group}")
            });
            let sent = history
                .lives
                .iter()
                .filter(|life| life.process == *process)
                .find_map(|life| {
                    let sends = life.sends.get(group)?;
                    let number = sends.iter().position(|send| send.ticket == *ticket)?;
                    let key = life.stays.get(sends[number].stay)?.key;
                    Some((life, key, number as u64 + 1))
                });
            let Some((life, key, seq)) = sent else {
                report.fail(
                    "R17",
                    *at,
                    format!("p{process} got a receipt for ticket {ticket}, which it never got"),
                );
                continue;
            };
            let fate = delivered.get(&(key, life.incarnation, seq));
            let truthful = match outcome {
                Outcome::Delivered => fate.is_some_and(|fate| fate.by_others > 0 || fate.lives_on),
                Outcome::NotDelivered => fate.is_none_or(|fate| !fate.lives_on),
                Outcome::Unknown => true,
            };
            report.check("R17", *at, truthful, || {
                format!(
                    "{} was told {outcome:?} of its #{seq}: {fate:?}",
                    history.name(life)
                )
            });
        }
    }
    if history.at_rest {
        complete(history, &delivered, report);
    }
}

/// What became of a message, over all members.
#[derive(Debug, Default)]
struct Fate {
    /// How many members but the sender delivered it.
    by_others: usize,
    /// Whether one of those that delivered it went on to the next view: then the primary has it.
    lives_on: bool,
}

fn deliveries(history: &History<'_>) -> BTreeMap<(GroupKey, Incarnation, u64), Fate> {
    let mut result: BTreeMap<(GroupKey, Incarnation, u64), Fate> = BTreeMap::new();
    for (life, stay) in history.stays() {
        for (index, epoch) in stay.epochs.iter().enumerate() {
            for m in &epoch.log {
                let fate = result.entry((stay.key, m.sender, m.seq)).or_default();
                fate.by_others += usize::from(m.sender != life.incarnation);
                fate.lives_on |= index + 1 < stay.epochs.len();
            }
        }
    }
    result
}

/// Whoever lost its membership alive learns what became of each message it had sent and not delivered.
fn complete(
    history: &History<'_>,
    delivered: &BTreeMap<(GroupKey, Incarnation, u64), Fate>,
    report: &mut Report,
) {
    for life in &history.lives {
        let Some(facts) = history
            .processes
            .get(&life.process)
            .filter(|facts| facts.ended.is_none())
        else {
            continue;
        };
        for (group, sends) in &life.sends {
            for (number, send) in sends.iter().enumerate() {
                let stay = &life.stays[send.stay];
                let over = stay.end == StayEnd::Resync
                    || (stay.end == StayEnd::Open && matches!(life.end, End::Succeeded(_)));
                let seq = number as u64 + 1;
                if !over || own_delivery(life, send.stay, seq) {
                    continue;
                }
                let told = facts
                    .receipts
                    .iter()
                    .any(|(_, g, ticket, _)| g == group && *ticket == send.ticket);
                report.check("R17", send.at, told, || {
                    format!(
                        "{} never learned what became of its #{seq}: {:?}",
                        history.name(life),
                        delivered.get(&(stay.key, life.incarnation, seq))
                    )
                });
            }
        }
    }
}

fn own_delivery(life: &Life, stay: usize, seq: u64) -> bool {
    life.stays[stay].epochs.iter().any(|epoch| {
        epoch
            .log
            .iter()
            .any(|m| m.sender == life.incarnation && m.seq == seq)
    })
}
