//! Direct messages: from one member of a group to one other.
//!
//! ```text
//!  sender                                            receiver
//!  tell ─► log of the pair ── Tell: view, first, payloads ──► this view, before my flush report? in order
//!   ▲          │  ◄──────────── TellAck: heard, consumed ──── ─► Told ─► application ─► told_consumed
//!   │          └─► TellReceipts: Delivered
//!   └─ TellWritable: there is credit again
//! ```
//! Each ordered pair of members has a log of its own, with numbers from 1. A direct message goes out with the
//! frames of the same batch, and never by chain or multicast. [`Outgoing`] is the sender's side of a pair,
//! [`Incoming`] the receiver's. [`Untaken`] is what the receiver's application was given and has not taken.
//! No pair waits for another: a receiver that is slow or dead delays its own messages alone.
//!
//! # Invariants
//! - **A message is taken in the view that its `Tell` names, and in no other.** If a receiver has not
//!   installed that view yet, it holds the record until it has. A record of an earlier view is dropped. From
//!   its flush report on a receiver takes nothing more in the view that ends (R13), so what it has reported
//!   is all that it ever took there.
//! - **Numbers of a pair go on across views**, as long as both members go along. Messages that the receiver
//!   had not taken when a view ended are sent again in the next view, with the same numbers. They are then
//!   messages of that view. The receiver knows by the number what it has taken already.
//! - A member that joins, or joins again, begins new pairs.
//! - `Tell` and `TellAck` name the member that they are for. A copy that comes to another one is dropped.
//! - **At most [`TELL_CREDIT_BYTES`] of a pair are accepted and not taken by the receiver's application**,
//!   each message with a charge of [`TELL_OVERHEAD`] bytes. More is refused as `Full`. So every accepted
//!   message may be sent at once, and its receiver has room for it. Of all senders together a receiver keeps
//!   no more than a group's members may send. Beyond that (unread messages of members that are gone) it drops
//!   what comes, and the sender sends it again later.
//! # What the sender learns
//! Each message has one receipt. `Delivered`: the receiver has taken the message. It hands it to its
//! application, unless the receiver crashes first or starts over, or its application has asked to leave.
//!
//! When the receiver is not in the next view, the receipt has the cause. If the receiver had reported to the
//! flush, the decision on that view says how far it had come: messages before that are `Delivered`, the rest
//! `NotDelivered`. If it had not reported, the messages that it had acknowledged are `Delivered`, those never
//! sent `NotDelivered`, the rest `Unknown`. When this member's own membership ends, its application is told
//! the same, with [`Parting::Ended`].
//!
//! # When members die
//! | member | when | then |
//! |---|---|---|
//! | the sender | any time | messages that the receiver has taken are delivered, in the view they were sent in; no member has the rest |
//! | the receiver | before its flush report | unacknowledged messages are `Unknown` |
//! | the receiver | after it, the leader decides with its report | the next view still has the receiver; the view after that is without it, and the same holds then |
//! | a receiver that leaves | after its report | the decision has what it took: it takes no more |
//! | the leader | before it decides | the next leader reads all again: a member's reports of one view are the same, however often it is asked |
//! | the leader | after a member has installed its view | its decision is completed by all, and has what the leavers took |
//! | a receiver that left in order, and all that knew the decision | later | no survivor knows how far it had come: `Unknown` |
//! | the primary is lost | any time | nothing is sent and nothing taken (R17); both go on in the next view, or start over |
//!
//! # What a message costs
//! One copy into the open block of its pair, one into the frame. The receiver says how far it is when it has
//! taken a quarter of the credit, when its application has taken that much, or when a message is missing.
//! Otherwise it says so after a short while, for all pairs together.
//!
//! If it says nothing, the first block that it has not taken is sent again. If it then says that it has it,
//! the rest of what was sent before may be lost too, as in a connection that broke: that follows, 128 KiB for
//! each answer.
//!
//! [`Incoming`]: self::incoming::Incoming
//! [`Parting::Ended`]: crate::Parting::Ended

