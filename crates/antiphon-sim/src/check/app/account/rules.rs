//! What must hold between the memberships of an account.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_core::Order;
use antiphon_core::wire::Incarnation;

use super::{Account, Delivered, Id, InView, Membership, Notice};
use crate::check::Report;

/// Whether messages of one sender may come in another order than that of sending.
pub(in crate::check::app) fn passes_gaps(order: Order) -> bool {
    matches!(order, Order::Unordered | Order::Scoped)
}

/// One member's time in one view.
type Witness<'a> = (&'a Membership, &'a InView);

/// One member's step from one view to the next.
struct Move<'a> {
    who: &'a Membership,
    from: &'a InView,
    to: &'a InView,
}

pub(in crate::check::app) fn check(account: &Account, report: &mut Report) {
    let group = account.group.as_str();
    let mut seen: BTreeMap<Incarnation, BTreeSet<(Incarnation, u64)>> = BTreeMap::new();
    let mut delivered_in = BTreeMap::new();
    let mut last_id: BTreeMap<Incarnation, Id> = BTreeMap::new();
    let mut views: BTreeMap<(u128, Id), Vec<Witness<'_>>> = BTreeMap::new();
    let mut moves: BTreeMap<(u128, Id), Vec<Move<'_>>> = BTreeMap::new();
    let mut last: BTreeMap<(u128, Id), Vec<Witness<'_>>> = BTreeMap::new();
    for who in &account.memberships {
        if let Some(first) = who.views.first() {
            first_view(group, who, first, report);
        }
        for view in &who.views {
            own_view(group, who, view, report);
            let before = last_id.insert(who.incarnation, view.id);
            report.check(
                "G2",
                view.at,
                before.is_none_or(|before| before < view.id),
                || format!("{} saw {} after {before:?}", who.name, named(group, view)),
            );
            let seen = seen.entry(who.incarnation).or_default();
            each_once(who, view, seen, &mut delivered_in, report);
            views.entry(view.key()).or_default().push((who, view));
        }
        if !passes_gaps(account.order) {
            per_sender(group, who, report);
        }
        for pair in who.views.windows(2) {
            let (from, to) = (&pair[0], &pair[1]);
            differences(group, who, from, to, report);
            moves.entry(to.key()).or_default().push(Move { who, from, to });
        }
        if let Some(view) = who.views.last().filter(|_| who.stays) {
            last.entry(view.key()).or_default().push((who, view));
        }
    }
    for witnesses in views.values() {
        one_list(group, witnesses, report);
        match account.order {
            Order::Total => one_order(group, witnesses, report),
            Order::Unordered | Order::Scoped => {}
            _ => no_holes_per_sender(group, witnesses, report),
        }
    }
    for steps in moves.values() {
        no_detour(group, steps, report);
        for step in steps {
            transitional_set(group, step, steps, report);
        }
        let mut together: BTreeMap<Id, Vec<&Move<'_>>> = BTreeMap::new();
        for step in steps {
            together.entry(step.from.id).or_default().push(step);
        }
        for moved in together.values() {
            for other in &moved[1..] {
                same_messages(group, moved[0], other, report);
                same_place(account, moved[0], other, report);
            }
        }
    }
    for witnesses in last.values() {
        for other in &witnesses[1..] {
            nothing_hangs(group, witnesses[0], *other, report);
        }
    }
}

fn named(group: &str, view: &InView) -> String {
    let [epoch, counter, k] = view.id;
    format!("view {epoch}.{counter}.{k} of {group}")
}

fn sequence(log: &[Delivered]) -> Vec<(Incarnation, u64)> {
    log.iter().map(|m| (m.sender, m.seq)).collect()
}

fn numbers(log: &[Delivered]) -> BTreeSet<(Incarnation, u64)> {
    sequence(log).into_iter().collect()
}

fn shown<'a>(some: impl Iterator<Item = &'a (Incarnation, u64)>) -> String {
    let some = some.take(5).map(|(who, seq)| format!("{}#{seq}", who.short()));
    some.collect::<Vec<_>>().join(" ")
}

/// G1 self-inclusion, and G17: the notice names members of the view, this one among them.
fn own_view(group: &str, who: &Membership, view: &InView, report: &mut Report) {
    report.check("G1", view.at, view.members.contains(&who.incarnation), || {
        format!("{} saw {} without itself", who.name, named(group, view))
    });
    let Some(Notice { members, .. }) = &view.notice else {
        return;
    };
    let possible = members.iter().all(|member| view.members.contains(member));
    report.check(
        "G17",
        view.at,
        possible && members.contains(&who.incarnation),
        || {
            format!(
                "{} got a notice in {} that names {members:?}",
                who.name,
                named(group, view)
            )
        },
    );
}

/// G15: nobody came along into a first view.
fn first_view(group: &str, who: &Membership, first: &InView, report: &mut Report) {
    report.check("G15", first.at, first.transitional == [who.incarnation], || {
        format!(
            "{} starts in {} and is told that {:?} came along",
            who.name,
            named(group, first),
            first.transitional
        )
    });
}

