//! UDP for messages, TCP for everything else, both on one port, IPv4 and IPv6.
//!
//! ```text
//!   this node                                              a peer
//!   control, lifelines ──── as with TCP (tcp/) ─────────►  inbound
//!   flow (one per peer) ─── segments of bulk frames ────►  session ─► frames, in order ─► driver
//!                       ◄── what has arrived, the window ─
//! ```
//! | what | travels by | why |
//! |---|---|---|
//! | lifelines | TCP | proof of a death is a FIN (R9), and only a connection has one |
//! | control | TCP | little and small, and a member waits for each frame: the kernel repeats it, and notices a refused or broken path at once |
//! | bulk, chain, multicast to members that do not hear it | UDP once a hello was answered, TCP until then | much, and repaired by the core: one lost datagram must not hold back megabytes behind it |
//!
//! Probes travel bare, on the same socket: they begin as frames do and not as datagrams do, and nothing
//! answers them (the module `probes`).
//!
//! **Every node with this transport sends and takes UDP; no node has to be told which others do.** A hello as
//! large as the path allows is answered, or messages go on by TCP: to a node without UDP, through a firewall
//! that drops it, over a path that has become smaller. What goes to all at once is sent by multicast beside
//! either transport (the module `multicast`). The module `flow` says how a node sends, `window` how much may
//! be on its way, `sessions` what happens at the receiver, and [`antiphon_wire::datagram`] what is in a
//! datagram.
//!
//! # Why frames are cut here
//! A frame has up to 64 KiB, a datagram what the path takes, 1472 bytes on most paths. Frames of that size
//! would each be sealed, numbered and opened by themselves, 40 times as often. So a frame is sealed once for
//! all destinations, as on every transport, and cut into at most 64 segments on its way into the socket,
//! without a copy and by one system call. A lost segment costs only that segment: the receiver names it, and
//! the sender still has the frame. The sender gives up after a while, and the core repairs, as it does on a
//! broken TCP connection.
//!
//! # Invariants
//! - A sender has no more on its way than the receiver granted, one frame excepted. The grants together are
//!   half of the kernel's buffer. So the buffer overflows only if more senders begin at once than it has room
//!   for.
//! - A frame that is reported as arrived is with the driver, or was given up.
//! - No datagram is larger than what a hello has shown to pass; none is fragmented by IP.
//!
//! # Costs
//! Sending: no copy but the kernel's; one system call a frame where the kernel cuts (GSO). Receiving: up to
//! eight times 64 KiB a system call, one copy from the read buffer into the frame, no allocation (memory of
//! frames that are forgotten is used again). 28 bytes a datagram, and one report for a quarter of a window.
//!
//! # What happens when…
//! - *the peer's process ends*: its next incarnation does not know the session and says so; the flow says
//!   hello again. Only TCP tells of the death: a silent UDP path proves nothing and is no path trouble;
//! - *datagrams are lost*: the receiver names what is missing as soon as it sees what comes after; if nothing
//!   comes after, the sender asks. Frames wait for the one before them, for 0.4 s at most;
//! - *all datagrams are lost*: after six questions without an answer, within two seconds, messages go by TCP,
//!   and a hello is tried from time to time;
//! - *the path passes only smaller datagrams from now on*: the receiver names the same large segments twelve
//!   times, and the sender says hello again, which finds the size that passes;
//! - *the driver does not take frames*: nothing is reported, senders stop when their windows are full;
//! - *a stranger sends*: without a cookie that was sent to the address it claims, it leaves no trace but a
//!   counter and a line in the log now and then. With one, it has a session that may hold 128 KiB until the
//!   core refuses its first frame;
//! - *a host on the path forges segments*: the frame does not open and is lost. Only a private path helps
//!   against such a host.

mod enquiry;
mod flow;
mod memory;
mod multicast;
mod probes;
mod sessions;
mod socket;
mod window;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use antiphon_core::{Class, LifelineCommand, LifelineEvent};
use antiphon_wire::frame::Frame;
use bytes::Bytes;

use crate::faults::is_lost;
use crate::tcp::{AbortOnDrop, Common, TcpConfig, TcpTransport};
use crate::{Closing, Faults, Inputs, PathStatus, Transport, TransportCounters};
use flow::{Flow, Flows};
use sessions::Receiver;
use socket::Datagrams;

pub use enquiry::{Greeted, greet};
pub(crate) use multicast::Multicaster;
pub use multicast::{MulticastConfig, MulticastSockets, sockets as multicast_sockets};
pub(crate) use probes::Prober;
pub use probes::listen_for_probes;
pub use socket::{SMALLEST_DATAGRAM, listen};

