//! Connections that others dialled.
//!
//! ```text
//!  accept ─► limits ─► preamble ─► first frame ─┬─ Control, Bulk ─► frames, until it ends
//!                                               ├─ Lifeline ─────► records, until it ends (lifeline.rs)
//!                                               └─ of an enquiry ► a notice, and its end (enquiry.rs)
//! ```
//! A program that takes the port for an agent's is told so in what it speaks, and its connection ends
//! (strangers.rs).
//!
//! A connection that has brought no authentic frame in time is closed: a port scanner, a browser, a slow
//! loris. The core says what is authentic, through [`Connection`].
//!
//! One authentic frame does not earn a connection with frames its place for ever: a stranger may have got it
//! from a member. A dialler closes what it does not use for long. So a connection that brings nothing
//! authentic for twice as long is closed here. Where places run out, what a dialler would have closed goes
//! sooner, whatever was silent longest first. A lifeline may be silent.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use antiphon_core::Class;
use antiphon_wire::frame::{self, Kind, OpenError};
use antiphon_wire::stream::StreamDecoder;
use bytes::{Buf, Bytes};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::buffer::ReadBuffers;
use super::preamble::{self, PREAMBLE_BYTES, Start};
use super::{Common, Counted, TcpConfig, canonical, lifeline, socket, strangers};
use crate::transport::Silence;
use crate::{Connection, Input};

/// As long as any connection is silent, this many places are kept free for members, and one of eight if there
/// are fewer places.
const SPARE_PLACES: usize = 16;
/// After an error of `accept` (no descriptors left, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks for silent connections, at least.
const MIN_LOOK_EVERY: Duration = Duration::from_millis(100);

/// How many connections may be open, and from which addresses.
#[derive(Debug)]
pub(super) struct InboundLimits {
    all: Arc<Semaphore>,
    max: usize,
    /// Oldest first.
    open: Mutex<Vec<Connection>>,
    max_unauthenticated: usize,
    /// A connection with frames may be silent for this long.
    max_silence: Duration,
    spare: usize,
    by_ip: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    max_per_ip: usize,
}

/// A connection's share of the limits, given back when it ends.
#[derive(Debug)]
struct Share {
    _all: OwnedSemaphorePermit,
    by_ip: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    ip: IpAddr,
}

impl InboundLimits {
    pub(super) fn new(config: &TcpConfig) -> Self {
        Self {
            all: Arc::new(Semaphore::new(config.max_inbound)),
            max: config.max_inbound,
            open: Mutex::default(),
            max_unauthenticated: config.max_unauthenticated,
            max_silence: config.idle_timeout.saturating_mul(2),
            spare: SPARE_PLACES.min(config.max_inbound / 8),
            by_ip: Arc::default(),
            max_per_ip: config.max_inbound_per_ip,
        }
    }

    fn admit(&self, connection: &Connection) -> Result<Share, &'static str> {
        let ip = connection.remote().ip();
        let all = self
            .all
            .clone()
            .try_acquire_owned()
            .map_err(|_| "limit-connections")?;
        let mut by_ip = self.by_ip.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_ip.entry(ip).or_insert(0);
        // Behind a loopback address are all nodes of this host, and a process on this host may do worse.
        if *count >= self.max_per_ip && !ip.is_loopback() {
            return Err("limit-per-ip");
        }
        *count += 1;
        Ok(Share {
            _all: all,
            by_ip: self.by_ip.clone(),
            ip,
        })
    }

    /// Makes room, for a newcomer that was admitted or the next one: a flood of silent connections must not
    /// keep members out. First the oldest connections go that have not said anything authentic, since members
    /// speak within milliseconds. If those are too few, the connection goes that has been silent longest, of
    /// those that an honest dialler would have closed.
    /// Returns what the caller has to end.
    fn make_room(&self, now: Instant, admitted: Option<&Connection>) -> Vec<Connection> {
        let mut open = self.open();
        let newcomer = usize::from(admitted.is_some());
        let staying = open.iter().filter(|connection| !connection.is_closed());
        let waiting = staying
            .clone()
            .filter(|connection| !connection.is_authenticated());
        // Those that were ended give back their places a moment later.
        let left = self.max.saturating_sub(staying.count() + newcomer);
        let too_few_left = self.spare.saturating_sub(left.max(self.all.available_permits()));
        let too_many = (waiting.clone().count() + newcomer).saturating_sub(self.max_unauthenticated);
        let mut surplus: Vec<Connection> = waiting.take(too_many.max(too_few_left)).cloned().collect();
        if surplus.len() < too_few_left {
            let longest = silent(&open, now, |silence| silence.closed_after).min_by_key(|(since, _)| *since);
            surplus.extend(longest.map(|(_, connection)| connection.clone()));
        }
        open.extend(admitted.cloned());
        surplus
    }

    fn are_full(&self) -> bool {
        self.all.available_permits() == 0
    }

    /// The connections that were silent for too long.
    fn long_silent(&self, now: Instant) -> Vec<Connection> {
        let open = self.open();
        silent(&open, now, |_| self.max_silence)
            .map(|(_, connection)| connection.clone())
            .collect()
    }

    fn open(&self) -> MutexGuard<'_, Vec<Connection>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(Connection::is_held);
        open
    }
}

