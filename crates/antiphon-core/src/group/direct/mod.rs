//! Direct messages: from one member of a group to one other.
//!
//! ```text
//!  sender                                            receiver
//!  tell ─► log of the pair ── Tell: view, first, payloads ──► this view, before my flush report? in order
//!   ▲          │  ◄──────────── TellAck: heard, consumed ──── ─► Told ─► application ─► told_consumed
//!   │          └─► TellReceipts: Delivered
//!   └─ TellWritable: there is credit again
//! ```
//! Each ordered pair of members has a log of its own, with numbers from 1. What is told goes out with the
//! frames of the same batch, and never by chain or multicast. [`Outgoing`] is the sender's side of a pair,
//! [`Incoming`] the receiver's, [`Untaken`] what the receiver's application was given and has not taken. No
//! pair waits for another: a receiver that is slow or dead delays its own messages alone.
//!
//! # Invariants
//! - **A message is taken in the view that its `Tell` names, and in no other.** A receiver that has not
//!   installed that view yet holds the record until it has; a record of an earlier view is dropped. From its
//!   flush report on a receiver takes nothing more in the view that ends (R13), so what it has reported is
//!   all that it ever took there.
//! - **Numbers of a pair go on across views**, as long as both members go along. What the receiver had not
//!   taken when a view ended its sender sends again in the next view, with the same numbers: it is then a
//!   message of that view. What it had taken, it knows by its number.
//! - A member that joins, or joins again, begins new pairs.
//! - `Tell` and `TellAck` name the member that they are for. A copy that comes to another one is dropped.
//! - **At most [`TELL_CREDIT_BYTES`] of a pair are accepted and not taken by the receiver's application**,
//!   each message with a charge of [`TELL_OVERHEAD`] bytes. More is refused as `Full`. So whatever is
//!   accepted may be sent at once, and its receiver has room for it. Of all senders together a receiver keeps
//!   no more than a group's members may send: beyond that (unread messages of members that are gone) it drops
//!   what comes, and its sender sends it again later.
//!
//! # What the sender learns
//! Each message has one receipt. `Delivered`: the receiver has taken it, and hands it to its application,
//! unless the receiver crashes first or starts over, or its application has asked to leave. When the receiver
//! is not in the next view, the receipt has the cause. Then the decision on that view says how far a receiver
//! had come that had reported to the flush: what is before that is `Delivered`, the rest `NotDelivered`. Of
//! one that has not reported, what it had acknowledged is `Delivered`, what was never sent `NotDelivered`,
//! the rest `Unknown`. When this member's own membership ends, it is told the same, with [`Parting::Ended`].
//!
//! # When members die
//! | member | when | then |
//! |---|---|---|
//! | the sender | any time | what the receiver has taken is delivered, in the view it was sent in; the rest nobody has |
//! | the receiver | before its flush report | unacknowledged messages are `Unknown` |
//! | the receiver | after it, the leader decides with its report | the next view has it still; the one after it is without it, and the same holds then |
//! | a receiver that leaves | after its report | the decision has what it took: it takes no more |
//! | the leader | before it decides | the next leader reads all again: reports of one view say the same as often as they are asked for |
//! | the leader | after someone has installed its view | its decision is completed by all, and has what the leavers took |
//! | one that left in order, and all that knew the decision | later | nobody knows how far it had come: `Unknown` |
//! | the primary is lost | any time | nothing is sent and nothing taken (R17); both go on in the next view, or start over |
//!
//! # What a message costs
//! One copy into the open block of its pair, one into the frame. The receiver says how far it is when it has
//! taken a quarter of the credit, when its application has, or when a message is missing; otherwise after a
//! short while, together for all.

mod incoming;
mod outgoing;
mod untaken;

use std::collections::BTreeMap;
use std::time::Duration;

use antiphon_wire::block::PIECE_BYTES;
use antiphon_wire::group::{Decision, GroupData, TellsHeard};
use antiphon_wire::{Block, GroupViewId, Incarnation};

use self::incoming::Incoming;
use self::outgoing::Outgoing;
pub(crate) use self::untaken::Untaken;
use super::log::BLOCK_OVERHEAD;
use super::member::{Group, Membership, Phase};
use super::{Context, Effect, MAX_GROUP_MEMBERS};
use crate::flush::Flow;
use crate::{Class, GroupEvent, Messages, Parting, Profile, SendError, TellError, TellOutcome, Ticket, Time};

/// The most bytes of direct messages from one member to another that the receiver's application has not
/// taken, each with [`TELL_OVERHEAD`].
pub const TELL_CREDIT_BYTES: usize = 1 << 20;
/// The most bytes of a direct message: what fits a block.
pub const MAX_TELL_BYTES: usize = PIECE_BYTES;
/// What a direct message takes of the credit besides its payload.
pub const TELL_OVERHEAD: usize = 64;
/// The most bytes of direct messages that an application was given and has not taken.
const MAX_UNTAKEN_BYTES: usize = MAX_GROUP_MEMBERS * TELL_CREDIT_BYTES;
/// No number reaches this far: what follows has a number too.
const MAX_NUMBER: u64 = 1 << 62;

/// What messages take of the credit.
fn charge(block: &Block) -> usize {
    block.bytes().len() + block.count() as usize * TELL_OVERHEAD
}

/// How long a sender waits for an answer, the how-manieth time.
fn patience(profile: &Profile, attempt: u32) -> Duration {
    profile.retransmit * 2 * (1 << attempt.min(3))
}

/// A run of messages of one pair of which the sender learns what became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipts {
    pub(crate) first: Ticket,
    pub(crate) count: u64,
    pub(crate) outcome: TellOutcome,
}

