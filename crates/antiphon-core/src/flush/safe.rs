//! Safe messages at the end of a view: nobody delivers a cut with safe messages before every participant
//! holds it.
//!
//! ```text
//!  leader      FlushCut ─►                     ◄─ CutHeld        CutSafe ─►
//!  survivors              pull what they lack,           wait               deliver behind the notice, install
//!                         remember the decision
//! ```
//! A safe message that was delivered before the view ends is held by all of the view: whatever cut is made,
//! it is in it. One that was not may be held by a single survivor. The `Transitional` notice promises that
//! those it names deliver what is safe behind it, unless they crash (G25). Without another round the first to
//! install would break that: it delivers, tells its client, and is gone or cut off, and the next leader makes
//! another cut without the message, as R14 allows where nobody left has installed.
//!
//! So, if any report says that there are safe messages that its sender has not delivered (a decision says
//! that too), a member that holds the cut remembers the decision as its **held cut**, says so to the leader,
//! and waits. The leader lets all deliver once *all* participants have said so. From the first `CutHeld` on
//! the decision is part of every report, and a later leader that finds one completes it unchanged, the latest
//! if there are several: as with votes in a slot (R1), whatever may have been delivered is what is decided
//! again. It waits for all that are left in the same way. Once someone has installed, everyone had said that
//! it holds the cut; so whoever completes an installed view does not wait.
//!
//! Without safe messages there is no such round, and no message more.
//!
//! # Who dies when
//! - **The leader, before anyone held the cut**: the next leader is free to decide otherwise. Nobody has
//!   delivered.
//! - **The leader, with some `CutHeld`**: the next one reads those who sent it, and completes that decision.
//! - **The leader, with some `CutSafe` out**: all survivors hold the cut and report it, or report the
//!   installed view.
//! - **One that delivered, and all that heard `CutSafe`**: the same.
//! - **A participant, before `CutHeld`**: the next node view begins the flush again, without it. One that
//!   only hangs is removed by the leader when it stalls (R18), and the decision, if anyone holds it, is
//!   completed with the rest; the view that follows is without it.
//! - **The only holder of a message of the cut**: nobody else can hold the cut, so nobody delivers it; the
//!   next leader decides from what is left.
//! - **A participant that is cut off**: it is in no later view of this incarnation, and starts over: for G25
//!   it has crashed.
//! - **A part that goes on apart** (policy `any`, another epoch): it cannot know what the participants
//!   elsewhere do, who may never hold the cut. So it does not complete it, and its own notice names its own
//!   members. If somebody elsewhere did deliver it, all participants held it, these as well: it is in every
//!   cut that they make, at the same places.

use antiphon_wire::group::{Decision, GroupMessage, Standing};
use antiphon_wire::{GroupViewId, Incarnation};

use super::{Flow, Lead, Promise};
use crate::group::Context;
use crate::group::member::{Group, Membership, Phase};

impl Membership {
    /// The latest decision, made since this part of the cluster goes on apart if it does, of which a
    /// participant has said that it holds the cut, and who.
    pub(super) fn cut_held_by<'a>(
        &self,
        ctx: &Context<'_>,
        reports: impl Iterator<Item = (&'a Incarnation, &'a Standing)>,
    ) -> Option<(&'a Decision, Incarnation)> {
        let (mine, epoch) = (self.stream.id, ctx.node.id.epoch);
        let held = reports.filter_map(|(who, standing)| match standing {
            Standing::At {
                held_cut: Some(decision),
                view,
                ..
            } if *view == mine && decision.from == mine && decision.id.node.epoch == epoch => {
                Some((&**decision, *who))
            }
            _ => None,
        });
        held.max_by_key(|(decision, _)| decision.id)
    }

    /// Whether the cut, which this member holds, may be delivered now.
    pub(super) fn may_deliver(&mut self, ctx: &mut Context<'_>) -> bool {
        let (group, promise) = (self.id, self.promise);
        let Flow::Catching(catch_up) = &mut self.flow else {
            return false;
        };
        if !catch_up.decision.safe || catch_up.safe || planted!(SafeCutUnconfirmed) {
            return true;
        }
        catch_up.pull_at = ctx.now + ctx.profile.flush_stall;
        if let Some(Promise { target, leader }) = promise
            && !std::mem::replace(&mut catch_up.said, true)
        {
            // G25: from here on this decision is completed by whoever leads.
            self.held_cut = Some(catch_up.decision.clone());
            ctx.send(leader, GroupMessage::CutHeld { group, target });
        }
        false
    }
}

impl Group {
    /// As the flush's leader: a participant holds the cut.
    pub(crate) fn handle_cut_held(&mut self, ctx: &mut Context<'_>, from: Incarnation, target: GroupViewId) {
        let stall_at = ctx.now + ctx.profile.flush_stall;
        let Some(membership) = self.leading(ctx) else {
            return;
        };
        let group = membership.id;
        let Lead::Deciding {
            holding: Some(holding),
            stall_at: stall,
            ..
        } = &mut membership.lead
        else {
            return;
        };
        if holding.target != target || !holding.waiting.remove(&from) {
            return;
        }
        *stall = stall_at;
        if holding.waiting.is_empty() {
            for to in std::mem::take(&mut holding.participants) {
                ctx.send(to, GroupMessage::CutSafe { group, target });
            }
        }
    }

    /// All participants hold the cut.
    pub(crate) fn handle_cut_safe(&mut self, ctx: &mut Context<'_>, from: Incarnation, target: GroupViewId) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if membership.promise != Some(Promise { target, leader: from }) {
            return;
        }
        if let Flow::Catching(catch_up) = &mut membership.flow {
            catch_up.safe = true;
            self.try_install(ctx);
        }
    }
}
