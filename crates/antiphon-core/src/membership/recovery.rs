//! The operator's way out (R11, G38): one survivor goes on alone, as a new lineage, by somebody's word.
//!
//! ```text
//!   last primary view: a b c d e          a, b and c lost power for good, which proves nothing; d and e wait, for ever
//!
//!   operator at d:  what would it mean? ──► Recovery      the view, who is lost, who is heard
//!                   do it, for that view ──► d: {d}, view 2:1 of a new lineage, departed: a b c e, all `Overridden`
//!                                            │ Here, a primary of another lineage
//!   e: without a primary, it gives way (R6) ◄┘ and joins d as a fresh incarnation; new nodes at a, b, c join d
//! ```
//! No message of the protocol leads here, and no time: only [`Membership::recover`], which a driver calls for
//! nobody but a person. It is no vote and no proof. It declares that what the others had, and d has not, is
//! given up.
//!
//! # Invariants
//!
//! - *A new lineage.* The old one gets no view that its members did not decide: whoever of them is alive
//!   after all is not told that a majority had voted. Its slots get no more votes of d, and a silent voter is
//!   always safe.
//! - *The epoch rises, the counter begins at 1.* So the ids of d's views go on rising in its one incarnation:
//!   groups go on where they stopped, by the flush that any view with departures begins, and lose nothing
//!   that d holds. And each id shows that the lineage was recovered.
//! - *It is seen.* The first view names everyone left behind, with the lineage and the view that were
//!   overridden; every member that joins has the epoch in its ids.
//! - *A recovered lineage is no senior one.* When it meets a primary view of the lineage that it left, or any
//!   other, the lighter one gives way, the later founded one if they are equal (see [`super::lineage`]).
//!
//! # When…
//!
//! - *d dies before it did it*: nothing has happened. *After, alone*: the new lineage ended with it, and an
//!   operator may recover from e, whether it has heard of d or not: who gave way to d and was not admitted
//!   looks for a primary, and has what it had; when none has answered for `unreachable_after` it may be
//!   recovered as what it was, a member of its last primary view, in its fresh incarnation.
//! - *e is cut off meanwhile*: it waits, and gives way when it hears of d.
//! - *two operators recover from d and from e*: two clusters, until they meet; then one gives way, and what
//!   it did since is lost.
//! - *a, b and c were cut off and not lost*: they are the primary, d is a second one. When they meet, the
//!   lighter gives way: that is why it takes a person who knows.
//! - *a majority is heard again at the last moment*: as long as no primary view is installed here, the word
//!   counts; the old lineage may decide a view without d, and then the case before this one is there, for as
//!   long as it takes them to meet.

use std::sync::Arc;

use antiphon_wire::{Cause, Departure, NodeView, NodeViewId, ViewId};

use super::context::{Context, Fate};
use super::founding;
use super::seat::Seat;
use super::seeking::Seeking;
use super::{Membership, Phase, check};
use crate::Time;
use crate::recovery::{Abandoned, Recovery, RecoveryError};

impl Membership {
    /// What would be given up if this node went on alone.
    pub(crate) fn recovery(&self, now: Time) -> Result<Recovery, RecoveryError> {
        match &self.phase {
            Phase::Seated(seat) => seat.recovery(&self.cx, now),
            Phase::Seeking(seeking) => seeking.recovery(&self.cx, now),
            Phase::Stopped => Err(RecoveryError::NoView),
        }
    }

    /// Goes on alone, as was shown.
    pub(crate) fn recover(&mut self, now: Time, shown: &Recovery) -> Result<(), RecoveryError> {
        self.cx.detector.awake(now);
        let present = self.recovery(now)?;
        if (present.lineage, present.view) != (shown.lineage, shown.view) {
            return Err(RecoveryError::Changed);
        }
        match &mut self.phase {
            Phase::Seated(seat) => seat.recover(&mut self.cx, now),
            Phase::Seeking(_) => recover_anew(&mut self.cx, now, &present),
            Phase::Stopped => {}
        }
        self.settle(now);
        Ok(())
    }

    /// The mistake of taking a long wait for an operator's word.
    pub(super) fn recover_unasked(&mut self, now: Time) {
        let long = self.cx.config.profile.unreachable_after;
        if let Ok(shown) = self.recovery(now)
            && shown.lost >= long
        {
            // Nothing has changed since it was shown.
            let _ = self.recover(now, &shown);
        }
    }
}

