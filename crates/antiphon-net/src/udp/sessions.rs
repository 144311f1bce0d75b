//! What others send to this node by UDP: one task reads the socket, puts frames together and reports what has
//! arrived.
//!
//! ```text
//!  datagrams ─┬─ hello ───► welcome, with a cookie; with the cookie a session opens
//!             ├─ segment ─► its session's assembly ─► frames in order ─► driver ─► report to the sender
//!             └─ welcome, report, unknown session ─► the flow that they are for (flow.rs)
//! ```
//! A report is sent for what the driver has. As long as the driver does not take frames, nothing is reported,
//! and senders stop when their windows are full. So nothing is ever dropped because an application is slow.
//!
//! # Bounds
//! A host that cannot receive at the address that its datagrams claim costs one hash and one small datagram.
//! The cookie is a hash of its address under a secret, so nothing is remembered of it. Sessions are limited
//! in number, and for each IP address. While the core has taken no frame of a session for authentic, the
//! session may hold 128 KiB, and the oldest such sessions make room for newcomers. Other sessions may each
//! hold twice their share of the kernel's buffer.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::pin::Pin;
use std::slice::Chunks;
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_wire::datagram::{Assembly, Datagram, Gap, Hello, Inserted, Report, Segment, Welcome, decode};
use bytes::Bytes;
use quinn_udp::RecvMeta;
use tokio::sync::mpsc::OwnedPermit;
use tokio::sync::mpsc::error::{SendError, TrySendError};

use super::Shared;
use super::flow::Answer;
use super::memory::Memory;
use super::probes;
use super::socket::AddressPair;
use crate::{Connection, Input};

/// One read brings at most so much: few enough bytes to be still in the cache when frames are made of them.
const BUFFERS: usize = 8;
/// The kernel joins datagrams up to this.
const BUFFER_BYTES: usize = 1 << 16;
/// Reads in a row before frames are handed over.
const READS: usize = 2;
/// How long a report may wait for more to report.
const REPORT_WITHIN: Duration = Duration::from_millis(5);
/// What is missing is named again after this, and then after twice as long each time.
const MAX_REPORT_EVERY: Duration = Duration::from_millis(40);
/// How long frames wait for a frame before them. Senders give up sooner on what they will not repair.
const HOLD: Duration = Duration::from_millis(400);
/// A session that brought something within this time has a share in the buffer.
const ACTIVE: Duration = Duration::from_secs(1);
/// Between two looks for sessions that no sender uses.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// A session that has parts of frames and gets no more of them is over after this.
const STALE: Duration = Duration::from_secs(10);
/// The most bytes that a session may hold before it has brought anything authentic.
const STRANGER_BYTES: usize = 128 << 10;
/// The bounds of a share: a frame of any size must fit, and more than this is never of use.
const SHARE_BYTES: std::ops::RangeInclusive<usize> = 80 << 10..=4 << 20;
/// Frames that wait for the driver; no more is read then.
const MAX_PENDING_BYTES: usize = 8 << 20;
/// Answers to unknown sessions between two sweeps.
const MAX_UNKNOWN: u32 = 1000;

pub(super) struct Receiver {
    shared: Arc<Shared>,
    secret: RandomState,
    sessions: BTreeMap<u64, Session>,
    memory: Memory,
    /// Frames that the driver had no room for.
    pending: VecDeque<Input>,
    pending_bytes: usize,
    /// Sessions that a read has brought something for.
    touched: Vec<u64>,
    /// Bytes that a sender may have on its way.
    share: usize,
    swept: Instant,
    unknown: u32,
    /// When to look after sessions at the latest.
    wake: Option<Instant>,
    /// The datagram to send, used again.
    out: Vec<u8>,
}

struct Session {
    /// The addresses that its sender sends from and to.
    pair: AddressPair,
    /// The sender's advertised address.
    from: SocketAddr,
    flow: u64,
    connection: Connection,
    assembly: Assembly,
    opened: Instant,
    heard: Instant,
    /// Since when frames wait for a frame before them.
    blocked: Option<Instant>,
    touched: bool,
    /// Bytes not reported yet.
    unreported: usize,
    /// A report was asked for.
    at_once: bool,
    /// A report is due.
    due: Option<Instant>,
    /// How long the next one after it may wait if something is still missing.
    every: Duration,
    reported_seen: u64,
}

