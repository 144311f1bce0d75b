//! How far a member is with a flush, and what it keeps for others.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::group::{Decision, Standing};
use antiphon_wire::{GroupId, GroupViewId, Incarnation};

use crate::flush::asked::Asked;
use crate::group::stream::Stream;
use crate::{GroupOptions, Time};

/// View ids of a group count up from 1. No member of this program gets this far. Above the last number there
/// is none, and the leader would use a view id twice (R5).
pub(crate) const MAX_K: u32 = u32::MAX / 2;

/// The flush a member has answered last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Promise {
    pub(crate) target: GroupViewId,
    pub(crate) leader: Incarnation,
}

/// Whether messages flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Flow {
    /// They do.
    Open,
    /// Reported; waits for a cut.
    Wedged,
    /// Has a cut; fetches what it lacks of it.
    Catching(Box<CatchUp>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CatchUp {
    pub(crate) decision: Decision,
    /// It has said that it holds the cut.
    pub(crate) said: bool,
    /// All participants hold the cut.
    pub(crate) safe: bool,
    /// A member that has installed the view already, if the decision came from one.
    pub(crate) source: Option<Incarnation>,
    /// How often a holder did not answer in time.
    pub(crate) attempt: usize,
    pub(super) asked: Asked,
    pub(crate) pull_at: Time,
}

impl Flow {
    pub(crate) fn next_timeout(&self) -> Option<Time> {
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

/// What the leader of a group's flush is doing. At all other members, `Idle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lead {
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
pub(crate) struct Collect {
    pub(crate) target: GroupViewId,
    pub(crate) waiting: BTreeSet<Incarnation>,
    /// Nodes outside of the leader's view that were asked whether they know a later one; `None` before any
    /// was asked.
    pub(crate) strangers: Option<BTreeSet<Incarnation>>,
    pub(crate) reports: BTreeMap<Incarnation, Standing>,
    pub(crate) stall_at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirm {
    /// Survivors (and leavers) that are not known to have installed it.
    pub(crate) survivors: BTreeSet<Incarnation>,
    pub(crate) joiners: BTreeSet<Incarnation>,
    pub(crate) joiners_told: bool,
    /// This completes a view for members that are behind. Members that have it are wedged and wait for
    /// another flush.
    pub(crate) completing: bool,
    pub(crate) stall_at: Time,
}

impl Lead {
    /// When the leader has something to do if nothing comes.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        match self {
            Lead::Batching { at } => Some(*at),
            Lead::Collecting(Collect { stall_at, .. })
            | Lead::Deciding { stall_at, .. }
            | Lead::Confirming(Confirm { stall_at, .. }) => Some(*stall_at),
            Lead::Idle => None,
        }
    }
}

/// A leader waits until all participants hold a cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) target: GroupViewId,
    pub(crate) participants: Vec<Incarnation>,
    pub(crate) waiting: BTreeSet<Incarnation>,
}

impl Holding {
    /// For a decision with safe messages that these participants are about to fetch.
    pub(crate) fn of(
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
    pub(crate) fn missing(&self) -> Vec<Incarnation> {
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