/// G4 one id, one list.
fn one_list(group: &str, witnesses: &[Witness<'_>], report: &mut Report) {
    let (other, same) = witnesses[0];
    for (who, view) in witnesses {
        let distinct: BTreeSet<&Incarnation> = view.members.iter().collect();
        report.check("G4", view.at, distinct.len() == view.members.len(), || {
            format!("{} lists a member twice", named(group, view))
        });
        let lists = |view: &InView| {
            let InView { joined, departed, .. } = view;
            (view.members.clone(), joined.clone(), departed.clone())
        };
        report.check("G4", view.at, lists(same) == lists(view), || {
            format!(
                "{} is {:?} at {} and {:?} at {}",
                named(group, view),
                lists(view),
                who.name,
                lists(same),
                other.name
            )
        });
    }
}

/// G7 what changed is what is said.
fn differences(group: &str, who: &Membership, before: &InView, after: &InView, report: &mut Report) {
    let set = |members: &[Incarnation]| members.iter().copied().collect::<BTreeSet<_>>();
    let (old, new) = (set(&before.members), set(&after.members));
    let (joined, departed) = (set(&after.joined), set(&after.departed));
    let rejoined: BTreeSet<Incarnation> = joined.intersection(&departed).copied().collect();
    let came: BTreeSet<Incarnation> = new.difference(&old).copied().collect();
    let went: BTreeSet<Incarnation> = old.difference(&new).copied().collect();
    let again = |members: &BTreeSet<Incarnation>| rejoined.intersection(members).copied().collect();
    let (came_again, went_again): (BTreeSet<_>, BTreeSet<_>) = (again(&new), again(&old));
    let once = (after.joined.len(), after.departed.len()) == (joined.len(), departed.len());
    let holds = once && joined == &came | &came_again && departed == &went | &went_again;
    report.check("G7", after.at, holds, || {
        format!(
            "{} went from {:?} to {:?} in {}, and is told that {joined:?} joined and {departed:?} departed",
            who.name,
            before.members,
            after.members,
            named(group, after)
        )
    });
}

/// G9 no duplicates, G11 same view for all, G12 sending view.
fn each_once(
    who: &Membership,
    view: &InView,
    seen: &mut BTreeSet<(Incarnation, u64)>,
    delivered_in: &mut BTreeMap<(Incarnation, u64, u64), Id>,
    report: &mut Report,
) {
    for m in &view.log {
        let what = || format!("{}#{}", m.sender.short(), m.seq);
        // Under another number neither.
        report.check("G9", m.at, seen.insert((m.sender, m.hash)), || {
            format!("{} delivered {} twice", who.name, what())
        });
        let first = *delivered_in.entry((m.sender, m.seq, m.hash)).or_insert(view.id);
        report.check("G11", m.at, first == view.id, || {
            format!(
                "{} delivered {} in {:?}, another in {first:?}",
                who.name,
                what(),
                view.id
            )
        });
        let holds = m.view == view.id && view.members.contains(&m.sender);
        report.check("G12", m.at, holds, || {
            format!(
                "{} delivered {} of view {:?} in view {:?}",
                who.name,
                what(),
                m.view,
                view.id
            )
        });
    }
}

/// G19: a sender's messages come without gaps, also across the views that both are in.
fn per_sender(group: &str, who: &Membership, report: &mut Report) {
    let mut last: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for view in &who.views {
        last.retain(|sender, _| view.members.contains(sender) && !view.joined.contains(sender));
        for m in &view.log {
            let before = last.insert(m.sender, m.seq);
            // The first one of a joiner may have any number.
            let follows = before.is_none() || before == Some(m.seq.wrapping_sub(m.numbers));
            report.check("G19", m.at, follows, || {
                format!(
                    "{} delivered {}#{} after #{before:?} in {}",
                    who.name,
                    m.sender.short(),
                    m.seq,
                    named(group, view)
                )
            });
        }
    }
}

/// G21: what was delivered in a view before its flush is one sequence, of which each member has a beginning.
/// G22: and nobody has a later message of it without the earlier ones.
fn one_order(group: &str, witnesses: &[Witness<'_>], report: &mut Report) {
    let Some((reference, longest)) = witnesses.iter().max_by_key(|(_, view)| view.regular().len()) else {
        return;
    };
    let place: BTreeMap<(Incarnation, u64), usize> = sequence(longest.regular())
        .into_iter()
        .enumerate()
        .map(|(index, number)| (number, index))
        .collect();
    for (who, view) in witnesses {
        for (expected, m) in view.regular().iter().enumerate() {
            let here = place.get(&(m.sender, m.seq)).copied();
            report.check("G22", m.at, here.is_none_or(|here| here <= expected), || {
                format!(
                    "{} delivered {}#{} in {} and missed what {} delivered before it",
                    who.name,
                    m.sender.short(),
                    m.seq,
                    named(group, view),
                    reference.name
                )
            });
            report.check("G21", m.at, here == Some(expected), || {
                format!(
                    "{} delivered {}#{} as number {expected} in {}, {} as {here:?}",
                    who.name,
                    m.sender.short(),
                    m.seq,
                    named(group, view),
                    reference.name
                )
            });
            if here != Some(expected) {
                break;
            }
        }
    }
}

/// G22 in a fifo group: per sender each member has a beginning of what any other has.
fn no_holes_per_sender(group: &str, witnesses: &[Witness<'_>], report: &mut Report) {
    let firsts = |view: &InView| {
        let mut seen = BTreeSet::new();
        let firsts = view.log.iter().filter(|m| seen.insert(m.sender));
        firsts.copied().collect::<Vec<Delivered>>()
    };
    let mut first_of: BTreeMap<Incarnation, u64> = BTreeMap::new();
    for m in witnesses.iter().flat_map(|(_, view)| firsts(view)) {
        let first = first_of.entry(m.sender).or_insert(m.seq);
        *first = (*first).min(m.seq);
    }
    for (who, view) in witnesses {
        for m in firsts(view) {
            report.check("G22", m.at, first_of.get(&m.sender) == Some(&m.seq), || {
                format!(
                    "{} began with {}#{} in {}, another with #{:?}",
                    who.name,
                    m.sender.short(),
                    m.seq,
                    named(group, view),
                    first_of.get(&m.sender)
                )
            });
        }
    }
}

/// G16: all that were in both views came directly from the one to the other.
fn no_detour(group: &str, steps: &[Move<'_>], report: &mut Report) {
    for one in steps {
        for other in steps {
            let in_both = one.from.members.contains(&other.who.incarnation);
            let starts_over = other.to.joined.contains(&other.who.incarnation);
            if !in_both || starts_over {
                continue;
            }
            report.check("G16", other.to.at, other.from.id == one.from.id, || {
                format!(
                    "{} came to {} from {:?}, {} from {:?}",
                    one.who.name,
                    named(group, one.to),
                    one.from.id,
                    other.who.name,
                    other.from.id
                )
            });
        }
    }
}

/// G15: exactly those that came directly from my last view.
fn transitional_set(group: &str, step: &Move<'_>, steps: &[Move<'_>], report: &mut Report) {
    let told: BTreeSet<Incarnation> = step.to.transitional.iter().copied().collect();
    let possible = told
        .iter()
        .all(|who| step.from.members.contains(who) && step.to.members.contains(who));
    let own = told.contains(&step.who.incarnation);
    report.check("G15", step.to.at, possible && own, || {
        format!(
            "{} is told in {} that {told:?} came along",
            step.who.name,
            named(group, step.to)
        )
    });
    for other in steps {
        let came = other.from.id == step.from.id;
        let said = told.contains(&other.who.incarnation);
        report.check("G15", step.to.at, said == came, || {
            format!(
                "{} is told in {} that {told:?} came along from {:?}; {} came from {:?}",
                step.who.name,
                named(group, step.to),
                step.from.id,
                other.who.name,
                other.from.id
            )
        });
    }
}

/// G14 virtual synchrony.
fn same_messages(group: &str, one: &Move<'_>, other: &Move<'_>, report: &mut Report) {
    let (ours, theirs) = (numbers(&one.from.log), numbers(&other.from.log));
    report.check("G14", one.to.at, ours == theirs, || {
        format!(
            "{} and {} went together from {:?} to {}: only the first delivered [{}], only the second [{}]",
            one.who.name,
            other.who.name,
            one.from.id,
            named(group, one.to),
            shown(ours.difference(&theirs)),
            shown(theirs.difference(&ours))
        )
    });
}

/// G23: the view stands at the same place among the messages.
fn same_place(account: &Account, one: &Move<'_>, other: &Move<'_>, report: &mut Report) {
    let by_sender = |log: &[Delivered]| {
        let mut result: BTreeMap<Incarnation, Vec<u64>> = BTreeMap::new();
        log.iter()
            .for_each(|m| result.entry(m.sender).or_default().push(m.seq));
        result
    };
    let same = match account.order {
        Order::Total => sequence(&one.from.log) == sequence(&other.from.log),
        // G14 has compared the sets, G34 compares the order in scopes.
        Order::Unordered | Order::Scoped => true,
        _ => by_sender(&one.from.log) == by_sender(&other.from.log),
    };
    report.check("G23", one.to.at, same, || {
        format!(
            "{} and {} came to {} after different sequences",
            one.who.name,
            other.who.name,
            named(&account.group, one.to)
        )
    });
}

/// G13: those that stay in a view have delivered the same.
fn nothing_hangs(group: &str, one: Witness<'_>, other: Witness<'_>, report: &mut Report) {
    let (ours, theirs) = (numbers(&one.1.log), numbers(&other.1.log));
    report.check("G13", one.1.at, ours == theirs, || {
        format!(
            "{} and {} stay in {}: only the first delivered [{}], only the second [{}]",
            one.0.name,
            other.0.name,
            named(group, one.1),
            shown(ours.difference(&theirs)),
            shown(theirs.difference(&ours))
        )
    });
}
