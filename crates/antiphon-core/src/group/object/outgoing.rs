//! The sender's side: offers objects, sends the chunks that are asked for, and knows which member holds what.

use std::collections::{BTreeMap, VecDeque};

use antiphon_wire::group::GroupData;
use antiphon_wire::object::{ChunkSpan, Digest, Hasher, MAX_SPANS, ObjectRecord, chunk_range, chunks};
use antiphon_wire::{Block, GroupId, GroupViewId, Incarnation, Level};
use bytes::Bytes;

use crate::group::object::limits::patience;
use crate::group::queue::Tickets;
use crate::{Profile, Ticket, Time};

/// The application is told of each of so many parts of an object that all members have.
const PARTS: u32 = 16;

/// Objects accepted and not delivered here yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Outgoing {
    /// Not sent yet, in the order of acceptance.
    objects: VecDeque<Object>,
    /// Their records are in the log; they are delivered here as well.
    issued: BTreeMap<u64, Bytes>,
    bytes: usize,
    /// When to ask the receivers that say nothing.
    ask_at: Option<Time>,
    progress: VecDeque<Progress>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    number: u64,
    ticket: Ticket,
    level: Level,
    payload: Bytes,
    /// Over the chunks before `hashed`.
    hasher: Hasher,
    hashed: u32,
    /// By group rank: a joiner goes to the end.
    receivers: Vec<Receiver>,
    /// How many parts the application knows that all have.
    told: u32,
}

/// One of the other members, and how far it is with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Receiver {
    member: Incarnation,
    state: State,
    /// When it said something or was asked, and how often it was asked in vain.
    heard: Time,
    attempt: u32,
    /// It is to be asked how far it is.
    due: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// The object was not offered to it.
    Waiting,
    /// The object was offered to it, and it has not said that it has room. It may hold a wrong copy, with
    /// this digest, which does not count.
    Offered {
        wrong: Option<Digest>,
    },
    Taking(Taking),
    Held,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Taking {
    /// It has all chunks before this.
    next: u32,
    /// Chunks before this were sent to it.
    cursor: u32,
    /// Chunks before this may be sent to it.
    until: u32,
    /// What it asked for once more.
    again: VecDeque<ChunkSpan>,
}

/// What a receiver asks for.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) object: u64,
    pub(super) next: u32,
    pub(super) until: u32,
    pub(super) again: Vec<ChunkSpan>,
}

/// A record that may go into the log.
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub(crate) ticket: Ticket,
    pub(crate) block: Block,
}

/// How much of an object all other members have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) ticket: Ticket,
    pub(crate) bytes: u64,
    pub(crate) length: u64,
}

impl Object {
    fn length(&self) -> u32 {
        self.payload.len() as u32
    }

    fn chunk(&self, index: u32) -> Bytes {
        self.payload.slice(chunk_range(self.length(), index))
    }

    /// Takes the chunks before `end` into the digest as they are sent. So nothing waits while a long object
    /// is hashed.
    fn hash_until(&mut self, end: u32) {
        let from = chunk_range(self.length(), self.hashed).start;
        let to = chunk_range(self.length(), end).start;
        if end > self.hashed {
            self.hasher.update(&self.payload[from..to]);
            self.hashed = end;
        }
    }

    fn digest(&mut self) -> Digest {
        self.hash_until(chunks(self.length()));
        self.hasher.digest()
    }

    fn receiver(&mut self, who: Incarnation) -> Option<&mut Receiver> {
        self.receivers.iter_mut().find(|receiver| receiver.member == who)
    }

    fn is_held_by_all(&self) -> bool {
        let held = self
            .receivers
            .iter()
            .filter(|receiver| receiver.state == State::Held);
        if planted!(RecordBeforeAllHold) {
            return held.count() * 2 >= self.receivers.len();
        }
        held.count() == self.receivers.len()
    }

    /// Chunks that every receiver has.
    fn everywhere(&self) -> u32 {
        let all = chunks(self.length());
        let has = |receiver: &Receiver| match &receiver.state {
            State::Waiting | State::Offered { .. } => 0,
            State::Taking(taking) => taking.next,
            State::Held => all,
        };
        self.receivers.iter().map(has).min().unwrap_or(all)
    }

    fn offer(&self, group: GroupId, view: GroupViewId, wrong: Option<Digest>) -> GroupData {
        GroupData::Offer {
            group,
            view,
            object: self.number,
            length: self.length(),
            wrong,
        }
    }
}

