//! Members of a ring-monitored view that were heard although no ring leads to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_wire::Incarnation;

use crate::Time;

/// Members that were heard although no ring leads to them, or that would be heard if one did.
#[derive(Debug, Default)]
pub(crate) struct Reconnect {
    /// How many of the members after this node were asked in this round.
    pub(crate) asked: usize,
    pub(crate) contacts: BTreeMap<Incarnation, Contact>,
    /// When a member in no primary view asked first, and last.
    pub(crate) called: Option<(Time, Time)>,
    /// Since when there has been, all the time, a member that no member hears of which this node has word.
    pub(crate) missing_since: Option<Time>,
    /// Since when this node has looked, and when it looked last.
    pub(crate) since: Option<(Time, Time)>,
    /// The members that answered, or that are heard by the rings, when everything was weighed last.
    pub(crate) counted: BTreeSet<Incarnation>,
    /// Whether every member had been asked then, and had had the time to answer.
    pub(crate) complete: bool,
    /// The members to which rumours and heartbeats go.
    pub(crate) links: Vec<Incarnation>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Contact {
    pub(crate) heard: Time,
    /// When the member answered a question of this node last.
    pub(crate) answered: Option<Time>,
    /// When this node answered a question of the member last.
    pub(crate) told: Option<Time>,
}

impl Reconnect {
    /// What is left in a view of the same members.
    pub(crate) fn renewed(self) -> Self {
        Self {
            counted: BTreeSet::new(),
            complete: false,
            links: Vec::new(),
            ..self
        }
    }

    /// Another member finds no quorum.
    pub(crate) fn call(&mut self, now: Time, lapses_after: Duration) {
        let called = self.called.filter(|(_, last)| now.since(*last) < lapses_after);
        self.called = Some((called.map_or(now, |(first, _)| first), now));
    }

    /// Whether a member answers; `None` if that does not count yet.
    pub(crate) fn answers(&self, member: Incarnation) -> Option<bool> {
        self.complete.then(|| self.counted.contains(&member))
    }

    /// Whether the answers count. If so, a member that is not among them is silent.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(crate) fn is_linked(&self, member: Incarnation) -> bool {
        self.links.contains(&member)
    }
}
