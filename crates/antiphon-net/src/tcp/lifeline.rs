//! Lifelines: connections whose end proves that a process is gone (R9).
//!
//! ```text
//!   watched side                                       watcher
//!   dial ─► preamble ─► hello, votes, … GOODBYE ─────►  read armed, never writes
//!   read armed: any byte or end here is a failure       FIN ─► process gone, if nothing else explains it
//! ```
//! When a process ends, in whatever way, a kernel closes its sockets with a FIN, behind all bytes written
//! before. So a FIN proves the end of the process *if code never sends one*. [`LifelineSocket`] is the only
//! owner of a watched side's socket, and its `Drop` makes every close by code a reset. The descriptor is
//! closed on exec from its creation and never duplicated.
//!
//! A fork without exec would share the descriptor and suppress the FIN. That is safe: the end is then merely
//! not proven. `closefrom` and the like would send a FIN from a living process; the crate's page forbids
//! them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_core::{DialId, LifelineEnd, LifelineEvent};
use antiphon_wire::stream::length_prefix;
use bytes::Bytes;
use rustix::net::SendFlags;
use socket2::SockRef;
use tokio::net::TcpStream;

use super::inbound::{Inbound, Read};
use super::outbound::unexpected;
use super::{AbortOnDrop, Common, Counted, canonical, connect, preamble, socket};
use crate::{Input, Lack};

/// The socket of a watched side. Dropped, it is reset.
#[derive(Debug)]
struct LifelineSocket {
    stream: TcpStream,
    _open: Counted,
}

