//! Which members have which line of a state, where components go on by themselves.
//!
//! ```text
//!  A, B, C, D    1 ── 2 ── 3 ─┬─ 4 (C, D are gone) ── 5 ── 6 ── 7      A, B, and E, which joined them at 5
//!                             └─ 4 (A, B are gone) ── 5                C, D
//! ```
//! If a member's first step is behind the place where the lines part, it has the line with which most of its
//! steps agree. Some of these steps may belong to a member that came there later.

use std::collections::{BTreeMap, BTreeSet};

use super::line::{Applied, Log, Tenure};

/// What does not belong to a line.
#[derive(Debug, Default, Clone)]
pub(super) struct Part {
    /// From which place on what a member applied does not.
    pub(super) off: BTreeMap<Tenure, u64>,
    /// Of these, members that got the state of another line.
    pub(super) elsewhere: BTreeSet<Tenure>,
}

/// The lines of a state.
pub(super) fn parts(logs: &BTreeMap<Tenure, &Log<'_>>) -> Vec<Part> {
    let last = logs.values().filter_map(|log| log.steps.keys().next_back()).max();
    let (first, last) = (0, last.copied().unwrap_or_default());
    let (mut whole, mut left) = (Vec::new(), vec![(first, Part::default())]);
    'parts: while let Some((from, part)) = left.pop() {
        for index in from..=last {
            let sides = sides(logs, &part, index);
            if sides.len() > 1 {
                left.extend(
                    sides
                        .iter()
                        .map(|side| (index, without(logs, &part, side, &sides, index))),
                );
                continue 'parts;
            }
        }
        whole.push(part);
    }
    whole
}

/// The members that make the same step at a place, and the members that come to them later. There is more
/// than one such side if there are several steps.
fn sides(logs: &BTreeMap<Tenure, &Log<'_>>, part: &Part, index: u64) -> Vec<BTreeSet<Tenure>> {
    let on = logs.iter().filter(|(tenure, _)| !part.off.contains_key(tenure));
    let mut sides: Vec<(&Applied<'_>, BTreeSet<Tenure>)> = Vec::new();
    let mut later = Vec::new();
    for (tenure, log) in on {
        match log.steps.get(&index) {
            Some(applied) => match sides.iter_mut().find(|(step, _)| step.is(applied)) {
                Some((_, members)) => drop(members.insert(*tenure)),
                None => sides.push((applied, BTreeSet::from([*tenure]))),
            },
            None if log.steps.keys().next() > Some(&index) => later.push((*tenure, *log)),
            None => {}
        }
    }
    let mut sides: Vec<BTreeSet<Tenure>> = sides.into_iter().map(|(_, members)| members).collect();
    if sides.len() < 2 {
        return sides;
    }
    later.sort_by_key(|(_, log)| log.steps.keys().next().copied());
    for (tenure, log) in later {
        let agree = |members: &BTreeSet<Tenure>| {
            let others = members.iter().filter_map(|member| logs.get(member));
            others.map(|other| agreement(log, other)).max()
        };
        let most = (0..sides.len()).max_by_key(|side| agree(&sides[*side]));
        if let Some(most) = most {
            sides[most].insert(tenure);
        }
    }
    sides
}

/// In how many places both logs have the same step.
fn agreement(one: &Log<'_>, other: &Log<'_>) -> usize {
    let same = one.steps.iter().filter(|(index, applied)| {
        let there = other.steps.get(index);
        there.is_some_and(|there| there.is(applied))
    });
    same.count()
}

/// The part that has this side of several.
fn without(
    logs: &BTreeMap<Tenure, &Log<'_>>,
    part: &Part,
    side: &BTreeSet<Tenure>,
    sides: &[BTreeSet<Tenure>],
    index: u64,
) -> Part {
    let mut part = part.clone();
    for tenure in sides.iter().flatten().filter(|tenure| !side.contains(tenure)) {
        let begun = logs.get(tenure).is_some_and(|log| log.steps.contains_key(&index));
        if !begun {
            part.elsewhere.insert(*tenure);
        }
        part.off.insert(*tenure, if begun { index } else { 0 });
    }
    part
}
