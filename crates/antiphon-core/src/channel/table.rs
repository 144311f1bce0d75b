//! All channels of one node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use antiphon_wire::Incarnation;
use antiphon_wire::record::ChannelRecord;
use bytes::Bytes;

use super::{Channel, ChannelBroken, MAX_CHANNELS};
use crate::Time;

/// The channels by peer. Those with an address are in use; the others are parked, or were made by a peer that
/// this node does not know yet: they receive but cannot answer.
#[derive(Debug, Clone)]
pub(crate) struct Channels {
    retransmit: Duration,
    entries: BTreeMap<Incarnation, Entry>,
    /// Channels that may have something to send.
    dirty: BTreeSet<Incarnation>,
    /// All channels in use that wait for something, and some that do not. A node of a large cluster keeps
    /// channels to many that it does not speak to any more, and the clock is asked at each input.
    busy: BTreeSet<Incarnation>,
}

#[derive(Debug, Clone)]
struct Entry {
    addr: Option<SocketAddr>,
    channel: Channel,
    broken: bool,
    /// Its view has departed from the peer: most likely it is never used again.
    departed: bool,
    last_used: Time,
}

impl Channels {
    pub(crate) fn new(retransmit: Duration) -> Self {
        Self {
            retransmit,
            entries: BTreeMap::new(),
            dirty: BTreeSet::new(),
            busy: BTreeSet::new(),
        }
    }

    /// Something happened to the channel: it may have something to send, or to wait for.
    fn touch(&mut self, peer: Incarnation) {
        self.dirty.insert(peer);
        self.busy.insert(peer);
    }

    /// The channel has nothing to send now, or may not.
    fn rest(&mut self, peer: Incarnation) {
        self.dirty.remove(&peer);
        if self
            .entries
            .get(&peer)
            .is_none_or(|entry| entry.addr.is_none() || entry.channel.is_idle())
        {
            self.busy.remove(&peer);
        }
    }

    fn busy(&self) -> impl Iterator<Item = (&Incarnation, &Entry)> {
        self.busy
            .iter()
            .filter_map(|peer| Some((peer, self.entries.get(peer)?)))
    }

    /// Takes the channel to this peer into use.
    pub(crate) fn connect(&mut self, now: Time, peer: Incarnation, addr: SocketAddr) {
        let entry = self.entry(now, peer);
        (entry.addr, entry.departed) = (Some(addr), false);
        self.touch(peer);
    }

    /// Parks the channel: nothing more is sent until it is taken into use again.
    pub(crate) fn park(&mut self, peer: Incarnation) {
        if let Some(entry) = self.entries.get_mut(&peer) {
            entry.addr = None;
        }
        self.rest(peer);
    }

    /// The peer was removed, or has left. Where there is no room for another channel, its own goes first: of
    /// a member that lives, both ends must go on where they were.
    pub(crate) fn departed(&mut self, peer: Incarnation) {
        if let Some(entry) = self.entries.get_mut(&peer) {
            entry.departed = true;
        }
    }

    /// Where the peer is, if its channel is in use.
    pub(crate) fn addr(&self, peer: Incarnation) -> Option<SocketAddr> {
        self.entries.get(&peer).and_then(|entry| entry.addr)
    }

    /// Whether something that was queued for the peer is not acknowledged.
    pub(crate) fn owes(&self, peer: Incarnation) -> bool {
        self.entries
            .get(&peer)
            .is_some_and(|entry| !entry.broken && !entry.channel.is_empty())
    }

    /// Peers that have not acknowledged much of what was queued for them.
    pub(crate) fn crowded(&self) -> BTreeSet<Incarnation> {
        let crowded = self.busy().filter(|(_, entry)| entry.channel.is_crowded());
        crowded.map(|(peer, _)| *peer).collect()
    }

    /// What was received from this peer, or from all, is acknowledged at once: there may be no later for it.
    pub(crate) fn acknowledge_now(&mut self, now: Time, of: Option<Incarnation>) {
        for peer in self.busy.iter().filter(|peer| of.is_none_or(|of| of == **peer)) {
            let Some(entry) = self.entries.get_mut(peer) else {
                continue;
            };
            entry.channel.acknowledge_now(now);
            if entry.addr.is_some() && entry.channel.is_due(now) {
                self.dirty.insert(*peer);
            }
        }
    }

