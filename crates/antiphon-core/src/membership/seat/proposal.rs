//! The parts that say what the coordinator would change ([`wants`]) are asked.
//!
//! [`wants`]: crate::membership::change::wants

use std::collections::BTreeSet;

use antiphon_wire::Incarnation;

use crate::Time;
use crate::membership::agree::interface::ProposedChange;
use crate::membership::change::wants::Wants;
use crate::membership::context::Context;
use crate::membership::seat::Seat;

impl Seat {
    /// The change that this coordinator would propose; `None` if all is well.
    pub(crate) fn proposed_change(
        &self,
        cx: &Context,
        now: Time,
        reachable: &BTreeSet<Incarnation>,
    ) -> Option<ProposedChange> {
        let (installed, reconnect) = (&self.installed, &self.installed.reconnect);
        // R7: a member that has a vote in a slot answers nobody. So a slot that was begun for a change that
        // nobody wants any more must still come to its end.
        let patience = installed.topology.vote_patience(&cx.config.profile);
        let wants = Wants {
            cx,
            now,
            view: &installed.view,
            rings: &installed.rings,
            topology: &installed.topology,
            named: installed.named,
            engine: &installed.engine,
            reports: &self.reports,
            reachable,
            outvoted: &self.outvoted(cx, reachable),
            silent_for: reconnect.is_complete().then(|| reconnect.lapses_after()),
            deaf: &self.deaf,
            leaves: self.leaving.is_wanted(),
            lost_the_primary: !self.is_primary(),
            unfinished: self.lease.is_unfinished(now, reachable, patience),
        };
        wants.change(&self.joiners)
    }
}