impl Receiver {
    fn new(member: Incarnation) -> Self {
        Self {
            member,
            state: State::Waiting,
            heard: Time::ZERO,
            attempt: 0,
            due: false,
        }
    }

    fn has_room(&self) -> bool {
        matches!(self.state, State::Taking(_) | State::Held)
    }

    fn hear(&mut self, now: Time) {
        self.heard = now;
        self.attempt = 0;
        self.due = false;
    }

    /// When it is asked, if it says nothing.
    fn ask_at(&self, profile: &Profile) -> Option<Time> {
        match self.state {
            State::Offered { .. } | State::Taking(_) => Some(self.heard + patience(profile, self.attempt)),
            State::Waiting | State::Held => None,
        }
    }
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Bytes of all objects that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.ask_at
    }

    /// Takes an object for these receivers, by rank.
    pub(super) fn push(
        &mut self,
        number: u64,
        ticket: Ticket,
        level: Level,
        payload: Bytes,
        others: &[Incarnation],
    ) {
        self.bytes += payload.len();
        self.objects.push_back(Object {
            number,
            ticket,
            level,
            payload,
            hasher: Hasher::default(),
            hashed: 0,
            receivers: others.iter().map(|member| Receiver::new(*member)).collect(),
            told: 0,
        });
    }

    /// A view was installed.
    pub(super) fn set_receivers(
        &mut self,
        me: Incarnation,
        members: &[Incarnation],
        stays: impl Fn(Incarnation) -> bool,
    ) {
        for object in &mut self.objects {
            object.receivers.retain(|receiver| stays(receiver.member));
            for member in members.iter().filter(|member| **member != me) {
                if object.receiver(*member).is_none() {
                    object.receivers.push(Receiver::new(*member));
                }
            }
        }
    }

    /// A member has room for an object and says how far it is. At most `most` chunks are on their way to it,
    /// whatever it grants.
    pub(super) fn wanted(&mut self, now: Time, from: Incarnation, want: Want, most: u32) {
        let Want {
            object: number,
            next,
            until,
            again,
        } = want;
        let Some(object) = self.objects.iter_mut().find(|object| object.number == number) else {
            return;
        };
        let all = chunks(object.length());
        let ascending = again.windows(2).all(|pair| pair[0].end <= pair[1].first);
        let spans = ascending && again.iter().all(|span| span.first < span.end && span.end <= all);
        if next > all || until > all || again.len() > MAX_SPANS || !spans {
            return;
        }
        let Some(receiver) = object.receiver(from) else {
            return;
        };
        // What it says of the wrong copy does not count for the copy that it begins: of that it may have
        // chunks that came late, and its first question may be lost.
        let anew = matches!(receiver.state, State::Offered { wrong: Some(_) });
        let next = if anew { 0 } else { next };
        let until = until.min(next.saturating_add(most));
        match &mut receiver.state {
            State::Waiting | State::Offered { .. } => {
                receiver.state = State::Taking(Taking {
                    next,
                    cursor: next,
                    until,
                    again: VecDeque::new(),
                });
            }
            State::Taking(taking) => {
                taking.next = taking.next.max(next);
                taking.until = taking.until.max(until);
                taking.cursor = taking.cursor.max(taking.next);
                let lost = |span: &ChunkSpan| ChunkSpan {
                    first: span.first.max(taking.next),
                    end: span.end.min(taking.cursor),
                };
                let lost = again.iter().map(lost).filter(|span| span.first < span.end);
                let lost: VecDeque<ChunkSpan> = lost.collect();
                if !lost.is_empty() {
                    taking.again = lost;
                }
            }
            State::Held => return,
        }
        receiver.hear(now);
        self.moved(number);
    }

    /// A member holds an object, or a copy with this digest that it takes for the object.
    pub(super) fn held(&mut self, now: Time, from: Incarnation, number: u64, digest: Digest) {
        let Some(object) = self.objects.iter_mut().find(|object| object.number == number) else {
            return;
        };
        let right = object.digest() == digest;
        let Some(receiver) = object.receiver(from) else {
            return;
        };
        receiver.hear(now);
        if right || planted!(DeliverIncompleteObject) {
            receiver.state = State::Held;
        } else {
            receiver.state = State::Offered { wrong: Some(digest) };
            receiver.due = true;
        }
        self.moved(number);
    }

    /// Notes for the application how far an object is.
    fn moved(&mut self, number: u64) {
        let Some(object) = self.objects.iter_mut().find(|object| object.number == number) else {
            return;
        };
        let (all, everywhere) = (chunks(object.length()), object.everywhere());
        let parts = (u64::from(everywhere) * u64::from(PARTS) / u64::from(all.max(1))) as u32;
        if parts > object.told {
            object.told = parts;
            self.progress.push_back(Progress {
                ticket: object.ticket,
                bytes: chunk_range(object.length(), everywhere).start as u64,
                length: u64::from(object.length()),
            });
        }
    }

    pub(super) fn poll_progress(&mut self) -> Option<Progress> {
        self.progress.pop_front()
    }

    /// The next offer: to a member that is to be asked again, or by group rank, one object after the other
    /// (see the module's page).
    pub(super) fn poll_offer(
        &mut self,
        now: Time,
        profile: &Profile,
        group: GroupId,
        view: GroupViewId,
    ) -> Option<(Incarnation, GroupData)> {
        for object in &mut self.objects {
            if let Some(receiver) = object.receivers.iter_mut().find(|receiver| receiver.due) {
                receiver.due = false;
                let wrong = match receiver.state {
                    State::Offered { wrong } => wrong,
                    _ => None,
                };
                let member = receiver.member;
                return Some((member, object.offer(group, view, wrong)));
            }
        }
        for object in &mut self.objects {
            let Some(first) = object.receivers.iter_mut().find(|receiver| !receiver.has_room()) else {
                continue;
            };
            if first.state == State::Waiting {
                first.state = State::Offered { wrong: None };
                first.hear(now);
                let member = first.member;
                return Some((member, object.offer(group, view, None)));
            }
            break;
        }
        self.watch(profile);
        None
    }

    fn watch(&mut self, profile: &Profile) {
        let receivers = self.objects.iter().flat_map(|object| &object.receivers);
        self.ask_at = receivers.filter_map(|receiver| receiver.ask_at(profile)).min();
    }

    /// Asks the receivers that have said nothing for a while.
    pub(super) fn timeout(&mut self, now: Time, profile: &Profile) {
        if self.ask_at.is_none_or(|at| at > now) {
            return;
        }
        let receivers = self.objects.iter_mut().flat_map(|object| &mut object.receivers);
        for receiver in receivers {
            if receiver.ask_at(profile).is_some_and(|at| at <= now) {
                receiver.heard = now;
                receiver.attempt = receiver.attempt.saturating_add(1);
                receiver.due = true;
            }
        }
        self.watch(profile);
    }

    /// The next chunk to send, and its receivers. Members that are behind come first; members that are
    /// equally far share the chunk.
    pub(super) fn poll_chunk(&mut self, group: GroupId) -> Option<(Vec<Incarnation>, GroupData)> {
        let object = self
            .objects
            .iter_mut()
            .find(|object| object.receivers.iter().any(Receiver::is_open))?;
        let (index, to) = object.next_again().or_else(|| object.next_new())?;
        object.hash_until(index + 1);
        let record = GroupData::Chunk {
            group,
            object: object.number,
            index,
            bytes: object.chunk(index),
        };
        Some((to, record))
    }

    /// Members that were offered an object and have no room for it.
    pub(super) fn without_room(&self) -> impl Iterator<Item = Incarnation> {
        let receivers = self.objects.iter().flat_map(|object| &object.receivers);
        receivers
            .filter(|receiver| matches!(receiver.state, State::Offered { .. }))
            .map(|receiver| receiver.member)
    }

    /// The record of the first object, once all hold it.
    pub(super) fn front(&mut self) -> Option<Issue> {
        let object = self
            .objects
            .front_mut()
            .filter(|object| object.is_held_by_all())?;
        let record = ObjectRecord {
            object: object.number,
            length: object.length(),
            digest: object.digest(),
        };
        Some(Issue {
            ticket: object.ticket,
            block: Block::object(&record).with_level(object.level),
        })
    }

    pub(super) fn issue(&mut self, others: &[Incarnation]) {
        if let Some(object) = self.objects.pop_front() {
            let holds = |member: &Incarnation, receiver: &Receiver| {
                receiver.member == *member && receiver.state == State::Held
            };
            let without = others
                .iter()
                .find(|member| !object.receivers.iter().any(|receiver| holds(member, receiver)));
            assert!(
                without.is_none() || planted!(),
                "R22: the record of object {} is sent in a view of {others:?}, and {without:?} lacks it",
                object.number
            );
            self.issued.insert(object.number, object.payload);
        }
    }

    /// This member's own object is delivered.
    pub(super) fn take(&mut self, number: u64) -> Option<Bytes> {
        let payload = self.issued.remove(&number)?;
        self.bytes -= payload.len();
        Some(payload)
    }

    pub(super) fn clear(&mut self) -> Vec<Tickets> {
        self.ask_at = None;
        let objects = std::mem::take(&mut self.objects);
        self.bytes = self.issued.values().map(Bytes::len).sum();
        let ticket = |object: Object| Tickets {
            first: object.ticket,
            count: 1,
        };
        objects.into_iter().map(ticket).collect()
    }
}

