//! Channels: per pair of incarnations, a reliable ordered channel for control messages.
//!
//! Frames may be lost, doubled, reordered or delivered late, on any transport: even TCP loses what was in a
//! connection that broke. A channel numbers its messages, keeps them until they are acknowledged, and
//! delivers each exactly once and in order, as long as both incarnations live.
//!
//! ```text
//!  push ─► send buffer ─► ChannelRecord{first, messages, ack} ─► frame     frame ─► in order? ─► deliver
//!              ▲    └── retransmit timer, doubling to 8 ×                     └── ahead: kept, bounded
//!              └──────────────── ack, carried by any record ◄──────────────────────────┘
//! ```
//!
//! A connection that breaks loses all that was in it. So when the timer fires, sending starts again at the
//! front, with one record; each acknowledgement that brings something new doubles what may be on its way, up
//! to [`MAX_ON_THE_WAY_BYTES`] (slow start, RFC 5681 section 3.1). One lost record costs one record: what
//! came after it is kept by the peer, and its acknowledgement passes over it.
//!
//! Invariants:
//! - a message is delivered at most once and only after all before it;
//! - what is queued is bounded ([`MAX_UNACKNOWLEDGED_BYTES`]): meeting the bound breaks the channel, and the
//!   peer is accused;
//! - what is on its way is bounded by what a connection's queue takes at once;
//! - while something is on its way, the timer runs;
//! - a channel that the membership layer has no use for is parked, not forgotten: the numbers of an
//!   incarnation are never used twice, so the pair can go on where it stopped. Parked channels are bounded
//!   ([`MAX_CHANNELS`]).
//!
//! If the peer dies, nothing here notices: the detector does, and the membership layer parks the channel. If
//! this side pauses, acknowledgements stop and the peer repeats itself at a slowing pace.
//!
//! A channel does not order messages against group data, and carries none of it: a group's own logs do that.
//! Messages longer than [`MAX_CHUNK_BYTES`] travel as several chunks.

mod table;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use antiphon_wire::Incarnation;
use antiphon_wire::record::ChannelRecord;
use bytes::Bytes;

use crate::Time;

pub(crate) use table::Channels;

/// What was received is acknowledged within this part of the time after which it is repeated. The next record
/// does that, or a record of its own: an answer, where there is one, mostly comes sooner.
const ACKNOWLEDGE_WITHIN: u32 = 8;
/// It is acknowledged at once after this many bytes.
const MAX_UNTOLD_BYTES: usize = 64 << 10;
/// The most bytes that wait for acknowledgement on one channel.
pub(crate) const MAX_UNACKNOWLEDGED_BYTES: usize = 8 << 20;
/// The most channels kept, parked ones included: a channel that is not kept any more cannot go on where it
/// stopped, so as many as there can be members, joiners and candidates.
pub(crate) const MAX_CHANNELS: usize = 2 * antiphon_wire::MAX_MEMBERS;
/// The most bytes that are sent and not acknowledged: a fraction of what waits for a connection.
const MAX_ON_THE_WAY_BYTES: usize = 512 << 10;
/// The most chunks that may arrive ahead of a missing one.
const MAX_AHEAD: u64 = 4096;
/// The most bytes of chunks that may arrive ahead of a missing one.
const MAX_AHEAD_BYTES: usize = 8 << 20;
/// The largest piece of a message in one channel record.
const MAX_CHUNK_BYTES: usize = 32 << 10;
/// The largest message, in all its chunks.
const MAX_MESSAGE_BYTES: usize = 4 << 20;
/// The most bytes of chunks put into one record.
const MAX_RECORD_BYTES: usize = 48 << 10;

const LAST_CHUNK: u8 = 0;
const MORE_CHUNKS: u8 = 1;

/// One end of a channel. Time and addresses are its owner's business.
#[derive(Debug, Clone)]
pub(crate) struct Channel {
    retransmit: Duration,
    sending: SendBuffer,
    receiving: ReceiveBuffer,
}

