//! A node without a view is told of the view that admits it.
//!
//! ```text
//!   Decide(earlier views) ──► kept: somebody may need them from here ([`history`])
//!   Decide(the view that admits this node) ──► it takes its seat
//!   Decide(a later view with this node) ──► Pull ──► … again at each seek, so often
//! ```
//! The member that decides the view may not be the one that this node asked: that one may have died. Neither
//! knows the other's address but by the view. Until this node has its seat it is silent as a member, yet all
//! that it acknowledges is a sign of life. So nobody removes it, and it must not stop asking.
//!
//! [`history`]: crate::membership::view::history

use std::sync::Arc;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, NodeView, ViewId};

use crate::Time;
use crate::membership::context::{Context, Fate};
use crate::membership::seek::Missed;
use crate::membership::seek::Seeking;
use crate::membership::view::check;
use crate::membership::view::history::VIEWS_PER_PULL;

/// One member is asked so often for the view that admitted this node. Channels lose nothing, but a member
/// that is asked again within a moment does not answer.
const MOST_PULLS: u32 = 16;

impl Seeking {
    pub(crate) fn decided(&mut self, cx: &mut Context, now: Time, sender: Incarnation, view: Box<NodeView>) {
        if !check::primary_is_sound(&view) {
            return;
        }
        if !view.contains(cx.me) {
            return self.note_earlier(Arc::new(*view));
        }
        let (lineage, id) = (view.lineage, view.primary_id());
        // R5: a lineage that this process was in has gone on since. A view that takes it back is no view of
        // it.
        if cx.history.latest(lineage) >= Some(id) {
            return;
        }
        if view.joined.contains(&cx.me) {
            let earlier = std::mem::take(&mut self.earlier);
            if earlier.last().is_some_and(|last| is_next(last, &view)) {
                cx.history.recall(now, earlier);
            }
            cx.send(sender, MembershipMessage::Confirm { lineage, view: id });
            cx.fate = Some(Fate::Seated(view));
        } else {
            // The view that admitted this node is missing: views are never skipped.
            if let Some(member) = view.member(sender) {
                cx.know_peer(sender, member.addr);
            }
            let after = ViewId {
                epoch: id.epoch,
                counter: id.counter.saturating_sub(2),
            };
            let before = self.missed.as_ref().filter(|missed| missed.lineage == lineage);
            let after = before.map_or(after, |missed| missed.after.min(after));
            self.missed = Some(Missed {
                lineage,
                after,
                at: sender,
                pulls: MOST_PULLS,
            });
            self.pull_missed(cx);
        }
    }

    /// Asks for the view that admitted this node. It asks again, since a member that was asked a moment ago
    /// does not answer once more.
    pub(crate) fn pull_missed(&mut self, cx: &mut Context) {
        let Some(missed) = self.missed.as_mut().filter(|missed| missed.pulls > 0) else {
            return;
        };
        missed.pulls -= 1;
        let (lineage, after) = (missed.lineage, missed.after);
        cx.send(missed.at, MembershipMessage::Pull { lineage, after });
    }

    /// A view before the one that may admit this node: a member may need it from here
    /// ([`history`](crate::membership::view::history)).
    fn note_earlier(&mut self, view: Arc<NodeView>) {
        if self.earlier.last().is_some_and(|last| !is_next(last, &view)) {
            self.earlier.clear();
        }
        if self.earlier.len() >= VIEWS_PER_PULL {
            self.earlier.remove(0);
        }
        self.earlier.push(view);
    }
}

/// Whether the second view comes right after the first one.
fn is_next(view: &NodeView, next: &NodeView) -> bool {
    next.lineage == view.lineage && next.primary_id() == check::next_id(view.primary_id())
}
