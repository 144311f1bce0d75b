//! Which views and records are believed. A peer may be buggy or hostile. Nothing that it sends may make this
//! node panic, or break what the other modules take for granted about views.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::codec::encode_to_vec;
use antiphon_wire::membership::{
    AcceptedValue, Certificate, Change, Gone, NodeRecord, Origin, SlotId, Standing, VoteState, Voted, VotedIn,
};
use antiphon_wire::{
    Cause, Departure, Incarnation, Lineage, MAX_MEMBERS, Member, NodeView, NodeViewId, Subview, ViewId,
};

use crate::sound::{addresses_are_sound, metadata_is_sound, name_is_sound};
use crate::{Config, EngineKind, Policy};

/// A view and an accepted value must fit one frame together, so that a lifeline record is a single write.
pub(crate) const MAX_VIEW_BYTES: usize = 26_000;
/// Where votes carry whole views, the records of all members together are at most this large.
pub(crate) const MAX_RECORDS_BYTES: usize = 18_000;
/// The change of a view and the change that was voted for must fit one frame together.
pub(crate) const MAX_CHANGE_BYTES: usize = 28_000;
/// Two changes, or two whole views, and a little more.
const MAX_CERTIFICATE_BYTES: usize = 2 * MAX_CHANGE_BYTES + 4096;
/// View numbers fit a signed 32-bit integer (R5).
pub(crate) const MAX_NUMBER: u32 = i32::MAX as u32;
/// A joiner may ask that the next view exceed its number. This is the highest number that counts: a hostile
/// joiner must not use up the numbers.
pub(crate) const MAX_CLAIMED_NUMBER: u32 = 1 << 30;