    /// Queues a message.
    pub(crate) fn push(&mut self, now: Time, peer: Incarnation, message: &[u8]) -> Result<(), ChannelBroken> {
        let entry = self.entry(now, peer);
        if entry.broken {
            return Err(ChannelBroken);
        }
        let pushed = entry.channel.push(message);
        self.touch(peer);
        pushed
    }

    /// Nothing is sent and nothing is delivered on this channel any more. False if that was so before.
    pub(crate) fn break_off(&mut self, peer: Incarnation) -> bool {
        let entry = self.entries.get_mut(&peer);
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.broken, true))
    }

    /// A record from the peer; the messages that are now in order.
    pub(crate) fn handle_record(
        &mut self,
        now: Time,
        peer: Incarnation,
        record: ChannelRecord,
    ) -> Result<Vec<Bytes>, ChannelBroken> {
        let entry = self.entry(now, peer);
        if entry.broken {
            return Err(ChannelBroken);
        }
        entry.channel.hurry();
        let messages = entry.channel.handle_record(now, record);
        self.touch(peer);
        self.assert_bounded();
        messages
    }

    /// The next record that is due, with its destination. At most one record per call; call until `None`.
    pub(crate) fn poll_record(&mut self, now: Time) -> Option<(Incarnation, SocketAddr, ChannelRecord)> {
        while let Some(peer) = self.dirty.first().copied() {
            if let Some(Entry {
                addr: Some(addr),
                channel,
                broken: false,
                ..
            }) = self.entries.get_mut(&peer)
                && let Some(record) = channel.poll_record(now, peer)
            {
                return Some((peer, *addr, record));
            }
            self.rest(peer);
        }
        None
    }

    /// Marks the channels whose repetition is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let due = self
            .busy()
            .filter(|(_, entry)| entry.addr.is_some() && entry.channel.is_due(now));
        let due: Vec<Incarnation> = due.map(|(peer, _)| *peer).collect();
        self.dirty.extend(due);
    }

    pub(crate) fn next_timeout(&self) -> Option<Time> {
        self.busy()
            .filter(|(_, entry)| entry.addr.is_some() && !entry.broken)
            .filter_map(|(_, entry)| entry.channel.next_timeout())
            .min()
    }

    fn entry(&mut self, now: Time, peer: Incarnation) -> &mut Entry {
        if !self.entries.contains_key(&peer) && self.entries.len() >= MAX_CHANNELS {
            let oldest = self
                .entries
                .iter()
                .filter(|(_, entry)| entry.addr.is_none())
                .min_by_key(|(_, entry)| (!entry.departed, entry.last_used))
                .map(|(peer, _)| *peer);
            if let Some(oldest) = oldest {
                self.entries.remove(&oldest);
                self.busy.remove(&oldest);
            }
        }
        let entry = self.entries.entry(peer).or_insert_with(|| Entry {
            addr: None,
            channel: Channel::new(self.retransmit),
            broken: false,
            departed: false,
            last_used: now,
        });
        entry.last_used = now;
        entry
    }

    /// Membership speaks to [`MAX_CHANNELS`] peers at most. While that changes, as many more are about to be
    /// parked.
    fn assert_bounded(&self) {
        let count = self.entries.len();
        assert!(count <= 2 * MAX_CHANNELS, "channel: {count} channels are kept");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Incarnation = Incarnation(7);
    const OTHER: Incarnation = Incarnation(8);

    fn acknowledged(channels: &mut Channels) -> Vec<Incarnation> {
        std::iter::from_fn(|| channels.poll_record(Time::ZERO))
            .map(|(peer, _, record)| (peer, assert_eq!(record.ack, 1)).0)
            .collect()
    }

    #[test]
    fn whoever_may_not_be_spoken_to_later_has_its_acknowledgement_at_once() {
        let now = Time::ZERO;
        let mut channels = Channels::new(Duration::from_millis(50));
        for peer in [PEER, OTHER] {
            channels.connect(now, peer, ([127, 0, 0, 1], 7400).into());
            let mut sender = Channel::new(Duration::from_millis(50));
            sender.push(b"something").unwrap();
            let record = sender.poll_record(now, Incarnation(1)).unwrap();
            channels.handle_record(now, peer, record).unwrap();
        }
        assert_eq!(acknowledged(&mut channels), [], "it waits for an answer");
        channels.acknowledge_now(now, Some(OTHER));
        assert_eq!(acknowledged(&mut channels), [OTHER]);
        channels.acknowledge_now(now, None);
        assert_eq!(acknowledged(&mut channels), [PEER]);
    }

    #[test]
    fn a_parked_channel_of_the_departed_waits_for_nothing_and_goes_before_that_of_a_member() {
        let now = Time::ZERO;
        let mut channels = Channels::new(Duration::from_millis(50));
        let connect = |channels: &mut Channels, peer| {
            channels.connect(now, peer, ([127, 0, 0, 1], 7400).into());
            channels.push(now, peer, b"something").unwrap();
            while channels.poll_record(now).is_some() {}
        };
        // It departed from a view, and came back.
        connect(&mut channels, PEER);
        channels.departed(PEER);
        connect(&mut channels, PEER);
        channels.park(PEER);
        for number in 0..MAX_CHANNELS as u128 {
            let gone = Incarnation(1000 + number);
            connect(&mut channels, gone);
            channels.departed(gone);
            channels.park(gone);
        }
        assert!(channels.busy.is_empty());
        channels.connect(now, PEER, ([127, 0, 0, 1], 7400).into());
        channels.push(now, PEER, b"more").unwrap();
        let sent = std::iter::from_fn(|| channels.poll_record(now)).last();
        assert_eq!(sent.map(|(_, _, record)| record.first), Some(3), "it goes on");
    }

    #[test]
    fn a_channel_that_broke_says_so_for_ever_and_neither_sends_nor_delivers() {
        let now = Time::ZERO;
        let mut channels = Channels::new(Duration::from_millis(50));
        channels.connect(now, PEER, ([127, 0, 0, 1], 7400).into());
        channels.push(now, PEER, b"before").unwrap();
        assert!(channels.break_off(PEER) && !channels.break_off(PEER));
        assert_eq!(channels.push(now, PEER, b"after"), Err(ChannelBroken));
        let mut sender = Channel::new(Duration::from_millis(50));
        sender.push(b"something").unwrap();
        let record = sender.poll_record(now, Incarnation(1)).unwrap();
        assert_eq!(channels.handle_record(now, PEER, record), Err(ChannelBroken));
        channels.handle_timeout(now + Duration::from_secs(1));
        assert_eq!(channels.poll_record(now + Duration::from_secs(1)), None);
        assert!(!channels.owes(PEER) && channels.next_timeout().is_none());
    }

    /// What the busy channels say must be what all channels would say, whatever happened to them.
    #[test]
    fn no_link_that_waits_for_something_is_left_out() {
        let mut random = crate::random::Random::new([5, 6, 7, 8]);
        let (mut here, mut there) = (
            Channels::new(Duration::from_millis(50)),
            Channels::new(Duration::from_millis(50)),
        );
        let (me, addr) = (Incarnation(1), SocketAddr::from(([127, 0, 0, 1], 7400)));
        let mut now = Time::ZERO;
        let mut waited = 0;
        for _ in 0..20_000 {
            now = now + Duration::from_millis(random.below(20));
            let peer = Incarnation(u128::from(2 + random.below(6)));
            match random.below(8) {
                0 => here.connect(now, peer, addr),
                1 => here.park(peer),
                2 | 3 => here.push(now, peer, &[0; 100]).unwrap(),
                4 => here.acknowledge_now(now, Some(peer).filter(|_| random.below(2) == 0)),
                5 => here.handle_timeout(now),
                // The peer's own channel to this node, by which it acknowledges and says something as well.
                6 => {
                    there.connect(now, peer, addr);
                    there.push(now, peer, b"something").unwrap();
                    there.handle_timeout(now);
                    while let Some((peer, _, record)) = there.poll_record(now) {
                        here.handle_record(now, peer, record).unwrap();
                    }
                }
                _ => {
                    while let Some((peer, _, record)) = here.poll_record(now) {
                        let record = ChannelRecord { to: me, ..record };
                        if random.below(4) > 0 {
                            there.handle_record(now, peer, record).unwrap();
                        }
                    }
                }
            }
            let all = here.entries.iter();
            let used = all
                .clone()
                .filter(|(_, entry)| entry.addr.is_some() && !entry.broken);
            let next = used.filter_map(|(_, entry)| entry.channel.next_timeout()).min();
            assert_eq!(here.next_timeout(), next);
            let left_out = all.filter(|(peer, _)| !here.busy.contains(peer));
            assert!(
                left_out
                    .into_iter()
                    .all(|(_, entry)| entry.addr.is_none() || entry.channel.is_idle())
            );
            waited += usize::from(here.busy.len() < here.entries.len());
        }
        assert!(waited > 1000, "idle channels were left out {waited} times");
    }
}
