//! What was sent, and what was delivered of it: G3, G8, G10.

use std::collections::BTreeSet;

use crate::check::Report;
use crate::check::history::{History, Life, Stay, StayEnd};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for (life, stay) in history.stays() {
        for epoch in &stay.epochs {
            // G3 is counted here; what breaks it never gets into an epoch.
            report.check("G3", epoch.at, true, String::new);
            for (m, at) in epoch.log.iter().zip(&epoch.times) {
                integrity(history, life, stay, m, *at, report);
            }
        }
    }
    if history.at_rest {
        self_delivery(history, report);
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

/// G10 at the end of a run at rest: whoever is still in the view has delivered its own messages, or was told
/// what became of them: what waited for the core when the primary was lost is not sent.
fn self_delivery(history: &History<'_>, report: &mut Report) {
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
    }
}

/// Whether it was asked to leave the cluster or the group.
pub(super) fn is_leaving(history: &History<'_>, life: &Life, stay: &Stay) -> bool {
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
