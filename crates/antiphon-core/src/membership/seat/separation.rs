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
//! A component without a quorum founds a lineage of itself: what an operator's word does for one survivor
//! ([`recovery`]), agreed on by all members as a non-primary view is ([`nonprimary`]), whose
//! messages and rules these are. So each component is whole: it removes, admits, founds groups, orders and
//! sends, by quorums among its own members, and splits again in the same way. A component that has a quorum
//! of the old view goes on in the old lineage, as ever.
//!
//! When components meet, the lighter one gives way and its members join the other one ([`merging`]);
//! until then each asks at the addresses of those whom it has lost ([`left_behind`]). Where all members of a
//! component are seeking at that moment, having given way to one that is cut off again, one of them founds
//! anew after a while ([`seek`]).
//!
//! # Invariants
//! - *All acknowledge.* A separated view is installed only when each of its members has said yes to it: to
//!   this very view, lineage and number included. A member says yes in its last primary view alone, to one
//!   proposal at a time, each with a higher attempt than the last; and it follows only the last one that it
//!   said yes to.
//! - *One of two.* So of two separated views with common members, none of these is ever in the one and
//!   another in the other: if the later one was installed by anybody, all of them had said yes to it, and
//!   follow the earlier one no more. That is why no identity below needs a lineage: two components both have
//!   a view 2:1, but no node takes a message of a member of its own view for one of the other's. And since
//!   numbers rise at each process through all its lineages, no group view id comes to a node twice.
//! - *The old lineage is not touched.* Who left it votes there no more, and a silent voter is always safe. It
//!   speaks as a member of another lineage from then on, and that is no sign of life: so both sides do
//!   without it, however well they hear it.
//! - *The epoch rises, the counter begins at 1*, and groups go on by the flush that any view with departures
//!   begins.
//!
//! # When…
//! - *a member dies before all acknowledged*: it is doubted in time, and a higher attempt follows without it;
//! - *the coordinator dies before anybody installed*: the next one gathers anew;
//! - *it dies after it told some*: who said yes and hears a heartbeat of that lineage, from a member of the
//!   view that it said yes to, knows that all did, and installs it. Who has meanwhile said yes to another one
//!   does not come, and is removed for its silence in the new lineage;
//! - *a quorum is heard again before all acknowledged*: the attempt is given up. After that, they are two
//!   lineages that meet;
//! - *all of a component have no weight*: it can decide nothing, ever; it has a non-primary view, as under
//!   `majority`;
//! - *a member wants to leave*: it goes along, and leaves the new lineage. One that is already out of the old
//!   one says no;
//! - *the members hear a quorum, and can decide nothing for all that*: they separate from those whom they
//!   miss ([`standstill`]), unless the slot is decided first.
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
        // Who could help to a quorum does not settle for less.
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

    /// A heartbeat of another lineage: of one that this node said yes to, or of a member that has left this
    /// one.
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
        // Whoever is there has installed what all acknowledged.
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

    /// Goes on as a member of the lineage that was agreed on. Who has left the old one by now is a member of
    /// none.
    pub(crate) fn separate(&mut self, cx: &mut Context, now: Time, view: NodeView) {
        if self.leaving.is_departing() {
            return;
        }
        self.install(cx, now, Arc::new(view), None);
        // R2, R9: what lifelines showed last was of the lineage that was left, and so would be no proof in
        // this one if this process ended before it votes here.
        cx.write_lifelines(&LifelineRecord::Vote(self.installed.engine.vote_state()));
    }
}
