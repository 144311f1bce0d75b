//! Two lineages of one cluster meet, for example two components under the policy `any`. The junior one gives
//! way; the two never both do.
//!
//! ```text
//!   x, of the junior lineage              y, of the senior one
//!   Yield(standing, nonce) ─────────────► is it the senior, can it decide, has it room for x, and does it give way to nobody?
//!                     ◄── Stay(nonce) ───   then it stays for a while, whatever it meets
//!   soon enough, and still the junior:
//!   Dissolve to its lineage, start over ──► Join
//! ```
//! Weight tells first which lineage is the junior one, so that fewer nodes lose what they did. But weights
//! change while messages are on their way. Each of two lineages could find the other one the heavier, and
//! both would give way, to nobody; and under the policy `majority` no node of them would ever found again. So
//! a member that would give way asks first, and the member that it asks promises to stay, if it hears a
//! quorum.
//!
//! # Invariants
//! - *One side stays.* When x starts over, y is a member of the other lineage. It gives way to nobody for at
//!   least half as long as its promise lasts, since x takes an answer only within half of that time since it
//!   asked. A member that has asked promises nothing until its question is void, so promises make no circle.
//! - *Nobody is told to go.* The Dissolve of a member that goes tells the others where to ask. Each member
//!   gives way by a promise that it was given itself.
//! - *Nobody comes back.* A node that gave way does not join the lineage that it left for a while: the other
//!   members of that lineage are about to give way too.
//!
//! That members had stayed in one of two lineages that met is for the simulator to judge
//! (`check/inside/components`).
//!
//! # When…
//! - *y dies after its promise*: its lineage goes on without it, if it has other members; x finds them at the
//!   addresses where it asks;
//! - *x dies*: the other members of its lineage meet the other lineage by themselves;
//! - *the two are cut apart again at that moment*: x seeks, and under `any` after a while goes on alone
//!   ([`seek`]), as a component of one;
//! - *there is no room for x in the other lineage, or its name is taken there*: no member promises anything,
//!   and x stays where it is, as a component with the others that stay. If this comes to be so between the
//!   promise and the join, x is refused until (under `any`) it goes on alone;
//! - *x has no primary and wants to leave*: it just goes;
//! - *three lineages meet*: a member that has asked a third lineage promises nothing. The junior lineage asks
//!   again, and finds fewer.
//!
//! [`seek`]: crate::membership::seek

use std::cmp::Ordering;
use std::net::SocketAddr;

use antiphon_wire::Incarnation;
use antiphon_wire::membership::{Discovery, NodeRecord, Standing};

use crate::Time;
use crate::membership::change::joiners;
use crate::membership::change::merging::gives_way;
use crate::membership::change::merging::seniority;
use crate::membership::context::Context;
use crate::membership::seat::Seat;

impl Seat {
    /// A member speaks as a member of another lineage: under `any` its component went on as that lineage,
    /// otherwise an operator had the member go on. It votes here no more.
    pub(crate) fn went_apart(&self, cx: &mut Context, who: Incarnation) {
        if self.installed.view.contains(who) {
            cx.detector.set_apart(who, true);
        }
    }

    /// This node meets another lineage of this cluster.
    pub(crate) fn meet(&mut self, cx: &mut Context, now: Time, other: Standing, addr: SocketAddr) {
        let mine = self.standing(cx);
        if other.lineage == mine.lineage || self.is_foreign(cx, &other) {
            return;
        }
        if planted!(BothGiveWay) && other.primary {
            return self.give_way(cx, now, other, addr, mine.primary);
        }
        if !self.yields_to(cx, now, &other) {
            if mine.primary {
                self.here(cx, addr);
            }
            return;
        }
        if self.leaving.is_wanted() {
            if !mine.primary && !cx.any() {
                self.give_way(cx, now, other, addr, false);
            }
            return;
        }
        let pause = cx.config.profile.heartbeat / 2;
        let lately = self.merging.asked.is_some_and(|(_, at)| now.since(at) < pause);
        if self.stays(now) || lately {
            return;
        }
        let nonce = cx.random.next_u64();
        self.merging.asked = Some((nonce, now));
        let message = Discovery::Yield {
            node: cx.record(),
            standing: mine,
            nonce,
        };
        cx.discover(addr, message);
    }

