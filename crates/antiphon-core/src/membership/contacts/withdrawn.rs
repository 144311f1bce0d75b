//! Nodes that said, before they saw a view, that they leave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use antiphon_wire::{Incarnation, MAX_MEMBERS};

use crate::Time;

/// At most so many leavers are remembered: as many as there may be members.
const MAX_WITHDRAWN: usize = MAX_MEMBERS;

/// The nodes that said, before they saw a view, that they leave.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    /// When each said so, and whether it still waits for the answer.
    told: BTreeMap<Incarnation, (Time, bool)>,
}

impl Withdrawn {
    pub(crate) fn note(&mut self, now: Time, who: Incarnation) {
        if self.told.len() < MAX_WITHDRAWN || self.told.contains_key(&who) {
            self.told.insert(who, (now, true));
        }
    }

    pub(crate) fn answered(&mut self, who: Incarnation) {
        if let Some((_, waits)) = self.told.get_mut(&who) {
            *waits = false;
        }
    }

    /// A view is installed. Returns the nodes that are in it, which want to leave it, and those that wait for
    /// an answer and are not in it. The first are members from here on.
    pub(crate) fn sort(
        &mut self,
        now: Time,
        lasts: Duration,
        is_member: impl Fn(Incarnation) -> bool,
    ) -> (Vec<Incarnation>, Vec<Incarnation>) {
        self.told.retain(|_, (told, _)| now.since(*told) <= lasts);
        let members: Vec<Incarnation> = self.told.keys().copied().filter(|who| is_member(*who)).collect();
        self.told.retain(|who, _| !is_member(*who));
        (members, self.waiting().collect())
    }

    /// The nodes that still wait for an answer, and must stay reachable until then.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Incarnation> {
        let waits = |(who, (_, waits)): (&Incarnation, &(Time, bool))| waits.then_some(*who);
        self.told.iter().filter_map(waits)
    }
}

/// A node without a view that leaves.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    pub(crate) deadline: Time,
    /// Until when this node stays for founders: those that have not heard of it yet may have its last
    /// question on the way.
    pub(crate) lingers: Time,
    /// The nodes that have not confirmed yet.
    pub(crate) waiting: BTreeSet<Incarnation>,
    /// Whether one of them is gone, and the present coordinator was not told yet.
    pub(crate) lost: bool,
}

impl Withdrawal {
    pub(crate) fn next_deadline(&self, next_seek: Time) -> Time {
        let is_over = self.waiting.is_empty() && !self.lost;
        let next = if is_over { self.lingers } else { next_seek };
        next.min(self.deadline)
    }
}
