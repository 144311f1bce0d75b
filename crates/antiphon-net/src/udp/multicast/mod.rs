//! One send for all: frames by IP multicast.
//!
//! ```text
//!   driver ── multicast(frame) ──► queue ──► task ── segments ──► group address ──► every node that listens there
//!   driver ◄── frames ── assemblies, one per stream that is heard ◄─────────── the others' segments
//! ```
//! Multicast goes beside either transport. Control, lifelines, repairs and messages to members that hear
//! nothing by multicast travel as they do without it. Segments are those of [`antiphon_wire::datagram`], of a
//! stream that its sender has numbered at random. No node says hello, reports, or is asked anything. The core
//! notices and repairs what is lost here, as it does for any transport.
//!
//! # Where it goes
//! To one address and port for the cluster. The socket that listens is bound to that address, so it hears
//! nothing else. It may be shared: several nodes of a host get a copy each. The socket that sends is bound to
//! the node's own address and sends through that interface, one hop far unless told otherwise: nothing leaves
//! the network by mistake.
//!
//!
//! Without a key it must be the loopback interface, by an IPv4 address of it: [`Multicaster::start`] refuses
//! any other.
//!
//! # How large
//! Datagrams fill packets of 1500 bytes, or of what the interface takes if that is less, or of
//! [`max_datagram`](MulticastConfig::max_datagram). Nothing finds out what passes on the way. The core's
//! calls are larger than any datagram. So if full datagrams do not pass, no member hears a call, and messages
//! go directly.
//!
//! # Bounds
//! A queue in frames and bytes (full: frames are dropped and counted, the core repairs). Streams are limited
//! in all, and per IP address. A stream that has brought nothing authentic may hold 128 KiB, and where a
//! limit is met the oldest such stream makes room.
//!
//! # Costs
//! Sending: as a flow of [`udp`](crate::udp), once for all. Receiving: one copy from the read buffer into the
//! frame.
//!
//! # What happens when…
//! - *the network drops it all*: nothing comes, no member answers the core's calls, and messages go directly;
//! - *a receiver is too slow*: its socket overflows, and it asks for what it missed; credit bounds how much
//!   that can be;
//! - *a stranger sends*: frames of another cluster, or of a node that the core does not speak to, are dropped
//!   by their header. Any other frame that does not open counts, and three end its stream;
//! - *a host forges segments of a member's stream*: frames do not open and are lost, and repaired directly.
//!   Numbers far ahead of a stream that was authentic are not followed, and a stream with nothing of use for
//!   a second begins anew.

mod hearing;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use antiphon_wire::datagram::{MAX_DATAGRAM_BYTES, SEGMENT_HEADER_BYTES, Segment};
use antiphon_wire::frame::Frame;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::sync::mpsc;

use super::flow::{MAX_SLICES, fill};
use super::socket::{Datagrams, Offload, SMALLEST_DATAGRAM};
use crate::tcp::{AbortOnDrop, Common};
use hearing::Hearing;

/// Frames that may wait for the socket.
const QUEUE_FRAMES: usize = 1024;
/// Bytes that may wait for it.
const QUEUE_BYTES: usize = 8 << 20;
/// Frames taken from the queue at a time.
const BATCH: usize = 16;
/// A part of a frame is no longer waited for after the first part of so many later frames.
const BEHIND: u64 = 2;
/// What every network with IP passes that multicast passes in practice: Ethernet's packet.
const PACKET_BYTES: usize = 1500;

/// Where and how a node sends and listens by multicast. Made with [`MulticastConfig::new`], then changed
/// field by field.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MulticastConfig {
    /// The multicast address and port of the cluster.
    pub group: SocketAddr,
    /// An address of the interface to use, of the group's family; unspecified: the system chooses.
    pub interface: IpAddr,
    /// For IPv6, the number of the interface; 0: the system chooses.
    pub interface_index: u32,
    /// How many routers it may pass, plus one.
    pub hops: u32,
    /// Datagrams are never larger, without the headers of IP and UDP: at least
    /// [`SMALLEST_DATAGRAM`](super::SMALLEST_DATAGRAM). They are smaller if the interface takes less.
    pub max_datagram: usize,
}

impl MulticastConfig {
    /// Settings for this group, on the interface with this address, for one hop.
    pub fn new(group: SocketAddr, interface: IpAddr) -> Self {
        let headers = if group.is_ipv4() { 28 } else { 48 };
        Self {
            group,
            interface,
            interface_index: 0,
            hops: 1,
            max_datagram: PACKET_BYTES - headers,
        }
    }
}

