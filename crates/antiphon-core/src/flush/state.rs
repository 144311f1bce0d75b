//! How far a member is with a flush, and what it keeps for others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon_wire::group::{Decision, GroupData, Joiner, Standing};
use antiphon_wire::{GroupId, GroupViewId, Incarnation};

use crate::flush::asked::Asked;
use crate::group::effect::Effect;
use crate::group::standstill::Slow;
use crate::group::stream::Stream;
use crate::{GroupOptions, Time};

/// The flush a member has answered last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) target: GroupViewId,
    pub(super) leader: Incarnation,
}

/// Whether messages flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Flow {
    /// They do.
    Open,
    /// Reported; waits for a cut.
    Wedged,
    /// Has a cut; fetches what it lacks of it.
    Catching(Box<CatchUp>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CatchUp {
    pub(super) decision: Decision,
    /// It has said that it holds the cut.
    pub(super) said: bool,
    /// All participants hold the cut.
    pub(super) safe: bool,
    /// A member that has installed the view already, if the decision came from one.
    pub(super) source: Option<Incarnation>,
    /// How often a holder did not answer in time.
    pub(super) attempt: usize,
    pub(super) asked: Asked,
    pub(super) pull_at: Time,
}

impl Flow {
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Flow::Catching(catch_up) => Some(catch_up.pull_at),
            Flow::Open | Flow::Wedged => None,
        }
    }
}

/// The end of the previous view, kept until every member of the present one has installed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retained {
    pub(crate) decision: Decision,
    /// The previous view's messages; none at a member whose first view this is.
    pub(crate) stream: Option<Stream>,
}

impl Retained {
    /// Supplies what a member lacks of the previous view.
    pub(crate) fn answer(&self, from: Incarnation, record: &GroupData, out: &mut VecDeque<Effect>) {
        let Some(stream) = &self.stream else { return };
        match *record {
            GroupData::Pull {
                view,
                sender,
                first,
                end,
                ..
            } if view == stream.id => stream.pull(from, usize::from(sender), first, end, out),
            GroupData::PullOrders { view, first, .. } if view == stream.id => {
                stream.pull_orders(from, first, out);
            }
            _ => {}
        }
    }
}

/// Why the leader should begin a flush.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Requests {
    pub(super) joins: Vec<Joiner>,
    pub(super) leaves: BTreeSet<Incarnation>,
    /// The members whose nodes say that their application has stopped reading.
    pub(super) slow: BTreeMap<Incarnation, Slow>,
    /// Members that are alive but are to be removed, and the reason.
    pub(super) dropped: BTreeMap<Incarnation, String>,
    /// A member waits for a flush.
    pub(super) resume: bool,
}

impl Requests {
    pub(super) fn are_none(&self) -> bool {
        !self.resume && self.joins.is_empty() && self.leaves.is_empty() && self.slow.is_empty()
    }

    /// Nodes have departed.
    pub(super) fn keep(&mut self, present: impl Fn(Incarnation) -> bool) {
        self.joins.retain(|joiner| present(joiner.incarnation));
        self.leaves.retain(|member| present(*member));
        self.slow.retain(|member, _| present(*member));
    }

    /// This view is installed, and what it was asked to do is done.
    pub(super) fn install(&mut self, decision: &Decision) {
        self.resume = false;
        // If a member is still slow in the next view, its node says so again.
        self.slow.clear();
        let joined = |who: Incarnation| decision.joined.iter().any(|joiner| joiner.incarnation == who);
        // A member that was removed and joins again is admitted once it is out.
        self.joins.retain(|joiner| !joined(joiner.incarnation));
        // What was said of a member that is admitted anew belongs to its earlier membership.
        let stays = |member: &Incarnation| decision.members.contains(member) && !joined(*member);
        self.leaves.retain(stays);
        self.dropped.retain(|member, _| stays(member));
    }
}

/// What the leader of a group's flush is doing. At all other members, `Idle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lead {
    Idle,
    /// Gathers joins and leaves for one flush.
    Batching {
        at: Time,
    },
    /// Reads every survivor.
    Collecting(Collect),
    /// Has decided, or adopted what another leader decided; is about to install it itself.
    Deciding {
        adopted: bool,
        stall_at: Time,
        /// Waits until all hold the cut before any member delivers it.
        holding: Option<Holding>,
    },
    /// Waits until all have installed the leader's view.
    Confirming(Confirm),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Collect {
    pub(super) target: GroupViewId,
    pub(super) waiting: BTreeSet<Incarnation>,
    /// Nodes outside of the leader's view that were asked whether they know a later one; `None` before any
    /// was asked.
    pub(super) strangers: Option<BTreeSet<Incarnation>>,
    pub(super) reports: BTreeMap<Incarnation, Standing>,
    pub(super) stall_at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Confirm {
    /// Survivors (and leavers) that are not known to have installed it.
    pub(super) survivors: BTreeSet<Incarnation>,
    pub(super) joiners: BTreeSet<Incarnation>,
    pub(super) joiners_told: bool,
    /// This completes a view for members that are behind. Members that have it are wedged and wait for
    /// another flush.
    pub(super) completing: bool,
    pub(super) stall_at: Time,
}

impl Lead {
    /// When the leader has something to do if nothing comes.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Lead::Batching { at } => Some(*at),
            Lead::Collecting(Collect { stall_at, .. })
            | Lead::Deciding { stall_at, .. }
            | Lead::Confirming(Confirm { stall_at, .. }) => Some(*stall_at),
            Lead::Idle => None,
        }
    }

    /// When the flush has stalled, if there is one.
    pub(super) fn stall_at(&mut self) -> Option<&mut Time> {
        match self {
            Lead::Idle | Lead::Batching { .. } => None,
            Lead::Collecting(Collect { stall_at, .. })
            | Lead::Deciding { stall_at, .. }
            | Lead::Confirming(Confirm { stall_at, .. }) => Some(stall_at),
        }
    }
}

/// A leader waits until all participants hold a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) target: GroupViewId,
    pub(super) participants: Vec<Incarnation>,
    pub(super) waiting: BTreeSet<Incarnation>,
}

impl Holding {
    /// For a decision with safe messages that these participants are about to fetch.
    pub(super) fn of(
        decision: &Decision,
        target: GroupViewId,
        participants: impl Iterator<Item = Incarnation>,
    ) -> Option<Self> {
        let participants: Vec<_> = participants.collect();
        decision.safe.then(|| Self {
            target,
            waiting: participants.iter().copied().collect(),
            participants,
        })
    }

    /// Participants that have not said that they hold the cut.
    pub(super) fn missing(&self) -> Vec<Incarnation> {
        self.waiting.iter().copied().collect()
    }
}

/// What is left of a membership that a slow application has lost. Others may need it, while the group goes on
/// at this node from the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ghost {
    pub(crate) name: String,
    pub(crate) options: GroupOptions,
    pub(crate) group: GroupId,
    pub(crate) retained: Box<Retained>,
    pub(crate) until: Time,
}
