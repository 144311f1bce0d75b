//! Leaving before the first view.
//!
//! A node can be admitted before it knows: from the moment at which it has told a member that it is there, or
//! another founder that it
//! looks for founders. If it ended without a word then, the others would take its end for a crash.
//!
//! ```text
//!   leave() ──► nobody can admit it ──► Left at once
//!          └──► Leave to all who can: whom it answered, who proposed it, founders that it knows
//!                 Confirm from each: neither in a view nor in a proposal, and it will be in none ──► Left
//!                 Decide: it is in ──► it takes its seat, and leaves as a member ([`super::leaving`])
//!                 one of them is gone ──► Join to whoever coordinates now, which asks whether it is there ──► Leave
//!                 deadline ──► Left
//! ```
//! Whoever is told remembers it. If the leaver is in what this node has voted for, the answer waits until
//! that slot is decided; and if a
//! view admits the leaver all the same, by the vote of one that is gone, the coordinator removes it as one
//! that leaves, at once.
//!
//! A leaver promises nothing new. It goes on to vote on what names it, and as a founder: what is under way
//! must come to its end.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_wire::membership::MembershipMessage;
use antiphon_wire::{Incarnation, Lineage, MAX_MEMBERS, ViewId};

use super::context::{Context, Fate};
use super::seat::{Report, Seat};
use super::seeking::Seeking;
use crate::Time;

/// How many that leave are remembered at most: as many as there may be members.
const MAX_WITHDRAWN: usize = MAX_MEMBERS;

/// Whoever asks a node whether it is there coordinates: there are few of them, one after the other.
const MAX_PROMISED: usize = 64;

/// Who said, before it saw a view, that it leaves.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn {
    /// When each said so, and whether it still waits for the answer.
    told: BTreeMap<Incarnation, (Time, bool)>,
}

impl Withdrawn {
    fn note(&mut self, now: Time, who: Incarnation) {
        if self.told.len() < MAX_WITHDRAWN || self.told.contains_key(&who) {
            self.told.insert(who, (now, true));
        }
    }

    fn answered(&mut self, who: Incarnation) {
        if let Some((_, waits)) = self.told.get_mut(&who) {
            *waits = false;
        }
    }

    /// Those that still wait for an answer, and must stay reachable until then.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Incarnation> {
        let waits = |(who, (_, waits)): (&Incarnation, &(Time, bool))| waits.then_some(*who);
        self.told.iter().filter_map(waits)
    }
}

/// A node without a view that leaves.
#[derive(Debug)]
pub(crate) struct Withdrawal {
    deadline: Time,
    /// Founders that have not heard of this node yet may have its last question on the way: until when.
    lingers: Time,
    /// Who has not confirmed yet.
    waiting: BTreeSet<Incarnation>,
    /// Whether one of them is gone, and whoever coordinates now was not told yet.
    lost: bool,
}