    /// Whether this node would give way: together with its lineage, or by itself if it has no primary.
    fn yields_to(&mut self, cx: &Context, now: Time, other: &Standing) -> bool {
        let mine = self.standing(cx);
        if mine.primary || cx.any() || planted!(GiveWayToLighter) || !gives_way(&mine, other) {
            return gives_way(&mine, other);
        }
        if seniority(&mine, other) == Ordering::Less {
            return true;
        }
        // R11: an operator's word gives up the view that was shown to the operator, and what came before it.
        // If there is a later view, its members have gone on without the recovered node, and nobody told the
        // operator. They wait for each other.
        let given_up = other
            .overrides
            .is_some_and(|overridden| overridden.lineage == mine.lineage && overridden.view >= mine.view);
        let patience = cx.config.profile.unreachable_after;
        !self.installed.quorum && (given_up || self.merging.has_waited(now, patience))
    }

    /// What holds when a member of a primary view gives way: it was given a promise that still counts, and has
    /// given none itself.
    pub(super) fn assert_promised(&self, cx: &Context, now: Time, into: &Standing) {
        assert!(
            self.waits(cx, now) && !self.stays(now) || planted!(),
            "R6: {:?} gives way to {:?} at {now:?}, and has asked and promised {:?}",
            cx.me,
            into.lineage,
            self.merging
        );
    }

    fn stays(&self, now: Time) -> bool {
        self.merging.stays_until.is_some_and(|until| now < until)
    }

    /// Whether an answer to this node's question would still count.
    fn waits(&self, cx: &Context, now: Time) -> bool {
        let void = cx.config.profile.suspect_after / 2;
        self.merging.asked.is_some_and(|(_, at)| now.since(at) <= void)
    }

    /// A member of another lineage asks whether it may give way to this one.
    pub(crate) fn on_yield(
        &mut self,
        cx: &mut Context,
        now: Time,
        theirs: Standing,
        node: &NodeRecord,
        nonce: u64,
    ) {
        let (mine, addr) = (self.standing(cx), node.addr);
        if theirs.lineage == mine.lineage || addr == cx.config.addr {
            return;
        }
        if !gives_way(&theirs, &mine) {
            return self.meet(cx, now, theirs, addr);
        }
        let refused = joiners::refusal(&cx.config, &self.installed.view, node, |member| {
            member == cx.me || cx.detector.hears_well(now, member)
        });
        // Until the view that this node has accepted is decided, it may turn out that no quorum can decide
        // it.
        let may_be_blocked = self.installed.engine.is_bound();
        if refused.is_some()
            || !self.installed.quorum
            || may_be_blocked
            || self.leaving.is_wanted()
            || self.waits(cx, now)
        {
            return;
        }
        self.merging.stays_until = Some(now + cx.config.profile.suspect_after);
        let message = Discovery::Stay {
            addr: cx.config.addr,
            standing: mine,
            nonce,
        };
        cx.discover(addr, message);
    }

    /// A member of the other lineage promises to stay.
    pub(crate) fn on_stay(
        &mut self,
        cx: &mut Context,
        now: Time,
        theirs: Standing,
        addr: SocketAddr,
        nonce: u64,
    ) {
        let mine = self.standing(cx);
        let asked = self.merging.asked.is_some_and(|(asked, _)| asked == nonce);
        if theirs.lineage == mine.lineage || !asked || !self.waits(cx, now) || self.stays(now) {
            return;
        }
        if self.yields_to(cx, now, &theirs) {
            self.give_way(cx, now, theirs, addr, mine.primary);
        }
    }
}