/// Settings of a UDP transport. Made with [`UdpConfig::new`], then changed field by field.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UdpConfig {
    /// Settings of what goes by TCP; its limits hold for sessions as for connections.
    pub tcp: TcpConfig,
    /// Datagrams are never larger, without the headers of IP and UDP; at least
    /// [`SMALLEST_DATAGRAM`]. `None`: what the route to the peer takes.
    pub max_datagram: Option<usize>,
}

impl UdpConfig {
    /// Settings for a node that is reached at this address.
    pub fn new(advertised: SocketAddr) -> Self {
        Self {
            tcp: TcpConfig::new(advertised),
            max_datagram: None,
        }
    }
}

/// What all tasks of one socket share. A node has one socket for each of its addresses.
#[derive(Debug)]
struct Shared {
    config: UdpConfig,
    tcp: Arc<Common>,
    socket: Datagrams,
    flows: Flows,
    counters: SegmentCounters,
}

#[derive(Debug, Default)]
struct SegmentCounters {
    sent: AtomicU64,
    repaired: AtomicU64,
    received: AtomicU64,
    refused: AtomicU64,
    lost_frames: AtomicU64,
}

impl SegmentCounters {
    fn sent(&self, segments: usize) {
        self.sent.fetch_add(segments as u64, Ordering::Relaxed);
    }

    fn repaired(&self, segments: usize) {
        self.repaired.fetch_add(segments as u64, Ordering::Relaxed);
    }

    fn received(&self, segments: u64) {
        self.received.fetch_add(segments, Ordering::Relaxed);
    }

    fn refused(&self, datagrams: u64) {
        self.refused.fetch_add(datagrams, Ordering::Relaxed);
    }

    fn lost(&self, frames: u64) {
        self.lost_frames.fetch_add(frames, Ordering::Relaxed);
    }
}

/// A node's UDP transport, with the TCP transport that it rests on.
#[derive(Debug)]
pub struct UdpTransport {
    tcp: TcpTransport,
    /// What TCP shares: everything in its care goes through this.
    common: Arc<Common>,
    ports: Ports,
    flows: BTreeMap<SocketAddr, Flow>,
    receivers: Vec<AbortOnDrop>,
}

/// The sockets of a node; at least one.
#[derive(Debug, Clone)]
struct Ports {
    all: Arc<[Arc<Shared>]>,
}

impl Ports {
    /// The socket to send from to an address: the socket bound to the address that the system would send
    /// from, or else one that can send there.
    fn towards(&self, to: SocketAddr) -> &Arc<Shared> {
        socket::towards(&self.all, |port| port.socket.local, to).unwrap_or(&self.all[0])
    }
}

/// Addresses with a flow at one time.
const MAX_FLOWS: usize = 4096;
/// A flow unused for this long may be forgotten.
const FORGET_FLOW: Duration = Duration::from_secs(300);

impl UdpTransport {
    /// Serves listeners made by [`listen`]. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// What the system says about the listeners.
    pub fn start(
        listeners: (std::net::TcpListener, std::net::UdpSocket),
        config: UdpConfig,
    ) -> io::Result<(Self, Inputs)> {
        Self::start_all(vec![listeners], config)
    }

    /// The same for a node with several addresses, each with both listeners.
    ///
    /// # Errors
    /// What the system says about the listeners; `InvalidInput` if there is none.
    pub fn start_all(
        listeners: Vec<(std::net::TcpListener, std::net::UdpSocket)>,
        config: UdpConfig,
    ) -> io::Result<(Self, Inputs)> {
        let (listeners, sockets): (Vec<_>, Vec<_>) = listeners.into_iter().unzip();
        let sockets: Vec<Datagrams> = sockets
            .into_iter()
            .map(Datagrams::new)
            .collect::<io::Result<_>>()?;
        let (tcp, inputs) = TcpTransport::start_all(listeners, config.tcp.clone())?;
        let common = tcp.common();
        let port = |socket| {
            Arc::new(Shared {
                config: config.clone(),
                tcp: common.clone(),
                socket,
                flows: Flows::default(),
                counters: SegmentCounters::default(),
            })
        };
        let ports = Ports {
            all: sockets.into_iter().map(port).collect(),
        };
        let receive = |port: &Arc<Shared>| AbortOnDrop(tokio::spawn(Receiver::new(port.clone()).run()));
        let transport = Self {
            receivers: ports.all.iter().map(receive).collect(),
            tcp,
            common,
            ports,
            flows: BTreeMap::new(),
        };
        Ok((transport, inputs))
    }

