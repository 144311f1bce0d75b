//! A network inside the process: for tests and examples that need many nodes and no sockets.
//!
//! ```text
//!   MemoryNetwork ── bind(addr) ──► MemoryTransport of a, MemoryTransport of b, …
//!        │
//!   hub: which endpoint is bound where, which lifelines exist
//! ```
//! [`Weather`]: what may lie between them.
//!
//! Frames reach the other side's queue at once, or never: a full queue loses them as a network would. A
//! lifeline ends as broken when a transport is dropped, and with a FIN only by [`MemoryNetwork::kill`], which
//! stands for the end of a process.

mod hub;
mod weather;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_core::{Class, LifelineCommand, LifelineEvent};
use antiphon_wire::frame::Frame;

use crate::faults::FaultTable;
use crate::{Closing, Faults, Inputs, Transport, TransportCounters};
use bytes::Bytes;
use hub::{Delivery, EndpointId, Hub};
pub use weather::{MAX_LATENCY, Path, SENT_AGAIN_AFTER, Weather};

/// A network inside the process. Clones are the same network.
#[derive(Debug, Clone, Default)]
pub struct MemoryNetwork {
    hub: Arc<Mutex<Hub>>,
}

impl MemoryNetwork {
    /// A network without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A transport at this address; port 0 takes a free one.
    ///
    /// # Errors
    /// `AddrInUse` if a transport is bound there.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<(MemoryTransport, Inputs)> {
        let (senders, inputs) = Inputs::channel();
        let faults = FaultTable::new();
        let (endpoint, addr) = self.lock().bind(addr, senders, faults.clone())?;
        let transport = MemoryTransport {
            network: self.clone(),
            endpoint,
            addr,
            faults,
            counters: TransportCounters::default(),
        };
        Ok((transport, inputs))
    }

    /// Ends the node at this address as the end of its process would: its lifelines end with a FIN, its
    /// connections are lost, and whatever it still sends goes nowhere. False if none is bound there.
    pub fn kill(&self, addr: SocketAddr) -> bool {
        self.lock().kill(addr)
    }

    fn lock(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node's end of a [`MemoryNetwork`].
#[derive(Debug)]
pub struct MemoryTransport {
    network: MemoryNetwork,
    endpoint: EndpointId,
    addr: SocketAddr,
    faults: FaultTable,
    counters: TransportCounters,
}

/// Frames that an injected delay may hold back at one time, per node.
const MAX_DELAYED: usize = 4096;

impl Transport for MemoryTransport {
    fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    fn send(&mut self, to: SocketAddr, class: Class, frame: Frame) {
        let frame = frame.to_bytes();
        let fault = self.faults.fault(to);
        if fault.block || (fault.drop > 0.0 && self.network.lock().is_lost(fault.drop)) {
            self.counters.frames_faulted += 1;
            return;
        }
        self.counters.frames_sent += 1;
        self.counters.bytes_sent += frame.len() as u64;
        let delivery = Delivery {
            from: self.endpoint,
            from_addr: self.addr,
            to,
            class,
            frame,
        };
        if fault.delay.is_zero() {
            self.counters.frames_dropped += u64::from(!self.network.lock().deliver(delivery));
            return;
        }
        let Some(permit) = self.network.lock().delay_permit(self.endpoint, MAX_DELAYED) else {
            self.counters.frames_dropped += 1;
            return;
        };
        let network = self.network.clone();
        tokio::spawn(async move {
            tokio::time::sleep(fault.delay).await;
            network.lock().deliver(delivery);
            drop(permit);
        });
    }

    fn probe(&mut self, to: SocketAddr, frame: Bytes) {
        let fault = self.faults.fault(to);
        let mut network = self.network.lock();
        let sent = !fault.block && !network.is_lost(fault.drop) && network.probe(self.addr, to, frame);
        self.counters.probes_sent += u64::from(sent);
    }

    fn lifeline(&mut self, command: LifelineCommand) -> Option<LifelineEvent> {
        self.network.lock().lifeline(self.endpoint, command)
    }

    fn set_faults(&mut self, faults: Faults) {
        self.faults.set(faults);
        self.network.lock().release_held(self.endpoint);
    }

    fn counters(&self) -> TransportCounters {
        let (frames_received, bytes_received) = self.network.lock().received(self.endpoint);
        TransportCounters {
            frames_received,
            bytes_received,
            ..self.counters
        }
    }

    fn close(self: Box<Self>, _within: Duration) -> Closing {
        // Frames are with the other side already.
        Box::pin(async move { drop(self) })
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        self.network.lock().unbind(self.endpoint);
    }
}
