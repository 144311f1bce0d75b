//! The interface of a transport, and what comes out of it.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use antiphon_core::{Class, LifelineCommand, LifelineEvent, PathTrouble};
use antiphon_wire::frame::{Frame, OpenError};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::tcp::refusals::Refusals;
use crate::{Faults, Lack};

/// The future of a graceful close.
pub type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Brings frames and lifeline records to other nodes. No method waits.
///
/// Dropping a transport resets all lifelines (never a FIN, R9) and loses what was queued.
pub trait Transport: Send + fmt::Debug {
    /// Where it listens; the real port if 0 was asked for.
    fn local_addr(&self) -> SocketAddr;

    /// Tries to bring a frame to an advertised address, at the latest when [`Transport::flush`] is called. It
    /// is lost if the peer's queue is full or the path broken.
    fn send(&mut self, to: SocketAddr, class: Class, frame: Frame);

    /// A turn is over: what was sent in it may leave.
    fn flush(&mut self) {}

    /// Tries to bring a frame to all that listen at the cluster's multicast address, where there is one.
    fn multicast(&mut self, frame: Frame) {
        drop(frame);
    }

    /// Sends a probe to an advertised address: one datagram, now or never. Lost where there is no socket for
    /// it.
    fn probe(&mut self, to: SocketAddr, frame: Bytes) {
        drop((to, frame));
    }

    /// Does something to an outbound lifeline, at once. A failure that shows at once is returned; what takes
    /// time comes as input.
    fn lifeline(&mut self, command: LifelineCommand) -> Option<LifelineEvent>;

    /// Replaces the injected faults.
    fn set_faults(&mut self, faults: Faults);

    /// What is known of the ways to other addresses, for people.
    fn paths(&self) -> Vec<PathStatus> {
        Vec::new()
    }

    /// What was sent, received and lost so far.
    fn counters(&self) -> TransportCounters;

    /// Stops taking frames, lets queued ones leave for at most `within`, and ends. Lifelines are reset.
    fn close(self: Box<Self>, within: Duration) -> Closing;
}

/// What is known of the way to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PathStatus {
    /// The address.
    pub to: SocketAddr,
    /// The round trip as the system measured it within the last seconds; none without a connection, or where
    /// the system does not say.
    #[cfg_attr(feature = "serde", serde(rename = "rtt_us", serialize_with = "micros"))]
    pub rtt: Option<Duration>,
}

/// `10.0.0.2:7400, round trip 150µs`.
impl fmt::Display for PathStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to)?;
        match self.rtt {
            Some(rtt) => write!(f, ", round trip {rtt:?}"),
            None => f.write_str(", round trip not known"),
        }
    }
}

#[cfg(feature = "serde")]
fn micros<S: serde::Serializer>(rtt: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let us = rtt.map(|rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX));
    serde::Serialize::serialize(&us, serializer)
}

/// What a transport counted since it was bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TransportCounters {
    /// Frames handed over to be sent.
    pub frames_sent: u64,
    /// Frames received and handed to the driver.
    pub frames_received: u64,
    /// Bytes of frames handed over to be sent.
    pub bytes_sent: u64,
    /// Bytes of frames received.
    pub bytes_received: u64,
    /// Frames lost here: a full queue, a broken connection.
    pub frames_dropped: u64,
    /// Frames lost to injected faults.
    pub frames_faulted: u64,
    /// Inbound connections refused at a limit or closed for what they brought.
    pub connections_refused: u64,
    /// TCP connections open now, in either direction, lifelines included. Not a sum: it falls again.
    pub connections: u64,
    /// UDP: datagrams with a part of a frame that were sent for the first time.
    pub segments_sent: u64,
    /// UDP: those sent again because they were missing.
    pub segments_repaired: u64,
    /// UDP: parts of frames that were received, each counted once.
    pub segments_received: u64,
    /// Probes that were sent, and did not fail at once.
    pub probes_sent: u64,
    /// Datagrams that look like probes and were handed to the driver.
    pub probes_received: u64,
    /// Probes lost here: no room in the socket, or too many for the driver.
    pub probes_dropped: u64,
    /// UDP: datagrams refused: not ours, without a session, or more than their sender was granted.
    pub datagrams_refused: u64,
    /// UDP: frames that began to arrive, or whose successors did, and were given up.
    pub frames_incomplete: u64,
}

/// What was sent, received and lost.
impl fmt::Display for TransportCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} frames sent ({} bytes), {} received ({} bytes), {} lost here; {} connections, {} refused",
            self.frames_sent,
            self.bytes_sent,
            self.frames_received,
            self.bytes_received,
            self.frames_dropped,
            self.connections,
            self.connections_refused
        )
    }
}