#[derive(Debug, Clone)]
struct SendBuffer {
    /// Sent or to be sent, and not acknowledged; the front has number `first`.
    chunks: VecDeque<Bytes>,
    first: u64,
    /// How many of `chunks` were sent at least once.
    sent: usize,
    /// How many of `chunks` are on their way, as far as one can know: those before this one. Below `sent`
    /// after a loss.
    next: usize,
    /// Bytes on their way, and how many may be.
    on_the_way: usize,
    window: usize,
    bytes: usize,
    /// When to send the front again, and how long to wait after that.
    repeat: Option<(Time, Duration)>,
    repeat_now: bool,
}

#[derive(Debug, Clone, Default)]
struct ReceiveBuffer {
    /// All chunks up to and including this one were received.
    received: u64,
    ahead: BTreeMap<u64, Bytes>,
    ahead_bytes: usize,
    /// The chunks so far of a message whose last chunk is missing.
    partial: Vec<u8>,
    /// When the peer is to be told what was received, if no other record has told it by then.
    acknowledge: Option<Time>,
    /// Bytes received since it was told.
    untold_bytes: usize,
}

/// The channel cannot go on: too much was left unacknowledged, or the peer broke its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelBroken;

impl Channel {
    pub(crate) fn new(retransmit: Duration) -> Self {
        Self {
            retransmit,
            sending: SendBuffer {
                chunks: VecDeque::new(),
                first: 1,
                sent: 0,
                next: 0,
                on_the_way: 0,
                window: MAX_ON_THE_WAY_BYTES,
                bytes: 0,
                repeat: None,
                repeat_now: false,
            },
            receiving: ReceiveBuffer::default(),
        }
    }

    /// The next record is to acknowledge what was received, and to do so at once.
    pub(crate) fn acknowledge_now(&mut self, now: Time) {
        self.receiving.acknowledge = self.receiving.acknowledge.map(|at| at.min(now));
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, message: &[u8]) -> Result<(), ChannelBroken> {
        if self.sending.bytes + message.len() > MAX_UNACKNOWLEDGED_BYTES || message.len() > MAX_MESSAGE_BYTES
        {
            return Err(ChannelBroken);
        }
        let mut chunks = message.chunks(MAX_CHUNK_BYTES).peekable();
        while let Some(chunk) = chunks.next() {
            let mark = if chunks.peek().is_some() {
                MORE_CHUNKS
            } else {
                LAST_CHUNK
            };
            let mut bytes = Vec::with_capacity(chunk.len() + 1);
            bytes.push(mark);
            bytes.extend_from_slice(chunk);
            self.sending.bytes += bytes.len();
            self.sending.chunks.push_back(bytes.into());
        }
        self.sending.assert_bounded();
        Ok(())
    }

