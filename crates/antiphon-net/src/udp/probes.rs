//! Probes: a frame of kind `probe` alone in a datagram, on the port number that the node listens on (R21).
//!
//! TCP holds heartbeats up for seconds where packets are lost. So the core also sends them this way when it
//! sees need. Nothing here waits, repeats or answers: a probe for which a socket has no room is lost, and the
//! next one follows half a heartbeat later. Any host that can send to the port can bring something that looks
//! like a probe to the core, which opens only those of members. Up to there, a datagram costs a look at its
//! first bytes and a place in a short queue of its own. Beyond that queue it is dropped.
//!
//! A hello ([`greet`](super::greet)) comes from a node that would send messages so, or that asks whether UDP
//! passes. The answer is `unknown`, which names its flow: no session has such a number, so it means nothing
//! to a sender. The answer is the shortest datagram there is, and nothing is remembered.
//!
//! A node whose UDP port is taken, or whose system forbids it, goes on without probes. Its silence is then as
//! long as TCP's, as if UDP did not pass.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use antiphon_wire::datagram::{Datagram, Hello, decode};
use antiphon_wire::frame::{self, Kind, MAX_PROBE_BYTES};
use bytes::Bytes;
use quinn_udp::RecvMeta;

use super::socket::{self, AddressPair, Datagrams};
use crate::Input;
use crate::faults::is_lost;
use crate::tcp::{self, AbortOnDrop, Common};

/// A TCP listener, and a socket for probes on the same port number if there can be one; else why not.
///
/// # Errors
/// What the system says of the listener.
pub fn listen_for_probes(
    addr: SocketAddr,
) -> io::Result<(std::net::TcpListener, io::Result<std::net::UdpSocket>)> {
    for _ in 1..socket::PORTS_TRIED {
        let listener = tcp::listen(addr)?;
        match socket::bind(listener.local_addr()?) {
            // Any port will do, and another one may be free for both.
            Err(error) if addr.port() == 0 && error.kind() == io::ErrorKind::AddrInUse => {}
            socket => return Ok((listener, socket)),
        }
    }
    let listener = tcp::listen(addr)?;
    let socket = listener.local_addr().and_then(socket::bind);
    Ok((listener, socket))
}

/// Whether a datagram looks like a probe.
pub(super) fn is_one(datagram: &[u8]) -> bool {
    datagram.len() <= MAX_PROBE_BYTES && matches!(frame::peek(datagram), Ok((Kind::Probe, _)))
}

/// Gives a datagram that looks like a probe to the driver, unless too many wait there.
pub(super) fn hand_over(common: &Common, datagram: &[u8]) {
    let frame = Bytes::copy_from_slice(datagram);
    let taken = common.inputs.probes.try_send(Input::Probe { frame });
    common.counters.probe_received(taken.is_ok());
}

/// Whether a probe may be sent there: as for frames, but a fault that delays frames does not delay it.
pub(super) fn may_send(common: &Common, to: SocketAddr) -> bool {
    if common.config.loopback_only && !to.ip().is_loopback() {
        return false;
    }
    let fault = common.faults.fault(to);
    let faulted = fault.block || is_lost(fault.drop);
    if faulted {
        common.counters.faulted(1);
    }
    !faulted
}

/// The sockets of a node whose frames go by TCP.
#[derive(Debug)]
pub(crate) struct Prober {
    common: Arc<Common>,
    sockets: Vec<Arc<Datagrams>>,
    receivers: Vec<AbortOnDrop>,
}

impl Prober {
    /// Begins to receive.
    pub(crate) fn start(common: Arc<Common>, sockets: Vec<std::net::UdpSocket>) -> io::Result<Self> {
        let sockets: Vec<Arc<Datagrams>> = sockets
            .into_iter()
            .map(|socket| Ok(Arc::new(Datagrams::as_it_is(socket)?)))
            .collect::<io::Result<_>>()?;
        let receive =
            |socket: &Arc<Datagrams>| AbortOnDrop(tokio::spawn(receive(common.clone(), socket.clone())));
        Ok(Self {
            receivers: sockets.iter().map(receive).collect(),
            sockets,
            common,
        })
    }

    /// Now or never.
    pub(crate) fn send(&self, to: SocketAddr, frame: &[u8]) {
        if !may_send(&self.common, to) {
            return;
        }
        let chosen = socket::towards(&self.sockets, |socket| socket.local, to);
        let sent = chosen.is_some_and(|socket| socket.send_or_forget(to, frame).is_ok());
        self.common.counters.probe_sent(sent);
    }

    /// Returns when the ports are free.
    pub(crate) async fn close(self) {
        for mut receiver in self.receivers {
            receiver.0.abort();
            let _ = (&mut receiver.0).await;
        }
    }
}

fn take(common: &Common, socket: &Datagrams, pair: AddressPair, datagram: &[u8]) {
    if is_one(datagram) {
        return hand_over(common, datagram);
    }
    common.counters.datagram_refused();
    if let Ok(Datagram::Hello(hello)) = decode(datagram) {
        answer(common, socket, pair, &hello);
    }
}

/// Says that this node is here and takes no messages so. Now or never: a node that greets does so again.
fn answer(common: &Common, socket: &Datagrams, to: AddressPair, hello: &Hello) {
    if common.faults.blocks(hello.advertised) {
        return;
    }
    let mut bytes = Vec::new();
    Datagram::Unknown { session: hello.flow }.encode(&mut bytes);
    // Without room it is lost.
    let _ = socket.send_or_forget(to, &bytes);
}

/// The kernel joins datagrams of one sender up to this.
const BUFFER_BYTES: usize = 1 << 16;
/// Reads before others of this process may run.
const READS: usize = 64;

async fn receive(common: Arc<Common>, socket: Arc<Datagrams>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        if socket.readable().await.is_err() {
            return;
        }
        for _ in 0..READS {
            let mut meta = [RecvMeta::default()];
            let received = socket.try_receive(&mut [IoSliceMut::new(&mut buffer)], &mut meta);
            match received {
                Ok(_) => {
                    let [meta] = meta;
                    let (first, more) = buffer[..meta.len].split_at(meta.stride.min(meta.len));
                    for datagram in std::iter::once(first).chain(more.chunks(meta.stride.max(1))) {
                        take(&common, &socket, AddressPair::of(&meta), datagram);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Errors of a datagram socket are about single datagrams.
                Err(_) => {}
            }
        }
        tokio::task::yield_now().await;
    }
}
