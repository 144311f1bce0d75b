//! Group views beside node views, causes, and nodes that never had a view: G2, G4, G7, G18. The
//! [account](super::account) has the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_core::wire::Incarnation;
use antiphon_core::{GroupOptions, GroupView};

use crate::agenda::Micros;
use crate::check::Report;
use crate::check::history::{Epoch, Facts, GroupKey, History, Life, Stay, StayEnd, ViewKey};
use crate::trace::{GroupIndex, Heard, Seen};

pub(super) fn check(history: &History<'_>, report: &mut Report) {
    let first = first_seen(history);
    for (life, stay) in history.stays() {
        made_in(life, stay, report);
        leavers(history, &first, stay, report);
        crashed(life, stay, report);
    }
    rising(history, report);
    agreement(history, report);
    if history.at_rest {
        no_skip(history, &first, report);
    }
    refusals(history, report);
}

/// When each view was first told to any application.
fn first_seen(history: &History<'_>) -> BTreeMap<ViewKey, Micros> {
    let mut first = BTreeMap::new();
    for epoch in history.stays().flat_map(|(_, stay)| &stay.epochs) {
        let at = first.entry(epoch.key()).or_insert(epoch.at);
        *at = epoch.at.min(*at);
    }
    first
}

/// G7: a group's members are members of the node view it was made in.
fn made_in(life: &Life, stay: &Stay, report: &mut Report) {
    for epoch in &stay.epochs {
        let view = &epoch.view;
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

/// G2: a group's own number rises with each view, whatever node view that is made in.
fn rising(history: &History<'_>, report: &mut Report) {
    for life in &history.lives {
        let mut last: BTreeMap<GroupKey, u32> = BTreeMap::new();
        for stay in &life.stays {
            for epoch in &stay.epochs {
                let before = last.insert(stay.key, epoch.view.id.k);
                let rises = before.is_none_or(|before| before < epoch.view.id.k);
                report.check("G2", epoch.at, rises, || {
                    format!(
                        "{} saw view {} of {} after number {before:?}",
                        history.name(life),
                        epoch.view.id,
                        epoch.view.name
                    )
                });
            }
        }
    }
}

/// G4: of a view all are told the same causes.
fn agreement(history: &History<'_>, report: &mut Report) {
    let mut known: BTreeMap<ViewKey, (&Life, &Arc<GroupView>)> = BTreeMap::new();
    for (life, stay) in history.stays() {
        for epoch in &stay.epochs {
            let view = &epoch.view;
            let (other, same) = *known.entry(epoch.key()).or_insert((life, view));
            let equal = (&same.left, &same.crashed, &same.causes)
                == (&view.left, &view.crashed, &view.causes)
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

/// A member that is said to have left was asked to leave.
fn leavers(history: &History<'_>, first: &BTreeMap<ViewKey, Micros>, stay: &Stay, report: &mut Report) {
    for (before, epoch) in stay.epochs.iter().zip(stay.epochs.iter().skip(1)) {
        let (view, at) = (&epoch.view, epoch.at);
        let seen = first.get(&before.key()).copied().unwrap_or(before.at);
        for who in &view.left {
            let facts = history
                .life(*who)
                .and_then(|left| history.processes.get(&left.process));
            // A request waits while its member is suspended. It may ask to join again before any application
            // is told the last view with it, but not before it came.
            let came = || came(history, first, stay, before, *who);
            let asked = facts.is_some_and(|facts| {
                let asked_since = |seen| asked_to_leave(facts, stay.group, seen, at);
                asked_since(seen) || came().is_some_and(asked_since)
            });
            report.check("causes", at, asked, || {
                format!(
                    "view {} of {} says that {} left, and nobody asked it to",
                    view.id,
                    view.name,
                    who.short()
                )
            });
        }
    }
}

/// A member that is said to have crashed is none of the node view any more, unless it was removed alive: then
/// the view says why.
fn crashed(life: &Life, stay: &Stay, report: &mut Report) {
    for epoch in stay.epochs.iter().skip(1) {
        let (view, at) = (&epoch.view, epoch.at);
        let node = life
            .primaries()
            .find(|(_, node)| node.primary_id() == view.id.node);
        let Some((_, node)) = node else { continue };
        for who in &view.crashed {
            let told = view.causes.iter().any(|(member, _)| member == who);
            report.check("causes", at, told || !node.contains(*who), || {
                format!(
                    "view {} of {} says that {} crashed, which is a member of node view {}",
                    view.id,
                    view.name,
                    who.short(),
                    node.id
                )
            });
        }
    }
}

/// G18 no view is skipped.
fn no_skip(history: &History<'_>, first: &BTreeMap<ViewKey, Micros>, report: &mut Report) {
    for (life, stay) in history.stays() {
        if !life.is_open() {
            continue;
        }
        for (index, epoch) in stay.epochs.iter().enumerate() {
            let seen = first.get(&epoch.key()).copied().unwrap_or(epoch.at);
            let until = stay.epochs.get(index + 1).map_or(Micros::MAX, |next| next.at);
            let leaves = |facts: &Facts| asked_to_leave(facts, stay.group, seen, until);
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
                    || history.processes.get(&other.process).is_some_and(leaves);
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

/// When the present stay of a member of this view began, as the first application was told.
fn came(
    history: &History<'_>,
    first: &BTreeMap<ViewKey, Micros>,
    stay: &Stay,
    before: &Epoch,
    who: Incarnation,
) -> Option<Micros> {
    let stays = history.stays().filter(|(_, other)| other.key == stay.key);
    let epochs = stays.flat_map(|(_, other)| &other.epochs);
    let comes = |epoch: &&Epoch| epoch.view.id <= before.view.id && epoch.view.joined.contains(&who);
    let last = epochs.filter(comes).max_by_key(|epoch| epoch.view.id)?;
    first.get(&last.key()).copied()
}

/// Whether it was asked until then to leave the cluster, or this group. The first member that saw it in the
/// group did so at `seen`: what was asked before it joined for that is no reason any more.
fn asked_to_leave(facts: &Facts, group: GroupIndex, seen: Micros, until: Micros) -> bool {
    let joins = facts.asked_to_join_group.iter();
    let joins = joins.filter(|(at, of)| *of == group && *at <= seen);
    let joined = joins.map(|(at, _)| *at).max().unwrap_or(0);
    let mut leaves = facts.asked_to_leave_group.iter();
    facts.asked_to_leave.is_some_and(|asked| asked <= until)
        || leaves.any(|(at, of)| *of == group && (joined..=until).contains(at))
}

/// A group refuses a member only if some members want it otherwise.
fn refusals(history: &History<'_>, report: &mut Report) {
    let mut wanted: BTreeMap<GroupIndex, GroupOptions> = BTreeMap::new();
    let mut unequal: BTreeSet<GroupIndex> = BTreeSet::new();
    for line in &history.trace.lines {
        match &line.what {
            Seen::AskedToJoin { group, options, .. }
                if *wanted.entry(*group).or_insert(*options) != *options =>
            {
                unequal.insert(*group);
            }
            Seen::Group(group, Heard::Refused(reason)) => {
                let process = line.process;
                report.check("causes", line.at, unequal.contains(group), || {
                    format!("p{process} is refused by group {group}, which all want alike: {reason}")
                });
            }
            _ => {}
        }
    }
}
