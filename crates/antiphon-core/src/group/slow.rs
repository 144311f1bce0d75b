//! A member whose application has stopped reading is removed from the group, and no other member is.
//!
//! Credit makes the slowest reader the pace of a group. That is right while the reader reads. A reader that
//! has stopped would stop every sender for ever. So after [`crate::GroupOptions::slow_after`] it is removed,
//! with the cause `slow`.
//!
//! ```text
//!  sender that waits          the member's node                          the group's leader
//!  its position stands    ──► Overdue: does my application stand still?
//!  for slow_after             for slow_after by my own clock: last call
//!                             still nothing: Slow ──────────────────────► next flush: leaves, with its cause
//!                             Resync "slow: …"  ◄── cut, next view ─────  View, crashed and causes say it
//! ```
//!
//! # Which node decides
//! The judged member's own node: only that node knows whether its application reads. A sender sees only
//! acknowledgements of its own messages, and they may be lost or late. A sender therefore asks and never
//! accuses. If many senders ask, the member gives one answer. If a node does not even answer, that is the
//! detector's matter.
//!
//! # What counts
//! - A sender has a clock for each member. It runs while the sender's next message would not fit into its
//!   window if that member's position alone counted, or while that member has no room for an object of the
//!   sender's. The sender reads it a few times per `slow_after`. It starts over when the position moves, and
//!   goes on across views.
//! - The member's clock runs from the last message its application took, or from when there was one to take.
//!   Taking one message of *any* sender starts it over: a slow reader that reads is never removed. Time
//!   without a primary counts: an application can read then, too.
//! - The last call gives an application that was paused together with its node the time to be scheduled
//!   again. If the node was paused during the last call itself, the call is made again.
//! - `slow_after` is part of the group's terms: what happens to a reader must not depend on the sender. It is
//!   30 s in every profile, or members of different profiles could not meet in a group. The last call follows
//!   the profile.
//!
//! # One after the other
//! Many applications send and read in one loop. While such an application waits to send, because of a reader
//! that has stopped, it does not read either, and soon no application reads. So the leader waits until all
//! members that stand still have said so, and removes the member that has stood longest. The others are then
//! free to go on. They have until the next look and the next last call to do so. If really more than one has
//! stopped, they are removed one view after the other.
//!
//! # How it goes
//! As a leaver goes: the member takes part in the flush, delivers the cut, and supplies others with what it
//! holds. That needs its node, not its application. So a slow *leader* leads the flush that removes it, like
//! any leader that leaves. Then its application gets `Resync` behind all that it has not read, and nothing
//! after it. Messages that the node had accepted and not sent are told as not delivered when it is a member
//! again. The node asks for the group again once its application has read all (R21), so a member that never
//! reads again never comes back. The last member of a group stays: it holds up no other member.
//!
//! # Which member dies when
//! | which | when | then |
//! |---|---|---|
//! | the sender that waits | after asking | the member answers by its own clock; if it was the only sender that waited, no one waits any more |
//! | the member | any time | it crashed; nothing of this is needed |
//! | none, the application reads again | after its node has said so | the member is removed all the same, reads to the end, and comes back |
//! | the leader | before the flush has decided | the request is gone; senders ask again within a fraction of `slow_after` |
//! | the leader | after | the next leader completes the view, the cause is in the decision |

use std::collections::BTreeSet;

use antiphon_wire::group::GroupMessage;
use antiphon_wire::{GroupViewId, Incarnation};

use super::Context;
use super::log::charge;
use super::member::{Group, Phase};
use crate::Time;

/// How often a waiting sender looks at its readers in each `slow_after`.
const LOOKS: u32 = 8;

impl Group {
    /// Messages wait for credit: look, after a while, at the members that hold them up.
    pub(super) fn watch_readers(&mut self, now: Time) {
        let Some(slow_after) = self.options.slow_after else {
            return;
        };
        if let Phase::Member(membership) = &mut self.phase {
            let look_at = &mut membership.standstill.look_at;
            look_at.get_or_insert(now + slow_after / LOOKS);
        }
    }