    /// Sends and listens by multicast as well.
    ///
    /// # Errors
    /// What the system says: the interface does not exist, or does not do it.
    pub fn join_multicast(&mut self, config: &MulticastConfig) -> io::Result<()> {
        self.tcp.join_multicast(config)
    }

    fn flow(&mut self, to: SocketAddr) -> Option<&mut Flow> {
        if !self.flows.contains_key(&to) {
            // The other transport refuses an address that may not be dialled, and says so.
            if self.common.config.loopback_only && !to.ip().is_loopback() {
                return None;
            }
            let now = Instant::now();
            if self.flows.len() >= MAX_FLOWS {
                self.flows
                    .retain(|_, flow| now.duration_since(flow.last_used) < FORGET_FLOW);
            }
            if self.flows.len() >= MAX_FLOWS {
                return None;
            }
            self.flows.insert(to, Flow::spawn(self.ports.clone(), to));
        }
        self.flows.get_mut(&to)
    }
}

impl Transport for UdpTransport {
    fn local_addr(&self) -> SocketAddr {
        self.tcp.local_addr()
    }

    fn send(&mut self, to: SocketAddr, class: Class, frame: Frame) {
        let common = self.common.clone();
        let flow = match class {
            Class::Control => None,
            Class::Bulk => self.flow(to),
        };
        let Some(flow) = flow.filter(|flow| flow.is_open()) else {
            return self.tcp.send(to, class, frame);
        };
        flow.last_used = Instant::now();
        let fault = common.faults.fault(to);
        let length = frame.len();
        if fault.block || is_lost(fault.drop) {
            return common.counters.faulted(1);
        }
        match flow.push(frame, fault.delay) {
            Ok(true) => common.counters.sent(length),
            Ok(false) => common.counters.dropped(1),
            Err(frame) => self.tcp.send(to, class, frame),
        }
    }

    fn flush(&mut self) {
        self.tcp.flush();
    }

    fn multicast(&mut self, frame: Frame) {
        self.tcp.multicast(frame);
    }

    /// By the socket of the flows: a node that answers flows takes probes there.
    fn probe(&mut self, to: SocketAddr, frame: Bytes) {
        let port = self.ports.towards(to);
        if probes::may_send(&self.common, to) {
            let sent = port.socket.send_or_forget(to, &frame);
            self.common.counters.probe_sent(sent.is_ok());
        }
    }

    fn lifeline(&mut self, command: LifelineCommand) -> Option<LifelineEvent> {
        self.tcp.lifeline(command)
    }

    fn set_faults(&mut self, faults: Faults) {
        self.tcp.set_faults(faults);
    }

    fn counters(&self) -> TransportCounters {
        let sum = |counter: fn(&SegmentCounters) -> &AtomicU64| {
            let ports = self.ports.all.iter();
            ports
                .map(|port| counter(&port.counters).load(Ordering::Relaxed))
                .sum()
        };
        TransportCounters {
            segments_sent: sum(|counters| &counters.sent),
            segments_repaired: sum(|counters| &counters.repaired),
            segments_received: sum(|counters| &counters.received),
            datagrams_refused: sum(|counters| &counters.refused),
            frames_incomplete: sum(|counters| &counters.lost_frames),
            ..self.tcp.counters()
        }
    }

    fn paths(&self) -> Vec<PathStatus> {
        self.tcp.paths()
    }

    fn close(self: Box<Self>, within: Duration) -> Closing {
        let Self {
            tcp,
            ports,
            flows,
            receivers,
            ..
        } = *self;
        Box::pin(async move {
            let began = Instant::now();
            let mut tasks: Vec<AbortOnDrop> = flows.into_values().map(Flow::finish).collect();
            let finished = async {
                for task in &mut tasks {
                    // A task that panicked has nothing left to send.
                    let _ = (&mut task.0).await;
                }
            };
            // Frames that have not arrived by then are lost, as with TCP.
            let _ = tokio::time::timeout(within, finished).await;
            tasks.extend(receivers);
            // A task that has ended must not be waited for twice.
            tasks.retain(|task| !task.0.is_finished());
            tasks.iter().for_each(|task| task.0.abort());
            for mut task in tasks {
                let _ = (&mut task.0).await;
            }
            // Only then are the ports free again.
            drop(ports);
            Box::new(tcp).close(within.saturating_sub(began.elapsed())).await;
        })
    }
}
