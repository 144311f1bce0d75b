//! A part of a view as a lineage of its own (policy `any`).

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_wire::{Cause, Departure, Incarnation, Lineage, NodeView, NodeViewId, ViewId};

use crate::membership::context::Context;
use crate::membership::seek::founding::{new_lineage, number_after};
use crate::membership::view::check;
use crate::{BallotStep, Time};

/// The first view of the lineage that this component would found; `None` if it may not found one, or could
/// decide nothing.
pub(crate) fn compose(
    cx: &mut Context,
    now: Time,
    base: &NodeView,
    component: &BTreeSet<Incarnation>,
) -> Option<NodeView> {
    if !cx.any() || planted!(SeparateNever) {
        return None;
    }
    let lineage = new_lineage(cx, now, Some(base.lineage));
    let view = part_of(base, lineage, number_after(cx, now, base.number), |member| {
        component.contains(&member)
    })?;
    let weight: u64 = view.members.iter().map(|member| u64::from(member.weight)).sum();
    (weight > 0).then_some(view)
}

/// A part of a view as a lineage of its own.
pub(crate) fn part_of(
    base: &NodeView,
    lineage: Lineage,
    number: u32,
    stays: impl Fn(Incarnation) -> bool,
) -> Option<NodeView> {
    let old = base.primary_id();
    let (members, others): (Vec<_>, Vec<_>) = base
        .members
        .iter()
        .cloned()
        .partition(|member| stays(member.incarnation));
    let departed: Vec<Departure> = others
        .into_iter()
        .map(|member| Departure {
            member,
            cause: Cause::Separated {
                lineage: base.lineage,
                view: old,
            },
            accusers: Vec::new(),
        })
        .collect();
    let epoch = old.epoch.checked_add(1)?;
    (!members.is_empty() && !departed.is_empty()).then_some(NodeView {
        lineage,
        id: NodeViewId::Primary {
            id: ViewId { epoch, counter: 1 },
        },
        number,
        members,
        joined: Vec::new(),
        departed,
        merged: Vec::new(),
        wire_level: base.wire_level,
    })
}

/// Whether a view is a part of `base` as a lineage of its own, and nothing else.
pub(crate) fn is_part_of(base: &NodeView, view: &NodeView) -> bool {
    let stays = |member| view.contains(member);
    let highest = check::MAX_CLAIMED_NUMBER.max(base.number.saturating_add(1));
    let weight: u64 = view.members.iter().map(|member| u64::from(member.weight)).sum();
    check::primary_is_sound(view)
        && view.lineage.founded_ms() > base.lineage.founded_ms()
        && view.number > base.number
        && view.number <= highest.min(check::MAX_NUMBER)
        && weight > 0
        && part_of(base, view.lineage, view.number, stays).is_some_and(|part| part == *view)
}

/// Notes that this node says yes to this view.
pub(crate) fn acknowledged(cx: &mut Context, view: &NodeView) {
    let slot = antiphon_wire::membership::SlotId {
        lineage: view.lineage,
        next: view.primary_id(),
    };
    cx.trail(slot, None, || Arc::new(view.clone()), BallotStep::Accepted);
}
