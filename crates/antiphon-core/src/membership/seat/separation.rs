//! The policy `any`: every component goes on (R6, G41).
//!
//! ```text
//!   view 1:7 of lineage A: a b c d e           a b │ c │ d e     nobody has a majority
//!
//!   a, coordinator of its component               b
//!   Separate(attempt, view) ────────────────────► base 1:7, attempt above all seen, no quorum here either?
//!                         ◄── Gathered ─────────    yes
//!   all acknowledged: install, Assemble ────────► install
//!
//!   view 2:1 of lineage B: a b, departed: c d e `Separated`       c: 2:1 of C, alone       d e: 2:1 of D
//! ```
//! A component without a quorum founds a lineage of itself. An operator's word does the same for one survivor
//! ([`recovery`]). Here all members agree on it as they do on a non-primary view ([`nonprimary`]), with the
//! same messages and rules. So each component is whole: it removes, admits, founds groups, orders and sends,
//! by quorums among its own members, and splits again in the same way. A component that has a quorum of the
//! old view goes on in the old lineage.
//!
//! When components meet, the lighter one gives way and its members join the other one ([`merging`]). Until
//! then each asks at the addresses of the members that it has lost ([`left_behind`]). All members of a
//! component may be seeking at one moment, having given way to a component that is cut off again. Then one of
//! them founds anew after a while ([`seek`]).
//!
//! # Invariants
//! - *All acknowledge.* A separated view is installed only when each of its members has said yes to it: to
//!   exactly this view, with its lineage and number. A member says yes only while in its last primary view,
//!   to one proposal at a time, each with a higher attempt than the last. And it follows only the last one to
//!   which it said yes.
//! - *One of two.* Take two separated views with common members. It never happens that one common member is
//!   in the one view and another in the other. If any member installed the later view, all common members had
//!   said yes to it, and follow the earlier one no more. That is why no identity below needs a lineage: two
//!   components both have a view 2:1, but no node takes a message of a member of its own view for one of the
//!   other view. And since numbers rise at each process through all its lineages, no group view id comes to a
//!   node twice.
//! - *The old lineage is not touched.* A member that left it votes there no more, and a silent voter is
//!   always safe. From then on it speaks as a member of another lineage, and that is no sign of life: so both
//!   sides do without it, however well they hear it.
//! - *The epoch rises, the counter begins at 1*, and groups go on by the flush that any view with departures
//!   begins.
//!
//! That all members said yes to a view, and that of two there is one, is for the simulator to judge
//! (`check/inside/components`, G41).
//!
//! # When…
//! - *a member dies before all acknowledged*: the others doubt it in time, and a higher attempt follows
//!   without it;
//! - *the coordinator dies before any member installed*: the next coordinator gathers anew;
//! - *the coordinator dies after it told some members*: a member that said yes may hear a heartbeat of the
//!   new lineage, from a member of the view that it said yes to. Then it knows that all did, and installs the
//!   view. A member that has meanwhile said yes to another view does not come, and is removed for its silence
//!   in the new lineage;
//! - *a quorum is heard again before all acknowledged*: the attempt is given up. After all acknowledged,
//!   there are two lineages that meet;
//! - *no member of a component has weight*: the component can never decide anything. It has a non-primary
//!   view, as under `majority`;
//! - *a member wants to leave*: it goes along, and leaves the new lineage. A member that is already out of
//!   the old lineage says no;
//! - *the members hear a quorum, and can still decide nothing*: they separate from the members that they miss
//!   ([`standstill`]), unless the slot is decided first.
//!
//! [`left_behind`]: crate::membership::contacts::left_behind
//! [`merging`]: crate::membership::change::merging
//! [`nonprimary`]: crate::membership::change::nonprimary
//! [`recovery`]: crate::membership::recovery
//! [`seek`]: crate::membership::seek
//! [`standstill`]: crate::membership::seat::standstill

use std::sync::Arc;

use antiphon_wire::membership::LifelineRecord;
use antiphon_wire::{Incarnation, LineageMark, NodeView};

use crate::Time;
use crate::membership::change::nonprimary::Agreed;
use crate::membership::change::parts::{acknowledged, is_part_of};
use crate::membership::context::Context;
use crate::membership::seat::Seat;

impl Seat {
    pub(crate) fn on_separate(
        &mut self,
        cx: &mut Context,
        now: Time,
        proposer: Incarnation,
        attempt: u32,
        view: NodeView,
    ) {
        let Some((lineage, base)) = view.separates().filter(|_| cx.any()) else {
            return;
        };
        let mine = self.installed.view.primary_id();
        if lineage == self.installed.view.lineage && base > mine {
            self.pull(cx, now, proposer);
        }
        // A node that could help to a quorum does not settle for less.
        let reachable = self.reachable(cx);
        let content = !self.has_quorum(cx, now, &reachable);
        if !content && lineage == self.installed.view.lineage && base == mine {
            self.called_by_gathering(cx, now);
        }
        let fits = lineage == self.installed.view.lineage
            && base == mine
            && view.contains(cx.me)
            && view.contains(proposer)
            && is_part_of(&self.installed.view, &view);
        let willing = content && !self.leaving.is_departing();
        let agreed = Agreed {
            base,
            attempt,
            proposer,
            view: view.clone(),
        };
        let agrees = fits && willing && self.installed.nonprimary.agree(agreed);
        if agrees {
            acknowledged(cx, &view);
        }
        self.answer_gathering(cx, proposer, (base, attempt), agrees);
    }

    /// A heartbeat of another lineage: of one to which this node said yes, or of a member that has left this
    /// lineage.
    pub(crate) fn hear_elsewhere(
        &mut self,
        cx: &mut Context,
        now: Time,
        sender: Incarnation,
        lineage: LineageMark,
    ) {
        if !cx.any() {
            return;
        }
        // The sender is in that lineage, so it has installed what all acknowledged.
        let agreed = self
            .installed
            .nonprimary
            .agreed
            .take_if(|agreed| agreed.view.lineage.mark() == lineage && agreed.view.contains(sender));
        match agreed
            .filter(|agreed| agreed.base == self.installed.view.primary_id() && agreed.view.is_primary())
        {
            Some(agreed) => {
                self.separate(cx, now, agreed.view);
                self.evaluate(cx, now);
            }
            None => self.went_apart(cx, sender),
        }
    }

    /// Goes on as a member of the lineage that was agreed on. A node that has left the old lineage by now is
    /// a member of none.
    pub(crate) fn separate(&mut self, cx: &mut Context, now: Time, view: NodeView) {
        if self.leaving.is_departing() {
            return;
        }
        let mine = (self.installed.view.lineage, self.installed.view.primary_id());
        assert!(
            cx.any() && view.separates() == Some(mine) || planted!(),
            "R6: {:?} in {mine:?} goes on in {}, which is a part of {:?}",
            cx.me,
            view.id,
            view.separates()
        );
        self.install(cx, now, Arc::new(view), None);
        // R2, R9: what the lifelines showed last was of the lineage that was left. It would be no proof in
        // this lineage if this process ended before it votes here.
        cx.write_lifelines(&LifelineRecord::Vote(self.installed.engine.vote_state()));
    }
}