mod incoming;
mod limits;
mod outgoing;
pub(crate) mod state;
mod untaken;

use antiphon_wire::group::GroupData;
use antiphon_wire::{Block, GroupViewId, Incarnation};

use self::limits::{MAX_NUMBER, charge};
pub use self::limits::{MAX_TELL_BYTES, TELL_CREDIT_BYTES, TELL_OVERHEAD};
use self::outgoing::Outgoing;
pub(crate) use self::state::{Direct, bound, is_possible};
pub(crate) use self::untaken::Untaken;
use super::member::{Group, Joined, Phase};
use super::{Context, Effect};
use crate::group::direct::outgoing::Receipts;
use crate::{Class, GroupEvent, Messages, SendError, TellError, Ticket, Time};

impl Group {
    /// Accepts a message for one member.
    pub(super) fn tell(
        &mut self,
        ctx: &Context<'_>,
        to: Incarnation,
        payload: &[u8],
    ) -> Result<Ticket, TellError> {
        if payload.len() > MAX_TELL_BYTES {
            return Err(TellError::TooLarge {
                limit: MAX_TELL_BYTES,
            });
        }
        self.check_membership(ctx).map_err(|error| match error {
            SendError::NotPrimary => TellError::NotPrimary,
            SendError::NotMember => TellError::NotMember,
            _ => TellError::NoSuchGroup,
        })?;
        let Phase::Member(membership) = &mut self.phase else {
            return Err(TellError::NotMember);
        };
        if to == ctx.me || membership.stream.rank(to).is_none() {
            return Err(TellError::NoSuchMember);
        }
        let pairs = &mut membership.direct.outgoing;
        let pair = pairs.entry(to).or_insert_with(|| Outgoing::new(self.tells));
        let ticket = pair.accept(payload).ok_or(TellError::Full)?;
        self.tells += 1;
        Ok(ticket)
    }

    /// The application has taken so many more direct messages of this sender.
    pub(super) fn told_consumed(&mut self, ctx: &mut Context<'_>, from: Incarnation, messages: u64) {
        let taken = self.untaken.consume(from, messages);
        if let Phase::Member(membership) = &mut self.phase
            && let Some(pair) = membership.direct.incoming.get_mut(&from)
        {
            pair.consume(ctx.now, ctx.profile, taken);
        }
    }

    /// A record about direct messages. Gives it back if it is about something else, or of a view that this
    /// member will have soon.
    pub(super) fn handle_direct(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        record: GroupData,
    ) -> Option<GroupData> {
        let (view, to) = match &record {
            GroupData::Tell { view, to, .. } | GroupData::TellAck { view, to, .. } => (*view, *to),
            _ => return Some(record),
        };
        let Phase::Member(membership) = &mut self.phase else {
            return None;
        };
        let mine = membership.stream.id;
        let any_view = planted!(TellInAnyView) && matches!(record, GroupData::Tell { .. });
        // A frame may come to members that it was not sent to. Its direct messages are then not for them.
        if to != ctx.me && !planted!(TakeTellsOfOthers) {
            return None;
        }
        if view > mine && !any_view {
            return Some(record);
        }
        if view < mine && !any_view || from == ctx.me || membership.stream.rank(from).is_none() {
            return None;
        }
        match record {
            GroupData::Tell { first, messages, .. } => self.take_tell(ctx, from, view, first, messages),
            GroupData::TellAck {
                heard,
                until,
                consumed,
                ..
            } => {
                let pair = membership.direct.outgoing.get_mut(&from)?;
                match pair.ack(ctx.now, ctx.profile, heard, until, consumed) {
                    Some(receipts) => self.tell_receipts(ctx, receipts.map(|receipts| (from, receipts))),
                    None => ctx.nonsense(),
                }
            }
            _ => {}
        }
        None
    }

