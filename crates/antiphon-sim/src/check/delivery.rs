//! Basic delivery: G3, G8, G9, G10, G11, G12, G13.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::wire::{GroupViewId, Incarnation};

use super::Report;
use super::history::{GroupKey, History, Life, Stay, StayEnd};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let mut delivered_in: BTreeMap<(GroupKey, Incarnation, u64, u64), GroupViewId> = BTreeMap::new();
    for life in &history.lives {
        let mut seen: BTreeMap<GroupKey, BTreeSet<(Incarnation, u64)>> = BTreeMap::new();
        for stay in &life.stays {
            for epoch in &stay.epochs {
                // G3 is counted here; what breaks it never gets into an epoch.
                report.check("G3", epoch.at, true, String::new);
                for (m, at) in epoch.log.iter().zip(&epoch.times) {
                    let who = || history.name(life);
                    let what = || format!("{}#{}", m.sender.short(), m.seq);
                    integrity(history, life, stay, m, *at, report);
                    // G9 no duplicates, under another number neither: no two messages of a sender are alike.
                    report.check(
                        "G9",
                        *at,
                        seen.entry(stay.key).or_default().insert((m.sender, m.payload)),
                        || format!("{} delivered {} twice", who(), what()),
                    );
                    // G11 same view for all.
                    let first = *delivered_in
                        .entry((stay.key, m.sender, m.seq, m.payload))
                        .or_insert(epoch.view.id);
                    report.check("G11", *at, first == epoch.view.id, || {
                        format!(
                            "{} delivered {} in {}, another in {first}",
                            who(),
                            what(),
                            epoch.view.id
                        )
                    });
                    // G12 sending view.
                    let holds = m.view == epoch.view.id && epoch.view.members.contains(&m.sender);
                    report.check("G12", *at, holds, || {
                        format!(
                            "{} delivered {} of view {} in view {}",
                            who(),
                            what(),
                            m.view,
                            epoch.view.id
                        )
                    });
                }
            }
        }
    }
    if history.at_rest {
        nothing_hangs(history, report);
    }
}

/// G8 integrity: sent earlier by the one named, byte for byte.
fn integrity(
    history: &History<'_>,
    life: &Life,
    stay: &Stay,
    m: &crate::trace::Delivery,
    at: u64,
    report: &mut Report,
) {
    let send = history
        .life(m.sender)
        .and_then(|sender| history.sent(sender, stay.group, m.payload));
    let holds = send
        .as_ref()
        .is_some_and(|send| send.at <= at && (send.safe, send.scope) == (m.safe, m.scope));
    report.check("G8", at, holds, || {
        format!(
            "{} delivered {}#{}, which was not sent so: {send:?}",
            history.name(life),
            m.sender.short(),
            m.seq
        )
    });
    let own = m.sender == life.incarnation;
    let ticket = if own {
        send.as_ref().map(|send| send.ticket)
    } else {
        None
    };
    report.check("G8", at, ticket == m.ticket, || {
        format!(
            "{} delivered #{} with ticket {:?} instead of {ticket:?}",
            history.name(life),
            m.seq,
            m.ticket
        )
    });
}

/// G10 and G13 at the end of a run at rest: whoever is still in the view has delivered its own messages, and those
/// of all others in it.
fn nothing_hangs(history: &History<'_>, report: &mut Report) {
    let open = |life: &Life, stay: &Stay| life.is_open() && stay.end == StayEnd::Open;
    for (life, stay) in history.stays().filter(|(life, stay)| open(life, stay)) {
        if is_leaving(history, life, stay) {
            continue;
        }
        let own: BTreeSet<u64> = stay
            .epochs
            .iter()
            .flat_map(|epoch| &epoch.log)
            .filter(|m| m.sender == life.incarnation)
            .map(|m| m.payload)
            .collect();
        let index = life.stays.iter().position(|other| std::ptr::eq(other, stay));
        let sends = life.sends.get(&stay.group).map_or(&[][..], Vec::as_slice);
        for send in sends.iter().filter(|send| Some(send.stay) == index) {
            let told = || {
                let facts = history.processes.get(&life.process);
                facts.is_some_and(|facts| {
                    let mut receipts = facts.receipts.iter();
                    receipts.any(|(at, group, ticket, _)| {
                        (*group, *ticket) == (stay.group, send.ticket) && *at >= send.at
                    })
                })
            };
            report.check("G10", send.at, own.contains(&send.payload) || told(), || {
                format!(
                    "{} never delivered its own ticket {} in {}",
                    history.name(life),
                    send.ticket,
                    stay.key.1
                )
            });
        }
        let Some(last) = stay.epochs.last() else { continue };
        let ours: BTreeSet<_> = last.log.iter().map(|m| (m.sender, m.seq)).collect();
        for (other, theirs) in history.stays().filter(|(_, theirs)| theirs.key == stay.key) {
            let Some(same) = theirs.epochs.iter().find(|epoch| epoch.key() == last.key()) else {
                continue;
            };
            if !open(other, theirs) {
                continue;
            }
            let missed = same.log.iter().find(|m| !ours.contains(&(m.sender, m.seq)));
            report.check("G13", last.at, missed.is_none(), || {
                format!(
                    "{} never delivered {missed:?}, {} did",
                    history.name(life),
                    history.name(other)
                )
            });
        }
    }
}

fn is_leaving(history: &History<'_>, life: &Life, stay: &Stay) -> bool {
    let Some(facts) = history.processes.get(&life.process) else {
        return true;
    };
    let since = stay.epochs.first().map_or(0, |epoch| epoch.at);
    facts.asked_to_leave.is_some()
        || facts
            .asked_to_leave_group
            .iter()
            .any(|(at, group)| *group == stay.group && *at >= since)
}
