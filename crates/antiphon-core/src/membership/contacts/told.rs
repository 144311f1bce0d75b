//! Nodes that a member told something, and when it last did.

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_wire::{Incarnation, MAX_MEMBERS};

use crate::Time;

/// At most so many nodes are remembered: as many as there may be members, and as many again that come and go.
const MAX_TOLD: usize = 2 * MAX_MEMBERS;

/// Nodes that a member told something.
#[derive(Debug, Default)]
pub(crate) struct Told {
    at: BTreeMap<Incarnation, Time>,
}

impl Told {
    /// Whether it is time to tell a node something once more: not again within `pause`. If so, it counts as
    /// told.
    pub(crate) fn may_tell(&mut self, now: Time, who: Incarnation, pause: Duration) -> bool {
        let due = self.at.get(&who).is_none_or(|told| now.since(*told) >= pause);
        if due {
            // Any node may ask to be told, as any incarnation: so the list has a bound.
            if self.at.len() >= MAX_TOLD {
                self.at.clear();
            }
            self.at.insert(who, now);
        }
        due
    }
}