    fn take_tell(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        view: GroupViewId,
        first: u64,
        block: Block,
    ) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        // R13: what this member has reported is all that it takes in this view.
        if !membership.flush.is_open() && !planted!(TellAfterWedge) {
            return;
        }
        let plain = block.is_empty() || block.is_messages() && !block.is_scoped();
        if !plain || !(1..MAX_NUMBER).contains(&first) {
            return ctx.nonsense();
        }
        let room = self.untaken.room(from);
        let pair = membership.direct.incoming.entry(from).or_default();
        let taken = pair.take(ctx.now, ctx.profile, first, block, room);
        for (first, block) in taken {
            self.untaken.given(from, block.count(), charge(&block));
            let messages = Messages {
                view,
                sender: from,
                first,
                block,
                ticket: None,
            };
            // G44: in the view it was sent in, in the order of the pair, once.
            self.event(ctx, GroupEvent::Told(messages));
        }
    }

    /// Tells the application what became of its direct messages.
    pub(crate) fn tell_receipts(
        &mut self,
        ctx: &mut Context<'_>,
        receipts: impl IntoIterator<Item = (Incarnation, Receipts)>,
    ) {
        for (
            to,
            Receipts {
                first,
                count,
                outcome,
            },
        ) in receipts
        {
            let event = GroupEvent::TellReceipts {
                to,
                first,
                count,
                outcome,
            };
            self.event(ctx, event);
        }
    }

    /// Members that are not in the next view, or not without interruption, have no pairs any more.
    pub(crate) fn end_pairs_of(&mut self, stays: impl Fn(Incarnation) -> bool) {
        self.untaken.end(|from| !stays(from));
    }

    /// This membership is over: no member will report what becomes of the messages that are under way.
    pub(crate) fn end_direct(&mut self, ctx: &mut Context<'_>) {
        self.untaken.end(|_| true);
        if let Phase::Member(membership) = &mut self.phase {
            let receipts = membership.direct.end();
            self.tell_receipts(ctx, receipts);
        }
    }

    /// Tells the application to which members it may send more again.
    pub(super) fn tell_writable(&mut self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        let pairs = membership.direct.outgoing.iter_mut();
        let writable: Vec<_> = pairs
            .filter_map(|(to, pair)| pair.writable().then_some(*to))
            .collect();
        for to in writable {
            self.event(ctx, GroupEvent::TellWritable { to });
        }
    }
}

impl Joined {
    /// Packs what is new for each receiver, and tells each sender how far this member is.
    pub(super) fn pack_direct(&mut self, ctx: &mut Context<'_>) {
        let (group, view) = (self.id, self.stream.id);
        let mut say = |to: Incarnation, class: Class, records: Vec<GroupData>| {
            ctx.effects.push_back(Effect::Data {
                to: vec![to],
                class,
                records,
            });
        };
        for (to, pair) in &mut self.direct.outgoing {
            for (first, messages) in pair.pack(ctx.now, ctx.profile) {
                let class = if messages.is_empty() {
                    Class::Control
                } else {
                    Class::Bulk
                };
                let tell = GroupData::Tell {
                    group,
                    view,
                    to: *to,
                    first,
                    messages,
                };
                say(*to, class, vec![tell]);
            }
        }
        for (from, pair) in &mut self.direct.incoming {
            if let Some((heard, until, consumed)) = pair.poll_ack() {
                let ack = GroupData::TellAck {
                    group,
                    view,
                    to: *from,
                    heard,
                    until,
                    consumed,
                };
                say(*from, Class::Control, vec![ack]);
            }
        }
    }