    pub(super) fn slow_timeout(&mut self, ctx: &mut Context<'_>) {
        if ctx.suspended {
            return;
        }
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let due = |at: Option<Time>| at.is_some_and(|at| at <= ctx.now);
        let standstill = &mut membership.standstill;
        let look = due(standstill.look_at);
        if look {
            standstill.look_at = None;
        }
        let called = standstill.last_call.filter(|(at, _)| due(Some(*at)));
        if let Some((at, waits)) = called {
            // If a call ends this late, the application did not hear it: the node stood still, and its
            // application with it.
            let again = ctx.now.since(at) >= ctx.profile.suspect_after / 4;
            standstill.last_call = again.then_some((ctx.now + ctx.profile.suspect_after, waits));
            if !again {
                self.give_up_reading(ctx, waits);
            }
        }
        if look {
            self.look_at_readers(ctx);
        }
    }

    /// As a sender: asks the members that have held it up for all of `slow_after`.
    fn look_at_readers(&mut self, ctx: &mut Context<'_>) {
        let Some(slow_after) = self.options.slow_after else {
            return;
        };
        let window = self.window();
        let open = self.may_send();
        let message = self.queue.front_charge();
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        // The record of an object overtakes messages, and they overtake it: the smaller one goes first.
        let record = membership.objects.front().map(|issue| charge(&issue.block));
        let front = message.into_iter().chain(record).min();
        let without_room: BTreeSet<_> = membership.objects.without_room().collect();
        let standstill = &mut membership.standstill;
        if front.is_none() && without_room.is_empty() {
            standstill.clocks.clear();
            return;
        }
        standstill.look_at = Some(ctx.now + slow_after / LOOKS);
        // In a flush nothing can be said; what was known stays known.
        if !open {
            return;
        }
        let (group, view) = (membership.id, membership.stream.id);
        for member in membership.stream.others() {
            let position = membership.stream.consumed_by(member).unwrap_or(0);
            let admits = |charge| self.credit.admits_from(position, charge, window);
            if front.is_none_or(admits) && !without_room.contains(&member) {
                if !planted!(CallReaderSlow) {
                    standstill.clocks.remove(&member);
                }
                continue;
            }
            let clock = standstill.clocks.entry(member).or_insert((position, ctx.now));
            if clock.0 != position && !planted!(CallReaderSlow) {
                *clock = (position, ctx.now);
            }
            if ctx.now.since(clock.1) >= slow_after {
                ctx.send(member, GroupMessage::Overdue { group, view });
            }
        }
    }

    /// As a reader: a sender has waited for this member's application for all of `slow_after`.
    pub(super) fn handle_overdue(&mut self, ctx: &mut Context<'_>, from: Incarnation, view: GroupViewId) {
        let (Some(slow_after), None) = (self.options.slow_after, self.leaving) else {
            return;
        };
        let stands = self.backlog.stands_for(ctx.now) >= slow_after;
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let known = membership.stream.id == view && membership.stream.rank(from).is_some();
        if known && planted!(CallReaderSlow) {
            return self.give_up_reading(ctx, from);
        }
        if known && stands && !planted!(KeepSlowMember) {
            let at = ctx.now + ctx.profile.suspect_after;
            membership.standstill.last_call.get_or_insert((at, from));
        }
    }

    /// The application took nothing at the last call either.
    fn give_up_reading(&mut self, ctx: &mut Context<'_>, waits: Incarnation) {
        let stands = self.backlog.stands_for(ctx.now);
        let Phase::Member(membership) = &self.phase else {
            return;
        };
        if self.leaving.is_some() {
            return;
        }
        let cause = format!(
            "slow: its application took no message for {:.1} s while {} waited to send",
            stands.as_secs_f64(),
            ctx.name(waits)
        );
        let (group, view) = (membership.id, membership.stream.id);
        if let Some(leader) = membership.leader(ctx) {
            let for_us = u64::try_from(stands.as_micros()).unwrap_or(u64::MAX);
            let slow = GroupMessage::Slow {
                group,
                view,
                for_us,
                cause,
            };
            ctx.send(leader, slow);
        }
    }
}