    /// Whether there is something to send now.
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.receiving.acknowledge.is_some_and(|at| at <= now)
            || self.sending.repeat_now
            || self.sending.may_go_on()
            || self.sending.repeat.is_some_and(|(at, _)| at <= now)
    }

    /// The next record to send to the peer, if there is reason to send one.
    pub(crate) fn poll_record(&mut self, now: Time, to: Incarnation) -> Option<ChannelRecord> {
        let sending = &mut self.sending;
        if sending.sent > 0 && (sending.repeat_now || sending.repeat.is_some_and(|(at, _)| at <= now)) {
            let wait = sending
                .repeat
                .map_or(self.retransmit, |(_, wait)| (wait * 2).min(self.retransmit * 8));
            sending.repeat = Some((now + wait, wait));
            sending.repeat_now = false;
            (sending.next, sending.on_the_way, sending.window) = (0, 0, MAX_RECORD_BYTES);
        }
        let from = sending.next;
        let mut messages = Vec::new();
        let mut bytes = 0;
        while sending.may_go_on() && messages.len() < antiphon_wire::codec::MAX_LIST {
            let chunk = &sending.chunks[sending.next];
            if !messages.is_empty() && bytes + chunk.len() > MAX_RECORD_BYTES {
                break;
            }
            bytes += chunk.len();
            messages.push(chunk.clone());
            sending.next += 1;
            sending.on_the_way += chunk.len();
        }
        if messages.is_empty() && self.receiving.acknowledge.is_none_or(|at| at > now) {
            return None;
        }
        sending.sent = sending.sent.max(sending.next);
        if sending.repeat.is_none() && sending.sent > 0 {
            sending.repeat = Some((now + self.retransmit, self.retransmit));
        }
        sending.assert_bounded();
        self.receiving.acknowledge = None;
        self.receiving.untold_bytes = 0;
        Some(ChannelRecord {
            to,
            ack: self.receiving.received,
            first: sending.first + from as u64,
            messages,
        })
    }

    /// A record from the peer; the messages that are now in order.
    pub(crate) fn handle_record(
        &mut self,
        now: Time,
        record: ChannelRecord,
    ) -> Result<Vec<Bytes>, ChannelBroken> {
        self.handle_ack(now, record.ack);
        let mut complete = Vec::new();
        for (offset, chunk) in record.messages.into_iter().enumerate() {
            let number = record.first.saturating_add(offset as u64);
            // What comes again, or before its turn, was lost or is late: the peer waits for word.
            let is_next = number == self.receiving.received + self.receiving.ahead.len() as u64 + 1;
            self.receiving.untold_bytes += chunk.len();
            let wait = if is_next && self.receiving.untold_bytes < MAX_UNTOLD_BYTES {
                self.retransmit / ACKNOWLEDGE_WITHIN
            } else {
                Duration::ZERO
            };
            let at = self.receiving.acknowledge.unwrap_or(now + wait).min(now + wait);
            self.receiving.acknowledge = Some(at);
            self.receiving.keep(number, chunk);
        }
        while let Some(chunk) = self.receiving.ahead.remove(&(self.receiving.received + 1)) {
            self.receiving.received += 1;
            self.receiving.ahead_bytes -= chunk.len();
            complete.extend(self.receiving.assemble(chunk)?);
        }
        self.receiving.assert_in_order();
        Ok(complete)
    }

    fn handle_ack(&mut self, now: Time, ack: u64) {
        let sending = &mut self.sending;
        let acknowledged = ack
            .saturating_add(1)
            .saturating_sub(sending.first)
            .min(sending.sent as u64) as usize;
        if acknowledged == 0 {
            return;
        }
        for (index, chunk) in sending.chunks.drain(..acknowledged).enumerate() {
            sending.bytes -= chunk.len();
            // What was sent before a loss may have come after all.
            if index < sending.next {
                sending.on_the_way -= chunk.len();
            }
        }
        sending.first += acknowledged as u64;
        sending.sent -= acknowledged;
        sending.next = sending.next.saturating_sub(acknowledged);
        sending.window = (sending.window * 2).min(MAX_ON_THE_WAY_BYTES);
        sending.repeat_now = false;
        sending.repeat = (sending.sent > 0).then_some((now + self.retransmit, self.retransmit));
        sending.assert_bounded();
    }

    /// The path came back or the peer was heard after a silence: repeat without waiting for the slowed timer.
    pub(crate) fn hurry(&mut self) {
        if let Some((at, wait)) = self.sending.repeat
            && wait > self.retransmit
        {
            // Half, since the repetition doubles it: one hurry leads to one early repetition, not to one per
            // record.
            self.sending.repeat = Some((at, self.retransmit / 2));
            self.sending.repeat_now = true;
        }
    }

    /// Whether what can wait should not be added to what is queued: far below the bound, and below what a
    /// connection takes at once.
    pub(crate) fn is_crowded(&self) -> bool {
        self.sending.bytes > MAX_UNACKNOWLEDGED_BYTES / 8
    }

    /// Whether all that was queued is acknowledged.
    pub(crate) fn is_empty(&self) -> bool {
        self.sending.chunks.is_empty()
    }

    /// Whether nothing is waited for, here or by the peer.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_empty() && self.sending.repeat.is_none() && self.receiving.acknowledge.is_none()
    }

    /// When [`Channel::poll_record`] has something to repeat, or to acknowledge.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let repeat = self.sending.repeat.map(|(at, _)| at);
        repeat.into_iter().chain(self.receiving.acknowledge).min()
    }
}