    /// Sends again messages for which no answer came, and answers.
    pub(super) fn direct_timeout(&mut self, now: Time) {
        for pair in self.direct.outgoing.values_mut() {
            pair.timeout(now);
        }
        for pair in self.direct.incoming.values_mut() {
            pair.timeout(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Profile;
    use crate::group::direct::incoming::Incoming;
    use crate::group::direct::limits::{MAX_AGAIN_BYTES, patience};

    fn first(sent: &[(u64, Block)]) -> Vec<u64> {
        sent.iter().map(|(first, _)| *first).collect()
    }

    #[test]
    fn what_is_missing_is_sent_again_once_however_often_the_receiver_asks() {
        let (now, profile) = (Time::ZERO, Profile::lan());
        let mut pair = Outgoing::new(0);
        for number in 1..=3 {
            pair.accept(b"told");
            assert_eq!(first(&pair.pack(now, &profile)), [number]);
        }
        for expected in [&[1, 2][..], &[], &[]] {
            assert_eq!(pair.ack(now, &profile, 1, 3, 1), Some(None));
            assert_eq!(first(&pair.pack(now, &profile)), expected);
        }
        // A gap that begins at another place is another gap.
        assert!(
            pair.ack(now, &profile, 2, 3, 1)
                .is_some_and(|news| news.is_some())
        );
        assert_eq!(first(&pair.pack(now, &profile)), [2]);
        // If nothing comes of it, the first missing message is sent again in time.
        let later = now + patience(&profile, 0);
        pair.timeout(later);
        assert_eq!(first(&pair.pack(later, &profile)), [2]);
    }

    /// So many blocks of so many messages of so many bytes are lost.
    fn lose_a_tail(blocks: u64, messages: u64, bytes: usize) {
        let (mut now, profile) = (Time::ZERO, Profile::lan());
        let (mut sender, mut receiver) = (Outgoing::new(0), Incoming::default());
        for _ in 0..blocks {
            (0..messages).for_each(|_| assert!(sender.accept(&vec![7; bytes]).is_some()));
            assert_eq!(sender.pack(now, &profile).len(), 1, "and it is lost");
        }
        let (mut timeouts, mut again) = (0, Vec::new());
        while !sender.is_heard() {
            now = now + Duration::from_millis(1);
            timeouts += usize::from(sender.next_timeout().is_some_and(|at| at <= now));
            sender.timeout(now);
            let sent = sender.pack(now, &profile);
            let charged: usize = sent.iter().map(|(_, block)| charge(block)).sum();
            assert!(sent.len() <= 1 || charged <= MAX_AGAIN_BYTES, "{charged} at once");
            again.extend(first(&sent));
            for (first, block) in sent {
                receiver.take(now, &profile, first, block, TELL_CREDIT_BYTES);
            }
            receiver.timeout(now);
            if let Some((heard, until, consumed)) = receiver.poll_ack() {
                sender.ack(now, &profile, heard, until, consumed);
            }
        }
        assert_eq!(timeouts, 1);
        assert!(
            again
                .into_iter()
                .eq((0..blocks).map(|block| 1 + block * messages))
        );
    }

    #[test]
    fn a_lost_tail_comes_again_after_one_timeout_each_block_once_and_not_all_at_once() {
        lose_a_tail(100, 1, 5000);
        // Each of these blocks is charged with more than is sent again at once.
        lose_a_tail(5, 3000, 1);
    }

    #[test]
    fn what_is_sent_again_is_not_sent_once_more_when_a_part_of_it_has_come() {
        let (now, profile) = (Time::ZERO, Profile::lan());
        let mut pair = Outgoing::new(0);
        for _ in 1..=4 {
            pair.accept(b"told");
            pair.pack(now, &profile);
        }
        let later = now + patience(&profile, 0);
        pair.timeout(later);
        assert_eq!(first(&pair.pack(later, &profile)), [1]);
        for (heard, expected) in [(2, &[2, 3, 4][..]), (3, &[]), (4, &[])] {
            pair.ack(later, &profile, heard, 0, 1);
            assert_eq!(first(&pair.pack(later, &profile)), expected);
        }
    }

    #[test]
    fn a_gap_is_asked_for_once() {
        let (now, profile) = (Time::ZERO, Profile::lan());
        let mut pair = Incoming::default();
        let mut take = |number| {
            let taken = pair.take(now, &profile, number, Block::of(b"told"), TELL_CREDIT_BYTES);
            (taken.len(), pair.poll_ack())
        };
        assert_eq!(take(5), (0, Some((1, 5, 1))));
        assert_eq!(take(6), (0, None));
        assert_eq!(take(1), (1, None));
        // The next gap.
        assert_eq!(take(8), (0, Some((2, 5, 1))));
        assert_eq!(take(9), (0, None));
    }
}
