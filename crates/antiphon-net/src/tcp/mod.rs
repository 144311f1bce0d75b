//! TCP: one port per address of a node for everything, IPv4 and IPv6.
//!
//! ```text
//!   this node                                          a peer
//!   outbound control  ──── frames ───────────────────►  inbound        (each connection carries frames one way)
//!   outbound bulk     ──── frames ───────────────────►  inbound
//!   outbound lifeline ──── records ──────────────────►  inbound        (R9: only the watched side writes)
//!   inbound           ◄─── frames, records ───────────  outbound …
//! ```
//! A node that has something to send dials when the first frame comes, one connection per (address, class).
//! It closes the connection when nothing came for long: what a node holds grows with the peers it speaks to,
//! not with the peers it knows. A connection begins with its dialler's advertised `preamble`; the kind of its
//! first frame shows what it is for. A node never writes on an inbound connection, unless its dialler asked
//! for a notice ([`enquire`]): a byte or an end towards the dialler is trouble. Only a program that takes the
//! port for an agent's is told so.
//!
//! Probes ([`antiphon_core::Output::Probe`]) go by a UDP socket on the same port number, if one was given.
//!
//! Costs: a frame is written from the one buffer it was sealed into, up to 64 frames a system call; received
//! frames are slices of the read buffer.
//!
//! # Bounds
//! Per outbound connection a queue in frames and bytes (full: frames are dropped and counted, the core
//! repairs). Inbound: connections in all, per IP address, and without an authentic frame yet, which must come
//! within five seconds; later a connection with frames may bring none for twice [`TcpConfig::idle_timeout`].
//! A length is checked before anything is reserved for it.
//!
//! # What happens when…
//! - *the peer's process ends*: its kernel ends our outbound connections: trouble `Lost` at once, then
//!   `Refused`;
//! - *the cable is cut*: what we send is not acknowledged for [`TcpConfig::user_timeout`]: trouble
//!   `TimedOut`;
//! - *the peer stops reading*: our queue fills, frames drop; its control connection is another one;
//! - *this host refuses a descriptor, memory or a port*: an [`Input::Lack`](crate::Input::Lack) and no
//!   trouble, which would blame the peer;
//! - *this transport is dropped*: lifelines are reset, never closed in order.

mod buffer;
mod enquiry;
mod inbound;
mod lifeline;
mod outbound;
mod preamble;
pub(crate) mod refusals;
mod socket;
mod strangers;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use antiphon_core::{Class, DialId, LifelineCommand, LifelineEvent};
use antiphon_wire::frame::Frame;
use bytes::Bytes;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::faults::{FaultTable, is_lost};
use crate::lack::Lacks;
use crate::transport::InputSenders;
use crate::udp::{MulticastConfig, Multicaster, Prober};
use crate::{Closing, Faults, Inputs, PathStatus, Transport, TransportCounters};
use inbound::InboundLimits;
use lifeline::OutboundLifeline;
use outbound::Outbound;
use refusals::Refusals;

pub use enquiry::{Reached, enquire};
pub use socket::listen;
pub use strangers::{GIVE_THE_NODES_PORT, IS_AN_AGENTS_PORT, is_of_an_agent};

/// Settings of a TCP transport. Made with [`TcpConfig::new`], then changed field by field.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TcpConfig {
    /// The address that peers dial; told to them on each connection.
    pub advertised: SocketAddr,
    /// Refuse to dial any address that is not of this host.
    pub loopback_only: bool,
    /// A connection whose data is not acknowledged for this long is given up. Designed for the suspicion
    /// time.
    pub user_timeout: Duration,
    /// A connection attempt may take this long.
    pub connect_timeout: Duration,
    /// An outbound connection on which no message was sent for this long is closed, and an inbound one with
    /// frames that brought no authentic one for twice as long.
    pub idle_timeout: Duration,
    /// The same for control connections. Members that speak at all do so several times in it. Most of the
    /// other control connections were used once while the cluster formed, and a large cluster has too many of
    /// them to keep. Where places run out, an inbound control connection that was silent for this long makes
    /// room, and one for bulk that was silent for [`TcpConfig::idle_timeout`].
    pub idle_control_timeout: Duration,
    /// A node dials so many control connections without looking whether it needs them. When it dials another
    /// one beyond them, it closes at once the connections that were not used for three tenths of
    /// [`TcpConfig::idle_control_timeout`]. Connections to members that speak at all are used more often.
    pub quiet_control: usize,
    /// An inbound connection must bring an authentic frame within this time.
    pub authenticate_within: Duration,
    /// Inbound connections in all.
    pub max_inbound: usize,
    /// Inbound connections from one IP address, unless it is loopback.
    pub max_inbound_per_ip: usize,
    /// Inbound connections that have brought no authentic frame yet.
    pub max_unauthenticated: usize,
}

