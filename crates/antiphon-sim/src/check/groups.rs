//! Group views at each member: G1, G2, G4, G7, G18.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::GroupView;
use antiphon_core::wire::{GroupViewId, Incarnation};

use super::Report;
use super::history::{GroupKey, History, Life, Stay, StayEnd, ViewKey};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    for (life, stay) in history.stays() {
        own_views(history, life, stay, report);
        differences(history, life, stay, report);
    }
    monotone(history, report);
    agreement(history, report);
    if history.at_rest {
        no_skip(history, report);
    }
}

/// G1 self-inclusion; a group's members are members of the node view it was made in.
fn own_views(history: &History<'_>, life: &Life, stay: &Stay, report: &mut Report) {
    for epoch in &stay.epochs {
        let view = &epoch.view;
        report.check("G1", epoch.at, view.members.contains(&life.incarnation), || {
            format!(
                "{} saw view {} of {} without itself",
                history.name(life),
                view.id,
                view.name
            )
        });
        let distinct: BTreeSet<&Incarnation> = view.members.iter().collect();
        report.check("G4", epoch.at, distinct.len() == view.members.len(), || {
            format!("view {} of {} lists a member twice", view.id, view.name)
        });
        let made_in = life
            .primaries()
            .find(|(_, node)| node.primary_id() == view.id.node);
        if let Some((_, node)) = made_in {
            let stranger = view.members.iter().find(|member| !node.contains(**member));
            report.check(
                "G7",
                epoch.at,
                stranger.is_none() && node.number == view.id.number,
                || {
                    format!(
                        "view {} of {} has {stranger:?}, which node view {} does not",
                        view.id, view.name, node.id
                    )
                },
            );
        }
    }
}

/// G2 views only go forward.
fn monotone(history: &History<'_>, report: &mut Report) {
    for life in &history.lives {
        let mut last: BTreeMap<GroupKey, GroupViewId> = BTreeMap::new();
        for stay in &life.stays {
            for epoch in &stay.epochs {
                let before = last.insert(stay.key, epoch.view.id);
                let forward = before.is_none_or(|before| {
                    (before.node, before.k) < (epoch.view.id.node, epoch.view.id.k)
                        && before.k < epoch.view.id.k
                });
                report.check("G2", epoch.at, forward, || {
                    format!(
                        "{} saw view {} of {} after {before:?}",
                        history.name(life),
                        epoch.view.id,
                        epoch.view.name
                    )
                });
            }
        }
    }
}

/// G4 one id, one list.
fn agreement(history: &History<'_>, report: &mut Report) {
    let mut known: BTreeMap<ViewKey, (&Life, &Arc<GroupView>)> = BTreeMap::new();
    for (life, stay) in history.stays() {
        for epoch in &stay.epochs {
            let view = &epoch.view;
            let (other, same) = *known.entry(epoch.key()).or_insert((life, view));
            // What came along is a matter of where each came from; all else is the same for all.
            let equal = same.members == view.members
                && same.joined == view.joined
                && same.left == view.left
                && same.crashed == view.crashed
                && same.causes == view.causes
                && (&same.name, same.order) == (&view.name, view.order);
            report.check("G4", epoch.at, equal, || {
                format!(
                    "view {} is {view:?} at {} and {same:?} at {}",
                    view.id,
                    history.name(life),
                    history.name(other)
                )
            });
        }
    }
}

/// G7 what changed is what is said.
fn differences(history: &History<'_>, life: &Life, stay: &Stay, report: &mut Report) {
    for pair in stay.epochs.windows(2) {
        let (before, after) = (&pair[0].view, &pair[1].view);
        let set = |members: &[Incarnation]| members.iter().copied().collect::<BTreeSet<_>>();
        let (old, new) = (set(&before.members), set(&after.members));
        let gone: Vec<Incarnation> = after.left.iter().chain(&after.crashed).copied().collect();
        let rejoined = |who: &Incarnation| after.joined.contains(who) && gone.contains(who);
        let joined: BTreeSet<Incarnation> = new
            .iter()
            .copied()
            .filter(|who| !old.contains(who) || rejoined(who))
            .collect();
        let departed: BTreeSet<Incarnation> = old
            .iter()
            .copied()
            .filter(|who| !new.contains(who) || rejoined(who))
            .collect();
        let holds = set(&after.joined) == joined
            && set(&gone) == departed
            && gone.len() == departed.len()
            && after.joined.len() == joined.len();
        report.check("G7", pair[1].at, holds, || {
            format!(
                "{} went from {before:?} to {after:?}: the lists do not tell the difference",
                history.name(life)
            )
        });
        for who in &after.left {
            let asked = history
                .life(*who)
                .and_then(|left| history.processes.get(&left.process))
                .is_some_and(|facts| {
                    let cluster = facts.asked_to_leave.is_some_and(|at| at <= pair[1].at);
                    let group = facts
                        .asked_to_leave_group
                        .iter()
                        .any(|(at, group)| *at <= pair[1].at && *group == stay.group);
                    cluster || group
                });
            report.check("causes", pair[1].at, asked, || {
                format!(
                    "view {} of {} says that {} left, and nobody asked it to",
                    after.id,
                    after.name,
                    who.short()
                )
            });
        }
    }
}

/// G18 no view is skipped.
fn no_skip(history: &History<'_>, report: &mut Report) {
    for (life, stay) in history.stays() {
        if !life.is_open() {
            continue;
        }
        for (index, epoch) in stay.epochs.iter().enumerate() {
            for member in &epoch.view.members {
                let Some(other) = history.life(*member) else {
                    continue;
                };
                let theirs: Vec<&Stay> = other
                    .stays
                    .iter()
                    .filter(|theirs| theirs.key == stay.key)
                    .collect();
                let excused = !other.is_open()
                    || theirs
                        .iter()
                        .any(|theirs| theirs.epochs.iter().any(|seen| seen.key() == epoch.key()))
                    || stay.epochs[index + 1..]
                        .iter()
                        .any(|later| !later.view.members.contains(member))
                    || stay.end != StayEnd::Open
                    || left(history, other, stay);
                report.check("G18", epoch.at, excused, || {
                    format!(
                        "{} saw view {} of {} and member {} never did",
                        history.name(life),
                        epoch.view.id,
                        epoch.view.name,
                        history.name(other)
                    )
                });
            }
        }
    }
}

fn left(history: &History<'_>, life: &Life, stay: &Stay) -> bool {
    history.processes.get(&life.process).is_some_and(|facts| {
        facts.asked_to_leave.is_some()
            || facts
                .asked_to_leave_group
                .iter()
                .any(|(_, group)| *group == stay.group)
    })
}
