//! How far this node is with leaving.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::{Incarnation, ViewId};

use crate::Time;

/// How far this node is with leaving.
#[derive(Debug)]
pub(crate) enum Leaving {
    /// The node does not want to leave.
    No,
    /// The node waits for a view without it.
    Wanted {
        deadline: Time,
        asked: Option<Incarnation>,
        /// Members, and the view that each has installed or is out of: some know sooner than this node.
        knows: BTreeMap<Incarnation, ViewId>,
    },
    /// The node decided the view without it, or in a wide view knows of it, and waits until the others know
    /// it.
    Departing {
        view: ViewId,
        waiting: BTreeSet<Incarnation>,
        until: Time,
    },
}

impl Leaving {
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(self, Leaving::No)
    }

    pub(crate) fn is_departing(&self) -> bool {
        matches!(self, Leaving::Departing { .. })
    }

    /// Whether this node stays until that member confirms that it knows.
    pub(crate) fn waits_for(&self, member: Incarnation) -> bool {
        matches!(self, Leaving::Departing { waiting, .. } if waiting.contains(&member))
    }

    /// The member has installed this view, or knows that it is not in it.
    pub(crate) fn confirmed(&mut self, member: Incarnation, installed: ViewId) {
        match self {
            Leaving::No => {}
            Leaving::Wanted { knows, .. } => {
                let known = knows.entry(member).or_insert(installed);
                *known = installed.max(*known);
            }
            Leaving::Departing { view, waiting, .. } => {
                if installed >= *view {
                    waiting.remove(&member);
                }
            }
        }
    }

    /// The member cannot be told any more, or is gone.
    pub(crate) fn cannot_tell(&mut self, member: Incarnation) {
        if let Leaving::Departing { waiting, .. } = self {
            waiting.remove(&member);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Leaving::No => None,
            Leaving::Wanted { deadline, .. } => Some(*deadline),
            Leaving::Departing { until, .. } => Some(*until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A heartbeat that was sent before a confirmation may come after it.
    #[test]
    fn what_a_member_confirmed_is_not_taken_back_by_what_it_said_before() {
        let member = Incarnation(2);
        let view = |counter| ViewId { epoch: 1, counter };
        let mut leaving = Leaving::Wanted {
            deadline: Time::ZERO,
            asked: None,
            knows: BTreeMap::new(),
        };
        leaving.confirmed(member, view(8));
        leaving.confirmed(member, view(7));
        let Leaving::Wanted { knows, .. } = leaving else {
            panic!("it waits for a view without it");
        };
        assert_eq!(knows, BTreeMap::from([(member, view(8))]));
    }
}