impl Seeking {
    /// The same for a node that was a member, and looks for a cluster that took its place.
    fn recovery(&self, cx: &Context, now: Time) -> Result<Recovery, RecoveryError> {
        let past = cx.past.as_ref().ok_or(RecoveryError::NoView)?;
        let origin = past.origin;
        let view = cx.history.get(origin.lineage, origin.view);
        let view = view.ok_or(RecoveryError::NoView)?;
        let (unanswered, patience) = (self.unanswered_for(now), cx.config.profile.unreachable_after);
        if unanswered < patience {
            let left = patience - unanswered;
            return Err(RecoveryError::Looking { left });
        }
        if cx.config.weight == 0 {
            return Err(RecoveryError::NoVote);
        }
        let others = view.members.iter().filter(|member| member.addr != cx.config.addr);
        // It hears members no more, and watches none of them: of all it is open what became of them.
        let others = others.map(|member| Abandoned {
            member: member.clone(),
            heard: unanswered,
            here: false,
            dead: false,
        });
        Ok(Recovery {
            lineage: origin.lineage,
            view: origin.view,
            number: view.number,
            lost: unanswered,
            quorum: false,
            undecided: false,
            weight: cx.config.weight,
            others: others.collect(),
        })
    }
}

/// The first view of a lineage that goes on from that in which an earlier incarnation of this process was.
fn recover_anew(cx: &mut Context, now: Time, shown: &Recovery) {
    let Some(past) = cx.past.clone() else { return };
    let mut view = founding::go_on_from(cx, now, &past);
    let departed = shown.others.iter().map(|other| Departure {
        member: other.member.clone(),
        cause: Cause::Overridden {
            lineage: shown.lineage,
            view: shown.view,
        },
        accusers: Vec::new(),
    });
    view.departed = departed.collect();
    cx.fate = Some(Fate::Seated(Box::new(view)));
}

impl Seat {
    fn recovery(&self, cx: &Context, now: Time) -> Result<Recovery, RecoveryError> {
        if self.leaving.is_wanted() {
            return Err(RecoveryError::Leaving);
        }
        if self.is_primary() && !planted!(OverridePrimary) {
            let number = self.view.number;
            return Err(RecoveryError::Primary { number });
        }
        let weight = self.view.member(cx.me).map_or(0, |member| member.weight);
        if weight == 0 {
            return Err(RecoveryError::NoVote);
        }
        let reachable = self.reachable(cx);
        let others = self
            .view
            .members
            .iter()
            .filter(|member| member.incarnation != cx.me);
        let others = others.map(|member| Abandoned {
            member: member.clone(),
            heard: now.since(cx.detector.last_heard(member.incarnation).unwrap_or(now)),
            here: reachable.contains(&member.incarnation),
            dead: self.engine.is_certified(member.incarnation),
        });
        Ok(Recovery {
            lineage: self.view.lineage,
            view: self.view.primary_id(),
            number: self.view.number,
            lost: now.since(self.nonprimary.since().unwrap_or(now)),
            quorum: self.quorum && self.engine.could_decide(&reachable),
            undecided: self.engine.is_bound(),
            weight,
            others: others.collect(),
        })
    }

    fn recover(&mut self, cx: &mut Context, now: Time) {
        let view = Arc::new(self.overriding(cx, now));
        let left_behind: Vec<_> = view
            .departed
            .iter()
            .map(|departure| departure.member.addr)
            .collect();
        self.install(cx, now, view, None);
        // Whoever of them is there looks for a primary anyway; it need not wait for its turn to ask.
        for addr in left_behind {
            self.here(cx, addr);
        }
        self.evaluate(cx, now);
    }

    /// The first view of the new lineage.
    fn overriding(&self, cx: &mut Context, now: Time) -> NodeView {
        let (members, others): (Vec<_>, Vec<_>) = self
            .view
            .members
            .iter()
            .cloned()
            .partition(|member| member.incarnation == cx.me);
        let overridden = match planted!(OverrideUnseen) {
            true => Cause::Left,
            false => Cause::Overridden {
                lineage: self.view.lineage,
                view: self.view.primary_id(),
            },
        };
        let departed = others.into_iter().map(|member| Departure {
            member,
            cause: overridden.clone(),
            accusers: Vec::new(),
        });
        let old = self.view.primary_id();
        let mut view = NodeView {
            lineage: founding::new_lineage(cx, now, Some(self.view.lineage)),
            id: NodeViewId::Primary {
                id: ViewId {
                    epoch: old.epoch.saturating_add(1),
                    counter: 1,
                },
            },
            number: number_after(cx, now, self.view.number),
            members,
            joined: Vec::new(),
            departed: departed.collect(),
            merged: Vec::new(),
            wire_level: self.view.wire_level,
        };
        if planted!(OverrideInLineage) {
            view.lineage = self.view.lineage;
            let id = check::next_id(old);
            view.id = NodeViewId::Primary { id };
        }
        view
    }
}

/// R5: above all that this process has seen, this number among it, and by the clock above what others may
/// have seen.
pub(super) fn number_after(cx: &Context, now: Time, number: u32) -> u32 {
    let seen = cx.past.as_ref().map_or(0, |past| past.number).max(number);
    let next = seen.saturating_add(1).min(check::MAX_NUMBER);
    next.max(founding::founding_number(cx, now))
}
