//! What a member does so that it, other members and nodes that are not admitted yet leave in order
//! ([`leaving`]).
//!
//! [`leaving`]: crate::membership::change::leaving

use antiphon_wire::Incarnation;
use antiphon_wire::membership::MembershipMessage;

use crate::Time;
use crate::membership::context::{Context, Fate};
use crate::membership::seat::Seat;

impl Seat {
    /// Begins to leave; the node is gone by this deadline at the latest.
    pub(crate) fn leave(&mut self, cx: &mut Context, now: Time, deadline: Time) {
        if self.leaving.begin(deadline) {
            self.beat(cx, now);
            self.evaluate(cx, now);
        }
    }

    /// Whether this node is on its way out and has nothing else to do.
    pub(crate) fn tend_departure(&mut self, cx: &mut Context, now: Time) -> bool {
        let can_be_removed = self.is_primary() && self.installed.view.members.len() > 1;
        let is_over = self.leaving.is_over(now, can_be_removed);
        if is_over {
            cx.fate = Some(Fate::Left);
        }
        is_over || self.leaving.is_departing()
    }

    /// A node leaves that is in no view installed here: it is not admitted, or it is removed as soon as it is
    /// admitted.
    pub(crate) fn hear_leaver(&mut self, cx: &mut Context, now: Time, leaver: Incarnation) {
        self.joiners.withdraw(leaver);
        cx.withdrawn.note(now, leaver);
        // If this node departs, it has decided a view that it does not install, and will not answer for the
        // next.
        if !self.installed.engine.names(leaver) && !self.leaving.is_departing() {
            self.confirm_withdrawal(cx, leaver);
        }
    }

    fn confirm_withdrawal(&self, cx: &mut Context, leaver: Incarnation) {
        cx.withdrawn.answered(leaver);
        let (lineage, view) = (self.installed.view.lineage, self.installed.view.primary_id());
        cx.send(leaver, MembershipMessage::Confirm { lineage, view });
        cx.forget_peer(leaver);
    }

    /// A view is installed. Nodes that said before that they leave, and are in it, want to leave it. The
    /// others are told that they are not in it.
    pub(crate) fn remember_leavers(&mut self, cx: &mut Context, now: Time) {
        let lasts = cx.config.profile.leave_within * 2;
        let is_member = |who| self.installed.rings.contains(who);
        let (members, strangers) = cx.withdrawn.sort(now, lasts, is_member);
        for leaver in members {
            self.reports.note_leaving(leaver, &self.installed.view);
        }
        for leaver in strangers {
            self.confirm_withdrawal(cx, leaver);
        }
    }
}
