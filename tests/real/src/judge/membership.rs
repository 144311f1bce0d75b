//! What must be true of node views.

use super::*;

pub(super) fn judge(lives: &[Life<'_>], rules: &Rules, wrong: &mut Vec<String>) {
    for life in lives {
        each_view_by_itself(life, rules, wrong);
    }
    if !rules.any {
        one_list_per_id(lives, wrong);
        one_chain(lives, wrong);
        no_two_primaries(lives, rules, wrong);
    }
}

fn each_view_by_itself(life: &Life<'_>, rules: &Rules, wrong: &mut Vec<String>) {
    let label = life.label();
    let mut before: Option<&NodeView> = None;
    for (_, view) in life.node_views() {
        let id = &view.id;
        // G1 self-inclusion.
        if !view.has(life.incarnation) {
            wrong.push(format!("G1 {label}: is not in its own node view {id:?}"));
        }
        // G7: departures say who said so, and why; or that the same node is here as another incarnation, which joins by this view; G38: or that an operator
        // did; G41: or that it is not in this component.
        for crash in view
            .crashed
            .iter()
            .filter(|crash| !crash.cause.starts_with("overridden"))
            .filter(|crash| !(rules.any && crash.cause.starts_with("separated")))
            .filter(|crash| {
                let superseded = crash.cause.starts_with("superseded");
                !(superseded && view.joined.contains(&crash.name))
            })
            .filter(|crash| crash.accusers.is_empty() || crash.evidence.is_empty())
        {
            wrong.push(format!(
                "G7 {label}: node view {id:?} says that {} crashed, but not who says so on what evidence",
                crash.name
            ));
        }
        if let Some(before) = before.filter(|before| before.primary && view.primary) {
            // G2: ids only grow.
            if before.number() >= view.number() {
                wrong.push(format!("G2 {label}: node view {id:?} after {:?}", before.id));
            }
            // G7: what changed is what is said. A restarted node is in both lists under one name.
            let old: BTreeSet<_> = before.members.iter().map(|m| &m.incarnation).collect();
            let new: BTreeSet<_> = view.members.iter().map(|m| &m.incarnation).collect();
            let named = |members: &[crate::Member], gone: &BTreeSet<&String>| -> Vec<String> {
                let mut names: Vec<_> = members
                    .iter()
                    .filter(|m| !gone.contains(&m.incarnation))
                    .map(|m| m.name.clone())
                    .collect();
                names.sort();
                names
            };
            let sorted = |mut names: Vec<String>| {
                names.sort();
                names
            };
            let joined = named(&view.members, &old);
            if joined != sorted(view.joined.clone()) {
                wrong.push(format!(
                    "G7 {label}: node view {id:?} says joined {:?}, the lists say {joined:?}",
                    view.joined
                ));
            }
            let departed = named(&before.members, &new);
            let said = view
                .left
                .iter()
                .map(|gone| gone.name.clone())
                .chain(view.crashed.iter().map(|c| c.name.clone()))
                .collect();
            if departed != sorted(said) {
                wrong.push(format!(
                    "G7 {label}: node view {id:?} says left {:?}, crashed {:?}, the lists say {departed:?}",
                    view.left, view.crashed
                ));
            }
        }
        before = Some(view);
    }
    // G7: nothing after having left.
    let left = life.events.iter().position(|(_, event)| *event == Event::Left);
    if left.is_some_and(|at| at + 1 < life.events.len()) {
        wrong.push(format!("G7 {label}: said something after it left"));
    }
}

fn one_list_per_id(lives: &[Life<'_>], wrong: &mut Vec<String>) {
    // G4: one id, one list, in one order.
    let mut lists = BTreeMap::new();
    for life in lives {
        for (_, view) in life.node_views() {
            let (first, members) = lists.entry(&view.id).or_insert((life.label(), &view.members));
            if *members != &view.members {
                wrong.push(format!(
                    "G4 node view {:?} differs between {first} and {}: {members:?} and {:?}",
                    view.id,
                    life.label(),
                    view.members
                ));
            }
        }
    }
}

fn one_chain(lives: &[Life<'_>], wrong: &mut Vec<String>) {
    let mut installed: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    for life in lives {
        for (_, view) in life.node_views() {
            installed
                .entry(view.number().unwrap_or(0))
                .or_default()
                .insert(life.incarnation);
        }
    }
    installed.remove(&0);
    let numbers: Vec<u64> = installed.keys().copied().collect();
    // G6: of two consecutive primary views some member installed both.
    for pair in numbers.windows(2) {
        if installed[&pair[0]].is_disjoint(&installed[&pair[1]]) {
            wrong.push(format!(
                "G6 nobody installed both primary views {} and {}",
                pair[0], pair[1]
            ));
        }
    }
    // G18, R1: no primary view is skipped by a node that saw an earlier and a later one.
    for life in lives {
        let own: Vec<u64> = life.node_views().filter_map(|(_, view)| view.number()).collect();
        let (Some(first), Some(last)) = (own.first(), own.last()) else {
            continue;
        };
        for number in numbers
            .iter()
            .filter(|number| (first..=last).contains(number) && !own.contains(number))
        {
            wrong.push(format!(
                "G18 {}: skipped primary view {number} between {first} and {last}",
                life.label()
            ));
        }
    }
}

/// When a life believed in a primary view.
struct Belief<'a, 'b> {
    life: &'a Life<'b>,
    view: &'a NodeView,
    from: Duration,
    to: Duration,
}

fn no_two_primaries(lives: &[Life<'_>], rules: &Rules, wrong: &mut Vec<String>) {
    let mut beliefs = Vec::new();
    for life in lives {
        let views: Vec<_> = life.node_views().collect();
        for (index, (from, view)) in views.iter().enumerate().filter(|(_, (_, view))| view.primary) {
            let expelled = life
                .events
                .iter()
                .find(|(at, event)| at >= from && matches!(event, Event::Expelled { .. } | Event::Left));
            let next = views.get(index + 1).map_or(life.end, |(at, _)| *at);
            let to = expelled.map_or(next, |(at, _)| next.min(*at));
            beliefs.push(Belief {
                life,
                view,
                from: *from,
                to,
            });
        }
    }
    for a in &beliefs {
        for b in &beliefs {
            let (from, to) = (a.from.max(b.from), a.to.min(b.to));
            if a.view.number() >= b.view.number() || from >= to {
                continue;
            }
            let (older, newer) = (a.life.label(), b.life.label());
            // G6: two primaries at one time that have no member in common.
            if !a
                .view
                .members
                .iter()
                .any(|member| b.view.has(&member.incarnation))
            {
                wrong.push(format!(
                    "G6 two primaries from {from:.2?} to {to:.2?}: {older} in {:?} {:?}, {newer} in {:?} {:?}",
                    a.view.id, a.view.names(), b.view.id, b.view.names()
                ));
            }
            // G6: a node that runs notices within bounds that the primary is elsewhere.
            let excluded = !b.view.has(a.life.incarnation);
            if excluded && to - from > rules.belief && !a.life.run.frozen_between(from, to) {
                wrong.push(format!(
                    "G6 {older} believed in primary view {:?} for {:.1?} after {newer} had installed {:?} without it",
                    a.view.id, to - from, b.view.id
                ));
            }
        }
    }
}
