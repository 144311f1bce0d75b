//! Members whose application has stopped reading.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_wire::Incarnation;

use crate::Time;

/// A member whose node has told the leader that its application has stopped reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slow {
    /// For how long it had taken nothing when its node said so.
    pub(crate) stood: Duration,
    pub(crate) said: Time,
    /// What the next view says.
    pub(crate) cause: String,
}

/// What a member of a group keeps about readers that stand still, itself included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Standstill {
    /// When to look at the readers; none while no message waits.
    pub(crate) look_at: Option<Time>,
    /// Readers that hold this member up: their position, and since when.
    pub(crate) clocks: BTreeMap<Incarnation, (u64, Time)>,
    /// When this member's own application must have taken something, and the sender that waits for it.
    pub(crate) last_call: Option<(Time, Incarnation)>,
}

impl Standstill {
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let last_call = self.last_call.map(|(at, _)| at);
        [self.look_at, last_call].into_iter().flatten().min()
    }

    /// Members of a new view: what is known of members that stay remains true. If some were removed, this
    /// member's application may have waited for them, and gets the time to go on.
    pub(crate) fn keep(&mut self, stays: impl Fn(Incarnation) -> bool, removed: bool) {
        self.clocks.retain(|member, _| stays(*member));
        if removed {
            self.last_call = None;
        }
    }

    /// This member's application has taken something.
    pub(crate) fn has_read(&mut self) {
        self.last_call = None;
    }
}