/// Sends to the group, and listens to it. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Multicaster {
    queue: mpsc::Sender<Frame>,
    queued_bytes: Arc<AtomicUsize>,
    common: Arc<Common>,
    _tasks: [AbortOnDrop; 2],
}

impl Multicaster {
    /// Joins the group. Must be called on a tokio runtime.
    pub(crate) fn start(common: Arc<Common>, config: &MulticastConfig) -> io::Result<Self> {
        check(config, common.config.loopback_only)?;
        let stream = getrandom::u64().map_err(|_| io::ErrorKind::Other)?;
        let ears = Datagrams::new(ears(config)?)?;
        let mouth = mouth(config)?;
        let datagram = interface_takes(config)
            .unwrap_or(usize::MAX)
            .clamp(SMALLEST_DATAGRAM, config.max_datagram);
        let mouth = Datagrams::new(mouth)?;
        let (queue, receiver) = mpsc::channel(QUEUE_FRAMES);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let casting = Casting {
            common: common.clone(),
            destination: scoped(config).into(),
            offload: mouth.offload(),
            mouth,
            stream,
            size: datagram - SEGMENT_HEADER_BYTES,
            queue: receiver,
            queued_bytes: queued_bytes.clone(),
            headers: Vec::new(),
        };
        let hearing = Hearing::new(common.clone(), ears, stream);
        Ok(Self {
            queue,
            queued_bytes,
            common,
            _tasks: [
                AbortOnDrop(tokio::spawn(casting.run())),
                AbortOnDrop(tokio::spawn(hearing.run())),
            ],
        })
    }

    pub(crate) fn multicast(&self, frame: Frame) {
        let length = frame.len();
        let fits = self.queued_bytes.load(Ordering::Acquire) + length <= QUEUE_BYTES;
        self.queued_bytes.fetch_add(length, Ordering::AcqRel);
        if fits && self.queue.try_send(frame).is_ok() {
            self.common.counters.sent(length);
        } else {
            self.queued_bytes.fetch_sub(length, Ordering::AcqRel);
            self.common.counters.dropped(1);
        }
    }
}

/// Sockets of a group that other code reads and writes, datagram by datagram.
#[derive(Debug)]
pub struct MulticastSockets {
    /// Bound to the group: hears nothing else. Does not block.
    pub ears: std::net::UdpSocket,
    /// Sends through the interface. Does not block.
    pub mouth: std::net::UdpSocket,
    /// Where to send to.
    pub group: SocketAddr,
}

/// Joins the group for another purpose than frames of a node.
///
/// # Errors
/// What the system says, or what is wrong with the settings.
pub fn sockets(config: &MulticastConfig) -> io::Result<MulticastSockets> {
    check(config, false)?;
    Ok(MulticastSockets {
        ears: ears(config)?,
        mouth: mouth(config)?,
        group: scoped(config),
    })
}

fn check(config: &MulticastConfig, loopback_only: bool) -> io::Result<()> {
    let on_loopback = config.group.is_ipv4() && config.interface.is_ipv4() && config.interface.is_loopback();
    let trouble = if !config.group.ip().is_multicast() {
        "it is no multicast address"
    } else if loopback_only && !on_loopback {
        "without a key it must be an IPv4 group, on the interface with a loopback IPv4 address"
    } else if config.group.is_ipv6() && config.interface_index == 0 {
        "an IPv6 group needs the number of an interface"
    } else if config.hops == 0 || config.hops > 255 {
        "hops must be 1 to 255"
    } else if !(SMALLEST_DATAGRAM..=MAX_DATAGRAM_BYTES).contains(&config.max_datagram) {
        "the largest datagram must have 1232 to 65507 bytes"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, trouble))
}

/// The largest datagram that the interface takes, if the system says so.
#[cfg(target_os = "linux")]
fn interface_takes(config: &MulticastConfig) -> Option<usize> {
    // Only a connected socket knows this, so a separate socket is connected. Nothing is sent.
    let probe = mouth(config).ok()?;
    probe.connect(scoped(config)).ok()?;
    match config.group {
        SocketAddr::V4(_) => Some(rustix::net::sockopt::ip_mtu(&probe).ok()?.saturating_sub(28) as usize),
        SocketAddr::V6(_) => Some(rustix::net::sockopt::ipv6_mtu(&probe).ok()?.saturating_sub(48) as usize),
    }
}

#[cfg(not(target_os = "linux"))]
fn interface_takes(_config: &MulticastConfig) -> Option<usize> {
    None
}