impl SendBuffer {
    /// Whether there is another chunk to send, and room for it on the way.
    fn may_go_on(&self) -> bool {
        self.chunks
            .get(self.next)
            .is_some_and(|chunk| self.on_the_way == 0 || self.on_the_way + chunk.len() <= self.window)
    }

    fn assert_bounded(&self) {
        // Each chunk has a mark besides.
        let most = MAX_UNACKNOWLEDGED_BYTES + MAX_MESSAGE_BYTES / MAX_CHUNK_BYTES;
        assert!(
            self.next <= self.sent
                && self.sent <= self.chunks.len()
                && (self.next == 0) == (self.on_the_way == 0)
                && self.on_the_way <= MAX_ON_THE_WAY_BYTES
                && (self.sent == 0 || self.repeat.is_some())
                && self.bytes <= most
                && self.chunks.is_empty() == (self.bytes == 0),
            "channel: {} of {} chunks were sent, of {} bytes",
            self.sent,
            self.chunks.len(),
            self.bytes
        );
    }
}

impl ReceiveBuffer {
    /// What is in order was given out, and the rest is bounded, whatever the peer sends.
    fn assert_in_order(&self) {
        let first = self.ahead.first_key_value().map(|(first, _)| *first);
        assert!(
            first.is_none_or(|first| first > self.received + 1)
                && self.ahead.len() as u64 <= MAX_AHEAD
                && self.ahead_bytes <= MAX_AHEAD_BYTES
                && self.partial.len() <= MAX_MESSAGE_BYTES,
            "channel: received {}, and {} chunks of {} bytes from {first:?} on",
            self.received,
            self.ahead.len(),
            self.ahead_bytes
        );
    }

    /// Keeps a chunk that is new and not too far ahead. A chunk that is dropped here comes again.
    fn keep(&mut self, number: u64, chunk: Bytes) {
        let next = number == self.received + 1;
        let room = number <= self.received + MAX_AHEAD && self.ahead_bytes + chunk.len() <= MAX_AHEAD_BYTES;
        if number > self.received && (next || room) && !self.ahead.contains_key(&number) {
            self.ahead_bytes += chunk.len();
            self.ahead.insert(number, chunk);
        }
    }

