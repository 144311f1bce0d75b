//! Order: G19 per sender, G20 cause before effect, G21 one order, G22 no holes.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Order;
use antiphon_core::wire::{GroupViewId, Incarnation};

use super::Report;
use super::history::{Epoch, GroupKey, History, Life, Stay};

/// One incarnation's time in one view of a group.
type Witness<'a> = (&'a Life, &'a Stay, &'a Epoch);

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let mut views: BTreeMap<(GroupKey, GroupViewId), Vec<Witness<'_>>> = BTreeMap::new();
    for (life, stay) in history.stays() {
        per_sender(history, life, stay, report);
        for epoch in &stay.epochs {
            views
                .entry((stay.key, epoch.view.id))
                .or_default()
                .push((life, stay, epoch));
        }
    }
    for members in views.values() {
        if members[0].2.view.order == Order::Total {
            one_order(history, members, report);
            causal(history, members, report);
        } else {
            no_holes_per_sender(history, members, report);
        }
    }
}

/// G19: a sender's messages come without gaps, also across the views that both are in.
fn per_sender(history: &History<'_>, life: &Life, stay: &Stay, report: &mut Report) {
    let mut last: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for epoch in &stay.epochs {
        last.retain(|sender, _| epoch.view.members.contains(sender) && !epoch.view.joined.contains(sender));
        for (m, at) in epoch.log.iter().zip(&epoch.times) {
            let before = last.insert(m.sender, m.seq);
            let first_of_joiner = before.is_none();
            report.check(
                "G19",
                *at,
                first_of_joiner || before == Some(m.seq.wrapping_sub(m.numbers)),
                || {
                    format!(
                        "{} delivered {}#{} after #{before:?} in {} of {}",
                        history.name(life),
                        m.sender.short(),
                        m.seq,
                        epoch.view.id,
                        epoch.view.name
                    )
                },
            );
        }
    }
}

/// G21: what was delivered in a view before its flush is one sequence, of which each member has a beginning.
/// G22: and nobody has a later message of it without the earlier ones.
fn one_order(history: &History<'_>, members: &[(&Life, &Stay, &Epoch)], report: &mut Report) {
    let Some(longest) = members.iter().max_by_key(|(_, _, epoch)| epoch.regular().len()) else {
        return;
    };
    let (reference, whole) = (longest.0, longest.2.regular());
    let place: BTreeMap<(Incarnation, u64), usize> = whole
        .iter()
        .enumerate()
        .map(|(index, m)| ((m.sender, m.seq), index))
        .collect();
    for (life, _, epoch) in members {
        for (expected, (m, at)) in epoch.regular().iter().zip(&epoch.times).enumerate() {
            let here = place.get(&(m.sender, m.seq)).copied();
            report.check("G22", *at, here.is_none_or(|here| here <= expected), || {
                format!(
                    "{} delivered {}#{} in {} of {} and missed what {} delivered before it",
                    history.name(life),
                    m.sender.short(),
                    m.seq,
                    epoch.view.id,
                    epoch.view.name,
                    history.name(reference)
                )
            });
            report.check("G21", *at, here == Some(expected), || {
                format!(
                    "{} delivered {}#{} as number {expected} in {} of {}, {} as {here:?}",
                    history.name(life),
                    m.sender.short(),
                    m.seq,
                    epoch.view.id,
                    epoch.view.name,
                    history.name(reference)
                )
            });
            if here != Some(expected) {
                break;
            }
        }
    }
}

/// G20: what a sender had delivered before it sent comes before what it sent.
fn causal(history: &History<'_>, members: &[(&Life, &Stay, &Epoch)], report: &mut Report) {
    // What each message of this view came after, at its sender.
    let mut causes: BTreeMap<(Incarnation, u64), (usize, &Epoch)> = BTreeMap::new();
    for (life, stay, epoch) in members {
        let Some(sends) = life.sends.get(&stay.group) else {
            continue;
        };
        let stay_index = life.stays.iter().position(|other| std::ptr::eq(other, *stay));
        let epoch_index = stay.epochs.iter().position(|other| std::ptr::eq(other, *epoch));
        for send in sends {
            if Some(send.stay) == stay_index && Some(send.epoch) == epoch_index {
                causes.insert((life.incarnation, send.payload), (send.after, epoch));
            }
        }
    }
    for (life, _, epoch) in members {
        let mut delivered: BTreeSet<(Incarnation, u64)> = BTreeSet::new();
        let all: BTreeSet<(Incarnation, u64)> = epoch.log.iter().map(|m| (m.sender, m.seq)).collect();
        let mut checked: BTreeMap<Incarnation, usize> = BTreeMap::new();
        for (index, m) in epoch.log.iter().enumerate() {
            if let Some((after, theirs)) = causes.get(&(m.sender, m.payload)) {
                // A sender's prefix only grows: look at what was added since its last message.
                let from = checked.insert(m.sender, *after).unwrap_or(0).min(*after);
                let late = theirs.log[from..*after].iter().find(|cause| {
                    all.contains(&(cause.sender, cause.seq))
                        && !delivered.contains(&(cause.sender, cause.seq))
                });
                report.check("G20", epoch.times[index], late.is_none(), || {
                    format!(
                        "{} delivered {}#{} in {} before {late:?}, which its sender had delivered first",
                        history.name(life),
                        m.sender.short(),
                        m.seq,
                        epoch.view.id
                    )
                });
            }
            delivered.insert((m.sender, m.seq));
        }
    }
}

/// G22 in a fifo group: per sender each member has a beginning of what any other has.
fn no_holes_per_sender(history: &History<'_>, members: &[(&Life, &Stay, &Epoch)], report: &mut Report) {
    let mut first_of: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for (_, _, epoch) in members {
        let mut seen = BTreeSet::new();
        for m in &epoch.log {
            if seen.insert(m.sender) {
                let first = first_of.entry(m.sender).or_insert(m.seq);
                *first = (*first).min(m.seq);
            }
        }
    }
    for (life, _, epoch) in members {
        let mut seen = BTreeSet::new();
        for (m, at) in epoch.log.iter().zip(&epoch.times) {
            if seen.insert(m.sender) {
                report.check("G22", *at, first_of.get(&m.sender) == Some(&m.seq), || {
                    format!(
                        "{} began with {}#{} in {} of {}, another with #{:?}",
                        history.name(life),
                        m.sender.short(),
                        m.seq,
                        epoch.view.id,
                        epoch.view.name,
                        first_of.get(&m.sender)
                    )
                });
            }
        }
    }
}