/// A place in the driver's queue, as soon as there is one.
type Place = Pin<Box<dyn Future<Output = Result<OwnedPermit<Input>, SendError<()>>> + Send>>;

impl Receiver {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            share: shared.share(1),
            shared,
            secret: RandomState::new(),
            sessions: BTreeMap::new(),
            memory: Memory::default(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            touched: Vec::new(),
            swept: Instant::now(),
            unknown: 0,
            wake: None,
            out: Vec::new(),
        }
    }

    /// Runs until it is aborted, or until the driver is gone.
    pub(super) async fn run(mut self) {
        let mut buffers = vec![0; BUFFERS * BUFFER_BYTES];
        // Kept until it is used. A place that is asked for anew comes after those of all connections that
        // wait for the driver, and this task wakes too often to get there.
        let mut place: Option<Place> = None;
        loop {
            if place.is_none() && !self.pending.is_empty() {
                place = Some(Box::pin(self.shared.tcp.inputs.bulk.clone().reserve_owned()));
            }
            let may_read = self.pending_bytes < MAX_PENDING_BYTES;
            tokio::select! {
                readable = self.shared.socket.readable(), if may_read => {
                    if readable.is_err() {
                        return;
                    }
                    let now = Instant::now();
                    self.read(now, &mut buffers);
                    self.hand_over_touched(now);
                }
                room = async {
                    match &mut place {
                        Some(place) => place.await,
                        None => std::future::pending().await,
                    }
                } => {
                    place = None;
                    let Ok(room) = room else { return };
                    if let Some(input) = self.pending.pop_front() {
                        self.pending_bytes -= bytes_of(&input);
                        room.send(input);
                    }
                }
                () = async {
                    if let Some(wake) = self.wake {
                        tokio::time::sleep_until(wake.into()).await;
                    }
                }, if self.wake.is_some() => self.look_after(Instant::now()),
            }
        }
    }

    fn read(&mut self, now: Instant, buffers: &mut [u8]) {
        for _ in 0..READS {
            let mut meta = [RecvMeta::default(); BUFFERS];
            let mut chunks = buffers.chunks_exact_mut(BUFFER_BYTES);
            let mut slices: [IoSliceMut<'_>; BUFFERS] =
                std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
            // Errors of a datagram socket are about single datagrams; there is nothing to read then.
            let Ok(count) = self.shared.socket.try_receive(&mut slices, &mut meta) else {
                return;
            };
            for (meta, buffer) in meta.iter().take(count).zip(buffers.chunks_exact(BUFFER_BYTES)) {
                let datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
                self.datagrams(now, AddressPair::of(meta), datagrams);
            }
            if count < BUFFERS {
                return;
            }
        }
    }

    /// Datagrams that came together from one address.
    fn datagrams(&mut self, now: Instant, pair: AddressPair, mut datagrams: Chunks<'_, u8>) {
        while let Some(bytes) = datagrams.next() {
            if probes::is_one(bytes) {
                probes::hand_over(&self.shared.tcp, bytes);
                continue;
            }
            match decode(bytes) {
                Ok(Datagram::Segment(segment)) => self.segments(now, pair, segment, &mut datagrams),
                Ok(Datagram::Report(report)) => self.shared.flows.pass(report.flow, Answer::Report(report)),
                Ok(Datagram::Hello(hello)) => self.hello(now, pair, &hello, bytes.len()),
                Ok(Datagram::Welcome(welcome)) => {
                    self.shared.flows.pass(welcome.flow, Answer::Welcome(welcome));
                }
                Ok(Datagram::Unknown { session }) => self.shared.flows.unknown(session),
                Err(error) => {
                    self.shared.counters.refused(1);
                    self.shared.tcp.refusals.datagram(pair.remote, &error);
                }
            }
        }
    }

    fn hello(&mut self, now: Instant, pair: AddressPair, hello: &Hello, size: usize) {
        if self.shared.tcp.faults.blocks(hello.advertised) {
            return;
        }
        // Nothing is remembered of a host that cannot be reached: the cookie shows that this one has heard
        // us.
        let cookie = self.secret.hash_one((pair.remote, hello.flow, hello.advertised));
        let open = hello.session == cookie && cookie != 0;
        if open && !self.open(now, cookie, pair, hello) {
            return;
        }
        let window = self
            .sessions
            .get(&cookie)
            .map_or(STRANGER_BYTES, |session| session.window(self.share));
        let welcome = Datagram::Welcome(Welcome {
            flow: hello.flow,
            session: cookie,
            window: window as u32,
            size: size as u16,
            open,
        });
        self.answer(pair, &welcome);
    }

    /// Opens a session, unless it is open; false if there is no room for it.
    fn open(&mut self, now: Instant, number: u64, pair: AddressPair, hello: &Hello) -> bool {
        if self.sessions.contains_key(&number) {
            return true;
        }
        let remote = pair.remote;
        let config = &self.shared.tcp.config;
        let of_ip = |session: &&Session| session.pair.remote.ip() == remote.ip();
        let refusals = &self.shared.tcp.refusals;
        if self.sessions.values().filter(of_ip).count() >= config.max_inbound_per_ip {
            refusals.limit(remote, "limit-per-ip");
            return false;
        }
        let strangers = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.connection.is_authenticated());
        let full = self.sessions.len() >= config.max_inbound;
        if full || strangers.clone().count() >= config.max_unauthenticated {
            let oldest = strangers
                .min_by_key(|(_, session)| session.opened)
                .map(|(number, _)| *number);
            refusals.limit(remote, "limit-unauthenticated");
            oldest.map(|oldest| self.sessions.remove(&oldest));
        }
        if self.sessions.len() >= config.max_inbound {
            refusals.limit(remote, "limit-connections");
            return false;
        }
        let session = Session {
            pair,
            from: hello.advertised,
            flow: hello.flow,
            connection: Connection::new(remote, refusals.clone()),
            assembly: Assembly::new(STRANGER_BYTES),
            opened: now,
            heard: now,
            blocked: None,
            touched: false,
            unreported: 0,
            at_once: false,
            due: None,
            every: REPORT_WITHIN,
            reported_seen: 0,
        };
        self.sessions.insert(number, session);
        self.wake_by(now + SWEEP_EVERY);
        true
    }

    /// A segment, and those of the same session that follow: what is the same for all of them is looked up
    /// once.
    fn segments(&mut self, now: Instant, pair: AddressPair, first: Segment<'_>, more: &mut Chunks<'_, u8>) {
        let number = first.session;
        let known = self
            .sessions
            .get_mut(&number)
            .filter(|session| session.pair.remote == pair.remote && !session.connection.is_closed());
        let Some(session) = known else {
            return self.unknown_session(pair, number);
        };
        if self.shared.tcp.faults.blocks(session.from) {
            return;
        }
        session.heard = now;
        // Its sender may have been granted more since the last look at the session.
        if session.connection.is_authenticated() {
            session.assembly.set_limit(2 * self.share);
        }
        let (mut taken, mut refused) = (0, 0);
        let mut next = Some(first);
        while let Some(segment) = next {
            session.at_once |= segment.report_at_once;
            let room = |bytes| self.memory.room(&session.connection, bytes);
            match session.assembly.insert(&segment, room) {
                Inserted::Taken => {
                    taken += 1;
                    session.unreported += segment.bytes.len();
                }
                Inserted::Old => {}
                Inserted::Refused => refused += 1,
            }
            next = match more.clone().next().map(decode) {
                Some(Ok(Datagram::Segment(segment))) if segment.session == number => {
                    more.next();
                    Some(segment)
                }
                _ => None,
            };
        }
        if taken > 0 {
            session.every = REPORT_WITHIN;
        }
        self.shared.counters.received(taken);
        self.shared.counters.refused(refused);
        if !session.touched {
            session.touched = true;
            self.touched.push(number);
        }
    }

    /// The sender may start over at once. Not too often: this answers any host.
    fn unknown_session(&mut self, pair: AddressPair, session: u64) {
        self.shared.counters.refused(1);
        if self
            .sessions
            .get(&session)
            .is_some_and(|session| session.connection.is_closed())
        {
            self.sessions.remove(&session);
        }
        if self.unknown < MAX_UNKNOWN {
            self.unknown += 1;
            self.wake_by(self.swept + SWEEP_EVERY);
            self.answer(pair, &Datagram::Unknown { session });
        }
    }

    /// Hands over what is whole and in order, of all sessions for which a read has brought something.
    fn hand_over_touched(&mut self, now: Instant) {
        for number in std::mem::take(&mut self.touched) {
            if let Some(session) = self.sessions.get_mut(&number) {
                session.touched = false;
            }
            self.hand_over(now, number);
            self.report_if_due(now, number);
        }
    }

    fn hand_over(&mut self, now: Instant, number: u64) {
        let Some(session) = self.sessions.get_mut(&number) else {
            return;
        };
        let frames: Vec<Bytes> = std::iter::from_fn(|| session.assembly.take()).collect();
        self.shared.counters.lost(session.assembly.take_lost());
        session.blocked = match session.blocked {
            _ if !session.assembly.is_blocked() => None,
            Some(since) if frames.is_empty() => Some(since),
            _ => Some(now),
        };
        let wake = session.blocked.map(|since| since + HOLD);
        if !frames.is_empty() {
            self.shared.tcp.counters.received(&frames);
            let input = Input::Frames {
                from: session.from,
                connection: session.connection.clone(),
                frames,
            };
            self.pass(input);
        }
        wake.into_iter().for_each(|wake| self.wake_by(wake));
    }

    fn pass(&mut self, input: Input) {
        let behind_others = !self.pending.is_empty();
        let refused = if behind_others {
            Some(input)
        } else {
            match self.shared.tcp.inputs.bulk.try_send(input) {
                Ok(()) => None,
                Err(TrySendError::Full(input) | TrySendError::Closed(input)) => Some(input),
            }
        };
        if let Some(input) = refused {
            self.pending_bytes += bytes_of(&input);
            self.pending.push_back(input);
        }
    }

    /// Reports what has arrived: at once if it is much, if something is missing or if the sender asks,
    /// otherwise a little later.
    fn report_if_due(&mut self, now: Instant, number: u64) {
        let driver_is_behind = !self.pending.is_empty();
        let Some(session) = self.sessions.get_mut(&number) else {
            return;
        };
        let window = session.window(self.share);
        let missing = session.assembly.gaps().any(|gap| gap.missing != 0);
        let news = session.assembly.seen() > session.reported_seen;
        let now_due = session.at_once
            || session.unreported >= window / 4
            || missing && news
            || session.due.is_some_and(|due| due <= now);
        if !now_due || driver_is_behind {
            let due = *session.due.get_or_insert(now + REPORT_WITHIN);
            return self.wake_by(due.max(now + REPORT_WITHIN / 4));
        }
        let (pair, seen) = (session.pair, session.assembly.seen());
        let report = Datagram::Report(Report {
            flow: session.flow,
            seen,
            window: window as u32,
            waited_us: now.duration_since(session.heard).as_micros().min(u32::MAX.into()) as u32,
            gaps: session.assembly.gaps().collect::<Vec<Gap>>(),
        });
        let sent = self.answer(pair, &report);
        let Some(session) = self.sessions.get_mut(&number) else {
            return;
        };
        if sent {
            session.unreported = 0;
            session.at_once = false;
            session.reported_seen = seen;
        }
        // A sender whose window is full sends nothing until it has a report: one that did not leave is sent
        // again.
        session.due = (missing || !sent).then(|| now + session.every);
        session.every = (session.every * 2).min(MAX_REPORT_EVERY);
        let due = session.due;
        due.into_iter().for_each(|due| self.wake_by(due));
    }

    /// Sends the reports that are due, and gives up waiting for what has not come for long.
    fn look_after(&mut self, now: Instant) {
        self.wake = None;
        if now.duration_since(self.swept) >= SWEEP_EVERY {
            self.sweep(now);
        }
        let numbers: Vec<u64> = self.sessions.keys().copied().collect();
        for number in numbers {
            let Some(session) = self.sessions.get_mut(&number) else {
                continue;
            };
            if session
                .blocked
                .is_some_and(|since| now.duration_since(since) >= HOLD)
            {
                session.assembly.give_up_front();
                self.hand_over(now, number);
            }
            let Some(session) = self.sessions.get(&number) else {
                continue;
            };
            let wake = [session.due, session.blocked.map(|since| since + HOLD)];
            if session.due.is_some_and(|due| due <= now) {
                self.report_if_due(now, number);
            }
            let later = wake.into_iter().flatten().filter(|wake| *wake > now).min();
            later.into_iter().for_each(|wake| self.wake_by(wake));
        }
        if !self.sessions.is_empty() {
            self.wake_by(self.swept + SWEEP_EVERY);
        }
    }

    fn sweep(&mut self, now: Instant) {
        (self.swept, self.unknown) = (now, 0);
        let idle = self.shared.tcp.config.idle_timeout * 2;
        self.sessions.retain(|_, session| {
            let silent = now.duration_since(session.heard);
            let stale = silent >= STALE && session.assembly.held_bytes() > 0;
            silent < idle && !stale && !session.connection.is_closed()
        });
        let active = self
            .sessions
            .values()
            .filter(|session| now.duration_since(session.heard) < ACTIVE);
        self.share = self.shared.share(active.count());
    }

    /// False if the system did not take it. Only a report needs to be sent again then: the cause of any other
    /// answer comes again, as if the answer was lost on the way.
    fn answer(&mut self, to: AddressPair, datagram: &Datagram<'_>) -> bool {
        self.out.clear();
        datagram.encode(&mut self.out);
        self.shared.socket.send_or_forget(to, &self.out).is_ok()
    }

    fn wake_by(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

impl Session {
    /// What its sender may have on its way.
    fn window(&self, share: usize) -> usize {
        if self.connection.is_authenticated() {
            share
        } else {
            share.min(STRANGER_BYTES)
        }
    }
}

impl Shared {
    /// What each of this many senders may have on its way: half of what the kernel can hold, since it counts
    /// its overhead.
    fn share(&self, senders: usize) -> usize {
        (self.socket.receive_bytes / 2 / senders.max(1)).clamp(*SHARE_BYTES.start(), *SHARE_BYTES.end())
    }
}

fn bytes_of(input: &Input) -> usize {
    match input {
        Input::Frames { frames, .. } => frames.iter().map(Bytes::len).sum(),
        Input::Probe { .. }
        | Input::PathTrouble { .. }
        | Input::AgentPort { .. }
        | Input::Lack { .. }
        | Input::Lifeline { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use antiphon_wire::datagram::SEGMENT_HEADER_BYTES;
    use tokio::task::JoinSet;

    use super::super::{UdpConfig, UdpTransport, listen};
    use super::*;
    use crate::{Inputs, Lack};

    const NUMBER: u64 = 1;
    /// Bytes of a segment.
    const SIZE: usize = 1000;

    /// A receiver in the test's hands with an open session, what its driver gets, and the session's sender.
    fn receiver(now: Instant) -> (UdpTransport, Inputs, Receiver, std::net::UdpSocket) {
        let listeners = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let config = UdpConfig::new(listeners.0.local_addr().unwrap());
        let (transport, inputs) = UdpTransport::start(listeners, config).unwrap();
        let mut receiver = Receiver::new(transport.ports.all[0].clone());
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let hello = Hello {
            session: NUMBER,
            flow: 77,
            advertised: address_of(&sender),
        };
        assert!(receiver.open(now, NUMBER, address_of(&sender).into(), &hello));
        (transport, inputs, receiver, sender)
    }

    fn address_of(sender: &std::net::UdpSocket) -> SocketAddr {
        sender.local_addr().unwrap()
    }

    /// The segments of frames of this length, in datagrams one behind the other.
    fn arrive(
        receiver: &mut Receiver,
        now: Instant,
        sender: &std::net::UdpSocket,
        frames: std::ops::RangeInclusive<u64>,
        length: usize,
    ) {
        let frame = vec![9; length];
        let size = length.min(SIZE);
        let mut bytes = Vec::new();
        for number in frames {
            for (index, part) in frame.chunks(size).enumerate() {
                let segment = Segment {
                    session: NUMBER,
                    number,
                    behind: 0,
                    length,
                    size,
                    index: index as u8,
                    report_at_once: true,
                    bytes: part,
                };
                Datagram::Segment(segment).encode(&mut bytes);
            }
        }
        let datagrams = bytes.chunks(size + SEGMENT_HEADER_BYTES);
        receiver.datagrams(now, address_of(sender).into(), datagrams);
    }

    #[tokio::test]
    async fn a_report_that_the_system_did_not_take_is_sent_soon_after_without_being_asked_for() {
        let now = Instant::now();
        let (_transport, _inputs, mut receiver, sender) = receiver(now);
        sender.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        arrive(&mut receiver, now, &sender, 1..=1, 100);
        // A socket for IPv4 sends nothing there.
        let nowhere: SocketAddr = "[::1]:9".parse().unwrap();
        receiver.sessions.get_mut(&NUMBER).unwrap().pair = nowhere.into();
        receiver.hand_over_touched(now);
        receiver.sessions.get_mut(&NUMBER).unwrap().pair = address_of(&sender).into();
        let soon = now + REPORT_WITHIN;
        assert!(receiver.wake.is_some_and(|wake| wake <= soon));
        receiver.look_after(soon);
        let mut report = [0; 2000];
        let length = sender.recv(&mut report).expect("a report");
        let Ok(Datagram::Report(report)) = decode(&report[..length]) else {
            panic!("no report")
        };
        assert_eq!((report.flow, report.seen), (77, 1));
        let session = &receiver.sessions[&NUMBER];
        assert!(!session.at_once && session.unreported == 0 && session.due.is_none());
    }

    #[tokio::test]
    async fn what_was_granted_after_a_first_small_frame_is_taken_at_once() {
        let now = Instant::now();
        let (_transport, mut inputs, mut receiver, sender) = receiver(now);
        arrive(&mut receiver, now, &sender, 1..=1, 100);
        receiver.hand_over_touched(now);
        let mut some = Vec::new();
        inputs.recv_many(&mut some, 1).await;
        let Some(Input::Frames { connection, .. }) = some.pop() else {
            panic!("no frame")
        };
        connection.accepted();
        let soon = now + REPORT_WITHIN;
        receiver.look_after(soon);
        // More than a stranger may have, and all of it comes with one read.
        arrive(&mut receiver, soon, &sender, 2..=4, 60_000);
        assert_eq!(receiver.shared.counters.refused.load(Ordering::Relaxed), 0);
        receiver.hand_over_touched(soon);
        inputs.recv_many(&mut some, 1).await;
        assert!(matches!(some.pop(), Some(Input::Frames { frames, .. }) if frames.len() == 3));
    }

    #[tokio::test]
    async fn frames_reach_a_busy_driver_although_many_connections_wait_for_it_and_reports_are_due() {
        let now = Instant::now();
        let (_transport, mut inputs, mut receiver, sender) = receiver(now);
        let bulk = receiver.shared.tcp.inputs.bulk.clone();
        let other = || Input::Lack { lack: Lack::Files };
        while bulk.try_send(other()).is_ok() {}
        arrive(&mut receiver, now, &sender, 1..=1, 100);
        receiver.hand_over_touched(now);
        assert_eq!(receiver.pending.len(), 1);
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let bulk = bulk.clone();
            tasks.spawn(async move { while bulk.send(other()).await.is_ok() {} });
        }
        tasks.spawn(receiver.run());
        // 64 inputs are in the queue, and 16 wait before the receiver's.
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut one = Vec::new();
            inputs.recv_many(&mut one, 1).await;
            if matches!(one[..], [Input::Frames { .. }]) {
                return;
            }
        }
        panic!("the frame never has its turn");
    }
}