/// The connections that were authenticated and have brought nothing authentic for that long, and since when.
fn silent(
    open: &[Connection],
    now: Instant,
    long: impl Fn(&Silence) -> Duration,
) -> impl Iterator<Item = (Instant, &Connection)> {
    open.iter()
        .filter(|connection| connection.is_authenticated() && !connection.is_closed())
        .filter_map(move |connection| {
            let silence = connection.silence(now)?;
            (now.duration_since(silence.since) >= long(&silence)).then_some((silence.since, connection))
        })
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut by_ip = self.by_ip.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_ip.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                by_ip.remove(&self.ip);
            }
        }
    }
}

/// Accepts until it is aborted; its connections end with it.
pub(super) async fn accept(listener: TcpListener, common: Arc<Common>, limits: Arc<InboundLimits>) {
    let mut connections = JoinSet::new();
    let look_every = common.config.idle_control_timeout.max(MIN_LOOK_EVERY);
    let mut look = pin!(tokio::time::sleep(look_every));
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => {
                    let remote = canonical(remote);
                    let connection = Connection::new(remote, common.refusals.clone());
                    let admitted = limits.admit(&connection);
                    // An address that has too many takes no other's place.
                    let makes_room = admitted.is_ok() || limits.are_full();
                    let newcomer = admitted.is_ok().then_some(&connection);
                    let surplus = makes_room.then(|| limits.make_room(Instant::now(), newcomer));
                    for surplus in surplus.into_iter().flatten() {
                        let limit = match surplus.is_authenticated() {
                            true => "limit-silent",
                            false => "limit-unauthenticated",
                        };
                        common.refusals.limit(surplus.remote(), limit);
                        surplus.close();
                    }
                    match admitted {
                        Ok(share) => {
                            let inbound = Inbound::new(common.clone(), stream, connection, share);
                            connections.spawn(inbound.run());
                        }
                        Err(limit) => common.refusals.limit(remote, limit),
                    }
                }
                Err(error) => {
                    // A connection that waits in the kernel's queue is served once there is room again.
                    if common.lacks.note(&common.inputs, &error).is_none() {
                        common.refusals.not_accepted(&error);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = &mut look => {
                let now = Instant::now();
                for silent in limits.long_silent(now) {
                    common.refusals.slow(silent.remote(), limits.max_silence);
                    silent.close();
                }
                look.as_mut().reset(now + look_every);
            }
        }
    }
}

/// A connection and what it has brought.
pub(super) struct Inbound {
    pub(super) common: Arc<Common>,
    pub(super) stream: TcpStream,
    pub(super) connection: Connection,
    pub(super) decoder: StreamDecoder,
    /// The dialler's advertised address once it has said so.
    pub(super) from: SocketAddr,
    pub(super) is_lifeline: bool,
    /// The dialler wants to know what becomes of its first frame.
    asks: bool,
    /// The driver has something of this connection, and has not said yet what the core thinks of it.
    pub(super) is_unjudged: bool,
    buffers: ReadBuffers,
    /// Given back when the connection ends.
    _share: Share,
    _open: Counted,
    deadline: Instant,
}

/// What a read brought.
pub(super) enum Read {
    /// Bytes are in the decoder.
    Some,
    /// The other side has ended its direction.
    End,
    /// Something was wrong; it was logged if it was not the network.
    Failed,
}

impl Inbound {
    fn new(common: Arc<Common>, stream: TcpStream, connection: Connection, share: Share) -> Self {
        let deadline = Instant::now() + common.config.authenticate_within;
        let from = connection.remote();
        let open = Counted::new(&common);
        Self {
            common,
            stream,
            connection,
            decoder: StreamDecoder::new(),
            from,
            is_lifeline: false,
            asks: false,
            is_unjudged: false,
            buffers: ReadBuffers::new(),
            _share: share,
            _open: open,
            deadline,
        }
    }

    async fn run(mut self) {
        if socket::tune_inbound(&self.stream).is_err() || !self.read_preamble().await {
            return;
        }
        let Some(first) = self.read_first_frame().await else {
            return;
        };
        if self.asks {
            return self.answer_enquiry(first).await;
        }
        match frame::peek(&first) {
            Ok((Kind::Lifeline, _)) => lifeline::watch(self, first).await,
            Ok((Kind::Control, _)) => self.pass_frames(Class::Control, first).await,
            Ok((Kind::Bulk | Kind::Chain | Kind::Multicast, _)) => self.pass_frames(Class::Bulk, first).await,
            Ok((Kind::Probe, _)) => self.connection.refused(OpenError::NotAFrame),
            Err(error) => self.connection.refused(error),
        }
    }

