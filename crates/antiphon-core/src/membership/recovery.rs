//! The operator's way out (R11, G38): by an operator's word one survivor goes on alone, as a new lineage.
//!
//! ```text
//!   last primary view: a b c d e          a, b and c lost power for good, which proves nothing; d and e wait, for ever
//!
//!   operator at d:  what would it mean? ──► Recovery      the view, who is lost, who is heard
//!                   do it, for that view ──► d: {d}, view 2:1 of a new lineage, departed: a b c e, all `Overridden`
//!                                            │ Here, a primary of another lineage
//!   e: without a primary, it gives way (R6) ◄┘ and joins d as a fresh incarnation; new nodes at a, b, c join d
//! ```
//! No message of the protocol leads here, and no timeout does. Only [`Membership::recover`] does, and a
//! driver calls it only for a person. The word is no vote and no proof. It declares that what the others had,
//! and d has not, is given up.
//!
//! # Invariants
//!
//! - *A new lineage.* The old lineage gets no view that its members did not decide. If other members of it
//!   are alive after all, nobody tells them that a majority had voted. Its slots get no more votes of d, and
//!   a silent voter is always safe.
//! - *The epoch rises, the counter begins at 1.* So the ids of d's views go on rising in its one incarnation.
//!   Groups go on where they stopped, by the flush that any view with departures begins; they lose nothing
//!   that d holds. And each id shows that the lineage was recovered.
//! - *It is seen.* The first view names all members left behind, with the lineage and the view that were
//!   overridden. Every member that joins has the epoch in its ids.
//! - *A recovered lineage is no senior one.* When it meets a primary view of the lineage that it left, or of
//!   any other lineage, the lighter one gives way. If they are equal, the one founded later does (see
//!   [`merge`]).
//!
//! That only an operator's word leads here is for the simulator to judge (`check/app/overrides`, G38).
//!
//! # When…
//!
//! - *d dies before it goes on*: nothing has happened. *After it, and alone*: the new lineage ended with d.
//!   An operator may recover from e, whether e has heard of d or not. A node that gave way to d and was not
//!   admitted looks for a primary, and still has what it had. When no primary has answered for
//!   `unreachable_after`, the node may be recovered as what it was, a member of its last primary view, in its
//!   fresh incarnation.
//! - *e is cut off meanwhile*: it waits, and gives way when it hears of d.
//! - *two operators recover from d and from e*: there are two clusters, until they meet. Then one gives way,
//!   and what it did since then is lost.
//! - *a, b and c were cut off and not lost*: they are the primary, and d is a second one. When they meet, the
//!   lighter one gives way. That is why the decision takes a person who knows.
//! - *a majority is heard again after the operator has looked*: d refuses, and the operator looks again. If
//!   the operator was shown that, the word counts as long as no primary view is installed here. The old
//!   lineage may decide a view without d; then the case before this one holds, until the two meet.
//!
//! [`merge`]: crate::membership::partition::merge

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

    /// Goes on alone, with what the operator was shown.
    pub(crate) fn recover(&mut self, now: Time, shown: &Recovery) -> Result<(), RecoveryError> {
        self.cx.detector.awake(now);
        let present = self.recovery(now)?;
        if (present.lineage, present.view) != (shown.lineage, shown.view)
            || present.warns_of_more(shown.quorum, shown.may_fork())
        {
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

    /// A planted mistake: a long wait is taken for an operator's word.
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
