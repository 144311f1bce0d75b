//! Bulk objects: payloads too large for the log (R22).
//!
//! ```text
//!  sender                                   every other member of the view
//!  Offer: number, length ────────────────►  room for all of it? then a buffer, once
//!       ◄──────────────────────── Want: from chunk n, until chunk m      (credit; asks again for what is missing)
//!  Chunk, Chunk, … ───────────────────────►  written to its place
//!       ◄──────────────────────── Held: digest      kept until its record is delivered, or its sender is gone
//!  all of the view hold it: its record ─► log ─► order ─► delivery: the object, at the place of its record
//! ```
//! A payload larger than a message travels beside the log, from its sender to each other member, in chunks
//! that the receivers ask for. The log has only a record of its number, length and digest. The record is a
//! message like any other: it has a place in the order, a level, a receipt. [`Outgoing`] is the sender's
//! side, [`Incoming`] the receivers'.
//!
//! In the log it would hold a window for as long as it takes to send, and every message behind it. The price:
//! messages overtake it, and it costs a round trip per member before it begins (chunks flow from the first
//! member on). The digest finds accidents, with a cluster key and without. The seal of the frames protects
//! against forgery.
//!
//! # Invariants
//! - **The record of an object is put into the log of a view only while every member of that view holds the
//!   object.** A record is delivered in its view by members of that view. So every member that delivers the
//!   record has the object, and no member has to fetch one in a flush.
//! - A member that has said `Held` keeps the object until it delivers the record, or until the sender or the
//!   member itself is out of the group. So what it said in an earlier view is still true in the next, as long
//!   as both were members all the time. [`Objects::counts`] tells it from what was said in an earlier
//!   membership.
//! - Nothing of a transfer belongs to a view. Chunks that are here stay here when views change, and a
//!   transfer goes on where it was. A new member gets the object from its first chunk; the others keep what
//!   they have and wait for it.
//! - Objects of one sender are delivered in the order in which they were accepted. Smaller messages overtake
//!   them: an object has its place in the order, and its number, when its record is sent.
//! - A member holds at most [`max_object_bytes`](crate::GroupOptions::max_object_bytes) of the objects of one
//!   sender and [`object_memory_bytes`](crate::GroupOptions::object_memory_bytes) of those of all others,
//!   from the offer until its application has taken them. A buffer is taken only for a length that fits both;
//!   an offer without room waits in a bounded list. The sender keeps as much of its own objects.
//! - Members never wait in a circle for room. A sender offers an object to the members by group rank: to the
//!   next one when those before have room for it. It offers the next object when all have room for this one.
//!   So an object that waits at a member waits only for objects that have come further, and members that stay
//!   keep the order of their ranks.
//!
//! # Fair to small messages
//! A receiver grants chunks for [`window`] bytes divided by the number of receivers, and always a few. So
//! there is at most that much of objects between a sender and all its receivers, and a message behind them
//! waits for that much. A sender has no more than that on its way to any receiver, whatever the receiver
//! grants. Chunks are packed after the messages of a batch.
//!
//! # Which member dies when
//! | which | when | then |
//! |---|---|---|
//! | the sender | before the record is in the cut | no member delivers it, and all give the memory back with the next view |
//! | the sender | after | every survivor of the view holds the object, and delivers it where the cut says |
//! | a receiver | before it holds it | the next view is without it: the others are enough |
//! | a receiver | after | nothing is different |
//! | a member is removed and comes back | any time | it has dropped all; it is new, as any joiner |
//! | a joiner comes | before the record | it fetches the object, and the record waits for it |
//! | a joiner comes | after the record | the record belongs to the view before its first: it sees neither |
//! | the sender leaves | any time | it waits a while until its objects are sent; an object that is not sent by then is not delivered, and its receipt says so |
//! | the primary is lost | any time | all stop, keep what they have, and go on with the next view, or start over |
//!
//! # What it does not do
//! Objects go from their sender to each member, whatever the group's dissemination is. The chunks that a
//! member lacks differ from member to member as transfers resume and members join, and the order of objects
//! is the log's. An object is copied once at each receiver, into its buffer, and nowhere else: chunks are
//! slices of the payload that its sender gave.
//!
//! [`Outgoing`]: self::outgoing::Outgoing
//! [`Incoming`]: self::incoming::Incoming
//! [`window`]: self::limits::window

mod incoming;
pub(crate) mod limits;
mod outgoing;
pub(crate) mod state;

use antiphon_wire::group::GroupData;
use antiphon_wire::{Incarnation, Level};
use bytes::Bytes;

use self::incoming::{Offer, Pace, Room};
use self::limits::patience;
pub(crate) use self::outgoing::Issue;
use self::outgoing::{Progress, Want};
pub(crate) use self::state::Objects;
use super::member::{Group, Joined, Phase};
use super::{Context, Effect};
use crate::group::object::limits::grant;
use crate::{Class, GroupEvent, SendError, Ticket};

impl Group {
    /// Accepts an object.
    pub(super) fn send_object(
        &mut self,
        ctx: &mut Context<'_>,
        ticket: Ticket,
        level: Level,
        payload: Bytes,
    ) -> Result<(), SendError> {
        let limit = self.options.max_object_bytes as usize;
        if payload.len() > limit {
            let limit = limit.max(self.largest());
            return Err(SendError::TooLarge { limit });
        }
        self.check_membership(ctx)?;
        let unread = self.backlog.object_bytes_of(ctx.me);
        let Phase::Member(membership) = &mut self.phase else {
            return Err(SendError::NotMember);
        };
        let outgoing = &mut membership.objects.outgoing;
        let taken = outgoing.bytes() + unread;
        if taken > 0 && taken + payload.len() > limit {
            self.refused_object = Some(payload.len());
            return Err(SendError::Full);
        }
        *ctx.last_object += 1;
        outgoing.push(
            *ctx.last_object,
            ticket,
            level,
            payload,
            &membership.stream.others(),
        );
        Ok(())
    }

