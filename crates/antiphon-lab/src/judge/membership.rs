//! What must be true of node views.

use super::*;

pub(super) fn judge(lives: &[Life<'_>], rules: &Rules, found: &mut Findings) {
    for life in lives {
        each_view_by_itself(life, rules, found);
    }
    if !rules.any {
        one_list_per_id(lives, found);
        one_chain(lives, found);
        no_two_primaries(lives, rules, found);
    }
}

fn each_view_by_itself(life: &Life<'_>, rules: &Rules, found: &mut Findings) {
    let label = life.label();
    let mut before: Option<&NodeView> = None;
    for (_, view) in life.node_views() {
        let id = &view.id;
        // G1 self-inclusion.
        if !view.has(life.incarnation) {
            found.view("G1", format!("{label}: is not in its own node view {id:?}"));
        }
        // G7: departures say who said so, and why; or that the same node is here as another incarnation,
        // which joins by this view; G38: or that an operator did; G41: or that it is not in this component.
        for crash in view
            .crashed
            .iter()
            .filter(|crash| !crash.cause.starts_with("overridden"))
            .filter(|crash| !(rules.any && crash.cause.starts_with("separated")))
            .filter(|crash| {
                let superseded = crash.cause.starts_with("superseded");
                !(superseded && view.joined.contains(&crash.member.name))
            })
            .filter(|crash| crash.accusers.is_empty() || crash.evidence.is_empty())
        {
            found.view(
                "G7",
                format!(
                    "{label}: node view {id:?} says that {} crashed, but not who says so on what evidence",
                    crash.member.name
                ),
            );
        }
        if let Some(before) = before.filter(|before| before.primary && view.primary) {
            // G2: ids only grow.
            if before.number >= view.number {
                found.view("G2", format!("{label}: node view {id:?} after {:?}", before.id));
            }
            // G7: what changed is what is said. A restarted node is in both lists under one name.
            let old: BTreeSet<_> = before.members.iter().map(|m| &m.incarnation).collect();
            let new: BTreeSet<_> = view.members.iter().map(|m| &m.incarnation).collect();
            let named = |members: &[antiphon_api::ViewMember], gone: &BTreeSet<&String>| -> Vec<String> {
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
                found.view(
                    "G7",
                    format!(
                        "{label}: node view {id:?} says joined {:?}, the lists say {joined:?}",
                        view.joined
                    ),
                );
            }
            let departed = named(&before.members, &new);
            let said = view
                .left
                .iter()
                .map(|gone| gone.name.clone())
                .chain(view.crashed.iter().map(|c| c.member.name.clone()))
                .collect();
            if departed != sorted(said) {
                found.view(
                    "G7",
                    format!(
                        "{label}: node view {id:?} says left {:?}, crashed {:?}, the lists say {departed:?}",
                        view.left, view.crashed
                    ),
                );
            }
        }
        before = Some(view);
    }
    // G7: nothing after having left.
    let left = life.events.iter().position(|(_, event)| *event == Event::Left);
    if left.is_some_and(|at| at + 1 < life.events.len()) {
        found.view("G7", format!("{label}: said something after it left"));
    }
}

fn one_list_per_id(lives: &[Life<'_>], found: &mut Findings) {
    // G4: one id, one list, in one order.
    let mut lists = BTreeMap::new();
    for life in lives {
        for (_, view) in life.node_views() {
            let (first, members) = lists.entry(&view.id).or_insert((life.label(), &view.members));
            if *members != &view.members {
                found.view(
                    "G4",
                    format!(
                        "node view {:?} differs between {first} and {}: {members:?} and {:?}",
                        view.id,
                        life.label(),
                        view.members
                    ),
                );
            }
        }
    }
}

fn one_chain(lives: &[Life<'_>], found: &mut Findings) {
    let mut installed: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for life in lives {
        for (_, view) in life.node_views() {
            installed
                .entry(number(view).unwrap_or(0))
                .or_default()
                .insert(life.incarnation);
        }
    }
    installed.remove(&0);
    let numbers: Vec<u32> = installed.keys().copied().collect();
    // G6: of two consecutive primary views some member installed both.
    for pair in numbers.windows(2) {
        if installed[&pair[0]].is_disjoint(&installed[&pair[1]]) {
            found.view(
                "G6",
                format!("nobody installed both primary views {} and {}", pair[0], pair[1]),
            );
        }
    }
    // G18, R1: no primary view is skipped by a node that saw an earlier and a later one.
    for life in lives {
        let own: Vec<u32> = life.node_views().filter_map(|(_, view)| number(view)).collect();
        let (Some(first), Some(last)) = (own.first(), own.last()) else {
            continue;
        };
        for number in numbers
            .iter()
            .filter(|number| (first..=last).contains(number) && !own.contains(number))
        {
            found.view(
                "G18",
                format!(
                    "{}: skipped primary view {number} between {first} and {last}",
                    life.label()
                ),
            );
        }
    }
}

/// When a life believed in a primary view.
struct Belief<'a, 'b> {
    life: &'a Life<'b>,
    view: &'b NodeView,
    from: Duration,
    to: Duration,
}

fn no_two_primaries(lives: &[Life<'_>], rules: &Rules, found: &mut Findings) {
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
            if a.view.number >= b.view.number || from >= to {
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
                found.view("G6", format!(
                    "two primaries from {from:.2?} to {to:.2?}: {older} in {:?} {:?}, {newer} in {:?} {:?}",
                    a.view.id, a.view.names(), b.view.id, b.view.names()
                ));
            }
            // G6: a node that runs notices within bounds that the primary is elsewhere.
            let excluded = !b.view.has(a.life.incarnation);
            if excluded && to - from > rules.belief && !a.life.run.frozen_between(from, to) {
                found.view("G6", format!(
                    "{older} believed in primary view {:?} for {:.1?} after {newer} had installed {:?} without it",
                    a.view.id, to - from, b.view.id
                ));
            }
        }
    }
}

/// The number of a primary view.
fn number(view: &NodeView) -> Option<u32> {
    view.primary.then_some(view.number)
}
