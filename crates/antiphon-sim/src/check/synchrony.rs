//! Members that move together: G14, G15, G16, G17, G23.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Order;
use antiphon_core::wire::{GroupViewId, Incarnation};

use super::Report;
use super::history::{Epoch, History, Life, ViewKey};
use crate::trace::Delivery;

/// One member's step from one view to the next.
struct Move<'a> {
    life: &'a Life,
    from: &'a Epoch,
    to: &'a Epoch,
}

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let mut moves: BTreeMap<ViewKey, Vec<Move<'_>>> = BTreeMap::new();
    for (life, stay) in history.stays() {
        if let Some(first) = stay.epochs.first() {
            first_view(history, life, first, report);
        }
        for epoch in &stay.epochs {
            notice(history, life, epoch, report);
        }
        for pair in stay.epochs.windows(2) {
            let step = Move {
                life,
                from: &pair[0],
                to: &pair[1],
            };
            moves.entry(pair[1].key()).or_default().push(step);
        }
    }
    for steps in moves.values() {
        no_detour(history, steps, report);
        for step in steps {
            transitional_set(history, step, steps, report);
        }
        let mut together: BTreeMap<GroupViewId, Vec<&Move<'_>>> = BTreeMap::new();
        for step in steps {
            together.entry(step.from.view.id).or_default().push(step);
        }
        for group in together.values() {
            for other in &group[1..] {
                same_messages(history, group[0], other, report);
                same_place(history, group[0], other, report);
            }
        }
    }
}

/// G15: nobody came along into a first view.
fn first_view(history: &History<'_>, life: &Life, first: &Epoch, report: &mut Report) {
    report.check(
        "G15",
        first.at,
        first.view.transitional == [life.incarnation],
        || {
            format!(
                "{} starts in view {} of {} and is told that {:?} came along",
                history.name(life),
                first.view.id,
                first.view.name,
                first.view.transitional
            )
        },
    );
}

/// G17: the notice names members of the view, this one among them.
fn notice(history: &History<'_>, life: &Life, epoch: &Epoch, report: &mut Report) {
    let Some((_, members)) = &epoch.transitional else {
        return;
    };
    let holds = members.contains(&life.incarnation)
        && members.iter().all(|member| epoch.view.members.contains(member));
    report.check("G17", epoch.at, holds, || {
        format!(
            "{} got a notice in {} that names {members:?}",
            history.name(life),
            epoch.view.id
        )
    });
}

/// G16: all that were in both views came directly from the one to the other.
fn no_detour(history: &History<'_>, steps: &[Move<'_>], report: &mut Report) {
    for one in steps {
        for other in steps {
            let in_both = one.from.view.members.contains(&other.life.incarnation);
            let starts_over = other.to.view.joined.contains(&other.life.incarnation);
            if !in_both || starts_over {
                continue;
            }
            report.check("G16", other.to.at, other.from.view.id == one.from.view.id, || {
                format!(
                    "{} came to {} of {} from {}, {} from {}",
                    history.name(one.life),
                    one.to.view.id,
                    one.to.view.name,
                    one.from.view.id,
                    history.name(other.life),
                    other.from.view.id
                )
            });
        }
    }
}

/// G15: exactly those that came directly from my last view.
fn transitional_set(history: &History<'_>, step: &Move<'_>, steps: &[Move<'_>], report: &mut Report) {
    let told: BTreeSet<Incarnation> = step.to.view.transitional.iter().copied().collect();
    let possible = told
        .iter()
        .all(|who| step.from.view.members.contains(who) && step.to.view.members.contains(who));
    report.check(
        "G15",
        step.to.at,
        possible && told.contains(&step.life.incarnation),
        || {
            format!(
                "{} is told in {} that {told:?} came along",
                history.name(step.life),
                step.to.view.id
            )
        },
    );
    for other in steps {
        let came = other.from.view.id == step.from.view.id;
        report.check(
            "G15",
            step.to.at,
            told.contains(&other.life.incarnation) == came,
            || {
                format!(
                    "{} is told in {} of {} that {told:?} came along from {}; {} came from {}",
                    history.name(step.life),
                    step.to.view.id,
                    step.to.view.name,
                    step.from.view.id,
                    history.name(other.life),
                    other.from.view.id
                )
            },
        );
    }
}

/// G14 virtual synchrony.
fn same_messages(history: &History<'_>, one: &Move<'_>, other: &Move<'_>, report: &mut Report) {
    let set = |log: &[Delivery]| log.iter().map(|m| (m.sender, m.seq)).collect::<BTreeSet<_>>();
    let (ours, theirs) = (set(&one.from.log), set(&other.from.log));
    report.check("G14", one.to.at, ours == theirs, || {
        let show = |set: Vec<&(Incarnation, u64)>| {
            set.iter().take(5).map(|(who, seq)| format!("{}#{seq}", who.short())).collect::<Vec<_>>().join(" ")
        };
        format!(
            "{} and {} went together from {} to {} of {}: only the first delivered [{}], only the second [{}]",
            history.name(one.life),
            history.name(other.life),
            one.from.view.id,
            one.to.view.id,
            one.to.view.name,
            show(ours.difference(&theirs).collect()),
            show(theirs.difference(&ours).collect())
        )
    });
}

/// G23: the view stands at the same place among the messages.
fn same_place(history: &History<'_>, one: &Move<'_>, other: &Move<'_>, report: &mut Report) {
    let same = match one.to.view.order {
        Order::Total => sequence(&one.from.log) == sequence(&other.from.log),
        // G14 has compared the sets, G34 compares the order in scopes.
        Order::Unordered | Order::Scoped => true,
        _ => by_sender(&one.from.log) == by_sender(&other.from.log),
    };
    report.check("G23", one.to.at, same, || {
        format!(
            "{} and {} came to {} of {} after different sequences",
            history.name(one.life),
            history.name(other.life),
            one.to.view.id,
            one.to.view.name
        )
    });
}

fn sequence(log: &[Delivery]) -> Vec<(Incarnation, u64)> {
    log.iter().map(|m| (m.sender, m.seq)).collect()
}

fn by_sender(log: &[Delivery]) -> BTreeMap<Incarnation, Vec<u64>> {
    let mut result: BTreeMap<Incarnation, Vec<u64>> = BTreeMap::new();
    for m in log {
        result.entry(m.sender).or_default().push(m.seq);
    }
    result
}