/// Why this node and another one cannot be in one cluster, if that is because of their membership engines.
fn engines_differ(config: &Config, node: &NodeRecord) -> Option<String> {
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

/// Why this node and another one cannot be in one cluster, if that is because of their partition policies.
fn policies_differ(config: &Config, node: &NodeRecord) -> Option<String> {
    let mine = config.policy;
    (node.policy != mine.code()).then(|| {
        format!(
            "{} at {} has the partition policy `{}`, and {} at {} has `{}`: give all nodes of the cluster the same `policy`",
            config.name,
            config.addr,
            mine.name(),
            node.name,
            node.addr,
            Policy::named(node.policy)
        )
    })
}

/// Why this node and another one cannot be in one cluster; `None` if they can.
pub(crate) fn differ(config: &Config, node: &NodeRecord) -> Option<String> {
    engines_differ(config, node).or_else(|| policies_differ(config, node))
}

/// Whether a lineage differs in this way, by what one of its members says.
pub(crate) fn standings_differ(config: &Config, other: &Standing) -> bool {
    other.engine != config.engine.code() || other.policy != config.policy.code()
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

/// What a vote shows of the views after an installed one: a voter has installed the view that it votes in, so
/// that view is decided.
#[derive(Debug)]
pub(crate) enum Shown {
    /// Nothing that is not known.
    Nothing,
    /// This view; it may be one that is known.
    View(NodeView),
    /// That there is a later view.
    Later,
}

/// What a vote that was given in one view shows at a member that has installed this one.
pub(crate) fn shown_after(installed: &NodeView, voted_in: &VotedIn) -> Shown {
    if voted_in.lineage() != installed.lineage {
        return Shown::Nothing;
    }
    match voted_in {
        VotedIn::Whole(view) => Shown::View((**view).clone()),
        VotedIn::Named {
            id,
            change: Some(change),
            ..
        } if *id == next_id(installed.primary_id()) => {
            apply(installed, (**change).clone()).map_or(Shown::Nothing, Shown::View)
        }
        VotedIn::Named { id, .. } if *id > installed.primary_id() => Shown::Later,
        VotedIn::Named { .. } => Shown::Nothing,
    }
}

fn member_is_sound(member: &Member) -> bool {
    name_is_sound(&member.name)
        && metadata_is_sound(&member.metadata)
        && addresses_are_sound(member.addr, &member.further)
}

/// Whether this can be a view at all: it is not empty, and no member is in it twice.
pub(crate) fn view_is_sound(view: &NodeView) -> bool {
    is_sound_with(view, |_| false)
}

/// As [`view_is_sound`], where some records are known to be sound.
fn is_sound_with(view: &NodeView, is_known: impl Fn(&Member) -> bool) -> bool {
    let is_sound = |member: &Member| is_known(member) || member_is_sound(member);
    let incarnations: BTreeSet<_> = view.members.iter().map(|member| member.incarnation).collect();
    let names: BTreeSet<_> = view.members.iter().map(|member| &member.name).collect();
    let joined: BTreeSet<_> = view.joined.iter().collect();
    !view.members.is_empty()
        && view.members.len() <= MAX_MEMBERS
        && view.departed.len() <= MAX_MEMBERS
        && incarnations.len() == view.members.len()
        && names.len() == view.members.len()
        && joined.len() == view.joined.len()
        && view.members.iter().all(is_sound)
        && view
            .joined
            .iter()
            .all(|incarnation| incarnations.contains(incarnation))
        && view.departed.iter().all(|departure| {
            !incarnations.contains(&departure.member.incarnation) && is_sound(&departure.member)
        })
        && merged_is_sound(view)
}

/// Whether the nodes that come from other lineages are joiners of the view, each of them once.
fn merged_is_sound(view: &NodeView) -> bool {
    let mut left: BTreeSet<_> = view.joined.iter().collect();
    let mut lineages = BTreeSet::new();
    view.merged.iter().all(|subview| {
        subview.lineage != view.lineage
            && lineages.insert((subview.lineage, subview.view))
            && !subview.members.is_empty()
            && subview.members.iter().all(|member| left.remove(member))
    })
}

/// The joiners of a view of `lineage` that come from other lineages, grouped by where they come from.
pub(crate) fn merged_of(
    lineage: Lineage,
    joined: &[Incarnation],
    origins: &BTreeMap<Incarnation, Origin>,
) -> Vec<Subview> {
    let mut merged: BTreeMap<Origin, Vec<Incarnation>> = BTreeMap::new();
    for joiner in joined {
        if let Some(origin) = origins.get(joiner).filter(|origin| origin.lineage != lineage) {
            merged.entry(*origin).or_default().push(*joiner);
        }
    }
    let subview = |(origin, members): (Origin, Vec<Incarnation>)| Subview {
        lineage: origin.lineage,
        view: match planted!(MergeNamesWrongView) {
            true => next_id(origin.view),
            false => origin.view,
        },
        members,
    };
    merged.into_iter().map(subview).collect()
}

/// Whether this is a sound primary view that its lineage could contain. A view without votes could decide
/// nothing, so it could never be decided (R3). A member that accepted it would be bound to it for ever (R1).
pub(crate) fn primary_is_sound(view: &NodeView) -> bool {
    view_is_sound(view) && could_be_primary(view)
}

fn could_be_primary(view: &NodeView) -> bool {
    view.is_primary()
        && id_is_sound(view.primary_id())
        && view.number <= MAX_NUMBER
        && has_votes(&view.members)
}

/// Whether an id leaves room for the next view of its lineage, and for lineages that an operator recovers
/// from it. Ids rise (R5), whatever the node was told when it was admitted.
fn id_is_sound(id: ViewId) -> bool {
    (1..u32::MAX).contains(&id.counter) && id.epoch <= MAX_NUMBER
}

/// Whether any of these has a vote.
pub(crate) fn has_votes(members: &[Member]) -> bool {
    members.iter().any(|member| member.weight > 0) || planted!(FoundWithoutVotes)
}

#[cfg(test)]
thread_local! {
    /// How many views were checked as successors of another one.
    pub(crate) static LOOKED_THROUGH: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// A value of the slot after `view` follows `view`. What another member proposes, or says that it accepted,
/// was checked before it came into the slot.
pub(crate) fn assert_value(view: &NodeView, next: &NodeView) {
    let follows = next.lineage == view.lineage && next.primary_id() == next_id(view.primary_id());
    assert!(
        follows && next.number > view.number || planted!(),
        "R1: a vote for {}, number {}, in the slot after {}, number {}",
        next.id,
        next.number,
        view.id,
        view.number
    );
}

/// What holds whenever a member goes on from one primary view to another. The next view was `decided` in its
/// slot, or it is of another lineage, by the member's component or an operator. What others propose or show
/// was checked before ([`is_successor`], [`split`](crate::membership::partition::split)).
pub(crate) fn assert_goes_on(me: Incarnation, view: &NodeView, next: &NodeView, decided: bool) {
    assert!(
        next.contains(me) || planted!(),
        "G1: {me:?} installs {} and is not in it",
        next.id
    );
    let (from, to) = (view.primary_id(), next.primary_id());
    let is_next = next.lineage == view.lineage && to == next_id(from);
    let begins = next.lineage != view.lineage && to.epoch > from.epoch && to.counter == 1;
    // G18 at the node layer: none is skipped.
    assert!(
        from < to && if decided { is_next } else { begins } || planted!(),
        "R5: view {} is installed after {}, decided there: {decided}",
        next.id,
        view.id
    );
    // An operator may recover a lineage that has used up all numbers.
    assert!(
        next.number > view.number || next.number >= MAX_NUMBER || planted!(),
        "R5: view {} has number {}, and the one before had {}",
        next.id,
        next.number,
        view.number
    );
    let mut stay = 0;
    for member in &view.members {
        let next = next.members.get(stay);
        stay += usize::from(next.is_some_and(|next| next.incarnation == member.incarnation));
    }
    assert!(
        stay > 0 && stay + next.joined.len() == next.members.len() || planted!(),
        "R3: of view {}, {stay} members stay in their order of seniority; {} come, and {} has {}",
        view.id,
        next.joined.len(),
        next.id,
        next.members.len()
    );
}

/// Whether `next` may follow `view`, which is sound, in its lineage.
pub(crate) fn is_successor(view: &NodeView, next: &NodeView) -> bool {
    #[cfg(test)]
    LOOKED_THROUGH.set(LOOKED_THROUGH.get() + 1);
    // Views may have thousands of members: each is looked up in an index.
    let rank_of: BTreeMap<Incarnation, usize> = view
        .members
        .iter()
        .enumerate()
        .map(|(rank, member)| (member.incarnation, rank))
        .collect();
    let survivors = || {
        next.members
            .iter()
            .filter_map(|member| Some((member, *rank_of.get(&member.incarnation)?)))
    };
    let ranks: Vec<usize> = survivors().map(|(_, rank)| rank).collect();
    let in_order = ranks.is_sorted() || planted!(ForgetSeniorityOrder);
    let survivors_first = next
        .members
        .iter()
        .take(ranks.len())
        .all(|member| rank_of.contains_key(&member.incarnation))
        || planted!(ForgetSeniorityOrder);
    // Most records were in the view before, and were checked then.
    let is_known = |member: &Member| {
        let rank = rank_of.get(&member.incarnation);
        rank.is_some_and(|rank| view.members[*rank] == *member)
    };
    is_sound_with(next, is_known)
        && could_be_primary(next)
        && next.lineage == view.lineage
        && next.id == NodeViewId::Primary { id: next_id(view.primary_id()) }
        && next.number > view.number
        && next.number <= MAX_NUMBER
        // R3: every view keeps a member of its predecessor.
        && !ranks.is_empty()
        && in_order
        && survivors_first
        && survivors().all(|(member, rank)| view.members[rank] == *member)
        && next.joined.len() == next.members.len() - ranks.len()
        && next.joined.iter().all(|joined| !rank_of.contains_key(joined))
        && next.departed.len() == view.members.len() - ranks.len()
        && next.departed.iter().all(|departure| rank_of.contains_key(&departure.member.incarnation))
        // G38: no vote overrides anybody.
        && next.overrides().is_none()
        // G41: no vote makes a component of its own.
        && next.separates().is_none()
}

/// Whether a vote state may be believed, as far as this can be told without the view in which it was given.
pub(crate) fn vote_is_sound(vote: &VoteState) -> bool {
    let accepted = vote.accepted.as_ref();
    let consistent = match &vote.view {
        VotedIn::Whole(view) => {
            primary_is_sound(view) && accepted.is_none_or(|accepted| acceptance_is_sound(view, accepted))
        }
        VotedIn::Named { id, .. } => {
            id.counter > 0 && accepted.is_none_or(|accepted| matches!(accepted.value, Voted::Change(_)))
        }
    };
    consistent && vote.promised >= accepted.map(|accepted| accepted.ballot)
}

/// How `next`, which follows `view`, differs from it.
pub(crate) fn change_of(view: &NodeView, next: &NodeView) -> Change {
    let gone = |departure: &Departure| Gone {
        member: departure.member.incarnation,
        cause: departure.cause.clone(),
        accusers: departure.accusers.clone(),
    };
    let kept = view.members.len() - next.departed.len();
    Change {
        number: next.number,
        wire_level: next.wire_level,
        departed: next.departed.iter().map(gone).collect(),
        joined: next.members.get(kept..).unwrap_or_default().to_vec(),
        merged: next.merged.clone(),
    }
}

/// The view that differs from `view` by this change; `None` if no such view can follow it.
pub(crate) fn apply(view: &NodeView, change: Change) -> Option<NodeView> {
    let gone: BTreeMap<Incarnation, Gone> = change
        .departed
        .iter()
        .map(|gone| (gone.member, gone.clone()))
        .collect();
    let mut members: Vec<Member> = Vec::with_capacity(view.members.len() + change.joined.len());
    members.extend(
        view.members
            .iter()
            .filter(|member| !gone.contains_key(&member.incarnation))
            .cloned(),
    );
    let mut leavers: BTreeMap<Incarnation, Member> = view
        .members
        .iter()
        .filter(|member| gone.contains_key(&member.incarnation))
        .map(|member| (member.incarnation, member.clone()))
        .collect();
    let mut departed = Vec::with_capacity(gone.len());
    for Gone {
        member,
        cause,
        accusers,
    } in change.departed
    {
        departed.push(Departure {
            member: leavers.remove(&member)?,
            cause,
            accusers,
        });
    }
    let joined = change.joined.iter().map(|member| member.incarnation).collect();
    members.extend(change.joined);
    let next = NodeView {
        lineage: view.lineage,
        id: NodeViewId::Primary {
            id: next_id(view.primary_id()),
        },
        number: change.number,
        members,
        joined,
        departed,
        merged: change.merged,
        wire_level: change.wire_level,
    };
    is_successor(view, &next).then_some(next)
}

/// The view that was voted for in the slot after `view`.
pub(crate) fn voted(view: &NodeView, voted: &Voted) -> Option<NodeView> {
    match voted {
        Voted::Whole(next) => is_successor(view, next).then(|| (**next).clone()),
        Voted::Change(change) => apply(view, (**change).clone()),
    }
}

/// Whether an acceptor of the slot after `view` may have accepted this.
pub(crate) fn acceptance_is_sound(view: &NodeView, accepted: &AcceptedValue) -> bool {
    match &accepted.value {
        Voted::Whole(next) => is_successor(view, next),
        Voted::Change(change) => apply(view, (**change).clone()).is_some(),
    }
}

/// How large the records of all members are together.
pub(crate) fn records_bytes(view: &NodeView) -> usize {
    let records = view.members.iter().map(|member| encode_to_vec(member).len());
    records.sum()
}

/// Whether the view is small enough to travel with its votes.
pub(crate) fn fits(view: &NodeView) -> bool {
    view.members.len() <= MAX_MEMBERS && encode_to_vec(view).len() <= MAX_VIEW_BYTES
}

/// Whether what changes is small enough to travel with its votes, twice in one record.
pub(crate) fn change_fits(change: &Change) -> bool {
    encode_to_vec(change).len() <= MAX_CHANGE_BYTES
}

/// Whether a lifeline can have brought this proof of death: its vote was a single write there.
pub(crate) fn certificate_fits(certificate: &Certificate) -> bool {
    encode_to_vec(certificate).len() <= MAX_CERTIFICATE_BYTES
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
        Cause::Separated { view, .. } => {
            format!("it was not heard by a part of view {view} that goes on by itself")
        }
    }
}

/// Why a member departed, and by whose word, in the names of this view.
pub(crate) fn departure_text(view: &NodeView, departure: &Departure) -> String {
    let name = |accuser: Incarnation| {
        let member = view.member(accuser);
        member.map_or_else(|| accuser.short(), |member| member.name.clone())
    };
    let accusers = departure.accusers.iter();
    let names: Vec<String> = accusers.map(|by| name(by.accuser)).collect();
    let by = match names.is_empty() {
        true => String::new(),
        false => format!(", accused by {}", names.join(", ")),
    };
    format!("{}{by}", cause_text(&departure.cause))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::testing;

    #[test]
    fn a_view_whose_id_or_number_leaves_no_room_for_another_is_none() {
        let view = testing::view(vec![testing::member(Incarnation(1), 1)]);
        let last = u32::MAX;
        let ids = [
            (1, last - 1, true),
            (1, last, false),
            (last, 1, false),
            (1, 0, false),
        ];
        for (epoch, counter, sound) in ids {
            let id = NodeViewId::Primary {
                id: ViewId { epoch, counter },
            };
            let view = NodeView { id, ..view.clone() };
            assert_eq!(primary_is_sound(&view), sound, "{id}");
        }
        let number = MAX_NUMBER + 1;
        assert!(!primary_is_sound(&NodeView { number, ..view }));
    }
}