/// All pairs of a member with the others of its group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Direct {
    outgoing: BTreeMap<Incarnation, Outgoing>,
    incoming: BTreeMap<Incarnation, Incoming>,
}

impl Direct {
    /// For a flush report: of which members of the view this one has taken how much.
    pub(crate) fn heard(&self, members: &[Incarnation]) -> Vec<(u16, u64)> {
        let heard = members.iter().enumerate().filter_map(|(rank, member)| {
            let next = self.incoming.get(member)?.next();
            (next > 1).then_some((rank as u16, next))
        });
        heard.collect()
    }

    /// Whether everything that was accepted was taken by its receiver.
    pub(crate) fn all_heard(&self) -> bool {
        self.outgoing.values().all(Outgoing::is_heard)
    }

    /// What is kept for others and of others.
    pub(crate) fn bytes(&self) -> usize {
        let own = self.outgoing.values().map(Outgoing::bytes);
        let ahead = self.incoming.values().map(Incoming::ahead_bytes);
        own.chain(ahead).sum()
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let own = self.outgoing.values().filter_map(Outgoing::next_timeout);
        let others = self.incoming.values().filter_map(Incoming::next_timeout);
        own.chain(others).min()
    }

    /// A view ends: gives what becomes of what was told to those that do not go along. Pairs of those that do
    /// go on; pairs with others are over.
    pub(crate) fn install(
        &mut self,
        decision: &Decision,
        members: &[Incarnation],
        me: Incarnation,
    ) -> Vec<(Incarnation, Receipts)> {
        let joined = |member: &Incarnation| decision.joined.iter().any(|j| j.incarnation == *member);
        let stays = |member: &Incarnation| decision.members.contains(member) && !joined(member);
        let rank = |who: Incarnation| members.iter().position(|member| *member == who);
        // What a receiver took that has reported and leaves; all from a sender that its list does not name is
        // still to come.
        let taken = |receiver: Incarnation| {
            let (receiver, me) = (rank(receiver)?, rank(me)?);
            let of_receiver = |told: &&TellsHeard| usize::from(told.member) == receiver;
            let told = decision.told.iter().find(of_receiver)?;
            let mut heard = told.heard.iter();
            let mine = heard.find(|(sender, _)| usize::from(*sender) == me);
            Some(mine.map_or(1, |(_, next)| *next))
        };
        let mut receipts = Vec::new();
        let gone: Vec<_> = self.outgoing.keys().copied().filter(|to| !stays(to)).collect();
        for to in gone {
            let Some(pair) = self.outgoing.remove(&to) else {
                continue;
            };
            let ended = pair.end(taken(to), parting(decision, to));
            receipts.extend(ended.into_iter().map(|receipt| (to, receipt)));
        }
        self.incoming.retain(|from, _| stays(from));
        if planted!(ForgetTellNumbers) {
            self.incoming.clear();
        }
        self.outgoing.values_mut().for_each(Outgoing::begin_view);
        self.incoming.values_mut().for_each(Incoming::begin_view);
        receipts
    }

    /// The membership is over.
    fn end(&mut self) -> Vec<(Incarnation, Receipts)> {
        self.incoming.clear();
        let pairs = std::mem::take(&mut self.outgoing).into_iter();
        let ended = |(to, pair): (Incarnation, Outgoing)| {
            let receipts = pair.end(None, Parting::Ended).into_iter();
            receipts.map(move |receipt| (to, receipt))
        };
        pairs.flat_map(ended).collect()
    }
}

/// Why a member of the view that ends is not in the next one.
fn parting(decision: &Decision, member: Incarnation) -> Parting {
    let cause = decision.causes.iter().find(|cause| cause.incarnation == member);
    match cause {
        Some(cause) => Parting::Removed(cause.cause.clone()),
        None if decision.left.contains(&member) => Parting::Left,
        None => Parting::Crashed,
    }
}

/// Whether what a report or a decision says about direct messages can be of a view with so many members.
pub(crate) fn is_possible(heard: &[(u16, u64)], members: usize) -> bool {
    let ascending = heard.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let within = |(rank, next): &(u16, u64)| usize::from(*rank) < members && *next < MAX_NUMBER;
    ascending && heard.iter().all(within)
}

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
        // A frame may come to others than those that it was sent to: what is in it is then not for them.
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
        if !matches!(membership.flow, Flow::Open) && !planted!(TellAfterWedge) {
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

    /// Tells the application what became of what it told.
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

    /// This membership is over: of what is under way nobody will tell it.
    pub(crate) fn end_direct(&mut self, ctx: &mut Context<'_>) {
        self.untaken.end(|_| true);
        if let Phase::Member(membership) = &mut self.phase {
            let receipts = membership.direct.end();
            self.tell_receipts(ctx, receipts);
        }
    }

    /// Tells the application which members may be told more again.
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

impl Membership {
    /// What is new for each receiver, and for each sender how far this member is.
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

    /// Sends again what no answer came for, and answers.
    pub(super) fn direct_timeout(&mut self, now: Time) {
        for pair in self.direct.outgoing.values_mut() {
            pair.timeout(now);
        }
        for pair in self.direct.incoming.values_mut() {
            pair.timeout(now);
        }
    }
}

/// The most that the pairs of a member with so many others may keep at it.
pub(crate) fn bound(others: usize) -> usize {
    2 * others * (TELL_CREDIT_BYTES + BLOCK_OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // The one that begins at another place is another gap.
        assert!(
            pair.ack(now, &profile, 2, 3, 1)
                .is_some_and(|news| news.is_some())
        );
        assert_eq!(first(&pair.pack(now, &profile)), [2]);
        // If nothing comes of it, the first that is missing is sent again in time.
        let later = now + patience(&profile, 0);
        pair.timeout(later);
        assert_eq!(first(&pair.pack(later, &profile)), [2]);
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
