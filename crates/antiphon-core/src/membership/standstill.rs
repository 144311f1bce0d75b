//! A slot that nobody can decide, though a quorum is there.
//!
//! ```text
//!   view 1:4  a b c             a │ b c          b: a is gone; [b c] for 1:5 ──► c accepts it
//!                               a   c            b loses power: nobody learns whether it had decided that, nor that it is dead for good
//!                                                a and c hear a majority of 1:4, and each of them the other
//! ```
//! R1: what c accepted must be proposed unchanged, since b may have decided it. R3: it needs a quorum of `[b c]`, which is half of it with b, or all of it. So
//! a and c ask each other for ever, and are right to: b may come back with view 1:5. They are as good as without a majority, and as such they should behave. The same
//! holds where the members of the accepted view went on elsewhere, as incarnations that never come back.
//!
//! Whoever has accepted a view, and did not see it decided while it missed the same members for `unreachable_after`, counts as one that hears no
//! quorum:
//! - under `majority` its component agrees on a non-primary view ([`super::nonprimary`]): applications see that there is no majority, `recover` is
//!   possible, and it gives way to a primary lineage that it meets, as any such component does ([`super::lineage`]);
//! - under `any` the component goes on as a lineage of its own ([`super::separation`]).
//!
//! # Invariants
//! - *Nothing is decided by it.* A non-primary view is always safe, and the slot is led as before: it may be decided until another view of this or another
//!   lineage is installed, by those who count as without a quorum as well.
//! - *It ends with what it came from.* When the slot is decided, or another member is heard or missed, the time begins anew.
//!
//! If nobody is missing, this is no reason: then whoever leads gets all answers. (A view that admits more than it keeps could be blocked by its joiners; none is
//! proposed, [`super::wish`].)
//!
//! # When participants die
//! A member of the accepted view: nothing changes, or, with a proof, the rest may be a quorum of it. One that only counted to the quorum of the
//! last view: the others are without one, and stay as they are. Whoever missed the others comes back: it is heard, and the slot is decided or was.

use std::collections::BTreeSet;

use antiphon_wire::Incarnation;

use super::context::Context;
use super::seat::Seat;
use crate::Time;

impl Seat {
    /// Whether these members could decide the next view, and are not blocked.
    pub(crate) fn has_quorum(&mut self, cx: &Context, now: Time, reachable: &BTreeSet<Incarnation>) -> bool {
        !self.is_blocked(cx, now, reachable) && self.engine.could_decide(reachable)
    }

    /// Whether this node has accepted a view, and could not see it decided for long, always missing the same members.
    fn is_blocked(&mut self, cx: &Context, now: Time, reachable: &BTreeSet<Incarnation>) -> bool {
        let misses = || {
            let mut members = self.view.members.iter();
            members.any(|member| !reachable.contains(&member.incarnation))
        };
        if !self.engine.is_bound() || !misses() || planted!(StandStill) {
            self.bound = None;
            return false;
        }
        let same = |(_, before): &&(Time, BTreeSet<Incarnation>)| before == reachable;
        let since = match self.bound.as_ref().filter(same) {
            Some((since, _)) => *since,
            None => self.bound.insert((now, reachable.clone())).0,
        };
        now.since(since) >= cx.config.profile.unreachable_after
    }
}
