//! UDP: a datagram for each envelope. Nothing is sent again, and nothing says that it came but the reply.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::pending::Pending;
use super::{Lost, MAX_DATAGRAM, not_sent, sent};

/// The sockets that commands go out by, one for each family. Dropped, they are closed.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    v4: Mutex<Option<Socket>>,
    v6: Mutex<Option<Socket>>,
    pending: Pending,
}

#[derive(Debug)]
struct Socket {
    socket: Arc<UdpSocket>,
    reading: JoinHandle<()>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Datagrams {
    /// Sends from this address if there is one: the peer takes nothing from an address that it does not know.
    pub(crate) async fn ask(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        envelope: &[u8],
        reply: bool,
    ) -> Result<Option<Bytes>, Lost> {
        let socket = self.socket(from, to).await.map_err(not_sent)?;
        let mut awaited = self.pending.add(envelope);
        socket.send_to(envelope, to).await.map_err(not_sent)?;
        if !reply {
            return Ok(None);
        }
        let reply = awaited.reply().await;
        reply.map(Some).ok_or_else(|| sent("the socket was closed"))
    }

    async fn socket(&self, from: Option<IpAddr>, to: SocketAddr) -> std::io::Result<Arc<UdpSocket>> {
        let (place, any) = match to {
            SocketAddr::V4(_) => (&self.v4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            SocketAddr::V6(_) => (&self.v6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        };
        let mut place = place.lock().await;
        if let Some(open) = &*place {
            return Ok(open.socket.clone());
        }
        // Behind a translation of addresses, the one that others know is none of this host.
        let bound = match from {
            Some(from) => UdpSocket::bind((from, 0)).await.ok(),
            None => None,
        };
        let socket = Arc::new(match bound {
            Some(socket) => socket,
            None => UdpSocket::bind((any, 0)).await?,
        });
        let reading = tokio::spawn(read(socket.clone(), self.pending.clone()));
        *place = Some(Socket {
            socket: socket.clone(),
            reading,
        });
        Ok(socket)
    }
}

async fn read(socket: Arc<UdpSocket>, pending: Pending) {
    let mut datagram = vec![0; MAX_DATAGRAM + 1];
    loop {
        // An error is of one datagram that was sent before: its command has its own deadline.
        if let Ok((length, _)) = socket.recv_from(&mut datagram).await {
            pending.answer(Bytes::copy_from_slice(&datagram[..length]));
        }
    }
}