impl LifelineSocket {
    /// From here on no end of this socket is a FIN any more, not even that of the process.
    fn poison(&self) {
        // Fails only on a socket that has no connection to end.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Writes all of it now, or fails. It does not ask the runtime whether the socket is ready, because the
    /// runtime may lag behind the kernel.
    fn write_at_once(&self, bytes: &[u8]) -> bool {
        rustix::net::send(
            self.stream.as_fd(),
            bytes,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        ) == Ok(bytes.len())
    }
}

impl Drop for LifelineSocket {
    fn drop(&mut self) {
        // R9: the stream is closed right after this.
        self.poison();
    }
}

/// A lifeline on which this process is watched. Dropped, it is reset.
#[derive(Debug)]
pub(super) struct OutboundLifeline {
    slot: Slot,
    _task: AbortOnDrop,
}

/// The socket once it is connected and until it has failed.
type Slot = Arc<Mutex<Option<Arc<LifelineSocket>>>>;

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Arc<LifelineSocket>>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OutboundLifeline {
    pub(super) fn dial(common: Arc<Common>, dial: DialId, addr: SocketAddr) -> Self {
        let slot = Slot::default();
        let task = AbortOnDrop(tokio::spawn(be_watched(common, dial, addr, slot.clone())));
        Self { slot, _task: task }
    }

    /// Writes a whole record now. False if it could not; then no FIN will follow what was written, and the
    /// caller drops the lifeline. True also if it has failed before, which was reported.
    pub(super) fn write(&self, record: &Bytes) -> bool {
        let slot = lock(&self.slot);
        let Some(socket) = slot.as_ref() else { return true };
        let bytes = [&length_prefix(record.len())[..], record].concat();
        let written = socket.write_at_once(&bytes);
        if !written {
            // R2: before any later output. The task may hold the socket a moment longer.
            socket.poison();
        }
        written
    }
}

impl Drop for OutboundLifeline {
    fn drop(&mut self) {
        // The task is aborted next, but it holds the socket until the runtime gets to it. No FIN may come of
        // that.
        if let Some(socket) = lock(&self.slot).take() {
            socket.poison();
        }
    }
}

/// Dials, then waits for what must not happen: the watcher writing, or the connection ending.
async fn be_watched(common: Arc<Common>, dial: DialId, addr: SocketAddr, slot: Slot) {
    let mut event = LifelineEvent::Failed { dial };
    let opened = open(&common, dial, addr).await;
    if let Err(error) = &opened {
        event = not_opened(dial, common.lacks.note(&common.inputs, error));
    }
    if let Ok((socket, opened)) = opened {
        let socket = Arc::new(socket);
        *lock(&slot) = Some(socket.clone());
        if common
            .inputs
            .urgent
            .send(Input::Lifeline {
                event: opened,
                connection: None,
            })
            .await
            .is_err()
        {
            return;
        }
        let error = unexpected(&socket.stream).await;
        tracing::debug!(target: "antiphon::net", %addr, %error, "a lifeline to a watcher has failed");
        socket.poison();
        lock(&slot).take();
    }
    let failed = Input::Lifeline {
        event,
        connection: None,
    };
    // The driver may be gone; then no task needs to know.
    let _ = common.inputs.urgent.send(failed).await;
}

/// What to tell the core of a dial that failed. If other ways out of this host may be open all the same, it
/// is trouble with this one.
fn not_opened(dial: DialId, lack: Option<Lack>) -> LifelineEvent {
    match lack {
        Some(lack) if !lack.is_of_one_way() => LifelineEvent::NotDialled { dial },
        _ => LifelineEvent::Failed { dial },
    }
}

async fn open(
    common: &Arc<Common>,
    dial: DialId,
    addr: SocketAddr,
) -> io::Result<(LifelineSocket, LifelineEvent)> {
    let dialled = async {
        common.faults.unblocked(addr).await;
        connect(addr).await
    };
    let stream = tokio::time::timeout(common.config.connect_timeout, dialled)
        .await
        .map_err(io::Error::from)??;
    let socket = LifelineSocket {
        stream,
        _open: Counted::new(common),
    };
    socket::tune_lifeline(&socket.stream)?;
    // A fresh socket has room for it.
    if !socket.write_at_once(&preamble::encode(common.config.advertised)) {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let local = canonical(socket.stream.local_addr()?);
    let remote = canonical(socket.stream.peer_addr()?);
    Ok((socket, LifelineEvent::Opened { dial, local, remote }))
}

/// Watches the process that dialled, starting with the first record.
pub(super) async fn watch(mut inbound: Inbound, first: Bytes) {
    inbound.is_lifeline = true;
    let (Ok(local), Ok(())) = (
        inbound.stream.local_addr(),
        socket::tune_lifeline(&inbound.stream),
    ) else {
        return;
    };
    let number = inbound.common.next_lifeline.fetch_add(1, Ordering::Relaxed);
    let mut watch = Watch {
        local: canonical(local),
        remote: inbound.connection.remote(),
        number,
        inbound,
    };
    let end = watch.run(first).await;
    watch
        .report(LifelineEvent::Ended {
            connection: number,
            end,
        })
        .await;
}

struct Watch {
    inbound: Inbound,
    number: u64,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Watch {
    async fn run(&mut self, first: Bytes) -> LifelineEnd {
        let mut next = Some(first);
        loop {
            while let Some(record) = next {
                let (local, remote) = (self.local, self.remote);
                let event = LifelineEvent::Record {
                    connection: self.number,
                    local,
                    remote,
                    record,
                };
                if !self.report(event).await {
                    return LifelineEnd::Broken;
                }
                next = match self.inbound.next_frame() {
                    Ok(next) => next,
                    Err(()) => return LifelineEnd::Broken,
                };
            }
            match self.inbound.read().await {
                Read::Some => {}
                Read::End => return self.judge_end(),
                Read::Failed => return LifelineEnd::Broken,
            }
            next = match self.inbound.next_frame() {
                Ok(next) => next,
                Err(()) => return LifelineEnd::Broken,
            };
        }
    }

    /// R9: a read of nothing proves the end of the process only if no error was ever seen on this socket (any
    /// would have ended the watch, and none is pending), no record is cut short, and the kernel says that a
    /// FIN came.
    fn judge_end(&mut self) -> LifelineEnd {
        let clean = matches!(self.inbound.stream.take_error(), Ok(None));
        let whole = self.inbound.decoder.pending() == 0;
        let closed_by_peer = matches!(socket::is_in_close_wait(&self.inbound.stream), Ok(true));
        if clean && whole && closed_by_peer {
            LifelineEnd::Fin
        } else {
            LifelineEnd::Broken
        }
    }

    async fn report(&mut self, event: LifelineEvent) -> bool {
        self.inbound.is_unjudged = true;
        let connection =
            matches!(event, LifelineEvent::Record { .. }).then(|| self.inbound.connection.clone());
        self.inbound
            .common
            .inputs
            .urgent
            .send(Input::Lifeline { event, connection })
            .await
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_that_was_not_dialled_for_want_of_descriptors_is_in_no_trouble() {
        let dial = DialId(1);
        let (own, trouble) = (LifelineEvent::NotDialled { dial }, LifelineEvent::Failed { dial });
        assert_eq!(not_opened(dial, Some(Lack::Files)), own);
        assert_eq!(not_opened(dial, Some(Lack::Port)), trouble);
        assert_eq!(not_opened(dial, None), trouble);
    }
}
