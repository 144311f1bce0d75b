//! What others send by multicast: one task reads the socket and puts frames together.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_wire::datagram::{Assembly, Datagram, Inserted, MAX_AHEAD, Segment, decode};
use bytes::Bytes;
use quinn_udp::RecvMeta;

use crate::tcp::{Common, canonical};
use crate::udp::memory::Memory;
use crate::udp::socket::Datagrams;
use crate::{Connection, Input};

/// What one read brings at most, as for sessions.
const BUFFERS: usize = 8;
const BUFFER_BYTES: usize = 1 << 16;
/// How long frames wait for a frame before them: multicast sends nothing again.
const HOLD: Duration = Duration::from_millis(10);
/// Streams heard at a time.
const MAX_STREAMS: usize = 1024;
/// Of those, from one IP address.
const MAX_STREAMS_PER_IP: usize = 128;
/// Of all streams, those that have brought nothing authentic yet.
const MAX_STRANGERS: usize = 128;
/// The most bytes of a stream that has brought nothing authentic yet, and of any other.
const STRANGER_BYTES: usize = 128 << 10;
const MEMBER_BYTES: usize = 2 << 20;
/// A stream that was not heard for this long is forgotten.
const STALE: Duration = Duration::from_secs(30);
/// If a stream brought only segments of no use for this long, it begins anew: a host may have forged numbers
/// far ahead of its sender's.
const USELESS: Duration = Duration::from_secs(1);

pub(super) struct Hearing {
    common: Arc<Common>,
    ears: Datagrams,
    /// This node's own stream, which comes back.
    own: u64,
    streams: Streams,
    memory: Memory,
    swept: Instant,
}

/// By the sender's address and the number that it gave the stream.
type Streams = BTreeMap<(SocketAddr, u64), Stream>;

struct Stream {
    connection: Connection,
    assembly: Assembly,
    opened: Instant,
    /// When a segment was of use last.
    heard: Instant,
    /// Since when none was, though some came.
    useless: Option<Instant>,
    /// Since when frames wait for a frame before them.
    blocked: Option<Instant>,
}

impl Stream {
    fn new(now: Instant, connection: Connection) -> Self {
        Self {
            connection,
            assembly: Assembly::new(STRANGER_BYTES),
            opened: now,
            heard: now,
            useless: None,
            blocked: None,
        }
    }

    fn insert(&mut self, now: Instant, segment: &Segment<'_>, memory: &mut Memory) {
        // Segments are not authentic. Once frames of a stream are, a number that no sender can have reached
        // in the meantime is not followed.
        let floor = segment.number.saturating_sub(segment.behind.into());
        let too_far =
            self.connection.is_authenticated() && floor > self.assembly.seen().saturating_add(MAX_AHEAD);
        let room = |bytes| memory.room(&self.connection, bytes);
        if !too_far && self.assembly.insert(segment, room) == Inserted::Taken {
            self.heard = now;
            self.useless = None;
        } else {
            self.useless.get_or_insert(now);
        }
    }

    /// Whether it is over: closed, or of no use for so long that it is better begun anew.
    fn is_over(&self, now: Instant) -> bool {
        let useless = |since| now.duration_since(since) >= USELESS;
        self.connection.is_closed() || self.useless.is_some_and(useless)
    }
}