/// One thing that happened on the network.
#[derive(Debug)]
pub enum Input {
    /// Frames from one connection, in its order.
    Frames {
        /// The sender's advertised address if the connection named it, otherwise where the connection came
        /// from.
        from: SocketAddr,
        /// The handle to tell what the core thinks of the frames.
        connection: Connection,
        /// The frames, slices of the receive buffer.
        frames: Vec<Bytes>,
    },
    /// A datagram that looks like a probe, from any host.
    Probe {
        /// The frame, for [`Node::handle_probe`](antiphon_core::Node::handle_probe).
        frame: Bytes,
    },
    /// The path to an advertised address is in trouble.
    PathTrouble {
        /// The address.
        to: SocketAddr,
        /// What was noticed.
        trouble: PathTrouble,
    },
    /// An agent's port for programs is at an address that was dialled as a node's; its
    /// [`PathTrouble`](Input::PathTrouble) follows.
    AgentPort {
        /// The address.
        to: SocketAddr,
    },
    /// The system refused this node something that it needs.
    Lack {
        /// What.
        lack: Lack,
    },
    /// Something happened to a lifeline.
    Lifeline {
        /// What.
        event: LifelineEvent,
        /// For a record: the handle to tell what the core thinks of it.
        connection: Option<Connection>,
    },
}

impl Input {
    fn bytes(&self) -> usize {
        match self {
            Input::Frames { frames, .. } => frames.iter().map(Bytes::len).sum(),
            Input::Probe { frame } => frame.len(),
            Input::PathTrouble { .. }
            | Input::AgentPort { .. }
            | Input::Lack { .. }
            | Input::Lifeline { .. } => 0,
        }
    }
}

/// This handle brings the core's opinion back to an inbound connection.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<ConnectionShared>,
}

/// After this many refused frames a connection is closed.
const MAX_REFUSED_FRAMES: u8 = 3;

/// How long a connection has brought nothing authentic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    pub(crate) since: Instant,
    /// An honest dialler closes a connection that is as silent as that.
    pub(crate) closed_after: Duration,
}

struct ConnectionShared {
    remote: SocketAddr,
    /// Not a connection that a node made to this one, but a stream that is heard at the multicast address.
    multicast: bool,
    authenticated: AtomicBool,
    /// Something authentic came since the last look at `silent_since`.
    heard: AtomicBool,
    /// As of that look; none if the connection may be silent for ever.
    silence: Mutex<Option<Silence>>,
    /// What was authentic was of no use to the core.
    unused: AtomicBool,
    refused: AtomicU8,
    closed: AtomicBool,
    /// Why the first refused frame was refused.
    refusal: OnceLock<OpenError>,
    /// Wakes the connection's task when one of the above changed.
    changed: Notify,
    refusals: Refusals,
}

impl Connection {
    pub(crate) fn new(remote: SocketAddr, refusals: Refusals) -> Self {
        Self::of(remote, false, refusals)
    }

    /// A stream that is heard at the multicast address.
    pub(crate) fn by_multicast(remote: SocketAddr, refusals: Refusals) -> Self {
        Self::of(remote, true, refusals)
    }

    fn of(remote: SocketAddr, multicast: bool, refusals: Refusals) -> Self {
        Self {
            shared: Arc::new(ConnectionShared {
                remote,
                multicast,
                authenticated: AtomicBool::new(false),
                heard: AtomicBool::new(false),
                silence: Mutex::new(None),
                unused: AtomicBool::new(false),
                refused: AtomicU8::new(0),
                closed: AtomicBool::new(false),
                refusal: OnceLock::new(),
                changed: Notify::new(),
                refusals,
            }),
        }
    }

    /// The core took a frame for authentic: the connection may stay.
    pub fn accepted(&self) {
        self.heard();
        if !self.shared.authenticated.swap(true, Ordering::AcqRel) {
            self.shared.changed.notify_one();
        }
    }

    /// The core took it for authentic, and could not use it: a dialler that asked for a notice is told so.
    pub fn made_nothing_of_it(&self) {
        self.shared.unused.store(true, Ordering::Release);
        self.accepted();
    }

    /// The core refused a frame. The cause is logged (not too often), and after a few the connection is
    /// closed.
    pub fn refused(&self, error: OpenError) {
        // A duplicating or rerouting network causes replays; they are not a fault of the node on this
        // connection. And by multicast other nodes than members may speak.
        let harmless = match error {
            OpenError::Replayed => true,
            OpenError::Stranger => self.shared.multicast,
            _ => false,
        };
        if harmless {
            return self.shared.changed.notify_one();
        }
        self.shared.refusals.frame(self.shared.remote, error);
        self.shared.refusal.get_or_init(|| error);
        let refused = self
            .shared
            .refused
            .fetch_add(1, Ordering::AcqRel)
            .saturating_add(1);
        if refused >= MAX_REFUSED_FRAMES || !self.shared.authenticated.load(Ordering::Acquire) {
            self.close();
        }
    }

