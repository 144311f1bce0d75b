//! Order. In a view: G21 one order, G22 no holes. Of one sender: G19 without gaps and as sent, G33 gaps that
//! are passed, G34 per scope. Between senders: G20 cause before effect.

use std::collections::{BTreeMap, BTreeSet};

use super::{Account, Delivered, InView, Order, Stay, Witness, named};
use crate::{Name, Report};

pub(super) fn check<M: Name, P: Name>(
    account: &Account<M, P>,
    views: &[Vec<Witness<'_, M, P>>],
    report: &mut Report,
) {
    let group = account.group.as_str();
    if !account.order.passes_gaps() {
        let places = places(account);
        for who in &account.stays {
            without_gaps(account, who, report);
            as_sent(who, &places, report);
        }
    }
    match account.order {
        Order::Total => {
            let causes = causes(account);
            for witnesses in views {
                one_order(group, witnesses, report);
                cause_before_effect(account, witnesses, &causes, report);
            }
        }
        Order::Fifo => views
            .iter()
            .for_each(|all| no_holes_per_sender(group, all, report)),
        Order::Scoped => per_scope(account, views, report),
        Order::Unordered => {}
    }
    if account.order.passes_gaps() {
        let all = account.stays.iter().flat_map(|who| &who.views);
        all.for_each(|view| past_gaps(view, report));
    }
}

/// G19: a sender's messages come without gaps, also across the views that both are in. The numbers of a
/// client's messages rise.
fn without_gaps<M: Name, P: Name>(account: &Account<M, P>, who: &Stay<M, P>, report: &mut Report) {
    let mut last: BTreeMap<M, u64> = BTreeMap::new();
    for view in &who.views {
        last.retain(|sender, _| view.members.contains(sender) && !view.joined.contains(sender));
        for m in &view.log {
            // The first one of a joiner may have any number.
            let before = last.insert(m.sender, m.seq);
            let expected = before.map_or(m.seq, |before| before.saturating_add(m.numbers));
            let what = || {
                let (what, view) = (m.shown(), named(&account.group, view));
                format!(
                    "{}: delivered {what} in {view}, and should have delivered #{expected}",
                    who.name
                )
            };
            if m.seq < expected || account.clients {
                report.check("G19", m.at, m.seq >= expected, what);
            } else {
                let missing = usize::try_from(m.seq - expected).unwrap_or(usize::MAX);
                report.check_all("G19", m.at, missing, what);
            }
        }
    }
}

/// The how-manieth of what its sender sent each message is, and whether it is an object.
fn places<M: Name, P: Name>(account: &Account<M, P>) -> BTreeMap<(M, P), (usize, bool)> {
    let mut places = BTreeMap::new();
    for (place, send) in account.sent.iter().enumerate() {
        places
            .entry((send.sender, send.payload))
            .or_insert((place, send.object));
    }
    places
}

/// G19: a sender's messages come in the order in which it sent them, and so do its objects.
fn as_sent<M: Name, P: Name>(
    who: &Stay<M, P>,
    places: &BTreeMap<(M, P), (usize, bool)>,
    report: &mut Report,
) {
    // Of each sender's messages and objects the last one: its place among what was sent, and itself.
    let mut last = BTreeMap::<(M, bool), (usize, _)>::new();
    for m in who.views.iter().flat_map(|view| &view.log) {
        let Some((place, object)) = places.get(&(m.sender, m.payload)) else {
            continue;
        };
        let earlier = last.insert((m.sender, *object), (*place, m));
        report.check(
            "G19",
            m.at,
            earlier.is_none_or(|(earlier, _)| earlier < *place),
            || {
                let earlier = earlier.map(|(_, m)| m.shown()).unwrap_or_default();
                format!(
                    "{}: delivered {} after {earlier}, which was sent after it",
                    who.name,
                    m.shown()
                )
            },
        );
    }
}

/// G21: what was delivered in a view before its flush is one sequence, of which each member has a beginning.
/// G22: and nobody has a later message of it without the earlier ones.
fn one_order<M: Name, P: Name>(group: &str, witnesses: &[Witness<'_, M, P>], report: &mut Report) {
    let Some(longest) = witnesses.iter().max_by_key(|one| one.view.regular().len()) else {
        return;
    };
    let (reference, sequence) = (&longest.who.name, longest.view.regular());
    let numbers = sequence.iter().map(Delivered::number);
    let place: BTreeMap<(M, u64), usize> = numbers.zip(0..).collect();
    for Witness { who, view, .. } in witnesses {
        for (expected, m) in view.regular().iter().enumerate() {
            let here = place.get(&m.number()).copied();
            let what = || {
                let theirs = sequence.get(expected).map(Delivered::shown).unwrap_or_default();
                let (what, view) = (m.shown(), named(group, view));
                format!(
                    "{}: delivered {what} as number {expected} in {view}, {reference} {theirs}",
                    who.name
                )
            };
            report.check("G22", m.at, here.is_none_or(|here| here <= expected), what);
            report.check("G21", m.at, here == Some(expected), what);
            if here != Some(expected) {
                break;
            }
        }
    }
}

/// G22 in a fifo group: per sender each member has a beginning of what any other has.
fn no_holes_per_sender<M: Name, P: Name>(group: &str, witnesses: &[Witness<'_, M, P>], report: &mut Report) {
    let firsts = |view: &InView<M, P>| {
        let mut seen = BTreeSet::new();
        let firsts = view.log.iter().filter(|m| seen.insert(m.sender));
        firsts.copied().collect::<Vec<Delivered<M, P>>>()
    };
    let mut first_of: BTreeMap<M, u64> = BTreeMap::new();
    for m in witnesses.iter().flat_map(|one| firsts(one.view)) {
        let first = first_of.entry(m.sender).or_insert(m.seq);
        *first = (*first).min(m.seq);
    }
    for Witness { who, view, .. } in witnesses {
        for m in firsts(view) {
            let first = first_of.get(&m.sender).copied().unwrap_or(m.seq);
            report.check("G22", m.at, first == m.seq, || {
                format!(
                    "{}: began with {} in {}, another with #{first}",
                    who.name,
                    m.shown(),
                    named(group, view)
                )
            });
        }
    }
}

/// What each message's sender had delivered in one view before it sent it.
type Causes<'a, M, P> = BTreeMap<(M, P), (&'a InView<M, P>, usize)>;

fn causes<M: Name, P: Name>(account: &Account<M, P>) -> Causes<'_, M, P> {
    let causes = account.sent.iter().filter_map(|send| {
        let seen = send.seen?;
        let view = account.stays.get(seen.stay)?.views.get(seen.view)?;
        Some((
            (send.sender, send.payload),
            (view, seen.messages.min(view.log.len())),
        ))
    });
    causes.collect()
}

/// G20: what a sender had delivered before it sent comes before what it sent.
fn cause_before_effect<M: Name, P: Name>(
    account: &Account<M, P>,
    witnesses: &[Witness<'_, M, P>],
    causes: &Causes<'_, M, P>,
    report: &mut Report,
) {
    for Witness { who, view, .. } in witnesses {
        let all: BTreeSet<(M, u64)> = view.log.iter().map(Delivered::number).collect();
        let mut delivered: BTreeSet<(M, u64)> = BTreeSet::new();
        let mut checked: BTreeMap<M, usize> = BTreeMap::new();
        for m in &view.log {
            let sent_here = causes.get(&(m.sender, m.payload));
            if let Some((theirs, after)) = sent_here.filter(|(theirs, _)| theirs.key() == view.key()) {
                // A sender's prefix only grows: look at what was added since its last message.
                let from = checked.insert(m.sender, *after).unwrap_or(0).min(*after);
                let late = theirs.log[from..*after]
                    .iter()
                    .find(|cause| all.contains(&cause.number()) && !delivered.contains(&cause.number()));
                report.check("G20", m.at, late.is_none(), || {
                    format!(
                        "{}: delivered {} in {} before {}, which its sender had delivered when it sent",
                        who.name,
                        m.shown(),
                        named(&account.group, view),
                        late.map(Delivered::shown).unwrap_or_default()
                    )
                });
            }
            delivered.insert(m.number());
        }
    }
}

/// G34: of what a sender sent in a view with one scope, each member delivers a beginning, in that order.
fn per_scope<M: Name, P: Name>(
    account: &Account<M, P>,
    views: &[Vec<Witness<'_, M, P>>],
    report: &mut Report,
) {
    for witnesses in views {
        let logs = witnesses.iter().flat_map(|one| &one.view.log);
        // What anyone delivered in this view: what was sent before it or is sent after it has no place here.
        let anyone: BTreeSet<(M, P)> = logs.map(|m| (m.sender, m.payload)).collect();
        let mut sent: BTreeMap<(M, u32), Vec<P>> = BTreeMap::new();
        for send in &account.sent {
            if anyone.contains(&(send.sender, send.payload)) {
                let scope = (send.sender, send.scope.unwrap_or(0));
                sent.entry(scope).or_default().push(send.payload);
            }
        }
        for Witness { who, view, .. } in witnesses {
            let mut taken: BTreeMap<(M, u32), usize> = BTreeMap::new();
            for m in &view.log {
                let scope = (m.sender, m.scope.unwrap_or(0));
                let place = taken.entry(scope).or_default();
                let expected = sent.get(&scope).and_then(|sends| sends.get(*place));
                *place += 1;
                report.check("G34", m.at, expected == Some(&m.payload), || {
                    let due = expected.map_or("nothing".to_owned(), ToString::to_string);
                    format!(
                        "{}: delivered {} as number {place} of scope {} in {}, where {due} was due",
                        who.name,
                        m.shown(),
                        scope.1,
                        named(&account.group, view)
                    )
                });
            }
        }
    }
}

/// G33: a delivery that passes a gap. That nothing which could be delivered is kept back is seen from the
/// inside only; here it is counted how often it could have been.
fn past_gaps<M: Name, P: Name>(view: &InView<M, P>, report: &mut Report) {
    let mut highest: BTreeMap<M, u64> = BTreeMap::new();
    for m in &view.log {
        let before = highest.get(&m.sender).copied();
        if before.is_some_and(|before| m.seq > before.saturating_add(m.numbers)) {
            report.check("G33", m.at, true, String::new);
        }
        highest.insert(m.sender, before.unwrap_or(0).max(m.seq));
    }
}