impl Hearing {
    pub(super) fn new(common: Arc<Common>, ears: Datagrams, own: u64) -> Self {
        Self {
            common,
            ears,
            own,
            streams: BTreeMap::new(),
            memory: Memory::default(),
            swept: Instant::now(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut buffers = vec![0; BUFFERS * BUFFER_BYTES];
        loop {
            let wake = self.streams.values().filter_map(|stream| stream.blocked).min();
            tokio::select! {
                readable = self.ears.readable() => {
                    if readable.is_err() {
                        return;
                    }
                    if !self.read(&mut buffers).await {
                        return;
                    }
                }
                () = async {
                    if let Some(since) = wake {
                        tokio::time::sleep_until((since + HOLD).into()).await;
                    }
                }, if wake.is_some() => {
                    if !self.give_up().await {
                        return;
                    }
                }
            }
        }
    }

    /// Reads what is there; false if the driver is gone.
    async fn read(&mut self, buffers: &mut [u8]) -> bool {
        let now = Instant::now();
        let mut touched = Vec::new();
        let mut meta = [RecvMeta::default(); BUFFERS];
        let count = {
            let mut chunks = buffers.chunks_exact_mut(BUFFER_BYTES);
            let mut slices: [IoSliceMut<'_>; BUFFERS] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            // Errors of a datagram socket are about single datagrams; there is nothing to read then.
            self.ears.try_receive(&mut slices, &mut meta).unwrap_or(0)
        };
        for (meta, buffer) in meta.iter().take(count).zip(buffers.chunks_exact(BUFFER_BYTES)) {
            let remote = canonical(meta.addr);
            for bytes in buffer[..meta.len].chunks(meta.stride.max(1)) {
                match decode(bytes) {
                    Ok(Datagram::Segment(segment)) if segment.session == self.own => {}
                    Ok(Datagram::Segment(segment)) => {
                        let key = (remote, segment.session);
                        if self.insert(now, key, &segment) && touched.last() != Some(&key) {
                            touched.push(key);
                        }
                    }
                    // No other datagram is sent to all.
                    Ok(_) => {}
                    Err(error) => self.common.refusals.datagram(remote, &error),
                }
            }
        }
        for key in touched {
            if !self.hand_over(now, key).await {
                return false;
            }
        }
        self.sweep(now);
        true
    }

    fn insert(&mut self, now: Instant, key: (SocketAddr, u64), segment: &Segment<'_>) -> bool {
        if self.streams.get(&key).is_some_and(|stream| stream.is_over(now)) {
            self.streams.remove(&key);
        }
        if !self.streams.contains_key(&key) {
            if !make_room(&mut self.streams, key.0.ip()) {
                return false;
            }
            let connection = Connection::by_multicast(key.0, self.common.refusals.clone());
            self.streams.insert(key, Stream::new(now, connection));
        }
        let Some(stream) = self.streams.get_mut(&key) else {
            return false;
        };
        stream.insert(now, segment, &mut self.memory);
        true
    }

    /// Hands over what is whole; false if the driver is gone.
    async fn hand_over(&mut self, now: Instant, key: (SocketAddr, u64)) -> bool {
        let Some(stream) = self.streams.get_mut(&key) else {
            return true;
        };
        let frames: Vec<Bytes> = std::iter::from_fn(|| stream.assembly.take()).collect();
        // What is lost here is counted where it is missed.
        stream.assembly.take_lost();
        if stream.connection.is_authenticated() {
            stream.assembly.set_limit(MEMBER_BYTES);
        }
        stream.blocked = match stream.blocked {
            _ if !stream.assembly.is_blocked() => None,
            Some(since) if frames.is_empty() => Some(since),
            _ => Some(now),
        };
        if frames.is_empty() {
            return true;
        }
        self.common.counters.received(&frames);
        let input = Input::Frames {
            from: key.0,
            connection: stream.connection.clone(),
            frames,
        };
        self.common.inputs.bulk.send(input).await.is_ok()
    }

    /// Waits no longer for what was lost.
    async fn give_up(&mut self) -> bool {
        let now = Instant::now();
        let due: Vec<(SocketAddr, u64)> = self
            .streams
            .iter()
            .filter(|(_, stream)| {
                stream
                    .blocked
                    .is_some_and(|since| now.duration_since(since) >= HOLD)
            })
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            if let Some(stream) = self.streams.get_mut(&key) {
                stream.assembly.give_up_front();
                stream.blocked = None;
            }
            if !self.hand_over(now, key).await {
                return false;
            }
        }
        true
    }

    fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) >= STALE / 10 {
            self.swept = now;
            self.streams.retain(|_, stream| {
                now.duration_since(stream.heard) < STALE && !stream.connection.is_closed()
            });
        }
    }
}

/// Makes room for one more stream from this IP address; false if there is none.
///
/// Any host can open streams with another host's address. So where a limit is met the oldest stranger goes,
/// and not the newcomer: it may be a member's.
fn make_room(streams: &mut Streams, ip: IpAddr) -> bool {
    let of_ip = |remote: &SocketAddr| remote.ip() == ip;
    if streams.keys().filter(|(remote, _)| of_ip(remote)).count() >= MAX_STREAMS_PER_IP
        && !forget_oldest_stranger(streams, of_ip)
    {
        return false;
    }
    let strangers = streams
        .values()
        .filter(|stream| !stream.connection.is_authenticated());
    if strangers.count() >= MAX_STRANGERS || streams.len() >= MAX_STREAMS {
        return forget_oldest_stranger(streams, |_| true);
    }
    true
}

