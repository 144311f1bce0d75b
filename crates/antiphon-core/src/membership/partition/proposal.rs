//! What a member of a component proposes to the others: a view that lies on top of the last primary view, or
//! one that begins a lineage.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{
    Accusation, Cause, Departure, Evidence, Incarnation, Lineage, NodeView, NodeViewId, ViewId,
};

use crate::Time;
use crate::membership::context::Context;
use crate::membership::monitor::ranks::Ranks;
use crate::membership::partition::split::{is_part_of, part_of};
use crate::membership::view::check;

/// What another member proposes.
#[derive(Debug)]
pub(crate) struct Proposal {
    pub(crate) base: ViewId,
    pub(crate) attempt: u32,
    pub(crate) proposer: Incarnation,
    pub(crate) on: Base,
    /// Whether the members would go on as a lineage of their own.
    pub(crate) splits: bool,
    /// The view, if it fits the one installed here: then this node may say yes to it.
    pub(crate) view: Option<NodeView>,
}

/// The view on which a proposal is based.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    /// The last primary view installed here.
    Installed,
    /// A later view of the same lineage.
    Later,
    Other,
}

impl Base {
    fn of(primary: &NodeView, lineage: Lineage, base: ViewId) -> Self {
        match base.cmp(&primary.primary_id()) {
            _ if lineage != primary.lineage => Self::Other,
            Ordering::Less => Self::Other,
            Ordering::Equal => Self::Installed,
            Ordering::Greater => Self::Later,
        }
    }
}

impl Proposal {
    /// The proposal in a message of this member; `None` if there is none, or none that makes sense.
    pub(crate) fn read(
        cx: &Context,
        primary: &NodeView,
        proposer: Incarnation,
        message: MembershipMessage,
    ) -> Option<Self> {
        match message {
            MembershipMessage::Gather(view) => Self::of_nonprimary(cx, primary, proposer, *view),
            MembershipMessage::Separate { attempt, view } => {
                Self::of_split(cx, primary, (proposer, attempt), *view)
            }
            MembershipMessage::GatherRanks {
                lineage,
                base,
                attempt,
                for_ms,
                by,
            } => {
                let by = Ranks::from_wire(by);
                Self::from_ranks(primary, (proposer, attempt), (lineage, base), &by, |stay| {
                    let view = compose_by_word(primary, &stay, (proposer, attempt), for_ms);
                    Self::of_nonprimary(cx, primary, proposer, view)
                })
            }
            MembershipMessage::SeparateRanks {
                lineage,
                base,
                attempt,
                into,
                number,
                by,
            } => {
                let by = Ranks::from_wire(by);
                Self::from_ranks(primary, (proposer, attempt), (lineage, base), &by, |stay| {
                    let view = part_of(primary, into, number, |member| stay.contains(&member))?;
                    Self::of_split(cx, primary, (proposer, attempt), view)
                })
            }
            _ => None,
        }
    }

    /// A proposal that names the members that stay by their ranks. With another base these say nothing here.
    fn from_ranks(
        primary: &NodeView,
        (proposer, attempt): (Incarnation, u32),
        (lineage, base): (Lineage, ViewId),
        by: &Ranks,
        with: impl FnOnce(BTreeSet<Incarnation>) -> Option<Self>,
    ) -> Option<Self> {
        if lineage != primary.lineage || !by.are_within(primary.members.len()) {
            return None;
        }
        let on = Base::of(primary, lineage, base);
        if on != Base::Installed {
            return Some(Self {
                base,
                attempt,
                proposer,
                on,
                splits: false,
                view: None,
            });
        }
        let members = primary.members.iter().enumerate();
        let stay = members.filter(|(rank, _)| by.contains(*rank));
        with(stay.map(|(_, member)| member.incarnation).collect())
    }

    fn of_nonprimary(cx: &Context, primary: &NodeView, sender: Incarnation, view: NodeView) -> Option<Self> {
        let NodeViewId::NonPrimary {
            base,
            attempt,
            proposer,
        } = view.id
        else {
            return None;
        };
        let sound = check::view_is_sound(&view)
            && view.lineage == primary.lineage
            && view.number == primary.number
            && proposer == sender
            && view.contains(sender)
            && view.contains(cx.me);
        if !sound {
            return None;
        }
        let on = Base::of(primary, view.lineage, base);
        let mut members = view.members.iter();
        let fits =
            on == Base::Installed && members.all(|member| primary.member(member.incarnation) == Some(member));
        Some(Self {
            base,
            attempt,
            proposer,
            on,
            splits: false,
            view: fits.then_some(view),
        })
    }

