//! As the leader: which member is removed because its application has stopped reading. The page of
//! `group/slow.rs` says how the leader gets to know.

use std::time::Duration;

use antiphon_wire::{GroupViewId, Incarnation};

use super::{Around, Flush, Requests};
use crate::Profile;
use crate::group::effect::MAX_CAUSE_BYTES;
use crate::group::standstill::Slow;

/// How long the leader waits for others to say that they stand still as well. Every member is asked at one
/// look, and all last calls take equally long: only the network and the scheduler differ.
pub(super) fn settling(profile: &Profile) -> Duration {
    profile.batch.max(profile.suspect_after / 8)
}

impl Requests {
    /// The member that is removed in the next view because its application has stopped reading. Of the
    /// members that may be removed, it is the one that has stood still longest, once all had the time to say
    /// so. Of two alike it is the junior.
    pub(super) fn slowest(
        &self,
        around: &Around<'_>,
        may: impl Fn(Incarnation) -> bool,
    ) -> Option<Incarnation> {
        let wait = settling(around.profile);
        let settled = self.slow.values().any(|slow| around.now.since(slow.said) >= wait);
        if !settled {
            return None;
        }
        let stands = |(member, slow): &(&Incarnation, &Slow)| {
            let stands = slow.stood + around.now.since(slow.said);
            (stands, around.stream.rank(**member))
        };
        let candidates = self.slow.iter().filter(|(member, _)| may(**member));
        candidates.max_by_key(stands).map(|(member, _)| *member)
    }
}

impl Flush {
    /// A member's node says that its application has stopped reading.
    pub(super) fn handle_slow(
        &mut self,
        around: &Around<'_>,
        from: Incarnation,
        view: GroupViewId,
        stood: Duration,
        cause: String,
    ) {
        if !around.leads() || around.stream.rank(from).is_none() {
            return self.tell_removed(around, from);
        }
        // A member that is alone holds up no other. What was said in another view is asked for again if it
        // still holds.
        let alone = around.stream.members.len() < 2;
        if around.stream.id != view || alone || cause.len() > MAX_CAUSE_BYTES {
            return;
        }
        let said = around.now;
        self.requests.slow.insert(from, Slow { stood, said, cause });
        self.gather(around);
    }
}
