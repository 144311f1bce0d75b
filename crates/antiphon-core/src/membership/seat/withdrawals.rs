//! A member hears that a node leaves that is in no view installed here.

use antiphon_wire::Incarnation;
use antiphon_wire::membership::MembershipMessage;

use crate::Time;
use crate::membership::context::Context;
use crate::membership::seat::Seat;

impl Seat {
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
        cx.withdrawn.told.retain(|_, (told, _)| now.since(*told) <= lasts);
        let told: Vec<(Incarnation, bool)> = cx
            .withdrawn
            .told
            .iter()
            .map(|(who, (_, waits))| (*who, *waits))
            .collect();
        for (leaver, waits) in told {
            if self.installed.rings.contains(leaver) {
                cx.withdrawn.told.remove(&leaver);
                self.reports.note_leaving(leaver, &self.installed.view);
            } else if waits {
                self.confirm_withdrawal(cx, leaver);
            }
        }
    }
}