impl Withdrawal {
    pub(super) fn next_deadline(&self, next_seek: Time) -> Time {
        let is_over = self.waiting.is_empty() && !self.lost;
        let next = if is_over { self.lingers } else { next_seek };
        next.min(self.deadline)
    }
}

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
        // What was promised longer ago than that nobody waits for any more.
        let waiting: BTreeSet<Incarnation> = self
            .promised
            .iter()
            .filter(|(_, at)| now.since(**at) <= profile.leave_within)
            .map(|(member, _)| *member)
            .collect();
        // A founder counts whoever asked it. It answers at once, and is known by that.
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

    /// That one may admit this node from now on.
    pub(super) fn note_promise(&mut self, now: Time, to: Incarnation) {
        if self.promised.len() < MAX_PROMISED || self.promised.contains_key(&to) {
            self.promised.insert(to, now);
        }
    }

    /// By when this node has left, if it leaves.
    pub(crate) fn leaves_by(&self) -> Option<Time> {
        self.withdrawal.as_ref().map(|withdrawal| withdrawal.deadline)
    }

    /// Whether this node leaves, and does nothing else. It seeks only if one that may have admitted it is
    /// gone.
    pub(super) fn tend_withdrawal(&mut self, cx: &mut Context, now: Time) -> bool {
        let Some(withdrawal) = &self.withdrawal else {
            return false;
        };
        let all_know = withdrawal.waiting.is_empty() && !withdrawal.lost && now >= withdrawal.lingers;
        if cx.fate.is_none() && (all_know || now >= withdrawal.deadline) {
            cx.fate = Some(Fate::Left);
        }
        true
    }

    /// Whether this node leaves and has nobody left to tell it to, so that it looks for whoever coordinates.
    pub(super) fn is_at_a_loss(&self) -> bool {
        self.withdrawal.as_ref().is_some_and(|withdrawal| withdrawal.lost)
    }

    /// A node may admit this one, or has proposed to. If this node leaves, it is told. Whether it is.
    pub(super) fn tells_leaving(&mut self, cx: &mut Context, to: Incarnation) -> bool {
        let Some(withdrawal) = &mut self.withdrawal else {
            return false;
        };
        withdrawal.waiting.insert(to);
        withdrawal.lost = false;
        cx.send(to, MembershipMessage::Leave);
        true
    }

    /// That one will not admit this node any more.
    pub(super) fn withdrawal_confirmed(&mut self, cx: &mut Context, now: Time, by: Incarnation) {
        if let Some(withdrawal) = &mut self.withdrawal {
            withdrawal.waiting.remove(&by);
        }
        self.tend_withdrawal(cx, now);
    }

    /// Nobody is there any more. If that was one who could admit this node, its proposal may be in the votes
    /// of others.
    pub(super) fn withdrawal_refused(&mut self, cx: &Context, gone: impl Fn(Incarnation) -> bool) {
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

    /// Another founder leaves. It is counted no more, unless a vote given here names it.
    pub(super) fn hear_leaver(&mut self, cx: &mut Context, now: Time, leaver: Incarnation) {
        cx.withdrawn.note(now, leaver);
        let names = |founding: &super::founding::Founding| founding.names(leaver);
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

impl Seat {
    /// One that is in no view that this node has installed leaves: it is not admitted, or removed as soon as
    /// it is.
    pub(super) fn hear_leaver(&mut self, cx: &mut Context, now: Time, leaver: Incarnation) {
        self.joiners.withdraw(leaver);
        cx.withdrawn.note(now, leaver);
        // Who departs has decided a view that it does not install, and will not answer for the next.
        if !self.engine.names(leaver) && !self.leaving.is_departing() {
            self.confirm_withdrawal(cx, leaver);
        }
    }

    fn confirm_withdrawal(&self, cx: &mut Context, leaver: Incarnation) {
        cx.withdrawn.answered(leaver);
        let (lineage, view) = (self.view.lineage, self.view.primary_id());
        cx.send(leaver, MembershipMessage::Confirm { lineage, view });
        cx.forget_peer(leaver);
    }

    /// A view is installed: those in it that said before that they leave want to leave it, and the others are
    /// told that they are not in it.
    pub(super) fn remember_leavers(&mut self, cx: &mut Context, now: Time) {
        let lasts = cx.config.profile.leave_within * 2;
        cx.withdrawn.told.retain(|_, (told, _)| now.since(*told) <= lasts);
        let told: Vec<(Incarnation, bool)> = cx
            .withdrawn
            .told
            .iter()
            .map(|(who, (_, waits))| (*who, *waits))
            .collect();
        for (leaver, waits) in told {
            if self.rings.contains(leaver) {
                cx.withdrawn.told.remove(&leaver);
                self.note_leaver(leaver);
            } else if waits {
                self.confirm_withdrawal(cx, leaver);
            }
        }
    }

    /// A member wants to leave, and has said so otherwise than by a heartbeat.
    pub(super) fn note_leaver(&mut self, leaver: Incarnation) {
        let view = self.view.primary_id();
        let wire_level = self.view.wire_level;
        let report = self.reports.entry(leaver).or_insert(Report {
            round: 0,
            view,
            primary: true,
            leaving: true,
            wire_level,
        });
        report.leaving = true;
    }
}
