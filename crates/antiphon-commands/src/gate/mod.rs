//! Where envelopes of peers come in: one TCP port and one UDP port of the same number.
//!
//! ```text
//!   accept ─► bounds by address ─► first byte ─┬─ 0x16 ─► TLS, and again ─┐
//!                                              ├─ *   ─► RESP             │
//!                                              └─ A–Z ─► HTTP ─► WebSocket
//! ```
//! It speaks to those that have the key, and says nothing of use to others: the first envelope that is forged
//! or came before ends its connection. A connection that has shown no good envelope yet is a stranger's.
//!
//! # Bounds
//! [`MAX_CONNECTIONS`], of one address [`MAX_OF_MEMBER`], and [`MAX_OF_STRANGER`] if it is no member's. All
//! addresses that are no member's have [`MAX_STRANGERS`] together, so that they leave places for members. A
//! WebSocket keeps the place of its connection. [`SPEAK_WITHIN`] for the handshake of TLS and the first byte;
//! [`HEAD_WITHIN`] for the head of a request, and for the first envelope by RESP and WebSocket; [`IDLE_FOR`]
//! without a byte; [`WRITE_WITHIN`] for a peer that takes nothing.

mod http;
mod paced;
mod resp;
mod udp;
mod websocket;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::paced::{Busy, Paced};
use crate::node::Node;
use crate::ways::{Endpoint, METADATA};

/// Connections at a gate.
pub const MAX_CONNECTIONS: usize = 1024;
/// Connections of one address that is no member's.
pub const MAX_OF_STRANGER: usize = 8;
/// Connections of all addresses together that are no member's.
pub const MAX_STRANGERS: usize = 256;
/// Connections of one address.
pub const MAX_OF_MEMBER: usize = 256;
/// For a first byte, and for TLS's handshake.
pub const SPEAK_WITHIN: Duration = Duration::from_secs(10);
/// For the head of a request, and for the first envelope of a connection.
pub const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Without a byte from the peer. Longer than a peer keeps a connection that is idle.
pub const IDLE_FOR: Duration = Duration::from_secs(60);
/// Without a byte that the peer takes.
pub const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// After an error of `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An open gate. Nobody is served before there is a node.
#[derive(Debug)]
pub struct Gate {
    tcp: TcpListener,
    udp: UdpSocket,
    addr: SocketAddr,
}

impl Gate {
    /// Listens at this address, TCP and UDP.
    ///
    /// # Errors
    /// Why it cannot.
    pub async fn bind(addr: SocketAddr) -> io::Result<Self> {
        let mut tries = 0;
        loop {
            let tcp = TcpListener::bind(addr).await?;
            let own = tcp.local_addr()?;
            tries += 1;
            match UdpSocket::bind(own).await {
                Ok(udp) => return Ok(Self { tcp, udp, addr: own }),
                // The system chose a port that something else has for UDP.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && addr.port() == 0 && tries < 16 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What the metadata of this node has to say, for peers to find it: key and value.
    pub fn metadata(&self, tls: bool) -> (String, String) {
        (METADATA.to_owned(), Endpoint::told(self.addr, tls))
    }

    /// Serves peers until it is dropped.
    pub(crate) fn serve(self, node: &Arc<Node>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        tasks.spawn(udp::serve(self.udp, node.clone()));
        tasks.spawn(accept(self.tcp, node.clone()));
        tasks
    }
}

/// How many connections there are.
#[derive(Debug, Clone, Default)]
struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    strangers: usize,
    /// Each address has at least one.
    of: HashMap<IpAddr, usize>,
}

struct Place {
    places: Places,
    of: IpAddr,
    is_members: bool,
}

impl Places {
    fn take(&self, of: IpAddr, is_members: bool) -> Option<Place> {
        let most = if is_members {
            MAX_OF_MEMBER
        } else {
            MAX_OF_STRANGER
        };
        let mut taken = self.taken();
        // An address that is refused gets no entry: nothing would take that away again.
        let count = taken.of.get(&of).copied().unwrap_or_default();
        let is_full = taken.all >= MAX_CONNECTIONS || !is_members && taken.strangers >= MAX_STRANGERS;
        if is_full || count >= most {
            return None;
        }
        taken.of.insert(of, count + 1);
        taken.all += 1;
        taken.strangers += usize::from(!is_members);
        let places = self.clone();
        Some(Place {
            places,
            of,
            is_members,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        taken.strangers -= usize::from(!self.is_members);
        if let Some(count) = taken.of.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                taken.of.remove(&self.of);
            }
        }
    }
}

async fn accept(listener: TcpListener, node: Arc<Node>) {
    let places = Places::default();
    // Dropped with this task: connections end with the gate.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, from)) => {
                let ip = from.ip().to_canonical();
                if let Some(place) = places.take(ip, node.is_members(ip)) {
                    let node = node.clone();
                    connections.spawn(async move {
                        serve(stream, &node).await;
                        drop(place);
                    });
                }
            }
            Err(error) => {
                tracing::warn!(target: "antiphon::commands", %error, "the gate cannot accept a peer");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, node: &Arc<Node>) {
    let mut first = [0];
    // A reply is written whole.
    let _ = stream.set_nodelay(true);
    let Ok(Ok(1)) = timeout(SPEAK_WITHIN, stream.peek(&mut first)).await else {
        return;
    };
    match first[0] {
        0x16 => {
            let Some(tls) = node.tls() else { return };
            let Ok(Ok(stream)) = timeout(SPEAK_WITHIN, tls.accept(stream)).await else {
                return;
            };
            // By TLS only HTTP is spoken.
            http::serve(stream, node, true).await;
        }
        // It reads nothing while it serves.
        b'*' => resp::serve(Paced::new(stream, Busy::default()), node).await,
        b'A'..=b'Z' => http::serve(stream, node, false).await,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from(u32::try_from(number).unwrap().to_be_bytes())
    }

    #[test]
    fn strangers_leave_places_for_members() {
        let places = Places::default();
        let strangers = (0..MAX_CONNECTIONS).filter_map(|number| places.take(address(number), false));
        let strangers: Vec<_> = strangers.collect();
        assert_eq!(strangers.len(), MAX_STRANGERS);
        assert!(places.take(address(MAX_CONNECTIONS), true).is_some());
        drop(strangers);
        assert!(places.take(address(0), false).is_some());
    }

    #[test]
    fn an_address_that_is_refused_leaves_nothing_behind() {
        let places = Places::default();
        let mut taken: Vec<_> = (0..MAX_OF_STRANGER)
            .filter_map(|_| places.take(address(0), false))
            .collect();
        assert!(places.take(address(0), false).is_none());
        let further = (MAX_OF_STRANGER..MAX_CONNECTIONS)
            .filter_map(|number| places.take(address(number), number >= MAX_STRANGERS));
        taken.extend(further);
        let before = places.taken().of.clone();
        assert_eq!(
            (taken.len(), before.values().sum()),
            (MAX_CONNECTIONS, MAX_CONNECTIONS)
        );
        for stranger in 0..100 {
            let newcomer = address(MAX_CONNECTIONS + stranger);
            assert!(places.take(newcomer, stranger % 2 == 0).is_none());
        }
        assert_eq!(places.taken().of, before);
        // A place that is given back is the next one's.
        taken.pop();
        taken.extend(places.take(address(MAX_CONNECTIONS), true));
        assert_eq!(
            (taken.len(), places.taken().all),
            (MAX_CONNECTIONS, MAX_CONNECTIONS)
        );
        drop(taken);
        let left = places.taken();
        assert_eq!((left.all, left.strangers, left.of.len()), (0, 0, 0));
    }
}