    fn assemble(&mut self, chunk: Bytes) -> Result<Option<Bytes>, ChannelBroken> {
        let (mark, body) = match chunk.first() {
            Some(&mark) => (mark, chunk.slice(1..)),
            None => return Err(ChannelBroken),
        };
        if self.partial.len() + body.len() > MAX_MESSAGE_BYTES {
            return Err(ChannelBroken);
        }
        match mark {
            LAST_CHUNK if self.partial.is_empty() => Ok(Some(body)),
            LAST_CHUNK => {
                self.partial.extend_from_slice(&body);
                Ok(Some(std::mem::take(&mut self.partial).into()))
            }
            MORE_CHUNKS => {
                self.partial.extend_from_slice(&body);
                Ok(None)
            }
            _ => Err(ChannelBroken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRANSMIT: Duration = Duration::from_millis(50);
    const PEER: Incarnation = Incarnation(7);

    fn deliver(to: &mut Channel, now: Time, record: Option<ChannelRecord>) -> Vec<Bytes> {
        record
            .map(|record| to.handle_record(now, record).unwrap())
            .unwrap_or_default()
    }

    #[test]
    fn lost_and_doubled_and_reordered_records_deliver_each_message_once_in_order() {
        let (mut a, mut b) = (Channel::new(RETRANSMIT), Channel::new(RETRANSMIT));
        let mut now = Time::ZERO;
        let mut got = Vec::new();
        let mut random = crate::random::Random::new([1, 2, 3, 4]);
        let mut in_flight: Vec<(bool, ChannelRecord)> = Vec::new();
        for i in 0..200u32 {
            a.push(&i.to_le_bytes()).unwrap();
            for _ in 0..3 {
                now = now + Duration::from_millis(20);
                while let Some(record) = a.poll_record(now, PEER) {
                    in_flight.push((true, record));
                }
                while let Some(record) = b.poll_record(now, PEER) {
                    in_flight.push((false, record));
                }
                for _ in 0..in_flight.len() {
                    let (to_b, record) = in_flight.swap_remove(random.below(in_flight.len() as u64) as usize);
                    match random.below(4) {
                        0 => continue,
                        1 => in_flight.push((to_b, record.clone())),
                        _ => {}
                    }
                    let messages = deliver(if to_b { &mut b } else { &mut a }, now, Some(record));
                    got.extend(messages);
                }
            }
        }
        for _ in 0..100 {
            now = now + Duration::from_millis(500);
            while let Some(record) = a.poll_record(now, PEER) {
                got.extend(b.handle_record(now, record).unwrap());
            }
            let record = b.poll_record(now, PEER);
            deliver(&mut a, now, record);
        }
        let expected: Vec<Bytes> = (0..200u32)
            .map(|i| Bytes::copy_from_slice(&i.to_le_bytes()))
            .collect();
        assert_eq!(got, expected);
        assert_eq!(a.next_timeout(), None, "everything was acknowledged");
    }

    #[test]
    fn what_comes_in_turn_is_acknowledged_by_an_answer_or_a_moment_later_and_all_else_at_once() {
        let (mut a, mut b) = (Channel::new(RETRANSMIT), Channel::new(RETRANSMIT));
        let send = |a: &mut Channel, text: &[u8]| {
            a.push(text).unwrap();
            a.poll_record(Time::ZERO, PEER).unwrap()
        };
        let first = send(&mut a, b"1");
        deliver(&mut b, Time::ZERO, Some(first.clone()));
        assert_eq!(b.poll_record(Time::ZERO, PEER), None);
        let later = b.next_timeout().unwrap();
        assert!(later > Time::ZERO && later < Time::ZERO + RETRANSMIT / 2);
        assert_eq!(b.clone().poll_record(later, PEER).unwrap().ack, 1);
        b.push(b"answer").unwrap();
        assert_eq!(
            b.poll_record(Time::ZERO, PEER).unwrap().ack,
            1,
            "on its way with the answer"
        );
        // The same again, and one before its turn.
        deliver(&mut b, Time::ZERO, Some(first));
        assert_eq!(b.poll_record(Time::ZERO, PEER).unwrap().ack, 1);
        let (second, third) = (send(&mut a, b"2"), send(&mut a, b"3"));
        deliver(&mut b, Time::ZERO, Some(third));
        assert_eq!(b.poll_record(Time::ZERO, PEER).unwrap().ack, 1);
        deliver(&mut b, Time::ZERO, Some(second));
        assert_eq!(b.poll_record(Time::ZERO, PEER).unwrap().ack, 3);
        // Much of it.
        let chunk = vec![0; MAX_CHUNK_BYTES];
        let told = (0..100).find(|_| {
            let record = send(&mut a, &chunk);
            deliver(&mut b, Time::ZERO, Some(record));
            b.poll_record(Time::ZERO, PEER).is_some()
        });
        let until_told = MAX_UNTOLD_BYTES.div_ceil(MAX_CHUNK_BYTES + 1) - 1;
        assert_eq!(told, Some(until_told));
    }

    #[test]
    fn a_message_larger_than_a_frame_arrives_whole() {
        let (mut a, mut b) = (Channel::new(RETRANSMIT), Channel::new(RETRANSMIT));
        let message: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        a.push(&message).unwrap();
        let mut got = Vec::new();
        while let Some(record) = a.poll_record(Time::ZERO, PEER) {
            assert!(record.messages.iter().map(Bytes::len).sum::<usize>() <= MAX_RECORD_BYTES);
            got.extend(b.handle_record(Time::ZERO, record).unwrap());
        }
        assert_eq!(got, [Bytes::from(message)]);
    }

    /// What goes from `a` to `b` and back within a millisecond each, from `now` on until all is acknowledged:
    /// what came, how many bytes were sent, and when that was.
    fn exchange(a: &mut Channel, b: &mut Channel, mut now: Time) -> (Vec<Bytes>, usize, Time) {
        let (mut got, mut bytes) = (Vec::new(), 0);
        while !a.is_empty() {
            now = now + Duration::from_millis(1);
            while let Some(record) = a.poll_record(now, PEER) {
                bytes += record.messages.iter().map(Bytes::len).sum::<usize>();
                got.extend(b.handle_record(now, record).unwrap());
            }
            now = now + Duration::from_millis(1);
            while let Some(record) = b.poll_record(now, PEER) {
                deliver(a, now, Some(record));
            }
            assert!(now < Time::ZERO + RETRANSMIT * 100, "it takes for ever");
        }
        (got, bytes, now)
    }

    #[test]
    fn what_a_broken_connection_lost_comes_again_in_a_few_round_trips() {
        let (mut a, mut b) = (Channel::new(RETRANSMIT), Channel::new(RETRANSMIT));
        let message = vec![7; 1 << 20];
        (0..2).for_each(|_| a.push(&message).unwrap());
        let lost = std::iter::from_fn(|| a.poll_record(Time::ZERO, PEER));
        let lost: usize = lost
            .flat_map(|record| record.messages)
            .map(|chunk| chunk.len())
            .sum();
        assert!(
            lost <= MAX_ON_THE_WAY_BYTES && lost > MAX_ON_THE_WAY_BYTES / 2,
            "{lost}"
        );
        let (got, bytes, ended) = exchange(&mut a, &mut b, Time::ZERO);
        assert_eq!(got, [&message[..], &message[..]]);
        assert!(bytes <= 2 * message.len() + 100, "{bytes} bytes");
        assert!(ended <= Time::ZERO + RETRANSMIT * 2, "{ended:?}");
    }

    #[test]
    fn one_lost_record_costs_one_record() {
        let (mut a, mut b) = (Channel::new(RETRANSMIT), Channel::new(RETRANSMIT));
        let message = vec![7; 8 * MAX_CHUNK_BYTES];
        a.push(&message).unwrap();
        a.poll_record(Time::ZERO, PEER).unwrap();
        while let Some(record) = a.poll_record(Time::ZERO, PEER) {
            assert_eq!(deliver(&mut b, Time::ZERO, Some(record)), [] as [Bytes; 0]);
        }
        b.poll_record(Time::ZERO, PEER).unwrap();
        let (got, bytes, _) = exchange(&mut a, &mut b, Time::ZERO);
        assert_eq!(got, [message]);
        assert!(bytes <= MAX_RECORD_BYTES, "{bytes} bytes");
    }

    #[test]
    fn a_peer_that_never_acknowledges_breaks_the_link_instead_of_memory() {
        let mut channel = Channel::new(RETRANSMIT);
        let message = vec![0; 1 << 20];
        let pushed = (0..100).take_while(|_| channel.push(&message).is_ok()).count();
        assert!(pushed < 9);
        assert_eq!(channel.push(&message), Err(ChannelBroken));
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_ignored() {
        let mut channel = Channel::new(RETRANSMIT);
        channel.push(b"x").unwrap();
        channel
            .handle_record(
                Time::ZERO,
                ChannelRecord {
                    to: PEER,
                    ack: u64::MAX - 1,
                    first: u64::MAX,
                    messages: vec![Bytes::new()],
                },
            )
            .unwrap();
        assert_eq!(channel.poll_record(Time::ZERO, PEER).unwrap().first, 1);
    }
}
