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
//!   other, the lighter one gives way, the later founded one if they are equal (see [`meeting`]).
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
//!
//! [`meeting`]: crate::membership::seat::meeting

use crate::Time;
use crate::membership::seek::recovering::recover_anew;
use crate::membership::{Membership, Phase};
use crate::recovery::{Recovery, RecoveryError};

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
    pub(crate) fn recover_unasked(&mut self, now: Time) {
        let long = self.cx.config.profile.unreachable_after;
        if let Ok(shown) = self.recovery(now)
            && shown.lost >= long
        {
            // Nothing has changed since it was shown.
            let _ = self.recover(now, &shown);
        }
    }
}
