//! What a member has asked and promised of other lineages, and which one gives way.

use std::cmp::Ordering;
use std::time::Duration;

use antiphon_wire::membership::Standing;

use crate::Time;

/// What a member has asked and promised.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    /// The last question of this member, and when it asked.
    pub(crate) asked: Option<(u64, Time)>,
    /// Until when this member gives way to nobody.
    pub(crate) stays_until: Option<Time>,
    /// Policy `majority`: since when this node has met junior lineages while it heard no quorum, and when it
    /// last did.
    beside: Option<(Time, Time)>,
}

impl Merging {
    /// The members that this node hears could decide.
    pub(crate) fn hears_quorum(&mut self) {
        self.beside = None;
    }

    /// This node did not run for this long, by its own fault.
    pub(crate) fn missed(&mut self, missed: Duration) {
        if let Some((since, last)) = &mut self.beside {
            *since = *since + missed;
            *last = *last + missed;
        }
    }

    /// This node met a junior lineage, and hears no quorum. Returns whether that has gone on for `patience`.
    pub(crate) fn has_waited(&mut self, now: Time, patience: Duration) -> bool {
        // The other lineage may ask seldom, and some questions may get lost.
        let goes_on = |(_, last): &(Time, Time)| now.since(*last) < patience * 2;
        let since = self.beside.filter(goes_on).map_or(now, |(since, _)| since);
        self.beside = Some((since, now));
        now.since(since) >= patience
    }
}

/// Whether the first lineage gives way to the second. A lineage without a primary has nothing to offer.
pub(crate) fn gives_way(one: &Standing, other: &Standing) -> bool {
    other.primary && (!one.primary || seniority(one, other) == Ordering::Less)
}

/// Which of two lineages gives way: `Less` is the junior.
pub(crate) fn seniority(one: &Standing, other: &Standing) -> Ordering {
    // Numbers begin with the time of founding. They rise with the counter, and by more where a view admits a
    // node that has seen a higher number.
    let ahead = |standing: &Standing| standing.number.saturating_sub(standing.view.counter);
    one.weight
        .cmp(&other.weight)
        .then(ahead(other).cmp(&ahead(one)))
        .then(other.lineage.cmp(&one.lineage))
}
