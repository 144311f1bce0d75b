//! Safe messages at the end of a view: no member delivers a cut with safe messages before every participant
//! holds it.
//!
//! ```text
//!  leader      FlushCut ─►                     ◄─ CutHeld        CutSafe ─►
//!  survivors              pull what they lack,           wait               deliver behind the notice, install
//!                         remember the decision
//! ```
//! If a safe message was delivered before the view ends, all of the view hold it, and every cut has it. If it
//! was not, a single survivor may hold it. The `Transitional` notice promises that the members it names
//! deliver the safe messages behind it, unless they crash (G25). Without another round the first member to
//! install would break that: it delivers, tells its client, and is gone or cut off. The next leader then
//! makes another cut without the message, as R14 allows if no member that is left has installed.
//!
//! So another round follows if any report says that there are safe messages that its sender has not delivered
//! (a decision says that too). A member that holds the cut remembers the decision as its **held cut**, says
//! so to the leader, and waits. The leader lets all deliver once *all* participants have said so. From the
//! first `CutHeld` on the decision is part of every report. A later leader that finds such a decision
//! completes it unchanged, the latest if there are several. As with votes in a slot (R1), a decision that may
//! have been delivered is decided again. The later leader waits in the same way, for all that are left. Once
//! a member has installed, all had said that they hold the cut. So a leader that completes an installed view
//! does not wait.
//!
//! Without safe messages there is no such round, and no additional message.
//!
//! # Which member dies when
//! - **The leader, before any member held the cut**: the next leader is free to decide otherwise. No member
//!   has delivered.
//! - **The leader, with some `CutHeld`**: the next leader reads the members that sent it, and completes that
//!   decision.
//! - **The leader, with some `CutSafe` out**: all survivors hold the cut and report it, or report the
//!   installed view.
//! - **A member that delivered, and all that heard `CutSafe`**: the same.
//! - **A participant, before `CutHeld`**: the next node view begins the flush again, without it. If it only
//!   hangs, the leader removes it when it stalls (R18). The decision, if any member holds it, is completed
//!   with the rest, and the view that follows is without it.
//! - **The only holder of a message of the cut**: no other member can hold the cut, so no member delivers it.
//!   The next leader decides from what is left.
//! - **A participant that is cut off**: it is in no later view of this incarnation, and starts over. For G25
//!   it has crashed.
//! - **A part that goes on apart** (policy `any`, another epoch): it cannot know what the participants
//!   elsewhere do, and they may never hold the cut. So it does not complete the cut, and its own notice names
//!   its own members. If a member elsewhere did deliver the cut, all participants held it, and so did the
//!   members of this part. So it is in every cut that they make, at the same places.

use antiphon_wire::group::{Decision, GroupMessage, Standing};
use antiphon_wire::{GroupViewId, Incarnation};

use super::{Around, Flow, Flush, Lead, Promise};

/// The latest decision of which a participant has said that it holds the cut, and the participant. If this
/// part of the cluster goes on apart, only decisions made since then count.
pub(super) fn cut_held_by<'a>(
    around: &Around<'_>,
    reports: impl Iterator<Item = (&'a Incarnation, &'a Standing)>,
) -> Option<(&'a Decision, Incarnation)> {
    let (mine, epoch) = (around.stream.id, around.node.id.epoch);
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

impl Flush {
    /// Whether the cut, which this member holds, may be delivered now.
    pub(super) fn may_deliver(&mut self, around: &Around<'_>) -> bool {
        let Flow::Catching(catch_up) = &mut self.flow else {
            return false;
        };
        if !catch_up.decision.safe || catch_up.safe || planted!(SafeCutUnconfirmed) {
            return true;
        }
        catch_up.pull_at = around.stall_at();
        if let Some(Promise { target, leader }) = self.promise
            && !std::mem::replace(&mut catch_up.said, true)
        {
            // G25: from here on every leader completes this decision.
            self.held_cut = Some(catch_up.decision.clone());
            let group = around.group;
            self.effects.send(leader, GroupMessage::CutHeld { group, target });
        }
        false
    }

    /// As the leader: a participant holds the cut.
    pub(super) fn handle_cut_held(&mut self, around: &Around<'_>, from: Incarnation, target: GroupViewId) {
        let Lead::Deciding {
            holding: Some(holding),
            stall_at,
            ..
        } = &mut self.lead
        else {
            return;
        };
        if !around.leads() || holding.target != target || !holding.waiting.remove(&from) {
            return;
        }
        *stall_at = around.stall_at();
        if holding.waiting.is_empty() {
            let group = around.group;
            for to in std::mem::take(&mut holding.participants) {
                self.effects.send(to, GroupMessage::CutSafe { group, target });
            }
        }
    }

    /// All participants hold the cut.
    pub(super) fn handle_cut_safe(&mut self, around: &Around<'_>, from: Incarnation, target: GroupViewId) {
        if self.promise != Some(Promise { target, leader: from }) {
            return;
        }
        if let Flow::Catching(catch_up) = &mut self.flow {
            catch_up.safe = true;
            self.try_install(around);
        }
    }
}
