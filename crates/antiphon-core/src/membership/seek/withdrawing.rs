//! Leaving before the first view.
//!
//! A node can be admitted before it knows it: from the moment at which it has told a member that it is there,
//! or another founder that it looks for founders. If it ended without a word then, the others would take its
//! end for a crash.
//!
//! ```text
//!   leave() ──► nobody can admit it ──► Left at once
//!          └──► Leave to all that can: nodes that it answered, proposers of it, founders that it knows
//!                 Confirm from each: neither in a view nor in a proposal, and it will be in none ──► Left
//!                 Decide: it is in ──► it takes its seat, and leaves as a member ([`leaving`])
//!                 one of them is gone ──► Join to the coordinator, which asks whether it is there ──► Leave
//!                 deadline ──► Left
//! ```
//! A node that is told remembers it. If the leaver is in what that node has voted for, the answer waits until
//! that slot is decided. A view may admit the leaver all the same, by the vote of a node that is gone. Then
//! the coordinator removes it at once, as a member that leaves.
//!
//! A leaver promises nothing new. It still votes on what names it, and as a founder: what is under way must
//! come to its end.
//!
//! [`leaving`]: crate::membership::change::leaving

use std::collections::BTreeSet;

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, Lineage, ViewId};

use crate::Time;
use crate::membership::contacts::withdrawn::Withdrawal;
use crate::membership::context::{Context, Fate};
use crate::membership::seek::Seeking;

/// Only coordinators ask a node whether it is there: there are few of them, one after the other.
const MAX_PROMISED: usize = 64;

impl Seeking {
    /// Leaves, at once if nobody can have admitted this node.
    pub(crate) fn leave(&mut self, cx: &mut Context, now: Time) {
        if planted!(LeaveUnsaidBeforeAView) {
            cx.fate = Some(Fate::Left);
            return;
        }
        if self.withdrawal.is_some() {
            return;
        }
        let profile = &cx.config.profile;
        // Nobody waits any more for a promise that is older than that.
        let waiting: BTreeSet<Incarnation> = self
            .promised
            .iter()
            .filter(|(_, at)| now.since(**at) <= profile.leave_within)
            .map(|(member, _)| *member)
            .collect();
        // A founder counts each node that asked it. It answers at once, and this node knows it by that
        // answer.
        let founds = self.founding.is_some() && self.seeks > 0;
        let asked = profile.retransmit * 4;
        let lingers = if founds { self.last_seek + asked } else { now };
        let patience = if waiting.is_empty() {
            profile.suspect_after
        } else {
            profile.leave_within
        };
        let founders = self.candidates.values().map(|candidate| candidate.incarnation);
        let waiting: BTreeSet<Incarnation> = waiting.into_iter().chain(founders.filter(|_| founds)).collect();
        for to in &waiting {
            cx.send(*to, MembershipMessage::Leave);
        }
        self.withdrawal = Some(Withdrawal {
            deadline: now + patience,
            lingers,
            waiting,
            lost: false,
        });
        self.tend_withdrawal(cx, now);
    }

    /// That node may admit this one from now on.
    pub(crate) fn note_promise(&mut self, now: Time, to: Incarnation) {
        if self.promised.len() < MAX_PROMISED || self.promised.contains_key(&to) {
            self.promised.insert(to, now);
        }
    }

    /// By when this node has left, if it leaves.
    pub(crate) fn leaves_by(&self) -> Option<Time> {
        self.withdrawal.as_ref().map(|withdrawal| withdrawal.deadline)
    }

    /// Whether this node leaves, and does nothing else. It seeks only if a node that may have admitted it is
    /// gone.
    pub(crate) fn tend_withdrawal(&mut self, cx: &mut Context, now: Time) -> bool {
        let Some(withdrawal) = &self.withdrawal else {
            return false;
        };
        let all_know = withdrawal.waiting.is_empty() && !withdrawal.lost && now >= withdrawal.lingers;
        if cx.fate.is_none() && (all_know || now >= withdrawal.deadline) {
            cx.fate = Some(Fate::Left);
        }
        true
    }

    /// Whether this node leaves, and a node that it told is gone: then it looks for the present coordinator.
    pub(crate) fn is_at_a_loss(&self) -> bool {
        self.withdrawal.as_ref().is_some_and(|withdrawal| withdrawal.lost)
    }

    /// A node may admit this one, or has proposed to. If this node leaves, it tells that node so. Returns
    /// whether it did.
    pub(crate) fn tells_leaving(&mut self, cx: &mut Context, to: Incarnation) -> bool {
        let Some(withdrawal) = &mut self.withdrawal else {
            return false;
        };
        withdrawal.waiting.insert(to);
        withdrawal.lost = false;
        cx.send(to, MembershipMessage::Leave);
        true
    }

    /// That node will not admit this one any more.
    pub(crate) fn withdrawal_confirmed(&mut self, cx: &mut Context, now: Time, by: Incarnation) {
        if let Some(withdrawal) = &mut self.withdrawal {
            withdrawal.waiting.remove(&by);
        }
        self.tend_withdrawal(cx, now);
    }

    /// Nobody is at an address any more. If the node there could admit this one, its proposal may be in the
    /// votes of others.
    pub(crate) fn withdrawal_refused(&mut self, cx: &Context, gone: impl Fn(Incarnation) -> bool) {
        let Some(withdrawal) = &mut self.withdrawal else {
            return;
        };
        let before = withdrawal.waiting.len();
        withdrawal.waiting.retain(|member| !gone(*member));
        if withdrawal.waiting.len() < before {
            let founders = self.candidates.values().map(|candidate| candidate.incarnation);
            let was_founder = founders.into_iter().any(&gone);
            withdrawal.lost |= !was_founder;
            self.next_seek = self.next_seek.min(self.last_seek + cx.config.profile.retransmit);
        }
    }

    /// Another founder leaves. This node counts it no more, unless a vote given here names it.
    pub(crate) fn hear_leaver(&mut self, cx: &mut Context, now: Time, leaver: Incarnation) {
        cx.withdrawn.note(now, leaver);
        let names = |founding: &crate::membership::seek::founding::Founding| founding.names(leaver);
        if self.founding.as_ref().is_some_and(names) {
            return;
        }
        cx.withdrawn.answered(leaver);
        let (lineage, view) = (Lineage(0), ViewId { epoch: 0, counter: 0 });
        cx.send(leaver, MembershipMessage::Confirm { lineage, view });
        let before = self.candidates.len();
        self.candidates
            .retain(|_, candidate| candidate.incarnation != leaver);
        if let Some(founding) = self.founding.as_mut().filter(|_| self.candidates.len() < before) {
            founding.forgotten();
            cx.forget_peer(leaver);
        }
    }
}
