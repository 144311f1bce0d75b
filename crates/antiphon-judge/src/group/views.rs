//! Views of a group: G1, G2, G4, G7, G15, G16, and G17 what their notices say.

use std::collections::{BTreeMap, BTreeSet};

use super::{Account, InView, Notice, Stay, Witness, named};
use crate::{Id, Name, Report, list};

/// One member's step from one view to the next.
struct Move<'a, M, P> {
    who: &'a Stay<M, P>,
    from: &'a InView<M, P>,
    to: &'a InView<M, P>,
}

pub(super) fn check<M: Name, P: Name>(
    account: &Account<M, P>,
    views: &[Vec<Witness<'_, M, P>>],
    report: &mut Report,
) {
    let group = account.group.as_str();
    let mut last_id: BTreeMap<usize, Id> = BTreeMap::new();
    let mut moves: BTreeMap<(u128, Id), Vec<Move<'_, M, P>>> = BTreeMap::new();
    for who in &account.stays {
        if let Some(first) = who.views.first() {
            first_view(account, who, first, report);
        }
        for view in &who.views {
            own_view(group, who, view, report);
            let before = last_id.insert(who.life, view.id);
            let rises = before.is_none_or(|before| before < view.id);
            report.check("G2", view.at, rises, || {
                let before = before.unwrap_or_default();
                format!("{}: {} after view {before}", who.name, named(group, view))
            });
        }
        for pair in who.views.windows(2) {
            let (from, to) = (&pair[0], &pair[1]);
            differences(group, who, from, to, report);
            moves.entry(to.key()).or_default().push(Move { who, from, to });
        }
    }
    for witnesses in views {
        one_list(group, witnesses, report);
    }
    for steps in moves.values() {
        no_detour(group, steps, report);
        for step in steps {
            transitional_set(group, step, steps, report);
        }
    }
}

/// G1 self-inclusion, and G17: the notice names members of the view, this one among them.
fn own_view<M: Name, P>(group: &str, who: &Stay<M, P>, view: &InView<M, P>, report: &mut Report) {
    report.check("G1", view.at, view.members.contains(&who.member), || {
        format!("{}: is not in its own {}", who.name, named(group, view))
    });
    let Some(Notice { members, .. }) = &view.notice else {
        return;
    };
    let possible = members.iter().all(|member| view.members.contains(member));
    let holds = possible && members.contains(&who.member);
    report.check("G17", view.at, holds, || {
        let told = list(members.iter().copied());
        format!(
            "{}: got a notice in {} that names {told}",
            who.name,
            named(group, view)
        )
    });
}

/// G15: nobody came along into a first view. A client's first view names the members before it.
fn first_view<M: Name, P>(
    account: &Account<M, P>,
    who: &Stay<M, P>,
    first: &InView<M, P>,
    report: &mut Report,
) {
    let holds = match account.clients {
        true => {
            let before = first
                .members
                .iter()
                .filter(|member| !first.joined.contains(member));
            first.transitional.iter().eq(before)
        }
        false => first.transitional == [who.member],
    };
    report.check("G15", first.at, holds, || {
        let told = list(first.transitional.iter().copied());
        format!(
            "{}: starts in {} and is told that {told} came along",
            who.name,
            named(&account.group, first)
        )
    });
}

/// G4 one id, one list.
fn one_list<M: Name, P>(group: &str, witnesses: &[Witness<'_, M, P>], report: &mut Report) {
    let first = &witnesses[0];
    for Witness { who, view, .. } in witnesses {
        let distinct: BTreeSet<&M> = view.members.iter().collect();
        report.check("G4", view.at, distinct.len() == view.members.len(), || {
            format!("{} lists a member twice", named(group, view))
        });
        let lists = |view: &InView<M, P>| {
            let InView { joined, departed, .. } = view;
            [&view.members, joined, departed].map(|members| list(members.iter().copied()))
        };
        let same = (&first.view.members, &first.view.joined, &first.view.departed)
            == (&view.members, &view.joined, &view.departed);
        report.check("G4", view.at, same, || {
            let [[ours, in_ours, out_ours], [theirs, in_theirs, out_theirs]] =
                [lists(view), lists(first.view)];
            format!(
                "{} differs: at {} it is {ours}, joined {in_ours}, gone {out_ours}; at {} {theirs}, joined \
                 {in_theirs}, gone {out_theirs}",
                named(group, view),
                who.name,
                first.who.name
            )
        });
    }
}

/// G7 what changed is what is said.
fn differences<M: Name, P>(
    group: &str,
    who: &Stay<M, P>,
    before: &InView<M, P>,
    after: &InView<M, P>,
    report: &mut Report,
) {
    let set = |members: &[M]| members.iter().copied().collect::<BTreeSet<_>>();
    let (old, new) = (set(&before.members), set(&after.members));
    let (joined, departed) = (set(&after.joined), set(&after.departed));
    let rejoined: BTreeSet<M> = joined.intersection(&departed).copied().collect();
    let again = |members: &BTreeSet<M>| rejoined.intersection(members).copied().collect::<BTreeSet<M>>();
    let came: BTreeSet<M> = new.difference(&old).copied().chain(again(&new)).collect();
    let went: BTreeSet<M> = old.difference(&new).copied().chain(again(&old)).collect();
    let once = (after.joined.len(), after.departed.len()) == (joined.len(), departed.len());
    report.check("G7", after.at, once && joined == came && departed == went, || {
        format!(
            "{}: from {} to {} {} it is told that {} joined and {} departed; by the lists it was {} and {}",
            who.name,
            list(before.members.iter().copied()),
            named(group, after),
            list(after.members.iter().copied()),
            list(after.joined.iter().copied()),
            list(after.departed.iter().copied()),
            list(came),
            list(went)
        )
    });
}

/// G16: all that were in both views came directly from the one to the other.
fn no_detour<M: Name, P: Name>(group: &str, steps: &[Move<'_, M, P>], report: &mut Report) {
    for one in steps {
        for other in steps {
            let in_both = one.from.members.contains(&other.who.member);
            let starts_over = other.to.joined.contains(&other.who.member);
            if !in_both || starts_over {
                continue;
            }
            report.check("G16", other.to.at, other.from.id == one.from.id, || {
                format!(
                    "{} came to {} from view {}, {} from view {}",
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
fn transitional_set<M: Name, P: Name>(
    group: &str,
    step: &Move<'_, M, P>,
    steps: &[Move<'_, M, P>],
    report: &mut Report,
) {
    let told: BTreeSet<M> = step.to.transitional.iter().copied().collect();
    let possible = told
        .iter()
        .all(|who| step.from.members.contains(who) && step.to.members.contains(who));
    let own = told.contains(&step.who.member);
    report.check("G15", step.to.at, possible && own, || {
        let told = list(told.iter().copied());
        format!(
            "{}: is told in {} that {told} came along",
            step.who.name,
            named(group, step.to)
        )
    });
    for other in steps {
        let came = other.from.id == step.from.id;
        let said = told.contains(&other.who.member);
        report.check("G15", step.to.at, said == came, || {
            format!(
                "{}: is told in {} that {} came along from view {}; {} came from view {}",
                step.who.name,
                named(group, step.to),
                list(told.iter().copied()),
                step.from.id,
                other.who.name,
                other.from.id
            )
        });
    }
}