    /// Learns the dialler's address; false if the connection is over.
    async fn read_preamble(&mut self) -> bool {
        loop {
            match preamble::read(self.decoder.buffer()) {
                start @ (Start::Preamble(from) | Start::Asking(from)) => {
                    self.decoder.buffer().advance(PREAMBLE_BYTES);
                    self.from = from;
                    self.asks = matches!(start, Start::Asking(_));
                    break;
                }
                Start::Other => match strangers::answer_to(self.decoder.buffer()) {
                    Some(answer) => {
                        self.turn_away(answer).await;
                        return false;
                    }
                    None => break,
                },
                Start::Incomplete => {}
            }
            if !matches!(self.read().await, Read::Some) {
                return false;
            }
        }
        if self.common.faults.blocks(self.from) {
            self.common.faults.unblocked(self.from).await;
            self.deadline = Instant::now() + self.common.config.authenticate_within;
        }
        // If no task waits to dial this peer, nothing needs the news.
        let _ = self.common.alive.send(self.from);
        true
    }

    /// Ends the connection of a program that takes this port for an agent's.
    async fn turn_away(&mut self, answer: &'static str) {
        self.common.refusals.program(self.connection.remote());
        tokio::select! {
            () = strangers::part(&mut self.stream, answer) => {}
            // Others need its place.
            () = self.connection.changed() => {}
        }
    }

    /// By this time something authentic must have come.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    async fn read_first_frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.next_frame().ok()? {
                return Some(frame);
            }
            if !matches!(self.read().await, Read::Some) {
                return None;
            }
        }
    }

    async fn pass_frames(mut self, class: Class, first: Bytes) {
        let config = &self.common.config;
        self.connection.must_speak(match class {
            Class::Control => config.idle_control_timeout,
            Class::Bulk => config.idle_timeout,
        });
        let mut frames = vec![first];
        loop {
            let intact = loop {
                match self.next_frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break true,
                    Err(()) => break false,
                }
            };
            if self.common.faults.blocks(self.from) {
                self.common.counters.faulted(frames.len() as u64);
                frames.clear();
                // Through a cut cable no end would come.
                self.connection.heard();
            }
            if !frames.is_empty() {
                self.common.counters.received(&frames);
                let frames = std::mem::take(&mut frames);
                let input = Input::Frames {
                    from: self.from,
                    connection: self.connection.clone(),
                    frames,
                };
                self.is_unjudged = true;
                if self.common.inputs.of(class).send(input).await.is_err() {
                    return;
                }
            }
            if !intact || !matches!(self.read().await, Read::Some) {
                return;
            }
        }
    }

    /// The next whole frame. An error ends the connection; it is logged.
    pub(super) fn next_frame(&mut self) -> Result<Option<Bytes>, ()> {
        self.decoder
            .next_frame()
            .map_err(|error| self.common.refusals.stream(self.connection.remote(), &error))
    }

    /// Reads what is there, waiting for the first byte, within the limits for a connection that is not
    /// authenticated. The driver has at most one read's worth of such a connection: more would let a stranger
    /// fill the memory, and keep the core busy with what it refuses.
    pub(super) async fn read(&mut self) -> Read {
        self.buffers.pause(&mut self.decoder);
        loop {
            if self.connection.is_closed() {
                return Read::Failed;
            }
            let authenticated = self.connection.is_authenticated();
            tokio::select! {
                readable = self.stream.readable(), if authenticated || !self.is_unjudged => {
                    if readable.is_err() {
                        return Read::Failed;
                    }
                    if self.is_lifeline && self.common.faults.blocks(self.from) {
                        // The bytes of a blocked peer, its FIN included, stay in the kernel.
                        self.common.faults.unblocked(self.from).await;
                        continue;
                    }
                }
                () = self.connection.changed() => {
                    self.is_unjudged = false;
                    continue;
                }
                () = tokio::time::sleep_until(self.deadline), if !authenticated => {
                    self.common.refusals.slow(self.connection.remote(), self.common.config.authenticate_within);
                    return Read::Failed;
                }
            }
            let (stream, decoder) = (&mut self.stream, &mut self.decoder);
            match poll_fn(|cx| Poll::Ready(self.buffers.poll_read(stream, decoder, cx))).await {
                Poll::Pending => {}
                Poll::Ready(Ok(0)) => return Read::End,
                Poll::Ready(Ok(_)) => return Read::Some,
                Poll::Ready(Err(_)) => return Read::Failed,
            }
        }
    }
}
