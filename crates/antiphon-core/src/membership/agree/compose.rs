//! The view that a proposed change makes of the present one.

use std::collections::BTreeSet;

use antiphon_wire::{Departure, Incarnation, NodeView, NodeViewId};

use crate::membership::agree::interface::ProposedChange;
use crate::membership::view::check;

/// If votes name only what changes, a view loses at most this many members: these, and nothing else, always
/// fit.
const MAX_DEPARTED: usize = 700;

/// The view after `view`: without the members in `remove`, and with the joiners of the wanted change.
///
/// `named`: votes carry what changes, and not the whole view.
pub(crate) fn compose(
    view: &NodeView,
    mut remove: Vec<Departure>,
    wanted: &ProposedChange,
    named: bool,
) -> NodeView {
    let fits = |next: &NodeView| {
        if named {
            check::change_fits(&check::change_of(view, next))
        } else {
            check::fits(next)
        }
    };
    let next = composed(view, remove.clone(), wanted);
    if fits(&next) {
        return next;
    }
    // A vote must fit one lifeline record. The accusers are the first to go.
    for departure in &mut remove {
        departure.accusers.clear();
    }
    let next = composed(view, remove.clone(), wanted);
    if fits(&next) || !named {
        return next;
    }
    // What still does not fit comes in the view after this one.
    remove.truncate(MAX_DEPARTED);
    let wanted = ProposedChange {
        join: Vec::new(),
        ..wanted.clone()
    };
    composed(view, remove, &wanted)
}

fn composed(view: &NodeView, remove: Vec<Departure>, wanted: &ProposedChange) -> NodeView {
    let gone: BTreeSet<Incarnation> = remove
        .iter()
        .map(|departure| departure.member.incarnation)
        .collect();
    let mut members: Vec<_> = view
        .members
        .iter()
        .filter(|member| !gone.contains(&member.incarnation))
        .cloned()
        .collect();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let mut joiners = wanted.join.clone();
    joiners.retain(|joiner| !names.contains(joiner.name.as_str()));
    joiners.sort_by_key(|joiner| joiner.addr);
    let joined: Vec<_> = joiners.iter().map(|joiner| joiner.incarnation).collect();
    let merged = check::merged_of(view.lineage, &joined, &wanted.origins);
    members.extend(joiners);
    if planted!(ForgetSeniorityOrder) {
        members.sort_by_key(|member| member.incarnation);
    }
    NodeView {
        lineage: view.lineage,
        id: NodeViewId::Primary {
            id: check::next_id(view.primary_id()),
        },
        // R5: the number rises strictly at every node, also at a node that comes from another lineage.
        number: view.number.max(wanted.number).saturating_add(1),
        members,
        joined,
        departed: remove,
        merged,
        wire_level: wanted.wire_level,
    }
}