    /// Whether an object that was refused would be accepted now.
    pub(super) fn has_room_for_object(&self, me: Incarnation, bytes: usize) -> bool {
        let Phase::Member(membership) = &self.phase else {
            return false;
        };
        let taken = membership.objects.outgoing.bytes() + self.backlog.object_bytes_of(me);
        taken == 0 || taken + bytes <= self.options.max_object_bytes as usize
    }

    /// A record about an object. Gives it back if it is about something else.
    pub(super) fn handle_object(
        &mut self,
        ctx: &mut Context<'_>,
        from: Incarnation,
        record: GroupData,
    ) -> Option<GroupData> {
        let Phase::Member(membership) = &mut self.phase else {
            return Some(record);
        };
        let view = match &record {
            GroupData::Offer { view, .. } | GroupData::Want { view, .. } | GroupData::Held { view, .. } => {
                *view
            }
            GroupData::Chunk { .. } => membership.stream.id,
            _ => return Some(record),
        };
        if view > membership.stream.id {
            // It has installed a view that this member will have soon.
            return Some(record);
        }
        if from == ctx.me || membership.stream.rank(from).is_none() || !membership.objects.counts(from, view)
        {
            return None;
        }
        let pace = membership.pace(ctx);
        match record {
            GroupData::Offer {
                object,
                length,
                wrong,
                ..
            } => {
                let room = Room::of(&self.options, &self.backlog, ctx.me);
                let incoming = &mut membership.objects.incoming;
                let offer = Offer {
                    object,
                    length,
                    wrong,
                };
                if !incoming.offered(from, offer, pace, &room) {
                    ctx.nonsense();
                }
                membership.answer_senders(ctx);
            }
            GroupData::Chunk {
                object, index, bytes, ..
            } => {
                let incoming = &mut membership.objects.incoming;
                incoming.chunk(from, object, index, &bytes, pace);
                membership.answer_senders(ctx);
            }
            GroupData::Want {
                object,
                next,
                until,
                again,
                ..
            } => {
                let want = Want {
                    object,
                    next,
                    until,
                    again,
                };
                let outgoing = &mut membership.objects.outgoing;
                outgoing.wanted(ctx.now, from, want, grant(ctx.profile, 1));
            }
            GroupData::Held { object, digest, .. } => {
                let outgoing = &mut membership.objects.outgoing;
                outgoing.held(ctx.now, from, object, digest);
            }
            _ => {}
        }
        self.tell_progress(ctx);
        None
    }

    fn tell_progress(&mut self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        while let Some(Progress {
            ticket,
            bytes,
            length,
        }) = membership.objects.outgoing.poll_progress()
        {
            let beyond = u64::from(planted!(ProgressBeyondTheEnd)) * length;
            let event = GroupEvent::Progress {
                ticket,
                bytes: bytes + beyond,
                length,
            };
            ctx.effects.push_back(Effect::Event(self.handle, event));
        }
    }

    /// The application has taken something, or a view has gone: there may be room for what was offered.
    pub(super) fn admit_objects(&mut self, ctx: &mut Context<'_>) {
        let Phase::Member(membership) = &mut self.phase else {
            return;
        };
        if !membership.objects.incoming.waits_for_room() {
            return;
        }
        let pace = membership.pace(ctx);
        let room = Room::of(&self.options, &self.backlog, ctx.me);
        membership.objects.incoming.admit(pace, &room);
        membership.answer_senders(ctx);
    }
}

impl Joined {
    fn pace(&self, ctx: &Context<'_>) -> Pace {
        Pace {
            now: ctx.now,
            window: grant(ctx.profile, self.stream.members.len().saturating_sub(1)),
            patience: patience(ctx.profile, 0),
        }
    }

    /// Sends what receivers have to say to senders.
    fn answer_senders(&mut self, ctx: &mut Context<'_>) {
        let (group, view) = (self.id, self.stream.id);
        while let Some((to, answer)) = self.objects.incoming.poll_answer() {
            ctx.effects.push_back(Effect::Data {
                to: vec![to],
                class: Class::Control,
                records: vec![answer.record(group, view)],
            });
        }
    }

    /// Sends offers and chunks: when a batch of inputs is over, behind its messages.
    pub(crate) fn pack_objects(&mut self, ctx: &mut Context<'_>) {
        let (group, view) = (self.id, self.stream.id);
        let outgoing = &mut self.objects.outgoing;
        while let Some((to, record)) = outgoing.poll_offer(ctx.now, ctx.profile, group, view) {
            ctx.effects.push_back(Effect::Data {
                to: vec![to],
                class: Class::Control,
                records: vec![record],
            });
        }
        while let Some((to, record)) = outgoing.poll_chunk(group) {
            ctx.effects.push_back(Effect::Data {
                to,
                class: Class::Bulk,
                records: vec![record],
            });
        }
    }

    pub(crate) fn objects_timeout(&mut self, ctx: &mut Context<'_>) {
        self.objects.incoming.timeout(ctx.now, ctx.profile);
        self.objects.outgoing.timeout(ctx.now, ctx.profile);
        self.answer_senders(ctx);
    }
}
