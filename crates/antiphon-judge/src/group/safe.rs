//! Safe delivery: G24 held by all of the view, G25 behind the notice by all that it names, G26 with all
//! before it.

use std::collections::BTreeSet;

use super::{Account, Delivered, Order, Witness, named};
use crate::{Name, Report};

pub(super) fn check<M: Name, P: Name>(
    account: &Account<M, P>,
    views: &[Vec<Witness<'_, M, P>>],
    report: &mut Report,
) {
    for witnesses in views {
        let is_safe = |one: &Witness<'_, M, P>| one.view.log.iter().any(|m| m.safe);
        if !witnesses.iter().any(is_safe) {
            continue;
        }
        let delivered: Vec<BTreeSet<(M, u64)>> = witnesses
            .iter()
            .map(|one| one.view.log.iter().map(Delivered::number).collect())
            .collect();
        for one in witnesses.iter().filter(|one| is_safe(one)) {
            by_all(account, one, witnesses, &delivered, report);
            with_all_before(account, one, witnesses, report);
        }
    }
}

/// G24 and G25: each of them that goes on has delivered it.
fn by_all<M: Name, P: Name>(
    account: &Account<M, P>,
    one: &Witness<'_, M, P>,
    all: &[Witness<'_, M, P>],
    delivered: &[BTreeSet<(M, u64)>],
    report: &mut Report,
) {
    let regular = one.view.regular().len();
    for (index, m) in one.view.log.iter().enumerate().filter(|(_, m)| m.safe) {
        let (guarantee, named_ones) = match &one.view.notice {
            Some(notice) if index >= regular => ("G25", &notice.members),
            _ => ("G24", &one.view.members),
        };
        let lacks = |(other, delivered): &(&Witness<'_, M, P>, &BTreeSet<(M, u64)>)| {
            let Some(next) = other.next else { return false };
            // A member that a flush names may go on in another component than those that complete it.
            let with = || one.next.is_some_and(|ours| ours.lineage == next.lineage);
            let same_way = guarantee == "G24" || !account.any || with();
            same_way && named_ones.contains(&other.who.member) && !delivered.contains(&m.number())
        };
        let missed = all.iter().zip(delivered).find(lacks);
        report.check_all(guarantee, m.at, usize::from(missed.is_some()), || {
            format!(
                "{}: delivered {} in {} as safe; {} went on without it",
                one.who.name,
                m.shown(),
                named(&account.group, one.view),
                missed
                    .map(|(other, _)| other.who.name.as_str())
                    .unwrap_or_default()
            )
        });
    }
}

/// G26: in total order, each member that delivers a safe message has delivered the same before it, also one
/// that is gone right after.
fn with_all_before<M: Name, P: Name>(
    account: &Account<M, P>,
    one: &Witness<'_, M, P>,
    all: &[Witness<'_, M, P>],
    report: &mut Report,
) {
    let regular = one.view.regular();
    // What is before the last of them is before all.
    let Some(last) = regular.iter().rposition(|m| m.safe) else {
        return;
    };
    // Nothing comes before a message, or only what G34 looks at.
    if account.order.passes_gaps() {
        return;
    }
    let m = &regular[last];
    if account.order != Order::Total {
        let earlier = regular[..last].iter().rfind(|earlier| earlier.sender == m.sender);
        let follows = earlier.is_none_or(|earlier| earlier.seq.saturating_add(m.numbers) == m.seq);
        return report.check("G26", m.at, follows, || {
            format!("{}: delivered the safe {} behind a gap", one.who.name, m.shown())
        });
    }
    let ours: Vec<_> = regular[..last].iter().map(Delivered::number).collect();
    for other in all {
        let theirs: Vec<_> = other.view.log.iter().map(Delivered::number).collect();
        let Some(place) = theirs.iter().position(|number| *number == m.number()) else {
            continue;
        };
        report.check("G26", m.at, theirs[..place] == ours, || {
            format!(
                "{}: delivered the safe {} as number {last} in {}, {} as number {place}, or after others",
                one.who.name,
                m.shown(),
                named(&account.group, one.view),
                other.who.name
            )
        });
    }
}