impl Receiver {
    /// Whether a chunk may be sent to it now.
    fn is_open(&self) -> bool {
        matches!(&self.state, State::Taking(taking) if taking.cursor < taking.until || !taking.again.is_empty())
    }

    fn next_new(&self) -> Option<u32> {
        match &self.state {
            State::Taking(taking) if taking.cursor < taking.until => Some(taking.cursor),
            _ => None,
        }
    }
}

impl Object {
    /// A chunk that was lost on its way to one member.
    fn next_again(&mut self) -> Option<(u32, Vec<Incarnation>)> {
        self.receivers.iter_mut().find_map(|receiver| {
            let State::Taking(taking) = &mut receiver.state else {
                return None;
            };
            let span = taking.again.front_mut()?;
            let index = span.first;
            span.first += 1;
            if span.first >= span.end {
                taking.again.pop_front();
            }
            Some((index, vec![receiver.member]))
        })
    }

    fn next_new(&mut self) -> Option<(u32, Vec<Incarnation>)> {
        let index = self.receivers.iter().filter_map(Receiver::next_new).min()?;
        let mut to = Vec::new();
        for receiver in &mut self.receivers {
            if receiver.next_new() == Some(index)
                && let State::Taking(taking) = &mut receiver.state
            {
                taking.cursor += 1;
                to.push(receiver.member);
            }
        }
        Some((index, to))
    }
}