impl TcpConfig {
    /// Settings for a node that is reached at this address.
    pub fn new(advertised: SocketAddr) -> Self {
        Self {
            advertised,
            loopback_only: false,
            user_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(60),
            idle_control_timeout: Duration::from_secs(10),
            quiet_control: 12,
            authenticate_within: Duration::from_secs(5),
            max_inbound: 1024,
            max_inbound_per_ip: 512,
            max_unauthenticated: 256,
        }
    }
}

/// What all connections of a node share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: TcpConfig,
    pub(crate) faults: FaultTable,
    pub(crate) inputs: InputSenders,
    pub(crate) refusals: Refusals,
    pub(crate) lacks: Lacks,
    pub(crate) counters: AtomicCounters,
    /// Peers that have just dialled us: a task that waits before it dials them again may try at once.
    pub(crate) alive: tokio::sync::broadcast::Sender<SocketAddr>,
    next_lifeline: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct AtomicCounters {
    frames_sent: AtomicU64,
    bytes_sent: AtomicU64,
    frames_received: AtomicU64,
    bytes_received: AtomicU64,
    frames_dropped: AtomicU64,
    frames_faulted: AtomicU64,
    connections: AtomicU64,
    probes_sent: AtomicU64,
    probes_received: AtomicU64,
    probes_dropped: AtomicU64,
    datagrams_refused: AtomicU64,
}

/// A connection that is counted while this is held.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Common>);

