//! Safe delivery: G24 held by all of the view, G25 behind the notice by all that it names, G26 with all
//! before it.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Order;
use antiphon_core::wire::{Incarnation, Lineage};

use super::account::passes_gaps;
use crate::check::Report;
use crate::check::history::{Epoch, History, Life, ViewKey};
use crate::trace::Delivery;

/// One incarnation's time in one view of a group.
struct Witness<'a> {
    life: &'a Life,
    epoch: &'a Epoch,
    /// The lineage in which it went on to the next view, if it did: then it has delivered all that it ever
    /// will in this one.
    went_on: Option<Lineage>,
    delivered: BTreeSet<(Incarnation, u64)>,
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let mut views: BTreeMap<ViewKey, Vec<Witness<'_>>> = BTreeMap::new();
    for (life, stay) in history.stays() {
        for (index, epoch) in stay.epochs.iter().enumerate() {
            let witness = Witness {
                life,
                epoch,
                went_on: stay.epochs.get(index + 1).map(|next| next.lineage),
                delivered: epoch.log.iter().map(|m| (m.sender, m.seq)).collect(),
            };
            views.entry(epoch.key()).or_default().push(witness);
        }
    }
    for witnesses in views.values() {
        for one in witnesses {
            if one.epoch.log.iter().any(|m| m.safe) {
                by_all(history, one, witnesses, report);
                with_all_before(history, one, witnesses, report);
            }
        }
    }
}

/// G24 and G25: whoever of them goes on has delivered it.
fn by_all(history: &History<'_>, one: &Witness<'_>, all: &[Witness<'_>], report: &mut Report) {
    let regular = one.epoch.regular().len();
    for (index, (m, at)) in one.epoch.log.iter().zip(&one.epoch.times).enumerate() {
        if !m.safe {
            continue;
        }
        let (guarantee, named) = match &one.epoch.transitional {
            Some((_, members)) if index >= regular => ("G25", members),
            _ => ("G24", &one.epoch.view.members),
        };
        let missed = all.iter().find(|other| {
            other.went_on.is_some()
                // Whom a flush names may go on in another component than those who complete it.
                && (guarantee == "G24" || !history.trace.any || other.went_on == one.went_on)
                && named.contains(&other.life.incarnation)
                && !other.delivered.contains(&(m.sender, m.seq))
        });
        report.check(guarantee, *at, missed.is_none(), || {
            format!(
                "{} delivered {}#{} in {} of {} as safe; {} went on without it",
                history.name(one.life),
                m.sender.short(),
                m.seq,
                one.epoch.view.id,
                one.epoch.view.name,
                missed.map(|other| history.name(other.life)).unwrap_or_default()
            )
        });
    }
}

/// G26: in total order, whoever delivers a safe message has delivered the same before it, also who is gone
/// right after.
fn with_all_before(history: &History<'_>, one: &Witness<'_>, all: &[Witness<'_>], report: &mut Report) {
    let regular = one.epoch.regular();
    // What is before the last of them is before all.
    let Some(last) = regular.iter().rposition(|m| m.safe) else {
        return;
    };
    // Nothing comes before a message, or only what G34 looks at.
    if passes_gaps(one.epoch.view.order) {
        return;
    }
    let (m, at) = (&regular[last], one.epoch.times[last]);
    let key = (m.sender, m.seq);
    if one.epoch.view.order != Order::Total {
        let earlier = regular[..last].iter().rfind(|earlier| earlier.sender == m.sender);
        let follows = earlier.is_none_or(|earlier| earlier.seq + m.numbers == m.seq);
        return report.check("G26", at, follows, || {
            format!("{} delivered a safe message behind a gap", history.name(one.life))
        });
    }
    for other in all.iter().filter(|other| other.delivered.contains(&key)) {
        let sequence = |log: &[Delivery]| log.iter().map(|m| (m.sender, m.seq)).collect::<Vec<_>>();
        let theirs = sequence(&other.epoch.log);
        let place = theirs.iter().position(|other| *other == key);
        let same = place == Some(last) && theirs[..last] == sequence(&regular[..last]);
        report.check("G26", at, same, || {
            format!(
                "{} delivered the safe {}#{} as number {last} in {} of {}, {} as {place:?}, or after others",
                history.name(one.life),
                m.sender.short(),
                m.seq,
                one.epoch.view.id,
                one.epoch.view.name,
                history.name(other.life)
            )
        });
    }
}