    fn of_split(
        cx: &Context,
        primary: &NodeView,
        (proposer, attempt): (Incarnation, u32),
        view: NodeView,
    ) -> Option<Self> {
        let (lineage, base) = view.separates().filter(|_| cx.any())?;
        let on = Base::of(primary, lineage, base);
        let fits = on == Base::Installed
            && view.contains(cx.me)
            && view.contains(proposer)
            && is_part_of(primary, &view);
        Some(Self {
            base,
            attempt,
            proposer,
            on,
            splits: true,
            view: fits.then_some(view),
        })
    }
}

/// The question in a wide view: it names the members that stay by their ranks.
pub(crate) fn by_rank(primary: &NodeView, view: &NodeView, attempt: u32, for_ms: u32) -> MembershipMessage {
    let ranks = view
        .members
        .iter()
        .filter_map(|member| primary.rank(member.incarnation));
    let by = ranks.collect::<Ranks>().into_wire();
    let (lineage, base) = (primary.lineage, primary.primary_id());
    if view.is_primary() {
        MembershipMessage::SeparateRanks {
            lineage,
            base,
            attempt,
            into: view.lineage,
            number: view.number,
            by,
        }
    } else {
        MembershipMessage::GatherRanks {
            lineage,
            base,
            attempt,
            for_ms,
            by,
        }
    }
}

pub(crate) fn for_ms(now: Time, since: Time) -> u32 {
    u32::try_from(now.since(since).as_millis()).unwrap_or(u32::MAX)
}

pub(crate) fn compose(
    cx: &Context,
    now: Time,
    primary: &NodeView,
    component: &BTreeSet<Incarnation>,
    attempt: u32,
) -> NodeView {
    let accusers = |member: Incarnation| {
        let accusers = cx.detector.accusers(now, member).into_iter();
        let mut accusers: Vec<Accusation> = accusers.take(8).collect();
        // Nobody here doubts a member that is heard, but it may have a component of its own because it does
        // not hear this node.
        if let Some(doubt) = cx.detector.doubt(member, cx.me)
            && accusers.is_empty()
            && !planted!(PartUnaccused)
        {
            accusers.push(Accusation {
                accuser: cx.me,
                evidence: Evidence::Deaf,
                before_ms: for_ms(now, doubt.since),
            });
        }
        accusers
    };
    composed(primary, component, (cx.me, attempt), accusers)
}

/// The same, with the proposer as the accuser of all others: so all members that have the base compose the
/// same view.
pub(crate) fn compose_by_word(
    primary: &NodeView,
    component: &BTreeSet<Incarnation>,
    (proposer, attempt): (Incarnation, u32),
    for_ms: u32,
) -> NodeView {
    let says = Accusation {
        accuser: proposer,
        evidence: Evidence::Silent { for_ms },
        before_ms: 0,
    };
    composed(primary, component, (proposer, attempt), |_| vec![says.clone()])
}

fn composed(
    primary: &NodeView,
    component: &BTreeSet<Incarnation>,
    (proposer, attempt): (Incarnation, u32),
    accusers: impl Fn(Incarnation) -> Vec<Accusation>,
) -> NodeView {
    let base: ViewId = primary.primary_id();
    let (members, gone): (Vec<_>, Vec<_>) = primary
        .members
        .iter()
        .cloned()
        .partition(|member| component.contains(&member.incarnation));
    let departed = gone
        .into_iter()
        .map(|member| Departure {
            accusers: accusers(member.incarnation),
            member,
            cause: Cause::Crashed,
        })
        .collect();
    NodeView {
        lineage: primary.lineage,
        id: NodeViewId::NonPrimary {
            base,
            attempt,
            proposer,
        },
        number: primary.number,
        members,
        joined: Vec::new(),
        departed,
        merged: Vec::new(),
        wire_level: primary.wire_level,
    }
}