impl Counted {
    pub(crate) fn new(common: &Arc<Common>) -> Self {
        common.counters.connections.fetch_add(1, Ordering::Relaxed);
        Self(common.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl AtomicCounters {
    /// A frame of this length was handed over to be sent.
    pub(crate) fn sent(&self, length: usize) {
        self.frames_sent.fetch_add(1, Ordering::Relaxed);
        self.bytes_sent.fetch_add(length as u64, Ordering::Relaxed);
    }

    pub(crate) fn received(&self, frames: &[Bytes]) {
        let bytes: usize = frames.iter().map(Bytes::len).sum();
        self.frames_received
            .fetch_add(frames.len() as u64, Ordering::Relaxed);
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn dropped(&self, frames: u64) {
        self.frames_dropped.fetch_add(frames, Ordering::Relaxed);
    }

    pub(crate) fn probe_sent(&self, sent: bool) {
        let counter = if sent {
            &self.probes_sent
        } else {
            &self.probes_dropped
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A datagram came that is no probe, on a socket that takes only probes.
    pub(crate) fn datagram_refused(&self) {
        self.datagrams_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn probe_received(&self, taken: bool) {
        let counter = if taken {
            &self.probes_received
        } else {
            &self.probes_dropped
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn faulted(&self, frames: u64) {
        self.frames_faulted.fetch_add(frames, Ordering::Relaxed);
    }
}

/// A node's TCP transport. Dropped, it resets its lifelines and ends all its connections.
#[derive(Debug)]
pub struct TcpTransport {
    common: Arc<Common>,
    local_addr: SocketAddr,
    outbound: BTreeMap<(SocketAddr, Class), Outbound>,
    /// Connections that have frames to be flushed.
    fresh: Vec<(SocketAddr, Class)>,
    lifelines: BTreeMap<DialId, OutboundLifeline>,
    /// One for each address.
    acceptors: Vec<AbortOnDrop>,
    multicaster: Option<Multicaster>,
    prober: Option<Prober>,
}

/// The driver itself writes to so many connections at the end of a turn. To more connections tasks write, and
/// they may do so while the driver goes on.
const DIRECT_WRITES: usize = 16;
/// Addresses with an outbound queue at one time.
const MAX_OUTBOUND: usize = 4096;

impl TcpTransport {
    /// Serves a listener made by [`listen`]. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// What the system says about the listener.
    pub fn start(listener: std::net::TcpListener, config: TcpConfig) -> io::Result<(Self, Inputs)> {
        Self::start_all(vec![listener], config)
    }

    /// The same for a node with several addresses: what comes in on any of them is the node's, within the
    /// same limits.
    ///
    /// # Errors
    /// What the system says about the listeners; `InvalidInput` if there is none.
    pub fn start_all(listeners: Vec<std::net::TcpListener>, config: TcpConfig) -> io::Result<(Self, Inputs)> {
        let first = listeners.first().ok_or(io::ErrorKind::InvalidInput)?;
        let local_addr = first.local_addr()?;
        let listeners: Vec<TcpListener> = listeners
            .into_iter()
            .map(TcpListener::from_std)
            .collect::<io::Result<_>>()?;
        let (senders, inputs) = Inputs::channel();
        let common = Arc::new(Common {
            config,
            faults: FaultTable::new(),
            inputs: senders,
            refusals: Refusals::default(),
            lacks: Lacks::default(),
            counters: AtomicCounters::default(),
            alive: tokio::sync::broadcast::Sender::new(256),
            next_lifeline: AtomicU64::new(1),
        });
        let limits = Arc::new(InboundLimits::new(&common.config));
        let accept = |listener| tokio::spawn(inbound::accept(listener, common.clone(), limits.clone()));
        let acceptors = listeners
            .into_iter()
            .map(|listener| AbortOnDrop(accept(listener)));
        let acceptors = acceptors.collect();
        let transport = Self {
            common,
            local_addr,
            outbound: BTreeMap::new(),
            fresh: Vec::new(),
            lifelines: BTreeMap::new(),
            acceptors,
            multicaster: None,
            prober: None,
        };
        Ok((transport, inputs))
    }

    /// Sends and listens by multicast as well.
    ///
    /// # Errors
    /// What the system says: the interface does not exist, or does not do it.
    pub fn join_multicast(&mut self, config: &MulticastConfig) -> io::Result<()> {
        self.multicaster = Some(Multicaster::start(self.common.clone(), config)?);
        Ok(())
    }

    /// Sends and takes probes by these sockets, made by [`listen_for_probes`](crate::udp::listen_for_probes).
    ///
    /// # Errors
    /// What the system says about the sockets.
    pub fn with_probes(&mut self, sockets: Vec<std::net::UdpSocket>) -> io::Result<()> {
        self.prober = Some(Prober::start(self.common.clone(), sockets)?);
        Ok(())
    }

    /// What the UDP transport beside this one shares with it.
    pub(crate) fn common(&self) -> Arc<Common> {
        self.common.clone()
    }

    fn outbound(&mut self, to: SocketAddr, class: Class) -> Option<&mut Outbound> {
        let open = self.outbound.get(&(to, class)).is_some_and(Outbound::is_open);
        if !open {
            if self.common.config.loopback_only && !to.ip().is_loopback() {
                self.common.refusals.not_loopback(to);
                return None;
            }
            let old = self.outbound.get_mut(&(to, class));
            let fresh = old.map(Outbound::take_fresh).unwrap_or_default();
            // Frames for a connection that has closed in this turn find that out when they are flushed.
            self.outbound
                .retain(|_, outbound| outbound.is_open() || outbound.has_fresh());
            if self.outbound.len() >= MAX_OUTBOUND {
                self.common.counters.dropped(fresh.len() as u64);
                return None;
            }
            if class == Class::Control {
                self.close_quiet();
            }
            let mut outbound = Outbound::spawn(self.common.clone(), to, class);
            outbound.adopt(fresh);
            self.outbound.insert((to, class), outbound);
        }
        self.outbound.get_mut(&(to, class))
    }

    /// Makes room for one more control connection, if there are many. A node that forms or joins a large
    /// cluster meets many members once, within less than the idle time.
    fn close_quiet(&mut self) {
        let config = &self.common.config;
        let quiet = config.idle_control_timeout * 3 / 10;
        let control = self.outbound.keys().filter(|(_, class)| *class == Class::Control);
        if control.count() < config.quiet_control {
            return;
        }
        // Dropped, and thereby closed: all frames that they took were written.
        self.outbound.retain(|(_, class), outbound| {
            let unused = outbound.unused_since().filter(|_| *class == Class::Control);
            unused.is_none_or(|since| since.elapsed() < quiet)
        });
    }
}

impl Transport for TcpTransport {
    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn send(&mut self, to: SocketAddr, class: Class, frame: Frame) {
        let fault = self.common.faults.fault(to);
        if fault.block || is_lost(fault.drop) {
            self.common.counters.faulted(1);
            return;
        }
        let length = frame.len();
        let outbound = self.outbound(to, class);
        let first = outbound.as_ref().is_some_and(|outbound| !outbound.has_fresh());
        if outbound.is_some_and(|outbound| outbound.push(frame, fault.delay)) {
            if first {
                self.fresh.push((to, class));
            }
            self.common.counters.sent(length);
        } else {
            self.common.counters.dropped(1);
        }
    }

    fn flush(&mut self) {
        let mut writes = DIRECT_WRITES;
        for (to, class) in std::mem::take(&mut self.fresh) {
            let Some(outbound) = self.outbound.get_mut(&(to, class)) else {
                continue;
            };
            let (wrote, refused) = outbound.flush(writes > 0);
            writes -= usize::from(wrote);
            if refused.is_empty() {
                continue;
            }
            // These frames go to a new connection, as later frames do.
            let mut lost = refused.len() as u64;
            if let Some(next) = self.outbound(to, class) {
                lost -= refused
                    .into_iter()
                    .map(|frame| u64::from(next.push(frame, Duration::ZERO)))
                    .sum::<u64>();
                lost += next.flush(false).1.len() as u64;
            }
            self.common.counters.dropped(lost);
        }
    }

    fn multicast(&mut self, frame: Frame) {
        if let Some(multicaster) = &self.multicaster {
            multicaster.multicast(frame);
        }
    }

    fn probe(&mut self, to: SocketAddr, frame: Bytes) {
        match &self.prober {
            Some(prober) => prober.send(to, &frame),
            None => self.common.counters.probe_sent(false),
        }
    }

    fn lifeline(&mut self, command: LifelineCommand) -> Option<LifelineEvent> {
        match command {
            LifelineCommand::Open { dial, addr, .. } => {
                if self.common.config.loopback_only && !addr.ip().is_loopback() {
                    self.common.refusals.not_loopback(addr);
                    return Some(LifelineEvent::Failed { dial });
                }
                self.lifelines
                    .insert(dial, OutboundLifeline::dial(self.common.clone(), dial, addr));
                None
            }
            LifelineCommand::Write { dial, record } => {
                let lifeline = self.lifelines.get(&dial)?;
                if lifeline.write(&record) {
                    return None;
                }
                self.lifelines.remove(&dial);
                Some(LifelineEvent::Failed { dial })
            }
            LifelineCommand::Reset { dial } => {
                // Dropped, and thereby reset.
                self.lifelines.remove(&dial);
                None
            }
        }
    }

    fn set_faults(&mut self, faults: Faults) {
        self.common.faults.set(faults);
    }

    fn counters(&self) -> TransportCounters {
        let counters = &self.common.counters;
        TransportCounters {
            frames_sent: counters.frames_sent.load(Ordering::Relaxed),
            bytes_sent: counters.bytes_sent.load(Ordering::Relaxed),
            frames_received: counters.frames_received.load(Ordering::Relaxed),
            bytes_received: counters.bytes_received.load(Ordering::Relaxed),
            frames_dropped: counters.frames_dropped.load(Ordering::Relaxed),
            frames_faulted: counters.frames_faulted.load(Ordering::Relaxed),
            connections_refused: self.common.refusals.count(),
            connections: counters.connections.load(Ordering::Relaxed),
            probes_sent: counters.probes_sent.load(Ordering::Relaxed),
            probes_received: counters.probes_received.load(Ordering::Relaxed),
            datagrams_refused: counters.datagrams_refused.load(Ordering::Relaxed),
            probes_dropped: counters.probes_dropped.load(Ordering::Relaxed),
            ..TransportCounters::default()
        }
    }

    fn paths(&self) -> Vec<PathStatus> {
        let control = self
            .outbound
            .iter()
            .filter(|((_, class), _)| *class == Class::Control);
        let status = |(&(to, _), outbound): (&(SocketAddr, Class), &Outbound)| PathStatus {
            to,
            rtt: outbound.rtt(),
        };
        control.map(status).collect()
    }

    fn close(mut self: Box<Self>, within: Duration) -> Closing {
        let mut outbound = std::mem::take(&mut self.outbound);
        if within.is_zero() {
            // The node was given up: nothing that is queued is sent, and no lifeline lives on.
            outbound.clear();
            self.lifelines.clear();
        }
        let prober = self.prober.take();
        Box::pin(async move {
            let tasks: Vec<AbortOnDrop> = outbound.into_values().map(Outbound::finish).collect();
            let finished = async {
                for mut task in tasks {
                    // A task that panicked has nothing left to send.
                    let _ = (&mut task.0).await;
                }
            };
            // Frames that have not left by then are lost; the others find out as they would from a crash.
            let _ = tokio::time::timeout(within, finished).await;
            // Only then are the ports free again.
            if let Some(prober) = prober {
                prober.close().await;
            }
            for mut acceptor in std::mem::take(&mut self.acceptors) {
                acceptor.0.abort();
                let _ = (&mut acceptor.0).await;
            }
        })
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Dials a peer. A dial of a port of this host without a listener may, by chance, connect to itself; that
/// counts as a refusal.
pub(crate) async fn connect(addr: SocketAddr) -> io::Result<TcpStream> {
    connect_from(socket::dialling(addr, false)?, addr).await
}

/// The same from this socket.
async fn connect_from(socket: TcpSocket, addr: SocketAddr) -> io::Result<TcpStream> {
    let stream = socket.connect(addr).await?;
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// An address as it is compared and shown: an IPv4 peer of a socket for both families is an IPv4 peer.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
