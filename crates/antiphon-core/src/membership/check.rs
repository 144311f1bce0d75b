//! Which views and records are believed. A peer may be buggy or hostile; nothing it sends may make this node panic,
//! or break what the other modules take for granted about views.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{AcceptedValue, NodeRecord, SlotId, VoteState};
use antiphon_wire::{
    Cause, MAX_ADDRESSES, MAX_MEMBERS, MAX_METADATA_BYTES, MAX_METADATA_ENTRIES, MAX_NAME_BYTES, Member,
    NodeView, NodeViewId, ViewId,
};

use crate::{Config, EngineKind};

/// A view and an accepted value must fit one frame together, so that a lifeline record is a single write.
pub(crate) const MAX_VIEW_BYTES: usize = 26_000;
/// View numbers fit a signed 32-bit integer (R5).
pub(crate) const MAX_NUMBER: u32 = i32::MAX as u32;
/// The highest number that a joiner may ask to be exceeded: a hostile one must not use up the numbers.
pub(crate) const MAX_CLAIMED_NUMBER: u32 = 1 << 30;

/// Why this node and another one cannot be in one cluster, if that is because of their membership engines.
pub(crate) fn engines_differ(config: &Config, node: &NodeRecord) -> Option<String> {
    let mine = config.engine;
    (node.engine != mine.code()).then(|| {
        format!(
            "{} at {} runs the membership engine `{}`, and {} at {} runs `{}`: give all nodes of the cluster the same `membership`",
            config.name,
            config.addr,
            mine.name(),
            node.name,
            node.addr,
            EngineKind::named(node.engine)
        )
    })
}

/// The id of the primary view after this one.
pub(crate) fn next_id(id: ViewId) -> ViewId {
    ViewId {
        epoch: id.epoch,
        counter: id.counter.saturating_add(1),
    }
}

/// The slot that decides the view after this one.
pub(crate) fn slot_after(view: &NodeView) -> SlotId {
    SlotId {
        lineage: view.lineage,
        next: next_id(view.primary_id()),
    }
}

pub(crate) fn name_is_sound(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Metadata are shown to people, at terminals: a control character could forge lines there.
pub(crate) fn metadata_is_sound(metadata: &BTreeMap<String, String>) -> bool {
    let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    let mut texts = metadata.keys().chain(metadata.values());
    metadata.len() <= MAX_METADATA_ENTRIES
        && bytes <= MAX_METADATA_BYTES
        && !texts.any(|text| text.chars().any(char::is_control))
}

pub(crate) fn record_is_sound(record: &NodeRecord) -> bool {
    name_is_sound(&record.name)
        && metadata_is_sound(&record.metadata)
        && addresses_are_sound(record.addr, &record.further)
}

fn member_is_sound(member: &Member) -> bool {
    name_is_sound(&member.name)
        && metadata_is_sound(&member.metadata)
        && addresses_are_sound(member.addr, &member.further)
}

/// Whether a node may have these addresses: not too many, and none twice.
pub(crate) fn addresses_are_sound(first: SocketAddr, further: &[SocketAddr]) -> bool {
    let different: BTreeSet<_> = further.iter().chain([&first]).collect();
    different.len() == further.len() + 1 && different.len() <= MAX_ADDRESSES
}

/// Whether this can be a view at all: never empty, no one twice.
pub(crate) fn view_is_sound(view: &NodeView) -> bool {
    let incarnations: BTreeSet<_> = view.members.iter().map(|member| member.incarnation).collect();
    let names: BTreeSet<_> = view.members.iter().map(|member| &member.name).collect();
    let joined: BTreeSet<_> = view.joined.iter().collect();
    !view.members.is_empty()
        && view.members.len() <= MAX_MEMBERS
        && view.departed.len() <= MAX_MEMBERS
        && incarnations.len() == view.members.len()
        && names.len() == view.members.len()
        && joined.len() == view.joined.len()
        && view.members.iter().all(member_is_sound)
        && view
            .joined
            .iter()
            .all(|incarnation| incarnations.contains(incarnation))
        && view.departed.iter().all(|departure| {
            !incarnations.contains(&departure.member.incarnation) && member_is_sound(&departure.member)
        })
}

/// Whether this is a sound primary view that its lineage could contain.
pub(crate) fn primary_is_sound(view: &NodeView) -> bool {
    view_is_sound(view) && view.is_primary() && view.primary_id().counter > 0
}

/// Whether `next` may follow `view` in its lineage.
pub(crate) fn is_successor(view: &NodeView, next: &NodeView) -> bool {
    let survivors = || {
        next.members
            .iter()
            .filter(|member| view.contains(member.incarnation))
    };
    let ranks: Vec<_> = survivors().map(|member| view.rank(member.incarnation)).collect();
    let in_order = ranks.is_sorted() || planted!(ForgetSeniorityOrder);
    let survivors_first = next
        .members
        .iter()
        .take(ranks.len())
        .all(|member| view.contains(member.incarnation))
        || planted!(ForgetSeniorityOrder);
    primary_is_sound(next)
        && next.lineage == view.lineage
        && next.id == NodeViewId::Primary { id: next_id(view.primary_id()) }
        && next.number > view.number
        && next.number <= MAX_NUMBER
        // R3: every view keeps a member of its predecessor.
        && !ranks.is_empty()
        && in_order
        && survivors_first
        && survivors().all(|member| view.member(member.incarnation) == Some(member))
        && next.joined.len() == next.members.len() - ranks.len()
        && next.joined.iter().all(|joined| !view.contains(*joined))
        && next.departed.len() == view.members.len() - ranks.len()
        && next.departed.iter().all(|departure| view.contains(departure.member.incarnation))
        // G38: no vote overrides anybody.
        && next.overrides().is_none()
}

/// Whether a vote state may be believed.
pub(crate) fn vote_is_sound(vote: &VoteState) -> bool {
    primary_is_sound(&vote.view)
        && vote
            .accepted
            .as_ref()
            .is_none_or(|accepted| acceptance_is_sound(&vote.view, accepted))
        && vote.promised >= vote.accepted.as_ref().map(|accepted| accepted.ballot)
}

/// Whether an acceptor of the slot after `view` may have accepted this.
pub(crate) fn acceptance_is_sound(view: &NodeView, accepted: &AcceptedValue) -> bool {
    is_successor(view, &accepted.value)
}

/// Whether the view is small enough to travel with its votes.
pub(crate) fn fits(view: &NodeView) -> bool {
    view.members.len() <= MAX_MEMBERS && encode_to_vec(view).len() <= MAX_VIEW_BYTES
}

/// A cause as people read it.
pub(crate) fn cause_text(cause: &Cause) -> String {
    match cause {
        Cause::Left => "it left".to_owned(),
        Cause::Crashed => "it crashed or was silent".to_owned(),
        Cause::Unreachable { from } => format!("it could not be reached from {}", from.short()),
        Cause::Superseded { by } => format!("it was started again as {}", by.short()),
        Cause::Overridden { view, .. } => {
            format!("an operator had another survivor of view {view} go on alone")
        }
    }
}
