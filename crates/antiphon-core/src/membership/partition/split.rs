//! The split of a view: its parts go on as lineages of their own. Under the policy `any` every component does
//! so (R6, G41); elsewhere only a survivor does that an operator tells to.
//!
//! ```text
//!   view 1:7 of lineage A: a b c d e           a b │ c │ d e     nobody has a majority
//!
//!   a, coordinator of its component               b
//!   Separate(attempt, view) ────────────────────► base 1:7, attempt above all seen, no quorum here either?
//!                         ◄── Gathered ─────────    yes
//!   all acknowledged: install, Assemble ────────► install
//!
//!   view 2:1 of lineage B: a b, departed: c d e `Separated`       c: 2:1 of C, alone       d e: 2:1 of D
//! ```
//! A component without a quorum founds a lineage of itself. An operator's word does the same for one survivor
//! ([`recovery`]). Here all members agree on it as they do on a non-primary view ([`nonprimary`]), with the
//! same messages and rules. So each component is whole: it removes, admits, founds groups, orders and sends,
//! by quorums among its own members, and splits again in the same way. A component that has a quorum of the
//! old view goes on in the old lineage.
//!
//! When components meet, the lighter one gives way and its members join the other one ([`merge`]). Until
//! then each asks at the addresses of the members that it has lost ([`left_behind`]). All members of a
//! component may be seeking at one moment, having given way to a component that is cut off again. Then one of
//! them founds anew after a while ([`seek`]).
//!
//! # Invariants
//! - *All acknowledge.* The first view of a part is installed only when each of its members has said yes to
//!   it: to exactly this view, with its lineage and number. A member says yes only while in its last primary
//!   view, to one proposal at a time, each with a higher attempt than the last. And it follows only the last
//!   one to which it said yes.
//! - *One of two.* Take two such views with common members. It never happens that one common member is in the
//!   one view and another in the other. If any member installed the later view, all common members had said
//!   yes to it, and follow the earlier one no more. That is why no identity below needs a lineage: two
//!   components both have a view 2:1, but no node takes a message of a member of its own view for one of the
//!   other view. And since numbers rise at each process through all its lineages, no group view id comes to a
//!   node twice.
//! - *The old lineage is not touched.* A member that left it votes there no more, and a silent voter is
//!   always safe. From then on it speaks as a member of another lineage, and that is no sign of life: so both
//!   sides do without it, however well they hear it.
//! - *The epoch rises, the counter begins at 1*, and groups go on by the flush that any view with departures
//!   begins.
//!
//! That all members said yes to a view, and that of two there is one, is for the simulator to judge
//! (`check/inside/components`, G41).
//!
//! # When…
//! - *a member dies before all acknowledged*: the others doubt it in time, and a higher attempt follows
//!   without it;
//! - *the coordinator dies before any member installed*: the next coordinator gathers anew;
//! - *the coordinator dies after it told some members*: a member that said yes may hear a heartbeat of the
//!   new lineage, from a member of the view that it said yes to. Then it knows that all did, and installs the
//!   view. A member that has meanwhile said yes to another view does not come, and is removed for its silence
//!   in the new lineage;
//! - *a quorum is heard again before all acknowledged*: the attempt is given up. After all acknowledged,
//!   there are two lineages that meet;
//! - *no member of a component has weight*: the component can never decide anything. It has a non-primary
//!   view, as under `majority`;
//! - *a member wants to leave*: it goes along, and leaves the new lineage. A member that is already out of
//!   the old lineage says no;
//! - *the members hear a quorum, and can still decide nothing*: they split off from the members that they
//!   miss ([`standstill`]), unless the slot is decided first.
//!
//! [`left_behind`]: crate::membership::contacts::left_behind
//! [`merge`]: crate::membership::partition::merge
//! [`nonprimary`]: crate::membership::partition::nonprimary
//! [`recovery`]: crate::membership::recovery
//! [`seek`]: crate::membership::seek
//! [`standstill`]: crate::membership::seat::standstill

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
    let (old, view) = (base.lineage, base.primary_id());
    let epoch = view.epoch.checked_add(1)?;
    let separated = Cause::Separated { lineage: old, view };
    let part = first_view(base, (lineage, number, epoch), &separated, stays);
    (!part.members.is_empty() && !part.departed.is_empty()).then_some(part)
}

/// The first view of the lineage in which this node goes on alone, by an operator's word.
pub(crate) fn overriding(cx: &mut Context, now: Time, base: &NodeView) -> NodeView {
    let (old, id) = (base.lineage, base.primary_id());
    let lineage = new_lineage(cx, now, Some(old));
    let number = number_after(cx, now, base.number);
    let overridden = match planted!(OverrideUnseen) {
        true => Cause::Left,
        false => Cause::Overridden {
            lineage: old,
            view: id,
        },
    };
    let begins = (lineage, number, id.epoch.saturating_add(1));
    let mut view = first_view(base, begins, &overridden, |member| member == cx.me);
    if planted!(OverrideInLineage) {
        view.lineage = old;
        let id = check::next_id(id);
        view.id = NodeViewId::Primary { id };
    }
    view
}

/// The first view of a lineage that some members of `base` begin, without the others.
fn first_view(
    base: &NodeView,
    (lineage, number, epoch): (Lineage, u32, u32),
    cause: &Cause,
    stays: impl Fn(Incarnation) -> bool,
) -> NodeView {
    let (members, others): (Vec<_>, Vec<_>) = base
        .members
        .iter()
        .cloned()
        .partition(|member| stays(member.incarnation));
    let departed = others.into_iter().map(|member| Departure {
        member,
        cause: cause.clone(),
        accusers: Vec::new(),
    });
    NodeView {
        lineage,
        id: NodeViewId::Primary {
            id: ViewId { epoch, counter: 1 },
        },
        number,
        members,
        joined: Vec::new(),
        departed: departed.collect(),
        merged: Vec::new(),
        wire_level: base.wire_level,
    }
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