/// Forgets the oldest stream that has brought nothing authentic, of those addresses; false if there is none.
fn forget_oldest_stranger(streams: &mut Streams, of: impl Fn(&SocketAddr) -> bool) -> bool {
    let oldest = streams
        .iter()
        .filter(|((remote, _), stream)| of(remote) && !stream.connection.is_authenticated())
        .min_by_key(|(_, stream)| stream.opened)
        .map(|(key, _)| *key);
    oldest.is_some_and(|oldest| streams.remove(&oldest).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::refusals::Refusals;

    fn insert(stream: &mut Stream, now: Instant, number: u64) -> bool {
        let segment = Segment {
            session: 1,
            number,
            behind: 0,
            length: 4,
            size: 4,
            index: 0,
            report_at_once: false,
            bytes: b"text",
        };
        stream.insert(now, &segment, &mut Memory::default());
        stream.assembly.take().is_some()
    }

    #[test]
    fn a_forged_number_far_ahead_silences_nobody_who_was_heard() {
        let now = Instant::now();
        let remote = SocketAddr::from(([10, 0, 0, 1], 7));
        let mut stream = Stream::new(now, Connection::by_multicast(remote, Refusals::default()));
        assert!(insert(&mut stream, now, 1));
        stream.connection.accepted();
        assert!(!insert(&mut stream, now, 1 << 62));
        assert!(insert(&mut stream, now, 2));
        assert!(!stream.is_over(now + USELESS), "it was of use since");
    }

    #[test]
    fn one_that_was_forged_before_its_sender_was_heard_begins_anew_after_a_second() {
        let now = Instant::now();
        let remote = SocketAddr::from(([10, 0, 0, 1], 7));
        let mut stream = Stream::new(now, Connection::by_multicast(remote, Refusals::default()));
        assert!(insert(&mut stream, now, 1 << 62));
        assert!(
            !insert(&mut stream, now, 1),
            "the sender's own comes too late now"
        );
        let later = now + USELESS - Duration::from_millis(1);
        assert!(!insert(&mut stream, later, 2));
        assert!(!stream.is_over(later));
        assert!(stream.is_over(now + USELESS));
    }

    /// Opens a stream from this IP address, if there is room.
    fn open(streams: &mut Streams, ip: [u8; 4], number: u64, opened: Instant, is_member: bool) -> bool {
        let remote = SocketAddr::from((ip, 7));
        if !make_room(streams, remote.ip()) {
            return false;
        }
        let stream = Stream::new(opened, Connection::by_multicast(remote, Refusals::default()));
        if is_member {
            stream.connection.accepted();
        }
        streams.insert((remote, number), stream);
        true
    }

    const IP: [u8; 4] = [10, 0, 0, 1];

    #[test]
    fn strange_streams_from_a_members_address_do_not_keep_its_new_stream_out() {
        let now = Instant::now();
        let mut streams = Streams::new();
        assert!(open(&mut streams, IP, 0, now, true));
        for number in 1..=MAX_STREAMS_PER_IP as u64 {
            let opened = now + Duration::from_millis(number);
            assert!(open(&mut streams, IP, number, opened, false), "{number}");
        }
        assert!(open(&mut streams, IP, 1000, now + STALE, false));
        assert_eq!(streams.len(), MAX_STREAMS_PER_IP);
        let numbers: Vec<u64> = streams.keys().take(2).map(|(_, number)| *number).collect();
        assert_eq!(numbers, [0, 3], "the oldest strangers went");
    }

    #[test]
    fn a_stream_is_refused_only_where_all_others_are_members() {
        let now = Instant::now();
        let mut streams = Streams::new();
        for number in 0..MAX_STREAMS_PER_IP as u64 {
            assert!(open(&mut streams, IP, number, now, true));
        }
        assert!(open(&mut streams, [10, 0, 1, 0], 0, now, false));
        assert!(
            !open(&mut streams, IP, 1000, now, false),
            "the stranger is of another address"
        );
        for at in streams.len()..MAX_STREAMS {
            let ip = [10, 0, 2 + (at / 100) as u8, 0];
            assert!(open(&mut streams, ip, at as u64, now, true));
        }
        assert!(open(&mut streams, [10, 9, 0, 0], 0, now, true), "a stranger goes");
        assert!(!open(&mut streams, [10, 9, 0, 0], 1, now, false));
        assert_eq!(streams.len(), MAX_STREAMS);
    }
}
