//! A slot that no member can decide, although a quorum is there.
//!
//! ```text
//!   view 1:4  a b c             a │ b c          b: a is gone; [b c] for 1:5 ──► c accepts it
//!                               a   c            b loses power: nobody learns whether it had decided that, nor that it is dead for good
//!                                                a and c hear a majority of 1:4, and each of them the other
//! ```
//! R1: what c accepted must be proposed unchanged, since b may have decided it. R3: that takes a quorum of
//! `[b c]`, which is half of it with b, or all of it. So a and c ask each other for ever, and must: b may
//! come back with view 1:5. They are as good as without a majority, so they should behave as such. The same
//! holds where the members of the accepted view went on elsewhere, as incarnations that never come back.
//!
//! A member that has accepted a view, and has heard less than a quorum of that view for `unreachable_after`,
//! is blocked. It counts as a member that hears no quorum:
//! - under `majority` its component agrees on a non-primary view ([`nonprimary`]). Applications see that
//!   there is no majority, `recover` is possible, and the component gives way to a primary lineage that it
//!   meets, as any such component does ([`merge`]);
//! - under `any` the component goes on as a lineage of its own ([`split`]).
//!
//! A member that went on in another lineage does not count as heard, whatever it says ([`merge`]). It is
//! enough that this node looks at what it has accepted itself: a leader has all members that it reaches
//! accept what blocks it.
//!
//! # Invariants
//! - *Nothing is decided by it.* A non-primary view is always safe, and the slot is led as before. Until
//!   another view of this or another lineage is installed, the slot may still be decided, also by members
//!   that count as without a quorum.
//! - *It ends with its cause*: when the slot is decided, or enough members of the accepted view are heard.
//! - *Nobody gives way to a blocked member*, nor to one that may be blocked soon. A member that has accepted
//!   a view promises nobody to stay.
//! - *An operator is told*: the missing members may have decided what was accepted, few as they are
//!   ([`crate::Recovery::may_fork`]).
//!
//! # When participants die
//! A member of the accepted view dies: nothing changes, or, with a proof, the rest may be a quorum of that
//! view. A member dies that only counted to the quorum of the last view: the others are without a quorum, and
//! stay as they are. A member that missed the others comes back: it is heard, and the slot is decided, or was
//! decided before.
//!
//! [`merge`]: crate::membership::partition::merge
//! [`nonprimary`]: crate::membership::partition::nonprimary
//! [`split`]: crate::membership::partition::split

use std::time::Duration;

use crate::Time;

/// How long this node has been blocked.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    /// Since when this node has accepted a view, knows of no decision, and has heard less than a quorum of
    /// the view's members.
    since: Option<Time>,
}

impl Standstill {
    /// Whether this node is blocked. `could_conclude`: whether the members that it hears could decide what it
    /// has accepted, if anything. Other members that are heard or missed meanwhile change nothing: paths that
    /// come and go must not put this off for ever.
    pub(crate) fn look(&mut self, now: Time, could_conclude: bool, patience: Duration) -> bool {
        if could_conclude || planted!(StandStill) {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        now.since(since) >= patience
    }

    /// This node did not run for so long.
    pub(crate) fn missed(&mut self, missed: Duration) {
        self.since = self.since.map(|since| since + missed);
    }
}