    /// Whether the frames were sent to all: they are for
    /// [`Node::handle_multicast`](antiphon_core::Node::handle_multicast).
    pub fn is_multicast(&self) -> bool {
        self.shared.multicast
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.shared.remote
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.shared.unused.load(Ordering::Acquire)
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.shared.authenticated.load(Ordering::Acquire)
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }

    /// Why the first refused frame was refused, if one was.
    pub(crate) fn refusal(&self) -> Option<OpenError> {
        self.shared.refusal.get().copied()
    }

    /// Whether another part of the program holds it: it is open, or was until a moment ago.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// It is in use: its silence begins anew.
    pub(crate) fn heard(&self) {
        self.shared.heard.store(true, Ordering::Relaxed);
    }

    /// From now on it may be ended for its silence, if an honest dialler has closed it after so long.
    pub(crate) fn must_speak(&self, closed_after: Duration) {
        *self.silent() = Some(Silence {
            since: Instant::now(),
            closed_after,
        });
    }

    /// Its silence, if it must speak. The clock is read for each look and not for each frame: what came since
    /// the look before counts as of now.
    pub(crate) fn silence(&self, now: Instant) -> Option<Silence> {
        let mut silence = self.silent();
        if let Some(silence) = &mut *silence
            && self.shared.heard.swap(false, Ordering::Relaxed)
        {
            silence.since = now;
        }
        *silence
    }

    fn silent(&self) -> MutexGuard<'_, Option<Silence>> {
        let silence = self.shared.silence.lock();
        silence.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was ended, for what it has brought or to make room. What it has brought besides is not
    /// worth opening.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Returns when the core has said what it thinks of a frame, if that may be news.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({})", self.shared.remote)
    }
}

/// What happened on the network, urgent things first: control frames, troubles and lifelines never wait
/// behind messages. Probes, which any host may send, hold up neither.
#[derive(Debug)]
pub struct Inputs {
    urgent: mpsc::Receiver<Input>,
    probes: mpsc::Receiver<Input>,
    bulk: mpsc::Receiver<Input>,
}

impl Inputs {
    pub(crate) fn channel() -> (InputSenders, Inputs) {
        let (urgent, urgent_receiver) = mpsc::channel(URGENT_INPUTS);
        let (bulk, bulk_receiver) = mpsc::channel(BULK_INPUTS);
        let (probes, probe_receiver) = mpsc::channel(PROBE_INPUTS);
        (
            InputSenders { urgent, probes, bulk },
            Inputs {
                urgent: urgent_receiver,
                probes: probe_receiver,
                bulk: bulk_receiver,
            },
        )
    }

    /// Appends what has happened to `into`, and waits for the first thing. It appends at most `limit` things,
    /// and few enough bytes to be still in the cache when they are read. Returns how many; 0 means that the
    /// transport is gone.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub async fn recv_many(&mut self, into: &mut Vec<Input>, limit: usize) -> usize {
        let first = tokio::select! {
            biased;
            Some(input) = self.urgent.recv() => input,
            Some(input) = self.probes.recv() => input,
            Some(input) = self.bulk.recv() => input,
            else => return 0,
        };
        let mut bytes = first.bytes();
        into.push(first);
        let mut received = 1;
        // A sign of life that waits is no sign of life. But a host that floods the port with such datagrams
        // takes only a small part of each turn.
        for _ in 0..PROBES_AT_A_TIME.min(limit - 1) {
            let Ok(probe) = self.probes.try_recv() else { break };
            into.push(probe);
            received += 1;
        }
        while received < limit
            && bytes < BYTES_AT_A_TIME
            && let Ok(input) = self.urgent.try_recv().or_else(|_| self.bulk.try_recv())
        {
            bytes += input.bytes();
            into.push(input);
            received += 1;
        }
        received
    }
}

/// Control batches, troubles and lifeline events that may wait for the driver.
const URGENT_INPUTS: usize = 1024;
/// What a driver takes at a time: a part of a core's second-level cache.
const BYTES_AT_A_TIME: usize = 256 << 10;
/// Probes that may wait for the driver: as many as all members of a large view send at once. More are
/// dropped.
const PROBE_INPUTS: usize = 256;
/// The driver takes so many of them at a time.
const PROBES_AT_A_TIME: usize = 16;
/// Batches of messages that may wait for the driver; behind them TCP holds the sender back.
const BULK_INPUTS: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct InputSenders {
    pub(crate) urgent: mpsc::Sender<Input>,
    pub(crate) probes: mpsc::Sender<Input>,
    pub(crate) bulk: mpsc::Sender<Input>,
}

impl InputSenders {
    pub(crate) fn of(&self, class: Class) -> &mpsc::Sender<Input> {
        match class {
            Class::Control => &self.urgent,
            Class::Bulk => &self.bulk,
        }
    }
}
