//! What was delivered: G3, G8 to G14, G23, and nothing while suspended.

use std::collections::{BTreeMap, BTreeSet};

use super::{Account, Delivered, InView, Order, Sent, Witness, named};
use crate::{Id, Name, Report};

pub(super) fn check<M: Name, P: Name>(
    account: &Account<M, P>,
    views: &[Vec<Witness<'_, M, P>>],
    report: &mut Report,
) {
    let group = account.group.as_str();
    each_message(account, report);
    nothing_own_is_lost(account, report);
    for witnesses in views {
        // By the view that they went on to: of two lineages that part here, views may have one id.
        let mut together: BTreeMap<(u128, Id), Vec<&Witness<'_, M, P>>> = BTreeMap::new();
        for witness in witnesses {
            if let Some(next) = witness.next {
                together.entry((next.lineage, next.id)).or_default().push(witness);
            }
        }
        for moved in together.values() {
            for other in &moved[1..] {
                if same_messages(group, moved[0], other, report) {
                    same_place(account, moved[0], other, report);
                }
            }
        }
        let mut last = witnesses.iter().filter(|one| one.next.is_none() && one.who.rests);
        if let Some(one) = last.next() {
            last.for_each(|other| nothing_hangs(group, one, other, report));
        }
    }
}

fn each_message<M: Name, P: Name>(account: &Account<M, P>, report: &mut Report) {
    let mut sent: BTreeMap<(M, P), &Sent<M, P>> = BTreeMap::new();
    for send in &account.sent {
        sent.entry((send.sender, send.payload)).or_insert(send);
    }
    let mut delivered: BTreeMap<usize, BTreeSet<(M, P)>> = BTreeMap::new();
    let mut delivered_in: BTreeMap<(M, P), (Id, u64)> = BTreeMap::new();
    for who in &account.stays {
        let delivered = delivered.entry(who.life).or_default();
        for view in &who.views {
            // What breaks G3 never gets into a view: the reader notes it.
            report.check("G3", view.at, true, String::new);
            for m in &view.log {
                // G8 integrity: sent earlier by the one named, as it is.
                let send = sent.get(&(m.sender, m.payload));
                let was_sent = send.is_some_and(|send| {
                    send.at.is_none_or(|at| at <= m.at) && (send.safe, send.scope) == (m.safe, m.scope)
                });
                report.check("G8", m.at, was_sent, || match send {
                    None => format!("{}: {} was never sent by {}", who.name, m.shown(), m.sender),
                    Some(send) => format!(
                        "{}: {} was delivered at {}, safe {}, scope {:?}, and sent at {:?}, safe {}, scope {:?}",
                        who.name,
                        m.shown(),
                        m.at,
                        m.safe,
                        m.scope,
                        send.at,
                        send.safe,
                        send.scope
                    ),
                });
                // G9 no duplicates, under another number neither.
                report.check("G9", m.at, delivered.insert((m.sender, m.payload)), || {
                    format!("{}: delivered {} twice", who.name, m.shown())
                });
                // G11 same view for all, and under the same number.
                let first = *delivered_in
                    .entry((m.sender, m.payload))
                    .or_insert((view.id, m.seq));
                report.check("G11", m.at, first == (view.id, m.seq), || {
                    format!(
                        "{}: delivered {} in view {}, another as number {} in view {}",
                        who.name,
                        m.shown(),
                        view.id,
                        first.1,
                        first.0
                    )
                });
                // G12 sending view, from a member of it.
                report.check("G12", m.at, m.view == view.id, || {
                    format!(
                        "{}: delivered {} of view {} in view {}",
                        who.name,
                        m.shown(),
                        m.view,
                        view.id
                    )
                });
                report.check("G12", m.at, view.members.contains(&m.sender), || {
                    format!(
                        "{}: delivered {} in view {}, which its sender is not in",
                        who.name,
                        m.shown(),
                        view.id
                    )
                });
            }
            suspended(&account.group, &who.name, view, report);
        }
    }
}

/// R6: nothing is delivered between the loss of the primary and its return.
fn suspended<M: Name, P: Name>(group: &str, name: &str, view: &InView<M, P>, report: &mut Report) {
    for void in &view.suspended {
        let delivered = view.log.get(void.clone()).and_then(|log| log.first());
        let at = delivered.map_or(view.at, |m| m.at);
        report.check("suspended", at, delivered.is_none(), || {
            let what = delivered.map(Delivered::shown).unwrap_or_default();
            format!(
                "{name}: delivered {what} in {} while suspended",
                named(group, view)
            )
        });
    }
}

/// G10.
fn nothing_own_is_lost<M: Name, P: Name>(account: &Account<M, P>, report: &mut Report) {
    let mut own: BTreeSet<(M, P)> = BTreeSet::new();
    for who in &account.stays {
        let log = who.views.iter().flat_map(|view| &view.log);
        own.extend(
            log.filter(|m| m.sender == who.member)
                .map(|m| (m.sender, m.payload)),
        );
    }
    for send in account.sent.iter().filter(|send| send.owed) {
        let missing = usize::from(!own.contains(&(send.sender, send.payload)));
        report.check_all("G10", send.at.unwrap_or(0), missing, || {
            format!(
                "{}: took {} for {}, and neither delivered it nor said what became of it",
                send.sender, send.payload, account.group
            )
        });
    }
}

/// What one delivered and the other did not, and how many messages that is; none if they delivered the same.
fn compared<M: Name, P: Name>(one: &Witness<'_, M, P>, other: &Witness<'_, M, P>) -> (usize, String) {
    let shown = |here: &Witness<'_, M, P>, there: &Witness<'_, M, P>| {
        let there: BTreeSet<(M, u64)> = there.view.log.iter().map(Delivered::number).collect();
        let lacks: Vec<_> = here
            .view
            .log
            .iter()
            .filter(|m| !there.contains(&m.number()))
            .collect();
        let first: Vec<String> = lacks.iter().take(5).map(|m| m.shown()).collect();
        (lacks.len(), first.join(", "))
    };
    let ((ours, first_ours), (theirs, first_theirs)) = (shown(one, other), shown(other, one));
    let text = format!(
        "{ours} messages were delivered only by the first [{first_ours}], {theirs} only by the second [{first_theirs}]"
    );
    (ours + theirs, text)
}

/// G14 virtual synchrony. Whether it holds.
fn same_messages<M: Name, P: Name>(
    group: &str,
    one: &Witness<'_, M, P>,
    other: &Witness<'_, M, P>,
    report: &mut Report,
) -> bool {
    let Some(to) = one.next else { return false };
    let (missing, text) = compared(one, other);
    report.check_all("G14", to.at, missing, || {
        format!(
            "{} and {} went together from {} to view {}, and {text}",
            one.who.name,
            other.who.name,
            named(group, one.view),
            to.id
        )
    });
    missing == 0
}

/// G23: the view stands at the same place among the messages.
fn same_place<M: Name, P: Name>(
    account: &Account<M, P>,
    one: &Witness<'_, M, P>,
    other: &Witness<'_, M, P>,
    report: &mut Report,
) {
    let sequence = |view: &InView<M, P>| view.log.iter().map(Delivered::number).collect::<Vec<_>>();
    let by_sender = |view: &InView<M, P>| {
        let mut all = sequence(view);
        all.sort_by_key(|(sender, _)| *sender);
        all
    };
    let same = match account.order {
        Order::Total => sequence(one.view) == sequence(other.view),
        // G14 has compared the sets, G34 compares the order in scopes.
        Order::Unordered | Order::Scoped => true,
        Order::Fifo => by_sender(one.view) == by_sender(other.view),
    };
    let to = one.next.unwrap_or(one.view);
    report.check("G23", to.at, same, || {
        format!(
            "{} and {} came from {} to view {} after different sequences",
            one.who.name,
            other.who.name,
            named(&account.group, one.view),
            to.id
        )
    });
}

/// G13: those that stay in a view have delivered the same.
fn nothing_hangs<M: Name, P: Name>(
    group: &str,
    one: &Witness<'_, M, P>,
    other: &Witness<'_, M, P>,
    report: &mut Report,
) {
    let (missing, text) = compared(one, other);
    report.check_all("G13", one.view.at, missing, || {
        format!(
            "{} and {} rest in {}, and {text}",
            one.who.name,
            other.who.name,
            named(group, one.view)
        )
    });
}