/// The group as a socket wants it: with the interface, without which addresses of the local link mean
/// nothing.
fn scoped(config: &MulticastConfig) -> SocketAddr {
    match config.group {
        SocketAddr::V4(group) => group.into(),
        SocketAddr::V6(group) => {
            SocketAddrV6::new(*group.ip(), group.port(), 0, config.interface_index).into()
        }
    }
}

fn ears(config: &MulticastConfig) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(config.group),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    // Each node of a host gets a copy.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    match config.group.ip() {
        IpAddr::V4(group) => {
            socket.bind(&config.group.into())?;
            // Otherwise Linux hands over what came by any interface on which any process of this host has
            // joined the group.
            #[cfg(target_os = "linux")]
            socket.set_multicast_all_v4(false)?;
            socket.join_multicast_v4(&group, &interface_v4(config))?;
        }
        IpAddr::V6(group) => {
            socket.set_only_v6(true)?;
            socket.bind(&scoped(config).into())?;
            #[cfg(target_os = "linux")]
            // Not known before Linux 4.20.
            let _ = socket.set_multicast_all_v6(false);
            socket.join_multicast_v6(&group, config.interface_index)?;
        }
    }
    Ok(socket.into())
}

fn mouth(config: &MulticastConfig) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(config.group),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    socket.set_nonblocking(true)?;
    let from = match (config.group.is_ipv4(), config.interface) {
        (true, IpAddr::V4(_)) | (false, IpAddr::V6(_)) => config.interface,
        (true, _) => Ipv4Addr::UNSPECIFIED.into(),
        (false, _) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    if config.group.is_ipv4() {
        socket.set_multicast_if_v4(&interface_v4(config))?;
        socket.set_multicast_ttl_v4(config.hops)?;
        // The other nodes of this host listen as well.
        socket.set_multicast_loop_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_multicast_if_v6(config.interface_index)?;
        socket.set_multicast_hops_v6(config.hops)?;
        socket.set_multicast_loop_v6(true)?;
    }
    socket.bind(&SocketAddr::new(from, 0).into())?;
    Ok(socket.into())
}

fn interface_v4(config: &MulticastConfig) -> Ipv4Addr {
    match config.interface {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// The task that sends.
struct Casting {
    common: Arc<Common>,
    destination: SockAddr,
    mouth: Datagrams,
    offload: Offload,
    stream: u64,
    /// Bytes of a segment.
    size: usize,
    queue: mpsc::Receiver<Frame>,
    queued_bytes: Arc<AtomicUsize>,
    /// Used again for each send.
    headers: Vec<u8>,
}

impl Casting {
    async fn run(mut self) {
        let mut frames = Vec::with_capacity(BATCH);
        let mut waiting: VecDeque<Frame> = VecDeque::new();
        let mut number = 0;
        let mut told = false;
        loop {
            if self.queue.recv_many(&mut frames, BATCH).await == 0 {
                return;
            }
            waiting.extend(frames.drain(..));
            while let Some(frame) = waiting.pop_front() {
                number += 1;
                self.queued_bytes.fetch_sub(frame.len(), Ordering::AcqRel);
                let sent = self.send(number, &frame).await;
                if let Err(error) = sent {
                    self.common.counters.dropped(1);
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(target: "antiphon::net", %error, "a frame was not sent by multicast: those that miss it ask for it, and if it goes on messages go directly. If it is too large for a network on \
                             the way, give a smaller --max-datagram at this node");
                    }
                }
            }
        }
    }

    async fn send(&mut self, number: u64, frame: &Frame) -> io::Result<()> {
        let count = frame.len().div_ceil(self.size);
        let mut first = 0;
        while first < count {
            let at_once = self
                .offload
                .segments_at_once(self.size + SEGMENT_HEADER_BYTES)
                .min(count - first);
            self.headers.clear();
            for index in first..first + at_once {
                let segment = Segment {
                    session: self.stream,
                    number,
                    behind: BEHIND.min(number - 1) as u16,
                    length: frame.len(),
                    size: self.size,
                    index: index as u8,
                    report_at_once: false,
                    bytes: &[],
                };
                self.headers.extend_from_slice(&segment.header());
            }
            let headers = &self.headers;
            let start = first * self.size;
            let control = (at_once > 1).then_some(self.size + SEGMENT_HEADER_BYTES);
            let sent = self
                .mouth
                .send(&self.destination, control, |transmit| {
                    let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                    let used = fill(&mut slices, headers, frame, start, self.size);
                    transmit(&slices[..used])
                })
                .await;
            match sent {
                Ok(()) => first += at_once,
                // The same again, one by one.
                Err(error) if at_once > 1 && self.offload.is_refused(&self.destination, &error) => {}
                // Full queues of the device lose a datagram as the network does.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => first += at_once,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