#[cfg(test)]
mod tests {
    use antiphon_wire::ViewId;
    use antiphon_wire::object::CHUNK_BYTES;

    use super::*;

    /// The receiver has thrown a wrong copy away. A chunk of that copy came late and begins the next one, and
    /// the receiver's first question for the next copy is lost.
    #[test]
    fn a_copy_that_follows_a_wrong_one_is_sent_from_the_first_chunk_whatever_its_receiver_says_it_has() {
        let (now, profile) = (Time::ZERO, Profile::lan());
        let (group, receiver) = (GroupId(7), Incarnation(2));
        let view = GroupViewId {
            node: ViewId { epoch: 1, counter: 1 },
            number: 1,
            k: 1,
        };
        let wrongs = |outgoing: &mut Outgoing| match outgoing.poll_offer(now, &profile, group, view) {
            Some((_, GroupData::Offer { wrong, .. })) => wrong,
            other => panic!("no offer: {other:?}"),
        };
        let sent = |outgoing: &mut Outgoing| -> Vec<u32> {
            let records = std::iter::from_fn(|| outgoing.poll_chunk(group));
            let index = |(_, record): (Vec<Incarnation>, GroupData)| match record {
                GroupData::Chunk { index, .. } => index,
                other => panic!("no chunk: {other:?}"),
            };
            records.map(index).collect()
        };
        let want = |next| Want {
            object: 1,
            next,
            until: 3,
            again: Vec::new(),
        };
        let mut outgoing = Outgoing::default();
        let payload = Bytes::from(vec![7; 3 * CHUNK_BYTES]);
        outgoing.push(1, Ticket(1), Level::Agreed, payload, &[receiver]);
        assert_eq!(wrongs(&mut outgoing), None);
        outgoing.wanted(now, receiver, want(0), 3);
        assert_eq!(sent(&mut outgoing), [0, 1, 2]);
        let wrong = Digest(0);
        outgoing.held(now, receiver, 1, wrong);
        assert_eq!(wrongs(&mut outgoing), Some(wrong));
        outgoing.wanted(now, receiver, want(1), 3);
        assert_eq!(sent(&mut outgoing), [0, 1, 2]);
    }
}
